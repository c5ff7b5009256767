package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/reason"
)

// NoteFields returns the replacements for the braces in the text of a decision's reason (reason.Row.EventNote), pair by
// pair. suspicion is the fleet's suspicion of the node.
func (n *Node) NoteFields(d action.Decision, suspicion string) []string {
	by := action.RecordOf(d.Action).By
	if by == taint.ByPerson {
		by = "A person"
	}
	staying := action.RecordOf(d.Action).Staying.Advice()
	if staying != "" {
		staying = ". " + strings.TrimSuffix(staying, ".")
	}
	return append(reason.DeviceWords(n.speakers()),
		"{staying}", staying,
		"{node}", n.look.Name,
		"{detail}", cmp.Or(d.Detail, n.LastAnswerText()),
		"{why}", cmp.Or(suspicion, "its storage is not healthy"), "{raw}", strconv.Quote(n.Answer().Raw),
		"{pods}", FormatCount(len(podsOf(d)), "pod"), "{attachments}",
		FormatCount(len(action.AttachmentsOf(d.Action)), "VolumeAttachment"), "{by}", by,
	)
}

// FormatCount returns a number of things in words: "1 pod", "2 pods".
func FormatCount(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// LastAnswerText returns the last answer in words that may be shown.
func (n *Node) LastAnswerText() string {
	a := n.Answer()
	switch {
	case n.facts.NoDeviceErr != nil:
		return n.facts.NoDeviceErr.Error()
	case a.Got.IsZero():
		return "not asked"
	case a.Err != nil:
		return providers.ErrorCause(a.Err)
	default:
		return fmt.Sprintf("%s (%q)", a.State, a.Raw)
	}
}

// DeviceNames returns the names of the devices that speak for the node: those that gave the last answer, or all if none
// is known. A person's level that was not confirmed gave none.
func (n *Node) DeviceNames() string { return strings.Join(n.speakers(), ", ") }

// speakers are the names of DeviceNames.
func (n *Node) speakers() []string {
	var all, spoke []string
	for i, d := range n.facts.Devices {
		all = append(all, d.Name)
		if s := n.answers.State(i); s != providers.PowerUnknown && s == n.Answer().State {
			spoke = append(spoke, d.Name)
		}
	}
	if len(spoke) > 0 {
		return spoke
	}
	return all
}

// podsOf returns the pods that a decision is about: with Would those that a fence would move.
func podsOf(d action.Decision) []action.Pod {
	if d.Would.Action != nil {
		return d.Would.Pods
	}
	return action.PodsOf(d.Action)
}

// describeReturnedPods names pods that the scheduler binds to a dead node, and the taint that they tolerate. A
// toleration of unreachable or not-ready without an effect does that: such a node is the emptiest once its fence is
// over.
func describeReturnedPods(pods []action.Pod, taints []corev1.Taint) string {
	count, first := 0, ""
	for _, p := range pods {
		tolerated := slices.IndexFunc(taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule &&
				(t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady) &&
				slices.ContainsFunc(p.Tolerations, func(tol corev1.Toleration) bool {
					return evict.StockTolerates(tol, t)
				})
		})
		if !p.ShouldMove() || tolerated < 0 {
			continue
		}
		count++
		if name := p.Namespace + "/" + p.Name; first == "" || name < first {
			first = name + " tolerates " + taints[tolerated].Key + ":" + string(taints[tolerated].Effect)
		}
	}
	switch count {
	case 0:
		return "there is more to do on the node"
	case 1:
		return first
	default:
		return fmt.Sprintf("%s, and %s like it", first, FormatCount(count-1, "pod"))
	}
}
