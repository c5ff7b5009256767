package page

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	recording "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/drills"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/kit"
)

// sceneConfig is the scenes' configuration file: a BMC for each machine, and a person as the last level. Nodes that
// have the label of old racks have a second BMC instead. No rule claims the nodes of a new rack.
const sceneConfig = `mode: fence
providers:
- name: racks
  redfish: {username: forcefence, passwordEnv: BMC_PASSWORD}
- {name: old, ipmi: {username: forcefence, passwordEnv: BMC_PASSWORD}}
- {name: people, confirm: {validFor: 15m}}
nodes:
- name: racks
  selector: ` + rackLabel + ` in (rack1, rack2, rack3)
  provider: racks
  machine: {from: template, template: "https://{name}.bmc"}
  levels: [{devices: [{provider: people, machine: {from: name}}]}]
- name: old
  selector: ` + rackLabel + `=old
  provider: racks
  machine: {from: template, template: "https://{name}.bmc"}
  levels: [{devices: [{provider: old, machine: {from: template, template: "{name}.ipmi"}}]}]
`

const rackLabel = "example.node-restriction.kubernetes.io/rack"

// scene is a cluster in its own time, with a model of its machines, kubelets and stock controllers. What forcefence
// writes about it is written by the product: the kernel decides, kube.Writer writes the Nodes, observe the Events and
// the Fencings, and drills what the devices answer. So a picture shows only what the program can say.
type scene struct {
	t        testing.TB
	at       time.Time
	fleet    fleet.Fleet
	api      client.Client
	writer   kube.Writer
	file     *config.Config
	settings controller.Config
	observer *observe.Observer
	events   eventsOfNodes
	fences   map[string]journal.Entry
	nodes    []*sceneNode
	ids      int
	later    []laterChange
	cluster  view.Cluster
}

// laterChange is what happens at a time.
type laterChange struct {
	at time.Time
	do func()
}

// sceneNode is one node of a scene, and its machine.
type sceneNode struct {
	decide.World // the actions that no scene comes to: they panic

	s        *scene
	name     string
	course   decide.Node
	reporter *observe.NodeReporter
	machine  machine.Machine // of the last look
	devices  map[string]*sceneDevice

	beats    bool // its kubelet renews the Lease
	lease    int  // the Lease's resourceVersion
	beat     time.Time
	due      time.Time // when the controller looks at it next
	drilled  time.Time // when its devices were asked last
	drillDue time.Time
	pods     []action.Pod
	volumes  map[string][]action.Volume
	attached []action.Attachment
	holds    string // the volume that its driver does not detach
	refused  string // the pod whose writes the API server fails
	changed  bool   // its Node was written since the controller saw it idle
}

// sceneDevice is a device of a machine. It implements providers.Provider.
type sceneDevice struct {
	node  *sceneNode
	power providers.PowerState
	raw   string // its own word; "": that of the power
	err   error
	deaf  bool // it accepts a power-off, and does nothing
}

func (d *sceneDevice) State(_ context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: d.node.s.now(), SystemUUID: t.SystemUUID}
	if d.err != nil {
		return obs, d.err
	}
	if obs.State, obs.Raw = d.power, d.raw; d.raw == "" {
		obs.Raw = d.power.String()
	}
	return obs, nil
}

func (d *sceneDevice) PowerOff(_ context.Context, _ providers.Target, still func() error) error {
	if err := still(); err != nil {
		return err
	}
	if !d.deaf {
		d.node.s.after(1300*time.Millisecond, func() { d.power = providers.PowerOff })
	}
	return d.err
}

func (*sceneDevice) PowerOn(context.Context, providers.Target, func() error) error { return nil }

// newScene returns a scene that begins so long before now. Its six nodes are of two racks, healthy, and have been
// drilled.
func newScene(t testing.TB, ago time.Duration) *scene {
	s := &scene{t: t, at: now.Add(-ago), events: eventsOfNodes{events{}}, fences: map[string]journal.Entry{}}
	t.Setenv("BMC_PASSWORD", "secret")
	var err error
	s.file, err = config.Parse("config.yaml", []byte(sceneConfig), all.Types())
	kit.Must(t, err)
	s.settings = controller.Config{Settings: s.file.Settings("fencing"), Machines: machine.Finder{
		Led:      s.findMachine,
		Recorded: func(node *corev1.Node, _ taint.MachineRef) (machine.Machine, error) { return s.findMachine(node) },
	}}
	s.fleet.SetLimits(s.settings.Limits)
	s.api = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		// The fake client patches no more than metadata of an object that has no more, and no metadata by status.
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption,
		) error {
			return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}, p)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
			if err := c.Patch(ctx, node, p); err != nil {
				return err
			}
			text, _ := p.Data(o)
			var body map[string]any
			if err := json.Unmarshal(text, &body); err != nil {
				return err
			}
			delete(body, "metadata") // its resourceVersion is the former one
			text, _ = json.Marshal(body)
			return c.SubResource(sub).Patch(ctx, node, client.RawPatch(p.Type(), text))
		},
	}).Build()
	leads := func() error { return nil }
	s.writer = kube.Writer{Client: s.api, Key: taint.DefaultKey, Leading: leads,
		Now: func() time.Time { return s.at }}
	s.observer = observe.New(observe.Options{
		Sinks: observe.Sinks{
			Events:  func(at time.Time) recording.EventRecorder { return sceneRecorder{s, at} },
			Log:     slog.New(slog.DiscardHandler),
			Metrics: observe.NewMetrics(prometheus.NewRegistry()),
			Fences:  func(u journal.Update) { s.fences[u.Name()] = s.fences[u.Name()].AddUpdate(u) },
		},
		Leading: leads, Writing: func() bool { return false },
		Fleet: func(do func(*fleet.Fleet)) { do(&s.fleet) }, Now: func() time.Time { return s.at },
	})
	s.cluster.Controller = &view.Leader{
		Lease: "kube-system/forcefence", Namespace: "fencing", Holder: "forcefence-7c9d", Leads: true,
		Renewed: new(now.Add(-2 * time.Second)), Until: new(now.Add(13 * time.Second)), ConfigSince: new(s.at),
		ConfigDigest: s.file.Digest(),
		Room: room.Summarize(now, []room.Failure{
			{Kind: room.Node, Name: "rack1-node1", Pods: 20}, {Kind: room.Node, Name: "rack1-node2", Pods: 5},
		}),
	}
	for _, name := range []string{"rack1-node1", "rack1-node2", "rack1-node3", "rack2-node1", "rack2-node2",
		"rack2-node3"} {
		s.addNode(name, name[:5])
	}
	return s
}

func (s *scene) now() providers.Instant { return providers.InstantOf(s.at) }

// findMachine is the controller's: the machine that the file assigns to the node, with the scene's devices.
func (s *scene) findMachine(node *corev1.Node) (machine.Machine, error) {
	assigned, err := s.file.FindMachine(node)
	if err != nil {
		return machine.Machine{}, err
	}
	device := func(a config.Assignment) machine.Machine {
		name := a.Provider + "/" + a.Target.ID
		return machine.Machine{Provider: s.find(node.Name).device(name), Name: a.Provider, Device: name,
			Target: a.Target, Level: a.Level, Limits: a.Limits, Quiet: a.Provider == "people",
			Identity: taint.MachineRef{Provider: a.Provider, ID: a.Target.ID, SystemUUID: a.Target.SystemUUID}}
	}
	m := device(assigned)
	for _, a := range assigned.Further {
		m.Further = append(m.Further, device(a))
	}
	return m, nil
}

// find returns a node by its name.
func (s *scene) find(name string) *sceneNode {
	i := slices.IndexFunc(s.nodes, func(n *sceneNode) bool { return n.name == name })
	return s.nodes[i]
}

// device returns a device of the node's machine, which is on.
func (n *sceneNode) device(name string) *sceneDevice {
	if n.devices[name] == nil {
		n.devices[name] = &sceneDevice{node: n, power: providers.PowerOn}
		if strings.HasPrefix(name, "people/") {
			n.devices[name].power, n.devices[name].raw = providers.PowerUnknown, "not confirmed"
		}
	}
	return n.devices[name]
}

// bmc returns the first device of the node's machine.
func (n *sceneNode) bmc() *sceneDevice { return n.device("racks/https://" + n.name + ".bmc") }

// addNode adds a healthy node with three pods, two of which have a volume. Its devices were asked just now.
func (s *scene) addNode(name, rack string) *sceneNode {
	number := len(s.nodes) + 1
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{}, Labels: map[string]string{rackLabel: rack}}}
	if strings.HasPrefix(rack, "rack") {
		object.Labels[corev1.LabelTopologyZone] = rack
	}
	object.Status.NodeInfo.BootID = "boot-" + name
	object.Status.NodeInfo.SystemUUID = fmt.Sprintf("5a1e0000-0000-4000-8000-%012d", number)
	setCondition(object, corev1.NodeReady, corev1.ConditionTrue, s.at.Add(-26*time.Hour), "KubeletReady",
		"kubelet is posting ready status")
	setCondition(object, taint.ProtectionCondition, corev1.ConditionTrue, s.at.Add(-26*time.Hour),
		taint.ProtectionFailClosed, "")
	kit.Must(s.t, s.api.Create(context.Background(), object))
	n := &sceneNode{s: s, name: name, beats: true, lease: number, devices: map[string]*sceneDevice{},
		volumes: map[string][]action.Volume{}}
	for i, pod := range []string{"db-" + strconv.Itoa(number), "queue-" + strconv.Itoa(number), "web-5d8f-" + name} {
		p := action.Pod{Namespace: "shop", Name: pod, UID: "uid-" + pod, ResourceVersion: "1", Ready: true,
			Owner: action.Owner{Kind: "StatefulSet", Name: "db", Known: true}}
		if i < 2 {
			pv, claim := "pv-"+pod, "data-"+pod
			p.ClaimNames = []string{claim}
			n.volumes[p.UID] = []action.Volume{{PV: pv, Claim: claim, Driver: "csi.example.com", Handle: pv,
				Unique: corev1.UniqueVolumeName("kubernetes.io/csi/csi.example.com^" + pv)}}
			n.attached = append(n.attached, action.Attachment{Name: fmt.Sprintf("csi-4f0c%d%d", number, i), UID: pv,
				ResourceVersion: "1", PV: pv, Attacher: "csi.example.com"})
		}
		n.pods = append(n.pods, p)
	}
	n.reporter = s.observer.NewNodeReporter(name, &n.course)
	s.nodes = append(s.nodes, n)
	s.fleet.AddNode(name, s.now())
	n.renewLease()
	n.drillDevices()
	n.drillDue = s.at.Add(time.Duration(number*37%300) * time.Second) // its own moments
	return n
}

// object returns the Node as the API server has it.
func (n *sceneNode) object() *corev1.Node {
	var node corev1.Node
	kit.Must(n.s.t, n.s.api.Get(context.Background(), client.ObjectKey{Name: n.name}, &node))
	return &node
}

// edit changes the Node as other clients do.
func (n *sceneNode) edit(change func(*corev1.Node)) {
	node := n.object()
	change(node)
	status := node.DeepCopy()
	kit.Must(n.s.t, n.s.api.Update(context.Background(), node))
	status.ResourceVersion = node.ResourceVersion
	kit.Must(n.s.t, n.s.api.Status().Update(context.Background(), status))
	n.due, n.changed = n.s.at, true
}

func (n *sceneNode) renewLease() {
	n.lease += 100
	n.beat = n.s.at
	n.s.fleet.ApplyLease(n.name, strconv.Itoa(n.lease), 40*time.Second, n.s.now())
}

// after has something happen so much later.
func (s *scene) after(d time.Duration, do func()) {
	s.later = append(s.later, laterChange{s.at.Add(d), do})
}

const (
	renewInterval  = 10 * time.Second // of a kubelet
	notReadyAfter  = 50 * time.Second // without a renewal: the node lifecycle controller's grace period
	drillInterval  = 5 * time.Minute
	retryInterval  = 30 * time.Second // of a drill that failed
	resyncInterval = 2 * time.Minute  // of a node that only a change wakes
)

// kill ends the kubelet. The machine runs on.
func (n *sceneNode) kill() { n.beats, n.changed = false, true }

// revive starts the kubelet again: on the same boot.
func (n *sceneNode) revive() {
	n.beats = true
	n.renewLease()
	n.edit(func(node *corev1.Node) {
		setCondition(node, corev1.NodeReady, corev1.ConditionTrue, n.s.at, "KubeletReady",
			"kubelet is posting ready status")
	})
}

// cutPower ends the kubelet and the machine.
func (n *sceneNode) cutPower() {
	n.kill()
	n.bmc().power = providers.PowerOff
}

// play lets time pass until so long before now. What happens then has happened afterwards.
func (s *scene) play(until time.Duration) {
	for end := now.Add(-until); ; {
		next := end
		earliest := func(at time.Time) {
			if at.After(s.at) && at.Before(next) {
				next = at
			}
		}
		for _, l := range s.later {
			earliest(l.at)
		}
		for _, n := range s.nodes {
			if n.beats {
				earliest(n.beat.Add(renewInterval))
			} else {
				earliest(n.beat.Add(notReadyAfter))
				earliest(n.beat.Add(30 * time.Second)) // it missed two renewals
			}
			earliest(n.due)
			earliest(n.drillDue)
		}
		if !s.at.Before(end) {
			return
		}
		s.at = next
		s.settle()
	}
}

// settle does what is due.
func (s *scene) settle() {
	s.later = slices.DeleteFunc(s.later, func(l laterChange) bool {
		if l.at.After(s.at) {
			return false
		}
		l.do()
		return true
	})
	for _, n := range s.nodes {
		switch {
		case n.beats && s.at.Sub(n.beat) >= renewInterval:
			n.renewLease()
		case !n.beats && s.at.Sub(n.beat) >= notReadyAfter:
			if node := n.object(); taint.Condition(node, corev1.NodeReady).Status == corev1.ConditionTrue {
				n.edit(func(node *corev1.Node) {
					beat := taint.Condition(node, corev1.NodeReady).LastHeartbeatTime
					setCondition(node, corev1.NodeReady, corev1.ConditionUnknown, s.at, "NodeStatusUnknown",
						"Kubelet stopped posting node status.")
					for i := range node.Status.Conditions { // the kubelet's own time stays
						if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
							c.LastHeartbeatTime = beat
						}
					}
				})
				s.events.add(n.name, s.at, "node-controller", "NodeNotReady", corev1.EventTypeNormal,
					"Node "+n.name+" status is now: NodeNotReady")
			}
		}
		if !s.at.Before(n.drillDue) {
			n.drillDevices()
		}
	}
	s.fleet.Tick(s.now())
	for _, n := range s.nodes {
		n.reconcile()
	}
}

// reconcile looks at the node as the controller does, if its turn has come.
func (n *sceneNode) reconcile() {
	s := n.s
	if n.beats && !n.changed {
		return
	}
	node := n.object()
	look := taint.NewLook(node, n.leaseObject(), taint.DefaultKey, s.now(), s.now())
	s.fleet.ApplyLook(look, s.now())
	s.fleet.ApplyRecord(n.name, node.ResourceVersion, look.Record, s.now())
	v := s.fleet.View(n.name, s.now())
	if n.course.IsIdle(look, v) {
		n.course.Apply(s.now(), &s.fleet, decide.NodeIdle{Look: look})
		n.reporter.ReportIdle(node, look, s.settings.Mode(node).Mode)
		n.due, n.changed = time.Time{}, false
		return
	}
	if s.at.Before(n.due) {
		return
	}
	ctx := context.Background()
	requeue, err := decide.Drive(ctx, &n.course, decide.Driver{
		World: n, WithFleet: func(do func(decide.Fleet)) { do(&s.fleet) }, Now: s.now,
		OnStep: func(d decide.StepDone) {
			n.reporter.ReportStep(ctx, d)
		},
	})
	kit.Must(s.t, err)
	if requeue == 0 {
		requeue = resyncInterval
	}
	n.due = s.at.Add(requeue)
}

func (n *sceneNode) leaseObject() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(n.lease)},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40))}}
}

// drillDevices asks the node's devices, and writes what differs from the condition, as drills do.
func (n *sceneNode) drillDevices() {
	s, node := n.s, n.object()
	n.drilled, n.drillDue = s.at, s.at.Add(drillInterval)
	if taint.IsFenced(node, taint.DefaultKey) {
		return
	}
	lend := func(do func(*fleet.Fleet)) { do(&s.fleet) }
	seen := drills.AskDevices(context.Background(), &s.settings, node, machine.DistrustedBy(lend), s.now)
	if len(seen.Devices) > 0 {
		s.fleet.ApplyReachability(n.name, seen.Verdict)
	}
	f, answers := drill.FindingOf(seen), drill.AnswersOf(seen)
	if !f.OK() {
		n.drillDue = s.at.Add(retryInterval)
	}
	before, ready := taint.Condition(node, taint.FenceableCondition), taint.Condition(node, corev1.NodeReady)
	isReady := ready.Status == corev1.ConditionTrue
	if isReady && before.Status != "" && (f.Fenceable != before.Status || f.Reason != reason.Reason(before.Reason)) {
		why := reason.Answers
		if !f.OK() {
			why = reason.NotAnswering
		}
		kube.Events{To: sceneRecorder{s, s.at}, Leading: s.writer.Leading}.Send(node, nil, why, "Probe", "{detail}",
			f.Detail)
	}
	if f.Fenceable == before.Status && string(f.Reason) == before.Reason && f.Message == before.Message &&
		drill.AnswersIn(node).IsSame(answers) &&
		(isReady || !before.LastHeartbeatTime.Before(&ready.LastTransitionTime)) {
		return
	}
	look := taint.NewLook(node, n.leaseObject(), taint.DefaultKey, s.now(), s.now())
	n.changed = true
	kit.Must(s.t, s.writer.SetFenceable(context.Background(), look, s.at, f.Fenceable, string(f.Reason), f.Message,
		answers.Encode(s.at)))
}

// Reads of the kernel.

func (n *sceneNode) ReadNode(context.Context) decide.Observation {
	s, sent := n.s, n.s.now()
	s.at = s.at.Add(10 * time.Millisecond)
	node := n.object()
	look := taint.NewLook(node, n.leaseObject(), taint.DefaultKey, sent, s.now())
	facts, m := s.settings.FactsOf(node, look, s.at)
	n.machine = m
	s.ids++
	facts.By, facts.NewID = "forcefence-7c9d", fmt.Sprintf("f-8bd391b2f%03x", s.ids)
	return decide.NodeRead{Look: look, Facts: facts, Node: node}
}

func (n *sceneNode) ListPods(context.Context) decide.Observation {
	pods := slices.Clone(n.pods)
	for i := range pods {
		pods[i].Claims = len(n.volumes[pods[i].UID]) > 0
	}
	return decide.PodsListed{Pods: pods}
}

func (n *sceneNode) ReadVolumes(_ context.Context, a action.ReadVolumes) decide.Observation {
	of := map[string][]action.Volume{}
	for _, p := range a.Pods {
		of[p.UID] = n.volumes[p.UID]
	}
	return decide.VolumesRead{ByPod: of}
}

func (n *sceneNode) ReadClaims(_ context.Context, a action.ReadClaims) decide.Observation {
	of := map[string]string{}
	for _, pv := range a.PVs {
		of[pv] = "shop/" + strings.Replace(pv, "pv-", "data-", 1)
	}
	return decide.ClaimsRead{ByVolume: of}
}

func (n *sceneNode) ListAttachments(_ context.Context, a action.ListAttachments) decide.Observation {
	return decide.AttachmentsListed{Attachments: slices.Clone(n.attached), Live: a.Live}
}

func (n *sceneNode) AskDevices(ctx context.Context) decide.Observation {
	distrusted := machine.DistrustedBy(func(do func(*fleet.Fleet)) { do(&n.s.fleet) })
	answers := n.machine.AskDevices(ctx, distrusted, n.s.now)
	n.s.at = n.s.at.Add(120 * time.Millisecond)
	for i := range answers {
		answers[i].Got = n.s.now()
	}
	return decide.DevicesAnswered{Answers: answers}
}

// Writes of the kernel.

func (n *sceneNode) write(do func(context.Context, kube.Writer, taint.Look) error) decide.Observation {
	n.s.at = n.s.at.Add(20 * time.Millisecond)
	return decide.ActionDone{Err: do(context.Background(), n.s.writer, n.course.Look())}
}

func (n *sceneNode) WriteRecord(_ context.Context, a action.WriteRecord) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error {
		return w.WriteRecord(ctx, l, a.Record)
	})
}

func (n *sceneNode) SetMark(_ context.Context, a action.SetMark) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error { return w.SetMark(ctx, l, a.Record) })
}

func (n *sceneNode) RemoveMark(_ context.Context, a action.RemoveMark) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error {
		return w.RemoveMark(ctx, l, a.Record)
	})
}

func (n *sceneNode) SetPoweredOnCondition(_ context.Context, a action.SetPoweredOnCondition) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error { return w.SetPoweredOn(ctx, l, a.On) })
}

func (n *sceneNode) ExpireReady(context.Context) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error { return w.ExpireReady(ctx, l) })
}

func (n *sceneNode) ClearVolumes(_ context.Context, a action.ClearVolumes) decide.Observation {
	return n.write(func(ctx context.Context, w kube.Writer, l taint.Look) error {
		return w.ClearVolumes(ctx, l, a.InUse, a.Attached)
	})
}

func (n *sceneNode) PowerOff(ctx context.Context, a action.PowerOff) decide.Observation {
	device := n.machine.Devices()[a.Move.Device]
	sent := n.s.now()
	n.s.at = n.s.at.Add(300 * time.Millisecond)
	err := device.Provider.PowerOff(ctx, device.Target, func() error { return nil })
	return decide.ActionDone{Err: err, SentAt: sent, Power: []decide.PowerSent{{Device: device.Device, Err: err}}}
}

func (n *sceneNode) EndPods(_ context.Context, a action.EndPods) decide.Observation {
	return n.writePods(a.Pods, func(p *action.Pod) bool {
		p.Terminal, p.Tombstone, p.Message = true, true, taint.FenceMessage(n.course.Look().Record.ID)
		return !p.AtOnce
	})
}

func (n *sceneNode) DeletePods(_ context.Context, a action.DeletePods) decide.Observation {
	return n.writePods(a.Pods, func(*action.Pod) bool { return false })
}

func (n *sceneNode) SparePods(_ context.Context, a action.SparePods) decide.Observation {
	return n.writePods(a.Pods, func(p *action.Pod) bool {
		p.Spared = n.course.Look().Record.Token()
		return true
	})
}

// writePods changes pods, and deletes those of which change returns false. Their volumes detach a moment later.
func (n *sceneNode) writePods(pods []action.Pod, change func(*action.Pod) (stays bool)) decide.Observation {
	done := decide.ActionDone{Results: map[string]action.WriteResult{},
		Writes: decide.Writes{Made: map[string]bool{}}}
	for _, p := range pods {
		n.s.at = n.s.at.Add(15 * time.Millisecond)
		if p.Name == n.refused {
			done.Results[p.UID], done.Writes.Failed = action.Failed, done.Writes.Failed+1
			continue
		}
		done.Results[p.UID], done.Writes.Made[p.UID] = action.Accepted, true
		i := slices.IndexFunc(n.pods, func(q action.Pod) bool { return q.UID == p.UID })
		n.pods[i].AtOnce = p.AtOnce
		n.pods[i].ResourceVersion += "0"
		if change(&n.pods[i]) {
			continue
		}
		n.pods = slices.Delete(n.pods, i, i+1)
		for _, v := range n.volumes[p.UID] {
			if v.PV != n.holds {
				n.s.after(700*time.Millisecond, func() {
					n.attached = slices.DeleteFunc(n.attached, func(a action.Attachment) bool { return a.PV == v.PV })
					n.due = n.s.at
				})
			}
		}
	}
	return done
}

// eventsOfNodes are Events in the form in which the page holds them.
type eventsOfNodes struct{ events }

// add adds an Event. Equal ones are a series, as client-go's broadcaster makes it.
func (e eventsOfNodes) add(node string, at time.Time, from, why, kind, note string) {
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: why + " " + note},
		EventTime:  metav1.NewMicroTime(at), ReportingController: from, Reason: why, Type: kind, Note: note,
		Regarding: corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if before, again := e.events[node][event.Name]; again {
		event.Series = &eventsv1.EventSeries{Count: int32(before.Count) + 1, LastObservedTime: event.EventTime}
	}
	e.putEvent(event)
}

// sceneRecorder keeps forcefence's Events about Nodes.
type sceneRecorder struct {
	s  *scene
	at time.Time
}

func (r sceneRecorder) Eventf(
	about, _ runtime.Object, kind, why, _, note string, args ...any,
) {
	if node, is := about.(*corev1.Node); is {
		r.s.events.add(node.Name, r.at, "forcefence", why, kind, fmt.Sprintf(note, args...))
	}
}

// snapshot returns what a process of forcefence holds of the scene.
func (s *scene) snapshot() view.Snapshot {
	leader := s.cluster.Controller
	for _, n := range s.nodes {
		if leader.DrilledSince == nil || n.drilled.Before(*leader.DrilledSince) {
			leader.DrilledSince = &n.drilled
		}
	}
	if held := s.observer.HeldBack(); len(held.Nodes) > 0 {
		silent, of := s.fleet.CountSilent(s.now())
		leader.HeldBack = &view.HeldBack{Rule: held.Rule, Detail: held.Detail, Held: len(held.Nodes), Nodes: held.Nodes,
			Silent: silent, Of: of, Since: held.Since, By: leader.Holder}
	}
	out := view.Snapshot{At: now, Key: taint.DefaultKey, Events: s.events.listEvents(), Cluster: s.cluster,
		NodeConfig: s.nodeConfig}
	for _, n := range s.nodes {
		out.Nodes = append(out.Nodes, n.object())
	}
	for _, name := range slices.Sorted(maps.Keys(s.fences)) {
		out.Fences = append(out.Fences, view.ParsedFencing{Fencing: s.fences[name].Object})
	}
	return out
}

// nodeConfig is the controller's.
func (s *scene) nodeConfig(node *corev1.Node) view.NodeConfig {
	m, err := s.findMachine(node)
	c := view.NodeConfig{NoDeviceReason: providers.ErrorText(err), Mode: s.settings.Mode(node).Mode.String(),
		Excluded: s.settings.Excluded(node)}
	c.ReadsConfirmation, _ = s.file.ReadsConfirmation(node)
	for _, d := range m.Devices() {
		c.Devices = append(c.Devices, d.Device)
	}
	return c
}

// fencePath returns the address of the node's fence.
func (s *scene) fencePath(node string) string {
	for name, e := range s.fences {
		if e.Object.Spec.Node == node {
			return fencePath(name)
		}
	}
	s.t.Fatalf("node %s has no fence", node)
	return ""
}
