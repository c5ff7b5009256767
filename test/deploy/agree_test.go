package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/test/kit"
)

// policyVariables returns functions that evaluate a policy's variables of a DELETE. It needs no API server.
func policyVariables(t *testing.T, file, policy string) map[string]func(oldObject map[string]any) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	var p admissionv1.ValidatingAdmissionPolicy
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); p.Name != policy; {
		p = admissionv1.ValidatingAdmissionPolicy{}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			t.Fatalf("%s has no policy %s", file, policy)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("oldObject", cel.DynType),
		cel.Variable("variables", cel.DynType))
	kit.Must(t, err)
	out, before := map[string]func(map[string]any) bool{}, map[string]cel.Program{}
	for _, v := range p.Spec.Variables {
		ast, issues := env.Compile(v.Expression)
		kit.Must(t, issues.Err())
		program, err := env.Program(ast)
		kit.Must(t, err)
		others := map[string]cel.Program{}
		for name, p := range before {
			others[name] = p
		}
		before[v.Name] = program
		out[v.Name] = func(oldObject map[string]any) bool {
			values := map[string]any{}
			for name, p := range others {
				got, _, err := p.Eval(map[string]any{"oldObject": oldObject, "variables": map[string]any{}})
				if err == nil { // a variable that needs others is not used by another one
					values[name] = got.Value()
				}
			}
			got, _, err := program.Eval(map[string]any{"oldObject": oldObject, "variables": values})
			kit.Must(t, err)
			yes, is := got.Value().(bool)
			return is && yes
		}
	}
	return out
}

// The policy lets the controller delete each pod that a fence deletes, and else only pods that another client deleted.
// A pod that it refused would keep the mark of a dead node.
func TestPolicyAgreesWithFence(t *testing.T) {
	variables := policyVariables(t, "../../deploy/install.yaml", "forcefence-controller-pod-delete")
	controls := true
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "o", Controller: &controls}}
		}
	}
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	kinds := map[string]func(*corev1.Pod){
		"bare": func(*corev1.Pod) {}, "StatefulSet": owned("StatefulSet"), "DaemonSet": owned("DaemonSet"),
		"mirror":           annotated("kubernetes.io/config.mirror", "1"),
		"static of a file": annotated("kubernetes.io/config.source", "file"),
		"of the API":       annotated("kubernetes.io/config.source", "api"),
	}
	for _, key := range []string{"", taint.DefaultKey, corev1.TaintNodeUnreachable} {
		for _, operator := range []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists} {
			for _, effect := range []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute,
				corev1.TaintEffectPreferNoSchedule, taint.EffectForceEviction} {
				for _, value := range []string{"", "true", "other"} {
					for _, seconds := range []*int64{nil, new(int64(0)), new(int64(300))} {
						one := corev1.Toleration{Key: key, Operator: operator, Effect: effect, Value: value,
							TolerationSeconds: seconds}
						kinds[fmt.Sprintf("toleration %q %q %q %q %t", key, operator, effect, value, seconds != nil)] =
							func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, one) }
					}
				}
			}
		}
	}
	for name, edit := range kinds {
		for _, phase := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded,
			corev1.PodFailed, corev1.PodUnknown} {
			for _, why := range []string{"", taint.TombstoneReason} {
				for _, deleted := range []bool{false, true} {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"},
						Spec:   corev1.PodSpec{NodeName: "n1"},
						Status: corev1.PodStatus{Phase: phase, Reason: why}}
					if deleted {
						now, grace := metav1.Now(), int64(30)
						pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
					}
					edit(pod)
					object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
					kit.Must(t, err)
					seen := kube.SeePod(pod, taint.DefaultKey, nil)
					wants := seen.NeedsDelete() || seen.HasUnfinishedDeletion()
					ended, finishes := variables["ended"](object), variables["finishesDeletion"](object)
					switch {
					case wants && !ended && !finishes:
						t.Errorf("%s, phase %s %s, deleted %v: the fence deletes it, and the policy refuses", name,
							phase, why, deleted)
					case (ended || finishes) && !seen.Tombstone && !deleted:
						t.Errorf("%s, phase %s %s: the policy permits what no client asked for", name, phase, why)
					}
				}
			}
		}
	}
}
