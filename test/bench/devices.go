package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/hypervisor"
)

// devices are what forcefence asks about the machines, and may be told by. Each kind is one type here; a lab is made
// with one.
type devices interface {
	// add puts a device in front of a machine and returns its name for the annotation bmcAnnotation of the machine's
	// Node. What the machine does later the device learns from its OnChange.
	add(m *datacenter.Machine) (name string, err error)
	// config are the keys providers and nodes of the configuration file.
	config() (string, error)
	// close ends what add began, and waits.
	close()
}

// redfish gives each machine a BMC of its own.
type redfish struct {
	dc     *datacenter.DataCenter
	folder string // for the password and the authority's certificate
	events string // by which the BMCs tell of a power cut: off, or sse
	poll   time.Duration
}

func newRedfish(_ context.Context, l *lab) (devices, error) {
	return redfish{dc: l.dc, folder: l.dir, events: "off"}, nil
}

func newRedfishEvents(_ context.Context, l *lab) (devices, error) {
	return redfish{dc: l.dc, folder: l.dir, events: "sse"}, nil
}

func newRedfishPolled(_ context.Context, l *lab) (devices, error) {
	return redfish{dc: l.dc, folder: l.dir, events: "off", poll: pollEvery}, nil
}

func (d redfish) add(m *datacenter.Machine) (string, error) { return d.dc.AddBMC(m).URL(), nil }

// files writes what logs in to the BMCs and what they are trusted by, and returns their names.
func (d redfish) files() (password, ca string, _ error) {
	password, ca = d.folder+"/bmc-password", d.folder+"/bmc-ca.pem"
	return password, ca, errors.Join(os.WriteFile(password, []byte(d.dc.Password()+"\n"), 0o600), d.dc.WriteCA(ca))
}

func (d redfish) config() (string, error) {
	password, ca, err := d.files()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`providers:
- name: racks
  timeout: 2s
  poll: %s
  redfish: {username: %s, passwordFile: %q, caFile: %q, events: %q}
nodes:
- name: workers
  provider: racks
  machine: {from: annotation, annotation: %s, allow: [127.0.0.1]}
`, d.poll, d.dc.Username(), password, ca, d.events, bmcAnnotation), nil
}

func (redfish) close() {} // the data centre's Close does it

// libvirt gives each machine a QEMU guest of a real libvirtd, which dies and starts with it, and whose events
// forcefence hears.
type libvirt struct {
	h   *hypervisor.Hypervisor
	say func(format string, args ...any)
}

// guestTakes is how long libvirt may take to see that a guest has ended, and to start it again.
const guestTakes = 30 * time.Second

func newLibvirt(ctx context.Context, l *lab) (devices, error) {
	h, err := hypervisor.Start(ctx, hypervisor.Options{})
	if err != nil {
		return nil, err
	}
	return libvirt{h, l.r.say}, nil
}

func (d libvirt) add(m *datacenter.Machine) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), guestTakes)
	defer cancel()
	guest, err := d.h.AddGuest(ctx, m.Name(), hypervisor.Guest{UUID: m.SystemUUID()})
	if err != nil {
		return "", err
	}
	m.OnChange(func(_ *datacenter.Machine, on bool) {
		if err := d.follow(guest, on); err != nil {
			d.say("guest %s: %v", guest.Name(), err) // the turn that needs it fails
		}
	})
	return "by-system-uuid", nil
}

// follow kills QEMU at once, or starts the guest as soon as libvirt knows that it has ended.
func (d libvirt) follow(guest *hypervisor.Domain, on bool) error {
	if !on {
		return guest.Kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), guestTakes)
	defer cancel()
	for {
		state, err := guest.State(ctx)
		if err == nil && strings.HasPrefix(state, "shut off") {
			return guest.Start(ctx)
		}
		if !wait(ctx, 20*time.Millisecond) {
			return fmt.Errorf("libvirt says %q: %w", state, ctx.Err())
		}
	}
}

func (d libvirt) config() (string, error) {
	return fmt.Sprintf(`providers:
- name: hypervisor
  timeout: 2s
  libvirt: {uri: %q}
nodes:
- name: workers
  provider: hypervisor
  machine: {from: systemUUID}
`, d.h.URI()), nil
}

func (d libvirt) close() {
	if err := d.h.Stop(); err != nil {
		d.say("stopping libvirtd: %v", err)
	}
}
