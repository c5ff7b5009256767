package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
)

const (
	// maxGoneNodes is how many deleted Nodes are remembered: an attachment may name any node.
	maxGoneNodes = 1000
	// goneToldEvery is the time between two Events that say the same: API servers keep an Event for an hour.
	goneToldEvery = 30 * time.Minute
)

// goneNode is what this process remembers of a Node that was deleted. Only one Reconcile uses it at a time.
type goneNode struct {
	node    *corev1.Node // as it was when it was deleted; without a UID this process never saw it
	since   providers.Instant
	told    string // detail of the last Event, "": none, or nothing is attached any more; mu guards its writes
	toldAt  providers.Instant
	deleted int    // attachments that this process deleted
	device  string // that proved the machine off
}

// rememberGone remembers a Node that was deleted.
func (r *Reconciler) rememberGone(node *corev1.Node) *goneNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.gone[node.Name]
	if g == nil || node.UID != "" && node.UID != g.node.UID {
		if g == nil && len(r.gone) >= maxGoneNodes {
			return nil
		}
		told := ""
		if g != nil {
			told = g.told // the Event about that name stays, so its end is reported as well
		}
		g = &goneNode{node: node, since: r.Now.Instant(), told: told}
		r.gone[node.Name] = g
	}
	return g
}

// forgetGone forgets a deleted Node: nothing is attached to it, or the Node with that UID has its name. A cache that is
// behind may still have the deleted one.
func (r *Reconciler) forgetGone(name string, uid types.UID) {
	r.mu.Lock()
	g := r.gone[name]
	forgets := g != nil && (uid == "" || uid != g.node.UID)
	if forgets {
		delete(r.gone, name)
	}
	r.mu.Unlock()
	switch {
	case !forgets:
	case uid == "":
		r.endGone(g, "Kubernetes detached them")
	default:
		r.endGone(g, "a Node has its name again, and what is attached counts for that one")
	}
}

// followGone reports which volumes are attached to a Node that does not exist, and detaches them if its machine is
// proven off. It returns when to look again; 0: not before an attachment changes. It blocks for the API server and the
// devices.
func (r *Reconciler) followGone(ctx context.Context, name string) (time.Duration, error) {
	cached, err := kube.ListAttachments(ctx, r.Cache, client.MatchingFields{nodeNameIndex: name})
	if err != nil {
		return 0, err
	}
	if len(cached[name]) == 0 {
		r.forgetGone(name, "")
		return 0, nil
	}
	g := r.rememberGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if g == nil {
		return 0, nil
	}
	v, m := r.seeGone(g)
	v.Attachments = cached[name]
	if s := v.Next(); !s.Ask && s.Detail == "" { // without a live read: most Nodes are drained before they are deleted
		if s.Over {
			r.endGone(g, "Kubernetes detached them")
		}
		return s.Again, nil
	}
	if err := r.lookGone(ctx, g, m, &v); err != nil {
		return 0, err
	}
	s := v.Next()
	if s.Ask {
		v.Answer = m.AskVerdict(ctx, func(d machine.Machine) string {
			if v.Look.Record != nil && v.Look.Record.DistrustsDevice(d.Identity, d.Device, true) {
				return name
			}
			return machine.DistrustedBy(r.WithFleet)(d)
		}, r.Now.Instant)
		if err := r.lookGone(ctx, g, m, &v); err != nil {
			return 0, err
		}
		s = v.Next()
	}
	if now := r.Now.Instant(); s.Detail != "" && (s.Detail != g.told || g.toldAt.Age(now) >= goneToldEvery) {
		r.setTold(g, s.Detail)
		g.toldAt = now
		r.observer.ReportGoneAttached(g.node, s.Detail)
	}
	for _, a := range s.Delete {
		if err := r.deleteGone(ctx, g, v, a); errors.Is(err, kube.ErrAgain) {
			return time.Second, nil // with another proof
		} else if err != nil {
			return s.Again, nil
		}
	}
	return s.Again, nil
}

// endGone reports that no volume is attached to a deleted Node any more, and why, if the Node was reported before.
func (r *Reconciler) endGone(g *goneNode, why string) {
	if g.told == "" {
		return
	}
	if g.deleted > 0 {
		why = fmt.Sprintf("its machine was off (%s), and forcefence deleted %s", g.device,
			decide.FormatCount(g.deleted, "VolumeAttachment"))
	}
	r.observer.ReportGoneDetached(g.node, why)
	r.setTold(g, "")
	g.deleted = 0
}

// setTold notes what was reported of a deleted Node, and counts the Nodes with attached volumes.
func (r *Reconciler) setTold(g *goneNode, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.told = detail
	attached := 0
	for _, other := range r.gone {
		if other.told != "" {
			attached++
		}
	}
	r.observer.CountGone(attached)
}

// seeGone returns what is known of a deleted Node without reading anything, and its machine.
func (r *Reconciler) seeGone(g *goneNode) (decide.GoneNode, machine.Machine) {
	now := r.Now.Instant()
	v := decide.GoneNode{Now: now, Since: g.since}
	if g.node.UID == "" {
		return v, machine.Machine{}
	}
	v.Look = taint.NewLook(g.node, nil, r.Key, now, now)
	facts, m := r.Config().FactsOf(g.node, v.Look, now.Wall)
	v.Mode, v.Excluded, v.NoMachineErr = facts.Mode, facts.Excluded, facts.NoDeviceErr
	v.MayDetach = facts.Evict.OnDetachTimeout == evict.ForceDetach
	var names []string
	for _, d := range facts.Devices {
		names = append(names, d.Name)
	}
	v.Device = strings.Join(names, ", ")
	return v, m
}

// lookGone looks live at what is left of a deleted Node.
func (r *Reconciler) lookGone(
	ctx context.Context, g *goneNode, m machine.Machine, v *decide.GoneNode,
) (err error) {
	defer func() { r.noteReadResult(err) }()
	name := g.node.Name
	v.Sent, v.Used, v.Older, v.Unread = r.Now.Instant(), map[string]bool{}, map[string]bool{}, false
	if v.Exists, err = r.nodeExists(ctx, name); err != nil || v.Exists {
		return err
	}
	if v.Attachments, err = r.attachedTo(ctx, name); err != nil {
		return err
	}
	var cached storagev1.VolumeAttachmentList
	if err := r.Cache.List(ctx, &cached, client.MatchingFields{nodeNameIndex: name}); err != nil {
		return fmt.Errorf("listing cached attachments: %w", err)
	}
	for _, a := range v.Attachments { // one that the cache does not have is kept, too
		v.Older[a.UID] = !slices.ContainsFunc(cached.Items, func(va storagev1.VolumeAttachment) bool {
			return string(va.UID) == a.UID && !va.CreationTimestamp.Before(&g.node.CreationTimestamp)
		})
	}
	pods, err := kube.ListPods(ctx, r.Live, name)
	if err != nil {
		return err
	}
	volumes, _, err := kube.ReadVolumes(ctx, r.Live, pods)
	if err != nil {
		return err
	}
	for _, of := range volumes {
		for _, p := range of {
			v.Used[p.PV], v.Unread = true, v.Unread || p.Unread
		}
	}
	if g.node.UID != "" && v.Excluded == "" {
		exclusions, err := r.readExclusions(ctx, r.Config().Exclusions, g.node)
		if err != nil {
			return err
		}
		v.Excluded = exclusions.Excluded
	}
	r.WithFleet(func(f *fleet.Fleet) {
		v.Twin = f.TwinOfDeleted(name, v.Look.MachineUUID(), m.Sharers(), r.Now.Instant())
	})
	v.Now = r.Now.Instant()
	return nil
}

// nodeExists looks live whether a Node of that name exists.
func (r *Reconciler) nodeExists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading node %s live: %w", name, err)
	}
	return !apierrors.IsNotFound(err), nil
}

// deleteGone deletes an attachment of a deleted Node, unless a Node has its name again or the proof grew old.
func (r *Reconciler) deleteGone(ctx context.Context, g *goneNode, v decide.GoneNode, a action.Attachment) error {
	exists, err := r.nodeExists(ctx, g.node.Name)
	if err != nil {
		return err
	}
	read := providers.Now() // before the protocol's clock: a process paused in between then has less time, not more
	within, may := v.MaySend(r.Now.Instant())
	if exists || !may {
		return kube.ErrLate
	}
	err = r.writer.DeleteAttachment(kube.SendBy(ctx, read.Add(within)), a)
	if errors.Is(err, kube.ErrAgain) {
		return err
	}
	if r.observer.ReportGoneDeleted(g.node, a.Name, a.PV, v.Device, err); err == nil {
		g.deleted, g.device = g.deleted+1, v.Device
	}
	return err
}
