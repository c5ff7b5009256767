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
