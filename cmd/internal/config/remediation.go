package config

import (
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/decide/fence"
)

// Remediation says whose ForcefenceRemediation objects are requests. Without namespaces there are none, and nothing is
// watched.
type Remediation struct {
	// the namespaces whose requests permit a power-off in mode onRequest; []: no requests
	Namespaces []string `yaml:"namespaces"`
	// what happens to a Cluster API Machine whose node cannot be fenced; default keepMachine
	OnGiveUp OnGiveUp `yaml:"onGiveUp"`
	// the management cluster of Cluster API, as an absolute path; "": this cluster
	Kubeconfig string `yaml:"kubeconfig"`
}

// Equals reports whether both say the same.
func (m Remediation) Equals(o Remediation) bool {
	return slices.Equal(m.Namespaces, o.Namespaces) && m.OnGiveUp == o.OnGiveUp && m.Kubeconfig == o.Kubeconfig
}

// OnGiveUp says what happens to a Machine of Cluster API whose node cannot be fenced.
type OnGiveUp string

// The answers. Cluster API deletes a Machine that is to be replaced, which deletes its disks on many infrastructures.
const (
	KeepMachine    OnGiveUp = "keepMachine"
	ReplaceMachine OnGiveUp = "replaceMachine"
)

// checkRemediation checks whose requests count, and the modes that need them.
func (r *reader) checkRemediation(c *Config) {
	m, path := &c.Remediation, "remediation"
	seen := map[string]bool{}
	for i, n := range m.Namespaces {
		at := item(path+".namespaces", i)
		r.reportIf(len(validation.IsDNS1123Label(n)) > 0, at, "no namespace can have this name: use a-z, 0-9 and -")
		r.reportIf(seen[n], at, "is listed already")
		seen[n] = true
	}
	oneOf(r, path+".onGiveUp", m.OnGiveUp, KeepMachine, ReplaceMachine)
	r.reportIf(m.Kubeconfig != "" && !filepath.IsAbs(m.Kubeconfig), path+".kubeconfig", "must be an absolute path")
	onRequest := c.hasMode(func(m Mode) bool { return m.is(fence.OnRequest) })
	switch {
	case len(m.Namespaces) > 0 || r.bad[path] || r.bad[path+".namespaces"]:
	case onRequest:
		r.report(path+".namespaces", "missing: mode onRequest powers a machine off only for a request in one of "+
			"them. Name the namespace of NodeHealthCheck's templates, or of Cluster API's Machines")
	case r.given(path+".onGiveUp") || m.Kubeconfig != "":
		r.report(path+".namespaces", "missing: without a namespace no request counts")
	}
	if len(m.Namespaces) > 0 && onRequest && c.AfterFence == LeaveOff {
		r.warn(c, "afterFence", "leaveOff leaves the machine off, so its node stays unhealthy: NodeHealthCheck starts "+
			"its next template at the timeout of this one, also after Succeeded=True. Set powerOn, or make "+
			"forcefence's template the last of escalatingRemediations")
	}
}
