// Package libvirt asks the daemons of libvirt, by way of go-libvirt, whether a node that is a QEMU guest is off. It
// imports the contract and go-libvirt. The README beside it says which rights it needs and what counts as off.
//
//	providers:
//	- name: rack-a
//	  libvirt:
//	    uri: qemu+tls://hv1.example.net/system
//	    caFile: /etc/forcefence-bmc/libvirt-ca.pem
//	    certFile: /etc/forcefence-bmc/libvirt-client.pem
//	    keyFile: /etc/forcefence-bmc/libvirt-client-key.pem
//
// A target's ID is its domain's name or UUID; without one the domain is found by the node's system UUID, which is the
// domain's. Guests that can migrate need all the hypervisors of their group in one provider, because a domain that is
// off on one may run on another:
//
//	providers:
//	- name: group-1
//	  libvirt:
//	    uris:
//	    - qemu+tls://hv1.example.net/system
//	    - qemu+tls://hv2.example.net/system
//	    caFile: ...
//
// It promises that every hypervisor of the group was asked in that call, and that a domain whose memory is kept (saved,
// paused, crashed and preserved) is never off. No domain is guessed, undefined or deleted. A daemon that hangs, or
// sends anything at all, costs no more than the call.
package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	URI  string   `yaml:"uri"`  // of the one hypervisor; this or uris
	URIs []string `yaml:"uris"` // of all hypervisors between which the guests may migrate

	// Of qemu+tls. The files are PEM, and are read again for each connection.
	remote.Trust `yaml:",inline"`
	CertFile     string `yaml:"certFile"` // must be set with qemu+tls: libvirtd asks for the client's certificate
	KeyFile      string `yaml:"keyFile"`  // its key

	// true: use qemu+tcp:// to other hosts than this one, without encryption or authentication
	AllowTCP bool `yaml:"allowTCP"`
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "libvirt", NewConfig: func() providers.Config { return &Config{} },
		Off:      "the domain is `shut off` on every hypervisor of the group, and its memory is not saved",
		Identity: "the domain's UUID",
	}
}

// Validate returns every fault. It reads the files, and asks no daemon.
func (c *Config) Validate() []providers.Problem {
	var out []providers.Problem
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	secure := false
	seen := map[string]bool{}
	check := func(path, uri string) {
		a, err := parseAddress(uri, c.AllowTCP)
		if err != nil {
			problem(path, "%v", err)
			return
		}
		secure = secure || a.network == "tls"
		key := a.network + " " + strings.Join(a.at, " ") + " " + a.connect
		if seen[key] {
			problem(path, "names a hypervisor twice")
		}
		seen[key] = true
	}
	switch {
	case c.URI != "" && len(c.URIs) > 0:
		problem("uris", "both uri and uris are set: keep one")
	case c.URI == "" && len(c.URIs) == 0:
		problem("uri", "missing: %s", supported)
	case c.URI != "":
		check("uri", c.URI)
	}
	for i, uri := range c.URIs {
		check(fmt.Sprintf("uris[%d]", i), uri)
	}
	out = append(out, c.Trust.Validate()...)
	files := c.HasTrustSettings() || c.CertFile != "" || c.KeyFile != ""
	switch {
	case secure && (c.CertFile == "" || c.KeyFile == ""):
		problem("certFile", "missing: qemu+tls needs certFile and keyFile")
	case secure:
		if _, err := remote.LoadClientCertificate(c.CertFile, c.KeyFile); err != nil {
			problem("certFile", "%v", err)
		}
	case files && len(out) == 0:
		problem("certFile", "no URI is qemu+tls, so certificates have no effect")
	}
	return out
}

// Cautions implements providers.Cautious.
func (c *Config) Cautions() []providers.Problem {
	out := c.Trust.Cautions()
	if c.AllowTCP {
		out = append(out, providers.Problemf("allowTCP", "anyone on the network between the controller and a daemon "+
			"with qemu+tcp:// may report Off"))
	}
	return out
}

// New returns the provider. It contacts no daemon.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// HasAddressIDs implements providers.IDs: only the configuration names the daemons.
func (c *Config) HasAddressIDs() bool { return false }

// CanonicalID implements providers.IDs: a UUID as libvirt writes it, or the domain's name. No ID leads to another host.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if u, ok := providers.ParseUUID(id); ok {
		return providers.FormatUUID(u), nil, nil
	}
	return id, nil, nil
}

// SharesPower implements providers.SharesPower: a host that lost its power reports none of its guests.
func (c *Config) SharesPower() bool { return true }

// Hypervisors implements providers.Hypervisors: the URIs, as the file writes them.
func (c *Config) Hypervisors() []string {
	if c.URI != "" {
		return append([]string{c.URI}, c.URIs...)
	}
	return c.URIs
}

// hashFiles identifies what a connection with TLS is made with.
func (c *Config) hashFiles() remote.CredentialHash {
	return remote.HashFiles(c.CAFile, c.CertFile, c.KeyFile)
}

// Provider controls the domains of one group of hypervisors. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	opts   providers.Options
	group  []*hypervisor
	timing watchTiming
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Closer   = (*Provider)(nil)
	_ providers.Placer   = (*Provider)(nil)
	_ providers.IDs      = (*Config)(nil)
	_ providers.Cautious = (*Config)(nil)

	_ providers.Hypervisors = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
)

// New returns the provider for a valid Config. It contacts no daemon.
func New(c Config, o providers.Options) (*Provider, error) {
	p := &Provider{cfg: c, opts: o.WithDefaults(), timing: defaultTiming}
	for _, uri := range c.Hypervisors() {
		a, err := parseAddress(uri, c.AllowTCP)
		if err != nil {
			return nil, fmt.Errorf("a hypervisor's URI %w", err)
		}
		p.group = append(p.group, &hypervisor{address: a, cfg: &p.cfg, now: p.opts.Now, all: map[*link]struct{}{}})
	}
	if len(p.group) == 0 {
		return nil, errors.New("no hypervisor's URI")
	}
	return p, nil
}

// Close ends all connections and waits for what runs on them. It blocks until ctx's deadline at most.
func (p *Provider) Close(ctx context.Context) error {
	errs := make([]error, len(p.group))
	p.forEachHypervisor(func(i int, h *hypervisor) { errs[i] = h.closeLinks(ctx) })
	return errors.Join(errs...)
}

// State asks every hypervisor of the group. A domain is not off if any of them has it in memory: running, paused, saved
// or in migration. Errors have a class. A state that libvirt does not define is PowerUnknown without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	var obs providers.Observation
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context) error {
		asked := p.opts.Now()
		s, err := p.surveyTarget(ctx, t)
		if err != nil {
			return err
		}
		obs.SystemUUID, obs.At = providers.FormatUUID(s.uuid), providers.InstantOf(asked)
		state, raw, err := s.groupState()
		if state == providers.PowerOff && len(p.group) > 1 {
			// A guest may have arrived on one hypervisor after its answer, and left another before that one's answer.
			// It is on neither only if a second round finds it on neither: no guest migrates twice in between.
			if s, err = p.surveyOf(ctx, s.uuid); err == nil {
				state, raw, err = s.groupState()
			}
		}
		if err == nil {
			obs.State, obs.Raw = state, raw
		}
		return err
	})
	return obs, err
}

// PowerOff destroys the domain on every hypervisor of the group that has it in memory: QEMU is killed, nothing is
// undefined. A saved domain cannot be powered off: its memory is a file, which forcefence must not delete.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context) error {
		s, err := p.surveyVerified(ctx, t)
		if err != nil {
			return err
		}
		errs := make([]error, len(p.group))
		p.forEachHypervisor(func(i int, h *hypervisor) {
			if s.answers[i].isActive() {
				errs[i] = h.changePower(ctx, s.uuid, false)
			}
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if _, _, err := s.groupState(); err != nil {
			return err // a hypervisor did not answer, or none knows the domain
		}
		saved := slices.IndexFunc(s.answers, func(g domainAnswer) bool { return g.saved })
		switch {
		case !slices.ContainsFunc(s.answers, func(g domainAnswer) bool { return g.err == nil && !g.elsewhere }):
			return notFound("it migrated to a hypervisor that is not in uris")
		case saved >= 0 && !slices.ContainsFunc(s.answers, domainAnswer.isActive):
			return providers.Errorf(providers.ErrPermanent, "%s: the domain is not running, but its memory is saved "+
				"and may resume: start it, or run virsh managedsave-remove", s.answers[saved].raw)
		}
		return nil
	})
}

// PowerOn starts the domain where it is defined. It does not start a domain with a managed save image: that would
// resume the memory of the earlier machine.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context) error {
		s, err := p.surveyVerified(ctx, t)
		if err != nil {
			return err
		}
		if _, _, err := s.groupState(); err != nil {
			return err // a hypervisor that does not answer may have it running
		}
		if slices.ContainsFunc(s.answers, domainAnswer.isActive) {
			return nil
		}
		at := -1
		for i, g := range s.answers {
			switch {
			case g.saved:
				return providers.Errorf(providers.ErrPermanent, "%s: starting it would resume its memory: run virsh "+
					"start, or virsh managedsave-remove first", g.raw)
			case g.state == providers.PowerOff && at >= 0:
				return providers.Errorf(providers.ErrPermanent, "it is off on %s and on %s: start it where it belongs",
					p.group[at].uri, p.group[i].uri)
			case g.state == providers.PowerOff:
				at = i
			}
		}
		if at < 0 {
			return providers.Errorf(providers.ErrPermanent, "no hypervisor of the group can start it")
		}
		return p.group[at].changePower(ctx, s.uuid, true)
	})
}

func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f func(context.Context) error) error {
	return remote.RunCall(ctx, act, t, "libvirt "+p.opts.Name, f)
}

// forEachHypervisor calls f for all hypervisors at once and waits.
func (p *Provider) forEachHypervisor(f func(i int, h *hypervisor)) {
	if len(p.group) == 1 {
		f(0, p.group[0])
		return
	}
	var wait sync.WaitGroup
	for i, h := range p.group {
		wait.Go(func() { f(i, h) })
	}
	wait.Wait()
}

// domainAnswer is one hypervisor's answer about a domain.
type domainAnswer struct {
	err       error // it did not say; ErrNotFound: it knows no such domain
	state     providers.PowerState
	raw       string
	saved     bool // does not run, its memory is kept
	elsewhere bool // it has migrated away
}

// isActive reports whether there is, or may be, something to destroy: a QEMU process.
func (g domainAnswer) isActive() bool {
	return g.err == nil && g.state != providers.PowerOff && !g.saved && !g.elsewhere
}

// survey is the whole group's answer about one domain.
type survey struct {
	uuid    golibvirt.UUID
	answers []domainAnswer // by hypervisor
}

// groupState returns the group's state. It is off only if every hypervisor answered, one of them knows the domain as
// off, and none has any of it in memory.
func (s survey) groupState() (providers.PowerState, string, error) {
	best := s.answers[0]
	for _, g := range s.answers {
		switch {
		case g.err != nil && !errors.Is(g.err, providers.ErrNotFound):
			return providers.PowerUnknown, "", g.err
		case g.err == nil && (best.err != nil || stateWeight(g) > stateWeight(best)):
			best = g
		}
	}
	return best.state, best.raw, best.err
}

// stateWeight orders the hypervisors' answers: the heaviest decides. The answer that a domain migrated away weighs
// least: it is off or on at its destination.
func stateWeight(g domainAnswer) int {
	if g.elsewhere {
		return -1
	}
	return slices.Index([]providers.PowerState{
		providers.PowerOff, providers.PowerUnknown, providers.PowerChanging, providers.PowerOn,
	}, g.state)
}

// surveyTarget finds the target's domain in the group and asks all hypervisors for it.
func (p *Provider) surveyTarget(ctx context.Context, t providers.Target) (survey, error) {
	uuid, err := p.findDomain(ctx, t)
	if err != nil {
		return survey{}, err
	}
	return p.surveyOf(ctx, uuid)
}

// surveyVerified is surveyTarget for a power action: it checks that the domain is the target's. That was confirmed
// before, but a name may be another domain's since. The UUID that is identified here is exactly the one that the daemon
// then acts on.
func (p *Provider) surveyVerified(ctx context.Context, t providers.Target) (survey, error) {
	s, err := p.surveyTarget(ctx, t)
	if err == nil {
		err = t.VerifyIdentity(providers.Observation{SystemUUID: providers.FormatUUID(s.uuid)})
	}
	return s, err
}

func (p *Provider) surveyOf(ctx context.Context, uuid golibvirt.UUID) (survey, error) {
	s := survey{uuid: uuid, answers: make([]domainAnswer, len(p.group))}
	p.forEachHypervisor(func(i int, h *hypervisor) {
		s.answers[i] = h.askDomainState(ctx, uuid)
		if len(p.group) > 1 {
			s.answers[i].raw += " on " + p.shortName(i)
		}
	})
	return s, ctx.Err()
}

// shortName returns a hypervisor's name for evidence, which has little room.
func (p *Provider) shortName(i int) string {
	return cmp.Or(p.group[i].host, fmt.Sprintf("uris[%d]", i))
}

// FindGuest looks for the domain on one hypervisor: under the ID, and under the node's system UUID in both byte orders.
// Any domain that it finds counts as there, in any state. The node's system UUID must be known, and an ID that is a
// UUID must be the same one. An ID alone may be wrong, and a wrong name is absent everywhere.
func (p *Provider) FindGuest(ctx context.Context, on string, t providers.Target) (providers.Placement, error) {
	var out providers.Placement
	err := p.runCall(ctx, "look on a hypervisor for", t, func(ctx context.Context) error {
		i := slices.IndexFunc(p.group, func(h *hypervisor) bool { return h.uri == on })
		if i < 0 {
			return providers.Errorf(providers.ErrPermanent, "no such hypervisor is configured")
		}
		uuids, err := candidateUUIDs(providers.Target{SystemUUID: t.SystemUUID})
		if err != nil {
			return err
		}
		if u, ok := providers.ParseUUID(t.ID); ok && !slices.Contains(uuids, golibvirt.UUID(u)) {
			return providers.Errorf(providers.ErrIdentity, "the node's system UUID is %s, but the ID is domain %s",
				t.SystemUUID, t.ID)
		}
		out.At = providers.InstantOf(p.opts.Now())
		found, err := p.group[i].findDomains(ctx, uuids, t.ID)
		if err != nil {
			return err
		}
		out.Raw = "on " + p.shortName(i)
		if out.Absent = len(found) == 0; out.Absent {
			out.Raw = "not " + out.Raw
		}
		return nil
	})
	return out, err
}

// displayName returns a hypervisor's name for messages.
func (a address) displayName() string {
	return cmp.Or(a.host, a.at[0])
}

// findDomain returns the UUID of the one domain that the target names. A domain may have another name on another
// hypervisor, and another domain the same name. Only the UUID counts, which migrates with the domain.
func (p *Provider) findDomain(ctx context.Context, t providers.Target) (golibvirt.UUID, error) {
	uuids, err := candidateUUIDs(t)
	if err != nil {
		return golibvirt.UUID{}, err
	}
	found, errs := make([][]golibvirt.Domain, len(p.group)), make([]error, len(p.group))
	p.forEachHypervisor(func(i int, h *hypervisor) { found[i], errs[i] = h.findDomains(ctx, uuids, t.ID) })
	var match []golibvirt.UUID
	for _, d := range slices.Concat(found...) {
		if !slices.Contains(match, d.UUID) {
			match = append(match, d.UUID)
		}
	}
	switch {
	case len(match) == 1:
		return match[0], nil // what a hypervisor that did not answer has to say is asked for next
	case len(match) > 1:
		return golibvirt.UUID{}, notFound("%d domains match (%s, %s): set the UUID of one as the ID", len(match),
			providers.FormatUUID(match[0]), providers.FormatUUID(match[1]))
	}
	if err := errors.Join(errs...); err != nil {
		return golibvirt.UUID{}, err
	}
	if t.ID == "" {
		return golibvirt.UUID{}, notFound("no domain has the UUID %s", t.SystemUUID)
	}
	return golibvirt.UUID{}, notFound("no domain has that name or UUID")
}

// candidateUUIDs returns the UUIDs, in both byte orders, under which a target is looked up: its ID's, if that is one,
// else the system's.
func candidateUUIDs(t providers.Target) ([]golibvirt.UUID, error) {
	u, ok := providers.ParseUUID(cmp.Or(t.ID, t.SystemUUID))
	switch swapped := providers.SwapUUID(u); {
	case !ok && t.ID == "":
		return nil, notFound("the node's system UUID is unknown: set the domain as its ID")
	case !ok:
		return nil, nil
	case swapped == u:
		return []golibvirt.UUID{u}, nil
	default:
		return []golibvirt.UUID{u, swapped}, nil
	}
}

func notFound(format string, a ...any) error {
	return providers.Errorf(providers.ErrNotFound, format, a...)
}

// withLink runs f on one of the hypervisor's connections.
func withLink[T any](ctx context.Context, h *hypervisor, purpose int, f func(*link) (T, error)) (out T, _ error) {
	l, err := h.acquireLink(ctx, purpose, nil)
	if err == nil {
		defer l.releaseUser()
		out, err = f(l)
	}
	if err != nil && len(h.cfg.URIs) > 1 {
		err = fmt.Errorf("%s: %w", h.displayName(), err)
	}
	return out, err
}

func (h *hypervisor) findDomains(ctx context.Context, uuids []golibvirt.UUID, name string) ([]golibvirt.Domain, error) {
	return withLink(ctx, h, asking, func(l *link) ([]golibvirt.Domain, error) {
		return l.findDomains(ctx, uuids, name)
	})
}

// findDomains returns the domains that have one of the UUIDs or the name.
func (l *link) findDomains(ctx context.Context, uuids []golibvirt.UUID, name string) (out []golibvirt.Domain, _ error) {
	var lookUps []func(*golibvirt.Libvirt) (golibvirt.Domain, error)
	for _, uuid := range uuids {
		lookUps = append(lookUps, func(rpc *golibvirt.Libvirt) (golibvirt.Domain, error) {
			return rpc.DomainLookupByUUID(uuid)
		})
	}
	if name != "" {
		lookUps = append(lookUps, func(rpc *golibvirt.Libvirt) (golibvirt.Domain, error) {
			return rpc.DomainLookupByName(name)
		})
	}
	for _, lookUp := range lookUps {
		d, err := askDaemon(ctx, l, lookUp)
		switch {
		case err == nil:
			out = append(out, d)
		case !errors.Is(err, providers.ErrNotFound):
			return nil, fmt.Errorf("looking up the domain: %w", err)
		}
	}
	return out, nil
}

func (h *hypervisor) askDomainState(ctx context.Context, uuid golibvirt.UUID) domainAnswer {
	g, err := withLink(ctx, h, asking, func(l *link) (domainAnswer, error) { return l.askDomainState(ctx, uuid) })
	g.err = err
	return g
}

// askDomainState asks for the managed save image first. A domain that is saved between the two questions has the reason
// saved. A daemon restart between them would hide that, but it also ends the connection. In the other order, a domain
// that is restored between them would be off with no image, and run.
func (l *link) askDomainState(ctx context.Context, uuid golibvirt.UUID) (domainAnswer, error) {
	d := domainHandle(uuid)
	image, err := askDaemon(ctx, l, func(rpc *golibvirt.Libvirt) (int32, error) {
		return rpc.DomainHasManagedSaveImage(d, 0)
	})
	if err != nil {
		return domainAnswer{}, fmt.Errorf("asking for a managed save image: %w", err)
	}
	type both struct{ state, reason int32 }
	is, err := askDaemon(ctx, l, func(rpc *golibvirt.Libvirt) (b both, err error) {
		b.state, b.reason, err = rpc.DomainGetState(d, 0)
		return b, err
	})
	if err != nil {
		return domainAnswer{}, fmt.Errorf("asking state: %w", err)
	}
	return mapDomainState(is.state, is.reason, image != 0), nil
}

// domainHandle returns a handle of a domain for the daemon, which reads the UUID only.
func domainHandle(uuid golibvirt.UUID) golibvirt.Domain {
	return golibvirt.Domain{Name: providers.FormatUUID(uuid), UUID: uuid, ID: -1}
}

// changePower starts or destroys a domain. If the daemon refuses, it reads the domain's state again: the change may be
// done already.
func (h *hypervisor) changePower(ctx context.Context, uuid golibvirt.UUID, on bool) error {
	act, change := "destroying", func(rpc *golibvirt.Libvirt) error {
		return rpc.DomainDestroyFlags(domainHandle(uuid), golibvirt.DomainDestroyDefault)
	}
	if on {
		act, change = "starting", func(rpc *golibvirt.Libvirt) error { return rpc.DomainCreate(domainHandle(uuid)) }
	}
	_, err := withLink(ctx, h, acting, func(l *link) (none struct{}, err error) {
		if err = callDaemon(ctx, l, func(rpc *golibvirt.Libvirt) error {
			if err := remote.MaySend(ctx); err != nil {
				return err
			}
			return change(rpc)
		}); err != nil {
			err = fmt.Errorf("%s the domain: %w", act, err)
		}
		return none, err
	})
	var refusal golibvirt.Error
	if errors.As(err, &refusal) && golibvirt.ErrorNumber(refusal.Code) == golibvirt.ErrOperationInvalid {
		if g := h.askDomainState(ctx, uuid); g.err == nil && g.isActive() == on {
			return nil
		}
	}
	return err
}

// mapDomainState maps a domain's state and its reason (libvirt-domain.h). Off is returned nowhere else.
func mapDomainState(state, reason int32, image bool) domainAnswer {
	g := domainAnswer{raw: stateText(state, reason)}
	switch golibvirt.DomainState(state) {
	case golibvirt.DomainRunning, golibvirt.DomainBlocked, golibvirt.DomainPaused, golibvirt.DomainPmsuspended:
		g.state = providers.PowerOn
		return g
	case golibvirt.DomainShutdown:
		g.state = providers.PowerChanging // the guest shuts down, QEMU is there
		return g
	case golibvirt.DomainShutoff:
	default: // no state, crashed (QEMU and the guest's memory are there), and what libvirt does not define
		return g
	}
	switch golibvirt.DomainShutoffReason(reason) {
	case golibvirt.DomainShutoffSaved:
		g.state, g.saved = providers.PowerOn, true
	case golibvirt.DomainShutoffMigrated:
		g.elsewhere = true
	case golibvirt.DomainShutoffUnknown, // every reason becomes this at a daemon restart, also saved: the image shows
		golibvirt.DomainShutoffShutdown, golibvirt.DomainShutoffDestroyed, golibvirt.DomainShutoffCrashed,
		golibvirt.DomainShutoffFailed, golibvirt.DomainShutoffDaemon,
		golibvirt.DomainShutoffFromSnapshot: // reverted to a snapshot taken while it was off: no memory
		g.state = providers.PowerOff
	}
	if image {
		g.state, g.saved, g.elsewhere = providers.PowerOn, true, false
		g.raw += ", managed save image"
	}
	return g
}

var (
	states = []string{"no state", "running", "blocked", "paused", "shutting down", "shut off", "crashed",
		"suspended by the guest"}
	reasons = map[int32][]string{
		1: {"unknown", "booted", "migrated", "restored", "from snapshot", "unpaused", "migration canceled",
			"save canceled", "wakeup", "crashed", "post-copy", "post-copy failed"},
		3: {"unknown", "user", "migration", "save", "dump", "I/O error", "watchdog", "from snapshot", "shutting down",
			"snapshot", "crashed", "starting up", "post-copy", "post-copy failed", "API error"},
		4: {"unknown", "user"},
		5: {"unknown", "shutdown", "destroyed", "crashed", "migrated", "saved", "failed", "from snapshot", "daemon"},
		6: {"unknown", "panicked"},
	}
)

// stateText returns a state and its reason as virsh domstate --reason writes them; an unknown one as a number.
func stateText(state, reason int32) string {
	name := func(of []string, i int32, what string) string {
		if i < 0 || int(i) >= len(of) {
			return fmt.Sprintf("%s %d", what, i)
		}
		return of[i]
	}
	return name(states, state, "state") + " (" + name(reasons[state], reason, "reason") + ")"
}

// errorClass maps libvirt's error numbers (virterror.h).
func errorClass(code uint32) error {
	switch golibvirt.ErrorNumber(code) {
	case golibvirt.ErrNoDomain:
		return providers.ErrNotFound
	case golibvirt.ErrOperationDenied, golibvirt.ErrAuthFailed, golibvirt.ErrAuthCancelled,
		golibvirt.ErrAuthUnavailable, golibvirt.ErrAccessDenied:
		return providers.ErrDenied
	case golibvirt.ErrNoSupport, golibvirt.ErrNoConnect, golibvirt.ErrInvalidArg, golibvirt.ErrConfigUnsupported,
		golibvirt.ErrArgumentUnsupported, golibvirt.ErrOperationUnsupported:
		return providers.ErrPermanent
	default:
		return providers.ErrUnreachable
	}
}

// errorText returns the daemon's error with a message of a bounded length.
func errorText(e golibvirt.Error) error {
	e.Message = strings.ToValidUTF8(e.Message[:min(len(e.Message), 200)], "?")
	return e
}
