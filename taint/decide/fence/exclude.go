package fence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// PausedAnnotation excludes its Node, as REASON or REASON; until=TIME (RFC 3339). See ParsePause.
const PausedAnnotation = "forcefence.io/paused"

const (
	excludeLabel   = "remediation.medik8s.io/exclude-from-remediation" // medik8s' operators; only "true" counts
	untilParameter = "until="
)

// keepOn are conditions by which a person, or a controller of theirs, says that a node is or will be worked on (F51).
var keepOn = []corev1.NodeConditionType{corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenancePlanned,
	corev1.NodeGracefulNodeShutdownInProgress}

// Pause is a request to begin nothing new. The zero value is none.
type Pause struct {
	Reason   string
	Until    time.Time // zero: no end
	BadUntil string    // an unparsable until-time: it counts as zero
}

// ParsePause reads REASON; until=TIME. Either may be missing. The author meant to stop something, so any text is a
// pause.
func ParsePause(text string) Pause {
	reason, until := strings.TrimSpace(text), ""
	if i := strings.LastIndex(reason, ";") + 1; strings.HasPrefix(strings.TrimSpace(reason[i:]), untilParameter) {
		until = strings.TrimPrefix(strings.TrimSpace(reason[i:]), untilParameter)
		return newPause(strings.TrimSuffix(reason[:i], ";"), until)
	}
	return newPause(reason, until)
}

// newPause returns a pause until a time in RFC 3339; "" means for ever.
func newPause(reason, until string) Pause {
	p := Pause{Reason: strings.TrimSpace(reason)}
	if until = strings.TrimSpace(until); until == "" {
		return p
	}
	at, err := time.Parse(time.RFC3339, until)
	if err != nil {
		p.BadUntil = until
		return p
	}
	p.Until = at
	return p
}

// Annotation returns the pause in the form that ParsePause reads.
func (p Pause) Annotation() string {
	until := p.BadUntil
	if !p.Until.IsZero() {
		until = p.Until.UTC().Format(time.RFC3339)
	}
	// The separator is also written without a time: the reason may end in what looks like one.
	return p.Reason + "; " + untilParameter + until
}

// IsOver reports whether the pause has ended.
func (p Pause) IsOver(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// String returns the pause in words, for a person.
func (p Pause) String() string {
	text := quoteText(p.Reason)
	switch {
	case p.BadUntil != "":
		return text + fmt.Sprintf(", with no end (until=%s is not a time of the form YYYY-MM-DDThh:mm:ssZ)",
			quoteText(p.BadUntil))
	case p.Until.IsZero():
		return text + ", with no end"
	default:
		return text + " until " + p.Until.UTC().Format(time.RFC3339)
	}
}

// ExclusionReason returns "" or why no action may be taken on a live Node, by its annotations, labels and conditions at
// now.
func ExclusionReason(node *corev1.Node, now time.Time) string {
	if text, ok := node.Annotations[PausedAnnotation]; ok {
		if p := ParsePause(text); !p.IsOver(now) {
			return "annotation " + PausedAnnotation + " " + p.String()
		}
	}
	if HasExcludeLabel(node.Labels) {
		return "label " + excludeLabel
	}
	if hasCondition(node, corev1.NodeMaintenanceInProgress) {
		return "condition " + string(corev1.NodeMaintenanceInProgress)
	}
	return ""
}

// HasExcludeLabel reports whether medik8s' label excludes the Node. A label has no end.
func HasExcludeLabel(labels map[string]string) bool { return labels[excludeLabel] == "true" }

// EndedPause returns the Node's own pause if it has ended, for a person; "": it has none, or that is in force. An ended
// pause may never have paused anything: when it was written is not known.
func EndedPause(node *corev1.Node, now time.Time) string {
	text, has := node.Annotations[PausedAnnotation]
	if p := ParsePause(text); has && p.IsOver(now) {
		return p.String()
	}
	return ""
}

// KeepOnReason returns "" or why the machine of a live Node must not be powered off while it is on. These signs may
// outlast their cause: a kubelet or a drain that died in the middle would block the recovery of a machine that is off
// for ever.
func KeepOnReason(node *corev1.Node, cordoned bool) string {
	for _, c := range keepOn {
		if hasCondition(node, c) {
			return "condition " + string(c)
		}
	}
	if cordoned && node.Spec.Unschedulable {
		return "the node is cordoned"
	}
	return ""
}

// vmHostLabel is on every node that KubeVirt may run virtual machines on, with any value. KubeVirt's own handler sets
// it to "false" when its heartbeat is late, as on a node whose kubelet died.
const vmHostLabel = "kubevirt.io/schedulable"

// IsVMHost reports whether the Node's labels are those of a host of KubeVirt. Its kubelet can write this label: on its
// own Node, about its own machine.
func IsVMHost(labels map[string]string) bool {
	_, ok := labels[vmHostLabel]
	return ok
}

// PauseOf returns the pause in a ConfigMap's data, from the keys reason and until. The author meant to stop everything,
// so any text is a pause.
func PauseOf(data map[string]string) Pause { return newPause(data["reason"], data["until"]) }

// maintainer holds the Lease of a node that medik8s' node maintenance has. Its other operators hold it while they
// remediate.
const maintainer = "node-maintenance"

// LeaseName returns the name of the Lease by which medik8s' operators agree on which of them has a node.
func LeaseName(node string) string { return "node-" + node }

const (
	// maxMaintenance is the duration that node maintenance writes into its Leases, and renews. A longer one has another
	// author.
	maxMaintenance = time.Hour
	// maxAhead is how far the clock of the client that renewed it may be ahead.
	maxAhead = 5 * time.Minute
)

// IsUnderMaintenance reports whether node maintenance holds that Lease at now: it was renewed less than its duration
// ago. Any client that can write such a Lease excludes a node, so it has to be renewed every maxMaintenance.
func IsUnderMaintenance(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != maintainer {
		return false
	}
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	age := now.Sub(s.RenewTime.Time)
	return age >= -maxAhead && age < min(time.Duration(*s.LeaseDurationSeconds)*time.Second, maxMaintenance)
}

// ClusterAPI is the API group of Cluster API. Its annotations on a Node name the Node's Machine.
const ClusterAPI = "cluster.x-k8s.io"

// MachineOf returns the names of the Node's Machine and Cluster from Cluster API, and their namespace; empty if there
// are none. The Node's kubelet can write them.
func MachineOf(node *corev1.Node) (namespace, machine, cluster string) {
	a := node.Annotations
	return a[ClusterAPI+"/cluster-namespace"], a[ClusterAPI+"/machine"], a[ClusterAPI+"/cluster-name"]
}

// ClusterAPIExclusion returns "" or why Cluster API's own health checks leave a Machine alone. It checks the
// annotations of the Machine or of its Cluster, with any value, and the Cluster's spec.paused.
func ClusterAPIExclusion(annotations map[string]string, paused bool) string {
	if paused {
		return "spec.paused"
	}
	for _, name := range []string{ClusterAPI + "/paused", ClusterAPI + "/skip-remediation"} {
		if _, ok := annotations[name]; ok {
			return "annotation " + name
		}
	}
	return ""
}

// IsExclusionCondition reports whether ExclusionReason or KeepOnReason reads the condition.
func IsExclusionCondition(c corev1.NodeConditionType) bool {
	return c == corev1.NodeMaintenanceInProgress || slices.Contains(keepOn, c)
}

func hasCondition(node *corev1.Node, condition corev1.NodeConditionType) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
