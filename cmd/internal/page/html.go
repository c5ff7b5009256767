package page

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
)

// A page is made of nodes that escape each text and each attribute: nothing here writes text as HTML. It runs no script and takes no style but
// those of assets.

// frame is what all pages have around them.
type frame struct {
	title string
	path  string // of the tab that is open; "" for none
	who   string // the person; "" before the login
	about string // which process this is
	live  bool   // main follows what changes
}

var tabs = []struct{ path, name string }{{"/", "Fleet"}, {"/fences", "Fences"}, {"/devices", "Devices"}, {"/hook", "Hook"}}

func (f frame) around(main g.Node) g.Node {
	return html.Doctype(html.HTML(html.Lang("en"),
		html.Head(
			html.Meta(html.Charset("utf-8")),
			html.Meta(html.Name("viewport"), html.Content("width=device-width, initial-scale=1")),
			html.Meta(html.Name("color-scheme"), html.Content("light dark")),
			html.TitleEl(g.Text(f.title+" - forcefence")),
			html.Link(html.Rel("icon"), html.Href("/assets/icon.svg")),
			html.Link(html.Rel("stylesheet"), html.Href("/assets/style.css")),
			g.If(f.live, html.Script(html.Src("/assets/live.js"), html.Defer())),
		),
		html.Body(
			html.A(html.Class("skip"), html.Href("#main"), g.Text("Skip to the content")),
			html.Header(
				html.P(html.Class("brand"), g.Text("forcefence")),
				g.If(f.who != "", html.Nav(html.Aria("label", "Pages"), html.Ul(g.Map(tabs, func(t struct{ path, name string }) g.Node {
					return html.Li(html.A(html.Href(t.path), g.If(t.path == f.path, html.Aria("current", "page")), g.Text(t.name)))
				})))),
				g.If(f.who != "", html.Form(html.Method("post"), html.Action("/logout"), html.Class("who"),
					html.Span(g.Text(f.who)), html.Button(html.Type("submit"), g.Text("Log out")))),
			),
			html.Main(html.ID("main"), html.TabIndex("-1"),
				html.H1(g.Text(f.title)),
				g.If(f.live, html.P(html.Class("live"),
					html.Label(html.Input(html.Type("checkbox"), html.ID("live-on"), html.Checked()), g.Text(" Follow changes")),
					html.Span(html.ID("live-said"), html.Role("status")))),
				html.Div(html.ID("live"), main),
			),
			html.Footer(html.P(g.Text(f.about+". All times are UTC. This page only shows: nothing can be changed here."))),
		),
	))
}

func stamp(t time.Time) g.Node {
	if t.IsZero() {
		return g.Text("-")
	}
	return html.Time(html.DateTime(t.UTC().Format(time.RFC3339)), g.Text(t.UTC().Format("2006-01-02 15:04:05")))
}

// looks says how grave a word is. What is said is the word: the colour repeats it.
func looks(word string) string {
	switch word {
	case view.StateFine.Word(), string(view.CanBeFenced), taint.ProtectionFailClosed:
		return "good"
	case view.StateStuck.Word(), view.StateUnfenceable.Word(), string(view.CannotBeFenced), taint.ProtectionNone:
		return "bad"
	case view.StateLeftAlone.Word(), string(view.NotAsked), view.ProtectionNeverTold:
		return "dim"
	default:
		return "warn"
	}
}

var signs = map[string]string{"good": "✓", "warn": "!", "bad": "✗", "dim": "·"}

func badge(word string) g.Node {
	look := looks(word)
	return html.Span(html.Class("badge "+look), html.Span(html.Aria("hidden", "true"), g.Text(signs[look]+" ")), g.Text(word))
}

func nodeLink(name string) g.Node {
	return html.A(html.Href("/nodes/"+url.PathEscape(name)), g.Text(name))
}

func fenceLink(name, text string) g.Node {
	return html.A(html.Href("/fences/"+url.PathEscape(name)), g.Text(text))
}

// chosen is the address of the nodes that a query chooses.
func chosen(q view.NodeQuery, page int) string {
	v := url.Values{}
	for key, value := range map[string]string{
		"name": q.Text, "state": string(q.State), "fenceable": string(q.Answer), "hook": q.Protection, "provider": q.Provider,
	} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if page > 1 {
		v.Set("page", strconv.Itoa(page))
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// rows is how many a table has at most.
const rows = 100

// pager is the part of n rows that a page has, and the way to the others.
func pager(n, page int, at func(page int) string) (from, to int, nav g.Node) {
	pages := max(1, (n+rows-1)/rows)
	page = min(max(page, 1), pages)
	from, to = (page-1)*rows, min(page*rows, n)
	if pages == 1 {
		return from, to, g.Group{}
	}
	step := func(to int, rel, text string) g.Node {
		if to < 1 || to > pages {
			return html.Span(html.Class("off"), g.Text(text))
		}
		return html.A(html.Href(at(to)), html.Rel(rel), g.Text(text))
	}
	return from, to, html.Nav(html.Class("pager"), html.Aria("label", "Pages of this table"),
		step(page-1, "prev", "Previous"), html.Span(g.Textf("%d to %d of %d", from+1, to, n)), step(page+1, "next", "Next"))
}

// table is one whose first cell of each row names it. It may be scrolled sideways, by keys too.
func table(caption string, heads []string, body []g.Node) g.Node {
	if len(body) == 0 {
		return html.P(html.Class("none"), g.Text(caption+": none."))
	}
	return html.Div(html.Class("scroll"), html.Role("region"), html.Aria("label", caption), html.TabIndex("0"), html.Table(
		html.Caption(g.Text(caption)),
		html.THead(html.Tr(g.Map(heads, func(h string) g.Node { return html.Th(html.Scope("col"), g.Text(h)) }))),
		html.TBody(g.Group(body)),
	))
}

func row(first g.Node, cells ...g.Node) g.Node {
	return html.Tr(html.Th(html.Scope("row"), first), g.Map(cells, func(c g.Node) g.Node { return html.Td(c) }))
}

func count(n int, href, word string) g.Node {
	return html.Li(html.A(html.Href(href), html.Strong(g.Text(strconv.Itoa(n))), g.Text(" "), badge(word)))
}

// fleetPage is the fleet at a glance.
func fleetPage(f *view.Fleet, q view.NodeQuery, page int) g.Node {
	all := f.Choose(q)
	from, to, nav := pager(len(all), page, func(p int) string { return chosen(q, p) })
	open := 0
	for _, v := range f.Fences {
		if v.Open {
			open++
		}
	}
	var body []g.Node
	for _, n := range all[from:to] {
		fence := g.Text("-")
		if n.Fence != "" {
			fence = fenceLink(n.Fence, n.Fence)
		}
		body = append(body, row(nodeLink(n.Name), badge(n.State.Word()), stamp(n.Since), power(n), devices(n.Config), badge(string(n.Fenceable)), badge(n.Protection), g.Text(n.Config.Mode), fence, g.Text(n.Next)))
	}
	return g.Group{
		html.P(html.Class("sum"), html.Strong(g.Text(strconv.Itoa(len(f.Nodes)))), g.Textf(" nodes, %d fences under way.", open)),
		html.Ul(html.Class("counts"), html.Aria("label", "Nodes by state"), g.Map(view.States(), func(s view.State) g.Node {
			return g.If(f.States[s] > 0, count(f.States[s], chosen(view.NodeQuery{State: s}, 1), s.Word()))
		})),
		missing(f),
		html.Search(html.Form(html.Method("get"), html.Action("/"), html.Class("filter"),
			html.Label(g.Text("Name "), html.Input(html.Type("search"), html.Name("name"), html.Value(q.Text))),
			choice("State", "state", string(q.State), words(view.States())),
			choice("Fenceable", "fenceable", string(q.Answer), words(view.DrillAnswers)),
			choice("Hook", "hook", q.Protection, view.Protections),
			g.If(q.Provider != "", html.Input(html.Type("hidden"), html.Name("provider"), html.Value(q.Provider))),
			html.Button(html.Type("submit"), g.Text("Show")),
			g.If(q != view.NodeQuery{}, html.A(html.Href("/"), g.Text("Show all"))),
		)),
		table("Nodes", []string{"Node", "State", "Since", "Power", "Devices", "Fenceable", "Hook", "Mode", "Last fence", "Next"}, body),
		nav,
	}
}

func words[T ~string](list []T) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

func choice(label, name, value string, all []string) g.Node {
	return html.Label(g.Text(label+" "), html.Select(html.Name(name),
		html.Option(html.Value(""), g.Text("any")),
		g.Map(all, func(w string) g.Node {
			return html.Option(html.Value(w), g.If(w == value, html.Selected()), g.Text(strings.ReplaceAll(w, "_", " ")))
		})))
}

func devices(l view.NodeConfig) g.Node {
	if len(l.Devices) == 0 {
		return html.Span(html.Class("none"), g.Text("none"))
	}
	return html.Ul(html.Class("plain"), g.Map(l.Devices, func(d string) g.Node { return html.Li(g.Text(d)) }))
}

func missing(f *view.Fleet) g.Node {
	return g.If(f.Missing != "", html.P(html.Class("note"), g.Text("Fences are shown as far as their Nodes tell: "+f.Missing+".")))
}

// fencesPage is all fences that are kept.
func fencesPage(f *view.Fleet, page int) g.Node {
	from, to, nav := pager(len(f.Fences), page, func(p int) string { return "/fences?page=" + strconv.Itoa(p) })
	return g.Group{missing(f), fences("Fences", f.Fences[from:to]), nav}
}

func fences(caption string, list []view.Fence) g.Node {
	var body []g.Node
	for _, v := range list {
		body = append(body, row(fenceLink(v.Name, v.Name), nodeLink(v.Node), stamp(v.Started), outcome(v), g.Text(v.Took),
			g.Text(strconv.Itoa(v.Pods.Ended)), g.Textf("%d of %d", v.Volumes.Detached, v.Volumes.Attached), g.Text(v.Why)))
	}
	return table(caption, []string{"Fence", "Node", "Began", "Outcome", "Took", "Pods ended", "Volumes detached", "Why"}, body)
}

func outcome(v view.Fence) g.Node {
	word, look := v.Result, "good"
	switch {
	case v.Open:
		word, look = v.Phase+", under way", "warn"
	case v.Result != string(taint.ResultEvicted):
		look = "dim"
	}
	if v.Needs != "" || len(v.Strange) > 0 {
		look = "bad"
	}
	return html.Span(html.Class("badge "+look), html.Span(html.Aria("hidden", "true"), g.Text(signs[look]+" ")), g.Text(word),
		g.If(v.Needs != "", g.Text(", needs a person")), g.If(v.Shadow, g.Text(" (mode shadow)")))
}

// nodePage is one node, with the picture of its newest fence.
func nodePage(f *view.Fleet, n view.NodeRow) g.Node {
	why := g.Text("")
	if n.Why != "" {
		why = html.Span(html.Class("detail"), g.Text(n.Why))
	}
	if n.Config.None != "" {
		why = html.Span(html.Class("detail"), g.Text(n.Config.None))
	}
	all := f.FencesOf(n.Name)
	shown := html.P(html.Class("none"), g.Text("No fence of this node is known."))
	if len(all) > 0 {
		shown = g.Group{html.H2(g.Text("Newest fence: "), fenceLink(all[0].Name, all[0].Name)), fence(f, all[0])}
	}
	var body []g.Node
	for _, e := range f.Events(n.Name) {
		body = append(body, row(stamp(e.At), g.Text(e.Who), g.Text(string(e.Kind)), g.Text(e.What)))
	}
	return g.Group{
		html.Dl(html.Class("facts"),
			fact("State", badge(n.State.Word()), g.Text(" since "), stamp(n.Since)),
			g.If(n.Next != "", fact("Next", g.Text(n.Next))),
			fact("Machine's power, as last seen", power(n)),
			fact("Devices", devices(n.Config)),
			fact("Could be fenced", badge(string(n.Fenceable)), why),
			fact("Hook", badge(n.Protection)),
			fact("Mode", g.Text(n.Config.Mode)),
		),
		missing(f),
		shown,
		g.If(len(all) > 1, fences("Fences of this node", all[:min(len(all), rows)])),
		table("Events of this node, as whoever wrote them says", []string{"When", "Who", "What", "Text"}, body[:min(len(body), rows)]),
	}
}

// power is what a node's machine was when that was seen last. It is no proof: those are five seconds old.
func power(n view.NodeRow) g.Node {
	if n.PowerAt.IsZero() {
		return g.Text(n.Power)
	}
	return g.Group{g.Text(n.Power + " "), html.Span(html.Class("detail"), stamp(n.PowerAt), g.If(n.PowerBy != "", g.Text(" "+n.PowerBy)))}
}

func fact(name string, value ...g.Node) g.Node {
	return html.Div(html.Dt(g.Text(name)), html.Dd(value...))
}

// fence is one fence: what became of it, the picture, and the same in words.
func fence(f *view.Fleet, v view.Fence) g.Node {
	moments := f.Moments(v)
	var told, spans []g.Node
	for _, m := range moments {
		told = append(told, row(g.Group{stamp(m.At), html.Span(html.Class("detail"), g.Text(after(v, m)))}, g.Text(m.Who), g.Text(string(m.Kind)), g.Text(m.What)))
	}
	for _, s := range v.Spans {
		spans = append(spans, row(g.Text(s.Phase), stamp(s.From), g.Textf("%.1fs", s.To.Sub(s.From).Seconds())))
	}
	return g.Group{
		g.If(len(v.Strange) > 0, html.P(html.Class("note"), html.Role("alert"),
			g.Text("This object is of a newer version of forcefence than this page, or was edited. It says what this page cannot show: "+list(v.Strange)+"."))),
		g.If(v.Needs != "", html.P(html.Class("note"), html.Strong(g.Text("A person should look: ")), g.Text(v.Needs))),
		html.Dl(html.Class("facts"),
			fact("Node", nodeLink(v.Node)),
			fact("Outcome", outcome(v), g.If(v.Says != "", html.Span(html.Class("detail"), g.Text(v.Says)))),
			fact("Began", stamp(v.Started), g.Text(" by "+v.By)),
			fact("Took", g.Text(v.Took)),
			fact("Proof", g.Text(v.Proven)),
		),
		html.Figure(html.Div(html.Class("scroll"), html.Role("region"), html.Aria("label", "Picture, which may be scrolled"), html.TabIndex("0"), picture(v, moments, f.At)),
			html.FigCaption(g.Text("Who said what when. Rows are in order, and not to scale; the bar above is. The table below says the same."))),
		table("Who said what when", []string{"When", "Who", "What", "Text"}, told),
		table("Phases", []string{"Phase", "From", "Lasted"}, spans),
		names(fmt.Sprintf("Pods: %d ended, %d spared, %d left behind%s", v.Pods.Ended, v.Pods.Spared, v.Pods.Left, would(v)), v.Pods.Names),
		names(fmt.Sprintf("Volumes: %d were attached, %d of them are detached", v.Volumes.Attached, v.Volumes.Detached), v.Volumes.Names),
		g.If(len(v.Volumes.Left) > 0, names("Still attached", v.Volumes.Left)),
	}
}

func would(v view.Fence) string {
	if !v.Shadow {
		return ""
	}
	return fmt.Sprintf(", %d would have been", v.Pods.Would)
}

// after is how long after the beginning of the fence a moment was.
func after(v view.Fence, m view.Moment) string {
	return fmt.Sprintf("%+.1fs", m.At.Sub(v.Started).Seconds())
}

func list(words []string) string {
	out := ""
	for i, w := range words {
		if i > 0 {
			out += "; "
		}
		out += w
	}
	return out
}

func names(caption string, list []string) g.Node {
	if len(list) == 0 {
		return html.P(g.Text(caption + "."))
	}
	return html.Details(html.Summary(g.Text(caption)), html.Ul(g.Map(list, func(n string) g.Node { return html.Li(g.Text(n)) })))
}

// devicesPage is the devices' health, as the drills found it.
func devicesPage(f *view.Fleet) g.Node {
	var body, broken []g.Node
	for _, p := range f.Providers {
		name, query := p.Name, p.Name
		if name == "" {
			name, query = "(no device)", view.NoProvider
		}
		cells := []g.Node{html.A(html.Href(chosen(view.NodeQuery{Provider: query}, 1)), g.Text(strconv.Itoa(p.Nodes)))}
		for _, a := range view.DrillAnswers {
			cell := g.Text("0")
			if n := p.Found[a]; n > 0 {
				cell = html.A(html.Href(chosen(view.NodeQuery{Provider: query, Answer: a}, 1)), g.Text(strconv.Itoa(n)))
			}
			cells = append(cells, cell)
		}
		body = append(body, row(g.Text(name), cells...))
	}
	for _, n := range f.Nodes {
		if n.Fenceable == view.CanBeFenced && !n.Partly || n.Fenceable == view.NotAsked || len(broken) == rows {
			continue
		}
		why := n.Why
		if n.Config.None != "" {
			why = n.Config.None
		}
		broken = append(broken, row(nodeLink(n.Name), badge(string(n.Fenceable)), devices(n.Config), g.Text(why)))
	}
	return g.Group{
		html.P(g.Text("Each node's devices are asked now and then while nothing is wrong: could the node be fenced now?")),
		table("Nodes by provider, and whether they could be fenced", append([]string{"Provider", "Nodes"}, words(view.DrillAnswers)...), body),
		table("Where something is wrong (the first 100)", []string{"Node", "Fenceable", "Devices", "Why"}, broken),
	}
}

// hooks says what each protection means.
var hooks = map[string]string{
	taint.ProtectionFailClosed: "a pod that the hook cannot be asked about does not start",
	taint.ProtectionFailOpen:   "such a pod starts: it may slip through while the hook is killed or hangs",
	taint.ProtectionNone:       "there is no hook: a machine that boots in the middle of its fence runs its old pods",
	view.ProtectionNeverTold:   "the node never told of a hook: probably there is none",
}

// hookPage is which nodes hold their pods when they come back.
func hookPage(f *view.Fleet) g.Node {
	var body []g.Node
	for _, word := range view.Protections {
		cell := g.Text("0")
		if n := f.Protections[word]; n > 0 {
			cell = html.A(html.Href(chosen(view.NodeQuery{Protection: word}, 1)), g.Text(strconv.Itoa(n)))
		}
		body = append(body, row(badge(word), cell, g.Text(hooks[word])))
	}
	covered := f.Protections[taint.ProtectionFailClosed] + f.Protections[taint.ProtectionFailOpen]
	return g.Group{
		html.P(html.Class("sum"), html.Strong(g.Textf("%d of %d", covered, len(f.Nodes))), g.Text(" nodes have the hook, which holds the pods of a node that comes back.")),
		table("Nodes by what their hook protects from", []string{"Hook", "Nodes", "Meaning"}, body),
	}
}

// loginPage asks for a token. The token goes into the body of the request, never into an address.
func loginPage(next, problem string) g.Node {
	return g.Group{
		g.If(problem != "", html.P(html.Class("note"), html.Role("alert"), html.ID("problem"), g.Text(problem))),
		html.P(g.Text("Give a token of the cluster's, such as that of")),
		html.Pre(html.TabIndex("0"), html.Code(g.Text("kubectl -n forcefence-system create token forcefence-status --audience "+audience+" --duration 1h"))),
		html.Form(html.Method("post"), html.Action("/login"), html.Class("login"),
			html.Label(html.For("token"), g.Text("Token")),
			html.Input(html.ID("token"), html.Name("token"), html.Type("password"), html.AutoComplete("off"), html.Required(),
				g.If(problem != "", g.Group{html.Aria("invalid", "true"), html.Aria("describedby", "problem")})),
			html.Input(html.Type("hidden"), html.Name("next"), html.Value(next)),
			html.Button(html.Type("submit"), g.Text("Log in")),
		),
		html.P(html.Class("detail"), g.Text("It is sent to the API server, which says whose it is and whether they may see this page. The browser keeps a cookie for an hour at most, which opens nothing else.")),
	}
}

func plainPage(text string) g.Node {
	return g.Group{html.P(html.Class("note"), html.Role("alert"), g.Text(text)), html.P(html.A(html.Href("/"), g.Text("To the fleet")))}
}
