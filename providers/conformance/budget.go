package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/forcefence/forcefence/providers"
)

// withinBudget checks that, for any answer of the device, a call takes and keeps no more memory, and starts no more
// goroutines, than Options.Memory, Kept and Goroutines. Ordinary answers are measured first.
func withinBudget(ctx context.Context, b *Bench, o Options) error {
	// what is measured is what is in use, and little that is not any more
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	floods := []Fault{NoFault, Flood}
	if b.Proxy != nil {
		floods = append(floods, b.Proxy.FloodFaults()...)
	}
	if err := waitForState(ctx, b, o, providers.PowerOn); err != nil {
		return err
	}
	for _, f := range floods {
		before, most, after, err := b.measureFlood(ctx, o, f)
		// A busy machine frees late, and what is not freed yet counts, too: the least of three is near what is in use.
		for range 2 {
			if err == nil && most.heap-before.heap > o.Memory {
				before, most, after, err = b.measureFlood(ctx, o, f)
			}
		}
		switch mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }; {
		case err != nil:
			return fmt.Errorf("%s: %w", f, err)
		case most.heap-before.heap > o.Memory:
			return fmt.Errorf("%s: took %s, want %s at most", f, mib(most.heap-before.heap), mib(o.Memory))
		case after.heap-before.heap > o.Kept:
			return fmt.Errorf("%s: kept %s, want %s at most", f, mib(after.heap-before.heap), mib(o.Kept))
		case most.goroutines-before.goroutines > o.Goroutines:
			return fmt.Errorf("%s: started %d goroutines, want %d at most", f, most.goroutines-before.goroutines,
				o.Goroutines)
		}
	}
	return nil
}

// measureFlood returns the use before calls under the fault, the most during these, and the use once the device answers
// as before.
func (b *Bench) measureFlood(ctx context.Context, o Options, f Fault) (before, most, after usage, err error) {
	set := b.SetFault
	if f != NoFault && f != Flood {
		set = b.Proxy.SetFault
	}
	before = measureUsage()
	peak := watchPeak(before)
	set(f)
	err = callFlooded(ctx, b, o)
	most = peak()
	set(NoFault)
	if err == nil {
		err = waitRecovered(ctx, b, o)
	}
	return before, most, measureUsage(), err
}

// callFlooded makes each call once. No result makes a running machine off.
func callFlooded(ctx context.Context, b *Bench, o Options) error {
	if a := askState(ctx, b, o, b.Target); a.State == providers.PowerOff && b.Running() {
		return errors.New("the provider says Off while the machine runs")
	}
	for _, call := range []action{b.Provider.PowerOff, b.Provider.PowerOn} {
		_ = runPower(ctx, o, call, b.Target)
	}
	return nil
}

// waitRecovered restores the machine: an accepted power action may still be in progress.
func waitRecovered(ctx context.Context, b *Bench, o Options) (err error) {
	for end := time.Now().Add(o.Settle); time.Now().Before(end); {
		b.SetPower(true)
		if err = expectState(ctx, b, o, providers.PowerOn); err == nil {
			return nil
		}
	}
	return fmt.Errorf("afterwards: %w", err)
}

// usage is the memory and goroutines of the process.
type usage struct{ heap, goroutines int64 }

func (u usage) maxUsage(v usage) usage {
	return usage{max(u.heap, v.heap), max(u.goroutines, v.goroutines)}
}

// sampleUsage returns what is in use, including what the garbage collector has not freed yet.
func sampleUsage() usage {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(s)
	return usage{int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64())}
}

// measureUsage returns what is in use. The second collection frees what pools held.
func measureUsage() usage {
	runtime.GC()
	runtime.GC()
	return sampleUsage()
}

// watchPeak samples the use every millisecond, and returns a function that returns the maximum.
func watchPeak(from usage) (peak func() usage) {
	stop, result := make(chan struct{}), make(chan usage)
	go func() { // ends with peak
		most := from
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			most = most.maxUsage(sampleUsage())
			select {
			case <-tick.C:
			case <-stop:
				result <- most
				return
			}
		}
	}()
	return func() usage {
		close(stop)
		return <-result
	}
}
