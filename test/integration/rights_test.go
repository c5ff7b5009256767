package integration

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/forcefence/forcefence/test/kit"
)

// installedIn is the namespace of deploy's manifests.
const installedIn = "forcefence-system"

// installed applies deploy's manifests with these components, in which a user has put other words in the place of some
// (old, new, ...), and a rule of the user's own. The settings make a process run with the rights that they grant: start
// fails the test if it is refused anything. The policies stay in the cluster, so it is one of the test's own.
func (w *world) installed(set settings, components []string, rule string, words ...string) settings {
	w.t.Helper()
	text := w.kubectl("kustomize", kit.Overlay(w.t, []string{"base"}, components, nil))
	w.kubectlApply(strings.NewReplacer(words...).Replace(text) + rule)
	set.Namespace, set.Kubeconfig = installedIn, filepath.Join(w.dir, "account.kubeconfig")
	kit.Must(w.t, w.WriteKubeconfig(set.Kubeconfig, "system:serviceaccount:"+installedIn+":forcefence",
		"system:serviceaccounts"))
	return set
}

// storageRule lets the controller use a storage system's own resources.
func storageRule(group, resources, verbs string) string {
	return fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: forcefence-storage}
rules: [{apiGroups: [%s], resources: [%s], verbs: [%s]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: forcefence-storage}
subjects: [{kind: ServiceAccount, name: forcefence, namespace: %s}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: forcefence-storage}
`, group, resources, verbs, installedIn)
}
