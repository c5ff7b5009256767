package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fence"
)

// sized makes a pod with so many bytes of arguments.
func sized(t *testing.T, c client.Client, bytes int, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sized-", Namespace: "kube-system", Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: "nowhere", ServiceAccountName: "writer-test", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "none", Args: []string{strings.Repeat("x", bytes)}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	if err := c.Create(t.Context(), p); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		p.Finalizers = nil
		_ = client.IgnoreNotFound(c.Update(context.Background(), p))
		_ = c.Delete(context.Background(), p, client.GracePeriodSeconds(0))
	})
	return p, nil
}

// A pod that a hostile user made as large as etcd takes it is ended by the small tombstone, which needs less room than the whole one
// and hardly more than a deletion. Where it fits the small spare fits, too: so a tombstone which is still on its way to a pod that
// cannot be spared is refused, and one on its way to a pod that was spared names an old resourceVersion.
func TestSmallFormsFit(t *testing.T) {
	c := admin(t)
	newPod(t, c) // its account
	w := late{}.writer(c)
	const id, token = "f-0123456789ab", "f-0123456789ab/20260101T000000.000"
	tombstone := func(p evict.Pod) error { return w.tombstone(t.Context(), p, id) }
	small := func(p evict.Pod) error { p.Small = true; return tombstone(p) }
	try := func(bytes int, act func(evict.Pod) error) evict.Refusal {
		t.Helper()
		o, err := sized(t, c, bytes)
		if err == nil {
			err = act(SeePod(o, taint.DefaultKey, nil))
		}
		if why := refusal(err); why == evict.Accepted || why == evict.TooLarge {
			return why
		}
		t.Fatal(err)
		return 0
	}
	fits, most := 1571000, 1573000 // the first fits, the other does not: etcd takes 1.5 MiB
	for fits+1 < most {
		if n := (fits + most) / 2; try(n, small) == evict.Accepted {
			fits = n
		} else {
			most = n
		}
	}
	for _, tc := range []struct {
		name  string
		bytes int
		act   func(evict.Pod) error
		want  evict.Refusal
	}{
		{"the small tombstone fits", fits, small, evict.Accepted},
		{"and no byte more", most, small, evict.TooLarge},
		{"the whole tombstone does not", fits, tombstone, evict.TooLarge},
		{"the whole spare does not", fits, func(p evict.Pod) error { return w.spare(t.Context(), p, token) }, evict.TooLarge},
		{"the small spare does", fits, func(p evict.Pod) error { p.Small = true; return w.spare(t.Context(), p, token) }, evict.Accepted},
		{"a pod that is a little larger cannot be deleted either", fits + 16, func(p evict.Pod) error { return w.delete(t.Context(), p) }, evict.TooLarge},
	} {
		if got := try(tc.bytes, tc.act); got != tc.want {
			t.Errorf("%s: got %q with %d bytes, want %q", tc.name, got, tc.bytes, tc.want)
		}
	}
}

// Each small spare is a new resourceVersion, and the small tombstone is one to everybody else.
func TestSmallForms(t *testing.T) {
	c := admin(t)
	o := newPod(t, c)
	w := late{}.writer(c)
	seen := map[string]bool{o.ResourceVersion: true}
	see := func() evict.Pod {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		p := SeePod(o, taint.DefaultKey, nil)
		p.Small = true
		return p
	}
	for range 3 {
		if err := w.spare(t.Context(), see(), "f-1/then"); err != nil {
			t.Fatal(err)
		}
		if p := see(); seen[p.ResourceVersion] || p.Terminal || p.Spared != "" {
			t.Errorf("spared: got %+v, want another resourceVersion and nothing else", p)
		}
		seen[o.ResourceVersion] = true
	}
	if err := w.tombstone(t.Context(), see(), "f-1"); err != nil {
		t.Fatal(err)
	}
	if p := see(); !p.Tombstone || len(o.Status.Conditions) != 0 || o.Status.Message != "spared" {
		t.Errorf("ended: got status %+v, want phase and reason of a tombstone, the rest as it was", o.Status)
	}
}

// refusals of pod writes, as the API server words them (TestSmallFormsFit has etcd's from a real one).
func TestRefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	kind := schema.GroupKind{Kind: "Pod"}
	coded := func(code int32, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: text}}
	}
	long := field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 262144)}
	odd := field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")}
	for _, tc := range []struct {
		err  error
		want evict.Refusal
	}{
		{nil, evict.Accepted},
		{apierrors.NewNotFound(pods, "p"), evict.Accepted},
		{apierrors.NewConflict(pods, "p", errStale), evict.Changed},
		{fmt.Errorf("ending pod: %w", apierrors.NewConflict(pods, "p", errStale)), evict.Changed},
		{coded(500, "etcdserver: request is too large"), evict.TooLarge},
		{coded(500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097252 vs. 2097152)"), evict.TooLarge},
		{apierrors.NewRequestEntityTooLargeError("limit is 3145728"), evict.TooLarge},
		{fmt.Errorf("ending pod: %w", apierrors.NewInvalid(kind, "p", long)), evict.TooLarge},
		{apierrors.NewInvalid(kind, "p", odd), evict.Denied},
		{apierrors.NewForbidden(pods, "p", errStale), evict.Denied},
		{apierrors.NewBadRequest("admission webhook denied the request"), evict.Denied},
		{coded(403, "the webhook says: etcdserver: request is too large"), evict.Denied},
		{apierrors.NewInternalError(errStale), evict.Failed},
		{apierrors.NewTimeoutError("no", 1), evict.Failed},
		{apierrors.NewTooManyRequests("no", 1), evict.Failed},
		{coded(408, ""), evict.Failed},
		{context.DeadlineExceeded, evict.Failed},
	} {
		if got := refusal(tc.err); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.err, got, tc.want)
		}
	}
}

// A pod that changed or went meanwhile is no error, nor is any other failure of one pod: it is remembered, and keeps no other pod from
// its end. A process that lost its leadership blames no pod.
func TestPodWritesGoOn(t *testing.T) {
	gone, changed := apierrors.NewNotFound(schema.GroupResource{}, "b"), apierrors.NewConflict(schema.GroupResource{}, "b", errStale)
	for _, tc := range []struct {
		name  string
		fail  error
		times int       // the batch runs
		lost  bool      // the leadership, with that
		want  evict.Act // of the next decision, b alone being left
		err   bool
	}{
		{name: "gone", fail: gone, times: 9, want: evict.Tombstone},
		{name: "changed", fail: fmt.Errorf("%w: %w", errAgain, changed), times: 1, want: evict.Tombstone},
		{name: "changed all the time", fail: fmt.Errorf("%w: %w", errAgain, changed), times: 4, want: evict.Wait},
		{name: "no quorum", fail: errors.New("no quorum"), times: 1, want: evict.Wait},
		{name: "too large", fail: apierrors.NewRequestEntityTooLargeError(""), times: 1, want: evict.Tombstone},
		{name: "no leader any more", fail: errStale, times: 1, lost: true, want: evict.Tombstone, err: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: newYear}
			tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
			d := evict.Decision{Act: evict.Tombstone, Pods: []evict.Pod{{Name: "a", UID: "a"}, {Name: "b", UID: "b", Deleting: true}, {Name: "c", UID: "c"}}}
			for range tc.times {
				written, err := tn.forEach(t.Context(), v, d, func(_ context.Context, p evict.Pod) error {
					if p.Name == "b" {
						if tc.lost {
							tn.Leading = func() error { return errStale }
						}
						return tc.fail
					}
					return nil
				})
				if (err != nil) != tc.err || !tc.lost && len(written) != 2 {
					t.Errorf("got %d written, error %v, want the other two", len(written), err)
				}
			}
			v.Memory, v.Pods = tn.st.evict, d.Pods[1:2]
			if d := evict.Step(v); d.Act != tc.want {
				t.Errorf("the next decision: got %s (%s), want %s", d.Act, d.Why, tc.want)
			}
		})
	}
}

// wakes is a machine that shows life while it is asked: its answer was true when it was given.
type wakes struct {
	*oneMachine
	wake func()
}

func (w wakes) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	w.wake()
	return w.oneMachine.State(ctx, t)
}

// A sign of life that comes while the device is asked again stops the run, though its answer is Off.
func TestStoppedWhileAsking(t *testing.T) {
	for _, node := range []string{"n1", "n2"} {
		c := &clock{now: newYear}
		m := &oneMachine{now: c.Now, state: providers.PowerOff}
		tn, v := aTurn(c, m, taint.PhaseEvicting)
		tn.machine.Provider = wakes{m, func() { tn.stopBatch(node) }}
		c.now = c.now.Add(fence.ProofTTL + time.Second)
		d := evict.Decision{Act: evict.Tombstone, Pods: []evict.Pod{{Name: "a", UID: "a"}}}
		written, err := tn.forEach(t.Context(), v, d, func(context.Context, evict.Pod) error { return nil })
		if want := map[string]int{"n1": 0, "n2": 1}[node]; err != nil || len(written) != want || m.asked != 1 {
			t.Errorf("%s shows life: got %d written after %d questions, error %v; want %d after one", node, len(written), m.asked, err, want)
		}
	}
}

// oneInformer is a manager whose cache has one informer, and keeps its handler.
type oneInformer struct {
	manager.Manager
	handler toolscache.ResourceEventHandler
}

type oneInformerCache struct {
	cache.Cache
	m *oneInformer
}

type informer struct {
	cache.Informer
	m *oneInformer
}

func (m *oneInformer) GetCache() cache.Cache { return oneInformerCache{m: m} }

func (c oneInformerCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return informer{m: c.m}, nil
}

func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.m.handler = h
	return nil, nil
}

// A heartbeat stops the pod writes under way on its node; a Lease that comes again as it was does not.
func TestStoppedByLease(t *testing.T) {
	lease := func(node, rv string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, ResourceVersion: rv}}
	}
	for _, tc := range []struct {
		name string
		come *coordinationv1.Lease
		want int
	}{
		{"a heartbeat", lease("n1", "8"), 1},
		{"a resync", lease("n1", "7"), 3},
		{"another node's heartbeat", lease("n2", "8"), 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{now: newYear}
			tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
			var inf oneInformer
			if err := tn.followLeases(t.Context(), &inf); err != nil {
				t.Fatal(err)
			}
			inf.handler.OnAdd(lease("n1", "7"), true)
			d := evict.Decision{Act: evict.Tombstone, Pods: []evict.Pod{{UID: "a"}, {UID: "b"}, {UID: "c"}}}
			written, err := tn.forEach(t.Context(), v, d, func(context.Context, evict.Pod) error {
				inf.handler.OnUpdate(nil, tc.come)
				return nil
			})
			if err != nil || len(written) != tc.want {
				t.Errorf("got %d written, error %v, want %d", len(written), err, tc.want)
			}
		})
	}
}

// claims is a server with claims and volumes: "claim" is bound to "pv", whose name in a node's lists is neither.
type claims struct{ server }

const listed = corev1.UniqueVolumeName("kubernetes.io/csi/driver.example.net^handle")

func (claims) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		o.Spec.VolumeName = "pv"
	case *corev1.PersistentVolume:
		o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.example.net", VolumeHandle: "handle"}
	}
	return nil
}

// The lists are cleared once, and of what goes alone: the volume of a pod that waits for its stock eviction, or could not be ended, is
// looked up first. volumesAttached is not cleared again when its controller writes it back (F5).
func TestClearingKeepsAndRemembers(t *testing.T) {
	ended := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ended", UID: "e"}, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: taint.TombstoneReason},
	}
	stays := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stays", UID: "s"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
	}}}}
	for _, failed := range []bool{false, true} {
		c := &clock{now: newYear}
		tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
		tn.Live, tn.Cache = claims{server{pods: []corev1.Pod{ended, stays}}}, server{}
		if failed {
			stays.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64)}}
			*stays.Spec.Tolerations[0].TolerationSeconds = 300
			tn.st.evict.Wrote(evict.Tombstone, []evict.Pod{{UID: "s"}}, map[string]evict.Refusal{"s": evict.Failed}, c.now)
		}
		const goes = corev1.UniqueVolumeName("kubernetes.io/csi/driver.example.net^another")
		tn.look.InUse = []corev1.UniqueVolumeName{listed, goes}
		tn.look.Attached = []corev1.AttachedVolume{{Name: listed}, {Name: goes}}
		v.Look, v.Memory = tn.look, tn.st.evict
		d, err := tn.decide(t.Context(), &v)
		if err != nil || d.Act != evict.ClearVolumes || !slices.Equal(d.InUse, []corev1.UniqueVolumeName{listed}) || len(d.Attached) != 1 || d.Attached[0].Name != listed {
			t.Errorf("failed %v: got %s, in use %v, attached %v, error %v; want all but %s cleared", failed, d.Act, d.InUse, d.Attached, err, listed)
		}
		api := &answers{}
		tn.writer.client = api
		if _, _, err := tn.evict(t.Context()); err != nil || api.patches != 1 || !tn.st.evict.Cleared {
			t.Errorf("failed %v: got %d patches, cleared %v, error %v; want it done and remembered", failed, api.patches, tn.st.evict.Cleared, err)
		}
		tn.look.InUse = nil
		if d := evict.Step(evict.View{Look: tn.look, Memory: tn.st.evict, Pods: v.Pods, Device: v.Device, Now: c.now}); d.Act == evict.ClearVolumes {
			t.Errorf("failed %v: volumesAttached is cleared again", failed)
		}
	}
}

// Of the pods that a fence leaves behind those are told that stay: what stock controllers take off by themselves is no news.
func TestKeptPodsAreTold(t *testing.T) {
	pod := func(name string, finalizers ...string) evict.Pod {
		return evict.Pod{Namespace: "a", Name: name, UID: name, Terminal: true, Tombstone: true, Deleting: true, Finalizers: finalizers}
	}
	c := &clock{now: newYear}
	tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
	events := events.NewFakeRecorder(50)
	tn.Events = events
	v.Pods = []evict.Pod{
		pod("job", "batch.kubernetes.io/job-tracking"), pod("owner", "foregroundDeletion"), pod("orphans", "orphan"),
		pod("kept", "example.net/keep"), pod("both", "batch.kubernetes.io/job-tracking", "example.net/too"), pod("gone"),
	}
	tn.tellKept(v, evict.Decision{Stuck: []evict.StuckPod{
		{Pod: pod("huge"), Act: evict.Delete, Why: evict.TooLarge}, {Pod: pod("lives"), Act: evict.Spare, Why: evict.Denied},
	}})
	got := strings.Join(told(events), "\n")
	for text, want := range map[string]int{
		"FinalizersKeepPod": 2, "removed: example.net/keep.": 1, "removed: example.net/too.": 1, "job-tracking": 0,
		"PodLeftBehind": 2, "cannot be deleted (too large for the API server)": 1, "could not be marked as spared (the API server refuses)": 1,
	} {
		if n := strings.Count(got, text); n != want {
			t.Errorf("%q: got %d times, want %d, in:\n%s", text, n, want, got)
		}
	}
}

// An alert names a few of the pods that are stuck, and is told again when they are others.
func TestAlertNamesPods(t *testing.T) {
	c := &clock{now: newYear}
	tn, v := aTurn(c, &oneMachine{now: c.Now, state: providers.PowerOff}, taint.PhaseEvicting)
	events := events.NewFakeRecorder(50)
	tn.Events = events
	tell := func(names ...string) string {
		d := evict.Decision{Act: evict.Wait, Why: evict.Retrying, Alert: string(evict.Stuck)}
		for _, n := range names {
			d.Stuck = append(d.Stuck, evict.StuckPod{Pod: evict.Pod{Namespace: "a", Name: n}, Act: evict.Tombstone, Why: evict.TooLarge})
		}
		tn.tellEvict(v, d)
		return strings.Join(told(events), "\n")
	}
	const first = "(PodsStuck: pod a/p1 cannot be ended (too large for the API server))"
	if got := tell("p1"); !strings.Contains(got, "FenceNeedsPerson") || !strings.Contains(got, first) {
		t.Errorf("got %s, want %s", got, first)
	}
	if got := tell("p1"); got != "" {
		t.Errorf("told again: %s", got)
	}
	if got := tell("p1", "p2", "p3", "p4", "p5"); !strings.Contains(got, "pod a/p3 cannot") || strings.Contains(got, "p4") || !strings.Contains(got, "; and 2 more)") {
		t.Errorf("got %s, want three of five", got)
	}
}

// A release does what it can: a pod that takes no annotation is spared in its small form, one that takes nothing is named, and the mark
// goes. A person without the right to spare pods is told so instead.
func TestReleaseGoesOn(t *testing.T) {
	c := admin(t)
	newPod(t, c) // its account
	changed := map[string]int{}
	full := func(p *corev1.Pod) { p.Annotations["full"] = strings.Repeat("y", 262144-len("full")) }
	for _, tc := range []struct {
		name   string
		refuse func(pod string) error // what the API server says of it
		fails  bool
		left   string
	}{
		{name: "full annotations", refuse: func(string) error { return nil }},
		{name: "pods that change meanwhile", refuse: func(pod string) error {
			if changed[pod]++; changed[pod] < 3 {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod, errStale)
			}
			return nil
		}},
		{name: "one pod that takes nothing", left: "etcdserver: request is too large", refuse: func(pod string) error {
			if pod == "bad" {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request is too large"}}
			}
			return nil
		}},
		{name: "a webhook that refuses one", left: "denied the request", refuse: func(pod string) error {
			if pod == "bad" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod, errors.New("admission webhook denied the request"))
			}
			return nil
		}},
		{name: "no right", fails: true, refuse: func(pod string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod, errors.New(`User "kim" cannot patch resource "pods/status" in API group ""`))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, c)
			_, l, err := Look(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			w := late{}.writer(c)
			rec := aRecord(l).Enter(taint.PhaseEvicting, "", time.Now())
			if err := w.arm(t.Context(), l, rec); err != nil {
				t.Fatal(err)
			}
			bad, err := sized(t, c, 1, full, func(p *corev1.Pod) { p.Spec.NodeName = n.Name })
			if err != nil {
				t.Fatal(err)
			}
			good, err := sized(t, c, 1, func(p *corev1.Pod) { p.Spec.NodeName = n.Name })
			if err != nil {
				t.Fatal(err)
			}
			names := map[string]string{bad.Name: "bad", good.Name: "good"}
			out, err := Release(t.Context(), refusing{c, func(pod string) error { return tc.refuse(names[pod]) }}, n.Name, taint.DefaultKey, true, time.Now)
			if (err != nil) != tc.fails {
				t.Fatalf("got %q, error %v, want an error: %v", out, err, tc.fails)
			}
			_, l, err = Look(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
			if err != nil || (l.Mark != nil) != tc.fails {
				t.Errorf("got mark %v, error %v", l.Mark, err)
			}
			if named := strings.Contains(out, bad.Name) && strings.Contains(out, tc.left); tc.left != "" && !named || strings.Contains(out, good.Name) {
				t.Errorf("got %q, want the pod and %q", out, tc.left)
			}
			if tc.fails {
				return
			}
			for o, want := range map[*corev1.Pod]bool{bad: tc.left == "", good: true} {
				was := o.ResourceVersion
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
					t.Fatal(err)
				}
				if got := o.ResourceVersion != was; got != want || got && taint.SparedBy(o) == "" && o.Status.Message != "spared" {
					t.Errorf("%s: got a new resourceVersion %v, annotations %d, message %q; want spared %v", names[o.Name], got, len(o.Annotations), o.Status.Message, want)
				}
			}
		})
	}
}

// refusing is a client whose writes of pods' statuses may be refused.
type refusing struct {
	client.Client
	refuse func(pod string) error
}

func (r refusing) SubResource(name string) client.SubResourceClient {
	return refusingSub{r.Client.SubResource(name), r}
}

type refusingSub struct {
	client.SubResourceClient
	r refusing
}

func (s refusingSub) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.r.refuse(o.GetName()); err != nil {
		return err
	}
	return s.SubResourceClient.Patch(ctx, o, p, opts...)
}
