package ipmi

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	soft "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
)

// line is a connection in memory to a BMC that knows the log-in, and sends afterwards what is put on it.
type line struct {
	net.Conn // nil: nothing else is called
	t        testing.TB
	bmc      *soft.BMC
	answers  [][]byte        // nil: there is none in time
	instead  map[byte][]byte // of an answer to the log-in, by its kind
	sent     func(packet)    // called with each packet; may be nil
}

func (l *line) SetReadDeadline(time.Time) error { return nil }
func (l *line) Close() error                    { return nil }

func (l *line) Read(b []byte) (int, error) {
	if len(l.answers) == 0 {
		return 0, io.EOF // no answer: it is given up at once
	}
	next := l.answers[0]
	l.answers = l.answers[1:]
	if next == nil {
		return 0, os.ErrDeadlineExceeded
	}
	return copy(b, next), nil
}

func (l *line) Write(b []byte) (int, error) {
	p, ok := parsePacket(b)
	if !ok {
		l.t.Fatalf("wrote %x", b)
	}
	if l.sent != nil {
		l.sent(p)
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
	answer = newFrame(p.kind+1, 0, 0, answer)
	if other, ok := l.instead[p.kind+1]; ok {
		answer = other
	}
	l.answers = append(l.answers, answer)
	return len(b), nil
}

// signedFrame is a packet as the BMC signs it.
func signedFrame(s *session, kind byte, sequence uint32, payload []byte) []byte {
	b := newFrame(kind, s.console, sequence, payload)
	pad := types.IntegrityPadLen(headerLen-4, len(payload))
	b = append(b, bytes.Repeat([]byte{0xff}, pad)...)
	b = append(b, byte(pad), 7)
	code, _ := crypto.SessionIntegrityAuthCode(s.suite.integrity, b[4:], s.k1, "")
	return append(b, code...)
}

// encrypted returns a payload with the pad that its end names.
func encrypted(s *session, plain []byte) []byte {
	plain = append(bytes.Clone(plain), make([]byte, (blockLen-len(plain)%blockLen)%blockLen)...)
	block, _ := aes.NewCipher(s.k2[:16])
	iv := make([]byte, blockLen)
	out := make([]byte, len(plain))
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(out, plain)
	return append(iv, out...)
}

// newLine connects to a BMC with the account fence.
func newLine(t testing.TB, id int) (*line, *session) {
	b := soft.New(soft.DeviceInfo{IPMIVersion: 0x20}, [16]byte{}, mock.New())
	if err := b.Users.Upsert(2, func(u *soft.User) error {
		u.Name, u.Enabled = "fence", true
		u.SetPassword([]byte("secret"))
		u.ChannelAccess = map[uint8]soft.UserChannelAccess{
			1: {MaxPrivilege: soft.PrivilegeLevelAdministrator, Enabled: true}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	l := &line{t: t, bmc: b}
	return l,
		&session{conn: l, suite: suites[id], timing: defaultTiming, console: 0xa0a1a2a3, patience: time.Minute,
			rejected: func(string) {}}
}

var fence = credentials{"fence", providers.NewSecret("secret"), nil, types.PrivilegeLevelOperator}

// FuzzAnswers puts anything on the line, as it comes and under the BMC's own signature, in the log-in and behind it:
// nothing ends the process, and what is not signed is no answer.
func FuzzAnswers(f *testing.F) {
	off := []byte{0x81, 0x04, 0x7b, 0x20, 0x04, 0x01, 0x00, 0x00, 0x00, 0x00, 0xdb}
	f.Add(byte(0), []byte{})
	f.Add(byte(0), []byte{6, 0, 0xff, 7})
	f.Add(byte(0), newFrame(0xc0, 0xa0a1a2a3, 9, make([]byte, 32)))
	f.Add(byte(0), append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}, off...))
	f.Add(byte(1), make([]byte, 16))
	f.Add(byte(1), make([]byte, 17))
	f.Add(byte(1), make([]byte, 32))
	f.Add(byte(2), append(bytes.Clone(off), 1, 2, 3, 4, 4))
	f.Add(byte(2), append(make([]byte, 15), 0xff))
	f.Add(byte(2), append(make([]byte, 15), 0x0f))
	f.Add(byte(2), append(make([]byte, 31), 0x1f))
	f.Add(byte(3), []byte{0x80, 1, 2, 3})
	f.Add(byte(4), newFrame(payloadOpenResponse, 0, 0, make([]byte, 36)))
	f.Add(byte(4), newFrame(payloadOpenResponse, 0, 0, []byte{0, 4}))
	f.Add(byte(5), newFrame(payloadRAKP2, 0, 0, make([]byte, 72)))
	f.Add(byte(6), newFrame(payloadRAKP4, 0, 0, make([]byte, 24)))
	type opened struct {
		*line
		*session
	}
	both := map[int]opened{}
	for id := range suites {
		l, s := openLine(f, id)
		both[id] = opened{l, s}
	}
	sequence := uint32(1)
	f.Fuzz(func(t *testing.T, mode byte, data []byte) {
		for id, o := range both {
			sequence++
			packet := data
			switch mode % 7 {
			case 1:
				packet = signedFrame(o.session, signed, sequence, data)
			case 2:
				packet = signedFrame(o.session, signed, sequence, encrypted(o.session, data))
			case 3:
				if len(data) == 0 {
					return
				}
				packet = signedFrame(o.session, data[0], sequence, data[1:])
			case 4, 5, 6: // in place of an answer to the log-in
				l, s := newLine(t, id)
				l.instead = map[byte][]byte{[]byte{payloadOpenResponse, payloadRAKP2, payloadRAKP4}[mode%7-4]: data}
				if err := s.logIn(t.Context(), fence, time.Minute); err == nil {
					t.Fatalf("logged in by %x", data)
				}
				continue
			}
			if len(packet) > 4096 {
				return
			}
			o.line.answers = [][]byte{packet}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			var status chassis.GetChassisStatusResponse
			err := o.session.sendQuery(ctx, &chassis.GetChassisStatusRequest{}, &status)
			cancel()
			if mode%7 == 0 && err == nil {
				t.Fatalf("an answer that is not signed counts: %v", status)
			}
			o.line.answers = nil
		}
	})
}

// openLine is newLine with an open session.
func openLine(t testing.TB, id int) (*line, *session) {
	l, s := newLine(t, id)
	if err := s.logIn(t.Context(), fence, time.Minute); err != nil {
		t.Fatal(err)
	}
	return l, s
}

// TestTagsAreRandom: the tags and the session ID of a log-in cannot be guessed.
func TestTagsAreRandom(t *testing.T) {
	seen := map[int]map[byte]bool{}
	ids := map[uint32]bool{}
	const logIns = 32
	for range logIns {
		l, s := newLine(t, 17)
		at := 0
		l.sent = func(p packet) {
			if seen[at] == nil {
				seen[at] = map[byte]bool{}
			}
			seen[at][p.payload[0]] = true
			at++
		}
		if err := s.logIn(t.Context(), fence, time.Minute); err != nil {
			t.Fatal(err)
		}
		ids[newID()] = true
	}
	for at, tags := range seen {
		if len(tags) < logIns/4 {
			t.Errorf("message %d: %d tags in %d log-ins", at, len(tags), logIns)
		}
	}
	if len(seen) != 3 || len(ids) != logIns {
		t.Errorf("got %d messages, %d session IDs; want 3, %d", len(seen), len(ids), logIns)
	}
}

// FuzzKg: for any key file, a key has 1 to 20 bytes that are not all zero, and is the same in hexadecimal.
func FuzzKg(f *testing.F) {
	for _, text := range []string{"", "0x", "0x00", "key", "0X4b6579", "0xk", "4b6579",
		strings.Repeat("4b", 20), strings.Repeat("k", 40), strings.Repeat("\xff", 20)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := parseKg(text)
		if err != nil {
			if strings.Contains(err.Error(), text) && len(text) > 8 {
				t.Errorf("the error repeats %q: %v", text, err)
			}
			return
		}
		if len(key) == 0 || len(key) > maxKg || bytes.Equal(key, make([]byte, len(key))) {
			t.Errorf("%q: got key %x", text, key)
		}
		again, err := parseKg(fmt.Sprintf("0x%x", key))
		if err != nil || !bytes.Equal(again, key) {
			t.Errorf("%q: got %x, and %x of its hexadecimal, %v", text, key, again, err)
		}
	})
}

// saysOff is an answer that the BMC signed: completed normally, and three zeros.
func saysOff(s *session, sequence uint32, netFn, number, command byte) []byte {
	b := []byte{0x81, netFn << 2, -0x81 & 0xff}
	b[2] -= b[1]
	body := []byte{0x20, number << 2, command, 0, 0, 0, 0, 0}
	var sum byte
	for _, x := range body {
		sum -= x
	}
	return signedFrame(s, signed, sequence, encrypted(s, crypto.PadAES(append(append(b, body...), sum))))
}

// TestSpentNumbers: a number under which an answer may still come is not used again, and any other is.
func TestSpentNumbers(t *testing.T) {
	ask := func(l *line, s *session, before [][]byte, answered bool) error {
		number := s.number%lastNumber + 1
		l.answers = before
		if answered {
			l.answers = append(l.answers, saysOff(s, s.seen+1, 1, number, 1))
		}
		return s.sendQuery(t.Context(), &chassis.GetChassisStatusRequest{}, &chassis.GetChassisStatusResponse{})
	}
	for name, spend := range map[string]func(l *line, s *session) error{
		"not answered": func(l *line, s *session) error {
			_ = ask(l, s, nil, false)
			return nil
		},
		"sent twice": func(l *line, s *session) error { return ask(l, s, [][]byte{nil}, true) },
		"":           nil,
	} {
		l, s := openLine(t, 17)
		for range 10 {
			if err := ask(l, s, nil, true); err != nil {
				t.Fatal(err)
			}
		}
		if spend != nil {
			if err := spend(l, s); err != nil {
				t.Fatal(err)
			}
		}
		asked := 0
		for ; asked < 200 && ask(l, s, nil, true) == nil; asked++ {
		}
		switch again := ask(l, s, nil, true); {
		case spend == nil && (asked != 200 || again != nil):
			t.Errorf("got %d questions, then %v; want any number", asked, again)
		case spend != nil && (asked != lastNumber-1 || !errors.Is(again, errSpent)):
			t.Errorf("%s: got %d questions, then %v; want %d, then %v", name, asked, again, lastNumber-1, errSpent)
		}
	}
}

// TestAnswerToAnotherQuestion: what the BMC signed in this session is no answer unless it has the number, the network
// function and the command of the question.
func TestAnswerToAnotherQuestion(t *testing.T) {
	for _, c := range []struct {
		name                   string
		netFn, number, command byte
		counts                 bool
	}{
		{"its own", 1, 2, 1, true},
		{"of another number", 1, 1, 1, false},
		{"of another network function", 7, 2, 1, false},
		{"a question", 0, 2, 1, false},
		{"to another command", 1, 2, 7, false},
	} {
		for id := range suites {
			l, s := openLine(t, id)
			s.number = 1
			l.answers = [][]byte{saysOff(s, 1, c.netFn, c.number, c.command)}
			var status chassis.GetChassisStatusResponse
			if err := s.sendQuery(t.Context(), &chassis.GetChassisStatusRequest{}, &status); (err == nil) != c.counts {
				t.Errorf("%s, suite %d: got %v, want an answer: %t", c.name, id, err, c.counts)
			}
		}
	}
}
