package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

const (
	// PluginFile is the name of the pre-installed plugin in NRI's folder.
	PluginFile = nri.PreInstalledIndex + "-" + nri.BaseName
	// ConfigFile is the name of its configuration beside it, and of the DaemonSet's plugin's in the state folder.
	ConfigFile = nri.ConfigFile
)

// Site names the runtime that serves the host's kubelet, and where its files are. Only the first two fields are
// configured.
type Site struct {
	Command  string // the runtime's command line, where its process cannot be found; "": find it
	StateDir string // the hook's state folder; default nri.DefaultStateDir

	Runtime    RuntimeName
	Program    string    // a path, or a name in PATH
	Config     string    // the runtime's configuration
	ConfDir    string    // its drop-ins
	Unit       string    // systemd's name for it; k3s or rke2-agent, where that runs it
	Kubeconfig string    // the kubelet's own; "": not found
	processes  []process // the runtime's
}

// resolve finds the site. An error says what is missing; the site has no Runtime if that is what is missing.
func (h Host) resolve(s Site) (Site, error) {
	found, err := findSite(h.hostProcesses(), os.DirFS("/"), s.Command)
	found.Command, found.StateDir = s.Command, cmp.Or(s.StateDir, nri.DefaultStateDir)
	if err != nil {
		err = fmt.Errorf("finding the kubelet and its container runtime: %w", err)
	}
	return found, err
}

// dropIn returns the path of the file that requires the plugin. Runtimes read drop-ins by name, and the last one wins.
func (s Site) dropIn() string {
	return filepath.Join(s.ConfDir, "99-"+nri.BaseName+kinds[s.Runtime].extension)
}

func (s Site) restartCommand() string { return "systemctl restart " + s.Unit }

// ReadProtection returns the node's protection, by the host's runtime. It needs PATH to find the runtime's program. A
// runtime that is not found is no error: it protects nothing.
func ReadProtection(ctx context.Context, s Site) (Protection, error) {
	f, err := readHostFacts(ctx, Host{}, s)
	if err != nil {
		return Protection{}, err
	}
	return assessProtection(f), nil
}

func readHostFacts(ctx context.Context, h Host, s Site) (facts, error) {
	s, err := h.resolve(s)
	if s.Runtime == "" {
		return facts{WhyNone: err.Error()}, nil
	}
	return readFacts(ctx, h, s)
}

func readFacts(ctx context.Context, h Host, s Site) (facts, error) {
	f := facts{Runtime: s.Runtime, RestartCommand: s.restartCommand()}
	out, err := h.runCommand(ctx, s.Program, "--version")
	if err == nil {
		f.Version, err = parseVersion(string(out))
	}
	if err != nil {
		return f, fmt.Errorf("reading the runtime's version: %w", err)
	}
	d, err := dumpConfig(ctx, h, s)
	if err != nil {
		return f, err
	}
	f.NRI = d.nri
	if f.Plugin, err = inPlace(f.NRI); err != nil {
		return f, err
	}
	if f.Config, err = isConfig(filepath.Join(s.StateDir, ConfigFile)); err != nil {
		return f, err
	}

	mounts := h.readMounts()
	f.PluginLost = isLost(mounts, f.NRI.PluginDir)
	f.RequiredLost = isLost(mounts, s.ConfDir) && fileExists(s.dropIn())
	ps := s.processes
	start := h.startTime(ps)
	f.Running = len(ps) > 0
	r := h.readPending(s.StateDir, ps)
	f.PluginPending, f.UpgradePending, f.ConfigPending, f.StillRequired = r.Plugin, r.Upgrade, r.Config, r.Released
	f.WhyNotRequired, f.WhyAlone, f.requiredLater = r.WhyNotRequired, r.WhyAlone, r.Config
	if len(r.Processes) == 0 { // none was written, or it was lost: then the files' times decide
		if f.PluginPending, err = hasChangedSince(start, filepath.Join(f.NRI.PluginDir, PluginFile)); err != nil {
			return f, err
		}
	}
	f.PluginDropped = f.Plugin && f.Running && !f.PluginPending && !h.isConnected(s.StateDir)
	root, _ := readRoot(s) // the runtime has just dumped it
	changed, err := hasChangedSince(start, append(root.imports, s.Config, s.dropIn())...)
	f.ConfigPending = f.ConfigPending || changed
	return f, err
}

func fileExists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// isConnected reports whether the plugin that the runtime started is connected to it.
func (h Host) isConnected(stateDir string) bool {
	return (&Connection{StateDir: stateDir, host: h}).IsConnected()
}

// Connection is a cheap part of ReadProtection that changes while the runtime runs: whether the plugin that it started
// is connected to it. A status names every pod of the node, so one that is as it was is not read again.
type Connection struct {
	StateDir string

	host Host
	seen fs.FileInfo // the status that was read; nil: none was
	says bool        // the status says that the plugin is registered and has a configuration
	pid  int
}

// IsConnected reports whether the plugin that the runtime started on this boot runs, is registered with it, and has a
// configuration. The status that it wrote says so; a status that cannot be read does not.
func (c *Connection) IsConnected() bool {
	file := nri.StatusFile(c.StateDir, nri.PreInstalledIndex)
	now, err := os.Stat(file)
	if err != nil {
		return false
	}
	if c.seen == nil || !os.SameFile(now, c.seen) || !now.ModTime().Equal(c.seen.ModTime()) {
		s, err := nri.ReadStatus(file)
		boot, bad := c.host.bootID()
		if err != nil || bad != nil {
			return false
		}
		c.seen, c.pid = now, s.PID
		c.says = s.Plugin == PluginFile && s.BootID == boot && !s.Registered.IsZero() && s.Node.Name != ""
	}
	return c.says && c.host.isPlugin(c.pid)
}

// isPlugin reports whether the process is a plugin that the runtime started. Another one may have the pid of one that
// was killed.
func (h Host) isPlugin(pid int) bool {
	text, _ := os.ReadFile(h.procFile(strconv.Itoa(pid) + "/cmdline"))
	program, _, _ := strings.Cut(string(text), "\x00")
	return filepath.Base(program) == PluginFile
}

// inPlace reports whether the runtime would start the plugin, which then finds a valid configuration.
func inPlace(n NRI) (bool, error) {
	config, err := isConfig(filepath.Join(n.PluginDir, ConfigFile))
	if err != nil || !config {
		return false, err
	}
	info, err := os.Stat(filepath.Join(n.PluginDir, PluginFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && info.Size() > 0, err
}

// isConfig reports whether the file is there and a valid configuration.
func isConfig(file string) (bool, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, bad := nri.ParseConfig(string(text))
	return bad == nil, nil
}

// runtimeConfig is a runtime's whole configuration, merged from all its files.
type runtimeConfig struct {
	nri  NRI
	text []byte
}

// dumpError is why the runtime printed no configuration, unlike one that it printed and that is not understood.
type dumpError struct{ error }

func (e dumpError) Error() string { return "reading the runtime's configuration: " + e.error.Error() }
func (e dumpError) Unwrap() error { return e.error }

// dumpConfig runs the runtime's command that prints the configuration that it would read now.
func dumpConfig(ctx context.Context, h Host, s Site) (runtimeConfig, error) {
	args := []string{"--config", s.Config, "config", "dump"}
	if s.Runtime == crio {
		args = []string{"--config", s.Config, "--config-dir", s.ConfDir, "config"}
	}
	text, err := h.runCommand(ctx, s.Program, args...)
	if err != nil {
		return runtimeConfig{}, dumpError{err}
	}
	n, err := kinds[s.Runtime].parse(text)
	return runtimeConfig{nri: n, text: text}, err
}

// tryConfig asks the runtime for the configuration that it would have with another drop-in in place of ours, or without
// one (nil). The runtime reads temporary copies for that, in a folder that can be written on every host.
func tryConfig(ctx context.Context, h Host, s Site, with []byte) (_ runtimeConfig, err error) {
	dir := filepath.Join(stageDir(s.StateDir), "trial")
	if _, err := h.removePath(dir, os.RemoveAll); err != nil {
		return runtimeConfig{}, err
	}
	defer func() {
		_, bad := h.removePath(dir, os.RemoveAll)
		err = errors.Join(err, bad)
	}()
	root, err := readRoot(s)
	if err != nil {
		return runtimeConfig{}, err
	}
	if err := h.makeDir(dir); err != nil {
		return runtimeConfig{}, err
	}
	write := func(name string, text []byte) error {
		return h.writeFile(filepath.Join(dir, filepath.Base(name)), 0o600, bytes.NewReader(text))
	}
	files := slices.DeleteFunc(root.imports, func(file string) bool { return file == s.dropIn() })
	if with != nil {
		if err := write(s.dropIn(), with); err != nil {
			return runtimeConfig{}, err
		}
	}
	if s.Runtime == crio {
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return runtimeConfig{}, err
			}
			if err := write(file, text); err != nil {
				return runtimeConfig{}, err
			}
		}
		s.ConfDir = dir
		return dumpConfig(ctx, h, s)
	}
	// containerd has no folder of its own: the configuration's imports name it. So a copy of the configuration imports
	// the same files, except ours.
	if with != nil {
		files = append(files, filepath.Join(dir, filepath.Base(s.dropIn())))
	}
	root.all["imports"] = files
	text, err := toml.Marshal(root.all)
	if err != nil {
		return runtimeConfig{}, err
	}
	s.Config = filepath.Join(dir, "config.toml")
	if err := write(s.Config, text); err != nil {
		return runtimeConfig{}, err
	}
	return dumpConfig(ctx, h, s)
}

// rootConfig is the runtime's main configuration.
type rootConfig struct {
	all     map[string]any // nil for CRI-O
	version int64
	imports []string // the other files that the runtime reads: absolute, patterns expanded, as the runtime does
}

func readRoot(s Site) (rootConfig, error) {
	if s.Runtime == crio {
		files, err := filepath.Glob(filepath.Join(s.ConfDir, "*"))
		return rootConfig{imports: files}, err
	}
	text, err := os.ReadFile(s.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return rootConfig{},
			refusal{fmt.Errorf("%s does not exist: create it, and let it import %s", s.Config,
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
