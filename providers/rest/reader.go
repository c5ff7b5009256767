package rest

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/remote"
)

// Reading describes how the API of a whole system is read, for example that of a storage system. M says what its
// answers mean, for the package that uses it. README.md explains each key.
type Reading[M any] struct {
	Name     string           `yaml:"name"`   // of the system
	Values   map[string]Value `yaml:"values"` // settings that become variables
	Login    Login            `yaml:"login"`
	Requests []Read           `yaml:"requests"` // sent in this order
	Storage  *M               `yaml:"storage"`  // nil: the configuration says what the answers mean
	Cases    []ReadCase       `yaml:"cases"`
}

// Read is a request of a Reading.
type Read struct {
	Request `yaml:",inline"`
	// one variable, with CEL, a list of texts: the request is sent once for each of them. Its name is then a map of
	// answers, by text.
	Each map[string]string `yaml:"each"`
}

// API is a Reading that was checked and compiled. It is immutable and safe for concurrent use.
type API struct {
	family *Family   // its values and its log-in
	reads  []*read   // in the order in which they are sent
	scope  *compiler // what lists may use
	cases  []ReadCase
}

// read is a compiled Read.
type read struct {
	*request
	variable string      // "": the request is sent once
	each     cel.Program // of the variable's texts
}

//go:embed readings/*.yaml
var readings embed.FS

// FindReading returns the description of a system's API that is part of the program; nil if there is none.
func FindReading(name string) []byte {
	text, err := readings.ReadFile("readings/" + name + ".yaml")
	if err != nil {
		return nil
	}
	return text
}

// ParseReading reads and checks a Reading, and returns the meaning that it gives to the answers. It returns all faults,
// and nil then.
func ParseReading[M any](text []byte) (*API, *M, Faults) {
	d, tree, bad := parse[Reading[M]](text)
	if len(bad) > 0 {
		return nil, nil, bad.sorted()
	}
	c := &compiler{tree: tree, vars: map[string]bool{}}
	a := &API{
		family: &Family{Description: Description{Name: d.Name, Values: d.Values, Login: d.Login}},
		scope:  c, cases: d.Cases,
	}
	if !variableName.MatchString(d.Name) {
		c.fault("name", "write lower-case letters and digits")
	}
	c.declareValues(d.Values)
	a.family.compileLogin(c)
	if len(d.Requests) == 0 {
		c.fault("requests", "missing: without a request nothing is read")
	}
	for i, r := range d.Requests {
		a.reads = append(a.reads, c.read(fmt.Sprintf("requests[%d]", i), r))
	}
	if len(d.Cases) > 0 && d.Storage == nil {
		c.fault("cases", "have no effect: storage is missing, which says what the answers mean")
	}
	if len(c.bad) > 0 {
		return nil, nil, c.bad.sorted()
	}
	return a, d.Storage, nil
}

// IsReading reports whether a description is one of a whole system. Only such a one has requests beside its name.
func IsReading(text []byte) bool {
	var d struct {
		Requests any `yaml:"requests"`
	}
	_ = yaml.Unmarshal(text, &d) // the checks report a fault
	return d.Requests != nil
}

// FaultAt returns a fault at a path of the description.
func (a *API) FaultAt(path, text string) Fault { return Fault{lineOf(a.scope.tree, path), path, text} }

func (c *compiler) read(path string, r Read) *read {
	if len(r.Each) == 0 {
		return &read{request: c.request(path, r.Request, false, func(name string) bool { return c.vars[name] })}
	}
	out := &read{}
	if len(r.Each) > 1 {
		c.fault(path+".each", "has several variables: write one")
	}
	if len(r.Set) > 0 {
		c.fault(path+".set", "has no effect beside each")
	}
	part := c.fork()
	for name, text := range r.Each {
		out.variable = name
		out.each = c.expression(path+".each."+name, text, cel.ListType(cel.StringType), true)
		part.declare(path+".each."+name, name)
	}
	r.Set = nil
	out.request = part.request(path, r.Request, false, func(name string) bool { return part.vars[name] })
	c.bad = append(c.bad, part.bad...)
	c.groups = append(c.groups, r.Name)
	return out
}

// Listing is a compiled expression of a list of objects.
type Listing struct{ program cel.Program }

// CompileList compiles an expression over the answers that gives a list of objects.
func (a *API) CompileList(text string) (Listing, error) {
	if text == "" {
		return Listing{}, errors.New("missing: a CEL expression over the answers that gives the list of objects")
	}
	p, err := a.scope.compileText(text, cel.ListType(cel.DynType))
	return Listing{p}, err
}

// ReaderConfig is the configuration of a Reader.
type ReaderConfig struct {
	// the file of the API's description; must be set, except with a preset that has one
	Description string        `yaml:"description"`
	Poll        time.Duration `yaml:"poll"`    // how often the API is read; 1s to 1m; default 5s
	Address     string        `yaml:"address"` // of the API: https://host[:port][/path]; must be set

	remote.Credentials `yaml:",inline"`
	remote.Trust       `yaml:",inline"`

	AllowHTTP bool `yaml:"allowHTTP"` // true: use plain http:// to other hosts; the password is sent in the clear
	// what the description lets you choose, by name
	Values map[string]string `yaml:"values"`
}

// settings returns the configuration as that of devices behind the API.
func (c ReaderConfig) settings(a *API) *Settings {
	s := &Settings{
		Address: c.Address, Credentials: c.Credentials, Trust: c.Trust, AllowHTTP: c.AllowHTTP, Values: c.Values,
	}
	if a != nil {
		s.family = a.family
	}
	return s
}

// Validate returns every fault, apart from those of the description. a is nil if it has any.
func (c ReaderConfig) Validate(a *API) (out []providers.Problem) {
	if c.Poll != 0 && (c.Poll < time.Second || c.Poll > time.Minute) {
		out = append(out, providers.Problemf("poll", "must be from 1s to 1m"))
	}
	return append(out, c.settings(a).Validate()...)
}

// Cautions returns the settings that are allowed but risky.
func (c ReaderConfig) Cautions() []providers.Problem {
	out := c.Trust.Cautions()
	if c.AllowHTTP {
		out = append(out, providers.Problemf("allowHTTP", "an attacker between the controller and the API can read "+
			"the password, and report any health"))
	}
	return out
}

// Interval returns how often the API is read.
func (c ReaderConfig) Interval() time.Duration { return cmp.Or(c.Poll, 5*time.Second) }

// Reader reads a system's API. It is safe for concurrent use.
//
// It promises that what it returns comes from answers of that very call, and that it returns nothing if one of them is
// missing, strange or incomplete.
type Reader struct {
	api   *API
	lists map[string]Listing
	open  func() *Provider // contacts nothing
}

// NewReader returns a Reader of these lists, for a configuration that Validate accepts.
func (a *API) NewReader(c ReaderConfig, lists map[string]Listing, o providers.Options) *Reader {
	return &Reader{a, lists, sync.OnceValue(func() *Provider {
		return c.settings(a).open(o, maxReadAnswer, maxReadValues)
	})}
}

const (
	maxReadAnswer = 8 << 20   // bytes of one answer
	maxReadValues = 256 << 10 // of JSON, likewise
	maxEach       = 1000      // texts for which one request is sent
)

// Read sends the requests, and returns the objects of each list, by its name: JSON values.
func (r *Reader) Read(ctx context.Context) (map[string][]any, error) {
	p := r.open()
	d, release, err := p.openDevice(providers.Target{})
	if err != nil {
		return nil, err
	}
	defer release()
	return r.api.read(ctx, r.api.family.newEvaluation(p.values(), d.send), r.lists)
}

// read sends the requests, and returns the objects of each list.
func (a *API) read(ctx context.Context, e *evaluation, lists map[string]Listing) (map[string][]any, error) {
	for _, q := range a.reads {
		run := func() error { return e.runOne(ctx, q.request) }
		if q.variable != "" {
			run = func() error { return e.runEach(ctx, q) }
		}
		if err := run(); err != nil {
			return nil, err
		}
	}
	out := map[string][]any{}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		v, err := e.evaluate(ctx, "the list of "+name, lists[name].program)
		if err != nil {
			return nil, err
		}
		if out[name], err = objectsOf(v); err != nil {
			return nil, providers.Errorf(providers.ErrUnreachable, "the list of %s: %w", name, err)
		}
	}
	return out, nil
}

// runEach sends a request once for each text. The answers are a map then.
func (e *evaluation) runEach(ctx context.Context, q *read) error {
	v, err := e.evaluate(ctx, "each of "+q.Name, q.each)
	if err != nil {
		return err
	}
	native, err := v.ConvertToNative(textsType)
	if err != nil {
		return providers.Errorf(providers.ErrUnreachable, "each of %s gives no list of texts", q.Name)
	}
	texts, _ := native.([]string)
	if len(texts) > maxEach {
		return providers.Errorf(providers.ErrUnreachable, "each of %s gives more than %d texts", q.Name, maxEach)
	}
	answers := map[string]any{}
	for _, text := range texts {
		if _, has := answers[text]; has {
			continue
		}
		e.texts[q.variable], e.vars[q.variable] = text, text
		if answers[text], err = e.askFor(ctx, q.request, eachName(q.Name, text)); err != nil {
			return err
		}
	}
	delete(e.texts, q.variable)
	delete(e.vars, q.variable)
	e.vars[q.Name] = answers
	return nil
}

// eachName returns the name, in cases, of the answer to a request that is sent once for each of several texts.
func eachName(request, text string) string { return request + "[" + text + "]" }

// objectsOf returns the elements of a list.
func objectsOf(v ref.Val) (out []any, _ error) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, errors.New("gives no list")
	}
	for i := list.Iterator(); i.HasNext() == types.True; {
		out = append(out, i.Next().Value())
	}
	return out, nil
}
