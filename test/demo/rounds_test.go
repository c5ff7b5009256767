package main

import (
	"testing"
	"time"
)

// The parts of a round's time add up to the whole, as they are printed.
func TestDescribeParts(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		parts []part
		want  string
	}{
		{"no part", nil, ""},
		{"rounded, 13.6 s in all", []part{{"to notice", 4060 * ms}, {"the fence", 5549 * ms}, {"for db", 13620 * ms}},
			"4.1 s to notice, 1.4 s the fence, 8.1 s for db"},
		{"a part without time", []part{{"to notice", 4100 * ms}, {"for queue", 4140 * ms}, {"for db", 9000 * ms}},
			"4.1 s to notice, 4.9 s for db"},
		{"longer than a minute", []part{{"to notice", 61500 * ms}}, "61.5 s to notice"},
	} {
		if got := describeParts(tc.parts); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
