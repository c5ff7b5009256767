package view

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
)

// Record is a Fencing object as it was read.
type Record struct {
	Fencing api.Fencing
	Strange []string // what it says that this version does not know
}

// ReadRecord reads a Fencing object. What this version does not know of it comes beside it; an error is an object that no Fencing is.
func ReadRecord(raw map[string]any) (Record, error) {
	var r Record
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, &r.Fencing, true)
	switch {
	case runtime.IsStrictDecodingError(err):
		r.Strange = append(r.Strange, "fields of a newer version, which are not shown")
	case err != nil:
		return Record{}, fmt.Errorf("reading Fencing: %w", err)
	}
	if v, _ := raw["apiVersion"].(string); v != api.GroupVersion.String() {
		r.Strange = append(r.Strange, "apiVersion "+Line(v, 60))
	}
	s := &r.Fencing.Status
	for _, p := range append(slices.Clone(s.Timeline), api.PhaseEntered{Phase: s.Phase, Result: s.Result}) {
		if word := p.Phase; word != "" && !slices.Contains(knownPhases, taint.Phase(word)) {
			r.Strange = append(r.Strange, "phase "+Line(word, 60))
		}
		if word := p.Result; word != "" && journal.Meaning(word) == "" {
			r.Strange = append(r.Strange, "result "+Line(word, 60))
		}
	}
	slices.Sort(r.Strange)
	r.Strange = slices.Compact(r.Strange)
	return r, nil
}

var knownPhases = []taint.Phase{taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
