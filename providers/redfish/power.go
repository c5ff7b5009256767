package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// powerState maps Redfish's words (Resource.PowerState). Off is returned nowhere else.
func powerState(word string) providers.PowerState {
	switch word {
	case "On", "Paused":
		return providers.PowerOn
	case "Off":
		return providers.PowerOff
	case "PoweringOn", "PoweringOff":
		return providers.PowerChanging
	default:
		return providers.PowerUnknown
	}
}

// readPower decides what a system's answer proves. The system's own Off is not enough: OpenBMC derives it from the
// host's firmware, and reports off for every state it does not name. A machine that sleeps (ACPI S3, S4, a guest's
// managed save) resumes its memory. So an Off counts only if nothing contradicts it, in the system's own resource or by
// the power of a chassis that is this system's alone. The contradiction determines the state, so that a machine whose
// chassis is On can be powered off; word then names both.
//
// A chassis that the BMC links but does not have (404) is no evidence. One that cannot be read otherwise is an error,
// because it may be On.
func (b *bmc) readPower(ctx context.Context, s *system) (state providers.PowerState, word string, _ error) {
	state = powerState(s.PowerState)
	switch {
	case state != providers.PowerOff:
		return state, s.PowerState, nil
	case s.sleep != "":
		return providers.PowerOn, "Off, but " + s.sleep + " (see ignoreStates)", nil
	case b.p.cfg.IgnoreChassisPower:
		return state, s.PowerState, nil
	}
	if s.rails == nil {
		s.rails = b.readRails(ctx, b.chassisOf(s))
	}
	for _, r := range s.rails {
		if r.err != nil {
			return providers.PowerUnknown, "", providers.WithClass(providers.ErrUnreachable,
				fmt.Errorf("the system reports Off, reading its chassis: %w", classifyError(ctx, r.err)))
		}
		if r.word != "" && r.word != "Off" {
			return powerState(r.word), "Off, but its chassis " + r.word + " (see ignoreChassisPower)", nil
		}
	}
	return state, s.PowerState, nil
}

// rail is what a chassis reports about its power.
type rail struct {
	word  string // "" if it reports none, or not of this system alone
	kind  word   // its ChassisType
	asked time.Time
	err   error
}

// findDoubt returns why a later Off of a system that is on now may not count, "" for no reason. A chassis that is part
// of a machine, such as a board, often has standby power, and always reports On. findDoubt waits for at most half of
// the remaining time.
func (b *bmc) findDoubt(ctx context.Context, s *system) string {
	if b.p.cfg.IgnoreChassisPower {
		return ""
	}
	if end, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	rails := b.readRails(ctx, b.chassisOf(s))
	if ctx.Err() != nil {
		return ""
	}
	for _, r := range rails {
		switch {
		case r.err != nil:
			return fmt.Sprintf("a chassis that the system links cannot be read (%s), so Off would not count",
				providers.ErrorClass(classifyError(ctx, r.err)))
		case r.word != "" && r.kind != "" &&
			!slices.Contains([]word{"RackMount", "Blade", "Sled", "StandAlone"}, r.kind):
			return fmt.Sprintf("the system links a chassis of type %s that reports %s: "+
				"if it also does while the machine is off, Off does not count without ignoreChassisPower",
				r.kind, r.word)
		}
	}
	return ""
}

// maxChassis is larger than the number of chassis of any system.
const maxChassis = 8

// chassisOf returns the paths of the chassis that a system links.
func (b *bmc) chassisOf(s *system) []string {
	var paths []string
	for _, l := range s.Links.Chassis {
		if path, ok := b.localPath(l); !ok {
			path = "" // elsewhere: cannot be read
			paths = append(paths, path)
		} else if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

func (b *bmc) readRails(ctx context.Context, paths []string) []rail {
	rails := make([]rail, min(len(paths), maxChassis))
	var wait sync.WaitGroup
	for i := range rails {
		wait.Go(func() { rails[i] = b.readRail(ctx, paths[i]) })
	}
	wait.Wait()
	if len(paths) > maxChassis {
		rails = append(rails, rail{err: fmt.Errorf("the system links %d, more than %d", len(paths), maxChassis)})
	}
	return rails
}

func (b *bmc) readRail(ctx context.Context, path string) rail {
	if path == "" {
		return rail{err: providers.WithClass(providers.ErrPermanent, errors.New("its link leads to another host"))}
	}
	var c struct {
		ChassisType word
		PowerState  string
		Links       related
	}
	_, asked, err := b.getResource(ctx, path, &c)
	r := rail{word: clipText(c.PowerState, maxText), kind: c.ChassisType, asked: asked, err: err}
	switch code := httpStatus(err); {
	case code == http.StatusNotFound, code == http.StatusGone:
		return rail{asked: asked}
	case err != nil:
		r.word = ""
	case len(c.Links.ComputerSystems) > 1,
		slices.Contains([]word{"Rack", "Row", "Pod", "Zone", "StorageEnclosure"}, c.ChassisType):
		r.word = "" // it has power for others
	}
	return r
}

// readSystem reads a system, and its chassis at the same time if it was Off the last time, because BMCs are slow.
func (b *bmc) readSystem(ctx context.Context, path string) (*system, error) {
	b.p.pool.Lock()
	known := b.chassis[path]
	b.p.pool.Unlock()
	var rails []rail
	var wait sync.WaitGroup
	side, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(known) > 0 {
		if _, err := b.loggedIn(ctx); err != nil { // one log-in, not two
			return nil, err
		}
		wait.Go(func() { rails = b.readRails(side, known) })
	}
	s, err := b.readOne(ctx, path)
	if err != nil || s.PowerState != "Off" {
		cancel() // they are not needed
	}
	wait.Wait()
	if err != nil {
		return nil, err
	}
	now := b.chassisOf(s)
	if s.PowerState != "Off" || b.p.cfg.IgnoreChassisPower {
		now = nil
	}
	if len(now) > 0 && slices.Equal(now, known) {
		s.rails = rails
		for _, r := range rails {
			if !r.asked.IsZero() && r.asked.Before(s.asked) {
				s.asked = r.asked
			}
		}
	}
	b.p.pool.Lock()
	defer b.p.pool.Unlock()
	if len(now) == 0 {
		delete(b.chassis, path)
	} else if len(b.chassis) < maxSystems {
		b.chassis[path] = now
	}
	return s, nil
}

// findSleepState searches a system's resource, vendor parts included, for a state that means that its memory is kept:
// ACPI S1 to S4, a guest's managed save. It skips properties with a name in ignore. It returns the property and the
// word, or "". It reads token by token, because a resource may hold very many.
func findSleepState(resource []byte, ignore []string) string {
	d := json.NewDecoder(bytes.NewReader(resource))
	d.UseNumber()
	var objects []bool // of what is open, the innermost last: whether it is an object, or a list
	name, isName := "", false
	for {
		token, err := d.Token()
		if err != nil {
			return "" // the end
		}
		word, isWord := token.(string)
		if isName && isWord {
			name, isName = word, false
			continue
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			objects = append(objects, token == json.Delim('{'))
		case json.Delim('}'), json.Delim(']'):
			objects = objects[:len(objects)-1]
		default:
			if isWord && isSleepState(name, word) &&
				!slices.ContainsFunc(ignore, func(s string) bool { return strings.EqualFold(s, name) }) {
				return name + " " + word
			}
		}
		name, isName = "", len(objects) > 0 && objects[len(objects)-1] // a word in a list is no property
	}
}

// isSleepState reports whether a property means that memory is kept.
func isSleepState(name, word string) bool {
	lower := strings.ToLower(name)
	return (strings.HasSuffix(lower, "state") || strings.HasSuffix(lower, "status")) && len(word) < 40 &&
		sleepWords.MatchString(word)
}

var sleepWords = regexp.MustCompile(
	`(?i)^(acpi[ _-]?)?s[1-4]([ /_-].*)?$|hibernat|suspend|managed[ _-]?save|^(saved|asleep|sleep(ing)?|paused)$`)
