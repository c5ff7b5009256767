// Package confirm reads a person's statement that a node's machine is off, written by `forcefence confirm-off`. It
// imports the contract and asks no device: it reads the Node.
//
// It promises that a person's statement is an Off only for the Node, the boot and the one fence that it names, and for
// a limited time. It is never an On, and cannot change power.
package confirm

import (
	"context"
	"fmt"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Config is the provider's part of the configuration file.
type Config struct {
	// how long a confirmation counts; 1m to 24h
	ValidFor time.Duration `yaml:"validFor"`
}

// maxClockAhead is how far a person's clock may be ahead of this process's clock.
const maxClockAhead = time.Minute

// Type returns the type for the registry.
func Type() providers.Type {
	return providers.Type{
		Name: "confirm", NewConfig: func() providers.Config { return &Config{ValidFor: 15 * time.Minute} },
		Off:      "a person confirmed it, for this boot of the node and this fence (`forcefence confirm-off`)",
		Identity: "none",
	}
}

// Validate returns every fault.
func (c *Config) Validate() []providers.Problem {
	if c.ValidFor < time.Minute || c.ValidFor > 24*time.Hour {
		return []providers.Problem{providers.Problemf("validFor",
			"must be from 1m to 24h: an older confirmation proves nothing")}
	}
	return nil
}

// Personal implements providers.Personal.
func (c *Config) Personal() {}

// SharesPower implements providers.SharesPower: a person can look at a machine that has no power.
func (c *Config) SharesPower() bool { return false }

// New returns the provider. It reads nothing yet.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	return provider{o.WithDefaults(), c.ValidFor}, nil
}

type provider struct {
	opts     providers.Options
	validFor time.Duration
}

// State reads the Node live.
func (p provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: providers.InstantOf(p.opts.Now())}
	if p.opts.Node == nil {
		return obs, providers.Errorf(providers.ErrPermanent, "there is no API server to read the Node from")
	}
	n, err := p.opts.Node(ctx, t.Node)
	if err != nil {
		return obs, err
	}
	switch s := n.Confirmed; {
	case s.Refused != "":
		obs.Raw = s.Refused
	case s.By == "":
		obs.Raw = "not confirmed"
	case s.At.After(obs.At.Wall.Add(maxClockAhead)):
		obs.Raw = "confirmed in the future: check the clocks"
	case obs.At.Wall.Sub(s.At) > p.validFor:
		obs.Raw = "the confirmation has expired"
	default:
		obs.State, obs.Raw = providers.PowerOff, fmt.Sprintf("%s: %s", s.By, s.Reason)
	}
	return obs, nil
}

// errNoPower refuses power actions.
var errNoPower = providers.Errorf(providers.ErrPermanent, "a confirmation cannot change power: give the node another "+
	"device, too")

// Quiet implements providers.Quiet: there is no statement about a machine that runs.
func (provider) Quiet() {}

// PowerOff always fails: a statement cannot change power.
func (provider) PowerOff(context.Context, providers.Target, func() error) error { return errNoPower }

// PowerOn always fails.
func (provider) PowerOn(context.Context, providers.Target, func() error) error { return errNoPower }
