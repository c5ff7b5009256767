package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/drainguard/storage"
	storagewatch "github.com/forcefence/forcefence/taint/drainguard/storage/watch"
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
	note := func(name string, h storage.Health) {
		if h.Known {
			out[name] = map[bool]string{true: "healthy", false: "unhealthy"}[h.Healthy]
		}
	}
	for _, node := range []string{"n1", "n2", "n3", ""} {
		note(node, s.NodeHealth(node))
	}
	for name, handle := range handles {
		note(name, s.VolumeHealth(storage.Volume{Driver: s.Drivers()[0], Handle: handle}))
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

// No change of an answer turns a node or a volume from healthy to unhealthy, from unhealthy to healthy, or from unknown
// to either: what is missing or strange makes it unknown.
func TestStorageOSHostile(t *testing.T) {
	api, handles := newStorageOS(t)
	a := parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
	want, err := readHealth(t.Context(), a, handles)
	kit.Must(t, err)
	answers := map[string]any{} // by path
	api.Edit(func(_ http.ResponseWriter, path string, body any) (any, bool) {
		answers[path] = copyJSON(body)
		return body, true
	})
	_, err = readHealth(t.Context(), a, handles)
	kit.Must(t, err)
	if len(answers) != 4 {
		t.Fatalf("got answers to %v, want nodes, namespaces, and the volumes of two", slices.Collect(maps.Keys(answers)))
	}
	changes, lost := 0, 0
	try := func(what, path string, answer func(w http.ResponseWriter) (any, bool)) {
		changes++
		api.Edit(func(w http.ResponseWriter, at string, body any) (any, bool) {
			if at != path {
				return body, true
			}
			return answer(w)
		})
		got, err := readHealth(t.Context(), a, handles)
		if err != nil || !maps.Equal(got, want) {
			lost++
		}
		for name, health := range got {
			if health != want[name] {
				t.Errorf("%s: %s: got %s %s, want it %q or unknown", path, what, name, health, want[name])
			}
		}
	}
	for path, body := range answers {
		for what, changed := range changesOf(body) {
			try(what, path, func(http.ResponseWriter) (any, bool) { return changed, true })
		}
		text, _ := json.Marshal(body)
		for what, content := range map[string]string{
			"nothing": "", "half of it": string(text[:len(text)/2]), "twice": string(text) + string(text),
			"HTML":           "<html>",
			"too many bytes": `["` + strings.Repeat("x", 9<<20) + `"]`, "too many values": "[" + strings.Repeat("0,", 300_000) + "0]",
		} {
			try(what, path, func(w http.ResponseWriter) (any, bool) {
				_, _ = io.WriteString(w, content)
				return nil, false
			})
		}
		for _, status := range []int{201, 204, 302, 403, 404, 500, 503, 401} {
			if status == 401 { // after which the password is not sent again for a while
				a = parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
			}
			try(fmt.Sprintf("status %d", status), path, func(w http.ResponseWriter) (any, bool) {
				w.Header().Set("Location", "/v2/nodes")
				w.WriteHeader(status)
				_, _ = w.Write(text)
				return nil, false
			})
		}
		a = parseConfig(t, storageOSConfig(api, "")).StorageAdapter("pool")
		try("cut off", path, func(http.ResponseWriter) (any, bool) { panic(http.ErrAbortHandler) })
	}
	if changes < 500 || lost < 100 {
		t.Errorf("tried %d changes, of which %d had an effect: this test shows little", changes, lost)
	}
	t.Logf("%d changes, %d with an effect", changes, lost)
}

func copyJSON(v any) (out any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

// changesOf returns copies of a JSON value, each with one change of a value in it, by what was changed.
func changesOf(v any) map[string]any {
	out := map[string]any{}
	for what, to := range map[string]any{
		"null": nil, "an empty list": []any{}, "an empty mapping": map[string]any{}, "a list around it": []any{v},
		"an empty text": "", "another word": "frobnicated", "a number": 1, "a bool": true,
	} {
		out["is "+what] = to
	}
	switch v := v.(type) {
	case bool: // of which the opposite may be right
		delete(out, "is a bool")
	case string:
		out["has a blank"] = v + " "
		out["is in capitals"] = strings.ToUpper(v) + "X"
	case map[string]any:
		for key, inner := range v {
			without := maps.Clone(v)
			delete(without, key)
			out["/"+key+" is missing"] = without
			for what, changed := range changesOf(inner) {
				with := maps.Clone(v)
				with[key] = changed
				out["/"+key+" "+what] = with
			}
		}
	case []any:
		out["is twice in it"] = append(slices.Clone(v), v...)
		for i, inner := range v {
			out[fmt.Sprintf("/%d is missing", i)] = slices.Delete(slices.Clone(v), i, i+1)
			for what, changed := range changesOf(inner) {
				with := slices.Clone(v)
				with[i] = changed
				out[fmt.Sprintf("/%d %s", i, what)] = with
			}
		}
	}
	return out
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
		return m.ApplyStorage(rules, map[string]storage.Health{"pool": s.NodeHealth("n2")}, providers.InstantOf(now))
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
	want := storage.Health{Known: true, Healthy: true}
	if h := s.VolumeHealth(storage.Volume{Driver: "csi.storageos.com", Handle: handles["v1"]}); h != want {
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
		{"a password for each node", "preset: storageos, rest: {address: 'https://a.example.net', username: '{{ .Name }}', " +
			"passwordFile: " + api.Password + "}", "rest.username: has {{ .Name }}"},
		{"too often", "preset: storageos, rest: {address: 'https://a.example.net', poll: 10ms, " + login + "}",
			"rest.poll: must be from 1s to 1m"},
		{"a preset of resources", "preset: longhorn, rest: {address: 'https://a.example.net'}", "rest: preset longhorn reads"},
		{"two descriptions", "preset: storageos, rest: {description: " + file + ", address: 'https://a.example.net', " + login + "}",
			"rest.description: has no effect"},
		{"no description", own + ", rest: {address: 'https://a.example.net'}", "rest.description: missing"},
		{"a description with a fault", own + ", rest: {description: " + broken + ", address: 'https://a.example.net'}",
			"line 4: requests[0].send: sends POST"},
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

// linstorNode and the next two are entities as LINSTOR's server returns them (docs/rest_v1_openapi.yaml).
func linstorNode(name, status string) any {
	return map[string]any{"name": name, "type": "SATELLITE", "connection_status": status, "flags": []any{}}
}

func linstorDefinition(name, quorum string) any {
	return map[string]any{"name": name, "resource_group_name": "sc", "props": map[string]any{
		"DrbdOptions/Resource/quorum": quorum, "DrbdOptions/Resource/on-no-quorum": "suspend-io",
	}}
}

// linstorResource returns a resource of one volume. disk is the state of its disk, or "" if its satellite is not
// connected.
func linstorResource(name, node, disk string, inUse, mayPromote bool) any {
	volume := map[string]any{"volume_number": 0, "storage_pool_name": "thin", "provider_kind": "LVM_THIN"}
	out := map[string]any{
		"name": name, "node_name": node, "flags": []any{}, "volumes": []any{volume},
		"layer_object": map[string]any{"type": "DRBD", "drbd": map[string]any{
			"node_id": 0, "promotion_score": 10101, "may_promote": mayPromote,
			"connections": map[string]any{"n2": map[string]any{"connected": true, "message": "Connected"}},
		}},
	}
	if disk != "" {
		out["state"], volume["state"] = map[string]any{"in_use": inUse}, map[string]any{"disk_state": disk}
	}
	return out
}

// LINSTOR's volumes are healthy where a connected node uses current data, or may.
func TestLinstor(t *testing.T) {
	answers := map[string]any{
		"/v1/nodes": []any{linstorNode("n1", "OFFLINE"), linstorNode("n2", "ONLINE"), linstorNode("n3", "CONNECTED")},
	}
	handles, want := map[string]string{}, map[string]string{"n1": "unhealthy", "n2": "healthy"}
	var definitions, resources []any
	add := func(name, quorum, health string, all ...any) {
		handles[name], want[name] = name, health
		if health == "" {
			delete(want, name)
		}
		definitions, resources = append(definitions, linstorDefinition(name, quorum)), append(resources, all...)
	}
	add("used", "majority", "healthy",
		linstorResource("used", "n2", "UpToDate", true, false), linstorResource("used", "n1", "", false, false))
	add("free", "majority", "healthy",
		linstorResource("free", "n1", "", false, true), linstorResource("free", "n2", "UpToDate", false, true))
	add("primary-elsewhere", "majority", "", // n1 may still write
		linstorResource("primary-elsewhere", "n1", "", false, false),
		linstorResource("primary-elsewhere", "n2", "UpToDate", false, false))
	add("lost", "majority", "unhealthy", linstorResource("lost", "n2", "Outdated", false, true),
		linstorResource("lost", "n3", "Diskless", false, false))
	add("only-old-words", "majority", "", linstorResource("only-old-words", "n1", "", true, true))
	add("no-quorum", "off", "unhealthy", linstorResource("no-quorum", "n2", "UpToDate", false, true))
	add("odd-quorum", "2", "", linstorResource("odd-quorum", "n2", "UpToDate", false, true))
	add("new-word", "majority", "", linstorResource("new-word", "n2", "Sublime", false, true))
	add("nowhere", "majority", "")
	resources = append(resources, linstorResource("undefined", "n2", "UpToDate", false, true))
	handles["undefined"] = "undefined"
	answers["/v1/resource-definitions"], answers["/v1/view/resources"] = definitions, resources

	var change func(path string, body any) any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(change(r.URL.Path, answers[r.URL.Path]))
	}))
	defer server.Close()
	change = func(_ string, body any) any { return body }
	a := parseConfig(t, "storage:\n- {name: disks, preset: linstor, rest: {address: '"+server.URL+"'}}\n").StorageAdapter("disks")
	got, err := readHealth(t.Context(), a, handles)
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	// The changes are those of the first three volumes: used, free and primary-elsewhere.
	answers["/v1/resource-definitions"], answers["/v1/view/resources"] = definitions[:3], resources[:6]
	want, err = readHealth(t.Context(), a, handles)
	if err != nil || len(want) != 4 || want["free"] != "healthy" {
		t.Fatalf("three volumes: got %v, %v", want, err)
	}
	changes := 0
	for path := range answers {
		for what, changed := range changesOf(copyJSON(answers[path])) {
			changes++
			change = func(at string, body any) any {
				if at == path {
					return changed
				}
				return body
			}
			got, _ := readHealth(t.Context(), a, handles)
			for name, health := range got {
				volume := handles[name] != ""
				if health != want[name] && !(volume && health == "unhealthy") {
					t.Errorf("%s: %s: got %s %s, want it %q or unknown", path, what, name, health, want[name])
				}
			}
		}
	}
	if changes < 500 {
		t.Errorf("tried %d changes: this test shows little", changes)
	}
}
