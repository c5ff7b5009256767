package ipmi

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	soft "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
)

// line is a connection in memory to a BMC that knows the log-in, and says afterwards whatever is put on it.
type line struct {
	net.Conn // nil: the library calls nothing else
	t        testing.TB
	bmc      *soft.BMC
	answers  [][]byte
}

func (l *line) SetReadDeadline(time.Time) error { return nil }
func (l *line) Close() error                    { return nil }

func (l *line) Read(b []byte) (int, error) {
	if len(l.answers) == 0 {
		return 0, io.EOF // no answer: the library gives up at once
	}
	n := copy(b, l.answers[0])
	l.answers = l.answers[1:]
	return n, nil
}

func (l *line) Write(b []byte) (int, error) {
	p, ok := parsePacket(b)
	if !ok {
		l.t.Fatalf("the library wrote %x", b)
	}
	message := bytes.Clone(p.payload)
	var answer []byte
	var err error
	switch p.kind {
	case payloadOpenRequest:
		answer, err = handlers.HandleOpenSession(l.t.Context(), l.bmc, message)
	case payloadRAKP1:
		answer, err = handlers.HandleRAKP1(l.t.Context(), l.bmc, message)
	case payloadRAKP3:
		answer, err = handlers.HandleRAKP3(l.t.Context(), l.bmc, message)
	default:
		return len(b), nil
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.answers = append(l.answers, frame(p.kind+1, 0, 0, answer))
	return len(b), nil
}

func frame(kind byte, session, sequence uint32, payload []byte) []byte {
	b := []byte{6, 0, 0xff, 7, 6, kind}
	b = binary.LittleEndian.AppendUint32(b, session)
	b = binary.LittleEndian.AppendUint32(b, sequence)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}

// signedFrame is a packet as the BMC signs it.
func signedFrame(w *wire, kind byte, sequence uint32, payload []byte) []byte {
	b := frame(kind, 0xa0a1a2a3, sequence, payload)
	pad := types.IntegrityPadLen(headerLen-4, len(payload))
	b = append(b, bytes.Repeat([]byte{0xff}, pad)...)
	b = append(b, byte(pad), 7)
	return append(b, w.mac(w.k1, b[4:])[:w.suite.code]...)
}

// encrypted is a payload with whatever pad its end says.
func encrypted(w *wire, plain []byte) []byte {
	plain = append(bytes.Clone(plain), make([]byte, (blockLen-len(plain)%blockLen)%blockLen)...)
	block, _ := aes.NewCipher(w.k2[:16])
	iv := make([]byte, blockLen)
	out := make([]byte, len(plain))
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(out, plain)
	return append(iv, out...)
}

func openOnLine(t testing.TB, id int) (*line, *session) {
	b := soft.New(soft.DeviceInfo{IPMIVersion: 0x20}, [16]byte{}, mock.New())
	if err := b.Users.Upsert(2, func(u *soft.User) error {
		u.Name, u.Enabled = "fence", true
		u.SetPassword([]byte("secret"))
		u.ChannelAccess = map[uint8]soft.UserChannelAccess{1: {MaxPrivilege: soft.PrivilegeLevelAdministrator, Enabled: true}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, bmc: b}
	w := newWire(l, suites[id], "fence", providers.NewSecret("secret"), func(string) {})
	c, err := client.NewClient("bmc", 0, "fence", "secret")
	if err != nil {
		t.Fatal(err)
	}
	c.WithCipherSuiteID(w.suite.id).WithMaxPrivilegeLevel(types.PrivilegeLevelOperator).WithRetry(0).WithUDPProxy(w)
	_, err1 := c.OpenSession(t.Context())
	_, err2 := c.RAKPMessage1(t.Context())
	_, err3 := c.RAKPMessage3(t.Context())
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return l, &session{client: c, wire: w}
}

// FuzzAnswers puts anything on the line to the real library, as it comes and under the BMC's own signature: nothing ends the process, and
// what is not signed is no answer. It also goes through a log-in's stages.
func FuzzAnswers(f *testing.F) {
	off := []byte{0x81, 0x04, 0x7b, 0x20, 0x04, 0x01, 0x00, 0x00, 0x00, 0x00, 0xdb}
	f.Add(byte(0), []byte{})
	f.Add(byte(0), []byte{6, 0, 0xff, 7})
	f.Add(byte(0), frame(0xc0, 0xa0a1a2a3, 9, make([]byte, 32)))
	f.Add(byte(0), append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}, off...))
	f.Add(byte(1), make([]byte, 16))
	f.Add(byte(1), make([]byte, 17))
	f.Add(byte(1), make([]byte, 32))
	f.Add(byte(2), append(bytes.Clone(off), 1, 2, 3, 4, 4))
	f.Add(byte(2), append(make([]byte, 15), 0xff))
	f.Add(byte(2), append(make([]byte, 15), 0x0f))
	f.Add(byte(2), append(make([]byte, 31), 0x1f))
	f.Add(byte(3), []byte{0x80, 1, 2, 3})
	f.Add(byte(4), frame(payloadOpenResponse, 0, 0, make([]byte, 36)))
	f.Add(byte(4), frame(payloadOpenResponse, 0, 0, []byte{0, 4}))
	type opened struct {
		*line
		*session
	}
	both := map[int]opened{}
	for id := range suites {
		l, s := openOnLine(f, id)
		both[id] = opened{l, s}
	}
	sequence := uint32(1)
	f.Fuzz(func(t *testing.T, mode byte, data []byte) {
		for _, o := range both {
			sequence++
			packet := data
			switch mode % 5 {
			case 1:
				packet = signedFrame(o.wire, signed, sequence, data)
			case 2:
				packet = signedFrame(o.wire, signed, sequence, encrypted(o.wire, data))
			case 3:
				if len(data) == 0 {
					return
				}
				packet = signedFrame(o.wire, data[0], sequence, data[1:])
			case 4: // in a log-in
				for kind, stage := range map[byte]byte{payloadOpenRequest: payloadOpenResponse, payloadRAKP1: payloadRAKP2, payloadRAKP3: payloadRAKP4} {
					w := newWire(o.line, o.wire.suite, "fence", providers.NewSecret("secret"), func(string) {})
					w.sent(frame(kind, 0, 0, make([]byte, 40)))
					if w.expect != stage {
						t.Fatalf("got %#02x, want %#02x", w.expect, stage)
					}
					if ok, _ := w.accepts(data); ok && len(data) < headerLen+8 {
						t.Fatalf("accepted %x", data)
					}
				}
				return
			}
			if len(packet) > 4096 {
				return
			}
			o.line.answers = [][]byte{packet}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			status, err := o.client.GetChassisStatus(ctx)
			cancel()
			if mode%5 == 0 && err == nil {
				t.Fatalf("an answer that is not signed counts: %v", status)
			}
			o.line.answers = nil
		}
	})
}
