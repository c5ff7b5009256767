// Package rest controls machines by devices that speak HTTP and JSON, as a description in YAML says: which requests to
// send, and how to read power and identity from their answers. It imports the contract, providers/remote, expr with
// cel-go, yaml, oauth2 and a library for digest authentication. README.md explains descriptions; the folder presets has
// those that are types of their own.
//
//	providers:
//	- name: strips
//	  rest:
//	    description: /etc/forcefence-bmc/strips.yaml
//	    address: https://strips.example.net
//	    username: fence
//	    passwordFile: /etc/forcefence-bmc/strips-password
//
// A target's ID is what the description's expression `id` matches. If the description says addressIDs, there is no
// address in the configuration: an ID begins with the address of its machine's own device.
//
// It promises that a state comes from answers of that very call, and that nothing missing, strange or incomplete in
// them is never Off. If a description reads an identity, Off without one does not count. A variable changes neither
// host nor path of a request but its own segment. Credentials reach no host but the one that the address, or the
// machine's ID, names, the one that the value of login.address names, and the description's token endpoint. A refused
// one is not sent again, and a token is in no error and in no log.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Settings are the settings of all types that are described by data.
type Settings struct {
	// of the device's API: https://host[:port][/path]; must be set, unless each machine's ID is its device's address
	Address            string `yaml:"address"`
	remote.Credentials `yaml:",inline"`
	remote.Trust       `yaml:",inline"`
	// PEM, with its chain; must be set with types that log in with a certificate; read again for each connection
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"` // its key, PEM
	// true: use plain http:// to other hosts; the password is sent in the clear
	AllowHTTP bool `yaml:"allowHTTP"`
	// how long an outlet must have been off, because power supplies hold out for a while; 0s to 1m; default 5s. Only of
	// types whose devices supply power
	OffDelay time.Duration `yaml:"offDelay"`
	// what the description lets you choose, by name; see the type's README
	Values map[string]string `yaml:"values"`

	family *Family // nil: the description is not read yet, or has faults
}

// Config is the configuration of type rest.
type Config struct {
	// the file of the description, which `forcefence check-config --description` accepts; must be set
	Description string `yaml:"description"`
	Settings    `yaml:",inline"`
}

// PresetConfig is the configuration of a type whose description is part of the program.
type PresetConfig struct {
	Settings `yaml:",inline"`
}

// HasList reports whether one call asks for many machines.
func (c *PresetConfig) HasList() bool { return c.family.list != nil }

// HasEvents reports whether the devices report by themselves when to ask.
func (c *PresetConfig) HasEvents() bool { return c.family.events != nil }

// Unused returns the settings that have no effect for this type, by key.
func (c *PresetConfig) Unused() (out []string) {
	f := c.family
	if f.AddressIDs {
		out = append(out, "address")
	}
	if !f.Feeds {
		out = append(out, "offDelay")
	}
	if f.Login.needsNoUser() {
		out = append(out, "username")
	}
	return append(out, "values") // Choices has them
}

// Choices returns what the type lets the operator choose under values, by name.
func (c *PresetConfig) Choices() map[string]Value { return c.family.Values }

//go:embed presets/*.yaml
var presets embed.FS

// Presets returns the descriptions that are part of the program, by file.
func Presets() map[string][]byte {
	out := map[string][]byte{}
	files, _ := presets.ReadDir("presets") // an embedded folder is there
	for _, file := range files {
		out[file.Name()], _ = presets.ReadFile(path.Join("presets", file.Name()))
	}
	return out
}

// Types returns the registry's entries: rest, and each preset. It panics if a preset has a fault, which its test shows.
func Types() []providers.Type {
	all := []providers.Type{{
		Name: "rest", NewConfig: func() providers.Config { return &Config{Settings: Settings{OffDelay: supplyDelay}} },
		Off: "what the description says", Identity: "what the description says",
	}}
	files := Presets()
	for _, file := range slices.Sorted(maps.Keys(files)) {
		// Every command runs this. Cases are most of a description's text, and are not needed for the registry.
		head, _, _ := bytes.Cut(files[file], []byte("\ncases:\n"))
		d, _, bad := parse[Description](head)
		if len(bad) > 0 {
			panic(bad.InFile(file))
		}
		compile := sync.OnceValue(func() *Family { // which takes milliseconds, and most processes use few types
			f, bad := Parse(files[file])
			if f == nil {
				panic(bad.InFile(file))
			}
			return f
		})
		all = append(all, providers.Type{
			Name: d.Name, Off: d.Off, Identity: d.Identity,
			NewConfig: func() providers.Config { return compile().NewConfig() },
		})
	}
	return all
}

// Validate returns every fault. It reads the files, and asks no device.
func (c *Config) Validate() []providers.Problem {
	if err := c.load(); err != nil {
		return append([]providers.Problem{providers.Problemf("description", "%v", err)}, c.Settings.Validate()...)
	}
	return c.Settings.Validate()
}

// load reads the description, unless it was read already, and runs its cases. Their changes take seconds, so only
// check-config --description tries them.
func (c *Config) load() error {
	switch {
	case c.family != nil:
		return nil
	case c.Description == "":
		return errors.New("missing: the file of a description")
	}
	text, err := ReadDescription(c.Description)
	if err != nil {
		return err
	}
	f, bad := Parse(text)
	if f == nil {
		return fmt.Errorf("line %w (of %d faults; forcefence check-config --description shows all)", bad[0], len(bad))
	}
	if cases, _ := f.runCases(text); len(cases.bad) > 0 {
		return fmt.Errorf("line %w (forcefence check-config --description shows all)", cases.bad.sorted()[0])
	}
	c.family = f
	return nil
}

// New returns the provider. It contacts no device.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	return c.Settings.New(o)
}

// HasAddressIDs implements providers.IDs.
func (c *Config) HasAddressIDs() bool { return c.load() == nil && c.Settings.HasAddressIDs() }

// ProviderIDs implements providers.ProviderIDs.
func (c *Config) ProviderIDs() bool { return c.load() == nil && c.Settings.ProviderIDs() }

// CanonicalID implements providers.IDs.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if err := c.load(); err != nil {
		return id, nil, nil // Validate reports it
	}
	return c.Settings.CanonicalID(id)
}

// publicAddresses are those of clouds whose API has one address for all users, by description.
var publicAddresses = map[string]string{
	"azure":        "https://management.azure.com",
	"digitalocean": "https://api.digitalocean.com",
	"gce":          "https://compute.googleapis.com",
	"hetzner":      "https://api.hetzner.cloud",
	"upcloud":      "https://api.upcloud.com",
}

// Validate returns every fault. It reads the files, and asks no device.
func (s *Settings) Validate() (out []providers.Problem) {
	_, err := remote.ParseHTTP(s.Address, s.AllowHTTP)
	switch f := s.family; {
	case s.Address == "" && f != nil && !f.AddressIDs:
		out = append(out, providers.Problemf("address", "missing: write %s",
			cmp.Or(publicAddresses[f.Name], "https://host[:port]")))
	case s.Address != "" && f != nil && f.AddressIDs:
		out = append(out, providers.Problemf("address", "has no effect: each machine's ID begins with the address "+
			"of its own device"))
	case s.Address != "" && err != nil:
		out = append(out, providers.Problemf("address", "%v", err))
	}
	credentials := s.Credentials
	if s.family != nil && s.family.Login.needsNoUser() {
		if s.Username != "" {
			out = append(out, providers.Problemf("username", "has no effect: only the password is sent"))
		}
		credentials.Username = "token"
	}
	switch f := s.family; {
	case f == nil:
	case f.Login.Kind == "metadata" && s.Credentials != remote.Credentials{}:
		out = append(out, providers.Problemf("username", "has no effect: the cloud's metadata server gives the tokens"))
	case s.usesMetadata():
	case f.Login.Kind == "certificate" && s.Credentials != remote.Credentials{}:
		out = append(out, providers.Problemf("username", "has no effect: this type logs in with certFile and keyFile"))
	case f.Login.Kind == "certificate":
	case f.Login.Kind != "none" && f.AddressIDs:
		out = append(out, credentials.Validate()...)
	case f.Login.Kind != "none":
		out = append(out, credentials.ValidateShared()...)
	case s.Credentials != remote.Credentials{}:
		out = append(out, providers.Problemf("username", "has no effect: this type does not log in"))
	}
	switch {
	case s.OffDelay < 0 || s.OffDelay > time.Minute:
		out = append(out, providers.Problemf("offDelay", "must be from 0s to 1m"))
	case s.family != nil && !s.family.Feeds && s.OffDelay != 0 && s.OffDelay != supplyDelay:
		out = append(out, providers.Problemf("offDelay", "has no effect: this type's devices do not supply power"))
	}
	out = append(out, s.checkValues()...)
	out = append(out, s.checkCertificate()...)
	return append(out, s.Trust.Validate()...)
}

// checkCertificate reads the client's certificate, if the type logs in with one.
func (s *Settings) checkCertificate() (out []providers.Problem) {
	problem := func(format string, a ...any) { out = append(out, providers.Problemf("certFile", format, a...)) }
	switch {
	case s.family == nil:
	case s.family.Login.Kind != "certificate" && s.CertFile+s.KeyFile != "":
		problem("has no effect: this type logs in without a certificate")
	case s.family.Login.Kind != "certificate":
	case s.CertFile == "" || s.KeyFile == "":
		problem("missing: this type logs in with certFile and keyFile")
	default:
		if _, err := remote.LoadClientCertificate(s.CertFile, s.KeyFile); err != nil {
			problem("%v", err)
		}
	}
	return out
}

func (s *Settings) checkValues() (out []providers.Problem) {
	if s.family == nil {
		return nil
	}
	known := "this type has no values"
	if names := slices.Sorted(maps.Keys(s.family.Values)); len(names) > 0 {
		known = "known are " + strings.Join(names, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		if !s.family.isValue(name) {
			out = append(out, providers.Problemf("values."+name, "unknown key: %s", known))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.family.Values)) {
		v, given := s.family.Values[name], s.Values[name]
		yesOrNo := func(text string) bool { return text == "true" || text == "false" }
		switch {
		case v.Default == nil && given == "":
			out = append(out, providers.Problemf("values."+name, "missing: %s", v.What))
		case v.Default != nil && yesOrNo(*v.Default) && given != "" && !yesOrNo(given):
			out = append(out, providers.Problemf("values."+name, "is %q: use \"true\" or \"false\"", given))
		}
	}
	if name := s.family.Login.Address; name != "" && s.valueOf(name) != "" {
		if _, err := remote.ParseHTTP(s.valueOf(name), s.AllowHTTP); err != nil {
			out = append(out, providers.Problemf("values."+name, "%v", err))
		}
	}
	return out
}

// Cautions implements providers.Cautious.
func (s *Settings) Cautions() []providers.Problem {
	out := s.Trust.Cautions()
	if s.AllowHTTP {
		out = append(out, providers.Problemf("allowHTTP", "an attacker between the controller and the device can read "+
			"the password, and report Off"))
	}
	if s.family == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		if v := s.family.Values[name]; v.Risk != "" && s.Values[name] != "" && s.Values[name] != *v.Default {
			out = append(out, providers.Problemf("values."+name, "%s", v.Risk))
		}
	}
	return out
}

// HasAddressIDs implements providers.IDs: the description says whether an ID begins with its device's address.
func (s *Settings) HasAddressIDs() bool { return s.family != nil && s.family.AddressIDs }

// SharesPower implements providers.SharesPower: the description says whether its devices say no Off of a machine that
// lost its power.
func (s *Settings) SharesPower() bool { return s.family != nil && s.family.SharesPower }

// OnlyFeeds implements providers.Feeds: the description says whether its devices only supply power.
func (s *Settings) OnlyFeeds() bool { return s.family != nil && s.family.Feeds }

// ProviderIDs implements providers.ProviderIDs: the description says whether IDs are whole providerIDs.
func (s *Settings) ProviderIDs() bool { return s.family != nil && s.family.ProviderIDs }

// CanonicalID implements providers.IDs: the device's origin, if IDs begin with an address, and the values of the groups
// of the description's expression, joined by slashes.
func (s *Settings) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if !s.family.AddressIDs {
		canonical, _, err = s.family.parseID(id)
		return canonical, nil, err
	}
	device, id, err := s.splitID(id)
	if err != nil {
		return "", nil, err
	}
	if canonical, _, err = s.family.parseID(id); err != nil {
		return "", nil, err
	}
	return joinID(originOf(device), canonical), []string{device.Hostname()}, nil
}

// splitID returns the address of a machine's device, and the machine's ID there. An ID's address without a scheme is
// https://. The error does not repeat the ID.
func (s *Settings) splitID(id string) (device *url.URL, rest string, err error) {
	address := s.Address
	if s.family.AddressIDs {
		if !strings.Contains(id, "://") {
			id = "https://" + id
		}
		scheme, after, _ := strings.Cut(id, "://")
		host, part, _ := strings.Cut(after, "/")
		address, id = scheme+"://"+host, part
	}
	device, err = remote.ParseHTTP(address, s.AllowHTTP)
	return device, id, err
}

// joinID returns the ID of a machine whose device has that origin.
func joinID(origin, rest string) string {
	if rest == "" {
		return origin
	}
	return origin + "/" + rest
}

// originOf returns scheme, host and port of an address.
func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// New returns the provider. It contacts no device.
func (s *Settings) New(o providers.Options) (providers.Provider, error) {
	if !s.family.AddressIDs {
		if _, err := remote.ParseHTTP(s.Address, s.AllowHTTP); err != nil {
			return nil, fmt.Errorf("address %w", err)
		}
	}
	p := s.open(o, maxAnswer, maxValues)
	switch {
	case s.family.list != nil && s.family.Feeds:
		return feedingLister{lister{p}}, nil
	case s.family.list != nil && s.family.events != nil:
		return watchingLister{lister{p}}, nil
	case s.family.list != nil:
		return lister{p}, nil
	case s.family.events != nil:
		return watcher{p}, nil
	case s.family.Feeds:
		return feeder{p}, nil
	}
	return p, nil
}

// open returns a Provider whose answers have at most so many bytes and values. It contacts no device.
func (s *Settings) open(o providers.Options, bytes, values int) *Provider {
	t := s.NewTransport(s.presentCertificate)
	t.MaxIdleConnsPerHost = maxRequests
	// the credentials are for the device alone
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := &Provider{
		cfg: *s, family: s.family, opts: o.WithDefaults(), transport: t,
		metadata: metadataAddress, timing: defaultTiming,
		http: &http.Client{
			Transport:     remote.Limited{Next: remote.Permitted{Next: t}, Bytes: bytes, Values: values},
			CheckRedirect: noRedirect,
			Timeout:       remote.Backstop, // for callers without a deadline
		},
		streams: &http.Client{Transport: remote.Permitted{Next: t}, CheckRedirect: noRedirect},
	}
	p.pool = remote.NewPool(forgetAfter, func(remote.Account) *session {
		return &session{gate: make(chan struct{}, maxRequests)}
	},
		func(*session) time.Duration { return 0 })
	if s.family.Login.Kind == "certificate" {
		once := s.NewTransport(s.presentCertificate)
		once.DisableKeepAlives = true
		p.once = &http.Client{
			Transport:     remote.Limited{Next: remote.Permitted{Next: once}, Bytes: bytes, Values: values},
			CheckRedirect: noRedirect, Timeout: remote.Backstop,
		}
	}
	if s.InsecureSkipVerify {
		p.opts.Log.Warn("The certificate of a device is not verified", "provider", o.Name)
	}
	return p
}

// presentCertificate makes a connection prove who the client is, if the type logs in with a certificate. The files are
// read when the device asks for it, which it does after it was found trusted.
func (s *Settings) presentCertificate(c *tls.Config) {
	if s.family.Login.Kind != "certificate" {
		return
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := remote.LoadClientCertificate(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, providers.WithClass(providers.ErrDenied, err)
		}
		return &pair, nil
	}
}

const (
	maxAnswer   = 1 << 20   // bytes
	maxValues   = 32 << 10  // of JSON
	maxRequests = 8         // at a time to one device, each on its own connection
	forgetAfter = time.Hour // a token that is not used any more

	supplyDelay = 5 * time.Second // the default of OffDelay, as pdu's
)

var (
	textsType = reflect.TypeFor[[]string]()
	listType  = reflect.TypeFor[[]map[string]string]()
	wordsType = reflect.TypeFor[map[string]string]()
)

// Provider controls the machines of one device, or those that have a device each. It is safe for concurrent use.
type Provider struct {
	cfg       Settings
	family    *Family
	opts      providers.Options
	transport *http.Transport
	http      *http.Client
	once      *http.Client // a connection for each request, to log in again; nil: no certificate does
	streams   *http.Client // of events, whose answers do not end
	timing    watchTiming
	refusals  remote.Refusals
	pool      *remote.Pool[*session]
	offRuns   remote.OffRuns // of devices that only supply power
	metadata  string         // metadataAddress, except in tests
}

// feeder is a Provider whose devices only supply power.
type feeder struct{ *Provider }

// Feeds implements providers.Feeder.
func (feeder) Feeds() {}

// device is the device of one call's machine.
type device struct {
	*Provider
	account remote.Account
	session *session
	base    string // the address, before a request's path
	node    string // whose credentials it gets, if each machine has its own
}

var (
	_ providers.Provider    = (*Provider)(nil)
	_ providers.Grouper     = (*Provider)(nil)
	_ providers.Feeder      = feeder{}
	_ providers.Feeder      = feedingLister{}
	_ providers.BatchStater = lister{}
	_ providers.BatchStater = watchingLister{}
	_ providers.Watcher     = watcher{}
	_ providers.Watcher     = watchingLister{}
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Closer      = (*Provider)(nil)
	_ providers.IDs         = (*Config)(nil)
	_ providers.IDs         = (*PresetConfig)(nil)
	_ providers.Cautious    = (*PresetConfig)(nil)
)

// LimitGroup implements providers.Limiter: the machines of one device share its limits.
func (p *Provider) LimitGroup(t providers.Target) string {
	u, _, err := p.cfg.splitID(t.ID)
	if err != nil {
		return ""
	}
	return originOf(u)
}

// DeviceOf implements providers.Grouper: the device at an ID's address is trusted as a whole. Behind one address for
// all machines each of them is trusted on its own.
func (p *Provider) DeviceOf(t providers.Target) string {
	if !p.family.AddressIDs {
		return ""
	}
	return p.LimitGroup(t)
}

// State sends the description's requests, and reads identity and power from their answers. The description's Unknown is
// PowerUnknown without an error. An outlet is PowerChanging until it was off for OffDelay.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	asked := p.opts.Now()
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, e *evaluation) error {
		asked = p.opts.Now()
		obs.At = providers.InstantOf(asked)
		if err := e.run(ctx, p.family.find); err != nil {
			return err
		}
		return e.askPower(ctx, &obs)
	})
	if p.family.Feeds {
		p.awaitEmptySupply(t, &obs, asked, err)
	}
	return obs, err
}

// awaitEmptySupply makes an Off PowerChanging until the outlet was off for OffDelay, in this process's answers.
func (p *Provider) awaitEmptySupply(t providers.Target, obs *providers.Observation, asked time.Time, err error) {
	if err != nil || obs.State != providers.PowerOff {
		p.offRuns.End(t.ID, providers.InstantOf(p.opts.Now()))
		return
	}
	now := providers.InstantOf(p.opts.Now())
	if off := p.offRuns.Extend(t.ID, providers.InstantOf(asked), now); off < p.cfg.OffDelay {
		obs.State = providers.PowerChanging
		obs.Raw = fmt.Sprintf("%s for %s of %s", obs.Raw, off.Round(100*time.Millisecond), p.cfg.OffDelay)
	}
}

// PowerOff sends the description's requests for it.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return p.runCall(remote.WithStill(ctx, still), "power off", t, func(ctx context.Context, e *evaluation) error {
		if err := e.run(ctx, p.family.find); err != nil {
			return err
		}
		return e.act(ctx, p.family.off)
	})
}

// PowerOn asks for the state, then sends the description's requests. It sends none that acts to a machine that says On:
// MAAS power-cycles such a machine. If the state is unknown, PowerOn returns an error and sends none either.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	p.offRuns.End(t.ID, providers.InstantOf(p.opts.Now()))
	return p.runCall(remote.WithStill(ctx, still), "power on", t, func(ctx context.Context, e *evaluation) error {
		if err := e.run(ctx, p.family.find); err != nil {
			return err
		}
		var obs providers.Observation
		if err := e.fork().askPower(ctx, &obs); err != nil {
			return fmt.Errorf("asking state before: %w", err)
		}
		switch obs.State {
		case providers.PowerOn: // maybe because its memory is saved, which the description refuses
			return e.runReads(ctx, p.family.on)
		case providers.PowerOff, providers.PowerChanging:
			return e.act(ctx, p.family.on)
		}
		return providers.Errorf(providers.ErrUnreachable, "nothing is sent while the state is unknown: %s", obs.Raw)
	})
}

// runCall runs one call for the target.
func (p *Provider) runCall(ctx context.Context, act string, t providers.Target,
	f func(context.Context, *evaluation) error) error {
	return remote.RunCall(ctx, act, t, p.family.Name+" "+p.opts.Name+" "+t.ID, func(ctx context.Context) error {
		_, id, err := p.cfg.splitID(t.ID)
		if err != nil {
			return providers.Errorf(providers.ErrPermanent, "the target's ID %w", err)
		}
		_, texts, err := p.family.parseID(id)
		if err != nil {
			return providers.Errorf(providers.ErrPermanent, "the target's ID %w", err)
		}
		maps.Copy(texts, p.values())
		d, release, err := p.openDevice(t)
		if err != nil {
			return err
		}
		defer release()
		return f(ctx, p.family.newEvaluation(texts, d.send))
	})
}

// openDevice returns the device of a target whose ID splitID accepts, and its session until release is called.
func (p *Provider) openDevice(t providers.Target) (d *device, release func(), err error) {
	d = &device{Provider: p, node: t.Node}
	if d.account, d.base, err = p.accountOf(t); err != nil {
		return nil, nil, err
	}
	d.session, release, err = p.pool.Acquire(d.account)
	return d, release, err
}

// accountOf returns whose log-in at which device is that of a target, and the address before a request's path.
func (p *Provider) accountOf(t providers.Target) (a remote.Account, base string, _ error) {
	u, _, err := p.cfg.splitID(t.ID)
	if err != nil {
		return a, "", providers.Errorf(providers.ErrPermanent, "the address %w", err)
	}
	a = remote.Account{Device: originOf(u), Owner: p.cfg.OwnerOf(t)}
	return a, originOf(u) + strings.TrimRight(u.EscapedPath(), "/"), nil
}

// send implements sender.
func (d *device) send(ctx context.Context, _ string, r rendered) (answer, error) {
	return d.sendRequest(ctx, r)
}

// values returns the operator's values, and the defaults of others.
func (p *Provider) values() map[string]string {
	out := map[string]string{}
	for name, v := range p.family.Values {
		if text := p.cfg.valueOf(name); text != "" || v.Default != nil {
			out[name] = text
		}
	}
	return out
}

// valueOf returns one of the operator's values, or its default; "" if it has none.
func (s *Settings) valueOf(name string) string {
	if v := s.family.Values[name]; s.Values[name] == "" && v.Default != nil {
		return *v.Default
	}
	return s.Values[name]
}

// Close ends log-ins that are under way and closes the connections. Tokens expire by themselves.
func (p *Provider) Close(ctx context.Context) error {
	defer p.transport.CloseIdleConnections()
	return p.pool.Close(ctx, func(*session) error { return nil })
}
