package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Override is a policy that an operator puts in force for a while, for one node or for all. Two are equal (==) if they
// say the same.
type Override struct {
	Policy Policy    // the whole text, if that cannot be read: then no drain is allowed
	Until  time.Time // zero: no end
}

// Overrides are those of all nodes, by the node's name, and under AllNodes the one of nodes without an own one.
type Overrides map[string]Override

// AllNodes is the key of the override of nodes without an own one. No Node can have this name, and a ConfigMap's data
// can have this key.
const AllNodes = "_all"

const untilParameter = "until="

// ParseOverrides reads the data of the ConfigMap with overrides.
func ParseOverrides(data map[string]string) Overrides {
	all := Overrides{}
	for key, text := range data {
		all[key] = ParseOverride(text)
	}
	return all
}

// ParseOverride reads POLICY; until=TIME (RFC 3339), as a pause has its time, or POLICY alone. An unknown policy is
// kept, and holds up every drain. A text with an unreadable time becomes an unknown policy without an end.
func ParseOverride(text string) Override {
	policy, rest, timed := strings.Cut(text, ";")
	o := Override{Policy: Policy(cmp.Or(strings.TrimSpace(policy), "(none)"))}
	if !timed {
		return o
	}
	until, named := strings.CutPrefix(strings.TrimSpace(rest), untilParameter)
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(until))
	if err != nil || !named {
		return Override{Policy: Policy(strings.TrimSpace(text))}
	}
	o.Until = at.UTC()
	return o
}

// Text returns the override in the form that ParseOverride reads.
func (o Override) Text() string {
	if o.Until.IsZero() {
		return string(o.Policy)
	}
	return string(o.Policy) + "; " + untilParameter + o.Until.UTC().Format(time.RFC3339)
}

// String returns the override in words, for a person.
func (o Override) String() string {
	text := string(o.Policy)
	if !o.IsKnown() {
		text = fmt.Sprintf("%q, which is not of the form POLICY; until=YYYY-MM-DDThh:mm:ssZ and holds up every drain,",
			string(o.Policy))
	}
	if o.Until.IsZero() {
		return text + " without an end"
	}
	return text + " until " + o.Until.UTC().Format(time.RFC3339)
}

// IsKnown reports whether the policy is one of Policies.
func (o Override) IsKnown() bool { return slices.Contains(Policies, o.Policy) }

// IsOver reports whether the override has ended.
func (o Override) IsOver(now time.Time) bool { return !o.Until.IsZero() && !now.Before(o.Until) }

// Find returns the override in force on a node at now, and its key: the node's own one, or else that of all nodes. ok
// is false if there is none. AllNodes as the node finds only the latter.
func (all Overrides) Find(node string, now time.Time) (key string, o Override, ok bool) {
	for _, key := range []string{node, AllNodes} {
		if o, has := all[key]; has && !o.IsOver(now) {
			return key, o, true
		}
	}
	return "", Override{}, false
}

// NextEnd returns when the first override that is in force at now ends; zero if none will.
func (all Overrides) NextEnd(now time.Time) (end time.Time) {
	for _, o := range all {
		if !o.Until.IsZero() && !o.IsOver(now) && (end.IsZero() || o.Until.Before(end)) {
			end = o.Until
		}
	}
	return end
}
