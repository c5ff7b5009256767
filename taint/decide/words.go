package decide

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// Words are what stands in the braces of the text of a decision's reason (reason.Row.Note), pair by pair. suspicion is the fleet's of the node.
func (n *Node) Words(d action.Decision, suspicion string) []string {
	by := action.RecordOf(d.Action).By
	if by == taint.ByPerson {
		by = "A person"
	}
	return []string{
		"{node}", n.look.Name, "{device}", cmp.Or(n.Speakers(), "(none)"), "{detail}", cmp.Or(d.Detail, n.Said()),
		"{why}", cmp.Or(suspicion, "its storage is not healthy"), "{raw}", strconv.Quote(n.Answer().Raw),
		"{pods}", Counted(len(podsOf(d)), "pod"), "{attachments}",
		Counted(len(action.AttachmentsOf(d.Action)), "VolumeAttachment"), "{by}", by,
	}
}

// Counted is so many of a thing: "1 pod", "2 pods".
func Counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// Said is the last answer in words that may be shown.
func (n *Node) Said() string {
	a := n.Answer()
	switch {
	case n.facts.Nobody != nil:
		return n.facts.Nobody.Error()
	case a.Got.IsZero():
		return "not asked"
	case a.Err != nil:
		return providers.Cause(a.Err)
	default:
		return fmt.Sprintf("%s (%q)", a.State, a.Raw)
	}
}

// Speakers names the devices that speak for the node.
func (n *Node) Speakers() string {
	var names []string
	for _, d := range n.facts.Devices {
		names = append(names, d.Name)
	}
	return strings.Join(names, ", ")
}

// podsOf are the pods that a decision is about: with Would those that a fence would move.
func podsOf(d action.Decision) []action.Pod {
	if d.Would.Action != nil {
		return d.Would.Pods
	}
	return action.PodsOf(d.Action)
}
