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

// rhythm is how a watch keeps its streams and subscriptions; tests have a faster one.
type rhythm struct {
	first time.Duration // until the first attempt after events were lost; doubles with each that fails
	last  time.Duration // and stays at this
	none  time.Duration // until a BMC that has no events is tried again: it may get another firmware
	quiet time.Duration // after which a stream that carries nothing is made anew, and a subscription is looked at
}

var calm = rhythm{first: time.Second, last: time.Minute, none: time.Hour, quiet: 5 * time.Minute}

const (
	// subscribers is how many BMCs are subscribed at, at the same time.
	subscribers = 32
	// farewell bounds what is said to a BMC when its Watch ends.
	farewell = 2 * time.Second
	// steady is how long events must have been there for their loss to be no reason for a pause.
	steady = time.Minute
	// manyEvents are taken at once, and eventsPerSecond go on for ever; what is more is not read, and counts as an unknown event.
	manyEvents, eventsPerSecond = 50, 20
)

// pushed is a Provider whose BMCs tell by themselves when to ask, by streams (SSE) or subscriptions.
type pushed struct{ *Provider }

var _ providers.Watcher = pushed{}

// Watch keeps one stream of events, or one subscription, at each BMC. An event is believed nothing: one that is known to say that a
// system does not run is told at once, of any other the BMC is asked, at most once a second for each system.
//
// A BMC that has no events is said once, and tried again every hour. It is left to whatever else makes somebody ask.
func (p pushed) Watch(ctx context.Context, targets []providers.Target, f func(providers.Target, providers.Observation)) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() // Close ends a Watch
	w := &watch{
		p: p.Provider, asker: remote.NewAsker(inner, targets, p.State, f), slots: make(chan struct{}, subscribers),
		log: p.opts.Log.With("provider", p.opts.Name),
	}
	by := map[account]*listener{}
	for i, t := range targets {
		at, err := p.where(t)
		if err != nil {
			continue // the questions say why
		}
		if p.cfg.IgnoreUUID {
			t.SystemUUID = "" // as each question does
		}
		l := by[at.account]
		if l == nil {
			l = &listener{watch: w, account: at.account, log: w.log.With("bmc", at.origin)}
			by[at.account] = l
		}
		l.all, l.of = append(l.all, i), append(l.of, sought{at, t})
	}
	var wait sync.WaitGroup
	wait.Go(w.asker.Wait)
	if p.cfg.Events == eventsPush {
		w.door, w.open = p.door, make(chan struct{})
		wait.Go(func() { w.door.keep(inner, w.log, w.open) })
	}
	for _, l := range by {
		wait.Go(func() { l.run(inner) })
	}
	wait.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch (redfish %s): %w", p.opts.Name, errClosed)
}

// watch is one Watch under way.
type watch struct {
	p     *Provider
	asker *remote.Asker
	slots chan struct{} // one for each BMC that is being subscribed at
	door  *door         // where subscriptions lead; nil: streams
	open  chan struct{} // closed once the door is open
	log   *slog.Logger
}

// listener is one BMC's part of it.
type listener struct {
	*watch
	account
	log *slog.Logger
	all []int    // the indices of its targets
	of  []sought // and the targets

	// Of its own goroutine.
	plain bool // the stream takes no filter
	told  bool // that it has no events, or that they were lost
	had   bool // there were events: it has them

	taken pace
}

type sought struct {
	where
	target providers.Target
}

// errQuiet ends what carried nothing for a while, and may be dead.
var errQuiet = errors.New("nothing came for a while")

// run keeps the BMC's events until ctx ends.
func (l *listener) run(ctx context.Context) {
	b, err := l.p.acquire(l.account)
	if err != nil {
		return // closed
	}
	defer l.p.release(b)
	once := l.streamed
	if l.door != nil {
		g := l.door.enter(l)
		defer l.door.leave(g)
		once = func(ctx context.Context, b *bmc) (time.Duration, error) { return l.subscribed(ctx, b, g) }
		select {
		case <-l.open:
		case <-ctx.Done():
			return
		}
	}
	for pause := l.p.rhythm.first; ; pause = min(2*pause, l.p.rhythm.last) {
		lasted, err := once(ctx, b)
		if ctx.Err() != nil {
			return
		}
		none := hasNone(err)
		if err = classify(ctx, err); lasted >= steady || errors.Is(err, errQuiet) {
			pause = l.p.rhythm.first
		}
		wait := pause
		switch {
		case errors.Is(err, errQuiet):
			wait = 0
		case none && !l.had:
			wait = l.p.rhythm.none
			l.say("it has none for us, and is only asked", err)
		case lasted == 0:
			l.say("it is only asked until it has", err)
		default:
			l.log.Debug("Lost the events of a BMC", "err", err, "again", wait)
		}
		if !remote.Sleep(ctx, jittered(wait)) {
			return
		}
	}
}

// say tells once, until events came.
func (l *listener) say(then string, err error) {
	if !l.told {
		l.told = true
		l.log.Warn("Cannot get the events of a BMC", "then", then, "err", providers.Cause(err))
	}
}

// begun says that events come from now on, and has all machines asked about: what happened before was told to nobody.
func (l *listener) begun() {
	if l.told {
		l.told = false
		l.log.Info("BMC sends its events again")
	}
	l.had = true
	l.asker.Heard(l.all...)
}

// hasNone tells of an error that trying again in a minute does not mend: there is no service, the account may not use it, or
// it leads elsewhere. A refused password may be mended by then, and is not sent again before.
func hasNone(err error) bool {
	switch code := status(err); code {
	case 0:
		return errors.Is(err, providers.ErrPermanent)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return code < http.StatusInternalServerError || code == http.StatusNotImplemented
	}
}

// turn runs f while few others do the same.
func (w *watch) turn(ctx context.Context, f func() error) error {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// service is a BMC's EventService.
type service struct {
	ServiceEnabled                     *bool
	ServerSentEventUri                 string //nolint:revive // Redfish's name
	SSEFilterPropertiesSupported       struct{ EventFormatType bool }
	Subscriptions                      link
	EventTypesForSubscription          words
	RegistryPrefixes, EventFormatTypes words
}

// service reads where a BMC's events are.
func (b *bmc) service(ctx context.Context) (s service, _ error) {
	var root struct{ EventService link }
	if _, _, err := b.get(ctx, schemas.DefaultServiceRoot, &root); err != nil {
		return s, err
	}
	path, ok := b.local(root.EventService.ID)
	if !ok {
		return s, providers.WithClass(providers.ErrPermanent, errors.New("the service root links no event service"))
	}
	if _, _, err := b.get(ctx, path, &s); err != nil {
		return s, err
	}
	if s.ServiceEnabled != nil && !*s.ServiceEnabled {
		return s, providers.WithClass(providers.ErrPermanent, errors.New("the event service is not enabled"))
	}
	return s, nil
}

// streamed reads the BMC's stream until it ends. lasted is how long it did, 0 if there was none.
func (l *listener) streamed(ctx context.Context, b *bmc) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(loginTime*2, func() { cancel(errors.New("no stream in time")) })
	defer late.Stop()
	var body io.ReadCloser
	if err := l.turn(ctx, func() (err error) {
		body, err = l.openStream(ctx, b)
		return err
	}); err != nil {
		return 0, cmp.Or(whyEnded(ctx), err)
	}
	defer body.Close()
	began := time.Now()
	late.Stop()
	quiet := time.AfterFunc(l.p.rhythm.quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	l.begun()
	s := newStream(&watched{body, quiet, l.p.rhythm.quiet})
	for {
		data, err := s.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the BMC ended the stream")
			}
			return max(time.Since(began), 1), cmp.Or(whyEnded(ctx), err)
		}
		if again := l.taken.take(time.Now()); again > 0 {
			l.asker.Heard(l.all...)
			if !remote.Sleep(ctx, again) { // which also keeps the BMC from sending
				return time.Since(began), ctx.Err()
			}
			continue
		}
		l.event(data)
	}
}

// whyEnded is the cause with which we ended ctx ourselves, nil if we did not.
func whyEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// openStream finds the stream and begins to read it: without reports of measurements, where the BMC says that it leaves them out.
func (l *listener) openStream(ctx context.Context, b *bmc) (io.ReadCloser, error) {
	s, err := b.service(ctx)
	if err != nil {
		return nil, err
	}
	path, ok := b.local(s.ServerSentEventUri)
	switch {
	case s.ServerSentEventUri == "":
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("the event service has no stream"))
	case !ok:
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("refused to follow the stream's address to another host"))
	}
	if s.SSEFilterPropertiesSupported.EventFormatType && !l.plain && !strings.Contains(path, "?") {
		body, err := b.open(ctx, path+"?$filter="+url.PathEscape("EventFormatType eq Event"))
		if code := status(err); code != http.StatusBadRequest && code != http.StatusNotImplemented {
			return body, err
		}
		l.plain = true
	}
	return b.open(ctx, path)
}

// event takes what the BMC sent.
func (l *listener) event(data []byte) {
	r, ok := parseEvent(data)
	if !ok || len(r.Events) == 0 && !bool(r.MetricValues) {
		l.asker.Heard(l.all...)
		return
	}
	for _, e := range r.Events {
		if e.beats() {
			continue
		}
		about, exact := l.about(e.OriginOfCondition)
		state, whole, known := e.power()
		if known && (exact || whole && len(l.all) == 1) {
			for _, i := range about {
				l.asker.Said(i, providers.Observation{State: state, Raw: "event: " + e.name(),
					At: providers.InstantOf(l.p.opts.Now())})
			}
			continue
		}
		l.asker.Heard(about...)
	}
}

// about returns whose event it is by its origin: the system's, where the origin is a system's resource or a part of it; nobody's, where
// it is another system's; else that of all behind the BMC. exact tells that the origin is the one system itself.
func (l *listener) about(origins links) (about []int, exact bool) {
	l.p.mu.Lock()
	systems := ""
	if b := l.p.bmcs[l.account]; b != nil {
		systems = b.systems
	}
	paths := make([]string, len(l.of))
	for i, s := range l.of {
		if paths[i] = s.path; s.path == "" && l.p.bmcs[l.account] != nil {
			paths[i] = l.p.bmcs[l.account].places[s.key(s.target)].path
		}
	}
	l.p.mu.Unlock()
	if len(origins) != 1 {
		return l.all, false
	}
	origin := strings.TrimSuffix(strings.TrimPrefix(origins[0], l.origin), "/")
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

// pace says how many events are read: many at once, few for ever. The zero value has all of them left. It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex // guards the rest
	until time.Time  // when everything that was taken is paid for
}

// take takes one, and returns 0; or takes none, and returns after how long one may be taken.
func (p *pace) take(now time.Time) time.Duration {
	const each = time.Second / eventsPerSecond
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.Before(now) {
		p.until = now
	}
	if over := p.until.Add(each).Sub(now.Add(manyEvents * each)); over > 0 {
		return over
	}
	p.until = p.until.Add(each)
	return 0
}

// jittered spreads what many do at the same time over half of d before and after it.
func jittered(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d)
}
