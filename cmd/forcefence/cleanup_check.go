package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/writes"
)

// errStillNeeded is the result of cleanup --check while a node needs the controller or the hook's DaemonSet.
var errStillNeeded = errors.New("forcefence must not be uninstalled yet")

// checkUninstall prints what must be done before an uninstall, and what others obey without forcefence. It only lists,
// and returns errStillNeeded if a node is marked, has an open fence or the hook, or may be shut out of its storage.
func (o cleanup) checkUninstall(ctx context.Context, namespace string) error {
	var list corev1.NodeList
	if err := o.client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	orders, err := o.readOrders(ctx, list.Items)
	if err != nil {
		return err
	}
	open, hooked := o.nodesInNeed(list.Items)
	shut := slices.ContainsFunc(orders, func(o writes.Order) bool { return o.Resource == app.FencesResource })
	if len(open)+len(hooked) == 0 && !shut {
		fmt.Fprint(o.out, "No node is marked or has the hook: forcefence can be uninstalled.\n"+describeOrders(orders))
		return nil
	}
	fmt.Fprint(o.out, describeUninstall(open, hooked, orders, namespace))
	return errStillNeeded
}

// describeOrders says what others obey without forcefence; "" if nothing.
func describeOrders(orders []writes.Order) string {
	if len(orders) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("Others obey these without forcefence. The page about upgrades says how to end each:\n")
	for _, o := range orders {
		fmt.Fprintf(&text, "  %s\n", o.Text())
	}
	return text.String()
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
func describeUninstall(open, hooked []string, orders []writes.Order, namespace string) string {
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
	text.WriteString(describeOrders(orders))
	fmt.Fprintf(&text, `
Once no node is marked or shut out, run these two commands, and then helm uninstall again:

  helm upgrade forcefence CHART --namespace %s --reuse-values --wait --set controller.replicas=0,hook.uninstall=true
  forcefence cleanup --yes

The option --no-hooks uninstalls forcefence without this check.
`, namespace)
	return text.String()
}
