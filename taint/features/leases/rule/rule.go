// Package rule decides whether a Lease may be released because its holder ran on a machine that is proven off.
//
// It is pure: a function of the Lease as a watch showed it, of the proof, and of what else has the holder's name.
//
// It promises: a Lease is released only if its last write was seen before the devices were asked and before the node's
// pods were listed. So its writer was a process of that machine, and that process has ended. A live successor has to
// write the Lease first, and then the release, which names the resourceVersion, fails.
package rule

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// Rule names Leases that may be released.
type Rule struct {
	Namespace string
	Names     []string // patterns as path.Match has them
}

// Lease is a Lease as a watch showed it last.
type Lease struct {
	Namespace, Name string
	Holder          string
	Renewed         time.Time         // by its holder's clock; zero: it does not say
	Seen            providers.Instant // when the watch showed this resourceVersion first
}

// Others are further objects that have the name of a Lease's holder, so that the holder may be one of theirs.
type Others struct {
	Node bool // another Node, or it is not known
	Pod  bool // a pod of another node, in the Lease's namespace, or it is not known
}

// Process returns the pod or host that a holder's identity names. client-go's leader election writes the host's name,
// which in a pod is the pod's name, and often an underscore and a random text. No such name has an underscore.
func Process(holder string) string {
	name, _, _ := strings.Cut(holder, "_")
	return name
}

// Refusal returns why the Lease may not be released; "": it may.
func Refusal(l Lease, p decide.Proof, rules []Rule, others Others) string {
	name := Process(l.Holder)
	switch {
	case !isNamed(l, rules):
		return "no rule names it"
	case name == "":
		return "it has no holder"
	case name != p.Node && !runsPod(p.Pods, l.Namespace, name):
		return "its holder is neither the node nor a pod of the node"
	case !l.Seen.Before(p.Since):
		return "it was written after the node's pods were listed, or after the devices were asked"
	case l.Renewed.IsZero() || l.Renewed.After(p.Asked.Wall):
		return "its holder renewed it after the proof, by the holder's clock"
	case others.Node:
		return "another Node has the holder's name"
	case others.Pod:
		return "a pod of another node has the holder's name"
	}
	return ""
}

// isNamed reports whether a rule names the Lease.
func isNamed(l Lease, rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return r.Namespace == l.Namespace && slices.ContainsFunc(r.Names, func(pattern string) bool {
			ok, err := path.Match(pattern, l.Name)
			return ok && err == nil
		})
	})
}

// runsPod reports whether a pod of that name is among the node's. Mirrors of static pods do not count: a kubelet's
// credential can make one of any name.
func runsPod(pods []action.Pod, namespace, name string) bool {
	return slices.ContainsFunc(pods, func(p action.Pod) bool {
		return p.Namespace == namespace && p.Name == name && p.Exempt != taint.ExemptStatic
	})
}
