package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/taint"
)

// longestObject is longer than any object that an API server stores: etcd takes requests of 1.5 MB.
const longestObject = 8 << 20

// BoundRequests makes clients of cfg read the objects of a resource, which the API server serves as JSON, one by one,
// and drop what is never read of them. A part that is too large is cut, as BoundReads does.
func BoundRequests(cfg *rest.Config, resource string) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return jsonTransport{next, resource} })
}

type jsonTransport struct {
	next     http.RoundTripper
	resource string
}

// WrappedRoundTripper returns the transport beneath, which client-go looks for.
func (t jsonTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t jsonTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices ||
		!slices.Contains(strings.Split(req.URL.Path, "/"), t.resource) ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp, err
	}
	in := &resettingReader{Reader: resp.Body}
	c := &jsonCutter{in: in, d: json.NewDecoder(in)}
	if req.URL.Query().Has("watch") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{c, resp.Body}
		return resp, nil
	}
	out, err := c.copyAnswer()
	resp.Body.Close()
	if err != nil {
		return nil, noEOF(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(out))
	resp.ContentLength = int64(len(out))
	resp.Header.Del("Content-Length")
	return resp, nil
}

var errNoList = errors.New("items is no list")

// resettingReader fails after longestObject bytes, unless it is reset.
type resettingReader struct {
	io.Reader
	read int
}

func (r *resettingReader) Read(p []byte) (int, error) {
	if r.read > longestObject {
		return 0, fmt.Errorf("%w: one object has more than %d MiB", errLarge, longestObject>>20)
	}
	n, err := r.Reader.Read(p)
	r.read += n
	return n, err
}

// jsonCutter copies an object, a list of objects, or a watch of them.
type jsonCutter struct {
	in   *resettingReader
	d    *json.Decoder
	rest []byte // of the event of a watch
}

// copyAnswer copies an object or a list.
func (c *jsonCutter) copyAnswer() ([]byte, error) {
	fields, items := map[string]json.RawMessage{}, []json.RawMessage(nil)
	if _, err := c.d.Token(); err != nil {
		return nil, err
	}
	for c.d.More() {
		key, err := c.d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if name != "items" {
			var value json.RawMessage
			if err := c.d.Decode(&value); err != nil {
				return nil, err
			}
			fields[name] = value
			continue
		}
		begin, err := c.d.Token()
		if err != nil {
			return nil, err
		}
		if begin == nil { // of some servers an empty list
			fields[name] = json.RawMessage("null")
			continue
		}
		if begin != json.Delim('[') {
			return nil, errNoList
		}
		items = []json.RawMessage{}
		for c.d.More() {
			c.in.read = 0
			var item json.RawMessage
			if err := c.d.Decode(&item); err != nil {
				return nil, err
			}
			items = append(items, cutJSON(item))
		}
		if _, err := c.d.Token(); err != nil {
			return nil, err
		}
	}
	out, err := json.Marshal(fields)
	if items == nil || err != nil {
		return cutJSON(out), err
	}
	fields["items"], err = json.Marshal(items)
	if err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

func (c *jsonCutter) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		c.in.read = 0
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := c.d.Decode(&event); err != nil {
			return 0, err
		}
		event.Object = cutJSON(event.Object)
		var err error
		if c.rest, err = json.Marshal(event); err != nil {
			return 0, err
		}
		c.rest = append(c.rest, '\n')
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// cutJSON returns an object without what is too large.
func cutJSON(in json.RawMessage) json.RawMessage {
	var o, meta map[string]json.RawMessage
	if json.Unmarshal(in, &o) != nil || json.Unmarshal(o["metadata"], &meta) != nil {
		return in
	}
	delete(meta, "managedFields")
	delete(meta, "labels")
	cut := map[string]bool{}
	for at, part := range map[string]map[string]json.RawMessage{"metadata.": meta, "": o} {
		for name, text := range part {
			if len(text) > partCost && at+name != "metadata" {
				delete(part, name)
				cut[at+name] = true
			}
		}
	}
	if len(cut) > 0 {
		annotations := map[string]string{}
		_ = json.Unmarshal(meta["annotations"], &annotations)
		annotations[taint.CutAnnotation] = strings.Join(slices.Sorted(maps.Keys(cut)), ",")
		meta["annotations"], _ = json.Marshal(annotations)
	}
	o["metadata"], _ = json.Marshal(meta)
	out, err := json.Marshal(o)
	if err != nil {
		return in
	}
	return out
}
