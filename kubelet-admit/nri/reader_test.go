package nri

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// server answers the reader's four requests as a test orders, so that a test controls what happens between two of them.
// The behaviour of an API server itself is tested on a real one (run_test.go).
type server struct {
	t *testing.T

	mu    sync.Mutex   // guards what follows
	node  *corev1.Node // nil: there is none
	pods  []corev1.Pod
	after func(question string) // called after the state was read and before it is sent, without the lock; nil: nothing
	plain bool                  // errors are those of a proxy: no Status
	gets  int                   // of the Node

	nodeEvents, podEvents chan metav1.WatchEvent
	watched               chan string // "nodes from 7"
	seconds               chan string // how long each watch may last
	polls                 chan time.Time
	watchFor              time.Duration
	freed                 int // how often memory was given back
}

// read starts a server and a reader of it that ends with the test.
func read(t *testing.T, v *view, s *server) *server {
	t.Helper()
	s.t, s.nodeEvents, s.podEvents, s.watched = t, make(chan metav1.WatchEvent, 4), make(chan metav1.WatchEvent),
		make(chan string, 64)
	s.polls, s.seconds = make(chan time.Time), make(chan string, 64)
	web := httptest.NewServer(s)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: web.URL}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r := &reader{kubeconfig: file, version: "v9.8.7", node: "n1", view: v, reportResult: func(error) {}, polls: s.polls,
		watchFor: s.watchFor, free: func() { s.set(func() { s.freed++ }) }}
	go func() { defer close(done); r.runReader(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		web.CloseClientConnections()
		web.Close()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if got, want := r.UserAgent(), "forcefence-node/v9.8.7"; got != want {
		s.t.Errorf("User-Agent: got %q, want %q", got, want)
	}
	resource := "pods"
	if strings.Contains(r.URL.Path, "nodes") || strings.Contains(r.URL.RawQuery, "metadata.name") {
		resource = "nodes"
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r, resource)
		return
	}
	question := "list"
	// with "0" an API server answers from its cache
	if q := r.URL.Query(); q.Has("resourceVersion") || q.Has("resourceVersionMatch") {
		s.t.Errorf("%s %s: not a quorum read", r.Method, r.URL)
	}
	s.mu.Lock()
	answer, code := any(&corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "20"},
		Items: s.pods,
	}), http.StatusOK
	if resource == "nodes" {
		question = "get"
		s.gets++
		if s.node != nil {
			n := s.node.DeepCopy()
			n.APIVersion, n.Kind = "v1", "Node"
			if n.ResourceVersion == "" {
				n.ResourceVersion = "10"
			}
			answer = n
		} else {
			code = http.StatusNotFound
			answer = &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound,
				Code:   http.StatusNotFound, Message: `nodes "n1" not found`,
				Details: &metav1.StatusDetails{Kind: "nodes", Name: "n1"},
			}
		}
	}
	after, plain := s.after, s.plain
	s.mu.Unlock()
	if after != nil {
		after(question)
	}
	if code != http.StatusOK && plain {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		_, _ = w.Write([]byte("404 page not found"))
		return
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	s.seconds <- r.URL.Query().Get("timeoutSeconds")
	s.watched <- resource + " from " + r.URL.Query().Get("resourceVersion")
	events := s.podEvents
	if resource == "nodes" {
		events = s.nodeEvents
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case ev := <-events:
			_ = json.NewEncoder(w).Encode(ev)
			w.(http.Flusher).Flush()
		}
	}
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// changed sends a Node to its watch.
func (s *server) changed(n *corev1.Node) {
	n = n.DeepCopy()
	n.APIVersion, n.Kind, n.ResourceVersion = "v1", "Node", "30"
	text, err := json.Marshal(n)
	if err != nil {
		s.t.Fatal(err)
	}
	ev := metav1.WatchEvent{Type: "MODIFIED"}
	ev.Object.Raw = text
	s.nodeEvents <- ev // there is room
}

// until waits until the plugin answers word for pod a; "" lets it start.
func until(t *testing.T, v *view, word string) { t.Helper(); untilAnswered(t, v, "a", word) }

// untilAnswered waits until the plugin answers word for a pod; "" lets it start.
func untilAnswered(t *testing.T, v *view, pod, word string) {
	t.Helper()
	got := ""
	for range 2000 {
		if got = answer(v, askFor(pod, nil)); word == "" && got == "" || word != "" && strings.Contains(got, word) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("pod %s: got answer %q, want %q", pod, got, word)
}

// knowing returns a view as an earlier read left it: pod a may start, unless there is a mark.
func knowing(taints ...corev1.Taint) *view {
	v := newView("n1", taint.DefaultKey, testBoot)
	v.listPods([]corev1.Pod{testPod("a")})
	v.seeNode(testNode(testBoot, corev1.ConditionTrue, taints...), true, time.Now())
	return v
}

var (
	clearNode   = testNode(testBoot, corev1.ConditionTrue)
	markedNode  = testNode(testBoot, corev1.ConditionTrue, testMark)
	waitingNode = detaching(testNode(testBoot, corev1.ConditionTrue, testMark))
)

// TestQuorumReads checks that both requests name no resourceVersion, so that the API server reads from etcd: its cache
// may be behind the mark.
func TestQuorumReads(t *testing.T) {
	asked := make(chan string, 64)
	v := newView("n1", taint.DefaultKey, testBoot)
	read(t, v, &server{node: clearNode, pods: []corev1.Pod{testPod("a")},
		after: func(question string) { asked <- question }})
	until(t, v, "")
	// The server fails the test for a request with a resourceVersion.
	if first, second := <-asked, <-asked; first != "get" || second != "list" {
		t.Errorf("asked %q and %q, want get and list", first, second)
	}
}

// TestEndedWhileReading ends the pod and removes the mark between the reader's two requests. The reader must not
// combine the old pod with the new Node.
func TestEndedWhileReading(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := &server{node: markedNode, pods: []corev1.Pod{testPod("a"), testPod("b")}}
	first := sync.OnceFunc(func() {
		s.set(func() { s.node, s.pods = clearNode, []corev1.Pod{testPod("b")} })
	})
	s.after = func(string) { first() }
	read(t, v, s)
	stop := time.Now().Add(time.Second)
	for told := false; time.Now().Before(stop); time.Sleep(time.Millisecond) {
		if got := answer(v, askFor("a", nil)); got == "" {
			t.Fatal("a pod that was ended may start")
		}
		if !told {
			select {
			case w := <-s.watched:
				if w == "pods from 20" {
					told = true
					s.changed(clearNode)
				}
			default:
			}
		}
	}
	until(t, v, "not known")
	if got := answer(v, askFor("b", nil)); got != "" {
		t.Errorf("the other pod: got %q", got)
	}
}

// TestPodsBehindTheNode checks that the pods are listed again when the mark goes, though their watch delivered nothing.
func TestPodsBehindTheNode(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := read(t, v, &server{node: markedNode, pods: []corev1.Pod{testPod("a")}})
	until(t, v, "marked")
	for range 2 {
		if got := <-s.watched; got != "nodes from 10" && got != "pods from 20" {
			t.Errorf("watch: got %q, want one from the version that was read", got)
		}
	}
	listing, goOn := make(chan struct{}), make(chan struct{})
	s.set(func() {
		s.pods = nil
		s.after = func(string) { close(listing); <-goOn }
	})
	s.changed(clearNode)
	select {
	case <-listing:
	case <-time.After(time.Minute):
		t.Fatal("the pods are not listed again")
	}
	if got := answer(v, askFor("a", nil)); !strings.Contains(got, "marked") {
		t.Errorf("while the pods are listed: got %q", got)
	}
	close(goOn)
	until(t, v, "not known")
}

// TestVolumesAreNamed changes the mark to hold only the pods of some volumes. The watch of the Node may be ahead of the
// watch of the pods, and one pod was ended: the others start once they are listed again.
func TestVolumesAreNamed(t *testing.T) {
	t.Run("the mark held all", func(t *testing.T) { volumesAreNamed(t, markedNode, "marked") })
	t.Run("there was no mark", func(t *testing.T) { volumesAreNamed(t, clearNode, "") })
}

func volumesAreNamed(t *testing.T, before *corev1.Node, told string) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := read(t, v, &server{node: before, pods: []corev1.Pod{testPod("a"), testPod("b")}})
	until(t, v, told)
	<-s.watched
	<-s.watched
	listing, goOn := make(chan struct{}), make(chan struct{})
	s.set(func() {
		s.pods = []corev1.Pod{testPod("a"), testPod("c", uses("db"))}
		s.after = func(string) { close(listing); <-goOn }
	})
	s.changed(detaching(testNode(testBoot, corev1.ConditionTrue, testMark)))
	late := time.After(time.Minute)
	for listed := false; !listed; {
		select {
		case <-listing:
			listed = true
		case <-time.After(5 * time.Millisecond):
			if told != "" && answer(v, askFor("a", nil)) == "" {
				t.Fatal("a pod starts that was not listed since the volumes were named")
			}
		case <-late:
			t.Fatal("the pods are not listed again")
		}
	}
	if got := answer(v, askFor("a", nil)); !strings.Contains(got, "marked") {
		t.Errorf("while the pods are listed: got %q", got)
	}
	close(goOn)
	until(t, v, "")
	if got := answer(v, askFor("b", nil)); !strings.Contains(got, "not known") {
		t.Errorf("the ended pod: got %q", got)
	}
	if got := answer(v, askFor("c", nil)); !strings.Contains(got, "still to be detached") {
		t.Errorf("the pod with the volume: got %q", got)
	}
}

// TestMarkCountsAtOnce checks that a mark counts before the pods are listed, and its absence only afterwards.
func TestMarkCountsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		before []corev1.Taint
		now    *corev1.Node
	}{
		"the mark came":                      {nil, markedNode},
		"a mark came that waits for volumes": {nil, waitingNode},
		"the mark went":                      {[]corev1.Taint{testMark}, clearNode},
	} {
		t.Run(name, func(t *testing.T) {
			v := knowing(tt.before...)
			listing, goOn := make(chan struct{}), make(chan struct{})
			s := &server{node: tt.now, pods: []corev1.Pod{testPod("a")}}
			s.after = func(question string) {
				if question == "list" {
					close(listing)
					<-goOn
				}
			}
			read(t, v, s)
			<-listing
			if got := answer(v, askFor("a", nil)); !strings.Contains(got, "marked") {
				t.Errorf("before the pods are listed: got %q", got)
			}
			close(goOn)
			if tt.now != markedNode {
				until(t, v, "")
			}
		})
	}
}

// TestNodeGone checks that a Node that the API server does not have counts as deleted, even if no watch saw that. A
// proxy's page is no evidence.
func TestNodeGone(t *testing.T) {
	for name, tt := range map[string]struct {
		plain bool
		want  string
	}{"the API server says so": {false, "not read yet"}, "a proxy has no such page": {true, ""}} {
		t.Run(name, func(t *testing.T) {
			v := knowing()
			asked := make(chan struct{}, 64)
			read(t, v, &server{plain: tt.plain, after: func(string) { asked <- struct{}{} }})
			<-asked
			<-asked // the first answer was taken
			if got := answer(v, askFor("a", nil)); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSilentWatch keeps the watches open and delivers nothing. While a pod is held, each poll finds what they missed.
func TestSilentWatch(t *testing.T) {
	after := clearNode.DeepCopy()
	after.ResourceVersion = "12"
	for name, tt := range map[string]struct {
		before       *corev1.Node
		pods, later  []corev1.Pod
		held         string
		a, b         string // the last answers for pods a and b
		alreadyKnown bool   // pod a may start before, and is not held
		after        *corev1.Node
	}{
		"the mark goes": {markedNode, []corev1.Pod{testPod("a")}, []corev1.Pod{testPod("a")},
			"marked", "", "not known", false, after},
		"the mark goes, and a pod was ended": {markedNode, []corev1.Pod{testPod("a"), testPod("b")},
			[]corev1.Pod{testPod("b")}, "marked", "not known", "", false, after},
		"a pod comes": {clearNode, nil, []corev1.Pod{testPod("a")}, "not known", "",
			"not known", false, after},
		"a pod comes, and the Node is as before": {clearNode, nil, []corev1.Pod{testPod("a")}, "not known", "",
			"not known", false, clearNode},
		"the mark came and went while b waits": {clearNode, []corev1.Pod{testPod("a")}, []corev1.Pod{testPod("b")},
			"not known", "not known", "", true, after},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView("n1", taint.DefaultKey, testBoot)
			s := read(t, v, &server{node: tt.before, pods: tt.pods})
			waits := "a"
			if tt.alreadyKnown {
				until(t, v, "")
				waits = "b"
			}
			untilAnswered(t, v, waits, tt.held)
			s.set(func() { s.node, s.pods = tt.after, tt.later })
			go func() { // one may come before the first list, when the pod that is asked about is not held yet
				for {
					select {
					case s.polls <- time.Time{}:
						time.Sleep(5 * time.Millisecond)
					case <-t.Context().Done():
						return
					}
				}
			}()
			untilAnswered(t, v, "a", tt.a)
			untilAnswered(t, v, "b", tt.b)
		})
	}
}

// TestPollOnlyWhileHolding checks that a hook that holds no pod only watches.
func TestPollOnlyWhileHolding(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := read(t, v, &server{node: clearNode, pods: []corev1.Pod{testPod("a")}})
	until(t, v, "")
	for range 3 { // each is taken once the one before is done with
		s.polls <- time.Time{}
	}
	s.set(func() {
		if s.gets != 1 {
			t.Errorf("the Node was read %d times while nothing was held, want once", s.gets)
		}
	})
	untilAnswered(t, v, "b", "not known")
	s.polls <- time.Time{}
	s.polls <- time.Time{}
	s.set(func() {
		if s.gets < 2 {
			t.Error("the Node was not read while a pod is held")
		}
	})
}

// TestMemoryIsGivenBack checks that memory goes back to the system after the first list, and again after changes: at
// most once a minute, and not while nothing changes.
func TestMemoryIsGivenBack(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := read(t, v, &server{node: clearNode, pods: []corev1.Pod{testPod("a")}})
	until(t, v, "")
	start := time.Now()
	holdTo := func(when string, after time.Duration, want int) {
		t.Helper()
		for range 2 { // the second is taken once the first is done with
			s.polls <- start.Add(after)
		}
		s.set(func() {
			if s.freed != want {
				t.Errorf("%s: memory was given back %d times, want %d", when, s.freed, want)
			}
		})
	}
	startPod := func(name string) {
		t.Helper()
		pod := testPod(name)
		pod.APIVersion, pod.Kind, pod.ResourceVersion = "v1", "Pod", "21"
		text, err := json.Marshal(pod)
		kit.Must(t, err)
		// A poll that finds a pod held that is not known yet lists the pods again, and the event may be lost.
		s.set(func() { s.pods = append(s.pods, pod) })
		s.podEvents <- metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: text}}
		untilAnswered(t, v, name, "")
	}
	holdTo("after the list", 0, 1)
	holdTo("nothing changed", 2*freeEvery, 1)
	startPod("b")
	startPod("c")
	holdTo("within a minute of the first", freeEvery/2, 1)
	holdTo("after a wave", 2*freeEvery, 2)
	startPod("d")
	holdTo("within a minute of the second", 3*freeEvery-time.Second, 2)
	holdTo("after another", 3*freeEvery, 3)
	s.changed(markedNode)
	until(t, v, "marked")
	holdTo("the Node changed", 4*freeEvery, 4)
}

// TestWatchesEnd checks that each watch asks for a time limit, and that the client ends it soon after that limit if the
// server's end does not arrive.
func TestWatchesEnd(t *testing.T) {
	v := newView("n1", taint.DefaultKey, testBoot)
	s := read(t, v, &server{node: clearNode, pods: []corev1.Pod{testPod("a")}, watchFor: time.Second})
	count := map[string]int{}
	for late := time.After(time.Minute); count["nodes from 10"] < 2 || count["pods from 20"] < 2; {
		select {
		case w := <-s.watched:
			count[w]++
		case <-late:
			t.Fatalf("a watch that is open and silent does not end: %v", count)
		}
		if got := <-s.seconds; got != "1" {
			t.Errorf("timeoutSeconds: got %q, want 1", got)
		}
	}
	s.set(func() {
		if got := answer(v, askFor("a", nil)); got != "" || s.gets != 1 {
			t.Errorf("the end of a watch is no failure: pod a got answer %q after %d reads of the Node", got, s.gets)
		}
	})

	s = read(t, newView("n1", taint.DefaultKey, testBoot), &server{node: clearNode})
	got, err := strconv.Atoi(<-s.seconds)
	if err != nil || got < int(watchFor/time.Second) || got > int(2*watchFor/time.Second) {
		t.Errorf("timeoutSeconds: got %d, %v, want one from %s to twice that", got, err, watchFor)
	}
}

// TestStopWithHangingCredential checks that the hook ends although its credential program hangs: a runtime that
// restarts starts another hook.
func TestStopWithHangingCredential(t *testing.T) {
	dir := kit.SocketDir(t)
	began, kubeconfig, file := filepath.Join(dir, "began"), filepath.Join(dir, "kubeconfig"),
		filepath.Join(dir, "forcefence.conf")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "/bin/sh",
		Args:    []string{"-c", `echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 60`, began},
	}}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	text, err := Config{NodeName: "n1", Kubeconfig: kubeconfig, StateDir: filepath.Join(dir, "run"),
		DataDir: filepath.Join(dir, "data"), LogFile: "none"}.Marshal()
	if err := errors.Join(err, clientcmd.WriteToFile(*config, kubeconfig),
		os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{ConfigFile: file, Socket: filepath.Join(dir, "none.sock"), bootIDFile: bootIDFile})
	}()
	pid := 0
	for range 1000 {
		if text, err := os.ReadFile(began); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if pid == 0 {
		t.Fatal("the credential program was not started")
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	cancel()
	select {
	case <-done:
	case <-time.After(2 * endTimeout):
		t.Error("the hook does not end")
	}
}
