package kubevirt_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/kubevirt"
	"github.com/forcefence/forcefence/providers/providertest"
)

// hostCluster is an API server with KubeVirt and one guest. A guest that ends leaves its instance and its launcher pod,
// as one with runStrategy Manual does that shuts down by itself. TestState has those that KubeVirt deletes.
type hostCluster struct {
	mu      sync.Mutex // guards what follows
	on      bool
	going   bool // it is being stopped, and never ends
	runs    int
	beats   int // renewals of Leases: one for each that is read
	uuid    string
	phase   string // "": as it is
	token   string
	fault   providertest.Fault
	changed chan struct{} // closed when the fault changes

	requests providertest.Requests
}

func (h *hostCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	acts := r.Method != http.MethodGet
	h.mu.Lock()
	fault, changed := h.fault, h.changed
	denied := r.Header.Get("Authorization") != "Bearer "+h.token
	h.mu.Unlock()
	h.requests.Add(acts)
	if providertest.PlayFault(r, fault, changed) {
		return
	}
	if denied {
		refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if acts {
		h.serveAction(w, r)
		return
	}
	if strings.Contains(r.URL.Path, "/leases/") {
		h.beats++
	}
	h.world().serve(w, r)
}

// serveAction is the subresource that starts or stops. The caller holds the lock.
func (h *hostCluster) serveAction(w http.ResponseWriter, r *http.Request) {
	name := filepath.Base(filepath.Dir(r.URL.Path))
	switch verb := filepath.Base(r.URL.Path); {
	case name != "guest-1":
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
		return
	case verb == "start" && h.on:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "VM is already running")
		return
	case verb == "stop" && !h.on:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "VM is not running")
		return
	case verb == "start":
		h.start()
	case verb == "stop" && h.fault == providertest.StaysOn:
	case verb == "stop" && h.fault == providertest.StaysChanging:
		h.going = true
	case verb == "stop":
		h.on = false
	}
	w.WriteHeader(http.StatusAccepted)
}

func (h *hostCluster) start() {
	if !h.on {
		h.runs++
	}
	h.on, h.going = true, false
}

// world returns the objects. The caller holds the lock.
func (h *hostCluster) world() *world {
	run := strconv.Itoa(h.runs)
	w := edited(
		set("vmi-"+run, "metadata", "uid"),
		set(h.uuid, "spec", "domain", "firmware", "uuid"),
		set(map[string]any{"pod-" + run: "h1"}, "status", "activePods"),
		func(w *world) {
			w.pods = []*corev1.Pod{launcher(run, "h1")}
			w.pods[0].Labels["kubevirt.io/created-by"] = "vmi-" + run
			l := w.leases["h1"]
			l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(time.Duration(h.beats) * time.Second)}
		})
	switch {
	case h.going:
		deleting(w)
	case !h.on:
		phase("Succeeded")(w)
		end(w)
	}
	if h.phase != "" {
		phase(h.phase)(w)
	}
	if h.fault == providertest.Flood { // of pods whose word is as long as possible
		for range 1000 {
			p := launcher(strings.Repeat("9", 200), "h1")
			p.Labels = w.pods[0].Labels
			w.pods = append(w.pods, p)
		}
	}
	return w
}

func TestConformance(t *testing.T) {
	providertest.Suite(t, providertest.Options{
		Timeout: time.Minute, Settle: time.Minute, NoLogIns: "an API server locks no account",
		New: func(t *testing.T) *providertest.Bench {
			h := &hostCluster{uuid: aUUID, token: "token", changed: make(chan struct{})}
			h.start()
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			network := providertest.NewProxy(t, server.URL, providertest.ProxyOptions{HTTP: true})
			dir := t.TempDir()
			login := func(token string) string {
				return writeKubeconfig(t, dir, "https://"+network.Addr(), network.CA(), token)
			}
			p := openProvider(t, login("token"), time.Now)
			return &providertest.Bench{
				Provider: p,
				Target:   target,
				Missing:  providers.Target{Node: "n2", ID: "guest-2"},
				Running:  func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.on },
				Proxy:    network,
				Requests: h.requests.All,
				SetPower: func(on bool) {
					h.mu.Lock()
					defer h.mu.Unlock()
					if h.on = h.on && on; on {
						h.start()
					}
					h.going = false
				},
				SetFault: func(f providertest.Fault) {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.fault, h.uuid, h.phase, h.going = f, aUUID, "", false
					close(h.changed)
					h.changed = make(chan struct{})
					kubevirt.SetTiming(p, time.Minute, time.Millisecond)
					switch f {
					case providertest.StaysChanging: // a question waits for the end, which never comes
						kubevirt.SetTiming(p, 300*time.Millisecond, time.Millisecond)
					case providertest.StrangeWord:
						h.phase = "succeeded"
					case providertest.OtherMachine:
						h.uuid = "00000000-0000-4000-8000-00000000cafe"
					case providertest.Denied:
						h.token += "!"
					case providertest.NoFault:
						login(h.token)
					}
				},
			}
		},
	})
}
