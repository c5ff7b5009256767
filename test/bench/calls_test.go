package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountCalls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"verb": "delete", "objectRef": {"resource": "pods", "name": "before"}, "responseStatus": {"code": 404}}
`)
	c, size, err := countCalls(file, 0)
	if err != nil || c.all != 1 || c.missed != 1 {
		t.Fatalf("got %v, %v, want one request", c, err)
	}
	for _, pod := range []string{"a", "b"} {
		add(`{"verb": "patch", "objectRef": {"resource": "pods", "subresource": "status", "name": "` + pod + `"}, ` +
			`"responseStatus": {"code": 200}}` + "\n")
	}
	add(`{"verb": "delete", "objectRef": {"resource": "pods", "name": "a"}, "responseStatus": {"code": 200}}
{"verb": "delete", "objectRef": {"resource": "pods", "name": "b"}, "responseStatus": {"code": 404}}
{"verb": "get", "objectRef": {"resource": "leases", "name": "n"}, "responseStatus": {"code": 200}}
{"verb": "get", "objectRef": {"resource": "leases", "name": "n-gone"}, "responseStatus": {"code": 404}}
{"verb": "update", "objectRef": {"resource": "leases", "name": "forcefence"}, "responseStatus": {"code": 200}}
{"verb": "watch", "objectRef": {"resource": "nodes"}, "responseStatus": {"code": 200}}
{"verb": "get", "requestURI": "/healthz", "responseStatus": {"code": 200}}
{"verb": "get", "objectRef": {"resou`)
	c, _, err = countCalls(file, size)
	const want = "6 requests, 1 deletions of nothing: 2 delete pods, 2 get leases, 2 patch pods/status"
	if err != nil || c.String() != want {
		t.Errorf("got %q, %v, want %q", c, err, want)
	}
	if _, _, err := countCalls(file+".none", 0); err == nil {
		t.Error("a log that is not there: got no error")
	}
}
