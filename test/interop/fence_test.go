package interop

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

// powerOffAfter is the least that the configuration takes.
const powerOffAfter = 20 * time.Second

// fleet is a world whose nodes have machines with power and BMCs. forcefence runs beside the other project's
// controller.
type fleet struct {
	*world
	hosts *machine.World
}

// fleetOptions are what differs between fleets.
type fleetOptions struct {
	start   func(context.Context, *cluster.Cluster, string) (*cluster.Part, error) // the controller
	mode    string                                                                 // forcefence's, as YAML
	prepare func(*world)                                                           // before there are hosts
	labels  map[string]string                                                      // of all hosts
	hosts   map[string]int                                                         // by story
}

// onRequest lets a request of the shared namespace permit a power-off.
const onRequest = "mode: onRequest\nremediation: {namespaces: [" + requests + "], onGiveUp: replaceMachine}"

// newFleet makes hosts for each story, called STORY-n0 and so on, after prepare if it is not nil. All requests are in
// one namespace. Idle hosts make most nodes healthy: else forcefence would take the silence for a fault of the network.
func newFleet(t *testing.T, program string, o fleetOptions) *fleet {
	t.Helper()
	f, dir := newHosts(t, o)
	f.start(program, dir, o.mode+"\n")
	t.Cleanup(func() {
		for _, v := range f.Ledger().Violations(cluster.TwoPods, cluster.TwoWriters) {
			kit.Harm(t, "%s", v)
		}
	})
	return f
}

// newHosts is newFleet without forcefence. dir is where its configuration goes.
func newHosts(t *testing.T, o fleetOptions) (f *fleet, dir string) {
	t.Helper()
	w := newWorld(t, o.start)
	dir = t.TempDir()
	f = &fleet{world: w}
	f.hosts, _ = machine.ForTest(t, w.Cluster, dir, datacenter.Options{PowerOffDelay: 500 * time.Millisecond,
		Username: "fence"})
	w.ns = requests
	w.templates()
	if o.prepare != nil {
		o.prepare(w)
	}
	var names []string
	idle := 0
	for _, n := range o.hosts {
		idle += n
	}
	o.hosts["Idle"] = idle
	for story, n := range o.hosts {
		for i := range n {
			names = append(names, fmt.Sprintf("%s-n%d", strings.ToLower(story), i))
		}
	}
	kit.Must(t, f.hosts.AddHosts(w.ctx, names, func(i int, n *cluster.NodeOptions) {
		story, _, _ := strings.Cut(n.Name, "-")
		n.Labels = map[string]string{"story": story, "host": n.Name}
		maps.Copy(n.Labels, o.labels)
		providerID(i, n)
	}))
	return f, dir
}

// start runs forcefence with the rights of its manifests. top begins its configuration. It returns the file.
func (f *fleet) start(program, dir, top string) (config string) {
	f.t.Helper()
	return f.run(program, dir, fmt.Sprintf(`%s
powerOffAfter: %s
powerOffTimeout: 5s
stormGuard: {maxPowerOffs: 10, minHealthy: 0}
listen: {metrics: ""}
providers:
- name: racks
  timeout: 2s
  redfish: {username: fence, passwordFile: "%[3]s/password", caFile: "%[3]s/ca.pem"}
nodes:
- {name: all, provider: racks, machine: {from: annotation, annotation: %[4]s, allow: [127.0.0.1]}}
`, top, powerOffAfter, dir, machine.BMCAnnotation))
}

// run runs forcefence with that configuration, and returns its file.
func (f *fleet) run(program, dir, text string) (config string) {
	f.t.Helper()
	podIP, err := kit.FreePodIP()
	kit.Must(f.t, err)
	config = filepath.Join(dir, "config.yaml")
	kubeconfig := filepath.Join(dir, "account.kubeconfig")
	kit.Must(f.t, os.WriteFile(config, []byte(text), 0o600))
	kit.Must(f.t, f.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+installedIn+":forcefence",
		"system:serviceaccounts"))
	p := cluster.NewPart("forcefence", program,
		[]string{"run", "--config", config, "--kubeconfig", kubeconfig, "--log-format", "json"},
		filepath.Join(dir, "forcefence.log"), func(ctx context.Context) error {
			return kit.Answers(ctx, fmt.Sprintf("http://%s:%d/readyz", podIP, kit.HealthPort))
		}, nil)
	p.Env = []string{"POD_NAMESPACE=" + installedIn, "POD_IP=" + podIP}
	f.t.Cleanup(func() {
		p.Stop()
		text, err := os.ReadFile(p.LogFile())
		kit.Must(f.t, err)
		for _, refused := range []string{"is forbidden: User ", "ValidatingAdmissionPolicy 'forcefence-"} {
			if bytes.Contains(text, []byte(refused)) {
				f.t.Errorf("the API server refused what forcefence may do: %q in its log", refused)
			}
		}
		if f.t.Failed() {
			f.t.Logf("forcefence printed:\n%s", text)
		}
	})
	kit.Must(f.t, p.Start(f.ctx))
	return config
}

// story is a story of the fleet with its hosts.
func (f *fleet) story(t *testing.T) (*fleet, []*machine.Host) {
	t.Helper()
	w, _ := f.world.story(t, 0, nil)
	var hosts []*machine.Host
	for _, h := range f.hosts.Hosts {
		if strings.HasPrefix(h.Name(), w.name+"-") {
			hosts = append(hosts, h)
		}
	}
	return &fleet{world: w, hosts: f.hosts}, hosts
}

// inhabit starts a pod with a volume on one of the story's hosts, and returns that host, and the others.
func (f *fleet) inhabit(hosts []*machine.Host) (on *machine.Host, others []*machine.Host) {
	f.t.Helper()
	f.namespace(f.name)
	kit.Must(f.t, f.Create(f.ctx, cluster.Workload{Namespace: f.name, Name: "db", Replicas: 1, Volume: true,
		NodeSelector: map[string]string{"story": f.name}}.StatefulSet()))
	kit.Must(f.t, f.WaitReadyPods(f.ctx, f.name, 1))
	node := f.ReadyPods(f.name)[0].Spec.NodeName
	for _, h := range hosts {
		if h.Name() == node {
			on = h
		} else {
			others = append(others, h)
		}
	}
	return on, others
}

// occupy starts a pod on each of these hosts that can run nowhere else: forcefence leaves a node without pods alone.
func (f *fleet) occupy(hosts []*machine.Host) {
	f.t.Helper()
	f.namespace(f.name)
	f.pin(hosts)
	kit.Must(f.t, f.WaitReadyPods(f.ctx, f.name, len(hosts)))
}

// pin makes the pods of occupy.
func (f *fleet) pin(hosts []*machine.Host) {
	f.t.Helper()
	for _, h := range hosts {
		kit.Must(f.t, f.Create(f.ctx, cluster.Workload{Namespace: f.name, Name: h.Name(), Replicas: 1,
			NodeSelector: map[string]string{"host": h.Name()}}.Deployment()))
	}
}

// untilReplaced waits until the pod runs on another host.
func (f *fleet) untilReplaced(from *machine.Host) {
	f.t.Helper()
	f.until("the pod runs elsewhere", func() bool {
		ready := f.ReadyPods(f.name)
		return len(ready) == 1 && ready[0].Spec.NodeName != from.Name()
	})
}

// node returns the Node of a host.
func (f *fleet) node(h *machine.Host) *corev1.Node {
	f.t.Helper()
	n, err := f.Client().CoreV1().Nodes().Get(f.ctx, h.Name(), metav1.GetOptions{})
	kit.Must(f.t, err)
	return n
}

// record returns the Node's record; the zero Record if there is none.
func (f *fleet) record(h *machine.Host) taint.Record {
	f.t.Helper()
	r, err := taint.RecordOf(f.node(h))
	kit.Must(f.t, err)
	if r == nil {
		return taint.Record{}
	}
	return *r
}

// untilFenced waits until the fence of a host is done, and checks its result and that the mark is off.
func (f *fleet) untilFenced(h *machine.Host, want taint.Result) {
	f.t.Helper()
	f.until("the fence of "+h.Name()+" is done", func() bool { return f.record(h).Phase == taint.PhaseDone })
	if got := f.record(h).Result; got != want {
		f.t.Errorf("fence of %s: got %s, want %s", h.Name(), got, want)
	}
	if m, ok := taint.FindMark(f.node(h), taint.DefaultKey, ""); ok {
		f.t.Errorf("mark of %s after its fence: got %q, want none", h.Name(), m.Value)
	}
}

// untilConcluded waits until forcefence says of a request whether it succeeded.
func (f *fleet) untilConcluded(name string, want metav1.ConditionStatus) {
	f.t.Helper()
	f.until(fmt.Sprintf("request %s: Succeeded is %s", name, want), func() bool {
		o := f.request(request, name)
		if o == nil {
			return false
		}
		c, _ := condition(o, "Succeeded")
		return c.Status == want
	})
}

// untilGone waits until a request is gone: nothing holds it.
func (f *fleet) untilGone(name string) {
	f.t.Helper()
	f.until("request "+name+" is gone", func() bool { return f.request(request, name) == nil })
}

// resets counts the power-offs that were asked of the host's machine.
func resets(h *machine.Host) int {
	m := h.Redfish()
	return m.BMC.Count(http.MethodPost, "/redfish/v1/Systems/"+m.Name()+"/Actions/ComputerSystem.Reset")
}

// staysOn checks that forcefence powers no machine off for a while in which it could.
func (f *fleet) staysOn(h *machine.Host, because string) {
	f.t.Helper()
	before := resets(h)
	f.during(powerOffAfter+15*time.Second, because, func() bool { return h.Machine.Running() && resets(h) == before })
}

// TestFence plays stories with the other projects' controllers, forcefence and machines. It does not run beside the
// other tests: four control planes at once are too many for two cores.
func TestFence(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	t.Run("NodeHealthCheck", func(t *testing.T) {
		f := newFleet(t, program, fleetOptions{start: NodeHealthCheck, mode: onRequest, hosts: map[string]int{
			"Hung": 2, "Paused": 3, "Escalated": 2, "TimedOut": 2, "Deleted": 2, "Three": 4, "Page": 4,
			"Stale": 2}})
		f.play(t, map[string]func(*testing.T, *fleet){
			"Hung": nhcFenceHung, "Paused": nhcFencePaused, "Escalated": nhcFenceEscalated,
			"TimedOut": nhcFenceTimedOut, "Deleted": nhcFenceDeleted, "Three": nhcFenceThree,
			"Page": nhcFencePage, "Stale": nhcFenceStale,
		})
	})
	t.Run("ClusterAPI", func(t *testing.T) {
		f := newFleet(t, program, fleetOptions{start: ClusterAPI, mode: onRequest,
			prepare: func(w *world) { w.capiCluster(t) },
			hosts:   map[string]int{"Hung": 4, "Paused": 2, "Asked": 2, "Replaced": 2, "Page": 2}})
		f.play(t, map[string]func(*testing.T, *fleet){
			"Hung": capiFenceHung, "Paused": capiFencePaused, "Asked": capiFenceAsked,
			"Replaced": capiFenceReplaced, "Page": capiFencePage,
		})
	})
}

// TestHosts plays stories of hosts of virtual machines.
func TestHosts(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	t.Run("KubeVirt", func(t *testing.T) {
		f := newFleet(t, program, fleetOptions{start: KubeVirt, mode: "mode: fence",
			labels: map[string]string{schedulableLabel: "false"},
			hosts:  map[string]int{"Cut": 2, "Silent": 2, "Alone": 2}})
		f.play(t, map[string]func(*testing.T, *fleet){
			"Cut": kubeVirtCut, "Silent": kubeVirtSilent, "Alone": kubeVirtAlone})
	})
	t.Run("Harvester", func(t *testing.T) {
		f := newFleet(t, program, fleetOptions{start: Harvester, mode: "mode: observe", prepare: runSettingsPatch,
			hosts: map[string]int{"Refused": 2, "Allowed": 2, "Dead": 2}})
		f.play(t, map[string]func(*testing.T, *fleet){
			"Refused": harvesterRefused, "Allowed": harvesterAllowed, "Dead": harvesterDead})
	})
}

// play plays the stories, all at once.
func (f *fleet) play(t *testing.T, stories map[string]func(*testing.T, *fleet)) {
	t.Helper()
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, f)
		})
	}
}

// A kubelet hangs, and its machine runs on: the request lets forcefence power it off.
func nhcFenceHung(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request)
	h, _ := f.inhabit(hosts)
	h.StopHeartbeats()
	f.untilRequest(request, h.Name())
	f.untilConcluded(h.Name(), metav1.ConditionTrue)
	f.untilFenced(h, taint.ResultEvicted)
	f.untilReplaced(h)
	if h.Machine.Running() || resets(h) == 0 {
		t.Errorf("machine: runs %t, %d power-offs; want it powered off", h.Machine.Running(), resets(h))
	}
	if o := f.request(request, h.Name()); o == nil || len(o.GetFinalizers()) > 0 {
		t.Errorf("request: got %v, want it there without a finalizer", o)
	}
	kit.Must(t, f.hosts.Boot(f.ctx, []string{h.Name()}, nil))
	f.untilGone(h.Name())
	f.untilStatus("healthyNodes", int64(2))
}

// Without a request forcefence powers no machine off, and recovers what is off.
func nhcFencePaused(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request)
	f.patch(nodeHealthChecks, "", f.name, `{"spec":{"pauseRequests":["upgrade"]}}`)
	f.untilStatus("phase", "Paused")
	cut, others := f.inhabit(hosts)
	hung := others[0]
	f.pin(others[:1])
	kit.Must(t, f.WaitReadyPods(f.ctx, f.name, 2))
	hung.StopHeartbeats()
	kit.Must(t, cut.Machine.CutPower())
	f.untilFenced(cut, taint.ResultEvicted)
	f.staysOn(hung, "no request permits a power-off")
	f.patch(nodeHealthChecks, "", f.name, `{"spec":{"pauseRequests":null}}`)
	f.untilConcluded(hung.Name(), metav1.ConditionTrue)
	f.untilFenced(hung, taint.ResultEvicted)
	f.untilConcluded(cut.Name(), metav1.ConditionTrue) // its fence was before the request
}

// A paused NodeHealthCheck keeps the request of a node that came back. It does not permit a power-off in the next
// outage.
func nhcFenceStale(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request)
	f.occupy(hosts[:1])
	h := hosts[0]
	paused := func(value string) {
		f.patch(corev1.SchemeGroupVersion.WithResource("nodes"), "", h.Name(),
			`{"metadata":{"annotations":{"forcefence.io/paused":`+value+`}}}`)
	}
	paused(`"test"`)
	h.StopHeartbeats()
	f.untilRequest(request, h.Name())
	f.untilConcluded(h.Name(), metav1.ConditionUnknown)
	f.patch(nodeHealthChecks, "", f.name, `{"spec":{"pauseRequests":["upgrade"]}}`)
	f.untilStatus("phase", "Paused")
	h.ResumeHeartbeats()
	f.untilConcluded(h.Name(), metav1.ConditionTrue)
	paused("null")
	h.StopHeartbeats()
	f.untilUnknown(h.Node)
	f.staysOn(h, "the request is for an earlier outage")
	if f.request(request, h.Name()) == nil {
		t.Error("the request is gone: the story shows nothing")
	}
}

// A machine that does not go off is the next remediator's, at once.
func nhcFenceEscalated(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request, other)
	h, _ := f.inhabit(hosts)
	h.Redfish().BMC.SetFault(datacenter.Fault{StaysOn: true})
	h.StopHeartbeats()
	f.untilRequest(request, h.Name())
	f.untilConcluded(h.Name(), metav1.ConditionFalse)
	f.untilFenced(h, taint.ResultPowerOffFailed)
	f.untilRequest(other, h.Name())
	f.until("the request has timed out", func() bool {
		return f.request(request, h.Name()).GetAnnotations()[timedOutAnnotation] != ""
	})
	h.Redfish().BMC.SetFault(datacenter.Fault{})
	f.staysOn(h, "a request that timed out permits no power-off")
}

// A device is silent until NodeHealthCheck's time is over. From then on no power-off begins.
func nhcFenceTimedOut(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request, other)
	h, _ := f.inhabit(hosts)
	h.Redfish().BMC.SetFault(datacenter.Fault{Status: http.StatusServiceUnavailable})
	h.StopHeartbeats()
	f.untilRequest(request, h.Name())
	f.untilRequest(other, h.Name())
	f.untilConcluded(h.Name(), metav1.ConditionFalse)
	h.Redfish().BMC.SetFault(datacenter.Fault{})
	f.staysOn(h, "a request that timed out permits no power-off")
	if n := resets(h); n > 0 {
		t.Errorf("power-offs: got %d, want none", n)
	}
}

// The Node is deleted in the middle: nothing holds the request.
func nhcFenceDeleted(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request)
	h, _ := f.inhabit(hosts)
	h.StopHeartbeats()
	f.untilRequest(request, h.Name())
	f.until("a power-off", func() bool { return resets(h) > 0 })
	kit.Must(t, f.Client().CoreV1().Nodes().Delete(f.ctx, h.Name(), metav1.DeleteOptions{}))
	f.untilGone(h.Name())
}

// Three hang at once: each has a request, and each is fenced.
func nhcFenceThree(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watch("", request)
	f.occupy(hosts[:3])
	for _, h := range hosts[:3] {
		h.StopHeartbeats()
	}
	for _, h := range hosts[:3] {
		f.untilConcluded(h.Name(), metav1.ConditionTrue)
		f.untilFenced(h, taint.ResultEvicted)
	}
	kit.Must(t, f.hosts.Boot(f.ctx, []string{hosts[0].Name(), hosts[1].Name(), hosts[2].Name()}, nil))
	f.untilStatus("healthyNodes", int64(4))
}

// The page's own health check and template, of which NodeHealthCheck gives requests names that it generates.
func nhcFencePage(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.page("## NodeHealthCheck",
		"{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}",
		"{matchLabels: {story: "+f.name+"}}", "duration: 60s", "duration: 1s")
	f.fencedByPage(hosts, "")
}

// The page's own health check and template.
func capiFencePage(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	for _, n := range nodes(hosts) {
		f.machine(n, "story: "+f.name)
	}
	f.page("## Cluster API", "namespace: default", "namespace: "+f.ns, "pool: workers", "story: "+f.name,
		"timeoutSeconds: 60", "timeoutSeconds: 1")
	f.fencedByPage(hosts, "machine-of-")
}

// page applies the objects of a section of docs/health-checks.md, with other words (old, new, ...) in the place of some.
func (f *fleet) page(heading string, words ...string) {
	f.t.Helper()
	block := pageBlock(f.t, "health-checks.md", heading, "yaml test=taint/features/remediation.TestPages")
	for pair := range slices.Chunk(words, 2) {
		if !strings.Contains(block, pair[0]) {
			f.t.Fatalf("%s: no %q in its objects", heading, pair[0])
		}
		block = strings.ReplaceAll(block, pair[0], pair[1])
	}
	file := filepath.Join(f.t.TempDir(), "objects.yaml")
	kit.Must(f.t, os.WriteFile(file, []byte(block), 0o600))
	_, err := f.Kubectl(f.ctx, "create", "-f", file)
	kit.Must(f.t, err)
}

// pageBlock returns the first block of that kind below a heading of a page of the documentation.
func pageBlock(t *testing.T, page, heading, kind string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	kit.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	_, block, _ := strings.Cut(section, "```"+kind+"\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatalf("%s, %s: no block of %s", page, heading, kind)
	}
	return block
}

// fencedByPage lets a node hang, and waits until its request, whose name begins so, has succeeded and is gone.
func (f *fleet) fencedByPage(hosts []*machine.Host, prefix string) {
	f.t.Helper()
	h, _ := f.inhabit(hosts)
	h.StopHeartbeats()
	name := ""
	f.until("a request for "+h.Name(), func() bool {
		for _, n := range f.requestNames(request) {
			if strings.HasPrefix(n, prefix+h.Name()) {
				name = n
			}
		}
		return name != ""
	})
	f.untilConcluded(name, metav1.ConditionTrue)
	f.untilFenced(h, taint.ResultEvicted)
	f.untilReplaced(h)
	kit.Must(f.t, f.hosts.Boot(f.ctx, []string{h.Name()}, nil))
	f.untilGone(name)
}

// nodes are those of the hosts.
func nodes(hosts []*machine.Host) (out []*cluster.Node) {
	for _, h := range hosts {
		out = append(out, h.Node)
	}
	return out
}

// Two hang at once, and are powered off for their requests. A third loses its power while they are down: it is
// recovered in any case, though Cluster API may make no request for it.
func capiFenceHung(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watchMachines("", nodes(hosts)...)
	f.occupy(hosts[:3])
	for _, h := range hosts[:2] {
		h.StopHeartbeats()
	}
	for _, h := range hosts[:2] {
		f.untilConcluded(machineName(h.Node), metav1.ConditionTrue)
		f.untilFenced(h, taint.ResultEvicted)
		f.untilCondition(machineName(h.Node), "ExternallyRemediated", metav1.ConditionTrue)
	}
	kit.Must(t, hosts[2].Machine.CutPower())
	f.untilFenced(hosts[2], taint.ResultEvicted)
	kit.Must(t, f.hosts.Boot(f.ctx, []string{hosts[0].Name(), hosts[1].Name()}, nil))
	for _, h := range hosts[:2] {
		f.untilGone(machineName(h.Node))
		f.untilCondition(machineName(h.Node), "HealthCheckSucceeded", metav1.ConditionTrue)
		if c, ok := condition(f.find(machines, f.ns, machineName(h.Node)), "OwnerRemediated"); ok {
			t.Errorf("OwnerRemediated of %s: got %+v, want none: it would have the Machine deleted", h.Name(), c)
		}
	}
}

// A paused Machine gets no request, so its node's machine stays on.
func capiFencePaused(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watchMachines("", nodes(hosts)...)
	h := hosts[0]
	f.occupy(hosts[:1])
	f.annotate(machines, machineName(h.Node), pausedAnnotation, `""`)
	h.StopHeartbeats()
	f.untilUnknown(h.Node)
	f.staysOn(h, "a paused Machine's node is not powered off")
	f.annotate(machines, machineName(h.Node), pausedAnnotation, "null")
	f.untilConcluded(machineName(h.Node), metav1.ConditionTrue)
	f.untilFenced(h, taint.ResultEvicted)
}

// A BMC accepts the power-off and does nothing. forcefence gives the Machine up, and its MachineSet deletes it.
func capiFenceReplaced(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watchMachines("", nodes(hosts)...)
	h := hosts[0]
	f.occupy(hosts[:1])
	f.machineSet(len(hosts))
	h.Redfish().BMC.SetFault(datacenter.Fault{StaysOn: true})
	h.StopHeartbeats()
	f.untilConcluded(machineName(h.Node), metav1.ConditionFalse)
	f.until("the MachineSet deletes the Machine", func() bool {
		o := f.find(machines, f.ns, machineName(h.Node))
		return o == nil || o.GetDeletionTimestamp() != nil
	})
	if o := f.find(machines, f.ns, machineName(hosts[1].Node)); o == nil || o.GetDeletionTimestamp() != nil {
		t.Error("the Machine of a healthy node is being deleted, too")
	}
}

// machineSet makes a MachineSet that adopts the story's Machines.
func (f *fleet) machineSet(replicas int) {
	f.t.Helper()
	f.create(fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %s}, `+
		`spec: {template: {spec: {}}}}`,
		fakeMachine.GroupVersion(), template(fakeMachine).Kind, f.ns, f.name),
		fmt.Sprintf(`{apiVersion: %s, kind: MachineSet, metadata: {namespace: %s, name: %s}, spec: {
  clusterName: c1, replicas: %d, selector: {matchLabels: {story: %[3]s}},
  template: {metadata: {labels: {story: %[3]s}}, spec: {clusterName: c1, bootstrap: {dataSecretName: none},
    infrastructureRef: {apiGroup: %[5]s, kind: %[6]s, name: %[3]s}}}}}`,
			coreGroup, f.ns, f.name, replicas, fakeMachine.Group, template(fakeMachine).Kind))
	f.until("the MachineSet has the Machines", func() bool {
		for _, h := range f.hosts.Hosts {
			if !strings.HasPrefix(h.Name(), f.name+"-") {
				continue
			}
			if ownerOf(f.find(machines, f.ns, machineName(h.Node)), "MachineSet").Name != f.name {
				return false
			}
		}
		return true
	})
}

// A user has a request made of a node that is Ready: forcefence leaves it alone.
func capiFenceAsked(t *testing.T, f *fleet) {
	f, hosts := f.story(t)
	f.watchMachines("", nodes(hosts)...)
	h := hosts[0]
	f.occupy(hosts[:1])
	f.annotate(machines, machineName(h.Node), remediateAnnotation, `""`)
	f.until("the request says why nothing happens", func() bool {
		o := f.request(request, machineName(h.Node))
		if o == nil {
			return false
		}
		c, _ := condition(o, "Processing")
		return c.Reason == "NodeReady"
	})
	f.staysOn(h, "a node that is Ready is left alone")
	f.annotate(machines, machineName(h.Node), remediateAnnotation, "null")
	f.untilGone(machineName(h.Node))
}
