package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// Uninstall removes everything that Install and the plugin left on the host, also after an interrupted install, and the
// Node's condition. It may be repeated. It goes on after an error and returns all errors.
//
// The order: what requires the plugin, the plugin, its configuration, and then its traces. A runtime that was not
// restarted since keeps running the plugin that it started, from a file without a name, and keeps requiring it. That
// process lets ordinary pods start until the restart. So it is not ended here, nor should the DaemonSet's be before the
// runtime was restarted.
func Uninstall(ctx context.Context, o Options) (Result, error) {
	if o.connect == nil {
		o.connect = connectAsKubelet
	}
	in := &installer{Options: o}
	unlock, err := lockHost(o.Config.StateDir)
	if err != nil {
		return in.result, err
	}
	defer unlock()
	err = in.uninstallHook(ctx)
	return in.result, err
}

func (in *installer) uninstallHook(ctx context.Context) error {
	var errs []error
	failed := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err != nil
	}
	in.host.Path = in.Config.Path
	in.Site.StateDir = in.Config.StateDir
	facts, known := NRI{}.withDefaults(), true
	var err error
	if in.site, err = in.Site.resolveDefaults(in.host); err == nil {
		in.facts, err = readFacts(ctx, in.host, in.site)
		facts = in.facts.NRI.withDefaults()
	}
	if err != nil {
		// a host whose runtime is gone or broken is cleaned all the same, in the folders that NRI has by default
		known = false
		in.addWarning("the runtime could not be asked for its folders, so NRI's own are taken: %v", err)
	}

	gone := func(file string, there bool, err error) {
		if !failed(err) && there {
			in.reportDone(file, "removed")
		}
	}
	for _, s := range in.everySite() {
		there, err := removeDropIn(in.host, s, in.facts)
		gone(s.dropIn(), there, err)
	}
	if len(errs) > 0 { // a runtime that will require a plugin which is not there refuses every ordinary container
		return errors.Join(errs...)
	}
	still := known && in.requiredNow()

	plugins, err := listMatching(facts.PluginDir, ours)
	failed(err)
	configs, err := listMatching(facts.ConfigDir, oursConfig)
	failed(err)
	configFile := filepath.Join(facts.ConfigDir, ConfigFile)
	config := in.installedConfig(configFile)
	for _, file := range append(append(plugins, configs...), configFile) {
		there, err := in.host.removePath(file)
		gone(file, there, err)
	}
	stages := []string{stageDir(facts.PluginDir), stageDir(facts.ConfigDir)}
	for _, s := range in.everySite() {
		stages = append(stages, stageDir(s.ConfDir))
	}
	for _, dir := range stages {
		there, err := in.host.removeAll(dir)
		gone(dir, there, err)
	}
	restarted := false
	if still && in.RestartRuntime {
		if restarted = !failed(restartRuntime(ctx, in.host, in.site)); restarted {
			in.reportDone(string(in.site.Runtime), "restarted: it required the plugin")
		}
	}
	if still && !restarted {
		in.addWarning("%s still requires the plugin until it is started again: leave the DaemonSet in place until then, or ordinary containers are "+
			"refused once the plugin that it started ends; now: %s", in.site.Runtime, in.site.restartCommand())
	} else if known && !restarted && len(plugins) > 0 && len(in.host.findProcesses(in.site.Runtime)) > 0 {
		in.addWarning("the plugin that %s started goes on until the runtime is started again (%s): it holds pods while the node is marked",
			in.site.Runtime, in.site.restartCommand())
	}
	in.removeTraces(config, still && !restarted, gone)
	failed(in.removeCondition(ctx, config))
	return errors.Join(errs...)
}

// everySite returns the site of every runtime if it is unknown which one is used: the drop-in is looked for in each.
func (in *installer) everySite() []Site {
	if in.site.Runtime != "" && in.site.ConfDir != "" {
		return []Site{in.site}
	}
	var all []Site
	for _, name := range []RuntimeName{containerd, crio} {
		s := in.Site
		s.Runtime = name
		if s, err := s.resolveDefaults(in.host); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// requiredNow reports whether the running runtime may require the plugin: it read that, or was not restarted since that
// was removed.
func (in *installer) requiredNow() bool {
	r := in.host.readPending(in.site.StateDir, in.host.findProcesses(in.site.Runtime))
	return r.Released || in.facts.Running && in.facts.NRI.requiresUs() && !r.Config
}

// installedConfig returns the plugin's configuration in place, or that of the command line if it is missing or broken.
func (in *installer) installedConfig(file string) nri.Config {
	text, err := os.ReadFile(file)
	if err != nil {
		return in.Config
	}
	c, err := nri.ParseConfig(string(text))
	if err != nil {
		return in.Config
	}
	return c
}

// removeTraces removes what the plugin wrote. The pending state stays while it is valid, because the next uninstall or
// status reads it.
func (in *installer) removeTraces(c nri.Config, keepPending bool, gone func(string, bool, error)) {
	clean := func(dir string, patterns ...string) { // by name: the folder may be shared
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			gone(dir, false, err)
			for _, file := range files {
				there, err := in.host.removePath(file)
				gone(file, there, err)
			}
		}
		if rest, err := os.ReadDir(dir); err == nil && len(rest) == 0 {
			there, err := in.host.removePath(dir)
			gone(dir, there, err)
		}
	}
	ofThisBoot := []string{"[0-9][0-9].json*", ".[0-9][0-9].json*"}
	if !keepPending {
		ofThisBoot = append(ofThisBoot, pendingFileName+"*")
	}
	clean(c.StateDir, ofThisBoot...)
	clean(c.DataDir, nri.MemoryFile+"*")
	if c.LogFile == "none" {
		return
	}
	ext := filepath.Ext(c.LogFile)
	rotated, err := filepath.Glob(strings.TrimSuffix(c.LogFile, ext) + "-[0-9]*" + ext)
	gone(c.LogFile, false, err)
	for _, file := range append(rotated, c.LogFile) {
		there, err := in.host.removePath(file)
		gone(file, there, err)
	}
}

func (in *installer) removeCondition(ctx context.Context, c nri.Config) error {
	if c.NodeName == "" {
		return nil
	}
	if _, err := os.Stat(c.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the node's condition: %w", err)
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
