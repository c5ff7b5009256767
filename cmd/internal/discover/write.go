package discover

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Where the manifests of deploy/ mount the Secrets with passwords, and the Secret's name for those of single machines.
const (
	sharedPassword  = "/etc/forcefence-bmc/password"
	sharedCA        = "/etc/forcefence-bmc/ca.pem"
	machinePassword = "/etc/forcefence-machines/{name}"
)

// WriteOptions are what a configuration needs beside the matches.
type WriteOptions struct {
	Username string // on the BMCs
	CA       bool   // an authority signed the BMCs' certificates
}

// The parts of a configuration file that are written. Package config reads them.
type (
	document struct {
		Mode      string     `yaml:"mode"`
		Providers []provider `yaml:"providers"`
		Nodes     []rule     `yaml:"nodes"`
	}
	provider struct {
		Name      string            `yaml:"name"`
		Redfish   *access           `yaml:"redfish,omitempty"`
		IPMI      *access           `yaml:"ipmi,omitempty"`
		EC2       *ec2              `yaml:"ec2,omitempty"`
		Presets   map[string]preset `yaml:",inline"` // at most one: a type that is described by data
		Container *container        `yaml:"container,omitempty"`
		Confirm   *confirm          `yaml:"confirm,omitempty"`
		Poll      string            `yaml:"poll,omitempty"`
	}
	access struct {
		Username     string        `yaml:"username"`
		PasswordFile string        `yaml:"passwordFile"`
		CAFile       string        `yaml:"caFile,omitempty"`
		Fingerprints []fingerprint `yaml:"fingerprints,omitempty"`
	}
	fingerprint struct {
		Host   string `yaml:"host"`
		SHA256 string `yaml:"sha256"`
	}
	ec2    struct{ Regions []string }
	preset struct {
		Address      string            `yaml:"address"`
		Username     string            `yaml:"username,omitempty"`
		PasswordFile string            `yaml:"passwordFile,omitempty"`
		Values       map[string]string `yaml:"values,omitempty"`
	}
	container struct{ Socket string }
	confirm   struct {
		ValidFor string `yaml:"validFor"`
	}
	rule struct {
		Name     string  `yaml:"name"`
		Selector string  `yaml:"selector"`
		Provider string  `yaml:"provider"`
		Machine  source  `yaml:"machine"`
		Levels   []level `yaml:"levels,omitempty"`
	}
	level  struct{ Devices []device }
	device struct {
		Provider string `yaml:"provider"`
		Machine  source `yaml:"machine"`
	}
	source struct {
		From     string   `yaml:"from"`
		Template string   `yaml:"template,omitempty"`
		List     []listed `yaml:"list,omitempty"`
	}
	listed struct {
		Node string `yaml:"node"`
		ID   string `yaml:"id"`
	}
)

// presets are the clouds whose type is described by data: what to write, and what is left to do.
var presets = map[Cloud]struct {
	preset   preset
	poll     string
	comments []string
}{
	Hetzner: {
		preset{Address: "https://api.hetzner.cloud", PasswordFile: sharedPassword},
		"30s", // a project may send 3,600 requests an hour
		[]string{"The API token of the project is the key `password` of the Secret forcefence-bmc."},
	},
	DigitalOcean: {
		preset{Address: "https://api.digitalocean.com", PasswordFile: sharedPassword},
		"30s", // a token may send 5,000 requests an hour
		[]string{"The API token is the key `password` of the Secret forcefence-bmc."},
	},
	UpCloud: {
		preset{Address: "https://api.upcloud.com", PasswordFile: sharedPassword}, "30s",
		[]string{"The API token is the key `password` of the Secret forcefence-bmc."},
	},
	GCE: {preset: preset{Address: "https://compute.googleapis.com"}, comments: []string{
		"forcefence uses the service account of its own machine or pod. With a key of another one add",
		"`passwordFile: " + sharedPassword + "`.",
	}},
	Azure: {preset: preset{Address: "https://management.azure.com"}, comments: []string{
		"forcefence uses the managed identity of its own machine. With an application's secret add `username`,",
		"`passwordFile: " + sharedPassword + "` and `values: {tenant: ID}`.",
	}},
	OpenStack: {
		preset: preset{
			Address: "https://nova.example.net:8774/v2.1", Username: "application-credential",
			PasswordFile: sharedPassword, Values: map[string]string{"identity": "https://keystone.example.net:5000/v3"},
		},
		comments: []string{
			"Write the addresses of Nova and Keystone, and the ID of an application credential as username. Its",
			"secret is the key `password` of the Secret forcefence-bmc.",
		},
	},
}

// Configuration writes the file config.yaml, in mode observe. Its comments say what is left to do. It has no password:
// it names the files in which the manifests of deploy/ mount them.
func (r Result) Configuration(o WriteOptions) ([]byte, error) {
	d := document{Mode: "observe", Providers: []provider{}, Nodes: []rule{}}
	for _, protocol := range []Protocol{Redfish, IPMI} {
		for _, own := range []bool{false, true} {
			d.addList(r.Matches, protocol, own, o)
		}
	}
	switch r.Cloud {
	case EC2:
		d.Providers = append(d.Providers, provider{Name: "ec2", EC2: &ec2{r.Regions}})
		d.Nodes = append(d.Nodes, rule{Name: "ec2", Provider: "ec2", Machine: source{From: "providerID"}})
	case Hetzner, GCE, Azure, OpenStack, DigitalOcean, UpCloud:
		name, c := string(r.Cloud), presets[r.Cloud]
		d.Providers = append(d.Providers,
			provider{Name: name, Presets: map[string]preset{name: c.preset}, Poll: c.poll})
		d.Nodes = append(d.Nodes, rule{Name: name, Provider: name, Machine: source{From: "providerID"}})
	case Containers:
		d.Providers = append(d.Providers, provider{Name: "containers", Container: &container{"/var/run/docker.sock"}})
		d.Nodes = append(d.Nodes, rule{
			Name: "containers", Provider: "containers", Machine: source{From: "name"},
		})
	}
	if r.Cloud != Containers {
		d.addPeople()
	}
	var b bytes.Buffer
	for _, line := range r.comments() {
		b.WriteString("# " + line + "\n")
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// addPeople adds a person as the last level of each rule: BMCs and clouds say no Off of a machine that lost its power.
func (d *document) addPeople() {
	const name = "people"
	d.Providers = append(d.Providers, provider{Name: name, Confirm: &confirm{"15m"}})
	person := device{name, source{From: "name"}}
	for i := range d.Nodes {
		d.Nodes[i].Levels = []level{{Devices: []device{person}}}
	}
}

// addList adds a provider and a rule for the matches of one protocol: those whose machines share a password, or those
// that have their own.
func (d *document) addList(all []Match, protocol Protocol, own bool, o WriteOptions) {
	name, settings := string(protocol), &access{Username: o.Username, PasswordFile: sharedPassword}
	if own {
		name, settings.PasswordFile = "metal3-"+name, machinePassword
	}
	if o.CA && protocol == Redfish {
		settings.CAFile = sharedCA
	}
	var list []listed
	for _, m := range all {
		if m.Protocol != protocol || (m.Secret != "") != own {
			continue
		}
		list = append(list, listed{m.Node, m.ID})
		if m.Fingerprint != "" {
			host, _ := splitID(m.ID)
			if f := (fingerprint{host, m.Fingerprint}); !slices.Contains(settings.Fingerprints, f) {
				settings.Fingerprints = append(settings.Fingerprints, f)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	p := provider{Name: name, Redfish: settings}
	if protocol == IPMI {
		p = provider{Name: name, IPMI: settings}
	}
	d.Providers = append(d.Providers, p)
	d.Nodes = append(d.Nodes, rule{Name: name, Provider: name, Machine: source{From: "list", List: list}})
}

// comments returns the lines above the configuration. They have no text but names that Kubernetes accepts.
func (r Result) comments() []string {
	lines := []string{
		"Written by forcefence discover. Read it before you use it: Nodes report their system UUIDs and providerIDs",
		"themselves. Check it with `forcefence check-config --skip-files FILE`, and then with",
		"`forcefence drill --config FILE`.",
	}
	shared, own := false, false
	for _, m := range r.Matches {
		if m.Secret == "" {
			shared = true
			continue
		}
		if !own {
			own = true
			lines = append(lines, "The machines of metal3-... have the passwords of their BareMetalHosts' Secrets.",
				"Make a Secret forcefence-machines of these passwords, with the Nodes' names as keys.",
				"Set username to the one in these Secrets.")
		}
		namespace, secret, _ := strings.Cut(m.Secret, "/")
		if isName(m.Node) && isName(namespace) && isName(secret) {
			lines = append(lines, fmt.Sprintf("  %s: Secret %s in namespace %s", m.Node, secret, namespace))
		}
	}
	if r.Cloud != Containers {
		lines = append(lines, "The last level is a person, who confirms that a machine is off:",
			"`forcefence confirm-off NODE`.")
	}
	lines = append(lines, presets[r.Cloud].comments...)
	if shared {
		lines = append(lines, "The password is the key `password` of the Secret forcefence-bmc. The certificate of the",
			"authority, if there is one, is its key `ca.pem`.")
	}
	if len(r.Nodes) > 0 {
		lines = append(lines, fmt.Sprintf("Nodes without a device here (%d of %d):", len(r.Nodes), r.NodeCount))
		for _, n := range r.Nodes {
			if isName(n.Name) {
				lines = append(lines, "  "+n.Name)
			}
		}
	}
	return lines
}

// isName reports whether Kubernetes accepts the text as a name. Such a text is safe in a comment.
func isName(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }
