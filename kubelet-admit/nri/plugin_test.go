package nri

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// runtimeOf is NRI's stub with a runtime of that version.
type runtimeOf struct {
	stub.Stub
	version string
}

func (r runtimeOf) RuntimeNRIVersion() string { return r.version }

// TestPluginGuards checks that with every version of the runtime the plugin subscribes to a request about containers
// besides that about sandboxes, and that all these requests hold and admit by the same rule.
func TestPluginGuards(t *testing.T) {
	for version, wants := range map[string][]string{
		"v0.9.0":  {"RunPodSandbox", "CreateContainer"},
		"unknown": {"RunPodSandbox", "CreateContainer"},
		"v0.10.0": {"RunPodSandbox", "ValidateContainerAdjustment"},
	} {
		p := &plugin{stub: runtimeOf{version: version},
			configure: func(string) (*view, error) { return knowing(), nil }}
		mask, err := p.Configure(t.Context(), "", "containerd", "v1")
		if err != nil || mask != api.MustParseEventMask(wants...) || !slices.Equal(p.requests, wants) {
			t.Errorf("NRI %s: subscribed to %s, %v, want %q", version, mask.PrettyString(), err, wants)
		}
		for name, ask := range map[string]func(*api.PodSandbox) error{
			"RunPodSandbox": func(pod *api.PodSandbox) error { return p.RunPodSandbox(t.Context(), pod) },
			"ValidateContainerAdjustment": func(pod *api.PodSandbox) error {
				return p.ValidateContainerAdjustment(t.Context(), &api.ValidateContainerAdjustmentRequest{Pod: pod})
			},
			"CreateContainer": func(pod *api.PodSandbox) error {
				_, _, err := p.CreateContainer(t.Context(), pod, &api.Container{})
				return err
			},
		} {
			if err := ask(&api.PodSandbox{Namespace: "default", Name: "a", Uid: "a"}); err != nil {
				t.Errorf("%s of a pod that may start: got %v", name, err)
			}
			if err := ask(&api.PodSandbox{Namespace: "default", Name: "b", Uid: "b"}); err == nil {
				t.Errorf("%s of an unknown pod is allowed", name)
			}
		}
	}
}

// TestPluginThatDoesNotAnswer checks that a request fails that the plugin does not answer in time, if the runtime's NRI
// supports that.
func TestPluginThatDoesNotAnswer(t *testing.T) {
	dir := kit.SocketDir(t)
	l := &lab{t: t, node: "n1", dir: dir, boot: testBoot}
	l.config = l.ownConfig() // its kubeconfig is not there
	l.startNRI()
	l.hook()
	l.cord.cut()
	if got := l.runPod(&corev1.Pod{}); got == "" {
		t.Error("the request passed without an answer")
	}
}
