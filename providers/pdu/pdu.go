// Package pdu asks switched power strips (PDUs) over SNMP whether the outlets of a machine are off, for servers whose
// BMC dies with their power. It imports the contract, providers/remote and gosnmp.
//
//	providers:
//	- name: racks
//	  pdu:
//	    mib: apc-rpdu2                # or another one of the README's table
//	    username: forcefence
//	    passwordFile: /etc/forcefence-bmc/strips
//	    privacyPasswordFile: ""       # "": the password above is both; or privacyPasswordEnv
//	    authentication: sha256        # default; also sha224, sha384, sha512, and for old strips sha1, md5
//	    privacy: aes128               # default; also aes192, aes256, aes192c, aes256c, and for old strips des
//	    engines: []                   # {host: strip-a.example.net, id: 8000...}: the SNMP engine that may answer
//	    version: v3                   # default; v2c has no authentication: anybody on the network may report Off
//	    offDelay: 5s                  # default; how long all outlets must have been off; some MIBs: at least 12s
//
// A target's ID is host[:port]/outlet, and several with commas between them for a machine with several power supplies:
// strip-a.example.net/7,strip-b.example.net/7. The machine is off where all of them are.
//
// It promises that an answer belongs to exactly that question, came from the engine that was asked, authenticated and
// encrypted (v3), and is about the named outlets. It switches no outlet whose strip does not know it. It cannot know
// which machine an outlet feeds.
package pdu

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// The versions of SNMP. Version 1 has nothing that a strip with v2c lacks.
const (
	v3  = "v3"
	v2c = "v2c"
)

// authentications and privacies are USM's protocols by their names in the file. AES with longer keys was never a
// standard: the ones with a c extend short keys as Cisco does (Reeder), the others as the draft does (Blumenthal).
var (
	authentications = map[string]gosnmp.SnmpV3AuthProtocol{
		"md5": gosnmp.MD5, "sha1": gosnmp.SHA,
		"sha224": gosnmp.SHA224, "sha256": gosnmp.SHA256, "sha384": gosnmp.SHA384, "sha512": gosnmp.SHA512,
	}
	privacies = map[string]gosnmp.SnmpV3PrivProtocol{
		"des": gosnmp.DES, "aes128": gosnmp.AES, "aes192": gosnmp.AES192, "aes256": gosnmp.AES256,
		"aes192c": gosnmp.AES192C, "aes256c": gosnmp.AES256C,
	}
)

// Config is the provider's part of the configuration file.
type Config struct {
	// one of apc-rpdu2, apc-rpdu, cyberpower-epdu, cyberpower-epdu2, eaton-epdu, liebert-mph2, raritan, raritan-px1,
	// servertech-sentry3, servertech-sentry4, vertiv-v5; must be set; APC's AP7900B series: apc-rpdu2
	MIB                string `yaml:"mib"`
	remote.Credentials `yaml:",inline"`
	// this or privacyPasswordEnv; neither: the password is used for both; may hold {name}
	PrivacyPasswordFile string `yaml:"privacyPasswordFile"`
	PrivacyPasswordEnv  string `yaml:"privacyPasswordEnv"` // the environment variable that holds it
	// one of sha224, sha256, sha384, sha512, sha1, md5; signs each packet; default sha256
	Authentication string `yaml:"authentication"`
	// one of aes128, aes192, aes256, aes192c, aes256c, des; encrypts each packet; default aes128
	Privacy string `yaml:"privacy"`
	// SNMP engines that may answer; for other hosts the first authenticated engine is kept
	Engines []Engine `yaml:"engines"`
	// one of v3, v2c; default v3; with v2c every host on the network may report Off
	Version string `yaml:"version"`
	// how long all outlets must have been off, 0s to 1m, raritan and eaton-epdu from 12s; default 5s
	OffDelay time.Duration `yaml:"offDelay"`
}

// Engine is the SNMP engine that answers at a host.
type Engine struct {
	Host string   `yaml:"host"` // host, or host:port
	ID   EngineID `yaml:"id"`   // its engine ID, 5 to 32 bytes in hexadecimal
}

// EngineID is an SNMP engine's name, 5 to 32 bytes, in hexadecimal with or without 0x and colons.
type EngineID string

// UnmarshalText parses an engine's name.
func (e *EngineID) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), ":", ""))
	if err != nil || len(b) < 5 || len(b) > 32 {
		return errors.New("is no engine ID: 5 to 32 bytes in hexadecimal")
	}
	*e = EngineID(b)
	return nil
}

// NewConfig returns the defaults.
func NewConfig() *Config {
	return &Config{Authentication: "sha256", Privacy: "aes128", Version: v3, OffDelay: 5 * time.Second}
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "pdu", NewConfig: func() providers.Config { return NewConfig() },
		Off:      "all outlets of the machine have been off for `offDelay`, with no command pending",
		Identity: "none: a strip does not know what is plugged in",
	}
}

// settleTime is how much longer than a power cycle outlets must be off, if the strip does not report the cycle.
const settleTime = 2 * time.Second

// minPassword is the minimum length that USM requires of a password (RFC 3414, 11.2).
const minPassword = 8

// Validate returns every fault. It reads the files, and asks no strip.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, args ...any) { out = append(out, providers.Problemf(path, format, args...)) }
	if c.MIB == "" {
		problem("mib", "missing: one of %s", joinKeys(mibs))
	} else if _, known := mibs[c.MIB]; !known {
		problem("mib", "is unknown: use one of %s", joinKeys(mibs))
	}
	if c.OffDelay < 0 || c.OffDelay > time.Minute {
		problem("offDelay", "must be 0s to 1m")
	} else if cycle := mibs[c.MIB].cycle; cycle > 0 && c.OffDelay < cycle+settleTime {
		problem("offDelay", "must be at least %s with %s: these strips may not report a power cycle, in which "+
			"outlets are off for %s, or as long as is set there",
			cycle+settleTime, c.MIB, cycle)
	}
	switch c.Version {
	case v2c:
		out = append(out, providers.SecretRef{File: c.PasswordFile, Env: c.PasswordEnv}.Validate("password")...)
		for _, key := range []struct {
			path  string
			given bool
		}{
			{"username", c.Username != ""}, {"privacyPasswordFile", c.PrivacyPasswordFile != ""},
			{"privacyPasswordEnv", c.PrivacyPasswordEnv != ""}, {"engines", len(c.Engines) > 0},
		} {
			if key.given {
				problem(key.path, "has no effect with version v2c, which has no users: passwordFile holds the "+
					"community")
			}
		}
		return out
	case v3:
	default:
		problem("version", "must be v3 or v2c")
	}
	out = append(out, c.Credentials.Validate()...)
	if s, err := c.ReadPassword(); err == nil && len(s.Reveal()) < minPassword {
		problem("passwordFile", "holds a password of fewer than %d characters, which SNMPv3 does not allow",
			minPassword)
	}
	if c.PrivacyPasswordFile != "" || c.PrivacyPasswordEnv != "" {
		if wrong := c.privacyRef().Validate("privacyPassword"); len(wrong) > 0 {
			out = append(out, wrong...)
		} else if s, err := c.privacyRef().ReadSecret(); err == nil && len(s.Reveal()) < minPassword {
			problem("privacyPasswordFile", "holds a password of fewer than %d characters, which SNMPv3 does not allow",
				minPassword)
		}
	}
	if _, known := authentications[c.Authentication]; !known {
		problem("authentication", "is unknown: use one of %s", joinKeys(authentications))
	}
	if _, known := privacies[c.Privacy]; !known {
		problem("privacy", "is unknown: use one of %s", joinKeys(privacies))
	}
	hosts := map[string]bool{}
	for i, e := range c.Engines {
		host, err := parseAddress(e.Host)
		switch {
		case err != nil:
			problem(fmt.Sprintf("engines[%d].host", i), "%v", err)
		case hosts[host]:
			problem(fmt.Sprintf("engines[%d].host", i), "is listed twice")
		}
		hosts[host] = true
		if e.ID == "" {
			problem(fmt.Sprintf("engines[%d].id", i), "missing")
		}
	}
	return out
}

// joinKeys joins a map's keys.
func joinKeys[T any](of map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(of)), ", ") }

func (c *Config) privacyRef() providers.SecretRef {
	return providers.SecretRef{File: c.PrivacyPasswordFile, Env: c.PrivacyPasswordEnv}
}

// Cautions implements providers.Cautious.
func (c *Config) Cautions() (out []providers.Problem) {
	if c.Version == v2c {
		out = append(out, providers.Problemf("version", "anyone on the network may report Off, and reads the "+
			"community. Use v3 where the strips have it"))
	}
	return out
}

// New returns the provider. It contacts no strip.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// HasAddressIDs implements providers.IDs: an ID names its strips.
func (c *Config) HasAddressIDs() bool { return true }

// CanonicalID implements providers.IDs: the outlets in order, their hosts in lower case, without a default port.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	outlets, err := parseID(id, mibs[c.MIB])
	if err != nil {
		return "", nil, err
	}
	parts := make([]string, len(outlets))
	for i, o := range outlets {
		parts[i], hosts = o.String(), append(hosts, o.hostName())
	}
	return strings.Join(parts, ","), slices.Compact(hosts), nil
}

// OnlyFeeds implements providers.Feeds.
func (c *Config) OnlyFeeds() bool { return true }

// SharesPower implements providers.SharesPower: a PDU answers when a machine that it feeds has lost its power.
func (c *Config) SharesPower() bool { return false }

// PartsOf implements providers.Parts: no two machines may share an outlet.
func (c *Config) PartsOf(canonical string) []string { return strings.Split(canonical, ",") }

// Provider controls machines by the outlets of power strips. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	mib      mib
	opts     providers.Options
	pinned   map[string]string // the engines of the configuration, by address
	refusals remote.Refusals
	offRuns  remote.OffRuns

	mu     sync.Mutex // guards what follows
	strips map[string]engine
}

var (
	_ providers.Feeder   = (*Provider)(nil)
	_ providers.Feeds    = (*Config)(nil)
	_ providers.Limiter  = (*Provider)(nil)
	_ providers.Parts    = (*Config)(nil)
	_ providers.Cautious = (*Config)(nil)

	_ providers.SharesPower = (*Config)(nil)
)

// New returns the provider. It contacts no strip. Validate finds every error that it returns.
func New(c Config, o providers.Options) (*Provider, error) {
	m, known := mibs[c.MIB]
	if !known {
		return nil, errors.New("mib is unknown")
	}
	p := &Provider{
		cfg:    c,
		mib:    m,
		opts:   o.WithDefaults(),
		pinned: map[string]string{},
		strips: map[string]engine{},
	}
	for _, e := range c.Engines {
		address, err := parseAddress(e.Host)
		if err != nil {
			return nil, fmt.Errorf("engines: host %w", err)
		}
		p.pinned[address] = string(e.ID)
	}
	return p, nil
}

// Feeds implements providers.Feeder: a server that was shut down keeps its outlets on.
func (*Provider) Feeds() {}

// LimitGroup implements providers.Limiter: machines at the same strips, which are small computers, share their limits.
func (p *Provider) LimitGroup(t providers.Target) string {
	_, hosts, _ := p.cfg.CanonicalID(t.ID)
	return strings.Join(hosts, ",")
}

// State asks every strip for the machine's outlets. Off means that all of them have been off, with no command pending,
// in this process's answers for OffDelay; until then the state is PowerChanging. It is an error if a strip does not
// answer.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, outlets []outlet) error {
		asked := p.opts.Now()
		seen, err := p.askStrips(ctx, outlets)
		state, raw := machineState(seen)
		if err != nil || state != providers.PowerOff {
			p.offRuns.End(t.ID, providers.InstantOf(p.opts.Now()))
		}
		if err != nil {
			return err
		}
		if state == providers.PowerOff {
			now := providers.InstantOf(p.opts.Now())
			if off := p.offRuns.Extend(t.ID, providers.InstantOf(asked), now); off < p.cfg.OffDelay {
				state, raw = providers.PowerChanging, fmt.Sprintf("%s for %s of %s", raw,
					off.Round(100*time.Millisecond), p.cfg.OffDelay)
			}
		}
		obs = providers.Observation{State: state, Raw: raw, At: providers.InstantOf(asked)}
		return nil
	})
	return obs, err
}

// PowerOff switches the outlets off, one after the other. It stops at the first refusal and leaves the rest unchanged.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context, outlets []outlet) error {
		return p.commandOutlets(ctx, outlets, p.mib.setOff)
	})
}

// PowerOn switches the outlets on, one after the other.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context, outlets []outlet) error {
		p.offRuns.End(t.ID, providers.InstantOf(p.opts.Now()))
		return p.commandOutlets(ctx, outlets, p.mib.setOn)
	})
}

// runCall runs one call for the outlets of a target.
func (p *Provider) runCall(ctx context.Context, act string, t providers.Target,
	f func(context.Context, []outlet) error) error {
	return remote.RunCall(ctx, act, t, "pdu "+p.opts.Name+" "+t.ID, func(ctx context.Context) error {
		outlets, err := parseID(t.ID, p.mib)
		if err != nil {
			return providers.WithClass(providers.ErrNotFound, fmt.Errorf("the target's ID %w", err))
		}
		for i := range outlets {
			outlets[i].owner = p.ownerOf(t)
		}
		return f(ctx, outlets)
	})
}

// askStrips asks all strips at once. The answers, and the error that is returned, are by the outlets' order.
func (p *Provider) askStrips(ctx context.Context, outlets []outlet) ([]outletAnswer, error) {
	var wait sync.WaitGroup
	answers, errs := make([]outletAnswer, len(outlets)), make([]error, len(outlets))
	for first := 0; first < len(outlets); {
		end := first + 1
		for end < len(outlets) && outlets[end].address == outlets[first].address {
			end++
		}
		of, into, failed := outlets[first:end], answers[first:end], &errs[first]
		wait.Go(func() { *failed = p.askStrip(ctx, of, into) })
		first = end
	}
	wait.Wait()
	return answers, cmp.Or(errs...)
}

// askStrip asks one strip for its outlets, in one question.
func (p *Provider) askStrip(ctx context.Context, outlets []outlet, answers []outletAnswer) error {
	var oids []gosnmp.SnmpPDU
	columns := p.mib.queryColumns()
	for _, o := range outlets {
		for _, c := range columns {
			oids = append(oids, gosnmp.SnmpPDU{Name: c.oid + "." + o.number, Type: gosnmp.Null})
		}
	}
	values, err := p.exchangeMessage(ctx, outlets[0], gosnmp.GetRequest, oids)
	switch {
	case errors.Is(err, providers.ErrNotFound):
		return p.explainMissing(ctx, outlets, nil, err)
	case err != nil:
		return err
	case slices.ContainsFunc(values, isAbsent):
		return p.explainMissing(ctx, outlets, values, errNoOutlet)
	}
	for i := range outlets {
		answers[i] = p.mib.outletState(values[i*len(columns) : (i+1)*len(columns)])
	}
	return nil
}

var errNoOutlet = providers.WithClass(providers.ErrNotFound, errors.New("the strip has no such outlet"))

// commandOutlets sends the outlets a command, in order.
func (p *Provider) commandOutlets(ctx context.Context, outlets []outlet, c command) error {
	for _, o := range outlets {
		set := gosnmp.SnmpPDU{Name: c.oid + "." + o.number, Type: gosnmp.Integer, Value: c.value}
		values, err := p.exchangeMessage(ctx, o, gosnmp.SetRequest, []gosnmp.SnmpPDU{set})
		if err == nil && slices.ContainsFunc(values, isAbsent) {
			err = errNoOutlet
		}
		if err != nil {
			// Strips answer with many errors for an outlet that they do not have, but with one if asked for its state.
			if !errors.Is(err, providers.ErrNotSent) {
				if _, missing := p.askStrips(ctx, []outlet{o}); errors.Is(missing, providers.ErrNotFound) ||
					errors.Is(missing, providers.ErrPermanent) {
					err = missing
				}
			}
			return fmt.Errorf("outlet %s: %w", o, err)
		}
	}
	return nil
}

// machineState derives the machine's state from its outlets': one that is on feeds it, and all must be off.
func machineState(all []outletAnswer) (providers.PowerState, string) {
	words := make([]string, len(all))
	count := map[providers.PowerState]int{}
	for i, s := range all {
		words[i] = s.word
		count[s.state]++
	}
	state := providers.PowerOff
	switch {
	case count[providers.PowerOn] > 0:
		state = providers.PowerOn
	case count[providers.PowerUnknown] > 0 || len(all) == 0:
		state = providers.PowerUnknown
	case count[providers.PowerChanging] > 0:
		state = providers.PowerChanging
	}
	return state, strings.Join(words, ", ")
}

// ownerOf returns the owner of a target's credentials, as remote.Credentials.OwnerOf does.
func (p *Provider) ownerOf(t providers.Target) string {
	if providers.PerMachine(p.cfg.PrivacyPasswordFile) {
		return t.Node
	}
	return p.cfg.OwnerOf(t)
}

// login holds the credentials that a strip is sent.
type login struct {
	user       string
	auth, priv providers.Secret // the second is for privacy
	sum        remote.CredentialHash
}

// readCredentials reads an owner's passwords, again at each call.
func (p *Provider) readCredentials(owner string) (l login, err error) {
	if l.user, l.auth, err = p.cfg.ReadCredentials(owner); err != nil {
		return l, err
	}
	l.priv = l.auth
	if p.cfg.PrivacyPasswordFile != "" || p.cfg.PrivacyPasswordEnv != "" {
		if l.priv, err = p.cfg.privacyRef().ReadSecretOf(owner); err != nil {
			return l, providers.WithClass(providers.ErrDenied, err)
		}
	}
	auth, priv := l.auth.Reveal(), l.priv.Reveal()
	if p.cfg.Version == v3 && min(len(auth), len(priv)) < minPassword {
		err = fmt.Errorf("the password has fewer than %d characters, which SNMPv3 does not allow", minPassword)
		return l, providers.WithClass(providers.ErrDenied, err)
	}
	l.sum = p.refusals.HashCredential(cmp.Or(l.user, p.cfg.Version),
		providers.NewSecret(fmt.Sprintf("%d %s%s", len(auth), auth, priv)))
	return l, nil
}
