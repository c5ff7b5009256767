package rest

import (
	"net/http"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/forcefence/forcefence/providers"
)

// Recorded is a case with all its answers, for a server that replays it.
type Recorded struct {
	Name, ID string
	Answers  map[string]Answer // by the request's name
	Want     Want
	// Addresses are the machine's, as the answers report them.
	Addresses providers.Addresses
}

// Recorded returns the cases of a description that CheckCases accepts.
func (f *Family) Recorded() (out []Recorded) {
	for _, tc := range f.resolveCases(&compiler{tree: &yaml.Node{}}) {
		obs, _, _ := f.replay(tc.id, tc.answers, &tc.recording, true)
		out = append(out, Recorded{tc.Name, tc.id, tc.answers, tc.want, obs.Addresses})
	}
	return out
}

// The purposes of requests.
const (
	ForState = "state" // also to find the machine
	ForOff   = "off"
	ForOn    = "on"
	ForLogin = "login"
)

// Sent is a request as it is sent.
type Sent struct {
	Name, Purpose string
	Method, Path  string // with its query
	Body          []byte
	Last          bool // the action's last request that acts
}

// RequestsOf returns the requests that calls send for a case's machine. Those of a log-in have no body, because it
// holds a password.
func (f *Family) RequestsOf(r Recorded) (out []Sent, _ error) {
	_, e, err := f.replay(r.ID, r.Answers, &recording{paths: map[string]string{}}, true)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		purpose string
		all     []*request
	}{{ForState, slices.Concat(f.find, f.state)}, {ForOff, f.off.requests}, {ForOn, f.on.requests}} {
		last := -1
		for _, q := range of.all {
			r, err := q.render(e.texts)
			if err != nil {
				return nil, err
			}
			if q.method != http.MethodGet {
				last = len(out)
			}
			out = append(out, Sent{q.Name, of.purpose, r.method, r.path, r.body, false})
		}
		if last >= 0 {
			out[last].Last = true
		}
	}
	if f.list != nil {
		e.texts["page"] = "1"
		r, err := f.list.request.render(e.texts)
		if err != nil {
			return nil, err
		}
		out = append(out, Sent{Name: f.list.request.Name, Purpose: ForState, Method: r.method, Path: r.path})
	}
	if f.login != nil {
		out = append(out, Sent{Name: "login", Purpose: ForLogin, Method: f.login.method, Path: f.login.path})
	}
	return out, nil
}

// NewConfig returns an empty configuration of the family.
func (f *Family) NewConfig() *PresetConfig {
	c := &PresetConfig{Settings{family: f}}
	if f.Feeds {
		c.OffDelay = supplyDelay
	}
	return c
}

// WithBasicLogin returns the family with a log-in that a server on this machine can play: basic in the place of digest
// and of tokens of other servers, whose code no description changes.
func (f *Family) WithBasicLogin() *Family {
	others := []string{"digest", "oauth1", "oauth2", "serviceAccount", "metadata", "certificate"}
	if !slices.Contains(others, f.Login.Kind) {
		return f
	}
	other := *f
	other.Login = Login{Kind: "basic"}
	return &other
}
