package evict

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// A taint keeps the time at which this process first saw it, under any TimeAdded and any mark. A taint that was removed
// and added again is another.
func TestTaintTimes(t *testing.T) {
	look := func(at time.Duration, mark string, added ...time.Duration) taint.Look {
		seen := now.Add(at)
		l := taint.Look{Exists: true, Sent: seen, Got: seen, Ready: corev1.ConditionUnknown}
		if mark != "" {
			l.Mark = &taint.Mark{Value: mark, Effect: corev1.TaintEffectNoSchedule}
		}
		for _, d := range added {
			for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
				l.Taints = append(l.Taints, corev1.Taint{
					Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &metav1.Time{Time: now.Add(d).Wall},
				})
			}
		}
		return l
	}
	const ahead = 45 * time.Second
	var m Memory
	for _, step := range []struct {
		name string
		look taint.Look
		want time.Duration // when the taint was seen; negative: there is none
	}{
		{"before the taint", look(0, ""), -1},
		{"first sight", look(2*time.Second, "", ahead), 2 * time.Second},
		{"the same taint", look(4*time.Second, "", ahead), 2 * time.Second},
		{"under a mark", look(6*time.Second, "f1", ahead), 2 * time.Second},
		{"under another mark", look(8*time.Second, "f2", ahead), 2 * time.Second},
		{"added again", look(10*time.Second, "f2", ahead+7*time.Second), 10 * time.Second},
		{"gone", look(12*time.Second, "f2"), -1},
		{"the first one once more", look(14*time.Second, "f2", ahead), 14 * time.Second},
	} {
		m.ApplyLook(step.look)
		times := m.StockEviction(step.look).TaintTimes
		switch {
		case step.want < 0 && len(times) > 0:
			t.Errorf("%s: got %v, want no taint", step.name, times)
		case step.want >= 0 && (len(times) != 1 || !times[0].Seen.Equal(now.Add(step.want))):
			t.Errorf("%s: got %v, want one seen at %v", step.name, times, now.Add(step.want))
		}
	}
}

// The process's own sight of a taint counts however its wall clock is set meanwhile, and over a suspension. The taint's
// own time does not help then: it is compared with the same clock.
func TestStockDueWhateverTheClock(t *testing.T) {
	sees := func(at, added providers.Instant) taint.Look {
		return taint.Look{
			Exists: true, Sent: at, Got: at, Ready: corev1.ConditionUnknown, Mark: &taint.Mark{Value: "f1"},
			Taints: []corev1.Taint{{
				Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute,
				TimeAdded: &metav1.Time{Time: added.Wall},
			}},
		}
	}
	for _, tt := range []struct {
		name      string
		ahead     time.Duration // how far the controller-manager's clock is ahead
		after     time.Duration // how long ago the taint was first seen
		set       time.Duration // by how much our wall clock was set meanwhile
		suspended bool          // the monotonic clock stood still for that long, instead
		wants     bool
	}{
		{name: "far from due", after: 260 * time.Second},
		{name: "soon due", after: 290 * time.Second, wants: true},
		{name: "soon due, and set forward", after: 290 * time.Second, set: 2 * time.Minute, wants: true},
		{name: "just due, and set forward", after: 299 * time.Second, set: 2 * time.Minute, wants: true},
		{name: "soon due, and set back", after: 290 * time.Second, set: -2 * time.Minute, wants: true},
		{name: "soon due, set forward, and by another clock", ahead: time.Hour, after: 290 * time.Second,
			set: 2 * time.Minute, wants: true},
		{name: "due before it was seen, and set forward", ahead: -10 * time.Minute, after: 10 * time.Second,
			set: 2 * time.Minute, wants: true},
		{name: "long over, and set back", after: 500 * time.Second, set: -90 * time.Second},
		{name: "soon due after a suspension", ahead: time.Hour, after: 290 * time.Second, set: 2 * time.Minute,
			suspended: true, wants: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Memory
			first := now.Add(time.Second)
			l := sees(first, first.Add(tt.ahead))
			m.ApplyLook(l)
			at := first.Add(tt.after)
			if tt.suspended {
				at.Mono -= tt.set
			} else {
				at.Wall = at.Wall.Add(tt.set)
			}
			if got := m.StockEviction(l).IsAboutToDelete(pod("p"), at); got != tt.wants {
				t.Errorf("got due %t, want %t", got, tt.wants)
			}
		})
	}
}

// A taint that landed while this process was blind may have landed at any time in between. That counts only where the
// node was not Ready before, or each taint of a node that was looked at an hour ago would be waited for.
func TestStockTaintThatLandedUnseen(t *testing.T) {
	const blind = 40 * time.Second
	sees := func(after time.Duration, ready corev1.ConditionStatus, taints ...corev1.Taint) taint.Look {
		at := now.Add(after)
		return taint.Look{Exists: true, Sent: at, Got: at, Ready: ready, Mark: &taint.Mark{Value: "f1"}, Taints: taints}
	}
	landed := corev1.Taint{
		Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: now.Add(-time.Hour).Wall},
	}
	for _, tt := range []struct {
		before corev1.ConditionStatus
		after  time.Duration
		want   bool
	}{
		{corev1.ConditionUnknown, 269 * time.Second, false},
		{corev1.ConditionUnknown, 270 * time.Second, true},
		{corev1.ConditionUnknown, 400 * time.Second, true},
		{corev1.ConditionUnknown, 401 * time.Second, false},
		{corev1.ConditionTrue, 309 * time.Second, false},
		{corev1.ConditionTrue, 310 * time.Second, true},
	} {
		var m Memory
		m.ApplyLook(sees(0, tt.before))
		l := sees(blind, corev1.ConditionUnknown, landed)
		m.ApplyLook(l)
		if got := m.StockEviction(l).IsAboutToDelete(pod("p"), now.Add(tt.after)); got != tt.want {
			t.Errorf("Ready was %s, %s later: got due %t, want %t", tt.before, tt.after, got, tt.want)
		}
	}
}

// The unreachable taint lands moments after Ready became Unknown. It does not land where Ready is False.
func TestStockTaintAboutToLand(t *testing.T) {
	soon := pod("p", func(p *action.Pod) {
		p.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
			TolerationSeconds: new(int64(5))},
			{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}}
	})
	noExecute := func(keys ...string) (out []corev1.Taint) {
		for _, k := range keys {
			out = append(out, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoExecute})
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		taints []corev1.Taint
		after  time.Duration // since Ready left True
		want   bool
	}{
		{"no taint yet", nil, time.Second, true},
		{"no taint in time", nil, stockTaint + time.Second, false},
		{"another taint", noExecute("example.com/a"), time.Second, true},
		{"Ready is False", noExecute(corev1.TaintNodeNotReady), time.Second, false},
		{"Ready is False, and another taint", noExecute(corev1.TaintNodeNotReady, "example.com/a"), time.Second, false},
		{"it has landed", noExecute(corev1.TaintNodeUnreachable), time.Second, true},
	} {
		s := StockEviction{Taints: tt.taints, From: now}
		if got := s.IsAboutToDelete(soon, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: got due %t, want %t", tt.name, got, tt.want)
		}
	}
}

// Two taints may have been added at the same time and seen at others.
func TestTaintTimesByKey(t *testing.T) {
	l := taint.Look{Exists: true, Ready: corev1.ConditionUnknown}
	var m Memory
	for i, key := range []string{"example.com/a", "example.com/b"} {
		l.Sent, l.Got = now.Add(time.Duration(i)*time.Second), now.Add(time.Duration(i)*time.Second)
		l.Taints = append(l.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute,
			TimeAdded: &metav1.Time{Time: now.Wall}})
		m.ApplyLook(l)
	}
	for i, at := range m.StockEviction(l).TaintTimes {
		if want := now.Add(time.Duration(i) * time.Second); !at.Seen.Equal(want) {
			t.Errorf("%s: got seen at %s, want %s", at.Key, at.Seen.Wall, want.Wall)
		}
	}
}

// After an outage of the API server the stock controller counts a taint from when it sees it, long after the taint's
// own time. A gap between looks that is shorter than Blind is none.
func TestStockCountsFromTheEndOfAnOutage(t *testing.T) {
	p := pod("p", func(p *action.Pod) {
		p.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))}}
	})
	for _, tt := range []struct {
		away, since time.Duration // the outage, and how long it is over
		want        bool
	}{
		{90 * time.Second, time.Second, true},
		{90 * time.Second, 64 * time.Second, true},
		{90 * time.Second, 66 * time.Second, false},
		{19 * time.Second, 47 * time.Second, false},
	} {
		var m Memory
		look := func(at time.Duration) taint.Look {
			l := taint.Look{Exists: true, Sent: now.Add(at), Got: now.Add(at), Ready: corev1.ConditionUnknown,
				Mark: &taint.Mark{Value: "f1"}, Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable,
					Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now.Wall}}}}
			m.ApplyLook(l)
			return l
		}
		look(0)
		if got := m.StockEviction(look(tt.away)).IsAboutToDelete(p, now.Add(tt.away+tt.since)); got != tt.want {
			t.Errorf("away for %s, back for %s: got due %t, want %t", tt.away, tt.since, got, tt.want)
		}
	}
}

// A process that was stopped, or suspended, between its look and a write does not know whether the unreachable taint
// landed meanwhile. A deletion that is due under it by then is waited for.
func TestStockDueAfterAStop(t *testing.T) {
	for name, at := range map[string]providers.Instant{
		"stopped":   now.Add(298 * time.Second),
		"suspended": {Wall: now.Wall.Add(298 * time.Second), Mono: now.Mono + time.Second},
	} {
		var m Memory
		m.ApplyLook(taint.Look{Exists: true, Sent: now, Got: now, Ready: corev1.ConditionUnknown,
			Mark: &taint.Mark{Value: "f1"}})
		stock := m.StockEviction(taint.Look{})
		if stock.IsAboutToDelete(pod("p"), now.Add(time.Second)) {
			t.Errorf("%s: due right after the look", name)
		}
		if !stock.IsAboutToDelete(pod("p"), at) {
			t.Errorf("%s: not due, though the taint may have landed right after the look", name)
		}
	}
}
