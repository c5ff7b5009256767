package integration

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/kit"
)

// TestLoginCommand: the log in of the status page shows a command that makes a token. A user who copies it gets a token
// of the account in the controller's own namespace.
func TestLoginCommand(t *testing.T) {
	w := newWorld(t, plan{nodes: 1})
	_, err := w.Client().CoreV1().ServiceAccounts(w.ns).Create(w.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "forcefence-status"}}, metav1.CreateOptions{})
	kit.Must(t, err)
	page := kit.FreeAddress(t)
	w.start(settings{Env: []string{"FORCEFENCE_LISTEN_STATUS=" + page}})
	openPage := func(token string) (code int, body string, _ error) {
		req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+page, nil)
		kit.Must(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := httpClient.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), err
	}
	var body string
	w.until("the page asks for a token", func() bool {
		code, text, err := openPage("")
		body = text
		return err == nil && code == http.StatusUnauthorized
	})
	shown := regexp.MustCompile(`<code>kubectl (.*?)</code>`).FindStringSubmatch(body)
	if shown == nil {
		t.Fatalf("got %s, want a command", body)
	}
	token := w.kubectl(strings.Fields(html.UnescapeString(shown[1]))...)
	code, body, err := openPage(strings.TrimSpace(token))
	want := fmt.Sprintf("system:serviceaccount:%s:forcefence-status may not see this page", w.ns) // no role is bound
	if err != nil || code != http.StatusForbidden || !strings.Contains(body, want) {
		t.Errorf("with the command's token: got %d %v %s, want %q", code, err, body, want)
	}
}
