package app

import (
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
)

// nodeStore holds the Nodes: the informer's store, or a list that was read once. Its objects are read-only.
type nodeStore struct {
	toolscache.Store
	synced func() bool // nil: it holds all Nodes from the start
}

// listedNodes returns a store of the Nodes that were read.
func listedNodes(nodes []corev1.Node) nodeStore {
	s := nodeStore{Store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	for i := range nodes {
		_ = s.Add(&nodes[i]) // a Node has a key
	}
	return s
}

// nodeIndex holds what one file says of every Node: which machine it has, and what it claims. The first question of
// claims reads all Nodes. Afterwards each event of the informer reads one Node again, from the informer's store. So a
// late event brings back nothing older, and the index is never behind the event that was handled last.
type nodeIndex struct {
	cfg    *config.Config
	nodes  nodeStore
	former *formerMachines

	mu       sync.Mutex           // guards the rest
	entries  map[string]nodeEntry // by the Nodes' names; nil: not read yet
	claims   *taint.Claims        // of all entries
	replaced bool
}

// nodeEntry is what the file says of one version of a Node. It depends on nothing else.
type nodeEntry struct {
	uid       types.UID
	version   string
	machine   config.Assignment
	noMachine error
	claims    []taint.Claim
}

// matches reports whether the entry was computed for this version of this Node. A Node without a version never matches.
func (e nodeEntry) matches(n *corev1.Node) bool {
	return e.version != "" && e.version == n.ResourceVersion && e.uid == n.UID
}

// formerMachines shares taint.FormerMachines among goroutines. Events feed it, so it knows nothing of Nodes that were
// read once.
type formerMachines struct {
	mu       sync.Mutex // guards machines
	machines taint.FormerMachines
}

func (f *formerMachines) findClash(of *taint.Claims, mine taint.Claim) taint.Clash {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of.FindClash(mine, &f.machines)
}

// refresh reads a Node from the store again.
func (f *formerMachines) refresh(nodes nodeStore, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o, there, _ := nodes.GetByKey(name); there {
		f.machines.ApplyNode(o.(*corev1.Node))
	} else {
		f.machines.ApplyDeletion(name)
	}
}

var (
	errNodesUnread    = errors.New("which nodes claim which machines is not known yet")
	errConfigReplaced = errors.New("another configuration is in force")
)

// findMachine returns the machine to which the file leads a Node, or why it leads to none.
func (x *nodeIndex) findMachine(n *corev1.Node) (config.Assignment, error) {
	x.mu.Lock()
	e := x.entries[n.Name]
	x.mu.Unlock()
	if e.matches(n) {
		return e.machine, e.noMachine
	}
	return x.cfg.FindMachine(n)
}

// findClash compares a node's claim as it is now with those of all others. It returns an error if the index does not
// hold the others.
func (x *nodeIndex) findClash(mine taint.Claim) (taint.Clash, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.replaced:
		return taint.Clash{}, errConfigReplaced
	case x.entries == nil && x.nodes.synced != nil && !x.nodes.synced():
		return taint.Clash{}, errNodesUnread
	case x.entries == nil:
		x.entries, x.claims = map[string]nodeEntry{}, taint.NewClaims(nil)
		for _, o := range x.nodes.List() {
			n := o.(*corev1.Node)
			x.setEntry(n.Name, n)
		}
	}
	return x.former.findClash(x.claims, mine), nil
}

// refresh reads a Node from the store again. The caller has registered the index for events before its first question.
func (x *nodeIndex) refresh(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.entries == nil {
		return // the first question reads it
	}
	o, _, _ := x.nodes.GetByKey(name)
	n, _ := o.(*corev1.Node)
	x.setEntry(name, n)
}

// setEntry looks up a Node in the file; nil: it is gone. The caller holds mu.
func (x *nodeIndex) setEntry(name string, n *corev1.Node) {
	old := x.entries[name]
	if n == nil {
		delete(x.entries, name)
		x.claims.Replace(old.claims, nil)
		return
	}
	if old.matches(n) {
		return
	}
	e := nodeEntry{uid: n.UID, version: n.ResourceVersion, claims: x.cfg.MachineClaims([]*corev1.Node{n})}
	e.machine, e.noMachine = x.cfg.FindMachine(n)
	x.entries[name] = e
	if !slices.Equal(e.claims, old.claims) {
		x.claims.Replace(old.claims, e.claims)
	}
}

// end makes the index answer no more: from now on it misses events.
func (x *nodeIndex) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replaced, x.entries, x.claims = true, nil, nil
}
