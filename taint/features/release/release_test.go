package release

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/test/cluster"
)

var errOther = errors.New("another client's write")

// writer writes as the leader does.
func writer(c client.Client) kube.Writer {
	return kube.Writer{Client: c, Key: taint.DefaultKey, Leading: func() error { return nil }, Now: time.Now}
}

func newNode(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), n) })
	return n
}

func newPod(t *testing.T, c client.Client, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: "kube-system", Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "release-test", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}
	for _, f := range change {
		f(p)
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "release-test", Namespace: "kube-system"}}
	if err := c.Create(t.Context(), sa); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), p, client.GracePeriodSeconds(0)) })
	return p
}

// Every mark goes, whosever it is, and nothing else; the record is closed with the life that the node has now; of the
// pods those are spared that a fence would have ended. Without confirm nothing is written.
func TestRelease(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rec := taint.Record{ID: "f-1", NodeUID: "before", BootID: "before", LeaseRV: "before", By: "test", Since: now}
	mark := func(value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: taint.DefaultKey, Value: value, Effect: effect}
	}
	theirs := corev1.Taint{Key: "example.net/theirs", Value: "f-1", Effect: corev1.TaintEffectNoSchedule}
	ours, kim := mark("f-1", corev1.TaintEffectNoSchedule), mark("kim", corev1.TaintEffectPreferNoSchedule)
	for _, tc := range []struct {
		name   string
		record string
		taints []corev1.Taint
		dry    bool
		id     string   // of the record afterwards; "": as it was
		spared []string // pods
		told   string
		err    error
	}{
		{"our mark", rec.EnterPhase(taint.PhaseEvicting, "", now).Encode(), []corev1.Taint{theirs, ours}, false, "f-1",
			[]string{"runs"}, "released node n1", nil},
		{"ours and a person's", rec.EnterPhase(taint.PhaseEvicting, "", now).Encode(),
			[]corev1.Taint{ours, kim, theirs}, false, "f-1", []string{"runs"}, "released node n1", nil},
		{"a person's over an open fence", rec.EnterPhase(taint.PhaseEvicting, "", now).Encode(),
			[]corev1.Taint{kim, theirs}, false, "f-1", []string{"runs"}, "released node n1", nil},
		{"a person's alone", "", []corev1.Taint{kim, theirs}, false, "released", nil, "no record", nil},
		{"an open fence whose mark is gone", rec.EnterPhase(taint.PhaseArmed, "", now).Encode(), []corev1.Taint{theirs},
			false, "f-1", []string{"runs"}, "no mark", nil},
		{"an unreadable record", "{", []corev1.Taint{theirs}, false, "released", nil, "unreadable record is replaced",
			nil},
		{"a device that lied", rec.EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, now).Encode(),
			[]corev1.Taint{theirs}, false, "f-1", nil, "released node n1", nil},
		{"without confirm", rec.EnterPhase(taint.PhaseEvicting, "", now).Encode(), []corev1.Taint{ours, theirs}, true,
			"", nil, "would release node n1", nil},
		{"a fence that is done", rec.EnterPhase(taint.PhaseDone, taint.ResultEvicted, now).Encode(),
			[]corev1.Taint{theirs}, false, "", nil, "", errNothingToRelease},
		{"nothing", "", []corev1.Taint{theirs}, false, "", nil, "", errNothingToRelease},
	} {
		t.Run(tc.name, func(t *testing.T) {
			yes := true
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1",
					Annotations: map[string]string{"example.net/a": "b"}}}
			if tc.record != "" {
				node.Annotations[taint.RecordAnnotation] = tc.record
			}
			node.Spec.Taints, node.Status.NodeInfo.BootID = tc.taints, "b1"
			pod := func(name, on string, phase corev1.PodPhase) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)},
					Spec: corev1.PodSpec{NodeName: on}, Status: corev1.PodStatus{Phase: phase}}
			}
			daemon := pod("exempt", "n1", corev1.PodRunning)
			daemon.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: &yes}}
			c := fake.NewClientBuilder().
				WithObjects(node, pod("runs", "n1", corev1.PodRunning), pod("finished", "n1", corev1.PodSucceeded),
					daemon, pod("elsewhere", "n2", corev1.PodRunning)).
				WithIndex(&corev1.Pod{}, "spec.nodeName",
									func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
				WithInterceptorFuncs(interceptor.Funcs{ // an API server takes annotations with a status
					SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object,
						p client.Patch, _ ...client.SubResourcePatchOption) error {
						return c.Patch(ctx, o, p)
					},
				}).Build()
			told, err := ReleaseNode(t.Context(), c, "n1", taint.DefaultKey, nil, !tc.dry,
				func() time.Time { return now })
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || !strings.Contains(told, tc.told) {
				t.Fatalf("got %q, error %v, want %q, error %v", told, err, tc.told, tc.err)
			}
			var is corev1.Node
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &is); err != nil {
				t.Fatal(err)
			}
			taints, note := []corev1.Taint{theirs}, is.Annotations[taint.RecordAnnotation]
			if tc.id == "" {
				taints = tc.taints
				if note != tc.record {
					t.Errorf("the record: got %s, want %s", note, tc.record)
				}
			} else if r, err := taint.RecordOf(&is); err != nil || r.ID != tc.id || r.Result != taint.ResultReleased ||
				r.NodeUID != "u1" || r.BootID != "b1" || r.LeaseRV != "" {
				t.Errorf("the record: got %s, error %v, want %s, released, of this life", note, err, tc.id)
			}
			if !slices.Equal(is.Spec.Taints, taints) || is.Annotations["example.net/a"] != "b" {
				t.Errorf("got taints %v, annotations %v, want taints %v and all other annotations", is.Spec.Taints,
					is.Annotations, taints)
			}
			var pods corev1.PodList
			if err := c.List(t.Context(), &pods); err != nil {
				t.Fatal(err)
			}
			spared := map[string]bool{}
			for i := range pods.Items {
				if taint.SparedBy(&pods.Items[i]) != "" {
					spared[pods.Items[i].Name] = true
				}
			}
			if got := slices.Sorted(maps.Keys(spared)); !slices.Equal(got, tc.spared) {
				t.Errorf("spared: got %v, want %v", got, tc.spared)
			}
		})
	}
}

// A node without a mark and an open fence can be released from a NetworkFence of its present life: that is taken back,
// and no policy ends further pods. One whose success was noted stays.
func TestReleaseOfAStorageFence(t *testing.T) {
	life := taint.Life{NodeUID: "u1", BootID: "b1"}
	for _, tc := range []struct {
		name   string
		change func(*storagefence.Fence)
		told   string // "": there is nothing to release
	}{
		{"no success was noted", func(*storagefence.Fence) {}, "NetworkFence f is taken back"},
		{"a success was noted", func(f *storagefence.Fence) { f.Confirmed = true }, "NetworkFence f stays until the"},
		{"another author's", func(f *storagefence.Fence) { f.Owned = false }, ""},
		{"another node's", func(f *storagefence.Fence) { f.Node = "n2" }, ""},
		{"of an earlier life", func(f *storagefence.Fence) { f.Life.BootID = "b0" }, ""},
		{"it is being let in", func(f *storagefence.Fence) { f.State = storagefence.Unfenced }, ""},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
		node.Status.NodeInfo.BootID = "b1"
		c := fake.NewClientBuilder().WithObjects(node).Build()
		f := storagefence.Fence{Name: "f", Owned: true, Node: "n1", Life: life, State: storagefence.Fenced}
		tc.change(&f)
		for _, confirm := range []bool{false, true, true} {
			told, err := ReleaseNode(t.Context(), c, "n1", taint.DefaultKey, []storagefence.Fence{f}, confirm, time.Now)
			var is corev1.Node
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &is); err != nil {
				t.Fatal(err)
			}
			l := taint.NewLook(&is, nil, taint.DefaultKey, taint.Instant{}, taint.Instant{})
			switch {
			case tc.told == "":
				if !errors.Is(err, errNothingToRelease) {
					t.Errorf("%s: got %q, %v, want %v", tc.name, told, err, errNothingToRelease)
				}
			case !confirm:
				if err != nil || !strings.Contains(told, tc.told) || l.IsReleased() {
					t.Errorf("%s, not confirmed: got %q, %v, want %q", tc.name, told, err, tc.told)
				}
			case err == nil && !strings.Contains(told, tc.told), err != nil && !errors.Is(err, errNothingToRelease),
				!l.IsReleased():
				t.Errorf("%s: got %q, %v, want %q and a record", tc.name, told, err, tc.told)
			}
		}
	}
}

// busy is a Node that another client writes just before each of our first writes.
type busy struct {
	client.Client
	times int
}

func (b *busy) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind == "Node" && b.times > 0 {
		b.times--
		other := &corev1.Node{}
		other.Name = o.GetName()
		touch := client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"touched":"`+time.Now().String()+`"}}}`))
		if err := b.Client.Patch(ctx, other, touch); err != nil {
			return err
		}
	}
	return b.Client.Patch(ctx, o, p, opts...)
}

// A Node that cannot be read is not taken for one that has no mark.
func TestReleaseOfAnUnreadableNode(t *testing.T) {
	refused := errors.New("no answer")
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		},
	}).Build()
	told, err := ReleaseNode(t.Context(), c, "n1", taint.DefaultKey, nil, true, time.Now)
	if told != "" || !errors.Is(err, refused) {
		t.Errorf("got %q, error %v, want the API server's error", told, err)
	}
	pinned := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{taint.PinLabel: "p"}}}
	c = fake.NewClientBuilder().WithObjects(pinned).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if _, ok := l.(*corev1.NodeList); ok {
				return refused
			}
			return c.List(ctx, l, opts...)
		},
	}).Build()
	told, err = ReleaseNode(t.Context(), c, "n1", taint.DefaultKey, nil, true, time.Now)
	if told != "" || !errors.Is(err, refused) {
		t.Errorf("a pinned node: got %q, error %v, want the API server's error", told, err)
	}
}

// unlisted is a client whose lists of pods fail.
type unlisted struct{ client.Client }

var errNoList = errors.New("no list")

func (u unlisted) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if _, ok := l.(*corev1.PodList); ok {
		return errNoList
	}
	return u.Client.List(ctx, l, opts...)
}

// While the pods cannot be listed, the mark stays: a pod that starts without it could still be ended.
func TestReleaseWithoutThePods(t *testing.T) {
	c := cluster.Admin(t, shared)
	n := newNode(t, c)
	_, l, err := kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	rec := taint.Record{ID: "f-1", NodeUID: string(n.UID), By: "test"}.EnterPhase(taint.PhaseArmed, "", time.Now())
	if err := writer(c).SetMark(t.Context(), l, rec); err != nil {
		t.Fatal(err)
	}
	said, err := ReleaseNode(t.Context(), unlisted{c}, n.Name, taint.DefaultKey, nil, true, time.Now)
	if !errors.Is(err, errNoList) {
		t.Errorf("got %q, error %v, want the list's", said, err)
	}
	if _, l, err = kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now); err != nil || l.Mark == nil {
		t.Errorf("got mark %v, error %v, want the mark", l.Mark, err)
	}
}

// A node that lives is written by its kubelet and others: a release does not give up for that, nor does it overwrite
// what they wrote.
func TestReleaseOfABusyNode(t *testing.T) {
	c := cluster.Admin(t, shared)
	for _, tc := range []struct {
		times int
		fails bool
	}{{0, false}, {tries - 1, false}, {tries, true}} {
		n := newNode(t, c)
		_, l, err := kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		rec := taint.Record{ID: "f-1", NodeUID: string(n.UID), By: "test"}.EnterPhase(taint.PhaseArmed, "", time.Now())
		if err := writer(c).SetMark(t.Context(), l, rec); err != nil {
			t.Fatal(err)
		}
		told, err := ReleaseNode(t.Context(), &busy{c, tc.times}, n.Name, taint.DefaultKey, nil, true, time.Now)
		if (err != nil) != tc.fails {
			t.Errorf("changed %d times: got %q, error %v", tc.times, told, err)
		}
		if err != nil && !strings.Contains(err.Error(), "node "+n.Name+" has just changed: run the command again") {
			t.Errorf("changed %d times: got %v, want what to do", tc.times, err)
		}
		_, l, err = kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil || (l.Mark != nil) != tc.fails {
			t.Errorf("changed %d times: got mark %v, error %v", tc.times, l.Mark, err)
		}
	}
}

// A release does what it can: a pod that takes no annotation is spared in its small form, a pod that takes nothing is
// named, and the mark goes. A person without the right to spare pods gets an error that says so.
func TestReleaseGoesOn(t *testing.T) {
	c := cluster.Admin(t, shared)
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
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod, errOther)
			}
			return nil
		}},
		{name: "one pod that takes nothing", left: "etcdserver: request is too large", refuse: func(pod string) error {
			if pod == "bad" {
				return &apierrors.StatusError{
					ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request is too large"}}
			}
			return nil
		}},
		{name: "a webhook that refuses one", left: "denied the request", refuse: func(pod string) error {
			if pod == "bad" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod,
					errors.New("admission webhook denied the request"))
			}
			return nil
		}},
		{name: "no right", fails: true, refuse: func(pod string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod,
				errors.New(`User "kim" cannot patch resource "pods/status" in API group ""`))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, c)
			_, l, err := kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			rec := taint.Record{ID: "f-1", NodeUID: l.UID, By: "test",
				Since: time.Now()}.EnterPhase(taint.PhaseEvicting, "", time.Now())
			if err := writer(c).SetMark(t.Context(), l, rec); err != nil {
				t.Fatal(err)
			}
			bad, good := newPod(t, c, n.Name, full), newPod(t, c, n.Name)
			names := map[string]string{bad.Name: "bad", good.Name: "good"}
			out, err := ReleaseNode(t.Context(), refusing{c, func(pod string) error { return tc.refuse(names[pod]) }},
				n.Name, taint.DefaultKey, nil, true, time.Now)
			if (err != nil) != tc.fails {
				t.Fatalf("got %q, error %v, want an error: %v", out, err, tc.fails)
			}
			_, l, err = kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
			if err != nil || (l.Mark != nil) != tc.fails {
				t.Errorf("got mark %v, error %v", l.Mark, err)
			}
			if named := strings.Contains(out, bad.Name) && strings.Contains(out, tc.left); tc.left != "" && !named ||
				strings.Contains(out, good.Name) {
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
				if got := o.ResourceVersion != was; got != want ||
					got && taint.SparedBy(o) == "" && o.Status.Message != "spared" {
					t.Errorf("%s: got a new resourceVersion %v, annotations %d, message %q; want spared %v",
						names[o.Name], got, len(o.Annotations), o.Status.Message, want)
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

func (s refusingSub) Patch(ctx context.Context, o client.Object, p client.Patch,
	opts ...client.SubResourcePatchOption) error {
	if err := s.r.refuse(o.GetName()); err != nil {
		return err
	}
	return s.SubResourceClient.Patch(ctx, o, p, opts...)
}

// Distrust ends by its own node's release, or by that of a node that is the same machine.
func TestReleaseFromEitherNode(t *testing.T) {
	c := cluster.Admin(t, shared)
	bmc1 := taint.MachineRef{Provider: "racks", ID: "https://bmc1", SystemUUID: "11223344-5566-7788-99aa-bbccddeeff01"}
	bmc2 := taint.MachineRef{Provider: "racks", ID: "https://bmc2", SystemUUID: "11223344-5566-7788-99aa-bbccddeeff02"}
	lied := func() *corev1.Node {
		n := newNode(t, c)
		rec := taint.Record{ID: "f-1", NodeUID: string(n.UID), By: "test", Machine: &bmc2}.EnterPhase(taint.PhaseDone,
			taint.ResultNeverPoweredOff, time.Now())
		_, l, err := kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if err := writer(c).WriteRecord(t.Context(), l, rec); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pinned := func(pin string) *corev1.Node {
		n := newNode(t, c)
		_, l, err := kube.ReadNode(t.Context(), c, n.Name, taint.DefaultKey, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if err := writer(c).PinMachine(t.Context(), l, pin); err != nil {
			t.Fatal(err)
		}
		return n
	}
	holder, same, other := lied(), pinned(bmc2.Pin()), pinned(bmc1.Pin())
	distrusted := func(want string) {
		t.Helper()
		var nodes corev1.NodeList
		if err := c.List(t.Context(), &nodes); err != nil {
			t.Fatal(err)
		}
		var f fleet.Fleet
		for i := range nodes.Items {
			n := &nodes.Items[i]
			rec, err := taint.RecordOf(n)
			if err != nil {
				t.Fatal(err)
			}
			f.ApplyRecord(n.Name, n.ResourceVersion, rec, providers.Now())
		}
		if got := f.DistrustingNode(bmc2, "racks/bmc2", same.Name); got != want {
			t.Fatalf("the record that speaks against the machine is of %q, want %q", got, want)
		}
		if got := f.DistrustingNode(bmc1, "racks/bmc1", other.Name); got != "" {
			t.Fatalf("another machine is distrusted by the record of %q", got)
		}
	}
	release := func(n *corev1.Node, confirm bool) (string, error) {
		return ReleaseNode(t.Context(), c, n.Name, taint.DefaultKey, nil, confirm, time.Now)
	}
	distrusted(holder.Name)
	if told, err := release(other, true); !errors.Is(err, errNothingToRelease) {
		t.Fatalf("a node of another machine: %q, error %v", told, err)
	}
	if told, err := release(same, false); err != nil || !strings.Contains(told, "would release node "+holder.Name) ||
		!strings.Contains(told, same.Name) {
		t.Fatalf("without confirm: %q, error %v", told, err)
	}
	distrusted(holder.Name)
	if told, err := release(same, true); err != nil || !strings.Contains(told, "released node "+holder.Name) {
		t.Fatalf("from the other node: %q, error %v", told, err)
	}
	distrusted("")
	holder = lied()
	distrusted(holder.Name)
	if told, err := release(holder, true); err != nil {
		t.Fatalf("from the record's node: %q, error %v", told, err)
	}
	distrusted("")
}
