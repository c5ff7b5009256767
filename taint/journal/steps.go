package journal

import (
	"cmp"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/taint/api"
)

// maxOwnSteps is how many steps are kept one by one. If a fence has more, the oldest are merged into one for each kind.
const maxOwnSteps = 256

// stepsKnown holds the steps of a fence that a process knows of: its own one by one, and those that another process
// wrote, as one entry for each kind. The zero value knows none. Its methods do not change what it holds.
//
// Kind and begin identify a step of our own. Only the time can show whether another process counted it already: what
// that process wrote covers everything that began between its begin and its end.
type stepsKnown struct {
	own     []api.Step // each once
	written []api.Step // one for each kind
}

// addStep returns the steps with one more. A step that was added before may have continued since.
func (k stepsKnown) addStep(s api.Step) stepsKnown {
	s.Step, s.Error = cutText(s.Step), cutText(s.Error)
	s.Began, s.Ended = toMicroTime(s.Began.Time), toMicroTime(s.Ended.Time)
	if s.Ended.Before(&s.Began) {
		s.Ended = s.Began
	}
	s.Objects, s.Times = max(s.Objects, 0), timesOf(s)
	own := slices.Clone(k.own)
	i := slices.IndexFunc(own, func(o api.Step) bool { return o.Step == s.Step && o.Began.Time.Equal(s.Began.Time) })
	if i < 0 {
		own = append(own, s)
	} else {
		own[i] = mergeSameSteps(own[i], s)
	}
	if len(own) <= maxOwnSteps {
		return stepsKnown{own, k.written}
	}
	slices.SortFunc(own, func(a, b api.Step) int { return a.Began.Compare(b.Began.Time) })
	half := len(own) / 2
	old := stepsKnown{own[:half], k.written}
	return stepsKnown{own: slices.Clone(own[half:])}.addWritten(old.mergedSteps())
}

// addWritten returns the steps with those that another process wrote, or this one before.
func (k stepsKnown) addWritten(written []api.Step) stepsKnown {
	out := slices.Clone(k.written)
	for _, s := range written {
		s.Times = timesOf(s)
		i := slices.IndexFunc(out, func(o api.Step) bool { return o.Step == s.Step })
		switch {
		case i < 0:
			out = append(out, s)
		case isOutside(out[i], s):
			out[i] = sumSteps(out[i], s)
		default: // one was written after the other, and includes it
			out[i] = mergeSameSteps(out[i], s)
		}
	}
	return stepsKnown{k.own, out}
}

// mergedSteps returns one entry for each kind of step, in the order in which they first began.
func (k stepsKnown) mergedSteps() []api.Step {
	own := slices.SortedFunc(slices.Values(k.own), func(a, b api.Step) int {
		return cmp.Or(a.Ended.Compare(b.Ended.Time), a.Began.Compare(b.Began.Time))
	})
	var inside, outside, all []api.Step // own steps that a written entry covers; the other own steps; then all steps
	put := func(to *[]api.Step, s api.Step, merge func(a, b api.Step) api.Step) {
		if i := slices.IndexFunc(*to, func(o api.Step) bool { return o.Step == s.Step }); i >= 0 {
			(*to)[i] = merge((*to)[i], s)
		} else {
			*to = append(*to, s)
		}
	}
	for _, s := range own {
		if slices.ContainsFunc(k.written, func(w api.Step) bool { return w.Step == s.Step && !isOutside(w, s) }) {
			put(&inside, s, sumSteps)
		} else {
			outside = append(outside, s)
		}
	}
	for _, s := range k.written {
		put(&all, s, mergeSameSteps)
	}
	for _, s := range inside {
		put(&all, s, mergeSameSteps)
	}
	for _, s := range outside {
		put(&all, s, sumSteps)
	}
	for i := range all {
		if all[i].Times == 1 {
			all[i].Times = 0 // the form in which it is written
		}
	}
	slices.SortFunc(all, func(a, b api.Step) int {
		return cmp.Or(a.Began.Compare(b.Began.Time), strings.Compare(a.Step, b.Step))
	})
	return all
}

// isOutside reports whether s began at a time that w does not cover.
func isOutside(w, s api.Step) bool { return s.Began.After(w.Ended.Time) || s.Began.Before(&w.Began) }

// mergeSameSteps merges two entries about the same steps: the one that ended later knows how they failed.
func mergeSameSteps(a, b api.Step) api.Step {
	m := joinSpans(a, b)
	if c := cmp.Or(a.Ended.Compare(b.Ended.Time), strings.Compare(a.Error, b.Error)); c > 0 {
		m.Error = a.Error
	} else {
		m.Error = b.Error
	}
	m.Objects, m.Times = max(a.Objects, b.Objects), max(a.Times, b.Times)
	return m
}

// sumSteps adds two entries about different steps. The failure is the last one; b ended last.
func sumSteps(a, b api.Step) api.Step {
	m := joinSpans(a, b)
	m.Error = cmp.Or(b.Error, a.Error)
	m.Objects, m.Times = a.Objects+b.Objects, a.Times+b.Times
	return m
}

// joinSpans returns b with the span of both.
func joinSpans(a, b api.Step) api.Step {
	m := b
	if a.Began.Before(&m.Began) {
		m.Began = a.Began
	}
	if m.Ended.Before(&a.Ended) {
		m.Ended = a.Ended
	}
	return m
}

// timesOf returns how often a step was done: a step without a count was done once.
func timesOf(s api.Step) int32 { return max(s.Times, 1) }

// cutText cuts a text of unknown origin to MaxError bytes of valid UTF-8.
func cutText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), api.MaxError)], "")
}
