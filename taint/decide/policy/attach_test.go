package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// waits and hurries are volume attachment recovery's two rules.
func waits() Policy {
	return Policy{Name: "r", When: NotReady, Owners: []string{"ReplicaSet"}, Drivers: []string{"csi"},
		Terminating: true, Keep: true, Detach: true,
		WithoutProof: AcceptDuplicates}
}

func hurries() Policy {
	p := waits()
	p.Terminating, p.Replaced = false, true
	return p
}

// user is a terminating pod of a ReplicaSet that uses volumes of the driver, by their PVs.
func user(name string, pvs ...string) action.Pod {
	p := action.Pod{Namespace: "web", Name: name, UID: name, Owner: action.Owner{Kind: "ReplicaSet", Name: "s"},
		Deleting: true, DeleteAt: now.Add(-time.Second).Wall}
	for _, pv := range pvs {
		p.Volumes = append(p.Volumes, action.Volume{PV: pv, Claim: "claim-" + pv, Driver: "csi"})
	}
	return p
}

// entombed is the pod with a tombstone.
func entombed(p action.Pod) action.Pod {
	p.Terminal, p.Tombstone = true, true
	return p
}

func attachment(pv string) action.Attachment {
	return action.Attachment{Name: "va-" + pv, UID: "uid-" + pv, ResourceVersion: "1", PV: pv, Attacher: "csi"}
}

// A pod is ended and kept if that frees its volumes. Then their attachments are deleted, and no others.
func TestAttachments(t *testing.T) {
	in := now.Add(3 * time.Second)
	tests := []struct {
		name   string
		p      Policy
		pods   []action.Pod
		change func(v *View)
		want   string
	}{
		{"wait needs no waiting pod", waits(), []action.Pod{user("a", "v")}, nil, "end[a]"},
		{"in its grace", waits(),
			[]action.Pod{
				{Namespace: "web", UID: "a", Owner: action.Owner{Kind: "ReplicaSet"}, Deleting: true, DeleteAt: in.Wall,
					Volumes: []action.Volume{{PV: "v", Driver: "csi"}}}}, nil, "wait 3s"},
		{"it was not deleted", waits(),
			[]action.Pod{
				{UID: "a", Owner: action.Owner{Kind: "ReplicaSet"},
					Volumes: []action.Volume{{PV: "v", Driver: "csi"}}}}, nil, "wait 5s"},
		{"a Deployment's, whose ReplicaSet another policy asked about", waits(), []action.Pod{func() action.Pod {
			p := user("a", "v")
			p.Owner = action.Owner{Kind: "Deployment", Name: "d", Known: true, Direct: "ReplicaSet"}
			return p
		}()}, nil, "end[a]"},
		{"a StatefulSet's", waits(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.Owner.Kind = "StatefulSet"; return p }()}, nil,
			"wait 30s"},
		{"a pod without owner", waits(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.Owner = action.Owner{}; return p }()}, nil,
			"wait 30s"},
		{"of another driver", waits(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.Volumes[0].Driver = "x"; return p }()}, nil,
			"wait 30s"},
		{"exempt", waits(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.Exempt = taint.ExemptTolerate; return p }()}, nil,
			"wait 30s"},

		{"another that may end uses the volume, too", waits(), []action.Pod{user("a", "v"), user("b", "v")}, nil,
			"end[a b]"},
		{"one in its grace uses the volume, too", waits(),
			[]action.Pod{user("a", "v"), func() action.Pod { p := user("b", "v"); p.DeleteAt = in.Wall; return p }()},
			nil, "wait 3s"},
		{"one that stays uses the volume, too", waits(),
			[]action.Pod{user("a", "v"), func() action.Pod { p := user("b", "v"); p.Owner.Kind = "Job"; return p }()},
			nil, "wait 5s"},
		{"a static one uses the volume, too", waits(),
			[]action.Pod{user("a", "v"),
				func() action.Pod { p := user("b", "v"); p.Exempt = taint.ExemptStatic; return p }()}, nil, "wait 5s"},
		{"one that stays uses it by another name", waits(),
			[]action.Pod{user("a", "v"),
				{Namespace: "elsewhere", UID: "b", Volumes: []action.Volume{{PV: "v", Claim: "x"}}}}, nil, "wait 5s"},
		{"one whose volumes were not read", waits(), []action.Pod{user("a", "v"), {Name: "b", UID: "b", Claims: true}},
			nil, "volumes[b]"},
		{"one that stays has a claim that cannot be read", waits(), []action.Pod{user("a", "v"),
			{Name: "b", UID: "b", Volumes: []action.Volume{{Claim: "x", Unread: true}}}}, nil, "wait 5s"},
		{"one that stays has too many claims to be read", waits(), []action.Pod{user("a", "v"),
			{Namespace: "web", Name: "b", UID: "b",
				Volumes: []action.Volume{{Claim: action.UnreadClaim, Unread: true}}}}, nil, "wait 5s"},
		{"one of another namespace has too many", waits(), []action.Pod{user("a", "v"),
			{Namespace: "elsewhere", Name: "b", UID: "b",
				Volumes: []action.Volume{{Claim: action.UnreadClaim, Unread: true}}}}, nil, "end[a]"},
		{"one of its own claims cannot be read", waits(), []action.Pod{func() action.Pod {
			p := user("a", "v")
			p.Volumes = append(p.Volumes, action.Volume{Claim: "x", Unread: true})
			return p
		}()}, nil, "wait 30s"},
		{"a finished one used the volume", waits(),
			[]action.Pod{user("a", "v"), func() action.Pod { p := user("b", "v"); p.Terminal = true; return p }()}, nil,
			"end[a]"},
		{"one that stays uses a volume of one that shares another", waits(),
			[]action.Pod{user("a", "v"), user("b", "v", "w"), func() action.Pod {
				p := user("c", "w")
				p.DeleteAt = time.Time{}
				return p
			}()}, nil, "wait 5s"},
		{"others go all the same", waits(),
			[]action.Pod{user("a", "v"), user("b", "w"), {UID: "c", Volumes: []action.Volume{{PV: "w"}}}}, nil,
			"end[a]"},
		{"a policy that does not detach takes no heed",
			func() Policy { p := waits(); p.Keep, p.Detach = false, false; return p }(), []action.Pod{user("a", "v"),
				{UID: "b", Volumes: []action.Volume{{PV: "v"}}}}, nil, "end[a]"},

		{"immediate: waiting pods not read", hurries(), []action.Pod{user("a", "v")}, nil, "waiting[a]"},
		{"immediate: no pod waits", hurries(), []action.Pod{user("a", "v")},
			func(v *View) { v.AwaitedClaims = map[string]bool{} }, "wait 5s"},
		{"immediate: one waits for it", hurries(), []action.Pod{user("a", "v")},
			func(v *View) { v.AwaitedClaims = map[string]bool{"web/claim-v": true} }, "end[a]"},
		{"immediate: in its grace", hurries(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.DeleteAt = in.Wall; return p }()},
			func(v *View) { v.AwaitedClaims = map[string]bool{"web/claim-v": true} }, "end[a]"},
		{"immediate: it was not deleted", hurries(),
			[]action.Pod{func() action.Pod {
				p := user("a", "v")
				p.Deleting, p.DeleteAt = false, time.Time{}
				return p
			}()},
			func(v *View) { v.AwaitedClaims = map[string]bool{"web/claim-v": true} }, "wait 5s"},
		{"immediate: one waits for a claim of that name elsewhere", hurries(), []action.Pod{user("a", "v")},
			func(v *View) { v.AwaitedClaims = map[string]bool{"db/claim-v": true} }, "wait 5s"},
		{"immediate: one waits for another driver's volume of its", hurries(), []action.Pod{func() action.Pod {
			p := user("a", "v", "w")
			p.Volumes[1].Driver = "x"
			return p
		}()}, func(v *View) { v.AwaitedClaims = map[string]bool{"web/claim-w": true} }, "wait 5s"},

		{"ended before this process: the attachments", waits(), []action.Pod{entombed(user("a", "v"))}, nil,
			"attachments[]"},
		{"they go", waits(), []action.Pod{entombed(user("a", "v"))}, func(v *View) { v.listed(attachment("v")) },
			"detach[va-v]"},
		{"they are going", waits(), []action.Pod{entombed(user("a", "v"))},
			func(v *View) { a := attachment("v"); a.Deleting = true; v.listed(a) }, "wait 30s"},
		{"they are gone", waits(), []action.Pod{entombed(user("a", "v"))}, func(v *View) { v.listed() }, "wait 30s"},
		{"others' stay", waits(), []action.Pod{entombed(user("a", "v"))},
			func(v *View) { v.listed(attachment("w"), attachment("v")) }, "detach[va-v]"},
		{"another attacher's stays", waits(), []action.Pod{entombed(user("a", "v"))},
			func(v *View) { a := attachment("v"); a.Attacher = "x"; v.listed(a) }, "wait 30s"},
		{"that of a volume that one uses who stays, too", waits(),
			[]action.Pod{entombed(user("a", "v")), {UID: "b", Volumes: []action.Volume{{PV: "v"}}}},
			func(v *View) { v.listed(attachment("v")) }, "wait 30s"},
		{"that of a volume that one with an unread claim may use", waits(), []action.Pod{entombed(user("a", "v")),
			{UID: "b", Volumes: []action.Volume{{Claim: "x", Unread: true}}}},
			func(v *View) { v.listed(attachment("v")) }, "wait 5s"},
		{"volumes of others not read", waits(),
			[]action.Pod{entombed(user("a", "v")), {Name: "b", UID: "b", Claims: true}},
			func(v *View) { v.listed(attachment("v")) }, "volumes[b]"},
		{"a tombstone of a StatefulSet's", waits(),
			[]action.Pod{func() action.Pod { p := entombed(user("a", "v")); p.Owner.Kind = "StatefulSet"; return p }()},
			func(v *View) { v.listed(attachment("v")) }, "wait 30s"},
		{"finished by itself", waits(),
			[]action.Pod{func() action.Pod { p := user("a", "v"); p.Terminal = true; return p }()},
			func(v *View) { v.listed(attachment("v")) }, "wait 30s"},
		{"a tombstone that was not deleted", waits(), []action.Pod{func() action.Pod {
			p := entombed(user("a", "v"))
			p.Deleting = false
			return p
		}()}, func(v *View) { v.listed(attachment("v")) }, "wait 30s"},
		{"refused a moment ago", waits(), []action.Pod{entombed(user("a", "v")), entombed(user("b", "w"))},
			func(v *View) {
				v.listed(attachment("v"), attachment("w"))
				v.wroteAttachments(v.Attachments, action.Denied)
			}, "detach[va-w]"},
		{"all refused a moment ago", waits(), []action.Pod{entombed(user("a", "v"))}, func(v *View) {
			v.listed(attachment("v"))
			v.wroteAttachments(v.Attachments, action.Denied)
		}, "wait 5s"},
		{"the node is back", waits(), []action.Pod{entombed(user("a", "v"))},
			func(v *View) { v.listed(attachment("v")); v.Look.Ready = corev1.ConditionTrue }, "leave"},
		{"the node is marked", waits(), []action.Pod{entombed(user("a", "v"))},
			func(v *View) { v.listed(attachment("v")); v.Look.Mark = &taint.Mark{} }, "leave"},
		{"a fence has begun", waits(), []action.Pod{entombed(user("a", "v"))}, func(v *View) {
			v.listed(attachment("v"))
			v.Look.Record = &taint.Record{Phase: taint.PhasePoweringOff}
		}, "leave"},
		{"all nodes look dead", waits(), []action.Pod{entombed(user("a", "v"))}, func(v *View) {
			v.listed(attachment("v"))
			v.Storm.Detail = "zone lost"
		}, "wait 5s: zone lost"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := View{Now: now, Look: down(), Listed: true, Pods: tt.pods, Policies: []Policy{tt.p}}
			v.Memory.ApplyPods(tt.pods)
			if tt.change != nil {
				tt.change(&v)
			}
			if got := what(announced(v)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// listed is that the API server listed these attachments.
func (v *View) listed(all ...action.Attachment) {
	v.Attached, v.Attachments = true, all
	v.Memory.ApplyAttachments(all)
}

// wroteAttachments is that the deletion of volume v's attachment, one of these, ended so.
func (v *View) wroteAttachments(all []action.Attachment, how action.WriteResult) {
	v.Memory.ApplyWrites(action.DeleteAttachments{Attachments: all}, Effects{},
		map[string]action.WriteResult{"uid-v": how}, now)
}

// story plays Step against one node until it waits or leaves, and keeps the actions.
type story struct {
	v     View
	pods  []action.Pod
	atts  []action.Attachment
	waits map[string]bool
	keep  bool // pods that are deleted stay: another controller deletes them meanwhile
}

func (s *story) play() string {
	var acts []string
	for range 30 {
		d, e := announced(s.v)
		s.v.Memory.ApplyEffects(e)
		how := map[string]action.WriteResult{}
		switch d.Action.(type) {
		case action.ListPods:
			s.v.Listed, s.v.Pods = true, slices.Clone(s.pods)
			s.v.Memory.ApplyPods(s.v.Pods)
			continue
		case action.ReadAwaitedClaims:
			s.v.AwaitedClaims = s.waits
			continue
		case action.ListAttachments:
			s.v.listed(slices.Clone(s.atts)...)
			continue
		case action.NoAction, action.Wait:
			return strings.Join(acts, ", ")
		}
		acts = append(acts, what(d, e))
		for _, p := range action.PodsOf(d.Action) {
			how[p.UID] = action.Accepted
			i := slices.IndexFunc(s.pods, func(q action.Pod) bool { return q.UID == p.UID })
			if action.Is[action.DeletePods](d) || s.keep {
				s.pods = slices.Delete(s.pods, i, i+1)
			} else {
				s.pods[i] = entombed(s.pods[i])
			}
		}
		if a, ok := d.Action.(action.DeleteAttachments); ok {
			for _, a := range a.Attachments {
				how[a.UID] = action.Accepted
				s.atts = slices.DeleteFunc(s.atts, func(b action.Attachment) bool { return b.UID == a.UID })
			}
		}
		s.v.Memory.ApplyWrites(d.Action, e, how, s.v.Now)
		s.v.Listed, s.v.Pods, s.v.AwaitedClaims, s.v.Attached, s.v.Attachments = false, nil, nil, false, nil
	}
	return strings.Join(acts, ", ") + ", for ever"
}

// Where pods are deleted, too, they go first. What they freed is remembered when they are gone, and is done once.
func TestAttachmentsAfterDeletion(t *testing.T) {
	deletes := Policy{Name: "d", When: NotReady, Owners: []string{"Deployment"}, Drivers: []string{"csi"},
		Terminating: true, WithoutProof: AcceptDuplicates}
	pods := func() []action.Pod {
		of := func(name, kind, direct, pv string) action.Pod {
			p := user(name, pv)
			p.Owner = action.Owner{Kind: kind, Known: true, Direct: direct}
			return p
		}
		return []action.Pod{of("deployment", "Deployment", "ReplicaSet", "v"),
			of("alone", "ReplicaSet", "ReplicaSet", "w"), of("set", "StatefulSet", "StatefulSet", "x")}
	}
	all := []action.Attachment{attachment("v"), attachment("w"), attachment("x")}
	inGrace := pods()
	for i := range inGrace {
		inGrace[i].DeleteAt = now.Add(time.Minute).Wall
	}
	tests := []struct {
		name     string
		policies []Policy
		pods     []action.Pod
		keep     bool
		want     string
		left     string
	}{
		{"never", []Policy{deletes}, pods(), false, "end[deployment], delete[deployment]", "alone set"},
		{"wait", []Policy{deletes, waits()}, pods(), false, "end[deployment], delete[deployment], end[alone], " +
			"detach[va-v va-w]", "alone set"},
		{"immediate", []Policy{deletes, hurries()}, pods(), false,
			"end[deployment], delete[deployment], end[alone], detach[va-v va-w]", "alone set"},
		{"wait, without a deletion", []Policy{waits()}, pods(), false, "end[deployment alone], detach[va-v va-w]",
			"deployment alone set"},
		{"immediate, before the grace is over", []Policy{deletes, hurries()}, inGrace, false,
			"end[deployment alone], detach[va-v va-w]", "deployment alone set"},
		{"another controller deletes what was ended", []Policy{deletes, waits()}, pods(), true,
			"end[deployment], end[alone], detach[va-v va-w]", "set"},
		{"a policy that ends all, and detaches",
			[]Policy{{Name: "p", When: NotReady, Drivers: []string{"csi"}, Detach: true, WithoutProof: StorageFences}},
			pods(), false,
			"end[deployment alone set], delete[deployment alone set], detach[va-v va-w va-x]", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &story{v: View{Now: now, Look: down(), Policies: tt.policies}, pods: tt.pods, atts: slices.Clone(all),
				keep:  tt.keep,
				waits: map[string]bool{"web/claim-v": true, "web/claim-w": true}}
			if got := s.play(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			var left []string
			for _, p := range s.pods {
				left = append(left, p.Name)
			}
			if got := strings.Join(left, " "); got != tt.left {
				t.Errorf("left: got %q, want %q", got, tt.left)
			}
			s.v.Listed, s.v.Attached = false, false
			if got := s.play(); got != "" {
				t.Errorf("a second time: got %q, want nothing", got)
			}
		})
	}
	// A pod that was ended in its grace is deleted when that is over, also by a process that did not end it.
	s := &story{v: View{Now: now, Look: down(), Policies: []Policy{deletes, hurries()}}, pods: inGrace[:1],
		atts: slices.Clone(all)}
	s.pods[0] = entombed(s.pods[0])
	if got := s.play(); got != "detach[va-v]" {
		t.Errorf("in its grace: got %q", got)
	}
	s.v.Now, s.v.Listed = now.Add(time.Minute), false
	if got := s.play(); got != "delete[deployment]" {
		t.Errorf("after it: got %q", got)
	}
}

// A policy whose trigger is the change has not done before what its pods used is detached.
func TestDetachBeforeDone(t *testing.T) {
	p := Policy{Name: "once", When: BecameNotReady, Drivers: []string{"csi"}, Detach: true, WithoutProof: StorageFences}
	s := &story{v: View{Now: now, Policies: []Policy{p}}, pods: []action.Pod{user("a", "v")},
		atts: []action.Attachment{attachment("v")}}
	s.v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue})
	s.v.Look = down()
	s.v.Memory.ApplyLook(s.v.Look)
	refused := s.v
	refused.Listed, refused.Attached, refused.Attachments = true, true, s.atts
	refused.Memory.loose = map[string]string{"v": "once"}
	refused.wroteAttachments(s.atts, action.Failed)
	if d, e := Step(refused); !action.Is[action.Wait](d) || len(e.Done) > 0 {
		t.Errorf("while the deletion rests: got %s, done %v, want it not done", what(d, e), e.Done)
	}
	if got, want := s.play(), "end[a], delete[a], detach[va-v]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := s.v.Memory.done, map[string]int{"once": 1}; !maps.Equal(got, want) {
		t.Errorf("done: got %v, want %v", got, want)
	}
}

// A new leader that finds an ended pod remembers its volumes with the first deletion of an attachment: the pod may be
// gone before the last one.
func TestFoundWithTheFirstDetach(t *testing.T) {
	v := View{Now: now, Look: down(), Listed: true, Attached: true, Policies: []Policy{waits()},
		Pods: []action.Pod{entombed(user("a", "v", "w"))}, Attachments: []action.Attachment{attachment("v")}}
	d, e := announced(v)
	if !action.Is[action.DeleteAttachments](d) || len(e.Found["a"]) != 2 {
		t.Errorf("got %s, found %v; want a deletion, and both volumes", what(d, e), e.Found)
	}
}

// A deletion that failed is not retried once its own policy's spell is over. Another policy's spell says nothing.
func TestFailedDetachIsRetried(t *testing.T) {
	spells := fenced(StorageFences) // named p
	for _, by := range []string{"r", "p"} {
		v := View{Now: now, Look: down(), Listed: true, Attached: true, Policies: []Policy{waits(), spells},
			Attachments: []action.Attachment{attachment("v")}}
		v.Storage = map[string]action.Health{"s": sick}
		v.Memory.spells = map[string]spell{"p": {open: true, begun: now.Add(-spells.Intervals.Timeout)}}
		v.Memory.loose, v.Memory.failed = map[string]string{"v": by}, map[string]bool{"uid-v": true}
		d, e := announced(v)
		if got, want := action.Is[action.DeleteAttachments](d), by == "r"; got != want || len(e.Settled) > 0 == want {
			t.Errorf("policy %s: got %s, settled %v; want it tried again: %t", by, what(d, e), e.Settled, want)
		}
	}
}

// A loose volume is forgotten when the node is back or marked, or when a pod uses the volume again.
func TestLooseIsForgotten(t *testing.T) {
	for name, forget := range map[string]func(*View){
		"back":         func(v *View) { v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue}) },
		"marked":       func(v *View) { v.Memory.ApplyLook(taint.Look{Exists: true, Mark: &taint.Mark{}}) },
		"not attached": func(v *View) { v.Memory.ApplyAttachments([]action.Attachment{attachment("w")}) },
		"used again": func(v *View) {
			v.Pods = []action.Pod{{UID: "b", Volumes: []action.Volume{{PV: "v"}}}}
			_, e := Step(*v)
			v.Memory.ApplyEffects(e)
		},
		"deleted": func(v *View) {
			v.wroteAttachments([]action.Attachment{attachment("v")}, action.Accepted)
		},
	} {
		v := View{Now: now, Look: down(), Listed: true, Policies: []Policy{waits()}}
		e := Effects{Policy: waits(), Frees: map[string]map[string]string{"a": {"v": "r"}}}
		v.Memory.ApplyWrites(tombstone, e, map[string]action.WriteResult{"a": action.Accepted}, now)
		if len(v.Memory.loose) != 1 || v.Memory.OwesDeletes() {
			t.Fatalf("got loose %v, owed %t; want the volume loose and the pod kept", v.Memory.loose,
				v.Memory.OwesDeletes())
		}
		if forget(&v); len(v.Memory.loose) != 0 {
			t.Errorf("%s: got loose %v, want none", name, v.Memory.loose)
		}
	}
}
