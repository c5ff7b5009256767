package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forcefence/forcefence/test/kit"
)

// The device's account; a client that knows them may ask it.
const (
	deviceUser     = "referee"
	devicePassword = "correct horse"
)

// question is one line of the device's own log: what was asked of a machine, and what it said.
type question struct {
	System    string
	Method    string
	At        time.Time // when it came in
	Word      string    // PowerState; "" if none was said
	Code      int       // of HTTP; 0: the connection died
	Delivered time.Time // when the answer was written; zero: never
}

// says is how a device answers one question otherwise than it should. The zero value is the truth.
type says struct {
	Late time.Duration // before the answer
	Code int           // an error instead
	Word string        // another PowerState
	Cut  bool          // the connection dies instead
}

// bmc is a Redfish service in front of all machines, with a log. Off is what a machine's power is, unless a fault says
// otherwise.
type bmc struct {
	url    string
	server *http.Server

	mu       sync.Mutex // guards the rest
	machines map[string]*machine
	log      []question
	fault    func(system string, n int) says // nil: none; n counts the system's questions since it was set
	asked    map[string]int
	hits     int // questions that a fault changed
}

type machine struct {
	uuid  string
	on    bool
	power func(on bool) // what a reset does
}

func startBMC(authority *kit.Authority) (*bmc, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bmc{url: "https://" + l.Addr().String(), machines: map[string]*machine{}, asked: map[string]int{}}
	b.server = &http.Server{Handler: b,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{authority.Server("127.0.0.1").TLS()}},
		ErrorLog:  log.New(io.Discard, "", 0)}
	go func() { _ = b.server.ServeTLS(l, "", "") }() // until Close
	return b, nil
}

// put adds or, with nil, removes a machine.
func (b *bmc) put(name string, m *machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m == nil {
		delete(b.machines, name)
		return
	}
	b.machines[name] = m
}

func (b *bmc) set(name string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.machines[name]; m != nil {
		m.on = on
	}
}

func (b *bmc) perturb(fault func(system string, n int) says) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
	clear(b.asked)
}

// cut hands over the log and begins a new one.
func (b *bmc) cut() (log []question, hits int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log, hits = b.log, b.hits
	b.log, b.hits = nil, 0
	return log, hits
}

const systems = "/redfish/v1/Systems"

func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	path := strings.TrimSuffix(r.URL.Path, "/")
	user, password, _ := r.BasicAuth()
	switch {
	case path == "/redfish/v1":
		reply(w, map[string]any{"@odata.id": "/redfish/v1/", "Id": "RootService", "Name": "Root",
			"RedfishVersion": "1.15.0", "Systems": link(systems), "Links": map[string]any{}})
		return
	case user != deviceUser || password != devicePassword:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case path == systems:
		b.mu.Lock()
		members := []any{}
		for name := range b.machines {
			members = append(members, link(systems+"/"+name))
		}
		b.mu.Unlock()
		reply(w, map[string]any{"@odata.id": systems, "Name": "Systems", "Members@odata.count": len(members),
			"Members": members})
		return
	}
	name, action, _ := strings.Cut(strings.TrimPrefix(path, systems+"/"), "/")
	b.mu.Lock()
	m, fault := b.machines[name], b.fault
	var f says
	if m != nil && fault != nil {
		b.asked[name]++
		if f = fault(name, b.asked[name]); f != (says{}) {
			b.hits++
		}
	}
	b.mu.Unlock()
	if m == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	q := question{System: name, Method: r.Method, At: at}
	if f.Late > 0 {
		select {
		case <-time.After(f.Late):
		case <-r.Context().Done():
			f.Cut = true
		}
	}
	switch {
	case f.Cut:
		b.note(q)
		panic(http.ErrAbortHandler)
	case f.Code != 0:
		q.Code = f.Code
		b.note(q)
		w.WriteHeader(f.Code)
	case action != "" && r.Method == http.MethodPost:
		var body struct{ ResetType string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		q.Word, q.Code, q.Delivered = body.ResetType, http.StatusNoContent, time.Now()
		b.note(q)
		m.power(body.ResetType == "On")
		w.WriteHeader(http.StatusNoContent)
	default:
		b.mu.Lock()
		on := m.on
		b.mu.Unlock()
		q.Code, q.Word = http.StatusOK, map[bool]string{true: "On", false: "Off"}[on]
		if f.Word != "" {
			q.Word = f.Word
		}
		q.Delivered = time.Now()
		b.note(q)
		reply(w, map[string]any{
			"@odata.id": systems + "/" + name, "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "Id": name,
			"Name": name, "UUID": m.uuid,
			"PowerState": q.Word, "Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
				"target":                            systems + "/" + name + "/Actions/ComputerSystem.Reset",
				"ResetType@Redfish.AllowableValues": []string{"On", "ForceOff"},
			}},
		})
	}
}

func (b *bmc) note(q question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, q)
}

func link(path string) map[string]any { return map[string]any{"@odata.id": path} }

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client's matter
}
