package nri

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// TestStatusOfAnOlderProcess checks that a plugin that was stopped (SIGSTOP, a hung disk) does not overwrite the status
// of its successor: the next plugin would restore a node without a mark.
func TestStatusOfAnOlderProcess(t *testing.T) {
	dir := t.TempDir()
	process := func(taints ...corev1.Taint) *hook {
		h := &hook{name: PreInstalledIndex + "-" + BaseName, started: time.Now(), config: &Config{StateDir: dir},
			plugin: &plugin{}}
		h.view = newView("n1", taint.DefaultKey, testBoot)
		h.view.seeNode(testNode(testBoot, corev1.ConditionTrue, taints...), true, time.Now())
		return h
	}
	write := func(h *hook, wantMarked bool) {
		t.Helper()
		if err := h.writeStatus(); err != nil {
			t.Fatal(err)
		}
		s, err := ReadStatus(h.statusFile(*h.config))
		if err != nil || s.Node.Marked != wantMarked {
			t.Errorf("got %+v, %v, want marked: %v", s, err, wantMarked)
		}
	}
	older, newer := process(), process(testMark)
	write(older, false)
	write(newer, true) // the first one of a process counts, by any clock
	write(older, true)
	newer.view.seeNode(testNode(testBoot, corev1.ConditionTrue), true, time.Now())
	write(newer, false)
}
