package config

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/forcefence/forcefence/taint/policy"
)

// Policy is one item of policies: which pods of a node that looks dead are ended although nothing proves that its machine is off.
type Policy struct {
	Name         string              `yaml:"name"`         // unique, a DNS label; Events name it
	Preset       string              `yaml:"preset"`       // a document's policy, whose values hold where this item says nothing; "": none
	When         policy.Trigger      `yaml:"when"`         // default NotReady
	Nodes        string              `yaml:"nodes"`        // label selector; "": all
	Namespaces   []string            `yaml:"namespaces"`   // none: all
	Pods         string              `yaml:"pods"`         // label selector; "": all
	Owners       []string            `yaml:"owners"`       // kinds that control the pod; none: any
	Drivers      []string            `yaml:"drivers"`      // CSI drivers, one of which has a volume of the pod's; none: volumes do not matter
	Terminating  bool                `yaml:"terminating"`  // only pods past their deletionTimestamp
	WithoutProof policy.WithoutProof `yaml:"withoutProof"` // must be said

	// Of the preset longhorn: Longhorn's setting of that name. Default do-nothing.
	NodeDownPodDeletionPolicy string `yaml:"nodeDownPodDeletionPolicy"`

	rule *policy.Policy
	own  bool
}

// Rules are the policies in force. own is the controller's namespace, which is where a preset looks for its system's own pods.
func (c *Config) Rules(own string) []policy.Policy {
	var out []policy.Policy
	for _, p := range c.Policies {
		if p.rule == nil {
			continue
		}
		rule := *p.rule
		if p.own {
			rule.Namespaces = []string{own}
		}
		out = append(out, rule)
	}
	return out
}

// kinds are the owners that Kubernetes itself has.
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
		oneOf(r, path+".when", rule.When, policy.NotReady, policy.BecameNotReady)
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
			if k := slices.IndexFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }); k >= 0 && kinds[k] != kind {
				r.report(item(path+".owners", j), "no kind is written like that: did you mean %q?", kinds[k])
			}
		}
	}
	if given("drivers") {
		rule.Drivers = p.Drivers
	}
	if given("terminating") {
		rule.Terminating = p.Terminating
	}
	if !given("preset") && len(rule.Namespaces)+len(rule.Owners)+len(rule.Drivers) == 0 && strings.TrimSpace(p.Pods) == "" && !r.bad[path+".pods"] {
		r.report(path, "selects every pod of such a node: write at least one of namespaces, pods, owners, drivers")
	}
	idle := r.deletion(p, path, &rule, given)
	p.own = preset.Own && len(rule.Namespaces) == 0
	if idle {
		return
	}
	const mayRun = "this policy ends pods of machines that may run, so that"
	switch {
	case p.WithoutProof == policy.Never:
		r.report(path+".withoutProof", "missing: %s a pod may run twice. If you accept that, write accept-duplicates; if the storage itself cuts such a node off, storage-fences. Without a policy its pods wait for the proof that their machine is off", mayRun)
		return
	case p.WithoutProof == policy.StorageFences && !preset.Fences:
		r.report(path+".withoutProof", "%s does not cut off a node that looks dead, and its document does not say so: %s a pod may run twice. If you accept that, write accept-duplicates", p.Preset, mayRun)
		return
	}
	oneOf(r, path+".withoutProof", p.WithoutProof, policy.StorageFences, policy.AcceptDuplicates)
	p.rule = &rule
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
		r.report(path, "chooses the owners here: leave owners out")
	}
	if p.NodeDownPodDeletionPolicy == "" {
		return true // Longhorn's default is do-nothing
	}
	var values []string
	for _, d := range policy.Deletion {
		values = append(values, d.Value)
	}
	oneOf(r, path, p.NodeDownPodDeletionPolicy, values...)
	i := slices.Index(values, p.NodeDownPodDeletionPolicy)
	if i < 0 {
		return true
	}
	rule.Owners = policy.Deletion[i].Owners
	return len(rule.Owners) == 0
}
