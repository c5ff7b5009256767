package kubevirt_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/kubevirt"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) {
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

var must = kit.Must

const (
	aUUID  = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	vmiUID = "6f6ef5a9-1f6c-4a7c-9d52-6f3d0a2f1f00"
)

// world is what the host cluster's API server holds about one guest.
type world struct {
	vmi, vm map[string]any // nil: gone
	pods    []*corev1.Pod
	list    metav1.ListMeta // of the pods
	nodes   map[string]*corev1.Node
	leases  map[string]*coordinationv1.Lease
}

// newWorld returns a guest that runs on h1. The other host is h2.
func newWorld() *world {
	w := &world{
		list: metav1.ListMeta{ResourceVersion: "42"}, nodes: map[string]*corev1.Node{},
		leases: map[string]*coordinationv1.Lease{},
	}
	spec := map[string]any{"domain": map[string]any{"firmware": map[string]any{"uuid": aUUID}}}
	meta := func(uid string) map[string]any {
		return map[string]any{"name": "guest-1", "namespace": "tenant-a", "uid": uid}
	}
	w.vmi = map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta(vmiUID), "spec": spec,
		"status": map[string]any{"phase": "Running", "nodeName": "h1", "activePods": map[string]any{"pod-1": "h1"}},
	}
	w.vm = map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": meta("vm-1"),
		"spec":   map[string]any{"runStrategy": "Always", "template": map[string]any{"spec": spec}},
		"status": map[string]any{"printableStatus": "Stopped"},
	}
	w.pods = []*corev1.Pod{launcher("1", "h1")}
	for _, name := range []string{"h1", "h2"} {
		w.nodes[name] = &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot-1"},
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		renewed := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		w.leases[name] = &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &renewed},
		}
	}
	return w
}

// launcher returns a launcher pod that runs, with the containers that KubeVirt 1.8 gives it.
func launcher(number, host string) *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-launcher-guest-1-" + number, Namespace: "tenant-a", UID: types.UID("pod-" + number),
			Labels: map[string]string{"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmiUID},
		},
		Spec: corev1.PodSpec{
			NodeName: host, RestartPolicy: corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{{Name: "guest-console-log"}},
			Containers:     []corev1.Container{{Name: "compute"}},
		},
		Status: corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "guest-console-log", State: running}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "compute", State: running}},
		},
	}
}

// endPod is what a kubelet reports of a pod whose containers ended.
func endPod(p *corev1.Pod, phase corev1.PodPhase) {
	p.Status.Phase = phase
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			list[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "Error", ContainerID: "containerd://" + list[i].Name}}
		}
	}
}

// The edits of a world.
type edit = func(*world)

func set(v any, path ...string) edit {
	return func(w *world) { _ = unstructured.SetNestedField(w.vmi, v, path...) }
}

func phase(word string) edit { return set(word, "status", "phase") }

func end(w *world) { endPod(w.pods[0], corev1.PodSucceeded) }

// beat is a renewed Lease.
func beat(w *world) {
	for _, l := range w.leases {
		l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(10 * time.Second)}
	}
}

// deleting is a pod that was deleted with its instance, and whose object is still there.
func deleting(w *world) {
	at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	w.pods[0].DeletionTimestamp = &at
	_ = unstructured.SetNestedField(w.vmi, "2026-03-01T12:00:00Z", "metadata", "deletionTimestamp")
}

func vmiGone(w *world) { w.vmi, w.pods = nil, nil }

func edited(edits ...edit) *world {
	w := newWorld()
	for _, e := range edits {
		e(w)
	}
	return w
}

// serve answers a read from a world as an API server does.
func (x *world) serve(w http.ResponseWriter, r *http.Request) {
	ns, rest := "/namespaces/tenant-a/", r.URL.Path
	var found any
	base := filepath.Base(rest)
	switch filepath.Dir(rest) + "/" {
	case "/apis/kubevirt.io/v1" + ns + "virtualmachineinstances/":
		if x.vmi != nil && base == "guest-1" {
			found = x.vmi
		}
	case "/apis/kubevirt.io/v1" + ns + "virtualmachines/":
		if x.vm != nil && base == "guest-1" {
			found = x.vm
		}
	case "/api/v1" + ns:
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: x.list}
		for _, p := range x.pods {
			key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
			if p.Labels[key] == value {
				list.Items = append(list.Items, *p)
			}
		}
		found = list
	case "/api/v1/nodes/":
		if n := x.nodes[base]; n != nil {
			found = n
		}
	case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/":
		if l := x.leases[base]; l != nil {
			found = l
		}
	}
	if found == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, base+" not found")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

// refuse answers with a Status, as an API server does.
func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Message: message, Reason: reason, Code: code})
}

// script is an API server that shows the next of several worlds each time that the instance is read; the last remains.
type script struct {
	mu     sync.Mutex // guards what follows
	worlds []*world
	looks  int
	status int      // of power actions; 0: 202
	sent   []string // power actions, with their bodies
	asked  []string // reads
	tokens []string // of all requests, without repeats in a row
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); len(s.tokens) == 0 ||
		s.tokens[len(s.tokens)-1] != token {
		s.tokens = append(s.tokens, token)
	}
	if r.Method == http.MethodPut {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		s.sent = append(s.sent, r.URL.Path+" "+string(body[:n]))
		switch s.status {
		case 0:
			w.WriteHeader(http.StatusAccepted)
		case http.StatusConflict:
			refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "VM is not running")
		default:
			refuse(w, int32(s.status), metav1.StatusReasonUnknown, "no")
		}
		return
	}
	s.asked = append(s.asked, r.URL.RequestURI())
	if strings.Contains(r.URL.Path, "/virtualmachineinstances/") {
		s.looks++
	}
	s.worlds[min(max(s.looks, 1), len(s.worlds))-1].serve(w, r)
}

// now is this moment until the last world was shown, and much later from then on: a question waits no longer.
func (s *script) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks >= len(s.worlds) {
		return time.Now().Add(time.Hour)
	}
	return time.Now()
}

// newScript starts an API server with these worlds, and returns a provider of it.
func newScript(t *testing.T, worlds ...*world) (*script, *kubevirt.Provider) {
	t.Helper()
	s := &script{worlds: worlds}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	p := openProvider(t, writeKubeconfig(t, t.TempDir(), server.URL, ca, "token-1"), s.now)
	t.Cleanup(func() { must(t, p.Close(t.Context())) })
	return s, p
}

// openProvider returns a provider for a caller who closes it.
func openProvider(t *testing.T, kubeconfigFile string, now func() time.Time) *kubevirt.Provider {
	t.Helper()
	c := kubevirt.Config{Kubeconfig: kubeconfigFile, Namespace: "tenant-a", Hosts: []string{"h1", "h2"}}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p := kubevirt.New(c, providers.Options{Name: "guests", Log: slog.New(slog.DiscardHandler), Now: now})
	kubevirt.SetTiming(p, time.Minute, time.Millisecond)
	return p
}

// writeKubeconfig writes a kubeconfig that names its authority and its token as files beside it.
func writeKubeconfig(t testing.TB, dir, url string, ca []byte, token string) string {
	t.Helper()
	file := filepath.Join(dir, "kubeconfig")
	must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600))
	must(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: host
contexts: [{name: host, context: {cluster: host, user: fence}}]
clusters: [{name: host, cluster: {server: %q, certificate-authority: ca.pem}}]
users: [{name: fence, user: {tokenFile: token}}]
`, url), 0o600))
	return file
}

var target = providers.Target{Node: "n1", ID: "tenant-a/guest-1", SystemUUID: aUUID}
