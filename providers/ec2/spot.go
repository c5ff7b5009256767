package ec2

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/forcefence/forcefence/providers"
)

// marketStop is the StateReason of a spot instance that the market stopped or hibernated: its request shows which.
const marketStop = "Server.SpotInstanceShutdown"

// stoppedByMarket reports whether the market stopped the instance and its request has it stop, not hibernate,
// instances.
func (s instanceAnswer) stoppedByMarket() bool {
	return s.reasonCode() == marketStop &&
		s.request.InstanceInterruptionBehavior == types.InstanceInterruptionBehaviorStop &&
		s.request.Status != nil && strings.HasPrefix(aws.ToString(s.request.Status.Code), "instance-stopped-")
}

// askMarket reads the requests of the instances that the market has stopped. If that fails, the requests are unknown,
// and a stop may have been a hibernation.
func (p *Provider) askMarket(ctx context.Context, client *ec2.Client, all answers) {
	var ids []string
	for _, s := range all {
		if s.err == nil && s.stateName() == stopped && s.reasonCode() == marketStop &&
			aws.ToString(s.SpotInstanceRequestId) != "" {
			ids = append(ids, aws.ToString(s.SpotInstanceRequestId))
		}
	}
	if len(ids) == 0 {
		return
	}
	requests, err := readSpotRequests(ctx, client, ids)
	if err != nil {
		p.opts.Log.Debug("Cannot read spot requests of stopped instances", "provider", p.opts.Name, "err", err)
		return
	}
	for id, s := range all {
		if r, ok := requests[id]; ok {
			s.request = r
			all[id] = s
		}
	}
}

// spotRequests are by the instance that each of them created.
type spotRequests = map[string]types.SpotInstanceRequest

func readSpotRequests(ctx context.Context, client *ec2.Client, ids []string) (spotRequests, error) {
	ctx = context.WithValue(ctx, instancesKey{}, len(ids))
	out, err := client.DescribeSpotInstanceRequests(ctx,
		&ec2.DescribeSpotInstanceRequestsInput{SpotInstanceRequestIds: ids})
	if err != nil {
		return nil, explainError(err)
	}
	by := spotRequests{}
	for _, r := range out.SpotInstanceRequests {
		id := aws.ToString(r.InstanceId)
		if _, twice := by[id]; twice {
			return nil, providers.Errorf(providers.ErrPermanent, "EC2 listed two spot requests of %s", id)
		}
		by[id] = r
	}
	return by, nil
}

// terminateUnstoppable terminates an instance that cannot be stopped: one of a one-time spot request, or one whose root
// is an instance store. done is false for every other instance, which must be stopped instead. Termination is final. So
// the instance is read once more right before: it must be the node's, still of that kind and launch, and have the tag.
func (p *Provider) terminateUnstoppable(ctx context.Context, q question) (done bool, _ error) {
	client := p.regions[q.region]
	first := p.askRegions(ctx, []question{q})[q.id]
	if first.err != nil {
		return false, first.err
	}
	store := first.RootDeviceType == types.DeviceTypeInstanceStore
	if !store {
		id := aws.ToString(first.SpotInstanceRequestId)
		if first.InstanceLifecycle != types.InstanceLifecycleTypeSpot || id == "" {
			return false, nil
		}
		requests, err := readSpotRequests(ctx, client, []string{id})
		if err != nil {
			return false, fmt.Errorf("reading the instance's spot request: %w", err)
		}
		if r, ok := requests[q.id]; !ok || r.Type != types.SpotInstanceTypeOneTime {
			return false, nil // a persistent one's instance can be stopped, and a terminated one would come again
		}
	}
	s := p.askRegions(ctx, []question{q})[q.id]
	switch {
	case s.err != nil:
		return false, s.err
	case zoneOf(s) != q.zone:
		return false, fmt.Errorf("%w: the instance is in zone %q", providers.ErrIdentity, zoneOf(s))
	case s.stateName() == shuttingDown, s.stateName() == terminated:
		return true, nil
	case s.RootDeviceType != first.RootDeviceType || s.InstanceLifecycle != first.InstanceLifecycle ||
		aws.ToString(s.SpotInstanceRequestId) != aws.ToString(first.SpotInstanceRequestId) ||
		!s.launchTime().Equal(first.launchTime()):
		return false, providers.Errorf(providers.ErrPermanent, "EC2 described two different instances under one id")
	case !s.hasTag(p.cfg.TerminateTag):
		return false, providers.Errorf(providers.ErrPermanent, "the instance cannot be stopped, and is not "+
			"terminated without the tag %s", p.cfg.TerminateTag)
	}
	if err := q.VerifyIdentity(providers.Observation{Addresses: s.privateAddresses()}); err != nil {
		return false, err
	}
	_, err := client.TerminateInstances(ctx,
		&ec2.TerminateInstancesInput{InstanceIds: []string{q.id}, SkipOsShutdown: aws.Bool(true)}, withPermit)
	return true, explainError(err)
}

// hasTag reports whether the instance has a tag, written KEY=VALUE.
func (s instanceAnswer) hasTag(tag string) bool {
	key, value, _ := strings.Cut(tag, "=")
	for _, t := range s.Tags {
		if aws.ToString(t.Key) == key && aws.ToString(t.Value) == value {
			return key != ""
		}
	}
	return false
}
