package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsIn(t *testing.T) {
	const lease = `{"verb":"get","user":{"username":"f"},"objectRef":{"resource":"leases","namespace":"a","name":"b"},`
	received := func(at string) string {
		return `"requestReceivedTimestamp":"2026-03-01T12:00:0` + at + "0000Z\"}\n"
	}
	hook := func(verb, node string) string {
		return `{"verb":"` + verb + `","user":{"username":"system:node:` + node + `"},"userAgent":"forcefence-node/v1"`
	}
	file := filepath.Join(t.TempDir(), "audit.log")
	err := os.WriteFile(file,
		[]byte(hook("get", "n1")+`,"objectRef":{"resource":"nodes","name":"n1"}}
{"verb":"list","user":{"username":"system:node:n1"},"userAgent":"kubelet/v1","requestURI":"/api/v1/pods",`+
			`"objectRef":{"resource":"pods"}}
`+hook("get", "n2")+`,"objectRef":{"resource":"nodes","name":"n2"}}
`+hook("get", "n1")+`,"requestURI":"/version"}
{"verb":"patch","user":{"username":"f"},"objectRef":{"resource":"nodes","name":"n1","subresource":"status"},`+
			received("1.25")+lease+received("1.5")+lease+received("3.5")+`{"verb":"get","user":{"userna`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := requestsIn(file+".none", everyRequest); err != nil || len(got) != 0 {
		t.Errorf("no file: got %v, %v, want nothing", got, err)
	}
	for _, tt := range []struct {
		name   string
		counts func(requester) bool
		want   map[string]int
	}{
		{"all", everyRequest,
			map[string]int{"get nodes  n1": 1, "list pods": 1, "get nodes  n2": 1, "get /version": 1,
				"patch nodes/status  n1": 1, "get leases a b": 2}},
		{
			"of one user's agent",
			func(r requester) bool { return r.User.Username == "system:node:n1" && r.Agent == "forcefence-node/v1" },
			map[string]int{"get nodes  n1": 1, "get /version": 1},
		},
	} {
		got, err := requestsIn(file, tt.counts)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if got, err := firstOf(file, "leases"); err != nil || !got.Equal(at(1.5)) {
		t.Errorf("the first about leases: got %s, %v, want %s", got, err, at(1.5))
	}
	if _, err := firstOf(file, "events"); err == nil {
		t.Error("the first about events: got one, want an error")
	}
	l := &lab{names: []string{"n1", "n2"}}
	for what, want := range map[string]string{
		"patch nodes/status  n1":        "patch nodes/status NODE",
		"get leases kube-node-lease n2": "get leases kube-node-lease NODE", "get leases a b": "", "list pods": "",
	} {
		if got, one := l.ofNode(what); one != (want != "") || one && got != want {
			t.Errorf("%q: got %q, %v, want %q", what, got, one, want)
		}
	}
}
