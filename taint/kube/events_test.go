package kube

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/forcefence/forcefence/taint/reason"
)

// lines is a recorder that keeps all that it is given.
type lines []string

func (l *lines) Eventf(about, related runtime.Object, kind, why, action, note string, args ...any) {
	*l = append(*l,
		fmt.Sprintf("%s about %s (%v) by %s: %s: %s", kind, about.(*corev1.Node).Name, related != nil, action, why,
			fmt.Sprintf(note, args...)))
}

// An Event has its reason's words and severity. A process that may not lead any more sends none.
func TestSendEvent(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, tt := range []struct {
		why     reason.Reason
		related runtime.Object
		leading error
		want    string
	}{
		{reason.Answers, nil, nil, "Normal about n1 (false) by Probe: MachineAnswers: 50%d slower"},
		{reason.NotAnswering, node, nil, "Warning about n1 (true) by Probe: MachineNotAnswering: 50%d slower"},
		{reason.Answers, nil, errors.New("not leading"), ""},
		{reason.Stuck, nil, nil, ""}, // which has no text
	} {
		var got lines
		e := Events{To: &got, Leading: func() error { return tt.leading }}
		e.Send(node, tt.related, tt.why, "Probe", "{detail}", "50%d slower")
		if want := (tt.want != ""); len(got) > 1 || (len(got) == 1) != want || want && got[0] != tt.want {
			t.Errorf("%s, leading %v: got %q, want %q", tt.why, tt.leading, got, tt.want)
		}
	}
}
