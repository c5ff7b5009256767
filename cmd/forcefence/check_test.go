package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/check"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// checkIn runs `forcefence check` in a cluster of these objects, whose user lacks the rights in denied.
func checkIn(t *testing.T, objects []client.Object, denied []string, args ...string) (string, error) {
	t.Helper()
	served := runtime.NewScheme()
	kit.Must(t, clientgoscheme.AddToScheme(served))
	served.AddKnownTypeWithName(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}, &unstructured.Unstructured{})
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range served.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	builder := fake.NewClientBuilder().WithScheme(served).WithRESTMapper(mapper).WithObjects(objects...)
	for field, of := range map[string]func(*corev1.Event) string{
		"involvedObject.kind": func(e *corev1.Event) string { return e.InvolvedObject.Kind },
		"reportingComponent":  func(e *corev1.Event) string { return e.ReportingController },
		"reason":              func(e *corev1.Event) string { return e.Reason },
	} {
		builder.WithIndex(&corev1.Event{}, field, func(o client.Object) []string {
			return []string{of(o.(*corev1.Event))}
		})
	}
	c := interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			review, ok := o.(*authorizationv1.SelfSubjectAccessReview)
			if !ok {
				t.Errorf("got a write of %T", o)
				return errors.New("not allowed")
			}
			review.Status.Allowed = !slices.Contains(denied, formatRight(*review.Spec.ResourceAttributes))
			return nil
		},
	})
	d := &sessionFlags{types: all.Types(), client: c, version: &apiversion.Info{GitVersion: "v1.37.2"}}
	cmd := newCheck(d)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return runCommand(t, cmd, args...)
}

// runCommand runs a command and returns what it printed to both outputs.
func runCommand(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var b bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := cmd.ExecuteContext(ctx)
	return b.String(), err
}

// leaseOf returns the leader's Lease, of the installation in that namespace.
func leaseOf(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "forcefence",
		Annotations: map[string]string{app.NamespaceAnnotation: namespace}}}
}

func leaderLease(renewed time.Time) *coordinationv1.Lease {
	l := leaseOf(homeSpace)
	l.Spec.HolderIdentity, l.Spec.RenewTime = new("ff-1"), new(metav1.NewMicroTime(renewed))
	return l
}

// checkedNode returns a Ready node with a hook, whose last drill had this status and reason.
func checkedNode(name string, drill corev1.ConditionStatus, why reason.Reason) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.ContainerRuntimeVersion = "linux", "containerd://2.2.1"
	n.Status.Conditions = []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, time.Now(), ""),
		{Type: taint.FenceableCondition, Status: drill, Reason: string(why), Message: "The drill's words."},
		{Type: taint.ProtectionCondition, Status: corev1.ConditionTrue, Reason: taint.ProtectionFailClosed},
	}
	return n
}

// provable is how many of so many Ready nodes could be proven off, as the sentence says it.
func provable(n, ready int) string {
	return view.Capacity{Nodes: ready, Provable: n}.String()
}

func TestCheckOfInstallation(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	now := time.Now()
	settings := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName,
				CreationTimestamp: metav1.NewTime(now)},
			Data: map[string]string{configKey: text}}
	}
	rejecting := leaderLease(now)
	rejecting.Annotations = map[string]string{app.ConfigRejectedAnnotation: "config.yaml:3: mode: missing"}
	labelled := checkedNode("n2", no, reason.NoMachine)
	labelled.Labels["pool"] = "cattle"
	signed := settings("mode: observe\nsigning: {keyFile: /etc/forcefence-signing/keys.pem}\n")
	publicKeys := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: config.KeysConfigMap},
			Data: map[string]string{config.KeysEntry: text}}
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	kit.Must(t, err)
	attached := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "old.1"},
		EventTime: metav1.NewMicroTime(now), ReportingController: "forcefence", Reason: string(reason.GoneAttached),
		Message: "pv-1 waits", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "old"}}
	good := []client.Object{leaderLease(now), checkedNode("n1", yes, reason.Answers)}
	for _, tc := range []struct {
		name    string
		objects []client.Object
		want    []string // parts of the output
		not     string
		fails   string // a part of the error; "": exit status 0
	}{
		{name: "well", objects: append(good, settings("mode: observe\n")),
			want: []string{"forcefence leads; " + provable(1, 1) + "."}, not: "problem"},
		{name: "a pod that stays", objects: append(good, settings("mode: observe\nevictFirst: app=tol\n"),
			tolerantPod("n1")), want: []string{`problem evictFirst: "app=tol" has no effect`,
			"note pods: On a node that is fenced 1 pod stays: shop/tol-0"}, fails: "found 1 problem"},
		{name: "a node without a device", objects: append(good, checkedNode("n6", no, reason.NotAnswering)),
			want: []string{"forcefence leads; " + provable(1, 2) + "; n6: no device gives an answer that counts.",
				"problem  n6", "Look at the device, and at the network to it."}, fails: "found 1 problem"},
		{name: "not installed", objects: []client.Object{checkedNode("n1", yes, reason.Answers)},
			want: []string{"no controller leads", "--before-install"}, fails: "found 1 problem"},
		{name: "the leader is gone", objects: []client.Object{leaderLease(now.Add(-time.Hour)),
			checkedNode("n1", yes, reason.Answers)},
			want: []string{"was renewed 1 h ago, by ff-1"}, fails: "found 1 problem"},
		{name: "a pause", objects: append(good, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: "forcefence-pause"},
			Data:       map[string]string{"reason": "switches"}}),
			want:  []string{"forcefence leads; fencing is paused for all nodes", "forcefence resume"},
			fails: "found 1 problem"},
		{name: "faults of the configuration", objects: append(good, settings("mode: fenc\npowerOffAfter: 1s\n")),
			want: []string{"its configuration has faults", "config.yaml:1: mode: must be",
				`did you mean "fence"? forcefence`, "config.yaml:2: powerOffAfter"},
			fails: "found 2 problems"},
		{name: "a file that the leader rejects",
			objects: []client.Object{rejecting, checkedNode("n1", yes, reason.Answers), settings("mode: observe\n")},
			want:    []string{"the changed configuration is rejected", "config.yaml:3: mode: missing. The previous"},
			fails:   "found 1 problem"},
		{name: "records are signed", objects: append(good, signed, publicKeys(string(signing.EncodeKey(public, now)))),
			want: []string{provable(1, 1) + "; records are signed."}, not: "problem"},
		{name: "signing without a ConfigMap of public keys", objects: append(good, signed),
			want: []string{"no proof can be verified", "problem signing", "no ConfigMap " + homeSpace +
				"/forcefence-public-keys has public keys", "forcefence proof keys --new"}, fails: "found 1 problem"},
		{name: "signing without a public key", objects: append(good, signed, publicKeys("")),
			want: []string{"ConfigMap " + homeSpace + "/forcefence-public-keys"}, fails: "found 1 problem"},
		{name: "signing with keys that cannot be read", objects: append(good, signed, publicKeys("no key")),
			want: []string{"ConfigMap " + homeSpace + "/forcefence-public-keys: "}, fails: "found 1 problem"},
		{name: "volumes of a deleted node", objects: append(good, settings("mode: observe\n"), attached),
			want: []string{"problem volumes: Volumes are attached to deleted nodes: 1 deleted node: old. pv-1 waits",
				"delete the VolumeAttachments"}, fails: "found 1 problem"},
		{name: "a list with a node that is gone", objects: append(good, settings(`providers:
- name: bmcs
  redfish: {username: u, passwordFile: /p}
nodes:
- name: all
  provider: bmcs
  machine: {from: list, list: [{node: n1, id: "https://10.0.0.1"}, {node: old, id: "https://10.0.0.2"}]}
`)), want: []string{"note configuration", "the cluster has no node old (line 7)"}},
		{name: "excluded by the configuration",
			objects: append(good, labelled, settings("excludeSelector: pool=cattle\n")),
			want: []string{provable(1, 1) + "; 1 excluded.",
				"No fence of it begins: excludeSelector pool=cattle matches its labels."}},
		{name: "excluded by another label", objects: append(good, labelled, settings("mode: observe\n")),
			want:  []string{provable(1, 2) + "; give n2 a device, under nodes in the configuration."},
			fails: "found 1 problem"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := checkIn(t, tc.objects, nil)
			if (tc.fails == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("got error %v, want %q", err, tc.fails)
			}
			for _, want := range tc.want {
				if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
					t.Errorf("got no %q in:\n%s", want, out)
				}
			}
			if tc.not != "" && strings.Contains(out, tc.not) {
				t.Errorf("got %q in:\n%s", tc.not, out)
			}
		})
	}
	out, err := checkIn(t, good, nil, "-o", "json")
	var r check.Report
	if bad := json.Unmarshal([]byte(out), &r); bad != nil || err != nil || !r.OK || r.Summary == "" {
		t.Errorf("-o json: got %v, %v, %+v from %s", bad, err, r, out)
	}
	if _, err := checkIn(t, good, nil, "--config", "c.yaml"); err == nil ||
		!strings.Contains(err.Error(), "--before-install") {
		t.Errorf("--config alone: got %v", err)
	}
}

// status says of an excluded node what check says of it: no fence of it begins.
func TestStatusOfExcluded(t *testing.T) {
	excluded := checkedNode("n1", corev1.ConditionTrue, reason.Answers)
	excluded.Labels["pool"] = "cattle"
	objects := []client.Object{leaderLease(time.Now()), excluded,
		checkedNode("n2", corev1.ConditionTrue, reason.Answers), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName},
			Data:       map[string]string{configKey: "mode: observe\nexcludeSelector: pool=cattle\n"}}}
	o := statusReader{client: fake.NewClientBuilder().WithObjects(objects...).Build(), key: taint.DefaultKey,
		now: time.Now}
	f, err := o.readFleet(t.Context())
	if err != nil || len(f.Nodes) != 2 {
		t.Fatalf("got %+v, %v", f, err)
	}
	for i, want := range []view.State{view.StateLeftAlone, view.StateFine} {
		if got := f.Nodes[i]; got.State != want {
			t.Errorf("%s: got %s, %q, want %s", got.Node, got.State, got.Next, want)
		}
	}
	want := "No fence begins: excludeSelector pool=cattle matches its labels."
	if !strings.Contains(f.Nodes[0].Next, want) {
		t.Errorf("got %q, want %q in it", f.Nodes[0].Next, want)
	}
}

// status offers a confirmation, and no mark, for a silent node whose rule has a provider of type confirm.
func TestStatusOffersConfirmation(t *testing.T) {
	const nodes = "nodes: [{name: all, provider: people, machine: {from: name}}]\n"
	for provider, want := range map[string]string{
		"confirm: {}":                      "forcefence confirm-off n1 --reason TEXT",
		"libvirt: {uri: 'qemu:///system'}": "kubectl taint node n1 forcefence.io/node-shutdown=manual:NoSchedule",
	} {
		silent := checkedNode("n1", corev1.ConditionFalse, reason.NotAnswering)
		for i := range silent.Status.Conditions {
			if silent.Status.Conditions[i].Type == corev1.NodeReady {
				silent.Status.Conditions[i].Status = corev1.ConditionUnknown
			}
		}
		o := statusReader{client: fake.NewClientBuilder().WithObjects(leaderLease(time.Now()), silent,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName},
				Data: map[string]string{configKey: "providers: [{name: people, " + provider + "}]\n" + nodes}}).Build(),
			key: taint.DefaultKey, now: time.Now, types: all.Types()}
		f, err := o.readFleet(t.Context())
		if err != nil || len(f.Nodes) != 1 {
			t.Fatalf("got %+v, %v", f, err)
		}
		if !strings.HasSuffix(f.Nodes[0].Next, ": "+want) {
			t.Errorf("%s: got %q, want %q at its end; unknown %q", provider, f.Nodes[0].Next, want, f.Unknown)
		}
	}
}

// Before an installation the rights, the runtimes and the devices of a configuration count.
func TestCheckBeforeInstall(t *testing.T) {
	s := newSite(t)
	var nodes []client.Object
	for _, name := range []string{"n1", "n2", "n3"} {
		n := checkedNode(name, "", "")
		n.Status.NodeInfo.SystemUUID = s.m[name].SystemUUID()
		nodes = append(nodes, n)
	}
	old := checkedNode("n4", "", "") // which no rule matches
	old.Status.NodeInfo.ContainerRuntimeVersion = "docker://28.0.1"
	before := func(objects []client.Object, denied []string, args ...string) (string, error) {
		out, err := checkIn(t, objects, denied, append([]string{"--before-install"}, args...)...)
		return strings.Join(strings.Fields(out), " "), err
	}
	expect := func(name, out string, err error, failure string, texts ...string) {
		t.Helper()
		if (failure == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), failure) {
			t.Errorf("%s: got error %v, want %q", name, err, failure)
		}
		for _, text := range texts {
			if !strings.Contains(out, text) {
				t.Errorf("%s: got no %q in: %s", name, text, out)
			}
		}
	}
	out, err := before(nodes, nil)
	expect("well", out, err, "",
		"forcefence can be installed; Kubernetes v1.37.2; 3 of 3 nodes can run the hook, 3 can require it.")
	out, err = before(nodes, nil, "--config", s.file)
	expect("devices", out, err, "", "from here 3 of 3 nodes can be proven off.")
	if n := s.posts("n1") + s.posts("n2") + s.posts("n3"); n > 0 {
		t.Errorf("got %d power actions, want none", n)
	}
	s.bmc["n2"].SetFault(datacenter.Fault{Drop: true})
	denied := []string{"create clusterroles.rbac.authorization.k8s.io", "create deployments.apps -n ours",
		"bind clusterroles.rbac.authorization.k8s.io"}
	out, err = before(append(nodes, old), denied, "--config", s.file, "-n", "ours")
	expect("much is wrong", out, err, "found 4 problems", "before you install forcefence, solve the problems below",
		"bind clusterroles.rbac.authorization.k8s.io, create deployments.apps -n ours, create clusterroles",
		"3 of 4 nodes can run the hook", "n4 (docker://28.0.1): the container runtime cannot run the hook",
		"problem n2: ", "problem n4: ", "from here 2 of 4 nodes can be proven off")
	out, err = before(append(nodes, leaderLease(time.Now())), nil)
	expect("another one leads", out, err, "found 1 problem", "forcefence is installed in namespace "+homeSpace,
		"upgrade that one")
	gone := leaderLease(time.Now().Add(-time.Hour))
	out, err = before(append(nodes, gone), nil)
	expect("its controller is gone", out, err, "", "note controller: forcefence is installed in namespace "+homeSpace,
		"a new one takes the Lease")
	out, err = before(append(nodes, gone), nil, "-n", "ours")
	expect("the Lease of another one", out, err, "found 1 problem", "forcefence is installed in namespace "+homeSpace,
		"Install into that namespace, or delete the Lease.")
	kit.Must(t, os.WriteFile(s.file, []byte("mode: fenc\n"), 0o600))
	out, err = before(nodes, nil, "--config", s.file)
	expect("a broken file", out, err, "found 1 problem", "c", ":1: mode: must be")
}

func TestCheckVersion(t *testing.T) {
	for version, want := range map[string]check.Level{
		"v1.37.2": "", "v1.34.0": "", "v1.36.5+k3s1": "", "v1.37.0-rc.1": "",
		"v1.33.9": check.Note, "v1.30.0": check.Note, "v1.38.0-alpha.1": check.Note, "v2.0.0": check.Note,
		"v1.29.9": check.Problem, "unknown": check.Problem, "": check.Problem,
	} {
		got := checkVersion(&apiversion.Info{GitVersion: version})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Level != want) {
			t.Errorf("%q: got %+v, want %q", version, got, want)
		}
	}
	chart, err := os.ReadFile("../../deploy/helm/forcefence/Chart.yaml")
	kit.Must(t, err)
	m := regexp.MustCompile(`kubeVersion: ">=([0-9.]+)\.0-0".*tested on ([0-9.]+) to ([0-9.]+)`).FindSubmatch(chart)
	if m == nil || string(m[1]) != oldestKubernetes || string(m[2]) != firstTested || string(m[3]) != lastTested {
		t.Errorf("got %s, %s and %s, and the chart says %q", oldestKubernetes, firstTested, lastTested, m)
	}
}

// The rights that are asked for are those of the objects that an installation creates.
func TestInstalledKinds(t *testing.T) {
	text, err := os.ReadFile("../../deploy/install.yaml")
	kit.Must(t, err)
	want := map[string]bool{"/v1/secrets": true}
	for _, part := range strings.Split(string(text), "\n---\n") {
		var o metav1.TypeMeta
		kit.Must(t, yaml.Unmarshal([]byte(part), &o))
		if o.Kind == "" {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		want[plural.Group+"/"+plural.Version+"/"+plural.Resource] = true
	}
	got := map[string]bool{}
	for _, k := range installed {
		got[k.group+"/"+k.version+"/"+k.resource] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("-install.yaml +got:\n%s", diff)
	}
	empty := meta.NewDefaultRESTMapper(nil)
	if n := len(checkKinds(empty)); n != len(installed) {
		t.Errorf("an API server that serves nothing: got %d findings, want %d", n, len(installed))
	}
}

func TestCheckRuntimes(t *testing.T) {
	node := func(name, os, runtime string, image ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.OSImage = strings.Join(image, "")
		n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.ContainerRuntimeVersion = os, runtime
		return n
	}
	summary, got := checkRuntimes([]*corev1.Node{
		node("a", "linux", "containerd://2.2.1"), node("b", "linux", "cri-o://1.33.1"),
		node("c", "linux", "containerd://1.7.27"), node("d", "windows", "containerd://2.2.1"), node("e", "linux", ""),
		node("f", "linux", "containerd://1.7.24~ds1"), node("g", "linux", "containerd://2.2.1", "Talos (v1.13.2)"),
		node("h", "linux", "containerd://2.2.1", "Container-Optimized OS from Google")})
	want := []check.Finding{
		{Level: check.Note, About: "d", Text: "It runs windows: forcefence fences nodes with Linux."},
		{Level: check.Problem, About: "hook",
			Text: "g: Talos before 1.14 switches NRI off, and nothing can switch it on."},
		{Level: check.Problem, About: "hook", Text: "e (?): the container runtime cannot run the hook."},
		{Level: check.Note, About: "hook", Text: "c: NRI is off by default in this version."},
		{Level: check.Note, About: "hook", Text: "h: Container-Optimized OS runs no program that is put on its disk: " +
			"after a boot, pods may start before the DaemonSet's hook."},
		{Level: check.Note, About: "hook",
			Text: "f: only the DaemonSet's hook holds pods: after a boot, pods may start before it."},
		{Level: check.Note, About: "hook",
			Text: "b: the runtime cannot require the hook: if the hook stops, pods start."},
	}
	for i := range got {
		if got[i].Remedy == "" {
			t.Errorf("got no remedy for %q", got[i].Text)
		}
		got[i].Remedy = ""
	}
	if diff := cmp.Diff(want, got); diff != "" || summary != "5 of 7 nodes can run the hook, 1 can require it" {
		t.Errorf("got %q; -want +got:\n%s", summary, diff)
	}
}

// --wait repeats a check until all is well or waiting cannot help, for so long at most.
func TestWaitUntilOK(t *testing.T) {
	for _, tc := range []struct {
		name        string
		wait, after time.Duration // until the report is OK
		noServer    time.Duration // for so long no API server answers
		lasts       time.Duration // until only problems are left that waiting does not mend; 0: never
		ok          bool
		took        time.Duration
	}{
		{"once", 0, time.Hour, 0, 0, false, 0},
		{"well at once", time.Minute, 0, 0, 0, true, 0},
		{"well later", time.Minute, 12 * time.Second, 0, 0, true, 15 * time.Second},
		{"too late", time.Minute, time.Hour, 0, 0, false, time.Minute},
		{"a server later", time.Minute, 0, 8 * time.Second, 0, true, 10 * time.Second},
		{"lasting problems", time.Minute, time.Hour, 0, 8 * time.Second, false, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			r, err := waitUntilOK(t.Context(), tc.wait, func(context.Context) (check.Report, error) {
				if time.Since(begun) < tc.noServer {
					return check.Report{}, &url.Error{Op: "Get", URL: "https://x/api", Err: errors.New("refused")}
				}
				lasting := tc.lasts > 0 && time.Since(begun) >= tc.lasts
				return check.Report{OK: time.Since(begun) >= tc.after, Lasting: lasting}, nil
			}, func() bool { return false })
			if took := time.Since(begun); err != nil || r.OK != tc.ok || took != tc.took {
				t.Errorf("%s: got OK %t, %v after %s, want %t after %s", tc.name, r.OK, err, took, tc.ok, tc.took)
			}
		})
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := waitUntilOK(stopped, time.Hour, func(context.Context) (check.Report, error) {
		return check.Report{}, nil
	}, func() bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
	if _, err := waitUntilOK(t.Context(), time.Hour, func(context.Context) (check.Report, error) {
		return check.Report{}, nil
	}, func() bool { return true }); err != nil {
		t.Errorf("a missing right: got %v", err)
	}
	fromServer := func(err error) error { return &url.Error{Op: "Get", URL: "https://x/api", Err: err} }
	for name, permanent := range map[string]error{
		"no error of the API server": errors.New("broken"),
		"no right":                   apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil),
		"no log-in":                  apierrors.NewUnauthorized("no"),
		"no such name":               fromServer(&net.DNSError{Name: "x", IsNotFound: true}),
		"another certificate":        fromServer(&tls.CertificateVerificationError{Err: errors.New("no")}),
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			if _, err := waitUntilOK(t.Context(), time.Minute, func(context.Context) (check.Report, error) {
				return check.Report{}, permanent
			}, func() bool { return false }); !errors.Is(err, permanent) || time.Since(begun) > 0 {
				t.Errorf("%s: got %v after %s, want no wait", name, err, time.Since(begun))
			}
		})
	}
}

// A node that no rule claims stays without a device, so the command does not wait for one. A rule that does not find
// the node's machine may find it later.
func TestCheckWaitsForNoDevice(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		took   time.Duration
	}{
		"no rule": {"mode: observe\n", 0},
		"a rule without the machine yet": {"providers:\n- name: bmcs\n  redfish: {username: u, " +
			"passwordFile: /p}\nnodes:\n- {name: all, provider: bmcs, machine: {from: providerID}}\n", time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			lease := leaderLease(begun.Add(time.Hour)) // renewed, and it stays so
			settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName,
				CreationTimestamp: metav1.NewTime(begun)}, Data: map[string]string{configKey: tc.config}}
			out, err := checkIn(t, []client.Object{lease, settings,
				checkedNode("n1", corev1.ConditionFalse, reason.NoMachine)}, nil, "--wait", "1m")
			if took := time.Since(begun); took != tc.took || err == nil ||
				!strings.Contains(out, "give n1 a device") {
				t.Errorf("%s: got %v after %s, want a problem after %s:\n%s", name, err, took, tc.took, out)
			}
		})
	}
}

// The ClusterRole forcefence-look has all that the command reads, and a missing right is a problem.
func TestCheckByRights(t *testing.T) {
	d := newDesert(t)
	d.node("checked", func(n *corev1.Node) {
		n.Status.Conditions = checkedNode("checked", corev1.ConditionTrue, reason.Answers).Status.Conditions
	})
	d.make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeSpace, Name: configMapName},
		Data: map[string]string{configKey: "mode: observe\n"}})
	d.run(d.person("watcher", "forcefence-look"), 0, []string{"check"},
		"forcefence leads; "+provable(1, 1)+".")
	d.run(d.person("few"), 1, []string{"check"}, "you lack the right: list nodes")
	d.run(shared.Kubeconfig(), 1, []string{"check", "--before-install"},
		"forcefence is installed in namespace "+homeSpace)
	d.run(d.person("reader", "forcefence-look"), 1, []string{"check", "--before-install"},
		"You lack rights that an installation needs:", "create clusterroles.rbac.authorization.k8s.io")
}
