package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/recording"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

var update = flag.Bool("update", false, "rewrite testdata")

const secret = "of-the-pod-only"

var epoch = providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// world is a silent node whose machine is on, beside three that are heard, and the executor of its course.
type world struct {
	decide.World // the actions to which no course comes here

	now    providers.Instant
	node   *corev1.Node
	pods   []action.Pod
	facts  decide.Facts
	fleet  fleet.Fleet
	off    bool // the machine is
	course recording.Recorder
	tape   bytes.Buffer
	room   int // lines that the tape takes; negative: all
	taken  int
	given  int   // lines that it was given
	err    error // of each question
	offErr error // of a power-off
}

func newWorld(mode fence.Mode) *world {
	w := &world{now: epoch, room: -1}
	n := &corev1.Node{}
	n.Name, n.UID, n.ResourceVersion, n.Labels = "n1", "n1-uid", "7", map[string]string{"pool": "a"}
	n.Annotations = map[string]string{"example.net/token": secret, fence.ModeAnnotation: "fence"}
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute,
		TimeAdded: &metav1.Time{Time: epoch.Wall}}}
	n.Status.NodeInfo.BootID = "b1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.NewTime(epoch.Wall), Message: secret}}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:taints":{},"f:` + secret + `":{}}}`)}}
	w.node = n
	w.pods = []action.Pod{
		{Namespace: "ns", Name: "db-0", UID: "db-0-uid", ResourceVersion: "1", Message: secret,
			Owner: action.Owner{Kind: "StatefulSet", Name: "db"}}}
	w.pods[0].Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, TolerationSeconds: new(int64(3600))}}
	w.facts = decide.Facts{
		Facts: fence.Facts{
			Mode: mode, By: "ff", NewID: "f-1",
			Devices: []proof.Device{
				{Name: "racks/https://admin:" + secret + "@bmc",
					Machine: taint.MachineRef{Provider: "racks", ID: "1"}}},
			Settings: fence.Settings{PowerOffAfter: 20 * time.Second, PowerOffTimeout: time.Minute,
				Retry: 5 * time.Minute},
		},
		Evict: evict.Settings{DetachTimeout: 5 * time.Minute},
	}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		w.fleet.AddNode(name, w.now)
		w.fleet.ApplyLease(name, "1", 40*time.Second, w.now)
		w.fleet.ApplyLook(
			taint.Look{Exists: true, Name: name, UID: name, ResourceVersion: "1", Ready: corev1.ConditionTrue}, w.now)
	}
	w.course = recording.Recorder{Node: &decide.Node{}, Name: "n1", Tape: w.take}
	w.tape.Write(append(recording.Header{By: "test", At: epoch.Wall, TaintKey: taint.DefaultKey, Mode: mode.String(),
		ConfigDigest: "d"}.EncodeLine(), '\n'))
	return w
}

func (w *world) take(line []byte) bool {
	if w.given++; w.room >= 0 && w.taken >= w.room {
		return false
	}
	w.taken++
	w.tape.Write(append(line, '\n'))
	return true
}

func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		w.now = w.now.Add(min(d, time.Second))
		for _, name := range []string{"n2", "n3", "n4"} {
			w.fleet.ApplyLease(name, fmt.Sprint(w.now.Wall.UnixNano()), 40*time.Second, w.now)
		}
	}
}

// run carries out the course for so long, and returns what was decided beside reads.
func (w *world) run(limit time.Duration) (did []string) {
	for until := w.now.Add(limit); w.now.Before(until); {
		d := w.course.Next(w.now, &w.fleet)
		switch {
		case action.Is[action.NoAction](d):
			return append(did, "NoAction")
		case action.Is[action.Wait](d):
			did = append(did, string(d.Reason))
			w.pass(d.RequeueAfter)
			continue
		case action.IsRead(d.Action):
			w.pass(time.Millisecond)
		case !action.Is[action.AskDevices](d):
			did = append(did, action.Name(d.Action))
		}
		w.course.Apply(w.now, &w.fleet, decide.Do(context.Background(), d.Action, w))
		if action.Is[action.RemoveMark](d) {
			return did
		}
	}
	return did
}

func (w *world) ReadNode(context.Context) decide.Observation {
	l := taint.NewLook(w.node, nil, taint.DefaultKey, w.now, w.now)
	l.LeaseRV, l.LeaseDuration = "1", 40*time.Second
	return decide.NodeRead{Look: l, Facts: w.facts, Node: w.node.DeepCopy()}
}

func (w *world) ListPods(context.Context) decide.Observation {
	return decide.PodsListed{Pods: w.pods}
}

func (w *world) ListAttachments(_ context.Context, a action.ListAttachments) decide.Observation {
	return decide.AttachmentsListed{Live: a.Live}
}

func (w *world) AskDevices(context.Context) decide.Observation {
	a := providers.Answer{Observation: providers.Observation{State: providers.PowerOn, Raw: "On", At: w.now},
		By: "racks", Got: w.now}
	if w.off {
		a.State, a.Raw = providers.PowerOff, "Off"
	}
	if w.err != nil {
		a = providers.Answer{Observation: providers.Observation{At: w.now}, By: "racks", Got: w.now, Err: w.err}
	}
	return decide.DevicesAnswered{Answers: []providers.Answer{a}}
}

// write writes the record on the Node.
func (w *world) write(r taint.Record) decide.Observation {
	w.node.Annotations[taint.RecordAnnotation] = r.Encode()
	w.node.ResourceVersion += "1"
	return decide.ActionDone{SentAt: w.now}
}

func (w *world) WriteRecord(_ context.Context, a action.WriteRecord) decide.Observation {
	return w.write(a.Record)
}

func (w *world) WithdrawOrders(_ context.Context, a action.WithdrawOrders) decide.Observation {
	return w.write(a.Record)
}

func (w *world) SetMark(_ context.Context, a action.SetMark) decide.Observation {
	w.node.Spec.Taints = taint.WithMark(w.node.Spec.Taints, taint.DefaultKey, a.Record.ID,
		w.now.Wall.Truncate(time.Second))
	return w.write(a.Record)
}

func (w *world) RemoveMark(_ context.Context, a action.RemoveMark) decide.Observation {
	w.node.Spec.Taints = taint.WithoutMark(w.node.Spec.Taints, taint.DefaultKey, a.Record.ID)
	return w.write(a.Record)
}

func (w *world) SetPoweredOnCondition(context.Context, action.SetPoweredOnCondition) decide.Observation {
	w.node.Status.Conditions = append(w.node.Status.Conditions,
		corev1.NodeCondition{Type: taint.PoweredOnCondition, Status: corev1.ConditionTrue})
	w.node.ResourceVersion += "1"
	return decide.ActionDone{SentAt: w.now}
}

func (w *world) PowerOff(context.Context, action.PowerOff) decide.Observation {
	w.off = w.offErr == nil
	return decide.ActionDone{SentAt: w.now, Err: w.offErr}
}

func (w *world) EndPods(context.Context, action.EndPods) decide.Observation {
	w.pods[0].Tombstone, w.pods[0].Terminal = true, true
	return decide.ActionDone{SentAt: w.now, Results: map[string]action.WriteResult{"db-0-uid": action.Accepted}}
}

func (w *world) DeletePods(context.Context, action.DeletePods) decide.Observation {
	w.pods = nil
	return decide.ActionDone{SentAt: w.now, Results: map[string]action.WriteResult{"db-0-uid": action.Accepted}}
}

func play(t *testing.T, text string) Report {
	t.Helper()
	r, err := PlayRecordings([]io.Reader{strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSameDecisions(t *testing.T) {
	w := newWorld(fence.Fence)
	did := w.run(10 * time.Minute)
	if did[len(did)-1] != "RemoveMark" {
		t.Fatalf("did %q, want a whole fence", did)
	}
	r := play(t, w.tape.String())
	var now []string
	for _, d := range r.Decisions {
		if d.Now.Do != "Wait" && d.Now.Do != "NoAction" && d.Now.Do != "SetPoweredOnCondition" {
			now = append(now, d.Now.Do)
		}
	}
	if want := []string{
		"WriteRecord", "PowerOff", "SetMark", "WriteRecord", "EndPods", "DeletePods", "RemoveMark"}; r.Differ != 0 ||
		!reflect.DeepEqual(now, want) {
		t.Errorf("got %q, %d differ; want %q", now, r.Differ, want)
	}
	if lines := strings.Count(w.tape.String(), "\n"); r.Lines != lines || r.Skipped != 0 || r.Torn {
		t.Errorf("got %+v, want all of %d lines", r.Tally, lines)
	}
}

// An answer that was another then makes a decision differ, and what follows of that course is left out.
func TestChangedRecordingDiffers(t *testing.T) {
	w := newWorld(fence.Fence)
	w.run(10 * time.Minute)
	r := play(t, strings.Replace(w.tape.String(), `"state":"Off"`, `"state":"On"`, 1))
	if r.Differ != 1 || r.Skipped == 0 {
		t.Errorf("got %d that differ and %d lines left out, want 1, and the rest", r.Differ, r.Skipped)
	}
}

// Each part of each decision counts, of one that repeats itself, too.
func TestEveryDifferenceCounts(t *testing.T) {
	w := newWorld(fence.Fence)
	w.run(10 * time.Minute)
	lines := strings.SplitAfter(strings.TrimSuffix(w.tape.String(), "\n"), "\n")
	tried := 0
	for i, text := range lines {
		var l recording.Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if l.Kind != recording.Next || l.Body == nil || i%3 != 0 {
			continue
		}
		for name, change := range map[string]func(*recording.Step){
			"requeueAfter": func(s *recording.Step) { s.RequeueAfter = "77s" },
			"detail":       func(s *recording.Step) { s.Detail += "x" },
			"pods":         func(s *recording.Step) { s.Pods = append(s.Pods, "x/y") },
			"record":       func(s *recording.Step) { s.Record += "x" }, "why": func(s *recording.Step) { s.Why = "" },
		} {
			var was, now recording.Step
			if err := json.Unmarshal(l.Body, &was); err != nil {
				t.Fatal(err)
			}
			if now = was; name == "why" && was.Why == "" {
				continue
			}
			change(&now)
			l := l
			l.Body = recording.EncodeJSON(now)
			all := slices.Clone(lines)
			all[i] = string(recording.EncodeJSON(l)) + "\n"
			r := play(t, strings.Join(all, ""))
			if last := len(r.Decisions) - 1; r.Differ != 1 ||
				!slices.ContainsFunc(r.Decisions,
					func(d Decision) bool { return d.Line == i+1 && slices.Equal(d.In, []string{name}) }) {
				t.Errorf("line %d with another %s: %d differ, the last of %+v", i+1, name, r.Differ,
					r.Decisions[max(last, 0):])
			}
			tried++
		}
	}
	if tried < 100 {
		t.Errorf("%d changes were tried: too few", tried)
	}
}

// TestDetailAlone plays recordings in which only details have other texts, as earlier versions may have written them.
// Each difference is reported, and the course is played to its end.
func TestDetailAlone(t *testing.T) {
	for _, mode := range []fence.Mode{fence.Observe, fence.Shadow} {
		w := newWorld(mode)
		w.run(10 * time.Minute)
		same := play(t, w.tape.String())
		text := strings.ReplaceAll(w.tape.String(), `"detail":"`, `"detail":"In other words: `)
		r := play(t, text)
		if r.Differ < 1 || r.Compared != same.Compared || r.Skipped != same.Skipped {
			t.Errorf("%s: got %d of %d decisions that differ, %d lines left out, want more than none of %d, %d",
				mode, r.Differ, r.Compared, r.Skipped, same.Compared, same.Skipped)
		}
		for _, d := range r.Decisions {
			if d.Differs && (!slices.Equal(d.In, []string{"detail"}) || d.Then.Detail == d.Now.Detail) {
				t.Errorf("%s: %+v differs", mode, d)
			}
		}
	}
}

// A recording holds only what is listed: no text that only an object holds, no credential before an @.
func TestRedaction(t *testing.T) {
	w := newWorld(fence.Fence)
	w.facts.NoDeviceErr = nil
	w.run(10 * time.Minute)
	w.course.Apply(w.now, &w.fleet,
		decide.DevicesAnswered{
			Answers: []providers.Answer{
				{Err: providers.WithClass(providers.ErrDenied, errors.New("https://admin:"+secret+"@bmc: 401"))}}})
	if text := w.tape.String(); strings.Contains(text, secret) || !strings.Contains(text, "racks/https://bmc") {
		t.Errorf("a secret is in the recording:\n%s", text)
	}
}

// A time that cannot be written ends what is written of the node, and the recording is good.
func TestWhatCannotBeWritten(t *testing.T) {
	w := newWorld(fence.Fence)
	w.run(time.Minute)
	before := w.given
	w.course.Apply(w.now, &w.fleet,
		decide.PodsListed{Pods: []action.Pod{{Name: "p", DeleteAt: epoch.Wall.AddDate(9000, 0, 0)}}})
	if w.run(time.Minute); w.given != before {
		t.Errorf("%d lines came after it", w.given-before)
	}
	if r := play(t, w.tape.String()); r.Differ != 0 || r.Skipped != 0 {
		t.Errorf("got %d that differ, %d lines left out, want none", r.Differ, r.Skipped)
	}
}

// A line that has no room ends what is written of the node until it is idle; the rest of the recording is good.
func TestGap(t *testing.T) {
	w := newWorld(fence.Fence)
	w.room = 20
	w.run(3 * time.Minute)
	if w.taken != 20 || w.given != 21 {
		t.Errorf("%d lines came after the one that had no room", w.given-21)
	}
	full := newWorld(fence.Fence)
	full.room = 0
	full.course.Apply(epoch, &full.fleet, decide.PodsListed{})
	if full.run(time.Minute); full.given != 1 {
		t.Errorf("the beginning had no room, and %d lines came after it", full.given-1)
	}
	w.room = -1
	w.course.Apply(w.now, nil, decide.NodeIdle{Look: taint.Look{Got: w.now}})
	before := w.taken
	w.run(time.Second)
	if w.taken == before {
		t.Error("nothing is written of the node after it was idle")
	}
	text := w.tape.String()
	if r := play(t, text); r.Differ != 0 || r.Skipped != 0 {
		t.Errorf("got %d that differ, %d left out, want none", r.Differ, r.Skipped)
	}
	lines := strings.SplitAfter(text, "\n")
	if r := play(t, strings.Join(append(lines[:5:5], lines[6:]...), "")); r.Differ != 0 || r.Skipped != 20-5 {
		t.Errorf("one line is missing: got %d that differ, %d left out, want 0 and 15", r.Differ, r.Skipped)
	}
	if r := play(t, lines[0]+strings.Join(lines[6:], "")); r.Differ != 0 || r.Skipped != 20-5 {
		t.Errorf("the beginning is missing: got %d that differ, %d left out, want 0 and 15", r.Differ, r.Skipped)
	}
}

// A look that repeats itself costs a line without a body.
func TestSameBodiesAreWrittenOnce(t *testing.T) {
	w := newWorld(fence.Observe)
	w.run(2 * time.Minute)
	first := w.tape.Len()
	w.run(time.Hour)
	if per := (w.tape.Len() - first) / 3600; per > 1000 {
		t.Errorf("a node that stays as it is costs %d bytes a second", per)
	}
}

// Two processes that write about one node are not mixed up. Nor are two courses if a full disk cut the end of one and
// the beginning of the other.
func TestCoursesAreNotMixed(t *testing.T) {
	one, two := newWorld(fence.Fence), newWorld(fence.Observe)
	two.now = two.now.Add(3 * time.Second)
	one.run(3 * time.Minute)
	two.run(3 * time.Minute)
	a, b := strings.SplitAfter(one.tape.String(), "\n"), strings.SplitAfter(two.tape.String(), "\n")
	for n := 2; n < 40; n++ {
		beside := strings.Join(a[:n], "") + strings.Join(b[:n+1], "") + strings.Join(a[n:], "") +
			strings.Join(b[n+1:], "")
		if r := play(t, beside); r.Differ != 0 || r.Skipped != len(a)-1-n || r.Compared < 50 {
			t.Errorf("two processes, from line %d on: %d differ, %d lines left out, %d compared; want 0, those of "+
				"the first and all of the second", n, r.Differ, r.Skipped, r.Compared)
		}
		if r := play(t, strings.Join(a[:n], "")+strings.Join(b[n:], "")); r.Differ != 0 ||
			r.Skipped != len(b)-1-n {
			t.Errorf("a full disk after line %d: %d differ, %d lines left out, want 0 and the rest", n, r.Differ,
				r.Skipped)
		}
	}
}

// A node that stays silent does not fill the recording.
func TestLongCourseIsCut(t *testing.T) {
	w := newWorld(fence.Observe)
	w.run(50 * time.Hour)
	if size := w.tape.Len(); size > 9<<20 || size < 8<<20 {
		t.Errorf("%d bytes, want about 8 MiB", size)
	}
	if r := play(t, w.tape.String()); r.Differ != 0 || r.Skipped != 0 || r.Truncated != 1 {
		t.Errorf("got %d that differ, %d left out, %d cut; want 0, 0, 1", r.Differ, r.Skipped, r.Truncated)
	}
	w.course.Apply(w.now, nil, decide.NodeIdle{Look: taint.Look{Got: w.now}})
	before := w.tape.Len()
	if w.run(time.Second); w.tape.Len() == before {
		t.Error("nothing is written of the node after it was idle")
	}
}

// What a controller keeps to write down of a node does not grow with its pods.
func TestCourseKeepsNoBodies(t *testing.T) {
	var pods []action.Pod
	for i := range 110 {
		pods = append(pods,
			action.Pod{Namespace: "ns", Name: fmt.Sprintf("a-name-as-deployments-make-them-%d", i),
				Labels: map[string]string{"app.kubernetes.io/name": "a-name"}})
	}
	heap := func(tape func([]byte) bool) int {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := make([]recording.Recorder, 300)
		for i := range all {
			all[i] = recording.Recorder{Node: &decide.Node{}, Name: "n", Tape: tape}
			all[i].Apply(epoch, nil, decide.PodsListed{Pods: pods})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(all)
		return (int(after.HeapAlloc) - int(before.HeapAlloc)) / len(all)
	}
	if none, all := heap(nil), heap(func([]byte) bool { return true }); all > none+8192 {
		t.Errorf("a recorded course takes %d bytes, one that is not %d", all, none)
	}
}

func TestBadRecordings(t *testing.T) {
	header := string(recording.Header{By: "v9", At: epoch.Wall, TaintKey: taint.DefaultKey}.EncodeLine()) + "\n"
	const begun = `{"node":"n","n":0,"kind":"begins"}` + "\n"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":            {"", "it is empty"},
		"another file":     {"mode: fence\n", "line 1: not a recording of forcefence"},
		"JSON, no version": {"{}\n", "line 1: not a recording of forcefence: its version is missing"},
		"a newer version": {strings.Replace(header, `"recordingVersion":1`, `"recordingVersion":2`, 1),
			"version 2, by forcefence v9; this forcefence reads versions up to 1"},
		"no JSON": {header + "{\n{}\n", "line 2: unexpected end of JSON input"},
		"no node": {header + "{\"kind\":\"next\"}\n", "line 2: its node is missing"},
		"unknown kind": {header + `{"node":"n","n":0,"kind":"begins"}` + "\n" +
			`{"node":"n","n":1,"kind":"\u001b[31mred"}` + "\n", `line 3: kind [31mred is not known to this version`},
		"same as nothing": {header + `{"node":"n","n":0,"kind":"begins","same":true}` + "\n",
			"line 2: it repeats an earlier line that is missing"},
		"a body": {header + `{"node":"n","n":0,"kind":"begins","body":[]}` + "\n", "line 2: begins of node n: json"},
		"another node": {header + `{"node":"n","n":0,"kind":"begins"}` + "\n" +
			`{"node":"n","n":1,"kind":"nodeRead","body":{"node":{"metadata":{"name":"m"}},"facts":{"mode":"fence"}}}` + "\n",
			"has another Node"},
		"no mode": {header + `{"node":"n","n":0,"kind":"begins"}` + "\n" +
			`{"node":"n","n":1,"kind":"nodeRead","body":{"facts":{"mode":"x"}}}` + "\n", `"x" is not a mode`},
		"many values": {header + begun + `{"node":"n","n":1,"kind":"pods","body":[{}` +
			strings.Repeat(",{}", recording.MaxValues) + "]}\n",
			"line 3: it has 65539 values; a line of a recording has fewer"},
		"year 10000": {header + begun +
			`{"node":"n","n":1,"kind":"nodeRead","body":{"node":{"metadata":{"name":"n"},` +
			`"spec":{"taints":[{"timeAdded":"10000-01-01T00:00:00Z"}]}}}}` + "\n",
			"line 3: nodeRead of node n: parsing time"},
		"a long line": {header + strings.Repeat("x", 8<<20+1) + "\n", "line 2: it is longer than"},
	} {
		r, err := PlayRecordings([]io.Reader{strings.NewReader(tt.text)})
		got := r.First
		if (err == nil) != (r.Broken > 0) {
			t.Errorf("%s: got %v and %d broken lines, want either", name, err, r.Broken)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if strings.ContainsRune(got, '\x1b') {
			t.Errorf("%s: %q is not fit for a terminal", name, got)
		}
	}
	r := play(t, header+`{"node":"n","n":0,"kind":"begins"}`+"\n"+`{"node":"n","n":1,"kind":"ne`)
	if !r.Torn || r.Lines != 2 {
		t.Errorf("a torn line: got %+v", r.Tally)
	}
	r = play(t, header+begun+"\x00\x00\n"+begun+`{"node":"n","n":1,"kind":"rests"}`+"\n")
	if r.Broken != 1 || r.Lines != 5 || r.Skipped != 0 {
		t.Errorf("a broken line between two courses: got %+v, %d left out", r.Tally, r.Skipped)
	}
	r = play(t, header+string(recording.DroppedLine(3))+"\n")
	if r.Dropped != 3 {
		t.Errorf("dropped lines: got %+v", r.Tally)
	}
}

// TestGolden: a recording of this version stays readable. One that differs has been changed in its form: raise Version,
// or keep it.
func TestGolden(t *testing.T) {
	const file = "testdata/recording-1.jsonl"
	if *update {
		w := newWorld(fence.Fence)
		w.run(10 * time.Minute)
		if err := os.WriteFile(file, w.tape.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := play(t, string(text))
	if last := r.Decisions[len(r.Decisions)-1]; r.Differ != 0 || last.Now.Do != "RemoveMark" || r.Skipped != 0 {
		t.Errorf("got %d that differ, the last is %s; want a whole fence", r.Differ, last.Now)
	}
}

// FuzzPlay: any file is played to an end, and the report fits a terminal.
func FuzzPlay(f *testing.F) {
	// short ones: the fuzzer changes all of an input
	for _, mode := range []fence.Mode{fence.Fence, fence.Shadow, fence.Observe} {
		w := newWorld(mode)
		w.off = mode == fence.Fence
		w.run(500 * time.Millisecond)
		f.Add(w.tape.Bytes())
	}
	f.Add([]byte(`{"recordingVersion":1}` + "\n" + `{"node":"\u001b[2J","n":0,"kind":"begins"}` + "\n" +
		`{"node":"\u001b[2J","n":1,"kind":"next","body":{"do":"\u001b[2J","why":"x\ny"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := PlayRecordings([]io.Reader{bytes.NewReader(text)})
		told := []string{r.First}
		if err != nil {
			told = append(told, err.Error())
		}
		for _, d := range r.Decisions {
			told = append(told, d.Then.String(), d.Now.String(), recording.CleanText(d.Node))
		}
		for _, s := range told {
			if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }) {
				t.Errorf("%q is not fit for a terminal", s)
			}
		}
	})
}

// Lines in any order, as only a forger writes them, come to an end, too.
func TestForgedOrder(t *testing.T) {
	var all []map[string]any
	for _, mode := range []fence.Mode{fence.Fence, fence.Observe} {
		w := newWorld(mode)
		w.run(2 * time.Minute)
		for _, text := range strings.Split(strings.TrimSpace(w.tape.String()), "\n")[1:] {
			var l map[string]any
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			delete(l, "course")
			if delete(l, "same"); l["body"] != nil {
				all = append(all, l)
			}
		}
	}
	header := string(recording.Header{By: "x", TaintKey: taint.DefaultKey}.EncodeLine()) + "\n"
	played := 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		text := strings.Builder{}
		text.WriteString(header + `{"node":"n1","n":0,"kind":"begins"}` + "\n")
		for n := range 60 {
			l := all[rng.IntN(len(all))]
			if l["n"] = n + 1; l["kind"] == "begins" {
				l["n"] = 0
			}
			line, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(append(line, '\n'))
		}
		r, err := PlayRecordings([]io.Reader{strings.NewReader(text.String())})
		if err == nil {
			played += r.Compared
		} else {
			t.Errorf("seed %d: %v", seed, err)
		}
		if r.Broken > 0 && !strings.Contains(r.First, "it cannot be played") {
			t.Errorf("seed %d: %s", seed, r.First)
		}
	}
	if played == 0 {
		t.Error("nothing was decided")
	}
}
