package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/forcefence/forcefence/providers"
	bmc "github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	streamCount = 1000
	hintLimit   = 1   // seconds
	streamLimit = 100 // MB of 1e6 bytes
	streamTurns = 10
)

// manyStreams measures what it costs to hear the events of 1,000 BMCs, each by a stream over TLS, and how long after a
// machine has lost its power its hint is there. Who hears is a process of its own, whose memory holds nothing of the
// BMCs.
func manyStreams(ctx context.Context, r *runner) error {
	dir := r.folder(r.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dc := datacenter.New(datacenter.Options{Username: "forcefence"})
	defer dc.Close()
	password, ca, err := redfish{dc: dc, folder: dir}.files()
	if err != nil {
		return err
	}
	q := inquiry{Username: dc.Username(), PasswordFile: password, CAFile: ca, Events: true}
	var bmcs []*datacenter.BMC
	for i := range streamCount {
		m := dc.AddMachine(nodeName(i))
		b := dc.AddBMC(m)
		bmcs = append(bmcs, b)
		q.Machines = append(q.Machines, machine{m.Name(), b.URL(), m.SystemUUID()})
	}
	a, err := startAsker(ctx, q)
	if err != nil {
		return err
	}
	took, now, hints, err := a.hears(ctx, dc, bmcs)
	if err := errors.Join(err, a.end()); err != nil {
		return err
	}
	added := now - a.start
	r.say("%d streams in %.1f s, %.1f MB on top of %.1f", streamCount, took, added, a.start)
	name := fmt.Sprintf("%d BMCs, a stream of each: ", streamCount)
	r.add(figure(name+"until all are open", "s", []float64{took}))
	r.add(figure(name+"memory that they add", "MB", []float64{added}).atMost(streamLimit))
	r.add(figure(name+"power cut to hint", "s", hints).atMost(hintLimit))
	return nil
}

// hears has the process open all streams, and cuts machines' power until it reports each.
func (a *askerProcess) hears(ctx context.Context, dc *datacenter.DataCenter, bmcs []*datacenter.BMC) (took, now float64,
	hints []float64, err error) {
	begun := time.Now()
	if _, err := fmt.Fprintln(a.in); err != nil {
		return 0, 0, nil, err
	}
	for _, b := range bmcs {
		if err := b.Await(ctx, func() bool { return b.Streams() == 1 }); err != nil {
			return 0, 0, nil, err
		}
	}
	took = time.Since(begun).Seconds()
	if !wait(ctx, 90*time.Second) { // the questions of the beginning are over, and their connections closed
		return 0, 0, nil, ctx.Err()
	}
	if now, _, err = residentNow(a.cmd.Process.Pid); err != nil {
		return 0, 0, nil, err
	}
	for _, m := range dc.Machines()[:streamTurns] {
		cut := time.Now()
		m.CutPower()
		at, err := a.said()
		if err != nil {
			return 0, 0, nil, err
		}
		hints = append(hints, at-float64(cut.UnixNano())/1e9)
	}
	return took, now, hints, nil
}

// hear is the process that hears: it says 0, watches from the next line on, and says for each machine that it hears of,
// once, at which second of this clock.
func hear(in *bufio.Reader, cfg *bmc.Config, machines []machine) error {
	p, err := cfg.New(providers.Options{Name: "racks", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var targets []providers.Target
	for _, m := range machines {
		targets = append(targets, providers.Target{Node: m.Node, ID: m.URL, SystemUUID: m.UUID})
	}
	fmt.Println(0)
	if _, err := in.ReadBytes('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	told := make(chan string, len(targets))
	go func() {
		seen := map[string]bool{}
		for node := range told {
			if !seen[node] {
				seen[node] = true
				fmt.Printf("%.6f\n", float64(time.Now().UnixNano())/1e9)
			}
		}
	}()
	go func() {
		over <- p.(providers.Watcher).Watch(ctx, targets, func(t providers.Target, o providers.Observation) {
			if o.State != providers.PowerOn {
				told <- t.Node
			}
		})
	}()
	_, _ = in.ReadBytes('\n') // its end
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.(providers.Closer).Close(ctx)
}
