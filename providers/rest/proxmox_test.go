package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
)

const (
	guestUUID = "4c4c4544-0042-3510-8054-b4c04f4d3232"
	otherUUID = "11111111-2222-4333-8444-555555555555"
)

// pve is a Proxmox cluster of two hosts, as far as the preset asks it. Guest 101 is on one of them. What its fields
// mean is what PVE::API2::Cluster, PVE::API2::Qemu, PVE::QemuServer::vmstatus and PVE::HA::Config do.
type pve struct {
	mu       sync.Mutex // guards what follows
	host     string     // in whose folder of /etc/pve the guest's configuration is
	runsOn   string     // the host on which its process runs; "": none
	qmp      string     // the process' own state; "": running
	lock     string
	vmstate  bool // memory is saved
	uuid     string
	haState  string // as the asked host has it; "": HA does not manage the guest
	haCopy   *string
	noQuorum bool
	down     string // the host that does not answer, and the status by which its neighbour says so
	status   int
	word     string // overrides stopped
	password string
	fault    providertest.Fault
	changed  chan struct{} // closed when the fault changes
	logIns   int
	after    map[string]func() // what happens after the answer to a path, once

	requests providertest.Requests
}

func newPVE() *pve {
	return &pve{host: "pve1", runsOn: "pve1", uuid: guestUUID, password: "hunter2", changed: make(chan struct{}),
		after: map[string]func(){}}
}

func (c *pve) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	fault, changed := c.fault, c.changed
	denied := r.Header.Get("Authorization") != "PVEAPIToken=fence@pve!forcefence="+c.password
	c.logIns++
	c.mu.Unlock()
	c.requests.Add(r.Method != http.MethodGet)
	if providertest.PlayFault(r, fault, changed) {
		return
	}
	if denied {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	data, status := c.answer(r)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	if f := c.after[r.URL.Path]; f != nil {
		delete(c.after, r.URL.Path)
		f()
	}
}

// answer returns what a request's answer holds. The caller holds the lock.
func (c *pve) answer(r *http.Request) (data any, status int) {
	type m = map[string]any
	path := strings.TrimPrefix(r.URL.Path, "/api2/json")
	switch path {
	case "/cluster/resources":
		// the state is what pvestatd broadcast last, from a cache of another host
		g := m{"id": "qemu/101", "type": "qemu", "vmid": 101, "node": c.host, "status": "running", "name": "n1"}
		if c.haState != "" {
			g["hastate"] = c.haState
		}
		return []m{g, {"id": "qemu/205", "type": "qemu", "vmid": 205, "node": "pve2", "status": "stopped"}}, 200
	case "/cluster/status":
		quorate := 1
		if c.noQuorum {
			quorate = 0
		}
		return []m{{"type": "cluster", "id": "cluster", "name": "lab", "quorate": quorate, "nodes": 2},
			{"type": "node", "id": "node/pve1", "name": "pve1", "local": 1, "online": 1}}, 200
	}
	host, rest, ok := strings.Cut(strings.TrimPrefix(path, "/nodes/"), "/qemu/101/")
	switch {
	case !ok:
		return nil, http.StatusNotImplemented
	case host == c.down:
		return nil, c.status
	case host != c.host: // Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist
		return nil, http.StatusInternalServerError
	}
	switch r.Method + " " + rest {
	case "GET config":
		conf := m{"name": "n1", "cores": 4, "smbios1": "uuid=" + c.uuid, "digest": "f00"}
		if c.lock != "" {
			conf["lock"] = c.lock
		}
		if c.vmstate {
			conf["vmstate"] = "local:101/vm-101-state-suspend.raw"
		}
		return conf, 200
	case "GET status/current":
		g := m{"vmid": 101, "name": "n1", "status": "stopped", "qmpstatus": "stopped", "ha": m{"managed": 0}}
		ha := c.haState
		if c.haCopy != nil {
			ha = *c.haCopy
		}
		if ha != "" {
			g["ha"] = m{"managed": 1, "state": ha}
		}
		switch {
		case c.runsOn == host:
			g["status"], g["qmpstatus"], g["pid"] = "running", "running", 4711
			if c.qmp != "" {
				g["qmpstatus"] = c.qmp
			}
		case c.word != "":
			g["status"], g["qmpstatus"] = c.word, c.word
		}
		if c.lock != "" {
			g["lock"] = c.lock
		}
		return g, 200
	case "POST status/stop":
		switch c.fault {
		case providertest.StaysOn:
		case providertest.StaysChanging:
			c.runsOn, c.haState = "", "request_stop"
		default:
			c.runsOn = ""
			if c.haState != "" {
				c.haState = "stopped" // ha-manager crm-command stop
			}
		}
		return "UPID:pve1:0001:0002:6553F100:qmstop:101:fence@pve:", 200
	case "POST status/start":
		if c.fault != providertest.StaysChanging {
			c.runsOn, c.vmstate = host, false
		}
		return "UPID:pve1:0001:0003:6553F100:qmstart:101:fence@pve:", 200
	}
	return nil, http.StatusNotImplemented
}

// setPower changes the guest's power behind the API's back.
func (c *pve) setPower(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runsOn, c.haState = "", ""; on {
		c.runsOn = c.host
	}
}

// edit changes the cluster.
func (c *pve) edit(f func(*pve)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// newProxmox returns a provider of type proxmox for an API with that CA.
func newProxmox(t testing.TB, address string, ca []byte) (_ providers.Provider, writePassword func(string)) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Error(err)
		}
		return file
	}
	return newPreset(t, "proxmox", func(c *rest.Settings) {
		c.Address, c.Username = address, "fence@pve!forcefence"
		c.PasswordFile = write("password", []byte("hunter2"))
		if ca != nil {
			c.CAFile = write("ca.pem", ca)
		}
	}), func(password string) { write("password", []byte(password)) }
}

// newPreset returns a provider of a type.
func newPreset(t testing.TB, name string, edit func(*rest.Settings)) providers.Provider {
	t.Helper()
	return newPresetAt(t, name, nil, edit)
}

// newPresetAt returns a provider with a clock; nil is time.Now.
func newPresetAt(t testing.TB, name string, now providers.Clock, edit func(*rest.Settings)) providers.Provider {
	t.Helper()
	return newOf(t, presetConfig(t, name), now, edit)
}

// newOf returns a provider by a configuration that edit completes.
func newOf(t testing.TB, c *rest.PresetConfig, now providers.Clock, edit func(*rest.Settings)) providers.Provider {
	t.Helper()
	edit(&c.Settings)
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := c.New(providers.Options{Name: "a", Now: now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// presetConfig returns the empty configuration of a type.
func presetConfig(t testing.TB, name string) *rest.PresetConfig {
	t.Helper()
	for _, ty := range rest.Types() {
		if ty.Name == name {
			return ty.NewConfig().(*rest.PresetConfig)
		}
	}
	t.Fatalf("there is no type %q", name)
	return nil
}

func TestProxmoxConformance(t *testing.T) {
	const timeout = 20 * time.Second // a question is four requests, and the suite asks two hundred at once
	providertest.Suite(t, providertest.Options{Timeout: timeout, New: func(t *testing.T) *providertest.Bench {
		c := newPVE()
		server := httptest.NewServer(c)
		t.Cleanup(server.Close)
		network := providertest.NewProxy(t, server.URL, providertest.ProxyOptions{HTTP: true})
		p, writePassword := newProxmox(t, "https://"+network.Addr(), network.CA())
		return &providertest.Bench{
			Provider: p,
			Target:   providers.Target{Node: "n1", ID: "101", SystemUUID: guestUUID},
			Missing:  providers.Target{Node: "n9", ID: "999"},
			Running:  func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.runsOn != "" },
			Proxy:    network,
			LogIns:   func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.logIns },
			Requests: c.requests.All,
			SetPower: c.setPower,
			SetFault: func(f providertest.Fault) {
				c.edit(func(c *pve) {
					c.fault, c.word, c.uuid = f, "", guestUUID
					close(c.changed)
					c.changed = make(chan struct{})
					switch f {
					case providertest.StrangeWord:
						c.word = "Stopped" // it is "stopped" that proves
					case providertest.OtherMachine:
						c.uuid = otherUUID
					case providertest.Denied:
						c.password += "!"
					case providertest.NoFault:
						writePassword(c.password)
					}
				})
			},
		}
	}})
}

// What Proxmox does around a guest that is stopped for a moment, or only seems to be.
func TestProxmoxPitfalls(t *testing.T) {
	const current = "/api2/json/nodes/pve1/qemu/101/status/current"
	stale := "stopped"
	for _, tc := range []struct {
		name string
		edit func(*pve)
		want string // state and word, or the error's class
	}{
		{"stopped", func(c *pve) { c.runsOn = "" }, `Off "stopped"`},
		{"stopped, while the cluster's list still says running", func(c *pve) { c.runsOn = "" }, `Off "stopped"`},
		{"paused", func(c *pve) { c.qmp = "paused" }, `On "paused"`},
		{"suspended to disk", func(c *pve) { c.runsOn, c.lock, c.vmstate = "", "suspended", true },
			`On "stopped, memory is saved"`},
		{"suspended to disk, and unlocked by hand", func(c *pve) { c.runsOn, c.vmstate = "", true },
			`On "stopped, memory is saved"`},
		{"an offline migration", func(c *pve) { c.runsOn, c.lock = "", "migrate" }, `Unknown "stopped, locked: ` +
			`migrate"`},
		{"a backup of a stopped guest, which QEMU reads", func(c *pve) { c.lock, c.qmp = "backup", "prelaunch" },
			`On "prelaunch"`},
		{"HA wants it started", func(c *pve) { c.runsOn, c.haState = "", "started" },
			`Changing "stopped, and HA manages it: started"`},
		{"HA has moved it to another host, where it is stopped for seconds",
			func(c *pve) { c.runsOn, c.host, c.haState = "", "pve2", "request_start" },
			`Changing "stopped, and HA manages it: request_start"`},
		{"HA moves it after it was found", func(c *pve) {
			c.haState = "recovery"
			c.after["/api2/json/cluster/resources"] = func() { c.host, c.runsOn = "pve2", "" }
		}, "unreachable"},
		{"HA moves it after its configuration was read", func(c *pve) {
			c.after["/api2/json/nodes/pve1/qemu/101/config"] = func() { c.host, c.runsOn = "pve2", "" }
		}, "unreachable"},
		{"HA stopped it", func(c *pve) { c.runsOn, c.haState = "", "stopped" }, `Off "stopped, by HA"`},
		{"the guest's host has an old copy of HA's state",
			func(c *pve) { c.runsOn, c.haState, c.haCopy = "", "started", &stale },
			`Changing "stopped, and HA manages it: started"`},
		{"the asked host has no quorum, and an old copy of where the guest is",
			func(c *pve) { c.runsOn, c.noQuorum = "pve2", true },
			`Unknown "stopped, but the cluster has no quorum"`},
		{"its host refuses connections", func(c *pve) { c.down, c.status = "pve1", 595 }, "unreachable"},
		{"its host does not answer", func(c *pve) { c.down, c.status = "pve1", 596 }, "unreachable"},
		{"another guest has the number now", func(c *pve) { c.runsOn, c.uuid = "", otherUUID }, "identity"},
		{"no UUID", func(c *pve) { c.runsOn, c.uuid = "", "" }, "unreachable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newPVE()
			tc.edit(c)
			server := httptest.NewServer(c)
			defer server.Close()
			p, _ := newProxmox(t, server.URL, nil)
			target := providers.Target{Node: "n1", ID: "proxmox://lab/101", SystemUUID: guestUUID}
			a := providers.Ask(t.Context(), p, "a", target, providers.Now)
			got := fmt.Sprintf("%s %q", a.State, a.Raw)
			if a.Err != nil {
				got = providers.ErrorClass(a.Err)
			}
			if got != tc.want {
				t.Errorf("%s: got %s (%v), want %s", current, got, a.Err, tc.want)
			}
		})
	}
}

// A guest whose memory is saved is not started: it would resume the memory of the earlier machine.
func TestProxmoxPowerOnWithSavedMemory(t *testing.T) {
	c := newPVE()
	c.runsOn, c.lock, c.vmstate = "", "suspended", true
	server := httptest.NewServer(c)
	defer server.Close()
	p, _ := newProxmox(t, server.URL, nil)
	target := providers.Target{Node: "n1", ID: "101", SystemUUID: guestUUID}
	if err := p.PowerOn(t.Context(), target, providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("PowerOn: got %v, want %v", err, providers.ErrPermanent)
	}
	if err := p.PowerOff(context.Background(), target, providertest.AllowSend); err != nil || c.runsOn != "" {
		t.Errorf("PowerOff: got %v, runs on %q", err, c.runsOn)
	}
}
