package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/container"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) {
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

// patience is far more than anything here takes: other packages' tests share the machine.
const patience = 2 * time.Minute

var must = kit.Must

// engines are the counterparts: Debian's podman and docker.io. Each variable set to 1 makes a missing one fail.
var engines = map[string]struct {
	require  string
	programs []string
	command  func(dir string) *exec.Cmd
}{
	"podman": {"FORCEFENCE_REQUIRE_PODMAN", []string{"podman", "conmon", "runc"}, func(dir string) *exec.Cmd {
		return exec.Command("podman", "--root", dir+"/root", "--runroot", dir+"/run", "--tmpdir", dir+"/tmp",
			"--storage-driver", "vfs",
			"--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
			"system", "service", "--time=0", "unix://"+dir+"/engine")
	}},
	"docker": {"FORCEFENCE_REQUIRE_DOCKER", []string{"dockerd", "containerd", "runc"}, func(dir string) *exec.Cmd {
		return exec.Command("dockerd", "--data-root", dir+"/root", "--exec-root", dir+"/run", "--pidfile", dir+"/pid",
			"--host", "unix://"+dir+"/engine",
			"--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs")
	}},
}

// limits keep Podman from raising limits that the tests may not raise.
const limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n"

// engine is a running container engine of its own.
type engine struct {
	kind, dir, socket, image string
	http                     *http.Client
	lives                    []net.Conn // of the containers' inits
	mu                       sync.Mutex // guards last
	last                     int        // number of the last container
}

func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // nothing of the bench's is left when a check ends
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

// startEngine starts an engine, which ends with the test; it is skipped where the engine is not installed.
func startEngine(t *testing.T, kind string) *engine {
	t.Helper()
	of := engines[kind]
	missing := ""
	if os.Geteuid() != 0 {
		missing = kind + " is tested as root"
	}
	for _, program := range of.programs {
		if _, err := exec.LookPath(program); err != nil {
			missing = kind + " is not installed: " + err.Error()
		}
	}
	kit.Need(t, missing, of.require)
	dir := kit.SocketDir(t)
	e := &engine{kind: kind, dir: dir, socket: dir + "/engine"}
	e.http = unixClient(e.socket)
	must(t, os.WriteFile(dir+"/containers.conf", []byte(limits), 0o600))
	must(t, os.Mkdir(dir+"/m", 0o755))
	life, err := net.Listen("unix", dir+"/m/life")
	must(t, err)
	t.Cleanup(func() { _ = life.Close() })
	go func() { // ends with the listener
		for {
			c, err := life.Accept()
			if err != nil {
				return
			}
			e.lives = append(e.lives, c) // closed with this process, or when the containers are gone
		}
	}()
	log, err := os.Create(dir + "/log")
	must(t, err)
	defer func() { _ = log.Close() }()
	cmd := of.command(dir)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+dir+"/containers.conf")
	cmd.Stdout, cmd.Stderr = log, log
	must(t, kit.StartChild(cmd))
	t.Cleanup(func() { e.end(t, cmd) })
	kit.Until(t, kind+" to answer", func() bool { return e.call(http.MethodGet, "/_ping", nil, nil) == nil })
	var imported struct{ Status string } // the image's ID
	must(t, e.call(http.MethodPost, "/images/create?fromSrc=-", image(t, dir), &imported))
	e.image = imported.Status
	return e
}

// end removes all containers and stops the engine.
func (e *engine) end(t *testing.T, cmd *exec.Cmd) {
	var all []struct{ ID string }
	if err := e.call(http.MethodGet, "/containers/json?all=1", nil, &all); err != nil {
		t.Errorf("listing containers: %v", err)
	}
	for _, c := range all {
		if err := e.call(http.MethodDelete, "/containers/"+c.ID+"?force=1", nil, nil); err != nil {
			t.Errorf("removing container: %v", err)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
	// Podman cleans up behind a container's end
	kit.Until(t, "all that the engine started to end", func() bool { return !works(e.dir) })
	for _, mount := range []string{"root/vfs", "root", "run/netns"} { // what an engine mounts for itself
		_ = syscall.Unmount(filepath.Join(e.dir, mount), syscall.MNT_DETACH)
	}
	if t.Failed() {
		text, _ := os.ReadFile(e.dir + "/log")
		t.Logf("%s said:\n%s", e.kind, text[max(0, len(text)-4000):])
	}
}

// works reports whether a program that was given that folder runs.
func works(dir string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(lines, func(file string) bool {
		text, _ := os.ReadFile(file)
		return bytes.Contains(text, []byte(dir+"/"))
	})
}

// image is a root filesystem with the one program of testdata/init.
func image(t *testing.T, dir string) []byte {
	t.Helper()
	kit.GoBuild(t, "", "./testdata/init", dir+"/init")
	program, err := os.ReadFile(dir + "/init")
	must(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "init", Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

// call speaks to the engine behind the provider's back.
func (e *engine) call(method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if r.Header.Set("Content-Type", "application/json"); strings.HasPrefix(path, "/images/") {
		r.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 400:
		return fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// machine is one container.
type machine struct {
	t     *testing.T
	e     *engine
	name  string
	alive string // the socket that its init listens on
}

// add creates a container, which does not run yet. host is what HostConfig has beside the rest.
func (e *engine) add(t *testing.T, host map[string]any) *machine {
	t.Helper()
	e.mu.Lock()
	e.last++
	name := fmt.Sprintf("node-%d", e.last)
	e.mu.Unlock()
	config := map[string]any{"NetworkMode": "none", "Binds": []string{e.dir + "/m:/m"}}
	for k, v := range host {
		config[k] = v
	}
	body, err := json.Marshal(
		map[string]any{"Image": e.image, "Entrypoint": []string{"/init", "/m/" + name}, "HostConfig": config})
	must(t, err)
	must(t, e.call(http.MethodPost, "/containers/create?name="+name, body, nil))
	return &machine{t, e, name, e.dir + "/m/" + name}
}

type seen struct {
	ID    string `json:"Id"`
	State struct {
		Status, StartedAt string
		Pid               int
	}
}

func (m *machine) inspect() (s seen) {
	if err := m.e.call(http.MethodGet, "/containers/"+m.name+"/json", nil, &s); err != nil {
		m.t.Error(err)
	}
	return s
}

func (m *machine) do(verb string) {
	if err := m.e.call(http.MethodPost, "/containers/"+m.name+"/"+verb, nil, nil); err != nil {
		m.t.Error(err)
	}
}

// runs asks the machine itself.
func (m *machine) runs() bool {
	c, err := net.Dial("unix", m.alive)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// power switches it, and waits until the engine has noticed.
func (m *machine) power(on bool) {
	if m.runs() == on {
		return
	}
	verb, word := "kill", "exited"
	if on {
		verb, word = "start", "running"
	}
	m.do(verb)
	kit.Until(m.t, m.name+" "+word, func() bool { return m.inspect().State.Status == word && m.runs() == on })
}

func (m *machine) target() providers.Target { return providers.Target{Node: m.name, ID: m.name} }

// proxy is between the provider and an engine, and simulates faults.
type proxy struct {
	socket  string
	mu      sync.Mutex // guards what follows
	fault   providertest.Fault
	word    string                               // takes the place of the engine's
	swapped chan struct{}                        // closed when the fault changes
	under   map[*http.Request]context.CancelFunc // requests under way

	requests providertest.Requests
}

// cut ends all that is under way.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.under {
		cancel()
	}
}

// begin counts a request as under way, until end.
func (p *proxy) begin(r *http.Request) (_ *http.Request, end func()) {
	ctx, cancel := context.WithCancel(r.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.under[r] = cancel
	return r.WithContext(ctx), func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.under, r)
	}
}

func (e *engine) proxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{socket: filepath.Join(kit.SocketDir(t), "s"), swapped: make(chan struct{}),
		under: map[*http.Request]context.CancelFunc{}}
	l, err := net.Listen("unix", p.socket)
	must(t, err)
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	to.Transport, to.ModifyResponse, to.FlushInterval = e.http.Transport, p.rewrite, -1
	to.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server := &http.Server{ErrorLog: to.ErrorLog, ReadHeaderTimeout: patience,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, end := p.begin(r)
			defer end()
			p.requests.Add(r.Method == http.MethodPost)
			p.mu.Lock()
			fault, swapped := p.fault, p.swapped
			if fault == providertest.StaysChanging && r.Method == http.MethodPost {
				p.word = "removing"
			}
			p.mu.Unlock()
			if providertest.PlayFault(r, fault, swapped) {
				return
			}
			switch fault {
			case providertest.Denied:
				http.Error(w, `{"message":"not for you"}`, http.StatusForbidden)
				return
			case providertest.StaysOn, providertest.StaysChanging:
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusNoContent)
					return
				}
			}
			to.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return p
}

func (p *proxy) set(f providertest.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.word = f, ""
	if f == providertest.StrangeWord {
		p.word = "Exited" // it is "exited" that proves
	}
	close(p.swapped)
	p.swapped = make(chan struct{})
}

// rewrite puts another word into the engine's answer.
func (p *proxy) rewrite(r *http.Response) error {
	p.mu.Lock()
	word := p.word
	p.mu.Unlock()
	if word == "" || !strings.HasSuffix(r.Request.URL.Path, "/json") || r.StatusCode != http.StatusOK {
		return nil
	}
	var all map[string]any
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		return err
	}
	all["State"].(map[string]any)["Status"] = word
	text, err := json.Marshal(all)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", fmt.Sprint(len(text)))
	return err
}

func open(t *testing.T, socket string) *container.Provider {
	t.Helper()
	c := container.Config{Socket: socket}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return container.New(c, providers.Options{Name: "laptop", Log: slog.New(slog.DiscardHandler)})
}

// newProvider opens a provider that is closed when the test ends.
func newProvider(t *testing.T, socket string) *container.Provider {
	t.Helper()
	p := open(t, socket)
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	return p
}

func ask(t *testing.T, p providers.Provider, of providers.Target) providers.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return providers.Ask(ctx, p, "test", of, providers.Now)
}

func expect(t *testing.T, p providers.Provider, of providers.Target, state providers.PowerState, raw string) {
	t.Helper()
	if a := ask(t, p, of); a.State != state || a.Raw != raw || a.Err != nil {
		t.Errorf("got %s (%q), %v; want %s (%q)", a.State, a.Raw, a.Err, state, raw)
	}
}

func expectClass(t *testing.T, p providers.Provider, of providers.Target, class error) {
	t.Helper()
	if a := ask(t, p, of); a.State != providers.PowerUnknown || !errors.Is(a.Err, class) {
		t.Errorf("%s: got %s (%q), %v; want %v", of.ID, a.State, a.Raw, a.Err, class)
	}
}
