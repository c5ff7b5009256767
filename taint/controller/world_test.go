package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/test/kit"
)

// world is a cluster around one Reconciler, in virtual time: objects in memory, kubelets that renew their Leases, the
// attach/detach controller, machines behind several devices. What only an API server can tell is tested on one; here it
// is the glue's decisions.
//
// No two things of it are alike, so that none can be taken for another: a volume's claim, PersistentVolume, handle and
// attachment all have names of their own, each node tells its system UUID in another spelling than its device, and
// every node has pods of every kind.
type world struct {
	offTimeout time.Duration // powerOffTimeout; 0: 30s
	t          *testing.T
	api        client.Client
	r          *Reconciler
	mode       fence.Mode
	chosen     func(*corev1.Node) fence.ChosenMode // nil: mode
	excluded   string                              // a node that is left alone
	limits     *fleet.Limits
	onDetach   evict.OnDetachTimeout

	mu  sync.Mutex // guards now and changes
	now time.Time

	machines map[string]*simMachine // by node
	beats    map[string]time.Time   // when a node's kubelet renewed its Lease last
	silent   map[string]bool        // nodes whose kubelet does not
	stale    map[string]bool
	volumes  int
	uses     map[string][]string                       // the PersistentVolumes that a pod uses
	unique   map[string]string                         // a PersistentVolume's name in the nodes' lists
	due      map[string]time.Time                      // when a node is looked at again, if nothing changes until then
	failed   map[string]int                            // how often in a row a node's look failed
	changes  int                                       // writes but those of Leases
	detaches bool                                      // the attach/detach controller works
	fail     func(o client.Object, patch string) error // refuses patches; nil: none
	told     telling
	heard    *heard
}

const worldNS = "shop"

// machine is one machine and what its device says of it.
type simMachine struct {
	w     *world
	uuid  string // as the device tells it
	on    bool
	lies  bool          // the device says Off
	obeys bool          // a power-off ends in Off
	deaf  bool          // its device answers nobody
	two   bool          // another device speaks for it, too
	takes time.Duration // its device answers after that, with what was true before
	off   []time.Time
	asked time.Time  // when its device was asked last
	heard time.Time  // when its node was heard last, as the last question said
	mu    sync.Mutex // guards off, on, asked and heard
}

func (m *simMachine) State(_ context.Context, t providers.Target) (providers.Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = t.Heard
	if m.deaf {
		return providers.Observation{}, providers.ErrUnreachable
	}
	o := m.says()
	m.w.pass(m.takes)
	return o, nil
}

// says is what an honest device, or a lying one, says. The caller holds mu.
func (m *simMachine) says() providers.Observation {
	m.asked = m.w.Now()
	o := providers.Observation{State: providers.PowerOff, Raw: "Off", SystemUUID: m.uuid,
		At: providers.InstantOf(m.asked)}
	if m.on && !m.lies {
		o.State, o.Raw = providers.PowerOn, "On"
	}
	return o
}

// outlet is another device of the machine. It answers always, tells no system UUID, and does not lie.
type outlet struct{ *simMachine }

func (d outlet) State(context.Context, providers.Target) (providers.Observation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := providers.Observation{State: providers.PowerOff, Raw: "dark", At: providers.InstantOf(d.w.Now())}
	if d.on {
		o.State, o.Raw = providers.PowerOn, "lit"
	}
	return o, nil
}

func (d outlet) PowerOff(context.Context, providers.Target, func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off, d.on = append(d.off, d.w.Now()), false
	return nil
}

func (m *simMachine) PowerOff(context.Context, providers.Target, func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf {
		return providers.ErrUnreachable
	}
	m.off = append(m.off, m.w.Now())
	m.on = m.on && !m.obeys
	return nil
}

func (*simMachine) PowerOn(context.Context, providers.Target, func() error) error { return nil }

// offs is how often the machine was powered off.
func (m *simMachine) offs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.off)
}

// lastAsked is when the machine's device was asked last.
func (m *simMachine) lastAsked() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// telling notes what was told, as reason and object.
type telling struct {
	mu    sync.Mutex // guards said and texts
	said  []string
	texts []string
}

func (e *telling) Eventf(o runtime.Object, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := ""
	if named, ok := o.(client.Object); ok {
		name = named.GetName()
	}
	e.said, e.texts = append(e.said, reason+" "+name), append(e.texts, fmt.Sprintf(note, args...))
}

func (e *telling) has(said string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.said, said)
}

// nodes of every world, and their devices: two machines share one, and there is more than one provider.
var worldDevices = map[string][2]string{
	"n1": {"racks", "enclosure-7"}, "n2": {"racks", "enclosure-7"}, "n3": {"virt", "hv-2"}, "n4": {"racks", "bmc-9"},
	"n5": {"virt", "hv-3"},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), machines: map[string]*simMachine{},
		beats: map[string]time.Time{}, silent: map[string]bool{}, stale: map[string]bool{},
		uses: map[string][]string{}, unique: map[string]string{}, due: map[string]time.Time{}, failed: map[string]int{},
		detaches: true,
	}
	nodeName := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	scheme := runtime.NewScheme() // of the three groups alone: all of client-go's take their time
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme} {
		must(t, add(scheme))
	}
	w.api = fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, "spec.nodeName", nodeName).
		WithIndex(&storagev1.VolumeAttachment{}, nodeNameIndex, indexNodeName).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				w.changed(o)
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				w.changed(o)
				return c.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				w.changed(o)
				return c.Delete(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				return w.patch(ctx, c, "", o, p)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				_ ...client.SubResourcePatchOption) error {
				return w.patch(ctx, c, sub, o, p)
			},
		}).Build()
	w.lead()
	for i, name := range slices.Sorted(maps.Keys(worldDevices)) {
		w.addNode(name, i)
	}
	for _, name := range slices.Sorted(maps.Keys(worldDevices)) {
		w.addPods(name)
	}
	// A claim that is named as pods name their ephemeral volumes, an attachment without a PersistentVolume, a volume
	// that is not CSI's.
	w.volume("n4", "scratch", "other.example.com")
	w.create(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "inline"},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: "n4", Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}},
		}, Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	return w
}

// informers are a cache that is never behind. Its Nodes lack what production's lack.
type informers struct{ client.Reader }

func (i informers) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := i.Reader.Get(ctx, k, o, opts...)
	if n, ok := o.(*corev1.Node); ok && err == nil {
		slimNode(n)
	}
	return err
}

func (i informers) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	err := i.Reader.List(ctx, l, opts...)
	if nodes, ok := l.(*corev1.NodeList); ok && err == nil {
		for j := range nodes.Items {
			slimNode(&nodes.Items[j])
		}
	}
	return err
}

// lead begins a new process, which remembers nothing. Its informers know what is there.
func (w *world) lead() {
	var sinks observe.Sinks
	sinks, w.heard = sinksTo(&w.told)
	w.r = New(Options{
		Live: w.api, Cache: informers{w.api}, Client: w.api, Sinks: sinks, RefusedDetach: signing.RefusedDetach,
		Config: func() *Config {
			return &Config{
				Machines: machine.Finder{Led: w.machine},
				Settings: decide.Settings{
					Fence: fence.Settings{
						PowerOffAfter:   time.Minute,
						PowerOffTimeout: cmp.Or(w.offTimeout, 30*time.Second),
						Retry:           150 * time.Second,
					},
					Evict:  evict.Settings{DetachTimeout: 5 * time.Minute, OnDetachTimeout: w.onDetach},
					Limits: w.limits, ExcludeSelector: w.exclusion(), ExcludedBy: "maintenance", Modes: w.modes(),
				},
			}
		},
		Leading: func() error { return nil }, Key: taint.DefaultKey, By: "test", Now: w.Now, Workers: 4,
	})
	clear(w.due)
	clear(w.failed)
	clear(w.stale)
	for n := range w.machines {
		if !w.silent[n] {
			w.beat(n)
		}
	}
	w.changes++ // it looks at every node
}

// Now goes on a little with each look at it, as clocks do.
func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(100 * time.Microsecond)
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// exclusion selects the node that is excluded, or none.
func (w *world) exclusion() labels.Selector {
	return labels.SelectorFromSet(labels.Set{corev1.LabelHostname: cmp.Or(w.excluded, "none")})
}

// modes are the nodes' modes as they are now.
func (w *world) modes() []fence.ModeRule {
	if w.chosen == nil {
		return modeOfAll(w.mode)
	}
	var out []fence.ModeRule
	for name := range w.machines {
		of := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out = append(out, fence.ModeRule{
			Matches: func(n *corev1.Node) bool { return n.Name == name }, ChosenMode: w.chosen(of),
		})
	}
	return out
}

// modeOfAll is the mode of every node.
func modeOfAll(m fence.Mode) []fence.ModeRule {
	return []fence.ModeRule{{
		Matches: func(*corev1.Node) bool { return true }, ChosenMode: fence.ChosenMode{Mode: m},
	}}
}

func (w *world) machine(n *corev1.Node) (machine.Machine, error) {
	d := worldDevices[n.Name]
	ref := taint.MachineRef{Provider: d[0], ID: d[1] + "/" + n.Name}
	m := machine.Machine{
		Provider: w.machines[n.Name], Name: d[0], Device: d[0] + "/" + d[1],
		Target: providers.Target{Node: n.Name, ID: ref.ID, SystemUUID: n.Status.NodeInfo.SystemUUID,
			Identified: ref.IsNamed(n.Labels[taint.NamedLabel])},
	}
	if w.machines[n.Name].two {
		m.Further = []machine.Machine{{
			Provider: outlet{w.machines[n.Name]}, Name: "pdus", Device: "pdus/" + n.Name,
			Target: providers.Target{Node: n.Name, ID: "outlet-" + n.Name}, Level: 1,
			Identity: taint.MachineRef{Provider: "pdus", ID: "outlet-" + n.Name},
		}}
	}
	return m, nil
}

// changed stands for the watches. A Lease wakes nobody.
func (w *world) changed(o client.Object) {
	if _, ok := o.(*coordinationv1.Lease); ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
}

func (w *world) version() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

// patch stands for the API server's, which takes annotations with a status; fail may refuse it.
func (w *world) patch(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch) error {
	body, err := p.Data(o)
	must(w.t, err)
	if w.fail != nil {
		if err := w.fail(o, string(body)); err != nil {
			return err // nothing changed, so no watch tells of it
		}
	}
	w.changed(o)
	if sub == "" || strings.Contains(string(body), `"annotations"`) {
		if err := c.Patch(ctx, o, p); err != nil || sub == "" {
			return err
		}
		var again map[string]map[string]any
		must(w.t, json.Unmarshal(body, &again))
		delete(again["metadata"], "resourceVersion")
		body, err = json.Marshal(again)
		must(w.t, err)
	}
	return c.SubResource(sub).Patch(ctx, o, client.RawPatch(p.Type(), body))
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	must(w.t, w.api.Create(context.Background(), o))
}

func (w *world) get(o client.Object, ns, name string) {
	w.t.Helper()
	must(w.t, w.api.Get(context.Background(), client.ObjectKey{Namespace: ns, Name: name}, o))
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	var n corev1.Node
	w.get(&n, "", name)
	return &n
}

// change writes a Node as somebody else would.
func (w *world) change(name string, f func(*corev1.Node)) {
	w.t.Helper()
	n := w.node(name)
	f(n)
	status := n.Status
	must(w.t, w.api.Update(context.Background(), n))
	n.Status = status
	must(w.t, w.api.Status().Update(context.Background(), n))
}

func setReady(s corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: s},
			{Type: "example.com/Fan", Status: corev1.ConditionTrue},
		}
	}
}

func (w *world) addNode(name string, i int) {
	uuid := fmt.Sprintf("4c4c4544-0042-3510-8053-b4c04f3838%02x", i+1)
	swapped := fmt.Sprintf("44454C4C-4200-1035-8053-B4C04F3838%02X", i+1)
	if i%2 == 1 {
		uuid, swapped = swapped, uuid
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name),
			Labels:      map[string]string{corev1.LabelHostname: name},
			Annotations: map[string]string{"example.com/rack": "7"}}}
	n.Spec.Taints = []corev1.Taint{{Key: "example.com/pool", Value: name, Effect: corev1.TaintEffectNoSchedule}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-1-of-" + name, SystemUUID: uuid}
	setReady(corev1.ConditionTrue)(n)
	w.create(n)
	w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}})
	w.machines[name] = &simMachine{w: w, uuid: swapped, on: true, obeys: true}
	w.beat(name)
}

// beat is a kubelet's heartbeat, and what the informer makes of it.
func (w *world) beat(name string) {
	var l coordinationv1.Lease
	w.get(&l, corev1.NamespaceNodeLease, name)
	l.Spec.RenewTime = &metav1.MicroTime{Time: w.Now()}
	must(w.t, w.api.Update(context.Background(), &l))
	w.r.WithFleet(func(f *fleet.Fleet) {
		f.ApplyLease(l.Name, l.ResourceVersion, taint.LeaseDuration(&l), w.r.Now.Instant())
	})
	w.beats[name] = w.Now()
	delete(w.silent, name)
}

// volume makes a claim, its volume and the attachment to a node, and returns the claim's name.
func (w *world) volume(node, claim, driver string) string {
	w.volumes++
	pv, handle := fmt.Sprintf("pv-%d", w.volumes), fmt.Sprintf("lun-%d", 100-w.volumes)
	w.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: worldNS, Name: claim},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}})
	w.create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Namespace: worldNS, Name: claim},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
	}})
	name := fmt.Sprintf("csi-%x", w.volumes*7919)
	w.create(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Attacher: driver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		}, Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	w.unique[pv] = "kubernetes.io/csi/" + driver + "^" + handle
	w.change(node, func(n *corev1.Node) {
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, corev1.UniqueVolumeName(w.unique[pv]))
		n.Status.VolumesAttached = append(n.Status.VolumesAttached,
			corev1.AttachedVolume{Name: corev1.UniqueVolumeName(w.unique[pv])})
	})
	return claim
}

// pod makes a pod on a node that uses claims and generic ephemeral volumes, and mounts that are nobody's business.
func (w *world) pod(node, name string, claims, ephemeral []string, change func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: worldNS, Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PodSpec{NodeName: node}}
	never := []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}}
	p.Spec.Tolerations = never // the stock controllers are not in this world
	p.Status.Phase, p.Status.Conditions = corev1.PodRunning,
		[]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{Name: "secrets",
			VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.example.com"}}},
		{Name: "export", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/"}}},
	}
	use := func(claim string) {
		var pvc corev1.PersistentVolumeClaim
		w.get(&pvc, worldNS, claim)
		w.uses[name] = append(w.uses[name], pvc.Spec.VolumeName)
	}
	for i, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
			}})
		use(c)
	}
	for _, v := range ephemeral {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		use(w.volume(node, name+"-"+v, "other.example.com"))
	}
	if change != nil {
		change(p)
	}
	w.create(p)
}

// addPods gives a node pods of every kind; n5 gets only those that stay.
func (w *world) addPods(node string) {
	daemon := func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: &yes}}
	}
	tolerates := func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations,
			corev1.Toleration{Key: taint.DefaultKey, Operator: corev1.TolerationOpExists})
	}
	w.pod(node, "agent-"+node, []string{w.volume(node, "state-of-agent-"+node, "sim.example.com")}, nil, daemon)
	w.pod(node, "stays-"+node, nil, []string{"cache"}, tolerates)
	w.pod(node, "done-"+node, []string{w.volume("n4", "results-"+node, "sim.example.com")}, nil,
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	w.pod(node, "crashed-"+node, nil, nil,
		func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" })
	if node == "n5" {
		return
	}
	w.pod(node, "db-"+node, []string{w.volume(node, "data-db-"+node, "sim.example.com")}, []string{"wal"}, nil)
	w.pod(node, "web-"+node, nil, []string{"scratch"}, nil)
}

// detach is the attach/detach controller: a volume goes when no unfinished pod of its node uses it and the kubelet does
// not list it.
func (w *world) detach() {
	if !w.detaches {
		return
	}
	var list storagev1.VolumeAttachmentList
	must(w.t, w.api.List(context.Background(), &list))
	for i := range list.Items {
		va := &list.Items[i]
		if va.Spec.Source.PersistentVolumeName == nil ||
			w.isUsed(va.Spec.NodeName, *va.Spec.Source.PersistentVolumeName) {
			continue
		}
		must(w.t, w.api.Delete(context.Background(), va))
	}
}

func (w *world) isUsed(node, pv string) bool {
	var n corev1.Node
	if w.api.Get(context.Background(), client.ObjectKey{Name: node}, &n) == nil &&
		slices.Contains(n.Status.VolumesInUse, corev1.UniqueVolumeName(w.unique[pv])) {
		return true
	}
	for _, p := range w.pods(node) {
		if slices.Contains(w.uses[p], pv) && !strings.HasPrefix(p, "done-") {
			return true
		}
	}
	return false
}

// pods are the names of a node's pods.
func (w *world) pods(node string) []string {
	var list corev1.PodList
	must(w.t, w.api.List(context.Background(), &list, client.MatchingFields{"spec.nodeName": node}))
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// attached are the PersistentVolumes attached to a node.
func (w *world) attached(node string) []string {
	var list storagev1.VolumeAttachmentList
	must(w.t, w.api.List(context.Background(), &list))
	var out []string
	for _, va := range list.Items {
		if pv := va.Spec.Source.PersistentVolumeName; pv != nil && va.Spec.NodeName == node {
			out = append(out, *pv)
		}
	}
	slices.Sort(out)
	return out
}

// record is a node's; the zero Record if it has none.
func (w *world) record(node string) taint.Record {
	w.t.Helper()
	r, err := taint.RecordOf(w.node(node))
	must(w.t, err)
	if r == nil {
		return taint.Record{}
	}
	return *r
}

func (w *world) marked(node string) bool {
	_, ok := taint.FindMark(w.node(node), taint.DefaultKey, "")
	return ok
}

// poweredOn reports the condition of a silent node whose machine is on.
func (w *world) poweredOn(node string) bool {
	w.t.Helper()
	return taint.NewLook(w.node(node), nil, taint.DefaultKey, providers.InstantOf(w.now),
		providers.InstantOf(w.now)).PoweredOn
}

// cut takes a machine's power. Its kubelet is silent from then on.
func (w *world) cut(node string) {
	w.machines[node].on = false
	w.silence(node)
}

// silence cuts a kubelet off the API server: its machine runs on.
func (w *world) silence(node string) { w.silent[node] = true }

const worldTick = 250 * time.Millisecond

// run lets the world go on for a while.
func (w *world) run(d time.Duration) { w.t.Helper(); w.until(d, func() bool { return false }) }

// until lets the world go on until something is so, and reports whether it came to that in time.
func (w *world) until(d time.Duration, check func() bool) bool {
	w.t.Helper()
	seen := -1
	for end := w.Now().Add(d); w.Now().Before(end); w.pass(worldTick) {
		for _, n := range slices.Sorted(maps.Keys(w.beats)) {
			if !w.silent[n] && w.Now().Sub(w.beats[n]) >= 10*time.Second {
				w.beat(n)
			}
		}
		before := w.version()
		if before != seen {
			w.detach()
		}
		for _, n := range slices.Sorted(maps.Keys(w.machines)) {
			due, waits := w.due[n]
			if before == seen && (!waits || w.Now().Before(due)) && !w.woken(n) {
				continue
			}
			res, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: n}})
			if err != nil {
				w.t.Logf("%s: %v", n, err)
				res.RequeueAfter = w.backOff(n)
			} else {
				delete(w.failed, n)
			}
			delete(w.due, n)
			if res.RequeueAfter > 0 {
				w.due[n] = w.Now().Add(res.RequeueAfter)
			}
		}
		seen = before
		if check() {
			return true
		}
	}
	return check()
}

// backOff is how long the workqueue waits after one more failure of a node: as long as SetupWithManager's.
func (w *world) backOff(name string) time.Duration {
	w.failed[name]++
	return min(50*time.Millisecond<<min(w.failed[name]-1, 10), 5*time.Second)
}

// woken stands for package wake: it wakes a node whose Lease became stale or fresh.
func (w *world) woken(name string) bool {
	stale := w.Now().Sub(w.beats[name]) > 25*time.Second
	was := w.stale[name]
	w.stale[name] = stale
	return stale != was
}

// untilDone waits for the end of a node's fence.
func (w *world) untilDone(node string, want taint.Result) {
	w.t.Helper()
	w.until(time.Minute, func() bool { return w.record(node).Result == want })
	if r := w.record(node); r.Result != want || w.marked(node) {
		w.t.Fatalf("fence of %s: got %s %q, marked %v, want %s; pods %v, attached %v; told %q",
			node, r.Phase, r.Result, w.marked(node), want, w.pods(node), w.attached(node), w.told.said)
	}
}

var must = kit.Must
