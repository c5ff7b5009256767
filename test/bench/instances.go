package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/ec2"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/test/cloud"
)

// instances counts what the state of 1,000 EC2 instances costs, a hundred of which say stopped: calls to the API, and
// time beside what lies between the two answers.
func instances(ctx context.Context, r *runner) error {
	const count, stopped = 1000, 100
	c, err := cloud.Start(map[string]string{"eu-west-1a": "eu-west-1", "eu-west-1b": "eu-west-1"})
	if err != nil {
		return err
	}
	defer c.Close()
	k := c.NewKey()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": k.ID, "AWS_SECRET_ACCESS_KEY": k.Secret, "AWS_SESSION_TOKEN": "",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	cfg := ec2.NewConfig()
	cfg.Regions, cfg.Endpoint = []string{"eu-west-1"}, c.URL()
	p, err := ec2.New(*cfg, providers.Options{Name: "aws", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	g := limiter.New(p, limiter.Options{Name: "aws", Type: "ec2"})
	defer func() { _ = g.Close(context.WithoutCancel(ctx)) }()
	var targets []providers.Target
	for i := range count {
		address := fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)
		one := c.Add(cloud.Options{Zone: []string{"eu-west-1a", "eu-west-1b"}[i%2], Address: address})
		if i < stopped {
			one.CutPower()
		}
		targets = append(targets,
			providers.Target{Node: fmt.Sprintf("n%d", i), ID: one.ProviderID(),
				Addresses: providers.NewAddresses(address)})
	}
	var calls, seconds []float64
	for i := range r.o.pairs + 1 {
		before, started := c.Calls("", ""), time.Now()
		answers := providers.AskAll(ctx, g, "aws", targets, providers.Now)
		took := time.Since(started) - cfg.Agree
		for n, a := range answers {
			want := providers.PowerOn
			if n < stopped {
				want = providers.PowerOff
			}
			if a.Err != nil || a.State != want {
				return errors.Join(fmt.Errorf("instance %d: %s, want %s", n, a.State, want), a.Err)
			}
		}
		if i == 0 {
			continue // it connects, and asks for the zones
		}
		calls, seconds = append(calls, float64(c.Calls("", "")-before)), append(seconds, took.Seconds())
		r.say("%2d: 1000 instances in %.0f calls, %.3f s beside the %s between two answers", i, calls[i-1],
			seconds[i-1], cfg.Agree)
	}
	r.add(figure("EC2, 1000 instances, 100 stopped: API calls", "1", calls).atMost(2))
	r.add(figure("EC2, 1000 instances, 100 stopped: beside the distance of two answers", "s", seconds))
	return nil
}
