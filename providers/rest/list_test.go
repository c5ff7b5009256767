package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// object is one of JSON.
type object = map[string]any

// listing is the description outlets with a list and an identity.
var listing = strings.NewReplacer(
	"login: {kind: basic}", `list:
  request: {name: all, send: GET /outlets}
  machines: >-
    all.body.map(o, {"id": string(o.id), "state": o.state == "on" ? "On" : "Unknown", "word": string(o.state),
    "uuid": string(o.uuid)})
login: {kind: none}`,
	"powerOff:\n", "  uuid: string(got.body.uuid).capture(\"(.+)\")\npowerOff:\n",
	`body: {state: "off"}}, sent`, `body: {state: "off", uuid: `+guestUUID+`}}, all: {body: [{id: "1", state: "off", `+
		`uuid: `+guestUUID+`}]}, sent`,
	`want: {state: "Off", word: "off"}`, `want: {state: "Off", word: "off", uuid: `+guestUUID+`}`,
	`change: {got/state: "on"}`, `change: {got/state: "on", all/0/state: "on"}`,
	`want: {state: "On", word: "on"}`, `want: {state: "On", word: "on", uuid: `+guestUUID+`}`,
).Replace(outlets)

// A list's On replaces no question unless it has the identity that a question would read: a power action may trust it.
func TestListIdentity(t *testing.T) {
	for _, tc := range []struct {
		name  string
		entry any
		asks  int32 // questions for the machine itself
	}{
		{"On, with its UUID", object{"id": "1", "state": "on", "uuid": guestUUID}, 0},
		{"On, without a UUID", object{"id": "1", "state": "on", "uuid": ""}, 1},
		{"On, with the UUID of no machine",
			object{"id": "1", "state": "on", "uuid": "00000000-0000-0000-0000-000000000000"}, 1},
		{"On, without a word", object{"id": "1", "state": "", "uuid": guestUUID}, 1},
		{"off", object{"id": "1", "state": "off", "uuid": guestUUID}, 1},
		{"another machine", object{"id": "2", "state": "on", "uuid": guestUUID}, 1},
		{"an entry of another form", object{"id": 1}, 1},
		{"no entry", "1", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asks atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/outlets" {
					_ = json.NewEncoder(w).Encode([]any{tc.entry})
					return
				}
				asks.Add(1)
				_ = json.NewEncoder(w).Encode(object{"state": "on", "uuid": guestUUID})
			}))
			defer server.Close()
			p, _, bad := newOutlet(t, server.URL, listing)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			target := providers.Target{Node: "n1", ID: "1", SystemUUID: guestUUID}
			for _, a := range providers.AskAll(t.Context(), p, "a", []providers.Target{target}, providers.Now) {
				if a.State != providers.PowerOn || a.SystemUUID != guestUUID || a.Err != nil || asks.Load() != tc.asks {
					t.Errorf("got %s of %q, %v after %d questions, want On after %d", a.State, a.SystemUUID, a.Err,
						asks.Load(), tc.asks)
				}
			}
		})
	}
}

// check-config --description refuses a list that says On of a machine that is off.
func TestCheckList(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"no fault", "", "", ""},
		{"the list says On", `o.state == "on" ? "On"`, `o.state != "" ? "On"`,
			"the list says On, and the case wants Off"},
		{"the list cannot be read", `string(o.state)`, `string(o.status)`, "evaluating list.machines"},
		{"a recorded list has one page", "  machines:", "  more: \"true\"\n  machines:", "has one page"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, bad := rest.CheckCases([]byte(strings.Replace(listing, tc.old, tc.new, 1)))
			if got := bad.Error(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// An outlet that the list reports On has power: what was off before says nothing of the time after.
func TestListEndsOffRun(t *testing.T) {
	state := "off"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outlet := object{"id": "1", "state": state, "uuid": guestUUID}
		if r.URL.Path == "/outlets" {
			_ = json.NewEncoder(w).Encode([]any{outlet})
			return
		}
		_ = json.NewEncoder(w).Encode(outlet)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "description.yaml")
	text := strings.Replace(listing, "login: {kind: none}", "feeds: true\nlogin: {kind: none}", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &rest.Config{Description: file, Settings: rest.Settings{Address: server.URL, OffDelay: 5 * time.Second}}
	p, err := c.New(providers.Options{Name: "a", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	target := providers.Target{Node: "n1", ID: "1", SystemUUID: guestUUID}
	for _, step := range []struct {
		after time.Duration
		state string
		want  providers.PowerState
	}{
		{0, "off", providers.PowerChanging},
		{4 * time.Second, "on", providers.PowerOn},
		{2 * time.Second, "off", providers.PowerChanging},
		{5 * time.Second, "off", providers.PowerOff},
	} {
		now, state = now.Add(step.after), step.state
		all, err := p.(providers.BatchStater).States(t.Context(), []providers.Target{target})
		if got := all[target.Key()]; err != nil || got.State != step.want {
			t.Errorf("%s after %s: got %s (%s), %v, want %s", step.state, step.after, got.State, got.Raw, err,
				step.want)
		}
	}
}
