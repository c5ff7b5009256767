// Command far runs medik8s' fence-agents-remediation. It wires the project's own packages as the project's program
// does, but opens no port: that program's webhooks listen on every address of the machine. This module's path is below
// the project's, because Go lets only such modules import its internal packages.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/medik8s/fence-agents-remediation/api/v1alpha1"
	"github.com/medik8s/fence-agents-remediation/internal/controller"
	"github.com/medik8s/fence-agents-remediation/pkg/cli"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	// As the project's program: the time of an agent's success is compared with those of pods.
	ctrl.SetLogger(zap.New(func(o *zap.Options) { o.TimeEncoder = zapcore.RFC3339NanoTimeEncoder }))
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run needs the variable DEPLOYMENT_NAMESPACE, as the project's program does. It runs fence agents as its children.
func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(v1alpha1.AddToScheme(kinds))
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: kinds, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	agents, err := cli.NewExecuter(mgr.GetClient(), mgr.GetEventRecorderFor("FenceAgentsRemediation-executer"))
	if err != nil {
		return err
	}
	const remediation = "FenceAgentsRemediation"
	if err := (&controller.FenceAgentsRemediationReconciler{
		Client: mgr.GetClient(), Log: mgr.GetLogger().WithName(remediation), Scheme: kinds,
		Recorder: mgr.GetEventRecorderFor(remediation), Executor: agents,
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	const template = remediation + "Template"
	if err := (&controller.FenceAgentsRemediationTemplateReconciler{
		Client: mgr.GetClient(), Log: mgr.GetLogger().WithName(template), Scheme: kinds,
		Recorder: mgr.GetEventRecorderFor(template), Executor: agents,
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
