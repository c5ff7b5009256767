package drain

import "fmt"

// Setting is what was observed of a storage system's own drain policy setting, which holds for its whole cluster.
type Setting struct {
	Exists bool
	Value  string
	Ours   string // the value that we wrote, by the annotation written with it; "": we never wrote
}

// Delegated is what to do about a Setting.
type Delegated struct {
	Write    bool   // write the policy and the annotation
	Conflict string // "" or why the setting is left as it is
}

// DecideDelegation decides whether to write the policy into the setting of a storage system that carries out drains
// itself. It writes over the system's default (usual), or over what we wrote before. It never overwrites a value that
// another client wrote.
func DecideDelegation(want Policy, s Setting, usual Policy) Delegated {
	untouched := s.Value == "" || s.Value == string(usual)
	switch {
	case !s.Exists:
		return Delegated{Conflict: "the setting does not exist"}
	case s.Value == string(want):
		return Delegated{}
	case s.Ours != "" && s.Value != s.Ours:
		return Delegated{
			Conflict: fmt.Sprintf("another client changed it to %s; forcefence had written %s", s.Value, s.Ours)}
	case s.Ours == "" && !untouched:
		return Delegated{Conflict: fmt.Sprintf("another client set it to %s", s.Value)}
	}
	return Delegated{Write: true}
}
