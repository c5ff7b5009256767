package wake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// rack is a provider of many BMCs: it notes who is asked when, and how many at the same time.
type rack struct {
	mu    sync.Mutex // guards all below
	says  map[string]providers.Observation
	fails map[string]error
	takes time.Duration
	asked map[string][]time.Time
	open  map[string]int // by chassis
	worst int
	// stubborn devices answer in their time, whoever ends.
	stubborn bool
	chass    func(providers.Target) string
}

func newRack() *rack {
	return &rack{says: map[string]providers.Observation{}, fails: map[string]error{}, asked: map[string][]time.Time{},
		open: map[string]int{}}
}

func (k *rack) LimitGroup(t providers.Target) string {
	if k.chass == nil {
		return t.ID
	}
	return k.chass(t)
}

func (k *rack) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	unit, sent := k.LimitGroup(t), time.Now()
	k.mu.Lock()
	k.asked[t.Node] = append(k.asked[t.Node], sent)
	k.open[unit]++
	k.worst = max(k.worst, k.open[unit])
	takes := k.takes
	if k.stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	k.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[unit]--
	if err := k.fails[t.Node]; err != nil {
		return providers.Observation{}, err
	}
	obs, ok := k.says[t.Node]
	if !ok {
		obs.State = providers.PowerOn
	}
	obs.At = providers.InstantOf(sent)
	return obs, nil
}

func (*rack) PowerOff(context.Context, providers.Target, func() error) error {
	panic("a poll powers nothing off")
}
func (*rack) PowerOn(context.Context, providers.Target, func() error) error {
	panic("a poll powers nothing on")
}

func (k *rack) say(node string, s providers.PowerState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.says[node] = providers.Observation{State: s}
}

func (k *rack) set(change func()) { k.mu.Lock(); defer k.mu.Unlock(); change() }

// times is when a node was asked.
func (k *rack) times(node string) []time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.asked[node])
}

// cloud is a rack that answers for all in one call.
type cloud struct{ *rack }

func (cloud) MaxStates() int                     { return 1000 }
func (cloud) LimitGroup(providers.Target) string { return "region" }
func (c cloud) States(ctx context.Context, ts []providers.Target) (map[string]providers.Observation, error) {
	out := map[string]providers.Observation{}
	for _, t := range ts {
		out[t.Key()], _ = c.State(ctx, t)
	}
	return out, nil
}

// polling runs pollers over nodes in virtual time.
type polling struct {
	Options
	log   *bytes.Buffer
	woken func() []string
	stop  func()
}

// poll runs f in virtual time, with nodes n0, n1, ... of one provider that are polled every 5 s.
func poll(t *testing.T, p providers.Provider, nodes int, per float64, change func(*corev1.Node), f func(*polling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x, wake := &polling{log: &bytes.Buffer{}}, make(chan event.GenericEvent)
		list := &nodeObjects{}
		for i := range nodes {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: "u"},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					Addresses: []corev1.NodeAddress{
						{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i+1)}},
				}}
			if change != nil {
				change(&n)
			}
			list.items = append(list.items, n)
		}
		config := &Config{
			Machines: machine.Finder{Led: func(n *corev1.Node) (machine.Machine, error) {
				return machine.Machine{
					Provider: p, Name: "racks", Device: "racks/" + n.Name,
					Target: providers.Target{Node: n.Name, ID: n.Name}, Feeds: n.Labels["feeds"] != "",
					Poll: machine.Polling{Every: 5 * time.Second, PerSecond: per},
				}, nil
			}},
			Excluded: func(n *corev1.Node) string { return n.Labels["excluded"] },
			Mode:     byLabel,
		}
		x.Options = optionsOf(list, wake, func() *Config { return config })
		x.Log = slog.New(slog.NewTextHandler(x.log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		var mu sync.Mutex // guards names
		names := map[string]bool{}
		wait.Go(func() { newDevices(x.Options, newLines(x.Options)).runWatches(ctx) })
		wait.Go(func() {
			for {
				select {
				case e := <-wake:
					mu.Lock()
					names[e.Object.GetName()] = true
					mu.Unlock()
				case <-ctx.Done():
					return
				}
			}
		})
		x.woken = func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(maps.Keys(names))
		}
		x.stop = sync.OnceFunc(func() { cancel(); wait.Wait() })
		defer x.stop()
		synctest.Wait()
		f(x)
	})
}

// hints is who gave a hint of each node that has one.
func (x *polling) hints(nodes int) string {
	var out []string
	for i := range nodes {
		if by := x.fleetView(fmt.Sprintf("n%d", i)).Hint; by != "" {
			out = append(out, fmt.Sprintf("n%d:%s", i, by))
		}
	}
	return strings.Join(out, " ")
}

// An Off is a hint within the period; no other answer is one, nor a failure, nor the end of the leadership.
func TestPollHints(t *testing.T) {
	k := newRack()
	poll(t, k, 6, 10, nil, func(x *polling) {
		time.Sleep(time.Minute)
		for i := range 6 {
			at := k.times(fmt.Sprintf("n%d", i))
			if len(at) < 11 || len(at) > 13 {
				t.Errorf("n%d: asked %d times in a minute, want every 5 s", i, len(at))
			}
		}
		x.Fleet(func(f *fleet.Fleet) { f.AddNode("n0", x.Now.Instant()) })
		time.Sleep(6 * time.Second)
		if at := x.fleetView("n0").OnAt; x.Now.Instant().Sub(at) > 6*time.Second {
			t.Errorf("n0 is polled and on: got On at %s, want within the period", at.Wall)
		}
		if k.worst != 1 {
			t.Errorf("a device was asked %d questions at the same time", k.worst)
		}
		k.say("n1", providers.PowerChanging)
		k.say("n2", providers.PowerUnknown)
		k.set(func() { k.fails["n3"] = providers.ErrUnreachable; k.fails["n4"] = errors.New("404 Not Found") })
		time.Sleep(20 * time.Second)
		if x.hints(6) != "" || len(x.woken()) != 0 {
			t.Errorf("hints without an Off: %s, woken %v", x.hints(6), x.woken())
		}
		k.say("n5", providers.PowerOff)
		time.Sleep(5*time.Second + time.Millisecond)
		if x.hints(6) != "n5:poll" || !slices.Equal(x.woken(), []string{"n5"}) {
			t.Errorf("hints: %s, woken %v; want n5 alone", x.hints(6), x.woken())
		}
		time.Sleep(20 * time.Second)
		if n := strings.Count(x.log.String(), "A polled device says that the machine is off"); n != 1 {
			t.Errorf("logged %d times that n5 is off, want once", n)
		}
		for state, least := range map[string]float64{"On": 60, "Off": 1, "Changing": 4, "Unknown": 6} {
			if got := testutil.ToFloat64(x.Metrics.polls.WithLabelValues("racks", state)); got < least {
				t.Errorf("%s: counted %v answers, want %v and more", state, got, least)
			}
		}
		x.stop()
		before := len(k.times("n0"))
		time.Sleep(time.Minute)
		if n := len(k.times("n0")); n != before {
			t.Errorf("asked %d times after the leadership ended", n-before)
		}
	})
}

// An outlet that gives power says nothing of its machine: its On is no sign that the machine runs.
func TestPollOfAnOutlet(t *testing.T) {
	k := newRack()
	poll(t, k, 2, 10, func(n *corev1.Node) {
		if n.Name == "n1" {
			n.Labels = map[string]string{"feeds": "true"}
		}
	}, func(x *polling) {
		for _, n := range []string{"n0", "n1"} {
			x.Fleet(func(f *fleet.Fleet) { f.AddNode(n, x.Now.Instant()) })
		}
		time.Sleep(11 * time.Second)
		for n, want := range map[string]bool{"n0": true, "n1": false} {
			if on := !x.fleetView(n).OnAt.IsZero(); on != want || len(k.times(n)) == 0 {
				t.Errorf("%s: asked %d times, got On: %v, want %v", n, len(k.times(n)), on, want)
			}
		}
	})
}

// A device that does not answer is asked less and less often, and as often as ever once it does.
func TestPollOfADeadDevice(t *testing.T) {
	k := newRack()
	k.fails["n0"] = providers.ErrUnreachable
	k.fails["n1"] = providers.ErrDenied
	poll(t, k, 3, 10, nil, func(x *polling) {
		time.Sleep(10 * time.Minute)
		if n := len(k.times("n0")); n < 14 || n > 18 {
			t.Errorf("asked %d times in ten minutes, want about every 40 s", n)
		}
		if n := len(k.times("n2")); n < 119 || n > 121 {
			t.Errorf("the device beside it was asked %d times, want every 5 s", n)
		}
		k.set(func() { delete(k.fails, "n0"); clear(k.asked) })
		time.Sleep(100 * time.Second)
		if n := len(k.times("n0")); n < 12 {
			t.Errorf("asked %d times in 100 s after it was back", n)
		}
	})
}

// Machines that share limits take at most half of them, one question at a time, and that it takes longer is said once.
func TestPollWithinLimits(t *testing.T) {
	k := newRack()
	k.chass = func(providers.Target) string { return "chassis" }
	k.takes = 20 * time.Millisecond
	poll(t, k, 100, 10, nil, func(x *polling) {
		time.Sleep(100 * time.Second)
		synctest.Wait()
		all := 0
		for i := range 100 {
			n := len(k.times(fmt.Sprintf("n%d", i)))
			if all += n; n < 4 || n > 6 {
				t.Errorf("n%d: asked %d times in 100 s, want every 20 s", i, n)
			}
		}
		if all > 502 || k.worst != 1 {
			t.Errorf("%d questions in 100 s, %d at the same time; half of the limit is 500", all, k.worst)
		}
		if n := strings.Count(x.log.String(), "Polling takes longer"); n != 1 ||
			!strings.Contains(x.log.String(), "takes=20s machines=100") {
			t.Errorf("said %d times:\n%s", n, x.log)
		}
	})
}

// Devices of their own are asked in turn, not all at once.
func TestPollIsSpread(t *testing.T) {
	k := newRack()
	poll(t, k, 1000, 10, nil, func(x *polling) {
		begun := time.Now()
		time.Sleep(4999 * time.Millisecond)
		per := map[time.Duration]int{}
		for i := range 1000 {
			at := k.times(fmt.Sprintf("n%d", i))
			if len(at) != 1 {
				t.Fatalf("n%d: asked %d times in the first period", i, len(at))
			}
			per[at[0].Sub(begun)/(100*time.Millisecond)]++
		}
		if most := slices.Max(slices.Collect(maps.Values(per))); most > 25 {
			t.Errorf("%d questions in a tenth of a second, want 20", most)
		}
	})
}

// A cloud is asked once for all. One answer that has most machines off at once is none that anybody is woken for: their
// Leases tell.
func TestPollInBatches(t *testing.T) {
	c := cloud{newRack()}
	poll(t, c, 5, 10, nil, func(x *polling) {
		for _, n := range []string{"n1", "n2", "n3"} {
			c.say(n, providers.PowerOff)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait() // the log is written no more
		if x.hints(5) != "" || !strings.Contains(x.log.String(), "off=3 machines=5") {
			t.Errorf("three of five: hints %s, log %s", x.hints(5), x.log)
		}
		if n := len(c.times("n0")); n != 3 {
			t.Errorf("asked %d times in 11 s, want every 5 s", n)
		}
		c.say("n3", providers.PowerOn)
		time.Sleep(5 * time.Second)
		if x.hints(5) != "n1:poll n2:poll" {
			t.Errorf("two of five: hints %s", x.hints(5))
		}
	})
}

// One machine alone is not most of several.
func TestPollInABatchOfOne(t *testing.T) {
	c := cloud{newRack()}
	poll(t, c, 1, 10, nil, func(x *polling) {
		c.say("n0", providers.PowerOff)
		time.Sleep(6 * time.Second)
		if x.hints(1) != "n0:poll" {
			t.Errorf("hints %q, want one", x.hints(1))
		}
	})
}

// A node that falls silent is not polled any more: it is suspect by itself. Nor is a provider none of whose machines is
// to be polled.
func TestPollEndsWithTheHeartbeats(t *testing.T) {
	k := newRack()
	poll(t, k, 2, 10, nil, func(x *polling) {
		begun := time.Now()
		for range 12 { // a minute, and another after the last heartbeat of n0
			x.Fleet(func(f *fleet.Fleet) {
				for i, beats := range []time.Duration{time.Minute, 0} {
					if since := time.Since(begun); since <= beats {
						f.ApplyLease(fmt.Sprintf("n%d", i), since.String(), 0, providers.Now())
					}
				}
			})
			time.Sleep(10 * time.Second)
		}
		for i, want := range []time.Duration{85 * time.Second, 25 * time.Second} { // two renewals later, and up to 5 s
			at := k.times(fmt.Sprintf("n%d", i))
			if last := at[len(at)-1].Sub(begun); last < want-5*time.Second || last > want+6*time.Second {
				t.Errorf("n%d: was asked last after %s, want about %s", i, last, want)
			}
		}
	})
}

// The end of a leadership waits for the questions under way.
func TestPollsEndTogether(t *testing.T) {
	k := newRack()
	k.takes, k.stubborn = 3*time.Second, true
	poll(t, k, 3, 10, nil, func(x *polling) {
		time.Sleep(5 * time.Second)
		x.stop()
		for i := range 3 {
			if n := fmt.Sprintf("n%d", i); k.open[n] > 0 {
				t.Errorf("%s is still being asked", n)
			}
		}
	})
}

// A device whose word is not believed any more gives no hint.
func TestPollOfALiar(t *testing.T) {
	k := newRack()
	lied := taint.Record{ID: "f", NodeUID: "u", Device: "racks/n0"}.EnterPhase(taint.PhaseDone,
		taint.ResultNeverPoweredOff, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	poll(t, k, 3, 10, nil, func(x *polling) {
		x.Fleet(func(f *fleet.Fleet) { f.ApplyRecord("n0", "7", &lied, providers.Now()) })
		k.say("n0", providers.PowerOff)
		k.say("n1", providers.PowerOff)
		time.Sleep(10 * time.Second)
		if x.hints(3) != "n1:poll" || len(k.times("n0")) == 0 {
			t.Errorf("hints: %s, want n1 alone", x.hints(3))
		}
	})
}

// Who is suspect, being fenced, excluded or disabled is not polled.
func TestWhoIsPolled(t *testing.T) {
	k := newRack()
	open := taint.Record{ID: "f", NodeUID: "u"}.EnterPhase(taint.PhasePoweringOff, "",
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	poll(t, k, 7, 10, func(n *corev1.Node) {
		switch n.Name {
		case "n1":
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		case "n2":
			n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "kim", Effect: corev1.TaintEffectNoSchedule}}
		case "n3":
			n.Annotations = map[string]string{taint.RecordAnnotation: open.Encode()}
		case "n4":
			n.Labels = map[string]string{"excluded": "maintenance"}
		case "n5":
			n.Labels = map[string]string{"mode": "disabled"}
		}
	}, func(x *polling) {
		time.Sleep(20 * time.Second)
		var got []string
		for i := range 7 {
			if n := fmt.Sprintf("n%d", i); len(k.times(n)) > 0 {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, []string{"n0", "n6"}) {
			t.Errorf("polled: %v, want the healthy ones", got)
		}
	})
}
