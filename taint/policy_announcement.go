package taint

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PolicyAnnotation is the Node annotation that names the policies that end pods of the node without proof: a list of
// Unproven. It is for people. The only decision that reads it is whether it must be written again.
const PolicyAnnotation = "forcefence.io/policy"

// Unproven announces that a policy ends pods of a node that may still run. It is written before the first of them is
// ended.
type Unproven struct {
	Policy       string    `json:"policy"`
	WithoutProof string    `json:"withoutProof"` // the policy's own word that allows it
	NodeUID      string    `json:"nodeUID"`
	Since        time.Time `json:"since"` // when the node became not Ready, by its condition; zero if it has none
	At           time.Time `json:"at"`    // when this was written
}

// maxUnproven is how many policies the annotation names: those that acted last.
const maxUnproven = 8

// isSame reports whether both are the same policy with the same word, in the same period of the node being not Ready.
func (u Unproven) isSame(o Unproven) bool {
	return u.Policy == o.Policy && u.WithoutProof == o.WithoutProof && u.NodeUID == o.NodeUID && u.Since.Equal(o.Since)
}

// unprovenOf reads a Node's annotation. It returns nil if it cannot be read; the annotation is then written again.
func unprovenOf(node *corev1.Node) []Unproven {
	var list []Unproven
	if json.Unmarshal([]byte(node.Annotations[PolicyAnnotation]), &list) != nil {
		return nil
	}
	return list
}
