// Package drainguard does what package drain decides: it keeps PodDisruptionBudgets before a storage system's pods, asks for the eviction of
// replicas and takes that back, and tells what holds a drain up. Where a storage system carries a drain policy out itself, it sets that
// system's setting, and nothing else.
//
// It decides nothing. What it sees by its watches only wakes it: what takes something away (a budget, a request) it does only after a live
// look at the nodes, the pods, the budgets and the replicas has led to the same act again, and by UID and resourceVersion.
package drainguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/drainguard/drain"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/kube"
)

// Guarded is one guard in force, and the storage system that it asks.
type Guarded struct {
	drain.Guard
	Adapter *storage.Adapter      // how the system's replicas are read, live; nil where the system carries the policy out itself
	Seen    func() storage.System // what was seen of it last; nil: nothing was
	Setting *Setting              // the system's own, where it carries the policy out itself
}

// Options is all that a Controller is made of. Every field is required.
type Options struct {
	REST    *rest.Config  // for the watches of pods and budgets
	Live    client.Reader // reads from the API server, not from a cache
	Cache   cache.Cache   // of Nodes
	Client  client.Client // writes
	Dynamic dynamic.Interface
	Events  events.EventRecorder
	Log     *slog.Logger
	Metrics *Metrics
	Guards  func() []Guarded // in force
	// Adapters are the storage systems of the configuration whose replicas a guard may ask to leave a node, guarded or not.
	Adapters func() []*storage.Adapter
	Leading  func() error // nil while this process is sure to be the leader
	// Begins reports whether the mode of a node lets anything be begun there; of an empty Node, that of the
	// configuration.
	Begins func(*corev1.Node) bool
	// LeftAlone returns why a pause or an exclusion forbids to begin anything on the node, or in the cluster (""). It
	// returns "" if none does, and reads live.
	LeftAlone func(ctx context.Context, node string) (string, error)
	Now       func() time.Time
}

// Controller keeps the guards. It is a Runnable of the leader.
type Controller struct {
	Options
	writer kube.Writer
	wake   chan struct{}

	// Start's goroutine alone uses these.
	watches map[string]*watch // by the guard's name
	follows map[string]*watch // of the settings that guards are delegated to, by the guard's name
	odd     map[string]string // what was told of a node, by node, guard and reason
	drained map[string]bool   // nodes with annotations of ours
	refused map[string]string // what was told of a guard, or of its setting
	again   bool              // not all is as it should be, or was seen: the next pass is due although nothing changes
	looked  bool              // all Nodes were looked at once
	begun   time.Time         // the first pass
	swept   bool              // what guards left that are no more is gone
	alone   map[string]bool   // in this pass: whether nothing may be begun on a node, "" for the cluster
	slow    time.Duration     // the constant, but in tests
}

// New makes a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options: o, writer: kube.Writer{Client: o.Client, Leading: o.Leading, Now: o.Now}, wake: make(chan struct{}, 1),
		watches: map[string]*watch{}, follows: map[string]*watch{}, odd: map[string]string{}, drained: map[string]bool{}, refused: map[string]string{}, slow: slow,
	}
}

// resync is how often storage systems are asked whether what they say has changed, which wakes nobody here, and how soon there is another
// try of what could not be done or seen.
const resync = time.Second

// slow is how often everything is looked at although nothing changed: a watch may have missed something.
const slow = 30 * time.Second

// coalesce is how long one change waits for others.
const coalesce = 50 * time.Millisecond

// Start blocks until ctx ends and what it began has returned.
func (k *Controller) Start(ctx context.Context) error {
	inf, err := k.Cache.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	handle, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { k.poke() }, DeleteFunc: func(any) { k.poke() },
		UpdateFunc: func(before, now any) {
			b, was := before.(*corev1.Node)
			n, is := now.(*corev1.Node)
			if was && is && k.seeNode(b) != k.seeNode(n) { // a heartbeat is no news
				k.poke()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer func() {
		_ = inf.RemoveEventHandler(handle) // an error means that the informer has ended
		for _, w := range k.watches {
			w.stop()
		}
		for _, w := range k.follows {
			w.stop()
		}
	}()
	var last time.Time
	var seen []sight
	for {
		now := k.sights() // before the pass: what changes meanwhile leads to another
		if k.again || time.Since(last) >= k.slow || !slices.Equal(now, seen) {
			last, seen = time.Now(), now
			k.pass(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
			k.again = true
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(coalesce):
			}
		case <-time.After(resync):
		}
	}
}

// sight is what tells two states of a guard and its storage system apart.
type sight struct {
	guard   string
	policy  drain.Policy
	adapter *storage.Adapter
	setting *Setting
	system  storage.System
	version uint64
}

func (k *Controller) sights() (out []sight) {
	for _, g := range k.Guards() {
		one := sight{guard: g.Name, policy: g.Policy, adapter: g.Adapter, setting: g.Setting}
		if g.Seen != nil {
			if one.system = g.Seen(); one.system != nil {
				one.version = one.system.Version()
			}
		}
		out = append(out, one)
	}
	return out
}

func (k *Controller) poke() {
	select {
	case k.wake <- struct{}{}:
	default: // it is awake already
	}
}

// watch is what is watched for one guard.
type watch struct {
	g      Guarded
	cache  cache.Cache
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// follow begins to watch a guard's pods and the budgets beside them.
func (k *Controller) follow(ctx context.Context, g Guarded) (*watch, error) {
	selector, err := g.Selector()
	if err != nil {
		return nil, fmt.Errorf("reading selector: %w", err)
	}
	c, err := cache.New(k.REST, cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                   {Namespaces: map[string]cache.Config{g.Namespace: {LabelSelector: selector}}, Transform: slim},
			&policyv1.PodDisruptionBudget{}: {Namespaces: map[string]cache.Config{g.Namespace: {}}, Transform: slim},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making cache: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{g: g, cache: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		if err := c.Start(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("Watching for a drain guard ended", "guard", g.Name, "error", err)
		}
	}()
	for _, o := range []client.Object{&corev1.Pod{}, &policyv1.PodDisruptionBudget{}} {
		inf, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { k.poke() }, DeleteFunc: func(any) { k.poke() },
				UpdateFunc: func(before, now any) {
					if !same(before, now) {
						k.poke()
					}
				},
			})
		}
		if err != nil {
			w.stop()
			return nil, fmt.Errorf("watching: %w", err)
		}
	}
	return w, nil
}

// slim takes off a cached object what nobody here reads.
func slim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		ready := slices.DeleteFunc(slices.Clone(o.Status.Conditions), func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady })
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec, o.Status = corev1.PodSpec{NodeName: o.Spec.NodeName}, corev1.PodStatus{Phase: o.Status.Phase, Conditions: ready}
	case *policyv1.PodDisruptionBudget:
		o.ManagedFields, o.Status = nil, policyv1.PodDisruptionBudgetStatus{}
	}
	return o, nil
}

// same reports that what changed of a pod or a budget is no news.
func same(before, now any) bool {
	switch now := now.(type) {
	case *corev1.Pod:
		before, is := before.(*corev1.Pod)
		return is && drain.SeePod(before).Same(drain.SeePod(now))
	case *policyv1.PodDisruptionBudget:
		before, is := before.(*policyv1.PodDisruptionBudget)
		return is && drain.SeeBudget(before).Same(drain.SeeBudget(now))
	}
	return false
}

// pass looks at everything once and does what there is to do.
func (k *Controller) pass(ctx context.Context) {
	k.again, k.alone = false, map[string]bool{}
	guards := k.Guards()
	k.sweep(ctx, guards)
	if len(guards) == 0 && len(k.watches) == 0 && len(k.drained) == 0 && k.looked {
		return
	}
	var nodes corev1.NodeList
	err := k.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	if k.say(ctx, "", "Cannot list nodes", err); err != nil {
		k.again = true
		return
	}
	k.looked = true
	decided := map[string][]told{}
	for _, g := range k.inForce(ctx, guards) {
		if g.Setting != nil {
			k.delegate(ctx, g)
			continue
		}
		k.keep(ctx, g, &nodes, decided)
	}
	k.tell(ctx, &nodes, decided)
}

// inForce are the guards to keep, in the order of their names: those of the configuration, and those that it has no more, until nothing of
// theirs is left.
func (k *Controller) inForce(ctx context.Context, guards []Guarded) []Guarded {
	all := map[string]Guarded{}
	for name, w := range k.watches {
		gone := w.g
		gone.Policy, gone.Seen = drain.AlwaysAllow, nil
		all[name] = gone
	}
	for name, w := range k.follows {
		if !slices.ContainsFunc(guards, func(g Guarded) bool { return g.Name == name && g.Setting == w.g.Setting }) {
			w.stop()
			delete(k.follows, name)
		}
	}
	for _, g := range guards {
		if g.Setting != nil && k.follows[g.Name] == nil {
			k.follows[g.Name] = k.followSetting(ctx, g)
		}
		if w := k.watches[g.Name]; w != nil && (g.Setting != nil || !w.g.Same(g.Guard)) {
			w.stop()
			delete(k.watches, g.Name)
			k.swept, k.again = false, true // what it made may be where nobody looks any more
		}
		if w := k.watches[g.Name]; w != nil {
			w.g = g
		} else if g.Setting == nil {
			w, err := k.follow(ctx, g)
			if k.say(ctx, g.Name, "Cannot watch for a drain guard", err); err != nil {
				k.again = true
				continue
			}
			k.watches[g.Name] = w
		}
		all[g.Name] = g
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Guarded) int { return strings.Compare(a.Name, b.Name) })
}

// say tells an error once, until it is another or none.
func (k *Controller) say(ctx context.Context, guard, what string, err error) {
	key := guard + "\n" + what
	switch {
	case ctx.Err() != nil:
	case err == nil:
		delete(k.refused, key)
	case k.refused[key] != err.Error():
		k.refused[key] = err.Error()
		k.Log.Warn("Drain guard is hindered", "what", what, "guard", guard, "error", err)
	}
}

// told is one guard's decision about a node.
type told struct {
	g     drain.Guard
	d     drain.Decision
	blind bool // there is none: what was told stands
}

// keep does one guard's acts.
func (k *Controller) keep(ctx context.Context, g Guarded, nodes *corev1.NodeList, decided map[string][]told) {
	w := k.watches[g.Name]
	blind := func() {
		k.again = true
		for i := range nodes.Items {
			decided[nodes.Items[i].Name] = append(decided[nodes.Items[i].Name], told{g: g.Guard, blind: true})
		}
	}
	synced, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	ok := w.cache.WaitForCacheSync(synced)
	cancel()
	if !ok {
		blind()
		return
	}
	v, err := k.see(ctx, w.cache, g, nodes)
	if k.say(ctx, g.Name, "Cannot see what a drain guard guards", err); err != nil {
		blind()
		return
	}
	if g.Seen != nil {
		v.Storage = g.Seen()
	} else if v.Storage, err = readSystem(ctx, k.Dynamic, g.Adapter); err != nil { // a guard that the configuration has no more: nobody follows its system
		v.Storage = nil
	}
	v = v.Indexed()
	names := slices.Sorted(maps.Keys(v.Nodes))
	if v.Storage != nil {
		for _, name := range v.Storage.Asked() { // the replicas of a Node that was deleted may still be asked to leave it
			if _, exists := v.Nodes[name]; !exists {
				names = append(names, name)
			}
		}
	}
	careful, acts := map[string][]drain.Act{}, 0
	var failed []error
	for _, name := range names {
		d := drain.Step(v, name)
		for _, a := range d.Acts {
			if a.Do.Begins() && k.leftAlone(ctx, name) {
				continue
			}
			acts++
			if a.Do.Careful() {
				careful[name] = append(careful[name], a)
			} else if err := k.write(ctx, g, name, a); err != nil {
				failed = append(failed, err)
			}
		}
		decided[name] = append(decided[name], told{g: g.Guard, d: d})
	}
	left := drain.Left(v)
	for _, name := range slices.Sorted(maps.Keys(careful)) {
		step := func(v drain.View) []drain.Act { return drain.Step(v, name).Acts }
		if err := k.lookAgain(ctx, g, name, step, careful[name]); err != nil {
			failed = append(failed, err)
		}
	}
	if len(left) > 0 {
		if err := k.lookAgain(ctx, g, "", drain.Left, left); err != nil {
			failed = append(failed, err)
		}
	}
	var first error
	if len(failed) > 0 {
		first = failed[0]
		k.poke()
	}
	k.say(ctx, g.Name, "Could not do all that a drain guard wants", first)
	k.again = k.again || acts+len(left) > 0 // what is done is seen later, and what a live look refused may be due soon
	if !slices.ContainsFunc(k.Guards(), func(o Guarded) bool { return o.Name == g.Name }) {
		if k.again = true; acts+len(left) == 0 {
			w.stop()
			delete(k.watches, g.Name)
		}
	}
}

// lookAgain looks live, and does those of the acts that it leads to again. Each budget that goes takes a look of its own: whether another may
// go as well hangs on it.
func (k *Controller) lookAgain(ctx context.Context, g Guarded, node string, step func(drain.View) []drain.Act, acts []drain.Act) error {
	var v drain.View
	stale := true
	for _, want := range acts {
		if !want.Do.Careful() {
			continue
		}
		if stale {
			var err error
			if v, err = k.look(ctx, g); err != nil {
				return err
			}
			stale = false
		}
		for _, a := range step(v) {
			if !a.Same(want) {
				continue
			}
			if err := k.write(ctx, g, node, a); err != nil {
				return err
			}
			stale = a.Do == drain.LetGo
		}
	}
	return nil
}

// look is a live look at everything that a guard's decision hangs on.
func (k *Controller) look(ctx context.Context, g Guarded) (drain.View, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	// The replicas first: whatever is cordoned afterwards is seen.
	system, err := readSystem(ctx, k.Dynamic, g.Adapter)
	if err != nil && g.Policy != drain.AlwaysAllow { // which asks nobody
		return drain.View{}, err
	}
	var nodes corev1.NodeList
	if err := k.Live.List(ctx, &nodes); err != nil {
		return drain.View{}, fmt.Errorf("listing nodes live: %w", err)
	}
	v, err := k.see(ctx, k.Live, g, &nodes)
	v.Storage = system
	return v, err
}

// leftAlone reports, once a pass, whether nothing may be begun on a node, or in the cluster (""). What cannot be read
// may say so.
func (k *Controller) leftAlone(ctx context.Context, node string) bool {
	alone, known := k.alone[node]
	if known {
		return alone
	}
	why, err := k.LeftAlone(ctx, node)
	k.again = k.again || err != nil
	if err == nil && why != "" {
		err = errors.New(why)
	}
	k.say(ctx, "", strings.TrimSuffix("A drain guard begins nothing on node "+node, " on node "), err)
	k.alone[node] = err != nil
	return err != nil
}

// seeNode reduces a Node. Its mode says whether guards act there.
func (k *Controller) seeNode(n *corev1.Node) drain.Node {
	out := drain.SeeNode(n)
	out.Withdrawn = !k.Begins(n)
	return out
}

// see is what c has of nodes, pods and budgets.
func (k *Controller) see(ctx context.Context, c client.Reader, g Guarded, nodes *corev1.NodeList) (drain.View, error) {
	v := drain.View{Guard: g.Guard, Nodes: map[string]drain.Node{}}
	for i := range nodes.Items {
		v.Nodes[nodes.Items[i].Name] = k.seeNode(&nodes.Items[i])
	}
	selector, err := g.Selector()
	if err != nil {
		return v, fmt.Errorf("reading selector: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(g.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return v, fmt.Errorf("listing storage pods: %w", err)
	}
	for i := range pods.Items {
		v.Pods = append(v.Pods, drain.SeePod(&pods.Items[i]))
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &budgets, client.InNamespace(g.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return v, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range budgets.Items {
		v.Budgets = append(v.Budgets, drain.SeeBudget(&budgets.Items[i]))
	}
	return v, nil
}
