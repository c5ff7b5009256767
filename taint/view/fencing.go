package view

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/journal"
)

// ParsedFencing is a Fencing object as it was read.
type ParsedFencing struct {
	Fencing      api.Fencing
	Unrecognized []string // its parts that this version does not know, for people
}

// ParseFencing reads a Fencing object. It lists what this version does not know in Unrecognized. It returns an error if
// the object is no Fencing.
func ParseFencing(raw map[string]any) (ParsedFencing, error) {
	var r ParsedFencing
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw, &r.Fencing, true)
	switch {
	case runtime.IsStrictDecodingError(err):
		r.Unrecognized = append(r.Unrecognized, "fields of a newer version, which are not shown")
	case err != nil:
		return ParsedFencing{}, fmt.Errorf("reading Fencing: %w", err)
	}
	if v, _ := raw["apiVersion"].(string); v != api.GroupVersion.String() {
		r.Unrecognized = append(r.Unrecognized, "apiVersion "+OneLine(v, 60))
	}
	s := &r.Fencing.Status
	for _, p := range append(slices.Clone(s.Timeline), api.PhaseEntered{Phase: s.Phase, Result: s.Result}) {
		if word := p.Phase; word != "" && !slices.Contains(knownPhases, taint.Phase(word)) {
			r.Unrecognized = append(r.Unrecognized, "phase "+OneLine(word, 60))
		}
		if word := p.Result; word != "" && journal.ResultText(word) == "" {
			r.Unrecognized = append(r.Unrecognized, "result "+OneLine(word, 60))
		}
	}
	slices.Sort(r.Unrecognized)
	r.Unrecognized = slices.Compact(r.Unrecognized)
	return r, nil
}

var knownPhases = []taint.Phase{taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting, taint.PhaseDone}
