package sim

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seeds = flag.Int("sim.seeds", 0, "how many histories TestHistories plays; 0: 10,000, or 1,000 with -short or "+
		"-race")
	from   = flag.Uint64("sim.from", 0, "the first of them")
	update = flag.Bool("sim.update", false, "write "+receivedFile+" from the histories that TestHistories plays")
	one    = flag.Int64("sim.seed", -1, "play this seed only and print its history")
)

// TestHistories plays many histories. A failing one prints itself and how to play it again.
func TestHistories(t *testing.T) {
	if *one >= 0 {
		replaySeed(t, uint64(*one))
		return
	}
	n := *seeds
	if n == 0 {
		n = 10_000
		if testing.Short() || race {
			n = 1_000
		}
	}
	begin := time.Now()
	stats, events, failed, received := playAll(*from, uint64(n), ScenarioOf)
	if len(failed) == 0 {
		sameReceived(t, *from, received)
	}
	for _, s := range slices.Sorted(maps.Keys(stats)) {
		t.Logf("%8d  %s", stats[s], s)
	}
	t.Logf("%d histories, %d events, %s", n, events, time.Since(begin).Round(time.Millisecond))
	if len(failed) == 0 {
		return
	}
	t.Errorf("%d of %d histories broke an invariant", len(failed), n)
	shown := map[string]int{}
	for _, f := range failed {
		if shown[f.v.Invariant]++; shown[f.v.Invariant] <= 5 {
			t.Logf("seed %d (%s): %v", f.seed, ScenarioOf(f.seed), f.v)
		}
	}
	replaySeed(t, failed[0].seed)
}

// TestBareNodesAreFoundOut plays histories that the design calls unsafe: no hook, and machines that boot by themselves
// between proof and tombstone. The checker must see two copies run; if it does not, TestHistories proves nothing.
func TestBareNodesAreFoundOut(t *testing.T) {
	if race || testing.Short() {
		t.Skip("needs thousands of histories: resourceVersions alone make it rare")
	}
	const histories, step = 10_000, 500
	for first := uint64(0); first < histories; first += step {
		_, _, failed := playMany(first, step, func(uint64) Scenario { return Bare })
		if i := slices.IndexFunc(failed, func(f failure) bool { return f.v.Invariant == "10" }); i >= 0 {
			t.Logf("history %d runs something twice", failed[i].seed)
			return // one is enough
		}
	}
	t.Errorf("no history of %d without the hook broke invariant 10: the checker is blind", histories)
}

// TestUncheckedPowerActionsAreFoundOut plays histories whose power actions skip their last check. The checker must see
// each way in which they are wrong; if it does not, TestHistories proves nothing about them.
func TestUncheckedPowerActionsAreFoundOut(t *testing.T) {
	if race || testing.Short() {
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
	if testing.Short() || race {
		n = 300
	}
	stats, _, failed := playMany(0, n, func(uint64) Scenario { return Accepting })
	for i, f := range failed {
		if t.Errorf("seed %d: %v", f.seed, f.v); i == 4 {
			break
		}
	}
	t.Logf("%d of %d histories broke another invariant", len(failed), n)
	for _, path := range []string{
		"AnnouncePolicy", "ended by a policy", "accepted double", "RemoveMark Done Evicted", "attachment deleted",
		"accepted second writer", "cleared by a policy",
		"kept from writing", "nobody knows the storage", "by a policy, on a Ready node", "PolicySkippedPods",
		"PolicyTimedOut",
		"second writer by a storage that lies", "all nodes but one cut off", "aside: PolicyWaits",
	} {
		if stats[path] == 0 {
			t.Errorf("no history came by %q", path)
		}
	}
}

// TestPowerOns plays histories in which many a machine is powered off by us, and on again, until each path was taken.
func TestPowerOns(t *testing.T) {
	n, most := uint64(1000), uint64(2000)
	if testing.Short() || race {
		n = 100
	}
	missing := []string{
		"PowerOn", "PoweringOn Done Evicted", "MachinePoweredOn Done Evicted", "MachineTurnedOnByOther Done Evicted",
		"FencedAgainStaysOff Done Evicted", "answer to a power-on lost", "powered on again",
	}
	for first := uint64(0); first < n || len(missing) > 0 && first < most; first += 100 {
		stats, _, failed := playMany(first, 100, func(uint64) Scenario { return Cut })
		for _, f := range failed {
			t.Errorf("seed %d: %v", f.seed, f.v)
		}
		if len(failed) > 0 {
			return
		}
		missing = slices.DeleteFunc(missing, func(path string) bool { return stats[path] > 0 })
	}
	for _, path := range missing {
		t.Errorf("no history of %d came by %q", most, path)
	}
}

// TestPathsAreTaken holds that the histories reach what they are there to judge.
func TestPathsAreTaken(t *testing.T) {
	stats, _, _ := playMany(0, 2400, ScenarioOf)
	for _, path := range []string{
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
		"release", "person edits", "node deleted", "by a kept list",
		"outage", "lost watch events", "live before the mark", "kept a slow look",
		"NotReady, beating, and its device lies",
		"MachineStartedAgain Done Evicted", "MachineStartedAgain Done Returned", "never off, by its run",
		"small tombstone", "small spare", "forged identity", "machine not believed", "pin",
		"PowerOff of the control plane", "one device down", "one device does not answer in time", "devices disagree",
		"a lie is gainsaid", "one of two is accused", "PowerOff through the second", "one outlet off",
		"both outlets off",
		"silent in a storm", "PowerOff beside another", "PowerOff in a zone", "level gave way", "another mode",
		"mode lowered",
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
	} {
		if stats[path] == 0 {
			t.Errorf("no history came by %q", path)
		}
	}
}

// TestSameSeedSameHistory holds that a failure can be played again.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := range uint64(20) {
		a := Run(Options{Seed: seed, Scenario: ScenarioOf(seed), Trace: true})
		b := Run(Options{Seed: seed, Scenario: ScenarioOf(seed), Trace: true})
		if a.Text() != b.Text() || a.Events != b.Events {
			t.Fatalf("seed %d: two different histories", seed)
		}
	}
}

type failure struct {
	seed uint64
	v    *Violation
}

// enough failures are no news any more.
const enough = 20

// playMany is playAll without the hashes.
func playMany(first, n uint64, scenario func(uint64) Scenario) (stats map[string]int, events int, failed []failure) {
	stats, events, failed, _ = playAll(first, n, scenario)
	return stats, events, failed
}

// playAll plays the seeds on all processors, until enough fail, and returns the failures in the order of their seeds,
// and what was received in each history.
func playAll(
	first, n uint64, scenario func(uint64) Scenario,
) (stats map[string]int, events int, failed []failure, received []uint64) {
	received = make([]uint64, n)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a history is small and short-lived
	stats = map[string]int{}
	var next atomic.Uint64
	var mu sync.Mutex // guards stats, events, failed
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				over := len(failed) >= enough
				mu.Unlock()
				i := next.Add(1) - 1
				if i >= n || over {
					return
				}
				r := Run(Options{Seed: first + i, Scenario: scenario(first + i)})
				mu.Lock()
				events += r.Events
				received[i] = r.Received
				for k, v := range r.Stats {
					stats[k] += v
				}
				if r.Violation != nil {
					failed = append(failed, failure{first + i, r.Violation})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(failed, func(a, b failure) int { return int(int64(a.seed) - int64(b.seed)) })
	return stats, events, failed, received
}

func replaySeed(t *testing.T, seed uint64) {
	t.Helper()
	r := Run(Options{Seed: seed, Scenario: ScenarioOf(seed), Trace: true})
	fmt.Println(r.Text())
	if r.Violation != nil {
		t.Errorf("seed %d (%s): %v\nreplay: go test ./test/sim -run TestHistories -sim.seed=%d", seed, ScenarioOf(seed),
			r.Violation, seed)
	}
}
