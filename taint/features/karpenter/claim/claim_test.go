package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// deadNode is a Node of Karpenter's whose fence ended so.
func deadNode(t *testing.T, result taint.Result, edit func(*taint.Record)) *corev1.Node {
	t.Helper()
	rec := taint.Record{ID: "f1", Phase: taint.PhaseDone, Result: result, NodeUID: "u1", BootID: "b1", LeaseRV: "7",
		By: "p", Since: time.Unix(1, 0).UTC(), At: time.Unix(2, 0).UTC()}
	if edit != nil {
		edit(&rec)
	}
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{poolLabel: "p"},
			Annotations: map[string]string{taint.RecordAnnotation: string(text)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "karpenter.sh/v1", Kind: Kind, Name: "c1", UID: "c-uid"}}},
		Spec: corev1.NodeSpec{ProviderID: "cloud://1"},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "b1"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
}

func setReady(n *corev1.Node, s corev1.ConditionStatus) { n.Status.Conditions[0].Status = s }

// itsClaim is the NodeClaim of deadNode.
var itsClaim = Claim{Name: "c1", UID: "c-uid", ResourceVersion: "7", NodeName: "n1", ProviderID: "cloud://1"}

func answer(state providers.PowerState) providers.Answer {
	return providers.Answer{Observation: providers.Observation{State: state}}
}

// pool is that many nodes, of which some are not Ready.
func pool(t *testing.T, of, dead int) (out []*corev1.Node) {
	t.Helper()
	for i := range of {
		n := deadNode(t, taint.ResultEvicted, nil)
		n.Name = fmt.Sprintf("n%d", i+1)
		if i >= dead {
			setReady(n, corev1.ConditionTrue)
		}
		out = append(out, n)
	}
	return out
}

func TestRefusal(t *testing.T) {
	evicted := func(edit func(*Facts)) Facts {
		f := Facts{Node: deadNode(t, taint.ResultEvicted, nil), Claim: itsClaim, Key: taint.DefaultKey, MayAct: true,
			Power: answer(providers.PowerOff), Pool: pool(t, 1, 1),
			Look: taint.Look{Exists: true, UID: "u1", BootID: "b1", LeaseRV: "7"}}
		if edit != nil {
			edit(&f)
		}
		return f
	}
	record := func(edit func(*taint.Record)) Facts {
		return evicted(func(f *Facts) { f.Node = deadNode(t, taint.ResultEvicted, edit) })
	}
	failed := func(power providers.Answer) Facts {
		return evicted(func(f *Facts) {
			f.Node, f.Power = deadNode(t, taint.ResultPowerOffFailed, nil), power
		})
	}
	const notEnded = "the node shows no fence that has ended"
	for _, tt := range []struct {
		name string
		in   Facts
		want string // a part of it
	}{
		{"evicted and still off", evicted(nil), ""},
		{"its machine does not go off", failed(answer(providers.PowerOn)), ""},
		{"its device is silent after a power-off", failed(providers.Answer{Err: errors.New("silent")}), ""},

		{"no claim owns it", evicted(func(f *Facts) { f.Node.OwnerReferences = nil }), "no NodeClaim owns"},
		{"another API's claim", evicted(func(f *Facts) {
			f.Node.OwnerReferences[0].APIVersion = "a.b/v1"
		}), "no NodeClaim owns"},
		{"another kind", evicted(func(f *Facts) { f.Node.OwnerReferences[0].Kind = "NodePool" }), "no NodeClaim owns"},
		{"the claim is gone", evicted(func(f *Facts) { f.Claim = Claim{} }), "does not exist"},
		{"another claim of that name", evicted(func(f *Facts) { f.Claim.UID = "other" }), "another one of that name"},
		{"another's claim", evicted(func(f *Facts) { f.Claim.NodeName = "n2" }), "of another node"},
		{"another machine", evicted(func(f *Facts) { f.Claim.ProviderID = "cloud://2" }), "another providerID"},
		{"no machine is known", evicted(func(f *Facts) {
			f.Claim.ProviderID, f.Node.Spec.ProviderID = "", ""
		}), "another providerID"},
		{"deleted already", evicted(func(f *Facts) { f.Claim.Deleted = true }), "deleted already"},

		{"no record", evicted(func(f *Facts) { f.Node.Annotations = nil }), notEnded},
		{"a record of another life", record(func(r *taint.Record) { r.NodeUID = "u0" }), notEnded},
		{"a fence in the middle", record(func(r *taint.Record) { r.Phase = taint.PhaseEvicting }), notEnded},
		{"came back", record(func(r *taint.Record) { r.Result = taint.ResultReturned }), notEnded},
		{"lifted", record(func(r *taint.Record) { r.Result = taint.ResultLifted }), notEnded},
		{"marked", evicted(func(f *Facts) {
			f.Node.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Effect: corev1.TaintEffectNoSchedule}}
		}), notEnded},
		{"Ready", evicted(func(f *Facts) { setReady(f.Node, corev1.ConditionTrue) }), notEnded},
		{"the Node is being deleted", evicted(func(f *Facts) { f.Node.DeletionTimestamp = &metav1.Time{} }), notEnded},

		{"mode", evicted(func(f *Facts) { f.MayAct = false }), "mode forbids"},
		{"left alone", evicted(func(f *Facts) { f.LeftAlone = "paused" }), "left alone: paused"},
		{"on again", evicted(func(f *Facts) { f.Power = answer(providers.PowerOn) }), "still off"},
		{"unknown is never off", evicted(func(f *Facts) { f.Power = answer(providers.PowerUnknown) }), "still off"},
		{"an error is never off", evicted(func(f *Facts) { f.Power.Err = errors.New("stale") }), "still off"},
		{"booted since", evicted(func(f *Facts) { f.Look.BootID = "b2" }), "shown life"},
		{"its Lease was renewed since", evicted(func(f *Facts) { f.Look.LeaseRV = "8" }), "shown life"},
		{"went off after all", failed(answer(providers.PowerOff)), "moved first"},
		{"its kubelet posts NotReady", evicted(func(f *Facts) {
			f.Node = deadNode(t, taint.ResultPowerOffFailed, func(r *taint.Record) { r.Heartbeat = time.Unix(2, 0) })
			setReady(f.Node, corev1.ConditionFalse)
			f.Power, f.Look.Heartbeat = answer(providers.PowerOn), time.Unix(1e6, 0)
		}), "shown life"},
		{"on, and the limits refuse a power-off", evicted(func(f *Facts) {
			f.Node, f.Power = deadNode(t, taint.ResultPowerOffFailed, nil), answer(providers.PowerOn)
			f.NoPower = "TooFewHealthy"
		}), "must not be powered off: TooFewHealthy"},
		{"off, and the limits refuse a power-off", evicted(func(f *Facts) { f.NoPower = "TooFewHealthy" }), ""},

		{"one of five", evicted(func(f *Facts) { f.Pool = pool(t, 5, 1) }), ""},
		{"two of five", evicted(func(f *Facts) { f.Pool = pool(t, 5, 2) }), "2 of 5 nodes"},
		{"two of six", evicted(func(f *Facts) { f.Pool = pool(t, 6, 2) }), ""},
		{"a pool that is unknown", evicted(func(f *Facts) { f.Pool = nil }), "0 of 0 nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Refusal(tt.in)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestKeptOn(t *testing.T) {
	node := deadNode(t, taint.ResultEvicted, nil)
	deleted := itsClaim
	deleted.Deleted = true
	with := func(edit func(*Claim)) Claim {
		c := deleted
		edit(&c)
		return c
	}
	const says = "Karpenter is deleting its machine (NodeClaim c1)"
	for _, tt := range []struct {
		name string
		in   Claim
		want string
	}{
		{"it lives", itsClaim, ""},
		{"it is being deleted", deleted, says},
		{"it is gone", Claim{}, ""},
		{"it is another's", with(func(c *Claim) { c.NodeName = "n2" }), ""},
		{"it is another machine's", with(func(c *Claim) { c.ProviderID = "cloud://2" }), ""},
		{"it is another of that name", with(func(c *Claim) { c.UID = "other" }), ""},
	} {
		if got := KeptOn(node, tt.in); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestIsEnded: what a cached Node shows decides whether its machine is asked at all.
func TestIsEnded(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   *corev1.Node
		want bool
	}{
		{"evicted", deadNode(t, taint.ResultEvicted, nil), true},
		{"a power-off failed", deadNode(t, taint.ResultPowerOffFailed, nil), true},
		{"cancelled", deadNode(t, taint.ResultCancelled, nil), false},
		{"no node of Karpenter's", func() *corev1.Node {
			n := deadNode(t, taint.ResultEvicted, nil)
			n.OwnerReferences = nil
			return n
		}(), false},
	} {
		if got := IsEnded(tt.in, taint.DefaultKey); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}
