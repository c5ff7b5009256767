package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/test/kit"
)

var fenceStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fenceRecord is the record of a fence, i seconds after its begin.
func fenceRecord(id int, p taint.Phase, res taint.Result, i int) taint.Record {
	return taint.Record{ID: fmt.Sprintf("f-%012x", id), NodeUID: "uid", BootID: "boot", Since: fenceStart, By: "pod-1",
		Device: "racks/7"}.
		WithEvidence(taint.Evidence{At: fenceStart, From: "racks/7", State: "Off", Raw: "Off"}).
		EnterPhase(p, res, fenceStart.Add(time.Duration(i)*time.Second))
}

// desk is FencingWriter over a client, at a time that the test sets.
type desk struct {
	*FencingWriter
	now     time.Time
	leading error
	log     strings.Builder
	reg     *prometheus.Registry
}

func newDesk(c client.Client, nodes ...client.Object) *desk {
	d := &desk{now: fenceStart, reg: prometheus.NewRegistry()}
	d.again(c, nodes...)
	return d
}

// again makes another process in place of this one.
func (d *desk) again(c client.Client, nodes ...client.Object) {
	d.reg = prometheus.NewRegistry()
	d.FencingWriter = NewFencingWriter(FencingWriterOptions{
		Client: c, Cache: fake.NewClientBuilder().WithObjects(nodes...).Build(),
		Log: slog.New(slog.NewTextHandler(&d.log, nil)), Metrics: NewMetrics(d.reg),
		Leading: func() error { return d.leading }, Retention: journal.Retention{Count: 100, Age: time.Hour},
		Now: func() time.Time { return d.now },
	})
}

// told tells of a fence of node n1.
func (d *desk) told(r taint.Record, change ...func(*journal.Update)) {
	t := journal.Update{Node: "n1", At: d.now, Record: r, Why: "NotReady"}
	for _, f := range change {
		f(&t)
	}
	d.AddUpdate(t)
}

// writeAll writes what is due, after the spacing.
func (d *desk) writeAll(t *testing.T) (ended int) {
	t.Helper()
	d.now = d.now.Add(missingRetry)
	for range 100 {
		name, _ := d.nextDue(d.now)
		if name == "" {
			return ended
		}
		if d.writeFencing(t.Context(), name) {
			ended++
		}
	}
	t.Fatal("it never ends")
	return 0
}

// definition is the CustomResourceDefinition of deploy.
func definition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("../../deploy/helm/forcefence/files/forcefence.io_fencings.yaml")
	kit.Must(t, err)
	var u unstructured.Unstructured
	kit.Must(t, yaml.Unmarshal(data, &u.Object))
	return &u
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// installed waits until the API server serves Fencings, or no more.
func installed(t *testing.T, c dynamic.Interface, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		_, err := c.Resource(api.Resource).List(ctx, metav1.ListOptions{})
		if want && err == nil || !want && apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("fencings served: want %t, got %v", want, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestRecordsOnServer takes FencingWriter through all that an API server may do to them.
func TestRecordsOnServer(t *testing.T) {
	if shared == nil {
		t.Skip("needs an API server")
	}
	ctx := t.Context()
	server, err := dynamic.NewForConfig(shared.RESTConfig())
	kit.Must(t, err)
	fencings := server.Resource(api.Resource)
	c, err := NewFencingClient(shared.RESTConfig())
	kit.Must(t, err)
	d := newDesk(c)
	get := func(name string) *api.Fencing {
		t.Helper()
		var f api.Fencing
		kit.Must(t, c.Get(ctx, client.ObjectKey{Name: name}, &f))
		return &f
	}
	const one = "n1.f-000000000001"
	pods := []api.Pod{{Namespace: "shop", Name: "db-0", UID: "u0"}, {Namespace: "shop", Name: "db-1", UID: "u1"}}

	// The resource is not known: that is told once, the fence is kept, and nothing else is sent for a while.
	installed(t, server, false)
	d.told(fenceRecord(1, taint.PhaseArmed, "", 0))
	for range 3 {
		d.writeAll(t)
		if err := d.sweepFencings(ctx, d.now); err != nil {
			t.Errorf("sweep without the resource: %v", err)
		}
	}
	if n := strings.Count(d.log.String(), "level=WARN"); n != 1 ||
		!strings.Contains(d.log.String(), "fencings.forcefence.io") {
		t.Errorf("log: got %d warnings, want one about the resource:\n%s", n, d.log.String())
	}
	if name, next := d.nextDue(d.now); name != "" || next.Before(d.now.Add(missingRetry/2)) || d.mayAsk(d.now) {
		t.Errorf("due: got %q, next %s, want nothing for a while", name, next)
	}

	// It comes: what was kept is written.
	crd := definition(t)
	// as a newer version's would have more fields
	for _, part := range [][]string{{"status"}, {"status", "properties", "timeline", "items"}} {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		kit.Must(t, err)
		path := append([]string{"schema", "openAPIV3Schema", "properties"}, part...)
		kit.Must(t, unstructured.SetNestedField(versions[0].(map[string]any), true,
			append(path, "x-kubernetes-preserve-unknown-fields")...))
		kit.Must(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	}
	_, err = server.Resource(definitions).Create(ctx, crd, metav1.CreateOptions{})
	kit.Must(t, err)
	t.Cleanup(func() {
		kit.Must(t, server.Resource(definitions).Delete(context.Background(), crd.GetName(), metav1.DeleteOptions{}))
	})
	installed(t, server, true)
	d.writeAll(t)
	if s := get(one).Status; s.Phase != "Armed" || len(s.Timeline) != 1 || len(s.Evidence) != 1 ||
		len(s.Conditions) != 2 {
		t.Errorf("got %+v, want what was told before the resource came", s)
	}
	if raw, err := fencings.Get(ctx, one, metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if n, ok, err := unstructured.NestedInt64(raw.Object, "status", "pods", "ended"); n != 0 || !ok ||
		err != nil {
		t.Errorf("pods ended: got %d, there: %t (%v), want 0, which a table shows", n, ok, err)
	}
	if !strings.Contains(d.log.String(), "level=INFO") {
		t.Errorf("log: got\n%s\nwant that fences are recorded now", d.log.String())
	}

	// A newer version's fields stay, in the object and in the items of its lists.
	_, err = fencings.Patch(ctx, one, types.MergePatchType,
		[]byte(`{"status":{"novel":"kept","timeline":[{"phase":"Armed","at":"2026-03-01T12:00:00.000000Z",`+
			`"novel":7}]}}`),
		metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	ended := api.Step{Step: api.StepEndPods, Began: metav1.NewMicroTime(fenceStart.Add(600123 * time.Microsecond)),
		Objects: 2}
	ended.Ended = metav1.NewMicroTime(ended.Began.Add(200 * time.Millisecond))
	d.told(fenceRecord(1, taint.PhaseEvicting, "", 1), func(x *journal.Update) {
		x.Ended, x.Attached, x.Step = pods, &[]string{"pv-1"}, &ended
	})
	d.writeAll(t)
	if diff := cmp.Diff([]api.Step{ended}, get(one).Status.Steps); diff != "" {
		t.Errorf("steps: -want +got:\n%s", diff)
	}
	raw, err := fencings.Get(ctx, one, metav1.GetOptions{})
	kit.Must(t, err)
	novel, _, _ := unstructured.NestedString(raw.Object, "status", "novel")
	timeline, _, _ := unstructured.NestedSlice(raw.Object, "status", "timeline")
	if len(timeline) != 2 || novel != "kept" || timeline[0].(map[string]any)["novel"] != int64(7) {
		t.Errorf("a newer version's fields: got %q, %v", novel, timeline)
	}

	// Edited by hand: the next write says what is so. Who was fenced cannot be edited.
	_, err = fencings.Patch(ctx, one, types.MergePatchType,
		[]byte(`{"status":{"phase":"Done","result":"Evicted","pods":{"ended":99,"names":null}}}`),
		metav1.PatchOptions{}, "status")
	kit.Must(t, err)
	if _, err = fencings.Patch(ctx, one, types.MergePatchType, []byte(`{"spec":{"node":"n9"}}`),
		metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("editing the spec: got %v, want it refused", err)
	}
	d.told(fenceRecord(1, taint.PhaseEvicting, "", 1), func(x *journal.Update) { x.Attached = &[]string{} })
	d.writeAll(t)
	if s := get(one).Status; s.Phase != "Evicting" || s.Result != "" || s.Pods.Ended != 2 || len(s.Pods.Names) != 2 ||
		s.Volumes.Detached != 1 || len(s.Volumes.Left) != 0 {
		t.Errorf("after an edit by hand: got %+v, want what was told", s)
	}

	// Another process goes on, and the object is deleted by hand before it writes: what both know is there but for what
	// only the first knew.
	d.again(c)
	kit.Must(t, d.sweepFencings(ctx, d.now))
	kit.Must(t, fencings.Delete(ctx, one, metav1.DeleteOptions{}))
	d.told(fenceRecord(1, taint.PhaseDone, taint.ResultEvicted, 8))
	if ended := d.writeAll(t); ended != 1 || len(d.fences) != 0 {
		t.Errorf("got %d ended and %d in memory, want 1 and 0", ended, len(d.fences))
	}
	if s := get(one).Status; s.Phase != "Done" || s.Result != "Evicted" || s.Pods.Ended != 2 ||
		s.Volumes.Detached != 1 || s.Duration != "8.0s" || len(s.Timeline) != 3 {
		t.Errorf("written anew: got %+v, want all of it", s)
	}

	// What is over is not told again by a look at the Node.
	before := get(one)
	d.told(fenceRecord(1, taint.PhaseDone, taint.ResultEvicted, 8), func(x *journal.Update) { x.OnlyRead = true })
	if d.writeAll(t); len(d.fences) != 0 {
		t.Errorf("an old record: got %d in memory, want 0", len(d.fences))
	}
	// A write that changes nothing is none.
	d.told(fenceRecord(1, taint.PhaseDone, taint.ResultEvicted, 8))
	d.writeAll(t)
	if diff := cmp.Diff(before, get(one)); diff != "" {
		t.Errorf("told again: -before +after:\n%s", diff)
	}

	// Others end while nobody leads: by their Nodes' records, by a Node that is gone, by a Node that tells of another
	// fence.
	node := func(name string, r taint.Record) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid",
				Annotations: map[string]string{taint.RecordAnnotation: r.Encode()}}}
	}
	for i, name := range []string{"n2", "n3", "n4", "n5"} {
		d.told(fenceRecord(i+2, taint.PhaseEvicting, "", 1), func(x *journal.Update) { x.Node = name })
	}
	d.writeAll(t)
	d.again(c, node("n2", fenceRecord(2, taint.PhaseDone, taint.ResultReturned, 9)),
		node("n4", fenceRecord(77, taint.PhaseArmed, "", 9)),
		node("n5", fenceRecord(5, taint.PhaseEvicting, "", 1)))
	d.leading = errStale
	d.told(fenceRecord(9, taint.PhaseArmed, "", 0), func(x *journal.Update) { x.Node = "n9" })
	d.now = d.now.Add(time.Minute)
	if name, _ := d.nextDue(d.now); name != "n9.f-000000000009" || d.writeFencing(ctx, name) {
		t.Errorf("due: got %q", name)
	}
	if err := c.Get(ctx, client.ObjectKey{Name: "n9.f-000000000009"}, &api.Fencing{}); !apierrors.IsNotFound(err) {
		t.Errorf("written by one that does not lead: got %v", err)
	}
	d.leading = nil
	kit.Must(t, d.sweepFencings(ctx, d.now))
	d.checkOpenFences(ctx, d.now)
	d.now = d.now.Add(lostAfter + time.Second)
	d.checkOpenFences(ctx, d.now)
	d.writeAll(t)
	for name, want := range map[string]string{
		"n2.f-000000000002": "Returned", "n3.f-000000000003": "NodeGone", "n4.f-000000000004": "Unknown",
		"n5.f-000000000005": ""} {
		if got := get(name).Status.Result; got != want {
			t.Errorf("%s: got result %q, want %q", name, got, want)
		}
	}

	// Kept by count, and by age. An open one is never deleted.
	names := func() (out []string) {
		t.Helper()
		list, err := fencings.List(ctx, metav1.ListOptions{})
		kit.Must(t, err)
		for _, o := range list.Items {
			out = append(out, o.GetName())
		}
		slices.Sort(out)
		return out
	}
	// The ends, in order: fence 1 after 8 s, fence 2 after 9 s, 3 and 4 when they were given up, together; 9 is gone
	// with its Node, too.
	d.Retention = journal.Retention{Count: 100, Age: d.now.Sub(fenceStart) - 8500*time.Millisecond}
	kit.Must(t, d.sweepFencings(ctx, d.now))
	if got := names(); slices.Contains(got, one) || !slices.Contains(got, "n2.f-000000000002") {
		t.Errorf("kept by age: got %v, want all but the oldest", got)
	}
	d.Retention = journal.Retention{Count: 1, Age: 100 * time.Hour}
	kit.Must(t, d.sweepFencings(ctx, d.now))
	if got := names(); len(got) != 2 || !slices.Contains(got, "n5.f-000000000005") {
		t.Errorf("kept by count: got %v, want the open one and one more", got)
	}
	if got := d.log.String(); strings.Contains(got, "panic") {
		t.Error(got)
	}
}

// TestRecordsHang: the API server takes no write. Who tells is not held up, each request ends after 5 s, nothing is
// sent at once again, and what is too much is dropped and counted: the oldest first.
func TestRecordsHang(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the next two
		var asked []string
		var under int
		var hangs atomic.Bool
		hangs.Store(true)
		slow := interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if !hangs.Load() {
					return c.Get(ctx, key, o, opts...)
				}
				mu.Lock()
				asked = append(asked, key.Name)
				if under++; under > 1 {
					t.Error("two requests at the same time")
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				under--
				mu.Unlock()
				return context.Cause(ctx)
			},
			List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
				if !hangs.Load() {
					return c.List(ctx, o, opts...)
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}
		store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build()
		d := newDesk(interceptor.NewClient(store, slow))
		d.FencingWriter.Now, d.Retention.Count = time.Now, 2*maxTrackedFences
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- d.Start(ctx) }()

		begin := time.Now()
		for i := range maxTrackedFences + 10 {
			d.told(fenceRecord(i, taint.PhaseArmed, "", 0),
				func(x *journal.Update) { x.At = begin.Add(time.Duration(i) * time.Millisecond) })
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("telling took %s, want no time", took)
		}
		d.mu.Lock()
		kept, first := len(d.fences), d.fences["n1.f-000000000009"] != nil
		d.mu.Unlock()
		if kept != maxTrackedFences || first {
			t.Errorf("got %d in memory, the tenth among them: %t; want %d without the oldest ten", kept, first,
				maxTrackedFences)
		}
		if n := testutil.ToFloat64(d.Metrics.fencingWrites.WithLabelValues("dropped")); n != 10 {
			t.Errorf("dropped: got %v, want 10", n)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		seen := slices.Clone(asked)
		mu.Unlock()
		if n := len(seen); n < 10 || n > 13 {
			t.Errorf("requests in a minute: got %d, want one in 5 s", n)
		}
		if slices.Sort(seen); len(slices.Compact(slices.Clone(seen))) != len(seen) {
			t.Errorf("requests: got %v, want another fence each time", seen)
		}
		hangs.Store(false)
		time.Sleep(3 * time.Minute)
		var list api.FencingList
		kit.Must(t, store.List(ctx, &list))
		if len(list.Items) != maxTrackedFences {
			t.Errorf("after the API server is back: got %d objects, want %d", len(list.Items), maxTrackedFences)
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("got %v, want no error", err)
		}
	})
}

// TestUnwrittenFencesAreKept: if there are too many fences, one that is written goes first, old or new.
func TestUnwrittenFencesAreKept(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	d := newDesk(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build())
	at := func(i int) func(*journal.Update) {
		return func(x *journal.Update) { x.At = fenceStart.Add(time.Duration(i) * time.Millisecond) }
	}
	name := func(i int) string { return "n1." + fenceRecord(i, taint.PhaseArmed, "", 0).ID }
	for i := range maxTrackedFences {
		d.told(fenceRecord(i, taint.PhaseArmed, "", 0), at(i))
	}
	const written = maxTrackedFences - 1
	d.writeFencing(t.Context(), name(written))
	d.told(fenceRecord(maxTrackedFences, taint.PhaseArmed, "", 0), at(maxTrackedFences))
	for i := range maxTrackedFences + 1 {
		if kept := d.fences[name(i)] != nil; kept == (i == written) {
			t.Errorf("fence %d, which is written: %v; got it kept: %v", i, i == written, kept)
		}
	}
	if n := testutil.ToFloat64(d.Metrics.fencingWrites.WithLabelValues("dropped")); n != 0 {
		t.Errorf("dropped: got %v unwritten ones, want 0", n)
	}
}

// TestEndDuringAWrite: a fence ends while its object is being written. The end is written next, with what the object
// held.
func TestEndDuringAWrite(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	const one = "n1.f-000000000001"
	for _, there := range []bool{false, true} { // another process wrote the object before
		var meanwhile func()
		store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build()
		d := newDesk(interceptor.NewClient(store, interceptor.Funcs{SubResourcePatch: func(ctx context.Context,
			c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if do := meanwhile; do != nil {
				meanwhile = nil
				do()
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}))
		if there {
			d.told(fenceRecord(1, taint.PhaseArmed, "", 0),
				func(x *journal.Update) { x.Ended = []api.Pod{{Namespace: "shop", Name: "db-0", UID: "u0"}} })
			d.writeAll(t)
			d.again(d.Client)
		}
		d.told(fenceRecord(1, taint.PhaseEvicting, "", 1))
		meanwhile = func() { d.told(fenceRecord(1, taint.PhaseDone, taint.ResultEvicted, 2)) }
		if ended := d.writeAll(t); ended != 0 || len(d.fences) != 1 {
			t.Errorf("written before: %v: got %d ended and %d in memory, want the end to be unwritten", there, ended,
				len(d.fences))
		}
		if ended := d.writeAll(t); ended != 1 || len(d.fences) != 0 {
			t.Errorf("written before: %v: got %d ended and %d in memory, want the end to be written", there, ended,
				len(d.fences))
		}
		var f api.Fencing
		kit.Must(t, store.Get(t.Context(), client.ObjectKey{Name: one}, &f))
		if want := map[bool]int32{true: 1}[there]; f.Status.Phase != "Done" || f.Status.Result != "Evicted" ||
			f.Status.Pods.Ended != want {
			t.Errorf("written before: %v: got %+v, want the end and %d pods", there, f.Status, want)
		}
	}
}

// TestLostFencesEnd: a fence without updates ends once its Node is gone, or has no such fence any more. For a minute
// the cache may be behind, and what cannot be read ends nothing.
func TestLostFencesEnd(t *testing.T) {
	node := func(name, record string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid",
			Annotations: map[string]string{taint.RecordAnnotation: record}}}
	}
	goes := fenceRecord(1, taint.PhaseEvicting, "", 1)
	over, other := fenceRecord(1, taint.PhaseDone, taint.ResultReturned, 1), fenceRecord(2, taint.PhaseArmed, "", 1)
	for name, tc := range map[string]struct {
		node          *corev1.Node // nil: there is none
		fails         bool         // the cache
		early, result string       // at once, and after a minute
	}{
		"the Node is gone":                 {result: "NodeGone"},
		"it has another fence":             {node: node("n1", other.Encode()), result: "Unknown"},
		"its record says the end":          {node: node("n1", over.Encode()), early: "Returned", result: "Returned"},
		"its record says that it goes on":  {node: node("n1", goes.Encode())},
		"its record does not parse":        {node: node("n1", "{")},
		"the cache cannot be read for now": {fails: true},
	} {
		var nodes []client.Object
		if tc.node != nil {
			nodes = append(nodes, tc.node)
		}
		d := newDesk(fake.NewClientBuilder().Build(), nodes...)
		if tc.fails {
			d.Cache = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object,
					...client.GetOption) error {
					return errors.New("not in sync")
				}})
		}
		d.told(goes)
		for after, want := range map[time.Duration]string{0: tc.early, lostAfter: tc.early, lostAfter + 1: tc.result} {
			copied := *d.fences["n1."+goes.ID]
			d.checkOpenFences(t.Context(), fenceStart.Add(after))
			if got := d.fences["n1."+goes.ID].entry.Object.Status.Result; got != want {
				t.Errorf("%s, after %s: got result %q, want %q", name, after, got, want)
			}
			d.fences["n1."+goes.ID] = &copied
		}
	}
}

// TestSweepDeletesByTheLeader: the leader alone deletes expired objects, each by its UID: an object that was made again
// under its name stays.
func TestSweepDeletesByTheLeader(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	var deleted []types.UID
	store := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build()
	d := newDesk(interceptor.NewClient(store, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch,
		o client.Object, opts ...client.DeleteOption) error {
		var by client.DeleteOptions
		if by.ApplyOptions(opts); by.Preconditions == nil || by.Preconditions.UID == nil {
			t.Errorf("%s is deleted by its name alone", o.GetName())
			return nil
		}
		deleted = append(deleted, *by.Preconditions.UID)
		return apierrors.NewConflict(schema.GroupResource{Resource: "fencings"}, o.GetName(), errors.New("another UID"))
	}}))
	old := &api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: "n1.f-000000000001", UID: "old"}}
	ended := metav1.NewMicroTime(fenceStart)
	old.Status.Result, old.Status.Phase, old.Status.FinishedAt = "Evicted", "Done", &ended
	kit.Must(t, store.Create(t.Context(), old))
	d.now = fenceStart.Add(2 * d.Retention.Age)
	d.leading = errStale
	if err := d.sweepFencings(t.Context(), d.now); !errors.Is(err, errStale) || len(deleted) != 0 {
		t.Errorf("not the leader: got %v, deleted %q; want none", err, deleted)
	}
	d.leading = nil
	if err := d.sweepFencings(t.Context(), d.now); err != nil || !slices.Equal(deleted, []types.UID{"old"}) {
		t.Errorf("the leader: got %v, deleted %q; want the old one, and that it is another by now is no error", err,
			deleted)
	}
}

// TestRecordsSpacing: an open fence is written once a second at most, its end at once.
func TestRecordsSpacing(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	d := newDesk(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build())
	due := func() string { name, _ := d.nextDue(d.now); return name }
	const one = "n1.f-000000000001"
	if d.writeFencing(t.Context(), one) {
		t.Error("dropped since it was due: got an end")
	}
	d.told(fenceRecord(1, taint.PhaseArmed, "", 0))
	if got := due(); got != one {
		t.Fatalf("begun: got %q due, want it", got)
	}
	d.writeFencing(t.Context(), one)
	d.told(fenceRecord(1, taint.PhaseEvicting, "", 1))
	if got := due(); got != "" {
		t.Errorf("at once: got %q due, want none", got)
	}
	d.now = d.now.Add(fencingSpacing)
	if got := due(); got != one {
		t.Errorf("a second later: got %q due, want it", got)
	}
	d.writeFencing(t.Context(), one)
	d.told(fenceRecord(1, taint.PhaseDone, taint.ResultEvicted, 2))
	if got := due(); got != one {
		t.Errorf("ended: got %q due, want it at once", got)
	}
	if !d.writeFencing(t.Context(), one) {
		t.Error("ended: got no end")
	}
}

// TestRecordsRefused: a refusal is tried again, later and later, told at the first and the seventh time, and holds up
// no other fence.
func TestRecordsRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	kit.Must(t, api.AddToScheme(scheme))
	refused := errors.New("admission says no")
	d := newDesk(
		interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&api.Fencing{}).Build(),
			interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object,
					opts ...client.CreateOption) error {
					if o.GetName() == "n1.f-000000000001" {
						return refused
					}
					return c.Create(ctx, o, opts...)
				},
			}))
	d.told(fenceRecord(1, taint.PhaseArmed, "", 0))
	d.told(fenceRecord(2, taint.PhaseArmed, "", 0))
	var waits []time.Duration
	for range 8 {
		name, _ := d.nextDue(d.now)
		for name != "" {
			d.writeFencing(t.Context(), name)
			name, _ = d.nextDue(d.now)
		}
		_, next := d.nextDue(d.now)
		waits = append(waits, next.Sub(d.now))
		d.now = next
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(waits, want) {
		t.Errorf("waits: got %v, want %v", waits, want)
	}
	if n := strings.Count(d.log.String(), refused.Error()); n != 2 {
		t.Errorf("log: got it %d times, want 2:\n%s", n, d.log.String())
	}
	if f, w := testutil.ToFloat64(d.Metrics.fencingWrites.WithLabelValues("failed")), testutil.ToFloat64(
		d.Metrics.fencingWrites.WithLabelValues("written")); f != 8 || w != 1 {
		t.Errorf("metric: got %v failed and %v written, want 8 and 1", f, w)
	}
}

func TestKeepItems(t *testing.T) {
	raw := map[string]any{"list": []any{map[string]any{"a": "1", "new": "x"}, map[string]any{"a": "2", "new": "y"}},
		"other": "z"}
	patch := map[string]any{"list": []any{map[string]any{"a": "2"}, map[string]any{"a": "3"}}}
	keepItems(raw, patch)
	got, err := json.Marshal(patch)
	kit.Must(t, err)
	if want := `{"list":[{"a":"2","new":"y"},{"a":"3"}]}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
