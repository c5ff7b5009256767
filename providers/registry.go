package providers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is one provider type's part of the configuration file: a pointer to a struct whose fields carry `yaml` tags, filled
// by the configuration's reader over the defaults that Type.NewConfig set. Supported field types: string, bool, int, float64,
// time.Duration (written with a unit), types with a text form of their own (encoding.TextUnmarshaler; its error says what is wrong with
// the text and does not repeat it), slices and string-keyed maps of them, nested structs. A struct that is embedded with the tag
// `yaml:",inline"` adds its keys to those of the struct around it: providers/remote has such blocks.
type Config interface {
	// Validate returns every fault, with paths relative to this config ("address"). It reads files it names, asks no device.
	Validate() []Problem
	// New makes the provider. It contacts no device: a BMC that is down at start must not keep the controller down.
	New(Options) (Provider, error)
}

// IDs is a Config whose machines' IDs can be written in several ways, or are addresses. It is asked for every ID before anything is
// compared or connected to; without it an ID stands for itself.
type IDs interface {
	// HasAddressIDs reports whether an ID is the address of a device, so that whoever names a machine chooses who gets the credentials.
	HasAddressIDs() bool
	// CanonicalID returns the one way to write an ID. Hosts are those that the credentials go to where the ID is an address, or several
	// (a machine with two power supplies at two power strips); none where it is no address. The error says what is wrong with the ID,
	// and does not repeat it: it may hold a password. It asks no device.
	CanonicalID(id string) (canonical string, hosts []string, err error)
}

// Parts is an IDs whose IDs name several things that belong to one machine alone: the outlets of power strips. Two IDs that are not the
// same may still share one; a list in which two nodes do is refused.
type Parts interface {
	// PartsOf returns the parts of a canonical ID, each in the one way to write it.
	PartsOf(canonical string) []string
}

// ProviderIDs is an IDs whose IDs are whole providerIDs of Nodes (aws:///eu-west-1a/i-0abc). Kubernetes lets nobody change the one that
// a Node has, and a cloud gives none twice: so a node that was led to one machine is never believed to be another as long as it exists,
// unless a person removes its pin, and a rule with `from: providerID` takes all of it.
type ProviderIDs interface {
	IDs
	ProviderIDs()
}

// ListedHosts is an IDs whose devices get their credentials from a program of somebody else, and tell nobody who the machine is. Where an ID
// is an address, a rule by which a kubelet may choose it is refused, whatever the rule allows.
type ListedHosts interface {
	IDs
	// ListedHosts does nothing: having it is what is asked about.
	ListedHosts()
}

// SharesPower is a Config whose devices have their power with their machines (a BMC): where that is lost they are silent, and silence is
// not off.
type SharesPower interface {
	// SharesPower does nothing: having it is what is asked about.
	SharesPower()
}

// Cautious is a Config with settings that are allowed, and have a risk.
type Cautious interface {
	// Cautions returns those that are set, and for each what may go wrong. check-config and the log show them.
	Cautions() []Problem
}

// Mute is a Config whose devices may be set to say anything but Off: they only make others be asked.
type Mute interface {
	// NeverOff reports that they are.
	NeverOff() bool
}

// Problem is one fault of a configuration: where, and what is wrong and what to do.
type Problem struct {
	Path string // "tls.caFile", relative to the Config; "" for the whole
	Text string
	Err  error // the cause, where there is one: fs.ErrNotExist is a file that may be there elsewhere
}

// Problemf makes a Problem; the last error among the arguments is its cause.
func Problemf(path, format string, args ...any) Problem {
	p := Problem{Path: path, Text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			p.Err = err
		}
	}
	return p
}

// Options is what every provider is given beside its own configuration.
type Options struct {
	Name  string           // the provider's name in the file
	Agent string           // what devices that speak HTTP are told of who asks, as in User-Agent; "": forcefence
	Log   *slog.Logger     // nil: slog.Default()
	Now   func() time.Time // nil: time.Now
	// Node reads a Node live, for types whose word stands there. Its errors are ErrNotFound, ErrDenied and ErrUnreachable. Nil: there is no
	// API server.
	Node func(ctx context.Context, name string) (Node, error)
}

// Node is what a provider may know of a Node of Kubernetes.
type Node struct {
	UID, BootID string
	Ready       string // the condition's status: True, False or Unknown; "" if there is none
	Taints      []NodeTaint
	Confirmed   Confirmed
}

// Confirmed is a person's statement on a Node that its machine is off. The zero value is none.
type Confirmed struct {
	By, Reason string    // who says so, and how he knows; By is "" where nobody does
	At         time.Time // when
	Refused    string    // "" or why it is not one of this Node, this boot and its fence: By is "" then
}

// NodeTaint is one taint of a Node.
type NodeTaint struct{ Key, Value, Effect string }

// WithDefaults returns o with nil fields filled.
func (o Options) WithDefaults() Options {
	if o.Agent == "" {
		o.Agent = "forcefence"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Type is one device family. Off and Identity are for people: docs/providers.md and `forcefence providers` show them.
type Type struct {
	Name      string // the key of its settings in the file: "redfish"
	NewConfig func() Config
	Off       string // what "off" means there, as a short phrase: "PowerState Off of the system"
	Identity  string // what the device tells of who its machine is, likewise; "none" if nothing
	// Concurrency is the default of the setting of that name: calls in flight to what shares limits. Zero is the guard's own default,
	// which is for small computers; a cloud bears more.
	Concurrency int
}

// Registry is a set of provider types, passed as a value so that tests can use their own.
type Registry []Type

// FindType returns the type of that name.
func (r Registry) FindType(name string) (Type, bool) {
	i := slices.IndexFunc(r, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return r[i], true
}

// TypeNames returns the names of all types, sorted.
func (r Registry) TypeNames() []string {
	names := make([]string, 0, len(r))
	for _, t := range r {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// Secret is a value that must not be printed. Every fmt verb, slog and JSON show "<secret>"; Reveal is the only way to it.
//
// It holds a pointer because fmt does not call the methods of a value in another struct's unexported field: it walks into it,
// and would find a string, but only prints the address of a pointer.
type Secret struct{ value *string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{&value} }

// Reveal returns the value, for the one place that sends it to the device. The zero Secret reveals "".
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

const redacted = "<secret>"

// String and the methods below keep the value out of every kind of output.
func (s Secret) String() string { return redacted }

// GoString is %#v.
func (s Secret) GoString() string { return redacted }

// Format is every verb of fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText is JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// SecretRef says where a secret is: in a file (its trailing newline is dropped) or in an environment variable. It is read when
// it is used, so that a rotated file is picked up without a reload. The file may be each machine's own (ReadSecretOf).
type SecretRef struct{ File, Env string }

// CheckReadable tells what can be told of the secret before it is used: that one place is named, and that a file is there and not empty. An
// environment variable may be set later, where the controller runs.
func (r SecretRef) CheckReadable() error {
	switch {
	case PerMachine(r.Env):
		return errors.New("an environment variable is the same for all machines: give a file")
	case r.Env != "" && r.File == "":
		return nil
	case r.Env == "" && PerMachine(r.File):
		return r.checkFolder()
	}
	_, err := r.ReadSecret()
	return err
}

// ReadSecret returns the secret. The error never contains it.
func (r SecretRef) ReadSecret() (Secret, error) {
	switch {
	case r.File != "" && r.Env != "":
		return Secret{}, errors.New("both a file and an environment variable are given: keep one")
	case r.File != "":
		b, err := os.ReadFile(r.File)
		if err != nil {
			return Secret{}, fmt.Errorf("reading secret: %w", err)
		}
		return secretOf(b, r.File)
	case r.Env != "":
		v := os.Getenv(r.Env)
		if v == "" {
			return Secret{}, fmt.Errorf("reading secret: environment variable %s is empty or not set", r.Env)
		}
		return NewSecret(v), nil
	default:
		return Secret{}, errors.New("missing: give it by file or by environment variable")
	}
}

// secretOf is what a secret's file holds.
func secretOf(content []byte, file string) (Secret, error) {
	v := strings.TrimRight(string(content), "\r\n")
	if v == "" {
		return Secret{}, fmt.Errorf("reading secret: %s is empty", file)
	}
	return NewSecret(v), nil
}
