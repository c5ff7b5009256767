//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
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
