// Package redfish asks BMCs that speak Redfish (DMTF DSP0266), by way of gofish. It imports the contract, gofish and
// go-retryablehttp. The README beside it says which BMCs and which of their habits it knows.
//
//	providers:
//	- name: rack-a
//	  redfish:
//	    username: fence
//	    passwordFile: /etc/forcefence/rack-a/password
//	    caFile: /etc/forcefence/rack-a/ca.pem
//
// A target's ID is then its BMC's address, https://10.0.0.7, with /redfish/v1/Systems/<Id> behind it where a BMC has several
// systems and the node's system UUID is not enough to tell them apart. With an address in the configuration one BMC answers for
// all targets, and their IDs are the systems' Ids, UUIDs or serial numbers; no ID means by the node's system UUID:
//
//	providers:
//	- name: enclosure-3
//	  redfish:
//	    address: https://10.0.0.3
//	    username: fence
//	    passwordEnv: ENCLOSURE_3_PASSWORD
//
// It promises that a state was read from the system's own resource in that call, that a machine is never guessed, that a reset is
// sent at most once per call, and that credentials reach no host but the BMC.
package redfish

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Address string `yaml:"address"` // of the one BMC in front of all targets; empty: each target's ID is its BMC's address

	Username     string `yaml:"username"`     // must be set
	PasswordFile string `yaml:"passwordFile"` // this or passwordEnv; read at each login
	PasswordEnv  string `yaml:"passwordEnv"`
	Auth         string `yaml:"auth"` // auto, session or basic; default auto: sessions, and basic where a BMC does them badly

	CAFile             string `yaml:"caFile"`             // PEM; default the system's authorities; read at start
	InsecureSkipVerify bool   `yaml:"insecureSkipVerify"` // bad: whoever answers gets the password and may say Off
	AllowHTTP          bool   `yaml:"allowHTTP"`          // bad: plain http:// to other hosts than this one
}

// The values of Config.Auth.
const (
	authAuto    = "auto"
	authSession = "session"
	authBasic   = "basic"
)

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{Name: "redfish", NewConfig: func() providers.Config { return NewConfig() }}
}

// NewConfig returns the defaults.
func NewConfig() *Config { return &Config{Auth: authAuto} }

// Validate returns every fault. It reads the files, and asks no BMC.
func (c *Config) Validate() []providers.Problem {
	var out []providers.Problem
	problem := func(path, format string, a ...any) {
		out = append(out, providers.Problem{Path: path, Text: fmt.Sprintf(format, a...)})
	}
	if c.Address != "" {
		if _, path, err := c.parse(c.Address); err != nil {
			problem("address", "%v", err)
		} else if path != "" {
			problem("address", "has a path: name systems by a target's ID")
		}
	}
	if c.Username == "" {
		problem("username", "missing")
	}
	if err := c.password().Check(); err != nil {
		problem("passwordFile", "%v", err)
	}
	if !slices.Contains([]string{authAuto, authSession, authBasic}, c.Auth) {
		problem("auth", "is %q: use auto, session or basic", c.Auth)
	}
	if _, err := c.roots(); err != nil {
		problem("caFile", "%v", err)
	}
	if c.CAFile != "" && c.InsecureSkipVerify {
		problem("insecureSkipVerify", "certificates are not looked at, so caFile has no effect: keep one")
	}
	return out
}

// New makes the provider. It contacts no BMC.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// Canonical implements providers.IDs: a BMC's address in lower case, without a default port or a slash at its end; behind one BMC
// for all machines, the ID as it stands.
func (c *Config) Canonical(id string) (canonical, host string, err error) {
	if c.Address != "" {
		return id, "", nil
	}
	origin, path, err := c.parse(id)
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(origin)
	if err != nil {
		return "", "", errors.New("is no address: write https://host[:port]")
	}
	return origin + path, u.Hostname(), nil
}

func (c *Config) password() providers.SecretRef {
	return providers.SecretRef{File: c.PasswordFile, Env: c.PasswordEnv}
}

// roots returns nil, the system's authorities, without a caFile.
func (c *Config) roots() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("reading CA: no certificate in %s", c.CAFile)
	}
	return pool, nil
}

// parse splits the address of a BMC, or of a system on it, into the origin that sessions belong to and the system's path ("" for
// none). Its errors never repeat the address: somebody may have put a password there.
func (c *Config) parse(address string) (origin, path string, _ error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return "", "", errors.New("is no address: write https://host[:port]")
	case u.User != nil:
		return "", "", errors.New("holds credentials: use username and passwordFile")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", "", errors.New("is not https://")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		return "", "", errors.New("is not https://: the password would go over the network in the clear (see allowHTTP)")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", "", errors.New("has a query or fragment: write https://host[:port]")
	}
	host := strings.ToLower(u.Host)
	if defaultPort := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]; strings.HasSuffix(host, defaultPort) {
		host = strings.TrimSuffix(host, defaultPort)
	}
	path = strings.TrimSuffix(u.EscapedPath(), "/")
	if path != "" {
		id, ok := strings.CutPrefix(path, "/redfish/v1/Systems/")
		if !ok || id == "" || strings.Contains(id, "/") || id == "." || id == ".." {
			return "", "", errors.New("has a path that is not /redfish/v1/Systems/<Id>")
		}
	}
	return u.Scheme + "://" + host, path, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip.IsLoopback()
}

// Provider speaks to BMCs. It is safe for concurrent use.
type Provider struct {
	cfg  Config
	opts providers.Options
	http *http.Transport
	pool
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Closer   = (*Provider)(nil)
	_ providers.Grouper  = (*Provider)(nil)
	_ providers.IDs      = (*Config)(nil)
)

// New makes the provider from a valid Config. It contacts no BMC.
func New(c Config, o providers.Options) (*Provider, error) {
	roots, err := c.roots()
	if err != nil {
		return nil, err
	}
	p := &Provider{cfg: c, opts: o.Defaulted(), http: transport(roots, c.InsecureSkipVerify)}
	p.init(p.connect, p.http.CloseIdleConnections)
	p.now, p.fallback = p.opts.Now, c.Auth == authAuto
	if c.InsecureSkipVerify {
		p.opts.Log.Warn("Certificates of BMCs are not verified", "provider", o.Name)
	}
	return p, nil
}

// State reads the system's resource. Errors have a class; a word that Redfish does not define is PowerUnknown without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	var obs providers.Observation
	err := p.do(ctx, "ask state of", t, func(b *bmc, w where) error {
		s, err := b.find(ctx, w, t)
		if err != nil {
			return err
		}
		obs = providers.Observation{State: powerState(s.PowerState), Raw: s.PowerState, At: s.asked}
		if _, ok := providers.ParseUUID(s.UUID); ok {
			obs.SystemUUID = s.UUID
		}
		return nil
	})
	return obs, err
}

// PowerOff sends ForceOff, unless the system says Off already. Accepted is not off: some BMCs answer 204 and do nothing.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target) error {
	return p.do(ctx, "power off", t, func(b *bmc, w where) error {
		return reset(ctx, b, w, t, []string{"ForceOff"}, "Off", "PoweringOff")
	})
}

// PowerOn sends On (ForceOn where a BMC has no On), unless the system says On already.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target) error {
	return p.do(ctx, "power on", t, func(b *bmc, w where) error {
		return reset(ctx, b, w, t, []string{"On", "ForceOn"}, "On", "PoweringOn")
	})
}

// reset reads the system, makes sure that it is the target's, and posts the first of the words that it offers. The post is sent
// once: a BMC that refuses is looked at again, since many refuse (400, 409) what is done already or under way.
func reset(ctx context.Context, b *bmc, w where, t providers.Target, words []string, there, underWay string) error {
	s, err := b.find(ctx, w, t)
	if err != nil {
		return err
	}
	if err := t.Identify(s.UUID); err != nil {
		return err
	}
	if s.PowerState == there {
		return nil
	}
	action := s.Actions.Reset
	target, ok := b.local(action.Target)
	i := slices.IndexFunc(words, func(w string) bool { return len(action.Allowed) == 0 || slices.Contains(action.Allowed, w) })
	switch {
	case !ok:
		return providers.WithClass(providers.ErrPermanent, errors.New("the system offers no reset action"))
	case i < 0:
		return providers.WithClass(providers.ErrPermanent, fmt.Errorf("the system offers no %s, only %s", words[0], strings.Join(action.Allowed, ", ")))
	}
	refused := b.post(ctx, target, map[string]string{"ResetType": words[i]})
	switch status(refused) {
	case http.StatusBadRequest, http.StatusConflict:
		if s, err := b.find(ctx, w, t); err == nil && t.Identify(s.UUID) == nil &&
			(s.PowerState == there || s.PowerState == underWay) {
			return nil
		}
	}
	return refused
}

// Device returns the BMC that answers for a target, "" if its ID is no address.
func (p *Provider) Device(t providers.Target) string {
	w, err := p.where(t)
	if err != nil {
		return ""
	}
	return w.origin
}

// where says which BMC to ask, and how the system is found there.
type where struct {
	origin string
	path   string // of the system's resource, if the target names it
	id     string // a system's Id, UUID or serial number, if the target names one
	sole   bool   // a BMC of this machine's own: its only system is the machine
}

func (p *Provider) where(t providers.Target) (where, error) {
	if p.cfg.Address != "" {
		origin, _, err := p.cfg.parse(p.cfg.Address)
		if err != nil {
			return where{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("address %w", err))
		}
		return where{origin: origin, id: t.ID}, nil
	}
	if t.ID == "" {
		return where{}, providers.WithClass(providers.ErrNotFound, errors.New("the target has no ID: give it the address of its BMC"))
	}
	origin, path, err := p.cfg.parse(t.ID)
	if err != nil {
		return where{}, providers.WithClass(providers.ErrPermanent, fmt.Errorf("target ID %w", err))
	}
	return where{origin: origin, path: path, sole: path == ""}, nil
}

// do runs one call against the target's BMC and explains its error.
func (p *Provider) do(ctx context.Context, act string, t providers.Target, f func(*bmc, where) error) (err error) {
	w, err := p.where(t)
	defer func() {
		if err != nil {
			device := strings.TrimSpace("redfish " + p.opts.Name + " " + w.origin)
			err = fmt.Errorf("%s node %s (%s): %w", act, t.Node, device, classify(ctx, err))
		}
	}()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := p.acquire(w.origin)
	if err != nil {
		return err
	}
	defer p.release(b)
	return f(b, w)
}

// system is what is read of a ComputerSystem; what else a BMC says there may have any shape.
type system struct {
	ID           string `json:"Id"`
	UUID         string
	SerialNumber string
	PowerState   string
	Actions      struct {
		Reset struct {
			Target  string   `json:"target"`
			Allowed []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	}

	path  string    // where it was read
	asked time.Time // just before the GET that carried it
}

// sameUUID tells whether the system has this UUID, in either byte order; placeholders and no UUID match nothing.
func (s *system) sameUUID(uuid string) bool {
	_, known := providers.ParseUUID(uuid)
	_, told := providers.ParseUUID(s.UUID)
	return known && told && providers.SameMachine(uuid, s.UUID) == nil
}

// fits tells whether the system is the one that w and t name, as far as it can tell by itself.
func (s *system) fits(w where, t providers.Target) bool {
	switch {
	case w.path != "":
		return true // Ask and reset compare the UUIDs
	case w.id != "":
		return s.ID == w.id || s.SerialNumber == w.id || s.sameUUID(w.id)
	default:
		return s.sameUUID(t.SystemUUID)
	}
}

// bySerial tells whether it is only the serial number by which the system fits.
func (s *system) bySerial(w where) bool { return w.id != "" && s.ID != w.id && !s.sameUUID(w.id) }

// find reads the target's system. Its path is remembered, and what it said never: a remembered path is read again, and looked
// up again if another system is there now.
func (b *bmc) find(ctx context.Context, w where, t providers.Target) (*system, error) {
	if w.path != "" {
		return b.read(ctx, w.path)
	}
	key := w.id + "\x00" + t.SystemUUID
	if path := b.remembered(key); path != "" {
		s, err := b.read(ctx, path)
		if err == nil && s.fits(w, t) || err != nil && status(err) != http.StatusNotFound {
			return s, err
		}
		b.remember(key, "")
	}
	s, err := b.lookUp(ctx, w, t)
	if err == nil {
		b.remember(key, s.path)
	}
	return s, err
}

// lookUp reads all systems of the BMC and takes the only one that fits.
func (b *bmc) lookUp(ctx context.Context, w where, t providers.Target) (*system, error) {
	paths, err := b.members(ctx)
	if err != nil {
		return nil, err
	}
	found, readErr := b.readAll(ctx, paths)
	if w.sole && len(paths) == 1 {
		if readErr != nil {
			return nil, readErr
		}
		return found[0], nil
	}
	if _, known := providers.ParseUUID(t.SystemUUID); !known && w.id == "" {
		return nil, notFound("the BMC has %d systems and the node's system UUID is not known: name the system", len(paths))
	}
	var fit []*system
	for _, s := range found {
		if s.fits(where{id: w.id}, t) {
			fit = append(fit, s)
		}
	}
	switch {
	case len(fit) > 1:
		ids := make([]string, len(fit))
		for i, s := range fit {
			ids[i] = s.ID
		}
		return nil, notFound("%d systems match (%s): name one by its Id or UUID", len(fit), strings.Join(ids, ", "))
	case readErr != nil && (len(fit) == 0 || fit[0].bySerial(w)):
		// A system that cannot be read may be the one, or a second one with that serial number. Ids and UUIDs are unique by
		// their definition: one dead blade must not keep the others from being fenced.
		return nil, readErr
	case len(fit) == 0 && w.id != "":
		return nil, notFound("none of the BMC's %d systems has that Id, UUID or serial number", len(paths))
	case len(fit) == 0:
		return nil, notFound("none of the BMC's %d systems has system UUID %s", len(paths), t.SystemUUID)
	}
	return fit[0], nil
}

func notFound(format string, a ...any) error {
	return providers.WithClass(providers.ErrNotFound, fmt.Errorf(format, a...))
}

// members lists the paths of all systems, whatever number of pages the collection has.
func (b *bmc) members(ctx context.Context) ([]string, error) {
	type link struct {
		ID string `json:"@odata.id"`
	}
	var root struct{ Systems link }
	if _, err := b.get(ctx, schemas.DefaultServiceRoot, &root); err != nil {
		return nil, err
	}
	const pages, systems = 32, 1024 // no enclosure has more; a BMC whose pages form a ring must not hold us
	var paths []string
	next := root.Systems.ID
	for range pages {
		path, ok := b.local(next)
		if !ok {
			return nil, notFound("the BMC has no collection of systems")
		}
		var page struct {
			Members []link
			Next    string `json:"Members@odata.nextLink"`
		}
		if _, err := b.get(ctx, path, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Members {
			if path, ok := b.local(m.ID); ok && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		if next = page.Next; next == "" || len(paths) > systems {
			break
		}
	}
	switch {
	case next != "":
		return nil, notFound("the BMC's list of systems does not end")
	case len(paths) == 0:
		return nil, notFound("the BMC has no systems")
	}
	return paths, nil
}

// readAll reads systems, a few at a time. It returns those that could be read, and the first error.
func (b *bmc) readAll(ctx context.Context, paths []string) ([]*system, error) {
	systems, errs := make([]*system, len(paths)), make([]error, len(paths))
	var wait sync.WaitGroup
	turns := make(chan struct{}, maxRequests)
	for i, path := range paths {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			systems[i], errs[i] = b.read(ctx, path)
		})
	}
	wait.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return systems, nil
	}
	return slices.DeleteFunc(systems, func(s *system) bool { return s == nil }), errs[i]
}

func (b *bmc) read(ctx context.Context, path string) (*system, error) {
	s := &system{path: path}
	asked, err := b.get(ctx, path, s)
	if err != nil {
		return nil, err
	}
	s.asked = asked
	return s, nil
}

// powerState maps Redfish's words (Resource.PowerState); it is the only place where an Off is made.
func powerState(word string) providers.PowerState {
	switch word {
	case "On", "Paused":
		return providers.PowerOn
	case "Off":
		return providers.PowerOff
	case "PoweringOn", "PoweringOff":
		return providers.PowerChanging
	default:
		return providers.PowerUnknown
	}
}

// classify gives an error its class and a text without the answer's body, which may repeat what was sent.
func classify(ctx context.Context, err error) error {
	if class := providers.Class(err); class != "error" && class != "canceled" && ctx.Err() == nil {
		return err
	}
	var answer *schemas.Error
	code := 0
	if errors.As(err, &answer) {
		code = answer.HTTPReturnedStatusCode
	}
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err // without method and URL: the message names the BMC
	}
	switch {
	case code == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The cause names the setting that ran out; what was waited for is the BMC in any case.
		return providers.WithClass(providers.ErrUnreachable, providers.WithClass(context.DeadlineExceeded, context.Cause(ctx)))
	case code == 0 && ctx.Err() != nil:
		return context.Cause(ctx)
	case code == 0:
		return providers.WithClass(providers.ErrUnreachable, err)
	}
	text := fmt.Errorf("%d %s%s", code, http.StatusText(code), said(answer))
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return providers.WithClass(providers.ErrDenied, text)
	case http.StatusNotFound, http.StatusGone:
		return providers.WithClass(providers.ErrNotFound, text)
	case http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return providers.WithClass(providers.ErrUnreachable, text)
	case http.StatusNotImplemented:
		return providers.WithClass(providers.ErrPermanent, text)
	}
	if code >= 500 {
		return providers.WithClass(providers.ErrUnreachable, text)
	}
	return providers.WithClass(providers.ErrPermanent, text)
}

// status returns the HTTP status that an error carries, 0 for none.
func status(err error) int {
	var answer *schemas.Error
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.HTTPReturnedStatusCode
}

// messageID is a name out of a message registry, "Base.1.8.ResourceInUse": the one part of an error's body that is repeated.
var messageID = regexp.MustCompile(`^[A-Za-z]{1,40}(\.[0-9]{1,4}){1,3}\.[A-Za-z]{1,60}$`)

func said(e *schemas.Error) string {
	words := []string{e.Code}
	for _, info := range e.ExtendedInfos {
		words = append(words, info.MessageID)
	}
	for _, w := range words {
		if messageID.MatchString(w) && !strings.HasSuffix(w, ".GeneralError") {
			return " (" + w + ")"
		}
	}
	return ""
}

// api is what is used of gofish's client.
type api interface {
	Get(path string) (*http.Response, error)
	Post(path string, payload any) (*http.Response, error)
	Delete(path string) (*http.Response, error)
}

// fetch reads a JSON document. Anything but 200 with a whole document is an error: half an answer may end before its On.
func fetch(a api, path string, into any) error {
	resp, err := a.Get(path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return providers.WithClass(providers.ErrUnreachable, fmt.Errorf("%d %s instead of an answer", resp.StatusCode, http.StatusText(resp.StatusCode)))
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading answer: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return providers.WithClass(providers.ErrUnreachable, fmt.Errorf("answer is no Redfish resource: %w", err))
	}
	return nil
}
