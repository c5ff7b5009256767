package rest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
)

// testCase is a Case with all its answers.
type testCase struct {
	recording
	id   string
	want Want
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
// changes the result. If one of them does, the value matters, and with every change of it Off must end: a value that is
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
			m := f.newMutator(c, tc, cases)
			m.run()
			report.Mutations += m.count
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
	var records []Record
	for _, one := range f.Cases {
		records = append(records, one.Record)
	}
	names := f.requestNames()
	var out []testCase
	wanted := map[string]bool{}
	for i, rec := range c.resolve(records, func(name string) bool { return slices.Contains(names, name) }) {
		tc := testCase{rec, f.Cases[i].ID, f.Cases[i].Want}
		like := slices.IndexFunc(out, func(of testCase) bool { return of.Name == rec.Like })
		if tc.id == "" && like >= 0 {
			tc.id = out[like].id
		}
		if _, _, err := f.parseID(tc.id); err != nil {
			c.fault(tc.path+".id", "%v", err)
		}
		if !slices.Contains([]string{"On", "Off", "Changing", "Unknown"}, tc.want.State) {
			c.fault(tc.path+".want.state", "is %q: use On, Off, Changing or Unknown, which goes with an error",
				tc.want.State)
		}
		wanted[tc.want.State] = true
		out = append(out, tc)
	}
	for _, state := range []string{"On", "Off"} {
		if !wanted[state] && len(c.bad) == 0 {
			c.fault("cases", "no case wants %s", state)
		}
	}
	aboutOne := func(tc testCase) bool { return tc.want.About != "" && tc.want.About != anyMachine }
	if f.events != nil && !slices.ContainsFunc(out, aboutOne) && len(c.bad) == 0 {
		c.fault("cases", "no case has an answer to event that is about a machine")
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
	if f.events != nil {
		out = append(out, f.events.request.Name)
	}
	return out
}

// replay evaluates a description over recorded answers, as replaySender gives them.
func (f *Family) replay(id string, answers map[string]Answer, of *recording, record bool) (
	obs providers.Observation, e *evaluation, err error) {
	_, texts, err := f.parseID(id)
	if err != nil {
		return obs, nil, err
	}
	maps.Copy(texts, f.SampleValues())
	e = f.newEvaluation(texts, replaySender(answers, of, record))
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
	obs, _, err := f.replay(tc.id, tc.answers, &tc.recording, true)
	class := ""
	if err != nil {
		class = providers.ErrorClass(err)
	}
	w := tc.want
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
	if event, ok := tc.answers["event"]; f.events != nil && ok {
		if got := f.aboutOf(context.Background(), f.SampleValues(), event.Body); got != w.About {
			c.fault(tc.path+".want.about", "the event is about %q, want %q", got, w.About)
		}
	} else if w.About != "" {
		c.fault(tc.path+".want.about", "has no effect: the case has no answer to event")
	}
	if err == nil {
		c.requireUse(tc.recording, func(name string) bool {
			return slices.ContainsFunc(slices.Concat(f.find, f.state), func(q *request) bool {
				return q.Name == name && q.when == nil
			})
		})
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
	id, _, err := f.parseID(tc.id)
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
	case on && tc.want.State != "On":
		c.fault(tc.path+".answers."+name, "the list says On, and the case wants %s", tc.want.State)
	}
}

// newMutator returns a mutator of a case. Its only proof is Off of the same machine: of another one, providers.Ask
// refuses it.
func (f *Family) newMutator(c *compiler, tc testCase, all []testCase) *mutator {
	const off = "is Off"
	base, _, _ := f.replay(tc.id, tc.answers, &tc.recording, false)
	m := &mutator{c: c, of: tc.recording, names: slices.Sorted(maps.Keys(tc.paths)), base: map[string]bool{}}
	if base.State == providers.PowerOff {
		m.base[off] = true
	}
	m.prove = func(answers map[string]Answer) proof {
		obs, _, _ := f.replay(tc.id, answers, &tc.recording, false)
		another := m.base[off] && (obs.SystemUUID != base.SystemUUID || obs.Addresses != base.Addresses) &&
			(obs.SystemUUID != "" || obs.Addresses != "")
		wanted := slices.ContainsFunc(all, func(of testCase) bool {
			return of.want.State == "Off" && of.id == tc.id && reflect.DeepEqual(of.answers, answers)
		})
		if obs.State != providers.PowerOff || another || wanted {
			return proof{}
		}
		return proof{of: map[string]bool{off: true}}
	}
	return m
}
