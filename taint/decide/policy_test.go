package decide

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

// accepted is a node whose machine is on, and a policy that ends its pods with a volume of the driver.
func accepted(t *testing.T) *course {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode = 0
	c.look.Taints = append(c.look.Taints,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
	c.facts.Policies = []policy.Policy{
		{Name: "p", When: policy.NotReady, Owners: []string{"Deployment"}, Drivers: []string{"csi"},
			WithoutProof: policy.AcceptDuplicates}}
	c.look.Unproven = []taint.Unproven{
		{Policy: "p", WithoutProof: string(policy.AcceptDuplicates), NodeUID: c.look.UID, Since: c.look.ReadySince}}
	c.pods = []action.Pod{
		{Name: "mine", UID: "mine", Tolerations: fiveMinutes, Claims: true,
			Owner: action.Owner{Kind: "ReplicaSet", Name: "r"}}, {Name: "other", UID: "other", Claims: true}}
	c.volumes["mine"] = []action.Volume{{PV: "v", Driver: "csi"}}
	return c
}

// fiveMinutes is what Kubernetes gives every pod: its own eviction is far away.
var fiveMinutes = func() []corev1.Toleration {
	five := int64(300)
	return []corev1.Toleration{
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &five}}
}()

// policyStep is the next step after the machine said On, with the owners known.
func (c *course) policyStep() action.Decision {
	c.t.Helper()
	return c.policyStepAfter(on)
}

// policyStepAfter is the next step after the machine said that.
func (c *course) policyStepAfter(said providers.PowerState) action.Decision {
	c.t.Helper()
	for range 20 {
		s := c.node.Next(c.now, c.fleet)
		switch {
		case act(s) == "AskDevices":
			c.answer(said)
		case act(s) == "ReadNode":
			c.see()
		case act(s) == "ListPods":
			c.node.Apply(c.now, c.fleet, PodsListed{Pods: slices.Clone(c.pods)})
		case act(s) == "ListAttachments":
			c.node.Apply(c.now, c.fleet, AttachmentsListed{Attachments: c.cached})
		case act(s) == "ListAttachments live":
			c.asked = append(c.asked, "attachments")
			c.node.Apply(c.now, c.fleet, AttachmentsListed{Attachments: c.live, Live: true})
		case act(s) == "ReadAwaitedClaims":
			c.asked = append(c.asked, "who waits for "+s.Action.(action.ReadAwaitedClaims).Pods[0].Name)
			c.node.Apply(c.now, c.fleet, AwaitedClaimsRead{Claims: c.waiting})
		case act(s) == "ReadOwners":
			of := map[string]action.Owner{}
			for _, p := range s.Action.(action.ReadOwners).Pods {
				c.asked = append(c.asked, "owner of "+p.Name)
				of[p.UID] = action.Owner{Kind: "Deployment", Name: "d", Known: true}
			}
			c.node.Apply(c.now, c.fleet, OwnersRead{ByPod: of})
		case act(s) == "ReadStorageSetting":
			c.asked = append(c.asked, "rival")
			c.node.Apply(c.now, c.fleet, StorageSettingRead{Why: c.rival})
		case act(s) == "ReadVolumes":
			of := map[string][]action.Volume{}
			for _, p := range s.Action.(action.ReadVolumes).Pods {
				c.asked = append(c.asked, "volumes of "+p.Name)
				of[p.UID] = c.volumes[p.UID]
			}
			c.node.Apply(c.now, c.fleet, VolumesRead{ByPod: of})
		default:
			return s
		}
	}
	c.t.Fatal("20 steps without an act")
	return action.Decision{}
}

// While the fence waits, a policy reads what it needs and no more, ends its pods, and deletes them.
func TestPolicyHasItsTurn(t *testing.T) {
	c := accepted(t)
	s := c.policyStep()
	if act(s) == "SetPoweredOnCondition" { // the machine is on: the condition comes first
		c.node.Apply(c.now, c.fleet, ActionDone{})
		c.look.PoweredOn = true
		s = c.policyStep()
	}
	if act(s) != "EndPods" || len(action.PodsOf(s.Action)) != 1 || action.PodsOf(s.Action)[0].Name != "mine" ||
		action.PolicyOf(s.Action) != "policy p, without proof: accept-duplicates" {
		t.Fatalf("got %s of %v for %q, want the pod of the policy to be ended in its name", act(s),
			action.PodsOf(s.Action), action.PolicyOf(s.Action))
	}
	if want := []string{"owner of mine", "volumes of mine"}; !slices.Equal(c.asked, want) {
		t.Errorf("reads: got %v, want %v", c.asked, want)
	}
	if got := c.node.pods.pods[0].Owner; got.Kind != "Deployment" || got.Direct != "ReplicaSet" {
		t.Errorf("owner: got %+v, want the Deployment, by its ReplicaSet", got)
	}
	if h := c.node.lastActionHolds(c.now); h != HoldYes {
		t.Errorf("at once: got hold %d, want yes", h)
	}
	if h := c.node.lastActionHolds(c.now.Add(proof.TTL + time.Second)); h != HoldNo {
		t.Errorf("on an old list: got hold %d, want no", h)
	}
	for _, tc := range []struct{ takes, holds time.Duration }{
		{4900 * time.Millisecond, 9900 * time.Millisecond},
		{20 * time.Second, 2 * proof.TTL},
	} {
		node, sent := c.node, c.now.Add(time.Millisecond)
		a := providers.Answer{Observation: providers.Observation{At: sent}, Got: sent.Add(tc.takes)}
		node.Apply(a.Got, c.fleet, DevicesAnswered{Answers: []providers.Answer{a}})
		if in, over := node.lastActionHolds(node.lastReadAt.Add(tc.holds)), node.lastActionHolds(
			node.lastReadAt.Add(tc.holds+1)); in != HoldYes || over != HoldNo {
			t.Errorf("after a question of %s: got hold %d for %s, then %d; want yes, no", tc.takes, in, tc.holds, over)
		}
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
	if c.idles() {
		t.Error("an ended pod is not owed its deletion")
	}
	c.pods[0].Terminal, c.pods[0].Tombstone = true, true
	c.look.Ready = corev1.ConditionTrue // it is back: what was ended is deleted all the same
	c.fleet.ApplyLease("n1", "2", 0, c.now)
	c.look.LeaseRV = "2"
	s = c.policyStep()
	for act(s) == "SetPoweredOnCondition" {
		c.node.Apply(c.now, c.fleet, ActionDone{})
		c.look.PoweredOn = false
		s = c.policyStep()
	}
	if act(s) != "DeletePods" || len(action.PodsOf(s.Action)) != 1 || c.node.lastActionHolds(c.now) != HoldYes {
		t.Fatalf("got %s of %v, want the ended pod to be deleted", act(s), action.PodsOf(s.Action))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
	c.pods = c.pods[1:]
	if s = c.policyStep(); act(s) != "NoAction" || !c.idles() {
		t.Errorf("got %s, owed %t; want nothing left to do", act(s), !c.idles())
	}
}

// The Node names a policy before the first of its pods is ended, and the node is looked at again between the two.
func TestPolicyIsAnnounced(t *testing.T) {
	c := accepted(t)
	c.look.Unproven, c.look.PoweredOn = nil, true
	s := c.policyStep()
	if act(s) != "AnnouncePolicy" || action.PolicyOf(s.Action) != "" || len(action.PodsOf(s.Action)) != 1 ||
		s.Detail != "policy p, without proof: accept-duplicates" {
		t.Fatalf("got %s of %v, %q; want the policy and its word announced", act(s), action.PodsOf(s.Action), s.Detail)
	}
	c.node.Apply(c.now, c.fleet, ActionDone{})
	if s := c.node.Next(c.now, c.fleet); act(s) != "ReadNode" {
		t.Errorf("then: got %s, want a look", act(s))
	}
	if err := json.Unmarshal([]byte(s.Action.(action.AnnouncePolicy).Note), &c.look.Unproven); err != nil {
		t.Fatal(err)
	}
	if s := c.policyStep(); act(s) != "EndPods" {
		t.Errorf("once announced: got %s, want the pod to be ended", act(s))
	}
}

// A setting of the storage's own that does the same is read on each look, right before the act, and keeps the policy
// from it.
func TestPolicyYields(t *testing.T) {
	c := accepted(t)
	c.facts.Policies[0].Yields, c.look.PoweredOn, c.rival = true, true, "on"
	for i := range 2 {
		s := c.policyStep()
		if act(s) != "Wait" || s.PolicyBlock != (action.PolicyBlock{Why: reason.PolicyYields, Detail: "policy p: on"}) {
			t.Fatalf("got %s, aside %v; want it to wait and to say why", act(s), s.PolicyBlock)
		}
		if want := slices.Repeat([]string{"owner of mine", "volumes of mine", "rival"}, i+1); !slices.Equal(c.asked,
			want) {
			t.Errorf("reads: got %v, want %v", c.asked, want)
		}
	}
	c.rival = ""
	if s := c.policyStep(); act(s) != "EndPods" || s.PolicyBlock != (action.PolicyBlock{}) {
		t.Errorf("with the setting off: got %s, aside %v, want the pod to be ended", act(s), s.PolicyBlock)
	}
}

// Attachments are deleted after a list of the API server's and on no old one, once, and not on a node that is back.
func TestPolicyDetaches(t *testing.T) {
	at := func(c *course) action.Decision {
		s := c.policyStep()
		for act(s) == "SetPoweredOnCondition" {
			c.node.Apply(c.now, c.fleet, ActionDone{})
			c.look.PoweredOn = !c.look.PoweredOn
			s = c.policyStep()
		}
		return s
	}
	detaching := func() *course {
		c := accepted(t)
		c.facts.Policies = []policy.Policy{
			{Name: "p", When: policy.NotReady, Owners: []string{"ReplicaSet"}, Drivers: []string{"csi"}, Replaced: true,
				Keep: true, Detach: true,
				WithoutProof: policy.AcceptDuplicates}}
		c.pods[0].Deleting, c.pods[0].DeleteAt, c.pods[1].Claims = true, c.now.Add(time.Hour).Wall, false
		c.volumes["mine"] = []action.Volume{{PV: "v", Claim: "data", Driver: "csi"}}
		c.live = []action.Attachment{{Name: "va", UID: "u-va", PV: "v", Attacher: "csi"}}
		c.cached = []action.Attachment{{Name: "of before", UID: "x", PV: "v", Attacher: "csi"}}
		return c
	}
	c := detaching()
	if s := at(c); action.PolicyOf(s.Action) != "" {
		t.Fatalf("no pod waits: got %s of %v", act(s), action.PodsOf(s.Action))
	}
	c.waiting = map[string]bool{"/data": true}
	s := at(c)
	if act(s) != "EndPods" || len(action.PodsOf(s.Action)) != 1 || c.node.lastActionHolds(c.now) != HoldYes {
		t.Fatalf("one waits: got %s of %v, want the pod ended", act(s), action.PodsOf(s.Action))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
	c.pods[0].Terminal, c.pods[0].Tombstone, c.asked = true, true, nil
	c.now = c.now.Add(3 * time.Second) // the fence looks for work again, in the cache
	s = at(c)
	if act(s) != "DeleteAttachments" || len(action.AttachmentsOf(s.Action)) != 1 ||
		action.AttachmentsOf(s.Action)[0].Name != "va" ||
		action.PolicyOf(s.Action) != "policy p, without proof: accept-duplicates" {
		t.Fatalf("ended: got %s of %v for %q, want the attachment that was listed live", act(s),
			action.AttachmentsOf(s.Action), action.PolicyOf(s.Action))
	}
	if want := []string{"attachments"}; !slices.Equal(c.asked, want) {
		t.Errorf("reads: got %v, want %v", c.asked, want)
	}
	if h := c.node.lastActionHolds(c.now); h != HoldYes {
		t.Errorf("at once: got hold %d, want yes", h)
	}
	if h := c.node.lastActionHolds(c.now.Add(proof.TTL + time.Second)); h != HoldNo {
		t.Errorf("on an old list: got hold %d, want no", h)
	}
	c.node.lastReadAt = c.now.Add(61 * time.Second)
	if h := c.node.lastActionHolds(c.now.Add(61 * time.Second)); h != HoldNo {
		t.Errorf("on an old look, after a list that took its time: got hold %d, want no", h)
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"u-va": action.Failed}})
	if s = at(c); action.PolicyOf(s.Action) != "" {
		t.Errorf("refused: got %s at once, want it to rest", act(s))
	}
	c.now = c.now.Add(5 * time.Second)
	if s = at(c); act(s) != "DeleteAttachments" {
		t.Errorf("refused, later: got %s", act(s))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"u-va": action.Accepted}})
	c.live = nil
	if s = at(c); action.PolicyOf(s.Action) != "" || !c.idles() {
		t.Errorf("deleted: got %s of %v, owed %t, want the pod kept", act(s), action.PodsOf(s.Action), !c.idles())
	}

	c = detaching() // a new leader, and the node comes back
	c.pods[0].Terminal, c.pods[0].Tombstone = true, true
	said := c.look.Unproven
	c.look.Unproven = nil
	if s = at(c); act(s) != "AnnouncePolicy" || len(action.AttachmentsOf(s.Action)) != 1 {
		t.Errorf("another process' tombstone, not announced: got %s of %v", act(s), action.AttachmentsOf(s.Action))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{})
	c.look.Unproven = said
	if s = at(c); act(s) != "DeleteAttachments" {
		t.Errorf("another process' tombstone: got %s", act(s))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Withheld: true})
	c.look.Ready, c.look.LeaseRV = corev1.ConditionTrue, "2"
	c.fleet.ApplyLease("n1", "2", 0, c.now)
	if s = at(c); action.PolicyOf(s.Action) != "" {
		t.Errorf("the node is back: got %s", act(s))
	}
}

// No policy acts on a node that is excluded, or marked, or while every other node looks dead.
func TestPolicyStaysOut(t *testing.T) {
	for name, change := range map[string]func(*course){
		"excluded": func(c *course) { c.facts.Excluded = "maintenance" },
		"marked": func(c *course) {
			rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test",
				Since: c.now.Wall}.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
			c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1", Effect: corev1.TaintEffectNoSchedule}
		},
		"all others dead": func(c *course) { c.now = c.now.Add(2 * time.Minute); c.fleet.Tick(c.now) },
	} {
		c := accepted(t)
		change(c)
		for range 5 {
			s := c.policyStep()
			if action.PolicyOf(s.Action) != "" {
				t.Errorf("%s: got %s of %v by a policy, want none", name, act(s), action.PodsOf(s.Action))
			}
			if act(s) != "Wait" && act(s) != "NoAction" {
				c.node.Apply(c.now, c.fleet, ActionDone{})
			}
			c.now = c.now.Add(time.Second)
		}
	}
}

// Policies wait, as power-offs do, while fewer than half of all nodes are heard or one of the node's failure domains is
// lost. They read nothing for that, say why, and go on afterwards. What they ended before is deleted all the same.
func TestPoliciesWaitInAStorm(t *testing.T) {
	zone := func(c *course, names ...string) {
		for _, name := range names {
			c.fleet.ApplyLook(taint.Look{
				Exists: true, Name: name, UID: name, ResourceVersion: "1", Ready: corev1.ConditionTrue,
				Labels: map[string]string{"topology.kubernetes.io/zone": "a"},
			}, c.now)
		}
		c.look.Labels = map[string]string{"topology.kubernetes.io/zone": "a"}
	}
	// silence lets time pass in which only these nodes are heard.
	silence := func(c *course, d time.Duration, heard ...string) {
		c.heard = heard
		c.pass(d)
	}
	for _, tc := range []struct {
		name  string
		storm func(c *course)
		want  string // part of the reported reason; "": the policy acts
	}{
		{"this node alone", func(c *course) { zone(c, "p1"); silence(c, time.Minute, "p1", "p2", "p3") }, ""},
		{"one of three others is heard", func(c *course) { silence(c, time.Minute, "p1") },
			"fewer than half of the nodes renew their Leases"},
		{"no node is heard", func(c *course) { silence(c, time.Minute) }, "no other node renews its Lease"},
		{"the only other node is silent, and this one beats", func(c *course) {
			c.fleet.RemoveNode("p2", c.now)
			c.fleet.RemoveNode("p3", c.now)
			silence(c, time.Minute, "n1")
			c.look.LeaseRV = c.now.Wall.Format("150405.000000")
		}, "no other node renews its Lease"},
		{"most of its zone fell silent at once", func(c *course) {
			zone(c, "n1", "p1")
			for _, rv := range []string{"8", "9"} { // the first may be older than the silence before it
				silence(c, 10*time.Second, "p2", "p3")
				c.fleet.ApplyLease("n1", rv, 0, c.now)
				c.fleet.ApplyLease("p1", rv, 0, c.now)
			}
			c.look.LeaseRV = "9"
			silence(c, time.Minute, "p2", "p3")
		}, "2 of 2 nodes of topology.kubernetes.io/zone=a fell silent"},
	} {
		c := accepted(t)
		c.look.PoweredOn = true
		tc.storm(c)
		s := c.policyStep()
		if tc.want == "" {
			if act(s) != "EndPods" || s.PolicyBlock != (action.PolicyBlock{}) {
				t.Errorf("%s: got %s, aside %v; want the pod to be ended", tc.name, act(s), s.PolicyBlock)
			}
			continue
		}
		told := s.PolicyBlock.Why == reason.PolicyWaits && strings.Contains(s.PolicyBlock.Detail, tc.want)
		if act(s) != "Wait" || action.PolicyOf(s.Action) != "" || !told || s.RequeueAfter > 5*time.Second {
			t.Errorf("%s: got %s after %s, aside %v; want a wait of 5 s that says %q", tc.name, act(s), s.RequeueAfter,
				s.PolicyBlock,
				tc.want)
		}
		if len(c.asked) > 0 {
			t.Errorf("%s: reads %v for a policy that waits", tc.name, c.asked)
		}
		silence(c, 45*time.Second, "p1", "p2", "p3")
		if s = c.policyStep(); act(s) != "EndPods" {
			t.Errorf("%s: got %s once the others are heard, want the pod to be ended", tc.name, act(s))
		}
	}
}

// A process that begins to lead in the middle of a partition takes all nodes for heard. Policies wait until it knows
// which are silent, and nothing is reported of that.
func TestPoliciesWaitForANewLeader(t *testing.T) {
	c := accepted(t)
	c.look.PoweredOn = true
	c.fleet, c.heard = &fleet.Fleet{}, []string{"p1"}
	for _, n := range []string{"n1", "p1", "p2", "p3"} {
		c.fleet.AddNode(n, c.now)
		c.fleet.ApplyLease(n, "1", 0, c.now)
	}
	for begun := c.now; c.now.Sub(begun) < time.Minute; c.pass(time.Second) {
		s := c.policyStep()
		if action.PolicyOf(s.Action) != "" || len(c.asked) > 0 {
			t.Fatalf("after %s: got %s by a policy, reads %v; want it to wait", c.now.Sub(begun), act(s), c.asked)
		}
		switch led, why := c.now.Sub(begun), s.PolicyBlock.Why; {
		case led < 10*time.Second && why != "", led > 20*time.Second && why != reason.PolicyWaits:
			t.Errorf("after %s: got aside %v", led, s.PolicyBlock)
		}
	}
	c.heard = []string{"p1", "p2", "p3"}
	c.pass(20 * time.Second)
	if s := c.policyStep(); action.PolicyOf(s.Action) != "" {
		t.Errorf("got %s by a policy 20 s after the partition", act(s))
	}
	c.pass(20 * time.Second)
	if s := c.policyStep(); act(s) != "EndPods" {
		t.Errorf("got %s 40 s after the partition, want the pod to be ended", act(s))
	}
}

// What a policy saw outlives the node's healthy times, and nothing else of the course does.
func TestRest(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode = 0
	c.look.Taints = append(c.look.Taints,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
	c.facts.Policies = []policy.Policy{{Name: "p", When: policy.BecameNotReady, WithoutProof: policy.AcceptDuplicates}}
	c.pods = []action.Pod{{Name: "a", UID: "a", Tolerations: fiveMinutes}}
	c.look.Unproven = []taint.Unproven{
		{Policy: "p", WithoutProof: string(policy.AcceptDuplicates), NodeUID: c.look.UID, Since: c.look.ReadySince}}
	step := func() action.Decision {
		s := c.policyStep()
		if act(s) == "SetPoweredOnCondition" {
			c.node.Apply(c.now, c.fleet, ActionDone{})
			c.look.PoweredOn = true
			s = c.policyStep()
		}
		return s
	}
	if s := step(); action.PolicyOf(s.Action) != "" {
		t.Errorf("a change without an observation: got %s by %q, want none", act(s), action.PolicyOf(s.Action))
	}
	ready := c.look
	ready.Ready, ready.Got = corev1.ConditionTrue, c.now
	c.node.Apply(c.now, c.fleet, NodeIdle{Look: ready})
	if c.node.Look().Exists {
		t.Error("the look of before is kept")
	}
	if s := step(); act(s) != "EndPods" || action.PolicyOf(s.Action) == "" {
		t.Errorf("a change that was seen: got %s by %q, want the pod to be ended", act(s), action.PolicyOf(s.Action))
	}
}

var healthy = taint.Look{Exists: true, Ready: corev1.ConditionTrue}

// idles reports whether the node is idle once it is healthy: what policies remember may keep it from that.
func (c *course) idles() bool { return c.node.IsIdle(healthy, fleet.View{Heard: true}) }

// A Ready node whose storage is not healthy is not idle, its pods are ended, and nothing is cleared; that follows once
// it is not Ready.
func TestStorageHasItsTurn(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Mode = 0
	preset, _ := policy.PresetOf("storageos")
	rule := preset.Policy
	rule.Name, rule.Storage, rule.Drivers, rule.WithoutProof = "p", "s", []string{"csi"}, policy.StorageFences
	c.facts.Policies = []policy.Policy{rule}
	well, sick := action.Health{Known: true, Healthy: true}, action.Health{Known: true}
	c.pods = []action.Pod{
		{Name: "mine", UID: "mine", Tolerations: fiveMinutes, Claims: true,
			Labels: map[string]string{"storageos.com/fenced": "true"}},
		{Name: "sick", UID: "sick", Tolerations: fiveMinutes, Claims: true,
			Labels: map[string]string{"storageos.com/fenced": "true"}},
	}
	c.volumes["mine"] = []action.Volume{{PV: "v", Driver: "csi", Unique: "csi^v", Health: well}}
	c.volumes["sick"] = []action.Volume{{PV: "w", Driver: "csi", Unique: "csi^w", Health: sick}}
	c.look.InUse = []corev1.UniqueVolumeName{"csi^v", "csi^w"}
	step := func() action.Decision {
		s := c.policyStep()
		for act(s) == "SetPoweredOnCondition" || act(s) == "AnnouncePolicy" {
			c.node.Apply(c.now, c.fleet, ActionDone{})
			if act(s) == "SetPoweredOnCondition" {
				c.look.PoweredOn = s.Action.(action.SetPoweredOnCondition).On
			} else if err := json.Unmarshal([]byte(s.Action.(action.AnnouncePolicy).Note),
				&c.look.Unproven); err != nil {
				t.Fatal(err)
			}
			s = c.policyStep()
		}
		return s
	}
	ready := func(s corev1.ConditionStatus) { c.look.Ready = s }

	ready(corev1.ConditionTrue)
	c.fleet.ApplyLease("n1", "9", 0, c.now)
	c.look.LeaseRV = "9"
	for says, want := range map[action.Health]bool{well: false, sick: true, {}: false} {
		n := Node{}
		n.Apply(c.now, c.fleet,
			StorageReported{Policies: c.facts.Policies, Health: map[string]action.Health{"s": says}})
		if got := n.IsIdle(healthy, fleet.View{Heard: true}); got == want {
			t.Errorf("storage %+v: got idle %t, want %t", says, got, !want)
		}
	}
	if s := step(); act(s) != "NoAction" {
		t.Fatalf("no storage system answers: got %s, want nothing", act(s))
	}
	c.facts.Storage = map[string]action.Health{"s": sick}
	s := step()
	if act(s) != "EndPods" || len(action.PodsOf(s.Action)) != 1 || action.PodsOf(s.Action)[0].Name != "mine" ||
		action.PolicyOf(s.Action) != "policy p, without proof: storage-fences" {
		t.Fatalf("got %s of %v for %q, want the pod with healthy volumes to be ended", act(s), action.PodsOf(s.Action),
			action.PolicyOf(s.Action))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
	c.pods[0].Terminal, c.pods[0].Tombstone = true, true
	if s = step(); act(s) != "DeletePods" {
		t.Fatalf("got %s, want the ended pod to be deleted", act(s))
	}
	c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
	c.pods = c.pods[1:]
	if s = step(); act(s) == "ClearVolumes" {
		t.Fatal("a Ready node's list is cleared")
	}
	if len(s.Notes) != 1 || s.Notes[0].Why != reason.PolicySkipped {
		t.Errorf("notes: got %v, want the pod whose volume is not healthy", s.Notes)
	}
	ready(corev1.ConditionUnknown)
	s = step()
	if a, _ := s.Action.(action.ClearVolumes); !slices.Equal(a.InUse, []corev1.UniqueVolumeName{"csi^w"}) ||
		a.Policy == "" {
		t.Fatalf("not Ready any more: got %+v, want the ended pod's volume to be taken off", s.Action)
	}
	if h := c.node.lastActionHolds(c.now); h != HoldYes {
		t.Errorf("at once: got hold %d, want yes", h)
	}
	if h := c.node.lastActionHolds(c.now.Add(proof.TTL + time.Second)); h != HoldNo {
		t.Errorf("on an old look: got hold %d, want no", h)
	}
	c.node.Apply(c.now, c.fleet, ActionDone{}) // and the kubelet writes it back
	if s = step(); act(s) == "ClearVolumes" {
		t.Errorf("cleared again: %+v", s.Action)
	}
}

// cutOffByStorage is a node whose power-off was announced and sent, and a policy whose storage has cut the node off.
func cutOffByStorage(t *testing.T) *course {
	c := accepted(t)
	c.facts.Mode, c.look.PoweredOn = fence.Fence, true
	p := &c.facts.Policies[0]
	p.WithoutProof, p.FenceClasses = policy.StorageFences, []string{"class"}
	c.look.Unproven[0].WithoutProof = string(policy.StorageFences)
	c.facts.StorageFences = map[string]policy.StorageFence{"p": {State: policy.FenceHolds}}
	rec := taint.Record{ID: "f-n1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test", Since: c.now.Wall,
		PowerOff: true}.EnterPhase(taint.PhasePoweringOff, "", c.now.Wall)
	c.look.Record = &rec
	c.see()
	c.pass(time.Millisecond)
	c.node.fence.PowerOffs.ApplySent(c.now, c.facts.Devices, proof.Move{Turn: true}, nil)
	return c
}

// A policy acts in the middle of a fence if its storage has cut the node off, and on nothing else.
func TestPolicyActsInAFence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		says   providers.PowerState
		change func(*course)
		want   string
	}{
		{"the machine goes off", changing, nil, "EndPods"},
		{"nothing is known", unknown, nil, "EndPods"},
		{"no fence is open", changing, func(c *course) { c.look.Record = nil }, "EndPods"},
		{"the power-off was not confirmed in time", changing, func(c *course) {
			rec := c.look.Record.EnterPhase(taint.PhaseDone, taint.ResultPowerOffFailed, c.now.Wall)
			c.look.Record = &rec
		}, "EndPods"},
		{"off: the fence is faster", off, nil, "SetMark"},
		{"the storage has not answered", changing, func(c *course) {
			c.facts.StorageFences = map[string]policy.StorageFence{"p": {State: policy.FencePending}}
		}, "Wait"},
		{"the storage is not asked", changing, func(c *course) {
			c.facts.Policies[0].WithoutProof, c.facts.Policies[0].FenceClasses = policy.AcceptDuplicates, nil
		}, "Wait"},
		{"its kubelet renews its Lease", changing, func(c *course) {
			c.look.Record, c.look.LeaseRV = nil, "2"
			c.fleet.ApplyLease("n1", "2", 0, c.now)
		}, "Wait"},
		{"its kubelet says that it is not ready", changing, func(c *course) {
			c.look.Record, c.look.LeaseRV, c.look.Ready = nil, "2", corev1.ConditionFalse
			c.fleet.ApplyLease("n1", "2", 0, c.now)
		}, "Wait"},
		{"half of the nodes are silent", changing, func(c *course) {
			c.look.Record, c.heard = nil, nil
			c.pass(2 * time.Minute)
		}, "Wait"},
		{"the policy is for other nodes", changing, func(c *course) {
			c.facts.Policies[0].Nodes = labels.SelectorFromSet(labels.Set{"rack": "z"})
		}, "Wait"},
		{"a person released it", changing, func(c *course) {
			rec := c.look.Record.EnterPhase(taint.PhaseDone, taint.ResultReleased, c.now.Wall)
			c.look.Record = &rec
		}, "Wait"},
		{"a person released an earlier life of it", changing, func(c *course) {
			rec := c.look.Record.EnterPhase(taint.PhaseDone, taint.ResultReleased, c.now.Wall)
			rec.LeaseRV = "0"
			c.look.Record = &rec
		}, "EndPods"},
		{"the node is excluded", changing, func(c *course) { c.look.Record, c.facts.Excluded = nil, "pause" }, "Wait"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cutOffByStorage(t)
			if tt.change != nil {
				tt.change(c)
			}
			s := c.policyStepAfter(tt.says)
			if act(s) != tt.want {
				t.Fatalf("got %s %s, want %s", act(s), s.Reason, tt.want)
			}
			if tt.want == "EndPods" && action.PolicyOf(s.Action) != "policy p, without proof: storage-fences" {
				t.Errorf("got it for %q, want it in the policy's name", action.PolicyOf(s.Action))
			}
		})
	}
}

// A policy's write is not sent any more once the node showed life.
func TestPolicyStopsForLife(t *testing.T) {
	c := cutOffByStorage(t)
	if s := c.policyStepAfter(changing); act(s) != "EndPods" {
		t.Fatalf("got %s, want EndPods", act(s))
	}
	if h := c.node.HoldsFor("mine", c.now, c.view()); h != HoldYes {
		t.Errorf("at once: got hold %d, want yes", h)
	}
	c.fleet.ApplyLease("n1", "7", 0, c.now.Add(time.Second))
	if h := c.node.HoldsFor("mine", c.now.Add(time.Second), c.view()); h != HoldNo {
		t.Errorf("after a heartbeat: got hold %d, want no", h)
	}
}

// A policy that acts in a fence sets no mark. The fence ends as one whose machine did not go off.
func TestPolicyInAFenceSetsNoMark(t *testing.T) {
	c := cutOffByStorage(t)
	var seen []string
	for range 400 {
		s := c.policyStepAfter(changing)
		if seen = append(seen, act(s)); act(s) == "WriteRecord" {
			rec := action.RecordOf(s.Action)
			c.look.Record = &rec
		}
		switch act(s) {
		case "EndPods":
			c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
			c.pods[0].Terminal, c.pods[0].Tombstone = true, true
		case "DeletePods":
			c.node.Apply(c.now, c.fleet, ActionDone{Results: map[string]action.WriteResult{"mine": action.Accepted}})
			c.pods = c.pods[1:]
		case "Wait":
			c.pass(s.RequeueAfter)
		case "WriteRecord":
			c.node.Apply(c.now, c.fleet, ActionDone{})
		default:
			t.Fatalf("got %s %s after %s, want no such act", act(s), s.Reason, seen)
		}
	}
	if rec := c.look.Record; rec.Phase != taint.PhaseDone || rec.Result != taint.ResultPowerOffFailed {
		t.Errorf("got record %s %s, want Done PowerOffFailed", rec.Phase, rec.Result)
	}
	for _, want := range []string{"EndPods", "DeletePods"} {
		if !slices.Contains(seen, want) {
			t.Errorf("got %s, want %s among them", seen, want)
		}
	}
	c.heard = []string{"p1", "p2", "p3"}
	if s := c.policyStepAfter(off); act(s) != "SetMark" && act(s) != "Wait" {
		t.Errorf("once it is proven off: got %s %s, want the mark, or its turn", act(s), s.Reason)
	}
}

// Storage shuts out no more nodes at once than machines may be powered off, and none that a limit protects.
func TestStorageFencesAreLimited(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*course)
		want   string
		why    string
	}{
		"nothing else is under way": {func(*course) {}, "FenceStorage", ""},
		"another's power-off is": {func(c *course) { c.fleet.ReserveTurn("n9", c.now) }, "Wait",
			"1 of at most 1: n9"},
		"another node is shut out": {func(c *course) { c.fleet.ApplyStorageFences("n9", true, c.now) }, "Wait",
			"1 of at most 1: n9"},
		"it runs virtual machines": {func(c *course) {
			c.look.Labels = map[string]string{"kubevirt.io/schedulable": "true"}
		}, "Wait", string(reason.VMHost)},
	} {
		c := accepted(t)
		c.look.PoweredOn = true
		c.facts.Policies[0].FenceClasses, c.facts.Policies[0].WithoutProof = []string{"class"}, policy.StorageFences
		c.look.Unproven[0].WithoutProof = string(policy.StorageFences)
		c.facts.StorageFences = map[string]policy.StorageFence{"p": {State: policy.FenceAbsent}}
		tt.change(c)
		s := c.policyStep()
		if act(s) != tt.want || !strings.Contains(s.PolicyBlock.Detail, tt.why) {
			t.Errorf("%s: got %s (%s), want %s (%s)", name, act(s), s.PolicyBlock.Detail, tt.want, tt.why)
		}
		if busy := c.fleet.View("n8", c.now).Busy == "n1"; busy != (tt.want == "FenceStorage") {
			t.Errorf("%s: the node has a turn: %t", name, busy)
		}
		if tt.want != "FenceStorage" {
			continue
		}
		c.node.Apply(c.now, c.fleet, ActionDone{Withheld: true})
		if got := c.fleet.View("n8", c.now).Busy; got != "" {
			t.Errorf("%s: it was not asked for, and %q has a turn", name, got)
		}
	}
}

// A node that its storage was asked to shut out keeps its turn until a look shows that it is not shut out.
func TestStorageFenceKeepsItsTurn(t *testing.T) {
	c := accepted(t)
	c.look.PoweredOn = true
	c.facts.Policies[0].FenceClasses, c.facts.Policies[0].WithoutProof = []string{"class"}, policy.StorageFences
	c.look.Unproven[0].WithoutProof = string(policy.StorageFences)
	fence := func(s policy.StorageFenceState) {
		c.facts.StorageFences = map[string]policy.StorageFence{"p": {State: s}}
	}
	fence(policy.FenceAbsent)
	if s := c.policyStep(); act(s) != "FenceStorage" {
		t.Fatalf("got %s, want FenceStorage", act(s))
	}
	for _, tt := range []struct {
		name string
		do   func()
		turn bool
	}{
		{"another client writes the Node", func() { c.fleet.ApplyRecord("n1", "999", nil, c.now) }, true},
		{"no answer came", func() {
			c.node.Apply(c.now, c.fleet, ActionDone{Err: errors.New("time-out")})
		}, true},
		{"it cannot be read", func() { fence(policy.FenceRefused); c.see() }, true},
		{"it was made", func() { fence(policy.FencePending); c.see() }, true},
		{"it cannot be read once more", func() { fence(policy.FenceRefused); c.see() }, true},
		{"there is none", func() { fence(policy.FenceAbsent); c.see() }, false},
	} {
		tt.do()
		if turn := c.fleet.View("n8", c.now).Busy == "n1"; turn != tt.turn {
			t.Errorf("%s: the node has a turn: got %t, want %t", tt.name, turn, tt.turn)
		}
	}
}
