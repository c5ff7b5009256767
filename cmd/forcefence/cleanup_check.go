package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
)

// errStillNeeded is the result of cleanup --check while a node needs the controller or the hook's DaemonSet.
var errStillNeeded = errors.New("forcefence must not be uninstalled yet")

// checkUninstall prints what must be done before an uninstall. It only lists Nodes, and returns errStillNeeded if one
// is marked, has an open fence, or has the hook.
func (o cleanup) checkUninstall(ctx context.Context, namespace string) error {
	var list corev1.NodeList
	if err := o.client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	open, hooked := o.nodesInNeed(list.Items)
	if len(open)+len(hooked) == 0 {
		fmt.Fprintln(o.out, "No node is marked or has the hook: forcefence can be uninstalled.")
		return nil
	}
	fmt.Fprint(o.out, describeUninstall(open, hooked, namespace))
	return errStillNeeded
}

// nodesInNeed returns the names of the nodes that are marked or whose fence is not done, and of those with the hook.
func (o cleanup) nodesInNeed(nodes []corev1.Node) (open, hooked []string) {
	for i := range nodes {
		n := &nodes[i]
		if o.leftOn(n).open != "" {
			open = append(open, n.Name)
		}
		if _, protection := taint.ProtectionOf(n); protection != "" && protection != taint.ProtectionNone {
			hooked = append(hooked, n.Name)
		}
	}
	return open, hooked
}

// describeUninstall says which nodes are in the way of an uninstall, and prints the two commands to run first.
func describeUninstall(open, hooked []string, namespace string) string {
	var text strings.Builder
	if len(open) > 0 {
		fmt.Fprintf(&text, "Marked, or with a fence that is not done: %s.\n"+
			"  Wait for the controller to finish, or end each fence: forcefence release NODE --yes\n",
			view.FormatNames(open))
	}
	if len(hooked) > 0 {
		fmt.Fprintf(&text, "With the hook on the host: %s.\n"+
			"  Its plugin would stay there, and hold the pods of a marked node.\n", view.FormatNames(hooked))
	}
	fmt.Fprintf(&text, `
Once no node is marked, run these two commands, and then helm uninstall again:

  helm upgrade forcefence CHART --namespace %s --reuse-values --wait --set controller.replicas=0,hook.uninstall=true
  forcefence cleanup --yes

The option --no-hooks uninstalls forcefence without this check.
`, namespace)
	return text.String()
}
