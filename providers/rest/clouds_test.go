package rest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
)

// gceKey is the key of all service accounts. A key's ID plays the password.
var gceKey = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
})

// gce is a project with the instance n1. Its word is a status.
func gce() *fake {
	const path = "/compute/v1/projects/prod/zones/europe-west1-b/instances/n1"
	f := &fake{login: "token", header: "Authorization Bearer ", refuses: http.StatusUnauthorized,
		acts: func(r *http.Request) bool { return isPost(r) && r.URL.Path != "/token" }}
	f.file = func(password string) string {
		text, _ := json.Marshal(map[string]string{"type": "service_account", "client_email": "fence@example.net",
			"private_key_id": password, "private_key": gceKey(), "token_uri": f.url + "/token"})
		return string(text)
	}
	f.logsIn = func(f *fake, r *http.Request) (proven, ok bool) {
		head, _, _ := strings.Cut(r.FormValue("assertion"), ".")
		text, _ := base64.RawURLEncoding.DecodeString(head)
		var signed struct {
			KeyID string `json:"kid"`
		}
		_ = json.Unmarshal(text, &signed)
		return signed.KeyID == f.password, r.URL.Path == "/token"
	}
	f.answer = func(f *fake, r *http.Request) (int, any) {
		status, ip, name := "TERMINATED", "10.132.0.7", "n1"
		switch {
		case f.word == "n2":
			name = "n2"
		case f.word != "":
			status = f.word
		case f.changing:
			status = "STOPPING"
		case f.on:
			status = "RUNNING"
		}
		if f.fault == providertest.OtherMachine {
			ip = "10.132.0.99"
		}
		zone := "https://www.googleapis.com/compute/v1/projects/prod/zones/europe-west1-b"
		operation := object{"kind": "compute#operation", "status": "RUNNING"}
		switch r.Method + " " + r.URL.RequestURI() {
		case "POST /token":
			return http.StatusOK, object{"access_token": "token-" + f.password, "expires_in": 3599}
		case "GET " + path:
			return http.StatusOK, object{"name": name, "zone": zone, "status": status,
				"networkInterfaces": []object{{"networkIP": ip}}}
		case "POST " + path + "/stop?discardLocalSsd=false&noGracefulShutdown=true":
			f.setPower(false)
			return http.StatusOK, operation
		case "POST " + path + "/start":
			f.setPower(true)
			return http.StatusOK, operation
		}
		return http.StatusNotFound, object{"error": object{"code": 404}}
	}
	return f
}

var gcePreset = preset{
	name: "gce", strange: "OFF", new: gce, missing: "gce://prod/europe-west1-b/n9",
	target: providers.Target{Node: "n1", ID: "gce://prod/europe-west1-b/n1",
		Addresses: providers.NewAddresses("10.132.0.7")},
}

// azure is a resource group with a virtual machine. Its word is a power state, or several statuses.
func azure(path string) func() *fake {
	return func() *fake {
		return &fake{login: "token", header: "Authorization Bearer ", refuses: http.StatusUnauthorized, user: "app",
			acts: func(r *http.Request) bool { return isPost(r) && r.URL.Path != "/token" },
			logsIn: func(f *fake, r *http.Request) (proven, ok bool) {
				return r.FormValue("client_id") == "app" && r.FormValue("client_secret") == f.password &&
					r.FormValue("scope") == "https://management.azure.com/.default", r.URL.Path == "/token"
			},
			answer: func(f *fake, r *http.Request) (int, any) {
				const version = "api-version=2024-07-01"
				uuid, state, provisioning := guestUUID, "PowerState/stopped", "Succeeded"
				switch {
				case f.word != "":
					state, provisioning, _ = strings.Cut(f.word+"=Succeeded", "=")
					provisioning, _, _ = strings.Cut(provisioning, "=")
				case f.changing:
					state, provisioning = "PowerState/deallocating", "Updating"
				case f.on:
					state = "PowerState/running"
				}
				if f.fault == providertest.OtherMachine {
					uuid = otherUUID
				}
				statuses := []object{{"code": "ProvisioningState/" + strings.ToLower(provisioning)}}
				for _, code := range strings.Fields(state) {
					statuses = append(statuses, object{"code": code})
				}
				switch r.Method + " " + r.URL.RequestURI() {
				case "POST /token":
					return http.StatusOK, object{"access_token": "token-" + f.password, "expires_in": 3599}
				case "GET " + path + "?$expand=instanceView&" + version:
					return http.StatusOK, object{"name": "n1", "properties": object{"vmId": uuid,
						"provisioningState": provisioning, "instanceView": object{"statuses": statuses}}}
				case "POST " + path + "/powerOff?skipShutdown=true&" + version:
					f.setPower(false)
					return http.StatusAccepted, nil
				case "POST " + path + "/start?" + version:
					f.setPower(true)
					return http.StatusAccepted, nil
				}
				return http.StatusNotFound, object{"error": object{"code": "ResourceNotFound"}}
			}}
	}
}

const azureGroup = "/subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/prod/providers/Microsoft.Compute"

func azurePreset(path string) preset {
	return preset{
		name: "azure", strange: "PowerState/off", new: azure(azureGroup + path),
		missing: "azure://" + azureGroup + "/virtualMachines/n9",
		target:  providers.Target{Node: "n1", ID: "azure://" + azureGroup + path, SystemUUID: guestUUID},
	}
}

// openstack is a Nova with a server, and its Keystone. Its word is a status, or a pitfall.
func openstack() *fake {
	return &fake{login: "token", header: "X-Auth-Token ", refuses: http.StatusUnauthorized, user: "app",
		acts: func(r *http.Request) bool { return isPost(r) && r.URL.Path != "/v3/auth/tokens" },
		logsIn: func(f *fake, r *http.Request) (proven, ok bool) {
			if r.URL.Path != "/v3/auth/tokens" {
				return false, false
			}
			var sent struct {
				Auth struct {
					Identity struct {
						Methods    []string `json:"methods"`
						Credential struct {
							ID, Secret string
						} `json:"application_credential"`
					} `json:"identity"`
				} `json:"auth"`
			}
			_ = json.NewDecoder(r.Body).Decode(&sent)
			i := sent.Auth.Identity
			return len(i.Methods) == 1 && i.Methods[0] == "application_credential" && i.Credential.ID == "app" &&
				i.Credential.Secret == f.password, true
		},
		answer: func(f *fake, r *http.Request) (int, any) {
			id, status, vm, power := guestUUID, "SHUTOFF", "stopped", 4
			var task any
			service := object{"binary": "nova-compute", "host": "compute-7", "state": "up", "forced_down": false,
				"updated_at": time.Now().UTC().Format("2006-01-02T15:04:05.000000")}
			services := []object{service}
			switch {
			case f.word == "down":
				service["state"] = "down"
			case f.word == "forced down":
				service["forced_down"] = true
			case f.word == "late":
				service["updated_at"] = time.Now().UTC().Add(-2 * time.Minute).Format("2006-01-02T15:04:05.000000")
			case f.word == "no service":
				services = []object{}
			case f.word == "task":
				task = "powering-on"
			case f.word == "runs":
				power = 1
			case f.word != "":
				status = f.word
			case f.changing:
				task = "powering-off"
			case f.on:
				status, vm, power = "ACTIVE", "active", 1
			}
			if f.fault == providertest.OtherMachine {
				id = otherUUID
			}
			path := "/v2.1/servers/" + guestUUID
			switch r.Method + " " + r.URL.RequestURI() {
			case "POST /v3/auth/tokens":
				return http.StatusCreated, object{"token": object{}}
			case "GET " + path:
				return http.StatusOK, object{"server": object{"id": id, "status": status, "OS-EXT-STS:vm_state": vm,
					"OS-EXT-STS:task_state": task, "OS-EXT-STS:power_state": power,
					"OS-EXT-SRV-ATTR:host": "compute-7"}}
			case "GET /v2.1/os-services?binary=nova-compute&host=compute-7":
				return http.StatusOK, object{"services": services}
			case "POST " + path + "/action":
				var act object
				_ = json.NewDecoder(r.Body).Decode(&act)
				_, on := act["os-start"]
				f.setPower(on)
				return http.StatusAccepted, nil
			}
			return http.StatusNotFound, object{"itemNotFound": object{"code": 404}}
		}}
}

var openstackPreset = preset{
	name: "openstack", strange: "Off", new: openstack, missing: otherUUID,
	target: providers.Target{Node: "n1", ID: "openstack:///" + guestUUID, SystemUUID: guestUUID},
	setup: func(c *rest.Settings, _ *fake, address string) {
		c.Address, c.Values = address+"/v2.1", map[string]string{"identity": address + "/v3"}
	},
}

func TestCloudConformance(t *testing.T) {
	for name, s := range map[string]preset{
		"gce": gcePreset, "openstack": openstackPreset, "digitalocean": digitalOceanPreset,
		"upcloud":   upcloudPreset,
		"maas":      maasPreset,
		"nutanix":   nutanixPreset,
		"xcpng":     xcpngPreset,
		"azure":     azurePreset("/virtualMachines/n1"),
		"scale set": azurePreset("/virtualMachineScaleSets/pool1/virtualMachines/0"),
	} {
		var o providertest.Options
		if name == "maas" || name == "nutanix" {
			o.Without = map[providertest.Fault]string{providertest.StaysChanging: "the device has no word for that"}
		}
		t.Run(name, func(t *testing.T) { s.suite(t, o) })
	}
}

func TestCloudPitfalls(t *testing.T) {
	single, set := azurePreset("/virtualMachines/n1"), azurePreset("/virtualMachineScaleSets/pool1/virtualMachines/0")
	word := func(w string) func(*fake) { return func(f *fake) { f.on, f.word = false, w } }
	other := func(f *fake) { f.on, f.fault = false, providertest.OtherMachine }
	for _, tc := range []struct {
		name   string
		preset preset
		edit   func(*fake)
		want   string // state and word, or the error's class
	}{
		{"gce: off", gcePreset, word(""), `Off "TERMINATED"`},
		{"gce: the host failed", gcePreset, word("REPAIRING"), `Changing "REPAIRING"`},
		{"gce: suspended", gcePreset, word("SUSPENDED"), `Unknown "SUSPENDED"`},
		{"gce: another instance", gcePreset, word("n2"), `Unknown "another instance"`},
		{"gce: another instance's addresses", gcePreset, other, "identity"},
		{"azure: off", single, word(""), `Off "PowerState/stopped"`},
		{"azure: off, in a scale set", set, word(""), `Off "PowerState/stopped"`},
		{"azure: not seen as an operation", single, word("PowerState/deallocating"),
			`Changing "PowerState/deallocating"`},
		{"azure: hibernated", set, word("PowerState/deallocated HibernationState/Hibernated"),
			`Unknown "PowerState/deallocated, its memory is saved"`},
		{"azure: starts, and the power state is old", single, word("PowerState/deallocated=Updating"),
			`Changing "PowerState/deallocated, Updating"`},
		{"azure: a start failed", single, word("PowerState/deallocated=Failed"),
			`Unknown "PowerState/deallocated, Failed"`},
		{"azure: another machine", set, other, "identity"},
		{"digitalocean: off", digitalOceanPreset, word(""), `Off "off"`},
		{"digitalocean: an action runs", digitalOceanPreset, word("locked"), `Changing "off, locked"`},
		{"digitalocean: archived", digitalOceanPreset, word("archive"), `Unknown "archive"`},
		{"digitalocean: another Droplet's addresses", digitalOceanPreset, other, "identity"},
		{"upcloud: off", upcloudPreset, word(""), `Off "stopped"`},
		{"upcloud: it starts", upcloudPreset, word("maintenance"), `Changing "maintenance"`},
		{"upcloud: the cloud has a fault", upcloudPreset, word("error"), `Unknown "error"`},
		{"upcloud: another server", upcloudPreset, other, "identity"},
		{"maas: off", maasPreset, word(""), `Off "off"`},
		{"maas: off by a hypervisor", maasPreset, word("virsh"), `Unknown "off, by virsh"`},
		{"maas: the BMC is silent", maasPreset, word("=unknown"), `Unknown "unknown"`},
		{"maas: another machine", maasPreset, other, "identity"},
		{"xcpng: off", xcpngPreset, word(""), `Off "Halted"`},
		{"xcpng: off, and a copy is no proof", asDefault(xcpngPreset), word(""), `Unknown "Halted, by a copy"`},
		{"xcpng: its memory is on a disk", xcpngPreset, word("Suspended"), `Unknown "Suspended"`},
		{"xcpng: another VM", xcpngPreset, other, "identity"},
		{"nutanix: off", nutanixPreset, word(""), `Off "OFF"`},
		{"nutanix: off, and a copy is no proof", asDefault(nutanixPreset), word(""), `Unknown "OFF, by a copy"`},
		{"nutanix: paused", nutanixPreset, word("PAUSED"), `Unknown "PAUSED"`},
		{"nutanix: another VM", nutanixPreset, other, "identity"},
		{"openstack: off", openstackPreset, word(""), `Off "SHUTOFF"`},
		{"openstack: the host is dead", openstackPreset, word("down"),
			`Unknown "SHUTOFF, but its host's compute service is not up"`},
		{"openstack: the host is forced down", openstackPreset, word("forced down"),
			`Unknown "SHUTOFF, but its host's compute service is not up"`},
		{"openstack: the host died a minute ago", openstackPreset, word("late"),
			`Unknown "SHUTOFF, but its host's compute service has not reported"`},
		{"openstack: the host was removed", openstackPreset, word("no service"),
			`Unknown "SHUTOFF, but its host's compute service is not up"`},
		{"openstack: it starts", openstackPreset, word("task"), `Changing "SHUTOFF, powering-on"`},
		{"openstack: started beside Nova", openstackPreset, word("runs"),
			`Unknown "SHUTOFF, but the hypervisor does not say so"`},
		{"openstack: another server", openstackPreset, other, "identity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.preset.ask(t, tc.edit); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// digitalOcean is a team with the Droplet 42. Its word is a status.
func digitalOcean() *fake {
	const path = "/v2/droplets/42"
	return &fake{login: "bearer", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			status, ip, locked := "off", "10.128.0.7", f.word == "locked" || f.changing
			switch {
			case f.word != "" && f.word != "locked":
				status = f.word
			case f.on:
				status = "active"
			}
			if f.fault == providertest.OtherMachine {
				ip = "10.128.0.99"
			}
			droplet := object{"id": 42, "status": status, "locked": locked,
				"networks": object{"v4": []object{{"ip_address": ip, "type": "private"}}, "v6": []object{}}}
			switch r.Method + " " + r.URL.Path {
			case "GET " + path:
				return http.StatusOK, object{"droplet": droplet}
			case "GET /v2/droplets":
				return http.StatusOK, object{"droplets": []object{droplet},
					"links": object{}, "meta": object{"total": 1}}
			case "POST " + path + "/actions":
				var action struct{ Type string }
				if err := json.NewDecoder(r.Body).Decode(&action); err != nil || f.word == "locked" {
					return http.StatusUnprocessableEntity, object{"id": "unprocessable_entity"}
				}
				f.setPower(action.Type == "power_on")
				return http.StatusCreated,
					object{"action": object{"id": 7, "status": "in-progress", "type": action.Type}}
			}
			return http.StatusNotFound, object{"id": "not_found"}
		}}
}

var digitalOceanPreset = preset{
	name: "digitalocean", strange: "Off", new: digitalOcean, missing: "digitalocean://999",
	target: providers.Target{Node: "n1", ID: "digitalocean://42", Addresses: providers.NewAddresses("10.128.0.7")},
}

// upcloud is an account with one server. Its word is a state. As the real API it answers stop and start with the state
// of before, or refuses them in maintenance.
func upcloud() *fake {
	const path = "/1.3/server/" + guestUUID
	return &fake{login: "bearer", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			state, uuid := "stopped", guestUUID
			switch {
			case f.word != "":
				state = f.word
			case f.changing:
				state = "maintenance"
			case f.on:
				state = "started"
			}
			if f.fault == providertest.OtherMachine {
				uuid = otherUUID
			}
			server := object{"uuid": uuid, "state": state, "hostname": "n1", "zone": "fi-hel2"}
			switch act := r.Method + " " + r.URL.Path; act {
			case "GET /1.3/server":
				return http.StatusOK, object{"servers": object{"server": []object{server}}}
			case "GET " + path:
				return http.StatusOK, object{"server": server}
			case "POST " + path + "/stop", "POST " + path + "/start":
				if f.word == "maintenance" {
					return http.StatusConflict, object{"error": object{"error_code": "SERVER_STATE_ILLEGAL"}}
				}
				var body struct {
					Stop struct {
						Type string `json:"stop_type"`
					} `json:"stop_server"`
				}
				err := json.NewDecoder(r.Body).Decode(&body)
				if on := act == "POST "+path+"/start"; err == nil && (on || body.Stop.Type == "hard") {
					f.setPower(on)
				}
				return http.StatusOK, object{"server": server}
			}
			return http.StatusNotFound, object{"error": object{"error_code": "SERVER_NOT_FOUND"}}
		}}
}

var upcloudPreset = preset{
	name: "upcloud", strange: "Stopped", new: upcloud,
	missing: "upcloud:////" + strings.Replace(guestUUID, "4", "5", 1),
	target:  providers.Target{Node: "n1", ID: "upcloud:////" + guestUUID, SystemUUID: guestUUID},
}

// UpCloud refuses an action on a server in maintenance. A later one is accepted.
func TestUpCloudInMaintenance(t *testing.T) {
	f := upcloud()
	f.on, f.password = true, "hunter2"
	server := httptest.NewServer(f)
	defer server.Close()
	p, target, _ := upcloudPreset.open(t, f, server.URL, nil)
	defer func() { _ = p.(providers.Closer).Close(t.Context()) }()
	for _, tc := range []struct {
		word    string
		refused bool
	}{{"maintenance", true}, {"", false}} {
		f.edit(func(f *fake) { f.word = tc.word })
		err := p.PowerOff(t.Context(), target, providertest.AllowSend)
		if (err != nil) != tc.refused || f.on != tc.refused {
			t.Errorf("state %q: got %v, on %t; want refused %t", tc.word, err, f.on, tc.refused)
		}
	}
}

// maas has the machine abc123. Its word is a power driver, or with = before it the driver's word.
func maas() *fake {
	const path = "/MAAS/api/2.0/machines/abc123/"
	f := &fake{login: "oauth1", refuses: http.StatusUnauthorized, acts: isPost}
	f.file = func(password string) string { return "consumer:token:" + password }
	f.answer = func(f *fake, r *http.Request) (int, any) {
		state, driver, uuid := "off", "ipmi", guestUUID
		switch word, isState := strings.CutPrefix(f.word, "="); {
		case isState:
			state = word
		case f.on:
			state = "on"
		case f.word != "":
			driver = f.word
		}
		if f.fault == providertest.OtherMachine {
			uuid = otherUUID
		}
		machine := object{"system_id": "abc123", "power_state": "on", "power_type": driver, "hardware_uuid": uuid}
		switch r.Method + " " + r.URL.RequestURI() {
		case "GET " + path:
			return http.StatusOK, machine
		case "GET " + path + "?op=query_power_state":
			return http.StatusOK, object{"state": state}
		case "POST " + path + "?op=power_off", "POST " + path + "?op=power_on":
			f.setPower(strings.HasSuffix(r.URL.RawQuery, "on"))
			return http.StatusOK, machine
		}
		return http.StatusNotFound, nil
	}
	return f
}

var maasPreset = preset{
	name: "maas", strange: "=OFF", new: maas, missing: "zzz999",
	target: providers.Target{Node: "n1", ID: "maas:///default/abc123", SystemUUID: guestUUID},
	setup:  func(c *rest.Settings, _ *fake, address string) { c.Address = address + "/MAAS" },
}

// An API key that is not one is refused before anything is sent.
func TestAPIKeyOfOAuth1(t *testing.T) {
	for _, key := range []string{"consumer", "consumer:token", "consumer::secret", "a:b:c:d"} {
		got := maasPreset.ask(t, func(f *fake) { f.file = func(string) string { return key } })
		if got != "denied" {
			t.Errorf("key %q: got %s, want denied", key, got)
		}
	}
}

// xcpng is Xen Orchestra with one VM. Its word is a power state.
func xcpng() *fake {
	const path = "/rest/v0/vms/" + guestUUID
	return &fake{login: "cookie", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			state, uuid, running := "Halted", guestUUID, object{}
			switch {
			case f.word != "":
				state = f.word
			case f.changing:
				running["OpaqueRef:5"] = "hard_shutdown"
			case f.on:
				state = "Running"
			}
			if f.fault == providertest.OtherMachine {
				uuid = otherUUID
			}
			switch r.Method + " " + r.URL.Path {
			case "GET " + path:
				return http.StatusOK, object{"type": "VM", "uuid": uuid, "power_state": state,
					"current_operations": running}
			case "POST " + path + "/actions/hard_shutdown", "POST " + path + "/actions/start":
				f.setPower(strings.HasSuffix(r.URL.Path, "start"))
				return http.StatusAccepted, object{"taskId": "0m8k9p3v6"}
			}
			return http.StatusNotFound, object{"error": "no such VM"}
		}}
}

// nutanix is Prism Central with one VM. Its word is a power state.
func nutanix() *fake {
	const path = "/api/vmm/v4.0/ahv/config/vms/" + guestUUID
	requests := map[string]bool{}
	return &fake{login: "basic", user: "fence", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			state, uuid := "OFF", guestUUID
			switch {
			case f.word != "":
				state = f.word
			case f.on:
				state = "ON"
			}
			if f.fault == providertest.OtherMachine {
				uuid = otherUUID
			}
			switch r.Method + " " + r.URL.Path {
			case "GET " + path:
				return http.StatusOK, object{"data": object{"extId": uuid, "powerState": state}}
			case "POST " + path + "/$actions/power-off", "POST " + path + "/$actions/power-on":
				id := r.Header.Get("NTNX-Request-Id")
				if r.Header.Get("If-Match") != "v1" || len(id) != len(guestUUID) || requests[id] {
					return http.StatusPreconditionFailed, nil
				}
				requests[id] = true
				f.setPower(strings.HasSuffix(r.URL.Path, "on"))
				return http.StatusAccepted, object{"data": object{"extId": "task"}}
			}
			return http.StatusNotFound, nil
		}}
}

var (
	cachedOff   = map[string]string{"allowCachedOff": "true"}
	xcpngPreset = preset{
		name: "xcpng", strange: "halted", new: xcpng, missing: otherUUID, values: cachedOff,
		target: providers.Target{Node: "n1", ID: guestUUID, SystemUUID: guestUUID},
	}
	nutanixPreset = preset{
		name: "nutanix", strange: "off", new: nutanix, missing: otherUUID, values: cachedOff,
		target: providers.Target{Node: "n1", ID: "nutanix://" + guestUUID, SystemUUID: guestUUID},
	}
)

// asDefault is a preset without the operator's values.
func asDefault(p preset) preset {
	p.values = nil
	return p
}
