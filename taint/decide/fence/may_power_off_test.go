package fence

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	cluster = "the cluster"
	zone    = "topology.kubernetes.io/zone=b"
)

// parts gives the node a cluster of ten healthy nodes but itself, and a zone; change makes a storm of it.
func parts(change func(s *fleet.Storm, zone *fleet.Part), more ...func(*View)) func(*View) {
	return func(v *View) {
		for _, m := range more {
			m(v)
		}
		v.Fleet.Storm = fleet.Storm{Max: 1, Parts: []fleet.Part{
			{Of: cluster, Nodes: 20, Healthy: 19, Floor: 10, Spoke: 20},
			{Of: zone, Nodes: 10, Healthy: 9, Floor: 8, Spoke: 10},
		}}
		change(&v.Fleet.Storm, &v.Fleet.Storm.Parts[1])
	}
}

// vmHost makes the node a host of KubeVirt.
func vmHost(v *View) { v.VMHost = true }

// plane makes the node one of a control plane: it and these.
func plane(members map[string]bool, others ...fleet.Member) func(*View) {
	return func(v *View) {
		v.ControlPlane, v.Facts.Quorum, v.EtcdPods = true, true, members
		v.Fleet.Storm.Plane = append([]fleet.Member{{Name: "n1"}}, others...)
	}
}

// Each rule refuses alone, in this order, with its numbers: before a power-off is announced, before the announced one
// is sent, and before it is sent again. None keeps a machine that is off from its recovery.
func TestGuard(t *testing.T) {
	up := func(name string) fleet.Member { return fleet.Member{Name: name, Healthy: true} }
	down := func(name string) fleet.Member { return fleet.Member{Name: name} }
	pods := func(of ...string) map[string]bool {
		m := map[string]bool{}
		for _, n := range of {
			m[n] = true
		}
		return m
	}
	for _, tt := range []struct {
		name   string
		storm  func(*View)
		why    reason.Reason // "": none refuses
		detail string
		after  time.Duration
		once   string
	}{
		{"a calm day", parts(func(*fleet.Storm, *fleet.Part) {}), "", "", 0, ""},
		{"no fleet is known", func(*View) {}, "", "", 0, ""},
		{"control plane", controlPlane, reason.ControlPlane, "", pollOn, ""},
		{"a host of KubeVirt", vmHost, reason.VMHost, "", pollOn, ""},
		{"a host of KubeVirt, and it may be",
			parts(func(*fleet.Storm, *fleet.Part) {}, vmHost, func(v *View) { v.Facts.VMHosts = true }), "", "", 0, ""},
		{"no host of KubeVirt, and they may be", func(v *View) { v.Facts.VMHosts = true }, "", "", 0, ""},
		{"a drain is under way",
			parts(func(s *fleet.Storm, _ *fleet.Part) { s.Back = time.Second },
				func(v *View) { v.Facts.KeptOn = "condition DrainInProgress" }), reason.KeptOn,
			"condition DrainInProgress", pollOn, ""},
		{"cut off", parts(func(s *fleet.Storm, p *fleet.Part) {
			s.Failed, s.Back, p.Lost = 4, 1500*time.Millisecond, now
		}), reason.CutOff,
			"the API server did not answer 4 reads in a row; it must answer for another 2s", 1500 * time.Millisecond,
			"reads"},
		{"a lost site",
			parts(func(_ *fleet.Storm, p *fleet.Part) { p.Lost, p.Stale, p.Mute = ago(time.Minute), 9, 10 }),
			reason.DomainLost,
			"9 of 10 nodes of " + zone + " fell silent at the same moment", pollOn, zone + " at 2026-03-01T11:59:00Z"},
		{"a dead gateway", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Mute, p.Healthy = 6, 1 }), reason.DevicesCut,
			"the devices of 6 of 10 nodes of " + zone + " stopped answering recently", pollOn, zone},
		{"half of the devices", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Mute = 5 }), "", "", 0, ""},
		{"the floor", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Healthy, p.Cool = 7, time.Minute }),
			reason.TooFewHealthy,
			"3 of 10 nodes of " + zone + " are not healthy, the floor is 8", pollOn, ""},
		{"the floor, and who is not healthy",
			parts(func(_ *fleet.Storm, p *fleet.Part) { p.Healthy, p.Unhealthy = 7, "n2 (silent)" }),
			reason.TooFewHealthy, "3 of 10 nodes of " + zone + " are not healthy, the floor is 8: n2 (silent)", pollOn,
			""},
		{"just the floor", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Healthy = 8 }), "", "", 0, ""},
		{"a floor above the number of nodes", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Floor = 12 }),
			reason.TooFewHealthy,
			"1 of 10 nodes of " + zone + " are not healthy, the floor is 12, so no power-off is possible", pollOn, ""},
		{"the cluster's floor first",
			parts(func(s *fleet.Storm, p *fleet.Part) { s.Parts[0].Healthy, p.Healthy = 9, 7 }), reason.TooFewHealthy,
			"11 of 20 nodes of " + cluster + " are not healthy, the floor is 10", pollOn, ""},
		{"cool-down", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Cool = 61 * time.Second }), reason.CoolDown,
			zone + " reached a limit, and must keep all limits for another 1m1s", pollOn, ""},
		{"the end of a cool-down", parts(func(_ *fleet.Storm, p *fleet.Part) { p.Cool = 700 * time.Millisecond }),
			reason.CoolDown,
			zone + " reached a limit, and must keep all limits for another 1s", 700 * time.Millisecond, ""},
		{"as many as may be", busy, reason.PowerOffLimit, "1 of at most 1: n2", time.Second, ""},

		{"one of three members", plane(pods("n1", "n2", "n3"), up("n2"), up("n3")), "", "", 0, ""},
		{"two of three", plane(pods("n1", "n2", "n3"), up("n2"), down("n3")), reason.Quorum,
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2", pollOn, ""},
		{"etcd's own pod is not Ready", plane(map[string]bool{"n1": true, "n2": true, "n3": false}, up("n2"), up("n3")),
			reason.Quorum,
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2", pollOn, ""},
		{"it counts as healthy itself", func(v *View) {
			plane(pods("n1", "n2", "n3"), up("n2"), down("n3"))(v)
			v.Fleet.Storm.Plane[0].Healthy = true
		}, reason.Quorum, "without it, 1 of etcd's 3 members are healthy; the quorum is 2", pollOn, ""},
		{"two of five", plane(pods("n1", "n2", "n3", "n4", "n5"), up("n2"), up("n3"), up("n4"), down("n5")), "", "", 0,
			""},
		{"one of two", plane(pods("n1", "n2"), up("n2")), reason.Quorum,
			"without it, 1 of etcd's 2 members are healthy; the quorum is 2", pollOn, ""},
		{"the only one", plane(pods("n1")), reason.Quorum, "without it, 0 of etcd's 1 members are healthy; the " +
			"quorum is 1", pollOn, ""},
		{"one of four: an even number has no more to spare",
			plane(pods("n1", "n2", "n3", "n4"), up("n2"), up("n3"), down("n4")), reason.Quorum,
			"without it, 2 of etcd's 4 members are healthy; the quorum is 3", pollOn, ""},
		{"a worker's pod that calls itself etcd's", plane(pods("n1", "n2", "n3", "w1", "w2"), up("n2"), down("n3")),
			reason.Quorum,
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2", pollOn, ""},
		{"members by their label, of others' control plane",
			plane(pods(), fleet.Member{Name: "n2", Healthy: true, Etcd: true},
				fleet.Member{Name: "n3", Healthy: true, Etcd: true}, fleet.Member{Name: "n4", Etcd: true}, down("n5")),
			"", "", 0, ""},
		{"members by their label, and two of three are down",
			plane(pods(), fleet.Member{Name: "n2", Healthy: true, Etcd: true},
				fleet.Member{Name: "n3", Etcd: true}, fleet.Member{Name: "n4", Etcd: true}, up("n5"), up("n6")),
			reason.Quorum,
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2", pollOn, ""},
		{"known, and another's turn",
			plane(pods("n1", "n2", "n3", "n4", "n5"), up("n2"), up("n3"), up("n4"),
				fleet.Member{Name: "n5", Turn: true}), "", "", 0, ""},
		{"unknown, one at a time", plane(pods(), up("n2"), up("n3"), up("n4"), fleet.Member{Name: "n5", Turn: true}),
			reason.Quorum,
			"control-plane nodes are powered off one at a time, and it is the turn of n5 (the etcd members are " +
				"unknown, so every control-plane node counts as one)", time.Second, ""},
		{"a member whose pod was deleted is unknown",
			plane(pods("n2", "n3"), up("n2"), up("n3"), up("n4"), fleet.Member{Name: "n5", Turn: true}), reason.Quorum,
			"control-plane nodes are powered off one at a time, and it is the turn of n5 (the etcd members are " +
				"unknown, so every control-plane node counts as one)", time.Second, ""},
		{"unknown, no node's turn", plane(pods(), up("n2"), up("n3")), "", "", 0, ""},
		{"unknown, a majority must stay", plane(pods(), up("n2"), down("n3")), reason.Quorum,
			"without it, 1 of etcd's 3 members are healthy; the quorum is 2 (the etcd members are unknown, so every " +
				"control-plane node counts as one)", pollOn, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on := saying(providers.PowerOn, 100*time.Millisecond)
			want := action.Decision{Action: action.Wait{}, Reason: tt.why, Detail: tt.detail, ReportOnceKey: tt.once,
				RequeueAfter: tt.after - 100*time.Millisecond}
			if got := Step(dead(on, tt.storm)); tt.why == "" && !action.Is[action.WriteRecord](got) ||
				tt.why != "" && !same(got, want) {
				t.Errorf("before it is announced: got %+v, want %+v", got, want)
			}
			got := Step(dead(powering, on, tt.storm))
			if tt.why == "" && !action.Is[action.PowerOff](got) {
				t.Errorf("before it is sent: got %+v", got)
			}
			if tt.why != "" &&
				(!action.Is[action.WriteRecord](got) || got.Reason != tt.why ||
					recordOf(got).Result != taint.ResultCancelled || got.Detail != tt.detail ||
					got.ReportOnceKey != tt.once) {
				t.Errorf("before it is sent: got %+v", got)
			}
			again := Step(dead(powering, sent(proof.EffectAfter), on, tt.storm))
			if action.Is[action.PowerOff](again) != (tt.why == "") || action.Is[action.WriteRecord](again) {
				t.Errorf("before it is sent again: got %+v", again)
			}
			for _, v := range []View{
				dead(saying(providers.PowerOff, 100*time.Millisecond), tt.storm),
				dead(powering, sent(time.Second), saying(providers.PowerOff, 100*time.Millisecond), tt.storm)} {
				if got := Step(v); !action.Is[action.SetMark](got) {
					t.Errorf("a machine that is off: got %+v", got)
				}
			}
		})
	}
}

func same(a, b action.Decision) bool {
	return kind(a) == kind(b) && a.Reason == b.Reason && a.Detail == b.Detail && a.ReportOnceKey == b.ReportOnceKey &&
		a.RequeueAfter == b.RequeueAfter
}

// Only the queue for a power-off waits until the grace is over: what refuses one says so at once.
func TestGuardBeforeTheGrace(t *testing.T) {
	on := saying(providers.PowerOn, 100*time.Millisecond)
	if got := Step(dead(on, justNow, busy)); got.Reason != reason.InGrace {
		t.Errorf("another's turn, in the grace: %+v", got)
	}
	under := parts(func(_ *fleet.Storm, p *fleet.Part) { p.Healthy = 1 })
	if got := Step(dead(on, justNow, under)); got.Reason != reason.TooFewHealthy {
		t.Errorf("below the floor, in the grace: %+v", got)
	}
	if got := Step(dead(on, under, func(v *View) { v.Fleet.Stale = false })); got.Reason != reason.StillBeating {
		t.Errorf("a kubelet that beats: %+v", got)
	}
	if got := Step(dead(on, justNow, vmHost)); got.Reason != reason.VMHost {
		t.Errorf("a host of KubeVirt, in the grace: %+v", got)
	}
	if got := Step(dead(on, vmHost, beating)); got.Reason != reason.StillBeating {
		t.Errorf("a host of KubeVirt whose kubelet beats: %+v", got)
	}
	if got := Step(dead(on, under, observe)); got.Reason != reason.PoweredOn {
		t.Errorf("in mode observe nothing is refused: %+v", got)
	}
}

// What only etcd's pods can tell is read before the guard decides, and only then.
func TestMembersAreRead(t *testing.T) {
	unread := func(v *View) { v.ControlPlane, v.Facts.Quorum = true, true }
	on, off := saying(providers.PowerOn, 100*time.Millisecond), saying(providers.PowerOff, 100*time.Millisecond)
	for what, v := range map[string]View{
		"before it is announced": dead(on, unread), "before it is sent": dead(powering, on, unread),
		"announced by another leader": dead(powering, unread),
		"before it is sent again":     dead(powering, sent(proof.EffectAfter), on, unread),
	} {
		if got := Step(v); !action.Is[action.ListEtcdPods](got) {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	for what, v := range map[string]View{
		"off": dead(off, unread), "not asked": dead(unread), "observe": dead(on, observe, unread), "a worker": dead(on),
		"never": dead(on, controlPlane), "healthy": dead(on, unread, healthy),
	} {
		if got := Step(v); action.Is[action.ListEtcdPods](got) {
			t.Errorf("%s: etcd's pods are read", what)
		}
	}
}

// What refuses a power-off refuses every other end of the machine, no matter what its devices say. Each condition alone
// does.
func TestPowerOffRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*View)
		want   reason.Reason
	}{
		"nothing refuses":          {func(*View) {}, ""},
		"no device answers":        {saying(providers.PowerUnknown, time.Second), ""},
		"no work is known":         {noWork, ""},
		"a healthy node":           {healthy, reason.Healthy},
		"a kubelet that beats":     {func(v *View) { v.Fleet.Stale = false }, reason.StillBeating},
		"most nodes are silent":    {mostStale, reason.MostStale},
		"its grace":                {justNow, reason.InGrace},
		"mode observe":             {observe, reason.ModeObserve},
		"mode disabled":            {func(v *View) { v.Facts.Mode = Disabled }, reason.ModeDisabled},
		"no request":               {func(v *View) { v.Facts.Mode = OnRequest }, reason.ModeObserve},
		"a device without power":   {noPower, reason.ModeObserve},
		"excluded":                 {excluded, reason.Excluded},
		"no device":                {noMachine, reason.NoMachine},
		"a device not trusted":     {distrusted, reason.Distrusted},
		"a twin":                   {twin, reason.SharedMachine},
		"a control plane":          {controlPlane, reason.ControlPlane},
		"members of etcd not read": {func(v *View) { v.ControlPlane, v.Facts.Quorum = true, true }, reason.Quorum},
		"a host of KubeVirt":       {vmHost, reason.VMHost},
		"drained by another":       {func(v *View) { v.Facts.KeptOn = "drained" }, reason.KeptOn},
		"below the floor": {parts(func(_ *fleet.Storm, p *fleet.Part) { p.Healthy = 1 }),
			reason.TooFewHealthy},
		"another's turn": {busy, reason.PowerOffLimit},
	} {
		v := dead(recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Minute), saying(providers.PowerOn, 0),
			tt.change)
		if got, detail := v.PowerOffRefusal(); got != tt.want {
			t.Errorf("%s: got %q (%s), want %q", name, got, detail, tt.want)
		}
	}
}
