// Package app assembles forcefence: the configuration's providers behind their guards, the reconcilers, leader
// election, metrics and health. It is the only package that knows all of them. Run returns after everything that it
// started has stopped.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/trace"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/drainguard"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/drills"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/recording"
	"github.com/forcefence/forcefence/taint/wake"
)

// Options holds what the command line adds to the configuration file.
type Options struct {
	ConfigFile string
	REST       *rest.Config // its rate limits are replaced: the reconciler bounds itself
	Registry   providers.Registry
	Log        *slog.Logger
	Identity   string // "": the host's name and the process id
	Namespace  string // for leader election if the file names none; "": the pod's own, else kube-system
}

// Run reads the configuration and runs the controller until ctx ends or the leadership is lost. A faulty configuration
// is an error, and so is an API server that does not answer at start. A device that does not answer is no error.
func Run(ctx context.Context, o Options) error {
	cfg, err := config.Load(o.ConfigFile, o.Registry)
	if err != nil {
		return err
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("naming this process: %w", err)
		}
		o.Identity = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	logger := logr.FromSlogHandler(quietLog{shutdownLog{o.Log.Handler(), ctx}})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	reg := prometheus.NewRegistry()

	restConfig := clientsOf(o.REST)
	lock, err := newLock(restConfig, cfg.LeaderElection, o)
	if err != nil {
		return err
	}
	skip := true
	opts := manager.Options{
		Logger:                 logger,
		Scheme:                 clientgoscheme.Scheme,
		Cache:                  controller.CacheOptions(),
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                server.Options{BindAddress: "0"}, // served below, with our own registry
		HealthProbeBindAddress: "0",                              // likewise: the manager's server has no limits
		Controller:             crconfig.Controller{SkipNameValidation: &skip},
	}
	always := func() error { return nil }
	leading, restored := always, newRewind(lock, nil)
	if cfg.LeaderElection.Enabled {
		leading = restored.withRewindCheck(lock.checkLeading)
		opts.LeaderElection, opts.LeaderElectionResourceLockInterface, opts.LeaderElectionID =
			true, lock, cfg.LeaderElection.Name
		opts.LeaseDuration, opts.RenewDeadline, opts.RetryPeriod =
			&cfg.LeaderElection.LeaseDuration, &cfg.LeaderElection.RenewDeadline, &cfg.LeaderElection.RetryPeriod
		// On stop, Run returns only after the reconciler has: nothing is written after the release.
		opts.LeaderElectionReleaseOnCancel = true
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "forcefence_leading",
		Help: "1 while this process leads: it alone fences, and its numbers tell of fences.",
	}, func() float64 {
		if leading() != nil {
			return 0
		}
		return 1
	}))
	mgr, err := ctrl.NewManager(restConfig, opts)
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}

	confs, err := newConfigs(o, reg, mgr.GetCache())
	if err != nil {
		return err
	}
	confs.live = mgr.GetAPIReader()
	sender, err := observe.NewEvents(restConfig, clientgoscheme.Scheme, "forcefence")
	if err != nil {
		return err
	}
	if err := mgr.Add(sender); err != nil {
		return fmt.Errorf("adding to manager: %w", err)
	}
	confs.report = newLeaseReporter(sender.RecorderNow(), "Reload", leading, o.Namespace, cfg.LeaderElection)
	// Each process reports its own watches, whether it leads or not.
	reportRestart := newLeaseReporter(sender.RecorderNow(), "Restart", always, o.Namespace, cfg.LeaderElection)
	restored.report = func(detail string) { reportRestart(reason.WatchesBehind, "{detail}", detail) }
	if confs.storage, err = newWatcher(restConfig, o.Log, reg); err != nil {
		return err
	}
	if err := confs.applyConfig(cfg); err != nil {
		return err
	}
	confs.logWarnings(cfg)
	defer confs.closeProviders()
	fencings, err := observe.NewFencingClient(restConfig)
	if err != nil {
		return err
	}
	observed := observe.NewMetrics(reg)
	records := observe.NewFencingWriter(observe.FencingWriterOptions{
		Client: fencings, Cache: mgr.GetCache(), Log: o.Log, Metrics: observed, Leading: leading, Now: time.Now,
		Retention: func() journal.Retention { return confs.activeConfig().Retention },
	})
	tracer, err := trace.New(o.Identity, version.String(), o.Log)
	if err != nil { // a fault in tracing must not stop fencing
		o.Log.Error("There are no traces", "error", err)
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceTimeout)
		defer cancel()
		if err := tracer.Close(stop); err != nil {
			o.Log.Warn("Could not send the last traces", "error", err)
		}
	}()
	var putLine func([]byte) bool
	if cfg.Tape.File != "" {
		header := func() recording.Header {
			now := confs.activeFile()
			return recording.Header{
				By:     version.String(),
				Key:    cfg.TaintKey,
				Mode:   string(now.Mode),
				Digest: now.Digest(),
			}
		}
		recorder := newRecorder(cfg.Tape, header, o.Log, reg)
		if err := mgr.Add(onEveryReplica(recorder.Run)); err != nil {
			return fmt.Errorf("adding to manager: %w", err)
		}
		putLine = recorder.PutLine
	}
	reconciler := controller.New(controller.Options{
		Live: mgr.GetAPIReader(), Cache: mgr.GetCache(), Client: mgr.GetClient(),
		Sinks: observe.Sinks{
			Events: sender.RecorderAt, Log: o.Log, Metrics: observed,
			Fences: func(t journal.Update) {
				records.AddUpdate(t)
				tracer.ReportFence(t)
			},
			Parts: tracer.ObserveSpan,
		},
		Wakes:  wake.NewMetrics(reg),
		Config: confs.activeConfig, Leading: leading, Key: cfg.TaintKey, By: o.Identity, Now: time.Now,
		Storage: confs.storage.NotifyChanged,
		Record:  putLine,
	})
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if cfg.LeaderElection.Enabled {
		// The leader alone runs this, as every Runnable without NeedLeaderElection.
		rivals := manager.RunnableFunc(func(ctx context.Context) error {
			return lock.watchRivals(ctx, cfg.LeaderElection.RetryPeriod)
		})
		if err := errors.Join(mgr.Add(rivals), mgr.Add(onEveryReplica(restored.watchLease))); err != nil {
			return fmt.Errorf("adding to manager: %w", err)
		}
	}
	api, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	drains := drainguard.New(drainguard.Options{
		REST:      restConfig,
		Live:      mgr.GetAPIReader(),
		Cache:     mgr.GetCache(),
		Client:    mgr.GetClient(),
		Dynamic:   api,
		Events:    sender.RecorderNow(),
		Log:       o.Log,
		Metrics:   drainguard.NewMetrics(reg),
		Guards:    func() []drainguard.Guarded { return *confs.drainGuards.Load() },
		Adapters:  func() []*storage.Adapter { return *confs.evictable.Load() },
		Leading:   leading,
		LeftAlone: reconciler.LeftAlone,
		Now:       time.Now,
		MayBegin:  func(n *corev1.Node) bool { return confs.activeConfig().Mode(n).Mode.MayAct() },
	})
	if err := errors.Join(
		mgr.Add(drills.New(drills.Options{
			Live:       mgr.GetAPIReader(),
			Cache:      mgr.GetCache(),
			Client:     mgr.GetClient(),
			Events:     sender.RecorderNow(),
			Log:        o.Log,
			Metrics:    drills.NewMetrics(reg),
			Config:     confs.activeConfig,
			Leading:    leading,
			WithFleet:  reconciler.WithFleet,
			ShouldList: reconciler.ShouldList,
			Key:        cfg.TaintKey,
			Now:        time.Now,
		})),
		mgr.Add(drains),
		mgr.Add(records),
		mgr.Add(&controller.ConfigCheck{
			Live:      mgr.GetAPIReader(),
			Cache:     mgr.GetCache(),
			Log:       o.Log,
			Config:    confs.activeConfig,
			LeftAlone: reconciler.LeftAlone,
		}),
		mgr.Add(onEveryReplica(confs.storage.Run)), // so that a new leader has current data
		mgr.Add(onEveryReplica(func(ctx context.Context) error {
			return config.Watch(ctx, o.ConfigFile, o.Registry, confs.applyChange, confs.refuseChange)
		})),
		addServer(
			mgr, "metrics", cfg.Listen.Metrics, metricsHandler(prometheus.Gatherers{reg, crmetrics.Registry}), o.Log,
		),
		addServer(mgr, "health", cfg.Listen.Health, probeHandler(func(*http.Request) error {
			wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(wait) {
				return errors.New("informers are not in sync")
			}
			return nil
		}), o.Log),
		addPage(mgr, cfg, confs, o, restConfig, api),
	); err != nil {
		return fmt.Errorf("adding to manager: %w", err)
	}
	o.Log.Info(
		"Starting", "version", version.String(), "identity", o.Identity, "config", o.ConfigFile, "mode", cfg.Mode,
		"providers", len(cfg.Providers), "rules", len(cfg.Nodes),
	)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// traceTimeout is how long a process that ends waits for the collector, so that it does not delay the next leader.
const traceTimeout = time.Second
