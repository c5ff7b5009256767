// Package view describes for people the state of a node, of the fleet and of a fence. It shows a node's state, and
// whether its machine was on when that was observed last. It shows how far its fence is, and what comes next or what a
// person does about it. It reads what the controller and the hook write on Nodes, and the Events and Fencings that it
// is given. It calls no API and no device. The terminal and the page that show it to people share it.
//
// It is pure: it names no client, no clock and no logger, and prints nothing. What it returns is words and numbers.
//
// It promises: its results are no evidence, and nothing is decided on them. A power that no device reported is Unknown,
// and a record that cannot be read is reported as such. Much of its input is text of other writers, for example a
// kubelet. The texts of a Fleet are printable, on one line and cut; those of a Node and of TimelineOf are not. Code
// that shows these must escape or filter them.
package view

import (
	"strings"
	"unicode"
)

// OneLine returns foreign text as one printable line of at most most bytes. Of a longer text it keeps the start and the
// end: the end often says what happened. Marks that change the direction of what follows, and other invisible ones,
// become spaces.
func OneLine(text string, most int) string {
	const dots = "…"
	if len(text) > 8*most { // not all of a megabyte is looked at
		text = text[:4*most] + text[len(text)-4*most:]
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		start := (most - len(dots)) / 2
		end := len(text) - (most - len(dots) - start)
		text = strings.ToValidUTF8(text[:start], "") + dots + strings.ToValidUTF8(text[end:], "")
	}
	return text
}
