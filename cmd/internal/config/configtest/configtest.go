// Package configtest has provider types for tests of what reads the configuration. They speak to no device.
package configtest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// Types returns four types: redfish has settings like the real one, plain needs none, guests are of hypervisors, and
// no kubelet may choose the hosts of agents.
func Types() providers.Registry {
	return providers.Registry{
		{Name: "redfish", NewConfig: func() providers.Config {
			return &Redfish{Auth: "auto", Poll: time.Second, Tags: []string{"default"}}
		}},
		{Name: "plain", NewConfig: func() providers.Config { return &Plain{} }},
		{Name: "agents", NewConfig: func() providers.Config { return &Agents{Redfish{Auth: "auto"}} }},
		{Name: "guests", NewConfig: func() providers.Config { return &Guests{} }},
	}
}

// Redfish has a field of every kind that a provider's settings may have.
type Redfish struct {
	TLS          `yaml:",inline"`
	Address      string            `yaml:"address"`
	Username     string            `yaml:"username"`
	PasswordFile string            `yaml:"passwordFile"`
	PasswordEnv  string            `yaml:"passwordEnv"`
	Auth         string            `yaml:"auth"` // auto, session or basic; default auto
	Poll         time.Duration     `yaml:"poll"` // default 1s
	Retries      int8              `yaml:"retries"`
	Weight       float64           `yaml:"weight"`
	Tags         []string          `yaml:"tags"` // default one, "default"
	Headers      map[string]string `yaml:"headers"`
	Nested       Nested            `yaml:"nested"`
	Gateway      URL               `yaml:"gateway"`
	Mirrors      []URL             `yaml:"mirrors"`
	Outlets      map[string]Outlet `yaml:"outlets"`
}

// TLS is a block that settings embed, and that embeds another.
type TLS struct {
	Roots              `yaml:",inline"`
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Roots is a block within a block.
type Roots struct {
	CAFile string `yaml:"caFile"`
}

// URL is a struct with a text form. Its error repeats the text, which no error of a file may do.
type URL struct{ url.URL }

// UnmarshalText reads an absolute URL.
func (u *URL) UnmarshalText(text []byte) error {
	v, err := url.Parse(string(text))
	switch {
	case err != nil:
		return err
	case v.Host == "":
		return errors.New("is no address: write https://host")
	}
	u.URL = *v
	return nil
}

// Outlet is an array with a text form.
type Outlet [2]byte

// UnmarshalText reads two letters.
func (o *Outlet) UnmarshalText(text []byte) error {
	if copy(o[:], text) != 2 || len(text) != 2 {
		return errors.New("is no outlet: write two letters")
	}
	return nil
}

// Nested is a struct inside settings.
type Nested struct {
	Deep  bool     `yaml:"deep"`
	Items []Nested `yaml:"items"`
}

// Validate demands a user, a password's place and files that exist.
func (c *Redfish) Validate() (out []providers.Problem) {
	fault := func(path, format string, args ...any) {
		out = append(out, providers.Problemf(path, format, args...))
	}
	if c.Username == "" {
		fault("username", "missing")
	}
	switch {
	case c.PasswordFile == "" && c.PasswordEnv == "":
		fault("passwordFile", "missing: give passwordFile or passwordEnv")
	case c.PasswordFile != "" && c.PasswordEnv != "":
		fault("passwordEnv", "passwordFile is given too: keep one")
	}
	for path, file := range map[string]string{"passwordFile": c.PasswordFile, "caFile": c.CAFile} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			fault(path, "%v", err)
		}
	}
	switch c.Auth {
	case "auto", "session", "basic":
	default:
		fault("auth", "must be auto, session or basic")
	}
	if c.Nested.Deep && len(c.Nested.Items) == 0 {
		fault("nested.items", "missing")
	}
	return out
}

// HasAddressIDs reports whether IDs are addresses: they are if the settings have no address.
func (c *Redfish) HasAddressIDs() bool { return c.Address == "" }

// CanonicalID removes a slash from an address, and makes it lower case. An ID may be several addresses, separated by
// blanks.
func (c *Redfish) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if c.Address != "" {
		return id, nil, nil
	}
	if id == "" {
		return "", nil, errors.New("is no address")
	}
	var parts []string
	for _, part := range c.PartsOf(id) {
		u, err := url.Parse(part)
		if err != nil || u.Host == "" {
			return "", nil, errors.New("is no address")
		}
		parts = append(parts, u.Scheme+"://"+strings.ToLower(u.Host))
		hosts = append(hosts, strings.ToLower(u.Hostname()))
	}
	return strings.Join(parts, " "), hosts, nil
}

// PartsOf returns the addresses of an ID.
func (c *Redfish) PartsOf(id string) []string {
	if c.Address != "" {
		return []string{id}
	}
	return strings.Fields(id)
}

// New returns a provider that knows nothing.
func (c *Redfish) New(providers.Options) (providers.Provider, error) { return unknown{}, nil }

// Plain has no settings.
type Plain struct{}

// Validate finds nothing.
func (*Plain) Validate() []providers.Problem { return nil }

// New returns a provider that knows nothing.
func (*Plain) New(providers.Options) (providers.Provider, error) { return unknown{}, nil }

// Agents take addresses that no kubelet may choose.
type Agents struct {
	Redfish `yaml:",inline"`
}

// ListedHosts marks the type: no kubelet may choose the hosts.
func (*Agents) ListedHosts() {}

// Guests are those of hypervisors.
type Guests struct {
	Plain `yaml:",inline"`
	Named []string `yaml:"hypervisors"`
	Mute  bool     `yaml:"mute"` // they never say Off
}

// Hypervisors returns those that the settings name.
func (c *Guests) Hypervisors() []string { return c.Named }

// NeverOff reports whether the devices never say Off.
func (c *Guests) NeverOff() bool { return c.Mute }

type unknown struct{}

func (unknown) State(context.Context, providers.Target) (providers.Observation, error) {
	return providers.Observation{}, providers.ErrUnreachable
}
func (unknown) PowerOff(context.Context, providers.Target, func() error) error {
	return providers.ErrUnreachable
}
func (unknown) PowerOn(context.Context, providers.Target, func() error) error {
	return providers.ErrUnreachable
}
