package storage

import (
	"fmt"
	"maps"
	"strings"
	"unicode"

	"github.com/forcefence/forcefence/providers/expr"
	"github.com/forcefence/forcefence/taint/decide/action"
)

// evaluation evaluates the expressions of one object, and keeps the failures.
type evaluation struct {
	a      *Adapter
	vars   map[string]any
	why    []string // the failures, for people
	faults []string // the paths of the expressions that failed
}

func (a *Adapter) newEvaluation(object any, node map[string]any) *evaluation {
	vars := map[string]any{"object": object, "drivers": a.Spec.Drivers}
	if node != nil {
		vars["node"] = node
	}
	return &evaluation{a: a, vars: vars}
}

func (q *evaluation) addFailure(path string, err error) {
	q.why, q.faults = append(q.why, err.Error()), append(q.faults, path)
}

// evalBool returns the expression's value. It returns otherwise if there is no expression, and unknown if it fails
// (known is false then).
func (q *evaluation) evalBool(path string, otherwise, unknown bool) (v, known bool) {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise, true
	}
	v, err := evalAs[bool](e, q.vars)
	if err != nil {
		q.addFailure(path, err)
		return unknown, false
	}
	return v, true
}

// evalName returns the name of a node or of a volume that the expression gives, or otherwise if there is no expression.
func (q *evaluation) evalName(path, otherwise string) string {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise
	}
	v, err := evalAs[string](e, q.vars)
	if err == nil && (len(v) > maxName || strings.ContainsFunc(v, func(c rune) bool { return !unicode.IsPrint(c) })) {
		err = fmt.Errorf("%s: gives a text that is not a valid name", path)
	}
	if err != nil {
		q.addFailure(path, err)
		return ""
	}
	return v
}

// evalHealth evaluates `healthy` and `why` of a kind.
func (q *evaluation) evalHealth(k Kind) action.Health {
	healthy, known := q.evalBool(k.String()+".healthy", false, false)
	switch {
	case !known:
		return action.Health{Why: q.why[len(q.why)-1]}
	case healthy:
		return action.Health{Known: true, Healthy: true}
	}
	h := action.Health{Known: true, Why: "its object reports it as not healthy"}
	if e := q.a.exprs[k.String()+".why"]; e != nil { // a failure of `why` changes nothing
		if why, err := evalAs[string](e, q.vars); err == nil && expr.OneLine(why) != "" {
			h.Why = expr.OneLine(why)
		}
	}
	return h
}

// slimObject returns the part of an object that its expressions may read, without large fields that are never of use.
func slimObject(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		out["metadata"] = meta
	}
	return out
}
