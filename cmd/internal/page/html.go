package page

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/features/room"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/view"
)

// A page is made of nodes that escape each text and each attribute: no code here writes text as HTML. A page runs only
// the scripts, and uses only the styles, in assets.

// frame is what surrounds the content of all pages.
type frame struct {
	title   string
	cluster string // its name; "" if the configuration has none
	path    string // of the tab that is open; "" for none
	who     string // the user; "" before the login
	about   string // which process this is
	live    bool   // main follows changes
}

var tabs = []struct{ path, name string }{
	{"/", "Fleet"},
	{"/fences", "Fences"},
	{"/devices", "Devices"},
	{"/hook", "Hook"},
}

func (f frame) wrapMain(main g.Node) g.Node {
	return html.Doctype(html.HTML(html.Lang("en"),
		html.Head(
			html.Meta(html.Charset("utf-8")),
			html.Meta(html.Name("viewport"), html.Content("width=device-width, initial-scale=1")),
			html.Meta(html.Name("color-scheme"), html.Content("light dark")),
			html.TitleEl(g.Text(f.title+" - "+f.brand())),
			html.Link(html.Rel("icon"), html.Href("/assets/icon.svg")),
			html.Link(html.Rel("stylesheet"), html.Href("/assets/style.css")),
			g.If(f.live, html.Script(html.Src("/assets/live.js"), html.Defer())),
		),
		html.Body(
			html.A(html.Class("skip"), html.Href("#main"), g.Text("Skip to the content")),
			html.Header(
				html.P(html.Class("brand"), g.Text(f.brand())),
				g.If(f.who != "", html.Nav(html.Aria("label", "Pages"),
					html.Ul(g.Map(tabs, func(t struct{ path, name string }) g.Node {
						return html.Li(html.A(
							html.Href(t.path), g.If(t.path == f.path, html.Aria("current", "page")), g.Text(t.name),
						))
					})))),
				g.If(f.who != "", html.Form(html.Method("post"), html.Action("/logout"), html.Class("who"),
					html.Span(g.Text(f.who)), html.Button(html.Type("submit"), g.Text("Log out")))),
			),
			html.Main(html.ID("main"), html.TabIndex("-1"),
				html.H1(renderText(f.title)),
				g.If(f.live, html.P(html.Class("live"),
					html.Label(html.Input(
						html.Type("checkbox"), html.ID("live-on"), html.Checked(),
					), g.Text(" Follow changes")),
					html.Span(html.ID("live-said"), html.Role("status")), html.Span(g.Text("Times are UTC.")))),
				html.Div(html.ID("live"), main),
			),
			html.Footer(
				html.P(g.Text(f.about+". This page only shows: nothing can be changed here.")),
			),
		),
	))
}

// brand names the program, and the cluster if that has a name.
func (f frame) brand() string { return strings.TrimSpace("forcefence " + f.cluster) }

// ageStep is how often an age may change, so that a page that is followed is not sent each second.
const ageStep = 15 * time.Second

// renderTime renders a time and its age: "14:03:11, 2 min ago". It has the date unless that is today.
func renderTime(t, now time.Time) g.Node {
	if t.IsZero() {
		return g.Text("-")
	}
	t, now = t.UTC(), now.UTC().Truncate(ageStep)
	layout := time.TimeOnly
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateTime
	}
	return html.Time(html.DateTime(t.Format(time.RFC3339)), html.Title(t.Format(time.RFC3339Nano)),
		g.Text(t.Format(layout)+", "+view.FormatAge(t, now)))
}

// maxName is how many bytes of a name are shown.
const maxName = 40

// renderName renders a name without line breaks. A long one loses its middle; its title has all of it.
func renderName(name string) g.Node {
	short := view.OneLine(name, maxName)
	return html.Span(html.Class("name"), g.If(short != name, html.Title(name)), g.Text(short))
}

// renderText renders a sentence. In it, names stay whole where a browser would break them at their marks.
func renderText(text string) g.Node {
	var parts g.Group
	plain := ""
	for i, word := range strings.Split(text, " ") {
		if i > 0 {
			plain += " "
		}
		if !strings.ContainsAny(strings.TrimRight(word, ".,:;?"), "-/.:?") {
			plain += word
			continue
		}
		parts, plain = append(parts, g.Text(plain), renderName(word)), ""
	}
	return html.Span(html.Class("text"), parts, g.Text(plain))
}

// lookOf returns how serious a word is. The word carries the meaning: the colour only repeats it. Only what needs a
// person is bad.
func lookOf(word string) string {
	switch word {
	case view.StateFine.DisplayName(), string(view.CanBeFenced), taint.ProtectionFailClosed:
		return "good"
	case view.StateNeedsPerson.DisplayName():
		return "bad"
	case view.StateFencing.DisplayName():
		return "busy"
	case view.StateLeftAlone.DisplayName(), string(view.NotAsked), view.ProtectionNeverTold, taint.ProtectionFailOpen:
		return "dim"
	default:
		return "warn"
	}
}

var signs = map[string]string{"good": "✓", "busy": "▸", "warn": "!", "bad": "✗", "dim": "·"}

func renderBadge(word string) g.Node { return renderSign(lookOf(word), word) }

// longBadge is how many bytes a badge may have that is never broken into lines.
const longBadge = 24

func renderSign(look, text string) g.Node {
	class := "badge " + look
	if len(text) > longBadge {
		class += " long"
	}
	return html.Span(html.Class(class), html.Span(html.Aria("hidden", "true"), g.Text(signs[look]+" ")),
		g.Text(text))
}

// renderLead renders a sentence that may be as long as a line. In it, names stay whole.
func renderLead(look, text string) g.Node {
	return html.Span(html.Class("badge "+look), html.Span(html.Aria("hidden", "true"), g.Text(signs[look]+" ")),
		renderText(text))
}

// protectionNames says what the hook does at each level of protection.
var protectionNames = map[string]string{
	taint.ProtectionFailClosed: "holds pods",
	taint.ProtectionFailOpen:   "can be bypassed",
	taint.ProtectionNotAtBoot:  "not at a boot",
	taint.ProtectionNone:       "none",
	view.ProtectionNeverTold:   view.ProtectionNeverTold,
}

func renderProtection(word string) g.Node { return renderSign(lookOf(word), protectionNames[word]) }

// renderNext renders what comes next, and where a person begins.
func renderNext(n view.NodeRow) g.Node {
	return g.Group{
		g.If(n.Next != "", renderText(n.Next)),
		g.Map(n.Commands, renderAdvised),
		g.If(n.Runbook != "", renderRunbook(n.Runbook)),
	}
}

// renderAdvised renders a command, and what it is for.
func renderAdvised(c view.Command) g.Node {
	return g.Group{renderDetail(g.Text(c.Purpose + ":")), renderCommand(c.Line)}
}

// renderCommand renders a command of ours, never a foreign text. The script shows the button.
func renderCommand(command string) g.Node {
	var words g.Group // short ones stay whole
	for i, word := range strings.Split(command, " ") {
		words = append(words, g.If(i > 0, g.Text(" ")),
			g.If(len(word) <= longBadge, html.Span(html.Class("name"), g.Text(word))),
			g.If(len(word) > longBadge, g.Text(word)))
	}
	return html.Span(html.Class("command"), html.Code(words),
		html.Button(html.Type("button"), html.Class("copy"), html.Aria("label", "Copy: "+command), g.Text("Copy")))
}

// release matches the version of a release, which is a tag of the repository.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// runbookURL returns the address of the runbook of a version: that of a release, or else the newest. Nothing is loaded
// from there.
func runbookURL(version string) string {
	if !release.MatchString(version) {
		version = "main"
	}
	return "https://github.com/forcefence/forcefence/blob/" + version + "/docs/runbook.md#"
}

func renderRunbook(section reason.Section) g.Node {
	return html.Span(html.Class("detail"), html.A(html.Href(runbookURL(version.String())+section.Anchor()),
		html.Rel("noreferrer"), g.Text("Runbook: "+string(section))))
}

func nodeLink(name string) g.Node {
	return html.A(html.Href("/nodes/"+url.PathEscape(name)), renderName(name))
}

func fencePath(name string) string { return "/fences/" + url.PathEscape(name) }

func fenceLink(name string) g.Node { return html.A(html.Href(fencePath(name)), renderName(name)) }

// shortFenceLink returns a link to a fence beside its node's name, with which the fence's name begins.
func shortFenceLink(name, node string) g.Node {
	return html.A(html.Href(fencePath(name)), renderName(strings.TrimPrefix(name, node+".")))
}

// fleetURL returns the address of the nodes that a query selects.
func fleetURL(q view.NodeQuery, page int) string {
	v := url.Values{}
	for key, value := range map[string]string{
		"name":      q.Text,
		"state":     string(q.State),
		"fenceable": string(q.Answer),
		"hook":      q.Protection,
		"provider":  q.Provider,
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

// maxRows is how many rows a table has at most.
const maxRows = 100

// splitPages returns which of n rows a page shows, from inclusive and to exclusive, and the links to the other pages.
func splitPages(n, page int, at func(page int) string) (from, to int, nav g.Node) {
	pages := max(1, (n+maxRows-1)/maxRows)
	page = min(max(page, 1), pages)
	from, to = (page-1)*maxRows, min(page*maxRows, n)
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
		step(page-1, "prev", "Previous"), html.Span(g.Textf("%d to %d of %d", from+1, to, n)),
		step(page+1, "next", "Next"))
}

// row is the cells of a row of a table. The first names the row.
type row []g.Node

// ownLine are the columns that have a line of their own on a narrow screen, where a row is a card.
var ownLine = []string{stateHead, "Text", "Why", "Meaning"}

// stateHead is the head of the column that has a node's state, and what a person does about it.
const stateHead = "State and next step"

// unlabelled are the columns whose cells need no label on a card.
var unlabelled = []string{stateHead, "Outcome", "Text", "Meaning", "Who", "What"}

// dropEmptyColumns returns a table without the columns that have no content in any row.
func dropEmptyColumns(heads []string, body []row) ([]string, []row) {
	var kept []int
	for i := range heads {
		if slices.ContainsFunc(body, func(r row) bool { return !isEmpty(r[i]) }) {
			kept = append(kept, i)
		}
	}
	if len(kept) == len(heads) {
		return heads, body
	}
	var keptHeads []string
	keptBody := make([]row, len(body))
	for _, i := range kept {
		keptHeads = append(keptHeads, heads[i])
		for at := range body {
			keptBody[at] = append(keptBody[at], body[at][i])
		}
	}
	return keptHeads, keptBody
}

// isEmpty reports whether a node renders as nothing.
func isEmpty(n g.Node) bool {
	var text strings.Builder
	_ = n.Render(&text) // into memory
	return text.Len() == 0
}

// renderTable renders a table without its empty columns. It can be scrolled sideways, by keys too. On a narrow screen
// each row is a card.
func renderTable(caption string, heads []string, body []row) g.Node {
	if len(body) == 0 {
		return html.P(html.Class("none"), g.Text(caption+": none."))
	}
	heads, body = dropEmptyColumns(heads, body)
	cell := func(i int, c g.Node) g.Node {
		head := heads[i]
		class := "own"
		if head == stateHead {
			class = "own state"
		}
		return html.Td(g.If(slices.Contains(ownLine, head), html.Class(class)),
			g.If(!slices.Contains(unlabelled, head), html.Data("label", head+": ")), c)
	}
	return renderScroll(caption, html.Table(
		html.Caption(g.Text(caption)),
		html.THead(html.Tr(g.Map(heads, func(h string) g.Node { return html.Th(html.Scope("col"), g.Text(h)) }))),
		html.TBody(g.Map(body, func(r row) g.Node {
			cells := g.Group{html.Th(html.Scope("row"), r[0])}
			for i, c := range r[1:] {
				cells = append(cells, cell(i+1, c))
			}
			return html.Tr(cells)
		})),
	))
}

// renderMeanings renders what each state of a node means, closed until a person asks.
func renderMeanings() g.Node {
	return html.Details(html.Class("meanings"), html.Summary(g.Text("What the states mean")),
		html.Dl(g.Map(view.Meanings(), func(m view.Meaning) g.Node {
			return g.Group{
				html.Dt(g.Text(m.State.DisplayName())),
				html.Dd(g.Text(m.Means + ". Next: " + m.Next + ". Who acts: " + m.Actor + ".")),
			}
		})))
}

// renderScroll renders a box that scrolls sideways what is wider than the screen. The script adds a hint then.
func renderScroll(name string, content g.Node) g.Node {
	return html.Div(html.Class("scroll"), html.Role("region"), html.Aria("label", name), html.TabIndex("0"), content)
}

func renderCount(n int, s view.State) g.Node {
	return html.Li(html.A(html.Href(fleetURL(view.NodeQuery{State: s}, 1)),
		renderSign(lookOf(s.DisplayName()), s.DisplayCount(n))))
}

// fleetPage renders the fleet at a glance.
func fleetPage(f *view.Fleet, q view.NodeQuery, page int) g.Node {
	all := f.SelectNodes(q)
	from, to, nav := splitPages(len(all), page, func(p int) string { return fleetURL(q, p) })
	var body []row
	for _, n := range all[from:to] {
		body = append(body, row{
			nodeLink(n.Name),
			g.Group{
				renderState(n, f.At),
				g.If(n.Fence != "", renderDetail(html.Span(
					html.Class("name"), g.Text(fenceLabel(f, n)), shortFenceLink(n.Fence, n.Name),
				))),
				renderNext(n),
			},
			g.Group{renderPower(n, f.At), renderDetail(renderDevices(n.Config))},
			g.Group{renderBadge(string(n.Fenceable)), renderDetail(
				html.Span(html.Class("name"), g.Text("hook "), renderProtection(n.Protection)))},
			renderName(n.Config.Mode),
		})
	}
	return g.Group{
		renderUrgent(f),
		html.P(
			html.Class("sum"), html.Strong(g.Text(decide.FormatCount(len(f.Nodes), "node"))),
			renderText(", "+describeOpen(f)+". "+f.Capacity.String()+"."),
		),
		html.Ul(html.Class("counts"), html.Aria("label", "Nodes by state"),
			g.Map(view.States(), func(s view.State) g.Node {
				return g.If(f.States[s] > 0, renderCount(f.States[s], s))
			})),
		renderMeanings(),
		renderRoom(f.Room),
		renderMissing(f),
		html.Search(html.Details(html.Class("filter"), g.If(q != view.NodeQuery{}, g.Attr("open")),
			html.Summary(g.Text("Filter")),
			html.Form(html.Method("get"), html.Action("/"),
				html.Label(g.Text("Name "), html.Input(html.Type("search"), html.Name("name"), html.Value(q.Text))),
				renderChoice("State", "state", string(q.State), toStrings(view.States()),
					func(w string) string { return view.State(w).DisplayName() }),
				renderChoice("Fenceable", "fenceable", string(q.Answer), toStrings(view.DrillAnswers),
					func(w string) string { return w }),
				renderChoice("Hook", "hook", q.Protection, view.Protections,
					func(w string) string { return protectionNames[w] }),
				g.If(q.Provider != "", html.Input(html.Type("hidden"), html.Name("provider"), html.Value(q.Provider))),
				html.Button(html.Type("submit"), g.Text("Show")),
				g.If(q != view.NodeQuery{}, html.A(html.Href("/"), g.Text("Show all"))),
			))),
		renderTable(
			"Nodes",
			[]string{"Node", stateHead, "Machine", "Fenceable", "Mode"},
			body,
		),
		nav,
	}
}

// fenceLabel says whether the node's newest fence is under way.
func fenceLabel(f *view.Fleet, n view.NodeRow) string {
	if v, known := f.Fence(n.Fence); known && v.Open {
		return "fence "
	}
	return "last fence "
}

// renderRoom renders a card that says whether pods find room elsewhere if machines fail now. It opens on a click,
// because what a node needs now comes first.
func renderRoom(all []view.RoomStatement) g.Node {
	if len(all) == 0 {
		return g.Group{}
	}
	sign := func(v room.Verdict) g.Node {
		switch v {
		case room.Fits:
			return renderSign("good", "Room")
		case room.Lacks:
			return renderSign("warn", "Too little room")
		default:
			return renderSign("dim", "Unknown")
		}
	}
	return html.Details(html.Class("card"),
		html.Summary(g.Text("If a machine fails now: "), sign(room.Verdict(all[0].Verdict))),
		html.Ul(html.Class("plain"), g.Map(all, func(s view.RoomStatement) g.Node {
			return html.Li(sign(room.Verdict(s.Verdict)), g.Text(" "), renderText(s.Text))
		})),
		renderDetail(g.Text("An estimate. "), html.Code(g.Text("forcefence room")), g.Text(" says why.")))
}

// isOrphan reports whether the fence is open and its Node is gone: nothing is left to fence.
func isOrphan(f *view.Fleet, v view.Fence) bool {
	_, known := f.Node(v.Node)
	return v.Open && !known
}

// describeOpen says which nodes have a fence under way. Such a node may need a person.
func describeOpen(f *view.Fleet) string {
	var names []string
	for _, v := range f.Fences {
		if v.Open && !isOrphan(f, v) {
			names = append(names, v.Node)
		}
	}
	text := decide.FormatCount(len(names), "fence") + " under way"
	if len(names) == 0 {
		return text
	}
	return text + ": " + view.FormatNames(names)
}

// renderUrgent renders the first lines: which nodes need a person, and why. Their rows are the first of the table, and
// say what to do. They are green only while no node has been dead for long. A banner is what a person reads first: no
// green line follows it.
func renderUrgent(f *view.Fleet) g.Node {
	all := f.Urgent()
	if len(all) == 0 {
		names := f.LongNotReady()
		switch {
		case len(names) == 1:
			return html.P(html.Class("lead"), renderLead("warn", names[0]+" has not been Ready for over 5 minutes."))
		case len(names) > 1:
			return html.P(html.Class("lead"), renderLead("warn", fmt.Sprintf(
				"%d nodes have not been Ready for over 5 minutes: %s.", len(names), view.FormatNames(names))))
		case len(f.Banners) > 0:
			return g.Group{}
		default:
			return html.P(html.Class("lead"), renderLead("good", "No node needs a person."))
		}
	}
	var names []string
	for _, n := range all {
		names = append(names, n.Name)
	}
	return html.Div(html.Class("lead note banner"), renderLead("bad", view.DescribeUrgent(names)),
		html.Ul(html.Class("groups"), g.Map(view.GroupUrgent(all), func(r view.UrgentGroup) g.Node {
			return html.Li(renderText(r.Why + ": " + view.FormatNames(r.Names)))
		})))
}

func toStrings[T ~string](list []T) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

func renderChoice(label, name, value string, all []string, display func(string) string) g.Node {
	return html.Label(g.Text(label+" "), html.Select(html.Name(name),
		html.Option(html.Value(""), g.Text("any")),
		g.Map(all, func(w string) g.Node {
			return html.Option(html.Value(w), g.If(w == value, html.Selected()), g.Text(display(w)))
		})))
}

func renderDevices(l view.NodeConfig) g.Node {
	if len(l.Devices) == 0 {
		return html.Span(html.Class("none"), g.Text("no device"))
	}
	return html.Ul(html.Class("plain devices"), g.Map(l.Devices, func(d string) g.Node {
		return html.Li(renderName(d), g.Text(" ")) // a line may end between two
	}))
}

// renderDetail renders what is less important, on a line of its own or, on a narrow screen, after a space.
func renderDetail(parts ...g.Node) g.Node {
	return g.Group{g.Text(" "), html.Span(html.Class("detail"), g.Group(parts))}
}

// renderBanners renders what must be known before anything else.
func renderBanners(f *view.Fleet) g.Node {
	return g.Map(f.Banners, func(b view.Banner) g.Node {
		return html.P(html.Class("note banner"), html.Strong(g.Text(b.Title+": ")),
			renderText(b.Text+" "+b.Remedy), g.If(b.Command != "", renderCommand(b.Command)),
			renderRunbook(b.About.Section()))
	})
}

func renderMissing(f *view.Fleet) g.Node {
	return g.If(f.Missing != "",
		html.P(html.Class("note"), g.Text("This page shows only what the Nodes say about fences: "+f.Missing+".")))
}

// fencesPage renders all fences that are kept.
func fencesPage(f *view.Fleet, page int) g.Node {
	from, to, nav := splitPages(len(f.Fences), page, func(p int) string { return "/fences?page=" + strconv.Itoa(p) })
	return g.Group{renderMissing(f), renderFences("All fences, the newest first", f, f.Fences[from:to]), nav}
}

func renderFences(caption string, f *view.Fleet, list []view.Fence) g.Node {
	var body []row
	for _, v := range list {
		body = append(body, row{
			shortFenceLink(v.Name, v.Node), renderOutcome(f, v), nodeLink(v.Node), renderTime(v.Started, f.At),
			renderName(formatTook(v)), g.Text(strconv.Itoa(int(v.Pods.Ended))),
			g.Textf("%d of %d", v.Volumes.Detached, v.Volumes.Attached),
			g.Text(v.Why)})
	}
	return renderTable(
		caption,
		[]string{"Fence", "Outcome", "Node", "Began", "Took", "Pods ended", "Volumes detached", "Reason"},
		body,
	)
}

// formatTook returns how long a fence took, or has taken so far.
func formatTook(v view.Fence) string {
	if v.Open {
		return v.Duration + " so far"
	}
	return v.Duration
}

// isLeftOff reports whether the fence powered its node's machine off, and nothing powered it on since.
func isLeftOff(f *view.Fleet, v view.Fence) bool {
	n, known := f.Node(v.Node)
	return known && n.Fence == v.Name && n.LeftOff
}

func renderOutcome(f *view.Fleet, v view.Fence) g.Node {
	word, look := v.Result, "good"
	switch {
	case isOrphan(f, v):
		word, look = v.Phase+", its Node is gone", "dim"
	case v.Open:
		word, look = v.Phase+", under way", "busy"
	case isLeftOff(f, v):
		word, look = word+", left off", "warn"
	case v.Result != string(taint.ResultEvicted):
		look = "dim"
	}
	if len(v.Newer) > 0 {
		look = "warn"
	}
	if v.NeedsPerson != "" {
		word, look = word+", needs a person", "bad"
	}
	if v.Shadow {
		word += " (mode shadow)"
	}
	return renderSign(look, word)
}

// nodePage renders one node, with the picture of its newest fence.
func nodePage(f *view.Fleet, n view.NodeRow) g.Node {
	why := n.Why
	if n.Config.NoDeviceReason != "" {
		why = n.Config.NoDeviceReason
	}
	all := f.FencesOf(n.Name)
	shown := html.P(html.Class("none"), g.Text("No fence of this node is known."))
	if len(all) > 0 {
		shown = g.Group{html.H2(g.Text("Newest fence: "), fenceLink(all[0].Name)), renderFence(f, all[0], true)}
	}
	var body []row
	for _, e := range f.EventsOf(n.Name) {
		body = append(body, row{
			renderTime(e.At, f.At), g.Text(e.Who), renderName(string(e.Sign)), renderText(e.What),
		})
	}
	return g.Group{
		html.Div(html.Class("lead note "+lookOf(n.State.DisplayName())+"-note"), renderState(n, f.At), renderNext(n)),
		html.Dl(html.Class("facts"),
			renderFact(
				"Machine's power, as last seen", renderPower(n, f.At),
				g.If(n.PowerBy != "", renderDetail(g.Text("by "), renderText(n.PowerBy))),
			),
			renderFact("Devices", renderDevices(n.Config)),
			renderFact(
				"Could be fenced, by the last drill", renderBadge(string(n.Fenceable)),
				g.If(!n.DrilledAt.IsZero(), html.Span(html.Class("name off"),
					g.Text(" since "), renderTime(n.DrilledAt, f.At))),
				g.If(why != "", renderDetail(renderText(why))),
			),
			renderFact("Hook", renderProtection(n.Protection)),
			renderFact("Mode", g.Text(n.Config.Mode)),
		),
		renderMissing(f),
		shown,
		g.If(len(all) > 1, renderFences("Fences of this node", f, all[:min(len(all), maxRows)])),
		renderTable(
			"Events of this node, as their senders report them", []string{"When", "Who", "What", "Text"},
			body[:min(len(body), maxRows)],
		),
	}
}

// renderState renders a node's state, and since when it is in it, if that is known.
func renderState(n view.NodeRow, now time.Time) g.Node {
	badge := renderBadge(n.State.DisplayName())
	if n.Since.IsZero() {
		return badge
	}
	return g.Group{badge, renderDetail(html.Span(html.Class("name"), g.Text("since "), renderTime(n.Since, now)))}
}

// renderPower renders the last seen power state of a node's machine, and when it was seen, or since when each drill has
// seen it. It is no proof: a proof is at most five seconds old.
func renderPower(n view.NodeRow, now time.Time) g.Node {
	if n.PowerAt.IsZero() {
		return g.Text(n.Power)
	}
	if n.FormerPower != "" {
		return g.Group{g.Text(n.Power + "; "), html.Span(
			html.Class("off"), g.Text("it was "+n.FormerPower+" at "), renderTime(n.PowerAt, now),
		)}
	}
	how := "asked "
	if n.PowerSince {
		how = "since "
	}
	return g.Group{g.Text(n.Power + ", "), html.Span(html.Class("off name"), g.Text(how), renderTime(n.PowerAt, now))}
}

func renderFact(name string, value ...g.Node) g.Node {
	return html.Div(html.Dt(g.Text(name)), html.Dd(value...))
}

// renderFence renders one fence: its outcome, the picture, and the same in words. On its node's page, below what the
// node needs, it does not repeat that.
func renderFence(f *view.Fleet, v view.Fence, below bool) g.Node {
	moments := f.MomentsOf(v)
	var rows, spans []row
	for _, m := range moments {
		rows = append(rows, row{
			html.Time(
				html.DateTime(m.At.UTC().Format(time.RFC3339Nano)), g.Text(m.At.UTC().Format(time.TimeOnly)+" "),
				html.Span(html.Class("after"), g.Text(formatOffset(m.At.Sub(v.Started)))),
			),
			renderName(m.Who), renderName(string(m.Sign)), renderText(m.What),
		})
	}
	for _, s := range v.Spans {
		spans = append(spans, row{
			g.Text(s.Phase), renderTime(s.From, f.At), g.Text(view.FormatSpan(s.To.Sub(s.From))),
		})
	}
	n, _ := f.Node(v.Node)
	if n.Fence != v.Name { // the node has another by now, or is gone
		n, below = view.NodeRow{}, false
	}
	return g.Group{
		g.If(len(v.Newer) > 0, html.P(html.Class("note"), html.Role("alert"),
			g.Text(
				"A newer forcefence wrote this object, or a user edited it. This page cannot show: "+
					joinTexts(v.Newer)+".",
			))),
		g.If(v.NeedsPerson != "" && !below, html.Div(
			html.Class("note banner"), renderSign("bad", "Needs a person: "),
			renderText(cmp.Or(strings.TrimPrefix(n.Next, "A person should look: "), v.NeedsPerson)),
			g.Map(n.Commands, renderAdvised), renderRunbook(reason.SectionMarkStuck),
		)),
		g.If(isOrphan(f, v), html.Div(html.Class("note"), renderSign("dim", "Its Node is gone: "),
			renderText("nothing is left to fence. Within minutes the leader ends this record as NodeGone. If it "+
				"does not, delete the record."),
			renderCommand("kubectl delete fencing "+v.Name))),
		g.If(isLeftOff(f, v) && !below, html.Div(html.Class("note"), renderSign("warn", "Its machine is off: "),
			renderText("this fence powered it off, and nothing has powered it on since. Once it is repaired, power "+
				"it on."),
			renderCommand(n.PowerOn))),
		html.Dl(html.Class("facts"),
			renderFact("Node", nodeLink(v.Node)),
			renderFact(
				"Outcome", renderOutcome(f, v), g.If(v.Outcome != "", renderDetail(renderText(v.Outcome))),
			),
			renderFact("Began", renderTime(v.Started, f.At), renderDetail(g.Text("by "), renderName(v.By))),
			renderFact("Took", g.Text(formatTook(v))),
			renderFact("Proof", renderText(v.Proven)),
		),
		html.Figure(
			html.Div(html.Class("narrow"), renderNarrowPicture(v, f.At)),
			html.Div(html.Class("wide-only"), renderScroll("Picture of the fence", renderPicture(v, moments, f.At))),
			html.FigCaption(g.Text(
				"Phases and steps are to scale. A hollow bar is a step that was done several times. EndPods ends pods "+
					"for good; DeletePods deletes those that still exist then. ClearVolumes takes each volume off "+
					"both of the node's lists, so it counts each twice. The tables say the same in words.",
			)),
		),
		renderTable("Who reported what, and when", []string{"When", "Who", "What", "Text"}, rows),
		renderTable("Phases", []string{"Phase", "From", "Lasted"}, spans),
		renderNames(fmt.Sprintf(
			"Pods: %d ended, %d spared, %d left behind%s", v.Pods.Ended, v.Pods.Spared, v.Pods.Left, shadowText(v),
		), v.PodNames()),
		renderNames(fmt.Sprintf(
			"Volumes: %d of %d detached", v.Volumes.Detached, v.Volumes.Attached,
		), v.Volumes.Names),
		g.If(len(v.Volumes.Left) > 0, renderNames("Still attached", v.Volumes.Left)),
		g.If(len(v.Volumes.Staying) > 0, renderNames("Attached to pods that stay", v.Volumes.Staying)),
	}
}

func shadowText(v view.Fence) string {
	if !v.Shadow {
		return ""
	}
	return fmt.Sprintf(", %d would have been", v.Pods.Would)
}

// formatOffset formats a time since the fence's start.
func formatOffset(d time.Duration) string {
	return fmt.Sprintf("%+.1fs", d.Round(100*time.Millisecond).Seconds())
}

func joinTexts(words []string) string {
	out := ""
	for i, w := range words {
		if i > 0 {
			out += "; "
		}
		out += w
	}
	return out
}

func renderNames(caption string, list []string) g.Node {
	if len(list) == 0 {
		return html.P(g.Text(caption + "."))
	}
	return html.Details(html.Summary(g.Text(caption)), renderScroll(caption,
		html.Ul(html.Class("name"), g.Map(list, func(n string) g.Node { return html.Li(g.Text(n)) }))))
}

// devicesPage renders the devices' health, as the drills found it.
func devicesPage(f *view.Fleet) g.Node {
	var body, broken []row
	for _, p := range f.Providers {
		name, query := p.Name, p.Name
		if name == "" {
			name, query = "(no device)", view.NoProvider
		}
		cells := row{renderName(name), html.A(
			html.Href(fleetURL(view.NodeQuery{Provider: query}, 1)), g.Text(strconv.Itoa(p.Nodes)),
		)}
		for _, a := range view.DrillAnswers {
			cell := g.Text("0")
			if n := p.Found[a]; n > 0 {
				cell = html.A(
					html.Href(fleetURL(view.NodeQuery{Provider: query, Answer: a}, 1)), g.Text(strconv.Itoa(n)),
				)
			}
			cells = append(cells, cell)
		}
		body = append(body, cells)
	}
	for _, n := range f.Nodes {
		if n.Fenceable == view.CanBeFenced || n.Fenceable == view.NotAsked || len(broken) == maxRows {
			continue
		}
		why := n.Why
		if n.Config.NoDeviceReason != "" {
			why = n.Config.NoDeviceReason
		}
		broken = append(broken, row{
			nodeLink(n.Name), renderBadge(string(n.Fenceable)), renderDevices(n.Config), renderText(why),
		})
	}
	return g.Group{
		html.P(
			g.Text("forcefence asks each node's devices every five minutes, with more than 400 nodes less often: " +
				"could the node be fenced now?"),
		),
		renderRunbook(reason.SectionDrillFailing),
		renderTable(
			"Nodes by provider, and whether they could be fenced",
			append([]string{"Provider", "Nodes"}, toStrings(view.DrillAnswers)...), body,
		),
		renderTable(
			"Where something is wrong (the first 100)", []string{"Node", "Fenceable", "Devices", "Why"}, broken,
		),
	}
}

// protectionMeanings explains each level of protection.
var protectionMeanings = map[string]string{
	taint.ProtectionFailClosed: "FailClosed: no pod starts unless the hook allows it, even while the hook does not " +
		"run.",
	taint.ProtectionFailOpen: "FailOpen: the hook holds pods, but while it is killed or hangs, the runtime starts " +
		"pods without asking it.",
	taint.ProtectionNotAtBoot: "NotAtBoot: the hook holds pods once its own pod runs; those of a boot may start " +
		"before it.",
	taint.ProtectionNone:     "There is no hook: a machine that boots in the middle of its fence runs its old pods.",
	view.ProtectionNeverTold: "The node never reported a hook: probably there is none.",
}

// hookPage renders which nodes hold their pods when they come back.
func hookPage(f *view.Fleet) g.Node {
	var body []row
	for _, word := range view.Protections {
		cell := g.Text("0")
		if n := f.Protections[word]; n > 0 {
			cell = html.A(html.Href(fleetURL(view.NodeQuery{Protection: word}, 1)), g.Text(strconv.Itoa(n)))
		}
		body = append(body, row{renderProtection(word), cell, g.Text(protectionMeanings[word])})
	}
	covered := f.Protections[taint.ProtectionFailClosed] + f.Protections[taint.ProtectionFailOpen] +
		f.Protections[taint.ProtectionNotAtBoot]
	return g.Group{
		html.P(
			html.Class("sum"), g.Text("The hook, which holds the pods of a node that comes back, is on "),
			html.Strong(g.Textf("%d of %s", covered, decide.FormatCount(len(f.Nodes), "node"))), g.Text("."),
		),
		renderRunbook(reason.SectionHookMissing),
		renderTable("Nodes by the protection of their hook", []string{"Hook", "Nodes", "Meaning"}, body),
	}
}

// loginPage renders the form for a token. The token goes into the body of the request, never into an address.
func loginPage(namespace, next, problem string) g.Node {
	return g.Group{
		g.If(problem != "", html.P(html.Class("note"), html.Role("alert"), html.ID("problem"), g.Text(problem))),
		html.P(g.Text("Enter a token of the cluster, such as the one that this command prints:")),
		html.Pre(
			html.TabIndex("0"),
			html.Code(
				g.Text(
					"kubectl -n "+namespace+" create token forcefence-status --audience "+audience+" --duration 1h",
				),
			),
		),
		html.Form(html.Method("post"), html.Action("/login"), html.Class("login"),
			html.Label(html.For("token"), g.Text("Token")),
			html.Input(html.ID("token"), html.Name("token"), html.Type("password"), html.AutoComplete("off"),
				html.Required(), html.AutoFocus(),
				g.If(problem != "", g.Group{html.Aria("invalid", "true"), html.Aria("describedby", "problem")})),
			html.Input(html.Type("hidden"), html.Name("next"), html.Value(next)),
			html.Button(html.Type("submit"), g.Text("Log in")),
		),
		html.P(
			html.Class("detail"),
			g.Text(
				"The page sends it to the API server, which identifies the user and checks the right to see the page. "+
					"The browser keeps a cookie for one hour at most, which opens nothing else.",
			),
		),
	}
}

func plainPage(text string) g.Node {
	return g.Group{html.P(
		html.Class("note"), html.Role("alert"), g.Text(text),
	), html.P(html.A(html.Href("/"), g.Text("To the fleet")))}
}
