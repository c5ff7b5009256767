package fenceagent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// powerState maps what an agent said to a status question; it is the only place where an Off is made. An exit status alone is also what a
// shell gives for a file that is not there, and the line alone may have been written before something went wrong.
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

// statusText is the answer to a status question for the evidence: its line, or how it failed.
func (r result) statusText() string {
	line := strings.Join(strings.Fields(r.stdout), " ")
	switch {
	case line == "":
		return r.failureText()
	case hasSecret(r.stdout, r.secrets):
		return "what it said repeats a secret"
	case r.powerState() == providers.PowerUnknown:
		return line + " (" + r.exitText() + ")"
	}
	return line
}

// What agents say that ended with an error, in lower case: fencing.py's sentences, and what libraries below them say.
var (
	refusedPhrases = []string{
		"login failed", "logon failed", "authentication fail", "authentication error", "unable to authenticate", "invalid credentials",
		"invalid user", "invalid password", "incorrect password", "wrong password", "incorrect access key", "unauthorized", "unauthorised",
		"permission denied (", "access denied", "rakp 2 hmac is invalid",
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
			"unrecognised action", "failed: you have to", "is not a valid", "unable to run ", "modulenotfounderror", "importerror", "syntaxerror",
		}},
	}
)

// containsAny tells whether the agent said any of these, on whichever output.
func (r result) containsAny(any ...string) bool {
	output := strings.ToLower(r.stderr + "\n" + r.stdout)
	for _, words := range any {
		if strings.Contains(output, words) {
			return true
		}
	}
	return false
}

// errorClass is the class of a failure; what nobody knows may be cured by trying again.
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

// failureText is how an agent failed: its exit status, and the last thing that it said, unless it has repeated a secret: a line may hold the
// rest of one.
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
		return r.exitText() + ": what it said repeats a secret"
	}
	return r.exitText() + ": " + providers.ErrorText(errors.New(last))
}

func (r result) exitText() string {
	if r.code < 0 {
		return "no agent's exit status"
	}
	return fmt.Sprintf("exit status %d", r.code)
}
