package decide

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/taint"
)

var update = flag.Bool("update", false, "rewrite the stories in testdata with what is decided")

// TestStories plays testdata/*.txt: lines are what happens (world.do), indented lines what Next says to it.
// A story that changes is to be read as a diff. "-update" rewrites them.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("stories %v, error %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld()
			for line := range strings.Lines(string(want)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "    ") {
					continue
				}
				w.out.WriteString(line + "\n")
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				if err := w.do(line); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range w.broken {
				t.Error(b)
			}
			if *update {
				if err := os.WriteFile(file, []byte(w.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want), w.out.String()); diff != "" && !*update {
				t.Errorf("the story (-want +got):\n%s", diff)
			}
		})
	}
}

var seeds = flag.Int("seeds", 100, "how many histories TestHistories plays")

// TestHistories plays random histories made of the events of the stories, and then lets the world settle. No promise is
// broken on the way, and in the end every mark is gone or an alert names it. A failure prints the history's seed.
func TestHistories(t *testing.T) {
	events := []string{
		"beat", "beat", "boot", "machine on", "machine off", "machine off", "machine off", "machine changing",
		"machine dead", "leader",
		"pod p volume=p", "pod q", "pod i intolerant", "pod k finalizer volume=k", "pod e exempt ready volume=e",
		"pod s exempt shares=p", "pod n export=nas", "inline", "finalized", "stock-deletes i",
		"mark manual", "mark", "unmark", "release", "label", "mode fence", "mode observe", "exclude maintenance",
		"exclude",
		"device latency=100ms", "device latency=6s", "device power-off=ok", "device power-off=ignored",
		"device power-off=refused", "device power-off=stored", "device power-off=stored", "operator",
		"device withdraw=fails", "device withdraw=ok",
		"sleep 1s", "sleep 10s", "sleep 1m", "trust", "pod l volume=l refuses=large", "pod h volume=h refuses=huge",
		"refuses p fails", "refuses q denied", "refuses a changes", "refuses b huge", "refuses p nothing",
		"refuses a nothing",
		"refuses e fails", "refuses e nothing",
	}
	acts := []string{"SetMark", "WriteRecord", "PowerOff", "EndPods", "ClearVolumes", "DeletePods", "SparePods",
		"RemoveMark", "ExpireReady", "AskDevices", "answer"}
	for seed := range uint64(*seeds) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		w := newWorld()
		var history []string
		happens := func(line string) {
			history = append(history, line)
			if err := w.do(line); err != nil {
				t.Fatal(err)
			}
		}
		for _, line := range []string{
			"pod a volume=a", "pod b", "pod e exempt ready volume=x", "sleep 60s", "machine off"} {
			happens(line)
		}
		if rnd.IntN(2) == 0 {
			happens("mode fence")
		}
		if rnd.IntN(4) == 0 {
			happens("device none")
		}
		if rnd.IntN(4) == 0 {
			happens("container")
		}
		for range 40 {
			ev := events[rnd.IntN(len(events))]
			switch rnd.IntN(4) {
			case 0:
				happens("before " + acts[rnd.IntN(len(acts))] + ": " + ev)
			case 1:
				happens(ev)
			default:
				happens("step")
			}
		}
		clear(w.before)
		happens("device withdraw=ok")
		switch rnd.IntN(3) { // how it ends: off for good, alive, or a device that never answers
		case 0:
			happens("machine off")
			happens("device latency=100ms")
			happens("run 40m")
		case 1:
			happens("boot")
			for range 240 {
				happens("beat")
				happens("run 10s")
			}
			if w.stored && w.course.Look().RecordErr == nil {
				w.breaks("an order to power the machine off remains on a node that lives: %s", w)
			}
		default:
			happens("machine dead")
			happens("run 40m")
		}
		if m, ok := taint.FindMark(&w.node, taint.DefaultKey, ""); ok && len(w.alerts) == 0 {
			w.breaks("mark %q stays without an alert: %s", m.Value, w)
		}
		if len(w.broken) > 0 {
			t.Errorf("seed %d:\n%s\nhistory:\n%s\n%s", seed, strings.Join(w.broken, "\n"), strings.Join(history, "\n"),
				tail(w.out.String(), 60))
			return
		}
	}
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
