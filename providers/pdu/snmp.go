package pdu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// engine is what authenticated answers showed about the SNMP engine at an address. The zero value is nothing.
type engine struct {
	id          string
	boots, time uint32    // as it reported last
	at          time.Time // when it did
}

// window is how far an engine's time may fall behind an earlier answer of its own (RFC 3414, 3.2, 7 b).
const window = 150

// timeAt returns the engine's time at t.
func (e engine) timeAt(t time.Time) uint32 {
	passed := max(t.Sub(e.at), 0) / time.Second
	return uint32(min(int64(e.time)+int64(passed), math.MaxInt32)) // #nosec G115 -- within bounds
}

// isReplay reports whether the engine has sent a later message before, which gosnmp does not check.
func (e engine) isReplay(boots, secs uint32, t time.Time) bool {
	return boots == math.MaxInt32 || boots < e.boots || boots == e.boots && int64(secs)+window < int64(e.timeAt(t))
}

// knownEngine returns the engine that may answer at an address.
func (p *Provider) knownEngine(address string) engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.strips[address]; e.id != "" {
		return e
	}
	host, _ := splitAddress(address)
	// an engine of a host without a port is that of any port
	for _, name := range []string{address, bracketHost(host)} {
		if id := p.pinned[name]; id != "" {
			return engine{id: id, at: p.opts.Now()}
		}
	}
	return engine{}
}

// bracketHost returns a host as an address writes it.
func bracketHost(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// rememberEngine stores the engine of an authenticated answer. Of two at a time the later one remains.
func (p *Provider) rememberEngine(address string, e engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.strips[address]
	if had.id != "" && (e.boots < had.boots || e.boots == had.boots && e.timeAt(e.at) < had.timeAt(e.at)) {
		return
	}
	p.strips[address] = e
}

// retryEvery is the time after which an unanswered question is sent again. A command is sent once.
const retryEvery = time.Second

// exchangeMessage sends one question or command to an outlet's strip and returns the answer's values, in the order of
// asked. It has a client and a socket of its own: gosnmp's client is not for concurrent use, and a new port cannot be
// guessed. It returns when ctx ends at the latest.
func (p *Provider) exchangeMessage(ctx context.Context, at outlet, kind gosnmp.PDUType,
	asked []gosnmp.SnmpPDU) ([]gosnmp.SnmpPDU, error) {
	who, err := p.readCredentials(at.owner)
	if err != nil {
		return nil, err
	}
	if err := p.refusals.CheckRefused(at.accountName(), who.sum, p.opts.Now()); err != nil {
		return nil, err
	}
	l, client := p.newClient(ctx, at.address, who)
	if err := client.Connect(); err != nil {
		return nil, socketError(err)
	}
	socket := client.Conn
	l.Conn, client.Conn = socket, l
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })() // gosnmp looks at deadlines alone
	defer client.Close()

	var answer *gosnmp.SnmpPacket
	client.Timeout, client.Retries = retryEvery, int(remote.Backstop/retryEvery)
	switch kind {
	case gosnmp.SetRequest:
		client.Timeout, client.Retries = 2*remote.Backstop, 0 // ctx ends before
		l.maySend = func() error { return remote.MaySend(ctx) }
		answer, err = client.Set(asked)
	case gosnmp.GetNextRequest:
		answer, err = client.GetNext(oidNames(asked))
	default:
		answer, err = client.Get(oidNames(asked))
	}
	switch {
	case l.refusal != "":
		return nil, p.refusedError(at, who.sum, l.refusal)
	case l.failure != nil:
		return nil, socketError(l.failure)
	case err != nil:
		return nil, p.explainFailure(at, who.sum, err)
	}
	if err := p.verifyAnswer(at.address, l, answer, kind, asked); err != nil {
		return nil, err
	}
	return answer.Variables, errorStatus(answer)
}

func oidNames(of []gosnmp.SnmpPDU) []string {
	names := make([]string, len(of))
	for i, v := range of {
		names[i] = v.Name
	}
	return names
}

// newClient returns a client for one exchange, and the link through which it listens.
func (p *Provider) newClient(ctx context.Context, address string, who login) (*link, *gosnmp.GoSNMP) {
	host, port := splitAddress(address)
	c := &gosnmp.GoSNMP{
		Target: host, Port: port, Transport: "udp", Context: ctx, Timeout: remote.Backstop, MaxOids: gosnmp.MaxOids,
	}
	if p.cfg.Version == v2c {
		c.Version, c.Community = gosnmp.Version2c, who.auth.Reveal()
		return &link{version: 1, community: c.Community}, c
	}
	e := p.knownEngine(address)
	usm := &gosnmp.UsmSecurityParameters{
		UserName:               who.user,
		AuthenticationProtocol: authentications[p.cfg.Authentication], AuthenticationPassphrase: who.auth.Reveal(),
		PrivacyProtocol: privacies[p.cfg.Privacy], PrivacyPassphrase: who.priv.Reveal(),
	}
	if e.id != "" {
		// A known engine is not asked for its identity: that answer is not authenticated, so anybody could forge it.
		usm.AuthoritativeEngineID, c.ContextEngineID = e.id, e.id
		usm.AuthoritativeEngineBoots, usm.AuthoritativeEngineTime = e.boots, e.timeAt(p.opts.Now())
	}
	c.Version, c.SecurityModel, c.MsgFlags, c.SecurityParameters = gosnmp.Version3, gosnmp.UserSecurityModel,
		gosnmp.AuthPriv, usm
	return &link{version: 3, engine: e.id}, c
}

// verifyAnswer checks an answer that gosnmp has authenticated. gosnmp v1.47 accepts an answer that is not encrypted
// though the question was, one by another engine whose user has the same password, one with request id 0 for any
// question, any kind of PDU, and old ones. At the end verifyAnswer remembers the engine.
func (p *Provider) verifyAnswer(address string, l *link, answer *gosnmp.SnmpPacket, kind gosnmp.PDUType,
	asked []gosnmp.SnmpPDU) error {
	switch {
	case answer.PDUType != gosnmp.GetResponse:
		return fmt.Errorf("the answer is not a response (%s)", answer.PDUType)
	case answer.RequestID == 0:
		return errors.New("the answer has no request ID")
	case len(answer.Variables) != len(asked) && answer.Error == gosnmp.NoError:
		return errors.New("the answer has the wrong number of values")
	}
	for i, v := range answer.Variables {
		if kind != gosnmp.GetNextRequest && i < len(asked) && v.Name != asked[i].Name {
			return errors.New("the answer is about another object")
		}
	}
	if p.cfg.Version == v2c {
		if answer.Version != gosnmp.Version2c || answer.Community != l.community {
			return errors.New("the answer has another community")
		}
		return nil
	}
	usm, ok := answer.SecurityParameters.(*gosnmp.UsmSecurityParameters)
	switch {
	case !ok || answer.Version != gosnmp.Version3:
		return untrustedError("the answer has another version of SNMP")
	case answer.MsgFlags&gosnmp.AuthPriv != gosnmp.AuthPriv:
		return untrustedError("the answer is not authenticated and encrypted, as the question was")
	case usm.AuthoritativeEngineID != l.engine:
		return untrustedError(
			fmt.Sprintf("the answer came from engine %x, not from %x", usm.AuthoritativeEngineID, l.engine))
	}
	now := p.opts.Now()
	had := p.knownEngine(address)
	if had.id != "" && had.id != usm.AuthoritativeEngineID {
		return untrustedError(
			fmt.Sprintf("the answer came from engine %x, not from %x", usm.AuthoritativeEngineID, had.id))
	}
	if had.isReplay(usm.AuthoritativeEngineBoots, usm.AuthoritativeEngineTime, now) {
		return errors.New("the answer is older than an earlier answer of the strip")
	}
	p.rememberEngine(address,
		engine{usm.AuthoritativeEngineID, usm.AuthoritativeEngineBoots, usm.AuthoritativeEngineTime, now})
	return nil
}

func untrustedError(text string) error {
	return providers.WithClass(providers.ErrUntrusted, errors.New(text))
}

// errorStatus returns the class of an answer in which the strip refuses, or has no such object.
func errorStatus(answer *gosnmp.SnmpPacket) error {
	class := providers.ErrPermanent
	switch answer.Error {
	case gosnmp.NoError:
		return nil
	case gosnmp.NoAccess, gosnmp.AuthorizationError, gosnmp.NotWritable, gosnmp.ReadOnly:
		class = providers.ErrDenied
	case gosnmp.NoSuchName, gosnmp.NoCreation, gosnmp.InconsistentName:
		class = providers.ErrNotFound
	case gosnmp.GenErr, gosnmp.ResourceUnavailable, gosnmp.CommitFailed, gosnmp.UndoFailed, gosnmp.InconsistentValue:
		class = providers.ErrUnreachable
	}
	return providers.WithClass(class, fmt.Errorf("the strip answered %s", answer.Error))
}

// explainFailure returns why gosnmp has no answer.
func (p *Provider) explainFailure(at outlet, sum remote.CredentialHash, err error) error {
	for text, of := range map[string]error{
		"unknown user":               gosnmp.ErrUnknownUsername,
		"wrong digest":               gosnmp.ErrWrongDigest,
		"decryption error":           gosnmp.ErrDecryption,
		"unsupported security level": gosnmp.ErrUnknownSecurityLevel,
	} {
		if errors.Is(err, of) {
			return p.refusedError(at, sum, text)
		}
	}
	return socketError(err)
}

// refusedError returns the error of a strip that refuses the credentials, which are not sent again for a while, because
// a strip may lock the account. The report is not authenticated: its sender could as well have dropped the
// question.
func (p *Provider) refusedError(at outlet, sum remote.CredentialHash, text string) error {
	if text == unknownEngine {
		return untrustedError("another SNMP engine answers there than before, or than engines names; " +
			"if the strip was replaced, write the new engine's ID under engines, or restart the controller")
	}
	return p.refusals.RememberDenied(at.accountName(), p.cfg.PasswordPlace(), sum, p.opts.Now(), errors.New(text))
}

// socketError removes the address from a network error, and the stack from gosnmp's error about a panic of its own.
func socketError(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, providers.ErrNotSent):
		return err
	case errors.As(err, &op) && op.Err != nil:
		return op.Err
	case strings.HasPrefix(err.Error(), "recover:"):
		return errors.New("the answer cannot be read")
	}
	return err
}

// link is a socket that skips what cannot be an answer to what was sent through it, and stops at a refusal. gosnmp
// would end a call at the first message that it cannot read or authenticate. It is for one goroutine.
type link struct {
	net.Conn
	version   int64
	community string
	engine    string           // the engine that is asked; "" while it is not known
	sent      map[int64]string // the messages that were sent, by id, and the engine that each named
	refusal   string           // what the strip reported instead of an answer
	failure   error            // the socket's, or maySend's: waiting does not help
	maySend   func() error     // asked before each command is sent; nil: a question needs no permission
}

var errRefused = errors.New("refused")

// stopCause is why the link stops sending and reading.
func (l *link) stopCause() error {
	if l.refusal != "" {
		return errRefused
	}
	return l.failure
}

// Write sends a message.
func (l *link) Write(b []byte) (int, error) {
	if err := l.stopCause(); err != nil {
		return 0, err
	}
	h, ok := parseHeader(b)
	if !ok {
		return 0, errors.New("the question cannot be written")
	}
	if l.sent == nil {
		l.sent = map[int64]string{}
	}
	if l.maySend != nil && (l.version != 3 || h.engine != "") { // without an engine it is the question who the strip is
		if l.failure = l.maySend(); l.failure != nil {
			return 0, l.failure
		}
	}
	l.sent[h.id] = h.engine
	if l.version == 3 && h.engine != "" {
		l.engine = h.engine
	}
	return l.Conn.Write(b)
}

// Read returns the next message that may be an answer.
func (l *link) Read(b []byte) (int, error) {
	for l.stopCause() == nil {
		n, err := l.Conn.Read(b)
		if err != nil {
			if wait := net.Error(nil); !errors.As(err, &wait) || !wait.Timeout() {
				l.failure = err
			}
			return n, err
		}
		h, ok := parseHeader(b[:n])
		named, asked := l.sent[h.id]
		switch {
		case !ok || h.version != l.version || !asked:
			continue
		case l.version == 1 && (h.pdu != tagResponse || h.id == 0):
			continue
		case l.version == 3 && l.engine != "" &&
			h.flags&byte(gosnmp.AuthPriv) == 0: // not authenticated: no answer, a report at most
			// without a named engine it reports its engine again: the question was sent twice, and the strip is slow
			if named != "" {
				l.refusal = refusals[h.reported]
			}
			continue
		}
		return n, nil
	}
	return 0, l.stopCause()
}

const unknownEngine = "unknown engine"

// refusals are USM's counters whose report means that the question was not accepted (RFC 3414, 3.2), in wire format:
// 1.3.6.1.6.3.15.1.1.x.0. gosnmp handles the one for messages outside of the time window, which is authenticated.
var refusals = map[string]string{
	"\x2b\x06\x01\x06\x03\x0f\x01\x01\x01\x00": "unsupported security level",
	"\x2b\x06\x01\x06\x03\x0f\x01\x01\x03\x00": "unknown user",
	"\x2b\x06\x01\x06\x03\x0f\x01\x01\x04\x00": unknownEngine,
	"\x2b\x06\x01\x06\x03\x0f\x01\x01\x05\x00": "wrong digest",
	"\x2b\x06\x01\x06\x03\x0f\x01\x01\x06\x00": "decryption error",
}
