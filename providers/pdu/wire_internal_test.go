package pdu

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
)

// message is one of gosnmp's own.
func message(t testing.TB, p *gosnmp.SnmpPacket) []byte {
	t.Helper()
	if usm, ok := p.SecurityParameters.(*gosnmp.UsmSecurityParameters); ok {
		if err := usm.InitSecurityKeys(); err != nil {
			t.Fatal(err)
		}
		if err := usm.InitPacket(p); err != nil {
			t.Fatal(err)
		}
	}
	b, err := p.MarshalMsg()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func messages(t testing.TB) map[header][]byte {
	usm := func() *gosnmp.UsmSecurityParameters {
		return &gosnmp.UsmSecurityParameters{AuthoritativeEngineID: "\x80\x00engine", UserName: "fence",
			AuthenticationProtocol:   gosnmp.SHA256,
			AuthenticationPassphrase: "correct-horse", PrivacyProtocol: gosnmp.AES, PrivacyPassphrase: "battery-staple"}
	}
	value := []gosnmp.SnmpPDU{{Name: ".1.3.6.1.6.3.15.1.1.5.0", Type: gosnmp.Integer, Value: 1}}
	v3 := func(flags gosnmp.SnmpV3MsgFlags, kind gosnmp.PDUType) []byte {
		return message(t,
			&gosnmp.SnmpPacket{Version: gosnmp.Version3, MsgFlags: flags, SecurityModel: gosnmp.UserSecurityModel,
				SecurityParameters: usm(),
				PDUType:            kind, MsgID: 0x7fffffff, RequestID: 7, Variables: value})
	}
	return map[header][]byte{
		{version: 3, id: 0x7fffffff, flags: 3,
			engine: "\x80\x00engine"}: v3(gosnmp.AuthPriv, gosnmp.GetResponse),
		{version: 3, id: 0x7fffffff, flags: 0, engine: "\x80\x00engine", pdu: tagReport,
			reported: "\x2b\x06\x01\x06\x03\x0f\x01\x01\x05\x00"}: v3(gosnmp.NoAuthNoPriv, gosnmp.Report),
		{version: 3, id: 0x7fffffff, flags: 1, engine: "\x80\x00engine", pdu: tagResponse}: v3(gosnmp.AuthNoPriv,
			gosnmp.GetResponse),
		{version: 1, id: 0x12345, pdu: tagResponse}: message(t,
			&gosnmp.SnmpPacket{Version: gosnmp.Version2c, Community: "c", PDUType: gosnmp.GetResponse,
				RequestID: 0x12345, Variables: value}),
	}
}

func TestParseHeader(t *testing.T) {
	for want, b := range messages(t) {
		if got, ok := parseHeader(b); !ok || got != want {
			t.Errorf("got %+v, %t, want %+v", got, ok, want)
		}
		if _, ok := parseHeader(append(bytes.Clone(b), 0)); ok {
			t.Error("a byte behind the message passes")
		}
		for i := range b {
			if _, ok := parseHeader(b[:i]); ok {
				t.Errorf("%+v: its first %d bytes pass", want, i)
			}
		}
	}
	for _, b := range []string{
		"", "0", "\x30\x80", "\x30\x85\x00\x00\x00\x00\x00", "\x30\x84\xff\xff\xff\xff", "\x30\x02\x02\x00",
		"\x30\x08\x02\x06\x00\x00\x00\x00\x00\x03"} {
		if h, ok := parseHeader([]byte(b)); ok {
			t.Errorf("%q: got %+v", b, h)
		}
	}
	// as net-snmp writes lengths
	long := []byte("\x30\x82\x00\x0e\x02\x01\x01\x04\x82\x00\x00\xa2\x05\x02\x03\x01\x23\x45")
	if h, ok := parseHeader(long); !ok || h != (header{version: 1, id: 0x12345, pdu: tagResponse}) {
		t.Errorf("got %+v, %t", h, ok)
	}
}

func FuzzParseHeader(f *testing.F) {
	for _, b := range messages(f) {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { parseHeader(b) })
}

// scripted is a socket on which every question gets the same answer.
type scripted struct {
	net.Conn
	answer []byte
	asked  int
}

func (s *scripted) Write(b []byte) (int, error) { s.asked++; return len(b), nil }
func (s *scripted) SetDeadline(time.Time) error { return nil }
func (s *scripted) Close() error                { return nil }
func (s *scripted) Read(b []byte) (int, error) {
	if s.asked == 0 {
		return 0, net.ErrClosed
	}
	s.asked = 0
	return copy(b, s.answer), nil
}

// No answer to a client without the password is ever believed, and none ends the process.
func FuzzAnswer(f *testing.F) {
	for _, b := range messages(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		asked := []gosnmp.SnmpPDU{{Name: ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.7", Type: gosnmp.Null}}
		p, err := New(Config{MIB: "apc-rpdu2", Version: v3, Authentication: "sha256", Privacy: "aes128"},
			providers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wrong := providers.NewSecret("wrong-password")
		p.strips["127.0.0.1"] = engine{id: "\x80\x00engine", boots: 1, time: 1, at: time.Now()}
		l, c := p.newClient(t.Context(), "127.0.0.1", login{user: "fence", auth: wrong, priv: wrong})
		if err := c.Connect(); err != nil { // no packet is sent by that
			t.Skip(err)
		}
		_ = c.Conn.Close()
		l.sent = map[int64]string{}
		if h, ok := parseHeader(b); ok {
			l.sent[h.id] = l.engine
		}
		l.Conn, c.Conn = &scripted{answer: b}, l
		answer, err := c.Get(oidNames(asked))
		if err == nil && l.refusal == "" && l.failure == nil &&
			p.verifyAnswer("127.0.0.1", l, answer, gosnmp.GetRequest, asked) == nil {
			t.Errorf("believed %x", b)
		}
	})
}
