package deploy

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const nodeNamespace = "forcefence-node"

// variants are what the values make of the hook: its command lines.
var variants = []struct {
	values string
	names  [2]string // of the init container and of the container
	args   [2]string
	limit  string // maxUnavailable
}{
	{"{}", [2]string{"install", "hook"}, [2]string{
		"install --root=/host --taint-key=forcefence.io/node-shutdown",
		"run --root=/host",
	}, "10%"},
	{"hook: {runtimeCommand: /opt/bin/crio}", [2]string{"install", "hook"}, [2]string{
		"install --root=/host --taint-key=forcefence.io/node-shutdown --runtime-command=/opt/bin/crio",
		"run --root=/host --runtime-command=/opt/bin/crio",
	}, "10%"},
	{"hook: {requiredPlugins: true}", [2]string{"install", "hook"}, [2]string{
		"install --root=/host --taint-key=forcefence.io/node-shutdown --required-plugins",
		"run --root=/host",
	}, "10%"},
	{"hook: {uninstall: true}", [2]string{"uninstall", "uninstalled"}, [2]string{
		"uninstall --root=/host --taint-key=forcefence.io/node-shutdown --restart-runtime",
		"uninstall --root=/host --taint-key=forcefence.io/node-shutdown --wait",
	}, "100%"},
	{"hook: {runtimeCommand: /opt/bin/crio, uninstall: true}", [2]string{"uninstall", "uninstalled"}, [2]string{
		"uninstall --root=/host --taint-key=forcefence.io/node-shutdown --runtime-command=/opt/bin/crio " +
			"--restart-runtime",
		"uninstall --root=/host --taint-key=forcefence.io/node-shutdown --runtime-command=/opt/bin/crio --wait",
	}, "100%"},
}

// TestNode applies every variant, one over the other as a user would. Kubernetes' DaemonSet controller must be able to
// make the pods, on a marked node as well; the program must understand its command lines.
func TestNode(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "forcefence-node")
	w := newWorld(t, cluster.Options{})
	nodes, err := w.c.AddNodes(w.ctx, 2,
		func(i int) cluster.NodeOptions { return cluster.NodeOptions{Name: fmt.Sprintf("n%d", i)} })
	kit.Must(t, err)
	_, err = w.c.Kubectl(w.ctx, "taint", "node", nodes[1].Name(), key+"=manual:NoSchedule")
	kit.Must(t, err)

	for _, v := range variants {
		t.Run(v.values, func(t *testing.T) {
			w.install(v.values)
			ds := find[appsv1.DaemonSet](t, parse(t, charted(t, v.values)), "DaemonSet", nodeNamespace)
			pod := ds.Spec.Template.Spec
			for i, c := range []corev1.Container{pod.InitContainers[0], pod.Containers[0]} {
				if got := strings.Join(c.Args, " "); got != v.args[i] || c.Name != v.names[i] {
					t.Errorf("container %s: got %q; want %s: %q", c.Name, got, v.names[i], v.args[i])
				}
				understood(t, binary, c.Args)
				if c.ReadinessProbe != nil {
					understood(t, binary, c.ReadinessProbe.Exec.Command[1:])
				}
			}
			if got := ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); got != v.limit {
				t.Errorf("maxUnavailable: got %s, want %s", got, v.limit)
			}
			w.until("the controller has made the pods of this variant", func() (bool, error) {
				list, err := w.c.Client().CoreV1().Pods(nodeNamespace).List(w.ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				on := map[string]bool{}
				for i := range list.Items {
					p := &list.Items[i]
					if p.DeletionTimestamp == nil && slices.Equal(p.Spec.Containers[0].Args, pod.Containers[0].Args) &&
						slices.Equal(p.Spec.InitContainers[0].Args, pod.InitContainers[0].Args) {
						on[p.Spec.NodeName] = true
						w.checkPod(t, p)
					}
				}
				return on["n0"] && on["n1"], fmt.Errorf("on %v", on)
			})
		})
	}
	w.noRights(t)
	t.Run("Pod Security", w.podSecurity)
}

// checkPod holds what the API server made of a pod against what the hook relies on.
func (w *world) checkPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	// The hook holds no such pod, and NRI's validator lets it start without the hook.
	if taint.ExemptionOf(p, key) == taint.NotExempt || p.Annotations[install.TolerateAnnotation] != "true" {
		t.Errorf("pod %s: annotations %v, tolerations %v: want it exempt and tolerant", p.Name, p.Annotations,
			p.Spec.Tolerations)
	}
	if p.Spec.Priority == nil || *p.Spec.Priority != 2000001000 {
		t.Errorf("pod %s: priority %v, want the nodes' own", p.Name, p.Spec.Priority)
	}
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil || v.Secret != nil {
			t.Errorf("pod %s: volume %s is a token", p.Name, v.Name)
		}
	}
}

// noRights checks that the ServiceAccount has only the rights that every account has.
func (w *world) noRights(t *testing.T) {
	t.Helper()
	for _, ns := range []string{nodeNamespace, "kube-system"} {
		rules := func(user string, groups ...string) string {
			r := &authorizationv1.SelfSubjectRulesReview{
				Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: ns}}
			kit.Must(t, w.as(append([]string{user}, groups...)...).Create(w.ctx, r))
			var rules []string // they come in any order
			for _, rule := range r.Status.ResourceRules {
				rules = append(rules, fmt.Sprint(rule))
			}
			slices.Sort(rules)
			return strings.Join(rules, "\n")
		}
		account := rules("system:serviceaccount:"+nodeNamespace+":forcefence-node", "system:serviceaccounts",
			"system:serviceaccounts:"+nodeNamespace)
		others := rules("system:serviceaccount:"+nodeNamespace+":some", "system:serviceaccounts",
			"system:serviceaccounts:"+nodeNamespace)
		if account != others {
			t.Errorf("rights in %s: got %s, want those of any account: %s", ns, account, others)
		}
	}
}

// podSecurity checks that no lower level than the namespace's would do: one that did should be taken.
func (w *world) podSecurity(t *testing.T) {
	ds, c := find[appsv1.DaemonSet](t, parse(t, charted(t, "{}")), "DaemonSet", nodeNamespace), w.as()
	for level, want := range map[string]bool{"restricted": false, "baseline": false, "privileged": true} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "level-" + level,
				Labels: map[string]string{"pod-security.kubernetes.io/enforce": level}}}
		kit.Must(t, c.Create(w.ctx, ns))
		in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns.Name, Name: name} }
		kit.Must(t, c.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: in("forcefence-node")}))
		err := c.Create(w.ctx, &corev1.Pod{ObjectMeta: in("x"), Spec: ds.Spec.Template.Spec}, client.DryRunAll)
		if want != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("level %s: got %v, want it to pass: %t", level, err, want)
		}
	}
}

// understood runs a command line with --help behind it: flags that it does not know are an error, and nothing is done.
func understood(t *testing.T, binary string, args []string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...).
		CombinedOutput(); err != nil {
		t.Errorf("forcefence-node %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
