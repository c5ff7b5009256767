package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/peers"
	"github.com/forcefence/forcefence/test/world"
)

const (
	namespace = "bench"

	attach   = 100 * time.Millisecond // of a volume, as of detaching it
	patience = 3 * time.Minute        // for one wait
	settle   = 1500 * time.Millisecond

	markPatience = time.Minute // for a mark to go after its node is Ready

	// nodeGrace is until a silent node is NotReady, and the duration of its Lease: the shortest that is believed.
	nodeGrace = fleet.MinDuration

	// staleAfter is taint/decide/fleet's: two missed renewals, which are four in a Lease's duration, and half of a
	// third.
	staleAfter = 2.5 / 4
)

// labOptions describe what a bench is measured on.
type labOptions struct {
	nodes  int
	power  string        // as world.NewPower's; "": redfish
	events bool          // BMCs send events
	poll   time.Duration // of the devices; 0: none
	wired  bool          // machines have addresses, which fall silent with their power, and forcefence keeps lines
	stock  bool          // Leases and the grace until NotReady are Kubernetes' own
	bare   bool          // without forcefence
	logs   string        // a folder in the bench's own; "": that one
}

// lab is a world, and forcefence.
type lab struct {
	*world.World
	r     *runner
	o     labOptions
	dir   string
	floor kubernetes.Interface  // of the bare loop: a connection of its own
	turn  atomic.Pointer[turn]  // that what is seen goes to; nil between turns
	first atomic.Pointer[steps] // of bench first's turn, likewise
	wires *wires                // nil: the nodes' addresses lead nowhere
	fence *cluster.Part         // nil until it was started
	peers *peers.Peers          // nil: the bench has none
	names []string              // of the nodes
	pods  int                   // of all workloads
	stops []func()              // in the order of what they stop
}

// newLab starts all of it. The caller ends it.
func (r *runner) newLab(ctx context.Context, o labOptions) (_ *lab, err error) {
	l := &lab{r: r, o: o, dir: filepath.Join(r.folder(r.name), o.logs)}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	if err := errors.Join(os.RemoveAll(l.dir), os.MkdirAll(l.dir, 0o755)); err != nil {
		return nil, err
	}
	if o.wired {
		if l.wires, err = newWires(); err != nil {
			return nil, err
		}
		l.stops = append(l.stops, l.wires.close)
	}
	grace := nodeGrace
	if o.stock {
		grace = 0
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: l.file("cluster"), NodeGrace: grace, AttachDelay: attach, DetachDelay: attach,
	})
	if err != nil {
		return nil, err
	}
	l.stops = append(l.stops, c.Stop)
	power, err := world.NewPower(ctx, cmp.Or(o.power, "redfish"))
	if err != nil {
		return nil, err
	}
	l.stops = append(l.stops, power.Close)
	l.World = world.New(c, power)
	if err := l.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	cfg := l.RESTConfigFor("bench-floor", "system:masters")
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if l.floor, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	l.Watch(l.see)
	if err := l.addNodes(ctx); err != nil {
		return nil, err
	}
	if o.bare {
		return l, nil
	}
	return l, l.startForcefence(ctx)
}

// lease is how long the nodes' Leases last.
func (l *lab) lease() time.Duration {
	if l.o.stock {
		return fleet.DefaultDuration
	}
	return nodeGrace
}

func (l *lab) file(name string) string { return filepath.Join(l.dir, name) }

// end ends everything and waits.
func (l *lab) end() {
	for i := len(l.stops) - 1; i >= 0; i-- {
		l.stops[i]()
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i+1) }

// addNodes makes the nodes, and gives their machines addresses that go with the power.
func (l *lab) addNodes(ctx context.Context) error {
	addresses := make([]string, l.o.nodes)
	for i := range l.o.nodes {
		l.names = append(l.names, nodeName(i))
		if l.wires != nil {
			var err error
			if addresses[i], err = l.wires.add(nodeName(i)); err != nil {
				return fmt.Errorf("add address of %s: %w", nodeName(i), err)
			}
		}
	}
	if l.wires != nil {
		l.OnPower(func(node string, _ time.Time, on bool) {
			if err := l.wires.power(on, node); err != nil {
				l.r.say("address of %s: %v", node, err) // the turn that needs it fails
			}
		})
	}
	return l.AddHosts(ctx, l.names, func(i int, o *cluster.NodeOptions) { o.Address = addresses[i] })
}

// startForcefence starts the real program and returns once it leads. Its configuration is a user's, except for the
// leader's Lease: it is long, so that forcefence may be frozen while the floor is measured.
func (l *lab) startForcefence(ctx context.Context) error {
	settings, machine, err := l.Power.Prepare(l.dir)
	if err != nil {
		return err
	}
	if l.o.events {
		settings = strings.TrimSuffix(settings, "}") + ", events: sse}"
	}
	lines := ""
	if l.wires == nil {
		lines = "lines: {port: 0}\n"
	}
	config := fmt.Sprintf(`mode: observe
detachTimeout: 5m
listen: {metrics: ""}
leaderElection: {leaseDuration: 300s, renewDeadline: 280s, retryPeriod: 2s}
providers:
- name: racks
  timeout: 2s
  poll: %s
  %s
nodes:
- name: workers
  provider: racks
  machine: %s
%s`, l.o.poll, settings, machine, lines)
	if err := os.WriteFile(l.file("config.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := l.WriteKubeconfig(l.file("kubeconfig"), "bench-forcefence", "system:masters"); err != nil {
		return err
	}
	podIP, err := kit.FreePodIP() // another bench may run on this machine
	if err != nil {
		return err
	}
	l.fence = l.Forcefence(l.r.o.forcefence, l.dir, l.file("kubeconfig"), podIP)
	l.stops = append(l.stops, l.fence.Stop)
	if err := l.fence.Start(ctx); err != nil {
		return err
	}
	tailing, stop := context.WithCancel(context.Background())
	var tail sync.WaitGroup
	tail.Go(func() { kit.Tail(tailing, l.fence.LogFile(), 50*time.Millisecond, l.log) })
	l.stops = append(l.stops, func() { stop(); tail.Wait() })
	return nil
}

// see gives the turn under way what the cluster's watch brings, with the time at which it was seen.
func (l *lab) see(o metav1.Object, deleted bool) {
	t, now := l.turn.Load(), time.Now()
	if f := l.first.Load(); f != nil {
		f.see(now, o, deleted)
	}
	if t == nil {
		return
	}
	switch o := o.(type) {
	case *corev1.Pod:
		t.pod(now, o, deleted)
	case *corev1.Node:
		t.node(now, o)
	case *storagev1.VolumeAttachment:
		t.attachment(now, o, deleted)
	}
}

// log gives the turn under way a line of forcefence's JSON log, which carries its own time.
func (l *lab) log(raw []byte) {
	var s line
	if json.Unmarshal(raw, &s) != nil {
		return // a library's
	}
	if t := l.turn.Load(); t != nil {
		t.log(s)
	}
}

// load is what runs: pods of a StatefulSet with a volume each, of a StatefulSet without, and of a Deployment. Databases
// are pods of a StatefulSet with a volume each and the highest priority.
type load struct{ Volumes, Plain, Deployed, Databases int }

func (d load) pods() int { return d.Volumes + d.Plain + d.Deployed + d.Databases }

// deploy creates the owners, and returns once all pods run.
func (l *lab) deploy(ctx context.Context, d load) error {
	err := l.Create(ctx,
		cluster.Workload{Namespace: namespace, Name: "db", Replicas: d.Volumes, Volume: true}.StatefulSet(),
		cluster.Workload{Namespace: namespace, Name: "queue", Replicas: d.Plain}.StatefulSet(),
		cluster.Workload{Namespace: namespace, Name: "web", Replicas: d.Deployed}.Deployment())
	if err != nil {
		return err
	}
	if d.Databases > 0 {
		if err := l.Create(ctx,
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: databases}, Value: 1_000_000},
			cluster.Workload{Namespace: namespace, Name: databases, Replicas: d.Databases, Volume: true,
				PriorityClass: databases}.StatefulSet()); err != nil {
			return err
		}
	}
	l.pods = d.pods()
	return l.running(ctx)
}

// limited bounds one wait.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not after %s", limit))
}

// gather brings count pods to the node.
func (l *lab) gather(ctx context.Context, count int, node string) error {
	ctx, cancel := limited(ctx, patience)
	defer cancel()
	return l.Gather(ctx, namespace, count, node)
}

// running waits until all pods are Ready.
func (l *lab) running(ctx context.Context) error {
	ctx, cancel := limited(ctx, patience)
	defer cancel()
	ready := 0
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		ready = len(l.ReadyPods(namespace))
		return ready == l.pods && len(l.Pods(namespace)) == l.pods, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for all pods: %d of %d are Ready: %w", ready, l.pods, err)
	}
	return nil
}

// watched begins a turn: it notes what is on the victim.
func (l *lab) watched(ctx context.Context, victim string) (*turn, error) {
	pods, err := l.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	vas, err := l.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volume attachments: %w", err)
	}
	t := newTurn(victim, pods.Items, vas.Items)
	l.turn.Store(t)
	return t, nil
}

// cut takes the victim's power.
func (l *lab) cut(t *turn) error {
	t.note(&t.zero, time.Now())
	return l.Host(t.victim).Machine.CutPower()
}

// staleAt is when the Lease of a node that is off became as old as forcefence finds suspicious.
func (l *lab) staleAt(ctx context.Context, node string) (time.Time, error) {
	lease, err := l.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a Lease: %w", err)
	}
	return lease.Spec.RenewTime.Add(time.Duration(float64(l.lease()) * staleAfter)), nil
}

// outage is one turn: the victim loses its power, the system does its work, the machine gets its power back. It returns
// when all is as before, except where the pods run.
func (l *lab) outage(ctx context.Context, victim string, s system) (o outcome, err error) {
	t, err := l.watched(ctx, victim)
	if err != nil {
		return o, err
	}
	defer l.turn.Store(nil)
	if !s.ours {
		if err := l.fence.Pause(); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, l.fence.Resume()) }()
	}
	if err := l.cut(t); err != nil {
		return o, err
	}
	stale, err := l.staleAt(ctx, victim)
	if err != nil {
		return o, err
	}
	if err := l.recoverPods(ctx, t, s, stale); err != nil {
		return o, fmt.Errorf("%s, %s: %w", s.name, victim, err)
	}
	if !cluster.Sleep(ctx, s.after) {
		return o, context.Cause(ctx)
	}
	if s.peer != "" {
		off, err := l.peers.OffSince()
		if err != nil {
			return o, err
		}
		t.note(&t.proof, off)
	}
	l.turn.Store(nil) // what was on the victim when it died is over
	o = t.outcome(stale)
	if s.undo != nil {
		o.marks = append(o.marks, outOfServiceTaint.Key) // undo removes it, as a person must
		if err := s.undo(ctx, l, victim); err != nil {
			return o, err
		}
	}
	left, err := l.boot(ctx, victim)
	if err != nil {
		return o, err
	}
	if len(left) == 0 {
		return o, nil
	}
	for _, t := range left {
		o.marks = append(o.marks, t.Key)
	}
	if s.peer == "" {
		return o, fmt.Errorf("%s, %s: taints %q are left", s.name, victim, o.marks)
	}
	return o, l.changeTaints(ctx, victim, left)
}

// recoverPods returns once the system has brought back what was on the victim, or at the system's limit.
func (l *lab) recoverPods(ctx context.Context, t *turn, s system, stale time.Time) error {
	capped, cancel := limited(ctx, cmp.Or(s.limit, patience))
	defer cancel()
	if s.act != nil {
		if err := l.awaitSign(capped, t.victim, s, stale); err != nil {
			return err
		}
		t.note(&t.started, time.Now())
		if err := s.act(capped, l, t.victim); err != nil {
			return err
		}
	}
	missing := ""
	err := cluster.Until(capped, func(context.Context) (bool, error) {
		missing = t.missing(s.ours)
		return missing == "", nil
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", missing, err)
	} else {
		err = l.running(capped)
	}
	if s.limit > 0 && capped.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// awaitSign returns when the system is to act.
func (l *lab) awaitSign(ctx context.Context, node string, s system, stale time.Time) error {
	if s.onNotReady {
		return l.WaitNode(ctx, node, cluster.IsNotReady)
	}
	if !cluster.Sleep(ctx, time.Until(stale)) {
		return context.Cause(ctx)
	}
	return nil
}

// boot gives machines their power back, and returns once their nodes are Ready and without taints, or which are left
// then.
func (l *lab) boot(ctx context.Context, names ...string) (left []corev1.Taint, err error) {
	ctx, cancel := limited(ctx, patience)
	defer cancel()
	if err := l.Boot(ctx, names, nil); err != nil {
		return nil, err
	}
	short, stop := limited(ctx, markPatience)
	defer stop()
	for _, name := range names {
		var here []corev1.Taint
		err := l.WaitNode(short, name, func(n *corev1.Node) bool {
			here = slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeUnschedulable
			})
			return len(here) == 0
		})
		if err != nil && (ctx.Err() != nil || len(here) == 0) {
			return nil, err
		}
		left = append(left, here...)
	}
	return left, nil
}
