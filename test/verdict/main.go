// Command verdict judges runs of gotestsum by their events, where gotestsum itself cannot. It fails if a test was
// skipped, passed in no run, and -skips does not name it. gotestsum runs failed tests once more, each alone; verdict
// fails the run unless each was a story that passed then, and its package reported no harm (kit.Harm), no race and no
// panic, and ended. A story that passed then is flaky: a bug to fix.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/test/kit"
)

const module = "github.com/forcefence/forcefence/"

// stories are the packages whose tests play stories against real programs.
var stories = []string{"test/integration", "test/e2e", "test/interop"}

// unsafeOutput are words in the output of a failed package: such a fault is not a matter of timing, and a cached result
// is no second run.
var unsafeOutput = []string{kit.HarmPrefix, "DATA RACE", "panic: ", "fatal error: ", "\t(cached)"}

func main() {
	skips := flag.String("skips", "",
		"tests that may be skipped, as PACKAGE.TEST, separated by commas; - for none, empty for any")
	flag.Parse()
	events, err := os.Open(os.Getenv("GOTESTSUM_JSONFILE"))
	if err != nil {
		fmt.Println("FAIL: reading test events:", err)
		os.Exit(1)
	}
	flaky, faults := judge(events, *skips)
	for _, test := range flaky {
		fmt.Printf("flaky: %s failed, and passed alone; fix it\n", test)
	}
	for _, fault := range faults {
		fmt.Println("FAIL:", fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// event is one line of `go test -json`, as cmd/test2json documents it. An event of a package has no Test.
type event struct{ Action, Package, Test, Output string }

// history is what happened in one package, in all runs.
type history struct {
	failed      bool
	failedTests map[string]bool
	results     map[string]string // the last of each test: run until it ends, then pass, fail or skip
	skipped     map[string]bool   // in some run, and passed in none
	passed      map[string]bool   // in some run
	unsafe      string            // why no test of it may pass by a second run
}

func (h *history) add(e event) {
	switch {
	case e.Action == "output":
		for _, word := range unsafeOutput {
			if strings.Contains(e.Output, word) {
				h.unsafe = fmt.Sprintf("it printed %q", word)
			}
		}
	case e.Test != "" && slices.Contains([]string{"run", "pass", "fail", "skip"}, e.Action):
		h.results[e.Test] = e.Action
		h.passed[e.Test] = h.passed[e.Test] || e.Action == "pass"
		h.skipped[e.Test] = (h.skipped[e.Test] || e.Action == "skip") && !h.passed[e.Test]
		if e.Action == "fail" {
			h.failedTests[e.Test] = true
		}
	case e.Test == "" && e.Action == "fail":
		h.failed = true
		if slices.Contains(slices.Collect(maps.Values(h.results)), "run") {
			h.unsafe = "a test did not end"
		}
	}
}

// judge returns the flaky stories, and all that must fail the run.
func judge(events io.Reader, skips string) (flaky, faults []string) {
	packages := map[string]*history{}
	for lines := json.NewDecoder(events); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, append(faults, "reading test events: "+err.Error())
		}
		name := strings.TrimPrefix(e.Package, module)
		if packages[name] == nil {
			packages[name] = &history{failedTests: map[string]bool{}, results: map[string]string{},
				skipped: map[string]bool{}, passed: map[string]bool{}}
		}
		packages[name].add(e)
	}
	allowed := strings.Split(skips, ",")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		h := packages[name]
		for _, test := range slices.Sorted(maps.Keys(h.skipped)) {
			if full := name + "." + test; h.skipped[test] && skips != "" && !slices.Contains(allowed, full) {
				faults = append(faults, full+" was skipped")
			}
		}
		switch {
		case !h.failed:
		case !slices.Contains(stories, name):
			faults = append(faults, name+" failed; only stories may pass alone")
		case len(h.failedTests) == 0:
			faults = append(faults, name+": it failed without a failed test")
		case h.unsafe != "":
			faults = append(faults, name+": "+h.unsafe)
		default:
			for _, test := range slices.Sorted(maps.Keys(h.failedTests)) {
				if h.results[test] == "pass" {
					flaky = append(flaky, name+"."+test)
				} else {
					faults = append(faults, name+"."+test+" did not pass alone")
				}
			}
		}
	}
	return flaky, faults
}
