package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
)

// floorUser is the bare loop's at the API server.
const floorUser = "bench-floor"

// callsAudit has the API server write down what it answered forcefence and the bare loop.
const callsAudit = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: [` + fenceUser + `, ` + floorUser + `]
- level: None
`

// calls are the requests of a turn that were answered, and of those the deletions of pods that found none.
type calls struct {
	all, missed int
	by          map[string]int // verb and resource
}

// audited returns the arguments by which l's API server writes an audit log.
func (l *lab) audited() ([]string, error) {
	policy := l.file("calls-audit.yaml")
	if err := os.WriteFile(policy, []byte(callsAudit), 0o644); err != nil {
		return nil, fmt.Errorf("writing audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + l.callsLog(), "--audit-log-mode=blocking"},
		nil
}

func (l *lab) callsLog() string { return l.file("calls-audit.log") }

// countCalls reads what was answered since the log was that long, and how long it is now. Left out are watches, what
// names no resource, and all of Leases but reading one: those are forcefence's own.
func countCalls(file string, from int64) (c calls, size int64, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return c, 0, fmt.Errorf("reading audit log: %w", err)
	}
	c.by = map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(b[min(from, int64(len(b))):]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			ObjectRef      struct{ Resource, Subresource string } `json:"objectRef"`
			ResponseStatus struct{ Code int }                     `json:"responseStatus"`
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // half a line, still being written
		}
		kind := path.Join(e.ObjectRef.Resource, e.ObjectRef.Subresource)
		if e.Verb == "watch" || e.ObjectRef.Resource == "" || kind == "leases" && e.Verb != "get" {
			continue
		}
		c.all++
		c.by[e.Verb+" "+kind]++
		if e.Verb == "delete" && kind == "pods" && e.ResponseStatus.Code == http.StatusNotFound {
			c.missed++
		}
	}
	return c, int64(len(b)), lines.Err()
}

// String lists the requests, those that are most first.
func (c calls) String() string {
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(c.by),
		func(a, b string) int { return cmp.Or(c.by[b]-c.by[a], cmp.Compare(a, b)) }) {
		parts = append(parts, fmt.Sprintf("%d %s", c.by[what], what))
	}
	return fmt.Sprintf("%d requests, %d deletions of nothing: %s", c.all, c.missed, strings.Join(parts, ", "))
}
