package fenceagent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asChild); dir != "" {
		c := &fenceagent.Config{Agent: "fence_script", Dir: dir, AllowGuessedOff: true, AllowInsecure: true}
		p, err := fenceagent.New(c, providers.Options{})
		if err == nil {
			_, err = p.State(context.Background(), n1)
		}
		fmt.Println(err)
		return
	}
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

// asChild names a folder with an agent: then this program is the one that is killed while it asks.
const asChild = "FORCEFENCE_TEST_FENCEAGENT_CHILD"

// timeout is far more than any call here takes that is not meant to run out of time: other packages' tests share the
// machine.
const timeout = time.Minute

// sbin is where Debian has its agents, and what they call.
const sbin = "/usr/sbin"

var must = kit.Must

// needs skips a test where a program of Debian's packages fence-agents or ipmitool is missing, unless it is required.
func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := os.Stat(program); err != nil {
			if os.Getenv("FORCEFENCE_REQUIRE_FENCEAGENT") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

const (
	parameters = `<parameter name="action" required="1"/><parameter name="plug" required="1"/>
<parameter name="password"/><parameter name="word"/><parameter name="verbose"/><parameter name="login_timeout"/>`
	actions = `<action name="on" automatic="0"/><action name="off"/><action name="status"/>`
)

// script makes an unknown agent. body is what it does for a status, with its input in $input and its
// folder in $dir.
func script(t testing.TB, body string) *fenceagent.Config {
	t.Helper()
	return agent(t,
		`echo '<resource-agent name="fence_script"><parameters>`+parameters+`</parameters><actions>`+actions+
			`</actions></resource-agent>'`, body)
}

// agent is script with commands that print its metadata.
func agent(t testing.TB, metadata, body string) *fenceagent.Config {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "fence_script"), []byte(`#!/bin/sh
dir='`+dir+`'
input=$(cat)
case $input in action=metadata*)
	`+metadata+`
	exit 0
esac
if [ -e "$dir/on" ]; then
	rm "$dir/on"
	echo 'Status: ON'
	exit 0
fi
printf '%s' "$input" > "$dir/input"
`+body), 0o700))
	return &fenceagent.Config{Agent: "fence_script", Dir: dir, AllowGuessedOff: true, AllowInsecure: true}
}

// secret writes a secret's file.
func secret(t testing.TB, value string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(value), 0o600))
	return file
}

// passwordIn is an agent's password in that file.
func passwordIn(file string) []fenceagent.Secret {
	return []fenceagent.Secret{{Option: "password", File: file}}
}

func newProvider(t testing.TB, c *fenceagent.Config, now func() time.Time) *fenceagent.Provider {
	t.Helper()
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := fenceagent.New(c, providers.Options{Name: "rack-a", Log: slog.New(slog.DiscardHandler), Now: now})
	must(t, err)
	return p
}

var n1 = providers.Target{Node: "n1", ID: "1"}

func ask(t testing.TB, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return providers.Ask(ctx, p, "test", of, providers.Now)
}

// sayOn lets a script's agent say ON of n1 once, as one that guesses must before its OFF counts.
func sayOn(t testing.TB, c *fenceagent.Config, p providers.Provider) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(c.Dir, "on"), nil, 0o600))
	wants(t, ask(t, p, n1), providers.PowerOn, "Status: ON", "ok")
}

// wants compares an answer's state, word, and class of error.
func wants(t testing.TB, a providers.Answer, state providers.PowerState, raw, class string) {
	t.Helper()
	if a.State != state || a.Raw != raw || providers.ErrorClass(a.Err) != class {
		t.Errorf("got %s (%q), %s %v; want %s (%q), %s", a.State, a.Raw, providers.ErrorClass(a.Err), a.Err, state, raw,
			class)
	}
}

func paths(problems []providers.Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Path)
	}
	return strings.Join(out, " ")
}

// read returns a file's content.
func read(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return string(b)
}
