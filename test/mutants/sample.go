package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// accepted holds the candidates that survive for a reason: an ID, a tab and the reason. They count as alive.
const accepted = "test/mutants/accepted.txt"

// readAccepted returns the reasons by ID.
func readAccepted(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, accepted))
	if err != nil {
		return nil, fmt.Errorf("reading accepted survivors: %w", err)
	}
	out := map[string]string{}
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, "\t")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("reading accepted survivors: line %d has no reason", n+1)
		}
		out[id] = reason
	}
	return out, nil
}

// sampling is what of all candidates is tried.
type sampling struct {
	seed  uint64
	count int
	only  *regexp.Regexp // draws among those whose ID matches
}

// chooseGenerated draws candidates that compile from those of all mutated packages.
func chooseGenerated(ctx context.Context, out io.Writer, src *source, s sampling) (chosen []Candidate, err error) {
	g, err := newGenerator(ctx, src, mutated)
	if err != nil {
		return nil, err
	}
	var all []Candidate
	for _, dir := range mutated {
		list, err := g.candidates(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(list, func(c Candidate) bool { return !s.only.MatchString(c.ID) })...)
	}
	rng := rand.New(rand.NewPCG(s.seed, 0))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, c := range all {
		if len(chosen) == s.count {
			break
		}
		ok, err := g.compiles(c)
		if err != nil {
			return nil, err
		}
		if ok {
			chosen = append(chosen, c)
		}
	}
	fmt.Fprintf(out, "seed %d: %d of %d candidates\n", s.seed, len(chosen), len(all))
	return chosen, nil
}
