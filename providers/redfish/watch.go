package redfish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// watchTiming holds the times with which a watch keeps its streams and subscriptions; tests have shorter ones.
type watchTiming struct {
	first time.Duration // until the first attempt after events were lost; doubles with each that fails
	last  time.Duration // and stays at this
	none  time.Duration // until a BMC that has no events is tried again: it may get another firmware
	quiet time.Duration // after which a stream that carries nothing is replaced, and a subscription is checked
}

var defaultTiming = watchTiming{first: time.Second, last: time.Minute, none: time.Hour, quiet: 5 * time.Minute}

const (
	// subscribers is the maximum number of BMCs at which a subscription is being created at the same time.
	subscribers = 32
	// unsubscribeTime is the timeout of the requests to a BMC when its Watch ends.
	unsubscribeTime = 2 * time.Second
	// steadyAfter is how long events must have worked for their loss to cause no pause.
	steadyAfter = time.Minute
	// eventBurst is how many events are read at once, and eventsPerSecond how many continuously.
	eventBurst, eventsPerSecond = 50, 20
)

// eventProvider is a Provider whose BMCs report when to ask, by streams (SSE) or subscriptions.
type eventProvider struct{ *Provider }

var _ providers.Watcher = eventProvider{}

// Watch keeps one stream of events, or one subscription, at each BMC. It reports an event at once that is known to mean
// that a system does not run. For any other event it asks the BMC, at most once a second for each system.
//
// A BMC without events is logged once, and tried again every hour.
func (p eventProvider) Watch(ctx context.Context, targets []providers.Target, f providers.ReportFunc) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.pool.Running, cancel)() // Close ends a Watch
	w := &watch{
		p: p.Provider, asker: remote.NewAsker(inner, targets, p.State, f), slots: make(chan struct{}, subscribers),
		log: p.opts.Log.With("provider", p.opts.Name),
	}
	by := map[remote.Account]*listener{}
	for i, t := range targets {
		at, err := p.locateSystem(t)
		if err != nil {
			continue // questions return the error
		}
		if p.cfg.IgnoreUUID {
			t.SystemUUID = "" // as each question does
		}
		l := by[at.Account]
		if l == nil {
			l = &listener{watch: w, Account: at.Account, log: w.log.With("bmc", at.Device)}
			by[at.Account] = l
		}
		l.all, l.targets = append(l.all, i), append(l.targets, sought{at, t})
	}
	var wait sync.WaitGroup
	wait.Go(w.asker.Wait)
	if p.cfg.Events == eventsPush {
		w.eventServer, w.open = p.eventServer, make(chan struct{})
		wait.Go(func() { w.eventServer.keepOpen(inner, w.log, w.open) })
	}
	for _, l := range by {
		wait.Go(func() { l.keepEvents(inner) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch (redfish %s): %w", p.opts.Name, remote.ErrClosed)
}

// watch is one running Watch.
type watch struct {
	p           *Provider
	asker       *remote.Asker
	slots       chan struct{} // one for each BMC that is being subscribed at
	eventServer *eventServer  // where subscriptions lead; nil: streams
	open        chan struct{} // closed once the server listens
	log         *slog.Logger
}

// listener is one BMC's part of a watch.
type listener struct {
	*watch
	remote.Account
	b       *bmc // set before there are events
	log     *slog.Logger
	all     []int    // the indices of its targets
	targets []sought // and the targets

	// Of its own goroutine.
	plain           bool // the stream takes no filter
	troubleReported bool // that it has no events, or that they were lost
	hadEvents       bool // there were events: it has them

	limiter eventLimiter
}

type sought struct {
	systemQuery
	target providers.Target
}

// errQuiet ends a stream that carried nothing for a while, and may be dead.
var errQuiet = errors.New("no event arrived for a while")

// keepEvents keeps the BMC's events flowing until ctx ends.
func (l *listener) keepEvents(ctx context.Context) {
	b, release, err := l.p.pool.Acquire(l.Account)
	if err != nil {
		return // closed
	}
	defer release()
	l.b = b
	once := l.runStream
	if l.eventServer != nil {
		g := l.eventServer.addSubscription(l)
		defer l.eventServer.removeSubscription(g)
		once = func(ctx context.Context, b *bmc) (time.Duration, error) { return l.runSubscription(ctx, b, g) }
		select {
		case <-l.open:
		case <-ctx.Done():
			return
		}
	}
	for pause := l.p.timing.first; ; pause = min(2*pause, l.p.timing.last) {
		lasted, err := once(ctx, b)
		if ctx.Err() != nil {
			return
		}
		none := hasNoEvents(err)
		if err = classifyError(ctx, err); lasted >= steadyAfter || errors.Is(err, errQuiet) {
			pause = l.p.timing.first
		}
		wait := pause
		switch {
		case errors.Is(err, errQuiet):
			wait = 0
		case none && !l.hadEvents:
			wait = l.p.timing.none
			l.reportTrouble("the BMC is only polled", err)
		case lasted == 0:
			l.reportTrouble("the BMC is only polled until it has events", err)
		default:
			l.log.Debug("Lost the events of a BMC", "err", err, "again", wait)
		}
		if !remote.SleepContext(ctx, jitterDelay(wait)) {
			return
		}
	}
}

// reportTrouble logs an error once, until events arrive again.
func (l *listener) reportTrouble(then string, err error) {
	if !l.troubleReported {
		l.troubleReported = true
		l.log.Warn("Cannot get the events of a BMC", "then", then, "err", providers.ErrorCause(err))
	}
}

// reportBegun records that events arrive from now on. It asks for all machines, because events were missed.
func (l *listener) reportBegun() {
	if l.troubleReported {
		l.troubleReported = false
		l.log.Info("BMC sends its events again")
	}
	l.hadEvents = true
	l.asker.AskSoon(l.all...)
}

// hasNoEvents reports whether an error will not go away within a minute: there is no service, the account may not use
// it, or it redirects elsewhere. A refused password may be corrected by then.
func hasNoEvents(err error) bool {
	switch code := httpStatus(err); code {
	case 0:
		return errors.Is(err, providers.ErrPermanent)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly,
		http.StatusTooManyRequests:
		return false
	default:
		return code < http.StatusInternalServerError || code == http.StatusNotImplemented
	}
}

// withSlot runs f within a limit on how many listeners do the same.
func (w *watch) withSlot(ctx context.Context, f func() error) error {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eventService is a BMC's EventService.
type eventService struct {
	ServiceEnabled                     *bool
	ServerSentEventUri                 string //nolint:revive // Redfish's name
	SSEFilterPropertiesSupported       struct{ EventFormatType bool }
	Subscriptions                      link
	EventTypesForSubscription          words
	RegistryPrefixes, EventFormatTypes words
}

// readEventService reads the resource that names the places of a BMC's events.
func (b *bmc) readEventService(ctx context.Context) (s eventService, _ error) {
	var root struct{ EventService link }
	if _, _, err := b.getResource(ctx, schemas.DefaultServiceRoot, &root); err != nil {
		return s, err
	}
	path, ok := b.localPath(root.EventService.ID)
	if !ok {
		return s, providers.WithClass(providers.ErrPermanent, errors.New("the service root links no event service"))
	}
	if _, _, err := b.getResource(ctx, path, &s); err != nil {
		return s, err
	}
	if s.ServiceEnabled != nil && !*s.ServiceEnabled {
		return s, providers.WithClass(providers.ErrPermanent, errors.New("the event service is not enabled"))
	}
	return s, nil
}

// runStream reads the BMC's stream until it ends. lasted is how long it lasted, 0 if there was none.
func (l *listener) runStream(ctx context.Context, b *bmc) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(2*loginTime, func() { cancel(fmt.Errorf("no stream within %s", 2*loginTime)) })
	defer late.Stop()
	var body io.ReadCloser
	if err := l.withSlot(ctx, func() (err error) {
		body, err = l.openStream(ctx, b)
		return err
	}); err != nil {
		return 0, cmp.Or(whyEnded(ctx), err)
	}
	defer body.Close()
	began := time.Now()
	late.Stop()
	quiet := time.AfterFunc(l.p.timing.quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	l.reportBegun()
	s := remote.NewEventStream(&remote.TimedBody{ReadCloser: body, Timer: quiet, Quiet: l.p.timing.quiet})
	for {
		data, err := s.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the BMC ended the stream")
			}
			return max(time.Since(began), 1), cmp.Or(whyEnded(ctx), err)
		}
		if again := l.limiter.takeOne(time.Now()); again > 0 {
			l.asker.AskSoon(l.all...)
			if !remote.SleepContext(ctx, again) { // which also keeps the BMC from sending
				return time.Since(began), ctx.Err()
			}
			continue
		}
		l.handleEvent(data)
	}
}

// whyEnded returns the cause with which this package ended ctx, nil if it did not.
func whyEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// openStream finds the stream and starts to read it. It excludes metric reports if the BMC supports that.
func (l *listener) openStream(ctx context.Context, b *bmc) (io.ReadCloser, error) {
	s, err := b.readEventService(ctx)
	if err != nil {
		return nil, err
	}
	path, ok := b.localPath(s.ServerSentEventUri)
	switch {
	case s.ServerSentEventUri == "":
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("the event service has no stream"))
	case !ok:
		return nil, providers.WithClass(providers.ErrPermanent,
			errors.New("refused to follow the stream's address to another host"))
	}
	if s.SSEFilterPropertiesSupported.EventFormatType && !l.plain && !strings.Contains(path, "?") {
		body, err := b.openEvents(ctx, path+"?$filter="+url.PathEscape("EventFormatType eq Event"))
		if code := httpStatus(err); code != http.StatusBadRequest && code != http.StatusNotImplemented {
			return body, err
		}
		l.plain = true
	}
	return b.openEvents(ctx, path)
}

// handleEvent evaluates what the BMC sent.
func (l *listener) handleEvent(data []byte) {
	r, ok := parseEvent(data)
	if !ok || len(r.Events) == 0 && !bool(r.MetricValues) {
		l.asker.AskSoon(l.all...)
		return
	}
	for _, e := range r.Events {
		if e.isHeartbeat() {
			continue
		}
		about, exact := l.affectedTargets(e.OriginOfCondition)
		state, whole, known := e.powerState()
		if known && (exact || whole && len(l.all) == 1) {
			for _, i := range about {
				l.asker.ReportState(i, providers.Observation{State: state, Raw: "event: " + e.messageName(),
					At: providers.InstantOf(l.p.opts.Now())})
			}
			continue
		}
		l.asker.AskSoon(about...)
	}
}

// affectedTargets returns the targets of an event by its origin: the system that is the origin or that contains it,
// none if that is another system, and otherwise all. exact reports that the origin is the one system itself.
func (l *listener) affectedTargets(origins links) (about []int, exact bool) {
	l.p.pool.Lock()
	systems := l.b.systems
	paths := make([]string, len(l.targets))
	for i, s := range l.targets {
		paths[i] = cmp.Or(s.path, l.b.places[s.placeKey(s.target)].path)
	}
	l.p.pool.Unlock()
	if len(origins) != 1 {
		return l.all, false
	}
	origin := strings.TrimSuffix(strings.TrimPrefix(origins[0], l.Device), "/")
	known := true
	for i, path := range paths {
		path = strings.TrimSuffix(path, "/")
		switch rest, ours := strings.CutPrefix(origin, path); {
		case path == "":
			known = false
		case ours && rest == "":
			return []int{l.all[i]}, true
		case ours && strings.HasPrefix(rest, "/"):
			return []int{l.all[i]}, false
		}
	}
	if known && strings.HasPrefix(origin, strings.TrimSuffix(cmp.Or(systems, "/redfish/v1/Systems"), "/")+"/") {
		return nil, false
	}
	return l.all, false
}

// eventLimiter limits how many events are read: a burst, and a low rate continuously. It is safe for concurrent use.
type eventLimiter struct {
	mu    sync.Mutex // guards the rest
	until time.Time  // when everything that was taken is paid for
}

// takeOne uses one event and returns 0. If none is left it returns the time until the next.
func (p *eventLimiter) takeOne(now time.Time) time.Duration {
	const each = time.Second / eventsPerSecond
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.Before(now) {
		p.until = now
	}
	if over := p.until.Add(each).Sub(now.Add(eventBurst * each)); over > 0 {
		return over
	}
	p.until = p.until.Add(each)
	return 0
}

// jitterDelay returns a random time within d plus or minus half of d, to spread what many do at the same time.
func jitterDelay(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d)
}
