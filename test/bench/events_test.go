package main

import (
	"fmt"
	"testing"
)

// The events that bench events times are what it says they are: each ends in its decision, at any number of nodes.
func TestEvents(t *testing.T) {
	f := newEventFleet(20)
	for i := range 50 {
		f.beat(i)
		if err := f.status(i); err != nil {
			t.Fatal(err)
		}
		if err := f.death(i); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range f.nodes {
		if v := f.fleet.View(n.Name, f.now); v.Stale != f.silent(i) || !v.Heard {
			t.Errorf("%s: stale %t, heard %t, want stale %t, and most are heard", n.Name, v.Stale, v.Heard, f.silent(i))
		}
	}
}

// What bench events measures, for go test.
func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{500, 1000, fleetFull} {
		f := newEventFleet(n)
		for _, kind := range eventKinds {
			b.Run(fmt.Sprintf("%s/%d", kind.short, n), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if err := kind.do(f, i); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
