package app

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// clientsOf returns the REST configuration for all clients. It leaves rc unchanged.
func clientsOf(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.QPS = -1 // workers are the limit (F6)
	kube.SendWritesOnce(rc)
	return rc
}

// newLeaseReporter returns a function that sends an Event about the leader's Lease, with that action. It sends none
// while may returns an error: all replicas read the same file, and one Event is enough.
func newLeaseReporter(
	to events.EventRecorder, action string, may func() error, own string, e config.LeaderElection,
) func(reason.Reason, ...string) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: chooseNamespace(e.Namespace, own),
		Name:      e.Name,
	}}
	return func(why reason.Reason, words ...string) {
		if may() != nil {
			return
		}
		to.Eventf(lease, nil, corev1.EventTypeWarning, string(why), action, "%s", reason.RowOf(why).EventNote(words...))
	}
}
