// Package redfish controls machines by BMCs that speak Redfish (DMTF DSP0266). It imports the contract,
// providers/remote, gofish's errors and go-retryablehttp. It does not use gofish's client, which reads the
// service root for each log-in and knows one way to log in. The README beside it lists the BMCs whose habits it knows.
//
//	providers:
//	- name: rack-a
//	  redfish:
//	    username: forcefence
//	    passwordFile: /etc/forcefence-bmc/password
//	    caFile: /etc/forcefence-bmc/ca.pem
//
// A target's ID is then its BMC's address, https://10.0.0.7. /redfish/v1/Systems/<Id> follows it if a BMC has several
// systems and the node's system UUID does not distinguish them. With an address in the configuration one BMC answers
// for all targets. Their IDs are then the systems' Ids, UUIDs or serial numbers; without an ID the node's system UUID
// finds the system:
//
//	providers:
//	- name: enclosure-3
//	  redfish:
//	    address: https://10.0.0.3
//	    username: forcefence
//	    passwordEnv: ENCLOSURE_3_PASSWORD
//
// It promises that a state was read from the system's own resource in that call, that a machine is never guessed, and
// that a reset is done at most once per call. Credentials reach no host but the BMC, and a refused one is not sent
// again.
package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	// of the one BMC that answers for all machines; empty: each machine's ID is its BMC's address
	Address string `yaml:"address"`

	remote.Credentials `yaml:",inline"`
	// one of auto, session, basic; default auto; auto: a session, or basic if the BMC gives none
	Auth string `yaml:"auth"`

	remote.Trust `yaml:",inline"`
	// for BMCs without ECDHE; a thief of the BMC's key can decrypt recorded traffic
	AllowRSAKeyExchange bool `yaml:"allowRSAKeyExchange"`
	// true: use TLS 1.0 and 1.1; an attacker on the network may break it and report Off
	AllowOldTLS bool `yaml:"allowOldTLS"`
	// true: use plain http:// to other hosts; the password is sent in the clear
	AllowHTTP bool `yaml:"allowHTTP"`

	// for BMCs whose UUID is not the machine's; then nothing shows which machine a BMC controls
	IgnoreUUID bool `yaml:"ignoreUUID"`
	// for BMCs whose chassis always reports On; then Off of the system alone counts
	IgnoreChassisPower bool `yaml:"ignoreChassisPower"`
	// names of vendor properties that report suspended for other things than the machine
	IgnoreStates []string `yaml:"ignoreStates"`

	// one of off, sse, push; sse: a stream from each BMC; push: BMCs send to push.destination; default off
	Events string `yaml:"events"`
	Push   Push   `yaml:"push"` // required with events: push
}

// Push configures where BMCs send their events.
type Push struct {
	Listen      string `yaml:"listen"`      // [host]:port on which the leading controller listens
	Destination string `yaml:"destination"` // https://host[:port] by which BMCs reach it, without a path
	CertFile    string `yaml:"certFile"`    // PEM, with its chain; read again for each connection
	KeyFile     string `yaml:"keyFile"`     // PEM
}

// The values of Config.Auth.
const (
	authAuto    = "auto"
	authSession = "session"
	authBasic   = "basic"
)

// The values of Config.Events.
const (
	eventsOff  = "off"
	eventsSSE  = "sse"
	eventsPush = "push"
)

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "redfish", NewConfig: func() providers.Config { return NewConfig() },
		Off:      "`PowerState` of the system is `Off`, and also of its chassis if that reports one",
		Identity: "the system's UUID, where the BMC has one",
	}
}

// NewConfig returns the defaults.
func NewConfig() *Config { return &Config{Auth: authAuto, Events: eventsOff} }

// Validate returns every fault. It reads the files, and asks no BMC.
func (c *Config) Validate() []providers.Problem {
	var out []providers.Problem
	problem := func(path, format string, a ...any) {
		out = append(out, providers.Problemf(path, format, a...))
	}
	if c.Address != "" {
		if _, path, err := c.parseAddress(c.Address); err != nil {
			problem("address", "%v", err)
		} else if path != "" {
			problem("address", "has a path: name systems by a target's ID")
		}
	}
	if c.Address != "" {
		out = append(out, c.ValidateShared()...)
	} else {
		out = append(out, c.Credentials.Validate()...)
	}
	if !slices.Contains([]string{authAuto, authSession, authBasic}, c.Auth) {
		problem("auth", "is %q: use auto, session or basic", c.Auth)
	}
	for i, name := range c.IgnoreStates {
		if !propertyName.MatchString(name) {
			problem(fmt.Sprintf("ignoreStates[%d]", i),
				"is no property's name: copy it from the Event's text after \"Off, but\"")
		}
	}
	switch c.Events {
	case "", eventsOff, eventsSSE:
		if c.Push != (Push{}) {
			problem("push", "has no effect without events: push")
		}
	case eventsPush:
		out = append(out, c.Push.checkSettings()...)
	default:
		problem("events", "is %q: use off, sse or push", c.Events)
	}
	return append(out, c.Trust.Validate()...)
}

var propertyName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.@#-]{0,99}$`)

// Cautions implements providers.Cautious.
func (c *Config) Cautions() []providers.Problem {
	out := c.Trust.Cautions()
	for _, s := range []struct {
		set       bool
		name, why string
	}{
		{c.IgnoreUUID, "ignoreUUID", "forcefence cannot check which machine a BMC belongs to: a wrong address powers " +
			"off another machine, and that machine's Off counts"},
		{c.IgnoreChassisPower, "ignoreChassisPower", "a machine that runs while its BMC reports Off for the system " +
			"counts as off"},
		{len(c.IgnoreStates) > 0, "ignoreStates", "a machine that sleeps, and reports that in one of these " +
			"properties only, counts as off"},
		{c.AllowOldTLS, "allowOldTLS", "an attacker between the controller and a BMC may break TLS 1.0, read the " +
			"password, and report Off"},
		{c.AllowHTTP, "allowHTTP", "anyone on the network between the controller and a BMC with http:// reads the " +
			"password, and may report Off"},
	} {
		if s.set {
			out = append(out, providers.Problemf(s.name, "%s", s.why))
		}
	}
	return out
}

// New returns the provider, which is a providers.Watcher if the configuration has events. It contacts no BMC.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	p, err := New(*c, o)
	if err == nil && (c.Events == eventsSSE || c.Events == eventsPush) {
		return eventProvider{p}, nil
	}
	return p, err
}

// SharesPower implements providers.SharesPower: a BMC runs on its machine's power supplies.
func (c *Config) SharesPower() bool { return true }

// HasAddressIDs implements providers.IDs: an ID is its BMC's address, unless one BMC answers for all machines.
func (c *Config) HasAddressIDs() bool { return c.Address == "" }

// CanonicalID implements providers.IDs: a BMC's address in lower case, without a default port or a trailing slash.
// Behind one BMC for all machines a UUID has one spelling, and any other ID is unchanged.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if c.Address != "" {
		if u, ok := providers.ParseUUID(id); ok {
			return providers.FormatUUID(u), nil, nil
		}
		return id, nil, nil
	}
	origin, path, err := c.parseAddress(id)
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse(origin)
	if err != nil {
		return "", nil, errors.New("is no address: write https://host[:port]")
	}
	return origin + path, []string{u.Hostname()}, nil
}

// parseAddress splits the address of a BMC, or of a system on it, into the origin and the system's path ("" for none).
// Its errors never repeat the address.
func (c *Config) parseAddress(address string) (origin, path string, _ error) {
	u, err := remote.ParseHTTP(address, c.AllowHTTP)
	if err != nil {
		return "", "", err
	}
	path = strings.TrimSuffix(u.EscapedPath(), "/")
	if path != "" {
		id, ok := strings.CutPrefix(path, "/redfish/v1/Systems/")
		if id, err = url.PathUnescape(id); !ok || err != nil || id == "" || strings.Contains(id, "/") || id == "." ||
			id == ".." {
			return "", "", errors.New("has a path that is not /redfish/v1/Systems/<Id>")
		}
		path = "/redfish/v1/Systems/" + url.PathEscape(id)
	}
	return u.Scheme + "://" + u.Host, path, nil
}

// Provider controls machines by their BMCs. It is safe for concurrent use.
type Provider struct {
	cfg         Config
	opts        providers.Options
	timing      watchTiming
	eventServer *eventServer // where events are sent to; only a Watch opens it

	transport     *http.Transport
	plain         http.RoundTripper // answers of any size, for streams of events
	sent, retried http.RoundTripper // once, and again while the BMC is busy
	refusals      remote.Refusals
	pool          *remote.Pool[*bmc] // its lock guards the fields of bmc marked so
}

var (
	_ providers.Closer   = (*Provider)(nil)
	_ providers.Grouper  = (*Provider)(nil)
	_ providers.IDs      = (*Config)(nil)
	_ providers.Cautious = (*Config)(nil)
)

// New returns the provider for a valid Config. It contacts no BMC.
func New(c Config, o providers.Options) (*Provider, error) {
	p := &Provider{cfg: c, opts: o.WithDefaults(), timing: defaultTiming, transport: newTransport(&c)}
	p.eventServer = newEventServer(c.Push, "forcefence/"+o.Name)
	p.pool = remote.NewPool(idleAfter, p.newBMC, p.expireBMC)
	p.setTransport(p.transport)
	return p, nil
}

// State reads the system's resource, and its chassis' if the system reports Off. An unknown word is PowerUnknown
// without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	var obs providers.Observation
	err := p.runCall(ctx, "ask state of", t,
		func(ctx context.Context, b *bmc, w systemQuery, t providers.Target) error {
			s, err := b.findSystem(ctx, w, t)
			if err != nil {
				return err
			}
			obs.At = providers.InstantOf(s.asked)
			if _, ok := providers.ParseUUID(s.UUID); ok && !p.cfg.IgnoreUUID {
				obs.SystemUUID = s.UUID
			}
			obs.State, obs.Raw, err = b.readPower(ctx, s)
			if providers.IsDrill(ctx) && obs.State == providers.PowerOn {
				obs.Doubt = b.findDoubt(ctx, s)
			}
			return err
		})
	return obs, err
}

// PowerOff sends ForceOff, unless the system reports Off already. Some BMCs answer 204 and do nothing.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context, b *bmc, w systemQuery, t providers.Target) error {
		return resetSystem(ctx, b, w, t, []string{"ForceOff"}, "Off", "PoweringOff")
	})
}

// PowerOn sends On, else ForceOn, else PushPowerButton, whichever the BMC has, unless the system reports On already.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context, b *bmc, w systemQuery, t providers.Target) error {
		return resetSystem(ctx, b, w, t, []string{"On", "ForceOn", pushButton}, "On", "PoweringOn")
	})
}

// resetSystem reads the system and posts the first of the words that it offers. It posts once, and again only to a BMC
// that did nothing because it requires an ETag. After a refusal it reads the system again: many BMCs refuse (400, 409)
// what is done already or in progress.
func resetSystem(ctx context.Context, b *bmc, w systemQuery, t providers.Target, words []string,
	there, underWay string) error {
	s, err := b.findSystem(ctx, w, t)
	if err != nil {
		return err
	}
	if s.PowerState == there {
		// A system that is Off while its chassis is not is powered off, and so is one whose chassis cannot be read.
		if state, _, err := b.readPower(ctx, s); err == nil && state == powerState(there) {
			return nil
		}
	}
	action := s.resetAction()
	target, ok := b.localPath(action.Target)
	i := slices.IndexFunc(words, func(w string) bool {
		return len(action.Allowed) == 0 || slices.Contains(action.Allowed, w)
	})
	switch {
	case !ok:
		return providers.WithClass(providers.ErrPermanent, errors.New("the system offers no reset action"))
	case i < 0:
		return providers.WithClass(providers.ErrPermanent,
			fmt.Errorf("the system offers no %s, only %s", words[0], joinWords(action.Allowed)))
	}
	if words[i] == pushButton {
		if s, err = b.mayPush(ctx, w, t); err != nil {
			return err
		}
	}
	body := map[string]string{"ResetType": words[i]}
	b.p.pool.Lock()
	tag := ""
	if b.ifMatch {
		tag = s.ETag
	}
	b.p.pool.Unlock()
	_, refused := b.sendChange(ctx, request{method: http.MethodPost, path: target, body: body, ifMatch: tag})
	if words[i] == pushButton && (httpStatus(refused) >= 400 || errors.Is(refused, providers.ErrNotSent)) {
		b.p.pool.Lock()
		delete(b.pushed, s.path)
		b.p.pool.Unlock()
	}
	switch httpStatus(refused) {
	case http.StatusPreconditionRequired, http.StatusPreconditionFailed: // nothing was done
		if tag == "" && s.ETag != "" {
			b.p.pool.Lock()
			b.ifMatch = true
			b.p.pool.Unlock()
			_, refused = b.sendChange(ctx, request{method: http.MethodPost, path: target, body: body, ifMatch: s.ETag})
		}
	}
	switch httpStatus(refused) {
	case http.StatusBadRequest, http.StatusConflict:
		if s, err := b.findSystem(ctx, w, t); err == nil && (s.PowerState == there || s.PowerState == underWay) {
			return nil
		}
	}
	return refused
}

// pushButton is what some BMCs (iRMC S4) offer instead of On. A running machine takes it as a request to shut down.
const pushButton = "PushPowerButton"

// pushPause is how long a BMC may take to report On after the button was pushed.
const pushPause = 2 * time.Minute

// mayPush reads the system again, and returns it if it is exactly off and its button was not pushed within pushPause.
func (b *bmc) mayPush(ctx context.Context, w systemQuery, t providers.Target) (*system, error) {
	s, err := b.findSystem(ctx, w, t)
	if err != nil {
		return nil, err
	}
	state, word, err := b.readPower(ctx, s)
	switch {
	case err != nil:
		return nil, err
	case state != providers.PowerOff:
		return nil, providers.WithClass(providers.ErrPermanent,
			fmt.Errorf("the BMC can only push the power button, and the system is not exactly off (%s)", word))
	}
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	now := b.p.opts.Now()
	if at, pushed := b.pushed[s.path]; pushed && providers.InstantOf(at).Lasted(providers.InstantOf(now)) < pushPause {
		return nil, providers.WithClass(providers.ErrUnreachable,
			fmt.Errorf("the power button was pushed less than %s ago: the machine may be starting", pushPause))
	}
	if b.pushed == nil || len(b.pushed) >= maxSystems {
		b.pushed = map[string]time.Time{}
	}
	b.pushed[s.path] = now
	return s, nil
}

// joinWords joins a device's words and bounds their number and length.
func joinWords(words []string) string {
	return clipText(strings.Join(words[:min(len(words), 20)], ", "), 300)
}

// DeviceOf returns the BMC that answers for a target, "" if its ID is no address.
func (p *Provider) DeviceOf(t providers.Target) string {
	w, _ := p.locateSystem(t)
	return w.Device
}

// runCall runs one call against the target's BMC. With IgnoreUUID f gets a target without a UUID, so that no system is
// found, or refused, by it.
func (p *Provider) runCall(ctx context.Context, act string, t providers.Target,
	f func(context.Context, *bmc, systemQuery, providers.Target) error) error {
	w, err := p.locateSystem(t)
	return remote.RunCall(ctx, act, t, "redfish "+p.opts.Name+" "+w.Device, func(ctx context.Context) error {
		if err != nil {
			return err
		}
		b, release, err := p.pool.Acquire(w.Account)
		if err != nil {
			return err
		}
		defer release()
		if p.cfg.IgnoreUUID {
			t.SystemUUID = ""
		}
		return classifyError(ctx, f(ctx, b, w, t))
	})
}

// classifyError adds a class to an error and removes the answer's body, which may repeat what was sent, from its text.
func classifyError(ctx context.Context, err error) error {
	code := httpStatus(err)
	if class := providers.ErrorClass(err); code == 0 || class != "error" && class != "canceled" && ctx.Err() == nil {
		return remote.EnsureClass(ctx, err)
	}
	text := fmt.Errorf("%d %s", code, http.StatusText(code))
	if message := errorMessageID(err); message != "" {
		text = fmt.Errorf("%w (%s)", text, message)
	}
	return providers.WithClass(remote.HTTPClass(code), text)
}

// httpStatus returns the HTTP status that an error carries, 0 for none.
func httpStatus(err error) int {
	var answer *schemas.Error
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.HTTPReturnedStatusCode
}

// messageID matches a name from a message registry ("Base.1.8.ResourceInUse", "IDRAC.2.1.RAC0218",
// "SMC.v1_0_0.OemLicenseNotPassed"). No other part of an error's body is repeated.
var messageID = regexp.MustCompile(
	`^[A-Za-z][A-Za-z0-9]{0,39}\.v?[0-9]{1,4}([._][0-9]{1,4}){0,3}\.[A-Za-z][A-Za-z0-9]{0,59}$`)

// errorMessageID returns the message that a BMC sent with an error status, "" for none.
func errorMessageID(err error) string {
	var e *schemas.Error
	if !errors.As(err, &e) {
		return ""
	}
	words := []string{e.Code}
	for _, info := range e.ExtendedInfos {
		words = append(words, info.MessageID)
	}
	for _, w := range words {
		if messageID.MatchString(w) && !strings.HasSuffix(w, ".GeneralError") {
			return w
		}
	}
	return ""
}
