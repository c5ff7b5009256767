// Package ec2 asks Amazon EC2 whether the instance that a node runs on is off, and stops and starts it. It imports the
// contract, providers/remote, the standard library and the AWS SDK.
//
//	providers:
//	- name: aws
//	  ec2:
//	    regions: [eu-west-1]
//	    roleARN: ""    # a role to assume with the credentials that the environment gives
//	    externalID: "" # that the role's trust policy asks for
//	    endpoint: ""   # instead of the public one: a VPC endpoint
//	    agree: 3s      # between two answers of stopped, before it counts
//	    spot: ""       # or terminate: what cannot be stopped, and has terminateTag
//
// A target's ID is the node's whole providerID: aws:///eu-west-1a/i-0123456789abcdef0. Credentials come from the SDK's
// standard chain: environment, web identity (IRSA), shared files, container, instance profile.
//
// It promises that stopped is Off only if two answers, Config.Agree apart, report the same stop, nothing that the
// instance or this process knows contradicts it, and no memory was saved. The second answer is of this call, the first
// of this call or of a call just before that had no time left. It also promises that nothing is terminated but what
// Config.Spot allows, and that no secret is in an error. An instance whose zone is not the ID's, or that has no private
// address, belongs to no node.
package ec2

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	smithy "github.com/aws/smithy-go/middleware"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Config is the provider's part of the configuration file.
type Config struct {
	Regions []string `yaml:"regions"` // where the nodes' zones are looked for; at least one
	// a role to assume; "": the credentials of the environment are used as they are
	RoleARN    string `yaml:"roleARN"`
	ExternalID string `yaml:"externalID"` // that the role's trust policy asks for; "": none
	// https:// of a VPC endpoint of one region; "": the region's public one
	Endpoint string `yaml:"endpoint"`
	// between two answers of stopped, before it counts: EC2 may say so for a while after a start; 2s to 4s
	Agree time.Duration `yaml:"agree"`
	// one of "", terminate; "": what cannot be stopped runs on; terminate: one-time spot and instance-store instances
	// end for good
	Spot string `yaml:"spot"`
	// KEY=VALUE of instances that may be terminated; with spot: terminate
	TerminateTag string `yaml:"terminateTag"`
}

const (
	// With the default the question before the mark and the one after it take longer than 5 s together.
	leastAgree, defaultAgree, mostAgree = 2 * time.Second, 3 * time.Second, 4 * time.Second

	// concurrency is the default of the setting. It is high because a call that found its instance stopped waits for
	// Config.Agree before it asks again.
	concurrency = 64
	// maxStates is the maximum number of instances that DescribeInstances accepts in one call.
	maxStates = 1000
)

// answerTime is the timeout of one request including its answer, beside its call's deadline. The SDK gets credentials
// without a deadline, once for all callers, and would wait for ever for an STS that is silent.
var answerTime = 10 * time.Second

// maxBackoff is the maximum time that the SDK waits before it retries a call; it retries twice.
var maxBackoff = 500 * time.Millisecond

// Type is the registry's entry.
func Type() providers.Type {
	return providers.Type{
		Name: "ec2", NewConfig: func() providers.Config { return NewConfig() }, Concurrency: concurrency,
		Off:      "`terminated`, or `stopped` in two answers `agree` apart that name one stop, and not hibernated",
		Identity: "private addresses, one of which must be the Node's, and the zone",
	}
}

// NewConfig returns the defaults.
func NewConfig() *Config { return &Config{Agree: defaultAgree} }

var (
	regionName = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)
	roleARN    = regexp.MustCompile(`^arn:[a-z-]+:iam::[0-9]{12}:role/[\w+=,.@/-]+$`)
)

// Validate returns every fault. It reads no file and contacts no service: missing credentials show when they are used.
func (c *Config) Validate() (out []providers.Problem) {
	problem := func(path, format string, a ...any) { out = append(out, providers.Problemf(path, format, a...)) }
	if len(c.Regions) == 0 {
		problem("regions", "missing: write the regions that the nodes run in, as in [eu-west-1]")
	}
	for i, r := range c.Regions {
		if !regionName.MatchString(r) {
			problem(fmt.Sprintf("regions[%d]", i), "is not a region: write its name, as in eu-west-1")
		} else if slices.Contains(c.Regions[:i], r) {
			problem(fmt.Sprintf("regions[%d]", i), "%s is listed already", r)
		}
	}
	if c.RoleARN != "" && !roleARN.MatchString(c.RoleARN) {
		problem("roleARN", "is not the ARN of a role: write arn:aws:iam::123456789012:role/NAME")
	}
	if c.ExternalID != "" && c.RoleARN == "" {
		problem("externalID", "has no effect without roleARN")
	}
	if c.Endpoint != "" {
		if _, err := remote.ParseHTTP(c.Endpoint, false); err != nil {
			problem("endpoint", "%v", err)
		}
		if len(c.Regions) > 1 {
			problem("endpoint", "is one region's: write one provider for each region")
		}
	}
	key, value, isTag := strings.Cut(c.TerminateTag, "=")
	switch {
	case c.Spot != "" && c.Spot != spotTerminate:
		problem("spot", "is %q: use terminate, or leave it out", c.Spot)
	case c.Spot == spotTerminate && (!isTag || key == "" || value == ""):
		problem("terminateTag", "is %q: write KEY=VALUE of the instances that may be terminated", c.TerminateTag)
	case c.Spot == "" && c.TerminateTag != "":
		problem("terminateTag", "has no effect without spot: terminate")
	}
	if c.Agree < leastAgree || c.Agree > mostAgree {
		problem("agree", "must be from %s to %s: an answer older than 5s proves nothing", leastAgree, mostAgree)
	}
	return out
}

// spotTerminate is the value of Config.Spot.
const spotTerminate = "terminate"

// Cautions implements providers.Cautious.
func (c *Config) Cautions() (out []providers.Problem) {
	if c.Spot == spotTerminate {
		out = append(out, providers.Problemf("spot",
			"a power-off ends instances with the tag %s for ever, with their instance store and each volume "+
				"that is deleted on termination, if they cannot be stopped", c.TerminateTag))
	}
	return out
}

// HasAddressIDs implements providers.IDs: an instance's id is no address.
func (*Config) HasAddressIDs() bool { return false }

// ProviderIDs implements providers.ProviderIDs.
func (*Config) ProviderIDs() bool { return true }

// TimeToOff implements providers.Slow, for the check of the timeout.
func (c *Config) TimeToOff() time.Duration { return c.Agree }

// SharesPower implements providers.SharesPower: EC2 reports an instance as running after its host lost its power.
func (c *Config) SharesPower() bool { return true }

// CanonicalID implements providers.IDs. There is one way to write an instance's providerID. It refuses every other
// text: other clouds' IDs, and those of nodes that are no instances, such as Fargate's.
func (*Config) CanonicalID(id string) (canonical string, hosts []string, err error) {
	_, err = parseID(id)
	return id, nil, err
}

// instance is the instance that a target's ID names.
type instance struct{ zone, id string }

var providerID = regexp.MustCompile(`^aws:///([a-z0-9-]{1,64})/(i-(?:[0-9a-f]{8}|[0-9a-f]{17}))$`)

func parseID(id string) (instance, error) {
	m := providerID.FindStringSubmatch(id)
	if m == nil {
		return instance{}, errors.New("is not an EC2 instance: it must be a node's whole providerID, as in " +
			"aws:///eu-west-1a/i-0123456789abcdef0")
	}
	return instance{m[1], m[2]}, nil
}

// New returns the provider. It reads what the SDK's chain of settings reads (environment, shared files) and contacts no
// service.
func (c *Config) New(o providers.Options) (providers.Provider, error) { return New(*c, o) }

// New returns a provider. It reads the environment and the SDK's shared files, and contacts no service.
func New(c Config, o providers.Options) (*Provider, error) {
	p := &Provider{
		cfg:          c,
		opts:         o.WithDefaults(),
		regions:      map[string]*ec2.Client{},
		zones:        map[string]string{},
		looking:      make(chan struct{}, 1),
		lastLaunches: map[string]time.Time{},
		firsts:       map[string]instanceAnswer{},
	}
	cfg, err := config.LoadDefaultConfig(context.Background(),
		config.WithRegion(c.Regions[0]), config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(answerTime).WithTransportOptions(boundHeader)),
		// It waits no longer than the call may take. The last answer is more useful than the fact that the time ran
		// out.
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = 3, maxBackoff })
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("reading AWS settings: %w", err)
	}
	client, ok := cfg.HTTPClient.(*awshttp.BuildableClient) // the one given above, with AWS_CA_BUNDLE
	if !ok {
		return nil, fmt.Errorf("reading AWS settings: an HTTP client of type %T", cfg.HTTPClient)
	}
	p.transport = client.GetTransport()
	p.transport.MaxIdleConnsPerHost = concurrency
	// With HTTP/2 all calls would share one connection, which stays open when it hangs and their time is up.
	p.transport.ForceAttemptHTTP2, p.transport.TLSNextProto = false, nil
	p.transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	cfg.HTTPClient = &http.Client{
		Timeout:       answerTime,
		Transport:     boundedAnswers{bufferedBody{p.transport}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if program, version, ok := strings.Cut(p.opts.Agent, "/"); ok { // behind what the SDK says of itself
		cfg.APIOptions = append(cfg.APIOptions, middleware.AddUserAgentKeyValue(program, version))
	}
	if c.RoleARN != "" {
		cfg.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), c.RoleARN,
			func(o *stscreds.AssumeRoleOptions) {
				o.RoleSessionName = "forcefence"
				if c.ExternalID != "" {
					o.ExternalID = &c.ExternalID
				}
			}))
	}
	p.credentials = cfg.Credentials
	for _, region := range c.Regions {
		p.regions[region] = ec2.NewFromConfig(cfg, func(o *ec2.Options) {
			o.Region = region
			if c.Endpoint != "" {
				o.BaseEndpoint = &c.Endpoint
			}
		})
	}
	return p, nil
}

func boundHeader(t *http.Transport) { t.MaxResponseHeaderBytes = remote.MaxHeader }

// The maximum size of one answer: a fixed part, and a part for each instance in the question. An instance with 15
// interfaces of 50 addresses each, as Kubernetes nodes may be, has some 160 KB and 9,000 tags.
const (
	leastAnswer, eachAnswer = 256 << 10, 256 << 10
	leastTags, eachTags     = 4_000, 10_000
)

// boundedAnswers bounds the answers of EC2 and STS, by the number of instances that a request names.
type boundedAnswers struct{ next http.RoundTripper }

type instancesKey struct{}

// RoundTrip implements http.RoundTripper.
func (a boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	n, _ := r.Context().Value(instancesKey{}).(int)
	return remote.Limited{Next: a.next, Bytes: leastAnswer + n*eachAnswer, Values: leastTags + n*eachTags}.RoundTrip(r)
}

// bufferedBody sends each request's body from memory. The SDK closes a body as soon as an answer begins. If that
// happens before the transport reads the body's end, the connection is closed in the middle of the answer, and the SDK
// asks once more.
type bufferedBody struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w bufferedBody) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return w.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	r = r.WithContext(r.Context()) // not the caller's own
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody() // never fails
	return w.next.RoundTrip(r)
}

// Provider controls EC2 instances with one set of credentials. It is safe for concurrent use.
type Provider struct {
	cfg       Config
	opts      providers.Options
	transport *http.Transport
	regions   map[string]*ec2.Client
	looking   chan struct{} // holds a token of the call that looks for zones

	credentials aws.CredentialsProvider // of all clients; it keeps them while they are good

	mu     sync.Mutex        // guards what follows
	zones  map[string]string // the region of each zone that is known
	looked time.Time         // when all regions last listed their zones; zero: never
	// by instance: the last launch under which this process saw it run, start or stop
	lastLaunches map[string]time.Time
	firsts       map[string]instanceAnswer // by instance: an answer of stopped of a call that had no time for another
}

var (
	_ providers.ProviderIDs = (*Config)(nil)
	_ providers.SharesPower = (*Config)(nil)
	_ providers.Slow        = (*Config)(nil)
	_ providers.Cautious    = (*Config)(nil)
	_ providers.Slow        = (*Provider)(nil)
	_ providers.Provider    = (*Provider)(nil)
	_ providers.BatchStater = (*Provider)(nil)
	_ providers.Limiter     = (*Provider)(nil)
	_ providers.Closer      = (*Provider)(nil)
)

// LimitGroup implements providers.Limiter: EC2 counts calls by account and region. With several regions, zones whose
// region is unknown share one group.
func (p *Provider) LimitGroup(t providers.Target) string {
	i, _ := parseID(t.ID) // the zero instance is in no zone
	return cmp.Or(p.regionOf(i.zone), strings.Join(p.cfg.Regions, " "))
}

// TimeToOff implements providers.Slow.
func (p *Provider) TimeToOff() time.Duration { return p.cfg.Agree }

// MaxStates implements providers.BatchStater.
func (*Provider) MaxStates() int { return maxStates }

// State asks for the instance, and asks a second time if it is stopped.
func (p *Provider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	all, err := p.States(ctx, []providers.Target{t})
	if obs, ok := all[t.Key()]; ok {
		return obs, nil
	}
	var each providers.Unanswered
	if errors.As(err, &each) {
		err = each[t.Key()]
	}
	return providers.Observation{}, err
}

// States implements providers.BatchStater: one call for each region, and one more for the stopped instances. A target
// without an answer has its error in Unanswered.
func (p *Provider) States(ctx context.Context, targets []providers.Target) (map[string]providers.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, remote.Backstop)
	defer cancel()
	answers, errs := map[string]providers.Observation{}, providers.Unanswered{}
	fail := func(t providers.Target, err error) {
		err = remote.EnsureClass(ctx, err)
		errs[t.Key()] = fmt.Errorf("ask state of node %s (%s): %w", t.Node, p.deviceName(t), err)
	}
	if err := p.checkCredentials(ctx); err != nil {
		for _, t := range targets {
			fail(t, err)
		}
		return nil, errs
	}
	store := func(q question, obs providers.Observation, err error) {
		if err != nil {
			fail(q.Target, err)
		} else {
			answers[q.Key()] = obs
		}
	}
	ask := p.locateInstances(ctx, targets, fail)
	seen := p.askRegions(ctx, ask)
	var again []question
	for _, q := range ask {
		obs, doubt, err := p.evaluateFirst(q, seen[q.id])
		if err == nil {
			first, before := p.takeFirst(q.id, seen[q.id].at)
			switch {
			case doubt && before:
				obs, err = p.confirmStopped(q, first, seen[q.id])
			case doubt:
				again = append(again, q)
				continue
			}
		}
		store(q, obs, err)
	}
	if len(again) > 0 {
		var second map[string]instanceAnswer
		late := p.waitAgree(ctx)
		if late == nil {
			second = p.askRegions(ctx, again)
		}
		for _, q := range again {
			obs, err := providers.Observation{}, late
			if err == nil {
				obs, err = p.confirmStopped(q, seen[q.id], second[q.id])
			}
			if err != nil {
				p.keepFirst(q.id, seen[q.id])
			}
			store(q, obs, err)
		}
	}
	if len(errs) > 0 {
		return answers, errs
	}
	return answers, nil
}

// firstFor is how long a first answer of stopped is kept for its second: twice the longest timeout of a call, and a
// little.
const firstFor = 12 * time.Second

// keepFirst keeps an answer of stopped that got no second one in its own call: a slow API would never give both within
// one timeout.
func (p *Provider) keepFirst(id string, s instanceAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.firsts) >= maxLaunches {
		clear(p.firsts)
	}
	p.firsts[id] = instanceAnswer{at: s.at, Instance: types.Instance{
		StateTransitionReason: s.StateTransitionReason, StateReason: s.StateReason, LaunchTime: s.LaunchTime,
	}}
}

// takeFirst returns the kept answer if it was asked for at least Config.Agree before now, and not long before. It
// returns an answer only once, so that each Off has two answers of its own.
func (p *Provider) takeFirst(id string, now time.Time) (s instanceAnswer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok = p.firsts[id]
	delete(p.firsts, id)
	first, second := providers.InstantOf(s.at), providers.InstantOf(now)
	return s, ok && first.Lasted(second) >= p.cfg.Agree && first.Age(second) <= firstFor
}

// waitAgree waits for Config.Agree between two answers.
func (p *Provider) waitAgree(ctx context.Context) error {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < p.cfg.Agree {
		return providers.Errorf(providers.ErrUnreachable, "stopped, and no time is left to ask once more after %s "+
			"(agree)", p.cfg.Agree)
	}
	if !remote.SleepContext(ctx, p.cfg.Agree) {
		return ctx.Err()
	}
	return nil
}

// PowerOff requests a stop that neither waits for the guest nor gives up on it. It does nothing for a stopped instance.
// If Config.Spot allows it, it terminates an instance that cannot be stopped.
func (p *Provider) PowerOff(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runAction(ctx, "power off", t, func(ctx context.Context, q question) error {
		if p.cfg.Spot == spotTerminate {
			if done, err := p.terminateUnstoppable(ctx, q); done || err != nil {
				return err
			}
		}
		_, err := p.regions[q.region].StopInstances(ctx, &ec2.StopInstancesInput{
			InstanceIds: []string{q.id}, Force: aws.Bool(true), SkipOsShutdown: aws.Bool(true),
		}, withPermit)
		if err = explainError(err); errorCode(err) != incorrectState {
			return err
		}
		s := p.askRegions(ctx, []question{q})[q.id]
		if s.err == nil && isGoingOff(s.stateName()) { // terminated, or on its way there
			return nil
		}
		return err
	})
}

// PowerOn requests a start, but not for an instance whose memory was saved: that would resume the earlier machine, with
// its pods and its mounts.
func (p *Provider) PowerOn(ctx context.Context, t providers.Target, still func() error) error {
	ctx = remote.WithStill(ctx, still)
	return p.runAction(ctx, "power on", t, func(ctx context.Context, q question) error {
		s := p.askRegions(ctx, []question{q})[q.id]
		switch {
		case s.err != nil:
			return s.err
		case s.stateName() == stopped && s.savedReason() != "":
			return providers.Errorf(providers.ErrPermanent, "the instance is %s, and a start may resume its memory: "+
				"start it yourself if that is right", s.savedReason())
		}
		_, err := p.regions[q.region].StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{q.id}},
			withPermit)
		return explainError(err)
	})
}

// withPermit checks at each attempt of a call whether it may still be sent: last before the network, after the SDK's
// retry logic.
func withPermit(o *ec2.Options) {
	ask := func(ctx context.Context, in smithy.FinalizeInput, next smithy.FinalizeHandler) (
		out smithy.FinalizeOutput, _ smithy.Metadata, _ error) {
		if err := remote.MaySend(ctx); err != nil {
			return out, smithy.Metadata{}, err
		}
		return next.HandleFinalize(ctx, in)
	}
	o.APIOptions = append(o.APIOptions, func(s *smithy.Stack) error {
		return s.Finalize.Add(smithy.FinalizeMiddlewareFunc("forcefence:permit", ask), smithy.After)
	})
}

// runAction runs a power action on the target's instance.
func (p *Provider) runAction(ctx context.Context, act string, t providers.Target, f instanceAction) error {
	return remote.RunCall(ctx, act, t, p.deviceName(t), func(ctx context.Context) (err error) {
		if err = p.checkCredentials(ctx); err != nil {
			return err
		}
		for _, q := range p.locateInstances(ctx, []providers.Target{t}, func(_ providers.Target, e error) { err = e }) {
			err = f(ctx, q)
		}
		return err
	})
}

type instanceAction = func(context.Context, question) error

func (p *Provider) deviceName(t providers.Target) string { return "ec2 " + p.opts.Name + " " + t.ID }

// Close closes the connections.
func (p *Provider) Close(context.Context) error {
	p.transport.CloseIdleConnections()
	return nil
}
