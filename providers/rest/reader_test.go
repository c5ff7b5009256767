package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/rest"
)

// The descriptions of APIs that are part of the program have no fault.
func TestReadings(t *testing.T) {
	for _, name := range []string{"storageos", "linstor"} {
		if _, _, bad := rest.ParseReading[any](rest.FindReading(name)); len(bad) > 0 {
			t.Errorf("%s: %v", name, bad)
		}
	}
	for _, name := range []string{"", "none", "../presets/proxmox"} {
		if text := rest.FindReading(name); text != nil {
			t.Errorf("%q: got %d bytes, want none", name, len(text))
		}
	}
}

const groups = `
name: groups
login: {kind: none}
requests:
- {name: all, send: GET /groups}
- {name: members, send: "GET /groups/{group}/members", each: {group: "all.body.map(g, string(g))"}}
- {name: last, send: GET /last}
`

func TestParseReading(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"without a fault", "", "", ""},
		{"no name", "name: groups", "", "name: write lower-case"},
		{"no requests", "requests" + strings.SplitN(groups, "requests", 2)[1], "", "requests: missing"},
		{"an unknown key", "login:", "find: []\nlogin:", "find: unknown key"},
		{"a request that acts", "GET /last", "DELETE /last", "requests[2].send: sends DELETE"},
		{"a name twice", "name: last", "name: members", `requests[2].name: there is a variable or an answer "members"`},
		{"two variables", "{group: ", "{other: 'all.body.map(g, string(g))', group: ",
			"requests[1].each: has several variables"},
		{"no list of texts", "all.body.map(g, string(g))", "all.body", ""}, // of which evaluation decides
		{"a number", "all.body.map(g, string(g))", "all.status", "requests[1].each.group: gives int"},
		{"a later answer", "all.body.map(g, string(g))", "last.body.map(g, string(g))",
			"undeclared reference to 'last'"},
		{"a variable that is used later", "GET /last", `"GET /last/{group}"`, "requests[2]: {group} is no variable"},
		{"set beside each", "each: {", "set: {x: members.body.x}, each: {", "requests[1].set: has no effect"},
		{"the name of an answer", "{group: ", "{all: ", `there is a variable or an answer "all"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, bad := rest.ParseReading[struct{}]([]byte(strings.Replace(groups, tc.old, tc.new, 1)))
			if got := bad.Error(); (len(bad) > 0) != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A request with each is sent once for each text, within its segment of the path. If one answer is missing, there is
// no result.
func TestReadEach(t *testing.T) {
	many := make([]any, 1001)
	for i := range many {
		many[i] = fmt.Sprint("g", i)
	}
	for _, tc := range []struct {
		name   string
		groups any
		want   string // the objects, or the class of the error
		asked  []string
	}{
		{"two", []any{"a", "b"}, "[a-1 a-2 b-1 b-2] <nil>",
			[]string{"/groups", "/groups/a/members", "/groups/b/members", "/last"}},
		{"none", []any{}, "[] <nil>", []string{"/groups", "/last"}},
		{"twice", []any{"a", "a"}, "[a-1 a-2] <nil>", []string{"/groups", "/groups/a/members", "/last"}},
		{"another segment", []any{"a/../b"}, "[a/../b-1 a/../b-2] <nil>",
			[]string{"/groups", "/groups/a%2F..%2Fb/members", "/last"}},
		{"a parent", []any{".."}, "permanent", []string{"/groups"}},
		{"an empty text", []any{""}, "permanent", []string{"/groups"}},
		{"no text", []any{"a", nil}, "unreachable", []string{"/groups"}},
		{"no list", map[string]any{"a": 1}, "[a-1 a-2] <nil>", []string{"/groups", "/groups/a/members", "/last"}},
		{"a word", "a", "unreachable", []string{"/groups"}},
		{"too many", many, "unreachable", []string{"/groups"}},
		{"one that is gone", []any{"a", "gone", "b"}, "not_found",
			[]string{"/groups", "/groups/a/members", "/groups/gone/members"}},
		{"one without a list", []any{"odd"}, "unreachable", []string{"/groups", "/groups/odd/members", "/last"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				asked = append(asked, r.URL.EscapedPath())
				mu.Unlock()
				parts := strings.Split(r.URL.EscapedPath(), "/")
				var body any = map[string]any{"ok": true}
				switch {
				case r.URL.Path == "/groups":
					body = tc.groups
				case len(parts) == 4 && parts[2] == "gone":
					w.WriteHeader(http.StatusNotFound)
				case len(parts) == 4 && parts[2] != "odd":
					name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/groups/"), "/members")
					body = []any{name + "-1", name + "-2"}
				}
				_ = json.NewEncoder(w).Encode(body)
			}))
			defer server.Close()
			api, _, bad := rest.ParseReading[struct{}]([]byte(groups))
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			list, err := api.CompileList("members.map(g, members[g].body).flatten()")
			if err != nil {
				t.Fatal(err)
			}
			c := rest.ReaderConfig{Address: server.URL}
			if bad := c.Validate(api); len(bad) > 0 {
				t.Fatal(bad)
			}
			r := api.NewReader(c, map[string]rest.Listing{"m": list}, providers.Options{Name: "it"})
			all, err := r.Read(context.Background())
			slices.SortFunc(all["m"], func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			got := fmt.Sprint(all["m"], err)
			if err != nil {
				got = providers.ErrorClass(err)
			}
			if got != tc.want {
				t.Errorf("got %s (%v), want %s", got, err, tc.want)
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked: got %q, want %q", asked, tc.asked)
			}
		})
	}
}
