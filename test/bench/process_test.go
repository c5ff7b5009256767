package main

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// This process has memory, at most as much as its peak, and its time does not run back.
func TestUsage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	before, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ballast := make([]byte, 64<<20)
	for i := range ballast {
		ballast[i] = byte(i) // in memory, and it takes time
	}
	after, err := usageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(ballast)
	if before.rss <= 0 || after.rss < before.rss+60 || after.peak < after.rss || after.cpu < before.cpu ||
		after.cpu > 24*time.Hour {
		t.Errorf("got %+v and then %+v, with 67 MB more", before, after)
	}
	if _, err := usageOf(1 << 30); err == nil {
		t.Error("a process that there is none of: got no error")
	}
}
