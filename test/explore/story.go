package explore

import (
	"fmt"
	"strings"

	"github.com/forcefence/forcefence/taint"
)

// Story draws a path as a sequence of messages between the first node, the API server, the controllers and the second
// node.
func Story(o Options, path []act) string {
	var b strings.Builder
	d := drawing{heads: []string{"n1", "API server", "controller", "n2"}, at: []int{5, 33, 63, 82}}
	if o.Controllers > 1 {
		d = drawing{heads: []string{"n1", "API server", "controller A", "controller B", "n2"},
			at: []int{5, 33, 63, 88, 107}}
	}
	d.head(&b)
	s := start(o)
	for i, a := range path {
		before := s
		v := s.apply(&o, a)
		from, to, text := told(&before, &s, a, o.Controllers)
		d.line(&b, i+1, from, to, text)
		if v != nil {
			fmt.Fprintf(&b, "     %s\n", v.Text)
		}
	}
	return b.String()
}

// The columns. The second node is the last.
const (
	node1 = iota
	api
	controllers
)

// told says of a transition who sends what to whom; from and to are the same where one does something by itself.
func told(b, s *state, a act, n int) (from, to int, text string) {
	node2, i := controllers+n, int(a.of)
	ctl := controllers + i
	alone := func(col int, text string) (int, int, string) { return col, col, text }
	switch a.verb {
	case powerCut:
		return alone(node1, "loses its power")
	case goesOff:
		return alone(node1, "is off, as ordered")
	case boot:
		return alone(node1, "IS SWITCHED ON")
	case partition:
		return alone(node1, "is cut off from the network")
	case pause:
		return alone(api, "somebody PAUSES n1")
	case unpause:
		return alone(api, "n1 is no more paused")
	case heal:
		return alone(node1, "is back on the network")
	case lease:
		return node1, api, "renews its Lease"
	case status:
		return node1, api, "Ready, boot, volumesInUse"
	case list:
		return api, node1, "pods of n1"
	case oldList:
		return api, node1, "pods of n1, an old list"
	case mount:
		return alone(node1, "mounts the volume")
	case admits:
		return alone(node1, names[i]+" may start")
	case starts:
		return alone(node1, names[i]+" RUNS")
	case stops:
		return alone(node1, names[i]+" stops")
	case tells:
		return node1, api, names[i] + " is Running"
	case confirms:
		return node1, api, names[i] + " is gone"
	case hookReads:
		return api, node1, "hook reads the Node"
	case hookLists:
		return api, node1, "hook lists pods"
	case hookAsks:
		return api, node1, "hook asks for " + names[i]
	case nodeLost:
		return alone(api, "Ready: Unknown")
	case setWorks:
		if s.pods[i].uid == 0 {
			return alone(api, "StatefulSet: deletes "+names[i])
		}
		return alone(api, "StatefulSet: a new "+names[i])
	case bind:
		return alone(api, fmt.Sprintf("scheduler: %s to n%d", names[i>>1], i&1+1))
	case detach:
		return alone(api, "volume detached from n1")
	case attach:
		return alone(api, fmt.Sprintf("volume attached to n%d", i+1))
	case otherRuns:
		return alone(node2, names[i]+" RUNS")
	case otherStops:
		return alone(node2, names[i]+" stops")
	case lands:
		w := b.orphans[i]
		return alone(api, "late: "+w.told(b, s))
	case begins:
		return alone(ctl, "begins to lead")
	case second:
		return alone(ctl, "begins to lead, too")
	case crash:
		return alone(ctl, "crashes")
	case timeOut:
		return alone(ctl, "hears nothing of its write")
	case wake:
		return alone(ctl, "sees a change")
	case timer:
		return alone(ctl, "has waited "+b.ctl[i].after.String())
	case first:
		return api, ctl, "the Node alone"
	case last:
		return api, ctl, "the Lease alone"
	}
	c, more := b.ctl[i], ""
	if a.verb == late {
		more = ", late"
	}
	switch c.request {
	case looking:
		return api, ctl, "Node and Lease" + more
	case listing:
		return api, ctl, "pods of n1" + more
	case resolving:
		return api, ctl, "their volumes" + more
	case listingAttachments:
		return api, ctl, "attachments" + more
	case naming:
		return api, ctl, "the volume's claim" + more
	case asking:
		return node1, ctl, "device: " + s.ctl[i].course.Answer().State.String() + more
	case sendingOff:
		return ctl, node1, "POWER OFF" + more
	default:
		return ctl, api, c.write.told(b, s) + more
	}
}

// told is a write for a reader, and whether it was refused.
func (w *write) told(b, s *state) string {
	text := ""
	switch w.do {
	case marks:
		text = "sets the MARK"
	case unmarks:
		text = "takes the MARK off: " + string(w.rec.Result)
	case records:
		text = "record: " + string(w.rec.Phase)
		if len(w.rec.Detaching) > 0 {
			text += ", waits for the volume"
		}
		if w.rec.Phase == taint.PhaseDone {
			text += " " + string(w.rec.Result)
		}
	case tombstones, deletes, spares:
		text = map[kind]string{tombstones: "TOMBSTONE on ", deletes: "deletes ", spares: "spares "}[w.do] + "the pod"
		for i := range b.pods {
			if b.pods[i].uid == w.uid {
				text = strings.Replace(text, "the pod", names[i], 1)
			}
		}
		if s.pods == b.pods {
			text += ": refused"
		}
		return text
	case clears:
		text = "clears volumesInUse"
	case expires:
		text = "Ready: Unknown"
	case tellsOn:
		text = "says that it is powered on"
	case powersOff:
		return "power-off arrives"
	}
	if s.node.rv == b.node.rv {
		text += ": conflict"
	}
	return text
}

// drawing is the columns.
type drawing struct {
	heads []string
	at    []int
}

func (d drawing) head(b *strings.Builder) {
	line := []rune(strings.Repeat(" ", d.at[len(d.at)-1]+8))
	for i, h := range d.heads {
		copy(line[max(d.at[i]-len(h)/2, 0):], []rune(h))
	}
	fmt.Fprintln(b, strings.TrimRight("   "+string(line), " "))
}

func (d drawing) line(b *strings.Builder, n, from, to int, text string) {
	line := []rune(strings.Repeat(" ", d.at[len(d.at)-1]+40))
	for _, at := range d.at {
		line[at] = '|'
	}
	switch lo, hi := d.at[min(from, to)], d.at[max(from, to)]; {
	case from == to:
		copy(line[lo:], []rune("* "+text))
	default:
		for i := lo + 1; i < hi; i++ {
			line[i] = '-'
		}
		label := []rune(" " + text + " ")
		copy(line[lo+max((hi-lo-len(label)+1)/2, 1):], label)
		if from < to {
			line[hi-1] = '>'
		} else {
			line[lo+1] = '<'
		}
	}
	fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("%2d %s", n, string(line)), " "))
}
