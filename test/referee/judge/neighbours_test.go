package judge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// holds compares findings with what they begin with.
func holds(t *testing.T, a Account, want []string) {
	t.Helper()
	var got []string
	for _, f := range Findings(a) {
		got = append(got, fmt.Sprintf("%s: %s", f.Check, f.Text))
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got findings\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// ordered is a write of the NetworkFence of v.
func ordered(life, verb, name string, o Order, ms int) Write {
	w := wrote(verb, networkFences, "", name, "uid-"+name, "", ms)
	w.Life, w.Node, w.Order = life, "v", o
	return w
}

const us = "judged-a.1"

// What a NetworkFence asks and says, one after the other.
var (
	asked1  = Order{fenced, "", ""}
	shutOut = Order{fenced, "Succeeded", "fencing operation successful"}
	failed  = Order{fenced, "Failed", "no quorum of monitors"}
	asked2  = Order{unfenced, shutOut.Result, shutOut.Message}
	letIn   = Order{unfenced, "Succeeded", "unfencing operation successful"}
)

// shutOutStory is a storage fence as it should be. v loses its power at 1 s, and its device is silent. The storage is
// asked at 12 s, and has shut v out at 20 s. db-0 is ended at 21 s, cleared at 22 s and deleted at 23 s. v boots at
// 60 s, the storage is asked to let it in at 62 s, has done so at 64 s, and the order goes at 65 s.
func shutOutStory() Account {
	a := story()
	a.Log, a.Runs, a.Mounts, a.Attached = nil, a.Runs[:1], a.Mounts[:1], nil
	for _, rv := range []string{"2", "11", "13"} {
		change(&a, rv, func(v *Version) { v.Pod.Labels = map[string]string{RoleLabel: RoleVolume} })
	}
	change(&a, "12", func(v *Version) { v.Node.Spec.Taints = v.Node.Spec.Taints[:1] })
	a.Versions = slices.DeleteFunc(a.Versions, func(v Version) bool { return v.RV == "10" || v.RV == "14" })
	a.Writes = []Write{
		ordered(us, "create", "f1", asked1, 12000), ordered("", "patch", "f1", shutOut, 20000),
		wrote("patch", "pods", "status", "r/db-0", "uid-p", "11", 21000),
		wrote("patch", "nodes", "status", "v", "uid-v", "12", 22000),
		wrote("delete", "pods", "", "r/db-0", "uid-p", "11", 23000),
		ordered(us, "patch", "f1", asked2, 62000), ordered("", "patch", "f1", letIn, 64000),
		ordered(us, "delete", "f1", Order{}, 65000),
	}
	a.Writes[2].Node, a.Writes[4].Node = "v", "v"
	a.Alive = append(a.Alive, Span{Node: "v", From: at(60000)})
	a.Beats = append(a.Beats, Span{Node: "v", From: at(61000), To: at(61000)})
	return a
}

// TestStorage doctors the story of a storage fence.
func TestStorage(t *testing.T) {
	const ends = "storage: judged-a.1 ends r/db-0, and no storage"
	const cuts = "storage: judged-a.1 cuts volume lists, and no storage"
	for _, tt := range []struct {
		name   string
		doctor func(*Account)
		want   []string
	}{
		{"as it should be", func(*Account) {}, nil},
		{"the storage fails first", func(a *Account) {
			a.Writes = append(a.Writes, ordered("", "patch", "f1", failed, 15000))
		}, nil},
		{"the storage has failed", func(a *Account) { a.Writes[1].Order = failed }, []string{cuts, ends}},
		{"the storage has not answered", func(a *Account) { a.Writes = slices.Delete(a.Writes, 1, 2) },
			[]string{cuts, ends}},
		{"the storage answers after the first write", func(a *Account) {
			a.Writes[1].Sent, a.Writes[1].Received, a.Writes[1].Done = at(21500), at(21501), at(21502)
		}, []string{ends}},
		{"the message is of letting in", func(a *Account) { a.Writes[1].Order.Message = letIn.Message },
			[]string{cuts, ends}},
		{"a failure with the message of a success", func(a *Account) { a.Writes[1].Order.Result = failed.Result },
			[]string{cuts, ends}},
		{"the storage shuts another node out", func(a *Account) {
			a.Writes[0].Node, a.Writes[1].Node = "n1", "n1"
			a.Writes = append(a.Writes, ordered(us, "create", "f2", asked1, 12000))
		}, []string{cuts, ends, "storage: judged-a.1 lets n1 in by NetworkFence f1, and the node showed no life"}},
		{"another takes the order back before", func(a *Account) {
			a.Writes = append(a.Writes, ordered("", "patch", "f1", asked2, 20500))
		}, []string{cuts, ends}},
		{"the success is of an earlier outage", func(a *Account) {
			a.Beats = append(a.Beats, Span{Node: "v", From: at(13000)})
		}, []string{cuts, ends}},
		{"the success of an earlier outage, and the storage is asked again", func(a *Account) {
			a.Beats = append(a.Beats, Span{Node: "v", From: at(13000)})
			a.Writes = append(a.Writes, ordered(us, "create", "f2", asked1, 14500))
		}, []string{cuts, ends}},
		{"a new success in the second outage", func(a *Account) {
			a.Beats = append(a.Beats, Span{Node: "v", From: at(13000)})
			a.Writes = append(a.Writes, ordered(us, "create", "f2", asked1, 14500),
				ordered("", "patch", "f2", shutOut, 20500))
		}, nil},
		{"a heartbeat that the look missed", func(a *Account) {
			a.Beats = append(a.Beats, Span{Node: "v", From: at(20900)})
			a.Writes = slices.Delete(a.Writes, 3, 5)
		}, nil},
		{"another's order", func(a *Account) { a.Writes[0].Life = "" },
			[]string{cuts, ends}},
		{"the order is taken back before", func(a *Account) {
			a.Writes[5], a.Writes[6] = asOf(a.Writes[5], 20500), asOf(a.Writes[6], 20600)
		}, []string{cuts, ends, "storage: judged-a.1 lets v in by NetworkFence f1, and the node showed no life"}},
		{"a pod without a volume moves", func(a *Account) {
			change(a, "2", func(v *Version) { v.Pod.Labels = map[string]string{RoleLabel: RolePlain} })
		}, []string{"proof: judged-a.1 ends r/db-0 of v, which has no mark"}},
		{"nothing was asked of the storage", func(a *Account) {
			a.Writes = a.Writes[2:5]
		}, []string{"proof: judged-a.1 cuts volume lists of v, which has no mark",
			"proof: judged-a.1 ends r/db-0 of v, which has no mark"}},
		{"a node with a mark needs a proof", func(a *Account) {
			s := story()
			change(&s, "2", func(v *Version) { v.Pod.Labels = map[string]string{RoleLabel: RoleVolume} })
			a.Versions, a.Log = s.Versions, s.Log[:1]
			a.Writes = slices.Concat(s.Writes, []Write{ordered(us, "create", "f1", asked1, 1500),
				ordered("", "patch", "f1", shutOut, 1600)})
		}, []string{"proof: judged-a.1 cuts", "proof: judged-a.1 deletes", "proof: judged-a.1 ends"}},

		{"let in without a sign of life", func(a *Account) { a.Beats = a.Beats[:1] },
			[]string{"storage: judged-a.1 lets v in by NetworkFence f1, and the node showed no life"}},
		{"let in on the same boot", func(a *Account) { a.Alive = a.Alive[:1] },
			[]string{"storage: judged-a.1 lets v in by NetworkFence f1, on the boot on which it lost pods"}},
		{"let in on the same boot, and no pod was moved", func(a *Account) {
			a.Alive, a.Writes = a.Alive[:1], slices.Delete(a.Writes, 2, 5)
		}, nil},
		{"let in on the same boot, and a pod was annotated", func(a *Account) {
			a.Alive, a.Writes = a.Alive[:1], slices.Delete(a.Writes, 3, 5)
			a.Writes[2].Sub, a.Writes[2].RV = "", "2"
		}, nil},
		{"deleted when the storage failed to let it in", func(a *Account) { a.Writes[6].Order.Result = failed.Result },
			[]string{"storage: judged-a.1 deletes NetworkFence f1, and the storage has not let v in"}},
		{"deleted when it is to shut out again", func(a *Account) { a.Writes[6].Order.State = fenced },
			[]string{"storage: judged-a.1 deletes NetworkFence f1, and the storage has not let v in"}},
		{"deleted while it shuts out", func(a *Account) { a.Writes = slices.Delete(a.Writes, 5, 7) },
			[]string{"storage: judged-a.1 deletes NetworkFence f1, and the storage has not let v in"}},
		{"deleted before the storage has let it in", func(a *Account) { a.Writes = slices.Delete(a.Writes, 6, 7) },
			[]string{"storage: judged-a.1 deletes NetworkFence f1, and the storage has not let v in"}},
		{"asked by a deposed leader", func(a *Account) { a.Leads[0].Done = at(12500) },
			[]string{"deposed: judged-a.1 create networkfences/ f1, when none led"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := shutOutStory()
			tt.doctor(&a)
			holds(t, a, tt.want)
		})
	}
}

// asOf is a write at another time.
func asOf(w Write, ms int) Write {
	w.Sent, w.Received, w.Done = at(ms), at(ms+1), at(ms+5)
	return w
}

// tried is a request to power v off.
func tried(ms int) Question {
	return Question{System: "v", Method: http.MethodPost, Word: "ForceOff", At: at(ms), Delivered: at(ms + 2)}
}

// TestClaim doctors a hand-over: the story of a fence, whose device is asked again at 3.2 s, and whose NodeClaim is
// deleted at 3.4 s.
func TestClaim(t *testing.T) {
	const none = "claim: judged-a.1 deletes NodeClaim c1 of v, and no fence ended since the node's last sign of life"
	const notOff = "claim: judged-a.1 deletes NodeClaim c1 of v, whose device does not say Off now"
	without := func(a *Account) { // no fence in this outage
		a.Versions = a.Versions[:5]
		a.Writes = a.Writes[len(a.Writes)-1:]
	}
	for _, tt := range []struct {
		name   string
		doctor func(*Account)
		want   []string
	}{
		{"proven off", func(*Account) {}, nil},
		{"a power-off failed", func(a *Account) {
			without(a)
			a.Log = []Question{tried(2500), asked("v", "On", 3200)}
			a.Beats[0].From = at(-9000)
		}, nil},
		{"no fence", without, []string{none}},
		{"a power-off comes later", func(a *Account) {
			without(a)
			a.Log = []Question{tried(3500)}
			a.Beats[0].From = at(-9000)
		}, []string{none}},
		{"a power-on, and the device's session", func(a *Account) {
			without(a)
			on, session := tried(2500), tried(2400)
			on.Word, session.Word = "On", ""
			a.Log = []Question{session, on}
		}, []string{none}},
		{"a power-off of before the last sign of life", func(a *Account) {
			without(a)
			a.Log = []Question{tried(2500), asked("v", "Off", 19900)}
			a.Writes[0] = asOf(a.Writes[0], 20000)
			a.Beats[0].From = at(3000)
		}, []string{none}},
		{"a fence of an earlier outage", func(a *Account) {
			a.Log = append(a.Log, asked("v", "Off", 19900))
			a.Writes[len(a.Writes)-1] = asOf(a.Writes[len(a.Writes)-1], 20000)
			a.Beats = append(a.Beats, Span{Node: "v", From: at(9000)})
		}, []string{none}},
		{"the machine has booted since", func(a *Account) {
			a.Log = append(a.Log, asked("v", "Off", 19900))
			a.Writes[len(a.Writes)-1] = asOf(a.Writes[len(a.Writes)-1], 20000)
			a.Alive = append(a.Alive, Span{Node: "v", From: at(9000), To: at(10000)})
		}, []string{none}},
		{"the last Off is old", func(a *Account) {
			a.Writes[len(a.Writes)-1] = asOf(a.Writes[len(a.Writes)-1], 20000)
		}, []string{notOff}},
		{"the device says On", func(a *Account) { a.Log = append(a.Log, asked("v", "On", 3300)) }, []string{notOff}},
		{"an On of before, one that never arrived, and one that came later", func(a *Account) {
			lost, late := asked("v", "On", 3300), asked("v", "On", 3350)
			lost.Delivered, late.Delivered = time.Time{}, at(3450)
			a.Log = append(a.Log, asked("v", "On", 3100), lost, late)
		}, nil},
		{"with the mark on", func(a *Account) {
			a.Writes[len(a.Writes)-1] = asOf(a.Writes[len(a.Writes)-1], 2900)
		}, []string{"claim: judged-a.1 deletes NodeClaim c1 of v, which has a mark"}},
		{"an annotation alone", func(a *Account) {
			without(a)
			a.Writes[0].Verb = "patch"
		}, nil},
		{"another deletes it", func(a *Account) {
			without(a)
			a.Writes[0].Life = ""
		}, nil},
		{"a deposed leader deletes it", func(a *Account) {
			a.Leads = append(a.Leads, Lead{"judged-b.1", at(3300)})
		}, []string{"deposed: judged-a.1 delete nodeclaims/ c1, when judged-b.1 led"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := story()
			a.Log = append(a.Log, asked("v", "Off", 3200))
			w := wrote("delete", nodeClaims, "", "c1", "uid-c", "", 3400)
			w.Node = "v"
			a.Writes = append(a.Writes, w)
			tt.doctor(&a)
			holds(t, a, tt.want)
		})
	}
}
