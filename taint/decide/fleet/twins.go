package fleet

import (
	"slices"

	"github.com/forcefence/forcefence/providers"
)

// Two Nodes may be one machine: a host was renamed, or its kubelet registered under its full name, and the old Node
// stays. What the machine's device says then holds for the node that is heard, and not for the silent one. A kubelet
// may report any system UUID. So a twin only ever keeps a machine on and a fence from its proof.

// setSystemUUID notes which machine a node reports to be; "" is none.
func (f *Fleet) setSystemUUID(n *node, uuid string) {
	if uuid == n.systemUUID {
		return
	}
	if delete(f.byUUID[n.systemUUID], n); len(f.byUUID[n.systemUUID]) == 0 {
		delete(f.byUUID, n.systemUUID)
	}
	if n.systemUUID = uuid; uuid == "" {
		return
	}
	if f.byUUID == nil {
		f.byUUID = map[string]map[*node]bool{}
	}
	if f.byUUID[uuid] == nil {
		f.byUUID[uuid] = map[*node]bool{}
	}
	f.byUUID[uuid][n] = true
}

// ApplySharers notes which other nodes the configuration leads to the node's machine, as of a look.
func (f *Fleet) ApplySharers(name string, others []string, now providers.Instant) {
	f.ensureNode(name, now).sharers = others
}

// twinOf returns the first other node, by name, that is not silent and may be the same machine; "" if there is none. A
// process that has just begun to lead takes each node for heard, and so waits until it knows.
func (f *Fleet) twinOf(n *node, now providers.Instant) string {
	var twins []string
	add := func(o *node) {
		if o == nil || o == n || !o.exists || o.empty {
			return
		}
		f.updateFlags(o.name, o, now)
		if !o.stale {
			twins = append(twins, o.name)
		}
	}
	for o := range f.byUUID[n.systemUUID] {
		add(o)
	}
	for _, name := range n.sharers {
		add(f.nodes[name])
	}
	if len(twins) == 0 {
		return ""
	}
	return slices.Min(twins)
}
