package peers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/interop"
)

const (
	fenceAgent = "fence_redfish"

	far     = "fence-agents-remediation.medik8s.io"
	snr     = "self-node-remediation.medik8s.io"
	nhcKind = "nodehealthcheck.remediation.medik8s.io"
	check   = "peers" // name of the NodeHealthCheck
)

// system is one of the peers.
type system struct {
	name     string
	programs []program // in the order of their start

	// objects returns what starts the system as YAML, a NodeHealthCheck and its template or templates of pods; nil: the
	// system has none. requests are the kinds of what it and the programs make, in the order in which they are deleted.
	objects  func(Options) (string, error)
	requests []string

	begin func(context.Context, *Peers) error // the last step of a start
	end   func(context.Context, *Peers) error // removes what its programs left, which have ended; nil: nothing
}

// program is one of a system's, which several systems may have.
type program struct {
	name, short string // of its file, and in tables
	clone       string // name of its folder in Clones; "": its module has it

	// start installs the program and starts it. It gets the clone's path.
	start func(ctx context.Context, p *Peers, clone string) (*cluster.Part, error)
}

var (
	healthCheck = program{name: binaries.NodeHealthCheck, short: "NHC",
		start: func(ctx context.Context, p *Peers, _ string) (*cluster.Part, error) {
			return interop.NodeHealthCheck(ctx, p.c, p.o.Dir)
		}}
	fenceAgents = program{name: binaries.FenceAgents, short: "FAR",
		start: func(ctx context.Context, p *Peers, _ string) (*cluster.Part, error) {
			if err := needAgent(); err != nil {
				return nil, err
			}
			return interop.FenceAgents(ctx, p.c, p.o.Dir, "REQUESTS_CA_BUNDLE="+p.o.CAFile)
		}}
	selfNodes = program{name: "snr", short: "SNR", clone: "self-node-remediation",
		start: func(ctx context.Context, p *Peers, clone string) (*cluster.Part, error) {
			return interop.SelfNodeRemediation(ctx, p.c, p.o.Dir, clone)
		}}
	kueue = program{name: binaries.Kueue, short: "Kueue",
		start: func(ctx context.Context, p *Peers, _ string) (*cluster.Part, error) {
			return interop.Kueue(ctx, p.c, p.o.Dir, "-failure-recovery")
		}}
)

var systems = map[string]system{
	FARTaint:    withFAR(FARTaint, "OutOfServiceTaint"),
	FARDeletion: withFAR(FARDeletion, "ResourceDeletion"),
	SNR: {
		name: SNR, programs: []program{healthCheck, selfNodes}, begin: armNodes,
		requests: []string{nhcKind, "selfnoderemediations." + snr, "selfnoderemediationconfigs." + snr},
		objects: func(o Options) (string, error) {
			return fmt.Sprintf(`apiVersion: %s/v1alpha1
kind: SelfNodeRemediationTemplate
metadata: {name: peers, namespace: snr-system}
spec: {template: {spec: {remediationStrategy: Automatic}}}
---
`, snr) + nodeHealthCheck(o, snr+"/v1alpha1", "SelfNodeRemediationTemplate", "snr-system"), nil
		},
	},
	Kueue:            {name: Kueue, programs: []program{kueue}, begin: annotatePods},
	KubeFencing:      withKubeFencing(KubeFencing, "flush"),
	KubeFencingTaint: withKubeFencing(KubeFencingTaint, "taint"),
}

// armNodes does what the agents of self-node-remediation do on real nodes: they say that their node has a watchdog. A
// simulated node runs the agents' pods without their program. As no node has a watchdog's timeout, the manager takes
// its default, a minute.
func armNodes(ctx context.Context, p *Peers) error {
	if _, err := p.c.Kubectl(ctx, "annotate", "nodes", "--all", "--overwrite",
		"is-reboot-capable.self-node-remediation.medik8s.io=true"); err != nil {
		return err
	}
	const agents = "daemonset/self-node-remediation-ds"
	if _, err := p.c.Kubectl(ctx, "wait", "--timeout=60s", "-n", "snr-system", "--for=create", agents); err != nil {
		return err
	}
	if _, err := p.c.Kubectl(ctx, "rollout", "status", "--timeout=60s", "-n", "snr-system", agents); err != nil {
		return err
	}
	return checkEnabled(ctx, p)
}

// annotatePods permits Kueue to end all pods that are there. It ends no pod without the annotation.
func annotatePods(ctx context.Context, p *Peers) error {
	_, err := p.c.Kubectl(ctx, "annotate", "pods", "--all", "--overwrite", "-n", p.o.Namespace,
		"kueue.x-k8s.io/safe-to-forcefully-delete=true")
	return err
}

// withFAR is NodeHealthCheck that asks fence-agents-remediation in the given mode.
func withFAR(name, mode string) system {
	return system{
		name: name, programs: []program{healthCheck, fenceAgents},
		requests: []string{nhcKind, "fenceagentsremediations." + far}, begin: checkEnabled,
		objects: func(o Options) (string, error) {
			template, err := farTemplate(o, mode)
			check := nodeHealthCheck(o, far+"/v1alpha1", "FenceAgentsRemediationTemplate", "far-system")
			return template + "---\n" + check, err
		},
	}
}

// nodeHealthCheck asks with a template of that kind for each node that is not Ready. Its defaults are the project's,
// except for the five minutes that it waits.
func nodeHealthCheck(o Options, group, kind, namespace string) string {
	return fmt.Sprintf(`apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: %[1]s}
spec:
  selector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}
  minHealthy: 51%%
  unhealthyConditions:
  - {type: Ready, status: Unknown, duration: %[2]s}
  - {type: Ready, status: "False", duration: %[2]s}
  remediationTemplate: {apiVersion: %[3]s, kind: %[4]s, name: peers, namespace: %[5]s}
`, check, cmp.Or(o.Patience, time.Second), group, kind, namespace)
}

// checkEnabled waits until the NodeHealthCheck has found its template.
func checkEnabled(ctx context.Context, p *Peers) error {
	_, err := p.c.Kubectl(ctx, "wait", "--timeout=60s", "--for=jsonpath={.status.phase}=Enabled", nhcKind+"/"+check)
	return err
}

// farTemplate has fence_redfish do the action at each node's BMC.
func farTemplate(o Options, mode string) (string, error) {
	var hosts, ports, paths []string
	for _, node := range slices.Sorted(maps.Keys(o.BMCs)) {
		host, port, path, err := deviceOf(node, o.BMCs[node])
		if err != nil {
			return "", err
		}
		hosts = append(hosts, fmt.Sprintf("%q: %q", node, host))
		ports = append(ports, fmt.Sprintf("%q: %q", node, port))
		if path != "" {
			paths = append(paths, fmt.Sprintf("%q: %q", node, path))
		}
	}
	return fmt.Sprintf(`apiVersion: %s/v1alpha1
kind: FenceAgentsRemediationTemplate
metadata: {name: peers, namespace: far-system}
spec:
  template:
    spec:
      agent: %s
      remediationStrategy: %s
      sharedparameters: {"--action": %q, "--username": %q, "--password": %q}
      nodeparameters:
        "--ip": {%s}
        "--ipport": {%s}
        "--systems-uri": {%s}
`, far, fenceAgent, mode, o.Action, o.Username, o.Password, strings.Join(hosts, ", "), strings.Join(ports, ", "),
		strings.Join(paths, ", ")), nil
}
