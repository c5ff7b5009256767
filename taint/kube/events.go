package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/taint/reason"
)

// Events sends Events with the texts of package reason.
type Events struct {
	To      events.EventRecorder
	Leading func() error // nil while this process is sure to be the leader
}

// Send sends a reason's Event about an object, with the words in its braces replaced. related is another object that it
// concerns; nil if there is none. It sends nothing if the reason has no text, or if another process may lead by now:
// what this process decided will not be done then. It does not block.
func (e Events) Send(about, related runtime.Object, why reason.Reason, action string, words ...string) {
	row := reason.RowOf(why)
	if row.Text == "" || e.Leading() != nil {
		return
	}
	kind := corev1.EventTypeNormal
	if row.Severity == reason.Warning {
		kind = corev1.EventTypeWarning
	}
	e.To.Eventf(about, related, kind, string(why), action, "%s", row.EventNote(words...))
}
