package fenceagent_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/providers/providertest"
)

// What agents say, and what it means.
func TestAnswers(t *testing.T) {
	const said = "echo '2026-11-22 12:00:00,000 ERROR: Failed: "
	for _, tt := range []struct {
		name, body string
		state      providers.PowerState
		raw        string
		class      string
	}{
		{"on", "echo 'Status: ON'; exit 0", providers.PowerOn, "Status: ON", "ok"},
		{"off", "echo 'Status: OFF'; exit 2", providers.PowerOff, "Status: OFF", "ok"},
		{"off without a word", "exit 2", providers.PowerUnknown, "", "unreachable"},
		{"off in other letters", "echo 'Status: off'; exit 2", providers.PowerUnknown, "Status: off (exit status 2)",
			"ok"},
		{"off, and no line's end", "printf 'Status: OFF'; exit 2", providers.PowerUnknown,
			"Status: OFF (exit status 2)", "ok"},
		{"off, and more", "echo 'Status: OFF'; echo Traceback; exit 2", providers.PowerUnknown,
			"Status: OFF Traceback (exit status 2)", "ok"},
		{"off after something", "echo 'outlet'; echo 'Status: OFF'; exit 2", providers.PowerUnknown, "", "unreachable"},
		{"off, and an error's status", "echo 'Status: OFF'; exit 1", providers.PowerUnknown,
			"Status: OFF (exit status 1)", "ok"},
		{"off, and on's status", "echo 'Status: OFF'; exit 0", providers.PowerUnknown, "Status: OFF (exit status 0)",
			"ok"},
		{"off, and a status that wraps around", "echo 'Status: OFF'; exit 66", providers.PowerUnknown,
			"Status: OFF (no agent's exit status)", "ok"},
		{"off, then killed", "echo 'Status: OFF'; kill -9 $$", providers.PowerUnknown,
			"Status: OFF (no agent's exit status)", "ok"},
		{"on, and off's status", "echo 'Status: ON'; exit 2", providers.PowerUnknown, "Status: ON (exit status 2)",
			"ok"},
		{"off on the wrong output", "echo 'Status: OFF' >&2; exit 2", providers.PowerUnknown, "", "unreachable"},
		{"an unknown word", "echo 'Status: PAUSED'; exit 3", providers.PowerUnknown,
			"Status: PAUSED (exit status 3)", "ok"},
		{"a shell's syntax error", "if then", providers.PowerUnknown, "", "unreachable"},
		{"a file that is not there", "exec /bin/sh " + filepath.Join(t.TempDir(), "none"), providers.PowerUnknown, "",
			"unreachable"},
		{"no such machine", said + "You have to enter existing machine!' >&2; exit 1", providers.PowerUnknown, "",
			"not_found"},
		{"no rights", said + "The user does not have the correct privileges to do the requested action.' >&2; exit 1",
			providers.PowerUnknown, "", "denied"},
		{"an option is missing", said + "You have to enter fence address' >&2; exit 1", providers.PowerUnknown, "",
			"permanent"},
		{"a program is missing", "echo 'Unable to run /usr/bin/ipmitool' >&2; exit 1", providers.PowerUnknown, "",
			"permanent"},
		{"no answer", "echo 'Connection timed out' >&2; exit 1", providers.PowerUnknown, "", "unreachable"},
		{"refused", "echo 'Login failed' >&2; exit 1", providers.PowerUnknown, "", "denied"},
		{
			"no status", "echo 'Failed: Unable to obtain correct plug status or plug is not available' >&2; exit 1",
			providers.PowerUnknown,
			"exit status 1: Failed: Unable to obtain correct plug status or plug is not available", "ok",
		},
		{"output without end", "yes 'Status: OFF' | head -c 10000000; exit 2", providers.PowerUnknown,
			strings.Repeat("Status: OFF ", 20), "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := script(t, tt.body)
			p := newProvider(t, c, nil)
			sayOn(t, c, p)
			wants(t, ask(t, p, n1), tt.state, tt.raw, tt.class)
		})
	}
}

// An agent that guesses says OFF of what is not there. Its OFF counts once it has said ON of that very machine, in this
// process. One that does not guess is believed at once.
func TestOffBeforeOn(t *testing.T) {
	const never = "Status: OFF, but the agent never reported ON for this machine"
	off := "echo 'Status: OFF'; exit 2"
	n2 := providers.Target{Node: "n2", ID: "2"}
	c := script(t, off)
	p := newProvider(t, c, nil)
	for range 2 {
		wants(t, ask(t, p, n1), providers.PowerUnknown, never, "ok")
	}
	sayOn(t, c, p)
	for range 2 {
		wants(t, ask(t, p, n1), providers.PowerOff, "Status: OFF", "ok")
	}
	wants(t, ask(t, p, n2), providers.PowerUnknown, never, "ok")
	wants(t, ask(t, newProvider(t, c, nil), n1), providers.PowerUnknown, never, "ok")

	for name, want := range map[string]providers.PowerState{
		"fence_hetzner_cloud": providers.PowerOff, "fence_nutanix_ahv": providers.PowerUnknown} {
		c := script(t, off)
		must(t, os.Rename(filepath.Join(c.Dir, c.Agent), filepath.Join(c.Dir, name)))
		c.Agent = name
		if a := ask(t, newProvider(t, c, nil), n1); a.State != want || a.Err != nil {
			t.Errorf("%s: got %s (%q), %v; want %s", name, a.State, a.Raw, a.Err, want)
		}
	}
}

// The agents that upstream added after Debian's: what is needed to use them. Their metadata here names the options that
// decide it.
func TestNewerAgents(t *testing.T) {
	plug := []string{"ip", "plug"}
	for _, tt := range []struct {
		agent    string
		metadata []string
		options  map[string]string
		want     string
	}{
		{"fence_amt_ws", []string{"ip", "port_as_ip"}, nil, "allowInsecure"},
		{"fence_aws_vpc_net", plug, nil, "agent"},
		{"fence_eaton_ssh", []string{"ip", "plug", "ssh", "ssh_options"},
			map[string]string{"ssh": "1", "ssh_options": "-o StrictHostKeyChecking=yes"}, ""},
		{"fence_epsr2", plug, nil, "allowInsecure"},
		{"fence_hetzner_cloud", []string{"api_url", "plug"}, nil, ""},
		{"fence_hetzner_cloud", []string{"api_url", "plug"}, map[string]string{"api_url": "http://10.0.0.7"},
			"allowInsecure"},
		{"fence_nutanix_ahv", []string{"ip", "plug", "ssl"}, map[string]string{"ssl": "1"}, "allowGuessedOff"},
		{"fence_ovm", []string{"ip", "plug", "ssl"}, map[string]string{"ssl": "1"}, "allowGuessedOff"},
		{"fence_shelly_gen2", []string{"ip", "plug", "ssl"}, nil, "allowInsecure"},
		{"fence_shelly_gen2", []string{"ip", "plug", "ssl"}, map[string]string{"ssl": "1"}, ""},
		{"fence_virt", plug, nil, "allowGuessedOff allowInsecure"},
		{"fence_xvm", plug, nil, "allowGuessedOff allowInsecure"},
	} {
		var parameters string
		for _, name := range tt.metadata {
			parameters += `<parameter name="` + name + `"/>`
		}
		c := agent(t,
			`echo '<resource-agent><parameters>`+parameters+`</parameters><actions>`+actions+
				`</actions></resource-agent>'`, "")
		must(t, os.Rename(filepath.Join(c.Dir, c.Agent), filepath.Join(c.Dir, tt.agent)))
		c.Agent, c.Options, c.AllowGuessedOff, c.AllowInsecure = tt.agent, tt.options, false, false
		if got := paths(c.Validate()); got != tt.want {
			t.Errorf("%s %v: problems at %q, want %q", tt.agent, tt.options, got, tt.want)
		}
		c.AllowGuessedOff, c.AllowInsecure = true, true
		if got := paths(c.Validate()); (got != "") != (tt.want == "agent") {
			t.Errorf("%s: with all that is allowed, problems at %q", tt.agent, got)
		}
		if want := tt.agent == "fence_amt_ws"; c.HasAddressIDs() != want {
			t.Errorf("%s: an ID is an address: %t, want %t", tt.agent, !want, want)
		}
	}
}

// An off that was sent, and that the agent waited for in vain, was accepted; any other failure was not.
func TestPowerActions(t *testing.T) {
	for _, tt := range []struct{ name, body, class string }{
		{"done", "exit 0", "ok"},
		{"accepted", "echo 'Failed: Timed out waiting to power OFF' >&2; exit 1", "ok"},
		{"the other action's words", "echo 'Failed: Timed out waiting to power ON' >&2; exit 1", "unreachable"},
		{"failed", "echo 'Connection lost' >&2; exit 1", "unreachable"},
		{"no status first", "echo 'Failed: Unable to obtain correct plug status or plug is not available' >&2; exit 1",
			"unreachable"},
		{"a status is no off", "echo 'Status: OFF'; exit 2", "unreachable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := script(t, tt.body)
			err := newProvider(t, c, nil).PowerOff(t.Context(), n1, providertest.AllowSend)
			if providers.ErrorClass(err) != tt.class {
				t.Errorf("got %v, want %s", err, tt.class)
			}
			if in := read(t, c.Dir, "input"); !strings.HasPrefix(in, "action=off\nplug=1") {
				t.Errorf("the agent was given %q", in)
			}
		})
	}
}

// What an agent gets: the action first, each value on one line, no secret but on its input, nothing open, none of our
// environment.
func TestInput(t *testing.T) {
	t.Setenv("BMC_PASSWORD", "hunter2")
	leak := inherited(t)
	c := script(t, `env > "$dir/env"; echo "$0" "$@" > "$dir/args"
i=0; while [ $i -lt 1024 ]; do [ -e /proc/$$/fd/$i ] && echo $i; i=$((i+1)); done > "$dir/fds"
echo 'Status: ON'`)
	c.Options = map[string]string{"word": "a b=c"}
	c.Secrets = passwordIn(secret(t, "hunter2\n"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := newProvider(t, c, nil).State(ctx, n1); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if got, want := read(t, c.Dir,
		"input"), "action=status\nplug=1\nword=a b=c\npassword=hunter2\nlogin_timeout=2"; got != want {
		t.Errorf("input: got %q, want %q", got, want)
	}
	for _, file := range []string{"env", "args"} {
		if got := read(t, c.Dir, file); strings.Contains(got, "hunter2") {
			t.Errorf("%s: the secret is in %q", file, got)
		}
	}
	// A shell keeps what it needs at 10 and above.
	for _, fd := range strings.Fields(read(t, c.Dir, "fds")) {
		if !slices.Contains([]string{"0", "1", "2", "10", "11", "12"}, fd) {
			t.Errorf("the agent has %s open; %s is one that we inherited", fd, leak)
		}
	}
}

// Values that an agent would misread are refused, from every source.
func TestValuesThatAgentsMisread(t *testing.T) {
	for _, value := range []string{
		"x\naction=off", "x\raction=off", "x\x00", "x ", " x", "\u2003x", `"x"`, "x\xff", "x\u0085y"} {
		c := script(t, "touch \"$dir/ran\"")
		c.Options = map[string]string{"word": value}
		c.Secrets = passwordIn(secret(t, value+"\n"))
		if got := paths(c.Validate()); got != "options.word secrets[0].file" {
			t.Errorf("%q: problems at %q", value, got)
		}
		// A secret may change after the file was read.
		c = script(t, "touch \"$dir/ran\"")
		c.Secrets = passwordIn(secret(t, "fine"))
		p := newProvider(t, c, nil)
		must(t, os.WriteFile(c.Secrets[0].File, []byte(value+"\n"), 0o600))
		a := ask(t, p, n1)
		wants(t, a, providers.PowerUnknown, "", "permanent")
		if strings.Contains(a.Err.Error(), value) {
			t.Errorf("%q: the error repeats it: %v", value, a.Err)
		}
		if _, err := os.Stat(filepath.Join(c.Dir, "ran")); err == nil {
			t.Errorf("%q: the agent was run", value)
		}
	}
	c := script(t, "")
	c.Secrets = passwordIn(secret(t, strings.Repeat("x", 5000)))
	wants(t, ask(t, newProvider(t, c, nil), n1), providers.PowerUnknown, "", "permanent")
	c = script(t, "touch \"$dir/ran\"")
	c.Secrets = passwordIn(secret(t, "fine"))
	p := newProvider(t, c, nil)
	must(t, os.Remove(c.Secrets[0].File))
	wants(t, ask(t, p, n1), providers.PowerUnknown, "", "denied")
}

// No message repeats a secret, in none of the forms that agents and their libraries print it in, nor a part of one that
// was cut.
func TestSecretsInMessages(t *testing.T) {
	const password = `hun ter&2/"'x`
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	wrapped := regexp.MustCompile(".{76}").
		ReplaceAllString(b64("a-user-with-quite-a-long-name-of-forty-seven-bytes:"+password), "$0\n")
	for _, tt := range []struct {
		name, output string
		shown        bool
	}{
		{"none", "Cannot reach https://fence@10.0.0.7", true},
		{"another's base64", "Cannot reach Basic " + b64("fence:hup tar&2"), true},
		{"as it is", "Cannot reach https://fence:" + password + "@10.0.0.7", false},
		{"in an earlier line", "-P " + password + "\nCannot reach", false},
		{"query", "Cannot reach ?p=hun+ter%262%2F%22%27x&x=1", false},
		{"path", "Cannot reach https://fence:hun%20ter&2%2F%22%27x@10.0.0.7", false},
		{"Python's quote", "Cannot reach hun%20ter%262/%22%27x here", false},
		{"small letters", "Cannot reach hun%20ter%262%2f%22%27x here", false},
		{"Python's shlex", `Cannot run -P 'hun ter&2/"'"'"'x' here`, false},
		{"a shell's quotes", `Cannot run -P 'hun ter&2/"'\''x' here`, false},
		{"backslashes", `Cannot run -P hun\ ter\&2/\"\'x here`, false},
		{"Python's repr", `Cannot send 'hun ter&2/"\'x' here`, false},
		{"JSON", `Cannot send "hun ter\u00262\/\"'x" here`, false},
		{"XML", "Cannot send <p>hun ter&amp;2/&quot;&apos;x</p> here", false},
		{"an address in XML", "Cannot reach <a>https://fence:hun%20ter&amp;2%2F%22%27x@10.0.0.7</a>", false},
		{"hexadecimal", "Cannot send " + hex.EncodeToString([]byte(password)) + " here", false},
		{"a dump", "Cannot send 68 75 6E 20 74 65 72 26 32 2F 22 27 78 here", false},
		{"bytes", `Cannot send \x68\x75\x6e\x20\x74\x65\x72\x26\x32\x2f\x22\x27\x78 here`, false},
		{"base64", "Cannot send " + b64(password) + " here", false},
		{"base64 for addresses", "Cannot send " + base64.URLEncoding.EncodeToString([]byte(password)) + " here", false},
		{"user of 1", "Authorization: Basic " + b64("u:"+password) + " was refused", false},
		{"user of 2", "Authorization: Basic " + b64("us:"+password) + " was refused", false},
		{"user of 3", "Authorization: Basic " + b64("use:"+password) + " was refused", false},
		{"with more behind it", "Cannot send " + b64("u:"+password+"\n") + " here", false},
		{"base64 in lines", "Authorization: Basic " + wrapped, false},
		{"Python's bytes in lines", "Authorization: " + strings.ReplaceAll(wrapped, "\n", `\n`) + " was refused",
			false},
		{"cut", "Cannot reach https://fence:hun te", false},
		{"cut with dots", "Cannot reach https://fence:hun ter&...", false},
		{"cut base64", "Authorization: Basic " + b64("use:" + password)[:12], false},
		{"cut hexadecimal", "Cannot send 68756e2074", false},
		{"cut by us", strings.Repeat(" ", 64<<10-6) + "hun ter&2", false},
		{"far from the end of a line", "Cannot reach " + password + strings.Repeat(" x", 2048), false},
	} {
		for _, to := range []string{"", ">&2"} {
			c := script(t, "cat <<'END' "+to+"\n"+tt.output+"\nEND\nexit 1")
			c.Secrets = passwordIn(secret(t, password))
			a := ask(t, newProvider(t, c, nil), n1)
			if a.Raw != "" || a.Err == nil {
				t.Fatalf("%s: got %q, %v", tt.name, a.Raw, a.Err)
			}
			const hidden = "exit status 1: the output repeats a secret"
			if got := providers.ErrorText(a.Err); (got != hidden) != tt.shown ||
				tt.shown && !strings.Contains(got, "Cannot reach") {
				t.Errorf("%s %s: got %q, want shown: %t", tt.name, to, got, tt.shown)
			}
		}
	}
	for _, short := range []string{"+", "ab", "äß"} {
		c := script(t, "echo 'Cannot reach "+short+" here'; exit 1")
		c.Secrets = passwordIn(secret(t, short))
		if a := ask(t, newProvider(t, c, nil), n1); strings.Contains(a.Err.Error(), "reach") {
			t.Errorf("%q: got %v", short, a.Err)
		}
	}
	c := script(t, `echo "Status: $(echo "$input" | grep password)"`)
	c.Secrets = passwordIn(secret(t, password))
	wants(t, ask(t, newProvider(t, c, nil), n1), providers.PowerUnknown, "the output repeats a secret", "ok")
}

// A password that was refused is not sent again; one that may have been, once more. Another one is sent at once.
func TestRefusedPasswords(t *testing.T) {
	const (
		denied   = "echo 'Login failed' >&2; exit 1"
		maybe    = "echo 'Unable to connect/login to fencing device' >&2; exit 1"
		noStatus = "echo 'Failed: Unable to obtain correct plug status or plug is not available' >&2; exit 1"
	)
	for _, tt := range []struct {
		name, body string
		runs       int
		class      string
		held       time.Duration
	}{
		{"refused", denied, 1, "denied", 15 * time.Minute},
		{"perhaps", maybe, 2, "unreachable", fenceagent.MaybeRefusedFor},
		{"perhaps, and the first may be a strange word", noStatus, 2, "unreachable", fenceagent.MaybeRefusedFor},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			c := script(t, "echo >> \"$dir/runs\"; "+tt.body)
			c.Secrets = passwordIn(secret(t, "old"))
			p := newProvider(t, c, func() time.Time { return now })
			wantRuns := func(want int) {
				t.Helper()
				if got := strings.Count(read(t, c.Dir, "runs"), "\n"); got != want {
					t.Errorf("the agent was run %d times, want %d", got, want)
				}
			}
			call := func(n providers.Target) {
				t.Helper()
				_, err := p.State(t.Context(), n)
				if providers.ErrorClass(err) != tt.class && (tt.body != noStatus || err != nil) {
					t.Errorf("got %v, want %s", err, tt.class)
				}
			}
			for range 4 {
				call(n1)
			}
			call(providers.Target{Node: "n2", ID: "2"}) // another plug of the same device
			if err := p.PowerOff(t.Context(), n1, providertest.AllowSend); providers.ErrorClass(err) != tt.class {
				t.Errorf("PowerOff: got %v, want %s", err, tt.class)
			}
			wantRuns(tt.runs)
			must(t, os.WriteFile(c.Secrets[0].File, []byte("new"), 0o600))
			call(n1)
			wantRuns(tt.runs + 1)
			now = now.Add(tt.held - time.Second)
			call(n1)
			wantRuns(tt.runs + 1)
			now = now.Add(2 * time.Second)
			call(n1)
			wantRuns(tt.runs + 2)
		})
	}
}

// An answer in between shows that the password is right.
func TestPerhapsRefusedOnceInAWhile(t *testing.T) {
	c := script(t,
		`if [ -e "$dir/bad" ]; then rm "$dir/bad"; echo 'Unable to connect/login to fencing device' >&2; exit 1; fi
echo 'Status: ON'`)
	p := newProvider(t, c, nil)
	for range 3 {
		must(t, os.WriteFile(filepath.Join(c.Dir, "bad"), nil, 0o600))
		wants(t, ask(t, p, n1), providers.PowerUnknown, "", "unreachable")
		wants(t, ask(t, p, n1), providers.PowerOn, "Status: ON", "ok")
	}
}

func TestNoID(t *testing.T) {
	c := script(t, "touch \"$dir/ran\"")
	p := newProvider(t, c, nil)
	for _, id := range []string{"", "1,2", "1;reboot", "-oProxyCommand=x"} {
		wants(t, ask(t, p, providers.Target{Node: "n1", ID: id, SystemUUID: "1-2"}), providers.PowerUnknown, "",
			"not_found")
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "ran")); err == nil {
		t.Error("the agent was run")
	}
}

// Each machine's user and password go into the agent's input for that machine, and a refused one is no matter of
// another's.
func TestEachMachineItsPassword(t *testing.T) {
	folder := t.TempDir()
	write := func(node, password string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(folder, node), []byte(password), 0o600))
	}
	write("n1", "password-of-n1")
	write("n2", "password-of-n2")
	write("n4", "two\nlines")
	write("n5", "password-of-n5") // refused, too: neither is sent again because the other was sent meanwhile
	c := agent(t,
		`echo '<resource-agent name="fence_script"><parameters>`+parameters+
			`<parameter name="username"/></parameters><actions>`+actions+`</actions></resource-agent>'`,
		`echo >> "$dir/runs"
case $input in *password-of-n1*) echo 'Status: ON';; *) echo 'Login failed' >&2; exit 1;; esac`)
	c.Options, c.Secrets = map[string]string{"username": "fence-{name}"}, passwordIn(folder+"/{name}")
	p := newProvider(t, c, nil)
	of := func(node string) providers.Target { return providers.Target{Node: node, ID: "1"} }
	wants(t, ask(t, p, of("n1")), providers.PowerOn, "Status: ON", "ok")
	if in := read(t, c.Dir, "input"); !strings.Contains(in, "\nusername=fence-n1\n") ||
		!strings.Contains(in+"\n", "\npassword=password-of-n1\n") {
		t.Errorf("got input %q", in)
	}
	for range 2 {
		wants(t, ask(t, p, of("n2")), providers.PowerUnknown, "", "denied")
		wants(t, ask(t, p, of("n5")), providers.PowerUnknown, "", "denied")
		wants(t, ask(t, p, of("n3")), providers.PowerUnknown, "", "denied")
		wants(t, ask(t, p, of("n4")), providers.PowerUnknown, "", "permanent")
		wants(t, ask(t, p, of("../n1")), providers.PowerUnknown, "", "denied")
		wants(t, ask(t, p, of("n1")), providers.PowerOn, "Status: ON", "ok")
	}
	if runs := strings.Count(read(t, c.Dir, "runs"), "\n"); runs != 5 {
		t.Errorf("got %d runs, want n1's three, one of n2's and one of n5's", runs)
	}
	c.Options["username"] = "{label:user}"
	if got := paths(c.Validate()); got != "options.username" {
		t.Errorf("a label: problems at %q", got)
	}
}
