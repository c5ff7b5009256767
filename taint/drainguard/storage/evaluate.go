package storage

import (
	"fmt"
	"maps"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// asking evaluates the expressions of one object, and keeps what failed.
type asking struct {
	a      *Adapter
	vars   map[string]any
	why    []string // what failed, for people
	faults []string // paths of what failed
}

func (a *Adapter) ask(object, node map[string]any) *asking {
	vars := map[string]any{"object": object, "drivers": a.Spec.Drivers}
	if node != nil {
		vars["node"] = node
	}
	return &asking{a: a, vars: vars}
}

func (q *asking) failed(path string, err error) {
	q.why, q.faults = append(q.why, err.Error()), append(q.faults, path)
}

// bool is what the expression gives; otherwise where there is none, unknown where it fails.
func (q *asking) bool(path string, otherwise, unknown bool) (v, known bool) {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise, true
	}
	v, err := e.bool(q.vars)
	if err != nil {
		q.failed(path, err)
		return unknown, false
	}
	return v, true
}

// string is a name that the expression gives: of a node, or of a volume.
func (q *asking) string(path, otherwise string) string {
	e := q.a.exprs[path]
	if e == nil {
		return otherwise
	}
	v, err := e.string(q.vars)
	if err == nil && (len(v) > maxName || strings.ContainsFunc(v, func(c rune) bool { return !unicode.IsPrint(c) })) {
		err = fmt.Errorf("%s: gives a text that can be no name", path)
	}
	if err != nil {
		q.failed(path, err)
		return ""
	}
	return v
}

// health is what `healthy` and `why` of a kind say.
func (q *asking) health(k Kind) Health {
	healthy, known := q.bool(k.String()+".healthy", false, false)
	switch {
	case !known:
		return Health{Why: q.why[len(q.why)-1]}
	case healthy:
		return Health{Known: true, Healthy: true}
	}
	h := Health{Known: true, Why: "its object says that it is not healthy"}
	if e := q.a.exprs[k.String()+".why"]; e != nil { // what is not said of why changes nothing
		if why, err := e.string(q.vars); err == nil && oneLine(why) != "" {
			h.Why = oneLine(why)
		}
	}
	return h
}

// slim is what of an object its expressions may look at, without what is large and never of use.
func slim(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		out["metadata"] = meta
	}
	return out
}
