package kubeapi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote/kubeapi"
)

// Without a kubeconfig the pod's own account is used, and outside of a pod there is none.
func TestNoPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubeapi.NewConnection("", "").Client()
	if !errors.Is(err, providers.ErrDenied) || !strings.Contains(err.Error(), "runs in no pod") {
		t.Errorf("got %v, want %v that says why", err, providers.ErrDenied)
	}
}
