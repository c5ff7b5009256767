package libvirt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/forcefence/forcefence/providers"
)

func numbers(n ...uint32) []byte {
	var b []byte
	for _, v := range n {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// packet is one with these fields after its length, and a payload.
func packet(program, procedure, kind, serial, status uint32, payload ...uint32) []byte {
	p := numbers(
		append([]uint32{uint32(headerLen + 4*len(payload)), program, protocolVersion, procedure, kind, serial, status},
			payload...)...)
	return p
}

// session lets go-libvirt talk to a peer that sends these bytes as soon as it has read the question after the opening,
// and returns what DomainGetState said. With any bytes, everything ends.
func session(t testing.TB, events chan lifecycle, sent []byte) (int32, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		question := func() []byte {
			b := make([]byte, headerLen)
			if _, err := io.ReadFull(theirs, b); err != nil {
				return nil
			}
			if _, err := io.CopyN(io.Discard, theirs, int64(binary.BigEndian.Uint32(b))-headerLen); err != nil {
				return nil
			}
			return b
		}
		for _, answer := range [][]uint32{{1, 0}, {}} {
			q := question()
			if q == nil {
				return
			}
			_, _ = theirs.Write(
				packet(programRemote, parseHeader(q).procedure, typeReply, uint32(parseHeader(q).serial), statusOK,
					answer...))
		}
		if question() == nil {
			return
		}
		_, _ = theirs.Write(sent)
		_, _ = io.Copy(io.Discard, theirs)
	}()
	w := newWire(ours, ours, events)
	rpc := golibvirt.NewWithDialer(dialer{w})
	if err := rpc.ConnectToURI("qemu:///system"); err != nil {
		t.Fatalf("opening: %v", err)
	}
	w.releaseReader()
	// A peer that sends nothing of use would be waited for: what ends that in the provider is the caller's context.
	stop := time.AfterFunc(100*time.Millisecond, func() { w.killConnection(io.ErrUnexpectedEOF) })
	state, _, err := rpc.DomainGetState(golibvirt.Domain{Name: "n1"}, 0)
	if err != nil {
		err = w.explainError(err)
	}
	stop.Stop()
	w.killConnection(io.EOF)
	_ = theirs.Close()
	<-served
	select {
	case <-w.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("go-libvirt's reader does not end")
	}
	return state, err
}

const serial = 3 // of the question after the opening

// TestWire: what a peer may send instead of an answer, and what becomes of the question. Without the checks most of
// these end or block the whole process.
func TestWire(t *testing.T) {
	t.Parallel()
	good := packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2)
	for _, tt := range []struct {
		name string
		sent []byte
		want string // of the error; "": the state is 5
	}{
		{"an answer", good, ""},
		{"an answer in one piece with noise behind it", append(bytes.Clone(good), 0, 0, 0, 1), ""},
		{"an answer after an event and a ping", slicesConcat(
			packet(programRemote, 107, typeMessage, 0, statusOK),
			packet(programKeepalive, keepalivePing, typeMessage, 0, statusOK),
			packet(programKeepalive, keepalivePong, typeMessage, 0, statusOK), good), ""},
		{"length 0", numbers(0), "a packet of 0 bytes"},
		{"length 4", numbers(4), "a packet of 4 bytes"},
		{"length 27", append(numbers(27), good...), "a packet of 27 bytes"},
		{"a header only", packet(programRemote, procGetState, typeReply, serial, statusOK), "malformed"},
		{"half an answer", packet(programRemote, procGetState, typeReply, serial, statusOK, 5), "malformed"},
		{"too long an answer", packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2, 0),
			"malformed"},
		{"half a packet, then nothing", good[:30], "unexpected EOF"},
		{"half a length", good[:2], "unexpected EOF"},
		{"length 2 GiB", numbers(1 << 31), "a packet of 2147483648 bytes"},
		{"length 4 GiB", numbers(1<<32 - 1), "a packet of 4294967295 bytes"},
		{"length 32 MiB", append(numbers(32<<20), good...), "unexpected"},
		{"text", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "a packet of 1213486160 bytes"},
		{"another program", packet(0x20008087, procGetState, typeReply, serial, statusOK, 5, 2), "a packet of program"},
		{"another version", append(numbers(36, programRemote, 2), good[12:]...), "a packet of program"},
		{"a call", packet(programRemote, procGetState, typeCall, serial, statusOK, 5, 2), "type 0"},
		{"a stream", packet(programRemote, procGetState, 3, serial, statusOK, 5, 2), "type 3"},
		{"status continue", packet(programRemote, procGetState, typeReply, serial, 2, 5, 2), "status 2"},
		{"another serial", packet(programRemote, procGetState, typeReply, serial+1, statusOK, 5, 2),
			"unexpected"},
		{"the answer before the last", packet(programRemote, procConnectOpen, typeReply, serial-1, statusOK),
			"unexpected"},
		{"another procedure", packet(programRemote, procHasManagedSave, typeReply, serial, statusOK, 0),
			"unexpected"},
		{"an answer to something else before it",
			append(packet(programRemote, procGetState, typeReply, 99, statusOK, 5, 2), good...), "unexpected"},
		{"an error",
			packet(programRemote, procGetState, typeReply, serial, statusError, 42, 10, 1, 4, 0x6e6f6e65, 2, 0, 0, 0, 0,
				0, 0, 0), "the daemon reports: none"},
		{"an error with a long message's length",
			packet(programRemote, procGetState, typeReply, serial, statusError, 42, 10, 1, 0x7ffffff0, 0),
			"malformed"},
		{"an error without a message and with a length for a level",
			packet(programRemote, procGetState, typeReply, serial, statusError, 42, 10, 0, 0x7ffffff0),
			"malformed"},
		{"an error with code 0, which go-libvirt takes for a result",
			packet(programRemote, procGetState, typeReply, serial, statusError, 0, 5, 1, 0, 2, 0), "malformed"},
		{"an empty error", packet(programRemote, procGetState, typeReply, serial, statusError), "malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state, err := session(t, nil, tt.sent)
			switch {
			case tt.want == "" && (err != nil || state != 5):
				t.Errorf("got state %d, %v; want 5", state, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got state %d, %v; want %q", state, err, tt.want)
			case tt.want != "" && !errors.Is(err, providers.ErrUnreachable) && !errors.Is(err, providers.ErrNotFound):
				t.Errorf("got class %q", providers.ErrorClass(err))
			}
		})
	}
}

func slicesConcat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestAnsweredTwice: go-libvirt blocks for ever on a second answer while the first one's caller tidies up.
func TestAnsweredTwice(t *testing.T) {
	t.Parallel()
	good := packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2)
	for range 50 {
		if state, err := session(t, nil, append(bytes.Clone(good), good...)); err == nil && state != 5 {
			t.Fatalf("got state %d", state)
		}
	}
}

// TestOpeningIsGuarded: the list of ways to authenticate comes before its sender is known, and go-libvirt's decoder
// allocates memory for as many as it says.
func TestOpeningIsGuarded(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]uint32{
		"8 GiB of them": {0x7fffffff}, "more than are there": {3, 0}, "more than libvirt allows": make([]uint32, 30),
		"none": {},
	} {
		if name == "more than libvirt allows" {
			payload[0] = 29
		}
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			b := make([]byte, headerLen)
			_, _ = io.ReadFull(theirs, b)
			_, _ = theirs.Write(
				packet(programRemote, procAuthList, typeReply, uint32(parseHeader(b).serial), statusOK, payload...))
			_, _ = io.Copy(io.Discard, theirs)
		}()
		w := newWire(ours, ours, nil)
		err := w.explainError(golibvirt.NewWithDialer(dialer{w}).ConnectToURI("qemu:///system"))
		if err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("%s: got %v", name, err)
		}
		_ = theirs.Close()
		<-served
		<-w.ended
	}
}

// TestEndsWhileOpening: the peer closes right behind its last answer. go-libvirt's reader must not see the end before
// its other half has finished opening (the race detector sees to it, and Disconnected would never be closed).
func TestEndsWhileOpening(t *testing.T) {
	t.Parallel()
	for range 300 {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			for _, answer := range [][]uint32{{1, 0}, {}} {
				b := make([]byte, headerLen)
				if _, err := io.ReadFull(theirs, b); err != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, theirs, int64(binary.BigEndian.Uint32(b))-headerLen); err != nil {
					return
				}
				_, _ = theirs.Write(
					packet(programRemote, parseHeader(b).procedure, typeReply, uint32(parseHeader(b).serial), statusOK,
						answer...))
			}
		}()
		w := newWire(ours, ours, nil)
		rpc := golibvirt.NewWithDialer(dialer{w})
		err := rpc.ConnectToURI("qemu:///system")
		w.releaseReader()
		w.killConnection(io.EOF)
		<-w.ended
		if err != nil {
			continue
		}
		select {
		case <-rpc.Disconnected():
		case <-time.After(20 * time.Second):
			t.Fatal("go-libvirt does not know that it is disconnected")
		}
	}
}

// TestEventsAreDecoded here, and a broken one ends the connection.
func TestEventsAreDecoded(t *testing.T) {
	t.Parallel()
	good := packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2)
	event := func(name string, tail ...uint32) []byte {
		p := numbers(7, uint32(len(name)))
		p = append(p, name...)
		p = append(p, make([]byte, (4-len(name)%4)%4)...)
		p = append(p, "0123456789abcdef"...)
		p = append(p, numbers(tail...)...)
		head := packet(programRemote, procLifecycleEvent, typeMessage, 0, statusOK)
		binary.BigEndian.PutUint32(head, uint32(headerLen+len(p)))
		return append(head, p...)
	}
	events := make(chan lifecycle, 1)
	if state, err := session(t, events, append(event("worker-1", 3, 5, 2), good...)); err != nil || state != 5 {
		t.Fatalf("got %d, %v", state, err)
	}
	if got, want := <-events, (lifecycle{"worker-1", [16]byte([]byte("0123456789abcdef")), 5, 2}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, sent := range map[string][]byte{
		"cut off":     event("worker-1", 3, 5),
		"a long name": packet(programRemote, procLifecycleEvent, typeMessage, 0, statusOK, 7, 0x7ffffff0),
		"empty":       packet(programRemote, procLifecycleEvent, typeMessage, 0, statusOK),
	} {
		if _, err := session(t, events, append(sent, good...)); err == nil ||
			!strings.Contains(err.Error(), "malformed") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// No receiver takes the events: the question's answer waits behind them until the connection ends, and then all
	// ends.
	full := bytes.Repeat(event("worker-1", 3, 5, 2), 4)
	if _, err := session(t, make(chan lifecycle), append(full, good...)); err == nil {
		t.Error("got an answer past events that were not received")
	}
}

// TestPong: a ping is answered.
func TestPong(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	w := newWire(ours, ours, nil)
	w.releaseReader()
	go func() { _, _ = w.Read(make([]byte, 1)) }()
	_, err := theirs.Write(packet(programKeepalive, keepalivePing, typeMessage, 0, statusOK))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, headerLen)
	if _, err := io.ReadFull(theirs, got); err != nil ||
		!bytes.Equal(got, packet(programKeepalive, keepalivePong, typeMessage, 0, statusOK)) {
		t.Errorf("got %v, %v", got, err)
	}
	_ = theirs.Close()
	<-w.ended
}

// TestRandomPieces: a peer that sends valid packets with random damage never ends the process, nor keeps a goroutine.
func TestRandomPieces(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	good := packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2)
	for range 300 {
		sent := bytes.Repeat(good, 1+r.IntN(3))
		for range r.IntN(4) {
			sent[r.IntN(len(sent))] = byte(r.IntN(256))
		}
		sent = sent[:r.IntN(len(sent)+1)]
		sent = append(sent, make([]byte, headerLen)...) // so that half a packet is not waited for
		if _, err := session(t, nil, sent); err != nil && t.Failed() {
			t.Fatalf("seed %d: %x: %v", seed, sent, err)
		}
	}
}

// FuzzWire gives a peer's bytes to the wire alone: it reads to their end without a panic, and hands out whole answers
// only.
func FuzzWire(f *testing.F) {
	f.Add(packet(programRemote, procGetState, typeReply, serial, statusOK, 5, 2))
	f.Add(packet(programRemote, procGetState, typeReply, serial, statusError, 42, 10, 1, 4, 0x6e6f6e65, 2))
	f.Add(packet(programRemote, procLifecycleEvent, typeMessage, 0, statusOK, 7, 4, 0x6e6f6e65, 0, 0, 0, 0, 3, 5, 2))
	f.Add(numbers(0))
	f.Add(numbers(1<<32 - 1))
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &stub{in: bytes.NewReader(sent)}
		w := newWire(conn, conn, make(chan lifecycle, 1<<16))
		w.asked = map[int32]uint32{serial: procGetState, 4: procLookupByName, 5: procAuthList, 6: procHasManagedSave}
		w.releaseReader()
		got, err := io.ReadAll(w)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > len(sent) {
			t.Fatalf("handed out %d bytes of %d", len(got), len(sent))
		}
		for n := 0; len(got) > 0; n++ {
			length := binary.BigEndian.Uint32(got)
			if length < headerLen || uint64(length) > uint64(len(got)) || n > 3 {
				t.Fatalf("handed out %x", got)
			}
			got = got[length:]
		}
	})
}

// stub is a connection of bytes.
type stub struct {
	net.Conn
	in io.Reader
}

func (s *stub) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stub) Write(p []byte) (int, error) { return len(p), nil }
func (s *stub) Close() error                { return nil }
