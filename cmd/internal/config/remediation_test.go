package config_test

import (
	"slices"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
)

// With NodeHealthCheck a machine that stays off starts its next template. It is warned of where requests count, and
// nowhere else.
func TestRemediationWarnsOfLeaveOff(t *testing.T) {
	const rest = "nodes:\n- name: all\n  provider: virt\n  machine: {from: systemUUID}\n" +
		"providers:\n- name: virt\n  plain: {}\n"
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"left off", "mode: onRequest\nremediation: {namespaces: [requests]}\n", true},
		{"of some nodes", "modes:\n- {selector: pool=db, mode: onRequest}\nremediation: {namespaces: [requests]}\n",
			true},
		{"powered on", "mode: onRequest\nremediation: {namespaces: [requests]}\nafterFence: powerOn\n", false},
		{"another mode", "mode: fence\nremediation: {namespaces: [requests]}\n", false},
		{"no requests", "mode: fence\n", false},
	} {
		cfg := parse(t, tc.text+rest)
		got := slices.ContainsFunc(cfg.Warnings(), func(w config.Error) bool { return w.Path == "afterFence" })
		if got != tc.want {
			t.Errorf("%s: warned %v, want %v: %v", tc.name, got, tc.want, cfg.Warnings())
		}
	}
}
