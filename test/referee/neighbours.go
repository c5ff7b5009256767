package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// What other projects add to a cluster, as far as forcefence writes it: CSI-Addons' NetworkFences and Karpenter's
// NodeClaims. The referee plays CSI-Addons' manager, as slowly as a row says. It plays a Karpenter that never gets to
// what it should do.
var (
	csiAddons      = schema.GroupVersion{Group: "csiaddons.openshift.io", Version: "v1alpha1"}
	networkFences  = csiAddons.WithResource("networkfences")
	csiAddonsNodes = csiAddons.WithResource("csiaddonsnodes")
	karpenter      = schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	nodeClaims     = karpenter.WithResource("nodeclaims")
)

const (
	storageConfig = "mode: observe\npolicies:\n- {name: sim, drivers: [" + cluster.CSIDriver + "], " +
		"networkFenceClasses: [sim], fenceDelay: 10s, withoutProof: storage-fences}\n" + commonConfig
	handOverConfig = "mode: fence\nkarpenter: handOver\n" + commonConfig

	notedKey = "forcefence.io/confirmed" // an annotation of a NetworkFence, from the public documents

	// known is after how long a sign of life must be known to all: the judge forgives less.
	known = 8 * time.Second
)

// addNeighbours makes the neighbours' kinds, and gives forcefence what its chart gives for them.
func (w *world) addNeighbours(ctx context.Context) error {
	if w.beside {
		return nil
	}
	w.beside = true
	chart, err := cluster.RenderChart(ctx, filepath.Join(filepath.Dir(w.o.deploy), "helm", "forcefence"), `
config:
  karpenter: handOver
  policies: [{name: sim, drivers: [`+cluster.CSIDriver+`], networkFenceClasses: [sim], withoutProof: storage-fences}]
`)
	if err != nil {
		return err
	}
	kinds := []string{
		cluster.Definition(csiAddons.Group, "NetworkFence", "Cluster", csiAddons.Version),
		cluster.Definition(csiAddons.Group, "NetworkFenceClass", "Cluster", csiAddons.Version),
		cluster.Definition(csiAddons.Group, "CSIAddonsNode", "Namespaced", csiAddons.Version),
		cluster.Definition(karpenter.Group, "NodeClaim", "Cluster", karpenter.Version),
	}
	if err := w.apply(ctx, strings.Join(kinds, "\n---\n")+"\n---\n"+chart); err != nil {
		return err
	}
	if _, err := w.Kubectl(ctx, "wait", "--for=condition=Established", "--all", "crd"); err != nil {
		return err
	}
	return w.apply(ctx, fmt.Sprintf("{apiVersion: %s, kind: NetworkFenceClass, metadata: {name: sim}, "+
		"spec: {provisioner: %s}}", csiAddons, cluster.CSIDriver))
}

// cleanNeighbours takes a run's objects away.
func (r *run) cleanNeighbours(ctx context.Context) error {
	if r.f.begin == nil {
		return nil
	}
	for _, of := range []schema.GroupVersionResource{networkFences, csiAddonsNodes, nodeClaims} {
		all := r.w.dynamic.Resource(of)
		list, err := all.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			in := all.Namespace(o.GetNamespace())
			if err := in.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if _, err := in.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// addClient makes what CSI-Addons' sidecar on the victim makes: it says which address the storage knows.
func (r *run) addClient(ctx context.Context) error {
	return r.w.addObject(ctx, csiAddonsNodes, metav1.NamespaceDefault, fmt.Sprintf(`{"apiVersion":%q,
"kind":"CSIAddonsNode","metadata":{"name":%q},"spec":{"driver":{"name":%q,"nodeID":%[2]q}}}`, csiAddons, r.victim,
		cluster.CSIDriver),
		`{"status":{"networkFenceClientStatus":[{"networkFenceClassName":"sim",
"ClientDetails":[{"cidrs":["10.77.0.1/32"]}]}]}}`)
}

// addClaim gives the victim the NodeClaim that Karpenter would have made it for.
func (r *run) addClaim(ctx context.Context) error {
	id := "sim://" + r.victim
	if err := r.w.addObject(ctx, nodeClaims, "", fmt.Sprintf(`{"apiVersion":%q,"kind":"NodeClaim","metadata":{"name":%q,
"finalizers":["karpenter.sh/termination"]}}`, karpenter, r.victim),
		fmt.Sprintf(`{"status":{"nodeName":%q,"providerID":%q}}`, r.victim, id)); err != nil {
		return err
	}
	o, err := r.w.dynamic.Resource(nodeClaims).Get(ctx, r.victim, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = r.w.Client().CoreV1().Nodes().Patch(ctx, r.victim, types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"NodeClaim","name":%q,"uid":%q}]},
"spec":{"providerID":%q}}`, karpenter, r.victim, o.GetUID(), id), metav1.PatchOptions{})
	return err
}

// addObject creates an object of a neighbour's, and writes its status.
func (w *world) addObject(ctx context.Context, of schema.GroupVersionResource, in, text, status string) error {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		return err
	}
	all := w.dynamic.Resource(of).Namespace(in)
	if _, err := all.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := all.Patch(ctx, o.GetName(), types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// answer is one status of a NetworkFence.
type answer struct {
	after  time.Duration // the change, or the answer before
	failed string        // the message of a failure; "": a success
}

// orders are all NetworkFences; none where there is no such kind.
func (w *world) orders(ctx context.Context) ([]unstructured.Unstructured, error) {
	if !w.beside {
		return nil, nil
	}
	list, err := w.dynamic.Resource(networkFences).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// manage plays CSI-Addons' manager until ctx ends. It answers each change of a NetworkFence by the faults' answers.
func (r *run) manage(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	seen, n := map[string]bool{}, 0 // by name and state
	for r.f.storage != nil && cluster.Sleep(ctx, 100*time.Millisecond) {
		orders, err := r.w.orders(ctx)
		if err != nil {
			continue // it asks again
		}
		for i := range orders {
			name := orders[i].GetName()
			state, _, _ := unstructured.NestedString(orders[i].Object, "spec", "fenceState")
			if seen[name+state] {
				continue
			}
			seen[name+state] = true
			answers := r.f.storage(n, state)
			n++
			wg.Go(func() {
				for _, a := range answers {
					if !cluster.Sleep(ctx, a.after) {
						return
					}
					result, message := "Failed", a.failed
					switch {
					case message == "" && state == "Fenced":
						result, message = "Succeeded", "fencing operation successful"
					case message == "":
						result, message = "Succeeded", "unfencing operation successful"
					}
					_, _ = r.w.dynamic.Resource(networkFences).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil,
						`{"status":{"result":%q,"message":%q}}`, result, message), metav1.PatchOptions{}, "status")
				}
			})
		}
	}
}

// volumesMoved reports whether the pods with a volume run elsewhere. The others wait for the machine: nothing proves
// that it is off.
func (r *run) volumesMoved() (bool, error) {
	return r.w.runOnce(slices.DeleteFunc(slices.Clone(r.moves),
		func(p string) bool { return !strings.Contains(p, "/"+judge.RoleVolume+"-") }), r.victim)
}

// silentDevice is a victim whose device does not answer, beside a storage that answers so when it is to shut the node
// out. It lets the node in at once.
func silentDevice(answers func(n int) []answer) *faults {
	return &faults{
		begin:  (*run).addClient,
		device: func(int) datacenter.Fault { return datacenter.Fault{Drop: true} },
		until:  (*run).volumesMoved,
		storage: func(n int, state string) []answer {
			if state == "Fenced" {
				return answers(n)
			}
			return []answer{{}}
		},
	}
}

// shutOut is a node that its storage shuts out, with one more fault.
func shutOut(fault func(request) verdict, answers ...answer) func(*world, int, *rand.Rand) *faults {
	return func(*world, int, *rand.Rand) *faults {
		f := silentDevice(func(int) []answer { return answers })
		f.request = fault
		return f
	}
}

// neverShutOut is a storage that does not answer for so long that forcefence would have acted.
func neverShutOut(*world, int, *rand.Rand) *faults {
	f := silentDevice(func(int) []answer { return nil })
	var asked time.Time
	f.until = func(r *run) (bool, error) {
		orders, err := r.w.orders(r.w.ctx)
		if asked.IsZero() && len(orders) > 0 {
			asked = time.Now()
		}
		return !asked.IsZero() && time.Since(asked) > 20*time.Second, err
	}
	return f
}

// shutOutAgain has two outages on one boot. In the first the storage shuts the node out, but no write to a pod is
// accepted; then the kubelet is heard again. In the second the machine loses its power, and the storage is slow.
func shutOutAgain(*world, int, *rand.Rand) *faults {
	f := silentDevice(func(n int) []answer { return []answer{{after: time.Duration(1+11*min(n, 1)) * time.Second}} })
	f.cut = true
	var refused atomic.Int64
	var again atomic.Bool
	f.request = func(q request) verdict {
		if again.Load() || !q.Write || q.Resource != "pods" {
			return verdict{}
		}
		refused.Add(1)
		return verdict{Code: http.StatusInternalServerError}
	}
	f.until = func(r *run) (bool, error) {
		if !again.Load() {
			return false, fmt.Errorf("the first outage lasts; %d writes were refused", refused.Load())
		}
		return r.volumesMoved()
	}
	f.during = func(ctx context.Context, r *run) {
		if until(ctx, "the storage's success is noted", func() (bool, error) {
			orders, err := r.w.orders(ctx)
			return refused.Load() > 0 && slices.ContainsFunc(orders, func(o unstructured.Unstructured) bool {
				return o.GetAnnotations()[notedKey] != ""
			}), err
		}) != nil {
			return
		}
		r.w.Host(r.victim).ResumeHeartbeats()
		r.cutAgain(ctx, &again)
	}
	return f
}

// cutAgain waits until the node is well again, and cuts its machine's power once more.
func (r *run) cutAgain(ctx context.Context, again *atomic.Bool) {
	if until(ctx, "the node is well again", func() (bool, error) {
		n := r.w.history.node(r.victim)
		return n != nil && cluster.IsReady(n) && !judge.IsMarked(n), nil
	}) != nil || !cluster.Sleep(ctx, known) {
		return
	}
	again.Store(true)
	r.machine.CutPower()
	_ = r.w.silence(ctx, r.victim) // the controller of nodes says so, too, a little later
}

// handedOver reports whether the victim's NodeClaim is being deleted.
func (r *run) handedOver() (bool, error) {
	o, err := r.w.dynamic.Resource(nodeClaims).Get(r.w.ctx, r.victim, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if o.GetDeletionTimestamp() == nil {
		return false, fmt.Errorf("NodeClaim %s is not being deleted", r.victim)
	}
	return true, nil
}

// handsOver is a node of Karpenter's, with one more fault.
func handsOver(fault func(request) verdict) func(*world, int, *rand.Rand) *faults {
	return func(*world, int, *rand.Rand) *faults {
		return &faults{request: fault, begin: (*run).addClaim,
			until: func(r *run) (bool, error) {
				if ok, err := r.hasMoved(); !ok {
					return false, err
				}
				return r.handedOver()
			}}
	}
}

// handsOverFailed is a kubelet that hangs on a machine that does not go off.
func handsOverFailed(w *world, i int, rng *rand.Rand) *faults {
	f := handsOver(nil)(w, i, rng)
	f.cut, f.until = true, (*run).handedOver
	f.device = func(int) datacenter.Fault { return datacenter.Fault{StaysOn: true} }
	return f
}

// handsOverBack boots the machine at the first write to its Node after the fence has ended, which waits until all know
// of it.
func handsOverBack(w *world, i int, rng *rand.Rand) *faults {
	f := handsOver(nil)(w, i, rng)
	f.back = true
	var r *run
	f.begin = func(now *run, ctx context.Context) error {
		r = now
		return r.addClaim(ctx)
	}
	var once sync.Once
	var back atomic.Bool
	f.request = func(q request) verdict {
		n := r.w.history.node(r.victim)
		if !q.Write || q.Resource != "nodes" || n == nil || judge.IsMarked(n) ||
			!strings.Contains(n.Annotations[recordKey], `"Evicted"`) {
			return verdict{}
		}
		return verdict{Before: func() {
			once.Do(func() {
				r.machine.PowerOn()
				cluster.Sleep(r.w.ctx, known)
				back.Store(true)
			})
		}}
	}
	f.until = func(r *run) (bool, error) {
		if !back.Load() {
			return false, fmt.Errorf("no hand-over was announced")
		}
		return r.hasMoved()
	}
	return f
}

// handsOverAgain kills the leader right before it deletes the NodeClaim, and boots the machine. Then the machine loses
// its power once more. Its pods moved before, so no other fence begins: nor may the earlier one count.
func handsOverAgain(w *world, i int, rng *rand.Rand) *faults {
	f := handsOver(nil)(w, i, rng)
	tried := make(chan struct{})
	var once sync.Once
	var again, over atomic.Bool
	f.request = func(q request) verdict {
		if again.Load() || q.Resource != "nodeclaims" || q.Method != http.MethodDelete {
			return verdict{}
		}
		once.Do(func() { close(tried) })
		return killed(false)(q)
	}
	f.until = func(*run) (bool, error) { return over.Load(), nil }
	f.during = func(ctx context.Context, r *run) {
		select {
		case <-tried:
		case <-ctx.Done():
			return
		}
		r.machine.PowerOn()
		r.cutAgain(ctx, &again)
		cluster.Sleep(ctx, 20*time.Second) // it is looked at again
		over.Store(true)
	}
	return f
}
