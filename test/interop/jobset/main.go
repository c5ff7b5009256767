// Command jobset runs JobSet's controllers. It wires the project's own packages as the project's program does, but
// opens no port: that program's webhooks listen on every address of the machine. Without them a JobSet has no defaults,
// so the tests set all fields.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(jobset.AddToScheme(kinds))
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: kinds, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := controllers.SetupPodIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	events := mgr.GetEventRecorderFor("jobset")
	if err := controllers.NewJobSetReconciler(mgr.GetClient(), kinds, events).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := controllers.NewPodReconciler(mgr.GetClient(), kinds, events).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
