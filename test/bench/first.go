package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/world"
)

// databases names the StatefulSet of the pods that matter most, and their PriorityClass.
const databases = "database"

// shopWithDatabases is shop; three of its pods with volumes have the highest priority.
var shopWithDatabases = load{Volumes: 17, Plain: 80, Deployed: 10, Databases: 3}

// alone is forcefence on a node that has only the databases. The others are on a node that stays up.
var alone = system{name: "alone", ours: true}

// first times how soon the databases run again, beside the floor and beside a fence that has only them to move. As in
// evict, the victim is closed and one other node open.
func first(ctx context.Context, r *runner) error {
	l, err := r.newLab(ctx, labOptions{nodes: 5})
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.deploy(ctx, shopWithDatabases); err != nil {
		return err
	}
	systems := []system{floor, forcefence, alone}
	run, err := l.newRun(shopWithDatabases)
	if err != nil {
		return err
	}
	took := map[string]map[string][]float64{}
	r.results = FirstResults{run, took} // a run that is stopped has what it measured
	for i, s := range turns(r.o.pairs, systems...) {
		victim, next := l.names[i%len(l.names)], l.names[(i+1)%len(l.names)]
		if err := l.gather(ctx, shopWithDatabases.pods(), victim); err != nil {
			return err
		}
		if s.name == alone.name {
			victim = l.names[(i+2)%len(l.names)]
			if err := l.moveDatabases(ctx, victim); err != nil {
				return err
			}
		}
		if err := l.Open(ctx, next); err != nil {
			return err
		}
		if !cluster.Sleep(ctx, settle) {
			return ctx.Err()
		}
		steps, err := l.watchDatabases(ctx, victim)
		if err != nil {
			return err
		}
		o, err := l.outage(ctx, victim, s)
		l.first.Store(nil)
		if err != nil {
			return fmt.Errorf("turn %d, %s: %w", i+1, s.name, err)
		}
		var said []string
		all := append(steps.since(o.begun), step{"all pods gone", o.gone}, step{"all StatefulSet pods run", o.back})
		for _, m := range all {
			if took[m.name] == nil {
				took[m.name] = map[string][]float64{}
			}
			if !math.IsNaN(m.seconds) { // what was never seen has no time
				took[m.name][s.name] = append(took[m.name][s.name], round(m.seconds))
			}
			said = append(said, fmt.Sprintf("%s %.2f", m.name, m.seconds))
		}
		r.say("%2d %-10s %s s; load %s", i+1, s.name, strings.Join(said, ", "), load1())
	}
	return nil
}

// FirstResults are what bench first found: the seconds from the first Off to each step, by step and system, in the
// order of the turns.
type FirstResults struct {
	Run
	Seconds map[string]map[string][]float64
}

// markdown is the table, with a row for each step.
func (r FirstResults) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[Why](../decisions.md#databases-first). %s The node had\n%d pods: %d databases, with a volume each "+
		"and the highest priority, and %d others with a volume. \"Alone\"\nis a fence of a node that has only the "+
		"databases. Seconds from the first Off: the median, with the least and the\nmost. From the power cut it is "+
		"the time until that Off more ([the table](#forcefence)). The last\ncolumn is forcefence's time "+
		"over the time alone, as the median of the turns.\n\n",
		r.caption("first"), r.Load.pods(), r.Load.Databases, r.Load.Volumes)
	b.WriteString("| step | bare loop | forcefence | alone | over alone |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range append(slices.Clone(stepNames), "all pods gone", "all StatefulSet pods run") {
		took := r.Seconds[name]
		ours := took[forcefence.name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f |\n", name, typical(took[floor.name]), typical(ours),
			typical(took[alone.name]), median(ratios(ours, took[alone.name])))
	}
	return b.String()
}

// moveDatabases brings the databases to a node and returns once all pods run.
func (l *lab) moveDatabases(ctx context.Context, node string) error {
	if err := l.Open(ctx, node); err != nil {
		return err
	}
	for _, p := range l.Pods(namespace) {
		if isDatabase(p) {
			err := l.Client().CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
			if err != nil {
				return fmt.Errorf("moving pod %s: %w", p.Name, err)
			}
		}
	}
	ctx, cancel := limited(ctx, patience)
	defer cancel()
	return cluster.Until(ctx, func(context.Context) (bool, error) {
		here := 0
		for _, p := range l.ReadyPods(namespace) {
			if isDatabase(p) && p.Spec.NodeName == node {
				here++
			}
		}
		return here == shopWithDatabases.Databases && len(l.ReadyPods(namespace)) == l.pods, nil
	})
}

func isDatabase(p *corev1.Pod) bool { return p.Spec.PriorityClassName == databases }

// The moments of a turn that are timed, in their order for one pod. All but the first are the last database's.
var stepNames = []string{
	"first pod with a volume runs", "databases ended", "databases gone", "databases detached", "databases bound",
	"databases attached", "databases run",
}

// steps are what was seen of the databases on a victim in one turn. It is safe for concurrent use.
type steps struct {
	victim string
	old    map[types.UID]bool // the pods on the victim
	pvs    map[string]bool    // the databases' volumes
	mu     sync.Mutex         // guards the rest
	seen   map[string]moments // by step
}

// moments are the first moment of each of a step's objects.
type moments map[string]time.Time

func (m moments) last() (last time.Time) {
	for _, at := range m {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// watchDatabases begins to watch the databases of a victim.
func (l *lab) watchDatabases(ctx context.Context, victim string) (*steps, error) {
	s := &steps{victim: victim, old: map[types.UID]bool{}, pvs: map[string]bool{}, seen: map[string]moments{}}
	for _, name := range stepNames {
		s.seen[name] = moments{}
	}
	for _, p := range l.Pods(namespace) {
		s.old[p.UID] = true
	}
	list, err := l.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	for _, pv := range list.Items {
		if strings.Contains(pv.Spec.ClaimRef.Name, databases) {
			s.pvs[pv.Name] = true
		}
	}
	l.first.Store(s)
	return s, nil
}

// see folds in what the cluster's watch brings.
func (s *steps) see(now time.Time, o metav1.Object, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(step string) {
		if _, is := s.seen[step][o.GetName()]; !is {
			s.seen[step][o.GetName()] = now
		}
	}
	switch o := o.(type) {
	case *corev1.Pod:
		volumes := world.IsControlledBy(o, "StatefulSet") && len(o.Spec.Volumes) > 0
		switch {
		case !volumes || o.Namespace != namespace:
		case s.old[o.UID]:
			if isDatabase(o) && (deleted || taint.IsTerminal(o)) {
				note("databases ended")
			}
			if isDatabase(o) && deleted {
				note("databases gone")
			}
		case cluster.IsPodReady(o):
			if len(s.seen["first pod with a volume runs"]) == 0 {
				note("first pod with a volume runs")
			}
			if isDatabase(o) {
				note("databases run")
			}
		case isDatabase(o) && o.Spec.NodeName != "":
			note("databases bound")
		}
	case *storagev1.VolumeAttachment:
		switch {
		case o.Spec.Source.PersistentVolumeName == nil || !s.pvs[*o.Spec.Source.PersistentVolumeName]:
		case o.Spec.NodeName == s.victim && deleted:
			note("databases detached")
		case o.Spec.NodeName != s.victim && o.Status.Attached:
			note("databases attached")
		}
	}
}

// step is a moment of a turn, in seconds.
type step struct {
	name    string
	seconds float64
}

// since returns the moments, counted from that one.
func (s *steps) since(begun time.Time) (out []step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range stepNames {
		out = append(out, step{name, between(begun, s.seen[name].last())})
	}
	return out
}
