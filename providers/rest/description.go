package rest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Description describes a family of devices that speak HTTP and JSON. README.md explains each key.
type Description struct {
	Name     string `yaml:"name"`     // of the type
	Off      string `yaml:"off"`      // what "off" means, as a short phrase
	Identity string `yaml:"identity"` // what the device reports about its machine's identity, likewise
	ID       string `yaml:"id"`       // a regular expression of a target's ID; its named groups are variables
	// true: each machine has a device of its own, and an ID begins with that device's address
	AddressIDs bool `yaml:"addressIDs"`
	// true: an ID is the whole providerID of a Node, and the cloud assigns none twice (providers.ProviderIDs)
	ProviderIDs bool `yaml:"providerIDs"`
	// true: the devices only supply power, and On does not mean that the machine runs (providers.Feeder)
	Feeds bool `yaml:"feeds"`
	// true: a machine that lost its power is not Off there, as a guest of a dead host (providers.SharesPower)
	SharesPower bool             `yaml:"sharesPower"`
	Values      map[string]Value `yaml:"values"` // settings that become variables
	Login       Login            `yaml:"login"`
	Find        []Request        `yaml:"find"` // sent first in every call; they find out where the machine is
	State       State            `yaml:"state"`
	List        *List            `yaml:"list"`   // nil: machines are asked one by one
	Events      *Events          `yaml:"events"` // nil: devices report nothing by themselves
	PowerOff    Action           `yaml:"powerOff"`
	PowerOn     Action           `yaml:"powerOn"`
	Cases       []Case           `yaml:"cases"`
}

// Value is a setting of the operator's that requests and expressions use.
type Value struct {
	What    string  `yaml:"what"`    // for people
	Default *string `yaml:"default"` // nil: the setting is required
	Sample  string  `yaml:"sample"`  // in cases; "": the default, or the setting's own name
	Risk    string  `yaml:"risk"`    // what may go wrong with another value than the default; "": nothing
}

// Login says how requests are authenticated. Username and password are the operator's.
type Login struct {
	Kind    string `yaml:"kind"`    // one of loginKinds
	Refused []int  `yaml:"refused"` // statuses beside 401 that mean that the credentials are wrong
	// header, token: the header that each request has, and its value: a template with {user} and {password}, or {token}
	Header string `yaml:"header"`
	Value  string `yaml:"value"`
	// token: the request that gets a token; CEL over its answer, `login`; and how long the token is used
	Request  *Request      `yaml:"request"`
	Token    string        `yaml:"token"`
	Lifetime time.Duration `yaml:"lifetime"`
	// token: the name of the value with the address to which the request is sent; "": the device's own
	Address string `yaml:"address"`
	// metadata: the request for a token of the cloud's metadata server. serviceAccount, oauth2: the same, sent if the
	// operator gives no credentials
	Metadata *Request `yaml:"metadata"`
	// oauth2, serviceAccount: the address of the token endpoint and scopes. oauth2: how it takes the credentials,
	// params or header
	TokenURL string   `yaml:"tokenURL"`
	Scopes   []string `yaml:"scopes"`
	Style    string   `yaml:"style"`
}

// Request is one request. Its answer is a variable of its name: status, header and body.
type Request struct {
	Name    string            `yaml:"name"`
	Send    string            `yaml:"send"`    // method and path: GET /nodes/{node}
	Header  map[string]string `yaml:"header"`  // templates
	JSON    any               `yaml:"json"`    // the body; its texts are templates
	Form    map[string]string `yaml:"form"`    // the body, as of an HTML form; templates
	Expect  []int             `yaml:"expect"`  // statuses; default 200, and for requests that act 201, 202 and 204 too
	Require string            `yaml:"require"` // CEL, a bool: false refuses the call before this request is sent
	// of State, CEL, a bool: false leaves the request out, and then it has no answer
	When string `yaml:"when"`
	// CEL, texts: variables that this answer gives. An empty text means that there is no such machine.
	Set map[string]string `yaml:"set"`
}

// State says how a machine's state is read.
type State struct {
	Requests  []Request `yaml:"requests"`
	Power     string    `yaml:"power"`     // CEL, a map with state (On, Off, Changing or Unknown) and word
	UUID      string    `yaml:"uuid"`      // CEL, a text; "": the device reports none
	Addresses string    `yaml:"addresses"` // CEL, a list of texts
}

// Action says how power is switched.
type Action struct {
	Requests []Request `yaml:"requests"`
	Accepted string    `yaml:"accepted"` // CEL, a bool
}

// Record is a set of recorded answers.
type Record struct {
	Name string `yaml:"name"`
	Like string `yaml:"like"` // an earlier case, whose target and answers this one has, changed by what follows
	// by the request's name
	Answers map[string]Answer `yaml:"answers"`
	// by the path of what is replaced ("status/data/lock": the request's name, and keys and indices in its body)
	Change map[string]any `yaml:"change"`
	Remove []string       `yaml:"remove"` // paths, likewise
}

// Case is a set of recorded answers, and what must follow from them.
type Case struct {
	Record `yaml:",inline"`
	ID     string `yaml:"id"` // of the target
	Want   Want   `yaml:"want"`
}

// Answer is a recorded answer.
type Answer struct {
	Status int               `yaml:"status"` // default 200
	Header map[string]string `yaml:"header"`
	Body   any               `yaml:"body"`
}

// Want is the required result of a case.
type Want struct {
	State string `yaml:"state"`
	Word  string `yaml:"word"`
	UUID  string `yaml:"uuid"`
	Error string `yaml:"error"` // the class of the error: unreachable, denied, not_found, permanent; "": none
	// what the case's answer `event` is about: an ID, "" for none, or "*" for any machine
	About string `yaml:"about"`
}

// Fault is a fault of a description.
type Fault struct {
	Line int    // from 1
	Path string // state.power; "" for the whole
	Text string // what is wrong, and what to do
}

// Error returns "line: path: text".
func (f Fault) Error() string {
	if f.Path == "" {
		return fmt.Sprintf("%d: %s", f.Line, f.Text)
	}
	return fmt.Sprintf("%d: %s: %s", f.Line, f.Path, f.Text)
}

// Faults are all faults of a description, by line.
type Faults []Fault

// Error returns a line for each fault.
func (f Faults) Error() string {
	var all []string
	for _, one := range f {
		all = append(all, one.Error())
	}
	return strings.Join(all, "\n")
}

// InFile returns the faults as an error whose lines begin with the file's name.
func (f Faults) InFile(file string) error {
	var all []error
	for _, one := range f {
		all = append(all, errors.New(file+":"+one.Error()))
	}
	return errors.Join(all...)
}

// maxDescription is the maximum size of a description in bytes.
const maxDescription = 256 << 10

// ReadDescription reads a description's file, at most one byte more than a description may have.
func ReadDescription(file string) ([]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading description: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxDescription+1))
	if err != nil {
		return nil, fmt.Errorf("reading description: %w", err)
	}
	return text, nil
}

// parse reads a description strictly. The tree has the lines for later faults.
func parse[T any](text []byte) (d T, tree *yaml.Node, bad Faults) {
	if len(text) > maxDescription {
		return d, nil, Faults{{1, "", fmt.Sprintf("has more than %d bytes", maxDescription)}}
	}
	root := &yaml.Node{}
	if err := yaml.Unmarshal(text, root); err != nil {
		return d, nil, yamlFaults(err)
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return d, nil, Faults{{1, "", "is no description: write keys and values, as `name: proxmox`"}}
	}
	tree = root.Content[0]
	if line := findAlias(tree); line > 0 {
		return d, nil, Faults{{line, "", "anchors and aliases (&, *) are not read here: write the value out"}}
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&d); err != nil {
		return d, tree, yamlFaults(err)
	}
	if err := in.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return d, tree, Faults{{1, "", "several documents (---): a description is one"}}
	}
	return d, tree, nil
}

func findAlias(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return n.Line
	}
	for _, c := range n.Content {
		if line := findAlias(c); line > 0 {
			return line
		}
	}
	return 0
}

var (
	yamlLine    = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	unknownKey  = regexp.MustCompile(`^field (\S+) not found in type .+$`)
	goTypeNames = regexp.MustCompile(` into (?:\w+\.|\*|map|\[\])\S+`)
)

// yamlFaults returns what the YAML decoder reported.
func yamlFaults(err error) (out Faults) {
	all := []string{err.Error()}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		all = several.Errors
	}
	for _, text := range all {
		f := Fault{Line: 1, Text: strings.TrimPrefix(text, "yaml: ")}
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			f.Line, _ = strconv.Atoi(m[1])
			f.Text = text[len(m[0]):]
		}
		if m := unknownKey.FindStringSubmatch(f.Text); m != nil {
			f.Path, f.Text = m[1], "unknown key: providers/rest/README.md lists all"
		}
		f.Text = goTypeNames.ReplaceAllString(f.Text, " here")
		out = append(out, f)
	}
	return out
}

// lineOf returns the line of a path (state.requests[1].send), or of what would hold it.
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for _, step := range regexp.MustCompile(`[^.\[\]]+`).FindAllString(path, -1) {
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next, line = n.Content[i+1], n.Content[i].Line
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
				next, line = n.Content[i], n.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	return f
}
