package taint

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// PolicyAnnotation is the Node annotation that tells in whose name pods of the node are ended without proof: a list of Unproven. It is for
// people: what is decided on it is only whether it must be written once more.
const PolicyAnnotation = "forcefence.io/policy"

// Unproven says that a policy ends pods of a node that may run. It is written before the first of them is ended.
type Unproven struct {
	Policy       string    `json:"policy"`
	WithoutProof string    `json:"withoutProof"` // the word that the policy does it by
	NodeUID      string    `json:"nodeUID"`
	Since        time.Time `json:"since"` // when the node became not Ready, as its condition says; zero where it has none
	At           time.Time `json:"at"`    // when this was written
}

// maxUnproven is how many policies the annotation names, those that were the last to act.
const maxUnproven = 8

// isSame reports the same policy with the same word, in the same time that the node is not Ready.
func (u Unproven) isSame(o Unproven) bool {
	return u.Policy == o.Policy && u.WithoutProof == o.WithoutProof && u.NodeUID == o.NodeUID && u.Since.Equal(o.Since)
}

// unprovenOf reads a Node's annotation. One that cannot be read tells nothing, and is written anew.
func unprovenOf(node *corev1.Node) []Unproven {
	var list []Unproven
	if json.Unmarshal([]byte(node.Annotations[PolicyAnnotation]), &list) != nil {
		return nil
	}
	return list
}
