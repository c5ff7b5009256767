package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cloud"
)

func terminating(c *ec2.Config) { c.Spot, c.TerminateTag = "terminate", "fence=may-end" }

// Termination is for good: it takes the option, an instance that cannot be stopped, its tag, the right machine, and
// that it may be sent.
func TestTerminate(t *testing.T) {
	tagged := map[string]string{"fence": "may-end", "Name": "x"}
	refuse := func() error { return errors.New("another leads") }
	for _, tt := range []struct {
		name   string
		o      cloud.Options
		edit   func(*ec2.Config)
		before func(*cloud.Cloud, *cloud.Instance)
		still  func() error
		want   error
		state  string
	}{
		{name: "one-time spot", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating, state: "terminated"},
		{name: "instance store", o: cloud.Options{Store: true, Tags: tagged}, edit: terminating, state: "terminated"},
		{name: "no option", o: cloud.Options{Spot: true, Tags: tagged}, want: providers.ErrPermanent, state: "running"},
		{name: "instance store, no option", o: cloud.Options{Store: true, Tags: tagged}, want: providers.ErrPermanent,
			state: "running"},
		{name: "no tag", o: cloud.Options{Spot: true}, edit: terminating, want: providers.ErrPermanent,
			state: "running"},
		{name: "another value", o: cloud.Options{Spot: true, Tags: map[string]string{"fence": "no"}}, edit: terminating,
			want: providers.ErrPermanent, state: "running"},
		{name: "another key", o: cloud.Options{Store: true, Tags: map[string]string{"Fence": "may-end"}},
			edit: terminating,
			want: providers.ErrPermanent, state: "running"},
		{name: "an ordinary one", o: cloud.Options{Tags: tagged}, edit: terminating, state: "stopped"},
		{name: "persistent spot", o: cloud.Options{Spot: true, Persistent: true, Tags: tagged}, edit: terminating,
			state: "stopped"},
		{name: "protected", o: cloud.Options{Spot: true, Protected: true, Tags: tagged}, edit: terminating,
			want: providers.ErrPermanent, state: "running"},
		{name: "another machine's addresses", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			want: providers.ErrIdentity, state: "running",
			before: func(_ *cloud.Cloud, i *cloud.Instance) { i.Say(func(t *cloud.Told) { t.Address = "10.0.9.9" }) }},
		{name: "another zone", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			want: providers.ErrIdentity, state: "running",
			before: func(_ *cloud.Cloud, i *cloud.Instance) { i.Say(func(t *cloud.Told) { t.Zone = "eu-west-1b" }) }},
		{name: "the request cannot be read", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			want: providers.ErrDenied, state: "running",
			before: func(c *cloud.Cloud, _ *cloud.Instance) {
				c.SetFault(cloud.Fault{Denied: "DescribeSpotInstanceRequests"})
			}},
		{name: "may not be sent", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating, still: refuse,
			want: providers.ErrNotSent, state: "running"},
		{name: "loses its tag meanwhile", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			want: providers.ErrPermanent, state: "running",
			before: func(_ *cloud.Cloud, i *cloud.Instance) {
				looks := 0
				i.Say(func(t *cloud.Told) {
					if looks++; looks == 2 {
						t.Tags = map[string]string{}
					}
				})
			}},
		{name: "is started again meanwhile", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			want: providers.ErrPermanent, state: "running",
			before: func(_ *cloud.Cloud, i *cloud.Instance) {
				looks := 0
				i.Say(func(t *cloud.Told) {
					if looks++; looks == 2 {
						t.Launch = t.Launch.Add(time.Minute)
					}
				})
			}},
		{name: "is terminated already", o: cloud.Options{Spot: true, Tags: tagged}, edit: terminating,
			state:  "terminated",
			before: func(_ *cloud.Cloud, i *cloud.Instance) { i.Terminate() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			tt.o.Zone, tt.o.Address = "eu-west-1a", "10.0.7.7"
			i := c.Add(tt.o)
			if tt.before != nil {
				tt.before(c, i)
			}
			still := tt.still
			if still == nil {
				still = providertest.AllowSend
			}
			err := newProvider(t, tt.edit).PowerOff(t.Context(), target(i, "10.0.7.7"), still)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || i.State() != tt.state {
				t.Errorf("got %v, %s; want %v, %s", err, i.State(), tt.want, tt.state)
			}
			if ended := slices.Contains(c.Actions(), "TerminateInstances"); ended && tt.state != "terminated" &&
				!tt.o.Protected {
				t.Error("TerminateInstances was sent")
			}
		})
	}
}

// A tag alone terminates nothing, even in a configuration that was not validated.
func TestTerminateNeedsTheOption(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7", Spot: true,
		Tags: map[string]string{"fence": "may-end"}})
	cfg := ec2.NewConfig()
	cfg.Regions, cfg.TerminateTag = []string{"eu-west-1"}, "fence=may-end"
	p, err := ec2.New(*cfg, providers.Options{Name: "aws"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(t.Context()) }()
	if err := p.PowerOff(t.Context(), target(i, "10.0.7.7"), providertest.AllowSend); !errors.Is(err,
		providers.ErrPermanent) || !i.Running() {
		t.Errorf("got %v, %s", err, i.State())
	}
}

func TestTerminateIsConfiguredWhole(t *testing.T) {
	for setting, want := range map[[2]string]string{
		{"", ""}: "", {"terminate", "a=b"}: "", {"terminate", "kubernetes.io/cluster/c=owned"}: "",
		{"terminate", ""}: "terminateTag", {"terminate", "a"}: "terminateTag", {"terminate", "a="}: "terminateTag",
		{"terminate", "=b"}: "terminateTag",
		{"", "a=b"}:         "terminateTag", {"stop", ""}: "spot",
	} {
		c := ec2.NewConfig()
		c.Regions, c.Spot, c.TerminateTag = []string{"eu-west-1"}, setting[0], setting[1]
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got problems at %q, want %q", setting, got, want)
		}
		if warned := len(c.Cautions()) > 0; warned != (setting[0] == "terminate") {
			t.Errorf("%q: warned %t", setting, warned)
		}
	}
}

// What the market stopped is off where its request says that it stops, and hibernates nothing.
func TestStoppedByTheMarket(t *testing.T) {
	for _, tt := range []struct {
		name   string
		o      cloud.Options
		say    func(*cloud.Told)
		fault  cloud.Fault
		unseen bool // it was not seen to run before
		want   providers.PowerState
	}{
		{name: "stops", o: cloud.Options{Behavior: "stop"}, want: providers.PowerOff},
		{name: "hibernates", o: cloud.Options{Behavior: "hibernate"}, want: providers.PowerOn},
		{name: "terminates, and did not", o: cloud.Options{}, want: providers.PowerOn},
		{name: "hibernation is configured", o: cloud.Options{Behavior: "stop", Hibernates: true},
			want: providers.PowerOn},
		{name: "hibernation is not reported", o: cloud.Options{Behavior: "stop"},
			say: func(t *cloud.Told) { t.NoOptions = true }, want: providers.PowerOn},
		{name: "the request cannot be read", o: cloud.Options{Behavior: "stop"},
			fault: cloud.Fault{Denied: "DescribeSpotInstanceRequests"},
			want:  providers.PowerOn},
		{name: "another reason", o: cloud.Options{Behavior: "stop"},
			say: func(t *cloud.Told) { t.Code = "Server.InternalError" }, want: providers.PowerOn},
		{name: "not seen to run", o: cloud.Options{Behavior: "stop"}, unseen: true, want: providers.PowerUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			tt.o.Zone, tt.o.Address, tt.o.Spot, tt.o.Persistent = "eu-west-1a", "10.0.7.7", true, true
			i := c.Add(tt.o)
			p := newProvider(t, nil)
			if !tt.unseen {
				if obs, err := p.State(t.Context(), target(i, "10.0.7.7")); obs.State != providers.PowerOn ||
					err != nil {
					t.Fatalf("got %s, %v", obs.State, err)
				}
			}
			i.Reclaim()
			i.Say(tt.say)
			c.SetFault(tt.fault)
			obs, err := p.State(t.Context(), target(i, "10.0.7.7"))
			if obs.State != tt.want || err != nil {
				t.Errorf("got %s (%q), %v; want %s", obs.State, obs.Raw, err, tt.want)
			}
		})
	}
}

// An API that is too slow for two answers in one call gets its second one in the next, once, and not long after.
func TestSecondAnswerInTheNextCall(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	i.CutPower()
	now := time.Now()
	p := ec2.At(newProvider(t, func(c *ec2.Config) { c.Agree = 4 * time.Second }), func() time.Time { return now })
	ask := func(after time.Duration) (providers.Observation, error) {
		now = now.Add(after)
		ctx, cancel := context.WithTimeout(t.Context(), 3900*time.Millisecond) // less than agree: no time for a second
		defer cancel()
		return p.State(ctx, target(i, "10.0.7.7"))
	}
	off := func(name string, after time.Duration, want bool) {
		t.Helper()
		obs, err := ask(after)
		if want && (obs.State != providers.PowerOff || err != nil || obs.At != providers.InstantOf(now)) {
			t.Errorf("%s: got %s (%q), %v of %v; want Off of now", name, obs.State, obs.Raw, err, obs.At)
		}
		if !want && (obs.State != providers.PowerUnknown ||
			err != nil && !strings.Contains(fmt.Sprint(err), "(agree)")) {
			t.Errorf("%s: got %s (%q), %v; want Unknown", name, obs.State, obs.Raw, err)
		}
	}
	off("the first", 0, false)
	off("the second", 5*time.Second, true)
	off("the first serves once", 5*time.Second, false)
	off("too early", time.Second, false)
	off("too late", time.Minute, false)
	off("the second again", 5*time.Second, true)

	off("of one stop", 5*time.Second, false)
	i.Say(func(t *cloud.Told) { t.Transition = "User initiated (2100-01-02 03:04:05 GMT)" })
	off("of another stop", 5*time.Second, false)
	off("of that stop", 5*time.Second, false)
	i.PowerOn()
	i.Say(nil)
	if obs, err := ask(5 * time.Second); obs.State != providers.PowerOn || err != nil {
		t.Errorf("on: got %s, %v", obs.State, err)
	}
	i.CutPower()
	off("after it ran", time.Second, false)
}
