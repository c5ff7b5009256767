package nri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const (
	reconnectEvery = time.Second
	// bareHold is for how long a hook without a configuration holds ordinary pods: long enough for a fence that waits
	// for this boot to go on, and short enough for a node that no one repairs.
	bareHold = 2 * time.Minute
	// recallWait is for how long a registration waits for the host's disks: less than NRI's limit of 2 s for a request.
	recallWait = time.Second
	endTimeout = 5 * time.Second        // how long to wait for goroutines to end
	writeEvery = 200 * time.Millisecond // at most one status file in that time
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// Options of Run.
type Options struct {
	Version string    // the program's, for the status and the API server
	Log     io.Writer // replaces the configuration's log file and journald; nil: use those

	// What follows is for a plugin that the runtime did not start itself.
	ConfigFile string // read at each connection; "": the runtime passes the configuration
	Socket     string // the runtime's, for NRI
	// Registered is called after each registration, in a goroutine of its own that Run waits for.
	Registered func(ctx context.Context, c Config, log *slog.Logger)

	// for tests
	bootIDFile string
	program    string        // the path of the program; "": this process's
	bare       Config        // of a hook without a configuration
	bareHold   time.Duration // 0: bareHold
}

// StartedByRuntime reports whether the runtime started this process as a pre-installed plugin.
func StartedByRuntime() bool { return os.Getenv(api.PluginSocketEnvVar) != "" }

// Run runs the hook. If the runtime started it, it returns when the runtime closes the connection. Otherwise it
// reconnects once a second until ctx ends. It returns an error if only a new process can help: the configuration has
// faults, or the runtime does not answer.
func Run(ctx context.Context, o Options) error {
	o.bootIDFile, o.bareHold = cmp.Or(o.bootIDFile, bootIDFile), cmp.Or(o.bareHold, bareHold)
	h := &hook{opts: o, started: time.Now(), name: DaemonIndex + "-" + BaseName}
	if StartedByRuntime() {
		h.name = os.Getenv(api.PluginIdxEnvVar) + "-" + os.Getenv(api.PluginNameEnvVar)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer h.finishWork()
	defer cancel()
	h.ctx = ctx
	h.plugin = &plugin{configure: h.configureOnce, registeredNow: h.callRegistered}
	if StartedByRuntime() {
		return h.plugin.serveRuntime(ctx, stub.WithLogger(stubLog{slog.New(slog.DiscardHandler)}))
	}
	return h.serveConnections()
}

// hook is one run of a plugin. It holds what outlives the connections.
type hook struct {
	opts    Options
	name    string
	started time.Time
	ctx     context.Context // Run's: ends the reader and the writer
	plugin  *plugin
	written bool     // the status file is ours; used by writeChanges, then by finishWork
	exempt  []string // the content of the memory file; used by writeChanges, once configureOnce has read it
	work    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	config   *Config    // nil: not configured yet
	view     *view
	log      *slog.Logger
	closeLog func()
	readErr  string
}

// serveConnections serves one connection after the other.
func (h *hook) serveConnections() error {
	text, err := os.ReadFile(h.opts.ConfigFile)
	if err != nil {
		return fmt.Errorf("reading the hook's configuration: %w (is the hook installed on this node?)", err)
	}
	if _, err := h.configureOnce(string(text)); err != nil {
		return err
	}
	last := ""
	for h.ctx.Err() == nil {
		err := h.plugin.serveRuntime(h.ctx, stub.WithPluginName(BaseName), stub.WithPluginIdx(DaemonIndex),
			stub.WithSocketPath(h.opts.Socket), stub.WithLogger(stubLog{h.log}))
		if errors.Is(err, errStuck) {
			return err
		}
		if h.ctx.Err() != nil {
			break
		}
		if text := fmt.Sprint(err); text != last { // a socket that is not there would fill the log
			h.log.Warn("Not connected to the runtime", "err", text)
			last = text
		}
		select {
		case <-h.ctx.Done():
		case <-time.After(reconnectEvery):
		}
	}
	return nil
}

// configureOnce starts to read the API server, and its own files, at the first call. It waits for neither: the runtime
// gives a plugin five seconds to register, and every other plugin waits meanwhile. An old runtime does not even start
// if a plugin takes longer, or refuses its configuration (F26), so a plugin that the runtime started refuses none: text
// that is missing or has faults is replaced by that beside the program. Without that, too, the hook reads nothing,
// and holds ordinary pods for bareHold.
func (h *hook) configureOnce(text string) (*view, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.config != nil { // a reconnect; a new configuration needs a new process
		return h.view, nil
	}
	c, from, err := h.findConfig(text)
	if err != nil && !StartedByRuntime() {
		return nil, err
	}
	bootID, bad := os.ReadFile(h.opts.bootIDFile)
	v := newView(c.NodeName, c.TaintKey, strings.TrimSpace(string(bootID)))
	if err != nil {
		v.holdUntil = h.started.Add(h.opts.bareHold)
		h.readErr = err.Error()
	}
	h.config, h.view = &c, v
	h.log, h.closeLog = newLog(c.LogFile, h.opts.Log)
	h.log = h.log.With("plugin", h.name)
	// NRI gives a plugin no environment, and a container's environment does not fit the host's programs.
	home := cmp.Or(os.Getenv("HOME"), "/root")
	if err := errors.Join(os.Setenv("PATH", c.Path), os.Setenv("HOME", home)); err != nil {
		h.log.Error("Cannot set the environment for the kubeconfig's credential", "err", err)
	}
	recalled := make(chan struct{})
	h.work.Go(func() {
		if bad != nil {
			h.log.Error("Cannot read the machine's boot id: every ordinary pod is held", "err", bad)
		}
		h.recall(c, v)
		close(recalled)
		if err != nil {
			h.log.Error("No configuration was found: ordinary pods are held for a while, then they start",
				"err", err, "hold", h.opts.bareHold)
		}
		h.log.Info("Started", "version", h.opts.Version, "node", c.NodeName, "boot_id", v.bootID, "configuration", from)
		h.work.Go(func() { h.writeChanges(h.ctx) })
		v.signalChange()
		if err == nil {
			r := &reader{kubeconfig: c.Kubeconfig, version: h.opts.Version, node: c.NodeName, view: v,
				reportResult: h.reportReading}
			r.runReader(h.ctx)
		}
	})
	select {
	case <-recalled:
	case <-time.After(recallWait): // until then it holds every ordinary pod
	}
	return v, nil
}

// findConfig returns the configuration, and where it is from. text is what the runtime passed, or the file's. With an
// error it returns the defaults.
func (h *hook) findConfig(text string) (c Config, from string, err error) {
	if c, err = ParseConfig(text); err == nil {
		return c, "the runtime", nil
	}
	program := h.opts.program
	if program == "" {
		program, _ = os.Executable() // "": then there is no such copy
	}
	file := filepath.Join(filepath.Dir(program), ConfigFile)
	beside, bad := os.ReadFile(file)
	if bad == nil {
		if c, bad = ParseConfig(string(beside)); bad == nil {
			return c, file, nil
		}
	}
	c = h.opts.bare
	c.setDefaults()
	return c, "", errors.Join(err, fmt.Errorf("that beside the program: %w", bad))
}

// recall reads what earlier processes left on the host's disks, which may be slow.
func (h *hook) recall(c Config, v *view) {
	for _, dir := range []string{c.StateDir, c.DataDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.log.Error("Cannot create the hook's folder", "err", err)
		}
	}
	if before, err := ReadStatus(h.statusFile(c)); err == nil && v.restoreStatus(before) {
		h.log.Info("Restored the previous plugin's state", "at", before.Node.At, "mark", before.Node.Mark)
	}
	exempt, err := readMemory(c)
	if err == nil {
		h.exempt = exempt
		v.recallExempt(exempt)
		h.log.Info("Restored the list of exempt pods", "pods", len(exempt))
	} else if !errors.Is(err, fs.ErrNotExist) {
		h.log.Warn("Cannot read the list of exempt pods; after a boot they are held until the API server answers",
			"err", err)
	}
}

// callRegistered calls Options.Registered.
func (h *hook) callRegistered() {
	if h.opts.Registered == nil {
		return
	}
	c := *h.config
	h.work.Go(func() { h.opts.Registered(h.ctx, c, h.log) })
}

// reportReading records whether reading works.
func (h *hook) reportReading(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.mu.Lock()
	before := h.readErr
	h.readErr = text
	h.mu.Unlock()
	switch {
	case text == before:
		return
	case text != "":
		h.log.Warn("Cannot read the API server; the last state seen decides", "err", text)
	default:
		h.log.Info("Synced with the API server")
	}
	h.view.signalChange()
}

// writeChanges writes the status file, the memory and the log when the view changes. It is a goroutine of its own,
// because a slow disk must not delay answers to the runtime.
func (h *hook) writeChanges(ctx context.Context) {
	failed, forgot := "", ""
	for {
		select {
		case <-ctx.Done():
			h.flushLog()
			return
		case r := <-h.view.logQueue:
			h.logRecord(r)
		case <-h.view.changed:
			h.flushLog()
			if err := h.writeStatus(); err != nil && err.Error() != failed && !isUninstalled(err) {
				failed = err.Error()
				h.log.Error("Cannot write the status; a restart during an API outage would hold pods", "err", err)
			}
			if err := h.saveExempt(); err != nil && err.Error() != forgot && !isUninstalled(err) {
				forgot = err.Error()
				h.log.Error("Cannot write the list of exempt pods; a boot without the API server would hold them",
					"err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(writeEvery):
			}
		}
	}
}

func (h *hook) flushLog() {
	for {
		select {
		case r := <-h.view.logQueue:
			h.logRecord(r)
		default:
			return
		}
	}
}

func (h *hook) logRecord(r slog.Record) {
	_ = h.log.Handler().Handle(context.Background(), r) // there is nowhere to report that the log cannot be written
}

func (h *hook) statusFile(c Config) string { return StatusFile(c.StateDir, h.name[:2]) }

func (h *hook) writeStatus() error {
	s := Status{Plugin: h.name, Version: h.opts.Version, PID: os.Getpid(), Started: h.started}
	h.view.fillStatus(&s)
	h.plugin.fillStatus(&s)
	h.mu.Lock()
	s.Error = h.readErr
	h.mu.Unlock()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file := h.statusFile(*h.config)
	// A process that was stopped and goes on must not overwrite its successor's file. This compares no clocks.
	if now, err := ReadStatus(file); h.written && err == nil && !now.Started.Equal(h.started) {
		return nil
	}
	h.written = true
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// saveExempt writes which pods are exempt, if that changed.
func (h *hook) saveExempt() error {
	exempt, ok := h.view.lastingUIDs()
	if !ok || h.exempt != nil && slices.Equal(exempt, h.exempt) {
		return nil
	}
	if err := writeMemory(*h.config, h.name[:2], exempt); err != nil {
		return err
	}
	h.exempt = exempt
	return nil
}

// isUninstalled reports whether the folder, which the start created, was removed. Do not log then: the log's folder
// would be created again.
func isUninstalled(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// finishWork waits for what configureOnce started, but not for a credential program that hangs: client-go cannot stop
// one.
func (h *hook) finishWork() {
	ended := make(chan struct{})
	go func() {
		h.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endTimeout):
	}
	if h.config == nil {
		return
	}
	if err := h.writeStatus(); err != nil && !isUninstalled(err) { // not registered any more
		h.log.Error("Cannot write the status", "err", err)
	}
	h.closeLog()
}
