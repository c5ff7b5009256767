package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
)

// hetzner is a project with 120 servers, as hcloud-go's package schema describes answers. Server 42 is the machine.
func hetzner() *fake {
	const servers, perPage = 120, 50
	return &fake{login: "bearer", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			machine := func(id int) object {
				ip := fmt.Sprintf("203.0.113.%d", id)
				if id == 42 && f.fault == providertest.OtherMachine {
					ip = "203.0.113.199"
				}
				s := object{"id": id, "name": fmt.Sprintf("n%d", id), "status": "running", "locked": false,
					"public_net":  object{"ipv4": object{"ip": ip}, "ipv6": object{"ip": "2001:db8::/64"}},
					"private_net": []object{}}
				switch {
				case id != 42:
				case f.word == "locked":
					s["status"], s["locked"] = "off", true
				case f.word != "" && f.word != "twice" && f.word != "endless":
					s["status"] = f.word
				case f.changing:
					s["status"] = "stopping"
				case !f.on:
					s["status"] = "off"
				}
				return s
			}
			if r.Method == http.MethodGet && r.URL.Path == "/v1/servers" {
				page, _ := strconv.Atoi(r.URL.Query().Get("page"))
				all := []object{}
				for id := (page-1)*perPage + 1; id <= min(page*perPage, servers); id++ {
					all = append(all, machine(id))
				}
				var next any
				if page*perPage < servers || f.word == "endless" {
					next = page + 1
				}
				if f.word == "twice" {
					all = append(all, machine(42))
				}
				return http.StatusOK, object{"servers": all, "meta": object{"pagination": object{"next_page": next}}}
			}
			id, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/servers/"), "/")
			n, err := strconv.Atoi(id)
			switch {
			case err != nil || n > servers:
				return http.StatusNotFound, object{"error": object{"code": "not_found"}}
			case r.Method == http.MethodGet:
				return http.StatusOK, object{"server": machine(n)}
			case action == "actions/poweroff" || action == "actions/poweron":
				f.setPower(action == "actions/poweron")
				return http.StatusCreated, object{"action": object{"id": 7, "status": "running", "error": nil}}
			}
			return http.StatusNotFound, object{"error": object{"code": "not_found"}}
		}}
}

var hetznerPreset = preset{
	name: "hetzner", strange: "Off", new: hetzner, missing: "hcloud://999",
	target: providers.Target{
		Node: "n42", ID: "hcloud://42", Addresses: providers.NewAddresses("203.0.113.42", "10.0.0.42"),
	},
}

func TestHetznerConformance(t *testing.T) {
	hetznerPreset.suite(t, providertest.Options{})
}

func TestHetznerPitfalls(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*fake)
		want string // state and word, or the error's class
	}{
		{"off", func(f *fake) { f.on = false }, `Off "off"`},
		{"off, while an action runs", func(f *fake) { f.word = "locked" }, `Changing "off, locked"`},
		{"its host is down, and the state is the last one", func(*fake) {}, `On "running"`},
		{"no state", func(f *fake) { f.word = "unknown" }, `Unknown "unknown"`},
		{"a migration to another host", func(f *fake) { f.word = "migrating" }, `Changing "migrating"`},
		{"another server's addresses", func(f *fake) { f.on, f.fault = false, providertest.OtherMachine }, "identity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := hetznerPreset.ask(t, tc.edit); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// One look at many machines reads the list, and asks for those alone that are not exactly once in it, and On.
func TestList(t *testing.T) {
	const pages = "/v1/servers?page="
	for _, tc := range []struct {
		name  string
		edit  func(*fake)
		ids   []string
		want  map[string]string // state, or the error's class
		asked []string          // servers that were asked for on their own
		pages int
		class string // of the whole call's error
	}{
		{name: "all run", edit: func(*fake) {}, ids: []string{"hcloud://42", "hcloud://43", "hcloud://120"}, pages: 3,
			want: map[string]string{"hcloud://42": "On", "hcloud://43": "On", "hcloud://120": "On"}},
		{name: "one is off", edit: func(f *fake) { f.on = false },
			ids: []string{"hcloud://42", "hcloud://43"}, pages: 3,
			want: map[string]string{"hcloud://42": "Off", "hcloud://43": "On"}, asked: []string{"42"}},
		{name: "one is not there", edit: func(*fake) {}, ids: []string{"hcloud://42", "hcloud://500"}, pages: 3,
			want: map[string]string{"hcloud://42": "On", "hcloud://500": "not_found"}, asked: []string{"500"}},
		{name: "one is in the list twice", edit: func(f *fake) { f.word = "twice" },
			ids: []string{"hcloud://42", "hcloud://43"}, pages: 3,
			want: map[string]string{"hcloud://42": "On", "hcloud://43": "On"}, asked: []string{"42"}},
		{name: "the list does not end", edit: func(f *fake) { f.word = "endless" },
			ids: []string{"hcloud://42", "hcloud://43"}, pages: 100,
			want: map[string]string{"hcloud://42": "On", "hcloud://43": "On"}, asked: []string{"42", "43"}},
		{name: "an ID of another type", edit: func(*fake) {}, ids: []string{"hcloud://42", "i-0abc"}, pages: 3,
			want: map[string]string{"hcloud://42": "On", "i-0abc": "permanent"}},
		{name: "the token is wrong", edit: func(f *fake) { f.login = "none of them" },
			ids: []string{"hcloud://42", "hcloud://43"}, pages: 1, class: "denied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := hetzner()
			f.on, f.password, f.changed = true, "hunter2", make(chan struct{})
			tc.edit(f)
			server := httptest.NewServer(f)
			defer server.Close()
			p, _, _ := hetznerPreset.open(t, f, server.URL, nil)
			defer func() { _ = p.(providers.Closer).Close(t.Context()) }()
			var targets []providers.Target
			for _, id := range tc.ids {
				ips := providers.NewAddresses("203.0.113." + strings.TrimPrefix(id, "hcloud://"))
				targets = append(targets, providers.Target{Node: "n" + id, ID: id, Addresses: ips})
			}
			if _, err := p.(providers.BatchStater).States(t.Context(), targets); tc.class != "" {
				if got := providers.ErrorClass(err); got != tc.class || len(f.asked) != tc.pages {
					t.Errorf("got %v after %q, want %s", err, f.asked, tc.class)
				}
				return
			}
			f.edit(func(f *fake) { f.asked = nil })
			for i, a := range providers.AskAll(t.Context(), p, "a", targets, providers.Now) {
				got := a.State.String()
				if a.Err != nil {
					got = providers.ErrorClass(a.Err)
				}
				if id := tc.ids[i]; got != tc.want[id] {
					t.Errorf("%s: got %s (%v), want %s", id, got, a.Err, tc.want[id])
				}
			}
			var asked []string
			read := 0
			for _, path := range f.asked {
				if path = strings.TrimPrefix(path, "GET "); strings.HasPrefix(path, pages) {
					read++
				} else {
					asked = append(asked, strings.TrimPrefix(path, "/v1/servers/"))
				}
			}
			if slices.Sort(asked); read != tc.pages || !slices.Equal(asked, tc.asked) {
				t.Errorf("got %d pages, and questions for %q; want %d, %q", read, asked, tc.pages, tc.asked)
			}
		})
	}
}
