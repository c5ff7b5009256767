// Command nrilog is an NRI plugin that logs the sandboxes it is asked about, and that it was configured.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{ log *os.File }

func (p *plugin) Configure(_ context.Context, config, runtime, version string) (stub.EventMask, error) {
	fmt.Fprintf(p.log, "configured %s %s %q\n", runtime, version, config)
	return 0, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	fmt.Fprintf(p.log, "sandbox %s/%s\n", pod.GetNamespace(), pod.GetName())
	return nil
}

func main() {
	log, err := os.OpenFile("/var/log/nrilog.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	s, err := stub.New(&plugin{log: log})
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Fprintf(log, "ended: %v\n", err)
}
