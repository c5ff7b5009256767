//go:build linux

package nodes

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
)

// The services of a node.
const (
	containerd = "containerd"
	kubelet    = "kubelet"
)

const stopTimeout = 10 * time.Second // from SIGTERM to SIGKILL

// setServices describes the services of a boot. Each is a Part: it is started again when it ends by itself, as systemd
// would do.
func (n *Node) setServices(l *life) {
	socket := fmt.Sprintf("/proc/%d/root%s", l.cmd.Process.Pid, ContainerdSocket)
	service := func(ready func(context.Context) error, argv ...string) *cluster.Part {
		// A Part ends nsenter, and the signal comes of that.
		inside := slices.Concat(l.enter(), []string{"env", "-i"}, servicesEnv, []string{"setpriv", "--pdeathsig=TERM"})
		p := cluster.NewPart(argv[0], "nsenter", append(inside, argv...), n.logFile(argv[0]), ready, nil)
		p.Again = func(int) bool { return !l.ended() }
		return p
	}
	l.containerd = service(func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}, containerd)
	l.kubelet = service(nil, kubelet, "--config="+KubeletConfig, "--kubeconfig="+Kubeconfig,
		"--hostname-override="+n.Name(), "--node-ip="+n.ip, "--v=2")
}

// startServices starts containerd and then, unless it is held, the kubelet, once containerd accepts: that spares a
// kubelet its first failure.
func (n *Node) startServices(l *life, held bool) {
	// Where one does not start, the node does not become Ready, and its logs say why.
	if err := l.containerd.Start(context.Background()); err == nil && !held {
		_ = l.kubelet.Launch()
	}
}

// StopKubelet ends the kubelet, which stays down until StartKubelet or the next boot. Containers run on.
func (n *Node) StopKubelet() error {
	return n.withPower(func(l *life) error { n.stopService(l.kubelet); return nil })
}

// StartKubelet starts the kubelet, if it is down.
func (n *Node) StartKubelet() error {
	return n.withPower(func(l *life) error { return l.kubelet.Launch() })
}

// KillContainerd kills containerd, which is started again after a second, as systemd would. Containers run on.
func (n *Node) KillContainerd() error {
	return n.withPower(func(*life) error { n.signal(containerd, syscall.SIGKILL); return nil })
}

// RestartContainerd stops containerd and starts it at once. Containers run on.
func (n *Node) RestartContainerd() error {
	return n.withPower(func(l *life) error {
		n.stopService(l.containerd)
		return l.containerd.Launch()
	})
}

// stopService returns once the program has ended, and not only nsenter.
func (n *Node) stopService(p *cluster.Part) {
	p.Stop()
	patience := time.After(stopTimeout)
	for n.signal(p.Name(), 0) {
		select {
		case <-patience:
			n.signal(p.Name(), syscall.SIGKILL)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// signal sends a signal to a program, and reports whether it runs.
func (n *Node) signal(program string, s syscall.Signal) (runs bool) {
	for _, p := range n.Processes() {
		if p.Name() == program {
			_ = syscall.Kill(p.PID, s) // it may have ended
			runs = true
		}
	}
	return runs
}

func (n *Node) withPower(do func(*life) error) error {
	if l := n.current(); l != nil {
		return do(l)
	}
	return fmt.Errorf("node %s is off", n.Name())
}
