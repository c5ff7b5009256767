package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// auditPolicy logs all writes to what a fence may write, with objects, from every client: so each version of an object
// has its writer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: [pods, pods/status, pods/eviction, nodes, nodes/status]}
  - {group: storage.k8s.io, resources: [volumeattachments]}
  - {group: csiaddons.openshift.io, resources: [networkfences, networkfences/status]}
  - {group: karpenter.sh, resources: [nodeclaims]}
- level: Request
  verbs: [create, update]
  namespaces: [forcefence-system, kube-system]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: None
`

// accounts are the sources of a judge's account: what happened since the last forget.
type accounts struct {
	since   time.Time
	audits  []*judge.AuditLog
	history history
	stalls  stalls
}

// forget begins all accounts again.
func (w *world) forget() error {
	var a judge.Account
	return w.collect(w.ctx, &a)
}

// collect takes all accounts, once the referee's own view has caught up with what was written.
func (w *world) collect(ctx context.Context, a *judge.Account) error {
	proxied := map[string]judge.Sent{}
	for _, s := range w.slots {
		maps.Copy(proxied, s.proxy.cut())
	}
	for _, l := range w.audits {
		if err := l.Read(a, proxied); err != nil {
			return err
		}
	}
	slices.SortFunc(a.Leads, func(x, y judge.Lead) int { return x.Done.Compare(y.Done) })
	if err := until(ctx, "the referee has seen all writes", func() (bool, error) {
		for _, x := range a.Writes {
			if x.Life != "" && x.Verb != "delete" && slices.Contains([]string{"pods", "nodes"}, x.Resource) &&
				!w.history.saw(x) {
				return false, fmt.Errorf("%s %s at %s", x.Resource, x.Key, x.RV)
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	if n := w.Relists(); n > 0 {
		return fmt.Errorf("the referee's own watches listed again %d times: versions are missing", n)
	}
	a.Versions, a.Stalls = w.history.cut(), w.stalls.cut()
	spans := map[cluster.SpanKind]*[]judge.Span{cluster.SpanRun: &a.Runs, cluster.SpanUse: &a.Mounts,
		cluster.SpanAttached: &a.Attached, cluster.SpanPower: &a.Alive, cluster.SpanRenewal: &a.Beats}
	for _, s := range w.Ledger().CutSpans() {
		list := spans[s.Kind]
		*list = append(*list, judge.Span{Node: s.Node, What: s.What, UID: string(s.UID), From: s.From, To: s.To})
	}
	for _, r := range w.bmc().Requests() {
		if r.Machine != "" && r.At.After(w.since) {
			a.Log = append(a.Log, judge.Question{System: r.Machine, Method: r.Method, Word: r.Word, At: r.At,
				Delivered: r.Answered})
		}
	}
	w.since = time.Now()
	return nil
}

// history is every version of every pod and Node since the last cut, by watches that are never perturbed. It is safe
// for concurrent use. What it hands out is not to be changed.
type history struct {
	mu       sync.Mutex // guards the rest
	versions []judge.Version
	last     map[string]judge.Version // of what is there, by resource/key
}

func (h *history) see(o metav1.Object, deleted bool) {
	v := judge.Version{Key: o.GetName(), UID: string(o.GetUID()), RV: o.GetResourceVersion(), Gone: deleted,
		Seen: time.Now()}
	switch o := o.(type) {
	case *corev1.Pod:
		v.Resource, v.Key, v.Pod = "pods", o.Namespace+"/"+o.Name, o
	case *corev1.Node:
		v.Resource, v.Node = "nodes", o
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, v)
	if deleted {
		delete(h.last, v.Resource+"/"+v.Key)
	} else {
		h.last[v.Resource+"/"+v.Key] = v
	}
}

// node is the last version, or nil.
func (h *history) node(name string) *corev1.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last["nodes/"+name].Node
}

// cut hands over all versions since the last time, after one of each object that was there.
func (h *history) cut() []judge.Version {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.versions
	h.versions = slices.Collect(maps.Values(h.last))
	return list
}

// saw reports whether the version that a write made, or found, has come by.
func (h *history) saw(w judge.Write) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.versions,
		func(v judge.Version) bool { return v.Resource == w.Resource && v.Key == w.Key && v.RV == w.RV })
}

// stalls is how long this machine ran no process: a ticker that came late. Judged and referee share the machine, so
// what held one up probably held the other.
type stalls struct {
	mu   sync.Mutex
	list []judge.Span
}

func (s *stalls) watch(ctx context.Context) {
	const every = 20 * time.Millisecond
	last := time.Now()
	for cluster.Sleep(ctx, every) {
		now := time.Now()
		if now.Sub(last) > 5*every {
			s.mu.Lock()
			s.list = append(s.list, judge.Span{From: last, To: now})
			s.mu.Unlock()
		}
		last = now
	}
}

func (s *stalls) cut() []judge.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}
