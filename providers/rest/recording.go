package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// recording is a Record with all its answers.
type recording struct {
	Record
	path    string            // cases[0]
	answers map[string]Answer // with bodies as JSON decodes them
	paths   map[string]string // of the requests that were sent, by name
	last    string            // the name of the last one
}

// resolve returns the records of all cases with their answers. known reports whether a request has that name.
func (c *compiler) resolve(all []Record, known func(name string) bool) (out []recording) {
	for i, one := range all {
		r := recording{
			Record: one, path: fmt.Sprintf("cases[%d]", i), answers: map[string]Answer{}, paths: map[string]string{},
		}
		named := func(of recording) bool { return of.Name == one.Name }
		if one.Name == "" || slices.ContainsFunc(out, named) {
			c.fault(r.path+".name", "missing, or another case's")
		}
		if one.Like != "" {
			if j := slices.IndexFunc(out, func(of recording) bool { return of.Name == one.Like }); j >= 0 {
				r.answers = copyAnswers(out[j].answers)
			} else {
				c.fault(r.path+".like", "no case before this one has the name %q", one.Like)
			}
		}
		for name, a := range one.Answers {
			if !known(name) {
				c.fault(r.path+".answers."+name, "no request has the name %q", name)
			}
			r.answers[name] = normalAnswer(a)
		}
		for _, path := range slices.Sorted(maps.Keys(one.Change)) {
			if !r.change(path, normalJSON(one.Change[path]), false) {
				c.fault(r.path+".change", "%s leads to nothing in the answers: write REQUEST/KEY/KEY, a path in a "+
					"body; answers replaces a whole answer", path)
			}
		}
		for _, path := range one.Remove {
			if !r.change(path, nil, true) {
				c.fault(r.path+".remove", "%s leads to nothing in the answers: write REQUEST/KEY/KEY, a path in a body",
					path)
			}
		}
		out = append(out, r)
	}
	return out
}

// requireUse reports recorded answers to requests, among those that sends names, that were not sent.
func (c *compiler) requireUse(r recording, sends func(name string) bool) {
	for _, name := range slices.Sorted(maps.Keys(r.answers)) {
		if _, sent := r.paths[name]; sends(name) && !sent {
			c.fault(r.path+".answers", "%s is not asked for", name)
		}
	}
}

func normalAnswer(a Answer) Answer {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	a.Body = normalJSON(a.Body)
	return a
}

// normalJSON returns a value as a JSON decoder gives it. It is a deep copy.
func normalJSON(v any) (out any) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	_ = json.Unmarshal(text, &out) // what Marshal wrote is JSON
	return out
}

func copyAnswers(all map[string]Answer) map[string]Answer {
	out := map[string]Answer{}
	for name, a := range all {
		out[name] = normalAnswer(a)
	}
	return out
}

// change replaces or removes what a path leads to. It reports whether the path leads somewhere; the last key of a
// mapping may be new.
func (r *recording) change(path string, v any, remove bool) bool {
	steps := strings.Split(path, "/")
	return len(steps) > 1 && r.changeAt(steps[0], steps[1:], v, remove)
}

// changeAt is change of what these keys and indices lead to. A key may have slashes.
func (r *recording) changeAt(name string, steps []string, v any, remove bool) bool {
	a, ok := r.answers[name]
	if ok {
		a.Body, ok = changed(a.Body, steps, v, remove)
		r.answers[name] = a
	}
	return ok
}

// changed returns a tree with another value at a path.
func changed(in any, steps []string, v any, remove bool) (any, bool) {
	if len(steps) == 0 {
		return v, true
	}
	switch in := in.(type) {
	case map[string]any:
		next, has := in[steps[0]]
		if remove && len(steps) == 1 {
			delete(in, steps[0])
			return in, has
		}
		if !has && len(steps) > 1 {
			return in, false
		}
		var ok bool
		in[steps[0]], ok = changed(next, steps[1:], v, remove)
		return in, ok
	case []any:
		i, err := strconv.Atoi(steps[0])
		if err != nil || i < 0 || i >= len(in) {
			return in, false
		}
		if remove && len(steps) == 1 {
			return slices.Delete(in, i, i+1), true
		}
		var ok bool
		in[i], ok = changed(in[i], steps[1:], v, remove)
		return in, ok
	}
	return in, false
}

// errNoAnswer is the error of a request for which a case has no answer.
var errNoAnswer = errors.New("the case has no answer for this request")

// replaySender returns a sender of recorded answers. It records the requests' paths in of, or answers 404 for another
// path than the recorded one.
func replaySender(answers map[string]Answer, of *recording, record bool) sender {
	return func(_ context.Context, name string, r rendered) (answer, error) {
		a, ok := answers[name]
		switch {
		case !ok:
			return answer{}, errNoAnswer
		case record:
			of.paths[name], of.last = r.path, name
		case of.paths[name] != r.path:
			return answer{status: http.StatusNotFound}, nil
		}
		header := map[string]string{}
		for key, v := range a.Header {
			header[strings.ToLower(key)] = v
		}
		return answer{status: a.Status, header: header, body: a.Body}, nil
	}
}
