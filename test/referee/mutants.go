package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mutant is our own source with a check taken out: old occurs once in the file.
type mutant struct {
	name, what, file, old, new string
}

var (
	noConfirmation = &mutant{"no-confirmation", "an Off from before the mark counts after it",
		"taint/decide/evict/evict.go",
		"return !v.Answers.Answer.Got.IsZero() && !v.Memory.ProofFrom.IsZero() " +
			"&&\n\t\t!v.Answers.Answer.At.Before(v.Memory.ProofFrom)",
		"return !v.Answers.Answer.Got.IsZero()"}
	oldProof = &mutant{"old-proof", "a proof is good for an hour", "taint/decide/proof/proof.go",
		"const TTL = 5 * time.Second", "const TTL = time.Hour"}
	noPreconditions = &mutant{"no-preconditions", "a tombstone is written on any pod of that name",
		"taint/kube/pod_writes.go", "meta[\"uid\"] = p.UID\n\tmeta[\"resourceVersion\"] = p.ResourceVersion\n", ""}
	oldSuccess = &mutant{"old-success", "the storage's success of an earlier outage counts",
		"taint/features/networkfence/storagefence/storagefence.go", "if f.Owned && f.Life.StillHolds(c.Look) && f.Class",
		"if f.Owned && f.Class"}
	oldRecord = &mutant{"old-record", "the record of an earlier outage hands a node over",
		"taint/features/karpenter/claim/claim.go", "case !rec.Life().StillHolds(f.Look):", "case false:"}
)

// build makes the mutant's binary by an overlay: the source itself stays as it is.
func (m *mutant) build(ctx context.Context, dir string) (string, error) {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: its text is %d times in %s, want once", m.name, n, m.file)
	}
	changed := filepath.Join(dir, m.name+".go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	list, binary := filepath.Join(dir, m.name+".json"), filepath.Join(dir, m.name)
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", list, "-o", binary,
		"./cmd/forcefence")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building mutant %s: %w: %s", m.name, err, out)
	}
	return binary, nil
}
