package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/reason"
)

// A volume's attachment to a dead node is removed in this order. First the pods that use it there are ended: until then
// the attach/detach controller counts them, and would make the attachment again. A decision to end pods says which
// volumes each of them frees (Effects.Frees); once its tombstone is written these are loose. A loose volume that no
// unfinished pod of the node uses loses its attachment, which is listed live just before. Only this process's memory
// knows the loose volumes. A new leader finds them again from the tombstones that still exist (Effects.Found). If the
// pods are gone, Kubernetes detaches the volume six minutes after that (F4).

// matchesPod reports whether a pod, finished or not, matches by its own fields. It must not be exempt (invariant 9).
func (p Policy) matchesPod(pod action.Pod) bool {
	return pod.Exempt == taint.NotExempt &&
		(len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, pod.Namespace)) &&
		(p.Pods == nil || p.matchesLabels(pod))
}

// driverVolumes returns those of the pod's volumes that belong to the policy's drivers.
func (p Policy) driverVolumes(pod action.Pod) []action.Volume {
	return slices.DeleteFunc(slices.Clone(pod.Volumes), func(v action.Volume) bool {
		return !slices.Contains(p.Drivers, v.Driver)
	})
}

// resolvePods returns those of the pods that the policy matches. read is the read that is needed first; nil: none.
func (p Policy) resolvePods(pods []action.Pod) (mine []action.Pod, read action.Action) {
	// Of a pod that was cut, what the policy asks about may be what is missing.
	mine = slices.DeleteFunc(slices.Clone(pods), func(pod action.Pod) bool {
		return pod.Cut != "" || !p.matchesPod(pod)
	})
	if slices.Contains(p.Owners, "Deployment") {
		unknown := slices.DeleteFunc(slices.Clone(mine), func(pod action.Pod) bool {
			return pod.Owner.Kind != "ReplicaSet" || pod.Owner.Known
		})
		if len(unknown) > 0 {
			return nil, action.ReadOwners{Pods: unknown}
		}
	}
	mine = slices.DeleteFunc(mine, func(pod action.Pod) bool { return !p.matchesOwner(pod) })
	if p.NeedsFence() { // other storage would still be written from the node
		mine = slices.DeleteFunc(mine, func(pod action.Pod) bool { return pod.OtherVolume != "" })
	}
	if len(p.Drivers) > 0 {
		if unknown := podsToResolve(mine); len(unknown) > 0 {
			return nil, action.ReadVolumes{Pods: unknown}
		}
		mine = slices.DeleteFunc(mine, func(pod action.Pod) bool { return !p.matchesVolumes(pod) })
	}
	return mine, nil
}

// podsToResolve returns the pods whose volumes are unknown.
func podsToResolve(pods []action.Pod) []action.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool { return !p.Claims })
}

// hasUnreadVolume reports whether the pod has a volume that could not be read. It may be any volume, so no policy that
// depends on volumes ends the pod, and none frees a volume while the pod is unfinished.
func hasUnreadVolume(p action.Pod) bool {
	return slices.ContainsFunc(p.Volumes, func(v action.Volume) bool { return v.Unread })
}

// hasCutVolumes reports whether the only volumes of the pod that could not be read are those that it has beyond a
// bound. Any user can make such a pod. They may be any of its namespace, because another namespace's claims are out of
// its reach.
func hasCutVolumes(p action.Pod) bool {
	return hasUnreadVolume(p) && !slices.ContainsFunc(p.Volumes, func(v action.Volume) bool {
		return v.Unread && v.Claim != action.UnreadClaim
	})
}

// isVolumeAwaited reports whether a pod of a ReplicaSet waits for one of the pod's volumes.
func (v View) isVolumeAwaited(p Policy, pod action.Pod) bool {
	return slices.ContainsFunc(p.driverVolumes(pod), func(vol action.Volume) bool {
		return v.AwaitedClaims[pod.Namespace+"/"+vol.Claim]
	})
}

// podsFreeingVolumes returns those of the pods whose volumes no other unfinished pod uses: ending the rest would free
// nothing. read is the read that is needed first; nil: none.
func (v View) podsFreeingVolumes(p Policy, end []action.Pod) (all []action.Pod, read action.Action) {
	users := v.filterPods(func(pod action.Pod) bool { return !pod.Terminal })
	if unknown := podsToResolve(users); len(end) > 0 && len(unknown) > 0 {
		return nil, action.ReadVolumes{Pods: unknown}
	}
	for _, u := range users {
		if cut := hasCutVolumes(u); cut || hasUnreadVolume(u) {
			end = slices.DeleteFunc(end, func(e action.Pod) bool { return !cut || e.Namespace == u.Namespace })
		}
	}
	for before := -1; before != len(end); {
		before = len(end)
		kept := map[string]bool{} // volumes that stay in use
		for _, u := range users {
			if !slices.ContainsFunc(end, func(e action.Pod) bool { return e.UID == u.UID }) {
				for _, vol := range u.Volumes {
					kept[vol.PV] = true
				}
			}
		}
		end = slices.DeleteFunc(end, func(e action.Pod) bool {
			return slices.ContainsFunc(p.driverVolumes(e), func(vol action.Volume) bool { return kept[vol.PV] })
		})
	}
	return end, nil
}

// freedVolumes returns the volumes that become loose once the pods are ended, by the pods' UIDs. They belong to the
// policies that detach and match the pod, whichever of them ends it. read is the read that is needed first; nil: none.
func (v View) freedVolumes(due []Policy, pods []action.Pod) (out map[string]map[string]string, read action.Action) {
	out = map[string]map[string]string{}
	for _, p := range due {
		if !p.Detach {
			continue
		}
		mine, read := p.resolvePods(pods)
		if read != nil {
			return nil, read
		}
		for _, pod := range mine {
			if (p.Terminating || p.Replaced) && !pod.Deleting {
				continue
			}
			for _, vol := range p.driverVolumes(pod) {
				if out[pod.UID] == nil {
					out[pod.UID] = map[string]string{}
				}
				out[pod.UID][vol.PV] = p.Name
			}
		}
	}
	return out, nil
}

// findEndedPods returns the ended pods whose volumes are not yet marked loose, and those that a policy deletes because
// of what exists.
func (v View) findEndedPods(
	due []Policy,
) (found map[string]map[string]string, bury map[string]bool, read action.Action) {
	ended := v.filterPods(needsDelete)
	freed := func(p action.Pod) bool { return v.Memory.freedPods[p.UID] }
	found, read = v.freedVolumes(due, slices.DeleteFunc(slices.Clone(ended), freed))
	if read != nil {
		return nil, nil, read
	}
	for _, p := range ended {
		if found[p.UID] == nil && !freed(p) { // it was looked at
			found[p.UID] = map[string]string{}
		}
	}
	bury = maps.Clone(v.Memory.owedDeletes)
	for _, p := range due {
		// Such a policy deletes what it ended itself, and no pod that another policy ended before its time.
		if p.Keep || !p.Terminating && p.When != StorageUnhealthy {
			continue
		}
		mine, read := p.resolvePods(slices.DeleteFunc(slices.Clone(ended), func(pod action.Pod) bool {
			return p.Terminating && (pod.DeleteAt.IsZero() || pod.DeleteAt.After(v.Now.Wall))
		}))
		if read != nil {
			return nil, nil, read
		}
		for _, pod := range mine {
			if bury == nil {
				bury = map[string]bool{}
			}
			bury[pod.UID] = true
		}
	}
	return found, bury, nil
}

// detachVolumes returns the deletion of loose volumes' attachments. NoAction: none is loose. Effects.Settled are those
// that are no longer loose.
func (v View) detachVolumes(due []Policy) (d action.Decision, e Effects) {
	d.Action = action.NoAction{}
	drivers := map[string][]string{} // by the policy's name
	for _, p := range due {
		if p.Detach {
			drivers[p.Name] = append(drivers[p.Name], p.Drivers...)
		}
	}
	loose := maps.Clone(v.Memory.loose)
	maps.DeleteFunc(loose, func(_, policy string) bool { return drivers[policy] == nil })
	if len(loose) == 0 {
		return d, e
	}
	users := v.filterPods(func(pod action.Pod) bool { return !pod.Terminal })
	if unknown := podsToResolve(users); len(unknown) > 0 {
		return action.Decision{Action: action.ReadVolumes{Pods: unknown}}, Effects{}
	}
	if slices.ContainsFunc(users, hasUnreadVolume) {
		return action.Decision{Action: action.Wait{}, RequeueAfter: resync}, Effects{}
	}
	for _, u := range users {
		for _, vol := range u.Volumes {
			if _, is := loose[vol.PV]; is { // a policy that ends that pod marks it loose again
				e.Settled = append(e.Settled, vol.PV)
				delete(loose, vol.PV)
			}
		}
	}
	switch {
	case len(loose) == 0:
		return d, e
	case !v.Attached:
		return action.Decision{Action: action.ListAttachments{Live: true}}, Effects{}
	}
	after := quiet
	var ours []action.Attachment
	var names, of []string
	for _, a := range v.Attachments {
		policy, is := loose[a.PV]
		switch {
		case !is || a.Deleting || !slices.Contains(drivers[policy], a.Attacher):
			continue
		case v.gaveUp(due, policy, a.UID):
			e.Settled = append(e.Settled, a.PV)
			d.Notes = append(d.Notes, action.Note{
				Why: reason.PolicyTimedOut, Detail: "policy " + policy + ": attachment " + a.Name,
			})
		case v.Memory.retryAt[a.UID].After(v.Now):
			after = min(after, v.Memory.retryAt[a.UID].Sub(v.Now))
		default:
			ours = append(ours, a)
			names = append(names, a.PV)
			if !slices.Contains(of, policy) {
				of = append(of, policy)
			}
		}
		delete(loose, a.PV)
	}
	e.Settled = append(e.Settled, slices.Sorted(maps.Keys(loose))...) // none of our attachments is left
	if len(ours) == 0 {
		if after != quiet {
			d.Action, d.RequeueAfter = action.Wait{}, after
		}
		return d, e
	}
	const most = 3
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	for _, p := range due {
		if slices.Contains(of, p.Name) && p.Detach {
			e.Policy = p
		}
	}
	d.Action = action.DeleteAttachments{Attachments: ours, Policy: e.Policy.String()}
	d.Reason, d.Detail = reason.PolicyDetaching, strings.Join(names, ", ")+" ("+e.Policy.String()+")"
	return d, e
}

// ApplyAttachments folds in the node's attachments, as the API server listed them.
func (m *Memory) ApplyAttachments(list []action.Attachment) {
	m.loose = maps.Clone(m.loose) // a View holds the previous map
	maps.DeleteFunc(m.loose, func(pv, _ string) bool {
		return !slices.ContainsFunc(list, func(a action.Attachment) bool { return a.PV == pv && !a.Deleting })
	})
}

// markLoose marks volumes as loose, and remembers that the pod was looked at.
func (m *Memory) markLoose(uid string, volumes map[string]string) {
	if m.freedPods == nil {
		m.freedPods = map[string]bool{}
	}
	if m.loose == nil {
		m.loose = map[string]string{}
	}
	m.freedPods[uid] = true
	maps.Copy(m.loose, volumes)
}
