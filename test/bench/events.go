package main

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/test/datacenter"
)

const (
	eventMax   = 100 // microseconds, at fleetFull
	eventScans = 250 * time.Millisecond
	eventRuns  = 5 // of each kind and size; the figure is their median
)

// eventKinds are the events.
var eventKinds = []struct {
	short, name string
	do          func(*eventFleet, int) error
}{
	{"Lease", "a Lease was renewed, with its share of the scans",
		func(f *eventFleet, i int) error { f.beat(i); return nil }},
	{"Node", "a healthy Node changed: nothing is to be done", (*eventFleet).status},
	{"death", fmt.Sprintf("a node with %d pods fell silent, its device says Off: it is to be marked", fleetPods),
		(*eventFleet).death},
}

// eventFleet is what a leader of a fleet remembers in the middle of an outage: a zone, a tenth of the nodes, has been
// silent for a minute, and all others are heard. Time goes on with the Leases, each of which is renewed every ten
// seconds.
type eventFleet struct {
	fleet   fleet.Fleet
	nodes   []*corev1.Node
	pods    map[string][]corev1.Pod // of the silent ones
	atts    map[string][]storagev1.VolumeAttachment
	now     providers.Instant
	rv      int
	scanned providers.Instant
}

func newEventFleet(n int) *eventFleet {
	images, conditions := largeNode()
	w, dc := newFleetWorld(images), datacenter.New(datacenter.Options{})
	defer dc.Close()
	f := &eventFleet{now: providers.Now(), pods: map[string][]corev1.Pod{},
		atts: map[string][]storagev1.VolumeAttachment{}}
	for i := range n {
		w.add(dc.AddMachine(nodeName(i)), "", "", conditions)
		f.nodes = append(f.nodes, w.nodes[i].node)
		f.fleet.ApplyLook(f.look(i, f.now), f.now)
		f.fleet.ApplyLease(nodeName(i), "1", fleetLease, f.now)
		if !f.silent(i) {
			continue
		}
		for k := range fleetPods {
			f.pods[nodeName(i)] = append(f.pods[nodeName(i)], *podOf(f.nodes[i], k))
		}
		for _, va := range w.nodes[i].vas {
			f.atts[nodeName(i)] = append(f.atts[nodeName(i)], *va)
		}
	}
	for range 6 * n {
		f.beat(f.rv)
	}
	return f
}

func (f *eventFleet) silent(i int) bool { return i%fleetZones == 3 }

// living is the number of a node that is heard, of any number.
func (f *eventFleet) living(i int) int {
	if i %= len(f.nodes); f.silent(i) {
		i++
	}
	return i
}

func (f *eventFleet) look(i int, at providers.Instant) taint.Look {
	return taint.NewLook(f.nodes[i], nil, taint.DefaultKey, at, at)
}

// beat is the event of a Lease that was renewed, with its share of the scans for those that were not.
func (f *eventFleet) beat(i int) {
	f.rv++
	f.now = f.now.Add(fleetLease / 4 / time.Duration(len(f.nodes)))
	f.fleet.ApplyLease(f.nodes[f.living(i)].Name, strconv.Itoa(f.rv), fleetLease, f.now)
	if f.now.Sub(f.scanned) >= eventScans {
		f.scanned = f.now
		f.fleet.Tick(f.now)
	}
}

// status is the event of a healthy Node that changed, up to the decision that there is nothing to do.
func (f *eventFleet) status(i int) error {
	l := f.look(f.living(i), f.now)
	f.fleet.ApplyLook(l, f.now)
	if v := f.fleet.View(l.Name, f.now); !new(decide.Node).IsIdle(l, v) {
		return fmt.Errorf("a healthy node is suspected: %q", v.Suspicion(l))
	}
	return nil
}

// death is the event of a node that fell silent, up to the decision to mark it: its machine is off, and all reads are
// answered at once.
func (f *eventFleet) death(i int) error {
	i = i*fleetZones%len(f.nodes) + 3
	name := f.nodes[i].Name
	facts := decide.Facts{
		Facts: fence.Facts{Mode: fence.Fence, Devices: []proof.Device{{Name: "bmc/" + name}}, NewID: "f", By: "bench"}}
	var course decide.Node
	now := f.now
	for range 20 {
		now = now.Add(time.Millisecond) // each look and answer is later than the one before
		d := course.Next(now, &f.fleet)
		switch a := d.Action.(type) {
		case action.SetMark:
			return nil
		case action.AskDevices:
			off := providers.Answer{Observation: providers.Observation{State: providers.PowerOff, At: now}, Got: now}
			course.Apply(now, &f.fleet, decide.DevicesAnswered{Answers: []providers.Answer{off}})
		case action.ReadNode:
			l := f.look(i, now)
			course.Apply(l.Got, &f.fleet, decide.NodeRead{Look: l, Facts: facts})
		case action.ListPods:
			course.Apply(now, &f.fleet, decide.PodsListed{Pods: kube.SeePods(f.pods[name], taint.DefaultKey, nil)})
		case action.ListAttachments:
			course.Apply(now, &f.fleet,
				decide.AttachmentsListed{Attachments: kube.SeeAttachments(f.atts[name])[name], Live: a.Live})
		default:
			return fmt.Errorf("a dead node is not marked, but: %s %s", action.Name(a), d.Reason)
		}
	}
	return fmt.Errorf("a dead node is not marked in 20 steps")
}

// events times what one event costs this process beside the API server's and the devices' answers: to fold it into what
// is known across nodes, and to decide. Sizes take turns, so that a machine that others use weighs on all of them
// alike.
func events(_ context.Context, r *runner) error {
	sizes, fleets := r.o.sizes.or(500, 1000, fleetFull), map[int]*eventFleet{}
	for _, n := range sizes {
		fleets[n] = newEventFleet(n)
	}
	for _, kind := range eventKinds {
		took := map[int][]float64{}
		for range eventRuns {
			for _, n := range sizes {
				us, err := timed(func(i int) error { return kind.do(fleets[n], i) })
				if err != nil {
					return fmt.Errorf("%d nodes: %s: %w", n, kind.name, err)
				}
				took[n] = append(took[n], us)
			}
		}
		var x, y []float64
		for _, n := range sizes {
			f := figure(fmt.Sprintf("%d nodes: %s", n, kind.name), "us", took[n])
			if n == fleetFull {
				f = f.atMost(eventMax)
			}
			r.add(f)
			x, y = append(x, float64(n)), append(y, f.Value)
		}
		r.say("%s: timed; load %s", kind.name, load1())
		if last := len(x) - 1; last > 0 {
			r.add(Figure{Name: fmt.Sprintf("%s: at %.0f nodes, times that at %.0f", kind.name, x[last], x[0]),
				Value: round(y[last] / y[0]), Unit: "x"})
			r.add(Figure{Name: kind.name + ": exponent of its growth with the nodes", Value: round(slope(x, y)),
				Unit: "1"})
		}
	}
	return nil
}

// timed is how long one call takes, in microseconds, by Go's own benchmark.
func timed(do func(i int) error) (us float64, err error) {
	res := testing.Benchmark(func(b *testing.B) {
		for i := 0; b.Loop() && err == nil; i++ {
			err = do(i)
		}
	})
	return float64(res.T.Nanoseconds()) / float64(res.N) / 1e3, err
}
