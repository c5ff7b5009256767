package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide"
)

// The ClusterRoles that commands need: those of deploy/, and Kubernetes' own for administrators.
const (
	roleLook    = "forcefence-look"
	roleExplain = "forcefence-explain"
	roleOperate = "forcefence-operate"
	rolePauser  = "forcefence-pauser"
	roleAdmin   = "cluster-admin"
	// rolePrepare is for commands that people use before an installation, when none of forcefence's roles exists.
	rolePrepare = "forcefence-prepare"
	// roleKeys is for the person who makes and revokes the keys that sign. The chart has no such role.
	roleKeys = "forcefence-keys"
	// roleRun is the controller's own, for a person who runs it outside of the cluster.
	roleRun = "forcefence-controller"
)

// anonymous is the user of a request without credentials.
const anonymous = "system:anonymous"

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
	case needs == rolePrepare:
		return "ClusterRole " + roleLook, fmt.Sprintf(
			"kubectl create clusterrole %[1]s --verb=%[2]s --resource=%[3]s\n"+
				"kubectl create clusterrolebinding %[1]s-%[4]s --clusterrole=%[1]s --user=%[4]s",
			needs, strings.Join(listWith([]string{"get", "list"}, d.verb), ","),
			strings.Join(listWith([]string{"nodes", "leases.coordination.k8s.io"}, d.resource), ","), d.user)
	case needs == roleKeys && d.resource == "leases.coordination.k8s.io":
		name = roleLook
	case needs == roleKeys:
		return "Role " + roleKeys, d.grantKeys()
	case needs == roleRun && controllerRoles[d.namespace+"/"+d.resource] != "":
		kind, name, binding = "Role", controllerRoles[d.namespace+"/"+d.resource], "rolebinding -n "+d.namespace
	case needs == roleRun && d.namespace != "" && d.resource == "configmaps":
		kind, name, binding = "Role", "forcefence-pause", "rolebinding -n "+d.namespace
	case d.resource == "leases.coordination.k8s.io" && needs == rolePauser:
		name = roleLook
	case d.resource == "configmaps" && needs == roleExplain: // the deployed configuration
		name = roleLook
	case d.resource == "configmaps" && (d.verb != "get" || needs == rolePauser):
		kind, name, binding = "Role", "forcefence-pauser", "rolebinding -n "+d.namespace
	case strings.HasPrefix(d.resource, "pods") && needs == roleLook:
		name, binding = "forcefence-logs", "rolebinding -n "+d.namespace
	}
	return kind + " " + name, fmt.Sprintf("kubectl create %s %s-%s --%s=%s --user=%s",
		binding, name, d.user, strings.ToLower(kind), name, d.user)
}

// controllerRoles has the Roles by which the controller has a right in a namespace alone.
var controllerRoles = map[string]string{
	"kube-system/leases.coordination.k8s.io":     "forcefence-leader",
	"kube-node-lease/leases.coordination.k8s.io": "forcefence-heartbeats",
}

// grantKeys returns the commands that give the user the rights on the two objects with keys, and no others: who may
// create Secrets could make a token of each account in the namespace. So the administrator creates a missing object.
func (d *denial) grantKeys() string {
	text := ""
	if d.verb == "create" {
		text = fmt.Sprintf("kubectl -n %[1]s create secret generic %[2]s\nkubectl -n %[1]s create configmap %[3]s\n",
			d.namespace, config.SigningSecret, config.KeysConfigMap)
	}
	for _, o := range []struct{ role, resource, name string }{
		{roleKeys, "secrets", config.SigningSecret}, {roleKeys + "-public", "configmaps", config.KeysConfigMap},
	} {
		text += fmt.Sprintf("kubectl -n %[1]s create role %[2]s --verb=get,update --resource=%[3]s "+
			"--resource-name=%[4]s\nkubectl -n %[1]s create rolebinding %[2]s-%[5]s --role=%[2]s --user=%[5]s\n",
			d.namespace, o.role, o.resource, o.name, d.user)
	}
	return strings.TrimSuffix(text, "\n")
}

// listWith returns the texts, with one more unless they have it.
func listWith(texts []string, one string) []string {
	if slices.Contains(texts, one) {
		return texts
	}
	return append(texts, one)
}

// describe says which right is missing, and which role has it.
func (d *denial) describe(needs string) string {
	if d.user == anonymous {
		return "you are not logged in (" + anonymous + ")"
	}
	role, _ := d.roleWith(needs)
	has := "has it"
	switch {
	case needs == rolePrepare:
		has = "has it, once forcefence is installed"
	case strings.HasSuffix(role, roleKeys):
		return "you lack the right: " + d.right() // the commands make the role
	}
	return fmt.Sprintf("you lack the right: %s (the %s %s)", d.right(), role, has)
}

// whoGives returns who binds a role.
func whoGives(needs string) string {
	if needs == rolePrepare {
		return "Before that an administrator"
	}
	return "An administrator"
}

// describeUnread says why something could not be read by a command that needs a ClusterRole.
func describeUnread(err error, needs string) string {
	if d := denialOf(err); d != nil {
		return d.describe(needs)
	}
	return err.Error()
}

// advice is what to do about errors that any command may have.
var advice = []struct {
	applies func(error) bool
	text    string
}{
	{apierrors.IsUnauthorized, "Log in to the cluster again"},
	{func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "server groups")
	},
		"The API server does not even list its APIs for you: you are not logged in (" + anonymous + "), or it " +
			"forbids that. " + whoAmI},
	{func(err error) bool {
		var unknown *net.DNSError
		return isFromAPIServer(err) && errors.As(err, &unknown)
	}, "The name is that of `server` in your kubeconfig: `kubectl config view` shows it"},
	{func(err error) bool {
		var bad *tls.CertificateVerificationError
		return isFromAPIServer(err) && errors.As(err, &bad)
	}, "The certificate-authority of your kubeconfig did not sign the API server's certificate, or that is for " +
		"another name: `kubectl config view` shows both"},
	{func(err error) bool { return isFromAPIServer(err) && utilnet.IsConnectionRefused(err) },
		"`kubectl cluster-info` shows whether the API server answers"},
	{func(err error) bool { return strings.Contains(err.Error(), "invalid character '<'") },
		"This is a web page and no answer of an API server: does `server` in your kubeconfig lead to a proxy or a " +
			"login? `kubectl config view` shows it"},
	{apierrors.IsServiceUnavailable, "The API server, or a proxy before it, is not ready: try again"},
	{func(err error) bool {
		var status apierrors.APIStatus
		return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
			status.Status().Details.Kind == "nodes"
	}, "`kubectl get nodes` lists the nodes"},
}

// whoAmI is what to do about a kubeconfig without credentials.
const whoAmI = "Log in, or choose another --context or --user: `kubectl auth whoami` shows who you are"

// isFromAPIServer reports whether an error is of a request to the API server, and not to a device.
func isFromAPIServer(err error) bool {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return false
	}
	at, err := url.Parse(failed.URL)
	return err == nil && apiPath.MatchString(at.Path)
}

// apiPath matches the paths of the API server, which may be behind a proxy.
var apiPath = regexp.MustCompile(`/(api|apis|version)(/|$)`)

// describeError returns what a command prints about its error: what is wrong, and what to do about it.
func describeError(cmd *cobra.Command, err error) string {
	needs := cmd.Annotations[roleAnnotation]
	if d := denialOf(err); d != nil && d.user == anonymous {
		return d.action + d.describe(needs) + ". " + whoAmI
	} else if d != nil && needs != "" {
		_, bind := d.roleWith(needs)
		return d.action + d.describe(needs) + ". " + whoGives(needs) + " gives it to you with:\n" + bind
	}
	text := strings.ReplaceAll(err.Error(), "failed to get server groups: ", "")
	for _, a := range advice {
		if a.applies(err) {
			return text + ". " + a.text
		}
	}
	var faults config.Errors
	if errors.As(err, &faults) {
		return fmt.Sprintf("the configuration has %s:\n%v", decide.FormatCount(len(faults), "fault"), err)
	}
	return text
}
