package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/journal"
)

// The pods that the configuration names first are first.
func TestListPodsNamesTheFirst(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	config := x.Config()
	config.EvictFirst = labels.SelectorFromSet(labels.Set{"app": "csi"})
	x.Config = func() *Config { return config }
	x.live.pods = podsOf("n1", "a", "b")
	x.live.pods[1].Labels = map[string]string{"app": "csi"}
	d := x.upTo("EndPods")
	var got []string
	for _, p := range action.PodsOf(d.Action) {
		got = append(got, fmt.Sprintf("%s %v", p.Name, p.First))
	}
	if want := []string{"b true", "a false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each look brings the id of a fence that would begin now: no two fences have the same.
func TestEachLookHasAnID(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, "")
	e, seen := newExecutor(x.work()), map[string]bool{}
	for range 20 {
		read, is := e.ReadNode(t.Context()).(decide.NodeRead)
		if id := read.Facts.NewID; !is || seen[id] || !strings.HasPrefix(id, "f-") {
			t.Fatalf("got %q after %v, want another id", id, seen)
		}
		seen[read.Facts.NewID] = true
	}
}

// A pod is spared by the token of the fence that spares it: another fence's means nothing to it.
func TestSpareWritesTheToken(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOn}, taint.PhaseEvicting)
	x.live.pods, x.live.lease = podsOf("n1", "a"), "2" // a heartbeat: it is back
	x.act(t.Context(), x.upTo("SparePods"))
	if token := x.st.course.Look().Record.Token(); !strings.Contains(x.api.last, `"`+token+`"`) {
		t.Errorf("got %s, want the token %q", x.api.last, token)
	}
}

// A pause of the whole cluster ends when it says, and not before.
func TestPauseEndsInTime(t *testing.T) {
	for name, tt := range map[string]struct {
		until time.Duration // from now
		want  bool
	}{"to come": {time.Minute, true}, "over": {-time.Second, false}} {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, "")
		config := x.Config()
		config.Exclusions.Pause = client.ObjectKey{Namespace: "fencing", Name: "pause"}
		x.Config = func() *Config { return config }
		x.live.pause = map[string]string{
			"paused": "true", "reason": "upgrade", "until": x.c.now.Add(tt.until).UTC().Format(time.RFC3339),
		}
		e := newExecutor(x.work())
		read, _ := e.ReadNode(t.Context()).(decide.NodeRead)
		if got := read.Facts.Excluded != ""; got != tt.want {
			t.Errorf("%s: excluded %q, want so: %v", name, read.Facts.Excluded, tt.want)
		}
	}
}

// A Fencing is told of all that a fence did: what it ended and what an earlier process had, what is attached, what is
// left.
func TestFencingIsToldOfEachStep(t *testing.T) {
	x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
	var all []journal.Update
	x.observer.Fences = func(told journal.Update) { all = append(all, told) }
	x.live.pods = append(podsOf("n1", "a"), endedPods("n1", "before")...)
	x.live.pods[1].Status.Message = taint.FenceMessage("f-1")
	yes, pv := true, "pv-stay"
	stays := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "daemon", UID: "daemon", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}},
	}
	x.live.pods, x.live.bound, x.cached.bound = append(x.live.pods, stays), pv, pv
	attached := storagev1.VolumeAttachmentStatus{Attached: true}
	x.live.attachments = []storagev1.VolumeAttachment{
		{Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}, Status: attached},
		{Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}, Status: attached}}
	x.live.attachments[0].Name, x.live.attachments[1].Name = "va", "va-stay"
	x.cached.attachments = x.live.attachments
	x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^handle"}
	for range 30 {
		s := x.step(t.Context(), "n1", x.st)
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		if action.Is[action.EndPods](s.Decision) {
			x.end(0)
		}
		if action.Is[action.DeletePods](s.Decision) {
			break
		}
		x.pass(s.Decision.RequeueAfter)
		x.c.now = x.c.now.Add(time.Millisecond)
	}
	got := map[string]bool{}
	for _, told := range all {
		if told.Node != "n1" || told.Record.ID != "f-1" {
			t.Errorf("got %+v, want it of n1's fence", told)
		}
		for _, p := range told.Ended {
			got["ended "+p.Name] = true
		}
		if told.Attached != nil {
			got["attached "+strings.Join(*told.Attached, " ")] = true
			got["staying "+strings.Join(told.Staying, " ")] = true
		}
		got["seen"] = got["seen"] || told.OnlyRead
	}
	for _, want := range []string{"ended a", "ended before", "attached va", "staying pv-stay", "seen"} {
		if !got[want] {
			t.Errorf("got %v, want %q as well", got, want)
		}
	}
}
