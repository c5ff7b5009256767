package ec2_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cloud"
	"github.com/forcefence/forcefence/test/kit"
)

func TestMain(m *testing.M) {
	// the thread that starts children
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/forcefence/forcefence/test/kit.startAll"))
}

// timeout is far more than any call here takes that is not meant to run out of time: other packages' tests share the
// machine.
const timeout = 20 * time.Second

// agree is short here: what its length is good for is tested where it is long.
const agree = 20 * time.Millisecond

var zones = map[string]string{
	"eu-west-1a": "eu-west-1", "eu-west-1b": "eu-west-1", "eu-west-1c": "eu-west-1",
	"us-west-2a": "us-west-2", "us-west-2-lax-1a": "us-west-2", "us-west-2-wl1-las-wlz-1": "us-west-2",
}

// newCloud starts a cloud, in whose environment the test then is.
func newCloud(t testing.TB) *cloud.Cloud {
	t.Helper()
	c, err := cloud.Start(zones)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	setenv := t.(interface{ Setenv(key, value string) }).Setenv
	kit.DropEnv(t, "AWS_")
	setenv("AWS_CONFIG_FILE", "/nonexistent")
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	setenv("AWS_EC2_METADATA_DISABLED", "true")
	setenv("AWS_ENDPOINT_URL", c.URL())
	setenv("AWS_ENDPOINT_URL_STS", c.URL()) // the SDK's own look for a web identity reads this one
	use(setenv, c.NewKey())
	return c
}

// use puts credentials where the SDK's chain looks first.
func use(setenv func(key, value string), k cloud.Key) {
	setenv("AWS_ACCESS_KEY_ID", k.ID)
	setenv("AWS_SECRET_ACCESS_KEY", k.Secret)
	setenv("AWS_SESSION_TOKEN", k.Token)
}

// newProvider makes a provider; edit changes its configuration first.
func newProvider(t testing.TB, edit func(*ec2.Config)) *ec2.Provider {
	t.Helper()
	c := ec2.NewConfig()
	c.Regions = []string{"eu-west-1", "us-west-2"}
	if edit != nil {
		edit(c)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	if c.Agree == ec2.NewConfig().Agree {
		c.Agree = agree
	}
	p, err := ec2.New(*c, providers.Options{Name: "aws", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	return p
}

func target(i *cloud.Instance, addresses ...string) providers.Target {
	return providers.Target{Node: "n1", ID: i.ProviderID(), Addresses: providers.NewAddresses(addresses...),
		SystemUUID: "ec2a1b2c-0000-4000-8000-000000000001"}
}

func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name    string
		claimed bool
		limited bool
		stops   time.Duration
	}{
		{name: "plain"},
		{name: "claimed, behind the limiter, stops slowly", claimed: true, limited: true, stops: 50 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The SDK makes 1.5 KB of each <item/>.
			providertest.Suite(t,
				providertest.Options{Timeout: timeout, Memory: 64 << 20, NoLogIns: "AWS locks no account",
					NoProxy: "the plain run has it", New: func(t *testing.T) *providertest.Bench {
						c := newCloud(t)
						var network *providertest.Proxy
						if !tt.limited {
							network = providertest.NewProxy(t, c.URL(), providertest.ProxyOptions{HTTP: true})
							ca := filepath.Join(t.TempDir(), "ca.pem")
							if err := os.WriteFile(ca, network.CA(), 0o600); err != nil {
								t.Fatal(err)
							}
							t.Setenv("AWS_CA_BUNDLE", ca)
							t.Setenv("AWS_ENDPOINT_URL", "https://"+network.Addr())
						}
						i := c.Add(cloud.Options{Zone: "eu-west-1b", Address: "10.0.7.7", Stops: tt.stops})
						var p providers.Provider = newProvider(t, nil)
						if tt.limited {
							p = limiter.New(p, limiter.Options{Name: "aws", Type: "ec2", Rate: 1000, Burst: 1000})
						}
						tg := target(i, "10.0.7.7", "192.0.2.7")
						tg.Claimed = tt.claimed
						return &providertest.Bench{
							Provider: p, Target: tg, Proxy: network,
							Missing: providers.Target{Node: "n2", ID: "aws:///eu-west-1a/i-0ffffffffffffffff",
								Addresses: tg.Addresses},
							Running: i.Running,
							Requests: func() (acts []bool) {
								for _, action := range c.Actions() {
									acts = append(acts, action == "StopInstances" || action == "StartInstances")
								}
								return acts
							},
							SetPower: func(on bool) {
								if on {
									i.PowerOn()
								} else {
									i.CutPower()
								}
							},
							SetFault: func(f providertest.Fault) {
								fault := map[providertest.Fault]cloud.Fault{
									providertest.Unreachable: {Drop: true}, providertest.Silent: {Silent: true},
									providertest.Slow:   {Delay: providertest.SlowBy},
									providertest.Denied: {Denied: "*"}, providertest.StaysOn: {StaysOn: true},
									providertest.StaysChanging: {StaysHalf: true},
								}
								c.SetFault(fault[f])
								switch f {
								case providertest.StrangeWord:
									i.Say(func(t *cloud.Told) { t.State = "Stopped" })
								case providertest.OtherMachine:
									i.Say(func(t *cloud.Told) { t.Address = "10.0.9.9" })
								default:
									i.Say(nil)
								}
							},
						}
					}})
		})
	}
}
