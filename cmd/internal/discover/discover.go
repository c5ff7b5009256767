// Package discover finds which device controls the machine of which node, and writes a configuration from that. It
// compares what Nodes report with what BMCs report (Scan) and with the BareMetalHosts of Metal3 (HostOf).
//
// It promises: it changes no machine's power and nothing in the cluster. A BMC gets a password only if its certificate
// is trusted, or if the user named its address. A node gets a device only if one device alone fits it, and no other
// node. The texts of BMCs and BareMetalHosts are those of others: code that shows them must escape them. The written
// file has none of them but addresses that the types of providers accept, and it has no password.
package discover

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ipmi"
	"github.com/forcefence/forcefence/providers/redfish"
)

// Protocol is how a device is asked, as the name of a type of providers.
type Protocol string

// The protocols.
const (
	Redfish Protocol = "redfish"
	IPMI    Protocol = "ipmi"
)

// Match is a node with its device.
type Match struct {
	Node        string
	Protocol    Protocol
	ID          string // of the machine, as the configuration has it
	By          string // what showed it, for people
	Secret      string // the Secret with its credentials, namespace/name; "": those of all
	Fingerprint string // SHA-256 of the device's certificate, if nothing else trusts it

	rank int // 0: the device reported the node's system UUID; 1: Metal3 assigned it
}

// Left is something without a match, and why.
type Left struct{ Name, Why string }

// Result is what was found.
type Result struct {
	Matches   []Match // by node
	Nodes     []Left  // without a device
	Devices   []Left  // without a node
	Cloud     Cloud   // where all nodes run, if that alone finds their machines
	Regions   []string
	NodeCount int
}

// Cloud is where the nodes of a cluster run, from a closed set. The zero value is anywhere else.
type Cloud string

// The clouds whose nodes are found by what each Node reports.
const (
	EC2          Cloud = "ec2"
	GCE          Cloud = "gce"
	Azure        Cloud = "azure"
	OpenStack    Cloud = "openstack"
	Hetzner      Cloud = "hetzner"
	DigitalOcean Cloud = "digitalocean"
	UpCloud      Cloud = "upcloud"
	Containers   Cloud = "container"
)

// Devices finds the devices of the nodes. It does not change its input.
func Devices(nodes []*corev1.Node, hosts []Host, bmcs []BMC) Result {
	r := Result{NodeCount: len(nodes)}
	r.Cloud, r.Regions = cloudOf(nodes)
	var chosen []Match
	why := map[string]string{} // by node
	for _, n := range nodes {
		m, problem := chooseCandidate(findCandidates(n, hosts, bmcs))
		switch {
		case problem != "":
			why[n.Name] = problem
		case m == nil:
			why[n.Name] = explainNone(n)
		default:
			chosen = append(chosen, *m)
		}
	}
	for _, m := range chosen {
		if other, ok := rivalOf(m, chosen); ok {
			why[m.Node] = fmt.Sprintf("node %s leads to the same device, %s", other.Node, m.ID)
			continue
		}
		r.Matches = append(r.Matches, m)
	}
	slices.SortFunc(r.Matches, func(a, b Match) int { return cmp.Compare(a.Node, b.Node) })
	for _, n := range nodes {
		if text, ok := why[n.Name]; ok && r.Cloud == "" {
			r.Nodes = append(r.Nodes, Left{n.Name, text})
		}
	}
	slices.SortFunc(r.Nodes, func(a, b Left) int { return cmp.Compare(a.Name, b.Name) })
	r.Devices = unusedDevices(r.Matches, hosts, bmcs)
	return r
}

// findCandidates returns the devices that may be a node's.
func findCandidates(n *corev1.Node, hosts []Host, bmcs []BMC) (out []Match) {
	uuid := providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID)
	for _, b := range bmcs {
		for _, s := range b.Systems {
			if uuid == "" || providers.CanonicalUUID(s.UUID) != uuid {
				continue
			}
			if id, err := b.idOf(s); err == nil {
				out = append(out, Match{
					Node: n.Name, Protocol: b.Protocol, ID: id, By: "system UUID", Fingerprint: b.Fingerprint,
				})
			}
		}
	}
	for _, h := range hosts {
		by := h.matchedBy(n)
		if by == "" {
			continue
		}
		if protocol, id, err := h.device(); err == nil {
			out = append(out, Match{
				Node: n.Name, Protocol: protocol, ID: id, By: fmt.Sprintf("BareMetalHost %s (%s)", h.name(), by),
				Secret: h.secret(), rank: 1,
			})
		}
	}
	return out
}

// chooseCandidate returns the best candidate, or why there is none. A device that reported the node's system UUID is
// better than what Metal3 says. nil without a problem: there are no candidates.
func chooseCandidate(all []Match) (*Match, string) {
	if len(all) == 0 {
		return nil, ""
	}
	slices.SortStableFunc(all, func(a, b Match) int { return cmp.Compare(a.rank, b.rank) })
	first := all[0]
	for _, m := range all[1:] {
		if m.rank == first.rank && !sameDevice(m, first) {
			return nil, fmt.Sprintf("two devices fit: %s and %s", first.ID, m.ID)
		}
	}
	for _, m := range all[1:] {
		if sameDevice(m, first) {
			first.Secret = cmp.Or(first.Secret, m.Secret)
		}
	}
	return &first, ""
}

// rivalOf returns a match of another node with the same device, unless m has the better reason.
func rivalOf(m Match, all []Match) (Match, bool) {
	for _, o := range all {
		if o.Node != m.Node && sameDevice(m, o) && o.rank <= m.rank {
			return o, true
		}
	}
	return Match{}, false
}

// sameDevice reports whether two matches lead to the same machine: one may name the system behind the address.
func sameDevice(a, b Match) bool {
	hostA, pathA := splitID(a.ID)
	hostB, pathB := splitID(b.ID)
	return hostA == hostB && (pathA == pathB || pathA == "" || pathB == "")
}

// splitID returns an ID's host, with a port that is not the default, and the path behind it. A BMC may speak two
// protocols at their default ports.
func splitID(id string) (host, path string) {
	u, err := url.Parse(id)
	if err != nil {
		return id, ""
	}
	return u.Host, u.EscapedPath()
}

// explainNone returns why nothing fits a node.
func explainNone(n *corev1.Node) string {
	if providers.CanonicalUUID(n.Status.NodeInfo.SystemUUID) == "" {
		return fmt.Sprintf("its system UUID %q identifies no machine, and it has no BareMetalHost",
			n.Status.NodeInfo.SystemUUID)
	}
	if scheme, _, ok := strings.Cut(n.Spec.ProviderID, "://"); ok {
		return fmt.Sprintf("no device reports its system UUID, and its providerID (%s) leads to none", scheme)
	}
	return "no device reports its system UUID, and it has no BareMetalHost"
}

// unusedDevices returns the devices without a node.
func unusedDevices(matches []Match, hosts []Host, bmcs []BMC) (out []Left) {
	used := func(id string) bool {
		return slices.ContainsFunc(matches, func(m Match) bool { return sameDevice(m, Match{ID: id}) })
	}
	for _, b := range bmcs {
		unused := slices.DeleteFunc(slices.Clone(b.Systems), func(s redfish.SystemIdentity) bool {
			id, err := b.idOf(s)
			return err == nil && used(id)
		})
		switch {
		case len(b.Systems) > 0 && len(unused) == 0, len(b.Systems) == 0 && used(b.ID):
		case len(b.Systems) > 0 && len(unused) < len(b.Systems):
			why := fmt.Sprintf("%d of its %d systems are no node's", len(unused), len(b.Systems))
			out = append(out, Left{b.ID, why})
		default:
			out = append(out, Left{b.ID, cmp.Or(b.Trouble, "none of its systems has a node's system UUID")})
		}
	}
	for _, h := range hosts {
		name := "BareMetalHost " + h.name()
		switch _, id, err := h.device(); {
		case err != nil:
			out = append(out, Left{name, err.Error()})
		case !used(id):
			out = append(out, Left{name, "no node is its own"})
		}
	}
	return out
}

// cloudOf returns where all nodes run.
func cloudOf(nodes []*corev1.Node) (_ Cloud, regions []string) {
	all := func(prefix string) bool {
		return len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
			return !strings.HasPrefix(n.Spec.ProviderID, prefix)
		})
	}
	switch {
	case all("kind://"):
		return Containers, nil
	case all("hcloud://"):
		return Hetzner, nil
	case all("gce://"):
		return GCE, nil
	case all("azure:///"):
		return Azure, nil
	case all("digitalocean://"):
		return DigitalOcean, nil
	case all("upcloud:////"):
		return UpCloud, nil
	case all("openstack://"):
		return OpenStack, nil
	case all("aws:///"):
		for _, n := range nodes {
			zone, _, _ := strings.Cut(strings.TrimPrefix(n.Spec.ProviderID, "aws:///"), "/")
			ofZone := strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz")
			region := cmp.Or(n.Labels[corev1.LabelTopologyRegion], ofZone)
			if region != "" && !slices.Contains(regions, region) {
				regions = append(regions, region)
			}
		}
		slices.Sort(regions)
		return EC2, regions
	}
	return "", nil
}

// canonicalID returns an ID as the provider's type writes it, or an error if the type does not take it.
func canonicalID(p Protocol, id string) (string, error) {
	var ids providers.IDs = redfish.NewConfig()
	if p == IPMI {
		ids = ipmi.NewConfig()
	}
	canonical, _, err := ids.CanonicalID(id)
	if err == nil && p == Redfish && !strings.HasPrefix(canonical, "https://") {
		err = fmt.Errorf("is not https://")
	}
	return canonical, err
}
