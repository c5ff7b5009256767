package taint

import "testing"

// TestStayingIsBounded: a Node's kubelet can write the record, so what is read of it has bounds.
func TestStayingIsBounded(t *testing.T) {
	in := Record{ID: "f-1", NodeUID: "u", By: "pod-1"}
	in = in.EnterPhase(PhaseDone, ResultEvicted, in.At)
	for range MaxStaying + 2 {
		in.Staying.Pods = append(in.Staying.Pods,
			StayingPod{Pod: "a/b", Why: ExemptTolerate, Claims: make([]string, 9)})
	}
	in.Staying.More = 1
	got, err := ParseRecord(in.Encode())
	if err != nil || len(got.Staying.Pods) != MaxStaying || got.Staying.More != 3 ||
		len(got.Staying.Pods[0].Claims) != MaxStayingClaims {
		t.Errorf("got %+v, %v", got.Staying, err)
	}
	if again := got.EnterPhase(PhaseDone, ResultReleased, got.At); len(again.Staying.Pods) != 0 {
		t.Errorf("another end: got %+v, want none", again.Staying)
	}
}
