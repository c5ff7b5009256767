package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// patience is how long one thing may take before the demo fails.
const patience = 90 * time.Second

// quiet is how long round 2 watches that nothing happens, from NotReady on.
const quiet = 15 * time.Second

// Demo plays the rounds on a World.
type Demo struct {
	w      *World
	s      *Screen
	rounds []*Round // those that were begun
}

var titles = map[int]string{
	1: "Round 1: a machine loses its power",
	2: "Round 2: a node falls silent, but its machine is on",
	3: "Round 3: the machine comes back in the middle",
}

// victimOf is a round's node.
func victimOf(round int) string { return nodeName(round - 1) }

// errCheck is the class of a failure that the demo looked for, as against one of the demo itself.
var errCheck = errors.New("check failed")

// play plays one round. What it began to watch it ends.
func (d *Demo) play(ctx context.Context, number int) error {
	node := victimOf(number)
	d.s.Title("%s", titles[number])
	if err := d.w.setMode("observe"); err != nil { // round 2 changes it
		return err
	}
	var create func(context.Context) error
	what := fmt.Sprintf("move all %d pods to %s, as kubectl drain would", movable, node)
	if len(d.rounds) == 0 {
		create, what = d.w.createWorkloads, fmt.Sprintf("create the workloads, on %s", node)
	}
	done := d.s.Step("%s", what)
	if err := d.w.gather(ctx, node, create); err != nil {
		return err
	}
	done("the other nodes were cordoned meanwhile")

	r, err := d.begin(ctx, number, node)
	if err != nil {
		return err
	}
	d.rounds = append(d.rounds, r)
	err = d.follow(ctx, r, func(ctx context.Context) error {
		switch number {
		case 1:
			return d.powerCut(ctx, r)
		case 2:
			return d.silence(ctx, r)
		default:
			return d.comeBack(ctx, r)
		}
	})
	if err != nil {
		return err
	}
	return d.after(ctx, r)
}

// begin looks at the node and makes its round.
func (d *Demo) begin(ctx context.Context, number int, node string) (*Round, error) {
	n, err := d.w.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node: %w", err)
	}
	victims, err := d.w.victims(ctx, node)
	if err != nil {
		return nil, err
	}
	if len(victims) != movable {
		return nil, fmt.Errorf("%s has %d pods to move, want %d", node, len(victims), movable)
	}
	return NewRound(number, n, taint.DefaultKey, d.w.Power.Device(), victims, d.s.Event, d.s.Note), nil
}

// follow runs f while everything that is seen goes to the round and its lines to the screen.
func (d *Demo) follow(ctx context.Context, r *Round, f func(context.Context) error) error {
	d.w.watch.Touched() // what was before does not count
	d.w.watch.Follow(r)
	ended, printed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(printed)
		t := time.NewTicker(settleTime / 3)
		defer t.Stop()
		for {
			select {
			case <-ended:
				return
			case <-t.C:
				d.s.Flush(false)
			}
		}
	}()
	err := f(ctx)
	if err == nil {
		wait(ctx, settleTime) // for what is on its way from the log
	}
	d.w.watch.Follow(nil)
	d.w.OnPower(nil)
	close(ended)
	<-printed
	d.s.Flush(true)
	return err
}

func (d *Demo) picture(ctx context.Context, node, remark string) error {
	racks, err := d.w.racks(ctx, map[string]string{node: remark})
	if err != nil {
		return err
	}
	d.s.Picture(racks)
	return nil
}

// powerCut is round 1.
func (d *Demo) powerCut(ctx context.Context, r *Round) error {
	if err := d.picture(ctx, r.node, "loses its power now"); err != nil {
		return err
	}
	if err := d.cut(r); err != nil {
		return err
	}
	if err := d.until(ctx, r, MarkRemoved); err != nil {
		return err
	}
	return d.replaced(ctx, r)
}

// cut takes the machine's power, which begins the round.
func (d *Demo) cut(r *Round) error {
	runs := len(d.w.Host(r.node).Running())
	d.w.OnPower(func(node string, at time.Time, on bool) {
		switch {
		case node != r.node:
		case on:
			r.Power(at, true, "the machine gets its power back and boots")
		default:
			r.Begin(at)
			r.Power(at, false,
				fmt.Sprintf("the plug of %s is pulled; %d pods died with it, without a report", node, runs))
		}
	})
	return d.w.machine(r.node).CutPower()
}

// silence is round 2.
func (d *Demo) silence(ctx context.Context, r *Round) error {
	d.s.Say("\n  The network of %s breaks: no heartbeat comes any more. Its pods run on and write to their volumes, "+
		"so a second copy", r.node)
	d.s.Say("  elsewhere would destroy data. Kubernetes cannot tell this from round 1. The machine's %s can.",
		d.w.Power.Device())
	if err := d.picture(ctx, r.node, "falls silent now"); err != nil {
		return err
	}
	runs := len(d.w.Host(r.node).Running())
	before, err := d.w.Attachments(ctx)
	if err != nil {
		return err
	}
	d.w.OnPower(func(node string, at time.Time, on bool) {
		if node == r.node && !on {
			r.Power(at, false,
				fmt.Sprintf("the %s has powered the machine off; %d pods died with it", d.w.Power.Device(), runs))
		}
	})
	begun := time.Now()
	r.Begin(begun)
	r.Note(begun, fmt.Sprintf("the last heartbeat of %s; its %d pods run on", r.node, runs))
	d.w.Host(r.node).StopHeartbeats()

	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not seen after %s", patience))
	defer cancel()
	if err := d.w.WaitNode(limit, r.node, poweredOnNotReady); err != nil {
		return fmt.Errorf("%w: forcefence does not set its condition: %w", errCheck, err)
	}
	r.Note(time.Now(), fmt.Sprintf("forcefence asked the %s, which says that the machine is on: Node condition "+
		"forcefence.io/PoweredOnNotReady is True", d.w.Power.Device()))
	text := ""
	err = cluster.Until(limit, func(context.Context) (ok bool, _ error) {
		text, ok = d.w.watch.NodeEvent(r.node, "PoweredOnNotReady")
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("%w: forcefence sends no Event PoweredOnNotReady: %w", errCheck, err)
	}
	r.Note(time.Now(), fmt.Sprintf("Event PoweredOnNotReady: %q", text))
	if err := d.w.WaitNode(limit, r.node, cluster.IsNotReady); err != nil {
		return fmt.Errorf("waiting for NotReady: %w", err)
	}
	if !wait(ctx, quiet) {
		return ctx.Err()
	}
	if err := d.untouched(ctx, r, before, runs); err != nil {
		return err
	}
	r.Note(time.Now(), fmt.Sprintf("%.0f seconds later: no pod and no volume attachment was touched, all %d pods "+
		"still run on %s", quiet.Seconds(), runs, r.node))
	r.Note(time.Now(),
		`the operator changes "mode: observe" to "mode: fence" in config.yaml: such machines are to be powered off`)
	if err := d.w.setMode("fence"); err != nil {
		return err
	}
	if err := d.until(ctx, r, MarkRemoved); err != nil {
		return err
	}
	return d.replaced(ctx, r)
}

// untouched checks that nothing was done to any pod or attachment since the round began.
func (d *Demo) untouched(ctx context.Context, r *Round, before []world.Attachment, runs int) error {
	if did := d.w.watch.Touched(); len(did) > 0 {
		return fmt.Errorf("%w: the machine is on, and yet: %s (%d such things)", errCheck, did[0], len(did))
	}
	now, err := d.victimUIDs(ctx, r)
	if err != nil {
		return err
	}
	if now != movable {
		return fmt.Errorf("%w: %d of %d pods are still those that were there when the node fell silent", errCheck, now,
			movable)
	}
	after, err := d.w.Attachments(ctx)
	if err != nil {
		return err
	}
	for _, a := range before {
		if !slices.Contains(after, a) {
			return fmt.Errorf("%w: the attachment of %s's volume to %s changed", errCheck, a.Pod, a.Node)
		}
	}
	if have := len(d.w.Host(r.node).Running()); have != runs {
		return fmt.Errorf("%w: %d pods run on %s, want %d", errCheck, have, r.node, runs)
	}
	n, err := d.w.Client().CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("reading node: %w", err)
	case marked(n):
		return fmt.Errorf("%w: %s is marked though its machine is on", errCheck, r.node)
	case !poweredOnNotReady(n):
		return fmt.Errorf("%w: condition forcefence.io/PoweredOnNotReady is gone", errCheck)
	}
	return nil
}

// victimUIDs counts the pods of the round's beginning that are on the node, untouched, by a live list.
func (d *Demo) victimUIDs(ctx context.Context, r *Round) (int, error) {
	pods, err := d.w.Client().CoreV1().Pods(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.node})
	if err != nil {
		return 0, fmt.Errorf("listing pods: %w", err)
	}
	n := 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if r.victims[p.UID] != nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n, nil
}

// comeBack is round 3.
func (d *Demo) comeBack(ctx context.Context, r *Round) error {
	d.s.Say("\n  As round 1, but detaching a volume takes %.0f s, and the machine gets its power back when its first "+
		"pods are already being", slow.Seconds())
	d.s.Say("  replaced. Those must not start there again. The rest may, but only once the volumes that move are " +
		"gone from the machine.")
	if err := d.picture(ctx, r.node, "loses its power now, and gets it back soon"); err != nil {
		return err
	}
	d.w.Attacher().SetDelays(attach, slow)
	defer d.w.Attacher().ResetDelays()
	if err := d.cut(r); err != nil {
		return err
	}
	select {
	case <-r.FirstTombstone():
	case <-time.After(patience):
		return fmt.Errorf("%w: no pod was ended after %s", errCheck, patience)
	case <-ctx.Done():
		return ctx.Err()
	}
	// All pods are ended within a fraction of a second: to meet the middle of it, forcefence is frozen while the
	// machine boots.
	if err := d.w.fence.Pause(); err != nil {
		return err
	}
	r.Note(time.Now(), "forcefence is frozen here (SIGSTOP), so that the machine meets the middle of the eviction")
	err := d.booted(ctx, r.node)
	if again := d.w.fence.Resume(); err == nil {
		err = again
	}
	if err != nil {
		return err
	}
	r.Note(time.Now(), "forcefence goes on")
	if !wait(ctx, 2*time.Second) { // for the node's hook to be asked about each pod
		return ctx.Err()
	}
	if held := r.HeldPods(); held > 0 {
		r.Note(time.Now(), fmt.Sprintf("%d pods that were not ended wait on the node: its hook holds them while the "+
			"mark is there", held))
	} else if r.Tombstones() == movable {
		r.Note(time.Now(), "all pods had been ended before the machine was back: none is left to hold")
	}
	if err := d.until(ctx, r, MarkRemoved); err != nil {
		return err
	}
	if r.HeldPods() > 0 {
		r.Note(time.Now(), "the kubelet asks again for held pods every 10 to 15 s: they start now")
	}
	return d.replaced(ctx, r)
}

// until waits for an event.
func (d *Demo) until(ctx context.Context, r *Round, k Kind) error {
	timeout := time.After(patience)
	for {
		changed, happened := r.wait(k)
		if happened {
			return nil
		}
		select {
		case <-changed:
		case <-timeout:
			return fmt.Errorf("%w: %q did not happen within %s", errCheck, labels[k], patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replaced waits until all movable pods run again, exactly once.
func (d *Demo) replaced(ctx context.Context, r *Round) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	last := ""
	here := 0
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		n := 0
		here = 0
		for _, p := range d.w.ReadyPods(namespace) {
			if world.IsControlledBy(p, "DaemonSet") || len(d.w.runs(p.UID)) != 1 {
				continue
			}
			n++
			if p.Spec.NodeName == r.node {
				here++
			}
		}
		last = fmt.Sprintf("%d of %d pods run", n, movable)
		return n == movable, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s, %s: %w", errCheck, last, d.w.Discrepancy(namespace, apps), err)
	}
	detail := fmt.Sprintf("all %d pods run on the other five machines", movable)
	if here > 0 {
		detail = fmt.Sprintf("all %d pods run, %d of them on %s", movable, here, r.node)
	}
	r.Replaced(time.Now(), detail)
	return nil
}

// after brings the machine back, if it is off, and checks what must hold after each round.
func (d *Demo) after(ctx context.Context, r *Round) error {
	if err := d.picture(ctx, r.node, ""); err != nil {
		return err
	}
	if m := d.w.machine(r.node); !m.Running() {
		done := d.s.Step("a person repairs %s and powers it on", r.node)
		if err := d.booted(ctx, r.node); err != nil {
			return err
		}
		done("it is Ready, and has only its DaemonSet's pod")
	}
	var failed []string
	for _, c := range d.w.checks(r) {
		problem := eventually(ctx, c.test)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if problem == "" {
			d.s.Check(true, c.claim)
			continue
		}
		d.s.Check(false, c.claim+": "+problem)
		failed = append(failed, c.claim+": "+problem)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%w: %s", errCheck, failed[0])
	}
	return nil
}

// booted gives the machine its power and returns once the node is Ready with its machine's new boot.
func (d *Demo) booted(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	if err := d.w.Boot(ctx, []string{node}, nil); err != nil {
		return fmt.Errorf("%w: %s does not become Ready again: %w", errCheck, node, err)
	}
	return nil
}

// wait returns false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
