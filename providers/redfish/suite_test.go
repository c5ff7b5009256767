package redfish_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const anotherUUID = "11111111-2222-4333-8444-555555555555"

// newProvider makes a provider for the data centre; edit changes its configuration first.
func newProvider(t testing.TB, dc *datacenter.DataCenter, edit func(*redfish.Config)) *redfish.Provider {
	t.Helper()
	dir := kit.SocketDir(t) // its path is in errors, which are cut after 200 bytes
	c := redfish.NewConfig()
	c.Username, c.PasswordFile, c.CAFile = dc.Username(), filepath.Join(dir, "password"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(c.PasswordFile, []byte(dc.Password()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dc.WriteCA(c.CAFile); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(c)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := redfish.New(*c, providers.Options{Name: "rack-a", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func fault(f providertest.Fault) datacenter.Fault {
	switch f {
	case providertest.Unreachable:
		return datacenter.Fault{Drop: true}
	case providertest.Silent:
		return datacenter.Fault{Silent: true}
	case providertest.Slow:
		return datacenter.Fault{Delay: providertest.SlowBy}
	case providertest.StaysOn:
		return datacenter.Fault{StaysOn: true}
	case providertest.StaysChanging:
		return datacenter.Fault{StaysPoweringOff: true}
	case providertest.StrangeWord:
		return datacenter.Fault{PowerWord: "Dozing"}
	case providertest.OtherMachine:
		return datacenter.Fault{SystemUUID: anotherUUID}
	default:
		return datacenter.Fault{}
	}
}

func TestConformance(t *testing.T) {
	type site struct {
		dc  *datacenter.DataCenter
		m   *datacenter.Machine
		bmc *datacenter.BMC
	}
	alone := func(o datacenter.Options) site {
		dc := datacenter.New(o)
		m := dc.AddMachine("m1")
		return site{dc, m, dc.AddBMC(m)}
	}
	tests := []struct {
		name    string
		site    func() site
		config  func(site, *redfish.Config)
		target  func(site) string
		missing func(site) string
		limited bool
		proxy   bool // between the provider and its BMC
		flood   int  // of so many systems
	}{
		{
			name: "sole system", site: func() site { return alone(datacenter.Options{}) }, proxy: true, flood: 16,
			target:  func(s site) string { return s.bmc.URL() },
			missing: func(s site) string { return s.bmc.URL() + "/redfish/v1/Systems/none" },
		},
		{
			name: "system's path, basic, slow power-off",
			site: func() site { return alone(datacenter.Options{PowerOffDelay: 50 * time.Millisecond}) }, proxy: true,
			config:  func(_ site, c *redfish.Config) { c.Auth = "basic" },
			target:  func(s site) string { return s.bmc.SystemURL(s.m) },
			missing: func(s site) string { return s.bmc.URL() + "/redfish/v1/Systems/none" },
		},
		{
			name: "one of several, behind the limiter",
			site: func() site {
				dc := datacenter.New(datacenter.Options{})
				ms := []*datacenter.Machine{dc.AddMachine("m0"), dc.AddMachine("m1"), dc.AddMachine("m2")}
				return site{dc, ms[1], dc.AddBMC(ms...)}
			},
			config:  func(s site, c *redfish.Config) { c.Address, c.Auth = s.bmc.URL(), "session" },
			target:  func(s site) string { return s.m.Serial() },
			missing: func(site) string { return "none" },
			limited: true, flood: 300,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			noProxy := ""
			if !tt.proxy {
				noProxy = "other runs have it"
			}
			providertest.Suite(t, providertest.Options{NoProxy: noProxy, New: func(t *testing.T) *providertest.Bench {
				s := tt.site()
				t.Cleanup(func() { _ = s.dc.Close() })
				var file string
				target, missing := tt.target(s), tt.missing(s)
				var x *providertest.Proxy
				if tt.proxy {
					x = providertest.NewProxy(t, s.bmc.URL(), providertest.ProxyOptions{HTTP: true})
					target = strings.Replace(target, s.bmc.URL(), "https://"+x.Addr(), 1)
					missing = strings.Replace(missing, s.bmc.URL(), "https://"+x.Addr(), 1)
				}
				var p providers.Provider = newProvider(t, s.dc, func(c *redfish.Config) {
					file = c.PasswordFile
					if x != nil {
						if err := os.WriteFile(c.CAFile, x.CA(), 0o600); err != nil {
							t.Error(err)
						}
					}
					if tt.config != nil {
						tt.config(s, c)
					}
				})
				if tt.limited {
					p = limiter.New(p, limiter.Options{Name: "rack-a", Type: "redfish", Rate: 1000, Burst: 1000})
				}
				return &providertest.Bench{
					Provider: p,
					Target:   providers.Target{Node: "n1", ID: target, SystemUUID: s.m.SystemUUID()},
					Missing:  providers.Target{Node: "n2", ID: missing, SystemUUID: anotherUUID},
					Running:  s.m.Running,
					Proxy:    x,
					LogIns: func() (n int) {
						for _, r := range s.bmc.Requests() {
							if r.Password {
								n++
							}
						}
						return n
					},
					Requests: func() (acts []bool) {
						for _, r := range s.bmc.Requests() {
							acts = append(acts, r.Method == http.MethodPost && strings.HasSuffix(r.Path, ".Reset"))
						}
						return acts
					},
					SetPower: func(on bool) {
						if on {
							s.m.PowerOn()
						} else {
							s.m.CutPower()
						}
					},
					SetFault: func(f providertest.Fault) {
						broken := fault(f)
						if f == providertest.Flood {
							broken.Flood = tt.flood
						}
						s.bmc.SetFault(broken)
						switch {
						case f == providertest.Denied:
							s.dc.SetPassword("changed-" + s.dc.Password())
							s.bmc.ExpireSessions()
						case f == providertest.NoFault: // a refused password is not sent again before it changes
							if err := os.WriteFile(file, []byte(s.dc.Password()), 0o600); err != nil {
								t.Error(err)
							}
						}
					},
				}
			}})
		})
	}
}
