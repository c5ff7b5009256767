package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/world"
)

const (
	nodeCount = 6
	namespace = "shop"

	podStart = 100 * time.Millisecond // of a pod's containers
	attach   = 200 * time.Millisecond // of a volume, as of detaching it
	slow     = 8 * time.Second        // of detaching in round 3
)

// The workloads. The names make forcefence, which goes by name among equals, begin with the database.
const (
	dbPods    = 10
	queuePods = 90
	webPods   = 10
	movable   = dbPods + queuePods + webPods
	allPods   = movable + nodeCount // with the DaemonSet's
)

// apps are the workloads' pods by name.
var apps = map[string]int{"db": dbPods, "queue": queuePods, "web": webPods, "agent": nodeCount}

// World is all that the demo runs: a world with machines, and forcefence.
type World struct {
	*world.World               // its cluster is nil until it was started
	out          string        // folder for what the demo leaves behind
	settings     string        // of the configuration's provider
	rule         string        // the machine of its rule
	bin          string        // forcefence's program
	fence        *cluster.Part // nil until it was started
	healthCheck  *cluster.Part // NodeHealthCheck; nil until it was started, or if it is not wanted

	lock *os.File // held until the process ends
	mode string   // in the configuration file
	asks bool     // NodeHealthCheck asks for power-offs
	page int      // of its status page
}

// files the demo leaves behind.
func (w *World) file(name string) string { return filepath.Join(w.out, name) }

// begin prepares the folder and the data centre.
func begin(ctx context.Context, out, power string) (*World, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	w := &World{out: out}
	if w.lock, err = lockFolder(out); err != nil {
		return nil, err
	}
	for _, old := range []string{
		"cluster", "objects.json", "forcefence.log", "config.yaml", "kubeconfig", "bmc-password",
		"bmc-ca.pem"} {
		if err := os.RemoveAll(w.file(old)); err != nil {
			return nil, err
		}
	}
	p, err := world.NewPower(ctx, power)
	if err != nil {
		return nil, fmt.Errorf("-power: %w", err)
	}
	w.World = world.New(nil, p)
	return w, nil
}

// lockFolder takes the folder for this demo. The lock ends with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w: a demo runs there; end it by Ctrl-C, or give another folder by "+
			"DEMOFLAGS='-out FOLDER'", f.Name(), err)
	}
	return f, nil
}

// startControlPlane builds the programs, if they are not in the cache, and starts them.
func (w *World) startControlPlane(ctx context.Context) (err error) {
	w.Cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: w.file("cluster"), NodeGrace: cluster.FastNodeGrace, AttachDelay: attach, DetachDelay: attach,
	})
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(fencings); err == nil { // make demo runs where it is
		var o unstructured.Unstructured // it takes no kubectl, so that a first demo need not build that
		if err := errors.Join(yaml.Unmarshal(text, &o), w.Create(ctx, &o)); err != nil {
			return fmt.Errorf("creating %s: %w", fencings, err)
		}
	}
	return w.WriteKubeconfig(w.file("kubeconfig"), "demo", "system:masters")
}

// fencings is the definition of the objects that tell what became of each fence.
const fencings = chart + "/files/forcefence.io_fencings.yaml"

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// addNodes makes the machines and a node on each.
func (w *World) addNodes(ctx context.Context) error {
	names := make([]string, nodeCount)
	for i := range names {
		names[i] = nodeName(i)
	}
	return w.AddHosts(ctx, names, func(_ int, o *cluster.NodeOptions) { o.StartDelay = podStart })
}

// config is the configuration file as a user would write it.
func (w *World) config() string {
	return fmt.Sprintf(`# As a user would write it. config.example.yaml explains the keys.
mode: %s%s
powerOffAfter: 20s
powerOffTimeout: 30s
detachTimeout: 1m
listen:
  metrics: ""
  status: 127.0.0.1:%d
providers:
- name: racks
  timeout: 2s
  %s
nodes:
- name: workers
  provider: racks
  machine: %s
`, w.mode, w.remediation(), w.page, w.settings, w.rule)
}

// remediation is the configuration's key, with its line break; "" without NodeHealthCheck.
func (w *World) remediation() string {
	if !w.asks {
		return ""
	}
	return "\nremediation: {namespaces: [" + requests + "]}"
}

// firstMode is the mode in which each round begins.
func (w *World) firstMode() string {
	if w.asks {
		return "onRequest"
	}
	return "observe"
}

// setMode edits the configuration file as an editor does: a new file takes the old one's place.
func (w *World) setMode(mode string) error {
	w.mode = mode
	tmp := w.file("config.yaml.new")
	if err := os.WriteFile(tmp, []byte(w.config()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, w.file("config.yaml"))
}

// startForcefence starts the real program and returns once it leads.
func (w *World) startForcefence(ctx context.Context, bin string) error {
	var err error
	if w.bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if _, err := os.Stat(w.bin); err != nil {
		return fmt.Errorf("finding the forcefence program (make build makes it): %w", err)
	}
	if err := kit.FreePorts(&w.page); err != nil {
		return err
	}
	if w.settings, w.rule, err = w.Power.Prepare(w.out); err != nil {
		return err
	}
	if err := w.setMode(w.firstMode()); err != nil {
		return err
	}
	ip, err := kit.FreePodIP()
	if err != nil {
		return err
	}
	w.fence = w.Forcefence(w.bin, w.out, w.file("kubeconfig"), ip)
	return w.fence.Start(ctx)
}

// createPageToken creates an account for the status page, as the chart does, and returns a token of it. The account is
// in the controller's namespace, which the page's log in names: outside of a pod that is kube-system.
func (w *World) createPageToken(ctx context.Context) (string, error) {
	name := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "forcefence-status"}
	if err := w.Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: name},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name.Name}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/forcefence/status"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: name.Namespace, Name: name.Name}},
		},
	); err != nil {
		return "", err
	}
	hour := int64(3600)
	t, err := w.Client().CoreV1().ServiceAccounts(name.Namespace).CreateToken(ctx, name.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"forcefence.io/status"}, ExpirationSeconds: &hour,
		}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a token for the status page: %w", err)
	}
	return t.Status.Token, nil
}

// dump writes what the API server knows, for a look into a failure. It does without if the API server does not answer.
func (w *World) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if out, err := w.Kubectl(ctx, "get", "nodes,pods,volumeattachments,events", "-A", "-o", "json",
		"--show-managed-fields"); err == nil {
		_ = os.WriteFile(w.file("objects.json"), []byte(out), 0o644)
	}
}

// stop ends everything that begin and the others started, and waits.
func (w *World) stop() {
	if w.fence != nil {
		w.fence.Stop()
	}
	if w.healthCheck != nil {
		w.healthCheck.Stop()
	}
	w.Power.Close()
	if w.Cluster != nil {
		w.Cluster.Stop()
	}
}

// createWorkloads creates the pods' owners.
func (w *World) createWorkloads(ctx context.Context) error {
	db := cluster.Workload{Namespace: namespace, Name: "db", Replicas: dbPods, Volume: true}.StatefulSet()
	db.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	return w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, db,
		cluster.Workload{Namespace: namespace, Name: "queue", Replicas: queuePods}.StatefulSet(),
		cluster.Workload{Namespace: namespace, Name: "web", Replicas: webPods}.Deployment(),
		cluster.Workload{Namespace: namespace, Name: "agent"}.DaemonSet())
}

// gather brings all movable pods to one node; create makes them, if there are none yet.
func (w *World) gather(ctx context.Context, node string, create func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not done after %s", 2*patience))
	defer cancel()
	if create != nil {
		if err := w.Open(ctx, node); err != nil {
			return err
		}
		if err := create(ctx); err != nil {
			return err
		}
	}
	if err := w.Gather(ctx, namespace, movable, node); err != nil {
		return err
	}
	last := ""
	if err := cluster.Until(ctx, func(context.Context) (bool, error) {
		last = w.Discrepancy(namespace, apps)
		return last == "", nil
	}); err != nil {
		return fmt.Errorf("gathering pods on %s: %s: %w", node, last, err)
	}
	return nil
}
