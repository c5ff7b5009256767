package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/reason"
)

// subject is the node that is reported on.
type subject struct {
	*Observer

	name      string
	course    *decide.Node
	node      *corev1.Node // of the last look; nil: the node is idle, or was not looked at
	at        time.Time    // when what is being reported happened
	suspicion string       // fleet.View.Suspicion of the last look
}

// queueEvent sends an Event about the Node once the pod writes that it reports are done.
func (n *subject) queueEvent(why reason.Reason, action string, words ...string) {
	node, at := n.node, n.at
	n.queue.addEvent(n.name, false, func() { n.sendEvent(at, node, nil, why, action, words...) })
}

// queuePodEvents sends an Event about each of some pods once the fence is over.
func (n *subject) queuePodEvents(pods []action.Pod, why reason.Reason, words ...string) {
	node, at := n.node, n.at
	n.queue.addEvent(n.name, true, func() {
		for _, p := range pods {
			n.sendEvent(at, podRef(p), node, why, "Evict", words...)
		}
	})
}

// nodeRef refers to another Node by its name, as kubelets do.
func nodeRef(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

func podRef(p action.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
}

// reportFence passes to Sinks.Fences what happened to the fence, or the shadow decision, of the record.
func (n *subject) reportFence(t journal.Update) {
	if n.Fences == nil || t.Record.NodeUID == "" {
		return
	}
	t.Node, t.At, t.Why = n.name, n.Now(), n.suspicion
	n.Fences(t)
}

// madePods returns the pods of an action that this process wrote.
func madePods(a action.Action, w decide.Writes) []action.Pod {
	return slices.DeleteFunc(slices.Clone(action.PodsOf(a)), func(p action.Pod) bool { return !w.Made[p.UID] })
}
