package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/interop"
)

const fencingName = "kube-fencing" // its namespace, program, clone, and the label of its agents' pods

var kubeFencing = program{name: fencingName, short: "kube-fencing", clone: fencingName,
	start: func(ctx context.Context, p *Peers, clone string) (*cluster.Part, error) {
		if err := needAgent(); err != nil {
			return nil, err
		}
		return interop.KubeFencing(ctx, p.c, p.o.Dir, clone)
	}}

// withKubeFencing is kube-fencing in the given mode.
func withKubeFencing(name, mode string) system {
	return system{
		name: name, programs: []program{kubeFencing}, begin: enableFencing, end: removeFencing,
		objects: func(o Options) (string, error) { return fencingTemplates(o, mode) },
	}
}

// fencingTemplates returns a PodTemplate for each node, of which kube-fencing makes a Job. Its pod runs fence_redfish
// at the node's BMC.
func fencingTemplates(o Options, mode string) (string, error) {
	var all strings.Builder
	for _, node := range slices.Sorted(maps.Keys(o.BMCs)) {
		host, port, path, err := deviceOf(node, o.BMCs[node])
		if err != nil {
			return "", err
		}
		args := []string{"--action=" + o.Action, "--ip=" + host, "--ipport=" + port,
			"--username=" + o.Username, "--password=" + o.Password}
		if path != "" {
			args = append(args, "--systems-uri="+path)
		}
		text, err := json.Marshal(args)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&all, `---
apiVersion: v1
kind: PodTemplate
metadata:
  name: %q
  namespace: %[2]s
  annotations: {fencing/mode: %s, fencing/timeout: "%.0f"}
template:
  metadata: {labels: {app.kubernetes.io/name: %[2]s}}
  spec:
    restartPolicy: OnFailure
    containers: [{name: fence, image: "registry.example.net/fence-agents:1", args: %[5]s}]
`, node, fencingName, mode, o.Patience.Seconds(), text)
	}
	return all.String(), nil
}

// enableFencing does what kube-fencing's DaemonSet and the kubelets do on real nodes: it annotates the nodes, and runs
// the agent in the pods. An agent that succeeds prints a line as FAR's log has it.
func enableFencing(ctx context.Context, p *Peers) error {
	agent := filepath.Join(p.o.Dir, fencingName+".sh")
	if err := os.WriteFile(agent, fmt.Appendf(nil, `#!/bin/sh
REQUESTS_CA_BUNDLE=%q /usr/sbin/%s "$@" || exit
date -u '+{"ts":"%%Y-%%m-%%dT%%H:%%M:%%S.%%NZ","msg":"command completed"}'
`, p.o.CAFile, fenceAgent), 0o700); err != nil {
		return err
	}
	p.agents = p.c.RunCommands(agent, fencingName)
	for node := range p.o.BMCs {
		if _, err := p.c.Kubectl(ctx, "annotate", "node", node, "--overwrite", "fencing/enabled=true",
			"fencing/template="+node); err != nil {
			return err
		}
	}
	return nil
}

// removeFencing removes the Jobs with their pods, the leader's Lease, and kube-fencing's annotations of the nodes.
func removeFencing(ctx context.Context, p *Peers) error {
	_, err := p.c.Kubectl(ctx, "delete", "jobs,leases", "--all", "-n", fencingName, "--cascade=foreground",
		"--timeout=60s")
	_, failed := p.c.Kubectl(ctx, "annotate", "nodes", "--all", "fencing/enabled-", "fencing/template-",
		"fencing/state-", "fencing/timestamp-")
	return errors.Join(err, failed)
}
