package install

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// RuntimeName is a container runtime that has NRI.
type RuntimeName string

// The runtimes we know. Any other gives no protection.
const (
	containerd RuntimeName = "containerd"
	crio       RuntimeName = "cri-o"
)

// hasNRI reports whether this version of the runtime has NRI at all, whatever its configuration.
func (n RuntimeName) hasNRI(v Version) bool {
	switch n {
	case containerd:
		return v.atLeast(1, 7)
	case crio:
		return v.atLeast(1, 26)
	default:
		return false
	}
}

// hasValidator reports whether the runtime can require plugins: nri 0.10's default validator.
func (n RuntimeName) hasValidator(v Version) bool {
	switch n {
	case containerd:
		return v.atLeast(2, 2)
	case crio:
		return v.atLeast(1, 34)
	default:
		return false
	}
}

// NRI is a runtime's configuration of NRI.
type NRI struct {
	Enabled   bool
	Socket    string
	PluginDir string
	ConfigDir string
	External  bool // plugins may connect, as the DaemonSet's does

	Validator  bool     // the default validator is on
	Required   []string // plugins without which it refuses containers
	Annotation string   // the key with which a pod tolerates missing ones; "" for none
}

// requiresUs reports whether containers are refused while the plugin is missing.
func (n NRI) requiresUs() bool { return n.Validator && slices.Contains(n.Required, pluginName) }

// Defaults of NRI itself, for a runtime that leaves them out.
const (
	defaultSocket    = "/var/run/nri/nri.sock"
	defaultPluginDir = "/opt/nri/plugins"
	defaultConfigDir = "/etc/nri/conf.d"
)

func (n NRI) withDefaults() NRI {
	for _, f := range []struct {
		field *string
		value string
	}{{&n.Socket, defaultSocket}, {&n.PluginDir, defaultPluginDir}, {&n.ConfigDir, defaultConfigDir}} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	return n
}

// nriPlugin is containerd's name for its NRI in configurations of version 2, 3 and 4 alike.
const nriPlugin = "io.containerd.nri.v1.nri"

// containerdNRI is the section of that name.
type containerdNRI struct {
	Disable            bool   `toml:"disable"`
	SocketPath         string `toml:"socket_path"`
	PluginPath         string `toml:"plugin_path"`
	PluginConfigPath   string `toml:"plugin_config_path"`
	DisableConnections bool   `toml:"disable_connections"`
	DefaultValidator   struct {
		Enable                    bool     `toml:"enable"`
		RequiredPlugins           []string `toml:"required_plugins"`
		TolerateMissingAnnotation string   `toml:"tolerate_missing_plugins_annotation"`
	} `toml:"default_validator"`
}

// parseContainerd parses the output of `containerd config dump`. NRI is off in a dump without it (containerd was built
// without it), and where the plugin is disabled by name.
func parseContainerd(dump []byte) (NRI, error) {
	var c struct {
		DisabledPlugins []string                  `toml:"disabled_plugins"`
		Plugins         map[string]map[string]any `toml:"plugins"`
	}
	if err := toml.Unmarshal(dump, &c); err != nil {
		return NRI{}, fmt.Errorf("reading containerd's configuration: %w", err)
	}
	section, ok := c.Plugins[nriPlugin]
	if !ok {
		return NRI{}.withDefaults(), nil
	}
	again, err := toml.Marshal(section)
	if err != nil {
		return NRI{}, fmt.Errorf("reading containerd's configuration: %w", err)
	}
	var n containerdNRI
	if err := toml.Unmarshal(again, &n); err != nil {
		return NRI{}, fmt.Errorf("reading containerd's configuration of NRI: %w", err)
	}
	v := n.DefaultValidator
	return NRI{
		Enabled: !n.Disable && !slices.Contains(c.DisabledPlugins, nriPlugin), External: !n.DisableConnections,
		Socket: n.SocketPath, PluginDir: n.PluginPath, ConfigDir: n.PluginConfigPath,
		Validator: v.Enable, Required: v.RequiredPlugins, Annotation: v.TolerateMissingAnnotation,
	}.withDefaults(), nil
}

// crioNRI is the table [crio.nri].
type crioNRI struct {
	Enable             bool   `toml:"enable_nri"`
	Listen             string `toml:"nri_listen"`
	PluginDir          string `toml:"nri_plugin_dir"`
	PluginConfigDir    string `toml:"nri_plugin_config_dir"`
	DisableConnections bool   `toml:"nri_disable_connections"`
	DefaultValidator   struct {
		Enable                    bool     `toml:"nri_enable_default_validator"`
		RequiredPlugins           []string `toml:"nri_validator_required_plugins"`
		TolerateMissingAnnotation string   `toml:"nri_validator_tolerate_missing_plugins_annotation"`
	} `toml:"default_validator"`
}

var (
	crioTable = regexp.MustCompile(`^\[([a-z_.]+)\]$`)
	crioKey   = regexp.MustCompile(`^((?:enable_nri|nri_[a-z_]+)) *= *(.*)$`)
)

// parseCRIO parses the output of `crio config`. CRI-O writes a setting with its default value as a comment. So in the
// tables of NRI a comment that looks like a setting is one; a setting that is no comment wins. A configuration without
// the table is that of a CRI-O too old for it.
func parseCRIO(config []byte) (NRI, error) {
	found := map[string]map[string]string{}
	set := map[string]bool{} // seen as more than a comment
	table, list, listKey, listSet := "", "", "", false
	put := func(key, value string, plain bool) {
		if set[table+"."+key] && !plain {
			return
		}
		set[table+"."+key] = set[table+"."+key] || plain
		if found[table] == nil {
			found[table] = map[string]string{}
		}
		found[table][key] = value
	}
	for line := range strings.Lines(string(config)) {
		line = strings.TrimSpace(line)
		bare := strings.TrimSpace(strings.TrimLeft(line, "#"))
		plain := !strings.HasPrefix(line, "#")
		if listKey != "" { // a list over several lines
			list += bare
			if strings.HasSuffix(bare, "]") {
				put(listKey, list, listSet)
				listKey = ""
			}
			continue
		}
		if m := crioTable.FindStringSubmatch(bare); m != nil {
			table = m[1]
			continue
		}
		m := crioKey.FindStringSubmatch(bare)
		if m == nil || table != "crio.nri" && table != "crio.nri.default_validator" {
			continue
		}
		if strings.HasPrefix(m[2], "[") && !strings.HasSuffix(m[2], "]") {
			list, listKey, listSet = m[2], m[1], plain
			continue
		}
		put(m[1], m[2], plain)
	}
	if listKey != "" {
		return NRI{}, fmt.Errorf("reading CRI-O's configuration: %s: the list has no end", listKey)
	}
	var b strings.Builder
	for _, t := range []string{"crio.nri", "crio.nri.default_validator"} {
		fmt.Fprintf(&b, "[%s]\n", t)
		for key, value := range found[t] {
			fmt.Fprintf(&b, "%s = %s\n", key, value)
		}
	}
	var c struct {
		CRIO struct {
			NRI crioNRI `toml:"nri"`
		} `toml:"crio"`
	}
	if err := toml.Unmarshal([]byte(b.String()), &c); err != nil {
		return NRI{}, fmt.Errorf("reading CRI-O's configuration of NRI: %w", err)
	}
	n, v := c.CRIO.NRI, c.CRIO.NRI.DefaultValidator
	return NRI{
		Enabled: n.Enable, External: !n.DisableConnections, Socket: n.Listen, PluginDir: n.PluginDir,
		ConfigDir: n.PluginConfigDir,
		Validator: v.Enable, Required: v.RequiredPlugins, Annotation: v.TolerateMissingAnnotation,
	}.withDefaults(), nil
}
