package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machines "github.com/forcefence/forcefence/test/world"
)

// person fences by hand and releases, with the two ClusterRoles for people and nothing else.
const person = "person"

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + account + `", "` + person + `"]
- level: None
`

// justified are rights that a fence need not use, and why they are granted.
var justified = map[string]string{
	"taint forcefence.io/nodefences": "it is no request: the policies ask the authorizer for it",
	"patch events.k8s.io/events":     "counts an Event that is sent again within some minutes",
	"delete forcefence.io/fencings":  "when a hundred fences are over, or after ninety days",
	"get cluster.x-k8s.io/machines":  "where Cluster API's objects are in the same cluster",
	"get cluster.x-k8s.io/clusters":  "likewise",
	"list persistentvolumeclaims":    "the estimate of room, a minute after a process begins to lead",
	"list persistentvolumes":         "likewise",
	"list storage.k8s.io/csinodes":   "likewise",
	"list coordination.k8s.io/leases": "the kubelets' heartbeats, live while none is fresh; and where the API server " +
		"does not stream lists",
	"list nodes": "how informers begin where the API server does not stream lists (before " +
		"Kubernetes 1.34)",
}

// TestFence runs the real binary as the Deployment's pods would run it: once per pod, under a token of the
// ServiceAccount, with the ConfigMap's file. The leader's node loses its power, with everything on it.
func TestFence(t *testing.T) {
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.log")
	kit.Must(t, os.WriteFile(filepath.Join(dir, "audit.yaml"), []byte(auditPolicy), 0o600))
	binary := build(t, dir, "forcefence")
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace, APIServerArgs: []string{
		"--audit-policy-file=" + filepath.Join(dir, "audit.yaml"), "--audit-log-path=" + audit,
	}})
	hosts := w.machines(dir, 5) // first: both replicas go to a control-plane node that is the only one yet
	w.install(someRacks)
	for _, role := range []string{"forcefence-operator", "forcefence-release"} {
		kit.Must(t, w.grant(role, nil, person))
	}
	w.untilReplicas(nil)

	// The leader is to die: its process and its machine.
	replicas := map[string]*cluster.Part{}
	for _, p := range w.c.ReadyPods(namespace) {
		replicas[p.Name] = w.replica(binary, dir, p.Name)
	}
	leader := w.leader("")
	victim := hosts[w.pod(namespace, leader).Spec.NodeName]
	w.busy(victim)
	old := w.pod(namespace, leader)

	cut := time.Now()
	replicas[leader].Kill()
	victim.machine.CutPower()
	survivor := w.leader(leader)
	rec := w.untilDone(victim.Name(), taint.ResultEvicted)
	if rec.By != survivor {
		t.Errorf("record: got a fence by %s, want one by the survivor %s", rec.By, survivor)
	}
	t.Logf("fence done %s after the power cut", time.Since(cut).Round(100*time.Millisecond))
	w.untilMoved(victim)

	// The dead node's replica is replaced by Kubernetes' own eviction, not by the fence.
	w.untilReplicas(victim)
	t.Logf("replica replaced %s after the power cut", time.Since(cut).Round(100*time.Millisecond))
	if p := w.pod(namespace, leader); p == nil || p.UID != old.UID || p.DeletionTimestamp == nil ||
		taint.IsTombstone(p) {
		t.Errorf("the dead node's replica: got %+v, want it being deleted, and not ended by a fence", p)
	}

	w.byHand(t, binary, dir, hosts, victim)

	// The machine comes back: its kubelet says so through all policies, and nothing of before is left on it.
	victim.machine.PowerOn()
	w.until("the node is back", func() (bool, error) {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, victim.Name(), metav1.GetOptions{})
		return err == nil && cluster.IsReady(n) && n.Status.NodeInfo.BootID == victim.machine.BootID() &&
			w.pod(namespace, leader) == nil, err
	})

	for name, p := range replicas {
		p.Stop()
		if text, err := os.ReadFile(p.LogFile()); err != nil ||
			bytes.Contains(bytes.ToLower(text), []byte("forbidden")) {
			t.Errorf("log of %s: %v\n%s", name, err, text)
		}
	}
	w.rights(t, audit)
	w.queues(t)
}

// byHand fences and releases a node that is only cut off, as a person would.
func (w *world) byHand(t *testing.T, binary, dir string, hosts map[string]*host, victim *host) {
	t.Helper()
	kubeconfig := filepath.Join(dir, "person.kubeconfig")
	kit.Must(t, w.c.WriteKubeconfig(kubeconfig, person))
	run := func(program string, args ...string) (string, error) {
		cmd := exec.CommandContext(w.ctx, program, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var silent *host
	for _, p := range w.c.ReadyPods("work") {
		if p.Spec.NodeName != victim.Name() {
			silent = hosts[p.Spec.NodeName]
		}
	}
	silent.StopHeartbeats()
	kit.Must(t, w.c.WaitNode(w.ctx, silent.Name(), cluster.IsNotReady))
	kubectl, err := cluster.KubectlPath(w.ctx)
	kit.Must(t, err)
	if out, err := run(kubectl, "taint", "node", silent.Name(), key+"=manual:NoSchedule"); err != nil {
		t.Fatalf("kubectl taint as %s: %v: %s", person, err, out)
	}
	w.until("the mark is refused", func() (bool, error) {
		list, err := w.c.Client().EventsV1().Events("").
			List(w.ctx, metav1.ListOptions{FieldSelector: "reason=MarkRefusedPoweredOn"})
		return err == nil && len(list.Items) > 0, err
	})
	if out, err := run(binary, "release", silent.Name(), "--yes"); err != nil {
		t.Fatalf("forcefence release as %s: %v: %s", person, err, out)
	}
	rec := w.untilDone(silent.Name(), taint.ResultReleased)
	spared := 0
	for _, p := range w.c.Pods("work") {
		if p.Spec.NodeName == silent.Name() && taint.SparedBy(p) == rec.Token() {
			spared++
		}
	}
	if spared == 0 {
		t.Error("release spared no pod: the right to write their status was not tried")
	}
	silent.ResumeHeartbeats()
	kit.Must(t, w.c.WaitNode(w.ctx, silent.Name(), cluster.IsReady))
}

// host is a node and the machine under it.
type host struct {
	*cluster.Node
	machine *datacenter.Machine
	bmc     *datacenter.BMC
}

// machines makes nodes whose machines can be asked, and what the ConfigMap's file and the Deployment want of a user.
func (w *world) machines(dir string, n int) map[string]*host {
	w.t.Helper()
	w.hosts, _ = machines.ForTest(w.t, w.c, dir, datacenter.Options{Username: "forcefence"})
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	kit.Must(w.t, w.hosts.AddHosts(w.ctx, names, func(_ int, o *cluster.NodeOptions) {
		o.SandboxRetry = 200 * time.Millisecond
	}))
	hosts := map[string]*host{}
	for i, h := range w.hosts.Hosts {
		m := h.Redfish()
		hosts[h.Name()] = &host{Node: h.Node, machine: m.Machine, bmc: m.BMC}
		if i < 3 { // where the Deployment's pods may run; a kubelet may not give itself this label
			_, err := w.c.Client().CoreV1().Nodes().Patch(w.ctx, h.Name(), types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), metav1.PatchOptions{})
			kit.Must(w.t, err)
		}
	}
	return hosts
}

// untilReplicas waits until the Deployment's two pods run, on two control-plane nodes, none of them but.
func (w *world) untilReplicas(but *host) {
	w.t.Helper()
	w.until("two replicas run", func() (bool, error) {
		nodes := map[string]bool{}
		for _, p := range w.c.ReadyPods(namespace) {
			if p.Spec.NodeName != "n0" && p.Spec.NodeName != "n1" && p.Spec.NodeName != "n2" {
				w.t.Fatalf("a replica runs on the worker %s", p.Spec.NodeName)
			}
			if but == nil || p.Spec.NodeName != but.Name() {
				nodes[p.Spec.NodeName] = true
			}
		}
		return len(nodes) == 2, fmt.Errorf("they run on %v", slices.Collect(maps.Keys(nodes)))
	})
}

// rackKeys are keys of config. A machine that a node names needs the right to pin it.
const rackKeys = `  providers:
  - name: racks
    redfish: {username: forcefence, passwordFile: /etc/forcefence-bmc/password, caFile: /etc/forcefence-bmc/ca.pem}
  nodes:
  - name: all
    selector: ""
    provider: racks
    machine: {from: annotation, annotation: example.net/bmc, allow: [127.0.0.1]}
`

// someRacks are values; further keys of config may follow them.
const someRacks = noHook + "config:\n  mode: observe\n" + rackKeys

// configuration is the ConfigMap's file with what is different outside a pod: addresses, and the folder of the Secret.
func (w *world) configuration(dir, metrics string) string {
	w.t.Helper()
	var config map[string]any
	kit.Must(w.t, yaml.Unmarshal([]byte(w.config(w.t)), &config))
	config["listen"] = map[string]string{"metrics": metrics, "status": w.page}
	text, err := yaml.Marshal(config)
	kit.Must(w.t, err)
	return strings.ReplaceAll(string(text), "/etc/forcefence-bmc/", dir+"/")
}

// replica runs the binary for a pod of the Deployment, with more keys in its file.
func (w *world) replica(binary, dir, pod string, more ...string) *cluster.Part {
	w.t.Helper()
	return w.process(binary, dir, pod, func(metrics, _ string) string {
		return w.configuration(dir, metrics) + strings.Join(more, "")
	})
}

// process is replica with any configuration. Earlier versions take the address of health from it, too.
func (w *world) process(binary, dir, pod string, configuration func(metrics, health string) string) *cluster.Part {
	w.t.Helper()
	ip, err := kit.FreePodIP()
	kit.Must(w.t, err)
	health := fmt.Sprintf("%s:%d", ip, kit.HealthPort)
	config := filepath.Join(dir, pod+".yaml")
	kit.Must(w.t, os.WriteFile(config, []byte(configuration(kit.FreeAddress(w.t), health)), 0o600))
	kubeconfig := filepath.Join(dir, pod+".kubeconfig")
	kit.Must(w.t, w.tokenKubeconfig(kubeconfig))
	ready := func(ctx context.Context) error { return kit.Answers(ctx, "http://"+health+"/readyz") }
	p := cluster.NewPart(pod, binary,
		[]string{"run", "--config=" + config, "--kubeconfig=" + kubeconfig, "--identity=" + pod, "--log-format=json"},
		filepath.Join(dir, pod+".log"), ready, nil)
	p.Env = []string{"POD_NAMESPACE=" + namespace, "POD_IP=" + ip}
	w.endsWithTest(p)
	kit.Must(w.t, p.Start(w.ctx))
	return p
}

// endsWithTest stops a program at the test's end, and shows what it printed if the test failed.
func (w *world) endsWithTest(p *cluster.Part) {
	w.t.Cleanup(func() {
		if p.Stop(); w.t.Failed() {
			w.t.Logf("%s printed:\n%s", p.Name(), logOf(p))
		}
	})
}

// tokenKubeconfig writes a kubeconfig with a token of the controller's ServiceAccount.
func (w *world) tokenKubeconfig(file string) error {
	cfg := w.c.RESTConfig()
	token := w.token(namespace, "forcefence", nil)
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
}

// leader waits until a process leads, other than but.
func (w *world) leader(but string) string {
	w.t.Helper()
	var who string
	w.until("a leader", func() (bool, error) {
		l, err := w.c.Client().CoordinationV1().Leases(metav1.NamespaceSystem).
			Get(w.ctx, "forcefence", metav1.GetOptions{})
		if err == nil && l.Spec.HolderIdentity != nil {
			who = *l.Spec.HolderIdentity
		}
		return who != "" && who != but, err
	})
	return who
}

// pod is nil if there is none of that name.
func (w *world) pod(ns, name string) *corev1.Pod {
	for _, p := range w.c.Pods(ns) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// busy puts work on a node: pods with volumes that go, one with a volume that stays because it tolerates the mark. For
// its sake the controller reads claims and volumes.
func (w *world) busy(h *host) {
	w.t.Helper()
	api := w.c.Client()
	_, err := api.CoreV1().Namespaces().
		Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
	kit.Must(w.t, err)
	kit.Must(w.t, w.hosts.Open(w.ctx, h.Name()))
	for _, s := range []cluster.Workload{{Name: "db", Replicas: 3, Volume: true}, {Name: "stays", Replicas: 1,
		Volume: true, Tolerations: []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}}} {
		s.Namespace = "work"
		_, err := api.AppsV1().StatefulSets("work").Create(w.ctx, s.StatefulSet(), metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	// A StatefulSet deletes its ended pods by itself; those of a Deployment are left to us.
	_, err = api.AppsV1().Deployments("work").
		Create(w.ctx, cluster.Workload{Namespace: "work", Name: "web", Replicas: 2}.Deployment(),
			metav1.CreateOptions{})
	kit.Must(w.t, err)
	kit.Must(w.t, w.c.WaitReadyPods(w.ctx, "work", 6))
	kit.Must(w.t, w.hosts.Open(w.ctx))
}

// untilDone waits for the end of a node's fence.
func (w *world) untilDone(node string, want taint.Result) taint.Record {
	w.t.Helper()
	var rec taint.Record
	w.until("the fence of "+node+" is done", func() (bool, error) {
		n, err := w.c.Client().CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		r, err := taint.RecordOf(n)
		if err != nil || r == nil {
			return false, err
		}
		rec = *r
		_, marked := taint.FindMark(n, key, rec.ID)
		return rec.Phase == taint.PhaseDone && !marked, fmt.Errorf("phase %s", rec.Phase)
	})
	if rec.Result != want {
		w.t.Fatalf("fence of %s: got %s, want %s", node, rec.Result, want)
	}
	return rec
}

// untilMoved waits until the pods run elsewhere, and checks that the one that stays has its volume.
func (w *world) untilMoved(h *host) {
	w.t.Helper()
	w.until("pods run elsewhere", func() (bool, error) {
		moved := slices.DeleteFunc(w.c.ReadyPods("work"),
			func(p *corev1.Pod) bool { return p.Spec.NodeName == h.Name() })
		return len(moved) == 5, fmt.Errorf("%d of 5 do", len(moved))
	})
	vas, err := w.hosts.Attachments(w.ctx)
	kit.Must(w.t, err)
	left := slices.DeleteFunc(vas, func(va machines.Attachment) bool { return va.Node != h.Name() })
	p := w.pod("work", "stays-0")
	if len(left) != 1 || p == nil || p.Spec.NodeName != h.Name() || taint.IsTombstone(p) {
		w.t.Errorf("on the dead node: got volumes %v and pod %+v, want the one that tolerates the mark", left, p)
	}
}

// rights compares what the ServiceAccount asked for, by the API server's audit log, with what it is granted.
func (w *world) rights(t *testing.T, audit string) {
	t.Helper()
	text, err := os.ReadFile(audit)
	kit.Must(t, err)
	used, people := map[string]bool{}, 0
	for line := range bytes.Lines(text) {
		var e struct {
			Verb, RequestURI string
			UserAgent        string
			User             struct{ Username string }
			ObjectRef        *struct{ Resource, Subresource, Namespace, Name, APIGroup string }
			ResponseStatus   struct {
				Code    int
				Message string
			}
		}
		kit.Must(t, json.Unmarshal(line, &e))
		if e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("%s was refused: %s %s: %s", e.User.Username, e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
		if want := "forcefence/" + builtAs; e.UserAgent != want &&
			(e.User.Username != person || !strings.HasPrefix(e.UserAgent, "kubectl/")) {
			t.Errorf("%s %s: User-Agent: got %q, want %q", e.Verb, e.RequestURI, e.UserAgent, want)
		}
		switch {
		case e.User.Username == person:
			people++
		case e.ObjectRef != nil:
			used[right(e.Verb, e.ObjectRef.APIGroup,
				strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"))+" "+e.ObjectRef.Namespace] = true
		}
	}
	if people == 0 {
		t.Error("audit log: got nothing of the person's, want all of them in it")
	}
	for _, u := range parse(t, charted(t, someRacks)) {
		if u.GetKind() != "Role" && u.GetKind() != "ClusterRole" ||
			slices.Contains(
				[]string{"forcefence-operator", "forcefence-release", "forcefence-explain", "forcefence-view",
					"forcefence-look", "forcefence-logs", "forcefence-pauser", "forcefence-operate"}, u.GetName()) {
			continue
		}
		role := typed[rbacv1.Role](t, u.Object) // a ClusterRole has its fields, too
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, res := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted, found := right(verb, group, res), false
						for use := range used {
							found = found ||
								strings.HasPrefix(use, granted+" ") &&
									(role.Namespace == "" || use == granted+" "+role.Namespace)
						}
						if !found && justified[granted] == "" {
							t.Errorf("%s %s grants %q, which a fence does not use", u.GetKind(), u.GetName(), granted)
						}
					}
				}
			}
		}
	}
	t.Logf("rights used: %v", slices.Sorted(maps.Keys(used)))
}

func right(verb, group, res string) string {
	return verb + " " + strings.TrimPrefix(group+"/"+res, "/")
}

// queues checks that the ServiceAccount's requests are sorted as flowschema.yaml says.
func (w *world) queues(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	kit.Must(t, w.tokenKubeconfig(file))
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	kit.Must(t, err)
	client, err := rest.HTTPClientFor(cfg)
	kit.Must(t, err)
	for path, want := range map[string]string{
		"/api/v1/nodes?limit=1": "forcefence",
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/forcefence": "forcefence-leader-election",
	} {
		fs, err := w.c.Client().FlowcontrolV1().FlowSchemas().Get(w.ctx, want, metav1.GetOptions{})
		kit.Must(t, err)
		w.until("requests for "+path+" are sorted into "+want, func() (bool, error) {
			req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, cfg.Host+path, nil)
			if err != nil {
				return false, err
			}
			resp, err := client.Do(req)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			got := resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
			return resp.StatusCode == http.StatusOK && got == string(fs.UID),
				fmt.Errorf("%s, FlowSchema %s, want %s", resp.Status, got, fs.UID)
		})
	}
}

// build compiles one of the programs. builtAs is the version that the tests' programs get.
const builtAs = "v9.8.7"

func build(t *testing.T, dir, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	out := filepath.Join(dir, program)
	kit.GoBuild(t, "", "github.com/forcefence/forcefence/cmd/"+program, out, "-ldflags",
		"-X github.com/forcefence/forcefence/cmd/internal/version.built="+builtAs)
	return out
}
