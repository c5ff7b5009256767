package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one fault of a file.
type Error struct {
	File    string // as it was given, or the environment variable
	Line    int    // from 1; of the key, or of what holds it where the key is missing; 0 for a variable
	Path    string // "providers[1].redfish.address"; "" for the whole file
	Problem string // what is wrong and what to do; never a secret's value
	NoFile  bool   // it is that a file does not exist here, which SkipFiles accepts
}

// Error returns "file:line: path: problem".
func (e Error) Error() string {
	text := e.File + ": "
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d: ", e.File, e.Line)
	}
	if e.Path != "" {
		text += e.Path + ": "
	}
	return text + e.Problem
}

// Errors are all faults of a file, by line.
type Errors []Error

// maxShown is how many faults a message lists: more would hide the first, which often causes the others.
const maxShown = 100

// Error returns one line per fault.
func (e Errors) Error() string {
	lines := mapList(e[:min(len(e), maxShown)], Error.Error)
	if more := len(e) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the first Error.
func (e Errors) Unwrap() []error { return mapList(e, func(err Error) error { return err }) }

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.File, b.File), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Problem, b.Problem))
	})
	return slices.Compact(e)
}

// mapList returns what f returns for each item.
func mapList[T, U any](items []T, f func(T) U) []U {
	out := make([]U, len(items))
	for i, v := range items {
		out[i] = f(v)
	}
	return out
}

// oneLine replaces control characters and line breaks by blanks. So a text from elsewhere cannot break a message.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// nearest returns the word of known that was probably meant: one that differs in case or in at most about a third of
// its letters, else one that begins with word. Of equally near words it takes one that begins with word. It returns ""
// if there is none.
func nearest(word string, known []string) string {
	best, found := 1+max(1, len(word)/3), ""
	begins := func(k string) bool { return strings.HasPrefix(strings.ToLower(k), strings.ToLower(word)) }
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if d < best || d == best && found != "" && begins(k) && !begins(found) {
			best, found = d, k
		}
	}
	for _, k := range known {
		if found == "" && len(word) > 2 && begins(k) {
			found = k
		}
	}
	return found
}

// didYouMean ends a message about an unknown word with a suggestion; "" if no known word is near.
func didYouMean(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	s, t := []rune(a), []rune(b)
	d := make([][]int, len(s)+1)
	for i := range d {
		d[i] = make([]int, len(t)+1)
		d[i][0] = i
	}
	for j := range t {
		d[0][j+1] = j + 1
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			change := 1
			if s[i-1] == t[j-1] {
				change = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+change)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(s)][len(t)]
}
