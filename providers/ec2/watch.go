package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	shortPoll   = time.Second // of the first question, after which it is known that the queue can be read
	maxMessages = 10          // messages in one answer, SQS' most
	// hiddenFor is how long a received message is hidden from other receivers. The next leader waits as long for a
	// message that the last one received.
	hiddenFor = 10 * time.Second
	// maxEventAge is the maximum age of a state change whose event counts. The look over all instances already reported
	// older ones. Clocks differ by five minutes at most, or no signature is valid.
	maxEventAge = 10 * time.Minute
	// longestEvent is the maximum length of an event that is read, many times an event's size.
	longestEvent = 16 << 10
	// reportEvery is the minimum time between two reports of one instance, however many messages arrive.
	reportEvery = time.Second
	// complainEvery is the minimum time between two log lines about messages that are no events.
	complainEvery = time.Minute
)

// longestAnswer is the maximum length of one answer of a queue. Ten messages of SQS' longest can be longer: then they
// are read one by one.
var longestAnswer = 8 << 20

// mostValues is the maximum number of values in one answer. It is more than any one message can have: otherwise such a
// message would block the others.
const mostValues = 2 << 20

// watchTiming holds the times for reading a queue and for retries; tests have shorter ones.
type watchTiming struct {
	poll    time.Duration // how long SQS waits for a message
	first   time.Duration // until the next attempt after one that failed; doubles with each
	last    time.Duration // and stays at this
	refused time.Duration // until the next attempt where a person has to do something first
	look    time.Duration // between two looks over all instances, at least
}

var defaultTiming = watchTiming{
	poll:    20 * time.Second,
	first:   250 * time.Millisecond,
	last:    10 * time.Second,
	refused: 30 * time.Second,
	look:    10 * time.Second,
}

// queue is one of Config.Queues.
type queue struct {
	url    string
	name   string
	client *sqs.Client
}

var (
	queueHost = regexp.MustCompile(`^(?:vpce-[a-z0-9-]+\.)?sqs(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?` +
		`(amazonaws\.com|amazonaws\.com\.cn|api\.aws|api\.amazonwebservices\.com\.cn)$`)
	queuePath = regexp.MustCompile(`^/[0-9]{12}/([A-Za-z0-9_-]{1,80}(?:\.fifo)?)$`)
)

// parseQueue parses a queue's URL, and returns its region. The address of a queue of AWS contains its region. Any other
// is in the only configured region.
func parseQueue(address string, regions []string) (u *url.URL, region string, err error) {
	if u, err = remote.ParseHTTP(address, false); err != nil {
		return nil, "", err
	}
	host := queueHost.FindStringSubmatch(u.Hostname())
	switch {
	case u.RawPath != "" || !queuePath.MatchString(u.Path):
		err = errors.New("is not a queue: write its URL, as in " +
			"https://sqs.eu-west-1.amazonaws.com/123456789012/forcefence")
	case host == nil && len(regions) == 1:
		region = regions[0]
	case host == nil:
		err = errors.New("does not contain its region, as AWS' own addresses do: write one provider for each region")
	case !slices.Contains(regions, host[1]):
		err = errors.New("is in a region that is not among regions")
	case strings.HasPrefix(host[1], "cn-") != strings.HasSuffix(host[2], ".cn"):
		err = errors.New("belongs to another partition than its region")
	default:
		region = host[1]
	}
	return u, region, err
}

// openQueues creates the clients of the queues. Each sends to the host of its queue's own URL and to no other.
func (p *Provider) openQueues(cfg aws.Config) error {
	cfg.HTTPClient = &http.Client{
		Timeout:       p.timing.poll + answerTime,
		Transport:     remote.Limited{Next: bufferedBody{p.transport}, Bytes: longestAnswer, Values: mostValues},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, address := range p.cfg.Queues {
		u, region, err := parseQueue(address, p.cfg.Regions)
		if err != nil {
			return err
		}
		p.queues = append(p.queues, &queue{address, path.Base(u.Path), sqs.NewFromConfig(cfg, func(o *sqs.Options) {
			o.Region, o.BaseEndpoint = region, aws.String(u.Scheme+"://"+u.Host)
			// The environment must not replace the configured address.
			o.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateDisabled
			o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateDisabled
			// One message with a wrong sum would fail every answer that contains it.
			o.DisableMessageChecksumValidation = true
		})})
	}
	return nil
}

// queueProvider is a Provider with queues. A Provider without queues is no Watcher.
type queueProvider struct{ *Provider }

var _ providers.Watcher = queueProvider{}

// Watch reads the queues, and reports instances that stop, are stopped or are gone, each at most once a second. It
// deletes what it has read. At the beginning, and when a queue can be read again, it looks over all instances.
//
// It retries a queue that cannot be read for ever: an administrator may grant the right or create the queue.
func (p queueProvider) Watch(ctx context.Context, targets []providers.Target, report providers.ReportFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watch{p: p.Provider, targets: targets, report: report, byInstance: map[string][]int{},
		unreported: make([]providers.Observation, len(targets))}
	for i, t := range targets {
		if in, err := parseID(t.ID); err == nil {
			w.byInstance[in.id] = append(w.byInstance[in.id], i)
		}
	}
	w.reports = remote.NewThrottle(ctx, len(targets), 4, reportEvery, w.reportTarget)
	w.lookOvers = remote.NewThrottle(ctx, 1, 1, p.timing.look, w.lookOver)
	p.mu.Lock()
	p.watches[w] = true
	p.mu.Unlock()
	var wait sync.WaitGroup
	for _, q := range p.queues {
		wait.Go(func() { w.readQueue(ctx, q) })
	}
	wait.Wait()
	p.mu.Lock()
	delete(p.watches, w)
	p.mu.Unlock()
	w.lookOvers.Wait()
	w.reports.Wait()
	return ctx.Err()
}

type watch struct {
	p                  *Provider
	targets            []providers.Target
	report             providers.ReportFunc
	byInstance         map[string][]int // targets by their instances
	reports, lookOvers *remote.Throttle

	mu         sync.Mutex              // guards what follows
	unreported []providers.Observation // not reported yet; by target
}

// reportSoon records a target's state for a report soon. Events arrive in any order, and a stopped instance does not
// stop again.
func (w *watch) reportSoon(i int, o providers.Observation) {
	w.mu.Lock()
	if w.unreported[i].State != providers.PowerOff || o.State == providers.PowerOff {
		w.unreported[i] = o
	}
	w.mu.Unlock()
	w.reports.RunSoon(i)
}

func (w *watch) reportTarget(_ context.Context, i int) {
	w.mu.Lock()
	o := w.unreported[i]
	w.unreported[i] = providers.Observation{}
	w.mu.Unlock()
	if !o.At.IsZero() {
		w.report(w.targets[i], o)
	}
}

// lookOver reports the targets that do not run. It skips those that EC2 does not answer for.
func (w *watch) lookOver(ctx context.Context, _ int) {
	var ask []providers.Target
	same := map[string][]int{}
	for i, t := range w.targets {
		if same[t.Key()] == nil {
			ask = append(ask, t)
		}
		same[t.Key()] = append(same[t.Key()], i)
	}
	for some := range slices.Chunk(ask, maxStates) {
		all, err := w.p.States(ctx, some)
		if err != nil && ctx.Err() == nil {
			w.p.opts.Log.Debug("Cannot read the states of all instances", "provider", w.p.opts.Name, "err", err)
		}
		for key, o := range all {
			for _, i := range same[key] {
				if o.State != providers.PowerOn {
					w.reportSoon(i, o)
				}
			}
		}
	}
}

// readQueue reads one queue until ctx ends.
func (w *watch) readQueue(ctx context.Context, q *queue) {
	log := w.p.opts.Log.With("provider", w.p.opts.Name, "queue", q.name)
	r := w.p.timing
	connected, pause, wait, most, bad, lastComplaint := false, r.first, shortPoll, maxMessages, 0, time.Time{}
	lastTrouble := "" // the trouble that was logged last
	for {
		begun, act := time.Now(), "receive from"
		var messages []sqstypes.Message
		err := w.p.checkCredentials(ctx)
		if err == nil {
			messages, err = q.receiveMessages(ctx, wait, most)
		}
		switch {
		case err == nil:
			if !connected {
				connected, wait = true, r.poll
				w.lookOvers.RunSoon(0)
			}
			bad += w.p.handleMessages(messages)
			act, err = "delete from", q.deleteMessages(ctx, messages)
			if len(messages) == 0 {
				most = maxMessages
			}
		case errors.Is(err, remote.ErrTooLarge):
			most = 1
		default:
			connected, wait = false, shortPoll
		}
		if bad > 0 && time.Since(lastComplaint) >= complainEvery {
			log.Warn("Deleted messages that are not EventBridge events: check who may send to this queue",
				"messages", bad)
			bad, lastComplaint = 0, time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if lastTrouble != "" {
				log.Info("Queue can be read again")
			}
			pause, lastTrouble = r.first, ""
			if len(messages) > 0 || time.Since(begun) >= shortPoll {
				continue
			}
			pause = shortPoll // a service that does not wait for messages
		default:
			err = q.explainFailure(ctx, act, err)
			class := providers.ErrorClass(err)
			if trouble := act + " " + class; lastTrouble != trouble {
				log.Warn("Cannot read the queue of instances' events", "err", err)
				lastTrouble = trouble
			}
			if class == "denied" || class == "not_found" || class == "permanent" {
				pause = r.refused
			}
		}
		if !remote.SleepContext(ctx, pause) {
			return
		}
		pause = min(2*pause, max(r.last, r.first))
	}
}

// receiveMessages waits for messages; none is no error.
func (q *queue) receiveMessages(ctx context.Context, wait time.Duration, most int) ([]sqstypes.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+answerTime)
	defer cancel()
	out, err := q.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:            &q.url,
		MaxNumberOfMessages: int32(most),
		WaitTimeSeconds:     int32(wait / time.Second),
		VisibilityTimeout:   int32(hiddenFor / time.Second),
	})
	if err != nil {
		return nil, remote.EnsureClass(ctx, explainError(err))
	}
	return out.Messages, nil
}

// deleteMessages deletes what was received.
func (q *queue) deleteMessages(ctx context.Context, messages []sqstypes.Message) error {
	for some := range slices.Chunk(messages, maxMessages) {
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.url}
		for i, m := range some {
			in.Entries = append(in.Entries, sqstypes.DeleteMessageBatchRequestEntry{
				Id:            aws.String(strconv.Itoa(i)),
				ReceiptHandle: aws.String(aws.ToString(m.ReceiptHandle)),
			})
		}
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		out, err := q.client.DeleteMessageBatch(ctx, in)
		if err == nil && len(out.Failed) > 0 {
			err = providers.Errorf(providers.ErrUnreachable, "%d of %d were not deleted: %s", len(out.Failed),
				len(some), aws.ToString(out.Failed[0].Code))
		}
		err = remote.EnsureClass(ctx, explainError(err))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// explainFailure adds the act, the queue, a class and advice to an error.
func (q *queue) explainFailure(ctx context.Context, act string, err error) error {
	err = remote.EnsureClass(ctx, err)
	switch providers.ErrorClass(err) {
	case "denied":
		err = fmt.Errorf("%w: the credentials need sqs:ReceiveMessage and sqs:DeleteMessage on the queue, and "+
			"kms:Decrypt where a key of yours encrypts it", err)
	case "not_found":
		err = fmt.Errorf("%w: there is no such queue at this address", err)
	}
	return fmt.Errorf("%s queue %s: %w", act, q.name, err)
}

// handleMessages passes messages to all watches, whichever of them received them. It returns how many are no events at
// all.
func (p *Provider) handleMessages(messages []sqstypes.Message) (bad int) {
	now := p.opts.Now()
	for _, m := range messages {
		e, err := parseEvent(aws.ToString(m.Body))
		if err != nil {
			bad++
			continue
		}
		if !isGoingOff(e.Detail.State) || now.Sub(e.Time) > maxEventAge {
			continue
		}
		o := providers.Observation{State: powerState(e.Detail.State), Raw: "event: " + string(e.Detail.State),
			At: providers.InstantOf(now)}
		p.mu.Lock()
		for w := range p.watches {
			for _, i := range w.byInstance[e.Detail.ID] {
				w.reportSoon(i, o)
			}
		}
		p.mu.Unlock()
	}
	return bad
}

// event is the part of EventBridge's "EC2 Instance State-change Notification" that matters.
type event struct {
	Source string    `json:"source"`
	Type   string    `json:"detail-type"`
	Time   time.Time `json:"time"`
	Detail struct {
		ID    string                  `json:"instance-id"`
		State types.InstanceStateName `json:"state"`
	} `json:"detail"`
}

var errNoEvent = errors.New("is no event of an instance")

// parseEvent parses a message. A sender to the queue may send anything.
func parseEvent(body string) (e event, _ error) {
	if len(body) > longestEvent || json.Unmarshal([]byte(body), &e) != nil ||
		e.Source != "aws.ec2" || e.Type != "EC2 Instance State-change Notification" || e.Time.IsZero() ||
		!instanceOnly.MatchString(e.Detail.ID) || powerState(e.Detail.State) == providers.PowerUnknown {
		return e, errNoEvent
	}
	return e, nil
}

var instanceOnly = regexp.MustCompile(`^i-(?:[0-9a-f]{8}|[0-9a-f]{17})$`)

// checkQueues returns the faults of Config.Queues.
func (c *Config) checkQueues() (out []providers.Problem) {
	seen := map[string]bool{}
	for i, address := range c.Queues {
		u, _, err := parseQueue(address, c.Regions)
		if err == nil && seen[u.Host+u.Path] {
			err = errors.New("is listed already")
		}
		if err != nil {
			out = append(out, providers.Problemf(fmt.Sprintf("queues[%d]", i), "%v", err))
			continue
		}
		seen[u.Host+u.Path] = true
	}
	return out
}
