package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// jsonSection returns what docs/reference/measurements.md says of the raw data of bench peers or first.
func jsonSection[T results](file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var r T
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return r.markdown(), nil
}

// p99Section returns what docs/reference/measurements.md says of the raw data of bench p99.
func p99Section(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := gzip.NewReader(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	all, err := readRounds(raw)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%s has no rounds", file)
	}
	return p99Page(all), nil
}

// p99Page shows all rounds in Markdown.
func p99Page(all []fenceRound) string {
	fences, parts := percentiles(all)
	return fmt.Sprintf(`%s

`+"`make bench RUN=p99 ROUNDS=1000`"+` (2 hours) cuts the power of real QEMU guests, one after the other, behind
libvirtd or behind OpenIPMI's BMC simulator. Control plane and forcefence are real, kubelets are simulated. The
controller-manager has its stock request rate. Each time is from the power cut until every pod of the machine is Ready
elsewhere. The raw data is [a line for each fence](../../test/bench/results/p99.jsonl.gz), with
[these fields](../../test/bench/rawdata.go).

%s
How long a node [without the hook](../promises.md#without-the-hook) depends on its machine staying off:

%s
The steps of the pod that was Ready last:

%s
The slowest one per cent, and the step that took longest against its median:

%s`, measuredOn(all), fences.markdown(), windows(all).markdown(), parts.markdown(), waits(all).markdown())
}

// replaceSection returns a Markdown page with another text under one of its headings, up to the next heading.
func replaceSection(page, heading, text string) (string, error) {
	before, rest, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		return "", fmt.Errorf("the page has no heading %q", heading)
	}
	after := ""
	if i := strings.Index(rest, "\n#"); i >= 0 {
		after = rest[i:]
	}
	return before + "\n" + heading + "\n" + text + after, nil
}
