package rest

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// another are replacements of a value that a device might send. They have no meaning in any description.
const (
	anotherWord = "frobnicated"
	anotherUUID = "0f0f0f0f-1e1e-4d4d-8c8c-2b2b2b2b2b2b"
)

var uuidInText = regexp.MustCompile(`[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}`)

// mutation is one change of one place.
type mutation struct {
	what   string
	value  any
	remove bool
	same   bool // the same kind of value: if it ends Off, the value matters
}

// mutationsOf returns the changes of a value.
func mutationsOf(v any) (out []mutation) {
	add := func(what string, to any, same bool) {
		if !reflect.DeepEqual(v, to) {
			out = append(out, mutation{what: what, value: to, same: same})
		}
	}
	out = append(out, mutation{what: "missing", remove: true})
	add("null", nil, false)
	add("an empty list", []any{}, false)
	add("an empty mapping", map[string]any{}, false)
	add("a list around it", []any{v}, false)
	switch v := v.(type) {
	case string:
		add("another word", anotherWord, true)
		if uuidInText.FindString(v) == "" { // of a text with an identity, only a part is read
			add("the word with a blank", v+" ", true)
		}
		add("an empty text", "", true)
		add("a number", 1.0, false)
		add("a bool", true, false)
		if uuidInText.MatchString(v) {
			add("another UUID", uuidInText.ReplaceAllString(v, anotherUUID), true)
		}
	case float64:
		for _, n := range []float64{0, 1, -1, v + 1} {
			add("the number "+strconv.FormatFloat(n, 'g', -1, 64), n, true)
		}
		add("text", strconv.FormatFloat(v, 'g', -1, 64), false)
		add("another word", anotherWord, false)
		add("a bool", v != 0, false)
	case bool:
		add("the opposite", !v, true)
		add("text", strconv.FormatBool(v), false)
		add("a number", 1.0, false)
		add("the number 0", 0.0, false)
	default:
		add("another word", anotherWord, false)
		add("an empty text", "", false)
		add("a number", 1.0, false)
	}
	return out
}

// mutator tries changes of one recording, and reports those that prove something.
type mutator struct {
	c     *compiler
	of    recording
	names []string        // of the answers to change
	base  map[string]bool // what the unchanged answers prove, as a predicate: "is Off"
	// true: lists hold things that come and go, so that one without an element is no fault, unless it is empty then
	comeAndGo bool
	prove     func(answers map[string]Answer) proof
	count     int
}

// proof is what changed answers prove.
type proof struct {
	of       map[string]bool // as in mutator.base
	failed   bool            // little or nothing, because a request or an expression failed
	recorded bool            // a case has these answers, and wants this
}

func (m *mutator) try(answers map[string]Answer) proof {
	m.count++
	return m.prove(answers)
}

// unrecorded returns what changed answers prove that no case has.
func (p proof) unrecorded() []string {
	if p.recorded {
		return nil
	}
	return slices.Sorted(maps.Keys(p.of))
}

// run tries all changes of the answers.
func (m *mutator) run() {
	for _, name := range m.names {
		for _, what := range []int{401, 403, 404, 500, 503, 0} {
			answers, a := maps.Clone(m.of.answers), m.of.answers[name]
			text := fmt.Sprintf("HTTP status %d", what)
			if what == 0 {
				a.Body, text = nil, "no JSON, or half of it"
			} else {
				a.Status = what
			}
			answers[name] = a
			for _, is := range m.try(answers).unrecorded() {
				m.c.fault(m.of.path, "%s even if the answer to %s is %s", is, name, text)
			}
		}
		m.mutateTree(name, nil, m.of.answers[name].Body, false)
		m.mutateHeaders(name)
	}
}

// mutateHeaders tries other headers of an answer, by the rules of mutateTree.
func (m *mutator) mutateHeaders(name string) {
	for _, key := range slices.Sorted(maps.Keys(m.of.answers[name].Header)) {
		times := map[string]int{}
		for _, edit := range []func(map[string]string){
			func(h map[string]string) { delete(h, key) },
			func(h map[string]string) { h[key] = "" },
			func(h map[string]string) { h[key] = anotherWord },
		} {
			answers, a := maps.Clone(m.of.answers), m.of.answers[name]
			a.Header = maps.Clone(a.Header)
			edit(a.Header)
			answers[name] = a
			for _, is := range m.try(answers).unrecorded() {
				times[is]++
			}
		}
		for _, is := range slices.Sorted(maps.Keys(times)) {
			if !m.base[is] || times[is] < 3 {
				m.c.fault(m.of.path, "%s with another header %s of %s, and it matters: let the expression require it",
					is, key, name)
			}
		}
	}
}

// mutateTree tries the changes of a value and of all in it. It returns for which proofs its containers matter: those
// that end without a failure when a value in it changes. After a failure all proofs end, also those about other things.
// spare: it is not the only element of its list.
func (m *mutator) mutateTree(name string, steps []string, v any, spare bool) (matters map[string]bool) {
	matters = map[string]bool{}
	each := func(key string, in any, spare bool) {
		maps.Copy(matters, m.mutateTree(name, append(slices.Clone(steps), key), in, spare))
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			each(key, v[key], false)
		}
	case []any:
		for i := range v {
			each(strconv.Itoa(i), v[i], len(v) > 1)
		}
	}
	stays := map[string]string{}                                 // the first change with which something is proven
	failing, indifferent := map[string]bool{}, map[string]bool{} // proofs that end by a failure, and that stay
	for _, one := range mutationsOf(v) {
		if len(steps) == 0 && one.remove {
			continue // the answer without a body
		}
		other := recording{answers: maps.Clone(m.of.answers)}
		other.answers[name] = normalAnswer(m.of.answers[name])
		other.changeAt(name, steps, normalJSON(one.value), one.remove)
		proven := m.try(other.answers)
		for _, is := range proven.unrecorded() {
			gone := one.remove && spare && m.comeAndGo && !m.base[is]
			if stays[is] == "" && !gone {
				stays[is] = one.what
			}
		}
		for is := range m.base {
			switch {
			case !one.same:
			case proven.of[is]:
				indifferent[is] = true
			case proven.failed:
				failing[is] = true
			default:
				matters[is] = true
			}
		}
	}
	place := strings.Join(append([]string{name}, steps...), "/")
	for _, is := range slices.Sorted(maps.Keys(stays)) {
		switch {
		case !m.base[is]:
			m.c.fault(m.of.path, "%s if %s is %s: no answer but a recorded one may prove that", is, place, stays[is])
		case matters[is] || failing[is] && !indifferent[is]:
			m.c.fault(m.of.path, "%s even if %s is %s, and the value matters: let the expression require it", is, place,
				stays[is])
		}
	}
	return matters
}
