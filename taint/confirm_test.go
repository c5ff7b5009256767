package taint

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConfirmed(t *testing.T) {
	c := Confirmation{LastFence: "f-0", By: "ann@example.net", Reason: "seen it dark <rack 7> & unplugged it",
		NodeUID: "u1", BootID: "b1", Fence: "f-1", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	record := func(id string, p Phase, res Result) string {
		return Record{ID: id, NodeUID: "u1", By: "me"}.EnterPhase(p, res, c.At).Encode()
	}
	first := c
	first.LastFence = ""
	for _, tc := range []struct {
		name   string
		text   string
		record string
		change func(*corev1.Node)
		says   string // "": it holds
	}{
		{"before its fence, the first", first.Encode(), "", nil, ""},
		{"in its fence", c.Encode(), record("f-1", PhaseEvicting, ""), nil, ""},
		{"after another fence", c.Encode(), record("f-0", PhaseDone, ResultLifted), nil, ""},
		{"in another fence", c.Encode(), record("f-0", PhaseArmed, ""), nil, "for fence f-1, and f-0 is open"},
		{"after a fence that came after its own", c.Encode(), record("f-2", PhaseDone, ResultEvicted), nil,
			"another fence has been done since"},
		{"of the first fence, after another", first.Encode(), record("f-2", PhaseDone, ResultEvicted), nil,
			"another fence has been done since"},
		{"of the first fence, after a person's mark", first.Encode(),
			Record{NodeUID: "u1", By: ByPerson}.EnterPhase(PhaseDone, ResultEvicted, c.At).Encode(), nil,
			"another fence has been done since"},
		{"its record is gone", c.Encode(), "", nil, "another fence has been done since"},
		{"after its fence", c.Encode(), record("f-1", PhaseDone, ResultLifted), nil, "its fence is done"},
		{"beside a record that cannot be read", c.Encode(), "{", nil, "does not parse"},
		{"of another Node", c.Encode(), record("f-0", PhaseDone, ResultLifted), func(n *corev1.Node) { n.UID = "u2" },
			"another Node"},
		{"of another boot", c.Encode(), record("f-0", PhaseDone, ResultLifted),
			func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b2" }, "booted since"},
		{"no JSON", "yes", "", nil, "invalid character"},
		{"a space more", strings.Replace(c.Encode(), ",", ", ", 1), "", nil, "forcefence did not write it"},
		{"two names", strings.Replace(c.Encode(), `,"at"`, `,"by":"bob","at"`, 1), "", nil,
			"forcefence did not write it"},
		{"a word more", strings.Replace(c.Encode(), `,"at"`, `,"x":1,"at"`, 1), "", nil, "forcefence did not write it"},
		{"no person", strings.Replace(c.Encode(), c.By, "", 1), "", nil, "missing"},
		{"no reason", strings.Replace(c.Encode(), c.Reason, "", 1), "", nil, "missing"},
		{"too much of a reason", strings.Replace(c.Encode(), c.Reason, strings.Repeat("x", MaxReason+1), 1), "", nil,
			"too long"},
		{"no fence", strings.Replace(c.Encode(), "f-1", "", 1), "", nil, "missing"},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{ConfirmAnnotation: tc.text}}}
		n.Status.NodeInfo.BootID = "b1"
		if tc.record != "" {
			n.Annotations[RecordAnnotation] = tc.record
		}
		if tc.change != nil {
			tc.change(n)
		}
		got, err := ConfirmationOf(n)
		if (err == nil) != (tc.says == "") ||
			err != nil && (!errors.Is(err, ErrConfirmation) || !strings.Contains(err.Error(), tc.says) || got != nil) ||
			err == nil && got.Fence != c.Fence {
			t.Errorf("%s: got %+v, %v, want %q", tc.name, got, err, tc.says)
		}
	}
	if got, err := ConfirmationOf(&corev1.Node{}); got != nil || err != nil {
		t.Errorf("a Node without one: got %+v, %v", got, err)
	}
	if s := c.Encode(); !strings.HasPrefix(s, `{"by":"ann@example.net","`) || strings.Contains(s, "\n") ||
		!strings.Contains(s, "<rack 7> &") {
		t.Errorf("written as %s", s)
	}
}
