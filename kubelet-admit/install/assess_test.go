package install

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

func TestAssess(t *testing.T) {
	good := facts{
		Runtime: containerd, Version: version.MustParseGeneric("2.4.2"), Plugin: true, Running: true,
		RestartCommand: "systemctl restart containerd",
		NRI:            NRI{Enabled: true, Validator: true, Required: []string{"other", "forcefence"}},
	}
	v := version.MustParseGeneric
	with := func(change func(*facts)) facts {
		f := good
		change(&f)
		return f
	}
	for _, tc := range []struct {
		name   string
		facts  facts
		level  Level
		reason string
		advice string
	}{
		{"zero", facts{}, None, "No container runtime with NRI was found on this node.",
			"Use containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"all of it", good, FailClosed, "containerd 2.4.2 requires the plugin: if it stops, ordinary containers do " +
			"not start.", ""},
		{"upgrade", with(func(f *facts) { f.UpgradePending = true }), FailClosed,
			"containerd 2.4.2 requires the plugin: if it stops, ordinary containers do not start.",
			"The runtime starts the installed version of the plugin at its next start."},
		{"unknown runtime", with(func(f *facts) { f.Runtime = "docker" }), None,
			"No container runtime with NRI was found on this node.",
			"Use containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"containerd 1.6", with(func(f *facts) { f.Version = v("1.6.36") }), None,
			"containerd 1.6.36 has no NRI.",
			"Upgrade to containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"containerd 1.7 as it comes", with(func(f *facts) { f.Version = v("1.7.27"); f.NRI.Enabled = false }),
			None,
			"NRI is switched off in the configuration of containerd 1.7.27.",
			"Enable NRI there and systemctl restart containerd."},
		{"containerd 1.7 with NRI", with(func(f *facts) { f.Version = v("1.7.27") }), FailOpen,
			"containerd 1.7.27 cannot require a plugin: if the plugin stops, pods start.",
			"Upgrade to containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"containerd 2.1", with(func(f *facts) { f.Version = v("2.1.9") }), FailOpen,
			"containerd 2.1.9 cannot require a plugin: if the plugin stops, pods start.",
			"Upgrade to containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"containerd 2.2", with(func(f *facts) { f.Version = v("2.2.0") }), FailClosed,
			"containerd 2.2.0 requires the plugin: if it stops, ordinary containers do not start.", ""},
		{"CRI-O 1.25", with(func(f *facts) { f.Runtime, f.Version = crio, v("1.25.0") }), None,
			"cri-o 1.25.0 has no NRI.",
			"Upgrade to containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"CRI-O 1.33", with(func(f *facts) { f.Runtime, f.Version = crio, v("1.33.1") }), FailOpen,
			"cri-o 1.33.1 cannot require a plugin: if the plugin stops, pods start.",
			"Upgrade to containerd 2.2 or later, or CRI-O 1.34 or later."},
		{"CRI-O 1.34", with(func(f *facts) { f.Runtime, f.Version = crio, v("1.34.0") }), FailClosed,
			"cri-o 1.34.0 requires the plugin: if it stops, ordinary containers do not start.", ""},
		{"no plugin", with(func(f *facts) { f.Plugin = false }), None,
			"The plugin is not installed for containerd 2.4.2.",
			"Run forcefence-node install."},
		{"its folder is read-only",
			with(func(f *facts) { f.Plugin, f.Config, f.WhyAlone = false, true, "it is read-only" }), NotAtBoot,
			"Only the DaemonSet's plugin holds pods: after a boot, pods may start before it. It is read-only.",
			"Let the runtime's NRI have a plugin folder where programs can be written and run."},
		{"runtime not seen", with(func(f *facts) { f.Running = false }), FailOpen,
			"No process of containerd 2.4.2 was found, so it is unknown what it has read.",
			"Start it, or mount the host's /proc."},
		{"plugin not started yet", with(func(f *facts) { f.PluginPending = true }), FailOpen,
			"containerd 2.4.2 started before the plugin was installed: until its next start only the DaemonSet's " +
				"plugin holds pods.",
			"It starts at the next boot; to start it now: systemctl restart containerd."},
		{"requirement not read yet", with(func(f *facts) { f.ConfigPending = true }), FailOpen,
			"containerd 2.4.2 started before it was configured to require the plugin.",
			"To apply it now: systemctl restart containerd."},
		{"validator off", with(func(f *facts) { f.NRI.Validator = false }), FailOpen,
			"containerd 2.4.2 does not require the plugin: if it stops, pods start.",
			"Install with --required-plugins."},
		{"another is required", with(func(f *facts) { f.NRI.Required = []string{"other"} }), FailOpen,
			"containerd 2.4.2 does not require the plugin: if it stops, pods start.",
			"Install with --required-plugins."},
		{"it could not be required", with(func(f *facts) { f.NRI.Required = nil; f.WhyNotRequired = "Because." }),
			FailOpen,
			"containerd 2.4.2 does not require the plugin: if it stops, pods start.", "Because."},
		{"not required, and changed since", with(func(f *facts) { f.NRI.Required = nil; f.ConfigPending = true }),
			FailOpen,
			"containerd 2.4.2 does not require the plugin: if it stops, pods start.",
			"Install with --required-plugins."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, want := assessProtection(tc.facts), (Protection{tc.level, tc.reason, tc.advice}); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}
