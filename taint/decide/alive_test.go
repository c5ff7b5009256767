package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// signs are what a watch may show of a node that looked dead, and whether it is a sign of life.
var signs = []struct {
	name  string
	shows func(*course)
	life  bool
}{
	{"nothing", func(*course) {}, false},
	{"a heartbeat", func(c *course) { c.fleet.ApplyLease("n1", "77", 0, c.now) }, true},
	{"Ready", func(c *course) { c.watch(func(l *taint.Look) { l.Ready = corev1.ConditionTrue }) }, true},
	{"another boot", func(c *course) { c.watch(func(l *taint.Look) { l.BootID = "b2" }) }, true},
	{"another Node of that name", func(c *course) { c.watch(func(l *taint.Look) { l.UID = "u2" }) }, true},
	{"another label", func(c *course) { c.watch(func(l *taint.Look) { l.Labels = map[string]string{"a": "b"} }) },
		false},
	{"another node's heartbeat", func(c *course) { c.fleet.ApplyLease("p1", "77", 0, c.now) }, false},
}

// watch folds in a changed Node, as the watch of Nodes does.
func (c *course) watch(change func(*taint.Look)) {
	l := c.look
	l.ResourceVersion = "2"
	change(&l)
	c.fleet.ApplyLook(l, c.now)
}

// clearing is a node of whose pods one ended and another waits for stock eviction, with claims that are not read yet.
func clearing(t *testing.T, read time.Duration) *course {
	c := midst(t, taint.PhaseEvicting)
	c.look.InUse = []corev1.UniqueVolumeName{"v"}
	c.pods = []action.Pod{ended("gone"), claims(action.Pod{Namespace: "ns", Name: "waits", UID: "waits"})}
	c.took = read
	c.pass(6 * time.Second)
	added := metav1.NewTime(c.now.Wall)
	c.look.Taints = []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added},
	}
	return c
}

// A device's question is no read. So behind a slow device no look is kept after which a sign of life was seen; without
// one the lists are cleared after one more question.
func TestQuestionIsNoRead(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range signs {
		t.Run(tc.name, func(t *testing.T) {
			c := clearing(t, 250*ms)
			if s := c.next(); act(s) != "AskDevices" {
				t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
			}
			c.answerAfter(4800*ms, off)
			if s := c.next(); act(s) != "AskDevices" || !slices.Equal(c.reads, []string{"ReadVolumes"}) {
				t.Fatalf("got %s (%s) after %v, want a question after the volumes", act(s), s.Reason, c.reads)
			}
			if got := c.node.ReadDuration(); got != 1000*ms {
				t.Errorf("the reads took %s, want 1s", got)
			}
			c.pass(time.Second)
			tc.shows(c)
			c.answerAfter(4800*ms, off)
			s := c.next()
			if looks := slices.Contains(c.reads, "ReadNode"); looks != tc.life || !tc.life && act(s) != "ClearVolumes" {
				t.Errorf("got %s (%s) after %v, want another look: %v", act(s), s.Reason, c.reads, tc.life)
			}
		})
	}
}

// A look is kept for twice the time of its reads and one answer, and for one question before the last read: at most for
// the TTL.
func TestQuestionsKeepALookForTheTTL(t *testing.T) {
	const s = time.Second
	sent := providers.InstantOf(newYear)
	for _, tc := range []struct{ reads, question, holds time.Duration }{
		{2 * s, 0, 9 * s},
		{2 * s, 3 * s, 12 * s},
		{6 * s, 20 * s, 22 * s},
	} {
		n := Node{look: taint.Look{Sent: sent}, readsTook: tc.reads, lastReadAt: sent.Add(tc.reads + tc.question)}
		if in, over := n.keepsLook(sent.Add(tc.holds)), n.keepsLook(sent.Add(tc.holds+1)); !in || over {
			t.Errorf("%+v: kept %v, and %v after that; want true, false", tc, in, over)
		}
	}
}

// Behind a slow device, and behind a slow API server, a sign of life since the look takes another look.
func TestLifeTakesAnotherLook(t *testing.T) {
	const ms = time.Millisecond
	for _, slow := range []struct {
		name        string
		read, takes time.Duration
	}{
		{"the device", 20 * ms, 4900 * ms},
		{"the API server", 500 * ms, 300 * ms},
	} {
		for _, tc := range signs {
			t.Run(slow.name+", "+tc.name, func(t *testing.T) {
				c := midst(t, taint.PhaseEvicting)
				c.pods, c.took = []action.Pod{running("a")}, slow.read
				c.pass(time.Minute)
				if s := c.next(); act(s) != "AskDevices" {
					t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
				}
				tc.shows(c)
				c.answerAfter(slow.takes, off)
				if s := c.next(); slices.Contains(c.reads, "ReadNode") != tc.life || act(s) != "EndPods" {
					t.Errorf("got %s (%s) after %v, want another look: %v", act(s), s.Reason, c.reads, tc.life)
				}
			})
		}
	}
}

// No write of a fence is sent once a sign of life was seen since the look, however fresh the proof.
func TestLifeStopsAFence(t *testing.T) {
	for do, pods := range map[string][]action.Pod{
		"EndPods": {running("a")}, "DeletePods": {ended("a")}, "SetPodsNotReady": {readsReady(exempt(running("a")))},
	} {
		for _, tc := range signs {
			c := midst(t, taint.PhaseEvicting)
			c.pods = pods
			c.upTo(do, off)
			c.stops(t, do+": "+tc.name, tc.shows, tc.life)
		}
	}
	for _, tc := range signs {
		c := clearing(t, time.Millisecond)
		c.upTo("ClearVolumes", off)
		c.stops(t, "ClearVolumes: "+tc.name, tc.shows, tc.life)
	}
}

// stops checks that the step may be sent, and no more after a sign of life.
func (c *course) stops(t *testing.T, what string, shows func(*course), life bool) {
	t.Helper()
	if _, hold := c.node.MaySend("a", c.now, c.view()); hold != HoldYes {
		t.Errorf("%s: before it: got %d, want Yes", what, hold)
	}
	c.now = c.now.Add(time.Millisecond)
	shows(c)
	want := HoldYes
	if life {
		want = HoldNo
	}
	if _, hold := c.node.MaySend("a", c.now, c.view()); hold != want {
		t.Errorf("%s: got %d, want %d", what, hold, want)
	}
}

// What a node that came back is owed is done while it is heard.
func TestLifeHoldsUpNoReturn(t *testing.T) {
	for do, pods := range map[string][]action.Pod{"DeletePods": {ended("a")}, "SparePods": {running("a")}} {
		for _, tc := range signs {
			c := midst(t, taint.PhaseEvicting)
			c.pods, c.look.LeaseRV = pods, "2"
			if s := c.upTo(do, on); !action.NeedsNoProof(s.Action) {
				t.Fatalf("%s is not of the return path", do)
			}
			c.stops(t, do+": "+tc.name, tc.shows, false)
		}
	}
}

// No proof bounds a policy's writes: a sign of life since its look is all that stops them.
func TestLifeStopsAPolicy(t *testing.T) {
	for _, tc := range signs {
		c := accepted(t)
		s := c.policyStep()
		if act(s) == "SetPoweredOnCondition" { // the machine is on: the condition comes first
			c.node.Apply(c.now, c.fleet, ActionDone{})
			c.look.PoweredOn = true
			s = c.policyStep()
		}
		if act(s) != "EndPods" || action.PolicyOf(s.Action) == "" {
			t.Fatalf("got %s (%s), want a policy's tombstone", act(s), s.Reason)
		}
		a := providers.Answer{Observation: providers.Observation{At: c.now}, Got: c.now}
		a.Got = c.now.Add(4800 * time.Millisecond)
		c.node.Apply(a.Got, c.fleet, DevicesAnswered{Answers: []providers.Answer{a}})
		c.stops(t, tc.name, tc.shows, tc.life)
	}
}

// A policy's step that was decided behind a slow API server takes another look after a sign of life.
func TestLifeBehindASlowServerStopsAPolicy(t *testing.T) {
	for _, tc := range signs {
		c := accepted(t)
		c.took = 1500 * time.Millisecond
		s := c.next()
		if act(s) != "AskDevices" {
			t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
		}
		tc.shows(c)
		c.answerAfter(4800*time.Millisecond, on)
		c.node.Next(c.now, c.fleet)
		if looks := act(c.node.lastDecision) == "ReadNode"; looks != tc.life {
			t.Errorf("%s: got %s, want another look: %v", tc.name, act(c.node.lastDecision), tc.life)
		}
	}
}
