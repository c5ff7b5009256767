// Command controlplane is etcd, kube-apiserver, kube-controller-manager or kube-scheduler, by the name under which it
// is started. It runs what the main functions of these four run. One link of one program takes less time than four.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // for CronJobs' time zones

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format JSON
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	components := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          newScheduler,
	}
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args) // exits
	}
	newCommand, ok := components[name]
	if !ok {
		fmt.Fprintln(os.Stderr,
			"start it as etcd, kube-apiserver, kube-controller-manager or kube-scheduler, not as "+name)
		os.Exit(2)
	}
	os.Exit(cli.Run(newCommand()))
}

// newScheduler has no plugins beside Kubernetes' own.
func newScheduler() *cobra.Command { return scheduler.NewSchedulerCommand() }
