// Package release ends a fence on a person's request. The command forcefence release uses it, and so does every other
// way in which people release a node.
package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/kube"
)

// errNothingToRelease means that the node carries neither a mark nor a record that holds anything up, and no storage
// was asked to shut it out.
var errNothingToRelease = errors.New("nothing to release")

// ReleaseNode ends the fence of a node on a person's word, in any state: it removes every mark and closes the record as
// Released, in one write. The node is then left alone until it comes back (another boot or a heartbeat), and its device
// is trusted again. If the node itself has nothing to release, but another node's record makes the machine that it is
// pinned to untrusted, that record is closed. Without confirm it only reports what it would do. It may be repeated; it
// blocks for the API server only. fences are all NetworkFences: one of this life of the node can be released, too.
func ReleaseNode(
	ctx context.Context, c client.Client, name, key string, fences []storagefence.Fence, confirm bool,
	now func() time.Time,
) (summary string, err error) {
	for range tries { // a live node is written by others
		if summary, err = tryRelease(ctx, c, name, key, fences, confirm, now); !errors.Is(err, kube.ErrAgain) {
			break
		}
	}
	return summary, err
}

// tries is how often a release starts over because the Node changed in the middle.
const tries = 5

func tryRelease(
	ctx context.Context, c client.Client, name, key string, fences []storagefence.Fence, confirm bool,
	now func() time.Time,
) (string, error) {
	node, l, err := kube.ReadNode(ctx, c, name, key, now)
	switch {
	case err != nil:
		return "", err
	case !l.Exists:
		return "", fmt.Errorf("node %s does not exist", name)
	}
	rec, summary := closeRecord(l, now())
	shutOut := describeFences(l, fences)
	if l.Mark == nil && l.RecordErr == nil && !l.Record.IsOpen() && len(l.Record.DistrustedDevices()) == 0 &&
		(shutOut == "" || l.IsReleased()) {
		other, err := findDistrustingNode(ctx, c, node)
		switch {
		case err != nil:
			return "", err
		case other == "":
			return "", fmt.Errorf("node %s: %w: it has no mark and no open fence, and no node's record makes its "+
				"machine distrusted",
				name, errNothingToRelease)
		}
		summary, err := ReleaseNode(ctx, c, other, key, fences, confirm, now)
		return summary + fmt.Sprintf(" (its record made the machine of node %s distrusted)", name), err
	}
	summary += describeOrders(l) + shutOut
	if !confirm {
		return "would release node " + name + ": " + summary, nil
	}
	w := kube.Writer{Client: c, Key: key, Leading: func() error { return nil }, Now: now}
	if l.Record.IsOpen() {
		left, err := spareAll(ctx, c, w, l, key)
		if err != nil {
			return "", err
		}
		if len(left) > 0 {
			summary += "; these pods could not be spared, and a late write may still end them: " +
				strings.Join(left, "; ")
		}
	}
	err = w.ReleaseNode(ctx, l, rec)
	if errors.Is(err, kube.ErrAgain) {
		return "", fmt.Errorf("node %s has just changed: run the command again: %w", name, err)
	}
	if err != nil {
		return "", err
	}
	return "released node " + name + ": " + summary, nil
}

// describeFences says what becomes of the NetworkFences of a node's present life; "": it has none.
func describeFences(l taint.Look, fences []storagefence.Fence) (text string) {
	for _, f := range fences {
		if what := f.OnRelease(l); what != "" {
			text += "; " + what
		}
	}
	return text
}

// describeOrders names the devices that may still carry out a power-off; "": there are none.
func describeOrders(l taint.Look) (text string) {
	if l.Record == nil {
		return ""
	}
	for _, d := range l.Record.Orders {
		text += fmt.Sprintf("; the power-off by %s is taken back", d.Device)
	}
	return text
}

// findDistrustingNode returns the node whose record states that the device of the machine to which this node is pinned
// reported Off while it was on; "" if there is none. There is no configuration here: the pins show which machine
// belongs to which node.
func findDistrustingNode(ctx context.Context, c client.Reader, node *corev1.Node) (string, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	for i := range list.Items {
		rec, err := taint.RecordOf(&list.Items[i])
		if err == nil && slices.ContainsFunc(rec.DistrustedDevices(), func(l taint.DeviceRef) bool {
			return l.Machine != nil && l.Machine.Pin() == node.Labels[taint.PinLabel]
		}) {
			return list.Items[i].Name, nil
		}
	}
	return "", nil
}

// spareAll makes sure that no tombstone that is still in flight lands on a pod that starts when the mark is removed. A
// pod that cannot be spared does not prevent the release: spareAll returns each with its reason. (One that is too large
// even for the small form is too large for the tombstone as well: evict's return path skips it, too.)
func spareAll(ctx context.Context, c client.Client, w kube.Writer, l taint.Look, key string) ([]string, error) {
	spared, small := map[string]bool{}, map[string]bool{} // by UID
	var left []string
	for range spareRounds {
		var list corev1.PodList
		if err := c.List(ctx, &list, client.MatchingFields{"spec.nodeName": l.Name}); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		left = nil
		again := false
		for i := range list.Items {
			p := kube.SeePod(&list.Items[i], key, nil)
			if p.Terminal || p.Exempt != taint.NotExempt || p.Spared == l.Record.Token() || spared[p.UID] {
				continue
			}
			p.Small = small[p.UID]
			err := w.SparePod(ctx, p, l.Record.Token())
			why := kube.RefusalOf(err)
			if why == action.Accepted {
				spared[p.UID] = true
				continue
			}
			// the pod is not the cause: the person lacks the right
			if strings.Contains(err.Error(), "cannot patch resource") {
				return nil, err
			}
			left = append(left, fmt.Sprintf("%s/%s: %v", p.Namespace, p.Name, err))
			again = again || why == action.Changed || why == action.TooLarge && !p.Small
			small[p.UID] = p.Small || why == action.TooLarge
		}
		if !again {
			break
		}
	}
	return left, nil
}

// spareRounds is how often spareAll looks again for pods that changed meanwhile.
const spareRounds = 5

func closeRecord(l taint.Look, now time.Time) (taint.Record, string) {
	summary := "no mark"
	if l.Mark != nil {
		summary = fmt.Sprintf("mark %q is removed", l.Mark.Value)
	}
	rec := taint.Record{ID: "released", Since: now.UTC().Truncate(time.Millisecond), By: taint.ByPerson}
	switch {
	case l.RecordErr != nil:
		summary += ", the unreadable record is replaced"
	case l.Record == nil:
		summary += ", no record"
	default:
		rec = *l.Record
		summary += fmt.Sprintf(", fence %q in phase %s is closed", rec.ID, rec.Phase)
	}
	rec.NodeUID, rec.BootID, rec.LeaseRV, rec.FalseOffs = l.UID, l.BootID, l.LeaseRV, nil
	rec.Heartbeat = l.Heartbeat
	return rec.EnterPhase(taint.PhaseDone, taint.ResultReleased, now), summary
}
