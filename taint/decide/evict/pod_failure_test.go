package evict

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forcefence/forcefence/taint/reason"
)

// tried is a write of the pod that ended so, so often in a row, the last one d ago.
func tried(write action.PodWrite, p action.Pod, why action.WriteResult, times int, d time.Duration) with {
	return func(v *View) {
		for range times {
			v.Memory.ApplyPodWrites(write, []action.Pod{p}, map[string]action.WriteResult{p.UID: why}, ago(d))
		}
	}
}

func small(p *action.Pod) { p.Small = true }

// A pod whose write failed holds up no other, and is tried again: at once in its small form where it is too large,
// later where the reason is another, each time later than before.
func TestPodFailures(t *testing.T) {
	bad, good := pod("bad"), pod("good")
	dead := pod("bad", tomb)
	wantsAlert := func(w want) want { w.Alert = string(reason.Stuck); return w }
	returned := func(w want) want { w.Returned = true; return w }
	retry := func(d time.Duration) want { return waits(reason.Retrying, d) }
	ends := func(names ...string) want { return want{Act: action.EndPods{}, Why: reason.Tombstoning, Pods: names} }
	deletes := func(names ...string) want { return want{Act: action.DeletePods{}, Why: reason.Deleting, Pods: names} }
	spares := func(names ...string) want {
		return want{Act: action.SparePods{}, Why: reason.Sparing, Pods: names, Returned: true}
	}
	back := lift(reason.FinishedReturn, "Returned")
	huge := pod("bad", small)
	other := pod("bad", func(p *action.Pod) { p.ResourceVersion = "2" })
	bound := pod("bad", uses("a", pvA))

	for _, tt := range []struct {
		name  string
		view  View
		want  want
		small bool // the pods of the decision
		stuck int
	}{
		{"failed: the others first",
			evicting(proven, pods(bad, good), tried(action.WritesEnd, bad, action.Failed, 1, 0)), ends("good"), false,
			0},
		{"failed: the others are deleted",
			evicting(proven, pods(bad, pod("good", tomb)), tried(action.WritesEnd, bad, action.Failed, 1, 0)),
			deletes("good"), false, 0},
		{"failed: the others' volumes are cleared, its own stays",
			evicting(proven, pods(bound, pod("good", tomb)), lists(pvA, pvB),
				tried(action.WritesEnd, bad, action.Failed, 1, 0)),
			want{Act: action.ClearVolumes{}, Why: reason.Clearing, InUse: []corev1.UniqueVolumeName{pvA},
				Attached: []corev1.UniqueVolumeName{pvA}}, false, 0},
		{"failed: alone it is waited for",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 1, 300*time.Millisecond)),
			retry(700 * time.Millisecond), false, 0},
		{"failed: again after a second",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 1, time.Second)), ends("bad"),
			false, 0},
		{"failed twice: after two",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 2, time.Second)),
			retry(time.Second), false, 0},
		{"failed for long: after a minute",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 50, 0)),
			wantsAlert(retry(time.Minute)), false, 1},
		{"failed for long, and tried again",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 50, time.Minute)),
			wantsAlert(ends("bad")), false, 1},
		{"failed, written since",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 5, 0),
				tried(action.WritesEnd, bad, action.Accepted, 1, 0)), ends("bad"), false, 0},
		{"failed for long, and spared since: it is not named",
			evicting(proven, booted, spared, pods(bad, good), tried(action.WritesSpare, bad, action.Failed, 50, 0),
				spared, tried(action.WritesEnd, good, action.Failed, 50, 0)), back, false, 0},
		{"another fence's failure",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Failed, 5, 0), func(v *View) {
				other := v.Look
				other.Mark = nil
				v.Memory.ApplyLook(other)
				from := v.Memory.ProofFrom
				v.Memory.ApplyLook(v.Look)
				v.Memory.ProofFrom = from
				v.Memory.ProofFrom = ago(10 * time.Second)
			}), ends("bad"), false, 0},
		{"denied again and again",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Denied, maxFailures, 0)),
			wantsAlert(retry(backoffMax)), false, 1},
		{"changed three times: at once",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Changed, 3, 0)), ends("bad"), false, 0},
		{"changed again and again",
			evicting(proven, pods(bad, good), tried(action.WritesEnd, bad, action.Changed, 4, 0)), ends("good"), false,
			0},
		{"changed for ever",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.Changed, maxConflicts+maxFailures, 0)),
			wantsAlert(retry(backoffMax)), false, 1},
		{"too large: the small form, at once",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.TooLarge, 1, 0)), ends("bad"), true, 0},
		{"too large for that: named at once",
			evicting(proven, pods(bad), tried(action.WritesEnd, bad, action.TooLarge, 1, 0),
				tried(action.WritesEnd, huge, action.TooLarge, 1, 0)),
			wantsAlert(retry(time.Second)), false, 1},
		{"and named while the others go",
			evicting(proven, pods(bad, good), tried(action.WritesEnd, bad, action.TooLarge, 1, 0),
				tried(action.WritesEnd, huge, action.TooLarge, 1, 0)),
			wantsAlert(ends("good")), false, 1},
		{"volumes are looked at while it rests",
			evicting(proven, attached("b"), pods(bad), tried(action.WritesEnd, bad, action.Failed, 3, 0)),
			retry(pollWait), false, 0},
		{"what keeps its end for too long is named, for any reason of the wait",
			evicting(overdue, proven, pods(bad), tried(action.WritesEnd, bad, action.Denied, maxFailures, 0)),
			wantsAlert(retry(backoffMax)), false, 1},

		{"not deleted: the others first",
			evicting(proven, pods(dead, pod("good", tomb)), tried(action.WritesDelete, dead, action.Failed, 1, 0)),
			deletes("good"), false, 0},
		{"not deleted: the mark stays",
			evicting(proven, pods(dead), tried(action.WritesDelete, dead, action.Denied, maxFailures, 0)),
			wantsAlert(retry(backoffMax)), false, 1},
		{"too large to be deleted",
			evicting(proven, pods(dead), tried(action.WritesDelete, dead, action.TooLarge, 1, 0)),
			wantsAlert(retry(time.Second)), false, 1},
		{"a failed tombstone does not rest its delete",
			evicting(proven, pods(dead), tried(action.WritesEnd, dead, action.Failed, 5, 0)), deletes("bad"), false, 0},

		{"return, not spared: the others first",
			evicting(heartbeat, pods(bad, good), tried(action.WritesSpare, bad, action.Failed, 1, 0)), spares("good"),
			false, 0},
		{"return, not spared: the ended are deleted",
			evicting(heartbeat, pods(bad, pod("good", tomb)), tried(action.WritesSpare, bad, action.Failed, 1, 0)),
			want{Act: action.DeletePods{}, Why: reason.Returned, Pods: []string{"good"}, Returned: true}, false, 0},
		{"return, not spared: the mark stays",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.Failed, 4, 0)),
			returned(retry(8 * time.Second)), false, 0},
		{"return, not spared for a minute: the mark stays",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.Failed, maxFailures-1, 0)),
			returned(retry(32 * time.Second)), false, 0},
		{"return, changed since it was listed: as good as spared",
			evicting(heartbeat, pods(other, good), tried(action.WritesSpare, bad, action.Changed, 1, 0)),
			spares("good"), false, 0},
		{"return, a conflict without a change: again",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.Changed, 1, 0)), spares("bad"), false,
			0},
		{"return, changed before that: to be spared",
			evicting(heartbeat, pods(bad), tried(action.WritesEnd, bad, action.Changed, 1, 0)), spares("bad"), false,
			0},
		{"return, too large: the small form",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.TooLarge, 1, 0)), spares("bad"), true,
			0},
		{"return, the small form is written: spared",
			evicting(heartbeat, pods(other), tried(action.WritesSpare, bad, action.TooLarge, 1, 0),
				tried(action.WritesSpare, huge, action.Accepted, 1, 0)), back, false, 0},
		{"return, the small form changed nothing: again",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.TooLarge, 1, 0),
				tried(action.WritesSpare, huge, action.Accepted, 1, 0)), spares("bad"), true, 0},
		{"and off again: stays on the return path",
			evicting(proven, pods(other, good), tried(action.WritesSpare, huge, action.Accepted, 1, 0)), spares("good"),
			false, 0},
		{"return, too large for that: the mark goes",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.TooLarge, 1, 0),
				tried(action.WritesSpare, huge, action.TooLarge, 1, 0)), back, false, 1},
		{"return, denied again and again: the mark goes",
			evicting(heartbeat, pods(bad), tried(action.WritesSpare, bad, action.Denied, maxFailures, 0)), back, false,
			1},
		{"return, not deleted: the mark stays",
			evicting(heartbeat, pods(dead), tried(action.WritesDelete, dead, action.Denied, 4, 0)),
			returned(retry(8 * time.Second)), false, 0},
		{"return, not deleted again and again: the mark goes",
			evicting(heartbeat, pods(dead), tried(action.WritesDelete, dead, action.Denied, maxFailures, 0)), back,
			false, 1},
		{"return, too large to be deleted: the mark goes",
			evicting(heartbeat, pods(dead), tried(action.WritesDelete, dead, action.TooLarge, 1, 0)), back, false, 1},
		{"return: a failed tombstone does not rest the sparing",
			evicting(heartbeat, pods(bad), tried(action.WritesEnd, bad, action.Denied, 5, 0)), spares("bad"), false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Step(tt.view)
			if diff := cmp.Diff(tt.want, short(got), cmpopts.EquateEmpty(), byBrief); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
			if len(got.Stuck) != tt.stuck {
				t.Errorf("got %d stuck pods, want %d: %+v", len(got.Stuck), tt.stuck, got.Stuck)
			}
			for _, p := range action.PodsOf(got.Action) {
				if p.Small != tt.small {
					t.Errorf("pod %s: got small %v, want %v", p.Name, p.Small, tt.small)
				}
			}
		})
	}
}

// A View is what was known when it was made: what is folded in later does not change it.
func TestWroteLeavesViews(t *testing.T) {
	p := pod("p")
	v := evicting(proven, pods(p), tried(action.WritesEnd, p, action.Changed, 1, 0))
	m := v.Memory
	for range 5 {
		m.ApplyPodWrites(action.WritesEnd, []action.Pod{p}, map[string]action.WriteResult{p.UID: action.Failed}, now)
	}
	if d := Step(v); !action.Is[action.EndPods](d) {
		t.Errorf("got %s, want the view's own memory: EndPods", action.Name(d.Action))
	}
	if v.Memory = m; !action.Is[action.Wait](Step(v)) {
		t.Error("the failures were not folded in")
	}
	m.ApplyPodWrites(action.WritesEnd, nil, nil, now.Add(troubleTTL+time.Second))
	if len(m.troubles) != 0 {
		t.Errorf("got %d troubles, want old ones forgotten", len(m.troubles))
	}
	m.ApplyPodWrites(action.WritesEnd, []action.Pod{p}, nil, now)
	if len(m.troubles) != 0 {
		t.Error("a write that was not tried is a trouble")
	}
}

// A negative tolerationSeconds is zero, as for the stock controller.
func TestNegativeTolerationSeconds(t *testing.T) {
	for _, secs := range []int64{-1, -1 << 62} {
		due, ends := StockEnds(pod("p", tolerating(secs)).Tolerations,
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, now.Wall)
		if !ends || !due.Equal(now.Wall) {
			t.Errorf("%d s: got due %s, ends %v; want now", secs, due, ends)
		}
		v := evicting(proven, noExecute(corev1.TaintNodeUnreachable, time.Second), pods(pod("w", tolerating(secs))))
		if d := Step(v); d.Reason != reason.StockEviction {
			t.Errorf("%d s: got %s, want to wait for the stock eviction", secs, d.Reason)
		}
	}
	// The shortest counts, and no negative one may hide it: it would be taken for "none", that is for ever.
	p := pod("w", tolerating(-1))
	p.Tolerations = append(p.Tolerations, pod("w").Tolerations...)
	if due, ends := StockEnds(p.Tolerations,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, now.Wall); !ends ||
		!due.Equal(now.Wall) {
		t.Errorf("beside 300 s: got due %s, ends %v; want now", due, ends)
	}
}
