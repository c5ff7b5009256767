package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/forcefence/forcefence/providers"
)

// MaxHeader is the maximum length of an answer's header in bytes, informational answers included. net/http's own limit
// is 10 MiB, of which its map makes ten times as much.
const MaxHeader = 64 << 10

// ErrTooLarge is the cause of the error for a body that exceeds its Limited.
var ErrTooLarge = errors.New("answer is too large")

// Limited is a transport that bounds the body of each answer after decompression. A Read beyond a limit fails with
// ErrTooLarge. Values bounds the memory of a decoder, which may need fifty times a document's size.
type Limited struct {
	Next   http.RoundTripper
	Bytes  int // the maximum length of a body
	Values int // the maximum number of values in JSON, or of tags in XML
}

// RoundTrip implements http.RoundTripper.
func (l Limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.Next.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: l, most: l}
	}
	return resp, err
}

type limitedBody struct {
	io.ReadCloser
	left, most Limited
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left.Bytes -= n
	for _, c := range []string{",", "[", "{", "<"} {
		b.left.Values -= bytes.Count(p[:n], []byte(c))
	}
	switch {
	case b.left.Bytes < 0:
		return 0, b.tooLarge("%d bytes", b.most.Bytes)
	case b.left.Values < 0:
		return 0, b.tooLarge("%d values", b.most.Values)
	}
	return n, err
}

func (*limitedBody) tooLarge(format string, most int) error {
	return providers.WithClass(providers.ErrUnreachable, fmt.Errorf("%w: more than "+format, ErrTooLarge, most))
}
