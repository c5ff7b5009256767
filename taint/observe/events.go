package observe

import (
	"context"
	"errors"
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
)

// Events sends Events that carry the time at which something happened. client-go's broadcaster queues them, retries
// them and counts repeats as a series, but it stamps the time at which it was called. So each Event carries its time in
// an annotation, which is removed before the API server sees it.
//
// A series keeps the time of its first Event. Its last observation is when the newest repeat was sent. Of two equal
// Events that are sent at the same instant, either may be the first. A changed text begins a new series (eventSeries).
type Events struct {
	broadcaster events.EventBroadcaster
	series      *eventSeries
	cancel      context.CancelFunc
}

// happenedAt is the annotation in which an Event carries its time. It never leaves the process.
const happenedAt = "forcefence.io/happened-at"

// eventsLinger is how long Events are still sent after ctx of Start ends: others report their last steps while they
// stop.
const eventsLinger = 10 * time.Second

// NewEvents returns Events whose reportingController is controller. It sends them from now on.
func NewEvents(rc *rest.Config, scheme *runtime.Scheme, controller string) (*Events, error) {
	client, err := typedv1.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("making client of Events: %w", err)
	}
	return newEvents(&events.EventSinkImpl{Interface: client}, scheme, controller)
}

func newEvents(sink events.EventSink, scheme *runtime.Scheme, controller string) (*Events, error) {
	broadcaster := events.NewBroadcaster(timedSink{sink})
	recorder, ok := broadcaster.NewRecorder(scheme, controller).(events.AnnotatedEventRecorder)
	if !ok {
		broadcaster.Shutdown()
		return nil, errors.New("making recorder of Events: it takes no annotations")
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("starting to send Events: %w", err)
	}
	series := &eventSeries{recorder: recorder, scheme: scheme, topics: map[topic]*sentTopic{}}
	return &Events{broadcaster, series, cancel}, nil
}

// Start blocks until ctx ends. Events are also sent before it, and for 10 s after it.
func (e *Events) Start(ctx context.Context) error {
	<-ctx.Done()
	time.AfterFunc(eventsLinger, func() {
		e.series.stop()
		e.broadcaster.Shutdown()
		e.cancel()
	})
	return nil
}

// NeedLeaderElection returns false: each process sends its own Events.
func (e *Events) NeedLeaderElection() bool { return false }

// RecorderAt returns a recorder of what happened at that time. A zero time, or one in the future, means now. It does
// not block.
func (e *Events) RecorderAt(at time.Time) events.EventRecorder {
	if now := time.Now(); at.IsZero() || at.After(now) {
		at = now
	}
	return timedRecorder{e.series, at}
}

// RecorderNow returns a recorder of what happens when it is called.
func (e *Events) RecorderNow() events.EventRecorder { return timedRecorder{e.series, time.Time{}} }

// timedRecorder records Events that carry one time. A zero time means the time of each call.
type timedRecorder struct {
	series *eventSeries
	at     time.Time
}

func (r timedRecorder) Eventf(
	regarding, related runtime.Object, eventtype, reason, action, note string, args ...any,
) {
	at := r.at
	if at.IsZero() {
		at = time.Now()
	}
	r.series.send(timedEvent{
		at: at, regarding: regarding, related: related, kind: eventtype, reason: reason, action: action,
		text: fmt.Sprintf(note, args...),
	})
}

// timedSink gives Events the time that they carry, and their action. It also sees an Event again that is retried, or
// that a series creates again after the API server deleted it: the broadcaster's copies keep the annotation, its
// patches do not name it.
type timedSink struct{ events.EventSink }

func (s timedSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if at, err := time.Parse(time.RFC3339Nano, event.Annotations[happenedAt]); err == nil {
		event = event.DeepCopy() // the broadcaster ends a series by the time that it stamped
		event.EventTime.Time, event.Action = at, actionOf(event.Action)
		delete(event.Annotations, happenedAt)
	}
	return s.EventSink.Create(ctx, event)
}
