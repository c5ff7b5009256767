// Package kubevirt asks a Kubernetes cluster with KubeVirt (the host cluster) whether a node that is one of its virtual
// machines is off: the nodes of Harvester's guest clusters and of Cluster API's provider for KubeVirt. It imports the
// contract, providers/remote and client-go. The README beside it says which rights it needs and what counts as off.
//
//	providers:
//	- name: guests
//	  kubevirt:
//	    kubeconfig: /etc/forcefence-bmc/host-cluster.kubeconfig
//	    namespace: tenant-a
//
// A target's ID is its VirtualMachine's name, alone, as namespace/name, or as a providerID (kubevirt://NAME).
//
// It promises that an Off was read from the API server's own storage in that call, and that it is a live kubelet's word
// about every launcher pod. No object that is gone, and no phase, is ever off. It deletes no object.
package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// Config is the provider's part of the configuration file.
type Config struct {
	// of an account of the host cluster, as an absolute path; must be set; read again for each call
	Kubeconfig string `yaml:"kubeconfig"`
	Namespace  string `yaml:"namespace"` // of the virtual machines in the host cluster; must be set
	// names of all nodes of the host cluster on which the guests may run; for within alone
	Hosts []string `yaml:"hosts"`
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "kubevirt", NewConfig: func() providers.Config { return &Config{} },
		Off:      "a live kubelet of the host cluster reports all containers of every launcher pod as ended",
		Identity: "the VM's firmware UUID",
	}
}

// Validate returns every fault. It reads the kubeconfig and the files that it names, and asks no API server.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	switch {
	case c.Kubeconfig == "":
		problem("kubeconfig", "missing: write the file of an account of the host cluster")
	case !filepath.IsAbs(c.Kubeconfig):
		problem("kubeconfig", "is not an absolute path of a file")
	default:
		if err := kubeapi.CheckFile(c.Kubeconfig); err != nil {
			problem("kubeconfig", "%v", err)
		}
	}
	switch {
	case c.Namespace == "":
		problem("namespace", "missing: write the namespace of the virtual machines in the host cluster")
	case !isNamespace(c.Namespace):
		problem("namespace", "no namespace can have that name")
	}
	for i, h := range c.Hosts {
		switch path := fmt.Sprintf("hosts[%d]", i); {
		case !isName(h):
			problem(path, "is not the name of a node of the host cluster")
		case slices.Index(c.Hosts, h) < i:
			problem(path, "names a host twice")
		}
	}
	return out
}

// Cautions implements providers.Cautious.
func (c *Config) Cautions() []providers.Problem { return kubeapi.CautionsOf(c.Kubeconfig) }

// New returns the provider. It contacts no API server.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o), nil }

// HasAddressIDs implements providers.IDs: only the configuration names the host cluster.
func (c *Config) HasAddressIDs() bool { return false }

// CanonicalID implements providers.IDs: namespace/name. An ID of another namespace is refused: machines of the same
// name in two namespaces can have the same UUID.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	name := strings.TrimPrefix(id, "kubevirt://")
	if namespace, rest, ok := strings.Cut(name, "/"); ok && name == id {
		if namespace != c.Namespace {
			return "", nil, errors.New("is in another namespace than the provider's: write one provider for each")
		}
		name = rest
	}
	if !isName(name) {
		return "", nil, errors.New("is not the name of a VirtualMachine, alone, as namespace/name, or as " +
			"kubevirt://NAME")
	}
	return c.Namespace + "/" + name, nil, nil
}

// SharesPower implements providers.SharesPower: a host that lost its power reports none of its guests.
func (c *Config) SharesPower() bool { return true }

// TimeToOff implements providers.Slow, for the check of the timeout.
func (c *Config) TimeToOff() time.Duration { return defaultTiming.hold }

// Names as Kubernetes allows them: labels for namespaces, subdomains for virtual machines. None changes a path.
var (
	dnsLabel    = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	nsPattern   = regexp.MustCompile(`^` + dnsLabel + `$`)
	namePattern = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)
)

func isNamespace(s string) bool { return nsPattern.MatchString(s) }
func isName(s string) bool      { return len(s) <= 253 && namePattern.MatchString(s) }

// timing is how long a question waits for what a kubelet is about to report, and how often it looks.
type timing struct{ hold, pause time.Duration }

// An answer older than 5 s proves nothing. A kubelet deletes a pod some 0.3 s after it reported its end.
var defaultTiming = timing{hold: 4 * time.Second, pause: 200 * time.Millisecond}

// Provider controls the virtual machines of one namespace. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	opts   providers.Options
	timing timing
	api    *kubeapi.Connection
}

var (
	_ providers.Provider    = (*Provider)(nil)
	_ providers.Closer      = (*Provider)(nil)
	_ providers.Placer      = (*Provider)(nil)
	_ providers.Slow        = (*Provider)(nil)
	_ providers.Slow        = (*Config)(nil)
	_ providers.Hypervisors = (*Config)(nil)
	_ providers.IDs         = (*Config)(nil)
	_ providers.Cautious    = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
)

// New returns the provider for a valid Config. It contacts no API server.
func New(c Config, o providers.Options) *Provider {
	o = o.WithDefaults()
	return &Provider{cfg: c, opts: o, timing: defaultTiming, api: kubeapi.NewConnection(c.Kubeconfig, o.Agent)}
}

// TimeToOff implements providers.Slow: a kubelet renews its Lease every 10 s, and a question waits for that.
func (p *Provider) TimeToOff() time.Duration { return p.timing.hold }

// Close closes the connections.
func (p *Provider) Close(context.Context) error {
	p.api.Close()
	return nil
}

// State reads the machine's instance, its launcher pods and their hosts. It reads again while that may soon prove an
// Off: the pods are being ended, or have ended and a host has not shown yet that its kubelet is alive. Errors have a
// class. An instance that is gone is PowerUnknown without an error.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context, m machine) error {
		at := p.opts.Now()
		q := question{}
		for {
			l, err := m.look(ctx)
			obs.SystemUUID, obs.At = l.systemUUID(), providers.InstantOf(at)
			if err != nil {
				return err
			}
			v := q.judge(l)
			if !v.soon || p.opts.Now().Sub(at)+2*p.timing.pause > p.timing.hold {
				obs.State, obs.Raw = v.state, v.raw
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(p.timing.pause):
			}
		}
	})
	return obs, err
}

// PowerOff stops the VirtualMachine without a grace period: KubeVirt kills its QEMU, and does not start it again by
// itself. It does not delete a pod, because a pod that was deleted by force may run on.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return p.runCall(remote.WithStill(ctx, still), "power off", t, func(ctx context.Context, m machine) error {
		return m.changePower(ctx, t, "stop", `{"gracePeriod":0}`, power.isStopping)
	})
}

// PowerOn starts the VirtualMachine.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return p.runCall(remote.WithStill(ctx, still), "power on", t, func(ctx context.Context, m machine) error {
		return m.changePower(ctx, t, "start", `{}`, power.isStarting)
	})
}

// runCall runs one call about the target's machine, with the account that the kubeconfig names now.
func (p *Provider) runCall(
	ctx context.Context, act string, t providers.Target, f func(context.Context, machine) error,
) error {
	return remote.RunCall(ctx, act, t, "kubevirt "+p.opts.Name, func(ctx context.Context) error {
		id, _, err := p.cfg.CanonicalID(t.ID)
		if err != nil {
			return providers.WithClass(providers.ErrNotFound, fmt.Errorf("the target's ID %w", err))
		}
		a, err := p.api.Client()
		if err != nil {
			return err
		}
		return f(ctx, machine{api: a, namespace: p.cfg.Namespace, name: strings.TrimPrefix(id, p.cfg.Namespace+"/")})
	})
}
