package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
)

// oneMachine is a provider with one answer.
type oneMachine struct {
	refuses error // a power-off
	now     func() time.Time
	state   providers.PowerState

	mu         sync.Mutex // guards the counts
	asked, off int
}

func (m *oneMachine) State(context.Context, providers.Target) (providers.Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return providers.Observation{State: m.state, At: providers.InstantOf(m.now())}, nil
}

func (m *oneMachine) PowerOff(context.Context, providers.Target, func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off++
	return m.refuses
}

func (*oneMachine) PowerOn(context.Context, providers.Target, func() error) error { return nil }

// server stands for the API server's reads, or the informers'. Its claims are all bound to one volume.
type server struct {
	client.Reader
	node        *corev1.Node
	lease       string // its resourceVersion
	pods        []corev1.Pod
	bound       string
	claim       string // the claim that each volume is bound to; "": none
	attachments []storagev1.VolumeAttachment
	pause       map[string]string            // of the ConfigMap that pauses all; nil: it takes for ever to read
	took        func()                       // what happens while it lists; nil: nothing
	fails       func(o runtime.Object) error // nil: nothing does
}

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if s.took != nil {
		s.took()
	}
	if s.fails != nil {
		if err := s.fails(list); err != nil {
			return err
		}
	}
	switch l := list.(type) {
	case *corev1.PodList:
		var o client.ListOptions
		o.ApplyOptions(opts)
		l.Items = slices.DeleteFunc(slices.Clone(s.pods), func(p corev1.Pod) bool {
			other := o.Namespace != "" && p.Namespace != o.Namespace
			of := fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}
			return other || o.FieldSelector != nil && !o.FieldSelector.Matches(of)
		})
	case *storagev1.VolumeAttachmentList:
		l.Items = s.attachments
	default:
		return fmt.Errorf("no list of %T", list)
	}
	return nil
}

func (s *server) Get(ctx context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.fails != nil {
		if err := s.fails(o); err != nil {
			return err
		}
	}
	switch o := o.(type) {
	case *corev1.Node:
		s.node.DeepCopyInto(o)
	case *coordinationv1.Lease:
		o.Name, o.ResourceVersion = k.Name, s.lease
	case *corev1.ConfigMap:
		if s.pause == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		o.Data = s.pause
	case *corev1.PersistentVolumeClaim:
		o.Namespace, o.Name, o.Spec.VolumeName = k.Namespace, k.Name, s.bound
	case *corev1.PersistentVolume:
		o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "handle of " + k.Name}
		if s.claim != "" {
			o.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: s.claim}
		}
	default:
		return fmt.Errorf("no %T", o)
	}
	return nil
}

// midst is an executor and one node in the middle of its course. What it writes goes nowhere.
type midst struct {
	*Reconciler
	t      *testing.T
	c      *clock
	st     *nodeState
	live   *server // the API server
	cached *server // the informers
	api    *answers
	events *events.FakeRecorder
	heard  *heard
}

// inMidst is a node that is marked, in a phase of its fence, or not yet: PoweringOff has no mark, and no phase no
// record. Two others are heard.
func inMidst(t *testing.T, m *oneMachine, phase taint.Phase) *midst {
	t.Helper()
	c := &clock{now: newYear}
	m.now = c.Now
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "5"}}
	node.Status.NodeInfo.BootID = "b"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	x := &midst{
		t: t, c: c, live: &server{node: node, lease: "1"}, cached: &server{node: node}, api: &answers{},
		events: events.NewFakeRecorder(200),
	}
	sinks, told := sinksTo(x.events)
	x.heard = told
	x.Reconciler = New(Options{
		Live: x.live, Cache: x.cached, Client: x.api, Now: c.Now, Workers: 1, Sinks: sinks,
		Leading: func() error { return nil }, Key: taint.DefaultKey, By: "test",
		Config: func() *Config {
			return &Config{
				Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
					return machine.Machine{Provider: m, Name: "bmc", Device: "bmc/n1",
						Target: providers.Target{Node: "n1"}}, nil
				}},
				Settings: decide.Settings{
					Fence: fence.Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute,
						Retry: time.Minute},
					Evict: evict.Settings{DetachTimeout: 5 * time.Minute},
					Modes: modeOfAll(fence.Fence),
				},
			}
		},
	})
	x.st = x.stateOf("n1")
	x.WithFleet(func(f *fleet.Fleet) {
		for _, n := range []string{"n1", "n2", "n3"} {
			f.AddNode(n, providers.InstantOf(c.now))
		}
		f.ApplyLease("n1", "1", 0, providers.InstantOf(c.now))
	})
	x.pass(70 * time.Second)
	rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test", Since: c.now}.EnterPhase(phase,
		"", c.now)
	if phase == taint.PhasePoweringOff {
		rec.PowerOffTo = []taint.DeviceRef{{Device: "bmc/n1"}}
	}
	if phase != "" {
		node.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
	}
	if phase == taint.PhaseArmed || phase == taint.PhaseEvicting {
		node.Spec.Taints = taint.WithMark(nil, taint.DefaultKey, "f-1", c.now)
	}
	return x
}

// pass lets time go by, in which the other nodes are heard.
func (x *midst) pass(d time.Duration) {
	for end := x.c.now.Add(d); x.c.now.Before(end); {
		x.c.now = x.c.now.Add(min(10*time.Second, end.Sub(x.c.now)))
		x.WithFleet(func(f *fleet.Fleet) {
			for _, n := range []string{"n2", "n3"} {
				f.ApplyLease(n, x.c.now.Format("150405.000000"), 0, providers.InstantOf(x.c.now))
			}
			f.Tick(providers.InstantOf(x.c.now))
		})
	}
}

// work is what is done on the node.
func (x *midst) work() *work { return x.workOn(x.st.course.Look().Name, x.st) }

// act carries out an action that changes something.
func (x *midst) act(ctx context.Context, d action.Decision) decide.ActionDone {
	o, _ := decide.Do(ctx, d.Action, newExecutor(x.work())).(decide.ActionDone)
	return o
}

// upTo reads, asks and waits until the course says what to do next: that.
func (x *midst) upTo(do string) action.Decision {
	x.t.Helper()
	var seen []string
	for range 30 {
		var s action.Decision
		x.WithFleet(func(f *fleet.Fleet) { s = x.st.course.Next(providers.InstantOf(x.Now()), f) })
		if seen = append(seen, action.Name(s.Action)+" "+string(s.Reason)); action.Name(s.Action) == do {
			return s
		}
		switch {
		case action.IsRead(s.Action):
			o := decide.Do(x.t.Context(), s.Action, newExecutor(x.work()))
			if failed, is := o.(decide.ReadFailed); is {
				x.t.Fatal(failed.Err)
			}
			x.work().applyObservation(o)
			x.tells(s, o)
		case action.Is[action.AskDevices](s):
			x.work().applyObservation(decide.DevicesAnswered{Answers: x.work().askDevices(x.t.Context())})
		case action.Is[action.Wait](s):
			x.pass(s.RequeueAfter)
		default:
			x.t.Fatalf("got %q on the way to %s", seen, do)
		}
		x.c.now = x.c.now.Add(time.Millisecond)
	}
	x.t.Fatalf("got %q, want %s", seen, do)
	return action.Decision{}
}

// tells has a step told that was carried out.
func (x *midst) tells(d action.Decision, o decide.Observation) {
	x.st.reporter.ReportStep(x.t.Context(), decide.StepDone{Look: x.st.course.Look(), Decision: d, Outcome: o})
}

// step carries out the next decision, and has it reported.
func (r *Reconciler) step(ctx context.Context, name string, st *nodeState) decide.StepDone {
	return decide.Step(ctx, &st.course, r.newDriver(ctx, name, st))
}

// steps takes the node on, until something was written, or an error came.
func (x *midst) steps() error {
	x.t.Helper()
	for range 30 {
		s := x.step(x.t.Context(), "n1", x.st)
		if s.Err() != nil || x.api.patches > 0 || action.Is[action.NoAction](s.Decision) {
			return s.Err()
		}
		x.pass(s.Decision.RequeueAfter)
		x.c.now = x.c.now.Add(time.Millisecond)
	}
	return nil
}

// podsOf are running pods whose stock eviction was begun: nothing is to be waited for.
func podsOf(node string, names ...string) (out []corev1.Pod) {
	for _, n := range names {
		gone, grace := metav1.NewTime(newYear), int64(30)
		out = append(out, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: n, UID: types.UID(n), ResourceVersion: "1",
				DeletionTimestamp: &gone, DeletionGracePeriodSeconds: &grace},
			Spec: corev1.PodSpec{NodeName: node},
		})
	}
	return out
}

// endedPods are tombstones.
func endedPods(node string, names ...string) []corev1.Pod {
	out := podsOf(node, names...)
	for i := range out {
		out[i].DeletionTimestamp, out[i].DeletionGracePeriodSeconds = nil, nil
		out[i].Status.Phase, out[i].Status.Reason = corev1.PodFailed, taint.TombstoneReason
	}
	return out
}

// Each pod write is made under a proof that holds at that moment, or not at all (invariant 1).
func TestPodWritesNeedTheProof(t *testing.T) {
	ready := func(r *Reconciler) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		back := node.DeepCopy()
		back.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: node, ObjectNew: back})
	}
	booted := func(r *Reconciler) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		back := node.DeepCopy()
		back.Status.NodeInfo.BootID = "another"
		r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: node, ObjectNew: back})
	}
	heard := func(name string) func(*Reconciler) {
		return func(r *Reconciler) {
			r.WithFleet(func(f *fleet.Fleet) {
				f.ApplyLease(name, "98", 0, r.Now.Instant()) // for n2 the first sight
				f.ApplyLease(name, "99", 0, r.Now.Instant())
			})
		}
	}
	for _, tc := range []struct {
		name  string
		age   time.Duration        // of the proof when the run begins
		state providers.PowerState // the device's next answer
		after func(*Reconciler)    // happens after the first write
		each  time.Duration        // how long a write takes
		ret   bool                 // the return path
		want  int                  // pods written, of three
		asked int                  // questions
	}{
		{name: "fresh proof", state: providers.PowerOn, want: 3},
		{name: "old proof, still off", age: 6 * time.Second, state: providers.PowerOff, want: 3, asked: 1},
		{name: "old proof, on by now", age: 6 * time.Second, state: providers.PowerOn, want: 0, asked: 1},
		{name: "old proof, changing by now", age: 6 * time.Second, state: providers.PowerChanging, want: 0, asked: 1},
		{name: "old proof, unknown by now", age: 6 * time.Second, want: 0, asked: 1},
		{name: "the proof grows old in the middle", each: 3 * time.Second, state: providers.PowerOn, want: 2, asked: 1},
		{name: "a heartbeat in the middle", state: providers.PowerOff,
			after: func(r *Reconciler) { r.stopWrites("n1") }, want: 1},
		{name: "a heartbeat that the fleet heard of first", state: providers.PowerOff, after: heard("n1"), want: 1},
		{name: "the same, of another node", state: providers.PowerOff, after: heard("n2"), want: 3},
		{name: "another node's heartbeat", state: providers.PowerOff, after: func(r *Reconciler) { r.stopWrites("n2") },
			want: 3},
		{name: "Ready in the middle", state: providers.PowerOff, after: ready, want: 1},
		{name: "another boot in the middle", state: providers.PowerOff, after: booted, want: 1},
		{name: "the return path needs none", age: time.Hour, state: providers.PowerOn, ret: true, want: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &oneMachine{state: providers.PowerOff}
			x := inMidst(t, m, taint.PhaseEvicting)
			do := "EndPods"
			if x.live.pods = podsOf("n1", "a", "b", "c"); tc.ret {
				x.live.pods, x.live.lease, do = endedPods("n1", "a", "b", "c"), "2", "DeletePods"
			}
			s := x.upTo(do)
			m.state, m.asked = tc.state, 0
			x.c.now = x.c.now.Add(tc.age)
			wrote := 0
			o := x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error {
				if wrote++; wrote == 1 && tc.after != nil {
					tc.after(x.Reconciler)
				}
				x.c.now = x.c.now.Add(tc.each)
				return nil
			})
			if o.Err != nil || wrote != tc.want || len(o.Results) != tc.want ||
				action.NeedsNoProof(s.Action) != tc.ret || m.asked != tc.asked {
				t.Errorf("got %d writes (%d noted) after %d questions, error %v; want %d after %d", wrote,
					len(o.Results), m.asked, o.Err, tc.want, tc.asked)
			}
		})
	}
}

// podServer answers writes of pods, and notes the deletions as name, UID and resourceVersion.
type podServer struct {
	client.Client
	fails   error  // a deletion
	after   func() // an end
	mu      sync.Mutex
	deleted []string
}

func (d *podServer) SubResource(string) client.SubResourceClient { return endingPods{d: d} }

func (d *podServer) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	var how client.DeleteOptions
	how.ApplyOptions(opts)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted = append(d.deleted, fmt.Sprintf("%s %s %s %d", o.GetName(), *how.Preconditions.UID,
		*how.Preconditions.ResourceVersion, *how.GracePeriodSeconds))
	return d.fails
}

type endingPods struct {
	client.SubResourceClient
	d *podServer
}

func (e endingPods) Patch(
	_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	o.SetResourceVersion("2")
	if e.d.after != nil {
		e.d.after()
	}
	return nil
}

// A pod without volumes is deleted as soon as it is ended, in the version that its end made, if the proof still holds.
// A deletion that fails is reported, and the pod counts as ended: the next look finds it.
func TestEndedPodsAreDeletedAtOnce(t *testing.T) {
	claims := corev1.Volume{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	for _, tc := range []struct {
		name  string
		api   *podServer
		lives bool // the node shows life once the pod is ended
		want  []string
		fails int
		busy  int // writes that the API server had no room for
	}{
		{"deleted", &podServer{}, false, []string{"a a 2 0"}, 0, 0},
		{"the deletion fails", &podServer{fails: errors.New("500")}, false, []string{"a a 2 0"}, 1, 0},
		{"another wrote meanwhile", &podServer{fails: kube.ErrAgain}, false, []string{"a a 2 0"}, 0, 0},
		{"no room", &podServer{fails: apierrors.NewTooManyRequests("busy", 0)}, false, []string{"a a 2 0"}, 0, 1},
		{"a heartbeat after the end", &podServer{}, true, nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			x.live.pods = podsOf("n1", "a", "db")
			x.live.pods[1].Spec.Volumes = []corev1.Volume{claims}
			if tc.lives { // no other write shows that the run has stopped
				x.live.pods = x.live.pods[:1]
				tc.api.after = func() { x.stopWrites("n1") }
			}
			d := x.upTo("EndPods")
			x.writer.Client = tc.api
			o := x.act(t.Context(), d)
			if !slices.Equal(tc.api.deleted, tc.want) || o.Err != nil || o.Writes.Failed != tc.fails ||
				o.Writes.Throttled != tc.busy || len(o.Results) != len(action.PodsOf(d.Action)) {
				t.Errorf("deleted %q, want %q: %+v", tc.api.deleted, tc.want, o)
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
		late    bool
	}{
		{"leader, fresh look", 0, nil, 1, false},
		{"stopped for a while since the look", 6 * time.Second, nil, 0, true},
		{"no leader any more", 0, errStale, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &oneMachine{state: providers.PowerOn}
			x := inMidst(t, m, taint.PhasePoweringOff)
			x.live.pods = podsOf("n1", "a")
			s := x.upTo("PowerOff")
			x.Leading = func() error { return tc.leading }
			x.c.now = x.c.now.Add(tc.age)
			o := x.act(t.Context(), s)
			if m.off != tc.want || o.Withheld != tc.late || (o.Err == nil) != (tc.want == 1) ||
				!o.Withheld && !o.SentAt.Equal(providers.InstantOf(x.c.now)) {
				t.Errorf("got %d power-offs, outcome %+v, want %d, late %v", m.off, o, tc.want, tc.late)
			}
		})
	}
}

// A power-off goes its way through the device, and its outcome into the course: what follows, that decides. One that
// was not sent is no attempt, and a process that does not lead ends its work on the node.
func TestPowerOffIsNoError(t *testing.T) {
	for name, tc := range map[string]struct {
		leading, refuses error
		offs             int
		says             reason.Reason // after the power-off
		err              error
	}{
		"accepted":        {nil, nil, 1, reason.AwaitingOff, nil},
		"not accepted":    {nil, providers.ErrUnreachable, 1, reason.NotAccepted, nil},
		"not sent":        {nil, providers.ErrNotSent, 1, reason.SendingOff, nil},
		"leadership lost": {errStale, nil, 0, reason.SendingOff, errStale},
	} {
		m := &oneMachine{state: providers.PowerOn, refuses: tc.refuses}
		x := inMidst(t, m, taint.PhasePoweringOff)
		x.live.pods = podsOf("n1", "a")
		x.Leading = func() error { return tc.leading }
		var err error
		for range 20 {
			s := x.step(t.Context(), "n1", x.st)
			if err = s.Err(); err != nil {
				break
			}
			if x.pass(s.Decision.RequeueAfter); x.heard.reason == reason.AwaitingOff ||
				x.heard.reason == reason.NotAccepted || m.off > 1 {
				break
			}
			x.c.now = x.c.now.Add(time.Millisecond)
		}
		again := errors.Is(tc.refuses, providers.ErrNotSent) // it is decided on again, on another look
		if (m.off != tc.offs) != again || x.heard.reason != tc.says || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %d power-offs, then %s, error %v; want %d, %s, %v",
				name, m.off, x.heard.reason, err, tc.offs, tc.says, tc.err)
		}
	}
}

// What a step asks for is read where it says: the attachments in the cache, or on the API server (step 12, invariant
// 11). A cache that is behind keeps no mark, takes none off, and sets none.
func TestAttachmentsAreReadWhereTheStepSays(t *testing.T) {
	pv := "pv-1"
	attached := []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{
		NodeName: "n1", Attacher: "d", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
	}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}}
	for _, tc := range []struct {
		name         string
		phase        taint.Phase
		cached, live []storagev1.VolumeAttachment
		want         reason.Reason
		writes       int
	}{
		{"detached", taint.PhaseEvicting, nil, nil, reason.Finished, 1},
		{"attached, the cache does not know yet", taint.PhaseEvicting, nil, attached, reason.WaitingDetach, 0},
		{"detached, the cache does not know yet", taint.PhaseEvicting, attached, nil, reason.Finished, 1},
		{"not marked, attached", "", attached, attached, reason.ProvenOff, 1},
		{"not marked, detached, the cache does not know yet", "", attached, nil, reason.NoWork, 0},
		{"not marked, attached, the cache does not know yet", "", nil, attached, reason.NoWork, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, tc.phase)
			x.live.attachments, x.cached.attachments, x.live.claim = tc.live, tc.cached, "data"
			if tc.phase == "" { // the pod was deleted by force: attach/detach waits for this entry
				x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^handle of pv-1"}
			}
			if err := x.steps(); err != nil || x.api.patches != tc.writes || x.heard.reason != tc.want {
				t.Errorf("got %d writes, said %s, error %v, want %d, %s", x.api.patches, x.heard.reason, err, tc.writes,
					tc.want)
			}
		})
	}
}

// Volumes are read of the listed pods that the step names: what exempt pods use is no work for a fence, and is no other
// pod's.
func TestVolumesAreReadOfThePodsNamed(t *testing.T) {
	yes := true
	pv, other := "pv-1", "pv-2"
	attached := func(node, pv string) storagev1.VolumeAttachment {
		return storagev1.VolumeAttachment{
			Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Attacher: "d",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	}
	claim := []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	daemon := podsOf("n1", "a")[0]
	daemon.DeletionTimestamp = nil
	daemon.OwnerReferences, daemon.Spec.Volumes = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}}, claim
	finished := podsOf("n1", "b")[0]
	finished.DeletionTimestamp = nil
	finished.Status.Phase, finished.Spec.Volumes = corev1.PodSucceeded, claim
	for _, tc := range []struct {
		name        string
		pods        []corev1.Pod
		attachments []storagev1.VolumeAttachment // all of them mounted on n1
		want        bool
	}{
		{"the DaemonSet's volume", []corev1.Pod{daemon}, []storagev1.VolumeAttachment{attached("n1", pv)}, false},
		{"and a finished pod's", []corev1.Pod{finished, daemon}, []storagev1.VolumeAttachment{attached("n1", pv)},
			false},
		{"another volume beside it", []corev1.Pod{daemon},
			[]storagev1.VolumeAttachment{attached("n1", pv), attached("n1", other)}, true},
		{"another volume elsewhere", []corev1.Pod{daemon},
			[]storagev1.VolumeAttachment{attached("n1", pv), attached("n2", pv)}, false},
		{"a finished pod's volume alone", []corev1.Pod{finished}, []storagev1.VolumeAttachment{attached("n1", pv)},
			true},
	} {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, "")
		x.live.pods, x.live.bound = tc.pods, pv
		x.live.attachments, x.cached.attachments = tc.attachments, tc.attachments
		for _, va := range tc.attachments {
			x.live.node.Status.VolumesInUse = append(x.live.node.Status.VolumesInUse,
				corev1.UniqueVolumeName("kubernetes.io/csi/d^handle of "+*va.Spec.Source.PersistentVolumeName))
		}
		if err := x.steps(); err != nil || (x.heard.reason != reason.NoWork) != tc.want ||
			(x.api.patches > 0) != tc.want {
			t.Errorf("%s: got %d writes, said %s, error %v, want work: %v", tc.name, x.api.patches, x.heard.reason, err,
				tc.want)
		}
	}
}

// A read that fails is an error, and nothing is decided for want of it.
func TestReadsThatFail(t *testing.T) {
	claim := []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	exempt := podsOf("n1", "a")[0]
	exempt.DeletionTimestamp = nil
	exempt.Spec.Volumes, exempt.Spec.Tolerations = claim, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	broken := errors.New("connection refused")
	for what, tc := range map[string]struct {
		is     func(runtime.Object) bool
		cached bool
	}{
		"node":  {func(o runtime.Object) bool { _, ok := o.(*corev1.Node); return ok }, false},
		"lease": {func(o runtime.Object) bool { _, ok := o.(*coordinationv1.Lease); return ok }, false},
		"pods":  {func(o runtime.Object) bool { _, ok := o.(*corev1.PodList); return ok }, false},
		"claim": {func(o runtime.Object) bool { _, ok := o.(*corev1.PersistentVolumeClaim); return ok },
			false},
		"volume": {func(o runtime.Object) bool { _, ok := o.(*corev1.PersistentVolume); return ok }, false},
		"cached attachments": {func(o runtime.Object) bool { _, ok := o.(*storagev1.VolumeAttachmentList); return ok },
			true},
		"live attachments": {func(o runtime.Object) bool { _, ok := o.(*storagev1.VolumeAttachmentList); return ok },
			false},
	} {
		t.Run(what, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			x.live.pods, x.live.bound = []corev1.Pod{exempt}, "pv-1"
			s := x.live
			if tc.cached {
				s = x.cached
			}
			s.fails = func(o runtime.Object) error {
				if tc.is(o) {
					return broken
				}
				return nil
			}
			if err := x.steps(); !errors.Is(err, broken) || x.api.patches != 0 {
				t.Errorf("got %d writes, error %v, want the error", x.api.patches, err)
			}
			if err := x.steps(); !errors.Is(err, broken) || x.api.patches != 0 {
				t.Errorf("once more: got %d writes, error %v, want the error", x.api.patches, err)
			}
			s.fails = nil
			if err := x.steps(); err != nil || x.api.patches != 1 {
				t.Errorf("the API server is back: got %d writes, error %v, want the mark to go", x.api.patches, err)
			}
		})
	}
}

// Where every read takes longer than an answer counts, the act is decided on the look that the question followed.
func TestSlowServer(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	wait := int64(300)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "1"},
		Spec: corev1.PodSpec{
			NodeName: "n1",
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: &wait}},
		}}
	x.live.pods, x.live.took = []corev1.Pod{pod}, func() { x.c.now = x.c.now.Add(6 * time.Second) }
	if err := x.steps(); err != nil || x.api.patches != 1 || x.heard.reason != reason.Tombstoning {
		t.Errorf("got %d pods ended, said %s, error %v, want one", x.api.patches, x.heard.reason, err)
	}
}

// A process that was stopped between decision and write does not clear the volume lists on an old proof (invariant 1):
// it looks again.
func TestClearingNeedsTheProof(t *testing.T) {
	for _, stands := range []bool{false, true} {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/x^1"}
		x.live.pods = endedPods("n1", "a")
		d := x.upTo("ClearVolumes")
		if stands {
			x.c.now = x.c.now.Add(time.Minute)
		}
		o := x.act(t.Context(), d)
		if want := map[bool]int{false: 1, true: 0}[stands]; x.api.patches != want ||
			errors.Is(o.Err, kube.ErrAgain) != stands || o.Withheld != stands {
			t.Errorf("stopped %v: got %d writes, %+v, want %d", stands, x.api.patches, o, want)
		}
	}
}

// fencesMade counts the fences that storage was asked for.
type fencesMade struct {
	StorageFences
	made []string
}

func (f *fencesMade) MakeFence(_ context.Context, l taint.Look, p policy.Policy) error {
	f.made = append(f.made, l.Name+" "+p.Name)
	return nil
}

// A process that was stopped between decision and write has no storage cut the node off: it looks again. Nor does a
// policy that is gone, or that needs no fence.
func TestStorageIsCutOffWhileTheDecisionHolds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stopped time.Duration
		classes []string
		policy  string
		want    []string
	}{
		{"the decision holds", 0, []string{"ceph"}, "p", []string{"n1 p"}},
		{"the process was stopped", time.Minute, []string{"ceph"}, "p", nil},
		{"the policy needs no fence any more", 0, nil, "p", nil},
		{"the policy is gone", 0, []string{"ceph"}, "other", nil},
	} {
		x, _ := aboutToWrite(t, true, 0)
		storage, config := &fencesMade{}, x.Config()
		config.Policies = []policy.Policy{{Name: "p", FenceClasses: tc.classes}}
		x.Config, x.StorageFences = func() *Config { return config }, storage
		x.c.now = x.c.now.Add(tc.stopped)
		o := x.act(t.Context(), action.Decision{Action: action.FenceStorage{Name: tc.policy}})
		if !slices.Equal(storage.made, tc.want) || o.Withheld != (tc.want == nil) ||
			errors.Is(o.Err, kube.ErrLate) != (tc.want == nil) {
			t.Errorf("%s: got fences %q, %+v; want %q", tc.name, storage.made, o, tc.want)
		}
	}
}
