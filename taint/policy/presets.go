package policy

import "slices"

// Preset is a policy that a document describes, without the user's choices.
type Preset struct {
	Name   string // in the configuration
	Policy Policy
	Fences bool   // its document says that its storage cuts off a node that looks dead: storage-fences may be said of it
	Own    bool   // its namespaces are the controller's own where the configuration names none
	Does   string // for people
	Trusts string // likewise
}

// Presets are all of them.
var Presets = []Preset{
	{
		Name:   "longhorn",
		Policy: Policy{When: NotReady, Drivers: []string{"driver.longhorn.io"}, Terminating: true},
		Does: "ends the pods of a node that is not Ready once they are past their deletionTimestamp: those with a Longhorn volume, of the owners that " +
			"`nodeDownPodDeletionPolicy` chooses (Longhorn's setting of that name)",
		Trusts: "that a node that was not Ready until Kubernetes evicted its pods does not write any more; Longhorn does not cut it off",
	},
	{
		Name:   "noobaa",
		Policy: Policy{When: BecameNotReady, Pods: selector("app=noobaa")},
		Own:    true,
		Does:   "ends NooBaa's pods (`app=noobaa`, whatever owns them) on a node at the moment that it becomes not Ready",
		Trusts: "that a node that does not answer does not run: a node that is only cut off runs the old pod beside the new one",
	},
}

// PresetOf finds one by name.
func PresetOf(name string) (Preset, bool) {
	i := slices.IndexFunc(Presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Preset{}, false
	}
	return Presets[i], true
}

// Deletion is a value of Longhorn's setting nodeDownPodDeletionPolicy, with the kinds of owners whose pods it ends.
var Deletion = []struct {
	Value  string
	Owners []string
}{
	{"do-nothing", nil},
	{"delete-statefulset-pod", []string{"StatefulSet"}},
	{"delete-deployment-pod", []string{"Deployment"}},
	{"delete-both-statefulset-and-deployment-pod", []string{"StatefulSet", "Deployment"}},
}
