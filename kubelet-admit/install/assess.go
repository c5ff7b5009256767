package install

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/forcefence/forcefence/kubelet-admit/runtimes"
)

// Level is how strictly the hook holds pods.
type Level string

// The levels, from the strongest.
const (
	FailClosed Level = "fail-closed" // without the hook, ordinary containers do not start
	FailOpen   Level = "fail-open"   // the hook holds pods while it runs; without it they start
	NotAtBoot  Level = "not-at-boot" // the DaemonSet's hook holds pods, but those of a boot may start before it
	None       Level = "none"        // nothing holds pods
)

// Protection is a node's protection, described for people.
type Protection struct {
	Level  Level  `json:"level"`
	Reason string `json:"reason"`           // one sentence
	Advice string `json:"advice,omitempty"` // how to get more protection; "" if there is no way
}

// facts are the input of assessProtection. The zero value is a node without a runtime that we know.
type facts struct {
	Runtime RuntimeName
	WhyNone string           // why no runtime was found
	Version *version.Version // nil only without a runtime
	NRI     NRI              // as configured on disk
	Config  bool             // the DaemonSet's plugin has a configuration
	Plugin  bool             // the pre-installed plugin is in place, with its configuration

	Running        bool // the runtime's process was seen
	PluginPending  bool // the running runtime started before the plugin came
	PluginDropped  bool // the running runtime started the plugin, which is not connected, or has no configuration
	PluginLost     bool // the plugin's folder is lost with each boot
	RequiredLost   bool // so is that of the drop-in that requires the plugin
	ConfigPending  bool // the running runtime started before its configuration last changed
	UpgradePending bool // it runs the plugin from before the last upgrade
	StillRequired  bool // it requires the plugin, but its configuration no longer does
	WhyNotRequired string
	WhyAlone       string // why the last install left the plugin out
	RestartCommand string

	requiredLater bool // by the pending state, the running runtime started before any file required the plugin
}

// assessProtection returns a node's protection. It returns fail-closed only if the running runtime is known to have
// read all of it.
func assessProtection(f facts) Protection {
	const upgrade = runtimes.Upgrade + "."
	name := fmt.Sprintf("%s %s", f.Runtime, f.Version)
	k, known := kinds[f.Runtime]
	switch {
	case !known:
		return Protection{None, toSentence(cmp.Or(f.WhyNone, "no container runtime with NRI was found on this node")),
			"Use " + upgrade}
	case !f.Version.AtLeast(k.nri):
		return Protection{None, name + " has no NRI.", "Upgrade to " + upgrade}
	case !f.NRI.Enabled:
		return Protection{None, "NRI is switched off in the configuration of " + name + ".",
			"Enable NRI there and " + f.RestartCommand + "."}
	case !f.Config && !f.Plugin:
		return Protection{None, "The plugin is not installed for " + name + ".", "Run forcefence-node install."}
	case !f.Plugin:
		advice := "Run forcefence-node install."
		switch {
		case f.whyNeverAtBoot() != "":
			advice = "Upgrade to " + runtimes.UpgradeToBoot + "."
		case f.WhyAlone != "":
			advice = "Let the runtime's NRI have a plugin folder where programs can be written and run."
		}
		return Protection{NotAtBoot, "Only the DaemonSet's plugin holds pods: after a boot, pods may start before " +
			"it. " + toSentence(cmp.Or(f.whyNeverAtBoot(), f.WhyAlone, name+" finds no plugin of its own")), advice}
	case f.PluginLost:
		return Protection{NotAtBoot, f.NRI.PluginDir + " is lost with each boot: pods may start before the " +
			"DaemonSet's plugin.", "Let plugin_path of the runtime's NRI name a folder that lasts."}
	case !f.Running:
		return Protection{FailOpen, "No process of " + name + " was found, so it is unknown what it has read.",
			"Start it, or mount the host's /proc."}
	case f.PluginPending:
		return Protection{FailOpen, name + " started before the plugin was installed: until its next start only the " +
			"DaemonSet's plugin holds pods.", "It starts at the next boot; to start it now: " + f.RestartCommand + "."}
	case f.PluginDropped:
		return Protection{FailOpen, name + " has started the plugin, but is not connected to it: until its next " +
			"start only the DaemonSet's plugin holds pods.",
			"Look at the plugin's log; to start it now: " + f.RestartCommand + "."}
	case !f.Version.AtLeast(k.validator):
		return Protection{FailOpen, name + " cannot require a plugin: if the plugin stops, pods start.",
			"Upgrade to " + upgrade}
	case !f.NRI.requiresUs():
		return Protection{FailOpen, name + " does not require the plugin: if it stops, pods start.",
			cmp.Or(f.WhyNotRequired, "Install with --required-plugins.")}
	case f.RequiredLost:
		return Protection{FailOpen, "The file that requires the plugin is lost with each boot: until " + name +
			" has read it, pods start if the plugin stops.", "Let the runtime's configuration require it."}
	case f.ConfigPending:
		return Protection{FailOpen, name + " started before it was configured to require the plugin.",
			"To apply it now: " + f.RestartCommand + "."}
	}
	p := Protection{Level: FailClosed,
		Reason: name + " requires the plugin: if it stops, ordinary containers do not start."}
	if f.UpgradePending {
		p.Advice = "The runtime starts the installed version of the plugin at its next start."
	}
	return p
}

const onlyDaemonSet = "only the DaemonSet's plugin holds pods, from its start on"

// afterBoot returns whether the hook survives a boot of the host, and by what.
func (f facts) afterBoot() string {
	switch {
	case f.whyNeverAtBoot() != "":
		return onlyDaemonSet
	case f.PluginLost:
		return onlyDaemonSet + ": " + f.NRI.PluginDir + " is lost"
	default:
		return "the runtime starts the plugin"
	}
}

// whyNeverAtBoot returns why the runtime must not start a plugin, or "".
func (f facts) whyNeverAtBoot() string {
	if f.Version.AtLeast(kinds[f.Runtime].skips) {
		return ""
	}
	return fmt.Sprintf("%s %s would not start beside a plugin that fails", f.Runtime, f.Version)
}

// toSentence returns the text as a sentence.
func toSentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// Sentence returns the reason with the advice.
func (p Protection) Sentence() string { return strings.TrimSpace(p.Reason + " " + p.Advice) }
