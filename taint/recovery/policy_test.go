package recovery

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/evict"
	"github.com/forcefence/forcefence/taint/fleet"
	"github.com/forcefence/forcefence/taint/policy"
	"github.com/forcefence/forcefence/taint/proof"
)

// accepted is a node whose machine is on, and a policy that ends its pods with a volume of the driver.
func accepted(t *testing.T) *course {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode = 0
	c.facts.Policies = []policy.Policy{{Name: "p", When: policy.NotReady, Owners: []string{"Deployment"}, Drivers: []string{"csi"}, WithoutProof: policy.AcceptDuplicates}}
	c.pods = []evict.Pod{{Name: "mine", UID: "mine", Tolerations: fiveMinutes, Claims: true, Owner: evict.Owner{Kind: "ReplicaSet", Name: "r"}}, {Name: "other", UID: "other", Claims: true}}
	c.volumes["mine"] = []evict.Volume{{PV: "v", Driver: "csi"}}
	return c
}

// fiveMinutes is what Kubernetes gives every pod: its own eviction is far away.
var fiveMinutes = func() []corev1.Toleration {
	five := int64(300)
	return []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &five}}
}()

// policyStep is the next step after the machine said On, with the owners told.
func (c *course) policyStep() Step {
	c.t.Helper()
	for range 20 {
		s := c.node.Next(c.now, c.fleet)
		switch {
		case s.Do == Ask:
			c.answer(on)
		case s.Do == Read && s.Read == Life:
			c.see()
		case s.Do == Read && s.Read == Pods:
			c.node.SawPods(slices.Clone(c.pods), c.now)
		case s.Do == Read && s.Read == CachedAttachments:
			c.node.SawAttachments(nil, false, c.now)
		case s.Do == Read && s.Read == Owners:
			of := map[string]evict.Owner{}
			for _, p := range s.Pods {
				c.asked = append(c.asked, "owner of "+p.Name)
				of[p.UID] = evict.Owner{Kind: "Deployment", Name: "d", Known: true}
			}
			c.node.SawOwners(of, c.now)
		case s.Do == Read && s.Read == Volumes:
			of := map[string][]evict.Volume{}
			for _, p := range s.Pods {
				c.asked = append(c.asked, "volumes of "+p.Name)
				of[p.UID] = c.volumes[p.UID]
			}
			c.node.SawVolumes(of, c.now)
		default:
			return s
		}
	}
	c.t.Fatal("20 steps without an act")
	return Step{}
}

// While the fence waits, a policy reads what it needs and no more, ends its pods, and deletes them.
func TestPolicyHasItsTurn(t *testing.T) {
	c := accepted(t)
	s := c.policyStep()
	if s.Do == Condition { // the machine is on: that is told first
		c.node.Did(Outcome{}, c.now, c.fleet)
		c.look.PoweredOn = true
		s = c.policyStep()
	}
	if s.Do != Tombstone || len(s.Pods) != 1 || s.Pods[0].Name != "mine" || s.Policy != "policy p, without proof: accept-duplicates" {
		t.Fatalf("got %s of %v for %q, want the pod of the policy to be ended in its name", s.Do, s.Pods, s.Policy)
	}
	if want := []string{"owner of mine", "volumes of mine"}; !slices.Equal(c.asked, want) {
		t.Errorf("reads: got %v, want %v", c.asked, want)
	}
	if h := c.node.Holds(c.now); h != Yes {
		t.Errorf("at once: got hold %d, want yes", h)
	}
	if h := c.node.Holds(c.now.Add(proof.TTL + time.Second)); h != No {
		t.Errorf("on an old list: got hold %d, want no", h)
	}
	c.node.Did(Outcome{How: map[string]evict.Refusal{"mine": evict.Accepted}}, c.now, c.fleet)
	if !c.node.Owes() {
		t.Error("an ended pod is not owed its deletion")
	}
	c.pods[0].Terminal, c.pods[0].Tombstone = true, true
	c.look.Ready = corev1.ConditionTrue // it is back: what was ended is deleted all the same
	c.fleet.Lease("n1", "2", 0, c.now)
	c.look.LeaseRV = "2"
	s = c.policyStep()
	for s.Do == Condition {
		c.node.Did(Outcome{}, c.now, c.fleet)
		c.look.PoweredOn = false
		s = c.policyStep()
	}
	if s.Do != Delete || len(s.Pods) != 1 || c.node.Holds(c.now) != Yes {
		t.Fatalf("got %s of %v, want the ended pod to be deleted", s.Do, s.Pods)
	}
	c.node.Did(Outcome{How: map[string]evict.Refusal{"mine": evict.Accepted}}, c.now, c.fleet)
	c.pods = c.pods[1:]
	if s = c.policyStep(); s.Do != Leave || c.node.Owes() {
		t.Errorf("got %s, owed %t; want nothing left to do", s.Do, c.node.Owes())
	}
}

// No policy acts on a node that is excluded, or marked, or while every other node looks dead.
func TestPolicyStaysOut(t *testing.T) {
	for name, change := range map[string]func(*course){
		"excluded": func(c *course) { c.facts.Excluded = "maintenance" },
		"marked": func(c *course) {
			rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test", Since: c.now}.Enter(taint.PhaseArmed, "", c.now)
			c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1", Effect: corev1.TaintEffectNoSchedule}
		},
		"all others dead": func(c *course) { c.now = c.now.Add(2 * time.Minute); c.fleet.Tick(c.now) },
	} {
		c := accepted(t)
		change(c)
		for range 5 {
			s := c.policyStep()
			if s.Policy != "" {
				t.Errorf("%s: got %s of %v by a policy, want none", name, s.Do, s.Pods)
			}
			if s.Do != Wait && s.Do != Leave {
				c.node.Did(Outcome{}, c.now, c.fleet)
			}
			c.now = c.now.Add(time.Second)
		}
	}
}

// What a policy saw outlives the node's healthy times, and nothing else of the course does.
func TestRest(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode = 0
	c.facts.Policies = []policy.Policy{{Name: "p", When: policy.BecameNotReady, WithoutProof: policy.AcceptDuplicates}}
	c.pods = []evict.Pod{{Name: "a", UID: "a", Tolerations: fiveMinutes}}
	step := func() Step {
		s := c.policyStep()
		if s.Do == Condition {
			c.node.Did(Outcome{}, c.now, c.fleet)
			c.look.PoweredOn = true
			s = c.policyStep()
		}
		return s
	}
	if s := step(); s.Policy != "" {
		t.Errorf("a change that nobody saw: got %s by %q, want none", s.Do, s.Policy)
	}
	ready := c.look
	ready.Ready, ready.Got = corev1.ConditionTrue, c.now
	c.node.Rest(ready)
	if c.node.Look().Exists {
		t.Error("the look of before is kept")
	}
	if s := step(); s.Do != Tombstone || s.Policy == "" {
		t.Errorf("a change that was seen: got %s by %q, want the pod to be ended", s.Do, s.Policy)
	}
}
