package runtimes

import "testing"

func TestHookOf(t *testing.T) {
	for text, want := range map[string]Hook{
		"containerd://2.2.1":               Required,
		"containerd://2.2.0-rc.1":          Required,
		"containerd://2.1.5-k3s1.33":       FailsOpen,
		"containerd://2.0.0":               FailsOpen,
		"containerd://1.7.26-k3s1":         NRIOff,
		"containerd://1.7.25":              NotAtBoot,
		"containerd://1.7.24~ds1":          NotAtBoot,
		"containerd://1.6.36":              NoHook,
		"containerd://v2.3":                Required,
		"cri-o://1.34.0":                   Required,
		"cri-o://1.33.4":                   FailsOpen,
		"cri-o://1.32.0":                   FailsOpen,
		"cri-o://1.31.9":                   NotAtBoot,
		"cri-o://1.25.9":                   NoHook,
		"docker://28.0.1":                  NoHook,
		"containerd://":                    NoHook,
		"containerd://latest":              NoHook,
		"":                                 NoHook,
		"containerd-like://2.2.1":          NoHook,
		"containerd://2.2.1://cri-o://1.0": Required,
	} {
		if got := HookOf(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
