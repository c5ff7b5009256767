package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// noMachines is a configuration without rules.
func noMachines() *Config {
	return &Config{Machine: func(*corev1.Node) (Machine, error) { return Machine{}, errors.New("no rule claims the node") }}
}

const (
	uuid1 = "11223344-5566-7788-99aa-bbccddeeff01"
	uuid2 = "11223344-5566-7788-99aa-bbccddeeff02"
)

// byNote leads each node to the machine that its annotation names, as a configuration would.
func byNote() *Config {
	made := func(n *corev1.Node, m taint.Machine) Machine {
		return Machine{
			Name: m.Provider, Device: m.Provider + "/" + m.ID, Identity: m, Mode: fence.Fence,
			Target: providers.Target{Node: n.Name, ID: m.ID, SystemUUID: m.SystemUUID, Claimed: true},
		}
	}
	return &Config{
		Machine: func(n *corev1.Node) (Machine, error) {
			id := n.Annotations["bmc"]
			if id == "" {
				return Machine{}, errors.New("annotation bmc is missing")
			}
			return made(n, taint.Machine{Provider: "racks", ID: id, SystemUUID: providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID)}), nil
		},
		Recorded: func(n *corev1.Node, m taint.Machine) (Machine, error) {
			if m.Provider != "racks" {
				return Machine{}, errors.New("no such provider any more")
			}
			out := made(n, m)
			out.Mode = fence.Observe
			return out, nil
		},
	}
}

func noted(id, uuid string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7", Annotations: map[string]string{"bmc": id}, Labels: map[string]string{}}}
	n.Status.NodeInfo.SystemUUID = uuid
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// An open fence goes on with the machine that its record names, or with none.
func TestOpenFenceKeepsItsMachine(t *testing.T) {
	bmc1, bmc2 := taint.Machine{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}, taint.Machine{Provider: "racks", ID: "https://bmc2", SystemUUID: uuid2}
	gone := taint.Machine{Provider: "gone", ID: "https://bmc1", SystemUUID: uuid1}
	open := func(m *taint.Machine, device string) *taint.Record {
		return &taint.Record{ID: "f1", Phase: taint.PhasePoweringOff, NodeUID: "u1", By: "me", Machine: m, Device: device}
	}
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		pin    string
		record *taint.Record
		want   taint.Machine // zero: an error
		mode   fence.Mode
		says   string
	}{
		{"no fence", noted("https://bmc1", uuid1), bmc1.Pin(), nil, bmc1, fence.Fence, ""},
		{"the same", noted("https://bmc1", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, fence.Fence, ""},
		{"redirected", noted("https://bmc2", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, fence.Fence, ""},
		{"redirected, with the other's UUID", noted("https://bmc2", uuid2), bmc1.Pin(), open(&bmc1, ""), bmc1, fence.Fence, ""},
		{"led nowhere", noted("", uuid1), bmc1.Pin(), open(&bmc1, ""), bmc1, fence.Observe, ""},
		{"against the pin", noted("https://bmc1", uuid1), bmc1.Pin(), open(&bmc2, ""), taint.Machine{}, 0, "the fence began with machine https://bmc2"},
		{"the provider is gone", noted("https://bmc1", uuid1), gone.Pin(), open(&gone, ""), taint.Machine{}, 0, "no such provider any more"},
		{"an older version's, the same device", noted("https://bmc1", uuid1), bmc1.Pin(), open(nil, "racks/https://bmc1"), bmc1, fence.Fence, ""},
		{"an older version's, another device", noted("https://bmc1", uuid1), bmc1.Pin(), open(nil, "racks/https://bmc2"), taint.Machine{}, 0, "the fence began with device racks/https://bmc2"},
		{"redirected while silent, no fence yet", noted("https://bmc2", uuid1), bmc1.Pin(), nil, taint.Machine{}, 0, "names machine https://bmc2"},
		{"never pinned", noted("https://bmc1", uuid1), "", nil, bmc1, fence.Observe, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.node.Labels[taint.PinLabel] = tc.pin
			m, _, err := byNote().believe(tc.node, tc.record, false)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got error %v, want %q", err, tc.says)
			}
			if m.Identity != tc.want || m.Mode != tc.mode {
				t.Errorf("got %+v in mode %s, want %+v in mode %s", m.Identity, m.Mode, tc.want, tc.mode)
			}
			if err == nil && (m.Target.ID != tc.want.ID || m.Target.SystemUUID != tc.want.SystemUUID || !m.Target.Claimed) {
				t.Errorf("got target %+v", m.Target)
			}
		})
	}
}

// patches counts the patches of Nodes, and answers them with err.
type patches struct {
	client.Client
	err  error
	sent []string
}

func (p *patches) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	b, err := patch.Data(o)
	if err != nil {
		return err
	}
	p.sent = append(p.sent, string(b))
	return p.err
}

// oneNode is a cache with one Node. A list or a Get of anything else is a test's failure.
type oneNode struct {
	client.Reader
	node *corev1.Node
}

func (c oneNode) List(_ context.Context, o client.ObjectList, _ ...client.ListOption) error {
	o.(*corev1.NodeList).Items = []corev1.Node{*c.node}
	return nil
}

func (c oneNode) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.node.DeepCopyInto(o.(*corev1.Node))
	return nil
}

// A healthy node costs one write, ever, and no read of the API server; a pin that is refused costs one a minute.
func TestPinCostsOneRequest(t *testing.T) {
	c := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	node, api := noted("https://bmc1", uuid1), &patches{}
	recorder := events.NewFakeRecorder(9)
	r := New(Options{
		Cache: oneNode{node: node}, Client: api, Now: c.Now, Metrics: NewMetrics(prometheus.NewRegistry()), Key: taint.DefaultKey,
		Log: slog.New(slog.DiscardHandler), Events: recorder, Config: byNote, Leading: func() error { return nil },
	})
	r.renewed(lease("n1", 1, 40))
	reconciled := func(writes int, after time.Duration, told string) {
		t.Helper()
		api.sent = nil
		res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
		if err != nil || len(api.sent) != writes || res.RequeueAfter != after {
			t.Fatalf("got writes %v, again after %s, error %v, want %d after %s", api.sent, res.RequeueAfter, err, writes, after)
		}
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if (got == "") != (told == "") || !strings.Contains(got, told) {
			t.Fatalf("told %q, want %q", got, told)
		}
	}
	api.err = errors.New("the config does not let it through")
	reconciled(1, pinRetry, "")
	c.now = c.now.Add(pinRetry / 4)
	r.renewed(lease("n1", 2, 40))
	reconciled(0, pinRetry-pinRetry/4, "")
	c.now = c.now.Add(pinRetry)
	r.renewed(lease("n1", 3, 40))
	api.err = nil
	reconciled(1, 0, "")
	pin := (taint.Machine{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}).Pin()
	reconciled(1, 0, "") // the cache is behind: the API server would answer with a conflict
	if want := `{"metadata":{"labels":{"` + taint.PinLabel + `":"` + pin + `"},"resourceVersion":"7","uid":"u1"}}`; api.sent[0] != want {
		t.Errorf("got %s, want %s", api.sent[0], want)
	}
	node.Labels[taint.PinLabel] = pin
	for range 3 {
		reconciled(0, 0, "")
	}
	node.Annotations["bmc"] = "https://bmc1-new"
	reconciled(1, 0, "MachineRepinned")
	node.Annotations["bmc"] = "https://bmc1"
	node.Status.NodeInfo.SystemUUID = uuid2
	reconciled(0, pinRetry, "MachineNotBelieved")
	reconciled(0, pinRetry, "") // once
	node.Status.NodeInfo.SystemUUID = uuid1
	reconciled(0, 0, "")
}

// What may lead to a machine wakes the node: its pin is made anew, or the change is told.
func TestIdentityWakesNode(t *testing.T) {
	r := New(Options{Now: time.Now, Key: taint.DefaultKey})
	for name, change := range map[string]func(*corev1.Node){
		"annotation":  func(n *corev1.Node) { n.Annotations["bmc"] = "https://bmc2" },
		"label":       func(n *corev1.Node) { n.Labels["rack"] = "2" },
		"providerID":  func(n *corev1.Node) { n.Spec.ProviderID = "x" },
		"system UUID": func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid2 },
		"":            func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "7" },
	} {
		was := noted("https://bmc1", uuid1)
		is := was.DeepCopy()
		change(is)
		if got := r.nodeChanged(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is}); got != (name != "") {
			t.Errorf("%q: got %v", name, got)
		}
	}
}

// The first device is believed as far as its pin goes, a further one as long as nobody else has it; each stands without the other.
func TestBelieved(t *testing.T) {
	bmc1 := taint.Machine{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}
	further := func(clash string) Machine {
		return Machine{Name: "pdus", Device: "pdus/a1", Provider: broken{}, Clash: taint.Clash{Refused: clash}, Level: 1}
	}
	outlet := func(id, clash string) Machine {
		return Machine{Name: "strips", Device: "strips/" + id, Provider: broken{}, Clash: taint.Clash{Refused: clash}, Level: 2}
	}
	for _, tc := range []struct {
		name    string
		note    string
		pin     string
		further []Machine
		want    []string
		noPower string // of the first
		err     bool
	}{
		{"both", "https://bmc1", bmc1.Pin(), []Machine{further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "", false},
		{"never pinned", "https://bmc1", "", []Machine{further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "never pinned", false},
		{"redirected", "https://bmc2", bmc1.Pin(), []Machine{further("")}, []string{"pdus/a1"}, "", false},
		{"led nowhere", "", bmc1.Pin(), []Machine{further("")}, []string{"pdus/a1"}, "", false},
		{"another node has the further one", "https://bmc1", bmc1.Pin(), []Machine{further("n2 has it")}, []string{"racks/https://bmc1"}, "", false},
		{"another node has one outlet of two", "https://bmc1", bmc1.Pin(), []Machine{outlet("a", ""), outlet("b", "n2 has it"), further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "", false},
		{"an outlet of two is said twice", "https://bmc1", bmc1.Pin(), []Machine{outlet("a", ""), outlet("a", ""), further("")}, []string{"racks/https://bmc1", "pdus/a1"}, "", false},
		{"neither", "https://bmc2", bmc1.Pin(), []Machine{further("n2 has it")}, nil, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := byNote()
			inner := config.Machine
			config.Machine = func(n *corev1.Node) (Machine, error) {
				m, err := inner(n)
				m.Further, m.Mode = tc.further, fence.Fence
				if err == nil {
					m.Provider = broken{}
				}
				return m, err
			}
			node := noted(tc.note, uuid1)
			node.Labels[taint.PinLabel] = tc.pin
			m, err := config.Believed(node, nil)
			var got []string
			for _, d := range m.Devices() {
				got = append(got, d.Device)
			}
			if !slices.Equal(got, tc.want) || (err != nil) != tc.err || err != nil && !errors.Is(err, ErrNotBelieved) {
				t.Fatalf("got %q, error %v, want %q", got, err, tc.want)
			}
			if tc.noPower != "" && (!strings.Contains(m.NoPower, tc.noPower) || m.Devices()[1].NoPower != "") {
				t.Errorf("power of the first: %q, of the second: %q", m.NoPower, m.Devices()[1].NoPower)
			}
			if !tc.err && len(got) == 2 && m.Mode != fence.Fence {
				t.Errorf("got mode %s of a node that can be powered off through its second device", m.Mode)
			}
		})
	}
}

// A fence that began with one outlet of a level goes on with the whole level, though the node is pinned to that outlet from before.
func TestFenceOfALevel(t *testing.T) {
	outlet := func(id string) Machine {
		return Machine{Name: "racks", Device: "racks/" + id, Provider: broken{}, Level: 1, Identity: taint.Machine{Provider: "racks", ID: id}}
	}
	a := taint.Machine{Provider: "racks", ID: "a", SystemUUID: uuid1}
	config := byNote()
	recorded := config.Recorded
	config.Machine = func(*corev1.Node) (Machine, error) {
		return Machine{Mode: fence.Fence, Further: []Machine{outlet("a"), outlet("b")}}, errors.New("the rule has levels alone")
	}
	config.Recorded = func(n *corev1.Node, m taint.Machine) (Machine, error) {
		out, err := recorded(n, m)
		out.Provider = broken{}
		return out, err
	}
	node := noted("", uuid1)
	node.Labels[taint.PinLabel] = a.Pin()
	for name, rec := range map[string]*taint.Record{"no fence": nil, "its fence": {ID: "f1", Phase: taint.PhasePoweringOff, NodeUID: "u1", By: "me", Device: "racks/a", Machine: &a}} {
		m, err := config.Believed(node, rec)
		var got []string
		for _, d := range m.proofs() {
			got = append(got, fmt.Sprintf("%d:%s", d.Level, d.Name))
		}
		if want := []string{"1:racks/a", "1:racks/b"}; !slices.Equal(got, want) || err != nil || m.Mode != fence.Fence {
			t.Errorf("%s: got %q in mode %s, error %v, want %q", name, got, m.Mode, err, want)
		}
	}
}
