package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

// startLimit bounds the start of one program, on a machine with a load of 30.
const startLimit = 3 * time.Minute

// control is etcd, an API server with an audit log, the controller-manager and the scheduler.
type control struct {
	dir, bin  string
	authority *kit.Authority
	etcd, url string
	admin     *rest.Config
	client    *kubernetes.Clientset
	http      *http.Client
	programs  []*exec.Cmd
}

// auditPolicy logs all writes to what a fence may write, with objects, from every client: so each version of an object
// has its writer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: [pods, pods/status, pods/eviction, nodes, nodes/status]}
  - {group: storage.k8s.io, resources: [volumeattachments]}
- level: Request
  verbs: [create, update]
  namespaces: [forcefence-system]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
`

func (c *control) path(name string) string { return filepath.Join(c.dir, name) }

// startControl returns once all answer. The caller stops it, also after an error.
func startControl(ctx context.Context, dir string) (*control, error) {
	c := &control{dir: dir, authority: kit.NewAuthority("referee")}
	var err error
	if c.bin, err = binaries.Build(ctx, binaries.Options{}); err != nil {
		return c, err
	}
	var etcd, peer, api, kcm, sched int
	if err := kit.FreePorts(&etcd, &peer, &api, &kcm, &sched); err != nil {
		return c, err
	}
	if err := c.credentials(fmt.Sprintf("https://127.0.0.1:%d", api)); err != nil {
		return c, fmt.Errorf("making credentials: %w", err)
	}
	c.etcd = fmt.Sprintf("https://127.0.0.1:%d", etcd)
	peers := fmt.Sprintf("https://127.0.0.1:%d", peer)
	if err := c.program(ctx, binaries.Etcd, c.etcd+"/health",
		"--name=referee", "--data-dir="+c.path("etcd"), "--log-level=warn", "--unsafe-no-fsync",
		"--listen-client-urls="+c.etcd, "--advertise-client-urls="+c.etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=referee="+peers,
		"--client-cert-auth", "--trusted-ca-file="+c.path("ca.crt"), "--cert-file="+c.path("server.crt"),
		"--key-file="+c.path("server.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+c.path("ca.crt"), "--peer-cert-file="+c.path("server.crt"),
		"--peer-key-file="+c.path("server.key"),
		"--quota-backend-bytes=8589934592",
	); err != nil {
		return c, err
	}
	if err := c.apiServer(ctx, "main", c.etcd, api); err != nil {
		return c, err
	}
	cfg := c.path("kcm.kubeconfig")
	kcmURL, schedURL := fmt.Sprintf("https://127.0.0.1:%d/healthz", kcm),
		fmt.Sprintf("https://127.0.0.1:%d/readyz", sched)
	errs := make(chan error, 2)
	go func() {
		errs <- c.program(ctx, binaries.ControllerManager, kcmURL,
			"--kubeconfig="+cfg, "--authentication-kubeconfig="+cfg, "--authorization-kubeconfig="+cfg,
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", kcm), "--leader-elect=false", "--tls-cert-file="+c.path("server.crt"),
			"--tls-private-key-file="+c.path("server.key"),
			"--use-service-account-credentials=true", "--service-account-private-key-file="+c.path("sa.key"),
			"--root-ca-file="+c.path("ca.crt"),
			"--cluster-signing-cert-file="+c.path("ca.crt"), "--cluster-signing-key-file="+c.path("ca.key"),
			"--kube-api-qps=1000", "--kube-api-burst=1000")
	}()
	cfgs := c.path("scheduler.kubeconfig")
	err = c.program(ctx, binaries.Scheduler, schedURL,
		"--kubeconfig="+cfgs, "--authentication-kubeconfig="+cfgs, "--authorization-kubeconfig="+cfgs,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", sched), "--leader-elect=false", "--tls-cert-file="+c.path("server.crt"),
		"--tls-private-key-file="+c.path("server.key"))
	return c, errors.Join(err, <-errs)
}

// apiServer starts one on an etcd; the main one has the audit log.
func (c *control) apiServer(ctx context.Context, name, etcd string, port int) error {
	args := []string{
		"--etcd-servers=" + etcd, "--etcd-cafile=" + c.path("ca.crt"), "--etcd-certfile=" + c.path("admin.crt"),
		"--etcd-keyfile=" + c.path("admin.key"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.path("server.crt"), "--tls-private-key-file=" + c.path("server.key"),
		"--client-ca-file=" + c.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.path("sa.pub"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none", "--authorization-mode=Node,RBAC",
		"--disable-admission-plugins=ServiceAccount", "--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=1s",
		"--audit-policy-file=" + c.path("audit.yaml"), "--audit-log-path=" + c.path("audit-"+name+".log"),
		"--audit-log-maxsize=100000",
		"--audit-log-mode=blocking",
	}
	return c.program(ctx, binaries.APIServer, fmt.Sprintf("https://127.0.0.1:%d/readyz", port), args...)
}

// credentials are a certificate for each part, and the key of ServiceAccounts' tokens.
func (c *control) credentials(url string) error {
	c.url = url
	if err := os.WriteFile(c.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	if err := c.authority.Write(c.path("ca.crt"), c.path("ca.key")); err != nil {
		return err
	}
	both := x509.Certificate{Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	both.IPAddresses = append(both.IPAddresses, loopbackIP)
	if err := c.authority.Sign(both, nil).Write(c.path("server.crt"), c.path("server.key")); err != nil {
		return err
	}
	for name, subject := range map[string]pkix.Name{
		"admin":     {CommonName: "referee", Organization: []string{"system:masters"}},
		"kcm":       {CommonName: "system:kube-controller-manager"},
		"scheduler": {CommonName: "system:kube-scheduler"},
	} {
		cred := c.authority.Sign(
			x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, nil)
		if err := errors.Join(cred.Write(c.path(name+".crt"), c.path(name+".key")),
			writeKubeconfig(c.path(name+".kubeconfig"), url, c.authority.Cert,
				fmt.Sprintf("client-certificate: %s, client-key: %s", c.path(name+".crt"),
					c.path(name+".key")))); err != nil {
			return err
		}
		if name == "admin" {
			c.admin = &rest.Config{Host: url, QPS: -1,
				TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.Cert, CertData: cred.Cert, KeyData: cred.Key}}
			c.http = &http.Client{Timeout: 5 * time.Second,
				Transport: &http.Transport{
					TLSClientConfig: &tls.Config{RootCAs: c.authority.Pool(),
						Certificates: []tls.Certificate{cred.TLS()}}}}
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(c.path("sa.key"),
			pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600),
		os.WriteFile(c.path("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
			0o600)); err != nil {
		return err
	}
	cfg := rest.CopyConfig(c.admin)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	c.client, err = kubernetes.NewForConfig(cfg)
	return err
}

// writeKubeconfig writes one; user is YAML's flow form without its braces.
func writeKubeconfig(file, url string, ca []byte, user string) error {
	caFile := file + ".ca"
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		return err
	}
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, url, caFile, user), 0o600)
}

// program starts one and returns once the URL answers.
func (c *control) program(ctx context.Context, name, url string, args ...string) error {
	log, err := os.OpenFile(c.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := kit.StartChild(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	programsMu.Lock()
	c.programs = append(c.programs, cmd)
	programsMu.Unlock()
	return until(ctx, startLimit, name+" answers", func() (bool, error) {
		resp, err := c.http.Get(url)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK {
			return false, errors.New(resp.Status)
		}
		return true, nil
	})
}

// kubectl runs it as the administrator.
func (c *control) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, binaries.Kubectl),
		append([]string{"--kubeconfig", c.path("admin.kubeconfig")}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return nil
}

// stop ends the programs, the last first.
func (c *control) stop() {
	for i := len(c.programs) - 1; i >= 0; i-- {
		_ = c.programs[i].Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() {
			_ = c.programs[i].Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = c.programs[i].Process.Kill()
			<-done
		}
	}
}
