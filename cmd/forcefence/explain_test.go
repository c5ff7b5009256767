package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/test/kit"
)

// inhabited gives each node a heartbeat, n1 three pods: of a StatefulSet, of a DaemonSet, and a large one, and n2
// another.
func (s *site) inhabited() {
	s.t.Helper()
	ctx := s.t.Context()
	create := func(o client.Object) { kit.Must(s.t, s.api.Create(ctx, o)) }
	for i, name := range []string{"n1", "n2", "n3", "n4"} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
		at := metav1.NewMicroTime(time.Now().Add(-time.Hour - time.Duration(i)*time.Second)) // by another clock
		l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &at, new(int32(40))
		create(l)
		var n corev1.Node
		kit.Must(s.t, s.api.Get(ctx, client.ObjectKey{Name: name}, &n))
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("9")}
		kit.Must(s.t, s.api.Status().Update(ctx, &n))
		create(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, kind := range map[string]string{
		"db-0": "StatefulSet", "agent": "DaemonSet", "huge": "ReplicaSet", "other": "ReplicaSet"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: kind, Name: "of-" + name, Controller: new(true)}}
		p.Spec.NodeName = "n1"
		cpu := "1"
		if name == "other" {
			p.Spec.NodeName = "n2"
		}
		if name == "huge" {
			cpu = "40"
		}
		if kind == "DaemonSet" { // its controller makes its pods stay on a dead node
			for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
					Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
			}
		}
		p.Spec.Containers = []corev1.Container{
			{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
		create(p)
	}
}

func TestExplain(t *testing.T) {
	s := newSite(t)
	s.inhabited()
	before := len(s.bmc["n1"].Requests())
	out, err := s.run("explain", "n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Node n1: Ready, last heartbeat ", "Mode fence (mode of the configuration).", "answers On in",
		"identity confirmed",
		"AND ITS MACHINE IS OFF: 2 pods move", "AND ITS MACHINE IS ON: powered off, 2 pods move",
		"AND NO DEVICE ANSWERS: nothing happens",
		"pod of a DaemonSet: ns/agent", "REPLACEMENTS: 1 of 2 have room elsewhere", "with too little cpu",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// By this process's clock, on a busy machine: by the node's clock it was an hour ago.
	if !regexp.MustCompile(`last heartbeat [0-9]{1,2}s ago\.`).MatchString(out) {
		t.Errorf("the heartbeat is not of just now in\n%s", out)
	}
	if n := s.posts("n1"); n != 0 || len(s.bmc["n1"].Requests()) == before {
		t.Errorf("the BMC got %d power-offs and %d questions", n, len(s.bmc["n1"].Requests())-before)
	}
	before = len(s.bmc["n1"].Requests())
	s.expect("not asked", "", "explain", "n1", "--no-devices")
	if n := len(s.bmc["n1"].Requests()); n != before {
		t.Errorf("--no-devices: the BMC got %d questions", n-before)
	}
	s.change("n1", func(n *corev1.Node) {
		n.Annotations = map[string]string{fence.PausedAnnotation: "new disk"}
	})
	s.expect(`AND ITS DEVICES SAY ANYTHING: nothing happens`, "", "explain", "n1", "--no-devices")
	s.change("n1", func(n *corev1.Node) { n.Annotations = nil })
	pauseIn := func(namespace string) {
		t.Helper()
		pause := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forcefence-pause"},
			Data:       map[string]string{"reason": "new switches"},
		}
		kit.Must(t, s.api.Create(t.Context(), pause))
		s.expect("new switches", "", "explain", "n1", "--no-devices")
		kit.Must(t, s.api.Delete(t.Context(), pause))
	}
	pauseIn("kube-system") // without a controller: where one outside of a pod has its Lease
	kit.Must(t, s.api.Create(t.Context(), leaseOf("home")))
	pauseIn("home")
	const waits = "No controller leads: what follows waits until one does."
	s.expect(waits, "", "explain", "n1", "--no-devices")
	lease := &coordinationv1.Lease{}
	kit.Must(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(leaseOf("home")), lease))
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("ff-1"), new(metav1.NewMicroTime(time.Now()))
	kit.Must(t, s.api.Update(t.Context(), lease))
	if out, err := s.run("explain", "n1", "--no-devices"); err != nil || strings.Contains(out, waits) {
		t.Errorf("with a leader: got %v and\n%s", err, out)
	}
	s.change("n1", func(n *corev1.Node) { n.Annotations = map[string]string{fence.PausedAnnotation: "new disk"} })
	s.expect("", "node n9 does not exist", "explain", "n9")
	s.expect("", "use json, name, wide, yaml", "explain", "n1", "-o", "xml")
	s.expect("without a device", "", "explain", "n4")

	s.expect("pod/agent\npod/db-0\npod/huge\n", "", "explain", "n1", "-o", "name")
	s.expect("POD        IF-OFF   IF-ON   IF-UNKNOWN   NOTE\nns/agent   stays", "", "explain", "n1", "-o", "wide")
	out, err = s.run("explain", "n1", "-o", "json")
	var e explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatal(err)
	}
	if err != nil || e.Node != "n1" || len(e.Scenarios) != 3 ||
		e.LeftAlone != `annotation forcefence.io/paused "new disk", with no end` || len(e.Stay) != 1 ||
		len(e.Devices) != 1 || e.Devices[0].State != "On" || len(e.Replacements) != 2 ||
		e.Replacements[0].Fits == e.Replacements[1].Fits {
		t.Errorf("got error %v and %+v", err, e)
	}
}

// Without a configuration file explain --no-devices takes the rules of the ConfigMap, whose files are in the pod.
// A command that asks devices says how to run it in that pod.
func TestExplainDeployedConfig(t *testing.T) {
	if _, err := os.Stat("/etc/forcefence/config.yaml"); err == nil {
		t.Skip("this machine has the default configuration file")
	}
	const exec = "kubectl -n home exec deploy/my-fence -- /ko-app/forcefence "
	s := newSite(t)
	s.inhabited()
	s.file = ""
	kit.Must(t, s.api.Create(t.Context(), leaseOf("home")))
	s.expect("", "exec deploy/forcefence -- /ko-app/forcefence drill n1", "drill", "n1")
	kit.Must(t, s.api.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "home", Name: "my-fence", Labels: map[string]string{
			"app.kubernetes.io/name": "forcefence", "app.kubernetes.io/component": "controller"},
	}}))
	s.expect("", exec+"explain n1 --no-devices", "explain", "n1", "--no-devices") // there is no ConfigMap
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: configMapName},
		Data: map[string]string{configKey: `mode: fence
providers:
- name: racks
  redfish: {username: u, passwordFile: /only/in/the/pod, caFile: /only/in/the/ca.pem}
nodes:
- name: all
  provider: racks
  machine: {from: list, list: [{node: n1, id: "https://10.0.0.1"}]}
`}}
	kit.Must(t, s.api.Create(t.Context(), cm))
	s.expect("level 1  racks/https://10.0.0.1: not asked", "", "explain", "n1", "--no-devices")
	for _, line := range []string{"explain n1", "drill n1", "power off n1"} {
		s.expect("", exec+line, strings.Fields(line)...)
	}
	s.d.client = forbidding{s.api, []string{fmt.Sprintf("%T", cm)}}
	s.expect("", "reading ConfigMap home/forcefence instead: ", "explain", "n1", "--no-devices")
	s.d.client = s.api
	cm.Data[configKey] = "mode: x\n"
	kit.Must(t, s.api.Update(t.Context(), cm))
	s.expect("", "config.yaml:1: mode: must be", "explain", "n1", "--no-devices")
}

// forbidding may not list some resources.
type forbidding struct {
	client.Client
	kinds []string
}

func (f forbidding) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if slices.Contains(f.kinds, fmt.Sprintf("%T", o)) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: fmt.Sprintf("%T", o)}, key.Name,
			fmt.Errorf("no right"))
	}
	return f.Client.Get(ctx, key, o, opts...)
}

func (f forbidding) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if slices.Contains(f.kinds, fmt.Sprintf("%T", list)) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: fmt.Sprintf("%T", list)}, "",
			fmt.Errorf("no right"))
	}
	return f.Client.List(ctx, list, opts...)
}

// Who lacks a right is told which, and gets the answer without what it would have shown; there is none without the
// nodes, Leases and pods.
func TestExplainWithoutRights(t *testing.T) {
	s := newSite(t)
	s.inhabited()
	csi, pods := fmt.Sprintf("%T", &storagev1.CSINodeList{}), fmt.Sprintf("%T", &corev1.PodList{})
	s.d.client = forbidding{s.api, []string{csi}}
	s.expect("attach slots, and where CSI drivers run: "+csi+" is forbidden", "", "explain", "n1", "--no-devices", "-o",
		"json")
	s.d.client = forbidding{s.api, []string{fmt.Sprintf("%T", &corev1.ConfigMap{})}}
	s.expect("ConfigMap kube-system/forcefence-pause", "", "explain", "n1", "--no-devices")
	s.expect("2 pods move", "", "explain", "n1", "--no-devices") // the controller may read it
	s.expect("UNKNOWN AND LEFT OUT", "", "explain", "n1", "--no-devices")
	s.d.client = forbidding{s.api, []string{pods}}
	s.expect("", "no right", "explain", "n1")
}

// A node that is dead already is explained as such: what its fence did, and that nothing more happens.
func TestExplainAfterFence(t *testing.T) {
	s := newSite(t)
	s.inhabited()
	ended := time.Now().UTC().Truncate(time.Second)
	s.change("n1", func(n *corev1.Node) {
		rec := taint.Record{ID: "f-0123456789ab", NodeUID: string(n.UID), By: "ff-1", Since: ended}.EnterPhase(
			taint.PhaseDone, taint.ResultEvicted, ended)
		n.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode()}
	})
	var n corev1.Node
	kit.Must(t, s.api.Get(t.Context(), client.ObjectKey{Name: "n1"}, &n))
	n.Status.Conditions = []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionUnknown, ended.Add(-time.Minute), "")}
	kit.Must(t, s.api.Status().Update(t.Context(), &n))
	for _, name := range []string{"db-0", "huge"} { // its pods are gone
		kit.Must(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}))
	}
	out, err := s.run("explain", "n1", "--no-devices")
	text := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"Node n1: not Ready", "IF IT STAYS NOT READY, AND ITS DEVICES SAY ANYTHING: " +
		"nothing happens, because its fence f-0123456789ab has ended as Evicted: its pods were freed"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("got %v and no %q in\n%s", err, want, out)
		}
	}
	if strings.Contains(out, "REPLACEMENTS") || strings.Contains(out, "STOPS ANSWERING") {
		t.Errorf("got replacements, or a node that answers:\n%s", out)
	}
}

func TestDescribeEndedFence(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	done := func(result taint.Result) *taint.Record {
		r := taint.Record{ID: "f-1", Since: at}.EnterPhase(taint.PhaseDone, result, at)
		return &r
	}
	open := taint.Record{ID: "f-1", Since: at}.EnterPhase(taint.PhaseEvicting, "", at)
	dead := condition(corev1.NodeReady, corev1.ConditionUnknown, at.Add(-time.Minute), "")
	for _, tt := range []struct {
		name  string
		rec   *taint.Record
		ready corev1.NodeCondition
		want  string
	}{
		{"no fence", nil, dead, ""},
		{"a fence in progress", &open, dead, ""},
		{"evicted", done(taint.ResultEvicted), dead, "its fence f-1 has ended as Evicted: its pods were freed"},
		{"released", done(taint.ResultReleased), dead, "its fence f-1 has ended as Released"},
		{"Ready since", done(taint.ResultEvicted), condition(corev1.NodeReady, corev1.ConditionTrue, at, ""), ""},
		{"dead again", done(taint.ResultEvicted), condition(corev1.NodeReady, corev1.ConditionUnknown,
			at.Add(time.Minute), ""), ""},
	} {
		if got := describeEndedFence(tt.rec, tt.ready); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The help promises the rules that the output names.
func TestExplainHelp(t *testing.T) {
	_, help, _ := exec("explain", "--help")
	rules, _, _ := strings.Cut(strings.TrimPrefix(estimate, "This is an estimate by the scheduler's rules: "), ". ")
	if help = strings.Join(strings.Fields(help), " "); !strings.Contains(help, rules) {
		t.Errorf("got this, want %q in it:\n%s", rules, help)
	}
}
