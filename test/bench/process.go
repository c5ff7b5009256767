package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/forcefence/forcefence/test/cluster"
)

// usage is what a process has taken so far.
type usage struct {
	rss, peak float64       // MB of 1e6 bytes: now, and at most
	cpu       time.Duration // of all its threads
}

// usageOf reads it from Linux' /proc.
func usageOf(pid int) (u usage, err error) {
	var stat procfs.ProcStat
	var status procfs.ProcStatus
	p, err := procfs.NewProc(pid)
	if err == nil {
		stat, err = p.Stat()
	}
	if err == nil {
		status, err = p.NewStatus()
	}
	if err != nil {
		return u, fmt.Errorf("reading what process %d takes: %w", pid, err)
	}
	return usage{
		rss: float64(status.VmRSS) / 1e6, peak: float64(status.VmHWM) / 1e6,
		cpu: time.Duration(stat.CPUTime() * float64(time.Second)),
	}, nil
}

// sampleMemory returns the process' resident memory, once a second for that long.
func sampleMemory(ctx context.Context, pid int, long time.Duration) (rss []float64, err error) {
	for range int(long / time.Second) {
		u, err := usageOf(pid)
		if err != nil {
			return nil, err
		}
		rss = append(rss, u.rss)
		if !cluster.Sleep(ctx, time.Second) {
			return nil, context.Cause(ctx)
		}
	}
	return rss, nil
}

// load1 is the machine's load of the last minute, "?" where the system has no such file.
func load1() string {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if l, err := fs.LoadAvg(); err == nil {
			return fmt.Sprint(l.Load1)
		}
	}
	return "?"
}
