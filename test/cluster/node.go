package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// NodeOptions describe one machine and its kubelet. Only Name is needed. Zero durations of the heartbeats follow the
// cluster's NodeGrace: a lease as long as it, a look at the status four times in it; without it they are a kubelet's
// (40 s, 10 s).
type NodeOptions struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint // at registration, as kubeadm would
	ProviderID  string
	SystemUUID  string // "": random
	BootID      string // of the first boot; "": random
	Address     string // the InternalIP; "": one of this machine, which has no connections
	PodNet      string // the first half of its pods' addresses; "": one where nothing answers

	CPU   string // "": 64
	Slots *int32 // how many volumes can be attached; nil: any number

	LeaseDuration  time.Duration // what the Lease says of itself; below fleet.MinDuration forcefence takes 40 s for it
	RenewEvery     time.Duration // 0: a quarter of LeaseDuration
	StatusInterval time.Duration // between looks at the own Node; written if something differs, and every 5 minutes

	ReadyDelay   time.Duration // from power-on to Ready; pods start meanwhile, as on a real node
	StartDelay   time.Duration // of a pod's containers
	StopDelay    time.Duration // of containers that are asked to end; never longer than the grace period
	SandboxRetry time.Duration // of a held pod, times 1.0 to 1.5; 0: 10 s as a kubelet
}

const (
	kubeletLease        = 40 * time.Second
	kubeletStatus       = 10 * time.Second
	kubeletStatusReport = 5 * time.Minute
	kubeletSandboxRetry = 10 * time.Second
)

func (o NodeOptions) withDefaults(grace time.Duration) NodeOptions {
	set(&o.SystemUUID, string(uuid.NewUUID()))
	set(&o.CPU, "64")
	set(&o.PodNet, podNet)
	if grace > 0 {
		set(&o.LeaseDuration, max(grace, fleet.MinDuration))
		set(&o.RenewEvery, grace/4)
		set(&o.StatusInterval, grace/4)
	}
	set(&o.LeaseDuration, kubeletLease)
	set(&o.RenewEvery, o.LeaseDuration/4)
	set(&o.StatusInterval, kubeletStatus)
	set(&o.SandboxRetry, kubeletSandboxRetry)
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Node is a machine with a simulated kubelet. The kubelet speaks to the API server as system:node:<name>, so the node
// authorizer and NodeRestriction bound it as a real one. It is safe for concurrent use.
//
// What is real: registration, Lease, status with bootID and volumesInUse, waiting for attached volumes, graceful
// deletion, tombstones, NoExecute at admission, the hook's decision. What is not: containers are entries in the Ledger,
// probes always pass, and images, init containers and ConfigMaps take no time.
type Node struct {
	c        *Cluster
	opts     NodeOptions
	capacity corev1.ResourceList
	ip       string
	log      *slog.Logger

	core    coreclient.CoreV1Interface
	leases  coordinationclient.LeaseInterface
	csi     storageclient.CSINodeInterface
	writers chan struct{} // bounds pod writes under way, as a kubelet's client does

	power sync.Mutex // held while the power changes

	mu     sync.Mutex // guards the rest
	boot   *boot      // nil: off
	bootID string     // of the current or last boot
}

// AddNode registers a node, boots it and returns once it was seen to be Ready. A Node object that is there is taken
// over, as a kubelet does.
func (c *Cluster) AddNode(ctx context.Context, opts NodeOptions) (*Node, error) {
	n, err := c.newNode(opts)
	if err != nil {
		return nil, fmt.Errorf("add node %s: %w", opts.Name, err)
	}
	n.PowerOn(opts.BootID)
	if err := n.WaitReady(ctx); err != nil {
		n.PowerOff()
		c.mu.Lock()
		delete(c.nodes, opts.Name)
		c.mu.Unlock()
		return nil, fmt.Errorf("add node %s: %w", opts.Name, err)
	}
	return n, nil
}

// AddNodes adds count nodes at once; describe gives the options of the i-th, from 0.
func (c *Cluster) AddNodes(ctx context.Context, count int, describe func(i int) NodeOptions) ([]*Node, error) {
	nodes, errs := make([]*Node, count), make([]error, count)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range count {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			nodes[i], errs[i] = c.AddNode(ctx, describe(i))
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

func (c *Cluster) newNode(opts NodeOptions) (*Node, error) {
	opts = opts.withDefaults(c.opts.NodeGrace)
	cpu, err := resource.ParseQuantity(opts.CPU)
	if err != nil {
		return nil, fmt.Errorf("CPU %q: %w", opts.CPU, err)
	}
	cfg := protobuf(c.RESTConfig()) // impersonation shares one connection among all nodes
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + opts.Name, Groups: []string{"system:nodes"}}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	core, err := coreclient.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	coordination, err := coordinationclient.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	storage, err := storageclient.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	if opts.Address == "" {
		opts.Address = c.address(nodeNet)
	}
	n := &Node{
		c: c, opts: opts, capacity: corev1.ResourceList{
			corev1.ResourceCPU: cpu, corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods:             resource.MustParse("500"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		}, ip: opts.Address, log: c.log.With("node", opts.Name),
		core: core, leases: coordination.Leases(corev1.NamespaceNodeLease), csi: storage.CSINodes(),
		writers: make(chan struct{}, 16),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[opts.Name] != nil {
		return nil, fmt.Errorf("there is one already")
	}
	c.nodes[opts.Name] = n
	return n, nil
}

// Networks of the simulated machines that have no address of their own, and of pods; nothing answers there, and nothing
// is sent there.
const (
	nodeNet = "127.100"
	podNet  = "10.128"
)

// address is one of a network of 65,536, by its first half.
func (c *Cluster) address(net string) string {
	i := c.addresses.Add(1)
	return fmt.Sprintf("%s.%d.%d", net, i>>8&0xff, i&0xff)
}

// Node returns the node of that name, or nil.
func (c *Cluster) Node(name string) *Node {
	if name == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// Nodes are all nodes, by name.
func (c *Cluster) Nodes() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.nodes), func(a, b *Node) int { return strings.Compare(a.Name(), b.Name()) })
}

// Name is the Node's name.
func (n *Node) Name() string { return n.opts.Name }

// SystemUUID is what the machine's firmware says.
func (n *Node) SystemUUID() string { return n.opts.SystemUUID }

// BootID is the current boot's, or the last one's while the machine is off.
func (n *Node) BootID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bootID
}

// IsOn reports whether the machine has power.
func (n *Node) IsOn() bool { return n.current() != nil }

// Running is what runs on the node now.
func (n *Node) Running() []Run { return n.c.ledger.running(n.Name()) }

func (n *Node) current() *boot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.boot
}

// PowerOff takes the machine's power: its containers are gone at once, and its kubelet sends nothing more. A write
// already on the wire may still land, as it may in life. It returns when the last goroutine of the machine has ended,
// and may be repeated.
func (n *Node) PowerOff() {
	n.power.Lock()
	defer n.power.Unlock()
	b := n.current()
	if b == nil {
		return
	}
	b.kill()
	n.c.ledger.powerOff(n.Name())
	n.mu.Lock()
	n.boot = nil
	n.mu.Unlock()
	b.wg.Wait()
	n.log.Debug("Powered off")
}

// PowerOn boots the machine, with that boot id or a new one for "". A machine that is on stays as it is. It does not
// wait: see WaitReady.
func (n *Node) PowerOn(bootID string) {
	n.power.Lock()
	defer n.power.Unlock()
	if n.current() != nil {
		return
	}
	set(&bootID, string(uuid.NewUUID()))
	n.mu.Lock()
	b := newBoot(n, bootID)
	n.boot, n.bootID = b, bootID
	n.mu.Unlock()
	n.c.ledger.powerOn(n.Name())
	b.start()
	n.log.Debug("Powered on", "boot", bootID)
}

// WaitReady returns once the kubelet of the current boot has posted Ready.
func (n *Node) WaitReady(ctx context.Context) error {
	b := n.current()
	if b == nil {
		return fmt.Errorf("node %s is off", n.Name())
	}
	select {
	case <-b.ready:
		return nil
	case <-b.ctx.Done():
		return fmt.Errorf("node %s went off", n.Name())
	case <-ctx.Done():
		return fmt.Errorf("waiting for node %s to post Ready: %w", n.Name(), context.Cause(ctx))
	}
}

// StopHeartbeats cuts the kubelet off the API server: it neither sends nor hears anything, and its containers run on.
// This is the node that must never be taken for off.
func (n *Node) StopHeartbeats() {
	if b := n.current(); b != nil {
		b.cut()
	}
}

// ResumeHeartbeats ends what StopHeartbeats began. The kubelet lists its pods again, and ends those that are gone.
func (n *Node) ResumeHeartbeats() {
	if b := n.current(); b != nil {
		b.mend()
	}
}

// Remove takes the machine's power and deletes its Node and its pods by force: for tests that share a cluster.
func (n *Node) Remove(ctx context.Context) error {
	n.PowerOff()
	n.c.mu.Lock()
	delete(n.c.nodes, n.Name())
	n.c.mu.Unlock()
	core := n.c.clients.CoreV1()
	if err := ignoreNotFound(core.Nodes().Delete(ctx, n.Name(), deleteNow(""))); err != nil {
		return fmt.Errorf("remove node %s: %w", n.Name(), err)
	}
	for _, pod := range n.c.hub.pods.all() {
		if pod.Spec.NodeName != n.Name() {
			continue
		}
		if err := core.Pods(pod.Namespace).Delete(ctx, pod.Name, deleteNow(pod.UID)); err != nil && !final(err) {
			return fmt.Errorf("remove node %s: deleting pod %s: %w", n.Name(), key(pod), err)
		}
	}
	return nil
}

func (n *Node) onPod(pod *corev1.Pod, deleted bool) {
	if b := n.current(); b != nil {
		b.onPod(pod, deleted)
	}
}

func (n *Node) onNode(node *corev1.Node) {
	if b := n.current(); b != nil {
		b.onNode(node)
	}
}

func (n *Node) wake() {
	if b := n.current(); b != nil {
		b.wake()
	}
}
