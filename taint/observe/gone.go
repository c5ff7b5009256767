package observe

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint/reason"
)

// ReportGoneAttached reports that volumes are attached to a Node that was deleted. Without a UID this process never saw
// the Node.
func (o *Observer) ReportGoneAttached(node *corev1.Node, detail string) {
	o.Log.Warn("Deleted node has volumes", "node", node.Name, "uid", node.UID, "volumes", detail)
	o.sendGone(node, reason.GoneAttached, detail)
}

// ReportGoneDeleted reports that an attachment of such a Node was deleted, or why it was not.
func (o *Observer) ReportGoneDeleted(node *corev1.Node, attachment, volume, device string, err error) {
	if err != nil {
		o.Log.Warn("Cannot detach volume of deleted node", "node", node.Name, "attachment", attachment, "error", err)
		return
	}
	o.Log.Warn("Deleted attachment of deleted node", "node", node.Name, "attachment", attachment, "volume", volume,
		"device", device)
}

// ReportGoneDetached reports that no volume is attached to such a Node any more.
func (o *Observer) ReportGoneDetached(node *corev1.Node, detail string) {
	o.Log.Info("Deleted node has no volumes any more", "node", node.Name, "uid", node.UID, "by", detail)
	o.sendGone(node, reason.GoneDetached, detail)
}

// CountGone sets how many deleted Nodes have volumes attached.
func (o *Observer) CountGone(n int) { o.Metrics.gone.Set(float64(n)) }

func (o *Observer) sendGone(node *corev1.Node, why reason.Reason, detail string) {
	about := nodeRef(node.Name)
	if node.UID != "" {
		about = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID}}
	}
	o.sendEvent(o.Now(), about, nil, why, "Detach", "{detail}", detail)
}
