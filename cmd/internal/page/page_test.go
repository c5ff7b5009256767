package page

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	g "maragu.dev/gomponents"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
)

var update = flag.Bool("update", false, "write the pages of testdata and the pictures of docs/img")

var (
	now     = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	hostile = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\r\ndata: x\" onmouseover=\"alert(3)"
)

// drillAnswers are the answers of a drill, by the message of its condition.
var drillAnswers = map[string]drill.Answers{
	"The machine is On (racks/n1: On, strips/3: On).": {Word: "On", Devices: []drill.DeviceAnswer{
		{Device: "racks/n1", Power: "On"}, {Device: "strips/3", Power: "On"}}},
	"The machine is On (racks/n6: On, strips/6: denied).": {Word: "On", Devices: []drill.DeviceAnswer{
		{Device: "racks/n6", Power: "On"}, {Device: "strips/6", Power: "Unknown", Problem: "denied"}}},
	"The machine is Off (racks/n10: Off).": {Word: "Off", Devices: []drill.DeviceAnswer{
		{Device: "racks/n10", Power: "Off"}}},
}

// snapshot is a small fleet with everything in it, some of it a hostile kubelet's.
func snapshot() view.Snapshot {
	node := func(name string, conditions ...corev1.NodeCondition) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-1", Annotations: map[string]string{}},
			Status: corev1.NodeStatus{Conditions: conditions}}
		for _, c := range conditions {
			if answers, drilled := drillAnswers[c.Message]; drilled {
				n.Annotations[taint.DrillAnnotation] = answers.Encode(c.LastHeartbeatTime.Time)
			}
		}
		return n
	}
	is := func(kind corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: s, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
			LastHeartbeatTime:  metav1.NewTime(now.Add(-4 * time.Minute))}
	}
	ready := is(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "")
	silent := is(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "")
	drilled := is(taint.FenceableCondition, corev1.ConditionTrue, "MachineAnswers",
		"The machine is On (racks/n1: On, strips/3: On).")
	closed := is(taint.ProtectionCondition, corev1.ConditionTrue, taint.ProtectionFailClosed, "")
	fenced := node("n4", silent, drilled, closed)
	rec := taint.Record{
		ID: "f-8bd391b2f0c0", Phase: taint.PhaseEvicting, NodeUID: "u-1", By: "forcefence-1", Device: "racks/n4",
		Since: now.Add(-9 * time.Second), At: now.Add(-7 * time.Second),
		Evidence: []taint.Evidence{{At: now.Add(-9 * time.Second), From: "racks/n4", State: "Off", Raw: "Off"}},
	}
	fenced.Annotations[taint.RecordAnnotation] = rec.Encode()
	broken := node("n5", ready)
	broken.Annotations[taint.RecordAnnotation] = `{"phase":"Sideways"}`
	marked := node("n6", ready,
		is(taint.FenceableCondition, corev1.ConditionTrue, "MachineAnswers",
			"The machine is On (racks/n6: On, strips/6: denied)."))
	off := node("n10", silent, is(taint.FenceableCondition, corev1.ConditionTrue, "MachineAnswers",
		"The machine is Off (racks/n10: Off)."), closed)
	left := taint.Record{
		ID: "f-77c0de77c0de", Phase: taint.PhaseDone, Result: taint.ResultEvicted, NodeUID: "u-1", By: "forcefence-1",
		Device: "racks/n10", Since: now.Add(-20 * time.Minute), At: now.Add(-19 * time.Minute), PowerOff: true,
		PowerOffTo: []taint.DeviceRef{{Device: "racks/n10"}},
		Evidence:   []taint.Evidence{{At: now.Add(-20 * time.Minute), From: "racks/n10", State: "Off", Raw: "Off"}},
	}
	off.Annotations[taint.RecordAnnotation] = left.Encode()
	marked.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: "manual", Effect: corev1.TaintEffectNoSchedule}}
	micro := func(ago time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(-ago)) }
	done := api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: "n1.f-0123456789ab"}, Spec: api.FencingSpec{
		Node: "n1", ID: "f-0123456789ab", By: "forcefence-1", Why: "LeaseStale", StartedAt: micro(time.Hour),
		PowerOff: true,
	}}
	end := micro(time.Hour - 8200*time.Millisecond)
	done.Status = api.FencingStatus{
		Phase: "Done", Result: "Evicted", FinishedAt: &end, Duration: "8.2s",
		Timeline: []api.PhaseEntered{
			{Phase: "PoweringOff", At: micro(time.Hour)}, {Phase: "Armed", At: micro(time.Hour - 3*time.Second)},
			{Phase: "Evicting", At: micro(time.Hour - 4*time.Second)}, {Phase: "Done", Result: "Evicted", At: end},
		},
		Evidence: []api.Answer{
			{At: micro(time.Hour + time.Second), From: "racks/n1", State: "On", Raw: "On"},
			{At: micro(time.Hour - 2*time.Second), From: "racks/n1", State: "Changing", Raw: "PoweringOff"},
			{At: micro(time.Hour - 3*time.Second), From: "racks/n1", State: "Off", Raw: "Off"},
			{At: micro(time.Hour - 3500*time.Millisecond), From: "strips/3", State: "Off", Raw: hostile},
		},
		Steps: []api.Step{
			{Step: api.StepAskDevices, Began: micro(time.Hour + time.Second), Ended: micro(time.Hour - 4*time.Second),
				Times: 3},
			{Step: api.StepPowerOff, Began: micro(time.Hour), Ended: micro(time.Hour - 300*time.Millisecond)},
			{Step: api.StepSetMark, Began: micro(time.Hour - 3*time.Second),
				Ended: micro(time.Hour - 3020*time.Millisecond)},
			{Step: api.StepEndPods, Began: micro(time.Hour - 4*time.Second), Ended: micro(time.Hour - 5*time.Second),
				Objects: 3, Error: hostile},
			{Step: hostile, Began: micro(time.Hour - 5*time.Second), Ended: micro(time.Hour - 6*time.Second)},
			{Step: api.StepRemoveMark, Began: end, Ended: micro(time.Hour - 8300*time.Millisecond)},
		},
		Pods: api.Pods{Ended: 3,
			Names: []api.Pod{{Namespace: "shop", Name: "db-0", UID: "a"}, {Namespace: "shop", Name: "db-1", UID: "b"},
				{Namespace: "shop", Name: hostile, UID: "c"}}},
		Volumes: api.Volumes{Attached: 2, Detached: 2, Names: []string{"pv-1", "pv-2"}, Staying: []string{"pv-9"}},
		Conditions: []metav1.Condition{
			{Type: api.Finished, Status: "True", Message: "the moved pods are gone, their volumes detached"},
			{Type: api.Proven, Status: "True", Message: "racks/n1 said that the machine is off"},
		},
	}
	shadow := api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: "n2.would-recover-5c0d19aa"}, Spec: api.FencingSpec{
		Node: "n2", By: "forcefence-1", Why: "NotReady", StartedAt: micro(2 * time.Hour), Shadow: true,
	}}
	shadow.Status = api.FencingStatus{Phase: "Done", Result: "WouldRecover",
		Timeline: []api.PhaseEntered{{Phase: "Done", Result: "WouldRecover", At: micro(2 * time.Hour)}},
		Pods:     api.Pods{Would: 5}}
	return view.Snapshot{
		At: now, Key: taint.DefaultKey,
		Nodes: []*corev1.Node{
			node("n1", ready, drilled, closed),
			node("n2", ready, is(taint.FenceableCondition, corev1.ConditionFalse, "MachineNotAnswering", hostile),
				is(taint.ProtectionCondition, corev1.ConditionTrue, taint.ProtectionFailOpen, "")),
			node("n3", silent, is(taint.PoweredOnCondition, corev1.ConditionTrue, "PoweredOnNotReady", ""),
				is(taint.FenceableCondition, corev1.ConditionUnknown, "MachineNotAnswering",
					"No answer that counts: racks/n3: unreachable.")),
			fenced, broken, marked,
			node("n7", is(corev1.NodeReady, corev1.ConditionFalse, hostile, ""),
				is(taint.ProtectionCondition, corev1.ConditionFalse, taint.ProtectionNone, "")),
			node("n8"), off, node("n11", ready, drilled, closed), node("n12", ready, drilled, closed),
		},
		NodeConfig: func(n *corev1.Node) view.NodeConfig {
			switch n.Name {
			case "n1":
				return view.NodeConfig{Devices: []string{"racks/n1", "strips/3"}, Mode: "fence"}
			case "n8":
				return view.NodeConfig{NoDeviceReason: "no rule matches the node", Mode: "observe"}
			}
			return view.NodeConfig{Devices: []string{"racks/" + n.Name}, Mode: "observe"}
		},
		Fences: []view.ParsedFencing{{Fencing: done}, {Fencing: shadow}, newer()},
		Cluster: view.Cluster{Controller: &view.Leader{Leads: true, Room: room.Summarize(now, []room.Failure{
			{Kind: room.Node, Name: "n1", Pods: 20, Lacking: 3}, {Kind: room.Node, Name: "n2", Pods: 5},
			{Kind: room.Domain, Name: hostile, Pods: 25, Lacking: 1},
			{Kind: room.Pair, Name: "a, b", Pods: 40, Unknown: 1},
		})}},
		Events: map[string][]view.Event{"n1": {
			{At: now.Add(-time.Hour - 2*time.Second), From: "node-controller", Reason: "NodeNotReady",
				Text: "Node n1 status is now: NodeNotReady", Warning: true, Count: 2},
			{At: now.Add(-time.Hour + 4*time.Second), From: "forcefence", Reason: "EndingPods", Text: "Ending 3 pods."},
			{At: now.Add(-time.Hour + 5*time.Second), From: "forcefence", Reason: "NoHookOnNode", Text: hostile},
			{At: now.Add(-2 * time.Minute), From: "kubelet", Reason: "Rebooted", Text: "long after"},
		}},
	}
}

// newer is a Fencing as a newer version might write it.
func newer() view.ParsedFencing {
	r, err := view.ParseFencing(map[string]any{
		"apiVersion": "forcefence.io/v1alpha1", "kind": "Fencing",
		"metadata": map[string]any{"name": "n9.f-aaaaaaaaaaaa"},
		"spec": map[string]any{"node": "n9", "by": "forcefence-9", "startedAt": "2026-05-04T11:59:00.000000Z",
			"colour": "red"},
		"status": map[string]any{"phase": "Sideways",
			"timeline": []any{map[string]any{"phase": "Sideways", "at": "2026-05-04T11:59:01.000000Z"}}},
	})
	if err != nil {
		panic(err)
	}
	return r
}

// testServer serves the snapshot to tokens: each is its owner's name, "blind" may not see the page, and others are
// nobody's.
func testServer(t *testing.T, change func(*Options)) (*httptest.Server, *people) {
	t.Helper()
	p := &people{}
	o := Options{
		Fleet: func() (*view.Fleet, error) { return view.FleetOf(snapshot()), nil },
		About: "forcefence test", Cluster: "rack <7>", Namespace: "fencing",
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Review: p.review,
	}
	if change != nil {
		change(&o)
	}
	srv := httptest.NewServer(newServer(o).newHandler())
	t.Cleanup(srv.Close)
	return srv, p
}

// people are who a token may belong to.
type people struct {
	mu    sync.Mutex // guards the rest
	asked int
	gone  bool // all tokens have expired
	away  bool // the API server does not answer
}

func (p *people) review(_ context.Context, token string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	switch {
	case p.away:
		return "", errors.New("no route to host")
	case p.gone:
		return "", errUnknownToken
	case token == "blind":
		return token, errNoRight
	case token == "ann", token == "bob":
		return token, nil
	}
	return "", errUnknownToken
}

func (p *people) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

type answer struct {
	code   int
	body   string
	header http.Header
}

func ask(t *testing.T, method, address, body string, header map[string]string) answer {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if h := header["Host"]; h != "" {
		req.Host = h
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, string(text), resp.Header}
}

// Who shows what sees what.
func TestWho(t *testing.T) {
	srv, _ := testServer(t, nil)
	for _, tc := range []struct {
		name   string
		method string // "" GET
		path   string
		body   string
		header map[string]string
		code   int
		want   string
	}{
		{name: "nobody", path: "/", code: 401, want: "<form method=\"post\" action=\"/login\""},
		{name: "nobody, of a node", path: "/nodes/n4", code: 401, want: `value="/nodes/n4"`},
		{name: "a token", path: "/", header: map[string]string{"Authorization": "Bearer ann"}, code: 200,
			want: "racks/n4"},
		{name: "a token in the address", path: "/?token=ann&access_token=ann", code: 401, want: "Log in"},
		{name: "an unknown token", path: "/", header: map[string]string{"Authorization": "Bearer eve"}, code: 401,
			want: "does not know this token"},
		{name: "a token without the right", path: "/", header: map[string]string{"Authorization": "Bearer blind"},
			code: 403, want: "blind may not see this page"},
		{name: "an empty token", path: "/", header: map[string]string{"Authorization": "Bearer "}, code: 401,
			want: "Log in"},
		{name: "a password", path: "/", header: map[string]string{"Authorization": "Basic YW5uOmFubg=="}, code: 401,
			want: "Log in"},
		{name: "a cookie that nobody gave", path: "/", header: map[string]string{"Cookie": "forcefence-status=ann"},
			code: 401, want: "Your login has expired"},
		{name: "a log in with an unknown token", method: "POST", path: "/login", body: "token=eve&next=/devices",
			header: form(nil), code: 401, want: `value="/devices"`},
		{name: "a log in without the right", method: "POST", path: "/login", body: "token=blind", header: form(nil),
			code: 403, want: "blind may not see this page"},
		{name: "another site's log in", method: "POST", path: "/login", body: "token=ann",
			header: form(map[string]string{"Sec-Fetch-Site": "cross-site"}), code: 403, want: "cross-origin"},
		{name: "another site's log in, told by Origin", method: "POST", path: "/login", body: "token=ann",
			header: form(map[string]string{"Origin": "https://evil.example.net"}), code: 403, want: "cross-origin"},
		{name: "another site's log out", method: "POST", path: "/logout",
			header: form(map[string]string{"Sec-Fetch-Site": "same-site"}), code: 403, want: "cross-origin"},
		{name: "a name that leads here", path: "/",
			header: map[string]string{"Host": "evil.example.net:8082", "Authorization": "Bearer ann"}, code: 421,
			want: "another host"},
		{name: "localhost", path: "/",
			header: map[string]string{"Host": "localhost:1234", "Authorization": "Bearer ann"}, code: 200,
			want: "racks/n4"},
		{name: "loopback, IPv6", path: "/",
			header: map[string]string{"Host": "[::1]:1234", "Authorization": "Bearer ann"}, code: 200,
			want: "racks/n4"},
		{name: "a name like localhost", path: "/",
			header: map[string]string{"Host": "localhost.evil.example.net", "Authorization": "Bearer ann"}, code: 421,
			want: "another host"},
		{name: "no such node", path: "/nodes/n99", header: map[string]string{"Authorization": "Bearer ann"}, code: 404,
			want: "no such node"},
		{name: "no such fence", path: "/fences/n99", header: map[string]string{"Authorization": "Bearer ann"},
			code: 404, want: "no such fence"},
		{name: "no such page", path: "/secrets", header: map[string]string{"Authorization": "Bearer ann"}, code: 404,
			want: "404"},
		{name: "something that changes", method: "DELETE", path: "/nodes/n4",
			header: map[string]string{"Authorization": "Bearer ann"}, code: 405, want: "Method"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			got := ask(t, method, srv.URL+tc.path, tc.body, tc.header)
			if got.code != tc.code || !strings.Contains(got.body, tc.want) {
				t.Errorf("got %d %s, want %d with %q", got.code, got.body, tc.code, tc.want)
			}
			if got.code != 200 && strings.Contains(got.body, "racks/") {
				t.Errorf("tells of the fleet: %s", got.body)
			}
			for name, want := range headers {
				if got.header.Get(name) != want {
					t.Errorf("%s: got %q, want %q", name, got.header.Get(name), want)
				}
			}
			if v := got.header.Get("Access-Control-Allow-Origin"); v != "" {
				t.Errorf("lets %s read it", v)
			}
		})
	}
}

func form(more map[string]string) map[string]string {
	out := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	for k, v := range more {
		out[k] = v
	}
	return out
}

// A browser's way: the form, a cookie that no script reads and no other site sends, the page, and out.
func TestLogin(t *testing.T) {
	srv, p := testServer(t, nil)
	for next, want := range map[string]string{
		"/nodes/n4?x=1": "/nodes/n4?x=1", "https://evil.example.net/": "/", "//evil.example.net/": "/",
		"/\\evil.example.net": "/", "": "/", "javascript:alert(1)": "/",
	} {
		got := ask(t, http.MethodPost, srv.URL+"/login", url.Values{"token": {" ann\n"}, "next": {next}}.Encode(),
			form(nil))
		if got.code != http.StatusSeeOther || got.header.Get("Location") != want {
			t.Errorf("next %q: got %d to %q, want to %q", next, got.code, got.header.Get("Location"), want)
		}
	}
	got := ask(t, http.MethodPost, srv.URL+"/login", "token=ann", form(nil))
	set, err := http.ParseSetCookie(got.header.Get("Set-Cookie"))
	if err != nil || !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.MaxAge <= 0 || set.MaxAge > 3600 ||
		set.Secure || strings.Contains(set.Value, "ann") || len(set.Value) < 40 {
		t.Fatalf("cookie: got %q, %v", got.header.Get("Set-Cookie"), err)
	}
	shown := map[string]string{"Cookie": set.Name + "=" + set.Value}
	if got := ask(t, http.MethodGet, srv.URL+"/", "", shown); got.code != 200 || !strings.Contains(got.body, "ann") {
		t.Errorf("with the cookie: got %d", got.code)
	}
	if got := ask(t, http.MethodGet, srv.URL+"/", "",
		map[string]string{"Authorization": "Bearer " + set.Value}); got.code != 401 {
		t.Errorf("the cookie as a token: got %d", got.code)
	}
	p.set(func() { p.away = true })
	if got := ask(t, http.MethodGet, srv.URL+"/", "", shown); got.code != 200 { // reviewed a moment ago
		t.Errorf("while the API server is away: got %d", got.code)
	}
	if got := ask(t, http.MethodPost, srv.URL+"/login", "token=ann", form(nil)); got.code != 503 {
		t.Errorf("log in while the API server is away: got %d", got.code)
	}
	if got := ask(t, http.MethodPost, srv.URL+"/logout", "", form(shown)); got.code != http.StatusSeeOther ||
		!strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("log out: got %d %q", got.code, got.header.Get("Set-Cookie"))
	}
	if got := ask(t, http.MethodGet, srv.URL+"/", "", shown); got.code != 401 {
		t.Errorf("after the log out: got %d", got.code)
	}
}

// With a certificate a browser sends the cookie over TLS alone.
func TestCookieOverTLS(t *testing.T) {
	for _, file := range []string{"", "/tls.crt"} {
		s := newServer(Options{CertFile: file, Log: slog.New(slog.DiscardHandler), Now: time.Now})
		if got, want := s.newCookie("v", 1).Secure, file != ""; got != want {
			t.Errorf("certificate %q: got Secure %t, want %t", file, got, want)
		}
	}
}

// Reviews are kept for a while and no longer, and unknown tokens cannot have the API server asked as often as they
// like.
func TestGate(t *testing.T) {
	at := now
	p := &people{}
	g := newGate(p.review, func() time.Time { return at })
	home := netip.MustParseAddr("192.0.2.1")
	ctx := t.Context()
	shown, _, err := g.openLogin(ctx, home, "ann")
	if err != nil {
		t.Fatal(err)
	}
	see := func(want error) {
		t.Helper()
		if _, err := g.reviewCookie(ctx, shown); !errors.Is(err, want) {
			t.Errorf("%s after the log in: got %v, want %v", at.Sub(now), err, want)
		}
	}
	for range 1000 {
		see(nil)
	}
	if p.asked != 1 {
		t.Errorf("asked %d times, want once", p.asked)
	}
	at = at.Add(reviewValidFor - 1)
	p.gone = true
	see(nil)
	at = at.Add(1)
	see(errUnknownToken) // the token was taken back half a minute ago
	p.gone = false
	see(errUnknownToken) // and its cookie with it
	shown, _, err = g.openLogin(ctx, home, "ann")
	if err != nil {
		t.Fatal(err)
	}
	at = at.Add(-time.Minute) // a clock that is set back is no reason to believe
	p.asked = 0
	see(nil)
	if p.asked != 1 {
		t.Errorf("asked %d times after the clock was set back, want once", p.asked)
	}
	at = now.Add(reviewValidFor + maxLoginTime)
	see(errUnknownToken)

	p.asked = 0
	refused := 0
	for i := range 500 {
		if _, err := g.reviewBearer(ctx, home, fmt.Sprintf("guess-%d", i)); errors.Is(err, errTooMany) {
			refused++
		}
	}
	if p.asked > 25 || refused < 475 {
		t.Errorf("of 500 guesses: got %d reviews and %d refused, want 25 reviews at most", p.asked, refused)
	}
	if _, err := g.reviewBearer(ctx, home, strings.Repeat("x", maxTokenBytes+1)); !errors.Is(err, errUnknownToken) {
		t.Errorf("a long token: got %v", err)
	}
	for range 2 * maxLogins {
		at = at.Add(time.Second)
		if shown, _, err = g.openLogin(ctx, home, "bob"); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.known) > maxLogins {
		t.Errorf("keeps %d, want %d at most", len(g.known), maxLogins)
	}
	see(nil) // the newest
}

// A stranger who tries tokens keeps no user from another address out. All addresses together have a limit, and so has
// the number of those that are counted.
func TestStrangersTokens(t *testing.T) {
	at := time.Now()
	p := &people{}
	g := newGate(p.review, func() time.Time { return at })
	ctx := t.Context()
	try := func(from string) error {
		_, err := g.reviewBearer(ctx, netip.MustParseAddr(from), rand.Text())
		return err
	}
	for i := range 500 {
		_ = try("192.0.2.66")
		_ = try(fmt.Sprintf("2001:db8::%x", i))
	}
	if p.asked > 50 {
		t.Errorf("of 1,000 guesses from two places: got %d reviews, want 40", p.asked)
	}
	if _, _, err := g.openLogin(ctx, netip.MustParseAddr("192.0.2.1"), "ann"); err != nil {
		t.Errorf("a user meanwhile: got %v, want a log-in", err)
	}
	if _, _, err := g.openLogin(ctx, netip.MustParseAddr("192.0.2.66"), "ann"); !errors.Is(err, errTooMany) {
		t.Errorf("from the stranger's address: got %v, want %v", err, errTooMany)
	}
	p.asked = 0
	for i := range 3 * maxSources {
		_ = try(fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	if p.asked > 110 || len(g.each) > maxSources {
		t.Errorf("from %d addresses: got %d reviews, and %d addresses counted", 3*maxSources, p.asked, len(g.each))
	}
}

// A followed page is sent when it changes, until its reader may not see it any more; and readers are not too many.
func TestStream(t *testing.T) {
	var mu sync.Mutex
	text := "one"
	at := time.Now()
	srv, p := testServer(t, func(o *Options) {
		o.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return at
		}
		o.Fleet = func() (*view.Fleet, error) {
			mu.Lock()
			defer mu.Unlock()
			s := snapshot()
			s.Missing = text + "\r\ndata: " + text
			return view.FleetOf(s), nil
		}
	})
	follow := func() (lines *bufio.Scanner, code int, leave func()) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer ann")
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		leave = sync.OnceFunc(func() { resp.Body.Close() })
		t.Cleanup(leave)
		lines = bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		return lines, resp.StatusCode, leave
	}
	lines, _, _ := follow()
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
	if got := next(); !strings.Contains(got, "one") || strings.Contains(got, "<html") {
		t.Fatalf("got %q", got)
	}
	mu.Lock()
	text = "two"
	mu.Unlock()
	if got := next(); !strings.Contains(got, "two") {
		t.Fatalf("after a change: got %q", got)
	}
	// Other readers, who read nothing: they are counted, and the first reads on.
	var others []func()
	for range maxStreams - 1 {
		_, _, leave := follow()
		others = append(others, leave)
	}
	if _, code, _ := follow(); code != http.StatusServiceUnavailable {
		t.Errorf("one reader too many: got %d", code)
	}
	for _, leave := range others {
		leave()
	}
	p.set(func() { p.gone = true })
	mu.Lock()
	at, text = at.Add(time.Minute), "three"
	mu.Unlock()
	for lines.Scan() {
		if strings.Contains(lines.Text(), "three") {
			t.Fatal("sent to somebody whose token has expired")
		}
	}
	if got := ask(t, http.MethodGet, srv.URL+"/", "",
		map[string]string{"Accept": "text/event-stream"}); got.code != 401 {
		t.Errorf("followed by nobody: got %d", got.code)
	}
}

// The pages as they are, each looked at in testdata by whoever changes them.
func TestPages(t *testing.T) {
	srv, _ := testServer(t, nil)
	for name, path := range map[string]string{
		"fleet": "/", "filtered": "/?name=n&state=being+fenced&provider=racks", "fences": "/fences",
		"devices": "/devices", "hook": "/hook",
		"node": "/nodes/n4", "node-hostile": "/nodes/n7", "fence": "/fences/n1.f-0123456789ab",
		"fence-left-off": "/fences/n10.f-77c0de77c0de",
		"fence-newer":    "/fences/n9.f-aaaaaaaaaaaa",
		"fence-shadow":   "/fences/n2.would-recover-5c0d19aa", "login": "/",
	} {
		t.Run(name, func(t *testing.T) {
			header, code := map[string]string{"Authorization": "Bearer ann"}, 200
			if name == "login" {
				header, code = nil, 401
			}
			got := ask(t, http.MethodGet, srv.URL+path, "", header)
			if got.code != code {
				t.Fatalf("got %d %s", got.code, got.body)
			}
			check(t, got.body)
			text := strings.ReplaceAll(got.body, "><", ">\n<") + "\n"
			file := filepath.Join("testdata", name+".html")
			if *update {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != text {
				t.Errorf("%s differs; go test ./cmd/internal/page -update writes it anew. Got:\n%s", file, text)
			}
		})
	}
}

// Clocks differ by less than what is shown: that is no time before the start.
func TestFormatOffset(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-40 * time.Millisecond: "+0.0s", 40 * time.Millisecond: "+0.0s", -2 * time.Second: "-2.0s",
		1900 * time.Millisecond: "+1.9s",
	} {
		if got := formatOffset(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

// The runbook is that of the version that runs, if that is a release.
func TestRunbookURL(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3-rc.1": "v1.2.3-rc.1",
		"v1.2.3-4-gabcdef0": "main", "v0.0.0-20261127020000-abcdef012345": "main", "v1.2.3+dirty": "main",
		"(devel)": "main", "unknown": "main", "": "main",
	} {
		if got := runbookURL(version); !strings.Contains(got, "/blob/"+want+"/docs/runbook.md#") {
			t.Errorf("%q: got %s, want %s", version, got, want)
		}
	}
}

// The page says in green that no node needs a person only while no node has been dead for five minutes, and no banner
// calls a person. A dead node may need none: its fence is over, or a person paused it.
func TestLead(t *testing.T) {
	for _, tc := range []struct {
		since time.Duration // of two nodes that are not Ready
		count int
		pause string
		look  string
		want  string
	}{
		{0, 0, "", "good", "✓ No node needs a person."},
		{5*time.Minute - time.Second, 2, "", "good", "✓ No node needs a person."},
		{5 * time.Minute, 1, "", "warn", "! dead-0 has not been Ready for over 5 minutes."},
		{time.Hour, 2, "", "warn", "! 2 nodes have not been Ready for over 5 minutes: dead-0, dead-1."},
		{0, 0, "ConfigMap fencing/forcefence-pause: new switch", "", ""}, // the banner says what is wrong
	} {
		s := newScene(t, time.Minute)
		s.cluster.Paused = tc.pause
		for i := range tc.count {
			s.addNode(fmt.Sprintf("dead-%d", i), "rack1").edit(func(n *corev1.Node) {
				n.Annotations[fence.PausedAnnotation] = "new disk"
				setCondition(n, corev1.NodeReady, corev1.ConditionUnknown, now.Add(-tc.since), "NodeStatusUnknown", "")
			})
		}
		got := render(renderUrgent(view.FleetOf(s.snapshot())))
		doc, err := html.Parse(strings.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		if textOf(doc) != tc.want || !strings.Contains(got, tc.look) {
			t.Errorf("%d nodes, for %s: got %s, want %s %q", tc.count, tc.since, got, tc.look, tc.want)
		}
	}
}

// The log in names the controller's own namespace, which has the ServiceAccount whose token the command makes.
func TestLoginNamespace(t *testing.T) {
	srv, _ := testServer(t, func(o *Options) { o.Namespace = "fencing" })
	got := ask(t, http.MethodGet, srv.URL+"/", "", nil)
	if want := "kubectl -n fencing create token forcefence-status "; !strings.Contains(got.body, want) {
		t.Errorf("got %s, want %q", got.body, want)
	}
	if !strings.Contains(got.body, "autofocus") {
		t.Errorf("got %s, want the cursor in the token's field", got.body)
	}
}

// A table has no column without any content.
func TestEmptyColumn(t *testing.T) {
	got := render(renderTable("Names", []string{"Name", "Empty", "Why"}, []row{
		{g.Text("a"), g.Group{}, g.Text("")}, {g.Text("b"), g.Text(""), g.Text("because")},
	}))
	if strings.Contains(got, "Empty") || strings.Count(got, "<td") != 2 || !strings.Contains(got, "because") {
		t.Errorf("got %s, want the columns Name and Why", got)
	}
}

// Each page begins with what concerns the whole cluster.
func TestBanners(t *testing.T) {
	cluster := view.Cluster{}
	srv, _ := testServer(t, func(o *Options) {
		o.Fleet = func() (*view.Fleet, error) {
			s := snapshot()
			s.Cluster = cluster
			return view.FleetOf(s), nil
		}
	})
	lease := view.Leader{
		Namespace: "home", Lease: "kube-system/forcefence", Holder: "ff-1", Renewed: new(now.Add(-3 * time.Minute)),
	}
	leads := lease
	leads.Leads = true
	holds := leads
	holds.HeldBack = &view.HeldBack{Rule: reason.Reason(hostile), Detail: hostile, Held: 1,
		Nodes: []string{hostile}, Since: now}
	leads.ConfigRejected = "config.yaml:3: mode: missing"
	for _, tc := range []struct {
		name    string
		cluster view.Cluster
		want    []string
	}{
		{"nothing was read", view.Cluster{}, nil},
		{"a storm, by a hostile text", view.Cluster{Controller: &holds}, []string{"Power-offs are held back: "}},
		{"no leader", view.Cluster{Controller: &lease}, []string{"No controller leads: "}},
		{"a rejected configuration", view.Cluster{Controller: &leads},
			[]string{"The changed configuration is rejected: "}},
		{"a pause, by a hostile text", view.Cluster{Paused: hostile}, []string{"Fencing is paused for all " +
			"nodes: "}},
	} {
		cluster = tc.cluster
		for _, path := range []string{"/", "/fences", "/devices", "/hook", "/nodes/n4", "/fences/n1.f-0123456789ab"} {
			got := ask(t, http.MethodGet, srv.URL+path, "", map[string]string{"Authorization": "Bearer ann"})
			check(t, got.body)
			_, main, _ := strings.Cut(got.body, `<div id="live">`)
			var banners []string
			for strings.HasPrefix(main, `<p class="note banner"><strong>`) {
				title, rest, _ := strings.Cut(strings.TrimPrefix(main, `<p class="note banner"><strong>`), "</strong>")
				banners = append(banners, title)
				_, main, _ = strings.Cut(rest, "</p>")
			}
			if !slices.Equal(banners, tc.want) {
				t.Errorf("%s, %s: got banners %q, want %q", tc.name, path, banners, tc.want)
			}
		}
	}
}

// What concerns the whole cluster is read again and again; while it cannot be read, the page claims nothing.
func TestClusterIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := NewSource(SourceOptions{Log: slog.New(slog.DiscardHandler),
			Cluster: func(context.Context) (view.Cluster, error) {
				if reads++; reads == 3 {
					return view.Cluster{Paused: "half of an answer"}, errors.New("no route to host")
				}
				return view.Cluster{Paused: fmt.Sprint(reads)}, nil
			}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.readCluster(ctx) }()
		for _, want := range []string{"1", "2", "", "4"} {
			synctest.Wait()
			s.mu.Lock()
			got := s.cluster.Paused
			s.mu.Unlock()
			if got != want {
				t.Errorf("after %d reads: got %q, want %q", reads, got, want)
			}
			time.Sleep(clusterInterval) // the bubble's
		}
		stop()
		<-ended
	})
}

// The chart's lines are at full seconds, or at full parts of one, and there are few of them.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		before, lasted time.Duration
		want           []string
	}{
		{0, 700 * time.Millisecond, []string{"0s", "100ms", "200ms", "300ms", "400ms", "500ms", "600ms", "700ms"}},
		{100 * time.Millisecond, 5100 * time.Millisecond, []string{"0s", "1s", "2s", "3s", "4s", "5s"}},
		{0, 16 * time.Minute, []string{"0s", "3m20s", "6m40s", "10m0s", "13m20s"}},
		{0, time.Microsecond, []string{"0s", "1µs"}},
	} {
		var got []string
		for _, at := range (timeScale{start: now, from: now.Add(-tc.before), to: now.Add(tc.lasted)}).ticks() {
			got = append(got, at.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.lasted, got, tc.want)
		}
	}
}

// Phases and steps are drawn where their times are, and nothing is outside of the chart.
func TestTimeScale(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d)) }
	v := view.Fence{Started: now, Finished: now.Add(8 * time.Second), Steps: []api.Step{
		{Step: api.StepAskDevices, Began: at(-time.Second), Ended: at(time.Second)},
		{Step: api.StepRemoveMark, Began: at(8 * time.Second), Ended: at(9 * time.Second)},
	}}
	scale, ok := newTimeScale(v, now.Add(time.Hour))
	if !ok {
		t.Fatal("no time passed")
	}
	for d, want := range map[time.Duration]int{
		-time.Second: chartFrom, 0: chartFrom + chartWidth/10, 4 * time.Second: chartFrom + chartWidth/2,
		9 * time.Second: chartTo, -time.Hour: chartFrom, time.Hour: chartTo,
	} {
		if got := scale.x(now.Add(d)); got != want {
			t.Errorf("%s: got %d, want %d", d, got, want)
		}
	}
	v.Finished, v.Steps = time.Time{}, nil
	if scale, ok = newTimeScale(v, now.Add(time.Minute)); !ok || scale.x(now.Add(time.Minute)) != chartTo {
		t.Errorf("an open fence: got %t, %+v, want one that ends now", ok, scale)
	}
	if _, ok = newTimeScale(v, now); ok {
		t.Error("a fence that begins now: got a scale")
	}
}

// A device's lane has its provider's name, unless two devices of one provider have answered.
func TestLanes(t *testing.T) {
	moments := func(from ...string) (out []view.Moment) {
		for _, who := range from {
			out = append(out, view.Moment{Who: who})
		}
		return out
	}
	for _, tc := range []struct {
		moments []view.Moment
		want    []string
	}{
		{nil, nil},
		{moments(view.LaneForcefence, "racks/https://10.0.0.1:443", view.LaneCluster), []string{"racks"}},
		{moments("racks", "strips/1", "strips/2", "racks"), []string{"racks", "strips/1", "strips/2"}},
		{moments("a/1", "b/1", "c/1", "d/1", "e/1", "e/2"), []string{"a", "b", "c", "d"}},
	} {
		lane, got := assignLanes(tc.moments)
		if want := append([]string{view.LaneCluster, view.LaneForcefence}, tc.want...); !slices.Equal(got, want) {
			t.Errorf("got lanes %q, want %q", got, want)
		}
		for _, m := range tc.moments {
			if lane[m.Who] >= len(got) {
				t.Errorf("%s: got lane %d of %d", m.Who, lane[m.Who], len(got))
			}
		}
	}
}

// Volumes of pods that stay are named, or counted, and are no part of the others.
func TestStaying(t *testing.T) {
	for want, volumes := range map[string][]string{
		"": nil, "; data-1 stays with its pod": {"data-1"},
		"; 2 more volumes stay with their pods": {"data-1", "data-2"},
	} {
		if got := describeStaying(volumes); got != want {
			t.Errorf("%q: got %q, want %q", volumes, got, want)
		}
	}
}

// A text keeps all its words while it fits, and loses its middle after the last line.
func TestWrapText(t *testing.T) {
	for _, tc := range []struct {
		text       string
		wide, most int
		want       []string
	}{
		{"", 10, 3, []string{""}},
		{"one line", 10, 3, []string{"one line"}},
		{"a text of two lines", 10, 3, []string{"a text of", "two lines"}},
		{"averylongword and more", 8, 5, []string{"av…ord", "and more"}},
		{"1 2 3 4 5 6 7 8 9 10 11 12 end", 10, 2, []string{"1 2 3 4…1", "12 end"}},
	} {
		got := wrapText(tc.text, tc.wide, tc.most)
		for _, line := range got {
			if n := len([]rune(line)); n > tc.wide || len(got) > tc.most {
				t.Errorf("%q: got %d lines, one of %d characters, want %d and %d", tc.text, len(got), n,
					tc.most, tc.wide)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

// A time has its date unless that is today, and an age that changes every 15 seconds at most.
func TestTime(t *testing.T) {
	for _, tc := range []struct {
		at, now time.Time
		want    string
	}{
		{time.Time{}, now, "-"},
		{now.Add(-130 * time.Second), now, "11:57:50, 2 min ago"},
		{now.Add(-20 * time.Hour), now, "2026-05-03 16:00:00, 20 h ago"},
		{now.Add(-time.Minute), now.Add(14 * time.Second), "11:59:00, 1 min ago"},
		{now.Add(-50 * time.Second), now.Add(14 * time.Second), "11:59:10, <1 min ago"},
	} {
		doc, err := html.Parse(strings.NewReader(render(renderTime(tc.at, tc.now))))
		if err != nil {
			t.Fatal(err)
		}
		if got := textOf(doc); got != tc.want {
			t.Errorf("%s at %s: got %q, want %q", tc.at, tc.now, got, tc.want)
		}
	}
}

// A name is never broken into lines: not alone, and not in a sentence. A long one keeps its start and its end.
func TestNames(t *testing.T) {
	const long = "racks/https://bmc-of-a-machine-with-a-long-name.example.net:8443"
	for text, want := range map[string]string{
		"Look at its machine.": `<span class="text">Look at its machine.</span>`,
		"racks/n4 says (Off).": `<span class="text"><span class="name">racks/n4</span> says (Off).</span>`,
		long: `<span class="text"><span class="name" title="` + long +
			`">racks/https://bmc-…me.example.net:8443</span></span>`,
	} {
		if got := render(renderText(text)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func render(n g.Node) string {
	var b strings.Builder
	_ = n.Render(&b) // into memory
	return b.String()
}

// check holds what must be true of each page: nothing of a foreign text became an element, nothing runs, and all can be
// used by keys and ears.
func check(t *testing.T, page string) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	ids, labels, heads := map[string]int{}, map[string]bool{}, []string{}
	var refs []string
	main := 0
	var visit func(n *html.Node, in []string)
	visit = func(n *html.Node, in []string) {
		if n.Type == html.ElementNode {
			attr := map[string]string{}
			for _, a := range n.Attr {
				attr[a.Key] = a.Val
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" ||
					strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") {
					t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
				}
				runbook := n.Data == "a" && a.Key == "href" && strings.HasPrefix(a.Val, runbookURL(""))
				if (a.Key == "href" || a.Key == "src" || a.Key == "action") && !strings.HasPrefix(a.Val, "/") &&
					!strings.HasPrefix(a.Val, "#") && !runbook || strings.HasPrefix(a.Val, "//") {
					t.Errorf("<%s %s=%q> leads elsewhere", n.Data, a.Key, a.Val)
				}
			}
			if id := attr["id"]; id != "" {
				ids[id]++
			}
			for _, k := range []string{"aria-labelledby", "aria-describedby", "for"} {
				refs = append(refs, strings.Fields(attr[k])...)
			}
			switch n.Data {
			case "script":
				if attr["src"] != "/assets/live.js" || n.FirstChild != nil {
					t.Errorf("script: %v", n.Attr)
				}
			case "img", "iframe", "object", "embed", "style", "base", "foreignobject":
				t.Errorf("<%s>", n.Data)
			case "main":
				main++
			case "html":
				if attr["lang"] == "" {
					t.Error("no language")
				}
			case "th":
				if attr["scope"] == "" {
					t.Error("a table's head without its scope")
				}
			case "table":
				if !hasHeads(n) {
					t.Error("a table without heads")
				}
				if n.FirstChild == nil || n.FirstChild.Data != "caption" {
					t.Error("a table without a caption")
				}
			case "svg":
				if attr["role"] != "img" || attr["aria-labelledby"] == "" {
					t.Errorf("svg: %v", n.Attr)
				}
			case "label":
				labels[attr["for"]] = true
			case "input", "select":
				if attr["type"] != "hidden" && !slices.Contains(in, "label") && !labels[attr["id"]] {
					t.Errorf("<%s name=%q> has no label", n.Data, attr["name"])
				}
			case "h1", "h2", "h3":
				heads = append(heads, n.Data)
			case "a", "button":
				if strings.TrimSpace(textOf(n)) == "" {
					t.Errorf("<%s> without a text", n.Data)
				}
			case "nav":
				if attr["aria-label"] == "" {
					t.Error("a nav without a name")
				}
			}
			in = append(in[:len(in):len(in)], n.Data)
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			visit(c, in)
		}
	}
	visit(doc, nil)
	for id, n := range ids {
		if n > 1 {
			t.Errorf("id %s: %d times", id, n)
		}
	}
	for _, r := range refs {
		if ids[r] == 0 {
			t.Errorf("nothing has id %s", r)
		}
	}
	if main != 1 || len(heads) == 0 || heads[0] != "h1" || slices.Contains(heads[1:], "h1") {
		t.Errorf("%d main, headings %v", main, heads)
	}
	if strings.ContainsAny(page, "\u202e\r") {
		t.Error("a mark that turns the text around, or a line's end")
	}
}

// hasHeads reports whether each column of a table has a head with a text.
func hasHeads(table *html.Node) bool {
	for section := range table.ChildNodes() {
		if section.Data != "thead" {
			continue
		}
		heads := 0
		for h := range section.FirstChild.ChildNodes() {
			if heads++; h.Data != "th" || strings.TrimSpace(textOf(h)) == "" {
				return false
			}
		}
		return heads > 0
	}
	return false
}

func textOf(n *html.Node) (out string) {
	if n.Type == html.TextNode {
		return n.Data
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		out += textOf(c)
	}
	return out
}

// BenchmarkFleet is the whole way of one page of 5,000 nodes, a thousand fences and their Events: out of the informers'
// objects, to HTML.
func BenchmarkFleet(b *testing.B) {
	s := fleetOf(5000)
	for name, q := range map[string]view.NodeQuery{"all": {}, "one": {Text: "n4321"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := (frame{title: "Fleet", live: true}).wrapMain(fleetPage(view.FleetOf(s), q, 1)).
					Render(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// fleetOf is a fleet of so many nodes, of which many have something to tell.
func fleetOf(n int) view.Snapshot {
	s := snapshot()
	some, done := s.Nodes, s.Fences[0]
	s.Nodes, s.Fences, s.Events = nil, nil, map[string][]view.Event{}
	for i := range n {
		node := some[i%len(some)].DeepCopy()
		node.Name = fmt.Sprintf("n%d", i)
		s.Nodes = append(s.Nodes, node)
		s.Events[node.Name] = []view.Event{{At: now, From: "forcefence", Reason: "EndingPods", Text: "Ending 3 pods."},
			{At: now, From: "kubelet", Reason: "Starting"}}
		if i < 1000 {
			done.Fencing.Name, done.Fencing.Spec.Node = node.Name+".f-0123456789ab", node.Name
			s.Fences = append(s.Fences, done)
		}
	}
	return s
}

// A page of a large fleet has its bounds, and leads to the rest.
func TestPaged(t *testing.T) {
	srv, _ := testServer(t, func(o *Options) {
		f := view.FleetOf(fleetOf(5000))
		o.Fleet = func() (*view.Fleet, error) { return f, nil }
	})
	for path, want := range map[string]string{
		"/": "1 to 100 of 5000", "/?page=50": "4901 to 5000 of 5000", "/?page=51": "4901 to 5000 of 5000",
		"/?page=-1": "1 to 100 of 5000", "/?page=x": "1 to 100 of 5000",
		"/?name=n432&page=9": "n4321", "/?state=fencing": "of 455", "/?provider=none": "n8",
		"/fences?page=20": "1901 to 1909 of 1909", "/?state=nonsense": "Nodes: none.",
	} {
		got := ask(t, http.MethodGet, srv.URL+path, "", map[string]string{"Authorization": "Bearer ann"})
		if got.code != 200 || !strings.Contains(got.body, want) || len(got.body) > 200<<10 ||
			strings.Count(got.body, "<tr>") > maxRows+1 {
			t.Errorf("%s: got %d, %d bytes, %d rows, want %q in\n%.3000s", path, got.code, len(got.body),
				strings.Count(got.body, "<tr>"), want, got.body)
		}
	}
}
