// Package kit is what the test worlds share: a certificate authority, free ports, children that end with us, Parts, a
// program's readiness, waiting for something, a log that is read, and the shortest way to end a test at an error. It
// imports nothing of this repository.
package kit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Must ends a test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Need skips a test, loudly, where something is missing: it says what, or "". Where the variable is set to 1 it fails
// the test instead.
func Need(t testing.TB, missing, variable string) {
	t.Helper()
	switch {
	case missing == "":
	case os.Getenv(variable) == "1":
		t.Fatal(missing)
	default:
		t.Skip("SKIPPED: " + missing)
	}
}

// RequireIPv6 is the variable that, set to 1, has a test fail where this machine has no IPv6.
const RequireIPv6 = "FORCEFENCE_REQUIRE_IPV6"

// NeedIPv6 skips a test where this machine has no IPv6: its kernel lacks it, or it is switched off.
func NeedIPv6(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		Need(t, "this machine has no IPv6: "+err.Error(), RequireIPv6)
		return
	}
	_ = l.Close()
}

// DropEnv removes the variables with these prefixes from a test's environment: a person's shell may have set them.
func DropEnv(t testing.TB, prefixes ...string) {
	t.Helper()
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			t.Setenv(name, "") // restores it at the end
			Must(t, os.Unsetenv(name))
		}
	}
}

// HarmPrefix begins the message of each failure that is harm: a second copy, a wrong Off, a violated invariant. A test
// run that reported harm fails, even if the test passes when it runs again (test/verdict).
const HarmPrefix = "HARM: "

// Harm fails a test for harm that the product did. The test goes on.
func Harm(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Errorf(HarmPrefix+format, args...)
}

// FreePorts fills in free ports of 127.0.0.1 that this process was not given before. They are free again when it
// returns: the caller must handle that another process was faster.
func FreePorts(ports ...*int) error {
	for _, port := range ports {
		var err error
		if *port, err = freePort(); err != nil {
			return fmt.Errorf("picking a port: %w", err)
		}
	}
	return nil
}

var given sync.Map // ports and addresses of this process: who asks twice, to use both later, must not get one port

// freePort is one below those that connections get for their own end: a program that ends and starts again would find
// its port taken by anybody's connection.
func freePort() (port int, err error) {
	for range 100 {
		port = 10000 + rand.IntN(20000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			continue
		}
		_ = l.Close() // it only had to work
		if _, again := given.LoadOrStore(port, true); !again {
			return port, nil
		}
		err = fmt.Errorf("port %d was given before", port)
	}
	return 0, err
}

// FreeAddress is 127.0.0.1 with one of FreePorts.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var port int
	Must(t, FreePorts(&port))
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// HealthPort is where every forcefence serves its health.
const HealthPort = 8081

// FreePodIP returns a loopback address at which HealthPort is free, and that this process was not given before.
// forcefence serves its health there if its POD_IP is that. Where no such address exists but 127.0.0.1, it is that.
func FreePodIP() (string, error) {
	try := func(ip string) error {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, HealthPort))
		if err != nil {
			return fmt.Errorf("picking an address: %w", err)
		}
		return l.Close()
	}
	for range 100 {
		ip := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(255), 1+rand.IntN(254))
		if _, again := given.LoadOrStore(ip, true); !again && try(ip) == nil {
			return ip, nil
		}
	}
	err := try("127.0.0.1")
	if err != nil {
		err = fmt.Errorf("%w: does another program listen at port %d of all addresses?", err, HealthPort)
	}
	return "127.0.0.1", err
}

// Tail hands on a file's lines as they are written, without their ends, until ctx ends. It looks at the file once in a
// period; one that is not there yet is waited for. A line is the caller's to keep.
func Tail(ctx context.Context, file string, period time.Duration, line func([]byte)) {
	var f *os.File
	defer func() { f.Close() }() // of nil, an error
	var rest []byte
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if f == nil {
			var err error
			if f, err = os.Open(file); err != nil {
				f = nil
				continue
			}
		}
		more, err := io.ReadAll(f)
		if err != nil {
			continue
		}
		lines := bytes.Split(append(rest, more...), []byte("\n"))
		rest = bytes.Clone(lines[len(lines)-1]) // not a whole line yet
		for _, l := range lines[:len(lines)-1] {
			line(l)
		}
	}
}

// Answers reports nil if a GET of the URL is answered by 200 within two seconds.
func Answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
