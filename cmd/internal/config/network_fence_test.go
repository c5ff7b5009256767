package config_test

import (
	"testing"
	"time"
)

// A policy that has its storage cut nodes off ends only pods whose volumes are all of that storage, and frees them.
func TestNetworkFence(t *testing.T) {
	const rest = "mode: observe\npolicies:\n- {name: p, drivers: [rbd], withoutProof: storage-fences"
	for _, tt := range []struct {
		name, keys  string
		fences, all bool
		delay       time.Duration
	}{
		{"no class", "}\n", false, false, 0},
		{"a class", ", networkFenceClasses: [c]}\n", true, true, time.Minute},
		{"its keys", ", networkFenceClasses: [c], volumes: all, fenceDelay: 30s}\n", true, true, 30 * time.Second},
	} {
		cfg := parse(t, rest+tt.keys)
		p := cfg.Settings("home").Policies[0]
		if p.NeedsFence() != tt.fences || cfg.FencesStorage() != tt.fences || p.AllVolumes != tt.all ||
			p.Detach != tt.all || p.FenceDelay != tt.delay {
			t.Errorf("%s: got %+v, want fences %t, all volumes %t, detached %[4]t, delay %s", tt.name, p, tt.fences,
				tt.all, tt.delay)
		}
	}
}
