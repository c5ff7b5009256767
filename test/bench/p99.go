package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/ipmisim"
)

const (
	p99Nodes = 12
	// bootBatch is how many machines are off before they get their power back, all at once.
	bootBatch = 6
	// bootSettle is from Ready until firmware and kubelets of such a batch are quiet.
	bootSettle = 2 * time.Second
	// roundSettle is what a round begins with. Up to spread is added to it, so that a cut comes at any moment of a
	// line's probes and of other clocks.
	roundSettle = 500 * time.Millisecond
	spread      = time.Second
)

// p99Ways are ways to notice a power cut, each with a machine whose device is not of this repository, and the goal for
// the 99th percentile in seconds.
var p99Ways = []source{
	{name: "libvirt's events", lab: labOptions{power: "libvirt", logs: "events"}, limit: 5,
		missing: hypervisor.Missing},
	{name: "line to the node", lab: labOptions{power: "ipmi", wired: true, logs: "line"}, limit: 8,
		missing: func() string { return cmp.Or(ipmisim.Missing(), missingWires()) }},
}

// usualNode is what runs on a node with so many pods: of five, one has a volume.
func usualNode(pods int) load {
	d := load{Volumes: pods / 5, Deployed: pods / 3}
	d.Plain = pods - d.Volumes - d.Deployed
	return d
}

// p99 repeats real fences, half of the rounds in each way, and says what the slowest waited for. Rounds that the file
// of raw data already has count.
func p99(ctx context.Context, r *runner) error {
	for _, w := range p99Ways {
		if missing := w.missing(); missing != "" {
			return fmt.Errorf("%s: %s", w.name, missing)
		}
	}
	version, err := exec.CommandContext(ctx, r.o.forcefence, "version").Output()
	if err != nil {
		return fmt.Errorf("asking forcefence for its version: %w", err)
	}
	build, _, _ := strings.Cut(string(version), ",")
	b := &p99Bench{r: r, file: r.folder(r.name) + ".jsonl", build: build, load: usualNode(r.o.pods)}
	if err := b.open(); err != nil {
		return err
	}
	defer b.report()
	for i, w := range p99Ways {
		rounds := (r.o.rounds + 1 - i) / len(p99Ways)
		if err := b.measure(ctx, w, rounds); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// p99Bench is a run of bench p99.
type p99Bench struct {
	r     *runner
	file  string // of the raw data
	build string
	load  load
	all   []fenceRound // that the file has
}

// open reads the raw data of earlier runs. Rounds of another build or load are refused: one figure cannot have both.
func (b *p99Bench) open() error {
	f, err := os.Open(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if b.all, err = readRounds(f); err != nil {
		return fmt.Errorf("%s: %w", b.file, err)
	}
	for i, o := range b.all {
		if o.Build != b.build || o.Pods != b.load.pods() {
			return fmt.Errorf("%s: line %d is of build %s with %d pods, this is %s with %d: move the file away", b.file,
				i+1, o.Build, o.Pods, b.build, b.load.pods())
		}
	}
	return nil
}

// measure fences in one way until the raw data has so many rounds of it.
func (b *p99Bench) measure(ctx context.Context, w source, rounds int) error {
	done := len(ofWay(b.all, w.name))
	if done >= rounds {
		return nil
	}
	w.lab.nodes, w.lab.stock = p99Nodes, true
	l, err := b.r.newLab(ctx, w.lab)
	if err != nil {
		return err
	}
	defer l.end()
	if _, err := l.setRate(ctx, stockRate); err != nil {
		return err
	}
	server, err := l.Client().Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	if err := l.Open(ctx, l.names[0]); err != nil {
		return err
	}
	if err := l.deploy(ctx, b.load); err != nil {
		return err
	}
	for i := range rounds - done {
		if err := l.prepare(ctx, i); err != nil {
			return fmt.Errorf("preparing round %d: %w", done+i+1, err)
		}
		o := fenceRound{Way: w.name, Build: b.build, Kubernetes: server.GitVersion, Cores: runtime.NumCPU(),
			Pods: b.load.pods(), Volumes: b.load.Volumes, Load: load1()}
		err := l.fenceOnce(ctx, l.names[i%len(l.names)], &o)
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			o.NotEnded = err.Error()
		}
		if wrote := appendRound(b.file, o); wrote != nil {
			return errors.Join(err, wrote)
		}
		b.all = append(b.all, o)
		if err != nil {
			return fmt.Errorf("round %d: %w", done+i+1, err)
		}
		b.r.say("%4d of %d %s: Off after %.3f s, all %d pods run elsewhere after %.3f s; noticed by %s; load %s",
			done+i+1, rounds, w.name, o.At[off], o.Pods, o.At[lastRunning], o.By, o.Load)
	}
	return nil
}

// prepare opens the i-th victim, which has all pods, and the node after it, which gets them: so that nothing has to be
// moved between rounds. The other nodes are closed. It gives a batch of machines their power back.
func (l *lab) prepare(ctx context.Context, i int) error {
	victim, next := l.names[i%len(l.names)], l.names[(i+1)%len(l.names)]
	if i > 0 && i%bootBatch == 0 {
		var dead []string
		for j := i - bootBatch; j < i; j++ {
			dead = append(dead, l.names[j%len(l.names)])
		}
		switch left, err := l.boot(ctx, dead...); {
		case err != nil:
			return err
		case len(left) > 0:
			return fmt.Errorf("nodes %s are Ready and keep taint %s", strings.Join(dead, ", "), left[0].Key)
		}
		if !cluster.Sleep(ctx, bootSettle) {
			return context.Cause(ctx)
		}
	}
	if err := l.Open(ctx, victim, next); err != nil {
		return err
	}
	if l.wires != nil {
		if err := l.wires.open(ctx, []string{victim}, lineStable); err != nil {
			return err
		}
	}
	const golden = 0.618 // its multiples are spread evenly over the second
	phase := float64(i) * golden
	if !cluster.Sleep(ctx, roundSettle+time.Duration((phase-float64(int(phase)))*float64(spread))) {
		return context.Cause(ctx)
	}
	return nil
}

// fenceOnce takes the victim's power and returns once forcefence has removed its mark and all pods run elsewhere. The
// machine stays off.
func (l *lab) fenceOnce(ctx context.Context, victim string, o *fenceRound) error {
	t, err := l.watched(ctx, victim)
	if err != nil {
		return err
	}
	defer l.turn.Store(nil)
	if err := l.cut(t); err != nil {
		return err
	}
	err = l.recoverPods(ctx, t, forcefence, time.Time{})
	l.turn.Store(nil) // no watch waits for the lock from here on
	t.mu.Lock()
	defer t.mu.Unlock()
	o.By = t.notedBy
	s := t.phases
	if at := s.node[noticed]; !t.proof.IsZero() && (at.IsZero() || t.proof.Before(at)) {
		s.node[noticed] = t.proof
	}
	if at := t.offSeen(); !at.IsZero() {
		s.node.first(off, at)
	}
	if err == nil {
		err = l.noteAttached(ctx, s)
	}
	o.fill(s, t.zero)
	return err
}

// noteAttached adds when the last volume of the last replacement was attached.
func (l *lab) noteAttached(ctx context.Context, s *phases) error {
	if s.last == nil {
		return errors.New("not every pod was seen to run elsewhere at the same time")
	}
	for _, v := range s.last.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim, err := l.Client().CoreV1().PersistentVolumeClaims(namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName,
			metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading a claim of %s: %w", s.last.Name, err)
		}
		if at := s.attached[claim.Spec.VolumeName]; at.After(s.pods[s.last.Name][attached]) {
			s.pods[s.last.Name][attached] = at
		}
	}
	return nil
}

// report prints and keeps the tables of the rounds so far.
func (b *p99Bench) report() {
	if len(b.all) == 0 {
		return
	}
	if err := b.r.print(b.r.name+".md", p99Page(b.all)); err != nil {
		b.r.say("%v", err)
	}
}
