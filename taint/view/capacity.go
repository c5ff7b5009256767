package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// Capacity is how many Ready nodes could be proven off when their devices were last asked, and what to do next about
// one that could not. It comes from the controller's drills, as the Nodes' condition Fenceable has them. A node that is
// not Ready is not counted: what its devices answered before says nothing about now.
type Capacity struct {
	Nodes    int    `json:"nodes"`          // those that are Ready
	Provable int    `json:"provable"`       // their devices answered the last drill
	Node     string `json:"node,omitempty"` // the node to begin with; "" if every node can be proven off
	Next     string `json:"next,omitempty"` // what to do about that node, or what is wrong with it; one line
	// NotReady are the nodes that are not Ready, by name.
	NotReady []string `json:"notReady,omitempty"`
	// Age is how old the oldest of these answers may be; zero: not known.
	Age time.Duration `json:"-"`
}

// CapacityOf counts the Ready nodes whose drill succeeded, and chooses the node to begin with. A node without a device
// comes before one whose device fails, and that before one that no controller has asked yet. Nodes that are not Ready
// come last. Among equals the name decides. Drills that are older than the configuration in force do not count.
func CapacityOf(nodes []*corev1.Node, cluster Cluster, now time.Time) Capacity {
	c := Capacity{}
	if since := cluster.DrilledSince(); !since.IsZero() {
		c.Age = max(now.Sub(since), time.Second) // clocks may differ
	}
	first := obstacle{}
	for _, n := range nodes {
		o, obstructed := obstacleOf(n, cluster.ConfigSince())
		if taint.Condition(n, corev1.NodeReady).Status == corev1.ConditionTrue {
			if c.Nodes++; !obstructed {
				c.Provable++
			}
		} else {
			c.NotReady = append(c.NotReady, n.Name)
		}
		if obstructed && (c.Node == "" || o.compare(first) < 0) {
			first, c.Node, c.Next = o, n.Name, o.text
		}
	}
	if first.rank >= afterReady && c.Nodes > 0 {
		c.Node, c.Next = "", "" // its state says what to do
	}
	slices.Sort(c.NotReady)
	return c
}

// String returns the capacity as one sentence without a full stop, such as "0 of 5 Ready nodes could be proven off when
// their devices were last asked (at most 4 min ago); give n1 a device, under nodes in the
// configuration".
func (c Capacity) String() string {
	if c.Nodes+len(c.NotReady) == 0 {
		return "the cluster has no nodes"
	}
	count, down := "no node is Ready", ""
	if c.Nodes > 0 {
		whose, age := "their", ""
		if c.Nodes == 1 {
			whose = "its"
		}
		if c.Age > 0 {
			age = " (at most " + formatMinutes(c.Age) + " ago)"
		}
		count = fmt.Sprintf("%d of %s could be proven off when %s devices were last asked%s", c.Provable,
			decide.FormatCount(c.Nodes, "Ready node"), whose, age)
		if n := len(c.NotReady); n > 0 {
			down = fmt.Sprintf("%d not Ready: %s", n, FormatNames(c.NotReady))
		}
	}
	return joinNonEmpty(count, down, c.Next)
}

// formatMinutes returns an age of at most so long, in whole minutes or hours, rounded up.
func formatMinutes(age time.Duration) string {
	if minutes := (age + time.Minute - 1) / time.Minute; minutes <= 120 {
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d h", (age+time.Hour-1)/time.Hour)
}

// joinNonEmpty joins the texts that are not empty by a semicolon.
func joinNonEmpty(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), "; ")
}

// obstacle is why a node cannot be proven off.
type obstacle struct {
	rank int // the lower, the sooner a person can do something about it
	node string
	text string
}

func (o obstacle) compare(other obstacle) int {
	return cmp.Or(cmp.Compare(o.rank, other.rank), cmp.Compare(o.node, other.node))
}

// obstacleOf returns why the node cannot be proven off; false if it can.
func obstacleOf(n *corev1.Node, configured time.Time) (obstacle, bool) {
	condition := taint.Condition(n, taint.FenceableCondition)
	if drill.IsOlder(condition, configured) {
		text := "the devices of " + n.Name + " were last asked before the configuration changed"
		return obstacle{rank: 3, node: n.Name, text: text}, true
	}
	if condition.Status == corev1.ConditionTrue {
		return obstacle{}, false
	}
	o := obstacle{node: n.Name}
	switch why := reason.Reason(condition.Reason); {
	case condition.Status == "":
		o.rank, o.text = 3, "no controller has asked the devices of "+n.Name+" yet"
	case why == reason.NoMachine:
		o.rank, o.text = 0, "give "+n.Name+" a device, under nodes in the configuration"
	case why == reason.NotAnswering:
		o.rank, o.text = 2, n.Name+": no device gives an answer that counts"
	default:
		message := strings.TrimSuffix(OneLine(condition.Message, maxObstacle), ".")
		o.rank, o.text = 1, n.Name+": "+cmp.Or(message, condition.Reason, "its last drill failed")
	}
	if taint.Condition(n, corev1.NodeReady).Status != corev1.ConditionTrue {
		o.rank += afterReady
	}
	return o, true
}

// afterReady ranks nodes that are not Ready last: their state says what to do, and a fenced machine should be off.
const afterReady = 10

// maxObstacle bounds the message of a condition in a Capacity, in bytes.
const maxObstacle = 200
