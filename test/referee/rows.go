package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/referee/judge"
)

// row is one perturbation, and how often it is tried.
type row struct {
	name  string
	what  string
	runs  func(writes int) int // in the whole table, where a fence without faults has so many writes
	brief []int                // which of them are in the bounded part
	make  func(w *world, i int, rng *rand.Rand) *faults
	// config is forcefence's in this row, which needs neighbours then; "": the world's. The row is left out where the
	// world's is not forcefence's own.
	config string
	// tests of the referee itself: the row is of these alone
	mutant *mutant
	check  string // that must find it
}

func fixed(n int) func(int) int { return func(int) int { return n } }

// onWrite is a fault of the k-th write.
func onWrite(k int, do func(request) verdict) func(request) verdict {
	return func(q request) verdict {
		if q.N != k {
			return verdict{}
		}
		return do(q)
	}
}

// onResource is a fault of the k-th request about a resource by a method.
func onResource(resource, method string, k int, do func(request) verdict) func(request) verdict {
	var n atomic.Int64
	return func(q request) verdict {
		if q.Resource != resource || q.Method != method || n.Add(1) != int64(k) {
			return verdict{}
		}
		return do(q)
	}
}

// rate draws for each request of the protocol, reads included; Leases and watches are left alone, so that there is a
// leader.
func (w *world) rate(p float64, v verdict) func(request) verdict {
	return func(q request) verdict {
		if q.Watch || q.Resource == "leases" || q.Resource == "" || !w.chance(p) {
			return verdict{}
		}
		return v
	}
}

// perturbed are the resources whose watches are, in the rows of watches.
var perturbed = []string{"nodes", "leases", "volumeattachments", "pods", "jobs", "podtemplates", "nodehealthchecks",
	"fenceagentsremediations"}

func streams(st stream) func(w *world, i int, rng *rand.Rand) *faults {
	return func(*world, int, *rand.Rand) *faults {
		return &faults{watch: func(q request) stream {
			if slices.Contains(perturbed, q.Resource) {
				return st
			}
			return stream{}
		}}
	}
}

// returns boots the machine right before or after the k-th write.
func returns(k int, after bool) *faults {
	f := &faults{back: true}
	var r *run
	ready := make(chan struct{})
	f.during = func(_ context.Context, now *run) {
		r = now
		close(ready)
	}
	boot := func() {
		<-ready
		r.machine.PowerOn()
	}
	f.request = onWrite(k, func(request) verdict {
		if after {
			return verdict{After: boot}
		}
		return verdict{Before: boot}
	})
	return f
}

// stopped stops the leader at its k-th write for a while, and lets it go on.
func stopped(k int, d time.Duration) *faults {
	f := &faults{}
	victims := make(chan *slot, 1)
	f.request = onWrite(k, func(q request) verdict {
		return verdict{After: func() {
			_ = q.Slot.process().Pause() // it may have ended
			victims <- q.Slot
		}}
	})
	f.during = func(ctx context.Context, _ *run) {
		select {
		case s := <-victims:
			cluster.Sleep(s.w.ctx, d) // not ctx: the fence ends before
			_ = s.process().Resume()
			cluster.Sleep(s.w.ctx, 2*time.Second) // what it had in its buffers
		case <-ctx.Done():
		}
	}
	return f
}

// stoppedAtDevice is a node that falls silent while its device says On, so that it is to be powered off. The leader is
// stopped in its k-th question to the device after it announced that, for longer than its Lease. Meanwhile the machine
// boots and another takes over. Then the leader goes on.
func stoppedAtDevice(k int) *faults {
	const aside = 8 * time.Second // the Lease, and who takes it over
	f := &faults{back: true}
	var mu sync.Mutex // guards what follows
	var leader *slot  // that announced the power-off
	asked, back := 0, false
	victims := make(chan *slot, 1)
	f.request = func(q request) verdict {
		if !q.Write || q.Resource != "nodes" {
			return verdict{}
		}
		return verdict{After: func() {
			n, err := q.Slot.w.Client().CoreV1().Nodes().Get(q.Slot.w.ctx, q.Name, metav1.GetOptions{})
			mu.Lock()
			defer mu.Unlock()
			if leader == nil && err == nil && strings.Contains(n.Annotations[recordKey], "PoweringOff") {
				leader = q.Slot
			}
		}}
	}
	f.device = func(int) datacenter.Fault {
		mu.Lock()
		defer mu.Unlock()
		if back {
			return datacenter.Fault{}
		}
		if leader != nil {
			if asked++; asked == k {
				_ = leader.process().Pause() // it may have ended
				victims <- leader
			}
		}
		return datacenter.Fault{PowerWord: "On"}
	}
	f.during = func(ctx context.Context, r *run) {
		select {
		case s := <-victims:
			cluster.Sleep(s.w.ctx, aside) // not ctx: the fence ends before
			mu.Lock()
			back = true
			mu.Unlock()
			r.machine.PowerOn()
			cluster.Sleep(s.w.ctx, aside)
			_ = s.process().Resume()
			cluster.Sleep(s.w.ctx, aside) // the device's deadline, and another look
		case <-ctx.Done():
		}
	}
	return f
}

// late holds the k-th write to pods for a while, and kills who sent it: another takes over meanwhile, and then it
// arrives.
func late(k int, method string, d time.Duration) *faults {
	held := make(chan struct{})
	return &faults{request: onResource("pods", method, k, func(q request) verdict {
		close(held)
		return verdict{Hold: d, Before: func() { go q.Slot.process().Crash() }}
	}), during: func(ctx context.Context, r *run) {
		select {
		case <-held:
			cluster.Sleep(r.w.ctx, d+2*time.Second) // not ctx: the fence ends before
		case <-ctx.Done():
		}
	}}
}

func device(f func(n int) datacenter.Fault) func(*world, int, *rand.Rand) *faults {
	return func(*world, int, *rand.Rand) *faults {
		return &faults{device: f}
	}
}

// halfOfAnswers makes every other answer of the device, by chance, a faulty one.
func halfOfAnswers(fault datacenter.Fault) func(*world, int, *rand.Rand) *faults {
	return func(w *world, _ int, _ *rand.Rand) *faults {
		return &faults{device: func(int) datacenter.Fault {
			if w.chance(0.5) {
				return fault
			}
			return datacenter.Fault{}
		}}
	}
}

// rated makes so many requests of the protocol meet the verdict.
func rated(p float64, v verdict) func(*world, int, *rand.Rand) *faults {
	return func(w *world, _ int, _ *rand.Rand) *faults { return &faults{request: w.rate(p, v)} }
}

// onWriteOf makes the faults of run i those of the (i+1)-th write.
func onWriteOf(do func(request) verdict) func(*world, int, *rand.Rand) *faults {
	return func(_ *world, i int, _ *rand.Rand) *faults { return &faults{request: onWrite(i+1, do)} }
}

func each(n int) int { return n }

func noFaults(*world, int, *rand.Rand) *faults { return &faults{} }

// table is all rows, in the order in which they are played.
var table = []row{
	{name: "none", what: "no fault", runs: fixed(3), brief: []int{0},
		make: noFaults},

	// Intermediate states.
	{name: "killed-before", what: "the leader is killed right before its k-th write", runs: each,
		brief: []int{1, 14, 32},
		make:  onWriteOf(killed(false))},
	{name: "killed-after", what: "the leader is killed right after its k-th write", runs: each,
		brief: []int{0, 15, 40},
		make:  onWriteOf(killed(true))},

	// What is not observed.
	{name: "watch-ends", what: "watches end cleanly every 0.3 s", runs: fixed(3),
		make: streams(stream{EndEvery: 300 * time.Millisecond, End: "eof"})},
	{name: "watch-reset", what: "watches are reset every 0.3 s", runs: fixed(3), brief: []int{0},
		make: streams(stream{EndEvery: 300 * time.Millisecond, End: "reset"})},
	{name: "watch-gone", what: "watches end with 410 every 0.3 s", runs: fixed(3),
		make: streams(stream{EndEvery: 300 * time.Millisecond, End: "gone"})},
	{name: "watch-dropped", what: "70 % of events never come; the watch ends after 10 s", runs: fixed(4),
		make: streams(stream{Drop: 0.7, EndEvery: 10 * time.Second, End: "gone"})},
	{name: "watch-coalesced", what: "of an object's events within 2 s only the last comes", runs: fixed(3),
		brief: []int{0}, make: streams(stream{Coalesce: 2 * time.Second})},

	// What is stale.
	{name: "watch-late", what: "watches are 30 s late", runs: fixed(4), make: streams(stream{Late: 30 * time.Second})},
	{name: "lagging-server", what: "another API server, 1.5 s behind etcd, in the middle of the fence, for 10 s",
		runs: fixed(4), make: lagsBehind},

	// Answers.
	{name: "lost-answer", what: "the k-th write happens, and its answer is lost", runs: fixed(20), brief: []int{0, 1},
		make: func(_ *world, i int, rng *rand.Rand) *faults {
			k := i + 1
			if i >= 8 {
				k = 1 + rng.IntN(60)
			}
			return &faults{request: onWrite(k, func(request) verdict { return verdict{Lose: true} })}
		}},
	{name: "lost-answers", what: "30 % of all answers are lost", runs: fixed(5),
		make: rated(0.3, verdict{Lose: true})},
	{name: "409", what: "20 % of writes are refused with 409", runs: fixed(3),
		make: func(w *world, _ int, _ *rand.Rand) *faults {
			f := w.rate(0.2, verdict{Code: http.StatusConflict})
			return &faults{request: func(q request) verdict {
				if !q.Write {
					return verdict{}
				}
				return f(q)
			}}
		}},
	{name: "429", what: "20 % of requests are refused with 429, Retry-After 1", runs: fixed(3), brief: []int{0},
		make: rated(0.2, verdict{Code: http.StatusTooManyRequests})},
	{name: "500", what: "30 % of requests are refused with 500", runs: fixed(3),
		make: rated(0.3, verdict{Code: http.StatusInternalServerError})},
	{name: "504", what: "20 % of requests are answered with 504, half of them after they were done", runs: fixed(3),
		make: func(w *world, _ int, _ *rand.Rand) *faults {
			return &faults{request: func(q request) verdict {
				v := w.rate(0.2, verdict{Code: http.StatusGatewayTimeout})(q)
				if v.Code != 0 && w.chance(0.5) {
					return verdict{Lose: true}
				}
				return v
			}}
		}},
	{name: "slow-reads", what: "each list of pods is answered 8 s late, so that the proof is old by then",
		runs: fixed(2), make: slowLists(1000)},

	// The leader is stopped, and its writes come late.
	{name: "stopped", what: "the leader is stopped for 20 s right after its k-th write, and goes on beside the next",
		runs: fixed(8), brief: []int{2},
		make: func(_ *world, i int, _ *rand.Rand) *faults {
			return stopped([]int{1, 2, 3, 5, 10, 20, 30, 45}[i], 20*time.Second)
		}},
	{name: "stopped-at-device", runs: fixed(4), brief: []int{0},
		what: "the leader of a power-off is stopped at its k-th question to the device; the node returns, and " +
			"another leads",
		make: func(_ *world, i int, _ *rand.Rand) *faults { return stoppedAtDevice(i + 1) }},
	{name: "late-end", what: "the k-th tombstone arrives 20 s late, its sender is dead, and another leads",
		runs: fixed(5),
		make: func(_ *world, i int, _ *rand.Rand) *faults {
			return late([]int{1, 5, 12, 20, 25}[i], http.MethodPatch, 20*time.Second)
		}},
	{name: "late-delete", what: "the k-th deletion arrives 20 s late, likewise", runs: fixed(3),
		make: func(_ *world, i int, _ *rand.Rand) *faults {
			return late([]int{1, 5, 9}[i], http.MethodDelete, 20*time.Second)
		}},

	// Devices.
	{name: "device-flaps", what: "the device says Off, On, Off, nothing, Unknown, in turn, for its first 30 answers",
		runs: fixed(4), brief: []int{0}, make: func(_ *world, i int, _ *rand.Rand) *faults {
			words := []datacenter.Fault{{}, {PowerWord: "On"}, {}, {Drop: true}, {PowerWord: "Unknown"}, {}, {},
				{PowerWord: "PoweringOff"}}
			return &faults{device: func(n int) datacenter.Fault {
				if n > 30 {
					return datacenter.Fault{}
				}
				return words[(n+i)%len(words)]
			}}
		}},
	{name: "device-slow", what: "each answer of the device comes 3 s late", runs: fixed(2),
		make: device(func(int) datacenter.Fault { return datacenter.Fault{Delay: 3 * time.Second} })},
	{name: "device-late", what: "every other answer comes 4.8 s late, when it is hardly worth anything", runs: fixed(3),
		make: device(func(n int) datacenter.Fault {
			if n%2 == 1 {
				return datacenter.Fault{Delay: 4800 * time.Millisecond}
			}
			return datacenter.Fault{}
		})},
	{name: "device-cut", what: "half of the connections to the device die", runs: fixed(3),
		make: halfOfAnswers(datacenter.Fault{Drop: true})},
	{name: "device-503", what: "half of the device's answers are 503", runs: fixed(3),
		make: halfOfAnswers(datacenter.Fault{Status: http.StatusServiceUnavailable})},

	// The machine comes back.
	{name: "back-before", what: "the machine boots right before the k-th write",
		runs: func(n int) int { return min(n, 40) }, brief: []int{1, 10},
		make: func(_ *world, i int, _ *rand.Rand) *faults { return returns(i+1, false) }},
	{name: "back-after", what: "the machine boots right after the k-th write",
		runs: func(n int) int { return min(n, 40) / 2 }, brief: []int{0},
		make: func(_ *world, i int, _ *rand.Rand) *faults { return returns(2*i+1, true) }},

	// All at once.
	{name: "mixed", what: "kills, lost and refused answers, late watches and a flapping device, at random",
		runs: fixed(10), make: mixed},

	// Neighbours. These rows take long, and are not in the bounded part.
	{name: "storage-late", config: storageConfig, runs: fixed(1), make: shutOut(nil, answer{after: 8 * time.Second}),
		what: "the device is silent, and the storage shuts the node out 8 s after it was asked"},
	{name: "storage-fails", config: storageConfig, runs: fixed(1), make: shutOut(nil, answer{2 * time.Second, "no"},
		answer{4 * time.Second, "no"}, answer{after: 4 * time.Second}),
		what: "the storage fails twice, and shuts the node out then"},
	{name: "storage-never", config: storageConfig, runs: fixed(1), make: neverShutOut,
		what: "the storage does not answer; the machine boots"},
	{name: "storage-killed", config: storageConfig, runs: fixed(4),
		what: "the leader is killed right before or after it asks the storage, or notes the success",
		make: func(w *world, i int, rng *rand.Rand) *faults {
			kill := onResource("networkfences", []string{http.MethodPost, http.MethodPatch}[i/2], 1, killed(i%2 == 1))
			return shutOut(kill, answer{after: 3 * time.Second})(w, i, rng)
		}},
	{name: "storage-again", config: storageConfig, runs: fixed(1), make: shutOutAgain,
		what: "the node is shut out, shows life before it loses a pod, and loses its power on the same boot"},
	{name: "hand-over", config: handOverConfig, runs: fixed(1), make: handsOver(nil),
		what: "no fault; the NodeClaim of the fenced node is to go"},
	{name: "hand-over-failed", config: handOverConfig, runs: fixed(1), make: handsOverFailed,
		what: "a silent machine does not go off; its NodeClaim is to go"},
	{name: "hand-over-killed", config: handOverConfig, runs: fixed(2),
		what: "the leader is killed right before or after it deletes the NodeClaim",
		make: func(w *world, i int, rng *rand.Rand) *faults {
			return handsOver(onResource("nodeclaims", http.MethodDelete, 1, killed(i == 1)))(w, i, rng)
		}},
	{name: "hand-over-back", config: handOverConfig, runs: fixed(1), make: handsOverBack,
		what: "the machine boots right before the hand-over is announced, 8 s late"},
	{name: "hand-over-again", config: handOverConfig, runs: fixed(1), make: handsOverAgain,
		what: "the leader is killed right before it deletes the NodeClaim; the machine boots, and loses its power"},
}

// killed kills who sends a request, before it arrives or after.
func killed(after bool) func(request) verdict {
	return func(q request) verdict {
		if after {
			return verdict{After: q.Slot.process().Crash, Lose: true}
		}
		return verdict{Before: q.Slot.process().Crash, Drop: true}
	}
}

func mixed(w *world, _ int, rng *rand.Rand) *faults {
	kill := 1 + rng.IntN(60)
	lose, refuse, cut := w.rate(0.1, verdict{Lose: true}), w.rate(0.1, verdict{Code: http.StatusInternalServerError}),
		0.3*rng.Float64()
	return &faults{
		request: func(q request) verdict {
			if q.N == kill {
				return verdict{After: q.Slot.process().Crash, Lose: true}
			}
			if v := lose(q); v.Lose {
				return v
			}
			return refuse(q)
		},
		watch: streams(stream{Late: time.Duration(rng.IntN(5)) * time.Second, EndEvery: 7 * time.Second, End: "gone"})(
			w, 0, rng).watch,
		device: func(int) datacenter.Fault {
			if w.chance(cut) {
				return datacenter.Fault{Drop: true}
			}
			if w.chance(cut) {
				return datacenter.Fault{Delay: time.Duration(w.intn(4000)) * time.Millisecond}
			}
			return datacenter.Fault{}
		},
	}
}

// slowLists answers the first n lists of pods late, and so makes a proof old between the device's answer and the write.
func slowLists(n int) func(*world, int, *rand.Rand) *faults {
	return func(*world, int, *rand.Rand) *faults {
		var lists atomic.Int64
		return &faults{request: func(q request) verdict {
			if q.Method == http.MethodGet && !q.Watch && q.Resource == "pods" && lists.Add(1) <= int64(n) {
				return verdict{Slow: 8 * time.Second}
			}
			return verdict{}
		}}
	}
}

// mutantRows are the referee's own test: of each mutant one run that must find it.
var mutantRows = []row{
	{name: "mutant-no-confirmation", what: noConfirmation.what, mutant: noConfirmation, check: judge.CheckProof,
		runs: fixed(1), brief: []int{0}, make: noFaults},
	{name: "mutant-old-proof", what: oldProof.what + ", and two lists of pods are slow", mutant: oldProof,
		check: judge.CheckProof, runs: fixed(1), brief: []int{0}, make: slowLists(2)},
	{name: "mutant-no-preconditions", what: noPreconditions.what + ", 20 s late", mutant: noPreconditions,
		check: judge.CheckExempt, runs: fixed(1), brief: []int{0},
		make: func(*world, int, *rand.Rand) *faults { return late(5, http.MethodPatch, 20*time.Second) }},
	{name: "mutant-old-success", what: oldSuccess.what, mutant: oldSuccess, check: judge.CheckStorage,
		config: storageConfig, runs: fixed(1), make: shutOutAgain},
	{name: "mutant-old-record", what: oldRecord.what, mutant: oldRecord, check: judge.CheckClaim,
		config: handOverConfig, runs: fixed(1), make: handsOverAgain},
}
