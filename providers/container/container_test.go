package container_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/container"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	anID  = "822995a7dc68b9b9fff3b1166f92a206679e7c54dee79e327b0ed516b1517a70"
	ended = `"Status":"exited","Running":false,"Paused":false,"Restarting":false,"Dead":false,` +
		`"Pid":0,"ExitCode":137,"StartedAt":"2026-11-22T12:54:01.3Z"`
)

// answer is an inspected container as Docker 20.10 writes it, with fields replaced.
func answer(replace ...string) string {
	return strings.NewReplacer(replace...).
		Replace(`{"Id":"` + anID + `","Name":"/node-1","State":{` + ended + `},"HostConfig":{"PidMode":""}}`)
}

// scripted is an engine that answers so.
func scripted(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	socket := filepath.Join(kit.SocketDir(t), "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	s := httptest.NewUnstartedServer(h)
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return socket
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
}

// A container is off only if its state, flags, process, exit code and namespace agree.
func TestContainerState(t *testing.T) {
	const on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging,
		providers.PowerUnknown
	word := func(w string) string { return answer(`"exited"`, `"`+w+`"`) }
	for _, tt := range []struct {
		name, body string
		want       providers.PowerState
		raw        string
	}{
		{"killed", answer(), off, "exited"},
		{"ended well", answer("137", "0"), off, "exited"},
		{"Podman's", answer(`"PidMode":""`, `"PidMode":"private"`), off, "exited"},
		{"never started", word("created"), off, "created"},
		{"lost by Docker with live-restore while it ran on (measured)", answer("137", "255"), unknown,
			"exited, but the engine did not see its end (255)"},
		{"created, and lost", answer(`"exited"`, `"created"`, "137", "255"), unknown,
			"created, but the engine did not see its end (255)"},
		{"no exit code", answer(`"ExitCode":137,`, ""), unknown, "exited, but the engine did not see its end (255)"},
		{"a process", answer(`"Pid":0`, `"Pid":4711`), unknown, "exited, but it has a process"},
		{"no word of processes", answer(`"Pid":0,`, ""), unknown, "exited, but it has a process"},
		{"running all the same", answer(`"Running":false`, `"Running":true`), unknown,
			"exited, but its flags disagree"},
		{"paused all the same", answer(`"Paused":false`, `"Paused":true`), unknown, "exited, but its flags disagree"},
		{"restarting all the same", answer(`"Restarting":false`, `"Restarting":true`), unknown,
			"exited, but its flags disagree"},
		{"dead all the same", answer(`"Dead":false`, `"Dead":true`), unknown, "exited, but its flags disagree"},
		{"no flag", answer(`"Running":false,`, ""), unknown, "exited, but its flags disagree"},
		{"a null flag", answer(`"Running":false`, `"Running":null`), unknown, "exited, but its flags disagree"},
		{"the host's processes", answer(`"PidMode":""`, `"PidMode":"host"`), unknown,
			"exited, but it shared its processes' namespace"},
		{"another container's processes", answer(`"PidMode":""`, `"PidMode":"container:x"`), unknown,
			"exited, but it shared its processes' namespace"},
		{"no word of the namespace", answer(`"PidMode":""`, ""), unknown,
			"exited, but it shared its processes' namespace"},
		{"running", word("running"), on, "running"},
		{"paused", word("paused"), on, "paused"},
		{"restarting", word("restarting"), on, "restarting"},
		{"removing", word("removing"), changing, "removing"},
		{"stopping", word("stopping"), changing, "stopping"},
		{"stopped, Podman's before its clean-up", word("stopped"), changing, "stopped"},
		{"dead: its removal failed", word("dead"), unknown, "dead"},
		{"another spelling", word("Exited"), unknown, "Exited"},
		{"configured", word("configured"), unknown, "configured"},
		{"no word", word(""), unknown, ""},
	} {
		p := newProvider(t, scripted(t, saying(http.StatusOK, tt.body)))
		a := ask(t, p, providers.Target{Node: "n1", ID: "node-1"})
		if a.State != tt.want || a.Raw != tt.raw || a.Err != nil {
			t.Errorf("%s: got %s (%q), %v; want %s (%q)", tt.name, a.State, a.Raw, a.Err, tt.want, tt.raw)
		}
		if want := anID[:12] + " 2026-11-22T12:54:01.3Z"; a.Run != want {
			t.Errorf("%s: got run %q, want %q", tt.name, a.Run, want)
		}
	}
}

// What is no answer about that container is an error of its class.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		class  error
	}{
		{"half", 200, answer()[:200], providers.ErrUnreachable},
		{"empty", 200, "", providers.ErrUnreachable},
		{"a web page", 200, "<html>", providers.ErrUnreachable},
		{"something else", 200, "{}", providers.ErrPermanent},
		{"no ID", 200, answer(anID, ""), providers.ErrPermanent},
		{"an ID that leads elsewhere", 200, answer(anID, "../containers/node-2"), providers.ErrPermanent},
		{"another container", 200, answer("/node-1", "/node-10"), providers.ErrNotFound},
		{"no name", 200, answer("/node-1", ""), providers.ErrNotFound},
		{"404", 404, `{"message":"No such container: node-1"}`, providers.ErrNotFound},
		{"off beside a 404", 404, answer(), providers.ErrNotFound},
		{"403 of a filter", 403, "Forbidden", providers.ErrDenied},
		{"400, an API version that is too old", 400, `{"message":"client version 1.24 is too old"}`,
			providers.ErrPermanent},
		{"500", 500, `{"message":"` + strings.Repeat("\xff", 1000) + `"}`, providers.ErrUnreachable},
		{"elsewhere", 302, "", providers.ErrPermanent},
		{"no content", 204, "", providers.ErrPermanent},
	} {
		p := newProvider(t, scripted(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/containers/node-1/json" {
				t.Errorf("%s: it asked for %s", tt.name, r.URL)
			}
			w.Header().Set("Location", "/elsewhere")
			saying(tt.status, tt.body)(w, r)
		}))
		of := providers.Target{Node: "n1", ID: "node-1"}
		expectClass(t, p, of, tt.class)
		for _, call := range []error{
			p.PowerOff(t.Context(), of, providertest.AllowSend), p.PowerOn(t.Context(), of, providertest.AllowSend)} {
			if !errors.Is(call, tt.class) || len(call.Error()) > 500 {
				t.Errorf("%s: got %v, want %v", tt.name, call, tt.class)
			}
		}
	}
	gone := newProvider(t, filepath.Join(t.TempDir(), "none"))
	expectClass(t, gone, providers.Target{Node: "n1", ID: "node-1"}, providers.ErrUnreachable)
}

// What is acted on is what was looked at, and only where that may be.
func TestActs(t *testing.T) {
	running := answer(`"exited"`, `"running"`, `"Running":false`, `"Running":true`, `"Pid":0`, `"Pid":7`)
	another := strings.Replace(answer(), anID, strings.Repeat("0", 64), 1)
	for _, tt := range []struct {
		name          string
		first, second string // what inspect answers before the act, and after
		status        int    // of the act
		off           bool   // PowerOff; else PowerOn
		sent          string
		want          error
	}{
		{"off", running, running, 204, true, "kill", nil},
		{"off already", answer(), answer(), 204, true, "", nil},
		{"off meanwhile, says Docker", running, answer(), 409, true, "kill", nil},
		{"ended and not cleaned up, says Podman", running, answer(`"exited"`, `"stopped"`), 500, true, "kill", nil},
		{"not off", running, running, 500, true, "kill", providers.ErrUnreachable},
		{"refused", running, running, 403, true, "kill", providers.ErrDenied},
		{"a word of success that is none", running, running, 200, true, "kill", providers.ErrPermanent},
		{"another has the name now", running, another, 409, true, "kill", providers.ErrPermanent},
		{"lost: killing it is tried", answer("137", "255"), answer("137", "255"), 409, true, "kill",
			providers.ErrPermanent},
		{"on", answer(), running, 204, false, "start", nil},
		{"on already", running, running, 304, false, "", nil},
		{"on meanwhile", answer(), running, 304, false, "start", nil},
		{"on meanwhile, refused", answer(), running, 409, false, "start", nil},
		{"not on", answer(), answer(), 500, false, "start", providers.ErrUnreachable},
		{"lost: what is left of it would run beside it", answer("137", "255"), running, 204, false, "",
			providers.ErrPermanent},
		{"dead", answer(`"exited"`, `"dead"`), running, 204, false, "", providers.ErrPermanent},
	} {
		sent := ""
		p := newProvider(t, scripted(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				sent += strings.TrimPrefix(r.URL.String(), "/containers/"+anID+"/")
				saying(tt.status, "")(w, r)
			case sent == "":
				saying(http.StatusOK, tt.first)(w, r)
			default:
				saying(http.StatusOK, tt.second)(w, r)
			}
		}))
		call := p.PowerOn
		if tt.off {
			call = p.PowerOff
		}
		if err := call(t.Context(), providers.Target{Node: "n1", ID: "node-1"}, providertest.AllowSend); !errors.Is(err,
			tt.want) || sent != tt.sent {
			t.Errorf("%s: sent %q, got %v; want %q, %v", tt.name, sent, err, tt.sent, tt.want)
		}
	}
}

// A power action that is refused after the look sends nothing.
func TestRefusedPowerAction(t *testing.T) {
	looks, sent := 0, 0
	says := func(word string, runs bool, pid int) string {
		return fmt.Sprintf(
			`{"Id":"%s","Name":"/node-1","State":{"Status":"%s","Running":%t,"Paused":false,"Restarting":false,`+
				`"Dead":false,"Pid":%d,"ExitCode":0},"HostConfig":{"PidMode":""}}`, anID, word, runs, pid)
	}
	running, exited := says("running", true, 7), says("exited", false, 0)
	word := running
	p := newProvider(t, scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sent++
			saying(http.StatusNoContent, "")(w, r)
			return
		}
		looks++
		saying(http.StatusOK, word)(w, r)
	}))
	refuse := func() error {
		if looks == 0 {
			t.Error("still was called before the look")
		}
		return errors.New("no longer the leader")
	}
	n1 := providers.Target{Node: "n1", ID: "node-1"}
	if err := p.PowerOff(t.Context(), n1, refuse); !errors.Is(err, providers.ErrNotSent) || sent != 0 {
		t.Errorf("PowerOff: got %v, %d requests were sent", err, sent)
	}
	word, looks = exited, 0
	if err := p.PowerOn(t.Context(), n1, refuse); !errors.Is(err, providers.ErrNotSent) || sent != 0 {
		t.Errorf("PowerOn: got %v, %d requests were sent", err, sent)
	}
}

// Events that are not about power, about other containers or garbled are not reported.
func TestIrrelevantEvents(t *testing.T) {
	stream := strings.Join([]string{
		`{"Type":"container","Action":"exec_die","Actor":{"Attributes":{"name":"node-1"}}}`,
		`{"Type":"container","Action":"kill","Actor":{"Attributes":{"name":"node-1"}}}`,
		`{"Type":"network","Action":"destroy","Actor":{"Attributes":{"name":"node-1"}}}`,
		`{"Type":"container","Action":"die","Actor":{"Attributes":{"name":"node-2","Name":"node-1"}}}`, // a label
		`{"Type":"container","Action":"die"}`,
		`{"Type":"container","Action":"died","Actor":{"Attributes":{"name":"node-1"}}}`,
		`{"Type":"container","Action":"destroy","Actor":{"Attributes":{"name":"node-1"}}}`,
		`{"Type":`,
	}, "\n")
	asked, told := 0, []string{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := newProvider(t, scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" {
			saying(http.StatusOK, answer(`"exited"`, `"running"`))(w, r)
			return
		}
		if asked++; asked == 3 {
			cancel()
			return
		}
		saying(http.StatusOK, stream)(w, r)
	}))
	err := p.Watch(ctx, []providers.Target{{Node: "n1", ID: "node-1"}},
		func(of providers.Target, o providers.Observation) {
			told = append(told, fmt.Sprint(of.Node, " ", o.State, " ", o.Raw))
		})
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		t.Errorf("Watch: got %v", err)
	}
	want := "n1 Off event: died, n1 Unknown event: destroy"
	if got := strings.Join(told, ", "); got != want+", "+want {
		t.Errorf("got %s, want twice %s", got, want)
	}
}

// After each connection the targets that do not run are reported, and once more a while later those that ended
// meanwhile.
func TestReportsAfterConnecting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []string
	round := map[string]int{}
	p := newProvider(t, scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		of := strings.Split(r.URL.Path, "/")[2]
		round[of]++
		word := "exited"
		switch {
		case of == "ends" && round[of] == 1, of == "runs" && round[of] == 1:
			word = "running"
		case of == "runs":
			cancel()
		}
		saying(http.StatusOK, answer("node-1", of, `"exited"`, `"`+word+`"`))(w, r)
	}))
	var targets []providers.Target
	for _, name := range []string{"ended", "ends", "runs"} {
		targets = append(targets, providers.Target{Node: name, ID: name})
	}
	if err := p.Watch(ctx, targets, func(of providers.Target, o providers.Observation) {
		told = append(told, fmt.Sprint(of.Node, " ", o.State, " ", o.Raw))
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: got %v", err)
	}
	if got := strings.Join(told, ", "); got != "ended Off exited, ends Off exited" {
		t.Errorf("got %q", got)
	}
}

func TestValidate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for socket, want := range map[string]string{
		"": "missing", "docker.sock": "absolute", "unix:///var/run/docker.sock": "absolute", file: "not a socket",
		file + "-later":                        "",
		scripted(t, saying(http.StatusOK, "")): "",
	} {
		got := ""
		for _, p := range (&container.Config{Socket: socket}).Validate() {
			got += p.Path + " " + p.Text
		}
		if (want == "") != (got == "") || !strings.Contains(got, want) ||
			got != "" && !strings.HasPrefix(got, "socket ") {
			t.Errorf("%q: got %q, want %q", socket, got, want)
		}
	}
}
