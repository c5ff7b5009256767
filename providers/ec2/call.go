package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// question is a target and the place of its instance.
type question struct {
	providers.Target
	instance
	region string
}

// zonesHold is how long a zone that no region reported is not looked up again: zones are added once a year, wrong IDs
// at any time.
const zonesHold = time.Minute

// locateInstances finds the region of each target's zone, from the regions' lists of zones. The names of local and
// wavelength zones have patterns of their own. It passes targets that cannot be asked for to fail.
func (p *Provider) locateInstances(ctx context.Context, targets []providers.Target, fail failFunc) (ask []question) {
	var lost []question
	for _, t := range targets {
		i, err := parseID(t.ID)
		q := question{t, i, p.regionOf(i.zone)}
		switch {
		case err != nil:
			fail(t, providers.Errorf(providers.ErrNotFound, "its ID %w", err))
		case q.region == "":
			lost = append(lost, q)
		default:
			ask = append(ask, q)
		}
	}
	if len(lost) == 0 {
		return ask
	}
	err := p.lookForZones(ctx)
	for _, q := range lost {
		q.region = p.regionOf(q.zone)
		switch {
		case q.region != "":
			ask = append(ask, q)
		case err != nil:
			fail(q.Target, err)
		default:
			fail(q.Target, providers.Errorf(providers.ErrNotFound, "zone %s is in none of the regions %s", q.zone,
				strings.Join(p.cfg.Regions, ", ")))
		}
	}
	return ask
}

type failFunc = func(providers.Target, error)

// regionOf returns the region of a zone; "" if it is not known.
func (p *Provider) regionOf(zone string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.zones[zone]
}

// lookForZones asks the regions for their zones, unless another call just did. A region that does not answer does not
// affect the others' zones.
func (p *Provider) lookForZones(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	came := p.opts.Now()
	select {
	case p.looking <- struct{}{}:
		defer func() { <-p.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	fresh := !p.looked.IsZero() && came.Sub(p.looked) < zonesHold
	p.mu.Unlock()
	if fresh {
		return nil
	}
	errs := make([]error, len(p.cfg.Regions))
	var wait sync.WaitGroup
	for i, region := range p.cfg.Regions {
		wait.Go(func() {
			out, err := p.regions[region].DescribeAvailabilityZones(ctx,
				&ec2.DescribeAvailabilityZonesInput{AllAvailabilityZones: aws.Bool(true)})
			if err != nil {
				errs[i] = fmt.Errorf("asking region %s for its zones: %w", region, explainError(err))
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, z := range out.AvailabilityZones {
				if aws.ToString(z.RegionName) == region {
					p.zones[aws.ToString(z.ZoneName)] = region
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = p.opts.Now()
	return nil
}

// checkCredentials checks that there are credentials to sign with. The SDK reports missing ones in many ways and
// without a class.
func (p *Provider) checkCredentials(ctx context.Context) error {
	_, err := p.credentials.Retrieve(ctx)
	if err = explainError(err); err == nil || ctx.Err() != nil || errorCode(err) != "" {
		return err
	}
	var network net.Error
	if errors.As(err, &network) { // STS, or the instance's own metadata, cannot be reached
		return err
	}
	return providers.Errorf(providers.ErrDenied, "no credentials: %w", err)
}

// askRegions asks each region for its instances, all at the same time. The result has an instanceAnswer for each
// instance, by its id.
func (p *Provider) askRegions(ctx context.Context, ask []question) answers {
	byRegion, named := map[string][]instance{}, map[string]bool{}
	for _, q := range ask {
		if !named[q.id] { // once, even if two IDs put it in two zones: at most one of them is right
			named[q.id] = true
			byRegion[q.region] = append(byRegion[q.region], q.instance)
		}
	}
	return forEachPart(byRegion, func(region string, of []instance) answers {
		return p.askRegion(ctx, p.regions[region], of)
	})
}

// answers are by the instances' ids.
type answers = map[string]instanceAnswer

// forEachPart runs f for all parts at the same time and merges the results.
func forEachPart(parts map[string][]instance, f func(string, []instance) answers) answers {
	var mu sync.Mutex // guards all
	all := answers{}
	var wait sync.WaitGroup
	for name, of := range parts {
		wait.Go(func() {
			got := f(name, of)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, got)
		})
	}
	wait.Wait()
	return all
}

// askRegion asks one region for instances, in one call if possible. DescribeInstances fails as a whole for one id that
// does not exist, and for one impaired zone. Then askRegion asks again without those ids, or zone by zone.
func (p *Provider) askRegion(ctx context.Context, client *ec2.Client, of []instance) answers {
	zones := map[string][]instance{}
	for _, i := range of {
		zones[i.zone] = append(zones[i.zone], i)
	}
	first := ctx
	end, _ := ctx.Deadline()
	if len(zones) > 1 { // an impaired zone may also hang
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(ctx, time.Until(end)/3)
		defer cancel()
	}
	all, err := p.describeInstances(first, client, of)
	switch {
	case err == nil || len(of) == 1 || ctx.Err() != nil:
	case errors.Is(err, providers.ErrNotFound):
		return p.askWithoutMissing(ctx, client, of, err)
	case len(zones) > 1 && !isThrottled(err) && (first.Err() != nil || providers.ErrorClass(err) == "unreachable"):
		ctx, cancel := context.WithTimeout(ctx, time.Until(end)*2/3) // the other zones' answers must be in time
		defer cancel()
		return forEachPart(zones, func(_ string, of []instance) answers { return p.askRegion(ctx, client, of) })
	}
	if err != nil {
		return failAll(of, err)
	}
	return all
}

func failAll(of []instance, err error) answers {
	all := answers{}
	for _, i := range of {
		all[i.id] = instanceAnswer{err: err}
	}
	return all
}

var instanceID = regexp.MustCompile(`\bi-[0-9a-f]+\b`)

// askWithoutMissing asks again for the instances that an error about missing ones does not name. If it names none of
// them, it asks in halves.
func (p *Provider) askWithoutMissing(ctx context.Context, client *ec2.Client, of []instance, err error) answers {
	named := instanceID.FindAllString(err.Error(), -1)
	rest := slices.DeleteFunc(slices.Clone(of), func(i instance) bool { return slices.Contains(named, i.id) })
	parts := [][]instance{rest}
	if len(rest) == len(of) {
		parts = [][]instance{of[:len(of)/2], of[len(of)/2:]}
	}
	all := failAll(of, err)
	for _, part := range parts {
		if len(part) > 0 {
			maps.Copy(all, p.askRegion(ctx, client, part))
		}
	}
	return all
}

// describeInstances sends one question. An instance that the answer omits, or has twice, has an error.
func (p *Provider) describeInstances(ctx context.Context, client *ec2.Client, of []instance) (answers, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ids := make([]string, len(of))
	for i := range of {
		ids[i] = of[i].id
	}
	at := p.opts.Now()
	all := answers{}
	ctx = context.WithValue(ctx, instancesKey{}, len(of))
	pages := ec2.NewDescribeInstancesPaginator(client, &ec2.DescribeInstancesInput{InstanceIds: ids})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explainError(err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				id := aws.ToString(i.InstanceId)
				s := instanceAnswer{Instance: i, at: at}
				if _, twice := all[id]; twice {
					s.err = providers.Errorf(providers.ErrPermanent, "EC2 listed %s twice in one answer", id)
				}
				all[id] = s
			}
		}
	}
	for _, i := range of {
		if _, answered := all[i.id]; !answered {
			left := providers.Errorf(providers.ErrNotFound, "EC2's answer does not contain the instance")
			all[i.id] = instanceAnswer{err: left}
		}
	}
	p.askMarket(ctx, client, all)
	return all, nil
}

// answeredError is an error that EC2, or another AWS service on the way to it, returned.
type answeredError struct{ code, text string }

func (r *answeredError) Error() string { return r.text }

func errorCode(err error) string {
	var r *answeredError
	if errors.As(err, &r) {
		return r.code
	}
	return ""
}

func isThrottled(err error) bool {
	c := errorCode(err)
	return c == "RequestLimitExceeded" || strings.HasPrefix(c, "Throttl")
}

// incorrectState is EC2's answer to a stop or a start of an instance that cannot be stopped or started now.
const incorrectState = "IncorrectInstanceState"

// explainError adds a class to an SDK error, and a text for users: which call, and what it returned. Of a refusal the
// text has the code alone, since the rest names accounts and users. remote.EnsureClass classifies an error that is no
// answer.
func explainError(err error) error {
	if err == nil || errors.Is(err, providers.ErrNotSent) {
		return err
	}
	var api smithy.APIError
	var address *url.Error
	switch {
	case errors.As(err, &api):
		call := ""
		for op, e := (*smithy.OperationError)(nil), err; errors.As(e, &op); e = op.Unwrap() {
			// the innermost: the call that failed may be one that gets the credentials
			call = op.Service() + " " + op.Operation() + ": "
		}
		class := classOf(api.ErrorCode(), err)
		text := call + api.ErrorCode()
		if !errors.Is(class, providers.ErrDenied) && api.ErrorMessage() != "" {
			text += ": " + api.ErrorMessage()
		}
		return providers.WithClass(class, &answeredError{api.ErrorCode(), text})
	case errors.As(err, &address):
		return remote.ExplainHandshake(address.Err)
	}
	return err
}

// classOf returns the class of an error's code; for an unknown code, of the status beside it.
func classOf(code string, err error) error {
	switch code {
	case "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed":
		return providers.ErrNotFound
	case "UnauthorizedOperation", "AuthFailure", "AccessDenied", "AccessDeniedException", "InvalidClientTokenId",
		"UnrecognizedClientException", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException",
		"RequestExpired", "MissingAuthenticationToken", "InvalidIdentityToken", "InvalidSecurity", "KmsAccessDenied",
		"KMS.AccessDeniedException", "IDPRejectedClaim", "OptInRequired", "Blocked", "PendingVerification",
		"NotSignedUp":
		return providers.ErrDenied
	case "RequestLimitExceeded", "RequestThrottled", "KmsThrottled", "Throttling", "ThrottlingException",
		"ThrottledException", "InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable",
		"InsufficientInstanceCapacity", incorrectState:
		return providers.ErrUnreachable
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return remote.HTTPClass(answer.HTTPStatusCode())
	}
	return providers.ErrPermanent
}
