//go:build linux

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes/wire"
)

const (
	bootTimeout    = 20 * time.Second // until init has answered
	requestTimeout = 30 * time.Second // of init; a stop may take 10 s
	importTimeout  = 60 * time.Second
)

// NodeOptions describe one node. Only Name is needed.
type NodeOptions struct {
	Name string

	// Machine is the node's power and identity: a power cut there, or through its BMC, kills the node, and On boots it.
	// It must be on. nil: a machine of the node's own.
	Machine *datacenter.Machine

	StaticPods map[string][]byte // manifests by name
	// absolute path inside to content, before the first boot; see HostPath for where it may be
	Files       map[string][]byte
	KubeletArgs []string // added last
}

// Node is a machine with containerd and a kubelet. It is safe for concurrent use.
type Node struct {
	lab        *Lab
	opts       NodeOptions
	log        *slog.Logger
	index      int
	dir        string
	ip         string
	port       string // of the bridge
	cgroup     string
	systemUUID string

	power sync.Mutex // held while the power or the network changes

	mu      sync.Mutex // guards the rest
	life    *life      // nil: off
	bootID  string     // of the current or last boot
	bootErr error      // of the last boot
	cut     bool       // the network is
	held    bool       // the first boot: the kubelet waits for images
	retired bool       // the lab has stopped
}

// life is one boot: everything that a power cut ends.
type life struct {
	cmd    *exec.Cmd
	socket *os.File
	talk   sync.Mutex // held from a request to its answer
	out    *json.Decoder
	dead   chan struct{} // closed once the kernel has ended everything
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
			err = fmt.Errorf("%w\n%s", err, n.Logs())
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
		lab: l, opts: opts, log: l.log.With("node", opts.Name), index: l.count, dir: filepath.Join(l.dir, opts.Name),
		ip: fmt.Sprintf(nodeAddress, l.count+10), port: fmt.Sprintf("port%d", l.count), cgroup: l.id + "-" + opts.Name,
		held: true,
	}
	if n.systemUUID = string(uuid.NewUUID()); opts.Machine != nil {
		n.systemUUID = opts.Machine.SystemUUID()
	}
	l.nodes[opts.Name] = n
	return n, nil
}

func (n *Node) firstBoot(ctx context.Context) error {
	for _, folder := range append([]string{"/scratch"}, persistent...) {
		dir := n.disk(folder)
		if folder == "/scratch" {
			dir = filepath.Join(n.dir, "scratch")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, folder := range []string{StaticPods, NRIPlugins, NRIConfig, "/etc/containerd/conf.d"} {
		if err := os.MkdirAll(n.disk(folder), 0o755); err != nil {
			return err
		}
	}
	files, err := n.files(n.credentials())
	if err != nil {
		return err
	}
	if err := n.write(files); err != nil {
		return err
	}
	if m := n.opts.Machine; m != nil {
		if !m.Running() {
			return errors.New("its machine is off")
		}
		m.OnChange(func(_ *datacenter.Machine, on bool) {
			if !on {
				n.crash()
			} else if err := n.start(m.BootID()); err != nil {
				n.log.Warn("Cannot boot", "err", err)
			}
		})
		err = n.start(m.BootID())
	} else {
		err = n.start("")
	}
	if err != nil {
		return err
	}
	n.lab.mu.Lock()
	images := append([]string(nil), n.lab.images...)
	n.lab.mu.Unlock()
	for _, tar := range images {
		if err := n.Import(ctx, tar); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.held = false
	n.mu.Unlock()
	return n.StartKubelet()
}

// Name is the Node's name.
func (n *Node) Name() string { return n.opts.Name }

// IP is the node's address in the lab's network.
func (n *Node) IP() string { return n.ip }

// SystemUUID is what the machine's firmware says, inside the node too.
func (n *Node) SystemUUID() string { return n.systemUUID }

// BootID is the current boot's, or the last one's while the node is off.
func (n *Node) BootID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bootID
}

// IsOn reports whether the node has power.
func (n *Node) IsOn() bool { return n.current() != nil }

func (n *Node) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return nil
	}
	select {
	case <-n.life.dead:
		return nil
	default:
		return n.life
	}
}

// disk is where a path inside a persistent folder lies on the machine.
func (n *Node) disk(inside string) string {
	return filepath.Join(n.dir, "disk", filepath.FromSlash(inside))
}

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

// start gives the node power; with "" a new boot id. A node that is on stays as it is.
func (n *Node) start(bootID string) error {
	n.power.Lock()
	defer n.power.Unlock()
	n.mu.Lock()
	retired, cut, held := n.retired, n.cut, n.held
	n.mu.Unlock()
	if retired || n.current() != nil {
		return nil
	}
	if bootID == "" {
		bootID = string(uuid.NewUUID())
	}
	n.lab.net.unplug(n.port) // of a boot whose init ended by itself
	err := removeCgroups(n.cgroup)
	if err == nil {
		err = makeCgroups(n.cgroup)
	}
	var l *life
	if err == nil {
		l, err = n.spawn(n.bootRecord(bootID, held))
	}
	if err == nil {
		if err = n.lab.net.plug(n.port, l.cmd.Process.Pid, n.ip, fmt.Sprintf(podSubnet, n.index), !cut); err == nil {
			_, err = l.ask(wire.Request{Do: wire.Up})
		}
		if err != nil {
			l.end()
			l = nil
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life, n.bootID, n.bootErr = l, bootID, err
	if err != nil {
		n.bootErr = fmt.Errorf("boot node %s: %w", n.Name(), err)
	}
	n.log.Debug("Booted", "boot", bootID, "err", err)
	return n.bootErr
}

// spawn starts init in namespaces of its own, and returns once the node's root is ready.
func (n *Node) spawn(b wire.Boot) (*life, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "init"), os.NewFile(uintptr(pair[1]), "lab")
	defer theirs.Close()
	console, err := os.OpenFile(filepath.Join(n.dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer console.Close()
	cmd := exec.Command(n.lab.init)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = console, console, []*os.File{theirs}
	cmd.Env = servicesEnv
	// The signal of our death reaches even a process 1, because it comes from outside its namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if err := kit.StartChild(cmd); err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting init: %w", err)
	}
	l := &life{cmd: cmd, socket: ours, out: json.NewDecoder(ours), dead: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // killed, as a rule
		close(l.dead)
	}()
	record, err := json.Marshal(b)
	if err == nil {
		_, err = l.send(record, bootTimeout)
	}
	if err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// end kills init. The kernel kills everything else in its process namespace, and has done so when init is reaped.
func (l *life) end() {
	_ = l.cmd.Process.Kill() // an error means that it ended
	<-l.dead
	l.socket.Close()
}

func (l *life) ask(req wire.Request) (int, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return 0, err
	}
	return l.send(data, requestTimeout)
}

func (l *life) send(data []byte, timeout time.Duration) (int, error) {
	l.talk.Lock()
	defer l.talk.Unlock()
	if err := l.socket.SetDeadline(time.Now().Add(timeout)); err != nil {
		return 0, fmt.Errorf("asking init: %w", err)
	}
	if _, err := l.socket.Write(data); err != nil {
		return 0, fmt.Errorf("asking init: %w", err)
	}
	var a wire.Answer
	if err := l.out.Decode(&a); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			err = errors.New("it ended")
		}
		return 0, fmt.Errorf("asking init: %w", err)
	}
	if a.Err != "" {
		return 0, errors.New(a.Err)
	}
	return a.PID, nil
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
	n.log.Debug("Power cut")
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
func (n *Node) PowerCut() {
	if m := n.opts.Machine; m != nil {
		m.CutPower()
		return
	}
	n.crash()
}

// PowerOn boots the machine with a new boot id, and returns once its services are being started; see WaitReady. A
// machine that is on stays as it is.
func (n *Node) PowerOn() error {
	m := n.opts.Machine
	if m == nil {
		return n.start("")
	}
	m.PowerOn()
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

// StopKubelet ends the kubelet, which stays down until StartKubelet or the next boot. Containers run on.
func (n *Node) StopKubelet() error { return n.service(wire.Stop, wire.Kubelet) }

// StartKubelet starts the kubelet, if it is down.
func (n *Node) StartKubelet() error { return n.service(wire.Start, wire.Kubelet) }

// StopContainerd ends containerd, which stays down until StartContainerd or the next boot. Containers run on.
func (n *Node) StopContainerd() error { return n.service(wire.Stop, wire.Containerd) }

// StartContainerd starts containerd, if it is down.
func (n *Node) StartContainerd() error { return n.service(wire.Start, wire.Containerd) }

// KillContainerd kills containerd, which is started again after a second, as systemd would.
func (n *Node) KillContainerd() error { return n.service(wire.Kill, wire.Containerd) }

// RestartContainerd stops containerd and starts it.
func (n *Node) RestartContainerd() error {
	return errors.Join(n.StopContainerd(), n.StartContainerd())
}

func (n *Node) service(do, name string) error {
	_, err := n.ask(do, name)
	return err
}

func (n *Node) ask(do, service string) (int, error) {
	l := n.current()
	if l == nil {
		return 0, fmt.Errorf("%s %s: node %s is off", do, service, n.Name())
	}
	pid, err := l.ask(wire.Request{Do: do, Service: service})
	if err != nil {
		return 0, fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return pid, nil
}

// Import imports an OCI tar, once containerd answers.
func (n *Node) Import(ctx context.Context, tar string) error {
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
	target := fmt.Sprintf("--target=%d", l.cmd.Process.Pid)
	cmd := exec.CommandContext(ctx, "nsenter",
		append([]string{target, "--mount", "--uts", "--ipc", "--net", "--pid", "--"}, argv...)...)
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

// Logs are the ends of the node's logs, for a failing test.
func (n *Node) Logs() string {
	var out strings.Builder
	files := map[string]string{"console": filepath.Join(n.dir, "console.log")}
	for _, name := range []string{"boot", wire.Containerd, wire.Kubelet} {
		files[name] = n.disk("/var/log/" + name + ".log")
	}
	for _, name := range []string{"console", "boot", wire.Containerd, wire.Kubelet} {
		data, err := os.ReadFile(files[name])
		if err != nil {
			continue
		}
		fmt.Fprintf(&out, "%s of %s:\n%s\n", name, n.Name(), data[max(0, len(data)-tailBytes):])
	}
	return out.String()
}
