package app

import (
	"net"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
)

// namespaceFile is what the kubelet mounts beside the ServiceAccount's token.
var namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// podNamespace returns the namespace of the pod that this process runs in: POD_NAMESPACE if the pod has that variable,
// as client-go reads it, else that of namespaceFile. Outside of a pod it returns kube-system.
func podNamespace() string {
	if n := os.Getenv("POD_NAMESPACE"); n != "" {
		return n
	}
	if b, err := os.ReadFile(namespaceFile); err == nil && len(b) > 0 {
		return string(b)
	}
	return metav1.NamespaceSystem
}

// healthAddress returns where the health server listens: at POD_IP if that variable is set, else at all addresses of
// the pod. Outside of a pod it returns a loopback address.
func healthAddress() string {
	ip := os.Getenv("POD_IP")
	if ip == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		ip = "127.0.0.1"
	}
	return net.JoinHostPort(ip, config.HealthPort)
}
