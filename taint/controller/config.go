package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/observe"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/wake"
)

// Config is the configuration in force. It is immutable: a reload makes another.
type Config struct {
	decide.Settings
	Machines   machine.Finder
	Selectors  map[string]labels.Selector // of nodes, by their key in the file, for ConfigCheck
	Exclusions ExclusionSources           // the other objects that can exclude nodes
	Storage    []StorageSystem            // that policies ask, by their names
	Wake       *wake.Config               // of what wakes nodes
}

// StorageSystem is what policies ask about nodes and volumes. Its methods return at once, from what was observed last,
// and are safe for concurrent use.
type StorageSystem interface {
	// Name returns the name that policies have for it.
	Name() string
	// Drivers returns the names of its CSI drivers.
	Drivers() []string
	// NodeHealth returns the health of the system on a Kubernetes node.
	NodeHealth(name string) action.Health
	// VolumeHealth returns the health of a volume.
	VolumeHealth(v action.VolumeName) action.Health
}

// Options is all that a Reconciler is made of. Every field is required, except where noted.
type Options struct {
	Live    client.Reader // reads from the API server, not from a cache
	Cache   client.Reader // the informers; VolumeAttachments are indexed by nodeNameIndex
	Client  client.Client // writes; no client-side rate limit
	Sinks   observe.Sinks // the log, Events, metrics and Fencing objects
	Wakes   *wake.Metrics // of what wakes nodes
	Config  func() *Config
	Leading func() error // nil while this process is sure to be the leader
	Key     string       // the mark's key
	By      string       // this process's identity in records
	Workers int          // pod writes at the same time at most, for all nodes; 0: fleet.DefaultPace (F6)
	// Changes are sources of nodes about which other objects changed: each calls tell with them until ctx ends.
	Changes []func(ctx context.Context, tell func(node string))
	// Requests knows what other controllers requested, for mode OnRequest. nil: there are no requests.
	Requests Requests
	// Proven receives each proof on which pods are about to be ended. It must not block. nil: it is of no use.
	Proven func(decide.Proof)
	// SignRecord returns the proof of a record that is about to be written over the one that the look has
	// (attest.Signer.Sign). It must not block for the network. nil: records keep the proof that they have.
	SignRecord func(l taint.Look, rec taint.Record, proven bool) string
	// RefusedDetach is observe.Options.RefusedDetach.
	RefusedDetach func(node *corev1.Node, driver, leaseRV string) error
	// StorageFences has storage cut nodes off. nil: no policy needs it.
	StorageFences StorageFences
	// Recorder returns a Decider that decides as the node of that name does, and records what is seen and decided. Its
	// methods must not block. nil: nothing is recorded.
	Recorder func(name string, node *decide.Node) decide.Decider
	Now      providers.Clock
}

// Requests knows what other controllers requested. Its methods may be called concurrently.
type Requests interface {
	// ReadRequest reads live which request permits to power off the machine of a Node now; "": none does. It blocks for
	// the API server. A request that cannot be read permits nothing.
	ReadRequest(ctx context.Context, node *corev1.Node) string
	// CachedRequest returns the same as watches have shown it, and does not block.
	CachedRequest(node *corev1.Node) string
	// ReportDecision notes what was decided last about a node. It does not block.
	ReportDecision(node string, why reason.Reason, detail string)
}

// StorageFences has storage cut nodes off, for policies that need it. Its methods may be called concurrently.
type StorageFences interface {
	// ReadFences reads live how far the storage of each policy that needs it has cut a node off, by the policies'
	// names. It blocks for the API server. What cannot be read is refused.
	ReadFences(ctx context.Context, look taint.Look, policies []policy.Policy) map[string]policy.StorageFence
	// MakeFence has the storage of a policy cut the node off. It sends the write by the time in ctx (kube.SendBy).
	MakeFence(ctx context.Context, look taint.Look, p policy.Policy) error
}

// FactsOf returns what the configuration and the Node itself state about a node that was looked at, at now, and the
// machine that it is believed to be. The caller adds By, RequestedBy and the exclusions of other
// objects (ExclusionSources.ReadExclusions). NewID is "" unless a person's confirmation is evidence.
func (p *Config) FactsOf(node *corev1.Node, l taint.Look, now time.Time) (decide.Facts, machine.Machine) {
	m, err := p.Machines.FindMachine(node, l.Record)
	limits, mode := p.FenceFor(node)
	facts := decide.Facts{
		Facts: fence.Facts{
			Settings: limits, Mode: mode.Mode, ModeBy: mode.By, NoDeviceErr: err, Devices: m.ProofDevices(),
			Excluded: cmp.Or(p.Excluded(node), fence.ExclusionReason(node, now)),
			KeptOn:   fence.KeepOnReason(node, p.Fence.Cordoned),
		},
		Evict: p.Evict, Policies: p.Policies, Storage: p.storageHealth(node.Name),
	}
	if c, err := taint.ConfirmationOf(node); err == nil && c != nil {
		facts.NewID = c.Fence // the fence that the confirmation is evidence for
	}
	return facts, m
}

// storageHealth returns what the storage systems that policies use report about a node, by their names.
func (p *Config) storageHealth(node string) map[string]action.Health {
	var out map[string]action.Health
	for _, one := range p.Policies {
		if i := slices.IndexFunc(p.Storage, func(s StorageSystem) bool {
			return s.Name() == one.Storage
		}); i >= 0 {
			if out == nil {
				out = map[string]action.Health{}
			}
			out[one.Storage] = p.Storage[i].NodeHealth(node)
		}
	}
	return out
}

// fillVolumeHealth fills in what storage systems report about the volumes of pods, by the pods' UIDs.
func (p *Config) fillVolumeHealth(pods []corev1.Pod, of map[string][]action.Volume) {
	for i := range pods {
		for j := range of[string(pods[i].UID)] {
			v := &of[string(pods[i].UID)][j]
			if k := slices.IndexFunc(p.Storage, func(s StorageSystem) bool {
				return slices.Contains(s.Drivers(), v.Driver)
			}); v.Driver != "" && k >= 0 {
				v.Health = p.Storage[k].VolumeHealth(action.VolumeName{
					Driver: v.Driver, Handle: v.Handle, PV: v.PV, Namespace: pods[i].Namespace, Claim: v.Claim,
				})
			}
		}
	}
}
