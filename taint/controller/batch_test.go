package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
	"github.com/forcefence/forcefence/taint/fleet"
)

// oneMachine is a provider with one answer.
type oneMachine struct {
	now   func() time.Time
	state providers.PowerState

	mu         sync.Mutex // guards the counts
	asked, off int
}

func (m *oneMachine) State(context.Context, providers.Target) (providers.Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return providers.Observation{State: m.state, At: m.now()}, nil
}

func (m *oneMachine) PowerOff(context.Context, providers.Target) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off++
	return nil
}

func (*oneMachine) PowerOn(context.Context, providers.Target) error { return nil }

// aTurn is a node in the middle of its eviction, whose machine was proven off a moment ago; seen is when it was looked at.
func aTurn(c *clock, m *oneMachine, phase taint.Phase) (*turn, evict.View) {
	r := New(Options{
		Now: c.Now, Workers: 1, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
		Events: &events.FakeRecorder{}, Leading: func() error { return nil }, By: "test",
	})
	rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test", Since: c.now}.Enter(phase, "", c.now)
	l := taint.Look{
		Sent: c.now, Got: c.now, Exists: true, Name: "n1", UID: "u", ResourceVersion: "1", BootID: "b", LeaseRV: "1",
		Ready: corev1.ConditionUnknown, Record: &rec, Mark: &taint.Mark{Value: "f-1", Effect: corev1.TaintEffectNoSchedule},
	}
	st := r.state("n1")
	st.evict.Saw(l)
	st.fence.Saw(l)
	t := &turn{
		Reconciler: r, st: st, look: l, policy: &Policy{}, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		machine: Machine{Provider: m, Name: "bmc", Device: "bmc/n1", Target: providers.Target{Node: "n1"}, Mode: fence.Fence},
	}
	t.ask(context.Background())
	m.asked = 0
	return t, evict.View{Look: l, Memory: st.evict, Device: "bmc/n1", Now: c.now}
}

// Each pod write is made under a proof that holds at that moment, or not at all (invariant 1).
func TestPodWritesNeedTheProof(t *testing.T) {
	ready := func(r *Reconciler) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		back := node.DeepCopy()
		back.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		r.nodeChanged(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: node, ObjectNew: back})
	}
	booted := func(r *Reconciler) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		back := node.DeepCopy()
		back.Status.NodeInfo.BootID = "another"
		r.nodeChanged(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: node, ObjectNew: back})
	}
	for _, tc := range []struct {
		name   string
		age    time.Duration        // of the proof when the run begins
		state  providers.PowerState // the device's next answer
		person bool                 // a person's mark
		after  func(*Reconciler)    // happens after the first write
		each   time.Duration        // how long a write takes
		ret    bool                 // the return path
		want   int                  // pods written, of three
		asked  int                  // questions
	}{
		{name: "fresh proof", state: providers.PowerOn, want: 3},
		{name: "old proof, still off", age: 6 * time.Second, state: providers.PowerOff, want: 3, asked: 1},
		{name: "old proof, on by now", age: 6 * time.Second, state: providers.PowerOn, want: 0, asked: 1},
		{name: "old proof, changing by now", age: 6 * time.Second, state: providers.PowerChanging, want: 0, asked: 1},
		{name: "old proof, unknown by now", age: 6 * time.Second, want: 0, asked: 1},
		{name: "the proof grows old in the middle", each: 3 * time.Second, state: providers.PowerOn, want: 2, asked: 1},
		{name: "a heartbeat in the middle", state: providers.PowerOff, after: func(r *Reconciler) { r.stopBatch("n1") }, want: 1},
		{name: "another node's heartbeat", state: providers.PowerOff, after: func(r *Reconciler) { r.stopBatch("n2") }, want: 3},
		{name: "Ready in the middle", state: providers.PowerOff, after: ready, want: 1},
		{name: "another boot in the middle", state: providers.PowerOff, after: booted, want: 1},
		{name: "the return path needs none", age: time.Hour, state: providers.PowerOn, ret: true, want: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			m := &oneMachine{now: c.Now, state: providers.PowerOff}
			tn, v := aTurn(c, m, taint.PhaseEvicting)
			m.state = tc.state
			c.now = c.now.Add(tc.age)
			d := evict.Decision{Act: evict.Tombstone, Returned: tc.ret, Pods: []evict.Pod{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
			wrote := 0
			written, err := tn.forEach(t.Context(), v, d, func(context.Context, evict.Pod) error {
				if wrote++; wrote == 1 && tc.after != nil {
					tc.after(tn.Reconciler)
				}
				c.now = c.now.Add(tc.each)
				return nil
			})
			if err != nil || wrote != tc.want || len(written) != tc.want || m.asked != tc.asked {
				t.Errorf("got %d writes (%d told) after %d questions, error %v; want %d after %d", wrote, len(written), m.asked, err, tc.want, tc.asked)
			}
		})
	}
}

// The power is cut only by a leader, and only right after a look (invariant 5, step 3).
func TestPowerOffNeedsLeaderAndLook(t *testing.T) {
	for _, tc := range []struct {
		name    string
		age     time.Duration // of the look
		leading error
		want    int
	}{
		{"leader, fresh look", 0, nil, 1},
		{"stopped for a while since the look", 6 * time.Second, nil, 0},
		{"no leader any more", 0, errStale, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			m := &oneMachine{now: c.Now}
			tn, _ := aTurn(c, m, taint.PhasePoweringOff)
			tn.Leading = func() error { return tc.leading }
			c.now = c.now.Add(tc.age)
			tn.powerOff(t.Context())
			if m.off != tc.want {
				t.Errorf("got %d power-offs, want %d", m.off, tc.want)
			}
			if failed := tc.leading != nil; (tn.st.fence.PowerOffErr != nil) != failed {
				t.Errorf("remembered as refused: got %v, want %v", tn.st.fence.PowerOffErr, failed)
			}
		})
	}
}

// A device that lied once is not believed again (step "Return path").
func TestDistrustedOffIsUnknown(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
	if got := tn.st.evict.Answer.State; got != providers.PowerOff {
		t.Fatalf("a trusted device: got %s, want Off", got)
	}
	tn.distrusted = true
	tn.ask(t.Context())
	if e, f := tn.st.evict.Answer.State, tn.st.fence.Answer.State; e != providers.PowerUnknown || f != providers.PowerUnknown {
		t.Errorf("a device that lied: got %s and %s, want Unknown", e, f)
	}
}

// server stands for the API server's reads, or the informers'. Its claims are all bound to one volume.
type server struct {
	client.Reader
	pods        []corev1.Pod
	bound       string
	attachments []storagev1.VolumeAttachment
	nodes       []corev1.Node
	took        func() // what happens while it lists; nil: nothing
}

func (s server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if s.took != nil {
		s.took()
	}
	switch l := list.(type) {
	case *corev1.PodList:
		l.Items = s.pods
	case *storagev1.VolumeAttachmentList:
		l.Items = s.attachments
	case *corev1.NodeList:
		l.Items = s.nodes
	default:
		return fmt.Errorf("no list of %T", list)
	}
	return nil
}

func (s server) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		o.Spec.VolumeName = s.bound
	case *corev1.PersistentVolume:
		o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "handle of " + k.Name}
	default:
		return fmt.Errorf("no %T", o)
	}
	return nil
}

// The cache may be behind: before the mark goes the attachments are listed live (step 12, invariant 11).
func TestMarkGoesByLiveAttachments(t *testing.T) {
	pv := "pv-1"
	attached := []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{
		NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
	}}}
	for _, tc := range []struct {
		name         string
		lease        string // "1" until a heartbeat
		cached, live []storagev1.VolumeAttachment
		want         evict.Act
		result       taint.Result
	}{
		{"detached", "1", nil, nil, evict.Unmark, taint.ResultEvicted},
		{"attached, the cache does not know yet", "1", nil, attached, evict.Wait, ""},
		{"detached, the cache does not know yet", "1", attached, nil, evict.Unmark, taint.ResultEvicted},
		{"returned, detached", "2", nil, nil, evict.Unmark, taint.ResultReturned},
		{"returned, attached, the cache does not know yet", "2", nil, attached, evict.Wait, ""},
		{"returned, detached, the cache does not know yet", "2", attached, nil, evict.Unmark, taint.ResultReturned},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
			tn.Live, tn.Cache = server{attachments: tc.live}, server{attachments: tc.cached}
			v.Look.LeaseRV = tc.lease
			d, err := tn.decide(t.Context(), &v)
			if err != nil || d.Act != tc.want || d.Record.Result != tc.result {
				t.Errorf("got %s (%s) %s, error %v, want %s %s", d.Act, d.Why, d.Record.Result, err, tc.want, tc.result)
			}
		})
	}
}

// A cache that missed an attachment's end must not have the node marked for nothing, again and again.
func TestWorkByLiveAttachments(t *testing.T) {
	pv := "pv-1"
	attached := []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{
		NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
	}}}
	pod := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}}
	for _, tc := range []struct {
		name         string
		pods         []corev1.Pod
		cached, live []storagev1.VolumeAttachment
		first, then  fence.Work
	}{
		{"nothing", nil, nil, nil, fence.NoneToDo, fence.NoneToDo},
		{"a pod", pod, nil, nil, fence.SomeToDo, fence.SomeToDo},
		{"attached", nil, attached, attached, fence.CacheSays, fence.SomeToDo},
		{"detached, the cache does not know", nil, attached, nil, fence.CacheSays, fence.NoneToDo},
		{"a pod, and a cache that is behind", pod, attached, nil, fence.SomeToDo, fence.SomeToDo},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseDone)
			tn.Live, tn.Cache = server{pods: tc.pods, attachments: tc.live}, server{attachments: tc.cached}
			if got, err := tn.work(t.Context()); got != tc.first || err != nil {
				t.Errorf("by the cache: got %d, error %v, want %d", got, err, tc.first)
			}
			if got, err := tn.liveWork(t.Context()); got != tc.then || err != nil {
				t.Errorf("live: got %d, error %v, want %d", got, err, tc.then)
			}
		})
	}
}

// Where every read takes longer than an answer counts, the act is decided on the look that the question followed.
func TestSlowServer(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
	tn.st.evict.Answered(v.Answer)
	slow := func() { c.now = c.now.Add(6 * time.Second) }
	wait := int64(300)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "1"}, Spec: corev1.PodSpec{
		NodeName: "n1", Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: &wait}},
	}}
	tn.Live, tn.Cache = server{pods: []corev1.Pod{pod}, took: slow}, server{}
	writes := 0
	tn.writer.leading = func() error { writes++; return errStale }
	if _, _, err := tn.evict(t.Context()); writes != 1 {
		t.Errorf("%d pods were ended, want 1; error %v", writes, err)
	}
}

// Two Reconciles that both saw no other power-off announce one only, nor does one announce while the cache knows of another's
// (invariant 6).
func TestOneAnnouncement(t *testing.T) {
	reserve := func(r *Reconciler, node string, want bool) {
		t.Helper()
		if got, err := r.reservePowerOff(t.Context(), node); got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", node, got, err, want)
		}
	}
	r := New(Options{Now: time.Now, Cache: server{}})
	reserve(r, "n1", true)
	reserve(r, "n1", true)
	reserve(r, "n2", false)
	r.across(func(f *fleet.Fleet) { f.Fence("n1", nil, r.Now()) })
	reserve(r, "n2", true)

	rec := taint.Record{ID: "f1", NodeUID: "u", By: "the leader before", PowerOff: true}.Enter(taint.PhasePoweringOff, "", time.Now())
	other := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3", Annotations: map[string]string{taint.RecordAnnotation: rec.Encode()}}}
	r = New(Options{Now: time.Now, Cache: server{nodes: []corev1.Node{other}}})
	reserve(r, "n1", false)
	reserve(r, "n3", true)
}

// pause is a process that stands still for a minute whenever it tells something.
type pause struct {
	events.EventRecorder
	c *clock
}

func (p pause) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
	p.c.now = p.c.now.Add(time.Minute)
}

// A process that was stopped between decision and write does not clear the volume lists on an old proof (invariant 1).
func TestClearingNeedsTheProof(t *testing.T) {
	for _, stands := range []bool{false, true} {
		c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
		tn.look.InUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/x^1"}
		tn.Live, tn.Cache = server{}, server{}
		writes := 0
		tn.writer.leading = func() error { writes++; return errStale }
		if stands {
			tn.Events = pause{c: c}
		}
		tn.st.work, tn.st.worked = fence.SomeToDo, c.now
		_, _, err := tn.evict(t.Context())
		if tn.st.work != fence.NoneToDo {
			t.Error("the work that this fence does would begin another")
		}
		if want := map[bool]int{false: 1, true: 0}[stands]; writes != want || errors.Is(err, errStale) != (want == 1) {
			t.Errorf("stopped %v: got %d writes, error %v, want %d", stands, writes, err, want)
		}
	}
}

// A list that was kept serves to end pods and to delete ended ones, for a moment and once, and for nothing else.
func TestDecideByKept(t *testing.T) {
	ended := []evict.Pod{{Name: "a", UID: "1", ResourceVersion: "1", Terminal: true, Tombstone: true}}
	runs := []evict.Pod{{Name: "a", UID: "1", ResourceVersion: "1", Deleting: true}}
	done := []evict.Pod{{Name: "a", UID: "1", ResourceVersion: "1", Terminal: true}}
	for _, tc := range []struct {
		name  string
		kept  []evict.Pod
		age   time.Duration
		lease string // the node's, at the look
		want  evict.Act
	}{
		{"an ended pod, just listed", ended, 0, "1", evict.Delete},
		{"a pod that runs, just listed", runs, 0, "1", evict.Tombstone},
		{"listed a while ago", ended, 2 * time.Second, "1", evict.Unmark}, // the server has no pods any more
		{"a heartbeat since", ended, 0, "2", evict.Unmark},
		{"a heartbeat since, and a pod that runs", runs, 0, "2", evict.Unmark},
		{"nothing to do by the kept list", done, 0, "1", evict.Unmark},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
			tn.Live, tn.Cache = server{}, server{}
			tn.st.kept, tn.st.keptAt = tc.kept, c.now
			v.Look.LeaseRV = tc.lease
			c.now = c.now.Add(tc.age)
			d, err := tn.decide(t.Context(), &v)
			if err != nil || d.Act != tc.want || (d.Act == evict.Unmark) != (len(v.Pods) == 0) {
				t.Errorf("got %s (%s) of %d pods, error %v, want %s", d.Act, d.Why, len(v.Pods), err, tc.want)
			}
			if d, err := tn.decide(t.Context(), &v); err != nil || d.Act != evict.Unmark {
				t.Errorf("the second time: got %s, error %v, want a new list", d.Act, err)
			}
		})
	}
}

// Work that a list showed counts for a moment; that there was none does not.
func TestWorkHolds(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	tn, _ := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseArmed)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for _, step := range []struct {
		after time.Duration
		pods  []corev1.Pod
		want  fence.Work
	}{
		{0, nil, fence.NoneToDo},
		{0, []corev1.Pod{pod}, fence.SomeToDo},
		{workHolds / 2, nil, fence.SomeToDo},
		{workHolds, nil, fence.NoneToDo},
		{0, []corev1.Pod{pod}, fence.SomeToDo},
	} {
		c.now = c.now.Add(step.after)
		tn.Live, tn.Cache = server{pods: step.pods}, server{}
		if got, err := tn.work(t.Context()); err != nil || got != step.want {
			t.Errorf("at %s with %d pods: got %v, error %v, want %v", c.now.Format(time.TimeOnly), len(step.pods), got, err, step.want)
		}
	}
}
