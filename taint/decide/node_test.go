package decide

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// course is one node's course, and what it may read: it answers each Read, notes it, and leaves all else to the test.
type course struct {
	t     *testing.T
	now   providers.Instant
	took  time.Duration // of each read
	node  Node
	fleet *fleet.Fleet
	look  taint.Look // what a look sees; its times are filled in
	facts Facts
	heard []string // the nodes whose Leases are renewed while time goes by

	pods         []action.Pod
	volumes      map[string][]action.Volume // of pods with claims, by UID
	cached, live []action.Attachment
	claimed      map[string]string // the claims of PersistentVolumes, where not default/PV
	rival        string            // what keeps policies from ending pods
	waiting      map[string]bool   // claims that pods wait for elsewhere

	reads []string // since the last next
	asked []string // the pods whose volumes were read since then
}

// begin is a node that looks dead in a fleet that is heard. Its machine is to be powered off if it is on.
func begin(t *testing.T, f *fleet.Fleet, name string) *course {
	c := &course{
		t: t, now: providers.InstantOf(newYear), took: time.Millisecond, fleet: f,
		volumes: map[string][]action.Volume{},
		heard:   []string{"p1", "p2", "p3"},
		look: taint.Look{Exists: true, Name: name, UID: "u", ResourceVersion: "1", BootID: "b", LeaseRV: "1",
			Ready: corev1.ConditionUnknown},
		facts: Facts{
			Facts: fence.Facts{
				Mode:    fence.Fence,
				Devices: []proof.Device{{Name: "bmc/" + name, Machine: taint.MachineRef{Provider: "bmc", ID: name}}},
				NewID:   "f-" + name, By: "test",
				Settings: fence.Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute,
					Retry: 2 * time.Minute},
			},
			Evict: evict.Settings{DetachTimeout: 5 * time.Minute},
		},
	}
	if name == "n1" { // it is the first: two others are heard
		for _, n := range []string{"n1", "p1", "p2", "p3"} {
			f.AddNode(n, c.now)
		}
		f.ApplyLease(name, "1", 0, c.now)
		c.pass(70 * time.Second)
	}
	return c
}

// pass lets time go by, in which the other nodes are heard.
func (c *course) pass(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(min(10*time.Second, end.Sub(c.now)))
		for _, n := range c.heard {
			c.fleet.ApplyLease(n, c.now.Wall.Format("150405.000000"), 0, c.now)
		}
		c.fleet.Tick(c.now)
	}
}

// midst is a node in a phase of its fence, whose machine was proven off a moment ago.
func midst(t *testing.T, phase taint.Phase) *course {
	c := begin(t, &fleet.Fleet{}, "n1")
	rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test",
		Since: c.now.Wall}.EnterPhase(phase, "", c.now.Wall)
	c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1", Effect: corev1.TaintEffectNoSchedule}
	c.see()
	c.answer(off)
	return c
}

// view is what the fleet says of the node now.
func (c *course) view() fleet.View { return c.fleet.View(c.look.Name, c.now) }

// see folds a look in.
func (c *course) see() {
	l := c.look
	l.Sent = c.now
	c.pass(c.took)
	l.Got = c.now
	c.node.Apply(l.Got, c.fleet, NodeRead{Look: l, Facts: c.facts})
}

// answer folds in what the device says now.
func (c *course) answer(s providers.PowerState) {
	c.node.Apply(c.now, c.fleet,
		DevicesAnswered{
			Answers: []providers.Answer{
				{Observation: providers.Observation{State: s, Raw: s.String(), At: c.now}, By: "bmc", Got: c.now}}})
	c.now = c.now.Add(time.Millisecond)
}

// answerAfter applies the device's answer to a question that it got now and answers after took.
func (c *course) answerAfter(took time.Duration, s providers.PowerState) {
	asked := c.now
	c.pass(took)
	said := providers.Observation{State: s, Raw: s.String(), At: asked}
	c.node.Apply(c.now, c.fleet,
		DevicesAnswered{Answers: []providers.Answer{{Observation: said, By: "bmc", Got: c.now}}})
}

// next is the next step that is no read.
func (c *course) next() action.Decision {
	c.t.Helper()
	c.reads, c.asked = nil, nil
	for range 20 {
		s := c.node.Next(c.now, c.fleet)
		if !action.IsRead(s.Action) {
			return s
		}
		c.reads = append(c.reads, act(s))
		if act(s) == "ReadNode" {
			c.see()
			continue
		}
		c.pass(c.took)
		switch act(s) {
		case "ListPods":
			c.node.Apply(c.now, c.fleet, PodsListed{Pods: slices.Clone(c.pods)})
		case "ReadVolumes":
			of := map[string][]action.Volume{}
			for _, p := range s.Action.(action.ReadVolumes).Pods {
				c.asked = append(c.asked, p.Name)
				of[p.UID] = c.volumes[p.UID]
			}
			c.node.Apply(c.now, c.fleet, VolumesRead{ByPod: of})
		case "ListAttachments":
			c.node.Apply(c.now, c.fleet, AttachmentsListed{Attachments: c.cached})
		case "ListAttachments live":
			c.node.Apply(c.now, c.fleet, AttachmentsListed{Attachments: c.live, Live: true})
		case "ReadClaims":
			of := map[string]string{}
			for _, pv := range s.Action.(action.ReadClaims).PVs {
				of[pv] = cmp.Or(c.claimed[pv], "default/"+pv)
			}
			c.node.Apply(c.now, c.fleet, ClaimsRead{ByVolume: of})
		}
	}
	c.t.Fatalf("20 reads without a step: %v", c.reads)
	return action.Decision{}
}

// upTo goes to the next step of a kind: a question is answered, a wait waited out.
func (c *course) upTo(do string, says providers.PowerState) action.Decision {
	c.t.Helper()
	var seen []string
	for range 20 {
		s := c.next()
		seen = append(seen, act(s)+" "+string(s.Reason))
		switch act(s) {
		case do:
			return s
		case "AskDevices":
			c.answer(says)
		case "Wait":
			c.pass(s.RequeueAfter)
		default:
			c.t.Fatalf("got %s on the way to %s", seen, do)
		}
	}
	c.t.Fatalf("got %s, want %s", seen, do)
	return action.Decision{}
}

// did applies an ActionDone for the last step.
func (c *course) did(o ActionDone) {
	c.node.Apply(c.now, c.fleet, o)
	c.now = c.now.Add(time.Millisecond)
}

func running(name string) action.Pod { // its stock eviction was begun: nothing is to be waited for
	return action.Pod{Namespace: "ns", Name: name, UID: name, ResourceVersion: "1", Deleting: true, Grace: 30}
}

func ended(name string) action.Pod {
	return action.Pod{Namespace: "ns", Name: name, UID: name, ResourceVersion: "2", Terminal: true, Tombstone: true}
}

func claims(p action.Pod) action.Pod { p.Claims = true; return p }

func readsReady(p action.Pod) action.Pod { p.Ready = true; return p }

// mounted is the entry of a volume in the node's list. Its driver's name is empty, as in the tests' attachments.
func mounted(pv string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/^" + pv)
}

func exempt(p action.Pod) action.Pod {
	p.Exempt, p.Deleting, p.Grace = taint.ExemptDaemon, false, 0 // no client deleted it
	return p
}

// Each destructive act may be done under a proof that holds at that moment, or not at all (invariant 1).
func TestHolds(t *testing.T) {
	person := func(c *course) {
		rec := *c.look.Record
		rec.By = taint.ByPerson
		c.look.Record = &rec
	}
	noDevice := func(c *course) {
		person(c)
		c.facts.Devices, c.facts.NoDeviceErr = nil, errors.New("no rule")
	}
	// a volume is all that is left, for longer than it may be
	overtime := func(what evict.OnDetachTimeout) func(*course) {
		return func(c *course) {
			c.facts.Evict.OnDetachTimeout = what
			c.live = []action.Attachment{{Name: "va", UID: "va", ResourceVersion: "1", PV: "pv"}}
			c.cached = c.live
			c.upTo("Wait", off)
			c.pass(c.facts.Evict.DetachTimeout + time.Minute)
		}
	}
	acts := map[string]func(*course){
		"DeleteAttachments":    overtime(evict.ForceDetach),
		"AddOutOfServiceTaint": overtime(evict.TakeOutOfService),

		"EndPods":         func(c *course) { c.pods = []action.Pod{running("a")} },
		"ClearVolumes":    func(c *course) { c.look.InUse = []corev1.UniqueVolumeName{"v"} },
		"DeletePods":      func(c *course) { c.pods = []action.Pod{ended("a")} },
		"SetPodsNotReady": func(c *course) { c.pods = []action.Pod{readsReady(exempt(running("a")))} },
	}
	for _, tc := range []struct {
		name   string
		change func(*course)
		age    time.Duration // of the proof when the act is asked about
		want   Hold
		says   providers.PowerState // the device's answer, if it is to be asked first
		then   Hold
	}{
		{"fresh proof", nil, 0, HoldYes, unknown, HoldYes},
		{"as old as it may be", nil, proof.TTL - 100*time.Millisecond, HoldYes, unknown, HoldYes},
		{"old proof, still off", nil, 6 * time.Second, HoldAskFirst, off, HoldYes},
		{"old proof, on by now", nil, 6 * time.Second, HoldAskFirst, on, HoldNo},
		{"old proof, changing by now", nil, 6 * time.Second, HoldAskFirst, changing, HoldNo},
		{"old proof, unknown by now", nil, 6 * time.Second, HoldAskFirst, unknown, HoldNo},
		{"a person's word", noDevice, 0, HoldYes, unknown, HoldYes},
	} {
		for do, change := range acts {
			if do == "SetPodsNotReady" && tc.change != nil {
				continue // it is not decided on a person's word
			}
			t.Run(tc.name+"/"+do, func(t *testing.T) {
				c := midst(t, taint.PhaseEvicting)
				if change(c); tc.change != nil {
					tc.change(c)
				}
				c.upTo(do, off)
				c.now = c.now.Add(tc.age)
				if got := c.node.lastActionHolds(c.now); got != tc.want {
					t.Fatalf("got %d, want %d", got, tc.want)
				}
				if tc.want != HoldAskFirst {
					return
				}
				c.answer(tc.says)
				if got := c.node.lastActionHolds(c.now); got != tc.then {
					t.Errorf("after the answer %s: got %d, want %d", tc.says, got, tc.then)
				}
			})
		}
	}
	t.Run("a person's word that is old", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		c.pods = []action.Pod{running("a")}
		noDevice(c)
		c.upTo("EndPods", off)
		if got := c.node.lastActionHolds(c.now.Add(proof.TTL + time.Second)); got != HoldNo {
			t.Errorf("got %d, but there is no device to ask", got)
		}
	})
	t.Run("a person's word does not take Ready", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		c.pods = []action.Pod{readsReady(exempt(running("a")))}
		person(c)
		c.upTo("SetPodsNotReady", off)
		c.now = c.now.Add(proof.TTL + time.Second)
		if got := c.node.lastActionHolds(c.now); got != HoldAskFirst {
			t.Errorf("an old proof: got %d, want HoldAskFirst", got)
		}
		bare := c.node
		bare.evictView.Devices, bare.evictView.Look.Got = nil, c.now
		if got := bare.lastActionHolds(c.now); got != HoldAskFirst {
			t.Errorf("an old proof, and no device any more: got %d, want HoldAskFirst", got)
		}
		c.see()
		if c.answer(unknown); c.node.lastActionHolds(c.now) != HoldNo {
			t.Errorf("the device cannot tell any more: got %d, want No", c.node.lastActionHolds(c.now))
		}
	})
	t.Run("the return path needs no proof", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		c.pods, c.look.LeaseRV = []action.Pod{ended("a")}, "2"
		if s := c.upTo("DeletePods", on); !action.NeedsNoProof(s.Action) ||
			c.node.lastActionHolds(c.now.Add(time.Hour)) != HoldYes {
			t.Errorf("got returned %v, holds %d", action.NeedsNoProof(s.Action),
				c.node.lastActionHolds(c.now.Add(time.Hour)))
		}
	})
	t.Run("nor does sparing", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		c.pods, c.look.LeaseRV = []action.Pod{running("a")}, "2"
		if c.upTo("SparePods", on); c.node.lastActionHolds(c.now.Add(time.Hour)) != HoldYes {
			t.Errorf("got %d", c.node.lastActionHolds(c.now.Add(time.Hour)))
		}
	})
	t.Run("what was not said", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		if got := c.node.lastActionHolds(c.now); got != HoldNo {
			t.Errorf("before any step: got %d, want No", got)
		}
		if s := c.next(); act(s) != "RemoveMark" || c.node.lastActionHolds(c.now) != HoldNo {
			t.Errorf("%s: got %d, want No", act(s), c.node.lastActionHolds(c.now))
		}
	})
}

// A tombstone that was decided before stock eviction was near is not sent once it is; the writes of other pods are
// (F2).
func TestHoldsForStockEviction(t *testing.T) {
	unreachable := func(c *course, effects ...corev1.TaintEffect) {
		for _, effect := range effects {
			added := metav1.NewTime(c.now.Wall)
			one := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &added}
			c.look.Taints = append(c.look.Taints, one)
		}
	}
	check := func(t *testing.T, c *course, s action.Decision, soon, far string) {
		t.Helper()
		if act(s) != "EndPods" || len(action.PodsOf(s.Action)) != 2 {
			t.Fatalf("got %s of %v, want two tombstones", act(s), action.PodsOf(s.Action))
		}
		if got := c.node.HoldsFor(soon, c.now, c.view()); got != HoldYes {
			t.Errorf("at once: got %d, want Yes", got)
		}
		for uid, want := range map[string]Hold{soon: HoldSkipPod, far: HoldYes} {
			if got := c.node.HoldsFor(uid, c.now.Add(3*time.Second), c.view()); got != want {
				t.Errorf("3 s later, pod %s: got %d, want %d", uid, got, want)
			}
		}
	}
	soon, far := action.Pod{Name: "soon", UID: "soon"}, action.Pod{Name: "far", UID: "far", Tolerations: fiveMinutes}
	t.Run("fence", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		unreachable(c, corev1.TaintEffectNoExecute)
		soon.Tolerations = tolerating(32 * time.Second)
		c.pods = []action.Pod{soon, far}
		check(t, c, c.upTo("EndPods", off), "soon", "far")
	})
	t.Run("policy", func(t *testing.T) {
		c := accepted(t)
		c.facts.Policies[0].Owners, c.facts.Policies[0].Drivers = nil, nil
		unreachable(c, corev1.TaintEffectNoExecute)
		c.look.PoweredOn = true
		soon.Tolerations = tolerating(32 * time.Second)
		c.pods = []action.Pod{soon, far}
		check(t, c, c.policyStep(), "soon", "far")
	})
}

// tolerating is a toleration of every NoExecute taint for so long.
func tolerating(d time.Duration) []corev1.Toleration {
	seconds := int64(d / time.Second)
	return []corev1.Toleration{{
		Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	}}
}

// announced is a silent node whose machine is on, and whose power-off the record announces.
func announced(t *testing.T) *course {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.pods = []action.Pod{running("a")}
	rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1", By: "test",
		PowerOff: true}.EnterPhase(taint.PhasePoweringOff, "", c.now.Wall)
	pdu := taint.DeviceRef{Device: "pdu/n1", Machine: &taint.MachineRef{Provider: "pdu", ID: "n1"}}
	rec.PowerOffTo = append(proof.SpeakersOf(c.facts.Devices), pdu)
	c.look.Record = &rec
	return c
}

// A device that accepted a power-off is named when the node comes back: by the process that sent it, and by a new
// leader. One that refused is named by the new leader alone, which cannot know.
func TestAcceptedPowerOffIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		err       error
		newLeader bool
		named     bool
	}{
		"accepted":                           {nil, false, true},
		"refused for good":                   {providers.ErrDenied, false, false},
		"accepted, and another process ends": {nil, true, true},
		"refused, and another process ends":  {providers.ErrDenied, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, &fleet.Fleet{}, "n1")
			c.pods = []action.Pod{running("a")}
			s := c.upTo("WriteRecord", on)
			if len(action.RecordOf(s.Action).PowerOffTo) != 1 {
				t.Fatalf("got %s (%s) with record %+v, want it to name the device", act(s), s.Reason,
					action.RecordOf(s.Action))
			}
			c.did(ActionDone{})
			rec := action.RecordOf(s.Action)
			c.look.Record = &rec
			c.upTo("PowerOff", on)
			c.did(ActionDone{SentAt: c.now, Err: tc.err})
			if tc.newLeader {
				c.node = Node{}
			}
			c.look.LeaseRV, c.look.Ready = "2", corev1.ConditionTrue
			end := c.next()
			if named := len(action.RecordOf(end.Action).PowerOffTo) > 0; act(end) != "WriteRecord" ||
				action.RecordOf(end.Action).Result != taint.ResultCancelled ||
				named != tc.named {
				t.Errorf("got %s (%s) with record %+v, named %v, want %v", act(end), end.Reason,
					action.RecordOf(end.Action), named, tc.named)
			}
		})
	}
}

// The power is cut only right after a look (step 3): a process that was stopped since looks again.
func TestPowerOffNeedsALook(t *testing.T) {
	c := announced(t)
	if s := c.upTo("PowerOff", on); s.Reason != reason.SendingOff || c.node.lastActionHolds(c.now) != HoldYes ||
		c.node.lastActionHolds(c.now.Add(proof.TTL+time.Second)) != HoldNo {
		t.Errorf("%s: got %d now, %d later; want Yes, No", s.Reason, c.node.lastActionHolds(c.now),
			c.node.lastActionHolds(c.now.Add(proof.TTL+time.Second)))
	}
	c.did(ActionDone{Err: errors.New("too late"), Withheld: true})
	if s := c.next(); s.Reason == reason.NotAccepted || c.reads[0] != "ReadNode" {
		t.Errorf("what was not sent is held for refused: %s (%s), after %v", act(s), s.Reason, c.reads)
	}
}

// A look is as old as its question: the node may have come back while the process stood still in the middle of it.
// Where the look before took long as well it is the API server that is slow, and the power is cut all the same.
func TestPowerOffAfterASlowLook(t *testing.T) {
	c := announced(t)
	look := func(took time.Duration) { // the next
		if s := c.node.Next(c.now, c.fleet); act(s) != "ReadNode" {
			t.Fatalf("got %s, want a look", act(s))
		}
		c.took = took
		c.see()
		c.took = time.Millisecond
	}
	holds := func(what string, want Hold) {
		t.Helper()
		if s := c.next(); act(s) != "PowerOff" || c.node.lastActionHolds(c.now) != want ||
			c.node.lastActionHolds(c.now.Add(proof.TTL+time.Second)) != HoldNo {
			t.Errorf("%s: %s (%s) got %d now, %d later; want %d, %d", what, act(s), s.Reason,
				c.node.lastActionHolds(c.now), c.node.lastActionHolds(c.now.Add(proof.TTL+time.Second)), want, HoldNo)
		}
		c.did(ActionDone{Withheld: true})
	}
	const long = proof.TTL + time.Second
	c.upTo("PowerOff", on)
	c.did(ActionDone{Withheld: true})
	look(long)
	holds("a look that took long", HoldNo)
	look(long)
	if s := c.next(); act(s) != "AskDevices" {
		t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
	}
	c.answer(on)
	look(long)
	holds("looks that take long", HoldYes)
	look(time.Millisecond)
	c.upTo("PowerOff", on)
	holds("looks that are quick again", HoldYes)
}

// Right before a power action is sent nothing may have changed since the look that it was decided on.
func TestStillHolds(t *testing.T) {
	lost := errors.New("another leads")
	type change func(c *course, r *Recheck)
	since := func(c *course) taint.Instant { return c.node.Look().Sent.Add(1) }
	seen := func(change func(l *taint.Look)) change { return func(_ *course, r *Recheck) { change(&r.Seen) } }
	record := func(change func(r *taint.Record)) change {
		return seen(func(l *taint.Look) {
			rec := *l.Record
			change(&rec)
			l.Record = &rec
		})
	}
	const nothing = ""
	for _, tc := range []struct {
		name    string
		change  change
		off, on string // part of why a power-off, and a power-on, may not be sent; nothing: it may
	}{
		{"nothing changed", func(*course, *Recheck) {}, nothing, nothing},
		{"another leads", func(_ *course, r *Recheck) { r.Leading = lost }, "another leads", "another leads"},
		{"the look is old", func(c *course, _ *Recheck) { c.now = c.now.Add(proof.TTL + time.Second) }, "the look",
			"the look"},
		{"a heartbeat since", func(c *course, r *Recheck) {
			c.fleet.ApplyLease("n1", "9", 0, c.now)
			r.Fleet = c.fleet.View("n1", c.now)
		}, "showed life", "showed life"},
		{"life, and silent since", func(c *course, r *Recheck) { r.Fleet.Alive = since(c) }, "showed life",
			"showed life"},
		{"life before", func(c *course, r *Recheck) { r.Fleet.Alive = c.node.Look().Sent }, nothing, nothing},
		{"not silent for this process", func(_ *course, r *Recheck) { r.Fleet.Stale = false }, "showed life", nothing},
		{"most are silent", func(_ *course, r *Recheck) { r.Fleet.Heard = false }, "most nodes are silent", nothing},
		{"a node that may be the same machine is heard", func(_ *course, r *Recheck) { r.Fleet.Twin = "n8" },
			"n8 is heard", nothing},
		{"On since, as a power-off expects", func(c *course, r *Recheck) { r.Fleet.OnAt = since(c) }, nothing,
			"answered On since"},
		{"On before", func(c *course, r *Recheck) { r.Fleet.OnAt = c.node.Look().Sent }, nothing, nothing},
		{"paused since", func(_ *course, r *Recheck) { r.Paused = "upgrade" }, "paused: upgrade", "paused: upgrade"},
		{"no Node in the cache", seen(func(l *taint.Look) { *l = taint.Look{} }), "not in the cache",
			"not in the cache"},
		{"another Node", seen(func(l *taint.Look) { l.UID = "u2" }), "life", "life"},
		{"another boot", seen(func(l *taint.Look) { l.BootID = "b2" }), "life", "life"},
		{"Ready since", seen(func(l *taint.Look) { l.Ready = corev1.ConditionTrue }), "life", "life"},
		{"marked since", seen(func(l *taint.Look) { l.Mark = &taint.Mark{Value: "x"} }), "marked", "marked"},
		{"released since", record(func(r *taint.Record) { r.Phase, r.Result = taint.PhaseDone, taint.ResultReleased }),
			"the record", "the record"},
		{"armed since", record(func(r *taint.Record) { r.Phase = taint.PhaseArmed }), "the record", "the record"},
		{"another fence", record(func(r *taint.Record) { r.ID = "f-2" }), "the record", "the record"},
		{"it came on", record(func(r *taint.Record) { r.AfterFence = taint.AfterFenceCameOn }), "the record",
			"the record"},
		{"no record", seen(func(l *taint.Look) { l.Record = nil }), "the record", "the record"},
		{"another mode", func(_ *course, r *Recheck) { r.Facts.Mode = fence.Observe }, "mode is observe",
			"mode is observe"},
		{"requested", func(_ *course, r *Recheck) {
			r.Facts.Mode, r.Facts.RequestedBy = fence.OnRequest, "ForcefenceRemediation ns/n1"
		}, nothing, nothing},
		{"the request is gone", func(_ *course, r *Recheck) { r.Facts.Mode = fence.OnRequest }, "no request",
			"no request"},
		{"a request in another mode", func(_ *course, r *Recheck) {
			r.Facts.Mode, r.Facts.RequestedBy = fence.Observe, "ForcefenceRemediation ns/n1"
		}, "mode is observe", "mode is observe"},
		{"excluded since", func(_ *course, r *Recheck) { r.Facts.Excluded = "maintenance" }, "maintenance",
			"maintenance"},
		{"kept on since", func(_ *course, r *Recheck) { r.Facts.KeptOn = "the node is cordoned" }, "cordoned",
			"cordoned"},
		{"a cache that is behind the look", func(_ *course, r *Recheck) {
			r.Seen.ResourceVersion, r.Seen.Record = "3", nil
		}, nothing, nothing},
		{"excluded, and a cache that is behind", func(_ *course, r *Recheck) {
			r.Seen.ResourceVersion, r.Facts.Excluded = "3", "maintenance"
		}, "maintenance", "maintenance"},
		{"paused, and a cache that is behind", func(_ *course, r *Recheck) {
			r.Seen.ResourceVersion, r.Paused = "3", "upgrade"
		}, "paused", "paused"},
	} {
		for _, do := range []string{"PowerOff", "PowerOn"} {
			c, says, want := announced(t), on, tc.off
			if do == "PowerOn" {
				c, says, want = fenced(t), off, tc.on
			}
			if c.look.ResourceVersion = "7"; do == "PowerOn" {
				c.announced()
			}
			c.upTo(do, says)
			r := Recheck{Seen: c.node.Look(), Facts: c.facts.Facts, Fleet: c.fleet.View("n1", c.now)}
			tc.change(c, &r)
			held := c.node // as an executor's copy
			switch err := held.StillHolds(c.now, r); {
			case err == nil && want != nothing:
				t.Errorf("%s: %s may be sent, want %q", tc.name, do, want)
			case err != nil && (want == nothing || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: %s: got %q, want %q", tc.name, do, err, want)
			}
		}
	}
	c := announced(t)
	c.next()
	if err := c.node.StillHolds(c.now, Recheck{}); err == nil {
		t.Error("a question is a power action")
	}
}

// What was not sent counts as no attempt: the node is looked at, and the same power-off is decided on again.
func TestNotSentIsNoAttempt(t *testing.T) {
	c := announced(t)
	first := c.upTo("PowerOff", on)
	c.did(ActionDone{Err: providers.ErrNotSent, SentAt: c.now, Withheld: true})
	if s := c.next(); act(s) != "PowerOff" || s.Reason != first.Reason || c.reads[0] != "ReadNode" {
		t.Errorf("got %s (%s) after %v, want a look and then %s", act(s), s.Reason, c.reads, first.Reason)
	}
	c.did(ActionDone{SentAt: c.now})
	rec := action.RecordOf(c.upTo("SetMark", off).Action)
	if len(rec.OffBy) != 1 {
		t.Errorf("got %v, want the device that took the second", rec.OffBy)
	}
	c = announced(t)
	c.upTo("PowerOff", on)
	c.did(ActionDone{Err: providers.ErrNotSent, SentAt: c.now, Withheld: true})
	c.pass(proof.TTL)
	if rec := action.RecordOf(c.upTo("SetMark", off).Action); len(rec.OffBy) != 0 {
		t.Errorf("went off by itself: got %v, want no device that took a power-off", rec.OffBy)
	}
}

// What a device did not accept is remembered, and what it accepted is waited for.
func TestPowerOffIsRemembered(t *testing.T) {
	for want, err := range map[reason.Reason]error{
		reason.AwaitingOff: nil, reason.NotAccepted: providers.ErrUnreachable,
		reason.PowerOffRefused: providers.ErrDenied,
	} {
		c := announced(t)
		c.upTo("PowerOff", on)
		c.did(ActionDone{Err: err, SentAt: c.now})
		if s := c.next(); s.Reason != want || c.reads[0] != "ReadNode" {
			t.Errorf("accepted with %v: got %s (%s) after %v, want %s after a look", err, act(s), s.Reason, c.reads,
				want)
		}
	}
}

// A read that failed is tried again a while later. The look before it is not decided on any more: the node may have
// shown life since.
func TestReadThatFailed(t *testing.T) {
	for _, failing := range []string{"ListPods", "ListAttachments"} {
		c := midst(t, taint.PhaseEvicting)
		c.pods = []action.Pod{running("a")}
		s := c.node.Next(c.now, c.fleet)
		for ; action.IsRead(s.Action) && act(s) != failing; s = c.node.Next(c.now, c.fleet) {
			switch act(s) {
			case "ReadNode":
				c.see()
			case "ListPods":
				c.node.Apply(c.now, c.fleet, PodsListed{Pods: slices.Clone(c.pods)})
			default:
				t.Fatalf("reads %s on the way to %s", act(s), failing)
			}
		}
		c.look.LeaseRV = "2" // a heartbeat; nothing was read
		c.pass(time.Second)
		if s := c.node.Next(c.now, c.fleet); act(s) != "ReadNode" {
			t.Errorf("after a read of %s that failed: got %s %s, want another look", failing, act(s), act(s))
		}
		if s := c.upTo("SparePods", off); len(action.PodsOf(s.Action)) != 1 {
			t.Errorf("after the look: got %s of %d pods, want the pod spared", act(s), len(action.PodsOf(s.Action)))
		}
	}
}

// A machine whose power must not be touched is not powered off, whatever the mode and the record say.
func TestUnpinnedIsNotPoweredOff(t *testing.T) {
	c := announced(t)
	c.facts.Devices[0].NoPower = "its machine was never pinned"
	for range 20 {
		switch s := c.next(); act(s) {
		case "PowerOff":
			t.Fatal("its machine is powered off")
		case "AskDevices":
			c.answer(on)
		case "Wait":
			if s.Reason == reason.PoweredOn && s.Detail == c.facts.NoPower() {
				return
			}
			c.pass(s.RequeueAfter)
		case "SetPoweredOnCondition":
			c.look.PoweredOn = s.Action.(action.SetPoweredOnCondition).On
			c.did(ActionDone{})
		case "WriteRecord":
			if s.Reason == reason.PoweredOn && s.Detail == c.facts.NoPower() &&
				action.RecordOf(s.Action).Result == taint.ResultCancelled {
				return
			}
		}
	}
	t.Error("no reason says why it is not powered off")
}

// A device whose Off was false once is not believed again, whichever process wrote the record; another device is.
func TestDistrustedOffIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		name string
		liar taint.MachineRef
		want providers.PowerState
	}{
		{"its device", taint.MachineRef{Provider: "bmc", ID: "n1"}, unknown},
		{"another device", taint.MachineRef{Provider: "bmc", ID: "n2"}, off},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.pods = []action.Pod{running("a")}
			if got := c.node.Answer().State; got != off {
				t.Fatalf("a trusted device: got %s, want Off", got)
			}
			lied := taint.Record{ID: "f-0", Machine: &tc.liar}.EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff,
				c.now.Wall)
			c.fleet.ApplyRecord("n2", "7", &lied, c.now)
			c.answer(off)
			if got := c.node.Answer(); got.State != tc.want ||
				(tc.want == unknown) != errors.Is(got.Err, proof.ErrDistrusted) {
				t.Errorf("got %s, error %v, want %s", got.State, got.Err, tc.want)
			}
			if s := c.next(); (act(s) == "EndPods") != (tc.want == off) {
				t.Errorf("got %s (%s)", act(s), s.Reason)
			}
			c = begin(t, c.fleet, "n1") // and before the mark
			c.pods = []action.Pod{running("a")}
			s := c.next()
			if tc.want == unknown && (s.Reason != reason.Distrusted || s.Detail != "n2") ||
				tc.want == off && act(s) != "AskDevices" {
				t.Errorf("unmarked: got %s (%s) %q", act(s), s.Reason, s.Detail)
			}
		})
	}
}

// If two nodes both see no other power-off, only one announces one. No node announces one while a record names
// another's (invariant 6).
func TestOneAnnouncement(t *testing.T) {
	var f fleet.Fleet
	one := begin(t, &f, "n1")
	f.AddNode("n2", providers.InstantOf(newYear))
	f.ApplyLease("n2", "1", 0, providers.InstantOf(newYear))
	one.pass(70 * time.Second)
	two := begin(t, &f, "n2")
	two.now = one.now
	for _, c := range []*course{one, two} { // both get there while no node has the turn
		c.pods = []action.Pod{running("a")}
		if s := c.next(); act(s) != "AskDevices" {
			t.Fatalf("%s: got %s (%s), want a question", c.look.Name, act(s), s.Reason)
		}
		c.answer(on)
		c.see()
	}
	wants := func(c *course, do string, why reason.Reason) {
		t.Helper()
		if s := c.next(); act(s) != do || s.Reason != why {
			t.Fatalf("%s: got %s (%s), want %s (%s)", c.look.Name, act(s), s.Reason, do, why)
		}
	}
	wants(one, "WriteRecord", reason.Announcing)
	wants(one, "WriteRecord", reason.Announcing)
	wants(two, "Wait", reason.PowerOffLimit)
	one.did(ActionDone{Err: errors.New("a webhook is down")})
	wants(two, "WriteRecord", reason.Announcing)
	one.see()
	wants(one, "Wait", reason.PowerOffLimit)
	two.did(ActionDone{})
	rec := taint.Record{ID: "f-2", NodeUID: "u", BootID: "b", LeaseRV: "1",
		PowerOff: true}.EnterPhase(taint.PhasePoweringOff, "", two.now.Wall)
	two.look.Record, two.look.ResourceVersion = &rec, "2"
	two.see()
	one.see()
	wants(one, "Wait", reason.PowerOffLimit)
	done := rec.EnterPhase(taint.PhaseDone, taint.ResultCancelled, two.now.Wall)
	two.look.Record, two.look.ResourceVersion = &done, "3"
	two.see()
	one.see()
	wants(one, "WriteRecord", reason.Announcing)

	// A leader before announced another's: the record alone says so.
	f = fleet.Fleet{}
	one = begin(t, &f, "n1")
	one.pods = []action.Pod{running("a")}
	f.ApplyRecord("n3", "4", &rec, one.now)
	wants(one, "AskDevices", reason.Asking)
	one.answer(on)
	wants(one, "Wait", reason.PowerOffLimit)
}

// Where the question's answer would be too old by the time that another look is there, the act is decided on the look
// that the question followed. Else another look is the rule.
func TestSlowServerKeepsTheLook(t *testing.T) {
	for _, tc := range []struct {
		name  string
		took  time.Duration // of each read
		since time.Duration // from the answer to the next decision
		kept  bool
	}{
		{"fast", time.Millisecond, 0, false},
		{"slow", 6 * time.Second, 0, true},
		{"slow, and the device, too", 6 * time.Second, 2*18*time.Second + proof.TTL, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.pods, c.took = []action.Pod{running("a")}, tc.took
			c.now = c.now.Add(2 * proof.TTL)
			c.pass(time.Minute)
			if s := c.next(); act(s) != "AskDevices" {
				t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
			}
			c.now = c.now.Add(tc.since)
			c.answer(off)
			s := c.next()
			if kept := len(c.reads) == 0; kept != tc.kept || kept && act(s) != "EndPods" {
				t.Errorf("got %s (%s) after %v, want the look kept: %v", act(s), s.Reason, c.reads, tc.kept)
			}
		})
	}
}

// A slow device's Off is acted on by the look before the question, where another look would outlast it. It is a proof
// by itself; a heartbeat takes another look all the same.
func TestSlowDeviceKeepsTheLook(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name        string
		takes, read time.Duration
		says        providers.PowerState
		beats       bool
		kept        bool
	}{
		{"a quick device", 50 * ms, 20 * ms, off, false, false},
		{"slow, and another look is quick", 4700 * ms, 20 * ms, off, false, false}, // three reads: 60 ms
		{"slow, and another look takes long", 4700 * ms, 60 * ms, off, false, true},
		{"very slow", 4900 * ms, 20 * ms, off, false, true},
		{"very slow, and changing", 4900 * ms, 20 * ms, changing, false, false},
		{"very slow, and a heartbeat", 4900 * ms, 20 * ms, off, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.pods, c.took = []action.Pod{running("a")}, tc.read
			c.pass(time.Minute)
			if s := c.next(); act(s) != "AskDevices" {
				t.Fatalf("got %s (%s), want a question", act(s), s.Reason)
			}
			if tc.beats {
				c.fleet.ApplyLease("n1", "77", 0, c.now)
			}
			c.answerAfter(tc.takes, tc.says)
			s := c.next()
			if kept := len(c.reads) == 0; kept != tc.kept || tc.says == off && act(s) != "EndPods" {
				t.Errorf("got %s (%s) after %v, want the look kept: %v", act(s), s.Reason, c.reads, tc.kept)
			}
		})
	}
}

// What is decided behind a slow device may be sent for as long as its answer lasts, and not a moment later.
func TestWritesBehindASlowDevice(t *testing.T) {
	c := midst(t, taint.PhaseEvicting)
	c.pods = []action.Pod{running("a")}
	c.upTo("EndPods", off)
	c.answerAfter(4700*time.Millisecond, off)
	for _, tc := range []struct {
		later, within time.Duration
		want          Hold
	}{
		{0, 300 * time.Millisecond, HoldYes},
		{150 * time.Millisecond, 150 * time.Millisecond, HoldYes},
		{151 * time.Millisecond, proof.Sending, HoldAskFirst},
	} {
		now := c.now.Add(tc.later)
		within, hold := c.node.MaySend("a", now, c.view())
		if within != tc.within || hold != tc.want {
			t.Errorf("%s after the answer: got %s, %d; want %s, %d", tc.later, within, hold, tc.within, tc.want)
		}
		if hold == HoldYes && c.node.lastActionHolds(now.Add(within+1)) == HoldYes {
			t.Errorf("%s after the answer: it holds for longer than %s", tc.later, within)
		}
	}
}

// After an act, and after a wait, the node is looked at before anything is decided.
func TestEveryActFollowsALook(t *testing.T) {
	c := midst(t, taint.PhaseEvicting)
	c.pods = []action.Pod{running("a")}
	for _, o := range []ActionDone{{}, {Err: errors.New("a conflict")}, {Withheld: true}} {
		c.upTo("EndPods", off)
		c.did(o)
		if s := c.node.Next(c.now, c.fleet); act(s) != "ReadNode" {
			t.Errorf("after an act (%+v): got %s, want a look", o, act(s))
		}
	}
	c = begin(t, &fleet.Fleet{}, "n1")
	if s := c.next(); act(s) != "Wait" || s.Reason != reason.NoWork {
		t.Fatalf("got %s (%s), want a wait", act(s), s.Reason)
	}
	if s := c.node.Next(c.now, c.fleet); act(s) != "ReadNode" {
		t.Errorf("after a wait: got %s, want a look", act(s))
	}
	var zero Node
	if s := zero.Next(c.now, c.fleet); act(s) != "ReadNode" {
		t.Errorf("at first: got %s, want a look", act(s))
	}
}

// The cache may be behind: before the mark goes the attachments are listed live (step 12, invariant 11).
func TestMarkGoesByLiveAttachments(t *testing.T) {
	attached := []action.Attachment{{Name: "va", PV: "pv-1"}}
	for _, tc := range []struct {
		name         string
		lease        string // "1" until a heartbeat
		cached, live []action.Attachment
		want         string
		result       taint.Result
	}{
		{"detached", "1", nil, nil, "RemoveMark", taint.ResultEvicted},
		{"attached, the cache does not know yet", "1", nil, attached, "Wait", ""},
		{"detached, the cache does not know yet", "1", attached, nil, "RemoveMark", taint.ResultEvicted},
		{"returned, detached", "2", nil, nil, "RemoveMark", taint.ResultReturned},
		{"returned, attached, the cache does not know yet", "2", nil, attached, "WriteRecord", ""},
		{"returned, detached, the cache does not know yet", "2", attached, nil, "RemoveMark", taint.ResultReturned},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.cached, c.live, c.look.LeaseRV = tc.cached, tc.live, tc.lease
			if s := c.next(); act(s) != tc.want || action.RecordOf(s.Action).Result != tc.result ||
				!slices.Contains(c.reads, "ListAttachments live") {
				t.Errorf("got %s (%s) %s after %v, want %s %s after a live list", act(s), s.Reason,
					action.RecordOf(s.Action).Result, c.reads, tc.want, tc.result)
			}
		})
	}
}

// A cache that missed an attachment's end must not have the node marked for nothing, again and again; and a list of all
// nodes' attachments is made only where the decision hangs on it.
func TestWorkByLiveAttachments(t *testing.T) {
	attached := []action.Attachment{{Name: "va", PV: "pv-1"}}
	pod := []action.Pod{running("a")}
	for _, tc := range []struct {
		name         string
		pods         []action.Pod
		cached, live []action.Attachment
		asks, marks  bool
		reads        bool // the live list
	}{
		{"nothing", nil, nil, nil, false, false, false},
		{"a pod", pod, nil, nil, true, true, false},
		{"attached", nil, attached, attached, true, true, true},
		{"detached, the cache does not know", nil, attached, nil, true, false, true},
		{"a pod, and a cache that is behind", pod, attached, nil, true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := begin(t, &fleet.Fleet{}, "n1")
			c.pods, c.cached, c.live = tc.pods, tc.cached, tc.live
			c.look.InUse = []corev1.UniqueVolumeName{mounted("pv-1")} // its pod was deleted by force
			s := c.next()
			if (act(s) == "AskDevices") != tc.asks || !tc.asks && s.Reason != reason.NoWork ||
				slices.Contains(c.reads, "ListAttachments live") {
				t.Fatalf("by the cache: got %s (%s) after %v, want a question: %v", act(s), s.Reason, c.reads, tc.asks)
			}
			if !tc.asks {
				return
			}
			c.answer(off)
			s = c.next()
			if (act(s) == "SetMark") != tc.marks || !tc.marks && s.Reason != reason.NoWork ||
				slices.Contains(c.reads, "ListAttachments live") != tc.reads {
				t.Errorf("live: got %s (%s) after %v, want the mark: %v", act(s), s.Reason, c.reads, tc.marks)
			}
		})
	}
}

// What exempt pods use is no work for a fence, and what finished ones used is.
func TestWorkIsOfPodsThatGo(t *testing.T) {
	pv, other := action.Attachment{Name: "va-1", PV: "pv-1"}, action.Attachment{Name: "va-2", PV: "pv-2"}
	loose := action.Attachment{Name: "va-3", PV: "pv-3", Attacher: "gone"}
	daemon := claims(exempt(running("a")))
	finished := daemon
	finished.Terminal = true
	for _, tc := range []struct {
		name     string
		pod      action.Pod
		attached []action.Attachment
		want     bool
	}{
		{"the DaemonSet's volume", daemon, []action.Attachment{pv}, false},
		{"another volume beside it", daemon, []action.Attachment{pv, other}, true},
		{"another volume beside it, which is not mounted", daemon, []action.Attachment{pv, loose}, false},
		{"an inline volume", daemon, []action.Attachment{{Name: "inline"}}, true},
		{"a finished DaemonSet pod's volume", finished, []action.Attachment{pv}, true},
		{"an ordinary pod", claims(running("a")), nil, true},
		{"an ended pod that was left behind", ended("a"), nil, true},
		{"a finished ordinary pod", action.Pod{Name: "a", UID: "a", Terminal: true}, nil, false},
	} {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.pods, c.cached = []action.Pod{tc.pod}, tc.attached
		c.volumes["a"] = []action.Volume{{PV: "pv-1", Unique: mounted("pv-1")}}
		c.look.InUse = []corev1.UniqueVolumeName{mounted("pv-1"), mounted("pv-2")}
		if s := c.next(); (s.Reason != reason.NoWork) != tc.want {
			t.Errorf("%s: got %s (%s), want work: %v", tc.name, act(s), s.Reason, tc.want)
		}
	}
}

// Volumes cost two reads each: before the mark those of exempt pods are read, before lists are cleared or the mark goes
// those of all that may yet stay, and those of finished pods never.
func TestVolumesAreReadWhereTheyMatter(t *testing.T) {
	done := claims(action.Pod{Name: "done", UID: "done", Terminal: true})
	pods := []action.Pod{claims(running("db")), claims(exempt(running("agent"))), running("web"), done,
		claims(ended("gone"))}
	c := begin(t, &fleet.Fleet{}, "n1")
	c.pods = pods
	if s := c.next(); act(s) != "AskDevices" || !slices.Equal(c.asked, []string{"agent"}) {
		t.Errorf("before the mark: got %s (%s), volumes of %v, want the exempt pod's alone", act(s), s.Reason, c.asked)
	}
	c = midst(t, taint.PhaseArmed)
	c.pods = pods
	if s := c.next(); act(s) != "WriteRecord" || !slices.Equal(c.reads, []string{"ReadNode", "ListPods"}) {
		t.Errorf("before an eviction whose pods were not listed: got %s (%s) after %v, want one list", act(s), s.Reason,
			c.reads)
	}
	c = midst(t, taint.PhaseEvicting)
	c.pods = pods
	if s := c.next(); act(s) != "EndPods" || !slices.Equal(c.asked, []string{"agent"}) {
		t.Errorf("pods to end: got %s (%s), volumes of %v, want the exempt pod's alone", act(s), s.Reason, c.asked)
	}
	c = midst(t, taint.PhaseEvicting)
	c.look.InUse = []corev1.UniqueVolumeName{"v"}
	waits := claims(action.Pod{Namespace: "ns", Name: "waits", UID: "waits"}) // for its stock eviction
	c.pods = append(slices.Clone(pods[1:]), waits)
	c.pods[1] = ended("web")
	if s := c.next(); act(s) != "ClearVolumes" || !slices.Equal(c.asked, []string{"agent", "waits"}) {
		t.Errorf("lists to clear: got %s (%s), volumes of %v, want those of all that may stay", act(s), s.Reason,
			c.asked)
	}
}

// An unreadable claim of a pod that stays delays no other pod of the node, and does not keep the mark.
func TestUnreadClaim(t *testing.T) {
	mine, other := action.Attachment{Name: "va-1", PV: "pv-1"}, action.Attachment{Name: "va-2", PV: "pv-2"}
	agent := claims(exempt(running("agent")))
	for name, claim := range map[string]string{
		"its volume names the claim": "ns/data", "its volume cannot be read either": action.UnreadClaim} {
		t.Run(name, func(t *testing.T) {
			unread := func(c *course, pods ...action.Pod) {
				c.pods, c.cached, c.live = pods, []action.Attachment{mine}, []action.Attachment{mine}
				c.volumes["agent"] = []action.Volume{{Claim: "data", Unread: true}}
				c.claimed = map[string]string{"pv-1": claim}
			}
			c := begin(t, &fleet.Fleet{}, "n1")
			unread(c, agent)
			if s := c.next(); s.Reason != reason.NoWork {
				t.Errorf("nothing to move: got %s (%s), want no work", act(s), s.Reason)
			}
			c = begin(t, &fleet.Fleet{}, "n1")
			unread(c, agent)
			c.live = []action.Attachment{mine, {Name: "va-3", PV: "pv-3"}}
			c.cached, c.claimed["pv-3"] = c.live, "ns/data"
			if s := c.next(); s.Reason != reason.NoWork {
				t.Errorf("two volumes name the claim: got %s (%s), want no work", act(s), s.Reason)
			}
			c = begin(t, &fleet.Fleet{}, "n1")
			unread(c, agent, claims(running("db")))
			c.upTo("SetMark", off)

			c = midst(t, taint.PhaseEvicting)
			unread(c, agent, ended("db"))
			c.look.InUse = []corev1.UniqueVolumeName{"u-1", "u-2"}
			c.cached, c.live = []action.Attachment{mine, other}, []action.Attachment{mine, other}
			c.upTo("DeletePods", off)
			c.did(ActionDone{Results: map[string]action.WriteResult{"db": action.Accepted}})
			c.pods = c.pods[:1]
			if s := c.upTo("Wait", off); s.Reason != reason.WaitingDetach {
				t.Errorf("the ended pod's volume is attached: got %s (%s)", act(s), s.Reason)
			}
			c.cached, c.live = []action.Attachment{mine}, []action.Attachment{mine}
			if s := c.upTo("RemoveMark", off); action.RecordOf(s.Action).Result != taint.ResultEvicted {
				t.Errorf("the staying pod's volume is attached: got %s (%s)", act(s), s.Reason)
			}
		})
	}
}

// Claims are read only for unfinished pods whose volume is not known by its name.
func TestNeededClaimRead(t *testing.T) {
	n := Node{atts: attachmentList{list: []action.Attachment{{PV: "pv-1"}}}}
	for _, tc := range []struct {
		name string
		pod  action.Pod
		want bool
	}{
		{"an unread claim", action.Pod{Volumes: []action.Volume{{Claim: "data", Unread: true}}}, true},
		{"its volume is known", action.Pod{Volumes: []action.Volume{{PV: "pv", Claim: "data", Unread: true}}}, false},
		{"a claim that was read", action.Pod{Volumes: []action.Volume{{PV: "", Claim: "data"}}}, false},
		{"an ended pod", action.Pod{Terminal: true, Volumes: []action.Volume{{Claim: "data", Unread: true}}}, false},
	} {
		if got := n.neededClaimRead([]action.Pod{tc.pod}); (got != nil) != tc.want {
			t.Errorf("%s: got %v, want a read %v", tc.name, got, tc.want)
		}
	}
}

// A list of pods stays as it was read: another decision may hold it, too.
func TestAddClaimVolumesKeepsItsInput(t *testing.T) {
	before := []action.Pod{{Namespace: "ns", Volumes: []action.Volume{{Claim: "data", Unread: true}}}}
	after := addClaimVolumes(before, map[string]string{"pv-1": "ns/data"})
	if len(before[0].Volumes) != 1 || len(after[0].Volumes) != 2 {
		t.Errorf("got %+v of %+v", after, before)
	}
}

// A pod whose volumes were not kept may use each claim of its namespace.
func TestAddClaimVolumesOfCutPod(t *testing.T) {
	pods := addClaimVolumes([]action.Pod{{Namespace: "ns", Volumes: []action.Volume{{Claim: action.UnreadClaim,
		Unread: true}}}}, map[string]string{"pv-1": "ns/data", "pv-2": "other/data", "pv-3": ""})
	if got := pods[0].Volumes; len(got) != 2 || got[1].PV != "pv-1" {
		t.Errorf("got %+v, want pv-1 alone", got)
	}
}

// Right after the process began, a list that there never was is not taken for a new one.
func TestNoKeptList(t *testing.T) {
	var n Node
	if d, ok := n.decideByKeptList(evict.View{Now: providers.Instant{}.Add(time.Millisecond)}); ok {
		t.Errorf("got %s, want another list", act(d))
	}
}

// Work that a list showed counts for a moment; that there was none does not; and what a mark did is no work for the
// next.
func TestWorkHolds(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	pod := []action.Pod{running("a")}
	for _, step := range []struct {
		after  time.Duration
		pods   []action.Pod
		marked bool // the node is, for a look, in between
		want   bool
		lists  bool
	}{
		{0, nil, false, false, true},
		{0, pod, false, true, true},
		{workHolds / 2, nil, false, true, false},
		{workHolds, nil, false, false, true},
		{0, pod, false, true, true},
		{0, nil, true, false, true},
	} {
		c.pass(step.after)
		c.pods = step.pods
		c.see()
		if step.marked {
			was := c.look
			rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1",
				By: "test"}.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
			c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1"}
			c.see()
			c.next()
			c.look = was
			c.see()
		}
		s := c.next() // asks, or finds nothing
		if (s.Reason != reason.NoWork) != step.want || slices.Contains(c.reads, "ListPods") != step.lists {
			t.Errorf("after %s with %d pods: got %s (%s) after %v, want work %v", step.after, len(step.pods), act(s),
				s.Reason, c.reads, step.want)
		}
	}
}

// That a list took long makes what it showed count for longer: else a slow API server would have it made again and
// again.
func TestWorkHoldsLongerWhereReadsAreSlow(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.pods, c.took = []action.Pod{running("a")}, 4*time.Second
	c.next() // lists and asks
	c.pass(10 * time.Second)
	c.see()
	if c.next(); slices.Contains(c.reads, "ListPods") {
		t.Errorf("ten seconds after a list that took eight: got %v", c.reads)
	}
	c.pass(20 * time.Second)
	c.see()
	if c.next(); !slices.Contains(c.reads, "ListPods") {
		t.Errorf("half a minute later: got %v, want a list", c.reads)
	}
}

// A list that was kept serves to end pods and to delete ended ones, for a moment and once, and for nothing else.
func TestKeptList(t *testing.T) {
	done := action.Pod{Name: "a", UID: "1", ResourceVersion: "1", Terminal: true}
	for _, tc := range []struct {
		name  string
		kept  action.Pod
		age   time.Duration
		lease string // the node's, at the look
		want  string
	}{
		{"an ended pod, just listed", ended("a"), 0, "1", "DeletePods"},
		{"a pod that runs, just listed", running("a"), 0, "1", "EndPods"},
		{"listed a while ago", ended("a"), 4 * time.Second, "1", "RemoveMark"}, // there are no pods any more
		{"a heartbeat since", ended("a"), 0, "2", "RemoveMark"},
		{"a heartbeat since, and a pod that runs", running("a"), 0, "2", "RemoveMark"},
		{"nothing to do by the kept list", done, 0, "1", "RemoveMark"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.look.InUse = []corev1.UniqueVolumeName{"v"}
			if s := c.next(); act(s) != "ClearVolumes" {
				t.Fatalf("got %s (%s), want the lists cleared", act(s), s.Reason)
			}
			c.did(ActionDone{})
			c.node.kept.pods = []action.Pod{tc.kept}
			c.look.InUse, c.look.LeaseRV = nil, tc.lease
			c.now = c.now.Add(tc.age)
			s := c.next()
			if act(s) != tc.want || slices.Contains(c.reads, "ListPods") == (tc.want != "RemoveMark") ||
				tc.want != "RemoveMark" && action.PodsOf(s.Action)[0].Name != "a" {
				t.Errorf("got %s (%s) after %v, want %s", act(s), s.Reason, c.reads, tc.want)
			}
			c.did(ActionDone{})
			if s := c.next(); act(s) != "RemoveMark" || !slices.Contains(c.reads, "ListPods") {
				t.Errorf("the second time: got %s after %v, want a new list", act(s), c.reads)
			}
		})
	}
	t.Run("the list that was made before the mark", func(t *testing.T) {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.pods = []action.Pod{running("a")}
		c.upTo("SetMark", off)
		c.did(ActionDone{})
		rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1",
			By: "test"}.EnterPhase(taint.PhaseEvicting, "", c.now.Wall)
		c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1"}
		c.see()
		c.answer(off)
		if s := c.next(); act(s) != "EndPods" || slices.Contains(c.reads, "ListPods") {
			t.Errorf("got %s (%s) after %v, want the list that there is", act(s), s.Reason, c.reads)
		}
	})
	t.Run("lists that could not be cleared keep none", func(t *testing.T) {
		c := midst(t, taint.PhaseEvicting)
		c.look.InUse = []corev1.UniqueVolumeName{"v"}
		c.next()
		c.did(ActionDone{Err: errors.New("a conflict")})
		if s := c.next(); act(s) != "ClearVolumes" || !slices.Contains(c.reads, "ListPods") {
			t.Errorf("got %s (%s) after %v, want them cleared", act(s), s.Reason, c.reads)
		}
	})
}

// A proof is a device's report about the machine, from when the pods were listed: by the list before the mark, or by a
// later one. A person's word, and a decision that ends no pods, have none.
func TestProof(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*course)
		kept bool // the list was made before the mark, and before the question
		age  time.Duration
		want bool
	}{
		{"listed under the mark", func(*course) {}, false, 0, true},
		{"listed before the mark", func(*course) {}, true, 0, true},
		{"long ago", func(*course) {}, false, proof.TTL + time.Second, false},
		{"another answer since", func(c *course) { c.answer(unknown) }, false, 0, false},
		{"the last decision ends no pods", func(c *course) { c.node.lastDecision.Action = action.Wait{} }, false, 0,
			false},
		{"a policy ends them", func(c *course) {
			c.node.lastDecision.Action = action.EndPods{Policy: "p"}
		}, false, 0, false},
		{"another look since", func(c *course) { c.see() }, false, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := begin(t, &fleet.Fleet{}, "n1")
			c.pods = []action.Pod{running("a")}
			c.upTo("SetMark", off)
			c.did(ActionDone{})
			before := c.now
			rec := taint.Record{ID: "f-1", NodeUID: "u", BootID: "b", LeaseRV: "1",
				By: "test"}.EnterPhase(taint.PhaseEvicting, "", c.now.Wall)
			c.look.Record, c.look.Mark = &rec, &taint.Mark{Value: "f-1"}
			if !tc.kept {
				c.node.kept = podList{}
			}
			c.now = c.now.Add(time.Second)
			c.see()
			c.answer(off)
			asked := c.node.answers.Answer.At
			if s := c.next(); act(s) != "EndPods" {
				t.Fatalf("got %s (%s), want EndPods", act(s), s.Reason)
			}
			tc.edit(c)
			got, ok := c.node.Proof(c.now.Add(tc.age))
			if ok != tc.want {
				t.Fatalf("got a proof: %v, want %v", ok, tc.want)
			}
			since := asked
			if tc.kept {
				since = got.Since
			}
			if ok && (got.Node != "n1" || got.Asked != asked || got.Since != since || len(got.Pods) != 1 ||
				tc.kept && (got.Since.IsZero() || got.Since.After(before))) {
				t.Errorf("got %+v, want one of n1 and its pod, asked at %v, since %v", got, asked, since)
			}
		})
	}
}

// Each volume that goes wakes the node. To go on waiting takes a look and the cache, for a second after a list; what
// else is decided by then wants another list.
func TestWaitingForVolumesKeepsItsList(t *testing.T) {
	va := []action.Attachment{{Name: "va", PV: "pv"}}
	for _, tc := range []struct {
		name   string
		age    time.Duration
		change func(*course)
		want   reason.Reason
		lists  bool
	}{
		{"still attached", 900 * time.Millisecond, func(*course) {}, reason.WaitingDetach, false},
		{"still attached, after a second", time.Second, func(*course) {}, reason.WaitingDetach, true},
		{"still attached, and a pod that came", time.Second, func(c *course) { c.pods = []action.Pod{running("a")} },
			reason.Tombstoning, true},
		{"gone", 100 * time.Millisecond, func(c *course) { c.cached, c.live = nil, nil }, reason.Finished, true},
		{"entries in the lists", 100 * time.Millisecond,
			func(c *course) { c.look.InUse = []corev1.UniqueVolumeName{"v"} }, reason.Clearing, true},
		{"a heartbeat", 100 * time.Millisecond, func(c *course) { c.look.LeaseRV = "2" }, reason.WaitingDetach, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.cached, c.live = va, va
			if s := c.next(); act(s) != "Wait" || s.Reason != reason.WaitingDetach ||
				!slices.Contains(c.reads, "ListPods") {
				t.Fatalf("got %s (%s) after %v, want a list and a wait", act(s), s.Reason, c.reads)
			}
			c.now = c.now.Add(tc.age)
			c.answer(off)
			tc.change(c)
			c.now = c.node.kept.at.Add(tc.age)
			c.see()
			if s := c.next(); s.Reason != tc.want || slices.Contains(c.reads, "ListPods") != tc.lists {
				t.Errorf("got %s (%s) after %v, want %s, with a list: %v", act(s), s.Reason, c.reads, tc.want, tc.lists)
			}
		})
	}
}

// The lists are cleared once, and of what goes alone: the volume of a pod that could not be ended is looked up first.
// volumesAttached is not cleared again when its controller writes it back while it detaches (F5), but where the write
// failed.
func TestClearingKeepsAndRemembers(t *testing.T) {
	for _, failed := range []bool{false, true} {
		c := midst(t, taint.PhaseEvicting)
		c.cached = []action.Attachment{{Name: "va", PV: "pv-goes"}}
		c.live = c.cached
		stays := claims(running("stays"))
		c.pods = []action.Pod{ended("ended"), stays}
		c.volumes["stays"] = []action.Volume{{PV: "pv", Unique: "stays"}}
		c.look.InUse = []corev1.UniqueVolumeName{"stays", "goes"}
		c.look.Attached = []corev1.AttachedVolume{{Name: "stays"}, {Name: "goes"}}
		if s := c.next(); act(s) != "EndPods" {
			t.Fatalf("got %s (%s), want the pod ended", act(s), s.Reason)
		}
		c.did(ActionDone{Results: map[string]action.WriteResult{"stays": action.Failed}})
		s := c.next()
		lists, _ := s.Action.(action.ClearVolumes)
		if !slices.Equal(lists.InUse, c.look.InUse[:1]) || len(lists.Attached) != 1 ||
			lists.Attached[0].Name != "stays" {
			t.Fatalf("got %+v (%s), want all but one cleared", s.Action, s.Reason)
		}
		var o ActionDone
		if failed {
			o.Err = errors.New("a conflict")
		}
		c.did(o)
		c.look.InUse = c.look.InUse[:1]
		if s := c.next(); (act(s) == "ClearVolumes") != failed {
			t.Errorf("failed %v: got %s (%s)", failed, act(s), s.Reason)
		}
	}
}

// How the writes of pods ended decides what is tried next: a pod that changed or went is no trouble, any other failure
// rests, and keeps no other pod from its end.
func TestWritesThatFail(t *testing.T) {
	for _, tc := range []struct {
		name  string
		how   action.WriteResult
		times int    // the writes are tried
		want  string // b alone being left
		small bool
	}{
		{"gone", action.Accepted, 2, "EndPods", false},
		{"another client undoes it each time", action.Accepted, 3, "Wait", false},
		{"changed", action.Changed, 1, "EndPods", false},
		{"changed all the time", action.Changed, 4, "Wait", false},
		{"no quorum", action.Failed, 1, "Wait", false},
		{"too large", action.TooLarge, 1, "EndPods", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.pods = []action.Pod{running("a"), running("b"), running("c")}
			for range tc.times {
				if s := c.next(); act(s) != "EndPods" ||
					!slices.ContainsFunc(action.PodsOf(s.Action), func(p action.Pod) bool { return p.Name == "b" }) {
					t.Fatalf("got %s (%s) of %v, want b tried again", act(s), s.Reason, action.PodsOf(s.Action))
				}
				c.did(ActionDone{
					Results: map[string]action.WriteResult{"a": action.Accepted, "b": tc.how, "c": action.Accepted}})
				c.pods = []action.Pod{running("b")}
			}
			if s := c.next(); act(s) != tc.want || act(s) == "EndPods" && action.PodsOf(s.Action)[0].Small != tc.small {
				t.Errorf("got %s (%s) of %+v, want %s", act(s), s.Reason, action.PodsOf(s.Action), tc.want)
			}
		})
	}
}

// The mark goes however SetPodsNotReady ends: the run was cut short, nothing of it was tried, or the process came too
// late.
func TestSetNotReadyHoldsUpNothing(t *testing.T) {
	for name, o := range map[string]ActionDone{
		"written":       {Results: map[string]action.WriteResult{"a": action.Accepted}},
		"failed":        {Results: map[string]action.WriteResult{"a": action.Failed}},
		"changed":       {Results: map[string]action.WriteResult{"a": action.Changed}},
		"too large":     {Results: map[string]action.WriteResult{"a": action.TooLarge}},
		"not tried":     {Results: map[string]action.WriteResult{}},
		"the run ended": {Err: errors.New("proof lost")},
	} {
		t.Run(name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.pods = []action.Pod{readsReady(exempt(running("a")))}
			c.upTo("SetPodsNotReady", off)
			for range 10 {
				if c.did(o); name == "written" {
					c.pods[0].Ready = false
				}
				s := c.next()
				if act(s) == "AskDevices" {
					c.answer(off)
					s = c.next()
				}
				if act(s) == "RemoveMark" && action.RecordOf(s.Action).Result == taint.ResultEvicted {
					if left := len(s.Stuck) > 0; left != (name != "written") {
						t.Errorf("got %+v named, want the pod named if it still reads Ready", s.Stuck)
					}
					return
				}
				if act(s) != "SetPodsNotReady" {
					t.Fatalf("got %s (%s), want it tried again or the mark to go", act(s), s.Reason)
				}
			}
			t.Error("tried ten times, and the mark is still there")
		})
	}
}

// The condition appears while the node looks dead and its machine is on, stays while it looks dead, and goes when the
// node is back.
func TestPoweredOnCondition(t *testing.T) {
	for _, tc := range []struct {
		name  string
		has   bool
		ready corev1.ConditionStatus
		mode  fence.Mode
		label string // of the Node
		says  providers.PowerState
		want  bool // a write
		on    bool
	}{
		{"on, mode observe", false, corev1.ConditionUnknown, fence.Observe, "", on, true, true},
		{"on, the condition says so already", true, corev1.ConditionUnknown, fence.Observe, "", on, false, false},
		{"unknown by now", true, corev1.ConditionUnknown, fence.Observe, "", unknown, false, false},
		{"mode fence", false, corev1.ConditionUnknown, fence.Fence, "", on, false, false},
		{"mode fence, a host of KubeVirt", false, corev1.ConditionUnknown, fence.Fence, "kubevirt.io/schedulable", on,
			true, true},
		{"mode fence, a control-plane node", false, corev1.ConditionUnknown, fence.Fence,
			"node-role.kubernetes.io/control-plane", on, true, true},
		{"mode fence, a host of KubeVirt, unknown", false, corev1.ConditionUnknown, fence.Fence,
			"kubevirt.io/schedulable", unknown, false, false},
		{"mode shadow", false, corev1.ConditionUnknown, fence.Shadow, "kubevirt.io/schedulable", on, false, false},
		{"back", true, corev1.ConditionTrue, fence.Observe, "", on, true, false},
		{"well", false, corev1.ConditionTrue, fence.Observe, "", on, false, false},
	} {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.look.Labels = map[string]string{tc.label: ""}
		c.pods, c.look.PoweredOn, c.look.Ready, c.facts.Mode = []action.Pod{running("a")}, tc.has, tc.ready, tc.mode
		if tc.ready == corev1.ConditionTrue {
			c.look.LeaseRV = "2" // a heartbeat
		}
		s := c.next()
		if act(s) == "AskDevices" {
			c.answer(tc.says)
			s = c.next()
		}
		if a, writes := s.Action.(action.SetPoweredOnCondition); writes != tc.want || a.On != tc.on {
			t.Errorf("%s: got %+v (%s), want a write: %v, on %v", tc.name, s.Action, s.Reason, tc.want, tc.on)
		}
	}
}

// Where no device speaks for the machine, none is asked: that is the answer.
func TestNoDeviceToAsk(t *testing.T) {
	for name, make := range map[string]func() *course{
		"unmarked": func() *course { return begin(t, &fleet.Fleet{}, "n1") },
		"marked by a person": func() *course {
			c := begin(t, &fleet.Fleet{}, "n1")
			c.look.Mark = &taint.Mark{Value: "kim"}
			rec := taint.Record{ID: "kim", NodeUID: "u", BootID: "b", LeaseRV: "1",
				By: taint.ByPerson}.EnterPhase(taint.PhaseArmed, "", c.now.Wall)
			c.look.Record = &rec
			return c
		},
		"in the middle of our own": func() *course { return midst(t, taint.PhaseEvicting) },
	} {
		c := make()
		c.pods = []action.Pod{running("a")}
		c.facts.Devices, c.facts.NoDeviceErr = nil, errors.New("two rules claim the node")
		s := c.next()
		switch {
		case act(s) == "AskDevices":
			t.Errorf("%s: asks no device (%s)", name, s.Reason)
		case name == "unmarked" && (s.Reason != reason.NoMachine || s.Detail != "two rules claim the node"):
			t.Errorf("%s: got %s (%s) %q", name, act(s), s.Reason, s.Detail)
		case name == "in the middle of our own" && (act(s) != "Wait" || s.Reason != reason.ProofLost):
			t.Errorf("%s: got %s (%s), want a wait for a proof", name, act(s), s.Reason)
		}
	}
}

// A device's record of a false Off says nothing of a node for which no device speaks.
func TestDistrustWithoutDevice(t *testing.T) {
	now, m := providers.InstantOf(newYear), taint.MachineRef{Provider: "racks", ID: "7"}
	lied := taint.Record{ID: "f", NodeUID: "u", Machine: &m, Device: "racks/7"}.
		EnterPhase(taint.PhaseDone, taint.ResultNeverPoweredOff, newYear)
	var f fleet.Fleet
	f.ApplyLook(taint.Look{Exists: true, Name: "n2", UID: "u", ResourceVersion: "1", Record: &lied}, now)
	n := Node{look: taint.Look{Name: "n1"}}
	n.facts.Devices = []proof.Device{{Name: "racks/7", Machine: m}}
	if got := n.distrustingNode(&f); got != "n2" {
		t.Errorf("its only device: distrusted by %q, want n2", got)
	}
	n.facts.NoDeviceErr = errors.New("two rules claim the node")
	if got := n.distrustingNode(&f); got != "" {
		t.Errorf("no device speaks for it: distrusted by %q, want none", got)
	}
}

// A node that nothing points at costs no look.
func TestIdle(t *testing.T) {
	well := taint.Look{Exists: true, Name: "n1", UID: "u", BootID: "b", LeaseRV: "1", Ready: corev1.ConditionTrue}
	ended := func(res taint.Result, boot string) *taint.Record {
		r := taint.Record{ID: "f", NodeUID: "u", BootID: boot, LeaseRV: "1"}.EnterPhase(taint.PhaseDone, res, newYear)
		return &r
	}
	open := taint.Record{ID: "f", NodeUID: "u", BootID: "b", LeaseRV: "1"}.EnterPhase(taint.PhasePoweringOff, "",
		newYear)
	for _, tc := range []struct {
		name   string
		change func(*taint.Look, *fleet.View)
		want   bool
	}{
		{"well", func(*taint.Look, *fleet.View) {}, true},
		{"NotReady", func(l *taint.Look, _ *fleet.View) { l.Ready = corev1.ConditionFalse }, false},
		{"silent", func(_ *taint.Look, v *fleet.View) { v.Stale = true }, false},
		{"its device says so", func(_ *taint.Look, v *fleet.View) { v.Hint = fleet.Push }, false},
		{"marked", func(l *taint.Look, _ *fleet.View) { l.Mark = &taint.Mark{Value: "kim"} }, false},
		{"a record that cannot be read", func(l *taint.Look, _ *fleet.View) { l.RecordErr = errors.New("no JSON") },
			false},
		{"an open fence", func(l *taint.Look, _ *fleet.View) { l.Record = &open }, false},
		{"cancelled", func(l *taint.Look, _ *fleet.View) { l.Record = ended(taint.ResultCancelled, "b") }, true},
		{"evicted, on another boot",
			func(l *taint.Look, _ *fleet.View) { l.Record = ended(taint.ResultEvicted, "before") }, true},
		{"evicted, on the same boot", func(l *taint.Look, _ *fleet.View) { l.Record = ended(taint.ResultEvicted, "b") },
			false},
		{"returned, on the same boot",
			func(l *taint.Look, _ *fleet.View) { l.Record = ended(taint.ResultReturned, "b") }, false},
		{"evicted, on the same boot, and started since", func(l *taint.Look, _ *fleet.View) {
			l.Record = ended(taint.ResultEvicted, "b")
			l.Record.Run, l.Record.Restart = "1", "2"
		}, true},
		{"evicted, on the same boot, and not reported yet", func(l *taint.Look, _ *fleet.View) {
			l.Record = ended(taint.ResultEvicted, "b")
			l.Record.Run = "1"
		}, false},
		{"known to be never off",
			func(l *taint.Look, _ *fleet.View) { l.Record = ended(taint.ResultNeverPoweredOff, "b") }, true},
		{"powered on by us", func(l *taint.Look, _ *fleet.View) { l.PoweredOn = true }, false},
	} {
		l, v := well, fleet.View{Heard: true}
		if tc.change(&l, &v); new(Node).IsIdle(l, v) != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, !tc.want, tc.want)
		}
	}
}

// When the mark goes the pods are named that only finalizers keep; and when there is nothing to evict, those that stay
// by themselves.
func TestNamesWhatStays(t *testing.T) {
	c := midst(t, taint.PhaseEvicting)
	kept := ended("kept")
	kept.Deleting, kept.Finalizers = true, []string{"example.net/keep"}
	theirs := running("theirs") // not ours to end
	theirs.Exempt, theirs.Grace, theirs.Finalizers = taint.ExemptDaemon, 0, []string{"example.net/keep"}
	c.pods = []action.Pod{kept, theirs}
	s := c.next()
	if a, _ := s.Action.(action.RemoveMark); len(a.HeldPods) != 1 || a.HeldPods[0].Name != "kept" {
		t.Errorf("got %+v (%s), want the ended pod kept", s.Action, s.Reason)
	}

	c = begin(t, &fleet.Fleet{}, "n1")
	done := action.Pod{Namespace: "ns", Name: "done", Exempt: taint.ExemptTolerate, Terminal: true}
	c.pods = []action.Pod{exempt(running("agent")), done}
	if s := c.next(); s.Reason != reason.NoWork || s.Detail != "no pod has to move" {
		t.Errorf("got %s: %s", s.Reason, s.Detail)
	}
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		p := exempt(running(n))
		p.Exempt = taint.ExemptTolerate
		c.pods = append(c.pods, p)
	}
	if s := c.next(); s.Reason != reason.NoWork ||
		!strings.HasSuffix(s.Detail, "stay: ns/a, ns/b, ns/c, ns/d, ns/e and 2 more") {
		t.Errorf("got %s: %s", s.Reason, s.Detail)
	}
}

// A control-plane or etcd node is not powered off, whichever label names it.
func TestIsControlPlane(t *testing.T) {
	for label, want := range map[string]bool{
		"node-role.kubernetes.io/control-plane": true, "node-role.kubernetes.io/master": true,
		"node-role.kubernetes.io/etcd":   true,
		"node-role.kubernetes.io/worker": false,
	} {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.pods, c.look.Labels = []action.Pod{running("a")}, map[string]string{label: ""}
		c.next()
		c.answer(on)
		if s := c.next(); (s.Reason == reason.ControlPlane) != want || (act(s) == "WriteRecord") == want {
			t.Errorf("%s: got %s (%s)", label, act(s), s.Reason)
		}
	}
}

// Of two devices each is believed, and powered off through, for itself.
func TestTwoDevices(t *testing.T) {
	second := proof.Device{Name: "pdu/n1", Level: 1, Machine: taint.MachineRef{Provider: "pdu", ID: "n1"}}
	lied := func(c *course, who ...proof.Device) {
		rec := taint.Record{ID: "f-0", FalseOffs: proof.SpeakersOf(who)}.EnterPhase(taint.PhaseDone,
			taint.ResultNeverPoweredOff,
			c.now.Wall)
		c.fleet.ApplyRecord("n2", "7", &rec, c.now)
	}
	for _, tc := range []struct {
		name string
		liar int // which lied before; 2: both
		says [2]providers.PowerState
		want providers.PowerState
		ends bool
	}{
		{"the first lied, and says Off alone", 0, [2]providers.PowerState{off, unknown}, unknown, false},
		{"the first lied, the second says Off", 0, [2]providers.PowerState{unknown, off}, off, true},
		{"the first lied, and says On", 0, [2]providers.PowerState{on, off}, unknown, false},
		{"the second lied, and says Off alone", 1, [2]providers.PowerState{unknown, off}, unknown, false},
		{"the second lied, the first says Off", 1, [2]providers.PowerState{off, off}, off, true},
		{"both lied", 2, [2]providers.PowerState{off, off}, unknown, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := midst(t, taint.PhaseEvicting)
			c.facts.Devices = append(slices.Clone(c.facts.Devices), second)
			c.pods = []action.Pod{running("a")}
			lied(c, append(slices.Clone(c.facts.Devices), c.facts.Devices...)[tc.liar%2:tc.liar%2+1+tc.liar/2]...)
			c.see()
			c.say(tc.says[0], tc.says[1])
			if got := c.node.Answer().State; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if s := c.next(); (act(s) == "EndPods") != tc.ends {
				t.Errorf("got %s (%s)", act(s), s.Reason)
			}
		})
	}

	// A node is left alone only when none of its devices is believed.
	c := begin(t, &fleet.Fleet{}, "n1")
	c.facts.Devices = append(slices.Clone(c.facts.Devices), second)
	c.pods = []action.Pod{running("a")}
	lied(c, c.facts.Devices[0])
	if s := c.next(); act(s) != "AskDevices" {
		t.Errorf("one lied: got %s (%s), want the question", act(s), s.Reason)
	}
	lied(c, c.facts.Devices...)
	c.fleet.ApplyRecord("n2", "8", func() *taint.Record {
		r := taint.Record{ID: "f-0", FalseOffs: proof.SpeakersOf(c.facts.Devices)}.EnterPhase(taint.PhaseDone,
			taint.ResultNeverPoweredOff, c.now.Wall)
		return &r
	}(), c.now)
	c.see()
	if s := c.next(); s.Reason != reason.Distrusted || s.Detail != "n2" {
		t.Errorf("both lied: got %s (%s, %s), want the node left alone, by n2's record", act(s), s.Reason, s.Detail)
	}

	// The power-off goes through the device that answers, and after a refusal through the next at once.
	c = announced(t)
	c.facts.Devices = append(slices.Clone(c.facts.Devices), second)
	through := func() int {
		t.Helper()
		for range 20 {
			switch s := c.next(); act(s) {
			case "PowerOff":
				return s.Action.(action.PowerOff).Move.Device
			case "AskDevices":
				c.say(unknown, on)
			case "Wait":
				c.pass(s.RequeueAfter)
			default:
				t.Fatalf("got %s (%s)", act(s), s.Reason)
			}
		}
		t.Fatal("no power-off")
		return 0
	}
	before := c.now
	if d := through(); d != 1 {
		t.Errorf("through device %d, want the second, which answers", d)
	}
	c.did(ActionDone{SentAt: c.now, Err: providers.ErrUnreachable})
	if d := through(); d != 0 || c.now.Sub(before) > time.Second {
		t.Errorf("refused: through device %d after %s, want the first at once", d, c.now.Sub(before))
	}
}

// A host of KubeVirt is not powered off unless the configuration says so: its virtual machines may serve. One that is
// off is recovered as any node.
func TestHostOfKubeVirt(t *testing.T) {
	host := func(may bool) *course {
		c := begin(t, &fleet.Fleet{}, "n1")
		c.pods, c.facts.VMHosts = []action.Pod{running("a")}, may
		c.look.Labels = map[string]string{"kubevirt.io/schedulable": "false"}
		c.look.PoweredOn = !may // the condition says so already
		return c
	}
	c := host(false)
	c.next()
	c.answer(on)
	if s := c.next(); act(s) != "Wait" || s.Reason != reason.VMHost {
		t.Errorf("it is on: got %s (%s), want it left on", act(s), s.Reason)
	}
	if s := host(true).upTo("WriteRecord", on); s.Reason != reason.Announcing {
		t.Errorf("it is on, and may be powered off: got %s (%s)", act(s), s.Reason)
	}
	if s := host(false).upTo("SetMark", off); s.Reason != reason.ProvenOff {
		t.Errorf("it is off: got %s (%s), want it marked", act(s), s.Reason)
	}
}

// act names a decision's action; a list of attachments says where it comes from.
func act(d action.Decision) string {
	if a, is := d.Action.(action.ListAttachments); is && a.Live {
		return "ListAttachments live"
	}
	return action.Name(d.Action)
}

// Volumes stay attached if their pod stays: it is exempt, or its fence spared it.
func TestAttachments(t *testing.T) {
	rec := &taint.Record{ID: "f-1", Since: newYear}
	pod := func(change func(*action.Pod)) []action.Pod {
		p := action.Pod{Namespace: "db", Name: "a", UID: "a", Volumes: []action.Volume{{PV: "v"}}}
		change(&p)
		return []action.Pod{p}
	}
	atts := []action.Attachment{{Name: "va-v", PV: "v"}, {Name: "va-other", PV: "other"}, {Name: "va-inline"}}
	for _, tt := range []struct {
		name  string
		pods  []action.Pod
		rec   *taint.Record
		stays bool // the volume v
	}{
		{"no pod", nil, rec, false},
		{"it moves", pod(func(*action.Pod) {}), rec, false},
		{"exempt", pod(func(p *action.Pod) { p.Exempt = taint.ExemptDaemon }), rec, true},
		{"exempt and finished", pod(func(p *action.Pod) { p.Exempt, p.Terminal = taint.ExemptDaemon, true }), rec,
			false},
		{"spared by this fence", pod(func(p *action.Pod) { p.Spared = rec.Token() }), rec, true},
		{"spared by another fence", pod(func(p *action.Pod) { p.Spared = "f-0/2025" }), rec, false},
		{"spared, and there is no record", pod(func(p *action.Pod) { p.Spared = rec.Token() }), nil, false},
	} {
		for _, kept := range []bool{false, true} {
			n := Node{look: taint.Look{Record: tt.rec}, atts: attachmentList{have: true, list: atts}}
			if n.pods = (podList{have: true, pods: tt.pods}); kept {
				n.pods, n.kept = podList{}, n.pods
			}
			leaving, staying, listed := n.Attachments()
			want := []action.Attachment{}
			if tt.stays {
				want = atts[:1]
			}
			if !listed || !slices.Equal(staying, want) || len(leaving)+len(staying) != len(atts) {
				t.Errorf("%s, kept list %t: got %v leaving, %v staying, want %v staying", tt.name, kept, leaving,
					staying, want)
			}
		}
	}
	if _, _, listed := (&Node{}).Attachments(); listed {
		t.Error("attachments count as listed before they are")
	}
}

// say lets each device answer at once.
func (c *course) say(states ...providers.PowerState) {
	var all []providers.Answer
	for _, s := range states {
		all = append(all,
			providers.Answer{Observation: providers.Observation{State: s, Raw: s.String(), At: c.now}, Got: c.now})
	}
	c.node.Apply(c.now, c.fleet, DevicesAnswered{Answers: all})
	c.now = c.now.Add(time.Millisecond)
}

// What an operator reads of a node's devices.
func TestLastAnswerText(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"before any look", func() {}, "not asked"},
		{"a look", c.see, "not asked"},
		{"an answer", func() { c.answer(off) }, `Off ("Off")`},
		{"no device any more", func() { c.facts.NoDeviceErr = errors.New("no rule matches n1"); c.see() },
			"no rule matches n1"},
	} {
		step.change()
		if got := c.node.LastAnswerText(); got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
}

func TestNoteFieldsNameTheDevices(t *testing.T) {
	c := begin(t, &fleet.Fleet{}, "n1")
	c.see()
	device := func() string {
		fields := c.node.NoteFields(action.Decision{}, "")
		return fields[slices.Index(fields, "{device}")+1]
	}
	if got := device(); got != "bmc/n1" {
		t.Errorf("got device %q, want bmc/n1", got)
	}
	c.facts.Devices = append(slices.Clone(c.facts.Devices), proof.Device{Name: "people/n1", Level: 1})
	c.see()
	for _, tc := range []struct {
		says [2]providers.PowerState
		want string
	}{
		{[2]providers.PowerState{off, unknown}, "bmc/n1"},
		{[2]providers.PowerState{unknown, off}, "people/n1"},
		{[2]providers.PowerState{off, off}, "bmc/n1 and people/n1"},
		{[2]providers.PowerState{unknown, unknown}, "bmc/n1 and people/n1"},
	} {
		c.say(tc.says[:]...)
		if got := device(); got != tc.want {
			t.Errorf("they say %v: got device %q, want %q", tc.says, got, tc.want)
		}
	}
	c.facts.Devices = nil
	c.see()
	if got := device(); got != "(none)" {
		t.Errorf("without a device: got %q, want (none)", got)
	}
}

// While a node that may be the same machine is heard, no write that needs a proof is sent any more, although it
// was decided before.
func TestTwinHoldsWrites(t *testing.T) {
	c := midst(t, taint.PhaseEvicting)
	c.pods = []action.Pod{running("a")}
	c.upTo("EndPods", off)
	v := c.fleet.View("n1", c.now)
	if got := c.node.HoldsFor("a", c.now, v); got != HoldYes {
		t.Fatalf("got %v, want the write allowed", got)
	}
	if v.Twin = "n8"; c.node.HoldsFor("a", c.now, v) != HoldNo {
		t.Error("a pod is ended while a node that may be the same machine is heard")
	}
}
