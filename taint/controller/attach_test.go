package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/reason"
)

// deleting is an API server that takes deletions, and notes them.
type deleting struct {
	*answers
	deleted []string // name, UID and resourceVersion
	err     error
}

func (d *deleting) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	var with client.DeleteOptions
	with.ApplyOptions(opts)
	d.deleted = append(d.deleted,
		strings.Join([]string{o.GetName(), string(*with.Preconditions.UID), *with.Preconditions.ResourceVersion}, " "))
	return d.err
}

// detaching is a node that looks dead, whose machine is on, with a terminating pod of a ReplicaSet that uses a volume,
// under a rule of volume attachment recovery.
func detaching(t *testing.T, rule policy.Policy) (*midst, *deleting) {
	t.Helper()
	x := inMidst(t, &oneMachine{state: providers.PowerOn}, "")
	api := &deleting{answers: x.api}
	x.Client, x.writer.Client = api, api
	config := x.Config()
	config.Policies = []policy.Policy{rule}
	config.Modes = nil
	x.Config = func() *Config { return config }
	x.live.node.Status.Conditions = append(x.live.node.Status.Conditions,
		corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: corev1.ConditionTrue})

	x.live.node.Spec.Taints = append(x.live.node.Spec.Taints,
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})

	l := taint.NewLook(x.live.node, nil, taint.DefaultKey, providers.InstantOf(x.c.now), providers.InstantOf(x.c.now))
	x.live.node.Annotations = map[string]string{
		taint.PolicyAnnotation: l.EncodeAnnouncement(rule.Name, string(rule.WithoutProof), x.c.now)}

	yes := true
	old := podsOf("n1", "old")[0]
	old.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Controller: &yes}}
	old.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pv := "pv-1"
	x.live.pods, x.live.bound = []corev1.Pod{old}, pv
	for _, node := range []string{"n1", "n2"} {
		va := storagev1.VolumeAttachment{
			Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Attacher: "d",
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
		va.Name, va.UID, va.ResourceVersion = "va-"+node, "u-va", "7"
		x.live.attachments = append(x.live.attachments, va)
	}
	return x, api
}

// run takes the node on until it waits.
func (x *midst) run() error {
	x.t.Helper()
	for range 30 {
		s := x.step(x.t.Context(), "n1", x.st)
		if s.Err() != nil || s.Outcome == nil {
			return s.Err()
		}
		x.c.now = x.c.now.Add(time.Millisecond)
	}
	x.t.Fatal("30 steps without a wait")
	return nil
}

// end makes the pod what its tombstone makes it.
func (x *midst) end(i int) {
	x.live.pods = slices.Clone(x.live.pods)
	x.live.pods[i].Status.Phase, x.live.pods[i].Status.Reason = corev1.PodFailed, taint.TombstoneReason
}

// A pod of a ReplicaSet is ended and kept, and its volume's attachment to this node is deleted, by what was listed
// live.
func TestAttachmentsAreDeleted(t *testing.T) {
	wait := policy.Policy{Name: "p", When: policy.NotReady, Owners: []string{"ReplicaSet"}, Drivers: []string{"d"},
		Terminating: true, Keep: true, Detach: true,
		WithoutProof: policy.AcceptDuplicates}
	immediate := wait
	immediate.Terminating, immediate.Replaced = false, true
	waits := func(x *midst) {
		next := x.live.pods[0]
		next.Name, next.UID, next.DeletionTimestamp, next.Spec.NodeName, next.Status.Phase = "new", "new", nil, "n2",
			corev1.PodPending
		x.live.pods = append(x.live.pods, next)
	}
	for name, tc := range map[string]struct {
		rule   policy.Policy
		change func(*midst)
		ended  bool
	}{
		"wait": {wait, func(*midst) {}, true},
		"wait, in its grace": {wait,
			func(x *midst) {
				at := metav1.NewTime(x.c.now.Add(time.Hour))
				x.live.pods[0].DeletionTimestamp = &at
			}, false},
		"immediate, and nobody waits": {immediate, func(*midst) {}, false},
		"immediate":                   {immediate, waits, true},
		"immediate, one waits in another room": {immediate,
			func(x *midst) { waits(x); x.live.pods[1].Namespace = "elsewhere" }, false},
		"immediate, the one that waits does run": {immediate,
			func(x *midst) { waits(x); x.live.pods[1].Status.Phase = corev1.PodRunning }, false},
	} {
		x, api := detaching(t, tc.rule)
		tc.change(x)
		if err := x.steps(); err != nil || (api.patches > 0) != tc.ended {
			t.Errorf("%s: got %d pods ended, error %v, want one: %t", name, api.patches, err, tc.ended)
		}
		if !tc.ended {
			continue
		}
		x.end(0)
		x.pass(5 * time.Second)
		if err := x.run(); err != nil || !slices.Equal(api.deleted, []string{"va-n1 u-va 7"}) {
			t.Errorf("%s: got %q deleted, error %v, want this node's attachment by UID and resourceVersion, and no pod",
				name, api.deleted, err)
		}
		if said := strings.Join(told(x.events), "\n"); !strings.Contains(said,
			string(reason.PolicyDetaching)+" Deleting 1 VolumeAttachment of") ||
			!strings.Contains(said, "pv-1 (policy p, without proof: accept-duplicates)") {
			t.Errorf("%s: got Events %q, want the volume, the policy and its word", name, said)
		}
	}
}

// An attachment that the API server lets nobody delete is tried again later, and on an old list nothing is deleted.
func TestAttachmentsThatStay(t *testing.T) {
	rule := policy.Policy{Name: "p", When: policy.NotReady, Owners: []string{"ReplicaSet"}, Drivers: []string{"d"},
		Terminating: true, Keep: true, Detach: true,
		WithoutProof: policy.AcceptDuplicates}
	x, api := detaching(t, rule)
	x.end(0) // by a leader of before
	api.err = errors.New("no")
	if err := x.run(); err != nil || len(api.deleted) != 1 {
		t.Errorf("refused: got %q, error %v, want one try", api.deleted, err)
	}
	if err := x.run(); err != nil || len(api.deleted) != 1 {
		t.Errorf("at once: got %q, error %v, want it to rest", api.deleted, err)
	}
	x.pass(5 * time.Second)
	if err := x.run(); err != nil || len(api.deleted) != 2 {
		t.Errorf("later: got %q, error %v, want another try", api.deleted, err)
	}

	x, api = detaching(t, rule)
	x.end(0)
	s := x.upTo("DeleteAttachments")
	x.c.now = x.c.now.Add(6 * time.Second)
	if o := x.act(t.Context(), s); len(api.deleted) != 0 || len(o.Results) != 0 {
		t.Errorf("on an old list: got %q deleted, want none", api.deleted)
	}
}
