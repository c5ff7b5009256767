package ipmi

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"net"
	"sync"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
)

// suite is a cipher suite: what proves who sent a packet. Its payloads are encrypted by AES-CBC-128.
type suite struct {
	id        types.CipherSuiteID
	hash      func() hash.Hash
	auth      byte // numbers of its algorithms on the wire
	integrity byte
	rakp2     int // bytes of the proof in RAKP message 2
	code      int // bytes of the proof in RAKP message 4, and of the one that ends each packet of a session
}

// suites are those whose packets prove who sent them. Any other is refused: with suite 0 anybody in the network may say off, those
// without an integrity algorithm prove the log-in only, and RC4 and MD5 prove too little.
var suites = map[int]suite{
	3:  {id: types.CipherSuiteID3, hash: sha1.New, auth: 1, integrity: 1, rakp2: 20, code: 12},
	17: {id: types.CipherSuiteID17, hash: sha256.New, auth: 3, integrity: 4, rakp2: 32, code: 16},
}

const confidentialityAES = 1

// Payload types of RMCP+ (IPMI 2.0, table 13-16).
const (
	payloadIPMI         = 0x00
	payloadOpenRequest  = 0x10
	payloadOpenResponse = 0x11
	payloadRAKP1        = 0x12
	payloadRAKP2        = 0x13
	payloadRAKP3        = 0x14
	payloadRAKP4        = 0x15
)

const (
	headerLen = 16 // of a packet: RMCP's 4 bytes, and the session's 12
	signed    = 0xc0
	blockLen  = aes.BlockSize
)

// wire stands between the library and the socket. The library takes any packet that looks like an answer, also one that is not
// signed, and a packet that is too short ends the process (F33). So wire learns the session's keys from the log-in that passes through
// it, and hands on: before the session is open, the one answer that the library waits for; afterwards, packets of this session that the
// BMC signed, that were never seen before, and that the library can read.
type wire struct {
	net.Conn
	suite    suite
	user     string
	key      []byte // the password, padded
	rejected func(why string)

	mu       sync.Mutex // guards what follows
	expect   byte       // payload type of the answer to the log-in's last message; 0: none
	tag      byte       // of that message
	console  []byte     // session ID of our side
	random1  []byte     // our random number
	random2  []byte     // the BMC's
	role     byte
	k1, k2   []byte       // of the open session
	sequence uint32       // of the last packet that was handed on
	answer   func()       // called for each; nil: nothing is
	maySend  func() error // asked before each Chassis Control request; nil: none may be sent
	stopped  error        // maySend's, since it was set
}

// permit sets what is asked before each Chassis Control request, retransmissions included. It stays set: the library
// may still send for a call that has ended.
func (w *wire) permit(maySend func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.maySend, w.stopped = maySend, nil
}

// refused returns why a Chassis Control request was not sent since permit, nil if none was refused.
func (w *wire) refused() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped
}

func (w *wire) onAnswer(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

func newWire(c net.Conn, s suite, user string, password providers.Secret, rejected func(string)) *wire {
	key := make([]byte, maxPassword)
	copy(key, password.Reveal())
	return &wire{Conn: c, suite: s, user: user, key: key, rejected: rejected}
}

// Dial is the library's way to its connection.
func (w *wire) Dial(string, string) (net.Conn, error) { return w, nil }

// Write sends a packet, and learns from the messages of the log-in what the answer has to be.
func (w *wire) Write(b []byte) (int, error) {
	w.sent(b)
	if err := w.permitted(b); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// permitted asks whether a Chassis Control request may be sent. Any other packet may.
func (w *wire) permitted(b []byte) error {
	w.mu.Lock()
	acts, maySend := w.acts(b), w.maySend
	w.mu.Unlock()
	if !acts {
		return nil
	}
	err := errNoPermit
	if maySend != nil {
		err = maySend()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = err
	return err
}

var errNoPermit = providers.WithClass(providers.ErrPermanent, errors.New("a Chassis Control request without a permit"))

// acts reports whether a packet of ours in an open session is a Chassis Control request (IPMI 2.0, 28.3). What cannot
// be decrypted counts as one.
func (w *wire) acts(b []byte) bool {
	p, ok := parsePacket(b)
	if w.k2 == nil || ok && p.kind != payloadIPMI {
		return false
	}
	if !ok || len(p.payload) < 2*blockLen || len(p.payload)%blockLen != 0 {
		return true
	}
	block, err := aes.NewCipher(w.k2[:16])
	if err != nil {
		return true
	}
	first := make([]byte, blockLen) // of the message, which begins: to, function, checksum, from, number, command
	cipher.NewCBCDecrypter(block, p.payload[:blockLen]).CryptBlocks(first, p.payload[blockLen:2*blockLen])
	return first[1]>>2 == netFnChassis && first[5] == cmdChassisControl
}

// A Chassis Control request's network function and command.
const (
	netFnChassis      = 0x00
	cmdChassisControl = 0x02
)

func (w *wire) sent(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := parsePacket(b)
	if !ok || w.k1 != nil || len(p.payload) < 8 {
		return
	}
	switch p.kind {
	case payloadOpenRequest:
		w.expect, w.tag, w.console = payloadOpenResponse, p.payload[0], bytes.Clone(p.payload[4:8])
	case payloadRAKP1:
		if len(p.payload) < 28 {
			return
		}
		w.expect, w.tag = payloadRAKP2, p.payload[0]
		w.random1, w.role = bytes.Clone(p.payload[8:24]), p.payload[24]
	case payloadRAKP3:
		w.expect, w.tag = payloadRAKP4, p.payload[0]
	}
}

// Read waits for a packet that may be handed on.
func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if err != nil {
			return n, err
		}
		if ok, err := w.accepts(b[:n]); ok || err != nil {
			return n, err
		}
	}
}

func (w *wire) accepts(b []byte) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := parsePacket(b)
	if w.k1 == nil {
		return w.inLogin(p, ok)
	}
	why := w.inSession(p, ok, b)
	switch {
	case why == "" && w.answer != nil:
		w.answer()
	case why != "" && !(ok && p.session == 0 && p.kind >= payloadOpenResponse): // an answer to the log-in that was sent twice
		w.rejected(why)
	}
	return why == "", nil
}

// inLogin accepts the answer to the last message of the log-in, once; a refusal is its error. Whether its proof is right is the library's to check. That the BMC
// takes the algorithms that were asked for is checked here: the library would take any from it, none among them, and no proof covers
// them.
func (w *wire) inLogin(p packet, ok bool) (bool, error) {
	m := p.payload
	if !ok || w.expect == 0 || p.kind != w.expect || p.flags != 0 || p.session != 0 || len(m) < 2 || m[0] != w.tag {
		return false, nil
	}
	if status := types.RmcpStatusCode(m[1]); status != types.RmcpStatusCodeNoErrors {
		return false, types.NewRmcpStatusError(status) // OpenIPMI ends its refusals here, and the library wants more
	}
	if len(m) < 8 || !bytes.Equal(m[4:8], w.console) {
		return false, nil
	}
	switch p.kind {
	case payloadOpenResponse:
		if len(m) < 36 {
			return false, nil
		}
		if m[16] != w.suite.auth || m[24] != w.suite.integrity || m[32] != confidentialityAES {
			return false, errOtherSuite
		}
	case payloadRAKP2:
		if len(m) < 40+w.suite.rakp2 {
			return false, nil
		}
		w.random2 = bytes.Clone(m[8:24])
	case payloadRAKP4:
		if len(m) < 8+w.suite.code || w.random1 == nil || w.random2 == nil {
			return false, nil
		}
		w.open()
	}
	w.expect = 0
	return true, nil
}

var errOtherSuite = providers.WithClass(providers.ErrUntrusted, errors.New("the BMC answered with other algorithms than those of the cipher suite that was asked for"))

// open computes the session's keys (IPMI 2.0, 13.31 and 13.32).
func (w *wire) open() {
	sik := w.mac(w.key, w.random1, w.random2, []byte{w.role, byte(len(w.user))}, []byte(w.user))
	w.k1 = w.mac(sik, bytes.Repeat([]byte{1}, 20))
	w.k2 = w.mac(sik, bytes.Repeat([]byte{2}, 20))
}

func (w *wire) mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(w.suite.hash, key)
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum(nil)
}

// inSession returns why a packet of an open session is not handed on, or "".
func (w *wire) inSession(p packet, ok bool, b []byte) string {
	switch {
	case !ok || p.kind != payloadIPMI || p.flags != signed || p.session != binary.LittleEndian.Uint32(w.console):
		return "not a signed packet of the session"
	case len(p.rest) < 2+w.suite.code:
		return "no signature"
	}
	end := len(b) - w.suite.code
	switch {
	case !hmac.Equal(w.mac(w.k1, b[4:end])[:w.suite.code], b[end:]):
		return "wrong signature"
	case p.sequence <= w.sequence:
		return "seen before, or late"
	case !readable(p.payload, w.k2):
		return "its payload cannot be decrypted"
	}
	w.sequence = p.sequence
	return ""
}

// readable tells whether the library can decrypt a payload without going out of its bounds.
func readable(payload, k2 []byte) bool {
	if len(payload) < 2*blockLen || len(payload)%blockLen != 0 {
		return false
	}
	block, err := aes.NewCipher(k2[:16])
	if err != nil {
		return false
	}
	last := make([]byte, blockLen)
	at := len(payload) - blockLen
	cipher.NewCBCDecrypter(block, payload[at-blockLen:at]).CryptBlocks(last, payload[at:])
	return int(last[blockLen-1]) < len(payload)-blockLen // the pad's length
}

// packet is one of RMCP+.
type packet struct {
	flags    byte // encrypted (80h), authenticated (40h)
	kind     byte // payload type
	session  uint32
	sequence uint32
	payload  []byte
	rest     []byte // what follows the payload
}

// parsePacket reads a packet's frame. It reports false for what is not RMCP+ or is cut off.
func parsePacket(b []byte) (p packet, ok bool) {
	// RMCP version 1.0, its class IPMI and not an acknowledgement; the session's format RMCP+.
	if len(b) < headerLen || b[0] != 0x06 || b[3] != 0x07 || b[4] != 0x06 {
		return p, false
	}
	p = packet{
		flags: b[5] & signed, kind: b[5] &^ signed,
		session: binary.LittleEndian.Uint32(b[6:]), sequence: binary.LittleEndian.Uint32(b[10:]),
	}
	n := int(binary.LittleEndian.Uint16(b[14:]))
	if len(b) < headerLen+n {
		return p, false
	}
	p.payload, p.rest = b[headerLen:headerLen+n], b[headerLen+n:]
	return p, true
}
