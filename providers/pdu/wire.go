package pdu

import "github.com/forcefence/forcefence/providers/remote"

// header is what a message states about itself before it is decrypted or verified.
type header struct {
	version  int64  // 3, or 1 for v2c
	id       int64  // what ties an answer to its question: v3's msgID, v2c's request id
	flags    byte   // v3: the security level
	engine   string // v3: the sender's engine
	pdu      byte   // the PDU's tag; 0 where it is encrypted
	reported string // a v3 Report in the clear: the OID of the first counter in it, in wire format
}

// The tags of SNMP's PDUs that matter here.
const (
	tagResponse = 0xa2
	tagReport   = 0xa8
)

// parseHeader parses the header of a message from any sender. The result only decides which messages are skipped, never
// which are believed.
func parseHeader(message []byte) (h header, ok bool) {
	m := remote.BER{Rest: message}
	body := m.Enter(remote.BERSequence)
	h.version = body.TakeInteger()
	if h.version != 3 {
		body.Take(remote.BEROctets)
		h.pdu = body.Tag()
		pdu := body.Enter(h.pdu)
		h.id = pdu.TakeInteger()
		return h, !pdu.Bad && len(m.Rest) == 0
	}
	global := body.Enter(remote.BERSequence)
	h.id = global.TakeInteger()
	global.TakeInteger()
	flags := global.Take(remote.BEROctets)
	if len(flags) != 1 {
		return h, false
	}
	h.flags = flags[0]
	octets := body.Enter(remote.BEROctets)
	usm := octets.Enter(remote.BERSequence)
	h.engine = string(usm.Take(remote.BEROctets))
	if usm.Bad || len(m.Rest) > 0 {
		return h, false
	}
	if body.Tag() != remote.BERSequence {
		return h, true
	}
	scoped := body.Enter(remote.BERSequence)
	scoped.Take(remote.BEROctets)
	scoped.Take(remote.BEROctets)
	h.pdu = scoped.Tag()
	if h.pdu != tagReport {
		return h, !scoped.Bad
	}
	pdu := scoped.Enter(tagReport)
	pdu.TakeInteger()
	pdu.TakeInteger()
	pdu.TakeInteger()
	list := pdu.Enter(remote.BERSequence)
	first := list.Enter(remote.BERSequence)
	h.reported = string(first.Take(remote.BEROID))
	return h, !first.Bad
}
