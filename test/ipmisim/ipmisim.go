// Package ipmisim starts OpenIPMI's BMC simulator in front of a machine that is a QEMU process. It is the counterpart
// of providers/ipmi in tests, in the demonstration and in benchmarks. It imports the standard library, and runs
// ipmi_sim and qemu-system-x86_64, which must be installed (Missing).
//
// The simulator asks and switches the machine through a shell script (IPMI's chassis commands are its chassis_control
// program), so its answers are about the process as it is. It crashes now and then and is started again, as a BMC's
// watchdog does. Everything ends with Stop and with the process that started it, however that ends: the simulator by
// its parent's death signal, the machine, which QEMU puts into the background, by a shell that waits for the process's
// end.
package ipmisim

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/forcefence/forcefence/test/kit"
)

// Options are a BMC's settings. The zero value works.
type Options struct {
	UUID     string // of the machine, and the BMC's system GUID; "": a random one
	Password string // of both accounts, at most 16 letters and digits; "": a random one
	Kg       string // the BMC's key, at most 19 letters and digits; "": none
}

// BMC is a simulator and its machine, which is off at first. It is safe for concurrent use.
type BMC struct {
	dir      string
	uuid     string
	port     int
	password string
	kg       string

	sweep func() // ends what is left

	sim *kit.Part
}

// The accounts of a BMC: one that may switch the machine, and one that may only ask. They have the same password.
const (
	Operator = "fence"
	Reader   = "watch"
)

// CipherSuite is the best that the simulator has. Its refusals of others have no session ID, so a client cannot know
// whose they are.
const CipherSuite = 3

var programs = []string{"ipmi_sim", "qemu-system-x86_64"}

// Missing says what is not installed, "" if nothing is missing.
func Missing() string {
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (apt-get install openipmi qemu-system-x86)"
		}
	}
	return ""
}

//go:embed chassis.sh
var chassis []byte

// Start starts a BMC and returns once it answers.
func Start(ctx context.Context, o Options) (*BMC, error) {
	if missing := Missing(); missing != "" {
		return nil, errors.New(missing)
	}
	dir, err := os.MkdirTemp("", "bmc")
	if err != nil {
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	b := &BMC{dir: dir, password: cmp.Or(o.Password, rand.Text()[:16]), kg: o.Kg} // longer ones are IPMI 2.0's only
	if err := b.setUp(ctx, o); err != nil {
		_ = b.Stop()
		return nil, fmt.Errorf("start BMC: %w", err)
	}
	return b, nil
}

func (b *BMC) setUp(ctx context.Context, o Options) error {
	b.uuid = cmp.Or(o.UUID, string(uuid.NewUUID()))
	guid, err := hex.DecodeString(strings.ReplaceAll(b.uuid, "-", ""))
	if err != nil || len(guid) != 16 {
		return fmt.Errorf("%q is no UUID", o.UUID)
	}
	// Most BMCs send it as it is in SMBIOS.
	for _, part := range [][]byte{guid[0:4], guid[4:6], guid[6:8]} {
		slices.Reverse(part)
	}
	if err := kit.FreePorts(&b.port); err != nil {
		return err
	}
	key := ""
	if b.kg != "" {
		key = fmt.Sprintf("  bmc_key %q\n", b.kg)
	}
	lan := fmt.Sprintf(`name "bmc"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 %d
  priv_limit admin
  guid %x
%sendlan
chassis_control "%s/chassis.sh %s"
user 2 true "%s" "%s" operator 10
user 3 true "%s" "%s" user 10
`, b.port, guid, key, b.dir, b.UUID(), Operator, b.password, Reader, b.password)
	const emulation = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 " +
		"persist_sdr\nmc_enable 0x20\n"
	if err := errors.Join(
		os.Mkdir(filepath.Join(b.dir, "state"), 0o700),
		os.WriteFile(b.PasswordFile(), []byte(b.password+"\n"), 0o600),
		os.WriteFile(filepath.Join(b.dir, "lan.conf"), []byte(lan), 0o600),
		os.WriteFile(filepath.Join(b.dir, "bmc.emu"), []byte(emulation), 0o600),
		os.WriteFile(filepath.Join(b.dir, "chassis.sh"), chassis, 0o700),
	); err != nil {
		return err
	}
	if b.sweep, err = kit.Sweep(b.dir); err != nil {
		return err
	}
	args := []string{"-c", "lan.conf", "-f", "bmc.emu", "-s", filepath.Join(b.dir, "state"), "-n"}
	b.sim = kit.NewPart("ipmi_sim", "ipmi_sim", args, b.LogFile(), b.ping, nil)
	b.sim.Change = func(cmd *exec.Cmd) { cmd.Dir = b.dir }
	return b.sim.Start(ctx)
}

// ping asks for the channel's authentication capabilities, which needs no session.
func (b *BMC) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", b.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("\x06\x00\xff\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x09\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return err
}

// Restart kills the simulator, and returns once it answers again: it knows no session any more. The machine is left as
// it is.
func (b *BMC) Restart(ctx context.Context) error {
	b.sim.Kill()
	return b.sim.Start(ctx)
}

// Stop ends the BMC and the machine and removes their files. It may be repeated.
func (b *BMC) Stop() error {
	if b.sim != nil {
		b.sim.Kill()
	}
	if b.sweep != nil {
		b.sweep()
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("stop BMC: %w", err)
	}
	return nil
}

// Address is where the BMC listens, host:port.
func (b *BMC) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// UUID is the machine's.
func (b *BMC) UUID() string { return b.uuid }

// PasswordFile holds the accounts' password.
func (b *BMC) PasswordFile() string { return filepath.Join(b.dir, "password") }

// LogFile is what the simulator says.
func (b *BMC) LogFile() string { return filepath.Join(b.dir, "ipmi_sim.log") }

// Ignore has the BMC accept commands and do nothing, or do them again.
func (b *BMC) Ignore(commands bool) error {
	file := filepath.Join(b.dir, "ignore")
	if commands {
		return os.WriteFile(file, nil, 0o600)
	}
	return os.RemoveAll(file)
}

// Asked counts how often the simulator was asked whether the machine runs.
func (b *BMC) Asked() int {
	asked, _ := os.ReadFile(filepath.Join(b.dir, "asked")) // absent until the simulator's first question
	return len(asked)
}

// SetPower switches the machine behind the BMC's back, and returns when it runs or is gone.
func (b *BMC) SetPower(ctx context.Context, on bool) error {
	value := map[bool]string{false: "0", true: "1"}[on]
	out, err := exec.CommandContext(ctx, filepath.Join(b.dir, "chassis.sh"), b.UUID(), "force", "power", value).
		CombinedOutput()
	if err == nil && b.Running() != on {
		err = errors.New("it is not")
	}
	if err != nil {
		return fmt.Errorf("set power to %s: %w: %s", value, err, out)
	}
	return nil
}

// Running reports whether the machine's process may execute anything.
func (b *BMC) Running() bool {
	pid, err := os.ReadFile(filepath.Join(b.dir, "qemu.pid"))
	if err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), "(qemu-")
	_, after, _ = strings.Cut(after, ") ")
	return after != "" && after[0] != 'Z' && after[0] != 'X'
}
