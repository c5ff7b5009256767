package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	libvirttype "github.com/forcefence/forcefence/providers/libvirt"
	redfishtype "github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// asked is one device in front of a machine that is on: forcefence's provider for it, and the programs that others run
// to ask it.
type asked struct {
	device   string
	provider providers.Provider
	target   providers.Target
	others   []other
	stop     func()
}

// other is a program that asks for the machine's state as a process.
type other struct {
	name    string
	missing string // why it cannot be run; "" if it can
	command []string
	input   string // an agent's options
	env     []string
	want    string // what it says of a machine that is on
}

// agent asks one machine for its state, on a warm connection as forcefence does, and by the matching program of others
// as a process. Both ask the same device: OpenIPMI's simulator in front of a QEMU, a Redfish BMC of test/datacenter
// over TLS that both verify, and a real libvirtd with a QEMU guest. What the device takes is in both times.
func agent(ctx context.Context, r *runner) error {
	for _, start := range []struct {
		device  string
		missing string
		start   func(context.Context) (*asked, error)
	}{
		{"ipmi", ipmisim.Missing(), askedByIPMI},
		{"redfish", "", askedByRedfish},
		{"libvirt", hypervisor.Missing(), askedByLibvirt},
	} {
		if start.missing != "" {
			r.say("%s is left out: %s", start.device, start.missing)
			continue
		}
		a, err := start.start(ctx)
		if err == nil {
			err = r.besideOthers(ctx, a)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", start.device, err)
		}
	}
	return nil
}

// besideOthers measures one device, and ends it.
func (r *runner) besideOthers(ctx context.Context, a *asked) error {
	defer a.stop()
	defer func() { _ = a.provider.(providers.Closer).Close(ctx) }()
	ours := func() error {
		if got := providers.Ask(ctx, a.provider, "bench", a.target, providers.Now); got.State != providers.PowerOn {
			return fmt.Errorf("got %s, %v", got.State, got.Err)
		}
		return nil
	}
	if err := ours(); err != nil { // logs in
		return err
	}
	for _, o := range a.others {
		if o.missing != "" {
			r.say("%s is left out: %s", o.name, o.missing)
			continue
		}
		by := map[side][]float64{}
		for _, s := range turns(max(r.o.pairs, 7), floorSide, oursSide) {
			f := ours
			if s == floorSide {
				f = func() error { return o.ask(ctx) }
			}
			begun := time.Now()
			if err := f(); err != nil {
				return fmt.Errorf("%s: %s: %w", o.name, s, err)
			}
			by[s] = append(by[s], float64(time.Since(begun))/float64(time.Millisecond))
		}
		r.add(r.figure("one machine's state by "+a.device+", warm; floor: "+o.name+" as a process", "ms", by))
		r.add(figure(o.name+" takes, times ours, pair by pair", "x", ratios(by[floorSide], by[oursSide])).atLeast(10))
	}
	return nil
}

// ask runs the program and wants these words in what it says.
func (o other) ask(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
	cmd.Stdin, cmd.Env = strings.NewReader(o.input), append(os.Environ(), o.env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), o.want) {
		return fmt.Errorf("got %q, %v", out, err)
	}
	return nil
}

// fenceAgent is an agent, which reads its options, a password among them, from its input.
func fenceAgent(name string, options ...string) other {
	return other{
		name: name, missing: needs(name), command: []string{name},
		input: "action=status\n" + strings.Join(options, "\n") + "\n", want: "Status: ON",
	}
}

// needs says which of the programs is not installed.
func needs(names ...string) string {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
	}
	return ""
}

// quietly are the options of a provider in a bench.
func quietly() providers.Options {
	return providers.Options{Name: "bench", Log: slog.New(slog.DiscardHandler)}
}

func askedByIPMI(ctx context.Context) (_ *asked, err error) {
	bmc, err := ipmisim.Start(ctx, ipmisim.Options{})
	if err != nil {
		return nil, err
	}
	stop := func() { _ = bmc.Stop() } // what is left ends with this process
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if err := bmc.SetPower(ctx, true); err != nil {
		return nil, err
	}
	cfg := ipmi.NewConfig()
	cfg.Username, cfg.PasswordFile, cfg.CipherSuites = ipmisim.Operator, bmc.PasswordFile(), []int{ipmisim.CipherSuite}
	p, err := cfg.New(quietly())
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(bmc.Address())
	if err != nil {
		return nil, err
	}
	return &asked{
		device: "ipmi", provider: p, stop: stop,
		target: providers.Target{Node: "n1", ID: bmc.Address(), SystemUUID: bmc.UUID()},
		others: []other{
			fenceAgent("fence_ipmilan", "ip="+host, "ipport="+port, "lanplus=1", "cipher=3", "privlvl=operator",
				"username="+ipmisim.Operator,
				"password_script=cat "+bmc.PasswordFile()),
			{name: "ipmitool", missing: needs("ipmitool"), want: "Chassis Power is on", command: []string{
				"ipmitool", "-I", "lanplus", "-C", "3", "-L", "OPERATOR", "-H", host, "-p", port, "-U",
				ipmisim.Operator, "-f", bmc.PasswordFile(),
				"chassis", "power", "status",
			}},
		},
	}, nil
}

func askedByRedfish(context.Context) (_ *asked, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	dc := datacenter.New(datacenter.Options{})
	stop := func() { _, _ = dc.Close(), os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	m := dc.AddMachine("n1")
	bmc := dc.AddBMC(m)
	m.PowerOn()
	password, ca := filepath.Join(dir, "password"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(password, []byte(dc.Password()), 0o600); err != nil {
		return nil, err
	}
	if err := dc.WriteCA(ca); err != nil {
		return nil, err
	}
	cfg := redfishtype.NewConfig()
	cfg.Username, cfg.PasswordFile, cfg.CAFile = dc.Username(), password, ca
	p, err := cfg.New(quietly())
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(bmc.SystemURL(m))
	if err != nil {
		return nil, err
	}
	beside := fenceAgent("fence_redfish", "ip="+at.Hostname(), "ipport="+at.Port(), "systems_uri="+at.Path,
		"username="+dc.Username(),
		"password_script=cat "+password)
	beside.env = []string{"REQUESTS_CA_BUNDLE=" + ca} // Python's; the agent has no option for it
	return &asked{
		device: "redfish", provider: p, stop: stop, others: []other{beside},
		target: providers.Target{Node: "n1", ID: bmc.SystemURL(m), SystemUUID: m.SystemUUID()},
	}, nil
}

func askedByLibvirt(ctx context.Context) (_ *asked, err error) {
	h, err := hypervisor.Start(ctx, hypervisor.Options{})
	if err != nil {
		return nil, err
	}
	stop := func() { _ = h.Stop() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	guest, err := h.AddDomain(ctx, "n1")
	if err != nil {
		return nil, err
	}
	cfg := &libvirttype.Config{}
	cfg.URI = h.URI()
	p, err := cfg.New(quietly())
	if err != nil {
		return nil, err
	}
	virsh, end := fenceVirsh(ctx, h, guest)
	return &asked{
		device: "libvirt", provider: p, stop: func() { end(); stop() },
		target: providers.Target{Node: "n1", ID: guest.UUID(), SystemUUID: guest.UUID()},
		others: []other{virsh, {
			name: "virsh", missing: needs("virsh"), command: []string{"virsh", "-c", h.URI(), "domstate", guest.UUID()},
			want: "running",
		}},
	}, nil
}

// fenceVirsh is the agent that logs in on the hypervisor's machine by ssh and types virsh there: an sshd of the bench's
// own, on a port of this machine, with keys of its own. end ends the daemon.
func fenceVirsh(ctx context.Context, h *hypervisor.Hypervisor, guest *hypervisor.Domain) (_ other, end func()) {
	o, end := fenceAgent("fence_virsh"), func() {}
	if o.missing = needs("fence_virsh", "virsh", "ssh", "ssh-keygen", "/usr/sbin/sshd", "unshare"); o.missing != "" {
		return o, end
	}
	s, err := startSSHD(ctx, "LIBVIRT_DEFAULT_URI="+h.URI())
	if err != nil {
		o.missing = err.Error()
		return o, end
	}
	const shell = `-t '/bin/bash -c "PS1=\\[EXPECT\\]# /bin/bash --noprofile --norc"'` // the agent's own
	return fenceAgent("fence_virsh", "ip=127.0.0.1", "ipport="+s.port, "username="+s.user, "identity_file="+s.key,
		"ssh=1", "plug="+guest.UUID(),
		"ssh_options="+s.options+" "+shell), s.stop
}
