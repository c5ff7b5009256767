package replay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/features/recording"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// However long and odd what a device says: what is written of it decides the same.
func TestErrorsOfAnyForm(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("long ", 1000), "\x00\x1b  a   b\n", strings.Repeat("é", 150),
		"https://admin:pw@bmc/" + strings.Repeat("x", 300), strings.Repeat("y", 190) + "https://a:longer@bmc/x",
	} {
		err := providers.WithClass(providers.ErrDenied, errors.New(text))
		for name, set := range map[string]func(*world){
			"no device": func(w *world) { w.facts.NoDeviceErr = fmt.Errorf("asking: %w", err) },
			"answer":    func(w *world) { w.err = err },
			"power-off": func(w *world) { w.offErr = err },
			"excluded":  func(w *world) { w.facts.Excluded = text },
		} {
			w := newWorld(fence.Fence)
			set(w)
			w.run(2 * time.Minute)
			if r := play(t, w.tape.String()); r.Differ != 0 || r.Compared < 5 || r.Broken > 0 {
				t.Errorf("%s %.20q: %d of %d differ: %+v", name, text, r.Differ, r.Compared,
					r.Decisions[len(r.Decisions)-1])
			}
		}
	}
}

// A course that is not recorded allocates what the node's own does.
func TestNothingRecordedCostsNothing(t *testing.T) {
	w := newWorld(fence.Fence)
	refused := errors.New("503")
	l := taint.NewLook(w.node, nil, taint.DefaultKey, epoch, epoch)
	all := []providers.Answer{{Err: refused}}
	plain, course := &decide.Node{}, &recording.Recorder{Node: &decide.Node{}, Name: "n1"}
	both := func(o decide.Observation) [2]func() {
		return [2]func(){func() { plain.Apply(epoch, &w.fleet, o) }, func() { course.Apply(epoch, &w.fleet, o) }}
	}
	for name, of := range map[string][2]func(){
		"Life":        both(decide.NodeRead{Look: l, Facts: w.facts, Node: w.node}),
		"Pods":        both(decide.PodsListed{Pods: w.pods}),
		"Volumes":     both(decide.VolumesRead{}),
		"Owners":      both(decide.OwnersRead{}),
		"Rival":       both(decide.StorageSettingRead{Why: "why"}),
		"Members":     both(decide.EtcdPodsListed{}),
		"Waiting":     both(decide.AwaitedClaimsRead{}),
		"Claims":      both(decide.ClaimsRead{}),
		"Attachments": both(decide.AttachmentsListed{Live: true}),
		"Storage":     both(decide.StorageReported{}),
		"Answered":    both(decide.DevicesAnswered{Answers: all}),
		"Did":         both(decide.ActionDone{Err: refused}),
		"Next":        {func() { plain.Next(epoch, &w.fleet) }, func() { course.Next(epoch, &w.fleet) }},
		"Rest":        both(decide.NodeIdle{Look: l}),
	} {
		if want, got := testing.AllocsPerRun(200, of[0]), testing.AllocsPerRun(200, of[1]); got > want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
}
