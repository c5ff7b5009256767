package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var (
	_ manager.Runnable               = (*Events)(nil)
	_ manager.LeaderElectionRunnable = (*Events)(nil)
)

func startEvents(t *testing.T, rc *rest.Config) *Events {
	t.Helper()
	e, err := NewEvents(rc, clientgoscheme.Scheme, "forcefence")
	kit.Must(t, err)
	t.Cleanup(func() {
		e.broadcaster.Shutdown()
		e.cancel()
	})
	return e
}

// eventNode is a Node that no API server has: an Event's object need not exist.
func eventNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
}

// awaitEvents waits for n Events about the object of that name, and returns them by EventTime.
func awaitEvents(t *testing.T, c client.Client, namespace, name string, n int) []eventsv1.Event {
	t.Helper()
	var found []eventsv1.Event
	kit.Until(t, "Events about "+name, func() bool {
		var list eventsv1.EventList
		kit.Must(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
		found = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name != name })
		return len(found) >= n
	})
	slices.SortFunc(found, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	if len(found) != n {
		t.Errorf("%s: got %d Events, want %d", name, len(found), n)
	}
	return found
}

// TestEventsCarryTheirTime: what the API server keeps of an Event says when it happened, whenever it was sent.
func TestEventsCarryTheirTime(t *testing.T) {
	t.Parallel()
	c := cluster.Admin(t, shared)
	sender := startEvents(t, shared.RESTConfig())
	node := eventNode("events-times")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "events-pod", UID: "uid-pod"}}
	began := time.Now()
	at := func(ago time.Duration) time.Time {
		return began.Add(-ago).Truncate(time.Microsecond).Add(789 * time.Nanosecond)
	}

	sender.RecorderAt(at(time.Second)).Eventf(node, nil, "Normal", "DeletingPods", "Evict", "deletes %d pods", 3)
	sender.RecorderAt(at(time.Hour)).Eventf(node, nil, "Warning", "EndingPods", "Evict", "ends pods")
	sender.RecorderAt(at(2*time.Second)).Eventf(node, pod, "Normal", "ClearingVolumes", "Evict", "clears volumes")
	sender.RecorderAt(at(3*time.Second)).Eventf(pod, node, "Normal", "Ended", "Evict", "ended")

	got := awaitEvents(t, c, metav1.NamespaceDefault, node.Name, 3)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	related := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
	}
	event := func(ago time.Duration, kind, reason, note string, to *corev1.ObjectReference) eventsv1.Event {
		return eventsv1.Event{
			EventTime: metav1.NewMicroTime(at(ago).Truncate(time.Microsecond)), ReportingController: "forcefence",
			Action: "Evict", Reason: reason, Regarding: about, Related: to, Note: note, Type: kind,
		}
	}
	want := []eventsv1.Event{
		event(time.Hour, "Warning", "EndingPods", "ends pods", nil),
		event(2*time.Second, "Normal", "ClearingVolumes", "clears volumes", &related),
		event(time.Second, "Normal", "DeletingPods", "deletes 3 pods", nil),
	}
	same := cmpopts.IgnoreFields(eventsv1.Event{}, "TypeMeta", "ObjectMeta", "ReportingInstance")
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, e := range append(got, awaitEvents(t, c, pod.Namespace, pod.Name, 1)...) {
		if len(e.Annotations) != 0 {
			t.Errorf("%s: got annotations %v, want none", e.Reason, e.Annotations)
		}
	}
}

// TestEventsOfNow: an Event without a time is of now, and none is of the future.
func TestEventsOfNow(t *testing.T) {
	t.Parallel()
	c := cluster.Admin(t, shared)
	sender := startEvents(t, shared.RESTConfig())
	began := time.Now().Truncate(time.Microsecond)
	for name, at := range map[string]time.Time{"events-zero": {}, "events-future": began.Add(time.Hour)} {
		if at := sender.RecorderAt(at).(timedRecorder).at; at.Before(began) || at.After(time.Now()) {
			t.Fatalf("%s: got a recorder of %v, want a time since %v", name, at, began)
		}
		sender.RecorderAt(at).Eventf(eventNode(name), nil, "Normal", "Told", "Tell", "told")
		got := awaitEvents(t, c, metav1.NamespaceDefault, name, 1)[0].EventTime.Time
		if got.Before(began) || got.After(time.Now()) {
			t.Errorf("%s: got %v, want a time since %v", name, got, began)
		}
	}
}

// TestEventsOfASeries: a repeat makes a series of the first Event, which keeps its time, even where the API server
// forgot it.
func TestEventsOfASeries(t *testing.T) {
	t.Parallel()
	c := cluster.Admin(t, shared)
	sender := startEvents(t, shared.RESTConfig())
	first := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	for name, forget := range map[string]bool{"events-series": false, "events-forgotten": true} {
		node := eventNode(name)
		tell := func(at time.Time) { sender.RecorderAt(at).Eventf(node, nil, "Normal", "AskingMachine", "Ask", "asks") }
		tell(first)
		got := awaitEvents(t, c, metav1.NamespaceDefault, name, 1)
		if forget {
			kit.Must(t, c.Delete(t.Context(), &got[0]))
		}
		tell(first.Add(time.Minute))
		kit.Until(t, "a series", func() bool {
			var list eventsv1.EventList
			kit.Must(t, c.List(t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
			got = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name != name })
			return len(got) == 1 && got[0].Series != nil
		})
		series := got[0].Series
		if e := got[0]; !e.EventTime.Time.Equal(first) || series.Count != 2 ||
			series.LastObservedTime.Time.Before(first.Add(time.Minute)) ||
			series.LastObservedTime.After(time.Now()) || len(e.Annotations) != 0 {
			t.Errorf("%s: got %v, %+v, annotations %v, want a series of 2 since %v", name, e.EventTime, series,
				e.Annotations, first)
		}
	}
}

// TestEventsWhileAPIServerIsAway: an Event that the API server did not get at first keeps its time.
func TestEventsWhileAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := cluster.Admin(t, shared)
	rc := shared.RESTConfig()
	var away atomic.Bool
	var refused atomic.Int32
	away.Store(true)
	rc.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			refused.Add(1)
			return nil, errors.New("refused by the test")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	sender := startEvents(t, rc)
	at := time.Now().Add(-time.Minute).Truncate(time.Microsecond)
	node := eventNode("events-away")
	sender.RecorderAt(at).Eventf(node, nil, "Normal", "Told", "Tell", "told")
	kit.Until(t, "the first try", func() bool { return refused.Load() > 0 })
	away.Store(false)
	if got := awaitEvents(t, c, metav1.NamespaceDefault, node.Name, 1)[0].EventTime.Time; !got.Equal(at) {
		t.Errorf("got %v, want %v", got, at)
	}
}

// createdEvents keeps what it is to create.
type createdEvents struct {
	events.EventSink
	mu  sync.Mutex // guards what follows
	all []*eventsv1.Event
}

func (c *createdEvents) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, e)
	return e, nil
}

func (c *createdEvents) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return e, nil
}

// notes returns the texts that were created since the last call.
func (c *createdEvents) notes() (notes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.all {
		notes = append(notes, e.Note)
	}
	c.all = nil
	return notes
}

// playEvents runs a story with Events that are sent to a sink.
func playEvents(t *testing.T, story func(t *testing.T, e *Events, sink *createdEvents)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var sink createdEvents
		e, err := newEvents(&sink, clientgoscheme.Scheme, "forcefence")
		kit.Must(t, err)
		story(t, e, &sink)
		e.series.stop()
		e.broadcaster.Shutdown()
		e.cancel()
	})
}

// TestChangedTextIsReadable: a changed text begins a new series, also one that was sent before. A repeat does not.
func TestChangedTextIsReadable(t *testing.T) {
	playEvents(t, func(t *testing.T, e *Events, sink *createdEvents) {
		for _, text := range []string{"first", "first", "second", "second", "first", "first"} {
			e.RecorderNow().Eventf(eventNode("n1"), nil, "Warning", "FenceNeedsPerson", "Alert", "%s", text)
			synctest.Wait()
		}
		for _, e := range sink.all {
			if e.Action != "Alert" {
				t.Errorf("got action %q, want Alert", e.Action)
			}
		}
		if got, want := sink.notes(), []string{"first", "second", "first"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestChangedTextsAreBounded: a source of ever new texts gets 10 Events at first, and 2 a minute from then on. The
// newest text is written as soon as there is room. Other objects and reasons have bounds of their own.
func TestChangedTextsAreBounded(t *testing.T) {
	playEvents(t, func(t *testing.T, e *Events, sink *createdEvents) {
		send := func(node, reason, text string) {
			e.RecorderNow().Eventf(eventNode(node), nil, "Warning", reason, "Alert", "%s", text)
			synctest.Wait()
		}
		const every = 1100 * time.Millisecond // never at the moment at which there is room
		flood := func(texts int) {
			for i := range texts {
				send("n1", "Hostile", fmt.Sprintf("text %d", i))
				time.Sleep(every)
			}
		}
		began := time.Now()
		flood(100)
		want := []string{"text 27", "text 54", "text 81"}
		for i := range 10 {
			want = slices.Insert(want, i, fmt.Sprintf("text %d", i))
		}
		if got := sink.notes(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		send("n2", "Hostile", "another object")
		send("n1", "Other", "another reason")
		if got, want := sink.notes(), []string{"another object", "another reason"}; !slices.Equal(got, want) {
			t.Errorf("got %q at once, want %q", got, want)
		}
		time.Sleep(seriesEvery)
		synctest.Wait()
		if len(sink.all) != 1 || sink.all[0].Note != "text 99" ||
			!sink.all[0].EventTime.Time.Equal(began.Add(99*every)) {
			t.Errorf("got %v, want the newest text with its time", sink.all)
		}
		sink.notes()

		send("n1", "Hostile", "waits")
		send("n1", "Hostile", "text 99")
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := sink.notes(); got != nil {
			t.Errorf("got %q, want nothing older than the newest text", got)
		}
		flood(11)
		if got := sink.notes(); len(got) != seriesAtFirst {
			t.Errorf("got %q after an hour, want %d", got, seriesAtFirst)
		}
		send("n3", "Last", "forgets the others")
		time.Sleep(2 * seriesFor)
		send("n3", "Last", "forgets itself")
		if got := len(e.series.topics); got != 1 {
			t.Errorf("got %d topics in memory, want 1", got)
		}
	})
}

// TestEventsWhileStopping: what is told before Start is sent, and so is what others tell while they stop. In the end
// nothing runs any more, and who tells of something is not harmed.
func TestEventsWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink createdEvents
		e, err := newEvents(&sink, clientgoscheme.Scheme, "forcefence")
		kit.Must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		tell := func(name string) {
			e.RecorderAt(time.Time{}).Eventf(eventNode(name), nil, "Normal", "Told", "Tell", "told")
			synctest.Wait()
		}
		tell("before")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			kit.Must(t, e.Start(ctx))
		}()
		tell("running")
		cancel()
		<-ended
		time.Sleep(eventsLinger / 2)
		tell("stopping")
		time.Sleep(eventsLinger)
		tell("late")
		var got []string
		for _, event := range sink.all {
			got = append(got, event.Regarding.Name)
		}
		if want := []string{"before", "running", "stopping"}; !slices.Equal(got, want) {
			t.Errorf("got Events about %v, want %v", got, want)
		}
	})
}

// discardedEvents takes Events and keeps none.
type discardedEvents struct{ events.AnnotatedEventRecorder }

func (discardedEvents) AnnotatedEventf(
	_, _ runtime.Object, _ map[string]string, _, _, _, _ string, _ ...any,
) {
}

// What is remembered of the series of one object and reason is bounded: others choose the objects that they name.
func TestSeriesOfATopicAreBounded(t *testing.T) {
	s, topic := &eventSeries{recorder: discardedEvents{}}, &sentTopic{newest: map[seriesKey]sentSeries{}}
	now := time.Now()
	for i := range 3 * maxSeries {
		topic.waiting = &timedEvent{key: seriesKey{action: fmt.Sprint(i)}}
		s.beginSeries(topic, now.Add(time.Duration(i)*seriesEvery))
		if n := len(topic.newest); topic.waiting != nil || n > maxSeries {
			t.Fatalf("after %d series: got %d remembered, want %d at most", i+1, n, maxSeries)
		}
	}
}
