// Command snr runs the manager of medik8s' self-node-remediation. It wires the project's own packages as the project's
// program does, but opens no port: that program's webhooks listen on every address of the machine. It is built in a
// clone of the project, as docs/reference/measurements.md says: no module proxy need have that module.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/medik8s/self-node-remediation/api/v1alpha1"
	"github.com/medik8s/self-node-remediation/internal/controller"
	"github.com/medik8s/self-node-remediation/internal/reboot"
	"github.com/medik8s/self-node-remediation/internal/snrconfighelper"
	"github.com/medik8s/self-node-remediation/internal/template"
	"github.com/medik8s/self-node-remediation/internal/utils"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
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

// run needs the project's folder install, and the variable DEPLOYMENT_NAMESPACE, as the project's program does.
func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	namespace, err := utils.GetDeploymentNamespace()
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
	ctx := ctrl.SetupSignalHandler()
	if err := utils.InitOutOfServiceTaintFlagsWithRetry(ctx, config); err != nil {
		return err
	}
	log := mgr.GetLogger()
	calculator := reboot.NewCalculator(mgr.GetClient(), log.WithName("calculator"))
	if err := (&controller.SelfNodeRemediationConfigReconciler{
		Client: mgr.GetClient(), Cache: mgr.GetCache(), Log: log.WithName("SelfNodeRemediationConfig"), Scheme: kinds,
		InstallFileFolder: "./install", Namespace: namespace, RebootDurationCalculator: calculator,
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.Add(snrconfighelper.New(mgr.GetClient(), log)); err != nil {
		return err
	}
	if err := mgr.Add(template.New(mgr.GetClient(), log)); err != nil {
		return err
	}
	const remediation = "SelfNodeRemediation"
	if err := (&controller.SelfNodeRemediationReconciler{
		Client: mgr.GetClient(), Log: log.WithName(remediation), Scheme: kinds,
		Recorder: mgr.GetEventRecorderFor(remediation), RebootDurationCalculator: calculator, MyNamespace: namespace,
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
