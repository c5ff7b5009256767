//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

func TestReadmeCommands(t *testing.T) {
	const block = "x\n\n```sh test=fresh\nmake demo    # shows it\nmake test\n```\n"
	for name, tt := range map[string]struct {
		readme string
		want   string // of the error
	}{
		"two commands":  {block, ""},
		"no block":      {"x\n\n```sh run\nmake demo\n```\n", "has not one block"},
		"two blocks":    {block + block, "has not one block"},
		"three of them": {strings.Replace(block, "make test", "make test\nmake bench", 1), "3 commands, not two"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readmeCommands(tt.readme)
			if tt.want == "" && (err != nil || fmt.Sprint(got) != "[make demo make test]") {
				t.Errorf("got %q, %v", got, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestRecordKeepsTheOtherRun(t *testing.T) {
	file := t.TempDir() + "/minutes.json"
	kit.Must(t, recordRun(file, true, []commandTime{{Command: "make demo", Minutes: 8}}))
	kit.Must(t, recordRun(file, false, []commandTime{{Command: "make demo", Minutes: 2}}))
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	var got record
	kit.Must(t, json.Unmarshal(text, &got))
	if got.Cold.minutesOf("make demo") != 8 || got.Warm.minutesOf("make demo") != 2 {
		t.Errorf("got %s", text)
	}
}

// The minutes that pages promise differ by half at most from what the last recorded runs took.
func TestMinutesOnPages(t *testing.T) {
	var recorded record
	text, err := os.ReadFile("minutes.json")
	kit.Must(t, err)
	kit.Must(t, json.Unmarshal(text, &recorded))
	demo, test := recorded.Warm.minutesOf("make demo"), recorded.Warm.minutesOf("make test")
	builds := recorded.Cold.minutesOf("make demo") - demo
	compiles := recorded.Cold.minutesOf("make test") - test // after make demo has built the control plane
	for _, tt := range []struct {
		page, text string // each # of the text is a number
		took       []float64
	}{
		{"README.md", "The demo takes # minutes and `make test` #, on two cores.", []float64{demo, test}},
		{"README.md", "Kubernetes from their Go modules: # minutes more.", []float64{builds}},
		{"CONTRIBUTING.md", "`STORIES=regexp` others | # minutes; # more the first time, and # after `make demo` |",
			[]float64{test, compiles + builds, compiles}},
		{"CONTRIBUTING.md", "`INTEROP=nhc` with NodeHealthCheck | # minutes; # more the first time,",
			[]float64{demo, builds}},
	} {
		page, err := os.ReadFile("../../" + tt.page)
		kit.Must(t, err)
		pattern := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(tt.text), "#", `(\d+)`))
		said := pattern.FindStringSubmatch(strings.Join(strings.Fields(string(page)), " "))
		if said == nil {
			t.Errorf("%s does not say %q", tt.page, tt.text)
			continue
		}
		for i, took := range tt.took {
			minutes, err := strconv.ParseFloat(said[i+1], 64)
			kit.Must(t, err)
			if minutes > 1.5*took || took > 1.5*minutes {
				t.Errorf("%s: %q: number %d is %s, but the last recorded run took %.1f minutes",
					tt.page, tt.text, i+1, said[i+1], took)
			}
		}
	}
}
