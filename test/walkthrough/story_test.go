//go:build linux

package walkthrough

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

func (w *world) install() {
	w.say(`# Walkthrough

From the install to the uninstall: what was typed, and what was printed. `+"`make walkthrough`"+` typed it and wrote
this page, on %s, with the image that `+"`make image`"+` makes. It ran on a real control plane and four real
nodes: containerd, runc, kubelet and CSI volumes, in namespaces of one Linux machine. The machines' power and their BMCs
(Redfish) are software. Heartbeats are faster than a cluster's own: a silent node is NotReady after 8 seconds, not 50.
There is no registry: each node's containerd was given the image by hand, under two names.`,
		time.Now().UTC().Format(time.DateOnly))

	w.say(`## Install

The values: the image, the mode to begin with, the status page, and which device to ask about which node.`)
	w.types("cat values.yaml")
	w.types(`kubectl create namespace forcefence-system
kubectl -n forcefence-system create secret generic forcefence-bmc \
  --from-file=password=bmc-password --from-file=ca.pem=bmc-ca.pem`)
	w.types("helm install forcefence deploy/helm/forcefence --namespace forcefence-system --values values.yaml")
	w.types(`kubectl -n forcefence-system rollout status deployment/forcefence --timeout=5m
kubectl -n forcefence-node rollout status daemonset/forcefence-node --timeout=5m`)
	w.types("kubectl get pods --all-namespaces --output=wide")
}

func (w *world) look() {
	w.say(`## Look

` + "`kubectl forcefence`" + ` is the same program, in the PATH as kubectl-forcefence.`)
	w.types("kubectl wait --for=condition=forcefence.io/Fenceable node --all --timeout=5m")
	kit.Until(w.t, "each Node says what its hook gives", func() bool {
		out := w.quietly("kubectl get nodes -o " +
			"jsonpath='{.items[*].status.conditions[?(@.type==\"ForcefenceGuard\")].reason}'")
		return len(strings.Fields(out)) == 4
	})
	w.types("kubectl forcefence status")
	w.say("Each node's devices are asked now, with the account that the controller has:")
	w.types("kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence drill")
	w.say("A StatefulSet of two, each with a volume, and what would happen if its node stopped answering:")
	w.quietly("kubectl cordon n2")
	w.types("kubectl apply -f db.yaml")
	w.untilReady()
	w.quietly("kubectl uncordon n2")
	w.types("kubectl get pods --output=wide")
	w.types("kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence explain n1")
}

// openPage opens the status page as a person does, and returns what closes it.
func (w *world) openPage() (stop func()) {
	w.say("## The status page\n\nOne terminal leads to it, another makes a token that opens this page and nothing " +
		"else:")
	forward := "kubectl -n forcefence-system port-forward deploy/forcefence 18082:8082"
	cmd := exec.Command("bash", "-c", "exec "+forward)
	cmd.Dir, cmd.Env = w.dir, w.env
	kit.Must(w.t, kit.StartChild(cmd))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop = func() { _ = cmd.Process.Kill(); <-ended }
	w.t.Cleanup(stop)
	w.typed(forward + "\n" + makeToken)
	kit.Until(w.t, "the page answers", func() bool {
		resp, err := http.Get(page)
		return err == nil && resp.Body.Close() == nil
	})
	return stop
}

// makeToken makes a token that opens the status page.
const makeToken = "" +
	"kubectl -n forcefence-system create token forcefence-status --audience forcefence.io/status --duration 1h"

// pictures takes some, in light and dark, and shows them.
func (w *world) pictures(alt, name, path string) {
	w.t.Helper()
	token := w.quietly(makeToken)
	dir := kit.Browse(w.t, page, strings.TrimSpace(token), name+"="+path)
	for _, scheme := range []string{"light", "dark"} {
		text, err := os.ReadFile(filepath.Join(dir, name+"-"+scheme+".png"))
		kit.Must(w.t, err)
		picture := filepath.Join(kit.Root(w.t), "docs", "reference", "img", "walkthrough-"+name+"-"+scheme+".png")
		kit.Must(w.t, os.WriteFile(picture, text, 0o644))
	}
	w.say(`<picture>
<source media="(prefers-color-scheme: dark)" srcset="img/walkthrough-%[1]s-dark.png">
<img alt="%[2]s" src="img/walkthrough-%[1]s-light.png">
</picture>`, name, alt)
}

func (w *world) powerCut() {
	w.say(`## A machine loses its power

n1's power supply fails; its BMC has power of its own. The storage's controller is stopped for a while, so that there is
time to watch: n1 is marked, its pods are ended, and their volumes are still attached.`)
	kit.Must(w.t, w.site.CSI.Attacher().Pause())
	cut := time.Now()
	w.nodes["n1"].PowerCut()
	rec := w.record("n1", taint.PhaseEvicting)
	evicting := time.Since(cut)
	kit.Until(w.t, "the pods of n1 are ended", func() bool {
		out := w.quietly("kubectl get pods -o jsonpath='{.items[*].spec.nodeName}'")
		return !strings.Contains(out, "n1")
	})
	w.pictures("The fleet on the status page: n1 is being fenced, and its volumes are awaited", "fleet", "/")
	w.types("kubectl forcefence status")
	w.types("kubectl get pods --output=wide")
	kit.Must(w.t, w.site.CSI.Attacher().Resume())
	resumed := time.Now()
	if rec := w.record("n1", taint.PhaseDone); rec.Result != taint.ResultEvicted {
		w.t.Errorf("the fence ended as %s, want %s", rec.Result, taint.ResultEvicted)
	}
	w.untilReady()
	w.say("%.1f seconds after the power cut its pods were being evicted. The storage's controller goes on; %.1f "+
		"seconds later both pods run on n2, with their volumes:",
		evicting.Seconds(), time.Since(resumed).Seconds())
	w.types("kubectl get pods --output=wide")
	w.types("kubectl get fencings.forcefence.io")
	w.types("kubectl forcefence timeline n1")
	name := strings.TrimSpace(
		w.quietly("kubectl get fcg -l forcefence.io/fence-id=" + rec.ID + " -o jsonpath='{.items[0].metadata.name}'"))
	w.pictures("The fence of n1 on the status page: who said what when", "fence", "/fences/"+name)
	w.say("The machine is repaired. forcefence powers no machine on by itself that it did not power off; a person " +
		"may ask it to:")
	w.types("kubectl -n forcefence-system exec deploy/forcefence -- /ko-app/forcefence power on n1 --yes")
	w.types("kubectl wait --for=condition=Ready node/n1 --timeout=5m")
}

func (w *world) release() {
	w.say(`## Release

The kubelet of n2 hangs, and a person believes that the machine is dead. Its BMC says On.`)
	const uids = "kubectl get pods -o jsonpath='{.items[*].metadata.uid}'"
	before := w.quietly(uids)
	kit.Must(w.t, w.nodes["n2"].StopKubelet())
	w.types("kubectl wait --for=condition=Ready=unknown node/n2 --timeout=5m")
	w.types("kubectl taint node n2 forcefence.io/node-shutdown=manual:NoSchedule")
	kit.Until(w.t, "the mark is refused", func() bool {
		return strings.Contains(w.quietly("kubectl get events --field-selector reason=MarkRefusedPoweredOn"), "n2")
	})
	w.types("kubectl get events --field-selector reason=MarkRefusedPoweredOn")
	w.types("kubectl forcefence status")
	w.say("Nothing was evicted, and the mark is taken back:")
	w.types("kubectl forcefence release n2 --yes")
	kit.Until(w.t, "the mark is gone", func() bool {
		return !strings.Contains(w.quietly("kubectl get node n2 -o jsonpath='{.spec.taints}'"), taint.DefaultKey)
	})
	kit.Must(w.t, w.nodes["n2"].StartKubelet())
	w.say("The kubelet runs again:")
	w.types(`kubectl wait --for=condition=Ready node/n2 --timeout=5m
kubectl get pods --output=wide`)
	if after := w.quietly(uids); after != before {
		w.t.Errorf("the pods' UIDs: got %s, want %s as before", after, before)
	}
}

func (w *world) upgrade() {
	w.say(`## Upgrade

This upgrade is to the same image under another name. [Upgrade](../upgrade.md) says what holds between versions, and in
the middle of a fence.`)
	w.types(`helm upgrade forcefence deploy/helm/forcefence --namespace forcefence-system --values values.yaml \
  --set image.tag=v2`)
	w.types(`kubectl -n forcefence-system rollout status deployment/forcefence --timeout=5m
kubectl -n forcefence-node rollout status daemonset/forcefence-node --timeout=5m`)
	w.types("kubectl forcefence status")
}

func (w *world) uninstall() {
	w.say("## Uninstall\n\nIn [this order](../upgrade.md#uninstall): nothing open, the hook, the controller and what " +
		"it wrote on the Nodes, the rest.")
	w.types("kubectl get fcg")
	w.types(`helm upgrade forcefence deploy/helm/forcefence --namespace forcefence-system --values values.yaml \
  --set image.tag=v2,hook.uninstall=true >/dev/null
kubectl -n forcefence-node rollout status daemonset/forcefence-node --timeout=10m`)
	w.types(`kubectl -n forcefence-system scale deployment/forcefence --replicas=0
until kubectl forcefence cleanup --yes; do sleep 5; done`)
	w.types(`helm uninstall forcefence --namespace forcefence-system
kubectl delete namespace forcefence-system
kubectl delete namespace forcefence-node --ignore-not-found
kubectl delete customresourcedefinition fencings.forcefence.io`)
	out := w.types(`kubectl get nodes -o yaml | grep 'forcefence[.]io/' || echo "nothing on the Nodes"
kubectl get clusterroles,validatingadmissionpolicies,flowschemas -l app.kubernetes.io/part-of=forcefence
kubectl get pods --output=wide`)
	if !strings.HasPrefix(out, "nothing on the Nodes\nNo resources found\n") {
		w.t.Errorf("something is left: %s", out)
	}
}
