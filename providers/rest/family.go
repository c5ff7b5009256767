package rest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers/expr"
	"github.com/forcefence/forcefence/providers/remote"
)

// Family is a description that was checked and compiled. It is immutable and safe for concurrent use.
type Family struct {
	Description

	id        *regexp.Regexp
	token     cel.Program // of a login of kind token
	login     *request    // likewise
	metadata  *request    // of the cloud's metadata server; nil: none
	find      []*request
	state     []*request
	power     cel.Program
	uuid      cel.Program // nil: the device reports none
	addresses cel.Program // likewise
	list      *list       // nil: there is none
	events    *events     // likewise
	off, on   *action
}

// request is a compiled Request.
type request struct {
	Request
	method, path string
	require      cel.Program            // nil: none
	when         cel.Program            // nil: always
	set          map[string]cel.Program // by variable
}

// action is a compiled Action.
type action struct {
	requests []*request
	accepted cel.Program
}

// maxCost is the limit of one evaluation, in CEL's units: about 0.1 s. A search in a list of 5,000 machines costs some
// 100,000.
const maxCost = 1_000_000

// Parse reads and checks a description. It returns all faults, and nil then.
func Parse(text []byte) (*Family, Faults) {
	d, tree, bad := parse[Description](text)
	if len(bad) > 0 {
		return nil, bad.sorted()
	}
	c := &compiler{tree: tree, vars: map[string]bool{}}
	f := c.compile(d)
	if len(c.bad) > 0 {
		return nil, c.bad.sorted()
	}
	return f, nil
}

// compiler checks a description in the order in which its requests are sent.
type compiler struct {
	tree    *yaml.Node
	bad     Faults
	vars    map[string]bool // texts that requests and expressions may use
	answers []string        // names of the requests so far
	groups  []string        // names of those that are sent once for each of several texts
}

func (c *compiler) fault(path, format string, a ...any) {
	c.bad = append(c.bad, Fault{lineOf(c.tree, path), path, fmt.Sprintf(format, a...)})
}

var (
	variableName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
	// secrets are the variables of Login alone.
	secrets = []string{"user", "password", "token"}
)

func (c *compiler) compile(d Description) *Family {
	f := &Family{Description: d}
	for _, s := range []struct{ path, text string }{
		{"name", d.Name}, {"off", d.Off}, {"identity", d.Identity}, {"id", d.ID},
	} {
		if s.text == "" && s.path == "id" && d.AddressIDs {
			continue // the address alone
		}
		if s.text == "" {
			c.fault(s.path, "missing")
		} else if strings.HasSuffix(s.text, ".") || strings.ContainsAny(s.text, "\n\t") {
			c.fault(s.path, "write a short phrase without a full stop")
		}
	}
	if d.Name != "" && !variableName.MatchString(d.Name) {
		c.fault("name", "write lower-case letters and digits: it is a key of the configuration")
	}
	var err error
	if f.id, err = regexp.Compile("^(?:" + d.ID + ")$"); err != nil {
		c.fault("id", "is no regular expression: %v", err)
	} else {
		if d.ID != "" && !d.AddressIDs && f.id.MatchString("") {
			c.fault("id", "matches an empty text, which names no machine")
		}
		if d.AddressIDs && d.ProviderIDs {
			c.fault("providerIDs", "has no effect: with addressIDs an ID begins with an address")
		}
		for _, name := range f.id.SubexpNames()[1:] {
			if name == "" {
				c.fault("id", "has a group without a name: write (?P<name>...) or (?:...)")
				continue
			}
			c.declare("id", name)
		}
	}
	c.declareValues(d.Values)
	f.compileLogin(c)
	f.list = c.list(d)
	f.events = c.events(d, f)
	base := c.fork()
	f.find = base.requests("find", d.Find, false)
	state := base.fork()
	f.state = state.requests("state.requests", d.State.Requests, false)
	if len(d.Find)+len(d.State.Requests) == 0 {
		c.fault("state.requests", "missing: without a request no answer is about now")
	}
	f.power = state.expression("state.power", d.State.Power, cel.MapType(cel.StringType, cel.StringType), true)
	f.uuid = state.expression("state.uuid", d.State.UUID, cel.StringType, false)
	f.addresses = state.expression("state.addresses", d.State.Addresses, cel.ListType(cel.StringType), false)
	off, on := base.fork(), base.fork()
	f.off, f.on = off.action("powerOff", d.PowerOff), on.action("powerOn", d.PowerOn)
	for _, part := range []*compiler{base, state, off, on} {
		c.bad = append(c.bad, part.bad...)
	}
	return f
}

// fork returns a compiler for what follows in one kind of call.
func (c *compiler) fork() *compiler {
	return &compiler{
		tree: c.tree, vars: maps.Clone(c.vars), answers: slices.Clone(c.answers), groups: slices.Clone(c.groups),
	}
}

// declareValues adds the operator's settings.
func (c *compiler) declareValues(all map[string]Value) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.declare("values."+name, name)
		if v := all[name]; v.Risk != "" && v.Default == nil {
			c.fault("values."+name+".risk", "needs a default, which is the value without the risk")
		}
	}
}

// declare adds a variable.
func (c *compiler) declare(path, name string) {
	switch {
	case !variableName.MatchString(name):
		c.fault(path, "the variable %q: write a lower-case letter, then letters and digits", name)
	case slices.Contains(secrets, name) || name == "login" || name == requestUUID:
		c.fault(path, "the variable %q has a meaning of its own: choose another name", name)
	case c.vars[name] || slices.Contains(c.answers, name) || slices.Contains(c.groups, name):
		c.fault(path, "there is a variable or an answer %q already: choose another name", name)
	default:
		c.vars[name] = true
	}
}

// requestUUID is the variable that has another random UUID in each request, for APIs that know a retry by it.
const requestUUID = "requestUUID"

// requests compiles a list of requests. acts allows methods that change something.
func (c *compiler) requests(path string, all []Request, acts bool) (out []*request) {
	known := func(name string) bool { return c.vars[name] || name == requestUUID }
	for i, r := range all {
		out = append(out, c.request(fmt.Sprintf("%s[%d]", path, i), r, acts, known))
	}
	return out
}

func (c *compiler) request(path string, r Request, acts bool, known func(string) bool) *request {
	q := &request{Request: r, set: map[string]cel.Program{}}
	var ok bool
	if q.method, q.path, ok = strings.Cut(r.Send, " "); !ok {
		c.fault(path+".send", "write a method and a path, as GET /nodes/{node}")
	}
	switch q.method {
	case http.MethodGet:
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if !acts && ok {
			c.fault(path+".send", "sends %s where a machine is only read: use GET", q.method)
		}
	default:
		if ok {
			c.fault(path+".send", "the method is %q: use GET, POST, PUT, PATCH or DELETE", q.method)
		}
	}
	if strings.ContainsAny(optionalPart.ReplaceAllString(q.path, ""), "[]") {
		c.fault(path+".send", "an optional part of the path is written [/sets/{set}], with one variable at its end")
	}
	u, err := url.Parse(placeholder.ReplaceAllString(q.path, "x"))
	if ok && (err != nil || !strings.HasPrefix(q.path, "/") || strings.HasPrefix(q.path, "//") || u.Host != "" ||
		u.Fragment != "") {
		c.fault(path+".send", "the path must begin with one / and have no fragment")
	}
	templates := append([]string{q.path}, textsOf(r.JSON)...)
	for _, m := range []map[string]string{r.Header, r.Form} {
		templates = slices.AppendSeq(templates, maps.Values(m))
	}
	for _, t := range templates {
		if err := checkTemplate(t, known); err != nil {
			c.fault(path, "%v", err)
		}
	}
	if r.JSON != nil && r.Form != nil {
		c.fault(path+".form", "a request has one body: json or form")
	}
	if len(q.Expect) == 0 {
		if q.Expect = []int{http.StatusOK}; q.method != http.MethodGet {
			q.Expect = append(q.Expect, http.StatusCreated, http.StatusAccepted, http.StatusNoContent)
		}
	}
	for _, status := range q.Expect {
		if status < 200 || status > 599 || status == http.StatusUnauthorized {
			c.fault(path+".expect", "%d cannot be an answer that is expected", status)
		}
	}
	q.require = c.expression(path+".require", r.Require, cel.BoolType, false)
	q.when = c.expression(path+".when", r.When, cel.BoolType, false)
	if r.When != "" && (len(r.Set) > 0 || !strings.HasPrefix(path, "state.requests")) {
		c.fault(path+".when", "has no effect: only a request of state that sets no variable may be left out")
	}
	if path == "login.request" || path == "login.metadata" {
		return q
	}
	c.declare(path+".name", r.Name)
	delete(c.vars, r.Name)
	c.answers = append(c.answers, r.Name)
	for _, name := range slices.Sorted(maps.Keys(r.Set)) {
		q.set[name] = c.expression(path+".set."+name, r.Set[name], cel.StringType, true)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Set)) {
		c.declare(path+".set."+name, name)
	}
	return q
}

func (c *compiler) action(path string, a Action) *action {
	out := &action{requests: c.requests(path+".requests", a.Requests, true)}
	if !slices.ContainsFunc(out.requests, func(q *request) bool { return q.method != http.MethodGet }) {
		c.fault(path+".requests", "has no request that acts: add a POST, PUT, PATCH or DELETE")
	}
	out.accepted = c.expression(path+".accepted", a.Accepted, cel.BoolType, true)
	return out
}

// expression compiles an expression over the variables and answers so far. It returns nil for "".
func (c *compiler) expression(path, text string, wants *cel.Type, required bool) cel.Program {
	if text == "" {
		if required {
			c.fault(path, "missing: a CEL expression of type %s", wants)
		}
		return nil
	}
	p, err := c.compileText(text, wants)
	if err != nil {
		c.fault(path, "%v", err)
	}
	return p
}

// compileText compiles an expression over the variables and answers so far.
func (c *compiler) compileText(text string, wants *cel.Type) (cel.Program, error) {
	env, err := newEnv(slices.Sorted(maps.Keys(c.vars)), c.answers, c.groups)
	if err != nil {
		return nil, err
	}
	return expr.Compile(env, text, wants, maxCost)
}

// loginKinds are the kinds of a Login.
var loginKinds = []string{
	"none", "basic", "digest", "bearer", "header", "token", "oauth1", "oauth2", "serviceAccount", "metadata",
	"certificate",
}

func (f *Family) compileLogin(c *compiler) {
	l := f.Login
	given := map[string]bool{
		"header": l.Header != "", "value": l.Value != "", "request": l.Request != nil, "token": l.Token != "",
		"lifetime": l.Lifetime != 0, "tokenURL": l.TokenURL != "", "scopes": l.Scopes != nil, "style": l.Style != "",
		"address": l.Address != "", "metadata": l.Metadata != nil,
	}
	for _, status := range l.Refused {
		if status < 400 || status > 499 || status == http.StatusNotFound || l.Kind == "none" {
			c.fault("login.refused", "%d cannot mean that credentials are wrong", status)
		}
	}
	var optional []string
	need, known := []string{}, func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) || f.isValue(name) }
	}
	switch l.Kind {
	case "none", "basic", "digest", "bearer", "oauth1", "certificate":
	case "header":
		need = []string{"header", "value"}
		c.template("login.value", l.Value, known("user", "password"))
	case "token":
		need = []string{"header", "value", "request", "token", "lifetime"}
		c.template("login.value", l.Value, known("token"))
		if l.Request != nil {
			part := c.fork()
			part.answers = nil
			f.login = part.request("login.request", *l.Request, true, known("user", "password"))
			part.answers = []string{"login"}
			f.token = part.expression("login.token", l.Token, cel.StringType, false)
			c.bad = append(c.bad, part.bad...)
		}
		if l.Lifetime != 0 && l.Lifetime < time.Minute {
			c.fault("login.lifetime", "must be at least 1m")
		}
		if optional = []string{"address"}; l.Address != "" && !f.isValue(l.Address) {
			c.fault("login.address", "there is no value %q: name one of values", l.Address)
		}
	case "metadata":
		need = []string{"metadata"}
	case "oauth2", "serviceAccount":
		need, optional = []string{"tokenURL", "style"}, []string{"scopes", "metadata"}
		if l.Kind == "serviceAccount" {
			need, optional = []string{"tokenURL", "scopes"}, []string{"metadata"}
		}
		u, err := url.Parse(placeholder.ReplaceAllString(l.TokenURL, "x"))
		c.template("login.tokenURL", l.TokenURL, known())
		host, _, _ := strings.Cut(strings.TrimPrefix(l.TokenURL, "https://"), "/")
		if err != nil || u.User != nil || u.Fragment != "" || u.Scheme != "https" && !remote.IsLoopback(u.Hostname()) ||
			strings.Contains(host, "{") {
			c.fault("login.tokenURL", "must be https:// with a host that no variable chooses")
		}
		if l.Style != "" && l.Style != "params" && l.Style != "header" {
			c.fault("login.style", "is %q: use params or header", l.Style)
		}
	default:
		c.fault("login.kind", "is %q: use one of %s", l.Kind, strings.Join(loginKinds, ", "))
		return
	}
	if l.Metadata != nil {
		part := c.fork()
		part.answers = nil
		f.metadata = part.request("login.metadata", *l.Metadata, false, known())
		c.bad = append(c.bad, part.bad...)
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch wanted := slices.Contains(need, key); {
		case wanted && !given[key]:
			c.fault("login."+key, "missing: a login of kind %s has it", l.Kind)
		case !wanted && given[key] && !slices.Contains(optional, key):
			c.fault("login."+key, "has no effect on a login of kind %s", l.Kind)
		}
	}
}

func (c *compiler) template(path, text string, known func(string) bool) {
	if err := checkTemplate(text, known); err != nil {
		c.fault(path, "%v", err)
	}
}

// isValue reports whether a variable is a setting of the operator's.
func (f *Family) isValue(name string) bool {
	_, ok := f.Values[name]
	return ok
}

// parseID returns the variables in a target's ID without an address, and its canonical form: the groups' values, joined
// by slashes.
func (f *Family) parseID(id string) (canonical string, vars map[string]string, _ error) {
	m := f.id.FindStringSubmatch(id)
	switch {
	case m == nil && f.ID == "":
		return "", nil, errors.New("has a path: it is the device's address alone")
	case m == nil:
		return "", nil, errors.New("is no ID of this type: write it as " + f.Cases[0].ID)
	}
	vars = map[string]string{}
	var all []string
	for i, name := range f.id.SubexpNames()[1:] {
		vars[name] = m[i+1]
		if m[i+1] != "" {
			all = append(all, m[i+1])
		}
	}
	if canonical = strings.Join(all, "/"); !f.id.MatchString(canonical) {
		canonical = id
	}
	return canonical, vars, nil
}

// answerType is the type of an answer in expressions.
var answerType = cel.ObjectType("answer")

// answerFields are its fields.
var answerFields = map[string]*cel.Type{
	"status": cel.IntType, "header": cel.MapType(cel.StringType, cel.StringType), "body": cel.DynType,
}

// baseEnv is the environment without variables. Its function capture gives what the only group of a regular expression
// matches in a text. No match is an error. Its function join joins texts, flatten joins lists, and httpTime reads a
// header's time.
var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return expr.NewEnv(
		cel.CustomTypeProvider(&answerTypes{registry}),
		cel.Function("capture", cel.MemberOverload("string_capture_string", []*cel.Type{cel.StringType, cel.StringType},
			cel.StringType, cel.BinaryBinding(capture))),
		cel.Function("join", cel.MemberOverload("list_join_string",
			[]*cel.Type{cel.ListType(cel.StringType), cel.StringType}, cel.StringType, cel.BinaryBinding(join))),
		cel.Function("flatten", cel.MemberOverload("list_flatten", []*cel.Type{cel.ListType(cel.DynType)},
			cel.ListType(cel.DynType), cel.UnaryBinding(flatten))),
		cel.Function("httpTime", cel.MemberOverload("string_http_time", []*cel.Type{cel.StringType}, cel.TimestampType,
			cel.UnaryBinding(httpTime))),
	)
})

// newEnv returns the environment of expressions over these texts and answers. A group is a map of answers.
func newEnv(texts, answers, groups []string) (*cel.Env, error) {
	base, err := baseEnv()
	if err != nil {
		return nil, err
	}
	var vars []cel.EnvOption
	for _, name := range texts {
		vars = append(vars, cel.Variable(name, cel.StringType))
	}
	for _, name := range answers {
		vars = append(vars, cel.Variable(name, answerType))
	}
	for _, name := range groups {
		vars = append(vars, cel.Variable(name, cel.MapType(cel.StringType, answerType)))
	}
	return base.Extend(vars...)
}

// answerTypes adds answerType to CEL's own types.
type answerTypes struct{ types.Provider }

// FindStructType implements types.Provider.
func (p *answerTypes) FindStructType(name string) (*types.Type, bool) {
	if name == answerType.TypeName() {
		return types.NewTypeTypeWithParam(answerType), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldType implements types.Provider.
func (p *answerTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != answerType.TypeName() {
		return p.Provider.FindStructFieldType(name, field)
	}
	t, ok := answerFields[field]
	return &types.FieldType{Type: t}, ok
}

// maxCapture is the maximum length of a text that capture searches, in bytes.
const maxCapture = 4096

func capture(text, pattern ref.Val) ref.Val {
	s, _ := text.Value().(string)
	p, _ := pattern.Value().(string)
	re, err := regexp.Compile(p)
	if err != nil || re.NumSubexp() != 1 || len(s) > maxCapture {
		return types.NewErr("capture takes a text of %d bytes at most, and a regular expression with one group",
			maxCapture)
	}
	m := re.FindStringSubmatch(s)
	if m == nil {
		return types.NewErr("no match for %s", p)
	}
	return types.String(m[1])
}

func join(list, between ref.Val) ref.Val {
	all, err := list.ConvertToNative(textsType)
	if err != nil {
		return types.NewErr("join takes a list of texts")
	}
	sep, _ := between.Value().(string)
	return types.String(strings.Join(all.([]string), sep))
}

func flatten(list ref.Val) ref.Val {
	lists, ok := list.(traits.Lister)
	if !ok {
		return types.NewErr("flatten takes a list of lists")
	}
	var out []ref.Val
	for i := lists.Iterator(); i.HasNext() == types.True; {
		one, ok := i.Next().(traits.Lister)
		if !ok {
			return types.NewErr("flatten takes a list of lists")
		}
		for j := one.Iterator(); j.HasNext() == types.True; {
			out = append(out, j.Next())
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

func httpTime(text ref.Val) ref.Val {
	s, _ := text.Value().(string)
	t, err := http.ParseTime(s)
	if err != nil {
		return types.NewErr("no time of a header")
	}
	return types.Timestamp{Time: t}
}
