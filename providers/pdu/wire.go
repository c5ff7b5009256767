package pdu

// header is what a message states about itself before it is decrypted or verified.
type header struct {
	version  int64  // 3, or 1 for v2c
	id       int64  // what ties an answer to its question: v3's msgID, v2c's request id
	flags    byte   // v3: the security level
	engine   string // v3: the engine that speaks
	pdu      byte   // the PDU's tag; 0 where it is encrypted
	reported string // a v3 Report in the clear: the OID of the first counter in it, in wire format
}

// The tags that are read.
const (
	tagInteger  = 0x02
	tagOctets   = 0x04
	tagOID      = 0x06
	tagSequence = 0x30
	tagResponse = 0xa2
	tagReport   = 0xa8
)

// parseHeader parses a message's header. Its sender may have written anything. The result only decides which messages
// are skipped, never which are believed.
func parseHeader(message []byte) (h header, ok bool) {
	m := reader{rest: message, ok: true}
	body := m.enterElement(tagSequence)
	h.version = body.takeInteger()
	if h.version != 3 {
		body.takeElement(tagOctets)
		h.pdu = body.nextTag()
		pdu := body.enterElement(h.pdu)
		h.id = pdu.takeInteger()
		return h, m.ok && body.ok && pdu.ok && len(m.rest) == 0
	}
	global := body.enterElement(tagSequence)
	h.id = global.takeInteger()
	global.takeInteger()
	if flags := global.takeElement(tagOctets); len(flags) == 1 {
		h.flags = flags[0]
	} else {
		return h, false
	}
	octets := body.enterElement(tagOctets)
	usm := octets.enterElement(tagSequence)
	h.engine = string(usm.takeElement(tagOctets))
	if !m.ok || !body.ok || !global.ok || !octets.ok || !usm.ok || len(m.rest) > 0 {
		return h, false
	}
	if body.nextTag() != tagSequence {
		return h, true
	}
	scoped := body.enterElement(tagSequence)
	scoped.takeElement(tagOctets)
	scoped.takeElement(tagOctets)
	h.pdu = scoped.nextTag()
	if h.pdu != tagReport {
		return h, scoped.ok
	}
	pdu := scoped.enterElement(tagReport)
	pdu.takeInteger()
	pdu.takeInteger()
	pdu.takeInteger()
	list := pdu.enterElement(tagSequence)
	first := list.enterElement(tagSequence)
	h.reported = string(first.takeElement(tagOID))
	return h, scoped.ok && pdu.ok && list.ok && first.ok
}

// reader reads elements of BER one after the other. After the first that does not match it reads none, and ok is false.
type reader struct {
	rest []byte
	ok   bool
}

// nextTag returns the next element's tag, 0 at the end.
func (r *reader) nextTag() byte {
	if !r.ok || len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// takeElement returns the content of the next element, which must have that tag.
func (r *reader) takeElement(tag byte) []byte {
	content, rest, ok := splitElement(tag, r.rest)
	if !r.ok || !ok {
		r.ok = false
		return nil
	}
	r.rest = rest
	return content
}

// enterElement is takeElement for an element that contains others.
func (r *reader) enterElement(tag byte) *reader {
	content := r.takeElement(tag)
	return &reader{rest: content, ok: r.ok}
}

// takeInteger reads an INTEGER of at most 32 bits with its sign.
func (r *reader) takeInteger() (n int64) {
	content := r.takeElement(tagInteger)
	if len(content) == 0 || len(content) > 5 {
		r.ok = false
		return 0
	}
	n = int64(int8(content[0])) // #nosec G115 -- its first bit is the sign
	for _, c := range content[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

// splitElement splits b behind its first element, which must have that tag. Lengths may use more bytes than they need,
// as net-snmp writes them, but no more than four.
func splitElement(tag byte, b []byte) (content, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != tag || tag == 0 {
		return nil, nil, false
	}
	n, b := uint64(b[1]), b[2:]
	if n >= 0x80 {
		more := int(n & 0x7f)
		if more == 0 || more > 4 || len(b) < more {
			return nil, nil, false
		}
		n = 0
		for _, c := range b[:more] {
			n = n<<8 | uint64(c)
		}
		b = b[more:]
	}
	if n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
