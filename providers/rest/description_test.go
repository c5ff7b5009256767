package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers/rest"
)

// outlets is a description without a fault.
const outlets = `name: outlets
off: the outlet is off
identity: none
id: '(?P<outlet>[0-9]+)'
login: {kind: basic}
state:
  requests:
  - name: got
    send: GET /outlets/{outlet}
  power: >-
    got.body.state == "off" ? {"state": "Off", "word": "off"} :
    got.body.state == "on" ? {"state": "On", "word": "on"} :
    got.body.state == "switching" ? {"state": "Changing", "word": "switching"} :
    {"state": "Unknown", "word": string(got.body.state)}
powerOff:
  requests:
  - {name: sent, send: "PUT /outlets/{outlet}", json: {state: "off"}}
  accepted: sent.status == 200
powerOn:
  requests:
  - {name: sent, send: "PUT /outlets/{outlet}", json: {state: "on"}}
  accepted: sent.status == 200
cases:
- name: "off"
  id: "1"
  answers: {got: {header: {X-Power: "0"}, body: {state: "off"}}, sent: {body: {}}}
  want: {state: "Off", word: "off"}
- name: "on"
  like: "off"
  change: {got/state: "on"}
  want: {state: "On", word: "on"}
`

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, old, new string
		want           string // faults, each as line: path: the beginning of the text
	}{
		{"no fault", "", "", ""},
		{"unknown key", "login:", "logon: 1\nlogin:", "5: logon: unknown key"},
		{"no mapping", outlets, "- 1", "1: is no description"},
		{"two documents", "cases:", "---\ncases:", "1: several documents"},
		{"an alias", `id: '(?P<outlet>[0-9]+)'`, "id: &a x", "4: anchors and aliases"},
		{"a key twice", "identity: none", "identity: none\noff: x", "4: mapping key"},
		{"no name", "name: outlets", "name: ''", "1: name: missing"},
		{"no expression of power", "  power: >-", "  uuid: >-", "6: state.power: missing; 10: state.uuid: gives map"},
		{"an expression that matches no text", "id: '(?P<outlet>[0-9]+)'", "id: '(?P<outlet>[0-9]*)'",
			"4: id: matches an empty text"},
		{"no ID, and no address either", "id: '(?P<outlet>[0-9]+)'\n", "", "1: id: missing; 7: " +
			"state.requests[0]: {outlet}; 16: powerOff.requests[0]: {outlet}; 20: powerOn.requests[0]: {outlet}"},
		{"an unnamed group", "(?P<outlet>[0-9]+)", "([0-9]+)",
			"4: id: has a group without a name; 8: state.requests[0]: {outlet} is no variable here; " +
				"17: powerOff.requests[0]: {outlet}; 21: powerOn.requests[0]: {outlet}"},
		{"another answer's name", "name: got", "name: outlet", "8: state.requests[0].name: there is a variable; 10: " +
			"state.power: not a CEL"},
		{"a name of a secret", "name: got", "name: password", "8: state.requests[0].name: the variable; 10: " +
			"state.power: not a CEL"},
		{"a question that acts", "send: GET", "send: POST", "9: state.requests[0].send: sends POST"},
		{"another host", "GET /outlets/", "GET //evil.example.net/", "9: state.requests[0].send: the path must begin"},
		{"another scheme", "GET /outlets/", "GET https://evil.example.net/", "9: state.requests[0].send: the path " +
			"must"},
		{"an unknown variable", "GET /outlets/{outlet}", "GET /outlets/{password}", "8: state.requests[0]: " +
			"{password} is no"},
		{"an answer's field that no answer has", "got.body.state == \"off\"", "got.bdy.state == \"off\"",
			"10: state.power: not a CEL expression: at character 4: undefined field 'bdy'"},
		{"an action that acts not", "PUT /outlets/{outlet}\", json: {state: \"off\"}", "GET /outlets/{outlet}\"",
			"16: powerOff.requests: has no request that acts"},
		{"an expected 401", "    send: GET", "    expect: [200, 401]\n    send: GET", "9: state.requests[0].expect: " +
			"401 cannot"},
		{"a question that is left out sometimes", "    send: GET", "    when: outlet != \"1\"\n    send: GET", ""},
		{"a question that is left out by a number", "    send: GET", "    when: \"1\"\n    send: GET",
			"9: state.requests[0].when: gives int, must give bool"},
		{"a question that is left out by its own answer", "    send: GET", "    when: got.status == 200\n    send: GET",
			"9: state.requests[0].when: not a CEL expression"},
		{"a variable that may be left out", "    send: GET",
			"    when: outlet != \"1\"\n    set: {x: string(got.body)}\n    send: GET",
			"9: state.requests[0].when: has no effect"},
		{"a power-off that is left out", `name: sent, send: "PUT /outlets/{outlet}", json: {state: "off"}`,
			`name: sent, when: outlet != "1", send: "PUT /outlets/{outlet}", json: {state: "off"}`,
			"17: powerOff.requests[0].when: has no effect"},
		{"an unknown login", "kind: basic", "kind: ntlm", `5: login.kind: is "ntlm"`},
		{"half a login", "kind: basic", "kind: header, header: X-Token", "5: login.value: missing"},
		{"a login's setting without effect", "kind: basic", "kind: basic, token: x", "5: login.token: has no effect"},
		{"a status that cannot mean wrong credentials", "kind: basic", "kind: basic, refused: [500]",
			"5: login.refused: 500 cannot"},
		{"a number that is no variable", `{state: "off"}}`, `{state: "{room:number}"}}`,
			"17: powerOff.requests[0]: {room} is no variable"},
		{"a key's token endpoint in clear text", "kind: basic",
			"kind: serviceAccount, scopes: [a], tokenURL: 'http://login.example.net/token'",
			"5: login.tokenURL: must be"},
		{"a key's token endpoint with a style", "kind: basic",
			"kind: serviceAccount, scopes: [a], style: params, tokenURL: 'https://login.example.net/token'",
			"5: login.style: has no effect"},
		{"a metadata server at another host", "kind: basic",
			"kind: metadata, metadata: {send: GET //login.example.net/token}", "5: login.metadata.send: the path"},
		{"a metadata server that gets a password", "kind: basic",
			"kind: metadata, metadata: {send: 'GET /token?key={password}'}", "5: login.metadata: {password} is no"},
		{"a metadata server that gets a POST", "kind: basic", "kind: metadata, metadata: {send: POST /token}",
			"5: login.metadata.send: sends POST"},
		{"a metadata server and a user", "kind: basic", "kind: basic, metadata: {send: GET /token}",
			"5: login.metadata: has no effect"},
		{"no request to the metadata server", "kind: basic", "kind: metadata", "5: login.metadata: missing"},
		{"a log-in's address that is no value", "kind: basic", "kind: token, header: A, value: '{token}', " +
			"lifetime: 1h, token: login.body, request: {send: POST /}, address: id",
			`5: login.address: there is no value "id"`},
		{"an optional part without a variable", "/outlets/{outlet}\n  power", "/outlets[/x]/{outlet}\n  power",
			"9: state.requests[0].send: an optional part"},
		{"an optional part of two variables", "/outlets/{outlet}\n  power", "/outlets[/{outlet}/{outlet}]\n  power",
			"9: state.requests[0].send: an optional part"},
		{"an optional part inside a segment", "/outlets/{outlet}\n  power", "/outlets[-{outlet}]\n  power",
			"9: state.requests[0].send: an optional part"},
		{"an optional part", "/outlets/{outlet}\n  power", "/outlets[/x/{outlet}]\n  power", ""},
		{"a risk without a value that has none", "login: {kind: basic}", "values: {guess: {what: x, risk: y}}\n" +
			"login: {kind: basic}", "5: values.guess.risk: needs a default"},
		{"a list of devices with one machine each", "login: {kind: basic}",
			"addressIDs: true\nlist: {request: {name: all, send: GET /outlets}, machines: all.body}\n" +
				"login: {kind: basic}",
			"6: list: has no effect"},
		{"a list that acts", "login: {kind: basic}",
			"list: {request: {name: all, send: POST /outlets}, machines: all.body}\nlogin: {kind: basic}",
			"5: list.request.send: sends POST"},
		{"a page of a list with one page", "login: {kind: basic}",
			"list: {request: {name: all, send: 'GET /outlets?page={page}'}, machines: all.body}\nlogin: {kind: basic}",
			"5: list.request: {page} is no variable"},
		{"events", "login:", "events: {request: {send: GET /events}, about: event.body.id}\nlogin:", ""},
		{"events of one machine", "login:",
			"events: {request: {send: 'GET /{outlet}'}, about: event.body.id}\n" + "login:",
			"5: events.request: {outlet} is no variable"},
		{"events that are read by another answer", "login:",
			"events: {request: {send: GET /}, about: got.body}\n" + "login:",
			"5: events.about: not a CEL expression"},
		{"events that are about a number", "login:",
			"events: {request: {send: GET /}, about: event.status}\n" + "login:",
			"5: events.about: gives int, must give string"},
		{"events with a body", "login:",
			"events: {request: {send: GET /, json: {a: b}}, about: event.body.id}\n" + "login:",
			"5: events.request: has only send and header"},
		{"events that are about nothing", "login:", "events: {request: {send: GET /}}\nlogin:",
			"5: events.about: missing"},
		{"events that act", "login:", "events: {request: {send: POST /}, about: event.body.id}\nlogin:",
			"5: events.request.send: sends POST"},
		{"events of what supplies power", "login:", "feeds: true\nevents: {request: {send: GET /}, " +
			"about: event.body.id}\nlogin:", "6: events: have no effect with feeds"},
		{"a token endpoint that a variable chooses", "kind: basic",
			"kind: oauth2, style: params, tokenURL: 'https://{outlet}/token'", "5: login.tokenURL: {outlet}; 5: " +
				"login.tokenURL: must"},
		{"a token endpoint in clear text", "kind: basic",
			"kind: oauth2, style: params, tokenURL: 'http://login.example.net/token'", "5: login.tokenURL: must be " +
				"https"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := outlets
			if tc.old != "" {
				text = strings.Replace(outlets, tc.old, tc.new, 1)
			}
			f, bad := rest.Parse([]byte(text))
			if (f == nil) != (tc.want != "") {
				t.Errorf("got a family %t", f != nil)
			}
			wants := strings.Split(tc.want, "; ")
			for i, b := range bad {
				if i >= len(wants) || tc.want == "" || !strings.HasPrefix(b.Error(), wants[i]) {
					t.Errorf("got %q, want %q", b.Error(), tc.want)
				}
			}
			if tc.want != "" && len(bad) < len(wants) {
				t.Errorf("got %d faults (%v), want %q", len(bad), bad, tc.want)
			}
		})
	}
}

// A question with `when` is asked if that is true. Without its answer an expression that needs it fails.
func TestLeftOutQuestions(t *testing.T) {
	for _, tc := range []struct{ name, when, want string }{
		{"asked of what is off", `'got.body.state == "off"'`, ""},
		{"asked of what is on", `'got.body.state == "on"'`, `error "unreachable" (evaluating state.power`},
		{"asked of nothing", `"false"`, `error "unreachable" (evaluating state.power`},
		{"asked by a value that is missing", `got.body.idle`, `error "unreachable" (evaluating when of more`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, bad := rest.CheckCases([]byte(strings.NewReplacer(
				"  power: >-", "  - {name: more, send: GET /more, when: "+tc.when+"}\n  power: >-",
				`got.body.state == "off" ?`, `got.body.state == "off" && more.body.idle == true ?`,
				"sent: {body: {}}}", "sent: {body: {}}, more: {body: {idle: true}}}",
			).Replace(outlets)))
			if got := bad.Error(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// CheckCases reports what a description makes of an answer that proves nothing.
func TestCheckCases(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"no fault", "", "", ""},
		{"everything but on is off", `got.body.state == "off" ?`, `got.body.state != "on" ?`,
			`is Off if got/state is null`},
		{"a missing state is off", `got.body.state == "off" ?`, `!has(got.body.state) || got.body.state == "off" ?`,
			`is Off even if got/state is missing`},
		{"a state that begins so is off", `got.body.state == "off" ?`, `got.body.state.startsWith("off") ?`,
			"is Off even if got/state is the word with a blank"},
		{"null is off", `got.body.state == "off" ?`, `got.body.state == "off" || got.body.state == null ?`,
			`is Off even if got/state is null`},
		{"a text in a list is off", `got.body.state == "off" ?`, `got.body.state == "off" || got.body.state == ` +
			`["off"] ?`,
			`is Off even if got/state is a list around it`},
		{"404 is off", "  power: >-", "    expect: [200, 404]\n  power: >-\n    got.status == 404 ? {\"state\": " +
			"\"Off\", \"word\": " +
			"\"gone\"} :", "is Off even if the answer to got is HTTP status 404"},
		{"a missing header is off", `got.body.state == "off" ?`, `got.body.state == "off" && ` +
			`got.header[?"x-power"].orValue("0") == "0" ?`, "is Off with another header X-Power of got"},
		{"another result", `want: {state: "On", word: "on"}`, `want: {state: "On", word: "up"}`,
			`got the word "on", want "up"`},
		{"a UUID that no case wants", "  power: >-", "  uuid: \"'0f0f0f0f-1e1e-4d4d-8c8c-2b2b2b2b2b2b'\"\n  power: >-",
			`got the UUID "0f0f0f0f-1e1e-4d4d-8c8c-2b2b2b2b2b2b", want ""`},
		{"a path that leads nowhere", "change: {got/state:", "change: {gone/state:",
			"leads to nothing in the answers: write"},
		{"a state for an error", `want: {state: "On", word: "on"}`, "want: {error: denied}",
			"which goes with an error"},
		{"no case of On", `want: {state: "On", word: "on"}`, `want: {state: "Off", word: "on"}`, "no case wants On"},
		{"no answer", "answers: {got:", "answers: {gut:", "no request has the name"},
		{"a list without an answer", "login: {kind: basic}", "list: {request: {name: all, send: GET /outlets}, " +
			"machines: 'all.body.map(o, {\"id\": string(o.id), \"state\": \"On\", \"word\": \"on\"})'}\n" +
			"login: {kind: basic}", "no answer to all, which lists all machines"},
		{"an unknown like", `like: "off"`, `like: "of"`, "no case before this one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := strings.Replace(outlets, tc.old, tc.new, 1)
			report, bad := rest.CheckCases([]byte(text))
			switch {
			case tc.want == "" && (len(bad) > 0 || report.Cases != 2 || report.Mutations < 20):
				t.Errorf("got %v, %+v", bad, report)
			case tc.want != "" && !strings.Contains(fmt.Sprint(bad.Error()), tc.want):
				t.Errorf("got %v, want %q", bad, tc.want)
			}
		})
	}
}
