package judge

import (
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is a moment of a story, in milliseconds.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// story is a fence as it should be, of one pod with a volume: v loses its power at 1 s, is marked at 2 s, its device is
// asked again at 2.1 s, db-0 is ended at 2.2 s, its volume cleared at 2.3 s, db-0 deleted at 2.4 s, and the mark goes
// at 3 s. db-0 runs on n1 from 3.5 s on.
func story() Account {
	a := Account{Victim: "v", Kept: []string{"disk-kept"}}
	node := func(rv string, mark bool, volumes ...corev1.UniqueVolumeName) Version {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "v", UID: "uid-v", ResourceVersion: rv, Labels: map[string]string{ForeignKey: "here"},
			Annotations: map[string]string{ForeignKey: "here"},
		}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: ForeignKey}}},
			Status: corev1.NodeStatus{VolumesInUse: volumes}}
		if mark {
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: MarkKey, Value: "id", Effect: corev1.TaintEffectNoSchedule})
		}
		return Version{Resource: "nodes", Key: "v", UID: "uid-v", RV: rv, Node: n}
	}
	pod := func(rv string, phase corev1.PodPhase, gone bool) Version {
		return Version{Resource: "pods", Key: "r/db-0", UID: "uid-p", RV: rv, Gone: gone,
			Pod: testPod("db-0", "uid-p", RolePlain, "v", phase)}
	}
	a.Versions = []Version{
		node("1", false, "disk-db", "disk-kept"), pod("2", corev1.PodRunning, false),
		testPodVersion("daemon", RoleDaemon, "v", "3"), testPodVersion("other", RoleOther, "n1", "4"),
		{Resource: "nodes", Key: "n1", UID: "uid-n1", RV: "5",
			Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1", ResourceVersion: "5"}}},
		node("10", true, "disk-db", "disk-kept"), pod("11", corev1.PodFailed, false), node("12", true, "disk-kept"),
		pod("13", corev1.PodFailed, true), node("14", false, "disk-kept"),
	}
	a.Writes = []Write{
		wrote("patch", "nodes", "", "v", "uid-v", "10", 2000),
		wrote("patch", "pods", "status", "r/db-0", "uid-p", "11", 2200),
		wrote("patch", "nodes", "status", "v", "uid-v", "12", 2300),
		wrote("delete", "pods", "", "r/db-0", "uid-p", "11", 2400),
		wrote("patch", "nodes", "", "v", "uid-v", "14", 3000),
	}
	a.Leads = []Lead{{"judged-a.1", at(0)}}
	a.Log = []Question{asked("v", "Off", 1500), asked("v", "Off", 2100)}
	a.Runs = []Span{{Node: "v", What: "r/db-0", UID: "uid-p", From: at(0), To: at(1000)},
		{Node: "n1", What: "r/db-0", UID: "uid-q", From: at(3500)}}
	a.Mounts = []Span{{Node: "v", What: "disk-db", From: at(0), To: at(1000)},
		{Node: "n1", What: "disk-db", From: at(3400)}}
	a.Attached = []Span{{Node: "v", What: "disk-db", From: at(0), To: at(3000)},
		{Node: "n1", What: "disk-db", From: at(3300)}}
	a.Alive = []Span{{Node: "v", From: at(0), To: at(1000)}}
	a.Beats = []Span{{Node: "v", From: at(500), To: at(500)}}
	return a
}

func testPod(name, uid, role, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "r", Name: name, UID: types.UID(uid),
			Labels: map[string]string{RoleLabel: role}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
}

func testPodVersion(name, role, node, rv string) Version {
	return Version{Resource: "pods", Key: "r/" + name, UID: "uid-" + name, RV: rv,
		Pod: testPod(name, "uid-"+name, role, node, corev1.PodRunning)}
}

func wrote(verb, resource, sub, key, uid, rv string, ms int) Write {
	return Write{Life: "judged-a.1", Verb: verb, Resource: resource, Sub: sub, Key: key, UID: uid, RV: rv, Sent: at(ms),
		Received: at(ms + 1), Done: at(ms + 5)}
}

func asked(system, word string, ms int) Question {
	return Question{System: system, Method: http.MethodGet, At: at(ms), Word: word, Delivered: at(ms + 2)}
}

// change edits the version of that resourceVersion.
func change(a *Account, rv string, edit func(*Version)) {
	i := slices.IndexFunc(a.Versions, func(v Version) bool { return v.RV == rv })
	v := a.Versions[i]
	if v.Node != nil {
		v.Node = v.Node.DeepCopy()
	}
	if v.Pod != nil {
		v.Pod = v.Pod.DeepCopy()
	}
	edit(&v)
	a.Versions[i] = v
}

// losesReady has the daemon's pod, which read Ready, written under the mark, 0.2 s after the device said Off; edit
// changes more of it.
func losesReady(a *Account, edit func(*corev1.Pod)) {
	ready := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
	change(a, "3", func(v *Version) { v.Pod.Status.Conditions = ready(corev1.ConditionTrue) })
	i := slices.IndexFunc(a.Versions, func(v Version) bool { return v.RV == "3" })
	v := a.Versions[i]
	v.RV, v.Pod = "20", v.Pod.DeepCopy()
	v.Pod.ResourceVersion, v.Pod.Status.Conditions = "20", ready(corev1.ConditionFalse)
	if edit != nil {
		edit(v.Pod)
	}
	a.Versions = append(a.Versions, v)
	a.Writes = append(a.Writes, wrote("patch", "pods", "status", "r/daemon", "uid-daemon", "20", 2300))
}

// TestJudge doctors the story: each check must find what it is for, and nothing else may find anything.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		doctor func(*Account)
		want   []string // "check: part of the text", one for each finding
	}{
		{"as it should be", func(*Account) {}, nil},
		{"a write that changed nothing needs no proof", func(a *Account) {
			a.Log = a.Log[:1]
			a.Writes = a.Writes[:1]
			a.Writes = append(a.Writes, wrote("patch", "pods", "status", "r/db-0", "uid-p", "2", 2200))
		}, nil},
		{"another's write is not ours", func(a *Account) {
			a.Log = a.Log[:1]
			for i := range a.Writes[1:4] {
				a.Writes[i+1].Life = ""
			}
		}, nil},

		{"an identity runs twice", func(a *Account) { a.Runs[0].To = at(3600) }, []string{"twice: r/db-0 runs on v"}},
		{"an identity runs for ever", func(a *Account) { a.Runs[0].To = time.Time{} },
			[]string{"twice: r/db-0 runs on v"}},
		{"a UID runs twice",
			func(a *Account) { a.Runs[1] = Span{Node: "n1", What: "r/db-9", UID: "uid-p", From: at(900)} }, []string{
				"twice: r/db-0 runs on v"}},
		{"a volume is in use twice", func(a *Account) { a.Mounts[0].To = at(3600) },
			[]string{"twice: disk-db is attached to n1", "twice: disk-db is in use on v and on n1"}},
		{"a volume is attached beside its user", func(a *Account) { a.Attached[1].From = at(900) },
			[]string{"twice: disk-db is attached to n1"}},

		{"no Off after the mark", func(a *Account) { a.Log = a.Log[:1] },
			[]string{"proof: judged-a.1 cuts volume lists", "proof: judged-a.1 deletes r/db-0",
				"proof: judged-a.1 ends r/db-0"}},
		{"the Off of before the mark came late", func(a *Account) { a.Log[1].At = at(1990) },
			[]string{"proof: judged-a.1 cuts", "proof: judged-a.1 deletes", "proof: judged-a.1 ends"}},
		{"an Off of another machine", func(a *Account) { a.Log[1].System = "n1" },
			[]string{"proof: judged-a.1 cuts", "proof: judged-a.1 deletes", "proof: judged-a.1 ends"}},
		{"an Off that never arrived", func(a *Account) { a.Log[1].Delivered = time.Time{} },
			[]string{"proof: judged-a.1 cuts", "proof: judged-a.1 deletes", "proof: judged-a.1 ends"}},
		{"an Off that arrived after the first write", func(a *Account) { a.Log[1].Delivered = at(2250) },
			[]string{"proof: judged-a.1 ends r/db-0"}},
		{"an answer that is no Off", func(a *Account) { a.Log[1].Word = "PoweringOff" },
			[]string{"proof: judged-a.1 cuts", "proof: judged-a.1 deletes", "proof: judged-a.1 ends"}},
		{"a proof of 7 s", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(9200), at(9201), at(9202)
			a.Writes[4].Done = at(9999)
			a.Writes[4].Received = at(9998)
		},
			[]string{"proof: judged-a.1 ends r/db-0 by an Off of 7.1s ago"}},
		{"a proof of 7 s, 3 s of which the machine stood still", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(9200), at(9201), at(9202)
			a.Writes[4].Done, a.Writes[4].Received = at(9999), at(9998)
			a.Stalls = []Span{{From: at(4000), To: at(7000)}}
		}, nil},
		{"a stall of before the question forgives nothing", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(9200), at(9201), at(9202)
			a.Writes[4].Done, a.Writes[4].Received = at(9999), at(9998)
			a.Stalls = []Span{{From: at(0), To: at(2000)}}
		}, []string{"proof: judged-a.1 ends r/db-0 by an Off of 7.1s ago"}},
		{"a delete of an ended pod after the device said On", func(a *Account) {
			a.Log[1].Delivered = at(2350)
			a.Log = append(a.Log, asked("v", "On", 2360))
			a.Writes = append(a.Writes[:1], a.Writes[3:]...)
		}, nil},
		{"a delete of a pod that has not ended, though the device said On", func(a *Account) {
			change(a, "13", func(v *Version) { v.Pod.Status.Phase = corev1.PodRunning })
			a.Log = []Question{asked("v", "On", 2100)}
			a.Writes = []Write{a.Writes[0], a.Writes[3]}
		}, []string{"proof: judged-a.1 deletes r/db-0, which had not ended"}},
		{"a write before the mark", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(1900), at(1901), at(1902)
		}, []string{"proof: judged-a.1 ends r/db-0 of v, which has no mark"}},
		{"a write after the mark", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(3100), at(3101), at(3102)
		}, []string{"proof: judged-a.1 ends r/db-0 of v, which has no mark"}},
		{"an attachment is deleted without a proof", func(a *Account) {
			w := wrote("delete", "volumeattachments", "", "csi-1", "uid-a", "9", 2050)
			w.Node = "v"
			a.Writes = append(a.Writes, w)
		}, []string{"proof: judged-a.1 deletes attachment csi-1"}},

		{"a write after another took the lead",
			func(a *Account) { a.Leads = append(a.Leads, Lead{"judged-b.1", at(2350)}) },
			[]string{"deposed: judged-a.1 delete pods/ r/db-0, when judged-b.1 led",
				"deposed: judged-a.1 patch nodes/ v, when judged-b.1 led"}},
		{"a write before any leader", func(a *Account) { a.Leads[0].Done = at(2100) },
			[]string{"deposed: judged-a.1 patch nodes/ v, when none led"}},
		{"no Lease names a leader", func(a *Account) { a.Leads = nil }, nil},

		{"a daemon's pod is written", func(a *Account) {
			v := testPodVersion("daemon", RoleDaemon, "v", "20")
			a.Versions = append(a.Versions, v)
			a.Writes = append(a.Writes, wrote("patch", "pods", "status", "r/daemon", "uid-daemon", "20", 2250))
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"a daemon's pod loses Ready under a proof", func(a *Account) { losesReady(a, nil) }, nil},
		{"a daemon's pod loses Ready without a proof", func(a *Account) {
			losesReady(a, nil)
			a.Log = a.Log[:1]
			a.Writes = []Write{a.Writes[0], a.Writes[len(a.Writes)-1]}
		}, []string{"proof: judged-a.1 sets r/daemon not ready"}},
		{"a daemon's pod loses Ready and a label", func(a *Account) {
			losesReady(a, func(p *corev1.Pod) { p.Labels["x"] = "x" })
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"a daemon's pod loses Ready and its phase", func(a *Account) {
			losesReady(a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"a daemon's pod reads Unknown", func(a *Account) {
			losesReady(a, func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"a finished pod loses Ready", func(a *Account) {
			change(a, "3", func(v *Version) { v.Pod.Status.Phase = corev1.PodSucceeded })
			losesReady(a, nil)
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"another node's daemon's pod loses Ready", func(a *Account) {
			change(a, "3", func(v *Version) { v.Pod.Spec.NodeName = "n1" })
			losesReady(a, nil)
		}, []string{"exempt: judged-a.1 patch (status) of r/daemon"}},
		{"another node's pod is deleted", func(a *Account) {
			a.Writes = append(a.Writes, wrote("delete", "pods", "", "r/other", "uid-other", "4", 2250))
		}, []string{"exempt: judged-a.1 delete () of r/other"}},
		{"a foreign taint goes", func(a *Account) {
			change(a, "10", func(v *Version) { v.Node.Spec.Taints = v.Node.Spec.Taints[1:] })
			a.Writes = a.Writes[:2]
		}, []string{"exempt: judged-a.1 changes taints of v"}},
		{"a foreign label changes",
			func(a *Account) { change(a, "14", func(v *Version) { v.Node.Labels[ForeignKey] = "x" }) }, []string{
				"exempt: judged-a.1 changes labels of v"}},
		{"a foreign annotation goes",
			func(a *Account) { change(a, "14", func(v *Version) { delete(v.Node.Annotations, ForeignKey) }) }, []string{
				"exempt: judged-a.1 changes annotations of v"}},
		{"an own label changes",
			func(a *Account) { change(a, "14", func(v *Version) { v.Node.Labels["forcefence.io/x"] = "x" }) }, nil},
		{"a node is cordoned",
			func(a *Account) { change(a, "14", func(v *Version) { v.Node.Spec.Unschedulable = true }) }, []string{
				"exempt: judged-a.1 changes taints of v"}},
		{"the volume of a pod that stays is cut",
			func(a *Account) { change(a, "12", func(v *Version) { v.Node.Status.VolumesInUse = nil }) }, []string{
				"exempt: judged-a.1 takes inUse disk-kept off the lists of v"}},
		{"another node is marked", func(a *Account) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: MarkKey}}}}
			a.Versions = append(a.Versions, Version{Resource: "nodes", Key: "n1", UID: "uid-n1", RV: "21", Node: n})
			a.Writes = append(a.Writes, wrote("patch", "nodes", "", "n1", "uid-n1", "21", 2250))
		}, []string{"exempt: judged-a.1 marks n1"}},
		{"another node's Ready is written", func(a *Account) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
			a.Versions = append(a.Versions, Version{Resource: "nodes", Key: "n1", UID: "uid-n1", RV: "21", Node: n})
			a.Writes = append(a.Writes, wrote("patch", "nodes", "status", "n1", "uid-n1", "21", 2250))
		}, []string{"exempt: judged-a.1 sets Ready of n1"}},

		{"a node that is heard is powered off", func(a *Account) {
			a.Log = append(a.Log, Question{System: "v", Method: http.MethodPost, Word: "ForceOff", At: at(4000)})
		}, []string{"power: v is powered off 3.5s after a heartbeat"}},
		{"a node that is silent is powered off", func(a *Account) {
			a.Log = append(a.Log, Question{System: "v", Method: http.MethodPost, Word: "ForceOff", At: at(20000)})
		}, nil},
		{"another machine is powered off", func(a *Account) {
			a.Log = append(a.Log, Question{System: "n1", Method: http.MethodPost, Word: "ForceOff", At: at(20000)})
		}, []string{"power: n1 is powered off"}},
		{"the mark stays", func(a *Account) { a.Ends = []string{"v is marked"} }, []string{"end: v is marked"}},
		{"a write that was never seen", func(a *Account) { a.Writes[1].RV = "99" },
			[]string{"account: judged-a.1 writes pods r/db-0 at 99"}},
		{"a deletion of what was never seen", func(a *Account) { a.Writes[3].UID = "uid-x" },
			[]string{"account: judged-a.1 deletes pods r/db-0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := story()
			tt.doctor(&a)
			holds(t, a, tt.want)
		})
	}
}
