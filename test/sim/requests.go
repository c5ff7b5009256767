package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
)

// healthyDelay is the annotation of a request whose node is Ready, and not for long enough.
const healthyDelay = "remediation.medik8s.io/healthy-delay"

// healthRequest is a request for the node of its name, with what the checker knows of it.
type healthRequest struct {
	api.ForcefenceRemediation
	uid      string        // of its Node when it was made; "": it had none
	down     bool          // its node was not Ready at some time since
	readyFor time.Duration // for how long that node has been Ready again
	over     bool          // so the outage that it was made for has ended
	gone     time.Time     // when it was deleted; zero: it exists
}

func (r *healthRequest) String() string { return fmt.Sprintf("%s for %s", r.UID, r.Name) }

// healthCheck is NodeHealthCheck: it makes a request for a node that has not been Ready for a while, and deletes it
// once the node is Ready. While it is paused it does neither.
func (n *neighbours) healthCheck() {
	w := n.w
	w.after(w.between(2*time.Second, 8*time.Second), n.healthCheck)
	if n.paused || w.down {
		return
	}
	for _, m := range w.machines {
		o, r := w.api.node(m.name), n.requestOf(m.name)
		switch {
		case o == nil:
		case r == nil && !isReady(o) && w.now.Sub(readyOf(o).LastTransitionTime.Time) > 10*time.Second:
			n.makeRequest(m.name)
		case r == nil || !isReady(o):
		case w.now.Sub(readyOf(o).LastTransitionTime.Time) < n.delay:
			n.annotate(r, healthyDelay, n.delay.String())
		default:
			n.deleteRequest(r)
		}
	}
}

// requestOf is the request for the node that exists; nil: there is none.
func (n *neighbours) requestOf(node string) *healthRequest {
	for _, r := range n.requests {
		if r.Name == node && r.gone.IsZero() {
			return r
		}
	}
	return nil
}

func (n *neighbours) makeRequest(node string) {
	w := n.w
	r := &healthRequest{}
	r.Name, r.Namespace, r.UID, r.ResourceVersion = node, "requests", types.UID(w.id("request-")), w.id("")
	r.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
	if o := w.api.node(node); o != nil {
		r.uid, r.down = string(o.UID), !isReady(o)
	}
	n.requests = append(n.requests, r)
	w.count("request made")
	w.logf("NodeHealthCheck: makes %s", r)
}

// deleteRequest deletes a request. A finalizer keeps it.
func (n *neighbours) deleteRequest(r *healthRequest) {
	if len(r.Finalizers) == 0 {
		n.w.logf("NodeHealthCheck: %s is gone", r)
		r.gone = n.w.now
		return
	}
	if r.DeletionTimestamp == nil {
		at := metav1.NewTime(n.w.now)
		r.DeletionTimestamp, r.ResourceVersion = &at, n.w.id("")
	}
}

// annotate writes an annotation of a request.
func (n *neighbours) annotate(r *healthRequest, key, value string) {
	if r.Annotations[key] == value {
		return
	}
	r.Annotations, r.ResourceVersion = with(r.Annotations, key, value), n.w.id("")
}

// editRequest is a person who deletes a request, ends its time, or makes one.
func (n *neighbours) editRequest(m *machine) {
	r := n.requestOf(m.name)
	switch {
	case r == nil:
		if n.w.chance(0.3) {
			n.makeRequest(m.name)
		}
	case n.w.chance(0.5):
		n.deleteRequest(r)
	default:
		n.annotate(r, "remediation.medik8s.io/nhc-timed-out", "now")
	}
}

// watchOutages notes of each request whether its outage has ended, also while no forcefence runs.
func (n *neighbours) watchOutages() {
	w := n.w
	for _, r := range n.requests {
		o := w.api.node(r.Name)
		switch {
		case o == nil || !isReady(o):
			r.down, r.readyFor = true, 0
		case r.down && r.Annotations[healthyDelay] == "":
			if r.readyFor += tick; r.readyFor > 20*time.Second && !r.over {
				r.over = true
				w.logf("%s: its outage is over", r)
			}
		}
	}
}

// watches reports that what the watches bring reaches the process.
func (p *Process) watches() bool {
	return !p.paused && p.leading && !p.w.now.Before(p.deaf) && p.w.now.Sub(p.since) > 10*time.Second
}

// permittedBy is the request that permits a power-off of the Node's machine; "": none does.
func (n *neighbours) permittedBy(node *corev1.Node) string {
	r := n.requestOf(node.Name)
	if r == nil || n.w.now.Before(n.configured) ||
		request.Refusal(&r.ForcefenceRemediation, request.Machine{}, node) != "" {
		return ""
	}
	return "request " + string(r.UID)
}

// followRequests shows on each request what becomes of it, as package remediation does.
func (p *Process) followRequests() {
	n := p.w.near
	for _, k := range p.workers {
		if r := n.requestOf(k.m.name); r != nil && p.takeUp("request of "+r.Name) {
			k.showRequest(r)
		}
	}
}

func (k *worker) showRequest(r *healthRequest) {
	w := k.w
	var node *request.Node
	o := w.api.asOf(w.now.Add(-w.lag())).node(k.m.name)
	if o != nil {
		node = &request.Node{Look: k.lookAt(o, nil), Mode: k.m.chosenMode(o), Waits: k.decided.reason}
	}
	was := &r.ForcefenceRemediation
	seen := was
	if node != nil {
		k.watched[r.UID] = k.watched[r.UID].Next(was, node.Look)
		seen = k.watched[r.UID].Note(was)
	}
	out := request.OutcomeOf(seen, request.Refusal(seen, request.Machine{}, o), node, w.now)
	now := was.DeepCopy()
	if has := request.HasFinalizer(was); has != out.Finalizer && (has || was.DeletionTimestamp == nil) {
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == api.Finalizer })
		if out.Finalizer {
			now.Finalizers = append(now.Finalizers, api.Finalizer)
		}
	}
	if now.Status.Node = out.Node; now.Status.NodeUID == "" {
		now.Status.NodeUID, now.Status.BootID = out.NodeUID, out.BootID
	}
	if out.ReadySince != nil {
		now.Status.ReadySince = out.ReadySince
	}
	meta.SetStatusCondition(&now.Status.Conditions, out.Processing)
	meta.SetStatusCondition(&now.Status.Conditions, out.Succeeded)
	end := func(error) { k.putDown("request of "+r.Name, 2*time.Second) }
	if equality.Semantic.DeepEqual(now, was) {
		end(nil)
		return
	}
	version := was.ResourceVersion
	k.call(func() error {
		if !r.gone.IsZero() || r.ResourceVersion != version {
			return errConflict
		}
		now.ResourceVersion = strconv.Itoa(w.made)
		w.made++
		r.ForcefenceRemediation = *now
		w.logf("%s: %s: %s %s", k.name, r, out.Processing.Reason, out.Succeeded.Status)
		w.count("request " + out.Processing.Reason)
		if now.DeletionTimestamp != nil && len(now.Finalizers) == 0 {
			w.near.deleteRequest(r)
		}
		return nil
	}, end)
}

// requested holds that a request permits the power-off: it was made for this Node, and its outage lasts.
func (c *checker) requested(l taint.Look, what string) {
	w, why := c.w, "there is none"
	for _, r := range w.near.requests {
		switch {
		case r.Name != l.Name || !r.gone.IsZero() && r.gone.Before(l.Sent.Wall):
		case r.uid != l.UID:
			why = r.String() + " is older than its Node"
		case r.over:
			why = r.String() + " is of an outage that has ended"
		default:
			return
		}
	}
	w.fail("request", "%s of %s, whose mode asks for a request: %s", what, l.Name, why)
}
