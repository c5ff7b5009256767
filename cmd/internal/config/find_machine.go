package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// NodeRule says how the nodes that it claims find their machines. A rule claims the nodes that its selector matches. A
// rule with a list claims only those that the list names as well.
type NodeRule struct {
	Name     string  `yaml:"name"`     // unique, a DNS label; for messages
	Selector string  `yaml:"selector"` // label selector; "" for all nodes
	Provider string  `yaml:"provider"` // the name of one of providers
	Mode     Mode    `yaml:"mode"`     // "": the mode of all nodes. Not beside modes
	Machine  Source  `yaml:"machine"`
	Levels   []Level `yaml:"levels"` // the levels after the first, which is `provider` and `machine`; or all of them
	Within   []Host  `yaml:"within"` // the hosts of all hypervisors of `provider`: a guest is off with its host

	selector labels.Selector
	limits   []proof.Limits // of each level, the first included
}

// From says where a machine's ID comes from.
type From string

// The ways to find a machine.
const (
	FromSystemUUID From = "systemUUID" // no ID: the provider finds the machine by the node's system UUID
	FromProviderID From = "providerID" // the node's spec.providerID
	FromAnnotation From = "annotation" // an annotation of the Node
	FromName       From = "name"       // the node's name: the template {name}
	FromTemplate   From = "template"   // a text with properties of the node in it
	FromList       From = "list"       // written out node by node
)

var sources = []From{FromSystemUUID, FromProviderID, FromAnnotation, FromName, FromTemplate, FromList}

// Part says how much of a spec.providerID such as aws:///eu-west-1a/i-0abc is the machine's ID.
type Part string

// The parts.
const (
	Last Part = "last" // what follows the last slash
	All  Part = "all"
)

// Source says how a rule finds the ID of a node's machine.
type Source struct {
	From       From   `yaml:"from"`       // where the ID comes from
	Annotation string `yaml:"annotation"` // from annotation: its key
	Template   string `yaml:"template"`   // from template: a text with {name}, {label:KEY}, {annotation:KEY} or {uuid}
	// from providerID: which part of it; default last, or all if the provider's IDs are whole providerIDs
	Part Part     `yaml:"part"`
	List []Listed `yaml:"list"` // from list
	// the hosts that IDs may name; must be set where a node names an address, and a template no domain
	Allow []string `yaml:"allow"`

	tmpl    *idTemplate
	allowed allowList     // the hosts of Allow, else those among which the template lets a node choose
	ids     providers.IDs // of the rule's provider; nil: any ID is canonical
	whole   bool          // its IDs are whole providerIDs
}

// hasTemplate reports whether a template makes the ID.
func (s *Source) hasTemplate() bool { return s.From == FromName || s.From == FromTemplate }

// isRead reports whether the checks found no fault in how the source finds IDs. They ask nothing more of a faulty one.
func (s *Source) isRead() bool {
	return slices.Contains(sources, s.From) && (!s.hasTemplate() || s.tmpl != nil)
}

// claimed reports whether a node's own kubelet can write what leads to its machine. That is the source of its ID, or
// the labels by which its rule is chosen. A list never claims a node that it does not name, even if the node's labels
// match.
func (n *NodeRule) claimed() bool {
	requirements, _ := n.selector.Requirements()
	return n.Machine.claimed() || n.Machine.From != FromList &&
		slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return kubeletWrites(r.Key()) })
}

// kubeletWrites reports whether the NodeRestriction admission lets a kubelet change a label of its own Node. It may
// change any label outside Kubernetes' own domains, and some within them.
func kubeletWrites(label string) bool {
	domain, _, qualified := strings.Cut(label, "/")
	in := func(d string) bool { return qualified && (domain == d || strings.HasSuffix(domain, "."+d)) }
	switch {
	case in("node-restriction.kubernetes.io"):
		return false
	case in("kubelet.kubernetes.io"), in("node.kubernetes.io"):
		return true
	case in("kubernetes.io"), in("k8s.io"):
		return slices.Contains([]string{
			corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
			corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
			corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		}, label)
	default:
		return true
	}
}

// claimed reports whether the node's own kubelet can write what the ID comes from.
func (s *Source) claimed() bool {
	switch s.From {
	case FromList:
		return false
	case FromName, FromTemplate:
		return s.tmpl == nil || s.tmpl.isClaimed()
	default:
		return true
	}
}

// namesHosts reports whether a node influences which host is asked and gets the password. A node's name counts, too: a
// client that may register Nodes chooses it.
func (s *Source) namesHosts() bool {
	return s.From != FromList && s.From != FromSystemUUID && s.ids != nil && s.ids.HasAddressIDs()
}

// listedHosts reports whether IDs are addresses that no kubelet may choose.
func (s *Source) listedHosts() bool {
	listed, ok := s.ids.(providers.ListedHosts)
	return ok && listed.HasAddressIDs()
}

// Listed is one node of a list and its machine.
type Listed struct {
	Node string `yaml:"node"` // its name
	ID   string `yaml:"id"`   // its machine, as the provider names it
}

// Assignment is the machine that the configuration assigns to a node, as one device knows it.
type Assignment struct {
	Provider string // the name of one of providers
	Target   providers.Target
	Fixed    bool   // the node gets no other machine as long as it exists (providers.ProviderIDs)
	Rule     string // the rule that claims the node
	Level    int    // the number of its level: the rule's own device is alone in the first, 0
	Limits   proof.Limits
	// Further holds the devices of the other levels that speak for the node's machine, in their order: Provider,
	// Target, Level and Limits. Claimed is false in all of them.
	Further []Assignment
	Within  []Host // the hosts that speak for the machine, of one of Further; nil: its provider does
}

// Why a node has no Assignment. A retry does not help before the Node or the file changes.
var (
	ErrNoMachine   = errors.New("no rule claims the node")
	ErrTwoMachines = errors.New("more than one rule claims the node")
	// A label, annotation, providerID or system UUID is missing or wrong.
	ErrNoID       = errors.New("the node does not tell its machine")
	ErrNotAllowed = errors.New("the node names a device that it may not name")

	// errOnlyLevels is the error for a rule whose levels are all under levels: no device of it follows from the Node.
	errOnlyLevels = fmt.Errorf("%w: its rule has levels alone, and none of them knows the node", ErrNoID)
)

// maxID bounds an ID from a node, in bytes, because it goes into a record.
const maxID = 512

// FindMachine finds a node's machine. It looks at every rule. A node that two rules claim has none (ErrTwoMachines
// names them), because asking the wrong device is worse than asking none. If the rule has further devices, and the
// first cannot be found, it returns the further ones with the error. Other errors are ErrNoMachine, ErrNoID and
// ErrNotAllowed. None repeats a wrong ID, which may hold a password. The ID is canonical. FindMachine is a pure
// function of the Config and the node.
func (c *Config) FindMachine(node *corev1.Node) (Assignment, error) {
	var rule *NodeRule
	var claims []string
	for i := range c.Nodes {
		if c.Nodes[i].claims(node) {
			rule = &c.Nodes[i]
			claims = append(claims, rule.Name)
		}
	}
	switch {
	case len(claims) == 0:
		return Assignment{}, fmt.Errorf("finding the machine of node %s: %w", node.Name, ErrNoMachine)
	case len(claims) > 1:
		return Assignment{},
			fmt.Errorf("finding the machine of node %s: %w: %s", node.Name, ErrTwoMachines, strings.Join(claims, ", "))
	}
	further := rule.further(node)
	var m Assignment
	err := errOnlyLevels
	if rule.Provider != "" {
		m, err = rule.Machine.machine(node, rule.Provider)
		m.Limits = rule.limits[0]
	}
	switch {
	case err != nil:
		err = fmt.Errorf("finding the machine of node %s (rule %s): %w", node.Name, rule.Name, err)
		if len(further) == 0 {
			return Assignment{}, err
		}
	case len(rule.Within) > 0:
		further = append(further, rule.within(m))
	}
	m.Target.Claimed = m.Provider != "" && rule.claimed()
	m.Rule = rule.Name
	if all := whole(append([]Assignment{m}, further...)); len(all) > 1 {
		m.Further = all[1:]
	}
	return m, err
}

// confirmType is the type of the providers that read what a person confirms.
const confirmType = "confirm"

// ReadsConfirmation reports whether one of the node's devices is of a provider of type confirm: only then does
// `forcefence confirm-off` prove anything. err is why the node has no machine, or why its first device is unknown.
func (c *Config) ReadsConfirmation(node *corev1.Node) (reads bool, err error) {
	isConfirm := func(a Assignment) bool {
		return slices.ContainsFunc(c.Providers, func(p Provider) bool {
			return p.Name == a.Provider && p.Type == confirmType
		})
	}
	machine, err := c.FindMachine(node) // it returns the other levels with an error
	return isConfirm(machine) || slices.ContainsFunc(machine.Further, isConfirm), err
}

// machine returns the node's machine at one provider.
func (s *Source) machine(node *corev1.Node, provider string) (Assignment, error) {
	id, err := s.id(node)
	if err == nil {
		id, err = s.canonical(id)
	}
	if err != nil {
		return Assignment{}, err
	}
	return Assignment{
		Provider: provider, Fixed: s.whole,
		Target: providers.Target{
			Node:       node.Name,
			ID:         id,
			SystemUUID: node.Status.NodeInfo.SystemUUID,
			Addresses:  AddressesOf(node),
			Named:      s.hasTemplate(),
		},
	}, nil
}

// AddressesOf returns the IP addresses that a Node reports.
func AddressesOf(node *corev1.Node) providers.Addresses {
	// NewAddresses skips host names.
	return providers.NewAddresses(
		mapList(node.Status.Addresses, func(a corev1.NodeAddress) string { return a.Address })...)
}

func (n *NodeRule) claims(node *corev1.Node) bool {
	return n.selector.Matches(labels.Set(node.Labels)) &&
		(n.Machine.From != FromList || n.Machine.listed(node.Name) != nil)
}

// listed returns the list's item for a node; nil if there is none.
func (s *Source) listed(node string) *Listed {
	i := slices.IndexFunc(s.List, func(e Listed) bool { return e.Node == node })
	if i < 0 {
		return nil
	}
	return &s.List[i]
}

// id returns the provider's own name of the node's machine, never "" except from systemUUID.
func (s *Source) id(node *corev1.Node) (id string, err error) {
	switch s.From {
	case FromSystemUUID:
		if _, ok := providers.ParseUUID(node.Status.NodeInfo.SystemUUID); !ok {
			err = fmt.Errorf("%w: system UUID %q identifies no machine", ErrNoID, node.Status.NodeInfo.SystemUUID)
		}
	case FromProviderID:
		id = node.Spec.ProviderID
		if s.Part == Last {
			id = id[strings.LastIndex(id, "/")+1:]
		}
		if id == "" {
			err = fmt.Errorf("%w: spec.providerID is %q", ErrNoID, node.Spec.ProviderID)
		}
	case FromAnnotation:
		if id = strings.TrimSpace(node.Annotations[s.Annotation]); id == "" {
			err = fmt.Errorf("%w: annotation %s is missing or empty", ErrNoID, s.Annotation)
		}
	case FromName, FromTemplate:
		return s.tmpl.id(node, s.namesHosts() && len(s.Allow) == 0)
	case FromList:
		e := s.listed(node.Name)
		if e == nil {
			return "", fmt.Errorf("%w: it is not in the list", ErrNoID)
		}
		id = strings.TrimSpace(e.ID)
	}
	return id, err
}

// canonical returns the canonical form of an ID. It returns an error for an ID that the rule does not allow.
func (s *Source) canonical(id string) (string, error) {
	if len(id) > maxID {
		return "", fmt.Errorf("%w: its ID has more than %d bytes", ErrNoID, maxID)
	}
	if strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		// A terminal would obey it.
		return "", fmt.Errorf("%w: its ID has a character that cannot be printed", ErrNoID)
	}
	if s.ids == nil || id == "" {
		return id, nil
	}
	id, hosts, err := s.readID(id)
	switch {
	case errors.Is(err, errClearText):
		return "", fmt.Errorf("%w: its ID %w", ErrNotAllowed, err)
	case err != nil:
		return "", fmt.Errorf("%w: its ID %w", ErrNoID, err)
	case s.namesHosts() && !s.allowed.hasAll(hosts):
		in := "allow"
		if len(s.Allow) == 0 {
			in = "a domain that the template writes out"
		}
		return "", fmt.Errorf("%w: %s is not in %s", ErrNotAllowed, strings.Join(hosts, ", "), in)
	}
	return id, nil
}

// errClearText is why a Node's ID is not used.
var errClearText = errors.New("is http://, and the source of an ID may not decide that the password is sent in clear " +
	"text")

// readID returns the canonical form of an ID, and the hosts that it names, whether or not they are allowed.
func (s *Source) readID(id string) (canonical string, hosts []string, err error) {
	canonical, hosts, err = s.ids.CanonicalID(id)
	if err == nil && s.namesHosts() && s.claimed() && strings.HasPrefix(canonical, "http://") {
		err = errClearText
	}
	return canonical, hosts, err
}

// parts returns the parts of a canonical ID that no two machines may share.
func (s *Source) parts(id string) []string {
	if p, ok := s.ids.(providers.Parts); ok && id != "" {
		return p.PartsOf(id)
	}
	return []string{id}
}

// Identity names the machine as it is compared and recorded.
func (m Assignment) Identity() taint.MachineRef {
	return taint.MachineRef{
		Provider:   m.Provider,
		ID:         m.Target.ID,
		SystemUUID: providers.CanonicalUUID(m.Target.SystemUUID),
	}
}

// MachineClaims returns which machines the nodes claim, and their pins. Two nodes may lead to one machine: by a
// template that leaves something out, an annotation copied from node to node, or cloned system UUIDs. It is a pure
// function of the Config and the nodes.
func (c *Config) MachineClaims(nodes []*corev1.Node) []taint.Claim {
	out := make([]taint.Claim, 0, len(nodes))
	for _, node := range nodes {
		claim := taint.Claim{Node: node.Name, Pin: node.Labels[taint.PinLabel]}
		m, err := c.FindMachine(node)
		if err == nil {
			claim.Machine, claim.Claimed = m.Identity(), m.Target.Claimed
		}
		out = append(out, claim)
		for _, f := range m.Further {
			machine := taint.MachineRef{Provider: f.Provider, ID: f.Target.ID}
			out = append(out, taint.Claim{Node: node.Name, Machine: machine})
		}
	}
	return out
}

// MayNameMachine reports whether some rule may lead the node to that machine of that provider. A machine in a record is
// asked only while this holds. What a kubelet writes may change, and leads to any host in allow. A list or a name leads
// the node to one machine, and to no other.
func (c *Config) MayNameMachine(node *corev1.Node, provider, id string) bool {
	is := func(p string, s *Source) bool {
		led, err := id, error(nil)
		if p == provider && !s.claimed() {
			led, err = s.id(node)
		}
		if err == nil {
			led, err = s.canonical(led)
		}
		return p == provider && err == nil && led == id
	}
	return slices.ContainsFunc(c.Nodes, func(n NodeRule) bool {
		return is(n.Provider, &n.Machine) ||
			slices.ContainsFunc(n.devices(), func(d *Device) bool { return is(d.Provider, &d.Machine) })
	})
}
