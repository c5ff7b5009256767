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
	"github.com/forcefence/forcefence/taint/decide/action"
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
func twin(v *View) { v.Fleet.Twin = "n8" }

func dead(change ...func(*View)) View {
	l := taint.Look{
		Sent: ago(20 * time.Millisecond), Got: ago(10 * time.Millisecond), Exists: true, Name: "n1", UID: "u1",
		ResourceVersion: "42",
		BootID:          "b1", Ready: corev1.ConditionUnknown, LeaseRV: "7",
	}
	first := l
	first.Sent, first.Got = ago(60*time.Second), ago(59*time.Second)
	v := View{
		Facts: Facts{
			Settings: Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute, Retry: 5 * time.Minute},
			Mode:     Fence,
			Devices:  []proof.Device{{Name: "rack-a/7", Machine: taint.MachineRef{Provider: "rack-a", ID: "7"}}},
			NewID:    "f2", By: "me",
		},
		Now: now, Look: l, Memory: Memory{FirstLook: first}, PendingWork: WorkConfirmed,
		Fleet: fleet.View{Stale: true, Missed: true, Others: 2, Fresh: 2, Heard: true,
			SilentSince: ago(59 * time.Second)},
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
func answeredNow(v *View) { v.Answers.Answer.Got = ago(10 * time.Millisecond) }

// heard folds in what the devices answered.
func heard(v *View, answers ...providers.Answer) {
	v.Answers.SetDevices(v.Facts.Devices...)
	v.Answers.ApplyAnswers(answers...)
}

// recorded puts a record of this life of the node on it, in its phase since d.
func recorded(p taint.Phase, res taint.Result, d time.Duration) func(*View) {
	return func(v *View) {
		r := taint.Record{ID: "f1", NodeUID: "u1", BootID: "b1", LeaseRV: "7", Since: ago(2 * time.Minute).Wall,
			By: "other"}.EnterPhase(p, res, ago(d).Wall)
		v.Look.Record = &r
	}
}

// powering is an announced power-off, whose record names both devices that two gives the node.
func powering(v *View) {
	recorded(taint.PhasePoweringOff, "", 3*time.Second)(v)
	for _, rack := range []string{"rack-a", "rack-b"} {
		d := taint.DeviceRef{Device: rack + "/7", Machine: &taint.MachineRef{Provider: rack, ID: "7"}}
		v.Look.Record.PowerOffTo = append(v.Look.Record.PowerOffTo, d)
	}
}

func sent(d time.Duration) func(*View) { return sentBy(0, d, nil) }

// sentBy sends a power-off through the device, whose level begins its turn with it.
func sentBy(device int, d time.Duration, err error) func(*View) {
	return func(v *View) {
		v.Memory.PowerOffs.ApplySent(ago(d), v.Facts.Devices, proof.Move{Device: device, Turn: true}, err)
	}
}

// refusedAt is a power-off that was not accepted.
func refusedAt(device int, d time.Duration) func(*View) {
	return sentBy(device, d, providers.ErrUnreachable)
}

func TestStep(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging,
		providers.PowerUnknown
	set := func(f func(*View)) func(*View) { return f }
	for _, tt := range []struct {
		name string
		view View
		want action.Decision // of Record only phase and result are compared
	}{
		// Nothing to decide on.
		{"zero", View{}, leaves(reason.Gone)},
		{"marked", dead(set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "manual"} })), leaves(reason.Marked)},
		{"marked, with any record",
			dead(powering, set(func(v *View) { v.Look.Mark = &taint.Mark{Value: "f1"} })), leaves(reason.Marked)},
		{"bad record", dead(saying(off, 0), set(func(v *View) { v.Look.RecordErr = errors.New("no") })),
			detailed(leaves(reason.BadRecord), "no")},
		{"mark vanished while armed", dead(recorded(taint.PhaseArmed, "", time.Second)),
			done(reason.MarkVanished, taint.ResultMarkRemoved)},
		{"mark vanished while evicting", dead(recorded(taint.PhaseEvicting, "", time.Second)),
			done(reason.MarkVanished, taint.ResultMarkRemoved)},

		// Step 1's gate, in its order; each wins over an Off in hand.
		{"healthy", dead(saying(off, 0), healthy), leaves(reason.Healthy)},
		{"excluded", dead(saying(off, 0), excluded), detailed(waits(reason.Excluded, recheckEvery), "maintenance")},
		{"no machine", dead(saying(off, 0), noMachine),
			detailed(waits(reason.NoMachine, recheckEvery), "two providers")},
		{"off, and another node that is heard may be the machine", dead(saying(off, 0), twin),
			detailed(waits(reason.SharedMachine, recheckTwin), "n8")},
		{"on, and another node that is heard may be the machine", dead(saying(on, time.Second), twin),
			detailed(waits(reason.SharedMachine, recheckTwin), "n8")},
		{"distrusted", dead(saying(off, 0), distrusted), detailed(waits(reason.Distrusted, recheckEvery), "n7")},
		{"released by a person", dead(saying(off, 0), recorded(taint.PhaseDone, taint.ResultReleased, time.Minute)),
			waits(reason.Released, recheckEvery)},
		{"released, but booted since",
			dead(recorded(taint.PhaseDone, taint.ResultReleased, time.Minute),
				set(func(v *View) { v.Look.Record.BootID = "b0" })), asks(reason.Asking)},
		{"released, but a heartbeat since",
			dead(recorded(taint.PhaseDone, taint.ResultReleased, time.Minute),
				set(func(v *View) { v.Look.Record.LeaseRV = "6" })), asks(reason.Asking)},
		{"all stale", dead(saying(off, 0), allStale), waits(reason.AllStale, time.Second)},
		{"no work", dead(saying(off, 0), noWork), waits(reason.NoWork, recheckEvery)},
		{"no work, the last fence ended it",
			dead(saying(off, 0), noWork, recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute)),
			waits(reason.StaysDead, recheckEvery)},
		{"no work, an earlier life was fenced",
			dead(saying(off, 0), noWork, recorded(taint.PhaseDone, taint.ResultEvicted, time.Minute),
				func(v *View) {
					r := *v.Look.Record
					r.LeaseRV = "1"
					v.Look.Record = &r
				}), waits(reason.NoWork, recheckEvery)},

		// Steps 3 to 5.
		{"nothing asked", dead(), asks(reason.Asking)},
		{"off", dead(saying(off, 100*time.Millisecond)), armed},
		{"off, in mode observe", dead(observe, saying(off, 100*time.Millisecond)), armed},
		{"off, a control-plane node", dead(controlPlane, saying(off, 100*time.Millisecond)), armed},
		{"off, another power-off under way", dead(busy, saying(off, 100*time.Millisecond)), armed},
		{"off, within the grace", dead(justNow, saying(off, 100*time.Millisecond)), armed},
		{"off, the announced fence goes on", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond)),
			armed},
		{"off just in time", dead(saying(off, proof.TTL-80*time.Millisecond)), armed},
		{"off too long ago", dead(saying(off, proof.TTL-79*time.Millisecond)), asks(reason.Asking)},
		{"off, looked before the answer", dead(saying(off, 15*time.Millisecond)), looks(reason.LookedTooEarly)},
		{"off, heartbeat since the first look",
			dead(saying(off, time.Second), set(func(v *View) { v.Look.LeaseRV = "8" })), looks(reason.Recovered)},
		{"off, booted since the first look",
			dead(saying(off, time.Second), set(func(v *View) { v.Look.BootID = "b2" })), looks(reason.Recovered)},
		{"off, another Node object", dead(saying(off, time.Second), set(func(v *View) { v.Look.UID = "u2" })),
			looks(reason.Recovered)},
		{"off, asked before the first look",
			dead(set(func(v *View) {
				v.Answers.Answer, v.Memory.FirstLook.Got = answer(off, time.Second), ago(time.Second)
			})),
			asks(reason.Asking)},
		// A slow API server: what counts is the answer's age when the look that followed it was sent.
		{"off, and the look after it took 6 s",
			dead(saying(off, 6200*time.Millisecond), lookTook(6100*time.Millisecond)), armed},
		{"off, and the look after it came late",
			dead(saying(off, 11200*time.Millisecond), lookTook(6100*time.Millisecond)), asks(reason.Asking)},
		{"off, and the look after it took for ever",
			dead(saying(off, armWithin), lookTook(armWithin-50*time.Millisecond)), asks(reason.Asking)},
		{"on, and the look after it took 6 s",
			dead(powering, saying(on, 6200*time.Millisecond), lookTook(6100*time.Millisecond)), throughThe(0)},
		{"on, and the look after it came late",
			dead(powering, saying(on, 11200*time.Millisecond), lookTook(6100*time.Millisecond)), asks(reason.Asking)},

		// A kubelet that itself says NotReady is alive until it misses a renewal.
		{"off, its kubelet says NotReady", dead(saying(off, 100*time.Millisecond), postsNotReady),
			waits(reason.PostsNotReady, 900*time.Millisecond)},
		{"off, its kubelet says NotReady, due", dead(saying(off, time.Second), postsNotReady),
			asks(reason.PostsNotReady)},
		{"off, was never Ready",
			dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Look.Ready = "" })),
			waits(reason.PostsNotReady, 900*time.Millisecond)},
		{"off, its kubelet said NotReady and missed a renewal",
			dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Missed = true })),
			armed},
		{"off, its kubelet says NotReady, its device reported the end",
			dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Push })),
			armed},
		{"off, Ready is Unknown and the Lease fresh",
			dead(saying(off, 100*time.Millisecond), postsNotReady,
				set(func(v *View) { v.Look.Ready = corev1.ConditionUnknown })), armed},
		{"off, its kubelet says NotReady, its line broke",
			dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Line })),
			armed},
		{"off, its kubelet says NotReady, and the same device said so before",
			dead(saying(off, 100*time.Millisecond), postsNotReady, set(func(v *View) { v.Fleet.Hint = fleet.Poll })),
			waits(reason.PostsNotReady, 900*time.Millisecond)},
		{"off, Ready, its device reported the end",
			dead(saying(off, 100*time.Millisecond), healthy, set(func(v *View) { v.Fleet.Hint = fleet.Push })), armed},
		{"off, Ready and silent",
			dead(saying(off, 100*time.Millisecond), set(func(v *View) { v.Look.Ready = corev1.ConditionTrue })), armed},

		// Attachments that only a cache knows.
		{"off, only a cache says there is work",
			dead(saying(off, 100*time.Millisecond), set(func(v *View) { v.PendingWork = WorkCached })),
			action.Decision{Action: action.ListAttachments{Live: true}, Reason: reason.Asking}},
		{"on, only a cache says there is work",
			dead(saying(on, time.Second), set(func(v *View) { v.PendingWork = WorkCached })),
			action.Decision{Action: action.ListAttachments{Live: true}, Reason: reason.Asking}},
		{"changing", dead(saying(changing, 200*time.Millisecond)), waits(reason.Unsettled, 300*time.Millisecond)},
		{"changing, due", dead(saying(changing, 500*time.Millisecond)), asks(reason.Unsettled)},
		{"unknown", dead(saying(unknown, 200*time.Millisecond)), waits(reason.Unknown, 800*time.Millisecond)},
		{"unknown, due", dead(saying(unknown, time.Second)), asks(reason.Unknown)},
		{"unknown for an hour",
			dead(set(func(v *View) { v.Fleet.SilentSince, v.Answers.Misses = ago(time.Hour), 1000 }),
				saying(unknown, time.Second)), waits(reason.Unknown, 29*time.Second)},
		{"an invalid state", dead(set(func(v *View) { v.Answers.Answer = answer(9, 0) })),
			waits(reason.UnexpectedAnswer, pollMax)},

		// On.
		{"on, observe", dead(observe, saying(on, time.Second)),
			detailed(waits(reason.PoweredOn, 4*time.Second), "mode observe")},
		{"on, observe, due", dead(observe, saying(on, 5*time.Second)),
			detailed(asks(reason.PoweredOn), "mode observe")},
		{"on, its power must not be touched", dead(noPower, saying(on, time.Second)),
			detailed(waits(reason.PoweredOn, 4*time.Second), "never pinned")},
		{"announced: its power must not be touched", dead(noPower, powering, saying(on, 100*time.Millisecond)),
			detailed(done(reason.PoweredOn, taint.ResultCancelled), "never pinned")},
		{"sent: its power must not be touched once more",
			dead(noPower, powering, sent(time.Minute-time.Second), saying(on, 100*time.Millisecond)),
			waits(reason.AwaitingOff, 150*time.Millisecond)},
		{"on, control plane", dead(controlPlane, saying(on, time.Second)), waits(reason.ControlPlane, 4*time.Second)},
		{"on, still beating", dead(beating, saying(on, time.Second)), waits(reason.StillBeating, 4*time.Second)},
		{"on, most are silent", dead(mostStale, saying(on, time.Second)), waits(reason.MostStale, 4*time.Second)},
		{"on, the silence begins to count later",
			dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = now.Add(2 * time.Second) })),
			waits(reason.InGrace, 4*time.Second)},
		{"on, in grace", dead(justNow, saying(on, time.Second)), waits(reason.InGrace, 4*time.Second)},
		{"on, grace ends within the poll",
			dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = ago(28 * time.Second) })),
			waits(reason.InGrace, time.Second)},
		{"on, another power-off", dead(busy, saying(on, 200*time.Millisecond)),
			detailed(waits(reason.PowerOffLimit, 800*time.Millisecond), "1 of at most 1: n2")},
		{"on, failed lately",
			dead(recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 4*time.Minute), saying(on, time.Second)),
			waits(reason.BackingOff, 4*time.Second)},
		{"on, failed long ago",
			dead(recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 5*time.Minute), saying(on, time.Second)),
			announced},
		{"on, announce", dead(saying(on, time.Second)), announced},
		{"on, too long ago to announce", dead(saying(on, 5021*time.Millisecond)), asks(reason.Asking)},

		// Two devices.
		{"they disagree", dead(two, both(off, on, time.Second)), waits(reason.Disagree, 4*time.Second)},
		{"they disagree, asked again", dead(two, both(on, off, 5*time.Second)), asks(reason.Disagree)},
		{"announced: they disagree", dead(two, powering, both(off, on, time.Second)),
			waits(reason.Disagree, 4*time.Second)},
		{"sent: they disagree", dead(two, powering, sent(time.Second), both(off, on, 100*time.Millisecond)),
			waits(reason.AwaitingOff, 900*time.Millisecond)},
		{"the second proves", dead(two, both(unknown, off, 100*time.Millisecond)), armed},
		{"on, and the power of both must not be touched",
			dead(two, noPower, func(v *View) { v.Facts.Devices = append(v.Facts.Devices, v.Facts.Devices[0]) },
				both(on, on, time.Second)), detailed(waits(reason.PoweredOn, 4*time.Second), "never pinned")},
		{"announced: through the first", dead(two, powering, both(on, on, 100*time.Millisecond)), throughThe(0)},
		{"announced: through the second, which answers", dead(two, powering, both(unknown, on, 100*time.Millisecond)),
			throughThe(1)},
		{"announced: through the second, the first's power must not be touched",
			dead(two, firstNoPower, powering, both(on, on, 100*time.Millisecond)), throughThe(1)},
		{"sent: refused by the first just now, through the second at once",
			dead(two, powering, refusedAt(0, time.Millisecond), both(on, on, 100*time.Millisecond)),
			next("rack-a/7 did not accept it", 1)},
		{"sent: refused by both just now",
			dead(two, powering, refusedAt(0, 910*time.Millisecond), refusedAt(1, 900*time.Millisecond),
				both(on, on, 100*time.Millisecond)),
			detailed(waits(reason.NotAccepted, 150*time.Millisecond), "unreachable: device unreachable")},
		{"sent: refused by both, again",
			dead(two, powering, refusedAt(0, time.Second), refusedAt(1, time.Second),
				both(on, on, 100*time.Millisecond)), next("rack-b/7 did not accept it", 0)},
		{"sent: no effect, through the other",
			dead(two, powering, sent(proof.EffectAfter), both(on, on, 100*time.Millisecond)),
			next("rack-a/7 accepted it, but the machine stayed on", 1)},
		{"sent: refused for good by the first",
			dead(two, powering, forGood(0, time.Millisecond), both(on, on, 100*time.Millisecond)),
			next("rack-a/7 refuses the power-off permanently", 1)},
		{"sent: refused for good by both",
			dead(two, powering, forGood(0, time.Millisecond), forGood(1, time.Millisecond),
				both(on, on, 100*time.Millisecond)), refusedNow},
		{"sent: refused for good by the only one that may",
			dead(two, firstNoPower, powering, forGood(1, time.Millisecond), both(on, on, 100*time.Millisecond)),
			refusedNow},

		// Levels.
		{"announced: the first level waits", dead(two, limited, powering, both(on, on, 100*time.Millisecond)),
			waits(reason.LevelDelay, 900*time.Millisecond)},
		{"sent: changing, and its level's time is over",
			dead(two, limited, powering, sent(8*time.Second), both(changing, unknown, 100*time.Millisecond)),
			next("the machine was not off within 8s", 1)},
		{"sent: changing, and its level has a second left",
			dead(two, limited, powering, sent(7*time.Second), both(changing, unknown, 100*time.Millisecond)),
			waits(reason.Changing, 400*time.Millisecond)},
		{"sent: no device answers, and its level's time is over",
			dead(two, limited, powering, sent(8*time.Second), both(unknown, unknown, 100*time.Millisecond)),
			next("the machine was not off within 8s", 1)},
		{"sent: no device answers, and its level has a second left",
			dead(two, limited, powering, sent(7*time.Second), both(unknown, unknown, 100*time.Millisecond)),
			waits(reason.Unknown, 900*time.Millisecond)},
		{"sent: they disagree, and its level's time is over",
			dead(two, limited, powering, sent(8*time.Second), both(off, on, 100*time.Millisecond)),
			next("the machine was not off within 8s", 1)},
		{"sent: its level's time is over, and nothing is sent to an excluded node",
			dead(two, limited, excluded, powering, sent(8*time.Second), both(unknown, unknown, 250*time.Millisecond)),
			asks(reason.AwaitingOff)},
		{"announced: no device answers, and nothing was sent",
			dead(two, limited, powering, both(unknown, unknown, 100*time.Millisecond)),
			waits(reason.Unknown, 900*time.Millisecond)},
		{"announced: both of a level", dead(two, oneLevel, powering, both(on, on, 100*time.Millisecond)),
			throughThe(0)},
		{"sent: the second of the level follows at once",
			dead(two, oneLevel, powering, sent(time.Millisecond), both(on, on, 100*time.Millisecond)),
			action.Decision{Action: action.PowerOff{Move: proof.Move{Device: 1}}, Reason: reason.SendingOff}},
		{"sent: one of the level is off",
			dead(two, oneLevel, powering, sent(time.Second), sentBy(1, time.Second, nil),
				both(off, on, 100*time.Millisecond)), waits(reason.AwaitingOff, 150*time.Millisecond)},
		{"sent: both of the level are off",
			dead(two, oneLevel, powering, sent(time.Second), both(off, off, 100*time.Millisecond)), armed},
		{"one of the level is off, the other silent", dead(two, oneLevel, both(off, unknown, 100*time.Millisecond)),
			waits(reason.Unknown, 900*time.Millisecond)},

		{"unknown, and its device reported the end afterwards",
			dead(saying(unknown, 300*time.Millisecond),
				set(func(v *View) { v.Fleet.Hint, v.Fleet.HintAt = fleet.Push, ago(100*time.Millisecond) })),
			asks(reason.Unknown)},
		{"unknown, and its device reported the end before",
			dead(saying(unknown, 300*time.Millisecond),
				set(func(v *View) { v.Fleet.Hint, v.Fleet.HintAt = fleet.Push, ago(400*time.Millisecond) })),
			waits(reason.Unknown, 700*time.Millisecond)},

		// Announced, not sent: every gate wins.
		{"announced: send", dead(powering, saying(on, 100*time.Millisecond)), throughThe(0)},
		{"announced by another, not silent for this process yet",
			dead(powering, saying(on, 100*time.Millisecond), beating), waits(reason.InGrace, 4900*time.Millisecond)},
		{"announced by another, the silence counts later",
			dead(powering, saying(on, 100*time.Millisecond),
				set(func(v *View) { v.Fleet.SilentSince = now.Add(time.Second) })),
			waits(reason.InGrace, 4900*time.Millisecond)},
		{"announced: nothing asked since", dead(powering), asks(reason.Asking)},
		{"announced: looked before the answer", dead(powering, saying(on, 15*time.Millisecond)),
			looks(reason.LookedTooEarly)},
		{"announced: looked too long ago", dead(powering, saying(on, 4*time.Second), set(func(v *View) {
			v.Memory.FirstLook.Got = ago(time.Hour)
			v.Answers.Answer.At, v.Answers.Answer.Got = ago(5*time.Second), ago(5*time.Second)
			v.Look.Sent, v.Look.Got = ago(4900*time.Millisecond), ago(5001*time.Millisecond)
		})), looks(reason.LookedTooEarly)},
		{"announced: asked 10 s before the look", dead(powering, asked(on, identityHolds)), throughThe(0)},
		{"announced: asked longer before the look", dead(powering, asked(on, identityHolds+1)),
			asks(reason.Asking)},
		{"announced: asked more than 10 s ago, and a look is due",
			dead(powering, asked(on, identityHolds), answeredNow),
			asks(reason.Asking)},
		{"sent: asked longer before the look", dead(powering, sent(proof.EffectAfter), asked(on, identityHolds+1)),
			asks(reason.Asking)},
		{"announced: heartbeat", dead(powering, saying(on, 100*time.Millisecond), heartbeat),
			done(reason.Recovered, taint.ResultCancelled)},
		{"announced: boot",
			dead(powering, saying(on, 100*time.Millisecond),
				set(func(v *View) { v.Look.BootID, v.Memory.FirstLook.BootID = "b2", "b2" })),
			done(reason.Recovered, taint.ResultCancelled)},
		{"announced: healthy", dead(powering, saying(on, 100*time.Millisecond), healthy),
			done(reason.Healthy, taint.ResultCancelled)},
		{"announced: excluded", dead(powering, saying(on, 100*time.Millisecond), excluded),
			detailed(done(reason.Excluded, taint.ResultCancelled), "maintenance")},
		{"announced: no machine", dead(powering, saying(on, 100*time.Millisecond), noMachine),
			detailed(done(reason.NoMachine, taint.ResultCancelled), "two providers")},
		{"announced: distrusted", dead(powering, saying(on, 100*time.Millisecond), distrusted),
			detailed(done(reason.Distrusted, taint.ResultCancelled), "n7")},
		{"announced: all stale", dead(powering, saying(on, 100*time.Millisecond), allStale),
			done(reason.AllStale, taint.ResultCancelled)},
		{"announced: most stale", dead(powering, saying(on, 100*time.Millisecond), mostStale),
			done(reason.MostStale, taint.ResultCancelled)},
		{"announced: no work", dead(powering, saying(on, 100*time.Millisecond), noWork),
			done(reason.NoWork, taint.ResultCancelled)},
		{"announced: mode changed", dead(powering, saying(on, 100*time.Millisecond), observe),
			done(reason.ModeObserve, taint.ResultCancelled)},
		{"announced: control plane", dead(powering, saying(on, 100*time.Millisecond), controlPlane),
			done(reason.ControlPlane, taint.ResultCancelled)},

		// Sent: it is asked until Off or the deadline.
		{"sent: wait", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond)),
			waits(reason.AwaitingOff, 150*time.Millisecond)},
		{"sent: ask", dead(powering, sent(time.Second), saying(on, 250*time.Millisecond)), asks(reason.AwaitingOff)},
		{"sent: again, some BMCs do nothing", dead(powering, sent(proof.EffectAfter), saying(on, 100*time.Millisecond)),
			throughThe(0)},
		{"sent: refused, again", dead(powering, refusedAt(0, time.Second), saying(on, 100*time.Millisecond)),
			throughThe(0)},
		{"sent: refused just now", dead(powering, refusedAt(0, 900*time.Millisecond), saying(on, 100*time.Millisecond)),
			detailed(waits(reason.NotAccepted, 150*time.Millisecond), "unreachable: device unreachable")},
		{"sent: refused three times, not yet again",
			dead(powering, thrice(3900*time.Millisecond), saying(on, 250*time.Millisecond)),
			detailed(asks(reason.NotAccepted), "unreachable: device unreachable")},
		{"sent: refused three times, again", dead(powering, thrice(4*time.Second), saying(on, 100*time.Millisecond)),
			throughThe(0)},
		{"sent: refused for good", dead(powering, forGood(0, 100*time.Millisecond), saying(on, 100*time.Millisecond)),
			refusedNow},
		{"sent: refused for good, and unknown",
			dead(powering, forGood(0, 100*time.Millisecond), saying(unknown, 100*time.Millisecond)), refusedNow},
		{"sent: refused for good, but off", dead(powering, forGood(0, time.Second), saying(off, 100*time.Millisecond)),
			armed},
		{"sent: heartbeat", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), heartbeat),
			done(reason.Recovered, taint.ResultCancelled)},
		{"sent: healthy", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), healthy),
			done(reason.Healthy, taint.ResultCancelled)},
		{"sent: no work", dead(powering, sent(time.Second), saying(on, 100*time.Millisecond), noWork),
			done(reason.NoWork, taint.ResultCancelled)},
		{"sent: excluded is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), excluded),
			armed},
		{"sent: mode changed is too late",
			dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), observe), armed},
		{"sent: all stale is too late", dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), allStale),
			armed},
		{"sent: most stale is too late",
			dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), mostStale), armed},
		{"sent: most stale, none is sent again",
			dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), mostStale),
			asks(reason.AwaitingOff)},
		{"sent: excluded, none is sent again",
			dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), excluded),
			asks(reason.AwaitingOff)},
		{"sent: mode changed, none is sent again",
			dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), observe),
			asks(reason.AwaitingOff)},
		{"sent: all stale, none is sent again",
			dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), allStale),
			asks(reason.AwaitingOff)},
		{"sent: control plane, none is sent again",
			dead(powering, sent(proof.EffectAfter), saying(on, 250*time.Millisecond), controlPlane),
			asks(reason.AwaitingOff)},
		{"sent: distrusted, its Off proves nothing",
			dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), distrusted),
			done(reason.Distrusted, taint.ResultCancelled)},
		{"sent: no machine, the Off is of another",
			dead(powering, sent(time.Second), saying(off, 100*time.Millisecond), noMachine),
			done(reason.NoMachine, taint.ResultCancelled)},
		{"sent: deadline", dead(overdue, sent(time.Second), saying(on, 100*time.Millisecond)),
			done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, unknown", dead(overdue, sent(time.Second), saying(unknown, 100*time.Millisecond)),
			done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, changing", dead(overdue, sent(time.Second), saying(changing, 100*time.Millisecond)),
			done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"sent: deadline, but off", dead(overdue, sent(time.Second), saying(off, 100*time.Millisecond)), armed},
		{"new leader: asks before it gives up", dead(overdue), asks(reason.Asking)},
		{"new leader: finds it off", dead(powering, saying(off, 100*time.Millisecond)), armed},

		// A device that takes longer to answer than an answer counts.
		{"slow off is no proof, and no reason to ask without a pause", dead(slow(off)),
			waits(reason.Unknown, 900*time.Millisecond)},
		{"slow off does not outlive the deadline", dead(overdue, sent(30*time.Second), slow(off)),
			done(reason.PowerOffFailed, taint.ResultPowerOffFailed)},
		{"slow on is on", dead(slow(on)), announced},

		// A fence that ended in this life of the node begins again after a pause.
		{"lifted just now",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Second)),
			rearming},
		{"lifted a while ago",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, rearmDelay)), armed},
		{"lifted, a heartbeat since",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Second),
				set(func(v *View) { v.Look.Record.LeaseRV = "6" })), armed},
		{"mark removed just now",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultMarkRemoved, time.Second)),
			rearming},
		{"lifted in the future, by another clock",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, -time.Hour)),
			waits(reason.Rearming, rearmDelay)},
		{"evicted just now, and late pods",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, time.Second)),
			rearming},
		{"returned just now, and silent again",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultReturned, time.Second)),
			rearming},
		{"evicted, and more to do a while later",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, rearmDelay)), armed},
		{"evicted for the third time",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, 15*time.Second),
				set(func(v *View) { v.Look.Record.Repeats = 2 })), waits(reason.Rearming, 5*time.Second)},
		{"evicted for the hundredth time",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultEvicted, 4*time.Minute),
				set(func(v *View) { v.Look.Record.Repeats = 99 })), waits(reason.Rearming, time.Minute)},
		{"a power-off failed just now, and it is off",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Second)),
			armed},
		{"cancelled just now",
			dead(saying(off, 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultCancelled, time.Second)),
			armed},

		// It was never off.
		{"never off", dead(healthy, returned), done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"never off, after a return",
			dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultReturned })),
			done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"never off, though excluded", dead(excluded, returned), done(reason.NeverOff, taint.ResultNeverPoweredOff)},
		{"off in between: another boot", dead(healthy, returned, set(func(v *View) { v.Look.BootID = "b2" })),
			leaves(reason.Healthy)},
		{"not ready yet", dead(healthy, returned, set(func(v *View) { v.Look.Ready = corev1.ConditionUnknown })),
			asks(reason.Asking)},
		{"no heartbeat yet", dead(healthy, returned, set(func(v *View) { v.Look.Record.LeaseRV = "7" })),
			leaves(reason.Healthy)},
		{"boot never said",
			dead(healthy, returned, set(func(v *View) { v.Look.Record.BootID, v.Look.BootID = "", "" })),
			leaves(reason.Healthy)},
		{"recreated", dead(healthy, returned, set(func(v *View) { v.Look.UID = "u2" })), leaves(reason.Healthy)},
		{"a person vouched: no device to blame",
			dead(healthy, returned, set(func(v *View) { v.Look.Record.By = taint.ByPerson })), leaves(reason.Healthy)},
		{"nothing was evicted",
			dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultLifted })),
			leaves(reason.Healthy)},
		{"said already",
			dead(healthy, returned, set(func(v *View) { v.Look.Record.Result = taint.ResultNeverPoweredOff })),
			leaves(reason.Healthy)},

		// Values left out are the safe ones.
		{"silence without a time does not count",
			dead(saying(on, time.Second), set(func(v *View) { v.Fleet.SilentSince = providers.Instant{} })),
			waits(reason.MostStale, 4*time.Second)},
		{"a fleet without any known node is silent",
			dead(saying(off, 0), set(func(v *View) { v.Fleet = fleet.View{} })),
			waits(reason.AllStale, time.Second)},
		{"looked and answered at the same instant", dead(saying(off, 20*time.Millisecond)),
			looks(reason.LookedTooEarly)},
		{"answered at this instant", dead(saying(off, 0)), waits(reason.LookedTooEarly, time.Millisecond)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Step(tt.view)
			checkRecord(t, tt.view, got)
			rec := recordOf(got)
			got = withRecord(got, taint.Record{Phase: rec.Phase, Result: rec.Result})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
		})
	}
}

// two devices speak for the machine.
func two(v *View) {
	v.Facts.Devices = append(v.Facts.Devices,
		proof.Device{Name: "rack-b/7", Level: 1, Machine: taint.MachineRef{Provider: "rack-b", ID: "7"}})
}

// oneLevel puts both into the first level.
func oneLevel(v *View) {
	v.Facts.Devices = slices.Clone(v.Facts.Devices)
	v.Facts.Devices[1].Level = 0
}

// limited gives the first level a delay that has a second left, and a time of 8 s.
func limited(v *View) {
	v.Facts.Devices = slices.Clone(v.Facts.Devices)
	v.Facts.Devices[0].Limits = proof.Limits{Delay: 4 * time.Second, Timeout: 8 * time.Second}
}

func firstNoPower(v *View) {
	v.Facts.Devices = slices.Clone(v.Facts.Devices)
	v.Facts.Devices[0].NoPower = "never pinned"
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

func throughThe(device int) action.Decision {
	m := proof.Move{Device: device, Turn: true}
	return action.Decision{Action: action.PowerOff{Move: m}, Reason: reason.SendingOff}
}

// next is the power-off through the next level, after one that gave way.
func next(why string, device int) action.Decision {
	name := []string{"rack-a/7", "rack-b/7"}[device]
	m := proof.Move{Device: device, Turn: true, Why: why}
	d := action.Decision{Action: action.PowerOff{Move: m}, Reason: reason.NextLevel}
	return detailed(d, why+"; now through "+name)
}

// Of several devices that one is caught whose Off the record holds; the other proves in the next fence, whose record
// still names the liar.
func TestFalseOffOfOneOfTwoDevices(t *testing.T) {
	v := dead(two, healthy, returned)
	v.Look.Record.Evidence = []taint.Evidence{{From: "rack-a/7", State: "Unknown"}, {From: "rack-b/7", State: "Off"}}
	d := Step(v)
	want := []taint.DeviceRef{{Device: "rack-b/7", Machine: &taint.MachineRef{Provider: "rack-b", ID: "7"}}}
	if diff := cmp.Diff(want, recordOf(d).FalseOffs); recordOf(d).Result != taint.ResultNeverPoweredOff || diff != "" {
		t.Errorf("got %s, liars (-want +got):\n%s", recordOf(d).Result, diff)
	}
	next := dead(two, both(providers.PowerOff, providers.PowerUnknown, 100*time.Millisecond))
	rec := recordOf(d)
	rec.LeaseRV = "1" // it was alive since
	next.Look.Record = &rec
	armed := Step(next)
	if diff := cmp.Diff(want, recordOf(armed).FalseOffs); !action.Is[action.SetMark](armed) || diff != "" {
		t.Errorf("got %s, liars (-want +got):\n%s", kind(armed), diff)
	}
	if e := recordOf(armed).Evidence; len(e) != 2 || e[0].From != "rack-a/7" || e[0].State != "Off" ||
		e[1].From != "rack-b/7" || e[1].State != "Unknown" {
		t.Errorf("got evidence %+v, want each device's", e)
	}
}

var (
	armed = action.Decision{
		Action: action.SetMark{Record: taint.Record{Phase: taint.PhaseArmed}}, Reason: reason.ProvenOff,
	}
	rearming   = waits(reason.Rearming, 4*time.Second)
	refusedNow = detailed(done(reason.PowerOffRefused, taint.ResultPowerOffFailed),
		"permanent: the system offers no ForceOff")
	announced = action.Decision{
		Action: action.WriteRecord{Record: taint.Record{Phase: taint.PhasePoweringOff}}, Reason: reason.Announcing,
	}
)

func done(why reason.Reason, res taint.Result) action.Decision {
	rec := taint.Record{Phase: taint.PhaseDone, Result: res}
	return action.Decision{Action: action.WriteRecord{Record: rec}, Reason: why}
}

func healthy(v *View) {
	v.Look.Ready, v.Fleet.Stale, v.Fleet.Missed = corev1.ConditionTrue, false, false
}

func leaves(why reason.Reason) action.Decision {
	return action.Decision{Action: action.NoAction{}, Reason: why}
}

func waits(why reason.Reason, after time.Duration) action.Decision {
	return action.Decision{Action: action.Wait{}, Reason: why, RequeueAfter: after}
}

func asks(why reason.Reason) action.Decision {
	return action.Decision{Action: action.AskDevices{}, Reason: why}
}

func looks(why reason.Reason) action.Decision {
	return action.Decision{Action: action.ReadNode{}, Reason: why}
}

// kind names a decision's action.
func kind(d action.Decision) string { return action.Name(d.Action) }

// recordOf returns the record that a decision writes.
func recordOf(d action.Decision) taint.Record { return action.RecordOf(d.Action) }

// withRecord replaces the record that a decision writes, where it writes one.
func withRecord(d action.Decision, rec taint.Record) action.Decision {
	switch d.Action.(type) {
	case action.WriteRecord:
		d.Action = action.WriteRecord{Record: rec}
	case action.SetMark:
		d.Action = action.SetMark{Record: rec}
	}
	return d
}

func detailed(d action.Decision, detail string) action.Decision {
	d.Detail = detail
	return d
}
func excluded(v *View) { v.Facts.Excluded = "maintenance" }
func noPower(v *View) {
	v.Facts.Devices = []proof.Device{v.Facts.Devices[0]}
	v.Facts.Devices[0].NoPower = "never pinned"
}
func noMachine(v *View)  { v.Facts.NoDeviceErr = errors.New("two providers") }
func distrusted(v *View) { v.DistrustingNode = "n7" }
func allStale(v *View) {
	v.Fleet.Fresh, v.Fleet.Heard, v.Fleet.SilentSince = 0, false, providers.Instant{}
}
func mostStale(v *View) {
	v.Fleet.Fresh, v.Fleet.Others, v.Fleet.Heard, v.Fleet.SilentSince = 1, 3, false, providers.Instant{}
}
func noWork(v *View)       { v.PendingWork = WorkNone }
func observe(v *View)      { v.Facts.Mode = Observe }
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
func heartbeat(v *View) { v.Look.LeaseRV, v.Memory.FirstLook.LeaseRV = "8", "8" }
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
func checkRecord(t *testing.T, v View, d action.Decision) {
	t.Helper()
	rec := recordOf(d)
	if (action.Is[action.WriteRecord](d) || action.Is[action.SetMark](d)) == (rec.Phase == "") {
		t.Errorf("act %s with a record in phase %q", kind(d), rec.Phase)
	}
	if rec.Phase == "" {
		return
	}
	if back, err := taint.ParseRecord(rec.Encode()); err != nil || !cmp.Equal(back, rec) {
		t.Errorf("the record does not read back: %v\n%s", err, cmp.Diff(rec, back))
	}
	if !rec.At.Equal(v.Now.Wall) {
		t.Errorf("phase %s entered at %s, want now", rec.Phase, rec.At)
	}
	old := v.Look.Record
	if old.IsOpen() && (rec.ID != old.ID || !rec.Since.Equal(old.Since) || rec.By != old.By) {
		t.Errorf("the fence that goes on became %+v, was %+v", rec, *old)
	}
	if rec.Phase == taint.PhaseDone {
		return
	}
	if !old.IsOpen() && (rec.ID != v.Facts.NewID || !rec.Since.Equal(v.Now.Wall) || rec.By != v.Facts.By) {
		t.Errorf("a new fence is %+v, want id %s, since now, by %s", rec, v.Facts.NewID, v.Facts.By)
	}
	if rec.NodeUID != v.Look.UID || rec.BootID != v.Look.BootID || rec.LeaseRV != v.Look.LeaseRV ||
		rec.Device != v.Facts.Devices[0].Name ||
		rec.Machine == nil || *rec.Machine != v.Facts.Devices[0].Machine {
		t.Errorf("the record is not of this look: %+v", rec)
	}
	if n := len(rec.Evidence); n == 0 || !rec.Evidence[n-1].At.Equal(v.Answers.Answer.At.Wall) {
		t.Errorf("the record's newest evidence is not the answer: %+v", rec.Evidence)
	}
}

// The device of a node that is back is asked from the first look at it. A heartbeat does not restart that; the next
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
		if m.ApplyLook(tt.look); m.BackSince != tt.want {
			t.Errorf("look %d: got back since %v, want %v", i, m.BackSince, tt.want)
		}
	}
}

// A node is back under the boot id of its host: its device is asked which run of the machine this is, until it answers
// that.
func TestExplain(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	run := func(s providers.PowerState, run string, d time.Duration) func(*View) {
		a := answer(s, d)
		a.Run = run
		return func(v *View) { heard(v, a) }
	}
	told := func(v *View) { v.Look.Record.Run = "1" }
	// back is the first look at this life of the node, and beat a heartbeat since.
	back := func(v *View) { v.Memory.FirstLook.Got, v.Memory.BackSince = ago(10*time.Second), ago(10*time.Second) }
	beat := func(v *View) { v.Memory.FirstLook.Got = ago(time.Second) }
	for _, tt := range []struct {
		name    string
		view    View
		act     action.Action
		why     reason.Reason
		restart string
		result  taint.Result
	}{
		{"nothing asked", dead(healthy, returned, told, back), action.AskDevices{}, reason.Explaining, "", ""},
		{"on, the run that was over", dead(healthy, returned, told, back, run(on, "1", time.Second)),
			action.WriteRecord{},
			reason.NeverOff, "", taint.ResultNeverPoweredOff},
		{"off, the run that was over: it beats", dead(healthy, returned, told, back, run(off, "1", time.Second)),
			action.WriteRecord{}, reason.NeverOff, "", taint.ResultNeverPoweredOff},
		{"on, another run", dead(healthy, returned, told, back, run(on, "2", time.Second)), action.WriteRecord{},
			reason.StartedAgain, "2", taint.ResultEvicted},
		{"off again, another run", dead(healthy, returned, told, back, run(off, "2", time.Second)),
			action.WriteRecord{},
			reason.StartedAgain, "2", taint.ResultEvicted},
		{"another run, reported before it was back", dead(healthy, returned, told, back, run(on, "2", 11*time.Second)),
			action.AskDevices{}, reason.Explaining, "", ""},
		{"the run that was over, reported before its last heartbeat",
			dead(healthy, returned, told, back, beat, run(on, "1", 5*time.Second)), action.WriteRecord{},
			reason.NeverOff, "",
			taint.ResultNeverPoweredOff},
		{"another run, reported before its last heartbeat",
			dead(healthy, returned, told, back, beat, run(on, "2", 5*time.Second)), action.WriteRecord{},
			reason.StartedAgain,
			"2", taint.ResultEvicted},
		{"no answer", dead(healthy, returned, told, back, run(providers.PowerUnknown, "", 100*time.Millisecond)),
			action.Wait{}, reason.Explaining, "", ""},
		{"no answer a while ago", dead(healthy, returned, told, back, run(providers.PowerUnknown, "", time.Second)),
			action.AskDevices{}, reason.Explaining, "", ""},
		{"explained", dead(healthy, returned, told, back, func(v *View) { v.Look.Record.Restart = "2" }),
			action.NoAction{}, reason.Healthy, "", ""},
		{"nothing was evicted",
			dead(healthy, returned, told, back, func(v *View) { v.Look.Record.Result = taint.ResultLifted }),
			action.NoAction{}, reason.Healthy, "", ""},
		{"silent again", dead(returned, told, back, func(v *View) { v.Look.Ready = corev1.ConditionUnknown }),
			action.AskDevices{}, reason.Asking, "", ""},
	} {
		d := Step(tt.view)
		if kind(d) != action.Name(tt.act) || d.Reason != tt.why || recordOf(d).Restart != tt.restart ||
			recordOf(d).Result != tt.result {
			t.Errorf("%s: got %s %s, restart %q, result %q", tt.name, kind(d), d.Reason, recordOf(d).Restart,
				recordOf(d).Result)
		}
		if old := tt.view.Look.Record; d.Reason == reason.StartedAgain &&
			(recordOf(d).Phase != taint.PhaseDone || !recordOf(d).At.Equal(old.At) || recordOf(d).Run != old.Run) {
			t.Errorf("%s: the record became %+v", tt.name, recordOf(d))
		}
	}
	// One of several devices reported the run: it is asked which run goes on. The host's boot id is no evidence against
	// a device.
	two := func(v *View) {
		v.Facts.Devices = []proof.Device{{Name: "laptop/n1"}, {Name: "strip/7", Level: 1}}
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
		act   action.Action
		why   reason.Reason
		again string
	}{
		{"nothing asked", dead(healthy, returned, told, two, back), action.AskDevices{}, reason.Explaining, ""},
		{"it reports the run that was over", dead(healthy, returned, told, two, back, several(on, "1", "")),
			action.WriteRecord{}, reason.NeverOff, ""},
		{"it reports another run", dead(healthy, returned, told, two, back, several(on, "2", "1")),
			action.WriteRecord{},
			reason.StartedAgain, "2"},
		{"another device reports a run",
			dead(healthy, returned, told, two, back, several(providers.PowerUnknown, "", "1")),
			action.Wait{}, reason.Explaining, ""},
	} {
		if d := Step(tt.view); kind(d) != action.Name(tt.act) || d.Reason != tt.why || recordOf(d).Restart != tt.again {
			t.Errorf("several devices, %s: got %s %s, restart %q", tt.name, kind(d), d.Reason, recordOf(d).Restart)
		}
	}
	marked := Step(dead(func(v *View) {
		v.Facts.Devices = []proof.Device{{Name: "laptop/n1"}, {Name: "person/n1", Level: 1}}
		a, b := answer(off, 100*time.Millisecond), answer(off, 100*time.Millisecond)
		a.Run = "3"
		heard(v, a, b)
	}))
	if !action.Is[action.SetMark](marked) || recordOf(marked).Run != "3" || recordOf(marked).RunBy != "laptop/n1" {
		t.Errorf("several devices: got %s with run %q by %q", kind(marked), recordOf(marked).Run,
			recordOf(marked).RunBy)
	}
	// The record holds the run since the mark, not an earlier run.
	d := Step(dead(run(off, "3", 100*time.Millisecond), recorded(taint.PhaseDone, taint.ResultLifted, time.Hour),
		func(v *View) { v.Look.Record.Run, v.Look.Record.Restart = "1", "2" }))
	if !action.Is[action.SetMark](d) || recordOf(d).Run != "3" || recordOf(d).Restart != "" {
		t.Errorf("got %s with run %q, restart %q", kind(d), recordOf(d).Run, recordOf(d).Restart)
	}
}

func TestMemory(t *testing.T) {
	t.Run("an answer from before the first look", func(t *testing.T) {
		v := dead(saying(providers.PowerOff, 60*time.Second))
		if d := Step(v); !action.Is[action.AskDevices](d) || v.powerState() != providers.PowerUnknown {
			t.Errorf("%s in state %s, want to ask", kind(d), v.powerState())
		}
	})
	for _, tt := range []struct {
		name   string
		change func(*taint.Look)
		keeps  bool
	}{
		{"the same life", func(*taint.Look) {}, true},
		{"another version of it", func(l *taint.Look) { l.ResourceVersion, l.Ready = "43", corev1.ConditionFalse },
			true},
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
			if isNew := m.ApplyLook(l); isNew == tt.keeps {
				t.Errorf("new life: %v, want %v", isNew, !tt.keeps)
			}
			if v.Memory = m; (v.powerState() == providers.PowerOff) != tt.keeps {
				t.Errorf("state %s, answer kept: want %v", v.powerState(), tt.keeps)
			}
			if begins := cmp.Equal(m.FirstLook, l); begins == tt.keeps {
				t.Errorf("begins again: %v, want %v", begins, !tt.keeps)
			}
			if kept := !m.PowerOffs.LastSent.IsZero() && m.PowerOffs.LastErr != nil; kept != tt.keeps {
				t.Errorf("power-off remembered: %v, want %v", kept, tt.keeps)
			}
		})
	}
	t.Run("a power-off is of its fence", func(t *testing.T) {
		for _, rec := range []func(*View){
			func(v *View) { v.Look.Record = nil }, recorded(taint.PhaseDone, taint.ResultPowerOffFailed, 0)} {
			v := dead(refusedAt(0, time.Second), rec)
			v.Memory.ApplyLook(v.Look)
			if !v.Memory.PowerOffs.LastSent.IsZero() || v.Memory.PowerOffs.LastErr != nil {
				t.Errorf("with record %+v the power-off is still remembered", v.Look.Record)
			}
		}
	})
	t.Run("an answer on its way while the node came back", func(t *testing.T) {
		// Asked at 1 s ago, heartbeat seen 500 ms ago, answered now.
		v := dead()
		v.Look.LeaseRV, v.Look.Got = "8", ago(500*time.Millisecond)
		v.Memory.ApplyLook(v.Look)
		a := answer(providers.PowerOff, 0)
		a.At = ago(time.Second)
		heard(&v, a)
		if s := v.powerState(); s != providers.PowerUnknown {
			t.Errorf("state %s, want Unknown", s)
		}
	})
}

func TestStrings(t *testing.T) {
	if Observe.String() != "observe" || Fence.String() != "fence" || Mode(7).String() != "mode 7" {
		t.Errorf("modes %s, %s, %s, want observe, fence, mode 7", Observe, Fence, Mode(7))
	}
}
