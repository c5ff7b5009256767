package room

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/view"
)

// Summary is an estimate in a few kilobytes, as the leader publishes it.
type Summary struct {
	At     time.Time                `json:"at"`
	Counts map[Kind]map[Verdict]int `json:"counts"`
	Worst  map[Kind]Failure         `json:"worst"` // of each kind, the failure with most pods that fit nowhere
	// Lacking is, by node, how many of its pods fit nowhere, and Unknown names the nodes with unknown ones. More is
	// that there are further nodes of either kind.
	Lacking map[string]int `json:"lacking,omitempty"`
	Unknown []string       `json:"unknown,omitempty"`
	More    bool           `json:"more,omitempty"`
}

const (
	maxSummaryNodes = 50            // in each of Lacking and Unknown
	maxSummaryText  = 300           // bytes of a text
	summaryLasts    = 3 * time.Hour // longer, an estimate says nothing of a node
)

// Summarize returns the summary of an estimate.
func Summarize(at time.Time, all []Failure) *Summary {
	s := &Summary{
		At: at, Counts: map[Kind]map[Verdict]int{}, Worst: map[Kind]Failure{}, Lacking: map[string]int{},
	}
	for _, kind := range Kinds {
		s.Counts[kind] = map[Verdict]int{Lacks: 0, Unknown: 0, Fits: 0}
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Failure) int { return cmp.Compare(b.Lacking, a.Lacking) })
	for _, f := range sorted {
		s.Counts[f.Kind][f.Verdict()]++
		if w := s.Worst[f.Kind]; f.Lacking > w.Lacking {
			f.Name, f.Why = cut(f.Name), cut(f.Why)
			f.Without = nil
			s.Worst[f.Kind] = f
		}
		switch {
		case f.Kind != Node || f.Verdict() == Fits:
		case f.Verdict() == Lacks && len(s.Lacking) < maxSummaryNodes:
			s.Lacking[f.Name] = f.Lacking
		case f.Verdict() == Unknown && len(s.Unknown) < maxSummaryNodes:
			s.Unknown = append(s.Unknown, f.Name)
		default:
			s.More = true
		}
	}
	return s
}

func cut(text string) string {
	if len(text) > maxSummaryText {
		return strings.ToValidUTF8(text[:maxSummaryText], "") + "…"
	}
	return text
}

// EstimatedAt implements view.Room.
func (s *Summary) EstimatedAt() time.Time { return s.At }

// Word says for a node in a word whether its pods find room: "ok", "3 pods" that do not, or "?" for unknown. A nil
// Summary knows nothing.
func (s *Summary) Word(node string, now time.Time) string {
	switch {
	case s == nil || now.Sub(s.At) > summaryLasts:
		return "?"
	case s.Lacking[node] == 1:
		return "1 pod"
	case s.Lacking[node] > 1:
		return fmt.Sprintf("%d pods", s.Lacking[node])
	case s.More || slices.Contains(s.Unknown, node):
		return "?"
	default:
		return "ok"
	}
}

// kindNames are the kinds for people, for one and for several.
var kindNames = map[Kind][2]string{
	Node: {"node", "nodes"}, Domain: {"failure domain", "failure domains"},
	Pair: {"pair of domains", "pairs of domains"},
}

// Describe says for each kind that was played how many failures leave pods without room, and names the worst.
func (s *Summary) Describe() (out []view.RoomStatement) {
	for _, kind := range Kinds {
		lacks, unknown, all := s.Counts[kind][Lacks], s.Counts[kind][Unknown], 0
		for _, n := range s.Counts[kind] {
			all += n
		}
		if all == 0 {
			continue
		}
		name := kindNames[kind][1]
		text := fmt.Sprintf("The pods of %d of %d %s fit elsewhere.", all-lacks-unknown, all, name)
		verdict := Fits
		if unknown > 0 {
			text += fmt.Sprintf(" Of %d that is unknown.", unknown)
			verdict = Unknown
		}
		if lacks > 0 {
			verdict = Lacks
		}
		if w := s.Worst[kind]; w.Lacking > 0 {
			text += fmt.Sprintf(" If %s %s fails now, %d of %d pods do not.", kindNames[kind][0], w.Name, w.Lacking,
				w.Pods)
		}
		out = append(out, view.RoomStatement{Verdict: string(verdict), Text: text})
	}
	return out
}

// DescribeLately is Describe, or nil for a Summary that is nil or old.
func (s *Summary) DescribeLately(now time.Time) []view.RoomStatement {
	if s == nil || now.Sub(s.At) > summaryLasts {
		return nil
	}
	return s.Describe()
}

// DescribeLacking says how many single nodes leave pods without room, and names the worst; "" for none, and for a
// Summary that is nil or old.
func (s *Summary) DescribeLacking(now time.Time) string {
	all := s.DescribeLately(now)
	if len(all) == 0 || s.Worst[Node].Lacking == 0 {
		return ""
	}
	return all[0].Text
}
