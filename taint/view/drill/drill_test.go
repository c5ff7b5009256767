package drill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	yes, no, perhaps = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	uuid             = "38947555-7742-3448-3784-823347823834"
)

func answered(s providers.PowerState, told string) Device {
	return Device{Name: "racks/1", Target: providers.Target{Node: "n1", SystemUUID: uuid, Claimed: true},
		Answer: providers.Answer{Observation: providers.Observation{State: s, Raw: "word", SystemUUID: told}}}
}

func failed(class error) Device {
	d := answered(providers.PowerUnknown, "")
	d.Answer.Err = providers.WithClass(class, errors.New("dial tcp 10.0.0.7:443: port 40312"))
	return d
}

func TestJudge(t *testing.T) {
	on, off := answered(providers.PowerOn, uuid), answered(providers.PowerOff, uuid)
	liar, barred, silent := off, on, answered(providers.PowerOn, "")
	lit, dark := on, off
	lit.Feeds, dark.Feeds = true, true
	liar.FalseOff, barred.NoPower = "n9", "its node was never pinned"
	listed := failed(providers.ErrDenied) // nothing against it but that it does not answer
	listed.Target.Claimed = false
	known := func(s providers.PowerState) providers.Answer {
		return providers.Answer{Observation: providers.Observation{State: s}}
	}
	none := providers.Answer{}
	for _, tt := range []struct {
		name   string
		seen   Facts
		status corev1.ConditionStatus
		reason reason.Reason
		result string
		detail string
	}{
		{"on", Facts{Devices: []Device{on}, Verdict: known(providers.PowerOn), PowerOff: true}, yes, reason.Answers,
			"ok", "Device racks/1 answers: On."},
		{"off", Facts{Devices: []Device{off}, Verdict: known(providers.PowerOff)}, yes, reason.Answers, "ok",
			"answers: Off"},
		{"changing",
			Facts{Devices: []Device{answered(providers.PowerChanging, uuid)}, Verdict: known(providers.PowerChanging)},
			yes, reason.Answers, "ok", ""},
		{"a word that nobody knows", Facts{Devices: []Device{answered(providers.PowerUnknown, uuid)}, Verdict: none},
			no, reason.NotAnswering, "unknown", `unknown word ("word")`},
		{"refused", Facts{Devices: []Device{failed(providers.ErrDenied)}, Verdict: none}, no, reason.NotAnswering,
			"denied", "(denied: dial"},
		{"untrusted", Facts{Devices: []Device{failed(providers.ErrUntrusted)}, Verdict: none, Before: yes}, no,
			reason.NotAnswering, "untrusted", ""},
		{"another machine's", Facts{Devices: []Device{failed(providers.ErrIdentity)}, Verdict: none, Before: yes}, no,
			reason.NotAnswering, "identity", ""},
		{"not reached, never seen", Facts{Devices: []Device{failed(providers.ErrUnreachable)}, Verdict: none}, perhaps,
			reason.NotAnswering, "unreachable", ""},
		{"not reached, was well",
			Facts{Devices: []Device{failed(providers.ErrUnreachable)}, Verdict: none, Before: yes}, perhaps,
			reason.NotAnswering, "unreachable", ""},
		{"not reached, twice",
			Facts{Devices: []Device{failed(providers.ErrUnreachable)}, Verdict: none, Before: perhaps}, no,
			reason.NotAnswering, "unreachable", ""},
		{"not reached, as ever", Facts{Devices: []Device{failed(providers.ErrUnreachable)}, Verdict: none, Before: no},
			no, reason.NotAnswering, "unreachable", ""},
		{"one is not reached, the other refuses",
			Facts{Devices: []Device{failed(providers.ErrUnreachable), failed(providers.ErrDenied)}, Verdict: none,
				Before: yes}, no, reason.NotAnswering, "unreachable", ""},
		{"one of two answers",
			Facts{Devices: []Device{failed(providers.ErrDenied), on}, Verdict: known(providers.PowerOn)}, yes,
			reason.Answers, "denied", "Another device of this node answers."},
		{"they disagree",
			Facts{Devices: []Device{on, off}, Verdict: providers.Answer{Err: proof.ErrDisagree}, Before: yes}, no,
			reason.Disagree, "disagree", "contradict"},
		{"a liar", Facts{Devices: []Device{liar}, Verdict: none, Before: yes}, no, reason.Distrusted, "distrusted",
			"record of node n9"},
		{"a liar says On", Facts{Devices: []Device{liar}, Verdict: known(providers.PowerOn), Before: yes}, no,
			reason.Distrusted, "distrusted", "record of node n9"},
		{"a liar says On, and another does not answer", Facts{Devices: []Device{failed(providers.ErrDenied), liar},
			Verdict: known(providers.PowerOn), PowerOff: true}, no, reason.Distrusted, "distrusted", "(denied: dial"},
		{"an Off that took too long", Facts{Devices: []Device{off}, Verdict: none, Before: yes}, no,
			reason.NotAnswering, "unknown", ""},
		{"nobody", Facts{NoDeviceErr: errors.New("no rule claims the node")}, no, reason.NoMachine, "no_machine",
			"will not be fenced"},
		{"not believed", Facts{NoDeviceErr: errors.New("its pin is another's"), NotBelieved: true}, no,
			reason.NotBelieved, "no_machine", "its pin is another's"},
		{"tells no UUID, observe", Facts{Devices: []Device{silent}, Verdict: known(providers.PowerOn)}, yes,
			reason.Answers, "ok", ""},
		{"tells no UUID, fence", Facts{Devices: []Device{silent}, Verdict: known(providers.PowerOn), PowerOff: true},
			no, reason.NoPowerOff, "no_power", "could not be powered off"},
		{"may not be powered off", Facts{Devices: []Device{barred}, Verdict: known(providers.PowerOn), PowerOff: true},
			no, reason.NoPowerOff, "no_power", "never pinned"},
		{"another device may", Facts{Devices: []Device{barred, on}, Verdict: known(providers.PowerOn), PowerOff: true},
			yes, reason.Answers, "ok", ""},
		{"the one that may does not answer",
			Facts{Devices: []Device{barred, listed}, Verdict: known(providers.PowerOn), PowerOff: true}, no,
			reason.NoPowerOff, "no_power", ""},
		{"only an outlet answers, observe",
			Facts{Devices: []Device{lit, failed(providers.ErrDenied)}, Verdict: known(providers.PowerOn)},
			no, reason.NotAnswering, "only_outlets", "(denied: dial"},
		{"an outlet is all there is, observe",
			Facts{Devices: []Device{lit}, Verdict: known(providers.PowerOn), Before: yes},
			no, reason.NotAnswering, "only_outlets", "Only outlets answer."},
		{"only an outlet answers, the BMC is not reached, was well",
			Facts{Devices: []Device{lit, failed(providers.ErrUnreachable)}, Verdict: known(providers.PowerOn),
				Before: yes},
			perhaps, reason.NotAnswering, "only_outlets", "could not be fenced"},
		{"only an outlet answers, fence",
			Facts{Devices: []Device{lit, failed(providers.ErrDenied)}, Verdict: known(providers.PowerOn),
				PowerOff: true},
			yes, reason.Answers, "denied", "Another device"},
		{"only an outlet answers, and it is off", Facts{Devices: []Device{dark}, Verdict: known(providers.PowerOff)},
			yes, reason.Answers, "ok", ""},
		{"an outlet and a BMC answer, observe", Facts{Devices: []Device{on, lit}, Verdict: known(providers.PowerOn)},
			yes, reason.Answers, "ok", ""},
		{"an outlet and a liar answer, observe", Facts{Devices: []Device{liar, lit}, Verdict: known(providers.PowerOn)},
			no, reason.NotAnswering, "only_outlets", "record of node n9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := FindingOf(tt.seen)
			if f.Fenceable != tt.status || f.Reason != tt.reason || f.Result != tt.result ||
				f.OK() != (tt.result == "ok") || !strings.Contains(f.Detail, tt.detail) {
				t.Errorf("got %+v, want %s, %s, %s, %q", f, tt.status, tt.reason, tt.result, tt.detail)
			}
			if f.Message == "" || strings.Contains(f.Message, "40312") {
				t.Errorf("the condition's message %q: want one without ports and times, which change each time",
					f.Message)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	nameless := failed(providers.ErrIdentity) // and the device told whose it is
	nameless.Target.SystemUUID, nameless.Answer.SystemUUID = "", uuid
	if got := nameless.IdentityResult(); got != "node has none" {
		t.Errorf("a node that tells nothing, and got no answer for that: got %q", got)
	}
	cloned := answered(providers.PowerOn, uuid)
	cloned.SameUUID = []string{"n2"}
	f := FindingOf(Facts{Devices: []Device{cloned}, Verdict: cloned.Answer})
	if cloned.IdentityResult() != "not unique" || !strings.Contains(f.Message, "same system UUID as node n2") {
		t.Errorf("another node reports the same UUID: got %q and %q, want a warning that names it",
			cloned.IdentityResult(), f.Message)
	}
	for want, d := range map[string]Device{
		"confirmed":       answered(providers.PowerOn, strings.ToUpper(uuid)),
		"not told":        answered(providers.PowerOn, "00000000-0000-0000-0000-000000000000"),
		"another machine": failed(providers.ErrIdentity),
		"not known":       failed(providers.ErrDenied),
		"node has none": {
			Answer: providers.Answer{Observation: providers.Observation{State: providers.PowerOn, SystemUUID: uuid}}},
	} {
		if got := d.IdentityResult(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// play runs a plan over nodes for that long, each drill taking a second, and returns when each was begun.
func play(p *Plan, nodes []string, d time.Duration, ok func(string) bool) map[string][]time.Duration {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type end struct {
		at   time.Time
		node string
	}
	var under []end
	begun := map[string][]time.Duration{}
	p.SetNodes(nodes)
	for now := start; now.Before(start.Add(d)); {
		for len(under) > 0 && !under[0].at.After(now) {
			p.FinishDrill(under[0].node, ok(under[0].node), now)
			under = under[1:]
		}
		node, wait := p.Next(now)
		if node != "" {
			begun[node] = append(begun[node], now.Sub(start))
			under = append(under, end{now.Add(time.Second), node})
			continue
		}
		now = now.Add(max(wait, time.Millisecond))
	}
	return begun
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("n%04d", i))
	}
	return out
}

// More nodes than can be asked every five minutes take as long as the pace allows: no hour has more than five thousand
// drills, and no node is left out.
func TestPlanHasAPace(t *testing.T) {
	var all []time.Duration
	for node, at := range play(&Plan{Every: 5 * time.Minute, RetryEvery: 30 * time.Second}, names(600), 130*time.Minute,
		func(n string) bool { return n > "n0200" }) {
		if len(at) == 0 {
			t.Errorf("%s was never asked", node)
		}
		all = append(all, at...)
	}
	slices.Sort(all)
	for i := range all {
		if i >= MaxPerHour && all[i]-all[i-MaxPerHour] < time.Hour {
			t.Fatalf("%d were asked within %s", MaxPerHour+1, all[i]-all[i-MaxPerHour])
		}
	}
	if len(all) < 2*MaxPerHour {
		t.Errorf("got %d in two hours, want the pace used", len(all))
	}
}

// Every node is asked soon after the start, then at moments of its own, and again soon where it did not end well.
func TestPlanSpreads(t *testing.T) {
	const every, again = 5 * time.Minute, 30 * time.Second
	got := play(&Plan{Every: every, RetryEvery: again}, names(60), time.Hour,
		func(n string) bool { return n != "n0007" })
	perMinute := map[time.Duration]int{}
	for _, node := range names(60) {
		at := got[node]
		if node == "n0007" {
			if len(at) < 90 {
				t.Errorf("%s does not end well, and was asked %d times in an hour", node, len(at))
			}
			continue
		}
		if len(at) < 11 || at[0] > time.Minute {
			t.Fatalf("%s was asked at %v, want soon and then every %s", node, at, every)
		}
		for i := 2; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < every || gap > every+20*time.Second {
				t.Errorf("%s was asked %s after the time before, want %s", node, gap, every)
			}
		}
		for _, a := range at[2:] {
			perMinute[a.Truncate(time.Minute)]++
		}
	}
	for minute, n := range perMinute {
		if n > 30 { // 12 on the average
			t.Errorf("%d of 60 nodes were asked in minute %s: they are not spread", n, minute)
		}
	}
}

// No more than MaxAtOnce are under way; a node that came is asked, one that is gone is forgotten, also while it is
// under way.
func TestPlanKnowsItsNodes(t *testing.T) {
	p := &Plan{Every: 5 * time.Minute, RetryEvery: 30 * time.Second}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var under []string
	p.SetNodes(names(20))
	for i := range 100 {
		if i == 50 { // they are still under way
			p.SetNodes(names(20))
		}
		node, _ := p.Next(now)
		if node != "" {
			under = append(under, node)
		}
		now = now.Add(10 * time.Second)
	}
	if len(under) != MaxAtOnce || len(slices.Compact(slices.Sorted(slices.Values(under)))) != MaxAtOnce {
		t.Errorf("under way: got %q, want %d of them, each once", under, MaxAtOnce)
	}
	for _, node := range under {
		p.FinishDrill(node, true, now)
	}
	p.SetNodes([]string{"new"})
	if node, _ := p.Next(now); node != "new" {
		t.Errorf("got %q, want the new node", node)
	}
	p.FinishDrill("n0000", true, now)
	if len(p.nodes) != 1 {
		t.Errorf("got %d nodes remembered, want 1", len(p.nodes))
	}
	p.FinishDrill("new", true, now)
	if node, wait := p.Next(now.Add(time.Minute)); node == "new" && wait > 0 {
		t.Errorf("got a node and a wait of %s", wait)
	}
	p.SetNodes(nil)
	if node, wait := p.Next(now.Add(time.Hour)); node != "" || wait <= 0 {
		t.Errorf("no node: got %q, %s", node, wait)
	}
}

// A node whose machine changed is asked at once, but no sooner than RetryEvery after its last drill.
func TestPlanBringsForward(t *testing.T) {
	const every, again = 5 * time.Minute, 30 * time.Second
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		changes []time.Duration // since the first drill began; it ends after a second
		within  time.Duration   // looked at for so long
		want    []time.Duration // when the later drills begin
	}{
		{"none", nil, 4 * time.Minute, nil},
		{"long after the drill", []time.Duration{2 * time.Minute}, 4 * time.Minute, []time.Duration{2 * time.Minute}},
		{"right after the drill", []time.Duration{2 * time.Second}, 4 * time.Minute,
			[]time.Duration{time.Second + again}},
		{"during the drill", []time.Duration{500 * time.Millisecond}, 4 * time.Minute,
			[]time.Duration{time.Second + again}},
		{"all the time", []time.Duration{41 * time.Second, 43 * time.Second, 45 * time.Second, 50 * time.Second},
			75 * time.Second, []time.Duration{41 * time.Second, 72 * time.Second}},
	} {
		p := &Plan{Every: every, RetryEvery: again}
		p.SetNodes([]string{"n"})
		p.nodes["n"] = turn{due: start, ended: start.Add(-every), spread: true} // the next are every apart
		var got []time.Duration
		for now := start; now.Before(start.Add(tt.within)); now = now.Add(100 * time.Millisecond) {
			if t := p.nodes["n"]; t.inFlight && now.Sub(start) == time.Second || len(got) > 1 && t.inFlight &&
				now.Sub(start) == got[len(got)-1]+time.Second {
				p.FinishDrill("n", true, now)
			}
			if slices.Contains(tt.changes, now.Sub(start)) {
				p.BringForward("n", now)
				p.BringForward("gone", now)
			}
			if node, _ := p.Next(now); node != "" {
				got = append(got, now.Sub(start))
			}
		}
		if len(got) == 0 || got[0] != 0 || !slices.EqualFunc(got[1:], tt.want, func(a, b time.Duration) bool {
			return a >= b && a < b+time.Second
		}) {
			t.Errorf("%s: drills began at %v, want 0s and then %v", tt.name, got, tt.want)
		}
	}
}

// A machine that the configuration keeps on can be fenced once it is off: that is a warning, and no fault.
func TestKeptOnIsAWarning(t *testing.T) {
	on := answered(providers.PowerOn, uuid)
	seen := Facts{
		Devices: []Device{on}, Verdict: providers.Answer{Observation: providers.Observation{State: providers.PowerOn}},
		PowerOff: true,
		KeptOn:   "it is a host of KubeVirt",
	}
	f := FindingOf(seen)
	if f.Fenceable != yes || !f.OK() ||
		!strings.Contains(f.Warning, "it is not powered off: it is a host of KubeVirt.") ||
		!strings.HasSuffix(f.Message, f.Warning) {
		t.Errorf("got %+v, want a warning", f)
	}
	barred := seen
	barred.Devices = []Device{on}
	barred.Devices[0].NoPower = "its node was never pinned"
	if f := FindingOf(barred); f.Fenceable != yes {
		t.Errorf("no power-off is wanted, and the device takes none: got %+v", f)
	}
	seen.PowerOff = false
	if f := FindingOf(seen); f.Warning != "" {
		t.Errorf("mode observe: got warning %q", f.Warning)
	}
	seen.PowerOff, seen.Verdict = true, providers.Answer{}
	seen.Devices = []Device{failed(providers.ErrDenied)}
	if f := FindingOf(seen); f.Fenceable != no || f.Warning == "" {
		t.Errorf("no device answers: got %+v, want both", f)
	}
}

// What a device says of an Off to come is a warning, and no fault.
func TestDoubtIsAWarning(t *testing.T) {
	on := answered(providers.PowerOn, uuid)
	on.Answer.Doubt = "a chassis that the system links says On"
	seen := Facts{
		Devices: []Device{on}, Verdict: providers.Answer{Observation: providers.Observation{State: providers.PowerOn}},
		PowerOff: true,
		KeptOn:   "it is a host of KubeVirt",
	}
	f := FindingOf(seen)
	want := "it is a host of KubeVirt. Device racks/1: a chassis that the system links says On."
	if f.Fenceable != yes || !f.OK() ||
		!strings.HasSuffix(f.Warning, want) || !strings.HasSuffix(f.Message, f.Warning) {
		t.Errorf("got %+v, want a warning", f)
	}
}
