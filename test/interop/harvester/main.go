// Command harvester runs Harvester's controller of nodes that are down, and its settings. It wires the project's own
// packages as the project's program does. That program serves an API and a dashboard, and runs all controllers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/harvester/harvester/pkg/config"
	"github.com/harvester/harvester/pkg/controller/global/settings"
	"github.com/harvester/harvester/pkg/controller/master/node"
	harvesterhci "github.com/harvester/harvester/pkg/generated/controllers/harvesterhci.io"
	"github.com/rancher/wrangler/v3/pkg/generated/controllers/core"
	"github.com/rancher/wrangler/v3/pkg/start"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Lookup("kubeconfig").Value.String()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	hci, err := harvesterhci.NewFactoryFromConfig(rest)
	if err != nil {
		return err
	}
	nodes, err := core.NewFactoryFromConfig(rest)
	if err != nil {
		return err
	}
	// First the settings: the controller reads vm-force-reset-policy from them.
	if err := settings.Register(ctx, &config.Scaled{HarvesterFactory: hci}, nil, config.Options{}); err != nil {
		return fmt.Errorf("making settings: %w", err)
	}
	management := &config.Management{HarvesterFactory: hci, CoreFactory: nodes}
	if err := node.DownRegister(ctx, management, config.Options{}); err != nil {
		return err
	}
	if err := start.All(ctx, 1, hci, nodes); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
