package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/page"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/features/drain/drainguard"
	"github.com/forcefence/forcefence/taint/features/drills"
	"github.com/forcefence/forcefence/taint/features/karpenter"
	"github.com/forcefence/forcefence/taint/features/leases"
	"github.com/forcefence/forcefence/taint/features/leases/rule"
	"github.com/forcefence/forcefence/taint/features/networkfence"
	"github.com/forcefence/forcefence/taint/features/recording"
	"github.com/forcefence/forcefence/taint/features/remediation"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/features/storage"
	"github.com/forcefence/forcefence/taint/features/storage/watch"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/wake"
)

// addEvents sends Events. Each process reports its own watches, whether it leads or not.
func (p *process) addEvents(context.Context) (err error) {
	if p.events, err = observe.NewEvents(p.restConfig, clientgoscheme.Scheme, "forcefence"); err != nil {
		return err
	}
	report := newLeaseReporter(p.events.RecorderNow(), "Restart", alwaysLeading)
	p.rewind.report = func(detail string) { report(reason.WatchesBehind, "{detail}", detail) }
	return p.addRunnables(p.events)
}

// addStorage follows storage systems, on every replica so that a new leader has current data.
func (p *process) addStorage(context.Context) error {
	server, err := discovery.NewDiscoveryClientForConfig(p.restConfig)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	p.storage, err = watch.New(watch.Options{Client: p.dynamic, Discovery: server, Log: p.Log, Registry: p.registry})
	if err != nil {
		return err
	}
	return p.addRunnables(onEveryReplica(p.storage.Run))
}

// addConfig puts the configuration in force. It opens the providers.
func (p *process) addConfig(ctx context.Context) error {
	nodes, err := p.mgr.GetCache().GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	store := nodeStore{nodes.(toolscache.SharedInformer).GetStore(), nodes.HasSynced}
	if p.confs, err = newConfigs(p.Options, p.registry, store); err != nil {
		return err
	}
	refresh := p.confs.refreshNode
	if _, err := nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: refresh, UpdateFunc: func(_, o any) { refresh(o) }, DeleteFunc: refresh,
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	p.confs.providers.live, p.confs.storage = p.mgr.GetAPIReader(), p.storage
	p.confs.report = newLeaseReporter(p.events.RecorderNow(), "Reload", p.leading)
	p.lock.annotate = p.confs.annotateLease
	if err := p.confs.applyConfig(p.cfg); err != nil {
		return err
	}
	p.closers = append(p.closers, p.confs.providers.closeAll)
	p.confs.logWarnings(p.cfg)
	return nil
}

// addFencings writes Fencing objects.
func (p *process) addFencings(context.Context) error {
	c, err := observe.NewFencingClient(p.restConfig)
	if err != nil {
		return err
	}
	p.metrics = observe.NewMetrics(p.registry)
	p.records = observe.NewFencingWriter(observe.FencingWriterOptions{
		Client: c, Cache: p.mgr.GetCache(), Log: p.Log, Metrics: p.metrics, Leading: p.leading, Now: time.Now,
		Retention: journal.DefaultRetention,
	})
	return p.addRunnables(p.records)
}

// addRecording writes the recording, if the file names one.
func (p *process) addRecording(context.Context) error {
	if p.cfg.Recording.File == "" {
		return nil
	}
	recorder := newRecorder(p.cfg.Recording.File, config.MaxRecordingBytes, func() recording.Header {
		now := p.confs.activeFile()
		return recording.Header{
			By: version.String(), TaintKey: p.cfg.TaintKey, Mode: string(now.Mode), ConfigDigest: now.Digest(),
		}
	}, p.Log, p.registry)
	p.recordNode = func(name string, node *decide.Node) decide.Decider {
		return &recording.Recorder{Node: node, Name: name, Tape: recorder.PutLine}
	}
	return p.addRunnables(onEveryReplica(recorder.Run))
}

// addRemediation follows the requests of other controllers, if the file says whose count.
func (p *process) addRemediation(context.Context) error {
	from := p.cfg.Remediation
	if len(from.Namespaces) == 0 {
		return nil
	}
	rc := p.restConfig
	if from.Kubeconfig != "" {
		management, err := clientcmd.BuildConfigFromFlags("", from.Kubeconfig)
		if err != nil {
			return fmt.Errorf("reading remediation.kubeconfig: %w", err)
		}
		rc = clientsOf(management)
	}
	var err error
	p.requests, err = remediation.New(remediation.Options{
		REST: rc, Namespaces: from.Namespaces, ReplaceMachine: from.OnGiveUp == config.ReplaceMachine,
		Nodes: p.mgr.GetCache(), Key: p.cfg.TaintKey, Leading: p.leading, Log: p.Log, Now: time.Now,
		Mode: func(n *corev1.Node) fence.Mode { return p.confs.activeConfig().Mode(n).Mode },
	})
	if err != nil {
		return err
	}
	return p.addRunnables(p.requests)
}

// addLeases releases Leases, if the file names any.
func (p *process) addLeases(context.Context) error {
	if len(p.cfg.ReleaseLeases) == 0 {
		return nil
	}
	o := leases.Options{
		REST: p.restConfig, Live: p.mgr.GetAPIReader(), Nodes: p.mgr.GetCache(), Client: p.mgr.GetClient(),
		Leading: p.leading, Log: p.Log, Now: time.Now,
	}
	for _, l := range p.cfg.ReleaseLeases {
		o.Rules = append(o.Rules, rule.Rule(l))
	}
	releaser, err := leases.New(o)
	if err != nil {
		return err
	}
	p.proven = releaser.ReleaseHeld
	return p.addRunnables(releaser)
}

// addNetworkFences has storage cut nodes off, if a policy of the file needs that.
func (p *process) addNetworkFences(context.Context) (err error) {
	if !p.cfg.FencesStorage() {
		return nil
	}
	p.fences, err = networkfence.New(networkfence.Options{
		REST: p.restConfig, Live: p.mgr.GetAPIReader(), Nodes: p.mgr.GetCache(), Key: p.cfg.TaintKey,
		Leading: p.leading, Log: p.Log, Now: time.Now,
		LeftAlone: func(ctx context.Context, node string) (string, error) { // there is a reconciler once it is asked
			return p.reconciler.LeftAlone(ctx, node)
		},
		MayAct: func(n *corev1.Node) bool { return p.confs.activeConfig().Mode(n).Mode.MayAct() },
		Events: kube.Events{To: p.events.RecorderNow(), Leading: p.leading},
	})
	if err != nil {
		return err
	}
	return p.addRunnables(p.fences)
}

// addReconciler fences.
func (p *process) addReconciler(ctx context.Context) error {
	options := controller.Options{
		Live: p.mgr.GetAPIReader(), Cache: p.mgr.GetCache(), Client: p.mgr.GetClient(),
		Sinks: observe.Sinks{
			Events: p.events.RecorderAt, Log: p.Log, Metrics: p.metrics, Fences: p.records.AddUpdate,
		},
		Wakes:  wake.NewMetrics(p.registry),
		Config: p.confs.activeConfig, Leading: p.leading, Key: p.cfg.TaintKey, By: p.Identity, Now: time.Now,
		Changes:  []func(context.Context, func(string)){p.storage.NotifyChanged},
		Recorder: p.recordNode, Proven: p.proven,
		SignRecord: newRecordSigner(func() string { return p.confs.activeFile().Signing.KeyFile }, p.Identity, p.Log,
			p.registry).sign,
		RefusedDetach: signing.RefusedDetach,
	}
	if p.requests != nil {
		options.Changes, options.Requests = append(options.Changes, p.requests.NotifyChanged), p.requests
	}
	if p.fences != nil {
		options.Changes, options.StorageFences = append(options.Changes, p.fences.NotifyChanged), p.fences
	}
	p.reconciler = controller.New(options)
	return p.reconciler.SetupWithManager(ctx, p.mgr)
}

// addKarpenter hands nodes over to Karpenter, if the file says so.
func (p *process) addKarpenter(context.Context) error {
	if p.cfg.Karpenter != config.HandOver {
		return nil
	}
	return p.addRunnables(karpenter.New(karpenter.Options{
		Live: p.mgr.GetAPIReader(), Nodes: p.mgr.GetCache(), Dynamic: p.dynamic, Key: p.cfg.TaintKey,
		Leading: p.leading, LeftAlone: p.reconciler.LeftAlone, NoPower: p.reconciler.PowerOffRefusal,
		Writer: kube.Writer{Client: p.mgr.GetClient(), Key: p.cfg.TaintKey, Leading: p.leading, Now: time.Now},
		Events: kube.Events{To: p.events.RecorderNow(), Leading: p.leading}, Log: p.Log, Now: time.Now,
		MayAct: func(n *corev1.Node) bool {
			return p.confs.activeFile().Karpenter == config.HandOver && p.confs.activeConfig().Mode(n).Mode.MayAct()
		},
		Ask: func(ctx context.Context, n *corev1.Node) providers.Answer {
			rec, err := taint.RecordOf(n)
			if err != nil {
				return providers.Answer{Err: err}
			}
			m, err := p.confs.activeConfig().Machines.FindMachine(n, rec)
			if err != nil {
				return providers.Answer{Err: err}
			}
			return m.AskVerdict(ctx, machine.DistrustedBy(p.reconciler.WithFleet), providers.Now)
		},
	}))
}

// addElection watches what keeps this process from leading, and reports whether it leads.
func (p *process) addElection(context.Context) error {
	p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "forcefence_leading",
		Help: "1 while this process leads. Only the leader fences, so only its metrics count fences.",
	}, func() float64 {
		if p.leading() != nil {
			return 0
		}
		return 1
	}))
	if !p.cfg.LeaderElection.Enabled {
		return p.addRunnables(onEveryReplica(func(ctx context.Context) error {
			return p.lock.watchRival(ctx, rivalPeriod)
		}))
	}
	return p.addRunnables(onEveryReplica(p.lock.watchInstall), onEveryReplica(p.rewind.watchLease))
}

// addDrainGuards guards drains.
func (p *process) addDrainGuards(context.Context) error {
	return p.addRunnables(drainguard.New(drainguard.Options{
		REST:      p.restConfig,
		Live:      p.mgr.GetAPIReader(),
		Cache:     p.mgr.GetCache(),
		Client:    p.mgr.GetClient(),
		Dynamic:   p.dynamic,
		Events:    p.events.RecorderNow(),
		Log:       p.Log,
		Metrics:   drainguard.NewMetrics(p.registry),
		Guards:    func() []drainguard.Guarded { return p.confs.inForce.Load().drainGuards },
		Adapters:  func() []*storage.Adapter { return p.confs.inForce.Load().evictable },
		Leading:   p.leading,
		LeftAlone: p.reconciler.LeftAlone,
		Policies:  p.readDrainPolicies,
		Now:       time.Now,
		MayBegin:  func(n *corev1.Node) bool { return p.confs.activeConfig().Mode(n).Mode.MayAct() },
	}))
}

// addPauses exports which pauses are in force.
func (p *process) addPauses(context.Context) error {
	excluded := func() labels.Selector { return p.confs.activeFile().Settings(p.Namespace).ExcludeSelector }
	return p.addRunnables(newPauseGauge(p.mgr.GetAPIReader(), p.mgr.GetCache(), PauseKey(p.Namespace), excluded, p.Log,
		time.Now, p.registry))
}

// addOrders exports how old the orders are that others obey, of what the configuration uses.
func (p *process) addOrders(context.Context) error {
	all, lists := ListOrders(p.mgr.GetAPIReader()), OrderLists{}
	if p.fences != nil {
		lists.Fences = all.Fences
	}
	if p.requests != nil {
		lists.Requests = p.requests.ListRequests
	}
	lists.Budgets = func(ctx context.Context) ([]policyv1.PodDisruptionBudget, error) {
		if !slices.ContainsFunc(p.confs.inForce.Load().drainGuards, func(g drainguard.Guarded) bool {
			return g.Setting == nil
		}) {
			return nil, nil
		}
		return all.Budgets(ctx)
	}
	lists.Hosts = func(ctx context.Context) (hosts []metav1.PartialObjectMetadata, _ error) {
		for _, namespace := range hostNamespaces(p.confs.activeFile()) {
			some, err := listHosts(ctx, p.mgr.GetAPIReader(), namespace)
			if err != nil {
				return nil, err
			}
			hosts = append(hosts, some...)
		}
		return hosts, nil
	}
	return p.addRunnables(newOrderGauge(lists, p.mgr.GetCache(), p.cfg.TaintKey, p.Log, time.Now, p.registry))
}

// readDrainPolicies reads the operators' drain policies for nodes live; nil: there are none.
func (p *process) readDrainPolicies(ctx context.Context) (map[string]string, error) {
	var cm corev1.ConfigMap
	key := client.ObjectKey{Namespace: p.Namespace, Name: config.DrainConfigMap}
	if err := p.mgr.GetAPIReader().Get(ctx, key, &cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return cm.Data, nil
}

// addDrills asks the devices of healthy nodes.
func (p *process) addDrills(ctx context.Context) error {
	all := drills.New(drills.Options{
		Live:        p.mgr.GetAPIReader(),
		Cache:       p.mgr.GetCache(),
		Client:      p.mgr.GetClient(),
		Events:      p.events.RecorderNow(),
		Log:         p.Log,
		Metrics:     drills.NewMetrics(p.registry),
		Config:      p.confs.activeConfig,
		ConfigSince: p.confs.inForceSince,
		Leading:     p.leading,
		WithFleet:   p.reconciler.WithFleet,
		ShouldList:  p.reconciler.ShouldList,
		Key:         p.cfg.TaintKey,
		Now:         time.Now,
	})
	nodes, err := p.mgr.GetCache().GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if _, err := nodes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) { all.ObserveUpdate(before.(*corev1.Node), now.(*corev1.Node)) },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	p.confs.changed = all.ObserveConfig
	p.drilledSince = all.Oldest
	return p.addRunnables(all)
}

// annotateDrills publishes since when the devices of every node were asked by this leader.
func annotateDrills(a map[string]string, since func() time.Time) {
	delete(a, DrilledSinceAnnotation)
	if since == nil {
		return
	}
	if at := since(); !at.IsZero() {
		a[DrilledSinceAnnotation] = at.UTC().Format(time.RFC3339)
	}
}

// heldBack returns what this process's storm guard holds back; nil: nothing.
func (p *process) heldBack() *view.HeldBack {
	held, silent, of := p.reconciler.HeldBack()
	if len(held.Nodes) == 0 {
		return nil
	}
	return &view.HeldBack{Rule: held.Rule, Detail: held.Detail, Held: len(held.Nodes), Nodes: held.Nodes,
		Silent: silent, Of: of, Since: held.Since.UTC().Truncate(time.Second), By: p.Identity}
}

// annotateHeldBack publishes what the storm guard holds back, and takes back what it does not hold any more.
func annotateHeldBack(a map[string]string, held *view.HeldBack) {
	if delete(a, HeldBackAnnotation); held != nil {
		a[HeldBackAnnotation] = held.Encode()
	}
}

// addRoom estimates whether pods find room elsewhere if nodes fail.
func (p *process) addRoom(context.Context) error {
	p.room = newRoomEstimator(p.mgr.GetAPIReader(), p.cfg.TaintKey,
		func() *fleet.Limits { return p.confs.activeConfig().Limits }, p.Log, p.registry)
	p.lock.annotate = func(a map[string]string) {
		p.confs.annotateLease(a)
		p.room.annotateLease(a)
		annotateDrills(a, p.drilledSince)
		annotateHeldBack(a, p.heldBack())
	}
	return p.addRunnables(p.room)
}

// addConfigCheck compares the configuration with the Nodes.
func (p *process) addConfigCheck(context.Context) error {
	return p.addRunnables(&controller.ConfigCheck{
		Live:      p.mgr.GetAPIReader(),
		Cache:     p.mgr.GetCache(),
		Log:       p.Log,
		Config:    p.confs.activeConfig,
		LeftAlone: p.reconciler.LeftAlone,
	})
}

// addReload puts a changed file in force.
func (p *process) addReload(context.Context) error {
	return p.addRunnables(onEveryReplica(func(ctx context.Context) error {
		return config.Watch(ctx, p.ConfigFile, p.Registry, p.confs.applyChange, p.confs.refuseChange)
	}))
}

// addServers serves metrics and health.
func (p *process) addServers(ctx context.Context) error {
	synced := func(*http.Request) error {
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if !p.mgr.GetCache().WaitForCacheSync(wait) {
			return errors.New("informers are not in sync")
		}
		return nil
	}
	metrics := metricsHandler(prometheus.Gatherers{p.registry, crmetrics.Registry})
	return errors.Join(addServer(p.mgr, "metrics", p.cfg.Listen.Metrics, metrics, p.Log),
		addServer(p.mgr, "health", healthAddress(), probeHandler(synced), p.Log))
}

// addPage serves the status page on every replica, if the file configures it.
func (p *process) addPage(context.Context) error {
	l := p.cfg.Listen
	if l.Status == "" {
		return nil
	}
	c, err := kubernetes.NewForConfig(p.restConfig)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	source := page.NewSource(page.SourceOptions{
		Cache:      p.mgr.GetCache(),
		Client:     c,
		Dynamic:    p.dynamic,
		NodeConfig: p.confs.nodeConfig,
		Cluster:    p.readCluster,
		Key:        p.cfg.TaintKey,
		Log:        p.Log,
		Now:        time.Now,
	})
	return p.addRunnables(onEveryReplica(source.Run), onEveryReplica(func(ctx context.Context) error {
		return page.Serve(ctx, page.Options{
			Address: l.Status, CertFile: l.StatusCertFile, KeyFile: l.StatusKeyFile,
			Fleet: source.Fleet, Review: page.NewReviewer(c), Log: p.Log, Now: time.Now,
			About: fmt.Sprintf("forcefence %s, %s", version.String(), p.Identity), Cluster: l.StatusCluster,
			Namespace: p.Namespace,
		})
	}))
}

// nodeConfig returns what the configuration in force says about a node, for people.
func (p *configs) nodeConfig(n *corev1.Node) view.NodeConfig {
	c := p.activeConfig()
	m, err := c.Machines.Led(n)
	l := view.NodeConfig{NoDeviceReason: providers.ErrorText(err), Mode: c.Mode(n).Mode.String(),
		Excluded: c.Excluded(n)}
	l.ReadsConfirmation, _ = p.activeFile().ReadsConfirmation(n) // NoDeviceReason has the error
	for _, d := range m.Devices() {
		l.Devices = append(l.Devices, view.OneLine(d.Device, 253))
	}
	return l
}
