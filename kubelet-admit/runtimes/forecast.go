package runtimes

import (
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// NodeInfo is what a Node says of itself (status.nodeInfo) before anything is installed on it.
type NodeInfo struct {
	KubeletVersion string // v1.36.4+rke2r1
	OSImage        string // Talos (v1.13.2)
	Runtime        string // containerd://2.2.1
}

// Forecast is what the hook can do on a node, and why it is not more.
type Forecast struct {
	Hook Hook
	Why  string // a sentence without its full stop; "" for Required
	// ByHost: the distribution is the reason, not the runtime's version, so a later runtime is no remedy.
	ByHost bool
}

// Hooks lists what the hook can do, from nothing on.
var Hooks = []Hook{NoHook, NRIOff, NotAtBoot, FailsOpen, Required}

// reasons are why a runtime's version allows no more.
var reasons = map[Hook]string{
	NoHook:    "the container runtime cannot run the hook",
	NRIOff:    "NRI is off by default in this version",
	NotAtBoot: "only the DaemonSet's hook holds pods: after a boot, pods may start before it",
	FailsOpen: "the runtime cannot require the hook: if the hook stops, pods start",
}

// hosts are the distributions that allow less than their runtime does. docs/reference/distributions.md lists what each
// allows.
var hosts = []struct {
	os, kubelet *regexp.Regexp // what they match; nil: anything
	before      string         // only below this version, which is the first group's; "": each
	most        Hook
	why         string
}{
	{regexp.MustCompile(`^Talos \(v(\d{1,6}\.\d{1,6})`), nil, "1.14", NoHook,
		"Talos before 1.14 switches NRI off, and nothing can switch it on"},
	{regexp.MustCompile(`^Talos `), nil, "", FailsOpen,
		"Talos keeps the runtime's configuration read-only: only its own machine configuration can require the hook"},
	{regexp.MustCompile(`^Bottlerocket .*k8s-(\d{1,6}\.\d{1,6})`), nil, "1.33", NoHook,
		"Bottlerocket switches NRI off before its variants for Kubernetes 1.33"},
	{regexp.MustCompile(`^Bottlerocket `), nil, "", FailsOpen,
		"Bottlerocket loses the runtime's configuration with each boot, so the hook cannot be required"},
	{regexp.MustCompile(`^Container-Optimized OS`), nil, "", NotAtBoot,
		"Container-Optimized OS runs no program that is put on its disk: after a boot, pods may start before the " +
			"DaemonSet's hook"},
	{regexp.MustCompile(`^Flatcar `), nil, "", FailsOpen,
		"Flatcar's own configuration of containerd imports no drop-in, so the hook cannot be required"},
	{regexp.MustCompile(`^Amazon Linux 2023`), nil, "", FailsOpen,
		"the configuration of containerd on AL2023 imports no drop-in: only a NodeConfig can require the hook"},
	{nil, regexp.MustCompile(`\+rke2r\d`), "", FailsOpen,
		"RKE2 makes the static pods of its servers, and they lack the annotation: only agents can require the hook"},
}

// ForecastOf returns what the hook can do on a node as its distribution makes it. Where some of these nodes can do
// more, Why says which. The node's kubelet chooses these words, so they decide nothing else.
func ForecastOf(n NodeInfo) Forecast {
	hook := HookOf(n.Runtime)
	f := Forecast{Hook: hook, Why: reasons[hook]}
	for _, h := range hosts {
		text := n.OSImage
		match := h.os
		if match == nil {
			text, match = n.KubeletVersion, h.kubelet
		}
		m := match.FindStringSubmatch(text)
		if m == nil || h.before != "" && !isBefore(m[1], h.before) ||
			slices.Index(Hooks, h.most) >= slices.Index(Hooks, f.Hook) {
			continue
		}
		f = Forecast{Hook: h.most, Why: h.why, ByHost: true}
	}
	return f
}

// isBefore compares two versions. Text that is none is not before any.
func isBefore(text, than string) bool {
	v, err := version.ParseGeneric(text)
	return err == nil && v.LessThan(version.MustParseGeneric(than))
}
