package fenceagent

import (
	"bytes"
	"testing"
)

// What an agent says without end is read, and not kept.
func TestOutputIsBounded(t *testing.T) {
	var b boundedBuffer
	piece := bytes.Repeat([]byte("x"), maxOutput/2+1)
	for range 4 {
		if n, err := b.Write(piece); n != len(piece) || err != nil {
			t.Fatalf("got %d, %v; want %d: the agent would get an error", n, err, len(piece))
		}
	}
	if b.Len() != maxOutput {
		t.Errorf("kept %d bytes, want %d", b.Len(), maxOutput)
	}
}
