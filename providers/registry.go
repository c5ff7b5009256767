package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config is one provider type's part of the configuration file: a pointer to a struct whose fields have `yaml` tags.
// The reader of the configuration fills it over the defaults of Type.NewConfig. Supported field types: string, bool,
// int, float64, time.Duration (written with a unit), encoding.TextUnmarshaler, slices and string-keyed maps of them,
// nested structs. The error of an UnmarshalText names what is wrong and does not repeat the text. A struct that is
// embedded with the tag `yaml:",inline"` adds its keys to those of the struct around it.
// A list in the file replaces the default; a map adds to it.
type Config interface {
	// Validate returns every fault, with paths relative to this config ("address"). It reads files, and asks no device.
	Validate() []Problem
	// New returns the provider. It contacts no device: a BMC that is down at start must not keep the controller down.
	New(Options) (Provider, error)
}

// IDs is a Config whose machines' IDs can be written in several ways, or are addresses. It is called for every ID
// before anything is compared or connected to. Without it an ID is taken as it is written.
type IDs interface {
	// HasAddressIDs reports whether an ID is a device's address. Then its author chooses which host gets the
	// credentials.
	HasAddressIDs() bool
	// CanonicalID returns the canonical form of an ID, and the hosts that get the credentials if the ID is an address,
	// or several (two power supplies at two power strips). The error names what is wrong with the ID and does not
	// repeat it, because it may hold a password. "" is an ID if the type finds machines by their system UUID. It asks
	// no device.
	CanonicalID(id string) (canonical string, hosts []string, err error)
}

// Parts is an IDs whose IDs name several things that belong to one machine alone: the outlets of power strips. Two
// different IDs may still share a part. A list in which two nodes share one is refused.
type Parts interface {
	// PartsOf returns the parts of a canonical ID, each in its canonical form.
	PartsOf(canonical string) []string
}

// ProviderIDs is an IDs whose IDs may be whole providerIDs of Nodes (aws:///eu-west-1a/i-0abc). Kubernetes does not let
// a Node's providerID change, and a cloud assigns none twice. So a node that once led to one machine never counts as
// another while it exists, unless a person removes its pin. A rule with `from: providerID` takes all of it.
type ProviderIDs interface {
	IDs
	ProviderIDs() bool // reports whether they are
}

// ListedHosts marks an IDs whose devices get their credentials from a third-party program and do not report the
// machine's identity. A rule that lets a kubelet choose such an address is always refused.
type ListedHosts interface {
	IDs
	ListedHosts()
}

// SharesPower is a Config whose devices may say no Off of a machine that lost its power: a BMC, the hypervisor of a
// guest, or a cloud, which reports On until it has moved the instance.
type SharesPower interface {
	SharesPower() bool // reports whether they are such devices
}

// Feeds is a Config whose devices may only supply power (Feeder). Those say Off once they are switched off, and stay On
// when the power before them fails.
type Feeds interface {
	OnlyFeeds() bool // reports whether they are such devices
}

// Personal marks a Config that asks a person and no device: it powers no machine off.
type Personal interface{ Personal() }

// ReadOnly is a Config whose settings may exclude every power action.
type ReadOnly interface {
	// NoPowerActions returns the setting that excludes them and what to write instead; nil if they are possible.
	NoPowerActions() *Problem
}

// Cautious is a Config with settings that are allowed but risky.
type Cautious interface {
	// Cautions returns the risky settings that are set, and what may go wrong. check-config and the log show them.
	Cautions() []Problem
}

// Mute is a Config whose devices can be set to never report Off. Then they only cause other devices to be asked.
// NeverOff reports whether they are set so.
type Mute interface{ NeverOff() bool }

// Problem is one fault of a configuration: its place, what is wrong, and what to do.
type Problem struct {
	Path string // "tls.caFile", relative to the Config; "" for the whole
	Text string
	Err  error // the cause, where there is one: fs.ErrNotExist is a file that may be there elsewhere
}

// Problemf returns a Problem; the last error among the arguments is its cause.
func Problemf(path, format string, args ...any) Problem {
	p := Problem{Path: path, Text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			p.Err = err
		}
	}
	return p
}

// Options are the arguments of every provider beside its own configuration.
type Options struct {
	Name  string       // the provider's name in the file
	Agent string       // the User-Agent for devices that speak HTTP; "": forcefence
	Log   *slog.Logger // nil: slog.Default()
	Now   Clock        // nil: time.Now
	// Node reads a Node live, for types whose evidence is on it. Its errors are ErrNotFound, ErrDenied and
	// ErrUnreachable. Nil means that there is no API server.
	Node func(ctx context.Context, name string) (Node, error)
}

// Node is the part of a Kubernetes Node that a provider may read.
type Node struct {
	UID, BootID string
	Ready       string // the condition's status: True, False or Unknown; "" if there is none
	Taints      []NodeTaint
	Confirmed   Confirmed
}

// Confirmed is a person's statement on a Node that its machine is off. The zero value is none.
type Confirmed struct {
	By, Reason string    // who states it, and the evidence; By is "" if there is no statement
	At         time.Time // when
	Refused    string    // "" or why it is not one of this Node, this boot and its fence: By is "" then
}

// NodeTaint is one taint of a Node.
type NodeTaint struct{ Key, Value, Effect string }

// WithDefaults returns o with nil fields filled.
func (o Options) WithDefaults() Options {
	o.Agent, o.Log = cmp.Or(o.Agent, "forcefence"), cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Type is one device family. docs/reference/devices.md and `forcefence providers` show users the texts Off and
// Identity.
type Type struct {
	Name      string // the key of its settings in the file: "redfish"
	NewConfig func() Config
	Off       string // what "off" means there, as a short phrase: "PowerState Off of the system"
	Identity  string // what the device reports about its machine's identity, likewise; "none" if nothing
	// Concurrency is the default of the setting of that name: calls in flight within one unit of limits. Zero means the
	// limiter's own default, which suits small computers; a cloud bears more.
	Concurrency int
}

// Registry is a set of provider types, passed as a value so that tests can use their own.
type Registry []Type

// FindType returns the type with that name, and false if there is none.
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

// Secret is a value that must not be printed. Every fmt verb, slog, JSON and YAML show "<secret>"; Reveal is the only
// way to it. It holds a pointer because fmt calls no methods of a value in another struct's unexported field. fmt walks
// into such a value and would print a string, but of a pointer it prints the address only.
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

// String is for callers other than fmt, which calls Format for every verb.
func (s Secret) String() string { return redacted }

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText implements encoding.TextMarshaler, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// SecretRef is the place of a secret: a file (its trailing newline is dropped) or an environment variable. It is read
// at each use, so a rotated file needs no reload. Each machine may have a file of its own (ReadSecretOf).
type SecretRef struct{ File, Env string }

// CheckReadable checks the secret before it is used: exactly one place is named, and a file exists and is not empty. It
// does not read an environment variable, which may be set later, where the controller runs.
func (r SecretRef) CheckReadable() error {
	switch {
	case PerMachine(r.Env):
		return errors.New("an environment variable is the same for all machines: give a file")
	case r.Env != "" && !envName.MatchString(r.Env):
		return errors.New("is not the name of an environment variable, such as BMC_PASSWORD. A password itself does " +
			"not belong in this file")
	case r.Env != "" && r.File == "":
		return nil
	case r.Env == "" && PerMachine(r.File):
		return r.checkFolder()
	}
	_, err := r.ReadSecret()
	return err
}

// envName matches the names of environment variables that a container may have.
var envName = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)

// Validate is CheckReadable for the settings key+"File" and key+"Env". The fault is at the one that is given.
func (r SecretRef) Validate(key string) []Problem {
	err := r.CheckReadable()
	switch {
	case err == nil:
		return nil
	case r.Env != "" && r.File == "":
		return []Problem{Problemf(key+"Env", "%v", err)}
	}
	return []Problem{Problemf(key+"File", "%v", err)}
}

// Place says where the secret is: a file's path as the configuration has it, or an environment variable.
func (r SecretRef) Place() string {
	if r.File == "" && r.Env != "" {
		return "environment variable " + r.Env
	}
	return r.File
}

// ReadSecret returns the secret. The error never contains it.
func (r SecretRef) ReadSecret() (Secret, error) {
	switch {
	case r.File != "" && r.Env != "":
		return Secret{}, errors.New("both a file and an environment variable are given: keep one")
	case r.File != "":
		b, err := os.ReadFile(r.File)
		if err != nil {
			return Secret{}, fmt.Errorf("reading secret: %w", r.explainFile(err))
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

// explainFile returns why the file cannot be read. A name that is no absolute path may be a password in the wrong
// place, so the error does not repeat it. Without a slash it is no fs.ErrNotExist, because it is on no other host
// either.
func (r SecretRef) explainFile(err error) error {
	var at *fs.PathError
	if path.IsAbs(r.File) || !errors.As(err, &at) {
		return err
	}
	const fix = "write the absolute path of a file, such as /etc/forcefence-bmc/password. A password itself does not " +
		"belong in this setting"
	if !strings.Contains(r.File, "/") {
		return fmt.Errorf("%v: %s", at.Err, fix)
	}
	return fmt.Errorf("%w: %s", at.Err, fix)
}

// secretOf returns the secret that a file's content holds.
func secretOf(content []byte, file string) (Secret, error) {
	v := strings.TrimRight(string(content), "\r\n")
	if v == "" {
		return Secret{}, fmt.Errorf("reading secret: %s is empty", file)
	}
	return NewSecret(v), nil
}
