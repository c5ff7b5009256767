package pdu

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
	m := ber{rest: message}
	body := m.enter(berSequence)
	h.version = body.takeInteger()
	if h.version != 3 {
		body.take(berOctets)
		h.pdu = body.tag()
		pdu := body.enter(h.pdu)
		h.id = pdu.takeInteger()
		return h, !pdu.bad && len(m.rest) == 0
	}
	global := body.enter(berSequence)
	h.id = global.takeInteger()
	global.takeInteger()
	flags := global.take(berOctets)
	if len(flags) != 1 {
		return h, false
	}
	h.flags = flags[0]
	octets := body.enter(berOctets)
	usm := octets.enter(berSequence)
	h.engine = string(usm.take(berOctets))
	if usm.bad || len(m.rest) > 0 {
		return h, false
	}
	if body.tag() != berSequence {
		return h, true
	}
	scoped := body.enter(berSequence)
	scoped.take(berOctets)
	scoped.take(berOctets)
	h.pdu = scoped.tag()
	if h.pdu != tagReport {
		return h, !scoped.bad
	}
	pdu := scoped.enter(tagReport)
	pdu.takeInteger()
	pdu.takeInteger()
	pdu.takeInteger()
	list := pdu.enter(berSequence)
	first := list.enter(berSequence)
	h.reported = string(first.take(berOID))
	return h, !first.bad
}
