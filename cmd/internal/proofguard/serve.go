package proofguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/httpserver"
)

const (
	// maxBody is how many bytes a request has at most, and all requests that are being answered; the others wait. For a
	// Node as large as etcd takes the API server sent 3.8 MB, and 6.5 MB where JSON escapes its text.
	maxBody  = 8 << 20
	maxNames = 16 << 10 // bytes that a guard keeps of a request
	maxEach  = 128      // connections from one address: a control plane behind one address has all
	// readTime is how long a request waits and reads objects at most. The API server waits for two seconds.
	readTime = 1500 * time.Millisecond
)

// Serve answers the API server's reviews at a secret path, and probes at /healthz, over TLS with the files tls.crt and
// tls.key of a folder. It reads these at each connection, so a renewed certificate needs no restart. It blocks until
// ctx ends.
func Serve(ctx context.Context, address, certFolder string, o Options) error {
	ln, err := httpserver.Listen(address, maxEach)
	if err != nil {
		return fmt.Errorf("listening for reviews: %w", err)
	}
	defer ln.Close()
	srv := httpserver.New(newHandler(o), o.Log)
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Without HTTP/2 a request that gets no answer costs its connection. With it the API server would send more to
		// a replica that is dead, for up to 45 s.
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(certFolder, "tls.crt"), filepath.Join(certFolder, "tls.key"))
			return &pair, err
		},
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = srv.Shutdown(wait)
	})
	o.Log.Info("Serving reviews", "address", ln.Addr().String(), "maxAge", o.MaxAge)
	err = srv.Serve(tls.NewListener(ln, srv.TLSConfig))
	if !end() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving reviews: %w", err)
}

func newHandler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/", guard{o, semaphore.NewWeighted(maxBody)}.serveReview)
	return mux
}

// serveReview answers one AdmissionReview at the path that only the API server knows. Where something cannot be read it
// answers with an error's status, so that the webhook's failurePolicy decides.
func (g guard) serveReview(w http.ResponseWriter, req *http.Request) {
	if hash := sha256.Sum256([]byte(req.URL.Path)); subtle.ConstantTimeCompare(hash[:], g.PathHash) == 0 {
		http.NotFound(w, req)
		return
	}
	if req.ContentLength < 1 || req.ContentLength > maxBody {
		http.Error(w, fmt.Sprintf("want 1 to %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), readTime)
	defer cancel()
	if err := g.bodies.Acquire(ctx, req.ContentLength); err != nil {
		http.Error(w, "too many reviews at once", http.StatusServiceUnavailable)
		return
	}
	defer g.bodies.Release(req.ContentLength)
	var in struct {
		metav1.TypeMeta
		Request *request
	}
	body := make([]byte, req.ContentLength)
	_, err := io.ReadFull(req.Body, body)
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	switch {
	case err != nil:
	case in.Request == nil:
		err = errors.New("it has no request")
	case len(fmt.Sprint(in.TypeMeta, *in.Request)) > maxNames: // requests and log lines repeat these
		err = errors.New("its names are too long")
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("no AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	// A deletion of a collection names its objects only there.
	in.Request.Name = cmp.Or(in.Request.Name, in.Request.OldObject.Metadata.Name)
	why, err := g.decide(ctx, in.Request)
	if err != nil {
		g.Log.Error("Could not decide about a request", "resource", in.Request.Resource.Resource,
			"name", in.Request.Name, "user", in.Request.UserInfo.Username, "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{
		UID: in.Request.UID, Allowed: why == "",
	}}
	if why != "" {
		g.Log.Warn("Refused a request", "resource", in.Request.Resource.Resource, "namespace", in.Request.Namespace,
			"name", in.Request.Name, "user", in.Request.UserInfo.Username, "why", why)
		out.Response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: why,
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}
