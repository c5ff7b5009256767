package libvirt_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/libvirt"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/hypervisor"
	"github.com/forcefence/forcefence/test/kit"
)

// TestConformance runs against a real libvirtd and a real guest, named by its domain and behind the limiter, as in
// production; a proxy between them and the provider makes the faults.
func TestConformance(t *testing.T) {
	h := hypervisor.New(t, hypervisor.Options{})
	d := h.Guest(t, "n1", hypervisor.Guest{})
	const noProxy = "a socket has no network; the suite over TLS has one"
	providertest.Suite(t,
		providertest.Options{Timeout: timeout, Settle: timeout, NoProxy: noProxy, NoLogIns: noLogIns,
			New: func(t *testing.T) *providertest.Bench {
				must(t, d.Start(t.Context()))
				x := newProxy(t, h.Socket())
				x.uuid, _ = providers.ParseUUID(d.UUID())
				return &providertest.Bench{
					Provider: limiter.New(openProvider(t, nil, x.uri()),
						limiter.Options{Name: "rack-a", Type: "libvirt", Rate: 1000, Burst: 1000}),
					Target:   providers.Target{Node: "n1", ID: d.Name(), SystemUUID: d.UUID()},
					Missing:  providers.Target{Node: "n2", ID: "none"},
					Running:  d.Running,
					Requests: x.requests.All,
					SetPower: func(on bool) { setPower(t, d, on) },
					SetFault: x.set,
				}
			}})
}

// noLogIns: neither a socket nor a certificate is an account that can be locked.
const noLogIns = "the daemon knows no accounts: a socket's rights and a client's certificate let us in"

// setPower cuts a guest's power by killing its QEMU, behind libvirt's back.
func setPower(t testing.TB, d *hypervisor.Domain, on bool) {
	t.Helper()
	ctx := t.Context()
	switch {
	case on:
		must(t, d.Start(ctx))
	case d.Running():
		must(t, d.Kill())
		must(t, d.Await(ctx, "shut off (crashed)"))
	}
}

// TestConformanceTLS is the same over TLS and by the system's UUID, with the faults of a network, and of certificates.
func TestConformanceTLS(t *testing.T) {
	h := hypervisor.New(t, hypervisor.Options{TLS: true})
	stranger := kit.NewAuthority("stranger")
	d := h.Guest(t, "n1", hypervisor.Guest{})
	providertest.Suite(t, providertest.Options{
		Timeout: timeout, Settle: timeout, NoLogIns: noLogIns,
		NoRequests: "the pipe cannot look into TLS: the suite over the socket records them",
		// The pipe cannot look into TLS: the suite over the socket has these.
		Elsewhere: []providertest.Fault{providertest.StaysOn, providertest.StaysChanging, providertest.StrangeWord,
			providertest.OtherMachine},
		New: func(t *testing.T) *providertest.Bench {
			must(t, d.Start(t.Context()))
			x := newPipe(t, h.TLSAddress())
			dir := t.TempDir()
			network := providertest.NewProxy(t, x.address(), providertest.ProxyOptions{TLS: true})
			files := writeCredentials(t, dir, h.Authority(), h.Authority(), time.Now().Add(time.Hour), network.CA()...)
			p := openProvider(t, files, "qemu+tls://"+network.Addr()+"/session")
			return &providertest.Bench{
				Provider: p,
				Proxy:    network,
				Target:   target(d),
				Missing:  providers.Target{Node: "n2", ID: "none"},
				Running:  d.Running,
				SetPower: func(on bool) { setPower(t, d, on) },
				SetFault: func(f providertest.Fault) {
					signer := h.Authority()
					if f == providertest.Denied {
						signer = stranger
					}
					writeCredentials(t, dir, h.Authority(), signer, time.Now().Add(time.Hour), network.CA()...)
					x.set(f)
				},
			}
		},
	})
}

// writeCredentials writes the files of a TLS client and returns what sets them in a configuration. more is PEM of
// another authority.
func writeCredentials(t testing.TB, dir string, server, client *kit.Authority, until time.Time,
	more ...byte) func(*libvirt.Config) {
	t.Helper()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(ca, append(slices.Clone(server.Cert), more...), 0o644))
	must(t, client.Client(until).Write(cert, key))
	return func(cfg *libvirt.Config) { cfg.CAFile, cfg.CertFile, cfg.KeyFile = ca, cert, key }
}

// pipe forwards bytes to a port.
type pipe struct {
	*proxy
	listener net.Listener
}

func newPipe(t testing.TB, to string) *pipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	x := &pipe{listener: l, proxy: &proxy{changed: make(chan struct{})}}
	x.peer = newPeerOn(t, l, func(c net.Conn) {
		if f, _ := x.get(); f == providertest.Unreachable {
			return
		}
		d, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer d.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer c.Close()
			x.pump(d, c, true)
		}()
		x.pump(c, d, false)
		_ = d.Close()
		<-ended
	})
	return x
}

func (x *pipe) address() string { return x.listener.Addr().String() }

func (x *pipe) pump(from, to net.Conn, back bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		switch f, changed := x.get(); {
		case f == providertest.Silent:
			_, _ = io.Copy(io.Discard, from) // until it ends: a stream with a hole in it is of no use any more
			return
		case f == providertest.Slow && back:
			select {
			case <-time.After(providertest.SlowBy):
			case <-changed:
			}
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
