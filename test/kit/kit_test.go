package kit

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Who trusts the authority talks to its servers, by the names they have, and to no stranger's; they know its clients by
// their names.
func TestAuthority(t *testing.T) {
	a, stranger := NewAuthority("ours"), NewAuthority("stranger")
	user := a.Sign(
		x509.Certificate{Subject: pkix.Name{CommonName: "ann", Organization: []string{"masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, nil)
	noServer := x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, tc := range []struct {
		name   string
		server Credentials
		client Credentials
		want   string // of who is served, or of the error
	}{
		{"by address", a.Server("127.0.0.1"), a.Client(time.Now().Add(time.Hour)), "forcefence []"},
		{"a user with groups", a.Server("localhost", "127.0.0.1"), user, "ann [masters]"},
		{"another host's", a.Server("example.org"), user, "certificate"},
		{"a stranger's server", stranger.Server("127.0.0.1"), user, "unknown authority"},
		{"a stranger's client", a.Server("127.0.0.1"), stranger.Client(time.Now().Add(time.Hour)), "tls"},
		{"an expired client", a.Server("127.0.0.1"), a.Client(time.Now().Add(-time.Minute)), "tls"},
		{"a client is no server", a.Sign(noServer, nil), user, "incompatible key usage"},
	} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := r.TLS.PeerCertificates[0].Subject
			fmt.Fprint(w, who.CommonName, " ", who.Organization)
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{tc.server.TLS()},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool()}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		c := http.Client{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{tc.client.TLS()}}}}
		var got string
		if resp, err := c.Get(s.URL); err != nil {
			got = err.Error()
		} else {
			got, _ = bufio.NewReader(resp.Body).ReadString(0)
			resp.Body.Close()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
		c.CloseIdleConnections()
		s.Close()
	}
}

func TestFreePorts(t *testing.T) {
	ports := make([]int, 50)
	seen := map[int]bool{}
	var fill []*int
	for i := range ports {
		fill = append(fill, &ports[i])
	}
	Must(t, FreePorts(fill...))
	for _, p := range ports {
		if p == 0 || seen[p] {
			t.Errorf("port %d: zero, or picked twice", p)
		}
		seen[p] = true
	}
	// a caller that asks for one after the other gets different ones, too: of 20,000, two of these would be the same
	for range 1000 {
		var p int
		Must(t, FreePorts(&p))
		if seen[p] {
			t.Fatalf("port %d: picked twice", p)
		}
		seen[p] = true
	}
	l, err := net.Listen("tcp", FreeAddress(t))
	Must(t, err)
	l.Close()
}

func TestAnswers(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	Must(t, Answers(t.Context(), s.URL+"/ok"))
	if err := Answers(t.Context(), s.URL+"/no"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v, want 503", err)
	}
	s.Close()
	if Answers(t.Context(), s.URL+"/ok") == nil {
		t.Error("a server that is gone answers")
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	ctx, stop := context.WithCancel(t.Context())
	lines := make(chan string)
	var wg sync.WaitGroup
	wg.Go(func() { Tail(ctx, file, time.Millisecond, func(l []byte) { lines <- string(l) }) })
	f, err := os.Create(file)
	Must(t, err)
	defer f.Close()
	for _, step := range []struct {
		write string
		want  []string
	}{
		{"one\ntw", []string{"one"}},
		{"o\n\nthree", []string{"two", ""}},
		{"\n", []string{"three"}},
	} {
		_, err := f.WriteString(step.write)
		Must(t, err)
		for _, want := range step.want {
			if got := <-lines; got != want {
				t.Errorf("got line %q, want %q", got, want)
			}
		}
	}
	stop()
	wg.Wait()
}

// A child has a process group of its own, or a session, and on Linux dies with its parent, whichever thread of it asked
// for it.
func TestChildDiesWithUs(t *testing.T) {
	var pid int
	KillTest(t, func() []string {
		started := make(chan int)
		go func() {
			runtime.LockOSThread() // and never unlocks: the thread ends with this goroutine
			cmd := exec.Command("sleep", "600")
			Must(t, StartChild(cmd))
			started <- cmd.Process.Pid
		}()
		return []string{strconv.Itoa(<-started)}
	}, func(words []string) {
		var err error
		pid, err = strconv.Atoi(words[0])
		Must(t, err)
		if group, err := syscall.Getpgid(pid); err != nil || group != pid {
			t.Errorf("the child's process group: got %d (%v), want %d", group, err, pid)
		}
		if runtime.GOOS != "linux" {
			Must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		time.Sleep(200 * time.Millisecond) // the asking thread has ended: the child must not have
		if err := syscall.Kill(pid, 0); err != nil && runtime.GOOS == "linux" {
			t.Errorf("the child ended before its parent: %v", err)
		}
	})
	Until(t, "the child is gone", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
}

// zombie reports whether a process has ended and was not waited for yet.
func zombie(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(stat), ") Z ")
}
