package evict

import (
	"slices"
	"strconv"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// OnDetachTimeout says what to do with volumes that stay attached for longer than DetachTimeout, besides the alert.
type OnDetachTimeout uint8

// The choices. The zero value forces nothing.
const (
	Alert       OnDetachTimeout = iota
	ForceDetach                 // delete the VolumeAttachments that ended pods left, while the machine is proven off
	// TakeOutOfService puts Kubernetes' own out-of-service taint on the node, while the machine is proven off, once
	// there is no pod left that it would end.
	TakeOutOfService
)

// OnDetachTimeouts returns all choices.
func OnDetachTimeouts() []OnDetachTimeout {
	return []OnDetachTimeout{Alert, ForceDetach, TakeOutOfService}
}

// String returns the choice's name in the configuration.
func (o OnDetachTimeout) String() string {
	switch o {
	case Alert:
		return "alert"
	case ForceDetach:
		return "delete-attachments"
	case TakeOutOfService:
		return "out-of-service"
	default:
		return "on detach timeout " + strconv.Itoa(int(o))
	}
}

const (
	// forceEvery is the time between two deletions of attachments: a controller that keeps recreating them is not
	// fought.
	forceEvery = 30 * time.Second
	// emptyBeforeTaint is how long there must have been no such pod before the out-of-service taint is set. Stock
	// eviction deletes by name what its cache still has on the node (F2), which by then would be a replacement
	// elsewhere.
	emptyBeforeTaint = time.Minute
)

// ApplyPods folds in what is bound to the node.
func (m *Memory) ApplyPods(pods []action.Pod, at providers.Instant) {
	if m.id != "" {
		m.volumes = m.volumes.withPods(pods)
		m.notePods(pods)
	}
	switch {
	case len(podsTaintWouldEnd(pods)) > 0:
		m.emptySince = providers.Instant{}
	case m.emptySince.IsZero():
		m.emptySince = at
	}
}

// podsTaintWouldEnd returns the pods that stock controllers would end or delete on an out-of-service node: all that do
// not tolerate the taint for ever.
func podsTaintWouldEnd(pods []action.Pod) []action.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool {
		_, ends := StockEnds(p.Tolerations, taint.OutOfService(time.Time{}), time.Time{})
		return !ends || p.IsHeldByFinalizers()
	})
}

// waitForDetach waits for the remaining volumes, those of ended pods. DetachTimeout after the eviction began it applies
// OnDetachTimeout, which requires a proof. The alert comes once this wait itself lasts so long. A device that died with
// its rack does not block the wait (Step lists the volumes again meanwhile).
func (v View) waitForDetach(left []action.Attachment) action.Decision {
	d := requeueAfter(reason.WaitingDetach, pollWait)
	overdue := v.isOverdue(d)
	if v.ageOf(v.Look.Record.At) > v.Settings.DetachTimeout {
		switch v.Settings.OnDetachTimeout {
		case ForceDetach:
			d = v.forceDetach(d, left)
		case TakeOutOfService:
			d = v.takeOutOfService(d)
		case Alert:
		}
		if overdue { // one alert, no matter what the configuration does about it
			d.Alert = string(reason.WaitingDetach)
		}
	}
	switch {
	case action.Is[action.Wait](d) || v.MayEndPods(v.Now):
		return d
	case !v.hasNoDevice() && (!v.isAskedSinceMark() || v.Answers.Answer.State == providers.PowerOff || v.mayAskAgain()):
		return action.Decision{Action: action.AskDevices{}, Reason: reason.Confirming, Alert: d.Alert}
	default:
		return action.Decision{
			Action: action.Wait{}, Reason: reason.WaitingDetach, RequeueAfter: pollWait, Alert: d.Alert,
		}
	}
}

// forceDetach deletes attachments. An attachment that is being deleted waits for its driver, which this cannot speed
// up.
func (v View) forceDetach(wait action.Decision, left []action.Attachment) action.Decision {
	force := slices.DeleteFunc(slices.Clone(left), func(a action.Attachment) bool { return a.Deleting })
	if len(force) == 0 || v.Now.Sub(v.Memory.ForcedAt) < forceEvery {
		return wait
	}
	return action.Decision{Action: action.DeleteAttachments{Attachments: force}, Reason: reason.ForcingDetach}
}

// takeOutOfService sets the taint, once there is no pod left that it would end.
func (v View) takeOutOfService(wait action.Decision) action.Decision {
	stay := podsTaintWouldEnd(v.Pods)
	switch {
	case taint.IsOutOfService(v.Look.Taints):
		return wait
	case len(stay) > 0:
		wait.Detail = "the out-of-service taint would end pod " + stay[0].Namespace + "/" + stay[0].Name
		return wait
	case v.Memory.emptySince.IsZero() || v.Now.Sub(v.Memory.emptySince) < emptyBeforeTaint:
		return wait
	default:
		return action.Decision{Action: action.AddOutOfServiceTaint{}, Reason: reason.OutOfService}
	}
}
