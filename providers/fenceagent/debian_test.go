package fenceagent_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// Every agent of Debian is known, its metadata can be read, and says what we know of it: which option takes an ID, and
// whether its off cuts the power.
func TestDebiansAgents(t *testing.T) {
	needs(t, sbin+"/fence_dummy", sbin+"/fence_virsh")
	agents, err := filepath.Glob(sbin + "/fence_*")
	must(t, err)
	var wait sync.WaitGroup
	turns := make(chan struct{}, 2)
	for _, path := range agents {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			name := filepath.Base(path)
			if got := fenceagent.Contradictions(name, sbin); got != "" {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
	wait.Wait()
}

// An agent that guesses is refused without the word for it, one that cannot serve in any case, and one that knows the
// device's own words for off is not.
func TestWhichAgents(t *testing.T) {
	needs(t, sbin+"/fence_dummy", sbin+"/fence_virsh", sbin+"/fence_scsi", sbin+"/fence_apc", sbin+"/fence_bladecenter")
	for _, tt := range []struct{ agent, without, with string }{
		{"fence_virsh", "allowGuessedOff", ""},
		{"fence_bladecenter", "", ""},
		{"fence_apc", "allowGuessedOff", ""},
		{"fence_raritan_px3", "allowGuessedOff", ""},
		{"fence_scsi", "agent", "agent"},
		{"fence_cdu", "agent", "agent"},
		{"fence_nobody_wrote_it", "allowGuessedOff agent", "agent"},
		{"/usr/sbin/fence_apc", "agent", "agent"},
		{"", "agent", "agent"},
	} {
		c := &fenceagent.Config{Agent: tt.agent, Dir: sbin, AllowInsecure: true}
		if strings.HasPrefix(tt.agent, "fence_") && tt.agent != "fence_scsi" {
			c.Options = map[string]string{"ip": "10.0.0.7", "username": "fence"}
			c.Secrets = passwordIn(secret(t, "hunter2"))
		}
		if got := paths(c.Validate()); got != tt.without {
			t.Errorf("%q: problems at %q, want %q", tt.agent, got, tt.without)
		}
		c.AllowGuessedOff = true
		if got := paths(c.Validate()); got != tt.with {
			t.Errorf("%q, guesses allowed: problems at %q, want %q", tt.agent, got, tt.with)
		}
	}
}

// A power strip that these agents type into says that outlet 1 is on, and they say OFF: that is why they need the word
// for guesses.
func TestAgentsThatGuess(t *testing.T) {
	needs(t, sbin+"/fence_apc", sbin+"/fence_raritan_px3")
	const strip = `#!/bin/sh
# what a telnet to the strip shows: the agent's two commands to telnet, then the log-in, then an answer to each line
say() { printf "$1"; }
stty -isig igncr # an agent's Ctrl-C is for the strip, and its lines end with CR and LF
read set; read open
say 'Username: '; read user
say 'Password : '; read password
`
	for _, tt := range []struct{ agent, shows string }{
		{"fence_raritan_px3", `say '[My PDU] # '
while read line; do case $line in
*outlets*) say 'Outlet 1 - db:\r\nPower state: On\r\n\r\nOutlet 2 - spare one:\r\nPower state: Off\r\n\r\n[My PDU] # ';;
esac; done`},
		{"fence_apc", `say '\n> '
while read line; do
	say '1- Outlet Management\r\n2- Outlet Control/Configuration\r\n     1- web OFFICE               ON\r\n'
	say '     2- db                       ON\r\n4- Logout\r\n> '
done`},
	} {
		telnet := filepath.Join(t.TempDir(), "telnet")
		must(t, os.WriteFile(telnet, []byte(strip+tt.shows+"\n"), 0o700))
		c := &fenceagent.Config{
			Agent: tt.agent, Dir: sbin,
			Options: map[string]string{"ip": "127.0.0.1", "username": "fence", "telnet_path": telnet},
			Secrets: passwordIn(secret(t, "hunter2")), AllowInsecure: true,
		}
		if got := paths(c.Validate()); got != "allowGuessedOff" {
			t.Errorf("%s: problems at %q", tt.agent, got)
		}
		c.AllowGuessedOff = true
		const never = "Status: OFF, but the agent never reported ON for this machine"
		wants(t, ask(t, newProvider(t, c, nil), n1), providers.PowerUnknown, never, "ok")
	}
}

// Options are held against the agent's metadata: an agent only warns of those it does not know.
func TestOptions(t *testing.T) {
	needs(t, sbin+"/fence_apc", sbin+"/fence_ipmilan", sbin+"/fence_virsh")
	for _, tt := range []struct {
		agent   string
		options map[string]string
		secrets []string
		want    string
	}{
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "ssh": "1"}, []string{"password"}, ""},
		{"fence_apc", map[string]string{"ipaddr": "x", "login": "y"}, []string{"passwd"}, ""},
		{"fence_apc", map[string]string{"ip": "x", "ipaddr": "x", "username": "y"}, nil, "options.ipaddr"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "passwd": "hunter2"}, []string{"password"},
			"options.passwd secrets[0].option"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "pasword": "z"}, nil, "options.pasword"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y"}, []string{"pass"}, "secrets[0].option"},
		{"fence_apc", map[string]string{"ssh": "1"}, nil, "options.ip options.username"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "plug": "1"}, nil, "options.plug"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "port": "1"}, nil, "options.port"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "action": "on"}, nil, "options.action"},
		{"fence_apc",
			map[string]string{"ip": "x", "username": "y", "verbose": "1", "debug": "/x", "quiet": "1", "delay": "9",
				"disable_timeout": "1"},
			nil, "options.debug options.delay options.disable_timeout options.quiet options.verbose"},
		{"fence_ipmilan", map[string]string{"lanplus": "1", "username": "y"}, []string{"password", "hexadecimal_kg"},
			""},
		{"fence_ipmilan", map[string]string{"ip": "10.0.0.7"}, nil, "options.ip"},
		{"fence_ipmilan", map[string]string{"ipaddr": "10.0.0.7"}, nil, "options.ipaddr"},
		{"fence_ipmilan", map[string]string{"port_as_ip": "1"}, nil, "options.port_as_ip"},
		{"fence_ipmilan", map[string]string{"hexadecimal_kg": "00"}, nil, "options.hexadecimal_kg"},
		{"fence_virsh", map[string]string{"ip": "x", "username": "y", "missing_as_off": "1"}, nil,
			"options.missing_as_off"},
		{"fence_ipmilan", map[string]string{"use_sudo": "1"}, nil, "options.use_sudo"},
		{"fence_ipmilan", map[string]string{"sudo": "1"}, nil, "options.sudo"},
	} {
		c := &fenceagent.Config{Agent: tt.agent, Dir: sbin, Options: tt.options, AllowGuessedOff: true,
			AllowInsecure: true}
		for _, key := range tt.secrets {
			c.Secrets = append(c.Secrets, fenceagent.Secret{Option: key, File: secret(t, "hunter2")})
		}
		if got := paths(c.Validate()); got != tt.want {
			t.Errorf("%s %v %v: problems at %q, want %q", tt.agent, tt.options, tt.secrets, got, tt.want)
		}
	}
}

// An agent that would send a password in clear text, or to an unverified device, needs allowInsecure; the
// fault says what to do instead.
func TestInsecureAgents(t *testing.T) {
	needs(t, sbin+"/fence_apc", sbin+"/fence_apc_snmp", sbin+"/fence_ipmilan", sbin+"/fence_virsh",
		sbin+"/fence_redfish")
	const checked = "-o StrictHostKeyChecking=yes"
	for _, tt := range []struct {
		agent   string
		options map[string]string
		instead string // "": it is not insecure
	}{
		{"fence_apc", nil, `options.ssh: "1"`},
		{"fence_apc", map[string]string{"ssh": "0"}, `options.ssh: "1"`},
		{"fence_apc", map[string]string{"ssh": "1"}, checked + ` (it is "-1 -c blowfish")`},
		{"fence_apc", map[string]string{"secure": "on", "ssh_options": checked}, ""},
		{"fence_apc", map[string]string{"ssh": "1", "ssh_options": "-oStrictHostKeyChecking=yes -o " +
			"UserKnownHostsFile=/etc/hosts.ssh"}, ""},
		{"fence_apc", map[string]string{"ssh": "1", "ssh_options": "-o StrictHostKeyChecking=no " + checked}, checked},
		{"fence_apc", map[string]string{"ssh": "1", "ssh_options": "-o StrictHostKeyChecking=yes-not"}, checked},
		{"fence_virsh", nil, checked},
		{"fence_virsh", map[string]string{"ssh_options": "-t '/bin/bash --norc' " + checked}, checked}, // bash gets it
		{"fence_virsh", map[string]string{"ssh_options": checked + " -t '/bin/bash --norc'"}, ""},
		{"fence_drac", nil, "it knows nothing else"},
		{"fence_eps", nil, "it knows nothing else"},
		{"fence_amt", nil, "it knows nothing else"},
		{"fence_aliyun", nil, "plain HTTP"},
		{"fence_powerman", nil, "no password"},
		{"fence_vmware_rest", nil, `options.ssl: "1"`},
		{"fence_vmware_rest", map[string]string{"ssl": "1"}, ""},
		{"fence_vmware_rest", map[string]string{"ssl_secure": "1"}, ""},
		{"fence_vmware_rest", map[string]string{"ssl": "1", "ssl_insecure": "0"}, "leave that out"},
		{"fence_redfish", nil, ""},
		{"fence_redfish", map[string]string{"ssl": "0"}, `options.ssl: "1"`},
		{"fence_redfish", map[string]string{"ssl_insecure": "1"}, "leave that out"},
		{"fence_ilo", map[string]string{"notls": "1"}, "leave that out"},
		{"fence_kubevirt", map[string]string{"ssl_insecure": "1"}, "leave that out"},
		{"fence_apc_snmp", nil, `options.snmp_version: "3"`},
		{"fence_apc_snmp", map[string]string{"snmp_version": "2c"}, `options.snmp_version: "3"`},
		{"fence_apc_snmp", map[string]string{"snmp_version": "3"}, "options.snmp_sec_level: authPriv"},
		{"fence_apc_snmp", map[string]string{"snmp_version": "3", "snmp_sec_level": "noAuthNoPriv"},
			"options.snmp_sec_level: authPriv"},
		{"fence_apc_snmp", map[string]string{"snmp_version": "3", "snmp_sec_level": "authPriv"}, ""},
		{"fence_ipmilan", nil, `options.lanplus: "1"`},
		{"fence_ipmilan", map[string]string{"lanplus": "1"}, ""},
		{"fence_ipmilan", map[string]string{"lanplus": "1", "cipher": "0"}, `options.cipher: "17"`},
		{"fence_ilo4", nil, ""},
		{"fence_xenapi", map[string]string{"session_url": "HTTP://xen.example.net"}, "write https://"},
		{"fence_xenapi", map[string]string{"session_url": "https://xen.example.net"}, ""},
		{"fence_ibm_vpc", map[string]string{"proxy": "http://proxy.example.net:3128"}, ""}, // it carries TLS
		{"fence_dummy", nil, ""},
		{"fence_scsi", nil, ""}, // it is refused for another reason
	} {
		c := &fenceagent.Config{Agent: tt.agent, Dir: sbin, Options: tt.options, AllowGuessedOff: true}
		var got string
		for _, p := range c.Validate() {
			if p.Path == "allowInsecure" {
				got = p.Text
			}
		}
		if (got == "") != (tt.instead == "") || !strings.Contains(got, tt.instead) {
			t.Errorf("%s %v: got %q, want %q", tt.agent, tt.options, got, tt.instead)
		}
		c.AllowInsecure = true
		if strings.Contains(paths(c.Validate()), "allowInsecure") {
			t.Errorf("%s %v: refused, though it is allowed", tt.agent, tt.options)
		}
	}
	c := script(t, "")
	c.AllowInsecure = false
	if got := paths(c.Validate()); got != "allowInsecure" {
		t.Errorf("an unknown agent: problems at %q", got)
	}
}

// fence_dummy has a file for a machine.
func TestDummy(t *testing.T) {
	needs(t, sbin+"/fence_dummy")
	c := &fenceagent.Config{Agent: "fence_dummy", Dir: sbin, AllowGuessedOff: true}
	p := newProvider(t, c, nil)
	n := providers.Target{Node: "n1", ID: filepath.Join(t.TempDir(), "n1.status")}
	const never = "Status: OFF, but the agent never reported ON for this machine"
	wants(t, ask(t, p, n), providers.PowerUnknown, never, "ok") // there is no such file
	must(t, p.PowerOn(t.Context(), n, providertest.AllowSend))
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	must(t, p.PowerOff(t.Context(), n, providertest.AllowSend))
	must(t, p.PowerOff(t.Context(), n, providertest.AllowSend))
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	if got := read(t, filepath.Dir(n.ID), "n1.status"); got != "off" {
		t.Errorf("the file says %q", got)
	}
	must(t, os.WriteFile(n.ID, []byte("off\n"), 0o600))
	wants(t, ask(t, p, n), providers.PowerUnknown, "exit status 1: Failed: Unable to obtain correct plug status or "+
		"plug is not available", "ok")
}

// ipmilan is fence_ipmilan on the way to a BMC.
func ipmilan(t testing.TB, address, passwordFile string) *fenceagent.Config {
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	return &fenceagent.Config{
		Agent: "fence_ipmilan", Dir: sbin,
		Options: map[string]string{"ipport": port, "lanplus": "1", "username": ipmisim.Operator, "privlvl": "operator",
			"cipher": "3", "power_wait": "0"},
		Secrets: passwordIn(passwordFile),
	}
}

// fence_ipmilan and ipmitool ask a BMC.
func TestIPMI(t *testing.T) {
	needs(t, sbin+"/fence_ipmilan", "/usr/bin/ipmitool")
	b := ipmisim.New(t, ipmisim.Options{})
	p := newProvider(t, ipmilan(t, b.Address(), b.PasswordFile()), nil)
	n := providers.Target{Node: "n1", ID: "127.0.0.1"}
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	must(t, b.SetPower(t.Context(), true))
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	must(t, p.PowerOff(t.Context(), n, providertest.AllowSend))
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	if b.Running() {
		t.Error("the machine runs")
	}
	must(t, p.PowerOn(t.Context(), n, providertest.AllowSend))
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	if !b.Running() {
		t.Error("the machine does not run")
	}

	// ipmitool's words about a wrong password do not get through.
	must(t, b.SetPower(t.Context(), false))
	now := time.Now()
	wrong := newProvider(t, ipmilan(t, b.Address(), secret(t, "wrong")), func() time.Time { return now })
	var classes []string
	for range 4 {
		obs, err := wrong.State(t.Context(), n)
		if obs.State != providers.PowerUnknown {
			t.Errorf("got %s", obs.State)
		}
		classes = append(classes, providers.ErrorClass(err))
		if err != nil &&
			(!strings.Contains(err.Error(), "may have been refused") || strings.Contains(err.Error(), "wrong")) {
			t.Errorf("got %v", err)
		}
	}
	if want := []string{"ok", "unreachable", "unreachable", "unreachable"}; !slices.Equal(classes, want) {
		t.Errorf("got %q, want %q", classes, want)
	}
	must(t, b.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := wrong.State(ctx, n); err == nil || !strings.Contains(err.Error(), "is not sent again for 5m0s") {
		t.Errorf("the password was sent again: %v", err)
	}

	// A BMC that hangs: the call ends, and ipmitool with it.
	hangs, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer hangs.Close()
	c := ipmilan(t, hangs.LocalAddr().String(), secret(t, "hunter2"))
	p = newProvider(t, c, nil)
	for within, asked := 2*time.Second, false; !asked; within *= 2 { // as long as ipmitool needs to begin
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err := p.State(ctx, n)
		cancel()
		if !errors.Is(err, providers.ErrUnreachable) || within > timeout {
			t.Fatalf("within %s: got %v", within, err)
		}
		must(t, hangs.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, _, err = hangs.ReadFrom(make([]byte, 1024))
		asked = err == nil
	}
	if pids := left(t, "-p\x00"+c.Options["ipport"]); len(pids) > 0 {
		t.Errorf("ipmitool is left: %v", pids)
	}
}
