package rest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
)

// lxd is a cluster of three members with the virtual machine n1, as far as the presets ask it. Its word is a status, or
// a pitfall. What the pitfalls do is what instancePostMigration, evacuateClusterMember and statusCode of LXD and Incus
// do.
func lxd() *fake {
	const path = "/1.0/instances/n1"
	reads := 0 // of the instance
	return &fake{login: "certificate", refuses: http.StatusForbidden,
		acts: func(r *http.Request) bool { return r.Method == http.MethodPut },
		answer: func(f *fake, r *http.Request) (int, any) {
			result := func(metadata any) (int, any) {
				return http.StatusOK, object{"type": "sync", "status_code": 200, "metadata": metadata}
			}
			fails := func(status int, text string) (int, any) {
				return status, object{"type": "error", "error_code": status, "error": text, "metadata": nil}
			}
			running := func(resources any) object {
				return object{"running": []object{{"class": "task", "status": "Running", "status_code": 103,
					"resources": resources}}}
			}
			single := strings.HasPrefix(f.word, "single")
			location := "m1"
			if single {
				location = "none"
			}
			switch r.Method + " " + r.URL.RequestURI() {
			case "GET " + path + "?project=default", "GET " + path + "?recursion=0&project=default":
				reads++
				status, code := "Stopped", 102
				config := object{"volatile.uuid": guestUUID, "volatile.last_state.power": "STOPPED"}
				machine := object{"name": "n1", "project": "default", "type": "virtual-machine", "stateful": false}
				switch f.word {
				case "offline, 503":
					return fails(http.StatusServiceUnavailable, "member is offline")
				case "single container":
					machine["type"] = "container"
				case "single, host crashed", "crashed, its processes end":
					config["volatile.last_state.power"] = "RUNNING"
				case "never started", "single, never started":
					delete(config, "volatile.last_state.power")
				case "healed":
					config["volatile.last_state.power"], config["volatile.evacuate.origin"] = "RUNNING", "m3"
				case "moved from a dead member":
					config["volatile.last_state.power"] = "RUNNING"
				case "stateful":
					machine["stateful"] = true
				case "migrated between":
					if reads%2 == 0 {
						location = "m2"
					}
				case "", "single", "starting", "migrating", "evacuating", "other operations", "offline", "evacuated",
					"a process is left", "a process ends", "starts now":
				default:
					status, code = f.word, 199
				}
				if f.on {
					status, code = "Running", 103
					config["volatile.last_state.power"] = "RUNNING"
				}
				if f.fault == providertest.OtherMachine {
					config["volatile.uuid"] = otherUUID
				}
				machine["status"], machine["status_code"] = status, code
				machine["config"], machine["location"] = config, location
				return result(machine)
			case "GET " + path + "/state?project=default":
				if f.on { // the guest's agent is asked, and its guest hangs
					return fails(http.StatusGatewayTimeout, "the agent does not answer")
				}
				pid := map[string]int{"a process is left": 4711, "a process ends": -1}[f.word]
				if f.word == "starts now" {
					return result(object{"status": "Running", "status_code": 103, "pid": 4711})
				}
				return result(object{"status": "Stopped", "status_code": 102, "pid": pid})
			case "GET /1.0/cluster/members/none":
				return fails(http.StatusInternalServerError, "Server is not clustered")
			case "GET /1.0/cluster/members/m1":
				status := map[string]string{"offline": "Offline", "evacuated": "Evacuated"}[f.word]
				if status == "" {
					status = "Online"
				}
				return result(object{"server_name": "m1", "status": status})
			case "GET /1.0/operations?recursion=1&project=default":
				switch {
				case f.changing, f.word == "starting", f.word == "migrating":
					return result(running(object{"instances": []string{path}}))
				case f.word == "evacuating":
					return result(running(nil))
				case f.word == "other operations":
					return result(running(object{"instances": []string{path + "0?project=default"}}))
				}
				return result(object{})
			case "PUT " + path + "/state?project=default":
				var action struct {
					Action string
					Force  bool
				}
				err := json.NewDecoder(r.Body).Decode(&action)
				if err != nil || action.Action == "stop" && !action.Force {
					return fails(http.StatusBadRequest, "no such action")
				}
				f.setPower(action.Action == "start")
				return http.StatusAccepted, object{"type": "async", "status_code": 100, "operation": "/1.0/operations"}
			}
			return fails(http.StatusNotFound, "Instance not found")
		}}
}

func lxdPreset(name string) preset {
	return preset{
		name: name, strange: "stopped", new: lxd, missing: "n9",
		target: providers.Target{Node: "n1", ID: "n1", SystemUUID: guestUUID},
	}
}

func TestLXDConformance(t *testing.T) {
	for _, name := range []string{"lxd", "incus"} {
		t.Run(name, func(t *testing.T) {
			lxdPreset(name).suite(t, providertest.Options{NoLogIns: "no device locks a certificate"})
		})
	}
}

// Incus has LXD's API, so both have one description.
func TestIncusIsLXD(t *testing.T) {
	all := rest.Presets()
	want := bytes.ReplaceAll(bytes.ReplaceAll(all["lxd.yaml"], []byte("lxd"), []byte("incus")), []byte("LXD"),
		[]byte("Incus"))
	if !bytes.Equal(all["incus.yaml"], want) {
		t.Errorf("incus.yaml is not lxd.yaml with other names: write it again")
	}
}

func TestLXDPitfalls(t *testing.T) {
	for _, tc := range []struct {
		word string
		want string // state and word, or the error's class
	}{
		{"", `Off "Stopped"`},
		{"other operations", `Off "Stopped"`},
		{"starting", `Changing "Stopped, and an operation may work on it"`},
		{"migrating", `Changing "Stopped, and an operation may work on it"`},
		{"evacuating", `Changing "Stopped, and an operation may work on it"`},
		{"migrated between", `Changing "Stopped just now, or moved"`},
		{"stateful", `On "Stopped, memory is saved"`},
		{"healed", `Unknown "Stopped, and its member was evacuated"`},
		{"moved from a dead member", `Unknown "Stopped, but no stop is recorded"`},
		{"offline", `Unknown "Stopped, but its member is not Online"`},
		{"evacuated", `Unknown "Stopped, but its member is not Online"`},
		{"offline, 503", "unreachable"},
		{"Frozen", `On "Frozen"`},
		{"Error", `Unknown "Error"`},
		{"single", `Off "Stopped"`},
		{"single container", `Off "Stopped"`},
		{"single, host crashed", `Unknown "Stopped, but no stop is recorded"`},
		{"crashed, its processes end", `Unknown "Stopped, but no stop is recorded"`},
		{"never started", `Unknown "Stopped, but no stop is recorded"`},
		{"single, never started", `Unknown "Stopped, but no stop is recorded"`},
		{"a process is left", `Unknown "Stopped, but a process may be left"`},
		{"a process ends", `Unknown "Stopped, but a process may be left"`},
		{"starts now", `Unknown "Stopped, but a process may be left"`},
	} {
		if got := lxdPreset("lxd").ask(t, func(f *fake) { f.on, f.word = false, tc.word }); got != tc.want {
			t.Errorf("%q: got %s, want %s", tc.word, got, tc.want)
		}
	}
}

// An instance whose memory is saved is not started: LXD would discard the memory.
func TestLXDPowerOnWithSavedMemory(t *testing.T) {
	f := lxd()
	f.word, f.changed = "stateful", make(chan struct{})
	server := httptest.NewServer(f)
	defer server.Close()
	p, target, _ := lxdPreset("lxd").open(t, f, server.URL, nil)
	defer func() { _ = p.(providers.Closer).Close(t.Context()) }()
	err := p.PowerOn(t.Context(), target, providertest.AllowSend)
	if got := providers.ErrorClass(err); got != "permanent" || f.on {
		t.Errorf("PowerOn: got %v, the instance runs: %t; want permanent, false", err, f.on)
	}
}
