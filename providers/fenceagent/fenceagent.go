// Package fenceagent runs a fence agent of ClusterLabs, or one with their interface, for machines whose device has no
// type of its own here. It imports the contract, providers/remote, the standard library, x/sys and go-landlock. The
// README beside it says which agents can be believed.
//
//	providers:
//	- name: blades
//	  fenceagent:
//	    agent: fence_bladecenter
//	    options: {ip: 10.0.0.9, username: forcefence, ssh: "1", ssh_options: -o StrictHostKeyChecking=yes}
//	    secrets: [{option: password, file: /etc/forcefence-bmc/blades}]
//
// A target's ID is its plug on that device, or the address of its device, as the agent wants it.
//
// It promises that Off is exit status 2 and the line "Status: OFF", and nothing else, from an agent whose off means the
// machine's power. No agent is started without its action, which would be a reboot. Secrets are on an agent's standard
// input only, and it can read no others if the kernel has Landlock. Nothing of a run is left when the call returns. A
// password that may have been refused is not tried again and again.
package fenceagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Agent string `yaml:"agent"` // its name, such as fence_bladecenter; must be set
	Dir   string `yaml:"dir"`   // the folder that it is in; empty: it is looked for in PATH

	// by the names of the agent's metadata; none is secret; a username may hold {name}
	Options map[string]string `yaml:"options"`
	Secrets []Secret          `yaml:"secrets"` // options whose values are secret
	// true: use an agent that may say OFF of a machine that is not off
	AllowGuessedOff bool `yaml:"allowGuessedOff"`
	// true: send passwords in clear text, or to a device whose key or certificate is not checked
	AllowInsecure bool `yaml:"allowInsecure"`

	once sync.Once // guards what follows
	path string
	meta *metadata
	err  error // why meta is nil
}

// Secret is an option whose value is secret.
type Secret struct {
	Option string `yaml:"option"` // its name, such as password
	File   string `yaml:"file"`   // the file with the value; may hold {name}; read again for each run
}

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "fenceagent", NewConfig: func() providers.Config { return &Config{} },
		Off:      "the agent's status exits with 2 and prints `Status: OFF`, nothing else",
		Identity: "none: agents do not report a machine's identity",
	}
}

var (
	agentName = regexp.MustCompile(`^fence_[a-z0-9_]+$`)
	// secretish are options that hold secrets: those of the agents that were read, and names that others may use.
	secretish = regexp.MustCompile(`(?i)passw(or)?d$|secret|token$|^api_?key$|_key$|^community$|_kg$`)
	// plugName matches what may be an ID that is no address: agents put it into the command lines of shells, here and
	// on the device. A comma would be several plugs, and some agents then return the first one's status for all.
	plugName = regexp.MustCompile(`^[A-Za-z0-9/_][A-Za-z0-9/_.:@+-]*$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
)

// Validate returns every fault. It reads the secrets' files, and runs the agent to read its metadata. It asks no
// device.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		problem("dir", "is not absolute")
	}
	switch k, read := known[c.Agent]; {
	case c.Agent == "":
		problem("agent", "missing: write an agent's name, such as fence_bladecenter")
		return out
	case !agentName.MatchString(c.Agent):
		problem("agent", "is not an agent's name: write one such as fence_bladecenter, and its folder into dir")
		return out
	case k.never != "":
		problem("agent", "%s cannot be used: %s", c.Agent, k.never)
	case !read && !c.AllowGuessedOff:
		problem("allowGuessedOff", "%s is not among the agents that were read: say true if you have made sure that "+
			"it says OFF of machines that are off only", c.Agent)
	case k.guesses != "" && !c.AllowGuessedOff:
		problem("allowGuessedOff", "%s says OFF too easily (%s): say true if no machine of yours can be in such a "+
			"state",
			c.Agent, k.guesses)
	}
	meta, err := c.loadMetadata()
	if err == nil {
		err = meta.checkUsable()
	}
	if err != nil && known[c.Agent].never == "" {
		problem("agent", "%s %v", c.Agent, err)
	}
	if meta != nil && known[c.Agent].never == "" && !c.AllowInsecure {
		if how := c.findInsecure(meta); how != "" {
			problem("allowInsecure", "%s %s; or set it to true if no one else can reach the network in between",
				c.Agent, how)
		}
	}
	return append(out, c.validateOptions(meta)...)
}

// Cautions implements providers.Cautious.
func (c *Config) Cautions() (out []providers.Problem) {
	if c.AllowGuessedOff {
		out = append(out, providers.Problemf("allowGuessedOff", "the agent may say OFF of a machine that is not off"))
	}
	if c.AllowInsecure {
		out = append(out, providers.Problemf("allowInsecure", "anyone on the network between the controller and the "+
			"device may read the password, or report OFF"))
	}
	return out
}

// SharesPower implements providers.SharesPower: only the agents of outlets are sure to answer for a machine without
// power.
func (c *Config) SharesPower() bool { return !slices.Contains(outlets, c.Agent) }

// validateOptions checks the options against the metadata, if there is any.
func (c *Config) validateOptions(meta *metadata) (out []providers.Problem) {
	given := map[string]string{} // by newer name, where
	check := func(path, key string) (ok bool) {
		name := newerName(meta, key)
		why, not := reserved[strings.ReplaceAll(name, "-", "_")]
		problem := ""
		switch {
		case not:
			problem = "cannot be set: it " + why
		case name == c.idOption() || name == olderNames[c.idOption()]:
			problem = "cannot be set: it is a target's ID"
		case meta != nil && meta.options[key].name == "":
			problem = fmt.Sprintf("%s has no such option: %s -o metadata names them", c.Agent, c.Agent)
		case given[name] != "":
			problem = "is also set under " + given[name]
		}
		if problem != "" {
			out = append(out, providers.Problemf(path, "%s", problem))
		}
		given[name] = path
		return problem == ""
	}
	for _, key := range slices.Sorted(maps.Keys(c.Options)) {
		path := "options." + key
		if ok := check(path, key); ok && secretish.MatchString(key) {
			out = append(out, providers.Problemf(path,
				"is a secret: write its name and the name of a file under secrets"))
		} else if err := checkValue(c.Options[key]); err != nil {
			out = append(out, providers.Problemf(path, "%v", err))
		} else if err := providers.CheckPerMachine(c.Options[key]); ok && isUser(key) && err != nil {
			out = append(out, providers.Problemf(path, "%v", err))
		}
	}
	for i, s := range c.Secrets {
		path := fmt.Sprintf("secrets[%d].", i)
		if !check(path+"option", s.Option) {
			continue
		}
		ref := providers.SecretRef{File: s.File}
		err := ref.CheckReadable()
		if err == nil && !providers.PerMachine(s.File) {
			var secret providers.Secret
			if secret, err = ref.ReadSecret(); err == nil {
				err = checkValue(secret.Reveal())
			}
		}
		if err != nil {
			out = append(out, providers.Problemf(path+"file", "%v", err))
		}
	}
	if meta == nil {
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(meta.options)) {
		o := meta.options[key]
		if _, not := reserved[o.name]; o.required && key == o.name && !not && o.name != c.idOption() &&
			given[o.name] == "" {
			out = append(out, providers.Problemf("options."+key, "missing: %s requires it", c.Agent))
		}
	}
	return out
}

// olderNames are the earlier names of the options for an ID.
var olderNames = map[string]string{optionPlug: "port", optionIP: "ipaddr"}

// newerName returns the newer name of an option that has two.
func newerName(meta *metadata, key string) string {
	if meta != nil && meta.options[key].name != "" {
		return meta.options[key].name
	}
	return cmp.Or(map[string]string{"port": optionPlug, "ipaddr": optionIP}[key], key)
}

// loadMetadata finds the agent and asks it for its metadata, once.
func (c *Config) loadMetadata() (*metadata, error) {
	c.once.Do(func() {
		if c.path, c.err = findAgent(c.Dir, c.Agent); c.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
		defer cancel()
		r, err := runAgent(ctx, c.path, newInput("metadata"))
		switch {
		case err != nil:
			c.err = fmt.Errorf("asked for its metadata: %w", err)
		case r.code != 0:
			c.err = fmt.Errorf("asked for its metadata: %s", r.failureText())
		default:
			c.meta, c.err = parseMetadata([]byte(r.stdout))
		}
	})
	return c.meta, c.err
}

// metadataTimeout is long: some agents read a cloud's whole library first.
const metadataTimeout = 30 * time.Second

// findAgent returns an agent's path. The error is fs.ErrNotExist if it is not there.
func findAgent(dir, agent string) (string, error) {
	if !agentName.MatchString(agent) {
		return "", errors.New("is not an agent's name")
	}
	path, err := exec.LookPath(filepath.Join(dir, agent)) // without a folder it looks in PATH
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("is not in PATH: %w", fs.ErrNotExist)
	case err != nil:
		return "", fmt.Errorf("cannot be run: %w", err)
	}
	return filepath.Abs(path)
}

// idOption returns the agent's option for a target's ID.
func (c *Config) idOption() string {
	if k, ok := known[c.Agent]; ok {
		return cmp.Or(k.idOption, optionPlug)
	}
	if meta, err := c.loadMetadata(); err == nil {
		return meta.idOption()
	}
	return optionPlug
}

// HasAddressIDs implements providers.IDs: an ID is an address if the agent is for devices of one machine each.
func (c *Config) HasAddressIDs() bool { return c.idOption() == optionIP }

// ListedHosts implements providers.ListedHosts: an agent sends the password to any host that answers at the address,
// and does not report its identity.
func (c *Config) ListedHosts() {}

// CanonicalID implements providers.IDs: a host in one spelling, or an unchanged plug. A plug must not have a special
// meaning in any shell that an agent types it into.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if c.HasAddressIDs() {
		bare := strings.TrimSuffix(strings.TrimPrefix(id, "["), "]")
		if ip, err := netip.ParseAddr(bare); err == nil && ip.Zone() == "" {
			return ip.Unmap().String(), []string{ip.Unmap().String()}, nil
		}
		host, err := remote.CanonicalHost(&url.URL{Scheme: "https", Host: bare})
		if err != nil || !hostName.MatchString(bare) {
			return "", nil, errors.New("is not a host: write a name or an IP, without a port")
		}
		return host, []string{host}, nil
	}
	if !plugName.MatchString(id) {
		return "", nil, errors.New("is not a valid plug: use letters, digits and / _ . : @ + - " +
			"(for several outlets of a machine use type pdu)")
	}
	return id, nil, nil
}

// New returns the provider. It asks no device.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(c, o) }

// New returns the provider of a Config that Validate found no fault in. It asks no device.
func New(c *Config, o providers.Options) (*Provider, error) {
	meta, err := c.loadMetadata()
	if err == nil {
		err = meta.checkUsable()
	}
	if err != nil {
		return nil, fmt.Errorf("agent %s %w", c.Agent, err)
	}
	o = o.WithDefaults()
	if err := checkSandbox(); err != nil {
		noSandbox.Do(func() { o.Log.Warn("Agents run without a sandbox", "err", err) })
	}
	k, read := known[c.Agent]
	if !read {
		k.hides = noStatusYet
	}
	return &Provider{
		cfg: c, opts: o, meta: meta, hides: k.hides, guesses: !read || k.guesses != "",
		strikes: map[string]int{}, reportedOn: map[string]bool{},
	}, nil
}

// noSandbox logs once for all agents, because they share the kernel.
var noSandbox sync.Once

// Provider runs one agent. It is safe for concurrent use, and starts a process for each call.
type Provider struct {
	cfg      *Config
	opts     providers.Options
	meta     *metadata
	hides    string
	guesses  bool // it may say OFF of a machine that is not, or that is not there
	refusals remote.Refusals

	mu         sync.Mutex      // guards what follows
	strikes    map[string]int  // by device: how often in a row the password may have been refused
	reportedOn map[string]bool // by ID: that the agent said ON, of an agent that guesses
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Limiter  = (*Provider)(nil)

	_ providers.ListedHosts = (*Config)(nil)
	_ providers.Cautious    = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
)

// LimitGroup implements providers.Limiter. The scarce resource is this machine's memory, so the limits hold for all
// runs of the agent together.
func (p *Provider) LimitGroup(providers.Target) string { return p.cfg.Agent }

// State runs the agent's status. An agent that guesses also reports OFF for a wrong ID, and for a machine that is not
// there. So its OFF counts only once it has reported ON for that ID: before that the state is unknown.
func (p *Provider) State(ctx context.Context, t providers.Target) (obs providers.Observation, _ error) {
	err := p.runCall(ctx, "ask state of", t, func(ctx context.Context) error {
		at := p.opts.Now()
		r, err := p.callAgent(ctx, "status", t)
		if err != nil {
			return err
		}
		obs = providers.Observation{State: r.powerState(), Raw: r.statusText(), At: providers.InstantOf(at)}
		if p.guesses && !p.isOffPlausible(t.ID, obs.State) {
			obs.State, obs.Raw = providers.PowerUnknown, obs.Raw+", but the agent never reported ON for this machine"
		}
		return nil
	})
	return obs, err
}

// isOffPlausible remembers an ON, and reports whether an answer about that ID may count: an OFF may after an ON.
func (p *Provider) isOffPlausible(id string, state providers.PowerState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == providers.PowerOn {
		p.reportedOn[id] = true
	}
	return state != providers.PowerOff || p.reportedOn[id]
}

// PowerOff runs the agent's off, which waits until the machine is off. An agent that reports that it waited in vain has
// still sent the request.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	return p.setPower(remote.WithStill(ctx, still), "off", t)
}

// PowerOn runs the agent's on, as PowerOff does the off.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	return p.setPower(remote.WithStill(ctx, still), "on", t)
}

func (p *Provider) setPower(ctx context.Context, action string, t providers.Target) error {
	return p.runCall(ctx, "power "+action, t, func(ctx context.Context) error {
		_, err := p.callAgent(ctx, action, t)
		return err
	})
}

func (p *Provider) runCall(ctx context.Context, act string, t providers.Target, f func(context.Context) error) error {
	return remote.RunCall(ctx, act, t, "fenceagent "+p.opts.Name+" "+p.cfg.Agent+" "+t.ID, f)
}

// MaybeRefusedFor is how long a device is left alone after its agent failed twice in a row in a way that may be a
// refused password.
const MaybeRefusedFor = 5 * time.Minute

// callAgent runs the agent for a target. Without an error the agent reached the device: it did, or will do, what was
// requested, or its answer is a word, which may be unknown.
func (p *Provider) callAgent(ctx context.Context, action string, t providers.Target) (result, error) {
	if t.ID == "" {
		return result{}, providers.Errorf(providers.ErrNotFound, "the target has no ID: give it the agent's %s",
			p.cfg.idOption())
	}
	// the configuration's reader refuses such a rule; this check does not rely on it
	if t.Claimed && p.cfg.HasAddressIDs() {
		return result{}, providers.Errorf(providers.ErrPermanent, "the node's kubelet may have named the host, which "+
			"would get the password")
	}
	id, _, err := p.cfg.CanonicalID(t.ID)
	if err != nil {
		return result{}, providers.Errorf(providers.ErrNotFound, "the target's ID %w", err)
	}
	in, err := p.buildInput(ctx, action, id, t.Node)
	if err != nil {
		return result{}, err
	}
	device := "" // of all plugs
	if p.cfg.HasAddressIDs() {
		device = id
	}
	if p.cfg.perMachine() {
		device += " " + t.Node
	}
	sum := p.refusals.HashCredential(in.user, providers.NewSecret(strings.Join(in.secrets, "\n")))
	if err := p.refusals.CheckRefused(device, sum, p.opts.Now()); err != nil {
		return result{}, err
	}
	r, err := runAgent(ctx, p.cfg.path, in)
	if err != nil {
		return result{}, err
	}
	if r.code == 0 || action == "status" && strings.HasPrefix(r.stdout, "Status: ") {
		p.countStrike(device, false)
		return r, nil
	}
	cause := errors.New(r.failureText())
	switch {
	case r.containsAny(refusedPhrases...):
		return result{}, p.refusals.RememberDenied(device, p.cfg.secretPlaces(), sum, p.opts.Now(), cause)
	case action == "status" && r.containsAny(noStatusYet) && p.hides != noStatusYet,
		action != "status" && r.containsAny("timed out waiting to power "+action):
		p.countStrike(device, false)
		return r, nil
	case r.containsAny(maybeRefused), p.hides != "" && r.containsAny(p.hides):
		strikes := p.countStrike(device, true)
		if strikes == 1 && action == "status" && r.containsAny(noStatusYet) {
			return r, nil // it may be an unknown word
		}
		err := providers.Errorf(providers.ErrUnreachable, "%w; the password may have been refused", cause)
		if strikes > 1 {
			err = providers.Errorf(providers.ErrUnreachable, "%w: it is not sent again for %s unless it changes", err,
				MaybeRefusedFor)
			p.refusals.HoldCredential(device, sum, p.opts.Now().Add(MaybeRefusedFor), err)
		}
		return result{}, err
	}
	return result{}, providers.WithClass(r.errorClass(), cause)
}

// countStrike counts a call whose password may have been refused, and resets the count after one whose password was
// not.
func (p *Provider) countStrike(device string, maybe bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maybe {
		delete(p.strikes, device)
		return 0
	}
	p.strikes[device]++
	return p.strikes[device]
}

// isUser reports whether an option is the one with the user's name, by either of its names.
func isUser(option string) bool { return option == "username" || option == "login" }

// secretPlaces returns the files that hold the secrets.
func (c *Config) secretPlaces() string {
	var files []string
	for _, s := range c.Secrets {
		files = append(files, s.File)
	}
	return strings.Join(files, ", ")
}

// perMachine reports whether each machine has credentials of its own.
func (c *Config) perMachine() bool {
	for key, value := range c.Options {
		if isUser(key) && providers.PerMachine(value) {
			return true
		}
	}
	return slices.ContainsFunc(c.Secrets, func(s Secret) bool { return providers.PerMachine(s.File) })
}

// buildInput returns an agent's input for a target of a node. Its errors are ErrDenied if a secret cannot be read, else
// ErrPermanent.
func (p *Provider) buildInput(ctx context.Context, action, id, node string) (*input, error) {
	in := newInput(action)
	in.files = filesIn(p.cfg.Options)
	takes := p.cfg.idOption()
	name := p.meta.nameFor(takes)
	if name == "" {
		return nil, providers.Errorf(providers.ErrPermanent, "the agent has no option %s", takes)
	}
	if err := in.addOption(name, id); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(p.cfg.Options)) {
		value := p.cfg.Options[key]
		if isUser(key) {
			var err error
			if value, err = providers.OfMachine(value, node); err != nil {
				return nil, providers.WithClass(providers.ErrDenied, err)
			}
			in.user = value
		}
		if err := in.addOption(key, value); err != nil {
			return nil, err
		}
	}
	for _, s := range p.cfg.Secrets {
		secret, err := providers.SecretRef{File: s.File}.ReadSecretOf(node)
		if err != nil {
			return nil, providers.WithClass(providers.ErrDenied, err)
		}
		if err := in.addOption(s.Option, secret.Reveal()); err != nil {
			return nil, err
		}
		in.secrets = append(in.secrets, secret.Reveal())
	}
	// An agent that waits for a prompt which a wrong password never brings must report that before it is ended:
	// otherwise the reason would be lost.
	const option, usual = "login_timeout", 5
	end, _ := ctx.Deadline() // remote.Backstop at the latest
	half := int(time.Until(end).Seconds()+0.5) / 2
	if _, has := p.meta.options[option]; has && p.cfg.Options[option] == "" && half < usual {
		return in, in.addOption(option, strconv.Itoa(max(1, half)))
	}
	return in, nil
}
