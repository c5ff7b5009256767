package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// mutated are the packages that candidates come from: what decides, and what carries decisions out.
var mutated = []string{
	"kubelet-admit/admit", "providers", "taint", "taint/controller", "taint/decide", "taint/decide/action",
	"taint/decide/evict", "taint/decide/fence", "taint/decide/fleet", "taint/decide/policy", "taint/decide/proof",
	"taint/features/drain", "taint/journal", "taint/kube", "taint/machine", "taint/features/release", "taint/sharing",
	"taint/wake",
}

// simulation plays the whole protocol: enough histories to take every path many times, few enough for a mutant's limit.
const simulation = "./test/sim -run TestHistories -sim.seeds=2000"

// stories run the program that is built of the packages, on a real control plane.
const stories = "./test/integration -run ^Test(PowerCut|ManualMarks|PartitionIsObserved)$"

// mostTesters is how many packages' tests are tried beside a package's own, before the simulation.
const mostTesters = 5

// graph is which packages of the module import which.
type graph struct {
	module string
	pkgs   []imports
}

// imports are a package's.
type imports struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func readGraph(ctx context.Context, root string) (*graph, error) {
	list := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
		cmd.Dir = root
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return nil, fmt.Errorf("listing packages: %w\n%s", err, exit.Stderr)
		}
		return out, err
	}
	module, err := list("-m")
	if err != nil {
		return nil, err
	}
	out, err := list("-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	if err != nil {
		return nil, err
	}
	g := &graph{module: strings.TrimSpace(string(module))}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p imports
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, fmt.Errorf("listing packages: %w", err)
		}
		g.pkgs = append(g.pkgs, p)
	}
}

// testers are the arguments of go test for the packages whose tests reach the one in dir, the nearest first: its own,
// without a control plane and with one, a few others, the simulation, the nearest other with a control plane, and the
// main stories.
func (g *graph) testers(dir string) []string {
	from := g.module + "/" + dir
	distance := map[string]int{from: 0}
	for near := []string{from}; len(near) > 0; {
		var next []string
		for _, p := range g.pkgs {
			if _, known := distance[p.ImportPath]; !known && importsAny(p.Imports, near) {
				next = append(next, p.ImportPath)
			}
		}
		for _, p := range next {
			distance[p] = distance[near[0]] + 1
		}
		near = next
	}
	type tester struct {
		dir string
		far int
	}
	var others []tester
	simulated := false
	for _, p := range g.pkgs {
		far := -1
		for _, to := range slices.Concat([]string{p.ImportPath}, p.TestImports, p.XTestImports) {
			if d, ok := distance[to]; ok && (far < 0 || d < far) {
				far = d
			}
		}
		here := strings.TrimPrefix(p.ImportPath, g.module+"/")
		switch {
		case far < 0 || here == dir || len(p.TestImports)+len(p.XTestImports) == 0:
		case here == "test/sim":
			simulated = true
		case !strings.HasPrefix(here, "test/") && !strings.HasPrefix(here, ".ci"):
			others = append(others, tester{here, far})
		}
	}
	slices.SortStableFunc(others, func(a, b tester) int { return a.far - b.far })
	out := []string{"./" + dir + " -short", "./" + dir}
	for _, o := range others[:min(len(others), mostTesters)] {
		out = append(out, "./"+o.dir+" -short")
	}
	if simulated {
		out = append(out, simulation)
	}
	if len(others) > 0 {
		out = append(out, "./"+others[0].dir)
	}
	if _, linked := distance[g.module+"/cmd/forcefence"]; linked {
		out = append(out, stories)
	}
	return out
}

func importsAny(list, of []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return slices.Contains(of, p) })
}
