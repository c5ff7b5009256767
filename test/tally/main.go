// Command tally runs `go test -json` commands, one after the other, and prints what `go test` prints without -json.
// That is a closing line per package, and the output of tests that failed. Then it lists skipped tests with their
// reasons, the slowest tests, and flaky tests.
//
// -skips=PACKAGE.TEST,... (packages without the module's name) names the only tests that may be skipped; -skips=-
// allows none. A test skips itself where a program is missing, and a run that must prove something fails then.
//
// -stories=PACKAGE,... names the packages whose tests play stories against real programs. A story that failed is run
// once more, alone, by the command of -rerun. If it passes then, the run passes and the last lines name the story as
// flaky: each is a bug to fix. A story that reported harm (kit.Harm), raced, panicked or did not end is never run
// again, nor is any test of another package.
//
//	tally -slowest 20 -stories test/integration -rerun 'go test -json -race' \
//	    -- go test -json -race ./... -- go test -json ./test/sim
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/test/kit"
)

const (
	module = "github.com/forcefence/forcefence/"
	// maxStories bounds how many stories are run again. If more fail, it is the change that fails, not a story.
	maxStories = 3
)

func main() {
	t := tally{out: os.Stdout, start: startCommand}
	flag.StringVar(&t.skips, "skips", "",
		"tests that may be skipped, as PACKAGE.TEST, separated by commas; - for none, empty for any")
	flag.IntVar(&t.slowest, "slowest", 0, "how many of the slowest tests to list")
	flag.StringVar(&t.stories, "stories", "", "packages whose failed tests are run once more, separated by commas")
	flag.StringVar(&t.rerun, "rerun", "go test -json", "the command that runs a story again")
	flag.StringVar(&t.flakyFile, "flaky", "", "a file to which the names of flaky stories are appended")
	flag.BoolVar(&t.verbose, "v", false, "print the output of tests while they run")
	flag.Parse()
	if !t.run(flag.Args()) {
		os.Exit(1)
	}
}

// tally runs commands and judges their results. The zero value of a setting means none.
type tally struct {
	out     io.Writer
	start   func(args []string) (output io.ReadCloser, wait func() error, err error)
	skips   string
	slowest int
	stories string
	rerun   string
	verbose bool

	flakyFile string

	durations []duration
	skipped   map[string]string // reasons, by PACKAGE.TEST
	failed    []story
}

// story is a failed test that may be run again.
type story struct{ pkg, test string }

func (s story) String() string { return strings.TrimPrefix(s.pkg, module) + "." + s.test }

// event is one line of `go test -json`, as cmd/test2json documents it.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds; set when a test ends
}

// duration is how long a test ran, in seconds.
type duration struct {
	test    string
	seconds float64
}

// pkg collects what one package prints until it ends.
type pkg struct {
	output    []event           // in its order
	results   map[string]string // by test: pass, fail or skip
	durations []duration        // of tests that are not subtests
}

// startCommand starts a command. Its standard error goes to ours.
func startCommand(args []string) (io.ReadCloser, func() error, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return output, cmd.Wait, cmd.Start()
}

// run runs the commands, which `--` separates, and reports whether all is well. That means: every package ended; what
// failed were stories that passed alone; and only allowed tests were skipped.
func (t *tally) run(args []string) bool {
	t.skipped = map[string]string{}
	ok := true
	for len(args) > 0 {
		command := args
		if i := slices.Index(args, "--"); i >= 0 {
			command, args = args[:i], args[i+1:]
		} else {
			args = nil
		}
		ok = t.runCommand(command) && ok
	}
	flaky := t.retryStories(ok)
	ok = ok && len(flaky) == len(t.failed)
	slices.SortStableFunc(t.durations, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, d := range t.durations[:min(t.slowest, len(t.durations))] {
		fmt.Fprintf(t.out, "slowest: %6.1f s %s\n", d.seconds, d.test)
	}
	for _, name := range slices.Sorted(maps.Keys(t.skipped)) {
		verdict := "skipped"
		if t.skips != "" && !slices.Contains(strings.Split(t.skips, ","), name) {
			verdict, ok = "FAIL: skipped", false
		}
		fmt.Fprintf(t.out, "%s: %s: %s\n", verdict, name, t.skipped[name])
	}
	return t.reportFlaky(flaky) && ok
}

// reportFlaky lists flaky stories, in the file as well, and reports whether the file could be written.
func (t *tally) reportFlaky(flaky []story) bool {
	var text strings.Builder
	for _, s := range flaky {
		fmt.Fprintf(&text, "flaky: %s failed, and passed alone; fix it\n", s)
	}
	fmt.Fprint(t.out, text.String())
	if t.flakyFile == "" || text.Len() == 0 {
		return true
	}
	f, err := os.OpenFile(t.flakyFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(text.String())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(t.out, "FAIL: writing the names of flaky stories: %v\n", err)
	}
	return err == nil
}

// runCommand runs one command and reports whether all is well, apart from the stories that it adds to t.failed.
func (t *tally) runCommand(args []string) bool {
	output, wait, err := t.start(args)
	if err != nil {
		fmt.Fprintf(t.out, "FAIL: running %s: %v\n", strings.Join(args, " "), err)
		return false
	}
	before := len(t.failed)
	ok := t.read(output)
	// Without a failed package the exit status means a fault outside of the tests.
	if err := wait(); err != nil && ok && len(t.failed) == before {
		fmt.Fprintf(t.out, "FAIL: %s: %v\n", strings.Join(args, " "), err)
		return false
	}
	return ok
}

// read reads the events of one command to their end and reports as runCommand does.
func (t *tally) read(in io.Reader) bool {
	open := map[string]*pkg{}
	ended, ok := 0, true
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			invalid := json.Unmarshal(line, &e)
			switch {
			case invalid != nil || e.Action == "":
				_, _ = t.out.Write(line) // printed by another program
			case e.Action == "build-output":
				fmt.Fprint(t.out, e.Output)
			case e.Action == "build-fail":
				ok = false
			default:
				p := open[e.Package]
				if p == nil {
					p = &pkg{results: map[string]string{}}
					open[e.Package] = p
				}
				t.printNow(e)
				if !p.add(e) {
					break
				}
				delete(open, e.Package)
				ended++
				ok = t.endPackage(e, p) && ok
			}
		}
		if err != nil {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		ok = false
		open[name].printFailed(t.out)
		fmt.Fprintf(t.out, "FAIL\t%s\tdid not end\n", name)
	}
	if ended == 0 {
		ok = false
		fmt.Fprintln(t.out, "FAIL: no package's tests were read")
	}
	return ok
}

// endPackage prints a package that ended and reports whether it passed, or failed by stories alone, which it adds to
// t.failed.
func (t *tally) endPackage(end event, p *pkg) bool {
	for _, d := range p.durations {
		t.durations = append(t.durations, duration{strings.TrimPrefix(end.Package, module) + "." + d.test, d.seconds})
	}
	if end.Action != "fail" {
		p.printClosing(t.out)
		maps.Copy(t.skipped, p.skippedTests(end.Package))
		return true
	}
	if !t.verbose {
		p.printFailed(t.out)
	}
	if !slices.Contains(strings.Split(t.stories, ","), strings.TrimPrefix(end.Package, module)) {
		return false
	}
	failed := p.failedStories()
	for _, test := range failed {
		t.failed = append(t.failed, story{end.Package, test})
	}
	return len(failed) > 0
}

// retryStories runs the failed stories once more, each alone, and returns those that passed. It runs none where another
// fault fails the run anyway.
func (t *tally) retryStories(ok bool) (flaky []story) {
	if !ok || len(t.failed) > maxStories {
		return nil
	}
	for _, s := range t.failed {
		fmt.Fprintf(t.out, "== %s failed; running it alone\n", s)
		again := tally{out: t.out, start: t.start, verbose: t.verbose}
		args := append(strings.Fields(t.rerun), "-count=1", "-run", pattern(s.test), s.pkg)
		if again.run(args) && len(again.skipped) == 0 && again.ran(s) {
			flaky = append(flaky, s)
		}
	}
	return flaky
}

// ran reports whether the test that holds the story ran: `go test` passes as well if -run matches no test.
func (t *tally) ran(s story) bool {
	top, _, _ := strings.Cut(s.test, "/")
	return slices.ContainsFunc(t.durations, func(d duration) bool { return d.test == story{s.pkg, top}.String() })
}

// number is what testing adds to a subtest's name that is used again.
var number = regexp.MustCompile(`#\d+$`)

// pattern is the -run of one test. Numbers of repeated names are left out: alone, the test has none.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(number.ReplaceAllString(p, "")) + "$"
	}
	return strings.Join(parts, "/")
}

// printNow prints a test's output at once, without the lines that frame tests.
func (t *tally) printNow(e event) {
	text := strings.TrimSpace(e.Output)
	if t.verbose && e.Test != "" && text != "" && !strings.HasPrefix(text, "=== ") &&
		!strings.HasPrefix(text, "--- PASS") {
		fmt.Fprint(t.out, e.Output)
	}
}

// add notes an event and reports whether it is the package's last.
func (p *pkg) add(e event) bool {
	switch e.Action {
	case "output":
		p.output = append(p.output, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			return true
		}
		p.results[e.Test] = e.Action
		if !strings.Contains(e.Test, "/") {
			p.durations = append(p.durations, duration{e.Test, e.Elapsed})
		}
	}
	return false
}

// unsafeOutput are words in the output of a package whose tests are not run again: such a fault is not a matter of
// timing.
var unsafeOutput = []string{kit.HarmPrefix, "DATA RACE", "panic: ", "fatal error: "}

// failedStories are the failed tests without failed subtests; none if running them again could hide a fault of the
// product.
func (p *pkg) failedStories() (out []string) {
	for _, e := range p.output {
		if slices.ContainsFunc(unsafeOutput, func(word string) bool { return strings.Contains(e.Output, word) }) {
			return nil
		}
		if e.Test != "" && p.results[e.Test] == "" {
			return nil // it did not end
		}
	}
	for _, test := range slices.Sorted(maps.Keys(p.results)) {
		failedBelow := func(other string) bool {
			return p.results[other] == "fail" && strings.HasPrefix(other, test+"/")
		}
		if p.results[test] == "fail" && !slices.ContainsFunc(slices.Collect(maps.Keys(p.results)), failedBelow) {
			out = append(out, test)
		}
	}
	return out
}

// printClosing prints the closing line.
func (p *pkg) printClosing(out io.Writer) {
	for _, e := range slices.Backward(p.output) {
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "? ")) {
			fmt.Fprint(out, e.Output)
			return
		}
	}
}

// printFailed prints the output of tests that failed or did not end, and of the package itself.
func (p *pkg) printFailed(out io.Writer) {
	for _, e := range p.output {
		if r := p.results[e.Test]; r != "pass" && r != "skip" && e.Output != "PASS\n" {
			fmt.Fprint(out, e.Output)
		}
	}
}

// skippedTests are the skipped tests with their reasons: what each printed before its verdict.
func (p *pkg) skippedTests(name string) map[string]string {
	out := map[string]string{}
	for test, result := range p.results {
		if result != "skip" {
			continue
		}
		var reason bytes.Buffer
		for _, e := range p.output {
			if e.Test == test && !strings.Contains(e.Output, "=== ") && !strings.Contains(e.Output, "--- SKIP") {
				reason.WriteString(e.Output)
			}
		}
		out[strings.TrimPrefix(name, module)+"."+test] = strings.Join(strings.Fields(reason.String()), " ")
	}
	return out
}
