package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

const (
	fleetNodes  = 5000
	fleetMemory = 350              // MB at 5,000 nodes
	fleetCPU    = 8                // per cent of one core while nothing happens, at 5,000 nodes
	fleetWait   = 10 * time.Minute // until all nodes are pinned, or have lines
	fleetIdle   = time.Minute      // that is measured while nothing happens, after half as long
)

// fleetBench measures what a large cluster costs while nothing is wrong in it: nothing happens but heartbeats, as a
// leader finds it that took over. The nodes were drilled before, and each has a line where there can be wires.
func fleetBench(ctx context.Context, r *runner) error {
	missing := missingWires()
	if missing != "" {
		r.say("WITHOUT LINES to the nodes: %s", missing)
	}
	l, err := r.newLab(ctx, labOptions{nodes: r.o.nodes, stock: true, wired: missing == "", bare: true})
	if err != nil {
		return err
	}
	defer l.end()
	r.say("%d nodes are Ready", r.o.nodes)
	l.Scheduler().Stop() // these have nothing to do, and two cores have
	l.ControllerManager().Stop()
	if err := world.Parallel(l.Hosts, func(h *world.Host) error { return l.furnish(ctx, h) }); err != nil {
		return err
	}
	if err := l.startForcefence(ctx); err != nil {
		return err
	}
	long, cancel := context.WithTimeoutCause(ctx, fleetWait, fmt.Errorf("not after %s", fleetWait))
	defer cancel()
	for _, name := range l.names {
		pinned := func(n *corev1.Node) bool { return n.Labels[taint.PinLabel] != "" }
		if err := l.WaitNode(long, name, pinned); err != nil {
			return fmt.Errorf("waiting for the pin of %s: %w", name, err)
		}
	}
	r.say("forcefence has pinned all machines")
	if l.wires != nil {
		if err := l.wires.open(long, l.names, 0); err != nil {
			return err
		}
		r.say("all machines have lines")
	}
	return l.idle(ctx)
}

// furnish gives a node what real ones have: 50 images, conditions beside the kubelet's own, and that of an earlier
// drill. Kubelets leave all of it alone.
func (l *lab) furnish(ctx context.Context, h *world.Host) error {
	var images []corev1.ContainerImage
	for i := range 50 {
		repo := fmt.Sprintf("registry.example.net/team-%02d/service-%02d", i%7, i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repo, i+1), fmt.Sprintf("%s:v1.2.%d", repo, i)},
			SizeBytes: int64(i+1) << 22,
		})
	}
	on := providers.Answer{Observation: providers.Observation{State: providers.PowerOn}}
	f := drill.FindingOf(drill.Facts{Devices: []drill.Device{{Name: "racks/" + h.Machine.Address(), Answer: on}},
		Verdict: on})
	conditions := []corev1.NodeCondition{{Type: taint.FenceableCondition, Status: f.Fenceable,
		Reason: string(f.Reason), Message: f.Message}}
	for _, t := range []corev1.NodeConditionType{
		"NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentContainerdRestart"} {
		conditions = append(conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse,
			Reason: "No" + string(t), Message: "a node problem detector finds nothing wrong here"})
	}
	now := metav1.Now()
	for i := range conditions {
		conditions[i].LastHeartbeatTime, conditions[i].LastTransitionTime = now, now
	}
	patch, err := json.Marshal(object{"status": object{"images": images, "conditions": conditions}})
	if err != nil {
		return err
	}
	if _, err := l.Client().CoreV1().Nodes().PatchStatus(ctx, h.Name(), patch); err != nil {
		return fmt.Errorf("patching status of %s: %w", h.Name(), err)
	}
	return nil
}

// idle measures a minute in which nothing happens.
func (l *lab) idle(ctx context.Context) error {
	if !cluster.Sleep(ctx, fleetIdle/2) {
		return ctx.Err()
	}
	before, err := usageOf(l.fence.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	rss, err := sampleMemory(ctx, l.fence.PID(), fleetIdle)
	if err != nil {
		return err
	}
	after, err := usageOf(l.fence.PID())
	if err != nil {
		return err
	}
	memory := figure(fmt.Sprintf("%d nodes: VmRSS", l.o.nodes), "MB", rss)
	load := figure(fmt.Sprintf("%d nodes: CPU while idle", l.o.nodes), "% of a core",
		[]float64{100 * (after.cpu - before.cpu).Seconds() / time.Since(begun).Seconds()})
	if l.o.nodes == fleetNodes {
		memory, load = memory.atMost(fleetMemory), load.atMost(fleetCPU)
	}
	l.r.add(memory)
	l.r.add(load)
	return nil
}
