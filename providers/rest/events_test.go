package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/test/kit"
)

// withEvents is outlets, whose strip has events.
func withEvents() string {
	with := strings.Replace(outlets, "powerOff:",
		"events:\n  request: {send: GET /events}\n  about: event.body.outlet\npowerOff:", 1)
	return with + `- name: event
  like: "on"
  answers: {event: {body: {outlet: "1"}}}
  want: {state: "On", word: "on", about: "1"}
`
}

// Cases say what an event is about.
func TestEventCases(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"no fault", "", "", ""},
		{"another machine", `about: "1"`, `about: "2"`, `cases[2].want.about: the event is about "1", want "2"`},
		{"any machine", `{outlet: "1"}`, `{}`, `cases[2].want.about: the event is about "*", want "1"`},
		{"no event", `answers: {event: {body: {outlet: "1"}}}`, "", "cases[2].want.about: has no effect"},
		{"no machine", `{outlet: "1"}}}` + "\n  want: {state: \"On\", word: \"on\", about: \"1\"}",
			`{outlet: ""}}}` + "\n  want: {state: \"On\", word: \"on\"}", "cases: no case has an answer to event"},
	} {
		_, bad := rest.CheckCases([]byte(strings.Replace(withEvents(), tc.old, tc.new, 1)))
		if got := bad.Error(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// strip is a power strip whose outlets report their state if they are asked, and otherwise by events. Its user is fence
// with the password right.
type strip struct {
	// answers a request for events itself, and returns false; nil: the strip has events
	answer func(w http.ResponseWriter) bool
	stop   chan struct{} // ends all that waits

	mu      sync.Mutex // guards what follows
	states  map[string]string
	asked   map[string]int // by outlet
	streams int            // requests for events
	denied  int            // requests with another password
	send    chan string    // into the present stream; closed: the stream ends
}

func newStrip(t *testing.T) (*strip, string) {
	s := &strip{
		stop: make(chan struct{}), states: map[string]string{"1": "off", "2": "off"}, asked: map[string]int{},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(s.stop) })
	return s, server.URL
}

func (s *strip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if user, password, _ := r.BasicAuth(); user != "fence" || password != "right" {
		s.denied++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if outlet, ok := strings.CutPrefix(r.URL.Path, "/outlets/"); ok {
		s.asked[outlet]++
		_, _ = fmt.Fprintf(w, `{"state": %q}`, s.states[outlet])
		return
	}
	s.streams++
	events := make(chan string, 10_000)
	s.send = events
	s.mu.Unlock()
	defer s.mu.Lock()
	if s.answer == nil || s.answer(w) {
		websocket.Server{Handler: func(c *websocket.Conn) { s.forward(events, c) }}.ServeHTTP(w, r)
	}
}

// forward sends events until there are no more, or sending fails.
func (s *strip) forward(events chan string, to *websocket.Conn) {
	for {
		select {
		case e, open := <-events:
			if !open || websocket.Message.Send(to, e) != nil {
				return
			}
		case <-s.stop:
			return
		}
	}
}

// set sets the outlets' states, and sends an event; "" ends the stream.
func (s *strip) set(one, two, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = map[string]string{"1": one, "2": two}
	if event == "" {
		close(s.send)
		return
	}
	s.send <- event
}

func (s *strip) count(of func(s *strip) int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of(s)
}

// newStripProvider returns the provider of a strip, with short times of a watch.
func newStripProvider(t *testing.T, address, password string, open, quiet time.Duration) providers.Provider {
	t.Helper()
	dir := t.TempDir()
	kit.Must(t, os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(withEvents()), 0o600))
	kit.Must(t, os.WriteFile(filepath.Join(dir, "password"), []byte(password), 0o600))
	c := &rest.Config{Description: filepath.Join(dir, "d.yaml"), Settings: rest.Settings{Address: address}}
	c.Username, c.PasswordFile = "fence", filepath.Join(dir, "password")
	if bad := c.Validate(); len(bad) > 0 {
		t.Fatal(bad)
	}
	p, err := c.New(providers.Options{Name: "strips", Log: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	rest.SetRhythm(p, 10*time.Millisecond, 50*time.Millisecond, open, quiet)
	t.Cleanup(func() { kit.Must(t, p.(providers.Closer).Close(context.Background())) })
	return p
}

var stripTargets = []providers.Target{{Node: "n1", ID: "1"}, {Node: "n2", ID: "2"}, {Node: "n3", ID: "no ID"}}

// An event makes the machine that it names be asked, or all if it names none, or cannot be read. A new stream does so,
// too.
func TestEvents(t *testing.T) {
	s, address := newStrip(t)
	p := newStripProvider(t, address, "right", time.Minute, time.Minute)
	reports, stop := providertest.StartWatch(t, p.(providers.Watcher), stripTargets...)
	providertest.AwaitReports(t, reports, "n1 Off off", "n2 Off off")
	two := func() int { return s.count(func(s *strip) int { return s.asked["2"] }) }
	before := two()
	s.set("on", "on", `{"outlet": "1"}`)
	providertest.AwaitReports(t, reports, "n1 On on")
	s.set("on", "on", `{"outlet": ""}`)
	s.set("on", "on", `{"outlet": "7"}`)
	s.set("off", "on", `{"outlet": "1"}`)
	providertest.AwaitReports(t, reports, "n1 Off off")
	if after := two(); after != before {
		t.Errorf("outlet 2: asked %d times because of events about others", after-before)
	}
	for _, step := range []struct{ state, event, want string }{
		{"on", `{"outlet": "*"}`, "On on"},
		{"off", `{"outlet": "1`, "Off off"}, // no JSON
		{"on", `{"outlet": 1}`, "On on"},    // no text
		{"off", `{}`, "Off off"},            // the expression fails
		{"on", "", "On on"},                 // a new stream
	} {
		s.set(step.state, step.state, step.event)
		providertest.AwaitReports(t, reports, "n1 "+step.want, "n2 "+step.want)
	}
	if n := s.count(func(s *strip) int { return s.streams }); n != 2 {
		t.Errorf("got %d streams, want 2", n)
	}
	stop()
}

// A stream that is silent, dead or has an event that is too large is replaced. A flood of events is not evaluated, and
// causes few questions.
func TestEventsAreReplaced(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(s *strip, w http.ResponseWriter) bool
	}{
		{"no answer", func(s *strip, _ http.ResponseWriter) bool { <-s.stop; return false }},
		{"no message", func(*strip, http.ResponseWriter) bool { return true }},
		{"a message that is too large", func(s *strip, _ http.ResponseWriter) bool {
			s.set("off", "off", `"`+strings.Repeat("x", 300<<10)+`"`)
			return true
		}},
		{"an error", func(_ *strip, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, address := newStrip(t)
			s.answer = func(w http.ResponseWriter) bool { return tc.answer(s, w) }
			p := newStripProvider(t, address, "right", 300*time.Millisecond, 300*time.Millisecond)
			_, stop := providertest.StartWatch(t, p.(providers.Watcher), stripTargets...)
			kit.Until(t, "a third stream", func() bool { return s.count(func(s *strip) int { return s.streams }) >= 3 })
			stop()
		})
	}
}

// A Watch ends if a device has no such stream, and it sends a refused password once. No other host gets a request.
func TestEventsRefused(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another host got %s", r.URL)
	}))
	defer other.Close()
	html := func(w http.ResponseWriter) bool {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>")
		return false
	}
	for _, tc := range []struct {
		name, password string
		answer         func(w http.ResponseWriter) bool
		ends           bool
	}{
		{"no upgrade", "right", html, true},
		{"an upgrade to something else", "right", func(w http.ResponseWriter) bool {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "tea")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return false
		}, true},
		{"a redirect", "right", func(w http.ResponseWriter) bool {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(http.StatusFound)
			return false
		}, true},
		{"no such path", "right", func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusNotFound)
			return false
		}, false},
		{"a refused password", "wrong", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, address := newStrip(t)
			s.answer = tc.answer
			p := newStripProvider(t, address, tc.password, time.Minute, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if !tc.ends {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer cancel()
			err := p.(providers.Watcher).Watch(ctx, stripTargets, func(providers.Target, providers.Observation) {})
			if got := errors.Is(err, providers.ErrPermanent); got != tc.ends {
				t.Errorf("got %v, want a permanent error %t", err, tc.ends)
			}
			if text := fmt.Sprint(err); strings.Contains(text, "right") || strings.Contains(text, "wrong") {
				t.Errorf("the error repeats the password: %s", text)
			}
			if n := s.count(func(s *strip) int { return s.denied }); (tc.password == "wrong") != (n == 1) {
				t.Errorf("got %d requests with a wrong password", n)
			}
		})
	}
}

// A flood of events causes few questions, and ends in one.
func TestEventsFlood(t *testing.T) {
	s, address := newStrip(t)
	p := newStripProvider(t, address, "right", time.Minute, time.Minute)
	reports, stop := providertest.StartWatch(t, p.(providers.Watcher), stripTargets...)
	begun := time.Now()
	providertest.AwaitReports(t, reports, "n1 Off off", "n2 Off off")
	for range 5000 {
		s.set("off", "off", `{"outlet": "1"}`)
	}
	s.set("on", "on", `{"outlet": "1"}`)
	providertest.AwaitReports(t, reports, "n1 On on", "n2 On on") // all are asked for what is not evaluated
	stop()
	asked := s.count(func(s *strip) int { return s.asked["1"] })
	if most := 3 + int(time.Since(begun)/time.Second); asked > most {
		t.Errorf("asked %d times, want at most %d", asked, most)
	}
}
