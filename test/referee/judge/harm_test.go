package judge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestHarm doctors the story. Nothing of it is harm, without a mark, a proof and a leader neither.
func TestHarm(t *testing.T) {
	for _, tt := range []struct {
		name   string
		doctor func(*Account)
		want   []string // "check: part of the text", one for each finding
	}{
		{"as it should be", func(*Account) {}, nil},
		{"no promise of forcefence counts", func(a *Account) {
			a.Log, a.Leads, a.Ends = nil, []Lead{{"judged-b.1", at(0)}}, []string{"v is marked"}
			change(a, "10", func(v *Version) { v.Node.Spec.Taints = v.Node.Spec.Taints[:1] })
		}, nil},
		{"an identity runs twice", func(a *Account) { a.Runs[0].To = at(3600) },
			[]string{"taken: r/db-0 (uid-p) is deleted or ended while it runs on v", "twice: r/db-0 runs on v"}},
		{"a volume is in use twice", func(a *Account) { a.Mounts[0].To = at(3600) },
			[]string{"taken: disk-db is detached from v", "twice: disk-db is attached", "twice: disk-db is in use"}},
		{"a pod is ended while it runs", func(a *Account) { a.Runs[0].To = at(2300) },
			[]string{"taken: r/db-0 (uid-p)"}},
		{"a pod that ended before its tombstone", func(a *Account) { a.Runs[0].To = at(2200) }, nil},
		{"a pod that was ended before it is deleted", func(a *Account) {
			a.Runs[0].From, a.Runs[0].To = at(2300), at(2600) // the machine booted
		}, nil},
		{"a running pod is deleted at once", func(a *Account) {
			deletedAtOnce(a, at(2500))
			a.Runs[0].To = at(2500)
		}, []string{"taken: r/db-0 (uid-p)"}},
		{"a pod that its kubelet ended is deleted", func(a *Account) {
			deletedAtOnce(a, at(2500))
			a.Runs[0].To = at(2399)
		}, nil},
		{"a deletion that no audit line names counts from when it was seen", func(a *Account) {
			deletedAtOnce(a, at(2500))
			a.Writes = slices.DeleteFunc(a.Writes, func(w Write) bool { return w.Verb == "delete" })
			a.Runs[0].To = at(2600)
		}, []string{"taken: r/db-0 (uid-p)"}},
		{"a volume is detached while it is in use", func(a *Account) {
			a.Mounts[0].To, a.Attached[0].To = at(2000), at(1500)
		}, []string{"taken: disk-db is detached from v, where it is in use"}},

		{"a machine without power is powered off", func(a *Account) { poweredOff(a, "v", 1600) }, nil},
		{"a machine that runs is powered off after a heartbeat", func(a *Account) {
			a.Alive[0].To = at(4000)
			poweredOff(a, "v", 3000)
		}, []string{"power: v is powered off while it runs, 2.5s after a heartbeat"}},
		{"a machine that runs is powered off, silent for long", func(a *Account) {
			a.Alive[0].To = time.Time{}
			poweredOff(a, "v", 10500)
		}, nil},
		{"a machine that booted is powered off before its first heartbeat", func(a *Account) {
			a.Alive = append(a.Alive, Span{Node: "v", From: at(2000)})
			poweredOff(a, "v", 3000)
		}, nil},
		{"a machine that booted is powered off after its first heartbeat", func(a *Account) {
			a.Alive = append(a.Alive, Span{Node: "v", From: at(2000)})
			a.Beats = append(a.Beats, Span{Node: "v", From: at(2500), To: at(2500)})
			poweredOff(a, "v", 3000)
		}, []string{"power: v is powered off while it runs, 500ms after"}},
		{"another machine is powered off", func(a *Account) {
			a.Alive = append(a.Alive, Span{Node: "n1", From: at(0)})
			poweredOff(a, "n1", 30000)
		}, []string{"power: n1 is powered off, which was well"}},
		{"a machine is powered on", func(a *Account) {
			a.Alive[0].To = at(4000)
			poweredOff(a, "v", 3000)
			a.Log[len(a.Log)-1].Word = "On"
		}, nil},

		{"a foreign label goes", func(a *Account) { change(a, "14", func(v *Version) { v.Node.Labels = nil }) },
			[]string{"foreign: v had"}},
		{"a foreign annotation changes",
			func(a *Account) { change(a, "14", func(v *Version) { v.Node.Annotations[ForeignKey] = "x" }) },
			[]string{"foreign: v had"}},
		{"a foreign taint goes", func(a *Account) {
			change(a, "14", func(v *Version) { v.Node.Spec.Taints = nil })
		}, []string{"foreign: v had"}},
		{"a node that was well is tainted", func(a *Account) { taintsOther(a, "judged-a.1") },
			[]string{"foreign: judged-a.1 changes taints of n1, which was well"}},
		{"Kubernetes taints another node", func(a *Account) { taintsOther(a, "") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := story()
			tt.doctor(&a)
			var got []string
			for _, f := range Harm(a) {
				got = append(got, fmt.Sprintf("%s: %s", f.Check, f.Text))
			}
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got findings\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
		})
	}
}

// deletedAtOnce has db-0 deleted at 2.4 s without having been ended before, which the watch saw at that time.
func deletedAtOnce(a *Account, seen time.Time) {
	a.Versions = slices.DeleteFunc(a.Versions, func(v Version) bool { return v.RV == "11" })
	a.Writes = slices.DeleteFunc(a.Writes, func(w Write) bool { return w.RV == "11" && w.Verb == "patch" })
	change(a, "13", func(v *Version) { v.Pod.Status.Phase, v.Seen = corev1.PodRunning, seen })
}

func poweredOff(a *Account, system string, ms int) {
	a.Log = append(a.Log, Question{System: system, Method: http.MethodPost, Word: "ForceOff", At: at(ms)})
}

func taintsOther(a *Account, life string) {
	i := slices.IndexFunc(a.Versions, func(v Version) bool { return v.RV == "5" })
	v := a.Versions[i]
	v.RV, v.Node = "21", v.Node.DeepCopy()
	v.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	a.Versions = append(a.Versions, v)
	w := wrote("patch", "nodes", "", "n1", "uid-n1", "21", 2250)
	w.Life = life
	a.Writes = append(a.Writes, w)
}

// TestVerdict: harm outweighs an end that did not come.
func TestVerdict(t *testing.T) {
	harm, ends := []Finding{{Check: CheckTwice}}, []string{"waiting until the pods have moved"}
	for _, tt := range []struct {
		name string
		harm []Finding
		ends []string
		want Verdict
	}{
		{"nothing", nil, nil, Good}, {"no end", nil, ends, Stuck}, {"harm", harm, nil, Harmed},
		{"both", harm, ends, Harmed},
	} {
		if got := VerdictOf(tt.harm, tt.ends); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}
