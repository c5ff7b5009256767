package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/reason"
)

// Cluster is what concerns all nodes at once, as JSON has it. The zero value claims nothing.
type Cluster struct {
	Controllers []Leader `json:"controllers"`      // nil: not read
	Paused      string   `json:"paused,omitempty"` // what pauses fencing for all nodes; "": nothing, or not read
}

// Leader is a Lease by which controllers elect their leader.
type Leader struct {
	Namespace string     `json:"namespace"`
	Lease     string     `json:"lease"`
	Holder    string     `json:"holder,omitempty"` // "": no controller
	Renewed   *time.Time `json:"renewed,omitempty"`
	Leads     bool       `json:"leads"` // a controller holds it, or held it a moment ago
	// ConfigRejected is why the leader rejects its changed configuration file; "" while that file is in force.
	ConfigRejected string `json:"configRejected,omitempty"`
}

// Banner is a reason why forcefence does not act on any node, or not as configured. Its texts may come from any writer.
type Banner struct {
	Title string // a few words
	Text  string // the details, and what a person does
}

// Banners returns what a person must know of the whole cluster before anything else, the gravest first.
func (c Cluster) Banners(now time.Time) (out []Banner) {
	leads := func(l Leader) bool { return l.Leads }
	if c.Controllers != nil && !slices.ContainsFunc(c.Controllers, leads) {
		out = append(out, Banner{"No controller leads", describeMissingLeader(c.Controllers, now)})
	}
	if c.Paused != "" {
		out = append(out, Banner{"Fencing is paused for all nodes", "by " + c.Paused + ". No power-off, mark or " +
			"policy action begins; a fence in progress continues. To end the pause: kubectl forcefence resume."})
	}
	for _, l := range c.Controllers {
		if l.Leads && l.ConfigRejected != "" {
			out = append(out, Banner{"Configuration rejected", withAdvice(reason.ConfigRejected,
				strings.TrimSuffix(l.ConfigRejected, ".")+". The previous file stays in force.")})
		}
	}
	return out
}

// describeMissingLeader describes the Leases, none of which a controller holds now.
func describeMissingLeader(all []Leader, now time.Time) string {
	if len(all) == 0 {
		return "No controller has created its Lease in this cluster: nothing is fenced."
	}
	text := ""
	for _, l := range all {
		state := "has no holder"
		if l.Renewed != nil {
			state = fmt.Sprintf("was renewed %s, by %s", FormatAge(*l.Renewed, now), l.Holder)
		}
		text += fmt.Sprintf("Lease %s/%s %s. ", l.Namespace, l.Lease, state)
	}
	return text + "Nothing is fenced, and what is shown may be stale. Look at the controller's pods: " +
		"kubectl get pods -n " + all[0].Namespace + "."
}

// FormatAge returns how long ago a time was: "<1 min ago", "2 min ago", "3 h ago", "5 days ago". A time in the future
// counts as now, because clocks may differ.
func FormatAge(at, now time.Time) string {
	switch age := now.Sub(at); {
	case age < time.Minute:
		return "<1 min ago"
	case age < time.Hour:
		return fmt.Sprintf("%d min ago", age/time.Minute)
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h ago", age/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", age/(24*time.Hour))
	}
}
