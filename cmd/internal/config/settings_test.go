package config_test

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
)

// An environment variable reaches the Settings, over another value of the file and where the file names none.
func TestEnvironmentReachesSettings(t *testing.T) {
	const rules = "providers: [{name: racks, plain: {}}]\n" +
		"nodes: [{name: all, provider: racks, machine: {from: systemUUID}}]\n"
	labelled := node("n1", "spare=yes")
	for _, tc := range []struct {
		variable, value string
		file            string // its own value of the key
		arrived         func(s decide.Settings) bool
	}{
		{"MODE", "fence", "mode: shadow\n", func(s decide.Settings) bool {
			return s.Mode(labelled).Mode == fence.Fence
		}},
		{"MODE", "disabled", "mode: fence\n", func(s decide.Settings) bool {
			return s.Mode(labelled).Mode == fence.Disabled
		}},
		{"POWER_OFF_AFTER", "2m", "powerOffAfter: 30s\n", func(s decide.Settings) bool {
			limits, _ := s.FenceFor(labelled)
			return limits.PowerOffAfter == 2*time.Minute
		}},
		{"POWER_OFF_TIMEOUT", "7s", "powerOffTimeout: 9s\n", func(s decide.Settings) bool {
			return s.Fence.PowerOffTimeout == 7*time.Second && s.Fence.Retry == 35*time.Second
		}},
		{"EXCLUDE_CORDONED", "true", "excludeCordoned: false\n",
			func(s decide.Settings) bool { return s.Fence.Cordoned }},
		{"EXCLUDE_SELECTOR", "spare", "excludeSelector: other\n", func(s decide.Settings) bool {
			return s.Excluded(labelled) == "excludeSelector spare matches its labels"
		}},
		{"EVICT_FIRST", "app=csi", "evictFirst: app=rook\n", func(s decide.Settings) bool {
			return s.EvictFirst.String() == "app=csi"
		}},
		{"DETACH_TIMEOUT", "11s", "detachTimeout: 1m\n", func(s decide.Settings) bool {
			return s.Evict.DetachTimeout == 11*time.Second
		}},
		{"ON_DETACH_TIMEOUT", "delete-attachments", "onDetachTimeout: alert\n", func(s decide.Settings) bool {
			return s.Evict.OnDetachTimeout == evict.ForceDetach
		}},
		{"MANUAL_MARKS", "trust", "manualMarks: refuse\n", func(s decide.Settings) bool { return s.Evict.TrustPerson }},
		{"STORM_GUARD_MAX_POWER_OFFS", "7", "stormGuard: {maxPowerOffs: 1}\n", func(s decide.Settings) bool {
			return s.Limits.MaxPowerOffs == fleet.Amount{Number: 7}
		}},
		{"STORM_GUARD_CONTROL_PLANE", "quorum", "stormGuard: {controlPlane: never}\n",
			func(s decide.Settings) bool { return s.Fence.Quorum }},
		{"STORM_GUARD_KUBE_VIRT_HOSTS", "powerOff", "stormGuard: {kubeVirtHosts: never}\n",
			func(s decide.Settings) bool { return s.Fence.VMHosts }},
	} {
		t.Run(tc.variable+"="+tc.value, func(t *testing.T) {
			for name, text := range map[string]string{"not in the file": rules, "over the file": rules + tc.file} {
				t.Setenv("FORCEFENCE_"+tc.variable, "")
				if tc.arrived(parse(t, text).Settings("home")) {
					t.Errorf("%s: the value holds without the variable", name)
				}
				t.Setenv("FORCEFENCE_"+tc.variable, tc.value)
				if got := parse(t, text).Settings("home"); !tc.arrived(got) {
					t.Errorf("%s: got %+v, want it to hold the variable's value", name, got)
				}
			}
		})
	}
	if got := config.Default().Settings("").Fence.AfterFence.Delay; got != config.PowerOnDelay {
		t.Errorf("delay of power-ons: got %s, want %s", got, config.PowerOnDelay)
	}
}
