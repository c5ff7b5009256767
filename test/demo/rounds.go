package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// patience is how long one thing may take before the demo fails.
const patience = 90 * time.Second

// quiet is how long round 2 watches that nothing happens, from NotReady on.
const quiet = 15 * time.Second

// staleLease is when forcefence calls a Lease of the simulated kubelets stale.
const staleLease = fleet.MinDuration * 5 / 8

// Demo plays the rounds on a World.
type Demo struct {
	w     *World
	s     *Screen
	times []string // where each round's time went, for the summary
}

// round is one story. It has a node of its own.
type round struct {
	title  string
	since  string // what its times count from, in words
	first  string // what its first part is, in words
	node   string
	result taint.Result // how its fence must end
	play   func(*Demo, context.Context, *round) error

	zero   time.Time // what its times count from: the power cut, the last heartbeat, or the operator's change
	silent time.Time // since when its node is silent while its machine is on; zero: its power was cut
	parts  []part    // of its time
}

// part is one part of a round's time. It begins where the part before it ends.
type part struct {
	name string
	end  time.Duration // since the round's zero
}

// endPart ends a part of the round's time now.
func (r *round) endPart(name string) { r.parts = append(r.parts, part{name, time.Since(r.zero)}) }

// describeParts says where a round's time went: "4.1 s to notice, 1.4 s the fence". The numbers add up to the last end,
// as it is printed. A part that took no time is left out.
func describeParts(parts []part) string {
	var texts []string
	last := int64(0) // in tenths of a second
	for _, p := range parts {
		end := max(p.end.Round(100*time.Millisecond).Milliseconds()/100, last)
		if end > last {
			texts = append(texts, fmt.Sprintf("%d.%d s %s", (end-last)/10, (end-last)%10, p.name))
		}
		last = end
	}
	return strings.Join(texts, ", ")
}

func newRounds() []*round {
	return []*round{
		{title: "Round 1: a machine fails", since: "the power cut", first: "to notice and to ask",
			result: taint.ResultEvicted, play: (*Demo).powerCut},
		{title: "Round 2: a node falls silent, but its machine is on", since: "the change to mode fence",
			first: "to wait and to power off", result: taint.ResultEvicted, play: (*Demo).silence},
		{title: "Round 3: the machine comes back in the middle", since: "the power cut",
			first: "until the first pod is ended", result: taint.ResultReturned, play: (*Demo).comeBack},
	}
}

// errCheck is the class of a failure that the demo looked for, as against one of the demo itself.
var errCheck = errors.New("check failed")

// playRound plays one round, and checks what must hold after it.
func (d *Demo) playRound(ctx context.Context, r *round) error {
	d.s.Title(r.title)
	if err := d.w.setMode(d.w.firstMode()); err != nil { // round 2 changes it
		return err
	}
	var create func(context.Context) error
	what := fmt.Sprintf("move all %d pods to %s, as kubectl drain would", movable, r.node)
	if d.w.Pods(namespace) == nil {
		create, what = d.w.createWorkloads, fmt.Sprintf("create the workloads, on %s", r.node)
	}
	done := d.s.Step("%s", what)
	if err := d.w.gather(ctx, r.node, create); err != nil {
		return err
	}
	done("the other nodes were cordoned meanwhile")
	runs := len(d.w.Host(r.node).Running())
	d.w.OnPower(func(node string, _ time.Time, on bool) {
		switch {
		case node != r.node:
		case on:
			d.tell(r, "power is back", "the machine boots")
		default:
			after := ""
			if !r.silent.IsZero() {
				after = fmt.Sprintf("; its node was silent for %.1f s", time.Since(r.silent).Seconds())
			}
			d.tell(r, d.s.paint(red, fmt.Sprintf("%-18s", "MACHINE OFF")),
				"%d pods died with it, without a report: %d that move, and agent's%s", runs, movable, after)
		}
	})
	err := r.play(d, ctx, r)
	d.w.OnPower(nil)
	if err != nil {
		return err
	}
	if err := d.after(ctx, r); err != nil {
		return err
	}
	d.times = append(d.times, fmt.Sprintf("%s: %.1f s from %s\n    %s", r.title,
		r.parts[len(r.parts)-1].end.Seconds(), r.since, describeParts(r.parts)))
	return d.ask(ctx, "timeline", r.node)
}

// tell prints a line of a round, with the time since its beginning.
func (d *Demo) tell(r *round, label, format string, args ...any) {
	d.s.Say("  %8.3fs  %-18s %s", time.Since(r.zero).Seconds(), label, fmt.Sprintf(format, args...))
}

// ask prints what a command of forcefence's own says.
func (d *Demo) ask(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, d.w.bin, append(args, "--kubeconfig", d.w.file("kubeconfig"))...).
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("forcefence %s: %w: %s", args[0], err, out)
	}
	text, pods, ok := strings.Cut(strings.TrimSpace(string(out)), "\n\nPods: ")
	if ok { // a timeline ends with all their names
		counts, _, _ := strings.Cut(pods, ":")
		text += "\n\nPods: " + counts + ": ... (their names, and the volumes)"
	}
	d.s.Say("\n  $ forcefence %s\n  %s", strings.Join(args, " "), strings.ReplaceAll(text, "\n", "\n  "))
	return nil
}

// powerCut is round 1.
func (d *Demo) powerCut(ctx context.Context, r *round) error {
	if device := d.w.Power.Device(); device == "BMC" {
		d.s.Say(`
  The mainboard of %s fails. Its BMC runs on standby power and still answers. A pulled plug would silence the BMC, too:
  then forcefence waits for a second device's Off, or a person's word.`, r.node)
	}
	r.zero = time.Now()
	if err := d.w.Host(r.node).Machine.CutPower(); err != nil {
		return err
	}
	return d.fenced(ctx, r)
}

// silence is round 2.
func (d *Demo) silence(ctx context.Context, r *round) error {
	d.s.Say(`
  The network of %s breaks: no heartbeat comes any more. Its pods run on and write to their volumes, so a second copy
  elsewhere would destroy data. Kubernetes cannot tell this from round 1. The machine's %s can.`, r.node,
		d.w.Power.Device())
	before, err := d.look(ctx, r)
	if err != nil {
		return err
	}
	r.zero = time.Now()
	r.silent = r.zero
	d.tell(r, "last heartbeat", "the node's %d pods run on", before.runs)
	d.w.Host(r.node).StopHeartbeats()

	limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not seen after %s", patience))
	defer cancel()
	poweredOn := func(n *corev1.Node) bool { return isTrue(n, taint.PoweredOnCondition) }
	if err := d.w.WaitNode(limit, r.node, poweredOn); err != nil {
		return fmt.Errorf("%w: forcefence does not set its condition: %w", errCheck, err)
	}
	d.tell(r, "found on", "forcefence asked the %s: Node condition %s is True", d.w.Power.Device(),
		taint.PoweredOnCondition)
	if err := cluster.Until(limit, func(ctx context.Context) (bool, error) {
		list, err := d.w.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{
			FieldSelector: "reason=PoweredOnNotReady,involvedObject.name=" + r.node})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		d.tell(r, "Event", "PoweredOnNotReady: %q", list.Items[0].Message)
		return true, nil
	}); err != nil {
		return fmt.Errorf("%w: forcefence sends no Event PoweredOnNotReady: %w", errCheck, err)
	}
	if err := d.w.WaitNode(limit, r.node, cluster.IsNotReady); err != nil {
		return fmt.Errorf("waiting for NotReady: %w", err)
	}
	if !cluster.Sleep(ctx, quiet) {
		return ctx.Err()
	}
	after, err := d.look(ctx, r)
	switch {
	case err != nil:
		return err
	case after.marked || !poweredOn(after.node):
		return fmt.Errorf("%w: %s is marked, or does not read powered on any more", errCheck, r.node)
	case !slices.Equal(before.pods, after.pods) || before.runs != after.runs:
		return fmt.Errorf("%w: the machine is on, and yet pods changed: %v, then %v", errCheck, before.pods, after.pods)
	case !slices.Equal(before.volumes, after.volumes):
		return fmt.Errorf("%w: the machine is on, and yet volume attachments changed: %v, then %v", errCheck,
			before.volumes, after.volumes)
	}
	d.tell(r, "untouched", "%.0f seconds later all %d pods still run on %s, no attachment has changed", quiet.Seconds(),
		after.runs, r.node)
	d.tell(r, "operator", `changes "mode: observe" to "mode: fence" in config.yaml: power such machines off`)
	d.tell(r, "", `"powerOffAfter: 20s" counts from when the Lease is stale: a Lease of %.0f s is stale after %.0f s`,
		fleet.MinDuration.Seconds(), staleLease.Seconds())
	d.tell(r, "", "From now on the times count from this change")
	r.zero = time.Now()
	if err := d.w.setMode("fence"); err != nil {
		return err
	}
	return d.fenced(ctx, r)
}

// sight is what a live look at a round's node shows.
type sight struct {
	node    *corev1.Node
	marked  bool
	runs    int      // on the machine
	pods    []string // of the API server that run and stay, by name and UID
	volumes []world.Attachment
}

func (d *Demo) look(ctx context.Context, r *round) (s sight, err error) {
	if s.node, err = d.w.Client().CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{}); err != nil {
		return s, fmt.Errorf("reading node: %w", err)
	}
	pods, err := d.w.Client().CoreV1().Pods(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + r.node})
	if err != nil {
		return s, fmt.Errorf("listing pods: %w", err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			s.pods = append(s.pods, p.Name+" "+string(p.UID))
		}
	}
	slices.Sort(s.pods)
	all, err := d.w.Attachments(ctx)
	for _, a := range all {
		if a.Node == r.node {
			s.volumes = append(s.volumes, a)
		}
	}
	slices.SortFunc(s.volumes, func(a, b world.Attachment) int { return strings.Compare(string(a.UID), string(b.UID)) })
	s.marked, s.runs = marked(s.node), len(d.w.Host(r.node).Running())
	return s, err
}

// comeBack is round 3.
func (d *Demo) comeBack(ctx context.Context, r *round) error {
	d.s.Say(`
  As round 1, but detaching a volume takes %.0f s, and the machine gets its power back when its first pods are already
  being replaced. Those must not start there again. The rest may, but only once the volumes that move are gone from the
  machine.`, slow.Seconds())
	d.w.Attacher().SetDelays(attach, slow)
	defer d.w.Attacher().ResetDelays()
	ended := make(chan struct{})
	var once sync.Once
	defer d.w.Watch(func(o metav1.Object, _ bool) {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == r.node && taint.IsTombstone(p) {
			once.Do(func() { close(ended) })
		}
	})()
	r.zero = time.Now()
	if err := d.w.Host(r.node).Machine.CutPower(); err != nil {
		return err
	}
	select {
	case <-ended:
	case <-time.After(patience):
		return fmt.Errorf("%w: no pod was ended after %s", errCheck, patience)
	case <-ctx.Done():
		return ctx.Err()
	}
	r.endPart(r.first)
	if err := d.w.fence.Pause(); err != nil {
		return err
	}
	d.tell(r, "frozen", "forcefence would be done before the machine boots, so the demo stops it until then (SIGSTOP)")
	if err := errors.Join(d.booted(ctx, r.node), d.w.fence.Resume()); err != nil {
		return err
	}
	d.tell(r, "goes on", "forcefence runs again")
	if !cluster.Sleep(ctx, 2*time.Second) { // for the node's hook to be asked about each pod
		return ctx.Err()
	}
	held, err := d.held(ctx, r)
	if err != nil {
		return err
	}
	d.tell(r, "held", "%d pods that were not ended wait on the node: its hook holds them while the mark is there. "+
		"The kubelet asks again every 10 to 15 s", held)
	return d.recovered(ctx, r)
}

// held counts the pods on the node that its hook does not let start.
func (d *Demo) held(ctx context.Context, r *round) (n int, err error) {
	list, err := d.w.Client().CoreV1().Events(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	if err != nil {
		return 0, fmt.Errorf("listing Events: %w", err)
	}
	refused := map[types.UID]bool{}
	for _, e := range list.Items {
		refused[e.InvolvedObject.UID] = strings.Contains(e.Message, "held")
	}
	for _, p := range d.w.Pods(namespace) {
		if p.Spec.NodeName == r.node && refused[p.UID] && !taint.IsTerminal(p) {
			n++
		}
	}
	return n, nil
}

// fenced waits until the node is marked and its eviction begins, and then as recovered does.
func (d *Demo) fenced(ctx context.Context, r *round) error {
	device := d.w.Power.Device()
	err := d.reached(ctx, r, "node marked",
		fmt.Sprintf("the %s says Off: the taint %s keeps new pods away", device, taint.DefaultKey),
		func(_ taint.Record, n *corev1.Node) bool { return marked(n) })
	if err != nil {
		return err
	}
	r.endPart(r.first)
	err = d.reached(ctx, r, "eviction begins",
		fmt.Sprintf("the %s, asked again after the mark, still says Off", device),
		func(rec taint.Record, _ *corev1.Node) bool { return rec.Phase != taint.PhaseArmed })
	if err != nil {
		return err
	}
	return d.recovered(ctx, r)
}

// reached waits until a fence of the node is so far, and says so.
func (d *Demo) reached(ctx context.Context, r *round, label, detail string,
	is func(taint.Record, *corev1.Node) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	err := d.w.WaitNode(ctx, r.node, func(n *corev1.Node) bool {
		rec, err := taint.RecordOf(n)
		return err == nil && rec != nil && is(*rec, n)
	})
	if err != nil {
		return fmt.Errorf("%w: %q did not happen: %w", errCheck, label, err)
	}
	d.tell(r, label, "%s", detail)
	return nil
}

// recovered waits until the node's fence is done and all movable pods run again, exactly once.
func (d *Demo) recovered(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	removed := func(rec taint.Record, n *corev1.Node) bool { return rec.Result == r.result && !marked(n) }
	if err := d.reached(ctx, r, "mark removed", "the fence has ended: "+string(r.result), removed); err != nil {
		return err
	}
	r.endPart("the fence")
	last := ""
	here := 0
	othersRun := false // all pods run, except those of db
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		on := map[types.UID]int{}
		for _, run := range d.w.Ledger().Running() {
			on[run.UID]++
		}
		n, others := 0, 0
		here = 0
		for _, p := range d.w.ReadyPods(namespace) {
			if world.IsControlledBy(p, "DaemonSet") || on[p.UID] != 1 {
				continue
			}
			n++
			if !strings.HasPrefix(p.Name, "db-") {
				others++
			}
			if p.Spec.NodeName == r.node {
				here++
			}
		}
		if others == queuePods+webPods && !othersRun {
			othersRun = true
			r.endPart("until queue and web run")
		}
		last = fmt.Sprintf("%d of %d pods run", n, movable)
		return n == movable, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s, %s: %w", errCheck, last, d.w.Discrepancy(namespace, apps), err)
	}
	r.endPart("for db, whose pods start one after another")
	d.tell(r, d.s.paint(green, fmt.Sprintf("%-18s", "ALL RUNNING AGAIN")), "all %d pods, %s of them on %s", movable,
		formatNone(here), r.node)
	d.tell(r, "of that time", "%s", describeParts(r.parts))
	return nil
}

// formatNone formats a count within a sentence.
func formatNone(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// after shows the status, brings the machine back, if it is off, and checks what must hold after each round. The status
// of a machine that has come back follows the checks: by then its device was asked again.
func (d *Demo) after(ctx context.Context, r *round) error {
	off := !d.w.Host(r.node).Machine.Running()
	if off {
		if err := d.ask(ctx, "status"); err != nil {
			return err
		}
	}
	d.s.Say("")
	if off {
		done := d.s.Step("a person repairs %s and powers it on", r.node)
		if err := d.booted(ctx, r.node); err != nil {
			return err
		}
		done("it is Ready, and has only its DaemonSet's pod")
	}
	for _, c := range d.w.checks(r) {
		problem := eventually(ctx, c.test)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if problem != "" {
			d.s.Check(false, c.claim+": "+problem)
			return fmt.Errorf("%w: %s: %s", errCheck, c.claim, problem)
		}
		d.s.Check(true, c.claim)
	}
	if off {
		return nil
	}
	return d.ask(ctx, "status")
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
