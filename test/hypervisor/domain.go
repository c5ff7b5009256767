package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// Guest says what kind of domain is wanted. The zero value is a guest with a random UUID that runs for ever, defined
// and started.
type Guest struct {
	UUID      string // "": a random one
	Transient bool   // known only while it runs
	Panics    bool   // its firmware starts a program that reports a kernel's panic, and libvirt keeps it as crashed
	Stopped   bool   // defined only
}

// Domain is a guest. Its methods change the world behind a provider's back, and return when libvirt sees it so.
type Domain struct {
	h    *Hypervisor
	name string
	uuid string
	xml  string
}

// Name is the domain's, as of AddDomain or the last Rename.
func (d *Domain) Name() string { return d.name }

// UUID is the domain's, and its guest's system UUID.
func (d *Domain) UUID() string { return d.uuid }

var domainXML = template.Must(template.New("domain").Parse(`<domain type='qemu'>
  <name>{{.Name}}</name>
  <uuid>{{.UUID}}</uuid>
  <memory unit='MiB'>16</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <on_crash>preserve</on_crash>
  <devices>
    <emulator>{{.Emulator}}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>{{if .Disk}}
    <panic model='isa'/>
    <disk type='file' device='floppy'>
      <driver name='qemu' type='raw'/><source file='{{.Disk}}'/><target dev='fda'/><readonly/>
    </disk>{{end}}
  </devices>
</domain>
`))

// panicSector is a boot sector that writes 1 to the port of QEMU's panic device (0x505) and halts.
var panicSector = func() []byte {
	b := make([]byte, 1440<<10) // of a floppy disk
	copy(b, []byte{0xba, 0x05, 0x05, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd})
	b[510], b[511] = 0x55, 0xaa
	return b
}()

// AddGuest makes a guest of that kind.
func (h *Hypervisor) AddGuest(ctx context.Context, name string, g Guest) (*Domain, error) {
	if g.UUID == "" {
		g.UUID = string(uuid.NewUUID())
	}
	emulator, err := find("qemu-system-x86_64")
	if err != nil {
		return nil, err
	}
	data := struct{ Name, UUID, Emulator, Disk string }{Name: name, UUID: g.UUID, Emulator: emulator}
	if g.Panics {
		data.Disk = filepath.Join(h.dir, name+".img")
		if err := h.writeFile(data.Disk, panicSector); err != nil {
			return nil, err
		}
	}
	var xml bytes.Buffer
	if err := domainXML.Execute(&xml, data); err != nil {
		return nil, err
	}
	d := &Domain{h: h, name: name, uuid: g.UUID, xml: filepath.Join(h.dir, name+".xml")}
	if err := h.writeFile(d.xml, xml.Bytes()); err != nil {
		return nil, err
	}
	if g.Transient {
		_, err = h.virsh(ctx, "create", d.xml)
	} else if _, err = h.virsh(ctx, "define", d.xml); err == nil && !g.Stopped {
		_, err = h.virsh(ctx, "start", name)
	}
	if err != nil {
		return nil, fmt.Errorf("add domain: %w", err)
	}
	return d, nil
}

// Start starts the domain; one that runs is left alone. A saved one is restored.
func (d *Domain) Start(ctx context.Context) error {
	if state, err := d.State(ctx); err != nil || strings.HasPrefix(state, "running") {
		return err
	}
	_, err := d.h.virsh(ctx, "start", d.uuid)
	return err
}

// Destroy is a hard power-off through libvirt; a domain that does not run is left alone.
func (d *Domain) Destroy(ctx context.Context) error {
	if state, err := d.State(ctx); err != nil || strings.HasPrefix(state, "shut off") {
		return err
	}
	_, err := d.h.virsh(ctx, "destroy", d.uuid)
	return err
}

// Kill kills QEMU, as a crash of it or a lack of memory would, and returns at once: libvirt hears of it a moment later.
func (d *Domain) Kill() error {
	pid := d.PID()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill domain %s: %w", d.name, err)
	}
	return nil
}

// Pause stops the guest's processor, Resume lets it go on.
func (d *Domain) Pause(ctx context.Context) error { return d.do(ctx, "suspend") }

// Resume ends Pause.
func (d *Domain) Resume(ctx context.Context) error { return d.do(ctx, "resume") }

// Save writes the guest's memory to libvirt's own file (a managed save) and ends it; Start restores it from there.
func (d *Domain) Save(ctx context.Context) error { return d.do(ctx, "managedsave") }

// RemoveSave deletes that file.
func (d *Domain) RemoveSave(ctx context.Context) error { return d.do(ctx, "managedsave-remove") }

// Undefine forgets the domain; one that runs becomes transient.
func (d *Domain) Undefine(ctx context.Context) error {
	return d.do(ctx, "undefine", "--managed-save", "--snapshots-metadata")
}

// Rename gives the domain another name; it must not run.
func (d *Domain) Rename(ctx context.Context, name string) error {
	if err := d.do(ctx, "domrename", name); err != nil {
		return err
	}
	d.name = name
	return nil
}

func (d *Domain) do(ctx context.Context, command string, args ...string) error {
	_, err := d.h.virsh(ctx, append([]string{command, d.uuid}, args...)...)
	return err
}

// State is what virsh domstate --reason says: "shut off (destroyed)".
func (d *Domain) State(ctx context.Context) (string, error) {
	return d.h.virsh(ctx, "domstate", "--reason", d.uuid)
}

// Await waits until State is this.
func (d *Domain) Await(ctx context.Context, want string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	last := ""
	for {
		state, err := d.State(ctx)
		if state == want {
			return nil
		}
		if err == nil {
			last = state
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("domain %s: got state %q, %w; want %q", d.name, last, errors.Join(err, ctx.Err()), want)
		case <-time.After(poll):
		}
	}
}

// PID is the id of the guest's QEMU process, 0 if there is none. It asks the kernel, not libvirt.
func (d *Domain) PID() int {
	b, err := os.ReadFile(filepath.Join(d.h.dir, "run/libvirt/qemu/run", d.name+".pid"))
	if err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && d.isMine(pid) {
			return pid
		}
	}
	// libvirt removes the file before QEMU has ended, and when it gives up on one.
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && d.isMine(pid) {
			return pid
		}
	}
	return 0
}

// isMine reports whether a process is this guest's QEMU, and no zombie, whose command line is empty.
func (d *Domain) isMine(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(b, []byte(d.uuid)) && bytes.Contains(b, []byte(d.h.dir+"/")) &&
		bytes.Contains(b, []byte("\x00-uuid\x00"))
}

// Running asks the kernel whether there is a QEMU process, in any state: what may execute, or may again.
func (d *Domain) Running() bool { return d.PID() != 0 }
