package view

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint"
)

// Pods that wait are reported for an hour after a fence freed pods.
func TestDescribeWaiting(t *testing.T) {
	fenced := func(result taint.Result, since time.Duration) []Node {
		return []Node{{Node: "n1", Fence: &NodeFence{Result: string(result), At: ago(since)}}, {Node: "n2"}}
	}
	for _, tt := range []struct {
		name    string
		nodes   []Node
		waiting int
		want    string // the title; "" for no banner
	}{
		{"no fence", []Node{{Node: "n1"}}, 21, ""},
		{"all found a node", fenced(taint.ResultEvicted, time.Minute), 0, ""},
		{"many wait", fenced(taint.ResultEvicted, 59*time.Minute), 21, "21 pods wait for a node"},
		{"one waits", fenced(taint.ResultEvicted, time.Minute), 1, "1 pod waits for a node"},
		{"more than are counted", fenced(taint.ResultEvicted, time.Minute), MaxWaiting,
			"1000 or more pods wait for a node"},
		{"long after the fence", fenced(taint.ResultEvicted, time.Hour), 21, ""},
		{"the fence freed no pods", fenced(taint.ResultLifted, time.Minute), 21, ""},
	} {
		got := DescribeWaiting(tt.nodes, tt.waiting, now)
		if (tt.want == "") != (len(got) == 0) || len(got) > 0 && got[0].Title != tt.want {
			t.Errorf("%s: got %+v, want %q", tt.name, got, tt.want)
		}
	}
}
