// Package app assembles forcefence: the configuration's providers behind their limiters, the reconcilers, leader
// election, metrics and health. It is the only package that knows all of them. Run returns after everything that it
// started has stopped.
package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/networkfence"
	"github.com/forcefence/forcefence/taint/features/remediation"
	"github.com/forcefence/forcefence/taint/features/storage/watch"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/observe"
)

// Options holds what the command line adds to the configuration file.
type Options struct {
	ConfigFile string
	REST       *rest.Config // its rate limits are replaced: the reconciler bounds itself
	Registry   providers.Registry
	Log        *slog.Logger
	Identity   string // "": the host's name and the process id
	Namespace  string // the controller's own, which names the installation; "": see podNamespace
}

// Run reads the configuration and runs the controller until ctx ends or the leadership is lost. A faulty configuration
// is an error, and so is an API server that does not answer at start. A device that does not answer is no error.
func Run(ctx context.Context, o Options) error {
	log := logr.FromSlogHandler(quietLog{o.Log.Handler(), ctx})
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	p, err := newProcess(o, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// run adds the parts in their order, and runs them until ctx ends. Then, or if a part fails, it closes what the parts
// opened.
func (p *process) run(ctx context.Context) error {
	defer p.closeParts()
	for _, add := range []func(context.Context) error{
		p.addEvents, p.addStorage, p.addConfig, p.addFencings, p.addRecording, p.addRemediation, p.addLeases,
		p.addNetworkFences, p.addReconciler, p.addKarpenter, p.addElection, p.addDrainGuards, p.addOrders, p.addPauses,
		p.addDrills, p.addRoom, p.addConfigCheck, p.addReload, p.addServers, p.addPage,
	} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	p.Log.Info("Starting", "version", version.String(), "identity", p.Identity, "config", p.ConfigFile,
		"mode", p.cfg.Mode, "providers", len(p.cfg.Providers), "rules", len(p.cfg.Nodes))
	if !p.cfg.LeaderElection.Enabled {
		if err := p.lock.checkNoRival(ctx, p.cfg.LeaderElection.RetryPeriod); err != nil {
			return err
		}
	}
	if err := p.mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// process holds what the parts of one controller share (parts.go). newProcess sets the first fields. The others are set
// by the part that makes them, before the parts that use them.
type process struct {
	Options
	cfg        *config.Config // the file at the start
	restConfig *rest.Config
	dynamic    dynamic.Interface
	registry   *prometheus.Registry
	lock       *stampedLock
	rewind     *rewind
	leading    func() error // nil while this process is sure to lead; without leader election always
	mgr        manager.Manager

	closers    []func() // of the parts so far
	events     *observe.Events
	storage    *watch.Watcher
	confs      *configs
	metrics    *observe.Metrics
	records    *observe.FencingWriter
	recordNode func(name string, node *decide.Node) decide.Decider // nil: nothing is recorded
	reconciler *controller.Reconciler
	room       *roomEstimator
	requests   *remediation.Controller  // nil: no namespace's requests count
	proven     func(decide.Proof)       // nil: no Lease is released
	fences     *networkfence.Controller // nil: no policy has storage cut nodes off

	// drilledSince returns when the devices were asked of the node that this process asked the longest ago.
	drilledSince func() time.Time
	waiting      waitingCounter
}

// newProcess reads the configuration, and makes the manager without any part. log is the libraries'.
func newProcess(o Options, log logr.Logger) (*process, error) {
	cfg, err := config.Load(o.ConfigFile, o.Registry)
	if err != nil {
		return nil, err
	}
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("naming this process: %w", err)
		}
		o.Identity = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	o.Namespace = cmp.Or(o.Namespace, podNamespace())
	p := &process{
		Options: o, cfg: cfg, restConfig: clientsOf(o.REST), registry: prometheus.NewRegistry(), leading: alwaysLeading,
	}
	if p.dynamic, err = dynamic.NewForConfig(p.restConfig); err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	if p.lock, err = newLock(p.restConfig, cfg.LeaderElection, o); err != nil {
		return nil, err
	}
	p.rewind = newRewind(p.lock, nil)
	if cfg.LeaderElection.Enabled {
		p.leading = p.rewind.withRewindCheck(p.lock.checkLeading)
	}
	if p.mgr, err = ctrl.NewManager(p.restConfig, p.managerOptions(log)); err != nil {
		return nil, fmt.Errorf("making manager: %w", err)
	}
	return p, nil
}

func alwaysLeading() error { return nil }

func (p *process) managerOptions(log logr.Logger) manager.Options {
	skip := true
	opts := manager.Options{
		Logger:                 log,
		Scheme:                 clientgoscheme.Scheme,
		Cache:                  controller.CacheOptions(),
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                server.Options{BindAddress: "0"}, // addServers serves our own registry
		HealthProbeBindAddress: "0",                              // likewise: the manager's server has no limits
		Controller:             crconfig.Controller{SkipNameValidation: &skip},
	}
	if e := &p.cfg.LeaderElection; e.Enabled {
		opts.LeaderElection, opts.LeaderElectionResourceLockInterface, opts.LeaderElectionID = true, p.lock,
			config.LeaseName
		opts.LeaseDuration, opts.RenewDeadline, opts.RetryPeriod = &e.LeaseDuration, &e.RenewDeadline, &e.RetryPeriod
		// On stop, Run returns only after the reconciler has: nothing is written after the release.
		opts.LeaderElectionReleaseOnCancel = true
	}
	return opts
}

// addRunnables makes the manager run them. Without NeedLeaderElection, a Runnable runs on the leader alone.
func (p *process) addRunnables(all ...manager.Runnable) error {
	for _, r := range all {
		if err := p.mgr.Add(r); err != nil {
			return fmt.Errorf("adding to manager: %w", err)
		}
	}
	return nil
}

// closeParts closes what the parts opened, the last first.
func (p *process) closeParts() {
	for _, closePart := range slices.Backward(p.closers) {
		closePart()
	}
}

// clientsOf returns the REST configuration for all clients. It leaves rc unchanged.
func clientsOf(rc *rest.Config) *rest.Config {
	rc = rest.CopyConfig(rc)
	rc.QPS = -1 // workers are the limit (F6)
	kube.SendWritesOnce(rc)
	kube.BoundReads(rc)
	return rc
}
