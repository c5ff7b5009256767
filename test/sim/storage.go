package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// pool is a storage system that policies of the trigger StorageUnhealthy ask. It has a part on every node, which it
// calls not healthy when the node does not answer it, and now and then for a fault of its own.
type pool struct {
	w       *World
	rule    policy.Policy
	fences  bool // before it calls a node unhealthy it cuts off what is mounted there, and what is mounted there later
	parts   []*part
	volumes map[string]action.Health
}

// part is what the storage system has on one node.
type part struct {
	m       *machine
	broken  time.Time // until when it does not run, though its node does
	dumb    time.Time // until when nobody knows of it: a resource that is missing
	refuses bool      // what is mounted now cannot write
	cut     map[string]bool
	said    []saying // from when on, oldest first
}

// saying is a word on a node that was there for all to read from then on.
type saying struct {
	at time.Time
	action.Health
}

var (
	healthy   = action.Health{Known: true, Healthy: true}
	unhealthy = action.Health{Known: true}
)

// poolName is its adapter's.
const poolName = "pool"

// addPool makes the storage system of histories that have one: one that fences, one that says so and lies, and one that
// nobody says it of.
func (w *World) addPool() {
	kind := w.Seed % kindsOfPolicies
	if w.Scenario != Accepting || kind < firstPool {
		return
	}
	s := &pool{w: w, fences: kind == fencing || kind == fencingOnly, volumes: map[string]action.Health{}}
	s.rule = policy.Policy{
		Name: "storage", When: policy.StorageUnhealthy, Storage: poolName, Drivers: []string{"sim"},
		Detach:       kind != fencingOnly,
		WithoutProof: policy.StorageFences,
		Intervals: policy.Intervals{
			Poll: w.between(time.Second, 5*time.Second), Expiry: w.between(30*time.Second, 3*time.Minute),
			Timeout: w.between(5*time.Second, 25*time.Second), Retry: w.between(time.Second, 5*time.Second),
		},
	}
	if kind == asWritten {
		s.rule.WithoutProof = policy.AcceptDuplicates
	}
	for _, id := range w.ids {
		switch {
		case id.volume == "":
		case w.chance(0.1):
			s.volumes[id.volume] = action.Health{Known: w.chance(0.5)}
		default:
			s.volumes[id.volume] = healthy
		}
	}
	for _, m := range w.machines {
		p := &part{m: m, cut: map[string]bool{}, said: []saying{{w.now, healthy}}}
		s.parts = append(s.parts, p)
		w.after(w.between(0, 3*time.Second), func() { s.tick(p) })
	}
	w.pool = s
}

// tick looks at a node, and says what came of it.
func (s *pool) tick(p *part) {
	w := s.w
	w.after(w.between(time.Second, 4*time.Second), func() { s.tick(p) })
	if !w.calm && w.chance(0.01) {
		p.broken = w.now.Add(w.between(2*time.Second, time.Minute))
	}
	if !w.calm && w.chance(0.01) {
		p.dumb = w.now.Add(w.between(time.Second, 20*time.Second))
	}
	says := healthy
	switch {
	case !w.calm && w.now.Before(p.dumb):
		says = action.Health{}
		w.count("nobody knows the storage")
	case p.m.k == nil || p.m.cut || !w.calm && w.now.Before(p.broken):
		says = unhealthy
	}
	if s.fences && says == unhealthy { // before it says so
		p.refuses = true
		for _, v := range p.m.used() {
			p.cut[v] = true
		}
	}
	if w.down || says == p.said[len(p.said)-1].Health { // where nobody is told, nothing is let go, either
		return
	}
	w.logf("storage: says of %s %+v", p.m.name, says)
	p.said = append(p.said, saying{w.now, says})
	p.refuses = p.refuses && says != healthy
}

// used are the volumes that the machine has mounted, or a container of it has open.
func (m *machine) used() []string {
	out := slices.Clone(m.mounted)
	for _, c := range m.running {
		out = append(out, c.volumes...)
	}
	return out
}

func (s *pool) part(m *machine) *part {
	return s.parts[slices.IndexFunc(s.parts, func(p *part) bool { return p.m == m })]
}

// mounted is a mount that was not there before: what was cut off is so for as long as it is mounted.
func (s *pool) mounted(m *machine, volume string) {
	if s != nil {
		p := s.part(m)
		p.cut[volume] = p.refuses
	}
}

// keeps reports that the storage lets the machine not write to the volume.
func (s *pool) keeps(m *machine, volume string) bool { return s != nil && s.part(m).cut[volume] }

// between reports whether the storage called the node unhealthy at some time of the span.
func (s *pool) between(node string, from, to time.Time) bool {
	for _, p := range s.parts {
		for i, one := range p.said {
			over := i+1 < len(p.said) && p.said[i+1].at.Before(from)
			if p.m.name == node && one.Health == unhealthy && !one.at.After(to) && !over {
				return true
			}
		}
	}
	return false
}

// poolLag is how far an adapter's cache may be behind: lag's bound, and a little.
const poolLag = 7 * time.Second

// storage is what the adapter says of the node, from a cache that may be behind; nothing before its first list.
func (p *Process) storage(node string) map[string]action.Health {
	w := p.w
	if w.pool == nil {
		return nil
	}
	if at := w.now.Add(-w.lag()); !w.down && at.After(p.poolAt) {
		p.poolAt = at
	}
	out := action.Health{}
	for _, part := range w.pool.parts {
		for _, one := range part.said {
			if part.m.name == node && !one.at.After(p.poolAt) && !w.now.Before(p.poolRead) {
				out = one.Health
			}
		}
	}
	return map[string]action.Health{poolName: out}
}

// judged are the volumes with what the storage says of them.
func (w *World) judged(volumes []action.Volume) []action.Volume {
	if w.pool == nil {
		return volumes
	}
	out := slices.Clone(volumes)
	for i := range out {
		out[i].Health = w.pool.volumes[out[i].PV]
	}
	return out
}

// calm lets all volumes be healthy.
func (s *pool) calm() {
	if s != nil {
		for v := range s.volumes {
			s.volumes[v] = healthy
		}
	}
}

// byStorage is what holds of an act of a policy whose trigger is StorageUnhealthy: its storage said so, shortly before.
func (c *checker) byStorage(g grounds, what string) {
	w, l := c.w, g.look
	if !w.pool.between(l.Name, l.Got.Add(-poolLag).Wall, w.now) {
		w.fail("1", "%s on %s by a policy, and its storage does not call the node unhealthy", what, l.Name)
	}
	if l.IsReady() {
		w.count("by a policy, on a Ready node")
	}
}

// endedFor is what holds of a pod that such a policy ends: it has volumes there, and the storage said that all are
// healthy.
func (c *checker) endedFor(p action.Pod) {
	w := c.w
	if len(p.Volumes) == 0 {
		w.fail("1", "tombstone of %s, which has no volume, for its storage's sake", p.Name)
	}
	for _, v := range p.Volumes {
		if h := w.pool.volumes[v.PV]; h != healthy {
			w.fail("1", "tombstone of %s, and the storage says of volume %s %+v", p.Name, v.PV, h)
		}
	}
}

// clearedFor is what holds of entries that a policy takes off the kubelet's list: the storage fences, by the operator's
// word, the node is not Ready on the look, and they are of pods that a policy ended there and of none that goes on.
func (c *checker) clearedFor(g grounds) {
	w, l := c.w, g.look
	c.byPolicy(g, "clearing of volumes")
	switch {
	case w.pool == nil || w.pool.rule.WithoutProof != policy.StorageFences:
		w.fail("1", "volumes of %s are cleared by a policy, and no storage fences", l.Name)
	case l.IsReady():
		w.fail("1", "volumes of %s are cleared by a policy, and the node is Ready", l.Name)
	case !slices.Equal(volumeNames(g.Action.(action.ClearVolumes).Attached), volumeNames(l.Attached)):
		w.fail("5", "a policy changes volumesAttached of %s", l.Name)
	}
	for _, name := range g.Action.(action.ClearVolumes).InUse {
		if !slices.Contains(l.InUse, name) {
			w.fail("5", "a policy adds %s to volumesInUse of %s", name, l.Name)
		}
	}
	for _, name := range l.InUse {
		if slices.Contains(g.Action.(action.ClearVolumes).InUse, name) {
			continue
		}
		if !c.freed[l.Name][name] {
			w.fail("9", "%s is taken out of volumesInUse of %s, and no policy ended a pod of it there", name, l.Name)
		}
		for _, p := range w.api.asOf(l.Got.Wall).podsOn(l.Name) {
			now := w.api.pod(p.Name)
			uses := slices.ContainsFunc(volumesOf(p), func(v string) bool { return unique(v) == name })
			if uses && now != nil && now.UID == p.UID && !taint.IsTerminal(now) {
				w.fail("9", "%s is taken out of volumesInUse of %s, and pod %s goes on using it", name, l.Name, p.Name)
			}
		}
	}
}

// free notes the volumes of a pod that a policy ended.
func (c *checker) free(node string, p action.Pod) {
	if c.freed[node] == nil {
		c.freed[node] = map[corev1.UniqueVolumeName]bool{}
	}
	for _, v := range p.Volumes {
		c.freed[node][v.Unique] = true
	}
}
