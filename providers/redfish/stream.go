package redfish

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/forcefence/forcefence/providers"
)

// openEvents starts to read a stream of events at a path of the BMC; the stream ends with ctx. It follows no redirect.
// Connection, certificate and credential are those of every other request.
func (b *bmc) openEvents(ctx context.Context, path string) (body io.ReadCloser, _ error) {
	err := b.withLogin(ctx, func(l *login) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Device+path, http.NoBody)
		if err != nil {
			return withoutURL(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Accept-Encoding", "identity") // else net/http unpacks it without a limit
		r.Header.Set("Cache-Control", "no-store")
		r.Header.Set("User-Agent", b.p.opts.Agent)
		l.authorizeRequest(r)
		resp, err := b.p.plain.RoundTrip(r)
		if err != nil {
			return withoutURL(err)
		}
		if resp.StatusCode != http.StatusOK {
			defer resp.Body.Close()
			return statusError(resp)
		}
		kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if encoding := resp.Header.Get("Content-Encoding"); err != nil || kind != "text/event-stream" ||
			encoding != "" && encoding != "identity" {
			_ = resp.Body.Close()
			return providers.WithClass(providers.ErrPermanent, errors.New("the answer is no stream of events"))
		}
		b.markProven(l)
		body = resp.Body
		return nil
	})
	return body, err
}
