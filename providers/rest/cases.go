package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
)

// testCase is a Case with all its answers.
type testCase struct {
	Case
	path    string            // cases[0]
	answers map[string]Answer // with bodies as JSON decodes them
	paths   map[string]string // of the requests that were sent, by name
}

// Report counts what CheckCases did.
type Report struct{ Cases, Mutations int }

// CheckCases reads a description, and requires of each case the result that it wants. Then it changes one thing of a
// case at a time: each value and each container of each body is removed, null, another word, another number, of another
// type, empty, or has another UUID; each answer is an HTTP error, has no body, or half of one. It returns what is
// wrong.
//
// A changed case must not be Off for the same machine. Off may remain in two situations. First, the changed answers
// are those of a case that wants Off. Second, the value does not matter: no other word and no other number in its place
// changes the result. If one of them does, the value matters, and every change of it must end Off: a value that is
// missing, null or of another type must never count as the one that proves. A container matters if a value in it does.
func CheckCases(text []byte) (Report, Faults) {
	var report Report
	f, bad := Parse(text)
	if f == nil {
		return report, bad
	}
	c, cases := f.runCases(text)
	report.Cases = len(cases)
	if len(c.bad) == 0 {
		for _, tc := range cases {
			report.Mutations += f.mutate(c, tc, cases)
		}
	}
	return report, c.bad.sorted()
}

// runCases compares the results of all cases with what they want. text is the family's description.
func (f *Family) runCases(text []byte) (*compiler, []testCase) {
	tree := yaml.Node{}
	_ = yaml.Unmarshal(text, &tree) // Parse has read it
	c := &compiler{tree: tree.Content[0]}
	cases := f.resolveCases(c)
	if len(c.bad) == 0 {
		for i := range cases {
			f.runCase(c, &cases[i])
		}
	}
	return c, cases
}

// resolveCases returns all cases with their answers. It requires cases that want On and Off.
func (f *Family) resolveCases(c *compiler) []testCase {
	var out []testCase
	wanted := map[string]bool{}
	for i, one := range f.Cases {
		tc := testCase{Case: one, path: fmt.Sprintf("cases[%d]", i), answers: map[string]Answer{}}
		named := func(of testCase) bool { return of.Name == one.Name }
		if one.Name == "" || slices.ContainsFunc(out, named) {
			c.fault(tc.path+".name", "missing, or another case's")
		}
		if one.Like != "" {
			j := slices.IndexFunc(out, func(of testCase) bool { return of.Name == one.Like })
			if j < 0 {
				c.fault(tc.path+".like", "no case before this one has the name %q", one.Like)
				continue
			}
			tc.answers = copyAnswers(out[j].answers)
			if tc.ID == "" {
				tc.ID = out[j].ID
			}
		}
		for name, a := range one.Answers {
			if !slices.Contains(f.requestNames(), name) {
				c.fault(tc.path+".answers."+name, "no request has the name %q", name)
			}
			tc.answers[name] = normalAnswer(a)
		}
		for _, path := range slices.Sorted(maps.Keys(one.Change)) {
			if !tc.change(path, normalJSON(one.Change[path]), false) {
				c.fault(tc.path+".change", "%s leads to nothing in the answers: write REQUEST/KEY/KEY, a path in a body; "+
					"answers replaces a whole answer", path)
			}
		}
		for _, path := range one.Remove {
			if !tc.change(path, nil, true) {
				c.fault(tc.path+".remove", "%s leads to nothing in the answers: write REQUEST/KEY/KEY, a path in a body",
					path)
			}
		}
		if _, _, err := f.parseID(tc.ID); err != nil {
			c.fault(tc.path+".id", "%v", err)
		}
		if !slices.Contains([]string{"On", "Off", "Changing", "Unknown"}, one.Want.State) {
			c.fault(tc.path+".want.state", "is %q: use On, Off, Changing or Unknown, which goes with an error",
				one.Want.State)
		}
		wanted[one.Want.State] = true
		out = append(out, tc)
	}
	for _, state := range []string{"On", "Off"} {
		if !wanted[state] && len(c.bad) == 0 {
			c.fault("cases", "no case wants %s", state)
		}
	}
	return out
}

// requestNames returns the names of all requests.
func (f *Family) requestNames() (out []string) {
	for _, q := range slices.Concat(f.find, f.state, f.off.requests, f.on.requests) {
		out = append(out, q.Name)
	}
	if f.list != nil {
		out = append(out, f.list.request.Name)
	}
	if f.login != nil {
		out = append(out, "login")
	}
	return out
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
func (tc *testCase) change(path string, v any, remove bool) bool {
	steps := strings.Split(path, "/")
	a, ok := tc.answers[steps[0]]
	if !ok || len(steps) < 2 {
		return false
	}
	a.Body, ok = changed(a.Body, steps[1:], v, remove)
	tc.answers[steps[0]] = a
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

// replay evaluates a description over recorded answers. It records the requests' paths, or answers 404 for another path
// than the recorded one.
func (f *Family) replay(id string, answers map[string]Answer, paths map[string]string, record bool) (
	obs providers.Observation, e *evaluation, err error) {
	_, texts, err := f.parseID(id)
	if err != nil {
		return obs, nil, err
	}
	maps.Copy(texts, f.SampleValues())
	e = f.newEvaluation(texts, func(_ context.Context, name string, r rendered) (answer, error) {
		a, ok := answers[name]
		switch {
		case !ok:
			return answer{}, errNoAnswer
		case record:
			paths[name] = r.path
		case paths[name] != r.path:
			return answer{status: http.StatusNotFound}, nil
		}
		header := map[string]string{}
		for key, v := range a.Header {
			header[strings.ToLower(key)] = v
		}
		return answer{status: a.Status, header: header, body: a.Body}, nil
	})
	ctx := context.Background()
	if err = e.run(ctx, slices.Concat(f.find, f.state)); err == nil {
		err = e.observe(ctx, &obs)
	}
	if err != nil {
		obs.State = providers.PowerUnknown
	}
	return obs, e, err
}

// SampleValues returns the values with which cases are evaluated: the samples, else the defaults, and a required
// value's own name.
func (f *Family) SampleValues() map[string]string {
	out := map[string]string{}
	for name, v := range f.Values {
		if out[name] = name; v.Default != nil {
			out[name] = *v.Default
		}
		out[name] = cmp.Or(v.Sample, out[name])
	}
	return out
}

// runCase compares a case's result with what it wants.
func (f *Family) runCase(c *compiler, tc *testCase) {
	tc.paths = map[string]string{}
	obs, _, err := f.replay(tc.ID, tc.answers, tc.paths, true)
	class := ""
	if err != nil {
		class = providers.ErrorClass(err)
	}
	w := tc.Want
	wantUUID, gotUUID := providers.CanonicalUUID(w.UUID), providers.CanonicalUUID(obs.SystemUUID)
	switch {
	case errors.Is(err, errNoAnswer):
		c.fault(tc.path+".answers", "%v", err)
	case obs.State.String() != w.State || class != w.Error:
		c.fault(tc.path+".want", "got %s %q, error %q (%v); want %s, error %q", obs.State, obs.Raw, class, err,
			w.State, w.Error)
	case err == nil && obs.Raw != w.Word:
		c.fault(tc.path+".want.word", "got the word %q, want %q", obs.Raw, w.Word)
	case err == nil && wantUUID != gotUUID:
		c.fault(tc.path+".want.uuid", "got the UUID %q, want %q", obs.SystemUUID, w.UUID)
	}
	if f.list != nil {
		f.checkList(c, tc)
	}
	for name := range tc.answers {
		asks := slices.ContainsFunc(slices.Concat(f.find, f.state), func(q *request) bool { return q.Name == name })
		if _, sent := tc.paths[name]; asks && !sent && err == nil {
			c.fault(tc.path+".answers", "%s is not asked for", name)
		}
	}
}

// checkList reads the list of a case, which must not say On where the case wants another state.
func (f *Family) checkList(c *compiler, tc *testCase) {
	name := f.list.request.Name
	a, ok := tc.answers[name]
	if !ok {
		c.fault(tc.path+".answers", "no answer to %s, which lists all machines", name)
		return
	}
	id, _, err := f.parseID(tc.ID)
	if err != nil {
		return // resolveCases has reported it
	}
	one := &listed{}
	pages := 0
	err = f.readList(context.Background(), f.SampleValues(), func(context.Context, string, rendered) (answer, error) {
		if pages++; pages > 1 {
			return answer{}, errors.New("a recorded list has one page")
		}
		return answer{status: a.Status, header: a.Header, body: a.Body}, nil
	}, map[string]*listed{id: one})
	_, on := f.observation(one, providers.Instant{})
	switch {
	case err != nil:
		c.fault(tc.path+".answers."+name, "%v", err)
	case on && tc.Want.State != "On":
		c.fault(tc.path+".answers."+name, "the list says On, and the case wants %s", tc.Want.State)
	}
}

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

// mutate tries all changes of a case, and returns their number.
func (f *Family) mutate(c *compiler, tc testCase, all []testCase) (count int) {
	base, _, _ := f.replay(tc.ID, tc.answers, tc.paths, false)
	// survives reports whether the answers still prove that the same machine is off, and no case says so.
	survives := func(answers map[string]Answer) bool {
		count++
		obs, _, _ := f.replay(tc.ID, answers, tc.paths, false)
		if obs.State != providers.PowerOff {
			return false
		}
		if base.State == providers.PowerOff && (obs.SystemUUID != base.SystemUUID || obs.Addresses != base.Addresses) &&
			(obs.SystemUUID != "" || obs.Addresses != "") {
			return false // of another machine, which providers.Ask refuses
		}
		return !slices.ContainsFunc(all, func(of testCase) bool {
			return of.Want.State == "Off" && of.ID == tc.ID && reflect.DeepEqual(of.answers, answers)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(tc.paths)) {
		for _, what := range []int{401, 403, 404, 500, 503, 0} {
			answers, a := maps.Clone(tc.answers), tc.answers[name]
			text := fmt.Sprintf("HTTP status %d", what)
			if what == 0 {
				a.Body, text = nil, "no JSON, or half of it"
			} else {
				a.Status = what
			}
			if answers[name] = a; survives(answers) {
				c.fault(tc.path, "is Off even if the answer to %s is %s", name, text)
			}
		}
		f.mutateTree(c, tc, base.State, name, nil, tc.answers[name].Body, survives)
		f.mutateHeaders(c, tc, base.State, name, survives)
	}
	return count
}

// mutateHeaders tries other headers of an answer, by the rules of mutateTree.
func (f *Family) mutateHeaders(c *compiler, tc testCase, base providers.PowerState, name string,
	survives func(map[string]Answer) bool) {
	for _, key := range slices.Sorted(maps.Keys(tc.answers[name].Header)) {
		with := func(edit func(map[string]string)) bool {
			answers, a := maps.Clone(tc.answers), tc.answers[name]
			a.Header = maps.Clone(a.Header)
			edit(a.Header)
			answers[name] = a
			return survives(answers)
		}
		missing := with(func(h map[string]string) { delete(h, key) })
		empty := with(func(h map[string]string) { h[key] = "" })
		other := with(func(h map[string]string) { h[key] = anotherWord })
		if off := missing || empty || other; off && (base != providers.PowerOff || !(missing && empty && other)) {
			c.fault(tc.path, "is Off with another header %s of %s, and it matters: let the expression require it", key,
				name)
		}
	}
}

// mutateTree tries the changes of a value and of all in it. It reports whether the value matters.
func (f *Family) mutateTree(c *compiler, tc testCase, base providers.PowerState, name string, steps []string, v any,
	survives func(map[string]Answer) bool) (matters bool) {
	each := func(key string, in any) {
		if f.mutateTree(c, tc, base, name, append(slices.Clone(steps), key), in, survives) {
			matters = true
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			each(key, v[key])
		}
	case []any:
		for i := range v {
			each(strconv.Itoa(i), v[i])
		}
	}
	var off []string
	for _, m := range mutationsOf(v) {
		if len(steps) == 0 && m.remove {
			continue // the answer without a body
		}
		changedCase := testCase{answers: maps.Clone(tc.answers)}
		changedCase.answers[name] = normalAnswer(tc.answers[name])
		changedCase.change(strings.Join(append([]string{name}, steps...), "/"), normalJSON(m.value), m.remove)
		if survives(changedCase.answers) {
			off = append(off, m.what)
		} else if m.same {
			matters = true
		}
	}
	place := strings.Join(append([]string{name}, steps...), "/")
	switch {
	case len(off) == 0:
	case base != providers.PowerOff:
		c.fault(tc.path, "becomes Off if %s is %s: no answer but a recorded one may prove that", place, off[0])
	case matters:
		c.fault(tc.path, "is Off even if %s is %s, and the value matters: let the expression require it", place, off[0])
	}
	return matters
}
