package cloudtaint_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/cloudtaint"
	"github.com/forcefence/forcefence/providers/providertest"
)

const (
	on, off, unknown = providers.PowerOn, providers.PowerOff, providers.PowerUnknown
	key              = "node.cloudprovider.kubernetes.io/shutdown"
)

// node is what the API server has, one after the other.
type node struct {
	now providers.Node
	err error
}

func (n *node) read(_ context.Context, name string) (providers.Node, error) {
	if name != "n1" {
		return providers.Node{}, providers.ErrNotFound
	}
	return n.now, n.err
}

func provider(t *testing.T, trust cloudtaint.Trust, n *node) providers.Provider {
	t.Helper()
	c := cloudtaint.Type().NewConfig().(*cloudtaint.Config)
	if len(c.Validate()) != 1 {
		t.Error("the defaults alone name a provider to trust")
	}
	if c.Trust = trust; len(c.Validate()) != 0 {
		t.Fatal(c.Validate())
	}
	p, err := c.New(providers.Options{Name: "cloud", Node: n.read})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(t *testing.T, p providers.Provider) providers.Answer {
	t.Helper()
	return providers.Ask(t.Context(), p, "cloud", providers.Target{Node: "n1", ID: "n1"}, providers.Now)
}

// The taint is an Off only if it came after the node stopped being Ready, in the same life, and is still there when
// asked.
func TestState(t *testing.T) {
	look := func(uid, boot, ready string, taints ...providers.NodeTaint) providers.Node {
		return providers.Node{UID: uid, BootID: boot, Ready: ready, Taints: taints}
	}
	shut := providers.NodeTaint{Key: key, Effect: "NoSchedule"}
	ready, bare, tainted := look("u", "b", "True"), look("u", "b", "Unknown"), look("u", "b", "Unknown", shut)
	for _, tc := range []struct {
		name string
		seen []providers.Node
		want providers.PowerState
		raw  string
	}{
		{"ready", []providers.Node{ready}, unknown, "the node is Ready, or was never Ready"},
		{"not ready", []providers.Node{ready, bare}, unknown, "no shutdown taint"},
		{"it came after", []providers.Node{ready, bare, tainted}, off, "shutdown taint"},
		{"it came after, and is still there", []providers.Node{bare, tainted, tainted}, off, "shutdown taint"},
		{"it came after NotReady False", []providers.Node{look("u", "b", "False"), look("u", "b", "False", shut)}, off,
			"shutdown taint"},
		{"it is gone", []providers.Node{bare, tainted, bare}, unknown, "no shutdown taint"},
		{"it is back", []providers.Node{bare, tainted, bare, tainted}, off, "shutdown taint"},
		{"it was there before", []providers.Node{tainted}, unknown, "shutdown taint of unknown age"},
		{"it was there while the node was Ready", []providers.Node{bare, look("u", "b", "True", shut), tainted},
			unknown, "shutdown taint of unknown age"},
		{"it was there when the kubelet registered", []providers.Node{look("u", "b", "False", shut), tainted}, unknown,
			"shutdown taint of unknown age"},
		{"ready again, the taint left over", []providers.Node{bare, tainted, look("u", "b", "True", shut)}, unknown,
			"the node is Ready, or was never Ready"},
		{"ready in between, the taint left over", []providers.Node{bare, tainted, ready, tainted}, unknown,
			"shutdown taint of unknown age"},
		{"booted in between", []providers.Node{bare, look("u", "b2", "Unknown", shut)}, unknown,
			"shutdown taint of unknown age"},
		{"another Node of the name", []providers.Node{bare, look("u2", "b", "Unknown", shut)}, unknown,
			"shutdown taint of unknown age"},
		{"booted, and then it came", []providers.Node{bare, look("u", "b2", "False"), look("u", "b2", "Unknown", shut)},
			off, "shutdown taint"},
		{"another key",
			[]providers.Node{bare,
				look("u", "b", "Unknown",
					providers.NodeTaint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: "NoSchedule"})},
			unknown, "no shutdown taint"},
		{"another effect",
			[]providers.Node{bare, look("u", "b", "Unknown", providers.NodeTaint{Key: key, Effect: "NoExecute"})},
			unknown, "no shutdown taint"},
		{"the taint counts with any value",
			[]providers.Node{bare,
				look("u", "b", "Unknown", providers.NodeTaint{Key: key, Value: "x", Effect: "NoSchedule"})}, off,
			"shutdown taint"},
		{"no condition at all",
			[]providers.Node{look("u", "b", ""), look("u", "b", "", shut), look("u", "b", "False", shut)}, unknown,
			"shutdown taint of unknown age"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n node
			trusts, doubts := provider(t, cloudtaint.TrustCCM, &n), provider(t, cloudtaint.TrustNobody, &n)
			var a, b providers.Answer
			for _, n.now = range tc.seen {
				a, b = ask(t, trusts), ask(t, doubts)
				if a.State == on || b.State == on {
					t.Fatal("a taint says On")
				}
			}
			if a.State != tc.want || a.Raw != tc.raw || a.Err != nil || a.SystemUUID != "" {
				t.Errorf("got %s (%q), %v, want %s (%q)", a.State, a.Raw, a.Err, tc.want, tc.raw)
			}
			if b.State != unknown {
				t.Errorf("trust no provider: got %s (%q)", b.State, b.Raw)
			}
		})
	}
}

// A Node that cannot be read proves nothing, and a deleted one is forgotten.
func TestErrors(t *testing.T) {
	n := node{now: providers.Node{UID: "u", BootID: "b", Ready: "Unknown"}}
	p := provider(t, cloudtaint.TrustCCM, &n)
	ask(t, p)
	n.now.Taints = []providers.NodeTaint{{Key: key, Effect: "NoSchedule"}}
	for _, class := range []error{providers.ErrUnreachable, providers.ErrDenied} {
		if n.err = class; !errors.Is(ask(t, p).Err, class) || ask(t, p).State != unknown {
			t.Errorf("got %+v, want %v", ask(t, p), class)
		}
	}
	if n.err = nil; ask(t, p).State != off {
		t.Error("a Node that could not be read for a moment was forgotten")
	}
	n.err = providers.ErrNotFound
	ask(t, p)
	if n.err = nil; ask(t, p).State != unknown {
		t.Error("a Node that was deleted was not forgotten")
	}
	for _, err := range []error{
		p.PowerOff(t.Context(), providers.Target{Node: "n1"}, providertest.AllowSend),
		p.PowerOn(t.Context(), providers.Target{Node: "n1"}, providertest.AllowSend)} {
		if !errors.Is(err, providers.ErrPermanent) {
			t.Errorf("a power action: got %v", err)
		}
	}
	c := &cloudtaint.Config{Trust: "all"}
	if len(c.Validate()) != 1 {
		t.Error("Trust accepts all")
	}
	alone, err := (&cloudtaint.Config{Trust: cloudtaint.TrustCCM}).New(providers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a := ask(t, alone); !errors.Is(a.Err, providers.ErrPermanent) {
		t.Errorf("without an API server: got %+v", a)
	}
}
