// Command kueue runs Kueue's controllers and its scheduler, with topologies and plain Jobs. It wires the project's own
// packages as the project's program does, but opens no port: that program's webhooks listen on every address of the
// machine. Without them objects have no defaults, so the tests set all fields.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/failurerecovery"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs/job" // registers itself
	"sigs.k8s.io/kueue/pkg/controller/tas"
	tasindexer "sigs.k8s.io/kueue/pkg/controller/tas/indexer"
	"sigs.k8s.io/kueue/pkg/scheduler"
	preemptexpectations "sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/kubeversion"
)

// failureRecovery is the feature gate FailureRecoveryPolicy, which decides about this controller alone.
var failureRecovery = flag.Bool("failure-recovery", false, "end annotated pods of unreachable nodes")

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run has the configuration's defaults, and those of the other feature gates.
func run(ctx context.Context) error {
	rest, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	rest.QPS = -1
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, kueue.AddToScheme, configapi.AddToScheme} {
		utilruntime.Must(add(kinds))
	}
	options, cfg, err := config.Load(kinds, "")
	if err != nil {
		return err
	}
	options.LeaderElection, options.HealthProbeBindAddress = false, "0"
	options.Metrics = server.Options{BindAddress: "0"}
	options.WebhookServer = closed{http.NewServeMux()}
	mgr, err := ctrl.NewManager(rest, options)
	if err != nil {
		return err
	}
	version, err := versionOf(mgr)
	if err != nil {
		return err
	}

	cache := schdcache.New(mgr.GetClient())
	requeuer := qcache.NewRequeuer()
	if err := mgr.Add(requeuer); err != nil {
		return err
	}
	preemptions := preemptexpectations.New()
	queues := qcache.NewManager(mgr.GetClient(), cache, requeuer, qcache.WithPreemptionExpectations(preemptions))

	enabled := jobframework.WithEnabledFrameworks(cfg.Integrations.Frameworks)
	if err := indexer.Setup(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := tasindexer.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := jobframework.SetupIndexes(ctx, mgr.GetFieldIndexer(), enabled); err != nil {
		return err
	}
	if name, err := core.SetupControllers(mgr, queues, cache, &cfg, nil, preemptions, nil); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	if *failureRecovery {
		if name, err := failurerecovery.SetupControllers(mgr, &cfg, nil); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	if name, err := tas.SetupControllers(mgr, queues, cache, &cfg, nil); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	managed, err := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector)
	if err != nil {
		return err
	}
	if err := jobframework.SetupControllers(ctx, mgr, mgr.GetLogger(), enabled,
		jobframework.WithKubeServerVersion(version), jobframework.WithManagerName(constants.KueueName),
		jobframework.WithCache(cache), jobframework.WithQueues(queues),
		jobframework.WithManagedJobsNamespaceSelector(managed)); err != nil {
		return err
	}
	go queues.CleanUpOnContext(ctx)
	go cache.CleanUpOnContext(ctx)
	if err := mgr.Add(scheduler.New(queues, cache, mgr.GetClient(), mgr.GetEventRecorderFor(constants.AdmissionName),
		scheduler.WithPreemptionExpectations(preemptions))); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// versionOf asks the API server for its version, which the controllers of Jobs need.
func versionOf(mgr ctrl.Manager) (*kubeversion.ServerVersionFetcher, error) {
	api, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	version := kubeversion.NewServerVersionFetcher(api)
	return version, version.FetchServerVersion()
}

// closed is a server of webhooks that does not listen: the controllers register theirs.
type closed struct{ *http.ServeMux }

func (c closed) NeedLeaderElection() bool                { return false }
func (c closed) Register(path string, hook http.Handler) { c.Handle(path, hook) }
func (c closed) StartedChecker() healthz.Checker         { return healthz.Ping }
func (c closed) WebhookMux() *http.ServeMux              { return c.ServeMux }
func (c closed) Start(ctx context.Context) error         { <-ctx.Done(); return nil }

var _ webhook.Server = closed{}
