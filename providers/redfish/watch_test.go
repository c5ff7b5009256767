package redfish_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	eventService  = "/redfish/v1/EventService"
	eventStream   = eventService + "/SSE"
	subscriptions = eventService + "/Subscriptions"
	timeout       = 30 * time.Second
)

func sse(_ *rack, c *redfish.Config) { c.Events = "sse" }

// brisk is a rhythm for tests; a stream that carries nothing is left alone.
func brisk(p *redfish.Provider) {
	redfish.SetRhythm(p, 10*time.Millisecond, 50*time.Millisecond, time.Hour, time.Hour)
}

// nothing expects no report beside those made before this call.
func nothing(t testing.TB, reports <-chan string) {
	t.Helper()
	select {
	case got, told := <-reports:
		if told {
			t.Errorf("reported: %q", got)
		}
	default:
	}
}

func (r *rack) until(t testing.TB, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := r.bmc.Await(ctx, f); err != nil {
		t.Fatalf("never: %s (%v)", what, err)
	}
}

func (r *rack) streams(t testing.TB, n int) {
	t.Helper()
	r.until(t, fmt.Sprintf("%d streams", n), func() bool { return r.bmc.Streams() == n })
}

// targets are the rack's machines as nodes n0, n1, ..., by their system UUIDs.
func (r *rack) targets() (out []providers.Target) {
	for i, m := range r.ms {
		out = append(out, providers.Target{Node: fmt.Sprint("n", i), ID: r.bmc.URL(), SystemUUID: m.SystemUUID()})
	}
	return out
}

func system(m *datacenter.Machine) string { return systems + "/" + m.Name() }

// A system that does not run at the beginning is reported, then each change, of the right system; after a loss what
// happened meanwhile.
func TestWatch(t *testing.T) {
	r := newRack(t, 3, datacenter.Options{}, sse)
	brisk(r.p)
	r.ms[2].CutPower()
	reports, stop := providertest.StartWatch(t, redfish.Watcher(r.p),
		append(r.targets(), providers.Target{Node: "nowhere"}, providers.Target{Node: "odd", ID: "ftp://x"})...)
	providertest.AwaitReports(t, reports, "n2 Off Off")
	r.streams(t, 1) // of one BMC
	// An event that comes before the first looks are over makes us ask: its origin is not known yet.
	for off := ""; !strings.HasPrefix(off, "n0 Off event: ResourcePoweredOff"); {
		r.ms[0].CutPower()
		seen := providertest.AwaitReports(t, reports, "n0 Off ")
		off = seen[len(seen)-1]
		r.ms[0].PowerOn()
		providertest.AwaitReports(t, reports, "n0 On ") // of the event, or of the answer to a question
	}

	r.bmc.SetFault(datacenter.Fault{Mute: true})
	r.ms[1].CutPower()
	r.bmc.DropConnections()
	providertest.AwaitReports(t, reports, "n1 Off Off")
	r.streams(t, 1)
	r.ms[1].PowerOn()
	r.bmc.ExpireSessions()
	r.bmc.EndStreams()
	providertest.AwaitReports(t, reports, "n1 On On")
	r.streams(t, 1)
	if n := r.bmc.Sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	r.bmc.SetFault(datacenter.Fault{})
	stop()
	r.streams(t, 0)
	r.ms[1].CutPower() // which must not be reported
	if n := r.bmc.Count(http.MethodPost, sessions); n > 3 {
		t.Errorf("%d log-ins for some streams", n)
	}
}

// Any event makes us ask, and the BMC's answer is reported.
func TestWatchAsksOfWhatItDoesNotKnow(t *testing.T) {
	for name, event := range map[string]func(*rack){
		"an unknown message of the system": func(r *rack) { r.bmc.SendEvent("Contoso.1.0.Ouch", system(r.ms[0])) },
		"one of a part of it": func(r *rack) {
			r.bmc.SendEvent("ResourceEvent.1.3.0.ResourcePoweredOff", system(r.ms[0])+"/Processors/1")
		},
		"one of the chassis": func(r *rack) {
			r.bmc.SendEvent("ResourceEvent.1.3.0.ResourcePoweredOff", "/redfish/v1/Chassis/1")
		},
		"one of nothing": func(r *rack) { r.bmc.SendEvent("Alert.1.0.PowerSupplyFailed", "") },
		"no message":     func(r *rack) { r.bmc.SendRaw([]byte("data: {}\n\n")) },
		"no Redfish":     func(r *rack) { r.bmc.SendRaw([]byte("data: power fail!\n\n")) },
		"another shape": func(r *rack) {
			r.bmc.SendRaw([]byte(`data: {"Events":[{"MessageId":7,"OriginOfCondition":[1]}]}` + "\r\r"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, 1, datacenter.Options{}, sse)
			brisk(r.p)
			r.bmc.SetFault(datacenter.Fault{Mute: true})
			reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
			r.streams(t, 1)
			r.until(t, "the look at the beginning",
				func() bool { return r.bmc.Count(http.MethodGet, system(r.ms[0])) > 0 })
			r.ms[0].CutPower()
			event(r)
			providertest.AwaitReports(t, reports, "n0 Off Off")
		})
	}
}

// A message that reports Off proves nothing: the machine may be on though it is reported at once. One
// about another system concerns no target.
func TestWatchOfSeveralSystems(t *testing.T) {
	r := newRack(t, 3, datacenter.Options{}, sse)
	brisk(r.p)
	reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()[:2]...)
	r.streams(t, 1)
	asked := func(m *datacenter.Machine) int { return r.bmc.Count(http.MethodGet, system(m)) }
	r.until(t, "three looks at each at the beginning",
		func() bool { return asked(r.ms[0]) >= 3 && asked(r.ms[1]) >= 3 })
	before := [3]int{asked(r.ms[0]), asked(r.ms[1]), asked(r.ms[2])}
	r.ms[2].CutPower() // no target
	r.bmc.SendEvent("IDRAC.2.8.SYS1001", system(r.ms[1])+"/")
	providertest.AwaitReports(t, reports, "n1 Changing event: SYS1001")
	r.bmc.SendEvent("OpenBMC.0.1.DCPowerOff", "/redfish/v1/Managers/bmc") // whose?
	r.until(t, "both are asked", func() bool { return asked(r.ms[0]) > before[0] && asked(r.ms[1]) > before[1] })
	if n := asked(r.ms[2]); n != before[2] {
		t.Errorf("a machine that is not watched was asked for %d times more", n-before[2])
	}
}

// A BMC that sends without end makes us ask once a second, and is not read faster than we like.
func TestWatchFlood(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, sse)
	brisk(r.p)
	reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	r.streams(t, 1)
	asked := func() int { return r.bmc.Count(http.MethodGet, system(r.ms[0])) }
	// an event's origin is unknown before
	r.until(t, "the looks at the beginning", func() bool { return asked() >= 3 })
	before, began := asked(), time.Now()
	for range 4000 {
		r.bmc.SendEvent("Contoso.1.0.Fan", system(r.ms[0]))
		r.bmc.SendEvent("ResourceEvent.1.0.ResourcePoweredOff", system(r.ms[0]))
	}
	providertest.AwaitReports(t, reports, "n0 Off event: ResourcePoweredOff")
	r.until(t, "a third question", func() bool { return asked() >= before+3 })
	r.ms[0].CutPower() // its event is behind the others
	providertest.AwaitReports(t, reports, "n0 Off Off")
	seconds := int(time.Since(began)/time.Second) + 2
	if n := asked() - before; n > seconds {
		t.Errorf("asked %d times in %d s", n, seconds)
	}
	if n := len(reports); n > 2*seconds {
		t.Errorf("%d reports in %d s", n, seconds)
	}
}

// Fifty events are read at once, and twenty a second for ever.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	take := redfish.NewPace()
	taken := func(seconds int) (n int) {
		for range seconds * 1000 {
			if take(now) == 0 {
				n++
			}
			now = now.Add(time.Millisecond)
		}
		return n
	}
	if n := taken(10); n < 240 || n > 260 {
		t.Errorf("took %d events in 10 s of a flood, want 250", n)
	}
	now = now.Add(time.Hour)
	if n := taken(1); n < 65 || n > 75 {
		t.Errorf("took %d events in 1 s after an hour without, want 70", n)
	}
}

// A fault of a BMC's events is logged once, and its machines are asked as before. Nothing goes to another
// host.
func TestWatchWithoutEvents(t *testing.T) {
	other := newRack(t, 1, datacenter.Options{}, nil)
	for name, tt := range map[string]struct {
		fault datacenter.Fault
		want  string
	}{
		"no event service":         {datacenter.Fault{NoEvents: true}, "links no event service"},
		"not enabled":              {datacenter.Fault{EventsOff: true}, "not enabled"},
		"no stream":                {datacenter.Fault{StreamURI: "none"}, "has no stream"},
		"a stream on another host": {datacenter.Fault{StreamURI: other.bmc.URL() + eventStream}, "another host"},
		"a stream without scheme": {
			datacenter.Fault{StreamURI: strings.TrimPrefix(other.bmc.URL(), "https:") + eventStream}, "another host"},
		"a redirect":   {datacenter.Fault{StreamURI: "/moved", StreamStatus: 307}, "404"},
		"not allowed":  {datacenter.Fault{StreamStatus: 403}, "403"},
		"not there":    {datacenter.Fault{StreamStatus: 404}, "404"},
		"packed":       {datacenter.Fault{StreamPacked: true}, "no stream of events"},
		"not a stream": {datacenter.Fault{StreamType: "application/json"}, "no stream of events"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, 1, datacenter.Options{}, sse)
			log := &kit.Log{}
			p := logged(t, r, log)
			redfish.SetRhythm(p, time.Millisecond, time.Millisecond, time.Millisecond, time.Hour)
			r.bmc.SetFault(tt.fault)
			_, stop := providertest.StartWatch(t, redfish.Watcher(p), r.targets()...)
			r.until(t, "it tries again", func() bool { return r.bmc.Count(http.MethodGet, "/redfish/v1/") > 4 })
			stop()
			if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, tt.want) {
				t.Errorf("log: want one warning with %q, got:\n%s", tt.want, got)
			}
			if n := len(other.bmc.Requests()); n > 0 {
				t.Errorf("another host got %d requests", n)
			}
		})
	}
}

// logged is another provider for the rack, with a log.
func logged(t *testing.T, r *rack, log *kit.Log) *redfish.Provider {
	t.Helper()
	c := redfish.NewConfig()
	c.Username, c.PasswordFile, c.CAFile, c.Events = r.dc.Username(), r.file,
		filepath.Join(filepath.Dir(r.file), "ca.pem"), "sse"
	p, err := redfish.New(*c, providers.Options{Name: "rack-a", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// A BMC that hangs, answers without end or cannot be trusted is tried again, and its stream is back when it is well.
func TestWatchComesBack(t *testing.T) {
	for name, fault := range map[string]datacenter.Fault{
		"drops": {Drop: true}, "503": {Status: 503}, "no filter": {NoFilter: true}, "huge": {HugeBody: true},
		"stream 500": {StreamStatus: 500},
		"redirect":   {Redirect: "https://192.0.2.1/"}, "wrong password": {Status: 401}, "another certificate": {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t, 1, datacenter.Options{}, sse)
			redfish.SetRhythm(r.p, time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, time.Hour)
			r.ms[0].CutPower()
			reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
			providertest.AwaitReports(t, reports, "n0 Off Off")
			r.bmc.SetFault(fault)
			ca := filepath.Join(filepath.Dir(r.file), "ca.pem")
			trusted, err := os.ReadFile(ca)
			if err != nil {
				t.Fatal(err)
			}
			n := len(r.bmc.Requests())
			if name == "another certificate" {
				other := datacenter.New(datacenter.Options{})
				defer other.Close()
				if err := other.WriteCA(ca); err != nil {
					t.Fatal(err)
				}
				// A connection that was begun before is used once more. Then come attempts that may not ask.
				for deadline := time.Now().Add(timeout); ; n = len(r.bmc.Requests()) {
					r.bmc.DropConnections()
					select {
					case <-time.After(100 * time.Millisecond):
					case <-t.Context().Done():
					}
					if len(r.bmc.Requests()) == n {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("a BMC with an untrusted certificate was asked")
					}
				}
				if err := os.WriteFile(ca, trusted, 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				r.bmc.DropConnections()
				r.until(t, "it tries", func() bool { return len(r.bmc.Requests()) > n+1 })
			}
			if name == "wrong password" { // which is not sent again before it changes
				r.renew(t, "another")
			}
			r.bmc.SetFault(datacenter.Fault{NoFilter: fault.NoFilter})
			r.streams(t, 1)
			r.bmc.SendEvent("Contoso.1.0.Ouch", "")
			providertest.AwaitReports(t, reports, "n0 Off Off")
		})
	}
}

// An event or a line that does not end ends a stream; a stream that carries nothing is opened again.
func TestWatchEndsStreams(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, sse)
	brisk(r.p)
	providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	opened := func() int { return r.bmc.Count(http.MethodGet, eventStream) }
	for _, raw := range []string{
		"data: " + strings.Repeat("x", remote.MaxEvent+10),
		": " + strings.Repeat("x", remote.MaxEvent+10),
		strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", remote.MaxEvent/1000+2),
	} {
		r.streams(t, 1)
		n := opened()
		r.bmc.SendRaw([]byte(raw))
		r.until(t, "another stream", func() bool { return opened() > n })
	}

	quiet := newRack(t, 1, datacenter.Options{}, sse)
	redfish.SetRhythm(quiet.p, time.Millisecond, time.Millisecond, time.Hour, 20*time.Millisecond)
	providertest.StartWatch(t, redfish.Watcher(quiet.p), quiet.targets()...)
	quiet.until(t, "a new stream",
		func() bool { return quiet.bmc.Count(http.MethodGet, eventStream) > 3 })
	if n := quiet.bmc.Count(http.MethodPost, sessions); n != 1 {
		t.Errorf("%d log-ins, want 1", n)
	}
}

// Several watches run, each with a stream; Close ends them.
func TestWatches(t *testing.T) {
	r := newRack(t, 2, datacenter.Options{}, sse)
	brisk(r.p)
	one, stop := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()[0])
	ended := make(chan error, 1)
	go func() {
		ended <- redfish.Watcher(r.p).
			Watch(context.Background(), r.targets(), func(providers.Target, providers.Observation) {})
	}()
	r.streams(t, 2)
	r.ms[0].CutPower()
	providertest.AwaitReports(t, one, "n0 Off ")
	stop()
	r.streams(t, 1)
	other := newRack(t, 1, datacenter.Options{}, sse)
	go func() { ended <- redfish.Watcher(other.p).Watch(context.Background(), nil, nil) }()
	if err := other.p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("after Close: got %v", err)
	}
	go func() { _ = r.p.Close(context.Background()) }()
	if err := <-ended; !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("after Close: got %v", err)
	}
}

// Who has no events configured is no Watcher.
func TestEventsAreOff(t *testing.T) {
	for _, events := range []string{"off", "sse"} {
		c := redfish.NewConfig()
		if c.Events != "off" {
			t.Errorf("default: %q", c.Events)
		}
		c.Username, c.PasswordEnv, c.Events = "fence", "NONE", events
		p, err := c.New(providers.Options{Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if _, is := p.(providers.Watcher); is != (events == "sse") {
			t.Errorf("%s: a Watcher: %t", events, is)
		}
		if err := p.(providers.Closer).Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// FuzzStream: however a stream is cut into reads, its events are the same, and none is larger than it may be.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "data:a\r\ndata: b\r\rdata\n\n", "\ufeffdata: x\n\n: c\nid: 1\nevent: y\n\n", "data: cut",
		"data: {\ndata: \"a\":1}\n\n"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		read := func(s interface{ Next() ([]byte, error) }) (out []string) {
			for {
				e, err := s.Next()
				if err != nil {
					return out
				}
				if len(e) > remote.MaxEvent {
					t.Fatalf("an event of %d bytes", len(e))
				}
				out = append(out, string(e))
			}
		}
		got := read(remote.NewEventStream(&pieces{raw, int(size) + 1}))
		if want := plainEvents(string(raw)); fmt.Sprint(got) != fmt.Sprint(want) && len(raw) < remote.MaxEvent {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	})
}

// plainEvents reads a whole stream in the plainest way.
func plainEvents(raw string) (out []string) {
	raw = strings.ReplaceAll(strings.ReplaceAll(raw, "\r\n", "\n"), "\r", "\n")
	raw = strings.TrimPrefix(raw, "\ufeff")
	all := strings.Split(raw, "\n")
	var data []string
	for _, line := range all[:len(all)-1] { // what follows the last end is no line
		switch value, isData := strings.CutPrefix(line, "data:"); {
		case line == "" && data != nil:
			out, data = append(out, strings.Join(data, "\n")), nil
		case line == "data":
			data = append(data, "")
		case isData:
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return out
}

type pieces struct {
	raw  []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.raw) == 0 {
		return 0, errors.New("end")
	}
	n := copy(b, p.raw[:min(p.size, len(p.raw))])
	p.raw = p.raw[n:]
	return n, nil
}
