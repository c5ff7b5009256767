package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

func TestPodVariables(t *testing.T) {
	defer func(file string) { namespaceFile = file }(namespaceFile)
	namespaceFile = filepath.Join(t.TempDir(), "namespace") // the test itself may run in a pod
	for _, c := range []struct{ namespace, ip, server, wantNamespace, wantHealth string }{
		{"", "", "", "kube-system", "127.0.0.1:8081"}, // outside of a pod
		{"fencing", "", "10.96.0.1", "fencing", ":8081"},
		{"fencing", "10.0.0.7", "10.96.0.1", "fencing", "10.0.0.7:8081"},
		{"fencing", "fd00::7", "10.96.0.1", "fencing", "[fd00::7]:8081"},
	} {
		t.Setenv("POD_NAMESPACE", c.namespace)
		t.Setenv("POD_IP", c.ip)
		t.Setenv("KUBERNETES_SERVICE_HOST", c.server)
		if got := podNamespace(); got != c.wantNamespace {
			t.Errorf("POD_NAMESPACE %q: got namespace %s, want %s", c.namespace, got, c.wantNamespace)
		}
		if got := healthAddress(); got != c.wantHealth {
			t.Errorf("POD_IP %q: got health at %s, want %s", c.ip, got, c.wantHealth)
		}
	}
	t.Setenv("POD_NAMESPACE", "")
	kit.Must(t, os.WriteFile(namespaceFile, []byte("mounted"), 0o600))
	if got := podNamespace(); got != "mounted" {
		t.Errorf("with a file of the kubelet's: got namespace %s, want that in the file", got)
	}
}
