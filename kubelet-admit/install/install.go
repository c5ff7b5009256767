package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// Options of Install.
type Options struct {
	host   Host
	Site   Site          // its StateDir is that of the Config
	Config nri.Config    // without a Kubeconfig, the kubelet's is found
	Binary io.ReadSeeker // the plugin's; read up to twice

	Version string // the program's, for the API server

	RequiredPlugins bool // let the runtime refuse containers while the plugin is missing
	RestartRuntime  bool // restart the runtime if it has not read all of it

	// Tests replace these.
	connect func(ctx context.Context, c nri.Config, version string) (rest.Interface, *corev1.Node, error)
	node    func(ctx context.Context, client rest.Interface, name string) (*corev1.Node, error)
	pods    func(ctx context.Context, client rest.Interface, node string) ([]corev1.Pod, error)
}

// Result lists what was done, line by line, for people.
type Result struct {
	AfterBoot  string // whether the hook survives a boot of the host, and by what; "" if nothing is installed
	Done       []string
	Warnings   []string
	Protection Protection
	Config     nri.Config // with the kubeconfig that was found
}

type installer struct {
	Options
	facts  facts
	client rest.Interface
	result Result

	dropInWritten bool
}

func (in *installer) reportDone(what, done string) {
	in.result.Done = append(in.result.Done, what+": "+done)
}

func (in *installer) addWarning(format string, args ...any) {
	in.result.Warnings = append(in.result.Warnings, fmt.Sprintf(format, args...))
}

// remove removes a path by os.Remove or os.RemoveAll, and reports it with why if it existed.
func (in *installer) remove(path string, remove func(string) error, why string) error {
	there, err := in.host.removePath(path, remove)
	if there && err == nil {
		in.reportDone(path, why)
	}
	return err
}

// pluginLike matches the names of plugins in NRI's folder.
var pluginLike = regexp.MustCompile(`^[0-9][0-9]-`)

// Install puts the plugin, its configuration and, if asked, the runtime's requirement in place. It may be repeated, and
// completes an interrupted install. First it tests that the plugin will be able to read its Node: a hook that cannot
// would hold every pod. So would one whose Node has another boot id than the machine; Install waits half a minute for
// it, then refuses. It changes nothing before all files are complete on their file systems.
//
// A runtime without NRI, or with NRI switched off, is no error: nothing is installed, and the Protection says so.
func Install(ctx context.Context, o Options) (Result, error) {
	return runLocked(o, func(in *installer) error { return in.installHook(ctx) })
}

// runLocked runs do while it holds the host's lock.
func runLocked(o Options, do func(*installer) error) (Result, error) {
	if o.connect == nil {
		o.connect, o.node, o.pods = connectAsKubelet, getNode, listPods
	}
	o.Site.StateDir = o.Config.StateDir
	in := &installer{Options: o}
	unlock, err := lockHost(o.Config.StateDir)
	if err != nil {
		return in.result, err
	}
	defer unlock()
	err = do(in)
	return in.result, err
}

func (in *installer) installHook(ctx context.Context) error {
	err := in.resolveSite()
	if in.Site.Runtime == "" || in.Config.Kubeconfig == "" {
		return err
	}
	config, err := in.Config.Marshal()
	if err != nil {
		return err
	}
	client, node, err := in.connect(ctx, in.Config, in.Version)
	if err != nil {
		return err
	}
	in.client = client
	name, _, _ := strings.Cut(node.Status.NodeInfo.ContainerRuntimeVersion, "://")
	if in.Site.Command == "" && name != "" && name != string(in.Site.Runtime) {
		return fmt.Errorf("the Node reports the container runtime %q, but the kubelet's seems to be %s (%s): set "+
			"--runtime-command", name, in.Site.Runtime, in.Site.Program)
	}
	if in.facts, err = readFacts(ctx, in.host, in.Site); err != nil {
		return err
	}
	if !in.facts.Version.AtLeast(kinds[in.Site.Runtime].nri) || !in.facts.NRI.Enabled {
		in.result.Protection = assessProtection(in.facts)
		in.reportDone("plugin", "not installed")
		return nil
	}
	if err := in.sameBoot(ctx, node); err != nil {
		return err
	}
	in.result.AfterBoot = in.facts.afterBoot()
	stages := []string{in.facts.NRI.PluginDir, in.Site.StateDir, in.Site.ConfDir}
	defer func() { // also after an error: the staging folders hold nothing that is needed
		for _, dir := range stages {
			_, _ = in.host.removePath(stageDir(dir), os.RemoveAll)
		}
	}()
	alone, err := in.putPlugin(ctx, config)
	if err != nil {
		return fmt.Errorf("installing the plugin: %w", err)
	}
	switch {
	case alone != "": // nothing may be required
		in.result.AfterBoot = onlyDaemonSet
	case in.RequiredPlugins:
		err = in.requirePlugin(ctx)
	default:
		err = in.removeDropIn(in.Site, "removed: --required-plugins is no longer set")
	}
	var no refusal
	why := ""
	if errors.As(err, &no) {
		why = fmt.Sprintf("The last install did not require it: %v.", no)
		in.addWarning("the plugin is not required: %v", err)
	} else if err != nil {
		return fmt.Errorf("requiring the plugin: %w", err)
	}
	if why != in.facts.WhyNotRequired || alone != in.facts.WhyAlone {
		if err := in.host.updatePending(in.Site, func(r *pendingState) {
			r.WhyNotRequired, r.WhyAlone = why, alone
		}); err != nil {
			return err
		}
	}
	return in.assessAndRestart(ctx)
}

// resolveSite finds the kubelet's runtime, and its kubeconfig unless that is configured.
func (in *installer) resolveSite() (err error) {
	in.Site, err = in.host.resolve(in.Site)
	in.Config.Kubeconfig = cmp.Or(in.Config.Kubeconfig, in.Site.Kubeconfig)
	in.result.Config = in.Config
	return err
}

// putPlugin puts the configuration of the DaemonSet's plugin into the state folder, which can be written on every host,
// and the runtime's plugin into NRI's folder, with its configuration beside it. Where the runtime may not or cannot
// start a plugin, it leaves that out, and returns why.
func (in *installer) putPlugin(ctx context.Context, config []byte) (alone string, err error) {
	n, h := in.facts.NRI, in.host
	pluginFile, besideFile := filepath.Join(n.PluginDir, PluginFile), filepath.Join(n.PluginDir, ConfigFile)
	daemonFile := filepath.Join(in.Site.StateDir, ConfigFile)

	var plugin, beside *staged
	if alone = in.facts.whyNeverAtBoot(); alone == "" {
		// The larger one first: it finds a full disk or a read-only folder before anything has changed.
		if plugin, err = h.stageFile(pluginFile, 0o755, in.Binary); err == nil {
			beside, err = h.stageFile(besideFile, 0o644, bytes.NewReader(config))
		}
		switch {
		case errors.Is(err, syscall.EROFS):
			alone = fmt.Sprintf("the plugin cannot be written: %v", err)
		case err != nil:
			return "", err
		default:
			if alone, err = in.tryProgram(ctx, plugin, pluginFile); err != nil {
				return "", err
			}
		}
	}
	own := in.Config
	if alone == "" {
		own.Program = pluginFile
	}
	text, err := own.Marshal()
	if err != nil {
		return "", err
	}
	daemon, err := h.stageFile(daemonFile, 0o644, bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	if alone != "" {
		if err := in.removePlugin([]string{pluginFile, besideFile}, "removed: "+alone); err != nil {
			return "", err
		}
		plugin, beside = nil, nil
	} else if plugin != nil || beside != nil { // the plugin reads its configuration when it starts
		first := !in.facts.Plugin && !fileExists(pluginFile)
		if err := h.updatePending(in.Site, func(r *pendingState) {
			r.Plugin, r.Upgrade = r.Plugin || first, r.Upgrade || !first && !r.Plugin
		}); err != nil {
			return "", err
		}
	}
	// The configuration before the plugin: a plugin without one holds pods for a while only.
	for _, s := range []*staged{daemon, beside} {
		if err := h.commitFile(s); err != nil {
			return "", err
		}
	}
	in.reportDone(daemonFile, describeStaged(daemon))
	// NRI would pass this one to the plugin in place of that beside it.
	if err := in.remove(filepath.Join(n.ConfigDir, ConfigFile), os.Remove, "removed"); err != nil {
		return "", err
	}
	if alone == "" {
		if err := h.commitFile(plugin); err != nil {
			return "", err
		}
		in.reportDone(pluginFile, describeStaged(plugin))
	}
	return alone, in.warnOfStrayFiles()
}

// goCrash is the exit code of a Go program that its runtime ended, as without memory or threads.
const goCrash = 2

// tryProgram runs the plugin's program on the host, before the runtime does. It returns why the program does not run
// there: a file system that forbids programs, or another kind of machine. It returns an error if the trial was ended
// before it showed that: a plugin that works must not be removed because its install was interrupted.
func (in *installer) tryProgram(ctx context.Context, s *staged, file string) (why string, err error) {
	if s != nil {
		file = s.from
	}
	_, err = in.host.runCommand(ctx, file, "version")
	if err == nil {
		return "", nil
	}
	var exit *exec.ExitError
	if !ranAndFailed(err) || errors.As(err, &exit) && exit.ExitCode() == goCrash {
		return "", fmt.Errorf("trying the plugin in %s: %w", in.facts.NRI.PluginDir, err)
	}
	return fmt.Sprintf("the plugin does not run in %s: %v", in.facts.NRI.PluginDir, err), nil
}

// removePlugin removes the plugin's files. A runtime that required them would refuse ordinary containers, so it removes
// the requirement first.
func (in *installer) removePlugin(files []string, why string) error {
	if err := in.removeDropIn(in.Site, why); err != nil {
		return err
	}
	for _, file := range files {
		if err := in.remove(file, os.Remove, why); err != nil {
			return err
		}
	}
	return nil
}

func describeStaged(s *staged) string {
	if s == nil {
		return "unchanged"
	}
	return "written"
}

// warnOfStrayFiles warns of files that keep the runtime from starting: executables in NRI's folder whose names do not
// begin with an index.
func (in *installer) warnOfStrayFiles() error {
	entries, err := os.ReadDir(in.facts.NRI.PluginDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() || info.Mode()&0o111 == 0 || pluginLike.MatchString(e.Name()) {
			continue
		}
		in.addWarning("%s is an executable whose name does not begin with an index, as in 10-name: the runtime will "+
			"not start until it is removed", filepath.Join(in.facts.NRI.PluginDir, e.Name()))
		if in.RestartRuntime {
			in.RestartRuntime = false
			in.addWarning("the runtime is not restarted")
		}
	}
	return nil
}

// assessAndRestart sets the node's protection, and restarts the runtime if that is requested and helps.
func (in *installer) assessAndRestart(ctx context.Context) error {
	if err := in.assess(ctx); err != nil {
		return err
	}
	due := in.facts.restartReasons()
	if due == "" {
		return nil
	}
	if !in.RestartRuntime {
		in.addWarning("%s must be restarted (%s, or at the next boot): %s", in.Site.Runtime,
			in.Site.restartCommand(), due)
		return nil
	}
	err := in.restartRuntime(ctx, due)
	if err == nil {
		return in.assess(ctx)
	}
	if in.dropInWritten { // a configuration that passed the dump may still keep it from starting
		_, bad := in.host.removePath(in.Site.dropIn(), os.Remove)
		err = errors.Join(err, bad)
		if bad == nil {
			err = errors.Join(fmt.Errorf("%s was removed again", in.Site.dropIn()), err,
				in.restartRuntime(ctx, "without the drop-in"))
		}
	}
	return err
}

func (in *installer) assess(ctx context.Context) (err error) {
	in.Site.processes = in.host.findProcesses(in.Site)
	if in.facts, err = readFacts(ctx, in.host, in.Site); err == nil {
		in.result.Protection = assessProtection(in.facts)
	}
	return err
}

// restartReasons returns why the running runtime needs a restart, or "" if it does not.
func (f facts) restartReasons() string {
	var due []string
	add := func(is bool, why string) {
		if is {
			due = append(due, why)
		}
	}
	add(f.PluginPending, "it has not started the plugin yet")
	add(f.PluginDropped, "it is not connected to the plugin that it started")
	add(f.UpgradePending, "it still runs the previous version of the plugin")
	add(f.ConfigPending && f.NRI.requiresUs(), "it does not require the plugin yet")
	add(f.StillRequired && !f.NRI.requiresUs(),
		"it still requires the plugin, and refuses ordinary containers without it")
	return strings.Join(due, "; ")
}

// restartRuntime restarts the runtime. Its containers keep running, because their shims are not its children.
func (in *installer) restartRuntime(ctx context.Context, why string) error {
	if _, err := in.host.runCommand(ctx, "systemctl", "restart", in.Site.Unit); err != nil {
		return fmt.Errorf("restarting systemd unit %s of %s: %w", in.Site.Unit, in.Site.Runtime, err)
	}
	in.reportDone(string(in.Site.Runtime), "restarted: "+why)
	return nil
}
