package deploy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestStatusPage: the page of a controller with the rights that listen.status gives, and no more, for people with
// tokens of all sorts, while a machine loses its power.
func TestStatusPage(t *testing.T) {
	dir := t.TempDir()
	binary := build(t, dir, "forcefence")
	w := newWorld(t, cluster.Options{NodeGrace: cluster.FastNodeGrace})
	w.install(someRacks + `  listen: {metrics: ":8080", status: "127.0.0.1:8082"}` + "\n")
	hosts := w.machines(dir, 4)
	victim := hosts["n3"]
	w.busy(victim)
	w.page = kit.FreeAddress(t)
	replica := w.replica(binary, dir, "forcefence-0")
	page := "http://" + w.page

	// Who sees it.
	audience := []string{"forcefence.io/status"}
	viewer := w.token(namespace, "forcefence-status", audience)
	w.until("the page shows the fleet", func() (bool, error) {
		code, body, err := w.get(page+"/", viewer)
		return code == http.StatusOK && strings.Contains(body, "<strong>4 nodes</strong>") &&
			!strings.Contains(body, "This page shows only what the Nodes say"), fmt.Errorf("%d %w %s", code, err, body)
	})
	for _, tc := range []struct {
		name, token string
		code        int
		want        string
	}{
		{"nobody", "", 401, "Log in"},
		{"no token of the cluster's", "eyJhbGciOiJub25lIn0.e30.", 401, "does not know this token"},
		{"a token for this page alone", viewer, 200, "n3"},
		{"a token for the API server", w.token(namespace, "forcefence-status", nil), 200, "n3"},
		{"a token for something else", w.token(namespace, "forcefence-status", []string{"vault"}), 401,
			"does not know this token"},
		{"another's token", w.token("work", "default", audience), 403,
			"system:serviceaccount:work:default may not see this page"},
		{"the controller's own token", w.token(namespace, "forcefence", nil), 403, "may not see this page"},
	} {
		paths := []string{"/", "/nodes/n3"} // unknown tokens are counted
		if tc.code == 200 {
			paths = append(paths, "/fences", "/devices", "/hook")
		}
		for _, path := range paths {
			code, body, err := w.get(page+path, tc.token)
			if err != nil || code != tc.code || (path == "/" || code != 200) && !strings.Contains(body, tc.want) {
				t.Errorf("%s, %s: got %d %v %s, want %d with %q", tc.name, path, code, err, body, tc.code, tc.want)
			}
			if code != 200 && strings.Contains(body, "racks/") {
				t.Errorf("%s, %s: shows the fleet: %s", tc.name, path, body)
			}
		}
	}

	// A pause is the first thing that a page says, until it is taken back.
	pause := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forcefence-pause"},
		Data: map[string]string{"reason": "new switches"}}
	maps := w.c.Client().CoreV1().ConfigMaps(namespace)
	banners := func(want string) {
		t.Helper()
		w.until("the page has these banners: "+want, func() (bool, error) {
			_, body, err := w.get(page+"/hook", viewer)
			_, main, _ := strings.Cut(body, `<div id="live">`)
			return strings.HasPrefix(main, want), fmt.Errorf("%w %s", err, main)
		})
	}
	banners("<p class=\"sum\">")
	_, err := maps.Create(w.ctx, pause, metav1.CreateOptions{})
	kit.Must(t, err)
	banners(`<p class="note banner"><strong>Fencing is paused for all nodes: `)
	kit.Must(t, maps.Delete(w.ctx, pause.Name, metav1.DeleteOptions{}))
	banners("<p class=\"sum\">")

	// A browser: the form, and then the cookie, without the token.
	jar, err := cookiejar.New(nil)
	kit.Must(t, err)
	browser := &http.Client{Jar: jar}
	resp, err := browser.PostForm(page+"/login", url.Values{"token": {viewer}, "next": {"/nodes/n3"}})
	kit.Must(t, err)
	body, err := io.ReadAll(resp.Body)
	kit.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Request.URL.Path != "/nodes/n3" ||
		!bytes.Contains(body, []byte("Node n3")) {
		t.Fatalf("after the log in: got %s at %s: %s", resp.Status, resp.Request.URL, body)
	}

	// It follows the fence from its beginning to its end.
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, page+"/nodes/n3", nil)
	kit.Must(t, err)
	req.Header.Set("Accept", "text/event-stream")
	resp, err = browser.Do(req)
	kit.Must(t, err)
	defer resp.Body.Close()
	followed := bufio.NewScanner(resp.Body)
	followed.Buffer(nil, 1<<20)
	victim.machine.CutPower()
	ended := false
	for !ended && followed.Scan() {
		ended = strings.Contains(followed.Text(), "the moved pods are gone, their volumes detached")
	}
	if !ended {
		t.Fatalf("the page that is followed does not tell the end: %v", followed.Err())
	}
	rec := w.untilDone("n3", taint.ResultEvicted)
	var text string
	w.until("the fence's page shows it", func() (bool, error) {
		code, body, err := w.get(page+"/fences/n3."+rec.ID, viewer)
		text = body
		return code == 200 && strings.Contains(body, "NodeNotReady"), fmt.Errorf("%d %w", code, err)
	})
	for _, want := range []string{
		"<svg", "Armed: the fence begins (NotReady); the node is marked", "Evicting: its pods are ended",
		"Evicted: the moved pods are gone", "racks said Off", "work/db-0", "EndPods: ", "NodeNotReady"} {
		if !strings.Contains(text, want) {
			t.Errorf("the fence's page lacks %q:\n%s", want, text)
		}
	}
	if code, body, err := w.get(page+"/fences", viewer); err != nil || code != 200 ||
		!strings.Contains(body, "n3."+rec.ID) {
		t.Errorf("the list of fences: got %d %v %s", code, err, body)
	}

	t.Run("browser", func(t *testing.T) {
		kit.Browse(t, page, viewer, "fleet=/", "fence=/fences/n3."+rec.ID, "node=/nodes/n3", "devices=/devices")
	})

	// The account goes, and with it what its tokens opened.
	kit.Must(t, w.c.Client().CoreV1().ServiceAccounts(namespace).
		Delete(w.ctx, "forcefence-status", metav1.DeleteOptions{}))
	w.until("its tokens and its cookies open nothing", func() (bool, error) {
		code, _, err := w.get(page+"/", viewer)
		if err != nil || code != http.StatusUnauthorized {
			return false, fmt.Errorf("token: %d %w", code, err)
		}
		resp, err := browser.Get(page + "/")
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized, fmt.Errorf("cookie: %s", resp.Status)
	})
	for followed.Scan() { // ends
	}
	replica.Stop()
	log, err := os.ReadFile(replica.LogFile())
	kit.Must(t, err)
	if bytes.Contains(bytes.ToLower(log), []byte("forbidden")) || bytes.Contains(log, []byte("may not watch")) {
		t.Errorf("the chart lacks a right:\n%s", log)
	}
	for _, secret := range []string{viewer, strings.Split(viewer, ".")[2]} {
		if bytes.Contains(log, []byte(secret)) {
			t.Error("a token is in the log")
		}
	}
}

// token is one of a ServiceAccount, for an audience; nil: for the API server.
func (w *world) token(namespace, account string, audiences []string) string {
	w.t.Helper()
	hour := int64(time.Hour / time.Second)
	_, err := w.c.Client().CoreV1().ServiceAccounts(namespace).Get(w.ctx, account, metav1.GetOptions{})
	if err != nil {
		_, err = w.c.Client().CoreV1().ServiceAccounts(namespace).
			Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		kit.Must(w.t, err)
	}
	r, err := w.c.Client().CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, account,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour, Audiences: audiences}},
		metav1.CreateOptions{})
	kit.Must(w.t, err)
	return r.Status.Token
}

// get asks for a page with a token, if it is not "".
func (w *world) get(address, token string) (code int, body string, _ error) {
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
