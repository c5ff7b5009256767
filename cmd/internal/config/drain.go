package config

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/drain/drainguard"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Drain is one item of drain: what `kubectl drain` waits for on nodes that hold a storage system's data.
type Drain struct {
	Name     string       `yaml:"name"`     // unique, a DNS label; Events name it
	Storage  string       `yaml:"storage"`  // an item of storage, by its name
	Policy   drain.Policy `yaml:"policy"`   // what a drain waits for; default block-if-contains-last-replica
	Identity []string     `yaml:"identity"` // the keys of labels that identify one storage pod
	Delegate bool         `yaml:"delegate"` // only write the storage system's own setting, which carries out the policy

	drainGuard *drainguard.Guarded
}

// DrainGuards returns the drain guards in force. Their LastSeen is not set.
func (c *Config) DrainGuards() []drainguard.Guarded {
	var out []drainguard.Guarded
	for _, d := range c.Drain {
		if d.drainGuard != nil {
			out = append(out, *d.drainGuard)
		}
	}
	return out
}

// longhornDriver is Longhorn's CSI driver. Only Longhorn's own node controller may request evictions of its replicas.
const longhornDriver = "driver.longhorn.io"

// checkDrain checks one item of drain, and makes its guard.
func (r *reader) checkDrain(c *Config, i int) {
	d, path := &c.Drain[i], item("drain", i)
	for _, e := range c.Drain[:i] {
		if d.Storage != "" && e.Storage == d.Storage {
			r.report(path+".storage", "already has a drain item (%s): two would not recognize each other's "+
				"PodDisruptionBudgets", e.Name)
			return
		}
	}
	r.checkName("drain", i, mapList(c.Drain, func(d Drain) string { return d.Name }))
	d.Policy = cmp.Or(d.Policy, drain.BlockIfLast)
	r.drainPolicy(path+".policy", d.Policy)
	if d.Storage == "" {
		r.report(path+".storage", "missing: the name of an item of storage")
		return
	}
	adapter := c.StorageAdapter(d.Storage)
	if adapter == nil {
		names := c.storageNames() // an item of that name has faults of its own
		r.reportIf(!slices.Contains(names, d.Storage), path+".storage", "there is no such item of storage%s",
			didYouMean(d.Storage, names))
		return
	}
	longhorn := slices.Contains(adapter.Spec.Drivers, longhornDriver)
	g := drainguard.Guarded{Guard: drain.Guard{Name: d.Name, Policy: d.Policy, Identity: d.Identity}, Adapter: adapter}
	switch {
	case longhorn && !d.Delegate:
		r.report(path, "Longhorn guards drains itself, and its node controller overwrites others' requests for its "+
			"replicas. Set delegate: true, and forcefence sets Longhorn's node-drain-policy, which applies to the "+
			"whole cluster; or remove the item and set it yourself")
		return
	case longhorn && len(d.Identity) > 0:
		r.report(path+".identity", "has no effect with delegate: Longhorn makes its PodDisruptionBudgets itself")
		return
	case longhorn:
		setting := drainguard.Longhorn
		setting.Namespace = cmp.Or(adapter.Spec.Namespace, setting.Namespace)
		g.Setting, g.Adapter = &setting, nil
	case d.Delegate:
		r.report(path+".delegate", "only Longhorn (%s) has such a setting: remove the key, and forcefence guards the "+
			"drains itself", longhornDriver)
		return
	case !r.guardPods(d, path, adapter, &g):
		return
	}
	d.drainGuard = &g
}

// guardPods sets which pods the guard selects, and checks how it identifies one. It returns false if it reported a
// fault.
func (r *reader) guardPods(d *Drain, path string, a *storage.Adapter, g *drainguard.Guarded) bool {
	before := len(r.errs)
	ns, pods := a.PodSelector()
	if ns == "" || pods == nil || pods.Empty() {
		r.report(path+".storage", "this item of storage does not describe the pods that serve its replicas: write "+
			"its namespace and pods")
		return false
	}
	var err error
	if g.Pods, err = metav1.ParseToLabelSelector(pods.String()); err != nil {
		r.report(path+".storage", "a PodDisruptionBudget cannot use this selector of pods: %s", oneLine(err.Error()))
	}
	g.Namespace = ns
	if _, ok := a.ResourceOf(storage.Replicas); !ok && d.Policy != drain.AlwaysAllow {
		r.report(path+".storage", "this item of storage does not describe replicas: write its replica")
	}
	if _, can := storage.NewState(a).EvictionPatch(storage.Replica{}, true); !can && d.Policy.ShouldEvict() {
		r.report(path+".policy", "this item of storage does not describe how to request a replica's eviction: write "+
			"its replica.evict and replica.keep, or choose a policy that evicts nothing")
	}
	r.reportIf(len(d.Identity) == 0, path+".identity", "missing: keys of labels that identify one storage pod, such "+
		"as statefulset.kubernetes.io/pod-name. Each pod gets its own PodDisruptionBudget. A DaemonSet's pods have "+
		"no such label, and no drain evicts them")
	for j, key := range d.Identity {
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			r.report(item(path+".identity", j), "no label can have this key: it must look like example.net/name")
		case slices.Contains([]string{"controller-revision-hash", "pod-template-hash", "pod-template-generation"}, key):
			r.report(item(path+".identity", j), "all pods of a set have the same value: use a label with a unique "+
				"value, such as statefulset.kubernetes.io/pod-name. A DaemonSet's pods have none, and no drain "+
				"evicts them")
		}
	}
	return len(r.errs) == before
}

// drainPolicy checks a drain policy. It recognizes the spellings of Longhorn's documents, too.
func (r *reader) drainPolicy(path string, p drain.Policy) {
	if slices.Contains(drain.Policies, p) {
		return
	}
	plain := func(s string) string {
		s = strings.ToLower(strings.NewReplacer("-", "", " ", "", "_", "").Replace(s))
		return strings.NewReplacer("contains", "", "replicais", "").
			Replace(strings.ReplaceAll(s, "lastreplicaisstopped", "replicaisstopped"))
	}
	for _, known := range drain.Policies {
		if plain(string(known)) == plain(string(p)) {
			r.report(path, "is spelled differently here: write %q", known)
			return
		}
	}
	oneOf(r, path, p, drain.Policies...)
}
