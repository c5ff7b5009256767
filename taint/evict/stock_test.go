package evict

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
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
		m.Saw(step.look)
		times := m.Stock(step.look).Seen
		switch {
		case step.want < 0 && len(times) > 0:
			t.Errorf("%s: got %v, want no taint", step.name, times)
		case step.want >= 0 && (len(times) != 1 || !times[0].Seen.Equal(now.Add(step.want).Wall)):
			t.Errorf("%s: got %v, want one seen at %v", step.name, times, now.Add(step.want).Wall)
		}
	}
}
