package config

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
)

// Policy is one item of policies: which pods of a node that looks dead are ended without a proof that its machine is
// off.
type Policy struct {
	Name string `yaml:"name"` // unique, a DNS label; Events name it
	// a document's policy, whose values hold where this item says nothing; "": none
	Preset     string         `yaml:"preset"`
	When       policy.Trigger `yaml:"when"`       // default NotReady
	Nodes      string         `yaml:"nodes"`      // label selector; "": all
	Namespaces []string       `yaml:"namespaces"` // none: all
	Pods       string         `yaml:"pods"`       // label selector; "": all
	Owners     []string       `yaml:"owners"`     // kinds that control the pod; none: any
	// CSI drivers, one of which has a volume of the pod's; none: volumes do not matter
	Drivers []string `yaml:"drivers"`
	// any (the default) or all: how many of the pod's volumes must be of these drivers
	Volumes     string `yaml:"volumes"`
	Terminating bool   `yaml:"terminating"` // only pods past their deletionTimestamp
	// the item of storage that says how the node is; its drivers are those of drivers. StorageUnhealthy needs it
	Storage      string              `yaml:"storage"`
	WithoutProof policy.WithoutProof `yaml:"withoutProof"` // must be said

	// Only with preset longhorn: Longhorn's setting of that name. Default do-nothing.
	NodeDownPodDeletionPolicy string `yaml:"nodeDownPodDeletionPolicy"`

	// Only with StorageUnhealthy: StorageOS' -node-poll-interval, -node-expiry-interval, -node-fencer-timeout and
	// -node-fencer-retry-interval.
	PollInterval   time.Duration `yaml:"pollInterval"`   // at least 1s; default 5s
	ExpiryInterval time.Duration `yaml:"expiryInterval"` // more than timeout; default 1h
	Timeout        time.Duration `yaml:"timeout"`        // at least retryInterval; default 25s
	RetryInterval  time.Duration `yaml:"retryInterval"`  // at least 1s; default 5s

	// When attachments of the drivers' volumes are deleted for pods of ReplicaSets, as an earlier setting of Longhorn.
	// Default wait with preset longhorn, else never.
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

// checkPolicy checks one item and makes its rule.
func (r *reader) checkPolicy(c *Config, i int) {
	p, path := &c.Policies[i], item("policies", i)
	var earlier []string
	for _, e := range c.Policies[:i] {
		earlier = append(earlier, e.Name)
	}
	r.name("policies", i, p.Name, earlier)
	given := func(key string) bool { _, ok := r.lines[path+"."+key]; return ok }
	preset := policy.Preset{Fences: true}
	if given("preset") {
		var names []string
		for _, have := range policy.Presets {
			names = append(names, have.Name)
		}
		oneOf(r, path+".preset", p.Preset, names...)
		preset, _ = policy.PresetOf(p.Preset)
	}
	rule := preset.Policy
	rule.Name, rule.WithoutProof = p.Name, p.WithoutProof
	if given("when") || rule.When == "" {
		if rule.When = p.When; !given("when") {
			rule.When = policy.NotReady
		}
		oneOf(r, path+".when", rule.When, policy.NotReady, policy.BecameNotReady, policy.StorageUnhealthy)
	}
	if given("nodes") {
		rule.Nodes = r.selector(path+".nodes", p.Nodes, labels.Everything())
	}
	if given("pods") {
		rule.Pods = r.selector(path+".pods", p.Pods, labels.Everything())
	}
	if given("namespaces") {
		rule.Namespaces = p.Namespaces
		for j, ns := range p.Namespaces {
			if len(validation.IsDNS1123Label(ns)) > 0 {
				r.report(item(path+".namespaces", j), "no namespace can have this name: use a-z, 0-9 and -")
			}
		}
	}
	if given("owners") {
		rule.Owners = p.Owners
		for j, kind := range p.Owners {
			if k := slices.IndexFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }); k >= 0 &&
				kinds[k] != kind {
				r.report(item(path+".owners", j), "unknown kind: did you mean %q?", kinds[k])
			}
		}
	}
	if given("drivers") {
		rule.Drivers = p.Drivers
	}
	r.storageUnhealthy(c, p, path, &rule, given)
	if given("volumes") {
		oneOf(r, path+".volumes", p.Volumes, "any", "all")
		if len(rule.Drivers) == 0 {
			r.report(path+".volumes", "needs drivers: it says how many of a pod's volumes must be of these")
		}
		rule.AllVolumes = p.Volumes == "all"
	}
	if given("terminating") {
		rule.Terminating = p.Terminating
	}
	if !given("preset") && len(rule.Namespaces)+len(rule.Owners)+len(rule.Drivers) == 0 &&
		strings.TrimSpace(p.Pods) == "" && !r.bad[path+".pods"] {
		r.report(path, "selects every pod of a node: write at least one of namespaces, pods, owners, drivers")
	}
	var rules []policy.Policy
	if idle := r.deletion(p, path, &rule, given); !idle {
		rules = append(rules, rule)
	}
	unsaid := ""
	if release, ok := r.recovery(p, path, rule, given); ok {
		if rules = append(rules, release); len(rules) == 1 && !given("volumeAttachmentRecoveryPolicy") {
			unsaid = ". volumeAttachmentRecoveryPolicy is wait where this preset says nothing; with never it does " +
				"nothing and needs no word"
		}
	}
	p.own = preset.Own && len(rule.Namespaces) == 0
	if len(rules) == 0 {
		return
	}
	const mayRun = "this policy ends pods of machines that may run, so that"
	switch {
	case p.WithoutProof == policy.Never:
		r.report(path+".withoutProof", "missing: %s a pod may run twice. If you accept that, write "+
			"accept-duplicates; if the storage itself cuts such a node off, storage-fences. Without a policy its "+
			"pods wait for the proof that their machine is off%s", mayRun, unsaid)
		return
	case p.WithoutProof == policy.StorageFences && !preset.Fences:
		r.report(path+".withoutProof", "%s does not cut off a node that looks dead, and its document does not say "+
			"so: %s a pod may run twice. If you accept that, write accept-duplicates", p.Preset, mayRun)
		return
	case p.WithoutProof == policy.StorageFences && policy.UnfencedDriver(rule.Drivers) != "":
		r.report(path+".withoutProof", "storage with driver %s does not cut off a node that looks dead: "+
			"%s a pod may run twice. If you accept that, write accept-duplicates", policy.UnfencedDriver(rule.Drivers),
			mayRun)
		return
	}
	oneOf(r, path+".withoutProof", p.WithoutProof, policy.StorageFences, policy.AcceptDuplicates)
	p.rules = rules
	if p.WithoutProof == policy.StorageFences && len(rule.Drivers) > 0 &&
		!slices.ContainsFunc(rules, func(r policy.Policy) bool { return r.Detach }) {
		r.warn(c, path, "the volumes of pods that this policy ends stay attached to their node until Kubernetes "+
			"detaches them, which takes six minutes, and replacements that use them wait for that. "+
			"when: StorageUnhealthy with preset: storageos deletes the attachments; "+
			"for pods of ReplicaSets volumeAttachmentRecoveryPolicy does")
	}
}

// recovery is the rule of volume attachment recovery, if the item asks for one.
func (r *reader) recovery(p *Policy, path string, rule policy.Policy, given func(string) bool) (release policy.Policy,
	ok bool) {
	const key = "volumeAttachmentRecoveryPolicy"
	value := p.VolumeAttachmentRecoveryPolicy
	if !given(key) && p.Preset == "longhorn" {
		value = "wait" // as in Longhorn
	}
	if given(key) {
		var values []string
		for _, v := range policy.RecoveryValues {
			values = append(values, v.Value)
		}
		oneOf(r, path+"."+key, value, values...)
	}
	if release, ok = rule.RecoveryRule(value); ok && len(rule.Drivers) == 0 {
		r.report(path+"."+key, "needs drivers: it says when attachments of their volumes are deleted")
	}
	return release, ok
}

// deletion is Longhorn's setting, as the owners whose pods are ended. idle: it says that nothing is.
func (r *reader) deletion(p *Policy, path string, rule *policy.Policy, given func(string) bool) (idle bool) {
	path += ".nodeDownPodDeletionPolicy"
	switch {
	case p.Preset != "longhorn" && given("nodeDownPodDeletionPolicy"):
		r.report(path, `belongs to "preset: longhorn"`)
		return false
	case p.Preset != "longhorn":
		return false
	case given("owners"):
		r.report(path, "already chooses the owners: remove owners")
	}
	if p.NodeDownPodDeletionPolicy == "" {
		return true // Longhorn's default is do-nothing
	}
	var values []string
	for _, d := range policy.DeletionValues {
		values = append(values, d.Value)
	}
	oneOf(r, path, p.NodeDownPodDeletionPolicy, values...)
	i := slices.Index(values, p.NodeDownPodDeletionPolicy)
	if i < 0 {
		return true
	}
	rule.Owners = policy.DeletionValues[i].Owners
	return len(rule.Owners) == 0
}

// storageUnhealthy is what belongs to that trigger alone: whom to ask, and the intervals.
func (r *reader) storageUnhealthy(c *Config, p *Policy, path string, rule *policy.Policy, given func(string) bool) {
	intervals := []struct {
		key   string
		have  time.Duration
		set   *time.Duration
		least time.Duration
	}{
		{"pollInterval", p.PollInterval, &rule.Intervals.Poll, time.Second},
		{"retryInterval", p.RetryInterval, &rule.Intervals.Retry, time.Second},
		{"timeout", p.Timeout, &rule.Intervals.Timeout, 0},
		{"expiryInterval", p.ExpiryInterval, &rule.Intervals.Expiry, 0},
	}
	const trigger = `belongs to "when: StorageUnhealthy"`
	if rule.When != policy.StorageUnhealthy {
		for _, i := range intervals {
			if given(i.key) {
				r.report(path+"."+i.key, trigger)
			}
		}
		if given("storage") {
			r.report(path+".storage", trigger+": other triggers use no storage system; to select pods by their "+
				"volumes, use drivers")
		}
		return
	}
	rule.Intervals = policy.StorageOSIntervals
	for _, i := range intervals {
		if given(i.key) {
			*i.set = i.have
			r.atLeast(path+"."+i.key, i.have, i.least)
		}
	}
	v := rule.Intervals
	if v.Timeout < v.Retry {
		r.report(path+".timeout", "must be at least retryInterval (%s), or nothing is retried", short(v.Retry))
	}
	if v.Expiry <= v.Timeout {
		r.report(path+".expiryInterval", "must be more than timeout (%s), or a node is checked again before the last "+
			"check has ended", short(v.Timeout))
	}
	if given("terminating") && p.Terminating {
		r.report(path+".terminating", "does not go with StorageUnhealthy: a node is done before Kubernetes has "+
			"deleted its pods")
	}
	if given("volumeAttachmentRecoveryPolicy") {
		r.report(path+".volumeAttachmentRecoveryPolicy", "does not go with StorageUnhealthy: leave it out")
	}
	rule.Storage = p.Storage
	var names, own []string
	for _, s := range c.Storage {
		names = append(names, s.Name)
	}
	adapter := c.StorageAdapter(p.Storage)
	if adapter != nil {
		own = adapter.Spec.Drivers
	}
	switch {
	case !given("storage"):
		r.report(path, "storage is missing: write the name of the storage item that reports unhealthy nodes")
	case len(names) == 0:
		r.report(path+".storage", "no storage system is configured: describe it under storage, at the top level of "+
			"the file")
	case !slices.Contains(names, p.Storage):
		oneOf(r, path+".storage", p.Storage, names...)
	case adapter == nil: // its own faults are told
	case !tells(adapter, storage.Nodes), !tells(adapter, storage.Volumes):
		r.report(path+".storage", "%s does not describe nodes and volumes, so their state is unknown: describe both "+
			"under storage", p.Storage)
	case !given("drivers"):
		rule.Drivers = own
	default:
		for j, d := range p.Drivers {
			if !slices.Contains(own, d) {
				r.report(item(path+".drivers", j), "is not a driver of storage %s, which cannot report its volumes' "+
					"health: remove drivers", p.Storage)
			}
		}
	}
}

func tells(a *storage.Adapter, k storage.Kind) bool { _, ok := a.ResourceOf(k); return ok }
