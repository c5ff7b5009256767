package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/forcefence/forcefence/cmd/internal/config"
)

// The ClusterRoles that commands need: those of deploy/, and Kubernetes' own for administrators.
const (
	roleLook    = "forcefence-look"
	roleExplain = "forcefence-explain"
	roleOperate = "forcefence-operate"
	roleAdmin   = "cluster-admin"
)

// roleAnnotation is a command's annotation that names the ClusterRole with the rights that it needs.
const roleAnnotation = "forcefence.io/role"

// withRole sets roleAnnotation on a command, and returns the command.
func withRole(cmd *cobra.Command, role string) *cobra.Command {
	cmd.Annotations = map[string]string{roleAnnotation: role}
	return cmd
}

// rbacDenial matches the message of Kubernetes' RBAC for a denied request.
var rbacDenial = regexp.MustCompile(
	`User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)" ` +
		`(?:at the cluster scope|in the namespace "([^"]+)")`,
)

// denial is a request that RBAC refused.
type denial struct {
	action    string // what the program was doing, such as "listing nodes: "; "" if the error does not say it
	user      string
	verb      string
	resource  string // resource.group
	namespace string // "" for the cluster
}

// denialOf returns the request that an error reports as refused; nil for other errors.
func denialOf(err error) *denial {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return nil
	}
	message := status.Status().Message
	m := rbacDenial.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	action, _, _ := strings.Cut(err.Error(), message)
	return &denial{action, m[1], m[2], strings.TrimSuffix(m[3]+"."+m[4], "."), m[5]}
}

// right returns the missing right in the form of kubectl auth can-i.
func (d *denial) right() string {
	text := d.verb + " " + d.resource
	if d.namespace != "" {
		text += " -n " + d.namespace
	}
	return text
}

// roleWith returns the role that has the right, and kubectl's command to bind it to the user. needs is the ClusterRole
// of the command, which has no rights that are only given in a namespace.
func (d *denial) roleWith(needs string) (role, bind string) {
	kind, name, binding := "ClusterRole", needs, "clusterrolebinding"
	switch {
	case d.resource == "configmaps" && d.verb != "get":
		kind, name, binding = "Role", "forcefence-pauser", "rolebinding -n "+d.namespace
	case strings.HasPrefix(d.resource, "pods") && needs == roleLook:
		name, binding = "forcefence-logs", "rolebinding -n "+d.namespace
	}
	return kind + " " + name, fmt.Sprintf("kubectl create %s %s-%s --%s=%s --user=%s",
		binding, name, d.user, strings.ToLower(kind), name, d.user)
}

// describe says which right is missing, and which role has it.
func (d *denial) describe(needs string) string {
	role, _ := d.roleWith(needs)
	return fmt.Sprintf("you lack the right: %s (the %s has it)", d.right(), role)
}

// describeUnread says why something could not be read by a command that needs a ClusterRole.
func describeUnread(err error, needs string) string {
	if d := denialOf(err); d != nil {
		return d.describe(needs)
	}
	return err.Error()
}

// commandPath returns the command's name without the program's.
func commandPath(cmd *cobra.Command) (words []string) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		words = append([]string{cmd.Name()}, words...)
	}
	return words
}

// advice is what to do about errors that any command may have.
var advice = []struct {
	applies func(*cobra.Command, error) bool
	text    string
}{
	{func(_ *cobra.Command, err error) bool { return apierrors.IsUnauthorized(err) }, "Log in to the cluster again"},
	{func(cmd *cobra.Command, err error) bool { // a command with a configuration may have asked a device
		return utilnet.IsConnectionRefused(err) && cmd.Flags().Lookup("config") == nil
	}, "`kubectl cluster-info` shows whether the API server answers"},
	{func(_ *cobra.Command, err error) bool {
		var status apierrors.APIStatus
		return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
			status.Status().Details.Kind == "nodes"
	}, "`kubectl get nodes` lists the nodes"},
}

// describeError returns what a command prints about its error: what is wrong, and what to do about it.
func describeError(cmd *cobra.Command, err error) string {
	needs := cmd.Annotations[roleAnnotation]
	if d := denialOf(err); d != nil && needs != "" {
		_, bind := d.roleWith(needs)
		return d.action + d.describe(needs) + ". An administrator gives it to you with:\n" + bind
	}
	if file := cmd.Flags().Lookup("config"); errors.Is(err, fs.ErrNotExist) && file != nil && !file.Changed {
		return err.Error() + "\nThis command needs the controller's configuration and access to the devices. You can " +
			"run it in the controller's pod:\nkubectl -n forcefence-system exec deploy/forcefence -- " +
			"/ko-app/forcefence " + strings.Join(append(commandPath(cmd), cmd.Flags().Args()...), " ")
	}
	for _, a := range advice {
		if a.applies(cmd, err) {
			return err.Error() + ". " + a.text
		}
	}
	var faults config.Errors
	if errors.As(err, &faults) {
		return fmt.Sprintf("the configuration has faults (%d). Correct:\n%v", len(faults), err)
	}
	return err.Error()
}
