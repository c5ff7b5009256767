package signing

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// signer returns a signer whose key follows from a byte.
func signer(b byte) Signer {
	return Signer{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize)), By: "pod-1"}
}

func answer(at time.Duration, state string) taint.Evidence {
	return taint.Evidence{At: start.Add(at), From: "racks/7", State: state, Raw: state, SystemUUID: "uuid-7"}
}

// fence is a fence as its record goes through it: each step is written by s over the one before.
type fence struct {
	look taint.Look
	rec  taint.Record
}

func newFence() fence {
	return fence{look: taint.Look{Name: "n1"}, rec: taint.Record{
		ID: "f-0123456789ab", NodeUID: "uid", BootID: "boot", LeaseRV: "7", Since: start, By: "pod-1",
		Machine: &taint.MachineRef{Provider: "racks", ID: "7"},
	}}
}

// write enters a phase with answers, a second after the start for each write.
func (f *fence) write(s Signer, phase taint.Phase, res taint.Result, proven bool, answers ...taint.Evidence) {
	before := f.rec
	f.look.Record = nil
	at := start
	if !before.At.IsZero() {
		f.look.Record, at = &before, before.At.Add(time.Second)
	}
	f.rec = f.rec.WithEvidence(answers...).EnterPhase(phase, res, at)
	f.rec.Proof = s.Sign(f.look, f.rec, proven)
}

func (f *fence) evict(s Signer) {
	f.write(s, taint.PhaseArmed, "", true, answer(0, "Off"))
	f.write(s, taint.PhaseEvicting, "", true, answer(time.Second, "Off"))
}

func (f *fence) check(text string, keys Keys) error {
	p, err := Parse(text)
	if err != nil {
		return err
	}
	return p.Check(f.rec.Token(), "n1", "uid", keys)
}

func TestWholeFence(t *testing.T) {
	s, f := signer(1), newFence()
	f.evict(s)
	f.write(s, taint.PhaseDone, taint.ResultEvicted, true)
	if err := f.check(f.rec.Proof, s.Keys()); err != nil {
		t.Fatal(err)
	}
	p, _ := Parse(f.rec.Proof)
	if len(p.Links) != 3 || len(p.Links[2].Answers) != 0 || p.Links[2].Result != taint.ResultEvicted {
		t.Errorf("links: %+v, want Armed, Evicting and Done, of which Done heard nothing", p.Links)
	}
	if _, _, ok := p.LastOff(); ok {
		t.Error("a fence that is done has still an Off that counts")
	}
	before := f.rec
	f.look.Record = &before
	if again := s.Sign(f.look, f.rec, true); again != f.rec.Proof {
		t.Error("a write that adds nothing made a link")
	}
}

// TestSignsOnlyWhatItHeard: another client wrote an answer into the record before.
func TestSignsOnlyWhatItHeard(t *testing.T) {
	s, f := signer(1), newFence()
	f.write(s, taint.PhaseArmed, "", false, answer(0, "Unknown"))
	f.rec = f.rec.WithEvidence(answer(5*time.Second, "Off"))
	f.write(s, taint.PhaseEvicting, "", true)
	p, err := Parse(f.rec.Proof)
	if err != nil || f.check(f.rec.Proof, s.Keys()) != nil {
		t.Fatal("the proof is not valid")
	}
	for _, l := range p.Links {
		for _, a := range l.Answers {
			if a.State == "Off" || l.Proven {
				t.Errorf("link %+v states an Off that its signer did not hear", l)
			}
		}
	}
	if _, _, ok := p.LastOff(); ok {
		t.Error("the planted Off counts")
	}
}

// TestEveryChangeIsFound changes each byte of a proof to others, removes it, and cuts the text there.
func TestEveryChangeIsFound(t *testing.T) {
	s, f := signer(1), newFence()
	f.evict(s)
	text := f.rec.Proof
	if err := f.check(text, s.Keys()); err != nil {
		t.Fatal(err)
	}
	for i := range len(text) {
		for _, other := range []string{
			text[:i] + string(text[i]^1) + text[i+1:], text[:i] + "0" + text[i+1:], text[:i] + text[i+1:], text[:i],
			text[:i] + " " + text[i:],
		} {
			if err := f.check(other, s.Keys()); other != text && err == nil {
				t.Errorf("byte %d (%q): changed to %s and still valid", i, text[i], other)
			}
		}
	}
}

func TestChangesAreNamed(t *testing.T) {
	s, other, f := signer(1), signer(2), newFence()
	f.evict(s)
	f.write(s, taint.PhaseDone, taint.ResultEvicted, true)
	tests := []struct {
		name   string
		change func(p *Proof)
		want   string
	}{
		{"a device's word", func(p *Proof) { p.Links[1].Answers[0].Raw = "On" }, "link 2 (Evicting"},
		{"a time", func(p *Proof) { p.Links[0].Answers[0].At = start.Add(time.Nanosecond) }, "link 1 (Armed"},
		{"a boot id", func(p *Proof) { p.Links[1].BootID = "other" }, "link 2"},
		{"a Lease", func(p *Proof) { p.Links[1].LeaseRV = "8" }, "link 2"},
		{"a machine", func(p *Proof) { p.Links[1].Machine.ID = "8" }, "link 2"},
		{"no machine", func(p *Proof) { p.Links[1].Machine = nil }, "link 2"},
		{"the verdict", func(p *Proof) { p.Links[0].Proven = false }, "link 1"},
		{"an answer removed", func(p *Proof) { p.Links[1].Answers = nil }, "link 2"},
		{"a link removed", func(p *Proof) { p.Links = append(p.Links[:1], p.Links[2]) }, "link 2 (Done"},
		{"the order", func(p *Proof) { p.Links[0], p.Links[1] = p.Links[1], p.Links[0] }, "link 1 (Evicting"},
		{"the end cut off", func(p *Proof) { p.Links = p.Links[:2] }, "removed after it"},
		{"all links", func(p *Proof) { p.Links = nil }, "empty"},
		{"another node", func(p *Proof) { p.Node = "n2" }, `about node "n2"`},
		{"another fence", func(p *Proof) { p.Fence = "f-2" }, `about fence "f-2"`},
		{"an unknown key", func(p *Proof) { p.Key = "0000" }, `key "0000" signed it`},
		{"hashes made again", func(p *Proof) {
			p.Links[1].Answers[0].State = "On"
			sig := p.Signature
			*p = s.signChain(*p)
			p.Signature = sig
		}, "signature"},
		{"signed by an unknown key", func(p *Proof) { *p = other.signChain(*p) }, "is not among the 1 public keys"},
		{"signed by another key in its name", func(p *Proof) {
			key := p.Key
			*p = other.signChain(*p)
			p.Key = key
		}, "signature"},
	}
	for _, tt := range tests {
		p, _ := Parse(f.rec.Proof)
		tt.change(&p)
		err := p.Check(f.rec.Token(), "n1", "uid", s.Keys())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

// TestRotatedKey: a key never signs again what another key signed. That one may be stolen, and forge the chain.
func TestRotatedKey(t *testing.T) {
	old, next, f := signer(1), signer(2), newFence()
	f.write(old, taint.PhaseArmed, "", true, answer(0, "Off"))
	f.write(next, taint.PhaseEvicting, "", true, answer(time.Second, "Off"))
	p, _ := Parse(f.rec.Proof)
	if err := f.check(f.rec.Proof, next.Keys()); err != nil || len(p.Links) != 1 {
		t.Errorf("got %v, %d links, want its own one alone", err, len(p.Links))
	}
}

func TestLastOff(t *testing.T) {
	s := signer(1)
	for name, tt := range map[string]struct {
		write func(f *fence)
		want  time.Duration // when the Off was asked for; negative: there is none
	}{
		"asked before the mark alone": {func(f *fence) {
			f.write(s, taint.PhaseArmed, "", true, answer(0, "Off"))
			f.write(s, taint.PhaseEvicting, "", false, answer(time.Second, "Unknown"))
		}, -1},
		"asked after it": {func(f *fence) { f.evict(s) }, time.Second},
		"again": {func(f *fence) {
			f.evict(s)
			f.write(s, taint.PhaseEvicting, "", true, answer(3*time.Second, "Off"), answer(2*time.Second, "Off"))
		}, 3 * time.Second},
		"then On": {func(f *fence) {
			f.evict(s)
			f.write(s, taint.PhaseEvicting, "", false, answer(3*time.Second, "On"))
		}, -1},
		"then On of what only feeds it": {func(f *fence) {
			f.evict(s)
			on := answer(3*time.Second, "On")
			on.Fed = true
			f.write(s, taint.PhaseEvicting, "", true, answer(2*time.Second, "Off"), on)
		}, 2 * time.Second},
		"then no answer": {func(f *fence) {
			f.evict(s)
			f.write(s, taint.PhaseEvicting, "", false, answer(3*time.Second, "Unknown"))
		}, time.Second},
		"done": {func(f *fence) {
			f.evict(s)
			f.write(s, taint.PhaseDone, taint.ResultEvicted, true, answer(3*time.Second, "Off"))
		}, -1},
	} {
		f := newFence()
		tt.write(&f)
		p, _ := Parse(f.rec.Proof)
		off, _, ok := p.LastOff()
		if ok != (tt.want >= 0) || ok && !off.At.Equal(start.Add(tt.want)) {
			t.Errorf("%s: got %v, %t, want %s", name, off.At, ok, tt.want)
		}
	}
}

func TestProofIsBounded(t *testing.T) {
	if _, err := Parse(strings.Repeat(" ", taint.MaxProof+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a text that is too long: %v", err)
	}
	s, f := signer(1), newFence()
	f.write(s, taint.PhaseArmed, "", true, answer(0, "Off"))
	for i := range 100 {
		long := answer(time.Duration(i)*time.Second, "Off")
		long.Raw = strings.Repeat("\x01", 240) // six bytes each in JSON
		f.write(s, taint.PhaseEvicting, "", true, long)
	}
	p, err := Parse(f.rec.Proof)
	if err != nil || f.check(f.rec.Proof, s.Keys()) != nil {
		t.Fatalf("the proof is not valid: %v", err)
	}
	last := p.Links[len(p.Links)-1]
	if p.Links[0].Phase != taint.PhaseArmed || !last.Answers[0].At.Equal(start.Add(99*time.Second)) {
		t.Error("the first link or the newest is missing")
	}
	if len(p.Links) > maxLinks || len(f.rec.Proof) > taint.MaxProof {
		t.Errorf("%d links of %d bytes", len(p.Links), len(f.rec.Proof))
	}
}

func TestFindOff(t *testing.T) {
	s := signer(1)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	node := func(f fence) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", Annotations: map[string]string{
			taint.RecordAnnotation: f.rec.Encode(),
		}}}
		n.Status.NodeInfo.BootID = "boot"
		return n
	}
	confirmed := func(n *corev1.Node, fence string, at time.Duration) {
		n.Annotations[taint.ConfirmAnnotation] = taint.Confirmation{
			By: "ann", Reason: "both plugs", NodeUID: "uid", BootID: "boot", Fence: fence, LeaseRV: "7",
			At: start.Add(at),
		}.Encode()
	}
	confirmedBefore := func(n *corev1.Node) {
		delete(n.Annotations, taint.RecordAnnotation)
		confirmed(n, "f-1", 0)
	}
	renewed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}
	saysOn := func(f *fence) { f.write(s, taint.PhaseEvicting, "", false, answer(3*time.Second, "On")) }
	tests := []struct {
		name   string
		change func(f *fence)
		node   func(n *corev1.Node)
		lease  *coordinationv1.Lease
		now    time.Duration
		want   string // "": it holds
	}{
		{name: "holds", lease: lease},
		{name: "old", lease: lease, now: time.Hour, want: "longer than 15m0s"},
		{name: "from the future", lease: lease, now: -time.Hour, want: "a clock is wrong"},
		{name: "just as old as it may be", lease: lease, now: 15*time.Minute + time.Second},
		{name: "a heartbeat since", lease: renewed, want: "renewed its Lease"},
		{name: "no Lease any more", want: "renewed its Lease"},
		{name: "booted", lease: lease, node: func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" },
			want: "has booted"},
		{name: "another Node object", lease: lease, node: func(n *corev1.Node) { n.UID = "other" }, want: "UID"},
		{name: "another node", lease: lease, node: func(n *corev1.Node) { n.Name = "n2" }, want: `and not "n2"`},
		{name: "no record", lease: lease, node: func(n *corev1.Node) { n.Annotations = nil }, want: "no fence"},
		{name: "done", lease: lease,
			change: func(f *fence) { f.write(s, taint.PhaseDone, taint.ResultEvicted, true) }, want: "in phase Done"},
		{name: "the phase taken back", lease: lease, change: func(f *fence) {
			f.write(s, taint.PhaseDone, taint.ResultEvicted, true)
			f.rec.Phase, f.rec.Result = taint.PhaseEvicting, ""
		}, want: "no device proved"},
		{name: "not signed", lease: lease, change: func(f *fence) { f.rec.Proof = "" }, want: "not signed"},
		{name: "forged", lease: lease, change: func(f *fence) {
			*f = newFence()
			f.evict(signer(9))
		}, want: "not among the 1 public keys"},
		{name: "replayed from an earlier fence", lease: lease, change: func(f *fence) {
			f.rec.ID = "f-2"
		}, want: "about fence"},
		{name: "vouched for by a person", lease: lease, change: func(f *fence) {
			*f = newFence()
			f.write(s, taint.PhaseArmed, "", false, answer(0, "Unknown"))
			f.write(s, taint.PhaseEvicting, "", false, answer(0, "Off"), answer(0, "Unknown"))
		}, want: "no device proved"},
		{name: "a device said On since", lease: lease, change: saysOn, want: "or one said On since"},
		{name: "confirmed", lease: lease, node: confirmedBefore},
		{name: "confirmed long ago", lease: lease, now: time.Hour, node: confirmedBefore,
			want: "it was given 1h0m0s ago"},
		{name: "confirmed before a heartbeat", lease: renewed, node: confirmedBefore,
			want: "no valid confirmation: the node has renewed"},
		{name: "confirmed before a device said On", lease: lease, change: saysOn,
			node: func(n *corev1.Node) { confirmed(n, newFence().rec.ID, 2*time.Second) },
			want: "no valid confirmation: a device says On"},
		{name: "confirmed after a device said On", lease: lease, change: saysOn,
			node: func(n *corev1.Node) { confirmed(n, newFence().rec.ID, 4*time.Second) },
			want: "no valid confirmation: a device says On"},
	}
	// What neither a key nor a younger answer would change. A proof that is not there, or not valid, says nothing.
	certain := []string{"a heartbeat since", "no Lease any more", "booted", "the phase taken back",
		"vouched for by a person", "a device said On since", "confirmed before a device said On",
		"confirmed after a device said On"}
	for _, tt := range tests {
		f := newFence()
		f.evict(s)
		if tt.change != nil {
			tt.change(&f)
		}
		n := node(f)
		if tt.node != nil {
			tt.node(n)
		}
		by, err := FindOff(n, tt.lease, s.Keys(), start.Add(tt.now), 15*time.Minute)
		switch {
		case tt.want == "" && (err != nil || by == ""):
			t.Errorf("%s: refused: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %q, %v, want an error with %q", tt.name, by, err, tt.want)
		}
		refusal := FindRefusal(n, leaseVersion(tt.lease))
		if got, want := refusal != nil, slices.Contains(certain, tt.name); got != want || got && err == nil {
			t.Errorf("%s: refused for certain: %v, want that: %t; FindOff says %v", tt.name, refusal, want, err)
		} else if got && refusal.Error() != err.Error() {
			t.Errorf("%s: refused for certain: got %q, want FindOff's %q", tt.name, refusal, err)
		}
	}
}

// TestNeedsProof: a detach needs a proof while the node is not Ready and reports the volume in use.
func TestNeedsProof(t *testing.T) {
	for _, tt := range []struct {
		name, volume string
		ready        corev1.ConditionStatus
		want         bool
	}{
		{"in use", "kubernetes.io/csi/d^1", corev1.ConditionUnknown, true},
		{"in use, and the kubelet posts NotReady", "kubernetes.io/csi/d^1", corev1.ConditionFalse, true},
		{"in use, of a node without conditions", "kubernetes.io/csi/d^1", "", true},
		{"of a node that is Ready", "kubernetes.io/csi/d^1", corev1.ConditionTrue, false},
		{"another volume", "kubernetes.io/csi/d^2", corev1.ConditionUnknown, false},
		{"a volume whose name begins so", "kubernetes.io/csi/d^", corev1.ConditionUnknown, true},
		{"another driver", "kubernetes.io/csi/e^", corev1.ConditionUnknown, false},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/d^1"}}}
		if tt.ready != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tt.ready}}
		}
		if got := NeedsProof(n, tt.volume); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestKeys(t *testing.T) {
	old, next := signer(1), signer(2)
	public := EncodeKey(old.Key.Public().(ed25519.PublicKey), start)
	got, err := ParseSigner(append(EncodeSigner(next.Key), public...))
	if err != nil || !got.Key.Equal(next.Key) {
		t.Fatalf("got %v, want the key of 2", err)
	}
	listed, err := ListKeys(public)
	if err != nil || len(listed) != 1 || listed[0].Since != "2026-03-01T12:00:00Z" ||
		!bytes.Equal(listed[0].Block, public) {
		t.Errorf("listed %+v, %v", listed, err)
	}
	private := EncodeSigner(next.Key)
	for text, want := range map[string]string{
		string(private):                                `type "PRIVATE KEY" is not expected`,
		string(public) + "rest":                        "no PEM block",
		strings.Replace(string(public), "MC", "XX", 1): "PEM block",
	} {
		if _, err := ParseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("public keys %q: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "no PEM block", string(public): "no PEM block", string(private) + string(private): "not expected",
	} {
		if _, err := ParseSigner([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("signer %q: got %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: a text that is read is written in the same way, and is valid only if it is the one that was signed.
func FuzzParse(f *testing.F) {
	s, whole := signer(1), newFence()
	whole.evict(s)
	armed := newFence()
	armed.write(s, taint.PhaseArmed, "", true, answer(0, "Off"))
	for _, text := range []string{whole.rec.Proof, armed.rec.Proof, "{}", `{"links":[{}]}`, ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if p.Encode() != text {
			t.Errorf("%q is read, and written as %q", text, p.Encode())
		}
		p.LastOff()
		if err := whole.check(text, s.Keys()); err == nil && text != whole.rec.Proof && text != armed.rec.Proof {
			t.Errorf("%q is valid, and was never signed", text)
		}
	})
}
