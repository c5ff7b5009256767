// Package storageos plays the REST API of a StorageOS cluster (Ondat), as its OpenAPI document 2.8.0 describes it:
// github.com/storageos/go-api, openapi.yaml.
package storageos

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// API is the API of one cluster. It is safe for concurrent use.
type API struct {
	URL      string // https://127.0.0.1:port
	CAFile   string // its certificate
	Password string // the file with the password of User

	mu         sync.Mutex // guards what follows
	password   string
	logIns     int
	expired    int                       // log-ins whose tokens are not valid any more
	nodes      map[string]string         // health, by name
	namespaces map[string]map[string]any // volumes by ID, by the namespace's ID
	edit       func(w http.ResponseWriter, path string, body any) (any, bool)
}

// User is the only user.
const User = "forcefence"

// New starts an API without nodes and volumes. It ends with the test.
func New(t testing.TB) *API {
	t.Helper()
	a := &API{
		password: "hunter2", nodes: map[string]string{},
		namespaces: map[string]map[string]any{idOf("namespace", "default"): {}},
	}
	server := httptest.NewUnstartedServer(a)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a test cuts off
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	a.URL = server.URL
	a.CAFile = write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	a.Password = write("password", []byte(a.password+"\n"))
	return a
}

// SetNode sets the health of a node: online, offline or unknown. "" removes the node.
func (a *API) SetNode(name, health string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[name] = health; health == "" {
		delete(a.nodes, name)
	}
}

// SetVolume sets the health of a volume's master: online, offline or unknown. It returns the volume's handle in
// PersistentVolumes.
func (a *API) SetVolume(namespace, name, health string) (handle string) {
	handle = idOf("namespace", namespace) + "/" + idOf("volume", namespace, name)
	a.SetHandle(handle, health)
	return handle
}

// SetHandle is SetVolume for a volume with this handle: the IDs of its namespace and its own, with a slash in between.
func (a *API) SetHandle(handle, health string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	namespace, volume, _ := strings.Cut(handle, "/")
	if a.namespaces[namespace] == nil {
		a.namespaces[namespace] = map[string]any{}
	}
	a.namespaces[namespace][volume] = map[string]any{
		"id": volume, "name": "pvc-" + volume, "namespaceID": namespace,
		"description": "", "attachedOn": "", "attachmentType": "host", "fsType": "ext4", "sizeBytes": 5368709120,
		"labels": map[string]any{"csi.storage.k8s.io/pv/name": "pvc-" + volume},
		"master": map[string]any{
			"id": idOf("master", handle), "nodeID": idOf("node", "n1"), "hostname": "n1", "health": health,
		},
		"replicas": []any{map[string]any{
			"id": idOf("replica", handle), "nodeID": idOf("node", "n2"), "hostname": "n2", "health": "ready",
			"promotable": true,
		}},
		"createdAt": "2021-11-12T01:07:08Z", "updatedAt": "2021-11-12T01:12:09Z", "version": "Nw",
	}
}

// ExpireTokens ends all sessions.
func (a *API) ExpireTokens() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expired = a.logIns
}

// SetPassword changes the user's password, but not the file.
func (a *API) SetPassword(password string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.password, a.expired = password, a.logIns
}

// LogIns returns how many log-ins were tried.
func (a *API) LogIns() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logIns
}

// Edit changes every answer to a GET: edit returns another body, or false if it has answered itself. nil ends that.
func (a *API) Edit(edit func(w http.ResponseWriter, path string, body any) (any, bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.edit = edit
}

// idOf returns the ID of an entity, which looks like a UUID.
func idOf(of ...string) string {
	h := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(of, "/"))))
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-")
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost && r.URL.Path == "/v2/auth/login" {
		a.logIn(w, r)
		return
	}
	body, edit, status := a.answer(r)
	if edit != nil && status == http.StatusOK {
		var own bool
		if body, own = edit(w, r.URL.Path, body); !own {
			return
		}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *API) logIn(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.logIns++
	var sent struct{ Username, Password string }
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || sent.Username == "" || sent.Password == "" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": "username and password are required"}`))
		return
	}
	if sent.Username != User || sent.Password != a.password {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error": "authentication required"}`))
		return
	}
	token := fmt.Sprintf("eyJ.session.%d", a.logIns)
	w.Header().Set("Authorization", "Bearer "+token)
	w.Header().Set("Authorization-Expires-Seconds", "300")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": idOf("user", User), "username": User, "isAdmin": false,
		"session": map[string]any{"token": token, "expiresInSeconds": 300},
	})
}

// answer returns the answer to a GET, and what may change it.
func (a *API) answer(r *http.Request) (body any, edit func(http.ResponseWriter, string, any) (any, bool), status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var session int
	n, _ := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer eyJ.session.%d", &session)
	if n != 1 || session <= a.expired || session > a.logIns {
		return map[string]any{"error": "authentication required"}, nil, http.StatusUnauthorized
	}
	list := []any{}
	switch parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/"); {
	case r.Method != http.MethodGet:
		return map[string]any{"error": "unauthorised"}, nil, http.StatusForbidden
	case r.URL.Path == "/v2/nodes":
		for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
			list = append(list, map[string]any{
				"id": idOf("node", name), "name": name, "health": a.nodes[name], "cordoned": false,
				"capacity":   map[string]any{"total": 107321753600, "free": 90321753600, "available": 90321753600},
				"ioEndpoint": "192.0.2.1:5703", "supervisorEndpoint": "192.0.2.1:5704",
				"gossipEndpoint": "192.0.2.1:5711", "clusteringEndpoint": "192.0.2.1:5710",
				"labels":    map[string]any{"kubernetes.io/hostname": name},
				"createdAt": "2021-11-12T01:00:00Z", "updatedAt": "2021-11-12T01:00:00Z", "version": "Mg",
			})
		}
		return list, a.edit, http.StatusOK
	case r.URL.Path == "/v2/namespaces":
		for _, id := range slices.Sorted(maps.Keys(a.namespaces)) {
			list = append(list, map[string]any{
				"id": id, "name": "namespace-" + id, "labels": map[string]any{},
				"createdAt": "2021-11-12T01:00:00Z", "updatedAt": "2021-11-12T01:00:00Z", "version": "MQ",
			})
		}
		return list, a.edit, http.StatusOK
	case len(parts) == 3 && parts[0] == "namespaces" && parts[2] == "volumes" && a.namespaces[parts[1]] != nil:
		volumes := a.namespaces[parts[1]]
		for _, id := range slices.Sorted(maps.Keys(volumes)) {
			list = append(list, volumes[id])
		}
		return list, a.edit, http.StatusOK
	}
	return map[string]any{"error": "not found"}, nil, http.StatusNotFound
}
