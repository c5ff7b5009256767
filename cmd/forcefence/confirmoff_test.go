package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/providers/confirm"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// shared is a real control plane for what only an API server can tell; nil under -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(cluster.MainStore(m, func(c *cluster.Cluster) { shared = c })) }

// A person confirms on a real API server, and the provider reads it there: for this boot, this fence, and a while.
func TestConfirmOff(t *testing.T) {
	admin := cluster.Admin(t, shared)
	ctx := t.Context()
	const name = "confirmed"
	edit := func(change func(*corev1.Node), status bool) {
		t.Helper()
		var n corev1.Node
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		change(&n)
		write := admin.Update(ctx, &n)
		if status {
			change(&n) // the write gave back what was there
			write = admin.Status().Update(ctx, &n)
		}
		if write != nil {
			t.Fatal(write)
		}
	}
	lives := func(boot string, ready corev1.ConditionStatus) {
		t.Helper()
		edit(func(n *corev1.Node) {
			n.Status.NodeInfo.BootID = boot
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		}, true)
	}
	record := func(id string, p taint.Phase, res taint.Result) {
		t.Helper()
		edit(func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, taint.RecordAnnotation,
				taint.Record{ID: id, NodeUID: string(n.UID), By: "test"}.EnterPhase(p, res, time.Now()).Encode())
		}, false)
	}
	p, err := confirm.Type().NewConfig().New(providers.Options{Node: app.NodeReader(admin)})
	if err != nil {
		t.Fatal(err)
	}
	answers := func(want providers.PowerState, says string) {
		t.Helper()
		a := providers.Ask(ctx, p, "people", providers.Target{Node: name}, providers.Now)
		if a.State != want || a.Err != nil || !strings.Contains(a.Raw, says) {
			t.Errorf("got %s (%q), %v, want %s (%q)", a.State, a.Raw, a.Err, want, says)
		}
	}
	confirmed := func() taint.Confirmation {
		t.Helper()
		var n corev1.Node
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		c, err := taint.ParseConfirmation(n.Annotations[taint.ConfirmAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	refuses := func(reason, says string) {
		t.Helper()
		if _, err := confirmOff(ctx, admin, name, reason, time.Now); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	says := func(now func() time.Time) {
		t.Helper()
		reason, err := parseReason(" unplugged\n  it ")
		if err != nil {
			t.Fatal(err)
		}
		if told, err := confirmOff(ctx, admin, name, reason, now); err != nil ||
			!strings.Contains(told, name) {
			t.Fatalf("got %q, %v", told, err)
		}
	}
	const off, unknown = providers.PowerOff, providers.PowerUnknown

	refuses("unplugged it", "not found")
	if err := admin.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = admin.Delete(context.WithoutCancel(ctx), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}()
	lives("b1", corev1.ConditionTrue)
	refuses("unplugged it", "is Ready")
	lives("b1", corev1.ConditionUnknown)
	answers(unknown, "not confirmed")
	says(time.Now)
	answers(off, ": unplugged it")
	first := confirmed()
	answers(off, first.By+": unplugged it")
	record(first.Fence, taint.PhaseEvicting, "") // the fence that it is for
	answers(off, "unplugged it")
	record(first.Fence, taint.PhaseDone, taint.ResultEvicted)
	answers(unknown, "its fence is done")
	record("f-other", taint.PhaseDone, taint.ResultEvicted) // a later one, which it did not serve
	answers(unknown, "another fence has been done since")
	says(time.Now) // again, for the next one
	answers(off, "unplugged it")
	record("f-open", taint.PhasePoweringOff, "")
	answers(unknown, "f-open is open")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	kit.Must(t, admin.Create(ctx, lease))
	defer admin.Delete(context.WithoutCancel(ctx), lease)
	says(time.Now) // for the fence that is open
	if c := confirmed(); c.Fence != "f-open" || c.BootID != "b1" || c.LeaseRV != lease.ResourceVersion {
		t.Errorf("got %+v, want it bound to the open fence and the Lease", c)
	}
	answers(off, "unplugged it")
	lives("b2", corev1.ConditionUnknown)
	answers(unknown, "booted since")
	says(func() time.Time { return time.Now().Add(-time.Hour) })
	answers(unknown, "expired")
	edit(func(n *corev1.Node) { n.Annotations[taint.ConfirmAnnotation] = "yes" }, false)
	answers(unknown, "")
	edit(func(n *corev1.Node) { n.Annotations[taint.RecordAnnotation] = "{" }, false)
	refuses("unplugged it", "release")
	nobody, err := client.New(shared.RESTConfigFor("somebody"), client.Options{Mapper: admin.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := confirmOff(ctx, nobody, name, "unplugged it", time.Now); err == nil ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without rights: got %v", err)
	}
}

// A confirmation that no provider of type confirm would read is refused. If the configuration cannot be read, the
// person learns that.
func TestConfirmOffNeedsProvider(t *testing.T) {
	const rule = "nodes:\n- {name: all, provider: racks, machine: {from: list, " +
		"list: [{node: n1, id: 'https://a.example.net'}]}"
	const named = "nodes:\n- {name: all, provider: racks, machine: {from: list, list: [{node: n1, id: n1}]}"
	const racks = "mode: observe\nproviders:\n- {name: racks, confirm: {validFor: 15m}}\n"
	const others = "mode: observe\nproviders:\n- {name: people, confirm: {validFor: 15m}}\n" +
		"- {name: racks, redfish: {username: u, passwordFile: /p, caFile: /c}}\n"
	const level = ", levels: [{devices: [{provider: people, machine: {from: name}}]}]"
	for _, tc := range []struct {
		name, node, config string
		note, fails        string
	}{
		{"its own device", "n1", racks + named + "}\n", "", ""},
		{"of a level", "n1", others + rule + level + "}\n", "", ""},
		{"no rule claims this node", "n2", others + rule + level + "}\n", "", "no rule claims the node"},
		{"of no level", "n1", others + rule + "}\n", "", "has no provider of type confirm that would read it"},
		{"of no level, and the guard may wait for it", "evicting", others + rule + "}\n", onlyGuardReads, ""},
		{"of no level, before its pods are ended", "armed", others + rule + "}\n", "", "no rule claims the node"},
		{"no rule", "n1", racks, "", "no rule claims the node"},
		{"no configuration", "n1", "", "not found", ""},
		{"a configuration with faults", "n1", "mode: dance\n", "mode", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := []client.Object{leaderLease(time.Now()),
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}}
			for name, phase := range map[string]taint.Phase{"evicting": taint.PhaseEvicting, "armed": taint.PhaseArmed} {
				rec := taint.Record{ID: "f1", NodeUID: "u", By: "ff"}.EnterPhase(phase, "", time.Now())
				objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
					Annotations: map[string]string{taint.RecordAnnotation: rec.Encode()}}})
			}
			if tc.config != "" {
				objects = append(objects, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName},
					Data:       map[string]string{configKey: tc.config}})
			}
			c := fake.NewClientBuilder().WithObjects(objects...).Build()
			note, err := checkConfirmProvider(t.Context(), c, "", all.Types(), tc.node)
			if (tc.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("got error %v, want %q", err, tc.fails)
			}
			if (tc.note == "") != (note == "") || !strings.Contains(note, tc.note) {
				t.Errorf("got note %q, want %q", note, tc.note)
			}
		})
	}
}
