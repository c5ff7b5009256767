package world

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// Power is where the machines' power comes from, and the devices that forcefence asks about it.
type Power interface {
	// Add makes a machine and switches it on.
	Add(ctx context.Context, name string) (Machine, error)
	// Prepare writes what the configuration names into the folder, and returns the provider's settings and a rule's
	// machine.
	Prepare(dir string) (settings, machine string, err error)
	// Device is the word for what answers: "BMC".
	Device() string
	// Machines says what they are: "each with a BMC and a node".
	Machines() string
	// Help says how to look at the machines and cut one's power by hand. The folder is Prepare's.
	Help(dir string) string
	Close()
}

// Machine is one machine's power. Its methods may be called at any time.
type Machine interface {
	Name() string
	SystemUUID() string
	BootID() string
	Running() bool
	State() string // "on", "off" or a word between them
	CutPower() error
	PowerOn(ctx context.Context) error
	// OnChange has f called each time the machine lost or got its power, for any reason.
	OnChange(f func(on bool))
	// Address is where a Node's annotation says its device is; "" if the node's system UUID is enough.
	Address() string
}

// NewPower makes the power of that name: redfish, libvirt or ipmi.
func NewPower(ctx context.Context, name string) (Power, error) {
	switch name {
	case "redfish":
		return NewRedfish(datacenter.Options{PowerOffDelay: bmcTakes, Username: "forcefence"}), nil
	case "libvirt":
		h, err := hypervisor.Start(ctx, hypervisor.Options{})
		if err != nil {
			return nil, err
		}
		return &libvirtPower{h: h}, nil
	case "ipmi":
		return &ipmiPower{password: rand.Text()[:16]}, nil // IPMI 1.5 takes no more
	default:
		return nil, fmt.Errorf("power %q is none of redfish, libvirt and ipmi", name)
	}
}

// bmcTakes is from an accepted ForceOff until the machine is off.
const bmcTakes = time.Second

// Redfish is a data centre in software. Each machine has a BMC of its own, unless OneBMC is set.
type Redfish struct {
	*datacenter.DataCenter
	OneBMC bool // one BMC in front of all machines; set before the first Add

	names []string
	bmcs  map[string]*datacenter.BMC // by machine
}

// NewRedfish returns one without machines.
func NewRedfish(o datacenter.Options) *Redfish {
	return &Redfish{DataCenter: datacenter.New(o), bmcs: map[string]*datacenter.BMC{}}
}

// Add makes a machine that is on, with its BMC.
func (p *Redfish) Add(_ context.Context, name string) (Machine, error) {
	m := RedfishMachine{Machine: p.AddMachine(name)}
	switch {
	case !p.OneBMC:
		m.BMC = p.AddBMC(m.Machine)
		m.address = m.BMC.URL()
	case len(p.names) == 0:
		m.BMC = p.AddBMC(m.Machine)
	default:
		m.BMC = p.bmcs[p.names[0]]
		m.BMC.Add(m.Machine)
	}
	if p.OneBMC {
		m.address = m.BMC.SystemURL(m.Machine)
	}
	p.names = append(p.names, name)
	p.bmcs[name] = m.BMC
	return m, nil
}

// Prepare writes the BMCs' password and authority into the folder.
func (p *Redfish) Prepare(dir string) (settings, machine string, err error) {
	password, ca := filepath.Join(dir, "bmc-password"), filepath.Join(dir, "bmc-ca.pem")
	if err := os.WriteFile(password, []byte(p.Password()+"\n"), 0o600); err != nil {
		return "", "", err
	}
	if err := p.WriteCA(ca); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("redfish: {username: %s, passwordFile: %q, caFile: %q}", p.Username(), password, ca),
		fmt.Sprintf("{from: annotation, annotation: %s, allow: [127.0.0.1]}", BMCAnnotation), nil
}

// Device returns BMC.
func (*Redfish) Device() string { return "BMC" }

// Machines says that each machine has a BMC.
func (*Redfish) Machines() string { return "each with a BMC (Redfish over HTTPS) and a node" }

// Help lists the BMCs, and shows a power-off by curl.
func (p *Redfish) Help(dir string) string {
	var b strings.Builder
	for _, name := range p.names {
		fmt.Fprintf(&b, "  BMC of %s: %s\n", name, p.bmcs[name].URL())
	}
	fmt.Fprintf(&b, `
  Cut a machine's power yourself:
    curl --cacert %s -u %s:$(cat %s) -H 'Content-Type: application/json' \
      -d '{"ResetType": "ForceOff"}' %s/redfish/v1/Systems/%s/Actions/ComputerSystem.Reset`,
		filepath.Join(dir, "bmc-ca.pem"), p.Username(), filepath.Join(dir, "bmc-password"),
		p.bmcs[p.names[0]].URL(), p.names[0])
	return b.String()
}

// Close ends the data centre.
func (p *Redfish) Close() { _ = p.DataCenter.Close() } // nothing is left to do about an error

// RedfishMachine is a machine of a Redfish power, and the BMC in front of it.
type RedfishMachine struct {
	*datacenter.Machine
	BMC     *datacenter.BMC
	address string
}

// State is the machine's own, in small letters.
func (m RedfishMachine) State() string { return strings.ToLower(string(m.Machine.State())) }

// CutPower takes the power away at once. The error is always nil.
func (m RedfishMachine) CutPower() error { m.Machine.CutPower(); return nil }

// PowerOn gives the power back at once. The error is always nil.
func (m RedfishMachine) PowerOn(context.Context) error { m.Machine.PowerOn(); return nil }

// Address is the URL of the machine's BMC, or of its system there where one BMC has all machines.
func (m RedfishMachine) Address() string { return m.address }

// OnChange has f called after the machine lost or got its power.
func (m RedfishMachine) OnChange(f func(on bool)) {
	m.Machine.OnChange(func(_ *datacenter.Machine, on bool) { f(on) })
}

// libvirtPower is a real libvirtd with a QEMU guest for each node. The kubelets are as simulated as ever: the guests
// only have, or lose, their power.
type libvirtPower struct {
	h     *hypervisor.Hypervisor
	first string // of its machines
	watch
}

func (p *libvirtPower) Add(ctx context.Context, name string) (Machine, error) {
	d, err := p.h.AddGuest(ctx, name, hypervisor.Guest{})
	if err != nil {
		return nil, err
	}
	if p.first == "" {
		p.first = name
	}
	m := p.machine(name, d.UUID(), d.Running)
	m.cut = d.Kill // libvirt finds out by itself, and starts nothing before that
	m.start = func(ctx context.Context) error {
		for !d.Running() {
			if err := d.Start(ctx); err != nil {
				return err
			}
			if !sleep(ctx, 50*time.Millisecond) {
				return ctx.Err()
			}
		}
		return nil
	}
	m.booted()
	return m, nil
}

func (p *libvirtPower) Prepare(string) (settings, machine string, err error) {
	return fmt.Sprintf("libvirt: {uri: %q}", p.h.URI()), "{from: systemUUID}", nil
}

func (*libvirtPower) Device() string { return "hypervisor" }

func (*libvirtPower) Machines() string { return "each a QEMU guest of a real libvirtd, with a node" }

func (p *libvirtPower) Help(string) string {
	return fmt.Sprintf(`
  Look at the machines, and cut one's power yourself:
    virsh -c '%s' list --all
    virsh -c '%s' destroy %s`, p.h.URI(), p.h.URI(), p.first)
}

func (p *libvirtPower) Close() {
	p.end()
	_ = p.h.Stop() // nothing is left to do about an error
}

// ipmiPower is a BMC of OpenIPMI's simulator for each node, in front of a QEMU.
type ipmiPower struct {
	bmcs     []*ipmisim.BMC
	names    []string // of their machines
	password string
	watch
}

func (p *ipmiPower) Add(ctx context.Context, name string) (Machine, error) {
	b, err := ipmisim.Start(ctx, ipmisim.Options{Password: p.password})
	if err != nil {
		return nil, err
	}
	p.bmcs, p.names = append(p.bmcs, b), append(p.names, name)
	m := p.machine(name, b.UUID(), b.Running)
	m.address = "ipmi://" + b.Address()
	m.cut = func() error { // the BMC finds out when it is asked
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return b.SetPower(ctx, false)
	}
	m.start = func(ctx context.Context) error { return b.SetPower(ctx, true) }
	return m, m.PowerOn(ctx)
}

func (p *ipmiPower) Prepare(dir string) (settings, machine string, err error) {
	file := filepath.Join(dir, "bmc-password")
	if err := os.WriteFile(file, []byte(p.password+"\n"), 0o600); err != nil {
		return "", "", err
	}
	return fmt.Sprintf("ipmi: {username: %s, passwordFile: %q, cipherSuites: [%d]}", ipmisim.Operator, file,
			ipmisim.CipherSuite),
		fmt.Sprintf("{from: annotation, annotation: %s, allow: [127.0.0.1]}", BMCAnnotation), nil
}

func (*ipmiPower) Device() string { return "BMC" }

func (*ipmiPower) Machines() string {
	return "each a QEMU behind a BMC (IPMI), with a node"
}

func (p *ipmiPower) Help(dir string) string {
	var b strings.Builder
	for i, bmc := range p.bmcs {
		fmt.Fprintf(&b, "  BMC of %s: ipmi://%s\n", p.names[i], bmc.Address())
	}
	host, port, _ := strings.Cut(p.bmcs[0].Address(), ":")
	fmt.Fprintf(&b, `
  Cut a machine's power yourself, where ipmitool is installed:
    ipmitool -I lanplus -C 3 -L OPERATOR -H %s -p %s -U %s -f %s chassis power off`,
		host, port, ipmisim.Operator, filepath.Join(dir, "bmc-password"))
	return b.String()
}

func (p *ipmiPower) Close() {
	p.end()
	for _, b := range p.bmcs {
		_ = b.Stop() // nothing is left to do about an error
	}
}

// watch sees processes end. The zero value is ready.
type watch struct {
	mu       sync.Mutex // guards what follows
	stop     []context.CancelFunc
	watching sync.WaitGroup
}

func (w *watch) machine(name, uuid string, running func() bool) *process {
	ctx, stop := context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = append(w.stop, stop)
	return &process{name: name, uuid: uuid, running: running, watching: &w.watching, ctx: ctx}
}

func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stop := range w.stop {
		stop()
	}
	w.watching.Wait()
}

// process is a machine that has power while its QEMU runs, as the kernel says.
type process struct {
	name, uuid, address string
	running             func() bool
	cut                 func() error
	start               func(context.Context) error
	watching            *sync.WaitGroup
	ctx                 context.Context // ends with the power's Close

	mu   sync.Mutex // guards the rest
	boot int
	on   bool
	call []func(bool)
}

// booted begins a boot: from now on the end of QEMU is the end of the power.
func (m *process) booted() {
	m.mu.Lock()
	m.boot++
	m.mu.Unlock()
	m.tell(true)
	m.watching.Go(func() {
		for m.running() {
			if !sleep(m.ctx, 10*time.Millisecond) {
				return
			}
		}
		m.tell(false)
	})
}

func (m *process) tell(on bool) {
	m.mu.Lock()
	m.on = on
	call := m.call
	m.mu.Unlock()
	for _, f := range call {
		f(on)
	}
}

func (m *process) Name() string       { return m.name }
func (m *process) SystemUUID() string { return m.uuid }
func (m *process) Address() string    { return m.address }
func (m *process) CutPower() error    { return m.cut() }

func (m *process) PowerOn(ctx context.Context) error {
	if m.Running() {
		return nil
	}
	if err := m.start(ctx); err != nil {
		return fmt.Errorf("powering on %s: %w", m.name, err)
	}
	m.booted()
	return nil
}

func (m *process) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s-boot-%d", m.uuid, m.boot)
}

func (m *process) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

func (m *process) State() string {
	if m.Running() {
		return "on"
	}
	return "off"
}

func (m *process) OnChange(f func(on bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.call = append(m.call, f)
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
