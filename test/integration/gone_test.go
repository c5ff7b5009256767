package integration

import (
	"testing"
	"time"
)

// A cloud deletes the Node of a machine that goes off. An Event on the Node's name and UID says that its volumes wait.
// With onDetachTimeout: delete-attachments, and while the device says Off, their attachments are deleted once
// Kubernetes' garbage collector has ended the pods. Without it Kubernetes waits six minutes more.
func TestGoneNodeIsDetached(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.fill(h, 2, w.volumes("db", 2))
	before := w.podsOn(h)
	w.start(settings{Top: "onDetachTimeout: delete-attachments"})
	w.untilPinned(w.hosts...)
	uid := w.node(h).UID
	h.cut()
	began := time.Now()
	w.kubectl("delete", "node", h.Name(), "--wait=false")
	w.untilEvent("Node", h.Name(), "DeletedNodeAttached")
	w.until("no attachment of the deleted Node", func() bool { return len(w.attachments(h)) == 0 })
	t.Logf("detached after %s", time.Since(began))
	w.untilReplaced(h, before)
	t.Logf("replaced after %s", time.Since(began))
	w.untilEvent("Node", h.Name(), "DeletedNodeDetached")
	for _, reason := range []string{"DeletedNodeAttached", "DeletedNodeDetached"} {
		for _, e := range w.events("Node", h.Name(), reason) {
			if e.Namespace != "default" || e.Regarding.UID != uid {
				t.Errorf("%s: got namespace %s, UID %s, want default, %s", reason, e.Namespace, e.Regarding.UID, uid)
			}
		}
	}
}
