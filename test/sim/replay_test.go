package sim

import (
	"bytes"
	"io"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/recording"
	"github.com/forcefence/forcefence/taint/features/recording/replay"
)

var lineKind = regexp.MustCompile(`"kind":"[a-zA-Z]+"`)

// TestReplay: what each process of a history writes down is decided the same when it is played again.
func TestReplay(t *testing.T) {
	n := uint64(400)
	if fewHistories() {
		n = 60
	}
	var compared, shown int
	kinds := map[string]int{}
	for seed := range n {
		scenario := ScenarioOf(seed)
		switch seed % 4 {
		case 1:
			scenario = Accepting
		case 2:
			scenario = Cut
		}
		tapes := map[string]*bytes.Buffer{}
		Run(Options{Seed: seed, Scenario: scenario, Tape: func(process string, line []byte) {
			if tapes[process] == nil {
				tapes[process] = bytes.NewBuffer(
					append(recording.Header{By: "sim", TaintKey: taint.DefaultKey}.EncodeLine(), '\n'))
			}
			tapes[process].Write(append(line, '\n'))
			kinds[string(lineKind.Find(line))]++
		}})
		for _, process := range slices.Sorted(maps.Keys(tapes)) {
			r, err := replay.PlayRecordings([]io.Reader{tapes[process]})
			if err != nil {
				t.Fatalf("seed %d (%s), %s: %v", seed, scenario, process, err)
			}
			compared += r.Compared
			for _, d := range r.Decisions {
				if shown++; d.Differs {
					t.Fatalf("seed %d (%s), %s: line %d: then\n%#v\nnow\n%#v", seed, scenario, process, d.Line, d.Then,
						d.Now)
				}
			}
			if r.Skipped > 0 {
				t.Errorf("seed %d, %s: %d lines were left out", seed, process, r.Skipped)
			}
		}
	}
	t.Logf("%d histories: %d decisions, %d shown, of lines %v", n, compared, shown, kinds)
	for _, is := range []string{
		"begins", "rests", "storage", "nodeRead", "pods", "volumes", "etcdPods", "claims", "cachedAttachments",
		"liveAttachments", "answers", "actionDone", "next",
	} {
		if kinds[`"kind":"`+is+`"`] == 0 {
			t.Errorf("no history has a line of %s", is)
		}
	}
	if compared < int(n)*100 {
		t.Errorf("%d decisions were compared: too few", compared)
	}
}
