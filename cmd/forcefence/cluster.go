package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/taint"
)

// clusterFlags holds kubectl's flags for finding the API server and for the user to act as.
type clusterFlags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	cmd        *cobra.Command // whose end ends every request; nil: none
}

func (r *clusterFlags) addFlags(cmd *cobra.Command) {
	r.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&r.kubeconfig, "kubeconfig", "",
		"how to reach the API server (default: $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config)")
	all := clientcmd.RecommendedConfigOverrideFlags("")
	all.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{} // addNamespaceFlag's
	all.AuthOverrideFlags.Username, all.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&r.overrides, f, all)
	f.VisitAll(func(flag *pflag.Flag) { flag.Hidden = flag.Hidden || slices.Contains(rareFlags, flag.Name) })
	timeout := f.Lookup(all.Timeout.LongName)
	timeout.Value = timeoutValue{timeout.Value}
	r.addCompletions(cmd)
}

// rareFlags are flags of kubectl that the commands take, but that no help lists.
var rareFlags = []string{
	"as-uid", "as-user-extra", "certificate-authority", "client-certificate", "client-key", "disable-compression",
	"insecure-skip-tls-verify", "proxy-url", "server", "tls-server-name", "token",
}

// timeoutValue is the value of --request-timeout, which clientcmd checks too late.
type timeoutValue struct{ pflag.Value }

func (v timeoutValue) Set(text string) error {
	if _, err := clientcmd.ParseTimeout(text); err != nil {
		return errors.New("want a duration such as 10s or 2m")
	}
	return v.Value.Set(text)
}

// addNamespaceFlag adds -n, the controller's namespace.
func (r *clusterFlags) addNamespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(
		&r.overrides.Context.Namespace, "namespace", "n", "", "the controller's namespace (default: that of its Lease)",
	)
	completeFlag(cmd, "namespace", r.completeObjects(corev1.SchemeGroupVersion.WithKind("NamespaceList")))
}

// restConfig finds the API server as kubectl does, and in a pod by its ServiceAccount.
func (r *clusterFlags) restConfig() (*rest.Config, error) {
	cfg, err := r.clientConfig().ClientConfig()
	switch missing := missingKubeconfig(r.kubeconfig); {
	case err != nil && missing != "":
		return nil, fmt.Errorf("the kubeconfig %s does not exist: set --kubeconfig or $KUBECONFIG to one that does",
			missing)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server is configured: set --kubeconfig or $KUBECONFIG, or write ~/.kube/config")
	case err != nil:
		return nil, fmt.Errorf("finding the API server: %w. `kubectl config view` shows your kubeconfig", err)
	}
	cfg.UserAgent, cfg.QPS, cfg.Burst = version.UserAgent("forcefence"), 50, 300 // kubectl's own limits
	if r.cmd != nil && r.cmd.Context() != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return endingTransport{next, r.cmd.Context()} })
	}
	return cfg, nil
}

// missingKubeconfig returns the first file that the flag, or else $KUBECONFIG, names and that does not exist.
func missingKubeconfig(flag string) string {
	for _, file := range filepath.SplitList(cmp.Or(flag, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))) {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return file
		}
	}
	return ""
}

// endingTransport ends every request when ctx ends: the libraries' discovery takes no context of ours.
type endingTransport struct {
	next http.RoundTripper
	ctx  context.Context
}

func (t endingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	resp.Body = endingBody{resp.Body, func() { stop(); cancel(nil) }}
	return resp, nil
}

// endingBody releases a request's context once its answer is read.
type endingBody struct {
	io.ReadCloser
	release func()
}

func (b endingBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

func (r *clusterFlags) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = r.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &r.overrides)
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

// withClient returns a command's RunE that calls run with a new client.
func (r *clusterFlags) withClient(
	run func(cmd *cobra.Command, c client.WithWatch, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := r.newClient()
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
}

// addTaintKeyFlag adds the flag for the mark's taint key.
func addTaintKeyFlag(cmd *cobra.Command, key *string) {
	f := cmd.Flags()
	f.StringVar(key, "taint-key", taint.DefaultKey, "the mark's taint key (the configuration's taintKey)")
	f.Lookup("taint-key").Value = taintKeyValue{f.Lookup("taint-key").Value}
}

// taintKeyValue is the value of --taint-key.
type taintKeyValue struct{ pflag.Value }

// Set refuses what is the key of no taint.
func (v taintKeyValue) Set(text string) error {
	if len(validation.IsQualifiedName(text)) > 0 {
		return errors.New("no taint can have this key: it must look like example.net/name")
	}
	return v.Value.Set(text)
}
