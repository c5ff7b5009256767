// Package config reads forcefence's configuration file. A Config is checked: every name in it is known, and every
// duration has a unit. Every provider has its settings, and every selector and template has been parsed. Faults are
// returned as Errors, all at once, each as file:line: path: problem. Nothing of a file with a fault is used.
//
// It also finds, from the file alone, the machine of a Node (Config.FindMachine), and reports changes of the file
// (Watch).
//
// How a file is read: viper supplies the file's text and the environment's values. The text is parsed to YAML nodes,
// which know their lines. The walk compares the nodes with the Go types, reports every fault at its line, and writes
// what fits for a strict decoder (KnownFields). That decoder is the only way in which values get into the Config. It
// fills each provider's settings over the defaults of its type, and takes the environment's values last. Then the
// values are checked. The decoder alone would read 1.9 as 1 and `yes` as true, follow aliases, stop at the first wrong
// text form and quote values. viper alone lower-cases keys, knows no lines, and reads `30` as 30 ns; its WatchConfig
// ends the process where inotify is exhausted.
//
// Scalars outside lists can be set by environment variables: mode by FORCEFENCE_MODE, listen.metrics by
// FORCEFENCE_LISTEN_METRICS, powerOffAfter by FORCEFENCE_POWER_OFF_AFTER. An empty variable counts as not set. A
// FORCEFENCE_ variable that names no key is a fault. Exceptions are those that Kubernetes sets for a Service called
// forcefence, and those that the file names.
package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/viper"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

//go:generate go test . -run "TestBroken|TestChartSchema|TestChartTypes|TestEditorSchema|TestReference" -update

// ManualMarks says what to do with a person's mark on a node whose device says On.
type ManualMarks string

// The answers to a person's mark.
const (
	Refuse ManualMarks = "refuse"
	Trust  ManualMarks = "trust"
)

// AfterFence says what happens to a machine that forcefence powered off, once its fence is done.
type AfterFence string

// The actions after a fence. See fence.AfterFence.
const (
	LeaveOff AfterFence = "leaveOff"
	PowerOn  AfterFence = "powerOn"
)

// DetachAction is the name of an evict.OnDetachTimeout.
type DetachAction string

var detachActions = mapList(evict.OnDetachTimeouts(),
	func(o evict.OnDetachTimeout) DetachAction { return DetachAction(o.String()) })

// Config is a checked configuration file. It does not change after Load or Parse returned it. How fresh a proof must be
// is no setting: 5 s is an invariant.
type Config struct {
	Mode            Mode          `yaml:"mode"`            // what may be done to nodes that look dead; default observe
	TaintKey        string        `yaml:"taintKey"`        // the key of the mark; default forcefence.io/node-shutdown
	Modes           []ModeItem    `yaml:"modes"`           // modes of some nodes
	PowerOffAfter   time.Duration `yaml:"powerOffAfter"`   // silence before a power-off; at least 20s; default 60s
	PowerOffTimeout time.Duration `yaml:"powerOffTimeout"` // how long to ask for Off then; at least 5s; default 60s
	// what becomes of a machine that was powered off; default leaveOff
	AfterFence AfterFence `yaml:"afterFence"`

	MaxPowerOnsPerDay int `yaml:"maxPowerOnsPerDay"` // power-ons of one node, with powerOn; 1 to 10; default 3
	// another fence so soon after a power-on leaves the machine off; at most 24h; default 1h
	FencedAgainWithin time.Duration `yaml:"fencedAgainWithin"`

	// how long volumes may take to detach; at least 10s; default 5m
	DetachTimeout   time.Duration `yaml:"detachTimeout"`
	OnDetachTimeout DetachAction  `yaml:"onDetachTimeout"` // what is done after it; default alert
	ManualMarks     ManualMarks   `yaml:"manualMarks"`     // a mark by hand if the device says On; default refuse
	EvictFirst      string        `yaml:"evictFirst"`      // label selector of pods that go first; "": none
	// label selector of nodes that are left alone; "": none; default forcefence.io/exclude
	ExcludeSelector string `yaml:"excludeSelector"`
	ExcludeCordoned bool   `yaml:"excludeCordoned"` // do not power off cordoned nodes; default false
	// the namespace of medik8s' Leases; "": they are not read
	MaintenanceLeases string `yaml:"maintenanceLeases"`

	Remediation    Remediation    `yaml:"remediation"`   // requests of NodeHealthCheck and Cluster API
	ReleaseLeases  []LeaseRule    `yaml:"releaseLeases"` // released once their holder's machine is proven off
	Karpenter      Karpenter      `yaml:"karpenter"`     // what NodeClaims mean; default ignore
	StormGuard     StormGuard     `yaml:"stormGuard"`
	Lines          Lines          `yaml:"lines"`
	Listen         Listen         `yaml:"listen"`
	LeaderElection LeaderElection `yaml:"leaderElection"`
	Recording      Recording      `yaml:"recording"`
	Signing        Signing        `yaml:"signing"`
	Providers      []Provider     `yaml:"providers"`
	Nodes          []NodeRule     `yaml:"nodes"`
	Storage        []Storage      `yaml:"storage"`
	Policies       []Policy       `yaml:"policies"` // end pods without proof
	Drain          []Drain        `yaml:"drain"`    // make drains wait for data

	evictFirst, excluded labels.Selector
	digest               string
	warnings             Errors
	listed               []OwnFile
	lists                []fileList
}

// Lines configures the idle connections to the nodes, which show when a machine stops answering. See package line.
type Lines struct {
	Port int `yaml:"port"` // 1 to 65535; 0: no connections; default 10250, the kubelet's
}

// Listen holds the addresses of the HTTP servers, as host:port; "" for no server.
type Listen struct {
	Metrics string `yaml:"metrics"` // of /metrics; default 127.0.0.1:8080
	Status  string `yaml:"status"`  // of the status page; beyond loopback it needs the certificate
	// PEM, the server's own certificate first; "": plain HTTP. Both files are read again when they change.
	StatusCertFile string `yaml:"statusCertFile"`
	StatusKeyFile  string `yaml:"statusKeyFile"` // PEM
	StatusCluster  string `yaml:"statusCluster"` // the cluster's name, which the status page shows; default ""
}

// Recording says where observations and decisions are recorded, for forcefence replay.
type Recording struct {
	File string `yaml:"file"` // an absolute path; "": no recording
}

// Signing says with which key the records of fences are signed.
type Signing struct {
	// PEM, as forcefence proof keys writes it; an absolute path; read at each signature; "": records are not signed
	KeyFile string `yaml:"keyFile"`
}

// LeaderElection configures how the leader is elected among several controllers. LeaseDuration > RenewDeadline > 1.2 x
// RetryPeriod holds.
type LeaderElection struct {
	// one of several controllers leads; false: every controller that runs acts, so run exactly one; default true
	Enabled bool `yaml:"enabled"`
	// after it another controller leads; 1s to 1h, whole seconds; default 15s
	LeaseDuration time.Duration `yaml:"leaseDuration"`
	// without a renewal for so long a leader exits; default 10s
	RenewDeadline time.Duration `yaml:"renewDeadline"`
	RetryPeriod   time.Duration `yaml:"retryPeriod"` // between two tries; at least 100ms; default 2s
}

// Provider is one configured provider: the limits of the guard per device, and the settings of its type.
type Provider struct {
	Name string `yaml:"name"` // unique, a DNS label
	// of one call; 100ms to 5s, because a proof lives 5s; default 5s
	Timeout time.Duration `yaml:"timeout"`
	// calls to a device; more than 0, at most 1000; default 10
	RatePerSecond float64 `yaml:"ratePerSecond"`
	Concurrency   int     `yaml:"concurrency"` // calls to a device at once; 1 to 100; default 2
	// how often each healthy machine is asked; at least 1s; 0: not at all; default 0
	Poll time.Duration `yaml:"poll"`

	Type   string           `yaml:"-"` // the type's name in the Registry
	Config providers.Config `yaml:"-"` // the type's settings, validated; never nil
	Own    []string         `yaml:"-"` // templates of the files with each machine's own secrets. See OwnFiles
}

// These values are no settings.
const (
	// The leader's Lease. It is the same one wherever the controller runs, so that one forcefence leads in a cluster.
	LeaseNamespace = "kube-system"
	LeaseName      = "forcefence"
	PauseConfigMap = "forcefence-pause" // in the controller's namespace; while it exists the whole cluster is paused
	DrainConfigMap = "forcefence-drain" // beside it: drain policies for nodes, each until a time (drain.Overrides)
	// SigningSecret and KeysConfigMap are beside it, too: the key that signs records, and the public keys of all that
	// did. Both have one entry, KeysEntry.
	SigningSecret     = "forcefence-signing"
	KeysConfigMap     = "forcefence-public-keys"
	KeysEntry         = "key.pem"
	HealthPort        = "8081"      // of the health server
	PowerOnDelay      = time.Minute // from a fence's end to the power-on
	MaxRecordingBytes = 64 << 20    // of the recording and the file before it, FILE.1, together
)

// DefaultExclude is the default of excludeSelector: nodes with this label are never fenced.
const DefaultExclude = "forcefence.io/exclude"

// Default returns the Config of an empty mapping: it fences no node and asks no device.
func Default() *Config {
	return &Config{
		Mode:              Mode(fence.Observe.String()),
		TaintKey:          taint.DefaultKey,
		PowerOffAfter:     60 * time.Second,
		PowerOffTimeout:   60 * time.Second,
		AfterFence:        LeaveOff,
		MaxPowerOnsPerDay: 3,
		FencedAgainWithin: time.Hour,
		DetachTimeout:     5 * time.Minute,
		ExcludeSelector:   DefaultExclude,
		OnDetachTimeout:   DetachAction(evict.Alert.String()),
		ManualMarks:       Refuse,
		Remediation:       Remediation{OnGiveUp: KeepMachine},
		Karpenter:         IgnoreClaims,
		StormGuard:        defaultStorm(),
		Lines:             Lines{Port: 10250},
		Listen:            Listen{Metrics: "127.0.0.1:8080"},
		LeaderElection: LeaderElection{
			Enabled:       true,
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   2 * time.Second,
		},
		evictFirst: labels.Nothing(),
		excluded:   labels.Nothing(), // parsed by check
	}
}

// Digest identifies the file's content: two Configs of one Registry with the same digest were read from the same text.
func (c *Config) Digest() string { return c.digest }

// Option changes how a file is checked.
type Option func(*reader)

// SkipFiles accepts files that settings name and that do not exist, for a check on another host than the controller's.
func SkipFiles() Option { return func(r *reader) { r.skipFiles = true } }

// Strict refuses rules by which no node can get a machine, for a check before a file is used. A controller reads
// without it: the other rules of such a file work.
func Strict() Option { return func(r *reader) { r.strict = true } }

// rawText is viper's decoder of a file. It keeps the text for a strict decoder, and gives viper no values.
type rawText []byte

// Decoder returns t for any format.
func (t *rawText) Decoder(string) (viper.Decoder, error) { return t, nil }

// Decode keeps the text.
func (t *rawText) Decode(text []byte, _ map[string]any) error {
	*t = text
	return nil
}

// Load reads a file and checks it (Parse). If the file cannot be read, the error wraps the cause (fs.ErrNotExist).
func Load(file string, reg providers.Registry, opts ...Option) (*Config, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w%s", err, explainRead(err))
	}
	defer in.Close()
	if info, err := in.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("reading configuration: %s is a folder: name the file in it, such as %s", file,
			filepath.Join(file, "config.yaml"))
	}
	var text rawText
	v := viper.NewWithOptions(viper.WithDecoderRegistry(&text))
	v.SetConfigType("yaml")
	if err := v.ReadConfig(Limited(in)); err != nil {
		return nil, fmt.Errorf("reading configuration: %w%s", err, explainRead(err))
	}
	return Parse(file, text, reg, opts...)
}

// maxFile is how many bytes a configuration may have.
const maxFile = 32 << 20

var errTooLarge = fmt.Errorf("it has more than %d MiB: no configuration is that large", maxFile>>20)

// Limited returns a reader that fails once more was read than a configuration may have. So an endless input, such as a
// device file, does not fill the memory.
func Limited(r io.Reader) io.Reader { return &limited{r, maxFile} }

type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= n; l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// explainRead ends the message about a file that cannot be read with what to do; "" if the message says enough.
func explainRead(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return ". Run forcefence as a user who may read it"
	}
	return ""
}

// Parse checks the content of a file. The messages show the name file. Parse reads the environment, and the files that
// provider settings name. The error is nil or Errors, never empty.
func Parse(file string, data []byte, reg providers.Registry, opts ...Option) (*Config, error) {
	r := newReader(file, reg)
	for _, o := range opts {
		o(r)
	}
	cfg := Default()
	if root := r.document(data); root != nil {
		r.readInto(cfg, root)
		r.check(cfg)
		r.unknownEnv()
	}
	if len(r.errs) > 0 {
		return nil, r.errs.sorted()
	}
	sum := sha256.Sum256(data)
	cfg.warnings = cfg.warnings.sorted()
	cfg.digest = hex.EncodeToString(sum[:])
	return cfg, nil
}
