package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/reason"
)

// DescribeGone returns a banner if volumes are attached to Nodes that were deleted, as the newest Events about their
// names say. exist are the names of all Nodes.
func DescribeGone(events map[string][]Event, exist map[string]bool) []Banner {
	var names []string
	var text string // of the first
	for _, name := range slices.Sorted(maps.Keys(events)) {
		about := slices.DeleteFunc(slices.Clone(events[name]), func(e Event) bool {
			return e.Reason != string(reason.GoneAttached) && e.Reason != string(reason.GoneDetached)
		})
		e := NewestOwnEvent(about)
		if exist[name] || e == nil || e.Reason != string(reason.GoneAttached) {
			continue
		}
		if names = append(names, name); len(names) == 1 {
			text = e.Text
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Banner{{
		About: PartGone, Title: "Volumes are attached to deleted nodes",
		Text:   fmt.Sprintf("%s: %s. %s", decide.FormatCount(len(names), "deleted node"), FormatNames(names), text),
		Remedy: PlainRemedy(reason.GoneAttached),
	}}
}
