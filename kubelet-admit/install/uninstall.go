package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// Uninstall removes everything that Install and the plugin left on the host, also after an interrupted install, and the
// Node's condition. It may be repeated. It goes on after an error and returns all errors.
//
// It removes the requirement first, then the program, its configuration, and its traces. A program without a
// configuration would keep an old runtime from starting (F26), so the configuration stays while the program does. Until
// its restart the runtime goes on to run and to require the plugin that it started. That process lets ordinary pods
// start meanwhile, so Uninstall does not end it, and the DaemonSet must not be deleted before the restart.
func Uninstall(ctx context.Context, o Options) (Result, error) {
	return runLocked(o, func(in *installer) error { return in.uninstallHook(ctx) })
}

func (in *installer) uninstallHook(ctx context.Context) error {
	var errs []error
	collect := func(err error) { errs = append(errs, err) }
	folders, known := NRI{}.withDefaults(), true
	err := in.resolveSite()
	if in.Site.Runtime != "" {
		in.facts, err = readFacts(ctx, in.host, in.Site)
		folders = in.facts.NRI.withDefaults()
	}
	if err != nil {
		// A host whose runtime is gone or broken is cleaned as well, in NRI's default folders.
		known = false
		in.addWarning("the runtime's folders are unknown, so NRI's default folders are cleaned: %v", err)
	}
	sites := in.everySite()
	for _, s := range sites {
		collect(in.removeDropIn(s, "removed"))
	}
	// A runtime that will require a plugin which is not there refuses every ordinary container.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	still := known && in.requiredNow()

	pluginFile, besideFile := filepath.Join(folders.PluginDir, PluginFile), filepath.Join(folders.PluginDir, ConfigFile)
	there := fileExists(pluginFile)
	config := in.installedConfig(besideFile, filepath.Join(in.Config.StateDir, ConfigFile))
	collect(in.remove(pluginFile, os.Remove, "removed"))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, file := range []string{filepath.Join(folders.ConfigDir, ConfigFile), besideFile} {
		collect(in.remove(file, os.Remove, "removed"))
	}
	stages := []string{stageDir(folders.PluginDir), stageDir(config.StateDir)}
	for _, s := range sites {
		stages = append(stages, stageDir(s.ConfDir))
	}
	for _, dir := range stages {
		collect(in.remove(dir, os.RemoveAll, "removed"))
	}
	restarted := false
	if still && in.RestartRuntime {
		err := in.restartRuntime(ctx, "it required the plugin")
		collect(err)
		restarted = err == nil
	}
	if still && !restarted {
		in.addWarning("%s still requires the plugin until it is restarted (%s). Keep the DaemonSet until then: "+
			"without any plugin the runtime refuses ordinary containers", in.Site.Runtime, in.Site.restartCommand())
	} else if known && !restarted && there && len(in.host.findProcesses(in.Site)) > 0 {
		in.addWarning("the plugin that %s started runs until the runtime is restarted (%s): it holds pods while the "+
			"node is marked", in.Site.Runtime, in.Site.restartCommand())
	}
	collect(in.removeTraces(config, still && !restarted))
	collect(in.removeCondition(ctx, config))
	return errors.Join(errs...)
}

// everySite returns the site of every runtime if it is unknown which one is used, by their own packages' paths.
func (in *installer) everySite() []Site {
	if _, known := kinds[in.Site.Runtime]; known {
		return []Site{in.Site}
	}
	var all []Site
	for name, k := range kinds {
		all = append(all, Site{Runtime: name, Config: k.config, ConfDir: k.confDir, Unit: k.process,
			StateDir: in.Site.StateDir})
	}
	return all
}

// requiredNow reports whether the running runtime may require the plugin: it read the requirement, or was not restarted
// since its removal.
func (in *installer) requiredNow() bool {
	r := in.host.readPending(in.Site.StateDir, in.host.findProcesses(in.Site))
	return r.Released || in.facts.Running && in.facts.NRI.requiresUs() && !r.Config
}

// installedConfig returns the first of the configurations in place, or that of the command line if they are missing or
// broken.
func (in *installer) installedConfig(files ...string) nri.Config {
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			if c, err := nri.ParseConfig(string(text)); err == nil {
				return c
			}
		}
	}
	return in.Config
}

// removeTraces removes what the plugin wrote. keepPending keeps the pending state for the next uninstall or status.
func (in *installer) removeTraces(c nri.Config, keepPending bool) error {
	patterns := []string{ // by name: the folders may be shared
		filepath.Join(c.StateDir, "[0-9][0-9].json*"), filepath.Join(c.StateDir, ".[0-9][0-9].json*"),
		filepath.Join(c.StateDir, ConfigFile), filepath.Join(c.DataDir, nri.MemoryFile+"*"),
	}
	if !keepPending {
		patterns = append(patterns, filepath.Join(c.StateDir, pendingFileName+"*"))
	}
	var errs []error
	if c.LogFile != "none" {
		errs = append(errs, in.remove(c.LogFile, os.Remove, "removed"))
		ext := filepath.Ext(c.LogFile)
		patterns = append(patterns, strings.TrimSuffix(c.LogFile, ext)+"-[0-9]*"+ext)
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, file := range files {
			errs = append(errs, in.remove(file, os.Remove, "removed"))
		}
	}
	for _, dir := range []string{c.StateDir, c.DataDir} {
		if rest, err := os.ReadDir(dir); err == nil && len(rest) == 0 {
			errs = append(errs, in.remove(dir, os.Remove, "removed"))
		}
	}
	return errors.Join(errs...)
}

func (in *installer) removeCondition(ctx context.Context, c nri.Config) error {
	if c.NodeName == "" {
		return nil
	}
	if c.Kubeconfig == "" {
		return errors.New("removing the node's condition: the kubelet's kubeconfig was not found: set --kubeconfig")
	}
	client, _, err := in.connect(ctx, c, in.Version)
	if err != nil {
		return fmt.Errorf("removing the node's condition: %w", err)
	}
	if client == nil {
		return nil
	}
	return removeReport(ctx, client, c.NodeName)
}
