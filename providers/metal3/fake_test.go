package metal3_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	operator "github.com/forcefence/forcefence/test/metal3"
)

func TestMain(m *testing.M) {
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

var must = kit.Must

// The annotations, written out once more.
const (
	paused   = "baremetalhost.metal3.io/paused"
	detached = "baremetalhost.metal3.io/detached"
	reboot   = "reboot.metal3.io/forcefence"

	offLife, detachedLife = "forcefence.io/power-off", "forcefence.io/detached"
	life                  = `{"nodeUID":"u1","bootID":"b1","fence":"f1"}` // of target
)

// site is an API server in memory with one BareMetalHost and its Secret, the machine with its BMC, and Metal3.
type site struct {
	dc  *datacenter.DataCenter
	m   *datacenter.Machine
	bmc *datacenter.BMC
	api *httptest.Server
	cfg metal3.Config

	mu      sync.Mutex // guards what follows
	host    map[string]any
	secret  map[string][]byte
	version int
	runs    bool                 // the baremetal-operator runs
	written []string             // patches that were accepted
	onRead  func(map[string]any) // changes the host after it was read
	got     []got
}

// got is one request, to the API server or to the BMC.
type got struct {
	at   time.Time
	acts bool
}

// requests returns the requests to both, in their order.
func (s *site) requests() (acts []bool) {
	s.mu.Lock()
	all := slices.Clone(s.got)
	s.mu.Unlock()
	for _, r := range s.bmc.Requests() {
		all = append(all, got{r.At, r.Method == http.MethodPost && strings.HasSuffix(r.Path, ".Reset")})
	}
	slices.SortStableFunc(all, func(a, b got) int { return a.at.Compare(b.at) })
	for _, g := range all {
		acts = append(acts, g.acts)
	}
	return acts
}

func newSite(t *testing.T, o datacenter.Options) *site {
	t.Helper()
	s := &site{dc: datacenter.New(o), runs: true}
	s.m = s.dc.AddMachine("m1")
	s.bmc = s.dc.AddBMC(s.m)
	s.host = map[string]any{
		"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
		"metadata": map[string]any{"name": "host-1", "namespace": "metal3", "uid": "uid-1"},
		"spec": map[string]any{
			"online": true,
			"bmc": map[string]any{
				"address": strings.Replace(s.bmc.URL(), "https://", "redfish-virtualmedia://", 1) +
					"/redfish/v1/Systems/m1",
				"credentialsName": "host-1-bmc",
			},
			"consumerRef": map[string]any{"kind": "Metal3Machine", "name": "worker-1", "namespace": "metal3"},
		},
		"status": map[string]any{
			"operationalStatus": "OK", "poweredOn": true, "provisioning": map[string]any{"state": "provisioned"},
		},
	}
	s.secret = map[string][]byte{"username": []byte(s.dc.Username()), "password": []byte(s.dc.Password() + "\n")}
	s.api = httptest.NewTLSServer(s)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	must(t, s.dc.WriteCA(ca))
	s.cfg = metal3.Config{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Namespaces: []string{"metal3"}, PowerOff: metal3.PowerOffRequest,
		CAFile: ca,
	}
	server := filepath.Join(dir, "server.pem")
	must(t, os.WriteFile(server, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: s.api.Certificate().Raw,
	}), 0o600))
	must(t, os.WriteFile(s.cfg.Kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],
"users":[{"name":"u","user":{"token":"token"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`,
		s.api.URL, server), 0o600))
	t.Cleanup(func() {
		s.api.Close()
		must(t, s.dc.Close())
	})
	return s
}

func (s *site) open(t *testing.T, edit func(*metal3.Config)) *metal3.Provider {
	t.Helper()
	c := s.cfg
	if edit != nil {
		edit(&c)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p := metal3.New(c, providers.Options{Name: "hosts", Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	return p
}

func (s *site) target() providers.Target {
	return providers.Target{Node: "n1", ID: "metal3://metal3/host-1/worker-1",
		SystemUUID: s.m.SystemUUID(), Claimed: true,
		Life: providers.Life{NodeUID: "u1", BootID: "b1", Fence: "f1"}}
}

// edit changes the host, as another client does.
func (s *site) edit(value any, path ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(s.host, value, path...)
	s.changed()
}

// set sets one field; nil removes it.
func set(host map[string]any, value any, path ...string) {
	if value == nil {
		unstructured.RemoveNestedField(host, path...)
	} else if err := unstructured.SetNestedField(host, value, path...); err != nil {
		panic(err)
	}
}

// changed plays the baremetal-operator after a change. The caller holds the lock.
func (s *site) changed() {
	s.version++
	if s.runs && operator.Reconcile(s.host, s.m) {
		s.version++
	}
}

func (s *site) annotations() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, _, _ := unstructured.NestedStringMap(s.host, "metadata", "annotations")
	return maps.Clone(all)
}

func (s *site) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.written)
}

// resets counts the power-offs that the BMC was sent.
func (s *site) resets() int {
	return s.bmc.Count(http.MethodPost, "/redfish/v1/Systems/m1/Actions/ComputerSystem.Reset")
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, got{time.Now(), r.Method == http.MethodPatch})
	const hosts = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts/host-1"
	switch {
	case r.Header.Get("Authorization") != "Bearer token":
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
	case r.Method == http.MethodGet && r.URL.Path == hosts:
		set(s.host, strconv.Itoa(s.version), "metadata", "resourceVersion")
		answer(w, http.StatusOK, s.host)
		if s.onRead != nil {
			s.onRead(s.host)
			s.changed()
		}
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/metal3/secrets/host-1-bmc" && s.secret != nil:
		answer(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Secret", "data": s.secret,
			"metadata": map[string]any{"name": "host-1-bmc", "namespace": "metal3"}})
	case r.Method == http.MethodPatch && r.URL.Path == hosts:
		s.patch(w, r)
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// patch applies a merge patch of annotations. The caller holds the lock.
func (s *site) patch(w http.ResponseWriter, r *http.Request) {
	var patch struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
	}
	body, _ := io.ReadAll(r.Body)
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if m := patch.Metadata; m.UID != "uid-1" || m.ResourceVersion != strconv.Itoa(s.version) {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.written = append(s.written, string(body))
	for key, value := range patch.Metadata.Annotations {
		if value == nil {
			set(s.host, nil, "metadata", "annotations", key)
		} else {
			set(s.host, *value, "metadata", "annotations", key)
		}
	}
	s.changed()
	answer(w, http.StatusOK, s.host)
}

func answer(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	answer(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Message: string(reason), Reason: reason, Code: code,
	})
}

// ask asks for the state with plenty of time.
func ask(t *testing.T, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return providers.Ask(ctx, p, "hosts", of, providers.Now)
}
