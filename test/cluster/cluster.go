// Package cluster runs a real Kubernetes control plane on loopback for tests, the demo and benchmarks, with nodes whose
// power can be cut. etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real programs
// (test/cluster/binaries builds them); the nodes are simulated kubelets that speak the real API under their own
// identities, and a simulated CSI driver provisions, attaches and detaches their volumes.
//
// It promises that what it talks to is what it started: every port is served with a certificate of the cluster's own
// authority, and a port in use is an error, never another program's etcd. Everything listens on 127.0.0.1. Children end
// with Stop, and, on Linux, also when this process dies without calling it. It needs neither root nor a container
// runtime.
//
//	c, err := cluster.Start(ctx, cluster.Options{NodeGrace: 4 * time.Second})
//	defer c.Stop()
//	n, err := c.AddNode(ctx, cluster.NodeOptions{Name: "n1"})
//	n.PowerOff()
//	fmt.Println(c.Ledger().Violations())
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	// FastNodeGrace makes a silent node NotReady after about 4 s instead of 50: short enough for tests, long enough for
	// 2 busy cores.
	FastNodeGrace = 4 * time.Second

	portAttempts = 3
)

// Options of Start. The zero value is a cluster with stock timings, an etcd that does not fsync and a
// controller-manager of 1000 QPS.
type Options struct {
	Dir      string // holds data, certificates and logs, and stays; "": a temporary one that Stop removes
	Binaries string // folder of the programs; "": binaries.Build

	// NodeGrace is the controller-manager's --node-monitor-grace-period; 0: stock (50 s). It also sets the monitor's
	// period and the default pace of the nodes' heartbeats.
	NodeGrace time.Duration

	// Accounts gives pods service accounts and their tokens, as everywhere; a test that makes pods in new namespaces
	// has to wait for these accounts then.
	Accounts bool

	APIServerArgs, KCMArgs []string // added last, so that they win

	AttachDelay, DetachDelay time.Duration // of the simulated CSI attacher; see Attacher.SetDelays

	KeepSpans bool // have the Ledger keep what held from when to when, for CutSpans

	Progress io.Writer    // of a build; nil: os.Stderr
	Logger   *slog.Logger // nil: none
}

// Cluster is a running control plane with its nodes. It is safe for concurrent use.
type Cluster struct {
	opts  Options
	log   *slog.Logger
	dir   string
	bin   string
	pki   *pki
	ports ports
	admin *rest.Config
	parts []*Part // in order of start

	clients   *kubernetes.Clientset // admin, protobuf
	hub       *hub
	attacher  *Attacher
	ledger    *Ledger
	stopHub   context.CancelFunc
	hubDone   sync.WaitGroup
	addresses atomic.Uint32 // handed out so far, to nodes and pods

	mu    sync.Mutex // guards nodes
	nodes map[string]*Node

	stopOnce sync.Once
}

// Start starts a control plane and returns once all of it is ready, 3 to 5 s later if the programs are built. ctx
// bounds the start only: call Stop in the end, even if ctx has ended.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	bin := opts.Binaries
	if bin == "" {
		var err error
		if bin, err = binaries.Build(ctx, binaries.Options{Progress: opts.Progress}); err != nil {
			return nil, err
		}
	}
	var err error
	for range portAttempts { // a free port may be taken before our child binds it
		var c *Cluster
		if c, err = start(ctx, opts, bin); err == nil {
			return c, nil
		}
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, fmt.Errorf("start control plane: %w", err)
}

func start(ctx context.Context, opts Options, bin string) (_ *Cluster, err error) {
	c := &Cluster{opts: opts, bin: bin, log: opts.Logger, dir: opts.Dir, nodes: map[string]*Node{}, ledger: newLedger()}
	c.ledger.keepSpans = opts.KeepSpans
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "forcefence-cluster-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, err
	}
	if err := c.certificates(); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if c.clients, err = kubernetes.NewForConfig(protobuf(c.RESTConfig())); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	etcd, api, kcm, sched := c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler()
	c.parts = []*Part{etcd, api, kcm, sched}
	for _, p := range []*Part{etcd, api} {
		if err := p.Start(ctx); err != nil {
			return nil, err
		}
	}
	errs := make(chan error, 2)
	for _, p := range []*Part{kcm, sched} {
		go func() { errs <- p.Start(ctx) }()
	}
	err = errors.Join(c.startStorage(ctx), <-errs, <-errs)
	return c, err
}

// ports are free when they are picked; the programs refuse to start if another process was faster.
type ports struct{ etcd, etcdPeer, api, kcm, sched int }

func loopback(port int) string { return "https://127.0.0.1:" + strconv.Itoa(port) }

// Users of the control plane's kubeconfigs, as kubeadm names them.
const (
	adminUser = "forcefence-test-admin"
	kcmUser   = "system:kube-controller-manager"
	schedUser = "system:kube-scheduler"
	masters   = "system:masters"
)

func (c *Cluster) certificates() (err error) {
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return err
	}
	if err := kit.FreePorts(&c.ports.etcd, &c.ports.etcdPeer, &c.ports.api, &c.ports.kcm, &c.ports.sched); err != nil {
		return err
	}
	if _, err := c.pki.issueFiles("server", true, "forcefence-test-server"); err != nil {
		return err
	}
	for name, subject := range map[string][]string{
		"admin": {adminUser, masters}, "kcm": {kcmUser}, "scheduler": {schedUser}} {
		kp, err := c.pki.issueFiles(name, false, subject[0], subject[1:]...)
		if err != nil {
			return err
		}
		if err := c.pki.kubeconfig(c.pki.path(name+".kubeconfig"), c.URL(), kp); err != nil {
			return err
		}
		if name == "admin" {
			c.admin = c.pki.restConfig(c.URL(), kp)
		}
	}
	return c.pki.serviceAccountKey()
}

func (c *Cluster) part(name string, ready func(context.Context) error, args []string, extra ...string) *Part {
	return NewPart(name, filepath.Join(c.bin, name), append(args, extra...), filepath.Join(c.dir, name+".log"), ready,
		c.log)
}

func (c *Cluster) etcd() *Part {
	client, peer := loopback(c.ports.etcd), loopback(c.ports.etcdPeer)
	args := []string{
		"--name=test", "--data-dir=" + filepath.Join(c.dir, "etcd"), "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
		"--initial-cluster-token=" + filepath.Base(c.dir),
		"--client-cert-auth", "--trusted-ca-file=" + c.pki.path("ca.crt"),
		"--cert-file=" + c.pki.path("server.crt"), "--key-file=" + c.pki.path("server.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.pki.path("ca.crt"),
		"--peer-cert-file=" + c.pki.path("server.crt"), "--peer-key-file=" + c.pki.path("server.key"),
		"--quota-backend-bytes=8589934592",
		// a member alone: waits this long for others before it leads
		"--heartbeat-interval=20", "--election-timeout=200",
		"--unsafe-no-fsync",
	}
	p := c.part(binaries.Etcd, c.answers(client+"/health"), args)
	p.Change = func(cmd *exec.Cmd) { // etcd refuses a flag that a variable of a person's shell sets as well
		cmd.Env = slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "ETCD_") })
	}
	return p
}

func (c *Cluster) apiServer() *Part {
	return c.part(binaries.APIServer, c.answers(c.URL()+"/readyz"),
		c.apiServerArgs(loopback(c.ports.etcd), c.ports.api), c.opts.APIServerArgs...)
}

// AnotherAPIServer is one more API server, with more arguments, and its address. It reaches the store at etcd, which
// may be a proxy in front of EtcdURL. The caller starts it, and stops it before the cluster.
func (c *Cluster) AnotherAPIServer(etcd string, args ...string) (p *Part, url string, err error) {
	var port int
	if err := kit.FreePorts(&port); err != nil {
		return nil, "", err
	}
	url = loopback(port)
	p = NewPart(binaries.APIServer, filepath.Join(c.bin, binaries.APIServer),
		slices.Concat(c.apiServerArgs(etcd, port), c.opts.APIServerArgs, args),
		filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", binaries.APIServer, port)), c.answers(url+"/readyz"), c.log)
	return p, url, nil
}

func (c *Cluster) apiServerArgs(etcd string, port int) []string {
	args := []string{
		"--etcd-servers=" + etcd, "--etcd-cafile=" + c.pki.path("ca.crt"),
		"--etcd-certfile=" + c.pki.path("admin.crt"), "--etcd-keyfile=" + c.pki.path("admin.key"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.pki.path("server.crt"), "--tls-private-key-file=" + c.pki.path("server.key"),
		"--client-ca-file=" + c.pki.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.path("sa.pub"),
		"--service-account-signing-key-file=" + c.pki.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=1s", // without it open watches keep it from ending for a minute
	}
	if !c.opts.Accounts {
		// pods need no token here, nor a service account in each namespace
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func (c *Cluster) controllerManager() *Part {
	kubeconfig := c.pki.path("kcm.kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.ports.kcm), "--leader-elect=false",
		"--tls-cert-file=" + c.pki.path("server.crt"), "--tls-private-key-file=" + c.pki.path("server.key"),
		"--use-service-account-credentials=true", "--service-account-private-key-file=" + c.pki.path("sa.key"),
		"--root-ca-file=" + c.pki.path("ca.crt"),
		"--cluster-signing-cert-file=" + c.pki.path("ca.crt"), "--cluster-signing-key-file=" + c.pki.path("ca.key"),
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		"--flex-volume-plugin-dir=" + filepath.Join(c.dir, "flex"), // root would create the default on the machine
	}
	if g := c.opts.NodeGrace; g > 0 {
		args = append(args, "--node-monitor-grace-period="+g.String(), "--node-monitor-period="+(g/8).String())
	}
	return c.part(binaries.ControllerManager, c.answers(loopback(c.ports.kcm)+"/healthz"), args, c.opts.KCMArgs...)
}

func (c *Cluster) scheduler() *Part {
	kubeconfig := c.pki.path("scheduler.kubeconfig")
	return c.part(binaries.Scheduler, c.answers(loopback(c.ports.sched)+"/readyz"), []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.ports.sched), "--leader-elect=false",
		"--tls-cert-file=" + c.pki.path("server.crt"), "--tls-private-key-file=" + c.pki.path("server.key"),
	})
}

// answers returns a check that url gives 200 under a certificate of our own authority.
func (c *Cluster) answers(url string) func(context.Context) error {
	client := c.httpClient()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

func (c *Cluster) httpClient() *http.Client {
	conf := &tls.Config{RootCAs: c.pki.Pool(), MinVersion: tls.VersionTLS12}
	if cert, err := tls.X509KeyPair(c.admin.CertData, c.admin.KeyData); err == nil { // we made it: it parses
		conf.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}}
}

// Stop silences the nodes, ends all processes in reverse order and waits for them, and removes a temporary folder. It
// may be repeated.
func (c *Cluster) Stop() {
	c.stopOnce.Do(func() {
		for _, n := range c.Nodes() {
			n.PowerOff()
		}
		if c.stopHub != nil {
			c.stopHub()
			c.hubDone.Wait()
		}
		var clients sync.WaitGroup // scheduler and controller-manager: neither needs the other
		for i := len(c.parts) - 1; i >= 0; i-- {
			if i >= 2 {
				clients.Go(c.parts[i].Stop)
				continue
			}
			clients.Wait()
			c.parts[i].Stop()
		}
		if c.opts.Dir == "" {
			if err := os.RemoveAll(c.dir); err != nil {
				c.log.Warn("Cannot remove folder", "dir", c.dir, "err", err)
			}
		}
	})
}

// URL is the API server's address.
func (c *Cluster) URL() string { return loopback(c.ports.api) }

// EtcdURL is etcd's client address; it wants the certificate admin.crt of folder pki.
func (c *Cluster) EtcdURL() string { return loopback(c.ports.etcd) }

// Dir holds the cluster's data, certificates and logs.
func (c *Cluster) Dir() string { return c.dir }

// RESTConfig is the administrator's (group system:masters), without client-side throttle. Each call returns a copy.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// RESTConfigFor is for a user that has only what RBAC grants it, without client-side throttle.
func (c *Cluster) RESTConfigFor(user string, groups ...string) *rest.Config {
	return c.pki.restConfig(c.URL(), c.pki.issue(false, user, groups...))
}

// Kubeconfig is the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.pki.path("admin.kubeconfig") }

// WriteKubeconfig writes a kubeconfig for a user that has only what RBAC grants it.
func (c *Cluster) WriteKubeconfig(file, user string, groups ...string) error {
	return c.pki.kubeconfig(file, c.URL(), c.pki.issue(false, user, groups...))
}

// Client is the administrator's, without client-side throttle, and speaks protobuf.
func (c *Cluster) Client() kubernetes.Interface { return c.clients }

// KubectlPath builds kubectl of the control plane's version, if it is not in the cache, and returns its path.
func KubectlPath(ctx context.Context) (string, error) {
	dir, err := binaries.Build(ctx, binaries.Options{Names: []string{binaries.Kubectl}})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, binaries.Kubectl), nil
}

// Kubectl runs kubectl as the administrator and returns what it printed; the error carries what it said.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	kubectl, err := KubectlPath(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, kubectl, args...)
	// Without HOME, kubectl would keep its cache in the working folder.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out),
			fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// APIServer is the API server's process: stop it, or pause it, for "the API server goes away". It comes back under the
// same URL.
func (c *Cluster) APIServer() *Part { return c.parts[1] }

// ControllerManager is the controller-manager's process.
func (c *Cluster) ControllerManager() *Part { return c.parts[2] }

// Scheduler is the scheduler's process.
func (c *Cluster) Scheduler() *Part { return c.parts[3] }

// Parts are all processes, in the order they start.
func (c *Cluster) Parts() []*Part { return append([]*Part(nil), c.parts...) }

// Ledger is the record of what ran where.
func (c *Cluster) Ledger() *Ledger { return c.ledger }

// Attacher is the simulated CSI driver's.
func (c *Cluster) Attacher() *Attacher { return c.attacher }

// Until calls check until it says true, and returns its last error if ctx ends first. It calls every 50 ms at first
// and, the longer it waits, less often, at least every 250 ms: what many tests ask for costs the API server more than
// what they are about.
func Until(ctx context.Context, check func(context.Context) (bool, error)) error {
	const often, rarely = 50 * time.Millisecond, 250 * time.Millisecond
	for pause := often; ; pause = min(pause+pause/16, rarely) {
		ok, err := check(ctx)
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// protobuf makes cfg's clients of built-in types cheap. Custom resources do not speak it.
func protobuf(cfg *rest.Config) *rest.Config {
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return cfg
}
