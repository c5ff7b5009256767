package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	err := os.WriteFile(file, []byte(`{"verb":"get","user":{"username":"system:node:n1"},"userAgent":"forcefence-node","objectRef":{"resource":"nodes","name":"n1"}}
{"verb":"list","user":{"username":"system:node:n1"},"userAgent":"kubelet/v1","requestURI":"/api/v1/pods","objectRef":{"resource":"pods"}}
{"verb":"get","user":{"username":"system:node:n2"},"userAgent":"forcefence-node","objectRef":{"resource":"nodes","name":"n2"}}
{"verb":"get","user":{"username":"system:node:n1"},"userAgent":"forcefence-node","requestURI":"/version"}
{"verb":"get","user":{"userna`), 0o600)
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
		{"all", everyRequest, map[string]int{"get nodes  n1": 1, "list pods": 1, "get nodes  n2": 1, "get /version": 1}},
		{
			"of one user's agent",
			func(r requester) bool { return r.User.Username == "system:node:n1" && r.Agent == "forcefence-node" },
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
}
