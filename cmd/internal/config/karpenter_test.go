package config_test

import (
	"slices"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
)

// A machine that Karpenter replaces is not powered on.
func TestHandOverWarnsOfPowerOn(t *testing.T) {
	const rest = "mode: fence\nnodes:\n- name: all\n  provider: virt\n  machine: {from: systemUUID}\n" +
		"providers:\n- name: virt\n  plain: {}\n"
	for text, want := range map[string]bool{
		"karpenter: handOver\nafterFence: powerOn\n":      true,
		"karpenter: handOver\n":                           false,
		"karpenter: leaveDeleting\nafterFence: powerOn\n": false,
		"afterFence: powerOn\n":                           false,
	} {
		cfg := parse(t, text+rest)
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool { return w.Path == "afterFence" })
		if got != want {
			t.Errorf("%q: warned %v, want %v: %v", text, got, want, cfg.Warnings())
		}
	}
}
