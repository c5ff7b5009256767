// Package recording writes what the controller observed and decided, and reads it again. Package replay plays it.
//
// A recording is lines of JSON (Line), written by a Recorder in the place of a decide.Node. It begins with the first
// look at a node that is not idle, and ends when the node is: quiet time writes nothing. Its content is listed here,
// field by field: no object is written whole. The fleet's answers about the node are written, and not what led to them.
// So of a fleet of 5,000 nodes only those cost space that are looked at.
//
// It is pure: it names no client, no clock, no file and no logger.
//
// It promises: no environment, no argument, no image and no annotation of a pod is written. No credential of a device
// is written, and nothing before an @ in an address. A recording that anybody made can be shown on a terminal.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// version is the format of a recording. It is raised with every change after which an older recording would be read
// wrongly.
const version = 1

// Header begins a recording, and every part of one: a process starts, a file is started, or a configuration is read
// again.
type Header struct {
	RecordingVersion int       `json:"recordingVersion"`
	By               string    `json:"by"` // forcefence's version
	At               time.Time `json:"at"`
	TaintKey         string    `json:"taintKey"`
	Mode             string    `json:"mode"`
	ConfigDigest     string    `json:"configDigest"` // the configuration file's
}

// HeaderPrefix is the text that each recording begins with.
const HeaderPrefix = `{"recordingVersion":`

// EncodeLine returns the header as a line of a recording.
func (h Header) EncodeLine() []byte {
	h.RecordingVersion = version
	return EncodeJSON(h)
}

// DroppedLine returns the line which says that n lines were not written.
func DroppedLine(n int) []byte { return EncodeJSON(map[string]int{"dropped": n}) }

// Kind is the kind of a line.
type Kind string

// The kinds.
const (
	Begins            Kind = "begins" // a course begins, with what policies remember of the node
	Rests             Kind = "rests"  // the course is over: the node is idle
	Storage           Kind = "storage"
	NodeRead          Kind = "nodeRead"
	Pods              Kind = "pods"
	Volumes           Kind = "volumes"
	Owners            Kind = "owners"
	StorageSetting    Kind = "storageSetting"
	EtcdPods          Kind = "etcdPods"
	AwaitedClaims     Kind = "awaitedClaims"
	Claims            Kind = "claims"
	CachedAttachments Kind = "cachedAttachments"
	LiveAttachments   Kind = "liveAttachments"
	Answers           Kind = "answers"
	ActionDone        Kind = "actionDone"
	Next              Kind = "next"      // a decision
	Truncated         Kind = "truncated" // the course is too long: no more of it is written
	viewKind          Kind = "view"      // never written: keys the fleet's last view in Recorder.last
)

// noneSelected is the selector that selects nothing. No other selector is written so.
const noneSelected = "-"

// Line is one line of a course.
type Line struct {
	Node string `json:"node"`
	// Course is when the course began, in Unix milliseconds. Where several processes write, or lines are lost, it keeps
	// the lines of two courses apart.
	Course int64             `json:"course"`
	N      int               `json:"n"` // its place in the course, from 0: it reveals a missing line
	At     providers.Instant `json:"at"`
	Kind   Kind              `json:"kind"`
	Same   bool              `json:"same,omitempty"` // its body is that of the last line of this kind
	Body   json.RawMessage   `json:"body,omitempty"`
	Sent   providers.Instant `json:"sent,omitzero"`   // only of NodeRead
	NewID  string            `json:"newID,omitempty"` // only of NodeRead
	Fleet  *FleetFacts       `json:"fleet,omitempty"`
}

// FleetFacts are the fleet's answers while a decision was made, or device answers were applied.
type FleetFacts struct {
	View         *fleet.View       `json:"view,omitempty"` // nil: the same as in the decision before
	Reserved     bool              `json:"reserved,omitempty"`
	DistrustedBy map[string]string `json:"distrustedBy,omitempty"` // by device: the node whose record says so
}

// nodeBody is a look at a node, and the node's configuration.
type nodeBody struct {
	Node          *corev1.Node  `json:"node"` // slim; nil: it does not exist
	LeaseRV       string        `json:"leaseRV,omitempty"`
	LeaseDuration time.Duration `json:"leaseDuration,omitempty"`
	Facts         facts         `json:"facts"`
}

// facts are decide.Facts without the id of a fence that would begin.
type facts struct {
	Fence       fence.Facts              `json:"fence"`
	Mode        string                   `json:"mode"`
	NoDeviceErr *fault                   `json:"noDeviceErr,omitempty"`
	Evict       evict.Settings           `json:"evict"`
	Policies    []rule                   `json:"policies,omitempty"`
	Storage     map[string]action.Health `json:"storage,omitempty"`
	// StorageFences is decide.Facts.StorageFences.
	StorageFences map[string]policy.StorageFence `json:"storageFences,omitempty"`
}

// rule is a policy with its selectors as text. A nil selector selects all.
type rule struct {
	policy.Policy
	NodesSelected *string `json:"nodesSelected,omitempty"`
	PodsSelected  *string `json:"podsSelected,omitempty"`
}

// fault is an error: its class, and the text that an Event would show.
type fault struct {
	Class string `json:"class"`
	Text  string `json:"text,omitempty"`
}

type answer struct {
	State      string            `json:"state"`
	Raw        string            `json:"raw,omitempty"`
	At         providers.Instant `json:"at,omitzero"`
	Got        providers.Instant `json:"got,omitzero"`
	By         string            `json:"by,omitempty"`
	Run        string            `json:"run,omitempty"`
	SystemUUID string            `json:"systemUUID,omitempty"`
	Addresses  string            `json:"addresses,omitempty"`
	Error      *fault            `json:"error,omitempty"`
}

type outcome struct {
	Error    *fault                        `json:"error,omitempty"`
	SentAt   providers.Instant             `json:"sentAt,omitzero"`
	Withheld bool                          `json:"withheld,omitempty"`
	Results  map[string]action.WriteResult `json:"results,omitempty"`
}

type storageBody struct {
	Policies []rule                   `json:"policies,omitempty"`
	Health   map[string]action.Health `json:"health,omitempty"`
}

// Step is a decision as it is compared and shown.
type Step struct {
	Do           string   `json:"do"`
	Read         bool     `json:"read,omitempty"` // it only reads the cluster
	Live         bool     `json:"live,omitempty"` // only of ListAttachments
	Why          string   `json:"why,omitempty"`
	Detail       string   `json:"detail,omitempty"`
	RequeueAfter string   `json:"requeueAfter,omitempty"`
	Would        string   `json:"would,omitempty"` // only in mode shadow
	Record       string   `json:"record,omitempty"`
	Phase        string   `json:"phase,omitempty"` // the record's
	On           bool     `json:"on,omitempty"`
	Pods         []string `json:"pods,omitempty"`
	InUse        []string `json:"inUse,omitempty"`
	Attached     []string `json:"attached,omitempty"`
	Attachments  []string `json:"attachments,omitempty"`
	PVs          []string `json:"pvs,omitempty"`
	Returned     bool     `json:"returned,omitempty"`
	Note         string   `json:"note,omitempty"`
	Policy       string   `json:"policy,omitempty"`
	Through      []string `json:"through,omitempty"` // the devices of a power-off or a power-on
	Alert        string   `json:"alert,omitempty"`
}

// StepOf returns the Step of a decision. Its texts are cleaned, because a recording may shorten an error's text.
func StepOf(d action.Decision, devices []proof.Device) Step {
	out := Step{
		Do: action.Name(d.Action), Why: string(d.Reason), Detail: CleanText(d.Detail), Alert: CleanText(d.Alert),
		Returned: action.NeedsNoProof(d.Action), Policy: action.PolicyOf(d.Action), Read: action.IsRead(d.Action),
	}
	if d.RequeueAfter != 0 {
		out.RequeueAfter = d.RequeueAfter.String()
	}
	rec, pods := action.RecordOf(d.Action), action.PodsOf(d.Action)
	switch a := d.Action.(type) {
	case action.ListAttachments:
		out.Live = a.Live
	case action.ReadVolumes:
		pods = a.Pods
	case action.ReadOwners:
		pods = a.Pods
	case action.ReadAwaitedClaims:
		pods = a.Pods
	case action.ReadClaims:
		out.PVs = a.PVs
	case action.SetPoweredOnCondition:
		out.On = a.On
	case action.AnnouncePolicy:
		out.Note = a.Note
	case action.ClearVolumes:
		for _, v := range a.InUse {
			out.InUse = append(out.InUse, string(v))
		}
		for _, v := range a.Attached {
			out.Attached = append(out.Attached, string(v.Name))
		}
	case action.DeletePods:
		if a.ByPolicy {
			out.Policy = "any"
		}
	case action.PowerOff:
		out.Through = []string{nameOf(devices, a.Move.Device)}
	case action.PowerOn:
		for _, i := range a.Devices {
			out.Through = append(out.Through, nameOf(devices, i))
		}
	case action.WithdrawOrders:
		for _, o := range a.Orders {
			out.Through = append(out.Through, o.Device)
		}
	case action.Wait:
		if w := d.Would; w.Action != nil {
			rec, pods, out.Would = action.RecordOf(w.Action), w.Pods, action.Name(w.Action)
		}
	}
	if rec.Phase != "" {
		out.Record, out.Phase = rec.Encode(), string(rec.Phase)
	}
	for _, p := range pods {
		out.Pods = append(out.Pods, p.Namespace+"/"+p.Name)
	}
	for _, a := range action.AttachmentsOf(d.Action) {
		out.Attachments = append(out.Attachments, a.Name)
	}
	return out
}

// IsDecision reports whether the step is more than a question: it neither reads nor asks devices.
func (s Step) IsDecision() bool { return !s.Read && s.Do != "AskDevices" }

// String returns the step for a person, on one line.
func (s Step) String() string {
	text := s.Do
	switch {
	case s.Live:
		text += " live"
	case s.Would != "":
		text = "would " + s.Would
	case s.Phase != "" && s.Do != "Wait":
		text += " " + s.Phase
	case s.Do == "SetPoweredOnCondition":
		text += fmt.Sprintf(" %v", s.On)
	}
	if s.Phase != "" && s.Would != "" {
		text += " " + s.Phase
	}
	if len(s.Through) > 0 {
		text += " through " + strings.Join(s.Through, ", ")
	}
	if n := len(s.Pods); n > 0 && s.IsDecision() {
		text += " of " + decide.FormatCount(n, "pod")
	}
	if s.Why != "" {
		text += " (" + s.Why + ")"
	}
	return CleanText(text)
}

// CleanText makes a text of any writer fit to show: one printable line of 200 bytes at most.
func CleanText(text string) string {
	if text == "" {
		return ""
	}
	return providers.ErrorText(errors.New(text))
}

func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	return &fault{providers.ErrorClass(err), providers.ErrorText(err)}
}

func (f *fault) toError() error {
	if f == nil {
		return nil
	}
	if err := providers.ErrorOfClass(f.Class, f.Text); err != nil {
		return err
	}
	return errors.New(f.Text)
}

func factsOf(f decide.Facts) facts {
	out := facts{
		Fence: f.Facts, Mode: f.Mode.String(), Evict: f.Evict, Policies: rulesOf(f.Policies), Storage: f.Storage,
		StorageFences: f.StorageFences,
	}
	if f.NoDeviceErr != nil { // its whole text, because decisions quote it
		out.NoDeviceErr = &fault{providers.ErrorClass(f.NoDeviceErr), CleanText(f.NoDeviceErr.Error())}
	}
	out.Fence.NoDeviceErr, out.Fence.NewID = nil, ""
	return out
}

func (f facts) toFacts(id string) (decide.Facts, error) {
	out := decide.Facts{Facts: f.Fence, Evict: f.Evict, Storage: f.Storage, StorageFences: f.StorageFences}
	mode, known := fence.ParseMode(f.Mode)
	if !known {
		return out, fmt.Errorf("%q is not a mode", f.Mode)
	}
	out.Mode, out.NoDeviceErr, out.NewID = mode, f.NoDeviceErr.toError(), id
	var err error
	out.Policies, err = policiesOf(f.Policies)
	return out, err
}

func rulesOf(ps []policy.Policy) (out []rule) {
	text := func(s labels.Selector) *string {
		if s == nil {
			return nil
		}
		t := s.String()
		if _, selects := s.Requirements(); !selects {
			t = noneSelected
		}
		return &t
	}
	for _, p := range ps {
		r := rule{Policy: p, NodesSelected: text(p.Nodes), PodsSelected: text(p.Pods)}
		r.Nodes, r.Pods = nil, nil
		out = append(out, r)
	}
	return out
}

func policiesOf(rs []rule) (out []policy.Policy, err error) {
	selector := func(t *string) labels.Selector {
		switch {
		case t == nil || err != nil:
			return nil
		case *t == noneSelected:
			return labels.Nothing()
		}
		var s labels.Selector
		s, err = labels.Parse(*t)
		return s
	}
	for _, r := range rs {
		p := r.Policy
		p.Nodes, p.Pods = selector(r.NodesSelected), selector(r.PodsSelected)
		out = append(out, p)
	}
	return out, err
}

func answersOf(all []providers.Answer) []answer {
	out := make([]answer, len(all))
	for i, a := range all {
		out[i] = answer{
			State: a.State.String(), Raw: a.Raw, At: a.At, Got: a.Got, By: a.By, Run: a.Run, SystemUUID: a.SystemUUID,
			Addresses: string(a.Addresses), Error: faultOf(a.Err),
		}
	}
	return out
}

func (a answer) toAnswer() (out providers.Answer, err error) {
	out = providers.Answer{
		Observation: providers.Observation{
			Raw:        a.Raw,
			At:         a.At,
			Run:        a.Run,
			SystemUUID: a.SystemUUID,
			Addresses:  providers.Addresses(a.Addresses),
		},
		By: a.By, Got: a.Got, Err: a.Error.toError(),
	}
	var known bool
	if out.State, known = providers.ParsePowerState(a.State); !known {
		return out, fmt.Errorf("%q is not a power state", a.State)
	}
	return out, nil
}

// podsOf returns the pods without the fields that no decision reads.
func podsOf(all []action.Pod) []action.Pod {
	out := slices.Clone(all)
	for i := range out {
		out[i].Message = ""
	}
	return out
}

// slimNode returns the part of a Node that decisions read.
func slimNode(n *corev1.Node) *corev1.Node {
	if n == nil {
		return nil
	}
	out := &corev1.Node{}
	out.Name, out.UID, out.ResourceVersion, out.Labels = n.Name, n.UID, n.ResourceVersion, n.Labels
	for key, value := range n.Annotations {
		if domain, _, _ := strings.Cut(key, "/"); domain == "forcefence.io" {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	for _, f := range n.ManagedFields { // they show which client set a mark
		if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), taintsField) {
			out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: f.Manager, Time: f.Time, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{` + taintsField + `:{}}}`),
			})
		}
	}
	out.Spec.Unschedulable, out.Spec.Taints = n.Spec.Unschedulable, n.Spec.Taints
	for _, c := range n.Status.Conditions {
		slim := corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}
		if c.Type == corev1.NodeReady { // the kubelet's last status: a heartbeat
			slim.LastHeartbeatTime, slim.Reason = c.LastHeartbeatTime, c.Reason
		}
		out.Status.Conditions = append(out.Status.Conditions, slim)
	}
	out.Status.NodeInfo.BootID, out.Status.NodeInfo.SystemUUID = n.Status.NodeInfo.BootID, n.Status.NodeInfo.SystemUUID
	out.Status.VolumesInUse, out.Status.VolumesAttached = n.Status.VolumesInUse, n.Status.VolumesAttached
	return out
}

const taintsField = `"f:taints"`

// lookAt returns what taint.NewLook makes of a Node, with the times and the Lease of the given look.
func lookAt(node *corev1.Node, lease taint.Look, key string) taint.Look {
	look := taint.NewLook(node, nil, key, lease.Sent, lease.Got)
	if node != nil {
		look.LeaseRV, look.LeaseDuration = lease.LeaseRV, lease.LeaseDuration
	}
	return look
}

// nameOf returns the name of the device at that place.
func nameOf(devices []proof.Device, i int) string {
	if i < 0 || i >= len(devices) {
		return "none"
	}
	return devices[i].Name
}

// EncodeJSON encodes a value as JSON on one line, without what is before an @ in an address. It returns nil if the
// value cannot be encoded, as a time beyond the year 9999.
func EncodeJSON(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return userinfo.ReplaceAll(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("://"))
}

// userinfo matches what precedes the @ in an address. It may hold what JSON escapes, but for the quote that ends a text
// inside a text, as in a record.
var userinfo = regexp.MustCompile(`://(?:[^/\s"\\]|\\[^"])*@`)
