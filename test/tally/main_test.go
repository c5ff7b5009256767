package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const stream = `{"Action":"start","Package":"github.com/forcefence/forcefence/a"}
{"Action":"run","Package":"github.com/forcefence/forcefence/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Test":"TestGood","Output":"ok I am only a line\n"}
{"Action":"pass","Package":"github.com/forcefence/forcefence/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Test":"TestAway/x","Output":"=== RUN   TestAway/x\n"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Test":"TestAway/x","Output":"    a_test.go:3: SKIPPED: no libvirt\n"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Test":"TestAway/x","Output":"--- SKIP: TestAway/x (0.00s)\n"}
{"Action":"skip","Package":"github.com/forcefence/forcefence/a","Test":"TestAway/x"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/forcefence/forcefence/a","Output":"ok  \tgithub.com/forcefence/forcefence/a\t0.1s\n"}
{"Action":"pass","Package":"github.com/forcefence/forcefence/a"}
{"Action":"output","Package":"github.com/forcefence/forcefence/b","Output":"?   \tgithub.com/forcefence/forcefence/b\t[no test files]\n"}
{"Action":"skip","Package":"github.com/forcefence/forcefence/b"}
`

const closing = "ok  \tgithub.com/forcefence/forcefence/a\t0.1s\n?   \tgithub.com/forcefence/forcefence/b\t[no test files]\n"

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name, in, allowed, want string
		ok                      bool
	}{
		{name: "any may be skipped", in: stream, ok: true, want: closing + "skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "it may be skipped", in: stream, allowed: "b.TestX,a.TestAway/x", ok: true, want: closing + "skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "another may be skipped", in: stream, allowed: "a.TestAway", want: closing + "FAIL: skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "none may be skipped", in: stream, allowed: "-", want: closing + "FAIL: skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "a failure", in: `{"Action":"output","Package":"c","Test":"TestGood","Output":"fine\n"}
{"Action":"pass","Package":"c","Test":"TestGood"}
{"Action":"output","Package":"c","Test":"TestBad","Output":"    c_test.go:1: got 1, want 2\n"}
{"Action":"output","Package":"c","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"c","Test":"TestBad"}
{"Action":"output","Package":"c","Output":"FAIL\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t0.2s\n"}
{"Action":"fail","Package":"c"}
` + stream, ok: false, want: "    c_test.go:1: got 1, want 2\n--- FAIL: TestBad (0.00s)\nFAIL\nFAIL\tc\t0.2s\n" + closing +
			"skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "a panic", in: `{"Action":"output","Package":"c","Test":"TestBad","Output":"panic: oh\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t0.2s\n"}
{"Action":"fail","Package":"c"}
`, want: "panic: oh\nFAIL\tc\t0.2s\n"},
		{name: "it does not compile", in: `{"ImportPath":"c","Action":"build-output","Output":"c.go:1: oh\n"}
{"ImportPath":"c","Action":"build-fail"}
{"Action":"output","Package":"c","Output":"FAIL\tc [build failed]\n"}
{"Action":"fail","Package":"c"}
` + stream, want: "c.go:1: oh\nFAIL\tc [build failed]\n" + closing + "skipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "it ends in the middle", in: stream + `{"Action":"output","Package":"c","Test":"TestSlow","Output":"still here\n"}` + "\n",
			want: closing + "still here\nFAIL\tc\tdid not end\nskipped: a.TestAway/x: a_test.go:3: SKIPPED: no libvirt\n"},
		{name: "no JSON", in: "no Go files\n", want: "no Go files\nFAIL: no package's tests were read\n"},
		{name: "nothing", want: "FAIL: no package's tests were read\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			ok := tally(strings.NewReader(tc.in), &out, tc.allowed, 0)
			if diff := cmp.Diff(tc.want, out.String()); ok != tc.ok || diff != "" {
				t.Errorf("got %v, want %v; -want +got:\n%s", ok, tc.ok, diff)
			}
		})
	}
}

func TestSlowest(t *testing.T) {
	const in = `{"Action":"pass","Package":"github.com/forcefence/forcefence/a","Test":"TestQuick","Elapsed":1.5}
{"Action":"pass","Package":"github.com/forcefence/forcefence/a","Test":"TestSlow/part","Elapsed":70}
{"Action":"pass","Package":"github.com/forcefence/forcefence/a","Test":"TestSlow","Elapsed":70.25}
{"Action":"pass","Package":"github.com/forcefence/forcefence/a"}
{"Action":"fail","Package":"github.com/forcefence/forcefence/b","Test":"TestBad","Elapsed":12}
{"Action":"fail","Package":"github.com/forcefence/forcefence/b"}
`
	for n, want := range map[int]string{
		0: "", 2: "slowest:   70.2 s a.TestSlow\nslowest:   12.0 s b.TestBad\n",
		9: "slowest:   70.2 s a.TestSlow\nslowest:   12.0 s b.TestBad\nslowest:    1.5 s a.TestQuick\n",
	} {
		var out strings.Builder
		if tally(strings.NewReader(in), &out, "", n); out.String() != want {
			t.Errorf("%d slowest: got %q, want %q", n, out.String(), want)
		}
	}
}
