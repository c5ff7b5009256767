package providers_test

import (
	"errors"
	"testing"

	"github.com/forcefence/forcefence/providers"
)

// TestPermitSends: a refusal is ErrNotSent only while nothing was permitted, and it lasts.
func TestPermitSends(t *testing.T) {
	late := errors.New("too late")
	for _, tt := range []struct {
		name  string
		still []error // of each call of still; a nil func of none
		panic bool
		want  []string // Class of each call
	}{
		{name: "permitted on every attempt", still: []error{nil, nil, nil}, want: []string{"ok", "ok", "ok"}},
		{name: "refused at once, and for good", still: []error{late, nil}, want: []string{"not_sent", "not_sent"}},
		{name: "refused at the retry", still: []error{nil, late, nil},
			want: []string{"ok", "unreachable", "unreachable"}},
		{name: "a caller's not sent at the retry", still: []error{nil, providers.WithClass(providers.ErrNotSent, late)},
			want: []string{"ok", "unreachable"}},
		{name: "panics", panic: true, want: []string{"not_sent", "not_sent"}},
	} {
		calls := 0
		permit := providers.PermitSends(func() error {
			if tt.panic {
				panic("a bug")
			}
			calls++
			return tt.still[calls-1]
		})
		for i, want := range tt.want {
			err := permit()
			if providers.ErrorClass(err) != want {
				t.Errorf("%s: call %d: got %v (%s), want %s", tt.name, i+1, err, providers.ErrorClass(err), want)
			}
			if errors.Is(err, providers.ErrNotSent) != (want == "not_sent") {
				t.Errorf("%s: call %d: got %v, which claims the wrong thing", tt.name, i+1, err)
			}
		}
	}
	if err := providers.PermitSends(nil)(); providers.ErrorClass(err) != "not_sent" {
		t.Errorf("no still: got %v, want a refusal", err)
	}
	if err := providers.PermitSends(func() error { return late })(); !errors.Is(err, late) {
		t.Errorf("got %v, which does not wrap the cause", err)
	}
}
