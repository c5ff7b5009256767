package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// GoneNode is what is known of a Node that was deleted while VolumeAttachments name it. Kubernetes deletes its pods 40
// to 60 s later, and detaches its volumes six minutes after that: no kubelet reports that they are unmounted.
type GoneNode struct {
	Now   providers.Instant
	Since providers.Instant // when this process learned that the Node is gone

	// What the Node was when it was deleted.
	Look         taint.Look // zero: this process never saw it
	Mode         fence.Mode
	Excluded     string
	NoMachineErr error
	Device       string // those that speak for its machine
	MayDetach    bool   // by onDetachTimeout

	// Of one live look.
	Exists      bool // a Node of that name
	Sent        providers.Instant
	Attachments []action.Attachment // that name it
	Older       map[string]bool     // UIDs of those that another Node of that name may have had
	Used        map[string]bool     // PersistentVolumes of pods that are bound to that name
	Unread      bool                // other PersistentVolumes may be used as well

	Twin   string           // a node that is heard and may be the same machine
	Answer providers.Answer // zero: the devices were not asked
}

// GoneStep is what to do about a Node that was deleted. The zero value is nothing.
type GoneStep struct {
	Ask    bool                // ask the devices, then look again
	Delete []action.Attachment // those of volumes that no pod uses: the machine is proven off
	Detail string              // of the Event DeletedNodeAttached; "": none
	Over   bool                // no attachment holds a volume any more
	Again  time.Duration       // when to look again; 0: no more
}

const (
	// goneGrace is how long volumes of a drained Node that is deleted may take to be detached before it is reported. It
	// is longer than proof.TTL.
	goneGrace = 10 * time.Second
	goneEvery = 10 * time.Second
	// goneSoon is longer than Kubernetes itself needs to detach the volumes.
	goneSoon = 10 * time.Minute
	goneLate = 5 * time.Minute
)

// Next returns the next step.
func (g GoneNode) Next() GoneStep {
	held := g.held()
	switch {
	case g.Exists || len(g.Attachments) == 0:
		return GoneStep{}
	case len(held) == 0:
		return GoneStep{Over: true, Again: goneLate}
	}
	age := g.Since.Age(g.Now)
	if age < goneGrace {
		return GoneStep{Again: goneGrace - age}
	}
	s := GoneStep{Again: goneEvery, Detail: g.describe(held)}
	if age > goneSoon {
		s.Again = goneLate
	}
	free := g.free()
	switch {
	case len(free) == 0 || g.whyKept() != "":
	case g.Answer.Got.IsZero():
		s.Ask = true
	case g.isProvenOff() && g.Sent.After(g.Answer.Got):
		s.Delete = free
	}
	return s
}

// held returns the attachments by which a volume may be held.
func (g GoneNode) held() []action.Attachment {
	return slices.DeleteFunc(slices.Clone(g.Attachments), func(a action.Attachment) bool { return a.NeverAttached })
}

// free returns the attachments of volumes that no pod uses. An inline volume has no name by which its pod is found.
func (g GoneNode) free() []action.Attachment {
	if g.Unread {
		return nil
	}
	return slices.DeleteFunc(g.held(), func(a action.Attachment) bool {
		return a.Deleting || a.PV == "" || g.Used[a.PV] || g.Older[a.UID]
	})
}

// isReleased reports whether a person released the node in its last life. The Lease went with the Node: whether it was
// renewed after the release is not known, and doubt leaves the attachments alone.
func (g GoneNode) isReleased() bool {
	rec := g.Look.Record
	if rec == nil || rec.Result != taint.ResultReleased {
		return false
	}
	life := rec.Life()
	life.LeaseRV = g.Look.LeaseRV
	return life.StillHolds(g.Look)
}

// whyKept returns why no attachment may be deleted even if the devices answer Off; "" if there is no reason. It is the
// gate of a fence (step 1).
func (g GoneNode) whyKept() string {
	switch {
	case !g.Look.Exists:
		return "no controller that runs knew its machine"
	case !g.Mode.MayAct():
		return "its mode is " + g.Mode.String()
	case g.Excluded != "":
		return "it is excluded: " + g.Excluded
	case g.NoMachineErr != nil:
		return "its machine is not known: " + providers.ErrorText(g.NoMachineErr)
	case g.Twin != "":
		return "node " + g.Twin + " is heard, and may be the same machine"
	case g.Look.RecordErr != nil: // it may say that a person released the node, or that its device lied
		return "its last fence is not known: " + g.Look.RecordErr.Error()
	case g.isReleased():
		return "a person released it"
	case !g.MayDetach:
		return "onDetachTimeout is not delete-attachments"
	}
	return ""
}

// isProvenOff reports whether the answer proves that the machine is off: exactly Off, asked at most proof.TTL ago. The
// Node was gone by then, because goneGrace is longer.
func (g GoneNode) isProvenOff() bool {
	return g.Answer.State == providers.PowerOff && g.Answer.At.Age(g.Now) <= proof.TTL
}

// MaySend reports whether the deletion of an attachment may be sent at now, and for how long.
func (g GoneNode) MaySend(now providers.Instant) (within time.Duration, may bool) {
	within = proof.TimeToSend(g.Answer, now)
	g.Now = now.Add(within)
	return within, g.isProvenOff()
}

// describe says which volumes wait, and for what.
func (g GoneNode) describe(held []action.Attachment) string {
	const most = 3
	var names []string
	for _, a := range held {
		names = append(names, cmp.Or(a.PV, a.Name))
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	text := fmt.Sprintf("%s (%s)", FormatCount(len(held), "volume"), strings.Join(names, ", "))
	if why := g.whyKept(); why != "" {
		return text + "; " + why
	}
	is := func(what func(action.Attachment) bool) bool { return slices.ContainsFunc(held, what) }
	switch a := g.Answer; {
	case g.Unread:
		return text + "; the claims of its pods cannot be read"
	case a.Got.IsZero() && is(func(a action.Attachment) bool { return a.PV != "" && g.Used[a.PV] }):
		return text + "; its pods still use them"
	case a.Got.IsZero() && is(func(a action.Attachment) bool { return a.Deleting }):
		return text + "; they are being detached"
	case a.Got.IsZero() && len(g.free()) > 0:
		return text + "; its devices are asked"
	case a.Got.IsZero():
		return text + "; they may be those of an earlier Node"
	case a.Err != nil:
		return fmt.Sprintf("%s; %s: %s", text, g.Device, providers.ErrorCause(a.Err))
	default:
		return fmt.Sprintf("%s; %s: %s", text, g.Device, a.State)
	}
}
