package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/policies.md from the presets")

// docs/policies.md is the presets for people.
func TestDoc(t *testing.T) {
	const file = "../../docs/policies.md"
	var b strings.Builder
	b.WriteString(`# Policies: pods that are ended without proof

forcefence moves pods when it is proven that their machine is off. A policy ends some of them before, or although nobody can prove it, as
some storage systems and operators do for workloads of their own. It does so while the node is not marked, and stops as soon as a fence of
the node is under way. **Nothing keeps an old copy from running on**: a node that is only cut off from the API server keeps its containers.
So each policy must say ` + "`withoutProof`" + `: ` + "`accept-duplicates`" + `, you accept that a pod may run twice; or ` + "`storage-fences`" + `, the storage cuts such a node
off by itself, so that an old copy cannot write. Every ended pod has an Event that names the policy and that word, and so has the Node.

A policy touches no static pod, no pod of a DaemonSet, no finished pod, no excluded node, and nothing while all nodes look dead at once.
The volumes of the ended pods stay attached until Kubernetes detaches them, six minutes after the node was last heard; with a proof they
are detached at once. Pods of a Node that was deleted are left to Kubernetes, which deletes them within two minutes.

This page is made from the presets in ` + "`taint/policy`" + `. Each is a few lines in [config.example.yaml](../config.example.yaml), and any key of a policy of
one's own may stand beside ` + "`preset`" + ` and wins over it.

| preset | when | which pods | does | trusts |
| --- | --- | --- | --- | --- |
`)
	for _, p := range Presets {
		which := []string{}
		if p.Own {
			which = append(which, "in the controller's namespace")
		}
		if p.Policy.Pods != nil {
			which = append(which, "labelled `"+p.Policy.Pods.String()+"`")
		}
		if len(p.Policy.Drivers) > 0 {
			which = append(which, "with a volume of `"+strings.Join(p.Policy.Drivers, "`, `")+"`")
		}
		if p.Policy.Terminating {
			which = append(which, "past their deletionTimestamp")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", p.Name, p.Policy.When, strings.Join(which, ", "), p.Does, p.Trusts)
	}
	b.WriteString("\n## Longhorn's `nodeDownPodDeletionPolicy`\n\n| value | ends pods of |\n| --- | --- |\n")
	for _, d := range Deletion {
		owners := "nobody; the default"
		if len(d.Owners) > 0 {
			owners = strings.Join(d.Owners, "s and ") + "s"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", d.Value, owners)
	}
	b.WriteString(`
A Deployment's pods are those of its ReplicaSets; those of a ReplicaSet that nobody controls stay. Leave Longhorn's own setting at
` + "`do-nothing`" + `: two that end the same pods hide from each other what happened. Where Deployments count, the controller needs the right to read
ReplicaSets: the component ` + "`longhorn`" + ` of deploy/ grants it.

## NooBaa

The node must become not Ready while this controller leads. One that was not Ready before is left alone, also when a controller takes over:
nothing is replayed. Where the machine is proven off, the node is recovered whole, and the database's volume is detached with the rest.
`)
	got := b.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what the presets say (go test ./taint/policy -update writes it; -file +presets):\n%s", file, diff)
	}
}
