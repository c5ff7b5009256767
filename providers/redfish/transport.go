package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/forcefence/forcefence/providers"
)

const (
	maxAnswer   = 1 << 20 // bytes; a ComputerSystem of a large machine has some 50 KB
	maxRequests = 4       // at a time to one BMC
	backstop    = time.Minute
)

// transport is the provider's own: nothing here is process-wide, and no proxy of the environment stands between it and a BMC.
// Where a custom TLS configuration is set, net/http speaks HTTP/1.1, as BMCs do.
func transport(roots *x509.CertPool, insecure bool) *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, InsecureSkipVerify: insecure},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       idleAfter,
		MaxIdleConnsPerHost:   maxRequests,
	}
}

// httpClient returns a client that speaks to one BMC only, and a function that tells whether it has sent a POST.
func httpClient(origin string, next *http.Transport) (client *http.Client, posted func() bool) {
	retrying := retryablehttp.NewClient()
	retrying.Logger = nil
	retrying.HTTPClient = &http.Client{
		Transport:     limited{next},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the outer client decides
	}
	retrying.RetryMax, retrying.RetryWaitMin, retrying.RetryWaitMax = 2, 50*time.Millisecond, time.Second
	retrying.CheckRetry = worthAnother
	retrying.Backoff = func(least, most time.Duration, n int, _ *http.Response) time.Duration { return min(least<<n, most) }
	retrying.ErrorHandler = retryablehttp.PassthroughErrorHandler
	p := &pinned{origin: origin, get: retrying.StandardClient().Transport, other: limited{next}}
	return &http.Client{
		Transport:     p,
		CheckRedirect: sameResource,
		Timeout:       backstop, // for callers without a deadline
	}, p.posted.Load
}

// worthAnother tells whether a GET is sent again: a BMC that is busy or restarts its web server, as long as there is time.
func worthAnother(ctx context.Context, resp *http.Response, err error) (bool, error) {
	var cert *tls.CertificateVerificationError
	deadline, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil, errors.As(err, &cert), errors.Is(err, context.DeadlineExceeded), limited && time.Until(deadline) < time.Second:
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

// sameResource follows a redirect only where it leads a GET to the same resource, with or without a slash at its end: that is
// how BMCs answer for /redfish/v1. Anything else would show us another resource, or our credentials to another host.
func sameResource(next *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 2 || first.Method != http.MethodGet || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host ||
		next.URL.User != nil || strings.TrimSuffix(next.URL.Path, "/") != strings.TrimSuffix(first.URL.Path, "/") {
		return providers.WithClass(providers.ErrPermanent, errors.New("refused to follow a redirect to another resource"))
	}
	return nil
}

// pinned sends requests to one origin only, whatever links a BMC hands out, and only GETs more than once.
type pinned struct {
	origin     string
	get, other http.RoundTripper
	posted     atomic.Bool
}

func (p *pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host != p.origin || r.URL.User != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, providers.WithClass(providers.ErrPermanent, errors.New("refused to follow a link to another host"))
	}
	if r.Method == http.MethodGet {
		return p.get.RoundTrip(r)
	}
	p.posted.Store(true)
	return p.other.RoundTrip(r)
}

// limited bounds the size of answers.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, err
}

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, providers.WithClass(providers.ErrUnreachable, fmt.Errorf("answer is larger than %d bytes", maxAnswer))
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
