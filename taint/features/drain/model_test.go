package drain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/taint/features/storage"
)

// model is a cluster whose nodes are cordoned, drained and lost in any order, a storage system that does what it is
// asked, and a controller that sees all of it late, but for the live looks before its careful acts.
type model struct {
	rnd      *rand.Rand
	v        View
	replicas []storage.Replica
	version  int
	stale    View // what the controller's caches hold
	log      []string
}

func newModel(seed uint64, policy Policy) *model {
	m := &model{rnd: rand.New(rand.NewPCG(seed, 1))}
	m.v = View{Guard: guardWith(policy), Nodes: map[string]Node{}}
	for i := range 2 + m.rnd.IntN(3) {
		name := fmt.Sprint("n", i)
		m.v.Nodes[name] = Node{}
		m.v.Pods = append(m.v.Pods, pod(name))
	}
	for i := range 1 + m.rnd.IntN(3) {
		for _, n := range m.rnd.Perm(len(m.v.Nodes))[:1+m.rnd.IntN(2)] {
			m.replicas = append(m.replicas, replica(fmt.Sprint("v", i), fmt.Sprint("n", n)))
		}
	}
	m.observe()
	return m
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// look is a live look.
func (m *model) look() View {
	v := m.v
	v.Nodes = map[string]Node{}
	for name, n := range m.v.Nodes {
		v.Nodes[name] = n
	}
	v.Pods, v.Budgets = slices.Clone(m.v.Pods), slices.Clone(m.v.Budgets)
	v.Storage = &memory{replicas: slices.Clone(m.replicas)}
	return v
}

// observe brings the caches up to date.
func (m *model) observe() { m.stale = m.look().WithIndex() }

func (m *model) node() string { return fmt.Sprint("n", m.rnd.IntN(len(m.v.Nodes))) }

// happen is one thing that happens beside the controller. harm: copies may be lost, too.
func (m *model) happen(harm bool) (lost bool) {
	name := m.node()
	n := m.v.Nodes[name]
	kinds := 6
	if harm {
		kinds = 9
	}
	switch kind := m.rnd.IntN(kinds); kind {
	case 0, 1:
		n.Cordoned = kind == 0
		m.v.Nodes[name] = n
		m.say("%s cordoned: %t", name, n.Cordoned)
	case 2: // kubectl drain evicts what no budget is before
		i := slices.IndexFunc(m.v.Pods, func(p Pod) bool { return p.Node == name })
		if i < 0 || !n.Cordoned ||
			slices.ContainsFunc(m.v.Budgets, func(b Budget) bool { return b.selectsPod(m.v.Pods[i]) }) {
			return false
		}
		m.say("%s drained", name)
		m.v.Pods = slices.Delete(m.v.Pods, i, i+1)
	case 3: // the storage pod comes back, under another UID
		if n.Cordoned || slices.ContainsFunc(m.v.Pods, func(p Pod) bool { return p.Node == name }) {
			return false
		}
		m.version++
		p := pod(name)
		p.UID += fmt.Sprint(m.version)
		m.v.Pods = append(m.v.Pods, p)
		m.say("%s has a storage pod again", name)
	case 4: // an eviction is begun: a copy is built on a node that takes pods
		i := slices.IndexFunc(m.replicas, func(r storage.Replica) bool { return r.Evicting })
		if i < 0 || n.Cordoned || !m.serves(name) ||
			slices.ContainsFunc(m.replicas,
				func(r storage.Replica) bool { return r.Volume == m.replicas[i].Volume && r.Node == name }) {
			return false
		}
		m.replicas = append(m.replicas, replica(m.replicas[i].Volume, name, building))
		m.say("%s is copied to %s", m.replicas[i].Name, name)
	case 5: // a copy is ready, and the one that was to go goes
		i := slices.IndexFunc(m.replicas, func(r storage.Replica) bool { return !r.Started })
		if i < 0 || !m.serves(m.replicas[i].Node) {
			return false
		}
		m.observe() // to build a copy takes longer than a look of the controller's
		m.act(m.replicas[i].Node, func() {})
		m.replicas[i].Started, m.replicas[i].Healthy = true, true
		r := m.replicas[i]
		m.say("%s is ready", r.Name)
		if gone := slices.IndexFunc(m.replicas,
			func(o storage.Replica) bool { return o.Volume == r.Volume && o.Evicting }); gone >= 0 {
			m.say("%s goes", m.replicas[gone].Name)
			m.replicas = slices.Delete(m.replicas, gone, gone+1)
		}
	case 6:
		i := m.rnd.IntN(len(m.replicas))
		m.replicas[i].Healthy = !m.replicas[i].Healthy && m.replicas[i].Started
		m.say("%s healthy: %t", m.replicas[i].Name, m.replicas[i].Healthy)
		return true
	case 7:
		n.Down = !n.Down
		m.v.Nodes[name] = n
		m.say("%s down: %t", name, n.Down)
		return true
	case 8: // a storage pod crashes, or runs again
		i := m.rnd.IntN(len(m.v.Pods) + 1)
		if i == len(m.v.Pods) {
			return false
		}
		m.v.Pods[i].Ready = !m.v.Pods[i].Ready
		m.say("%s up: %t", m.v.Pods[i].Name, m.v.Pods[i].Ready)
		return true
	}
	return false
}

// serves reports that a node's storage pod runs.
func (m *model) serves(name string) bool {
	return slices.ContainsFunc(m.v.Pods, func(p Pod) bool { return p.Node == name && p.Ready })
}

// act is one pass of the controller over a node. between happens between a live look and the write.
func (m *model) act(name string, between func()) {
	for _, a := range DecideNode(m.stale, name).Acts {
		if a.Do.NeedsLiveLook() {
			found := false
			for _, again := range DecideNode(m.look(), name).Acts {
				if again.IsSameAs(a) {
					a, found = again, true
				}
			}
			if !found {
				continue
			}
			between()
		}
		m.do(a)
	}
	for _, a := range DecideLeftovers(m.look()) {
		m.do(a)
	}
}

// do writes as the API server would take it.
func (m *model) do(a Act) {
	m.say("%s %s%s", a.Do, a.Pod.Node, a.Replica.Name)
	switch a.Do {
	case Protect:
		made := seen(m.v.Guard.BudgetFor(a.Pod))
		if !slices.ContainsFunc(m.v.Budgets, func(b Budget) bool { return b.Name == made.Name }) {
			m.version++
			made.UID += fmt.Sprint(m.version)
			m.v.Budgets = append(m.v.Budgets, made)
		}
	case DeleteBudget:
		m.v.Budgets = slices.DeleteFunc(m.v.Budgets, func(b Budget) bool { return b.UID == a.Budget.UID })
	case RequestEviction, CancelEviction:
		for i, r := range m.replicas {
			if r.UID == a.Replica.UID && r.Evicting == a.Replica.Evicting && r.Ours == a.Replica.Ours {
				m.replicas[i].Evicting, m.replicas[i].Ours = a.Do == RequestEviction, a.Do == RequestEviction
			}
		}
	}
}

// settle lets the controller see everything and do all there is to do.
func (m *model) settle(t *testing.T) {
	for range 20 {
		m.observe()
		before := len(m.log)
		for name := range m.v.Nodes {
			m.act(name, func() {})
		}
		if len(m.log) == before {
			return
		}
	}
	t.Fatalf("the controller comes to no end:\n%s", strings.Join(m.log, "\n"))
}

// bare names a volume whose healthy copies all are behind pods without a budget, or "".
func (m *model) bare() string {
	for _, r := range m.replicas {
		if !r.Healthy {
			continue
		}
		safe := slices.ContainsFunc(m.replicas, func(o storage.Replica) bool {
			return o.Volume == r.Volume && o.Healthy &&
				slices.ContainsFunc(m.v.Budgets, func(b Budget) bool { return b.Node == o.Node })
		})
		if !safe {
			return r.Volume
		}
	}
	return ""
}

// While no copy is lost by itself, every volume has at every moment a healthy copy behind a budget, whatever is
// cordoned, drained and rebuilt in whatever order, and however old the controller's caches are.
func TestNoVolumeIsEverBare(t *testing.T) {
	drained, moved := 0, 0
	for _, policy := range []Policy{BlockIfLast, BlockForEviction, BlockForEvictionIfLast} {
		for seed := range uint64(3000) {
			m := newModel(seed, policy)
			m.settle(t)
			for range 60 {
				switch m.rnd.IntN(4) {
				case 0:
					m.observe()
				case 1:
					m.act(m.node(), func() {
						for range m.rnd.IntN(3) {
							m.happen(false)
						}
					})
				default:
					m.happen(false)
				}
				if v := m.bare(); v != "" {
					t.Fatalf("%s, seed %d: no healthy copy of %s is behind a budget:\n%s", policy, seed, v,
						strings.Join(m.log, "\n"))
				}
			}
			text := strings.Join(m.log, "\n")
			drained += strings.Count(text, "drained")
			moved += strings.Count(text, "goes")
		}
	}
	if drained < 1000 || moved < 1000 {
		t.Errorf("%d nodes were drained and %d replicas moved: too few to say anything", drained, moved)
	}
}

// Where copies are lost by themselves, the controller makes up for it as soon as it has seen it, as far as there is a
// pod to guard. Nobody is asked to leave a node that stays, and budgets stand before all pods that are not being
// drained.
func TestModelSettles(t *testing.T) {
	for _, policy := range Policies {
		for seed := range uint64(1500) {
			m := newModel(seed, policy)
			for range 40 {
				switch m.rnd.IntN(4) {
				case 0:
					m.observe()
				case 1:
					m.act(m.node(), func() { m.happen(true) })
				default:
					m.happen(true)
				}
			}
			m.settle(t)
			fail := func(what string) {
				t.Fatalf("%s, seed %d: %s:\n%s", policy, seed, what, strings.Join(m.log, "\n"))
			}
			now := m.look().WithIndex()
			for _, p := range m.v.Pods {
				c := now.budgetsOf(p)
				switch {
				case policy == AlwaysAllow && len(c.ours) > 0:
					fail("a budget before " + p.Name)
				case policy != AlwaysAllow && !m.v.Nodes[p.Node].Cordoned && !c.ok:
					fail("no budget before " + p.Name)
				case len(c.ours) > 1:
					fail("two budgets before " + p.Name)
				}
			}
			for _, r := range m.replicas {
				n := m.v.Nodes[r.Node]
				if r.Ours && (!n.Cordoned || n.Down || !policy.ShouldEvict()) {
					fail("still asked to go: " + r.Name)
				}
				if policy == AlwaysAllow || policy == AllowIfStopped || !r.Healthy || !m.hasPod(r.Node) {
					continue
				}
				safe := slices.ContainsFunc(m.replicas, func(o storage.Replica) bool {
					return o.Volume == r.Volume && o.Healthy &&
						slices.ContainsFunc(m.v.Budgets, func(b Budget) bool { return b.Node == o.Node })
				})
				if !safe {
					fail("no healthy copy of " + r.Volume + " is behind a budget")
				}
			}
		}
	}
}

func (m *model) hasPod(name string) bool {
	return slices.ContainsFunc(m.v.Pods, func(p Pod) bool { return p.Node == name })
}
