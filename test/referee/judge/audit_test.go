package judge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// TestAudit reads a log as an API server writes it: accepted writes of all, and who writes the leader's Lease.
func TestAudit(t *testing.T) {
	const line = `{"auditID":"%s","stage":"ResponseComplete","verb":"%s","userAgent":"%s",` +
		`"objectRef":{"resource":"%s","namespace":"%s","name":"%s","subresource":"%s"},` +
		`"responseStatus":{"code":%d},"requestObject":%s,` +
		`"responseObject":{"metadata":{"name":"x","uid":"u","resourceVersion":"7"}},` +
		`"requestReceivedTimestamp":"2026-01-01T12:00:01.000000Z","stageTimestamp":"2026-01-01T12:00:01.500000Z"}` +
		"\n"
	file := filepath.Join(t.TempDir(), "audit.log")
	text := fmt.Sprintf(line, "id-1", "patch", "judged-a.1", "pods", "r", "db-0", "status", 200, "{}") +
		fmt.Sprintf(line, "id-2", "patch", "judged-a.1", "pods", "r", "db-1", "status", 409, "{}") +
		fmt.Sprintf(line, "id-3", "patch", "kubelet", "nodes", "", "n1", "status", 200, "{}") +
		fmt.Sprintf(line, "id-4", "update", "judged-b.2", "leases", "kube-system", "forcefence", "", 200,
			`{"spec":{"holderIdentity":"me"}}`) +
		fmt.Sprintf(line, "id-5", "update", "judged-b.2", "leases", "kube-system", "forcefence", "", 200,
			`{"spec":{"holderIdentity":""}}`)
	kit.Must(t, os.WriteFile(file, []byte(text+`{"auditID":"half a li`), 0o600))
	var a Account
	l := &AuditLog{File: file}
	kit.Must(t, l.Read(&a, map[string]Sent{"id-1": {At: at(900), Life: "judged-a.1"}}))
	want := []Write{
		{Life: "judged-a.1", Verb: "patch", Resource: "pods", Sub: "status", Key: "r/db-0", UID: "u", RV: "7",
			Sent: at(900), Received: at(1000), Done: at(1500)},
		{Verb: "patch", Resource: "nodes", Sub: "status", Key: "n1", UID: "u", RV: "7", Sent: at(1000),
			Received: at(1000), Done: at(1500)},
	}
	if len(a.Writes) != 2 || a.Writes[0] != want[0] || a.Writes[1] != want[1] {
		t.Errorf("got writes\n%+v\nwant\n%+v", a.Writes, want)
	}
	if len(a.Leads) != 1 || a.Leads[0] != (Lead{"judged-b.2", at(1500)}) {
		t.Errorf("got leads %+v, want one of b", a.Leads)
	}
	if l.offset != int64(len(text)) {
		t.Errorf("read %d bytes, want %d: half a line is read the next time", l.offset, len(text))
	}
}

// TestAuditOfNeighbours: a NetworkFence has its node, what it asks and what its status says, and a NodeClaim its node.
func TestAuditOfNeighbours(t *testing.T) {
	const line = `{"stage":"ResponseComplete","verb":"%s","userAgent":"judged-a.1","objectRef":{"resource":"%s",` +
		`"name":"x"},"responseStatus":{"code":200},"responseObject":%s}` + "\n"
	file := filepath.Join(t.TempDir(), "audit.log")
	kit.Must(t, os.WriteFile(file, []byte(fmt.Sprintf(line, "patch", "networkfences",
		`{"metadata":{"annotations":{"forcefence.io/node":"v"}},"spec":{"fenceState":"Fenced"},`+
			`"status":{"result":"Failed","message":"no"}}`)+
		fmt.Sprintf(line, "delete", "networkfences", `{"kind":"Status","status":"Success","details":{"uid":"u"}}`)+
		fmt.Sprintf(line, "delete", "nodeclaims", `{"status":{"nodeName":"v"}}`)), 0o600))
	var a Account
	kit.Must(t, (&AuditLog{File: file}).Read(&a, nil))
	want := []Write{
		{Life: "judged-a.1", Verb: "patch", Resource: networkFences, Key: "x", Node: "v",
			Order: Order{fenced, "Failed", "no"}},
		{Life: "judged-a.1", Verb: "delete", Resource: networkFences, Key: "x", UID: "u"},
		{Life: "judged-a.1", Verb: "delete", Resource: nodeClaims, Key: "x", Node: "v"},
	}
	if !slices.Equal(a.Writes, want) {
		t.Errorf("got writes\n%+v\nwant\n%+v", a.Writes, want)
	}
}
