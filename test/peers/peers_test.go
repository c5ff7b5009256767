package peers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestAgentSucceeded(t *testing.T) {
	const log = `{"level":"info","ts":"2026-03-01T12:00:01Z","logger":"executer","msg":"command failed","uid":"a"}
E0301 12:00:02.000000 a library's line
{"level":"info","ts":"2026-03-01T12:00:03.5Z","logger":"executer","msg":"command completed","uid":"a"}
{"level":"info","ts":"2026-03-01T12:00:09Z","logger":"executer","msg":"command completed","uid":"b"}
`
	before, _, _ := strings.Cut(log, "E0301")
	for want, log := range map[time.Time]string{
		time.Date(2026, 3, 1, 12, 0, 3, 5e8, time.UTC): log, {}: before,
	} {
		if got := agentSucceeded([]byte(log)); !got.Equal(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestFARTemplate(t *testing.T) {
	text, err := farTemplate(Options{Username: "fence", Password: `p"w`, Action: "off", BMCs: map[string]string{
		"n1": "https://127.0.0.1:4001", "n2": "https://127.0.0.1:4002/redfish/v1/Systems/n2"}}, "OutOfServiceTaint")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Spec struct{ Template struct{ Spec map[string]any } }
	}
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	spec := got.Spec.Template.Spec
	for key, want := range map[string]map[string]any{
		"sharedparameters": {"--action": "off", "--username": "fence", "--password": `p"w`},
		"nodeparameters": {"--ip": map[string]any{"n1": "127.0.0.1", "n2": "127.0.0.1"},
			"--ipport":      map[string]any{"n1": "4001", "n2": "4002"},
			"--systems-uri": map[string]any{"n2": "/redfish/v1/Systems/n2"}},
	} {
		if diff := cmp.Diff(want, spec[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if _, err := farTemplate(Options{BMCs: map[string]string{"n1": "bmc"}}, ""); err == nil ||
		!strings.Contains(err.Error(), `BMC of n1: "bmc"`) {
		t.Errorf("an address without a port: got %v", err)
	}
}

func TestFencingTemplates(t *testing.T) {
	text, err := fencingTemplates(Options{Username: "fence", Password: `p"w`, Action: "off", Patience: 20 * time.Second,
		BMCs: map[string]string{"n1": "https://127.0.0.1:4001/redfish/v1/Systems/n1"}}, "flush")
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.PodTemplate
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	want := map[string]string{"fencing/mode": "flush", "fencing/timeout": "20"}
	if diff := cmp.Diff(want, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	args := []string{"--action=off", "--ip=127.0.0.1", "--ipport=4001", "--username=fence", `--password=p"w`,
		"--systems-uri=/redfish/v1/Systems/n1"}
	if diff := cmp.Diff(args, got.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Clones, dir)
	if got := Missing(KubeFencing); !strings.Contains(got, dir) {
		t.Errorf("without a clone: got %q", got)
	}
	if got := Missing(FARTaint); got != "" {
		t.Errorf("of the module proxy: got %q", got)
	}
}
