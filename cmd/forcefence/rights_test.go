package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
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
		{"a log", "support-bundle", `get resource "pods/log" in API group "" in the namespace "ns"`,
			"get pods/log -n ns (the ClusterRole forcefence-logs has it)|rolebinding -n ns forcefence-logs-alice " +
				"--clusterrole=forcefence-logs --user=alice"},
		{"pods of the node", "explain", `list resource "pods" in API group "" at the cluster scope`,
			"list pods (the ClusterRole forcefence-explain has it)|clusterrolebinding forcefence-explain-alice " +
				"--clusterrole=forcefence-explain --user=alice"},
		{"all that was written", "cleanup", `patch resource "nodes/status" in API group "" at the cluster scope`,
			"patch nodes/status (the ClusterRole cluster-admin has it)|clusterrolebinding cluster-admin-alice " +
				"--clusterrole=cluster-admin --user=alice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, _, err := root.Find([]string{tc.command})
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
	status, _, err := root.Find([]string{"status"})
	if err != nil {
		t.Fatal(err)
	}
	other := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("a policy refuses it"))
	if got := describeError(status, other); got != other.Error() {
		t.Errorf("got %q, want what the API server said", got)
	}
}

// Each command that reads the API server names the role that has its rights.
func TestRoles(t *testing.T) {
	root := newRoot(configtest.Types())
	for _, cmd := range root.Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if f := c.Flags().Lookup("context"); (f != nil) != (c.Annotations[roleAnnotation] != "") {
				t.Errorf("%s: it reads the API server: %t; role %q", c.CommandPath(), f != nil,
					c.Annotations[roleAnnotation])
			}
		}
	}
}
