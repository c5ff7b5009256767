package remote_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// TestPermitted: each request of a power action that is not a read asks first, also the second of the same call.
func TestPermitted(t *testing.T) {
	var sent []string
	server := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = append(sent, r.Method) }))
	defer server.Close()
	client := &http.Client{Transport: remote.Permitted{Next: &http.Transport{}}}
	defer client.CloseIdleConnections()
	asked := 0
	ctx := remote.WithStill(t.Context(), func() error {
		if asked++; asked > 1 {
			return errors.New("no longer the leader")
		}
		return nil
	})
	for _, want := range []struct{ method, class string }{
		{http.MethodGet, "ok"}, {http.MethodHead, "ok"}, {http.MethodPost, "ok"}, {http.MethodGet, "ok"},
		{http.MethodPost, "unreachable"}, {http.MethodPut, "unreachable"}, {http.MethodGet, "ok"},
	} {
		r, err := http.NewRequestWithContext(ctx, want.method, server.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		if providers.ErrorClass(err) != want.class {
			t.Errorf("%s: got %v, want %s", want.method, err, want.class)
		}
	}
	if got := strings.Join(sent, " "); got != "GET HEAD POST GET GET" || asked != 2 {
		t.Errorf("sent %s, asked %d times", got, asked)
	}

	resp, err := client.Post(server.URL, "", nil) // a log-in has no action's context
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := remote.MaySend(t.Context()); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("an acting request without an action's context: got %v, want a refusal", err)
	}
}
