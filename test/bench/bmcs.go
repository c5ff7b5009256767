package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	bmc "github.com/forcefence/forcefence/providers/redfish"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	bmcCount   = 500
	bmcLatency = 50 * time.Millisecond
	coldLimit  = 10 // seconds
	warmLimit  = 3  // seconds
	addedLimit = 60 // MB of 1e6 bytes

	askers = 64 // at the same time, as taint/controller works on nodes
)

// askerArg makes this program the process that bench bmcs measures: see asker.
const askerArg = "ask-bmcs"

// inquiry is what the asker needs, on its standard input.
type inquiry struct {
	Username, PasswordFile, CAFile string
	Machines                       []machine
	Events                         bool // it is not to ask, but to hear: see hear
}

type machine struct{ Node, URL, UUID string }

// manyBMCs times the state of 500 BMCs, each of which waits 50 ms before every answer; as many are asked at a time as
// forcefence does. The provider runs behind its limiter in a process of its own, whose memory therefore holds nothing
// of the BMCs; it has what forcefence sets for the garbage collector. The BMCs' side of 500 TLS connections takes its
// time on the same processors, and is in the figures.
func manyBMCs(ctx context.Context, r *runner) error {
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
	q := inquiry{Username: dc.Username(), PasswordFile: password, CAFile: ca}
	var bmcs []*datacenter.BMC
	for i := range bmcCount {
		m := dc.AddMachine(nodeName(i))
		b := dc.AddBMC(m)
		b.SetFault(datacenter.Fault{Delay: bmcLatency})
		bmcs = append(bmcs, b)
		q.Machines = append(q.Machines, machine{m.Name(), b.URL(), m.SystemUUID()})
	}
	requests := func() (n int) {
		for _, b := range bmcs {
			n += len(b.Requests())
		}
		return n
	}
	var cold, kept, warm, added []float64
	for i := range r.o.pairs {
		before := requests()
		a, err := startAsker(ctx, q)
		if err != nil {
			return err
		}
		first, second, third, err := a.rounds(bmcs)
		if err := errors.Join(err, a.end()); err != nil {
			return err
		}
		cold, warm, kept, added = append(cold, first), append(warm, second), append(kept, third),
			append(added, a.peak-a.start)
		r.say("%2d: log-in and state %.3f s, state %.3f s, without connections %.3f s, %.1f MB on top of %.1f, %d "+
			"requests with the log-outs",
			i+1, first, second, third, a.peak-a.start, a.start, requests()-before)
	}
	name := fmt.Sprintf("%d BMCs, %s an answer: ", bmcCount, bmcLatency)
	r.add(figure(name+"log-in and state", "s", cold).atMost(coldLimit))
	r.add(figure(name+"state", "s", warm).atMost(warmLimit))
	r.add(figure(name+"state, sessions kept, connections not", "s", kept).atMost(warmLimit))
	r.add(figure(name+"memory that they add, at its highest", "MB", added).atMost(addedLimit))
	return nil
}

// askerProcess is the process that asks.
type askerProcess struct {
	cmd         *exec.Cmd
	in          io.WriteCloser
	out         *bufio.Scanner
	start, peak float64 // MB
}

// startAsker returns once the process has made its provider, and has asked nothing.
func startAsker(ctx context.Context, q inquiry) (*askerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &askerProcess{cmd: exec.CommandContext(ctx, self, askerArg)}
	a.cmd.Env, a.cmd.Stderr = append(os.Environ(), "GOGC=70"), os.Stderr
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.out = bufio.NewScanner(out)
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process that asks: %w", err)
	}
	err = json.NewEncoder(a.in).Encode(q)
	if err == nil {
		_, err = a.said()
	}
	if err == nil {
		a.start, _, err = residentNow(a.cmd.Process.Pid)
	}
	if err != nil {
		return nil, errors.Join(err, a.end())
	}
	return a, nil
}

// rounds has it ask three times: from nothing, with all sessions and as many connections as it keeps, and with sessions
// alone.
func (a *askerProcess) rounds(bmcs []*datacenter.BMC) (cold, warm, kept float64, err error) {
	for i, took := range []*float64{&cold, &warm, &kept} {
		if i == 2 {
			for _, b := range bmcs {
				b.DropConnections()
			}
		}
		if _, err := fmt.Fprintln(a.in); err != nil {
			return 0, 0, 0, err
		}
		if *took, err = a.said(); err != nil {
			return 0, 0, 0, err
		}
	}
	_, a.peak, err = residentNow(a.cmd.Process.Pid)
	return cold, warm, kept, err
}

// said is the number of the next line.
func (a *askerProcess) said() (seconds float64, err error) {
	if !a.out.Scan() {
		return 0, errors.Join(errors.New("the process that asks has ended"), a.out.Err())
	}
	if _, err := fmt.Sscan(a.out.Text(), &seconds); err != nil {
		return 0, fmt.Errorf("the process that asks said %q", a.out.Text())
	}
	return seconds, nil
}

// end lets it log out, and waits.
func (a *askerProcess) end() error {
	_ = a.in.Close() // what it waits for
	return a.cmd.Wait()
}

// asker is the process that asks: it reads one object, says 0, and from then on asks all of them for each line that it
// gets, and says how many seconds that took. It logs out at the end of its input.
func asker() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var q inquiry
	if err := json.Unmarshal(line, &q); err != nil {
		return err
	}
	cfg := bmc.NewConfig()
	cfg.Username, cfg.PasswordFile, cfg.CAFile = q.Username, q.PasswordFile, q.CAFile
	if q.Events {
		cfg.Events = "sse"
		return hear(in, cfg, q.Machines)
	}
	p, err := bmc.New(*cfg, providers.Options{Name: "racks", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	g := limiter.New(p, limiter.Options{Name: "racks", Type: "redfish"})
	for seconds := 0.0; ; {
		fmt.Println(seconds)
		if _, err := in.ReadBytes('\n'); err != nil {
			break
		}
		begun := time.Now()
		err := atOnce(askers, q.Machines, func(m machine) error {
			t := providers.Target{Node: m.Node, ID: m.URL, SystemUUID: m.UUID}
			if a := providers.Ask(context.Background(), g, "racks", t, providers.Now); a.State != providers.PowerOn {
				return errors.Join(fmt.Errorf("%s: got %s", m.Node, a.State), a.Err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		seconds = time.Since(begun).Seconds()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return g.Close(ctx)
}
