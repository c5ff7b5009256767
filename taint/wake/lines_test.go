package wake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/machine"
)

// A line goes to the first InternalIP that can be another machine's, of nodes that have a machine and are not disabled.
func TestWhoHasALine(t *testing.T) {
	list := &nodeObjects{}
	add := func(name, mode string, addresses ...corev1.NodeAddress) {
		list.items = append(list.items,
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mode": mode}},
				Status: corev1.NodeStatus{Addresses: addresses}})
	}
	in := func(a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a}
	}
	add("plain", "", corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "10.9.9.9"}, in("10.0.0.1"), in("10.0.0.2"))
	add("six", "", in("fd00::1"))
	add("hostile", "", in("127.0.0.1"), in("169.254.169.254"), in("::1"), in("0.0.0.0"), in("api.example.net"),
		in("10.0.0.3"))
	add("itself", "", in("127.0.0.1"))
	add("nowhere", "")
	add("disabled", "disabled", in("10.0.0.4"))
	add("nobody's", "", in("10.0.0.5"))
	o := optionsOf(list, nil, nil)
	got, err := o.findTargets(t.Context(), &Config{
		Machines: machine.Finder{Led: func(n *corev1.Node) (machine.Machine, error) {
			if n.Name == "nobody's" {
				return machine.Machine{}, errors.New("no provider")
			}
			return machine.Machine{Provider: newRack(), Target: providers.Target{Node: n.Name}}, nil
		}},
		Mode: byLabel,
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, n := range got.lines {
		lines = append(lines, n.Name+" "+n.Address.String())
	}
	if want := []string{"plain 10.0.0.1", "six fd00::1", "hostile 10.0.0.3"}; !slices.Equal(lines, want) {
		t.Errorf("lines: got %q, want %q", lines, want)
	}
	if len(got.polls) > 0 {
		t.Errorf("polled without being told to: %v", got.polls)
	}
}

// A broken line is a hint and wakes its node at once. Reporting it does not block.
func TestLineBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan event.GenericEvent)
		l := newLines(optionsOf(nil, wake, nil))
		ctx, cancel := context.WithCancel(t.Context())
		for _, n := range []string{"n1", "n2", "n3"} { // before anything wakes nodes
			l.noteBroken(n)
		}
		if by := l.fleetView("n2").Hint; by != fleet.Line {
			t.Errorf("hint by %q", by)
		}
		var wait sync.WaitGroup
		wait.Go(func() { l.wakeBroken(ctx) })
		for _, want := range []string{"n1", "n2", "n3"} {
			if e := <-wake; e.Object.GetName() != want {
				t.Errorf("woken: %s, want %s", e.Object.GetName(), want)
			}
		}
		l.noteBroken("n4")
		synctest.Wait()
		cancel()
		wait.Wait() // even while no wake-up is received
	})
}
