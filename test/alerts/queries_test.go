package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	dashboard = deploy + "dashboards/forcefence.json"
	metrics   = "../../docs/reference/metrics.md"
)

// exported is a metric of docs/reference/metrics.md: its type, its labels, and their values where these are a closed
// set.
type exported struct {
	kind   string
	labels map[string][]string
}

func exports(t *testing.T) map[string]exported {
	t.Helper()
	text, err := os.ReadFile(metrics)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]exported{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\| ([^|]*) \\| ").
		FindAllStringSubmatch(string(text), -1) {
		e := exported{row[2], map[string][]string{}}
		name := "" // of the label whose words follow
		for _, m := range regexp.MustCompile("`([^`]*)`(:?)").FindAllStringSubmatch(row[3], -1) {
			switch {
			case m[2] == ":" || name == "":
				e.labels[m[1]] = nil
				if name = ""; m[2] == ":" {
					name = m[1]
				}
			default:
				e.labels[name] = append(e.labels[name], m[1])
			}
		}
		all[row[1]] = e
		if e.kind == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[row[1]+suffix] = e
			}
			delete(all, row[1])
		}
	}
	if len(all) < 20 {
		t.Fatalf("%s: %d metrics, want its table", metrics, len(all))
	}
	return all
}

// target lists labels that Prometheus adds to every series that it scrapes.
var target = []string{"instance", "job"}

// check is what is wrong with a query: it cannot be parsed, or asks for what is not exported.
func check(query string, all map[string]exported) []error {
	expr, err := promQL.ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	if err != nil {
		return []error{err}
	}
	var wrong []error
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			e, ok := all[n.Name]
			if !ok {
				say("no metric %s", n.Name)
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					continue
				}
				values, ok := e.labels[m.Name]
				if !ok && !slices.Contains(target, m.Name) {
					say("%s has no label %s", n.Name, m.Name)
				}
				for word := range strings.SplitSeq(m.Value, "|") {
					if values != nil && !slices.Contains(values, word) {
						say("the label %s of %s is never %q", m.Name, n.Name, word)
					}
				}
			}
			counted := slices.ContainsFunc(path, func(n parser.Node) bool {
				c, ok := n.(*parser.Call)
				return ok && slices.Contains([]string{"rate", "increase"}, c.Func.Name)
			})
			if counter := e.kind != "gauge"; counter != counted {
				say("%s is a %s: rate or increase is asked of counters and histograms, and of nothing else", n.Name,
					e.kind)
			}
		case *parser.AggregateExpr:
			for _, name := range n.Grouping {
				if !grouped(n.Expr, name, all) {
					say("%s: nothing in it has the label %s", n, name)
				}
			}
		case *parser.Call:
			if n.Func.Name == "histogram_quantile" && !strings.Contains(n.Args[1].String(), "le") {
				say("%s loses the label le", n)
			}
		}
		return nil
	})
	return wrong
}

// grouped reports that each metric of an expression has the label, or one side of a set operation, whose labels stay.
func grouped(expr parser.Expr, label string, all map[string]exported) bool {
	if b, ok := expr.(*parser.BinaryExpr); ok && b.Op.IsSetOperator() {
		expr = b.LHS
	}
	has := true
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			_, own := all[v.Name].labels[label]
			has = has &&
				(own || slices.Contains(target, label) ||
					label == labels.BucketLabel && strings.HasSuffix(v.Name, "_bucket"))
		}
		return nil
	})
	return has
}

var ownMetric = regexp.MustCompile(`forcefence_[a-z_]+`)

// panel is what a test wants to know of Grafana's.
type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Links       []struct{ URL string }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

func TestQueries(t *testing.T) {
	all := exports(t)
	for _, r := range alertRules(t) {
		for _, err := range check(r.Expr, all) {
			t.Errorf("%s: %v", r.Alert, err)
		}
	}
	data, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID        string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	if len(d.Templating.List) != 1 || d.Templating.List[0].Name != "datasource" ||
		d.Templating.List[0].Query != "prometheus" {
		t.Errorf("variables: got %+v, want the data source alone", d.Templating.List)
	}
	ids, rows, used := map[int]bool{}, []string{}, map[string]bool{}
	sections := map[string]bool{}
	for _, r := range alertRules(t) {
		sections[r.Annotations["runbook_url"]] = true
	}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: it has no title, or another's id", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range d.Panels[:i] {
			if p.GridPos.X < q.GridPos.X+q.GridPos.W && q.GridPos.X < p.GridPos.X+p.GridPos.W &&
				p.GridPos.Y < q.GridPos.Y+q.GridPos.H && q.GridPos.Y < p.GridPos.Y+p.GridPos.H ||
				p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("panel %q lies over %q, or beyond the edge", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		for _, link := range p.Links {
			if !sections[link.URL] {
				t.Errorf("panel %q links to %s, which is no alert's section", p.Title, link.URL)
			}
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: its data source is not the variable's", p.Title)
			}
			for _, err := range check(q.Expr, all) {
				t.Errorf("panel %q, query %s: %v", p.Title, q.RefID, err)
			}
			for _, m := range ownMetric.FindAllString(q.Expr, -1) {
				used[m] = true
			}
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !strings.Contains(q.Expr, m[1]) {
					t.Errorf("panel %q, query %s: the legend's %s is no label of the answer", p.Title, q.RefID, m[1])
				}
			}
		}
	}
	if want := []string{
		"Leader, nodes and alerts", "How a dead node is noticed", "Fences: results, phases, refused power-offs",
		"Devices: drills, calls, events", "Controller: requests, reconciles, CPU, memory",
		"Hook, drains, storage systems, records",
		"What other alerts read: drills, pauses, configuration, keys, room, orders, deleted Nodes",
	}; !slices.Equal(rows, want) {
		t.Errorf("rows: got %q, want %q", rows, want)
	}
	shown := []string{"forcefence_noticed_seconds_bucket", "forcefence_phase_seconds_bucket",
		"forcefence_config_reloads_total"}
	for _, r := range alertRules(t) { // a person who is called sees what the alert reads
		shown = append(shown, ownMetric.FindAllString(r.Expr, -1)...)
	}
	for _, m := range shown {
		if !used[m] {
			t.Errorf("no panel shows %s", m)
		}
	}
}
