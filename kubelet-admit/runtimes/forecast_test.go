package runtimes

import "testing"

func TestForecastOf(t *testing.T) {
	const newest, old = "containerd://2.4.2", "containerd://1.7.24"
	for _, tc := range []struct {
		kubelet, os, runtime string
		want                 Hook
		byHost               bool
	}{
		{"v1.36.4", "Ubuntu 24.04.3 LTS", newest, Required, false},
		{"v1.36.4", "Ubuntu 24.04.3 LTS", old, NotAtBoot, false},
		{"v1.36.4", "Debian GNU/Linux 13 (trixie)", "docker://28.0.1", NoHook, false},
		{"v1.36.4+k3s1", "Ubuntu 24.04.3 LTS", "containerd://2.1.5-k3s1", FailsOpen, false},
		{"v1.36.4+k0s", "Ubuntu 24.04.3 LTS", newest, Required, false},
		{"v1.36.4+rke2r1", "SUSE Linux Enterprise Server 15 SP7", newest, FailsOpen, true},
		{"v1.34.5+rke2r1", "SUSE Linux Enterprise Server 15 SP7", "containerd://2.1.5-k3s1", FailsOpen, false},
		{"v1.34.5+rke2r1", "Harvester v1.7.0", "containerd://2.1.5-k3s1", FailsOpen, false},
		{"v1.34.5", "Talos (v1.13.2)", newest, NoHook, true},
		{"v1.34.5", "Talos (v1.9.0)", newest, NoHook, true},
		{"v1.36.0", "Talos (v1.14.0)", newest, FailsOpen, true},
		{"v1.36.0", "Talos (v2.0.0)", newest, FailsOpen, true},
		{"v1.36.0", "Talos (dev)", newest, FailsOpen, true},
		{"v1.32.1", "Bottlerocket OS 1.50.0 (aws-k8s-1.32)", newest, NoHook, true},
		{"v1.33.1", "Bottlerocket OS 1.50.0 (aws-k8s-1.33)", newest, FailsOpen, true},
		{"v1.35.1", "Bottlerocket OS 1.50.0 (aws-k8s-1.35)", "containerd://1.7.27", NRIOff, false},
		{"v1.35.1-gke.1", "Container-Optimized OS from Google", newest, NotAtBoot, true},
		{"v1.35.1-gke.1", "Container-Optimized OS from Google", "containerd://1.6.20", NoHook, false},
		{"v1.35.1", "Flatcar Container Linux by Kinvolk 4459.2.0 (Oklo)", newest, FailsOpen, true},
		{"v1.35.1-eks-1", "Amazon Linux 2023.9.20260101", newest, FailsOpen, true},
		{"v1.33.5", "Red Hat Enterprise Linux CoreOS 9.6.20260101-0", "cri-o://1.34.1", Required, false},
		{"v1.33.5", "Red Hat Enterprise Linux CoreOS 9.6.20260101-0", "cri-o://1.31.4", NotAtBoot, false},
		{"", "", "", NoHook, false},
	} {
		got := ForecastOf(NodeInfo{tc.kubelet, tc.os, tc.runtime})
		if got.Hook != tc.want || got.ByHost != tc.byHost || (got.Why == "") != (tc.want == Required) {
			t.Errorf("%s, %s, %s: got %+v, want %s, by the host: %v", tc.kubelet, tc.os, tc.runtime, got, tc.want,
				tc.byHost)
		}
	}
}

func FuzzForecastOf(f *testing.F) {
	f.Add("v1.34.5+rke2r1", "Talos (v1.13.2)", "containerd://2.2.1")
	f.Add("", "Talos (v00.0", "containerd://2.2.1")
	f.Add("", "Bottlerocket OS (aws-k8s-99999999999999999999.1)", "cri-o://1.34.0")
	f.Fuzz(func(t *testing.T, kubelet, os, runtime string) {
		got := ForecastOf(NodeInfo{kubelet, os, runtime})
		if (got.Why == "") != (got.Hook == Required) {
			t.Errorf("got %+v: a reason for each but %s", got, Required)
		}
	})
}
