package taint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Phase is how far a fence has come. It is written before the action that it announces.
type Phase string

// The phases, in their order. Done is final; in every other phase a new leader continues from the record.
const (
	PhasePoweringOff Phase = "PoweringOff" // no mark yet: a power-off was or will be sent
	PhaseArmed       Phase = "Armed"       // the mark is there; nothing was evicted
	PhaseEvicting    Phase = "Evicting"    // pods may have been tombstoned
	PhaseDone        Phase = "Done"
)

// Result is how a fence ended. It is empty in every phase but Done.
type Result string

// The results. Evicted and Returned moved pods; the others moved none.
const (
	ResultEvicted         Result = "Evicted"         // all pods are gone, all volumes detached
	ResultReturned        Result = "Returned"        // the machine came back during the eviction
	ResultLifted          Result = "Lifted"          // alive, or the proof failed, before any pod was touched
	ResultCancelled       Result = "Cancelled"       // the node recovered, or was excluded, before the power-off
	ResultPowerOffFailed  Result = "PowerOffFailed"  // the device did not report Off in time
	ResultMarkRemoved     Result = "MarkRemoved"     // someone removed the mark in the middle
	ResultReleased        Result = "Released"        // a person ran forcefence release
	ResultNeverPoweredOff Result = "NeverPoweredOff" // the node came back with the boot id it had: its device lied
)

// ByPerson is Record.By of a fence that a person began with kubectl taint. If another program set the mark, By is
// byOther and the program's name.
const (
	ByPerson = "person"
	byOther  = "external/"
)

// IsVouchedFor reports whether a person, or another controller, began the fence and vouches for it.
func (r *Record) IsVouchedFor() bool {
	return r != nil && (r.By == ByPerson || strings.HasPrefix(r.By, byOther))
}

// Record is what a Node's annotation holds about its fence.
type Record struct {
	ID      string `json:"id"` // the mark's value; "" is possible for a person's mark only
	Phase   Phase  `json:"phase"`
	Result  Result `json:"result,omitempty"`
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID,omitempty"`  // nodeInfo.bootID when the mark was set
	LeaseRV string `json:"leaseRV,omitempty"` // the node Lease's resourceVersion then; "" if it had none
	// Heartbeat is the Node's last status by its kubelet then (Look.Heartbeat); zero: none, or a record of an older
	// version.
	Heartbeat time.Time   `json:"heartbeat,omitzero"`
	Since     time.Time   `json:"since"`              // when the fence began
	At        time.Time   `json:"at"`                 // when the phase was entered
	By        string      `json:"by"`                 // the controller's identity, or who set the mark instead
	Device    string      `json:"device,omitempty"`   // the device that is asked, the first of several: provider/device
	Machine   *MachineRef `json:"machine,omitempty"`  // the machine asked about; nil: none, or of an older version
	Run       string      `json:"run,omitempty"`      // the machine's run, told with the Off; "" if boot ids suffice
	RunBy     string      `json:"runBy,omitempty"`    // the device that reported it
	Restart   string      `json:"restart,omitempty"`  // another run, once the node was back under the same boot id
	PowerOff  bool        `json:"powerOff,omitempty"` // the fence began with a power-off of ours
	Repeats   int         `json:"repeats,omitempty"`  // earlier fences of this node life that ended after their mark
	Evidence  []Evidence  `json:"evidence,omitempty"`
	// Detaching are the last volumes that the mark of a returned node waits for. The hook then holds only pods that use
	// them; empty: it holds all. See Look.DetachingClaims.
	Detaching []Detaching `json:"detaching,omitempty"`
	// Claims identify the claims of the pods that the node had when the mark was set (see EncodeClaims); "": unknown. A
	// new leader learns from them whose volumes the mark waits for. Only in phase Evicting.
	Claims string `json:"claims,omitempty"`
	// Staying are the pods that the fence left on the node although a user may expect that they move. Only in phase
	// Done. No decision reads it.
	Staying Staying `json:"staying,omitzero"`
	// FalseOffs are the devices that reported Off while this node's machine was on, in this fence or an earlier one.
	// Only a node with several devices has them. See DistrustedDevices.
	FalseOffs []DeviceRef `json:"falseOffs,omitempty"`
	// OffBy are the devices through which our power-off turned the machine off; empty: it may have gone off otherwise.
	OffBy []DeviceRef `json:"offBy,omitempty"`
	// PowerOffTo names the devices that accepted a power-off of ours, or may have, since the node's last sign of life.
	// In phase PoweringOff it also names those that one is about to be sent through. No decision reads it, except that
	// a device is named here before a power-off is sent through it.
	PowerOffTo []DeviceRef `json:"powerOffTo,omitempty"`
	// Orders are the devices that may still carry out a power-off of this fence, or of an earlier one. They store it
	// until it is taken back. Each is named here before it is given. See Look.OrdersToWithdraw.
	Orders     []DeviceRef `json:"orders,omitempty"`
	PowerOns   []time.Time `json:"powerOns,omitempty"`   // when power-ons were announced, earlier fences' included
	AfterFence AfterFence  `json:"afterFence,omitempty"` // what happened to the machine in phase Done
	// Proof is the signed chain of what devices answered (package attest); "": nothing was signed. No decision reads
	// it.
	Proof string `json:"proof,omitempty"`
	// Newer are the fields that a newer version wrote, each in its JSON. They decide nothing here and stay in every
	// record of this fence, so that the version that knows them finds them again. A new fence begins without them.
	Newer map[string]json.RawMessage `json:"-"`
}

// Detaching is a volume that is still to be detached from a node that came back.
type Detaching struct {
	PV string `json:"pv"`
	// Claim is the one claim, as namespace/name, by which a kubelet mounts the volume; "": no kubelet does.
	Claim string `json:"claim,omitempty"`
}

// DeviceRef is a device that answered for a node, and the machine that it was asked about.
type DeviceRef struct {
	Device  string      `json:"device"`            // provider/device
	Machine *MachineRef `json:"machine,omitempty"` // what it was asked about; nil: a record of an older version
}

// IsSame reports whether both are the same device, asked about the same machine.
func (s DeviceRef) IsSame(o DeviceRef) bool {
	if s.Machine == nil || o.Machine == nil {
		return s.Device == o.Device && s.Machine == o.Machine
	}
	return s.Device == o.Device && *s.Machine == *o.Machine
}

// MaxOrders is how many orders a record may name. If there are more, the newest remain.
const MaxOrders = 2 * MaxDevices

// WithOrders returns the record with orders to these devices added.
func (r Record) WithOrders(devices ...DeviceRef) Record {
	list := slices.Clone(r.Orders)
	for _, d := range devices {
		if !slices.ContainsFunc(list, d.IsSame) {
			list = append(list, d)
		}
	}
	r.Orders = list[max(len(list)-MaxOrders, 0):]
	return r
}

// WithoutOrders returns the record without the orders to these devices.
func (r Record) WithoutOrders(taken []DeviceRef) Record {
	r.Orders = slices.DeleteFunc(slices.Clone(r.Orders), func(o DeviceRef) bool {
		return slices.ContainsFunc(taken, o.IsSame)
	})
	return r
}

// AfterFence is what happened to the machine after its fence was Done. It is empty until something does.
type AfterFence string

// What may happen to a machine after its fence. A value of a newer version leaves it as it is.
const (
	AfterFencePowerOn     AfterFence = "PowerOn"     // a power-on was or will be sent
	AfterFencePoweredOn   AfterFence = "PoweredOn"   // it was on after that
	AfterFenceCameOn      AfterFence = "CameOn"      // it was on before any was sent: someone else turned it on
	AfterFenceHandedOver  AfterFence = "HandedOver"  // Karpenter was, or will be, told to replace it
	AfterFenceFencedAgain AfterFence = "FencedAgain" // it stays off: this fence came too soon after an earlier power-on
)

// Evidence is one answer, or one reason to act without an answer.
type Evidence struct {
	At    time.Time `json:"at"`            // when the question was sent
	From  string    `json:"from"`          // the provider; where the node has several devices, provider/device
	State string    `json:"state"`         // a PowerState's name, or "None" if no device can answer
	Raw   string    `json:"raw,omitempty"` // the device's own word, or the error's class
	// SystemUUID is that of the machine that the device answered for; "" if the device does not know it.
	SystemUUID string `json:"systemUUID,omitempty"`
	// Fed reports that the device only gives the machine power, while another one knew the machine's own state.
	Fed bool `json:"fed,omitempty"`
}

// ContradictsOff reports whether the answer contradicts an Off of the machine. The On of a device that only gives it
// power does not, once another device knows more: a machine that was shut down has power.
func (e Evidence) ContradictsOff() bool { return e.State == "On" && !e.Fed }

// Bounds of a record: an annotation is not a log.
const (
	maxEvidence = 3*MaxDevices + 4 // all of a node's devices are asked for each of three phases
	maxWord     = 240

	// MaxDetaching is how many volumes a record may name: 64 of the longest names are 40 KB of the 256 KiB that all
	// annotations have.
	MaxDetaching = 64

	maxNewer = 16 << 10 // the bytes of all fields of a newer version: else a kubelet could leave no room for ours

	// MaxProof is how many bytes a Proof may have. A usual one has 2 KB.
	MaxProof = 32 << 10

	// MaxDevices is how many devices a node may have, in all its levels: a BMC, the two outlets of two power supplies,
	// a cloud or a hypervisor, a person.
	MaxDevices = 6

	// MaxPowerOffTo is how many devices a record may name in PowerOffTo: the configuration may give the node others in
	// the middle.
	MaxPowerOffTo = 2 * MaxDevices
)

// WithEvidence returns the record with the evidence added. If there is too much, it keeps the first entry and the
// newest.
func (r Record) WithEvidence(more ...Evidence) Record {
	list := slices.Clone(r.Evidence)
	for _, e := range more {
		e.At = e.At.UTC().Truncate(time.Millisecond)
		// A device's word may be any bytes; bytes that are not UTF-8 would be read back differently.
		e.Raw = strings.ToValidUTF8(e.Raw[:min(len(e.Raw), maxWord)], "")
		if !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	if len(list) > maxEvidence {
		list = append(list[:1], list[len(list)-maxEvidence+1:]...)
	}
	r.Evidence = list
	return r
}

// EnterPhase returns the record in a new phase, entered at the given time. It names no volumes: the new phase observes
// again what it waits for.
func (r Record) EnterPhase(p Phase, res Result, at time.Time) Record {
	r.Phase, r.Result, r.At, r.Detaching = p, res, at.UTC().Truncate(time.Millisecond), nil
	r.Staying = Staying{}
	if p != PhaseEvicting {
		r.Claims = ""
	}
	return r
}

// Day is the period in which power-ons of a node are counted.
const Day = 24 * time.Hour

// LastPowerOn returns when the last power-on of ours was announced; zero: none is known.
func (r *Record) LastPowerOn() time.Time {
	if r == nil || len(r.PowerOns) == 0 {
		return time.Time{}
	}
	return r.PowerOns[len(r.PowerOns)-1]
}

// PowerOnsOf returns the power-ons of the day before at, and any later ones, because another clock may have written
// them.
func (r *Record) PowerOnsOf(at time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(r.PowerOns), func(on time.Time) bool { return at.Sub(on) >= Day })
}

// AnnouncePowerOn returns the record that announces a power-on at the given time. day holds the earlier ones that still
// count (PowerOnsOf).
func (r Record) AnnouncePowerOn(day []time.Time, at time.Time) Record {
	r.PowerOns, r.AfterFence = append(slices.Clone(day), at.UTC().Truncate(time.Millisecond)), AfterFencePowerOn
	return r
}

// HasOff reports whether the record's evidence has an Off from that source.
func (r *Record) HasOff(from string) bool {
	return r != nil &&
		slices.ContainsFunc(r.Evidence, func(e Evidence) bool { return e.From == from && e.State == "Off" })
}

// DistrustedDevices returns the devices that this record makes untrusted; a record that a person released makes none
// untrusted.
func (r *Record) DistrustedDevices() []DeviceRef {
	switch {
	case r == nil || r.Result == ResultReleased:
		return nil
	case r.Result == ResultNeverPoweredOff && len(r.FalseOffs) == 0:
		return []DeviceRef{{Device: r.Device, Machine: r.Machine}}
	default:
		return r.FalseOffs
	}
}

// WithFalseOffs returns the record of a fence whose machine turns out to have been on all the time. Of several devices,
// in their order, it adds those whose Off is in the evidence. If there are none, it adds the device that the record
// names.
func (r Record) WithFalseOffs(devices []DeviceRef) Record {
	lied := slices.Clone(r.FalseOffs)
	add := func(l DeviceRef) {
		if !slices.ContainsFunc(lied, func(o DeviceRef) bool { return o.Device == l.Device }) {
			lied = append(lied, l)
		}
	}
	before := len(lied)
	for _, d := range devices {
		if r.HasOff(d.Device) {
			add(d)
		}
	}
	if len(lied) == before && (before > 0 || len(devices) > 1) {
		add(DeviceRef{Device: r.Device, Machine: r.Machine})
	}
	r.FalseOffs = lied
	return r
}

// Encode returns the annotation's value.
func (r Record) Encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		// A time outside years 0..9999 is the only value here that JSON refuses; codec tests check that none is
		// written.
		return ""
	}
	for _, k := range slices.Sorted(maps.Keys(r.Newer)) {
		name, _ := json.Marshal(k) // a string always can be
		b = slices.Concat(b[:len(b)-1], []byte{','}, name, []byte{':'}, r.Newer[k], []byte{'}'})
	}
	return string(b)
}

// errRecord is the class of a record that cannot be read. The mark is kept then and nothing is evicted: what it
// announced is unknown.
var errRecord = errors.New("fence record does not parse")

// ParseRecord reads an annotation's value. It keeps unknown fields (Record.Newer), and ignores those within lists and
// objects. An unknown phase or result is an error, since what it announced cannot be known. So a version that must stop
// older ones from touching a fence writes a new phase. One that only adds to a record adds a field of its own.
func ParseRecord(s string) (Record, error) {
	r, err := decodeRecord(s)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	switch r.Phase {
	case PhasePoweringOff, PhaseArmed, PhaseEvicting:
		if r.Result != "" {
			return Record{}, fmt.Errorf("%w: phase %s with result %q", errRecord, r.Phase, r.Result)
		}
	case PhaseDone:
		switch r.Result {
		case ResultEvicted, ResultReturned, ResultLifted, ResultCancelled, ResultPowerOffFailed, ResultMarkRemoved,
			ResultReleased, ResultNeverPoweredOff:
		default:
			return Record{}, fmt.Errorf("%w: unknown result %q", errRecord, r.Result)
		}
	default:
		return Record{}, fmt.Errorf("%w: unknown phase %q", errRecord, r.Phase)
	}
	switch {
	case r.ID == "" && !r.IsVouchedFor():
		return Record{}, fmt.Errorf("%w: no id", errRecord)
	case r.NodeUID == "":
		return Record{}, fmt.Errorf("%w: no nodeUID", errRecord)
	case r.By == "":
		return Record{}, fmt.Errorf("%w: no by", errRecord)
	}
	if len(r.Proof) > MaxProof { // the Node's kubelet may have written it
		r.Proof = ""
	}
	r.Orders = r.Orders[:min(len(r.Orders), MaxOrders)]
	r.Staying = r.Staying.limit()
	return r, nil
}

// decodeRecord decodes a record, and the fields that Record does not have into Newer.
func decodeRecord(s string) (Record, error) {
	var r Record
	strict := json.NewDecoder(strings.NewReader(s))
	strict.DisallowUnknownFields()
	if strict.Decode(&r) == nil && strict.InputOffset() == int64(len(s)) {
		return r, nil // the usual case: no other version wrote it
	}
	r = Record{}
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		return Record{}, err
	}
	r.Newer = newerFields(s)
	return r, nil
}

// newerFields returns the fields of a record, an object, that Record does not have. Case does not matter: encoding/json
// accepts any case for our fields. It returns nil if there are none, or too many.
func newerFields(s string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &all) != nil {
		return nil
	}
	size := 0
	for k, v := range all {
		if slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, k) }) {
			delete(all, k)
			continue
		}
		size += len(k) + len(v)
	}
	if len(all) == 0 || size > maxNewer {
		return nil
	}
	return all
}

// fields are the names of Record's fields in JSON.
var fields = func() (names []string) {
	for f := range reflect.TypeFor[Record]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// RecordOf reads a Node's record. It returns nil and no error if the Node has none.
func RecordOf(node *corev1.Node) (*Record, error) {
	s, ok := node.Annotations[RecordAnnotation]
	if !ok {
		return nil, nil
	}
	r, err := ParseRecord(s)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// IsFenced reports whether the node is being fenced: it is marked, or has a record that is open or cannot be read.
func IsFenced(node *corev1.Node, key string) bool {
	rec, err := RecordOf(node)
	_, marked := FindMark(node, key, rec.IDOr(""))
	return err != nil || marked || rec.IsOpen()
}

// Token returns a text that distinguishes this fence from every other of its node: a person may use the same id twice.
func (r Record) Token() string { return r.ID + "/" + r.Since.UTC().Format("20060102T150405.000") }

// IsOpen reports whether the fence is still going on.
func (r *Record) IsOpen() bool { return r != nil && r.Phase != PhaseDone }

// IDOr returns the record's id, or other if there is no record.
func (r *Record) IDOr(other string) string {
	if r == nil {
		return other
	}
	return r.ID
}
