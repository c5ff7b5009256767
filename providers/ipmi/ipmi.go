// Package ipmi controls machines by BMCs that speak IPMI 2.0 over a network (RMCP+). It imports the contract,
// providers/remote and go-ipmi. It uses go-ipmi's messages and cryptography, but not its client, which trusts whatever
// answers. The README beside it explains what counts as off.
//
//	providers:
//	- name: rack-a
//	  ipmi:
//	    username: forcefence
//	    passwordFile: /etc/forcefence-bmc/password
//
// A target's ID is its BMC's address: 10.0.0.7, bmc7.example.net:623 or ipmi://10.0.0.7.
//
// It promises that every answer was signed by the BMC (RMCP+'s integrity code) in that call and was never seen before.
// A BMC has at most one session of this provider, with one caller at a time, and gets that session back. A password
// that was refused twice in a row is not tried again.
package ipmi

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	remote.Credentials `yaml:",inline"`

	// with the BMC key (Kg), if BMCs have one: text, or hexadecimal after 0x; read again at each use
	KgFile string `yaml:"kgFile"`
	KgEnv  string `yaml:"kgEnv"` // the environment variable that holds it

	// one of user, operator, administrator; user can only read; default operator
	Privilege string `yaml:"privilege"`
	// tried in this order until the BMC accepts one; default 17, 3
	CipherSuites []int `yaml:"cipherSuites"`

	// for BMCs whose system GUID is not the machine's UUID; then nothing shows which machine a BMC controls
	IgnoreGUID bool `yaml:"ignoreGUID"`
	// for BMCs whose ACPI power state stays at sleeping; then a hibernated machine counts as off
	IgnoreACPIState bool `yaml:"ignoreACPIState"`
}

// privileges are the values of Config.Privilege.
var privileges = map[string]types.PrivilegeLevel{
	"user":          types.PrivilegeLevelUser,
	"operator":      types.PrivilegeLevelOperator,
	"administrator": types.PrivilegeLevelAdministrator,
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "ipmi", NewConfig: func() providers.Config { return NewConfig() },
		Off: "the chassis power is off, and the ACPI power state, if the BMC reports one, is no sleep state (S1 " +
			"to S4)",
		Identity: "the system GUID, where the BMC has one",
	}
}

// NewConfig returns the defaults.
func NewConfig() *Config { return &Config{Privilege: "operator", CipherSuites: []int{17, 3}} }

// Validate returns every fault. It reads the password's file, and asks no BMC.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	out = c.Credentials.Validate()
	if len(c.Username) > maxUser && !providers.PerMachine(c.Username) {
		problem("username", "%v", errLongUser)
	}
	if c.PasswordFile != "" {
		if password, err := c.ReadPassword(); err == nil && len(password.Reveal()) > maxPassword {
			problem("passwordFile", "%v", errLongPassword)
		}
	}
	if c.KgFile != "" {
		if _, err := c.readKg(); err != nil {
			problem("kgFile", "%v", err)
		}
	} else if c.KgEnv != "" {
		out = append(out, providers.SecretRef{Env: c.KgEnv}.Validate("kg")...)
	}
	if _, ok := privileges[c.Privilege]; !ok {
		problem("privilege", "is %q: use user, operator or administrator", c.Privilege)
	}
	if len(c.CipherSuites) == 0 {
		problem("cipherSuites", "is empty: use 17, 3 or both")
	}
	for i, id := range c.CipherSuites {
		if _, ok := suites[id]; !ok {
			problem(fmt.Sprintf("cipherSuites[%d]", i),
				"is %d: use 17 or 3, because with others anybody who can send a packet could report Off", id)
		}
	}
	return out
}

// readKg reads the BMCs' own key; without one it returns nil. The error is ErrDenied, and never contains the key.
func (c *Config) readKg() ([]byte, error) {
	if c.KgFile == "" && c.KgEnv == "" {
		return nil, nil
	}
	text, err := providers.SecretRef{File: c.KgFile, Env: c.KgEnv}.ReadSecret()
	if err != nil {
		return nil, providers.WithClass(providers.ErrDenied, fmt.Errorf("the BMC key: %w", err))
	}
	key, err := parseKg(text.Reveal())
	return key, providers.WithClass(providers.ErrDenied, err)
}

// parseKg parses a BMC key as ipmitool does: text (-k), or hexadecimal (-y), which begins with 0x or has its full
// length.
func parseKg(text string) (key []byte, err error) {
	digits, isHex := strings.CutPrefix(strings.ToLower(text), "0x")
	if key, err = hex.DecodeString(digits); !isHex && (err != nil || len(key) != maxKg) {
		key, err = []byte(text), nil
	}
	switch {
	case err != nil:
		return nil, errors.New("the BMC key begins with 0x and is not hexadecimal")
	case len(key) > maxKg:
		return nil, fmt.Errorf("the BMC key has more than %d bytes, IPMI's maximum", maxKg)
	case len(bytes.Trim(key, "\x00")) == 0:
		return nil, errors.New("the BMC key is empty or all zeros: remove kgFile")
	}
	return key, nil
}

// New returns the provider. It contacts no BMC.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// SharesPower implements providers.SharesPower: a BMC runs on its machine's power supplies.
func (c *Config) SharesPower() bool { return true }

// NoPowerActions implements providers.ReadOnly: the privilege user can only ask.
func (c *Config) NoPowerActions() *providers.Problem {
	if c.Privilege != "user" {
		return nil
	}
	p := providers.Problemf("privilege", "The privilege user may only ask: use operator")
	return &p
}

// HasAddressIDs implements providers.IDs: an ID is its BMC's address.
func (c *Config) HasAddressIDs() bool { return true }

// CanonicalID implements providers.IDs: ipmi://host[:port], in lower case, without the default port 623.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	u, err := parseID(id)
	if err != nil {
		return "", nil, err
	}
	return "ipmi://" + u.Host, []string{u.Hostname()}, nil
}

// parseID parses an ID; the Host of the result is in canonical form. Its errors never repeat the ID.
func parseID(id string) (*url.URL, error) {
	if ip, err := netip.ParseAddr(id); err == nil && ip.Is6() {
		id = "[" + id + "]"
	}
	if !strings.Contains(id, "://") {
		id = "ipmi://" + id
	}
	u, err := url.Parse(id)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, errAddress
	case u.User != nil:
		return nil, errors.New("holds credentials: use username and passwordFile")
	case u.Scheme != "ipmi":
		return nil, errors.New("is not ipmi://: " + howToWrite)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("has a path, query or fragment: " + howToWrite)
	}
	if u.Host, err = remote.CanonicalHost(u); err != nil {
		return nil, errAddress
	}
	u.Host = strings.TrimSuffix(u.Host, ":"+defaultPort)
	return u, nil
}

const (
	defaultPort = "623"
	howToWrite  = "write host, host:port or ipmi://host[:port]"
)

var errAddress = errors.New("is no address: " + howToWrite)

// Provider controls machines by their BMCs. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	opts     providers.Options
	refusals remote.Refusals
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	pool     *remote.Pool[*bmc]

	forget, warm time.Duration
	timing       sendTiming
}

var (
	_ providers.Closer  = (*Provider)(nil)
	_ providers.Grouper = (*Provider)(nil)
	_ providers.IDs     = (*Config)(nil)

	_ providers.ReadOnly    = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
)

// New returns the provider for a valid Config. It contacts no BMC.
func New(c Config, o providers.Options) (*Provider, error) {
	p := &Provider{cfg: c, opts: o.WithDefaults(), dial: new(net.Dialer).DialContext, forget: forgetAfter,
		warm: warmFor, timing: defaultTiming}
	p.pool = remote.NewPool(idleAfter, func(a remote.Account) *bmc {
		return &bmc{Account: a, turn: make(chan struct{}, 1)}
	}, p.expireBMC)
	return p, nil
}

// State asks for the system's GUID, for the chassis' power, and if that is off for the ACPI power state. An undefined
// state is PowerUnknown without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	var obs providers.Observation
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, s *session) error {
		obs = providers.Observation{At: providers.InstantOf(p.opts.Now())}
		if !p.cfg.IgnoreGUID {
			var guid app.GetSystemGUIDResponse
			err := s.sendQuery(ctx, &app.GetSystemGUIDRequest{}, &guid)
			switch {
			case err == nil:
				obs.SystemUUID = systemUUID(guid.GUID, t.SystemUUID)
			case !isNotOffered(err):
				return fmt.Errorf("asking for the system's GUID: %w", err)
			}
		}
		var status chassis.GetChassisStatusResponse
		err := s.sendQuery(ctx, &chassis.GetChassisStatusRequest{}, &status)
		if err != nil {
			return fmt.Errorf("asking for the chassis' status: %w", err)
		}
		if status.PowerIsOn {
			obs.State, obs.Raw = providers.PowerOn, "on"
			return nil
		}
		obs.State, obs.Raw, err = p.readACPIState(ctx, s)
		return err
	})
	return obs, err
}

// readACPIState decides what the Off of a chassis proves: the machine may have written its memory to a disk before.
func (p *Provider) readACPIState(ctx context.Context, s *session) (providers.PowerState, string, error) {
	if p.cfg.IgnoreACPIState {
		return providers.PowerOff, "off", nil
	}
	answer, err := s.sendCommand(ctx, types.CommandGetACPIPowerState, nil, nil)
	switch {
	case isNotOffered(err):
		return providers.PowerOff, "off", nil
	case err != nil:
		return providers.PowerUnknown, "off", fmt.Errorf("the chassis is off, asking for the ACPI power state: %w", err)
	case len(answer) == 0:
		return providers.PowerUnknown, "off", providers.WithClass(providers.ErrUnreachable,
			errors.New("the chassis is off, the answer about the ACPI power state is empty"))
	}
	state := answer[0] & 0x7f // bit 7 is reserved
	known, ok := acpiStates[state]
	if !ok {
		return providers.PowerUnknown, fmt.Sprintf("off, ACPI %#02x", state), nil
	}
	return known.state, "off, ACPI " + known.word, nil
}

// acpiStates maps the system power states of Get ACPI Power State (IPMI 2.0, table 20-7) for a chassis that is off.
// Software in the machine sets them, and a machine that lost power had no time for that: "working" contradicts nothing.
// A state in which memory is kept was set on purpose.
var acpiStates = map[byte]struct {
	state providers.PowerState
	word  string
}{
	0x00: {providers.PowerOff, "S0/G0 working"},
	0x01: {providers.PowerOn, "S1 sleeping"},
	0x02: {providers.PowerOn, "S2 sleeping"},
	0x03: {providers.PowerOn, "S3 suspended"},
	0x04: {providers.PowerOn, "S4 hibernated"},
	0x05: {providers.PowerOff, "S5/G2 soft-off"},
	0x06: {providers.PowerOff, "S4/S5 soft-off"},
	0x07: {providers.PowerOff, "G3 mechanical off"},
	0x08: {providers.PowerOn, "sleeping, S1 to S3"},
	0x09: {providers.PowerOn, "G1 sleeping, S1 to S4"},
	0x0a: {providers.PowerOff, "S5 by override"},
	0x20: {providers.PowerOff, "legacy on"},
	0x21: {providers.PowerOff, "legacy soft-off"},
	0x2a: {providers.PowerOff, "not known to the BMC"},
}

// systemUUID parses a system GUID. IPMI 2.0 (20.8) reverses all 16 bytes, most BMCs write them as SMBIOS does. It
// returns the one of both that is the node's, and "" if one of them identifies no machine.
func systemUUID(guid [16]byte, node string) string {
	smbios := providers.FormatUUID(providers.SwapUUID(guid))
	slices.Reverse(guid[:])
	reversed := providers.FormatUUID(guid)
	for _, text := range []string{smbios, reversed} {
		if _, ok := providers.ParseUUID(text); !ok {
			return ""
		}
	}
	if _, ok := providers.ParseUUID(node); ok && providers.SameMachine(node, reversed) == nil {
		return reversed
	}
	return smbios
}

// PowerOff requests a power-down of the chassis, which is immediate and hard. Accepted is not off.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return p.controlChassis(remote.WithStill(ctx, still), "power off", t, chassis.ChassisControlPowerDown, false)
}

// PowerOn requests a power-up of the chassis.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return p.controlChassis(remote.WithStill(ctx, still), "power on", t, chassis.ChassisControlPowerUp, true)
}

// controlChassis sends the command. If the BMC refuses, it reads the state: the action may be done already.
func (p *Provider) controlChassis(ctx context.Context, act string, t providers.Target, c chassis.ChassisControl,
	on bool) error {
	return p.runCall(ctx, act, t, func(ctx context.Context, s *session) error {
		q := chassis.ChassisControlRequest{ChassisControl: c}
		_, refused := s.sendCommand(ctx, q.Command(), q.Pack(), func() error { return remote.MaySend(ctx) })
		if completionCode(refused) == 0 {
			return refused
		}
		var status chassis.GetChassisStatusResponse
		if err := s.sendQuery(ctx, &chassis.GetChassisStatusRequest{}, &status); err == nil && status.PowerIsOn == on {
			return nil
		}
		return refused
	})
}

// DeviceOf returns the BMC that answers for a target, "" if its ID is no address.
func (p *Provider) DeviceOf(t providers.Target) string {
	device, _, _ := p.cfg.CanonicalID(t.ID)
	return device
}

// runCall runs one call against the target's BMC and explains its error.
func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f sessionFunc) error {
	return remote.RunCall(ctx, act, t, "ipmi "+p.opts.Name+" "+p.DeviceOf(t), func(ctx context.Context) error {
		u, err := parseID(t.ID)
		if err != nil {
			return providers.WithClass(providers.ErrNotFound, fmt.Errorf("the target's ID %w", err))
		}
		address := u.Host
		if u.Port() == "" {
			address += ":" + defaultPort
		}
		return classifyRefusal(p.withSession(ctx, remote.Account{Device: address, Owner: p.cfg.OwnerOf(t)}, f))
	})
}

// completionCode returns the completion code with which the BMC refused a request, 0 for any other error and nil.
func completionCode(err error) types.CompletionCode {
	if refused, ok := types.IsResponseError(err); ok {
		return refused.CompletionCode()
	}
	return types.CodeOK
}

// isNotOffered reports whether the error means that a BMC does not have a command.
func isNotOffered(err error) bool {
	switch completionCode(err) {
	case types.CodeInvalidCommand, types.CodeInvalidCommandForLUN:
		return true
	}
	return false
}

// classifyRefusal adds a class to a BMC's refusal.
func classifyRefusal(err error) error {
	class := providers.ErrPermanent
	if providers.ErrorClass(err) == "denied" {
		return err
	}
	switch completionCode(err) {
	case types.CodeOK:
		return err
	case types.CodeInsufficientPrivilege:
		class = providers.ErrDenied
	case types.CodeNodeBusy, types.CodeProcessTimeout, types.CodeOutOfSpace, types.CodeCannotProvideResponse,
		types.CodeCannotProvideResponseSDRRInUpdate, types.CodeCannotProvideResponseFirmwareUpdate,
		types.CodeCannotProvideResponseBMCInitialize, types.CodeDestinationUnavailable, types.CodeUnspecifiedError:
		class = providers.ErrUnreachable
	}
	return providers.WithClass(class, err)
}
