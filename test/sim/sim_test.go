package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

var (
	seeds = flag.Int("sim.seeds", 0, "how many histories TestHistories plays; 0: 10,000, or 1,000 with -short or "+
		"-race")
	from     = flag.Uint64("sim.from", 0, "the first of them")
	update   = flag.Bool("sim.update", false, "write "+receivedFile+" from the histories that TestHistories plays")
	one      = flag.Int64("sim.seed", -1, "play this seed only and print its history")
	scenario = flag.String("sim.scenario", "", "in this scenario; \"\": the seed's")
	edits    Edits
	searched = flag.Int("sim.searched", 1000, "how many histories TestSearch plays")
)

func init() { flag.Var(&edits, "sim.edits", "with these draws edited, as TestSearch prints them") }

// TestHistories plays many histories. A failing one prints itself and how to play it again.
func TestHistories(t *testing.T) {
	if *one >= 0 {
		o := Options{Seed: uint64(*one), Scenario: ScenarioOf(uint64(*one)), Edits: edits}
		if i := slices.Index(scenarioNames, *scenario); i >= 0 {
			o.Scenario = Scenario(i)
		}
		o.play(t)
		return
	}
	n := *seeds
	if n == 0 {
		n = 10_000
		if fewHistories() {
			n = 1_000
		}
	}
	tally := playSeeds(*from, uint64(n), ScenarioOf)
	if len(tally.Failed) == 0 {
		sameReceived(t, *from, tally.Received)
	}
	for _, s := range slices.Sorted(maps.Keys(tally.Stats)) {
		t.Logf("%8d  %s", tally.Stats[s], s)
	}
	t.Logf("%s", tally)
	tally.report(t)
	if *from == 0 && n >= 2_400 && len(tally.Failed) == 0 {
		tally.wantPaths(t, paths)
	}
}

// fewHistories reports whether tests play few histories, and those that need thousands none. The race detector makes a
// history ten times as slow, and a run of TestHistories with few seeds is to be short as a whole.
func fewHistories() bool { return testing.Short() || race || *seeds > 0 && *seeds < 1_000 }

// wantPaths fails the test for each path that no history came by: then they do not reach what they are there to judge.
func (y *Tally) wantPaths(t *testing.T, paths []string) {
	t.Helper()
	for _, path := range paths {
		if y.Stats[path] == 0 {
			t.Errorf("no history of %d came by %q", y.Histories, path)
		}
	}
}

// report names the histories that broke an invariant, and plays the first again.
func (y *Tally) report(t *testing.T) {
	t.Helper()
	if len(y.Failed) == 0 {
		return
	}
	t.Errorf("%d of %d histories broke an invariant", len(y.Failed), y.Histories)
	shown := map[string]int{}
	for _, f := range y.Failed {
		if shown[f.v.Invariant]++; shown[f.v.Invariant] <= 5 {
			t.Logf("%s: %v", f.replay(), f.v)
		}
	}
	y.Failed[0].play(t)
}

// replay is what plays a history again.
func (o Options) replay() string {
	s := fmt.Sprintf("-sim.seed=%d -sim.scenario=%s", o.Seed, o.Scenario)
	if len(o.Edits) > 0 {
		s += " -sim.edits=" + o.Edits.String()
	}
	return s
}

// play plays a history and prints it.
func (o Options) play(t *testing.T) {
	t.Helper()
	o.Trace = true
	r := Run(o)
	fmt.Println(r.Text())
	if r.Violation != nil {
		t.Errorf("%v\nreplay: go test ./test/sim -run TestHistories %s", r.Violation, o.replay())
	}
}

// TestSearch plays histories, and changes of those that came by decisions in an order that none before had.
func TestSearch(t *testing.T) {
	n := *searched
	if fewHistories() {
		n = min(n, 100)
	}
	s := newSearch(*from)
	s.Play(n/3, n, []Scenario{Hooked, Held, Lying, Cut, Accepting})
	t.Logf("%s", s.Tally)
	more := len(s.Transitions) - s.bySeeds
	t.Logf("%d transitions by %d seeds, %d more by changes; a corpus of %d histories", s.bySeeds, n/3, more,
		len(s.corpus))
	if s.report(t); more == 0 {
		t.Error("no change of a history came by a new transition")
	}
}

// TestBareNodesAreFoundOut plays histories that the design calls unsafe: no hook, and machines that boot by themselves
// between proof and tombstone. The checker must see two copies run; if it does not, TestHistories proves nothing.
func TestBareNodesAreFoundOut(t *testing.T) {
	if fewHistories() {
		t.Skip("needs thousands of histories: resourceVersions alone make it rare")
	}
	const histories, step = 10_000, 500
	for first := uint64(0); first < histories; first += step {
		failed := playSeeds(first, step, func(uint64) Scenario { return Bare }).Failed
		if i := slices.IndexFunc(failed, func(f failure) bool { return f.v.Invariant == "10" }); i >= 0 {
			t.Logf("history %d runs something twice", failed[i].Seed)
			return // one is enough
		}
	}
	t.Errorf("no history of %d without the hook broke invariant 10: the checker is blind", histories)
}

// TestUncheckedPowerActionsAreFoundOut plays histories whose power actions skip their last check. The checker must see
// each way in which they are wrong; if it does not, TestHistories proves nothing about them.
func TestUncheckedPowerActionsAreFoundOut(t *testing.T) {
	if fewHistories() {
		t.Skip("needs hundreds of histories")
	}
	const histories = 2000
	want := []string{"whose heartbeat since the look was heard", "old at its last check", " leads"}
	for seed := uint64(0); seed < histories && len(want) > 0; seed++ {
		v := Run(Options{Seed: seed, Scenario: []Scenario{Hooked, Cut}[seed%2], Unchecked: true}).Violation
		if v == nil || v.Invariant != "power" {
			continue
		}
		want = slices.DeleteFunc(want, func(text string) bool { return strings.Contains(v.Text, text) })
	}
	if len(want) > 0 {
		t.Errorf("no history of %d without the last check broke %q: the checker is blind", histories, want)
	}
}

// TestPoliciesBreakWhatTheyAccept plays histories with policies that end pods without proof: the checker sees pods run
// twice, and nothing else breaks.
func TestPoliciesBreakWhatTheyAccept(t *testing.T) {
	n := uint64(2_000)
	if fewHistories() {
		n = 300
	}
	tally := playSeeds(0, n, func(uint64) Scenario { return Accepting })
	tally.report(t)
	tally.wantPaths(t, []string{
		"AnnouncePolicy", "ended by a policy", "accepted double", "RemoveMark Done Evicted", "attachment deleted",
		"accepted second writer", "cleared by a policy",
		"kept from writing", "nobody knows the storage", "by a policy, on a Ready node", "PolicySkippedPods",
		"PolicyTimedOut",
		"second writer by a storage that lies", "all nodes but one cut off", "aside: PolicyWaits",
	})
}

// TestPowerOns plays histories in which many a machine is powered off by us, and on again, until each path was taken.
func TestPowerOns(t *testing.T) {
	n, most := uint64(1000), uint64(2000)
	if fewHistories() {
		n = 100
	}
	missing := []string{
		"PowerOn", "PoweringOn Done Evicted", "MachinePoweredOn Done Evicted", "MachineTurnedOnByOther Done Evicted",
		"FencedAgainStaysOff Done Evicted", "answer to a power-on lost", "powered on again",
	}
	for first := uint64(0); first < n || len(missing) > 0 && first < most; first += 100 {
		tally := playSeeds(first, 100, func(uint64) Scenario { return Cut })
		if tally.report(t); t.Failed() {
			return
		}
		missing = slices.DeleteFunc(missing, func(path string) bool { return tally.Stats[path] > 0 })
	}
	for _, path := range missing {
		t.Errorf("no history of %d came by %q", most, path)
	}
}

// paths are those that 2,400 histories of all scenarios come by.
var paths = []string{
	"SetMark Armed ", "ExpireReady", "MachineConfirmedOff Evicting ", "ClearVolumes", "tombstone",
	"tombstone behind a slow device", "delete", "spare", "PowerOff", "conflict",
	"pod set not ready", "pod Ready again",
	"MarkedByPerson Armed ", "PersonVouches Evicting ", "MarkRemovedByOther Done MarkRemoved",
	"PowerOffFailed Done PowerOffFailed",
	"RemoveMark Done Evicted", "RemoveMark Done Lifted", "RemoveMark Done Returned",
	"FencedNodeNeverPoweredOff Done NeverPoweredOff",
	"volumes named", "admitted: pod uses no volume that is still to be detached", "crash", "pause", "suspended",
	"power action held up before its last check", "power action held up on its way", "not sent",
	"power-off: nothing since the look", "power-off: a heartbeat after the last check",
	"stale leader acts", "held", "held up", "tombstone held up",
	"release", "person edits", "node deleted", "attachment of a deleted Node deleted", "by a kept list",
	"outage", "lost watch events", "live before the mark", "kept a slow look",
	"NotReady, beating, and its device lies",
	"MachineStartedAgain Done Evicted", "MachineStartedAgain Done Returned", "never off, by its run",
	"urgent pods ended", "small tombstone", "small spare", "forged identity", "machine not believed", "pin",
	"PowerOff of the control plane", "one device down", "one device does not answer in time", "devices disagree",
	"a lie is gainsaid", "one of two is accused", "PowerOff through the second", "one outlet off",
	"both outlets off",
	"silent in a storm", "PowerOff beside another", "PowerOff in a zone", "level gave way", "another mode",
	"mode lowered", "requested, or not any more",
	"left alone by annotation", "left alone by label", "left alone by MaintenanceInProgress",
	"left alone by DrainInProgress",
	"left alone by GracefulNodeShutdownInProgress", "left alone by cordon", "left alone by ConfigMap",
	"left alone by Lease",
	"waits: NodeExcluded", "waits: PowerOffHeldUp", "waits: ModeDisabled", "waits: MarkNotTakenUp",
	"waits: WouldPowerOff", "waits: WouldRecover",
	"waits: PowerOffLimit", "waits: TooFewHealthy", "waits: DomainLost", "waits: EtcdQuorum",
	"waits: ControlPlaneNode", "waits: StormCoolDown",
	"waits: WaitingForLevel",
	"off with its host", "a guest migrated", "the host of before died",
	"histories with a fence begun by LineBroke", "histories with a fence begun by MachineFoundOff",
	"line broke, and the machine runs",
	"poll says Off, and the machine runs", "polled, alive, and its device lies",
}

// TestSameSeedSameHistory holds that a failure can be played again.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := range uint64(20) {
		o := Options{Seed: seed, Scenario: ScenarioOf(seed), Trace: true}
		a, b := Run(o), Run(o)
		if a.Text() != b.Text() || a.Events != b.Events {
			t.Fatalf("seed %d: two different histories", seed)
		}
		if err := o.Edits.Set("300:1,20:1,2:3"); err != nil {
			t.Fatal(err)
		}
		if got := o.Edits.String(); got != "2:3,20:1,300:1" {
			t.Errorf("got edits %s, want them in the order of their places", got)
		}
		c, d := Run(o), Run(o)
		if c.Text() != d.Text() || c.Text() == a.Text() {
			t.Fatalf("seed %d: edits make two different histories, or none", seed)
		}
	}
}
