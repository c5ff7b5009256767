package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// Amount is a number of nodes, a share of them in percent, or the sum of both: "3", "50%", "1+5%". The first two are
// Kubernetes' IntOrString. The zero value is none.
type Amount struct{ Number, Percent int }

var (
	errAmount = errors.New("must be a whole number of nodes (3), or a share of them of at most 100% (50%)")
	errSum    = errors.New("must be a whole number, a plus, and a share of at most 100%: 1+5%")
)

// UnmarshalText reads an Amount. The error says how it is written. It names the sum only where the text has a plus,
// because not every setting takes a sum.
func (a *Amount) UnmarshalText(text []byte) error {
	number, share, both := strings.Cut(string(text), "+")
	if !both && strings.HasSuffix(number, "%") {
		number, share = "0", number
	}
	wrong := errAmount
	if both {
		wrong = errSum
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return wrong
	}
	*a = Amount{Number: int(n)}
	if both || share != "" {
		p, ok := strings.CutSuffix(share, "%")
		percent, err := strconv.ParseUint(p, 10, 7)
		if !ok || err != nil || percent > 100 {
			return wrong
		}
		a.Percent = int(percent)
	}
	return nil
}

// String returns the Amount in the form that UnmarshalText reads.
func (a Amount) String() string {
	switch {
	case a.Percent == 0:
		return strconv.Itoa(a.Number)
	case a.Number == 0:
		return fmt.Sprintf("%d%%", a.Percent)
	default:
		return fmt.Sprintf("%d+%d%%", a.Number, a.Percent)
	}
}

// atMost returns the amount of n nodes as a limit, atLeast as a floor: a fraction of a node is rounded to the safe
// side.
func (a Amount) atMost(n int) int  { return a.Number + a.Percent*n/100 }
func (a Amount) atLeast(n int) int { return a.Number + (a.Percent*n+99)/100 }

// Limits are the limits of the storm guard (invariant 6). They apply to the power-offs that we send, and not to
// recovery from a machine that is off.
type Limits struct {
	MaxPowerOffs Amount   // at the same time; one is always allowed
	MinHealthy   Amount   // of all nodes: below it no machine is powered off
	Domains      []Domain // failure domains that have a floor of their own
	CoolDown     time.Duration
}

// Domain is a failure domain: the nodes with one value of a label.
type Domain struct {
	Label      string
	MinHealthy Amount // of the domain's nodes; a domain of one node has no floor
	// Fixed reports that no kubelet can write the label. The value of another label is accepted when a Node is first
	// seen, and not later.
	Fixed bool
}

// DefaultLimits returns the limits of a Fleet without configured limits.
func DefaultLimits() Limits {
	half := Amount{Percent: 50}
	return Limits{
		MaxPowerOffs: Amount{Number: 1, Percent: 5}, MinHealthy: half, CoolDown: time.Minute,
		Domains: []Domain{{Label: "topology.kubernetes.io/zone", MinHealthy: half}},
	}
}

var defaults = DefaultLimits()

const (
	cutAfter = 3 // reads of this process that fail in a row, until it counts as cut off
	// muteTTL is how long a device that stopped answering is news. Later it is broken, and says nothing about its
	// domain.
	muteTTL = 10 * time.Minute
)

// scope counts all nodes, or those of one domain.
type scope struct {
	name    string // "the cluster", or label=value
	floor   Amount
	domain  bool // a node that is not Ready counts as healthy while it renews its Lease
	nodes   int
	healthy int
	sick    map[*node]bool // its unhealthy nodes
	stale   int
	spoke   int // nodes of which a device once answered
	mute    int // of these, those whose devices recently stopped answering
	lost    providers.Instant
	under   bool              // a limit was hit at the last look
	clear   providers.Instant // when it was first seen that no limit is hit any more; zero: none ever was
}

// Storm is what the storm guard knows when a machine is to be powered off. The zero value refuses nothing.
type Storm struct {
	PowerOffs int // other nodes whose machine is being powered off, or whose fence is not done since
	Max       int // how many there may be in total
	Parts     []Part
	// Failed is how many reads of this process failed in a row. Back is how much longer reads must succeed before
	// power-offs are allowed; zero: Failed does not count.
	Failed int
	Back   time.Duration
	Plane  []Member // all control-plane nodes, if the node is one
}

// Part is the whole cluster, or one of the node's failure domains.
type Part struct {
	Of                    string
	Nodes, Healthy, Floor int
	// Unhealthy names the nodes that are not healthy, with reasons, for a person; "" while Healthy is not below Floor.
	Unhealthy   string
	Stale       int
	Lost        providers.Instant // since when most of a domain are silent together (updateLost); zero: they are not
	Spoke, Mute int               // nodes whose devices once answered; of these, those that recently stopped
	Cool        time.Duration     // how long all limits must still be kept after one was hit
}

// IsBelowFloor reports whether too few nodes are healthy.
func (p Part) IsBelowFloor() bool { return p.Healthy < p.Floor }

// HasDevicesCut reports whether most devices stopped answering: the network path to them is broken.
func (p Part) HasDevicesCut() bool { return 2*p.Mute > p.Spoke }

// LossText returns for a person that the domain is lost.
func (p Part) LossText() string {
	return fmt.Sprintf("%d of %d nodes of %s fell silent at the same moment", p.Stale, p.Nodes, p.Of)
}

// IncidentKey returns a key for the loss of a domain; the next loss has another.
func (p Part) IncidentKey() string { return p.Of + " at " + p.Lost.Wall.UTC().Format(time.RFC3339Nano) }

// Member is a control-plane node.
type Member struct {
	Name    string
	Healthy bool
	Etcd    bool // it has the k3s or RKE2 label of nodes with an etcd member
	Turn    bool // its machine is being powered off, or its fence is not done since
}

// SetLimits sets the limits, and reports whether all nodes must be applied again because the domains changed.
func (f *Fleet) SetLimits(l *Limits) (again bool) {
	before := f.limits()
	if f.limit = l; l == nil {
		f.limit = &defaults
	}
	if slices.EqualFunc(before.Domains, f.limit.Domains, func(a, b Domain) bool { return a.Label == b.Label }) {
		for _, n := range f.nodes {
			for i, s := range n.scopes {
				if s != nil {
					s.floor = f.limit.Domains[i].MinHealthy
				}
			}
		}
		return false
	}
	for _, n := range f.nodes {
		f.countNode(n, -1)
		n.domainValues, n.scopes = nil, nil
		f.countNode(n, 1)
	}
	f.scopes = nil
	return true
}

func (f *Fleet) limits() *Limits {
	if f.limit == nil {
		return &defaults
	}
	return f.limit
}

// ImpossibleFloors names the floors that no power-off can keep: they require at least all nodes of their scope.
func (f *Fleet) ImpossibleFloors() []string {
	var out []string
	look := func(s *scope, floor Amount) {
		if n := floor.atLeast(s.nodes); n >= s.nodes && s.nodes > 1 {
			out = append(out, fmt.Sprintf("%s has %d nodes, and the floor is %d", s.name, s.nodes, n))
		}
	}
	f.all.name = wholeCluster
	look(&f.all, f.limits().MinHealthy)
	for _, s := range f.scopes {
		look(s, s.floor)
	}
	return out
}

// wholeCluster is the name of the scope of all nodes.
const wholeCluster = "the cluster"

// ApplyLook folds in a look at a Node, from a watch or live, in any order: that it exists, its record, its health, its
// domains.
func (f *Fleet) ApplyLook(l taint.Look, now providers.Instant) {
	f.AddNode(l.Name, now)
	n := f.nodes[l.Name]
	if l.RecordErr == nil { // a record that does not parse means nothing
		f.ApplyRecord(l.Name, l.ResourceVersion, l.Record, now)
	}
	if n.uid == l.UID && taint.IsOlder(l.ResourceVersion, n.seenVersion) && now.Sub(n.seenAt) < catchUp {
		return
	}
	f.countNode(n, -1)
	known, turnedReady := n.uid == l.UID, n.unready && l.IsReady()
	if n.uid != "" && (!known || n.boot != l.BootID || turnedReady) {
		n.alive = now
	}
	beats := known && (turnedReady || !l.Heartbeat.IsZero() && !l.Heartbeat.Equal(n.status))
	if !l.Heartbeat.IsZero() {
		n.status = l.Heartbeat
	}
	if n.uid != l.UID {
		n.domainValues = nil
	}
	f.setSystemUUID(n, providers.CanonicalUUID(l.SystemUUID), now)
	n.machineUUID = providers.CanonicalUUID(l.MachineUUID())
	n.uid, n.boot, n.seenVersion, n.seenAt = l.UID, l.BootID, l.ResourceVersion, now
	if l.Exists && !l.IsReady() && !n.unready {
		n.noteSuspicion(Ready, now)
	}
	n.unready = !l.IsReady()
	n.fenced = l.Mark != nil || l.Record.IsOpen()
	f.updateDomains(n, l.Labels)
	f.countNode(n, 1)
	if beats {
		f.applyHeartbeat(n, false, now)
	}
	switch plane, etcd := IsControlPlane(l.Labels); {
	case plane:
		if f.plane == nil {
			f.plane = map[string]*node{}
		}
		f.plane[l.Name], n.etcd = n, etcd
	default:
		delete(f.plane, l.Name)
	}
	f.updateHeard(now)
}

// updateDomains notes the node's domains. If its own kubelet can write the label, the first value seen stays. A node
// that moves itself neither lends its health to another domain nor takes it from its own.
func (f *Fleet) updateDomains(n *node, labels map[string]string) {
	domains := f.limits().Domains
	if n.domainValues == nil {
		n.domainValues, n.scopes = make([]string, len(domains)), make([]*scope, len(domains))
	}
	for i, d := range domains {
		if v := labels[d.Label]; v != n.domainValues[i] && (d.Fixed || n.domainValues[i] == "") {
			n.domainValues[i], n.scopes[i] = v, f.ensureScope(d, v)
		}
	}
}

// ensureScope returns the domain's counts, and creates them at the first mention; nil for nodes without that label.
func (f *Fleet) ensureScope(d Domain, value string) *scope {
	if value == "" {
		return nil
	}
	name := d.Label + "=" + value
	s := f.scopes[name]
	if s == nil {
		if f.scopes == nil {
			f.scopes = map[string]*scope{}
		}
		s = &scope{name: name, floor: d.MinHealthy, domain: true}
		f.scopes[name] = s
	}
	return s
}

// countNode adds a node to the counts (by 1), or removes it (by -1).
func (s *scope) countNode(n *node, by int) {
	s.nodes += by
	if n.stale {
		s.stale += by
	}
	switch sick := n.unhealthyReason(s.domain) != ""; {
	case !sick:
		s.healthy += by
	case by < 0:
		delete(s.sick, n)
	default:
		if s.sick == nil {
			s.sick = map[*node]bool{}
		}
		s.sick[n] = true
	}
	if n.spoke {
		s.spoke += by
	}
	if !n.mute.IsZero() {
		s.mute += by
	}
}

// unhealthyReason returns why the node is not healthy; "" if it is. In a failure domain, a node that is not Ready is
// healthy while it renews its Lease: it shows that the domain and the network path to it work. In the whole cluster it
// is not healthy: that floor keeps nodes that can take pods.
func (n *node) unhealthyReason(inDomain bool) string {
	renews := !n.missed && !n.beat.IsZero()
	switch {
	case n.stale:
		return "silent"
	case n.fenced:
		return "marked, or being fenced"
	case !n.unready || inDomain && renews:
		return ""
	case renews:
		return "not Ready, though its kubelet renews its Lease"
	default:
		return "not Ready"
	}
}

// sickNamed is how many unhealthy nodes are named.
const sickNamed = 5

// describeUnhealthy names the first unhealthy nodes of the scope, with reasons.
func (s *scope) describeUnhealthy() string {
	var few []*node
	for n := range s.sick {
		i, _ := slices.BinarySearchFunc(few, n.name,
			func(o *node, name string) int { return strings.Compare(o.name, name) })
		if i < sickNamed {
			few = slices.Insert(few, i, n)[:min(len(few)+1, sickNamed)]
		}
	}
	var out []string
	for _, n := range few {
		out = append(out, fmt.Sprintf("%s (%s)", n.name, n.unhealthyReason(s.domain)))
	}
	if more := len(s.sick) - len(few); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// ApplyReachability notes whether any of a node's devices could be reached by a question, in a fence or in a routine
// poll.
func (f *Fleet) ApplyReachability(name string, a providers.Answer) {
	n := f.nodes[name]
	if n == nil {
		return
	}
	if a.State == providers.PowerOn {
		f.ApplyOnAnswer(name, a.Got)
	}
	f.countNode(n, -1)
	switch silent := a.State == providers.PowerUnknown && providers.ErrorClass(a.Err) == "unreachable"; {
	case !silent:
		n.spoke, n.mute = true, providers.Instant{}
	case n.spoke && n.mute.IsZero():
		n.mute = a.Got
	}
	f.countNode(n, 1)
}

// ApplyReadResult notes how a read of this process ended; failed reports that no API server answered it.
func (f *Fleet) ApplyReadResult(failed bool, now providers.Instant) {
	switch {
	case failed:
		f.failed++
	case f.failed >= cutAfter:
		f.cut, f.back, f.failed = f.failed, now, 0
	default:
		f.failed = 0
	}
}

// stormOf returns what the storm guard knows of a node now.
func (f *Fleet) stormOf(name string, n *node, now providers.Instant) Storm {
	l := f.limits()
	s := Storm{Max: f.maxTurns()}
	if f.failed >= cutAfter {
		s.Failed, s.Back = f.failed, l.CoolDown
	} else if left := l.CoolDown - now.Sub(f.back); f.cut > 0 && left > 0 {
		s.Failed, s.Back = f.cut, left
	}
	f.all.name, f.all.floor = wholeCluster, l.MinHealthy
	s.Parts = append(make([]Part, 0, 1+len(l.Domains)), f.partOf(&f.all, now))
	if n == nil {
		return s
	}
	for _, d := range n.scopes {
		if d != nil {
			s.Parts = append(s.Parts, f.partOf(d, now))
		}
	}
	if f.plane[name] != nil {
		for other, m := range f.plane {
			s.Plane = append(s.Plane,
				Member{Name: other, Healthy: m.unhealthyReason(false) == "", Etcd: m.etcd,
					Turn: f.hasTurn(other, now)})
		}
	}
	return s
}

// partOf returns the Part of a scope, and notes whether a limit is hit. It notes nothing at times without a look.
func (f *Fleet) partOf(s *scope, now providers.Instant) Part {
	p := Part{Of: s.name, Nodes: s.nodes, Healthy: s.healthy, Stale: s.stale, Spoke: s.spoke, Mute: s.mute}
	if s.nodes > 1 {
		p.Floor = s.floor.atLeast(s.nodes)
	}
	if s != &f.all {
		f.updateLost(s, now)
		p.Lost = s.lost
	}
	if p.IsBelowFloor() {
		p.Unhealthy = s.describeUnhealthy()
	}
	switch under := p.IsBelowFloor() || p.HasDevicesCut() || !p.Lost.IsZero(); {
	case under:
		s.under = true
	case s.under:
		s.under, s.clear = false, now
	}
	if !s.under && !s.clear.IsZero() {
		p.Cool = max(f.limits().CoolDown-now.Sub(s.clear), 0)
	}
	return p
}

// updateLost notes whether a domain is lost: most of its nodes are silent, and were last heard within one Lease of each
// other. That is one event, such as a lost site or network path. Nodes that die one by one are not. A renewal that was
// first seen after an outage of the API server counts from the start of the outage. Otherwise nodes that died together
// in the outage would seem to have died one by one.
func (f *Fleet) updateLost(s *scope, now providers.Instant) {
	if s.nodes < 2 || 2*s.stale <= s.nodes {
		s.lost = providers.Instant{}
		return
	}
	if !s.lost.IsZero() {
		return
	}
	var last providers.Instant
	for n := range s.sick {
		if n.stale && n.since.After(last) {
			last = n.since
		}
	}
	together := 0
	for n := range s.sick {
		if n.stale && last.Sub(n.at) <= n.duration { // it became silent between since and at
			together++
		}
	}
	if 2*together > s.nodes {
		s.lost = now
	}
}

// hasTurn reports whether a node has a turn: its machine is being powered off, or its fence is not done since and does
// not hang.
func (f *Fleet) hasTurn(name string, now providers.Instant) bool {
	ends, ok := f.turns[name]
	return ok && (ends.IsZero() || !now.After(ends)) || !now.After(f.shutOut[name])
}

// IsControlPlane reports whether the labels are those of a control-plane or etcd node. They are those of kubeadm and
// most others, their predecessor, and those of RKE2 and k3s. etcd reports whether they say that a member of etcd runs
// there. No kubelet can write them (NodeRestriction).
func IsControlPlane(labels map[string]string) (plane, etcd bool) {
	_, now := labels["node-role.kubernetes.io/control-plane"]
	_, before := labels["node-role.kubernetes.io/master"]
	_, etcd = labels["node-role.kubernetes.io/etcd"]
	return now || before || etcd, etcd
}
