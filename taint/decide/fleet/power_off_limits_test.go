package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

func TestAmount(t *testing.T) {
	for _, tt := range []struct {
		text          string
		of            int
		most, atLeast int // -1: it is none
	}{
		{"0", 10, 0, 0},
		{"3", 10, 3, 3},
		{"50%", 5, 2, 3},
		{"50%", 4, 2, 2},
		{"1+5%", 10, 1, 2},
		{"1+5%", 20, 2, 2},
		{"1+5%", 5000, 251, 251},
		{"100%", 7, 7, 7},
		{"", 1, -1, -1}, {"-1", 1, -1, -1}, {"101%", 1, -1, -1}, {"5 %", 1, -1, -1}, {"1+5", 1, -1, -1},
		{"+5%", 1, -1, -1},
		{"1+", 1, -1, -1}, {"2.5", 1, -1, -1}, {"1e3", 1, -1, -1}, {"4294967296", 1, -1, -1}, {"%", 1, -1, -1},
		{"5%+1", 1, -1, -1},
	} {
		var a Amount
		if err := a.UnmarshalText([]byte(tt.text)); (err != nil) != (tt.most < 0) {
			t.Errorf("%q: error %v", tt.text, err)
			continue
		} else if err != nil {
			continue
		}
		if most, least := a.atMost(tt.of), a.atLeast(tt.of); most != tt.most || least != tt.atLeast {
			t.Errorf("%q of %d: at most %d, at least %d, want %d, %d", tt.text, tt.of, most, least, tt.most, tt.atLeast)
		}
		if a.String() != tt.text {
			t.Errorf("%q is written as %q", tt.text, a)
		}
	}
}

// zones is a fleet whose nodes are Ready, and spread over zones one after the other.
func zones(t *testing.T, n int, of ...string) *cluster {
	c := newCluster(t, n)
	for i, name := range c.names {
		c.see(name, map[string]string{"topology.kubernetes.io/zone": of[i%len(of)]}, true)
	}
	return c
}

func (c *cluster) see(name string, labels map[string]string, ready bool) {
	c.rv++
	l := taint.Look{Exists: true, Name: name, UID: "u-" + name, ResourceVersion: strconv.Itoa(c.rv), Labels: labels,
		Ready: corev1.ConditionUnknown}
	if ready {
		l.Ready = corev1.ConditionTrue
	}
	c.f.ApplyLook(l, c.now)
}

func (c *cluster) part(name string, i int) Part {
	c.t.Helper()
	parts := c.view(name).Storm.Parts
	if i >= len(parts) {
		c.t.Fatalf("%s: %d parts, want more than %d", name, len(parts), i)
	}
	return parts[i]
}

// Who is healthy is counted as nodes come and go, fall silent, are marked and fenced; the counts are those of a count
// of all.
func TestHealthIsCounted(t *testing.T) {
	c := zones(t, 10, "a", "b")
	want := func(what string, healthy, inA, ofA int) {
		t.Helper()
		all, a := c.part("n1", 0), c.part("n1", 1)
		if all.Healthy != healthy || a.Healthy != inA || a.Nodes != ofA || a.Of != "topology.kubernetes.io/zone=a" {
			t.Errorf("%s: %d healthy, want %d; zone a: %+v, want %d of %d", what, all.Healthy, healthy, a, inA, ofA)
		}
	}
	want("at rest", 10, 5, 5)
	zone := map[string]string{"topology.kubernetes.io/zone": "a"}
	c.see("n3", zone, false)
	want("one is not Ready", 9, 4, 5)
	mark := taint.Look{Exists: true, Name: "n5", UID: "u-n5", ResourceVersion: "900", Labels: zone,
		Ready: corev1.ConditionTrue, Mark: &taint.Mark{Value: "x"}}
	c.f.ApplyLook(mark, c.now)
	want("another is marked", 8, 3, 5)
	rec := taint.Record{ID: "f1", NodeUID: "u", By: "me"}.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
	c.f.ApplyLook(
		taint.Look{Exists: true, Name: "n7", UID: "u-n7", ResourceVersion: "901", Labels: zone,
			Ready: corev1.ConditionTrue, Record: &rec}, c.now)
	want("another is being fenced", 7, 2, 5)
	c.f.ApplyLook(
		taint.Look{Exists: true, Name: "n7", UID: "u-n7", ResourceVersion: "5", Labels: zone,
			Ready: corev1.ConditionTrue}, c.now)
	want("a watch that is behind", 7, 2, 5)
	c.f.RemoveNode("n5", c.now)
	want("the marked one is deleted", 7, 2, 4)
	c.silence("n2")
	c.pass(40 * time.Second)
	want("one of zone b is silent, and the one that is not Ready renews its Lease", 6, 3, 4)
	c.silence()
	c.pass(20 * time.Second)
	want("it is back", 7, 3, 4)
	c.f.RemoveNode("n9", c.now)
	c.f.AddNode("n9", c.now)
	c.see("n9", map[string]string{"topology.kubernetes.io/zone": "b"}, true)
	want("one comes back elsewhere, as another Node", 7, 2, 3)
}

// No more power-offs than the limit are under way at once, over all nodes.
func TestPowerOffsAtOnce(t *testing.T) {
	for n, most := range map[int]int{2: 1, 19: 1, 20: 2, 40: 3, 100: 6} {
		c := newCluster(t, n)
		got := 0
		for _, name := range c.names {
			if c.f.ReserveTurn(name, c.now) {
				got++
			}
		}
		if s := c.view(c.names[n-1]).Storm; got != most || s.Max != most || s.PowerOffs != most {
			t.Errorf("of %d nodes %d were announced, want %d: %+v", n, got, most, s)
		}
	}
	c := newCluster(t, 40)
	for _, n := range []string{"n7", "n3", "n5"} {
		c.f.ReserveTurn(n, c.now)
	}
	if got := c.view("n1").Busy; got != "n3, n5, n7" {
		t.Errorf("n1 waits for %q", got)
	}
	if got := c.view("n3").Busy; got != "" {
		t.Errorf("n3, which has a turn, waits for %q", got)
	}
	c.f.SetLimits(&Limits{MaxPowerOffs: Amount{Number: 1}})
	if got := c.view("n3").Busy; got != "n5, n7" {
		t.Errorf("under a lower limit n3 waits for %q", got)
	}
}

func TestFloors(t *testing.T) {
	c := zones(t, 10, "a", "b")
	for _, n := range []string{"n1", "n3"} {
		c.see(n, nil, false)
	}
	if a := c.part("n1", 1); a.Floor != 3 || a.IsBelowFloor() {
		t.Errorf("2 of 5 nodes of zone a are not healthy: %+v", a)
	}
	c.see("n5", nil, false)
	if all, a, b := c.part("n1", 0), c.part("n1", 1), c.part("n2", 1); all.IsBelowFloor() || !a.IsBelowFloor() ||
		b.IsBelowFloor() {
		t.Errorf("3 of 5 nodes of zone a are not healthy: %+v %+v %+v", all, a, b)
	}
	for _, n := range []string{"n2", "n4"} {
		c.see(n, nil, false)
	}
	if all := c.part("n2", 0); all.IsBelowFloor() || all.Floor != 5 {
		t.Errorf("half of all is the floor: %+v", all)
	}
	c.see("n6", nil, false)
	if all := c.part("n8", 0); !all.IsBelowFloor() {
		t.Errorf("fewer than half are healthy: %+v", all)
	}

	one := zones(t, 3, "a", "b", "c")
	one.see("n1", nil, false)
	if a := one.part("n1", 1); a.IsBelowFloor() || a.Floor != 0 {
		t.Errorf("a zone of one node has a floor: %+v", a)
	}

	if got := c.f.ImpossibleFloors(); len(got) != 0 {
		t.Errorf("floors of a half: %v", got)
	}
	c.f.SetLimits(
		&Limits{MinHealthy: Amount{Number: 20},
			Domains: []Domain{{Label: "topology.kubernetes.io/zone", MinHealthy: Amount{Number: 5}}}})
	got := c.f.ImpossibleFloors()
	slices.Sort(got)
	if want := []string{
		"the cluster has 10 nodes, and the floor is 20",
		"topology.kubernetes.io/zone=a has 5 nodes, and the floor is 5",
		"topology.kubernetes.io/zone=b has 5 nodes, and the floor is 5",
	}; !slices.Equal(got, want) {
		t.Errorf("floors that nothing can keep: %q", got)
	}
	if again := c.f.SetLimits(&Limits{Domains: []Domain{{Label: "rack"}}}); !again {
		t.Error("other domains: got that no node must be applied again")
	}
	if all := c.part("n1", 0); all.Nodes != 10 || all.Healthy != 4 {
		t.Errorf("under other domains: got %+v, want each of 10 nodes counted once", all)
	}
}

// A node that is not Ready and renews its Lease counts as healthy in its zone, and not in the cluster. The refusal
// names who is not healthy.
func TestNotReadyThatRenews(t *testing.T) {
	c := zones(t, 6, "a", "b", "c") // of two nodes each: n1 and n4 are zone a's
	check := func(what string, all, zone int, sickInAll, sickInZone string) {
		t.Helper()
		got, a := c.part("n1", 0), c.part("n1", 1)
		if got.Healthy != all || a.Healthy != zone || got.Unhealthy != sickInAll || a.Unhealthy != sickInZone {
			t.Errorf("%s: got %+v and %+v, want %d (%q) and %d (%q)", what, got, a, all, sickInAll, zone, sickInZone)
		}
	}
	c.see("n4", nil, false)
	check("not Ready, and not seen to renew", 5, 1, "", "")
	c.pass(10 * time.Second)
	check("not Ready, and renews", 5, 2, "", "")
	c.silence("n1")
	c.pass(40 * time.Second)
	check("the other of its zone is silent", 4, 1, "", "")
	if c.part("n1", 1).IsBelowFloor() {
		t.Error("a zone of two is below its floor though one of them renews")
	}
	rec := taint.Record{ID: "f1", NodeUID: "u", By: "me"}.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
	l := taint.Look{Exists: true, Name: "n4", UID: "u-n4", ResourceVersion: "900", Ready: corev1.ConditionUnknown,
		Record: &rec}
	c.f.ApplyLook(l, c.now)
	check("it is being fenced", 4, 0, "", "n1 (silent), n4 (marked, or being fenced)")
	l.ResourceVersion, l.Record = "901", nil
	c.f.ApplyLook(l, c.now)
	check("that fence is over", 4, 1, "", "")
	c.silence("n1", "n4")
	c.pass(20 * time.Second)
	check("it missed a renewal", 4, 0, "", "n1 (silent), n4 (not Ready)")
	c.silence("n1")
	c.pass(10 * time.Second)
	check("it renews again", 4, 1, "", "")
	c.f.RemoveNode("n4", c.now)
	check("it is deleted", 4, 0, "", "")

	c = newCluster(t, 3)
	for _, n := range c.names {
		c.see(n, nil, n != "n2")
	}
	c.silence("n1")
	c.pass(50 * time.Second)
	if all := c.part("n1", 0); !all.IsBelowFloor() ||
		all.Unhealthy != "n1 (silent), n2 (not Ready, though its kubelet renews its Lease)" {
		t.Errorf("a cluster of three: got %+v", all)
	}
	c = newCluster(t, 12)
	for i, n := range c.names {
		c.see(n, nil, i > 8)
	}
	if all := c.part("n1", 0); all.Unhealthy != "n1 (not Ready), n2 (not Ready), n3 (not Ready), n4 (not Ready), n5 "+
		"(not Ready), 4 more" {
		t.Errorf("many: got %+v", all)
	}
}

// A hostile kubelet writes another zone on its Node: it neither leaves its own zone's count nor joins another's, for as
// long as the Node exists. A label that no kubelet can write is followed.
func TestNodeThatMovesItself(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		c := zones(t, 8, "a", "b")
		if fixed {
			c.f.SetLimits(
				&Limits{Domains: []Domain{
					{Label: "topology.kubernetes.io/zone", MinHealthy: Amount{Percent: 50}, Fixed: true}}})
		}
		c.see("n1", map[string]string{"topology.kubernetes.io/zone": "b"}, true)
		c.see("n3", nil, false)
		c.see("n5", map[string]string{"topology.kubernetes.io/zone": ""}, false)
		own, other := c.part("n7", 1), c.part("n2", 1)
		want := [4]int{4, 2, 4, 4}
		if fixed {
			want = [4]int{1, 1, 5, 5}
		}
		if got := [4]int{own.Nodes, own.Healthy, other.Nodes, other.Healthy}; got != want {
			t.Errorf("fixed %v: got nodes and healthy of both zones %v, want %v", fixed, got, want)
		}
	}
	// A zone that its cloud writes when the Node exists already is the first.
	c := newCluster(t, 2)
	c.see("n1", nil, true)
	c.see("n1", map[string]string{"topology.kubernetes.io/zone": "a"}, true)
	if got := c.part("n1", 1).Of; got != "topology.kubernetes.io/zone=a" {
		t.Errorf("a zone that came later: %q", got)
	}
	// A reload that keeps the labels starts nothing again; one with other labels does.
	c.f.SetLimits(&Limits{Domains: []Domain{{Label: "topology.kubernetes.io/zone"}}})
	c.see("n1", map[string]string{"topology.kubernetes.io/zone": "b", "rack": "r1"}, true)
	if got := c.part("n1", 1).Of; got != "topology.kubernetes.io/zone=a" {
		t.Errorf("after a reload: %q", got)
	}
	if !c.f.SetLimits(&Limits{Domains: []Domain{{Label: "rack"}}}) {
		t.Error("other labels, and the nodes need not be seen again")
	}
	if !c.f.SetLimits(&Limits{Domains: []Domain{{Label: "row"}, {Label: "rack"}}}) ||
		!c.f.SetLimits(&Limits{Domains: []Domain{{Label: "hall"}, {Label: "rack"}}}) ||
		!c.f.SetLimits(&Limits{Domains: []Domain{{Label: "rack"}}}) {
		t.Error("one label of two changed, and the nodes need not be seen again")
	}
	// Nodes without the label are in no domain, and a floor that changed meanwhile counts.
	c.see("n2", nil, true)
	if got := len(c.view("n2").Storm.Parts); got != 1 {
		t.Errorf("without a label: got %d parts, want the cluster alone", got)
	}
	c.see("n1", map[string]string{"rack": "r1"}, true)
	c.f.SetLimits(&Limits{Domains: []Domain{{Label: "row"}}})
	c.f.SetLimits(&Limits{Domains: []Domain{{Label: "rack", MinHealthy: Amount{Number: 1}}}})
	for _, n := range []string{"n1", "n2"} {
		c.see(n, map[string]string{"rack": "r1"}, true)
	}
	if got := c.part("n1", 1); got.Floor != 1 || got.Nodes != 2 {
		t.Errorf("after other labels: got %+v, want the new floor", got)
	}
	if got := c.part("n1", 1).Of; got != "rack=r1" {
		t.Errorf("with other labels: %q", got)
	}
}

// A site that is lost is one event. Nodes that die one by one are none, however many.
func TestLostDomain(t *testing.T) {
	c := zones(t, 8, "a", "b")
	c.silence("n1", "n3")
	c.pass(30 * time.Second)
	if a := c.part("n5", 1); !a.Lost.IsZero() || a.Stale != 2 {
		t.Errorf("half of zone a is silent: %+v", a)
	}
	c.silence("n1", "n3", "n5")
	c.pass(10 * time.Second)
	c.silence("n1", "n3", "n5")
	c.pass(30 * time.Second)
	if a, b := c.part("n1", 1), c.part("n2", 1); a.Lost.IsZero() || !b.Lost.IsZero() {
		t.Errorf("three of four are silent since half a minute of each other: %+v %+v", a, b)
	}
	at := c.part("n1", 1).Lost
	c.silence("n1", "n3", "n5", "n7")
	c.pass(time.Minute)
	if got := c.part("n1", 1).Lost; !got.Equal(at) {
		t.Error("the same loss is another once more nodes are silent")
	}
	if all := c.part("n1", 0); !all.Lost.IsZero() {
		t.Error("all nodes are no domain")
	}
	c.silence()
	c.pass(20 * time.Second)
	if a := c.part("n1", 1); !a.Lost.IsZero() {
		t.Errorf("it is back: %+v", a)
	}

	c = zones(t, 8, "a", "b")
	for i, n := range []string{"n1", "n3", "n5"} {
		c.silent[n] = true
		c.pass(time.Duration(i+1) * 40 * time.Second)
	}
	c.pass(30 * time.Second)
	if a := c.part("n7", 1); !a.Lost.IsZero() || a.Stale != 3 {
		t.Errorf("three died one by one: %+v", a)
	}
	c.silence()
	c.pass(20 * time.Second)
	c.silence("n1", "n3", "n5")
	c.pass(time.Minute)
	if a := c.part("n7", 1); a.Lost.IsZero() || a.Stale != 3 {
		t.Errorf("the same three came back unseen, and died together: %+v", a)
	}
}

// In an outage of the API server two of a zone's three nodes died. The renewal that one of them sent before the outage
// is first seen after it. It counts from the start of the outage, so the zone is lost. A second renewal shows that the
// node outlived the outage.
func TestRenewalFromBeforeAnOutage(t *testing.T) {
	for _, tt := range []struct {
		outage   time.Duration
		outlives bool // n1 renews once more after the outage
		want     bool // the zone is lost
	}{
		{time.Minute, false, true},
		{time.Minute, true, false},
		{2 * time.Second, true, true}, // no outage: within one Lease of each other
	} {
		c := zones(t, 6, "a", "b")
		c.pass(20 * time.Second)
		c.silence(c.names...)
		c.pass(tt.outage)
		c.silence("n1", "n3")
		c.beat("n1")
		if tt.outlives {
			c.pass(10 * time.Second)
			c.beat("n1")
		}
		c.pass(30 * time.Second)
		if a := c.part("n1", 1); a.Stale != 2 || !a.Lost.IsZero() != tt.want {
			t.Errorf("outage %s, outlives %t: got stale %d, lost %v; want 2, %t",
				tt.outage, tt.outlives, a.Stale, a.Lost, tt.want)
		}
	}
}

// One node of a zone of two was silent for a while and renewed once before the zone was lost.
func TestRenewalBeforeALoss(t *testing.T) {
	c := zones(t, 4, "a", "b")
	c.pass(20 * time.Second)
	c.silence("n1")
	c.pass(60 * time.Second)
	c.silence()
	c.pass(10 * time.Second)
	c.silence("n1", "n3")
	c.pass(40 * time.Second)
	if a := c.part("n1", 1); a.Stale != 2 || a.Lost.IsZero() {
		t.Errorf("got %+v, want a lost zone", a)
	}
}

// A gateway died: devices that answered do not any more. Those that never did, and those that have been silent for
// long, say nothing.
func TestDevicesThatStopToAnswer(t *testing.T) {
	c := zones(t, 8, "a", "b")
	heard := func(n string, s providers.PowerState, err error) {
		c.f.ApplyAnswer(n,
			providers.Answer{Observation: providers.Observation{State: s, At: c.now}, Got: c.now, Err: err})
	}
	gone := providers.WithClass(providers.ErrUnreachable, errors.New("no route to host"))
	c.f.ApplyReachability("n99", providers.Answer{Err: gone}) // no such node
	for _, n := range []string{"n1", "n3", "n5", "n7"} {
		heard(n, providers.PowerUnknown, gone)
	}
	if a := c.part("n1", 1); a.HasDevicesCut() || a.Spoke != 0 {
		t.Errorf("they never answered: %+v", a)
	}
	heard("n1", providers.PowerOn, nil)
	heard("n3", providers.PowerOff, nil)
	heard("n5", providers.PowerUnknown, providers.WithClass(providers.ErrDenied, errors.New("401")))
	heard("n3", providers.PowerUnknown, gone)
	if a := c.part("n1", 1); a.HasDevicesCut() || a.Spoke != 3 || a.Mute != 1 {
		t.Errorf("one of three: %+v", a)
	}
	heard("n5", providers.PowerUnknown, gone)
	if a, b, all := c.part("n1", 1), c.part("n2", 1), c.part("n1", 0); !a.HasDevicesCut() || b.HasDevicesCut() ||
		!all.HasDevicesCut() {
		t.Errorf("two of three: %+v %+v %+v", a, b, all)
	}
	heard("n3", providers.PowerOn, nil)
	if a := c.part("n1", 1); a.HasDevicesCut() {
		t.Errorf("one of three again: %+v", a)
	}
	heard("n3", providers.PowerUnknown, gone)
	c.pass(muteTTL - time.Minute)
	heard("n3", providers.PowerUnknown, gone)
	if a := c.part("n1", 1); !a.HasDevicesCut() {
		t.Errorf("after nine minutes: %+v", a)
	}
	c.pass(2 * time.Minute)
	heard("n3", providers.PowerUnknown, gone)
	if a := c.part("n1", 1); a.HasDevicesCut() || a.Mute != 0 || a.Spoke != 1 {
		t.Errorf("after ten minutes: %+v", a)
	}
}

// Once a limit was hit, it must be kept for a while.
func TestCoolDown(t *testing.T) {
	c := zones(t, 10, "a", "b")
	cool := func(n string, i int, want time.Duration) {
		t.Helper()
		if got := c.part(n, i).Cool; got != want {
			t.Errorf("%s, part %d: %s, want %s", n, i, got, want)
		}
	}
	mark := func(n string) {
		c.rv++
		l := taint.Look{Exists: true, Name: n, UID: "u-" + n, ResourceVersion: strconv.Itoa(c.rv),
			Ready: corev1.ConditionTrue}
		l.Mark = &taint.Mark{Value: "x"}
		c.f.ApplyLook(l, c.now)
	}
	cool("n1", 0, 0)
	for _, n := range []string{"n1", "n3", "n5"} {
		mark(n)
	}
	cool("n1", 1, 0) // the limit itself refuses
	c.pass(time.Hour)
	cool("n1", 1, 0)
	c.see("n5", nil, true)
	cool("n1", 1, time.Minute)
	cool("n1", 0, 0)
	cool("n2", 1, 0)
	c.pass(20 * time.Second)
	cool("n1", 1, 40*time.Second)
	mark("n5")
	cool("n1", 1, 0)
	c.see("n5", nil, true)
	cool("n1", 1, time.Minute)
	c.pass(time.Minute)
	cool("n1", 1, 0)
}

// It is we who are cut off: reads of ours fail in a row.
func TestCutOff(t *testing.T) {
	c := newCluster(t, 3)
	back := func(failed int, want time.Duration) {
		t.Helper()
		if s := c.view("n1").Storm; s.Failed != failed || s.Back != want {
			t.Errorf("got %d failed, back in %s, want %d, %s", s.Failed, s.Back, failed, want)
		}
	}
	for range cutAfter - 1 {
		c.f.ApplyReadResult(true, c.now)
	}
	back(0, 0)
	c.f.ApplyReadResult(false, c.now)
	for range cutAfter - 1 {
		c.f.ApplyReadResult(true, c.now)
	}
	back(0, 0)
	c.f.ApplyReadResult(true, c.now)
	back(cutAfter, time.Minute)
	c.pass(time.Hour)
	back(cutAfter, time.Minute)
	c.f.ApplyReadResult(false, c.now)
	back(cutAfter, time.Minute)
	c.pass(59 * time.Second)
	c.f.ApplyReadResult(false, c.now)
	back(cutAfter, time.Second)
	c.pass(time.Second)
	back(0, 0)
}

// Labels say which nodes belong to the control plane, and their health decides about it.
func TestControlPlaneHealth(t *testing.T) {
	c := newCluster(t, 5)
	plane := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	for _, n := range []string{"n1", "n2", "n3"} {
		c.see(n, plane, true)
	}
	c.see("n3", map[string]string{"node-role.kubernetes.io/etcd": "true"}, false)
	c.f.ReserveTurn("n2", c.now)
	if got := c.view("n4").Storm.Plane; got != nil {
		t.Errorf("n4 is no control-plane node: %v", got)
	}
	got := c.view("n1").Storm.Plane
	slices.SortFunc(got, func(a, b Member) int { return int(a.Name[1]) - int(b.Name[1]) })
	if want := []Member{
		{"n1", true, false, false}, {"n2", true, false, true}, {"n3", false, true, false}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c.see("n2", nil, true)
	c.f.RemoveNode("n3", c.now)
	if got := c.view("n1").Storm.Plane; len(got) != 1 {
		t.Errorf("one is left, got %v", got)
	}
}

// A control-plane node that is silent, marked or being fenced is no healthy member, though its condition still says
// Ready.
func TestPlaneIsHealthyWhileItIsHeard(t *testing.T) {
	c := newCluster(t, 4)
	plane := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		c.see(n, plane, true)
	}
	c.silent["n2"] = true
	c.pass(time.Minute)
	marked := taint.Look{Exists: true, Name: "n3", UID: "u", ResourceVersion: "900", Ready: corev1.ConditionTrue,
		Labels: plane, Mark: &taint.Mark{Value: "f1"}}
	c.f.ApplyLook(marked, c.now)
	got := map[string]bool{}
	for _, m := range c.view("n1").Storm.Plane {
		got[m.Name] = m.Healthy
	}
	if want := map[string]bool{"n1": true, "n2": false, "n3": false, "n4": true}; !maps.Equal(got, want) {
		t.Errorf("got healthy %v, want %v", got, want)
	}
}

func BenchmarkGuard(b *testing.B) {
	const n = 5000
	var f Fleet
	for i := range n {
		f.ApplyLook(taint.Look{
			Exists: true, Name: fmt.Sprint(i), UID: "u", ResourceVersion: "1", Ready: corev1.ConditionTrue,
			Labels: map[string]string{"topology.kubernetes.io/zone": fmt.Sprint(i % 50)},
		}, start)
	}
	f.Tick(start)
	for i := range 250 {
		f.ReserveTurn(fmt.Sprint(i), start)
	}
	for b.Loop() {
		f.View("4000", start)
	}
}
