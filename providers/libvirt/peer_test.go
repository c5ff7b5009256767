package libvirt_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/kit"
)

// The procedures that tests distinguish.
const (
	procConnectOpen    = 1
	procLookupByUUID   = 24
	procAuthList       = 66
	procHasManagedSave = 183
	procGetState       = 212
	procDestroy        = 234
	procCreate         = 9
	procRegister       = 316
)

// frame is one packet of libvirt's protocol.
type frame []byte

const headerLen = 28

func newFrame(program, procedure, kind, serial, status uint32, payload []byte) frame {
	f := make(frame, 0, headerLen+len(payload))
	for _, v := range []uint32{uint32(headerLen + len(payload)), program, 1, procedure, kind, serial, status} {
		f = binary.BigEndian.AppendUint32(f, v)
	}
	return append(f, payload...)
}

func (f frame) field(i int) uint32 { return binary.BigEndian.Uint32(f[4*i:]) }
func (f frame) procedure() uint32  { return f.field(3) }
func (f frame) payload() []byte    { return f[headerLen:] }

// reply answers a call with these numbers.
func (f frame) reply(numbers ...uint32) frame {
	return newFrame(f.field(1), f.procedure(), 1, f.field(5), 0, xdr(numbers...))
}

// fail answers a call with an error of that number.
func (f frame) fail(code uint32, text string) frame {
	p := xdr(code, 10, 1, uint32(len(text)))
	p = append(p, text...)
	p = append(p, make([]byte, (4-len(text)%4)%4)...)
	p = append(p, xdr(2, 0, 0, 0, 0, 0, 0, 0)...)
	return newFrame(f.field(1), f.procedure(), 1, f.field(5), 1, p)
}

func xdr(numbers ...uint32) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func readFrame(r io.Reader) (frame, error) {
	f := make(frame, 4)
	if _, err := io.ReadFull(r, f); err != nil {
		return nil, err
	}
	f = append(f, make([]byte, f.field(0)-4)...)
	_, err := io.ReadFull(r, f[4:])
	return f, err
}

// peer listens on a socket in the daemon's place. Each connection is served by a function and ends with it; the peer
// ends with the test, and its connections with it.
type peer struct {
	socket string
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	all    int // ever accepted
	ended  bool
}

// open counts the connections that are open, accepted those there ever were.
func (p *peer) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *peer) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

func newPeer(t testing.TB, serve func(net.Conn)) *peer {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(kit.SocketDir(t), "s"))
	must(t, err)
	return newPeerOn(t, l, serve)
}

func newPeerOn(t testing.TB, l net.Listener, serve func(net.Conn)) *peer {
	t.Helper()
	p := &peer{socket: l.Addr().String(), conns: map[net.Conn]struct{}{}}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns[c] = struct{}{}
			p.all++
			if p.ended {
				_ = c.Close()
			}
			p.mu.Unlock()
			wait.Go(func() {
				serve(c)
				_ = c.Close()
				p.mu.Lock()
				delete(p.conns, c)
				p.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.drop()
		wait.Wait()
	})
	return p
}

func (p *peer) uri() string { return "qemu+unix:///session?socket=" + p.socket }

// drop closes all connections.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// scripted answers calls by a function; nil answers nothing. What opens a connection is answered here.
func scripted(answer func(call frame) []frame) func(net.Conn) {
	return func(c net.Conn) {
		for {
			call, err := readFrame(c)
			if err != nil {
				return
			}
			var out []frame
			switch call.procedure() {
			case procAuthList:
				out = []frame{call.reply(1, 0)}
			case procConnectOpen:
				out = []frame{call.reply()}
			default:
				out = answer(call)
			}
			for _, f := range out {
				if _, err := c.Write(f); err != nil {
					return
				}
			}
		}
	}
}

// proxy is between a provider and a real daemon, and simulates faults.
type proxy struct {
	*peer
	mu       sync.Mutex // guards what follows
	fault    providertest.Fault
	changed  chan struct{} // closed when the fault is replaced
	swallow  bool          // a destroy was swallowed
	uuid     [16]byte      // the machine's, which OtherMachine replaces
	onAnswer func(frame)   // changes an answer in place; nil: does not

	requests providertest.Requests
}

func newProxy(t testing.TB, daemon string) *proxy {
	x := &proxy{changed: make(chan struct{})}
	x.peer = newPeer(t, func(c net.Conn) { x.serve(c, daemon) })
	return x
}

func (x *proxy) set(f providertest.Fault) {
	x.mu.Lock()
	x.fault, x.swallow = f, false
	close(x.changed)
	x.changed = make(chan struct{})
	x.mu.Unlock()
	if f == providertest.Unreachable || f == providertest.Denied {
		x.drop()
	}
}

func (x *proxy) get() (providertest.Fault, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fault, x.changed
}

func (x *proxy) serve(c net.Conn, daemon string) {
	if f, _ := x.get(); f == providertest.Unreachable {
		return
	}
	d, err := net.Dial("unix", daemon)
	if err != nil {
		return
	}
	defer d.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer c.Close()
		for {
			f, err := readFrame(d)
			if err != nil || !x.answer(f, c) {
				return
			}
		}
	}()
	for {
		f, err := readFrame(c)
		if err != nil || !x.call(f, c, d) {
			break
		}
	}
	_ = d.Close()
	<-ended
}

func (x *proxy) call(f frame, c, d net.Conn) bool {
	fault, _ := x.get()
	x.requests.Add(f.procedure() == procDestroy || f.procedure() == procCreate)
	var err error
	switch {
	case fault == providertest.Silent:
		return true
	case fault == providertest.Denied && f.procedure() == procConnectOpen:
		_, err = c.Write(f.fail(45, "authentication failed: not you"))
	case (fault == providertest.StaysOn || fault == providertest.StaysChanging) && f.procedure() == procDestroy:
		x.mu.Lock()
		x.swallow = true
		x.mu.Unlock()
		_, err = c.Write(f.reply())
	default:
		_, err = d.Write(f)
	}
	return err == nil
}

func (x *proxy) answer(f frame, c net.Conn) bool {
	fault, changed := x.get()
	x.mu.Lock()
	swallowed, other, edit := x.swallow, x.uuid, x.onAnswer
	x.mu.Unlock()
	reply := f.field(4) == 1 && f.field(6) == 0
	switch {
	case fault == providertest.Silent:
		return true
	case fault == providertest.Slow:
		select {
		case <-time.After(providertest.SlowBy):
		case <-changed:
		}
	case fault == providertest.StrangeWord && reply && f.procedure() == procGetState:
		copy(f.payload(), xdr(99))
	case fault == providertest.StaysChanging && swallowed && reply && f.procedure() == procGetState:
		copy(f.payload(), xdr(4, 1))
	case fault == providertest.OtherMachine:
		if i := bytes.Index(f.payload(), other[:]); i >= 0 {
			copy(f.payload()[i:], "another machine!")
		}
	}
	if edit != nil {
		edit(f)
	}
	_, err := c.Write(f)
	return err == nil
}
