package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/guard"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/drainguard"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	"github.com/forcefence/forcefence/taint/drainguard/storage/watch"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/wake"
)

// configs holds the configuration in force.
type configs struct {
	log          *slog.Logger
	namespace    string // the controller's own
	cache        client.Reader
	providers    providerSet
	reloads      *prometheus.CounterVec
	lastReloadOK prometheus.Gauge
	storage      *watch.Watcher // nil: no policy is carried out
	// report sends an Event about the leader's Lease, if this process leads; nil: no Events are sent.
	report func(reason.Reason, ...string)

	inForce     atomic.Pointer[controller.Config]
	drainGuards atomic.Pointer[[]drainguard.Guarded]
	evictable   atomic.Pointer[[]*storage.Adapter] // storage adapters that a drain guard may ask to evict

	mu          sync.Mutex     // guards all below
	firstFile   *config.Config // the file at the process's start
	currentFile *config.Config // the file in force
}

func newConfigs(o Options, reg prometheus.Registerer, cache client.Reader) (*configs, error) {
	guards, err := guard.NewMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	p := &configs{
		log:       o.Log,
		namespace: chooseNamespace(o.Namespace),
		cache:     cache,
		providers: providerSet{log: o.Log, metrics: guards, done: make(chan struct{})},
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_config_reloads_total", Help: "Configuration files read while running, by result.",
		}, []string{"result"}),
		lastReloadOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forcefence_config_last_reload_successful",
			Help: "1 if the configuration file as it stands is in force, 0 if it was refused.",
		}),
	}
	reg.MustRegister(p.reloads, p.lastReloadOK)
	p.lastReloadOK.Set(1)
	p.reloads.WithLabelValues("ok")
	p.reloads.WithLabelValues("refused")
	return p, nil
}

func (p *configs) activeConfig() *controller.Config { return p.inForce.Load() }

// activeFile returns the file that the configuration in force was read from.
func (p *configs) activeFile() *config.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.currentFile
}

// applyConfig makes the providers of cfg that changed, and puts cfg in force.
func (p *configs) applyConfig(cfg *config.Config) error {
	open, err := p.providers.prepare(cfg.Providers)
	if err != nil {
		return err
	}
	maker := machineFinder{cfg: cfg, made: open, hosts: makeHosts(cfg, open), claims: p.claimsReader(cfg)}
	now := rulesOf(cfg, p.namespace)
	now.Machines = machine.Finder{Led: maker.claimedMachine, Recorded: maker.recordedMachine}
	now.Wake = &wake.Config{
		Machines: now.Machines,
		Mode:     now.Mode,
		Excluded: now.Excluded,
		LinePort: uint16(cfg.Lines.Port),
	}
	if p.storage != nil {
		now.Storage = p.storage.UseAdapters(cfg.FollowedStorage())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.providers.commit(open)
	p.currentFile = cfg
	if p.firstFile == nil {
		p.firstFile = cfg
	}
	p.inForce.Store(now)
	guards := cfg.DrainGuards()
	for i, g := range guards {
		for _, s := range now.Storage {
			if g.Adapter != nil && g.Adapter.Name == s.Name() {
				guards[i].LastSeen = func() storage.System { return s }
			}
		}
	}
	p.drainGuards.Store(&guards)
	asked := cfg.EvictableStorage()
	p.evictable.Store(&asked)
	return nil
}

// rulesOf returns what a file says about nodes, apart from their devices.
func rulesOf(cfg *config.Config, own string) *controller.Config {
	return &controller.Config{
		Mode:      func(n *corev1.Node) fence.ChosenMode { return chosenMode(cfg, n) },
		Selectors: cfg.NodeSelectors(),
		Excluded:  func(n *corev1.Node) string { return exclusionReason(cfg, n) },
		Exclusions: controller.ExclusionSources{
			Pause: client.ObjectKey{
				Namespace: chooseNamespace(cfg.LeaderElection.Namespace, own),
				Name:      cfg.PauseConfigMap,
			},
			Leases: cfg.MaintenanceLeases,
		},
		EvictFirst: cfg.EvictFirstSelector(),
		Fence: fence.Settings{
			PowerOffAfter: cfg.PowerOffAfter, PowerOffTimeout: cfg.PowerOffTimeout, Retry: 5 * cfg.PowerOffTimeout,
			Cordoned: cfg.ExcludeCordoned, Quorum: cfg.StormGuard.ControlPlane == config.Quorum,
			VMHosts: cfg.StormGuard.KubeVirtHosts == config.KubeVirtPowerOff,
			After: fence.PostFence{
				PowerOn: cfg.PostFence == config.PowerOn,
				Delay:   cfg.PowerOnDelay,
				PerDay:  cfg.MaxPowerOnsPerDay,
				Again:   cfg.FencedAgainWithin,
			},
		},
		Evict: evict.Settings{
			DetachTimeout:   cfg.DetachTimeout,
			OnDetachTimeout: config.OnDetach[cfg.OnDetachTimeout],
			TrustPerson:     cfg.ManualMarks == config.Trust,
		},
		Policies:  cfg.PolicyRules(own),
		Limits:    cfg.StormGuard.PowerOffLimits(),
		Retention: cfg.Retention.JournalKeep(),
	}
}

// NodeReader returns a function that reads Nodes for providers (providers.Options.Node), through a client that asks the
// API server and no cache; nil for nil.
func NodeReader(live client.Reader) func(context.Context, string) (providers.Node, error) {
	if live == nil {
		return nil
	}
	return func(ctx context.Context, name string) (providers.Node, error) {
		var n corev1.Node
		if err := live.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			class := providers.ErrUnreachable
			switch {
			case apierrors.IsNotFound(err):
				class = providers.ErrNotFound
			case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
				class = providers.ErrDenied
			}
			return providers.Node{}, providers.WithClass(class, fmt.Errorf("reading node: %w", err))
		}
		out := providers.Node{UID: string(n.UID), BootID: n.Status.NodeInfo.BootID}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				out.Ready = string(c.Status)
			}
		}
		for _, t := range n.Spec.Taints {
			out.Taints = append(out.Taints, providers.NodeTaint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
		switch c, err := taint.ConfirmationOf(&n); {
		case err != nil:
			out.Confirmed.Refused = strings.TrimPrefix(err.Error(), taint.ErrConfirmation.Error()+": ")
		case c != nil:
			out.Confirmed = providers.Confirmed{By: c.By, Reason: c.Reason, At: c.At}
		}
		return out, nil
	}
}

// machineFinder finds the machines of nodes by one configuration.
type machineFinder struct {
	cfg    *config.Config
	made   map[string]openProvider
	hosts  map[string]*machine.Within // by the rules' names
	claims func(*corev1.Node) (*taint.Claims, *nodeLookup, error)
}

// makeHosts makes the providers of the rules whose nodes are within hosts. Rules share them, and the questions to them.
func makeHosts(cfg *config.Config, made map[string]openProvider) map[string]*machine.Within {
	out := map[string]*machine.Within{}
	known := map[config.Host]*machine.Host{}
	for _, n := range cfg.Nodes {
		if len(n.Within) == 0 {
			continue
		}
		w := &machine.Within{Guests: made[n.Provider].guarded, Now: providers.Now}
		for _, h := range n.Within {
			if known[h] == nil {
				t := providers.Target{Node: "host of " + h.Hypervisor, ID: h.ID, SystemUUID: h.SystemUUID}
				by := made[h.Provider].guarded
				known[h] = &machine.Host{
					Hypervisor: h.Hypervisor, Name: h.Provider + "/" + by.DeviceOf(t),
					Device: providers.Question{Provider: by, By: h.Provider, Target: t},
				}
			}
			w.Hosts = append(w.Hosts, known[h])
		}
		out[n.Name] = w
	}
	return out
}

// claimedMachine finds the machine that a node leads to now, and the other nodes that claim it. The caller must not
// change the result: it is computed once for a version of the Node, as long as all claims stay the same.
func (f machineFinder) claimedMachine(node *corev1.Node) (machine.Machine, error) {
	all, lead, err := f.claims(node)
	if err != nil || !lead.isForVersion(node) {
		m, noMachine := f.cfg.FindMachine(node)
		if err != nil && (noMachine == nil || len(m.Further) > 0) {
			return machine.Machine{}, err
		}
		return f.buildMachine(node, m, noMachine, all)
	}
	if l := lead.last.Load(); l != nil && l.all == all {
		return l.machine, l.noMachine
	}
	m, noMachine := f.buildMachine(node, lead.machine, lead.noMachine, all)
	lead.last.Store(&foundMachine{all: all, machine: m, noMachine: noMachine})
	return m, noMachine
}

// buildMachine makes the controller's machine from the file's machine of a node.
func (f machineFinder) buildMachine(
	node *corev1.Node,
	m config.Machine,
	noMachine error,
	all *taint.Claims,
) (machine.Machine, error) {
	if noMachine != nil && len(m.Further) == 0 {
		return machine.Machine{}, noMachine
	}
	buildLevel := func(of config.Machine) machine.Machine {
		out := f.hostedMachine(m.Rule, of)
		if of.Within == nil {
			out = f.deviceMachine(of.Provider, of.Target)
		}
		out.Identity, out.Fixed, out.Level, out.Limits = of.Identity(), of.Fixed, of.Level, of.Limits
		out.Clash = all.FindClash(taint.Claim{
			Node:    node.Name,
			Machine: out.Identity,
			Claimed: of.Target.Claimed,
			Pin:     node.Labels[taint.PinLabel],
		})
		return out
	}
	out := machine.Machine{}
	if noMachine == nil {
		out = buildLevel(m)
	}
	for _, other := range m.Further {
		out.Further = append(out.Further, buildLevel(other))
	}
	mode, known := fence.ParseMode(string(m.Mode))
	if !known { // the configuration may know a newer mode: it must not pass for another
		return machine.Machine{}, fmt.Errorf("mode %q is not known here", m.Mode)
	}
	out.Mode = mode
	return out, noMachine
}

// recordedMachine finds the machine that an open fence began with, as long as the provider exists and a rule may name
// the machine. The caller sets its mode.
func (f machineFinder) recordedMachine(node *corev1.Node, m taint.Machine) (machine.Machine, error) {
	if _, ok := f.made[m.Provider]; !ok {
		return machine.Machine{}, fmt.Errorf(
			"the fence began with machine %s, and the configuration has no such provider any more", m,
		)
	}
	if !f.cfg.MayNameMachine(node, m.Provider, m.ID) {
		return machine.Machine{}, fmt.Errorf(
			"the fence began with machine %s, and no rule of the configuration may name it any more for this node", m,
		)
	}
	uuid := node.Status.NodeInfo.SystemUUID
	if providers.CanonicalUUID(uuid) != m.SystemUUID {
		uuid = m.SystemUUID
	}
	out := f.deviceMachine(m.Provider, providers.Target{
		Node:       node.Name,
		ID:         m.ID,
		SystemUUID: uuid,
		Addresses:  config.AddressesOf(node),
		Claimed:    true,
	})
	out.Identity = m
	return out, nil
}

func (f machineFinder) deviceMachine(provider string, t providers.Target) machine.Machine {
	p := f.made[provider]
	m := machine.Machine{
		Provider: p.guarded,
		Name:     provider,
		Device:   provider + "/" + p.guarded.DeviceOf(t),
		Target:   t,
		Mode:     fence.Observe,
		Poll:     machine.Polling{Every: p.from.Poll, PerSecond: p.from.RatePerSecond},
	}
	m.Watcher, _ = p.inner.(providers.Watcher) // a Watch lasts: the guard's limits are for questions
	_, m.Feeds = p.inner.(providers.Feeder)
	_, m.Quiet = p.inner.(providers.Quiet)
	return m
}

// hostedMachine returns the machine as the hosts of its hypervisors report it.
func (f machineFinder) hostedMachine(rule string, m config.Machine) machine.Machine {
	return machine.Machine{
		Provider: f.hosts[rule],
		Name:     m.Provider,
		Device:   m.Provider + "/" + m.Target.Key(),
		Target:   m.Target,
		Mode:     fence.Observe,
		Quiet:    true,
		NoPower:  machine.NoHostPower,
	}
}

// claimsReader returns a function that returns the claims and pins of all nodes, and the lookup of one node; nil if
// there is none yet. It reads the Nodes at most once a second: there may be thousands, and it is called for each. Its
// cost follows the changes. Each version of a Node is looked up in the file once, and the claims are joined again only
// if some changed.
func (p *configs) claimsReader(cfg *config.Config) func(*corev1.Node) (*taint.Claims, *nodeLookup, error) {
	var mu sync.Mutex // guards the rest
	var at time.Time
	var found *taint.Claims
	known := nodeLookups{of: map[string]knownLookup{}, known: map[*corev1.Node]bool{}}
	return func(node *corev1.Node) (*taint.Claims, *nodeLookup, error) {
		mu.Lock()
		defer mu.Unlock()
		if found == nil || time.Since(at) >= time.Second {
			nodes, err := kube.CachedNodes(context.Background(), p.cache)
			if err != nil {
				return nil, known.of[node.Name].nodeLookup, err
			}
			at = time.Now()
			if others := known.updateLookups(cfg, nodes); others || found == nil {
				found = known.joinClaims(nodes)
			}
		}
		return found, known.of[node.Name].nodeLookup, nil
	}
}

// nodeLookups holds what the file says about nodes.
type nodeLookups struct {
	of    map[string]knownLookup // by the nodes' names
	known map[*corev1.Node]bool  // the nodes in of: a Node that the cache still holds did not change
}

type knownLookup struct {
	*nodeLookup
	node *corev1.Node
}

// updateLookups looks up the new and changed nodes in the file, and reports whether the claims changed.
func (l *nodeLookups) updateLookups(cfg *config.Config, nodes []*corev1.Node) (others bool) {
	for _, n := range nodes {
		if l.known[n] {
			continue
		}
		before := l.of[n.Name]
		now := before.nodeLookup
		if !before.isForVersion(n) {
			now = &nodeLookup{uid: n.UID, rv: n.ResourceVersion, claims: cfg.MachineClaims([]*corev1.Node{n})}
			now.machine, now.noMachine = cfg.FindMachine(n)
			others = others || before.nodeLookup == nil || !slices.Equal(now.claims, before.claims)
		}
		delete(l.known, before.node)
		l.of[n.Name], l.known[n] = knownLookup{now, n}, true
	}
	if len(l.of) == len(nodes) {
		return others
	}
	there := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		there[n.Name] = true
	}
	for name, gone := range l.of {
		if !there[name] {
			delete(l.of, name)
			delete(l.known, gone.node)
		}
	}
	return true
}

func (l *nodeLookups) joinClaims(nodes []*corev1.Node) *taint.Claims {
	var all []taint.Claim
	for _, n := range nodes {
		all = append(all, l.of[n.Name].claims...)
	}
	return taint.NewClaims(all)
}

// nodeLookup is what the file says about one version of a Node. It depends on nothing else.
type nodeLookup struct {
	uid       types.UID
	rv        string
	machine   config.Machine
	noMachine error
	claims    []taint.Claim

	last atomic.Pointer[foundMachine] // claimedMachine's last result for it
}

// foundMachine is claimedMachine's result for a node. It is valid for exactly these claims.
type foundMachine struct {
	all       *taint.Claims
	machine   machine.Machine
	noMachine error
}

// isForVersion reports whether the lookup was computed for this resourceVersion and UID. A Node without a
// resourceVersion never matches.
func (l *nodeLookup) isForVersion(n *corev1.Node) bool {
	return l != nil && l.rv != "" && l.rv == n.ResourceVersion && l.uid == n.UID
}

// chosenMode returns what may be done about a node: the file's mode, lowered by the Node's annotation. An unknown mode
// does nothing.
func chosenMode(cfg *config.Config, n *corev1.Node) fence.ChosenMode {
	m, after, by := cfg.ModeOf(n)
	c := fence.ChosenMode{Mode: fence.Disabled, By: by, PowerOffAfter: after}
	if mode, known := fence.ParseMode(string(m)); known {
		c.Mode = mode
	}
	return c.LoweredBy(n.Annotations)
}

// exclusionReason returns why a node must be left alone; "" if it need not.
func exclusionReason(cfg *config.Config, n *corev1.Node) string {
	if cfg.IsExcluded(n) {
		return "excludeSelector " + cfg.ExcludeSelector
	}
	return ""
}

// logWarnings logs once what the file allows but should not contain.
func (p *configs) logWarnings(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		p.log.Warn(
			"The configuration may be better", "at", fmt.Sprintf("%s:%d", w.File, w.Line), "path", w.Path, "why",
			strings.TrimPrefix(w.Problem, "warning: "),
		)
	}
}

// applyChange puts a changed file in force.
func (p *configs) applyChange(cfg *config.Config) {
	p.mu.Lock()
	same := p.currentFile.Digest() == cfg.Digest()
	p.mu.Unlock()
	if same {
		p.lastReloadOK.Set(1)
		return
	}
	if err := p.applyConfig(cfg); err != nil {
		p.refuseChange(err)
		return
	}
	p.reloads.WithLabelValues("ok").Inc()
	p.lastReloadOK.Set(1)
	p.logWarnings(cfg)
	p.log.Info("Configuration reloaded", "mode", cfg.Mode, "providers", len(cfg.Providers), "rules", len(cfg.Nodes))
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.firstFile; f.TaintKey != cfg.TaintKey || f.Listen != cfg.Listen ||
		f.LeaderElection != cfg.LeaderElection || f.Tape != cfg.Tape {
		p.log.Warn("taintKey, listen, leaderElection and record take effect at the next start")
	}
}

// refuseChange keeps the old configuration in force, and reports why.
func (p *configs) refuseChange(err error) {
	p.reloads.WithLabelValues("refused").Inc()
	p.lastReloadOK.Set(0)
	p.log.Error("Changed configuration refused; the old one stays in force", "error", err)
	if p.report != nil {
		p.report(reason.ConfigRejected, "{detail}", strings.Join(strings.Fields(err.Error()), " "))
	}
}
