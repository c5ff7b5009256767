package rest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/forcefence/forcefence/providers"
)

// ReadCase is a set of recorded answers, and what must be known from them. The answer to a request that is sent once
// for each of several texts has the name "request[text]".
type ReadCase struct {
	Record `yaml:",inline"`
	Want   ReadWant `yaml:"want"`
}

// ReadWant is the required result of a ReadCase.
type ReadWant struct {
	Error string `yaml:"error"` // the class of the error; "": none
	// By the list's name, and by the name of a thing in it: a word. A thing that another case names and this one does
	// not must be Unread.
	Things map[string]map[string]string `yaml:",inline"`
}

// Unread is the word for a thing of which nothing is known.
const Unread = "unknown"

// Interpreter says what the objects of an API's lists mean.
type Interpreter struct {
	Lists   map[string]Listing
	Permits map[string][]string // by the list's name, the words that permit an action
	// Interpret returns the word for each thing, by the list's name and its own; Unread if nothing is known. It returns
	// false if nothing at all is known of a list.
	Interpret func(objects map[string][]any) (wordOf func(list, name string) string, ok bool)
}

// readTest is a ReadCase with all its answers.
type readTest struct {
	recording
	want ReadWant
}

// CheckCases compares the results of all cases with what they want. Then it changes one thing of a case at a time, as
// the function CheckCases does. No change may give a thing a word that permits an action, except one that the case has
// and that the changed value does not matter for. Without mutate it changes nothing, which takes milliseconds.
func (a *API) CheckCases(in Interpreter, mutate bool) (Report, Faults) {
	c := &compiler{tree: a.scope.tree}
	tests := a.resolveCases(c, in)
	report := Report{Cases: len(tests)}
	names := map[string][]string{} // of all things, by list
	for _, t := range tests {
		for list, things := range t.want.Things {
			names[list] = slices.AppendSeq(names[list], maps.Keys(things))
		}
	}
	for list := range names {
		slices.Sort(names[list])
		names[list] = slices.Compact(names[list])
	}
	for i := 0; i < len(tests) && len(c.bad) == 0; i++ {
		a.runCase(c, in, &tests[i], names)
	}
	for i := 0; i < len(tests) && mutate && len(c.bad) == 0; i++ {
		m := a.newMutator(c, in, tests[i], tests, names)
		m.run()
		report.Mutations += m.count
	}
	return report, c.bad.sorted()
}

// resolveCases returns all cases with their answers. It requires that they show each word that permits an action.
func (a *API) resolveCases(c *compiler, in Interpreter) (out []readTest) {
	var records []Record
	for _, one := range a.cases {
		records = append(records, one.Record)
	}
	for i, r := range c.resolve(records, a.mayAnswer) {
		out = append(out, readTest{r, a.cases[i].Want})
		for list := range a.cases[i].Want.Things {
			if _, has := in.Lists[list]; !has {
				c.fault(r.path+".want."+list, "is no list: write %v", slices.Sorted(maps.Keys(in.Lists)))
			}
		}
	}
	for _, list := range slices.Sorted(maps.Keys(in.Lists)) {
		for _, word := range in.Permits[list] {
			wants := func(t readTest) bool {
				return slices.Contains(slices.Collect(maps.Values(t.want.Things[list])), word)
			}
			if !slices.ContainsFunc(out, wants) && len(c.bad) == 0 {
				c.fault("cases", "no case wants a %s that is %s", list, word)
			}
		}
	}
	return out
}

// mayAnswer reports whether a recorded answer may have that name.
func (a *API) mayAnswer(name string) bool {
	return slices.ContainsFunc(a.reads, func(q *read) bool {
		text, ok := strings.CutPrefix(name, q.Name)
		if q.variable == "" || !ok {
			return ok && text == ""
		}
		return len(text) > 2 && text[0] == '[' && text[len(text)-1] == ']'
	})
}

// replay reads recorded answers as a Reader reads an API.
func (a *API) replay(in Interpreter, answers map[string]Answer, of *recording, record bool) (
	wordOf func(list, name string) string, ok bool, _ error) {
	e := a.family.newEvaluation(a.family.SampleValues(), replaySender(answers, of, record))
	objects, err := a.read(context.Background(), e, in.Lists)
	if err != nil {
		return func(string, string) string { return Unread }, false, err
	}
	wordOf, ok = in.Interpret(objects)
	return wordOf, ok, nil
}

// runCase compares a case's result with what it wants.
func (a *API) runCase(c *compiler, in Interpreter, t *readTest, names map[string][]string) {
	wordOf, _, err := a.replay(in, t.answers, &t.recording, true)
	class := ""
	if err != nil {
		class = providers.ErrorClass(err)
	}
	switch {
	case errors.Is(err, errNoAnswer):
		c.fault(t.path+".answers", "%v", err)
		return
	case class != t.want.Error:
		c.fault(t.path+".want", "got error %q (%v)", class, err)
		return
	}
	for _, list := range slices.Sorted(maps.Keys(names)) {
		for _, name := range names[list] {
			want := t.want.Things[list][name]
			if want == "" {
				want = Unread
			}
			if got := wordOf(list, name); got != want {
				c.fault(t.path+".want", "got %s %q %s, want %s", list, name, got, want)
			}
		}
	}
	if err == nil {
		c.requireUse(t.recording, func(string) bool { return true })
	}
}

// newMutator returns a mutator of a case. Its proofs are the words of things that permit an action.
func (a *API) newMutator(c *compiler, in Interpreter, t readTest, all []readTest, names map[string][]string) *mutator {
	m := &mutator{
		c: c, of: t.recording, names: slices.Sorted(maps.Keys(t.paths)), base: map[string]bool{}, comeAndGo: true,
	}
	if t.want.Error != "" { // with another answer to an earlier request, the one that fails may not be sent
		m.names = []string{t.last}
	}
	permitted := func(wordOf func(list, name string) string) map[string]bool {
		out := map[string]bool{}
		for list, words := range in.Permits {
			for _, name := range names[list] {
				if word := wordOf(list, name); slices.Contains(words, word) {
					out[fmt.Sprintf("%s %q is %s", list, name, word)] = true
				}
			}
		}
		return out
	}
	wordOf, _, _ := a.replay(in, t.answers, &t.recording, false)
	m.base = permitted(wordOf)
	m.prove = func(answers map[string]Answer) proof {
		recorded := slices.ContainsFunc(all, func(of readTest) bool { return reflect.DeepEqual(of.answers, answers) })
		wordOf, ok, _ := a.replay(in, answers, &t.recording, false)
		return proof{permitted(wordOf), !ok, recorded}
	}
	return m
}
