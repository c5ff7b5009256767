package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	machines "github.com/forcefence/forcefence/test/world"
)

// settings are what a test chooses of a configuration file.
type settings struct {
	NS, Dir, PodIP, Metrics string // filled in

	Mode        string // "": observe
	ManualMarks string // "": refuse
	Exclude     string // excludeSelector
	Selector    string // of the rule; "": the world's nodes
	Machine     string // of the rule; "": by annotation
	Rules       string // more items of nodes
	Providers   string // more items of providers
	Lease       string // leaderElection's durations; "": short ones
	Detach      string // detachTimeout; "": 2m
	Timeout     string // powerOffTimeout; "": 5s
	Mortal      bool   // it is not started again when it has lost its Lease
	Storm       string // stormGuard; "": the defaults
	Top         string // more keys

	Env        []string // of the process, beside the test's own
	Binary     string   // "": the one under test
	Kubeconfig string   // "": the administrator's
	Namespace  string   // "": the world's
}

var configFile = template.Must(template.New("config").Parse(`# written by a test
mode: {{or .Mode "observe"}}
powerOffAfter: 20s
stormGuard: {{or .Storm "{}"}}
powerOffTimeout: {{or .Timeout "5s"}}
detachTimeout: {{or .Detach "2m"}}
manualMarks: {{or .ManualMarks "refuse"}}
excludeSelector: {{printf "%q" .Exclude}}
listen: {metrics: "{{.Metrics}}"}
leaderElection: { {{or .Lease "leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 500ms"}} }
providers:
- name: racks
  timeout: 2s
  ratePerSecond: 100
  concurrency: 4
  redfish: {username: fence, passwordFile: "{{.Dir}}/password", caFile: "{{.Dir}}/ca.pem"}
- name: cellar
  timeout: 2s
  ratePerSecond: 100
  concurrency: 4
  redfish: {username: fence, passwordFile: "{{.Dir}}/password", caFile: "{{.Dir}}/ca.pem"}
{{.Providers}}
nodes:
{{- if not (or .Selector .Machine .Rules)}}
- name: cellar
  selector: {{printf "world=%s,room=cellar" .NS | printf "%q"}}
  provider: cellar
  machine: {from: annotation, annotation: ` + bmcAnnotation + `, allow: [127.0.0.1]}
- name: machines
  selector: {{printf "world=%s,room!=cellar" .NS | printf "%q"}}
{{- else}}
- name: machines
  selector: {{printf "%q" (or .Selector (printf "world=%s" .NS))}}
{{- end}}
  provider: racks
  machine: {{or .Machine (printf "{from: annotation, annotation: %s, allow: [127.0.0.1]}" "` + bmcAnnotation + `")}}
{{.Rules}}
{{.Top}}
`))

const bmcAnnotation = machines.BMCAnnotation

// child is one forcefence process. One that ends because it lost its Lease is started again as a kubelet would: a busy
// machine can cost it that, and Deployments live with it.
type child struct {
	*cluster.Part
	w        *world
	identity string
	set      settings
	config   string // the file
	mortal   atomic.Bool
	log      logbook
}

const (
	// leaseLost is what the process ends with when it has lost its Lease.
	leaseLost = "leader election lost"
	// maxRestarts: a process that loses the Lease so often has another reason than a busy machine.
	maxRestarts = 5
)

// start runs forcefence with those settings and returns once its informers are in sync and it leads, or another of the
// world's does. It ends with the test.
func (w *world) start(set settings) *child {
	w.t.Helper()
	w.children++
	c := &child{w: w, identity: fmt.Sprintf("%s-ff%d", w.ns, w.children), set: set}
	c.config = filepath.Join(w.dir, c.identity+".yaml")
	c.mortal.Store(set.Mortal)
	w.t.Cleanup(func() {
		for _, refused := range []string{"is forbidden: User ", "ValidatingAdmissionPolicy 'forcefence-"} {
			if c.log.has(refused) {
				w.t.Errorf("%s: the API server refused what it may do: %q in its log", c.identity, refused)
			}
		}
		if c.log.has("DATA RACE") {
			w.t.Errorf("%s: data race", c.identity)
		}
		if w.t.Failed() {
			w.t.Logf("%s printed:\n%s", c.identity, c.log)
		}
	})
	for attempt := 0; ; attempt++ {
		var err error
		c.set.PodIP, err = kit.FreePodIP()
		kit.Must(w.t, err)
		c.set.Metrics = kit.FreeAddress(w.t)
		c.configure(c.set)
		c.log = logbook(filepath.Join(w.dir, fmt.Sprintf("%s-%d.log", c.identity, attempt)))
		c.Part = w.process(c)
		c.launch()
		if err = c.answers("/readyz"); err == nil {
			break
		}
		c.Stop()
		if attempt == 2 || !c.log.has("address already in use") {
			w.t.Fatalf("%s does not get ready: %v\n%s", c.identity, err, c.log)
		}
	}
	w.t.Cleanup(c.end)
	// What a test does before a process leads is not observed: a machine that ran has no pin yet, a boot is the first.
	begun := time.Now()
	w.until("a leader", func() bool {
		identity, renewed := w.leader()
		return identity != "" && renewed.After(begun)
	})
	return c
}

func (w *world) process(c *child) *cluster.Part {
	p := cluster.NewPart("forcefence", cmp.Or(c.set.Binary, binary), []string{"run", "--config", c.config,
		"--kubeconfig", cmp.Or(c.set.Kubeconfig, w.Kubeconfig()), "--identity", c.identity, "--log-format", "json"},
		string(c.log), nil, nil)
	p.Env = append([]string{"POD_NAMESPACE=" + cmp.Or(c.set.Namespace, w.ns), "POD_IP=" + c.set.PodIP}, c.set.Env...)
	losses, restarts := 0, 0
	p.Again = func(status int) bool {
		before := losses
		losses = c.log.count(leaseLost)
		restarts++
		return !c.mortal.Load() && status == 1 && losses > before && restarts <= maxRestarts
	}
	return p
}

// launch starts the process, for the first time or again, and does not wait.
func (c *child) launch() {
	c.w.t.Helper()
	kit.Must(c.w.t, c.Launch())
}

// configure writes the file again. The addresses stay.
func (c *child) configure(set settings) {
	c.w.t.Helper()
	set.NS, set.Dir, set.Metrics = c.w.ns, c.w.dir, c.set.Metrics
	var b bytes.Buffer
	kit.Must(c.w.t, configFile.Execute(&b, set))
	c.write(b.String())
}

// write replaces the file in one step, as an editor does.
func (c *child) write(text string) {
	c.w.t.Helper()
	kit.Must(c.w.t, os.WriteFile(c.config+".new", []byte(text), 0o600))
	kit.Must(c.w.t, os.Rename(c.config+".new", c.config))
}

func (c *child) running() bool { return c.PID() != 0 }

// end asks a process that still runs to stop, and checks how it does. It may be repeated.
func (c *child) end() {
	if !c.running() {
		c.Stop() // not again, either
		return
	}
	c.Stop()
	if code := c.ExitCode(); code != 0 && !c.w.t.Failed() {
		c.w.t.Errorf("%s: exit status after SIGTERM: got %d, want 0", c.identity, code)
	}
}

var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// health is an address of the health server.
func (c *child) health(path string) string {
	return fmt.Sprintf("http://%s:%d%s", c.set.PodIP, kit.HealthPort, path)
}

// answers waits until the health server gives 200 at that path.
func (c *child) answers(path string) error {
	ctx, cancel := context.WithTimeout(c.w.ctx, 2*time.Minute) // a busy machine has needed more than half of one
	defer cancel()
	return poll(ctx, func() (bool, error) {
		if !c.running() {
			return false, fmt.Errorf("it exited with status %d", c.ExitCode())
		}
		_, err := get(c.health(path))
		return err == nil, err
	})
}

func get(url string) (string, error) {
	resp, err := httpClient.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(b), err
}

// metric returns a series' value, by its name and labels as Prometheus prints them; 0 if it is not there.
// forcefence sends the same text for a second, so metric waits for another: the process's own metrics differ in each.
func (c *child) metric(series string) float64 {
	c.w.t.Helper()
	before, err := c.exposition()
	kit.Must(c.w.t, err)
	text := before
	kit.Must(c.w.t, poll(c.w.ctx, func() (bool, error) {
		text, err = c.exposition()
		return text != before, err
	}))
	v, err := valueOf(text, series)
	kit.Must(c.w.t, err)
	return v
}

// exposition returns all metrics. The text may be a second old.
func (c *child) exposition() (string, error) { return get("http://" + c.set.Metrics + "/metrics") }

func (c *child) scrape(series string) (float64, error) {
	text, err := c.exposition()
	if err != nil {
		return 0, err
	}
	return valueOf(text, series)
}

// valueOf returns a series' value in an exposition; 0 if it is not there.
func valueOf(text, series string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, nil
}

// untilMetric waits until a series has at least that value. The server of metrics may be up after that of health.
func (c *child) untilMetric(series string, least float64) {
	c.w.t.Helper()
	var have float64
	err := poll(c.w.ctx, func() (ok bool, err error) {
		have, err = c.scrape(series)
		return err == nil && have >= least, err
	})
	if err != nil {
		c.w.t.Fatalf("metric %s: got %v, want at least %v: %v", series, have, least, err)
	}
}

// logbook is the file that holds what a child printed.
type logbook string

func (l logbook) lines() []string { return strings.Split(l.String(), "\n") }

func (l logbook) String() string {
	text, _ := os.ReadFile(string(l)) // not there before its start
	return string(text)
}

// has reports whether some line contains all of the parts.
func (l logbook) has(parts ...string) bool { return l.count(parts...) > 0 }

func (l logbook) count(parts ...string) int {
	n := 0
next:
	for _, line := range l.lines() {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		n++
	}
	return n
}

// story returns the lines about a fence, without those of libraries: one JSON object each.
func (l logbook) story(fence string) []map[string]any {
	var out []map[string]any
	for _, line := range l.lines() {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["fence"] == fence {
			out = append(out, m)
		}
	}
	return out
}

// told reports whether the log has a line about that fence with that message and power state.
func (l logbook) told(fence, msg, state string) bool {
	for _, line := range l.story(fence) {
		if line["msg"] == msg && line["state"] == state {
			return true
		}
	}
	return false
}
