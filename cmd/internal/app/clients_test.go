package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/test/kit"
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

// Of a pod, clients keep only what is read.
func TestClientsAreBounded(t *testing.T) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}}}
	var raw bytes.Buffer
	kit.Must(t, protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme).Encode(pod, &raw))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(raw.Bytes())
	}))
	defer s.Close()
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	c, err := client.New(clientsOf(&rest.Config{Host: s.URL}), client.Options{Mapper: mapper})
	kit.Must(t, err)
	got := &corev1.Pod{}
	kit.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "p"}, got))
	if got.Spec.NodeName != "n1" || len(got.Spec.Containers) > 0 {
		t.Errorf("got %+v", got.Spec)
	}
}
