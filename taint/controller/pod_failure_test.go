package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/reason"
)

// A pod that changed or went meanwhile is no error, nor is any other failure of one pod: it is noted, and keeps no
// other pod from its end. A process that lost its leadership blames no pod.
func TestPodWritesGoOn(t *testing.T) {
	gone, changed := apierrors.NewNotFound(schema.GroupResource{}, "b"),
		apierrors.NewConflict(schema.GroupResource{}, "b", errStale)
	for _, tc := range []struct {
		name string
		fail error
		lost bool // the leadership, with that
		how  action.WriteResult
		want string // the next step, b alone being left
	}{
		{"gone", fmt.Errorf("%w: %w", kube.ErrAgain, gone), false, action.Accepted, "EndPods"},
		{"changed", fmt.Errorf("%w: %w", kube.ErrAgain, changed), false, action.Changed, "EndPods"},
		{"no quorum", errors.New("no quorum"), false, action.Failed, "Wait"},
		{"too large", apierrors.NewRequestEntityTooLargeError(""), false, action.TooLarge, "EndPods"},
		{"no leader any more", errStale, true, action.Accepted, "EndPods"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			x.live.pods = podsOf("n1", "a", "b", "c")
			s := x.upTo("EndPods")
			o := x.work().writePods(t.Context(), s.Action, func(_ context.Context, p action.Pod) error {
				if p.Name == "b" {
					if tc.lost {
						x.Leading = func() error { return errStale }
					}
					return tc.fail
				}
				return nil
			})
			how, noted := o.Results["b"]
			if (o.Err != nil) != tc.lost || noted == tc.lost || how != tc.how || !tc.lost && len(o.Results) != 3 {
				t.Errorf("got %v, error %v, want b %s and the other two written", o.Results, o.Err, tc.how)
			}
			x.Leading = func() error { return nil }
			x.live.pods = x.live.pods[1:2]
			x.WithFleet(func(f *fleet.Fleet) { x.st.course.Apply(providers.InstantOf(x.Now()), f, o) })
			if s := x.upTo(tc.want); tc.want == "Wait" && s.Reason != reason.Retrying ||
				tc.want == "EndPods" && action.PodsOf(s.Action)[0].Small != (tc.how == action.TooLarge) {
				t.Errorf("then: got %s of %+v", s.Reason, action.PodsOf(s.Action))
			}
		})
	}
}

// wakes is a machine that shows life while it is asked: its answer was true when it was given.
type wakes struct {
	*oneMachine
	wake func()
}

func (w wakes) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	w.wake()
	return w.oneMachine.State(ctx, t)
}

// A sign of life that comes while the device is asked again stops the run, though its answer is Off.
func TestStoppedWhileAsking(t *testing.T) {
	for _, node := range []string{"n1", "n2"} {
		m := &oneMachine{state: providers.PowerOff}
		x := inMidst(t, m, taint.PhaseEvicting)
		x.live.pods = podsOf("n1", "a")
		s := x.upTo("EndPods")
		x.st.machine.Provider, m.asked = wakes{m, func() { x.stopWrites(node) }}, 0
		x.c.now = x.c.now.Add(proof.TTL + time.Second)
		o := x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error { return nil })
		if want := map[string]int{"n1": 0, "n2": 1}[node]; o.Err != nil || len(o.Results) != want || m.asked != 1 {
			t.Errorf("%s shows life: got %d written after %d questions, error %v; want %d after one", node,
				len(o.Results), m.asked, o.Err, want)
		}
	}
}

// A heartbeat stops the pod writes under way on its node, and on no other.
func TestStoppedByLease(t *testing.T) {
	for _, tc := range []struct {
		name string
		node string
		want int
	}{
		{"a heartbeat", "n1", 1},
		{"another node's heartbeat", "n2", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
			x.live.pods = podsOf("n1", "a", "b", "c")
			s := x.upTo("EndPods")
			heard := x.wakeOptions(nil).OnHeartbeat
			o := x.work().writePods(t.Context(), s.Action, func(context.Context, action.Pod) error {
				heard(tc.node)
				return nil
			})
			if o.Err != nil || len(o.Results) != tc.want {
				t.Errorf("got %d written, error %v, want %d", len(o.Results), o.Err, tc.want)
			}
		})
	}
}

// The lists are cleared once, and of what goes alone: the volume of a pod that waits for its stock eviction, or could
// not be ended, is looked up first. volumesAttached is not cleared again when its controller writes it back while it
// detaches (F5).
func TestClearingKeepsAndRemembers(t *testing.T) {
	const stays, goes = corev1.UniqueVolumeName("kubernetes.io/csi/d^handle of pv"),
		corev1.UniqueVolumeName("kubernetes.io/csi/d^another")
	for _, failed := range []bool{false, true} {
		x := inMidst(t, &oneMachine{state: providers.PowerOff}, taint.PhaseEvicting)
		pods := podsOf("n1", "stays")
		pods[0].Spec.Volumes = []corev1.Volume{{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
		}}
		if !failed {
			pods[0].DeletionTimestamp = nil // its stock eviction is still to come
		}
		x.live.bound, x.live.pods = "pv", append(endedPods("n1", "ended"), pods...)
		going := "another"
		x.live.attachments = []storagev1.VolumeAttachment{{Spec: storagev1.VolumeAttachmentSpec{
			NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &going},
		}, Status: storagev1.VolumeAttachmentStatus{Attached: true}}}
		x.cached.attachments = x.live.attachments
		x.live.node.Status.VolumesInUse = []corev1.UniqueVolumeName{stays, goes}
		x.live.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: stays}, {Name: goes}}
		write := func(do string, err error) {
			o := x.work().
				writePods(t.Context(), x.upTo(do).Action, func(context.Context, action.Pod) error { return err })
			x.WithFleet(func(f *fleet.Fleet) { x.st.course.Apply(providers.InstantOf(x.Now()), f, o) })
		}
		if failed {
			write("EndPods", errors.New("no quorum"))
		}
		must(t, x.steps())
		if want := `"status":{"volumesAttached":[{"name":"` + string(stays) + `","devicePath":""}],"volumesInUse":["` +
			string(stays) + `"]}`; !strings.Contains(x.api.last, want) {
			t.Errorf("failed %v: got %s, want %s", failed, x.api.last, want)
		}
		x.live.node.Status.VolumesInUse, x.api.patches = []corev1.UniqueVolumeName{stays}, 0
		write("DeletePods", nil)
		x.live.pods = x.live.pods[1:]
		if s := x.upTo("Wait"); s.Reason == reason.Clearing || x.api.patches != 0 {
			t.Errorf("failed %v: volumesAttached is cleared again: %s", failed, s.Reason)
		}
	}
}
