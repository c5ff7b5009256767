package remote

// The tags of BER's universal types that SNMP uses.
const (
	BERInteger  = 0x02
	BEROctets   = 0x04
	BEROID      = 0x06
	BERSequence = 0x30
)

// BER reads the elements of a message in ASN.1's Basic Encoding Rules, one after the other. After the first that does
// not match it reads none, and Bad is true. It allocates nothing. Nothing that it reads is authenticated.
type BER struct {
	Rest []byte // what was not read yet
	Bad  bool
}

// Tag returns the next element's tag, 0 at the end.
func (r *BER) Tag() byte {
	if r.Bad || len(r.Rest) == 0 {
		return 0
	}
	return r.Rest[0]
}

// Take returns the content of the next element, which must have that tag. Lengths may use more bytes than they need, as
// net-snmp writes them, but no more than four.
func (r *BER) Take(tag byte) []byte {
	b := r.Rest
	if r.Bad = r.Bad || len(b) < 2 || b[0] != tag || tag == 0; r.Bad {
		return nil
	}
	n, b := uint64(b[1]), b[2:]
	if n >= 0x80 {
		more := int(n & 0x7f)
		if r.Bad = more == 0 || more > 4 || len(b) < more; r.Bad {
			return nil
		}
		n = 0
		for _, c := range b[:more] {
			n = n<<8 | uint64(c)
		}
		b = b[more:]
	}
	if r.Bad = n > uint64(len(b)); r.Bad {
		return nil
	}
	r.Rest = b[n:]
	return b[:n]
}

// Enter is Take for an element that contains others.
func (r *BER) Enter(tag byte) BER {
	content := r.Take(tag)
	return BER{Rest: content, Bad: r.Bad}
}

// TakeInteger reads an INTEGER of at most 32 bits with its sign.
func (r *BER) TakeInteger() (n int64) {
	content := r.Take(BERInteger)
	if r.Bad = r.Bad || len(content) == 0 || len(content) > 5; r.Bad {
		return 0
	}
	n = int64(int8(content[0])) // #nosec G115 -- its first bit is the sign
	for _, c := range content[1:] {
		n = n<<8 | int64(c)
	}
	return n
}
