package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/nodes"
)

const (
	decisionLimit = 100.0 // us, p99
	hookLimit     = 45.0  // MB of 1e6 bytes
	admitLimit    = 1.5   // s

	idleFor  = 2*time.Minute + 5*time.Second
	hookUser = "system:node:" + hookedNode
)

// auditNodes has the API server write down every request of a kubelet's user, when it arrives; the hook is one of them
// by its agent.
const auditNodes = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// node measures the node's side. Its processes stand in two places: between NRI's runtime half in this process and a
// Node with 500 pods, where each answer and each byte can be told apart (pieces), and on one of two real nodes, the
// other of which has no hook and is the floor. While the pieces are measured, the real nodes idle, and what the hook
// there asks of the API server is counted.
func node(ctx context.Context, r *runner) error {
	r.sayLoad()
	policy, log := r.folder(r.name)+"-audit.yaml", r.folder(r.name)+"-audit.log"
	if err := os.MkdirAll(r.folder(""), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(policy, []byte(auditNodes), 0o644); err != nil {
		return err
	}
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := r.newLab(ctx, labOptions{
		unwatched: true, late: true,
		apiServer: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"},
	})
	if err != nil {
		return err
	}
	defer l.end()
	program, err := nodes.BuildProgram(ctx, l.dir, "cmd/forcefence-node")
	if err != nil {
		return err
	}
	withoutNodes := func() error {
		if err := r.decision(ctx); err != nil {
			return err
		}
		return l.pieces(ctx, program)
	}
	if why := nodes.Missing(); why != "" {
		r.say("SKIPPED on real nodes (requests, sandboxes, held pods): %s", why)
		return withoutNodes()
	}
	w, err := l.realNodes(ctx, program)
	if err != nil {
		return err
	}
	err = l.idle(ctx, log, withoutNodes)
	if err == nil {
		err = w.starts(ctx)
	}
	if err == nil {
		err = w.releases(ctx)
	}
	return errors.Join(err, w.end())
}

// sayLoad says how quiet the machine is: containers' starts take its processors' time, and others may want it.
func (r *runner) sayLoad() {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		r.say("load of the machine (1, 5, 15 minutes, running/all): %s", text[:bytes.LastIndexByte(text, ' ')])
	}
}

// decision is the answer from memory alone, by the package's own benchmark: without NRI, and without the process' door.
func (r *runner) decision(ctx context.Context) error {
	const pkg = "github.com/forcefence/forcefence/kubelet-admit/nri"
	cmd := exec.CommandContext(ctx, "go", "test", "-short", "-run", "^$", "-bench", "Ask", "-benchtime", "500000x",
		"-count", "5", pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("running the decision's benchmark: %w\n%s", err, out)
	}
	got := goBench(string(out))
	for _, answer := range []string{"allow", "hold"} {
		of := got["BenchmarkAsk/"+answer]
		if len(of["p99-ns"]) == 0 || len(of["allocs/op"]) == 0 {
			return fmt.Errorf("the decision's benchmark printed no figures of %q:\n%s", answer, out)
		}
		us := func(unit string) (out []float64) {
			for _, ns := range of[unit] {
				out = append(out, ns/1e3)
			}
			return out
		}
		r.add(figure("decision in memory, "+answer+", p50, 500 pods", "us", us("p50-ns")))
		r.add(figure("decision in memory, "+answer+", p99, 500 pods", "us", us("p99-ns")).atMost(decisionLimit))
		r.add(figure("allocations per decision, "+answer, "1", of["allocs/op"]).atMost(0))
	}
	return nil
}

// idle counts the requests of both plugins of the hooked node while nothing happens there, and lets other things be
// measured meanwhile.
func (l *lab) idle(ctx context.Context, log string, meanwhile func() error) error {
	ours := func(r requester) bool {
		return r.User.Username == hookUser && strings.HasPrefix(r.Agent, "forcefence-node/")
	}
	if !wait(ctx, 2*settle) { // the report on the Node is written by then
		return ctx.Err()
	}
	begun := time.Now()
	before, err := requestsIn(log, ours)
	if err != nil {
		return err
	}
	start := 0
	for _, n := range before {
		start += n
	}
	if start == 0 {
		return errors.New("the API server's audit log knows no request of the hook: it cannot be counted by it")
	}
	if err := meanwhile(); err != nil {
		return err
	}
	if !wait(ctx, idleFor-time.Since(begun)) {
		return ctx.Err()
	}
	after, err := requestsIn(log, ours)
	if err != nil {
		return err
	}
	n := 0
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if d := after[what] - before[what]; d > 0 {
			l.r.say("idle: %d x %s", d, what)
			n += d
		}
	}
	minutes := time.Since(begun).Minutes()
	l.r.say("%d requests in %.1f idle minutes, %d before: install, and both plugins' start and restart", n, minutes,
		start)
	l.r.add(Figure{Name: "API requests a minute of an idle node's two plugins", Value: round(float64(n) / minutes),
		Unit: "1/min"})
	return nil
}
