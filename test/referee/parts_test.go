package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// upstream is an API server that answers with what it was asked for, and counts.
type upstream struct {
	seen chan *http.Request
	tail string // of a watch
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.seen <- r
	if r.URL.Query().Get("watch") != "" {
		_, _ = io.WriteString(w, u.tail)
		return
	}
	_, _ = io.WriteString(w, "done")
}

func testProxy(t *testing.T, f *faults, tail string) (*proxy, *upstream, *http.Client) {
	t.Helper()
	authority := kit.NewAuthority("test")
	u := &upstream{seen: make(chan *http.Request, 100), tail: tail}
	up := httptest.NewUnstartedServer(u)
	up.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Server("127.0.0.1").TLS()}}
	up.StartTLS()
	t.Cleanup(up.Close)
	w := &world{ctx: t.Context(), rng: rand.New(rand.NewPCG(1, 1))}
	s, run := &slot{w: w, program: program{name: "a", identity: &rest.Config{BearerToken: "secret"}}}, "r1"
	s.run.Store(&run)
	s.part.Store(cluster.NewPart("", "", nil, "", nil, nil))
	p, err := startProxy(t.Context(), s, authority, authority.Pool(), up.URL)
	kit.Must(t, err)
	s.proxy = p
	t.Cleanup(func() {
		p.server.Close()
		p.transport.CloseIdleConnections()
	})
	if f != nil {
		f.w = w
		w.faults.Store(f)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	t.Cleanup(client.CloseIdleConnections)
	return p, u, client
}

// TestProxy holds each verdict against what the client and the API server see.
func TestProxy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		v      verdict
		want   string // body, or part of the error
		arrive bool
	}{
		{"nothing", verdict{}, "200 done", true},
		{"refused", verdict{Code: 429}, "429 ", false},
		{"dropped", verdict{Drop: true}, "EOF", false},
		{"lost", verdict{Lose: true}, "EOF", true},
		{"held", verdict{Hold: time.Millisecond}, "200 done", true},
		{"slow", verdict{Slow: time.Millisecond}, "200 done", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &faults{request: func(q request) verdict {
				if q.N == 2 {
					return tt.v
				}
				return verdict{}
			}}
			p, u, client := testProxy(t, f, "")
			patch := func(path string) string {
				req, err := http.NewRequest(http.MethodPatch, p.url+path, strings.NewReader("{}"))
				kit.Must(t, err)
				resp, err := client.Do(req)
				if err != nil {
					return err.Error()
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				return fmt.Sprintf("%d %s", resp.StatusCode, body)
			}
			patch("/api/v1/nodes/n1")
			patch("/apis/coordination.k8s.io/v1/namespaces/x/leases/y") // not counted
			for range 2 {
				<-u.seen
			}
			if got := patch("/api/v1/namespaces/r/pods/db-0/status"); !strings.Contains(got, tt.want) {
				t.Errorf("the client got %q, want %q", got, tt.want)
			}
			select {
			case r := <-u.seen:
				if !tt.arrive {
					t.Errorf("it arrived")
				}
				if r.UserAgent() != "judged-a.r1.0" || r.Header.Get("Authorization") != "Bearer secret" ||
					p.cut()[r.Header.Get("Audit-ID")].Life != "judged-a.r1.0" {
					t.Errorf("it arrived without saying whose it is: %v", r.Header)
				}
			default:
				if tt.arrive {
					t.Errorf("it did not arrive")
				}
			}
			if hit := tt.v.Code != 0 || tt.v.Drop || tt.v.Lose || tt.v.Hold > 0 ||
				tt.v.Slow > 0; (f.w.hits.Load() == 1) != hit {
				t.Errorf("%d faults were counted", f.w.hits.Load())
			}
		})
	}
}

// TestStream holds what becomes of a watch against its events.
func TestStream(t *testing.T) {
	ev := func(kind, name, rv string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"resourceVersion":%q}}}`+"\n", kind, name, rv)
	}
	const initial = `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}` +
		"\n"
	for _, tt := range []struct {
		name string
		st   stream
		tail string
		want string // type name@rv ...
	}{
		{"all", stream{}, ev("ADDED", "a", "1") + ev("MODIFIED", "a", "2"), "ADDED a@1 MODIFIED a@2"},
		{"late", stream{Late: time.Millisecond}, ev("ADDED", "a", "1") + ev("DELETED", "a", "2"),
			"ADDED a@1 DELETED a@2"},
		{"dropped", stream{Drop: 1}, ev("ADDED", "a", "1") + initial + ev("BOOKMARK", "", "3"),
			"BOOKMARK @ BOOKMARK @3"},
		{"gone", stream{EndEvery: time.Millisecond, End: "gone", Late: time.Hour}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &faults{watch: func(request) stream { return tt.st }}
			p, _, client := testProxy(t, f, tt.tail)
			resp, err := client.Get(p.url + "/api/v1/nodes?watch=true")
			kit.Must(t, err)
			defer resp.Body.Close()
			var got []string
			d := json.NewDecoder(resp.Body)
			for {
				var e struct {
					Type   string
					Object struct {
						Metadata struct{ Name, ResourceVersion string }
					}
				}
				if d.Decode(&e) != nil {
					break
				}
				got = append(got,
					fmt.Sprintf("%s %s@%s", e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion))
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got %q, want %q", g, tt.want)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	a, m, d := json.RawMessage(`{"type":"ADDED","object":1}`), json.RawMessage(`{"type":"MODIFIED","object":2}`),
		json.RawMessage(`{"type":"DELETED","object":3}`)
	for _, tt := range []struct {
		first, second json.RawMessage
		want          string
	}{
		{nil, m, string(m)}, {a, m, `{"type":"ADDED","object":2}`}, {a, d, string(d)}, {m, m, string(m)},
		{d, a, string(a)},
	} {
		if got := merge(tt.first, tt.second); string(got) != tt.want {
			t.Errorf("merge(%s, %s): got %s, want %s", tt.first, tt.second, got, tt.want)
		}
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string][2]string{
		"/api/v1/nodes":                                     {"nodes", ""},
		"/api/v1/nodes/n1/status":                           {"nodes", "n1"},
		"/api/v1/namespaces/r/pods/p":                       {"pods", "p"},
		"/apis/storage.k8s.io/v1/volumeattachments/a":       {"volumeattachments", "a"},
		"/apis/coordination.k8s.io/v1/namespaces/x/leases/": {"leases", ""},
		"/version": {"", ""},
	} {
		resource, name := parsePath(path)
		if got := [2]string{resource, name}; got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// TestTable checks that each row can be chosen, played and understood, and that the bounded part has the mutants that
// need no neighbours.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	w := &world{ctx: context.Background(), rng: rand.New(rand.NewPCG(1, 1))}
	for _, r := range append(append([]row{}, table...), mutantRows...) {
		if seen[r.name] || r.what == "" || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(r.name) {
			t.Errorf("row %q, %q: want a name of its own and what it is", r.name, r.what)
		}
		seen[r.name] = true
		n := r.runs(60)
		for i := range n {
			if r.make(w, i, w.rng) == nil {
				t.Errorf("row %s: no faults for run %d", r.name, i)
			}
		}
		for _, i := range r.brief {
			if i < 0 || i >= n {
				t.Errorf("row %s: its bounded part has run %d of %d", r.name, i, n)
			}
		}
		if r.mutant != nil && r.check == "" {
			t.Errorf("row %s: want the check that must find the mutant", r.name)
		}
		if beside := r.config != ""; beside && len(r.brief) > 0 || !beside && r.mutant != nil && len(r.brief) == 0 {
			t.Errorf("row %s: the bounded part has each mutant, and no row with neighbours", r.name)
		}
	}
}

// TestMutantsFit checks that each mutant's text is in the source: `make referee` does the rest.
func TestMutantsFit(t *testing.T) {
	for _, r := range mutantRows {
		src, err := os.ReadFile(filepath.Join("..", "..", r.mutant.file))
		kit.Must(t, err)
		if n := strings.Count(string(src), r.mutant.old); n != 1 || r.mutant.old == r.mutant.new {
			t.Errorf("mutant %s: its text is %d times in %s, want once", r.mutant.name, n, r.mutant.file)
		}
	}
}

// TestSummary: what is found is bad, and so is a mutant that is not.
func TestSummary(t *testing.T) {
	rows := []row{{name: "x", what: "x"}, {name: "m", what: "m", mutant: oldProof, check: judge.CheckProof}}
	for _, tt := range []struct {
		name string
		all  []outcome
		bad  bool
		want string
	}{
		{"kept and found", []outcome{{Row: "x"}, {Row: "m", Findings: []judge.Finding{{Check: judge.CheckProof}}}},
			false,
			"kept found"},
		{"findings", []outcome{{Row: "x", Findings: []judge.Finding{{Check: judge.CheckTwice}}}}, true, "FINDINGS"},
		{"a mutant that was not found", []outcome{{Row: "m"}}, true, "NOT FOUND"},
		{"a mutant that another check found", []outcome{{Row: "m", Findings: []judge.Finding{{Check: judge.CheckEnd}}}},
			true,
			"NOT FOUND"},
	} {
		lines, bad := summary(rows, tt.all)
		var got []string
		for _, l := range lines {
			got = append(got, l.Verdict)
		}
		if g := strings.Join(got, " "); bad != tt.bad || g != tt.want {
			t.Errorf("%s: got %v, %q, want %v, %q", tt.name, bad, g, tt.bad, tt.want)
		}
	}
}

// TestComparison checks that each row can be played and understood, and is asked of the systems that it fits.
func TestComparison(t *testing.T) {
	seen := map[string]bool{}
	w := &world{ctx: context.Background(), rng: rand.New(rand.NewPCG(1, 1)), writes: 7}
	for _, r := range comparison {
		if seen[r.name] || r.what == "" || r.runs(0) < 1 || r.runs(0) > maxRuns {
			t.Errorf("row %q, %q, %d runs: want a name of its own, what it is, and 1 to %d runs", r.name, r.what,
				r.runs(0), maxRuns)
		}
		seen[r.name] = true
		for i := range r.runs(0) {
			if r.make(w, i, w.rng) == nil {
				t.Errorf("row %s: no faults for run %d", r.name, i)
			}
		}
		for _, s := range systems {
			want := r.need == "" || s.install != nil && (r.need == needWrites || s.device)
			if got := s.asks(r.need); got != want {
				t.Errorf("row %s, %s: asked %v, want %v", r.name, s.name, got, want)
			}
		}
	}
	for i, want := range []int{1, 4, 7} {
		if got := w.thirds(i); got != want {
			t.Errorf("write %d of three: got %d, want %d", i, got, want)
		}
	}
}

// TestNoteWrites: a comparison takes the least of its fences without faults, and the whole table the most.
func TestNoteWrites(t *testing.T) {
	for of, want := range map[string]int{"stock": 5, "": 9} {
		w := &world{o: options{of: of}}
		for _, n := range []int{7, 9, 5} {
			w.noteWrites(n)
		}
		if w.writes != want {
			t.Errorf("OF=%s: got %d writes, want %d", of, w.writes, want)
		}
	}
}

// TestCells: each run of a row counts once, the worst verdict first, and what was not asked is not good.
func TestCells(t *testing.T) {
	none := comparedRow{row: row{name: "none"}}
	runs := func(verdicts ...judge.Verdict) (all []played) {
		for _, v := range verdicts {
			all = append(all, played{outcome: outcome{Row: "none", Verdict: v}},
				played{outcome: outcome{Row: "other", Verdict: judge.Harmed}})
		}
		return all
	}
	for _, tt := range []struct {
		name string
		runs []played
		row  comparedRow
		want string
	}{
		{"good", runs(judge.Good, judge.Good), none, "good 2"},
		{"all", runs(judge.Good, judge.Stuck, judge.Harmed, judge.Good), none, "harmed 1, stuck 1, good 2"},
		{"not played", nil, none, "not played"},
		{"not asked", runs(judge.Good), comparedRow{row{name: "none"}, needDevice}, "not asked"},
		{"without the fault", []played{{outcome: outcome{Row: "409", Verdict: judge.Good}},
			{outcome: outcome{Row: "409", Verdict: judge.Stuck}},
			{outcome: outcome{Row: "409", Verdict: judge.Good, Faults: 1}}},
			comparedRow{row{name: "409"}, needWrites}, "stuck 1, good 1, not met 1"},
	} {
		if got := (result{byHand, tt.runs}).cell(tt.row); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	twice, taken := judge.Finding{Check: judge.CheckTwice}, judge.Finding{Check: judge.CheckTaken}
	r := result{stock, []played{{outcome: outcome{Harm: []judge.Finding{twice, twice, taken}}},
		{outcome: outcome{Harm: []judge.Finding{twice}}}, {}}}
	if got, want := r.harms(), "twice 2, taken 1"; got != want {
		t.Errorf("kinds of harm: got %q, want %q", got, want)
	}
}

// TestTurns: a comparison goes on where its raw data ends, and plays each row once before any twice.
func TestTurns(t *testing.T) {
	names := func(s system, pattern string, rounds int, earlier ...played) (got []string) {
		for _, turn := range turns(s, regexp.MustCompile(pattern), rounds, earlier) {
			got = append(got, fmt.Sprint(turn.name, turn.index))
		}
		return got
	}
	had := func(row string, index int) played { return played{outcome: outcome{Row: row, Index: index}} }
	for _, tt := range []struct {
		name      string
		got, want []string
	}{
		{"no program", names(stock, ".", 1), []string{"none0", "network-cut0", "back-later0", "none1", "network-cut1",
			"back-later1", "none2", "network-cut2", "back-later2"}},
		{"a row with two runs, twice", names(forcefence, "^device-503$", 2), []string{"device-5030", "device-5031",
			"device-5033", "device-5034"}},
		{"no device", names(byHand, "^device-503$", 1), nil},
		{"goes on", names(stock, "^(none|network-cut)$", 1, had("none", 0), had("network-cut", 1)),
			[]string{"network-cut0", "none1", "none2", "network-cut2"}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

// TestRaw: what is appended is read again, each run with all it has; half a line is an error with its place.
func TestRaw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stock.jsonl")
	want := []played{
		{System: "stock", Versions: "Kubernetes v1", Date: "2026-11-28", Commit: "c", Seed: 1<<64 - 1,
			outcome: outcome{Row: "none", Index: 4, Writes: 2, Seconds: 1.5, Verdict: judge.Harmed,
				Harm: []judge.Finding{{Check: judge.CheckTwice, Text: "line 1\nline 2"}}, Ends: []string{"late"}}},
		{System: "stock", outcome: outcome{Row: "none"}},
	}
	for _, p := range want {
		kit.Must(t, p.appendTo(file))
	}
	got, err := readRuns(file)
	kit.Must(t, err)
	if none, err := readRuns(file + ".not"); err != nil || len(none) > 0 {
		t.Errorf("no file: got %v and error %v, want neither", none, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	kit.Must(t, os.WriteFile(file, []byte("{}\n{\"Row\":"), 0o644))
	if _, err := readRuns(file); err == nil || !strings.Contains(err.Error(), "stock.jsonl, run 2: ") {
		t.Errorf("half a line: got error %v, want one that names the file and run 2", err)
	}
}

// TestHand: the loop taints what is not Ready, takes that back, and writes nothing else.
func TestHand(t *testing.T) {
	node := func(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	other := corev1.Taint{Key: foreign}
	set := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		name string
		node *corev1.Node
		want []corev1.Taint
	}{
		{"well", node(corev1.ConditionTrue, other), []corev1.Taint{other}},
		{"silent", node(corev1.ConditionUnknown, other), []corev1.Taint{other, set}},
		{"set already", node(corev1.ConditionUnknown, set), []corev1.Taint{set}},
		{"back", node(corev1.ConditionTrue, set, other), []corev1.Taint{other}},
	} {
		before := len(tt.node.Spec.Taints)
		if changed := changeByHand(tt.node); changed != (before != len(tt.want)) ||
			!slices.Equal(tt.node.Spec.Taints, tt.want) {
			t.Errorf("%s: got changed %v, taints %v, want %v", tt.name, changed, tt.node.Spec.Taints, tt.want)
		}
	}
}

var update = flag.Bool("update", false, "write the tables of docs/reference/measurements.md")

// TestPage holds docs/reference/measurements.md against the raw data in results.
func TestPage(t *testing.T) {
	const page = "../../docs/reference/measurements.md"
	const begin, end = "<!-- begin: go test ./test/referee -update -->\n", "<!-- end -->"
	all, err := readResults("results")
	kit.Must(t, err)
	if len(all) == 0 {
		t.Fatal("results holds no raw data")
	}
	text, err := os.ReadFile(page)
	kit.Must(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	want := before + begin + "\n" + reliability(all) + "\n" + end + after
	if *update {
		kit.Must(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what results gives: run go test ./test/referee -run TestPage -update", page)
	}
}

// TestLagging: what comes through is late, and whole.
func TestLagging(t *testing.T) {
	s := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer s.Close()
	u, err := url.Parse(s.URL)
	kit.Must(t, err)
	l := listen(t)
	defer l.Close()
	var by atomic.Int64
	by.Store(int64(100 * time.Millisecond))
	go delay(l, u.Host, &by)
	began := time.Now()
	resp, err := http.Get("http://" + l.Addr().String())
	kit.Must(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if took := time.Since(began); string(body) != "here" || took < time.Duration(by.Load()) {
		t.Errorf("got %q after %s, want it after %s", body, took, time.Duration(by.Load()))
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	kit.Must(t, err)
	return l
}
