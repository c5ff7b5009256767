package ipmi

import (
	"context"
	"crypto/aes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/forcefence/forcefence/providers"
)

// suite is a cipher suite: the algorithms that prove who sent a packet. Its payloads are encrypted by AES-CBC-128.
type suite struct {
	auth      types.AuthAlg
	integrity types.IntegrityAlg
}

// suites are the ones whose packets prove who sent them; all others are refused. With suite 0 anybody in the network
// may say off. Those without an integrity algorithm prove the log-in only, and RC4 and MD5 prove too little.
var suites = map[int]suite{
	3:  {types.AuthAlg_HMAC_SHA1, types.IntegrityAlg_HMAC_SHA1_96},
	17: {types.AuthAlg_HMAC_SHA256, types.IntegrityAlg_HMAC_SHA256_128},
}

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

const (
	// slowest is the longest round trip that is supported.
	slowest = time.Second
	// lastNumber is the highest number of a question; 0 is not used.
	lastNumber = 63
)

// sendTiming holds the minimum times to wait for an answer before a packet is sent again: a question, a message of the
// log-in, and a command that acts. open is the time before the log-in starts again. A repeated log-in message may use
// up another of the BMC's sessions.
type sendTiming struct{ question, login, act, open time.Duration }

// defaultTiming is the sendTiming for BMCs.
var defaultTiming = sendTiming{
	question: 200 * time.Millisecond, login: 500 * time.Millisecond, act: time.Second, open: 1500 * time.Millisecond,
}

// credentials are the user, password and key of a log-in.
type credentials struct {
	user     string
	password providers.Secret
	kg       []byte // the BMC's own key; nil: none
	level    types.PrivilegeLevel
}

// session is a session with a BMC (IPMI 2.0, 13.15), from its log-in on. It accepts only what the BMC signed in this
// session and was never seen before. It is for one caller at a time.
type session struct {
	conn     net.Conn
	suite    suite
	timing   sendTiming
	rejected func(why string) // called with the reason for each dropped packet of an open session

	console, bmc uint32 // what each side calls the session
	k1, k2       []byte // of an open session

	sent, seen uint32    // sequence numbers of the last packet that was sent, and of the last that was believed
	lastHeard  time.Time // when the last believed packet came, or the session was opened
	number     byte      // of the last question
	spent      byte      // the first number with a pending answer, which is not used again. 0: none

	rtt      time.Duration // how long the BMC took for its last answer, slowest at most
	patience time.Duration // how long it may take for one
}

// newID returns this side's session ID, which cannot be guessed. 0 is no session.
func newID() uint32 {
	for {
		if id := binary.LittleEndian.Uint32(crypto.RandomBytes(4)); id != 0 {
			return id
		}
	}
}

// errSilent means that no answer came.
var errSilent = providers.WithClass(providers.ErrUnreachable, errors.New("no answer"))

// exchangePackets sends what pack returns, and repeats it while no answer comes. It waits for wait, or twice the BMC's
// round trip if that is longer, and doubles the wait each time. accept reports whether a datagram is the answer; its
// error ends exchangePackets. It blocks until ctx ends, or for patience without an answer: errSilent.
func (s *session) exchangePackets(ctx context.Context, wait, patience time.Duration,
	pack func() ([]byte, error), accept func([]byte) (bool, error)) error {
	wait, patience = max(wait, 2*s.rtt), s.extendPatience(patience)
	ended := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !undo() {
			<-ended // else the deadline may be that of the next exchange
		}
	}()
	end := time.Now().Add(patience)
	buffer := make([]byte, 4096)
	for ; ; wait *= 2 {
		b, err := pack()
		if err != nil {
			return err
		}
		if _, err := s.conn.Write(b); err != nil {
			return err
		}
		until := time.Now().Add(wait)
		if end.Before(until) {
			until = end
		}
		if err := s.conn.SetReadDeadline(until); err != nil {
			return err
		}
		for {
			if ctx.Err() != nil { // after the deadline is set, which would undo ctx's
				return ctx.Err()
			}
			n, err := s.conn.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if ok, err := accept(buffer[:n]); ok || err != nil {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !time.Now().Before(end):
			return errSilent
		}
	}
}

// extendPatience is a patience that allows an answer to the second attempt on a slow network.
func (s *session) extendPatience(d time.Duration) time.Duration { return max(d, 4*s.rtt) }

// The errors of a log-in that is refused.
var (
	errRefused = errors.New("refused")
	errLate    = errors.New("refused at the end")
	errKg      = fmt.Errorf("%w: the BMC has this password, but a BMC key of its own (Kg): set kgFile", errRefused)
	errOtherKg = fmt.Errorf("%w: the BMC has this password, but another BMC key (Kg) than kgFile, or none",
		errRefused)
	errNoSuite    = errors.New("no such cipher suite")
	errOtherSuite = providers.WithClass(providers.ErrUntrusted,
		errors.New("the BMC answered with other algorithms than those of the requested cipher suite"))
)

// logIn opens the session. The BMC proves in RAKP message 2 that it knows the password, before this side sends its
// proof. RAKP message 4 may be lost, and many BMCs do not send it twice: then the first signed answer shows that the
// session is open.
func (s *session) logIn(ctx context.Context, a credentials, patience time.Duration) error {
	if err := s.sendLoginStep(ctx, patience, payloadOpenRequest, s.packOpen, s.acceptOpen); err != nil {
		return explainRefusal("opening a session", err)
	}
	// The data that both sides prove to know, beside the password.
	var random1, random2, guid [16]byte
	kuid := crypto.PadPassword20([]byte(a.password.Reveal()))
	rakp1 := rmcpplus.RAKPMessage1{
		ManagedSystemSessionID: s.bmc, NameOnlyLookup: true, RequestedMaximumPrivilegeLevel: a.level,
		UsernameLength: uint8(len(a.user)), Username: []byte(a.user),
	}
	err := s.sendLoginStep(ctx, patience, payloadRAKP1, func(tag byte) []byte {
		copy(random1[:], crypto.RandomBytes(len(random1)))
		rakp1.MessageTag, rakp1.RemoteConsoleRandomNumber = tag, random1
		return rakp1.Pack()
	}, func(m []byte) (bool, error) {
		rakp2 := rmcpplus.RAKPMessage2{AuthAlg: s.suite.auth}
		if rakp2.Unpack(m) != nil {
			return false, nil
		}
		random2, guid = rakp2.ManagedSystemRandomNumber, rakp2.ManagedSystemGUID
		proof, err := crypto.RAKP2AuthCode(s.suite.auth, s.console, s.bmc, random1[:], random2[:], guid[:],
			rakp1.Role(), a.user, kuid)
		if err == nil && !crypto.Equal(proof, rakp2.KeyExchangeAuthenticationCode) {
			err = fmt.Errorf("%w: the BMC has a different password", errRefused)
		}
		return true, err
	})
	if err != nil {
		return explainRefusal("logging in", err)
	}
	key, other := a.kg, errOtherKg // two-key log-in
	if key == nil {
		key, other = kuid, errKg
	}
	sik, k1, k2, err := crypto.DeriveSessionKeys(s.suite.auth, random1[:], random2[:], rakp1.Role(), a.user, key)
	if err != nil {
		return err
	}
	s.k1, s.k2, s.lastHeard = k1, k2, time.Now() // from the next message on the BMC may hold the session open
	proof, err := crypto.RAKP3AuthCode(s.suite.auth, random2[:], s.console, rakp1.Role(), a.user, kuid)
	if err != nil {
		return err
	}
	err = s.sendLoginStep(ctx, patience, payloadRAKP3, func(tag byte) []byte {
		rakp3 := rmcpplus.RAKPMessage3{
			MessageTag:                    tag,
			ManagedSystemSessionID:        s.bmc,
			KeyExchangeAuthenticationCode: proof,
		}
		return rakp3.Pack()
	}, func(m []byte) (bool, error) {
		rakp4 := rmcpplus.RAKPMessage4{AuthAlg: s.suite.auth}
		if rakp4.Unpack(m) != nil {
			return false, nil
		}
		proof, err := crypto.RAKP4ICV(s.suite.auth, random1[:], s.bmc, guid[:], sik)
		if err == nil && !crypto.Equal(proof, rakp4.IntegrityCheckValue) {
			err = other
		}
		return true, err
	})
	if err != nil && !errors.Is(err, errSilent) && ctx.Err() == nil {
		s.k1, s.k2 = nil, nil
		return refusedLate(err)
	}
	return ctx.Err()
}

// sendLoginStep sends one message of the log-in and passes its answer to accept. An answer has this side's session ID
// and the tag of a message that was sent. Both are random, so an attacker who does not see the packets cannot refuse
// anything. A BMC makes another random number for each RAKP message, so only the last one sent can be answered. Each
// request for a session can be answered.
func (s *session) sendLoginStep(ctx context.Context, patience time.Duration, request byte,
	pack func(tag byte) []byte, accept func(m []byte) (bool, error)) error {
	first := crypto.RandomBytes(1)[0]
	var sent []time.Time
	return s.exchangePackets(ctx, s.timing.login, patience, func() ([]byte, error) {
		tag := first + byte(len(sent))
		sent = append(sent, time.Now())
		return newFrame(request, 0, 0, pack(tag)), nil
	}, func(b []byte) (bool, error) {
		p, ok := parsePacket(b)
		m := p.payload
		if !ok || p.kind != request+1 || p.flags != 0 || p.session != 0 || len(m) < 8 ||
			binary.LittleEndian.Uint32(m[4:]) != s.console {
			return false, nil
		}
		n := int(m[0] - first)
		if n >= len(sent) || n < len(sent)-1 && request != payloadOpenRequest {
			return false, nil
		}
		s.rtt = min(time.Since(sent[n]), slowest)
		switch status := types.RmcpStatusCode(m[1]); {
		case status == types.RmcpStatusCodeNoErrors:
			return accept(m)
		case request == payloadRAKP3 && len(sent) > 1:
			return false, nil // the BMC may have taken the first, and find the second wrong
		default:
			return false, types.NewRmcpStatusError(status)
		}
	})
}

func (s *session) packOpen(tag byte) []byte {
	r := rmcpplus.OpenSessionRequest{MessageTag: tag, RemoteConsoleSessionID: s.console}
	r.AuthenticationPayload, r.IntegrityPayload, r.ConfidentialityPayload =
		rmcpplus.NewAlgorithmPayloads(s.suite.auth, s.suite.integrity, types.CryptAlg_AES_CBC_128)
	return r.Pack()
}

// acceptOpen checks that the BMC accepts the requested algorithms: no proof covers them.
func (s *session) acceptOpen(m []byte) (bool, error) {
	var r rmcpplus.OpenSessionResponse
	if r.Unpack(m) != nil || r.ManagedSystemSessionID == 0 {
		return false, nil
	}
	if types.AuthAlg(r.AuthAlg) != s.suite.auth || types.IntegrityAlg(r.IntegrityAlg) != s.suite.integrity ||
		types.CryptAlg(r.CryptAlg) != types.CryptAlg_AES_CBC_128 {
		return false, errOtherSuite
	}
	s.bmc = r.ManagedSystemSessionID
	return true, nil
}

// explainRefusal returns why a BMC opened no session. Nothing proves the reason, so it counts as no answer. A wrong
// password shows before it is sent: the BMC's own proof is made with another.
func explainRefusal(act string, err error) error {
	var status *types.RmcpStatusError
	if !errors.As(err, &status) {
		return fmt.Errorf("%s: %w", act, err)
	}
	text := fmt.Errorf("%s: status %#02x (%s)", act, uint8(status.StatusCode()), status.StatusCode())
	switch status.StatusCode() {
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeInvalidNameLength, types.RmcpStatusCodeInvalidRole,
		types.RmcpStatusCodeUnauthorizedRoleOfPriLevel, types.RmcpStatusCodeUnauthorizedGUID:
		return fmt.Errorf("%w: %w", errRefused, text)
	case types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg,
		types.RmcpStatusCodeInvalidConfidentAlg, types.RmcpStatusCodeNoMatchingAuthPayload,
		types.RmcpStatusCodeNoMatchingIntegrityPayload, types.RmcpStatusCodeNoCipherSuiteMatch:
		return providers.WithClass(providers.ErrUnreachable, fmt.Errorf("%w: %w (see cipherSuites)", errNoSuite, text))
	}
	return providers.WithClass(providers.ErrUnreachable, text) // no free session, or it lost ours
}

// refusedLate returns the error of a log-in that failed after the BMC had proved that it knows the password.
func refusedLate(err error) error {
	if status := (*types.RmcpStatusError)(nil); errors.As(err, &status) {
		return providers.WithClass(providers.ErrUnreachable,
			fmt.Errorf("logging in: %w: status %#02x (%s)", errLate, uint8(status.StatusCode()), status.StatusCode()))
	}
	return fmt.Errorf("logging in: %w", err)
}

// sendQuery sends one question and reads its answer. A refusal is a *types.ResponseError.
func (s *session) sendQuery(ctx context.Context, q types.Request, into types.Response) error {
	data, err := s.sendCommand(ctx, q.Command(), q.Pack(), nil)
	if err != nil {
		return err
	}
	return into.Unpack(data)
}

// sendCommand sends one command in an open session, and returns what follows the completion code. maySend is called
// before each attempt; its error is a stopError, and ends the command. A nil maySend always allows it.
//
// IPMI numbers questions from 1 to 63 only. A number that was sent more than once, or was not answered, may be answered
// late. So it is not used again in this session, which ends before (errSpent).
func (s *session) sendCommand(ctx context.Context, c types.Command, data []byte,
	maySend func() error) (answer []byte, err error) {
	next := s.number%lastNumber + 1
	if next == s.spent {
		return nil, errSpent
	}
	s.number = next
	var sent []time.Time
	defer func() {
		if s.spent == 0 && (len(sent) > 1 || err != nil && completionCode(err) == 0) {
			s.spent = s.number
		}
	}()
	wait := s.timing.question
	if maySend != nil {
		wait = s.timing.act
	}
	q := types.IPMIRequest{
		ResponderAddr:     types.BMC_SA,
		NetFn:             c.NetFn,
		RequesterAddr:     types.RemoteConsole_SWID,
		RequesterSequence: s.number,
		Command:           c.ID, CommandData: data,
	}
	q.ComputeChecksum()
	err = s.exchangePackets(ctx, wait, s.patience, func() ([]byte, error) {
		if maySend != nil {
			if err := maySend(); err != nil {
				return nil, stopError{err}
			}
		}
		sent = append(sent, time.Now())
		return s.sealMessage(q.Pack())
	}, func(b []byte) (bool, error) {
		message, why := s.unsealMessage(b)
		if why != "" {
			s.rejected(why)
		}
		var a types.IPMIResponse
		if message == nil || a.Unpack(message) != nil ||
			a.RequesterSequence != s.number || a.NetFn != c.NetFn|1 || a.Command != c.ID {
			return false, nil
		}
		if len(sent) == 1 { // else it is unknown which was answered
			s.rtt = min(time.Since(sent[0]), slowest)
		}
		if code := types.CompletionCode(a.CompletionCode); code != types.CodeOK {
			return true, types.NewResponseError(code, types.StrCC(c, a.CompletionCode))
		}
		answer = a.Data
		return true, nil
	})
	return answer, err
}

var errSpent = providers.WithClass(providers.ErrUnreachable,
	errors.New("the session has no unused sequence numbers left"))

// stopError is the error of a command that may not be sent, or not again: a new session would not help.
type stopError struct{ error }

func (e stopError) Unwrap() error { return e.error }

// sealMessage encrypts and signs a message (IPMI 2.0, 13.28.4 and 13.29). Each call makes another packet, because BMCs
// drop repeated ones.
func (s *session) sealMessage(message []byte) ([]byte, error) {
	payload, err := crypto.EncryptAESPayload(message, s.k2, crypto.RandomBytes(blockLen))
	if err != nil {
		return nil, err
	}
	s.sent++
	b := newFrame(signed|payloadIPMI, s.bmc, s.sent, payload)
	pad := types.IntegrityPadLen(headerLen-4, len(payload))
	for range pad {
		b = append(b, 0xff)
	}
	b = append(b, byte(pad), 7)
	code, err := crypto.SessionIntegrityAuthCode(s.suite.integrity, b[4:], s.k1, "")
	return append(b, code...), err
}

// unsealMessage returns the message of a packet of the session that the BMC signed and that was never seen before. For
// any other packet it returns nil, and why names what is wrong; "" means a late answer to the log-in, which is no
// attack.
func (s *session) unsealMessage(b []byte) (message []byte, why string) {
	p, ok := parsePacket(b)
	switch {
	case ok && p.session == 0 && p.kind >= payloadOpenResponse:
		return nil, ""
	case !ok || p.kind != payloadIPMI || p.flags != signed || p.session != s.console:
		return nil, "not a signed packet of the session"
	}
	n, _ := crypto.IntegrityAuthCodeLen(s.suite.integrity)
	if len(p.rest) < 2+n {
		return nil, "no signature"
	}
	end := len(b) - n
	code, err := crypto.SessionIntegrityAuthCode(s.suite.integrity, b[4:end], s.k1, "")
	switch {
	case err != nil || !crypto.Equal(code, b[end:]):
		return nil, "wrong signature"
	case p.sequence <= s.seen:
		return nil, "seen before, or late"
	case len(p.payload)%blockLen != 0: // the library would go out of its bounds
		return nil, "its payload cannot be decrypted"
	}
	if message, err = crypto.DecryptAESPayload(p.payload, s.k2); err != nil {
		return nil, "its payload cannot be decrypted"
	}
	s.seen, s.lastHeard = p.sequence, time.Now()
	return message, ""
}

// closeSession ends the session and its connection.
func (s *session) closeSession(ctx context.Context) error {
	defer s.conn.Close()
	if s.k1 == nil {
		return nil
	}
	s.patience, s.spent = closeFor, 0 // any answer will do
	return s.sendQuery(ctx, &app.CloseSessionRequest{SessionID: s.bmc}, &app.CloseSessionResponse{})
}

// packet is a packet of RMCP+.
type packet struct {
	flags    byte // encrypted (80h), authenticated (40h)
	kind     byte // payload type
	session  uint32
	sequence uint32
	payload  []byte
	rest     []byte // what follows the payload
}

// newFrame returns a packet up to the end of its payload.
func newFrame(kind byte, session, sequence uint32, payload []byte) []byte {
	b := []byte{6, 0, 0xff, 7, 6, kind}
	b = binary.LittleEndian.AppendUint32(b, session)
	b = binary.LittleEndian.AppendUint32(b, sequence)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}

// parsePacket parses a packet's frame. It returns false for a packet that is not RMCP+ or is cut off.
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
