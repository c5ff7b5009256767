package taint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DetachingClaims returns the claims, as namespace/name, whose pods alone the mark still holds; nil: it holds every pod
// that is not exempt. The mark narrows once the record of this mark, and of this Node, states that all ended pods are
// gone. The record then names each volume that is to be detached. A volume that no claim leads to is listed as "",
// which matches no pod.
func (l Look) DetachingClaims() []string {
	r := l.Record
	if !l.HasOwnMark() || l.Mark.Others || r.Phase != PhaseEvicting || r.NodeUID != l.UID ||
		len(r.Detaching) > MaxDetaching {
		return nil
	}
	var out []string
	for _, d := range r.Detaching {
		if ns, name, ok := strings.Cut(d.Claim, "/"); d.Claim != "" &&
			(!ok || ns == "" || name == "" || strings.Contains(name, "/")) {
			return nil
		}
		out = append(out, d.Claim)
	}
	return out
}

// VolumeClaim returns the name of the claim, in the pod's namespace, behind one of the pod's volumes. ok is false if
// the volume is not a claim.
func VolumeClaim(p *corev1.Pod, v corev1.Volume) (name string, ok bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, true
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name, true
	default:
		return "", false
	}
}

// VolumeClaims returns the claims that a pod uses, as namespace/name. They are all that the pod uses of what is
// attached to nodes, unless sure is false: a volume that names a disk itself, or one of an unknown kind, may belong to
// any claim.
func VolumeClaims(p *corev1.Pod) (claims []string, sure bool) {
	sure = true
	for _, v := range p.Spec.Volumes {
		if name, ok := VolumeClaim(p, v); ok {
			claims = append(claims, p.Namespace+"/"+name)
		} else if !neverAttached(v.VolumeSource) {
			sure = false
		}
	}
	return claims, sure
}

// neverAttached reports whether Kubernetes attaches the volume to no node: it is made on the node, or mounted over the
// network. An inline CSI volume of a pod is one: the kubelet asks its driver to mount it, and nothing attaches it.
func neverAttached(v corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.HostPath != nil || v.CSI != nil || v.Image != nil || v.NFS != nil
}

// OtherVolume returns the name of a volume of the pod that is no claim's and may keep data outside of the pod; "" if
// there is none.
func OtherVolume(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		s := v.VolumeSource
		if _, ok := VolumeClaim(p, v); !ok && s.EmptyDir == nil && s.ConfigMap == nil && s.Secret == nil &&
			s.DownwardAPI == nil && s.Projected == nil && s.Image == nil {
			return v.Name
		}
	}
	return ""
}

// FreeOf reports whether a pod certainly uses none of the claims in of. claims and sure are what VolumeClaims returned
// for the pod.
func FreeOf(claims []string, sure bool, of []string) bool {
	return sure && !slices.ContainsFunc(claims, func(c string) bool { return slices.Contains(of, c) })
}
