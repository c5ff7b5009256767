package pdu_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/pdu"
)

// agent answers questions about outlets that are off, as a strip that has the passwords. What is wrong with it, edit
// does.
type agent struct {
	t              testing.TB
	engine         string
	boots, seconds uint32
	user           string
	password       string
	edit           func(question, answer *gosnmp.SnmpPacket) // nil: nothing
	editNext       func(answer *gosnmp.SnmpPacket)           // the same of answers to GetNext
	after          func(message []byte) []byte               // nil: nothing
}

const engineA, engineB = "\x80\x00\x4f\xb8\x05stripA", "\x80\x00\x4f\xb8\x05stripB"

func (a *agent) usm(engine string) *gosnmp.UsmSecurityParameters {
	u := &gosnmp.UsmSecurityParameters{
		AuthoritativeEngineID: engine, AuthoritativeEngineBoots: a.boots, AuthoritativeEngineTime: a.seconds,
		UserName:               a.user,
		AuthenticationProtocol: gosnmp.SHA256, AuthenticationPassphrase: a.password, PrivacyProtocol: gosnmp.AES,
		PrivacyPassphrase: privacy,
	}
	must(a.t, u.InitSecurityKeys())
	return u
}

// off are the values of a question's outlets: off, and nothing under way.
func off(question *gosnmp.SnmpPacket) []gosnmp.SnmpPDU {
	var out []gosnmp.SnmpPDU
	for _, v := range question.Variables {
		value := 1
		if strings.HasPrefix(v.Name, ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.6.") {
			value = 2
		}
		out = append(out, gosnmp.SnmpPDU{Name: v.Name, Type: gosnmp.Integer, Value: value})
	}
	return out
}

// handle is the agent as the handler of a wire. It reports its engine in the clear to any client.
func (a *agent) handle(to asker, question []byte) {
	for _, b := range a.answers(question) {
		to.answer(b)
	}
}

func (a *agent) answers(message []byte) [][]byte {
	decoder := &gosnmp.GoSNMP{Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel,
		MsgFlags: gosnmp.AuthPriv, SecurityParameters: a.usm(a.engine)}
	if versionAt := 4 + max(int(message[1])-0x80, 0); message[versionAt] == 1 {
		decoder = &gosnmp.GoSNMP{Version: gosnmp.Version2c}
	}
	question, err := decoder.SnmpDecodePacket(append([]byte(nil), message...))
	answer := &gosnmp.SnmpPacket{
		Version: question.Version, MsgFlags: gosnmp.AuthPriv, SecurityModel: gosnmp.UserSecurityModel,
		Community:       question.Community,
		ContextEngineID: a.engine, PDUType: gosnmp.GetResponse, MsgID: question.MsgID, RequestID: question.RequestID,
	}
	if question.Version == gosnmp.Version3 {
		answer.SecurityParameters = a.usm(a.engine)
		if usm := question.SecurityParameters.(*gosnmp.UsmSecurityParameters); usm.AuthoritativeEngineID == "" {
			report(answer, "4")
			return [][]byte{a.marshal(answer)}
		}
	}
	if err != nil {
		a.t.Errorf("the agent cannot read a question: %v", err)
		return nil
	}
	answer.Variables = off(question)
	if question.PDUType == gosnmp.GetNextRequest { // which outlet is the first
		for i := range answer.Variables {
			answer.Variables[i].Name += ".1"
		}
		if a.editNext != nil {
			a.editNext(answer)
		}
	} else if a.edit != nil {
		a.edit(question, answer)
	}
	b := a.marshal(answer)
	if a.after != nil {
		b = a.after(b)
	}
	return [][]byte{b}
}

// report makes an answer a report in the clear of USM's counter of that number.
func report(answer *gosnmp.SnmpPacket, counter string) {
	answer.PDUType, answer.MsgFlags = gosnmp.Report, gosnmp.NoAuthNoPriv
	answer.Variables = []gosnmp.SnmpPDU{
		{Name: ".1.3.6.1.6.3.15.1.1." + counter + ".0", Type: gosnmp.Counter32, Value: uint32(1)}}
}

func (a *agent) marshal(p *gosnmp.SnmpPacket) []byte {
	if usm, ok := p.SecurityParameters.(*gosnmp.UsmSecurityParameters); ok {
		must(a.t, usm.InitSecurityKeys())
		must(a.t, usm.InitPacket(p))
	}
	b, err := p.MarshalMsg()
	must(a.t, err)
	return b
}

func newAgent(t testing.TB) *agent {
	return &agent{t: t, engine: engineA, boots: 5, seconds: 1000, user: "fence", password: password}
}

// short is for questions that nothing answers.
func short(t *testing.T, p providers.Provider, id string) providers.Answer {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	return providers.Ask(ctx, p, "racks", providers.Target{Node: "n1", ID: id}, providers.Now)
}

// Forged answers, of a strip with the right passwords and of one without any, each with its result: none is Off.
func TestForged(t *testing.T) {
	usm := func(p *gosnmp.SnmpPacket) *gosnmp.UsmSecurityParameters {
		return p.SecurityParameters.(*gosnmp.UsmSecurityParameters)
	}
	is := func(class string) func(providers.Answer) bool {
		return func(a providers.Answer) bool {
			return a.State == providers.PowerUnknown && providers.ErrorClass(a.Err) == class
		}
	}
	unknown := func(raw string) func(providers.Answer) bool {
		return func(a providers.Answer) bool {
			return a.State == providers.PowerUnknown && a.Err == nil && a.Raw == raw
		}
	}
	kind := func(of gosnmp.PDUType) func(q, a *gosnmp.SnmpPacket) {
		return func(_, a *gosnmp.SnmpPacket) { a.PDUType = of }
	}
	value := func(i int, as gosnmp.SnmpPDU) func(q, a *gosnmp.SnmpPacket) {
		return func(_, a *gosnmp.SnmpPacket) { as.Name = a.Variables[i].Name; a.Variables[i] = as }
	}
	status := func(e gosnmp.SNMPError) func(q, a *gosnmp.SnmpPacket) {
		return func(_, a *gosnmp.SnmpPacket) { a.Error, a.ErrorIndex = e, 1 }
	}
	reported := func(counter string) func(q, a *gosnmp.SnmpPacket) {
		return func(_, a *gosnmp.SnmpPacket) { report(a, counter) }
	}
	for _, tt := range []struct {
		name  string
		agent agent
		want  func(providers.Answer) bool
	}{
		{"nothing is wrong", agent{},
			func(a providers.Answer) bool { return a.State == providers.PowerOff && a.Err == nil && a.Raw == "off" }},

		// With the passwords, which gosnmp therefore takes for good.
		{"authenticated, not encrypted", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.MsgFlags = gosnmp.AuthNoPriv }},
			is("untrusted")},
		{"request id 0", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.RequestID = 0 }}, is("unreachable")},
		{"another request id", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.RequestID++ }}, is("unreachable")},
		{"another message id", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.MsgID++ }}, is("unreachable")},
		{"another engine with the same passwords", agent{edit: func(_, a *gosnmp.SnmpPacket) {
			usm(a).AuthoritativeEngineID, usm(a).SecretKey, usm(a).PrivacyKey = engineB, nil, nil
		}}, is("untrusted")},
		{"another user with the same passwords",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { usm(a).UserName = "guest" }}, is("unreachable")},
		{"the last of all boots", agent{boots: 1<<31 - 1}, is("unreachable")},
		{"the question itself", agent{edit: kind(gosnmp.GetRequest)}, is("unreachable")},
		{"a trap", agent{edit: kind(gosnmp.SNMPv2Trap)}, is("unreachable")},
		{"a command", agent{edit: kind(gosnmp.SetRequest)}, is("unreachable")},
		{"a report of outlets", agent{edit: kind(gosnmp.Report)}, is("unreachable")},
		{"outside of the time window for ever",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { report(a, "2"); a.MsgFlags = gosnmp.AuthNoPriv }},
			is("unreachable")},
		{"another outlet",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Variables[0].Name = ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.5.8" }},
			is("unreachable")},
		{"another column", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Variables[1].Name = a.Variables[0].Name }},
			is("unreachable")},
		{"half of it", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Variables = a.Variables[:1] }}, is("unreachable")},
		{"nothing", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Variables = nil }}, is("unreachable")},
		{"more than was asked",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Variables = append(a.Variables, a.Variables[0]) }},
			is("unreachable")},
		{"an unknown value", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: 3})},
			unknown("rPDU2OutletSwitchedStatusState 3")},
		{"a word below all", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: -1})},
			unknown("rPDU2OutletSwitchedStatusState -1")},
		{"text", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.OctetString, Value: "1"})},
			unknown("rPDU2OutletSwitchedStatusState OctetString")},
		{"a gauge", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.Gauge32, Value: uint32(1)})},
			unknown("rPDU2OutletSwitchedStatusState Gauge32")},
		{"null", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.Null})},
			unknown("rPDU2OutletSwitchedStatusState Null")},
		{"a command is under way", agent{edit: value(1, gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: 1})},
			func(a providers.Answer) bool { return a.State == providers.PowerChanging && a.Err == nil }},
		{"unknown whether a command is", agent{edit: value(1, gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: 3})},
			unknown("off, command pending unknown")},
		{"a number that it does not have", agent{edit: value(1, gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: 4})},
			unknown("off, rPDU2OutletSwitchedStatusCommandPending 4")},
		{"no such outlet", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchInstance})}, is("not_found")},
		{"no such outlet, and another word for it",
			agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchObject})}, is("not_found")},
		{"no such outlet, and no first one", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchInstance}),
			editNext: func(a *gosnmp.SnmpPacket) { a.Error, a.Variables = gosnmp.NoSuchName, nil }}, is("permanent")},
		{"no such outlet, and the table is denied", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchInstance}),
			editNext: func(a *gosnmp.SnmpPacket) { a.Error = gosnmp.NoAccess }}, is("not_found")},
		{"no such outlet, and too few first ones", agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchInstance}),
			editNext: func(a *gosnmp.SnmpPacket) { a.Variables = nil }}, is("not_found")},
		{"no such outlet, and a first one that cannot be",
			agent{edit: value(0, gosnmp.SnmpPDU{Type: gosnmp.NoSuchInstance}),
				editNext: func(a *gosnmp.SnmpPacket) { a.Variables[0].Name += ".4000000000.0" }}, is("not_found")},
		{"an error, and values that were not asked for", agent{edit: func(_, a *gosnmp.SnmpPacket) {
			a.Error = gosnmp.NoSuchName
			for i := range 9 {
				a.Variables = append(a.Variables,
					gosnmp.SnmpPDU{Name: a.Variables[i%2].Name, Type: gosnmp.NoSuchInstance})
			}
		}}, is("not_found")},
		{"no such column", agent{edit: value(1, gosnmp.SnmpPDU{Type: gosnmp.NoSuchObject})}, is("permanent")},
		{"no access", agent{edit: status(gosnmp.NoAccess)}, is("denied")},
		{"no rights", agent{edit: status(gosnmp.AuthorizationError)}, is("denied")},
		{"no such name", agent{edit: status(gosnmp.NoSuchName)}, is("not_found")},
		{"an error that may pass", agent{edit: status(gosnmp.GenErr)}, is("unreachable")},
		{"too big", agent{edit: status(gosnmp.TooBig)}, is("permanent")},
		{"an unknown error", agent{edit: status(77)}, is("permanent")},

		// Without the passwords: any machine in the network.
		{"in the clear", agent{edit: func(_, a *gosnmp.SnmpPacket) { a.MsgFlags = gosnmp.NoAuthNoPriv }},
			is("unreachable")},
		{"in the clear, with request id 0",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.MsgFlags, a.RequestID = gosnmp.NoAuthNoPriv, 0 }},
			is("unreachable")},
		{"a report of outlets in the clear",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.MsgFlags, a.PDUType = gosnmp.NoAuthNoPriv, gosnmp.Report }},
			is("unreachable")},
		{"v2c instead",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Version, a.Community = gosnmp.Version2c, "public" }},
			is("unreachable")},
		{"v1 instead",
			agent{edit: func(_, a *gosnmp.SnmpPacket) { a.Version, a.Community = gosnmp.Version1, "public" }},
			is("unreachable")},
		{"signed with another key", agent{edit: func(_, a *gosnmp.SnmpPacket) {
			usm(a).AuthenticationPassphrase, usm(a).SecretKey = "of-another-user", nil
		}}, is("unreachable")},
		{"signed and changed", agent{after: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }}, is("unreachable")},
		{"cut off", agent{after: func(b []byte) []byte { return b[:len(b)/2] }}, is("unreachable")},
		{"one byte more", agent{after: func(b []byte) []byte { return append(b, 0) }}, is("unreachable")},
		{"empty", agent{after: func([]byte) []byte { return nil }}, is("unreachable")},
		// the flags say in the clear, the content is encrypted and signed
		{"signs that are as if not signed", agent{after: func(b []byte) []byte {
			return []byte(strings.Replace(string(b), "\x04\x01\x03\x02\x01\x03", "\x04\x01\x00\x02\x01\x03", 1))
		}}, is("unreachable")},
		{"says that the user is unknown", agent{edit: reported("3")}, is("denied")},
		{"says that the password is wrong", agent{edit: reported("5")}, is("denied")},
		{"says that the engine is unknown", agent{edit: reported("4")}, is("untrusted")},
		{"says something else in the clear", agent{edit: reported("2")}, is("unreachable")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAgent(t)
			if tt.agent.boots > 0 {
				a.boots = tt.agent.boots
			}
			a.edit, a.editNext, a.after = tt.agent.edit, tt.agent.editNext, tt.agent.after
			w := newWire(t, a.handle)
			p := open(t, settings(t, "apc-rpdu2"), nil)
			got := short(t, p, w.address+"/7")
			if !tt.want(got) { // a slow machine needs more time to come to another end than that of its time
				got = ask(t, p, w.address+"/7")
			}
			if !tt.want(got) {
				t.Errorf("got %s (%q), %s: %v", got.State, got.Raw, providers.ErrorClass(got.Err), got.Err)
			}
		})
	}
}

// Nothing proves who sent an answer of v2c, but one that fits no question is passed over.
func TestForgedV2c(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(a *gosnmp.SnmpPacket)
		want providers.PowerState
	}{
		{"nothing is wrong", func(*gosnmp.SnmpPacket) {}, providers.PowerOff},
		{"request id 0", func(a *gosnmp.SnmpPacket) { a.RequestID = 0 }, providers.PowerUnknown},
		{"another request id", func(a *gosnmp.SnmpPacket) { a.RequestID-- }, providers.PowerUnknown},
		{"another community", func(a *gosnmp.SnmpPacket) { a.Community = "public" }, providers.PowerUnknown},
		{"v1", func(a *gosnmp.SnmpPacket) { a.Version = gosnmp.Version1 }, providers.PowerUnknown},
		{"the question itself", func(a *gosnmp.SnmpPacket) { a.PDUType = gosnmp.GetRequest }, providers.PowerUnknown},
		{"another outlet", func(a *gosnmp.SnmpPacket) { a.Variables[0].Name += ".1" }, providers.PowerUnknown},
	} {
		a := newAgent(t)
		a.edit = func(_, answer *gosnmp.SnmpPacket) { tt.edit(answer) }
		w := newWire(t, a.handle)
		p := open(t, v2c(t), nil)
		got := short(t, p, w.address+"/7")
		if got.State != tt.want && tt.want == providers.PowerOff { // a slow machine
			got = ask(t, p, w.address+"/7")
		}
		if got.State != tt.want {
			t.Errorf("%s: got %s (%q), %v", tt.name, got.State, got.Raw, got.Err)
		}
	}
}

// v2c are settings for a strip that speaks v2c alone.
func v2c(t *testing.T) *pdu.Config {
	c := settings(t, "apc-rpdu2")
	c.Version, c.Username, c.PrivacyPasswordFile = "v2c", "", ""
	must(t, os.WriteFile(c.PasswordFile, []byte(community), 0o600))
	return c
}

// An answer comes from the address that was asked, or is none: here the right one comes from another port.
func TestFromElsewhere(t *testing.T) {
	elsewhere, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer elsewhere.Close()
	a := newAgent(t)
	w := newWire(t, func(to asker, question []byte) { a.handle(asker{to.addr, elsewhere}, question) })
	for name, c := range map[string]*pdu.Config{"v3": settings(t, "apc-rpdu2"), "v2c": v2c(t)} {
		if got := short(t, open(t, c, nil), w.address+"/7"); got.State != providers.PowerUnknown ||
			providers.ErrorClass(got.Err) != "unreachable" {
			t.Errorf("%s: got %s (%q), %v", name, got.State, got.Raw, got.Err)
		}
	}
}

// Packets that an attacker inserts have no effect: the strip's own answer follows.
func TestForgedBeforeTheAnswer(t *testing.T) {
	a, _ := strips(t)
	o, forger := a.outlet("apc-rpdu2"), newAgent(t)
	forger.edit = func(_, answer *gosnmp.SnmpPacket) { answer.MsgID += 1000 }
	forged := func(question []byte) []byte { return forger.answers(question)[0] }
	forger.engine = engineOf(t, a)
	var asked atomic.Bool
	w := newWire(t, func(to asker, question []byte) {
		if asked.Swap(true) { // the first question is which engine it is: a lie about that stays one
			to.answer([]byte("0"))
			to.answer([]byte("\x30\x03\x02\x01\x03"))
			to.answer(forged(question))
		}
		through(a.address)(to, question)
	})
	if got := ask(t, open(t, settings(t, "apc-rpdu2"), nil), o.id(w.address)); got.State != providers.PowerOn ||
		got.Err != nil {
		t.Errorf("got %s (%q), %v", got.State, got.Raw, got.Err)
	}
}

// engineOf asks a strip which engine it is.
func engineOf(t *testing.T, s *strip) string {
	t.Helper()
	c := &gosnmp.GoSNMP{Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel,
		SecurityParameters: &gosnmp.UsmSecurityParameters{UserName: "x"}}
	p, err := c.SnmpDecodePacket(pass(s.address, []byte(discovery)))
	must(t, err)
	return p.SecurityParameters.(*gosnmp.UsmSecurityParameters).AuthoritativeEngineID
}

// Two strips have the same users and passwords. An attacker who redirects our questions to the other one gets true
// answers about the wrong outlet. The engine ID distinguishes them, if it is known before: by the configuration, or
// from an earlier answer.
func TestAnotherStrip(t *testing.T) {
	a, b := strips(t)
	o := a.outlet("apc-rpdu2")
	for wrong := b.outlet("apc-rpdu2"); ; wrong = b.outlet("apc-rpdu2") {
		if wrong.number >= o.number {
			wrong.number = o.number
			wrong.reset(false)
			break
		}
	}
	w := newWire(t, through(b.address))
	id := o.id(w.address)
	refused := func(name string, p providers.Provider) {
		t.Helper()
		for range 2 {
			if got := ask(t, p, id); got.State != providers.PowerUnknown ||
				providers.ErrorClass(got.Err) != "untrusted" {
				t.Fatalf("%s: got %s (%q), %v", name, got.State, got.Raw, got.Err)
			}
		}
	}
	if got := ask(t, open(t, settings(t, "apc-rpdu2"), nil), id); got.State != providers.PowerOff {
		t.Errorf("without the wrong answer there is nothing to refuse: got %s (%q), %v", got.State, got.Raw, got.Err)
	}
	host, _, _ := net.SplitHostPort(w.address)
	for _, at := range []string{w.address, host} {
		c := settings(t, "apc-rpdu2")
		c.Engines = []pdu.Engine{{Host: at, ID: pdu.EngineID(engineOf(t, a))}}
		p := open(t, c, nil)
		refused("an engine of the configuration", p)
		w.handle(through(a.address))
		if got := ask(t, p, id); got.State != providers.PowerOn || got.Err != nil {
			t.Errorf("the right strip: got %s (%q), %v", got.State, got.Raw, got.Err)
		}
		w.handle(through(b.address))
	}
	p := open(t, settings(t, "apc-rpdu2"), nil)
	w.handle(through(a.address))
	if got := ask(t, p, id); got.State != providers.PowerOn || got.Err != nil {
		t.Errorf("the right strip: got %s (%q), %v", got.State, got.Raw, got.Err)
	}
	w.handle(through(b.address))
	refused("an engine that answered before", p)

	// One that lies about its engine alone, and has the passwords.
	first, other := newAgent(t), newAgent(t)
	w.handle(first.handle)
	p = open(t, settings(t, "apc-rpdu2"), nil)
	if got := ask(t, p, id); got.State != providers.PowerOff {
		t.Errorf("got %s (%q), %v", got.State, got.Raw, got.Err)
	}
	other.edit = func(_, answer *gosnmp.SnmpPacket) {
		u := answer.SecurityParameters.(*gosnmp.UsmSecurityParameters)
		u.AuthoritativeEngineID, u.SecretKey, u.PrivacyKey = engineB, nil, nil
	}
	w.handle(other.handle)
	refused("an engine that takes another's place", p)

	// gosnmp goes over to the engine of any report that is authenticated, and so asks the other one.
	over := newAgent(t)
	over.engine = engineB
	over.edit = func(question, answer *gosnmp.SnmpPacket) {
		if question.SecurityParameters.(*gosnmp.UsmSecurityParameters).AuthoritativeEngineID != engineB {
			report(answer, "2")
			answer.MsgFlags = gosnmp.AuthNoPriv
		}
	}
	w.handle(over.handle)
	refused("an engine that calls us over", p)
}

// The question which engine answers is sent in the clear, and any machine may answer it: so it is not asked again once
// the engine is known.
func TestEngineIsAskedOnce(t *testing.T) {
	a := newAgent(t)
	var clear atomic.Int64
	w := newWire(t, func(to asker, question []byte) {
		if !strings.Contains(string(question), "fence") {
			clear.Add(1)
		}
		a.handle(to, question)
	})
	p := open(t, settings(t, "apc-rpdu2"), nil)
	for i := range 3 {
		if got := ask(t, p, w.address+"/7"); got.State != providers.PowerOff {
			t.Errorf("got %s, %v", got.State, got.Err)
		}
		if n := clear.Swap(0); (n > 0) != (i == 0) {
			t.Errorf("question %d: %d were in the clear", i+1, n)
		}
	}
}

// The question which engine it is goes out again after a second. The answer to the first comes late, and refuses
// nothing.
func TestLateEngineAnswer(t *testing.T) {
	a := newAgent(t)
	var told atomic.Value
	w := newWire(t, func(to asker, question []byte) {
		answer := a.answers(question)[0]
		if !strings.Contains(string(question), "fence") {
			told.Store(answer)
		} else {
			to.answer(told.Load().([]byte))
		}
		to.answer(answer)
	})
	if got := ask(t, open(t, settings(t, "apc-rpdu2"), nil), w.address+"/7"); got.State != providers.PowerOff {
		t.Errorf("got %s, %v", got.State, got.Err)
	}
}

// An engine's boots and time only rise. A message of before is a replay, by up to 150 s of a clock that is slow.
func TestReplayed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newWire(t, newAgent(t).handle)
	p := open(t, settings(t, "apc-rpdu2"), func() time.Time { return now })
	for _, tt := range []struct {
		after          time.Duration
		boots, seconds uint32
		want           bool
	}{
		{0, 5, 1000, true},
		{0, 4, 5000, false},                // an earlier boot
		{0, 5, 850, true},                  // within the window
		{0, 5, 849, false},                 // below it, and what was within it did not move it
		{100 * time.Second, 5, 949, false}, // time passes here, too
		{0, 5, 950, true},
		{0, 6, 10, true}, // it was started again
		{0, 5, 2000, false},
		{0, 6, 11, true},
	} {
		now = now.Add(tt.after)
		a := newAgent(t)
		a.boots, a.seconds = tt.boots, tt.seconds
		w.handle(a.handle)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		obs, err := p.State(ctx, providers.Target{Node: "n1", ID: w.address + "/7"})
		cancel()
		if (obs.State == providers.PowerOff) != tt.want || (err == nil) != tt.want {
			t.Errorf("boot %d, second %d: got %s, %v", tt.boots, tt.seconds, obs.State, err)
		}
	}
}

// An answer that was recorded is no answer to a later question, however true it was.
func TestRecorded(t *testing.T) {
	s, _ := strips(t)
	o := s.outlet("apc-rpdu2")
	o.reset(false)
	var mu sync.Mutex
	var recorded [][]byte
	w := newWire(t, func(to asker, question []byte) {
		answer := pass(s.address, question)
		mu.Lock()
		recorded = append(recorded, answer)
		mu.Unlock()
		to.answer(answer)
	})
	p := open(t, settings(t, "apc-rpdu2"), nil)
	if got := ask(t, p, o.id(w.address)); got.State != providers.PowerOff {
		t.Fatalf("got %s, %v", got.State, got.Err)
	}
	o.reset(true)
	w.handle(func(to asker, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range recorded {
			to.answer(b)
		}
	})
	if got := short(t, p, o.id(w.address)); got.State != providers.PowerUnknown ||
		providers.ErrorClass(got.Err) != "unreachable" {
		t.Errorf("got %s (%q), %v", got.State, got.Raw, got.Err)
	}
}
