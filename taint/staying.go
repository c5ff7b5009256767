package taint

import (
	"fmt"
	"slices"
	"strings"
)

// Staying are the pods that a fence leaves on the node although a user may expect that they move. The zero value is
// none.
type Staying struct {
	Pods []StayingPod `json:"pods,omitempty"` // the first few
	More int          `json:"more,omitempty"` // how many others stay
}

// StayingPod is one of them.
type StayingPod struct {
	Pod    string    `json:"pod"` // namespace/name
	Why    Exemption `json:"why"`
	Claims []string  `json:"claims,omitempty"` // the first few claims whose volumes no other node can use meanwhile
	First  bool      `json:"first,omitempty"`  // evictFirst selects it, and has no effect on it
	// Finalizer keeps the pod, which was deleted; "": it was not.
	Finalizer string `json:"finalizer,omitempty"`
}

// Bounds of Staying: the users who create pods decide how many there are.
const (
	MaxStaying       = 3
	MaxStayingClaims = 2
)

// limit returns the pods within the bounds: a Node's kubelet can write the record.
func (s Staying) limit() Staying {
	if more := len(s.Pods) - MaxStaying; more > 0 {
		s.Pods, s.More = s.Pods[:MaxStaying], max(s.More, 0)+more
	}
	for i := range s.Pods {
		s.Pods[i].Claims = s.Pods[i].Claims[:min(len(s.Pods[i].Claims), MaxStayingClaims)]
	}
	return s
}

// String names the pods and says why they stay; "" for none.
func (s Staying) String() string {
	if len(s.Pods) == 0 {
		return ""
	}
	names := make([]string, len(s.Pods))
	for i, p := range s.Pods {
		names[i] = p.String()
	}
	all, more := strings.Join(names, ", "), ""
	if s.More > 0 {
		more = fmt.Sprintf(" and %d more", s.More)
	}
	if len(s.Pods)+s.More == 1 {
		return "1 pod stays: " + all
	}
	return fmt.Sprintf("%d pods stay: %s%s", len(s.Pods)+s.More, all, more)
}

// Advice returns one to three sentences for a person about the pods of a node that was fenced; "" for none.
func (s Staying) Advice() string {
	if len(s.Pods) == 0 {
		return ""
	}
	advice := ""
	held := func(p StayingPod) bool { return p.Finalizer != "" }
	if slices.ContainsFunc(s.Pods, func(p StayingPod) bool { return !held(p) }) {
		advice += " Delete what is to run elsewhere."
	}
	if slices.ContainsFunc(s.Pods, held) {
		advice += " Find out who set the finalizers."
	}
	return s.String() + "." + advice
}

// String names the pod and says why it stays.
func (p StayingPod) String() string { return p.Pod + " (" + p.Reason() + ")" }

// Reason says why the pod stays, and what that keeps from working.
func (p StayingPod) Reason() string {
	if p.Finalizer != "" {
		return "deleted; finalizer " + p.Finalizer + " keeps it"
	}
	text := p.Why.Describe()
	if len(p.Claims) > 0 {
		text += "; keeps the volume of claim " + strings.Join(p.Claims, ", ")
	}
	if p.First {
		text += "; evictFirst has no effect on it"
	}
	return text
}
