// Package watchdog sends machines a message by sbd, over small disks that all nodes share. A machine that reads it
// resets itself, and the hardware watchdog resets one that can no longer read. It imports the contract,
// providers/program, providers/remote and the standard library.
//
//	providers:
//	- name: disks
//	  watchdog:
//	    devices: [/dev/disk/by-id/scsi-sbd-a, /dev/disk/by-id/scsi-sbd-b, /dev/disk/by-id/scsi-sbd-c]
//
// A target's ID is the name of the machine's slot, which is its host's name.
//
// It promises that it never reports Off: after sbd's own waiting time the machine should have reset, which is an
// assumption (providers.PowerByTime). The time counts by this process's monotonic clock, from when it first saw the
// message on more than half of the disks, and begins again after every other answer and every sign of the node's life.
// No message is sent to a slot that no sbd reads, and none replaces another that fences.
package watchdog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/program"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Command string   `yaml:"command"` // the program sbd
	Devices []string `yaml:"devices"` // 1, 2 or 3 block devices that all nodes share; must be set
	// what a machine must do: "reset", or "off", after which a person must power it on
	Message string `yaml:"message"`
	// added to the disks' msgwait; at least 1s
	Margin time.Duration `yaml:"margin"`
}

// Type returns the type for the registry.
func Type() providers.Type {
	return providers.Type{
		Name: "watchdog",
		NewConfig: func() providers.Config {
			return &Config{Command: "/usr/sbin/sbd", Message: wordReset, Margin: 10 * time.Second}
		},
		Off: "never; by-time only: its slot has held `reset` or `off` for longer than msgwait and `margin` " +
			"(`withoutProof: by-time`)",
		Identity: "none: a slot has a name only",
	}
}

// maxDevices is sbd's own limit.
const maxDevices = 3

// Validate returns every fault. It opens no device.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	if !filepath.IsAbs(c.Command) {
		problem("command", "is not absolute: write the path of sbd, such as /usr/sbin/sbd")
	}
	if n := len(c.Devices); n == 0 {
		problem("devices", "missing: write the paths of 1 to %d block devices that all nodes share", maxDevices)
	} else if n > maxDevices {
		problem("devices", "has %d devices: sbd knows at most %d", n, maxDevices)
	}
	for i, d := range c.Devices {
		path := fmt.Sprintf("devices[%d]", i)
		switch {
		case !filepath.IsAbs(d) || filepath.Clean(d) != d:
			problem(path, "is not a plain absolute path: write one such as /dev/disk/by-id/scsi-sbd-a")
		case strings.Contains(d, ";"):
			problem(path, "has a semicolon, which separates devices in sbd's own settings")
		case slices.Contains(c.Devices[:i], d):
			problem(path, "is there twice: each device counts once")
		}
	}
	if c.Message != wordReset && c.Message != wordOff {
		problem("message", "must be reset or off")
	}
	if c.Margin < time.Second {
		problem("margin", "must be at least 1s: sbd reads its slot once a second")
	}
	return out
}

// slotName matches the names of slots: sbd keeps 63 bytes of a name.
var slotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// HasAddressIDs implements providers.IDs: an ID is no address.
func (c *Config) HasAddressIDs() bool { return false }

// CanonicalID implements providers.IDs: sbd compares names without regard to case.
func (c *Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	if !slotName.MatchString(id) {
		return "", nil, errors.New("is not the name of a slot: write the host's name (uname -n), of at most 63 " +
			"letters, digits and . _ -")
	}
	return strings.ToLower(id), nil, nil
}

// New returns the provider. It opens no device.
func (c *Config) New(o providers.Options) (providers.Provider, error) {
	return &Provider{cfg: *c, opts: o.WithDefaults(), slots: map[string]slot{}}, nil
}

// Provider sends messages by sbd. It is safe for concurrent use, and starts processes for each call.
type Provider struct {
	cfg  Config
	opts providers.Options
	runs remote.OffRuns // since when this process has seen a message, by slot

	mu    sync.Mutex // guards what follows
	slots map[string]slot
}

// slot is what this process remembers of a slot.
type slot struct {
	pending uint8     // the disks that had the message when it was last seen
	started time.Time // when a slot that had a message was first clear again: sbd starts so; zero: it was not
	refuted bool      // the node showed life after the message had waited for long enough
}

var (
	_ providers.BatchStater = (*Provider)(nil)
	_ providers.Feeder      = (*Provider)(nil)
	_ providers.IDs         = (*Config)(nil)
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Mute        = (*Config)(nil)
	_ providers.TimeAssumer = (*Config)(nil)
	_ providers.TimeAssumer = (*Provider)(nil)
)

// AssumesByTime implements providers.TimeAssumer, for the check of policies.
func (c *Config) AssumesByTime() bool { return true }

// NeverOff implements providers.Mute.
func (c *Config) NeverOff() bool { return true }

// AssumesByTime implements providers.TimeAssumer.
func (*Provider) AssumesByTime() bool { return true }

// Feeds implements providers.Feeder: an empty slot says that the machine may run, and no more.
func (*Provider) Feeds() {}

// LimitGroup implements providers.Limiter: all machines have slots on the same disks.
func (p *Provider) LimitGroup(providers.Target) string { return p.cfg.Devices[0] }

// MaxStates implements providers.BatchStater: a disk has 255 slots, and one list has all.
func (p *Provider) MaxStates() int { return 255 }

// State reads the disks.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	all, err := p.States(ctx, []providers.Target{t})
	var each providers.Unanswered
	if errors.As(err, &each) {
		err = each[t.Key()]
	}
	return all[t.Key()], err
}

// States reads the disks once. PowerOn means an empty slot, PowerChanging a message that waits, and PowerByTime one
// that has waited for long enough. It is an error if half of the disks, or more, cannot be read.
func (p *Provider) States(ctx context.Context, targets []providers.Target) (
	answers map[string]providers.Observation, _ error,
) {
	failed := providers.Unanswered{}
	answers = map[string]providers.Observation{}
	err := remote.RunCall(ctx, "ask state of", targets[0], p.name(), func(ctx context.Context) error {
		asked := p.opts.Now()
		disks := p.readDisks(ctx)
		unread := checkReadable(disks)
		for _, t := range targets {
			name, err := p.slotOf(t)
			if err = cmp.Or(err, unread); err != nil {
				p.forget(name)
				failed[t.Key()] = err
				continue
			}
			state, raw := p.follow(name, judgeSlot(disks, name, p.cfg.Margin), asked, t.Heard)
			answers[t.Key()] = providers.Observation{State: state, Raw: raw, At: providers.InstantOf(asked)}
		}
		return unread
	})
	if err == nil && len(failed) > 0 {
		return answers, failed
	}
	return answers, err
}

func (p *Provider) name() string { return "watchdog " + p.opts.Name }

// slotOf returns the name of a target's slot. A kubelet must not choose the slot by which its machine is judged.
func (p *Provider) slotOf(t providers.Target) (string, error) {
	name, _, err := p.cfg.CanonicalID(t.ID)
	switch {
	case err != nil:
		return "", providers.Errorf(providers.ErrNotFound, "the target's ID %w", err)
	case t.Claimed:
		return "", providers.Errorf(providers.ErrPermanent, "the node's kubelet may have chosen its slot, and a slot "+
			"does not report its machine: use a list, or a template over .Name")
	}
	return name, nil
}

// checkReadable returns an error unless more than half of the disks could be read.
func checkReadable(disks []disk) error {
	var errs []error
	for _, d := range disks {
		if d.err != nil {
			errs = append(errs, d.err)
		}
	}
	if 2*len(errs) < len(disks) {
		return nil
	}
	return errors.Join(errs...)
}

// afterStart is how long a machine that has started since its message gets to bring its node up.
const afterStart = 10 * time.Minute

// follow returns the state of a slot, given all that this process has seen of it. heard is the node's last sign of
// life, which a machine that has reset itself does not give.
func (p *Provider) follow(name string, v verdict, asked, heard time.Time) (providers.PowerState, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, now := p.slots[name], p.opts.Now()
	if v.state != providers.PowerChanging || was.pending != v.pending && was.pending != 0 {
		p.runs.End(name, now)
	}
	is := was
	defer func() {
		if p.slots[name] = is; is == (slot{}) {
			delete(p.slots, name)
		}
	}()
	switch v.state {
	case providers.PowerChanging:
		is = slot{pending: v.pending, refuted: was.refuted}
	case providers.PowerOn:
		if is = (slot{started: was.started}); was.pending != 0 {
			is.started = now
		}
		if heard.After(is.started) || now.Sub(is.started) > afterStart {
			is = slot{}
			return v.state, v.word
		}
		// Another message would reset a machine that is about to bring its node up.
		return providers.PowerUnknown, v.word + ", after a message: sbd has started since"
	default:
		return v.state, v.word
	}
	waited := p.runs.Extend(name, asked, now)
	silent := waited
	if !heard.IsZero() {
		silent = max(0, min(waited, asked.Sub(heard)))
	}
	is.refuted = is.refuted || waited-silent > v.wait
	raw := fmt.Sprintf("%s for %s of %s", v.word, silent.Round(100*time.Millisecond), v.wait)
	switch {
	case is.refuted:
		return providers.PowerUnknown, v.word + ", but its node showed life long after: no sbd reads the slot"
	case silent > v.wait:
		return providers.PowerByTime, raw
	}
	return providers.PowerChanging, raw
}

// forget begins the time of a slot again, after a question without an answer.
func (p *Provider) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs.End(name, p.opts.Now())
}

// readDisks reads all disks at once. It takes at most half of ctx's time, so that a disk that hangs does not keep the
// others from answering.
func (p *Provider) readDisks(ctx context.Context) []disk {
	end, _ := ctx.Deadline() // remote.RunCall sets one
	ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	disks := make([]disk, len(p.cfg.Devices))
	var wait sync.WaitGroup
	for i, device := range p.cfg.Devices {
		wait.Go(func() { disks[i] = p.readDisk(ctx, device) })
	}
	wait.Wait()
	return disks
}

func (p *Provider) readDisk(ctx context.Context, device string) (d disk) {
	dump, err := p.runSBD(ctx, device, "dump")
	if err == nil {
		d.header, err = parseHeader(dump)
	}
	list := ""
	if err == nil {
		list, err = p.runSBD(ctx, device, "list")
	}
	if err != nil {
		return disk{err: fmt.Errorf("%s: %w", device, err)}
	}
	d.words = parseSlots(list)
	return d
}

// runSBD runs sbd for one device and returns its output. -R keeps the priority as it is: a short read needs no other.
func (p *Provider) runSBD(ctx context.Context, device string, args ...string) (string, error) {
	r, err := program.Run(ctx, p.cfg.Command, append([]string{"-R", "-d", device}, args...)...)
	switch {
	case ctx.Err() != nil:
		return "", err
	case err != nil:
		return "", providers.Errorf(providers.ErrPermanent, "sbd does not run: %w", err)
	case r.Code != 0:
		return "", providers.Errorf(providers.ErrUnreachable, "sbd %s exits with %d: %s", args[0], r.Code,
			firstLine(r.Stderr))
	case r.Full:
		return "", providers.Errorf(providers.ErrUnreachable, "sbd %s prints too much", args[0])
	}
	return r.Stdout, nil
}

// firstLine returns the first line of a text, of bounded length.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(line[:min(len(line), 200)], "?")
}

// PowerOff writes the message into the machine's slot on every disk whose slot a running sbd may read, and has no
// message that fences. Nil means that more than half of the disks have one.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return remote.RunCall(ctx, "power off", t, p.name()+" "+t.ID, func(ctx context.Context) error {
		name, err := p.slotOf(t)
		if err != nil {
			return err
		}
		disks := p.readDisks(ctx)
		if err := cmp.Or(checkReadable(disks), checkWritable(disks, name)); err != nil {
			return err
		}
		errs := make([]error, len(disks))
		var wait sync.WaitGroup
		for i, d := range disks {
			switch word := d.words[name]; {
			case d.err != nil:
				errs[i] = d.err
			case isFencing(word):
			case isRead(word):
				wait.Go(func() { errs[i] = p.sendMessage(ctx, p.cfg.Devices[i], name) })
			default:
				errs[i] = providers.Errorf(providers.ErrPermanent, "%s: slot %s has %q", p.cfg.Devices[i], name,
					cmp.Or(word, "no word"))
			}
		}
		wait.Wait()
		failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		if 2*(len(disks)-len(failed)) > len(disks) {
			return nil
		}
		return errors.Join(failed...)
	})
}

// checkWritable returns an error unless a running sbd may read the slot on more than half of the disks.
func checkWritable(disks []disk, name string) error {
	read := 0
	for _, d := range disks {
		if d.err == nil && isRead(d.words[name]) {
			read++
		}
	}
	if 2*read > len(disks) {
		return nil
	}
	return providers.Errorf(providers.ErrPermanent, "no running sbd reads the slot %s (%s): start sbd on the node",
		name, judgeSlot(disks, name, 0).word)
}

// errWritten ends an sbd that has written its message.
var errWritten = errors.New("the message is there")

// result is how sbd ended; one that was ended does not matter.
type result struct{ err error }

// sendMessage writes the message into a slot of one disk. sbd itself returns only after msgwait, so it is ended once
// the disk shows the message.
func (p *Provider) sendMessage(ctx context.Context, device, name string) error {
	if err := remote.MaySend(ctx); err != nil {
		return err
	}
	writing, written := context.WithCancelCause(ctx)
	defer written(errWritten)
	sent := make(chan result, 1)
	go func() { // ends with writing
		_, err := p.runSBD(writing, device, "message", name, p.cfg.Message)
		sent <- result{err}
	}()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		list, err := p.runSBD(ctx, device, "list")
		if err == nil && isFencing(parseSlots(list)[name]) {
			written(errWritten)
			<-sent
			return nil
		}
		select {
		case done := <-sent:
			if done.err == nil {
				done.err = providers.Errorf(providers.ErrUnreachable,
					"sbd reports success, but the slot has no message")
			}
			return fmt.Errorf("%s: %w", device, done.err)
		case <-ctx.Done():
			written(context.Cause(ctx))
			<-sent
			return fmt.Errorf("%s: %w", device, context.Cause(ctx))
		case <-again.C:
		}
	}
}

// PowerOn always fails: a machine that was reset starts by itself.
func (*Provider) PowerOn(context.Context, providers.Target, func() error) error {
	return providers.Errorf(providers.ErrPermanent, "a watchdog cannot power a machine on: give the node another "+
		"device, too")
}
