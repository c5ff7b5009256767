package libvirt

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// The remote protocol's packets: length, program, version, procedure, type, serial, status, each 4 bytes, then the
// payload in XDR (libvirt's src/rpc/virnetprotocol.x and src/remote/remote_protocol.x).
const (
	headerLen  = 28
	maxPacket  = 32 << 20 // VIR_NET_MESSAGE_MAX; nothing that we ask for comes near it
	maxReply   = 1 << 20  // of what we do read; all of it but the text of an error has some hundred bytes at most
	maxRequest = 64 << 10

	programRemote    = 0x20008086
	programKeepalive = 0x6b656570
	protocolVersion  = 1

	typeCall    = 0
	typeReply   = 1
	typeMessage = 2

	statusOK    = 0
	statusError = 1

	keepalivePing = 1
	keepalivePong = 2

	procConnectOpen      = 1
	procConnectClose     = 2
	procDomainCreate     = 9
	procLookupByName     = 23
	procLookupByUUID     = 24
	procAuthList         = 66
	procAuthPolkit       = 70
	procGetLibVersion    = 157
	procHasManagedSave   = 183
	procGetState         = 212
	procDestroyFlags     = 234
	procRegisterCallback = 316
	procLifecycleEvent   = 318
)

// replies are the procedures that are called here, with the shape of their answers. No other packet is sent or
// accepted. go-libvirt's XDR decoder allocates any length that the payload states (8 GiB for the list of ways to
// authenticate, which a peer sends before authentication), and an allocation that fails ends the process.
var replies = map[uint32]func(*cursor){
	procConnectOpen:      func(*cursor) {},
	procConnectClose:     func(*cursor) {},
	procDomainCreate:     func(*cursor) {},
	procLookupByName:     func(c *cursor) { c.skipDomain() },
	procLookupByUUID:     func(c *cursor) { c.skipDomain() },
	procAuthList:         func(c *cursor) { c.skipBytes(4 * c.readUpTo(20)) }, // REMOTE_AUTH_TYPE_LIST_MAX
	procAuthPolkit:       func(c *cursor) { c.skipBytes(4) },
	procGetLibVersion:    func(c *cursor) { c.skipBytes(8) },
	procHasManagedSave:   func(c *cursor) { c.skipBytes(4) },
	procGetState:         func(c *cursor) { c.skipBytes(8) },
	procDestroyFlags:     func(*cursor) {},
	procRegisterCallback: func(c *cursor) { c.skipBytes(4) },
}

// lifecycle is an event of REMOTE_PROC_DOMAIN_EVENT_CALLBACK_LIFECYCLE.
type lifecycle struct {
	name          string
	uuid          [16]byte
	event, detail uint32
}

// wire is the connection that go-libvirt is given. It passes whole packets only, and of these only the one answer to
// each question, in the shape that the question has. The reasons are in go-libvirt (rpc.go, callback). A length below
// 28 panics in a goroutine of its own, where no caller can recover. A second answer with a serial, or one to a question
// whose sending failed, blocks its reader for ever with the lock held that every other call needs. And an error with
// code 0 counts as success, its text as the result. A packet that does not belong here ends the connection.
//
// Events never reach go-libvirt. Its SubscribeEvents sends to a stream that has no reader any more once the caller has
// left. Then go-libvirt's reader, which holds the lock that ends the stream (rpc.go, stream and removeStream), never
// returns, even after the connection was closed. So events are decoded here.
type wire struct {
	net.Conn // what is written and read: TLS, or raw itself
	raw      net.Conn
	events   chan<- lifecycle // nil: events are dropped

	in   *bufio.Reader
	rest []byte // what go-libvirt has still to read of a packet
	out  []byte // what it has written of one

	once  sync.Once
	done  chan struct{} // closed when the connection is of no use any more
	err   error         // why; written before done is closed
	ended chan struct{} // closed when go-libvirt's reader got the end: it does not call Read again

	// mu guards what follows. It is held while a question is written, so that its answer is not handled before
	// go-libvirt waits for it. It is the only lock here held during I/O, which killConnection ends without it.
	mu      sync.Mutex
	changed sync.Cond // of mu
	asked   map[int32]uint32
	open    bool // go-libvirt's reader may hear of the end at any time
}

func newWire(conn, raw net.Conn, events chan<- lifecycle) *wire {
	w := &wire{
		Conn: conn, raw: raw, events: events, in: bufio.NewReader(conn),
		done: make(chan struct{}), ended: make(chan struct{}), asked: map[int32]uint32{},
	}
	w.changed.L = &w.mu
	return w
}

// killConnection ends the connection at once: the socket first, since a TLS connection's own Close waits for a peer
// that does not read.
func (w *wire) killConnection(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.done)
		_ = w.raw.Close()
	})
}

// isDead reports whether the connection is no longer usable.
func (w *wire) isDead() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Close is called by go-libvirt when it gives up.
func (w *wire) Close() error {
	w.killConnection(net.ErrClosed)
	w.releaseReader()
	return nil
}

// releaseReader lets go-libvirt's reader return the end of the connection. While go-libvirt is connecting it must not,
// unless a question is pending that it would wait for. ConnectToURI assigns the channel that its reader's end closes as
// its last act. So an earlier end is a data race, and is never noticed.
func (w *wire) releaseReader() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = true
	w.changed.Broadcast()
}

// Read returns the next packet that go-libvirt waits for.
func (w *wire) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		packet, err := w.nextPacket()
		if err != nil {
			w.killConnection(err)
			w.mu.Lock()
			for !w.open && len(w.asked) == 0 {
				w.changed.Wait()
			}
			w.mu.Unlock()
			select {
			case <-w.ended:
			default:
				close(w.ended)
			}
			return 0, io.EOF // anything else might count as temporary, and be tried for ever
		}
		w.rest = packet
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

var errProtocol = errors.New("the peer does not speak libvirt's protocol")

// nextPacket reads packets until there is one for go-libvirt.
func (w *wire) nextPacket() ([]byte, error) {
	for {
		packet, err := readPacket(w.in)
		if err != nil {
			return nil, err
		}
		h := parseHeader(packet)
		switch {
		case h.program == programRemote && h.version == protocolVersion && h.kind == typeReply:
			if err := w.checkReply(h, packet[headerLen:]); err != nil {
				return nil, err
			}
			return packet, nil
		case h.program == programRemote && h.version == protocolVersion && h.kind == typeMessage:
			if err := w.passEvent(h, packet[headerLen:]); err != nil {
				return nil, err
			}
		case h.program == programKeepalive && h.procedure == keepalivePing:
			if err := w.sendPong(); err != nil {
				return nil, err
			}
		case h.program == programKeepalive && h.procedure == keepalivePong:
		default:
			return nil, fmt.Errorf("%w: a packet of program %#x, type %d", errProtocol, h.program, h.kind)
		}
	}
}

func readPacket(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	switch {
	case n < headerLen || n > maxPacket:
		return nil, fmt.Errorf("%w: a packet of %d bytes", errProtocol, n)
	case n > maxReply:
		return nil, fmt.Errorf("%w: an unexpected packet of %d bytes", errProtocol, n)
	}
	// Grows with what arrives: a length alone allocates no memory.
	var b bytes.Buffer
	b.Write(length[:])
	if _, err := io.CopyN(&b, r, int64(n)-4); err != nil {
		return nil, fmt.Errorf("reading a packet of %d bytes: %w", n, err)
	}
	return b.Bytes(), nil
}

type header struct {
	program, version, procedure, kind uint32
	serial                            int32
	status                            uint32
}

func parseHeader(packet []byte) header {
	field := func(i int) uint32 { return binary.BigEndian.Uint32(packet[4*i:]) }
	return header{
		program:   field(1),
		version:   field(2),
		procedure: field(3),
		kind:      field(4),
		serial:    int32(field(5)),
		status:    field(6),
	}
}

// checkReply removes the question that a reply belongs to from the list.
func (w *wire) checkReply(h header, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	procedure, asked := w.asked[h.serial]
	if !asked || procedure != h.procedure {
		return fmt.Errorf("%w: an unexpected answer (procedure %d, serial %d)", errProtocol, h.procedure,
			h.serial)
	}
	c := &cursor{left: payload}
	switch h.status {
	case statusOK:
		replies[procedure](c)
	case statusError:
		c.remoteError()
	default:
		return fmt.Errorf("%w: an answer with status %d", errProtocol, h.status)
	}
	if c.broken || h.status == statusOK && len(c.left) > 0 {
		return fmt.Errorf("%w: a malformed answer to procedure %d with status %d", errProtocol, procedure,
			h.status)
	}
	delete(w.asked, h.serial)
	return nil
}

// passEvent passes a lifecycle event on. It blocks until the event is received or the connection ends.
func (w *wire) passEvent(h header, payload []byte) error {
	if h.procedure != procLifecycleEvent || w.events == nil {
		return nil
	}
	c := &cursor{left: payload}
	c.skipBytes(4) // the callback's id: there is one per connection
	var e lifecycle
	e.name = string(c.readText(maxName))
	copy(e.uuid[:], c.skipBytes(16))
	c.skipBytes(4) // the domain's id while it runs
	e.event, e.detail = c.readNumber(), c.readNumber()
	if c.broken {
		return fmt.Errorf("%w: a malformed event", errProtocol)
	}
	select {
	case w.events <- e:
		return nil
	case <-w.done:
		return w.err
	}
}

// sendPong answers the daemon's keepalive question. The daemon sends it only to clients that announced an answer, and
// go-libvirt announces none. Answering costs nothing, and the alternative is a closed connection.
func (w *wire) sendPong() error {
	packet := make([]byte, 0, headerLen)
	pong := []uint32{headerLen, programKeepalive, protocolVersion, keepalivePong, typeMessage, 0, statusOK}
	for _, field := range pong {
		packet = binary.BigEndian.AppendUint32(packet, field)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.Conn.Write(packet)
	return err
}

// Write accepts what go-libvirt writes, in pieces of any size, and sends whole questions.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, p...)
	for len(w.out) >= headerLen {
		n := binary.BigEndian.Uint32(w.out)
		if n < headerLen || n > maxRequest {
			return 0, w.refuseCall(fmt.Errorf("a question of %d bytes", n))
		}
		if uint32(len(w.out)) < n {
			break
		}
		packet := w.out[:n]
		h := parseHeader(packet)
		if _, known := replies[h.procedure]; !known || h.program != programRemote || h.kind != typeCall {
			return 0, w.refuseCall(fmt.Errorf("a call of the unsupported procedure %d", h.procedure))
		}
		if w.isDead() {
			return 0, net.ErrClosed
		}
		w.asked[h.serial] = h.procedure
		w.changed.Broadcast()
		if _, err := w.Conn.Write(packet); err != nil {
			delete(w.asked, h.serial) // go-libvirt does not wait for it
			w.killConnection(err)
			return 0, err
		}
		w.out = w.out[n:]
	}
	return len(p), nil
}

func (w *wire) refuseCall(err error) error {
	w.killConnection(err)
	return err
}

// maxName is the maximum length of a domain's name that is read. libvirt's QEMU driver makes files of names, so they
// have at most 255 bytes.
const maxName = 4096

// cursor reads a payload step by step. Data that does not fit breaks it; a broken cursor reads zeros.
type cursor struct {
	left   []byte
	broken bool
}

func (c *cursor) skipBytes(n uint32) []byte {
	if c.broken || uint64(n) > uint64(len(c.left)) {
		c.broken = true
		return nil
	}
	b := c.left[:n]
	c.left = c.left[n:]
	return b
}

func (c *cursor) readNumber() uint32 {
	b := c.skipBytes(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// readUpTo reads a number with that maximum.
func (c *cursor) readUpTo(most uint32) uint32 {
	n := c.readNumber()
	if n > most {
		c.broken = true
		return 0
	}
	return n
}

// readText reads a string: its length, its bytes, and zeros up to a multiple of four.
func (c *cursor) readText(most uint32) []byte {
	n := c.readUpTo(most)
	b := c.skipBytes((n + 3) &^ 3)
	return b[:min(n, uint32(len(b)))]
}

func (c *cursor) skipDomain() {
	c.readText(maxName)
	c.skipBytes(16) // UUID
	c.skipBytes(4)  // id
}

// remoteError is the beginning of libvirt's remote_error, as far as go-libvirt reads it: code, domain, whether there is
// a message, the message, level. go-libvirt also reads a message where there is none: then the level is its length.
func (c *cursor) remoteError() {
	if c.readNumber() == 0 {
		c.broken = true
	}
	c.skipBytes(4)
	if c.readUpTo(1) == 1 {
		c.readText(maxReply)
	}
	c.readUpTo(3)
}
