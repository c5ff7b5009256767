package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

// docs/runbook.md is read at night: the commands in it exist, with the flags and as many arguments as it gives them.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	kit.Must(t, err)
	commands := regexp.MustCompile(`(?m)^forcefence (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) < 5 {
		t.Fatalf("got %d commands, want those of the page", len(commands))
	}
	for _, c := range commands {
		args := strings.Fields(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(c[1], "words"))
		cmd, rest, err := newRoot(all.Types()).Find(args)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || !cmd.Runnable() {
			t.Errorf("forcefence %s: runnable %t, %v", c[1], cmd.Runnable(), err)
		}
	}
}
