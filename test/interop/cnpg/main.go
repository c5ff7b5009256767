// Command cnpg runs CloudNativePG's controllers of Clusters and Backups. It wires the project's own packages as the
// project's program does, but opens no port: that program's webhooks listen on every address of the machine. This
// module's path is below the project's, because Go lets only such modules import its internal packages.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/cloudnative-pg/cloudnative-pg/internal/cnpi/plugin/repository"
	"github.com/cloudnative-pg/cloudnative-pg/internal/configuration"
	"github.com/cloudnative-pg/cloudnative-pg/internal/controller"
	"github.com/cloudnative-pg/cloudnative-pg/internal/scheme"
	"github.com/cloudnative-pg/cloudnative-pg/pkg/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// leaseName is that of the project's program.
const leaseName = "db9c8771.cnpg.io"

func main() {
	identity := flag.String("identity", "", "take the Lease "+leaseName+" first, as this holder")
	dir := flag.String("dir", "", "an empty folder, for the copies of itself that the project's image has")
	flag.Parse() // --kubeconfig is controller-runtime's
	ctrl.SetLogger(zap.New())
	err := linkManager(*dir)
	if err == nil {
		err = run(*identity)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// linkManager makes this program the only one that the operator hands to its instances, and the folder the current one.
func linkManager(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.Mkdir("operator", 0o700); err != nil {
		return err
	}
	if err := os.Symlink(self, filepath.Join("operator", "manager_"+runtime.GOARCH)); err != nil {
		return err
	}
	return utils.DetectAvailableArchitectures()
}

// run needs the variables OPERATOR_NAMESPACE and OPERATOR_IMAGE_NAME, as the project's program does.
func run(identity string) error {
	configuration.Current.ReadConfigMap(nil)
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         scheme.BuildWithAllKnownScheme(),
		Metrics:        server.Options{BindAddress: "0"},
		LeaderElection: true,
		LeaderElectionResourceLockInterface: &resourcelock.LeaseLock{ // the project's would have this machine's name
			LeaseMeta:  metav1.ObjectMeta{Namespace: configuration.Current.OperatorNamespace, Name: leaseName},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
	})
	if err != nil {
		return err
	}
	server, err := utils.GetDiscoveryClient()
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	plugins := repository.New()
	defer plugins.Close()
	if err := controller.NewClusterReconciler(mgr, server, plugins, configuration.Current.DrainTaints).
		SetupWithManager(ctx, mgr, 4); err != nil {
		return err
	}
	// Its index of Backups is what the controller of Clusters looks for one in.
	if err := controller.NewBackupReconciler(mgr, server, plugins).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
