package datacenter

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Fault is what is wrong with a BMC or with one machine behind it. The zero value is healthy.
type Fault struct {
	// On a BMC for all it answers, on a machine for that machine's resource and actions; a machine's own fault replaces
	// its BMC's there.

	Delay    time.Duration // every answer waits this long; nothing is done for a client that gives up before
	Slow     time.Duration // every request takes this long, and is done whether its client waits or not
	Status   int           // every answer is this status: 401, 403, 503
	Message  string        // the message id of every error, in the place of the usual one
	Drop     bool          // the connection closes without an answer
	Silent   bool          // no answer, until the client gives up or the fault is replaced
	SlowBody bool          // half an answer, then nothing, until the client gives up or the fault is replaced
	HugeBody bool          // an answer that does not end
	Empty    bool          // 204 No Content to every GET
	Body     string        // every answer to a GET is 200 with this body
	Redirect string        // every answer is a 307 to this URL
	// of a BMC: the collection has so many other systems, each with a resource of many links, and no machine's
	Flood int

	// What the system resource says, and what the machine does, both on a machine and on a BMC for all its machines.

	StaysOn          bool   // ForceOff is accepted with 204 and changes nothing
	StaysPoweringOff bool   // ForceOff is accepted with 204, the machine runs on and says PoweringOff
	PowerWord        string // PowerState is this word
	NoPowerWord      bool   // PowerState is null
	SystemUUID       string // the UUID of another machine
	NoUUID           bool   // UUID is absent
	Serial           string // SerialNumber is this one, perhaps on several systems
	NoSerial         bool   // SerialNumber is empty
	NoAction         bool   // Actions are absent
	// PushPowerButton is among the allowable reset types, in the place of On and ForceOn: it asks a machine that runs
	// to shut down
	PushButton   bool
	NoForceOff   bool   // ForceOff is not among the allowable reset types
	SystemReset  bool   // the action is called #System.Reset, and links are plain strings
	NeedsIfMatch bool   // the resource has an ETag, and resets without it are answered with 428
	Sleep        string // a vendor's AcpiState is this word: S4
	UpdateStatus string // a vendor's UpdateStatus is this word: Suspended
	// the system links a chassis whose PowerState is this word; "true": that of the machine; "none": none
	Chassis       string
	ChassisLinks  string // paths with blanks between, linked before the chassis
	ChassisType   string // in the place of RackMount
	ChassisStatus int    // the chassis' answer is this status
	ChassisShared bool   // the chassis holds another system, too
	ActionStatus  int    // resets are refused with this status, and do nothing
	ActionLost    bool   // resets are done, and the connection closes without an answer

	// On a BMC only.

	HangTLS       bool // connections are accepted and the TLS handshake never ends; open connections are dropped
	SessionStatus int  // POST Sessions answers this status: 403, 409, 429, 500, 501
	NoSessions    bool // the service root links no collection of sessions, and there is none
	ClosedRoot    bool // the service root needs a log-in
	NoLocation    bool // the answer does not name a new session's path
	NoToken       bool // sessions are created, and the answer names no token
	DeadTokens    bool // tokens are handed out and never accepted
	NoBasic       bool // basic authentication is refused, with any password

	NoEvents        bool   // the service root links no event service
	EventsOff       bool   // the event service is there, and not enabled
	StreamURI       string // the stream of events is said to be there; "none": there is none
	StreamStatus    int    // the stream is answered with this status
	StreamType      string // and with this Content-Type
	StreamPacked    bool   // and says that it is packed
	NoFilter        bool   // the stream refuses a $filter with 400
	Mute            bool   // machines' events are not sent
	EventTypes      bool   // subscriptions without EventTypes are refused with 400
	SubscribeStatus int    // subscriptions are answered with this status, and not made
}

// BMC is a Redfish service in front of machines. It is safe for concurrent use.
type BMC struct {
	dc     *DataCenter
	url    string
	server *http.Server

	fingerprint string

	mu       sync.Mutex // guards what follows
	machines []*Machine
	fault    Fault
	healed   chan struct{} // closed when the fault is replaced: stuck answers end
	conns    map[net.Conn]struct{}
	sessions map[string]string // id -> token
	lastID   int
	log      []*Request
	events   events
	changed  chan struct{} // closed when a request arrives or is answered, or a session comes or goes
}

// Request is one request a BMC saw.
type Request struct {
	Method, Path string
	Auth         string // "session", "basic" or "none"
	Password     bool   // it carried user and password, right or wrong
	Status       int    // 0: not answered, or not yet
	At           time.Time
	Machine      string    // that it is about; "" for the BMC's own resources
	Word         string    // the answer's PowerState, or the ResetType that was asked for
	Answered     time.Time // when the answer began; zero: not answered, or not yet
}

// AddBMC starts a BMC for these machines on a port of its own. It panics if the data centre is closed or no port can be
// had.
func (dc *DataCenter) AddBMC(machines ...*Machine) *BMC {
	b := &BMC{
		dc:     dc,
		healed: make(chan struct{}), conns: map[net.Conn]struct{}{}, sessions: map[string]string{},
		changed: make(chan struct{}),
		events:  events{streams: map[chan []byte]struct{}{}, subscriptions: map[string]Subscription{}},
	}
	for _, m := range machines {
		b.Add(m)
	}
	dc.mu.Lock()
	defer dc.mu.Unlock()
	if dc.closed {
		panic("datacenter: AddBMC after Close")
	}
	dc.bmcs = append(dc.bmcs, b)
	if dc.opts.Offline {
		b.url = fmt.Sprintf("https://bmc-%d", len(dc.bmcs))
		return b
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("datacenter: %v", err))
	}
	b.url = "https://" + listener.Addr().String()
	cert := dc.certificate()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // BMCs speak no HTTP/2
	b.server = &http.Server{
		Handler:     b,
		BaseContext: func(net.Listener) context.Context { return dc.ctx },
		ConnState:   b.connState,
		Protocols:   protocols,
		ErrorLog:    log.New(io.Discard, "", 0), // broken handshakes and dropped connections are what tests ask for
		TLSConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			Certificates:       []tls.Certificate{cert},
			GetConfigForClient: b.hang,
		},
	}
	if dc.opts.RSAKeyExchangeOnly {
		b.server.TLSConfig.MaxVersion = tls.VersionTLS12
		b.server.TLSConfig.CipherSuites = []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
	}
	if dc.opts.OtherCiphersOnly { // Go has no DHE; it refuses a handshake without a common suite in the same way
		b.server.TLSConfig.MaxVersion = tls.VersionTLS12
		b.server.TLSConfig.CipherSuites = []uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA}
	}
	if dc.opts.OldTLSOnly {
		b.server.TLSConfig.MinVersion, b.server.TLSConfig.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}
	b.fingerprint = fmt.Sprintf("%x", sha256.Sum256(cert.Certificate[0]))
	dc.serving.Add(1)
	go func() {
		defer dc.serving.Done()
		_ = b.server.ServeTLS(listener, "", "") // ends with Close
	}()
	return b
}

// Add puts the BMC in front of another machine.
func (b *BMC) Add(m *Machine) {
	b.mu.Lock()
	b.machines = append(b.machines, m)
	b.mu.Unlock()
	m.OnChange(b.tell)
}

func (b *BMC) fronted() []*Machine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.machines)
}

// URL returns the BMC's address, https://127.0.0.1:port.
func (b *BMC) URL() string { return b.url }

// Fingerprint returns the SHA-256 of the BMC's certificate, in hexadecimal digits.
func (b *BMC) Fingerprint() string { return b.fingerprint }

// SystemURL returns the address of one machine's resource.
func (b *BMC) SystemURL(m *Machine) string { return b.url + systemPath(m) }

// SetFault replaces the BMC's fault; the zero Fault heals it.
func (b *BMC) SetFault(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
	close(b.healed)
	b.healed = make(chan struct{})
	if f.HangTLS {
		b.dropConnections()
	}
}

// DropConnections closes all connections, as a BMC that restarts does. Sessions stay.
func (b *BMC) DropConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropConnections()
}

func (b *BMC) dropConnections() {
	for c := range b.conns {
		_ = c.Close()
	}
}

// ExpireSessions forgets all sessions: their tokens are answered with 401 from now on.
func (b *BMC) ExpireSessions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
	b.notify()
}

// Sessions returns the number of open sessions.
func (b *BMC) Sessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions)
}

// Requests returns the requests seen so far, the oldest first; the oldest are forgotten when there are very many.
func (b *BMC) Requests() []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Request, len(b.log))
	for i, r := range b.log {
		out[i] = *r
	}
	return out
}

// Count returns how many requests with that method and path were seen.
func (b *BMC) Count(method, path string) int {
	n := 0
	for _, r := range b.Requests() {
		if r.Method == method && r.Path == path {
			n++
		}
	}
	return n
}

// Await blocks until the condition holds, which is looked at after each request and each change of the sessions, or ctx
// ends.
func (b *BMC) Await(ctx context.Context, condition func() bool) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a BMC: %w", ctx.Err())
		}
	}
}

// notify wakes Await. The caller holds mu.
func (b *BMC) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *BMC) currentFault() (f Fault, healed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault, b.healed
}

// hang is called at the start of each TLS handshake.
func (b *BMC) hang(*tls.ClientHelloInfo) (*tls.Config, error) {
	f, healed := b.currentFault()
	if !f.HangTLS {
		return nil, nil
	}
	select {
	case <-healed:
	case <-b.dc.ctx.Done():
	}
	return nil, errors.New("handshake was held")
}

// connState counts connections, so that Close can wait for their goroutines.
func (b *BMC) connState(c net.Conn, s http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s {
	case http.StateNew:
		b.dc.serving.Add(1)
		b.conns[c] = struct{}{}
	case http.StateClosed:
		delete(b.conns, c)
		b.dc.serving.Done()
	}
}

// record puts a request about a machine, or about none, into the log and returns how to add its answer.
func (b *BMC) record(r *http.Request, auth string, m *Machine) func(*answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if limit := b.dc.opts.RequestLog; len(b.log) >= limit {
		b.log = slices.Delete(b.log, 0, limit/2+1)
	}
	_, _, basic := r.BasicAuth()
	entry := &Request{Method: r.Method, Path: r.URL.Path, Auth: auth,
		Password: basic || r.Method == http.MethodPost && r.URL.Path == sessionsPath, At: time.Now()}
	if m != nil {
		entry.Machine = m.name
	}
	b.log = append(b.log, entry)
	b.notify()
	return func(a *answer) {
		b.mu.Lock()
		defer b.mu.Unlock()
		entry.Status, entry.Word, entry.Answered = a.status, a.word, a.at
		b.notify()
	}
}
