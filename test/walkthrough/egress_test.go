//go:build linux

package walkthrough

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes"
)

// egress is the API server's way to the kubelets, for logs, exec and port-forward: a proxy that speaks CONNECT, as its
// egress selector wants it. The nodes' network cannot be reached otherwise from outside.
type egress struct {
	t        *testing.T
	listener net.Listener
	config   string
}

func newEgress(t *testing.T) *egress {
	dir := kit.SocketDir(t)
	e := &egress{t: t, config: filepath.Join(dir, "egress.yaml")}
	socket := filepath.Join(dir, "socket")
	kit.Must(t, os.WriteFile(e.config, fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}}
`, socket), 0o600))
	var err error
	e.listener, err = net.Listen("unix", socket)
	kit.Must(t, err)
	return e
}

func (e *egress) serve(lab *nodes.Lab) {
	s := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect {
				http.Error(rw, "CONNECT only", http.StatusMethodNotAllowed)
				return
			}
			out, err := lab.Dial(r.Host)
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadGateway)
				return
			}
			defer out.Close()
			in, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer in.Close()
			if _, err := io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
				return
			}
			var back sync.WaitGroup
			back.Go(func() {
				_, _ = io.Copy(in, out) // its end is the connection's
				in.Close()
			})
			_, _ = io.Copy(out, buffered)
			out.Close()
			back.Wait()
		})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
			e.t.Errorf("the proxy to the nodes: %v", err)
		}
	}()
	e.t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}
