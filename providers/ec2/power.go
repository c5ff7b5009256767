package ec2

import (
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/forcefence/forcefence/providers"
)

// EC2's words (InstanceState). They are compared byte by byte.
const (
	pending      = types.InstanceStateNamePending
	running      = types.InstanceStateNameRunning
	stopping     = types.InstanceStateNameStopping
	stopped      = types.InstanceStateNameStopped
	shuttingDown = types.InstanceStateNameShuttingDown
	terminated   = types.InstanceStateNameTerminated
)

// powerState maps EC2's words. Off is returned nowhere else.
func powerState(word types.InstanceStateName) providers.PowerState {
	switch word {
	case running:
		return providers.PowerOn
	case stopped, terminated:
		return providers.PowerOff
	case pending, stopping, shuttingDown:
		return providers.PowerChanging
	default:
		return providers.PowerUnknown
	}
}

// isGoingOff reports whether a state is off or leads to it.
func isGoingOff(word types.InstanceStateName) bool {
	return word == stopping || word == stopped || word == shuttingDown || word == terminated
}

// instanceAnswer is EC2's answer about one instance.
type instanceAnswer struct {
	types.Instance
	at  time.Time // when the question was sent
	err error     // why there is no answer

	request types.SpotInstanceRequest // of an instance that the market stopped; zero: not read
}

func (s instanceAnswer) stateName() types.InstanceStateName {
	if s.State == nil {
		return ""
	}
	return s.State.Name
}

func (s instanceAnswer) transitionReason() string { return aws.ToString(s.StateTransitionReason) }

func (s instanceAnswer) reasonCode() string {
	if s.StateReason == nil {
		return ""
	}
	return aws.ToString(s.StateReason.Code)
}

func (s instanceAnswer) launchTime() time.Time { return aws.ToTime(s.LaunchTime) }

// privateAddresses returns the instance's private addresses: of each interface the first of IPv4, and those of IPv6.
// The others may be its pods'.
func (s instanceAnswer) privateAddresses() providers.Addresses {
	all := []string{aws.ToString(s.PrivateIpAddress), aws.ToString(s.Ipv6Address)}
	for _, n := range s.NetworkInterfaces {
		all = append(all, aws.ToString(n.PrivateIpAddress))
		for _, six := range n.Ipv6Addresses {
			all = append(all, aws.ToString(six.Ipv6Address))
		}
	}
	return providers.NewAddresses(all...)
}

// savedReason returns why a stopped instance's memory is, or may be, on its disk; "" if it is not. If hibernation is
// configured, only the one reason that names a plain stop excludes it. If the market may hibernate the instance, so
// does a request by which the market stopped it.
func (s instanceAnswer) savedReason() string {
	plain := s.reasonCode() == "Client.UserInitiatedShutdown"
	switch {
	case s.reasonCode() == "Client.UserInitiatedHibernate":
		return "stopped, hibernated"
	case !plain && (s.HibernationOptions == nil || s.HibernationOptions.Configured == nil ||
		*s.HibernationOptions.Configured):
		return "stopped, maybe hibernated"
	case !plain && s.InstanceLifecycle == types.InstanceLifecycleTypeSpot && !s.stoppedByMarket():
		return "stopped by the market, maybe hibernated"
	}
	return ""
}

// stoppedWithin is how long a node may be heard after its stop was requested. EC2 waits some minutes for the guest's
// own shutdown, and clocks differ.
const stoppedWithin = 5 * time.Minute

// evaluateFirst decides what a first answer proves. doubt reports that it says stopped, that nothing contradicts it,
// and that this is no proof yet.
func (p *Provider) evaluateFirst(q question, s instanceAnswer) (obs providers.Observation, doubt bool, _ error) {
	if s.err != nil {
		return obs, false, s.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	word := s.stateName()
	if zone := zoneOf(s); zone != q.zone {
		return obs, false, fmt.Errorf("%w: the node's providerID names zone %s, but EC2 has the instance in %q",
			providers.ErrIdentity, q.zone, zone)
	}
	obs = providers.Observation{State: powerState(word), Raw: string(word), Addresses: s.privateAddresses(),
		At: providers.InstantOf(s.at)}
	switch word {
	case terminated: // for good, so it is never stale; its addresses are another's by now
		delete(p.lastLaunches, q.id)
		obs.Addresses = ""
		return obs, false, nil
	case shuttingDown: // its addresses are about to go
		obs.Addresses = ""
	default:
		if obs.Addresses == "" {
			return obs, false, fmt.Errorf("%w: the instance has no private address", providers.ErrIdentity)
		}
	}
	if word != stopped {
		if obs.State != providers.PowerUnknown {
			p.rememberLaunch(q.id, s.launchTime())
		}
		return obs, false, nil
	}
	if s.savedReason() != "" { // suspended is on: memory may resume
		obs.State, obs.Raw = providers.PowerOn, s.savedReason()
		return obs, false, nil
	}
	if why := s.findContradiction(p.lastLaunches[q.id], q.Heard); why != "" {
		obs.State, obs.Raw = providers.PowerUnknown, why
		return obs, false, nil
	}
	return obs, true, nil
}

// findContradiction returns what contradicts a stop, "" if nothing does. ran is the last launch that this process saw,
// heard when the node was last heard; either may be zero, which is no evidence.
func (s instanceAnswer) findContradiction(ran, heard time.Time) string {
	at, hasTime := parseTransition(s.transitionReason())
	switch {
	case s.launchTime().IsZero():
		return "stopped, without a launch time"
	case s.launchTime().Before(ran):
		return "stopped, but launched again since"
	case !hasTime && !s.launchTime().Equal(ran):
		// It stopped by itself: EC2 reports that without the time, so this launch must have been seen to run.
		return "stopped, at an unknown time"
	case !hasTime:
		return ""
	case at.Before(s.launchTime().Truncate(time.Second)): // it has whole seconds
		return "stopped, before its launch"
	case !heard.IsZero() && at.Before(heard.Add(-stoppedWithin)):
		return "stopped, but its node was heard since"
	}
	return ""
}

// confirmStopped decides what a second answer proves after a first one of stopped. The proof is as old as the second
// question.
func (p *Provider) confirmStopped(q question, first, second instanceAnswer) (providers.Observation, error) {
	obs, doubt, err := p.evaluateFirst(q, second)
	switch {
	case err != nil || !doubt:
		return obs, err
	case second.transitionReason() != first.transitionReason() || second.reasonCode() != first.reasonCode() ||
		!second.launchTime().Equal(first.launchTime()):
		obs.State, obs.Raw = providers.PowerUnknown, "stopped twice between two answers"
	}
	return obs, nil
}

var transitionPattern = regexp.MustCompile(`\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)$`)

// parseTransition returns the time in a StateTransitionReason such as "User initiated (2026-01-02 03:04:05 GMT)"; many
// have none.
func parseTransition(reason string) (time.Time, bool) {
	m := transitionPattern.FindStringSubmatch(reason)
	if m == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.DateTime, m[1])
	return at, err == nil
}

func zoneOf(s instanceAnswer) string {
	if s.Placement == nil {
		return ""
	}
	return aws.ToString(s.Placement.AvailabilityZone)
}

// maxLaunches is more instances than any cluster creates in months. At this number the memory of launches is emptied.
const maxLaunches = 20_000

// rememberLaunch stores the launch under which an instance runs. It never replaces a launch by an older one. The caller
// holds mu.
func (p *Provider) rememberLaunch(id string, launch time.Time) {
	if len(p.lastLaunches) >= maxLaunches {
		clear(p.lastLaunches)
	}
	if launch.After(p.lastLaunches[id]) {
		p.lastLaunches[id] = launch
	}
}
