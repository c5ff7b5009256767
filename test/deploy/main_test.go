package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	machines "github.com/forcefence/forcefence/test/world"
)

const (
	namespace = "forcefence-system"
	account   = "system:serviceaccount:" + namespace + ":forcefence"
	key       = taint.DefaultKey
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	// Go takes a result from its cache while the files that the test itself has opened are the same; kubectl and helm
	// open these.
	err := filepath.WalkDir("../../deploy", func(file string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			_, err = os.ReadFile(file)
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// world is one test's control plane with the manifests in it.
type world struct {
	t   *testing.T
	c   *cluster.Cluster
	ctx context.Context

	hosts *machines.World // what machines made
	page  string          // listen.status of what replica runs
}

// limit is far more than any test takes: two control planes at a time share the machine, and with other packages'
// tests.
const limit = 10 * time.Minute

// newWorld starts a control plane; the test runs in parallel with others from here on.
func newWorld(t *testing.T, o cluster.Options) *world {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("the world's %s are over", limit))
	t.Cleanup(cancel)
	return &world{t: t, c: cluster.ForTest(t, o), ctx: ctx}
}

// install applies what the chart renders with values, as it is in install.yaml, and returns once the policies' types
// were checked without a warning. They are in force a moment later: poll.
func (w *world) install(values string) {
	w.t.Helper()
	w.apply(charted(w.t, values))
}

// apply is install with objects that are rendered already.
func (w *world) apply(objects string) {
	w.t.Helper()
	_, err := w.c.Kubectl(w.ctx, "apply", "--server-side", "--warnings-as-errors", "-f",
		valuesFile(w.t, ownNamespace+objects))
	kit.Must(w.t, err)
	w.checked()
}

// noHook is the value by which the chart installs the controller alone.
const noHook = "hook: {enabled: false}\n"

// checked waits until the types of all policies were checked, without a warning.
func (w *world) checked() {
	w.t.Helper()
	w.until("the policies are checked", func() (bool, error) {
		policies, err := w.c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().
			List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, p := range policies.Items {
			if p.Status.ObservedGeneration != p.Generation {
				return false, fmt.Errorf("policy %s: its types are not checked yet", p.Name)
			}
			if p.Status.TypeChecking != nil && len(p.Status.TypeChecking.ExpressionWarnings) > 0 {
				w.t.Fatalf("policy %s: %+v", p.Name, p.Status.TypeChecking.ExpressionWarnings)
			}
		}
		return len(policies.Items) > 0, nil
	})
}

// as is a client of a user and its groups, with what RBAC grants them; of the administrator if there is none.
func (w *world) as(user ...string) client.Client {
	w.t.Helper()
	cfg := w.c.RESTConfig()
	if len(user) > 0 {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user[0], Groups: append(user[1:], "system:authenticated")}
	}
	c, err := client.New(cfg, client.Options{})
	kit.Must(w.t, err)
	return c
}

// until waits for something to come true. The error of a check that is not true reports what is missing.
func (w *world) until(what string, check func() (bool, error)) {
	w.t.Helper()
	err := cluster.Until(w.ctx, func(context.Context) (bool, error) {
		ok, err := check()
		if ok {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		w.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// find is the object of a kind and a name, with its type.
func find[T any](t *testing.T, list []unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	i := slices.IndexFunc(list,
		func(u unstructured.Unstructured) bool { return u.GetKind() == kind && u.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return typed[T](t, list[i].Object)
}

func typed[T any](t *testing.T, object map[string]any) *T {
	t.Helper()
	var out T
	kit.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &out))
	return &out
}

func parse(t *testing.T, rendered string) []unstructured.Unstructured {
	t.Helper()
	var list []unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(rendered), 1<<16)
	for {
		var u unstructured.Unstructured
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, u)
	}
}

// policies are those that the chart renders with values, by name.
func policies(t *testing.T, values string) map[string]*admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	out := map[string]*admissionv1.ValidatingAdmissionPolicy{}
	for _, u := range parse(t, charted(t, values)) {
		if u.GetKind() == "ValidatingAdmissionPolicy" {
			out[u.GetName()] = typed[admissionv1.ValidatingAdmissionPolicy](t, u.Object)
		}
	}
	return out
}

// replace puts another policy's validations and variables in the place of those of its name.
func (w *world) replace(p *admissionv1.ValidatingAdmissionPolicy) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"validations": p.Spec.Validations, "variables": p.Spec.Variables}})
	kit.Must(w.t, err)
	_, err = w.c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies().
		Patch(w.ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	kit.Must(w.t, err)
}
