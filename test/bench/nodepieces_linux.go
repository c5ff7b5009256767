package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
)

const (
	piecesNode  = "pieces"
	manyPods    = 500
	requests    = 2000
	memoryFor   = 10 * time.Second
	memoryTurns = 3 // of the mark
)

// silent keeps NRI's runtime half off our output.
type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}

// pieces are a node in pieces: NRI's runtime half in this process, once without a plugin and once with both, which are
// the real program, and a Node on the real API server with a simulated kubelet, which claims this machine's boot, as
// the plugins do.
type pieces struct {
	l      *lab
	dir    string
	bare   *adaptation.Adaptation
	hooked *adaptation.Adaptation // nil: stopped
	run    *cluster.Part
}

func (l *lab) pieces(ctx context.Context, program string) (err error) {
	nrilog.Set(silent{})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	_, err = l.c.AddNode(ctx,
		cluster.NodeOptions{Name: piecesNode, BootID: strings.TrimSpace(string(boot)), Pods: 2 * manyPods})
	if err != nil {
		return err
	}
	p := &pieces{l: l, dir: l.file("pieces")}
	if err := p.files(program); err != nil {
		return err
	}
	if p.bare, err = p.runtime("bare", false); err != nil {
		return err
	}
	defer p.bare.Stop()
	defer p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.memory(ctx, "0 pods", 0); err != nil {
		return err
	}
	p.stop()
	pods, err := p.pods(ctx)
	if err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.until(ctx, pods[0], ""); err != nil {
		return err
	}
	if err := p.memory(ctx, fmt.Sprintf("%d pods", manyPods), hookLimit); err != nil {
		return err
	}
	if err := p.ask(ctx, pods); err != nil {
		return err
	}
	for range memoryTurns { // each has both plugins list the pods again
		if err := l.mark(ctx, piecesNode, true); err != nil {
			return err
		}
		if err := p.until(ctx, pods[0], "held on node"); err != nil {
			return err
		}
		if err := l.mark(ctx, piecesNode, false); err != nil {
			return err
		}
		if err := p.until(ctx, pods[0], ""); err != nil {
			return err
		}
	}
	return p.memory(ctx, fmt.Sprintf("%d pods, after %d marks", manyPods, memoryTurns), hookLimit)
}

func (p *pieces) file(name string) string { return filepath.Join(p.dir, name) }

// files put the plugin where NRI finds it, its configuration beside it, and a kubelet's kubeconfig.
func (p *pieces) files(program string) error {
	c := nri.Config{NodeName: piecesNode, Kubeconfig: p.file("kubelet.conf"), StateDir: p.file("state"),
		DataDir: p.file("data"), LogFile: p.file("hook.log")}
	text, err := c.Marshal()
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(p.file("plugins"), 0o755), os.MkdirAll(p.file("conf"), 0o755),
		os.Symlink(program, p.file("plugins/"+nri.PreInstalledIndex+"-"+nri.BaseName)),
		os.WriteFile(p.file("conf/"+nri.BaseName+".conf"), text, 0o600),
		p.l.c.WriteKubeconfig(p.file("kubelet.conf"), "system:node:"+piecesNode, "system:nodes"),
	)
}

// runtime is NRI's half in a runtime. It starts the plugins that are installed, and waits until they have registered.
func (p *pieces) runtime(name string, plugins bool) (*adaptation.Adaptation, error) {
	sync := func(ctx context.Context, cb adaptation.SyncCB) error { _, err := cb(ctx, nil, nil); return err }
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	folder := p.file("no-plugins")
	if plugins {
		folder = p.file("plugins")
	}
	a, err := adaptation.New("containerd", "v2.4.2", sync, update, adaptation.WithSocketPath(p.socket(name)),
		adaptation.WithPluginPath(folder), adaptation.WithPluginConfigPath(p.file("conf")))
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting NRI's runtime half: %w", err)
	}
	return a, nil
}

func (p *pieces) socket(name string) string { return p.file(name + ".sock") }

// start starts both plugins, on a boot that is new to them, and waits until both have registered and read.
func (p *pieces) start(ctx context.Context) (err error) {
	if err := os.RemoveAll(p.file("state")); err != nil {
		return err
	}
	if p.hooked, err = p.runtime("hooked", true); err != nil {
		return err
	}
	p.run = cluster.NewPart("forcefence-node", p.l.file("forcefence-node"),
		[]string{"run", "--config", p.file("conf/" + nri.BaseName + ".conf"), "--nri-socket", p.socket("hooked")},
		p.file("run.log"), func(context.Context) error { _, err := p.statuses(); return err }, nil)
	return p.run.Start(ctx)
}

// statuses are both plugins', or why they are not in step yet.
func (p *pieces) statuses() ([]nri.Status, error) {
	all, err := nri.ReadStatuses(p.file("state"))
	switch {
	case err != nil:
		return nil, err
	case len(all) != 2:
		return nil, fmt.Errorf("%d plugins have written their status", len(all))
	}
	for _, s := range all {
		if s.Registered.IsZero() || !s.Node.Read || !s.Node.ReadySeen {
			return nil, fmt.Errorf("plugin %s is not in step", s.Plugin)
		}
	}
	return all, nil
}

// stop ends both; it may be repeated.
func (p *pieces) stop() {
	if p.run != nil {
		p.run.Stop()
	}
	if p.hooked != nil {
		p.hooked.Stop()
		p.hooked = nil
	}
}

// memory samples both plugins.
func (p *pieces) memory(ctx context.Context, state string, limit float64) error {
	all, err := p.statuses()
	if err != nil {
		return err
	}
	if !wait(ctx, 2*settle) {
		return ctx.Err()
	}
	for _, s := range all {
		who := "the runtime's plugin"
		if strings.HasPrefix(s.Plugin, nri.DaemonIndex) {
			who = "the DaemonSet's plugin"
		}
		got, err := resident(ctx, s.PID, memoryFor/2)
		if err != nil {
			return err
		}
		now := figure("VmRSS of "+who+", "+state, "MB", got.now)
		if limit > 0 {
			now = now.atMost(limit)
		}
		p.l.r.add(now)
		p.l.r.add(figure("VmHWM of "+who+", "+state, "MB", got.peak))
	}
	return nil
}

// pods creates the pods, of a real one's size, and returns them once they run.
func (p *pieces) pods(ctx context.Context) ([]corev1.Pod, error) {
	names := make([]string, manyPods)
	for i := range names {
		names[i] = fmt.Sprintf("many-%03d", i)
	}
	err := parallel(names, func(name string) error {
		_, err := p.l.floor.CoreV1().Pods(namespace).Create(ctx, fatPod(name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating %d pods: %w", manyPods, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	err = cluster.Until(ctx,
		func(context.Context) (bool, error) { return len(p.l.c.Node(piecesNode).Running()) == manyPods, nil })
	if err != nil {
		return nil, fmt.Errorf("waiting for %d pods to run: %w", manyPods, err)
	}
	list, err := p.l.floor.CoreV1().Pods(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + piecesNode})
	if err != nil {
		return nil, err
	}
	bytes := 0
	for i := range list.Items {
		bytes += list.Items[i].Size()
	}
	p.l.r.say("%d pods run, of %.1f kB each in protobuf", manyPods, float64(bytes)/1e3/float64(len(list.Items)))
	return list.Items, nil
}

// fatPod has two containers with 20 variables each, and annotations, as what an operator makes has.
func fatPod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "many"},
			Annotations: map[string]string{}},
		Spec: corev1.PodSpec{NodeName: piecesNode},
	}
	for i := range 10 {
		pod.Annotations["example.net/annotation-"+strconv.Itoa(i)] = strings.Repeat("value ", 20)
	}
	for _, c := range []string{"main", "sidecar"} {
		container := corev1.Container{Name: c, Image: "sim.forcefence.io/app:1"}
		for i := range 20 {
			container.Env = append(container.Env,
				corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", i), Value: strings.Repeat("x", 40)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

// sandboxOf is what containerd asks about a pod.
func sandboxOf(pod *corev1.Pod) *adaptation.RunPodSandboxRequest {
	return &adaptation.RunPodSandboxRequest{Pod: &api.PodSandbox{
		Id: "sandbox", Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Labels: pod.Labels,
		Annotations: map[string]string{"kubernetes.io/config.source": "api"},
	}}
}

// until waits for an answer that holds the word; "" is leave to start.
func (p *pieces) until(ctx context.Context, pod corev1.Pod, word string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	return cluster.Until(ctx, func(ctx context.Context) (bool, error) {
		err := p.hooked.RunPodSandbox(ctx, sandboxOf(&pod))
		if word != "" && err != nil && strings.Contains(err.Error(), word) {
			return true, nil
		}
		return word == "", err
	})
}

// ask times requests for a sandbox as the runtime makes them, in pairs: with no plugin, and with both.
func (p *pieces) ask(ctx context.Context, pods []corev1.Pod) error {
	took := map[side][]float64{}
	for i, s := range turns(requests, floorSide, oursSide) {
		a := p.bare
		if s == oursSide {
			a = p.hooked
		}
		request := sandboxOf(&pods[(i/2)%len(pods)])
		begun := time.Now()
		if err := a.RunPodSandbox(ctx, request); err != nil {
			return fmt.Errorf("a pod that may start was held: %w", err)
		}
		took[s] = append(took[s], float64(time.Since(begun))/float64(time.Microsecond))
	}
	add := differences(took[oursSide], took[floorSide])
	name := fmt.Sprintf("runtime's request to both plugins and back, %d pods", manyPods)
	p.l.r.add(figure(name, "us", took[oursSide]).above(took[floorSide]))
	p99 := figure(fmt.Sprintf("the same, p99 of what the plugins add, %d pods", manyPods), "us", add)
	p99.Value = round(percentile(add, 99))
	p.l.r.add(p99)
	return nil
}

// mark sets or removes a person's mark.
func (l *lab) mark(ctx context.Context, node string, on bool) error {
	const id = "manual"
	err := newLoop(l.floor, true).patchNode(ctx, node, func(n *corev1.Node) object {
		taints := taint.WithoutMark(n.Spec.Taints, taint.DefaultKey, id)
		if on {
			taints = taint.WithMark(taints, taint.DefaultKey, id, time.Now())
		}
		return object{"spec": object{"taints": taints}}
	})
	if err != nil {
		return fmt.Errorf("marking %s: %w", node, err)
	}
	return nil
}
