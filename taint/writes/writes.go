// Package writes lists all that forcefence writes on the API server: which right it has for that, what bounds it, and
// how each thing that it leaves behind ends. It is a table, and imports nothing of forcefence. The rights that
// rbac.extraRules of the chart adds, for a storage system's own resources, are the user's and not here. Order is one
// thing that was left behind.
//
// It promises: test/deploy.TestEveryRightToWriteIsListed fails for a right of the chart that has no entry here, and for
// one that no admission policy bounds although the entry names one.
package writes

// Write is one resource that an account of forcefence may write.
type Write struct {
	Resource string   // as RBAC has it, with its group: nodes, machines.cluster.x-k8s.io/status
	Verbs    []string // those that write
	Owner    string   // the key of the configuration that asks for it; "": a plain fence does
	// Policy is the ValidatingAdmissionPolicy that bounds it; "": none does, and Unbounded says why that is right.
	Policy, Unbounded string
	Ends              string    // how what is written ends, or how old it grows
	Standing          *Standing // nil: it orders nothing that goes on while forcefence does not look
}

// Standing is what is known of an order that stays in force until it is taken back.
type Standing struct {
	Metric string // shows it, and how old it is
	// Alert fires by the metric if the order is not taken back. If it is "", Unalerted says who notices.
	Alert, Unalerted string
	Check            string // what `forcefence check` shows of it; "": nothing, because another program shows it
	Cleanup          string // what `forcefence cleanup` does about it
	Release          string // what `forcefence release` of its node does about it
}

// Lacks names what the entry must say and does not; "": nothing.
func (w Write) Lacks() string {
	s := w.Standing
	switch {
	case w.Resource == "" || len(w.Verbs) == 0:
		return "a resource and verbs"
	case w.Ends == "":
		return "how it ends, or how old it grows"
	case s == nil:
	case s.Metric == "":
		return "a metric"
	case (s.Alert == "") == (s.Unalerted == ""):
		return "an alert, or who notices without one"
	case s.Alert != "" && s.Check == "":
		return "what forcefence check shows"
	case s.Cleanup == "" || s.Release == "":
		return "what cleanup and release do about it"
	}
	return ""
}

// order is an order that OrderMetric counts.
func order(cleanup, release string) *Standing {
	return &Standing{Metric: OrderMetric, Alert: "ForcefenceOrderKept", Check: "each, and whether it should have ended",
		Cleanup: cleanup, Release: release}
}

// All is every right to write, by resource.
var All = []Write{
	{Resource: "nodes", Verbs: []string{"patch"}, Policy: "forcefence-controller-node",
		Ends: "the mark at the end of the fence; the record stays",
		Standing: &Standing{Metric: "forcefence_nodes", Alert: "ForcefenceMarkStuck", Check: "each node's state",
			Cleanup: "removes annotations, labels and marks", Release: "removes marks, and closes the record"}},
	{Resource: "nodes/status", Verbs: []string{"patch"}, Policy: "forcefence-controller-node-status",
		Ends: "with the next look; the kubelet writes its part again"},
	{Resource: "pods", Verbs: []string{"delete"}, Policy: "forcefence-controller-pod-delete", Ends: "at once"},
	{Resource: "pods/status", Verbs: []string{"patch"}, Policy: "forcefence-controller-pod-status",
		Ends: "with the pod"},
	{Resource: "volumeattachments.storage.k8s.io", Verbs: []string{"delete"}, Owner: "policies, onDetachTimeout",
		Policy: "forcefence-controller-attachment", Ends: "at once"},
	{Resource: "events.events.k8s.io", Verbs: []string{"create", "patch"},
		Unbounded: "Events decide nothing, and belong to all writers", Ends: "after an hour, by Kubernetes' default"},
	{Resource: "leases.coordination.k8s.io", Verbs: []string{"create"}, Policy: "forcefence-controller-leader",
		Ends: "`cleanup` deletes it"},
	{Resource: "leases.coordination.k8s.io", Verbs: []string{"update"},
		Unbounded: "one Lease by its name, the leader's own", Ends: "`cleanup` deletes it"},
	{Resource: "leases.coordination.k8s.io", Verbs: []string{"patch"}, Owner: "releaseLeases",
		Policy: "forcefence-controller-lease", Ends: "after one second"},
	{Resource: "fencings.forcefence.io", Verbs: []string{"create", "delete"},
		Unbounded: "forcefence's own records, on which nothing is decided", Ends: "after 90 days, 100 of a node"},
	{Resource: "fencings.forcefence.io/status", Verbs: []string{"patch"},
		Unbounded: "forcefence's own records, on which nothing is decided", Ends: "after 90 days, 100 of a node"},
	{Resource: "poddisruptionbudgets.policy", Verbs: []string{"create", "update", "delete"}, Owner: "drain",
		Policy: "forcefence-controller-budget", Ends: "once its pod may go",
		Standing: order("deletes it", "leaves it: it holds drains alone")},
	{Resource: "settings.longhorn.io", Verbs: []string{"patch"}, Owner: "drain.delegate",
		Unbounded: "one setting by its name, in Longhorn's namespace", Ends: "by a person, in Longhorn",
		Standing: &Standing{Metric: "forcefence_drain_delegated",
			Unalerted: "the person whose drain waits, by Longhorn's own message",
			Cleanup:   "leaves it; Longhorn's page shows it", Release: "leaves it: it holds drains alone"}},
	{Resource: "networkfences.csiaddons.openshift.io", Verbs: []string{"create", "patch", "delete"},
		Owner: "policies.networkFenceClasses", Policy: "forcefence-controller-networkfence",
		Ends: "once its machine has booted; if the Node was deleted, by a person",
		Standing: order("refuses while one shuts a node out; deletes the others",
			"has it taken back, unless its success was noted")},
	{Resource: "baremetalhosts.metal3.io", Verbs: []string{"patch"}, Owner: "providers.metal3.powerOff",
		Policy: "forcefence-controller-host", Ends: "with the fence, or once the node shows life or is left alone",
		Standing: order("leaves it: without it the host powers on; the uninstall page has the command",
			"has it taken back")},
	{Resource: "nodeclaims.karpenter.sh", Verbs: []string{"patch", "delete"}, Owner: "karpenter: handOver",
		Policy: "forcefence-controller-nodeclaim", Ends: "with the NodeClaim, which Karpenter ends"},
	{Resource: "forcefenceremediations.remediation.forcefence.io", Verbs: []string{"patch"}, Owner: "remediation",
		Policy: "forcefence-controller-request", Ends: "the finalizer with the mark, the request by its health check",
		Standing: order("leaves it; the uninstall page has the command", "removes the mark, and so the finalizer")},
	{Resource: "forcefenceremediations.remediation.forcefence.io/status", Verbs: []string{"patch"},
		Owner: "remediation", Policy: "forcefence-controller-request", Ends: "with the request"},
	{Resource: "machines.cluster.x-k8s.io/status", Verbs: []string{"patch"}, Owner: "remediation",
		Policy: "forcefence-controller-machine", Ends: "by Cluster API, once the Machine is healthy or replaced"},
	{Resource: "tokenreviews.authentication.k8s.io", Verbs: []string{"create"}, Owner: "listen.status",
		Unbounded: "a question; nothing is stored", Ends: "at once"},
	{Resource: "subjectaccessreviews.authorization.k8s.io", Verbs: []string{"create"}, Owner: "listen.status",
		Unbounded: "a question; nothing is stored", Ends: "at once"},
}
