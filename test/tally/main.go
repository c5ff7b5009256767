// Command tally reads what `go test -json` prints of many packages and prints what `go test` would without -json: a closing line for
// each package, and of one that failed what its tests said. Then it lists the tests that were skipped, each with its reason.
//
// With -skips=PACKAGE.TEST,... (packages without the module's name) only those may be skipped; -skips=- allows none. Skipping happens
// where something is missing on the machine, and a run that is to prove something must not pass for it. -slowest=N adds the N tests that
// took longest, since each minute of them is one of everybody's.
//
//	go test -json ./... | tally
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

const module = "github.com/forcefence/forcefence/"

func main() {
	allowed := flag.String("skips", "", "the tests that may be skipped, as PACKAGE.TEST, separated by commas; - for none; empty for any")
	slowest := flag.Int("slowest", 0, "how many of the slowest tests to list")
	flag.Parse()
	if !tally(os.Stdin, os.Stdout, *allowed, *slowest) {
		os.Exit(1)
	}
}

// event is one line of `go test -json`, as cmd/test2json documents it.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds, of an end
}

// took is how long a test ran, in seconds.
type took struct {
	test    string
	seconds float64
}

// pkg is what is known of a package until it ends.
type pkg struct {
	said  []event           // all output, in its order
	ended map[string]string // tests: pass, fail or skip
	took  []took            // tests that are not part of another
}

// tally prints what it reads and reports whether all is well: every package ended, none failed, and nothing was skipped that may not be.
func tally(in io.Reader, out io.Writer, allowed string, slowest int) bool {
	open, skipped := map[string]*pkg{}, map[string]string{}
	var all []took
	read, ok := 0, true
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			bad := json.Unmarshal(line, &e)
			switch {
			case bad != nil || e.Action == "":
				_, _ = out.Write(line) // somebody else's
			case e.Action == "build-output":
				fmt.Fprint(out, e.Output)
			case e.Action == "build-fail":
				ok = false
			default:
				p := open[e.Package]
				if p == nil {
					p = &pkg{ended: map[string]string{}}
					open[e.Package] = p
				}
				if !p.see(e) {
					break
				}
				delete(open, e.Package)
				read++
				for _, t := range p.took {
					all = append(all, took{strings.TrimPrefix(e.Package, module) + "." + t.test, t.seconds})
				}
				if e.Action == "fail" {
					ok = false
					p.printAll(out)
					break
				}
				p.printEnd(out)
				maps.Copy(skipped, p.skipped(e.Package))
			}
		}
		if err != nil {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		ok = false
		open[name].printAll(out)
		fmt.Fprintf(out, "FAIL\t%s\tdid not end\n", name)
	}
	if read == 0 {
		ok = false
		fmt.Fprintln(out, "FAIL: no package's tests were read")
	}
	slices.SortFunc(all, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range all[:min(slowest, len(all))] {
		fmt.Fprintf(out, "slowest: %6.1f s %s\n", t.seconds, t.test)
	}
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		verdict := "skipped"
		if allowed != "" && !slices.Contains(strings.Split(allowed, ","), name) {
			verdict, ok = "FAIL: skipped", false
		}
		fmt.Fprintf(out, "%s: %s: %s\n", verdict, name, skipped[name])
	}
	return ok
}

// see notes an event and reports whether it is the package's last.
func (p *pkg) see(e event) bool {
	switch e.Action {
	case "output":
		p.said = append(p.said, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			return true
		}
		p.ended[e.Test] = e.Action
		if !strings.Contains(e.Test, "/") {
			p.took = append(p.took, took{e.Test, e.Elapsed})
		}
	}
	return false
}

// printEnd prints the closing line.
func (p *pkg) printEnd(out io.Writer) {
	for _, e := range slices.Backward(p.said) {
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "? ")) {
			fmt.Fprint(out, e.Output)
			return
		}
	}
}

// printAll prints what was said by tests that did not end well, or did not end, and by no test.
func (p *pkg) printAll(out io.Writer) {
	for _, e := range p.said {
		if end := p.ended[e.Test]; end != "pass" && end != "skip" && e.Output != "PASS\n" {
			fmt.Fprint(out, e.Output)
		}
	}
}

// skipped are the skipped tests with their reasons: what each said last before its verdict.
func (p *pkg) skipped(name string) map[string]string {
	out := map[string]string{}
	for test, end := range p.ended {
		if end != "skip" {
			continue
		}
		var said bytes.Buffer
		for _, e := range p.said {
			if e.Test == test && !strings.Contains(e.Output, "=== ") && !strings.Contains(e.Output, "--- SKIP") {
				said.WriteString(e.Output)
			}
		}
		out[strings.TrimPrefix(name, module)+"."+test] = strings.Join(strings.Fields(said.String()), " ")
	}
	return out
}
