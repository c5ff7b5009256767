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

// powerState maps EC2's words; it is the only place where an Off is made.
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

// goingOff reports a state that leads to off, or is it.
func goingOff(word types.InstanceStateName) bool {
	return word == stopping || word == stopped || word == shuttingDown || word == terminated
}

// sighting is what EC2 told of an instance.
type sighting struct {
	types.Instance
	at  time.Time // when the question was sent
	err error     // why it told nothing

	request types.SpotInstanceRequest // of an instance that the market stopped; zero: not read
}

func (s sighting) word() types.InstanceStateName {
	if s.State == nil {
		return ""
	}
	return s.State.Name
}

func (s sighting) reason() string { return aws.ToString(s.StateTransitionReason) }

func (s sighting) code() string {
	if s.StateReason == nil {
		return ""
	}
	return aws.ToString(s.StateReason.Code)
}

func (s sighting) launch() time.Time { return aws.ToTime(s.LaunchTime) }

// addresses are the instance's private ones: of each interface the first of IPv4, and those of IPv6. The others may be its pods'.
func (s sighting) addresses() providers.Addresses {
	all := []string{aws.ToString(s.PrivateIpAddress), aws.ToString(s.Ipv6Address)}
	for _, n := range s.NetworkInterfaces {
		all = append(all, aws.ToString(n.PrivateIpAddress))
		for _, six := range n.Ipv6Addresses {
			all = append(all, aws.ToString(six.Ipv6Address))
		}
	}
	return providers.NewAddresses(all...)
}

// saved says that a stopped instance's memory is on its disk, or may be; "" if it is not. Where hibernation is configured, only the one
// reason that names a plain stop excludes it. Where the market may hibernate it, so does a request by which the market stopped it.
func (s sighting) saved() string {
	plain := s.code() == "Client.UserInitiatedShutdown"
	switch {
	case s.code() == "Client.UserInitiatedHibernate":
		return "stopped, hibernated"
	case !plain && (s.HibernationOptions == nil || s.HibernationOptions.Configured == nil || *s.HibernationOptions.Configured):
		return "stopped, maybe hibernated"
	case !plain && s.InstanceLifecycle == types.InstanceLifecycleTypeSpot && !s.stoppedByMarket():
		return "stopped by the market, maybe hibernated"
	}
	return ""
}

// stoppedWithin is how long a node may be heard after its stop was asked for: the guest's own shutdown goes first, whose end EC2 awaits
// for some minutes, and no two clocks are alike.
const stoppedWithin = 5 * time.Minute

// judge is what a first answer is worth. doubt tells that it says stopped, that nothing contradicts it, and that this is no proof yet.
func (p *Provider) judge(q question, s sighting) (obs providers.Observation, doubt bool, _ error) {
	if s.err != nil {
		return obs, false, s.err
	}
	word := s.word()
	if zone := placed(s); zone != q.zone {
		return obs, false, fmt.Errorf("%w: the node's providerID says that the instance is in zone %s, EC2 that it is in %q", providers.ErrIdentity, q.zone, zone)
	}
	obs = providers.Observation{State: powerState(word), Raw: string(word), Addresses: s.addresses(),
		At: providers.InstantOf(s.at)}
	switch word {
	case terminated: // for good, so it is never stale; its addresses are another's by now
		p.forget(q.id)
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
			p.saw(q.id, s.launch())
		}
		return obs, false, nil
	}
	if s.saved() != "" { // suspended is on: memory may resume
		obs.State, obs.Raw = providers.PowerOn, s.saved()
		return obs, false, nil
	}
	if why := s.contradicted(p.last(q.id), q.Heard); why != "" {
		obs.State, obs.Raw = providers.PowerUnknown, why
		return obs, false, nil
	}
	return obs, true, nil
}

// contradicted says what speaks against a stop: "" if nothing does. ran is the last launch that this process saw, heard when the node was
// heard last; zero is neither.
func (s sighting) contradicted(ran, heard time.Time) string {
	at, told := transition(s.reason())
	switch {
	case s.launch().IsZero():
		return "stopped, and no launch"
	case s.launch().Before(ran):
		return "stopped, but launched again since"
	case !told && !s.launch().Equal(ran): // it stopped by itself: EC2 says so without the time, so this launch must have been seen to run
		return "stopped, and not when"
	case !told:
		return ""
	case at.Before(s.launch().Truncate(time.Second)): // it has whole seconds
		return "stopped, before its launch"
	case !heard.IsZero() && at.Before(heard.Add(-stoppedWithin)):
		return "stopped, but its node was heard since"
	}
	return ""
}

// confirm is what a second answer makes of a first one of stopped. The proof is as old as the second question.
func (p *Provider) confirm(q question, first, second sighting) (providers.Observation, error) {
	obs, doubt, err := p.judge(q, second)
	switch {
	case err != nil || !doubt:
		return obs, err
	case second.reason() != first.reason() || second.code() != first.code() || !second.launch().Equal(first.launch()):
		obs.State, obs.Raw = providers.PowerUnknown, "stopped, of two stops"
	}
	return obs, nil
}

var transitionTime = regexp.MustCompile(`\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)$`)

// transition returns the time in a StateTransitionReason such as "User initiated (2026-01-02 03:04:05 GMT)"; many have none.
func transition(reason string) (time.Time, bool) {
	m := transitionTime.FindStringSubmatch(reason)
	if m == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.DateTime, m[1])
	return at, err == nil
}

func placed(s sighting) string {
	if s.Placement == nil {
		return ""
	}
	return aws.ToString(s.Placement.AvailabilityZone)
}

// mostRan is more instances than any cluster has in a year's months of comings and goings: what is remembered begins anew then.
const mostRan = 20_000

// saw remembers under which launch an instance runs. A launch is never older than one before it.
func (p *Provider) saw(id string, launch time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ran) >= mostRan {
		clear(p.ran)
	}
	if launch.After(p.ran[id]) {
		p.ran[id] = launch
	}
}

func (p *Provider) last(id string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ran[id]
}

func (p *Provider) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ran, id)
}
