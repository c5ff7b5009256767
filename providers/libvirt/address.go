package libvirt

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// address is the parsed URI of a hypervisor.
type address struct {
	uri     string   // as configured, for messages
	connect string   // what the daemon is asked to open: qemu:///system
	network string   // unix, tcp or tls
	at      []string // paths of sockets, the first that there is; or host:port
	host    string   // whose name the certificate must have
}

const supported = "use qemu:///system, qemu:///session, qemu+unix:///system?socket=/path, qemu+tls://host/system or " +
	"qemu+tcp://host/system"

// parseAddress parses a URI. Its errors never repeat the URI, because it may hold a password.
func parseAddress(uri string, allowTCP bool) (a address, _ error) {
	u, err := url.Parse(uri)
	if err != nil || u.Opaque != "" || u.Scheme == "" {
		return a, fmt.Errorf("is not a URI: %s", supported)
	}
	driver, transport, explicit := strings.Cut(u.Scheme, "+")
	if !explicit {
		transport = "unix"
		if u.Host != "" {
			transport = "tls" // as libvirt's own clients do
		}
	}
	a = address{uri: uri, connect: driver + "://" + u.Path, network: transport, host: u.Hostname()}
	switch {
	case driver != "qemu" && driver != "test":
		return a, fmt.Errorf("has the driver %q: only QEMU's states are known: %s", driver, supported)
	case transport == "ssh" || transport == "libssh" || transport == "libssh2":
		return a, errors.New("has the transport ssh, which is not supported: use qemu+tls://host/system with a " +
			"client certificate")
	case transport != "unix" && transport != "tcp" && transport != "tls":
		return a, fmt.Errorf("has the transport %q: %s", transport, supported)
	case u.User != nil:
		return a, errors.New("holds a user: use TLS with a client certificate, not libvirt's own authentication")
	case u.Fragment != "":
		return a, fmt.Errorf("has a fragment: %s", supported)
	case driver == "qemu" && u.Path != "/system" && u.Path != "/session":
		return a, fmt.Errorf("has the path %q: %s", u.Path, supported)
	case driver == "test" && u.Path != "/default":
		return a, errors.New("has a path that is not /default")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return a, errors.New("has a broken query")
	}
	socket, port := query.Get("socket"), u.Port()
	query.Del("socket")
	for key := range query {
		return a, fmt.Errorf("has the parameter %q: use socket alone; set certificates beside the URI (caFile, "+
			"certFile, keyFile)", key)
	}
	switch {
	case transport == "unix" && u.Host != "":
		return a, errors.New("has a host, but the transport is a socket of this machine")
	case transport == "unix" && socket == "":
		a.at = socketPaths(u.Path == "/session")
		return a, nil
	case transport == "unix" && !filepath.IsAbs(socket):
		return a, errors.New("has a socket that is not an absolute path")
	case transport == "unix":
		a.at = []string{socket}
		return a, nil
	case socket != "":
		return a, errors.New("has a socket, but the transport is " + transport)
	case a.host == "":
		return a, errors.New("has no host")
	case transport == "tcp" && !allowTCP && !remote.IsLoopback(a.host):
		return a, errors.New("is plain TCP: anyone on the network path may answer Off or power off a guest (use " +
			"qemu+tls, or see allowTCP)")
	case port == "" && transport == "tcp":
		port = "16509"
	case port == "":
		port = "16514"
	}
	a.at = []string{net.JoinHostPort(a.host, port)}
	return a, nil
}

// socketPaths are the daemons' sockets: of libvirtd, which serves all drivers, and of virtqemud, which newer systems
// have instead.
func socketPaths(session bool) []string {
	dir := "/run/libvirt"
	if session {
		dir = cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Getuid())) + "/libvirt"
	}
	return []string{filepath.Join(dir, "libvirt-sock"), filepath.Join(dir, "virtqemud-sock")}
}

// dialDaemon connects, and verifies both sides with TLS. raw is the socket below conn.
func (a address) dialDaemon(ctx context.Context, c *Config) (conn, raw net.Conn, err error) {
	network := strings.Replace(a.network, "tls", "tcp", 1)
	var d net.Dialer
	var socket net.Conn
	for _, at := range a.at {
		socket, err = d.DialContext(ctx, network, at)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	if err != nil {
		return nil, nil, remote.EnsureClass(ctx, err)
	}
	if a.network != "tls" {
		return socket, socket, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	conn, err = a.startTLS(ctx, socket, c)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = socket.Close()
		return nil, nil, err
	}
	return conn, socket, nil
}

// startTLS performs the handshake, and then waits for the byte by which libvirtd reports whether it accepts the client
// certificate.
func (a address) startTLS(ctx context.Context, raw net.Conn, c *Config) (net.Conn, error) {
	cfg, err := c.ClientConfig(a.at[0])
	if err != nil {
		return nil, err
	}
	pair, err := remote.LoadClientCertificate(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, providers.WithClass(providers.ErrDenied, err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		if err := remote.ExplainHandshake(err); errors.Is(err, providers.ErrUntrusted) {
			return nil, err
		}
		return nil, providers.Errorf(tlsClass(err, providers.ErrUnreachable), "TLS handshake: %w", err)
	}
	verdict := make([]byte, 1)
	if _, err := conn.Read(verdict); err != nil {
		// With TLS 1.3 the client's handshake ends before the daemon has checked the client certificate: a refusal is
		// an alert, or the end.
		return nil, providers.Errorf(tlsClass(err, providers.ErrDenied),
			"waiting for the daemon to accept the client certificate: %w", err)
	}
	if verdict[0] != 1 {
		return nil, providers.Errorf(providers.ErrDenied, "the daemon refused the client certificate")
	}
	return conn, nil
}

// tlsClass returns the class of a failed handshake in which the daemon's certificate was not checked. The daemon's
// alert is a refusal, and a connection that this process ended is not. Any other failure has the class other.
func tlsClass(err, other error) error {
	var alert tls.AlertError
	var op *net.OpError
	switch {
	case errors.As(err, &alert), errors.As(err, &op) && op.Op == "remote error":
		return providers.ErrDenied
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return providers.ErrUnreachable
	}
	return other
}
