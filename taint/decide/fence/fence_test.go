package fence

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// now is when every View below is decided. The node was first looked at a minute ago.
var now = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func ago(d time.Duration) providers.Instant { return now.Add(-d) }

// answer is one that took 100 ms and was there d ago.
func answer(s providers.PowerState, d time.Duration) providers.Answer {
	return providers.Answer{
		Observation: providers.Observation{State: s, Raw: s.String(), At: ago(d + 100*time.Millisecond)},
		By:          "rack-a", Got: ago(d),
	}
}

// dead is a node that looks dead and about which nothing was asked yet, in mode fence with the grace over.
func dead(change ...func(*View)) View {
	l := taint.Look{
		Sent: ago(20 * time.Millisecond), Got: ago(10 * time.Millisecond), Exists: true, Name: "n1", UID: "u1", ResourceVersion: "42",
		BootID: "b1", Ready: corev1.ConditionUnknown, LeaseRV: "7",
	}
	first := l
	first.Sent, first.Got = ago(60*time.Second), ago(59*time.Second)
	v := View{
		Facts: Facts{
			Settings: Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute, Retry: 5 * time.Minute},
			Mode:     Fence, Devices: []proof.Device{{Name: "rack-a/7", Machine: taint.Machine{Provider: "rack-a", ID: "7"}}}, NewID: "f2", By: "me",
		},
		Now: now, Look: l, Memory: Memory{Begin: first}, Work: SomeToDo,
		Fleet: fleet.View{Stale: true, Missed: true, Others: 2, Fresh: 2, Heard: true, SilentSince: ago(59 * time.Second)},
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

func saying(s providers.PowerState, d time.Duration) func(*View) {
	return func(v *View) { heard(v, answer(s, d)) }
}

// asked is an answer to a question that was sent that long before the look. It took its time, and was there a moment
// ago.
func asked(s providers.PowerState, before time.Duration) func(*View) {
	return func(v *View) {
		a := answer(s, 100*time.Millisecond)
		a.At = v.Look.Sent.Add(-before)
		heard(v, a)
	}
}

// answeredNow is an answer that came after the look.
func answeredNow(v *View) { v.Answer.Got = ago(10 * time.Millisecond) }

// heard folds in what the devices answered.
func heard(v *View, answers ...providers.Answer) {
	v.Expect(v.Devices...)
	v.Answered(answers...)
}

// recorded puts a record of this life of the node on it, in its phase since d.
func recorded(p taint.Phase, res taint.Result, d time.Duration) func(*View) {
	return func(v *View) {
		r := taint.Record{ID: "f1", NodeUID: "u1", BootID: "b1", LeaseRV: "7", Since: ago(2 * time.Minute).Wall,
			By: "other"}.Enter(p, res, ago(d).Wall)
		v.Look.Record = &r
	}
}

// powering is an announced power-off, whose record names both devices that two gives the node.
func powering(v *View) {
	recorded(taint.PhasePoweringOff, "", 3*time.Second)(v)
	for _, rack := range []string{"rack-a", "rack-b"} {
		d := taint.Speaker{Device: rack + "/7", Machine: &taint.Machine{Provider: rack, ID: "7"}}
		v.Look.Record.PowerOffTo = append(v.Look.Record.PowerOffTo, d)
	}
}

func sent(d time.Duration) func(*View) { return sentBy(0, d, nil) }

// sentBy sends a power-off through the device, whose level begins its turn with it.
func sentBy(device int, d time.Duration, err error) func(*View) {
	return func(v *View) { v.Sent(ago(d), v.Devices, proof.Move{Device: device, Turn: true}, err) }
}

// refusedAt is a power-off that was not accepted.
func refusedAt(device int, d time.Duration) func(*View) {
	return sentBy(device, d, providers.ErrUnreachable)
}

func TestStep(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown
	set := func(f func(*View)) func(*View) { return f }
	for _, tt := range []struct {
		name string
		view View
		want Decision // of Record only phase and result are compared
	}{
		// Nothing to decide on.
		{"zero", View{}, Decision{Act: Leave, Why: reason.Gone}},
		{"marked", dead(set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "manual"} })), Decision{Act: Leave, Why: reason.Marked}},
		{"marked, whatever the record says", dead(powering, set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "f1"} })), Decision{Act: Leave, Why: reason.Marked}},
		{"bad record", dead(saying(off, 0), set(func(v *View) { v.Look.RecordErr = errors.New("no") })), Decision{Act: Leave, Why: reason.BadRecord, Detail: "no"}},
		{"mark vanished while armed", dead(recorded(taint.PhaseArmed, "", time.Second)), done(reason.MarkVanished, taint.ResultMarkRemoved)},
		{"mark vanished while evicting", dead(recorded(taint.PhaseEvicting, "", time.Second)), done(reason.MarkVanished, taint.ResultMarkRemoved)},

		// Step 1's gate, in its order; each wins over an Off in hand.
		{"healthy", dead(saying(off, 0), healthy), Decision{Act: Leave, Why: reason.Healthy}},
		{"excluded", dead(saying(off, 0), excluded), Decision{Act: Wait, Why: reason.Excluded, Detail: "maintenance", After: recheck}},
		{"no machine", dead(saying(off, 0), noMachine), Decision{Act: Wait, Why: reason.NoMachine, Detail: "two providers", After: recheck}},
		{"distrusted", dead(saying(off, 0), distrusted), Decision{Act: Wait, Why: reason.Distrusted, Detail: "n7", After: recheck}},
		{"released by a person", dead(saying(off, 0), recorded(taint.PhaseDone, taint.ResultReleased, time.Minute)), Decision{Act: Wait, Why: reason.Released, After: recheck}},
		{"released, but booted since", dead(recorded(taint.PhaseDone, taint.ResultReleased, time.Minute), set(func(v *View) { v.Look.Record.BootID = "b0" })), Decision{Act: Ask, Why: reason.Asking}},
		{"released, but a heartbeat since", dead(recorded(taint.PhaseDone, taint.ResultReleased, time.Minute), set(func(v *View) { v.Look.Record.LeaseRV = "6" })), Decision{Act: Ask, Why: reason.Asking}},
		{"all stale", dead(saying(off, 0), allStale), Decision{Act: Wait, Why: reason.AllStale, After: time.Second}},
		{"no work", dead(saying(off, 0), noWork), Decision{Act: Wait, Why: reason.NoWork, After: recheck}},
		{"no work, the last fence ended it", dead(saying(off, 0), noWork, recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute)), Decision{Act: Wait, Why: reason.StaysDead, After: recheck}},
		{"no work, an earlier life was fenced", dead(saying(off, 0), noWork, recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute), func(v *View) { r := *v.Look.Record; r.LeaseRV = "1"; v.Look.Record = &r }), Decision{Act: Wait, Why: reason.NoWork, After: recheck}},

		// Steps 3 to 5.
		{"nothing asked", dead(), Decision{Act: Ask, Why: reason.Asking}},
		{"off", dead(saying(off, 100*time.Millisecond)), armed},
		{"off, in mode observe", dead(observe, saying(off, 100*time.Millisecond)), armed},
		{"off, a control-plane node", dead(controlPlane, saying(off, 100*time.Millisecond)), armed},
		{"off, another power-off under way", dead(busy, saying(off, 100*time.Millisecond)), armed},
		{"off, within the grace", dead(justNow, saying(off, 100*time.Millisecond)), armed},
		{"off, the announced fence goes on", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond)), armed},
		{"off just in time", dead(saying(off, proof.TTL-80*time.Millisecond)), armed},
		{"off too long ago", dead(saying(off, proof.TTL-79*time.Millisecond)), Decision{Act: Ask, Why: reason.Asking}},
		{"off, looked before the answer", dead(saying(off, 15*time.Millisecond)), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"off, heartbeat since the first look", dead(saying(off, time.Second), set(func(v *View) { v.Look.LeaseRV = "8" })), Decision{Act: Look, Why: reason.Recovered}},
		{"off, booted since the first look", dead(saying(off, time.Second), set(func(v *View) { v.Look.BootID = "b2" })), Decision{Act: Look, Why: reason.Recovered}},
		{"off, another Node object", dead(saying(off, time.Second), set(func(v *View) { v.Look.UID = "u2" })), Decision{Act: Look, Why: reason.Recovered}},
		{"off, asked before the first look", dead(set(func(v *View) { v.Answer = answer(off, time.Second); v.Begin.Got = ago(time.Second) })), Decision{Act: Ask, Why: reason.Asking}},
		// A slow API server: what counts is the answer's age when the look that followed it was sent.
		{"off, and the look after it took 6 s", dead(saying(off, 6200*time.Millisecond), lookTook(6100*time.Millisecond)), armed},
		{"off, and the look after it came late", dead(saying(off, 11200*time.Millisecond), lookTook(6100*time.Millisecond)), Decision{Act: Ask, Why: reason.Asking}},
		{"off, and the look after it took for ever", dead(saying(off, armWithin), lookTook(armWithin-50*time.Millisecond)), Decision{Act: Ask, Why: reason.Asking}},
		{"on, and the look after it took 6 s", dead(powering, saying(on, 6200*time.Millisecond), lookTook(6100*time.Millisecond)), throughThe(0)},
		{"on, and the look after it came late", dead(powering, saying(on, 11200*time.Millisecond), lookTook(6100*time.Millisecond)), Decision{Act: Ask, Why: reason.Asking}},

		// A kubelet that itself says NotReady is alive until it misses a renewal.
		{"off, its kubelet says NotReady", dead(saying(off, 100*time.Millisecond), postsNotReady), Decision{Act: Wait, Why: reason.PostsNotReady, After: 900 * time.Millisecond}},
		{"off, its kubelet says NotReady, due", dead(saying(off, time.Second), postsNotReady), Decision{Act: Ask, Why: reason.PostsNotReady}},
		{"off, nobody ever said Ready", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Look.Ready = "" })), Decision{Act: Wait, Why: reason.PostsNotReady, After: 900 * time.Millisecond}},
		{"off, its kubelet said NotReady and missed a renewal", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Missed = true })), armed},
		{"off, its kubelet says NotReady, its device told of the end", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Push })), armed},
		{"off, Ready is Unknown and the Lease fresh", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Look.Ready = corev1.ConditionUnknown })), armed},
		{"off, its kubelet says NotReady, its line broke", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Line })), armed},
		{"off, its kubelet says NotReady, and the same device said so before", dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Poll })), Decision{Act: Wait, Why: reason.PostsNotReady, After: 900 * time.Millisecond}},
		{"off, Ready, its device told of the end", dead(saying(off, 100*time.Millisecond), healthy, set(func(v *View) { v.Fleet.Hint = fleet.Push })), armed},
		{"off, Ready and silent", dead(saying(off, 100*time.Millisecond), set(func(v *View) { v.Look.Ready = corev1.ConditionTrue })), armed},

		// Attachments that only a cache knows.
		{"off, only a cache says there is work", dead(saying(off, 100*time.Millisecond), set(func(v *View) { v.Work = CacheSays })), Decision{Act: ReadLive, Why: reason.Asking}},
		{"on, only a cache says there is work", dead(saying(on, time.Second), set(func(v *View) { v.Work = CacheSays })), Decision{Act: ReadLive, Why: reason.Asking}},
		{"changing", dead(saying(changing, 200*time.Millisecond)), Decision{Act: Wait, Why: reason.Changing, After: 300 * time.Millisecond}},
		{"changing, due", dead(saying(changing, 500*time.Millisecond)), Decision{Act: Ask, Why: reason.Changing}},
		{"unknown", dead(saying(unknown, 200*time.Millisecond)), Decision{Act: Wait, Why: reason.Unknown, After: 800 * time.Millisecond}},
		{"unknown, due", dead(saying(unknown, time.Second)), Decision{Act: Ask, Why: reason.Unknown}},
		{"unknown for an hour", dead(set(func(v *View) { v.Fleet.SilentSince, v.Misses = ago(time.Hour), 1000 }), saying(unknown, time.Second)), Decision{Act: Wait, Why: reason.Unknown, After: 29 * time.Second}},
		{"a state nobody knows", dead(set(func(v *View) { v.Answer = answer(9, 0) })), Decision{Act: Wait, Why: reason.UnexpectedAnswer, After: pollMax}},

		// On.
		{"on, observe", dead(observe, saying(on, time.Second)), Decision{Act: Wait, Why: reason.PoweredOn, Detail: "mode observe", After: 4 * time.Second}},
		{"on, observe, due", dead(observe, saying(on, 5*time.Second)), Decision{Act: Ask, Why: reason.PoweredOn, Detail: "mode observe"}},
		{"on, its power must not be touched", dead(noPower, saying(on, time.Second)), Decision{Act: Wait, Why: reason.PoweredOn, Detail: "never pinned", After: 4 * time.Second}},
		{"announced: its power must not be touched", dead(noPower, powering, saying(on, 100*time.Millisecond)),
			Decision{Act: Write, Why: reason.PoweredOn, Detail: "never pinned", Record: taint.Record{Phase: taint.PhaseDone, Result: taint.ResultCancelled}}},
		{"sent: its power must not be touched once more", dead(noPower, powering, sent(time.Minute-time.Second), saying(on, 100*time.Millisecond)),
			Decision{Act: Wait, Why: reason.AwaitingOff, After: 150 * time.Millisecond}},
		{"on, control plane", dead(controlPlane, saying(on, time.Second)), Decision{Act: Wait, Why: reason.ControlPlane, After: 4 * time.Second}},
		{"on, still beating", dead(beating, saying(on, time.Second)), Decision{Act: Wait, Why: reason.StillBeating, After: 4 * time.Second}},
		{"on, most are silent", dead(mostStale, saying(on, time.Second)), Decision{Act: Wait, Why: reason.MostStale, After: 4 * time.Second}},
		{"on, the silence begins to count later", dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = now.Add(2 * time.Second) })), Decision{Act: Wait, Why: reason.InGrace, After: 4 * time.Second}},
		{"on, in grace", dead(justNow, saying(on, time.Second)), Decision{Act: Wait, Why: reason.InGrace, After: 4 * time.Second}},
		{"on, grace ends within the poll", dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = ago(28 * time.Second) })), Decision{Act: Wait, Why: reason.InGrace, After: time.Second}},
		{"on, another power-off", dead(busy, saying(on, 200*time.Millisecond)), Decision{Act: Wait, Why: reason.PowerOffLimit, Detail: "1 of at most 1: n2", After: 800 * time.Millisecond}},
		{"on, failed lately", dead(recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 4*time.Minute), saying(on, time.Second)), Decision{Act: Wait, Why: reason.BackingOff, After: 4 * time.Second}},
		{"on, failed long ago", dead(recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 5*time.Minute), saying(on, time.Second)), announced},
		{"on, announce", dead(saying(on, time.Second)), announced},
		{"on, too long ago to announce", dead(saying(on, 5021*time.Millisecond)), Decision{Act: Ask, Why: reason.Asking}},

		// Two devices.
		{"they disagree", dead(two, both(off, on, time.Second)), Decision{Act: Wait, Why: reason.Disagree, After: 4 * time.Second}},
		{"they disagree, asked again", dead(two, both(on, off, 5*time.Second)), Decision{Act: Ask, Why: reason.Disagree}},
		{"announced: they disagree", dead(two, powering, both(off, on, time.Second)), Decision{Act: Wait, Why: reason.Disagree, After: 4 * time.Second}},
		{"sent: they disagree", dead(two, powering, sent(time.Second), both(off, on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.AwaitingOff, After: 900 * time.Millisecond}},
		{"the second proves", dead(two, both(unknown, off, 100*time.Millisecond)), armed},
		{"on, and the power of both must not be touched", dead(two, noPower, func(v *View) { v.Devices = append(v.Devices, v.Devices[0]) }, both(on, on, time.Second)), Decision{Act: Wait, Why: reason.PoweredOn, Detail: "never pinned", After: 4 * time.Second}},
		{"announced: through the first", dead(two, powering, both(on, on, 100*time.Millisecond)), throughThe(0)},
		{"announced: through the second, which answers", dead(two, powering, both(unknown, on, 100*time.Millisecond)), throughThe(1)},
		{"announced: through the second, the first's power must not be touched", dead(two, firstNoPower, powering, both(on, on, 100*time.Millisecond)), throughThe(1)},
		{"sent: refused by the first just now, through the second at once", dead(two, powering, refusedAt(0, time.Millisecond), both(on, on, 100*time.Millisecond)), next("rack-a/7 did not accept it", 1)},
		{"sent: refused by both just now", dead(two, powering, refusedAt(0, 910*time.Millisecond), refusedAt(1, 900*time.Millisecond), both(on, on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.NotAccepted, Detail: "unreachable: device unreachable", After: 150 * time.Millisecond}},
		{"sent: refused by both, again", dead(two, powering, refusedAt(0, time.Second), refusedAt(1, time.Second), both(on, on, 100*time.Millisecond)), next("rack-b/7 did not accept it", 0)},
		{"sent: no effect, through the other", dead(two, powering, sent(proof.EffectAfter), both(on, on, 100*time.Millisecond)), next("rack-a/7 accepted it without effect", 1)},
		{"sent: refused for good by the first", dead(two, powering, forGood(0, time.Millisecond), both(on, on, 100*time.Millisecond)), next("rack-a/7 refuses the power-off for good", 1)},
		{"sent: refused for good by both", dead(two, powering, forGood(0, time.Millisecond), forGood(1, time.Millisecond), both(on, on, 100*time.Millisecond)), refusedNow},
		{"sent: refused for good by the only one that may", dead(two, firstNoPower, powering, forGood(1, time.Millisecond), both(on, on, 100*time.Millisecond)), refusedNow},

		// Levels.
		{"announced: the first level waits", dead(two, limited, powering, both(on, on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.LevelDelay, After: 900 * time.Millisecond}},
		{"sent: changing, and its level's time is over", dead(two, limited, powering, sent(8*time.Second), both(changing, unknown, 100*time.Millisecond)), next("the machine was not off within 8s", 1)},
		{"sent: changing, and its level has a second left", dead(two, limited, powering, sent(7*time.Second), both(changing, unknown, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.Changing, After: 400 * time.Millisecond}},
		{"sent: nobody answers, and its level's time is over", dead(two, limited, powering, sent(8*time.Second), both(unknown, unknown, 100*time.Millisecond)), next("the machine was not off within 8s", 1)},
		{"sent: nobody answers, and its level has a second left", dead(two, limited, powering, sent(7*time.Second), both(unknown, unknown, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.Unknown, After: 900 * time.Millisecond}},
		{"sent: they disagree, and its level's time is over", dead(two, limited, powering, sent(8*time.Second), both(off, on, 100*time.Millisecond)), next("the machine was not off within 8s", 1)},
		{"sent: its level's time is over, and nothing is sent to an excluded node", dead(two, limited, excluded, powering, sent(8*time.Second), both(unknown, unknown, 250*time.Millisecond)), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"announced: nobody answers, and nothing was sent", dead(two, limited, powering, both(unknown, unknown, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.Unknown, After: 900 * time.Millisecond}},
		{"announced: both of a level", dead(two, oneLevel, powering, both(on, on, 100*time.Millisecond)), throughThe(0)},
		{"sent: the second of the level follows at once", dead(two, oneLevel, powering, sent(time.Millisecond), both(on, on, 100*time.Millisecond)), Decision{Act: PowerOff, Why: reason.SendingOff, Move: proof.Move{Device: 1}}},
		{"sent: one of the level is off", dead(two, oneLevel, powering, sent(time.Second), sentBy(1, time.Second, nil), both(off, on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.AwaitingOff, After: 150 * time.Millisecond}},
		{"sent: both of the level are off", dead(two, oneLevel, powering, sent(time.Second), both(off, off, 100*time.Millisecond)), armed},
		{"one of the level is off, the other silent", dead(two, oneLevel, both(off, unknown, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.Unknown, After: 900 * time.Millisecond}},

		{"unknown, and its device tells of the end since", dead(saying(unknown, 300*time.Millisecond), set(func(v *View) { v.Fleet.Hint, v.Fleet.HintAt = fleet.Push, ago(100*time.Millisecond) })), Decision{Act: Ask, Why: reason.Unknown}},
		{"unknown, and its device told of the end before", dead(saying(unknown, 300*time.Millisecond), set(func(v *View) { v.Fleet.Hint, v.Fleet.HintAt = fleet.Push, ago(400*time.Millisecond) })), Decision{Act: Wait, Why: reason.Unknown, After: 700 * time.Millisecond}},

		// Announced, not sent: every gate wins.
		{"announced: send", dead(powering, saying(on, 100*time.Millisecond)), throughThe(0)},
		{"announced by another, not silent for this process yet", dead(powering, saying(on, 100*time.Millisecond), beating), Decision{Act: Wait, Why: reason.InGrace, After: 4900 * time.Millisecond}},
		{"announced by another, the silence counts later", dead(powering, saying(on, 100*time.Millisecond), set(func(v *View) { v.Fleet.SilentSince = now.Add(time.Second) })), Decision{Act: Wait, Why: reason.InGrace, After: 4900 * time.Millisecond}},
		{"announced: nothing asked since", dead(powering), Decision{Act: Ask, Why: reason.Asking}},
		{"announced: looked before the answer", dead(powering, saying(on, 15*time.Millisecond)), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"announced: looked too long ago", dead(powering, saying(on, 4*time.Second), set(func(v *View) {
			v.Begin.Got = ago(time.Hour)
			v.Answer.At, v.Answer.Got = ago(5*time.Second), ago(5*time.Second)
			v.Look.Sent, v.Look.Got = ago(4900*time.Millisecond), ago(5001*time.Millisecond)
		})), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"announced: asked 10 s before the look", dead(powering, asked(on, identityHolds)), throughThe(0)},
		{"announced: asked longer before the look", dead(powering, asked(on, identityHolds+1)),
			Decision{Act: Ask, Why: reason.Asking}},
		{"announced: asked more than 10 s ago, and a look is due", dead(powering, asked(on, identityHolds), answeredNow),
			Decision{Act: Ask, Why: reason.Asking}},
		{"sent: asked longer before the look", dead(powering, sent(proof.EffectAfter), asked(on, identityHolds+1)),
			Decision{Act: Ask, Why: reason.Asking}},
		{"announced: heartbeat", dead(powering, saying(on, 100*time.Millisecond), heartbeat), done(reason.Recovered, taint.ResultCancelled)},
		{"announced: boot", dead(powering, saying(on, 100*time.Millisecond), set(func(v *View) { v.Look.BootID, v.Begin.BootID = "b2", "b2" })), done(reason.Recovered, taint.ResultCancelled)},
		{"announced: healthy", dead(powering, saying(on, 100*time.Millisecond), healthy), done(reason.Healthy, taint.ResultCancelled)},
		{"announced: excluded", dead(powering, saying(on, 100*time.Millisecond), excluded), detailed(done(reason.Excluded, taint.ResultCancelled), "maintenance")},
		{"announced: no machine", dead(powering, saying(on, 100*time.Millisecond), noMachine), detailed(done(reason.NoMachine, taint.ResultCancelled), "two providers")},
		{"announced: distrusted", dead(powering, saying(on, 100*time.Millisecond), distrusted), detailed(done(reason.Distrusted, taint.ResultCancelled), "n7")},
		{"announced: all stale", dead(powering, saying(on, 100*time.Millisecond), allStale), done(reason.AllStale, taint.ResultCancelled)},
		{"announced: most stale", dead(powering, saying(on, 100*time.Millisecond), mostStale), done(reason.MostStale, taint.ResultCancelled)},
		{"announced: no work", dead(powering, saying(on, 100*time.Millisecond), noWork), done(reason.NoWork, taint.ResultCancelled)},
		{"announced: mode changed", dead(powering, saying(on, 100*time.Millisecond), observe), done(reason.ModeObserve, taint.ResultCancelled)},
		{"announced: control plane", dead(powering, saying(on, 100*time.Millisecond), controlPlane), done(reason.ControlPlane, taint.ResultCancelled)},

		// Sent: it is asked until Off or the deadline.
		{"sent: wait", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.AwaitingOff, After: 150 * time.Millisecond}},
		{"sent: ask", dead(powering, sent(time.Second), saying(on, 250*time.Millisecond)), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: again, some BMCs do nothing", dead(powering, sent(proof.EffectAfter), saying(on, 100*time.Millisecond)), throughThe(0)},
		{"sent: refused, again", dead(powering, refusedAt(0, time.Second), saying(on, 100*time.Millisecond)), throughThe(0)},
		{"sent: refused just now", dead(powering, refusedAt(0, 900*time.Millisecond), saying(on, 100*time.Millisecond)), Decision{Act: Wait, Why: reason.NotAccepted, Detail: "unreachable: device unreachable", After: 150 * time.Millisecond}},
		{"sent: refused three times, not yet again", dead(powering, thrice(3900*time.Millisecond), saying(on, 250*time.Millisecond)), Decision{Act: Ask, Why: reason.NotAccepted, Detail: "unreachable: device unreachable"}},
		{"sent: refused three times, again", dead(powering, thrice(4*time.Second), saying(on, 100*time.Millisecond)), throughThe(0)},
		{"sent: refused for good", dead(powering, forGood(0, 100*time.Millisecond), saying(on, 100*time.Millisecond)), refusedNow},
		{"sent: refused for good, and unknown", dead(powering, forGood(0, 100*time.Millisecond), saying(unknown, 100*time.Millisecond)), refusedNow},
		{"sent: refused for good, but off", dead(powering, forGood(0, time.Second), saying(off, 100*time.Millisecond)), armed},
		{"sent: heartbeat", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), heartbeat), done(reason.Recovered, taint.ResultCancelled)},
		{"sent: healthy", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), healthy), done(reason.Healthy, taint.ResultCancelled)},
		{"sent: no work", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), noWork), done(reason.NoWork, taint.ResultCancelled)},
		{"sent: excluded is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), excluded), armed},
		{"sent: mode changed is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), observe), armed},
		{"sent: all stale is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), allStale), armed},
		{"sent: most stale is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), mostStale), armed},
		{"sent: most stale, none is sent again", dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), mostStale), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: excluded, none is sent again", dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), excluded), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: mode changed, none is sent again", dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), observe), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: all stale, none is sent again", dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), allStale), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: control plane, none is sent again", dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), controlPlane), Decision{Act: Ask, Why: reason.AwaitingOff}},
		{"sent: distrusted, its Off proves nothing", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), distrusted), done(reason.Distrusted, taint.ResultCancelled)},
		{"sent: no machine, the Off is of another", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), noMachine), done(reason.NoMachine, taint.ResultCancelled)},
		{"sent: deadline", dead(overdue, sent(time.Second), saying(on, 100*time.Millisecond)), done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, unknown", dead(overdue, sent(time.Second), saying(unknown, 100*time.Millisecond)), done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, changing", dead(overdue, sent(time.Second), saying(changing, 100*time.Millisecond)), done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, but off", dead(overdue, sent(time.Second), saying(off, 100*time.Millisecond)), armed},
		{"new leader: asks before it gives up", dead(overdue), Decision{Act: Ask, Why: reason.Asking}},
		{"new leader: finds it off", dead(powering, saying(off, 100*time.Millisecond)), armed},

		// A device that takes longer to answer than an answer counts.
		{"slow off is no proof, and no reason to ask without a pause", dead(slow(off)), Decision{Act: Wait, Why: reason.Unknown, After: 900 * time.Millisecond}},
		{"slow off does not outlive the deadline", dead(overdue, sent(30*time.Second), slow(off)), done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"slow on is on", dead(slow(on)), announced},

		// A fence that ended in this life of the node begins again after a pause.
		{"lifted just now", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Second)), rearming},
		{"lifted a while ago", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, rearm)), armed},
		{"lifted, a heartbeat since", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Second), set(func(v *View) { v.Look.Record.LeaseRV = "6" })), armed},
		{"mark removed just now", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultMarkRemoved, time.Second)), rearming},
		{"lifted in the future, by another clock",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, -time.Hour)),
			Decision{Act: Wait, Why: reason.Rearming, After: rearm}},
		{"evicted just now, and late pods", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, time.Second)), rearming},
		{"returned just now, and silent again", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultReturned, time.Second)), rearming},
		{"evicted, and more to do a while later", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, rearm)), armed},
		{"evicted for the third time", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, 15*time.Second), set(func(v *View) { v.Look.Record.Repeats = 2 })), Decision{Act: Wait, Why: reason.Rearming, After: 5 * time.Second}},
		{"evicted for the hundredth time", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, 4*time.Minute), set(func(v *View) { v.Look.Record.Repeats = 99 })), Decision{Act: Wait, Why: reason.Rearming, After: time.Minute}},
		{"a power-off failed just now, and it is off", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Second)), armed},
		{"cancelled just now", dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultCancelled, time.Second)), armed},

		// It was never off.
		{"never off", dead(healthy, returned), done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"never off, after a return", dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultReturned })), done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"never off, though excluded", dead(excluded, returned), done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"off in between: another boot", dead(healthy, returned, set(func(v *View) { v.Look.BootID = "b2" })), Decision{Act: Leave, Why: reason.Healthy}},
		{"not ready yet", dead(healthy, returned, set(func(v *View) { v.Look.Ready = corev1.ConditionUnknown })), Decision{Act: Ask, Why: reason.Asking}},
		{"no heartbeat yet", dead(healthy, returned, set(func(v *View) { v.Look.Record.LeaseRV = "7" })), Decision{Act: Leave, Why: reason.Healthy}},
		{"boot never said", dead(healthy, returned, set(func(v *View) { v.Look.Record.BootID, v.Look.BootID = "", "" })), Decision{Act: Leave, Why: reason.Healthy}},
		{"recreated", dead(healthy, returned, set(func(v *View) { v.Look.UID = "u2" })), Decision{Act: Leave, Why: reason.Healthy}},
		{"a person vouched: no device to blame", dead(healthy, returned, set(func(v *View) { v.Look.Record.By = taint.ByPerson })), Decision{Act: Leave, Why: reason.Healthy}},
		{"nothing was evicted", dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultLifted })), Decision{Act: Leave, Why: reason.Healthy}},
		{"said already", dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultNeverPoweredOff })), Decision{Act: Leave, Why: reason.Healthy}},

		// Values left out are the safe ones.
		{"silence without a time does not count",
			dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = providers.Instant{} })),
			Decision{Act: Wait, Why: reason.MostStale, After: 4 * time.Second}},
		{"a fleet that nobody knows is silent", dead(saying(off, 0), set(func(v *View) { v.Fleet = fleet.View{} })), Decision{Act: Wait, Why: reason.AllStale, After: time.Second}},
		{"looked and answered at the same instant", dead(saying(off, 20*time.Millisecond)), Decision{Act: Look, Why: reason.LookedTooEarly}},
		{"answered at this instant", dead(saying(off, 0)), Decision{Act: Wait, Why: reason.LookedTooEarly, After: time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Step(tt.view)
			checkRecord(t, tt.view, got)
			got.Record = taint.Record{Phase: got.Record.Phase, Result: got.Record.Result}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
		})
	}
}

// two devices speak for the machine.
func two(v *View) {
	v.Devices = append(v.Devices, proof.Device{Name: "rack-b/7", Level: 1, Machine: taint.Machine{Provider: "rack-b", ID: "7"}})
}

// oneLevel puts both into the first level.
func oneLevel(v *View) {
	v.Devices = slices.Clone(v.Devices)
	v.Devices[1].Level = 0
}

// limited gives the first level a delay that has a second left, and a time of 8 s.
func limited(v *View) {
	v.Devices = slices.Clone(v.Devices)
	v.Devices[0].Limits = proof.Limits{Delay: 4 * time.Second, Timeout: 8 * time.Second}
}

func firstNoPower(v *View) {
	v.Devices = slices.Clone(v.Devices)
	v.Devices[0].NoPower = "never pinned"
}

func both(first, second providers.PowerState, d time.Duration) func(*View) {
	return func(v *View) { heard(v, answer(first, d), answer(second, d)) }
}

// thrice is refused for the third time.
func thrice(d time.Duration) func(*View) {
	return func(v *View) {
		for range 3 {
			refusedAt(0, d)(v)
		}
	}
}

func throughThe(device int) Decision {
	return Decision{Act: PowerOff, Why: reason.SendingOff, Move: proof.Move{Device: device, Turn: true}}
}

// next is the power-off through the next level, after one that gave way.
func next(why string, device int) Decision {
	name := []string{"rack-a/7", "rack-b/7"}[device]
	return Decision{Act: PowerOff, Why: reason.NextLevel, Detail: why + "; now through " + name, Move: proof.Move{Device: device, Turn: true, Why: why}}
}

// Of several devices that one is caught whose Off the record holds; the other proves in the next fence, whose record still names the liar.
func TestOneOfTwoIsCaught(t *testing.T) {
	v := dead(two, healthy, returned)
	v.Look.Record.Evidence = []taint.Evidence{{From: "rack-a/7", State: "Unknown"}, {From: "rack-b/7", State: "Off"}}
	d := Step(v)
	want := []taint.Speaker{{Device: "rack-b/7", Machine: &taint.Machine{Provider: "rack-b", ID: "7"}}}
	if diff := cmp.Diff(want, d.Record.Lied); d.Record.Result != taint.ResultNeverPoweredOff || diff != "" {
		t.Errorf("got %s, liars (-want +got):\n%s", d.Record.Result, diff)
	}
	next := dead(two, both(providers.PowerOff, providers.PowerUnknown, 100*time.Millisecond))
	rec := d.Record
	rec.LeaseRV = "1" // it was alive since
	next.Look.Record = &rec
	armed := Step(next)
	if diff := cmp.Diff(want, armed.Record.Lied); armed.Act != Arm || diff != "" {
		t.Errorf("got %s, liars (-want +got):\n%s", armed.Act, diff)
	}
	if e := armed.Record.Evidence; len(e) != 2 || e[0].From != "rack-a/7" || e[0].State != "Off" || e[1].From != "rack-b/7" || e[1].State != "Unknown" {
		t.Errorf("got evidence %+v, want each device's", e)
	}
}

var (
	armed      = Decision{Act: Arm, Why: reason.ProvenOff, Record: taint.Record{Phase: taint.PhaseArmed}}
	rearming   = Decision{Act: Wait, Why: reason.Rearming, After: 4 * time.Second}
	refusedNow = Decision{Act: Write, Why: reason.PowerOffRefused, Detail: "permanent: the system offers no ForceOff", Record: taint.Record{Phase: taint.PhaseDone, Result: taint.ResultPowerOffFailed}}
	announced  = Decision{Act: Write, Why: reason.Announcing, Record: taint.Record{Phase: taint.PhasePoweringOff}}
)

func done(why reason.Reason, res taint.Result) Decision {
	return Decision{Act: Write, Why: why, Record: taint.Record{Phase: taint.PhaseDone, Result: res}}
}

func healthy(v *View) {
	v.Look.Ready, v.Fleet.Stale, v.Fleet.Missed = corev1.ConditionTrue, false, false
}
func detailed(d Decision, detail string) Decision {
	d.Detail = detail
	return d
}
func excluded(v *View) { v.Excluded = "maintenance" }
func noPower(v *View) {
	v.Devices = []proof.Device{v.Devices[0]}
	v.Devices[0].NoPower = "never pinned"
}
func noMachine(v *View)  { v.Nobody = errors.New("two providers") }
func distrusted(v *View) { v.Distrusted = "n7" }
func allStale(v *View) {
	v.Fleet.Fresh, v.Fleet.Heard, v.Fleet.SilentSince = 0, false, providers.Instant{}
}
func mostStale(v *View) {
	v.Fleet.Fresh, v.Fleet.Others, v.Fleet.Heard, v.Fleet.SilentSince = 1, 3, false, providers.Instant{}
}
func noWork(v *View)       { v.Work = NoneToDo }
func observe(v *View)      { v.Mode = Observe }
func controlPlane(v *View) { v.ControlPlane = true }
func beating(v *View)      { v.Fleet.Stale, v.Fleet.SilentSince = false, providers.Instant{} }
func busy(v *View) {
	v.Fleet.Busy = "n2"
	v.Fleet.Storm.PowerOffs, v.Fleet.Storm.Max = 1, 1
}
func justNow(v *View) { v.Fleet.SilentSince = ago(time.Second) }

// forGood is a device that will never take the power-off.
func forGood(device int, d time.Duration) func(*View) {
	return sentBy(device, d, providers.WithClass(providers.ErrPermanent, errors.New("the system offers no ForceOff")))
}
func heartbeat(v *View) { v.Look.LeaseRV, v.Begin.LeaseRV = "8", "8" }
func overdue(v *View)   { recorded(taint.PhasePoweringOff, "", 61*time.Second)(v) }

func returned(v *View) {
	recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute)(v)
	v.Look.Record.LeaseRV, v.Look.Ready = "6", corev1.ConditionTrue
}

func postsNotReady(v *View) { v.Look.Ready, v.Fleet.Missed = corev1.ConditionFalse, false; beating(v) }

// lookTook is a look that was sent that long ago.
func lookTook(d time.Duration) func(*View) {
	return func(v *View) { v.Look.Sent = ago(d) }
}

// slow is an answer that was on its way for longer than it counts.
func slow(s providers.PowerState) func(*View) {
	return func(v *View) {
		a := answer(s, 100*time.Millisecond)
		a.At = a.Got.Add(-proof.TTL - time.Second)
		heard(v, a)
	}
}

// checkRecord holds what every record that Step wants written must have.
func checkRecord(t *testing.T, v View, d Decision) {
	t.Helper()
	if (d.Act == Write || d.Act == Arm) == (d.Record.Phase == "") {
		t.Errorf("act %s with a record in phase %q", d.Act, d.Record.Phase)
	}
	if d.Record.Phase == "" {
		return
	}
	if back, err := taint.ParseRecord(d.Record.Encode()); err != nil || !cmp.Equal(back, d.Record) {
		t.Errorf("the record does not read back: %v\n%s", err, cmp.Diff(d.Record, back))
	}
	if !d.Record.At.Equal(v.Now.Wall) {
		t.Errorf("phase %s entered at %s, want now", d.Record.Phase, d.Record.At)
	}
	old := v.Look.Record
	if old.Open() && (d.Record.ID != old.ID || !d.Record.Since.Equal(old.Since) || d.Record.By != old.By) {
		t.Errorf("the fence that goes on became %+v, was %+v", d.Record, *old)
	}
	if d.Record.Phase == taint.PhaseDone {
		return
	}
	if !old.Open() && (d.Record.ID != v.NewID || !d.Record.Since.Equal(v.Now.Wall) || d.Record.By != v.By) {
		t.Errorf("a new fence is %+v, want id %s, since now, by %s", d.Record, v.NewID, v.By)
	}
	if d.Record.NodeUID != v.Look.UID || d.Record.BootID != v.Look.BootID || d.Record.LeaseRV != v.Look.LeaseRV || d.Record.Device != v.Devices[0].Name ||
		d.Record.Machine == nil || *d.Record.Machine != v.Devices[0].Machine {
		t.Errorf("the record is not of this look: %+v", d.Record)
	}
	if n := len(d.Record.Evidence); n == 0 || !d.Record.Evidence[n-1].At.Equal(v.Answer.At.Wall) {
		t.Errorf("the record's newest evidence is not the answer: %+v", d.Record.Evidence)
	}
}

// The device of a node that is back is asked from the first look at it on: a heartbeat begins nothing anew, and the next
// fence, or the end of Ready, does.
func TestBackSince(t *testing.T) {
	look := func(fence, lease string, ready corev1.ConditionStatus, at time.Duration) taint.Look {
		l := dead(healthy, returned).Look
		r := *l.Record
		r.ID, r.Run = fence, "1"
		l.Record, l.LeaseRV, l.Ready, l.Got = &r, lease, ready, ago(at)
		return l
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionUnknown
	var m Memory
	for i, tt := range []struct {
		look taint.Look
		want providers.Instant
	}{
		{look("f1", "8", no, 60*time.Second), providers.Instant{}},
		{look("f1", "8", yes, 50*time.Second), ago(50 * time.Second)}, // no heartbeat between the two
		{look("f1", "9", yes, 40*time.Second), ago(50 * time.Second)},
		{look("f1", "10", yes, 30*time.Second), ago(50 * time.Second)},
		{look("f2", "11", yes, 20*time.Second), ago(20 * time.Second)},
		{look("f2", "12", no, 10*time.Second), providers.Instant{}},
		{look("f2", "13", yes, 5*time.Second), ago(5 * time.Second)},
	} {
		if m.Saw(tt.look); m.Back != tt.want {
			t.Errorf("look %d: got back since %v, want %v", i, m.Back, tt.want)
		}
	}
}

// A node that is back under the boot id of its host: its device is asked which run of the machine this is, until it tells.
func TestExplain(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	run := func(s providers.PowerState, run string, d time.Duration) func(*View) {
		a := answer(s, d)
		a.Run = run
		return func(v *View) { heard(v, a) }
	}
	told := func(v *View) { v.Look.Record.Run = "1" }
	back := func(v *View) { v.Begin.Got, v.Back = ago(10*time.Second), ago(10*time.Second) } // the first look at this life
	beat := func(v *View) { v.Begin.Got = ago(time.Second) }                                 // and a heartbeat since
	for _, tt := range []struct {
		name    string
		view    View
		act     Act
		why     reason.Reason
		restart string
		result  taint.Result
	}{
		{"nothing asked", dead(healthy, returned, told, back), Ask, reason.Explaining, "", ""},
		{"on, the run that was over", dead(healthy, returned, told, back, run(on, "1", time.Second)), Write, reason.NeverOff, "", taint.ResultNeverPoweredOff},
		{"off, the run that was over: it beats", dead(healthy, returned, told, back, run(off, "1", time.Second)), Write, reason.NeverOff, "", taint.ResultNeverPoweredOff},
		{"on, another run", dead(healthy, returned, told, back, run(on, "2", time.Second)), Write, reason.StartedAgain, "2", taint.ResultEvicted},
		{"off again, another run", dead(healthy, returned, told, back, run(off, "2", time.Second)), Write, reason.StartedAgain, "2", taint.ResultEvicted},
		{"another run, told before it was back", dead(healthy, returned, told, back, run(on, "2", 11*time.Second)), Ask, reason.Explaining, "", ""},
		{"the run that was over, told before its last heartbeat",
			dead(healthy, returned, told, back, beat, run(on, "1", 5*time.Second)), Write, reason.NeverOff, "", taint.ResultNeverPoweredOff},
		{"another run, told before its last heartbeat",
			dead(healthy, returned, told, back, beat, run(on, "2", 5*time.Second)), Write, reason.StartedAgain, "2", taint.ResultEvicted},
		{"no answer", dead(healthy, returned, told, back, run(providers.PowerUnknown, "", 100*time.Millisecond)), Wait, reason.Explaining, "", ""},
		{"no answer a while ago", dead(healthy, returned, told, back, run(providers.PowerUnknown, "", time.Second)), Ask, reason.Explaining, "", ""},
		{"explained", dead(healthy, returned, told, back, func(v *View) { v.Look.Record.Restart = "2" }), Leave, reason.Healthy, "", ""},
		{"nothing was evicted", dead(healthy, returned, told, back, func(v *View) { v.Look.Record.Result = taint.ResultLifted }), Leave, reason.Healthy, "", ""},
		{"silent again", dead(returned, told, back, func(v *View) { v.Look.Ready = corev1.ConditionUnknown }), Ask, reason.Asking, "", ""},
	} {
		d := Step(tt.view)
		if d.Act != tt.act || d.Why != tt.why || d.Record.Restart != tt.restart || d.Record.Result != tt.result {
			t.Errorf("%s: got %s %s, restart %q, result %q", tt.name, d.Act, d.Why, d.Record.Restart, d.Record.Result)
		}
		if old := tt.view.Look.Record; d.Why == reason.StartedAgain && (d.Record.Phase != taint.PhaseDone || !d.Record.At.Equal(old.At) || d.Record.Run != old.Run) {
			t.Errorf("%s: the record became %+v", tt.name, d.Record)
		}
	}
	// One of several devices told the run: it is asked which run goes on, and the host's boot id accuses nobody.
	two := func(v *View) {
		v.Devices = []proof.Device{{Name: "laptop/n1"}, {Name: "strip/7", Level: 1}}
		v.Look.Record.RunBy = "laptop/n1"
	}
	several := func(s providers.PowerState, first, second string) func(*View) {
		a, b := answer(s, time.Second), answer(on, time.Second)
		a.Run, b.Run = first, second
		return func(v *View) { heard(v, a, b) }
	}
	for _, tt := range []struct {
		name  string
		view  View
		act   Act
		why   reason.Reason
		again string
	}{
		{"nothing asked", dead(healthy, returned, told, two, back), Ask, reason.Explaining, ""},
		{"it tells the run that was over", dead(healthy, returned, told, two, back, several(on, "1", "")), Write, reason.NeverOff, ""},
		{"it tells another", dead(healthy, returned, told, two, back, several(on, "2", "1")), Write, reason.StartedAgain, "2"},
		{"another tells one", dead(healthy, returned, told, two, back, several(providers.PowerUnknown, "", "1")), Wait, reason.Explaining, ""},
	} {
		if d := Step(tt.view); d.Act != tt.act || d.Why != tt.why || d.Record.Restart != tt.again {
			t.Errorf("several devices, %s: got %s %s, restart %q", tt.name, d.Act, d.Why, d.Record.Restart)
		}
	}
	marked := Step(dead(func(v *View) {
		v.Devices = []proof.Device{{Name: "laptop/n1"}, {Name: "person/n1", Level: 1}}
		a, b := answer(off, 100*time.Millisecond), answer(off, 100*time.Millisecond)
		a.Run = "3"
		heard(v, a, b)
	}))
	if marked.Act != Arm || marked.Record.Run != "3" || marked.Record.RunBy != "laptop/n1" {
		t.Errorf("several devices: got %s with run %q by %q", marked.Act, marked.Record.Run, marked.Record.RunBy)
	}
	// The run stands in the record from the mark on, and not a run of before.
	d := Step(dead(run(off, "3", 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Hour), func(v *View) { v.Look.Record.Run, v.Look.Record.Restart = "1", "2" }))
	if d.Act != Arm || d.Record.Run != "3" || d.Record.Restart != "" {
		t.Errorf("got %s with run %q, restart %q", d.Act, d.Record.Run, d.Record.Restart)
	}
}

func TestMemory(t *testing.T) {
	t.Run("an answer from before the first look", func(t *testing.T) {
		v := dead(saying(providers.PowerOff, 60*time.Second))
		if d := Step(v); d.Act != Ask || v.State() != providers.PowerUnknown {
			t.Errorf("%s in state %s, want to ask", d.Act, v.State())
		}
	})
	for _, tt := range []struct {
		name   string
		change func(*taint.Look)
		keeps  bool
	}{
		{"the same life", func(*taint.Look) {}, true},
		{"another version of it", func(l *taint.Look) { l.ResourceVersion, l.Ready = "43", corev1.ConditionFalse }, true},
		{"heartbeat", func(l *taint.Look) { l.LeaseRV = "8" }, false},
		{"boot", func(l *taint.Look) { l.BootID = "b2" }, false},
		{"recreated", func(l *taint.Look) { l.UID = "u2" }, false},
		{"gone", func(l *taint.Look) { *l = taint.Look{} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := dead(powering, refusedAt(0, time.Second), saying(providers.PowerOff, time.Second))
			l := v.Look
			tt.change(&l)
			m := v.Memory
			l.Got = v.Now
			if anew := m.Saw(l); anew == tt.keeps {
				t.Errorf("anew: %v, want %v", anew, !tt.keeps)
			}
			if v.Memory = m; (v.State() == providers.PowerOff) != tt.keeps {
				t.Errorf("state %s, answer kept: want %v", v.State(), tt.keeps)
			}
			if begins := cmp.Equal(m.Begin, l); begins == tt.keeps {
				t.Errorf("begins anew: %v, want %v", begins, !tt.keeps)
			}
			if kept := !m.PowerOffSent.IsZero() && m.PowerOffErr != nil; kept != tt.keeps {
				t.Errorf("power-off remembered: %v, want %v", kept, tt.keeps)
			}
		})
	}
	t.Run("a power-off is of its fence", func(t *testing.T) {
		for _, rec := range []func(*View){func(v *View) { v.Look.Record = nil }, recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 0)} {
			v := dead(refusedAt(0, time.Second), rec)
			v.Memory.Saw(v.Look)
			if !v.PowerOffSent.IsZero() || v.PowerOffErr != nil {
				t.Errorf("with record %+v the power-off is still remembered", v.Look.Record)
			}
		}
	})
	t.Run("an answer on its way while the node came back", func(t *testing.T) {
		// Asked at 1 s ago, heartbeat seen 500 ms ago, answered now.
		v := dead()
		v.Look.LeaseRV, v.Look.Got = "8", ago(500*time.Millisecond)
		v.Memory.Saw(v.Look)
		a := answer(providers.PowerOff, 0)
		a.At = ago(time.Second)
		heard(&v, a)
		if s := v.State(); s != providers.PowerUnknown {
			t.Errorf("state %s, want Unknown", s)
		}
	})
}

func TestStrings(t *testing.T) {
	for i, want := range []string{"Leave", "Wait", "Look", "Ask", "Write", "PowerOff", "Arm", "ReadLive"} {
		if got := Act(i).String(); got != want {
			t.Errorf("Act(%d) = %s, want %s", i, got, want)
		}
	}
	if Observe.String() != "observe" || Fence.String() != "fence" || Mode(7).String() != "mode 7" {
		t.Errorf("modes %s, %s, %s, want observe, fence, mode 7", Observe, Fence, Mode(7))
	}
}
