package nri

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/taint"
)

const testBoot = "0f5ad2be-6c2f-4a3a-9d3c-4b8d4f4f5a11"

func testNode(bootID string, ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.UID = "n1", "node-uid"
	n.Spec.Taints = taints
	n.Status.NodeInfo.BootID = bootID
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func testPod(uid string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "pod-"+uid, types.UID(uid)
	for _, c := range change {
		c(&p)
	}
	return p
}

func daemon(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "cni", Controller: &yes}}
}

// uses gives a pod a claim of its namespace; inline gives it a disk by the disk's own name.
func uses(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

func inline(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{
			ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1:3260", IQN: "iqn.2001-04.com.example:disk"}}}}
}

// detaching gives a Node the record of a fence that waits for the volume of claim default/db alone.
func detaching(n *corev1.Node) *corev1.Node {
	r := taint.Record{
		ID: "f1", By: "x", Phase: taint.PhaseEvicting, NodeUID: string(n.UID),
		Detaching: []taint.Detaching{{PV: "pv-db", Claim: "default/db"}},
	}
	n.Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
	return n
}

func phase(is corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = is } }

var testMark = corev1.Taint{Key: taint.DefaultKey, Value: "f1", Effect: corev1.TaintEffectNoSchedule}

func askFor(uid string, annotations map[string]string) request {
	return request{"default", "pod-" + uid, uid, annotations}
}

// answer returns why a pod is held, or "" if it may start.
func answer(v *view, r request) string {
	if err := v.admitPod(r, time.Now); err != nil {
		return err.Error()
	}
	return ""
}

// TestView plays histories: what the view sees, and the answer for a pod afterwards.
func TestView(t *testing.T) {
	const (
		unread  = "forcefence: held on node n1: node was not read yet on this boot"
		markedT = "forcefence: held on node n1: node is marked as shut down (forcefence.io/node-shutdown=f1:NoSchedule)"
		never   = "forcefence: held on node n1: node was not Ready yet on this boot"
		unknown = "forcefence: held on node n1: pod is not known to the API server"
		volume  = "forcefence: held on node n1: pod may use a volume that is still to be detached " +
			"(forcefence.io/node-shutdown=f1:NoSchedule)"
	)
	ready, crashed := testNode(testBoot, corev1.ConditionTrue), testNode("the boot before", corev1.ConditionTrue)
	marked := testNode(testBoot, corev1.ConditionTrue, testMark)
	static := map[string]string{"kubernetes.io/config.source": "file"}
	fromAPI := map[string]string{"kubernetes.io/config.source": "api", "forcefence.io/x": "y"}
	type step struct {
		see func(*view)
		ask request
		say string
	}
	node := func(n *corev1.Node) func(*view) { return func(v *view) { v.seeNode(n, true, time.Now()) } }
	before := func(n *corev1.Node) func(*view) { return func(v *view) { v.seeNode(n, false, time.Now()) } }
	waiting := detaching(testNode(testBoot, corev1.ConditionTrue, testMark))
	twice := detaching(
		testNode(testBoot, corev1.ConditionTrue, testMark,
			corev1.Taint{Key: taint.DefaultKey, Value: "a person's", Effect: corev1.TaintEffectNoExecute}))
	pods := func(p ...corev1.Pod) func(*view) { return func(v *view) { v.listPods(p) } }
	pod := func(p corev1.Pod, deleted bool) func(*view) { return func(v *view) { v.seePod(&p, deleted) } }
	a := askFor("a", fromAPI)
	for name, steps := range map[string][]step{
		"nothing was read": {
			{ask: a, say: unread},
			{see: pods(testPod("a")), ask: a, say: unread},
			{ask: askFor("hash", static)},
		},
		"a boot": {
			{see: pods(testPod("a")), ask: a, say: unread},
			{see: node(crashed), ask: a, say: never},
			{see: node(testNode(testBoot, corev1.ConditionFalse)), ask: a, say: never},
			{see: node(ready), ask: a},
			{see: node(testNode(testBoot, corev1.ConditionUnknown)), ask: a}, // it was Ready on this boot
		},
		"the mark comes and goes": {
			{see: pods(testPod("a"), testPod("d", daemon))},
			{see: node(ready), ask: a},
			{see: node(marked), ask: a, say: markedT},
			{ask: askFor("d", fromAPI)},
			{ask: askFor("hash", static)},
			{see: pod(testPod("a", phase(corev1.PodFailed)), false), ask: a, say: markedT},
			{see: node(ready), ask: a, say: unknown}, // it was ended
		},
		"a mark with another effect": {
			{see: pods(testPod("a"))},
			{see: node(testNode(testBoot, corev1.ConditionTrue,
				corev1.Taint{Key: taint.DefaultKey, Effect: taint.EffectForceEviction}))},
			{ask: a, say: "forcefence: held on node n1: node is marked as shut down " +
				"(forcefence.io/node-shutdown=:ForceEviction)"},
		},
		"a pod comes and goes": {
			{see: node(ready), ask: a, say: unknown},
			{see: pod(testPod("a"), false), ask: a},
			{see: pod(testPod("a"), true), ask: a, say: unknown},
			{see: pod(testPod("b", phase(corev1.PodSucceeded)), false), ask: askFor("b", nil), say: unknown},
			{see: pods(testPod("a", phase(corev1.PodFailed))), ask: a, say: unknown},
		},
		"the Node is deleted": {
			{see: pods(testPod("a"))},
			{see: node(ready), ask: a},
			{see: (*view).forgetNode, ask: a, say: unread},
			{see: node(ready), ask: a},
		},
		"the mark waits for volumes": {
			{see: pods(testPod("a"), testPod("b", uses("db")), testPod("c", uses("web")), testPod("d", inline))},
			{see: node(marked), ask: a, say: markedT},
			{see: before(waiting), ask: a, say: markedT}, // the pods were not listed since
			{see: node(waiting), ask: a},
			{ask: askFor("b", fromAPI), say: volume},
			{ask: askFor("c", fromAPI)},
			{ask: askFor("d", fromAPI), say: volume}, // whose disk it is, is unknown
			{ask: askFor("new", fromAPI), say: unknown},
			{see: pod(testPod("new", uses("db")), false), ask: askFor("new", fromAPI), say: volume},
			{see: node(marked), ask: a, say: markedT},
			{see: node(waiting), ask: a},
			{see: node(twice), ask: a, say: "forcefence: held on node n1: node is marked as shut down " +
				"(forcefence.io/node-shutdown=f1:NoSchedule)"},
			{see: node(ready), ask: askFor("b", fromAPI)},
		},
		"the mark waits for volumes, and the node was not Ready": {
			{see: pods(testPod("a"))},
			{see: node(detaching(testNode("the boot before", corev1.ConditionTrue, testMark))), ask: a, say: never},
		},
		"without an UID": {
			{see: node(ready), ask: askFor("", fromAPI), say: unknown},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView("n1", taint.DefaultKey, testBoot)
			for i, s := range steps {
				if s.see != nil {
					s.see(v)
				}
				if s.ask.name == "" {
					continue
				}
				if got := answer(v, s.ask); got != s.say {
					t.Errorf("step %d: got %q, want %q", i, got, s.say)
				}
			}
		})
	}
}

// TestRestoredVolumesAreForgotten checks that a restarted plugin holds every pod under a mark: the status does not say
// which volumes the mark waits for.
func TestRestoredVolumesAreForgotten(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	if !v.restoreStatus(Status{BootID: testBoot, TaintKey: taint.DefaultKey, Node: NodeView{
		Name: "n1", Node: admit.Node{Read: true, Marked: true, Detaching: true, ReadySeen: true},
	}}) {
		t.Fatal("not restored")
	}
	v.listPods([]corev1.Pod{testPod("b", uses("db"))})
	if got := answer(v, askFor("b", nil)); !strings.Contains(got, string(admit.NodeMarked)) {
		t.Errorf("got %q", got)
	}
}

// TestRestoreWithoutBootID checks that two boots with unreadable ids do not count as the same.
func TestRestoreWithoutBootID(t *testing.T) {
	s := Status{TaintKey: taint.DefaultKey, Node: NodeView{Name: "n1", Node: admit.Node{Read: true, ReadySeen: true}}}
	if newView("n1", taint.DefaultKey, "").restoreStatus(s) {
		t.Error("restored")
	}
}

func TestNoBootIDIsNeverReady(t *testing.T) {
	v := newView("n1", taint.DefaultKey, "")
	v.listPods([]corev1.Pod{testPod("a")})
	v.seeNode(testNode("", corev1.ConditionTrue), true, time.Now())
	if got := answer(v, askFor("a", nil)); !strings.Contains(got, string(admit.NodeNeverReady)) {
		t.Errorf("got %q", got)
	}
}

func TestHeldPodsAreReported(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { clock = clock.Add(time.Second); return clock }
	for range 3 {
		_ = v.admitPod(askFor("a", nil), now)
	}
	_ = v.admitPod(askFor("b", nil), now)
	var s Status
	v.fillStatus(&s)
	if len(s.Held) != 2 || s.Held[0].UID != "a" || s.Held[0].Times != 3 || s.Held[0].Why != admit.NodeUnread ||
		!s.Held[0].Since.Before(s.Held[0].Last) || s.Held[1].Name != "pod-b" {
		t.Fatalf("held: got %+v", s.Held)
	}
	v.listPods([]corev1.Pod{testPod("a")})
	v.seeNode(testNode(testBoot, corev1.ConditionTrue), true, clock)
	if v.fillStatus(&s); len(s.Held) != 1 {
		t.Errorf("b is no longer bound to the node: got %+v", s.Held)
	}
	if got := answer(v, askFor("a", nil)); got != "" {
		t.Errorf("got %q", got)
	}
	if v.fillStatus(&s); len(s.Held) != 0 {
		t.Errorf("a may start: got %+v", s.Held)
	}
}

// TestRestore checks that only a status of this boot, this Node and this mark is restored.
func TestRestore(t *testing.T) {
	before := newView("n1", taint.DefaultKey, testBoot)
	before.listPods([]corev1.Pod{testPod("a"), testPod("d", daemon)})
	before.seeNode(testNode(testBoot, corev1.ConditionTrue), true, time.Now())
	var s Status
	before.fillStatus(&s)
	for name, tt := range map[string]struct {
		change func(*Status)
		node   string
		want   bool
	}{
		"same boot": {node: "n1", want: true},
		"volumes are named": {node: "n1", want: true,
			change: func(s *Status) { s.Node.Marked, s.Node.Detaching = true, true }},
		"another boot":   {node: "n1", change: func(s *Status) { s.BootID = "another" }},
		"no boot id":     {node: "n1", change: func(s *Status) { s.BootID = "" }},
		"another node":   {node: "n2"},
		"another mark":   {node: "n1", change: func(s *Status) { s.TaintKey = "example.net/off" }},
		"was never read": {node: "n1", change: func(s *Status) { s.Node.Read = false }},
		"marked at the end": {node: "n1", change: func(s *Status) { s.Node.Marked, s.Node.Mark = true, "x" },
			want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			if tt.change != nil {
				tt.change(&s)
			}
			v := newView(tt.node, taint.DefaultKey, testBoot)
			if got := v.restoreStatus(s); got != tt.want {
				t.Fatalf("restore: got %v, want %v", got, tt.want)
			}
			wantStart := tt.want && !s.Node.Marked
			if got := answer(v, askFor("a", nil)); (got == "") != wantStart {
				t.Errorf("a known pod: got %q, want it to start: %v", got, wantStart)
			}
			if got := answer(v, askFor("d", nil)); (got == "") != tt.want {
				t.Errorf("an exempt one: got %q, want it to start: %v", got, tt.want)
			}
		})
	}
}

// FuzzView checks that an ordinary pod starts only where the design allows it, after any history.
func FuzzView(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{2, 16, 8, 3})
	f.Fuzz(func(t *testing.T, story []byte) {
		v := newView("n1", taint.DefaultKey, testBoot)
		read, marked, ready, known := false, false, false, false
		for _, b := range story {
			switch b % 8 {
			case 0, 1, 2, 3: // a Node: Ready or not, of this boot or not, marked or not
				status, boot := corev1.ConditionFalse, "another"
				if b&8 != 0 {
					status = corev1.ConditionTrue
				}
				if b&16 != 0 {
					boot = testBoot
				}
				n := testNode(boot, status)
				if marked = b%2 == 1; marked {
					n.Spec.Taints = []corev1.Taint{testMark}
				}
				v.seeNode(n, true, time.Time{})
				read, ready = true, ready || b&24 == 24
			case 4:
				v.forgetNode()
				read = false
			case 5:
				p := testPod("a",
					phase([]corev1.PodPhase{"", corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[b>>3%4]))
				v.seePod(&p, b&128 != 0)
				known = b&128 == 0 && b>>3%4 < 2
			case 6:
				v.listPods(nil)
				known = false
			case 7:
				v.listPods([]corev1.Pod{testPod("a"), testPod("b")})
				known = true
			}
			want := read && !marked && ready && known
			if got := answer(v, askFor("a", nil)) == ""; got != want {
				t.Fatalf("read %v, marked %v, ready %v, known %v: starts %v", read, marked, ready, known, got)
			}
		}
	})
}

// BenchmarkAsk measures the decision with 500 pods on the node.
func BenchmarkAsk(b *testing.B) {
	var all []corev1.Pod
	for i := range 500 {
		all = append(all, testPod(fmt.Sprint(i)))
	}
	fromAPI := map[string]string{"kubernetes.io/config.source": "api"}
	for name, n := range map[string]*corev1.Node{
		"allow": testNode(testBoot, corev1.ConditionTrue), "hold": testNode(testBoot, corev1.ConditionTrue, testMark),
	} {
		b.Run(name, func(b *testing.B) {
			v := newView("n1", taint.DefaultKey, testBoot)
			v.listPods(all)
			v.seeNode(n, true, time.Now())
			r := askFor("250", fromAPI)
			took := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				_ = v.admitPod(r, time.Now)
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// FuzzPodAndNode gives the hook any pod and any Node, as JSON: on a node with the mark nothing starts but what
// taint.ExemptionOf names, and that always starts; nothing panics.
func FuzzPodAndNode(f *testing.F) {
	f.Add(`{"metadata":{"uid":"a"},"spec":{"tolerations":[{"operator":"Exists"}]}}`,
		`{"spec":{"taints":[{"key":"forcefence.io/node-shutdown"}]}}`)
	f.Add(`{"metadata":{"uid":"a","ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","controller":true}]}}`,
		`{}`)
	f.Add(`{"metadata":{"uid":"a","annotations":{"kubernetes.io/config.source":"api"}},"status":{"phase":"Failed"}}`,
		`{"status":{"nodeInfo":{"bootID":"`+testBoot+`"},"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.Add(`{"metadata":{"uid":"a","namespace":"default"},`+
		`"spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"a"}}]}}`,
		`{"metadata":{"uid":"node-uid","annotations":{"forcefence.io/fence":"{`+
			`\"id\":\"f1\",\"by\":\"x\",\"phase\":\"Evicting\",\"nodeUID\":\"node-uid\",`+
			`\"since\":\"2026-01-01T00:00:00Z\",\"at\":\"2026-01-01T00:00:00Z\",`+
			`\"detaching\":[{\"pv\":\"p\",\"claim\":\"default/b\"}]}"}},`+
			`"spec":{"taints":[{"key":"forcefence.io/node-shutdown","value":"f1"}]},`+
			`"status":{"nodeInfo":{"bootID":"`+testBoot+`"},"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.Fuzz(func(t *testing.T, podJSON, nodeJSON string) {
		var pod corev1.Pod
		var node corev1.Node
		if json.Unmarshal([]byte(podJSON), &pod) != nil || json.Unmarshal([]byte(nodeJSON), &node) != nil {
			return
		}
		r := request{pod.Namespace, pod.Name, string(pod.UID), map[string]string{"kubernetes.io/config.source": "api"}}
		_, marked := taint.FindMark(&node, taint.DefaultKey, "")
		exempt := taint.ExemptionOf(&pod, taint.DefaultKey) != taint.NotExempt && !taint.IsTerminal(&pod)
		v := newView("n1", taint.DefaultKey, testBoot)
		v.listPods([]corev1.Pod{pod})
		if got := answer(v, r) == ""; got != exempt {
			t.Errorf("node unread, pod exempt: %v; starts: %v", exempt, got)
		}
		v.seeNode(&node, false, time.Time{})
		got := answer(v, r) == ""
		if exempt && !got || !exempt && marked && got {
			t.Errorf("node marked: %v, pod exempt: %v; starts: %v", marked, exempt, got)
		}
		if taint.IsTerminal(&pod) && got {
			t.Error("a pod that has ended starts")
		}
		v.seeNode(&node, true, time.Time{})
		got = answer(v, r) == ""
		named := taint.NewLook(&node, nil, taint.DefaultKey, taint.Instant{}, taint.Instant{}).DetachingClaims()
		claims, sure := taint.VolumeClaims(&pod)
		if !exempt && marked && got && (len(named) == 0 || !taint.FreeOf(claims, sure, named)) {
			t.Errorf("the mark waits for %q, the pod uses %q and all of it is known: %v; it starts", named, claims,
				sure)
		}
	})
}

// listPods applies a list of these pods.
func (v *view) listPods(pods []corev1.Pod) {
	seen := map[string]podView{}
	for i := range pods {
		v.listPod(seen, &pods[i])
	}
	v.seePods(seen)
}
