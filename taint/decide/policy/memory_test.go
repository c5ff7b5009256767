package policy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
)

// What a Memory remembers comes back, each field of it.
func TestMemoryIsWrittenWhole(t *testing.T) {
	at := providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC))
	m := Memory{
		ready: true, notReadyCount: 2, done: map[string]int{"p": 1}, since: at,
		looks: evict.Looks{TaintTimes: evict.TaintTimes{{Key: "k", Added: at.Add(6).Wall, Seen: at.Add(7)}},
			Last: at.Add(1), Resumed: at.Add(2), LastBeforeGap: at.Add(3)},
		retryAt: map[string]providers.Instant{"u": at.Add(3)}, small: map[string]bool{"u": true},
		owedDeletes: map[string]bool{"v": true}, freedPods: map[string]bool{"w": true},
		reportedPolicies: map[string]bool{"p": true},
		loose:            map[string]string{"pv": "p"},
		spells:           map[string]spell{"p": {true, at.Add(4), true, at.Add(5)}}, failed: map[string]bool{"x": true},
		freedVolumes: []freedVolume{{"p", action.Volume{PV: "pv", Driver: "d"}, "b", true}}, boot: "b",
	}
	for v, i := reflect.ValueOf(m), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("field %s is not in this test: is it written?", v.Type().Field(i).Name)
		}
	}
	for _, want := range []Memory{m, {}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Memory
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v (%s)", got, want, text)
		}
	}
}

// A recording of before taints were seen by two clocks has one time for each: both clocks agree on it.
func TestMemoryOfOneClock(t *testing.T) {
	at := providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC))
	var got Memory
	err := json.Unmarshal([]byte(`{"seen":[{"key":"k","seen":"2026-03-01T12:00:00.000000005Z"}]}`), &got)
	want := Memory{looks: evict.Looks{TaintTimes: evict.TaintTimes{{Key: "k", Seen: at}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// A freed volume is remembered while its spell lasts, even if the kubelet's list lacks it: a live kubelet may write it
// back. After the spell it is forgotten once the list does not name it or it was cleared, and at once after a reboot.
func TestFreedVolumesAreForgotten(t *testing.T) {
	const listed, absent = corev1.UniqueVolumeName("csi/1"), corev1.UniqueVolumeName("csi/2")
	for _, tt := range []struct {
		name   string
		open   bool
		boot   string
		volume freedVolume
		want   int
	}{
		{"a spell: it is not listed", true, "b", freedVolume{volume: action.Volume{Unique: absent}}, 1},
		{"a spell: it was cleared", true, "b", freedVolume{volume: action.Volume{Unique: listed}, cleared: true}, 1},
		{"a spell, and a reboot", true, "c", freedVolume{volume: action.Volume{Unique: listed}}, 0},
		{"after it: it is listed", false, "b", freedVolume{volume: action.Volume{Unique: listed}}, 1},
		{"after it: it is not listed", false, "b", freedVolume{volume: action.Volume{Unique: absent}}, 0},
		{"after it: it was cleared", false, "b", freedVolume{volume: action.Volume{Unique: listed}, cleared: true}, 0},
	} {
		tt.volume.policy, tt.volume.boot = "p", "b"
		m := Memory{spells: map[string]spell{"p": {open: tt.open}}, freedVolumes: []freedVolume{tt.volume}}
		m.ApplyLook(taint.Look{Exists: true, BootID: tt.boot, InUse: []corev1.UniqueVolumeName{listed}})
		if got := len(m.freedVolumes); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A volume is freed by a pod that a policy of unhealthy storage ended, once for each policy. Other ends free none.
func TestFreedVolumes(t *testing.T) {
	one := pod("a")
	end, spell := action.EndPods{Pods: []action.Pod{one}}, Effects{Policy: fenced(StorageFences)}
	other := spell
	other.Policy.Name = "q"
	for _, tt := range []struct {
		name string
		runs []Effects
		how  action.WriteResult
		want int
	}{
		{"accepted", []Effects{spell}, action.Accepted, 1},
		{"twice", []Effects{spell, spell}, action.Accepted, 1},
		{"of two policies", []Effects{spell, other, spell}, action.Accepted, 2},
		{"changed", []Effects{spell}, action.Changed, 0},
		{"failed", []Effects{spell}, action.Failed, 0},
		{"by another policy", []Effects{{Policy: full()}}, action.Accepted, 0},
	} {
		var m Memory
		for _, e := range tt.runs {
			m.ApplyWrites(end, e, map[string]action.WriteResult{one.UID: tt.how}, now)
		}
		if len(m.freedVolumes) != tt.want {
			t.Errorf("%s: got %+v, want %d", tt.name, m.freedVolumes, tt.want)
		}
	}
}

// A pod that another client changed has not failed: the next look sees it.
func TestFailedPods(t *testing.T) {
	for how, want := range map[action.WriteResult]bool{
		action.Accepted: false, action.Changed: false, action.Failed: true, action.Denied: true,
	} {
		var m Memory
		m.ApplyWrites(tombstone, Effects{}, map[string]action.WriteResult{"a": how}, now)
		if m.failed["a"] != want {
			t.Errorf("%v: got failed %v, want %v", how, m.failed["a"], want)
		}
	}
}

// Freed volumes leave the kubelet's list only if it has them, and no pod may use them.
func TestClearsWhatIsListed(t *testing.T) {
	const mine, other = corev1.UniqueVolumeName("csi/1"), corev1.UniqueVolumeName("csi/2")
	p := fenced(StorageFences)
	v := View{Now: now, Look: down(), Listed: true}
	v.Look.InUse = []corev1.UniqueVolumeName{mine}
	v.Memory.freedVolumes = []freedVolume{
		{policy: "p", volume: action.Volume{Unique: mine}}, {policy: "p", volume: action.Volume{Unique: other}},
		{policy: "q", volume: action.Volume{Unique: mine}}, {policy: "p", volume: action.Volume{Unique: mine}, cleared: true},
	}
	if got := v.volumesInUse(p); len(got) != 1 || got[0].volume.Unique != mine {
		t.Errorf("got %+v, want %s alone", got, mine)
	}
	unread := pod("a")
	unread.Volumes, unread.Claims = nil, true
	v.Pods = []action.Pod{unread}
	if d, _ := v.clearVolumes([]Policy{p}); !action.Is[action.ReadVolumes](d) {
		t.Errorf("one pod's volumes are not known: got %s, want them read", action.Name(d.Action))
	}
	v.Pods = nil
	if d, _ := v.clearVolumes([]Policy{p}); !action.Is[action.ClearVolumes](d) {
		t.Errorf("no pod is left: got %s, want the list cleared", action.Name(d.Action))
	}
}
