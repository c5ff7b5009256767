package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// A dead node whose BMC is silent needs a person after five minutes, also if the newest Event is a drill's. The minutes
// pass by a Ready condition that changed earlier.
func TestDeadNodeNeedsPerson(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 1, w.volumes("db", 1))
	w.start(settings{})
	h.bmc.SetFault(datacenter.Fault{Drop: true})
	h.cut()
	w.untilEvent("Node", h.Name(), "PowerUnknown")
	w.until("the node is not Ready", func() bool { return w.readyIs(h, corev1.ConditionUnknown) })
	status, _ := w.forcefence("status", h.Name())
	w.says("status of the first minutes", status, "1 not ready", "cannot say whether the machine is off")

	w.setReadySince(h, time.Now().Add(-6*time.Minute))
	w.drillEvent(h)
	status, _ = w.forcefence("status", h.Name())
	w.says("status after minutes", status, h.Name()+" needs a person. What to do is below.", "1 needs a person",
		"cannot say whether the machine is off", "If you see that the machine is off, say so: kubectl taint node")
	check, exit := w.forcefence("check")
	w.says("check", check, "problem "+h.Name(), "1 not Ready: "+h.Name(), "1 in need of a person")
	if exit != 1 {
		t.Errorf("check: got exit status %d, want 1", exit)
	}
	h.bmc.SetFault(datacenter.Fault{})
	w.untilDone(h, taint.ResultEvicted)
}

// readyIs reports whether the Node's condition Ready has this status.
func (w *world) readyIs(h *host, status corev1.ConditionStatus) bool {
	w.t.Helper()
	for _, c := range w.node(h).Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == status
		}
	}
	return false
}

// setReadySince sets when the Node's condition Ready changed last.
func (w *world) setReadySince(h *host, at time.Time) {
	w.t.Helper()
	w.until("Ready changed earlier", func() bool {
		n := w.node(h)
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.LastTransitionTime = metav1.NewTime(at)
			}
		}
		_, err := w.Client().CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{})
		return err == nil
	})
}

// drillEvent sends the Event of a drill, as newest.
func (w *world) drillEvent(h *host) {
	w.t.Helper()
	_, err := w.Client().EventsV1().Events(metav1.NamespaceDefault).Create(w.ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: h.Name() + "-"},
		EventTime:  metav1.NowMicro(), Type: corev1.EventTypeWarning, Reason: "MachineNotAnswering", Action: "Probe",
		Note: "This node could not be fenced at present.", ReportingController: "forcefence",
		ReportingInstance: "forcefence-0",
		Regarding:         corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: h.Name()},
	}, metav1.CreateOptions{})
	kit.Must(w.t, err)
}

// A fence frees a pod that fits no other node: status and check count the pods that wait.
func TestWaitingPodsAreReported(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	tied := w.workload("tied", 1)
	tied.NodeSelector = map[string]string{corev1.LabelHostname: h.Name()}
	w.fill(h, 1, tied.Deployment())
	w.start(settings{})
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	w.until("its replacement waits", func() bool {
		for _, p := range w.pods() {
			if p.Status.Phase == corev1.PodPending && p.Spec.NodeName == "" {
				return true
			}
		}
		return false
	})
	status, _ := w.forcefence("status")
	w.says("status", status, "for a node: All Pending pods of the cluster without a node are counted.",
		"freed the pods of "+h.Name(), "Its pods were freed.")
	check, exit := w.forcefence("check")
	w.says("check", check, "problem pods", "for a node")
	if exit != 1 {
		t.Errorf("check: got exit status %d, want 1", exit)
	}
}
