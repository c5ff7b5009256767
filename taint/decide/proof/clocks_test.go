package proof

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// An Off that was on its way during a suspension proves nothing, and a wall clock that was set back takes nothing from
// one.
func TestCountedByBothClocks(t *testing.T) {
	for wall, want := range map[time.Duration]providers.PowerState{
		time.Second: providers.PowerOff, -time.Hour: providers.PowerOff, TTL + time.Second: providers.PowerUnknown,
	} {
		got := providers.Instant{Wall: now.Wall.Add(wall), Mono: now.Mono + time.Second}
		a := providers.Answer{Observation: providers.Observation{State: providers.PowerOff, At: now}, Got: got}
		if a = withoutStaleOff(a); a.State != want {
			t.Errorf("%s by the wall clock, a second by the monotonic clock: got %s, want %s", wall, a.State, want)
		}
	}
}
