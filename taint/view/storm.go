package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/reason"
)

// DescribeStorm returns a banner if the leader's storm guard holds nodes back, or if so many nodes are silent that it
// would. nodes are all nodes of the cluster.
func DescribeStorm(cluster Cluster, nodes []Node, now time.Time) []Banner {
	if held := cluster.HeldBack(); held != nil {
		return held.describe(now)
	}
	return describeMostSilent(nodes)
}

// describeStorm returns a banner without a command: the rule names the domain, and the cause is outside of forcefence.
func describeStorm(title, text string, why reason.Reason) []Banner {
	return []Banner{{About: PartStorm, Title: title, Text: text, Remedy: PlainRemedy(why)}}
}

// maxNames is how many names FormatNames lists.
const maxNames = 5

// FormatNames lists a few names, and says how many there are besides.
func FormatNames(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// UrgentGroup is the nodes that need a person for the same reason: one cause may unite them.
type UrgentGroup struct {
	Why   string
	Names []string
}

// sectionReasons says in a few words what the sections are about that call a person.
var sectionReasons = map[reason.Section]string{
	reason.SectionMarkStuck:  "the fence does not end",
	reason.SectionNoLeader:   "no controller leads",
	reason.SectionProofLost:  "no longer proven off",
	reason.SectionUnproven:   "no device proves it off",
	reason.SectionStorm:      "power-off held back",
	reason.SectionLeftOn:     "its machine is on",
	reason.SectionDistrusted: "its device said a false Off",
}

// GroupUrgent groups nodes by their reason, in the order of each reason's first node.
func GroupUrgent(nodes []NodeRow) (groups []UrgentGroup) {
	for _, n := range nodes {
		why := cmp.Or(sectionReasons[n.Runbook], "each its own reason, in its row")
		i := slices.IndexFunc(groups, func(g UrgentGroup) bool { return g.Why == why })
		if i < 0 {
			i, groups = len(groups), append(groups, UrgentGroup{Why: why})
		}
		groups[i].Names = append(groups[i].Names, n.Name)
	}
	return groups
}

// DescribeUrgent says, without a full stop, which nodes need a person: "2 nodes need a person: n1, n2"; "" for none.
func DescribeUrgent(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0] + " needs a person"
	default:
		return fmt.Sprintf("%d nodes need a person: %s", len(names), FormatNames(names))
	}
}
