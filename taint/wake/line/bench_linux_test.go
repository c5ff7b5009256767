package line

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Idle lines on loopback, to addresses of their own: what one of them costs in memory of this process and of the
// kernel, and how much of a core all of them take while nothing happens. The kernel's own work for the probes is of the
// machine, not of the process: it is what the machine does more than before, and so is both sides' here.
//
//	go test -run '^$' -bench Idle -benchtime 1x ./taint/wake/line
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var port uint16
			for range 4 { // who never accepts keeps no more than net.core.somaxconn
				c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
					return raw.Control(func(fd uintptr) {
						_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
					})
				}}
				in, err := c.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					b.Fatal(err)
				}
				defer in.Close()
				port = netip.MustParseAddrPort(in.Addr().String()).Port()
			}
			nodes := make([]Node, n)
			for i := range nodes {
				nodes[i] = Node{fmt.Sprintf("node-%04d", i), netip.MustParseAddr("127.0.0.1")}
			}
			for b.Loop() {
				heap, slab := heapBytes(), slabBytes()
				l := New(Options{Log: slog.New(slog.DiscardHandler), loopback: true,
					OnBreak: func(node string) { b.Errorf("%s broke", node) }})
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx) }()
				begun := time.Now()
				l.SetNodes(port, nodes)
				for l.Counts()[Open] < n {
					if time.Since(begun) > time.Minute {
						b.Fatalf("%v", l.Counts())
					}
					time.Sleep(10 * time.Millisecond)
				}
				b.ReportMetric(time.Since(begun).Seconds(), "s-until-open")
				b.ReportMetric((heapBytes()-heap)/float64(n), "B-heap/line")
				b.ReportMetric((slabBytes()-slab)/float64(n), "B-kernel/line,both-sides")
				cpu, busy, from := cpuTime(), machineTime(), time.Now()
				time.Sleep(20 * time.Second)
				took := time.Since(from).Seconds()
				b.ReportMetric(100*(cpuTime()-cpu)/took, "%core-process")
				b.ReportMetric(100*(machineTime()-busy)/took, "%core-softirq-of-machine")
				cancel()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func heapBytes() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// cpuTime is what this process took, in seconds.
func cpuTime() float64 {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// machineTime is what the machine took for interrupts' work, which probes are, in seconds.
func machineTime() float64 {
	text, _ := os.ReadFile("/proc/stat")
	var cpu string
	var user, nice, system, idle, wait, irq, soft float64
	_, _ = fmt.Sscan(string(text), &cpu, &user, &nice, &system, &idle, &wait, &irq, &soft)
	return (irq + soft) / 100
}

// slabBytes is what the kernel keeps in its own objects, sockets among them.
func slabBytes() float64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "Slab: %f kB", &kb); err == nil {
			return kb * 1024
		}
	}
	return 0
}
