package fleet

import (
	"slices"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Two Nodes may be one machine: a host was renamed, or its kubelet registered under its full name, and the old Node
// stays. What the machine's device says then holds for the node that is heard, and not for the silent one. A kubelet
// may report any system UUID. So a twin only ever keeps a machine on and a fence from its proof.

// maxUUIDs is how many system UUIDs a node may report within uuidsHold. A kubelet that goes from one to the next would
// hold up one recovery after the other, so it is no twin any more. No machine changes its UUID so often.
const (
	maxUUIDs  = 3
	uuidsHold = time.Hour
)

// setSystemUUID notes which machine a node reports to be; "" is none.
func (f *Fleet) setSystemUUID(n *node, uuid string, now providers.Instant) {
	if uuid == n.systemUUID {
		return
	}
	if delete(f.byUUID[n.systemUUID], n); len(f.byUUID[n.systemUUID]) == 0 {
		delete(f.byUUID, n.systemUUID)
	}
	if n.systemUUID = uuid; uuid == "" {
		return
	}
	if n.reported = append(n.reported, now); len(n.reported) > maxUUIDs+1 {
		n.reported = n.reported[1:]
	}
	if f.byUUID == nil {
		f.byUUID = map[string]map[*node]bool{}
	}
	if f.byUUID[uuid] == nil {
		f.byUUID[uuid] = map[*node]bool{}
	}
	f.byUUID[uuid][n] = true
}

// changesUUIDs reports whether the node reports one system UUID after the other.
func (n *node) changesUUIDs(now providers.Instant) bool {
	return len(n.reported) > maxUUIDs && n.reported[0].Age(now) <= uuidsHold
}

// ApplySharers notes which other nodes the configuration leads to the node's machine, as of a look.
func (f *Fleet) ApplySharers(name string, others []string, now providers.Instant) {
	f.ensureNode(name, now).sharers = others
}

// twinsOf returns the other nodes that may be the same machine. A Node without any trace of a kubelet is none.
func (f *Fleet) twinsOf(n *node, now providers.Instant) (twins []*node) {
	add := func(o *node) {
		if o == nil || o == n || !o.exists || o.rv == "" && o.status.IsZero() || slices.Contains(twins, o) {
			return
		}
		f.updateFlags(o.name, o, now)
		twins = append(twins, o)
	}
	for o := range f.byUUID[n.machineUUID] {
		if !o.changesUUIDs(now) {
			add(o)
		}
	}
	for _, name := range n.sharers {
		add(f.nodes[name])
	}
	return twins
}

// addTwins adds to a node's view what its twins tell of the machine: whether one of them is heard, and since when the
// machine is silent under all of its names. A process that has just begun to lead takes each node for heard, and so
// waits until it knows.
func (f *Fleet) addTwins(v View, n *node, now providers.Instant) View {
	for _, o := range f.twinsOf(n, now) {
		if !o.stale && (v.Twin == "" || o.name < v.Twin) {
			v.Twin = o.name
		}
		if o.alive.After(v.Alive) {
			v.Alive = o.alive
		}
		if o.beat.After(v.Alive) {
			v.Alive = o.beat
		}
		if silent := o.at.Add(shareOf(o.duration, staleAfter)); !v.SilentSince.IsZero() && silent.After(v.SilentSince) {
			v.SilentSince = silent
		}
	}
	return v
}

// TwinOfDeleted returns a node that is heard and may be the machine of a Node that was deleted: it reports the system
// UUID (taint.Look.MachineUUID), or is one of the nodes that the configuration leads to that machine.
func (f *Fleet) TwinOfDeleted(name, systemUUID string, sharers []string, now providers.Instant) string {
	n := &node{name: name, machineUUID: providers.CanonicalUUID(systemUUID), sharers: sharers}
	return f.addTwins(View{}, n, now).Twin
}
