// Package datacenter is a data centre in software: machines that have power, boot ids and identities, and BMCs in front
// of them that speak Redfish over HTTPS on 127.0.0.1. Providers are tested against it, and the demo's real controller
// talks to it.
//
// It uses the standard library and package kit, and knows no Kubernetes. It promises that a machine's power is a fact
// independent of what its BMC says: every lie is a Fault that a test switches on, and what the machine did is asked of
// the machine. Nothing here is process-wide; Close returns after every goroutine, timer, callback and connection of the
// data centre has ended.
package datacenter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/forcefence/forcefence/test/kit"
)

// Options are a data centre's settings. The zero value is usable.
type Options struct {
	PowerOffDelay time.Duration // from an accepted ForceOff until the machine is off; real ones take 1-2 s; default 0
	PowerOnDelay  time.Duration // from an accepted On until the machine runs; default 0
	Username      string        // of every BMC; default "fence"
	Password      string        // default a random one, see DataCenter.Password
	SessionSlots  int           // sessions that a BMC holds at a time; default 8
	PageSize      int           // systems on one page of a BMC's collection; default all
	RequestLog    int           // requests a BMC remembers; default 4096
	// BMCs have no port and are asked through ServeHTTP, so that all of it can live in synctest
	Offline bool

	Addresses          []string // the BMCs' certificates are valid for these IP addresses, too
	CommonNameOnly     bool     // the BMCs' certificates name them in the CommonName only
	RSAKeyExchangeOnly bool     // the BMCs know TLS 1.2 with RSA key exchange, and nothing else
	OldTLSOnly         bool     // the BMCs know TLS 1.0 and 1.1, and nothing newer
	OtherCiphersOnly   bool     // the BMCs know TLS 1.2 with a suite that clients do not, as with DHE only
}

// DataCenter owns machines and BMCs. It is safe for concurrent use.
type DataCenter struct {
	opts Options
	ca   *kit.Authority

	ctx     context.Context // ends with Close: handlers and slow answers stop
	cancel  context.CancelFunc
	serving sync.WaitGroup // servers and their connections
	timers  sync.WaitGroup // pending power changes; started by what serving counts

	mu       sync.Mutex // guards what follows
	machines []*Machine
	bmcs     []*BMC
	closed   bool
}

// New returns an empty data centre with a certificate authority of its own. It panics if the system has no randomness.
func New(o Options) *DataCenter {
	if o.Username == "" {
		o.Username = "fence"
	}
	if o.Password == "" {
		o.Password = rand.Text()
	}
	if o.SessionSlots <= 0 {
		o.SessionSlots = 8
	}
	if o.RequestLog <= 0 {
		o.RequestLog = 4096
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &DataCenter{opts: o, ca: kit.NewAuthority("data centre CA"), ctx: ctx, cancel: cancel}
}

// Username returns the user every BMC accepts.
func (dc *DataCenter) Username() string { return dc.opts.Username }

// Password returns the password every BMC accepts.
func (dc *DataCenter) Password() string {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	return dc.opts.Password
}

// Machines returns the machines in the order they were added.
func (dc *DataCenter) Machines() []*Machine {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	return append([]*Machine(nil), dc.machines...)
}

// Close stops all BMCs and pending power changes, and waits until everything the data centre owned has ended. It may be
// repeated.
func (dc *DataCenter) Close() error {
	dc.mu.Lock()
	dc.closed = true
	bmcs, machines := dc.bmcs, dc.machines
	dc.mu.Unlock()
	dc.cancel()
	var errs []error
	for _, b := range bmcs {
		if b.server != nil {
			errs = append(errs, b.server.Close())
		}
	}
	dc.serving.Wait()
	for _, m := range machines {
		m.stopTimer()
	}
	dc.timers.Wait()
	return errors.Join(errs...)
}

// AddMachine adds a machine that is on. The name is its Redfish Id too.
func (dc *DataCenter) AddMachine(name string) *Machine {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	m := &Machine{
		dc: dc, name: name,
		uuid:   newUUID(),
		serial: fmt.Sprintf("FF%06d", len(dc.machines)+1),
		state:  On, boot: newUUID(),
	}
	dc.machines = append(dc.machines, m)
	return m
}

// State is a machine's power, in Redfish's words.
type State string

// The states a machine goes through. In PoweringOff it still runs, in PoweringOn not yet.
const (
	On          State = "On"
	Off         State = "Off"
	PoweringOn  State = "PoweringOn"
	PoweringOff State = "PoweringOff"
)

// Machine has power, a boot id for each time it got power, and an identity. It is safe for concurrent use.
type Machine struct {
	dc                 *DataCenter
	name, uuid, serial string

	// turn is held through one power change and its callbacks, so that they are seen in order. Callbacks run under it,
	// and must not change this machine's power.
	turn sync.Mutex

	mu       sync.Mutex // guards what follows
	state    State
	boot     string
	pending  *time.Timer // the change that PoweringOn or PoweringOff leads to
	gen      int         // counts power changes, so that an overtaken timer does nothing
	onChange []func(m *Machine, on bool)

	fault     Fault
	nextFault func() Fault // nil: fault
}

// Name returns the machine's name, its Redfish Id.
func (m *Machine) Name() string { return m.name }

// SystemUUID returns the SMBIOS UUID.
func (m *Machine) SystemUUID() string { return m.uuid }

// Serial returns the serial number, unique in the data centre.
func (m *Machine) Serial() string { return m.serial }

// State returns the machine's true power state, even if its BMC says otherwise.
func (m *Machine) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Running reports whether anything may execute on the machine.
func (m *Machine) Running() bool { s := m.State(); return s == On || s == PoweringOff }

// BootID returns the id of the current boot, or of the last one if the machine is off.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// OnChange registers a function that is called after the machine went off or on, once per change and in order. It may
// ask the machine anything, but must not change its power before it has returned.
func (m *Machine) OnChange(f func(m *Machine, on bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onChange = append(m.onChange, f)
}

// SetFault replaces the machine's fault; the zero Fault heals it. See Fault for what applies to a machine.
func (m *Machine) SetFault(f Fault) { m.setFaults(f, nil) }

// SetFaults has next called for each request about the machine, by several goroutines; its result is the fault of that
// request. It lasts until the next SetFault or SetFaults.
func (m *Machine) SetFaults(next func() Fault) { m.setFaults(Fault{}, next) }

func (m *Machine) setFaults(f Fault, next func() Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault, m.nextFault = f, next
}

// PowerOn gives the machine power at once, with a new boot id, and returns after the callbacks. It does nothing if it
// is on.
func (m *Machine) PowerOn() { m.change(On, -1) }

// CutPower takes the machine's power away at once, as a pulled plug does, and returns after the callbacks.
func (m *Machine) CutPower() { m.change(Off, -1) }

// change makes the machine On or Off. With gen >= 0 it does so only if no other change came in between.
func (m *Machine) change(to State, gen int) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	if gen >= 0 && gen != m.gen {
		m.mu.Unlock()
		return
	}
	m.dropTimer()
	was := m.state == On || m.state == PoweringOff
	on := to == On
	m.state = to
	if on && !was {
		m.boot = newUUID()
	}
	callbacks := m.onChange
	m.mu.Unlock()
	if was == on {
		return
	}
	for _, f := range callbacks {
		f(m, on)
	}
}

// request is what a BMC does on a reset: the change comes after the delay, by way of PoweringOn or PoweringOff. It
// reports false if the machine is there already, or on its way somewhere else.
func (m *Machine) request(to State, delay time.Duration) bool {
	via := PoweringOn
	if to == Off {
		via = PoweringOff
	}
	m.mu.Lock()
	switch {
	case m.pending != nil:
		defer m.mu.Unlock()
		return m.state == via
	case m.state == to:
		m.mu.Unlock()
		return false
	}
	if delay <= 0 {
		m.mu.Unlock()
		m.change(to, -1)
		return true
	}
	defer m.mu.Unlock()
	m.dropTimer()
	m.state = via
	gen := m.gen
	m.dc.timers.Add(1)
	m.pending = time.AfterFunc(delay, func() {
		defer m.dc.timers.Done()
		m.change(to, gen)
	})
	return true
}

// dropTimer forgets a pending change. The caller holds mu.
func (m *Machine) dropTimer() {
	m.gen++
	if m.pending != nil && m.pending.Stop() {
		m.dc.timers.Done()
	}
	m.pending = nil
}

// stopTimer is dropTimer for Close.
func (m *Machine) stopTimer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropTimer()
}

func newUUID() string { return string(uuid.NewUUID()) }
