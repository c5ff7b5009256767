package integration

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

var update = flag.Bool("update", false, "write the table of docs/reference/metrics.md from what the program exports")

const metricsPage = "../../docs/reference/metrics.md"

// closed are the labels, apart by a blank, whose values are a closed set: each process exports all from its start.
var closed = map[string]string{
	"forcefence_config_reloads_total": "result", "forcefence_device_events_total": "state",
	"forcefence_fences_total":         "result",
	"forcefence_guard_refusals_total": "rule", "forcefence_lines": "state", "forcefence_node_mode": "mode",
	"forcefence_node_fenceable":  "fenceable",
	"forcefence_node_protection": "protection", "forcefence_order_age_seconds": "state",
	"forcefence_pauses": "ends of",
	"forcefence_nodes":  "state", "forcefence_noticed_total": "by", "forcefence_nudges_total": "result",
	"forcefence_phase_seconds":      "phase",
	"forcefence_record_lines_total": "result", "forcefence_records_total": "result",
	"forcefence_room_failures": "result", "forcefence_room_lacking_pods": "of",
	"forcefence_shadow_decisions_total": "decision",
}

// foreign are those of the libraries' metrics that the page has.
var foreign = regexp.MustCompile(
	`^(process_cpu_seconds_total|process_resident_memory_bytes|process_open_fds|rest_client_requests_total|` +
		`workqueue_depth|controller_runtime_reconcile_(total|errors_total|time_seconds))$`)

// rows are the lines of the page's table for what the process exports now, by metric.
func (c *child) rows() map[string]string {
	c.w.t.Helper()
	text, err := get("http://" + c.set.Metrics + "/metrics")
	kit.Must(c.w.t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	kit.Must(c.w.t, err)
	out := map[string]string{}
	for name, f := range families {
		if !strings.HasPrefix(name, "forcefence_") && !foreign.MatchString(name) {
			continue
		}
		values := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := values[l.GetName()]; !slices.Contains(v, l.GetValue()) {
					values[l.GetName()] = append(v, l.GetValue())
				}
			}
		}
		var labels []string
		for _, l := range slices.Sorted(maps.Keys(values)) {
			word := "`" + l + "`"
			if slices.Contains(strings.Fields(closed[name]), l) {
				slices.Sort(values[l])
				word += ": `" + strings.Join(values[l], "`, `") + "`"
			}
			labels = append(labels, word)
		}
		kind := strings.ToLower(dto.MetricType_name[int32(f.GetType())])
		out[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, kind, strings.Join(labels, ", "), f.GetHelp())
	}
	return out
}

// documented holds what a process exports against docs/reference/metrics.md: all of it is there, as it is, and of what
// is there all that is in scope is exported.
func (c *child) documented(inScope func(metric string) bool) {
	t := c.w.t
	t.Helper()
	data, err := os.ReadFile(metricsPage)
	kit.Must(t, err)
	line := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .*\n")
	page, first := map[string]string{}, strings.Index(string(data), "| --- |")
	for _, m := range line.FindAllStringSubmatch(string(data[first:]), -1) {
		page[m[1]] = strings.TrimSpace(m[0])
	}
	got := c.rows()
	if *update {
		for name := range page {
			if inScope(name) {
				delete(page, name)
			}
		}
		maps.Copy(page, got)
		text := line.ReplaceAllString(string(data), "")
		head, tail, _ := strings.Cut(text[first:], "\n")
		table := head + "\n"
		for _, name := range slices.Sorted(maps.Keys(page)) {
			table += page[name] + "\n"
		}
		kit.Must(t, os.WriteFile(metricsPage, []byte(text[:first]+table+tail), 0o644))
		return
	}
	for name, row := range got {
		if page[name] != row {
			t.Errorf("%s is not what is exported (go test ./test/integration -run 'TestMetrics|TestLonghornDrain' "+
				"-update writes it):\ngot  %s\nwant %s", metricsPage, page[name], row)
		}
	}
	for name := range page {
		if inScope(name) && got[name] == "" {
			t.Errorf("%s names %s, which is not exported", metricsPage, name)
		}
	}
}

// docs/reference/metrics.md names every metric that a running process exports, with its labels: alerts and dashboard
// are held against that page. Those about drains need a drain: TestLonghornDrain.
func TestMetrics(t *testing.T) {
	w := newWorld(t, plan{nodes: 3})
	h := w.hosts[0]
	w.busy(h)
	w.kubectlApply(crd("disks.example.com", "v1", "copies", "Copy", "Namespaced"))
	c := w.start(settings{
		Providers: fmt.Sprintf(`- name: polled
  poll: 1s
  redfish: {username: fence, passwordFile: "%s/password", caFile: "%[1]s/ca.pem"}`, w.dir),
		Rules: "- {name: polled, selector: world=" + w.ns +
			", provider: polled, machine: {from: annotation, annotation: " + bmcAnnotation + ", allow: [127.0.0.1]}}",
		Selector: "world=" + w.ns + ",room=nowhere",
		// A storage system that names what a Node does not have.
		Top: `recording: {file: ` + w.dir + `/recording}
storage:
- name: disks
  drivers: [disks.example.com]
  namespace: ` + w.ns + `
  pods: app=engine
  node: {resource: nodes.v1, name: object.metadata.name, healthy: object.spec.nothing}
  replica:
    resource: copies.v1.disks.example.com
    node: object.spec.node
    volume: object.spec.volume
    healthy: object.spec.healthy
    running: object.spec.running
drain:
- {name: disks, storage: disks, policy: block-if-contains-last-replica, identity: [` + podName + `]}
`,
	})
	c.untilMetric(`forcefence_leading`, 1)
	c.untilMetric(`forcefence_machines{result="ok"}`, 3)
	c.untilMetric(`forcefence_polls_total{provider="polled",state="On"}`, 3)
	h.cut()
	w.untilDone(h, taint.ResultEvicted)
	c.untilMetric(`forcefence_fences_total{result="Evicted"}`, 1)
	c.untilMetric(`forcefence_storage_unevaluated{expression="node.healthy",storage="disks"}`, 1)
	c.documented(func(metric string) bool { return !strings.HasPrefix(metric, "forcefence_drain_") })

	other := w.start(settings{Selector: "world=" + w.ns})
	w.until("a process that waits to say that it does not lead", func() bool {
		text, err := get("http://" + other.set.Metrics + "/metrics")
		return err == nil && strings.Contains(text, "\nforcefence_leading 0\n")
	})
}
