//go:build unix

package store

import (
	"errors"
	"strings"
	"testing"
)

func TestViolations(t *testing.T) {
	ev := func(k Kind, node, boot string) Event { return Event{Kind: k, Node: node, Boot: boot, Volume: "v"} }
	onA := []Event{ev(Boot, "a", "1"), ev(Boot, "b", "1"), ev(Publish, "a", ""), ev(Mount, "a", "1")}
	tests := []struct {
		name string
		more []Event
		want []string // part of each violation
	}{
		{"mounted once", nil, nil},
		{"in order", []Event{ev(Unmount, "a", "1"), ev(Unpublish, "a", ""), ev(Publish, "b", ""), ev(Mount, "b", "1")},
			nil},
		{"again on its node", []Event{ev(Publish, "a", ""), ev(Unmount, "a", "1"), ev(Mount, "a", "1")}, nil},
		{"after a power cut",
			[]Event{ev(Off, "a", "1"), ev(Unpublish, "a", ""), ev(Publish, "b", ""), ev(Mount, "b", "1")}, nil},
		{"after a reboot",
			[]Event{ev(Boot, "a", "2"), ev(Unpublish, "a", ""), ev(Publish, "b", ""), ev(Mount, "b", "1")}, nil},
		{"a restart of the node half ends no mount", []Event{ev(Boot, "a", "1"), ev(Unpublish, "a", "")},
			[]string{"unpublished from a while mounted"}},
		{"another boot's power cut ends no mount", []Event{ev(Off, "a", "0"), ev(Unpublish, "a", "")},
			[]string{"unpublished from a while mounted"}},
		{"unpublished while mounted", []Event{ev(Unpublish, "a", "")}, []string{"unpublished from a while mounted"}},
		{"unpublished from another", []Event{ev(Unpublish, "b", "")}, nil},
		{"not published", []Event{ev(Unmount, "a", "1"), ev(Mount, "b", "1")},
			[]string{`mounted on b while published to "a"`}},
		{"never published", []Event{{Kind: Mount, Node: "a", Boot: "1", Volume: "w"}},
			[]string{`mounted on a while published to ""`}},
		{"published twice", []Event{ev(Publish, "b", "")}, []string{"published to b while published to a"}},
		{
			"two nodes",
			[]Event{ev(Unpublish, "a", ""), ev(Publish, "b", ""), ev(Mount, "b", "1")},
			[]string{"unpublished from a while", "mounted on b (boot 1) while mounted on a"},
		},
		{"busy while the holder runs", []Event{ev(Busy, "b", "1")},
			[]string{"given to b (boot 1) while mounted on a (boot 1)"}},
		{"busy while the holder is torn down", []Event{ev(Off, "a", "1"), ev(Busy, "b", "1")}, nil},
		{"was not off", []Event{ev(Off, "a", "1"), ev(Mount, "a", "1")}, []string{"which was said to be off"}},
		{"refusals are no violation", []Event{ev(Refused, "b", "1")}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Violations(append(append([]Event{}, onA...), tt.more...))
			ok := len(got) == len(tt.want)
			for i := range tt.want {
				ok = ok && strings.Contains(got[i], tt.want[i])
			}
			if !ok {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStoreOutlivesItsProcess(t *testing.T) {
	if m := Missing(); m != "" {
		t.Skip("SKIPPED: " + m)
	}
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Owner("v"); !errors.Is(err, ErrNotFound) {
		t.Errorf("before create: got %v, want %v", err, ErrNotFound)
	}
	if err := s.Create("../v"); err == nil {
		t.Error("a name that leaves the folder: got no error")
	}
	if err := s.Create("v"); err != nil {
		t.Fatal(err)
	}
	if err := s.With("v", func(node *string) error { *node = "a"; return nil }); err != nil {
		t.Fatal(err)
	}
	refuse := errors.New("no")
	if err := s.With("v", func(node *string) error { *node = "b"; return refuse }); !errors.Is(err, refuse) {
		t.Errorf("refused change: got %v", err)
	}
	again, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Create("v"); err != nil {
		t.Error(err)
	}
	if node, err := again.Owner("v"); node != "a" || err != nil {
		t.Errorf("create again: got %q, %v; want the volume as it is", node, err)
	}
}
