// Package world is a cluster whose machines have power and devices: what the demo, the benchmarks and the stories of
// test/integration run in. The cluster (test/cluster) has a real control plane, simulated kubelets and a ledger of what
// really runs; the machines are those of a data centre in software, of a real libvirtd, or of a simulator of IPMI.
//
// A node lives and dies with its machine's power, for any reason: a cut, a device's reset, forcefence's own power-off.
package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/forcefence/forcefence/test/cluster"
)

// BMCAnnotation is how a Node names its device; the configurations say so.
const BMCAnnotation = "example.net/bmc"

// atOnce is how many requests a World has under way where it sends many.
const atOnce = 32

// World is a cluster and the machines under its nodes. It is safe for concurrent use, apart from AddHosts.
type World struct {
	*cluster.Cluster
	Power Power
	Hosts []*Host // in the order in which they were added

	mu      sync.Mutex // guards onPower
	onPower func(node string, at time.Time, on bool)
}

// Host is a node and the machine under it. The names of both are the same.
type Host struct {
	*cluster.Node
	Machine Machine
}

// Redfish is the machine of a data centre in software, with its BMC; the zero value if it is another power's.
func (h *Host) Redfish() RedfishMachine {
	m, _ := h.Machine.(RedfishMachine)
	return m
}

// New returns a world without hosts. The caller ends the cluster and the power.
func New(c *cluster.Cluster, p Power) *World { return &World{Cluster: c, Power: p} }

// AddHosts makes a machine for each name and a node on it, and returns once all nodes are Ready. describe may change
// the options of the i-th node; nil changes nothing.
func (w *World) AddHosts(ctx context.Context, names []string, describe func(i int, o *cluster.NodeOptions)) error {
	var hosts []*Host
	for _, name := range names {
		m, err := w.Power.Add(ctx, name)
		if err != nil {
			return fmt.Errorf("adding machine %s: %w", name, err)
		}
		hosts = append(hosts, &Host{Machine: m})
	}
	nodes, err := w.AddNodes(ctx, len(hosts), func(i int) cluster.NodeOptions {
		m := hosts[i].Machine
		o := cluster.NodeOptions{Name: m.Name(), SystemUUID: m.SystemUUID(), BootID: m.BootID()}
		if a := m.Address(); a != "" {
			o.Annotations = map[string]string{BMCAnnotation: a}
		}
		if describe != nil {
			describe(i, &o)
		}
		return o
	})
	if err != nil {
		return err
	}
	for i, h := range hosts {
		h.Node = nodes[i]
		h.Machine.OnChange(func(on bool) {
			w.tell(h.Name(), on)
			if on {
				h.Node.PowerOn(h.Machine.BootID())
			} else {
				h.Node.PowerOff()
			}
		})
	}
	w.Hosts = append(w.Hosts, hosts...)
	return nil
}

// Host returns the host of that name, or nil.
func (w *World) Host(name string) *Host {
	i := slices.IndexFunc(w.Hosts, func(h *Host) bool { return h.Name() == name })
	if i < 0 {
		return nil
	}
	return w.Hosts[i]
}

// OnPower has f called when a machine loses or gets its power, before its node does; nil ends that.
func (w *World) OnPower(f func(node string, at time.Time, on bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onPower = f
}

func (w *World) tell(node string, on bool) {
	at := time.Now()
	w.mu.Lock()
	f := w.onPower
	w.mu.Unlock()
	if f != nil {
		f(node, at, on)
	}
}

// Boot gives machines their power back, and returns once their nodes are Ready with the new boot, and satisfy check
// if it is not nil.
func (w *World) Boot(ctx context.Context, names []string, check func(*corev1.Node) bool) error {
	for _, name := range names {
		if err := w.Host(name).Machine.PowerOn(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		boot := w.Host(name).Machine.BootID()
		if err := w.WaitNode(ctx, name, func(n *corev1.Node) bool {
			return n.Status.NodeInfo.BootID == boot && cluster.IsReady(n) && (check == nil || check(n))
		}); err != nil {
			return fmt.Errorf("booting %s: %w", name, err)
		}
	}
	return nil
}

// Open lets the scheduler use these nodes and no others; none means all.
func (w *World) Open(ctx context.Context, nodes ...string) error {
	return Parallel(w.Hosts, func(h *Host) error {
		closed := len(nodes) > 0 && !slices.Contains(nodes, h.Name())
		_, err := w.Client().CoreV1().Nodes().Patch(ctx, h.Name(), types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, closed), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("cordoning %s: %w", h.Name(), err)
		}
		return nil
	})
}

// Gather brings at least count pods of the namespace to the given nodes and returns once these and all others are
// Ready. The other nodes are closed meanwhile, and as many of their pods as are missing are deleted, those with volumes
// first, as a drain would. DaemonSets' pods do not count. Volumes take no time to move meanwhile.
func (w *World) Gather(ctx context.Context, namespace string, count int, nodes ...string) error {
	if err := w.Open(ctx, nodes...); err != nil {
		return err
	}
	w.Attacher().SetDelays(0, 0)
	defer w.Attacher().ResetDelays()
	var volumes, rest []*corev1.Pod
	missing := count
	for _, p := range w.Pods(namespace) {
		switch {
		case IsControlledBy(p, "DaemonSet"), p.Spec.NodeName == "":
		case slices.Contains(nodes, p.Spec.NodeName):
			missing--
		case slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }):
			volumes = append(volumes, p)
		default:
			rest = append(rest, p)
		}
	}
	elsewhere := slices.Concat(volumes, rest)
	err := Parallel(elsewhere[:max(0, min(missing, len(elsewhere)))], func(p *corev1.Pod) error {
		err := w.Client().CoreV1().Pods(namespace).
			Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("moving pod %s: %w", p.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	here, ready, all := 0, 0, 0
	err = cluster.Until(ctx, func(context.Context) (bool, error) {
		here, ready, all = 0, 0, len(w.Pods(namespace))
		for _, p := range w.ReadyPods(namespace) {
			ready++
			if slices.Contains(nodes, p.Spec.NodeName) && !IsControlledBy(p, "DaemonSet") {
				here++
			}
		}
		return here >= count && ready == all, nil
	})
	if err != nil {
		return fmt.Errorf("gathering pods on %v: %d of %d are there, %d of %d are Ready: %w", nodes, here, count, ready,
			all, err)
	}
	return w.Open(ctx)
}

// IsControlledBy reports whether an object of that kind controls this one.
func IsControlledBy(o metav1.Object, kind string) bool {
	ref := metav1.GetControllerOf(o)
	return ref != nil && ref.Kind == kind
}

// Parallel runs f for all items, many at a time, and returns the first error.
func Parallel[T any](items []T, f func(T) error) error {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, item := range items {
		work.Go(func() error { return f(item) })
	}
	return work.Wait()
}
