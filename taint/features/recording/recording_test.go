package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// No part of what is written as it is can be lost: JSON passes over a field that is not exported, or is left out by its
// tag.
func TestNoFieldIsLost(t *testing.T) {
	elsewhere := map[string]string{ // written by other means, and why it may be
		"fence.Facts.NoDeviceErr": "facts.NoDeviceErr", "fence.Facts.Mode": "facts.Mode",
		"fence.Facts.NewID": "Line.NewID", "policy.Policy.Nodes": "rule.NodesSelected",
		"policy.Policy.Pods": "rule.PodsSelected",
	}
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, at string) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(of.Elem(), at)
			return
		case reflect.Map:
			walk(of.Key(), at)
			walk(of.Elem(), at)
			return
		case reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s is of type %s, which does not come back", at, of)
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[of] || of == reflect.TypeFor[time.Time]() || !strings.Contains(of.PkgPath(), "/forcefence/") {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name := of.String() + "." + f.Name
			if elsewhere[name] != "" {
				continue
			}
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.IsExported() && !f.Anonymous || tag == "-" {
				t.Errorf("%s is not written", name)
			}
			walk(f.Type, name)
		}
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[facts](), reflect.TypeFor[fleet.View](), reflect.TypeFor[action.Pod](),
		reflect.TypeFor[action.Attachment](), reflect.TypeFor[action.Owner](),
		reflect.TypeFor[action.Health](), reflect.TypeFor[storageBody](), reflect.TypeFor[answer](),
		reflect.TypeFor[outcome](), reflect.TypeFor[Step](),
	} {
		walk(of, of.String())
	}
	if len(seen) < 15 {
		t.Errorf("%d types were looked at: too few", len(seen))
	}
}

// A password is redacted in its JSON escaped form too, and a text that is JSON itself stays whole.
func TestPasswordsOfAnyForm(t *testing.T) {
	for _, password := range []string{"plain", "a&b", "a<b>c", `a\b`, "a\u2028b", "a'b", "a%40b", "a@b", "\x01"} {
		var back map[string]string
		if err := json.Unmarshal(EncodeJSON(map[string]string{"id": "https://admin:" + password + "@bmc/x"}),
			&back); err != nil || back["id"] != "https://bmc/x" {
			t.Errorf("%q: got %q (%v)", password, back, err)
		}
	}
	want := map[string]string{
		"record": `{"id":"https://bmc","by":"a@b","in":"{\"id\":\"https://bmc\",\"by\":\"a@b\"}"}`}
	var back map[string]string
	if err := json.Unmarshal(EncodeJSON(want), &back); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("got %q (%v), want %q", back, err, want)
	}
}

// What is left of a Node is seen as the whole Node is.
func TestSlimNodeLooksTheSame(t *testing.T) {
	n := &corev1.Node{}
	n.Name, n.Labels, n.Annotations = "n1", map[string]string{"a": "b"},
		map[string]string{"forcefence.io/x": "y", "other/x": "z"}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{}}}`)}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "of a kubelet"}}
	n.Spec.Taints = taint.WithMark(n.Spec.Taints, taint.DefaultKey, "by-hand", epoch.Wall)
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v", DevicePath: "/dev/x"}}
	n.UID = types.UID("u")
	for name, manager := range map[string]string{"a person": "kubectl-taint", "another program": "drainer"} {
		n.ManagedFields[0].Manager = manager
		want, got := taint.NewLook(n, nil, taint.DefaultKey, epoch, epoch),
			taint.NewLook(slimNode(n), nil, taint.DefaultKey, epoch, epoch)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
	}
}

// Facts come back as they were, except the id of a fence that would begin.
func TestFactsComeBack(t *testing.T) {
	f := decide.Facts{
		Facts: fence.Facts{
			Mode: fence.Shadow, Devices: []proof.Device{{Name: "racks/https://admin:" + "of-the-pod-only" + "@bmc"}},
			NewID: "f-1", By: "me",
			Settings: fence.Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute,
				Retry: 2 * time.Minute, AfterFence: fence.AfterFence{PowerOn: true, PerDay: 2}},
		},
		Evict: evict.Settings{DetachTimeout: time.Minute},
	}
	f.NoDeviceErr = providers.WithClass(providers.ErrIdentity, errors.New("the pin is of another machine"))
	parsed, err := labels.Parse("app in (a,b),!c")
	if err != nil {
		t.Fatal(err)
	}
	f.Policies = []policy.Policy{
		{Name: "some", Pods: parsed, WithoutProof: policy.AcceptDuplicates, When: policy.NotReady},
		{Name: "none", Pods: labels.Nothing()}, {Name: "all", Nodes: labels.Everything()},
	}
	f.Storage = map[string]action.Health{"s": {Known: true, Why: "x"}}
	var back facts
	f.StorageFences = map[string]policy.StorageFence{"p": {State: policy.FencePending, Detail: "d"}}
	text := EncodeJSON(factsOf(f))
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if key := `"AfterFence":{"PowerOn":true,`; !bytes.Contains(text, []byte(key)) || back.Fence.AfterFence != f.AfterFence {
		t.Errorf("got %s, want %s as in earlier recordings, and the same after it was read", text, key)
	}
	got, err := back.toFacts("f-1")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got.Policies {
		for _, set := range []labels.Set{{"app": "a"}, {"app": "x"}, {"app": "a", "c": ""}} {
			if want := f.Policies[i].Pods; want != nil && p.Pods.Matches(set) != want.Matches(set) ||
				want == nil && p.Pods != nil {
				t.Errorf("policy %s: pods %v are selected otherwise", p.Name, set)
			}
		}
		got.Policies[i].Pods, f.Policies[i].Pods = nil, nil
		got.Policies[i].Nodes, f.Policies[i].Nodes = nil, nil
	}
	if providers.ErrorClass(got.NoDeviceErr) != "identity" || got.NoDeviceErr.Error() != f.NoDeviceErr.Error() {
		t.Errorf("error: got %v, want %v", got.NoDeviceErr, f.NoDeviceErr)
	}
	got.NoDeviceErr, f.NoDeviceErr = nil, nil
	f.Devices[0].Name = "racks/https://bmc"
	if !reflect.DeepEqual(got, f) {
		t.Errorf("got\n%+v\nwant\n%+v", got, f)
	}
}

// What is read comes back as it was, of each kind.
func TestReadingsComeBack(t *testing.T) {
	volume := action.Volume{PV: "pv", Handle: "h", Health: action.Health{Known: true}, Claim: "c", Driver: "d",
		Unique: "u", Migrated: "m", Unread: true}
	pod := action.Pod{
		Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "3", Exempt: taint.ExemptDaemon, Terminal: true,
		Tombstone: true, Spared: "s", First: true, Priority: -4,
		Deleting: true, Grace: 30, Finalizers: []string{"f"}, Labels: map[string]string{"a": "b"},
		Owner:    action.Owner{Kind: "K", Name: "o", Known: true, Direct: "D"},
		DeleteAt: epoch.Add(1).Wall, Tolerations: []corev1.Toleration{{Key: "k", TolerationSeconds: new(int64(3))}},
		Volumes: []action.Volume{volume}, Claims: true, ClaimNames: []string{"data"},
		OtherVolume: "share", InlineVolume: true,
		Cut: "spec.volumes", Ready: true, ContainersReady: true,
	}
	answer := providers.Answer{
		Observation: providers.Observation{State: providers.PowerChanging, Raw: "PoweringOff", SystemUUID: "su",
			Addresses: "a", At: epoch.Add(2), Run: "r"},
		By: "racks", Got: epoch.Add(3), Err: nil,
	}
	attachments := []action.Attachment{
		{Name: "va", UID: "va-uid", ResourceVersion: "5", PV: "pv", Attacher: "d", Deleting: true,
			NeverAttached: true}}
	for _, want := range []decide.Observation{
		decide.PodsListed{Pods: []action.Pod{pod}},
		decide.VolumesRead{ByPod: map[string][]action.Volume{"u": {volume}}},
		decide.OwnersRead{ByPod: map[string]action.Owner{"u": pod.Owner}},
		decide.StorageSettingRead{Why: "its setting"},
		decide.EtcdPodsListed{Ready: map[string]bool{"n1": true, "n2": false}},
		decide.AwaitedClaimsRead{Claims: map[string]bool{"ns/c": true}},
		decide.ClaimsRead{ByVolume: map[string]string{"pv": "ns/c"}},
		decide.AttachmentsListed{Attachments: attachments},
		decide.AttachmentsListed{Attachments: attachments, Live: true},
		decide.DevicesAnswered{Answers: []providers.Answer{answer}},
		decide.ActionDone{SentAt: epoch, Withheld: true, Results: map[string]action.WriteResult{"u": action.TooLarge}},
		decide.StorageReported{Policies: []policy.Policy{{Name: "p"}},
			Health: map[string]action.Health{"s": {Known: true, Why: "x"}}},
		decide.NodeIdle{},
	} {
		l, body := toLine(want)
		if body != nil {
			l.Body = EncodeJSON(body)
		}
		if got, err := l.DecodeObservation(taint.DefaultKey); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v (%v)\nwant\n%+v", l.Kind, got, err, want)
		}
	}
	l, body := toLine(decide.ActionDone{Err: providers.WithClass(providers.ErrDenied, errors.New("401"))})
	l.Body = EncodeJSON(body)
	got, _ := l.DecodeObservation(taint.DefaultKey)
	if err := got.(decide.ActionDone).Err; err == nil || err.Error() != "401" || providers.ErrorClass(err) != "denied" {
		t.Errorf("an error: got %v", err)
	}
	for v, i := reflect.ValueOf(pod), 0; i < v.NumField(); i++ {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && !slices.Contains([]string{"Message", "Small", "AtOnce"}, name) {
			t.Errorf("field %s of a pod is not in this test: is it recorded?", name)
		}
	}
}

// What is seen of a node between looks begins no course, and rest ends one.
func TestNothingIsWrittenOfIdleNodes(t *testing.T) {
	var got []Kind
	c := Recorder{Node: &decide.Node{}, Name: "n1", Tape: func(text []byte) bool {
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		got = append(got, l.Kind)
		return true
	}}
	for range 2 {
		c.Apply(epoch, nil, decide.StorageReported{})
		c.Apply(epoch, nil, decide.NodeIdle{})
		c.Apply(epoch, nil, decide.StorageSettingRead{})
		c.Apply(epoch, nil, decide.StorageReported{})
		c.Apply(epoch, nil, decide.NodeIdle{})
	}
	want := []Kind{Begins, StorageSetting, Storage, Rests, Begins, StorageSetting, Storage, Rests}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
