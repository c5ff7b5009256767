package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// A node that is heard, and that reports the system UUID of a silent one or leads to its machine, is its twin for as
// long as it is heard.
func TestTwins(t *testing.T) {
	const uuid, other = "11223344-5566-7788-99aa-bbccddeeff01", "11223344-5566-7788-99aa-bbccddeeff02"
	look := func(name, uuid string) taint.Look {
		return taint.Look{Exists: true, Name: name, UID: name, ResourceVersion: "1", SystemUUID: uuid}
	}
	c := newCluster(t, 5)
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		c.f.ApplyLook(look(n, ""), c.now)
	}
	twin := func(want string) {
		t.Helper()
		if got := c.view("n1").Twin; got != want {
			t.Errorf("got twin %q, want %q", got, want)
		}
	}
	twin("") // Nodes without a UUID are no twins
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n1", UID: "n1", ResourceVersion: "2", SystemUUID: uuid}, c.now)
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n2", UID: "n2", ResourceVersion: "2", SystemUUID: other}, c.now)
	twin("")
	// In the other byte order, and in capitals.
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n3", UID: "n3", ResourceVersion: "2",
		SystemUUID: "44332211-6655-8877-99AA-BBCCDDEEFF01"}, c.now)
	twin("n3")
	c.silence("n1")
	c.pass(time.Minute)
	twin("n3")
	c.silence("n3")
	c.pass(time.Minute)
	twin("") // both are silent: an Off is a proof for either
	c.f.ApplySharers("n1", []string{"n4", "gone"}, c.now)
	twin("n4")
	c.f.RemoveNode("n4", c.now)
	twin("")
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n2", UID: "n2", ResourceVersion: "3", SystemUUID: uuid}, c.now)
	twin("n2")
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n2", UID: "n2", ResourceVersion: "4", SystemUUID: other}, c.now)
	twin("")
	for i := range 3 { // Nodes without any trace of a kubelet are no twins after their first minutes
		c.f.ApplyLook(look(fmt.Sprint("empty-", i), uuid), c.now)
	}
	c.pass(3 * time.Minute)
	twin("")
	if n := len(c.f.byUUID); n != 2 {
		t.Errorf("the index has %d UUIDs, want those of present Nodes", n)
	}
}

// The silence of a machine counts from the last sign of life under any of its names.
func TestSilenceOfTwins(t *testing.T) {
	const uuid = "11223344-5566-7788-99aa-bbccddeeff01"
	c := newCluster(t, 5)
	for _, n := range []string{"n1", "n2"} {
		c.f.ApplyLook(taint.Look{Exists: true, Name: n, UID: n, ResourceVersion: "1", SystemUUID: uuid}, c.now)
	}
	c.silence("n1")
	c.pass(10 * time.Minute)
	if v := c.view("n1"); v.Twin != "n2" || !v.Alive.After(c.now.Add(-10*time.Second)) {
		t.Errorf("n1, whose twin is heard: twin %q, alive %s ago", v.Twin, c.now.Sub(v.Alive))
	}
	c.silence("n1", "n2")
	c.pass(30 * time.Second)
	if v, got := c.view("n1"), c.counts("n1"); v.Twin != "" || got > 10*time.Second {
		t.Errorf("n1, whose twin fell silent 30 s ago: twin %q, its silence counted for %s", v.Twin, got)
	}
	if got, twins := c.counts("n1"), c.counts("n2"); got != twins {
		t.Errorf("the silence of n1 counted for %s, that of its twin for %s", got, twins)
	}
	twin := taint.Look{Exists: true, Name: "n2", UID: "n2", ResourceVersion: "2", BootID: "b1", SystemUUID: uuid}
	c.f.ApplyLook(twin, c.now)
	twin.ResourceVersion, twin.BootID = "3", "b2"
	c.f.ApplyLook(twin, c.now)
	if v := c.view("n1"); v.Alive != c.now {
		t.Errorf("n1, whose twin has booted: alive %s ago", v.Alive.Age(c.now))
	}
	c.f.ApplySharers("n3", []string{"n2"}, c.now)
	if c.silence("n1", "n2", "n3"); c.view("n3").Twin != "" {
		t.Error("a silent node that is led to the machine of n3 is its twin")
	}
}

// A kubelet that reports one system UUID after the other holds up the first few machines only.
func TestTwinOfManyMachines(t *testing.T) {
	uuid := func(i int) string { return fmt.Sprintf("11223344-5566-7788-99aa-bbccddeeff%02d", i) }
	c := newCluster(t, 5)
	says := func(n string, i int) {
		c.rv++
		c.f.ApplyLook(taint.Look{Exists: true, Name: n, UID: n, ResourceVersion: fmt.Sprint(c.rv), SystemUUID: uuid(i)},
			c.now)
	}
	says("n1", 1)
	says("n2", 2)
	for i := range 3 { // a host, its new mainboard, and a disk that was moved
		says("n2", i)
		if want := map[bool]string{true: "n2"}[i == 1]; c.view("n1").Twin != want {
			t.Errorf("UUID %d: got twin %q, want %q", i, c.view("n1").Twin, want)
		}
	}
	says("n2", 1)
	if got := c.view("n1").Twin; got != "" {
		t.Errorf("got twin %q, a node that reports one UUID after the other", got)
	}
	c.pass(uuidsHold + time.Minute)
	if got := c.view("n1").Twin; got != "n2" {
		t.Errorf("got twin %q, want n2: it has reported one UUID for an hour", got)
	}
}

// A fence goes on with the machine that it began with: who edits what its Node reports gives it no twin, and takes none
// from it. An open record alone does not say which machine that is, and nor does a pin without a fence.
func TestTwinOfFence(t *testing.T) {
	const uuid, other = "11223344-5566-7788-99aa-bbccddeeff01", "11223344-5566-7788-99aa-bbccddeeff02"
	machine := taint.MachineRef{Provider: "racks", ID: "bmc-1", SystemUUID: uuid}
	pinned := map[string]string{taint.PinLabel: machine.Pin()}
	open := taint.Record{Phase: taint.PhaseEvicting, Machine: &machine}
	done := open
	done.Phase = taint.PhaseDone
	for _, tt := range []struct {
		name    string
		labels  map[string]string
		record  *taint.Record
		reports string // what the other node reports, which is heard
		want    string
	}{
		{"a fence, the other has the UUID that was edited", pinned, &open, other, ""},
		{"a fence, the other is its machine", pinned, &open, uuid, "n2"},
		{"no pin", nil, &open, other, "n2"},
		{"a pin of another machine", map[string]string{taint.PinLabel: "x.y"}, &open, other, "n2"},
		{"the fence has ended", pinned, &done, other, "n2"},
		{"no fence", pinned, nil, other, "n2"},
	} {
		c := newCluster(t, 5)
		c.f.ApplyLook(taint.Look{Exists: true, Name: "n2", UID: "n2", ResourceVersion: "1", SystemUUID: tt.reports},
			c.now)
		c.f.ApplyLook(taint.Look{Exists: true, Name: "n1", UID: "n1", ResourceVersion: "1", SystemUUID: other,
			Labels: tt.labels, Record: tt.record}, c.now)
		if got := c.view("n1").Twin; got != tt.want {
			t.Errorf("%s: got twin %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A Node that no kubelet has written is no twin, however new it is.
func TestEmptyNodeIsNoTwin(t *testing.T) {
	const uuid = "11223344-5566-7788-99aa-bbccddeeff01"
	c := newCluster(t, 5)
	c.f.ApplyLook(taint.Look{Exists: true, Name: "n1", UID: "n1", ResourceVersion: "1", SystemUUID: uuid}, c.now)
	empty := taint.Look{Exists: true, Name: "empty", UID: "e", ResourceVersion: "1", SystemUUID: uuid}
	c.f.ApplyLook(empty, c.now)
	if got := c.view("n1").Twin; got != "" {
		t.Errorf("got twin %q, a Node without a heartbeat", got)
	}
	empty.ResourceVersion, empty.Heartbeat = "2", c.now.Wall
	c.f.ApplyLook(empty, c.now)
	if got := c.view("n1").Twin; got != "empty" {
		t.Errorf("got twin %q, want the Node that a kubelet has written", got)
	}
}
