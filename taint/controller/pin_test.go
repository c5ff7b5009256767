package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// noMachines is a configuration without rules.
func noMachines() *Config {
	return &Config{Machines: machine.Finder{Led: func(*corev1.Node) (machine.Machine, error) {
		return machine.Machine{}, errors.New("no rule claims the node")
	}}}
}

const (
	uuid1 = "11223344-5566-7788-99aa-bbccddeeff01"
	uuid2 = "11223344-5566-7788-99aa-bbccddeeff02"
)

// byNote leads each node to the machine that its annotation names, as a configuration would.
func byNote() *Config {
	made := func(n *corev1.Node, m taint.MachineRef) machine.Machine {
		return machine.Machine{
			Name: m.Provider, Device: m.Provider + "/" + m.ID, Identity: m,
			Target: providers.Target{Node: n.Name, ID: m.ID, SystemUUID: m.SystemUUID, Claimed: true},
		}
	}
	return &Config{
		Machines: machine.Finder{
			Led: func(n *corev1.Node) (machine.Machine, error) {
				id := n.Annotations["bmc"]
				if id == "" {
					return machine.Machine{}, errors.New("annotation bmc is missing")
				}
				return made(n,
					taint.MachineRef{Provider: "racks", ID: id,
						SystemUUID: providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID)}), nil
			},
			Recorded: func(n *corev1.Node, m taint.MachineRef) (machine.Machine, error) {
				if m.Provider != "racks" {
					return machine.Machine{}, errors.New("no such provider any more")
				}
				return made(n, m), nil
			},
		},
	}
}

func noted(id, uuid string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7",
			Annotations: map[string]string{"bmc": id}, Labels: map[string]string{}}}
	n.Status.NodeInfo.SystemUUID = uuid
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
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
	sinks, _ := sinksTo(recorder)
	r := New(Options{
		Cache: oneNode{node: node}, Client: api, Now: c.Now, Sinks: sinks, Key: taint.DefaultKey, Config: byNote,
		Leading: func() error { return nil },
	})
	renew := func(rv string) {
		r.WithFleet(func(f *fleet.Fleet) { f.ApplyLease("n1", rv, 40*time.Second, r.Now.Instant()) })
	}
	renew("1")
	reconciled := func(writes int, after time.Duration, told string) {
		t.Helper()
		api.sent = nil
		res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
		if err != nil || len(api.sent) != writes || res.RequeueAfter != after {
			t.Fatalf("got writes %v, again after %s, error %v, want %d after %s", api.sent, res.RequeueAfter, err,
				writes, after)
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
	renew("2")
	reconciled(0, pinRetry-pinRetry/4, "")
	c.now = c.now.Add(pinRetry)
	renew("3")
	api.err = nil
	reconciled(1, 0, "")
	pin := (taint.MachineRef{Provider: "racks", ID: "https://bmc1", SystemUUID: uuid1}).Pin()
	reconciled(1, 0, "") // the cache is behind: the API server would answer with a conflict
	if want := `{"metadata":{"labels":{"` + taint.PinLabel + `":"` + pin +
		`"},"resourceVersion":"7","uid":"u1"}}`; api.sent[0] != want {
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
		got := r.onNodeUpdated(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is})
		if got != (name != "") {
			t.Errorf("%q: got %v", name, got)
		}
	}
}
