package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// desert is a cluster as a controller left it, and people who come to look.
type desert struct {
	t     *testing.T
	admin client.Client
	dir   string
}

const (
	homeSpace      = "forcefence-system"
	definitionFile = "../../deploy/helm/forcefence/files/forcefence.io_fencings.yaml"
)

func newDesert(t *testing.T) *desert {
	t.Helper()
	d := &desert{t: t, admin: cluster.Admin(t, shared), dir: t.TempDir()}
	d.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: homeSpace}})
	people := filepath.Join(d.dir, "people.yaml")
	kit.Must(t, os.WriteFile(people, []byte(kit.Installed(t, "people.yaml")), 0o600))
	d.kubectl("apply", "--server-side", "-f", people)
	d.kubectl("apply", "--server-side", "-f", definitionFile)
	d.kubectl("wait", "--for=condition=Established", "crd/fencings.forcefence.io")
	t.Cleanup(func() { d.delete("crd", "fencings.forcefence.io") })
	lease := leaseOf(homeSpace)
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("ff-1"), new(metav1.NowMicro())
	d.make(lease)
	return d
}

func (d *desert) kubectl(args ...string) {
	d.t.Helper()
	_, err := shared.Kubectl(d.t.Context(), args...)
	kit.Must(d.t, err)
}

func (d *desert) delete(args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a minute was too short on a busy machine
	defer cancel()
	if _, err := shared.Kubectl(ctx,
		append([]string{"delete", "--ignore-not-found", "--wait=true"}, args...)...); err != nil {
		d.t.Error(err)
	}
}

// make creates an object that goes with the test, if it is one that goes.
func (d *desert) make(o client.Object) {
	d.t.Helper()
	if err := d.admin.Create(d.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		d.t.Fatal(err)
	}
	if _, ok := o.(*corev1.Namespace); ok {
		return // no controller empties it here
	}
	d.t.Cleanup(func() { _ = client.IgnoreNotFound(d.admin.Delete(context.Background(), o)) })
}

// node makes a Node with a status of its own.
func (d *desert) node(name string, change func(*corev1.Node)) *corev1.Node {
	d.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.make(n)
	n.Annotations = map[string]string{}
	change(n)
	want := n.Status
	kit.Must(d.t, d.admin.Update(d.t.Context(), n))
	n.Status = want
	kit.Must(d.t, d.admin.Status().Update(d.t.Context(), n))
	return n
}

// person has the ClusterRoles, and Roles of the controller's namespace, and nothing else.
func (d *desert) person(name string, clusterRoles ...string) (kubeconfig string) {
	d.t.Helper()
	kubeconfig = filepath.Join(d.dir, name)
	kit.Must(d.t, shared.WriteKubeconfig(kubeconfig, name))
	for _, role := range clusterRoles {
		subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}}
		if own, ok := strings.CutPrefix(role, "Role/"); ok {
			d.make(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: name + "-" + own},
				Subjects: subject,
				RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own}})
			continue
		}
		d.make(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}})
	}
	// What RBAC's own cache has not seen yet is refused.
	return kubeconfig
}

// run is a command line of a person's, until its output, both parts, has all texts: rights take a moment to arrive.
func (d *desert) run(kubeconfig string, status int, args []string, texts ...string) string {
	d.t.Helper()
	var out, stderr string
	got := 0
	ctx, stop := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer stop()
	err := cluster.Until(ctx, func(context.Context) (bool, error) {
		got, out, stderr = exec(append(args, "--kubeconfig", kubeconfig)...)
		all := strings.Join(strings.Fields(out+stderr), " ")
		return got == status &&
			!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) }), nil
	})
	if err != nil {
		d.t.Fatalf("%s: status %d, want %d and %q in:\n%s%s", strings.Join(args, " "), got, status, texts, out, stderr)
	}
	return out
}

func (d *desert) event(node, why, note string, at time.Time) {
	d.t.Helper()
	d.make(&eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: node + "-"},
		EventTime:  metav1.NewMicroTime(at), Type: "Warning",
		Reason: why, Action: "Ask", Note: note, ReportingController: "forcefence", ReportingInstance: "ff-1",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node},
	})
}

// fencing makes the object that the controller makes of what it was told, with what a newer version may have written
// besides.
func (d *desert) fencing(told journal.Update, newer func(map[string]any)) string {
	d.t.Helper()
	f := (journal.Entry{}).AddUpdate(told).Object
	f.APIVersion, f.Kind = api.GroupVersion.String(), api.Kind
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&f)
	kit.Must(d.t, err)
	delete(o["metadata"].(map[string]any), "creationTimestamp")
	u := &unstructured.Unstructured{Object: o}
	state := u.Object["status"]
	d.make(u)
	u.Object["status"] = state
	if newer != nil {
		newer(u.Object["status"].(map[string]any))
	}
	kit.Must(d.t, d.admin.Status().Update(d.t.Context(), u))
	return f.Name
}

func condition(kind corev1.NodeConditionType, is corev1.ConditionStatus, since time.Time,
	message string) corev1.NodeCondition {
	at := metav1.NewTime(since)
	return corev1.NodeCondition{Type: kind, Status: is, LastTransitionTime: at, LastHeartbeatTime: at,
		Reason: "Because", Message: message}
}

// What a person sees of a cluster, with the rights of forcefence-look, with fewer, and with none.
func TestStatusByRights(t *testing.T) {
	d := newDesert(t)
	began := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	d.node("calm", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, began, ""),
			condition(taint.FenceableCondition, corev1.ConditionTrue, began, "The machine is On (racks/1: On)."),
			condition(taint.ProtectionCondition, corev1.ConditionTrue, began, "")}
		n.Annotations[taint.DrillAnnotation] = drill.Answers{Word: "On",
			Devices: []drill.DeviceAnswer{{Device: "racks/1", Power: "On"}}}.Encode(began)
	})
	rec := taint.Record{ID: "f-0123456789ab", By: "ff-1", Since: began, Device: "racks"}.EnterPhase(taint.PhaseEvicting,
		"", began)
	dead := d.node("dead", func(n *corev1.Node) {
		rec.NodeUID = string(n.UID)
		n.Annotations[taint.RecordAnnotation] = rec.Encode()
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown, began, "")}
	})
	longAgo := began.Add(-5 * time.Minute) // so long without a proof that it needs a person
	d.node("mute", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown, longAgo, "")}
	})
	d.event("mute", "PowerUnknown", "Its device does not tell \x1b[2J.", longAgo.Add(time.Second))
	d.event("mute", "MachineNotAnswering", "A drill found the same.", began.Add(time.Second)) // hides nothing
	d.event("scrapped", "DeletedNodeAttached", "2 volumes wait.", began.Add(time.Second))
	alert := "volume pv-7 does not detach"
	d.fencing(journal.Update{Node: dead.Name, At: began, Record: rec, Why: "LeaseStale", Alert: &alert}, nil)
	pause := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence-pause"},
		Data: map[string]string{"reason": "new switches"}}
	d.make(pause)
	lease := &coordinationv1.Lease{}
	kit.Must(t, d.admin.Get(t.Context(), client.ObjectKeyFromObject(leaseOf(homeSpace)), lease))
	lease.Annotations[app.ConfigRejectedAnnotation] = "config.yaml:3: mode: missing"
	kit.Must(t, d.admin.Update(t.Context(), lease))

	all := d.run(d.person("watcher", "forcefence-look"), 0, []string{"status"}, "Controller ff-1 leads",
		"! Fencing is paused for all nodes: by ConfigMap forcefence-system/forcefence-pause: "+
			`"new switches", with no end`,
		"! The changed configuration is rejected: config.yaml:3: mode: missing. The previous file stays in force.",
		"! Volumes are attached to deleted nodes: 1 deleted node: scrapped. 2 volumes wait.",
		"2 nodes need a person: dead, mute.", "2 need a person, 1 left alone",
		"A person should look: volume pv-7 does not detach",
		"No fence begins, because fencing is paused for all nodes.",
		"mute: Its device does not tell .[2J. Look at the device, and at the network to it.",
		"calm left alone yes On ")
	if strings.Contains(all, "Not known") {
		t.Errorf("with forcefence-look: got\n%s", all)
	}
	if at := []int{
		strings.Index(all, "\ndead "), strings.Index(all, "\nmute "),
		strings.Index(all, "\ncalm ")}; !slices.IsSorted(at) || at[0] < 0 {
		t.Errorf("got the nodes in another order than the worst first:\n%s", all)
	}
	var f fleet
	kit.Must(t, json.Unmarshal(
		[]byte(d.run(filepath.Join(d.dir, "watcher"), 0, []string{"status", "calm", "-o", "json"}, "calm")), &f))
	if len(f.Nodes) != 1 || f.Nodes[0].Machine.Power != "On" || f.Nodes[0].State != view.StateLeftAlone ||
		!f.Leads() {
		t.Errorf("got %+v", f)
	}

	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(-5 * time.Minute)))
	kit.Must(t, d.admin.Update(t.Context(), lease))
	all = d.run(filepath.Join(d.dir, "watcher"), 0, []string{"status"},
		"! No controller leads: Lease kube-system/forcefence was renewed 5 min ago, by ff-1. It belongs to the "+
			"installation in namespace forcefence-system. Nothing is fenced",
		"calm left alone yes On ", "No fence begins, because no controller leads.")
	if strings.Contains(all, "The changed configuration is rejected") {
		t.Errorf("with a rejection by a leader that is gone: got\n%s", all)
	}

	d.make(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nodes-alone"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}}}})
	few := d.person("few", "nodes-alone")
	d.run(few, 0, []string{"status", "-n", homeSpace}, "you lack the right: get leases.coordination.k8s.io -n "+
		"kube-system",
		"you lack the right: list events -n default",
		"you lack the right: get configmaps -n forcefence-system", "you lack the right: get fencings.forcefence.io",
		"1 needs a person, 1 fencing, 1 fine")
	d.run(few, 1, []string{"status", "-w"}, "Error: watching nodes: you lack the right: watch nodes "+
		"(the ClusterRole forcefence-look has it). An administrator gives it to you with: "+
		"kubectl create clusterrolebinding forcefence-look-few --clusterrole=forcefence-look --user=few")
	d.run(d.person("nobody"), 1, []string{"status"}, "Error: listing nodes: you lack the "+
		"right: list nodes (the ClusterRole forcefence-look has it)")
	d.run(few, 1, []string{"status", "none"}, "Error: reading node: nodes \"none\" not found. `kubectl get nodes` "+
		"lists the nodes")
	d.run(few, 1, []string{"status", "--context", "elsewhere"}, "Error: finding the API server: "+
		"context \"elsewhere\" does not exist. `kubectl config view` shows your kubeconfig")
}

// follow tells what becomes of a node.
func TestFollow(t *testing.T) {
	d := newDesert(t)
	n := d.node("followed", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, time.Now(), ""),
			condition(taint.FenceableCondition, corev1.ConditionTrue, time.Now(), "The machine is On (racks/1: On).")}
	})
	c, err := (&clusterFlags{kubeconfig: shared.Kubeconfig()}).newClient()
	kit.Must(t, err)
	o := statusReader{client: c, nodes: []string{"followed"}, key: taint.DefaultKey, now: time.Now}
	f, err := o.readFleet(t.Context())
	kit.Must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	n.Annotations = map[string]string{fence.PausedAnnotation: "new disk"}
	kit.Must(t, d.admin.Update(ctx, n))
	done := errors.New("seen")
	err = o.followNodes(ctx, c, f, func(n view.Node) error {
		if n.Node != "followed" || n.State != view.StateLeftAlone {
			t.Errorf("got %+v, want the change alone", n)
		}
		return done
	})
	if !errors.Is(err, done) {
		t.Errorf("got %v", err)
	}
}

// Where one node has the hook, status says of a fine node that it lacks it, and follow does not print that as a change.
func TestStatusMissingHook(t *testing.T) {
	d := newDesert(t)
	fine := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, time.Now(), ""),
			condition(taint.FenceableCondition, corev1.ConditionTrue, time.Now(), "The machine is On (racks/1: On).")}
	}
	d.node("bare", fine)
	hooked := d.node("hooked", func(n *corev1.Node) {
		fine(n)
		n.Status.Conditions = append(n.Status.Conditions,
			condition(taint.ProtectionCondition, corev1.ConditionTrue, time.Now(), ""))
	})
	c, err := (&clusterFlags{kubeconfig: shared.Kubeconfig()}).newClient()
	kit.Must(t, err)
	o := statusReader{client: c, nodes: []string{"bare", "hooked"}, key: taint.DefaultKey, now: time.Now}
	f, err := o.readFleet(t.Context())
	kit.Must(t, err)
	if len(f.Nodes) != 2 || !strings.HasPrefix(f.Nodes[0].Next, view.NoHook) || f.Nodes[1].Next != "" ||
		f.Counts[view.StateFine] != 2 {
		t.Errorf("got %+v, want the first without the hook, and both fine", f.Nodes)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	hooked.Annotations = map[string]string{fence.PausedAnnotation: "new disk"}
	kit.Must(t, d.admin.Update(ctx, hooked))
	done := errors.New("seen")
	err = o.followNodes(ctx, c, f, func(n view.Node) error {
		if n.Node != "hooked" {
			t.Errorf("got %+v, want the change alone", n)
		}
		return done
	})
	if !errors.Is(err, done) {
		t.Errorf("got %v", err)
	}
}

// A fleet of thousands is read in pages, and only those nodes are listed of which there is something to tell.
func TestStatusOfManyNodes(t *testing.T) {
	d := newDesert(t)
	const many = 3 * pageSize
	ctx := t.Context()
	for i := range many {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%04d", i), Labels: map[string]string{"many": "1"}}}
		kit.Must(t, d.admin.Create(ctx, n))
		n.Status.Conditions = []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, time.Now(), ""),
			condition(taint.FenceableCondition, corev1.ConditionTrue, time.Now(), "The machine is On (racks/1: On).")}
		if i == 0 {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		kit.Must(t, d.admin.Status().Update(ctx, n))
	}
	t.Cleanup(func() {
		_ = d.admin.DeleteAllOf(context.Background(), &corev1.Node{}, client.MatchingLabels{"many": "1"})
	})
	counted := &counting{Client: d.admin}
	o := statusReader{client: counted, selector: "many=1", key: taint.DefaultKey, now: time.Now}
	f, err := o.readFleet(ctx)
	if err != nil || len(f.Nodes) != 1 || f.Unlisted != many-1 || f.Counts[view.StateFine] != many-1 {
		t.Errorf("got %v, %d nodes listed and %d not", err, len(f.Nodes), f.Unlisted)
	}
	if counted.most != pageSize {
		t.Errorf("got %d nodes in an answer, want %d", counted.most, pageSize)
	}
	o.all = true
	if f, err := o.readFleet(ctx); err != nil || len(f.Nodes) != many || f.Unlisted != 0 {
		t.Errorf("--all: got %v, %d nodes listed", err, len(f.Nodes))
	}
}

// counting counts the Nodes in the largest answer.
type counting struct {
	client.Client
	most int
}

func (c *counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Client.List(ctx, list, opts...)
	if l, ok := list.(*corev1.NodeList); ok {
		c.most = max(c.most, len(l.Items))
	}
	return err
}

// A fence's story is found by its node, its id and its Fencing's name; a newer version's words are named as such.
func TestTimeline(t *testing.T) {
	d := newDesert(t)
	began := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	told := func(id string, at time.Time) journal.Update {
		r := taint.Record{ID: id, NodeUID: "u", By: "ff-1", Since: at, Device: "racks",
			Evidence: []taint.Evidence{{At: at, From: "racks", State: "Off", Raw: "Off\x1b[2J"}}}
		return journal.Update{Node: "dead", At: at,
			Record: r.EnterPhase(taint.PhaseDone, taint.ResultEvicted, at.Add(8*time.Second)), Why: "LeaseStale",
			Ended: []api.Pod{{Namespace: "ns", Name: "db-0", UID: "p"}}}
	}
	first := d.fencing(told("f-00000000000a", began.Add(-48*time.Hour)), nil)
	last := d.fencing(told("f-00000000000b", began), nil)
	newer := func(s map[string]any) { s["phase"] = "Verifying" }
	odd := told("f-00000000000c", began)
	odd.Node = "odd"
	d.fencing(odd, newer)
	long := told("f-00000000000d", began)
	long.Node = strings.Repeat("long.", 13) + "name" // no label takes it
	d.fencing(long, nil)
	d.event("dead", "MachineOff", "Device racks says that the machine is off (Off): marking the node.",
		began.Add(time.Second))
	d.event("dead", "MachineOff", "of another day", began.Add(-48*time.Hour+time.Second))

	watcher := d.person("watcher", "forcefence-look")
	all := []string{"Fence f-00000000000b of node dead", "Why: LeaseStale.",
		"It ended as Evicted after 8.0s: the moved pods are gone", "racks said that the machine is off",
		`+0.0s racks says Off ("Off.[2J")`, "+1.0s MachineOff: Device racks", "+8.0s PHASE Done Evicted",
		"Pods: 1 ended, 0 spared, 0 left behind: ns/db-0"}
	for _, what := range []string{"dead", "f-00000000000b", last} {
		if out := d.run(watcher, 0, []string{"timeline", what}, all...); strings.Contains(out, "another day") ||
			!strings.Contains(out, first) {
			t.Errorf("%s: got\n%s", what, out)
		}
	}
	d.run(watcher, 0, []string{"timeline", "f-00000000000a"}, "Fence f-00000000000a", "of another day")
	d.run(watcher, 0, []string{"timeline", "odd"}, "This Fencing has fields that this version does not know: phase "+
		"Verifying. A newer version wrote it")
	d.run(watcher, 0, []string{"timeline", long.Node}, "Fence f-00000000000d")
	d.run(watcher, 1, []string{"timeline", "nobody"}, "no fence of node nobody and no fence with id nobody is "+
		"recorded")
	d.run(d.person("few"), 1, []string{"timeline", "dead"}, "you lack the right: list fencings.forcefence.io")
	var s view.Fence
	kit.Must(t, json.Unmarshal([]byte(d.run(watcher, 0, []string{"timeline", "dead", "-o", "json"}, "moments")), &s))
	if s.Name != last || len(s.Moments) != 3 || s.Moments[0].Text != "racks says Off (\"Off\x1b[2J\")" ||
		len(s.Others) != 1 {
		t.Errorf("got %+v", s)
	}
}

// A cluster without Fencings is said to have none, and one with a newer version's to have those.
func TestTimelineWithoutDefinition(t *testing.T) {
	d := newDesert(t)
	d.delete("crd", "fencings.forcefence.io")
	d.run(shared.Kubeconfig(), 1, []string{"timeline", "n1"},
		"this cluster has no Fencings: install the CustomResourceDefinition fencings.forcefence.io from "+
			"deploy/helm/forcefence/files")
	text, err := os.ReadFile(definitionFile)
	kit.Must(t, err)
	file := filepath.Join(d.dir, "crd.yaml")
	kit.Must(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte("name: v1alpha1"), []byte("name: v2")), 0o600))
	d.kubectl("apply", "--server-side", "-f", file)
	d.kubectl("wait", "--for=condition=Established", "crd/fencings.forcefence.io")
	d.run(shared.Kubeconfig(), 1, []string{"timeline", "n1"},
		"this cluster serves Fencings as v2, but this program only knows v1alpha1")
}

// A person with the rights pauses the cluster and nodes, and resumes them. No pause is shortened.
func TestPauseByRights(t *testing.T) {
	d := newDesert(t)
	n := d.node("paused", func(n *corev1.Node) {
		rec := taint.Record{ID: "f-0123456789ab", NodeUID: string(n.UID), By: "ff-1"}.EnterPhase(taint.PhaseEvicting,
			"", time.Now())
		n.Annotations[taint.RecordAnnotation] = rec.Encode()
	})
	key := client.ObjectKey{Namespace: homeSpace, Name: "forcefence-pause"}
	paused := func(want string) {
		t.Helper()
		var cm corev1.ConfigMap
		err := d.admin.Get(t.Context(), key, &cm)
		p := fence.PauseOf(cm.Data)
		if want == "" {
			if !apierrors.IsNotFound(err) {
				t.Errorf("got %v, %+v, want no pause", err, cm.Data)
			}
		} else if err != nil || p.Reason != want || p.BadUntil != "" || p.IsOver(time.Now()) {
			t.Errorf("got %v, %+v, want %q", err, p, want)
		}
	}
	pauser := d.person("alice", "forcefence-pauser", "forcefence-look", "Role/forcefence-pauser")
	few := d.person("few", "forcefence-look")
	d.run(few, 1, []string{"pause", "--for", "2h", "--reason", "new switches"},
		"you lack the right: create configmaps -n forcefence-system (the Role forcefence-pauser has it)",
		"kubectl create rolebinding -n forcefence-system forcefence-pauser-few --role=forcefence-pauser --user=few")
	paused("")
	d.run(pauser, 0, []string{"pause", "--for", "2h", "--reason", " new\n switches"},
		"All nodes are paused, by ConfigMap forcefence-system/forcefence-pause",
		"These fences are in progress and continue: paused (Evicting)")
	paused("new switches (alice)")
	d.run(few, 1, []string{"resume"}, "you lack the right: delete configmaps -n forcefence-system")
	d.run(pauser, 1, []string{"pause", "--for", "1h", "--reason", "a disk"},
		"the whole cluster is already paused for longer", `"new switches (alice)" until`,
		"To end that pause, at once: forcefence resume")
	paused("new switches (alice)")
	// A pause in another namespace would pause nothing.
	for _, args := range [][]string{
		{"pause", "-n", "default", "--for", "2h", "--reason", "x"}, {"resume", "-n", "default"}} {
		d.run(shared.Kubeconfig(), 1, args, "no controller runs in namespace default", "Use -n "+homeSpace)
		d.run(shared.Kubeconfig(), 0, []string{"status"}, "Fencing is paused for all nodes")
	}
	d.run(pauser, 0, []string{"pause", "--for", "forever", "--reason", "a disk"}, `"a disk (alice)", with no end.`)
	d.run(pauser, 1, []string{"pause", "--for", "1000h", "--reason", "x"}, "for longer")
	paused("a disk (alice)")
	d.run(pauser, 0, []string{"resume"}, `The cluster is no longer paused ("a disk (alice)", with no end)`)
	paused("")
	d.run(pauser, 0, []string{"resume"}, "The cluster is not paused: there is no ConfigMap "+
		"forcefence-system/forcefence-pause")

	// Nodes.
	d.run(few, 1, []string{"pause", n.Name, "--for", "2h", "--reason", "x"}, "you lack the right: patch nodes")
	d.run(pauser, 0, []string{"pause", n.Name, "--for", "2h", "--reason", "disk; until=2020-01-01T00:00:00Z"},
		"Node paused is paused", "Its fence f-0123456789ab in phase Evicting continues.")
	kit.Must(t, d.admin.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	if p := fence.ParsePause(n.Annotations[fence.PausedAnnotation]); p.Reason != "disk; until=2020-01-01T00:00:00Z "+
		"(alice)" || p.IsOver(time.Now().Add(119*time.Minute)) || !p.IsOver(time.Now().Add(2*time.Hour)) {
		t.Errorf("got %+v", p)
	}
	d.run(pauser, 1, []string{"pause", n.Name, "--for", "1h", "--reason", "x"},
		"node paused is already paused for longer")
	d.run(pauser, 0, []string{"resume", n.Name}, "Node paused is no longer paused")
	d.run(pauser, 0, []string{"resume", n.Name}, "Node paused is not paused.")
	if fence.ExclusionReason(n, time.Now()) == "" {
		t.Error("the annotation paused nothing")
	}
	for _, args := range [][]string{
		{"--for", "2h"}, {"--reason", "x"}, {"--for", "soon", "--reason", "x"}, {"--for", "-2h", "--reason", "x"},
		{"--for", "2h", "--reason", strings.Repeat("x", maxPauseReason+1)}} {
		d.run(pauser, 2, append([]string{"pause"}, args...), "--")
	}
}

// secrets are what people put where they should not, and the places where such things stand by right.
var secrets = []string{"hunter2", "s3same", "tr0ub4dor", "c0mmunity", "AKIAIOSFODNN7EXAMPLE",
	"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "MIIEvQIBADANBg", "dXNlcjpwYXNz", "0pen5esame", "correct-horse"}

// leaky are texts with each of them.
const leaky = `GET https://admin:hunter2@bmc.example.net/: 401; ` +
	`{"Password":"s3same"} passwd=tr0ub4dor community: 'c0mmunity' AKIAIOSFODNN7EXAMPLE ` +
	`token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln Authorization: Basic dXNlcjpwYXNz ` +
	"fence_x --password correct-horse\n" +
	"-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END RSA PRIVATE KEY-----\n" +
	`export BMC_PASSWORD="0pen5esame" kept`

func TestScrub(t *testing.T) {
	got := redactText(leaky)
	for _, s := range secrets {
		if strings.Contains(got, s) {
			t.Errorf("%q is in %s", s, got)
		}
	}
	for _, keep := range []string{"bmc.example.net/: 401", "kept", "GET https://"} {
		if !strings.Contains(got, keep) {
			t.Errorf("%q is not in %s", keep, got)
		}
	}
	for _, nested := range []string{
		`msg="sent password=hunter2 to it" node=n1`, `url=/login?password=hunter2`,
		`said "{\"password\":\"hunter2\"} and token=hunter2 to \"n1\""`, `a={password:hunter2}`} {
		if got := redactText(nested); strings.Contains(got, "hunter2") || got == "" {
			t.Errorf("got %q", got)
		}
	}
	for _, plain := range []string{
		`level=INFO msg="Machine answered" node=n1 device=racks/1 state=Off raw=Off`,
		"passwordFile: /etc/forcefence-bmc/password", "secretName: forcefence-bmc", "took=2.5s"} {
		if got := redactText(plain); got != plain {
			t.Errorf("got %q, want %q", got, plain)
		}
	}
}

// A support bundle has what helps and none of the secrets, wherever they stood.
func TestSupportBundle(t *testing.T) {
	d := newDesert(t)
	d.make(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence-bmc"},
		StringData: map[string]string{"password": strings.Join(secrets, " ")}})
	d.make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence"},
		Data: map[string]string{"config.yaml": "# hunter2\nmode: fence\nproviders:\n- name: racks\n  redfish: " +
			"{username: forcefence, passwordFile: /etc/p, password: s3same}\n" +
			"- name: agents\n  fenceagent: {agent: fence_x, options: {passwd: tr0ub4dor, snmp-community: " +
			"[c0mmunity], token: {value: correct-horse, file: /etc/t}, ip: 'https://admin:hunter2@pdu'}}\n"}})
	d.make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence-pause"},
		Data: map[string]string{"reason": leaky}})
	rec := taint.Record{ID: "f-0123456789ab", By: "ff-1", Since: time.Now(), Device: "racks",
		Evidence: []taint.Evidence{
			{At: time.Now(), From: "racks", State: "Unknown", Raw: "https://admin:hunter2@bmc: denied"}}}
	d.node("leaky", func(n *corev1.Node) {
		rec.NodeUID = string(n.UID)
		rec = rec.EnterPhase(taint.PhaseEvicting, "", time.Now())
		n.Annotations = map[string]string{taint.RecordAnnotation: rec.Encode(), fence.PausedAnnotation: leaky,
			"example.net/bmc": "https://admin:hunter2@bmc", "forcefence.io/password": "0pen5esame"}
		n.Status.Conditions = []corev1.NodeCondition{
			condition(taint.FenceableCondition, corev1.ConditionFalse, time.Now(), leaky)}
	})
	d.event("leaky", "PowerUnknown", leaky, time.Now())
	alert := leaky
	d.fencing(journal.Update{Node: "leaky", At: time.Now(), Record: rec, Why: leaky, Alert: &alert}, nil)
	d.make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "default"}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence-1", Labels: ownPods,
			Annotations: map[string]string{"x": leaky}}}
	pod.Spec = corev1.PodSpec{NodeName: "leaky",
		Containers: []corev1.Container{
			{Name: "forcefence", Image: "registry.example.net/forcefence:v1", Args: []string{"--token=hunter2"},
				Env: []corev1.EnvVar{{Name: "BMC_PASSWORD", Value: "s3same"}}}},
		AutomountServiceAccountToken: new(false)}
	d.make(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "forcefence", Image: "x", ImageID: "x",
			State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: leaky}}}}
	kit.Must(t, d.admin.Status().Update(t.Context(), pod))

	file := filepath.Join(d.dir, "bundle.tar.gz")
	status, admin, stderr := exec("support-bundle", file, "--kubeconfig", shared.Kubeconfig())
	// no kubelet has a log
	if status != 0 || !strings.Contains(admin, "logs/forcefence-system/forcefence-1/forcefence") {
		t.Fatalf("got %d, %s%s", status, admin, stderr)
	}
	files := unpack(t, file)
	for name, text := range files {
		for _, s := range append(secrets, "example.net/bmc") {
			if strings.Contains(text+admin, s) {
				t.Errorf("%s has %q:\n%s", name, s, text)
			}
		}
	}
	for name, text := range map[string]string{
		"versions.json": `"forcefence"`, "status.json": "f-0123456789ab", "nodes.json": "leaky",
		"fencings.json": "leaky.f-0123456789ab", "events.json": "PowerUnknown",
		"config.yaml": "file: /etc/t", "pods-forcefence-system.json": "registry.example.net/forcefence:v1",
		"left-out.txt": "forcefence-1",
	} {
		if !strings.Contains(files[name], text) {
			t.Errorf("%s has no %q:\n%s", name, text, files[name])
		}
	}
	d.run(shared.Kubeconfig(), 1, []string{"support-bundle", file}, "file exists")

	second := filepath.Join(d.dir, "few.tar.gz")
	few := d.person("few", "forcefence-look")
	d.run(few, 0, []string{"status"}, "1 needs a person") // its rights have come
	d.run(few, 0, []string{"support-bundle", second}, "Left out: pods of namespace forcefence-system: you lack the "+
		"right: list pods -n forcefence-system (the ClusterRole forcefence-logs has it)")
	if files := unpack(t, second); !strings.Contains(files["left-out.txt"], "list pods -n forcefence-node") ||
		!strings.Contains(files["nodes.json"], "leaky") {
		t.Errorf("with few rights: got %v", files)
	}
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	kit.Must(t, err)
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file that others cannot read", info.Mode(), err)
	}
	z, err := gzip.NewReader(f)
	kit.Must(t, err)
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		kit.Must(t, err)
		text, err := io.ReadAll(r)
		kit.Must(t, err)
		out[strings.TrimPrefix(h.Name, "forcefence-support/")] = string(text)
	}
}

// Where the configuration is not at hand, a command that needs it says where it is.
func TestNoConfiguration(t *testing.T) {
	cluster.Admin(t, shared)
	status, _, stderr := exec("explain", "n1", "--kubeconfig", shared.Kubeconfig())
	if status != 1 || !strings.Contains(stderr, "exec deploy/forcefence -- /ko-app/forcefence explain n1") {
		if _, err := os.Stat("/etc/forcefence/config.yaml"); err != nil {
			t.Errorf("got %d, %s", status, stderr)
		}
	}
}

// The command line for the controller's pod has the flags, except those that say how to reach the API server.
func TestWordsInPod(t *testing.T) {
	for line, want := range map[string]string{
		"explain n1":                              "explain n1",
		"drill -o wide n1 n2 --context c":         "drill n1 n2 --output=wide",
		"power off n1 --yes --kubeconfig k":       "power off n1 --yes",
		"explain --no-devices=false n1 --as root": "explain n1 --no-devices=false",
	} {
		cmd, rest, err := newRoot(configtest.Types()).Find(strings.Fields(line))
		kit.Must(t, err)
		kit.Must(t, cmd.ParseFlags(rest))
		if got := strings.Join(wordsInPod(cmd), " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
