package app

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/features/drain/drainguard"
	"github.com/forcefence/forcefence/taint/features/karpenter"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/features/storage/watch"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/wake"
)

// configs holds the configuration in force.
type configs struct {
	log          *slog.Logger
	namespace    string // the controller's own
	nodes        nodeStore
	providers    providerSet
	reloads      *prometheus.CounterVec
	lastReloadOK prometheus.Gauge
	storage      *watch.Watcher // nil: no policy is carried out
	// report sends an Event about the leader's Lease, if this process leads; nil: no Events are sent.
	report  func(reason.Reason, ...string)
	changed func() // called after a changed file was put in force; nil: nothing

	former formerMachines

	first    *config.Config // the file at the process's start
	inForce  atomic.Pointer[appliedConfig]
	rejected atomic.Pointer[string] // why the present file is rejected; nil: it is in force

	mu      sync.Mutex   // guards indexes
	indexes []*nodeIndex // that events refresh: the one in force, and for closeDelay those that it replaced
}

// appliedConfig is a configuration in force.
type appliedConfig struct {
	file        *config.Config
	config      *controller.Config
	index       *nodeIndex
	drainGuards []drainguard.Guarded
	evictable   []*storage.Adapter        // storage adapters that a drain guard may ask to evict
	since       atomic.Pointer[time.Time] // when a leader put the file in force: this one, or one before it
}

func newConfigs(o Options, reg prometheus.Registerer, nodes nodeStore) (*configs, error) {
	metrics, err := limiter.NewMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	p := &configs{
		log:       o.Log,
		namespace: o.Namespace,
		nodes:     nodes,
		providers: providerSet{log: o.Log, metrics: metrics, done: make(chan struct{})},
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forcefence_config_reloads_total", Help: "Configuration files read while running, by result.",
		}, []string{"result"}),
		lastReloadOK: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forcefence_config_last_reload_successful",
			Help: "1 if the present configuration file is in force, 0 if it was refused.",
		}),
	}
	reg.MustRegister(p.reloads, p.lastReloadOK)
	p.lastReloadOK.Set(1)
	p.reloads.WithLabelValues("ok")
	p.reloads.WithLabelValues("refused")
	return p, nil
}

func (p *configs) activeConfig() *controller.Config { return p.inForce.Load().config }

// activeFile returns the file that the configuration in force was read from.
func (p *configs) activeFile() *config.Config { return p.inForce.Load().file }

// applyConfig makes the providers of cfg that changed, and puts cfg in force. One goroutine at a time calls it.
func (p *configs) applyConfig(cfg *config.Config) error {
	open, err := p.providers.prepare(cfg.Providers)
	if err != nil {
		return err
	}
	index := &nodeIndex{cfg: cfg, nodes: p.nodes, former: &p.former}
	finder := machineFinder{cfg: cfg, open: open, hosts: makeHosts(cfg, open), index: index}
	now := configOf(cfg, p.namespace)
	now.Machines = machine.Finder{Led: finder.claimedMachine, Recorded: finder.recordedMachine}
	now.Wake = &wake.Config{
		Machines: now.Machines,
		Mode:     now.Mode,
		Excluded: now.Excluded,
		LinePort: uint16(cfg.Lines.Port),
	}
	var systems []storage.System
	if p.storage != nil {
		systems = p.storage.UseAdapters(cfg.FollowedStorage())
	}
	guards := cfg.DrainGuards()
	for _, s := range systems {
		now.Storage = append(now.Storage, s)
		for i, g := range guards {
			if g.Adapter != nil && g.Adapter.Name == s.Name() {
				guards[i].LastSeen = func() storage.System { return s }
			}
		}
	}
	p.mu.Lock()
	p.indexes = append(slices.Clip(p.indexes), index)
	p.mu.Unlock()
	applied := &appliedConfig{
		file: cfg, config: now, index: index, drainGuards: guards, evictable: cfg.EvictableStorage(),
	}
	applied.since.Store(new(time.Now().UTC()))
	old := p.inForce.Swap(applied)
	if old == nil {
		p.first = cfg
	}
	p.providers.commit(open, func() {
		if old != nil {
			p.endIndex(old.index)
		}
	})
	return nil
}

// refreshNode notes that a Node came, changed or went. It is the informer's handler.
func (p *configs) refreshNode(o any) {
	name, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o) // a Node has a key
	p.mu.Lock()
	indexes := p.indexes
	p.mu.Unlock()
	p.former.refresh(p.nodes, name)
	for _, x := range indexes {
		x.refresh(name)
	}
}

func (p *configs) endIndex(x *nodeIndex) {
	x.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.indexes = slices.DeleteFunc(slices.Clone(p.indexes), func(o *nodeIndex) bool { return o == x })
}

// configOf returns what a file says about nodes, apart from their devices. own is the controller's namespace.
func configOf(cfg *config.Config, own string) *controller.Config {
	out := &controller.Config{
		Settings:  cfg.Settings(own),
		Selectors: cfg.NodeSelectors(),
		Exclusions: controller.ExclusionSources{
			Pause:  client.ObjectKey{Namespace: own, Name: config.PauseConfigMap},
			Leases: cfg.MaintenanceLeases,
		},
	}
	if cfg.Karpenter.ReadsClaims() {
		out.Exclusions.KeptOn = karpenter.ReadKeptOn
	}
	return out
}

// logWarnings logs once what the file allows but should not contain.
func (p *configs) logWarnings(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		p.log.Warn("Configuration warning", "at", fmt.Sprintf("%s:%d", w.File, w.Line), "path", w.Path,
			"why", strings.TrimPrefix(w.Problem, "warning: "))
	}
}

// applyChange puts a changed file in force.
func (p *configs) applyChange(cfg *config.Config) {
	if p.activeFile().Digest() == cfg.Digest() {
		p.noteInForce()
		return
	}
	if err := p.applyConfig(cfg); err != nil {
		p.refuseChange(err)
		return
	}
	p.reloads.WithLabelValues("ok").Inc()
	p.noteInForce()
	if p.changed != nil {
		p.changed()
	}
	p.logWarnings(cfg)
	p.log.Info("Configuration reloaded", "mode", cfg.Mode, "providers", len(cfg.Providers), "rules", len(cfg.Nodes))
	if f := p.first; f.TaintKey != cfg.TaintKey || f.Listen != cfg.Listen ||
		f.LeaderElection != cfg.LeaderElection || f.Recording != cfg.Recording ||
		!f.Remediation.Equals(cfg.Remediation) ||
		!slices.EqualFunc(f.ReleaseLeases, cfg.ReleaseLeases, config.LeaseRule.Equals) ||
		cfg.FencesStorage() && !f.FencesStorage() || f.Karpenter != cfg.Karpenter && cfg.Karpenter == config.HandOver {
		p.log.Warn("taintKey, listen, leaderElection, record, remediation, releaseLeases, karpenter: handOver and " +
			"the first networkFenceClasses take effect at the next start")
	}
}

// noteInForce notes that the present file is in force.
func (p *configs) noteInForce() {
	p.lastReloadOK.Set(1)
	p.rejected.Store(nil)
}

// refuseChange keeps the old configuration in force, and reports why.
func (p *configs) refuseChange(err error) {
	why := strings.Join(strings.Fields(err.Error()), " ")
	p.reloads.WithLabelValues("refused").Inc()
	p.lastReloadOK.Set(0)
	p.rejected.Store(new(view.OneLine(why, maxRejection)))
	p.log.Error("Changed configuration refused; the previous one stays in force", "error", err)
	if p.report != nil {
		p.report(reason.ConfigRejected, "{detail}", why)
	}
}

// maxRejection is how many bytes of a rejection people are shown.
const maxRejection = 800

// inForceSince returns when a leader put the file in force.
func (p *configs) inForceSince() time.Time { return *p.inForce.Load().since.Load() }

// annotateLease sets the annotations of the leader's Lease about the configuration. A file that the leader before this
// one had in force keeps its time, so a new leader does not make the drills older.
func (p *configs) annotateLease(a map[string]string) {
	if why := p.rejectedReason(); why != "" {
		a[ConfigRejectedAnnotation] = why
	} else {
		delete(a, ConfigRejectedAnnotation)
	}
	now := p.inForce.Load()
	digest := now.file.Digest()
	before, err := time.Parse(time.RFC3339, a[ConfigSinceAnnotation])
	if err == nil && a[ConfigDigestAnnotation] == digest && before.Before(*now.since.Load()) {
		now.since.Store(&before)
	}
	a[ConfigDigestAnnotation], a[ConfigSinceAnnotation] = digest, now.since.Load().Format(time.RFC3339)
}

// rejectedReason returns why the present file is rejected; "": it is in force.
func (p *configs) rejectedReason() string { return ptr.Deref(p.rejected.Load(), "") }
