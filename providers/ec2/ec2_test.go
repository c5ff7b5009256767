package ec2_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cloud"
)

func ask(t *testing.T, p providers.Provider, tg providers.Target) providers.Answer {
	t.Helper()
	return providers.Ask(t.Context(), p, "aws", tg, providers.Now)
}

// Only two exact words are off, and one of them not by itself.
func TestWhatIsOff(t *testing.T) {
	const plain, guest, hibernated = "Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown",
		"Client.UserInitiatedHibernate"
	now := time.Now()
	timed := func(at time.Time) string { return "User initiated (" + at.UTC().Format(time.DateTime) + " GMT)" }
	stop := func(f func(*cloud.Told)) func(*cloud.Told) {
		return func(t *cloud.Told) {
			t.State, t.Code, t.Launch, t.Transition = "stopped", plain, now.Add(-time.Hour), timed(now)
			if f != nil {
				f(t)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		o     cloud.Options
		heard time.Time // of the node
		ran   bool      // the instance was seen to run before
		say   func(*cloud.Told)
		want  providers.PowerState
		raw   string
		err   error
	}{
		{name: "running", say: func(*cloud.Told) {}, want: providers.PowerOn, raw: "running"},
		{name: "pending", say: func(t *cloud.Told) { t.State = "pending" }, want: providers.PowerChanging,
			raw: "pending"},
		{name: "stopping", say: func(t *cloud.Told) { t.State = "stopping" }, want: providers.PowerChanging,
			raw: "stopping"},
		{name: "shutting down", say: func(t *cloud.Told) { t.State = "shutting-down" }, want: providers.PowerChanging,
			raw: "shutting-down"},
		{name: "shutting down, its addresses gone",
			say: func(t *cloud.Told) { t.State, t.Address = "shutting-down", "" }, want: providers.PowerChanging,
			raw: "shutting-down"},
		{name: "terminated", say: func(t *cloud.Told) { t.State, t.Address = "terminated", "" },
			want: providers.PowerOff, raw: "terminated"},
		{name: "no word", say: func(t *cloud.Told) { t.State = "" }, want: providers.PowerUnknown},
		{name: "another case", say: func(t *cloud.Told) { t.State = "Stopped" }, want: providers.PowerUnknown,
			raw: "Stopped"},
		{name: "quarantine", say: func(t *cloud.Told) { t.State = "quarantine" }, want: providers.PowerUnknown,
			raw: "quarantine"},

		{name: "stopped", say: stop(nil), want: providers.PowerOff, raw: "stopped"},
		{name: "stopped in UTC",
			say:  stop(func(t *cloud.Told) { t.Transition = strings.Replace(t.Transition, "GMT", "UTC", 1) }),
			want: providers.PowerOff, raw: "stopped"},
		{name: "hibernated", o: cloud.Options{Hibernates: true}, say: stop(func(t *cloud.Told) { t.Code = hibernated }),
			want: providers.PowerOn, raw: "stopped, hibernated"},
		{name: "hibernated, the options say no", say: stop(func(t *cloud.Told) { t.Code = hibernated }),
			want: providers.PowerOn, raw: "stopped, hibernated"},
		{name: "could hibernate, plain stop", o: cloud.Options{Hibernates: true}, say: stop(nil),
			want: providers.PowerOff, raw: "stopped"},
		{name: "could hibernate, its guest's own stop", o: cloud.Options{Hibernates: true},
			say: stop(func(t *cloud.Told) { t.Code = guest }), want: providers.PowerOn,
			raw: "stopped, maybe hibernated"},
		{name: "could hibernate, no reason", o: cloud.Options{Hibernates: true},
			say: stop(func(t *cloud.Told) { t.Code = "" }), want: providers.PowerOn, raw: "stopped, maybe hibernated"},
		{name: "no options reported, no reason", say: stop(func(t *cloud.Told) { t.Code, t.NoOptions = "", true }),
			want: providers.PowerOn, raw: "stopped, maybe hibernated"},
		{name: "stopped by the market", o: cloud.Options{Spot: true},
			say: stop(func(t *cloud.Told) { t.Code = "Server.SpotInstanceShutdown" }), want: providers.PowerOn,
			raw: "stopped by the market, maybe hibernated"},

		{name: "stopped, no time", say: stop(func(t *cloud.Told) { t.Transition = "User initiated" }),
			want: providers.PowerUnknown, raw: "stopped, at an unknown time"},
		{name: "stopped, no reason", say: stop(func(t *cloud.Told) { t.Transition = "" }), want: providers.PowerUnknown,
			raw: "stopped, at an unknown time"},
		{name: "stopped, a time that is none",
			say:  stop(func(t *cloud.Told) { t.Transition = "User initiated (2026-13-40 03:04:05 GMT)" }),
			want: providers.PowerUnknown,
			raw:  "stopped, at an unknown time"},
		{name: "stopped, no launch", say: stop(func(t *cloud.Told) { t.Launch = time.Time{} }),
			want: providers.PowerUnknown, raw: "stopped, without a launch time"},
		{name: "stopped before its launch",
			say:  stop(func(t *cloud.Told) { t.Transition = timed(now.Add(-2 * time.Hour)) }),
			want: providers.PowerUnknown, raw: "stopped, before its launch"},
		{name: "stopped in the second of its launch", say: stop(func(t *cloud.Told) { t.Launch = now }),
			want: providers.PowerOff, raw: "stopped"},
		{name: "stopped, launched again since", ran: true, say: stop(nil), want: providers.PowerUnknown,
			raw: "stopped, but launched again since"},
		{name: "stopped, no time, and seen to run", ran: true,
			say:  func(t *cloud.Told) { t.State, t.Code, t.Transition = "stopped", guest, "User initiated" },
			want: providers.PowerOff, raw: "stopped"},
		{name: "stopped, no time, launched since it was seen to run", ran: true,
			say: func(t *cloud.Told) {
				t.State, t.Code, t.Transition, t.Launch = "stopped", guest, "User initiated", now.Add(time.Hour)
			}, want: providers.PowerUnknown, raw: "stopped, at an unknown time"},
		{name: "heard before its stop", heard: now.Add(-time.Minute), say: stop(nil), want: providers.PowerOff,
			raw: "stopped"},
		{name: "heard while its guest shut down", heard: now.Add(4 * time.Minute), say: stop(nil),
			want: providers.PowerOff, raw: "stopped"},
		{name: "heard long after its stop", heard: now.Add(6 * time.Minute), say: stop(nil),
			want: providers.PowerUnknown, raw: "stopped, but its node was heard since"},

		{name: "no address", say: stop(func(t *cloud.Told) { t.Address = "" }), err: providers.ErrIdentity},
		{name: "another's address", say: stop(func(t *cloud.Told) { t.Address = "10.0.7.70" }),
			err: providers.ErrIdentity, raw: "stopped"},
		{name: "another zone", say: stop(func(t *cloud.Told) { t.Zone = "eu-west-1b" }), err: providers.ErrIdentity},
		{name: "terminated in another zone",
			say: func(t *cloud.Told) { t.State, t.Address, t.Zone = "terminated", "", "eu-west-1b" },
			err: providers.ErrIdentity},
		{name: "no zone", say: stop(func(t *cloud.Told) { t.Zone = "" }), err: providers.ErrIdentity},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			tt.o.Zone, tt.o.Address = "eu-west-1a", "10.0.7.7"
			i := c.Add(tt.o)
			p := newProvider(t, nil)
			tg := target(i, "10.0.7.7")
			tg.Heard = tt.heard
			if tt.ran {
				if a := ask(t, p, tg); a.State != providers.PowerOn {
					t.Fatalf("got %s (%q), %v", a.State, a.Raw, a.Err)
				}
			}
			i.Say(tt.say)
			a := ask(t, p, tg)
			if a.State != tt.want || a.Raw != tt.raw || !errors.Is(a.Err, tt.err) || (a.Err == nil) != (tt.err == nil) {
				t.Errorf("got %s (%q), %v; want %s (%q), %v", a.State, a.Raw, a.Err, tt.want, tt.raw, tt.err)
			}
		})
	}
}

// One answer of stopped is no proof: the second may report another state, or another stop. The proof is of the
// second's time.
func TestTwoAnswersAgree(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(*cloud.Told)
		want providers.PowerState
		raw  string
		err  error
	}{
		{name: "the same", next: func(*cloud.Told) {}, want: providers.PowerOff, raw: "stopped"},
		{name: "started", next: func(t *cloud.Told) { t.State = "pending" }, want: providers.PowerChanging,
			raw: "pending"},
		{name: "runs", next: func(t *cloud.Told) { t.State = "running" }, want: providers.PowerOn, raw: "running"},
		{name: "an unknown word", next: func(t *cloud.Told) { t.State = "parked" },
			want: providers.PowerUnknown, raw: "parked"},
		{name: "of another time", next: func(t *cloud.Told) {
			t.Transition = "User initiated (" + time.Now().Add(time.Minute).UTC().Format(time.DateTime) + " GMT)"
		}, want: providers.PowerUnknown,
			raw: "stopped twice between two answers"},
		{name: "for another reason", next: func(t *cloud.Told) { t.Code = "Server.ScheduledStop" },
			want: providers.PowerUnknown, raw: "stopped twice between two answers"},
		{name: "of another launch", next: func(t *cloud.Told) { t.Launch = t.Launch.Add(-time.Second) },
			want: providers.PowerUnknown, raw: "stopped twice between two answers"},
		{name: "hibernated", next: func(t *cloud.Told) { t.Code = "Client.UserInitiatedHibernate" },
			want: providers.PowerOn, raw: "stopped, hibernated"},
		{name: "another machine", next: func(t *cloud.Told) { t.Address = "10.0.7.70" }, raw: "stopped",
			err: providers.ErrIdentity},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
			i.CutPower()
			p := newProvider(t, nil)
			said := 0
			var first, second time.Time
			i.Say(func(t *cloud.Told) {
				if said++; said == 1 {
					first = time.Now()
					return
				}
				second = time.Now()
				tt.next(t)
			})
			a := ask(t, p, target(i, "10.0.7.7"))
			if a.State != tt.want || a.Raw != tt.raw || !errors.Is(a.Err, tt.err) || (a.Err == nil) != (tt.err == nil) {
				t.Errorf("got %s (%q), %v; want %s (%q), %v", a.State, a.Raw, a.Err, tt.want, tt.raw, tt.err)
			}
			if said != 2 || second.Sub(first) < agree {
				t.Errorf("%d answers, %s apart; want 2, at least %s", said, second.Sub(first), agree)
			}
			if a.Err == nil && (a.At.Before(providers.InstantOf(first)) || a.At.After(providers.InstantOf(second))) {
				t.Errorf("the proof is of %s after the first answer, the second was given after %s",
					a.At.Sub(providers.InstantOf(first)), second.Sub(first))
			}
		})
	}
}

// A terminated instance comes back never: one answer is enough, and after an hour there is none.
func TestTerminated(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7", Forgets: time.Millisecond})
	p := newProvider(t, func(c *ec2.Config) { c.Agree = 4 * time.Second })
	tg := target(i, "10.0.7.7")
	if a := ask(t, p, tg); a.State != providers.PowerOn {
		t.Fatalf("got %s, %v", a.State, a.Err)
	}
	i.Say(func(t *cloud.Told) { t.State, t.Address = "terminated", "" })
	if a := ask(t, p, tg); a.State != providers.PowerOff || c.Calls("", "DescribeInstances") != 2 {
		t.Errorf("got %s, %v after %d calls", a.State, a.Err, c.Calls("", "DescribeInstances"))
	}
	if p.Ran() != 0 {
		t.Error("it is remembered")
	}
	if err := p.PowerOff(t.Context(), tg, providertest.AllowSend); err != nil {
		t.Error(err)
	}
	i.Terminate()
	a := ask(t, p, tg)
	// EC2 forgets it a moment later
	for end := time.Now().Add(time.Minute); a.State == providers.PowerOff && time.Now().Before(end); a = ask(t, p, tg) {
	}
	if a.State != providers.PowerUnknown || !errors.Is(a.Err, providers.ErrNotFound) {
		t.Errorf("got %s, %v; want Unknown, %v", a.State, a.Err, providers.ErrNotFound)
	}
}

// The stop is a hard one: a guest that hangs does not keep it from its end. What is going off is not an error, what may
// not be stopped is.
func TestPowerOff(t *testing.T) {
	for _, tt := range []struct {
		name   string
		o      cloud.Options
		before func(*cloud.Instance)
		want   error
		state  string
	}{
		{name: "runs", state: "stopped"},
		{name: "hangs in its own stop", before: func(i *cloud.Instance) {
			i.Say(func(t *cloud.Told) { t.State = "stopping" })
		}, state: "stopped"},
		{name: "is off", before: (*cloud.Instance).CutPower, state: "stopped"},
		{name: "is terminated", before: (*cloud.Instance).Terminate, state: "terminated"},
		{name: "is protected", o: cloud.Options{Protected: true}, want: providers.ErrPermanent, state: "running"},
		{name: "is spot", o: cloud.Options{Spot: true}, want: providers.ErrPermanent, state: "running"},
		{name: "is starting", o: cloud.Options{Starts: time.Hour},
			before: func(i *cloud.Instance) { i.CutPower(); i.Start() }, want: providers.ErrUnreachable,
			state: "pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			tt.o.Zone, tt.o.Address = "eu-west-1a", "10.0.7.7"
			i := c.Add(tt.o)
			if tt.before != nil {
				tt.before(i)
			}
			err := newProvider(t, nil).PowerOff(t.Context(), target(i, "10.0.7.7"), providertest.AllowSend)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || i.State() != tt.state {
				t.Errorf("got %v, %s; want %v, %s", err, i.State(), tt.want, tt.state)
			}
		})
	}
}

// A start must not resume the machine that was there before.
func TestPowerOnOfAHibernatedInstance(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7", Hibernates: true})
	i.Hibernate()
	err := newProvider(t, nil).PowerOn(t.Context(), target(i, "10.0.7.7"), providertest.AllowSend)
	if !errors.Is(err, providers.ErrPermanent) || i.Running() || c.Calls("", "StartInstances") != 0 {
		t.Errorf("got %v, runs %t", err, i.Running())
	}
}

// EC2 goes on reporting stopped after the instance was started: two answers that are closer together than
// that agree, and are wrong. One question with the distance that is the default, and the one that follows it, span more
// than 5 s.
func TestStaleAnswers(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	p := newProvider(t, nil)
	i.CutPower()
	i.Freeze(time.Hour)
	i.Start()
	tg := target(i, "10.0.7.7")
	if a := ask(t, p, tg); a.State != providers.PowerOff || !i.Running() {
		t.Fatalf("got %s (%q), %v: this is what no provider can see", a.State, a.Raw, a.Err)
	}
	i.Freeze(0)
	if a := ask(t, p, tg); a.State != providers.PowerOn {
		t.Fatalf("got %s, %v", a.State, a.Err)
	}
	// An old answer that it runs takes no launch back.
	i.Say(func(t *cloud.Told) { t.Launch = t.Launch.Add(-time.Minute) })
	if a := ask(t, p, tg); a.State != providers.PowerOn {
		t.Fatalf("an old answer: got %s, %v", a.State, a.Err)
	}
	i.Say(nil)
	// What was once seen to run under its new launch was not stopped by an old answer.
	i.Say(func(t *cloud.Told) {
		t.State, t.Launch, t.Transition = "stopped", t.Launch.Add(-time.Minute), "User initiated"
	})
	if a := ask(t, p, tg); a.State != providers.PowerUnknown || a.Err != nil {
		t.Errorf("got %s (%q), %v; want Unknown", a.State, a.Raw, a.Err)
	}
	if d := ec2.NewConfig().Agree; 2*d <= 5*time.Second {
		t.Errorf("the default distance is %s: two questions take no more than 5s", d)
	}
}

// The words of IDs.
func TestCanonical(t *testing.T) {
	for id, ok := range map[string]bool{
		"aws:///eu-west-1a/i-0123456789abcdef0": true, "aws:///us-west-2-lax-1a/i-01234567": true,
		"aws:///us-east-1-wl1-bos-wlz-1/i-0123456789abcdef0": true,
		"": false, "i-0123456789abcdef0": false, "aws:///i-0123456789abcdef0": false,
		"aws:////i-0123456789abcdef0": false, "aws://eu-west-1a/i-0123456789abcdef0": false,
		"aws:///eu-west-1a/i-0123456789ABCDEF0": false, "AWS:///eu-west-1a/i-0123456789abcdef0": false,
		"aws:///eu-west-1a/i-0123456789abcdef0/": false,
		"aws:///eu-west-1a/i-012345678":          false, "aws:///eu-west-1a/i-0123456789abcdef0\n": false,
		"aws:///eu-west-1a/mi-0123456789abcdef0":                                               false,
		"aws:///eu-west-1a/7d1f6b9c04-0d6c3f5d/fargate-ip-10-0-7-7.eu-west-1.compute.internal": false,
		"aws:///eu-west-1a/fargate-10.0.7.7":                                                   false,
		"azure:///subscriptions/x/virtualMachines/y":                                           false,
		"gce://project/europe-west1-b/n1":                                                      false,
		"eks-hybrid:///eu-west-1/c/mi-0123456789abcdef0":                                       false,
		"kind://docker/kind/kind-worker":                                                       false,
		"aws:///EU-west-1a/i-0123456789abcdef0":                                                false,
		"aws:///eu.west/i-0123456789abcdef0":                                                   false,
	} {
		got, hosts, err := ec2.NewConfig().CanonicalID(id)
		if (err == nil) != ok || got != id || len(hosts) > 0 {
			t.Errorf("%q: got %q, %q, %v", id, got, hosts, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*ec2.Config)
		want string
	}{
		{"fine", func(*ec2.Config) {}, ""},
		{"all of it", func(c *ec2.Config) {
			c.RoleARN, c.ExternalID, c.Endpoint = "arn:aws:iam::123456789012:role/fencing/forcefence", "x",
				"https://vpce-1.ec2.eu-west-1.vpce.amazonaws.com"
		}, ""},
		{"GovCloud", func(c *ec2.Config) {
			c.Regions, c.RoleARN = []string{"us-gov-west-1"}, "arn:aws-us-gov:iam::123456789012:role/x"
		}, ""},
		{"no region", func(c *ec2.Config) { c.Regions = nil }, "regions"},
		{"a zone, a host, one twice",
			func(c *ec2.Config) {
				c.Regions = []string{"eu-west-1a", "x.example/", "eu-west-1", "eu-west-1"}
			}, "regions[0] regions[1] regions[3]"},
		{"no role", func(c *ec2.Config) { c.RoleARN = "forcefence" }, "roleARN"},
		{"an external id of no role", func(c *ec2.Config) { c.ExternalID = "x" }, "externalID"},
		{"in the clear", func(c *ec2.Config) { c.Endpoint = "http://ec2.example" }, "endpoint"},
		{"one endpoint of two regions", func(c *ec2.Config) {
			c.Regions, c.Endpoint = []string{"eu-west-1", "eu-west-2"}, "https://ec2.example"
		}, "endpoint"},
		{"too close", func(c *ec2.Config) { c.Agree = 2*time.Second - 1 }, "agree"},
		{"too far apart", func(c *ec2.Config) { c.Agree = 4*time.Second + 1 }, "agree"},
	} {
		c := ec2.NewConfig()
		c.Regions = []string{"eu-west-1"}
		tt.edit(c)
		var got []string
		for _, p := range c.Validate() {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got problems at %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Errors of the API: each has its class, none is off, and none shows a secret or the caller's identity.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault cloud.Fault
		want  error
		says  string
		calls int // of the SDK for one of ours; 0: any
	}{
		{"throttled", cloud.Fault{Code: "RequestLimitExceeded"}, providers.ErrUnreachable,
			"EC2 DescribeInstances: RequestLimitExceeded: It is", 3},
		{"internal", cloud.Fault{Code: "InternalError"}, providers.ErrUnreachable, "InternalError", 3},
		{"503 of a proxy", cloud.Fault{Status: 503}, providers.ErrUnreachable, "", 3},
		{"403 of a proxy", cloud.Fault{Status: 403}, providers.ErrDenied, "", 0},
		{"404", cloud.Fault{Status: 404}, providers.ErrNotFound, "", 1},
		{"a redirect to nowhere", cloud.Fault{Status: 307}, nil, "", 0},
		{"an unknown error", cloud.Fault{Code: "Strange"}, providers.ErrPermanent, "Strange", 1},
		{"signed wrongly", cloud.Fault{Code: "SignatureDoesNotMatch"}, providers.ErrDenied,
			"EC2 DescribeInstances: SignatureDoesNotMatch", 0},
		{"no rights", cloud.Fault{Denied: "DescribeInstances"}, providers.ErrDenied,
			"EC2 DescribeInstances: UnauthorizedOperation", 1},
		{"half an answer", cloud.Fault{Half: true}, providers.ErrUnreachable, "", 0},
		{"dropped", cloud.Fault{Drop: true}, providers.ErrUnreachable, "EOF", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
			i.CutPower()
			p := newProvider(t, nil)
			tg := target(i, "10.0.7.7")
			if a := ask(t, p, tg); a.State != providers.PowerOff {
				t.Fatalf("got %s, %v", a.State, a.Err)
			}
			c.SetFault(tt.fault)
			before := c.Calls("", "DescribeInstances")
			a := ask(t, p, tg)
			if a.State != providers.PowerUnknown || a.Err == nil || tt.want != nil && !errors.Is(a.Err, tt.want) ||
				!strings.Contains(providers.ErrorText(a.Err), tt.says) {
				t.Errorf("got %s, %v: %q; want %v, %q", a.State, a.Err, providers.ErrorText(a.Err), tt.want, tt.says)
			}
			if n := c.Calls("", "DescribeInstances") - before; tt.calls > 0 && n != tt.calls {
				t.Errorf("%d calls, want %d", n, tt.calls)
			}
			for _, secret := range []string{"secret", "k9M", "AKIA"} {
				if strings.Contains(fmt.Sprint(a.Err), secret) {
					t.Errorf("the error holds %q: %v", secret, a.Err)
				}
			}
		})
	}
}

// A busy API is asked again within the call, and answers.
func TestThrottledForAMoment(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	c.SetFault(cloud.Fault{Throttle: 2})
	if a := ask(t, newProvider(t, nil), target(i, "10.0.7.7")); a.State != providers.PowerOn {
		t.Errorf("got %s, %v", a.State, a.Err)
	}
}

// Each attempt of the SDK asks whether it may still be sent.
func TestEachAttemptAsks(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	p := newProvider(t, nil)
	if a := ask(t, p, target(i, "10.0.7.7")); a.State != providers.PowerOn {
		t.Fatal(a.Err)
	}
	c.SetFault(cloud.Fault{Throttle: 1})
	asked := 0
	err := p.PowerOff(t.Context(), target(i, "10.0.7.7"), func() error {
		if asked++; asked > 1 {
			return errors.New("no longer the leader")
		}
		return nil
	})
	if n := c.Calls("", "StopInstances"); n != 1 || asked != 2 || !i.Running() {
		t.Errorf("%d stops were sent, asked %d times, running %t; want 1, 2, true", n, asked, i.Running())
	}
	if providers.ErrorClass(err) != "unreachable" || errors.Is(err, providers.ErrNotSent) {
		t.Errorf("got %v, want an error that does not say that nothing was sent", err)
	}
}

// The SDK's own retries end with the call: an API that is busy for longer costs the call's time and no more.
func TestDeadlineInRetries(t *testing.T) {
	ec2.SlowRetries(t)
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	p := newProvider(t, nil)
	c.SetFault(cloud.Fault{Code: "RequestLimitExceeded"})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond,
		errors.New("no answer within 50ms (timeout)"))
	defer cancel()
	started := time.Now()
	_, err := p.State(ctx, target(i, "10.0.7.7"))
	if took := time.Since(started); !errors.Is(err, providers.ErrUnreachable) || took > 30*time.Second {
		t.Errorf("got %v after %s", err, took)
	}
}

// No second answer fits into the rest of the call: that is said at once.
func TestNoTimeToAskAgain(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	i.CutPower()
	p := newProvider(t, func(c *ec2.Config) { c.Agree = 4 * time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), 3900*time.Millisecond)
	defer cancel()
	_, err := p.State(ctx, target(i, "10.0.7.7"))
	if !errors.Is(err, providers.ErrUnreachable) || !strings.Contains(fmt.Sprint(err), "(agree)") || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
}

// The zone says where to ask: a local and a wavelength zone's name does not end with one letter after the region's.
func TestRegions(t *testing.T) {
	c := newCloud(t)
	p := newProvider(t, nil)
	for _, tt := range []struct{ zone, region string }{
		{"eu-west-1b", "eu-west-1"}, {"us-west-2a", "us-west-2"}, {"us-west-2-lax-1a", "us-west-2"},
		{"us-west-2-wl1-las-wlz-1", "us-west-2"},
	} {
		i := c.Add(cloud.Options{Zone: tt.zone, Address: "10.0.7.7"})
		before := c.Calls(tt.region, "DescribeInstances")
		if a := ask(t, p, target(i, "10.0.7.7")); a.State != providers.PowerOn ||
			c.Calls(tt.region, "DescribeInstances") != before+1 {
			t.Errorf("%s: got %s, %v, %d calls to %s", tt.zone, a.State, a.Err,
				c.Calls(tt.region, "DescribeInstances")-before, tt.region)
		}
		if got := p.LimitGroup(target(i)); got != tt.region {
			t.Errorf("%s: limits of %q", tt.zone, got)
		}
	}
	if n := c.Calls("", "DescribeAvailabilityZones"); n != 2 {
		t.Errorf("zones were asked for %d times, want once in each region", n)
	}
	nowhere := providers.Target{Node: "n1", ID: "aws:///ap-south-1a/i-0123456789abcdef0"}
	for range 3 { // a zone of none is not looked for again at once
		if a := ask(t, p, nowhere); !errors.Is(a.Err, providers.ErrNotFound) ||
			!strings.Contains(fmt.Sprint(a.Err), "none of the regions eu-west-1, us-west-2") {
			t.Errorf("got %v", a.Err)
		}
	}
	if n := c.Calls("", "DescribeAvailabilityZones"); n != 2 {
		t.Errorf("zones were asked for %d times, want 2", n)
	}
	if a := ask(t, p, providers.Target{Node: "n1", ID: "i-0123456789abcdef0"}); !errors.Is(a.Err,
		providers.ErrNotFound) {
		t.Errorf("no zone: got %v", a.Err)
	}
	if a, b := p.LimitGroup(nowhere), p.LimitGroup(providers.Target{}); a != b || a == "" {
		t.Errorf("limits of unknown zones: %q and %q", a, b)
	}
}

// An instance whose ID names another zone than its own is another's: the same instance under two IDs would have two
// pins.
func TestOneInstanceUnderTwoZones(t *testing.T) {
	c := newCloud(t)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	right := target(i, "10.0.7.7")
	wrong := right
	wrong.Node, wrong.ID, wrong.Claimed = "n2", "aws:///eu-west-1b/"+i.ID(), true
	g := limiter.New(newProvider(t, nil), limiter.Options{Name: "aws"})
	for range 2 {
		answers := providers.AskAll(t.Context(), g, "aws", []providers.Target{wrong, right}, providers.Now)
		if !errors.Is(answers[0].Err, providers.ErrIdentity) || answers[1].State != providers.PowerOn {
			t.Errorf("got %v and %s, %v", answers[0].Err, answers[1].State, answers[1].Err)
		}
		if err := g.PowerOff(t.Context(), wrong, providertest.AllowSend); !errors.Is(err, providers.ErrIdentity) ||
			!i.Running() {
			t.Errorf("power off: got %v, runs %t", err, i.Running())
		}
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		g = limiter.New(newProvider(t, nil), limiter.Options{Name: "aws"})
	}
	_ = g.Close(t.Context())
}

// Where the credentials come from: the environment, a web identity (IRSA), a role that is assumed with either.
func TestCredentials(t *testing.T) {
	const arn = "arn:aws:iam::123456789012:role/forcefence"
	token := func(t *testing.T, text string) string {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	none := func(t *testing.T) { use(t.Setenv, cloud.Key{}) }
	for _, tt := range []struct {
		name string
		set  func(t *testing.T, c *cloud.Cloud)
		edit func(*ec2.Config)
		want error // nil: it is let in
		says string
	}{
		{name: "environment", set: func(*testing.T, *cloud.Cloud) {}},
		{name: "a wrong secret",
			set:  func(t *testing.T, _ *cloud.Cloud) { t.Setenv("AWS_SECRET_ACCESS_KEY", "another") },
			want: providers.ErrDenied, says: "AuthFailure"},
		{name: "revoked", set: func(_ *testing.T, c *cloud.Cloud) { c.Revoke() }, want: providers.ErrDenied,
			says: "AuthFailure"},
		{name: "none", set: func(t *testing.T, _ *cloud.Cloud) { none(t) }, want: providers.ErrDenied,
			says: "no credentials: "},
		{name: "web identity", set: func(t *testing.T, c *cloud.Cloud) {
			none(t)
			c.AddRole(arn, "eyJ.the.token", "")
			t.Setenv("AWS_ROLE_ARN", arn)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token(t, "eyJ.the.token"))
		}},
		{name: "a wrong web identity", set: func(t *testing.T, c *cloud.Cloud) {
			none(t)
			c.AddRole(arn, "eyJ.the.token", "")
			t.Setenv("AWS_ROLE_ARN", arn)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token(t, "eyJ.secret.token"))
		}, want: providers.ErrDenied, says: "STS AssumeRoleWithWebIdentity: InvalidIdentityToken"},
		{name: "no token", set: func(t *testing.T, _ *cloud.Cloud) {
			none(t)
			t.Setenv("AWS_ROLE_ARN", arn)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token")
		}, want: providers.ErrDenied, says: "no such file"},
		{name: "an assumed role", set: func(_ *testing.T, c *cloud.Cloud) { c.AddRole(arn, "", "") },
			edit: func(c *ec2.Config) { c.RoleARN = arn }},
		{name: "an assumed role with an external id",
			set:  func(_ *testing.T, c *cloud.Cloud) { c.AddRole(arn, "", "e-7") },
			edit: func(c *ec2.Config) { c.RoleARN, c.ExternalID = arn, "e-7" }},
		{name: "another external id", set: func(_ *testing.T, c *cloud.Cloud) { c.AddRole(arn, "", "e-7") },
			edit: func(c *ec2.Config) { c.RoleARN, c.ExternalID = arn, "e-8" }, want: providers.ErrDenied,
			says: "STS AssumeRole: AccessDenied"},
		{name: "web identity, then an assumed role", set: func(t *testing.T, c *cloud.Cloud) {
			none(t)
			c.AddRole(arn, "eyJ.the.token", "")
			c.AddRole(arn+"-there", "", "")
			t.Setenv("AWS_ROLE_ARN", arn)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token(t, "eyJ.the.token"))
		}, edit: func(c *ec2.Config) { c.RoleARN = arn + "-there" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			tt.set(t, c)
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
			a := ask(t, newProvider(t, tt.edit), target(i, "10.0.7.7"))
			if (a.State == providers.PowerOn) != (tt.want == nil) || !errors.Is(a.Err, tt.want) ||
				!strings.Contains(fmt.Sprint(a.Err), tt.says) {
				t.Errorf("got %s, %v; want %v with %q", a.State, a.Err, tt.want, tt.says)
			}
			if strings.Contains(fmt.Sprint(a.Err), "secret") {
				t.Errorf("the error holds a secret: %v", a.Err)
			}
			_ = c.Close() // and with it the connections of the SDK's own clients
		})
	}
}

// An STS that takes a request and never answers it costs that request and no more: all callers wait for the same
// credentials, which the SDK gets without any caller's deadline.
func TestCredentialsThatNeverCome(t *testing.T) {
	const arn = "arn:aws:iam::123456789012:role/forcefence"
	for _, web := range []bool{false, true} {
		t.Run(fmt.Sprintf("web identity %t", web), func(t *testing.T) {
			ec2.BriefAnswers(t)
			c := newCloud(t)
			var edit func(*ec2.Config)
			if web {
				file := filepath.Join(t.TempDir(), "token")
				if err := os.WriteFile(file, []byte("eyJ.the.token"), 0o600); err != nil {
					t.Fatal(err)
				}
				use(t.Setenv, cloud.Key{})
				c.AddRole(arn, "eyJ.the.token", "")
				t.Setenv("AWS_ROLE_ARN", arn)
				t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
			} else {
				c.AddRole(arn, "", "")
				edit = func(c *ec2.Config) { c.RoleARN = arn }
			}
			to, err := url.Parse(c.URL())
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int32
			through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(to)
				r.Out.Host = r.In.Host
			}}
			sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 1 {
					_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client is gone
					<-r.Context().Done()
					return
				}
				through.ServeHTTP(w, r)
			}))
			t.Cleanup(func() { sts.CloseClientConnections(); sts.Close() })
			t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
			i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
			p := newProvider(t, edit)
			end := time.Now().Add(30 * time.Second)
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				obs, err := p.State(ctx, target(i, "10.0.7.7"))
				cancel()
				if err == nil && obs.State == providers.PowerOn {
					break
				}
				if !errors.Is(err, providers.ErrUnreachable) || time.Now().After(end) {
					t.Fatalf("got %s, %v", obs.State, err)
				}
			}
			_ = c.Close()
		})
	}
}

// Each call has a connection for itself while it lasts: one that hangs is closed at its end, and hangs no other.
func TestConnections(t *testing.T) {
	c := newCloud(t)
	to, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	var newer atomic.Int32
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			newer.Add(1)
		}
		through.ServeHTTP(w, r)
	}))
	front.EnableHTTP2 = true
	front.StartTLS()
	t.Cleanup(front.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", ca)
	t.Setenv("AWS_ENDPOINT_URL", front.URL)
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	if a := ask(t, newProvider(t, nil), target(i, "10.0.7.7")); a.State != providers.PowerOn || newer.Load() > 0 {
		t.Errorf("got %s, %v, %d requests by HTTP/2", a.State, a.Err, newer.Load())
	}
}

// An endpoint of one's own is asked for every call, and the settings of the environment that are wrong are an error of
// New.
func TestEndpointAndSettings(t *testing.T) {
	c := newCloud(t)
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	i := c.Add(cloud.Options{Zone: "eu-west-1a", Address: "10.0.7.7"})
	p := newProvider(t, func(cfg *ec2.Config) { cfg.Regions, cfg.Endpoint = []string{"eu-west-1"}, c.URL() })
	if a := ask(t, p, target(i, "10.0.7.7")); a.State != providers.PowerOn {
		t.Errorf("got %s, %v", a.State, a.Err)
	}
	t.Setenv("AWS_CA_BUNDLE", "/nonexistent")
	if _, err := ec2.New(ec2.Config{Regions: []string{"eu-west-1"}},
		providers.Options{Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a bundle that is not there is no error")
	}
}

// What is remembered of instances does not grow for ever, and no launch goes back.
func TestWhatIsRemembered(t *testing.T) {
	newCloud(t)
	p := newProvider(t, nil)
	for i := range ec2.MostRan + 10 {
		p.Saw(fmt.Sprint(i), time.Unix(1, 0))
	}
	if p.Ran() > 10 {
		t.Errorf("%d instances are remembered", p.Ran())
	}
}
