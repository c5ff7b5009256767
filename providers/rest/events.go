package rest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"golang.org/x/net/websocket"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Events says how a device reports by itself that something happened to a machine. Such a report proves nothing: the
// machine is asked then.
type Events struct {
	Request Request `yaml:"request"` // send and header: its answer opens a WebSocket, whose messages are JSON
	// CEL, a text: the ID of the machine that `event.body` is about, "" for none, "*" for any
	About string `yaml:"about"`
}

// events is a compiled Events.
type events struct {
	request *request
	about   cel.Program
}

// anyMachine is what Events.About gives for an event that may be about any machine.
const anyMachine = "*"

// events compiles an Events. f has its expression for IDs, and the variables of that are not known here.
func (c *compiler) events(d Description, f *Family) *events {
	if d.Events == nil || f.id == nil {
		return nil
	}
	if d.Feeds {
		c.fault("events", "have no effect with feeds: what supplies power is only asked")
	}
	part := c.fork()
	part.answers = nil
	for _, name := range f.id.SubexpNames() {
		delete(part.vars, name)
	}
	q := d.Events.Request
	if q.Name != "" || q.JSON != nil || q.Form != nil || q.Expect != nil || q.Require != "" || q.Set != nil {
		c.fault("events.request", "has only send and header")
	}
	out := &events{}
	out.request = part.request("events.request", Request{Name: "event", Send: q.Send, Header: q.Header}, false,
		func(name string) bool { return part.vars[name] })
	out.about = part.expression("events.about", d.Events.About, cel.StringType, true)
	c.bad = append(c.bad, part.bad...)
	return out
}

// watchTiming holds the times with which a watch keeps its streams; tests have shorter ones.
type watchTiming struct {
	first time.Duration // until the first attempt after a stream was lost; doubles with each that fails
	last  time.Duration // and stays at this
	open  time.Duration // until there must be a stream
	quiet time.Duration // after which a stream that carries nothing is replaced
}

var defaultTiming = watchTiming{time.Second, time.Minute, 2 * loginTime, 5 * time.Minute}

// maxEventRate is how many events of one device are evaluated in a second. All machines are asked for the others.
const maxEventRate = 50

// watcher is a Provider whose devices report when to ask.
type watcher struct{ *Provider }

// watchingLister is a lister whose devices report when to ask.
type watchingLister struct{ lister }

// Watch implements providers.Watcher.
func (p watchingLister) Watch(ctx context.Context, targets []providers.Target, f providers.ReportFunc) error {
	return watcher{p.Provider}.Watch(ctx, targets, f)
}

// Watch keeps one stream of events open at each device. After an event it asks for the machine that the event is about,
// or for all machines if that is unknown, at most once a second each.
func (p watcher) Watch(ctx context.Context, targets []providers.Target, f providers.ReportFunc) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.pool.Running, cancel)() // Close ends a Watch
	asker := remote.NewAsker(inner, targets, p.State, f)
	all := p.listenersOf(targets, asker)
	ended := make([]error, len(all))
	var wait sync.WaitGroup
	for i, l := range all {
		wait.Go(func() {
			log := p.opts.Log.With("provider", p.opts.Name, "device", l.account.Device)
			ended[i] = remote.Resubscribe(inner, log, p.timing.first, p.timing.last, providers.ErrPermanent,
				l.watchOnce)
		})
	}
	wait.Wait()
	cancel()
	asker.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.pool.Running.Err() != nil:
		return fmt.Errorf("watch (%s %s): %w", p.family.Name, p.opts.Name, remote.ErrClosed)
	case len(all) == 0:
		return providers.Errorf(providers.ErrPermanent, "watch (%s %s): no machine has a valid ID", p.family.Name,
			p.opts.Name)
	}
	return fmt.Errorf("watch (%s %s): %w", p.family.Name, p.opts.Name, errors.Join(ended...))
}

// listener is one device's part of a Watch.
type listener struct {
	watcher
	asker   *remote.Asker
	account remote.Account
	target  providers.Target // one of its machines
	all     []int            // the indices of its machines
	byID    map[string][]int // by canonical ID, without an address

	second  time.Time // when the present second of events began
	handled int       // events in it
}

// listenersOf returns a listener for each device. A target without a valid ID has none.
func (p watcher) listenersOf(targets []providers.Target, asker *remote.Asker) (out []*listener) {
	by := map[remote.Account]*listener{}
	for i, t := range targets {
		account, _, err := p.accountOf(t)
		if err != nil {
			continue // questions return the error
		}
		_, id, _ := p.cfg.splitID(t.ID)
		if id, _, err = p.family.parseID(id); err != nil {
			continue
		}
		l := by[account]
		if l == nil {
			l = &listener{watcher: p, asker: asker, account: account, target: t, byID: map[string][]int{}}
			by[account], out = l, append(out, l)
		}
		l.all, l.byID[id] = append(l.all, i), append(l.byID[id], i)
	}
	return out
}

// errQuiet ends a stream that carried nothing for a while, and may be dead.
var errQuiet = errors.New("no event arrived for a while")

// watchOnce reads one stream until it or ctx ends.
func (l *listener) watchOnce(ctx context.Context) (subscribed bool, err error) {
	d, release, err := l.openDevice(l.target)
	if err != nil {
		return false, err
	}
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cause := func(err error) error {
		if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
			return providers.WithClass(providers.ErrUnreachable, why)
		}
		return err
	}
	late := time.AfterFunc(l.timing.open, func() { cancel(fmt.Errorf("no stream within %s", l.timing.open)) })
	defer late.Stop()
	quiet := time.AfterFunc(l.timing.quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	next, done, err := d.openEvents(ctx, func(body io.ReadCloser) io.ReadCloser {
		return &remote.TimedBody{ReadCloser: body, Timer: quiet, Quiet: l.timing.quiet}
	})
	if err != nil {
		return false, cause(err)
	}
	defer done()
	defer context.AfterFunc(ctx, done)()
	late.Stop()
	l.asker.AskSoon(l.all...) // events were missed
	for {
		text, err := next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the device ended the stream")
			}
			return true, cause(err)
		}
		if !l.mayEvaluate(time.Now()) {
			l.asker.AskSoon(l.all...)
			if !remote.SleepContext(ctx, time.Second) { // which also keeps the device from sending
				return true, cause(ctx.Err())
			}
			continue
		}
		l.asker.AskSoon(l.machinesOf(ctx, text)...)
	}
}

// mayEvaluate reports whether an event at now is within the limit of events in a second.
func (l *listener) mayEvaluate(now time.Time) bool {
	if now.Sub(l.second) >= time.Second {
		l.second, l.handled = now, 0
	}
	l.handled++
	return l.handled <= maxEventRate
}

// machinesOf returns the indices of the machines that an event is about.
func (l *listener) machinesOf(ctx context.Context, text []byte) []int {
	var body any
	if err := json.Unmarshal(text, &body); err != nil {
		return l.all
	}
	switch id := l.family.aboutOf(ctx, l.values(), body); id {
	case "":
		return nil
	case anyMachine:
		return l.all
	default:
		return l.byID[id]
	}
}

// aboutOf returns the canonical ID of the machine that an event is about, "" for none, or anyMachine if that cannot be
// read.
func (f *Family) aboutOf(ctx context.Context, values map[string]string, body any) string {
	e := f.newEvaluation(values, nil)
	e.vars["event"] = map[string]any{"status": int64(http.StatusOK), "header": map[string]string{}, "body": body}
	v, err := e.evaluate(ctx, "events.about", f.events.about)
	if err != nil {
		return anyMachine
	}
	id, ok := v.Value().(string)
	if !ok {
		return anyMachine
	}
	if canonical, _, err := f.parseID(id); err == nil {
		return canonical
	}
	return id
}

// openEvents opens the device's WebSocket, with the log-in of every other request. next returns the next event, until
// done is called. around wraps the connection.
func (d *device) openEvents(ctx context.Context, around func(io.ReadCloser) io.ReadCloser) (
	next func() ([]byte, error), done func(), _ error) {
	r, err := d.family.events.request.render(d.values())
	if err != nil {
		return nil, nil, err
	}
	h := &handshake{open: func(header http.Header) (*http.Response, error) {
		for _, name := range []string{"Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version"} {
			r.header[name] = header.Get(name)
		}
		return d.openStream(ctx, r)
	}, around: around}
	at := &url.URL{Scheme: "http", Host: "device", Path: "/"} // of the library's own request, which is not sent
	conn, err := websocket.NewClient(&websocket.Config{
		Location: at, Origin: at, Version: websocket.ProtocolVersionHybi13,
	}, h)
	if err != nil {
		_ = h.Close()
		return nil, nil, cmp.Or(h.err,
			providers.Errorf(providers.ErrPermanent, "the answer opens no WebSocket: %w", err))
	}
	conn.MaxPayloadBytes = remote.MaxEvent
	return func() (text []byte, err error) {
		err = websocket.Message.Receive(conn, &text)
		return text, err
	}, sync.OnceFunc(func() { _ = h.Close() }), nil
}

// openStream sends a request whose answer switches to another protocol.
func (d *device) openStream(ctx context.Context, r rendered) (stream *http.Response, _ error) {
	r.take = func(resp *http.Response) bool {
		if resp.StatusCode == http.StatusSwitchingProtocols {
			stream = resp
		}
		return stream != nil
	}
	a, err := d.sendRequest(ctx, r)
	switch {
	case stream != nil:
		return stream, nil
	case err != nil:
		return nil, err
	}
	return nil, statusError(a.status)
}

// handshake lets the WebSocket library make its handshake by a request that has the device's log-in and transport. What
// the library writes first is taken for the request, and what it then reads is the answer and what follows it.
type handshake struct {
	open   func(http.Header) (*http.Response, error)
	around func(io.ReadCloser) io.ReadCloser

	request bytes.Buffer
	conn    io.ReadWriteCloser // nil: the handshake is not complete
	answer  io.Reader
	err     error // of the request
}

// Write implements io.Writer.
func (h *handshake) Write(p []byte) (int, error) {
	if h.conn == nil {
		return h.request.Write(p)
	}
	return h.conn.Write(p)
}

// Read implements io.Reader.
func (h *handshake) Read(p []byte) (int, error) {
	if h.answer == nil && h.err == nil {
		h.err = h.run()
	}
	if h.err != nil {
		return 0, h.err
	}
	return h.answer.Read(p)
}

// run sends the request.
func (h *handshake) run() error {
	r, err := http.ReadRequest(bufio.NewReader(&h.request))
	if err != nil {
		return err
	}
	resp, err := h.open(r.Header)
	if err != nil {
		return err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return providers.Errorf(providers.ErrPermanent, "the answer opens no connection")
	}
	head := bytes.NewBufferString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(head) // a buffer takes all
	head.WriteString("\r\n")
	h.conn, h.answer = conn, io.MultiReader(head, h.around(conn))
	return nil
}

// Close implements io.Closer.
func (h *handshake) Close() error {
	if h.conn == nil {
		return nil
	}
	return h.conn.Close()
}
