// Command nhc runs medik8s' NodeHealthCheck controller. It wires the project's own packages as the project's program
// does, but opens no port: that program's webhooks listen on every address of the machine. This module's path is below
// the project's, because Go lets only such modules import its internal packages.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/medik8s/node-healthcheck-operator/api/v1alpha1"
	"github.com/medik8s/node-healthcheck-operator/internal/controller"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/cluster"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/initializer"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/mhc"
	"github.com/medik8s/node-healthcheck-operator/internal/controller/resources"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run needs the variable DEPLOYMENT_NAMESPACE, as the project's program does.
func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(v1alpha1.AddToScheme(kinds))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  kinds,
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Namespace{}}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	caps, err := cluster.NewCapabilities(config, mgr.GetAPIReader(), mgr.GetLogger(), ctx)
	if err != nil {
		return err
	}
	upgrades, err := cluster.NewClusterUpgradeStatusChecker(mgr, caps)
	if err != nil {
		return err
	}
	events := make(chan event.GenericEvent)
	machines, err := mhc.NewMHCChecker(mgr, caps, events)
	if err != nil {
		return err
	}
	if err := mgr.Add(machines); err != nil {
		return err
	}
	log := mgr.GetLogger().WithName("NodeHealthCheck")
	if err := (&controller.NodeHealthCheckReconciler{
		Client: mgr.GetClient(), Log: log, Recorder: mgr.GetEventRecorderFor("NodeHealthCheck"),
		ClusterUpgradeStatusChecker: upgrades, MHCChecker: machines, Capabilities: caps, MHCEvents: events,
		WatchManager: resources.NewWatchManager(mgr.GetClient(), log, mgr.GetCache()),
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.Add(initializer.New(mgr, caps, log)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
