package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/test/cluster"
)

func TestParseDrainPolicy(t *testing.T) {
	now := time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		policy, long string
		want         string // as text, or of the error
	}{
		{"block-for-eviction", "4h", "block-for-eviction; until=2026-12-01T18:00:00Z"},
		{"always-allow", "forever", "always-allow"},
		{"always-allow", "", "--for is required"},
		{"always-allow", "4 hours", "--for: \"4 hours\" is neither a duration"},
		{"always-allow", "-4h", "--for: \"-4h\" is neither a duration"},
		{"allways-allow", "4h", "--set: \"allways-allow\" is none of block-if-contains-last-replica, "},
		{"", "4h", "--for needs --set POLICY"},
	} {
		o, err := parseDrainPolicy(tc.policy, tc.long, now)
		got := o.Text()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tc.want) || err == nil && got != tc.want {
			t.Errorf("--set %q --for %q: got %q, want %q", tc.policy, tc.long, got, tc.want)
		}
	}
}

// TestDrainPolicy sets policies as an operator would, reads them back, and removes them.
func TestDrainPolicy(t *testing.T) {
	admin := cluster.Admin(t, shared)
	ctx, now := t.Context(), time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC)
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "drain-policy"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policed"}},
	} {
		if err := admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		defer admin.Delete(ctx, o)
	}
	o := drainPolicies{admin, client.ObjectKey{Namespace: "drain-policy", Name: config.DrainConfigMap},
		func() time.Time { return now }}
	want := func(what string, lines []string, err error, want string) {
		t.Helper()
		got := strings.Join(lines, "\n")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
		}
	}
	none := "No drain policy is set: the configuration's applies to all nodes."
	lines, err := o.list(ctx)
	want("before", lines, err, none)
	lines, err = o.remove(ctx, "policed")
	want("nothing to remove", lines, err, "Node policed: no drain policy is set")
	lines, err = o.set(ctx, "policed", drain.Override{Policy: drain.AlwaysAllow, Until: now.Add(time.Hour)})
	want("a node", lines, err, "Node policed: the drain policy is always-allow until 2026-12-01T15:00:00Z.")
	upgrade := drain.Override{Policy: drain.BlockForEviction, Until: now.Add(4 * time.Hour)}
	lines, err = o.set(ctx, drain.AllNodes, upgrade)
	want("all nodes", lines, err, "All nodes: the drain policy is block-for-eviction until 2026-12-01T18:00:00Z.")
	lines, err = o.set(ctx, "policed", drain.Override{Policy: drain.BlockIfLast})
	want("again", lines, err, "Node policed: the drain policy is block-if-contains-last-replica without an end. It "+
		"replaces always-allow until 2026-12-01T15:00:00Z.")
	lines, err = o.list(ctx)
	want("both", lines, err, "All nodes: block-for-eviction until 2026-12-01T18:00:00Z.\n"+
		"Node policed: block-if-contains-last-replica without an end.")
	if _, err = o.set(ctx, "no-such-node", drain.Override{Policy: drain.AlwaysAllow}); err == nil {
		t.Error("a node that does not exist: got no error")
	}
	now = now.Add(5 * time.Hour)
	lines, err = o.list(ctx)
	want("one is over", lines, err, "Node policed: block-if-contains-last-replica without an end.")
	lines, err = o.remove(ctx, "policed")
	want("removed", lines, err, "Node policed: the drain policy is the configuration's again. It was "+
		"block-if-contains-last-replica without an end.")
	var cm corev1.ConfigMap
	if err := admin.Get(ctx, o.at, &cm); err != nil || len(cm.Data) > 0 {
		t.Errorf("the ConfigMap: got %v, %v, want it empty: what is over goes with the next change", cm.Data, err)
	}
	lines, err = o.list(ctx)
	want("after", lines, err, none)
}
