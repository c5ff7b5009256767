package fenceagent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
	"github.com/forcefence/forcefence/test/kit"
)

// Every agent of Debian is known, its metadata can be read, and says what we know of it: which option takes an ID, and whether its off
// cuts the power.
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

// An agent that guesses is refused without the word for it, one that cannot serve in any case, and one that knows the device's own words
// for off is not.
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
		c := &fenceagent.Config{Agent: tt.agent, Dir: sbin}
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

// A power strip that these agents type into says that outlet 1 is on, and they say OFF: that is why they need the word for guesses.
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
	say '1- Outlet Management\r\n2- Outlet Control/Configuration\r\n     1- web OFFICE               ON\r\n     2- db                       ON\r\n4- Logout\r\n> '
done`},
	} {
		telnet := filepath.Join(t.TempDir(), "telnet")
		must(t, os.WriteFile(telnet, []byte(strip+tt.shows+"\n"), 0o700))
		c := &fenceagent.Config{
			Agent: tt.agent, Dir: sbin, Options: map[string]string{"ip": "127.0.0.1", "username": "fence", "telnet_path": telnet},
			Secrets: passwordIn(secret(t, "hunter2")),
		}
		if got := paths(c.Validate()); got != "allowGuessedOff" {
			t.Errorf("%s: problems at %q", tt.agent, got)
		}
		c.AllowGuessedOff = true
		wants(t, ask(t, newProvider(t, c, nil), n1), providers.PowerOff, "Status: OFF", "ok")
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
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "passwd": "hunter2"}, []string{"password"}, "options.passwd secrets[0].option"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "pasword": "z"}, nil, "options.pasword"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y"}, []string{"pass"}, "secrets[0].option"},
		{"fence_apc", map[string]string{"ssh": "1"}, nil, "options.ip options.username"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "plug": "1"}, nil, "options.plug"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "port": "1"}, nil, "options.port"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "action": "on"}, nil, "options.action"},
		{"fence_apc", map[string]string{"ip": "x", "username": "y", "verbose": "1", "debug": "/x", "quiet": "1", "delay": "9", "disable_timeout": "1"},
			nil, "options.debug options.delay options.disable_timeout options.quiet options.verbose"},
		{"fence_ipmilan", map[string]string{"lanplus": "1", "username": "y"}, []string{"password", "hexadecimal_kg"}, ""},
		{"fence_ipmilan", map[string]string{"ip": "10.0.0.7"}, nil, "options.ip"},
		{"fence_ipmilan", map[string]string{"ipaddr": "10.0.0.7"}, nil, "options.ipaddr"},
		{"fence_ipmilan", map[string]string{"port_as_ip": "1"}, nil, "options.port_as_ip"},
		{"fence_ipmilan", map[string]string{"hexadecimal_kg": "00"}, nil, "options.hexadecimal_kg"},
		{"fence_virsh", map[string]string{"ip": "x", "username": "y", "missing_as_off": "1"}, nil, "options.missing_as_off"},
	} {
		c := &fenceagent.Config{Agent: tt.agent, Dir: sbin, Options: tt.options, AllowGuessedOff: true}
		for _, key := range tt.secrets {
			c.Secrets = append(c.Secrets, fenceagent.Secret{Option: key, File: secret(t, "hunter2")})
		}
		if got := paths(c.Validate()); got != tt.want {
			t.Errorf("%s %v %v: problems at %q, want %q", tt.agent, tt.options, tt.secrets, got, tt.want)
		}
	}
}

// fence_dummy has a file for a machine.
func TestDummy(t *testing.T) {
	needs(t, sbin+"/fence_dummy")
	c := &fenceagent.Config{Agent: "fence_dummy", Dir: sbin, AllowGuessedOff: true}
	p := newProvider(t, c, nil)
	n := providers.Target{Node: "n1", ID: filepath.Join(t.TempDir(), "n1.status")}
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok") // a guess: there is no such file
	must(t, p.PowerOn(t.Context(), n))
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	must(t, p.PowerOff(t.Context(), n))
	must(t, p.PowerOff(t.Context(), n))
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	if got := read(t, filepath.Dir(n.ID), "n1.status"); got != "off" {
		t.Errorf("the file says %q", got)
	}
	must(t, os.WriteFile(n.ID, []byte("off\n"), 0o600))
	wants(t, ask(t, p, n), providers.PowerUnknown, "exit status 1: Failed: Unable to obtain correct plug status or p", "ok")
}

// bmc is Debian's ipmi_sim in front of a machine that is a file.
type bmc struct {
	t       testing.TB
	dir     string
	address string
	port    string
	cmd     *exec.Cmd
}

func newBMC(t testing.TB) *bmc {
	needs(t, sbin+"/fence_ipmilan", "/usr/bin/ipmitool", "/usr/bin/ipmi_sim")
	var port int
	must(t, kit.FreePorts(&port))
	b := &bmc{t: t, dir: t.TempDir(), address: "127.0.0.1", port: fmt.Sprint(port)}
	b.power("1")
	b.write("chassis", `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	get) [ "$2" = power ] && echo "power:$(cat '`+b.dir+`/power')" || echo "$2:0"; shift 2 ;;
	set) [ "$2" = power ] && printf %s "$3" > '`+b.dir+`/power'; shift 3 ;;
	*) shift ;;
	esac
done
exit 0
`)
	must(t, os.Chmod(filepath.Join(b.dir, "chassis"), 0o700))
	b.write("lan.conf", `name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 `+b.port+`
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "`+b.dir+`/chassis 0x20"
  user 2 true "fence" "hunter2" admin 10 none md2 md5 straight
`)
	b.write("bmc.emu", "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nsel_enable 0x20 1000 0x0a\nmc_enable 0x20\n")
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *bmc) write(name, content string) {
	must(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600))
}

func (b *bmc) power(on string) { b.write("power", on) }

func (b *bmc) start() {
	must(b.t, os.MkdirAll(filepath.Join(b.dir, "state"), 0o700))
	b.cmd = exec.Command("/usr/bin/ipmi_sim", "-c", filepath.Join(b.dir, "lan.conf"), "-f", filepath.Join(b.dir, "bmc.emu"), "-s", filepath.Join(b.dir, "state"), "-n")
	log, err := os.Create(filepath.Join(b.dir, "log"))
	must(b.t, err)
	defer log.Close()
	b.cmd.Stdout, b.cmd.Stderr = log, log
	must(b.t, kit.StartChild(b.cmd))
}

func (b *bmc) stop() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait() // it was killed
}

func (b *bmc) config() *fenceagent.Config {
	return &fenceagent.Config{
		Agent: "fence_ipmilan", Dir: sbin,
		Options: map[string]string{"ipport": b.port, "lanplus": "1", "username": "fence", "cipher": "3", "power_wait": "0"},
		Secrets: passwordIn(secret(b.t, "hunter2")),
	}
}

// fence_ipmilan and ipmitool ask a BMC.
func TestIPMI(t *testing.T) {
	b := newBMC(t)
	p := newProvider(t, b.config(), nil)
	n := providers.Target{Node: "n1", ID: b.address}
	waitFor(t, func() bool { a := ask(t, newProvider(t, b.config(), nil), n); return a.State == providers.PowerOn }) // it has started
	b.power("0")
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	b.power("1")
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	must(t, p.PowerOff(t.Context(), n))
	wants(t, ask(t, p, n), providers.PowerOff, "Status: OFF", "ok")
	must(t, p.PowerOn(t.Context(), n))
	wants(t, ask(t, p, n), providers.PowerOn, "Status: ON", "ok")
	if got := read(t, b.dir, "power"); got != "1" {
		t.Errorf("the machine's power is %q", got)
	}

	// ipmitool's words about a wrong password do not get through.
	b.power("0")
	now := time.Now()
	c := b.config()
	c.Secrets = passwordIn(secret(t, "wrong"))
	wrong := newProvider(t, c, func() time.Time { return now })
	var classes []string
	for range 4 {
		obs, err := wrong.State(t.Context(), n)
		if obs.State != providers.PowerUnknown {
			t.Errorf("got %s", obs.State)
		}
		classes = append(classes, providers.Class(err))
		if err != nil && (!strings.Contains(err.Error(), "may have been refused") || strings.Contains(err.Error(), "wrong")) {
			t.Errorf("got %v", err)
		}
	}
	if want := []string{"ok", "unreachable", "unreachable", "unreachable"}; !slices.Equal(classes, want) {
		t.Errorf("got %q, want %q", classes, want)
	}
	b.stop()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := wrong.State(ctx, n); err == nil || !strings.Contains(err.Error(), "is not sent again for 5m0s") {
		t.Errorf("the password was sent again: %v", err)
	}

	// A BMC that hangs: the call ends, and ipmitool with it.
	b.start()
	waitFor(t, func() bool { a := ask(t, newProvider(t, b.config(), nil), n); return a.State == providers.PowerOff })
	must(t, b.cmd.Process.Signal(syscall.SIGSTOP))
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := p.State(ctx, n); !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if pids := left(t, "-p\x00"+b.port); len(pids) > 0 {
		t.Errorf("ipmitool is left: %v", pids)
	}
}
