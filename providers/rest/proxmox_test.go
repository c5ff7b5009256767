package rest_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
)

const (
	guestUUID = "4c4c4544-0042-3510-8054-b4c04f4d3232"
	otherUUID = "11111111-2222-4333-8444-555555555555"
)

// pve is a Proxmox cluster of two hosts, as far as the preset asks it. Guest 101 is on one of them. What its fields
// mean is what PVE::API2::Cluster, PVE::API2::Qemu, PVE::QemuServer::vmstatus and PVE::HA::Config do. Its fake knows
// whether the guest runs, and has a word that overrides stopped.
type pve struct {
	host     string // in whose folder of /etc/pve the guest's configuration is
	runsOn   string // the host that has the guest's process, if it runs
	qmp      string // the process' own state; "": running
	lock     string
	vmstate  bool // memory is saved
	noUUID   bool
	haState  string // as the asked host has it; "": HA does not manage the guest
	haCopy   *string
	noQuorum bool
	down     string // the host that does not answer, and the status by which its neighbour says so
	status   int
	after    map[string]func(f *fake) // what happens after the answer to a path, once
}

func newPVE() *pve {
	return &pve{host: "pve1", runsOn: "pve1", after: map[string]func(*fake){}}
}

// fake returns the cluster's server.
func (c *pve) fake() *fake {
	return &fake{
		login: "header", header: "PVEAPIToken=fence@pve!forcefence=", user: "fence@pve!forcefence",
		refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			data, status := c.answer(f, r)
			if after := c.after[r.URL.Path]; after != nil {
				delete(c.after, r.URL.Path)
				after(f)
			}
			return status, object{"data": data}
		},
	}
}

// proxmoxPreset is the preset with a new cluster each time.
var proxmoxPreset = preset{
	name: "proxmox", strange: "Stopped", missing: "999", // it is "stopped" that proves
	target: providers.Target{Node: "n1", ID: "101", SystemUUID: guestUUID},
	new:    func() *fake { return newPVE().fake() },
}

// answer returns what a request's answer holds. The caller holds the lock.
func (c *pve) answer(f *fake, r *http.Request) (data any, status int) {
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
		uuid := guestUUID
		switch {
		case c.noUUID:
			uuid = ""
		case f.fault == providertest.OtherMachine:
			uuid = otherUUID
		}
		conf := m{"name": "n1", "cores": 4, "smbios1": "uuid=" + uuid, "digest": "f00"}
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
		if f.changing {
			ha = "request_stop"
		}
		if c.haCopy != nil {
			ha = *c.haCopy
		}
		if ha != "" {
			g["ha"] = m{"managed": 1, "state": ha}
		}
		switch {
		case f.on && c.runsOn == host:
			g["status"], g["qmpstatus"], g["pid"] = "running", "running", 4711
			if c.qmp != "" {
				g["qmpstatus"] = c.qmp
			}
		case f.word != "":
			g["status"], g["qmpstatus"] = f.word, f.word
		}
		if c.lock != "" {
			g["lock"] = c.lock
		}
		return g, 200
	case "POST status/stop":
		if f.setPower(false); !f.on && !f.changing && c.haState != "" {
			c.haState = "stopped" // ha-manager crm-command stop
		}
		return "UPID:pve1:0001:0002:6553F100:qmstop:101:fence@pve:", 200
	case "POST status/start":
		f.setPower(true)
		c.runsOn, c.vmstate = host, false
		return "UPID:pve1:0001:0003:6553F100:qmstart:101:fence@pve:", 200
	}
	return nil, http.StatusNotImplemented
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
	proxmoxPreset.suite(t, providertest.Options{})
}

// What Proxmox does around a guest that is stopped for a moment, or only seems to be.
func TestProxmoxPitfalls(t *testing.T) {
	stale := "stopped"
	for _, tc := range []struct {
		name string
		edit func(*fake, *pve)
		want string // state and word, or the error's class
	}{
		{"stopped", func(f *fake, _ *pve) { f.on = false }, `Off "stopped"`},
		{"stopped, while the cluster's list still says running", func(f *fake, _ *pve) { f.on = false },
			`Off "stopped"`},
		{"paused", func(_ *fake, c *pve) { c.qmp = "paused" }, `On "paused"`},
		{"suspended to disk", func(f *fake, c *pve) { f.on, c.lock, c.vmstate = false, "suspended", true },
			`On "stopped, memory is saved"`},
		{"suspended to disk, and unlocked by hand", func(f *fake, c *pve) { f.on, c.vmstate = false, true },
			`On "stopped, memory is saved"`},
		{"an offline migration", func(f *fake, c *pve) { f.on, c.lock = false, "migrate" },
			`Unknown "stopped, locked: migrate"`},
		{"a backup of a stopped guest, which QEMU reads", func(_ *fake, c *pve) {
			c.lock, c.qmp = "backup", "prelaunch"
		}, `On "prelaunch"`},
		{"HA wants it started", func(f *fake, c *pve) { f.on, c.haState = false, "started" },
			`Changing "stopped, and HA manages it: started"`},
		{"HA has moved it to another host, where it is stopped for seconds",
			func(f *fake, c *pve) { f.on, c.host, c.haState = false, "pve2", "request_start" },
			`Changing "stopped, and HA manages it: request_start"`},
		{"HA moves it after it was found", func(_ *fake, c *pve) {
			c.haState = "recovery"
			c.after["/api2/json/cluster/resources"] = func(f *fake) { c.host, f.on = "pve2", false }
		}, "unreachable"},
		{"HA moves it after its configuration was read", func(_ *fake, c *pve) {
			c.after["/api2/json/nodes/pve1/qemu/101/config"] = func(f *fake) { c.host, f.on = "pve2", false }
		}, "unreachable"},
		{"HA stopped it", func(f *fake, c *pve) { f.on, c.haState = false, "stopped" }, `Off "stopped, by HA"`},
		{"the guest's host has an old copy of HA's state",
			func(f *fake, c *pve) { f.on, c.haState, c.haCopy = false, "started", &stale },
			`Changing "stopped, and HA manages it: started"`},
		{"the asked host has no quorum, and an old copy of where the guest is",
			func(_ *fake, c *pve) { c.runsOn, c.noQuorum = "pve2", true },
			`Unknown "stopped, but the cluster has no quorum"`},
		{"its host refuses connections", func(_ *fake, c *pve) { c.down, c.status = "pve1", 595 }, "unreachable"},
		{"its host does not answer", func(_ *fake, c *pve) { c.down, c.status = "pve1", 596 }, "unreachable"},
		{"another guest has the number now", func(f *fake, _ *pve) {
			f.on, f.fault = false, providertest.OtherMachine
		}, "identity"},
		{"no UUID", func(f *fake, c *pve) { f.on, c.noUUID = false, true }, "unreachable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newPVE()
			s := proxmoxPreset
			s.new, s.target.ID = c.fake, "proxmox://lab/101"
			if got := s.ask(t, func(f *fake) { tc.edit(f, c) }); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A guest whose memory is saved is not started: it would resume the memory of the earlier machine.
func TestProxmoxPowerOnWithSavedMemory(t *testing.T) {
	c := newPVE()
	c.lock, c.vmstate = "suspended", true
	f := c.fake()
	f.password = "hunter2"
	server := httptest.NewServer(f)
	defer server.Close()
	p, target, _ := proxmoxPreset.open(t, f, server.URL, nil)
	if err := p.PowerOn(t.Context(), target, providertest.AllowSend); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("PowerOn: got %v, want %v", err, providers.ErrPermanent)
	}
	if err := p.PowerOff(t.Context(), target, providertest.AllowSend); err != nil || f.on {
		t.Errorf("PowerOff: got %v, runs %t", err, f.on)
	}
}
