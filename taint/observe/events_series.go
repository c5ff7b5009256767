package observe

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
)

// At most seriesAtFirst series begin at once about one object for one reason, and one more each seriesEvery. Others can
// write parts of a text, and must not flood the API server with Events.
const (
	seriesAtFirst = 10
	seriesEvery   = 30 * time.Second
)

// seriesFor is how long the series of an object and reason are remembered after the last Event. client-go forgets them
// earlier, and the bound is unused again.
const seriesFor = 15 * time.Minute

// maxSeries is how many series of one object and reason are remembered.
const maxSeries = 16

// seriesMark separates an Event's action from the number of its series. It never leaves the process.
const seriesMark = "\n"

// eventSeries begins a new series with each changed text. client-go's broadcaster adds an Event to a series by type,
// reason, action and objects, and a series keeps its first text. So the action of each Event carries the number of its
// series, which is removed before the API server sees it. When the bound is used up, the newest text waits for room.
type eventSeries struct {
	recorder events.AnnotatedEventRecorder
	scheme   *runtime.Scheme

	mu      sync.Mutex // guards what follows
	last    int        // number of the newest series
	topics  map[topic]*sentTopic
	cleaned time.Time // when topics were last forgotten
	stopped bool
}

// topic is one reason for Events about one object.
type topic struct {
	about  corev1.ObjectReference // without its resourceVersion
	reason string
}

// sentTopic is what was sent about a topic.
type sentTopic struct {
	used    time.Time
	full    time.Time                // when the whole bound is unused again
	newest  map[seriesKey]sentSeries // at most maxSeries
	waiting *timedEvent              // the newest text, if it waits for room
	timer   bool                     // sendWaiting will be called
}

// seriesKey holds what client-go tells series of one topic apart by, except for versions of the objects.
type seriesKey struct {
	kind, action string
	related      corev1.ObjectReference
}

// sentSeries is the newest series of a key.
type sentSeries struct {
	number  int
	text    string
	version string // of the object: client-go begins a series with each
}

// timedEvent is an Event with the time at which it happened.
type timedEvent struct {
	at                 time.Time
	regarding, related runtime.Object
	kind, reason       string
	action, text       string
	key                seriesKey
	version            string
}

// send sends an Event, now or once there is room. It does not block.
func (s *eventSeries) send(e timedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	about := topic{about: s.refer(e.regarding), reason: e.reason}
	e.key = seriesKey{e.kind, e.action, s.refer(e.related)}
	e.version, about.about.ResourceVersion = about.about.ResourceVersion, ""
	e.key.related.ResourceVersion = ""
	now := time.Now()
	s.forgetOld(now)
	t := s.topics[about]
	if t == nil {
		t = &sentTopic{newest: map[seriesKey]sentSeries{}}
		s.topics[about] = t
	}
	t.used = now
	if was := t.newest[e.key]; was.number != 0 && was.text == e.text && was.version == e.version {
		t.waiting = nil // this one is newer
		s.record(e, was.number)
		return
	}
	t.waiting = &e
	s.beginSeries(t, now)
}

// beginSeries begins a series with the Event that waits, if there is room, and otherwise once there is.
func (s *eventSeries) beginSeries(t *sentTopic, now time.Time) {
	if t.waiting == nil || s.stopped {
		return
	}
	if wait := t.full.Add(-(seriesAtFirst - 1) * seriesEvery).Sub(now); wait > 0 {
		if !t.timer {
			t.timer = true
			time.AfterFunc(wait, func() { s.sendWaiting(t) })
		}
		return
	}
	if t.full.Before(now) {
		t.full = now
	}
	t.full = t.full.Add(seriesEvery)
	if len(t.newest) >= maxSeries {
		clear(t.newest)
	}
	e := *t.waiting
	s.last++
	t.waiting, t.newest[e.key] = nil, sentSeries{s.last, e.text, e.version}
	s.record(e, s.last)
}

func (s *eventSeries) sendWaiting(t *sentTopic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t.timer, t.used = false, now
	s.beginSeries(t, now)
}

// record passes an Event to client-go.
func (s *eventSeries) record(e timedEvent, number int) {
	annotations := map[string]string{happenedAt: e.at.UTC().Format(time.RFC3339Nano)}
	s.recorder.AnnotatedEventf(e.regarding, e.related, annotations, e.kind, e.reason,
		fmt.Sprint(e.action, seriesMark, number), "%s", e.text)
}

// refer returns what Events name of an object; nothing if there is none.
func (s *eventSeries) refer(o runtime.Object) corev1.ObjectReference {
	if o == nil {
		return corev1.ObjectReference{}
	}
	ref, err := reference.GetReference(s.scheme, o)
	if err != nil {
		return corev1.ObjectReference{} // client-go logs it, and sends no Event
	}
	return *ref
}

// forgetOld forgets topics about which nothing was sent for seriesFor.
func (s *eventSeries) forgetOld(now time.Time) {
	if now.Sub(s.cleaned) < time.Minute {
		return
	}
	s.cleaned = now
	maps.DeleteFunc(s.topics, func(_ topic, t *sentTopic) bool { return now.Sub(t.used) > seriesFor && !t.timer })
}

// stop ends what waits.
func (s *eventSeries) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// actionOf returns the action of an Event without the number of its series.
func actionOf(action string) string {
	action, _, _ = strings.Cut(action, seriesMark)
	return action
}
