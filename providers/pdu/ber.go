package pdu

// The tags of BER's universal types that SNMP uses.
const (
	berInteger  = 0x02
	berOctets   = 0x04
	berOID      = 0x06
	berSequence = 0x30
)

// ber reads the elements of a message in ASN.1's Basic Encoding Rules (BER), one after the other. After the first that
// does not match it reads none, and bad is true. It allocates nothing. Nothing that it reads is authenticated.
type ber struct {
	rest []byte // what was not read yet
	bad  bool
}

// tag returns the next element's tag, 0 at the end.
func (r *ber) tag() byte {
	if r.bad || len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

// take returns the content of the next element, which must have that tag. Lengths may use more bytes than they need, as
// net-snmp writes them, but no more than four.
func (r *ber) take(tag byte) []byte {
	b := r.rest
	if r.bad = r.bad || len(b) < 2 || b[0] != tag || tag == 0; r.bad {
		return nil
	}
	n, b := uint64(b[1]), b[2:]
	if n >= 0x80 {
		more := int(n & 0x7f)
		if r.bad = more == 0 || more > 4 || len(b) < more; r.bad {
			return nil
		}
		n = 0
		for _, c := range b[:more] {
			n = n<<8 | uint64(c)
		}
		b = b[more:]
	}
	if r.bad = n > uint64(len(b)); r.bad {
		return nil
	}
	r.rest = b[n:]
	return b[:n]
}

// enter is take for an element that contains others.
func (r *ber) enter(tag byte) ber {
	content := r.take(tag)
	return ber{rest: content, bad: r.bad}
}

// takeInteger reads an INTEGER of at most 32 bits with its sign.
func (r *ber) takeInteger() (n int64) {
	content := r.take(berInteger)
	if r.bad = r.bad || len(content) == 0 || len(content) > 5; r.bad {
		return 0
	}
	n = int64(int8(content[0])) // #nosec G115 -- its first bit is the sign
	for _, c := range content[1:] {
		n = n<<8 | int64(c)
	}
	return n
}
