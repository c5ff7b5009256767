package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

const (
	maxAnswer   = 1 << 20  // bytes; a ComputerSystem of a large machine has some 50 KB
	maxValues   = 32 << 10 // and some 3,000 values
	maxError    = 64 << 10 // bytes of an error's body, of which a message id is read
	maxRequests = 4        // at a time to one BMC
	// An idle TLS connection costs some 35 KB, a session's token a hundred bytes. So a fleet's tokens are kept and its
	// connections are not. But where more BMCs than this are asked in turn, none finds its connection again: 500 of
	// them took 1.8 s with 256, and take 0.5 s.
	connIdle, maxIdle = time.Minute, 512
)

// retryTransport repeats a GET while a BMC is busy or restarts its web server.
func retryTransport(next http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{
		Transport: next,
		// the outer client decides
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 2, 50*time.Millisecond, time.Second
	c.CheckRetry = shouldRetry
	c.Backoff = func(least, most time.Duration, n int, _ *http.Response) time.Duration { return min(least<<n, most) }
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	return c.StandardClient().Transport
}

// httpClient returns a client that connects to one BMC only.
func httpClient(origin string, get, other http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     &pinnedTransport{origin: origin, get: get, other: other},
		CheckRedirect: sameResource,
		Timeout:       remote.Backstop, // for callers without a deadline
	}
}

// shouldRetry reports whether a GET is repeated: the BMC is busy or restarts its web server, and there is time left.
func shouldRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	deadline, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil, errors.Is(err, providers.ErrUntrusted), errors.Is(err, context.DeadlineExceeded),
		limited && time.Until(deadline) < time.Second:
		return false, nil
	case err != nil:
		return true, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, nil
	}
	return false, nil
}

// sameResource follows a redirect only if it leads a GET to the same resource, with or without a trailing slash, as
// BMCs answer for /redfish/v1. Any other could lead the credentials to another host.
func sameResource(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 2 || first.Method != http.MethodGet || next.URL.Scheme != first.URL.Scheme ||
		next.URL.Host != first.URL.Host ||
		next.URL.User != nil || strings.TrimSuffix(next.URL.Path, "/") != strings.TrimSuffix(first.URL.Path, "/") {
		return providers.WithClass(providers.ErrPermanent,
			errors.New("refused to follow a redirect to another resource"))
	}
	return nil
}

// pinnedTransport sends requests to one origin only, whatever links a BMC returns. It repeats only GETs.
type pinnedTransport struct {
	origin     string
	get, other http.RoundTripper
}

func (p *pinnedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != p.origin || r.URL.User != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("refused to follow a link to another host"))
	}
	if r.Method == http.MethodGet {
		return p.get.RoundTrip(r)
	}
	return p.other.RoundTrip(r)
}

// request is one request to a BMC.
type request struct {
	method, path string
	login        *login // nil: none
	body         any    // nil: none
	ifMatch      string // an ETag, or ""
}

// reply is an answer with one of the four statuses that mean success in Redfish.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// sendRequest sends one request and reads its whole answer. A status other than 200, 201, 202 and 204 is a
// *schemas.Error.
func (b *bmc) sendRequest(ctx context.Context, q request) (*reply, error) {
	select {
	case b.gate <- struct{}{}:
		defer func() { <-b.gate }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var payload []byte
	if q.body != nil {
		var err error
		if payload, err = json.Marshal(q.body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, q.method, b.Device+q.path, bytes.NewReader(payload))
	if err != nil {
		return nil, withoutURL(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", b.p.opts.Agent)
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if q.ifMatch != "" {
		r.Header.Set("If-Match", q.ifMatch)
	}
	if q.login != nil {
		q.login.authorizeRequest(r)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("reading answer: %w", err)
		}
		return &reply{resp.StatusCode, resp.Header, body}, nil
	}
	return nil, statusError(resp)
}

// statusError returns the error of an answer with another status.
func statusError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	return schemas.ConstructError(resp.StatusCode, body)
}

// withoutURL removes method and URL from a client's error, because the message names the BMC.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// fetchJSON reads a JSON document. Anything but 200 with a whole document is an error: a part may end before its On.
func (b *bmc) fetchJSON(ctx context.Context, path string, l *login, into any) (*reply, error) {
	r, err := b.sendRequest(ctx, request{method: http.MethodGet, path: path, login: l})
	if err != nil {
		return nil, err
	}
	if r.status != http.StatusOK {
		return nil, providers.WithClass(providers.ErrUnreachable,
			fmt.Errorf("%d %s instead of an answer", r.status, http.StatusText(r.status)))
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return nil, providers.WithClass(providers.ErrUnreachable,
			fmt.Errorf("answer is no Redfish resource: %s", providers.ErrorText(err)))
	}
	return r, nil
}
