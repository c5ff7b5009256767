package plug_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/providertest/plug"
)

// strip is the counterpart: outlet 1 has a machine, there is no other.
type strip struct {
	mu       sync.Mutex // guards what follows
	on       bool
	word     string // overrides what on says
	password string
	fault    providertest.Fault
	changed  chan struct{} // closed when the fault changes
	logIns   int           // requests with a password, right or wrong

	requests providertest.Requests
}

func (s *strip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault, changed := s.fault, s.changed
	_, password, _ := r.BasicAuth()
	denied := password != s.password
	s.logIns++
	s.mu.Unlock()
	s.requests.Add(r.Method == http.MethodPut)
	if providertest.PlayFault(r, fault, changed) {
		return
	}
	if denied {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	if r.URL.Path != "/outlets/1" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		var body struct{ State string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch fault {
		case providertest.StaysOn:
		case providertest.StaysChanging:
			s.word = "switching"
		default:
			s.on, s.word = body.State == "on", ""
		}
	}
	state := map[bool]string{true: "on", false: "off"}[s.on]
	if s.word != "" {
		state = s.word
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"state": state})
}

func TestConformance(t *testing.T) {
	providertest.Suite(t, providertest.Options{
		Without: map[providertest.Fault]string{providertest.OtherMachine: "a strip does not know what is plugged in"},
		New: func(t *testing.T) *providertest.Bench {
			s := &strip{on: true, password: "hunter2", changed: make(chan struct{})}
			server := httptest.NewTLSServer(s)
			t.Cleanup(server.Close)
			network := providertest.NewProxy(t, server.URL, providertest.ProxyOptions{HTTP: true})
			dir := t.TempDir()
			password, ca := filepath.Join(dir, "password"), filepath.Join(dir, "ca.pem")
			write := func(file string, content []byte) {
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Error(err)
				}
			}
			write(password, []byte("hunter2"))
			write(ca, network.CA())
			c := plug.Type().NewConfig().(*plug.Config)
			c.Address, c.Username, c.PasswordFile, c.CAFile = "https://"+network.Addr(), "fence", password, ca
			if problems := c.Validate(); len(problems) > 0 {
				t.Fatal(problems)
			}
			p, err := c.New(providers.Options{Name: "strip-a", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return &providertest.Bench{
				Provider: p,
				Target:   providers.Target{Node: "n1", ID: "1"},
				Missing:  providers.Target{Node: "n2", ID: "2"},
				Running:  func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.on },
				Proxy:    network,
				LogIns:   func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.logIns },
				Requests: s.requests.All,
				SetPower: func(on bool) { s.mu.Lock(); defer s.mu.Unlock(); s.on, s.word = on, "" },
				SetFault: func(f providertest.Fault) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.fault, s.word = f, ""
					close(s.changed)
					s.changed = make(chan struct{})
					switch f {
					case providertest.StrangeWord:
						s.word = "Off" // it is "off" that proves
					case providertest.Denied:
						s.password += "!"
					case providertest.NoFault:
						write(password, []byte(s.password))
					}
				},
			}
		},
	})
}

func TestValidate(t *testing.T) {
	var got []string
	for _, p := range (&plug.Config{Address: "http://10.0.0.7"}).Validate() {
		got = append(got, p.Path)
	}
	if strings.Join(got, " ") != "address username passwordFile" {
		t.Errorf("got problems at %q", got)
	}
}
