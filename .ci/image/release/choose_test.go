package main

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name, wanted       string
		tags               []string
		changed, rehearsal bool
		want, err          string
	}{
		{name: "the tag", tags: []string{"nightly", "v1.2.3"}, want: "v1.2.3"},
		{name: "the tag, named", wanted: "v1.2.3-rc.1", tags: []string{"v1.2.3", "v1.2.3-rc.1"}, want: "v1.2.3-rc.1"},
		{name: "no tag", err: "want one such as"},
		{name: "two tags", tags: []string{"v1.2.3", "v1.2.3-rc.1"}, err: "want one such as"},
		{name: "another tag", wanted: "v1.2.4", tags: []string{"v1.2.3"}, err: "and not v1.2.4"},
		{name: "changed", tags: []string{"v1.2.3"}, changed: true, err: "are changed"},
		{name: "changed, named", wanted: "v1.2.3", tags: []string{"v1.2.3"}, changed: true, err: "are changed"},
		{name: "rehearsal", wanted: "v0.0.1-try", changed: true, rehearsal: true, want: "v0.0.1-try"},
		{name: "rehearsal without a version", tags: []string{"v1.2.3"}, rehearsal: true, err: "set VERSION"},
		{name: "no v", wanted: "1.2.3", tags: []string{"1.2.3"}, err: "is none of"},
		{name: "short", wanted: "v1.2", rehearsal: true, err: "is none of"},
		{name: "with a build", wanted: "v1.2.3+4", rehearsal: true, err: "is none of"},
		{name: "a flag", wanted: "--help", rehearsal: true, err: "is none of"},
		{name: "words", wanted: "v1.2.3 -X a", rehearsal: true, err: "is none of"},
	} {
		got, err := choose(tt.wanted, tt.tags, tt.changed, tt.rehearsal)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", tt.name, got, err, tt.want, tt.err)
		}
	}
}
