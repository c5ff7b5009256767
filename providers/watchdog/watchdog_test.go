//go:build linux

package watchdog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// fakeSBD behaves as sbd 1.5.2 does: one disk to a list, and a message that is written at once and returns later. A
// disk is a file with the output of list, and another with that of dump. A file beside it makes it fail.
const fakeSBD = `#!/bin/sh
[ "$1" = -R ] && [ "$2" = -d ] || { echo "unexpected: $*" >&2; exit 2; }
disk=$3
[ -e "$disk.hangs" ] && exec sleep 1000
[ -e "$disk" ] || { echo "== disk $disk unreadable!" >&2; exit 1; }
case $4 in
dump) cat "$disk.dump" ;;
list) cat "$disk" ;;
message)
	echo "$5 $6" >>"$disk.sent"
	[ -e "$disk.refuses" ] && { echo "no slot" >&2; exit 1; }
	sed "s/^\([0-9]*	$5	\)[a-z]*	.*/\1$6	fence/" "$disk" >"$disk.new" && mv "$disk.new" "$disk"
	exec sleep 1000 ;;
*) exit 2 ;;
esac
`

func dumpOf(watchdog, msgwait int) string {
	return fmt.Sprintf(`==Dumping header on disk /dev/loop0
Header version     : 2.1
UUID               : 0759cde0-802f-4fdd-9098-f187d52a9eba
Number of slots    : 255
Sector size        : 512
Timeout (watchdog) : %d
Timeout (allocate) : 2
Timeout (loop)     : 1
Timeout (msgwait)  : %d
==Header on disk /dev/loop0 is dumped
`, watchdog, msgwait)
}

// bench is a provider with disks, and a clock of its own.
type bench struct {
	t     *testing.T
	p     *Provider
	disks []string
	now   time.Time
}

func newBench(t *testing.T, disks int) *bench {
	b := &bench{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	dir := t.TempDir()
	c := Type().NewConfig().(*Config)
	c.Command = filepath.Join(dir, "sbd")
	b.write(c.Command, fakeSBD)
	for i := range disks {
		d := filepath.Join(dir, fmt.Sprintf("disk-%d", i))
		b.disks = append(b.disks, d)
		b.write(d+".dump", dumpOf(5, 10))
	}
	c.Devices = b.disks
	b.set(wordClear)
	if faults := c.Validate(); len(faults) > 0 {
		t.Fatalf("got %v, want a valid configuration", faults)
	}
	p, err := c.New(providers.Options{Name: "disks", Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.p = p.(*Provider)
	return b
}

func (b *bench) write(file, text string) {
	b.t.Helper()
	// A temporary name first: a program that is open for writing cannot be run.
	if err := errors.Join(os.WriteFile(file+".tmp", []byte(text), 0o755), os.Rename(file+".tmp", file)); err != nil {
		b.t.Fatal(err)
	}
}

// set writes the words of n1's slots, of each disk; the last is that of further disks. "": it has no slot.
func (b *bench) set(words ...string) {
	for i, d := range b.disks {
		word := words[min(i, len(words)-1)]
		lines := "0\tn0\tclear\t\n"
		if word != "" {
			lines += "1\tn1\t" + word + "\tother\n"
		}
		b.write(d, lines+"2\tn11\toff\tother\n")
	}
}

func (b *bench) ask(t providers.Target) providers.Answer {
	b.t.Helper()
	return providers.Ask(b.t.Context(), b.p, "disks", t, func() providers.Instant { return providers.InstantOf(b.now) })
}

var n1 = providers.Target{Node: "n1", ID: "n1", Named: true}

func (b *bench) expect(when string, want providers.PowerState, t providers.Target) {
	b.t.Helper()
	a := b.ask(t)
	if a.State != want || a.Err != nil {
		b.t.Errorf("%s: got %s (%q), %v; want %s", when, a.State, a.Raw, a.Err, want)
	}
}

// sent returns the messages that sbd was called for, by all disks.
func (b *bench) sent() string {
	all := ""
	for _, d := range b.disks {
		text, _ := os.ReadFile(d + ".sent")
		all += string(text)
	}
	return strings.ReplaceAll(strings.TrimSpace(all), "\n", ", ")
}

// After msgwait and the margin without a break the answer is ByTime, and never before.
func TestByTime(t *testing.T) {
	b := newBench(t, 3)
	b.expect("clear", providers.PowerOn, n1)
	b.set(wordReset)
	b.expect("just written", providers.PowerChanging, n1)
	b.now = b.now.Add(20 * time.Second)
	b.expect("exactly msgwait and margin later", providers.PowerChanging, n1)
	b.now = b.now.Add(time.Millisecond)
	b.expect("later", providers.PowerByTime, n1)
	if a := b.ask(n1); a.Raw != "reset for 20s of 20s" {
		t.Errorf("got %q, want the word and the time", a.Raw)
	}
	b.now = b.now.Add(59 * time.Second)
	b.expect("a minute later", providers.PowerByTime, n1)
	again, err := (&b.p.cfg).New(providers.Options{Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.p = again.(*Provider)
	b.expect("in a new process", providers.PowerChanging, n1)
}

// Every interruption of the time makes it begin again.
func TestTimeBeginsAgain(t *testing.T) {
	for _, tt := range []struct {
		name      string
		interrupt func(*bench)
		repair    func(*bench)
		want      providers.PowerState // during the interruption
	}{
		{"the slot is cleared", func(b *bench) { b.set(wordClear) }, func(b *bench) { b.set(wordReset) },
			providers.PowerUnknown},
		{"a disk is lost", func(b *bench) { must(b.t, os.Rename(b.disks[2], b.disks[2]+".gone")) },
			func(b *bench) { must(b.t, os.Rename(b.disks[2]+".gone", b.disks[2])) }, providers.PowerChanging},
		{"all disks are lost", func(b *bench) {
			for _, d := range b.disks {
				must(b.t, os.Rename(d, d+".gone"))
			}
		}, func(b *bench) {
			for _, d := range b.disks {
				must(b.t, os.Rename(d+".gone", d))
			}
		}, providers.PowerUnknown},
		{"one disk has another word", func(b *bench) { b.set(wordReset, wordReset, wordClear) },
			func(b *bench) { b.set(wordReset) }, providers.PowerChanging},
		{"a message to exit", func(b *bench) { b.set(wordExit) }, func(b *bench) { b.set(wordReset) },
			providers.PowerUnknown},
		{"its header makes no sense", func(b *bench) { b.write(b.disks[0]+".dump", dumpOf(6, 10)) },
			func(b *bench) { b.write(b.disks[0]+".dump", dumpOf(5, 10)) }, providers.PowerUnknown},
		{"no question for more than a minute", func(b *bench) { b.now = b.now.Add(61 * time.Second) },
			func(*bench) {}, providers.PowerChanging},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 3)
			b.set(wordReset)
			b.expect("first", providers.PowerChanging, n1)
			b.now = b.now.Add(19 * time.Second)
			b.expect("before its time", providers.PowerChanging, n1)
			b.now = b.now.Add(time.Second)
			tt.interrupt(b)
			if a := b.ask(n1); a.State != tt.want {
				t.Errorf("interrupted: got %s (%q), %v; want %s", a.State, a.Raw, a.Err, tt.want)
			}
			tt.repair(b)
			b.now = b.now.Add(time.Second)
			b.expect("again", providers.PowerChanging, n1)
			b.now = b.now.Add(19 * time.Second)
			b.expect("before its time again", providers.PowerChanging, n1)
			b.now = b.now.Add(2 * time.Second)
			b.expect("after it", providers.PowerByTime, n1)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A sign of the node's life makes the time begin again. One after that time shows that no sbd reads the slot.
func TestSignsOfLife(t *testing.T) {
	b := newBench(t, 1)
	b.set(wordReset)
	b.expect("first", providers.PowerChanging, n1)
	alive := n1
	alive.Heard = b.now.Add(2 * time.Second)
	b.now = b.now.Add(21 * time.Second)
	b.expect("heard meanwhile", providers.PowerChanging, alive)
	b.now = b.now.Add(2 * time.Second)
	b.expect("silent for long enough since", providers.PowerByTime, alive)
	alive.Heard = b.now
	b.now = b.now.Add(time.Second)
	b.expect("heard after its time", providers.PowerUnknown, alive)
	for range 4 {
		b.now = b.now.Add(30 * time.Second)
	}
	b.expect("long silent since", providers.PowerUnknown, alive)
	b.set(wordClear)
	b.expect("sbd has started", providers.PowerUnknown, alive)
	alive.Heard = b.now.Add(time.Second)
	b.now = b.now.Add(2 * time.Second)
	b.expect("its node is back", providers.PowerOn, alive)
}

// A machine that has started since its message is not sent another while it brings its node up.
func TestStartedSince(t *testing.T) {
	b := newBench(t, 1)
	b.set(wordReset)
	b.expect("message", providers.PowerChanging, n1)
	b.set(wordClear)
	b.expect("started", providers.PowerUnknown, n1)
	b.now = b.now.Add(afterStart)
	b.expect("a while later", providers.PowerUnknown, n1)
	b.now = b.now.Add(time.Second)
	b.expect("its node did not come up", providers.PowerOn, n1)
}

func TestJudgeSlot(t *testing.T) {
	ok := header{watchdog: 5 * time.Second, msgwait: 10 * time.Second}
	of := func(words ...string) (all []disk) {
		for _, w := range words {
			d := disk{header: ok, words: map[string]string{"n1": w}}
			if w == "!" {
				d = disk{err: errors.New("gone")}
			}
			all = append(all, d)
		}
		return all
	}
	with := func(d []disk, watchdog, msgwait time.Duration) []disk {
		d[0].header = header{watchdog, msgwait}
		return d
	}
	on, changing, unknown := providers.PowerOn, providers.PowerChanging, providers.PowerUnknown
	for _, tt := range []struct {
		name  string
		disks []disk
		want  providers.PowerState
		word  string
	}{
		{"clear", of("clear"), on, "clear"},
		{"reset", of("reset"), changing, "reset"},
		{"off", of("off"), changing, "off"},
		{"test", of("test"), unknown, "test"},
		{"exit", of("exit"), unknown, "exit"},
		{"crashdump", of("crashdump"), unknown, "crashdump"},
		{"an unknown word", of("frobnicate"), unknown, "frobnicate"},
		{"no slot", of(""), unknown, "no slot"},
		{"two slots", of(wordTwice), unknown, wordTwice},
		{"one of two", of("reset", "clear"), unknown, "reset, clear"},
		{"one of two, the other is lost", of("reset", "!"), unknown, "reset, not readable"},
		{"both of two", of("reset", "off"), changing, "reset, off"},
		{"two of three", of("reset", "!", "reset"), changing, "reset, not readable, reset"},
		{"one of three", of("reset", "!", "!"), unknown, "reset, not readable, not readable"},
		{"two of three are clear", of("clear", "reset", "clear"), on, "clear, reset, clear"},
		{"one of three is clear", of("clear", "!", "test"), unknown, "clear, not readable, test"},
		{"msgwait is exactly twice", with(of("reset"), 5*time.Second, 10*time.Second), changing, "reset"},
		{"msgwait is too short", with(of("reset"), 6*time.Second, 10*time.Second), unknown, "less than twice"},
		{"msgwait of another disk is long enough", with(of("reset", "reset"), 5*time.Second, 0), changing, "reset"},
		{"the watchdog of another disk is too slow",
			with(of("reset", "reset"), 15*time.Second, 10*time.Second), unknown,
			"create the disks with a longer -4"},
		{"no watchdog", with(of("reset"), 0, 10*time.Second), unknown, "no watchdog timeout"},
	} {
		v := judgeSlot(tt.disks, "N1", time.Second)
		if v.state != tt.want || !strings.Contains(v.word, tt.word) {
			t.Errorf("%s: got %s, %q; want %s, %q", tt.name, v.state, v.word, tt.want, tt.word)
		}
		if v.state == changing && v.wait != 11*time.Second {
			t.Errorf("%s: got a wait of %s, want msgwait and margin", tt.name, v.wait)
		}
	}
}

func TestParseHeader(t *testing.T) {
	good := dumpOf(5, 10)
	for _, tt := range []struct {
		name, old, new string
		fails          bool
	}{
		{"as sbd prints it", "", "", false},
		{"version 2", "2.1", "2", false},
		{"another version", "2.1", "3.0", true},
		{"no version", "Header version", "Header", true},
		{"no watchdog timeout", "Timeout (watchdog)", "Timeout (dog)", true},
		{"no msgwait", "Timeout (msgwait)", "Timeout", true},
		{"negative", ": 10", ": -10", true},
		{"a unit", ": 10", ": 10ms", true},
		{"too long", ": 10", ": 999999", true},
		{"twice", "Timeout (loop)", "Timeout (msgwait)", true},
		{"cut", "Timeout (msgwait)  : 10\n==Header on disk /dev/loop0 is dumped\n", "", true},
	} {
		h, err := parseHeader(strings.Replace(good, tt.old, tt.new, 1))
		if want := (header{5 * time.Second, 10 * time.Second}); (err != nil) != tt.fails || !tt.fails && h != want {
			t.Errorf("%s: got %v, %v; want %v, an error: %t", tt.name, h, err, want, tt.fails)
		}
	}
}

func TestParseSlots(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a slot", "0\tn1\treset\tvm\n", wordReset},
		{"without a sender", "0\tn1\tclear\t\n", wordClear},
		{"in another case", "0\tN1\treset\tvm\n", wordReset},
		{"none", "", wordNone},
		{"a longer name", "0\tn12\treset\tvm\n", wordNone},
		{"a name before a tab", "0\tn1\tx\treset\tvm\n", "x"},
		{"twice", "0\tn1\treset\tvm\n1\tn1\treset\tvm\n", wordTwice},
		{"three times", "0\tn1\treset\tvm\n1\tN1\tclear\tvm\n2\tn1\toff\t\n", wordTwice},
		{"a sender with a line of its own", "0\tn1\tclear\tx\n1\tn1\treset\tvm\n", wordTwice},
		{"spaces", " 0\tn1\treset\tvm\n0 n1 off vm\n", wordNone},
	} {
		if got := parseSlots(tt.text)["n1"]; got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// No text of a slot or of a sender makes another slot's word a message.
func FuzzParseSlots(f *testing.F) {
	for _, s := range []string{
		"", "n2", "x\n1\tn1\treset\tvm", "\t", "n1\treset\t", "\r\n0\tn1\toff\t", "n1\treset\tx\n"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, sender string) {
		text := "0\t" + name + "\tclear\t" + sender + "\n1\tn1\tclear\tvm\n"
		if got := parseSlots(text)["n1"]; got != wordClear && got != wordTwice {
			t.Errorf("%q: got %q for a clear slot", text, got)
		}
		if h, err := parseHeader(name + sender); err == nil && (h.watchdog < 0 || h.msgwait > 100000*time.Second) {
			t.Errorf("%q: got %v", name+sender, h)
		}
		if v := judgeSlot([]disk{{header: header{5 * time.Second, 10 * time.Second}, words: parseSlots(text)}}, "n1",
			time.Second); v.state == providers.PowerOff || v.state == providers.PowerChanging {
			t.Errorf("%q: got %s", text, v.state)
		}
	})
}

func TestPowerOff(t *testing.T) {
	for _, tt := range []struct {
		name   string
		words  []string
		change func(*bench)
		to     providers.Target
		class  error // nil: it is accepted
		sent   string
	}{
		{name: "clear", words: []string{wordClear}, sent: "n1 reset, n1 reset, n1 reset"},
		{name: "a test message", words: []string{wordTest}, sent: "n1 reset, n1 reset, n1 reset"},
		{name: "off is pending", words: []string{wordOff}},
		{name: "off is pending on two disks", words: []string{wordOff, wordClear, wordOff}, sent: "n1 reset"},
		{name: "reset is pending", words: []string{wordReset}},
		{name: "told to exit", words: []string{wordExit}, class: providers.ErrPermanent},
		{name: "told to exit on one disk", words: []string{wordExit, wordClear}, sent: "n1 reset, n1 reset"},
		{name: "no slot", words: []string{""}, class: providers.ErrPermanent},
		{name: "a slot on one disk only", words: []string{wordClear, "", ""}, class: providers.ErrPermanent},
		{name: "an unknown word", words: []string{"frobnicate"}, class: providers.ErrPermanent},
		{name: "one disk is gone", words: []string{wordClear}, sent: "n1 reset, n1 reset",
			change: func(b *bench) { must(b.t, os.Remove(b.disks[1])) }},
		{name: "two disks are gone", words: []string{wordClear}, class: providers.ErrUnreachable,
			change: func(b *bench) { must(b.t, os.Remove(b.disks[1])); must(b.t, os.Remove(b.disks[2])) }},
		{name: "one disk refuses", words: []string{wordClear}, sent: "n1 reset, n1 reset, n1 reset",
			change: func(b *bench) { b.write(b.disks[0]+".refuses", "") }},
		{name: "two disks refuse", words: []string{wordClear}, sent: "n1 reset, n1 reset, n1 reset",
			class: providers.ErrUnreachable, change: func(b *bench) {
				b.write(b.disks[0]+".refuses", "")
				b.write(b.disks[2]+".refuses", "")
			}},
		{name: "message off", words: []string{wordClear}, sent: "n1 off, n1 off, n1 off",
			change: func(b *bench) { b.p.cfg.Message = wordOff }},
		{name: "a slot that its kubelet names", words: []string{wordClear}, class: providers.ErrPermanent,
			to: providers.Target{Node: "n1", ID: "n1", Claimed: true}},
		{name: "no name", words: []string{wordClear}, class: providers.ErrNotFound, to: providers.Target{Node: "n1"}},
		{name: "a name that is an option", words: []string{wordClear}, class: providers.ErrNotFound,
			to: providers.Target{Node: "n1", ID: "-d"}},
		{name: "a long name, which sbd cuts", words: []string{wordClear}, class: providers.ErrNotFound,
			to: providers.Target{Node: "n1", ID: strings.Repeat("n", 64)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, 3)
			b.set(tt.words...)
			if tt.change != nil {
				tt.change(b)
			}
			if tt.to.Node == "" {
				tt.to = n1
			}
			err := b.p.PowerOff(t.Context(), tt.to, func() error { return nil })
			if !errors.Is(err, tt.class) || (err == nil) != (tt.class == nil) {
				t.Errorf("got %v, want %v", err, tt.class)
			}
			if got := b.sent(); got != tt.sent {
				t.Errorf("got messages %q, want %q", got, tt.sent)
			}
		})
	}
}

// Nothing is written once it may not be, and nothing outlives the call.
func TestPowerOffIsPermitted(t *testing.T) {
	b := newBench(t, 3)
	gone := errors.New("not leading")
	if err := b.p.PowerOff(t.Context(), n1, func() error { return gone }); !errors.Is(err, gone) ||
		!errors.Is(err, providers.ErrNotSent) || b.sent() != "" {
		t.Errorf("got %v and messages %q, want ErrNotSent and none", err, b.sent())
	}
	if a := b.ask(providers.Target{Node: "n1", ID: "n1", Claimed: true}); a.State != providers.PowerUnknown ||
		!errors.Is(a.Err, providers.ErrPermanent) {
		t.Errorf("a slot that its kubelet names: got %s, %v; want no answer", a.State, a.Err)
	}
	if err := b.p.PowerOn(t.Context(), n1, func() error { return nil }); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("power on: got %v, want ErrPermanent", err)
	}
}

// A disk that hangs is as one that is lost: the others answer, and get the message.
func TestDiskHangs(t *testing.T) {
	const answers = 12 * time.Second // also on a busy machine
	b := newBench(t, 3)
	b.write(b.disks[0]+".hangs", "")
	within := func(limit time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		t.Cleanup(cancel)
		return ctx
	}
	if obs, err := b.p.State(within(answers), n1); obs.State != providers.PowerOn || err != nil {
		t.Errorf("one of three: got %s (%q), %v; want On", obs.State, obs.Raw, err)
	}
	if err := b.p.PowerOff(within(answers), n1, func() error { return nil }); err != nil ||
		b.sent() != "n1 reset, n1 reset" {
		t.Errorf("one of three: got %v and messages %q, want the message on the others", err, b.sent())
	}
	b.write(b.disks[1]+".hangs", "")
	if obs, err := b.p.State(within(4*time.Second), n1); obs.State != providers.PowerUnknown ||
		!errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("two of three: got %s, %v; want ErrUnreachable", obs.State, err)
	}
}

// One list answers for all machines, and each fails for itself.
func TestStates(t *testing.T) {
	b := newBench(t, 1)
	b.set(wordReset)
	n0, bad := providers.Target{Node: "n0", ID: "n0"}, providers.Target{Node: "x", ID: "a b"}
	all := providers.AskAll(t.Context(), b.p, "disks", []providers.Target{n0, n1, bad},
		func() providers.Instant { return providers.InstantOf(b.now) })
	for i, want := range []providers.PowerState{providers.PowerOn, providers.PowerChanging, providers.PowerUnknown} {
		if all[i].State != want || (all[i].Err != nil) != (i == 2) {
			t.Errorf("target %d: got %s (%q), %v; want %s", i, all[i].State, all[i].Raw, all[i].Err, want)
		}
	}
	must(t, os.Remove(b.p.cfg.Command))
	if a := b.ask(n1); !errors.Is(a.Err, providers.ErrPermanent) {
		t.Errorf("without sbd: got %v, want ErrPermanent", a.Err)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string // the path of the fault; "": none
	}{
		{"good", func(*Config) {}, ""},
		{"no device", func(c *Config) { c.Devices = nil }, "devices"},
		{"four devices", func(c *Config) { c.Devices = []string{"/a", "/b", "/c", "/d"} }, "devices"},
		{"a device twice", func(c *Config) { c.Devices = []string{"/a", "/a"} }, "devices[1]"},
		{"a device in another spelling", func(c *Config) { c.Devices = []string{"/a", "/x/../a"} }, "devices[1]"},
		{"a relative device", func(c *Config) { c.Devices = []string{"sda"} }, "devices[0]"},
		{"two in one", func(c *Config) { c.Devices = []string{"/a;/b"} }, "devices[0]"},
		{"a relative command", func(c *Config) { c.Command = "sbd" }, "command"},
		{"a message that fences nothing", func(c *Config) { c.Message = "test" }, "message"},
		{"no margin", func(c *Config) { c.Margin = 0 }, "margin"},
	} {
		c := Type().NewConfig().(*Config)
		c.Devices = []string{"/dev/a", "/dev/b", "/dev/c"}
		tt.change(c)
		faults := c.Validate()
		if tt.want == "" && len(faults) > 0 || tt.want != "" && (len(faults) != 1 || faults[0].Path != tt.want) {
			t.Errorf("%s: got %v, want a fault of %q alone", tt.name, faults, tt.want)
		}
	}
}
