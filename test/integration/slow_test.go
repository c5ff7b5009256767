package integration

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// slow is a kubeconfig of an API server that begins each answer as much later as late says, and counts those that it
// held up.
func (w *world) slow(late func(r *http.Request) time.Duration) (kubeconfig string, held *atomic.Int32) {
	w.t.Helper()
	admin := w.RESTConfig()
	to, err := url.Parse(admin.Host)
	kit.Must(w.t, err)
	through, err := rest.TransportFor(admin)
	kit.Must(w.t, err)
	held = new(atomic.Int32)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: through,
		ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error {
			d := late(resp.Request)
			if d == 0 {
				return nil
			}
			held.Add(1)
			select {
			case <-resp.Request.Context().Done():
			case <-time.After(d):
			}
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	w.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["slow"] = &clientcmdapi.Cluster{Server: s.URL}
	config.Contexts["slow"] = &clientcmdapi.Context{Cluster: "slow"}
	config.CurrentContext = "slow"
	kubeconfig = filepath.Join(w.dir, "slow.kubeconfig")
	kit.Must(w.t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig, held
}

// If each read of the API server's takes longer than an answer counts, fences get slower, and none is lost: neither
// that of a machine that went off, nor that of one that is to be powered off. No other node is touched.
func TestSlowAPIServer(t *testing.T) {
	w := newWorld(t, plan{nodes: 5})
	off, silent := w.hosts[0], w.hosts[1]
	before := map[*host][]corev1.Pod{}
	lost := []*host{off, silent}
	for i, h := range lost {
		w.fill(h, 3*(i+1), w.volumes("db-"+h.Name(), 3))
		before[h] = w.podsOn(h)
	}
	kubeconfig, held := w.slow(func(r *http.Request) time.Duration {
		if r.Method == http.MethodGet && r.URL.Query().Get("watch") == "" {
			return 6 * time.Second
		}
		return 0
	})
	// Each look takes 12 s where a read takes 6, and some are in vain: a power-off within a minute would be luck.
	w.start(settings{Mode: "fence", Kubeconfig: kubeconfig, Timeout: "5m",
		Lease: "leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 500ms"})
	w.untilPinned(lost...)
	began := time.Now()
	off.cut()
	silent.partition()
	for _, h := range lost {
		w.untilDone(h, taint.ResultEvicted)
		t.Logf("%s is fenced after %s", h.Name(), time.Since(began).Round(time.Millisecond))
		w.untilReplaced(h, before[h])
	}
	if n := silent.resets(); n != 1 {
		kit.Harm(t, "power-offs of the silent machine: got %d, want 1", n)
	}
	for _, h := range w.hosts[2:] {
		if err := w.alone(h); err != nil || h.resets() > 0 {
			kit.Harm(t, "%d power-offs, %v", h.resets(), err)
		}
	}
	if held.Load() == 0 {
		t.Error("no answer was late")
	}
}
