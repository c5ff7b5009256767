package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forcefence/forcefence/cmd/internal/version"
)

// clusterFlags holds kubectl's flags for finding the API server and for the user to act as.
type clusterFlags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

func (r *clusterFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(
		&r.kubeconfig, "kubeconfig", "",
		"how to reach the API server (default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config)",
	)
	all := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&r.overrides, f, clientcmd.ConfigOverrideFlags{
		CurrentContext: all.CurrentContext,
		ContextOverrideFlags: clientcmd.ContextOverrideFlags{
			ClusterName:  all.ContextOverrideFlags.ClusterName,
			AuthInfoName: all.ContextOverrideFlags.AuthInfoName,
		},
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate:       all.AuthOverrideFlags.Impersonate,
			ImpersonateGroups: all.AuthOverrideFlags.ImpersonateGroups,
		},
		Timeout: all.Timeout,
	})
}

// addNamespaceFlag adds -n, the controller's namespace.
func (r *clusterFlags) addNamespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(
		&r.overrides.Context.Namespace, "namespace", "n", "", "the controller's namespace (default: that of its Lease)",
	)
}

// restConfig finds the API server as kubectl does, and in a pod by its ServiceAccount.
func (r *clusterFlags) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = r.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &r.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	cfg.UserAgent, cfg.QPS, cfg.Burst = version.UserAgent("forcefence"), 50, 300 // kubectl's own limits
	return cfg, nil
}

// newClient returns a client that keeps no cache: it asks the API server each time.
func (r *clusterFlags) newClient() (client.WithWatch, error) {
	cfg, err := r.restConfig()
	if err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // of the libraries: a command reports errors itself
	c, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	return c, nil
}

// roleAnnotation is a command's annotation that names the ClusterRole in deploy/ with the rights that it needs.
const roleAnnotation = "forcefence.io/role"

// withRole sets roleAnnotation on a command, and returns the command.
func withRole(cmd *cobra.Command, role string) *cobra.Command {
	cmd.Annotations = map[string]string{roleAnnotation: role}
	return cmd
}

// rbacDenial matches the message of Kubernetes' RBAC for a denied request.
var rbacDenial = regexp.MustCompile(
	`cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]+)")`,
)

// missingRight returns the right that an error reports as missing, in the form of kubectl auth can-i; "" for other
// errors.
func missingRight(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return ""
	}
	m := rbacDenial.FindStringSubmatch(status.Status().Message)
	if m == nil {
		return ""
	}
	text := m[1] + " " + m[2]
	if m[3] != "" {
		text += "." + m[3]
	}
	if m[4] != "" {
		text += " -n " + m[4]
	}
	return text
}

// commandPath returns the command's name without the program's.
func commandPath(cmd *cobra.Command) (words []string) {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		words = append([]string{cmd.Name()}, words...)
	}
	return words
}

// adviceFor returns advice for a person about a command's error; "" if there is none.
func adviceFor(cmd *cobra.Command, err error) string {
	right := missingRight(err)
	switch {
	case right == "" && errors.Is(err, fs.ErrNotExist) && cmd.Flags().Lookup("config") != nil &&
		!cmd.Flags().Changed("config"):
		return "This command needs the controller's configuration and reaches the devices. Where these are not at hand, run it in the controller's pod:\n" +
			"kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence " + strings.Join(
			append(commandPath(cmd), cmd.Flags().Args()...), " ",
		)
	case right == "":
		return ""
	}
	text := "You lack the right: " + right
	if role := cmd.Annotations[roleAnnotation]; role != "" {
		text += fmt.Sprintf(
			" (`kubectl auth can-i %s` asks for it). The ClusterRole %s of deploy/ has what this command needs", right,
			role,
		)
	}
	return text + "."
}
