package drain

import "fmt"

// Setting is what was seen of a storage system's own setting of a drain policy, which holds for its whole cluster.
type Setting struct {
	Exists bool
	Value  string
	Ours   string // what we wrote into it, by the annotation that went with it; "": never
}

// Delegated is what to do about it.
type Delegated struct {
	Write    bool   // the policy, and the annotation
	Conflict string // "" or why it is left as it is
}

// DecideDelegation decides how a storage system comes to a policy that it carries out itself. It is set where nobody chose another one: over the
// system's default, or over what we wrote before. A value that somebody else wrote is never written over. usual is the default.
func DecideDelegation(want Policy, s Setting, usual Policy) Delegated {
	untouched := s.Value == "" || s.Value == string(usual)
	switch {
	case !s.Exists:
		return Delegated{Conflict: "the setting does not exist"}
	case s.Value == string(want):
		return Delegated{}
	case s.Ours != "" && s.Value != s.Ours:
		return Delegated{Conflict: fmt.Sprintf("somebody changed it from %s, which we wrote, to %s", s.Ours, s.Value)}
	case s.Ours == "" && !untouched:
		return Delegated{Conflict: fmt.Sprintf("somebody set it to %s", s.Value)}
	}
	return Delegated{Write: true}
}
