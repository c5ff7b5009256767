// Package runtimes knows from which version on each container runtime has NRI, and can require the hook.
//
// It reads no host: the hook's installer asks it about the runtime that it found, and `forcefence check` about what the
// Nodes report.
package runtimes

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Runtime is a container runtime that has NRI.
type Runtime struct {
	NRI     *version.Version // the first that has NRI; its configuration may switch it off
	Default *version.Version // the first in which NRI is on by default; nil: that was not checked
	// Skips is the first that goes on without a pre-installed plugin that fails: NRI 0.7. An earlier one does not start
	// (F26).
	Skips     *version.Version
	Validator *version.Version // the first that can require plugins: NRI 0.10's default validator
}

// The runtimes with NRI.
var (
	Containerd = Runtime{
		NRI: version.MustParseGeneric("1.7"), Default: version.MustParseGeneric("2.0"),
		Skips: version.MustParseGeneric("1.7.26"), Validator: version.MustParseGeneric("2.2"),
	}
	CRIO = Runtime{
		NRI: version.MustParseGeneric("1.26"), Skips: version.MustParseGeneric("1.32"),
		Validator: version.MustParseGeneric("1.34"),
	}
)

// Upgrade names the versions that can require the hook, UpgradeToBoot those that can start it themselves, for advice.
const (
	Upgrade       = "containerd 2.2 or later, or CRI-O 1.34 or later"
	UpgradeToBoot = "containerd 1.7.26 or later, or CRI-O 1.32 or later"
)

// Hook is what a runtime's version allows the hook to do, from a closed set. The zero value is no hook.
type Hook string

// What the hook can do.
const (
	NoHook    Hook = "none"        // the runtime has no NRI, or is not known
	NRIOff    Hook = "off"         // it has NRI, which is off unless it is configured
	NotAtBoot Hook = "not at boot" // only the DaemonSet's holds pods: the runtime would not start beside a broken one
	FailsOpen Hook = "fails open"  // the hook holds pods while it runs
	Required  Hook = "can require" // the runtime can require the hook
)

// HookOf returns what a Node's status.nodeInfo.containerRuntimeVersion allows, such as containerd://2.2.1. Text that
// cannot be parsed is NoHook.
func HookOf(containerRuntimeVersion string) Hook {
	name, text, _ := strings.Cut(containerRuntimeVersion, "://")
	r, known := map[string]Runtime{"containerd": Containerd, "cri-o": CRIO}[name]
	v, err := version.ParseGeneric(strings.TrimSpace(text))
	switch {
	case !known || err != nil || !v.AtLeast(r.NRI):
		return NoHook
	case v.AtLeast(r.Validator):
		return Required
	case !v.AtLeast(r.Skips):
		return NotAtBoot
	case r.Default != nil && !v.AtLeast(r.Default):
		return NRIOff
	default:
		return FailsOpen
	}
}
