package writes

import (
	"fmt"
	"time"
)

// Order is one thing that forcefence has left with others, and that they obey while forcefence does not look.
type Order struct {
	Resource string // of an entry of All whose metric is OrderMetric
	Name     string // of its object, with the namespace; of a host, the device
	Node     string
	State    State
	Made     time.Time // at the latest; zero: unknown
}

// OrderMetric tells how old the oldest order of each resource and state is.
const OrderMetric = "forcefence_order_age_seconds"

// State is what becomes of an order, from a closed set.
type State string

// The states. All but the first need a person if they last.
const (
	Holds    State = "holds"     // its node is not back
	Kept     State = "kept"      // it should have ended
	Ending   State = "ending"    // it was taken back, and its system has not said that it obeyed
	NodeGone State = "node_gone" // its Node was deleted: another machine may have its name or address by now
)

// States are all states.
var States = []State{Holds, Kept, Ending, NodeGone}

// IsOverdue reports whether a person has to end the order if it stays.
func (o Order) IsOverdue() bool { return o.State != Holds }

// Text names the order, and says what becomes of it.
func (o Order) Text() string {
	text := fmt.Sprintf("%s %s of node %s ", o.Resource, o.Name, o.Node)
	switch o.State {
	case Holds:
		text += "is in force"
	case Ending:
		text += "was taken back, and nothing confirms that yet"
	case NodeGone:
		text += "is in force, and its Node was deleted"
	default:
		text += "is in force, and should have ended"
	}
	if !o.Made.IsZero() {
		text += fmt.Sprintf(" (since %s)", o.Made.UTC().Format(time.RFC3339))
	}
	return text
}
