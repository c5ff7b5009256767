package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// explainDrills returns why these nodes cannot be proven off, and what to do about it: one finding for all nodes whose
// devices have the same problem, so that one wrong password is one line.
func explainDrills(failed []Node) (out []Finding) {
	alike, names := map[string][]Node{}, []string{}
	for _, n := range failed {
		problem := n.sharedProblem()
		if problem == "" {
			problem = "node " + n.View.Node // its own
		}
		if alike[problem] == nil {
			names = append(names, problem)
		}
		alike[problem] = append(alike[problem], n)
	}
	for _, problem := range names {
		nodes := alike[problem]
		first := nodes[0].explainDrill()
		if len(nodes) > 1 {
			first.About = fmt.Sprintf("%d nodes", len(nodes))
			first.Text = fmt.Sprintf("%s: %s.", problem, listNodes(nodes))
		}
		out = append(out, first)
	}
	return out
}

// sharedProblem returns which problem the node's devices have, in words that are the same for all nodes that have it:
// "racks refuses the password in FILE". It returns "" if the node has another problem, or an older controller wrote
// no answers.
func (n Node) sharedProblem() string {
	answers := drill.AnswersIn(n.Node)
	if reason.Reason(n.lastDrill().Reason) != reason.NotAnswering {
		return ""
	}
	var all []string
	for _, d := range answers.Devices {
		provider, _, _ := strings.Cut(d.Device, "/")
		switch {
		case d.Refused != "":
			all = append(all, provider+" refuses the password in "+d.Refused)
		case d.Problem != "":
			all = append(all, provider+" gives no answer that counts ("+d.Problem+")")
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// listNodes names the first nodes, and says how many there are more.
func listNodes(nodes []Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.View.Node)
	}
	return view.FormatNames(names)
}
