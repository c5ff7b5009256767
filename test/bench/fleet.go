package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	fleetMemory = 350 // MB at 5,000 nodes
	fleetCPU    = 2   // per cent of one core while nothing happens, at 5,000 nodes
	fleetFull   = 5000
	fleetWait   = 10 * time.Minute // for a zone to be recovered
)

// fleetSize is what one size of a fleet costs.
type fleetSize struct {
	nodes                           int
	lines                           float64
	rss, heap, cpu, requests, asked float64 // while nothing happens: MB, MB, per cent, a minute, a minute
	// a zone lost: seconds until nodes are recovered; until the last storage pod is gone; of CPU; requests to devices
	first, median, last, storage, busy, ask float64
	peak                                    float64 // MB so far
}

// fleet measures what grows with the number of nodes, against a simulated API server (fleetAPI) and BMCs that speak
// Redfish over TLS, all in this process: forcefence is a process of its own. Each size is settled, then measured for a
// minute in which nothing happens but heartbeats and drills, as a leader finds it that took over: the machines are
// pinned and were drilled before. Then a zone, a tenth of the nodes, loses its power at once. At the largest size
// another zone follows, while the API server answers 429 to half of all writes. Each node has a line where there can be
// wires.
func fleetBench(ctx context.Context, r *runner) error {
	var all []fleetSize
	var failed error
	sizes := r.o.sizes.or(500, 1000, fleetFull)
	for i, n := range sizes {
		size, err := r.fleetOf(ctx, n, r.o.forcefence, i == len(sizes)-1)
		if size.last > 0 { // a zone was lost and recovered
			all = append(all, size)
		}
		if err == nil && r.o.versus != "" {
			var other fleetSize
			if other, err = r.fleetOf(ctx, n, r.o.versus, false); err == nil {
				r.fleetVersus(size, other)
			}
		}
		if err != nil {
			failed = fmt.Errorf("%d nodes: %w", n, err)
			break
		}
	}
	for _, s := range all {
		r.add(Figure{Name: fmt.Sprintf("%d nodes: lines that are up while idle", s.nodes), Value: s.lines,
			Unit: "lines"})
	}
	for _, cost := range []struct {
		name, unit string
		of         func(fleetSize) float64
		limit      float64 // at fleetFull; 0: none
	}{
		{"VmRSS", "MB", func(s fleetSize) float64 { return s.rss }, fleetMemory},
		{"heap after a collection", "MB", func(s fleetSize) float64 { return s.heap }, 0},
		{"CPU while idle", "% of a core", func(s fleetSize) float64 { return s.cpu }, fleetCPU},
		{"API requests a minute while idle", "1/min", func(s fleetSize) float64 { return s.requests }, 0},
		{"requests to devices a minute while idle", "1/min", func(s fleetSize) float64 { return s.asked }, 0},
		{"a zone lost: to the first node recovered", "s", func(s fleetSize) float64 { return s.first }, 0},
		{"a zone lost: to the median node recovered", "s", func(s fleetSize) float64 { return s.median }, 0},
		{"a zone lost: to the last node recovered", "s", func(s fleetSize) float64 { return s.last }, 0},
		{"a zone lost: to the last storage pod gone", "s", func(s fleetSize) float64 { return s.storage }, 0},
		{"a zone lost: CPU", "s", func(s fleetSize) float64 { return s.busy }, 0},
		{"a zone lost: VmHWM", "MB", func(s fleetSize) float64 { return s.peak }, 0},
		{"a zone lost: requests to devices", "1", func(s fleetSize) float64 { return s.ask }, 0},
	} {
		var x, y []float64
		for _, s := range all {
			v := cost.of(s)
			x, y = append(x, float64(s.nodes)), append(y, v)
			f := Figure{Name: fmt.Sprintf("%d nodes, %d pods: %s", s.nodes, s.nodes*fleetPods, cost.name),
				Value: round(v), Unit: cost.unit}
			if s.nodes == fleetFull && cost.limit > 0 {
				f = f.atMost(cost.limit)
			}
			r.add(f)
		}
		if len(all) > 1 {
			r.add(Figure{Name: cost.name + ": exponent of its growth with the nodes", Value: round(slope(x, y)),
				Unit: "1"})
			last := len(x) - 1
			r.add(Figure{Name: cost.name + ": what one more node adds",
				Value: round((y[last] - y[0]) / (x[last] - x[0]) * 1000), Unit: cost.unit + " / 1000"})
		}
	}
	return failed
}

// fleetVersus adds what one size costs, as a multiple of what it costs the program of -versus.
func (r *runner) fleetVersus(ours, other fleetSize) {
	for name, of := range map[string]func(fleetSize) float64{
		"VmRSS":                    func(s fleetSize) float64 { return s.rss },
		"heap after a collection":  func(s fleetSize) float64 { return s.heap },
		"a zone lost: VmHWM":       func(s fleetSize) float64 { return s.peak },
		"a zone lost: to the last": func(s fleetSize) float64 { return s.last },
	} {
		r.add(Figure{
			Name: fmt.Sprintf("%d nodes: %s, times -versus", ours.nodes, name), Value: round(of(ours) / of(other)),
			Unit: "x",
		})
	}
}

// slope is that of the line through the logarithms; 0 where one has none.
func slope(x, y []float64) float64 {
	var mx, my, xy, xx float64
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			return 0
		}
		mx, my = mx+math.Log(x[i])/float64(len(x)), my+math.Log(y[i])/float64(len(x))
	}
	for i := range x {
		dx := math.Log(x[i]) - mx
		xy, xx = xy+dx*(math.Log(y[i])-my), xx+dx*dx
	}
	return xy / xx
}

// fleetLab is one fleet and its forcefence.
type fleetLab struct {
	r       *runner
	program string
	dir     string
	dc      *datacenter.DataCenter
	bmcs    []*datacenter.BMC
	wires   *wires // nil: the nodes' addresses lead nowhere, without connections
	world   *fleetWorld
	api     *fleetAPI
	part    *cluster.Part
	metrics int // its port
}

func (r *runner) fleetOf(ctx context.Context, nodes int, program string, last bool) (s fleetSize, err error) {
	s.nodes = nodes
	l, err := r.newFleet(ctx, nodes, program)
	if err != nil {
		return s, err
	}
	defer l.end()
	if err := l.idle(ctx, &s); err != nil {
		return s, err
	}
	if err := l.lose(ctx, 3, &s); err != nil {
		return s, err
	}
	if !last {
		return s, nil
	}
	l.api.refusing(true)
	var refused fleetSize
	err = l.lose(ctx, 7, &refused)
	if err == nil {
		name := fmt.Sprintf("%d nodes, a zone lost, half of all writes answered 429: to the ", nodes)
		r.add(Figure{Name: name + "first node recovered", Value: round(refused.first), Unit: "s"})
		r.add(Figure{Name: name + "median node recovered", Value: round(refused.median), Unit: "s"})
		r.add(Figure{Name: name + "last node recovered", Value: round(refused.last), Unit: "s"})
		r.add(Figure{Name: name + "last storage pod gone", Value: round(refused.storage), Unit: "s"})
	}
	return s, err
}

// newFleet starts all of it, and returns once forcefence leads and has pinned all nodes.
func (r *runner) newFleet(ctx context.Context, nodes int, program string) (_ *fleetLab, err error) {
	images, conditions := largeNode()
	l := &fleetLab{
		r: r, program: program, dir: r.folder(fmt.Sprintf("%s-%d", r.name, nodes)), world: newFleetWorld(images),
		dc: datacenter.New(datacenter.Options{Username: "forcefence", RequestLog: 1 << 16}),
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
		m := l.dc.AddMachine(nodeName(i))
		b := l.dc.AddBMC(m)
		l.bmcs = append(l.bmcs, b)
		address := fmt.Sprintf("127.%d.%d.%d", 100+i>>16, i>>8&255, i&255) // to such no line goes
		if l.wires != nil {
			if address, err = l.wires.add(m.Name()); err != nil {
				return nil, err
			}
		}
		l.world.add(m, b.URL(), address, append(slices.Clone(conditions), drilled("racks/"+b.URL())))
		names = append(names, m.Name())
	}
	ca := kit.NewAuthority("fleet CA")
	if l.api, err = newFleetAPI(l.world, ca); err != nil {
		return nil, err
	}
	l.world.start()
	r.say("%d nodes in %s", nodes, time.Since(begun).Round(time.Millisecond))
	if err := l.startForcefence(ctx, ca); err != nil {
		return nil, err
	}
	long, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not after %s", patience))
	defer cancel()
	err = cluster.Until(long, func(context.Context) (bool, error) { return l.world.pinned() == nodes, nil })
	if err != nil {
		return nil, fmt.Errorf("waiting for all pins: %d of %d: %w", l.world.pinned(), nodes, err)
	}
	r.say("forcefence leads, and has pinned all machines after %s", time.Since(begun).Round(time.Millisecond))
	if l.wires != nil {
		if err := l.wires.open(long, names, 0); err != nil {
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
	if err := kit.FreePorts(&l.metrics); err != nil {
		return err
	}
	devices, err := redfish{dc: l.dc, folder: l.dir}.config()
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`mode: observe
detachTimeout: 5m
evictFirst: tier=storage
listen: {metrics: "127.0.0.1:%d"}
leaderElection: {leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 5s}
%s`, l.metrics, devices)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["fleet"] = &clientcmdapi.Cluster{Server: l.api.url, CertificateAuthorityData: ca.Cert}
	kubeconfig.AuthInfos["forcefence"] = &clientcmdapi.AuthInfo{Token: "unchecked"}
	kubeconfig.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "forcefence"}
	kubeconfig.CurrentContext = "fleet"
	err = errors.Join(os.WriteFile(l.dir+"/config.yaml", []byte(config), 0o644),
		clientcmd.WriteToFile(*kubeconfig, l.dir+"/kubeconfig"))
	if err != nil {
		return err
	}
	args := []string{"run", "--config", l.dir + "/config.yaml", "--kubeconfig", l.dir + "/kubeconfig", "--log-format",
		"json"}
	l.part = cluster.NewPart("forcefence", l.program, args, l.dir+"/forcefence.log", func(ctx context.Context) error {
		if err := kit.Answers(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", kit.HealthPort)); err != nil {
			return err
		}
		if !l.api.led() {
			return errors.New("no leader")
		}
		return nil
	}, nil)
	l.part.Env = []string{"POD_IP=127.0.0.1"}
	return l.part.Start(ctx)
}

func (l *fleetLab) end() {
	if l.part != nil {
		l.part.Stop()
	}
	l.world.close()
	if l.api != nil {
		l.api.close()
	}
	_ = l.dc.Close() // nothing is left to do about an error
	if l.wires != nil {
		l.wires.close()
	}
}

// devicesAsked counts the requests that BMCs saw.
func (l *fleetLab) devicesAsked() (n int) {
	for _, b := range l.bmcs {
		n += len(b.Requests())
	}
	return n
}

// idle measures a minute in which nothing happens.
func (l *fleetLab) idle(ctx context.Context, s *fleetSize) error {
	if !wait(ctx, quiet/2) {
		return ctx.Err()
	}
	seen, asked, begun := l.api.seen(), l.devicesAsked(), time.Now()
	spent, err := processor(l.part.PID())
	if err != nil {
		return err
	}
	rss, err := resident(ctx, l.part.PID(), sampled)
	if err != nil {
		return err
	}
	after, err := processor(l.part.PID())
	if err != nil {
		return err
	}
	took := time.Since(begun)
	now := l.api.seen()
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if n := now[what] - seen[what]; n > 0 {
			s.requests += float64(n)
			l.r.say("idle: %d x %s", n, what)
		}
	}
	s.rss, s.cpu = median(rss.now), 100*(after-spent).Seconds()/took.Seconds()
	s.requests, s.asked = s.requests/took.Minutes(), float64(l.devicesAsked()-asked)/took.Minutes()
	s.heap = math.Inf(1)
	for range 30 { // just after a collection it is what is held
		heap, err := l.metric(ctx, "go_memstats_heap_alloc_bytes")
		if err != nil {
			return err
		}
		s.heap = min(s.heap, heap/1e6)
		if !wait(ctx, time.Second) {
			return ctx.Err()
		}
	}
	if l.wires != nil {
		if s.lines, err = l.metric(ctx, `forcefence_lines{state="open"}`); err != nil {
			return err
		}
	}
	l.r.say("idle: %.0f lines are up; %.0f MB, heap %.0f MB, %.2f %% of a core, %.0f API requests and %.0f to "+
		"devices a minute; load %s",
		s.lines, s.rss, s.heap, s.cpu, s.requests, s.asked, load1())
	return nil
}

// metric is one of forcefence's, by its name with its labels.
func (l *fleetLab) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", l.metrics),
		nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return 0, fmt.Errorf("reading metrics: no %s", name)
}

// lose cuts the power of a zone, and returns once all of its nodes are recovered.
func (l *fleetLab) lose(ctx context.Context, zone int, s *fleetSize) error {
	seen, asked := l.api.seen(), l.devicesAsked()
	spent, err := processor(l.part.PID())
	if err != nil {
		return err
	}
	var victims []string
	machines, zero := l.dc.Machines(), time.Now()
	for i := zone; i < len(machines); i += fleetZones {
		victims = append(victims, machines[i].Name())
	}
	if l.wires != nil {
		if err := l.wires.power(false, victims...); err != nil {
			return err
		}
	}
	for i := zone; i < len(machines); i += fleetZones {
		machines[i].CutPower()
	}
	l.r.say("zone %d lost: %d nodes", zone, len(victims))
	long, cancel := context.WithTimeoutCause(ctx, fleetWait, fmt.Errorf("not after %s", fleetWait))
	defer cancel()
	told := time.Now()
	err = cluster.Until(long, func(context.Context) (bool, error) {
		done, _ := l.world.recovered(victims)
		if time.Since(told) > 20*time.Second {
			told = time.Now()
			l.r.say("%d of %d nodes recovered, %d pods gone", len(done), len(victims), l.world.podsGone())
		}
		return len(done) == len(victims), nil
	})
	done, storage := l.world.recovered(victims)
	if err != nil {
		return fmt.Errorf("waiting for a zone: %d of %d nodes recovered: %w", len(done), len(victims), err)
	}
	after, err := processor(l.part.PID())
	if err != nil {
		return err
	}
	if _, s.peak, err = residentNow(l.part.PID()); err != nil {
		return err
	}
	var took []float64
	for _, at := range done {
		took = append(took, at.Sub(zero).Seconds())
	}
	slices.Sort(took)
	s.first, s.median, s.last = took[0], median(took), took[len(took)-1]
	s.storage, s.busy, s.ask = storage.Sub(zero).Seconds(), (after - spent).Seconds(), float64(l.devicesAsked()-asked)
	now := l.api.seen()
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if n := now[what] - seen[what]; n > len(victims)/10 {
			l.r.say("zone: %d x %s", n, what)
		}
	}
	l.r.say("zone recovered: first %.1f s, median %.1f s, last %.1f s; last storage pod gone %.1f s; %.1f s of CPU, "+
		"%.0f requests to devices; at most %.0f MB; load %s",
		s.first, s.median, s.last, s.storage, s.busy, s.ask, s.peak, load1())
	return nil
}

// processor is how much processor time a process has spent.
func processor(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process' time: %w", err)
	}
	_, rest, ok := strings.Cut(string(b), ") ") // its name may have spaces
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, errors.New("reading a process' time: its stat is short")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading a process' time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil // USER_HZ
}
