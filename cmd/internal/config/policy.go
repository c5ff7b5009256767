package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/storage"
)

// Policy is one item of policies: which pods of a node that looks dead are ended without a proof that its machine is
// off.
type Policy struct {
	Name       string         `yaml:"name"`       // unique, a DNS label; Events name it
	Preset     string         `yaml:"preset"`     // a storage system's policy with values for missing keys; "": none
	When       policy.Trigger `yaml:"when"`       // the trigger; default NotReady
	Nodes      string         `yaml:"nodes"`      // label selector; "": all
	Namespaces []string       `yaml:"namespaces"` // none: all
	Pods       string         `yaml:"pods"`       // label selector; "": all
	Owners     []string       `yaml:"owners"`     // kinds that control the pod; none: any
	Drivers    []string       `yaml:"drivers"`    // CSI drivers of the pod's volumes; none: volumes do not matter
	// any or all: how many of the pod's volumes must be of these drivers; default any
	Volumes      string              `yaml:"volumes"`
	Terminating  bool                `yaml:"terminating"`  // only pods past their deletionTimestamp
	Storage      string              `yaml:"storage"`      // only with StorageUnhealthy: an item of storage
	WithoutProof policy.WithoutProof `yaml:"withoutProof"` // must be set

	// only with storage-fences: CSI-Addons' NetworkFenceClasses by which the drivers' storage cuts a node off first
	NetworkFenceClasses []string `yaml:"networkFenceClasses"`
	// only with networkFenceClasses: how long the node must be not Ready before; at least 10s; default 1m
	FenceDelay time.Duration `yaml:"fenceDelay"`
	// only with networkFenceClasses of CephFS, whose driver may answer a fence by evicting clients: you state that it
	// blocks their addresses; default false
	BlocksAddresses bool `yaml:"blocksAddresses"`

	// only with preset longhorn: Longhorn's setting of that name; default do-nothing
	NodeDownPodDeletionPolicy string `yaml:"nodeDownPodDeletionPolicy"`

	// only with StorageUnhealthy, as the next three: StorageOS' -node-poll-interval; at least 1s; default 5s
	PollInterval time.Duration `yaml:"pollInterval"`
	// StorageOS' -node-expiry-interval; more than timeout; default 1h
	ExpiryInterval time.Duration `yaml:"expiryInterval"`
	// StorageOS' -node-fencer-timeout; at least retryInterval; default 25s
	Timeout time.Duration `yaml:"timeout"`
	// StorageOS' -node-fencer-retry-interval; at least 1s; default 5s
	RetryInterval time.Duration `yaml:"retryInterval"`

	// when attachments of the drivers' volumes are deleted for pods of ReplicaSets, as an earlier setting of
	// Longhorn; default never, with preset longhorn wait
	VolumeAttachmentRecoveryPolicy string `yaml:"volumeAttachmentRecoveryPolicy"`

	rules []policy.Policy // pods that are deleted come first
	own   bool
}

// policyRules returns the policies in force. own is the controller's namespace. Some presets look there for their
// system's pods.
func (c *Config) policyRules(own string) []policy.Policy {
	var out []policy.Policy
	for _, p := range c.Policies {
		for _, rule := range p.rules {
			if p.own {
				rule.Namespaces = []string{own}
			}
			out = append(out, rule)
		}
	}
	return out
}

// kinds are Kubernetes' own kinds of owners.
var kinds = []string{"StatefulSet", "Deployment", "ReplicaSet", "Job", "ReplicationController"}

// policyCheck checks one item of policies, and makes its rule.
type policyCheck struct {
	*reader
	config *Config
	item   *Policy
	path   string
	preset policy.Preset
	rule   policy.Policy
}

// checkPolicy checks one item of policies, and makes its rules.
func (r *reader) checkPolicy(c *Config, i int) {
	p := &c.Policies[i]
	r.checkName("policies", i, mapList(c.Policies, func(p Policy) string { return p.Name }))
	k := policyCheck{reader: r, config: c, item: p, path: item("policies", i), preset: policy.Preset{Fences: true}}
	k.checkPreset()
	k.checkTrigger()
	k.checkSelectors()
	if k.checkIntervals(); k.rule.When == policy.StorageUnhealthy {
		k.checkStorage()
	}
	k.checkVolumes()
	k.checkNetworkFence()
	k.checkSelection()
	rules := k.makeRules()
	p.own = k.preset.Own && len(k.rule.Namespaces) == 0
	if len(rules) > 0 && k.checkProof(rules) {
		p.rules = rules
		k.warnOfAttached(rules)
	}
}

// at returns the path of a key.
func (k *policyCheck) at(key string) string { return k.path + "." + key }

// has reports whether the item has a key.
func (k *policyCheck) has(key string) bool { return k.given(k.at(key)) }

// setGiven replaces a preset's value if the item has the key.
func setGiven[T any](k *policyCheck, key string, to *T, value T) {
	if k.has(key) {
		*to = value
	}
}

func (k *policyCheck) checkPreset() {
	if k.has("preset") {
		names := mapList(policy.Presets, func(p policy.Preset) string { return p.Name })
		oneOf(k.reader, k.at("preset"), k.item.Preset, names...)
		k.preset, _ = policy.PresetOf(k.item.Preset)
	}
	k.rule = k.preset.Policy
	k.rule.Name, k.rule.WithoutProof = k.item.Name, k.item.WithoutProof
}

func (k *policyCheck) checkTrigger() {
	k.rule.When = cmp.Or(k.rule.When, policy.NotReady)
	setGiven(k, "when", &k.rule.When, k.item.When)
	oneOf(k.reader, k.at("when"), k.rule.When, policy.NotReady, policy.BecameNotReady, policy.StorageUnhealthy)
}

// checkSelectors checks the keys that select pods.
func (k *policyCheck) checkSelectors() {
	p := k.item
	setGiven(k, "nodes", &k.rule.Nodes, k.selector(k.at("nodes"), p.Nodes, labels.Everything()))
	setGiven(k, "pods", &k.rule.Pods, k.selector(k.at("pods"), p.Pods, labels.Everything()))
	setGiven(k, "namespaces", &k.rule.Namespaces, p.Namespaces)
	setGiven(k, "owners", &k.rule.Owners, p.Owners)
	setGiven(k, "drivers", &k.rule.Drivers, p.Drivers)
	setGiven(k, "terminating", &k.rule.Terminating, p.Terminating)
	for j, ns := range p.Namespaces {
		k.reportIf(len(validation.IsDNS1123Label(ns)) > 0, item(k.at("namespaces"), j),
			"no namespace can have this name: use a-z, 0-9 and -")
	}
	for j, kind := range p.Owners {
		for _, known := range kinds {
			k.reportIf(strings.EqualFold(known, kind) && known != kind, item(k.at("owners"), j),
				"unknown kind: did you mean %q?", known)
		}
	}
}

func (k *policyCheck) checkVolumes() {
	if !k.has("volumes") {
		return
	}
	oneOf(k.reader, k.at("volumes"), k.item.Volumes, "any", "all")
	k.reportIf(len(k.rule.Drivers) == 0, k.at("volumes"), "needs drivers: it says how many of a pod's volumes must "+
		"be of these")
	k.rule.AllVolumes = k.item.Volumes == "all"
}

// checkNetworkFence checks the keys by which the storage cuts a node off. All volumes of the policy's pods must be of
// that storage: the machine may go on writing elsewhere.
func (k *policyCheck) checkNetworkFence() {
	const key = "networkFenceClasses"
	p, at := k.item, k.at(key)
	if !k.has(key) {
		k.reportIf(k.has("fenceDelay"), k.at("fenceDelay"), "belongs to networkFenceClasses")
		k.reportIf(k.has("blocksAddresses"), k.at("blocksAddresses"), "belongs to networkFenceClasses")
		return
	}
	k.reportIf(len(p.NetworkFenceClasses) == 0, at, "must name at least one NetworkFenceClass, or be left out")
	seen := map[string]bool{}
	for j, name := range p.NetworkFenceClasses {
		k.reportIf(len(validation.IsDNS1123Subdomain(name)) > 0, item(at, j), "no object can have this name")
		k.reportIf(seen[name], item(at, j), "is listed already")
		seen[name] = true
	}
	k.reportIf(p.WithoutProof != policy.StorageFences, at, "belongs to \"withoutProof: storage-fences\"")
	k.reportIf(k.has("preset"), at, "does not go with a preset")
	k.reportIf(k.rule.When != policy.NotReady, at, "goes with \"when: NotReady\" alone")
	k.reportIf(len(p.Drivers) == 0, at, "needs drivers: name those whose storage the classes cut a node off from")
	evicts := policy.EvictingDriver(p.Drivers)
	k.reportIf(evicts != "" && !p.BlocksAddresses, at, "driver %s answers a fence by evicting the clients that it "+
		"sees, and does not block their addresses: the machine may mount again and write. If yours blocks them, write "+
		"\"blocksAddresses: true\"", evicts)
	k.reportIf(evicts == "" && k.has("blocksAddresses"), k.at("blocksAddresses"), "belongs to drivers of CephFS")
	k.reportIf(k.has("volumes") && p.Volumes != "all", at, "needs \"volumes: all\", which is the default beside it: "+
		"the machine may go on writing to volumes of other drivers")
	k.reportIf(k.has("volumeAttachmentRecoveryPolicy"), at, "does not go with volumeAttachmentRecoveryPolicy")
	delay := time.Minute
	if k.has("fenceDelay") {
		delay = p.FenceDelay
		k.atLeast(k.at("fenceDelay"), delay, 10*time.Second)
	}
	k.rule.FenceClasses, k.rule.FenceDelay, k.rule.AllVolumes, k.rule.Detach = p.NetworkFenceClasses, delay, true, true
}

// FencesStorage reports whether a policy has storage cut nodes off.
func (c *Config) FencesStorage() bool {
	return slices.ContainsFunc(c.Policies, func(p Policy) bool { return len(p.NetworkFenceClasses) > 0 })
}

// checkSelection refuses an item that selects every pod of a node.
func (k *policyCheck) checkSelection() {
	if rule := k.rule; !k.has("preset") && len(rule.Namespaces)+len(rule.Owners)+len(rule.Drivers) == 0 &&
		strings.TrimSpace(k.item.Pods) == "" && !k.bad[k.at("pods")] {
		k.report(k.path, "selects every pod of a node: write at least one of namespaces, pods, owners, drivers")
	}
}

// makeRules returns the rules of the item; none if it ends no pods. Pods that are deleted come first.
func (k *policyCheck) makeRules() (rules []policy.Policy) {
	if k.checkDeletion(); k.item.Preset != "longhorn" || len(k.rule.Owners) > 0 {
		rules = append(rules, k.rule)
	}
	if release, ok := k.recoveryRule(); ok {
		rules = append(rules, release)
	}
	return rules
}

// checkProof checks that the item says why its rules may end pods without a proof, and that it may say so.
func (k *policyCheck) checkProof(rules []policy.Policy) bool {
	const mayRun = "this policy ends pods while their machine may still run, and then"
	p, unfenced := k.item, policy.UnfencedDriver(k.rule.Drivers)
	switch {
	case p.WithoutProof == policy.Never:
		byDefault := ""
		if len(rules) == 1 && rules[0].Keep && !k.has("volumeAttachmentRecoveryPolicy") {
			byDefault = ". This preset sets volumeAttachmentRecoveryPolicy to wait. If you write never there, the " +
				"policy ends no pod, and needs no withoutProof"
		}
		k.report(k.at("withoutProof"), "missing: %s a pod may run twice. Write accept-duplicates if you accept "+
			"that. Write storage-fences if the storage itself cuts such a node off. Or remove the policy: then its "+
			"pods wait for the proof that their machine is off%s", mayRun, byDefault)
		return false
	case p.WithoutProof == policy.StorageFences && !k.preset.Fences:
		k.report(k.at("withoutProof"), "%s does not cut off a node that looks dead, and its document does not say "+
			"so: %s a pod may run twice. If you accept that, write accept-duplicates", p.Preset, mayRun)
		return false
	case p.WithoutProof == policy.StorageFences && unfenced != "":
		k.report(k.at("withoutProof"), "storage with driver %s does not cut off a node that looks dead: "+
			"%s a pod may run twice. If you accept that, write accept-duplicates", unfenced, mayRun)
		return false
	}
	oneOf(k.reader, k.at("withoutProof"), p.WithoutProof, policy.StorageFences, policy.AcceptDuplicates)
	return true
}

// warnOfAttached warns if the volumes of ended pods stay attached for long.
func (k *policyCheck) warnOfAttached(rules []policy.Policy) {
	if k.item.WithoutProof == policy.StorageFences && len(k.rule.Drivers) > 0 &&
		!slices.ContainsFunc(rules, func(r policy.Policy) bool { return r.Detach }) {
		k.warn(k.config, k.path, "the volumes of pods that this policy ends stay attached to their node until "+
			"Kubernetes detaches them, which takes six minutes, and replacements that use them wait for that. "+
			"when: StorageUnhealthy with preset: storageos deletes the attachments; "+
			"for pods of ReplicaSets volumeAttachmentRecoveryPolicy does")
	}
}

// recoveryRule returns the rule of volume attachment recovery; ok reports whether the item asks for it.
func (k *policyCheck) recoveryRule() (release policy.Policy, ok bool) {
	const key = "volumeAttachmentRecoveryPolicy"
	value := k.item.VolumeAttachmentRecoveryPolicy
	if k.has(key) {
		oneOf(k.reader, k.at(key), value,
			mapList(policy.RecoveryValues, func(v struct{ Value, Does string }) string { return v.Value })...)
	} else if k.item.Preset == "longhorn" {
		value = "wait" // as in Longhorn
	}
	if release, ok = k.rule.RecoveryRule(value); ok && len(k.rule.Drivers) == 0 {
		k.report(k.at(key), "needs drivers: it says when attachments of their volumes are deleted")
	}
	return release, ok
}

// checkDeletion sets the owners whose pods Longhorn's setting ends; none by default, as in Longhorn.
func (k *policyCheck) checkDeletion() {
	const key = "nodeDownPodDeletionPolicy"
	if k.item.Preset != "longhorn" {
		k.reportIf(k.has(key), k.at(key), `belongs to "preset: longhorn"`)
		return
	}
	k.reportIf(k.has("owners"), k.at(key), "already chooses the owners: remove owners")
	k.rule.Owners = nil
	value := k.item.NodeDownPodDeletionPolicy
	if value == "" {
		return
	}
	var values []string
	for _, d := range policy.DeletionValues {
		if values = append(values, d.Value); d.Value == value {
			k.rule.Owners = d.Owners
		}
	}
	oneOf(k.reader, k.at(key), value, values...)
}

// checkIntervals checks the keys that belong to StorageUnhealthy alone, or that do not go with it.
func (k *policyCheck) checkIntervals() {
	const trigger = `belongs to "when: StorageUnhealthy"`
	p, v := k.item, &k.rule.Intervals
	unhealthy := k.rule.When == policy.StorageUnhealthy
	if unhealthy {
		*v = policy.StorageOSIntervals
	}
	for _, i := range []struct {
		key   string
		have  time.Duration
		set   *time.Duration
		least time.Duration
	}{
		{"pollInterval", p.PollInterval, &v.Poll, time.Second},
		{"retryInterval", p.RetryInterval, &v.Retry, time.Second},
		{"timeout", p.Timeout, &v.Timeout, 0},
		{"expiryInterval", p.ExpiryInterval, &v.Expiry, 0},
	} {
		switch {
		case !k.has(i.key):
		case !unhealthy:
			k.report(k.at(i.key), trigger)
		default:
			*i.set = i.have
			k.atLeast(k.at(i.key), i.have, i.least)
		}
	}
	if !unhealthy {
		k.reportIf(k.has("storage"), k.at("storage"),
			trigger+": other triggers use no storage system; to select pods by their volumes, use drivers")
		return
	}
	k.reportIf(v.Timeout < v.Retry, k.at("timeout"), "must be at least retryInterval (%s), or nothing is retried",
		short(v.Retry))
	k.reportIf(v.Expiry <= v.Timeout, k.at("expiryInterval"), "must be more than timeout (%s), or a node is checked "+
		"again before the last check has ended", short(v.Timeout))
}

// checkStorage checks what the trigger StorageUnhealthy needs: a storage system that reports nodes and volumes.
func (k *policyCheck) checkStorage() {
	p := k.item
	k.reportIf(k.has("terminating") && p.Terminating, k.at("terminating"), "does not go with StorageUnhealthy: a "+
		"node is done before Kubernetes has deleted its pods")
	k.reportIf(k.has("volumeAttachmentRecoveryPolicy"), k.at("volumeAttachmentRecoveryPolicy"),
		"does not go with StorageUnhealthy: leave it out")
	k.rule.Storage = p.Storage
	names := k.config.storageNames()
	adapter := k.config.StorageAdapter(p.Storage)
	switch {
	case !k.has("storage"):
		k.report(k.path, "storage is missing: write the name of the storage item that reports unhealthy nodes")
	case len(names) == 0:
		k.report(k.at("storage"), "no storage system is configured: describe it under storage, at the top level of "+
			"the file")
	case !slices.Contains(names, p.Storage):
		oneOf(k.reader, k.at("storage"), p.Storage, names...)
	case adapter == nil: // its own faults are reported
	case !reports(adapter, storage.Nodes), !reports(adapter, storage.Volumes):
		k.report(k.at("storage"), "%s does not describe nodes and volumes, so their state is unknown: describe both "+
			"under storage", p.Storage)
	case !k.has("drivers"):
		k.rule.Drivers = adapter.Spec.Drivers
	default:
		for j, d := range p.Drivers {
			k.reportIf(!slices.Contains(adapter.Spec.Drivers, d), item(k.at("drivers"), j),
				"is not a driver of storage %s, which cannot report its volumes' health: remove drivers", p.Storage)
		}
	}
}

func reports(a *storage.Adapter, k storage.Kind) bool { _, ok := a.ResourceOf(k); return ok }
