package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/reason"
)

// A rack is lost: one Event tells it, by whichever of its nodes comes first, and none of its machines is powered off.
// What is off is recovered. Once the configuration names no racks any more, the nodes are single ones.
func TestLostRackIsOneEvent(t *testing.T) {
	w := newWorld(t)
	w.mode = fence.Fence
	w.limits = &fleet.Limits{
		MaxPowerOffs: fleet.Amount{Number: 2}, MinHealthy: fleet.Amount{Percent: 50}, CoolDown: 10 * time.Second,
		Domains: []fleet.Domain{{Label: "rack"}},
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.change(n, func(n *corev1.Node) { n.Labels = map[string]string{"rack": "r1"} })
	}
	w.run(15 * time.Second)
	w.silence("n1")
	w.silence("n2")
	w.run(3 * time.Minute)
	told := 0
	for _, s := range w.told.said {
		if strings.HasPrefix(s, string(reason.DomainLost)) {
			told++
		}
	}
	held, silent, of := w.r.HeldBack()
	if held.Rule != reason.DomainLost || !slices.Equal(held.Nodes, []string{"n1", "n2"}) || held.Since.IsZero() ||
		silent != 2 || of != 5 || !strings.Contains(held.Detail, "2 of 3 nodes of rack=r1") {
		t.Errorf("held back: got %+v, %d of %d silent, want n1 and n2, 2 of 5", held, silent, of)
	}
	refused := w.heard.count(t, "forcefence_guard_refusals_total", string(reason.DomainLost))
	if told != 1 || refused != 2 || w.machines["n1"].offs()+w.machines["n2"].offs() != 0 {
		t.Errorf("two of three nodes of a rack are lost: told %d times, %v refusals counted, %d and %d power-offs; %q",
			told, refused, w.machines["n1"].offs(), w.machines["n2"].offs(), w.told.said)
	}
	w.limits = &fleet.Limits{MaxPowerOffs: fleet.Amount{Number: 2}}
	for _, n := range []string{"n1", "n2"} {
		if !w.until(2*time.Minute, func() bool { return w.machines[n].offs() == 1 }) {
			t.Errorf("%s without racks: %d power-offs; %q", n, w.machines[n].offs(), w.told.said)
		}
	}
	if held, _, _ := w.r.HeldBack(); len(held.Nodes) > 0 || !held.Since.IsZero() {
		t.Errorf("after the guard: got %+v, want none", held)
	}
}

// An answer of the API server is one, whatever it says; what never got to it, or found it broken, is none.
func TestWhoIsCutOff(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no route", errors.New("dial tcp: no route to host"), true},
		{"no answer in time", fmt.Errorf("reading: %w", context.DeadlineExceeded), true},
		{"the server is broken", fmt.Errorf("reading: %w", apierrors.NewInternalError(errors.New("etcd"))), true},
		{"forbidden", fmt.Errorf("reading: %w", apierrors.NewForbidden(nodes, "n1", errors.New("no"))), false},
		{"not found", apierrors.NewNotFound(nodes, "n1"), false},
		{"we end", fmt.Errorf("reading: %w", context.Canceled), false},
		{"none", nil, false},
	} {
		w := newWorld(t)
		for range 5 {
			w.r.noteReadResult(tt.err)
		}
		if got := w.r.fleetView("n1").Storm.Failed > 0; got != tt.want {
			t.Errorf("%s: cut off %v, want %v", tt.name, got, tt.want)
		}
	}
}
