package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/features/storage"
	storagewatch "github.com/forcefence/forcefence/taint/features/storage/watch"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/storageos"
)

// storageOSConfig is a configuration for an API, with more settings of rest.
func storageOSConfig(api *storageos.API, more string) string {
	return fmt.Sprintf(`
storage:
- name: pool
  preset: storageos
  rest: {address: "%s", username: %s, passwordFile: %s, caFile: %s%s}
policies:
- {name: fenced, preset: storageos, storage: pool, withoutProof: storage-fences}
`, api.URL, storageos.User, api.Password, api.CAFile, more)
}

func parseConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("x.yaml", []byte(text), configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// newStorageOS returns an API with a node and a volume of each health, and handles of the volumes.
func newStorageOS(t *testing.T) (api *storageos.API, handles map[string]string) {
	api, handles = storageos.New(t), map[string]string{}
	for node, health := range map[string]string{"n1": "online", "n2": "offline", "n3": "unknown"} {
		api.SetNode(node, health)
	}
	for name, health := range map[string]string{"v1": "online", "v2": "offline", "v3": "unknown"} {
		handles[name] = api.SetVolume("default", name, health)
	}
	handles["other"] = api.SetVolume("shop", "v1", "online")
	return api, handles
}

// readHealth reads an adapter's Source once, and returns what is then known of nodes and volumes, by name.
func readHealth(ctx context.Context, a *storage.Adapter, handles map[string]string) (map[string]string, error) {
	all, err := a.Source.Read(ctx)
	if err != nil {
		return nil, err
	}
	s := storage.NewState(a)
	s.ReplaceAll(all)
	return healthOf(s, handles), nil
}

func healthOf(s storage.System, handles map[string]string) map[string]string {
	out := map[string]string{}
	note := func(name string, h action.Health) {
		if h.Known {
			out[name] = map[bool]string{true: "healthy", false: "unhealthy"}[h.Healthy]
		}
	}
	for _, node := range []string{"n1", "n2", "n3", ""} {
		note(node, s.NodeHealth(node))
	}
	for name, handle := range handles {
		note(name, s.VolumeHealth(action.VolumeName{Driver: s.Drivers()[0], Handle: handle}))
	}
	return out
}

// StorageOS' API is read as its fencing controller reads it: nodes, and the masters of all namespaces' volumes.
func TestStorageOSAPI(t *testing.T) {
	api, handles := newStorageOS(t)
	a := parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
	want := map[string]string{
		"n1": "healthy", "n2": "unhealthy", "v1": "healthy", "v2": "unhealthy", "other": "healthy",
	}
	for i := range 3 {
		got, err := readHealth(t.Context(), a, handles)
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("read %d: got %v, %v; want %v", i, got, err, want)
		}
	}
	if n := api.LogIns(); n != 1 {
		t.Errorf("got %d log-ins for three reads, want 1", n)
	}
	api.ExpireTokens()
	if got, err := readHealth(t.Context(), a, handles); err != nil || !maps.Equal(got, want) || api.LogIns() != 2 {
		t.Errorf("with an expired token: got %v, %v after %d log-ins; want %v after 2", got, err, api.LogIns(), want)
	}
	api.SetPassword("changed")
	for range 2 {
		if got, err := readHealth(t.Context(), a, handles); providers.ErrorClass(err) != "denied" {
			t.Errorf("with an old password: got %v, %v; want denied", got, err)
		} else if text := err.Error(); strings.Contains(text, "hunter2") || strings.Contains(text, "eyJ") {
			t.Errorf("the error repeats a secret: %s", text)
		}
	}
	if n := api.LogIns(); n != 3 {
		t.Errorf("got %d log-ins, want 3: a refused password is not sent again", n)
	}
	kit.Must(t, os.WriteFile(api.Password, []byte("changed"), 0o600))
	if got, err := readHealth(t.Context(), a, handles); err != nil || !maps.Equal(got, want) {
		t.Errorf("with the new password: got %v, %v; want %v", got, err, want)
	}
	if i := a.Source.Interval(); i != policy.StorageOSIntervals.Poll {
		t.Errorf("interval: got %s, want that of StorageOS' document, %s", i, policy.StorageOSIntervals.Poll)
	}
}

// One answer that is broken, refused or too large leaves nothing known. What a changed value in an answer does is a
// matter of the description's cases.
func TestStorageOSHostile(t *testing.T) {
	api, handles := newStorageOS(t)
	a := parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
	answers := map[string]string{} // by path
	api.Edit(func(_ http.ResponseWriter, path string, body any) (any, bool) {
		text, err := json.Marshal(body)
		kit.Must(t, err)
		answers[path] = string(text)
		return body, true
	})
	_, err := readHealth(t.Context(), a, handles)
	kit.Must(t, err)
	if len(answers) != 4 {
		t.Fatalf("got answers to %v, want nodes, namespaces, and the volumes of two", slices.Collect(maps.Keys(answers)))
	}
	try := func(what, path string, answer func(w http.ResponseWriter)) {
		api.Edit(func(w http.ResponseWriter, at string, body any) (any, bool) {
			if at == path {
				answer(w)
			}
			return body, at != path
		})
		if got, err := readHealth(t.Context(), a, handles); err == nil {
			t.Errorf("%s: %s: got %v, want an error", path, what, got)
		}
	}
	for path, text := range answers {
		for what, content := range map[string]string{
			"nothing": "", "half of it": text[:len(text)/2], "twice": text + text,
			"HTML":           "<html>",
			"too many bytes": `["` + strings.Repeat("x", 9<<20) + `"]`, "too many values": "[" + strings.Repeat("0,", 300_000) + "0]",
		} {
			try(what, path, func(w http.ResponseWriter) { _, _ = io.WriteString(w, content) })
		}
		for _, status := range []int{201, 204, 302, 403, 404, 500, 503, 401} {
			if status == 401 { // after which the password is not sent again for a while
				a = parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
			}
			try(fmt.Sprintf("status %d", status), path, func(w http.ResponseWriter) {
				w.Header().Set("Location", "/v2/nodes")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
			})
		}
		a = parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
		try("cut off", path, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	}
}

// A policy has its turn soon after StorageOS reports a node offline. It has none while the API cannot be read.
func TestStorageOSTrigger(t *testing.T) {
	api, handles := newStorageOS(t)
	api.SetNode("n2", "online")
	cfg := parseConfig(t, storageOSConfig(api, ", poll: 1s"))
	w, err := storagewatch.New(storagewatch.Options{Log: slog.New(slog.DiscardHandler)})
	kit.Must(t, err)
	s := w.UseAdapters(cfg.FollowedStorage())[0]
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		kit.Must(t, <-ended)
	}()
	kit.Until(t, "the first read", func() bool { return s.MissingReason() == "" })

	rules, now := cfg.Settings("home").Policies, time.Now()
	var m policy.Memory
	turn := func() bool {
		return m.ApplyStorage(rules, map[string]action.Health{"pool": s.NodeHealth("n2")}, providers.InstantOf(now))
	}
	if turn() {
		t.Error("a turn for a healthy node")
	}
	changed := make(chan string, 100)
	go w.NotifyChanged(ctx, func(node string) { changed <- node })
	api.Edit(func(http.ResponseWriter, string, any) (any, bool) { panic(http.ErrAbortHandler) })
	kit.Until(t, "the health to be unknown", func() bool { return !s.NodeHealth("n2").Known })
	if h := s.NodeHealth("n1"); h.Known || turn() {
		t.Errorf("the API cannot be read: got node n1 %+v, and a turn of the policy", h)
	}
	api.SetNode("n2", "offline")
	api.Edit(nil)
	kit.Until(t, "the policy's turn", turn)
	kit.Until(t, "a report of the node", func() bool {
		select {
		case node := <-changed:
			return node == "n2"
		default:
			return false
		}
	})
	want := action.Health{Known: true, Healthy: true}
	if h := s.VolumeHealth(action.VolumeName{Driver: "csi.storageos.com", Handle: handles["v1"]}); h != want {
		t.Errorf("a volume: got %+v, want healthy", h)
	}

	// A configuration that reads the same API goes on with what is known.
	if same := w.UseAdapters(parseConfig(t, storageOSConfig(api, ", poll: 1s")).FollowedStorage())[0]; same != s {
		t.Error("the same configuration once more: it begins again")
	}
	if other := w.UseAdapters(parseConfig(t, storageOSConfig(api, ", poll: 2s")).FollowedStorage())[0]; other == s {
		t.Error("another configuration: it has no effect")
	}
	if h := s.NodeHealth("n2"); h.Known {
		t.Errorf("a system that is not followed any more: got %+v, want unknown", h)
	}
}

// Faults of an item's rest are reported at their lines.
func TestStorageAPIFaults(t *testing.T) {
	api := storageos.New(t)
	file := filepath.Join(t.TempDir(), "own.yaml")
	kit.Must(t, os.WriteFile(file, []byte("name: own\nlogin: {kind: none}\nrequests:\n- {name: all, send: GET /all}\n"), 0o600))
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	kit.Must(t, os.WriteFile(broken, []byte("name: own\nlogin: {kind: none}\nrequests:\n- {name: all, send: POST /all}\n"), 0o600))
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	kit.Must(t, os.WriteFile(wrong, []byte(strings.Replace(described, "state: up}", "state: odd}", 1)), 0o600))
	login := fmt.Sprintf("username: u, passwordFile: %s", api.Password)
	own := "drivers: [d], node: {resource: all.body.nodes, name: object.name, healthy: object.ok}"
	for _, tc := range []struct{ name, item, want string }{
		{"a whole one", own + ", rest: {description: " + file + ", address: 'https://a.example.net'}", ""},
		{"a preset without rest", "preset: storageos", "storage[0]: rest is missing: write the address of storageos's API"},
		{"no address", "preset: storageos, rest: {" + login + "}", "rest.address: missing"},
		{"plain HTTP", "preset: storageos, rest: {address: 'http://a.example.net', " + login + "}", "rest.address:"},
		{"no user", "preset: storageos, rest: {address: 'https://a.example.net'}", "rest.username: missing"},
		{"a password in the file", "preset: storageos, rest: {address: 'https://a.example.net', username: u, password: hunter2}",
			"rest.password: a secret does not belong in this file"},
		{"a password for each node", "preset: storageos, rest: {address: 'https://a.example.net', username: '{name}', " +
			"passwordFile: " + api.Password + "}", "rest.username: has {name}"},
		{"too often", "preset: storageos, rest: {address: 'https://a.example.net', poll: 10ms, " + login + "}",
			"rest.poll: must be from 1s to 1m"},
		{"a preset of resources", "preset: longhorn, rest: {address: 'https://a.example.net'}", "rest: preset longhorn reads"},
		{"two descriptions", "preset: storageos, rest: {description: " + file + ", address: 'https://a.example.net', " + login + "}",
			"rest.description: has no effect"},
		{"no description", own + ", rest: {address: 'https://a.example.net'}", "rest.description: missing"},
		{"a description with a fault", own + ", rest: {description: " + broken + ", address: 'https://a.example.net'}",
			"line 4: requests[0].send: sends POST"},
		{"a case with another result", "rest: {description: " + wrong + ", address: 'https://a.example.net'}",
			`line 9: cases[0].want: got node "n1" unknown, want healthy`},
		{"an unknown answer", "drivers: [d], node: {resource: none.body, name: object.name, healthy: object.ok}, " +
			"rest: {description: " + file + ", address: 'https://a.example.net'}", "node.resource: not a CEL expression"},
		{"no list", "drivers: [d], node: {resource: all.status, name: object.name, healthy: object.ok}, " +
			"rest: {description: " + file + ", address: 'https://a.example.net'}", "node.resource: gives int, must give list"},
		{"replicas", own + ", replica: {resource: all.body, node: object.n, volume: object.v, healthy: object.ok}, " +
			"rest: {description: " + file + ", address: 'https://a.example.net'}", "replica: only resources of the cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := config.Parse("x.yaml", []byte("storage:\n- {name: pool, "+tc.item+"}\n"), configtest.Types())
			if got := fmt.Sprint(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) && err != nil {
				t.Errorf("got %s, want %q", got, tc.want)
			}
			if strings.Contains(fmt.Sprint(err), "hunter2") {
				t.Errorf("the error repeats the password: %v", err)
			}
		})
	}
}

const described = `name: described
login: {kind: none}
requests: [{name: all, send: GET /all}]
storage:
  drivers: [csi.example.com]
  node: {resource: all.body, name: object.name, healthy: '{"up": true, "down": false}[object.state]'}
cases:
- name: two nodes
  want: {node: {n1: healthy, n2: unhealthy}}
  answers: {all: {body: [{name: n1, state: up}, {name: n2, state: down}]}}
`

// A description says what its answers mean, and a key of the item wins over it.
func TestStorageDescribed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "described.yaml")
	kit.Must(t, os.WriteFile(file, []byte(described), 0o600))
	rest := "rest: {description: " + file + ", address: 'https://a.example.net'}"
	for _, tc := range []struct{ name, item, want string }{
		{"all by the description", rest, "[csi.example.com] all.body object.name"},
		{"some by the item", "drivers: [d], node: {name: object.host}, " + rest, "[d] all.body object.host"},
	} {
		spec := parseConfig(t, "storage:\n- {name: pool, "+tc.item+"}\n").StorageAdapter("pool").Spec
		if got := fmt.Sprint(spec.Drivers, " ", spec.Node.Resource, " ", spec.Node.Name); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
