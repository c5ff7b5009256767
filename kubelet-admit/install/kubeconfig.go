package install

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// apiTimeout limits one request, including an exec credential's program.
const apiTimeout = 20 * time.Second

// connectAsKubelet reads the own Node live with only what the plugin will have: the kubelet's kubeconfig, and an
// environment with nothing but PATH. A hook that could not do this would hold every pod of the node. No other goroutine
// may read the environment meanwhile.
func connectAsKubelet(ctx context.Context, c nri.Config, version string) (rest.Interface, *corev1.Node, error) {
	defer onlyPath(c.Path)()
	client, _, err := nri.NewClient(c.Kubeconfig, version)
	if err != nil {
		return nil, nil, fmt.Errorf("testing the kubelet's kubeconfig: %w: set --kubeconfig to another file", err)
	}
	node, err := getNode(ctx, client, c.NodeName)
	if err == nil {
		return client, node, nil
	}
	why := fmt.Sprintf("reading Node %s with %s and PATH=%s", c.NodeName, c.Kubeconfig, c.Path)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		// The Node authorizer forbids a node to read others, whether they exist or not.
		why = fmt.Sprintf("no Node %s exists that %s may read: set --node-name to the name of the kubelet's Node",
			c.NodeName, c.Kubeconfig)
	case apierrors.IsUnauthorized(err):
		why = fmt.Sprintf("the API server rejects the credential in %s: set --kubeconfig to the kubelet's own file",
			c.Kubeconfig)
	}
	return nil, nil, fmt.Errorf("testing the kubelet's kubeconfig: %s: %w", why, err)
}

// getNode reads live: a GET without a resourceVersion.
func getNode(ctx context.Context, client rest.Interface, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, client.Get().Timeout(apiTimeout).Resource("nodes").Name(name).Do(ctx).Into(node)
}

// A kubelet writes its Node's status some seconds after the boot, and may have started this program before that.
const (
	bootWait  = 30 * time.Second
	bootEvery = time.Second
)

// sameBoot refuses a Node with another boot id than the machine's: the hook trusts only a Ready of this boot, so it
// would hold every ordinary pod for ever.
func (in *installer) sameBoot(ctx context.Context, node *corev1.Node) error {
	boot, err := in.host.bootID()
	if err != nil {
		return err
	}
	name := in.Config.NodeName
	for end := time.Now().Add(bootWait); node.Status.NodeInfo.BootID != boot; {
		if !time.Now().Before(end) {
			return fmt.Errorf("comparing boots: Node %s still reports boot ID %q after %s, but this machine's is %q. "+
				"The hook would hold every ordinary pod. Either the Node is another machine's (set --node-name), or "+
				"its kubelet reads another file than /proc/sys/kernel/random/boot_id (kubelet flag --boot-id-file), "+
				"or it does not report (see its log)", name, node.Status.NodeInfo.BootID, bootWait, boot)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(bootEvery):
		}
		if node, err = in.node(ctx, in.client, name); err != nil {
			return fmt.Errorf("comparing boots: reading Node %s: %w", name, err)
		}
	}
	return nil
}

// onlyPath removes all of the environment except PATH, until the returned function is called.
func onlyPath(path string) (restore func()) {
	before := os.Environ()
	os.Clearenv()
	_ = os.Setenv("PATH", path) // fails for names and values with a NUL only
	return func() {
		os.Clearenv()
		for _, e := range before {
			if key, value, ok := strings.Cut(e, "="); ok {
				_ = os.Setenv(key, value)
			}
		}
	}
}
