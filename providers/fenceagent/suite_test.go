package fenceagent_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
)

// device is what testdata/fence_bench speaks to: plug 1 has a machine, there is no other.
type device struct {
	mu       sync.Mutex // guards what follows
	on       bool
	password string
	logIns   int // passwords that were sent, right or wrong
	fault    providertest.Fault
	changed  chan struct{} // closed when the fault changes

	requests providertest.Requests // those that act: an agent's run reads before and after them
}

func (d *device) serve(l net.Listener, wait *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		wait.Go(func() {
			defer conn.Close()
			line, _ := bufio.NewReader(conn).ReadString('\n')
			if answer := d.answer(strings.Fields(line)); answer != "" {
				_, _ = conn.Write([]byte(answer + "\n"))
			}
		})
	}
}

// answer is what the device says to a password, a plug and a word.
func (d *device) answer(said []string) string {
	d.mu.Lock()
	fault, changed := d.fault, d.changed
	d.mu.Unlock()
	if len(said) == 3 && said[2] != "status" {
		d.requests.Add(true)
	}
	switch fault {
	case providertest.Unreachable:
		return ""
	case providertest.Silent:
		<-changed
		return ""
	case providertest.Slow:
		<-time.After(providertest.SlowBy)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(said) != 3 {
		return ""
	}
	d.logIns++
	switch {
	case said[0] != d.password:
		return "denied"
	case said[1] != "1":
		return "missing"
	case said[2] == "status" && fault == providertest.StrangeWord:
		return "paused"
	case said[2] != "status" && fault != providertest.StaysOn:
		d.on = said[2] == "on"
	}
	return map[bool]string{true: "on", false: "off"}[d.on]
}

// patience is how long a call of the suite may take. Two hundred at once take as long: who is not answered by then has
// had no answer.
const patience = 7 * time.Second

func TestConformance(t *testing.T) {
	needs(t, "/usr/share/fence/fencing.py")
	testdata, err := filepath.Abs("testdata")
	must(t, err)
	providertest.Suite(t, providertest.Options{
		Timeout: patience, Prompt: 20 * time.Second, Settle: timeout,
		Without: map[providertest.Fault]string{
			providertest.OtherMachine:  "agents do not report a machine's identity",
			providertest.StaysChanging: "agents report on, off or an error",
		},
		New: func(t *testing.T) *providertest.Bench {
			d := &device{on: true, password: "hunter2", changed: make(chan struct{})}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			var wait sync.WaitGroup
			wait.Go(func() { d.serve(l, &wait) })
			t.Cleanup(func() { l.Close(); wait.Wait() })
			password := secret(t, "hunter2")
			network := providertest.NewProxy(t, l.Addr().String(), providertest.ProxyOptions{})
			host, port, err := net.SplitHostPort(network.Addr())
			must(t, err)
			c := &fenceagent.Config{
				Agent: "fence_bench", Dir: testdata, AllowGuessedOff: true, AllowInsecure: true,
				// It waits a second for an off that does not come.
				Options: map[string]string{"ip": host, "ipport": port, "username": "fence", "power_timeout": "1"},
				Secrets: passwordIn(password),
			}
			p := newProvider(t, c, nil)
			wants(t, ask(t, p, n1), providers.PowerOn, "Status: ON", "ok") // before that no OFF counts
			d.mu.Lock()
			d.logIns = 0
			d.mu.Unlock()
			return &providertest.Bench{
				// Two hundred processes at once would be too much for this machine, too: the limiter is what bounds
				// them.
				Provider: limiter.New(p, limiter.Options{Timeout: patience, Rate: rate.Inf, Concurrency: 4}),
				Proxy:    network,
				LogIns:   func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.logIns },
				Requests: d.requests.All,
				Target:   n1,
				Missing:  providers.Target{Node: "n2", ID: "2"},
				Running:  func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.on },
				SetPower: func(on bool) { d.mu.Lock(); defer d.mu.Unlock(); d.on = on },
				SetFault: func(f providertest.Fault) {
					d.mu.Lock()
					defer d.mu.Unlock()
					d.fault = f
					close(d.changed)
					d.changed = make(chan struct{})
					switch f {
					case providertest.Denied:
						d.password += "x"
					case providertest.NoFault:
						if err := os.WriteFile(password, []byte(d.password), 0o600); err != nil {
							t.Error(err)
						}
					}
				},
			}
		},
	})
}

// TestClaimedHosts: no agent logs in to a host that a kubelet may have named. A plug of the operator's own device is
// another thing.
func TestClaimedHosts(t *testing.T) {
	takesIP := `echo '<resource-agent><parameters><parameter name="ip"/><parameter name="port_as_ip"/></parameters>` +
		`<actions>` + actions + `</actions></resource-agent>'`
	const on = "touch \"$dir/ran\"; echo 'Status: ON'"
	for _, tt := range []struct {
		name    string
		c       *fenceagent.Config
		target  providers.Target
		refused bool
	}{
		{"a claimed host", agent(t, takesIP, on), providers.Target{Node: "n1", ID: "10.0.0.7", Claimed: true}, true},
		{"a listed host", agent(t, takesIP, on), providers.Target{Node: "n1", ID: "10.0.0.7"}, false},
		{"a claimed plug", script(t, on), providers.Target{Node: "n1", ID: "1", Claimed: true}, false},
	} {
		p := newProvider(t, tt.c, nil)
		_, asked := p.State(t.Context(), tt.target)
		for act, err := range map[string]error{
			"State": asked, "PowerOff": p.PowerOff(t.Context(), tt.target, providertest.AllowSend),
			"PowerOn": p.PowerOn(t.Context(), tt.target, providertest.AllowSend),
		} {
			if tt.refused != errors.Is(err, providers.ErrPermanent) || !tt.refused && err != nil {
				t.Errorf("%s: %s: got %v, want refused: %t", tt.name, act, err, tt.refused)
			}
		}
		if _, err := os.Stat(filepath.Join(tt.c.Dir, "ran")); (err != nil) != tt.refused {
			t.Errorf("%s: the agent was run: %t", tt.name, err == nil)
		}
	}
}

// TestActAsksLast: an agent that acts is not run if that is refused, without a limiter, too. One that only asks is run.
func TestActAsksLast(t *testing.T) {
	c := script(t, "touch \"$dir/ran\"; echo 'Status: ON'; exit 0")
	p, ran := newProvider(t, c, nil), filepath.Join(c.Dir, "ran")
	refuse := func() error { return errors.New("another process leads") }
	for name, act := range map[string]func(context.Context, providers.Target, func() error) error{
		"off": p.PowerOff, "on": p.PowerOn} {
		if err := act(t.Context(), n1, refuse); !errors.Is(err, providers.ErrNotSent) {
			t.Errorf("%s: got %v, want %v", name, err, providers.ErrNotSent)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("%s: the agent was run", name)
		}
	}
	wants(t, ask(t, p, n1), providers.PowerOn, "Status: ON", "ok")
}
