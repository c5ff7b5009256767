// Package metal3 asks the BMCs of Metal3's BareMetalHosts whether nodes are off. It takes a BMC's address and
// credentials from the BareMetalHost and its Secret, and asks by the types redfish and ipmi. It imports the contract,
// providers/remote and these two types. The README beside it has the rights and the limits.
//
//	providers:
//	- name: hosts
//	  metal3:
//	    namespaces: [metal3]
//	    powerOff: request
//
// A target's ID is namespace/name of its BareMetalHost, or the whole providerID, metal3://NAMESPACE/HOST/MACHINE.
// MACHINE is the Metal3Machine that must have the host.
//
// It promises that a state was reported by the BMC in that call: status.poweredOn is never read. A host on which Metal3
// works is never off, and its power is not changed. Every write names the version of the BareMetalHost that was read
// before its BMC confirmed the machine's identity. Annotations of other clients are never changed.
package metal3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// Config is the provider's part of the configuration file.
type Config struct {
	// of an account of the cluster with the BareMetalHosts, as an absolute path, read again for each call; "": this
	// cluster, by the controller's own account
	Kubeconfig string `yaml:"kubeconfig"`
	// of the BareMetalHosts that nodes may lead to; must be set
	Namespaces []string `yaml:"namespaces"`
	// one of none, request, detach; default none; none: only ask. request: the baremetal-operator powers the host off,
	// by an annotation. detach: the BMC does, once the baremetal-operator has detached the host
	PowerOff PowerOff `yaml:"powerOff"`
	// PEM, of the BMCs' certificates; default the system's authorities; read again for each connection
	CAFile       string               `yaml:"caFile"`
	Fingerprints []remote.Fingerprint `yaml:"fingerprints"` // of certificates that no trusted authority signed
	// true: check no certificate of hosts with disableCertificateVerification; any host that answers there gets the
	// credentials and may report Off
	AllowUnverified bool `yaml:"allowUnverified"`
	// true: ask BMCs with redfish+http:// addresses; the password is sent in the clear
	AllowHTTP bool `yaml:"allowHTTP"`
}

// PowerOff says how a host is powered off.
type PowerOff string

// The values of Config.PowerOff.
const (
	PowerOffNone    PowerOff = "none"
	PowerOffRequest PowerOff = "request"
	PowerOffDetach  PowerOff = "detach"
)

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "metal3", NewConfig: func() providers.Config { return &Config{PowerOff: PowerOffNone} },
		Off:      "the BareMetalHost's BMC says Off, as for `redfish` and `ipmi`, and Metal3 does not work on the host",
		Identity: "the system UUID, where the BMC has one",
	}
}

// Validate returns every fault. It reads the kubeconfig and the files that it names, and asks no API server.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	switch {
	case c.Kubeconfig == "":
	case !filepath.IsAbs(c.Kubeconfig):
		problem("kubeconfig", "is not an absolute path of a file")
	default:
		if err := kubeapi.CheckFile(c.Kubeconfig); err != nil {
			problem("kubeconfig", "%v", err)
		}
	}
	if len(c.Namespaces) == 0 {
		problem("namespaces", "missing: write the namespaces of the BareMetalHosts")
	}
	for i, n := range c.Namespaces {
		switch path := fmt.Sprintf("namespaces[%d]", i); {
		case !nsPattern.MatchString(n):
			problem(path, "no namespace can have that name")
		case slices.Index(c.Namespaces, n) < i:
			problem(path, "names a namespace twice")
		}
	}
	if !slices.Contains([]PowerOff{PowerOffNone, PowerOffRequest, PowerOffDetach}, c.PowerOff) {
		problem("powerOff", "is %q: use none, request or detach", c.PowerOff)
	}
	return append(out, c.trust(false).Validate()...)
}

// trust returns the settings by which a BMC's certificate is checked. unverified is what its BareMetalHost says.
func (c *Config) trust(unverified bool) *remote.Trust {
	if unverified && c.AllowUnverified {
		return &remote.Trust{InsecureSkipVerify: true}
	}
	return &remote.Trust{CAFile: c.CAFile, Fingerprints: c.Fingerprints}
}

// Cautions implements providers.Cautious.
func (c *Config) Cautions() (out []providers.Problem) {
	if c.Kubeconfig != "" {
		out = kubeapi.CautionsOf(c.Kubeconfig)
	}
	if c.AllowUnverified {
		out = append(out, providers.Problemf("allowUnverified", "any host that answers at the address of a "+
			"BareMetalHost with disableCertificateVerification gets its credentials and may report Off. Use caFile, "+
			"or fingerprints, instead"))
	}
	if c.AllowHTTP {
		out = append(out, providers.Problemf("allowHTTP", "anyone on the network between the controller and a BMC "+
			"with redfish+http:// reads the password, and may report Off"))
	}
	return out
}

// NoPowerActions implements providers.ReadOnly.
func (c *Config) NoPowerActions() *providers.Problem {
	if c.PowerOff != PowerOffNone {
		return nil
	}
	p := providers.Problemf("powerOff", "With powerOff: none hosts are only asked: use request or detach")
	return &p
}

// New returns the provider. It contacts no API server and no BMC.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o), nil }

// HasAddressIDs implements providers.IDs: a BareMetalHost, and not an ID, names the BMC and its credentials.
func (c *Config) HasAddressIDs() bool { return false }

// ProviderIDs implements providers.ProviderIDs.
func (c *Config) ProviderIDs() bool { return true }

// CanonicalID implements providers.IDs: namespace/name, and /machine behind it if a providerID names one.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	r, err := c.parseID(id)
	if err != nil {
		return "", nil, err
	}
	return r.String(), nil, nil
}

// SharesPower implements providers.SharesPower: a BMC runs on its machine's power supplies.
func (c *Config) SharesPower() bool { return true }

// hostRef is the BareMetalHost that an ID names. machine is the Metal3Machine that must have it; "": any.
type hostRef struct{ namespace, name, machine string }

// String returns the canonical ID.
func (r hostRef) String() string {
	return strings.TrimSuffix(r.namespace+"/"+r.name+"/"+r.machine, "/")
}

// parseID reads an ID. Its errors do not repeat it.
func (c *Config) parseID(id string) (r hostRef, err error) {
	parts := strings.Split(strings.TrimPrefix(id, "metal3://"), "/")
	if len(parts) == 2 {
		parts = append(parts, "")
	}
	if len(parts) != 3 || !isName(parts[0]) || !isName(parts[1]) || parts[2] != "" && !isName(parts[2]) {
		return r, errors.New("is not a BareMetalHost as NAMESPACE/NAME, or a providerID " +
			"metal3://NAMESPACE/NAME/METAL3MACHINE (older ones, metal3://UID, name no host)")
	}
	if !slices.Contains(c.Namespaces, parts[0]) {
		return r, errors.New("is a BareMetalHost in another namespace than the provider's namespaces")
	}
	return hostRef{namespace: parts[0], name: parts[1], machine: parts[2]}, nil
}

// Names as Kubernetes allows them: labels for namespaces, subdomains for objects. None changes a path.
var (
	dnsLabel    = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	nsPattern   = regexp.MustCompile(`^` + dnsLabel + `$`)
	namePattern = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)
)

func isName(s string) bool { return len(s) <= 253 && namePattern.MatchString(s) }

const (
	// idleAfter is how long a BMC may be unused before it is forgotten. Its type has ended its session before. Each
	// change of a BareMetalHost opens another, so it is not longer.
	idleAfter = 15 * time.Minute
	// restoredFor is how long a machine that is on after its power-off is explained by what Metal3 does.
	restoredFor = time.Hour
	// withdrawAfter is longer than a fence waits for Off, and than a dead node reads Ready.
	withdrawAfter = 5 * time.Minute
)

// Provider controls the machines of BareMetalHosts. It is safe for concurrent use.
type Provider struct {
	cfg  Config
	opts providers.Options
	api  *kubeapi.Connection
	pool *remote.Pool[*slot] // by access.account, so that a changed BareMetalHost or Secret has a new one
	poll time.Duration       // between two looks for a detached host

	mu       sync.Mutex                   // guards what follows, which is by BareMetalHost
	cutting  map[string]providers.Instant // when power-offs were sent
	leftOver map[string]providers.Instant // since when our annotations are on a host that is on, with a Ready node
}

var (
	_ providers.Closer      = (*Provider)(nil)
	_ providers.Grouper     = (*Provider)(nil)
	_ providers.ProviderIDs = (*Config)(nil)
	_ providers.ReadOnly    = (*Config)(nil)
	_ providers.Cautious    = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
	_ providers.Withdrawer  = (*Provider)(nil)
)

// New returns the provider for a valid Config. It contacts no API server and no BMC.
func New(c Config, o providers.Options) *Provider {
	o = o.WithDefaults()
	p := &Provider{cfg: c, opts: o, api: kubeapi.NewConnection(c.Kubeconfig, o.Agent), poll: 200 * time.Millisecond,
		cutting: map[string]providers.Instant{}, leftOver: map[string]providers.Instant{}}
	p.pool = remote.NewPool(idleAfter, func(remote.Account) *slot { return &slot{} }, func(s *slot) time.Duration {
		p.pool.Work.Go(func() { _ = s.close(p.pool.Ending) })
		return 0
	})
	return p
}

// Close ends the sessions and closes the connections. It blocks until ctx's deadline at most.
func (p *Provider) Close(ctx context.Context) error {
	defer p.api.Close()
	return p.pool.Close(ctx, func(s *slot) error { return s.close(ctx) })
}

// DeviceOf returns the BareMetalHost that a target names, whichever Metal3Machine has it; "" if it names none.
func (p *Provider) DeviceOf(t providers.Target) string {
	r, err := p.cfg.parseID(t.ID)
	if err != nil {
		return ""
	}
	return r.namespace + "/" + r.name
}

// State asks the BMC that the BareMetalHost names now. While Metal3 works on the host, an Off is PowerUnknown: the host
// may boot by itself. Errors have a class.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, c call) (err error) {
		obs, err = c.bmc.State(ctx, c.target)
		switch busy := c.host.whyBusy(); {
		case err != nil:
			obs.State = providers.PowerUnknown
		case busy != "" && obs.State == providers.PowerOff:
			obs.State, obs.Raw = providers.PowerUnknown, obs.Raw+", but "+busy
		case obs.State == providers.PowerOn && p.isCutting(c.ref):
			obs.Raw += c.host.whoRestores()
		}
		if err == nil && obs.State == providers.PowerOn {
			p.withdrawLeftOver(ctx, c)
		}
		return err
	})
	return obs, err
}

// withdrawLeftOver takes back annotations that no fence takes back, and whose machine is on. They are about another
// life of the node, or the node has been Ready at two looks with withdrawAfter between them. The baremetal-operator,
// which did not act so far, would power the machine off later.
func (p *Provider) withdrawLeftOver(ctx context.Context, c call) {
	key := c.ref.namespace + "/" + c.ref.name
	ours := p.cfg.PowerOff != PowerOffNone && p.opts.Node != nil && len(c.host.release()) > 0
	var n providers.Node
	if ours {
		var err error
		n, err = p.opts.Node(ctx, c.target.Node)
		ours = err == nil
	}
	ready := ours && n.Ready == "True"
	p.mu.Lock()
	since, known := p.leftOver[key]
	switch {
	case !ready:
		delete(p.leftOver, key)
	case !known:
		p.leftOver[key] = p.opts.Now.Instant()
	}
	p.mu.Unlock()
	void := func(life providers.Life) bool {
		return life.NodeUID != "" && (life.NodeUID != n.UID || life.BootID != clipBootID(n.BootID)) ||
			ready && known && since.Lasted(p.opts.Now.Instant()) >= withdrawAfter
	}
	if !ours || len(c.host.releaseIf(void)) == 0 {
		return
	}
	if err := c.annotate(ctx, func(h *host) annotations { return h.releaseIf(void) }); err != nil {
		p.opts.Log.Warn("Could not withdraw a power-off that was not carried out", "host", key, "error", err)
		return
	}
	p.opts.Log.Info("Withdrew a power-off that was not carried out", "host", key)
}

// Withdraw removes the annotations that PowerOff wrote for the target's Node, and those of ours that name no Node. It
// asks no BMC, so it works although the BMC is silent, or Metal3 gave the host to another machine by now.
func (p *Provider) Withdraw(ctx context.Context, t providers.Target) error {
	err := p.runHostCall(ctx, "withdraw the power-off of", t, func(ctx context.Context, c call) error {
		return c.annotate(ctx, func(h *host) annotations {
			return h.releaseIf(func(life providers.Life) bool {
				return life.NodeUID == "" || life.NodeUID == t.Life.NodeUID
			})
		})
	})
	if kubeapi.IsStatus(err, http.StatusNotFound) { // an order ends with its host
		return nil
	}
	return err
}

// PowerOff asks the BMC which machine it controls, and then either writes the annotation by which the
// baremetal-operator powers the host off and keeps it off, or has the host detached and sends the power-off itself. Nil
// means accepted.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power off", t, func(ctx context.Context, c call) error {
		if p.cfg.PowerOff == PowerOffNone {
			return providers.Errorf(providers.ErrPermanent, "powerOff is none: set request or detach")
		}
		if why := c.host.whyKeptOn(p.cfg.PowerOff); why != "" {
			return providers.Errorf(providers.ErrPermanent, "%s", why)
		}
		if err := c.confirm(ctx, p.opts.Now); err != nil {
			return err
		}
		p.noteCutting(c.ref)
		if p.cfg.PowerOff == PowerOffRequest {
			return c.annotate(ctx, func(h *host) annotations { return h.requestOff(t.Life) })
		}
		detach := func(h *host) annotations { return h.detach(t.Life) }
		wrote := len(detach(c.host)) > 0
		if err := c.annotate(ctx, detach); err != nil {
			return err
		}
		if err := c.awaitDetached(ctx, p.poll); err != nil {
			return err
		}
		err := c.bmc.PowerOff(ctx, c.target, func() error { return remote.MaySend(ctx) })
		if wrote && errors.Is(err, providers.ErrNotSent) { // true of the power-off alone
			err = providers.Errorf(providers.ErrUnreachable, "%s is detached: %s", c.host, providers.ErrorText(err))
		}
		return err
	})
}

// PowerOn removes the annotations that PowerOff wrote, and no others; the baremetal-operator then powers the host on. A
// host that was detached is powered on by its BMC first. Nil means accepted.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runCall(ctx, "power on", t, func(ctx context.Context, c call) error {
		if why := c.host.whyKeptOff(); p.cfg.PowerOff == PowerOffNone {
			return providers.Errorf(providers.ErrPermanent, "powerOff is none: set request or detach")
		} else if why != "" {
			return providers.Errorf(providers.ErrPermanent, "%s", why)
		}
		if err := c.confirm(ctx, p.opts.Now); err != nil {
			return err
		}
		if p.cfg.PowerOff == PowerOffDetach {
			err := c.bmc.PowerOn(ctx, c.target, func() error { return remote.MaySend(ctx) })
			if err != nil {
				return err
			}
		}
		if err := c.annotate(ctx, (*host).release); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.cutting, c.ref.namespace+"/"+c.ref.name)
		return nil
	})
}

// noteCutting notes that a power-off of the host may be sent now.
func (p *Provider) noteCutting(r hostRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutting[r.namespace+"/"+r.name] = p.opts.Now.Instant()
}

// isCutting reports whether this process sent a power-off of the host within restoredFor, and no power-on since.
func (p *Provider) isCutting(r hostRef) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, sent := p.cutting[r.namespace+"/"+r.name]
	if sent && at.Age(p.opts.Now.Instant()) > restoredFor {
		delete(p.cutting, r.namespace+"/"+r.name)
		sent = false
	}
	return sent
}
