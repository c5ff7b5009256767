package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/kit"
)

var update = flag.Bool("update", false, "write what commands print into testdata")

// hostile is what a kubelet may write where people look: it moves the cursor, sets the window's title, turns the
// reading direction around.
const hostile = "\x1b[2Jgone\x1b]0;title\x07\r\u202edne\u009b31m\U000e0041"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(since time.Duration) *time.Time { return new(noon.Add(-since)) }

// sampleFleet has one node of each kind.
func sampleFleet() *fleet {
	return &fleet{
		At: noon,
		Cluster: view.Cluster{
			Controller: &view.Leader{Namespace: "forcefence-system", Lease: "kube-system/forcefence",
				Holder: "forcefence-5d8-x2x-1", Renewed: at(2 * time.Second), Leads: true,
				ConfigRejected: "config.yaml:14: providers[1].redfish.address: missing",
				Room: room.Summarize(*at(time.Minute), []room.Failure{
					{Kind: room.Node, Name: "n1", Pods: 20, Lacking: 3}, {Kind: room.Node, Name: "n3", Pods: 20}})},
			Paused: `ConfigMap forcefence-system/forcefence-pause: "new switches (alice)" until ` +
				"2026-03-01T14:00:00Z",
		},
		Unknown: []string{"you lack the right: list events -n default (the ClusterRole forcefence-look has it)"},
		Counts: map[view.State]int{view.StateNeedsPerson: 1, view.StateFencing: 1, view.StateNotReady: 1,
			view.StateUnfenceable: 1, view.StateFine: 4988}, Unlisted: 4987,
		Nodes: []view.Node{
			{Node: "n1", State: view.StateNeedsPerson, Ready: "Unknown", ReadySince: at(9 * time.Hour),
				Machine:    view.MachinePower{Power: "Off", By: "racks", From: "fence", At: at(3 * time.Second)},
				Protection: "FailClosed",
				Fence:      &view.NodeFence{ID: "f-1", Phase: "Evicting", At: *at(9 * time.Hour)},
				Next:       "A person should look: volume pv-7 does not detach from it."},
			{Node: "n2.rack-7.example.net", State: view.StateFencing, Ready: "Unknown",
				ReadySince: at(50 * time.Second),
				Machine: view.MachinePower{Power: "On", By: "racks/10.0.0.7", From: "fence",
					At: at(8 * time.Second)},
				Protection: "FailOpen",
				Fence:      &view.NodeFence{ID: "f-2", Phase: "PoweringOff", At: *at(9 * time.Second)},
				Next:       "Its machine is being powered off; the fence waits until racks/10.0.0.7 says Off."},
			{Node: "n3", State: view.StateNotReady, Ready: "False", ReadySince: at(time.Minute),
				Machine: view.MachinePower{Power: "Unknown", From: "drill", At: at(time.Hour)},
				Next:    "The node looks dead (" + hostile + "): nothing is done."},
			{Node: "n4", State: view.StateUnfenceable, Ready: "True", Machine: view.MachinePower{Power: "Unknown"},
				Protection: hostile, Next: "No controller has asked its devices yet."},
			{Node: "n5", State: view.StateFine, Ready: "True",
				Machine:    view.MachinePower{Power: "On", By: "racks/10.0.0.9", From: "drill", At: at(50 * time.Hour)},
				Protection: "FailClosed"},
		},
	}
}

// sampleTimeline is a fence that needs a person, recorded by a newer version.
func sampleTimeline() *view.Fence {
	micro := func(since time.Duration) metav1.MicroTime { return metav1.NewMicroTime(*at(since)) }
	var f api.Fencing
	f.Name = "n1.f-8bd391b2f0c0"
	f.Spec = api.FencingSpec{Node: "n1", ID: "f-8bd391b2f0c0", By: "forcefence-5d8-x2x-1", Why: "LeaseStale",
		Device: "racks", StartedAt: micro(time.Minute)}
	f.Status = api.FencingStatus{
		Phase: "Evicting",
		Timeline: []api.PhaseEntered{{Phase: "Armed", At: micro(58 * time.Second)},
			{Phase: "Evicting", At: micro(57 * time.Second)}},
		Evidence: []api.Answer{{At: micro(59 * time.Second), From: "racks", State: "Off", Raw: "Off"},
			{At: micro(57500 * time.Millisecond), From: "racks", State: "Off", Raw: hostile}},
		Steps: []api.Step{
			{Step: api.StepSetMark, Began: micro(58 * time.Second), Ended: micro(57900 * time.Millisecond)},
			{Step: api.StepEndPods, Began: micro(57 * time.Second), Ended: micro(40 * time.Second), Objects: 300,
				Times: 4, Error: hostile},
		},
		Pods: api.Pods{Ended: 300, Left: 1,
			Names: []api.Pod{{Namespace: "ns", Name: "db-0"}, {Namespace: "ns", Name: "db-1"}}},
		Volumes: api.Volumes{Attached: 2, Detached: 1, Names: []string{"pv-6", "pv-7"}, Left: []string{"pv-7"},
			Staying: []string{"pv-9"}},
		Conditions: []metav1.Condition{
			{Type: api.Proven, Status: "True", Message: "racks said that the machine is off"},
			{Type: api.NeedsPerson, Status: "True", Message: "volume pv-7 does not detach " + hostile}},
	}
	var earlier view.ParsedFencing
	earlier.Fencing.Name = "n1.f-41a07c9be2d3"
	newest := view.ParsedFencing{Fencing: f,
		Unrecognized: []string{"fields of a newer version, which are not shown", "phase Verifying"}}
	return view.TimelineOf(newest, []view.ParsedFencing{earlier}, []view.Event{
		{At: *at(58 * time.Second), Reason: "MachineOff", Text: "Device racks says that the machine is off (Off): " +
			"marking the node."},
		{At: *at(20 * time.Minute), Reason: "PowerUnknown", Text: "of before"},
	})
}

// TestScreens holds what people see on terminals of 60 and 120 columns, and in a file. Nothing that a terminal obeys is
// in it. Sentences fit the terminal; tables do not break their rows.
func TestScreens(t *testing.T) {
	for _, columns := range []int{60, 120, 0} {
		for name, print := range map[string]func(screen){
			"status":   func(s screen) { kit.Must(t, sampleFleet().printFleet(s, false)) },
			"wide":     func(s screen) { kit.Must(t, sampleFleet().printFleet(s, true)) },
			"timeline": func(s screen) { printTimeline(s, sampleTimeline(), noon) },
			"moments":  func(s screen) { kit.Must(t, printTable(s, momentTable(sampleTimeline()), true)) },
			"types": func(s screen) {
				kit.Must(t, printTable(s, typeTable([]all.Description{
					{Type: "a", Identity: "none", Off: "what is plugged in has been off for as long as a supply holds out"},
					{Type: "an-outlet", Identity: "none: a strip does not know what is plugged in", Off: "off"},
				}), false))
			},
			"change": func(s screen) { printChange(s, sampleFleet().Nodes[2], noon) },
		} {
			t.Run(name+strconv.Itoa(columns), func(t *testing.T) {
				var out bytes.Buffer
				print(screen{to: &out, width: columns})
				wide := name == "moments" || name == "wide"
				for _, line := range strings.Split(out.String(), "\n") {
					if n := len([]rune(line)); columns > 0 && n > columns && !wide || strings.HasSuffix(line, " ") {
						t.Errorf("%d columns, or spaces at its end: %q", n, line)
					}
				}
				if i := strings.IndexFunc(out.String(),
					func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
					t.Errorf("a terminal may obey %q", out.String()[i:min(i+9, out.Len())])
				}
				file := filepath.Join("testdata", "screens", name+strconv.Itoa(columns)+".txt")
				if *update {
					kit.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
					kit.Must(t, os.WriteFile(file, out.Bytes(), 0o600))
				}
				want, err := os.ReadFile(file)
				kit.Must(t, err)
				if diff := cmp.Diff(string(want), out.String()); diff != "" {
					t.Errorf("-want +got (-update writes it):\n%s", diff)
				}
			})
		}
	}
}

// A last column whose name has two words is broken at its own beginning.
func TestBrokenColumn(t *testing.T) {
	table := newTable("Node", "Found by", "+More")
	addRow(table, nodeNamed("n1"), "n1", "an address that the node reports", "x")
	var out bytes.Buffer
	kit.Must(t, printTable(screen{to: &out, width: 33}, table, false))
	if want := "NODE   FOUND BY\nn1     an address that the node\n       reports\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A text about several objects is printed once. The name of a node replaces NODE where the text is about one.
func TestRemarks(t *testing.T) {
	for _, tt := range []struct {
		name string
		all  []remark
		want string
	}{
		{"none", nil, ""},
		{"one", []remark{{"n1", "Run forcefence explain NODE."}}, "note  n1: Run forcefence explain n1.\n"},
		{"the same of two", []remark{{"n1", "Explain NODE."}, {"n2", "Repair it."}, {"n3", "Explain NODE."}},
			"note  n1, n3: Explain NODE.\nnote  n2: Repair it.\n"},
		{"the same of seven",
			[]remark{{"a", "x"}, {"b", "x"}, {"c", "x"}, {"d", "x"}, {"e", "x"}, {"f", "x"}, {"g", "x"}},
			"note  a, b, c, d, e and 2 more: x\n"},
	} {
		var out strings.Builder
		if printRemarks(&out, "note  ", tt.all); out.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, out.String(), tt.want)
		}
	}
}

// A table keeps the first sentence of what comes next, if its rows fit the screen.
func TestNextTable(t *testing.T) {
	table := newTable("Node", "Next")
	addRow(table, nodeNamed("n1"), "n1", "A device fails. Look at it: forcefence drill NODE.")
	addRow(table, nodeNamed("n2"), "n2", "It waits for NODE.")
	addRow(table, nodeNamed("n3"), "n3", "")
	for width, want := range map[int]string{
		0: "NODE   NEXT\nn1     A device fails.\nn2     It waits for n2.\nn3     -\n\n" +
			"n1: Look at it: forcefence drill n1.\n",
		23: "NODE   NEXT\nn1     A device fails.\nn2     It waits for n2.\nn3     -\n\n" +
			"n1: Look at it:\nforcefence drill n1.\n",
		22: "NODE\nn1\nn2\nn3\n\nn1: A device fails.\nLook at it: forcefence\ndrill n1.\nn2: It waits for n2.\n",
	} {
		var out strings.Builder
		kit.Must(t, printNextTable(screen{to: &out, width: width}, table, false))
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%d columns: -want +got:\n%s", width, diff)
		}
	}
}

// Before a controller leads, no node is blamed for what no controller has asked.
func TestStatusBeforeInstallation(t *testing.T) {
	f := &fleet{At: noon, Cluster: view.Cluster{Controller: &view.Leader{}},
		Counts: map[view.State]int{view.StateUnfenceable: 3}}
	for _, name := range []string{"n1", "n2", "n3"} {
		f.Nodes = append(f.Nodes, view.Node{Node: name, State: view.StateUnfenceable, Ready: "True",
			Machine: view.MachinePower{Power: "Unknown"}, Next: "No controller has asked its devices yet."})
	}
	f.Nodes[2].Fenceable, f.Nodes[2].Next = "False", "Give it a device."
	var out strings.Builder
	kit.Must(t, f.printFleet(&out, false))
	got := out.String()
	if !strings.Contains(got, "No controller leads") ||
		!strings.Contains(got, "Nodes: 3 (1 unfenceable, 2 not asked).") ||
		strings.Contains(got, "asked its devices") || !strings.Contains(got, "Give it a device.") {
		t.Errorf("got\n%s", got)
	}
	f.Controller = &view.Leader{Lease: "kube-system/forcefence", Holder: "ff", Leads: true, Late: true,
		Renewed: at(21 * time.Second), Until: at(6 * time.Second)}
	out.Reset()
	kit.Must(t, f.printFleet(&out, false))
	if got := out.String(); !strings.Contains(got, "led until 11:59:54 UTC") ||
		strings.Count(got, "asked its devices") != 2 {
		t.Errorf("with a late leader: got\n%s", got)
	}
	out.Reset()
	kit.Must(t, (&fleet{At: noon}).printFleet(&out, false))
	if got := out.String(); got != "No node matches.\n" {
		t.Errorf("no nodes: got %q", got)
	}
}

// TestOutputFormats prints one value in each form: the same to a program, and nothing that a terminal obeys.
func TestOutputFormats(t *testing.T) {
	f := sampleFleet()
	for format, want := range map[string]string{
		"": "Nodes: 4992 ", "wide": "racks/10.0.0.7",
		"name": "node/n1\nnode/n2.rack-7.example.net\nnode/n3\nnode/n4\nnode/n5\n",
		"json": `"node": "n2.rack-7.example.net"`, "yaml": "  node: n2.rack-7.example.net\n",
	} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			o := outputFormat{name: format}
			for range 2 {
				kit.Must(t, o.print(screen{to: &out}, report{f, f.table(), f.printFleet}))
			}
			first, second, _ := strings.Cut(out.String(), "---\n")
			if format != "yaml" {
				first, second = out.String()[:out.Len()/2], out.String()[out.Len()/2:]
			}
			if !strings.Contains(first, want) || first != second {
				t.Errorf("got no %q, or something else the second time:\n%s", want, out.String())
			}
			if strings.ContainsFunc(out.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }) {
				t.Errorf("a terminal may obey %q", out.String())
			}
			if format != "json" && format != "yaml" {
				return
			}
			back := fleet{Cluster: view.Cluster{Controller: &view.Leader{Room: &room.Summary{}}}}
			if format == "json" {
				kit.Must(t, json.Unmarshal([]byte(first), &back))
			} else {
				kit.Must(t, yaml.Unmarshal([]byte(first), &back))
			}
			if format == "json" && back.Nodes[3].Protection != hostile {
				t.Errorf("got %q, want what was written", back.Nodes[3].Protection)
			}
			f := sampleFleet()
			f.Nodes[2].Next, f.Nodes[3].Protection = back.Nodes[2].Next, back.Nodes[3].Protection
			if diff := cmp.Diff(f, &back, cmp.AllowUnexported(fleet{}),
				cmpopts.IgnoreUnexported(view.Node{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Whatever a command prints goes through a screen, errors too.
func TestRunIsAScreen(t *testing.T) {
	status, out, stderr := exec("timeline", "n1", "-o", "\x1b[2J")
	if status != 2 || out != "" || strings.Contains(stderr, "\x1b") ||
		!strings.Contains(stderr, "use json, name, wide, yaml") {
		t.Errorf("got %d, %q, %q", status, out, stderr)
	}
}

func TestProgramName(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/bin/kubectl-forcefence": "kubectl forcefence", "kubectl-forcefence.exe": "kubectl forcefence",
		"bin/forcefence": "forcefence"} {
		if got := programName(file); got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// The help of status explains each word of its columns, in lines of at most 80 columns.
func TestStatusHelp(t *testing.T) {
	help := newStatus(nil).Long
	for _, word := range []string{notAsked, "READY", "POWER", "Changing", "GUARD", taint.ProtectionFailClosed,
		taint.ProtectionFailOpen, taint.ProtectionNotAtBoot, taint.ProtectionNone, "ROOM", "FENCE",
		string(taint.PhasePoweringOff), string(taint.PhaseArmed), string(taint.PhaseEvicting),
		string(taint.ResultEvicted), string(taint.ResultReturned), string(taint.ResultLifted),
		string(taint.ResultCancelled), string(taint.ResultPowerOffFailed), string(taint.ResultMarkRemoved),
		string(taint.ResultReleased), string(taint.ResultNeverPoweredOff), "marked:", "unreadable:"} {
		if !strings.Contains(strings.Join(strings.Fields(help), " "), word) {
			t.Errorf("got no %q in:\n%s", word, help)
		}
	}
	for _, m := range view.Meanings() {
		if !strings.Contains(help, "\n  "+m.State.DisplayName()+": ") {
			t.Errorf("got no state %s in:\n%s", m.State, help)
		}
	}
	for line := range strings.Lines(help) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("a line of more than 80 columns: %q", line)
		}
	}
}
