package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/cmd/internal/discover"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/test/kit"
)

// A denied request is reported once, with the role that has the right, and with how it is given.
func TestDescribeDenial(t *testing.T) {
	root := newRoot(configtest.Types())
	denied := func(text string) error {
		return fmt.Errorf("reading it: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "n",
			errors.New(`User "alice" cannot `+text)))
	}
	for _, tc := range []struct{ name, command, text, want string }{
		{"cluster", "status", `list resource "nodes" in API group "" at the cluster scope`,
			"list nodes (the ClusterRole forcefence-look has it)|clusterrolebinding forcefence-look-alice " +
				"--clusterrole=forcefence-look --user=alice"},
		{"group and namespace", "status",
			`list resource "leases" in API group "coordination.k8s.io" in the namespace "ns"`,
			"list leases.coordination.k8s.io -n ns (the ClusterRole forcefence-look has it)|clusterrolebinding " +
				"forcefence-look-alice --clusterrole=forcefence-look --user=alice"},
		{"the cluster's pause", "pause", `update resource "configmaps" in API group "" in the namespace "ns"`,
			"update configmaps -n ns (the Role forcefence-pauser has it)|rolebinding -n ns forcefence-pauser-alice " +
				"--role=forcefence-pauser --user=alice"},
		{"the cluster's pause, to read", "resume", `get resource "configmaps" in API group "" in the namespace "ns"`,
			"get configmaps -n ns (the Role forcefence-pauser has it)|rolebinding -n ns forcefence-pauser-alice " +
				"--role=forcefence-pauser --user=alice"},
		{"the deployed configuration", "explain",
			`get resource "configmaps" in API group "" in the namespace "ns"`,
			"get configmaps -n ns (the ClusterRole forcefence-look has it)|clusterrolebinding forcefence-look-alice " +
				"--clusterrole=forcefence-look --user=alice"},
		{"drain policies", "drain policy", `get resource "configmaps" in API group "" in the namespace "ns"`,
			"get configmaps -n ns (the Role forcefence-pauser has it)|rolebinding -n ns forcefence-pauser-alice " +
				"--role=forcefence-pauser --user=alice"},
		{"a node's pause", "pause", `patch resource "nodes" in API group "" at the cluster scope`,
			"patch nodes (the ClusterRole forcefence-pauser has it)|clusterrolebinding forcefence-pauser-alice " +
				"--clusterrole=forcefence-pauser --user=alice"},
		{"who leads, for a pause", "pause",
			`get resource "leases" in API group "coordination.k8s.io" in the namespace "kube-system"`,
			"get leases.coordination.k8s.io -n kube-system (the ClusterRole forcefence-look has it)|" +
				"clusterrolebinding forcefence-look-alice --clusterrole=forcefence-look --user=alice"},
		{"a log", "support-bundle", `get resource "pods/log" in API group "" in the namespace "ns"`,
			"get pods/log -n ns (the ClusterRole forcefence-logs has it)|rolebinding -n ns forcefence-logs-alice " +
				"--clusterrole=forcefence-logs --user=alice"},
		{"pods of the node", "explain", `list resource "pods" in API group "" at the cluster scope`,
			"list pods (the ClusterRole forcefence-explain has it)|clusterrolebinding forcefence-explain-alice " +
				"--clusterrole=forcefence-explain --user=alice"},
		{"all that was written", "cleanup", `patch resource "nodes/status" in API group "" at the cluster scope`,
			"patch nodes/status (the ClusterRole cluster-admin has it)|clusterrolebinding cluster-admin-alice " +
				"--clusterrole=cluster-admin --user=alice"},
		{"the controller, in the cluster", "run", `list resource "nodes" in API group "" at the cluster scope`,
			"list nodes (the ClusterRole forcefence-controller has it)|clusterrolebinding forcefence-controller-alice " +
				"--clusterrole=forcefence-controller --user=alice"},
		{"the controller's Lease", "run",
			`get resource "leases" in API group "coordination.k8s.io" in the namespace "kube-system"`,
			"get leases.coordination.k8s.io -n kube-system (the Role forcefence-leader has it)|rolebinding -n " +
				"kube-system forcefence-leader-alice --role=forcefence-leader --user=alice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, _, err := root.Find(strings.Fields(tc.command))
			if err != nil {
				t.Fatal(err)
			}
			right, bind, _ := strings.Cut(tc.want, "|")
			want := "reading it: you lack the right: " + right + ". An administrator gives it to you with:\n" +
				"kubectl create " + bind
			if got := describeError(cmd, denied(tc.text)); got != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
	found, _, err := root.Find([]string{"discover"})
	kit.Must(t, err)
	for text, want := range map[string]string{
		`list resource "nodes" in API group "" at the cluster scope`: "reading it: you lack the right: list nodes " +
			"(the ClusterRole forcefence-look has it, once forcefence is installed). Before that an administrator " +
			"gives it to you with:\nkubectl create clusterrole forcefence-prepare --verb=get,list " +
			"--resource=nodes,leases.coordination.k8s.io\nkubectl create clusterrolebinding forcefence-prepare-alice " +
			"--clusterrole=forcefence-prepare --user=alice",
		`list resource "baremetalhosts" in API group "metal3.io" at the cluster scope`: "reading it: you lack the " +
			"right: list baremetalhosts.metal3.io (the ClusterRole forcefence-look has it, once forcefence is " +
			"installed). Before that an administrator gives it to you with:\nkubectl create clusterrole " +
			"forcefence-prepare --verb=get,list " +
			"--resource=nodes,leases.coordination.k8s.io,baremetalhosts.metal3.io\n" +
			"kubectl create clusterrolebinding forcefence-prepare-alice --clusterrole=forcefence-prepare --user=alice",
	} {
		if got := describeError(found, denied(text)); got != want {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
	keys, _, err := root.Find([]string{"proof", "keys"})
	kit.Must(t, err)
	const grant = "kubectl -n ns create role forcefence-keys --verb=get,update --resource=secrets " +
		"--resource-name=forcefence-signing\nkubectl -n ns create rolebinding forcefence-keys-alice " +
		"--role=forcefence-keys --user=alice\nkubectl -n ns create role forcefence-keys-public --verb=get,update " +
		"--resource=configmaps --resource-name=forcefence-public-keys\nkubectl -n ns create rolebinding " +
		"forcefence-keys-public-alice --role=forcefence-keys-public --user=alice"
	for text, want := range map[string]string{
		`get resource "secrets" in API group "" in the namespace "ns"`: "reading it: you lack the right: get secrets " +
			"-n ns. An administrator gives it to you with:\n" + grant,
		`create resource "secrets" in API group "" in the namespace "ns"`: "reading it: you lack the right: create " +
			"secrets -n ns. An administrator gives it to you with:\nkubectl -n ns create secret generic " +
			"forcefence-signing\nkubectl -n ns create configmap forcefence-public-keys\n" + grant,
	} {
		if got := describeError(keys, denied(text)); got != want {
			t.Errorf("keys: got %q\nwant %q", got, want)
		}
	}
	nameless := fmt.Errorf("listing nodes: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "",
		errors.New(`User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope`)))
	want := "listing nodes: you are not logged in (system:anonymous). " + whoAmI
	if got := describeError(found, nameless); got != want {
		t.Errorf("without credentials: got %q", got)
	}
	status, _, err := root.Find([]string{"status"})
	if err != nil {
		t.Fatal(err)
	}
	other := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("a policy refuses it"))
	if got := describeError(status, other); got != other.Error() {
		t.Errorf("got %q, want what the API server said", got)
	}
}

// Each command that reads the API server names the role that has its rights. The webhook has none: a Deployment runs it
// with an account of its own.
func TestRoles(t *testing.T) {
	root := newRoot(configtest.Types())
	for _, cmd := range root.Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if f := c.Flags().Lookup("kubeconfig"); c.Name() != "proof-guard" &&
				(f != nil) != (c.Annotations[roleAnnotation] != "") {
				t.Errorf("%s: it reads the API server: %t; role %q", c.CommandPath(), f != nil,
					c.Annotations[roleAnnotation])
			}
		}
	}
}

// metal3 defines Metal3's description of a server, as far as a command reads it.
const metal3 = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: baremetalhosts.metal3.io}
spec:
  group: metal3.io
  scope: Namespaced
  names: {kind: BareMetalHost, listKind: BareMetalHostList, plural: baremetalhosts, singular: baremetalhost}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// The rendered ClusterRole forcefence-look has every right that a command needs which names it, in a cluster that has
// all that they read.
func TestLookHasAllRights(t *testing.T) {
	d := newDesert(t)
	file := filepath.Join(d.dir, "metal3.yaml")
	kit.Must(t, os.WriteFile(file, []byte(metal3), 0o600))
	d.kubectl("apply", "--server-side", "-f", file)
	d.kubectl("wait", "--for=condition=Established", "crd/baremetalhosts.metal3.io")
	t.Cleanup(func() { d.delete("crd", "baremetalhosts.metal3.io") })
	host := &unstructured.Unstructured{}
	host.SetGroupVersionKind(discover.HostKind)
	host.SetNamespace(homeSpace)
	host.SetName("server")
	d.make(host)
	began := time.Now().UTC().Truncate(time.Second)
	rec := taint.Record{ID: "f-0123456789ab", By: "ff-1", Since: began, Device: "racks"}.EnterPhase(taint.PhaseEvicting,
		"", began)
	dead := d.node("dead", func(n *corev1.Node) {
		rec.NodeUID = string(n.UID)
		n.Annotations[taint.RecordAnnotation] = rec.Encode()
	})
	d.fencing(journal.Update{Node: dead.Name, At: began, Record: rec, Why: "LeaseStale"}, nil)
	for name, data := range map[string]map[string]string{
		configMapName:         {configKey: "mode: observe\n"},
		config.PauseConfigMap: {"reason": "switches"},
		config.KeysConfigMap:  {config.KeysEntry: ""},
		config.DrainConfigMap: {drain.AllNodes: string(drain.BlockIfLast)},
	} {
		d.make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: name}, Data: data})
	}
	look := d.person("looker", roleLook, "forcefence-logs")
	d.run(look, 0, []string{"status"}, "paused", "dead") // its rights have come

	tried := map[string]bool{}
	for _, tc := range []struct {
		args []string
		want string // shows that the command got as far as to read all
	}{
		{[]string{"status"}, "Fencing is paused"},
		{[]string{"timeline", "dead"}, "Fence f-0123456789ab"},
		{[]string{"proof", "verify", "dead"}, "the controller had no key"},
		{[]string{"check"}, "fencing is paused"},
		{[]string{"discover"}, "BareMetalHost " + homeSpace + "/server"},
		{[]string{"drain", "status", "dead"}, "Drain policy " + string(drain.BlockIfLast)},
		{[]string{"support-bundle", filepath.Join(d.dir, "bundle.tar.gz")}, "Wrote "},
	} {
		cmd, _, err := newRoot(configtest.Types()).Find(tc.args)
		kit.Must(t, err)
		tried[cmd.CommandPath()] = true
		_, out, stderr := exec(append(tc.args, "--kubeconfig", look)...)
		if out += stderr; strings.Contains(out, "lack the right") || !strings.Contains(out, tc.want) {
			t.Errorf("%s: got a missing right, or no %q:\n%s", tc.args, tc.want, out)
		}
	}
	for _, cmd := range newRoot(configtest.Types()).Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if c.Annotations[roleAnnotation] == roleLook && !tried[c.CommandPath()] {
				t.Errorf("%s names the role %s, and is not tried here", c.CommandPath(), roleLook)
			}
		}
	}
}

// A person who runs the controller without its rights reads which role to bind.
func TestRunWithoutRights(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		resource := path.Base(r.URL.Path)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,`+
			`"message":"%[1]s is forbidden: User \"alice\" cannot list resource \"%[1]s\" in API group \"\" at the `+
			`cluster scope"}`, resource)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "c.yaml")
	kit.Must(t, os.WriteFile(file, []byte("mode: observe\n"), 0o600))
	status, _, stderr := exec("run", "--config", file, "--kubeconfig", kubeconfigOf(t, server.URL), "--log-level=error")
	const want = "Error: listing nodes: you lack the right: list nodes (the ClusterRole forcefence-controller has it). " +
		"An administrator gives it to you with:\nkubectl create clusterrolebinding forcefence-controller-alice " +
		"--clusterrole=forcefence-controller --user=alice\n"
	if status != 1 || stderr != want {
		t.Errorf("got %d and this, want %q:\n%s", status, want, stderr)
	}
}
