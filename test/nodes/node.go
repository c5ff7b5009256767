//go:build linux

package nodes

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	bootTimeout   = 2 * time.Minute // until the node's root is ready; 20 s were too few at a load of 44
	importTimeout = 60 * time.Second
)

// NodeOptions describe one node. Only Name is needed.
type NodeOptions struct {
	Name string

	// Machine is the node's power and identity: a power cut there, or through its BMC, kills the node, and On boots it.
	// It must be on. nil: the lab makes one.
	Machine *datacenter.Machine

	StaticPods map[string][]byte // manifests by name
}

// Node is a machine with containerd and a kubelet. It is safe for concurrent use.
type Node struct {
	lab    *Lab
	opts   NodeOptions
	index  int
	dir    string
	ip     string
	port   string // of the bridge
	cgroup string

	power sync.Mutex // held while the power or the network changes

	mu      sync.Mutex // guards the rest
	life    *life      // nil: off
	bootErr error      // of the last boot
	cut     bool       // the network is
	retired bool       // the lab has stopped
}

// life is one boot: everything that a power cut ends.
type life struct {
	cmd                 *exec.Cmd     // process 1
	dead                chan struct{} // closed once the kernel has ended everything
	containerd, kubelet *cluster.Part
	starting            sync.WaitGroup // of both
}

// Add makes a node, boots it, and returns once it was seen Ready. A Node object of that name is taken over, as a
// kubelet does.
func (l *Lab) Add(ctx context.Context, opts NodeOptions) (*Node, error) {
	n, err := l.newNode(opts)
	if err == nil {
		if err = n.firstBoot(ctx); err == nil {
			err = n.WaitReady(ctx)
		}
	}
	if err != nil {
		err = fmt.Errorf("add node %s: %w", opts.Name, err)
		if n != nil {
			err = fmt.Errorf("%w\n%s", err, n.logs())
		}
		return nil, err // Stop removes what there is of it
	}
	return n, nil
}

func (l *Lab) newNode(opts NodeOptions) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case opts.Name == "" || strings.ContainsAny(opts.Name, "/\n"):
		return nil, fmt.Errorf("bad name %q", opts.Name)
	case l.nodes[opts.Name] != nil:
		return nil, errors.New("there is one already")
	case l.count == maxNodes:
		return nil, errors.New("no more addresses")
	}
	l.count++
	n := &Node{
		lab: l, opts: opts, index: l.count, dir: filepath.Join(l.dir, opts.Name),
		ip: fmt.Sprintf(nodeAddress, l.count+10), port: fmt.Sprintf("port%d", l.count), cgroup: l.id + "-" + opts.Name,
	}
	if opts.Machine == nil {
		n.opts.Machine = l.own.AddMachine(opts.Name)
	}
	l.nodes[opts.Name] = n
	return n, nil
}

func (n *Node) firstBoot(ctx context.Context) error {
	dirs := []string{n.scratch()}
	for _, folder := range append([]string{StaticPods, NRIPlugins, NRIConfig, "/etc/containerd/conf.d"},
		persistent...) {
		dirs = append(dirs, n.disk(folder))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := n.write(n.files(n.credentials())); err != nil {
		return err
	}
	m := n.opts.Machine
	if !m.Running() {
		return errors.New("its machine is off")
	}
	m.OnChange(func(_ *datacenter.Machine, on bool) {
		if on {
			_ = n.start(false) // PowerOn returns it
		} else {
			n.crash()
		}
	})
	if err := n.start(true); err != nil {
		return err
	}
	for _, tar := range n.lab.images {
		if err := n.load(ctx, tar); err != nil {
			return err
		}
	}
	return n.StartKubelet()
}

// Name is the Node's name.
func (n *Node) Name() string { return n.opts.Name }

// SystemUUID is what the machine's firmware says, inside the node too.
func (n *Node) SystemUUID() string { return n.opts.Machine.SystemUUID() }

// BootID is the current boot's, or the last one's while the node is off.
func (n *Node) BootID() string { return n.opts.Machine.BootID() }

func (n *Node) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil || n.life.ended() {
		return nil
	}
	return n.life
}

// disk is where a path inside a persistent folder lies on the machine.
func (n *Node) disk(inside string) string {
	return filepath.Join(n.dir, "disk", filepath.FromSlash(inside))
}

// scratch is an empty folder for process 1.
func (n *Node) scratch() string { return filepath.Join(n.dir, "scratch") }

// logFile is a service's log on the machine.
func (n *Node) logFile(name string) string { return n.disk("/var/log/" + name + ".log") }

// HostPath is where a path of a persistent folder of the node (/etc/containerd, /etc/kubernetes, /opt, /srv, /var/lib,
// /var/log and others) lies on the machine, whether the node is on or off. What the node mounts there is not seen.
// Other paths are an error: they are fresh at each boot.
func (n *Node) HostPath(inside string) (string, error) {
	clean := path.Clean(inside)
	for _, folder := range persistent {
		if clean == folder || strings.HasPrefix(clean, folder+"/") {
			return n.disk(clean), nil
		}
	}
	return "", fmt.Errorf("path %s of node %s does not outlive a boot", inside, n.Name())
}

// start gives the node power. A node that is on stays as it is. A kubelet that is held waits for StartKubelet.
func (n *Node) start(held bool) error {
	n.power.Lock()
	defer n.power.Unlock()
	n.mu.Lock()
	retired, cut := n.retired, n.cut
	n.mu.Unlock()
	if retired || n.current() != nil {
		return nil
	}
	n.lab.net.unplug(n.port) // of a boot whose init ended by itself
	err := removeCgroups(n.cgroup)
	if err == nil {
		err = makeCgroups(n.cgroup)
	}
	var l *life
	if err == nil {
		l, err = n.spawn()
	}
	if err == nil {
		err = n.lab.net.plug(n.port, l.cmd.Process.Pid, n.ip, fmt.Sprintf(podSubnet, n.index), !cut)
		if err != nil {
			l.end()
			l = nil
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life, n.bootErr = l, err
	if err != nil {
		n.bootErr = fmt.Errorf("boot node %s: %w", n.Name(), err)
	}
	if err == nil {
		l.starting.Go(func() { n.startServices(l, held) })
	}
	return n.bootErr
}

//go:embed init.sh
var initScript string

// spawn starts process 1 in namespaces of its own, and returns once the node's root is ready.
func (n *Node) spawn() (*life, error) {
	console, err := os.OpenFile(n.logFile("console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-euc", initScript, "init"}, n.binds()...)...)
	cmd.Stderr = console
	cmd.Env = append([]string{"NODE=" + n.Name(), "BOOT_ID=" + n.BootID(), "SYSTEM_UUID=" + n.SystemUUID(),
		"SCRATCH=" + n.scratch()}, servicesEnv...)
	// The signal of our death reaches even a process 1, because it comes from outside its namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if _, err := cmd.StdinPipe(); err != nil { // it ends with us
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := kit.StartChild(cmd); err != nil {
		return nil, fmt.Errorf("starting process 1: %w", err)
	}
	patience := time.AfterFunc(bootTimeout, func() { _ = cmd.Process.Kill() })
	said, err := io.ReadAll(out)
	patience.Stop()
	l := &life{cmd: cmd, dead: make(chan struct{})}
	n.setServices(l)
	go func() {
		_ = cmd.Wait() // killed, as a rule
		close(l.dead)
	}()
	if err != nil || string(said) != "ready\n" {
		l.end()
		return nil, errors.Join(errors.New("building the node's root failed: its console has the reason"), err)
	}
	return l, nil
}

// end kills process 1. The kernel kills everything else in its process namespace, and has done so when it is reaped.
func (l *life) end() {
	_ = l.cmd.Process.Kill() // an error means that it ended
	<-l.dead
	l.starting.Wait()
	l.containerd.Stop()
	l.kubelet.Stop()
}

func (l *life) ended() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// enter returns the arguments of nsenter for a command that runs in the node, as root.
func (l *life) enter() []string {
	return []string{fmt.Sprintf("--target=%d", l.cmd.Process.Pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
}

// crash takes the power. When it returns no process of the node is left.
func (n *Node) crash() {
	n.power.Lock()
	defer n.power.Unlock()
	n.mu.Lock()
	l := n.life
	n.life = nil
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.end()
	n.lab.net.unplug(n.port)
}

// retire is a power cut for good.
func (n *Node) retire() {
	n.mu.Lock()
	n.retired = true
	n.mu.Unlock()
	n.crash()
}

// PowerCut takes the machine's power away, as a pulled plug does: when it returns no process, mount or network
// interface of the node is left. It may be repeated.
func (n *Node) PowerCut() { n.opts.Machine.CutPower() }

// PowerOn boots the machine with a new boot id, and returns once its services are being started; see WaitReady. A
// machine that is on stays as it is.
func (n *Node) PowerOn() error {
	n.opts.Machine.PowerOn()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bootErr
}

// CutNetwork takes the node's link down at the switch: packets vanish, connections hang, and everything on the node
// runs on. It outlives boots.
func (n *Node) CutNetwork() error { return n.link(false) }

// RestoreNetwork mends what CutNetwork cut.
func (n *Node) RestoreNetwork() error { return n.link(true) }

func (n *Node) link(up bool) error {
	n.power.Lock()
	defer n.power.Unlock()
	n.mu.Lock()
	n.cut = !up
	n.mu.Unlock()
	if n.current() == nil {
		return nil
	}
	if err := n.lab.net.cable(n.port, up); err != nil {
		return fmt.Errorf("network of node %s: %w", n.Name(), err)
	}
	return nil
}

// WaitReady returns once the Node is Ready under the current boot id.
func (n *Node) WaitReady(ctx context.Context) error {
	return n.lab.opts.Cluster.WaitNode(ctx, n.Name(), func(node *corev1.Node) bool {
		return cluster.IsReady(node) && node.Status.NodeInfo.BootID == n.BootID()
	})
}

// load imports an image's tar, once containerd answers.
func (n *Node) load(ctx context.Context, tar string) error {
	name := "import-" + filepath.Base(tar)
	data, err := os.ReadFile(tar)
	if err != nil {
		return err
	}
	inside := path.Join("/var/lib", name)
	if err := n.write(map[string][]byte{inside: data}); err != nil {
		return err
	}
	defer os.Remove(n.disk(inside)) // a leftover only takes space
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	if err := n.WaitContainerd(ctx); err != nil {
		return err
	}
	_, err = n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "import", inside)
	return err
}

// WaitContainerd returns once containerd serves the kubelet.
func (n *Node) WaitContainerd(ctx context.Context) error {
	return cluster.Until(ctx, func(ctx context.Context) (bool, error) {
		_, err := n.Exec(ctx, "ctr", "version")
		return err == nil, err
	})
}

// Exec runs a program in the node's namespaces, as root, and returns all that it printed. It ends with ctx, and with
// the node.
func (n *Node) Exec(ctx context.Context, argv ...string) (string, error) {
	l := n.current()
	if l == nil {
		return "", fmt.Errorf("%s on node %s: it is off", argv[0], n.Name())
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(l.enter(), argv...)...)
	cmd.Env, cmd.Dir = servicesEnv, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// it has a child in the namespace
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out),
			fmt.Errorf("%s on node %s: %w: %s", strings.Join(argv, " "), n.Name(), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

const tailBytes = 3 << 10

// logs are the ends of the node's logs and its pods'.
func (n *Node) logs() string {
	var out strings.Builder
	own, _ := filepath.Glob(n.logFile("*")) // the patterns are well formed
	pods, _ := filepath.Glob(n.logFile("pods/*/*/*"))
	for _, file := range append(own, pods...) {
		data, err := os.ReadFile(file)
		fmt.Fprintf(&out, "%s: %v\n%s\n", file, err, data[max(0, len(data)-tailBytes):])
	}
	return out.String()
}
