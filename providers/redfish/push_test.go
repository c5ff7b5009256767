package redfish_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/providers/remote"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// push has the provider listen on a free port of this host.
func push(t testing.TB) func(*rack, *redfish.Config) {
	t.Helper()
	return func(_ *rack, c *redfish.Config) {
		dir := t.TempDir()
		at := kit.FreeAddress(t)
		c.Events = "push"
		c.Push = redfish.Push{Listen: at, Destination: "https://" + at, CertFile: filepath.Join(dir, "tls.crt"),
			KeyFile: filepath.Join(dir, "tls.key")}
		certificate(t, c.Push)
	}
}

// certificate writes another certificate.
func certificate(t testing.TB, p redfish.Push) {
	t.Helper()
	c := kit.NewAuthority("forcefence").Server("127.0.0.1")
	kit.Must(t, os.WriteFile(p.CertFile, c.Cert, 0o600))
	kit.Must(t, os.WriteFile(p.KeyFile, c.Key, 0o600))
}

// subscribed waits until the BMC has this many subscriptions, and returns their destinations.
func (r *rack) subscribed(t testing.TB, n int) (destinations []string) {
	t.Helper()
	r.until(t, fmt.Sprintf("%d subscriptions", n), func() bool { return len(r.bmc.Subscriptions()) == n })
	for _, s := range r.bmc.Subscriptions() {
		destinations = append(destinations, s.Destination)
	}
	return destinations
}

// client speaks to the door as a BMC does, from that address of this host.
func client(t testing.TB, from string) *http.Client {
	t.Helper()
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true,
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: timeout}
}

// A BMC sends its events to us: the machine is reported off, others' subscriptions stay, and none of ours is left at
// the end.
func TestPush(t *testing.T) {
	r := newRack(t, 2, datacenter.Options{}, push(t))
	brisk(r.p)
	origin := redfish.PushTo(r.p)
	const other = "https://127.0.0.1:1/" // the BMC sends events there, too: a name would be looked up
	r.bmc.Subscribe(
		datacenter.Subscription{Destination: other, Context: "forcefence/rack-a", Protocol: "Redfish"})
	r.bmc.Subscribe(datacenter.Subscription{Destination: origin + "/x", Context: "someone", Protocol: "Redfish"})
	// by a process before
	r.bmc.Subscribe(
		datacenter.Subscription{Destination: origin + "/left", Context: "forcefence/rack-a", Protocol: "Redfish"})
	others := []string{other, origin + "/x"}
	r.ms[1].CutPower()
	reports, stop := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	providertest.AwaitReports(t, reports, "n1 Off Off")
	got := r.subscribed(t, 3)
	ours := slices.DeleteFunc(slices.Clone(got), func(d string) bool { return slices.Contains(others, d) })
	if len(ours) != 1 || ours[0] == origin+"/left" || len(strings.TrimPrefix(ours[0], origin)) < 26 {
		t.Fatalf("subscriptions: got %q", got)
	}
	r.ms[0].CutPower()
	providertest.AwaitReports(t, reports, "n0 Off ")
	if n := r.bmc.Streams(); n != 0 {
		t.Errorf("%d streams", n)
	}

	// A second watch has its own, and neither deletes the other's.
	tells2, stop2 := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	providertest.AwaitReports(t, tells2, "n0 Off Off")
	r.subscribed(t, 4)
	stop()
	r.subscribed(t, 3)
	r.ms[0].PowerOn()
	providertest.AwaitReports(t, tells2, "n0 On ")
	stop2()
	got = r.subscribed(t, 2)
	slices.Sort(got)
	if slices.Sort(others); !slices.Equal(got, others) {
		t.Errorf("left: got %q, want %q", got, others)
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(origin, "https://")); err == nil {
		c.Close()
		t.Error("the server listens after the watches have ended")
	}
}

// A BMC that forgets a subscription gets another; one that wants types of events is given them; one that has no
// subscriptions is left.
func TestPushAgain(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, push(t))
	redfish.SetRhythm(r.p, time.Millisecond, 10*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond)
	r.bmc.SetFault(datacenter.Fault{EventTypes: true})
	reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	r.subscribed(t, 1)
	for _, s := range r.bmc.Subscriptions() {
		if !slices.Contains(s.EventTypes, "Alert") {
			t.Errorf("got types %q", s.EventTypes)
		}
	}
	r.bmc.SetFault(datacenter.Fault{Mute: true, SubscribeStatus: 503})
	r.ms[0].CutPower()
	r.bmc.ForgetSubscriptions()
	n := r.bmc.Count(http.MethodPost, subscriptions)
	r.until(t, "it tries again", func() bool { return r.bmc.Count(http.MethodPost, subscriptions) > n+1 })
	r.bmc.SetFault(datacenter.Fault{})
	r.subscribed(t, 1)
	providertest.AwaitReports(t, reports, "n0 Off Off")
}

// Only the BMC gets in, and only by its own path, with an event of a bounded size; nothing that is sent
// is more than a question.
func TestPushFromOthers(t *testing.T) {
	r := newRack(t, 1, datacenter.Options{}, push(t))
	brisk(r.p)
	// The second BMC is not reached, but its address is known.
	reports, _ := providertest.StartWatch(t, redfish.Watcher(r.p),
		append(r.targets(), providers.Target{Node: "n1", ID: "https://127.0.0.2:9"})...)
	to := r.subscribed(t, 1)[0]
	r.until(t, "the looks at the beginning", func() bool { return r.bmc.Count(http.MethodGet, system(r.ms[0])) >= 3 })
	asked := func() int { return r.bmc.Count(http.MethodGet, system(r.ms[0])) }
	before := asked()
	bmc := client(t, "127.0.0.1")
	off := fmt.Sprintf(
		`{"Events":[{"MessageId":"ResourceEvent.1.0.ResourcePoweredOff","OriginOfCondition":{"@odata.id":%q}}]}`,
		system(r.ms[0]))
	post := func(c *http.Client, method, to, body string, header ...string) int {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		resp, err := c.Do(q)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	other, stranger := client(t, "127.0.0.2"), client(t, "127.0.0.3")
	kit.Until(t, "another BMC is let in", func() bool { return post(other, http.MethodPost, to, off) != 0 })
	for _, tt := range []struct {
		name string
		got  int
		want int
	}{
		{"another host, with the path", post(stranger, http.MethodPost, to, off), 0},
		{"another BMC, with the path", post(other, http.MethodPost, to, off), 404},
		{"another path", post(bmc, http.MethodPost, to+"x", off), 404},
		{"no path", post(bmc, http.MethodPost, redfish.PushTo(r.p)+"/", off), 404},
		{"a part of the path", post(bmc, http.MethodPost, to[:len(to)-1], off), 404},
		{"another method", post(bmc, http.MethodGet, to, ""), 405},
		{"too large", post(bmc, http.MethodPost, to, strings.Repeat(" ", remote.MaxEvent)+off), 413},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	if n := asked(); n != before {
		t.Errorf("%d questions because of what strangers sent", n-before)
	}
	nothing(t, reports)

	// Any request to the path makes us ask. A packed body is not unpacked.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 1 << 6 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	if got := post(bmc, http.MethodPost, to, bomb.String(), "Content-Encoding", "gzip"); got != 204 {
		t.Errorf("packed: got %d", got)
	}
	r.until(t, "a question", func() bool { return asked() > before })
	nothing(t, reports) // the machine runs
	if got := post(bmc, http.MethodPost, to, off); got != 204 {
		t.Errorf("an event: got %d", got)
	}
	providertest.AwaitReports(t, reports, "n0 Off event: ResourcePoweredOff")

	// A flood is answered, and makes us ask once a second.
	before = asked()
	began := time.Now()
	connections := 0
	count := bmc.Transport.(*http.Transport).DialContext
	bmc.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		connections++
		return count(ctx, network, addr)
	}
	for range 500 {
		if got := post(bmc, http.MethodPost, to, off); got != 204 {
			t.Fatalf("a flood: got %d", got)
		}
	}
	if connections == 0 {
		t.Error("a flood may keep its connection")
	}
	seconds := int(time.Since(began)/time.Second) + 2
	if n := asked() - before; n > seconds {
		t.Errorf("asked %d times in %d s", n, seconds)
	}
	if n := len(reports); n > 2*seconds {
		t.Errorf("%d reports in %d s", n, seconds)
	}
}

// A BMC's address has few connections, and a new certificate is shown without a restart.
func TestPushConnections(t *testing.T) {
	var files redfish.Push
	r := newRack(t, 1, datacenter.Options{}, func(r *rack, c *redfish.Config) { push(t)(r, c); files = c.Push })
	brisk(r.p)
	providertest.StartWatch(t, redfish.Watcher(r.p), r.targets()...)
	r.subscribed(t, 1)
	at := strings.TrimPrefix(redfish.PushTo(r.p), "https://")
	shown := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", at)
		if err != nil {
			return "", err
		}
		t.Cleanup(func() { c.Close() })
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
	}
	seen := map[string]bool{}
	for range 2 {
		s, err := shown()
		if err != nil {
			t.Fatal(err)
		}
		seen[s] = true
		certificate(t, files)
	}
	if len(seen) != 2 {
		t.Errorf("certificates: got %v, want two", slices.Collect(maps.Keys(seen)))
	}
	for range 2 { // slow ones, which send nothing
		if _, err := shown(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := shown(); err == nil {
		t.Error("a fifth connection was let in")
	}
}

func TestPushConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*redfish.Config)
		want string
	}{
		"good": {func(*redfish.Config) {}, ""},
		"nothing": {func(c *redfish.Config) { c.Push = redfish.Push{} },
			"push.listen push.destination push.certFile push.keyFile"},
		"no port": {func(c *redfish.Config) { c.Push.Listen = "127.0.0.1" }, "push.listen"},
		"plain": {func(c *redfish.Config) { c.Push.Destination = "http://127.0.0.1:8443" },
			"push.destination"},
		"a path": {func(c *redfish.Config) { c.Push.Destination += "/events" }, "push.destination"},
		"credentials": {func(c *redfish.Config) { c.Push.Destination = "https://me:secret@127.0.0.1" },
			"push.destination"},
		"no file":            {func(c *redfish.Config) { c.Push.KeyFile += "x" }, "push.certFile"},
		"without its switch": {func(c *redfish.Config) { c.Events = "sse" }, "push"},
		"another word":       {func(c *redfish.Config) { c.Events = "on" }, "events"},
	} {
		c := redfish.NewConfig()
		c.Username, c.PasswordEnv = "fence", "NONE"
		push(t)(nil, c)
		tt.edit(c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
			if strings.Contains(p.Text, "secret") {
				t.Errorf("%s: %q", name, p.Text)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
