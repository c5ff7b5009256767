package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream is what go test -json prints for two packages.
const stream = `{"Action":"start","Package":"MODULE/a"}
{"Action":"run","Package":"MODULE/a","Test":"TestGood"}
{"Action":"output","Package":"MODULE/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"MODULE/a","Test":"TestGood","Output":"ok I am only a line\n"}
{"Action":"pass","Package":"MODULE/a","Test":"TestGood"}
{"Action":"output","Package":"MODULE/a","Test":"TestAway/x","Output":"=== RUN   TestAway/x\n"}
{"Action":"output","Package":"MODULE/a","Test":"TestAway/x","Output":"    a_test.go:3: SKIPPED: no libvirt\n"}
{"Action":"output","Package":"MODULE/a","Test":"TestAway/x","Output":"--- SKIP: TestAway/x (0.00s)\n"}
{"Action":"skip","Package":"MODULE/a","Test":"TestAway/x"}
{"Action":"output","Package":"MODULE/a","Output":"PASS\n"}
{"Action":"output","Package":"MODULE/a","Output":"ok  \tMODULE/a\t0.1s\n"}
{"Action":"pass","Package":"MODULE/a"}
{"Action":"output","Package":"MODULE/b","Output":"?   \tMODULE/b\t[no test files]\n"}
{"Action":"skip","Package":"MODULE/b"}
`

// inModule fills in the module's name.
func inModule(text string) string {
	return strings.ReplaceAll(text, "MODULE", "github.com/forcefence/forcefence")
}

const closing = "ok  \tgithub.com/forcefence/forcefence/a\t0.1s\n?   \tgithub.com/forcefence/forcefence/b\t[no test " +
	"files]\n"

// printing is a command that prints each text in turn, one a call, and exits with 0.
func printing(texts ...string) func([]string) (io.ReadCloser, func() error, error) {
	return func([]string) (io.ReadCloser, func() error, error) {
		text := inModule(texts[0])
		texts = texts[1:]
		return io.NopCloser(strings.NewReader(text)), func() error { return nil }, nil
	}
}

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name, in, allowed, want string
		ok                      bool
	}{
		{name: "any may be skipped", in: stream, ok: true,
			want: closing + "skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "it may be skipped", in: stream, allowed: "b.TestX,a.TestAway/x", ok: true,
			want: closing + "skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "another may be skipped", in: stream, allowed: "a.TestAway",
			want: closing + "FAIL: skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "none may be skipped", in: stream, allowed: "-",
			want: closing + "FAIL: skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "a failure", in: `{"Action":"output","Package":"c","Test":"TestGood","Output":"fine\n"}
{"Action":"pass","Package":"c","Test":"TestGood"}
{"Action":"output","Package":"c","Test":"TestBad","Output":"    c_test.go:1: got 1, want 2\n"}
{"Action":"output","Package":"c","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"c","Test":"TestBad"}
{"Action":"output","Package":"c","Output":"FAIL\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t0.2s\n"}
{"Action":"fail","Package":"c"}
` + stream, ok: false,
			want: "    c_test.go:1: got 1, want 2\n--- FAIL: TestBad (0.00s)\nFAIL\nFAIL\tc\t0.2s\n" + closing +
				"skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "a panic", in: `{"Action":"output","Package":"c","Test":"TestBad","Output":"panic: oh\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t0.2s\n"}
{"Action":"fail","Package":"c"}
`, want: "panic: oh\nFAIL\tc\t0.2s\n"},
		{name: "it does not compile", in: `{"ImportPath":"c","Action":"build-output","Output":"c.go:1: oh\n"}
{"ImportPath":"c","Action":"build-fail"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c"}
` + stream, want: "c.go:1: oh\nFAIL\tc [build failed]\n" + closing +
			"skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "it ends in the middle",
			in: stream + `{"Action":"output","Package":"c","Test":"TestSlow","Output":"still here\n"}` + "\n",
			want: closing + "still here\nFAIL\tc\tdid not end\nskipped: a.TestAway/x: a_test.go:3: SKIPPED: no " +
				"libvirt\n"},
		{name: "no JSON", in: "no Go files\n", want: "no Go files\nFAIL: no package's tests were read\n"},
		{name: "nothing", want: "FAIL: no package's tests were read\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			ta := tally{out: &out, start: printing(tc.in), skips: tc.allowed}
			ok := ta.run([]string{"go", "test"})
			if diff := cmp.Diff(tc.want, out.String()); ok != tc.ok || diff != "" {
				t.Errorf("got %v, want %v; -want +got:\n%s", ok, tc.ok, diff)
			}
		})
	}
}

func TestSlowest(t *testing.T) {
	const in = `{"Action":"pass","Package":"MODULE/a","Test":"TestQuick","Elapsed":1.5}
{"Action":"pass","Package":"MODULE/a","Test":"TestSlow/part","Elapsed":70}
{"Action":"pass","Package":"MODULE/a","Test":"TestSlow","Elapsed":70.25}
{"Action":"pass","Package":"MODULE/a"}
{"Action":"fail","Package":"MODULE/b","Test":"TestBad","Elapsed":12}
{"Action":"fail","Package":"MODULE/b"}
`
	for n, want := range map[int]string{
		0: "", 2: "slowest:   70.2 s a.TestSlow\nslowest:   12.0 s b.TestBad\n",
		9: "slowest:   70.2 s a.TestSlow\nslowest:   12.0 s b.TestBad\nslowest:    1.5 s a.TestQuick\n",
	} {
		var out strings.Builder
		ta := tally{out: &out, start: printing(in), slowest: n}
		if ta.run([]string{"go", "test"}); out.String() != want {
			t.Errorf("%d slowest: got %q, want %q", n, out.String(), want)
		}
	}
}

// A story is run again alone, once, and only if nothing that it printed is harm.
func TestRerun(t *testing.T) {
	const (
		failed = `{"Action":"output","Package":"MODULE/s","Test":"TestStory/cut","Output":"waited too long\n"}
{"Action":"fail","Package":"MODULE/s","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/s","Test":"TestStory/good"}
{"Action":"fail","Package":"MODULE/s","Test":"TestStory"}
`
		end    = `{"Action":"fail","Package":"MODULE/s"}` + "\n"
		passed = `{"Action":"pass","Package":"MODULE/s","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/s","Test":"TestStory"}
{"Action":"pass","Package":"MODULE/s"}
`
		empty   = `{"Action":"pass","Package":"MODULE/s"}` + "\n"
		skipped = `{"Action":"skip","Package":"MODULE/s","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/s","Test":"TestStory"}
` + empty
		harm = `{"Action":"output","Package":"MODULE/s","Test":"TestStory/good","Output":"x.go:1: HARM: db-0 twice\n"}
`
		race = `{"Action":"output","Package":"MODULE/s","Test":"TestStory/cut","Output":"WARNING: DATA RACE\n"}
`
		hung = `{"Action":"output","Package":"MODULE/s","Test":"TestOther","Output":"I began\n"}` + "\n"
		unit = `{"Action":"fail","Package":"MODULE/u","Test":"TestUnit"}
{"Action":"fail","Package":"MODULE/u"}
`
	)
	many := ""
	for _, name := range []string{"A", "B", "C", "D"} {
		many += `{"Action":"fail","Package":"MODULE/s","Test":"Test` + name + `"}` + "\n"
	}
	for _, tc := range []struct {
		name  string
		first string
		again []string
		ok    bool
	}{
		{"it passes alone", failed + end, []string{passed}, true},
		{"it fails again", failed + end, []string{failed + end}, false},
		{"it does not run", failed + end, []string{empty}, false},
		{"it is skipped", failed + end, []string{skipped}, false},
		{"harm in the same package", failed + harm + end, nil, false},
		{"a race", failed + race + end, nil, false},
		{"another test did not end", failed + hung + end, nil, false},
		{"the package did not end", failed, nil, false},
		{"a unit test failed", unit, nil, false},
		{"a unit test failed beside it", failed + end + unit, nil, false},
		{"many stories failed", many + end, nil, false},
		{"the package failed without a test", end, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var commands [][]string
			start := printing(append([]string{tc.first}, tc.again...)...)
			var out strings.Builder
			file := filepath.Join(t.TempDir(), "flaky")
			ta := tally{out: &out, stories: "x,s", rerun: "go test -json -race", flakyFile: file}
			ta.start = func(args []string) (io.ReadCloser, func() error, error) {
				commands = append(commands, args)
				return start(args)
			}
			ok := ta.run([]string{"go", "test", "-json", "./..."})
			if ok != tc.ok || len(commands) != 1+len(tc.again) {
				t.Fatalf("got %v after %d commands, want %v after %d:\n%s", ok, len(commands), tc.ok, 1+len(tc.again),
					out.String())
			}
			const last = "flaky: s.TestStory/cut failed, and passed alone; fix it\n"
			if text, _ := os.ReadFile(file); strings.HasSuffix(out.String(), last) != tc.ok ||
				(string(text) == last) != tc.ok {
				t.Errorf("got %q and the file %q, want the last line %q: %v", out.String(), text, last, tc.ok)
			}
			want := []string{"go", "test", "-json", "-race", "-count=1", "-run", "^TestStory$/^cut$",
				"github.com/forcefence/forcefence/s"}
			if len(tc.again) > 0 && !slices.Equal(commands[1], want) {
				t.Errorf("rerun: got %q, want %q", commands[1], want)
			}
		})
	}
	if got, want := pattern("TestE2E/nodes#01/a_(b)"), `^TestE2E$/^nodes$/^a_\(b\)$`; got != want {
		t.Errorf("pattern: got %s, want %s", got, want)
	}
}

// A command that fails outside of its tests fails the run.
func TestExitStatus(t *testing.T) {
	var out strings.Builder
	ta := tally{out: &out, start: func([]string) (io.ReadCloser, func() error, error) {
		fail := func() error { return errors.New("exit status 2") }
		return io.NopCloser(strings.NewReader(inModule(stream))), fail, nil
	}}
	if ta.run([]string{"go", "test"}) || !strings.Contains(out.String(), "FAIL: go test: exit status 2\n") {
		t.Errorf("got %q, want the exit status", out.String())
	}
	out.Reset()
	ta = tally{out: &out, start: startCommand}
	if ta.run([]string{"/nowhere/go"}) || !strings.Contains(out.String(), "FAIL: running /nowhere/go") {
		t.Errorf("got %q, want why it did not start", out.String())
	}
}
