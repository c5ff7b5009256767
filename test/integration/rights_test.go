package integration

import (
	"path/filepath"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	installedIn = "forcefence-system" // namespace of the chart's release
	chart       = "../../deploy/helm/forcefence"
)

// installed applies what the chart renders with these values, without pods. The settings make a process run with the
// rights that they grant: start fails the test if it is refused anything. The policies stay in the cluster, so it is
// one of the test's own.
func (w *world) installed(set settings, values string) settings {
	w.t.Helper()
	text, err := cluster.RenderChart(w.ctx, chart, "controller: {replicas: 0}\nhook: {enabled: false}\n"+values)
	kit.Must(w.t, err)
	w.kubectl("create", "namespace", installedIn)
	w.kubectlApply(text)
	set.Namespace, set.Kubeconfig = installedIn, filepath.Join(w.dir, "account.kubeconfig")
	kit.Must(w.t, w.WriteKubeconfig(set.Kubeconfig, "system:serviceaccount:"+installedIn+":forcefence",
		"system:serviceaccounts"))
	return set
}
