package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

const (
	pluginName  = nri.BaseName
	defaultPath = nri.DefaultPath

	// PluginFile is the name of the pre-installed plugin in NRI's folder.
	PluginFile = nri.PreInstalledIndex + "-" + nri.BaseName
	// ConfigFile is the name of its configuration in NRI's other folder. The DaemonSet's plugin gets it as well.
	ConfigFile = nri.BaseName + ".conf"
)

// Site names the host's runtime and where its files are. The zero value is a runtime as its own packages install it.
type Site struct {
	Runtime    RuntimeName // "": the runtime whose process runs
	Containerd string      // the program; default containerd
	CRIO       string      // the program; default crio
	Config     string      // the runtime's configuration; default /etc/containerd/config.toml or /etc/crio/crio.conf
	ConfDir    string      // its drop-ins; default /etc/containerd/conf.d or /etc/crio/crio.conf.d
	Unit       string      // systemd's name for it; default containerd or crio; k3s, where that runs it
	StateDir   string      // the hook's state folder; default nri.DefaultStateDir
}

// unknownRuntimeError says that no runtime was found that the hook can be installed for.
type unknownRuntimeError struct{ Why string }

func (e *unknownRuntimeError) Error() string { return "finding the container runtime: " + e.Why }

// resolveDefaults fills in the defaults. It returns unknownRuntimeError if no supported runtime is found.
func (s Site) resolveDefaults(h Host) (Site, error) {
	if s.StateDir == "" {
		s.StateDir = nri.DefaultStateDir
	}
	switch s.Runtime {
	case containerd, crio:
	case "":
		for _, name := range []RuntimeName{containerd, crio} {
			if len(h.findProcesses(name)) == 0 {
				continue
			}
			if s.Runtime != "" {
				return s, &unknownRuntimeError{"containerd and CRI-O both run: say which with --runtime"}
			}
			s.Runtime = name
		}
		if s.Runtime == "" {
			return s, &unknownRuntimeError{"neither containerd nor CRI-O runs: say which with --runtime"}
		}
	default:
		return s, &unknownRuntimeError{fmt.Sprintf("%q is not known: containerd or cri-o", s.Runtime)}
	}
	config, confDir, unit := "/etc/containerd/config.toml", "/etc/containerd/conf.d", "containerd"
	if s.Runtime == crio {
		config, confDir, unit = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d", "crio"
	}
	for _, f := range []struct {
		field *string
		value string
	}{{&s.Containerd, "containerd"}, {&s.CRIO, "crio"}, {&s.Config, config}, {&s.ConfDir, confDir}, {&s.Unit, unit}} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
	return s, nil
}

// dropIn returns the path of the file that requires the plugin. Runtimes read drop-ins in the order of their names, and
// the last one wins.
func (s Site) dropIn() string {
	if s.Runtime == crio {
		return filepath.Join(s.ConfDir, "99-"+pluginName+".conf")
	}
	return filepath.Join(s.ConfDir, "99-"+pluginName+".toml")
}

// configFiles returns the files that the runtime reads its configuration from. Files of others may require the plugin
// as well.
func (s Site) configFiles() []string {
	files := []string{s.Config, s.dropIn()}
	if s.Runtime == containerd {
		if root, err := readRoot(s); err == nil { // else it has just refused to dump it
			files = append(files, root.imports...)
		}
		return files
	}
	others, _ := filepath.Glob(filepath.Join(s.ConfDir, "*")) // a folder's name with brackets in it finds none
	return append(files, others...)
}

func (s Site) restartCommand() string { return "systemctl restart " + s.Unit }

// ReadFacts reads the facts from the host's runtime. An unknown runtime is no error: the facts are those of a node
// without one.
func ReadFacts(ctx context.Context, h Host, s Site) (Facts, error) {
	s, err := s.resolveDefaults(h)
	var unknown *unknownRuntimeError
	if errors.As(err, &unknown) {
		return Facts{}, nil
	}
	if err != nil {
		return Facts{}, err
	}
	return readFacts(ctx, h, s)
}

func readFacts(ctx context.Context, h Host, s Site) (Facts, error) {
	f := Facts{Runtime: s.Runtime, RestartCommand: s.restartCommand()}
	program := s.Containerd
	if s.Runtime == crio {
		program = s.CRIO
	}
	out, err := h.runCommand(ctx, program, "--version")
	if err != nil {
		return f, fmt.Errorf("asking the runtime's version: %w", err)
	}
	if f.Version, err = parseVersion(string(out)); err != nil {
		return f, fmt.Errorf("asking the runtime's version: %w", err)
	}
	d, err := dumpConfig(ctx, h, s)
	if err != nil {
		return f, err
	}
	f.NRI = d.nri
	if f.Plugin, err = inPlace(f.NRI); err != nil {
		return f, err
	}

	ps := h.findProcesses(s.Runtime)
	f.Running = len(ps) > 0
	r := h.readPending(s.StateDir, ps)
	f.PluginPending, f.UpgradePending, f.ConfigPending, f.StillRequired = r.Plugin, r.Upgrade, r.Config, r.Released
	f.WhyNotRequired, f.requiredLater = r.WhyNotRequired, r.Config
	if len(r.Processes) == 0 { // none of ours, or lost: then the files' times tell
		if f.PluginPending, err = hasChangedSince(filepath.Join(f.NRI.PluginDir, PluginFile), h, ps); err != nil {
			return f, err
		}
	}
	for _, file := range s.configFiles() {
		changed, err := hasChangedSince(file, h, ps)
		if err != nil {
			return f, err
		}
		f.ConfigPending = f.ConfigPending || changed
	}
	return f, nil
}

// inPlace reports whether the runtime would start the plugin, and pass it a valid configuration.
func inPlace(n NRI) (bool, error) {
	info, err := os.Stat(filepath.Join(n.PluginDir, PluginFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(filepath.Join(n.ConfigDir, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, bad := nri.ParseConfig(string(text))
	return bad == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && info.Size() > 0, nil
}

// runtimeConfig is a runtime's whole configuration, merged from all its files.
type runtimeConfig struct {
	nri  NRI
	text []byte
}

func parseDump(s Site, text []byte) (runtimeConfig, error) {
	read := parseContainerd
	if s.Runtime == crio {
		read = parseCRIO
	}
	n, err := read(text)
	return runtimeConfig{nri: n, text: text}, err
}

// dumpConfig runs the runtime's command that prints the configuration that it would read now.
func dumpConfig(ctx context.Context, h Host, s Site) (runtimeConfig, error) {
	var text []byte
	var err error
	if s.Runtime == crio {
		text, err = h.runCommand(ctx, s.CRIO, "--config", s.Config, "--config-dir", s.ConfDir, "config")
	} else {
		text, err = h.runCommand(ctx, s.Containerd, "--config", s.Config, "config", "dump")
	}
	if err != nil {
		return runtimeConfig{}, fmt.Errorf("asking the runtime for its configuration: %w", err)
	}
	return parseDump(s, text)
}

// tryConfig asks the runtime for the configuration that it would have without our drop-in, or with another one in its
// place (with; nil: none). The files that it reads for that lie in the staging folder, and are removed when this
// returns.
func tryConfig(ctx context.Context, h Host, s Site, with []byte) (_ runtimeConfig, err error) {
	dir := filepath.Join(stageDir(s.ConfDir), "trial")
	if _, err := h.removeAll(dir); err != nil {
		return runtimeConfig{}, err
	}
	defer func() {
		_, bad := h.removeAll(dir)
		err = errors.Join(err, bad)
	}()
	candidate := filepath.Join(dir, filepath.Base(s.dropIn()))
	if with != nil {
		if err := h.writeFile(candidate, 0o644, contentOf(with)); err != nil {
			return runtimeConfig{}, err
		}
	} else if err := h.makeDir(dir); err != nil {
		return runtimeConfig{}, err
	}
	if s.Runtime == crio {
		others, err := filepath.Glob(filepath.Join(s.ConfDir, "*"))
		if err != nil {
			return runtimeConfig{}, err
		}
		for _, file := range others {
			info, err := os.Stat(file)
			if file == s.dropIn() || err != nil || !info.Mode().IsRegular() {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return runtimeConfig{}, err
			}
			if err := h.writeFile(filepath.Join(dir, filepath.Base(file)), 0o644, contentOf(text)); err != nil {
				return runtimeConfig{}, err
			}
		}
		s.ConfDir = dir
		return dumpConfig(ctx, h, s)
	}
	// containerd has no folder of its own: the configuration's imports name it. So a copy of the configuration imports
	// the same files, except ours.
	root, err := readRoot(s)
	if err != nil {
		return runtimeConfig{}, err
	}
	imports := slices.DeleteFunc(root.imports, func(file string) bool { return file == s.dropIn() })
	if with != nil {
		imports = append(imports, candidate)
	}
	root.all["imports"] = imports
	text, err := toml.Marshal(root.all)
	if err != nil {
		return runtimeConfig{}, err
	}
	s.Config = filepath.Join(dir, "config.toml")
	if err := h.writeFile(s.Config, 0o600, contentOf(text)); err != nil {
		return runtimeConfig{}, err
	}
	return dumpConfig(ctx, h, s)
}

type rootConfig struct {
	all     map[string]any
	version int64
	imports []string // absolute, patterns expanded, as containerd does
}

func readRoot(s Site) (rootConfig, error) {
	text, err := os.ReadFile(s.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return rootConfig{},
			refusal{fmt.Errorf("containerd has no %s: make one that imports %s", s.Config,
				filepath.Join(s.ConfDir, "*.toml"))}
	}
	if err != nil {
		return rootConfig{}, err
	}
	r := rootConfig{all: map[string]any{}}
	if err := toml.Unmarshal(text, &r.all); err != nil {
		return rootConfig{}, fmt.Errorf("reading %s: %w", s.Config, err)
	}
	r.version, _ = r.all["version"].(int64)
	list, _ := r.all["imports"].([]any)
	for _, entry := range list {
		pattern, _ := entry.(string)
		pattern = filepath.Clean(pattern)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(s.Config), pattern)
		}
		files := []string{pattern}
		if strings.Contains(pattern, "*") {
			if files, err = filepath.Glob(pattern); err != nil {
				return rootConfig{}, fmt.Errorf("reading %s: imports: %q: %w", s.Config, pattern, err)
			}
		}
		r.imports = append(r.imports, files...)
	}
	return r, nil
}
