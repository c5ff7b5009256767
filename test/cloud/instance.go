package cloud

import (
	"cmp"
	"encoding/xml"
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
	history []Told // by At, the last of them perhaps of the future; guarded by Cloud.mu
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
	i.changes(t)
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

type state struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type stateReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type networkInterface struct {
	Address string `xml:"privateIpAddress"`
}

type configured struct {
	Configured bool `xml:"configured"`
}

type instanceItem struct {
	InstanceID  string             `xml:"instanceId"`
	State       state              `xml:"instanceState"`
	Reason      string             `xml:"reason"`
	Launch      string             `xml:"launchTime,omitempty"`
	Zone        string             `xml:"placement>availabilityZone"`
	Address     string             `xml:"privateIpAddress,omitempty"`
	StateReason *stateReason       `xml:"stateReason"`
	Interfaces  []networkInterface `xml:"networkInterfaceSet>item"`
	Lifecycle   string             `xml:"instanceLifecycle,omitempty"`
	Request     string             `xml:"spotInstanceRequestId,omitempty"`
	Root        string             `xml:"rootDeviceType"`
	Tags        []tag              `xml:"tagSet>item"`
	Hibernation *configured        `xml:"hibernationOptions"`
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type spotItem struct {
	ID         string `xml:"spotInstanceRequestId"`
	Type       string `xml:"type"`
	State      string `xml:"state"`
	Status     string `xml:"status>code"`
	InstanceID string `xml:"instanceId"`
	Behavior   string `xml:"instanceInterruptionBehavior"`
}

type describeSpotResponse struct {
	XMLName  xml.Name   `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeSpotInstanceRequestsResponse"`
	Requests []spotItem `xml:"spotInstanceRequestSet>item"`
}

func (i *Instance) request() string { return "sir-" + i.o.ID[len(i.o.ID)-8:] }

// describeSpots reports the requests that instances came from. The lock is held.
func (c *Cloud) describeSpots(region string, ids []string, now time.Time) (any, *refusal) {
	var out describeSpotResponse
	for _, id := range ids {
		found := false
		for _, i := range c.instances {
			if !i.o.Spot || i.request() != id || c.zones[i.zone] != region {
				continue
			}
			found = true
			item := spotItem{ID: id, Type: "one-time", State: "active", Status: "fulfilled", InstanceID: i.o.ID,
				Behavior: cmp.Or(i.o.Behavior, "terminate")}
			if i.o.Persistent {
				item.Type = "persistent"
			}
			if i.at(now).Code == "Server.SpotInstanceShutdown" {
				item.State, item.Status = "disabled", "instance-stopped-no-capacity"
			}
			out.Requests = append(out.Requests, item)
		}
		if !found {
			return nil,
				&refusal{"InvalidSpotInstanceRequestID.NotFound",
					"The spot instance request ID '" + id + "' does not exist"}
		}
	}
	return out, nil
}

type reservation struct {
	ID        string         `xml:"reservationId"`
	Instances []instanceItem `xml:"instancesSet>item"`
}

type describeInstancesResponse struct {
	XMLName      xml.Name      `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeInstancesResponse"`
	RequestID    string        `xml:"requestId"`
	Reservations []reservation `xml:"reservationSet>item"`
}

// describe reports instances, in no order, two in a reservation.
func (c *Cloud) describe(of []*Instance, now time.Time) describeInstancesResponse {
	out := describeInstancesResponse{RequestID: "8f7724cf-496f-496e-8fe3-example"}
	for n, i := range slices.Backward(of) {
		t := i.told(now)
		item := instanceItem{
			InstanceID: i.o.ID, State: state{stateCodes[t.State], t.State}, Reason: t.Transition, Zone: t.Zone,
			Address: t.Address,
			Launch:  t.Launch.UTC().Truncate(time.Second).Format("2006-01-02T15:04:05.000Z"),
		}
		if t.Launch.IsZero() {
			item.Launch = ""
		}
		if t.Code != "" {
			item.StateReason = &stateReason{t.Code, t.Code + ": as it happened"}
		}
		if t.Address != "" {
			item.Interfaces = []networkInterface{{t.Address}}
		}
		item.Root = "ebs"
		if i.o.Store {
			item.Root = "instance-store"
		}
		if i.o.Spot {
			item.Lifecycle, item.Request = "spot", i.request()
		}
		for key, value := range t.Tags {
			item.Tags = append(item.Tags, tag{key, value})
		}
		if !t.NoOptions {
			item.Hibernation = &configured{t.Hibernates}
		}
		if n%2 == 0 || len(out.Reservations) == 0 {
			out.Reservations = append(out.Reservations, reservation{ID: fmt.Sprintf("r-%d", n)})
		}
		last := &out.Reservations[len(out.Reservations)-1]
		last.Instances = append(last.Instances, item)
	}
	return out
}

type changeItem struct {
	InstanceID string `xml:"instanceId"`
	Current    state  `xml:"currentState"`
	Previous   state  `xml:"previousState"`
}

type changeResponse struct {
	XMLName   xml.Name
	Instances []changeItem `xml:"instancesSet>item"`
}

// change stops or starts instances: all of them, or none.
func (c *Cloud) change(action string, form url.Values, of []*Instance, now time.Time) (any, *refusal) {
	for _, i := range of {
		s := i.at(now).State
		able := s != "terminated" && s != "shutting-down" && s != "pending"
		if action == "StartInstances" {
			able = s == "stopped" || s == "pending" || s == "running"
		}
		switch {
		case !able:
			return nil,
				&refusal{"IncorrectInstanceState",
					"The instance '" + i.o.ID + "' is not in a state from which it can be changed."}
		case action == "StopInstances" && i.o.Protected:
			return nil, &refusal{"OperationNotPermitted", "The instance '" + i.o.ID + "' may not be stopped. Modify " +
				"its 'disableApiStop' instance attribute and try again."}
		case action == "TerminateInstances" && i.o.Protected:
			return nil, &refusal{"OperationNotPermitted", "The instance '" + i.o.ID + "' may not be terminated. " +
				"Modify its 'disableApiTermination' instance attribute and try again."}
		case action == "StopInstances" && i.o.Store:
			return nil, &refusal{"UnsupportedOperation", "The instance '" + i.o.ID + "' does not have an 'ebs' root " +
				"device type and cannot be stopped."}
		case action == "StopInstances" && i.o.Spot && !i.o.Persistent:
			return nil,
				&refusal{"UnsupportedOperation", "You can't stop the Spot Instance '" + i.o.ID + "' because it is " +
					"associated with a one-time Spot Instance request."}
		}
	}
	out := changeResponse{
		XMLName: xml.Name{Space: "http://ec2.amazonaws.com/doc/2016-11-15/", Local: action + "Response"}}
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
		out.Instances = append(out.Instances,
			changeItem{i.o.ID, state{stateCodes[after], after}, state{stateCodes[before], before}})
	}
	return out, nil
}
