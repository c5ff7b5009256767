package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	namespace = "bench"

	// bmcAnnotation is how a Node names its BMC here; the configuration says so.
	bmcAnnotation = "example.net/bmc"

	attach   = 100 * time.Millisecond // of a volume, as of detaching it
	patience = 3 * time.Minute        // for one wait
	settle   = 1500 * time.Millisecond
)

// labOptions describe what a bench is measured on.
type labOptions struct {
	nodes      int
	podsOnNode int                                          // that a node takes; 0: 500
	grace      time.Duration                                // until a silent node is NotReady; 0: nodeGrace; -1: stock
	kcmQPS     int                                          // as cluster.Options'
	apiServer  []string                                     // arguments of the API server
	bare       bool                                         // without forcefence
	unwatched  bool                                         // without a watch of pods, nodes and attachments
	devices    func(context.Context, *lab) (devices, error) // nil: redfish
	late       bool                                         // forcefence is started by the bench itself
	mode       string                                       // "": observe
	patient    time.Duration                                // 0: patience
	// requests of forcefence and of the floor are counted, turn by turn
	counted  bool
	wired    bool // machines have addresses, which fall silent with their power
	lineless bool // forcefence keeps no lines
}

// lab is a data centre in software, a real control plane with simulated kubelets, and forcefence.
type lab struct {
	r            *runner
	o            labOptions
	dir          string
	dc           *datacenter.DataCenter
	c            *cluster.Cluster
	floor        kubernetes.Interface // of the bare loop: a connection of its own
	watch        *watch
	devs         devices
	wires        *wires        // nil: the nodes' addresses lead nowhere
	fence        *cluster.Part // ours or versus; nil until it was started
	ours, versus *cluster.Part
	names        []string // of the nodes
	pods         int      // of all workloads
	top          string   // more keys of the configuration
	auditRead    int64    // how much of the audit log was read
}

// newLab starts all of it. The caller ends it.
func (r *runner) newLab(ctx context.Context, o labOptions) (_ *lab, err error) {
	l := &lab{r: r, o: o, dir: r.folder(r.name), dc: datacenter.New(datacenter.Options{Username: "forcefence"})}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	if err := os.RemoveAll(l.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	if o.devices == nil {
		o.devices = newRedfish
	}
	if l.devs, err = o.devices(ctx, l); err != nil {
		return nil, err
	}
	if o.wired {
		if l.wires, err = newWires(); err != nil {
			return nil, err
		}
	}
	grace := o.grace
	switch {
	case grace == 0:
		grace = nodeGrace
	case grace < 0:
		grace = 0
	}
	if o.counted {
		args, err := l.audited()
		if err != nil {
			return nil, err
		}
		o.apiServer = append(slices.Clone(o.apiServer), args...)
	}
	l.c, err = cluster.Start(ctx, cluster.Options{
		Dir: l.file("cluster"), NodeGrace: grace, KCMQPS: o.kcmQPS, APIServerArgs: o.apiServer,
		AttachDelay: attach, DetachDelay: attach,
	})
	if err != nil {
		return nil, err
	}
	_, err = l.c.Client().CoreV1().Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	if l.floor, err = l.client(floorUser); err != nil {
		return nil, err
	}
	if !o.unwatched {
		client, err := l.client("bench-watch")
		if err != nil {
			return nil, err
		}
		if l.watch, err = newWatch(ctx, client); err != nil {
			return nil, err
		}
	}
	if err := l.addNodes(ctx); err != nil {
		return nil, err
	}
	if o.bare || o.late {
		return l, nil
	}
	return l, l.startForcefence(ctx)
}

// client is an administrator's of that name, with a connection of its own, without limits, in protobuf.
func (l *lab) client(user string) (kubernetes.Interface, error) {
	cfg := l.c.RESTConfigFor(user, "system:masters")
	cfg.QPS = -1
	cfg.ContentConfig = rest.ContentConfig{
		ContentType:        "application/vnd.kubernetes.protobuf",
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// patience is the limit of one wait.
func (l *lab) patience() time.Duration { return cmp.Or(l.o.patient, patience) }

// lease is how long the nodes' Leases last.
func (l *lab) lease() time.Duration {
	if l.o.grace < 0 {
		return fleet.DefaultDuration
	}
	return cmp.Or(l.o.grace, nodeGrace)
}

func (l *lab) file(name string) string { return filepath.Join(l.dir, name) }

// end ends everything and waits.
func (l *lab) end() {
	if l.fence != nil {
		l.fence.Stop()
	}
	if l.watch != nil {
		l.watch.end()
	}
	if l.devs != nil {
		l.devs.close()
	}
	_ = l.dc.Close() // nothing is left to do about an error
	if l.c != nil {
		l.c.Stop()
	}
	if l.wires != nil {
		l.wires.close()
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i+1) }

// addNodes makes the machines, a device for each, and a node on each, which lives and dies with its machine's power.
func (l *lab) addNodes(ctx context.Context) error {
	machines := make([]*datacenter.Machine, l.o.nodes)
	bmcs, addresses := make([]string, l.o.nodes), make([]string, l.o.nodes)
	for i := range machines {
		machines[i] = l.dc.AddMachine(nodeName(i))
		var err error
		if bmcs[i], err = l.devs.add(machines[i]); err != nil {
			return fmt.Errorf("add device of %s: %w", nodeName(i), err)
		}
		if l.wires != nil {
			if addresses[i], err = l.wires.add(nodeName(i)); err != nil {
				return fmt.Errorf("add address of %s: %w", nodeName(i), err)
			}
		}
		l.names = append(l.names, nodeName(i))
	}
	_, err := l.c.AddNodes(ctx, l.o.nodes, func(i int) cluster.NodeOptions {
		m := machines[i]
		return cluster.NodeOptions{
			Name: m.Name(), SystemUUID: m.SystemUUID(), BootID: m.BootID(), Pods: l.o.podsOnNode, Address: addresses[i],
			Annotations: map[string]string{bmcAnnotation: bmcs[i]},
		}
	})
	if err != nil {
		return err
	}
	for _, m := range machines {
		node := l.c.Node(m.Name())
		m.OnChange(func(m *datacenter.Machine, on bool) {
			if l.wires != nil {
				if err := l.wires.power(on, m.Name()); err != nil {
					l.r.say("address of %s: %v", m.Name(), err) // the turn that needs it fails
				}
			}
			if on {
				node.PowerOn(m.BootID())
			} else {
				node.PowerOff()
			}
		})
	}
	return nil
}

// config is a user's file, except for the leader's Lease: it is long, so that forcefence may be frozen while the floor
// is measured.
func (l *lab) config() (string, error) {
	devices, err := l.devs.config()
	lines := ""
	if l.o.lineless {
		lines = "lines: {port: 0}\n"
	}
	return fmt.Sprintf(`mode: %s
detachTimeout: 5m
listen: {metrics: ""}
leaderElection: {leaseDuration: 300s, renewDeadline: 280s, retryPeriod: 2s}
%s%s%s`, cmp.Or(l.o.mode, "observe"), lines, devices, l.top), err
}

// fenceUser is forcefence's at the API server.
const fenceUser = "bench-forcefence"

// startForcefence starts the real program and returns once it leads.
func (l *lab) startForcefence(ctx context.Context) error {
	config, err := l.config()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.file("config.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := l.c.WriteKubeconfig(l.file("kubeconfig"), fenceUser, "system:masters"); err != nil {
		return err
	}
	part := func(program string) *cluster.Part {
		// where earlier versions serve their health
		return l.c.Forcefence(program, l.dir, l.file("kubeconfig"), "127.0.0.1")
	}
	l.ours = part(l.r.o.forcefence)
	l.versus = part(l.r.o.versus)
	l.fence = l.ours
	if err := l.fence.Start(ctx); err != nil {
		return err
	}
	if l.watch != nil {
		l.watch.tail(l.fence.LogFile())
	}
	return nil
}

// swap starts the side's program again, if two of them take turns.
func (l *lab) swap(ctx context.Context, s side) error {
	if l.r.o.versus == "" || s == floorSide {
		return nil
	}
	l.fence.Stop() // it gives the Lease back
	l.fence = l.ours
	if s == versusSide {
		l.fence = l.versus
	}
	if err := l.fence.Start(ctx); err != nil {
		return err
	}
	// A program that has heard no renewal yet counts a Lease's silence from its own start, and misses the first sign of
	// death.
	if !wait(ctx, l.lease()/4+settle) {
		return ctx.Err()
	}
	return nil
}

// load is what runs: pods of a StatefulSet with a volume each, of a StatefulSet without, and of a Deployment.
type load struct{ volumes, plain, deployed int }

func (d load) pods() int { return d.volumes + d.plain + d.deployed }

// deploy creates the owners.
func (l *lab) deploy(ctx context.Context, d load) error {
	apps := l.c.Client().AppsV1()
	var sets []*appsv1.StatefulSet
	if d.volumes > 0 {
		sets = append(sets,
			cluster.Workload{Namespace: namespace, Name: "db", Replicas: d.volumes, Volume: true}.StatefulSet())
	}
	if d.plain > 0 {
		sets = append(sets, cluster.Workload{Namespace: namespace, Name: "queue", Replicas: d.plain}.StatefulSet())
	}
	for _, s := range sets {
		if _, err := apps.StatefulSets(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create StatefulSet: %w", err)
		}
	}
	if d.deployed > 0 {
		web := cluster.Workload{Namespace: namespace, Name: "web", Replicas: d.deployed}.Deployment()
		if _, err := apps.Deployments(namespace).Create(ctx, web, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create Deployment: %w", err)
		}
	}
	l.pods += d.pods()
	return nil
}

// parallel runs f for all of them, 32 at a time, and returns the first error.
func parallel[T any](items []T, f func(T) error) error { return atOnce(32, items, f) }

// atOnce is parallel with n at a time.
func atOnce[T any](n int, items []T, f func(T) error) error {
	slots, errs := make(chan struct{}, n), make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(item)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// open lets the scheduler use these nodes and no others; none means all.
func (l *lab) open(ctx context.Context, nodes ...string) error {
	return parallel(l.names, func(name string) error {
		closed := len(nodes) > 0 && !slices.Contains(nodes, name)
		patch, err := json.Marshal(object{"spec": object{"unschedulable": closed}})
		if err != nil {
			return err
		}
		if _, err = l.c.Client().CoreV1().Nodes().
			Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("cordoning %s: %w", name, err)
		}
		return nil
	})
}

// running waits until all pods are Ready, and count of them on the given nodes.
func (l *lab) running(ctx context.Context, count int, nodes []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience(), fmt.Errorf("not after %s", l.patience()))
	defer cancel()
	here, all := 0, 0
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		here, all = 0, 0
		for _, p := range l.c.ReadyPods(namespace) {
			all++
			if slices.Contains(nodes, p.Spec.NodeName) {
				here++
			}
		}
		return all == l.pods && here >= count && len(l.c.Pods(namespace)) == l.pods, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d of %d pods on %v: %d of %d: %w", count, l.pods, nodes, here, all, err)
	}
	return nil
}

// gather brings count pods to the given nodes: the others are closed, as many of their pods as are missing are deleted,
// those with volumes first, and come up where there is room. Then all nodes are open.
func (l *lab) gather(ctx context.Context, count int, nodes ...string) error {
	if err := l.open(ctx, nodes...); err != nil {
		return err
	}
	l.c.Attacher().SetDelays(0, 0) // this part is not measured
	defer l.c.Attacher().SetDelays(attach, attach)
	var elsewhere, rest []*corev1.Pod
	missing := count
	for _, p := range l.c.Pods(namespace) {
		switch {
		case slices.Contains(nodes, p.Spec.NodeName):
			missing--
		case p.Spec.NodeName == "":
		case slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }):
			elsewhere = append(elsewhere, p)
		default:
			rest = append(rest, p)
		}
	}
	elsewhere = append(elsewhere, rest...)
	err := parallel(elsewhere[:max(0, min(missing, len(elsewhere)))], func(p *corev1.Pod) error {
		err := l.c.Client().CoreV1().Pods(namespace).
			Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("moving pod %s: %w", p.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.running(ctx, count, nodes); err != nil {
		return fmt.Errorf("gathering pods: %w", err)
	}
	return l.open(ctx)
}

func (l *lab) machine(name string) *datacenter.Machine {
	for _, m := range l.dc.Machines() {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// watched begins a turn: it notes what is on the victims.
func (l *lab) watched(ctx context.Context, victims []string) (*turn, error) {
	pods, err := l.c.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	vas, err := l.c.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volume attachments: %w", err)
	}
	t := newTurn(victims, pods.Items, vas.Items)
	l.watch.follow(t)
	return t, nil
}

// cut takes the power of all victims at once.
func (l *lab) cut(t *turn, victims []string) {
	t.begin(time.Now())
	_ = parallel(victims, func(v string) error { l.machine(v).CutPower(); return nil })
}

// align lets the victims' Leases be renewed once more at the same time, as by heartbeats that were on the wire when the
// power went: all nodes then become suspicious at once, and what is measured is what follows, not how the heartbeats
// were spread.
func (l *lab) align(ctx context.Context, victims []string) error {
	return parallel(victims, func(v string) error {
		patch, err := json.Marshal(object{"spec": object{"renewTime": metav1.NowMicro()}})
		if err != nil {
			return err
		}
		_, err = l.c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).
			Patch(ctx, v, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("renewing lease of %s: %w", v, err)
		}
		return nil
	})
}

// stale waits until forcefence would find the node suspicious: the bare loop begins no later than it could.
func (l *lab) stale(ctx context.Context, node string) error {
	for {
		left := time.Until(l.watch.staleAt(node, l.lease()))
		if left <= 0 {
			return nil
		}
		if !wait(ctx, left) {
			return ctx.Err()
		}
	}
}

// outage is one turn: the victims lose their power, the floor or forcefence does its work, the machines get their power
// back.
type outage struct {
	victims []string
	side    side
	mark    bool // the floor marks first and lists again
	align   bool // all heartbeats end at the same time

	afterwards time.Duration // how long replacements are watched once all run
}

// play plays it, and returns when all is as before, except where the pods run.
func (l *lab) play(ctx context.Context, o outage) (*turn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.patience(), fmt.Errorf("not after %s", l.patience()))
	defer cancel()
	if err := l.swap(ctx, o.side); err != nil {
		return nil, err
	}
	if l.o.counted {
		var err error
		if _, l.auditRead, err = countCalls(l.callsLog(), l.auditRead); err != nil {
			return nil, err
		}
	}
	t, err := l.watched(ctx, o.victims)
	if err != nil {
		return nil, err
	}
	defer l.watch.follow(nil)
	bare := newLoop(l.floor, o.mark)
	if o.side == floorSide && l.fence != nil {
		if err := l.fence.Pause(); err != nil {
			return nil, err
		}
		defer l.fence.Resume() //nolint:errcheck // the last line below resumes it and checks; this is for errors before
	}
	l.cut(t, o.victims)
	if o.align {
		if err := l.align(ctx, o.victims); err != nil {
			return nil, err
		}
	}
	if o.side == floorSide {
		for _, v := range o.victims {
			if err := l.stale(ctx, v); err != nil {
				return nil, err
			}
		}
		t.start(time.Now())
		if err := parallel(o.victims, func(v string) error { return bare.evict(ctx, v) }); err != nil {
			return nil, err
		}
	}
	missing := ""
	err = cluster.Until(ctx, func(context.Context) (bool, error) {
		missing = t.missing(o.side != floorSide)
		return missing == "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s, %v: %s: %w", o.side, o.victims, missing, err)
	}
	if err := l.running(ctx, 0, nil); err != nil {
		return nil, err
	}
	if !wait(ctx, o.afterwards) {
		return nil, context.Cause(ctx)
	}
	if l.o.counted {
		if t.calls, l.auditRead, err = countCalls(l.callsLog(), l.auditRead); err != nil {
			return nil, err
		}
	}
	l.watch.follow(nil) // what was on the victims when they died is over
	for _, v := range o.victims {
		t.stale(l.watch.staleAt(v, l.lease()))
	}
	if o.side == floorSide && o.mark {
		begun := time.Now()
		if err := parallel(o.victims, func(v string) error { return bare.unmark(ctx, v) }); err != nil {
			return nil, err
		}
		t.unmarking = time.Since(begun)
	}
	if err := l.boot(ctx, o.victims); err != nil {
		return nil, err
	}
	if o.side == floorSide && l.fence != nil {
		if err := l.fence.Resume(); err != nil {
			return nil, err
		}
	}
	if l.r.o.logStages && o.side != floorSide {
		l.r.say("stages: %s", t.stages())
	}
	if !wait(ctx, settle) {
		return nil, context.Cause(ctx)
	}
	return t, nil
}

// boot gives machines their power back, and returns once their nodes are Ready and without taints.
func (l *lab) boot(ctx context.Context, nodes []string) error {
	for _, n := range nodes {
		l.machine(n).PowerOn()
	}
	for _, name := range nodes {
		boot := l.machine(name).BootID()
		err := l.c.WaitNode(ctx, name, func(n *corev1.Node) bool {
			return n.Status.NodeInfo.BootID == boot && nodeReady(n) &&
				!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
					return t.Key != corev1.TaintNodeUnschedulable
				})
		})
		if err != nil {
			return fmt.Errorf("booting: %w", err)
		}
	}
	return nil
}

// wait returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
