package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// TestRelistCount counts the lists after the first: each may hide changes.
func TestRelistCount(t *testing.T) {
	m := newMirror[*corev1.Pod](nil, "pods")
	list := []any{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for want := range int64(3) {
		kit.Must(t, m.Replace(list, ""))
		kit.Must(t, m.Update(list[0]))
		if got := m.relistCount(); got != want {
			t.Errorf("after list %d: got %d, want %d", want+1, got, want)
		}
	}
}
