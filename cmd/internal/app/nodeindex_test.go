package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// feedNodes makes these the only Nodes, as an informer does: its store changes first, then an event names each Node.
func feedNodes(p *configs, nodes ...corev1.Node) {
	gone := map[string]bool{}
	for _, name := range p.nodes.ListKeys() {
		gone[name] = true
	}
	for i := range nodes {
		delete(gone, nodes[i].Name)
		_ = p.nodes.Update(nodes[i].DeepCopy())
		p.refreshNode(&nodes[i])
	}
	for name := range gone {
		last, _, _ := p.nodes.GetByKey(name)
		_ = p.nodes.Delete(last)
		p.refreshNode(toolscache.DeletedFinalStateUnknown{Key: name, Obj: last})
	}
}

// newIndexed returns configs over a file whose nodes name their BMCs in an annotation.
func newIndexed(t *testing.T) *configs {
	t.Helper()
	p, err := newConfigs(Options{Log: slog.New(slog.DiscardHandler)}, prometheus.NewRegistry(), listedNodes(nil))
	if err == nil {
		err = p.applyConfig(bmcFile(t, "observe"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func bmcText(mode string) string {
	return "mode: " + mode + "\nproviders: [{name: racks, redfish: {username: u, passwordEnv: BMC}}]\n" +
		"nodes: [{name: all, provider: racks, machine: {from: annotation, annotation: bmc, allow: " +
		"[\"*.example.net\"]}}]\n"
}

func bmcFile(t *testing.T, mode string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte(bmcText(mode)), all.Types())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func bmcNode(name, bmc, uid, rv string) corev1.Node {
	n := annotated(name, "https://"+bmc+".example.net", "", "")
	n.UID, n.ResourceVersion = types.UID(uid), rv
	return n
}

// checkMachine tests which BMC a node is led to, and which node keeps it from having it; "": none.
func checkMachine(t *testing.T, what string, find machine.Finder, n corev1.Node, want, refused string) {
	t.Helper()
	m, err := find.Led(&n)
	if err != nil || m.Identity.ID != "https://"+want+".example.net" ||
		(m.Clash.Refused == "") != (refused == "") || !strings.Contains(m.Clash.Refused, refused) {
		t.Errorf("%s: got %s, refused %q, error %v; want %s, refused %q",
			what, m.Identity.ID, m.Clash.Refused, err, want, refused)
	}
}

// What the file says of a Node is kept for that version of it alone: another version, or another Node of the name, is
// led by what it says, and so is who else has its machine.
func TestIndexFollowsTheNodes(t *testing.T) {
	t.Setenv("BMC", "x")
	node := bmcNode
	p := newIndexed(t)
	defer p.providers.closeAll()
	for _, tc := range []struct {
		name    string
		nodes   []corev1.Node
		want    string // the BMC of the first
		refused string // why it is not its
	}{
		{"two nodes", []corev1.Node{node("n1", "b1", "u1", "1"), node("n2", "b2", "u2", "1")}, "b1", ""},
		{"nothing changed", []corev1.Node{node("n1", "b1", "u1", "1"), node("n2", "b2", "u2", "1")}, "b1", ""},
		{"another version", []corev1.Node{node("n1", "b3", "u1", "2"), node("n2", "b2", "u2", "1")}, "b3", ""},
		{"the other's another version", []corev1.Node{node("n1", "b3", "u1", "2"), node("n2", "b3", "u2", "2")}, "b3",
			"node n2"},
		{"the other is gone", []corev1.Node{node("n1", "b3", "u1", "2")}, "b3", ""},
		{"another takes its place", []corev1.Node{node("n1", "b3", "u1", "2"), node("n3", "b3", "u3", "2")}, "b3",
			"node n3"},
		{"another Node of the name, of that version",
			[]corev1.Node{node("n1", "b4", "u9", "2"), node("n3", "b3", "u3", "2")}, "b4", ""},
		{"without a version", []corev1.Node{node("n1", "b5", "u9", "")}, "b5", ""},
		{"without a version, again", []corev1.Node{node("n1", "b6", "u9", "")}, "b6", ""},
	} {
		feedNodes(p, tc.nodes...)
		checkMachine(t, tc.name, p.activeConfig().Machines, tc.nodes[0], tc.want, tc.refused)
	}
}

// A reconcile may see a Node before the index does. It then asks the file about the Node that it sees. An event that
// comes late brings back nothing older.
func TestIndexAndLateEvents(t *testing.T) {
	t.Setenv("BMC", "x")
	p := newIndexed(t)
	defer p.providers.closeAll()
	n1, n2 := bmcNode("n1", "b1", "u1", "1"), bmcNode("n2", "b2", "u2", "1")
	feedNodes(p, n1, n2)
	find := p.activeConfig().Machines
	checkMachine(t, "at first", find, n1, "b1", "")
	moved := bmcNode("n1", "b2", "u1", "2")
	checkMachine(t, "before its event", find, moved, "b2", "node n2")
	another := bmcNode("n1", "b3", "u9", "1")
	checkMachine(t, "another Node of the name", find, another, "b3", "")

	taken := bmcNode("n2", "b1", "u2", "2")
	if err := p.nodes.Update(&taken); err != nil {
		t.Fatal(err)
	}
	p.refreshNode(&n2) // the event of the version before
	checkMachine(t, "after the other's late event", find, n1, "b1", "node n2")
}

// A deleted Node's machine is remembered beside those that were there, also by the next configuration.
func TestIndexRemembersDeletedNodes(t *testing.T) {
	t.Setenv("BMC", "x")
	p := newIndexed(t)
	defer p.providers.closeAll()
	n1, n2 := bmcNode("n1", "b1", "u1", "1"), bmcNode("n2", "b2", "u2", "1")
	m, err := p.activeConfig().Machines.Led(&n2)
	if err != nil {
		t.Fatal(err)
	}
	n2.Labels = map[string]string{taint.PinLabel: m.Identity.Pin()}
	for i := range 2 {
		n2.ResourceVersion = fmt.Sprint(i)
		n2.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
			LastHeartbeatTime: metav1.Unix(int64(i+1), 0)}}
		feedNodes(p, n1, n2)
	}
	moved := bmcNode("n1", "b2", "u1", "2")
	feedNodes(p, moved)
	const why = "was pinned to node n2 until that Node was deleted"
	checkMachine(t, "deleted", p.activeConfig().Machines, moved, "b2", why)
	if err := p.applyConfig(bmcFile(t, "fence")); err != nil {
		t.Fatal(err)
	}
	checkMachine(t, "by the next configuration", p.activeConfig().Machines, moved, "b2", why)
}

// Until all Nodes are read, nothing is known of who else has a machine.
func TestIndexWaitsForTheNodes(t *testing.T) {
	t.Setenv("BMC", "x")
	p := newIndexed(t)
	defer p.providers.closeAll()
	synced := false
	p.nodes.synced = func() bool { return synced }
	if err := p.applyConfig(bmcFile(t, "fence")); err != nil { // with that store
		t.Fatal(err)
	}
	n1, n2 := bmcNode("n1", "b1", "u1", "1"), bmcNode("n2", "b1", "u2", "1")
	feedNodes(p, n1)
	find := p.activeConfig().Machines
	if m, err := find.Led(&n1); err == nil {
		t.Errorf("before the list of nodes: got machine %+v, want an error", m.Target)
	}
	feedNodes(p, n1, n2)
	synced = true
	checkMachine(t, "with the list of nodes", find, n1, "b1", "node n2")
}

// A configuration that is replaced follows the Nodes as long as a question of it may be under way. Then it answers no
// more.
func TestReplacedIndex(t *testing.T) {
	t.Setenv("BMC", "x")
	synctest.Test(t, func(t *testing.T) {
		p := newIndexed(t)
		defer p.providers.closeAll()
		n1, n2 := bmcNode("n1", "b1", "u1", "1"), bmcNode("n2", "b1", "u2", "1")
		feedNodes(p, n1)
		old := p.activeConfig().Machines
		checkMachine(t, "in force", old, n1, "b1", "")
		if err := p.applyConfig(bmcFile(t, "fence")); err != nil {
			t.Fatal(err)
		}
		feedNodes(p, n1, n2)
		checkMachine(t, "replaced a moment ago", old, n1, "b1", "node n2")
		time.Sleep(closeDelay + time.Second)
		synctest.Wait()
		feedNodes(p, n1)
		if m, err := old.Led(&n1); err == nil {
			t.Errorf("replaced long ago: got machine %+v, want an error", m.Target)
		}
		checkMachine(t, "that which replaced it", p.activeConfig().Machines, n1, "b1", "")
		if len(p.indexes) != 1 {
			t.Errorf("got %d indexes, want the one in force", len(p.indexes))
		}
	})
}

// Events, questions and reloads come at the same time. Once they are over, each node has what it says.
func TestIndexIsUsedAtOnce(t *testing.T) {
	t.Setenv("BMC", "x")
	p := newIndexed(t)
	defer p.providers.closeAll()
	const nodes, rounds = 8, 40
	var work sync.WaitGroup
	last := make([]corev1.Node, nodes)
	for i := range nodes {
		work.Go(func() {
			name := fmt.Sprint("n", i)
			for round := range rounds {
				n := bmcNode(name, fmt.Sprint("b", (i+round)%nodes), name, fmt.Sprint(round+1))
				last[i] = n
				_ = p.nodes.Update(n.DeepCopy())
				p.refreshNode(&n)
				m, err := p.activeConfig().Machines.Led(&n)
				if want := n.Annotations["bmc"]; err != nil || m.Identity.ID != want {
					t.Errorf("%s: got %s, error %v, want %s", name, m.Identity.ID, err, want)
				}
			}
		})
	}
	for i := range 5 {
		if err := p.applyConfig(bmcFile(t, []string{"fence", "observe"}[i%2])); err != nil {
			t.Error(err)
		}
	}
	work.Wait()
	for i, n := range last {
		checkMachine(t, n.Name, p.activeConfig().Machines, n, fmt.Sprint("b", (i+rounds-1)%nodes), "")
	}
}

// The informer of a real control plane feeds the index: Nodes come, change and go.
func TestIndexIsFedByTheInformer(t *testing.T) {
	t.Setenv("BMC", "x")
	admin := cluster.Admin(t, shared)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(bmcText("observe")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	p, err := newProcess(Options{
		ConfigFile: file, REST: shared.RESTConfig(), Registry: all.Types(), Log: slog.New(slog.DiscardHandler),
	}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer p.closeParts()
	for _, add := range []func(context.Context) error{p.addEvents, p.addStorage, p.addConfig} {
		if err := add(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { _ = p.mgr.GetCache().Start(ctx) })
	if !p.mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	one, two := bmcNode("indexed-1", "b1", "", ""), bmcNode("indexed-2", "b2", "", "")
	for _, n := range []*corev1.Node{&one, &two} {
		n.Labels = nil
		kit.Must(t, admin.Create(ctx, n))
		defer func() { _ = admin.Delete(context.WithoutCancel(ctx), n) }()
	}
	refused := func() string {
		m, err := p.confs.activeConfig().Machines.Led(&one)
		if err != nil {
			t.Fatal(err)
		}
		return m.Clash.Refused
	}
	if got := refused(); got != "" {
		t.Errorf("two nodes with two machines: refused: %s", got)
	}
	until := func(what string, want bool) {
		t.Helper()
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if cluster.Until(wait, func(context.Context) (bool, error) { return (refused() != "") == want, nil }) != nil {
			t.Fatalf("never: %s", what)
		}
	}
	two.Annotations["bmc"] = one.Annotations["bmc"]
	kit.Must(t, admin.Update(ctx, &two))
	until("the other node claims the machine", true)
	kit.Must(t, admin.Delete(ctx, &two))
	until("the other node is gone", false)
}
