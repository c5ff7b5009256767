package fence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// refusal is why the machine is not powered off now, with the numbers. The zero value refuses nothing.
type refusal struct {
	why          reason.Reason
	detail       string
	once         string        // action.Decision.ReportOnceKey
	requeueAfter time.Duration // when to ask again
}

// checkPowerOffLimits is the storm guard, with the rules for control-plane nodes, hosts of KubeVirt and nodes being
// drained. It returns the first rule that refuses a power-off of ours (invariants 6, 7 and 8). It runs before a
// power-off is announced, and before each that is sent. A machine that is already off is recovered in any case.
func (v View) checkPowerOffLimits() refusal {
	s := v.Fleet.Storm
	if v.ControlPlane && !v.Facts.Quorum {
		return refusal{why: reason.ControlPlane, requeueAfter: pollOn}
	}
	if v.VMHost && !v.Facts.VMHosts {
		return refusal{why: reason.VMHost, requeueAfter: pollOn}
	}
	if v.Facts.KeptOn != "" {
		return refusal{why: reason.KeptOn, detail: v.Facts.KeptOn, requeueAfter: pollOn}
	}
	if s.Back > 0 {
		return refusal{reason.CutOff, fmt.Sprintf(
			"the API server did not answer %d reads in a row; it must answer for another %s",
			s.Failed, roundUpSeconds(s.Back)), "reads", min(s.Back, pollOn)}
	}
	for _, p := range s.Parts {
		if !p.Lost.IsZero() {
			return refusal{reason.DomainLost, p.LossText(), p.IncidentKey(), pollOn}
		}
	}
	for _, p := range s.Parts {
		if p.HasDevicesCut() {
			return refusal{reason.DevicesCut, fmt.Sprintf(
				"the devices of %d of %d nodes of %s stopped answering recently",
				p.Mute, p.Spoke, p.Of), p.Of, pollOn}
		}
	}
	for _, p := range s.Parts {
		if p.IsBelowFloor() {
			return refusal{why: reason.TooFewHealthy, detail: describeFloor(p), requeueAfter: pollOn}
		}
	}
	if no := v.checkQuorum(s.Plane); no.why != "" {
		return no
	}
	for _, p := range s.Parts {
		if p.Cool > 0 {
			return refusal{reason.CoolDown, fmt.Sprintf("%s reached a limit, and must keep all limits for another %s",
				p.Of, roundUpSeconds(p.Cool)), "", min(p.Cool, pollOn)}
		}
	}
	if v.Fleet.Busy != "" {
		return refusal{reason.PowerOffLimit, fmt.Sprintf("%d of at most %d: %s",
			s.PowerOffs, s.Max, v.Fleet.Busy), "", time.Second}
	}
	return refusal{}
}

// PowerOffRefusal returns why the node's machine must not be powered off now, no matter what its devices report; "" if
// it may be. It is for those who end the machine in another way. It needs no PendingWork.
func (v View) PowerOffRefusal() (why reason.Reason, detail string) {
	v.PendingWork = WorkConfirmed
	if v.Facts.NoPower() != "" {
		v.Facts.Mode = SaferMode(v.Facts.Mode, Observe)
	}
	gate, detail, _ := v.checkGate()
	no := v.checkPowerOffLimits()
	switch {
	case gate != "":
		return gate, detail
	case v.Facts.EffectiveMode() != Fence:
		return reason.ModeObserve, cmp.Or(v.Facts.NoPower(), v.Facts.whyObserved())
	case !v.Fleet.Stale:
		return reason.StillBeating, ""
	case !v.Fleet.Heard, v.Fleet.SilentSince.IsZero():
		return reason.MostStale, ""
	case v.Now.Sub(v.Fleet.SilentSince) < v.Facts.PowerOffAfter:
		return reason.InGrace, ""
	case v.needsEtcdPods():
		return reason.Quorum, "etcd's pods were not read"
	}
	return no.why, no.detail
}

// StorageFenceRefusal returns why storage must not shut the node out now, by the limits of power-offs; "" if it may.
// once identifies what many nodes share. etcd writes to no such storage, so its quorum does not matter.
func (v View) StorageFenceRefusal() (why reason.Reason, detail, once string) {
	v.ControlPlane = false
	no := v.checkPowerOffLimits()
	return no.why, no.detail, no.once
}

// describeFloor says which floor the healthy nodes are below, and whether any power-off could keep it.
func describeFloor(p fleet.Part) string {
	text := fmt.Sprintf("%d of %d nodes of %s are not healthy, the floor is %d",
		p.Nodes-p.Healthy, p.Nodes, p.Of, p.Floor)
	if p.Floor >= p.Nodes {
		text += ", so no power-off is possible"
	}
	if p.Unhealthy != "" {
		text += ": " + p.Unhealthy
	}
	return text
}

// needsEtcdPods reports whether the etcd pods must be listed before checkPowerOffLimits can decide.
func (v View) needsEtcdPods() bool { return v.ControlPlane && v.Facts.Quorum && v.EtcdPods == nil }

// checkQuorum refuses a power-off that would leave etcd without a majority of healthy members besides this machine. If
// the members are unknown, every control-plane node counts as one, and they are powered off one at a time.
func (v View) checkQuorum(plane []fleet.Member) refusal {
	if !v.ControlPlane {
		return refusal{}
	}
	members, known := v.etcdMembers(plane)
	healthy := 0
	for _, m := range members {
		if ready, listed := v.EtcdPods[m.Name]; m.Healthy && m.Name != v.Look.Name && (ready || !listed) {
			healthy++
		}
	}
	if need := len(members)/2 + 1; healthy < need {
		return refusal{
			why: reason.Quorum,
			detail: fmt.Sprintf("without it, %d of etcd's %d members are healthy; the quorum is %d%s",
				healthy, len(members), need, describeUnknown(known)),
			requeueAfter: pollOn,
		}
	}
	var turn []string
	for _, m := range plane {
		if m.Turn && m.Name != v.Look.Name {
			turn = append(turn, m.Name)
		}
	}
	if slices.Sort(turn); !known && len(turn) > 0 {
		return refusal{
			why: reason.Quorum,
			detail: "control-plane nodes are powered off one at a time, and it is the turn of " +
				strings.Join(turn, ", ") + describeUnknown(known),
			requeueAfter: time.Second,
		}
	}
	return refusal{}
}

func describeUnknown(known bool) string {
	if known {
		return ""
	}
	return " (the etcd members are unknown, so every control-plane node counts as one)"
}

// etcdMembers returns etcd's members, and whether they are known: k3s and RKE2 label them, kubeadm's are static pods.
// Only nodes with a control-plane label count, because no kubelet can set it: any kubelet could show a pod that claims
// to be etcd's.
func (v View) etcdMembers(plane []fleet.Member) (members []fleet.Member, known bool) {
	for _, m := range plane {
		if m.Etcd {
			members = append(members, m)
		}
	}
	if len(members) > 0 {
		return members, true
	}
	for _, m := range plane {
		if _, listed := v.EtcdPods[m.Name]; !listed {
			return plane, false
		}
	}
	return plane, true
}

// refusePowerOff returns the decision for a refusal before anything is announced.
func (v View) refusePowerOff(no refusal) action.Decision {
	d := v.askEvery(no.requeueAfter, no.why)
	d.Detail, d.ReportOnceKey = no.detail, no.once
	return d
}

// roundUpSeconds rounds up to whole seconds, for a person.
func roundUpSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
