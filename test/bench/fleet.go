package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/world"
)

const (
	fleetMemory = 350 // MB at 5,000 nodes
	fleetCPU    = 2   // per cent of one core while nothing happens, at 5,000 nodes
	fleetFull   = 5000
	fleetWait   = 10 * time.Minute // for a zone to be recovered
	fleetIdle   = time.Minute      // that is measured while nothing happens, after half as long
)

// fleetBench measures what grows with the number of nodes, against a simulated API server (fleetAPI) and BMCs that
// speak Redfish over TLS, all in this process: forcefence is a process of its own. Each size is settled, then measured
// for a minute in which nothing happens but heartbeats and drills, as a leader finds it that took over: the machines
// are pinned and were drilled before. Then a zone, a tenth of the nodes, loses its power at once. At the largest size
// another zone follows, while the API server answers 429 to half of all writes. Each node has a line where there can be
// wires.
func fleetBench(ctx context.Context, r *runner) error {
	var sizes []float64
	by := map[string][]Figure{} // by what they say, of the sizes in their order
	for _, n := range r.o.sizes {
		figures, err := r.fleetOf(ctx, n, n == slices.Max(r.o.sizes))
		sizes = append(sizes, float64(n))
		for _, f := range figures {
			by[f.Name] = append(by[f.Name], f)
			f.Name = fmt.Sprintf("%d nodes, %d pods: %s", n, n*fleetPods, f.Name)
			r.add(f)
		}
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(by)) {
		if y := by[what]; len(y) == len(sizes) && len(y) > 1 {
			r.add(figure(what+": exponent of its growth with the nodes", "1", []float64{slope(sizes, y)}))
		}
	}
	return nil
}

// slope is that of the line through the logarithms; 0 where one has none.
func slope(x []float64, of []Figure) float64 {
	var mx, my, xy, xx float64
	for i, y := range of {
		if x[i] <= 0 || y.Value <= 0 {
			return 0
		}
		mx, my = mx+math.Log(x[i])/float64(len(x)), my+math.Log(y.Value)/float64(len(x))
	}
	for i, y := range of {
		dx := math.Log(x[i]) - mx
		xy, xx = xy+dx*(math.Log(y.Value)-my), xx+dx*dx
	}
	return xy / xx
}

// fleetLab is one fleet and its forcefence.
type fleetLab struct {
	r     *runner
	dir   string
	power *world.Redfish
	bmcs  []*datacenter.BMC
	wires *wires // nil: the nodes' addresses lead nowhere, without connections
	world *fleetWorld
	api   *fleetAPI
	fence *cluster.Part
}

// fleetOf measures one size of a fleet. The largest loses a second zone.
func (r *runner) fleetOf(ctx context.Context, nodes int, largest bool) ([]Figure, error) {
	l, err := r.newFleet(ctx, nodes)
	if err != nil {
		return nil, err
	}
	defer l.end()
	figures, err := l.idle(ctx)
	if err != nil {
		return nil, err
	}
	lost, err := l.lose(ctx, 3, "a zone lost")
	figures = append(figures, lost...)
	if err != nil || !largest {
		return figures, err
	}
	l.api.refuse.Store(true)
	lost, err = l.lose(ctx, 7, "a zone lost, half of all writes answered 429")
	return append(figures, lost...), err
}

// newFleet starts all of it, and returns once forcefence leads and has pinned all nodes.
func (r *runner) newFleet(ctx context.Context, nodes int) (_ *fleetLab, err error) {
	images, conditions := largeNode()
	l := &fleetLab{
		r: r, dir: r.folder(fmt.Sprintf("%s-%d", r.name, nodes)), world: newFleetWorld(images),
		power: world.NewRedfish(datacenter.Options{Username: "forcefence", RequestLog: 1 << 16}),
	}
	defer func() {
		if err != nil {
			l.end()
		}
	}()
	if err := errors.Join(os.RemoveAll(l.dir), os.MkdirAll(l.dir, 0o755)); err != nil {
		return nil, err
	}
	if l.wires, err = newWires(); err != nil {
		r.say("WITHOUT LINES to the nodes: %v", err)
	}
	begun := time.Now()
	var names []string
	for i := range nodes {
		m, err := l.power.Add(ctx, nodeName(i))
		if err != nil {
			return nil, err
		}
		l.bmcs = append(l.bmcs, m.(world.RedfishMachine).BMC)
		address := fmt.Sprintf("127.%d.%d.%d", 100+i>>16, i>>8&255, i&255) // to such no line goes
		if l.wires != nil {
			if address, err = l.wires.add(m.Name()); err != nil {
				return nil, err
			}
		}
		l.world.add(m, address, append(slices.Clone(conditions), drilled("racks/"+m.Address())))
		names = append(names, m.Name())
	}
	ca := kit.NewAuthority("fleet CA")
	l.api = newFleetAPI(l.world, ca)
	l.world.start()
	r.say("%d nodes in %s", nodes, time.Since(begun).Round(time.Millisecond))
	if err := l.startForcefence(ctx, ca); err != nil {
		return nil, err
	}
	long, cancel := limited(ctx)
	defer cancel()
	err = cluster.Until(long, func(context.Context) (bool, error) { return l.world.pinned() == nodes, nil })
	if err != nil {
		return nil, fmt.Errorf("waiting for all pins: %d of %d: %w", l.world.pinned(), nodes, err)
	}
	r.say("forcefence leads, and has pinned all machines after %s", time.Since(begun).Round(time.Millisecond))
	if l.wires != nil {
		if err := l.wires.open(ctx, names, 0); err != nil {
			return nil, err
		}
		r.say("all machines have lines after %s", time.Since(begun).Round(time.Millisecond))
	}
	return l, nil
}

// drilled is what a drill before this leader wrote of a node: it is there as long as the device says the same.
func drilled(device string) corev1.NodeCondition {
	said := providers.Answer{Observation: providers.Observation{State: providers.PowerOn}}
	f := drill.FindingOf(drill.Facts{Devices: []drill.Device{{Name: device, Answer: said}}, Verdict: said})
	return corev1.NodeCondition{
		Type: taint.FenceableCondition, Status: f.Fenceable, Reason: string(f.Reason), Message: f.Message,
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
}

func (l *fleetLab) startForcefence(ctx context.Context, ca *kit.Authority) error {
	devices, err := devicesConfig(l.power, l.dir, false, 0)
	if err != nil {
		return err
	}
	config := `mode: observe
detachTimeout: 5m
listen: {metrics: ""}
leaderElection: {leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 5s}
` + devices
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: fleet, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: forcefence, user: {token: unchecked}}]
contexts: [{name: fleet, context: {cluster: fleet, user: forcefence}}]
current-context: fleet
`, l.api.server.URL, base64.StdEncoding.EncodeToString(ca.Cert))
	err = errors.Join(os.WriteFile(l.dir+"/config.yaml", []byte(config), 0o644),
		os.WriteFile(l.dir+"/kubeconfig", []byte(kubeconfig), 0o600))
	if err != nil {
		return err
	}
	args := []string{"run", "--config", l.dir + "/config.yaml", "--kubeconfig", l.dir + "/kubeconfig", "--log-format",
		"json"}
	ready := fmt.Sprintf("http://127.0.0.1:%d/readyz", kit.HealthPort)
	l.fence = cluster.NewPart("forcefence", l.r.o.forcefence, args, l.dir+"/forcefence.log",
		func(ctx context.Context) error { return kit.Answers(ctx, ready) }, nil)
	l.fence.Env = []string{"POD_IP=127.0.0.1"}
	return l.fence.Start(ctx)
}

func (l *fleetLab) end() {
	if l.fence != nil {
		l.fence.Stop()
	}
	l.world.close()
	if l.api != nil {
		l.api.server.CloseClientConnections()
		l.api.server.Close()
	}
	l.power.Close()
	if l.wires != nil {
		l.wires.close()
	}
}

// costs are what forcefence has taken and asked for so far.
type costs struct {
	usage
	at       time.Time
	requests map[string]int // to the API server
	asked    int            // requests that BMCs saw
}

func (l *fleetLab) costs() (c costs, err error) {
	c.usage, err = usageOf(l.fence.PID())
	c.at, c.requests = time.Now(), l.api.requestCounts()
	for _, b := range l.bmcs {
		c.asked += len(b.Requests())
	}
	return c, err
}

// sayRequests prints and counts the requests to the API server since then, without the kinds that are rare.
func (l *fleetLab) sayRequests(when string, before, after costs, rare int) (all float64) {
	for _, what := range slices.Sorted(maps.Keys(after.requests)) {
		if n := after.requests[what] - before.requests[what]; n > rare {
			all += float64(n)
			l.r.say("%s: %d x %s", when, n, what)
		}
	}
	return all
}

// idle measures a minute in which nothing happens.
func (l *fleetLab) idle(ctx context.Context) ([]Figure, error) {
	if !wait(ctx, fleetIdle/2) {
		return nil, ctx.Err()
	}
	before, err := l.costs()
	if err != nil {
		return nil, err
	}
	rss, err := sampleMemory(ctx, l.fence.PID(), fleetIdle)
	if err != nil {
		return nil, err
	}
	after, err := l.costs()
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at)
	memory := figure("VmRSS", "MB", rss)
	cpu := (after.cpu - before.cpu).Seconds() / took.Seconds()
	load := figure("CPU while idle", "% of a core", []float64{100 * cpu})
	if len(l.bmcs) == fleetFull {
		memory, load = memory.atMost(fleetMemory), load.atMost(fleetCPU)
	}
	requests := l.sayRequests("idle", before, after, 0) / took.Minutes()
	asked := float64(after.asked-before.asked) / took.Minutes()
	l.r.say("idle: %.0f MB, %.2f %% of a core, %.0f API requests and %.0f to devices a minute; load %s", memory.Value,
		load.Value, requests, asked, load1())
	return []Figure{
		memory, load,
		figure("API requests a minute while idle", "1/min", []float64{requests}),
		figure("requests to devices a minute while idle", "1/min", []float64{asked}),
	}, nil
}

// lose cuts the power of a zone, and returns once all of its nodes are recovered.
func (l *fleetLab) lose(ctx context.Context, zone int, what string) ([]Figure, error) {
	before, err := l.costs()
	if err != nil {
		return nil, err
	}
	var victims []string
	for i := zone; i < len(l.bmcs); i += fleetZones {
		victims = append(victims, nodeName(i))
	}
	zero := time.Now()
	if l.wires != nil {
		if err := l.wires.power(false, victims...); err != nil {
			return nil, err
		}
	}
	for i := zone; i < len(l.bmcs); i += fleetZones {
		l.power.DataCenter.Machines()[i].CutPower()
	}
	l.r.say("zone %d lost: %d nodes", zone, len(victims))
	long, cancel := context.WithTimeoutCause(ctx, fleetWait, fmt.Errorf("not after %s", fleetWait))
	defer cancel()
	var done []time.Time
	reported := time.Now()
	err = cluster.Until(long, func(context.Context) (bool, error) {
		done = l.world.recovered(victims)
		if time.Since(reported) > 20*time.Second {
			reported = time.Now()
			l.r.say("%d of %d nodes recovered", len(done), len(victims))
		}
		return len(done) == len(victims), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for a zone: %d of %d nodes recovered: %w", len(done), len(victims), err)
	}
	after, err := l.costs()
	if err != nil {
		return nil, err
	}
	var took []float64
	for _, at := range done {
		took = append(took, at.Sub(zero).Seconds())
	}
	l.sayRequests("zone", before, after, len(victims)/10)
	var figures []Figure
	for _, f := range []Figure{
		{Name: "to the first node recovered", Value: slices.Min(took), Unit: "s"},
		{Name: "to the median node recovered", Value: median(took), Unit: "s"},
		{Name: "to the last node recovered", Value: slices.Max(took), Unit: "s"},
		{Name: "CPU", Value: (after.cpu - before.cpu).Seconds(), Unit: "s"},
		{Name: "VmHWM", Value: after.peak, Unit: "MB"},
		{Name: "requests to devices", Value: float64(after.asked - before.asked), Unit: "1"},
	} {
		f.Name, f.Value = what+": "+f.Name, round(f.Value)
		figures = append(figures, f)
	}
	l.r.say("zone recovered: first %.1f s, median %.1f s, last %.1f s after the cut; load %s", slices.Min(took),
		median(took), slices.Max(took), load1())
	return figures, nil
}
