package fenceagent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// power maps what an agent said to a status question; it is the only place where an Off is made. An exit status alone is also what a
// shell gives for a file that is not there, and the line alone may have been written before something went wrong.
func (r result) power() providers.PowerState {
	switch {
	case r.code == 0 && r.stdout == "Status: ON\n":
		return providers.PowerOn
	case r.code == 2 && r.stdout == "Status: OFF\n":
		return providers.PowerOff
	default:
		return providers.PowerUnknown
	}
}

// word is the answer to a status question for the evidence: its line, or how it failed.
func (r result) word() string {
	said := strings.Join(strings.Fields(r.stdout), " ")
	switch {
	case said == "":
		return r.failure()
	case repeats(r.stdout, r.secrets):
		return "what it said repeats a secret"
	case r.power() == providers.PowerUnknown:
		return said + " (" + r.exit() + ")"
	}
	return said
}

// What agents say that ended with an error, in lower case: fencing.py's sentences, and what libraries below them say.
var (
	refused = []string{
		"login failed", "logon failed", "authentication fail", "authentication error", "unable to authenticate", "invalid credentials",
		"invalid user", "invalid password", "incorrect password", "wrong password", "incorrect access key", "unauthorized", "unauthorised",
		"permission denied (", "access denied", "rakp 2 hmac is invalid",
	}
	// maybeRefused is EC_LOGIN_DENIED: the prompt that a right password brings did not come, or nothing came at all.
	maybeRefused = "unable to connect/login to fencing device"

	classes = []struct {
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

// says tells whether the agent said any of these, on whichever output.
func (r result) says(any ...string) bool {
	said := strings.ToLower(r.stderr + "\n" + r.stdout)
	for _, words := range any {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// class is the class of a failure; what nobody knows may be cured by trying again.
func (r result) class() error {
	for _, c := range classes {
		if r.says(c.words...) {
			return c.class
		}
	}
	return providers.ErrUnreachable
}

var (
	stamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+: `) // fencing.py's log
	noise = regexp.MustCompile(`(?i)^please use '-h'|warning: |^from pipes import`)
)

// failure is how an agent failed: its exit status, and the last thing that it said, unless it has repeated a secret: a line may hold the
// rest of one.
func (r result) failure() string {
	last := ""
	for line := range strings.Lines(r.stdout + "\n" + r.stderr) {
		line = strings.TrimSpace(stamp.ReplaceAllString(line, ""))
		if line != "" && !noise.MatchString(line) {
			last = line
		}
	}
	switch {
	case last == "":
		return r.exit()
	case repeats(r.stdout, r.secrets), repeats(r.stderr, r.secrets):
		return r.exit() + ": what it said repeats a secret"
	}
	return r.exit() + ": " + providers.Text(errors.New(last))
}

func (r result) exit() string {
	if r.code < 0 {
		return "no agent's exit status"
	}
	return fmt.Sprintf("exit status %d", r.code)
}
