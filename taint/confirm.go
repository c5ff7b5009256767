package taint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ConfirmAnnotation is the Node annotation that holds a person's Confirmation.
const ConfirmAnnotation = "forcefence.io/confirmed-off"

// Confirmation is a person's statement that a node's machine is off: evidence for one fence, of one boot of one Node.
// The admission policies of deploy require By to be the user who writes it. For that, By must come first in what Encode
// returns.
type Confirmation struct {
	By      string `json:"by"`     // the person's user name, as the API server knows it
	Reason  string `json:"reason"` // how the person knows
	NodeUID string `json:"nodeUID"`
	BootID  string `json:"bootID"`
	Fence   string `json:"fence"` // the id of the fence that it is evidence for: the open one, else the next one
	// LastFence is LastFenceID of the Node's record then. If the Node has another by now, a different fence came next.
	LastFence string    `json:"lastFence"`
	LeaseRV   string    `json:"leaseRV"` // the resourceVersion of the node's Lease; "": it had none
	At        time.Time `json:"at"`      // when it was given, by the person's clock
}

// MaxReason bounds a Confirmation's reason, in bytes.
const MaxReason = 200

// Encode returns the annotation's value: one line of JSON that escapes only the characters that JSON must escape.
func (c Confirmation) Encode() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(c) != nil {
		return "" // a time outside years 0..9999, which none is
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// LastFenceID returns the id that a Confirmation uses for a Node's last fence; "" is none.
func LastFenceID(r *Record) string {
	if r == nil {
		return ""
	}
	return cmp.Or(r.ID, "-") // a person's mark may be without a value
}

// ErrConfirmation is the class of errors about a confirmation that does not count.
var ErrConfirmation = errors.New("confirmation is not valid")

// ParseConfirmation reads an annotation's value. It accepts only what Encode writes: another JSON text of the same
// meaning could name one person to the admission policy and a different one to a reader.
func ParseConfirmation(s string) (Confirmation, error) {
	var c Confirmation
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return Confirmation{}, fmt.Errorf("%w: %w", ErrConfirmation, err)
	}
	switch {
	case c.Encode() != s:
		return Confirmation{}, fmt.Errorf("%w: forcefence did not write it", ErrConfirmation)
	case c.By == "" || c.Reason == "" || len(c.Reason) > MaxReason ||
		c.NodeUID == "" || c.BootID == "" || c.Fence == "" || c.At.IsZero():
		return Confirmation{}, fmt.Errorf("%w: a field is missing or too long", ErrConfirmation)
	}
	return c, nil
}

// ConfirmationOf returns the confirmation on a Node if it is bound to that Node, its boot, and its open fence or one to
// come. It returns nil and no error if the Node has none. Every error is an ErrConfirmation. It does not check when the
// confirmation was given.
func ConfirmationOf(node *corev1.Node) (*Confirmation, error) {
	s, ok := node.Annotations[ConfirmAnnotation]
	if !ok {
		return nil, nil
	}
	c, err := ParseConfirmation(s)
	if err != nil {
		return nil, err
	}
	rec, err := RecordOf(node)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfirmation, err)
	case c.NodeUID != string(node.UID):
		return nil, fmt.Errorf("%w: it is for another Node of that name", ErrConfirmation)
	case c.BootID != node.Status.NodeInfo.BootID:
		return nil, fmt.Errorf("%w: the machine has booted since", ErrConfirmation)
	case rec.IsOpen() && rec.ID != c.Fence:
		return nil, fmt.Errorf("%w: it is for fence %s, and %s is open", ErrConfirmation, c.Fence, rec.ID)
	case !rec.IsOpen() && rec != nil && rec.ID == c.Fence:
		return nil, fmt.Errorf("%w: its fence is done", ErrConfirmation)
	case !rec.IsOpen() && LastFenceID(rec) != c.LastFence:
		return nil, fmt.Errorf("%w: another fence has been done since", ErrConfirmation)
	}
	return &c, nil
}
