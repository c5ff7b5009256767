package install

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/kubelet-admit/runtimes"
)

// RuntimeName is a container runtime that has NRI.
type RuntimeName string

// The runtimes we know. Any other gives no protection.
const (
	containerd RuntimeName = "containerd"
	crio       RuntimeName = "cri-o"
)

// kind is what differs between the runtimes.
type kind struct {
	process                      string           // the kernel's name for its process, and its default systemd unit
	nri, skips, validator        *version.Version // see runtimes.Runtime
	config, confDir              string           // default paths
	extension                    string           // of a drop-in's name
	table                        string           // of the validator's settings in a drop-in, and their keys:
	enable, required, annotation string
	parse                        func(config []byte) (NRI, error) // reads what the runtime prints as its configuration
}

var kinds = map[RuntimeName]kind{
	containerd: {
		process: "containerd", nri: runtimes.Containerd.NRI,
		skips: runtimes.Containerd.Skips, validator: runtimes.Containerd.Validator,
		config: "/etc/containerd/config.toml", confDir: "/etc/containerd/conf.d", extension: ".toml",
		table:  "plugins.'" + nriPlugin + "'.default_validator",
		enable: "enable", required: "required_plugins", annotation: "tolerate_missing_plugins_annotation",
		parse: parseContainerd,
	},
	crio: {
		process: "crio", nri: runtimes.CRIO.NRI,
		skips: runtimes.CRIO.Skips, validator: runtimes.CRIO.Validator,
		config: "/etc/crio/crio.conf", confDir: "/etc/crio/crio.conf.d", extension: ".conf",
		table: "crio.nri.default_validator", enable: "nri_enable_default_validator",
		required: "nri_validator_required_plugins", annotation: "nri_validator_tolerate_missing_plugins_annotation",
		parse: parseCRIO,
	},
}

// versionWord matches a version as a word of its own: containerd prints its module's path, which ends in /v2, before
// it. Builds without a version (1.7.x from source: "1.7.0+unknown") have three numbers as well.
var versionWord = regexp.MustCompile(`(?m)(?:^|\s)v?(\d{1,6}\.\d{1,6}\.\d{1,6})(?:[-+~.][0-9A-Za-z.+~-]*)?(?:\s|$)`)

// parseVersion returns the first version in the output of `containerd --version` or `crio --version`. A pre-release or
// a build of a version counts as that version.
func parseVersion(text string) (*version.Version, error) {
	m := versionWord.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("no version in %q", lastLines(text))
	}
	return version.ParseGeneric(m[1])
}

// NRI is a runtime's configuration of NRI.
type NRI struct {
	Enabled   bool
	PluginDir string
	ConfigDir string

	Validator  bool     // the default validator is on
	Required   []string // plugins without which it refuses containers
	Annotation string   // the key with which a pod tolerates missing ones; "" for none
}

// requiresUs reports whether containers are refused while the plugin is missing.
func (n NRI) requiresUs() bool { return n.Validator && slices.Contains(n.Required, nri.BaseName) }

// withDefaults fills in NRI's own defaults, for a runtime that leaves them out.
func (n NRI) withDefaults() NRI {
	n.PluginDir = cmp.Or(n.PluginDir, "/opt/nri/plugins")
	n.ConfigDir = cmp.Or(n.ConfigDir, "/etc/nri/conf.d")
	return n
}

// nriPlugin is containerd's name for its NRI in configurations of version 2, 3 and 4 alike.
const nriPlugin = "io.containerd.nri.v1.nri"

// parseContainerd parses the output of `containerd config dump`. NRI is off in a dump without it (containerd was built
// without it), and where the plugin is disabled by name.
func parseContainerd(dump []byte) (NRI, error) {
	var c struct {
		DisabledPlugins []string `toml:"disabled_plugins"`
		Plugins         struct {
			NRI *struct {
				Disable          bool   `toml:"disable"`
				PluginPath       string `toml:"plugin_path"`
				PluginConfigPath string `toml:"plugin_config_path"`
				DefaultValidator struct {
					Enable                    bool     `toml:"enable"`
					RequiredPlugins           []string `toml:"required_plugins"`
					TolerateMissingAnnotation string   `toml:"tolerate_missing_plugins_annotation"`
				} `toml:"default_validator"`
			} `toml:"io.containerd.nri.v1.nri"`
		} `toml:"plugins"`
	}
	if err := toml.Unmarshal(dump, &c); err != nil {
		return NRI{}, fmt.Errorf("reading containerd's configuration: %w", err)
	}
	n := c.Plugins.NRI
	if n == nil {
		return NRI{}.withDefaults(), nil
	}
	return NRI{
		Enabled:   !n.Disable && !slices.Contains(c.DisabledPlugins, nriPlugin),
		PluginDir: n.PluginPath, ConfigDir: n.PluginConfigPath, Validator: n.DefaultValidator.Enable,
		Required: n.DefaultValidator.RequiredPlugins, Annotation: n.DefaultValidator.TolerateMissingAnnotation,
	}.withDefaults(), nil
}

// crioSetting matches the header of a table (2) or a setting (3) in the output of `crio config`, and whether it is a
// comment (1). A list may go over several lines.
var crioSetting = regexp.MustCompile(
	`(?m)^[ \t]*(#?)[# \t]*(?:\[([a-z_.]+)\]|((?:enable_nri|nri_[a-z_]+) *= *(?:\[[^]]*\]|.*)))[ \t]*$`)

// parseCRIO parses the output of `crio config`. CRI-O writes a setting with its default value as a comment. So in the
// tables of NRI a comment that looks like a setting is one; a setting that is no comment wins. A configuration without
// the table is that of a CRI-O too old for it.
func parseCRIO(config []byte) (NRI, error) {
	var c struct {
		Enable          bool     `toml:"enable_nri"`
		PluginDir       string   `toml:"nri_plugin_dir"`
		PluginConfigDir string   `toml:"nri_plugin_config_dir"`
		Validator       bool     `toml:"nri_enable_default_validator"`
		Required        []string `toml:"nri_validator_required_plugins"`
		Annotation      string   `toml:"nri_validator_tolerate_missing_plugins_annotation"`
	}
	for _, comment := range []string{"#", ""} {
		table := ""
		for _, m := range crioSetting.FindAllStringSubmatch(string(config), -1) {
			if m[2] != "" {
				table = m[2]
			}
			if m[3] == "" || m[1] != comment || table != "crio.nri" && table != "crio.nri.default_validator" {
				continue
			}
			setting := strings.ReplaceAll(m[3], "\n#", "\n")
			if err := toml.Unmarshal([]byte(setting), &c); err != nil {
				return NRI{}, fmt.Errorf("reading CRI-O's configuration of NRI: %w", err)
			}
		}
	}
	return NRI{
		Enabled: c.Enable, PluginDir: c.PluginDir, ConfigDir: c.PluginConfigDir,
		Validator: c.Validator, Required: c.Required, Annotation: c.Annotation,
	}.withDefaults(), nil
}
