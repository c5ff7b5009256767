package evict

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

func readsReady(p *action.Pod) { p.Ready = true }

// reads is how long the look and what followed it took.
func reads(d time.Duration) with { return func(v *View) { v.Reads = d } }

// oldOff is an Off that took so long, and is too old to prove anything.
func oldOff(took time.Duration) with {
	return func(v *View) {
		a := answer(off, 6*time.Second)
		a.At = a.Got.Add(-took)
		heard(v, a)
	}
}

// Pods that stay lose Ready after all pods that go are dealt with, with a proof alone. A failure keeps nothing from its
// end.
func TestSetNotReady(t *testing.T) {
	stays := pod("stays", exempt, readsReady)
	sets := func(names ...string) want {
		return want{Act: action.SetPodsNotReady{}, Why: reason.SettingNotReady, Pods: names}
	}
	alert := func(w want, why string) want { w.Alert = why; return w }
	finish := lift(reason.Finished, taint.ResultEvicted)
	detach := waits(reason.WaitingDetach, pollWait)
	long := seen(20 * time.Second) // the mark is older than every answer

	for _, tt := range []struct {
		name  string
		view  View
		want  want
		stuck int
	}{
		{"before the mark goes", evicting(proven, pods(stays)), sets("stays"), 0},
		{"before volumes are waited for", evicting(proven, attached("a"), pods(stays)), sets("stays"), 0},
		{"before stock eviction is waited for", evicting(proven, pods(stays, pod("w", intolerant))), sets("stays"), 0},
		{"before a failed pod is tried again",
			evicting(proven, pods(stays, pod("bad")), tried(action.WritesEnd, pod("bad"), action.Failed, 1, 0)),
			sets("stays"), 0},
		{"static pods and those that tolerate the mark, in order", evicting(proven, pods(
			pod("s", readsReady, func(p *action.Pod) { p.Exempt = taint.ExemptStatic }),
			pod("t", readsReady, prio(5), func(p *action.Pod) { p.Exempt = taint.ExemptTolerate }), stays)),
			sets("t", "s", "stays"), 0},
		{"pods that go are ended first", evicting(proven, pods(stays, pod("p", readsReady))),
			want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: []string{"p"}}, 0},
		{"volumes are cleared first", evicting(proven, pods(stays, pod("t", tomb)), lists(pvA)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing}, 0},
		{"ended pods are deleted first", evicting(proven, cleared, pods(stays, pod("t", tomb))),
			want{Act: action.DeletePods{}, Why: reason.Deleting, Pods: []string{"t"}}, 0},
		{"only those that read Ready", evicting(proven, pods(pod("e", exempt))), finish, 0},
		{"no finished one", evicting(proven, pods(pod("e", exempt, readsReady, finished))), finish, 0},
		{"no pod that goes, whose end must wait", evicting(proven, pods(pod("w", intolerant, readsReady))),
			waits(reason.StockEviction, pollStock), 0},
		{"not before the eviction began", armed(proven, pods(stays)),
			want{Act: action.WriteRecord{}, Why: reason.Confirmed, Phase: taint.PhaseEvicting}, 0},
		{"an alert stays", evicting(overdue, proven, attached("a"), pods(stays)),
			alert(sets("stays"), "WaitingForDetach"), 0},

		// The node shows life.
		{"after a heartbeat", evicting(proven, heartbeat, pods(stays)),
			lift(reason.FinishedReturn, taint.ResultReturned), 0},
		{"after a boot", evicting(proven, booted, pods(stays)), lift(reason.FinishedReturn, taint.ResultReturned), 0},
		{"after a heartbeat, while volumes are waited for",
			evicting(proven, heartbeat, attached("a"), pods(stays), func(v *View) {
				v.Claims = map[string]string{"a": ""}
				v.Look.Record.Detaching = []taint.Detaching{{PV: "a"}}
			}), want{Act: action.Wait{}, Why: reason.WaitingDetach, After: pollWait, Returned: true}, 0},
		{"while the node is Ready", evicting(proven, ready, pods(stays)),
			lift(reason.FinishedReturn, taint.ResultReturned), 0},
		{"after its device said On", evicting(saying(on, 300*time.Millisecond), pods(stays)),
			lift(reason.FinishedReturn, taint.ResultReturned), 0},

		// A person's word.
		{"on a person's word", evicting(person, noDevice, pods(stays)), finish, 0},
		{"on a person's word while the device cannot tell",
			evicting(person, pods(stays), saying(unknown, 300*time.Millisecond)), finish, 0},
		{"on a person's word that is trusted over On",
			evicting(person, trust, pods(stays), saying(on, 300*time.Millisecond)), finish, 0},
		{"on a person's mark that the device confirms", evicting(person, proven, pods(stays)), sets("stays"), 0},

		// Without a proof one is asked for where that helps, and never waited for.
		{"a new leader asks once", evicting(pods(stays)), asks(reason.Confirming), 0},
		{"and asks before it waits for volumes", evicting(attached("a"), pods(stays)), asks(reason.Confirming), 0},
		{"an answer from before the mark: asks",
			evicting(seen(time.Second), pods(stays), saying(off, 950*time.Millisecond)), asks(reason.Confirming), 0},
		{"an alert stays while it asks", evicting(overdue, attached("a"), pods(stays)),
			alert(asks(reason.Confirming), "WaitingForDetach"), 0},
		{"an old Off that came quickly: asks again",
			evicting(long, oldOff(time.Second), reads(time.Second), pods(stays)), asks(reason.Confirming), 0},
		{"an old Off that came just in time for a decision",
			evicting(long, oldOff(4*time.Second), reads(time.Second), pods(stays)), asks(reason.Confirming), 0},
		{"an old Off that came too slowly for that",
			evicting(long, oldOff(4*time.Second), reads(time.Second+1), pods(stays)), finish, 0},
		{"a device that fell silent", evicting(saying(unknown, time.Second), pods(stays)), finish, 0},
		{"a device that fell silent while volumes are waited for",
			evicting(saying(unknown, time.Hour), seen(2*time.Hour), attached("a"), pods(stays)), detach, 0},
		{"devices that disagree", evicting(two, both(off, on, 300*time.Millisecond), pods(stays)), finish, 0},
		{"no device any more", evicting(noDevice, pods(stays)), finish, 0},

		// Writes that fail.
		{"failed: the others", evicting(proven, pods(stays, pod("e", exempt, readsReady)),
			tried(action.WritesNotReady, stays, action.Failed, 1, 0)), sets("e"), 0},
		{"failed: the mark goes, and the pod is named",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Failed, 1, 0)), finish, 1},
		{"denied: the mark goes, and the pod is named",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Denied, 1, 0)), finish, 1},
		{"failed, and went not ready since: no pod is named",
			evicting(proven, pods(pod("stays", exempt)), tried(action.WritesNotReady, stays, action.Failed, 1, 0)),
			finish, 0},
		{"failed: volumes are waited for",
			evicting(proven, attached("a"), pods(stays), tried(action.WritesNotReady, stays, action.Failed, 1, 0)),
			detach, 0},
		{"failed: again after a second",
			evicting(proven, attached("a"), pods(stays),
				tried(action.WritesNotReady, stays, action.Failed, 1, time.Second)),
			sets("stays"), 0},
		{"failed for good: never again",
			evicting(long, proven, attached("a"), pods(stays),
				tried(action.WritesNotReady, stays, action.Failed, maxFailures, backoffMax)),
			detach, 0},
		{"changed: at once", evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Changed, 3, 0)),
			sets("stays"), 0},
		{"changed again and again: the mark goes",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Changed, 4, 0)), finish, 1},
		{"too large: there is no smaller form",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.TooLarge, 1, time.Minute)), finish,
			1},
		{"not tried counts as failed", evicting(proven, pods(stays), func(v *View) {
			v.Memory.ApplyPodWrites(action.WritesNotReady, []action.Pod{stays}, nil, now)
		}), finish, 1},
		{"written, and undone: again",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Accepted, maxUndone-1, 0)),
			sets("stays"), 0},
		{"undone each time: the mark goes, and the pod is named",
			evicting(proven, pods(stays), tried(action.WritesNotReady, stays, action.Accepted, maxUndone, 0)), finish,
			1},
		{"undone each time, with failures between: the mark goes, and the pod is named",
			evicting(proven, pods(stays),
				tried(action.WritesNotReady, stays, action.Accepted, maxUndone-1, time.Minute),
				tried(action.WritesNotReady, stays, action.Failed, 1, time.Minute),
				tried(action.WritesNotReady, stays, action.Accepted, 1, time.Minute)), finish, 1},
		{"undone each time: volumes are waited for",
			evicting(long, proven, attached("a"), pods(stays),
				tried(action.WritesNotReady, stays, action.Accepted, maxUndone, 0)), detach, 0},
		{"undone each time, and not ready at last: no pod is named",
			evicting(proven, pods(pod("stays", exempt)),
				tried(action.WritesNotReady, stays, action.Accepted, maxUndone, 0)), finish, 0},
		{"undone, and the proof is too old by now: the mark goes, and the pod is named",
			evicting(saying(unknown, 0), pods(stays), tried(action.WritesNotReady, stays, action.Accepted, 1, 0)),
			finish, 1},
		{"undone each time under another mark: again", evicting(proven, pods(stays),
			tried(action.WritesNotReady, stays, action.Accepted, maxUndone, 0), func(v *View) {
				from, unmarked := v.Memory.ProofFrom, v.Look
				unmarked.Mark = nil
				v.Memory.ApplyLook(unmarked)
				v.Memory.ApplyLook(v.Look)
				v.Memory.ProofFrom = from
			}), sets("stays"), 0},
		{"written: not again",
			evicting(proven, pods(pod("stays", exempt)), tried(action.WritesNotReady, stays, action.Accepted, 1, 0)),
			finish, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Step(tt.view)
			if diff := cmp.Diff(tt.want, short(got), cmpopts.EquateEmpty(), byBrief); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
			if len(got.Stuck) != tt.stuck {
				t.Errorf("got %d stuck pods, want %d: %+v", len(got.Stuck), tt.stuck, got.Stuck)
			}
			for _, p := range got.Stuck {
				if p.Write != action.WritesNotReady {
					t.Errorf("got stuck %s, want %s", p.Write, action.WritesNotReady)
				}
			}
		})
	}
	if v := evicting(oldOff(time.Second)); v.IsProvenOff(now) || proof.TTL > 6*time.Second {
		t.Error("the old Off of this test still proves")
	}
}

// A writer that sets Ready True again after each write does not keep the mark: one with the kubelet's credential, or a
// webhook. Each write takes place in the world.
func TestReadyThatIsSetAgainKeepsNoMark(t *testing.T) {
	stays := pod("stays", exempt, readsReady)
	v := evicting(proven, pods(stays))
	for writes := 0; ; writes++ {
		d := Step(v)
		if action.Is[action.RemoveMark](d) {
			if writes != maxUndone || len(d.Stuck) != 1 || d.Stuck[0].Why != action.Undone {
				t.Errorf("the mark goes after %d writes, named %+v; want %d, and the pod", writes, d.Stuck, maxUndone)
			}
			return
		}
		if !action.Is[action.SetPodsNotReady](d) || writes > maxUndone {
			t.Fatalf("got %s (%s) after %d writes", action.Name(d.Action), d.Reason, writes)
		}
		v.Memory.ApplyPodWrites(action.WritesNotReady, action.PodsOf(d.Action),
			map[string]action.WriteResult{stays.UID: action.Accepted}, now)
	}
}
