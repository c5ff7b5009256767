package libvirt_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// peerDomain answers as a daemon with one domain in that state would.
func peerDomain(uuid [16]byte, state, reason, image uint32) func(frame) []frame {
	return func(call frame) []frame {
		if !bytes.Contains(call.payload(), uuid[:]) {
			return []frame{call.fail(42, "no domain")}
		}
		switch call.procedure() {
		case procLookupByUUID:
			p := append(xdr(2, 0x6e310000), uuid[:]...)
			return []frame{
				newFrame(call.field(1), call.procedure(), 1, call.field(5), 0, append(p, xdr(0xffffffff)...))}
		case procHasManagedSave:
			return []frame{call.reply(image)}
		case procGetState:
			return []frame{call.reply(state, reason)}
		default:
			return []frame{call.fail(55, "not in this script")}
		}
	}
}

const anyUUID = "5a5b1f36-0ba8-4c3e-9d54-1a2b3c4d5e6f"

// TestEveryWord is every state with every reason, with a managed save image and without: those that libvirt defines and
// some it does not. What is not listed as off is not off.
func TestEveryWord(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	var mu sync.Mutex
	var state, reason, image uint32
	p := newProvider(t, nil, newPeer(t, scripted(func(call frame) []frame {
		mu.Lock()
		defer mu.Unlock()
		return peerDomain(uuid, state, reason, image)(call)
	})).uri())
	off := map[string]bool{
		"shut off (unknown)": true, "shut off (shutdown)": true, "shut off (destroyed)": true,
		"shut off (crashed)": true,
		"shut off (failed)":  true, "shut off (from snapshot)": true, "shut off (daemon)": true,
	}
	want := func(a providers.Answer) providers.PowerState {
		switch {
		case off[a.Raw]:
			return providers.PowerOff
		case strings.HasPrefix(a.Raw, "running"), strings.HasPrefix(a.Raw, "blocked"),
			strings.HasPrefix(a.Raw, "paused"),
			strings.HasPrefix(a.Raw, "suspended by the guest"), a.Raw == "shut off (saved)":
			return providers.PowerOn
		case strings.HasPrefix(a.Raw, "shut off") && strings.HasSuffix(a.Raw, ", managed save image"):
			return providers.PowerOn
		case strings.HasPrefix(a.Raw, "shutting down"):
			return providers.PowerChanging
		default:
			return providers.PowerUnknown
		}
	}
	seen := map[string]bool{}
	for s := range uint32(10) {
		for r := range uint32(18) {
			for i := range uint32(2) {
				mu.Lock()
				state, reason, image = s, r, i
				mu.Unlock()
				a := ask(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID})
				if a.Err != nil || a.State != want(a) {
					t.Errorf("state %d, reason %d, image %d: got %s (%q), %v; want %s", s, r, i, a.State, a.Raw, a.Err,
						want(a))
				}
				if a.State == providers.PowerOff && (s != 5 || i != 0) {
					t.Errorf("state %d, reason %d, image %d: got Off", s, r, i)
				}
				seen[a.Raw] = true
			}
		}
	}
	for word := range off {
		if !seen[word] {
			t.Errorf("%s was never said", word)
		}
	}
}

// TestCrashed: a guest that panicked and is preserved has its memory, and its QEMU.
func TestCrashed(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	d := h.Guest(t, "n1", hypervisor.Guest{Panics: true})
	must(t, d.Await(t.Context(), "crashed (panicked)"))
	p, n1 := newProvider(t, nil, h.URI()), target(d)
	if !d.Running() {
		t.Fatal("QEMU has gone")
	}
	expect(t, p, n1, providers.PowerUnknown, "crashed (panicked)")
	must(t, power(t, p.PowerOff, n1))
	expect(t, p, n1, providers.PowerOff, "shut off (destroyed)")
	if d.Running() {
		t.Error("QEMU runs")
	}
}

// TestDomainsOfAKind: renamed, undefined, transient, another with the name, and a name that looks like another's UUID.
func TestDomainsOfAKind(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	p, ctx := newProvider(t, nil, h.URI()), t.Context()

	d := h.Guest(t, "n1", hypervisor.Guest{Stopped: true})
	byName := providers.Target{Node: "n1", ID: "n1", SystemUUID: d.UUID()}
	expect(t, p, byName, providers.PowerOff, "shut off (unknown)")
	must(t, d.Rename(ctx, "n1-old"))
	expectClass(t, p, byName, providers.ErrNotFound)
	expect(t, p, target(d), providers.PowerOff, "shut off (unknown)")
	// Another domain has the name now, and is even off.
	other := h.Guest(t, "n1", hypervisor.Guest{Stopped: true})
	expectClass(t, p, byName, providers.ErrIdentity)
	must(t, other.Start(ctx))
	for name, f := range map[string]func(context.Context, providers.Target, func() error) error{
		"PowerOff": p.PowerOff, "PowerOn": p.PowerOn} {
		if err := power(t, f, byName); !errors.Is(err, providers.ErrIdentity) {
			t.Errorf("%s of another machine: got %v", name, err)
		}
	}
	if !other.Running() || d.Running() {
		t.Error("another machine's power was changed")
	}
	// A third one is called as the second one's UUID.
	h.Guest(t, other.UUID(), hypervisor.Guest{Stopped: true})
	if a := ask(t, p, providers.Target{Node: "n1", ID: other.UUID()}); !errors.Is(a.Err, providers.ErrNotFound) ||
		!strings.Contains(a.Err.Error(), "2 domains match") {
		t.Errorf("got %s (%q), %v; want both named", a.State, a.Raw, a.Err)
	}

	// Undefined while it runs, it is transient and on; destroyed then, it is not known: nothing is proven.
	must(t, other.Undefine(ctx))
	expect(t, p, target(other), providers.PowerOn, "running (booted)")
	must(t, power(t, p.PowerOff, target(other)))
	expectClass(t, p, target(other), providers.ErrNotFound)
	if other.Running() {
		t.Error("QEMU runs")
	}
	expectClass(t, p, providers.Target{Node: "n1"}, providers.ErrNotFound)
	expectClass(t, p, providers.Target{Node: "n1", SystemUUID: "00000000-0000-0000-0000-000000000000"},
		providers.ErrNotFound)
}

// TestDaemonInTrouble: the daemon is stopped, killed and restarted while the guest runs on.
func TestDaemonInTrouble(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	d := h.Guest(t, "n1", hypervisor.Guest{})
	p, n1 := newProvider(t, nil, h.URI()), target(d)
	expect(t, p, n1, providers.PowerOn, "running (booted)")

	hangs := func(what string, p *libvirt.Provider) {
		t.Helper()
		for name, f := range map[string]func(context.Context, providers.Target, func() error) error{
			"State": func(ctx context.Context, of providers.Target, _ func() error) error {
				_, err := p.State(ctx, of)
				return err
			},
			"PowerOff": p.PowerOff, "PowerOn": p.PowerOn,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			begin := time.Now()
			err := f(ctx, n1, providertest.AllowSend)
			cancel()
			if took := time.Since(begin); !errors.Is(err, providers.ErrUnreachable) || took > timeout {
				t.Errorf("%s, %s: got %v after %s", what, name, err, took)
			}
		}
	}
	h.FreezeDaemon()
	hangs("frozen, on a connection", p)
	hangs("frozen, no connection", newProvider(t, nil, h.URI()))
	h.ThawDaemon()
	expect(t, p, n1, providers.PowerOn, "running (booted)") // no power-off was sent, or it reached no domain
	if !d.Running() {
		t.Error("a power-off that timed out before it was sent reached the guest")
	}

	h.KillDaemon()
	expectClass(t, p, n1, providers.ErrUnreachable)
	must(t, h.StartDaemon(t.Context()))
	expect(t, p, n1, providers.PowerOn, "running (booted)")
	must(t, power(t, p.PowerOff, n1))
	if d.Running() {
		t.Error("QEMU runs after PowerOff")
	}
	h.StopDaemon()
	expectClass(t, p, n1, providers.ErrUnreachable)
	must(t, h.StartDaemon(t.Context()))
	expect(t, p, n1, providers.PowerOff, "shut off (unknown)")
}

// TestGroup: two hypervisors between which a guest may migrate. Off is off on all of them.
func TestGroup(t *testing.T) {
	t.Parallel()
	a, b := hypervisor.New(t, hypervisor.Options{}), hypervisor.New(t, hypervisor.Options{})
	p, ctx := newProvider(t, nil, a.URI(), b.URI()), t.Context()
	onA := a.Guest(t, "n1", hypervisor.Guest{Stopped: true})
	onB := b.Guest(t, "n1-on-b", hypervisor.Guest{UUID: onA.UUID()})
	byName := providers.Target{Node: "n1", ID: "n1", SystemUUID: onA.UUID()} // as A calls it

	for _, of := range []providers.Target{byName, target(onA)} {
		expect(t, p, of, providers.PowerOn, "running (booted) on uris[1]")
	}
	// which is why groups are needed
	expect(t, newProvider(t, nil, a.URI()), byName, providers.PowerOff, "shut off (unknown)")
	must(t, power(t, p.PowerOff, byName))
	if onB.Running() {
		t.Error("it runs on B after PowerOff")
	}
	if s := ask(t, p, byName); s.State != providers.PowerOff {
		t.Errorf("got %s (%q), %v; want Off", s.State, s.Raw, s.Err)
	}
	if err := power(t, p.PowerOn, byName); !errors.Is(err, providers.ErrPermanent) || onA.Running() || onB.Running() {
		t.Errorf("PowerOn of a guest that is off on two hypervisors: got %v", err)
	}

	must(t, onB.Start(ctx))
	must(t, onB.Save(ctx))
	expect(t, p, byName, providers.PowerOn, "shut off (saved), managed save image on uris[1]")
	must(t, onB.Start(ctx))
	must(t, onA.Start(ctx)) // the same machine runs twice
	if s := ask(t, p, byName); s.State != providers.PowerOn {
		t.Errorf("active twice: got %s (%q), %v; want On", s.State, s.Raw, s.Err)
	}
	must(t, power(t, p.PowerOff, byName))
	if onA.Running() || onB.Running() {
		t.Error("it runs on A or B after PowerOff")
	}
	if s := ask(t, p, byName); s.State != providers.PowerOff {
		t.Errorf("got %s (%q), %v; want Off", s.State, s.Raw, s.Err)
	}

	must(t, onB.Undefine(ctx)) // known on A only: that is enough, and it can be started there
	expect(t, p, byName, providers.PowerOff, "shut off (destroyed) on uris[0]")
	must(t, power(t, p.PowerOn, byName))
	if !onA.Running() {
		t.Error("it does not run on A after PowerOn")
	}
	must(t, onA.Destroy(ctx))
	b.KillDaemon() // who knows what runs there
	expectClass(t, p, byName, providers.ErrUnreachable)
	if err := power(t, p.PowerOn, byName); !errors.Is(err, providers.ErrUnreachable) || onA.Running() {
		t.Errorf("PowerOn while a hypervisor does not answer: got %v", err)
	}
	must(t, onA.Start(ctx))
	// Who it is is known all the same: the limiter lets it through, and what can be reached is destroyed.
	guarded := limiter.New(p, limiter.Options{Name: "rack-a", Type: "libvirt"})
	if err := power(t, guarded.PowerOff, byName); !errors.Is(err, providers.ErrUnreachable) || onA.Running() {
		t.Errorf("PowerOff while a hypervisor does not answer: got %v, running %t", err, onA.Running())
	}
}

// TestMigrated: a domain that has migrated away is off here, and runs elsewhere.
func TestMigrated(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	of := providers.Target{Node: "n1", SystemUUID: anyUUID}
	gone := newPeer(t, scripted(peerDomain(uuid, 5, 4, 0)))
	off := newPeer(t, scripted(peerDomain(uuid, 5, 2, 0)))
	absent := newPeer(t, scripted(peerDomain([16]byte{1}, 1, 1, 0)))
	alone := newProvider(t, nil, gone.uri())
	expect(t, alone, of, providers.PowerUnknown, "shut off (migrated)")
	if err := power(t, alone.PowerOff, of); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("PowerOff: got %v", err)
	}
	if err := power(t, alone.PowerOn, of); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("PowerOn: got %v", err)
	}
	expect(t, newProvider(t, nil, gone.uri(), absent.uri()), of, providers.PowerUnknown,
		"shut off (migrated) on uris[0]")
	expect(t, newProvider(t, nil, gone.uri(), off.uri()), of, providers.PowerOff, "shut off (destroyed) on uris[1]")
	alsoAbsent := newPeer(t, scripted(peerDomain([16]byte{1}, 1, 1, 0)))
	expectClass(t, newProvider(t, nil, absent.uri(), alsoAbsent.uri()), of, providers.ErrNotFound)
}

// TestMigratesWhileAsked: the guest arrives on the first hypervisor after that was asked, and has left the second
// before that is.
func TestMigratesWhileAsked(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	askedFirst := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	arrived := false
	first := newPeer(t, scripted(func(call frame) []frame {
		mu.Lock()
		defer mu.Unlock()
		if arrived {
			return peerDomain(uuid, 1, 2, 0)(call)
		}
		if call.procedure() == procGetState {
			defer once.Do(func() { close(askedFirst) })
		}
		return peerDomain(uuid, 5, 2, 0)(call)
	}))
	second := newPeer(t, scripted(func(call frame) []frame {
		if call.procedure() == procGetState {
			<-askedFirst
			mu.Lock()
			arrived = true
			mu.Unlock()
		}
		return peerDomain(uuid, 5, 4, 0)(call)
	}))
	p := newProvider(t, nil, first.uri(), second.uri())
	expect(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID}, providers.PowerOn, "running (migrated) on uris[0]")
}

// TestRestoredWhileAsked: a domain whose reason a restart has hidden is restored from its image between the two
// questions. Asked the other way round it would be off, with no image.
func TestRestoredWhileAsked(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	var asked atomic.Int32
	p := newProvider(t, nil, newPeer(t, scripted(func(call frame) []frame {
		switch {
		case call.procedure() == procLookupByUUID:
			return peerDomain(uuid, 5, 0, 1)(call)
		case asked.Add(1) == 1:
			return peerDomain(uuid, 5, 0, 1)(call)
		default:
			return peerDomain(uuid, 1, 3, 0)(call)
		}
	})).uri())
	expect(t, p, providers.Target{Node: "n1", SystemUUID: anyUUID}, providers.PowerOn, "running (restored)")
}

// TestNeighbours: a caller who gives up, or whose time is over, does not take the answers of others with him.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	stuck, asked := make(chan struct{}), make(chan struct{}, 10)
	p := newProvider(t, nil, newPeer(t, func(c net.Conn) {
		var mu sync.Mutex
		scripted(func(call frame) []frame {
			if call.procedure() != procGetState {
				return peerDomain(uuid, 5, 2, 0)(call)
			}
			asked <- struct{}{}
			go func() { // answered when the test releases it, or never
				<-stuck
				mu.Lock()
				defer mu.Unlock()
				_, _ = c.Write(call.reply(5, 2))
			}()
			return nil
		})(c)
	}).uri())
	of := providers.Target{Node: "n1", SystemUUID: anyUUID}
	patient := make(chan providers.Answer)
	go func() { patient <- ask(t, p, of) }()
	<-asked
	for _, ending := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 50*time.Millisecond)
		},
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := ending()
		if _, err := p.State(ctx, of); err == nil {
			t.Error("got an answer that no peer gave")
		}
		cancel()
	}
	close(stuck)
	if a := <-patient; a.State != providers.PowerOff || a.Err != nil {
		t.Errorf("the neighbour got %s, %v; want Off", a.State, a.Err)
	}
}

// TestHangingConnection: a connection that answers no more (for example because its other end lost its power) is
// given up by the caller whose time is over, and the next one gets another.
func TestHangingConnection(t *testing.T) {
	t.Parallel()
	uuid, _ := providers.ParseUUID(anyUUID)
	var accepted atomic.Int32
	x := newPeer(t, func(c net.Conn) {
		hangs := accepted.Add(1) == 1
		scripted(func(call frame) []frame {
			if hangs && call.procedure() == procGetState {
				return nil
			}
			return peerDomain(uuid, 5, 2, 0)(call)
		})(c)
	})
	p, of := newProvider(t, nil, x.uri()), providers.Target{Node: "n1", SystemUUID: anyUUID}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.State(ctx, of); !errors.Is(err, providers.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	expect(t, p, of, providers.PowerOff, "shut off (destroyed)")
	kit.Until(t, "the new connection alone is open", func() bool { return x.open() == 1 })
}

// TestAnswersGarbage: any bytes from the address end a call with an error of a class, and the process lives.
func TestAnswersGarbage(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"closes": func(net.Conn) {},
		"a web server": func(c net.Conn) {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = readFrame(c)
		},
		"a short length": func(c net.Conn) { _, _ = c.Write(xdr(3)); _, _ = readFrame(c) },
		"a huge length":  func(c net.Conn) { _, _ = c.Write(xdr(0xfffffff0)); _, _ = readFrame(c) },
		"half a packet":  func(c net.Conn) { _, _ = readFrame(c); _, _ = c.Write(xdr(36, 0x20008086, 1)) },
		"refuses to open": func(c net.Conn) {
			f, _ := readFrame(c)
			_, _ = c.Write(f.fail(1, "internal error"))
			_, _ = readFrame(c)
		},
		"states in a shape": scripted(func(call frame) []frame { return []frame{call.reply(5)} }),
		"unknown errors": scripted(func(call frame) []frame {
			return []frame{call.fail(4711, strings.Repeat("x", 5000))}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, nil, newPeer(t, serve).uri())
			of := providers.Target{Node: "n1", SystemUUID: anyUUID}
			expectClass(t, p, of, providers.ErrUnreachable)
			if a := ask(t, p, of); len(a.Err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(a.Err.Error()))
			}
		})
	}
}

// TestAddressTrouble is what can be wrong on the way to the daemon.
func TestAddressTrouble(t *testing.T) {
	t.Parallel()
	of := providers.Target{Node: "n1", SystemUUID: anyUUID}
	expectClass(t, newProvider(t, nil, "qemu+unix:///system?socket=/nonexistent/socket"), of, providers.ErrUnreachable)
	expectClass(t, newProvider(t, nil, "qemu+tcp://"+kit.FreeAddress(t)+"/system"), of, providers.ErrUnreachable)

	h := hypervisor.New(t, hypervisor.Options{TCP: true, TLS: true})
	d := h.Guest(t, "n1", hypervisor.Guest{Stopped: true})
	expect(t, newProvider(t, nil, "qemu+tcp://"+h.TCPAddress()+"/session"), target(d), providers.PowerOff,
		"shut off (unknown)")

	// Certificates: of a stranger on their side and on ours, for another host, expired after the provider was made,
	// rotated.
	stranger := kit.NewAuthority("stranger")
	uri, dir, hour := "qemu+tls://"+h.TLSAddress()+"/session", t.TempDir(), time.Now().Add(time.Hour)
	files := writeCredentials(t, dir, h.Authority(), h.Authority(), hour)
	p := func() *libvirt.Provider { return newProvider(t, files, uri) }
	expect(t, p(), target(d), providers.PowerOff, "shut off (unknown)")
	writeCredentials(t, dir, stranger, h.Authority(), hour)
	expectClass(t, p(), target(d), providers.ErrUntrusted)
	if a := ask(t, p(), target(d)); !strings.Contains(providers.ErrorText(a.Err), "caFile") ||
		!strings.Contains(providers.ErrorText(a.Err), "x509") {
		t.Errorf("got %q, want the cause and its setting", providers.ErrorText(a.Err))
	}
	// A fingerprint vouches for the daemon's certificate where no authority does; another one does not.
	for sum, class := range map[remote.SHA256]error{fingerprint(t, h.TLSAddress()): nil, {1}: providers.ErrUntrusted} {
		pinned := newProvider(t, func(c *libvirt.Config) {
			files(c)
			c.CAFile, c.Fingerprints = "", []remote.Fingerprint{{Host: "127.0.0.1", SHA256: sum}}
		}, uri)
		if class == nil {
			expect(t, pinned, target(d), providers.PowerOff, "shut off (unknown)")
		} else {
			expectClass(t, pinned, target(d), class)
		}
	}
	writeCredentials(t, dir, h.Authority(), stranger, hour)
	expectClass(t, p(), target(d), providers.ErrDenied)
	writeCredentials(t, dir, h.Authority(), h.Authority(), hour)
	rotated := p()
	writeCredentials(t, dir, h.Authority(), h.Authority(), time.Now().Add(-time.Hour))
	expectClass(t, rotated, target(d), providers.ErrDenied)
	if a := ask(t, rotated, target(d)); !strings.Contains(fmt.Sprint(a.Err), "expired at") {
		t.Errorf("got %v, want what has expired", a.Err)
	}
	writeCredentials(t, dir, h.Authority(), h.Authority(), hour)
	expect(t, rotated, target(d), providers.PowerOff, "shut off (unknown)")
	_, port, _ := net.SplitHostPort(h.TLSAddress())
	expectClass(t, newProvider(t, files, "qemu+tls://127.0.0.2:"+port+"/session"), target(d), providers.ErrUnreachable)
}

func fingerprint(t testing.TB, addr string) remote.SHA256 {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer conn.Close()
	return sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw)
}

// TestSocketPermission: a socket that we may not open is a denial, not an absence. Root may open any socket, so root
// runs the test as another user.
func TestSocketPermission(t *testing.T) {
	t.Parallel()
	const other = 65534
	if syscall.Getuid() == 0 && !kit.RunApart(t, hypervisor.Require,
		&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}) {
		return
	}
	x := newPeer(t, func(net.Conn) { t.Error("a connection was accepted") })
	must(t, os.Chmod(x.socket, 0))
	expectClass(t, newProvider(t, nil, x.uri()), providers.Target{Node: "n1", SystemUUID: anyUUID}, providers.ErrDenied)
}

// TestIdle: libvirtd's own keepalive does not end an unused connection (keepalive_interval is 1 s in
// test/hypervisor, and two that are not answered end it).
func TestIdle(t *testing.T) {
	t.Parallel()
	h := hypervisor.New(t, hypervisor.Options{})
	d := h.Guest(t, "n1", hypervisor.Guest{})
	x := newProxy(t, h.Socket())
	p := newProvider(t, nil, x.uri())
	expect(t, p, target(d), providers.PowerOn, "running (booted)")
	before := x.accepted()
	for idle := time.After(5 * time.Second); idle != nil; {
		select {
		case <-idle:
			idle = nil
		case <-time.After(100 * time.Millisecond):
			if x.open() == 0 {
				t.Fatal("the daemon ended an idle connection")
			}
		}
	}
	expect(t, p, target(d), providers.PowerOn, "running (booted)")
	if x.accepted() != before {
		t.Errorf("got %d connections, want %d", x.accepted(), before)
	}
}
