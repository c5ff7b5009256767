package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/test/cloud"
)

// fleet adds n instances, in the zones in turn.
func fleet(c *cloud.Cloud, n int, zones ...string) (all []*cloud.Instance, targets []providers.Target) {
	for i := range n {
		address := fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)
		all = append(all, c.Add(cloud.Options{Zone: zones[i%len(zones)], Address: address}))
		t := target(all[i], address)
		t.Node = fmt.Sprintf("n%d", i)
		targets = append(targets, t)
	}
	return all, targets
}

func limited(t *testing.T, edit func(*ec2.Config)) *limiter.Provider {
	t.Helper()
	// The limiter's own timeout is longer than in a cluster: what is counted here is calls, and the machine may be
	// busy.
	g := limiter.New(newProvider(t, edit), limiter.Options{Name: "aws", Type: "ec2", Timeout: time.Minute})
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// 1,000 instances are one call, and one more for those that say stopped.
func TestThousandInstances(t *testing.T) {
	c := newCloud(t)
	all, targets := fleet(c, 1000, "eu-west-1a", "eu-west-1b", "eu-west-1c")
	g := limited(t, func(c *ec2.Config) { c.Regions = []string{"eu-west-1"} })
	if a := providers.AskAll(t.Context(), g, "aws", targets[:1], providers.Now); a[0].State != providers.PowerOn {
		t.Fatalf("got %s, %v", a[0].State, a[0].Err) // with this the zones are known
	}
	for _, tt := range []struct{ stopped, calls int }{{0, 1}, {300, 2}, {1000, 2}} {
		for _, i := range all[:tt.stopped] {
			i.CutPower()
		}
		before := c.Calls("", "")
		started := time.Now()
		for i, a := range providers.AskAll(t.Context(), g, "aws", targets, providers.Now) {
			want := providers.PowerOn
			if i < tt.stopped {
				want = providers.PowerOff
			}
			if a.State != want || a.Err != nil {
				t.Fatalf("instance %d of %d stopped: got %s (%q), %v; want %s", i, tt.stopped, a.State, a.Raw, a.Err,
					want)
			}
		}
		if n := c.Calls("", "") - before; n > tt.calls {
			t.Errorf("%d stopped: %d calls, want at most %d", tt.stopped, n, tt.calls)
		}
		t.Logf("%d stopped: %d calls, %s", tt.stopped, c.Calls("", "")-before, time.Since(started))
	}
	if n := c.Calls("", "DescribeAvailabilityZones"); n != 1 {
		t.Errorf("zones were asked for %d times", n)
	}
}

// What is wrong with one instance, or one zone, is that one's alone.
func TestBatchesInPieces(t *testing.T) {
	for _, tt := range []struct {
		name    string
		fault   cloud.Fault
		missing []int // terminated, and forgotten
		zone    string
		want    error
		calls   int // at most, of DescribeInstances, the SDK's own retries included
	}{
		{name: "two are missing", missing: []int{3, 40}, want: providers.ErrNotFound, calls: 2},
		{name: "two are missing, and the error does not name them", missing: []int{3, 40},
			fault: cloud.Fault{Unnamed: true},
			want:  providers.ErrNotFound, calls: 30},
		{name: "all are missing", missing: every(60), want: providers.ErrNotFound, calls: 1},
		{name: "an impaired zone", fault: cloud.Fault{Impaired: "eu-west-1b"}, zone: "eu-west-1b",
			want: providers.ErrUnreachable, calls: 3 + 3 + 2},
		{name: "an impaired zone, and two are missing", missing: []int{3, 40},
			fault: cloud.Fault{Impaired: "eu-west-1b"}, zone: "eu-west-1b", want: nil, calls: 20},
		{name: "a zone that hangs", fault: cloud.Fault{Impaired: "eu-west-1b", Hangs: true}, zone: "eu-west-1b",
			want: providers.ErrUnreachable, calls: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t)
			all, targets := fleet(c, 60, "eu-west-1a", "eu-west-1b", "eu-west-1c")
			all[0].CutPower()
			g := limited(t, nil)
			if a := providers.AskAll(t.Context(), g, "aws", targets[2:3],
				providers.Now); a[0].State != providers.PowerOn {
				t.Fatalf("got %s, %v", a[0].State, a[0].Err)
			}
			bad := map[int]bool{}
			for _, i := range tt.missing {
				targets[i].ID = fmt.Sprintf("aws:///%s/i-0fffffffffffff%03d",
					[]string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}[i%3], i)
				bad[i] = true
			}
			c.SetFault(tt.fault)
			before := c.Calls("", "DescribeInstances")
			// one hanging zone takes a third of it, and then all of it
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			for i, a := range providers.AskAll(ctx, g, "aws", targets, providers.Now) {
				want := providers.PowerOn
				if i == 0 {
					want = providers.PowerOff
				}
				if bad[i] || i%3 == 1 && tt.zone != "" {
					if a.State != providers.PowerUnknown || a.Err == nil ||
						!errors.Is(a.Err, tt.want) && tt.want != nil {
						t.Errorf("instance %d: got %s, %v; want Unknown, %v", i, a.State, a.Err, tt.want)
					}
					continue
				}
				// A zone that hangs takes all the time there is, and none is left for a second answer.
				if late := tt.fault.Hangs && i == 0; a.State != want && !late {
					t.Errorf("instance %d: got %s (%q), %v; want %s", i, a.State, a.Raw, a.Err, want)
				}
			}
			second := 1 // for the one that is stopped
			if n := c.Calls("", "DescribeInstances") - before; n > tt.calls+second {
				t.Errorf("%d calls, want at most %d", n, tt.calls+second)
			}
		})
	}
}

func every(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Two regions are asked at the same time, each for its own; one that does not let us in fails none of the other's.
func TestRegionsInABatch(t *testing.T) {
	c := newCloud(t)
	_, targets := fleet(c, 40, "eu-west-1a", "us-west-2-lax-1a")
	g := limited(t, nil)
	for range 2 { // the second time the regions are known before
		for i, a := range providers.AskAll(t.Context(), g, "aws", targets, providers.Now) {
			if a.State != providers.PowerOn {
				t.Errorf("instance %d: got %s, %v", i, a.State, a.Err)
			}
		}
	}
	if eu, us := c.Calls("eu-west-1", "DescribeInstances"), c.Calls("us-west-2", "DescribeInstances"); eu != 2 ||
		us != 2 {
		t.Errorf("%d and %d calls, want 2 each", eu, us)
	}
}
