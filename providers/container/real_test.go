package container_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/kit"
)

// TestEngines holds the provider against real engines: the suite, and what they say of a container's ways.
func TestEngines(t *testing.T) {
	for _, kind := range []string{"podman", "docker"} {
		t.Run(kind, func(t *testing.T) {
			e := startEngine(t, kind)
			t.Run("suite", func(t *testing.T) { suite(t, e) })
			p := newProvider(t, e.socket)
			t.Run("words", func(t *testing.T) { words(t, e, p) })
			t.Run("runs", func(t *testing.T) { runs(t, e, p) })
			t.Run("not guessed", func(t *testing.T) { notGuessed(t, e, p) })
			t.Run("restart policy", func(t *testing.T) { restartPolicy(t, e, p) })
			t.Run("shared namespace", func(t *testing.T) { sharedNamespace(t, e, p) })
			t.Run("through the limiter", func(t *testing.T) { throughLimiter(t, e) })
			t.Run("events", func(t *testing.T) { events(t, e) })
		})
	}
}

func suite(t *testing.T, e *engine) {
	providertest.Suite(t, providertest.Options{
		Timeout: patience, Settle: patience, Prompt: 10 * time.Second,
		Without:  map[providertest.Fault]string{providertest.OtherMachine: "an engine knows no system UUID"},
		NoProxy:  "an engine is reached over its unix socket alone",
		NoLogIns: "there is no account: who may open the socket may do anything",
		New: func(t *testing.T) *providertest.Bench {
			m, p := e.add(t, nil), e.proxy(t)
			m.power(true)
			return &providertest.Bench{
				Provider: open(t, p.socket), Target: m.target(), Missing: providers.Target{Node: "n0", ID: "no-such"},
				Running: m.runs, SetPower: m.power, SetFault: p.set, Requests: p.requests.All,
			}
		},
	})
}

// A container's name cannot be confirmed: what the node's own kubelet names is not touched.
func throughLimiter(t *testing.T, e *engine) {
	m := e.add(t, nil)
	m.power(true)
	g := limiter.New(open(t, e.socket), limiter.Options{Name: "laptop", Timeout: patience})
	defer func() { must(t, g.Close(context.Background())) }()
	claimed := m.target()
	claimed.Claimed = true
	if err := g.PowerOff(t.Context(), claimed, providertest.AllowSend); !errors.Is(err, providers.ErrIdentity) ||
		!m.runs() {
		t.Errorf("the node chose its container: got %v", err)
	}
	must(t, g.PowerOff(t.Context(), m.target(), providertest.AllowSend))
	kit.Until(t, "off", func() bool { return ask(t, g, m.target()).State == providers.PowerOff })
}

func words(t *testing.T, e *engine, p providers.Provider) {
	m := e.add(t, nil)
	expect(t, p, m.target(), providers.PowerOff, "created")
	m.power(true)
	expect(t, p, m.target(), providers.PowerOn, "running")
	m.do("pause")
	expect(t, p, m.target(), providers.PowerOn, "paused")
	must(t, p.PowerOff(t.Context(), m.target(), providertest.AllowSend)) // a frozen one dies as well
	kit.Until(t, "the end of a paused container",
		func() bool { return ask(t, p, m.target()).State == providers.PowerOff })
	if m.runs() {
		t.Error("off, and it runs")
	}
	expect(t, p, m.target(), providers.PowerOff, "exited")
	must(t, e.call(http.MethodDelete, "/containers/"+m.name+"?force=1", nil, nil))
	expectClass(t, p, m.target(), providers.ErrNotFound)
	for _, call := range []func(context.Context, providers.Target, func() error) error{p.PowerOff, p.PowerOn} {
		if err := call(t.Context(), m.target(), providertest.AllowSend); !errors.Is(err, providers.ErrNotFound) {
			t.Errorf("a removed container: got %v", err)
		}
	}
}

// A run has the same name while it lasts and once it is over, and the next one another.
func runs(t *testing.T, e *engine, p providers.Provider) {
	m := e.add(t, nil)
	var names []string
	for range 2 {
		before := ask(t, p, m.target()).Run
		m.power(true)
		on := ask(t, p, m.target()).Run
		m.power(false)
		off := ask(t, p, m.target()).Run
		if on != off || on == before || on == "" || len(on) > 60 {
			t.Errorf("before the start %q, on %q, off %q", before, on, off)
		}
		names = append(names, on)
	}
	if names[0] == names[1] {
		t.Errorf("two runs are called %q", names[0])
	}
}

// An engine takes the beginning of an ID for the container.
func notGuessed(t *testing.T, e *engine, p providers.Provider) {
	m := e.add(t, nil)
	m.power(true)
	whole := m.inspect().ID
	for _, id := range []string{
		whole, whole[:12], whole[:1] + "/../" + m.name, "/" + m.name, m.name + "/json?x=", "", ".", "..", "no%2fname"} {
		of := providers.Target{Node: m.name, ID: id}
		expectClass(t, p, of, providers.ErrNotFound)
		if err := p.PowerOff(t.Context(), of, providertest.AllowSend); !errors.Is(err, providers.ErrNotFound) ||
			!m.runs() {
			t.Errorf("%q: got %v", id, err)
		}
	}
	var at struct {
		ID string `json:"Id"`
	}
	if err := e.call(http.MethodGet, "/containers/"+whole[:12]+"/json", nil, &at); err != nil || at.ID != whole {
		t.Errorf("the engine does not do that any more: %v", err)
	}
}

// A container that its engine starts again is not off in between; one that was powered off stays off.
func restartPolicy(t *testing.T, e *engine, p providers.Provider) {
	m := e.add(t, map[string]any{"RestartPolicy": map[string]any{"Name": "on-failure", "MaximumRetryCount": 3}})
	m.power(true)
	was := m.inspect()
	must(t, syscall.Kill(was.State.Pid, syscall.SIGKILL))
	var said []string
	kit.Until(t, "the next run", func() bool {
		a := ask(t, p, m.target())
		if word := a.State.String() + " " + a.Raw; !slices.Contains(said, word) {
			said = append(said, word)
		}
		if a.State == providers.PowerOff || a.Err != nil {
			t.Fatalf("in between it is %s (%s), %v", a.State, a.Raw, a.Err)
		}
		now := m.inspect().State
		return now.StartedAt != was.State.StartedAt && now.Status == "running"
	})
	t.Logf("it was said to be %q", said)
	must(t, p.PowerOff(t.Context(), m.target(), providertest.AllowSend))
	kit.Until(t, "off", func() bool { return ask(t, p, m.target()).State == providers.PowerOff })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if a := ask(t, p, m.target()); a.State != providers.PowerOff || m.runs() {
			t.Fatalf("it came back: %s (%s)", a.State, a.Raw)
		}
	}
}

// What shares the host's process namespace does not end with the container's first process.
func sharedNamespace(t *testing.T, e *engine, p providers.Provider) {
	m := e.add(t, map[string]any{"PidMode": "host"})
	m.power(true)
	expect(t, p, m.target(), providers.PowerOn, "running")
	m.power(false)
	expect(t, p, m.target(), providers.PowerUnknown, "exited, but it shared its processes' namespace")
	if err := p.PowerOn(t.Context(), m.target(), providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) ||
		m.runs() {
		t.Errorf("PowerOn: got %v", err)
	}
}

// events checks what a Watch reports, also after it lost its engine.
func events(t *testing.T, e *engine) {
	through := e.proxy(t)
	m, down, other := e.add(t, nil), e.add(t, nil), e.add(t, nil)
	m.power(true)
	other.power(true)
	p := newProvider(t, through.socket)
	reports, stop := providertest.StartWatch(t, p, m.target(), down.target())
	seen := providertest.AwaitReports(t, reports, down.name+" Off created")
	other.power(false)
	m.power(false)
	seen = append(seen, providertest.AwaitReports(t, reports, m.name+" Off event: die")...)
	m.power(true)
	seen = append(seen, providertest.AwaitReports(t, reports, m.name+" On event: start")...)

	through.set(providertest.Unreachable)
	through.cut()
	m.power(false) // while nothing watches
	through.set(providertest.NoFault)
	seen = append(seen, providertest.AwaitReports(t, reports, m.name+" Off exited")...)
	stop()
	for line := range reports {
		seen = append(seen, line)
	}
	for _, line := range seen {
		if strings.HasPrefix(line, other.name+" ") {
			t.Errorf("got a report about a container that is no target: %s", line)
		}
	}
	through.set(providertest.Denied)
	if err := p.Watch(t.Context(), []providers.Target{m.target()},
		func(providers.Target, providers.Observation) {}); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("where events are refused: got %v", err)
	}
}
