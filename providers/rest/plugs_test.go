package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/rest"
)

// shelly is a Shelly device with a meter, as its RPC reference describes it.
func shelly() *fake {
	return &fake{login: "digest", user: "admin", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			switch r.Method + " " + r.URL.RequestURI() {
			case "GET /rpc/Switch.GetStatus?id=0":
				status := object{"id": 0, "source": "http", "output": f.on, "apower": 0.0, "voltage": 230.1,
					"temperature": object{"tC": 40.1}}
				if f.on {
					status["apower"] = 87.3
				}
				if f.changing { // toggle_after
					status["timer_started_at"], status["timer_duration"] = 1700000000.1, 60
				}
				switch f.word {
				case "":
				case "off":
					status["output"] = f.word
				case "welded":
					status["output"] = false
				case "unmetered":
					delete(status, "apower")
				}
				return http.StatusOK, status
			case "POST /rpc/Switch.Set":
				var sent struct {
					ID *int  `json:"id"`
					On *bool `json:"on"`
				}
				if json.NewDecoder(r.Body).Decode(&sent) != nil || sent.ID == nil || sent.On == nil || *sent.ID != 0 {
					return http.StatusBadRequest, object{"code": -103, "message": "Invalid argument"}
				}
				was := f.on
				f.setPower(*sent.On)
				return http.StatusOK, object{"was_on": was}
			}
			return http.StatusInternalServerError, object{"code": -105, "message": "Argument 'id', value 1 not found!"}
		}}
}

// tasmota is a plug as xdrv_01_9_webserver.ino and xdrv_03_energy.ino answer: the meter is read only while the relay is
// on, unless SetOption21 is 1.
func tasmota() *fake {
	return &fake{login: "basic", user: "admin", refuses: http.StatusUnauthorized, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			relay := map[bool]string{true: "ON", false: "OFF"}[f.on]
			if f.word != "" && f.word != "unmetered" && f.word != "unmeasured" {
				relay = f.word
			}
			command := r.URL.Query().Get("cmnd")
			if r.Method == http.MethodPost {
				command = r.FormValue("cmnd")
			}
			switch command {
			case "SetOption21":
				if f.word == "unmeasured" {
					return http.StatusOK, object{"SetOption21": "OFF"}
				}
				return http.StatusOK, object{"SetOption21": "ON"}
			case "Status 11":
				return http.StatusOK, object{"StatusSTS": object{"POWER": relay, "Uptime": "0T00:01:00"}}
			case "Status 8":
				energy := object{"Power": 0, "Voltage": 230, "Current": 0.0}
				if f.on && f.word != "unmeasured" {
					energy["Power"] = 87
				}
				if f.word == "unmetered" {
					return http.StatusOK, object{"StatusSNS": object{"Time": "2026-11-02T20:46:18"}}
				}
				return http.StatusOK, object{"StatusSNS": object{"ENERGY": energy}}
			case "Power ON", "Power OFF":
				f.setPower(command == "Power ON")
				return http.StatusOK, object{"POWER": command[len("Power "):]}
			}
			return http.StatusOK, object{"Command": "Unknown"}
		}}
}

// pikvm is a PiKVM as kvmd's plugins/atx/gpio.py answers.
func pikvm() *fake {
	return &fake{login: "basic", user: "fence", refuses: http.StatusForbidden, acts: isPost,
		answer: func(f *fake, r *http.Request) (int, any) {
			switch r.Method + " " + r.URL.RequestURI() {
			case "GET /api/atx":
				leds := object{"power": f.on, "hdd": false}
				enabled := true
				switch f.word {
				case "":
				case "disk":
					leds["hdd"] = true
				case "disabled": // plugins/atx/disabled.py
					enabled, leds["power"] = false, false
				default:
					leds["power"] = f.word
				}
				return http.StatusOK, object{"ok": true, "result": object{"enabled": enabled, "busy": f.changing,
					"acts": object{"power": f.changing, "reset": false}, "leds": leds}}
			case "POST /api/atx/power?action=off_hard", "POST /api/atx/power?action=on":
				f.setPower(r.URL.Query().Get("action") == "on")
				return http.StatusOK, object{"ok": true, "result": object{}}
			}
			return http.StatusNotFound, object{"ok": false}
		}}
}

var (
	shellyPreset  = preset{name: "shelly", addressIDs: true, strange: "off", new: shelly}
	tasmotaPreset = preset{name: "tasmota", addressIDs: true, strange: "Off", new: tasmota}
	pikvmPreset   = preset{name: "pikvm", addressIDs: true, strange: "off", new: pikvm,
		values: map[string]string{"allowGuessedOff": "true"}}
)

func init() {
	shellyPreset.target.Node, shellyPreset.target.ID = "n1", "0"
	tasmotaPreset.target.Node, pikvmPreset.target.Node = "n1", "n1"
}

func TestShellyConformance(t *testing.T) {
	shellyPreset.suite(t, providertest.Options{Without: map[providertest.Fault]string{
		providertest.OtherMachine: noOther,
	}})
}

func TestTasmotaConformance(t *testing.T) {
	tasmotaPreset.suite(t, providertest.Options{Without: map[providertest.Fault]string{
		providertest.OtherMachine: noOther, providertest.StaysChanging: "a relay is on or off",
	}})
}

func TestPiKVMConformance(t *testing.T) {
	pikvmPreset.suite(t, providertest.Options{Without: map[providertest.Fault]string{
		providertest.OtherMachine: noOther,
	}})
}

// What looks like off, and is not.
func TestPlugPitfalls(t *testing.T) {
	careful := pikvmPreset
	careful.values = nil
	for _, tc := range []struct {
		name string
		of   preset
		edit func(*fake)
		want string // state and word, or the error's class
	}{
		{"shelly: off", shellyPreset, func(f *fake) { f.on = false }, `Off "off, 0 W"`},
		{"shelly: a welded relay", shellyPreset, func(f *fake) { f.word = "welded" }, `On "off, but power flows"`},
		{"shelly: no meter", shellyPreset, func(f *fake) { f.on, f.word = false, "unmetered" },
			`Unknown "off, but nothing measures the power"`},
		{"shelly: off until a timer ends", shellyPreset, func(f *fake) { f.on, f.changing = false, true },
			`Changing "off, until a timer ends"`},
		{"tasmota: off", tasmotaPreset, func(f *fake) { f.on = false }, `Off "OFF, 0 W"`},
		{"tasmota: a welded relay", tasmotaPreset, func(f *fake) { f.word = "OFF" }, `On "OFF, but power flows"`},
		{"tasmota: no meter", tasmotaPreset, func(f *fake) { f.on, f.word = false, "unmetered" },
			`Unknown "OFF, but nothing measures the power"`},
		{"tasmota: a meter that does not measure while the relay is off", tasmotaPreset,
			func(f *fake) { f.on, f.word = false, "unmeasured" },
			`Unknown "OFF, but the meter shows 0 W whenever the relay is off: set SetOption21 1"`},
		{"pikvm: off", pikvmPreset, func(f *fake) { f.on = false }, `Off "power LED dark"`},
		{"pikvm: dark, and nothing says that this counts", careful, func(f *fake) { f.on = false },
			`Unknown "power LED dark: off, or asleep"`},
		{"pikvm: the disk works", pikvmPreset, func(f *fake) { f.on, f.word = false, "disk" },
			`Unknown "power LED dark, but the disk's LED on"`},
		{"pikvm: no ATX board", pikvmPreset, func(f *fake) { f.word = "disabled" }, `Unknown "ATX is disabled"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.of.ask(t, tc.edit); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Only what a person says makes a dark LED an Off, and check-config shows it.
func TestPiKVMCaution(t *testing.T) {
	for value, want := range map[string]int{"": 0, "false": 0, "true": 1} {
		c := presetConfig(t, "pikvm")
		c.Values = map[string]string{"allowGuessedOff": value}
		if got := len(c.Cautions()); got != want {
			t.Errorf("allowGuessedOff %q: got %d cautions, want %d", value, got, want)
		}
	}
}

// A power supply holds out for a while: an outlet that is off proves nothing until it was off for offDelay.
func TestOutletStaysOff(t *testing.T) {
	f := shelly()
	f.on, f.password, f.changed = false, "hunter2", make(chan struct{})
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(f.password), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := newPresetAt(t, "shelly", func() time.Time { return now }, func(c *rest.Settings) {
		c.Username, c.PasswordFile = f.user, file
	})
	target := providers.Target{Node: "n1", ID: server.URL + "/0"}
	for _, step := range []struct {
		name  string
		after time.Duration
		on    bool
		want  string
	}{
		{"off", 0, false, "Changing off, 0 W for 0s of 5s"},
		{"for four seconds", 4 * time.Second, false, "Changing off, 0 W for 4s of 5s"},
		{"for five", time.Second, false, "Off off, 0 W"},
		{"on", time.Second, true, "On on"},
		{"off again", 9 * time.Second, false, "Changing off, 0 W for 0s of 5s"},
		{"not asked for a minute", 70 * time.Second, false, "Changing off, 0 W for 0s of 5s"},
	} {
		now = now.Add(step.after)
		f.edit(func(f *fake) { f.on = step.on })
		obs, err := p.State(t.Context(), target)
		if got := obs.State.String() + " " + obs.Raw; err != nil || got != step.want {
			t.Errorf("%s: got %s, %v, want %s", step.name, got, err, step.want)
		}
	}
	now = now.Add(4 * time.Second)
	if err := p.PowerOn(t.Context(), target, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	f.edit(func(f *fake) { f.on = false })
	obs, err := p.State(t.Context(), target) // the Offs from before the power-on count no longer
	if want := "off, 0 W for 0s of 5s"; err != nil || obs.State != providers.PowerChanging || obs.Raw != want {
		t.Errorf("after a power-on: got %s %q, %v, want Changing %q", obs.State, obs.Raw, err, want)
	}
}
