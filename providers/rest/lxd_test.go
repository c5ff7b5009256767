//go:build linux

package rest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/providers/rest"
	"github.com/forcefence/forcefence/test/kit"
)

// lxdDaemon is a real LXD with one container. It has mounts and processes of its own, which the kernel ends with it.
type lxdDaemon struct {
	t                  *testing.T
	dir, address, name string
	certificate        remote.SHA256 // the daemon's
	http               *http.Client  // over its socket, as an administrator
}

// start brings LXD up behind mounts and process numbers of its own.
const start = "mount --make-rprivate / && mount -t proc proc /proc && exec lxd --group root"

// startLXD starts a daemon, which ends with the test; it is skipped where LXD is not installed.
func startLXD(t *testing.T) *lxdDaemon {
	t.Helper()
	missing := ""
	if path, err := exec.LookPath("lxd"); err != nil {
		missing = "LXD is not installed (apt-get install lxd)"
	} else if text, _ := os.ReadFile(path); bytes.HasPrefix(text, []byte("#!")) &&
		bytes.Contains(text, []byte("snap")) {
		missing = path + " is Ubuntu's script that would install LXD as a snap"
	} else if os.Geteuid() != 0 {
		missing = "LXD is tested as root"
	}
	kit.Need(t, missing, "FORCEFENCE_REQUIRE_LXD")
	dir, err := kit.MakeSocketDir()
	kit.Must(t, err)
	l := &lxdDaemon{t: t, dir: dir, address: kit.FreeAddress(t), name: "ff" + strings.ToLower(rand.Text()[:8])}
	for _, sub := range []string{"lxd", "m"} {
		kit.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o711))
	}
	l.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", dir+"/lxd/unix.socket")
		},
	}}
	sweep, err := kit.Sweep(dir) // also if this process is killed
	kit.Must(t, err)
	life, err := net.Listen("unix", dir+"/m/life")
	kit.Must(t, err)
	t.Cleanup(func() { _ = life.Close() })
	log, err := os.Create(dir + "/log")
	kit.Must(t, err)
	defer func() { _ = log.Close() }()
	pivots := cgroups("lxc.pivot")
	cmd := exec.Command("/bin/sh", "-c", start)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	// LXD asks a server of its project for lists, which must not leave this machine.
	cmd.Env = append(os.Environ(), "LXD_DIR="+dir+"/lxd", "HTTPS_PROXY=http://127.0.0.1:9")
	cmd.Stdout, cmd.Stderr = log, log
	kit.Must(t, kit.StartChild(cmd))
	t.Cleanup(func() { l.end(cmd, pivots); sweep() })
	kit.Until(t, "LXD to answer", func() bool { return l.call(http.MethodGet, "/1.0", nil, nil) == nil })
	return l
}

// end ends the daemon and all that it started, and removes the control groups that liblxc left.
func (l *lxdDaemon) end(cmd *exec.Cmd, pivots []string) {
	if l.t.Failed() {
		text, _ := os.ReadFile(l.dir + "/log")
		l.t.Logf("LXD said:\n%s", text[max(0, len(text)-4000):])
	}
	l.thaw()
	_ = cmd.Process.Kill() // the kernel kills the others
	_ = cmd.Wait()
	kit.Until(l.t, "LXD's control groups to be gone", func() bool {
		left := append(cgroups("lxc.monitor."+l.name), cgroups("lxc.payload."+l.name)...)
		for _, dir := range cgroups("lxc.pivot") {
			if !slices.Contains(pivots, dir) {
				left = append(left, dir)
			}
		}
		for _, dir := range left {
			_ = os.Remove(dir)
		}
		return len(left) == 0
	})
}

// cgroups returns the control groups whose names begin so, inner ones first.
func cgroups(name string) (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), name) {
			out = append(out, path)
		}
		return nil // one that is gone by now
	})
	slices.Reverse(out)
	return out
}

// call speaks to the daemon behind the provider's back, and waits for the operation that it starts.
func (l *lxdDaemon) call(method, path string, body, into any) error {
	text, isText := body.([]byte)
	if !isText && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://lxd"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	if isText {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := l.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Operation, Error string
		Metadata         json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	switch {
	case answer.Error != "":
		return fmt.Errorf("%s %s: %s", method, path, answer.Error)
	case answer.Operation != "":
		var done struct {
			Err      string
			Metadata json.RawMessage
		}
		if err := l.call(http.MethodGet, answer.Operation+"/wait", nil, &done); err != nil || done.Err != "" {
			return fmt.Errorf("%s %s: %w %s", method, path, err, done.Err)
		}
		answer.Metadata = done.Metadata
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer.Metadata, into)
}

// must is call, and ends the test at an error.
func (l *lxdDaemon) must(method, path string, body, into any) {
	l.t.Helper()
	kit.Must(l.t, l.call(method, path, body, into))
}

// setUp makes the daemon listen, and adds a container that was never started.
func (l *lxdDaemon) setUp() {
	text, err := os.ReadFile(l.dir + "/lxd/server.crt")
	kit.Must(l.t, err)
	block, _ := pem.Decode(text)
	l.certificate = sha256.Sum256(block.Bytes)
	l.must(http.MethodPatch, "/1.0", object{"config": object{"core.https_address": l.address}}, nil)
	l.must(http.MethodPost, "/1.0/storage-pools", object{"name": "pool", "driver": "dir"}, nil)
	var image struct{ Fingerprint string }
	l.must(http.MethodPost, "/1.0/images", l.image(), &image)
	l.must(http.MethodPost, "/1.0/instances", object{
		"name": l.name, "type": "container", "profiles": []string{},
		"source": object{"type": "image", "fingerprint": image.Fingerprint},
		"config": object{"security.privileged": "true", "raw.lxc": "lxc.init.cmd = /sbin/init /m/" + l.name},
		"devices": object{
			"root":  object{"type": "disk", "path": "/", "pool": "pool"},
			"alive": object{"type": "disk", "path": "/m", "source": l.dir + "/m"},
		},
	}, nil)
}

// open returns the preset with a client's certificate, for a project's instances.
func (l *lxdDaemon) open(project string) providers.Provider {
	dir := l.t.TempDir()
	return newPreset(l.t, "lxd", func(c *rest.Settings) {
		c.Address, c.Values = "https://"+l.address, map[string]string{"project": project}
		c.CertFile, c.KeyFile = dir+"/client.pem", dir+"/client-key.pem"
		c.Fingerprints = []remote.Fingerprint{{SHA256: l.certificate}}
		kit.Must(l.t, clientCertificate().Write(c.CertFile, c.KeyFile))
	})
}

// image is a root filesystem with one program, which listens on the socket that its argument names.
func (l *lxdDaemon) image() []byte {
	kit.GoBuild(l.t, "", "../container/testdata/init", l.dir+"/init")
	program, err := os.ReadFile(l.dir + "/init")
	kit.Must(l.t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, kind byte, content []byte) {
		kit.Must(l.t, w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: 0o755, Size: int64(len(content))}))
		_, err := w.Write(content)
		kit.Must(l.t, err)
	}
	add("metadata.yaml", tar.TypeReg, []byte("architecture: x86_64\ncreation_date: 1700000000\n"))
	for _, dir := range []string{"rootfs", "rootfs/dev", "rootfs/proc", "rootfs/sys", "rootfs/sbin", "rootfs/m"} {
		add(dir, tar.TypeDir, nil)
	}
	add("rootfs/sbin/init", tar.TypeReg, program)
	kit.Must(l.t, w.Close())
	return b.Bytes()
}

// trust makes the daemon accept a certificate for the default project alone. It returns what takes that back.
func (l *lxdDaemon) trust(c kit.Credentials) (distrust func()) {
	block, _ := pem.Decode(c.Cert)
	l.must(http.MethodPost, "/1.0/certificates", object{
		"type": "client", "name": "forcefence", "restricted": true, "projects": []string{"default"},
		"certificate": base64.StdEncoding.EncodeToString(block.Bytes),
	}, nil)
	return func() {
		l.must(http.MethodDelete, fmt.Sprintf("/1.0/certificates/%x", sha256.Sum256(block.Bytes)), nil, nil)
	}
}

// runs asks the container itself.
func (l *lxdDaemon) runs() bool {
	c, err := net.Dial("unix", l.dir+"/m/"+l.name)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// processes returns how many processes of the container the kernel has, also those that are ending.
func (l *lxdDaemon) processes() (n int) {
	for _, dir := range cgroups("lxc.payload." + l.name) {
		text, _ := os.ReadFile(dir + "/cgroup.procs") // the group may be gone
		n = max(n, len(strings.Fields(string(text))))
	}
	return n
}

// thaw lets the kernel end a container that was frozen: by version 1 of control groups a signal waits for that.
func (l *lxdDaemon) thaw() {
	for _, dir := range cgroups("lxc.payload." + l.name) {
		_ = os.WriteFile(dir+"/freezer.state", []byte("THAWED"), 0)
		_ = os.WriteFile(dir+"/cgroup.freeze", []byte("0"), 0)
	}
}

// kill kills the one process of the daemon whose command line begins so.
func (l *lxdDaemon) kill(begin string) {
	l.t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	var found []int
	for _, line := range lines {
		text, _ := os.ReadFile(line) // it may have ended
		if strings.HasPrefix(strings.ReplaceAll(string(text), "\x00", " "), begin) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
			kit.Must(l.t, err)
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		l.t.Fatalf("%d processes begin with %q, want 1", len(found), begin)
	}
	kit.Must(l.t, syscall.Kill(found[0], syscall.SIGKILL))
}

// A real LXD: what the preset says of a container that is started, frozen, stopped and killed.
func TestLXD(t *testing.T) {
	l := startLXD(t)
	l.setUp()
	distrust := l.trust(clientCertificate())
	p, elsewhere := l.open("default"), l.open("other")
	for _, p := range []providers.Provider{p, elsewhere} {
		defer func() { kit.Must(t, p.(providers.Closer).Close(t.Context())) }()
	}
	target := providers.Target{Node: "n1", ID: l.name}
	ask := func(p providers.Provider, of providers.Target) string {
		before := l.processes()
		a := providers.Ask(t.Context(), p, "a", of, providers.Now)
		switch {
		case a.Err != nil:
			return providers.ErrorClass(a.Err)
		case a.State == providers.PowerOff && before > 0 && l.processes() > 0:
			kit.Harm(t, "Off while the kernel has processes of the container")
		}
		return fmt.Sprintf("%s %q", a.State, a.Raw)
	}
	state := func(word string) {
		body := object{"action": word, "timeout": 30}
		kit.Until(t, word+" to work, which it does not until LXD has handled a crash", func() bool {
			return l.call(http.MethodPut, "/1.0/instances/"+l.name+"/state", body, nil) == nil
		})
	}
	power := func(f func(context.Context, providers.Target, func() error) error) {
		kit.Must(t, f(t.Context(), target, providertest.AllowSend))
	}
	const unrecorded = `Unknown "Stopped, but no stop is recorded"`
	for _, step := range []struct {
		name  string
		do    func()
		want  string   // state and word, or the error's class
		while []string // what is allowed before, beside Changing
	}{
		{"never started", func() {}, unrecorded, nil},
		{"started", func() { state("start") }, `On "Running"`, []string{unrecorded}},
		{"frozen", func() { state("freeze") }, `On "Frozen"`, []string{`On "Running"`}},
		{"thawed, because a stop of a frozen container may hang", func() { state("unfreeze") }, `On "Running"`, nil},
		{"powered off", func() { power(p.PowerOff) }, `Off "Stopped"`, []string{`On "Running"`, unrecorded}},
		{"off already", func() { power(p.PowerOff) }, `Off "Stopped"`, nil},
		{"powered on", func() { power(p.PowerOn) }, `On "Running"`, []string{`Off "Stopped"`}},
		{"on already", func() { power(p.PowerOn) }, `On "Running"`, nil},
		{"its first process crashed", func() { l.kill("/sbin/init /m/" + l.name) }, `Off "Stopped"`,
			[]string{`On "Running"`, unrecorded}},
		{"started for another crash", func() { state("start") }, `On "Running"`, []string{`Off "Stopped"`}},
		{"its monitor crashed, and took it along", func() { l.kill("[lxc monitor] " + l.dir) }, unrecorded,
			[]string{`On "Running"`}},
		{"started after the crash", func() { state("start") }, `On "Running"`, []string{unrecorded}},
		{"frozen for another crash", func() { state("freeze") }, `On "Frozen"`, []string{`On "Running"`}},
		{"its monitor crashed while it was frozen", func() { l.kill("[lxc monitor] " + l.dir) }, unrecorded,
			[]string{`On "Frozen"`}},
		{"thawed after the crash", l.thaw, unrecorded, nil},
		{"started, to record a stop", func() { state("start") }, `On "Running"`, []string{unrecorded}},
		{"stopped, to record it", func() { power(p.PowerOff) }, `Off "Stopped"`, []string{`On "Running"`, unrecorded}},
	} {
		step.do()
		kit.Until(t, step.name+": "+step.want, func() bool {
			got := ask(p, target)
			if got != step.want && !slices.Contains(step.while, got) && !strings.HasPrefix(got, "Changing") {
				t.Fatalf("%s: got %s, want %s", step.name, got, step.want)
			}
			return got == step.want
		})
		t.Logf("%s: %s, the kernel has %d processes of it", step.name, step.want, l.processes())
		switch {
		case strings.HasPrefix(step.want, "On"): // LXD says so before the program listens
			kit.Until(t, step.name+": the container to run", l.runs)
		case step.want == unrecorded: // LXD asks the monitor, and not the kernel
		case l.processes() > 0:
			t.Errorf("%s: the kernel has %d processes of it", step.name, l.processes())
		}
	}
	for _, tc := range []struct {
		name string
		p    providers.Provider
		id   string
		want string
	}{
		{"an instance that does not exist", p, "n9", "not_found"},
		{"a project that the certificate has no right to", elsewhere, l.name, "denied"},
	} {
		if got := ask(tc.p, providers.Target{Node: "n1", ID: tc.id}); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	if distrust(); ask(p, target) != "denied" {
		t.Errorf("a certificate that is no longer trusted: want denied")
	}
	l.trust(clientCertificate())
	kit.Until(t, "the certificate to be trusted again", func() bool { return ask(p, target) == `Off "Stopped"` })
}

// No answer is Off while the container runs, however often it is started and stopped meanwhile.
func TestLXDStartsAndStops(t *testing.T) {
	l := startLXD(t)
	l.setUp()
	l.trust(clientCertificate())
	p := l.open("default")
	defer func() { kit.Must(t, p.(providers.Closer).Close(t.Context())) }()
	for _, want := range slices.Repeat([]providers.PowerState{providers.PowerOn, providers.PowerOff}, 5) {
		action := map[providers.PowerState]string{providers.PowerOn: "start", providers.PowerOff: "stop"}[want]
		done := make(chan error, 1)
		go func() {
			done <- l.call(http.MethodPut, "/1.0/instances/"+l.name+"/state",
				object{"action": action, "force": true}, nil)
		}()
		kit.Until(t, action+" to be seen", func() bool {
			before := l.processes()
			a := providers.Ask(t.Context(), p, "a", providers.Target{Node: "n1", ID: l.name}, providers.Now)
			if a.State == providers.PowerOff && before > 0 && l.processes() > 0 {
				kit.Harm(t, "Off while the kernel has processes of the container")
			}
			return a.State == want
		})
		kit.Must(t, <-done)
	}
}

// LXD's own events say when to ask: of a container that a user starts and stops, and of one that ends by itself.
func TestLXDWatch(t *testing.T) {
	l := startLXD(t)
	l.setUp()
	l.trust(clientCertificate())
	p := l.open("default")
	start := func() {
		l.must(http.MethodPut, "/1.0/instances/"+l.name+"/state", object{"action": "start"}, nil)
	}
	reports, stop := providertest.StartWatch(t, p.(providers.Watcher), providers.Target{Node: "n1", ID: l.name},
		providers.Target{Node: "n2", ID: "another"})
	// which is reported after the connection
	providertest.AwaitReports(t, reports, "n1 Unknown Stopped, but no stop is recorded")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"started", start, "n1 On Running"},
		{"stopped", func() {
			l.must(http.MethodPut, "/1.0/instances/"+l.name+"/state", object{"action": "stop", "force": true}, nil)
		}, "n1 Off Stopped"},
		{"started again", start, "n1 On Running"},
		{"its first process ended", func() {
			kit.Until(t, "the container to run", l.runs)
			l.kill("/sbin/init /m/" + l.name)
		}, "n1 Off Stopped"},
	} {
		begun := time.Now()
		step.do()
		done := time.Now()
		seen := providertest.AwaitReports(t, reports, step.want)
		t.Logf("%s: %s, reported %s after it began, %s after the call: %q", step.name, step.want,
			time.Since(begun).Round(time.Millisecond), time.Since(done).Round(time.Millisecond), seen)
	}
	stop()
	kit.Must(t, p.(providers.Closer).Close(t.Context()))
}
