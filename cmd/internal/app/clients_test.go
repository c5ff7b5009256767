package app

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// What a client of ours writes is sent once, also where the API server asks for another try.
func TestClientsSendWritesOnce(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	given := &rest.Config{Host: s.URL, Timeout: time.Minute}
	cs, err := kubernetes.NewForConfig(clientsOf(given))
	if err != nil {
		t.Fatal(err)
	}
	_, err = cs.CoordinationV1().Leases("kube-system").
		Update(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "forcefence"}},
			metav1.UpdateOptions{})
	if err == nil || asked.Load() != 1 {
		t.Errorf("got %d requests, error %v; want one, and an error", asked.Load(), err)
	}
	if given.WrapTransport != nil || given.QPS != 0 {
		t.Error("the caller's own configuration changed")
	}
}
