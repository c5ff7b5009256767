// Package signing makes and checks the proof of a fence: a chain of what devices answered, signed with the controller's
// key. Each write of a fence's record adds a link with the answers that the writer itself heard since the record was
// read. A link's hash covers the link and the hash before it, and the signature covers the last hash. So a proof that
// was changed, reordered, shortened or moved to another fence or node is not valid.
//
// It is pure. It imports the record (package taint), Fencings (taint/api) and nothing else of forcefence. No decision
// of a fence reads a proof: a record without one is fenced in the same way. The callers read keys, clocks and objects.
//
// It promises: Sign signs no answer that was in the record before, because another client may have written it there.
package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// domain is in every hash and signature, so that neither is valid for anything else. A proof of another form has
// another number at its end.
const domain = "forcefence.io/proof/v1"

// maxLinks bounds a proof: the first link and the newest are kept.
const maxLinks = 16

// Proof is what a record's proof holds. The zero value proves nothing.
type Proof struct {
	Fence     string `json:"fence"` // taint.Record.Token
	Node      string `json:"node"`
	NodeUID   string `json:"nodeUID"`
	Links     []Link `json:"links"`
	Key       string `json:"key"`       // the KeyID of who signed the last hash
	Signature []byte `json:"signature"` // of the last link's hash
}

// Link is one write of the record: the phase that it entered, and the answers that its writer heard.
type Link struct {
	Phase   taint.Phase       `json:"phase"`
	Result  taint.Result      `json:"result,omitempty"`
	At      time.Time         `json:"at"` // when the phase was entered
	By      string            `json:"by"` // the controller's identity
	BootID  string            `json:"bootID,omitempty"`
	LeaseRV string            `json:"leaseRV,omitempty"` // of the node's Lease when the mark was set: see taint.Record
	Machine *taint.MachineRef `json:"machine,omitempty"` // the machine that was asked about
	// Proven says that these answers together proved the machine off, by the controller's rule for several devices.
	Proven  bool             `json:"proven,omitempty"`
	Answers []taint.Evidence `json:"answers,omitempty"`
	Hash    []byte           `json:"hash"`
}

// ErrProof is the class of errors about a proof that is not valid.
var ErrProof = errors.New("proof is not valid")

// Parse reads a proof. It accepts only what Encode writes, so no byte of a proof can change without notice. It does not
// check hashes and signature: see Check.
func Parse(text string) (Proof, error) {
	if len(text) > taint.MaxProof {
		return Proof{}, fmt.Errorf("%w: it has more than %d bytes", ErrProof, taint.MaxProof)
	}
	var p Proof
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Proof{}, fmt.Errorf("%w: %w", ErrProof, err)
	}
	switch {
	case len(p.Links) == 0 || len(p.Links) > maxLinks:
		return Proof{}, fmt.Errorf("%w: it has %d links", ErrProof, len(p.Links))
	case p.Encode() != text:
		return Proof{}, fmt.Errorf("%w: forcefence did not write it in this form", ErrProof)
	}
	return p, nil
}

// Encode returns the proof's text: one line of JSON.
func (p Proof) Encode() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // a time outside years 0..9999, which no record has
	}
	return string(b)
}

// Check returns an error that says what is wrong with a proof about a fence of a node, as a Record's Token, the Node's
// name and its UID; nil: each link is as it was written, and one of the keys signed the last.
func (p Proof) Check(fence, node, nodeUID string, keys Keys) error {
	switch {
	case len(p.Links) == 0:
		return fmt.Errorf("%w: it is empty", ErrProof)
	case p.Node != node || p.NodeUID != nodeUID:
		return fmt.Errorf("%w: it is about node %q with UID %q, and not %q with UID %q", ErrProof, p.Node, p.NodeUID,
			node, nodeUID)
	case p.Fence != fence:
		return fmt.Errorf("%w: it is about fence %q, and not %q", ErrProof, p.Fence, fence)
	}
	before := p.root()
	for i, l := range p.Links {
		if before = l.hashAfter(before); !bytes.Equal(before, l.Hash) {
			return fmt.Errorf("%w: link %d (%s at %s) was changed, or the one before it is not where it was",
				ErrProof, i+1, l.Phase, l.At.Format(time.RFC3339))
		}
	}
	key, known := keys[p.Key]
	switch {
	case !known:
		return fmt.Errorf("%w: key %q signed it, which is not among the %d public keys", ErrProof, p.Key, len(keys))
	case !ed25519.Verify(key, p.message(), p.Signature):
		return fmt.Errorf("%w: the signature is not that of key %s for this last link: links were changed, added or "+
			"removed after it", ErrProof, p.Key)
	}
	return nil
}

// root is the hash before the first link.
func (p Proof) root() []byte { return hashOf("fence", p.Fence, p.Node, p.NodeUID) }

// message is what the signature is of.
func (p Proof) message() []byte {
	return hashOf("signature", p.Key, string(p.Links[len(p.Links)-1].Hash))
}

func (l Link) hashAfter(before []byte) []byte {
	machine := []string{"no machine"}
	if m := l.Machine; m != nil {
		machine = []string{"machine", m.Provider, m.ID, m.SystemUUID}
	}
	words := append([]string{
		"link", string(before), string(l.Phase), string(l.Result), formatTime(l.At), l.By, l.BootID, l.LeaseRV,
		strconv.FormatBool(l.Proven), strconv.Itoa(len(l.Answers)),
	}, machine...)
	for _, a := range l.Answers {
		words = append(words, formatTime(a.At), a.From, a.State, a.Raw, a.SystemUUID)
		if a.Fed {
			words = append(words, "fed")
		}
	}
	return hashOf(words...)
}

// formatTime keeps the zone: another zone is another text in the proof.
func formatTime(t time.Time) string { return t.Format(time.RFC3339Nano) }

// hashOf returns the hash of words. Each has its length before it, so no two lists are the same bytes.
func hashOf(words ...string) []byte {
	h := sha256.New()
	for _, w := range append([]string{domain}, words...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(w))))
		h.Write([]byte(w))
	}
	return h.Sum(nil)
}

// Sign returns the proof of a record that is about to be written over the one that l has: that one's proof with a link
// for what the write adds. proven says that the writer holds the answers for a proof that the machine is off. The
// record's own proof is returned where the write enters no phase and adds no answer. A proof of another key is not
// continued, because that key may be stolen: then the chain begins with this link.
func (s Signer) Sign(l taint.Look, rec taint.Record, proven bool) string {
	p, err := Parse(rec.Proof)
	if err == nil {
		err = p.Check(rec.Token(), l.Name, rec.NodeUID, s.Keys())
	}
	if err != nil {
		p = Proof{Fence: rec.Token(), Node: l.Name, NodeUID: rec.NodeUID}
	}
	link := Link{
		Phase: rec.Phase, Result: rec.Result, At: rec.At, By: s.By, BootID: rec.BootID, LeaseRV: rec.LeaseRV,
		Machine: rec.Machine, Answers: heard(l.Record, rec),
	}
	link.Proven = proven && slices.ContainsFunc(link.Answers, isOff)
	if n := len(p.Links); n > 0 && len(link.Answers) == 0 && p.Links[n-1].Phase == link.Phase &&
		p.Links[n-1].Result == link.Result {
		return rec.Proof
	}
	p.Links = append(p.Links, link)
	for p = s.signChain(p); len(p.Encode()) > taint.MaxProof && len(p.Links) > 1; p = s.signChain(p) {
		p.Links = slices.Delete(p.Links, len(p.Links)-2, len(p.Links)-1)
	}
	if text := p.Encode(); len(text) <= taint.MaxProof {
		return text
	}
	return rec.Proof
}

// signChain returns the proof with all hashes and the signature made again. The caller has checked its earlier links.
func (s Signer) signChain(p Proof) Proof {
	if n := len(p.Links); n > maxLinks {
		p.Links = slices.Delete(p.Links, 1, n-maxLinks+1)
	}
	before := p.root()
	for i := range p.Links {
		before = p.Links[i].hashAfter(before)
		p.Links[i].Hash = before
	}
	p.Key = KeyID(s.Key.Public().(ed25519.PublicKey))
	p.Signature = ed25519.Sign(s.Key, p.message())
	return p
}

// heard returns the evidence of a record that the one before it does not have. before may be nil.
func heard(before *taint.Record, rec taint.Record) []taint.Evidence {
	return slices.DeleteFunc(slices.Clone(rec.Evidence), func(e taint.Evidence) bool {
		return before != nil && slices.Contains(before.Evidence, e)
	})
}

func isOff(e taint.Evidence) bool { return e.State == "Off" }

// saysOn reports whether a device said On, and none proved the machine off since.
func (p Proof) saysOn() bool {
	for _, l := range slices.Backward(p.Links) {
		if slices.ContainsFunc(l.Answers, taint.Evidence.ContradictsOff) {
			return true
		}
		if l.Proven {
			return false
		}
	}
	return false
}

// LastOff returns the newest answer Off that proved the machine off when the eviction began or later, and the link that
// has it. It is false if there is none, if the fence is in another phase by now, or if a device said On since.
func (p Proof) LastOff() (taint.Evidence, Link, bool) {
	for _, l := range slices.Backward(p.Links) {
		switch {
		case l.Phase != taint.PhaseEvicting || slices.ContainsFunc(l.Answers, taint.Evidence.ContradictsOff):
			return taint.Evidence{}, Link{}, false
		case !l.Proven:
			continue
		}
		last := slices.MaxFunc(slices.DeleteFunc(slices.Clone(l.Answers), func(e taint.Evidence) bool {
			return !isOff(e)
		}), func(a, b taint.Evidence) int { return a.At.Compare(b.At) })
		return last, l, true
	}
	return taint.Evidence{}, Link{}, false
}
