package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/taint"
)

// What a client keeps is counted in bytes of memory after decoding, which is many times the bytes of the wire.
const (
	partCost    = 32 << 10  // of one part of an object, such as spec.volumes; more is cut, and CutAnnotation says so
	answerCost  = 32 << 20  // of one answer to a list that is read by eachPage; more is read in smaller pages
	listCost    = 128 << 20 // of all pages of a list that is kept
	shareCost   = 16 << 20  // of a namespace in such a list; of its further objects each part keeps smallPart
	smallPart   = 1 << 10
	wholeBytes  = 64 << 20  // on the wire, of a list that is read at once; more is read in pages
	slowBytes   = 4 << 20   // on the wire, of an answer that was too slow because it is large
	largeAnswer = 256 << 10 // the cost from which an answer is large
	largeOnes   = 4         // how many large answers the process holds at once
	messageCost = 64        // of a message, without what it has
	textCost    = 32        // of a text, without its bytes
	valueFactor = 4         // how much larger a message is in memory
	maxListMeta = 64 << 10  // bytes of a list's own metadata, which has the token of the next page
)

// large has a turn for each large answer.
var large = semaphore.NewWeighted(largeOnes)

// errLarge is the error of a list that is too large to be read at once.
var errLarge = errors.New("the answer is too large")

// BoundReads makes clients of cfg keep only the fields that forcefence reads of pods, claims, volumes and attachments,
// while they read an answer or a watch. A user of a namespace can make an object as large as a request to etcd,
// 1.5 MB, and a thousand of them on one node. Answers in JSON stay as they are. Other writes than patches must not use
// what such a client read.
func BoundReads(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return cutTransport{next, shapes} })
}

// BoundLeases makes clients of cfg keep of Leases only who holds them.
func BoundLeases(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return cutTransport{next, heldLeases} })
}

type cutTransport struct {
	next http.RoundTripper
	keep map[string]*shape
}

// WrappedRoundTripper returns the transport beneath, which client-go looks for.
func (t cutTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t cutTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices || resp.Header.Get("Content-Encoding") != "" {
		return resp, err
	}
	kind, options, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind != "application/vnd.kubernetes.protobuf" {
		return resp, nil
	}
	raw := &countedReader{Reader: resp.Body}
	c := &cutter{r: bufio.NewReaderSize(raw, 32<<10), keep: t.keep, ctx: req.Context()}
	c.list, _ = req.Context().Value(listKey{}).(*boundedList)
	body := struct {
		io.Reader
		io.Closer
	}{c.r, resp.Body}
	switch {
	case strings.Contains(options, "stream=watch"):
		body.Reader = &cutWatch{c: c}
	case c.shapeOfNext(-1) != nil:
		if c.list != nil && !req.URL.Query().Has("limit") {
			raw.limit = wholeBytes
		}
		out, err := c.copyEnvelope(-1)
		resp.Body.Close()
		if err != nil {
			c.release()
			if errors.Is(err, context.DeadlineExceeded) && raw.read > slowBytes {
				err = errors.Join(errLarge, err)
			}
			return nil, err
		}
		body.Reader, body.Closer = bytes.NewReader(out), closer(c.release)
		resp.ContentLength = int64(len(out))
		resp.Header.Del("Content-Length")
	}
	resp.Body = body
	return resp, nil
}

// closer is a function that closes.
type closer func()

func (c closer) Close() error { c(); return nil }

// countedReader fails after limit bytes; 0: it has no limit.
type countedReader struct {
	io.Reader
	read, limit int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	if r.limit > 0 && r.read > r.limit {
		return 0, errLarge
	}
	n, err := r.Reader.Read(p)
	r.read += int64(n)
	return n, err
}

// cutter copies what shapes keep of messages in Kubernetes' protobuf.
type cutter struct {
	r    *bufio.Reader
	keep map[string]*shape
	ctx  context.Context // of the request
	list *boundedList    // nil: the list has no limit

	cost map[string]int64 // of the object, by part
	cut  map[string]bool  // its parts that were too large
	ns   string           // its namespace
	all  int64            // the cost of the answer
	held bool             // it is one of the large
}

// release ends the answer's turn.
func (c *cutter) release() {
	if c.held {
		large.Release(1)
		c.held = false
	}
}

// magic begins each message.
const magic = "k8s\x00"

// shapeOfNext returns the shape of the message that comes next, of n bytes, without reading on; nil: it is copied as it
// is. n < 0: it ends with the answer.
func (c *cutter) shapeOfNext(n int64) *shape {
	s, _ := c.peekShape(0, n)
	return s
}

// peekShape is shapeOfNext after skip bytes. isList is whether the message is a list of such objects.
func (c *cutter) peekShape(skip int, n int64) (s *shape, isList bool) {
	size := skip + 256
	if n >= 0 && n < 256 {
		size = skip + int(n)
	}
	head, _ := c.r.Peek(size)
	head, ok := bytes.CutPrefix(head[min(skip, len(head)):], []byte(magic))
	if !ok {
		return nil, false
	}
	about, _ := takeField(head, 1) // Unknown.typeMeta
	version, rest := takeField(about, 1)
	kind, _ := takeField(rest, 2)
	name, isList := strings.CutSuffix(string(kind), "List")
	if s = c.keep[string(version)+" "+name]; s == shapes["v1 Pod"] && c.list != nil && c.list.room {
		s = roomPod
	}
	return s, isList
}

// takeField returns the text of the field with which a message begins, and the rest; nil: it is another field.
func takeField(in []byte, number uint64) (text, rest []byte) {
	key, k := binary.Uvarint(in)
	if k <= 0 || key != number<<3|2 {
		return nil, nil
	}
	size, l := binary.Uvarint(in[k:])
	if l <= 0 || size > uint64(len(in)-k-l) {
		return nil, nil
	}
	return in[k+l : k+l+int(size)], in[k+l+int(size):]
}

// wireField is one field of a message: a scalar, with its key, or size bytes that come next.
type wireField struct {
	number uint64
	scalar []byte
	size   int64
}

var errBroken = errors.New("the answer is no protobuf")

// eachField calls visit with each field of a message of n bytes. visit reads the bytes of a field that is no scalar.
func (c *cutter) eachField(n int64, visit func(wireField) error) error {
	open := n < 0
	for n != 0 {
		if _, err := c.r.Peek(1); open && errors.Is(err, io.EOF) {
			return nil
		}
		key, k, err := c.uvarint()
		if err != nil {
			return err
		}
		f := wireField{number: key >> 3}
		n -= k
		switch key & 7 {
		case 0:
			v, k, err := c.uvarint()
			if err != nil {
				return err
			}
			f.scalar, n = binary.AppendUvarint(binary.AppendUvarint(nil, key), v), n-k
		case 1, 5:
			size := int64(8)
			if key&7 == 5 {
				size = 4
			}
			v, err := c.read(size)
			if err != nil {
				return err
			}
			f.scalar, n = append(binary.AppendUvarint(nil, key), v...), n-size
		case 2:
			size, k, err := c.uvarint()
			if err != nil {
				return err
			}
			f.size, n = int64(size), n-k-int64(size) //nolint:gosec // a negative size is refused below
			if f.size < 0 || !open && n < 0 {
				return errBroken
			}
		default:
			return errBroken
		}
		if !open && n < 0 {
			return errBroken
		}
		if open {
			n = -1
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// uvarint reads a number, and returns how many bytes it has.
func (c *cutter) uvarint() (v uint64, n int64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := c.r.ReadByte()
		if err != nil {
			return 0, 0, noEOF(err)
		}
		n++
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, n, nil
		}
	}
	return 0, 0, errBroken
}

// noEOF returns the error of an answer that ends too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *cutter) read(n int64) ([]byte, error) {
	out := make([]byte, n)
	_, err := io.ReadFull(c.r, out)
	return out, noEOF(err)
}

func (c *cutter) skip(n int64) error {
	_, err := io.CopyN(io.Discard, c.r, n)
	return noEOF(err)
}

// appendBytes appends a field.
func appendBytes(out []byte, number uint64, text []byte) []byte {
	out = binary.AppendUvarint(out, number<<3|2)
	return append(binary.AppendUvarint(out, uint64(len(text))), text...)
}

// copyEnvelope copies a message of n bytes with the magic and its kind, of which shapeOfNext is not nil.
func (c *cutter) copyEnvelope(n int64) ([]byte, error) {
	s, isList := c.peekShape(0, n)
	out, err := c.read(int64(len(magic)))
	if err != nil {
		return nil, err
	}
	if n > 0 {
		n -= int64(len(magic))
	}
	return out, c.eachField(n, func(f wireField) error {
		switch {
		case f.scalar != nil:
			out = append(out, f.scalar...)
			return nil
		case f.number != 2: // its kind and encoding
			text, err := c.readShort(f.size)
			out = appendBytes(out, f.number, text)
			return err
		}
		copyRaw := c.copyObject
		if isList {
			copyRaw = c.copyList
		}
		raw, err := copyRaw(f.size, s)
		out = appendBytes(out, f.number, raw)
		return err
	})
}

// readShort reads what is never long.
func (c *cutter) readShort(n int64) ([]byte, error) {
	if n > maxListMeta {
		return nil, errBroken
	}
	return c.read(n)
}

func (c *cutter) copyList(n int64, s *shape) (out []byte, err error) {
	return out, c.eachField(n, func(f wireField) error {
		switch {
		case f.scalar != nil:
			return nil
		case f.number != 2: // the list's metadata
			text, err := c.readShort(f.size)
			out = appendBytes(out, f.number, text)
			return err
		}
		one, err := c.copyObject(f.size, s)
		if out = appendBytes(out, f.number, one); err != nil {
			return err
		}
		return c.takeTurn()
	})
}

// Numbers of fields that each object has.
const (
	metadataNumber    = 1
	annotationsNumber = 12
)

// copyObject copies what the shape keeps of an object, and counts the cost.
func (c *cutter) copyObject(n int64, s *shape) ([]byte, error) {
	c.cost, c.cut, c.ns = map[string]int64{}, map[string]bool{}, ""
	out, err := c.copyMessage(n, s)
	if err != nil {
		return nil, err
	}
	if len(c.cut) > 0 { // a second metadata adds to the first
		parts := strings.Join(slices.Sorted(maps.Keys(c.cut)), ",")
		entry := appendBytes(appendBytes(nil, 1, []byte(taint.CutAnnotation)), 2, []byte(parts))
		out = appendBytes(out, metadataNumber, appendBytes(nil, annotationsNumber, entry))
	}
	cost := int64(0)
	for _, n := range c.cost {
		cost += n
	}
	c.all += cost
	if c.list != nil {
		err = c.list.add(c.ns, cost)
	}
	return out, err
}

// takeTurn waits for the turn of a large answer. A list of eachPage keeps the turn until the page was visited, and ends
// with an answer that is too large for a page.
func (c *cutter) takeTurn() error {
	held := &c.held
	if c.list != nil {
		held = &c.list.held
	}
	if c.list != nil && c.all > answerCost {
		return errLarge
	}
	if c.all < largeAnswer || *held {
		return nil
	}
	if err := large.Acquire(c.ctx, 1); err != nil {
		return fmt.Errorf("waiting for memory: %w", err)
	}
	*held = true
	return nil
}

// copyMessage copies what the shape keeps of a message.
func (c *cutter) copyMessage(n int64, s *shape) (out []byte, err error) {
	return out, c.eachField(n, func(f wireField) error {
		to := s.fields[f.number]
		if to == nil {
			to = s.rest
		}
		switch {
		case to == nil && f.scalar == nil:
			return c.skip(f.size)
		case f.scalar != nil:
			if to != nil {
				out = append(out, f.scalar...)
			}
			return nil
		}
		kept, ok, err := c.copyField(f.size, to)
		if ok {
			out = appendBytes(out, f.number, kept)
		}
		return err
	})
}

// copyField copies what the shape keeps of one field; not ok: nothing.
func (c *cutter) copyField(n int64, s *shape) (kept []byte, ok bool, err error) {
	nested := s.fields != nil || s.rest != nil
	cost := messageCost + valueFactor*n
	switch {
	case s.entries != nil && !s.entries[c.peekKey(n)]:
		return nil, false, c.skip(n)
	case s.empty || nested:
		cost = messageCost
	case s.text:
		cost = textCost + n
	}
	if most := c.list.partCost(c.ns); n > most && !nested && !s.empty || c.cost[s.part]+cost > most {
		c.cut[s.part] = true
		return nil, false, c.skip(n)
	}
	c.cost[s.part] += cost
	switch {
	case s.empty:
		return nil, true, c.skip(n)
	case nested:
		kept, err = c.copyMessage(n, s)
	default:
		kept, err = c.read(n)
	}
	if s.namespace {
		c.ns = string(kept)
	}
	return kept, err == nil, err
}

// peekKey returns the key of an entry of a map; "": it is too long to be one of ours.
func (c *cutter) peekKey(n int64) string {
	head, _ := c.r.Peek(int(min(n, 512)))
	key, _ := takeField(head, 1)
	return string(key)
}

// cutWatch is a watch of which each event is copied as its shape says.
type cutWatch struct {
	c    *cutter
	rest []byte // of the event
}

func (w *cutWatch) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		var err error
		if w.rest, err = w.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// next reads the next event, with its length before it. Its object is in a field of a field.
func (w *cutWatch) next() ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(w.c.r, head); err != nil {
		return nil, err
	}
	out := make([]byte, 4, 512)
	err := w.c.eachField(int64(binary.BigEndian.Uint32(head)), func(f wireField) error {
		if f.scalar != nil {
			out = append(out, f.scalar...)
			return nil
		}
		if f.number != 2 {
			text, err := w.c.readShort(f.size)
			out = appendBytes(out, f.number, text)
			return err
		}
		var object []byte
		err := w.c.eachField(f.size, func(f wireField) error {
			if f.scalar != nil {
				return nil
			}
			copyRaw := w.c.read
			if w.c.shapeOfNext(f.size) != nil {
				copyRaw = w.c.copyEnvelope
			}
			raw, err := copyRaw(f.size)
			object = appendBytes(object, f.number, raw)
			return err
		})
		out = appendBytes(out, f.number, object)
		return err
	})
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(out, uint32(len(out)-4)) //nolint:gosec // no longer than it came
	return out, nil
}
