// Package plug asks a power strip with a web interface whether an outlet is on. No such strip exists: this is the
// example of providers/README.md, the smallest possible type. It imports the contract, providers/remote and the
// standard library.
//
//	providers:
//	- name: strip-a
//	  plug:
//	    address: https://strip-a.example.net
//	    username: forcefence
//	    passwordFile: /etc/forcefence-bmc/strip-a
//
// A target's ID is its outlet. It promises that a state was asked in that call, and that the password reaches no other
// host.
package plug

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Address            string `yaml:"address"` // of the strip; must be set
	remote.Credentials `yaml:",inline"`
	remote.Trust       `yaml:",inline"`
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "plug", NewConfig: func() providers.Config { return &Config{} },
		Off: "the outlet's state is `off`", Identity: "none: a strip does not know what is plugged in",
	}
}

// Validate returns every fault. It reads the files, and asks no strip.
func (c *Config) Validate() (out []providers.Problem) {
	if c.Address == "" {
		out = append(out, providers.Problemf("address", "missing: write https://host[:port]"))
	} else if _, err := remote.ParseHTTP(c.Address, false); err != nil {
		out = append(out, providers.Problemf("address", "%v", err))
	}
	out = append(out, c.ValidateShared()...)
	return append(out, c.Trust.Validate()...)
}

// New returns the provider. It contacts no strip.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	u, err := remote.ParseHTTP(c.Address, false)
	if err != nil {
		return nil, fmt.Errorf("address %w", err)
	}
	p := &Provider{cfg: *c, opts: o.WithDefaults(), origin: u.Scheme + "://" + u.Host}
	p.http = &http.Client{
		Transport: remote.Permitted{Next: p.cfg.NewTransport(nil)},
		// the password is for the strip alone
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// Provider controls one strip. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	opts     providers.Options
	origin   string
	http     *http.Client
	refusals remote.Refusals
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Limiter  = (*Provider)(nil)
	_ providers.Closer   = (*Provider)(nil)
)

// LimitGroup implements providers.Limiter: the strip is one small computer. Each outlet is trusted on its own, so there
// is no DeviceOf.
func (p *Provider) LimitGroup(providers.Target) string { return p.origin }

// State asks for the outlet. A word that the strip's manual does not have is PowerUnknown without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context) error {
		var outlet struct{ State string }
		at := p.opts.Now()
		if err := p.callStrip(ctx, http.MethodGet, t.ID, nil, &outlet); err != nil {
			return err
		}
		obs = providers.Observation{State: powerState(outlet.State), Raw: outlet.State, At: providers.InstantOf(at)}
		return nil
	})
	return obs, err
}

// PowerOff opens the outlet's relay.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return p.setOutlet(remote.WithStill(ctx, still), "power off", t, "off")
}

// PowerOn closes it.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return p.setOutlet(remote.WithStill(ctx, still), "power on", t, "on")
}

// Close closes the connections.
func (p *Provider) Close(context.Context) error {
	p.http.CloseIdleConnections()
	return nil
}

func (p *Provider) setOutlet(ctx context.Context, act string, t providers.Target, word string) error {
	return p.runCall(ctx, act, t, func(ctx context.Context) error {
		return p.callStrip(ctx, http.MethodPut, t.ID, map[string]string{"state": word}, &struct{}{})
	})
}

func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f func(context.Context) error) error {
	return remote.RunCall(ctx, act, t, "plug "+p.opts.Name+" outlet "+t.ID, f)
}

// powerState maps the strip's words. Off is returned nowhere else.
func powerState(word string) providers.PowerState {
	switch word {
	case "on":
		return providers.PowerOn
	case "off":
		return providers.PowerOff
	case "switching":
		return providers.PowerChanging
	default:
		return providers.PowerUnknown
	}
}

// callStrip sends one request once.
func (p *Provider) callStrip(ctx context.Context, method, outlet string, body, into any) error {
	if outlet == "" || strings.Trim(outlet, ".") == "" {
		return providers.Errorf(providers.ErrNotFound, "the target has no ID: give it its outlet")
	}
	password, err := p.cfg.ReadPassword()
	if err != nil {
		return err
	}
	sum := p.refusals.HashCredential(p.cfg.Username, password)
	if err := p.refusals.CheckRefused(p.origin, sum, p.opts.Now()); err != nil {
		return err
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, p.origin+"/outlets/"+url.PathEscape(outlet),
		bytes.NewReader(payload))
	if err != nil {
		return err
	}
	r.SetBasicAuth(p.cfg.Username, password.Reveal())
	resp, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return p.refusals.RememberDenied(p.origin, p.cfg.PasswordPlace(), sum, p.opts.Now(),
			errors.New("401 Unauthorized"))
	case resp.StatusCode != http.StatusOK:
		return providers.Errorf(remote.HTTPClass(resp.StatusCode), "%d %s", resp.StatusCode,
			http.StatusText(resp.StatusCode))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(into); err != nil {
		return fmt.Errorf("reading answer: %w", err) // half an answer is none
	}
	return nil
}
