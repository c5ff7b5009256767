package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/uuid"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/expr"
	"github.com/forcefence/forcefence/providers/remote"
)

// answer is the answer to one request. A body that is no JSON is nil.
type answer struct {
	status int
	header map[string]string // by name in lower case
	body   any
}

// rendered is a request whose variables are filled in.
type rendered struct {
	base         string // the address before the path; "": the device's own
	method, path string
	header       map[string]string
	kind         string // the body's Content-Type; "": there is none
	body         []byte
	take         func(*http.Response) bool // nil, or takes an answer over whose body is a stream
	once         bool                      // on a connection of its own, which ends
}

// sender sends one request and returns its answer, with any status.
type sender func(ctx context.Context, name string, r rendered) (answer, error)

// evaluation is what one call has learnt so far.
type evaluation struct {
	family *Family
	send   sender
	texts  map[string]string // variables
	vars   map[string]any    // the same and the answers, for expressions
}

func (f *Family) newEvaluation(texts map[string]string, send sender) *evaluation {
	e := &evaluation{family: f, send: send, texts: maps.Clone(texts), vars: map[string]any{}}
	for name, v := range texts {
		e.vars[name] = v
	}
	return e
}

// fork returns an evaluation that knows the same, and keeps to itself what it learns from now on.
func (e *evaluation) fork() *evaluation {
	return &evaluation{family: e.family, send: e.send, texts: maps.Clone(e.texts), vars: maps.Clone(e.vars)}
}

// run sends requests in their order. An answer with another status than expected ends the call.
func (e *evaluation) run(ctx context.Context, all []*request) error {
	for _, q := range all {
		if err := e.runOne(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// runOne sends one request, and sets its answer and the variables that it gives. A request that the description leaves
// out now has no answer: an expression that needs it fails.
func (e *evaluation) runOne(ctx context.Context, q *request) error {
	if q.when != nil {
		v, err := e.evaluate(ctx, "when of "+q.Name, q.when)
		if err != nil || v.Value() != true {
			return err
		}
	}
	a, err := e.ask(ctx, q)
	if err != nil {
		return err
	}
	e.vars[q.Name] = a
	for _, name := range slices.Sorted(maps.Keys(q.set)) {
		v, err := e.evaluate(ctx, name, q.set[name])
		if err != nil {
			return err
		}
		text, _ := v.Value().(string)
		if text == "" {
			return providers.Errorf(providers.ErrNotFound, "%s: the answer has no %s", q.Name, name)
		}
		e.texts[name], e.vars[name] = text, text
	}
	return nil
}

// ask sends one request, and returns its answer as expressions see it.
func (e *evaluation) ask(ctx context.Context, q *request) (map[string]any, error) {
	return e.askFor(ctx, q, q.Name)
}

// askFor is ask for an answer that cases know by another name.
func (e *evaluation) askFor(ctx context.Context, q *request, name string) (map[string]any, error) {
	if err := e.checkRequire(ctx, q); err != nil {
		return nil, err
	}
	e.texts[requestUUID] = uuid.NewString()
	r, err := q.render(e.texts)
	if err != nil {
		return nil, err
	}
	a, err := e.send(ctx, name, r)
	if err == nil {
		err = q.check(a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Name, err)
	}
	return map[string]any{"status": int64(a.status), "header": a.header, "body": a.body}, nil
}

// checkRequire returns an error if the description refuses the request now.
func (e *evaluation) checkRequire(ctx context.Context, q *request) error {
	if q.require == nil {
		return nil
	}
	v, err := e.evaluate(ctx, "require of "+q.Name, q.require)
	if err != nil {
		return err
	}
	if v.Value() != true {
		return providers.Errorf(providers.ErrPermanent, "%s is not sent: the description requires %s", q.Name,
			expr.OneLine(q.Require))
	}
	return nil
}

// evaluate returns an expression's value. An error's class is ErrUnreachable: another answer may have what this lacks.
func (e *evaluation) evaluate(ctx context.Context, what string, p cel.Program) (ref.Val, error) {
	v, err := expr.Eval(ctx, p, e.vars)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, providers.Errorf(providers.ErrUnreachable, "evaluating %s: %w", what, err)
	}
	return v, nil
}

// render fills a request's variables in.
func (q *request) render(texts map[string]string) (r rendered, err error) {
	r = rendered{method: q.method, header: map[string]string{}}
	if r.path, err = fillPath(q.path, texts); err != nil {
		return r, err
	}
	for name, v := range q.Header {
		r.header[name] = fillTemplate(v, texts)
	}
	switch {
	case q.JSON != nil:
		r.kind = "application/json"
		r.body, err = json.Marshal(fillJSON(q.JSON, texts))
	case q.Form != nil:
		form := url.Values{}
		for name, v := range q.Form {
			form.Set(name, fillTemplate(v, texts))
		}
		r.kind, r.body = "application/x-www-form-urlencoded", []byte(form.Encode())
	}
	return r, err
}

// check returns an error for a status that is not expected, and for a success without its JSON.
func (q *request) check(a answer) error {
	switch {
	case !slices.Contains(q.Expect, a.status):
		return statusError(a.status)
	case a.body == nil && q.method == http.MethodGet && a.status/100 == 2:
		return providers.Errorf(providers.ErrUnreachable, "the answer is no JSON, or incomplete")
	}
	return nil
}

// statusError returns the error of a status. It repeats nothing of the answer's body.
func statusError(status int) error {
	return providers.Errorf(remote.HTTPClass(status), "%s",
		strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status))))
}

// readAnswer reads a whole answer. A body that cannot be read to its end is an error with any status.
func readAnswer(resp *http.Response) (answer, error) {
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: map[string]string{}}
	for name := range resp.Header {
		a.header[strings.ToLower(name)] = resp.Header.Get(name)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, fmt.Errorf("reading answer: %w", err)
	}
	a.body = decodeJSON(body)
	return a, nil
}

// decodeJSON returns the one JSON value of a body, or nil if it holds anything else.
func decodeJSON(body []byte) (v any) {
	in := json.NewDecoder(bytes.NewReader(body))
	if err := in.Decode(&v); err != nil {
		return nil
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return v
}

// askPower sends the questions about the state, and reads the machine's identity and power from their answers.
func (e *evaluation) askPower(ctx context.Context, obs *providers.Observation) error {
	if err := e.run(ctx, e.family.state); err != nil {
		return err
	}
	return e.observe(ctx, obs)
}

// observe reads the machine's identity and power from the answers. The identity is valid beside an error, too.
func (e *evaluation) observe(ctx context.Context, obs *providers.Observation) error {
	identity := e.identify(ctx, obs)
	state, word, err := e.readPower(ctx)
	obs.Raw = word
	switch {
	case err != nil:
		return err
	case state == providers.PowerOff && identity != nil:
		return providers.Errorf(providers.ErrUnreachable,
			"reported %s, which is no proof without the machine's identity: %w", word, identity)
	}
	obs.State = state
	return nil
}

// identify reads the UUID and the addresses. It returns why one that the description has could not be read.
func (e *evaluation) identify(ctx context.Context, obs *providers.Observation) error {
	if e.family.uuid != nil {
		v, err := e.evaluate(ctx, "state.uuid", e.family.uuid)
		if err != nil {
			return err
		}
		text, ok := v.Value().(string)
		if _, valid := providers.ParseUUID(text); text != "" && !valid || !ok {
			return errors.New("state.uuid gives no UUID that identifies a machine")
		}
		obs.SystemUUID = text
	}
	if e.family.addresses != nil {
		v, err := e.evaluate(ctx, "state.addresses", e.family.addresses)
		if err != nil {
			return err
		}
		all, err := v.ConvertToNative(textsType)
		if err != nil {
			return errors.New("state.addresses gives no list of texts")
		}
		for _, text := range all.([]string) {
			if _, err := netip.ParseAddr(text); err != nil {
				return errors.New("state.addresses gives a text that is no IP address")
			}
		}
		if obs.Addresses = providers.NewAddresses(all.([]string)...); obs.Addresses == "" && obs.SystemUUID == "" {
			return errors.New("state.addresses gives no address of the machine's own, and there is no UUID")
		}
	}
	return nil
}

// readPower evaluates state.power. A value other than one of the four states with a word is an error.
func (e *evaluation) readPower(ctx context.Context) (_ providers.PowerState, word string, _ error) {
	v, err := e.evaluate(ctx, "state.power", e.family.power)
	if err != nil {
		return providers.PowerUnknown, "", err
	}
	native, err := v.ConvertToNative(wordsType)
	if err != nil {
		return providers.PowerUnknown, "",
			providers.Errorf(providers.ErrUnreachable, "state.power gives no map of texts")
	}
	result := native.(map[string]string)
	if word = result["word"]; word == "" {
		return providers.PowerUnknown, "",
			providers.Errorf(providers.ErrUnreachable, "state.power gives no word of the device's")
	}
	switch result["state"] {
	case "On":
		return providers.PowerOn, word, nil
	case "Off":
		return providers.PowerOff, word, nil
	case "Changing":
		return providers.PowerChanging, word, nil
	case "Unknown":
		return providers.PowerUnknown, word, nil
	default:
		return providers.PowerUnknown, word, providers.Errorf(providers.ErrPermanent,
			"state.power gives the state %q: the description must give On, Off, Changing or Unknown",
			expr.OneLine(result["state"]))
	}
}

// runReads sends an action's requests up to the first that acts, and not that one. It returns an error if the
// description refuses to send one of them.
func (e *evaluation) runReads(ctx context.Context, a *action) error {
	for _, q := range a.requests {
		if q.method != http.MethodGet {
			return e.checkRequire(ctx, q)
		}
		if err := e.runOne(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// act sends an action's requests, and returns an error unless the device accepted it.
func (e *evaluation) act(ctx context.Context, a *action) error {
	if err := e.run(ctx, a.requests); err != nil {
		return err
	}
	v, err := e.evaluate(ctx, "accepted", a.accepted)
	if err != nil {
		return err
	}
	if v.Value() != true {
		return providers.Errorf(providers.ErrUnreachable, "the device did not accept it")
	}
	return nil
}
