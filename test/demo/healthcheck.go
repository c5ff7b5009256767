package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/interop"
)

// requests is the namespace of NodeHealthCheck's requests.
const requests = "forcefence-requests"

// chart is the folder of the chart. make demo runs where it is.
const chart = "deploy/helm/forcefence"

// healthCheck asks for a node that is not Ready for 10 seconds.
const healthCheck = `apiVersion: remediation.forcefence.io/v1alpha1
kind: ForcefenceRemediationTemplate
metadata: {name: forcefence, namespace: forcefence-requests}
spec: {template: {spec: {}}}
---
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: workers}
spec:
  selector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}
  minHealthy: 51%
  unhealthyConditions:
  - {type: Ready, status: Unknown, duration: 10s}
  remediationTemplate:
    apiVersion: remediation.forcefence.io/v1alpha1
    kind: ForcefenceRemediationTemplate
    name: forcefence
    namespace: forcefence-requests
`

// newRequestRounds are the rounds with NodeHealthCheck.
func newRequestRounds() []*round {
	all := newRounds()
	return []*round{all[0], {title: "Round 2: a node falls silent, and NodeHealthCheck asks",
		since: "the last heartbeat",
		first: "to ask for it and to power off", result: taint.ResultEvicted, play: (*Demo).asked}}
}

// startHealthCheck installs what requests need, and starts the real NodeHealthCheck.
func (w *World) startHealthCheck(ctx context.Context) (err error) {
	if _, err := w.Kubectl(ctx, "create", "namespace", requests); err != nil {
		return err
	}
	text, err := cluster.RenderChart(ctx, chart, "config: {remediation: {namespaces: ["+requests+"]}}",
		"crd.yaml", "remediation.yaml")
	if err != nil {
		return err
	}
	own, installed := w.file("healthcheck.yaml"), w.file("installed.yaml")
	if err := errors.Join(os.WriteFile(own, []byte(healthCheck), 0o644),
		os.WriteFile(installed, []byte(text), 0o644)); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", installed); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "wait", "--for=condition=Established", "--all", "crd"); err != nil {
		return err
	}
	if w.healthCheck, err = interop.NodeHealthCheck(ctx, w.Cluster, w.out); err != nil {
		return err
	}
	_, err = w.Kubectl(ctx, "create", "-f", own)
	return err
}

// listRequests returns the names of the requests.
func (w *World) listRequests(ctx context.Context) ([]string, error) {
	text, err := w.Kubectl(ctx, "-n", requests, "get", "forcefenceremediations", "-o", "name")
	return strings.Fields(text), err
}

// checkRequests returns what is wrong with the requests after a round: there must be none.
func (w *World) checkRequests(ctx context.Context) string {
	names, err := w.listRequests(ctx)
	switch {
	case err != nil:
		return err.Error()
	case len(names) > 0:
		return strings.Join(names, ", ")
	}
	return ""
}

// asked is the round in which NodeHealthCheck asks for a node.
func (d *Demo) asked(ctx context.Context, r *round) error {
	d.s.Say(`
  %s hangs: no heartbeat comes any more, and its machine is on. In mode onRequest forcefence powers it off only while
  NodeHealthCheck asks for that. A request proves nothing: pods move only once the %s says Off.`, r.node,
		d.w.Power.Device())
	r.zero = time.Now()
	r.silent = r.zero
	d.tell(r, "last heartbeat", "the node's pods run on")
	d.w.Host(r.node).StopHeartbeats()
	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not seen after %s", patience))
	defer cancel()
	if err := cluster.Until(limit, func(ctx context.Context) (bool, error) {
		names, err := d.w.listRequests(ctx)
		return slices.Contains(names, "forcefenceremediation.remediation.forcefence.io/"+r.node), err
	}); err != nil {
		return fmt.Errorf("%w: NodeHealthCheck does not ask for %s: %w", errCheck, r.node, err)
	}
	d.tell(r, "request", "NodeHealthCheck asks for %s; forcefence waits until it was silent for powerOffAfter: 20s",
		r.node)
	if err := d.fenced(ctx, r); err != nil {
		return err
	}
	text, err := d.w.Kubectl(ctx, "-n", requests, "get", "forcefenceremediations")
	if err != nil {
		return err
	}
	d.s.Say("\n  $ kubectl get ffr -A\n  %s", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
	return nil
}
