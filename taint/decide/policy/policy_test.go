package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/reason"
)

var now = providers.InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// down is a node that is not Ready.
func down() taint.Look {
	return taint.Look{
		Exists: true, Name: "n", Ready: corev1.ConditionUnknown, Labels: map[string]string{"rack": "a"}, Got: now,
		Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}},
	}
}

// pod is one that every part of full selects.
func pod(name string) action.Pod {
	return action.Pod{
		Namespace: "db", Name: name, UID: name, Labels: map[string]string{"app": "db"},
		Owner:    action.Owner{Kind: "StatefulSet", Name: "s"},
		DeleteAt: now.Add(-time.Second).Wall, Deleting: true,
		Volumes: []action.Volume{{PV: "a", Driver: "other"}, {PV: "b", Driver: "csi"}},
	}
}

// full is a policy with every field set.
func full() Policy {
	return Policy{
		Name: "p", When: NotReady, Nodes: mustParseSelector("rack=a"), Namespaces: []string{"web", "db"},
		Pods:   mustParseSelector("app=db"),
		Owners: []string{"StatefulSet"}, Drivers: []string{"csi"}, Terminating: true, WithoutProof: AcceptDuplicates,
	}
}

// announced runs Step with the policy's name on the Node, as after AnnouncePolicy.
func announced(v View) (action.Decision, Effects) {
	d, e := Step(v)
	a, ok := d.Action.(action.AnnouncePolicy)
	if !ok {
		return d, e
	}
	if err := json.Unmarshal([]byte(a.Note), &v.Look.Unproven); err != nil {
		panic(err) // the Node's annotation cannot be made
	}
	return Step(v)
}

// what a decision comes to.
func what(d action.Decision, _ Effects) string {
	switch a := d.Action.(type) {
	case action.NoAction:
		return "leave"
	case action.Wait:
		if d.PolicyBlock != (action.PolicyBlock{}) {
			return "wait " + d.RequeueAfter.String() + ": " + d.PolicyBlock.Detail
		}
		return "wait " + d.RequeueAfter.String()
	case action.ListPods:
		return "list[]"
	case action.ReadOwners:
		return "owners" + named(a.Pods)
	case action.ReadVolumes:
		return "volumes" + named(a.Pods)
	case action.ReadStorageSetting:
		return "rival[]"
	case action.ReadAwaitedClaims:
		return "waiting" + named(a.Pods)
	case action.ListAttachments:
		if a.Live {
			return "attachments[]"
		}
	case action.EndPods:
		return "end" + named(a.Pods)
	case action.FenceStorage:
		return "fence" + named(a.Pods)
	case action.DeletePods:
		return "delete" + named(a.Pods)
	case action.DeleteAttachments:
		var names []string
		for _, a := range a.Attachments {
			names = append(names, a.Name)
		}
		return fmt.Sprint("detach", names)
	}
	return action.Name(d.Action) + " is not expected here"
}

func named(pods []action.Pod) string {
	var names []string
	for _, p := range pods {
		if p.Small {
			p.Name += " small"
		}
		names = append(names, p.Name)
	}
	return fmt.Sprint(names)
}

// needsFence makes the policy need its storage's fence, which is in that state, 10 s after the node became not Ready.
func needsFence(state StorageFenceState) func(*View, *Policy, *action.Pod) {
	return func(v *View, p *Policy, _ *action.Pod) {
		p.WithoutProof, p.FenceClasses = StorageFences, []string{"class"}
		v.Memory.since = v.Now.Add(-10 * time.Second)
		v.Silent, v.Fences = true, map[string]StorageFence{"p": {State: state, Detail: "10.0.0.1/32"}}
	}
}

// tombstone is the action that ends pods; which they are matters only where ApplyWrites looks at their volumes.
var tombstone = action.EndPods{}

// Each part of a policy, and of what is seen, decides by itself: one that is another's saves the pod.
func TestStep(t *testing.T) {
	tests := []struct {
		name   string
		change func(v *View, p *Policy, pod *action.Pod)
		want   string
	}{
		{"all fits", func(*View, *Policy, *action.Pod) {}, "end[a]"},
		{"nothing was listed", func(v *View, _ *Policy, _ *action.Pod) { v.Listed, v.Pods = false, nil }, "list[]"},
		{"no word for doing without proof", func(_ *View, p *Policy, _ *action.Pod) { p.WithoutProof = Never },
			"leave"},
		{"the storage fences", func(_ *View, p *Policy, _ *action.Pod) { p.WithoutProof = StorageFences }, "end[a]"},
		{"the storage has cut the node off", needsFence(FenceHolds), "end[a]"},
		{"it has not been asked", needsFence(FenceAbsent), "fence[a]"},
		{"it was asked", needsFence(FencePending), "wait 5s: policy p: 10.0.0.1/32"},
		{"it cannot be asked", needsFence(FenceRefused), "wait 5s: policy p: 10.0.0.1/32"},
		{"its fence was not read", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceHolds)(v, p, pod)
			v.Fences = nil
		}, "wait 5s: policy p: the storage's fence was not read"},
		{"its fence of another policy holds", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceHolds)(v, p, pod)
			v.Fences = map[string]StorageFence{"q": {State: FenceHolds}}
		}, "wait 5s: policy p: the storage's fence was not read"},
		{"it has not been asked, too early", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			p.FenceDelay = 15 * time.Second
		}, "wait 5s"},
		{"it has not been asked, and the node renews its Lease", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			v.Silent = false
		}, "leave"},
		{"it has cut the node off, which renews its Lease", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceHolds)(v, p, pod)
			v.Silent = false
		}, "leave"},
		{"it has not been asked, and the node is Ready", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			v.Look.Ready = corev1.ConditionTrue
		}, "leave"},
		{"it has cut the node off, while a fence waits for Off", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceHolds)(v, p, pod)
			v.Look.Record = &taint.Record{Phase: taint.PhasePoweringOff}
		}, "end[a]"},
		{"it has not been asked, under a fence whose mark is gone", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			v.Look.Record = &taint.Record{Phase: taint.PhaseEvicting}
		}, "leave"},
		{"it has not been asked, in a storm", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			v.Storm.Detail = "zone lost"
		}, "wait 5s: zone lost"},
		{"it has cut the node off, and the pod has a volume that is no claim's",
			func(v *View, p *Policy, pod *action.Pod) {
				needsFence(FenceHolds)(v, p, pod)
				pod.OtherVolume = "share"
			}, "wait 30s"},
		{"it has not been asked, and no pod matches", func(v *View, p *Policy, pod *action.Pod) {
			needsFence(FenceAbsent)(v, p, pod)
			pod.Namespace = "other"
		}, "wait 30s"},
		{"a part of the pod was too large to be kept",
			func(_ *View, _ *Policy, pod *action.Pod) { pod.Cut = "metadata.ownerReferences" }, "wait 30s"},
		{"node Ready", func(v *View, _ *Policy, _ *action.Pod) { v.Look.Ready = corev1.ConditionTrue }, "leave"},
		{"the scheduler may bind its replacement to this node",
			func(v *View, _ *Policy, _ *action.Pod) { v.Look.Taints = nil }, "wait 200ms"},
		{"a taint that closes it only to some",
			func(v *View, _ *Policy, _ *action.Pod) { v.Look.Taints[0].Key = "gpu" }, "wait 200ms"},
		{"a taint that closes it to no pod", func(v *View, _ *Policy, _ *action.Pod) {
			v.Look.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule
		}, "wait 200ms"},
		{"node cordoned",
			func(v *View, _ *Policy, _ *action.Pod) { v.Look.Taints[0].Key = corev1.TaintNodeUnschedulable }, "end[a]"},
		{"node says False, and is closed", func(v *View, _ *Policy, _ *action.Pod) {
			v.Look.Ready, v.Look.Taints[0].Key = corev1.ConditionFalse, corev1.TaintNodeNotReady
		}, "end[a]"},
		{"node says False", func(v *View, _ *Policy, _ *action.Pod) { v.Look.Ready = corev1.ConditionFalse }, "end[a]"},
		{"node says nothing", func(v *View, _ *Policy, _ *action.Pod) { v.Look.Ready = "" }, "end[a]"},
		{"node gone", func(v *View, _ *Policy, _ *action.Pod) { v.Look = taint.Look{} }, "leave"},
		{"node of another rack", func(v *View, _ *Policy, _ *action.Pod) { v.Look.Labels = nil }, "leave"},
		{"node marked", func(v *View, _ *Policy, _ *action.Pod) { v.Look.Mark = &taint.Mark{} }, "leave"},
		{"fence under way", func(v *View, _ *Policy, _ *action.Pod) {
			v.Look.Record = &taint.Record{Phase: taint.PhasePoweringOff}
		}, "leave"},
		{"fence over",
			func(v *View, _ *Policy, _ *action.Pod) {
				v.Look.Record = &taint.Record{Phase: taint.PhaseDone}
			}, "end[a]"},
		{"record unreadable", func(v *View, _ *Policy, _ *action.Pod) { v.Look.RecordErr = fmt.Errorf("no") }, "leave"},
		{"a storm", func(v *View, _ *Policy, _ *action.Pod) { v.Storm.Detail = "zone lost" }, "wait 5s: zone lost"},
		{"a storm, nothing was listed", func(v *View, _ *Policy, _ *action.Pod) {
			v.Storm.Detail, v.Listed, v.Pods = "zone lost", false, nil
		}, "wait 5s: zone lost"},
		{"a storm, and no trigger", func(v *View, _ *Policy, _ *action.Pod) {
			v.Storm.Detail, v.Look.Ready = "zone lost", corev1.ConditionTrue
		}, "leave"},
		{"a storm, and what was ended is still there", func(v *View, _ *Policy, pod *action.Pod) {
			v.Storm.Detail, v.Memory.owedDeletes = "zone lost", map[string]bool{"a": true}
			pod.Terminal, pod.Tombstone = true, true
		}, "delete[a]"},
		{"other namespace", func(_ *View, _ *Policy, pod *action.Pod) { pod.Namespace = "dbx" }, "wait 30s"},
		{"any namespace", func(_ *View, p *Policy, pod *action.Pod) { p.Namespaces, pod.Namespace = nil, "x" },
			"end[a]"},
		{"other label", func(_ *View, _ *Policy, pod *action.Pod) { pod.Labels = nil }, "wait 30s"},
		{"other owner", func(_ *View, _ *Policy, pod *action.Pod) { pod.Owner.Kind = "Job" }, "wait 30s"},
		{"no owner", func(_ *View, _ *Policy, pod *action.Pod) { pod.Owner = action.Owner{} }, "wait 30s"},
		{"any owner", func(_ *View, p *Policy, pod *action.Pod) { p.Owners, pod.Owner = nil, action.Owner{} },
			"end[a]"},
		{"DaemonSet's", func(_ *View, _ *Policy, pod *action.Pod) { pod.Exempt = taint.ExemptDaemon }, "wait 30s"},
		{"static pod", func(_ *View, _ *Policy, pod *action.Pod) { pod.Exempt = taint.ExemptStatic }, "wait 30s"},
		{"tolerates the mark", func(_ *View, _ *Policy, pod *action.Pod) { pod.Exempt = taint.ExemptTolerate },
			"wait 30s"},
		{"stock eviction is about to delete it by name", func(v *View, p *Policy, pod *action.Pod) {
			v.Memory.ApplyLook(v.Look)
			v.Look.Taints = append(v.Look.Taints,
				corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
			p.Terminating, pod.DeleteAt, pod.Deleting = false, time.Time{}, false
		}, "wait 200ms"},
		{"stock eviction has deleted it", func(v *View, p *Policy, pod *action.Pod) {
			v.Memory.ApplyLook(v.Look)
			v.Look.Taints = append(v.Look.Taints,
				corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
			p.Terminating = false
		}, "end[a]"},
		{"finished", func(_ *View, _ *Policy, pod *action.Pod) { pod.Terminal = true }, "wait 30s"},
		{"ReplicaSet that was not read", func(_ *View, p *Policy, pod *action.Pod) {
			p.Owners, pod.Owner = []string{"Deployment"}, action.Owner{Kind: "ReplicaSet"}
		}, "owners[a]"},
		{"ReplicaSet of a Deployment", func(_ *View, p *Policy, pod *action.Pod) {
			p.Owners, pod.Owner = []string{"Deployment"}, action.Owner{Kind: "Deployment", Known: true}
		}, "end[a]"},
		{"ReplicaSet without owner", func(_ *View, p *Policy, pod *action.Pod) {
			p.Owners, pod.Owner = []string{"Deployment"}, action.Owner{Kind: "ReplicaSet", Known: true}
		}, "wait 30s"},
		{"ReplicaSets under a policy of StatefulSets",
			func(_ *View, _ *Policy, pod *action.Pod) { pod.Owner.Kind = "ReplicaSet" }, "wait 30s"},
		{"volumes not read", func(_ *View, _ *Policy, pod *action.Pod) { pod.Claims, pod.Volumes = true, nil },
			"volumes[a]"},
		{"volumes of another driver", func(_ *View, _ *Policy, pod *action.Pod) { pod.Volumes = pod.Volumes[:1] },
			"wait 30s"},
		{"another driver's volume beside, where all must be its own",
			func(_ *View, p *Policy, _ *action.Pod) { p.AllVolumes = true }, "wait 30s"},
		{"no other driver's volume",
			func(_ *View, p *Policy, pod *action.Pod) { p.AllVolumes, pod.Volumes = true, pod.Volumes[1:] }, "end[a]"},
		{"no volume at all, where all must be its own",
			func(_ *View, p *Policy, pod *action.Pod) { p.AllVolumes, pod.Volumes = true, nil }, "wait 30s"},
		{"any driver",
			func(_ *View, p *Policy, pod *action.Pod) {
				p.Drivers, pod.Claims, pod.Volumes = nil, true, nil
			}, "end[a]"},
		{"it was not deleted",
			func(_ *View, _ *Policy, pod *action.Pod) { pod.DeleteAt, pod.Deleting = time.Time{}, false }, "wait 5s"},
		{"it was not deleted, and need not be",
			func(_ *View, p *Policy, pod *action.Pod) { p.Terminating, pod.DeleteAt = false, time.Time{} }, "end[a]"},
		{"still in its grace",
			func(_ *View, _ *Policy, pod *action.Pod) {
				pod.DeleteAt = now.Add(1234 * time.Millisecond).Wall
			}, "wait 1.234s"},
		{"long in its grace", func(_ *View, _ *Policy, pod *action.Pod) { pod.DeleteAt = now.Add(time.Minute).Wall },
			"wait 5s"},
		{"at the end of its grace", func(_ *View, _ *Policy, pod *action.Pod) { pod.DeleteAt = now.Wall }, "end[a]"},
		{"the storage's own setting, not read", func(_ *View, p *Policy, _ *action.Pod) { p.Yields = true }, "rival[]"},
		{"the storage's own setting does nothing",
			func(v *View, p *Policy, _ *action.Pod) { p.Yields, v.StorageSetting = true, new("") }, "end[a]"},
		{"the storage's own setting does the same",
			func(v *View, p *Policy, _ *action.Pod) {
				p.Yields, v.StorageSetting = true, new("on")
			}, "wait 30s: policy p: on"},
		{"the storage's own setting, and nothing to end",
			func(_ *View, p *Policy, pod *action.Pod) { p.Yields, pod.DeleteAt = true, time.Time{} }, "wait 5s"},
		{"another's setting", func(v *View, _ *Policy, _ *action.Pod) { v.StorageSetting = new("on") }, "end[a]"},
		{"the last writes were refused", func(v *View, _ *Policy, _ *action.Pod) {
			v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.Denied},
				now.Add(-2*time.Second))
		}, "wait 3s"},
		{"another client wrote first", func(v *View, _ *Policy, _ *action.Pod) {
			v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.Changed}, now)
		}, "end[a]"},
		{"deleted, and there again in the next list", func(v *View, _ *Policy, pod *action.Pod) {
			for _, a := range []action.Action{tombstone, action.DeletePods{}} {
				v.Memory.ApplyWrites(a, Effects{}, map[string]action.WriteResult{"a": action.Accepted}, now)
			}
			pod.Terminal, pod.Tombstone = true, true
		}, "delete[a]"},
		{"too large for a whole tombstone", func(v *View, _ *Policy, _ *action.Pod) {
			v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.TooLarge}, now)
		}, "end[a small]"},
		{"too large for any", func(v *View, _ *Policy, _ *action.Pod) {
			for range 2 {
				v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.TooLarge}, now)
			}
		}, "wait 5s"},
		{"ended", func(v *View, _ *Policy, pod *action.Pod) {
			v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.Accepted}, now)
			pod.Terminal, pod.Tombstone = true, true
		}, "delete[a]"},
		{"ended, and the node is back", func(v *View, _ *Policy, pod *action.Pod) {
			v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.Accepted}, now)
			v.Look.Ready, pod.Terminal, pod.Tombstone = corev1.ConditionTrue, true, true
		}, "delete[a]"},
		{"ended by another controller",
			func(_ *View, _ *Policy, pod *action.Pod) { pod.Terminal, pod.Tombstone = true, true }, "delete[a]"},
		{"ended by another controller, and still in its grace", func(_ *View, _ *Policy, pod *action.Pod) {
			pod.Terminal, pod.Tombstone, pod.DeleteAt = true, true, now.Add(time.Second).Wall
		}, "wait 30s"},
		{"ended by another controller, and not deleted", func(_ *View, _ *Policy, pod *action.Pod) {
			pod.Terminal, pod.Tombstone, pod.Deleting, pod.DeleteAt = true, true, false, time.Time{}
		}, "wait 30s"},
		{"ended by another controller, under a policy that deletes what it ended",
			func(_ *View, p *Policy, pod *action.Pod) {
				pod.Terminal, pod.Tombstone, p.Terminating = true, true, false
			}, "wait 30s"},
		{"the change, not seen", func(_ *View, p *Policy, _ *action.Pod) { p.When = BecameNotReady }, "leave"},
		{"the change, seen", func(v *View, p *Policy, _ *action.Pod) {
			p.When = BecameNotReady
			v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue})
			v.Memory.ApplyLook(v.Look)
			v.Memory.ApplyLook(v.Look)
		}, "end[a]"},
		{"the change, done with", func(v *View, p *Policy, _ *action.Pod) {
			p.When = BecameNotReady
			v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue})
			v.Memory.ApplyLook(v.Look)
			v.Memory.ApplyEffects(Effects{Done: []string{"p"}})
		}, "leave"},
		{"the change, a second time", func(v *View, p *Policy, _ *action.Pod) {
			p.When = BecameNotReady
			for range 2 {
				v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue})
				v.Memory.ApplyLook(v.Look)
			}
			v.Memory.done = map[string]int{"p": 1}
		}, "end[a]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, p, one := View{Now: now, Look: down(), Listed: true}, full(), pod("a")
			v.Pods = []action.Pod{{}}
			tt.change(&v, &p, &one)
			if v.Listed {
				v.Pods = []action.Pod{one}
				v.Memory.ApplyPods(v.Pods)
			}
			v.Policies = []Policy{p}
			if got := what(announced(v)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// The Node names a policy before anything is written in its name, with the same reason, and once. It is written again
// if the withoutProof value changed. What was ended before is deleted at once.
func TestNodeNamesThePolicyFirst(t *testing.T) {
	p := full()
	p.Detach = true
	tomb := pod("a")
	tomb.Terminal, tomb.Tombstone = true, true
	listed := View{Now: now, Look: down(), Listed: true, Policies: []Policy{p}}
	ends, detaches, clears, deletes := listed, listed, listed, listed
	ends.Pods = []action.Pod{pod("a")}
	detaches.Memory.loose = map[string]string{"b": "p"}
	detaches.Attached, detaches.Attachments = true, []action.Attachment{attachment("b")}
	clears.Policies = []Policy{fenced(StorageFences)}
	clears.Storage = map[string]action.Health{"s": sick}
	clears.Memory.spells = map[string]spell{"p": {}}
	clears.Look.InUse = []corev1.UniqueVolumeName{"csi/1", "csi/2"}
	clears.Look.Attached = []corev1.AttachedVolume{{Name: "csi/1"}}
	clears.Memory.freedVolumes = []freedVolume{
		{policy: "p", volume: action.Volume{PV: "1", Driver: "csi", Unique: "csi/1"}}}
	deletes.Pods = []action.Pod{tomb}
	const name = "policy p, without proof: accept-duplicates"
	for _, tt := range []struct {
		name      string
		v         View
		announces action.AnnouncePolicy // all but its Note
		then      action.Decision
	}{
		{"ends", ends, action.AnnouncePolicy{Pods: ends.Pods}, action.Decision{
			Action: action.EndPods{Pods: ends.Pods, Policy: name}, Reason: reason.PolicyEnding, Detail: name,
		}},
		{"detaches", detaches, action.AnnouncePolicy{Attachments: detaches.Attachments}, action.Decision{
			Action: action.DeleteAttachments{Attachments: detaches.Attachments, Policy: name},
			Reason: reason.PolicyDetaching, Detail: "b (" + name + ")",
		}},
		{"clears", clears, action.AnnouncePolicy{}, action.Decision{
			Action: action.ClearVolumes{
				InUse: clears.Look.InUse[1:], Attached: clears.Look.Attached,
				Policy: "policy p, without proof: storage-fences",
			},
			Reason: reason.PolicyClearing, Detail: "policy p, without proof: storage-fences",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first, its := Step(tt.v)
			a, ok := first.Action.(action.AnnouncePolicy)
			if !ok {
				t.Fatalf("got %s, want AnnouncePolicy", action.Name(first.Action))
			}
			if err := json.Unmarshal([]byte(a.Note), &tt.v.Look.Unproven); err != nil {
				t.Fatal(err)
			}
			want := tt.then
			tt.announces.Note = a.Note
			want.Action = tt.announces
			if diff := cmp.Diff(want, first); diff != "" {
				t.Errorf("before the Node names the policy (-want +got):\n%s", diff)
			}
			then, same := Step(tt.v)
			if diff := cmp.Diff(tt.then, then); diff != "" {
				t.Errorf("once it names the policy (-want +got):\n%s", diff)
			}
			if !reflect.DeepEqual(its, same) {
				t.Errorf("effects: got %+v of the announcement, want %+v", its, same)
			}
			tt.v.Look.Unproven[0].WithoutProof = "another word"
			if d, _ := Step(tt.v); !action.Is[action.AnnouncePolicy](d) {
				t.Errorf("another withoutProof on the Node: got %s, want AnnouncePolicy", action.Name(d.Action))
			}
		})
	}
	want := action.Decision{
		Action: action.DeletePods{Pods: deletes.Pods, Returned: true, ByPolicy: true}, Reason: reason.PolicyDeleting,
	}
	if d, _ := Step(deletes); !cmp.Equal(d, want) {
		t.Errorf("what was ended (-want +got):\n%s", cmp.Diff(want, d))
	}
}

// A pod that the API server refuses to delete delays no other pod.
func TestRefusedPods(t *testing.T) {
	v := View{Now: now, Look: down(), Listed: true, Policies: []Policy{full()}}
	stuck := pod("stuck")
	stuck.Terminal, stuck.Tombstone = true, true
	v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"stuck": action.Accepted}, now)
	v.Memory.ApplyWrites(action.DeletePods{}, Effects{}, map[string]action.WriteResult{"stuck": action.Denied},
		now.Add(-time.Second))
	v.Pods = []action.Pod{stuck, pod("next")}
	v.Memory.ApplyPods(v.Pods)
	if got := what(announced(v)); got != "end[next]" {
		t.Errorf("beside one that may be ended: got %s", got)
	}
	v.Pods = v.Pods[:1]
	if got := what(announced(v)); got != "wait 4s" {
		t.Errorf("alone: got %s", got)
	}
	undue := v
	undue.Policies, undue.Storm = nil, action.PolicyBlock{Detail: "most nodes are silent"}
	if got := what(announced(undue)); got != "wait 4s" {
		t.Errorf("alone, in a storm that holds back no policy: got %s", got)
	}
	v.Now = now.Add(4 * time.Second)
	if got := what(announced(v)); got != "delete[stuck]" {
		t.Errorf("later: got %s", got)
	}
	v.Memory.ApplyPods(nil)
	if v.Memory.OwesDeletes() {
		t.Error("gone: got it owed")
	}
}

// A pod that finalizers keep is deleted already: nothing is owed, or its node would be read for ever.
func TestKeptPodIsNotOwed(t *testing.T) {
	v := View{Now: now, Look: down(), Listed: true, Policies: []Policy{full()}}
	a := pod("a")
	a.Terminal, a.Tombstone = true, true
	v.Memory.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": action.Accepted}, now)
	if v.Memory.ApplyPods([]action.Pod{a}); !v.Memory.OwesDeletes() {
		t.Error("ended, and not deleted yet: got nothing owed")
	}
	a.Deleting, a.Grace, a.Finalizers = true, 0, []string{"example.com/keep"}
	if v.Memory.ApplyPods([]action.Pod{a}); v.Memory.OwesDeletes() {
		t.Error("deleted, and kept by a finalizer: got it owed")
	}
}

// A policy's pods that tolerate the mark stay, and are named once while the node is not Ready. Others' pods, and those
// of DaemonSets, are not named.
func TestToleratingPodsAreNamed(t *testing.T) {
	p := full()
	v := View{Now: now, Look: down(), Listed: true, Policies: []Policy{p}}
	v.Memory.ApplyLook(v.Look)
	tolerates, daemon, other := pod("a"), pod("b"), pod("c")
	tolerates.Exempt, daemon.Exempt, other.Exempt = taint.ExemptTolerate, taint.ExemptDaemon, taint.ExemptTolerate
	other.Namespace = "elsewhere"
	tolerates.Claims = true // its volumes were not read
	over := tolerates
	over.UID, over.Name, over.Terminal = "e", "e", true
	v.Pods = []action.Pod{tolerates, daemon, other, over}
	if got := what(announced(v)); got != "volumes[a]" {
		t.Errorf("before its volumes are known: got %s", got)
	}
	v.Pods[0].Claims = false
	d, effects := Step(v)
	want := []action.Note{{Why: reason.PolicySkipped, Detail: "policy p, without proof: accept-duplicates: pod db/a " +
		"tolerates the mark"}}
	if got := what(d, effects); got != "wait 30s" || !slices.Equal(d.Notes, want) {
		t.Errorf("got %s and %v, want %v", got, d.Notes, want)
	}
	v.Memory.ApplyEffects(effects)
	if d, _ := Step(v); len(d.Notes) > 0 {
		t.Errorf("the next look: got %v", d.Notes)
	}
	healthy := v.Look
	healthy.Ready = corev1.ConditionTrue
	v.Memory.ApplyLook(healthy)
	v.Memory.ApplyLook(v.Look)
	if d, _ := Step(v); !slices.Equal(d.Notes, want) {
		t.Errorf("not Ready again: got %v, want %v", d.Notes, want)
	}
	v.Pods = append(v.Pods, pod("d"))
	if got := what(announced(v)); got != "end[d]" {
		t.Errorf("beside one that may be ended: got %s", got)
	}
}

// A policy whose trigger is the change says so when none of its pods is left; one whose trigger is a state never has
// done.
func TestFinished(t *testing.T) {
	v := View{Now: now, Look: down(), Listed: true, Policies: []Policy{
		{Name: "once", When: BecameNotReady, WithoutProof: AcceptDuplicates, Pods: mustParseSelector("app=x")},
		{Name: "always", When: NotReady, WithoutProof: AcceptDuplicates, Pods: mustParseSelector("app=x")},
	}}
	v.Memory.ApplyLook(taint.Look{Exists: true, Ready: corev1.ConditionTrue})
	v.Memory.ApplyLook(v.Look)
	v.Pods = []action.Pod{pod("a")}
	if _, e := Step(v); !slices.Equal(e.Done, []string{"once"}) {
		t.Errorf("done: got %v, want the one that looks once", e.Done)
	}
	v.Pods[0].Labels = map[string]string{"app": "x"}
	if d, e := announced(v); len(e.Done) != 0 || e.Policy.Name != "once" || d.Reason != reason.PolicyEnding {
		t.Errorf("with a pod of theirs: got %+v, %+v; want the first policy to end it", d, e)
	}
}

// Each preset is one that Kubernetes' own selectors take, and none decides for the user that a pod may run twice.
func TestPresets(t *testing.T) {
	for _, p := range Presets {
		if p.Policy.WithoutProof != Never || p.Policy.When == "" || p.Does == "" || p.Trusts == "" {
			t.Errorf("preset %s: got %+v, want a trigger, its texts, and no word for doing without proof", p.Name, p)
		}
		if got, ok := PresetOf(p.Name); !ok || got.Name != p.Name {
			t.Errorf("preset %s: not found by its name", p.Name)
		}
	}
	if longhorn, _ := PresetOf("longhorn"); !longhorn.Policy.Yields {
		t.Error("longhorn: does not stand aside for Longhorn's own setting")
	}
	noobaa, _ := PresetOf("noobaa")
	for _, tt := range []struct {
		of   labels.Set
		want bool
	}{
		{labels.Set{"app": "noobaa"}, true},
		{labels.Set{"app": "noobaa-2"}, false},
		{labels.Set{"app": "noobaa", "noobaa-db": "postgres"}, false},
		{labels.Set{"app": "noobaa", "cnpg.io/cluster": "noobaa-db-pg-cluster"}, false},
	} {
		if got := noobaa.Policy.Pods.Matches(tt.of); got != tt.want {
			t.Errorf("noobaa: selects a pod with labels %v: %t, want %t", tt.of, got, tt.want)
		}
	}
}
