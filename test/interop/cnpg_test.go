package interop

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

var (
	postgresClusters = schema.GroupVersionResource{Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"}
	mutatingPolicies = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
)

// operatorNS is where CloudNativePG's operator runs.
const operatorNS = "cnpg-system"

// TestCloudNativePG cuts the power of a primary's machine, with Kubernetes alone and with forcefence. Its log has the
// figures of docs/workloads.md. The operator is CloudNativePG's own. The instances are the test's: they answer as the
// instance manager does.
func TestCloudNativePG(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	type round struct {
		name       string
		with       string // what forcefence's configuration has more; "-": it does not run
		together   bool   // the leading operator is on the primary's machine
		no, within time.Duration
	}
	const release = "releaseLeases: [{namespace: cnpg-system, names: [db9c8771.cnpg.io]}]"
	var lines []string
	for _, r := range []round{
		{"kubernetes-operator-elsewhere", "-", false, 0, 0},
		{"forcefence-operator-elsewhere", "", false, 0, 15 * time.Second},
		{"kubernetes-operator-on-the-same-machine", "-", true, 15 * time.Second, 0},
		{"forcefence-operator-on-the-same-machine", "", true, 15 * time.Second, 0},
		{"forcefence-releases-the-operators-lease", release, true, 0, 14 * time.Second},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := newDatabase(t, r.together)
			if r.with != "-" {
				d.fence(program, r.with)
			}
			took := d.failOver()
			lines = append(lines, fmt.Sprintf("%6.1f s  %s", took.Seconds(), r.name))
			if r.within > 0 && took > r.within || took < r.no {
				t.Errorf("got a new primary after %s, want it between %s and %s", took, r.no, r.within)
			}
		})
	}
	t.Logf("from the power cut to the operator's new primary:\n%s", strings.Join(lines, "\n"))
}

// database is a Cluster of CloudNativePG with three instances, on machines with power.
type database struct {
	*world
	dir       string
	hosts     *machine.World
	operators []*cluster.Part   // the first leads
	primary   string            // a pod
	instances map[string]func() // what ends the answers of an instance, by its pod's UID
}

func newDatabase(t *testing.T, together bool) *database {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), Cluster: cluster.ForTest(t, cluster.Options{}), ns: "databases"}
	var err error
	w.dynamic, err = dynamic.NewForConfig(w.RESTConfig())
	kit.Must(t, err)
	d := &database{world: w, dir: t.TempDir(), instances: map[string]func(){}}
	d.hosts, _ = machine.ForTest(t, w.Cluster, d.dir, datacenter.Options{Username: "fence"})
	names := []string{"db-n0", "db-n1", "db-n2", "idle-n0", "idle-n1", "idle-n2", "idle-n3"}
	kit.Must(t, d.hosts.AddHosts(w.ctx, names, func(_ int, o *cluster.NodeOptions) {
		role, _, _ := strings.Cut(o.Name, "-")
		o.Labels = map[string]string{"role": role, "kubernetes.io/hostname": o.Name}
		o.PodNet = "127.129"
	}))
	d.endJobs()
	d.operators, err = CloudNativePG(w.ctx, w.Cluster, d.dir, "op-0_first", "op-1_second")
	kit.Must(t, err)
	for _, o := range d.operators {
		t.Cleanup(o.Kill)
		kit.Must(t, o.Start(w.ctx))
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, o := range d.operators {
				text, err := os.ReadFile(o.LogFile())
				t.Logf("%s: %v\n%s", o.Name(), err, text[max(0, len(text)-8000):])
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			out, err := w.Kubectl(ctx, "-n", w.ns, "get", "clusters,jobs,pods,pvc", "-o", "wide")
			t.Log(out, err)
		}
	})
	w.namespace(w.ns)
	w.create(fmt.Sprintf(`{apiVersion: postgresql.cnpg.io/v1, kind: Cluster, metadata: {namespace: %s, name: pg},
spec: {instances: 3, storage: {size: 1Gi, storageClass: %s}, affinity: {nodeSelector: {role: db},
podAntiAffinityType: required}, enablePDB: false, monitoring: {disableDefaultQueries: true}}}`,
		w.ns, cluster.StorageClass))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.answer(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	w.until("CloudNativePG says that the cluster is healthy", func() bool {
		phase, _, _ := unstructured.NestedString(d.cluster(), "status", "phase")
		return phase == "Cluster in healthy state"
	})
	d.primary, _, _ = unstructured.NestedString(d.cluster(), "status", "currentPrimary")
	on := "idle-n0"
	if together {
		on = d.nodeOf(d.primary)
	}
	d.pod("op-0", on)
	d.pod("op-1", "idle-n1")
	return d
}

// endJobs lets the pods of CloudNativePG's Jobs end by themselves, as their containers would.
func (d *database) endJobs() {
	d.create(fmt.Sprintf(`{apiVersion: %s, kind: MutatingAdmissionPolicy, metadata: {name: jobs-end}, spec: {
failurePolicy: Fail, reinvocationPolicy: Never, matchConstraints: {resourceRules: [
{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]},
matchConditions: [{name: job, expression: "'cnpg.io/jobRole' in object.metadata.?labels.orValue({})"}],
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{
annotations: {"%s": "100ms"}}}'}}]}}`, mutatingPolicies, cluster.RunForAnnotation),
		fmt.Sprintf(`{apiVersion: %s, kind: MutatingAdmissionPolicyBinding, metadata: {name: jobs-end},
spec: {policyName: jobs-end}}`, mutatingPolicies))
}

// pod starts an operator's pod on a node. Its process is the test's.
func (d *database) pod(name, node string) {
	d.t.Helper()
	kit.Must(d.t, d.Create(d.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNS, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}))
	kit.Until(d.t, "the operator's pod runs", func() bool {
		p, err := d.Client().CoreV1().Pods(operatorNS).Get(d.ctx, name, metav1.GetOptions{})
		return err == nil && cluster.IsPodReady(p)
	})
}

// cluster is the Cluster; empty if it cannot be read.
func (d *database) cluster() map[string]any {
	o, err := d.dynamic.Resource(postgresClusters).Namespace(d.ns).Get(context.Background(), "pg", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return o.Object
}

func (d *database) nodeOf(pod string) string {
	d.t.Helper()
	p, err := d.Client().CoreV1().Pods(d.ns).Get(d.ctx, pod, metav1.GetOptions{})
	kit.Must(d.t, err)
	return p.Spec.NodeName
}

// fence runs forcefence with the rights that the chart gives it.
func (d *database) fence(program, more string) {
	d.t.Helper()
	d.installChart("config: {releaseLeases: [{namespace: cnpg-system, names: [db9c8771.cnpg.io]}]}\n")
	f := &fleet{world: d.world, hosts: d.hosts}
	f.run(program, d.dir, fmt.Sprintf(`
mode: observe
%s
listen: {metrics: ""}
lines: {port: 0}
providers:
- name: racks
  timeout: 2s
  redfish: {username: fence, passwordFile: "%[2]s/password", caFile: "%[2]s/ca.pem", events: sse}
nodes:
- {name: all, provider: racks, machine: {from: annotation, annotation: %[3]s, allow: [127.0.0.1]}}
`, more, d.dir, machine.BMCAnnotation))
	kit.Until(d.t, "forcefence has an event stream of each BMC", func() bool {
		return !slices.ContainsFunc(d.hosts.Hosts, func(h *machine.Host) bool { return h.Redfish().BMC.Streams() == 0 })
	})
}

// failOver cuts the power of the primary's machine, and of the leading operator if it is there. It returns when the
// operator has chosen a new primary.
func (d *database) failOver() time.Duration {
	d.t.Helper()
	host := d.hosts.Host(d.nodeOf(d.primary))
	operator, err := d.Client().CoreV1().Pods(operatorNS).Get(d.ctx, "op-0", metav1.GetOptions{})
	kit.Must(d.t, err)
	if operator.Spec.NodeName == host.Name() {
		d.operators[0].Kill()
	}
	start := time.Now()
	kit.Must(d.t, host.Machine.CutPower())
	d.until("there is another primary", func() bool {
		now, _, _ := unstructured.NestedString(d.cluster(), "status", "currentPrimary")
		return now != d.primary && now != ""
	})
	took := time.Since(start)
	if out, err := d.Kubectl(d.ctx, "-n", d.ns, "get", "events", "--sort-by=.metadata.creationTimestamp"); err == nil {
		d.t.Logf("Events of the databases:\n%s", out[max(0, len(out)-1500):])
	}
	return took
}

// answer answers for the instances as their instance manager does, until ctx ends: it serves their status, and promotes
// the instance that the operator chose.
func (d *database) answer(ctx context.Context) {
	defer func() {
		for _, end := range d.instances {
			end()
		}
	}()
	for ctx.Err() == nil {
		for _, p := range d.Pods(d.ns) {
			if p.Labels["cnpg.io/podRole"] == "instance" && p.Status.PodIP != "" && d.instances[string(p.UID)] == nil {
				if end, err := d.serve(ctx, p.DeepCopy()); err == nil {
					d.instances[string(p.UID)] = end
				}
			}
		}
		d.promote(ctx)
		cluster.Sleep(ctx, 50*time.Millisecond)
	}
}

// promote makes the instance the primary that the operator chose, if its machine is on.
func (d *database) promote(ctx context.Context) {
	status, _, _ := unstructured.NestedMap(d.cluster(), "status")
	target, _ := status["targetPrimary"].(string)
	for _, p := range d.Pods(d.ns) {
		if target != "" && p.Name == target && status["currentPrimary"] != target && d.isOn(p) &&
			d.instances[string(p.UID)] != nil {
			now := time.Now().UTC().Format(time.RFC3339Nano)
			patch := fmt.Sprintf(`{"status":{"currentPrimary":%q,"currentPrimaryTimestamp":%q}}`, target, now)
			_, _ = d.dynamic.Resource(postgresClusters).Namespace(d.ns).Patch(ctx, "pg", "application/merge-patch+json",
				[]byte(patch), metav1.PatchOptions{}, "status") // again at the next round
		}
	}
}

func (d *database) isOn(p *corev1.Pod) bool {
	n := d.Node(p.Spec.NodeName)
	return n != nil && n.IsOn()
}

// serve answers for an instance with the server's certificate that the operator made, until end is called. Where the
// machine is off, no answer comes: neither to a request on an old connection, nor to a new connection.
func (d *database) serve(ctx context.Context, p *corev1.Pod) (end func(), err error) {
	secret, err := d.Client().CoreV1().Secrets(d.ns).Get(ctx, "pg-server", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(p.Status.PodIP, "8000"))
	if err != nil {
		return nil, err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if !d.isOn(p) {
				<-r.Context().Done()
				return
			}
			d.writeStatus(w, p)
		})}
	// Nothing acknowledges a new connection to a dead machine, either. The operator's timeout spans the handshake.
	secured := &tls.Config{Certificates: []tls.Certificate{pair},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if !d.isOn(p) {
				<-ctx.Done()
			}
			return nil, ctx.Err()
		}}
	go func() { _ = s.Serve(tls.NewListener(l, secured)) }()
	return func() { _ = s.Close() }, nil
}

// writeStatus writes what the operator reads of /pg/status (postgres.PostgresqlStatus of v1.28.0). A replica's WAL
// receiver ends when the primary does not answer: wal_receiver_timeout is 5 s there.
func (d *database) writeStatus(w http.ResponseWriter, p *corev1.Pod) {
	current, _, _ := unstructured.NestedString(d.cluster(), "status", "currentPrimary")
	primary := current == p.Name || current == ""
	streams := false
	for _, other := range d.Pods(d.ns) {
		if other.Name == current && !primary {
			streams = d.isOn(other)
		}
	}
	status := map[string]any{
		"systemID": "1", "isPrimary": primary, "isWalReceiverActive": streams, "timeLineID": 1, "node": p.Spec.NodeName,
		"executableHash": "a", "instanceManagerVersion": "1.28.0", "instanceArch": "amd64", "isArchivingWAL": true,
	}
	if primary {
		status["currentLsn"] = "0/3000000"
	} else {
		status["receivedLsn"], status["replayLsn"] = "0/3000000", "0/3000000"
	}
	_ = json.NewEncoder(w).Encode(status)
}
