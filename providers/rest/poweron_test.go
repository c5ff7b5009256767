package rest_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// presetsToPowerOn are all presets with their fakes.
func presetsToPowerOn() []preset {
	return []preset{
		azurePreset("/virtualMachines/n1"), digitalOceanPreset, gcePreset, hetznerPreset, lxdPreset("incus"),
		lxdPreset("lxd"), maasPreset, nutanixPreset, openstackPreset, pikvmPreset, proxmoxPreset, shellyPreset,
		tasmotaPreset, upcloudPreset, xcpngPreset,
	}
}

// A machine that says On gets no power-on, because a device may carry it out as a power cycle. Neither does one whose
// state is unknown.
func TestPowerOnAsksFirst(t *testing.T) {
	var tried []string
	for _, s := range presetsToPowerOn() {
		tried = append(tried, s.name+".yaml")
		for _, tc := range []struct {
			name string
			edit func(*fake)
			want string // the error's class
			acts bool
		}{
			{"on", func(f *fake) { f.on = true }, "ok", false},
			{"off", func(f *fake) { f.on = false }, "ok", true},
			{"a word of no state", func(f *fake) { f.on, f.word = false, s.strange }, "unreachable", false},
		} {
			t.Run(s.name+"/"+tc.name, func(t *testing.T) {
				f := s.new()
				f.password, f.changed = "hunter2", make(chan struct{})
				tc.edit(f)
				server := httptest.NewServer(f)
				defer server.Close()
				f.url = server.URL
				p, target, _ := s.open(t, f, server.URL, nil)
				defer func() { _ = p.(providers.Closer).Close(t.Context()) }()
				before, permitted := f.on, 0
				err := p.PowerOn(t.Context(), target, func() error { permitted++; return nil })
				acted := slices.Contains(f.requests.All(), true)
				if got := providers.ErrorClass(err); got != tc.want || acted != tc.acts || (permitted > 0) != tc.acts {
					t.Errorf("PowerOn: got %v; it acted: %t, and asked %d times whether it may; want %s, %t", err,
						acted, permitted, tc.want, tc.acts)
				}
				if f.on != (before || tc.acts) {
					t.Errorf("the machine runs: %t", f.on)
				}
			})
		}
	}
	for file := range rest.Presets() {
		if !slices.Contains(tried, file) {
			t.Errorf("%s is in no case of this test", file)
		}
	}
}
