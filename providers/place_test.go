package providers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

type placer func() (providers.Placement, error)

func (p placer) FindGuest(context.Context, string, providers.Target) (providers.Placement, error) {
	return p()
}

// TestAskPlace: absent is what a hypervisor said to a question of this call, and nothing else.
func TestAskPlace(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, tt := range map[string]struct {
		say    providers.Placement
		err    error
		panics bool
		absent bool
		want   error
	}{
		"absent": {say: providers.Placement{Absent: true, At: providers.InstantOf(start.Add(time.Hour))},
			absent: true},
		"there": {say: providers.Placement{At: providers.InstantOf(start.Add(time.Hour)),
			Raw: strings.Repeat("a guest ", 100)}},
		"absent, long ago": {say: providers.Placement{Absent: true, At: providers.InstantOf(start.Add(-1))},
			want: providers.ErrStale},
		"absent, and when": {say: providers.Placement{Absent: true}, want: providers.ErrStale},
		"an error": {say: providers.Placement{Absent: true, At: providers.InstantOf(start.Add(time.Hour))},
			err: providers.ErrNotFound, want: providers.ErrNotFound},
		"panics": {panics: true, want: providers.ErrPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			p := providers.AskPlace(t.Context(), placer(func() (providers.Placement, error) {
				if tt.panics {
					panic("no such thing")
				}
				return tt.say, tt.err
			}), "hv1", providers.Target{}, providers.Now)
			if p.Absent != tt.absent || !errors.Is(p.Err, tt.want) || p.HasAnswer() != (tt.want == nil) ||
				p.At.Before(providers.InstantOf(start)) || p.Got.Before(p.At) || len(p.Raw) > 240 {
				t.Errorf("got %+v", p)
			}
		})
	}
	if (providers.PlaceAnswer{}).HasAnswer() {
		t.Error("no hypervisor was asked, but there is an answer")
	}
}
