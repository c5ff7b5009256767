package config

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// LeaseRule names Leases that are released once their holder's machine is proven off. Without rules none is watched.
type LeaseRule struct {
	Namespace string `yaml:"namespace"` // of the Leases; unique
	// the names of Leases; * is any text. In kube-system each name is written out
	Names []string `yaml:"names"`
}

// Equals reports whether both say the same.
func (l LeaseRule) Equals(o LeaseRule) bool {
	return l.Namespace == o.Namespace && slices.Equal(l.Names, o.Names)
}

// checkReleaseLeases checks which Leases may be released. Those of kubelets are their heartbeats. A pattern in
// kube-system could take in Leases that a person did not think of, such as the scheduler's.
func (r *reader) checkReleaseLeases(c *Config) {
	seen := map[string]bool{}
	for i, l := range c.ReleaseLeases {
		at := item("releaseLeases", i)
		r.reportIf(len(validation.IsDNS1123Label(l.Namespace)) > 0, at+".namespace",
			"no namespace can have this name: use a-z, 0-9 and -")
		r.reportIf(l.Namespace == corev1.NamespaceNodeLease, at+".namespace",
			"these Leases are the heartbeats of nodes, and have no other holder")
		r.reportIf(seen[l.Namespace], at+".namespace", "is listed already: write all its names in one list")
		seen[l.Namespace] = true
		r.reportIf(len(l.Names) == 0, at+".names", `missing: the names of Leases, such as [db9c8771.cnpg.io], or ["*"]`)
		for j, n := range l.Names {
			_, err := path.Match(n, "")
			r.reportIf(n == "" || err != nil, item(at+".names", j), "not a name of a Lease, nor a pattern of names")
			r.reportIf(l.Namespace == metav1.NamespaceSystem && strings.ContainsAny(n, `*?[\`), item(at+".names", j),
				"in kube-system each name must be written out: a pattern could take in the Leases of the control plane")
		}
	}
}
