package app

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// What the file says of a Node is kept for that version of it alone: another version, or another Node of the name, is led by what it says,
// and so is who else has its machine.
func TestLeadsFollowTheNodes(t *testing.T) {
	t.Setenv("BMC", "x")
	const text = "providers:\n- {name: racks, redfish: {username: u, passwordEnv: BMC}}\n" +
		"nodes:\n- {name: all, provider: racks, machine: {from: annotation, annotation: bmc, allow: [\"*.example.net\"]}}\n"
	cfg, err := config.Parse("f", []byte(text), all.Types())
	if err != nil {
		t.Fatal(err)
	}
	node := func(name, bmc, uid, rv string) corev1.Node {
		n := annotated(name, "https://"+bmc+".example.net", "", "")
		n.UID, n.ResourceVersion = types.UID(uid), rv
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		cache := &nodeCache{}
		p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(), cache)
		if err != nil {
			t.Fatal(err)
		}
		defer p.providers.closeAll()
		if err := p.applyConfig(cfg); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			name    string
			nodes   []corev1.Node
			want    string // the BMC of the first
			refused string // why it is not its
		}{
			{"two nodes", []corev1.Node{node("n1", "b1", "u1", "1"), node("n2", "b2", "u2", "1")}, "b1", ""},
			{"nothing changed", []corev1.Node{node("n1", "b1", "u1", "1"), node("n2", "b2", "u2", "1")}, "b1", ""},
			{"another version", []corev1.Node{node("n1", "b3", "u1", "2"), node("n2", "b2", "u2", "1")}, "b3", ""},
			{"the other's another version", []corev1.Node{node("n1", "b3", "u1", "2"), node("n2", "b3", "u2", "2")}, "b3", "node n2"},
			{"the other is gone", []corev1.Node{node("n1", "b3", "u1", "2")}, "b3", ""},
			{"another takes its place", []corev1.Node{node("n1", "b3", "u1", "2"), node("n3", "b3", "u3", "2")}, "b3", "node n3"},
			{"another Node of the name, of that version", []corev1.Node{node("n1", "b4", "u9", "2"), node("n3", "b3", "u3", "2")}, "b4", ""},
			{"without a version", []corev1.Node{node("n1", "b5", "u9", "")}, "b5", ""},
			{"without a version, again", []corev1.Node{node("n1", "b6", "u9", "")}, "b6", ""},
		} {
			time.Sleep(2 * time.Second)
			cache.nodes = tc.nodes
			m, err := p.activeConfig().Machines.Led(&tc.nodes[0])
			if err != nil || m.Identity.ID != "https://"+tc.want+".example.net" || (m.Clash.Refused == "") != (tc.refused == "") || !strings.Contains(m.Clash.Refused, tc.refused) {
				t.Errorf("%s: got %s, refused %q, error %v; want %s, refused %q", tc.name, m.Identity.ID, m.Clash.Refused, err, tc.want, tc.refused)
			}
		}
	})
}
