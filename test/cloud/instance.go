package cloud

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Options are an instance's.
type Options struct {
	ID      string        // i- and 17 hexadecimal digits; "": one that is not used yet
	Zone    string        // one of the cloud's
	Address string        // private
	Stops   time.Duration // from an accepted stop to stopped; zero: at once
	Starts  time.Duration // from an accepted start to running; zero: at once
	Forgets time.Duration // from terminated until EC2 knows the id no more; zero: an hour

	Hibernates bool // hibernation is configured
	Spot       bool
	Persistent bool   // with Spot: its request is, and it can be stopped
	Behavior   string // with Spot: what the market does, stop, hibernate or terminate; "": terminate
	Store      bool   // its root is an instance store: it cannot be stopped
	Tags       map[string]string
	Protected  bool // it may not be stopped (disableApiStop), or terminate it
}

// Instance is one. It is safe for concurrent use.
type Instance struct {
	c       *Cloud
	zone    string
	o       Options
	history []Told    // by At, the last of them perhaps of the future; guarded by Cloud.mu
	frozen  time.Time // the moment whose state is reported until thaw; zero: none
	thaw    time.Time
	say     func(*Told)
}

// Told is what EC2 reports about an instance from a moment on.
type Told struct {
	At         time.Time
	State      string
	Transition string // StateTransitionReason
	Code       string // of StateReason; "": there is none
	Launch     time.Time
	Address    string
	Zone       string
	NoOptions  bool // no HibernationOptions are reported
	Tags       map[string]string
	Hibernates bool
}

// Add launches an instance. It runs.
func (c *Cloud) Add(o Options) *Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.ID == "" {
		c.made++
		o.ID = fmt.Sprintf("i-0a%015x", c.made)
	}
	if o.Forgets == 0 {
		o.Forgets = time.Hour
	}
	i := &Instance{c: c, zone: o.Zone, o: o}
	now := time.Now()
	i.history = []Told{
		{At: now, State: "running", Launch: now, Address: o.Address, Zone: o.Zone, Hibernates: o.Hibernates}}
	c.instances[o.ID] = i
	return i
}

// ID is its id.
func (i *Instance) ID() string { return i.o.ID }

// ProviderID is what a Node says of it.
func (i *Instance) ProviderID() string { return "aws:///" + i.zone + "/" + i.o.ID }

func (c *Cloud) locked(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }

// State is the true state, whatever the API reports.
func (i *Instance) State() (s string) {
	i.c.locked(func() { s = i.at(time.Now()).State })
	return s
}

// Running reports whether anything may execute on it.
func (i *Instance) Running() bool {
	switch i.State() {
	case "stopped", "terminated":
		return false
	}
	return true
}

// Stop is a user's StopInstances, with force.
func (i *Instance) Stop() {
	i.c.locked(func() { i.stop(time.Now(), i.o.Stops, "Client.UserInitiatedShutdown", true) })
}

// CutPower is a stop that is over at once.
func (i *Instance) CutPower() {
	i.c.locked(func() { i.stop(time.Now(), 0, "Client.UserInitiatedShutdown", true) })
}

// Hibernate is a stop that saves the memory.
func (i *Instance) Hibernate() {
	i.c.locked(func() { i.stop(time.Now(), 0, "Client.UserInitiatedHibernate", true) })
}

// Start is a user's StartInstances.
func (i *Instance) Start() { i.c.locked(func() { i.start(time.Now(), i.o.Starts) }) }

// PowerOn is a start that is over at once.
func (i *Instance) PowerOn() { i.c.locked(func() { i.start(time.Now(), 0) }) }

// Reclaim is the market's stop of a spot instance: EC2 tells no time of it.
func (i *Instance) Reclaim() {
	i.c.locked(func() {
		i.stop(time.Now(), 0, "Server.SpotInstanceShutdown", false)
	})
}

// Terminate ends it for good.
func (i *Instance) Terminate() { i.c.locked(func() { i.terminate(time.Now()) }) }

// terminate is a user's TerminateInstances. The lock is held.
func (i *Instance) terminate(now time.Time) {
	t := i.at(now)
	t.At, t.State, t.Transition, t.Code = now, "shutting-down", userInitiated(now), "Client.UserInitiatedShutdown"
	i.follow(t)
	t.At, t.State, t.Address = now.Add(i.o.Stops), "terminated", ""
	i.follow(t)
}

// Freeze makes EC2 report the present state, wholly, for that long, whatever happens to the instance.
func (i *Instance) Freeze(d time.Duration) {
	i.c.locked(func() { i.frozen = time.Now(); i.thaw = i.frozen.Add(d) })
}

// Say changes what is reported about it; nil: nothing.
func (i *Instance) Say(f func(*Told)) { i.c.locked(func() { i.say = f }) }

// Look is a user's question about an instance: it calls what Say was given.
func (c *Cloud) Look(i *Instance) { c.locked(func() { i.told(time.Now()) }) }

// at is the state of a moment. The lock is held.
func (i *Instance) at(now time.Time) Told {
	t := i.history[0]
	for _, h := range i.history {
		if !h.At.After(now) {
			t = h
		}
	}
	return t
}

// follow makes a state come after those that began before it. The lock is held.
func (i *Instance) follow(t Told) {
	i.history = append(slices.DeleteFunc(i.history, func(h Told) bool { return h.At.After(t.At) }), t)
}

func (i *Instance) vanished(now time.Time) bool {
	t := i.at(now)
	return t.State == "terminated" && now.Sub(t.At) > i.o.Forgets
}

func userInitiated(at time.Time) string {
	return "User initiated (" + at.UTC().Format(time.DateTime) + " GMT)"
}

func (i *Instance) stop(now time.Time, takes time.Duration, code string, timed bool) {
	t := i.at(now)
	if t.State == "stopped" || t.State == "terminated" {
		return
	}
	t.At, t.State, t.Code, t.Transition = now, "stopping", code, "User initiated"
	if timed {
		t.Transition = userInitiated(now)
	}
	i.follow(t)
	if takes >= 0 {
		t.At, t.State = now.Add(takes), "stopped"
		i.follow(t)
	}
}

func (i *Instance) start(now time.Time, takes time.Duration) {
	t := i.at(now)
	if t.State != "stopped" {
		return
	}
	t.At, t.State, t.Code, t.Transition, t.Launch = now, "pending", "", "", now
	i.follow(t)
	t.At, t.State = now.Add(takes), "running"
	i.follow(t)
}

// told is what EC2 says now. The lock is held.
func (i *Instance) told(now time.Time) Told {
	at := now
	if now.Before(i.thaw) {
		at = i.frozen
	}
	t := i.at(at)
	t.Tags = i.o.Tags
	if i.say != nil {
		i.say(&t)
	}
	return t
}

var stateCodes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64,
	"stopped": 80}

func state(name, of string) answer {
	return element(name, element("code", stateCodes[of]), element("name", of))
}

func (i *Instance) request() string { return "sir-" + i.o.ID[len(i.o.ID)-8:] }

// describeSpots reports the requests that instances came from. The lock is held.
func (c *Cloud) describeSpots(region string, ids []string, now time.Time) (answer, *refusal) {
	var requests []answer
	for _, id := range ids {
		found := false
		for _, i := range c.instances {
			if !i.o.Spot || i.request() != id || c.zones[i.zone] != region {
				continue
			}
			found = true
			kind, state, status := "one-time", "active", "fulfilled"
			if i.o.Persistent {
				kind = "persistent"
			}
			if i.at(now).Code == "Server.SpotInstanceShutdown" {
				state, status = "disabled", "instance-stopped-no-capacity"
			}
			requests = append(requests, element("item", element("spotInstanceRequestId", id), element("type", kind),
				element("state", state), element("status", element("code", status)), element("instanceId", i.o.ID),
				element("instanceInterruptionBehavior", cmp.Or(i.o.Behavior, "terminate"))))
		}
		if !found {
			return answer{}, &refusal{"InvalidSpotInstanceRequestID.NotFound",
				"The spot instance request ID '" + id + "' does not exist"}
		}
	}
	return element(ec2Space+"DescribeSpotInstanceRequestsResponse", element("spotInstanceRequestSet", requests)), nil
}

// describe reports instances, in no order, two in a reservation.
func (c *Cloud) describe(of []*Instance, now time.Time) answer {
	var all []answer
	for _, i := range slices.Backward(of) {
		t := i.told(now)
		root := "ebs"
		if i.o.Store {
			root = "instance-store"
		}
		item := []any{element("instanceId", i.o.ID), state("instanceState", t.State), element("reason", t.Transition),
			element("placement", element("availabilityZone", t.Zone)), element("rootDeviceType", root)}
		if !t.Launch.IsZero() {
			at := t.Launch.UTC().Truncate(time.Second).Format("2006-01-02T15:04:05.000Z")
			item = append(item, element("launchTime", at))
		}
		if t.Code != "" {
			item = append(item, element("stateReason", element("code", t.Code),
				element("message", t.Code+": as it happened")))
		}
		if t.Address != "" {
			address := element("privateIpAddress", t.Address)
			item = append(item, address, element("networkInterfaceSet", element("item", address)))
		}
		if i.o.Spot {
			item = append(item, element("instanceLifecycle", "spot"), element("spotInstanceRequestId", i.request()))
		}
		if !t.NoOptions {
			item = append(item, element("hibernationOptions", element("configured", t.Hibernates)))
		}
		var tags []answer
		for key, value := range t.Tags {
			tags = append(tags, element("item", element("key", key), element("value", value)))
		}
		all = append(all, element("item", append(item, element("tagSet", tags))...))
	}
	var reservations []answer
	for two := range slices.Chunk(all, 2) {
		reservations = append(reservations, element("item",
			element("reservationId", fmt.Sprintf("r-%d", len(reservations))), element("instancesSet", two)))
	}
	return element(ec2Space+"DescribeInstancesResponse", element("requestId", "8f7724cf-496f-496e-8fe3-example"),
		element("reservationSet", reservations))
}

// change stops or starts instances: all of them, or none.
func (c *Cloud) change(action string, form url.Values, of []*Instance, now time.Time) (answer, *refusal) {
	for _, i := range of {
		s := i.at(now).State
		able := s != "terminated" && s != "shutting-down" && s != "pending"
		if action == "StartInstances" {
			able = s == "stopped" || s == "pending" || s == "running"
		}
		switch {
		case !able:
			return answer{},
				&refusal{"IncorrectInstanceState",
					"The instance '" + i.o.ID + "' is not in a state from which it can be changed."}
		case action == "StopInstances" && i.o.Protected:
			return answer{}, &refusal{"OperationNotPermitted",
				"The instance '" + i.o.ID + "' may not be stopped. Modify " +
					"its 'disableApiStop' instance attribute and try again."}
		case action == "TerminateInstances" && i.o.Protected:
			return answer{}, &refusal{"OperationNotPermitted",
				"The instance '" + i.o.ID + "' may not be terminated. " +
					"Modify its 'disableApiTermination' instance attribute and try again."}
		case action == "StopInstances" && i.o.Store:
			return answer{}, &refusal{"UnsupportedOperation",
				"The instance '" + i.o.ID + "' does not have an 'ebs' root " +
					"device type and cannot be stopped."}
		case action == "StopInstances" && i.o.Spot && !i.o.Persistent:
			return answer{},
				&refusal{"UnsupportedOperation", "You can't stop the Spot Instance '" + i.o.ID + "' because it is " +
					"associated with a one-time Spot Instance request."}
		}
	}
	var out []answer
	for _, i := range of {
		before := i.at(now).State
		hard := form.Get("Force") == "true" && form.Get("SkipOsShutdown") == "true"
		switch {
		case action == "StartInstances":
			i.start(now, i.o.Starts)
		case c.fault.StaysOn:
		case action == "TerminateInstances":
			i.terminate(now)
		case c.fault.StaysHalf, !hard: // a guest that hangs delays the end of a stop, except of a hard one
			i.stop(now, -1, "Client.UserInitiatedShutdown", true)
		default:
			i.stop(now, i.o.Stops, "Client.UserInitiatedShutdown", true)
		}
		after := i.at(now).State
		out = append(out, element("item", element("instanceId", i.o.ID), state("currentState", after),
			state("previousState", before)))
	}
	return element(ec2Space+action+"Response", element("instancesSet", out)), nil
}
