package pdu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/pdu"
	"github.com/forcefence/forcefence/providers/providertest"
)

// Every combination of protocols that a real agent knows, the old ones included.
func TestProtocols(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	for user, protocols := range map[string][2]string{
		"fence": {"sha256", "aes128"}, "strong": {"sha512", "aes256"}, "middle": {"sha384", "aes192"},
		"sha": {"sha1", "aes128"}, "old": {"md5", "des"},
	} {
		c := settings(t, "apc-rpdu2")
		c.Username, c.Authentication, c.Privacy = user, protocols[0], protocols[1]
		p := open(t, c, nil)
		for _, on := range []bool{true, false} {
			o.reset(on)
			want := map[bool]providers.PowerState{true: providers.PowerOn, false: providers.PowerOff}[on]
			if got := ask(t, p, o.id("")); got.State != want || got.Err != nil {
				t.Errorf("%s: got %s (%q), %v, want %s", user, got.State, got.Raw, got.Err, want)
			}
		}
	}
}

// A user who may only read gets an error when an outlet is switched, and the answers count.
func TestRights(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	c := settings(t, "apc-rpdu2")
	c.Username = "reader"
	p := open(t, c, nil)
	if got := ask(t, p, o.id("")); got.State != providers.PowerOn {
		t.Errorf("got %s, %v", got.State, got.Err)
	}
	if err := p.PowerOff(t.Context(), providers.Target{Node: "n1", ID: o.id("")},
		providertest.AllowSend); providers.ErrorClass(err) != "denied" || !o.on() {
		t.Errorf("got %v", err)
	}
}

// A strip that does not accept user or password is not asked again with the same: it may lock the account. No error
// shows a password.
func TestRefused(t *testing.T) {
	s, _ := strips(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout) // of all calls: none has to wait
	defer cancel()
	o := s.outlet("apc-rpdu2")
	var asked atomic.Int64
	w := newWire(t, func(to asker, question []byte) {
		asked.Add(1)
		through(s.address)(to, question)
	})
	now := time.Now()
	for name, wrong := range map[string]func(*pdu.Config){
		"password": func(c *pdu.Config) { must(t, os.WriteFile(c.PasswordFile, []byte("hunter2hunter2"), 0o600)) },
		"user":     func(c *pdu.Config) { c.Username = "hunter" },
	} {
		c := settings(t, "apc-rpdu2")
		wrong(c)
		p := open(t, c, func() time.Time { return now })
		asked.Store(0)
		for range 3 {
			for _, err := range []error{
				func() error {
					_, err := p.State(ctx, providers.Target{Node: "n1", ID: o.id(w.address)})
					return err
				}(),
				p.PowerOff(ctx, providers.Target{Node: "n1", ID: o.id(w.address)}, providertest.AllowSend),
			} {
				if providers.ErrorClass(err) != "denied" || strings.Contains(err.Error(), "hunter2") ||
					strings.Contains(err.Error(), privacy) {
					t.Errorf("%s: got %v", name, err)
				}
			}
		}
		if n := asked.Load(); n != 2 { // which engine, and once with the password
			t.Errorf("%s: %d questions, want 2", name, n)
		}
		now = now.Add(16 * time.Minute)
		if _, err := p.State(ctx,
			providers.Target{Node: "n1", ID: o.id(w.address)}); providers.ErrorClass(err) != "denied" ||
			asked.Load() <= 2 {
			t.Errorf("%s, later: got %v after %d questions", name, err, asked.Load())
		}
		if name == "password" {
			must(t, os.WriteFile(c.PasswordFile, []byte(password), 0o600))
			if obs, err := p.State(ctx,
				providers.Target{Node: "n1", ID: o.id(w.address)}); obs.State != providers.PowerOn {
				t.Errorf("the right password: got %s, %v", obs.State, err)
			}
			must(t, os.WriteFile(c.PasswordFile, []byte("short"), 0o600))
			before := asked.Load()
			if _, err := p.State(ctx,
				providers.Target{Node: "n1", ID: o.id(w.address)}); providers.ErrorClass(err) != "denied" ||
				asked.Load() != before {
				t.Errorf("a password that SNMPv3 does not allow: got %v", err)
			}
		}
	}
}

// A machine's own passwords are sent for that machine alone, and what a strip makes of them is no matter of another's.
func TestEachMachineItsPassword(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	o.reset(true)
	var asked atomic.Int64
	w := newWire(t, func(to asker, question []byte) {
		asked.Add(1)
		through(s.address)(to, question)
	})
	c := settings(t, "apc-rpdu2")
	for kind, right := range map[string]string{"password": password, "privacy": privacy} {
		folder := t.TempDir()
		write := func(node, text string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(folder, node), []byte(text), 0o600))
		}
		c := *c
		if kind == "privacy" {
			c.PrivacyPasswordFile = folder + "/{name}"
		} else {
			c.PasswordFile = folder + "/{name}"
		}
		p := open(t, &c, nil)
		state := func(node, class string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			obs, err := p.State(ctx, providers.Target{Node: node, ID: o.id(w.address)})
			if providers.ErrorClass(err) != class || (obs.State == providers.PowerOn) != (class == "ok") {
				t.Errorf("%s, %s: got %s, %v; want %s", kind, node, obs.State, err, class)
			}
		}
		write("n1", right)
		write("n2", "hunter2hunter2")
		write("n4", "short")
		state("n1", "ok")
		if kind == "password" { // a strip does not report a wrong password for privacy alone
			state("n2", "denied")
			before := asked.Load()
			state("n2", "denied")
			if asked.Load() != before {
				t.Error("a refused password was sent again")
			}
		}
		before := asked.Load()
		state("n3", "denied")
		state("n4", "denied")
		if asked.Load() != before {
			t.Errorf("%s: a strip was asked for a machine without a password", kind)
		}
		state("n1", "ok")
		write("n2", right)
		state("n2", "ok")
	}
}

// A strip that was started again counts one boot more, and is believed at once.
func TestRestart(t *testing.T) {
	strips(t) // skips without snmpd
	s, err := startStrip()
	must(t, err)
	o := s.outlet("raritan")
	p := open(t, settings(t, "raritan"), nil)
	for i := range 2 {
		if got := ask(t, p, o.id("")); got.State != providers.PowerOn || got.Err != nil {
			t.Errorf("start %d: got %s, %v", i+1, got.State, got.Err)
		}
		s.end()
		must(t, s.start())
	}
	o.reset(false)
	if got := ask(t, p, o.id("")); got.State != providers.PowerOff || got.Err != nil {
		t.Errorf("got %s, %v", got.State, got.Err)
	}
}

// A machine with two power supplies is off where both outlets are, and only there.
func TestTwoSupplies(t *testing.T) {
	a, b := strips(t)
	one, two, three := a.outlet("apc-rpdu"), a.outlet("apc-rpdu"), b.outlet("apc-rpdu")
	p := open(t, settings(t, "apc-rpdu"), nil)
	const on, off, busy, strange = 1, 2, 3, 99
	for _, tt := range []struct {
		states [3]int
		want   providers.PowerState
		raw    string
	}{
		{[3]int{off, off, off}, providers.PowerOff, "off, off, off"},
		{[3]int{on, off, off}, providers.PowerOn, "on, off, off"},
		{[3]int{off, on, off}, providers.PowerOn, "off, on, off"},
		{[3]int{off, off, on}, providers.PowerOn, "off, off, on"},
		{[3]int{off, strange, off}, providers.PowerUnknown, "off, rPDUOutletStatusOutletState 99, off"},
		{[3]int{off, strange, on}, providers.PowerOn, "off, rPDUOutletStatusOutletState 99, on"},
		{[3]int{busy, off, off}, providers.PowerChanging, "off, command pending, off, off"},
		{[3]int{off, off, busy}, providers.PowerChanging, "off, off, off, command pending"},
		{[3]int{strange, off, busy}, providers.PowerUnknown,
			"rPDUOutletStatusOutletState 99, off, off, command pending"},
	} {
		for i, o := range []socket{one, two, three} {
			o.reset(tt.states[i] == on)
			switch tt.states[i] {
			case busy:
				o.edit(func(f *outletFile) { f.Values = o.busy() })
			case strange:
				o.set(o.state(), strange)
			}
		}
		got := ask(t, p, strings.Join([]string{one.id(""), two.id(""), three.id("")}, ","))
		raw := tt.raw
		if a.address > b.address { // in the order of the canonical ID
			raw = ""
		}
		if got.State != tt.want || got.Err != nil || raw != "" && got.Raw != raw {
			t.Errorf("%v: got %s (%q), %v, want %s (%q)", tt.states, got.State, got.Raw, got.Err, tt.want, tt.raw)
		}
	}
	for _, o := range []socket{one, two, three} {
		o.reset(false)
	}
	for _, missing := range []string{one.s.address + "/9999", "127.0.0.1:1/1"} {
		if got := ask(t, p, one.id("")+","+missing); got.State != providers.PowerUnknown || got.Err == nil {
			t.Errorf("with %s: got %s, %v", missing, got.State, got.Err)
		}
	}
}

// Outlets are switched one after the other. One that refuses ends it, and is named.
func TestPowerOffInOrder(t *testing.T) {
	s, _ := strips(t)
	one, two, three := s.outlet("apc-rpdu2"), s.outlet("apc-rpdu2"), s.outlet("apc-rpdu2")
	two.edit(func(f *outletFile) { f.Sets = nil })
	p := open(t, settings(t, "apc-rpdu2"), nil)
	err := p.PowerOff(t.Context(),
		providers.Target{Node: "n1", ID: strings.Join([]string{one.id(""), two.id(""), three.id("")}, ",")},
		providertest.AllowSend)
	if providers.ErrorClass(err) != "denied" || !strings.Contains(err.Error(), "outlet "+two.id("")) || one.on() ||
		!two.on() || !three.on() {
		t.Errorf("got %v; on: %t, %t, %t", err, one.on(), two.on(), three.on())
	}
}

// Each outlet's command asks whether it may still be sent. The first was, so the error is not ErrNotSent.
func TestEachOutletAsks(t *testing.T) {
	s, _ := strips(t)
	one, two := s.outlet("apc-rpdu2"), s.outlet("apc-rpdu2")
	p := open(t, settings(t, "apc-rpdu2"), nil)
	target := providers.Target{Node: "n1", ID: strings.Join([]string{one.id(""), two.id("")}, ",")}
	for _, tt := range []struct {
		allowed int
		on      [2]bool
		class   string
	}{{0, [2]bool{true, true}, "not_sent"}, {1, [2]bool{false, true}, "unreachable"},
		{2, [2]bool{false, false}, "ok"}} {
		left := tt.allowed
		err := p.PowerOff(t.Context(), target, func() error {
			if left--; left < 0 {
				return errors.New("no longer the leader")
			}
			return nil
		})
		if on := [2]bool{one.on(), two.on()}; on != tt.on || providers.ErrorClass(err) != tt.class {
			t.Errorf("%d allowed: on %v, %v; want %v, %s", tt.allowed, on, err, tt.on, tt.class)
		}
	}
}

// A strip does not know what is plugged in: a machine that its own kubelet can choose is never switched.
func TestClaimedMachineIsNotSwitched(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	g := limiter.New(open(t, settings(t, "apc-rpdu2"), nil), limiter.Options{Timeout: timeout})
	target := providers.Target{Node: "n1", ID: o.id(""), SystemUUID: "11223344-5566-7788-99aa-bbccddeeff00",
		Claimed: true}
	if err := g.PowerOff(t.Context(), target, providertest.AllowSend); !errors.Is(err, providers.ErrIdentity) ||
		!o.on() {
		t.Errorf("claimed: got %v", err)
	}
	target.Claimed = false
	if err := g.PowerOff(t.Context(), target, providertest.AllowSend); err != nil || o.on() {
		t.Errorf("an operator's word: got %v", err)
	}
	must(t, g.Close(t.Context()))
}

// Power supplies hold out for a while: outlets count as off once answers have said so for that long, without anything
// else in between.
func TestOffDelay(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := v2c(t) // with v3 the strip's time would have to pass, too
	c.OffDelay = 5 * time.Second
	p := open(t, c, func() time.Time { return now })
	w := newWire(t, through(s.address))
	target := providers.Target{Node: "n1", ID: o.id(w.address)}
	off, on, strange, powerOn := func() { o.reset(false) }, func() { o.reset(true) }, func() { o.set(o.state(), 99) },
		func() {
			must(t, p.PowerOn(t.Context(), target, providertest.AllowSend))
			o.reset(false)
		}
	for i, tt := range []struct {
		after time.Duration
		do    func()
		want  providers.PowerState
		raw   string
	}{
		{0, off, providers.PowerChanging, "off for 0s of 5s"},
		{4900 * time.Millisecond, nil, providers.PowerChanging, "off for 4.9s of 5s"},
		{100 * time.Millisecond, nil, providers.PowerOff, "off"},
		{time.Second, on, providers.PowerOn, "on"},
		{time.Second, off, providers.PowerChanging, "off for 0s of 5s"},
		{6 * time.Second, strange, providers.PowerUnknown, "rPDU2OutletSwitchedStatusState 99"},
		{time.Second, off, providers.PowerChanging, "off for 0s of 5s"},
		{6 * time.Second, nil, providers.PowerOff, "off"},
		{time.Minute, nil, providers.PowerOff, "off"},
		{time.Minute + 1, nil, providers.PowerChanging, "off for 0s of 5s"}, // too long without an answer
		{6 * time.Second, powerOn, providers.PowerChanging, "off for 0s of 5s"},
		{6 * time.Second, nil, providers.PowerOff, "off"},
	} {
		now = now.Add(tt.after)
		if tt.do != nil {
			tt.do()
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		obs, err := p.State(ctx, target)
		cancel()
		if obs.State != tt.want || obs.Raw != tt.raw || err != nil || !obs.At.Equal(providers.InstantOf(now)) {
			t.Errorf("step %d: got %s (%q), %v, want %s (%q)", i, obs.State, obs.Raw, err, tt.want, tt.raw)
		}
	}
	// No answer is no off, either.
	w.handle(func(asker, []byte) {})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.State(ctx, target)
	w.handle(through(s.address))
	if obs, again := p.State(t.Context(), target); err == nil || again != nil || obs.State != providers.PowerChanging {
		t.Errorf("after an error %v: got %s, %v", err, obs.State, again)
	}
}

// Two answers may overtake each other: one that was asked for before an outlet was seen on begins no row.
func TestOffDelayOfOvertakenAnswers(t *testing.T) {
	a := newAgent(t)
	now := atomic.Int64{}
	held, there := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	w := newWire(t, func(to asker, question []byte) {
		if strings.Contains(string(question), "fence") && !first.Swap(true) { // not which engine it is
			close(there)
			<-held
		}
		a.handle(to, question)
	})
	c := settings(t, "apc-rpdu2")
	c.OffDelay = 5 * time.Second
	p := open(t, c, func() time.Time { return time.Unix(now.Load(), 0) })
	target := providers.Target{Node: "n1", ID: w.address + "/7"}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		_, _ = p.State(ctx, target) // it is the next answer that counts
	}()
	select {
	case <-there:
	case <-ctx.Done():
		t.Error("no question came")
	}
	now.Store(1)
	_ = p.PowerOn(ctx, target, providertest.AllowSend) // the outlet may be on from here
	now.Store(2)
	close(held)
	<-slow
	now.Store(8)
	if obs, err := p.State(ctx, target); obs.State != providers.PowerChanging || err != nil {
		t.Errorf("got %s (%q), %v", obs.State, obs.Raw, err)
	}
}

// A mib that the strip does not have, a missing outlet and a missing column have each a message of their own. None is
// off, and nothing is switched.
func TestMissing(t *testing.T) {
	strips(t) // skips without snmpd
	s, err := startStrip()
	must(t, err)
	o := s.outlet("apc-rpdu2")
	o.reset(false)
	old := s.outlet("servertech-sentry4")
	old.reset(false)
	old.edit(func(f *outletFile) { delete(f.Values, old.at(old.d.Columns[2].OID)) })
	for _, tt := range []struct {
		name, mib, outlets, class string
		says                      []string
	}{
		{"the outlet", "apc-rpdu2", "9999", "not_found", []string{"no outlet 9999", "its first is 1"}},
		{"one of two", "apc-rpdu2", "1,9998", "not_found", []string{"no outlet 9998;"}},
		{"the table, of an APC", "apc-rpdu", "1", "permanent",
			[]string{"no outlets of mib apc-rpdu ", "it has those of apc-rpdu2, servertech-sentry4: set mib"}},
		{"the table, of another maker", "eaton-epdu", "1", "permanent",
			[]string{"no outlets of mib eaton-epdu ", "it has those of apc-rpdu2"}},
		{"the table, for many outlets", "vertiv-v5", "1,2,3", "permanent", []string{"no outlets of mib vertiv-v5 "}},
		{"a column", "servertech-sentry4", "1.1.2", "permanent",
			[]string{"state of outlet 1.1.2", "no st4OutletControlState (.1.3.6.1.4.1.1718.4.1.8.5.1.1)"}},
		{"the outlet, where a column is missing", "servertech-sentry4", "1.1.9", "not_found",
			[]string{"no outlet 1.1.9", "its first is 1.1.2"}},
	} {
		ids := s.address + "/" + strings.ReplaceAll(tt.outlets, ",", ","+s.address+"/")
		for version, c := range map[string]*pdu.Config{"v3": settings(t, tt.mib), "v2c": v2c(t)} {
			c.MIB = tt.mib
			p := open(t, c, nil)
			got := ask(t, p, ids)
			if got.State != providers.PowerUnknown || providers.ErrorClass(got.Err) != tt.class {
				t.Fatalf("%s, %s: got %s, %s: %v; want %s", tt.name, version, got.State,
					providers.ErrorClass(got.Err), got.Err, tt.class)
			}
			for _, text := range tt.says {
				if !strings.Contains(got.Err.Error(), text) {
					t.Errorf("%s, %s: got %v, want %q", tt.name, version, got.Err, text)
				}
			}
		}
	}

	// A command to a table that is not there says so, too.
	err = open(t, settings(t, "apc-rpdu"), nil).PowerOn(t.Context(), providers.Target{Node: "n1", ID: o.id("")},
		providertest.AllowSend)
	if providers.ErrorClass(err) != "permanent" || !strings.Contains(err.Error(), "it has those of apc-rpdu2") ||
		o.on() {
		t.Errorf("got %v; on: %t", err, o.on())
	}
}

// An ID has one way to be written, and names its hosts and outlets.
func TestCanonical(t *testing.T) {
	for _, tt := range []struct {
		mib, id, want, hosts string
	}{
		{"apc-rpdu2", "strip-a/7", "strip-a/7", "strip-a"},
		{"apc-rpdu2", " Strip-B.Example.NET.:161/08 , 10.0.0.7/3,strip-a/7",
			"10.0.0.7/3,strip-a/7,strip-b.example.net/8", "10.0.0.7 strip-a strip-b.example.net"},
		{"apc-rpdu2", "strip-a:1161/7,strip-a:01161/6", "strip-a:1161/6,strip-a:1161/7", "strip-a"},
		{"apc-rpdu2", "[FD00:0::7]/7,[fd00::7]:162/7", "[fd00::7]/7,[fd00::7]:162/7", "fd00::7"},
		{"apc-rpdu2", "[::ffff:10.0.0.7]/1", "10.0.0.7/1", "10.0.0.7"},
		{"raritan", "a/7,a/2.8", "a/1.7,a/2.8", "a"},
		{"apc-rpdu2", "a/1.7", "", ""},
		{"raritan", "a/1.1.7", "", ""},
		{"apc-rpdu2", "a/7,a/07", "", ""},
		{"apc-rpdu2", "a/7,A.:161/7", "", ""},
		{"raritan", "a/7,a/1.7", "", ""}, {"raritan", "a/0.7", "", ""},
		{"raritan-px1", "a/7", "a/7", "a"}, {"raritan-px1", "a/1.7", "", ""},
		{"eaton-epdu", "a/7,a/1.8", "a/0.7,a/1.8", "a"}, {"eaton-epdu", "a/7,a/0.7", "", ""},
		{"eaton-epdu", "a/0", "", ""}, {"eaton-epdu", "a/1.0", "", ""},
		{"servertech-sentry3", "a/1.2.7, a/01.1.8", "a/1.1.8,a/1.2.7", "a"},
		{"servertech-sentry3", "a/7", "", ""}, {"servertech-sentry3", "a/1.7", "", ""},
		{"servertech-sentry4", "a/0.1.7", "", ""}, {"liebert-mph2", "a/1.2.7", "a/1.2.7", "a"},
		{"apc-rpdu2", "", "", ""}, {"apc-rpdu2", "a", "", ""}, {"apc-rpdu2", "a/", "", ""}, {"apc-rpdu2", "/7", "", ""},
		{"apc-rpdu2", "a/0", "", ""},
		{"apc-rpdu2", "a/7,", "", ""}, {"apc-rpdu2", "a/-7", "", ""}, {"apc-rpdu2", "a/7/8", "", ""},
		{"apc-rpdu2", "a/70000", "", ""}, {"apc-rpdu2", "a:0/7", "", ""},
		{"apc-rpdu2", "hunter2@a/7", "", ""}, {"apc-rpdu2", "u:hunter2@a/7", "", ""},
		{"apc-rpdu2", "a?hunter2/7", "", ""}, {"apc-rpdu2", "a#/7", "", ""},
		{"apc-rpdu2", "[fe80::1%25eth0]/7", "", ""}, {"apc-rpdu2", "snmp://a/7", "", ""},
		{"apc-rpdu2", "a b/7", "", ""},
		{"apc-rpdu2", strings.Repeat("a/7,", 20), "", ""},
	} {
		c := settings(t, tt.mib)
		got, hosts, err := c.CanonicalID(tt.id)
		if got != tt.want || strings.Join(hosts, " ") != tt.hosts || (err != nil) != (tt.want == "") {
			t.Errorf("%s: got %q at %q, %v, want %q at %q", tt.id, got, hosts, err, tt.want, tt.hosts)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats it: %v", tt.id, err)
		}
	}
	c := settings(t, "apc-rpdu2")
	if got := fmt.Sprint(c.PartsOf("a/7,b/8")); got != "[a/7 b/8]" || !c.HasAddressIDs() {
		t.Errorf("got %s", got)
	}
	p := open(t, c, nil)
	if got := p.LimitGroup(providers.Target{ID: "b/7,A/3"}); got != "a,b" {
		t.Errorf("got limits %q", got)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"a/1", "a:162/1, b/2", "[::1]/1.2", "10.0.0.7/65535", "a/1,a/1", "::/1", "a/0.1",
		"a/1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		for _, mib := range []string{"apc-rpdu2", "raritan", "eaton-epdu", "servertech-sentry4"} {
			c := pdu.NewConfig()
			c.MIB = mib
			got, hosts, err := c.CanonicalID(id)
			if err != nil {
				continue
			}
			again, hostsAgain, err := c.CanonicalID(got)
			if again != got || err != nil || fmt.Sprint(hosts) != fmt.Sprint(hostsAgain) || len(hosts) == 0 ||
				len(c.PartsOf(got)) < len(hosts) {
				t.Errorf("%q: got %q at %q, then %q at %q, %v", id, got, hosts, again, hostsAgain, err)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	short := t.TempDir() + "/short"
	must(t, os.WriteFile(short, []byte("1234567"), 0o600))
	for want, edit := range map[string]func(*pdu.Config){
		"":                     func(*pdu.Config) {},
		"mib":                  func(c *pdu.Config) { c.MIB = "" },
		"mib ":                 func(c *pdu.Config) { c.MIB = "apc" },
		"username":             func(c *pdu.Config) { c.Username = "" },
		"passwordFile":         func(c *pdu.Config) { c.PasswordFile = short },
		"privacyPasswordFile":  func(c *pdu.Config) { c.PrivacyPasswordFile = short },
		"privacyPasswordFile ": func(c *pdu.Config) { c.PrivacyPasswordEnv = "P" },
		"authentication":       func(c *pdu.Config) { c.Authentication = "none" },
		"privacy":              func(c *pdu.Config) { c.Privacy = "" },
		"version":              func(c *pdu.Config) { c.Version = "v1" },
		"offDelay":             func(c *pdu.Config) { c.OffDelay = -1 },
		"offDelay ":            func(c *pdu.Config) { c.OffDelay = time.Minute + 1 },
		// a cycle takes 10 s, and has no word
		"offDelay  ":  func(c *pdu.Config) { c.MIB, c.OffDelay = "raritan", 11*time.Second },
		" ":           func(c *pdu.Config) { c.MIB, c.OffDelay = "raritan", 12*time.Second },
		"offDelay   ": func(c *pdu.Config) { c.MIB, c.OffDelay = "eaton-epdu", 11*time.Second },
		"  ":          func(c *pdu.Config) { c.MIB, c.OffDelay = "servertech-sentry3", 5*time.Second },
		"engines[1].host": func(c *pdu.Config) {
			c.Engines = []pdu.Engine{{"a", engineA}, {"A:161", engineB}}
		},
		"engines[0].host": func(c *pdu.Config) { c.Engines = []pdu.Engine{{"a/7", engineA}} },
		"engines[0].id":   func(c *pdu.Config) { c.Engines = []pdu.Engine{{"a", ""}} },
		"username privacyPasswordFile engines": func(c *pdu.Config) {
			c.Version, c.Engines = "v2c", []pdu.Engine{{"a", engineA}}
		},
		"passwordFile ": func(c *pdu.Config) {
			c.Version, c.Username, c.PasswordFile, c.PrivacyPasswordFile = "v2c", "", "", ""
		},
	} {
		c := settings(t, "apc-rpdu2")
		edit(c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != strings.TrimSpace(want) {
			t.Errorf("%s: got problems at %q", want, got)
		}
	}
	for text, want := range map[string]string{
		"0x80004fb8057374726970": "\x80\x00\x4f\xb8\x05strip", "80:00:4F:B8:05": "\x80\x00\x4f\xb8\x05", "80004fb8": "",
		"x": "", "": ""} {
		var e pdu.EngineID
		if err := e.UnmarshalText([]byte(text)); string(e) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %x, %v", text, e, err)
		}
	}
}

// The README's figure for the time that a question takes.
func BenchmarkState(b *testing.B) {
	s, other := strips(b)
	one, two := s.outlet("apc-rpdu2"), other.outlet("apc-rpdu2")
	p := open(b, settings(b, "apc-rpdu2"), nil)
	for b.Loop() {
		if got := ask(b, p, one.id("")+","+two.id("")); got.State != providers.PowerOn {
			b.Fatal(got.Err)
		}
	}
}
