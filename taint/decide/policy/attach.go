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

// A volume's attachment to a dead node goes in this order. The pods that use it there are ended: until then the attach/detach controller
// counts them, and would make the attachment again. A pod's Decision says which volumes it frees (Frees); once it is written these are
// loose. A loose volume that no unfinished pod of the node uses any more loses its attachment, which is listed live just before. What is
// loose is this process's memory; a new leader finds it again from the tombstones that are still there (loosen), and where the pods are
// gone it is left to Kubernetes, which detaches six minutes after the node was last heard.

// names is what a pod's own words tell of it, finished or not. It is not exempt (invariant 9).
func (p Policy) names(pod action.Pod) bool {
	return pod.Exempt == taint.NotExempt &&
		(len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, pod.Namespace)) && (p.Pods == nil || p.matches(pod))
}

// drives are those of the pod's volumes that are the policy's drivers'.
func (p Policy) drives(pod action.Pod) []action.Volume {
	return slices.DeleteFunc(slices.Clone(pod.Volumes), func(v action.Volume) bool { return !slices.Contains(p.Drivers, v.Driver) })
}

// resolve narrows pods to those that the policy means. read is what to read before that can be said; Leave: nothing.
func (p Policy) resolve(pods []action.Pod) (mine []action.Pod, read Decision) {
	mine = slices.DeleteFunc(slices.Clone(pods), func(pod action.Pod) bool { return !p.names(pod) })
	if slices.Contains(p.Owners, "Deployment") {
		unknown := slices.DeleteFunc(slices.Clone(mine), func(pod action.Pod) bool { return pod.Owner.Kind != "ReplicaSet" || pod.Owner.Known })
		if len(unknown) > 0 {
			return nil, Decision{Act: ReadOwners, Pods: unknown}
		}
	}
	mine = slices.DeleteFunc(mine, func(pod action.Pod) bool { return !p.owns(pod) })
	if len(p.Drivers) > 0 {
		if unknown := unresolved(mine); len(unknown) > 0 {
			return nil, Decision{Act: ReadVolumes, Pods: unknown}
		}
		mine = slices.DeleteFunc(mine, func(pod action.Pod) bool { return !p.stores(pod) })
	}
	return mine, Decision{}
}

// unresolved are the pods whose volumes are not known.
func unresolved(pods []action.Pod) []action.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p action.Pod) bool { return !p.Claims })
}

// unread reports a pod with a volume that could not be read. It may be any volume, so no policy that depends on volumes
// ends the pod, and none frees a volume while the pod is unfinished.
func unread(p action.Pod) bool {
	return slices.ContainsFunc(p.Volumes, func(v action.Volume) bool { return v.Unread })
}

// claimed reports that a pod of a ReplicaSet waits for one of the pod's volumes.
func (v View) claimed(p Policy, pod action.Pod) bool {
	return slices.ContainsFunc(p.drives(pod), func(vol action.Volume) bool { return v.Waiting[pod.Namespace+"/"+vol.Claim] })
}

// together are those of the pods of which no volume is used by an unfinished pod beside them: to end the others would free nothing. read
// is what to read before that can be said.
func (v View) together(p Policy, end []action.Pod) (all []action.Pod, read Decision) {
	users := v.where(func(pod action.Pod) bool { return !pod.Terminal })
	if unknown := unresolved(users); len(end) > 0 && len(unknown) > 0 {
		return nil, Decision{Act: ReadVolumes, Pods: unknown}
	}
	if slices.ContainsFunc(users, unread) {
		return nil, Decision{}
	}
	for before := -1; before != len(end); {
		before = len(end)
		kept := map[string]bool{} // volumes that somebody goes on using
		for _, u := range users {
			if !slices.ContainsFunc(end, func(e action.Pod) bool { return e.UID == u.UID }) {
				for _, vol := range u.Volumes {
					kept[vol.PV] = true
				}
			}
		}
		end = slices.DeleteFunc(end, func(e action.Pod) bool {
			return slices.ContainsFunc(p.drives(e), func(vol action.Volume) bool { return kept[vol.PV] })
		})
	}
	return end, Decision{}
}

// frees are the volumes that are loose once the pods are ended, by the pods' UIDs: those of the policies that detach and mean the pod,
// whichever of them ends it. read is what to read before that can be said.
func (v View) frees(due []Policy, pods []action.Pod) (out map[string]map[string]string, read Decision) {
	out = map[string]map[string]string{}
	for _, p := range due {
		if !p.Detach {
			continue
		}
		mine, read := p.resolve(pods)
		if read.Act != Leave {
			return nil, read
		}
		for _, pod := range mine {
			if (p.Terminating || p.Replaced) && !pod.Deleting {
				continue
			}
			for _, vol := range p.drives(pod) {
				if out[pod.UID] == nil {
					out[pod.UID] = map[string]string{}
				}
				out[pod.UID][vol.PV] = p.Name
			}
		}
	}
	return out, Decision{}
}

// tombs are the ended pods that no process of this memory has freed yet, and those that a policy deletes by what is there.
func (v View) tombs(due []Policy) (found map[string]map[string]string, bury map[string]bool, read Decision) {
	ended := v.where(ended)
	found, read = v.frees(due, slices.DeleteFunc(slices.Clone(ended), func(p action.Pod) bool { return v.freed[p.UID] }))
	if read.Act != Leave {
		return nil, nil, read
	}
	for _, p := range ended {
		if found[p.UID] == nil && !v.freed[p.UID] { // it was looked at
			found[p.UID] = map[string]string{}
		}
	}
	bury = maps.Clone(v.owed)
	for _, p := range due {
		if p.Keep || !p.Terminating && p.When != StorageUnhealthy { // that one deletes what it ended, and nothing that another ended before its time
			continue
		}
		mine, read := p.resolve(slices.DeleteFunc(slices.Clone(ended), func(pod action.Pod) bool {
			return p.Terminating && (pod.DeleteAt.IsZero() || pod.DeleteAt.After(v.Now.Wall))
		}))
		if read.Act != Leave {
			return nil, nil, read
		}
		for _, pod := range mine {
			if bury == nil {
				bury = map[string]bool{}
			}
			bury[pod.UID] = true
		}
	}
	return found, bury, Decision{}
}

// detach is the deletion of loose volumes' attachments. Leave: none is loose. Settled are those that are loose no more.
func (v View) detach(due []Policy) (d Decision) {
	drivers := map[string][]string{} // by the policy's name
	for _, p := range due {
		if p.Detach {
			drivers[p.Name] = append(drivers[p.Name], p.Drivers...)
		}
	}
	loose := maps.Clone(v.loose)
	maps.DeleteFunc(loose, func(_, policy string) bool { return drivers[policy] == nil })
	if len(loose) == 0 {
		return Decision{}
	}
	users := v.where(func(pod action.Pod) bool { return !pod.Terminal })
	if unknown := unresolved(users); len(unknown) > 0 {
		return Decision{Act: ReadVolumes, Pods: unknown}
	}
	if slices.ContainsFunc(users, unread) {
		return Decision{Act: Wait, After: resync}
	}
	for _, u := range users {
		for _, vol := range u.Volumes {
			if _, is := loose[vol.PV]; is { // who ends that pod sets it loose again
				d.Settled = append(d.Settled, vol.PV)
				delete(loose, vol.PV)
			}
		}
	}
	switch {
	case len(loose) == 0:
		return d
	case !v.Attached:
		return Decision{Act: ReadAttachments}
	}
	d.Act, d.After = Wait, quiet
	var names, of []string
	for _, a := range v.Attachments {
		policy, is := loose[a.PV]
		switch {
		case !is || a.Deleting || !slices.Contains(drivers[policy], a.Attacher):
			continue
		case v.gaveUp(due, policy, a.UID):
			d.Settled = append(d.Settled, a.PV)
			d.Notes = append(d.Notes, action.Note{Why: reason.PolicyTimedOut, Detail: "policy " + policy + ": attachment " + a.Name})
		case v.again[a.UID].After(v.Now):
			d.After = min(d.After, v.again[a.UID].Sub(v.Now))
		default:
			d.Attachments = append(d.Attachments, a)
			names = append(names, a.PV)
			if !slices.Contains(of, policy) {
				of = append(of, policy)
			}
		}
		delete(loose, a.PV)
	}
	d.Settled = append(d.Settled, slices.Sorted(maps.Keys(loose))...) // nothing of ours is attached
	if len(d.Attachments) == 0 {
		if d.After == quiet {
			d.Act = Leave
		}
		return d
	}
	const most = 3
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	for _, p := range due {
		if slices.Contains(of, p.Name) && p.Detach {
			d.Policy = p
		}
	}
	d.Act, d.Why = DeleteAttachments, reason.PolicyDetaching
	d.Detail = strings.Join(names, ", ") + " (" + d.Policy.String() + ")"
	return d
}

// SawAttachments folds in what is attached to the node, as the API server listed it.
func (m *Memory) SawAttachments(list []action.Attachment) {
	m.loose = maps.Clone(m.loose) // a View holds the map that was there
	maps.DeleteFunc(m.loose, func(pv, _ string) bool {
		return !slices.ContainsFunc(list, func(a action.Attachment) bool { return a.PV == pv && !a.Deleting })
	})
}

// set makes volumes loose, and remembers that the pod was looked at.
func (m *Memory) set(uid string, volumes map[string]string) {
	if m.freed == nil {
		m.freed = map[string]bool{}
	}
	if m.loose == nil {
		m.loose = map[string]string{}
	}
	m.freed[uid] = true
	maps.Copy(m.loose, volumes)
}
