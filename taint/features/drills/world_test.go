package drills

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/test/kit"
)

var must = kit.Must

// world is a cluster of healthy nodes in memory, in virtual time, with the Reconciler whose fleet drills share. Each
// node has a machine behind a device, and tells its system UUID in another spelling than the device.
type world struct {
	t        *testing.T
	api      client.Client
	fake     client.WithWatch // without the interceptor, which counts writes
	r        *controller.Reconciler
	machines map[string]*simMachine // by node
	told     telling
	moved    map[string]string // the device of a node that is another one now

	mu     sync.Mutex // guards what follows
	now    time.Time
	writes int
	since  time.Time // when the configuration was put in force
}

// worldDevices are the nodes' devices: two machines share one, and there is more than one provider.
var worldDevices = map[string][2]string{
	"n1": {"racks", "enclosure-7"}, "n2": {"racks", "enclosure-7"}, "n3": {"virt", "hv-2"}, "n4": {"racks", "bmc-9"},
	"n5": {"virt", "hv-3"},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), machines: map[string]*simMachine{}}
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	must(t, coordinationv1.AddToScheme(scheme))
	wrote := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes++
	}
	w.fake = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}).Build()
	w.api = interceptor.NewClient(w.fake, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			wrote()
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			wrote()
			return c.Update(ctx, o, opts...)
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
		) error {
			wrote()
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			wrote()
			if err := c.SubResource(sub).Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			return w.patchAnnotations(ctx, o, p)
		},
	})
	config := &controller.Config{Machines: machine.Finder{Led: w.machine}}
	w.r = controller.New(controller.Options{
		Live: w.api, Cache: informers{w.api}, Client: w.api, Sinks: observe.Sinks{
			Events: func(time.Time) events.EventRecorder { return &w.told },
			Log:    slog.New(slog.DiscardHandler), Metrics: observe.NewMetrics(prometheus.NewRegistry()),
		},
		Config:  func() *controller.Config { return config },
		Leading: func() error { return nil }, Key: taint.DefaultKey, By: "test", Now: w.Now,
	})
	for i, name := range slices.Sorted(maps.Keys(worldDevices)) {
		w.addNode(name, i)
	}
	return w
}

// patchAnnotations does what the API server does with a Node's metadata in a write of its status, and the fake client
// does not.
func (w *world) patchAnnotations(ctx context.Context, o client.Object, p client.Patch) error {
	text, err := p.Data(o)
	if err != nil {
		return err
	}
	var body struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return err
	}
	only, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": body.Metadata.Annotations}})
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.GetName()}}
	return w.fake.Patch(ctx, n, client.RawPatch(types.MergePatchType, only))
}

// drills are wired as in production.
func (w *world) drills(every time.Duration) *Drills {
	r := w.r
	return New(Options{
		Live: r.Live, Cache: r.Cache, Client: r.Client, Events: &w.told, Log: r.Sinks.Log,
		Metrics: NewMetrics(prometheus.NewRegistry()), Config: r.Config, ConfigSince: w.configSince, Leading: r.Leading,
		WithFleet: r.WithFleet, ShouldList: r.ShouldList, Key: r.Key, Now: r.Now, every: every,
	})
}

func (w *world) addNode(name string, i int) {
	uuid := fmt.Sprintf("4c4c4544-0042-3510-8053-b4c04f3838%02x", i+1)
	swapped := fmt.Sprintf("44454C4C-4200-1035-8053-B4C04F3838%02X", i+1)
	if i%2 == 1 {
		uuid, swapped = swapped, uuid
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-1-of-" + name, SystemUUID: uuid}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	must(w.t, w.api.Create(w.t.Context(), n))
	must(w.t, w.api.Create(w.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
	}))
	w.machines[name] = &simMachine{w: w, uuid: swapped, on: true}
}

// machine is what the configuration says of a node.
func (w *world) machine(n *corev1.Node) (machine.Machine, error) {
	d := worldDevices[n.Name]
	if device := w.moved[n.Name]; device != "" {
		d[1] = device
	}
	m := taint.MachineRef{Provider: d[0], ID: d[1] + "/" + n.Name}
	return machine.Machine{
		Provider: w.machines[n.Name], Name: d[0], Device: d[0] + "/" + d[1],
		Target: providers.Target{Node: n.Name, ID: m.ID, SystemUUID: n.Status.NodeInfo.SystemUUID,
			Identified: m.IsNamed(n.Labels[taint.NamedLabel])},
	}, nil
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

func (w *world) configSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

// version counts the writes.
func (w *world) version() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	var n corev1.Node
	must(w.t, w.api.Get(context.Background(), client.ObjectKey{Name: name}, &n))
	return &n
}

// change writes a Node as another client would.
func (w *world) change(name string, f func(*corev1.Node)) {
	w.t.Helper()
	n := w.node(name)
	f(n)
	must(w.t, w.api.Update(w.t.Context(), n))
}

// drilled drills a node once and returns its condition.
func (w *world) drilled(d *Drills, node string) corev1.NodeCondition {
	w.t.Helper()
	d.drillNode(w.t.Context(), node)
	for _, c := range w.node(node).Status.Conditions {
		if c.Type == taint.FenceableCondition {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// informers are a cache that is never behind. Its Nodes lack what production's lack.
type informers struct{ client.Reader }

func (i informers) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := i.Reader.Get(ctx, k, o, opts...); err != nil {
		return err
	}
	return transform(o)
}

func (i informers) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := i.Reader.List(ctx, l, opts...); err != nil {
		return err
	}
	nodes := l.(*corev1.NodeList)
	for j := range nodes.Items {
		if err := transform(&nodes.Items[j]); err != nil {
			return err
		}
	}
	return nil
}

// transform does to a Node what production's cache does.
func transform(o client.Object) error {
	for kind, by := range controller.CacheOptions().ByObject {
		if _, ok := kind.(*corev1.Node); ok {
			_, err := by.Transform(o)
			return err
		}
	}
	return fmt.Errorf("no cache of Nodes")
}

// simMachine is one machine and what its device says of it.
type simMachine struct {
	w    *world
	uuid string // as the device reports it
	on   bool
	deaf bool // its device does not answer
}

func (m *simMachine) State(context.Context, providers.Target) (providers.Observation, error) {
	if m.deaf {
		return providers.Observation{}, providers.ErrUnreachable
	}
	o := providers.Observation{State: providers.PowerOff, Raw: "Off", SystemUUID: m.uuid}
	o.At = providers.InstantOf(m.w.Now())
	if m.on {
		o.State, o.Raw = providers.PowerOn, "On"
	}
	return o, nil
}

func (*simMachine) PowerOff(context.Context, providers.Target, func() error) error { return nil }
func (*simMachine) PowerOn(context.Context, providers.Target, func() error) error  { return nil }

// telling notes the Events, as reason and object.
type telling struct {
	mu   sync.Mutex // guards said
	said []string
}

func (e *telling) Eventf(o runtime.Object, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, reason+" "+o.(*corev1.Node).Name)
}

func (e *telling) has(said string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.said, said)
}
