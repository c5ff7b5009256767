package fenceagent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// powerState maps an agent's answer to a status question. Off is returned nowhere else. It requires both exit status
// and line. A shell returns the same exit status for a missing file, and the line alone may precede a failure.
func (r result) powerState() providers.PowerState {
	switch {
	case r.code == 0 && r.stdout == "Status: ON\n":
		return providers.PowerOn
	case r.code == 2 && r.stdout == "Status: OFF\n":
		return providers.PowerOff
	default:
		return providers.PowerUnknown
	}
}

// statusText returns the answer to a status question as evidence: its line, or how it failed.
func (r result) statusText() string {
	line := strings.Join(strings.Fields(r.stdout), " ")
	switch {
	case line == "":
		return r.failureText()
	case hasSecret(r.stdout, r.secrets):
		return "the output repeats a secret"
	case r.powerState() == providers.PowerUnknown:
		return line + " (" + r.exitText() + ")"
	}
	return line
}

// The messages of agents that ended with an error, in lower case: fencing.py's sentences, and those of libraries below
// them.
var (
	refusedPhrases = []string{
		"login failed", "logon failed", "authentication fail", "authentication error", "unable to authenticate",
		"invalid credentials", "invalid user", "invalid password", "incorrect password", "wrong password",
		"incorrect access key", "unauthorized", "unauthorised", "permission denied (", "access denied",
		"rakp 2 hmac is invalid",
	}
	// maybeRefused is EC_LOGIN_DENIED: the prompt that a right password brings did not come, or nothing came at all.
	maybeRefused = "unable to connect/login to fencing device"

	classPhrases = []struct {
		class error
		words []string
	}{
		{providers.ErrDenied, []string{"does not have the correct privileges"}},
		{providers.ErrUnreachable, []string{"connection timed out", "connection lost"}},
		{providers.ErrNotFound, []string{"you have to enter existing", "can not find vm uuid"}},
		{providers.ErrPermanent, []string{
			"unrecognised action", "failed: you have to", "is not a valid", "unable to run ", "modulenotfounderror",
			"importerror", "syntaxerror",
		}},
	}
)

// containsAny reports whether either output of the agent contains any of these.
func (r result) containsAny(any ...string) bool {
	output := strings.ToLower(r.stderr + "\n" + r.stdout)
	for _, words := range any {
		if strings.Contains(output, words) {
			return true
		}
	}
	return false
}

// errorClass returns the class of a failure. An unknown failure may go away with a retry.
func (r result) errorClass() error {
	for _, c := range classPhrases {
		if r.containsAny(c.words...) {
			return c.class
		}
	}
	return providers.ErrUnreachable
}

var (
	stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+: `) // fencing.py's log
	noise = regexp.MustCompile(`(?i)^please use '-h'|warning: |^from pipes import`)
)

// failureText returns how an agent failed: its exit status and its last line. It omits the line if the output repeats a
// secret, because a line may hold the rest of one.
func (r result) failureText() string {
	last := ""
	for line := range strings.Lines(r.stdout + "\n" + r.stderr) {
		line = strings.TrimSpace(stamp.ReplaceAllString(line, ""))
		if line != "" && !noise.MatchString(line) {
			last = line
		}
	}
	switch {
	case last == "":
		return r.exitText()
	case hasSecret(r.stdout, r.secrets), hasSecret(r.stderr, r.secrets):
		return r.exitText() + ": the output repeats a secret"
	}
	return r.exitText() + ": " + providers.ErrorText(errors.New(last))
}

func (r result) exitText() string {
	if r.code < 0 {
		return "no agent's exit status"
	}
	return fmt.Sprintf("exit status %d", r.code)
}
