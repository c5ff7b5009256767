package taint

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func leaseAt(rv string) *coordinationv1.Lease {
	if rv == "" {
		return nil
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
}

func TestParseRecord(t *testing.T) {
	full := Record{
		ID: "f1", Phase: PhaseDone, Result: ResultEvicted, NodeUID: "u1", BootID: "b1", LeaseRV: "7", Since: noon,
		At: noon.Add(time.Second),
		By: "me", Device: "redfish/rack-a", Machine: &MachineRef{"rack-a", "https://bmc1", uuid1},
		Evidence: []Evidence{{At: noon, From: "rack-a", State: "Off", Raw: "Off"}},
	}
	for _, tt := range []struct {
		name, in string
		want     Record
		fault    string // "" if it parses
	}{
		{"full", full.Encode(), full, ""},
		{"a newer version's field",
			`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","colour":"red","since":"2026-03-01T12:00:00Z",` +
				`"at":"2026-03-01T12:00:00Z"}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", Since: noon, At: noon,
				Newer: fieldsOf("colour", `"red"`)}, ""},
		{"a newer version's fields beside ours in another case",
			`{"id":"f1","PHASE":"Armed","nodeUID":"u1","by":"me","plan":{"phase":"Done"},"offby":[],"x":null}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", OffBy: []DeviceRef{},
				Newer: fieldsOf("plan", `{"phase":"Done"}`, "x", "null")}, ""},
		{"as much of a newer version as has room",
			`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","x":"` + strings.Repeat("x", maxNewer-3) + `"}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me",
				Newer: fieldsOf("x", `"`+strings.Repeat("x", maxNewer-3)+`"`)}, ""},
		{"more of a newer version than has room",
			`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","x":"` + strings.Repeat("x", maxNewer-2) + `"}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me"}, ""},
		{"a newer version's field in a list",
			`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","falseOffs":[{"device":"d","why":"x"}]}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", FalseOffs: []DeviceRef{{Device: "d"}}}, ""},
		{"an older version's, without a machine",
			`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","device":"rack-a/https://bmc1"}`,
			Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", Device: "rack-a/https://bmc1"}, ""},
		{"a machine that is none", `{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","machine":"bmc1"}`, Record{},
			"cannot unmarshal"},
		{"a person's without an id", `{"id":"","phase":"Evicting","nodeUID":"u1","by":"person"}`,
			Record{Phase: PhaseEvicting, NodeUID: "u1", By: ByPerson}, ""},
		{"empty", "", Record{}, "unexpected end"},
		{"null", "null", Record{}, `unknown phase ""`},
		{"list", "[]", Record{}, "cannot unmarshal"},
		{"cut off", full.Encode()[:40], Record{}, "unexpected end"},
		{"two", full.Encode() + full.Encode(), Record{}, "after top-level value"},
		{"no phase", `{"id":"f1","nodeUID":"u1","by":"me"}`, Record{}, `unknown phase ""`},
		{"unknown phase", `{"id":"f1","phase":"Draining","nodeUID":"u1","by":"me"}`, Record{},
			`unknown phase "Draining"`},
		{"phase in lower case", `{"id":"f1","phase":"armed","nodeUID":"u1","by":"me"}`, Record{},
			`unknown phase "armed"`},
		{"done without a result", `{"id":"f1","phase":"Done","nodeUID":"u1","by":"me"}`, Record{}, `unknown result ""`},
		{"done with an unknown result", `{"id":"f1","phase":"Done","result":"Exploded","nodeUID":"u1","by":"me"}`,
			Record{}, `unknown result "Exploded"`},
		{"a result too early", `{"id":"f1","phase":"Armed","result":"Evicted","nodeUID":"u1","by":"me"}`, Record{},
			`phase Armed with result "Evicted"`},
		{"no id", `{"phase":"Armed","nodeUID":"u1","by":"me"}`, Record{}, "no id"},
		{"no nodeUID", `{"id":"f1","phase":"Armed","by":"me"}`, Record{}, "no nodeUID"},
		{"no by", `{"id":"f1","phase":"Armed","nodeUID":"u1"}`, Record{}, "no by"},
		{"a time that is none", `{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","since":"yesterday"}`, Record{},
			"yesterday"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRecord(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseRecord (-want +got):\n%s", diff)
			}
			switch {
			case tt.fault == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case tt.fault != "" && (!errors.Is(err, errRecord) || !strings.Contains(err.Error(), tt.fault)):
				t.Errorf("error %v, want an ErrRecord with %q", err, tt.fault)
			}
		})
	}
	for _, p := range []Phase{PhasePoweringOff, PhaseArmed, PhaseEvicting} {
		r := Record{ID: "f1", NodeUID: "u1", By: "me"}.EnterPhase(p, "", noon)
		if got, err := ParseRecord(r.Encode()); err != nil || !cmp.Equal(got, r) || !got.IsOpen() {
			t.Errorf("phase %s: %+v, %v, open %v", p, got, err, got.IsOpen())
		}
	}
	for _, res := range []Result{
		ResultEvicted, ResultReturned, ResultLifted, ResultCancelled, ResultPowerOffFailed, ResultMarkRemoved,
		ResultReleased, ResultNeverPoweredOff} {
		r := Record{ID: "f1", NodeUID: "u1", By: "me"}.EnterPhase(PhaseDone, res, noon)
		if got, err := ParseRecord(r.Encode()); err != nil || !cmp.Equal(got, r) || got.IsOpen() {
			t.Errorf("result %s: %+v, %v, open %v", res, got, err, got.IsOpen())
		}
	}
}

// fieldsOf makes Record.Newer out of names and their JSON.
func fieldsOf(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

// JSON refuses a time after the year 9999: there is no annotation then, with fields of a newer version or without.
func TestRecordThatJSONRefuses(t *testing.T) {
	for _, newer := range []map[string]json.RawMessage{nil, fieldsOf("colour", `"red"`)} {
		r := Record{ID: "f1", NodeUID: "u1", By: "me", Newer: newer}.
			EnterPhase(PhaseArmed, "", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
		if got := r.Encode(); got != "" {
			t.Errorf("newer %v: got %q, want nothing", newer, got)
		}
	}
}

// Fields of a newer version stay in the records of its fence when this version writes, and cannot pass for a field of
// ours.
func TestNewerFieldsStay(t *testing.T) {
	r, err := ParseRecord(
		`{"id":"f1","phase":"Armed","nodeUID":"u1","by":"me","plan":{"after":"dawn"},"PHASE":"Evicting",` +
			`"colour":"red"}`)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseRecord(
		r.WithEvidence(Evidence{At: noon, State: "Off"}).EnterPhase(PhaseDone, ResultEvicted, noon).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fieldsOf("plan", `{"after":"dawn"}`, "colour", `"red"`), again.Newer); diff != "" {
		t.Errorf("fields of a newer version (-want +got):\n%s", diff)
	}
	if again.Phase != PhaseDone || again.Result != ResultEvicted {
		t.Errorf("phase %s, result %s, want those that were written last", again.Phase, again.Result)
	}
}

func TestRecordOf(t *testing.T) {
	r := Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me"}
	node := func(m map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: m}}
	}
	if got, err := RecordOf(node(nil)); got != nil || err != nil {
		t.Errorf("no annotation: %v, %v, want nil, nil", got, err)
	}
	if got, err := RecordOf(node(map[string]string{RecordAnnotation: ""})); got != nil || !errors.Is(err, errRecord) {
		t.Errorf("empty annotation: %v, %v, want nil and an ErrRecord", got, err)
	}
	if got, err := RecordOf(node(map[string]string{RecordAnnotation: r.Encode()})); err != nil || !cmp.Equal(got, &r) {
		t.Errorf("annotation: %v, %v, want %v", got, err, r)
	}
	if (*Record)(nil).IsOpen() {
		t.Error("no record is open")
	}
}

// A node is fenced by a mark of ours or of a person, by an open record, and by one that cannot be read.
func TestIsFenced(t *testing.T) {
	record := func(p Phase) string {
		results := map[Phase]Result{PhaseDone: ResultEvicted}
		return Record{ID: "f1", Phase: p, NodeUID: "u1", By: "me", Result: results[p]}.Encode()
	}
	for _, tt := range []struct {
		name, record, key, value string
		want                     bool
	}{
		{"nothing", "", "", "", false},
		{"a person's mark", "", DefaultKey, "manual", true},
		{"another taint", "", "example.com/x", "f1", false},
		{"another taint, of an id that is our key", "", "f1", DefaultKey, false},
		{"an open record", record(PhaseArmed), "", "", true},
		{"one that is done", record(PhaseDone), "", "", false},
		{"one that is done, and its mark", record(PhaseDone), DefaultKey, "f1", true},
		{"one that cannot be read", "{", "", "", true},
	} {
		node := &corev1.Node{}
		if tt.record != "" {
			node.Annotations = map[string]string{RecordAnnotation: tt.record}
		}
		if tt.key != "" {
			node.Spec.Taints = []corev1.Taint{{Key: tt.key, Value: tt.value, Effect: corev1.TaintEffectNoSchedule}}
		}
		if got := IsFenced(node, DefaultKey); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

// Power-ons count for a day, and those of a clock that runs ahead, too.
func TestPowerOnsOf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := &Record{PowerOns: []time.Time{now.Add(-Day - 1), now.Add(-Day), now.Add(-Day + 1), now, now.Add(time.Hour)}}
	if got, want := r.PowerOnsOf(now), r.PowerOns[2:]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWithEvidence(t *testing.T) {
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Second) }
	var r Record
	const many = 2 * maxEvidence
	for i := range many {
		before := r
		kept := append([]Evidence(nil), before.Evidence...)
		r = r.WithEvidence(Evidence{At: at(i), From: "rack-a", State: "Off"})
		if !cmp.Equal(kept, append([]Evidence(nil), before.Evidence...)) {
			t.Fatalf("entry %d changed the record it was added to", i)
		}
	}
	if n := len(r.Evidence); n != maxEvidence {
		t.Errorf("%d entries, want %d", n, maxEvidence)
	}
	if first, last := r.Evidence[0].At, r.Evidence[len(r.Evidence)-1].At; !first.Equal(at(0)) ||
		!last.Equal(at(many-1)) {
		t.Errorf("first %s, last %s, want the very first and the newest", first, last)
	}
	for i := 2; i < len(r.Evidence); i++ {
		if !r.Evidence[i-1].At.Before(r.Evidence[i].At) {
			t.Errorf("entries out of order: %v", r.Evidence)
		}
	}
	if n := len(r.WithEvidence(Evidence{At: at(many - 1), From: "rack-a", State: "Off"}).Evidence); n != maxEvidence {
		t.Errorf("%d entries after a repetition, want %d", n, maxEvidence)
	}
	one := Record{}.WithEvidence(Evidence{At: at(0).In(time.FixedZone("", 3600)).Add(123456), Raw: "x"})
	if n := len(one.WithEvidence(Evidence{At: at(0), Raw: "x"}).Evidence); n != 1 {
		t.Errorf("a repetition under another zone and within the millisecond is %d entries, want 1", n)
	}

	for _, tt := range []struct{ name, in, want string }{
		{"short", "Off", "Off"},
		{"long", strings.Repeat("x", 500), strings.Repeat("x", maxWord)},
		{"cut within a letter", strings.Repeat("x", maxWord-1) + "ü", strings.Repeat("x", maxWord-1)},
		{"not UTF-8", "O\xffff", "Off"},
	} {
		got := Record{}.WithEvidence(Evidence{Raw: tt.in}).Evidence[0].Raw
		if got != tt.want {
			t.Errorf("%s: word %q, want %q", tt.name, got, tt.want)
		}
	}
}

// FuzzParseRecord checks that no annotation panics, and that what parses is written back to what reads the same.
func FuzzParseRecord(f *testing.F) {
	f.Add(Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", Since: noon,
		At: noon}.WithEvidence(Evidence{At: noon, State: "Off"}).Encode())
	f.Add(`{"phase":"Done","result":"Lifted","nodeUID":"u","by":"person","since":"0000-01-01T00:00:00+23:59"}`)
	f.Add(`{"id":"f1","phase":"Armed","nodeUID":"u","by":"b","at":"9999-12-31T23:59:59.999999999-23:59"}`)
	f.Add(`{"id":"\ud800","phase":"Armed","nodeUID":"<&>","by":"\u2028"}`)
	f.Add("{\"id\":\"\xff\",\"phase\":\"Armed\",\"nodeUID\":\"u\",\"by\":\"b\"}")
	f.Add(Record{ID: "f1", Phase: PhaseArmed, NodeUID: "u1", By: "me", Machine: &bmc1}.Encode())
	f.Add(`{"id":"f1","phase":"Armed","nodeUID":"u","by":"b","machine":{}}`)
	f.Add(`{"id":"f1","phAse":"Armed","nodeUID":"u","BY":"b","evidenCe":[]}`)
	f.Add(`{"id":"f1","phase":"Armed","nodeUID":"u","by":"b","new":{"a":[1, 2]},"\u2028<":null,"ID":"f1"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRecord(s)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Fatalf("error %v is no ErrRecord", err)
			}
			return
		}
		once := r.Encode()
		back, err := ParseRecord(once)
		if err != nil {
			t.Fatalf("ParseRecord(%q): %v", once, err)
		}
		if diff := cmp.Diff(r, back, cmpopts.EquateEmpty()); diff != "" { // an empty list is no list
			t.Errorf("round trip (-first +second):\n%s", diff)
		}
		if twice := back.Encode(); twice != once {
			t.Errorf("Encode is not stable: %q, then %q", once, twice)
		}
	})
}

// FuzzRecord makes records as fence and evict make them and checks that they read back as written.
func FuzzRecord(f *testing.F) {
	f.Add("f1", "u1", "b1", "7", "me", "redfish/a", "Off", "PoweringOff", int64(1772366400), int64(5), uint8(2))
	f.Add("", "\xff", "", "", "person", "<>", "\xffx", "\u2028", int64(-62135596800), int64(999999999), uint8(3))
	phases := []Phase{PhasePoweringOff, PhaseArmed, PhaseEvicting, PhaseDone}
	f.Fuzz(func(t *testing.T, id, uid, boot, lease, by, dev, from, raw string, sec, nano int64, phase uint8) {
		clean := func(s string) string { return strings.ToValidUTF8(s, "") } // as names are that come out of JSON
		at := time.Unix(((sec%3e9)+3e9)%3e9, nano%1e9)
		p := phases[int(phase)%len(phases)]
		var res Result
		if p == PhaseDone {
			res = ResultLifted
		}
		r := Record{ID: clean(id), NodeUID: clean(uid), BootID: clean(boot), LeaseRV: clean(lease), By: clean(by),
			Device: clean(dev), Since: at.UTC().Truncate(time.Millisecond)}
		r.Machine = MachineRef{clean(by), clean(dev), clean(lease)}.OrNil()
		r = r.WithEvidence(Evidence{At: at, From: clean(from), State: "Off", Raw: raw}).EnterPhase(p, res, at)
		got, err := ParseRecord(r.Encode())
		if r.NodeUID == "" || r.By == "" || (r.ID == "" && r.By != ByPerson) {
			if err == nil {
				t.Errorf("ParseRecord takes a record that lacks what it must have: %+v", r)
			}
			return
		}
		if err != nil {
			t.Fatalf("ParseRecord(%q): %v", r.Encode(), err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("round trip (-want +got):\n%s", diff)
		}
	})
}

// A person may use an id twice, and a pod that the first fence spared is not spared by the second (Record.Token).
func TestTokenDistinguishesFences(t *testing.T) {
	first := Record{ID: "manual", Since: noon}
	for _, tt := range []struct {
		name  string
		other Record
		same  bool
	}{
		{"the same fence in another phase", first.EnterPhase(PhaseEvicting, "", noon.Add(time.Minute)), true},
		{"the same fence in another zone's words", Record{ID: "manual", Since: noon.In(time.FixedZone("", 3600))},
			true},
		{"the same id a moment later", Record{ID: "manual", Since: noon.Add(time.Millisecond)}, false},
		{"the same id on another day", Record{ID: "manual", Since: noon.AddDate(0, 0, 1)}, false},
		{"another id at that time", Record{ID: "manual2", Since: noon}, false},
		{"no id", Record{Since: noon}, false},
	} {
		if got := tt.other.Token() == first.Token(); got != tt.same {
			t.Errorf("%s: tokens %q and %q, want the same: %v", tt.name, tt.other.Token(), first.Token(), tt.same)
		}
	}
	written := first.EnterPhase(PhaseArmed, "", noon)
	written.NodeUID, written.By = "u1", ByPerson
	if read, err := ParseRecord(written.Encode()); err != nil || read.Token() != first.Token() {
		t.Errorf("read back: got token %q, error %v, want %q", read.Token(), err, first.Token())
	}
}

// Who is not believed any more by a record, and who said so.
func TestLiars(t *testing.T) {
	a, b := MachineRef{Provider: "racks", ID: "a"}, MachineRef{Provider: "pdus", ID: "b"}
	both := []DeviceRef{{"racks/a", &a}, {"pdus/b", &b}}
	off := func(from ...string) Record {
		r := Record{ID: "f", Device: "racks/a", Machine: &a}
		for _, f := range from {
			r.Evidence = append(r.Evidence, Evidence{From: f, State: "Off"}, Evidence{From: f + "x", State: "On"})
		}
		return r
	}
	earlier := off("racks/a")
	earlier.FalseOffs = []DeviceRef{{"pdus/b", &b}}
	for _, tc := range []struct {
		name    string
		rec     Record
		devices []DeviceRef
		want    []DeviceRef
		written bool // in Lied
	}{
		{"one device", off("racks"), both[:1], both[:1], false},
		{"the first of two", off("racks/a"), both, both[:1], true},
		{"the second of two", off("pdus/b"), both, both[1:], true},
		{"both", off("racks/a", "pdus/b"), both, both, true},
		{"two, and the evidence is of neither", off("racks"), both, both[:1], true},
		{"one more", earlier, both, []DeviceRef{both[1], both[0]}, true},
		{"the same again",
			Record{ID: "f", Device: "racks/a", Machine: &a, FalseOffs: both[1:], Evidence: off("pdus/b").Evidence},
			both, []DeviceRef{both[1], both[0]}, true},
		{"one is left, and the evidence is of neither",
			Record{ID: "f", Device: "racks/a", Machine: &a, FalseOffs: both[1:], Evidence: off("racks").Evidence},
			both[:1], []DeviceRef{both[1], both[0]}, true},
		{"its devices are others now", off("racks/a"), nil, both[:1], false},
	} {
		got := tc.rec.WithFalseOffs(tc.devices).EnterPhase(PhaseDone, ResultNeverPoweredOff, time.Now())
		if !reflect.DeepEqual(got.DistrustedDevices(), tc.want) || (len(got.FalseOffs) > 0) != tc.written {
			t.Errorf("%s: got %+v, written %+v, want %+v", tc.name, got.DistrustedDevices(), got.FalseOffs, tc.want)
		}
		back, err := ParseRecord(func() string { got.NodeUID, got.By = "u", "me"; return got.Encode() }())
		if err != nil || !reflect.DeepEqual(back.DistrustedDevices(), tc.want) {
			t.Errorf("%s: reads back as %+v, %v", tc.name, back.DistrustedDevices(), err)
		}
		for _, l := range tc.want {
			if !got.DistrustsDevice(*l.Machine, l.Device, true) {
				t.Errorf("%s: %s is believed", tc.name, l.Device)
			}
		}
		if other := (MachineRef{Provider: "racks", ID: "c"}); got.DistrustsDevice(other, "racks/c", true) {
			t.Errorf("%s: another device is not believed", tc.name)
		}
		if released := got.EnterPhase(PhaseDone, ResultReleased, time.Now()); len(released.DistrustedDevices()) != 0 {
			t.Errorf("%s: released, and %+v are not believed", tc.name, released.DistrustedDevices())
		}
	}
	if open := earlier.EnterPhase(PhaseArmed, "", time.Now()); len(open.DistrustedDevices()) != 1 {
		t.Errorf("an open fence forgets who lied before it: %+v", open.DistrustedDevices())
	}
	if (*Record)(nil).DistrustedDevices() != nil || (*Record)(nil).HasOff("x") {
		t.Error("no record, but a device is distrusted")
	}
}

// TestProofIsBounded: a proof that is too long is dropped, and the record stays readable.
func TestProofIsBounded(t *testing.T) {
	for n, kept := range map[int]bool{MaxProof: true, MaxProof + 1: false} {
		in := Record{ID: "f-1", Phase: PhaseArmed, NodeUID: "u", By: "pod-1", Proof: strings.Repeat("x", n)}
		got, err := ParseRecord(in.Encode())
		if err != nil || (got.Proof != "") != kept {
			t.Errorf("%d bytes: kept %t, want %t (%v)", n, got.Proof != "", kept, err)
		}
	}
}

// A kubelet may write a record, so it may name only so many orders.
func TestOrdersAreBounded(t *testing.T) {
	r := Record{ID: "f1", NodeUID: "u", By: "test", Since: time.Unix(0, 0)}.EnterPhase(PhaseArmed, "", time.Time{})
	for i := range 3 * MaxOrders {
		r = r.WithOrders(DeviceRef{Device: fmt.Sprint(i)}).WithOrders(DeviceRef{Device: fmt.Sprint(i)})
	}
	if n := len(r.Orders); n != MaxOrders || r.Orders[n-1].Device != fmt.Sprint(3*MaxOrders-1) {
		t.Errorf("got %d orders, the last %+v, want the newest %d", n, r.Orders[n-1], MaxOrders)
	}
	r.Orders = append(r.Orders, r.Orders...)
	if back, err := ParseRecord(r.Encode()); err != nil || len(back.Orders) != MaxOrders {
		t.Errorf("read back %d orders, %v, want %d", len(back.Orders), err, MaxOrders)
	}
}
