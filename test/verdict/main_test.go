package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSkips(t *testing.T) {
	const events = `{"Action":"pass","Package":"MODULE/a","Test":"TestGood"}
{"Action":"skip","Package":"MODULE/a","Test":"TestAway/x"}
{"Action":"pass","Package":"MODULE/a"}
{"Action":"skip","Package":"MODULE/b"}
`
	for _, tc := range []struct{ name, skips, want string }{
		{"any may be skipped", "", ""},
		{"it may be skipped", "b.TestX,a.TestAway/x", ""},
		{"another may be skipped", "a.TestAway", "a.TestAway/x was skipped"},
		{"none may be skipped", "-", "a.TestAway/x was skipped"},
	} {
		t.Run(tc.name, func(t *testing.T) { expect(t, events, tc.skips, "", tc.want) })
	}
}

// A test that one machine skips may pass on another: their events are judged together.
func TestSkipsOfSeveralRuns(t *testing.T) {
	const (
		skip = `{"Action":"skip","Package":"MODULE/a","Test":"TestDevice"}` + "\n"
		pass = `{"Action":"pass","Package":"MODULE/a","Test":"TestDevice"}` + "\n"
	)
	for _, events := range []string{skip + pass, pass + skip} {
		expect(t, events, "-", "", "")
	}
	expect(t, skip+skip, "-", "", "a.TestDevice was skipped")
}

// A story may pass by a second run, and only if nothing that its package printed is harm.
func TestReruns(t *testing.T) {
	const (
		failed = `{"Action":"run","Package":"MODULE/test/e2e","Test":"TestStory"}
{"Action":"run","Package":"MODULE/test/e2e","Test":"TestStory/cut"}
{"Action":"output","Package":"MODULE/test/e2e","Test":"TestStory/cut","Output":"waited too long\n"}
{"Action":"fail","Package":"MODULE/test/e2e","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/test/e2e","Test":"TestStory/good"}
{"Action":"fail","Package":"MODULE/test/e2e","Test":"TestStory"}
`
		end    = `{"Action":"fail","Package":"MODULE/test/e2e"}` + "\n"
		cached = `{"Action":"output","Package":"MODULE/test/e2e","Output":"ok  \tMODULE/test/e2e\t(cached)\n"}` + "\n"
		empty  = `{"Action":"pass","Package":"MODULE/test/e2e"}` + "\n"
		passed = `{"Action":"pass","Package":"MODULE/test/e2e","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/test/e2e","Test":"TestStory"}
` + empty
		skipped = `{"Action":"skip","Package":"MODULE/test/e2e","Test":"TestStory/cut"}
{"Action":"pass","Package":"MODULE/test/e2e","Test":"TestStory"}
` + empty
		harm = `{"Action":"output","Package":"MODULE/test/e2e","Test":"TestStory/good","Output":"x.go:1: HARM: twice\n"}
`
		race = `{"Action":"output","Package":"MODULE/test/e2e","Test":"TestStory/cut","Output":"WARNING: DATA RACE\n"}
`
		hung = `{"Action":"run","Package":"MODULE/test/e2e","Test":"TestOther"}` + "\n"
		unit = `{"Action":"fail","Package":"MODULE/u","Test":"TestUnit"}
{"Action":"fail","Package":"MODULE/u"}
{"Action":"pass","Package":"MODULE/u","Test":"TestUnit"}
{"Action":"pass","Package":"MODULE/u"}
`
		flaky = "test/e2e.TestStory test/e2e.TestStory/cut"
		again = "test/e2e.TestStory did not pass alone, test/e2e.TestStory/cut did not pass alone"
	)
	for _, tc := range []struct{ name, events, flaky, want string }{
		{"it passes alone", failed + end + passed, flaky, ""},
		{"it fails again", failed + end + failed + end, "", again},
		{"it does not run", failed + end + empty, "", again},
		{"it is skipped", failed + end + skipped, "test/e2e.TestStory", "test/e2e.TestStory/cut did not pass alone"},
		{"its result is an old one", failed + end + cached + passed, "", `test/e2e: it printed "\t(cached)"`},
		{"harm in the same package", failed + harm + end + passed, "", `test/e2e: it printed "HARM: "`},
		{"harm in the second run", failed + end + harm + passed, "", `test/e2e: it printed "HARM: "`},
		{"a race", failed + race + end + passed, "", `test/e2e: it printed "DATA RACE"`},
		{"another test did not end", hung + failed + end + passed, "", "test/e2e: a test did not end"},
		{"a unit test passes alone", unit, "", "u failed; only stories may pass alone"},
		{"the package failed without a test", end + passed, "", "test/e2e: it failed without a failed test"},
		{"no JSON", "no Go files\n", "",
			"reading test events: invalid character 'o' in literal null (expecting 'u')"},
		{"cached, and no failure", cached + passed, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) { expect(t, tc.events, "", tc.flaky, tc.want) })
	}
}

func expect(t *testing.T, events, skips, flaky, faults string) {
	t.Helper()
	gotFlaky, gotFaults := judge(strings.NewReader(strings.ReplaceAll(events, "MODULE/", module)), skips)
	if diff := cmp.Diff([]string{flaky, faults},
		[]string{strings.Join(gotFlaky, " "), strings.Join(gotFaults, ", ")}); diff !=
		"" {
		t.Errorf("flaky and faults (-want +got):\n%s", diff)
	}
}
