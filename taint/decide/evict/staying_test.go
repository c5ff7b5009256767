package evict

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// tolerant makes a pod one that tolerates everything, without a time.
func tolerant(p *action.Pod) {
	p.Exempt, p.Tolerations = taint.ExemptTolerate, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func ownedBy(kind string) func(*action.Pod) {
	return func(p *action.Pod) { p.Owner = action.Owner{Kind: kind, Name: "owner"} }
}

// usesAlone gives a pod a volume that one node alone can use at a time.
func usesAlone(claim string) func(*action.Pod) {
	return func(p *action.Pod) {
		p.Volumes = append(p.Volumes, action.Volume{PV: "pv-" + claim, Claim: claim, OneNode: true})
	}
}

// TestFindStaying says which pods are named once a fence leaves them on their node.
func TestFindStaying(t *testing.T) {
	for _, tt := range []struct {
		name string
		pods []action.Pod
		want string
	}{
		{"no pod", nil, ""},
		{"a StatefulSet's pod that tolerates everything", []action.Pod{pod("tol-0", tolerant, ownedBy("StatefulSet"))},
			"1 pod stays: a/tol-0 (tolerates the mark)"},
		{"with a volume", []action.Pod{pod("tol-0", tolerant, ownedBy("StatefulSet"), usesAlone("data"))},
			"1 pod stays: a/tol-0 (tolerates the mark; keeps the volume of claim data)"},
		{"with a volume that many nodes can use",
			[]action.Pod{pod("tol-0", tolerant, ownedBy("ReplicaSet"), uses("pv", pvA))},
			"1 pod stays: a/tol-0 (tolerates the mark)"},
		{"with many volumes", []action.Pod{pod("tol-0", tolerant, ownedBy("Job"), usesAlone("x"), usesAlone("y"),
			usesAlone("z"))}, "1 pod stays: a/tol-0 (tolerates the mark; keeps the volume of claim x, y)"},
		{"evictFirst selects it", []action.Pod{pod("csi", tolerant, ownedBy("ReplicaSet"), first)},
			"1 pod stays: a/csi (tolerates the mark; evictFirst has no effect on it)"},
		{"many", []action.Pod{pod("e", tolerant, ownedBy("Job")), pod("d", tolerant, ownedBy("Job")),
			pod("c", tolerant, ownedBy("Job")), pod("b", tolerant, ownedBy("Job")), pod("a")},
			"4 pods stay: a/b (tolerates the mark), a/c (tolerates the mark), a/d (tolerates the mark) and 1 more"},
		{"it moves", []action.Pod{pod("web", ownedBy("StatefulSet"), usesAlone("data"))}, ""},
		{"it has finished", []action.Pod{pod("job", tolerant, ownedBy("Job"), finished)}, ""},
		{"a client deleted it, so the fence deletes it",
			[]action.Pod{pod("t", tolerant, ownedBy("Job"), deleting)}, ""},
		{"Kubernetes evicts it after a while, and a fence removes it", []action.Pod{
			pod("ff", ownedBy("ReplicaSet"), func(p *action.Pod) { p.Exempt = taint.ExemptTolerate })}, ""},
		{"no controller creates it again", []action.Pod{pod("bare", tolerant)}, ""},
		{"no controller creates it again, and it keeps a volume",
			[]action.Pod{pod("bare", tolerant, usesAlone("data"))},
			"1 pod stays: a/bare (tolerates the mark; keeps the volume of claim data)"},
		{"a DaemonSet's", []action.Pod{pod("cni", exempt, ownedBy("DaemonSet"), first)}, ""},
		{"a DaemonSet's that keeps a volume", []action.Pod{pod("cni", exempt, ownedBy("DaemonSet"), usesAlone("data"))},
			"1 pod stays: a/cni (pod of a DaemonSet; keeps the volume of claim data)"},
		{"a static pod's mirror", []action.Pod{pod("etcd", ownedBy("Node"),
			func(p *action.Pod) { p.Exempt = taint.ExemptStatic })}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := FindStaying(tt.pods).String(); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestStayingIsRecorded: the record of a fence that is over has the pods that stay, so that every leader says the same.
// An alert about a volume that does not detach names them and the driver.
func TestStayingIsRecorded(t *testing.T) {
	stays := pods(pod("csi", tolerant, ownedBy("ReplicaSet"), first))
	end, _ := Step(evicting(proven, stays)).Action.(action.RemoveMark)
	if got := end.Record.Staying; len(got.Pods) != 1 || got.Pods[0].Pod != "a/csi" {
		t.Errorf("record: got %+v, want a/csi", got)
	}
	kept := pods(pod("db-0", tomb, forced, held, ownedBy("StatefulSet")),
		pod("job", finished, forced, ownedBy("Job"),
			func(p *action.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }),
		pod("tol-0", tolerant, forced, held, ownedBy("StatefulSet")), pod("bare", tomb, forced, held),
		pod("e", exempt, forced, held, ownedBy("DaemonSet")))
	end, _ = Step(evicting(proven, kept)).Action.(action.RemoveMark)
	if got, want := end.Record.Staying.Advice(), "2 pods stay: a/db-0 (deleted; finalizer example.com/keep keeps it), "+
		"a/tol-0 (deleted; finalizer example.com/keep keeps it). Find out who set the finalizers."; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	back, _ := Step(evicting(heartbeat, stays)).Action.(action.RemoveMark)
	if got := back.Record.Staying; len(got.Pods) != 0 {
		t.Errorf("record of a node that came back: got %+v, want none", got)
	}
	d := Step(onOvertime(Alert, stays))
	for _, want := range []string{"volumes of d are still attached", "a/csi (tolerates the mark; evictFirst"} {
		if !strings.Contains(d.AlertDetail, want) {
			t.Errorf("alert: got %q, want %q", d.AlertDetail, want)
		}
	}
	for name, v := range map[string]View{
		"a question": onOvertime(ForceDetach, stays, saying(off, 1e10)),
		"no proof":   onOvertime(ForceDetach, stays, saying(unknown, 1e8)),
		"a deletion": onOvertime(ForceDetach, stays),
	} {
		if other := Step(v); other.AlertDetail != d.AlertDetail || other.Alert != d.Alert {
			t.Errorf("%s: got %q %q, want the same text: each change of the alert is reported", name, other.Alert,
				other.AlertDetail)
		}
	}
	waits := Step(onOvertime(Alert, stays, saidOn, saying(on, 1e8)))
	asks := Step(onOvertime(Alert, stays, saidOn, saying(on, 2e9)))
	if !action.Is[action.Wait](waits) || !action.Is[action.AskDevices](asks) || waits.Alert != d.Alert ||
		asks.Alert != waits.Alert || asks.AlertDetail != waits.AlertDetail {
		t.Errorf("the machine is on: got %q %q while it waits, %q %q while it asks again, want the same text",
			waits.Alert, waits.AlertDetail, asks.Alert, asks.AlertDetail)
	}
}
