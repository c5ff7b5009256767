package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/nodes"
)

const (
	hookedNode, bareNode = "hooked", "bare"

	probeImage = "forcefence.test/probe:1"
	nodeImage  = "forcefence.test/forcefence-node:1"
	hookLabel  = "bench-hook"

	startPairs   = 15
	releaseTurns = 5
	heldPods     = 10
)

// realNodes are two nodes that differ only in the hook.
type realNodes struct {
	l            *lab
	lab          *nodes.Lab
	shared       string // the probes' log
	hooked, bare *nodes.Node
}

// realNodes starts them and installs the hook on one, fail-closed. Both have had their containerd restarted once by
// then.
func (l *lab) realNodes(ctx context.Context, program string) (_ *realNodes, err error) {
	w := &realNodes{l: l, shared: l.file("shared")}
	if err := os.MkdirAll(w.shared, 0o755); err != nil {
		return nil, err
	}
	probe, err := nodes.BuildProgram(ctx, l.dir, "test/e2e/probe")
	if err != nil {
		return nil, err
	}
	var images []string
	for name, file := range map[string]string{probeImage: probe, nodeImage: program} {
		images = append(images, file+".tar")
		if err := nodes.WriteImage(file+".tar", name, file); err != nil {
			return nil, err
		}
	}
	w.lab, err = nodes.Start(ctx,
		nodes.Options{Cluster: l.c, Images: images, Shared: map[string]string{w.shared: w.shared}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.end())
		}
	}()
	var adding sync.WaitGroup
	var errs [2]error
	for i, n := range []**nodes.Node{&w.hooked, &w.bare} {
		name := []string{hookedNode, bareNode}[i]
		m := l.dc.AddMachine(name)
		bmc, err := l.devs.add(m)
		if err != nil {
			return nil, err
		}
		adding.Go(func() {
			if *n, errs[i] = w.lab.Add(ctx, nodes.NodeOptions{Name: name, Machine: m}); errs[i] == nil {
				errs[i] = l.describe(ctx, name, bmc)
			}
		})
	}
	adding.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	l.r.say("two real nodes are Ready")
	if _, err := l.c.Client().AppsV1().DaemonSets(metav1.NamespaceSystem).
		Create(ctx, hookDaemonSet(), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := w.protected(ctx, ""); err != nil {
		return nil, err
	}
	// What install wrote is read at the runtime's start.
	if err := errors.Join(w.hooked.RestartContainerd(), w.bare.RestartContainerd()); err != nil {
		return nil, err
	}
	if err := w.protected(ctx, taint.ProtectionFailClosed); err != nil {
		return nil, err
	}
	l.r.say("one of them has the hook, fail-closed")
	return w, nil
}

func (w *realNodes) end() error { return w.lab.Stop() }

// describe names the node's BMC, and says whether it gets the hook.
func (l *lab) describe(ctx context.Context, name, bmc string) error {
	patch, err := json.Marshal(object{"metadata": object{
		"annotations": object{bmcAnnotation: bmc}, "labels": object{hookLabel: fmt.Sprint(name == hookedNode)},
	}})
	if err != nil {
		return err
	}
	_, err = l.c.Client().CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// hookDaemonSet is the node's side as it is deployed, on the nodes with the label.
func hookDaemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "forcefence-node"}
	propagation, folder := corev1.MountPropagationHostToContainer, corev1.HostPathDirectory
	container := func(args ...string) corev1.Container {
		return corev1.Container{
			Name: args[0], Image: nodeImage, ImagePullPolicy: corev1.PullNever, Args: append(args, "--root=/host"),
			Env: []corev1.EnvVar{field("NODE_NAME", "spec.nodeName")},
			SecurityContext: &corev1.SecurityContext{
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"},
					Add: []corev1.Capability{"SYS_CHROOT"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host", MountPropagation: &propagation}},
		}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "forcefence-node"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels,
					Annotations: map[string]string{"forcefence.io/tolerate-missing": "true"}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{hookLabel: "true"},
					HostNetwork:  true, AutomountServiceAccountToken: new(false),
					PriorityClassName: "system-node-critical",
					Tolerations:       []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					InitContainers:    []corev1.Container{container("install", "--required-plugins")},
					Containers:        []corev1.Container{container("run")},
					Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: &folder},
					}}},
				},
			},
		},
	}
}

func field(variable, path string) corev1.EnvVar {
	return corev1.EnvVar{
		Name:      variable,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}},
	}
}

// protected waits until the Node says which protection it has; "" is any.
func (w *realNodes) protected(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	err := w.l.c.WaitNode(ctx, hookedNode, func(n *corev1.Node) bool {
		status, got := taint.ProtectionOf(n)
		return status != "" && (reason == "" || got == reason)
	})
	if err != nil {
		return fmt.Errorf("waiting for the hook: %w\n%s", err, w.hooked.Logs())
	}
	return nil
}

// probe is a pod whose container writes a line with its UID and time as soon as it runs.
func (w *realNodes) probe(name, node string) *corev1.Pod {
	folder := corev1.HostPathDirectory
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			EnableServiceLinks: new(false),
			Containers: []corev1.Container{{
				Name: "probe", Image: probeImage, ImagePullPolicy: corev1.PullNever, Args: []string{w.shared},
				Env: []corev1.EnvVar{
					field("NODE", "spec.nodeName"), field("NAMESPACE", "metadata.namespace"),
					field("POD", "metadata.name"), field("POD_UID", "metadata.uid"),
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: w.shared}},
			}},
			Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: w.shared, Type: &folder},
			}}},
		},
	}
}

func (w *realNodes) create(ctx context.Context, pod *corev1.Pod) (uid string, err error) {
	got, err := w.l.floor.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create pod: %w", err)
	}
	return string(got.UID), nil
}

// remove deletes pods and waits until their kubelet has ended them.
func (w *realNodes) remove(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	return parallel(names, func(name string) error {
		err := w.l.floor.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil {
			return fmt.Errorf("delete pod: %w", err)
		}
		return cluster.Until(ctx, func(ctx context.Context) (bool, error) {
			_, err := w.l.floor.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	})
}

// wrote waits until all of the pods' containers run and returns when the last one first wrote.
func (w *realNodes) wrote(ctx context.Context, uids ...string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	err = cluster.Until(ctx, func(context.Context) (bool, error) {
		text, err := os.ReadFile(filepath.Join(w.shared, "log"))
		if err != nil {
			return false, err
		}
		var all bool
		_, at, all = span(firstWrites(string(text)), uids)
		return all, nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("waiting for %d containers to run: %w", len(uids), err)
	}
	return at, nil
}

// nodeLog is a file in a node's /var/log.
func nodeLog(n *nodes.Node, name string) (string, error) {
	file, err := n.HostPath("/var/log/" + name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// starts times one pod after the other, by turns on the node with the hook and on the one without. The first pair does
// not count.
func (w *realNodes) starts(ctx context.Context) error {
	w.l.r.sayLoad()
	ran, uids := map[side][]float64{}, map[side][]string{}
	for i, s := range turns(startPairs+1, floorSide, oursSide) {
		name, on := fmt.Sprintf("start-%02d", i), bareNode
		if s == oursSide {
			on = hookedNode
		}
		begun := time.Now()
		uid, err := w.create(ctx, w.probe(name, on))
		if err != nil {
			return err
		}
		at, err := w.wrote(ctx, uid)
		if err != nil {
			return err
		}
		if i > 1 {
			ran[s], uids[s] = append(ran[s], at.Sub(begun).Seconds()*1e3), append(uids[s], uid)
		}
		if err := w.remove(ctx, name); err != nil {
			return err
		}
	}
	sandboxed := map[side][]float64{}
	for s, n := range map[side]*nodes.Node{oursSide: w.hooked, floorSide: w.bare} {
		text, err := nodeLog(n, "containerd.log")
		if err != nil {
			return err
		}
		took := sandboxes(text)
		for _, uid := range uids[s] {
			d, ok := took[uid]
			if !ok { // the watch failed
				return fmt.Errorf("containerd of %s logged no sandbox of pod %s", n.Name(), uid)
			}
			sandboxed[s] = append(sandboxed[s], d.Seconds()*1e3)
		}
	}
	w.l.r.add(figure("sandbox, kubelet's request until it is there, hook", "ms", sandboxed[oursSide]).
		above(sandboxed[floorSide]))
	w.l.r.add(figure("sandbox, without the hook", "ms", sandboxed[floorSide]))
	w.l.r.add(figure("sandbox, times without the hook, pair by pair", "x",
		ratios(sandboxed[oursSide], sandboxed[floorSide])))
	w.l.r.add(figure("pod created until its container runs, hook", "ms", ran[oursSide]).above(ran[floorSide]))
	w.l.r.add(figure("pod created, without the hook", "ms", ran[floorSide]))
	w.l.r.add(figure("pod created, times without the hook, pair by pair", "x", ratios(ran[oursSide], ran[floorSide])))
	return nil
}

// releases times held pods. A person marks the node while the controller is away; the controller comes, takes the mark
// off, because the node's heartbeat is newer than the mark, and nudges the pods.
func (w *realNodes) releases(ctx context.Context) error {
	w.l.r.sayLoad()
	if err := w.l.startForcefence(ctx); err != nil {
		return err
	}
	var admitted, ran, fresh []float64
	for i := range releaseTurns {
		w.l.fence.Stop()
		t, err := w.release(ctx, fmt.Sprintf("held-%d-", i+1))
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		floor, err := w.together(ctx, fmt.Sprintf("fresh-%d-", i+1))
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		admitted, ran, fresh = append(admitted, t.admitted.Seconds()), append(ran, t.ran.Seconds()),
			append(fresh, floor.Seconds())
		w.l.r.say("%d held for %.1f s; first of %d admitted %.3f s after the mark, last %.3f s, runs %.3f s; fresh "+
			"ones without the hook %.3f s",
			i+1, t.held.Seconds(), heldPods, t.first.Seconds(), t.admitted.Seconds(), t.ran.Seconds(), floor.Seconds())
	}
	w.l.r.add(figure(fmt.Sprintf("mark gone until the last of %d held pods is admitted", heldPods), "s", admitted).
		atMost(admitLimit))
	w.l.r.add(figure(fmt.Sprintf("mark gone until the last of %d held pods runs", heldPods), "s", ran).above(fresh))
	w.l.r.add(figure(fmt.Sprintf("%d pods created at once until the last runs, without the hook", heldPods), "s",
		fresh))
	return nil
}

// together is the floor of a release: as many pods, created at once on the node without the hook. NRI is asked when a
// sandbox has its network and its first process, so that most of what a held pod takes is what any pod takes.
func (w *realNodes) together(ctx context.Context, prefix string) (time.Duration, error) {
	names, uids := make([]string, heldPods), make([]string, heldPods)
	begun := time.Now()
	for i := range names {
		var err error
		names[i] = fmt.Sprintf("%s%d", prefix, i)
		if uids[i], err = w.create(ctx, w.probe(names[i], bareNode)); err != nil {
			return 0, err
		}
	}
	running, err := w.wrote(ctx, uids...)
	if err != nil {
		return 0, err
	}
	return running.Sub(begun), w.remove(ctx, names...)
}

// released is how long pods were held before the mark went, and what came after.
type released struct{ held, first, admitted, ran time.Duration }

func (w *realNodes) release(ctx context.Context, prefix string) (t released, err error) {
	if err := w.l.mark(ctx, hookedNode, true); err != nil {
		return t, err
	}
	if err := w.untilMarked(ctx); err != nil {
		return t, err
	}
	names, uids := make([]string, heldPods), make([]string, heldPods)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
		if uids[i], err = w.create(ctx, w.probe(names[i], hookedNode)); err != nil {
			return t, err
		}
	}
	if err := w.untilHeld(ctx, uids); err != nil {
		return t, err
	}
	begun := time.Now()
	gone, err := w.unmarked(ctx)
	if err != nil {
		return t, err
	}
	if err := w.l.fence.Start(ctx); err != nil {
		return t, err
	}
	var off time.Time
	select {
	case off = <-gone:
	case <-ctx.Done():
		return t, ctx.Err()
	case <-time.After(patience):
		return t, fmt.Errorf("the controller did not take the mark off in %s", patience)
	}
	running, err := w.wrote(ctx, uids...)
	if err != nil {
		return t, err
	}
	text, err := nodeLog(w.hooked, filepath.Base(nri.DefaultLogFile))
	if err != nil {
		return t, err
	}
	first, admitted, all := span(admissions(text), uids)
	if !all {
		return t, errors.New("the hook's log does not know the admission of every pod that runs")
	}
	return released{off.Sub(begun), first.Sub(off), admitted.Sub(off), running.Sub(off)}, w.remove(ctx, names...)
}

// statusOf is what a plugin of the hooked node last wrote.
func (w *realNodes) statusOf(ctx context.Context, index string) (s nri.Status, err error) {
	text, err := w.hooked.Exec(ctx, "cat", nri.DefaultStateDir+"/"+index+".json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, err
}

// untilMarked waits until both plugins know the mark.
func (w *realNodes) untilMarked(ctx context.Context) error {
	return w.until(ctx, "the hook to see the mark", func(ctx context.Context) (bool, error) {
		first, err := w.statusOf(ctx, nri.PreInstalledIndex)
		second, err2 := w.statusOf(ctx, nri.DaemonIndex)
		return first.Node.Marked && second.Node.Marked, errors.Join(err, err2)
	})
}

// untilHeld waits until each of the pods was refused once, which the plugin with the lower index does: it is asked
// first.
func (w *realNodes) untilHeld(ctx context.Context, uids []string) error {
	return w.until(ctx, "pods to be held", func(ctx context.Context) (bool, error) {
		s, err := w.statusOf(ctx, nri.PreInstalledIndex)
		since := map[string]time.Time{}
		for _, h := range s.Held {
			since[h.UID] = h.Since
		}
		_, _, all := span(since, uids)
		return all, err
	})
}

func (w *realNodes) until(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	if err := cluster.Until(ctx, check); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// unmarked tells when a watch sees that the mark, which is there now, is gone.
func (w *realNodes) unmarked(ctx context.Context) (<-chan time.Time, error) {
	nodes := w.l.floor.CoreV1().Nodes()
	now, err := nodes.Get(ctx, hookedNode, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if _, marked := taint.FindMark(now, taint.DefaultKey, ""); !marked {
		return nil, errors.New("the mark is gone already")
	}
	seen, err := nodes.Watch(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + hookedNode, ResourceVersion: now.ResourceVersion})
	if err != nil {
		return nil, err
	}
	out := make(chan time.Time, 1)
	go func() {
		defer seen.Stop()
		for ev := range seen.ResultChan() {
			n, ok := ev.Object.(*corev1.Node)
			if !ok { // the watch failed
				return
			}
			if _, marked := taint.FindMark(n, taint.DefaultKey, ""); !marked {
				out <- time.Now()
				return
			}
		}
	}()
	return out, nil
}
