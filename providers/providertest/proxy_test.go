package providertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// web is a machine behind an HTTP device, and a provider for it that may be dishonest: each habit is one that a
// provider could have.
type web struct {
	mu       sync.Mutex // guards what follows
	on       bool
	word     string
	password string
	logIns   int

	habit  habit
	origin string
	client *http.Client
	sent   string // the provider's password
}

type habit string

const (
	honest      habit = ""
	goneIsOff   habit = "a 404 is off"
	deadIsOff   habit = "a connection that breaks is off"
	trusting    habit = "any certificate will do"
	impatient   habit = "a 429 is asked again until it is not"
	halfIsWhole habit = "half an answer is read as far as it goes"
	cached      habit = "repeats the last answer if none comes"
	insisting   habit = "a refused password is sent again"
	endless     habit = "a call outlives its deadline"
)

func (w *web) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logIns++
	if _, p, _ := r.BasicAuth(); p != w.password {
		http.Error(out, "", http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodPut {
		w.on = r.URL.Path == "/on"
	}
	word := map[bool]string{true: "On", false: "Off"}[w.on]
	if w.word != "" {
		word = w.word
	}
	_, _ = io.WriteString(out, word+strings.Repeat(".", len(word))) // half of it is the word
}

type webProvider struct {
	*web
	mu      sync.Mutex // guards what follows
	last    providers.PowerState
	refused string
}

func (p *webProvider) State(ctx context.Context, t providers.Target) (providers.Observation, error) {
	obs := providers.Observation{At: providers.Now()}
	raw, err := p.call(ctx, http.MethodGet, "/")
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.habit == goneIsOff && errors.Is(err, providers.ErrNotFound),
		err != nil && p.habit == deadIsOff && strings.Contains(err.Error(), "EOF"):
		obs.State = providers.PowerOff
		return obs, nil
	case err != nil && p.habit == cached && errors.Is(err, context.DeadlineExceeded):
		obs.State = p.last
		return obs, nil
	case err != nil:
		return obs, err
	}
	switch obs.Raw = raw; raw {
	case "On..":
		obs.State = providers.PowerOn
	case "Off...":
		obs.State = providers.PowerOff
	case "Off":
		if p.habit == halfIsWhole {
			obs.State = providers.PowerOff
		}
	}
	p.last = obs.State
	return obs, nil
}

func (p *webProvider) PowerOff(ctx context.Context, _ providers.Target, _ func() error) error {
	_, err := p.call(ctx, http.MethodPut, "/off")
	return err
}

func (p *webProvider) PowerOn(ctx context.Context, _ providers.Target, _ func() error) error {
	_, err := p.call(ctx, http.MethodPut, "/on")
	return err
}

func (p *webProvider) call(ctx context.Context, method, path string) (string, error) {
	if p.habit == endless {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
	}
	p.mu.Lock()
	password := p.sent
	stop := p.refused == password && p.habit != insisting
	p.mu.Unlock()
	if stop {
		return "", providers.ErrDenied
	}
	for {
		r, err := http.NewRequestWithContext(ctx, method, p.origin+path, nil)
		if err != nil {
			return "", err
		}
		r.SetBasicAuth("u", password)
		resp, err := p.client.Do(r)
		if err != nil {
			return "", remote.EnsureClass(ctx, err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusTooManyRequests && p.habit == impatient:
			time.Sleep(10 * time.Millisecond)
			continue
		case resp.StatusCode == http.StatusUnauthorized:
			p.mu.Lock()
			p.refused = password
			p.mu.Unlock()
			return "", providers.ErrDenied
		case resp.StatusCode != http.StatusOK:
			return "", providers.WithClass(remote.HTTPClass(resp.StatusCode), errors.New(resp.Status))
		case err != nil && p.habit == halfIsWhole:
			return string(b), nil
		case err != nil:
			return "", remote.EnsureClass(ctx, err)
		}
		return string(b), nil
	}
}

func (p *webProvider) Close(context.Context) error {
	p.client.CloseIdleConnections()
	return nil
}

func newWeb(t *testing.T, h habit) *Bench {
	w := &web{on: true, password: "a", sent: "a", habit: h}
	server := httptest.NewTLSServer(w)
	t.Cleanup(server.Close)
	x := NewProxy(t, server.URL, ProxyOptions{HTTP: true})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(x.CA())
	trust := &tls.Config{RootCAs: pool, InsecureSkipVerify: h == trusting}
	p := &webProvider{web: w}
	w.origin = "https://" + x.Addr()
	w.client = &http.Client{
		Transport: &http.Transport{DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&tls.Dialer{Config: trust}).DialContext(ctx, network, addr)
			return c, remote.ExplainHandshake(err)
		}}}
	return &Bench{
		Provider: p, Target: providers.Target{Node: "n1", ID: "1"}, Proxy: x,
		LogIns:   func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.logIns },
		Running:  func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.on },
		SetPower: func(on bool) { w.mu.Lock(); defer w.mu.Unlock(); w.on = on },
		SetFault: func(f Fault) {
			w.mu.Lock()
			if f == Denied {
				w.password += "!"
			}
			password := w.password
			w.mu.Unlock()
			if f == NoFault {
				p.mu.Lock()
				w.sent = password
				p.mu.Unlock()
			}
		},
	}
}

// The checks of a broken network find each provider that believes it, and nothing in an honest one.
func TestBrokenNetworkFindsBadHabits(t *testing.T) {
	const network, logIns, crowd = "broken network is never off", "a refused credential is sent once",
		"two hundred calls at once"
	for _, tt := range []struct {
		habit habit
		check string
		want  string // in the error; "": none
	}{
		{honest, network, ""},
		{honest, logIns, ""},
		{honest, crowd, ""},
		{goneIsOff, network, "404"},
		{deadIsOff, network, "Off"},
		{trusting, network, "expired certificate"},
		{impatient, network, "left alone"},
		{halfIsWhole, network, "an answer"},
		{cached, network, "hang in"},
		{endless, network, "returned after"},
		{insisting, logIns, "15 times"},
	} {
		t.Run(string(tt.habit)+" "+tt.want, func(t *testing.T) {
			t.Parallel()
			b := newWeb(t, tt.habit)
			o := Options{Timeout: 20 * time.Second, Settle: time.Minute, Prompt: time.Second}
			if tt.habit == impatient {
				o.Timeout = 500 * time.Millisecond
			} else if tt.habit != endless {
				o.Prompt = 20 * time.Second // however slow the machine
			}
			err := checkNamed(t, tt.check).Run(t.Context(), b, o.checked())
			b.Proxy.SetFault(NoFault)
			_ = b.Provider.(providers.Closer).Close(t.Context())
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// What the proxy does to a stream, seen from a client's side.
func TestProxyOfAStream(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			work.Go(func() { defer c.Close(); _, _ = io.Copy(c, c) })
		}
	})
	t.Cleanup(func() { _ = echo.Close(); work.Wait() })
	x := NewProxy(t, echo.Addr().String(), ProxyOptions{TLS: true})

	dial := func(within time.Duration) (net.Conn, error) { return net.DialTimeout("tcp", x.Addr(), within) }
	must := func(c net.Conn, err error) net.Conn {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	say := func(c net.Conn, within time.Duration) (string, error) {
		_ = c.SetDeadline(time.Now().Add(within))
		if _, err := io.WriteString(c, "12345678"); err != nil {
			return "", err
		}
		b := make([]byte, 8)
		n, err := io.ReadFull(c, b)
		return string(b[:n]), err
	}
	ended := func(err error) bool { var n net.Error; return err != nil && !(errors.As(err, &n) && n.Timeout()) }

	c := must(dial(time.Minute))
	defer c.Close()
	if got, err := say(c, time.Minute); got != "12345678" || err != nil {
		t.Fatalf("no fault: got %q, %v", got, err)
	}
	x.SetFault(LateAnswer)
	if got, err := say(c, 50*time.Millisecond); got != "" || err == nil || ended(err) {
		t.Errorf("late: got %q, %v", got, err)
	}
	x.SetFault(NoFault)
	if got, err := io.ReadAll(io.LimitReader(deadlined(c, time.Minute), 8)); string(got) != "12345678" || err != nil {
		t.Errorf("the late answer: got %q, %v", got, err)
	}
	x.SetFault(HalfAnswer)
	if got, err := say(c, time.Minute); got != "1234" || !ended(err) {
		t.Errorf("half: got %q, %v", got, err)
	}
	x.SetFault(HangAnswer)
	c = must(dial(time.Minute))
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "12345678")
	half := make([]byte, 4)
	if _, err := io.ReadFull(c, half); string(half) != "1234" || err != nil {
		t.Errorf("hang in an answer: got %q, %v", half, err)
	}
	if n, err := deadlined(c, 50*time.Millisecond).Read(half); n != 0 || ended(err) {
		t.Errorf("hang in an answer: got %d bytes more, %v", n, err)
	}
	x.SetFault(HangHandshake)
	before := x.countConnections()
	c = must(dial(time.Minute))
	defer c.Close()
	if got, err := say(c, 50*time.Millisecond); got != "" || err == nil || ended(err) {
		t.Errorf("hang in handshake: got %q, %v", got, err)
	}
	x.SetFault(HangConnect)
	if c, err := dial(500 * time.Millisecond); err == nil {
		t.Errorf("hang in connect: connected")
		_ = c.Close()
	}
	x.SetFault(NoFault)
	c = must(dial(time.Minute))
	defer c.Close()
	if got, err := say(c, time.Minute); got != "12345678" || err != nil {
		t.Errorf("mended: got %q, %v", got, err)
	}
	if n := x.countConnections() - before; n < 2 {
		t.Errorf("got %d more connections, want 2 at least", n)
	}
	for _, f := range []Fault{ExpiredCertificate, UnknownAuthority} {
		x.SetFault(f)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(x.CA())
		_, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", x.Addr(),
			&tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
		var expired x509.CertificateInvalidError
		var unknown x509.UnknownAuthorityError
		if f == ExpiredCertificate && (!errors.As(err, &expired) || expired.Reason != x509.Expired) ||
			f == UnknownAuthority && !errors.As(err, &unknown) {
			t.Errorf("%s: got %v", f, err)
		}
	}
}

func deadlined(c net.Conn, within time.Duration) net.Conn {
	_ = c.SetDeadline(time.Now().Add(within))
	return c
}

// countConnections is how many connections were ever accepted.
func (p *Proxy) countConnections() int {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.accepted
}
