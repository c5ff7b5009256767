package nri

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint"
)

// BaseName is the plugin's name without its index: required_plugins uses it, and its configuration file. The plugin
// that the runtime starts and the DaemonSet's plugin share it, so that each can stand in for the other.
const BaseName = "forcefence"

// Indexes of the two plugins on a node. NRI calls plugins in their order; which of the two answers first does not
// matter.
const (
	PreInstalledIndex = "10" // started by the runtime, before it serves its first request: covers the boot
	DaemonIndex       = "20" // started by the DaemonSet: covers a crash and an upgrade of the other
)

// Defaults of Config.
const (
	DefaultStateDir = "/run/forcefence"
	DefaultDataDir  = "/var/lib/forcefence-node"
	DefaultLogFile  = "/var/log/forcefence-node.log"
	DefaultPath     = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"
)

// ConfigFile is the name of the configuration: beside the runtime's plugin, whose folder must last as well, and in the
// state folder, for the DaemonSet's plugin.
const ConfigFile = BaseName + ".conf"

// Config is the hook's configuration: the content of ConfigFile. It holds no secret.
//
//	nodeName: n3
//	kubeconfig: /etc/kubernetes/kubelet.conf
type Config struct {
	NodeName   string `yaml:"nodeName"`           // the Node's name, as the kubelet registered it
	Kubeconfig string `yaml:"kubeconfig"`         // the kubelet's own; absolute; read again when it changes
	TaintKey   string `yaml:"taintKey,omitempty"` // the mark's; default taint.DefaultKey
	StateDir   string `yaml:"stateDir,omitempty"` // on a tmpfs, lost with the boot; default DefaultStateDir
	DataDir    string `yaml:"dataDir,omitempty"`  // on a disk, outlives the boot; default DefaultDataDir
	// LogFile is rotated at 5 MB, and one old file is kept; default DefaultLogFile; "none" for no file.
	LogFile string `yaml:"logFile,omitempty"`
	Path    string `yaml:"path,omitempty"` // PATH for a kubeconfig's exec credential; default DefaultPath
	// Program is the runtime's plugin, for the DaemonSet's: if it is the same program, both run that file.
	Program string `yaml:"program,omitempty"`
}

// ParseConfig reads a configuration and fills in the defaults. The error names every fault.
func ParseConfig(text string) (Config, error) {
	var c Config
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("reading the hook's configuration: %w", err)
	}
	c.setDefaults()
	if err := c.checkFields(); err != nil {
		return Config{}, fmt.Errorf("reading the hook's configuration: %w", err)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	c.TaintKey = cmp.Or(c.TaintKey, taint.DefaultKey)
	c.StateDir = cmp.Or(c.StateDir, DefaultStateDir)
	c.DataDir = cmp.Or(c.DataDir, DefaultDataDir)
	c.LogFile = cmp.Or(c.LogFile, DefaultLogFile)
	c.Path = cmp.Or(c.Path, DefaultPath)
}

func (c Config) checkFields() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.NodeName == "" {
		fault("nodeName", "missing")
	} else if faults := validation.IsDNS1123Subdomain(c.NodeName); len(faults) > 0 {
		fault("nodeName", "%q: %s", c.NodeName, strings.Join(faults, "; "))
	}
	if c.Kubeconfig == "" {
		fault("kubeconfig", "missing: the path of the kubelet's own")
	}
	for _, p := range []struct{ field, path string }{
		{"kubeconfig", c.Kubeconfig}, {"stateDir", c.StateDir}, {"dataDir", c.DataDir}, {"logFile", c.LogFile},
		{"program", c.Program},
	} {
		if p.path != "" && !filepath.IsAbs(p.path) && (p.field != "logFile" || p.path != "none") {
			fault(p.field, "%q is not an absolute path", p.path)
		}
	}
	if faults := validation.IsQualifiedName(c.TaintKey); len(faults) > 0 {
		fault("taintKey", "%q: %s", c.TaintKey, strings.Join(faults, "; "))
	}
	return errors.Join(errs...)
}

// Marshal returns the configuration's text, which ParseConfig reads back. It writes all defaults except dataDir's. The
// plugin from before an upgrade may be started once more between the two files; it does not know that key, and refuses
// unknown keys.
func (c Config) Marshal() ([]byte, error) {
	c.setDefaults()
	if err := c.checkFields(); err != nil {
		return nil, fmt.Errorf("writing the hook's configuration: %w", err)
	}
	if c.DataDir == DefaultDataDir {
		c.DataDir = ""
	}
	return yaml.Marshal(c)
}
