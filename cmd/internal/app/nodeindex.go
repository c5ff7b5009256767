package app

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

// claimsReader returns a function that returns the claims and pins of all nodes, and the lookup of one node; nil if
// there is none yet. It reads the Nodes at most once a second: there may be thousands, and it is called for each. Its
// cost follows the changes. Each version of a Node is looked up in the file once, and the claims are joined again only
// if some changed.
func (p *configs) claimsReader(cfg *config.Config) func(*corev1.Node) (*taint.Claims, *nodeLookup, error) {
	var mu sync.Mutex // guards the rest
	var at time.Time
	var found *taint.Claims
	known := nodeLookups{of: map[string]knownLookup{}, known: map[*corev1.Node]bool{}}
	return func(node *corev1.Node) (*taint.Claims, *nodeLookup, error) {
		mu.Lock()
		defer mu.Unlock()
		if found == nil || time.Since(at) >= time.Second {
			nodes, err := kube.CachedNodes(context.Background(), p.cache)
			if err != nil {
				return nil, known.of[node.Name].nodeLookup, err
			}
			at = time.Now()
			if others := known.updateLookups(cfg, nodes); others || found == nil {
				found = known.joinClaims(nodes)
			}
		}
		return found, known.of[node.Name].nodeLookup, nil
	}
}

// nodeLookups holds what the file says about nodes.
type nodeLookups struct {
	of    map[string]knownLookup // by the nodes' names
	known map[*corev1.Node]bool  // the nodes in of: a Node that the cache still holds did not change
}

type knownLookup struct {
	*nodeLookup
	node *corev1.Node
}

// updateLookups looks up the new and changed nodes in the file, and reports whether the claims changed.
func (l *nodeLookups) updateLookups(cfg *config.Config, nodes []*corev1.Node) (others bool) {
	for _, n := range nodes {
		if l.known[n] {
			continue
		}
		before := l.of[n.Name]
		now := before.nodeLookup
		if !before.isForVersion(n) {
			now = &nodeLookup{uid: n.UID, rv: n.ResourceVersion, claims: cfg.MachineClaims([]*corev1.Node{n})}
			now.machine, now.noMachine = cfg.FindMachine(n)
			others = others || before.nodeLookup == nil || !slices.Equal(now.claims, before.claims)
		}
		delete(l.known, before.node)
		l.of[n.Name], l.known[n] = knownLookup{now, n}, true
	}
	if len(l.of) == len(nodes) {
		return others
	}
	there := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		there[n.Name] = true
	}
	for name, gone := range l.of {
		if !there[name] {
			delete(l.of, name)
			delete(l.known, gone.node)
		}
	}
	return true
}

func (l *nodeLookups) joinClaims(nodes []*corev1.Node) *taint.Claims {
	var all []taint.Claim
	for _, n := range nodes {
		all = append(all, l.of[n.Name].claims...)
	}
	return taint.NewClaims(all)
}

// nodeLookup is what the file says about one version of a Node. It depends on nothing else.
type nodeLookup struct {
	uid       types.UID
	rv        string
	machine   config.Machine
	noMachine error
	claims    []taint.Claim

	last atomic.Pointer[foundMachine] // claimedMachine's last result for it
}

// foundMachine is claimedMachine's result for a node. It is valid for exactly these claims.
type foundMachine struct {
	all       *taint.Claims
	machine   machine.Machine
	noMachine error
}

// isForVersion reports whether the lookup was computed for this resourceVersion and UID. A Node without a
// resourceVersion never matches.
func (l *nodeLookup) isForVersion(n *corev1.Node) bool {
	return l != nil && l.rv != "" && l.rv == n.ResourceVersion && l.uid == n.UID
}
