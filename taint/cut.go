package taint

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CutAnnotation is on an object that this process read, and of which it did not keep all that it reads otherwise: the
// parts that it names, such as spec.volumes, were too large. It is never written. Clients drop one that others wrote.
const CutAnnotation = "forcefence.io/cut"

// CutParts returns what was not kept of the object; "" if all that is read was.
func CutParts(o metav1.Object) string { return o.GetAnnotations()[CutAnnotation] }

// IsCut reports whether the part of the object was cut.
func IsCut(o metav1.Object, part string) bool {
	for one := range strings.SplitSeq(CutParts(o), ",") {
		if one == part {
			return true
		}
	}
	return false
}
