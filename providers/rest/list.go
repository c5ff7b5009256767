package rest

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// List says how one look reads all machines of a device. Only its On is used, which proves nothing: every other machine
// is asked on its own.
type List struct {
	Request Request `yaml:"request"` // of one page; {page} is its number, from 1
	More    string  `yaml:"more"`    // CEL, a bool: another page follows; "": there is one page
	// CEL, a list of maps of texts: id, state and word, and also uuid and addresses (with blanks between them) if state
	// has these expressions
	Machines string `yaml:"machines"`
}

// list is a compiled List.
type list struct {
	request  *request
	more     cel.Program // nil: there is one page
	machines cel.Program
}

const (
	maxPages  = 100  // of one list
	maxStates = 1000 // targets of one call
)

// list compiles a List.
func (c *compiler) list(d Description) *list {
	l := d.List
	if l == nil {
		return nil
	}
	if d.AddressIDs {
		c.fault("list", "has no effect: each machine has a device of its own")
	}
	part := c.fork()
	part.answers = nil
	if l.More != "" {
		part.declare("list.more", "page")
	}
	known := func(name string) bool { return part.vars[name] }
	out := &list{request: part.request("list.request", l.Request, false, known)}
	out.more = part.expression("list.more", l.More, cel.BoolType, false)
	out.machines = part.expression("list.machines", l.Machines,
		cel.ListType(cel.MapType(cel.StringType, cel.StringType)), true)
	c.bad = append(c.bad, part.bad...)
	return out
}

// listed is what a list says of one machine.
type listed struct {
	times       int // how often the machine is in the list: only once counts
	state, word string
	uuid        string
	addresses   providers.Addresses
}

// errNoList is the error of a list that cannot be read, while the device answers.
var errNoList = errors.New("the list cannot be read")

// readList reads all pages, and fills in what they say of the wanted machines, by canonical ID. An error of the device
// has its class. Any other is errNoList.
func (f *Family) readList(ctx context.Context, values map[string]string, send sender, wanted map[string]*listed) error {
	for page := 1; page <= maxPages; page++ {
		texts := maps.Clone(values)
		if f.list.more != nil {
			texts["page"] = strconv.Itoa(page)
		}
		e := f.newEvaluation(texts, send)
		if err := e.runOne(ctx, f.list.request); err != nil {
			return err
		}
		v, err := e.evaluate(ctx, "list.machines", f.list.machines)
		if err != nil {
			return errors.Join(errNoList, err)
		}
		all, err := v.ConvertToNative(listType)
		if err != nil {
			return errors.Join(errNoList, err)
		}
		for _, m := range all.([]map[string]string) {
			id, _, err := f.parseID(m["id"])
			if one := wanted[id]; err == nil && one != nil {
				one.times++
				one.state, one.word, one.uuid = m["state"], m["word"], m["uuid"]
				one.addresses = providers.NewAddresses(strings.Fields(m["addresses"])...)
			}
		}
		if f.list.more == nil {
			return nil
		}
		if v, err = e.evaluate(ctx, "list.more", f.list.more); err != nil {
			return errors.Join(errNoList, err)
		}
		if v.Value() != true {
			return nil
		}
	}
	return errNoList
}

// observation returns what a list says of a machine, if that is enough: one On, with all of the identity that the
// description reads. A power action may trust that identity for some seconds.
func (f *Family) observation(l *listed, at providers.Instant) (obs providers.Observation, enough bool) {
	_, hasUUID := providers.ParseUUID(l.uuid)
	if l.times != 1 || l.state != "On" || l.word == "" || f.uuid != nil && !hasUUID ||
		f.addresses != nil && l.addresses == "" {
		return obs, false
	}
	obs = providers.Observation{State: providers.PowerOn, Raw: l.word, At: at}
	if f.uuid != nil {
		obs.SystemUUID = l.uuid
	}
	if f.addresses != nil {
		obs.Addresses = l.addresses
	}
	return obs, true
}

// lister is a Provider whose description has a list.
type lister struct{ *Provider }

// feedingLister is a lister whose devices only supply power.
type feedingLister struct{ lister }

// Feeds implements providers.Feeder.
func (feedingLister) Feeds() {}

// MaxStates implements providers.BatchStater.
func (lister) MaxStates() int { return maxStates }

// States implements providers.BatchStater. It reads the list. Then it asks for each machine that is not exactly once in
// it, and On.
func (l lister) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	out, failed := map[string]providers.Observation{}, providers.Unanswered{}
	at := providers.InstantOf(l.opts.Now())
	wanted := map[string]*listed{}
	for _, t := range targets {
		if id, _, err := l.family.parseID(t.ID); err == nil {
			wanted[id] = &listed{}
		}
	}
	if len(wanted) > 0 {
		name := l.family.Name + " " + l.opts.Name
		err := remote.RunCall(ctx, "list machines for", targets[0], name, func(ctx context.Context) error {
			d, release, err := l.openDevice(targets[0])
			if err != nil {
				return err
			}
			defer release()
			return l.family.readList(ctx, l.values(), d.send, wanted)
		})
		if err != nil && !errors.Is(err, errNoList) {
			return nil, err
		}
		if err != nil {
			clear(wanted)
		}
	}
	var mu sync.Mutex // guards out and failed
	var wait sync.WaitGroup
	turns := make(chan struct{}, maxRequests)
	for _, t := range targets {
		id, _, _ := l.family.parseID(t.ID)
		if one := wanted[id]; one != nil {
			if obs, enough := l.family.observation(one, at); enough {
				l.offRuns.End(t.ID, providers.InstantOf(l.opts.Now()))
				mu.Lock()
				out[t.Key()] = obs
				mu.Unlock()
				continue
			}
		}
		turns <- struct{}{} // comes free by the call's deadline
		wait.Go(func() {
			defer func() { <-turns }()
			obs, err := l.State(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[t.Key()] = err
				return
			}
			out[t.Key()] = obs
		})
	}
	wait.Wait()
	if len(failed) > 0 {
		return out, failed
	}
	return out, nil
}
