// Package alerts holds Prometheus' rules and the dashboard of deploy against Prometheus' own library: each alert fires
// on the histories on which it should, and on no other; its runbook section is there; every query asks for what the
// program exports (docs/reference/metrics.md, which test/integration compares with a running one). It is a module of
// its own, because Prometheus is a large one. Its tool, of the Prometheus operator's module, is there for that module's
// CustomResourceDefinitions, which test/deploy gives to an API server.
package alerts

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

const (
	deploy     = "../../deploy/"
	rulesFile  = deploy + "alerts/forcefence.rules.yaml"
	runbook    = "../../docs/runbook.md"
	runbookURL = "https://github.com/forcefence/forcefence/blob/main/docs/runbook.md#"
)

var promQL = parser.NewParser(parser.Options{})

// alertRules are the rules, as Prometheus itself loads them.
func alertRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	data, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(data, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", rulesFile, errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// history is what Prometheus scraped of two replicas, and which alerts fire at its end.
type history struct {
	name   string
	step   time.Duration // between two scrapes, and evaluations; 0: 30s
	steps  int           // the last evaluation
	series []string      // beside calm, in promtool's notation; one of the same name and labels replaces that
	want   []string      // alert, and label where it has one beside severity: "name label=value"
}

// calm are the series of a healthy fleet: a leader, a and another replica, b.
var calm = []string{
	`forcefence_leading{instance="a"} 1`,
	`forcefence_leading{instance="b"} 0`,
	`forcefence_config_last_reload_successful{instance="a"} 1`,
	`forcefence_config_last_reload_successful{instance="b"} 1`,
	`forcefence_deleted_nodes_attached{instance="a"} 0`,
	`forcefence_deleted_nodes_attached{instance="b"} 0`,
	`forcefence_signing_key_usable{instance="a"} 1`,
	`forcefence_signing_key_usable{instance="b"} 1`,
	`forcefence_nodes{instance="a",state="healthy"} 60`,
	`forcefence_nodes{instance="a",state="suspect"} 1`, // one whose fence is over
	`forcefence_nodes{instance="a",state="evicting"} 2`,
	`forcefence_nodes{instance="a",state="excluded"} 0`,
	`forcefence_node_fenceable{instance="a",fenceable="yes"} 62`,
	`forcefence_node_fenceable{instance="a",fenceable="disabled"} 3`,
	`forcefence_machines{instance="a",result="ok"} 62`,
	`forcefence_machines{instance="a",result="disabled"} 3`,
	`forcefence_drill_devices{instance="a",provider="racks",result="ok"} 62`,
	`forcefence_node_protection{instance="a",protection="fail-closed"} 60`,
	`forcefence_node_protection{instance="a",protection="fail-open"} 5`,
	`forcefence_node_protection{instance="a",protection="none"} 0`,
	`forcefence_node_protection{instance="a",protection="unknown"} 0`,
}

func init() { // each process begins all of these with 0
	for _, instance := range []string{"a", "b"} {
		calm = append(calm, fmt.Sprintf(`forcefence_room_failures{instance=%q,of="node",result="lacks"} 0`, instance),
			fmt.Sprintf(`forcefence_room_failures{instance=%q,of="node",result="fits"} 3`, instance),
			fmt.Sprintf(`forcefence_room_failures{instance=%q,of="domain",result="lacks"} 1`, instance))
		for _, state := range []string{
			"stuck", "record_unreadable", "proof_lost", "unproven", "no_machine", "devices_disagree",
			"power_off_failed", "left_on", "held_back", "distrusted", "changing", "disabled"} {
			calm = append(calm, fmt.Sprintf("forcefence_nodes{instance=%q,state=%q} 0", instance, state))
		}
		for _, result := range []string{"denied", "unreachable", "no_machine"} { // and what a drill found once
			calm = append(calm, fmt.Sprintf("forcefence_machines{instance=%q,result=%q} 0", instance, result))
		}
		for _, of := range []string{"cluster", "node", "label"} {
			calm = append(calm, fmt.Sprintf(`forcefence_pauses{instance=%q,of=%q,ends="later"} 0`, instance, of),
				fmt.Sprintf(`forcefence_pauses{instance=%q,of=%q,ends="within_a_day"} 0`, instance, of))
		}
		if instance == "b" {
			calm = append(calm, `forcefence_node_fenceable{instance="b",fenceable="yes"} 0`,
				`forcefence_nodes{instance="b",state="healthy"} 0`)
		}
		for _, word := range []string{"no", "unknown"} {
			calm = append(calm, fmt.Sprintf(`forcefence_node_fenceable{instance=%q,fenceable=%q} 0`, instance, word))
		}
		calm = append(calm,
			fmt.Sprintf(`forcefence_drill_devices{instance=%q,provider="racks",result="distrusted"} 0`, instance))
	}
}

// nodes is a state's series on the leader.
func nodes(state, values string) string {
	return fmt.Sprintf("forcefence_nodes{instance=%q,state=%q} %s", "a", state, values)
}

func orderAge(resource, state, values string) string {
	return fmt.Sprintf("forcefence_order_age_seconds{instance=%q,resource=%q,state=%q} %s", "a", resource, state,
		values)
}

// The resources of orders.
const (
	fences = "networkfences.csiaddons.openshift.io"
	hosts  = "baremetalhosts.metal3.io"
)

func room(values string) string {
	return `forcefence_room_failures{instance="a",of="node",result="lacks"} ` + values
}

func fenceable(word, values string) string {
	return fmt.Sprintf("forcefence_node_fenceable{instance=%q,fenceable=%q} %s", "a", word, values)
}

func pauses(of, ends, values string) string {
	return fmt.Sprintf("forcefence_pauses{instance=%q,of=%q,ends=%q} %s", "a", of, ends, values)
}

func hooks(protection, values string) string {
	return fmt.Sprintf("forcefence_node_protection{instance=%q,protection=%q} %s", "a", protection, values)
}

// The time that an alert waits is in steps of 30 s: a history that ends on it fires, one that ends a step before does
// not.
var histories = []history{
	{name: "nothing is wrong", steps: 120},

	{name: "one process has no key", steps: 11, series: []string{`forcefence_signing_key_usable{instance="b"} 1 0x19`},
		want: []string{"ForcefenceNotSigning"}},
	{name: "a key comes within five minutes", steps: 10,
		series: []string{`forcefence_signing_key_usable{instance="b"} 1 0x19`}},

	{name: "a node is back, and its storage still shuts it out", steps: 31, series: []string{
		orderAge(fences, "kept", "0 1x40"),
		strings.Replace(orderAge(fences, "kept", "0x41"), `"a"`, `"b"`, 1)},
		want: []string{"ForcefenceOrderKept resource=" + fences + " state=kept"}},
	{name: "the storage does not let a node in", steps: 31, series: []string{orderAge(fences, "ending", "0 60+30x40")},
		want: []string{"ForcefenceOrderKept resource=" + fences + " state=ending"}},
	{name: "the Node of a fence was deleted", steps: 31, series: []string{orderAge(fences, "node_gone", "0 60+30x40")},
		want: []string{"ForcefenceOrderKept resource=" + fences + " state=node_gone"}},
	{name: "Metal3 keeps a power-off", steps: 31, series: []string{orderAge(hosts, "kept", "0 60+30x40")},
		want: []string{"ForcefenceOrderKept resource=" + hosts + " state=kept"}},
	{name: "a node is let in within fifteen minutes", steps: 30,
		series: []string{orderAge(fences, "kept", "0 60+30x40")}},
	{name: "a silent node is shut out for hours", steps: 600,
		series: []string{orderAge(fences, "holds", "0 60+30x700")}},

	{name: "no room for a node's pods", steps: 61, series: []string{room("0 1x70")},
		want: []string{"ForcefenceNoRoom"}},
	{name: "no room for less than half an hour", steps: 60, series: []string{room("0 1x70")}},
	{name: "no estimate of room for five hours", steps: 601,
		series: []string{`forcefence_room_estimated_timestamp_seconds{instance="a"} 29x700`},
		want:   []string{"ForcefenceRoomUnknown"}},
	{name: "no estimate of room for less", steps: 600,
		series: []string{`forcefence_room_estimated_timestamp_seconds{instance="a"} 0x700`}},
	{name: "another replica's estimate is new", steps: 601, series: []string{
		`forcefence_room_estimated_timestamp_seconds{instance="a"} 0x700`,
		`forcefence_room_estimated_timestamp_seconds{instance="b"} 0+30x700`}},

	{name: "a fence is stuck", steps: 3, series: []string{nodes("stuck", "0 1x9")},
		want: []string{"ForcefenceMarkStuck state=stuck"}},
	{name: "a fence is stuck for less than a minute", steps: 2, series: []string{nodes("stuck", "0 1x9")}},
	{name: "a stuck fence ends", steps: 9, series: []string{nodes("stuck", "0 1x5 0x9")}},
	{name: "a record cannot be read", steps: 3, series: []string{nodes("record_unreadable", "0 1x9")},
		want: []string{"ForcefenceMarkStuck state=record_unreadable"}},

	{name: "the proof is lost", steps: 3, series: []string{nodes("proof_lost", "0 1x9")},
		want: []string{"ForcefenceProofLost"}},
	{name: "the proof is back soon", steps: 9, series: []string{nodes("proof_lost", "0 1 1 0 1 1 0 1 1 0 0")}},
	{name: "the proof is lost for less than a minute", steps: 2, series: []string{nodes("proof_lost", "0 1x9")}},

	{name: "no device tells", steps: 11, series: []string{nodes("unproven", "0 1x19")},
		want: []string{"ForcefenceNodeUnproven state=unproven"}},
	{name: "no device tells for less than five minutes", steps: 10, series: []string{nodes("unproven", "0 1x19")}},
	{name: "no rule leads to a device", steps: 11, series: []string{nodes("no_machine", "0 2x19")},
		want: []string{"ForcefenceNodeUnproven state=no_machine"}},
	{name: "devices contradict each other", steps: 11, series: []string{nodes("devices_disagree", "0 1x19")},
		want: []string{"ForcefenceNodeUnproven state=devices_disagree"}},
	{name: "a machine does not go off", steps: 11, series: []string{nodes("power_off_failed", "0 1x19")},
		want: []string{"ForcefenceNodeUnproven state=power_off_failed"}},

	{name: "a machine answers Changing", steps: 11, series: []string{nodes("changing", "0 1x19")},
		want: []string{"ForcefenceNodeUnproven state=changing"}},
	{name: "a machine that goes off says Changing first", steps: 10, series: []string{nodes("changing", "0 1x19")}},

	{name: "no device answers any more", steps: 1,
		series: []string{fenceable("yes", "62 0x9"), fenceable("unknown", "0 62x9")},
		want:   []string{"ForcefenceNothingFenceable"}},
	{name: "the configuration leads to no device", steps: 1,
		series: []string{fenceable("yes", "60 0x9"), fenceable("disabled", "0 0x9"), fenceable("no", "0 60x9")},
		want:   []string{"ForcefenceNothingFenceable"}},
	{name: "the only node has no device", steps: 1,
		series: []string{fenceable("yes", "0 0x9"), fenceable("disabled", "0 0x9"), fenceable("no", "0 1x9"),
			nodes("healthy", "1 1x9")},
		want: []string{"ForcefenceNothingFenceable"}},
	{name: "the first drill of a new leader fails", steps: 9,
		series: []string{fenceable("yes", "0 0x19"), fenceable("disabled", "0 0x19"), fenceable("no", "1 1x19")}},
	{name: "one node is not drilled yet", steps: 9,
		series: []string{fenceable("yes", "0 0x9"), fenceable("disabled", "0 0x9"), fenceable("no", "59 59x9")}},
	{name: "all nodes but one", steps: 9, series: []string{fenceable("yes", "1 1x9"), fenceable("no", "61 61x9")}},
	{name: "all drills are disabled", steps: 9,
		series: []string{fenceable("yes", "0 0x9"), fenceable("disabled", "65 65x9")}},

	{name: "a dead node is paused", steps: 121, series: []string{nodes("excluded", "0 1x130")},
		want: []string{"ForcefenceNodeLeftAlone state=excluded"}},
	{name: "a dead node's mode is disabled", steps: 121, series: []string{nodes("disabled", "0 1x130")},
		want: []string{"ForcefenceNodeLeftAlone state=disabled"}},
	{name: "a paused node is back within an hour", steps: 120, series: []string{nodes("excluded", "0 1x130")}},

	{name: "a pause of all nodes is forgotten", steps: 121, series: []string{pauses("cluster", "later", "0 1x130")},
		want: []string{"ForcefencePauseForgotten of=cluster"}},
	{name: "pauses of nodes are forgotten", steps: 121, series: []string{pauses("node", "later", "0 2x130")},
		want: []string{"ForcefencePauseForgotten of=node"}},
	{name: "a pause without an end of less than an hour", steps: 120,
		series: []string{pauses("cluster", "later", "0 1x130")}},
	{name: "an exclude label is forgotten", steps: 194, step: 30 * time.Minute,
		series: []string{pauses("label", "later", "0x100 1x50 0 1x60")}, want: []string{"ForcefencePauseForgotten of=label"}},
	{name: "an exclude label of less than two days", steps: 193, step: 30 * time.Minute,
		series: []string{pauses("label", "later", "0x100 1x50 0 1x60")}},
	{name: "pauses with an end, again and again", steps: 194, step: 30 * time.Minute,
		series: []string{pauses("node", "within_a_day", "1x200")}},
	{name: "a pause with an end", steps: 200, series: []string{pauses("cluster", "within_a_day", "0 1x210"),
		nodes("excluded", "0 0x210")}},

	{name: "a machine of a dead node is left on", steps: 21, series: []string{nodes("left_on", "0 1x30")},
		want: []string{"ForcefenceNodeLeftOn"}},
	{name: "a node boots by itself, and is back within ten minutes", steps: 20,
		series: []string{nodes("left_on", "0 1x30")}},

	{name: "a storm", steps: 3, series: []string{nodes("held_back", "0 1x9")}, want: []string{"ForcefenceStorm"}},
	{name: "the API server restarts", steps: 9, series: []string{nodes("held_back", "0 60 60 0x9")}},
	{name: "a storm of less than a minute", steps: 2, series: []string{nodes("held_back", "0 60x9")}},

	{name: "a device lied, and its node is healthy", steps: 1,
		series: []string{`forcefence_drill_devices{instance="a",provider="racks",result="distrusted"} 0 1x9`},
		want:   []string{"ForcefenceDeviceDistrusted"}},
	{name: "a device lied, and its node is dead again", steps: 1, series: []string{nodes("distrusted", "0 1x9")},
		want: []string{"ForcefenceDeviceDistrusted"}},
	{name: "the same in its drill is no failure", steps: 40, series: []string{
		`forcefence_machines{instance="a",result="distrusted"} 0 1x50`,
		`forcefence_drill_devices{instance="a",provider="racks",result="distrusted"} 0 1x50`,
	}, want: []string{"ForcefenceDeviceDistrusted"}},
	{name: "a device that was released", steps: 9,
		series: []string{`forcefence_drill_devices{instance="a",provider="racks",result="distrusted"} 0 1x5 0x9`}},

	{name: "a drill fails", steps: 31, series: []string{`forcefence_machines{instance="a",result="denied"} 0 1x40`},
		want: []string{"ForcefenceDrillFailing result=denied"}},
	{name: "drills fail", steps: 31, series: []string{
		`forcefence_machines{instance="a",result="no_machine"} 0 2x40`,
		`forcefence_machines{instance="a",result="unreachable"} 0 1x40`,
	}, want: []string{"ForcefenceDrillFailing result=no_machine", "ForcefenceDrillFailing result=unreachable"}},
	{name: "a BMC restarts", steps: 40,
		series: []string{`forcefence_machines{instance="a",result="unreachable"} 0 1x20 0x40`}},
	{name: "a drill fails for less than a quarter of an hour", steps: 30,
		series: []string{`forcefence_machines{instance="a",result="denied"} 0 1x40`}},

	{name: "volumes stay attached to a deleted node", steps: 31,
		series: []string{`forcefence_deleted_nodes_attached{instance="a"} 0 1x40`},
		want:   []string{"ForcefenceDeletedNodeAttached"}},
	{name: "volumes of a deleted node are detached within 15 minutes", steps: 30,
		series: []string{`forcefence_deleted_nodes_attached{instance="a"} 0 1x40`}},

	{name: "a hook stops", steps: 61, series: []string{hooks("none", "0 1x70"), hooks("fail-closed", "60 59x70")},
		want: []string{"ForcefenceHookMissing"}},
	{name: "a hook restarts", steps: 60, series: []string{hooks("none", "0 1x70"), hooks("fail-closed", "60 59x70")}},
	{name: "a new node gets no hook", steps: 61, series: []string{hooks("unknown", "0 1x70")},
		want: []string{"ForcefenceHookMissing"}},
	{name: "a hook is missing where the others are fail-open", steps: 61, series: []string{
		hooks("none", "0 1x70"), hooks("fail-closed", "0x70"), hooks("fail-open", "1x70"),
	}, want: []string{"ForcefenceHookMissing"}},
	{name: "a hook is missing where the others' runtimes are old", steps: 61, series: []string{
		hooks("none", "0 1x70"), hooks("fail-closed", "0x70"), hooks("fail-open", "0x70"), hooks("not-at-boot", "1x70"),
	}, want: []string{"ForcefenceHookMissing"}},
	{name: "the hook is not installed", steps: 100,
		series: []string{hooks("unknown", "65x100"), hooks("fail-closed", "0x100"), hooks("fail-open", "0x100")}},
	{name: "all hooks stop", steps: 47, step: 30 * time.Minute, series: []string{
		hooks("none", "0 65x60"), hooks("fail-closed", "65 0x60"), hooks("fail-open", "0x60"),
	}, want: []string{"ForcefenceHookMissing"}},
	{name: "all hooks were taken off a day ago", steps: 48, step: 30 * time.Minute, series: []string{
		hooks("none", "0 65x60"), hooks("fail-closed", "65 0x60"), hooks("fail-open", "0x60"),
	}},

	{name: "a file is refused", steps: 5, series: []string{
		`forcefence_config_last_reload_successful{instance="a"} 1 0x9`,
		`forcefence_config_last_reload_successful{instance="b"} 1 0x9`,
	}, want: []string{"ForcefenceConfigRefused"}},
	{name: "a replica alone refuses it", steps: 5,
		series: []string{`forcefence_config_last_reload_successful{instance="b"} 1 0x9`},
		want:   []string{"ForcefenceConfigRefused"}},
	{name: "a file is refused for less than two minutes", steps: 4,
		series: []string{`forcefence_config_last_reload_successful{instance="b"} 1 0x9`}},

	{name: "no leader", steps: 5, series: []string{`forcefence_leading{instance="a"} 1 0x9`},
		want: []string{"ForcefenceNoLeader"}},
	{name: "the other one leads soon", steps: 20,
		series: []string{`forcefence_leading{instance="a"} 1x3 0 0x20`, `forcefence_leading{instance="b"} 0x6 1x20`}},
	{name: "no leader for less than two minutes", steps: 4,
		series: []string{`forcefence_leading{instance="a"} 1 0x9`}},
	{name: "no process runs", steps: 20,
		series: []string{`forcefence_leading{instance="a"} 1 stale`, `forcefence_leading{instance="b"} 0 stale`},
		want:   []string{"ForcefenceNoLeader"}},
}

// load is the history for Prometheus.
func (h history) load() string {
	series := slices.Clone(h.series)
	for _, s := range calm {
		id, value, _ := strings.Cut(s, "} ")
		if !slices.ContainsFunc(h.series, func(own string) bool { return strings.HasPrefix(own, id+"} ") }) {
			series = append(series, fmt.Sprintf("%s} %sx%d", id, value, h.steps+1))
		}
	}
	return fmt.Sprintf("load %s\n  %s\n", model.Duration(h.every()), strings.Join(series, "\n  "))
}

func (h history) every() time.Duration {
	if h.step > 0 {
		return h.step
	}
	return 30 * time.Second
}

// world is a history in Prometheus' storage.
type world struct {
	history
	db storage.Queryable
}

func worlds(t *testing.T) []world {
	t.Helper()
	var all []world
	for _, h := range histories {
		all = append(all, world{h, promqltest.LoadedStorage(t, h.load())})
	}
	return all
}

// fires evaluates one rule as Prometheus does, step by step, and returns what fires at the end.
func (w world) fires(t *testing.T, engine *promql.Engine, name string, expr parser.Expr, hold time.Duration,
	annotations map[string]string) []string {
	t.Helper()
	rule := rules.NewAlertingRule(name, expr, hold, 0, labels.EmptyLabels(), labels.FromMap(annotations),
		labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for i := range w.steps + 1 {
		at := time.Unix(0, 0).Add(time.Duration(i) * w.every())
		if _, err := rule.Eval(t.Context(), 0, at, rules.EngineQueryFunc(engine, w.db), &url.URL{}, 0); err != nil {
			t.Fatalf("%s: %s: %v", w.name, name, err)
		}
	}
	var got []string
	for _, a := range rule.ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		word := name
		a.Labels.Range(func(l labels.Label) {
			if l.Name != "alertname" {
				word += " " + l.Name + "=" + l.Value
			}
		})
		got = append(got, word)
		a.Annotations.Range(func(l labels.Label) {
			if strings.Contains(l.Value, "<error") || strings.Contains(l.Value, "{{") ||
				strings.Contains(l.Value, "<no value>") {
				t.Errorf("%s: annotation %s: %s", word, l.Name, l.Value)
			}
		})
	}
	slices.Sort(got)
	return got
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := promQL.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return e
}

// wants are the alerts of that name that fire at the history's end.
func (h history) wants(name string) []string {
	var own []string
	for _, w := range h.want {
		if n, _, _ := strings.Cut(w, " "); n == name {
			own = append(own, w)
		}
	}
	return own
}

func TestHistories(t *testing.T) {
	engine := promqltest.NewTestEngine(t, false, 0, 1e6)
	all, named := alertRules(t), map[string]bool{}
	for _, w := range worlds(t) {
		for _, r := range all {
			got := w.fires(t, engine, r.Alert, parse(t, r.Expr), time.Duration(r.For), r.Annotations)
			if want := w.wants(r.Alert); !slices.Equal(got, want) {
				t.Errorf("%s: %s: fires %q, want %q", w.name, r.Alert, got, want)
			}
		}
		for _, n := range w.want {
			name, _, _ := strings.Cut(n, " ")
			named[name] = true
		}
	}
	for _, r := range all {
		if !named[r.Alert] {
			t.Errorf("%s: no history in which it fires", r.Alert)
		}
		delete(named, r.Alert)
	}
	for name := range named {
		t.Errorf("%s: no such alert", name)
	}
}

// Each rule that is weakened or sharpened in one place must fail a history: else that place is not tested.
func TestWeakened(t *testing.T) {
	engine := promqltest.NewTestEngine(t, false, 0, 1e6)
	all := worlds(t)
	for _, r := range alertRules(t) {
		hold := time.Duration(r.For)
		noticed := func(expr string, hold time.Duration) bool {
			e := parse(t, expr)
			return slices.ContainsFunc(all,
				func(w world) bool {
					return !slices.Equal(w.fires(t, engine, r.Alert, e, hold, nil), w.wants(r.Alert))
				})
		}
		for _, other := range []time.Duration{hold - 30*time.Second, hold + 30*time.Second} {
			if other >= 0 && !noticed(r.Expr, other) {
				t.Errorf("%s: for %s in place of %s fails no history", r.Alert, other, hold)
			}
		}
		for _, expr := range others(t, r.Expr) {
			if !noticed(expr, hold) {
				t.Errorf("%s: %s fails no history", r.Alert, expr)
			}
		}
	}
}

// others are the expression with one thing different: a word of a matcher gone, a matcher gone or turned, one side of a
// set operation gone, another aggregation, another number, another comparison, another range.
func others(t *testing.T, expr string) []string {
	t.Helper()
	var out []string
	count := 0
	parser.Inspect(parse(t, expr), func(parser.Node, []parser.Node) error { count++; return nil })
	for at := range count {
		for variant := 0; ; variant++ {
			root, i, changed := parse(t, expr), 0, false
			replaced := parser.Expr(nil) // of the whole, where the root itself goes
			parser.Inspect(root, func(n parser.Node, _ []parser.Node) error {
				if i++; i-1 != at {
					return nil
				}
				switch n := n.(type) {
				case *parser.VectorSelector:
					changed = dropMatcher(n, variant)
				case *parser.NumberLiteral:
					if changed = variant == 0; changed {
						n.Val++
					}
				case *parser.MatrixSelector:
					if changed = variant < 2; changed {
						n.Range = map[int]time.Duration{0: n.Range / 2, 1: n.Range * 2}[variant]
					}
				case *parser.AggregateExpr:
					if changed = variant == 0; changed {
						n.Op = map[parser.ItemType]parser.ItemType{parser.SUM: parser.MIN, parser.MIN: parser.MAX,
							parser.MAX: parser.MIN}[n.Op]
					}
				case *parser.BinaryExpr:
					switch {
					case !n.Op.IsSetOperator():
						if changed = variant == 0; changed {
							n.Op = map[parser.ItemType]parser.ItemType{parser.GTR: parser.GTE, parser.LSS: parser.LTE,
								parser.EQLC: parser.NEQ, parser.SUB: parser.ADD}[n.Op]
						}
					case variant < 2:
						changed = true
						replaced = []parser.Expr{n.LHS, n.RHS}[variant]
					}
				}
				return nil
			})
			if !changed {
				break
			}
			if replaced != nil {
				root = replaced
			}
			out = append(out, root.String())
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s: nothing to change", expr)
	}
	return out
}

// dropMatcher takes the variant-th word off a selector: one of several in a regular expression, or the whole matcher.
func dropMatcher(v *parser.VectorSelector, variant int) bool {
	for i, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		words := strings.Split(m.Value, "|")
		for j := range words {
			if variant == 0 {
				rest := slices.Delete(slices.Clone(words), j, j+1)
				if len(rest) == 0 {
					v.LabelMatchers = slices.Delete(v.LabelMatchers, i, i+1)
				} else {
					v.LabelMatchers[i] = labels.MustNewMatcher(m.Type, m.Name, strings.Join(rest, "|"))
				}
				return true
			}
			variant--
		}
		if len(words) > 1 {
			if variant == 0 {
				v.LabelMatchers = slices.Delete(v.LabelMatchers, i, i+1)
				return true
			}
			variant--
		}
	}
	return false
}

// Every alert has its section, with its severity and the four questions, and links to it; every section that is titled
// as an alert has one.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		if title, body, _ := strings.Cut(s, "\n"); strings.HasPrefix(title, "Forcefence") {
			sections[title] = body
		}
	}
	for _, r := range alertRules(t) {
		body, ok := sections[r.Alert]
		if !ok {
			t.Errorf("%s: no section in %s", r.Alert, runbook)
		}
		delete(sections, r.Alert)
		severity := map[string]string{"critical": "**Critical.**", "warning": "**Warning.**"}[r.Labels["severity"]]
		for _, part := range []string{severity, "**Look first**", "```\n", "**Do.**", "**Do not**"} {
			if part == "" || !strings.Contains(body, part) {
				t.Errorf("%s: its section lacks %q (severity %q)", r.Alert, part, r.Labels["severity"])
			}
		}
		if got, want := r.Annotations["runbook_url"], runbookURL+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s: runbook_url: got %q, want %q", r.Alert, got, want)
		}
		for _, a := range []string{"summary", "description"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s: no %s", r.Alert, a)
			}
		}
		// A word of a label that the alert may carry is explained.
		for _, word := range regexp.MustCompile(`state=~"([^"]*)"`).FindAllStringSubmatch(r.Expr, -1) {
			for state := range strings.SplitSeq(word[1], "|") {
				if state != "stuck" && !strings.Contains(body, "`"+state+"`") {
					t.Errorf("%s: its section does not explain the state %s", r.Alert, state)
				}
			}
		}
	}
	for _, title := range slices.Sorted(maps.Keys(sections)) {
		t.Errorf("%s: section %s is no alert's", runbook, title)
	}
}
