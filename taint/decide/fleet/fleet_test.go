package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

var start = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// cluster is a fleet of nodes whose kubelets renew a Lease of 40 s every 10 s, except the silent ones.
type cluster struct {
	t      *testing.T
	f      Fleet
	now    providers.Instant
	rv     int
	silent map[string]bool
	names  []string
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, now: start, silent: map[string]bool{}}
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		c.names = append(c.names, name)
		c.f.AddNode(name, c.now)
	}
	c.renew()
	return c
}

func (c *cluster) renew() {
	for _, n := range c.names {
		if !c.silent[n] {
			c.beat(n)
		}
	}
}

func (c *cluster) beat(n string) {
	c.t.Helper()
	c.rv++
	if !c.f.ApplyLease(n, fmt.Sprint(c.rv), 40*time.Second, c.now) {
		c.t.Errorf("%s: a new resourceVersion is no renewal", n)
	}
}

// pass lets time go by in steps of a second; those that beat renew every 10 s.
func (c *cluster) pass(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(time.Second)
		if int(c.now.Sub(start)/time.Second)%10 == 0 {
			c.renew()
		}
		c.f.Tick(c.now)
	}
}

func (c *cluster) view(n string) View { return c.f.View(n, c.now) }

func (c *cluster) silence(names ...string) {
	clear(c.silent)
	for _, n := range names {
		c.silent[n] = true
	}
}

// counts is how long a node's silence has counted; -1: it does not.
func (c *cluster) counts(n string) time.Duration {
	v := c.view(n)
	if v.SilentSince.IsZero() {
		return -1
	}
	return c.now.Sub(v.SilentSince)
}

func TestSilence(t *testing.T) {
	c := newCluster(t, 3)
	c.silence("n3")
	c.pass(15 * time.Second)
	if v := c.view("n3"); v.Stale || v.Missed || v.Others != 2 || v.Fresh != 2 || !v.Heard {
		t.Errorf("15 s silent: %+v", v)
	}
	c.pass(time.Second)
	if v := c.view("n3"); v.Stale || !v.Missed {
		t.Errorf("16 s silent, one renewal missed: %+v", v)
	}
	c.pass(9 * time.Second)
	if v := c.view("n3"); v.Stale {
		t.Errorf("25 s silent: %+v", v)
	}
	c.pass(time.Second)
	if v := c.view("n3"); !v.Stale || v.Others != 2 || v.Fresh != 2 {
		t.Errorf("26 s silent, two renewals missed: %+v", v)
	}
	if v := c.view("n1"); v.Stale || v.Others != 2 || v.Fresh != 1 || !v.SilentSince.IsZero() {
		t.Errorf("beside a silent node: %+v", v)
	}
	c.pass(34 * time.Second)
	if got := c.counts("n3"); got != 35*time.Second {
		t.Errorf("60 s silent: it counted for %s, want 35s", got)
	}
	c.beat("n3")
	if v := c.view("n3"); v.Stale || v.Missed || !v.SilentSince.IsZero() {
		t.Errorf("after a heartbeat: %+v", v)
	}
}

// An outage of the API server: all nodes are silent for 110 s, and then they come back one after the other. The silence
// of the last ones does not count before most are heard, and then it starts again.
func TestOutageEnds(t *testing.T) {
	c := newCluster(t, 3)
	c.pass(10 * time.Second)
	c.silence("n1", "n2", "n3")
	c.pass(110 * time.Second)
	for _, n := range c.names {
		if v := c.view(n); v.Heard || !v.AllSilent() || c.counts(n) != -1 {
			t.Errorf("%s in the outage: %+v", n, v)
		}
	}
	if !c.f.IsSilent() {
		t.Error("the fleet is not silent")
	}
	c.silence("n2", "n3")
	c.beat("n1")
	c.pass(4 * time.Second)
	for _, n := range []string{"n2", "n3"} {
		if v := c.view(n); v.Heard || v.AllSilent() || c.counts(n) != -1 {
			t.Errorf("%s, one of three is back: %+v", n, v)
		}
	}
	c.silence("n3")
	c.beat("n2")
	if v := c.view("n3"); !v.Heard || c.counts("n3") != -25*time.Second {
		t.Errorf("n3, two of three are back: %+v", v)
	}
	c.pass(30 * time.Second)
	if got := c.counts("n3"); got != 5*time.Second {
		t.Errorf("n3, silent for 30 s among nodes that are heard: it counted for %s, want 5s", got)
	}
}

// An outage of 22 s makes no node stale that renewed just before it. The node whose turn was next had been silent for
// 10 s then.
func TestShortOutage(t *testing.T) {
	c := newCluster(t, 4)
	c.pass(10 * time.Second)
	c.silence("n4")
	c.pass(10 * time.Second) // n1 to n3 renew, n4 would have, a moment later
	c.silence(c.names...)
	c.pass(22 * time.Second)
	if v := c.view("n4"); !v.Stale || v.Heard || v.Fresh != 3 || c.counts("n4") != -1 {
		t.Errorf("in the outage: %+v", v)
	}
	c.beat("n1")
	c.beat("n2")
	if got := c.counts("n4"); got != -25*time.Second {
		t.Errorf("after it n4's silence counted for %s, want -25s", got)
	}
}

// A process that was stopped, or suspended, finds all nodes silent. Silence counts again once most are heard.
func TestProcessStopped(t *testing.T) {
	for _, tt := range []struct {
		name       string
		wall, mono time.Duration
	}{
		{"stopped", time.Hour, time.Hour},
		{"suspended", time.Hour, time.Second},
		{"the wall clock stood still", 0, time.Hour},
	} {
		c := newCluster(t, 4)
		c.pass(10 * time.Second)
		c.now = providers.Instant{Wall: c.now.Wall.Add(tt.wall), Mono: c.now.Mono + tt.mono}
		if v := c.view("n3"); v.Heard || v.Stale != (tt.mono == time.Hour) {
			t.Errorf("%s: heard %t, n3 stale %t", tt.name, v.Heard, v.Stale)
		}
		c.beat("n1")
		c.beat("n2")
		if v := c.view("n3"); !v.Heard || v.HeardSince != c.now {
			t.Errorf("%s: heard %t since %s, want since %s", tt.name, v.Heard, v.HeardSince, c.now)
		}
	}
}

// A process that begins to lead takes all nodes for heard. Which of them are silent is known once the longest Lease is
// stale.
func TestSettled(t *testing.T) {
	for _, lease := range []time.Duration{10 * time.Second, DefaultDuration, MaxDuration} {
		c := newCluster(t, 5)
		c.f.ApplyLease("n4", "99", lease, c.now)
		c.f.ApplyLease("n3", "100", lease, c.now)
		longest := max(lease, DefaultDuration)
		c.silence("n3", "n4")
		c.pass(shareOf(longest, staleAfter).Truncate(time.Second))
		if v := c.view("n1"); v.IsSettled(c.now) {
			t.Errorf("a Lease of %s: settled before it can be stale", lease)
		}
		c.pass(time.Second)
		if v := c.view("n3"); !v.IsSettled(c.now) || !v.Stale {
			t.Errorf("a Lease of %s: settled %t, stale %t", lease, v.IsSettled(c.now), v.Stale)
		}
		c.f.RemoveNode("n3", c.now)
		c.f.RemoveNode("n4", c.now)
		c.pass(time.Minute)
		if v := c.view("n1"); v.Longest != DefaultDuration {
			t.Errorf("a Lease of %s: its node is gone, and the longest is %s", lease, v.Longest)
		}
	}
}

// One kubelet's long Lease does not delay what a new leader may know of all others, and is named.
func TestOneLongLease(t *testing.T) {
	c := newCluster(t, 4)
	c.f.ApplyLease("n4", "100", MaxDuration, c.now)
	c.silence("n4")
	c.pass(shareOf(DefaultDuration, staleAfter).Truncate(time.Second) + time.Second)
	if v := c.view("n1"); !v.IsSettled(c.now) || v.LongLease != 0 {
		t.Errorf("n1: settled %t, long Lease %s, want settled and none", v.IsSettled(c.now), v.LongLease)
	}
	if v := c.view("n4"); v.LongLease != MaxDuration {
		t.Errorf("n4: got a long Lease of %s, want %s", v.LongLease, MaxDuration)
	}
}

// Kubernetes has two heartbeats. Silence counts from the last of either kind.
func TestStatusIsAHeartbeat(t *testing.T) {
	look := func(rv int, ready corev1.ConditionStatus, at time.Duration) taint.Look {
		return taint.Look{Exists: true, Name: "n1", UID: "u", BootID: "b", ResourceVersion: fmt.Sprint(rv),
			Ready: ready, Heartbeat: start.Add(at).Wall}
	}
	c := newCluster(t, 4)
	c.f.ApplyLook(look(10, corev1.ConditionTrue, 0), c.now)
	c.silence("n1") // its Lease
	c.pass(20 * time.Second)
	c.f.ApplyLook(look(11, corev1.ConditionTrue, 0), c.now) // another client changed the Node
	if v := c.view("n1"); !v.Alive.Before(c.now) {
		t.Error("a change that no kubelet made is a sign of life")
	}
	c.f.ApplyLook(look(12, corev1.ConditionTrue, 20*time.Second), c.now)
	if v := c.view("n1"); v.Stale || v.Alive != c.now {
		t.Errorf("the kubelet wrote a status: got stale %t, alive at %s, want not stale and now", v.Stale, v.Alive)
	}
	c.pass(24 * time.Second)
	if v := c.view("n1"); v.Stale || !v.LeaseMissing || !v.Heard {
		t.Errorf("24 s after a status: got stale %t, Lease missing %t, heard %t", v.Stale, v.LeaseMissing, v.Heard)
	}
	c.pass(2 * time.Second)
	if v := c.view("n1"); !v.Stale {
		t.Error("26 s after the last sign of either kind: not stale")
	}
	// The node lifecycle controller writes Unknown, and the kubelet Ready, within the second of its last status.
	c.f.ApplyLook(look(13, corev1.ConditionUnknown, 20*time.Second), c.now)
	c.f.ApplyLook(look(14, corev1.ConditionTrue, 20*time.Second), c.now)
	if v := c.view("n1"); v.Stale || v.Alive != c.now {
		t.Errorf("Ready turned True: got stale %t, alive at %s, want not stale and now", v.Stale, v.Alive)
	}
	c.pass(26 * time.Second)
	if v := c.view("n1"); !v.Stale || v.SilentSince.IsZero() || v.SilentSince.After(c.now) {
		t.Errorf("26 s later: got stale %t, silent since %s", v.Stale, v.SilentSince)
	}
}

// A Node without any trace of a kubelet counts neither way after its first minutes, however many there are. One that
// had a heartbeat counts as silent for good, also without its Lease.
func TestEmptyNodes(t *testing.T) {
	c := newCluster(t, 4)
	for i := range 6 {
		name := fmt.Sprintf("empty-%d", i)
		c.f.ApplyLook(taint.Look{Exists: true, Name: name, UID: name, ResourceVersion: "1"}, c.now)
	}
	c.pass(time.Minute)
	if v := c.view("n1"); v.Heard {
		t.Error("six of ten new Nodes are silent for a minute: most are heard")
	}
	c.pass(90 * time.Second)
	if v := c.view("n1"); !v.Heard || v.Others != 3 || v.Fresh != 3 {
		t.Errorf("after their first minutes: got heard %t, %d others, %d fresh, want true, 3 and 3", v.Heard, v.Others,
			v.Fresh)
	}
	c.f.ApplyLook(taint.Look{Exists: true, Name: "empty-0", UID: "empty-0", ResourceVersion: "2",
		Heartbeat: start.Add(time.Minute).Wall}, c.now)
	if v := c.view("n1"); v.Others != 4 {
		t.Errorf("one that had a heartbeat: got %d others, want it counted", v.Others)
	}
	// Nodes that had a status, and whose Leases were deleted, are silent nodes.
	c = newCluster(t, 4)
	for i := range 6 {
		name := fmt.Sprintf("real-%d", i)
		c.f.ApplyLook(taint.Look{Exists: true, Name: name, UID: name, ResourceVersion: "1",
			Heartbeat: start.Wall}, c.now)
	}
	c.pass(10 * time.Minute)
	if v := c.view("n1"); v.Heard || v.Others != 9 {
		t.Errorf("six silent nodes of ten: got heard %t, %d others, want false and 9", v.Heard, v.Others)
	}
}

// A Tick that reports no node has missed none: a fleet that compares all nodes each time reports the same.
func TestTickMissesNothing(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var f, full Fleet
		now := start
		for step := range 400 {
			now = now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond * time.Duration(1+seed%3*20))
			switch rnd.IntN(200) {
			case 0:
				now = now.Add(15 * time.Minute) // it was stopped
			case 1:
				now = now.Add(-time.Hour) // its clock was set back
			}
			full.scanNodes(now)
			name := fmt.Sprint(rnd.IntN(1 + int(seed%12)))
			does, duration, rv := rnd.IntN(20), time.Duration(rnd.IntN(120))*time.Second, fmt.Sprint(step+1)
			silent := providers.Answer{Observation: providers.Observation{State: providers.PowerUnknown}, Got: now,
				Err: providers.ErrUnreachable}
			for _, one := range []*Fleet{&f, &full} {
				switch {
				case does == 0:
					one.RemoveNode(name, now)
				case does < 3:
					one.AddNode(name, now)
				case does == 3:
					one.ApplyReachability(name, silent)
				case does == 4:
					one.ApplyReachability(name,
						providers.Answer{Observation: providers.Observation{State: providers.PowerOn}, Got: now})
				case does < 15:
					one.ApplyLease(name, rv, duration, now)
				}
			}
			got, want := f.Tick(now), full.Tick(now)
			slices.Sort(got)
			slices.Sort(want)
			f.all.floor, full.all.floor = Amount{Percent: 100}, Amount{Percent: 100} // who is not healthy is named
			part, wantPart := f.partOf(&f.all, now), full.partOf(&full.all, now)
			if !slices.Equal(slices.Compact(got), slices.Compact(want)) || f.fresh != full.fresh ||
				f.beating != full.beating ||
				f.heardSince != full.heardSince || part != wantPart {
				t.Fatalf("seed %d, step %d: got changed %v, %d fresh, %d beating, heard since %s, %+v; want %v, %d, "+
					"%d, %s, %+v",
					seed, step, got, f.fresh, f.beating, f.heardSince, part, want, full.fresh, full.beating,
					full.heardSince, wantPart)
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for _, tt := range []struct {
		nodes, silent int
		want          bool
	}{{1, 1, false}, {1, 0, false}, {2, 1, true}, {3, 1, true}, {3, 2, false}, {4, 2, true}, {5, 3, false},
		{100, 50, true}, {100, 51, false}} {
		c := newCluster(t, tt.nodes)
		c.silence(c.names[:tt.silent]...)
		c.pass(30 * time.Second)
		if v := c.view("n1"); v.Heard != tt.want {
			t.Errorf("%d of %d silent: heard %v, want %v", tt.silent, tt.nodes, v.Heard, tt.want)
		}
	}
}

// A Lease without a Node counts for nothing. A Node that appears after its Lease is silent from then on.
func TestLeaseWithoutNode(t *testing.T) {
	c := newCluster(t, 2)
	for i := range 10 {
		c.f.ApplyLease(fmt.Sprintf("gone%d", i), "1", 40*time.Second, c.now)
	}
	c.silence("n1", "n2")
	c.pass(20 * time.Second)
	for i := range 10 {
		c.f.ApplyLease(fmt.Sprintf("gone%d", i), "2", 40*time.Second, c.now)
	}
	c.pass(10 * time.Second)
	if v := c.view("n1"); v.Heard || v.Others != 1 || v.Fresh != 0 {
		t.Errorf("among Leases without Nodes: %+v", v)
	}
	c.f.AddNode("gone1", c.now)
	if v := c.view("n1"); v.Others != 2 || v.Fresh != 1 {
		t.Errorf("with one of them: %+v", v)
	}
	c.f.RemoveNode("gone1", c.now)
	c.f.RemoveNode("n2", c.now)
	if v := c.view("n1"); v.Others != 0 || v.Fresh != 0 || v.Heard {
		t.Errorf("alone: %+v", v)
	}
}

func TestLease(t *testing.T) {
	var f Fleet
	f.AddNode("n1", start)
	if f.ApplyLease("n1", "", 0, start) {
		t.Error("no Lease at all is a renewal")
	}
	for _, tt := range []struct {
		rv   string
		at   time.Duration
		want bool
		why  string
	}{
		{"7", 0, true, "the first"},
		{"7", time.Second, false, "delivered again by a relist"},
		{"8", 2 * time.Second, true, "a renewal"},
		{"7", 3 * time.Second, false, "an informer that caught up"},
		{"7", 2*time.Second + catchUp, true, "a cluster that was restored from a backup"},
		{"not a number", 3 * time.Minute, true, "another kind of version"},
	} {
		if got := f.ApplyLease("n1", tt.rv, 40*time.Second, start.Add(tt.at)); got != tt.want {
			t.Errorf("%s (%s): renewed %v, want %v", tt.rv, tt.why, got, tt.want)
		}
	}
}

// A heartbeat is a change that this process saw: not the first sight of a Lease, nor one that is delivered again.
func TestBeat(t *testing.T) {
	var f Fleet
	f.AddNode("n1", start)
	for i, tt := range []struct {
		rv   string
		want time.Duration // zero: none yet
	}{{"7", 0}, {"7", 0}, {"8", 2 * time.Second}, {"7", 2 * time.Second}, {"8", 2 * time.Second},
		{"9", 5 * time.Second}} {
		now := start.Add(time.Duration(i) * time.Second)
		f.ApplyLease("n1", tt.rv, 40*time.Second, now)
		want := providers.Instant{}
		if tt.want > 0 {
			want = start.Add(tt.want)
		}
		if got := f.View("n1", now).Beat; !got.Equal(want) {
			t.Errorf("after %d: got %s, want %s", i+1, got, want)
		}
	}
	f.RemoveNode("n1", start)
	if got := f.View("n1", start).Beat; !got.IsZero() {
		t.Errorf("a Node that is gone was heard at %s", got)
	}
}

// A Lease that says it lasts for ever would make a dead node look fresh for ever.
func TestLeaseDurationIsBounded(t *testing.T) {
	for _, tt := range []struct {
		says  time.Duration
		stale time.Duration // after it
		odd   bool
	}{
		{40 * time.Second, 25 * time.Second, false}, {0, 25 * time.Second, false},
		{10 * time.Second, 6250 * time.Millisecond, false},
		{5 * time.Minute, 187500 * time.Millisecond, false}, {2_000_000_000 * time.Second, 25 * time.Second, true},
		{301 * time.Second, 25 * time.Second, true}, {9 * time.Second, 25 * time.Second, true},
		{-time.Second, 25 * time.Second, true},
	} {
		var f Fleet
		f.AddNode("n1", start)
		f.ApplyLease("n1", "1", tt.says, start)
		if changed := f.Tick(start); slices.Contains(changed, "n1") != tt.odd {
			t.Errorf("%s: Tick reported %v", tt.says, changed)
		}
		if v := f.View("n1", start.Add(tt.stale)); v.Stale || v.OddLease != tt.odd {
			t.Errorf("%s: after %s %+v", tt.says, tt.stale, v)
		}
		if v := f.View("n1", start.Add(tt.stale+time.Millisecond)); !v.Stale {
			t.Errorf("%s: not stale after %s", tt.says, tt.stale)
		}
	}
}

func TestTickReportsChangedNodes(t *testing.T) {
	c := newCluster(t, 3)
	c.f.ApplyLease("no-node", "1", 0, c.now)
	if got := c.f.Tick(c.now); len(got) != 0 {
		t.Errorf("at the start: %v", got)
	}
	for now := c.now; now.Before(c.now.Add(30 * time.Second)); now = now.Add(time.Second) {
		c.f.View("n1", now) // a View between two Ticks does not hide the news
	}
	got := c.f.Tick(c.now.Add(30 * time.Second))
	slices.Sort(got)
	if !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("after 30 s of silence: %v", got)
	}
	if got := c.f.Tick(c.now.Add(31 * time.Second)); len(got) != 0 {
		t.Errorf("reported twice: %v", got)
	}
	c.now = c.now.Add(32 * time.Second)
	c.beat("n2")
	if got := c.f.Tick(c.now); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("after a heartbeat: %v", got)
	}
}

func TestHints(t *testing.T) {
	c := newCluster(t, 2)
	on := func(at providers.Instant) providers.Answer {
		return providers.Answer{Observation: providers.Observation{State: providers.PowerOn, At: at}}
	}
	c.f.ApplyAnswer("n9", on(c.now)) // no such node
	c.f.ApplyHint("n1", Push, c.now)
	c.f.ApplyAnswer("n1", on(c.now.Add(-time.Second)))
	c.f.ApplyAnswer("n1",
		providers.Answer{Observation: providers.Observation{State: providers.PowerOff, At: c.now.Add(time.Second)}})
	if v := c.view("n1"); v.Hint != Push || !v.HintAt.Equal(c.now) {
		t.Error("a hint is gone without an answer of On since")
	}
	if v := c.view("n2"); v.Hint != "" {
		t.Error("another node's hint")
	}
	c.f.ApplyAnswer("n1", on(c.now.Add(time.Second)))
	if v := c.view("n1"); v.Hint != "" {
		t.Error("an answer of On did not end the hint")
	}
	c.f.ApplyHint("n1", Push, c.now)
	if v := c.f.View("n1", c.now.Add(hintTTL+time.Millisecond)); v.Hint != "" || !v.HintAt.IsZero() {
		t.Error("a hint never ends")
	}
}

// On is remembered from any device that reports it, with the time when it was heard.
func TestOnIsRemembered(t *testing.T) {
	c := newCluster(t, 2)
	at := func(d time.Duration) providers.Instant { return c.now.Add(d) }
	c.f.ApplyOnAnswer("n9", at(0)) // unknown
	answer := func(s providers.PowerState, got providers.Instant) providers.Answer {
		return providers.Answer{Observation: providers.Observation{State: s, At: at(0)}, Got: got}
	}
	c.f.ApplyAnswer("n1", answer(providers.PowerOff, at(time.Second)))
	if v := c.view("n1"); !v.OnAt.IsZero() {
		t.Errorf("an answer of Off: got On at %s", v.OnAt.Wall)
	}
	c.f.ApplyAnswer("n1", answer(providers.PowerOn, at(2*time.Second)))
	if v := c.view("n1"); !v.OnAt.Equal(at(2 * time.Second)) {
		t.Errorf("an answer: got %s, want when it was there, %s", v.OnAt.Wall, at(2*time.Second).Wall)
	}
	c.f.ApplyOnAnswer("n1", at(3*time.Second))
	c.f.ApplyOnAnswer("n1", at(time.Second)) // late
	if v := c.view("n1"); !v.OnAt.Equal(at(3 * time.Second)) {
		t.Errorf("a push: got %s, want the newest, %s", v.OnAt.Wall, at(3*time.Second).Wall)
	}
	if v := c.view("n2"); !v.OnAt.IsZero() {
		t.Errorf("another node's: got %s", v.OnAt.Wall)
	}
}

// The poll and the question reach the same device. A hint from it neither replaces another device's report nor hides
// one.
func TestHintsOfSeveral(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hints []Source
		want  Source
		told  bool
	}{
		{"a poll's", []Source{Poll}, Poll, false},
		{"a line's", []Source{Line}, Line, true},
		{"a line's after a poll's", []Source{Poll, Line}, Line, true},
		{"a poll's after a line's", []Source{Line, Poll}, Line, true},
		{"a push after a line's", []Source{Line, Push}, Push, true},
	} {
		c := newCluster(t, 2)
		for _, by := range tt.hints {
			c.f.ApplyHint("n1", by, c.now)
		}
		if v := c.view("n1"); v.Hint != tt.want || v.HasOutsideHint() != tt.told {
			t.Errorf("%s: got %q, outside hint %v, want %q, %v", tt.name, v.Hint, v.HasOutsideHint(), tt.want, tt.told)
		}
	}
	if (View{}).HasOutsideHint() {
		t.Error("an outside hint without any hint")
	}
}

// Who was the first to make a node suspect since it was well, once.
func TestNoticed(t *testing.T) {
	look := func(c *cluster, ready corev1.ConditionStatus, rv string) {
		c.f.ApplyLook(taint.Look{Name: "n1", Exists: true, UID: "u", ResourceVersion: rv, Ready: ready}, c.now)
	}
	for _, tt := range []struct {
		name  string
		story func(c *cluster)
		want  Source
	}{
		{"nothing", func(*cluster) {}, ""},
		{"a hint", func(c *cluster) { c.f.ApplyHint("n1", Line, c.now) }, Line},
		{"two hints", func(c *cluster) { c.f.ApplyHint("n1", Poll, c.now); c.f.ApplyHint("n1", Push, c.now) }, Poll},
		{"a hint, then the Lease", func(c *cluster) {
			c.f.ApplyHint("n1", Line, c.now)
			c.now = c.now.Add(26 * time.Second)
			c.f.Tick(c.now)
		}, Line},
		{"the Lease, then a hint", func(c *cluster) {
			c.now = c.now.Add(26 * time.Second)
			c.f.Tick(c.now)
			c.f.ApplyHint("n1", Push, c.now)
		}, Lease},
		{"NotReady, then the Lease", func(c *cluster) {
			look(c, corev1.ConditionFalse, "8")
			c.now = c.now.Add(26 * time.Second)
			c.f.Tick(c.now)
		}, Ready},
		{"a hint that is over, then NotReady", func(c *cluster) {
			c.f.ApplyHint("n1", Line, c.now)
			c.now = c.now.Add(20 * time.Second)
			c.beat("n1")
			c.now = c.now.Add(hintTTL)
			c.beat("n1")
			look(c, corev1.ConditionUnknown, "9")
		}, Ready},
	} {
		c := newCluster(t, 2)
		look(c, corev1.ConditionTrue, "7")
		c.now = c.now.Add(time.Second)
		c.beat("n1")
		began := c.now
		tt.story(c)
		c.now = c.now.Add(time.Second)
		by, silent := c.f.FirstSuspicion("n1", c.now)
		if want := c.now.Sub(c.view("n1").Beat); by != tt.want || by != "" && silent != want {
			t.Errorf("%s: got %q after %s, want %q after %s (began %s)", tt.name, by, silent, tt.want, want, began)
		}
		if by, _ := c.f.FirstSuspicion("n1", c.now); by != "" {
			t.Errorf("%s: reported twice, %q", tt.name, by)
		}
	}
	if by, _ := newCluster(t, 1).f.FirstSuspicion("n9", start); by != "" {
		t.Error("noticed a node that is none")
	}

	// After the node was well, its next end is reported again.
	c := newCluster(t, 2)
	look(c, corev1.ConditionTrue, "7")
	c.f.ApplyHint("n1", Push, c.now)
	c.f.FirstSuspicion("n1", c.now)
	look(c, corev1.ConditionUnknown, "8")
	if by, _ := c.f.FirstSuspicion("n1", c.now); by != "" {
		t.Errorf("the same end was reported twice, as %q", by)
	}
	c.now = c.now.Add(20 * time.Second)
	c.beat("n1")
	look(c, corev1.ConditionTrue, "9")
	c.now = c.now.Add(hintTTL)
	c.beat("n1")
	c.f.ApplyHint("n1", Line, c.now)
	if by, _ := c.f.FirstSuspicion("n1", c.now); by != Line {
		t.Errorf("the next end: got %q, want %q", by, Line)
	}
}

// One machine at a time is powered off, until the fence of the one before is done or hangs; a Node that is deleted
// gives its turn back.
func TestTurns(t *testing.T) {
	c := newCluster(t, 3)
	rec := func(p taint.Phase, powerOff bool) *taint.Record {
		r := taint.Record{ID: "f1", NodeUID: "u", By: "me", PowerOff: powerOff}.EnterPhase(p, "", c.now.Wall)
		return &r
	}
	busy := func(want string) {
		t.Helper()
		if got := c.view("n2").Busy; got != want {
			t.Errorf("busy: %q, want %q", got, want)
		}
		if got := c.view("n1").Busy; got != "" {
			t.Errorf("n1 waits for %q, want another node", got)
		}
	}
	for _, tt := range []struct {
		node string
		want bool
	}{{"n1", true}, {"n1", true}, {"n2", false}} {
		if got := c.f.ReserveTurn(tt.node, c.now); got != tt.want {
			t.Errorf("%s takes the turn: %v, want %v", tt.node, got, tt.want)
		}
	}
	busy("n1")
	c.f.ReleaseTurn("n1") // it was not announced after all
	busy("")
	version := 10
	record := func(r *taint.Record) {
		version++
		c.f.ApplyRecord("n1", strconv.Itoa(version), r, c.now)
	}
	record(nil)
	c.f.ReserveTurn("n1", c.now)
	c.f.ApplyRecord("n1", strconv.Itoa(version), nil, c.now) // a watch brings what the announcement was decided on
	busy("n1")
	c.f.ApplyRecord("n1", strconv.Itoa(version-1), nil, c.now) // or what was before
	busy("n1")
	record(nil) // another process wrote first: the announcement is refused
	busy("")
	for _, p := range []taint.Phase{taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting} {
		record(rec(p, true))
		busy("n1")
	}
	c.now = c.now.Add(turnTTL)
	busy("n1")
	c.now = c.now.Add(time.Second)
	busy("")
	record(rec(taint.PhasePoweringOff, true)) // its own deadline ends that
	c.now = c.now.Add(time.Hour)
	busy("n1")
	record(rec(taint.PhaseDone, true))
	busy("")
	record(rec(taint.PhaseEvicting, false)) // was off by itself
	busy("")
	record(rec(taint.PhasePoweringOff, true))
	c.f.RemoveNode("n1", c.now)
	busy("")
}

// A hint of before a suspension is over.
func TestHintOfBeforeASuspension(t *testing.T) {
	c := newCluster(t, 3)
	c.f.ApplyHint("n1", Push, c.now)
	for wall, want := range map[time.Duration]Source{time.Second: Push, -time.Hour: Push, hintTTL + time.Second: ""} {
		now := providers.Instant{Wall: c.now.Wall.Add(wall), Mono: c.now.Mono}
		if got := c.f.View("n1", now).Hint; got != want {
			t.Errorf("%s later by the wall clock alone: got hint %q, want %q", wall, got, want)
		}
	}
}

// A device that lied is not believed of its machine until the record that says so is another one.
func TestDistrusted(t *testing.T) {
	c := newCluster(t, 3)
	m := taint.MachineRef{Provider: "racks", ID: "7", SystemUUID: "4c4c4544-0042-3510-8053-b4c04f383801"}
	record := func(version string, res taint.Result) {
		r := taint.Record{ID: "f1", NodeUID: "u", By: "me", Device: "racks/7",
			Machine: &m}.EnterPhase(taint.PhaseDone, res, c.now.Wall)
		c.f.ApplyRecord("n1", version, &r, c.now)
	}
	want := func(of, liar string) {
		t.Helper()
		if got := c.f.DistrustingNode(m, "racks/7", of); got != liar {
			t.Errorf("%s's machine: distrusted by %q, want %q", of, got, liar)
		}
	}
	want("n1", "")
	record("11", taint.ResultEvicted)
	want("n1", "")
	record("12", taint.ResultNeverPoweredOff)
	want("n1", "n1")
	want("n2", "n1") // from each node that leads to the same machine
	if got := c.f.DistrustingNode(taint.MachineRef{Provider: "racks", ID: "8"}, "racks/8", "n2"); got != "" {
		t.Errorf("another machine is distrusted by %s", got)
	}
	other := m // the node's own kubelet can report any system UUID; of another node, that is another machine
	other.SystemUUID = "4c4c4544-0042-3510-8053-b4c04f383802"
	for of, by := range map[string]string{"n1": "n1", "n2": ""} {
		if got := c.f.DistrustingNode(other, "racks/7", of); got != by {
			t.Errorf("%s's machine with another system UUID: distrusted by %q, want %q", of, got, by)
		}
	}
	record("11", taint.ResultEvicted) // a watch that is behind
	want("n1", "n1")
	record("13", taint.ResultReleased)
	want("n1", "")
	record("14", taint.ResultNeverPoweredOff)
	c.f.RemoveNode("n1", c.now)
	want("n2", "")
}

// Which nodes are suspected of being dead, and why: the zero View suspects none for its silence.
func TestSuspicion(t *testing.T) {
	ready, not := taint.Look{Exists: true, Ready: corev1.ConditionTrue},
		taint.Look{Exists: true, Ready: corev1.ConditionUnknown}
	for _, tt := range []struct {
		name string
		look taint.Look
		v    View
		want string
	}{
		{"healthy", ready, View{Heard: true}, ""},
		{"not Ready", not, View{}, "NotReady"},
		{"not Ready and silent", not, View{Stale: true, Heard: true}, "NotReady"},
		{"silent", ready, View{Stale: true, Heard: true}, "LeaseStale"},
		{"all are silent", ready, View{Stale: true}, ""},
		{"its device spoke", ready, View{Hint: Push}, "MachineWentOff"},
		{"its device said so when it was polled", ready, View{Hint: Poll}, "MachineFoundOff"},
		{"its line broke", ready, View{Hint: Line}, "LineBroke"},
		{"its cloud says so", ready, View{Hint: ShutdownTaint}, "ShutdownTaint"},
		{"a person says so", ready, View{Hint: Confirmation}, "ConfirmedOff"},
		{"silent, and its line broke", ready, View{Stale: true, Heard: true, Hint: Line}, "LeaseStale"},
		{"there is no Node", taint.Look{}, View{Heard: true}, ""},
	} {
		if got := tt.v.Suspicion(tt.look); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func BenchmarkView(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var f Fleet
			for i := range n {
				f.AddNode(fmt.Sprint(i), start)
			}
			f.Tick(start)
			for b.Loop() {
				f.View("7", start)
			}
		})
	}
}

// No hint is silence: only a Lease that is not renewed is, and only that counts toward a power-off.
func TestHintsAreNoSilence(t *testing.T) {
	for _, by := range []Source{Line, Poll, Push} {
		var f Fleet
		for _, n := range []string{"n1", "n2", "n3"} {
			f.AddNode(n, start)
			f.ApplyLease(n, "1", 0, start)
		}
		f.ApplyHint("n1", by, start)
		if v := f.View("n1", start); v.Hint != by || v.Stale || v.Missed || !v.SilentSince.IsZero() {
			t.Errorf("%s: got %+v, want a hint and no silence", by, v)
		}
	}
}

// A heartbeat is a sign of life, and so is a Node that became Ready, or has another boot id or UID; what is seen first
// is none.
func TestAlive(t *testing.T) {
	dead := taint.Look{Name: "n1", Exists: true, UID: "u", BootID: "b", ResourceVersion: "5",
		Ready: corev1.ConditionUnknown}
	alive := dead
	alive.Ready = corev1.ConditionTrue
	for _, tt := range []struct {
		name   string
		before taint.Look // the zero Look: none
		then   func(c *cluster, l taint.Look)
		want   bool
	}{
		{"the first sight of a dead Node", taint.Look{}, func(c *cluster, l taint.Look) { c.f.ApplyLook(dead, c.now) },
			false},
		{"the first sight of one that is Ready", taint.Look{},
			func(c *cluster, l taint.Look) { c.f.ApplyLook(alive, c.now) }, false},
		{"a heartbeat", dead, func(c *cluster, l taint.Look) { c.beat("n1") }, true},
		{"the same Node", dead, func(c *cluster, l taint.Look) { c.f.ApplyLook(l, c.now) }, false},
		{"Ready", dead, func(c *cluster, l taint.Look) { l.Ready = corev1.ConditionTrue; c.f.ApplyLook(l, c.now) },
			true},
		{"Ready as before", alive, func(c *cluster, l taint.Look) { c.f.ApplyLook(l, c.now) }, false},
		{"not Ready any more", alive, func(c *cluster, l taint.Look) {
			l.Ready = corev1.ConditionFalse
			c.f.ApplyLook(l, c.now)
		}, false},
		{"another boot", dead, func(c *cluster, l taint.Look) { l.BootID = "b2"; c.f.ApplyLook(l, c.now) }, true},
		{"another Node", dead, func(c *cluster, l taint.Look) { l.UID = "u2"; c.f.ApplyLook(l, c.now) }, true},
		{"Ready in a cache that is behind", dead, func(c *cluster, l taint.Look) {
			l.ResourceVersion, l.Ready = "4", corev1.ConditionTrue
			c.f.ApplyLook(l, c.now)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 2)
			if c.now = c.now.Add(time.Second); tt.before.Exists {
				c.f.ApplyLook(tt.before, c.now)
			}
			before := c.now
			c.now = c.now.Add(time.Second)
			l := tt.before
			l.ResourceVersion = "6"
			tt.then(c, l)
			if got := c.view("n1").Alive; got.After(before) != tt.want || tt.want && got != c.now {
				t.Errorf("alive at %v, want it at %v: %v", got, c.now, tt.want)
			}
		})
	}
	c := newCluster(t, 2)
	c.f.ApplyLook(dead, c.now)
	c.now = c.now.Add(time.Second)
	c.f.ApplyLook(alive, c.now)
	c.f.ApplyLook(taint.Look{Name: "n1", Exists: true, UID: "u2", BootID: "b2", ResourceVersion: "7"}, c.now)
	last := c.now.Add(time.Second)
	c.now = last
	c.beat("n1")
	if got := c.view("n1").Alive; got != last {
		t.Errorf("the last sign was at %v, got %v", last, got)
	}
}

// A node that storage shuts out keeps a turn for a while, and none once it is let in.
func TestShutOutNodesHaveATurn(t *testing.T) {
	c := newCluster(t, 3)
	busy := func(want string) {
		t.Helper()
		if got := c.view("n3").Busy; got != want {
			t.Errorf("n3 waits for %q, want %q", got, want)
		}
	}
	c.f.ReserveTurn("n1", c.now)
	c.f.ApplyStorageFences("n1", true, c.now)
	busy("n1")
	c.f.ApplyRecord("n1", "10", nil, c.now) // no fence of ours: the storage's own
	busy("n1")
	c.f.ApplyStorageFences("n1", false, c.now)
	busy("")
	c.f.ApplyStorageFences("n1", true, c.now)
	c.now = c.now.Add(turnTTL + time.Second)
	c.f.ApplyStorageFences("n1", true, c.now) // it hangs
	busy("")
}
