package evict

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// maxClaims is how many claims of a fence one process remembers. The users who create pods decide how many there are.
const maxClaims = 10_000

// inlineClaim is among the claims if a pod had a volume that is attached without a PersistentVolume.
const inlineClaim = "*"

// volumes is what one process knows of the volumes of one fence. An attachment of another volume holds no mark: its
// driver may be gone, and no controller is going to detach it.
type volumes struct {
	// fromBegin reports that this process saw the mark before a pod was ended. Only then are the claims complete.
	fromBegin  bool
	recorded   *taint.Record             // of a fence that another process began, if it knows the claims
	podsListed bool                      // the node's pods were listed under the mark, or right before it
	inUse      []corev1.UniqueVolumeName // volumesInUse at this process's first look at the mark
	claims     map[string]bool           // as namespace/name, of all pods that the node had; and inlineClaim
	bound      map[string]string         // the claims of PersistentVolumes, as action.ReadClaims returned them
}

// newVolumes returns what the first look at a mark shows.
func newVolumes(l taint.Look) volumes {
	vs := volumes{fromBegin: !l.HasOwnMark() || l.Record.Phase != taint.PhaseEvicting, inUse: l.InUse}
	if !vs.fromBegin && l.Record.KnowsClaims() {
		vs.recorded = l.Record
	}
	return vs
}

// withPods returns the volumes after a list of the node's pods. It does not change a map that a View may hold.
func (vs volumes) withPods(pods []action.Pod) volumes {
	vs.podsListed = true
	var claims map[string]bool
	add := func(claim string) {
		if !vs.claims[claim] && len(vs.claims)+len(claims) < maxClaims {
			if claims == nil {
				claims = map[string]bool{}
			}
			claims[claim] = true
		}
	}
	for _, p := range pods {
		if p.InlineVolume {
			add(inlineClaim)
		}
		for _, name := range p.ClaimNames {
			add(p.Namespace + "/" + name)
		}
	}
	if len(claims) > 0 {
		maps.Copy(claims, vs.claims)
		vs.claims = claims
	}
	return vs
}

// ApplyBoundClaims folds in the claims that PersistentVolumes are bound to, as action.ReadClaims returned them.
func (m *Memory) ApplyBoundClaims(of map[string]string) {
	if m.id == "" {
		return
	}
	bound := maps.Clone(m.volumes.bound)
	if bound == nil {
		bound = map[string]string{}
	}
	maps.Copy(bound, of)
	m.volumes.bound = bound
}

// holds reports whether the attachment of a volume that no pod uses any more holds the mark. known is false while the
// volume's claim was not read; then the attachment holds the mark. With mounted, so does the attachment of a driver of
// which the node reported a volume as mounted.
func (vs volumes) holds(a action.Attachment, mounted bool) (holds, known bool) {
	if a.NeverAttached {
		return false, true
	}
	uncertain := !vs.fromBegin && vs.recorded == nil || len(vs.claims) >= maxClaims ||
		mounted && reportsDriver(vs.inUse, a.Attacher)
	claim, known := vs.bound[a.PV]
	if a.PV == "" {
		claim, known = inlineClaim, true
	}
	switch {
	case !known:
		return true, false
	case claim == "": // no pod can use a volume that is gone, or bound to no claim
		return false, true
	default:
		return claim == action.UnreadClaim || vs.claims[claim] || vs.recorded.HasClaim(claim) || uncertain, true
	}
}

// reportsDriver reports whether one of the entries of a node's list is a volume of the CSI driver.
func reportsDriver(names []corev1.UniqueVolumeName, driver string) bool {
	return slices.ContainsFunc(names, func(n corev1.UniqueVolumeName) bool {
		return strings.HasPrefix(string(n), "kubernetes.io/csi/"+driver+"^")
	})
}

// HoldingAttachments returns those attachments that hold the mark, and the PersistentVolumes whose claims tell whether
// fewer of them do.
func (v View) HoldingAttachments(atts []action.Attachment) (holding []action.Attachment, unread []string) {
	mounted := v.waitsForMounted()
	for _, a := range atts {
		holds, known := v.Memory.volumes.holds(a, mounted)
		if holds {
			holding = append(holding, a)
		}
		if !known {
			unread = append(unread, a.PV)
		}
	}
	return holding, unread
}

// waitsForMounted reports whether the fence waits for volumes of drivers of which the node reported one as mounted. The
// pod of such a volume may have been deleted by force before the fence; then attach/detach waits for the entry that the
// fence clears, also when the node is back. But the driver may be gone, too. So the wait ends with DetachTimeout. Where
// the configuration deletes attachments then, they have as long again.
func (v View) waitsForMounted() bool {
	limit := v.Settings.DetachTimeout
	if v.Settings.OnDetachTimeout == ForceDetach {
		limit *= 2
	}
	return v.Look.Record != nil && v.ageOf(v.Look.Record.At) <= limit
}

// leftAttachments returns the attachments that stay although no pod uses their volumes: no controller may ever detach
// them. One that was never attached is not worth a report.
func (v View) leftAttachments() []action.Attachment {
	return slices.DeleteFunc(v.unusedAttachments(), func(a action.Attachment) bool { return a.NeverAttached })
}
