package drain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// Progress is how far a held-up drain has come, for one guard. It is an annotation of the Node, so readers need no
// controller.
type Progress struct {
	Guard     string    `json:"guard"`
	Policy    Policy    `json:"policy"`
	Since     time.Time `json:"since"`              // when the drain was first held up
	WrittenAt time.Time `json:"writtenAt"`          // when this Progress was written
	Total     int       `json:"total"`              // replicas that have held it up since then
	Left      int       `json:"left"`               // replicas that still hold it up
	Volumes   []Held    `json:"volumes,omitempty"`  // the first maxNamed of those left
	Unknown   string    `json:"unknown,omitempty"`  // why the storage's state is unknown: that holds up the drain, too
	NoBudget  bool      `json:"noBudget,omitempty"` // there is no budget of ours: forcefence does not hold up the drain
}

// Held is a volume that holds up a drain.
type Held struct {
	Volume  string `json:"volume"`
	Replica string `json:"replica"`
	Why     string `json:"why"`
}

// maxNamed is how many volumes a Progress names: annotations are no place for thousands.
const maxNamed = 20

// NextProgress returns the guard's progress after a decision, or nil if nothing holds up the drain. before is what the
// Node's annotation has; nil if it has none.
func NextProgress(before *Progress, guard string, d Decision, now time.Time) *Progress {
	if !d.IsBlocked() {
		return nil
	}
	p := Progress{
		Guard: guard, Policy: d.Policy, Since: now, WrittenAt: now,
		Left: len(d.Blockers), Total: len(d.Blockers), Unknown: d.Unknown, NoBudget: !d.Held,
	}
	for i, b := range d.Blockers {
		if i == maxNamed {
			break
		}
		p.Volumes = append(p.Volumes, Held{Volume: b.Replica.Volume, Replica: b.Replica.Name, Why: b.Why})
	}
	if before == nil || before.Policy != d.Policy {
		return &p
	}
	p.Since, p.Total = before.Since, max(before.Total, p.Left)
	if p.Left > before.Left { // more replicas came
		p.Total = max(p.Total, before.Total+p.Left-before.Left)
	}
	if d.Unknown != "" { // how many are left is unknown: keep the numbers of before
		p.Left, p.Total, p.Volumes = before.Left, before.Total, before.Volumes
	}
	if p.isSameAs(*before) {
		return before
	}
	return &p
}

// isSameAs reports whether both say the same, whenever they were written. Total changes only with Left.
func (p Progress) isSameAs(o Progress) bool {
	return p.Guard == o.Guard && p.Policy == o.Policy && p.Left == o.Left &&
		p.Unknown == o.Unknown && p.NoBudget == o.NoBudget &&
		slices.Equal(p.Volumes, o.Volumes)
}

// Rate returns how many replicas left per minute so far, and how long the rest takes at that rate. known is false until
// one has left.
func (p Progress) Rate(now time.Time) (perMinute float64, rest time.Duration, known bool) {
	gone, elapsed := p.Total-p.Left, now.Sub(p.Since)
	if gone <= 0 || elapsed <= 0 {
		return 0, 0, false
	}
	return float64(gone) / elapsed.Minutes(), time.Duration(float64(elapsed) / float64(gone) * float64(p.Left)), true
}

// Summary returns the progress as a sentence that stays the same while the storage's state does.
func (p Progress) Summary() string {
	switch {
	case p.Unknown != "":
		return "the state of the storage is unknown: " + p.Unknown
	case len(p.Volumes) == 0:
		return ""
	}
	v := p.Volumes[0]
	more := ""
	if p.Left > 1 {
		more = fmt.Sprintf("; and %d more", p.Left-1)
	}
	return fmt.Sprintf("volume %s, replica %s: %s%s", cmp.Or(v.Volume, "(unknown)"), v.Replica, v.Why, more)
}

// ProgressOf reads the progress from a Node's annotation, by guard. It returns nil if the annotation cannot be read. It
// skips entries with unprintable text, which we never write: the node's own kubelet can write there, and people see it
// on their terminals.
func ProgressOf(n *corev1.Node) map[string]*Progress {
	var list []*Progress
	if json.Unmarshal([]byte(n.Annotations[taint.DrainAnnotation]), &list) != nil {
		return nil
	}
	out := map[string]*Progress{}
	for _, p := range list {
		if p != nil && p.isPrintable() {
			out[p.Guard] = p
		}
	}
	return out
}

func (p Progress) isPrintable() bool {
	text := p.Guard + string(p.Policy) + p.Unknown
	for _, v := range p.Volumes {
		text += v.Volume + v.Replica + v.Why
	}
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// EncodeProgress returns the annotation's text, or "" if there is no progress.
func EncodeProgress(all map[string]*Progress) string {
	var list []*Progress
	for _, p := range all {
		if p != nil {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.SortFunc(list, func(a, b *Progress) int { return cmp.Compare(a.Guard, b.Guard) })
	text, _ := json.Marshal(list) // never fails: numbers and texts
	return string(text)
}
