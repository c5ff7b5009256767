// Package vsphere asks a vCenter, by way of govmomi, whether a node that is a VMware VM is off. It imports the
// contract, providers/remote and govmomi's SOAP client with the API's types and methods. The README beside it says
// which rights it needs and what counts as off.
//
//	providers:
//	- name: vcenter-a
//	  vsphere:
//	    address: https://vcenter.example.net
//	    username: forcefence@vsphere.local
//	    passwordFile: /etc/forcefence-bmc/vcenter-password
//	    caFile: /etc/forcefence-bmc/vcenter-ca.pem
//
// A target's ID is its VM's BIOS UUID, alone or as a providerID (vsphere://UUID); without one the VM is found by the
// node's system UUID, which is the BIOS UUID in one byte order or the other.
//
// It promises that a VM's state and its host's were asked in that call. A VM that vCenter has lost (disconnected,
// orphaned, inaccessible) is never off, nor is one on a host that vCenter has lost. It chooses none of two VMs with one
// UUID. There is one session per vCenter. A refused password is not sent again and reaches no other host.
package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Address            string `yaml:"address"` // of the vCenter, or of one ESXi host: https://host[:port]; must be set
	remote.Credentials `yaml:",inline"`
	remote.Trust       `yaml:",inline"`
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "vsphere", NewConfig: func() providers.Config { return &Config{} },
		Off: "`runtime.powerState` is `poweredOff`, vCenter is connected to the VM and its host, and vSphere " +
			"HA does not protect it",
		Identity: "the VM's BIOS UUID",
	}
}

// Validate returns every fault. It reads the files, and asks no vCenter.
func (c *Config) Validate() (out []providers.Problem) {
	if c.Address == "" {
		out = append(out, providers.Problemf("address", "missing: write https://host[:port]"))
	} else if _, err := c.apiEndpoint(); err != nil {
		out = append(out, providers.Problemf("address", "%v", err))
	}
	out = append(out, c.ValidateShared()...)
	return append(out, c.Trust.Validate()...)
}

// New returns the provider. It contacts no vCenter.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// apiEndpoint returns the address of the API.
func (c *Config) apiEndpoint() (*url.URL, error) {
	u, err := remote.ParseHTTP(c.Address, false)
	if err != nil {
		return nil, err
	}
	if path := strings.TrimSuffix(u.Path, "/"); path != "" && path != "/sdk" {
		return nil, errors.New("has a path that is not /sdk: write https://host[:port]")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/sdk"}, nil
}

// SharesPower implements providers.SharesPower: vCenter does not know the state of a VM whose host lost its power.
func (c *Config) SharesPower() bool { return true }

// HasAddressIDs implements providers.IDs: only the configuration names the vCenter.
func (c *Config) HasAddressIDs() bool { return false }

// CanonicalID implements providers.IDs: a BIOS UUID in the lesser of both byte orders, since a kubelet and vCenter
// write it in either.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if canonical = providers.CanonicalUUID(strings.TrimPrefix(id, "vsphere://")); canonical == "" && id != "" {
		return "", nil, errors.New("is not a BIOS UUID: write 32 hexadecimal digits, with or without vsphere:// " +
			"before them")
	}
	return canonical, nil, nil
}

// Provider controls the VMs of one vCenter. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	opts     providers.Options
	sdk      *url.URL
	origin   string
	http     http.RoundTripper
	drop     func() // closes idle connections
	refusals remote.Refusals
	timing   watchTiming
	page     int32 // pageSize

	ending context.Context // of log-ins; ends when Close's time is up
	end    context.CancelFunc
	work   sync.WaitGroup // log-ins; Add happens with mu held and closed false

	mu           sync.Mutex // guards what follows
	session      *session   // nil: none
	pendingLogIn *logIn     // nil: none is under way
	closed       bool
}

var (
	_ providers.Provider    = (*Provider)(nil)
	_ providers.BatchStater = (*Provider)(nil)
	_ providers.Watcher     = (*Provider)(nil)
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Closer      = (*Provider)(nil)
	_ providers.IDs         = (*Config)(nil)
	_ providers.Cautious    = (*Config)(nil)
)

// keptConns is how many idle connections are kept: one for each parallel call of the README's sample, and a watch's.
const keptConns = 9

// New returns the provider for a valid Config. It contacts no vCenter.
func New(c Config, o providers.Options) (*Provider, error) {
	u, err := c.apiEndpoint()
	if err != nil {
		return nil, fmt.Errorf("address %w", err)
	}
	t := c.NewTransport(nil)
	t.MaxIdleConnsPerHost = keptConns
	p := &Provider{
		cfg:    c,
		opts:   o.WithDefaults(),
		sdk:    u,
		origin: u.Scheme + "://" + u.Host,
		http:   checkedAnswers{remote.Limited{Next: t, Bytes: maxAnswer, Values: maxTags}},
		drop:   t.CloseIdleConnections,
		timing: defaultTiming,
		page:   pageSize,
	}
	p.ending, p.end = context.WithCancel(context.Background())
	if c.InsecureSkipVerify {
		p.opts.Log.Warn("The certificate of a vCenter is not verified", "provider", o.Name)
	}
	return p, nil
}

// LimitGroup implements providers.Limiter: all VMs are asked for at one vCenter. Each VM is trusted on its own, so
// there is no DeviceOf.
func (p *Provider) LimitGroup(providers.Target) string { return p.origin }

// State asks for the VM and its host. Errors have a class; a state that vSphere does not define is PowerUnknown without
// an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, s *session) (err error) {
		obs = providers.Observation{At: providers.InstantOf(p.opts.Now())}
		inv, err := s.readInventory(ctx, t)
		if err != nil {
			return err
		}
		return inv.observeVM(t, &obs)
	})
	return obs, err
}

// MaxStates implements providers.BatchStater: as many nodes as a cluster may have.
func (p *Provider) MaxStates() int { return 5000 }

// States implements providers.BatchStater: one RetrievePropertiesEx for all VMs that the account may see, and their
// hosts.
func (p *Provider) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	found, errs := map[string]providers.Observation{}, providers.Unanswered{}
	all := providers.Target{Node: targets[0].Node}
	if len(targets) > 1 {
		all.Node += fmt.Sprintf(" and %d more", len(targets)-1)
	}
	err := p.runCall(ctx, "ask state of", all, func(ctx context.Context, s *session) error {
		clear(found)
		clear(errs)
		at := providers.InstantOf(p.opts.Now())
		inv, err := s.readInventory(ctx, targets...)
		if err != nil {
			return err
		}
		for _, t := range targets {
			obs := providers.Observation{At: at}
			observe := func(context.Context) error { return inv.observeVM(t, &obs) }
			if err := remote.RunCall(ctx, "ask state of", t, p.deviceName(), observe); err != nil {
				errs[t.Key()] = err
			} else {
				found[t.Key()] = obs
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return found, errs
	}
	return found, nil
}

// PowerOff sends PowerOffVM_Task, the equivalent of a pulled plug, unless the VM is off already. Accepted is not off:
// it does not wait for the task's result. It also powers off a suspended VM, whose memory is lost as with a pulled
// plug.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context, s *session) error {
		v, state, err := s.findOwnVM(ctx, t)
		if err != nil || state == providers.PowerOff {
			return err
		}
		err = callAction(ctx, s, methods.PowerOffVM_Task, &types.PowerOffVM_Task{This: v.ref})
		return unlessAlready(err, types.VirtualMachinePowerStatePoweredOff)
	})
}

// PowerOn sends PowerOnVM_Task, unless the VM is on already. It does not power on a suspended VM: that would resume the
// memory of the earlier machine.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context, s *session) error {
		v, state, err := s.findOwnVM(ctx, t)
		switch {
		case err != nil:
			return err
		case v.power == string(types.VirtualMachinePowerStateSuspended):
			return providers.Errorf(providers.ErrPermanent, "suspended: powering it on would resume its memory "+
				"(resume it, or power it off first)")
		case state == providers.PowerOn:
			return nil
		}
		err = callAction(ctx, s, methods.PowerOnVM_Task, &types.PowerOnVM_Task{This: v.ref})
		return unlessAlready(err, types.VirtualMachinePowerStatePoweredOn)
	})
}

// unlessAlready drops the fault of a VM that already is in the requested state.
func unlessAlready(err error, state types.VirtualMachinePowerState) error {
	var f *types.InvalidPowerState
	if asFault(err, &f) && f.ExistingState == state {
		return nil
	}
	return err
}

// runCall runs one call of the contract with a session. It replaces a session that vCenter has ended once, and repeats
// the call: nothing was done in a session that did not exist.
func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f sessionCall) error {
	return remote.RunCall(ctx, act, t, p.deviceName(), func(ctx context.Context) error { return p.withSession(ctx, f) })
}

type sessionCall = func(context.Context, *session) error

func (p *Provider) withSession(ctx context.Context, f sessionCall) (err error) {
	for range 2 {
		var s *session
		if s, err = p.loggedIn(ctx); err != nil {
			return err
		}
		if err = f(ctx, s); !errors.Is(err, errSession) {
			return err
		}
		p.forgetSession(s)
	}
	return err
}

func (p *Provider) deviceName() string { return "vsphere " + p.opts.Name + " " + p.origin }

// watchTiming holds the times of the requests that a watch makes by itself.
type watchTiming struct {
	wait        time.Duration // for vCenter's next event; then it says that there was none
	first, last time.Duration // between two attempts to listen; doubles with each that fails
}

// defaultTiming is below the 30 s limit for an answer's first byte.
var defaultTiming = watchTiming{wait: 15 * time.Second, first: 250 * time.Millisecond, last: time.Minute}
