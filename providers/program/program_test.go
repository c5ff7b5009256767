package program

import (
	"bytes"
	"testing"
)

// What a program says without end is read, and not kept.
func TestOutputIsBounded(t *testing.T) {
	var o Output
	piece := bytes.Repeat([]byte("x"), MaxOutput/2+1)
	for range 4 {
		if n, err := o.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("got %d, %v; want %d: the program would get an error", n, err, len(piece))
		}
	}
	if n := len(o.String()); n != MaxOutput {
		t.Errorf("kept %d bytes, want %d", n, MaxOutput)
	}
}
