// Package view says what people see of a node, of the fleet and of a fence: how a node is, whether its machine was on when
// that was seen last, how far its fence is, and what comes next, or what a person does about it. It reads what the
// controller and the hook write on Nodes, and what it is given of Events and Fencings. It asks nobody. Whoever shows that to
// people, on a terminal or a page, shares it.
//
// It is pure: it names no client, no clock and no logger, and prints nothing. What it returns is words and numbers.
//
// It promises: what it says is no evidence, and nothing is decided on it. A power that nobody told is Unknown, and a record
// that cannot be read is said to be one. Much of what it is given is somebody else's text, a kubelet's for one. What a Fleet
// says is printable, on one line and cut; a Node and a Timeline are not. Whoever shows them escapes or filters them.
package view

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// OneLine is somebody's text as one printable line of at most that many bytes. Marks that change the direction of what follows, and others that
// are not seen, become spaces.
func OneLine(text string, most int) string {
	const dots = "…"
	if len(text) > 4*most { // not all of a megabyte is looked at
		text = text[:4*most]
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most-len(dots)], "") + dots
	}
	return text
}

// formatDuration is a duration for people.
func formatDuration(d time.Duration) string {
	if d = max(d, 0); d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
