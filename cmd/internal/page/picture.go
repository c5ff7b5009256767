package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/view"
)

// The picture's measures, in its own units. A unit is a pixel at least.
const (
	pictureWidth = 960
	margin       = 10
	lineHeight   = 26
	charWidth    = 7 // of an average letter

	// The chart: names, bars to scale, and their times.
	chartFrom  = 150
	chartWidth = 590
	chartTo    = chartFrom + chartWidth
	phaseRow   = 26
	stepRow    = 20

	// The narrow chart has its names above the bars.
	narrowWidth = 360
	narrowRow   = 34

	// The rows: times, lanes, texts.
	firstLane   = 110
	laneWidth   = 96
	mostDevices = 4 // lanes; the others share the last
	textHeight  = 15
	mostLines   = 3 // of a text
)

// renderPicture draws a fence: its phases and steps as bars to scale, one row for each moment, and the results for pods
// and volumes. A row shows a moment's source and text.
func renderPicture(v view.Fence, moments []view.Moment, now time.Time) g.Node {
	chart, y := renderChart(v, now)
	rows, y := renderRows(v, moments, y+20)
	y += 34
	pods := v.Pods.Ended + v.Pods.Spared
	podsText := fmt.Sprintf("%d ended, %d spared, %d left behind", v.Pods.Ended, v.Pods.Spared, v.Pods.Left)
	podsShare := fmt.Sprintf("%d of %d", v.Pods.Ended, pods)
	switch {
	case v.Shadow:
		pods = v.Pods.Would
		podsText = fmt.Sprintf("none; %d would have been ended", v.Pods.Would)
		podsShare = fmt.Sprintf("%d of %d", v.Pods.Ended, pods)
	case v.Open: // how many there will be is not known yet, so their share is not
		pods, podsShare = 0, fmt.Sprintf("%d so far", v.Pods.Ended)
		podsText = fmt.Sprintf("%d ended so far, %d spared", v.Pods.Ended, v.Pods.Spared)
	}
	volumesText := fmt.Sprintf("%d of %d detached", v.Volumes.Detached, v.Volumes.Attached) +
		describeStaying(v.Volumes.Staying)
	title := fmt.Sprintf("Fence of node %s: %s", v.Node, v.Phase)
	if !v.Open {
		title = fmt.Sprintf("Fence of node %s: %s after %s", v.Node, v.Result, v.Duration)
	}
	description := decide.FormatCount(len(moments), "moment") + fmt.Sprintf(
		". Pods ended: %s. Volumes detached: %d of %d. The tables below say the same in words.",
		podsShare, v.Volumes.Detached, v.Volumes.Attached)
	return html.SVG(
		g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", pictureWidth, y+48)), html.Role("img"),
		html.Aria("labelledby", "picture-title picture-text"), html.Class("picture"),
		svgElement("title", "id", "picture-title", title), svgElement("desc", "id", "picture-text", description),
		chart, rows,
		renderShare("pods", podsText, v.Pods.Ended, pods, y),
		renderShare("volumes", volumesText, v.Volumes.Detached, v.Volumes.Attached, y+30),
	)
}

// renderNarrowPicture draws a fence's phases and steps for a screen that is too narrow for their names beside the bars.
func renderNarrowPicture(v view.Fence, now time.Time) g.Node {
	scale, ok := newTimeScale(v, now)
	if !ok || len(v.Spans)+len(v.Steps) == 0 {
		return html.P(g.Text("No phase and no step is recorded."))
	}
	scale.left, scale.width = margin, narrowWidth-2*margin
	var parts g.Group
	y := 0
	add := func(name, text string, bar g.Node) {
		parts = append(parts, svgText(margin, y+18, "what", "start", name),
			svgText(narrowWidth-margin, y+18, "when", "end", text), bar)
		y += narrowRow
	}
	rect := func(from, to time.Time, class string) g.Node {
		x := scale.x(from)
		return svgRect(min(x, narrowWidth-margin-3), y+23, max(scale.x(to)-x, 3), 9, class)
	}
	for _, s := range v.Spans {
		add(s.Phase, describeBar(scale, s.From, s.To, 1), rect(s.From, s.To, "span "+phaseClass(s.Phase)))
	}
	for _, s := range v.Steps {
		class := "step"
		if s.Times > 1 {
			class = "step often"
		}
		add(view.OneLine(s.Step, 20), describeBar(scale, s.Began.Time, s.Ended.Time, s.Times),
			rect(s.Began.Time, s.Ended.Time, class))
	}
	return html.SVG(
		g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", narrowWidth, y+margin)), html.Role("img"),
		html.Aria("labelledby", "narrow-title"), html.Class("picture"),
		svgElement("title", "id", "narrow-title", "Phases and steps of the fence of node "+v.Node), parts,
	)
}

// describeBar says when a bar begins and how long it lasts.
func describeBar(scale timeScale, from, to time.Time, times int32) string {
	began, lasted := formatOffset(from.Sub(scale.start)), view.FormatSpan(to.Sub(from))
	if times > 1 {
		return fmt.Sprintf("%s, %d times in %s", began, times, lasted)
	}
	return began + " for " + lasted
}

// describeStaying says, after another text, which volumes stay attached; "" for none.
func describeStaying(volumes []string) string {
	switch len(volumes) {
	case 0:
		return ""
	case 1:
		return "; " + view.OneLine(volumes[0], maxName) + " stays with its pod"
	default:
		return "; " + decide.FormatCount(len(volumes), "more volume") + " stay with their pods"
	}
}

// timeScale maps times to the chart. Times outside of it are drawn at its edges.
type timeScale struct {
	start       time.Time // of the fence: 0 s
	from, to    time.Time
	left, width int
}

// newTimeScale covers the fence and all of its steps: devices are asked before it begins, and the mark is removed after
// its end. ok is false if no time passed.
func newTimeScale(v view.Fence, now time.Time) (s timeScale, ok bool) {
	s = timeScale{start: v.Started, from: v.Started, to: v.Finished, left: chartFrom, width: chartWidth}
	if s.to.IsZero() {
		s.to = now
	}
	for _, p := range v.Steps {
		if p.Began.Time.Before(s.from) {
			s.from = p.Began.Time
		}
		if p.Ended.After(s.to) {
			s.to = p.Ended.Time
		}
	}
	return s, s.to.After(s.from)
}

func (s timeScale) x(t time.Time) int {
	part := float64(t.Sub(s.from)) / float64(s.to.Sub(s.from))
	return s.left + int(min(max(part, 0), 1)*float64(s.width))
}

// ticks returns the times at which the chart has a line: full multiples of 1, 2 or 5 times a power of ten seconds, from
// the fence's start.
func (s timeScale) ticks() (out []time.Duration) {
	const most = 8
	step := time.Microsecond
	for grow := 0; s.to.Sub(s.from) > most*step; grow++ {
		step = step * []time.Duration{2, 5, 2}[grow%3] / []time.Duration{1, 2, 1}[grow%3]
	}
	for at := time.Duration(0); !s.start.Add(at).After(s.to); at += step {
		out = append(out, at)
	}
	return out
}

// renderChart draws phases and steps to scale, with a legend of the phases' colours. It returns the height that it
// used.
func renderChart(v view.Fence, now time.Time) (g.Node, int) {
	const top = 34
	scale, ok := newTimeScale(v, now)
	if !ok || len(v.Spans)+len(v.Steps) == 0 {
		return svgText(margin, 24, "when", "start", "No phase and no step is recorded."), 34
	}
	bottom := top + phaseRow + 6 + len(v.Steps)*stepRow
	var parts g.Group
	for _, at := range scale.ticks() {
		x := scale.x(scale.start.Add(at))
		parts = append(
			parts, svgLine(x, top, x, bottom+4, "grid"),
			svgText(x, bottom+18, "when", "middle", strconv.FormatFloat(at.Seconds(), 'f', -1, 64)+" s"),
		)
	}
	parts = append(parts, svgText(margin, 20, "lane", "start", "phases"), renderLegend(v.Spans))
	for _, s := range v.Spans {
		from := scale.x(s.From)
		wide := max(scale.x(s.To)-from, 3)
		parts = append(parts, svgRect(from, top, wide, phaseRow, "span "+phaseClass(s.Phase)))
		if 8*len(s.Phase) < wide-6 {
			parts = append(parts, svgText(from+6, top+18, "phase", "start", s.Phase))
		}
	}
	y := top + phaseRow + 6
	for _, s := range v.Steps {
		parts = append(parts, renderStep(s, scale, y))
		y += stepRow
	}
	return parts, bottom + 24
}

// renderLegend names the phases' colours, and how long each phase lasted.
func renderLegend(spans []view.Span) g.Node {
	lasted, order := map[string]time.Duration{}, []string{}
	for _, s := range spans {
		if _, known := lasted[s.Phase]; !known {
			order = append(order, s.Phase)
		}
		lasted[s.Phase] += s.To.Sub(s.From)
	}
	var parts g.Group
	x := chartFrom
	for _, phase := range order {
		text := phase + " " + view.FormatSpan(lasted[phase])
		parts = append(parts, svgRect(x, 9, 12, 12, "span "+phaseClass(phase)),
			svgText(x+18, 20, "what", "start", text))
		x += 18 + charWidth*len(text) + 24
	}
	return parts
}

// phaseClass returns the class that has a phase's colour.
func phaseClass(phase string) string {
	switch taint.Phase(phase) {
	case taint.PhasePoweringOff, taint.PhaseArmed, taint.PhaseEvicting:
		return "in-" + phase
	default: // of a newer version
		return "in-another"
	}
}

// renderStep draws a step from when it began to when it ended. One that was done several times is hollow, because it
// did not last all of that time.
func renderStep(s api.Step, scale timeScale, y int) g.Node {
	class, text := "step", describeBar(scale, s.Began.Time, s.Ended.Time, s.Times)
	if s.Times > 1 {
		class = "step often"
	}
	from := scale.x(s.Began.Time)
	return g.Group{
		svgText(margin, y+14, "what", "start", view.OneLine(s.Step, (chartFrom-margin)/charWidth)),
		svgRect(from, y+4, max(scale.x(s.Ended.Time)-from, 3), stepRow-8, class),
		svgText(chartTo+12, y+14, "when", "start", text),
	}
}

// renderRows draws one row for each moment, in order of time, below y. It returns the height that it ends at.
func renderRows(v view.Fence, moments []view.Moment, y int) (g.Node, int) {
	lane, names := assignLanes(moments)
	x := func(i int) int { return firstLane + i*laneWidth }
	words := x(len(names)) - laneWidth/3
	legend := renderSigns(moments, y)
	y += 32
	top := y + 8
	var heads, parts g.Group
	y += 12
	for _, m := range moments {
		y += lineHeight
		at, middle := x(lane[m.Who]), y-lineHeight/3
		parts = append(parts, svgText(margin, y-4, "when", "start", formatOffset(m.At.Sub(v.Started))))
		what := m.What
		if lane[m.Who] > 1 { // a device's answer goes to forcefence
			what = m.Who + " said " + m.What
			parts = append(parts, svgLine(at-9, middle, x(1)+9, middle, "answer"),
				svgElement("path", "d", fmt.Sprintf("M%d %d l8 -4 v8 z", x(1)+7, middle), "class", "head"))
		}
		parts = append(parts, renderMoment(m, at, middle))
		for i, line := range wrapText(what, (pictureWidth-margin-words)/charWidth, mostLines) {
			if i > 0 {
				y += textHeight
			}
			parts = append(parts, svgText(words, y-4, "what", "start", line))
		}
	}
	for i, name := range names {
		heads = append(heads, renderCut("lane", x(i), top-8, "middle", name, laneWidth-6),
			svgLine(x(i), top, x(i), y+4, "life"))
	}
	return g.Group{legend, heads, parts}, y
}

// wrapText breaks a text between words into at most so many lines of so many characters. Of a longer text the middle is
// lost.
func wrapText(text string, wide, most int) (lines []string) {
	text = view.OneLine(text, wide*most*9/10) // lines are rarely full
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > wide {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += view.OneLine(word, wide)
	}
	if lines = append(lines, line); len(lines) > most {
		lines = append(lines[:most-1], view.OneLine(strings.Join(lines[most-1:], " "), wide))
	}
	return lines
}

// signNames names the signs in the picture's legend.
var signNames = []struct {
	sign view.Sign
	name string
}{
	{view.SignOff, "said Off"}, {view.SignOn, "said On"}, {view.SignUnsure, "no clear answer"},
	{view.SignPhase, "phase"}, {view.SignStep, "step"}, {view.SignWarning, "warning"}, {view.SignEvent, "Event"},
	{view.SignEnds, "begin or end"},
}

// renderSigns draws the signs that the moments have, each with its meaning.
func renderSigns(moments []view.Moment, y int) g.Node {
	var parts g.Group
	x := margin + 10
	for _, s := range signNames {
		if !slices.ContainsFunc(moments, func(m view.Moment) bool { return m.Sign == s.sign }) {
			continue
		}
		parts = append(parts, renderMoment(view.Moment{Sign: s.sign}, x, y-4),
			svgText(x+14, y, "when", "start", s.name))
		x += 14 + charWidth*len(s.name) + 30
	}
	return parts
}

// assignLanes returns the lane of each source of the moments, and the lanes' names. A device's lane has its provider's
// name, or its own if another device of the provider has a lane.
func assignLanes(moments []view.Moment) (lane map[string]int, names []string) {
	names = []string{view.LaneCluster, view.LaneForcefence}
	lane = map[string]int{view.LaneCluster: 0, view.LaneForcefence: 1}
	devices := map[string]int{} // of each provider
	for _, m := range moments {
		if _, known := lane[m.Who]; known {
			continue
		}
		if len(names) == 2+mostDevices {
			lane[m.Who] = len(names) - 1
			continue
		}
		lane[m.Who] = len(names)
		names = append(names, m.Who)
		devices[providerOf(m.Who)]++
	}
	for i, name := range names {
		if provider := providerOf(name); i > 1 && devices[provider] == 1 {
			names[i] = provider
		}
	}
	return lane, names
}

func providerOf(device string) string {
	provider, _, _ := strings.Cut(device, "/")
	return provider
}

// svgElement returns an element of SVG. words are pairs of names and values, and a text at the end if their count is
// odd.
func svgElement(name string, words ...string) g.Node {
	var parts []g.Node
	for len(words) > 1 {
		parts, words = append(parts, g.Attr(words[0], words[1])), words[2:]
	}
	if len(words) == 1 {
		parts = append(parts, g.Text(words[0]))
	}
	return g.El(name, parts...)
}

func svgText(x, y int, class, anchor, words string) g.Node {
	return svgElement("text", "x", strconv.Itoa(x), "y", strconv.Itoa(y), "class", class, "text-anchor", anchor, words)
}

// renderCut draws a text that is at most so wide. A longer one loses its middle; its title has all of it.
func renderCut(class string, x, y int, anchor, text string, width int) g.Node {
	short := view.OneLine(text, width/charWidth)
	if short == text {
		return svgText(x, y, class, anchor, text)
	}
	return g.El("g", svgElement("title", text), svgText(x, y, class, anchor, short))
}

func svgLine(x1, y1, x2, y2 int, class string) g.Node {
	return svgElement("line", "x1", strconv.Itoa(x1), "y1", strconv.Itoa(y1), "x2", strconv.Itoa(x2), "y2",
		strconv.Itoa(y2), "class", class)
}

func svgRect(x, y, w, h int, class string) g.Node {
	return svgElement("rect", "x", strconv.Itoa(x), "y", strconv.Itoa(y), "width", strconv.Itoa(w), "height",
		strconv.Itoa(h), "class", class)
}

// renderMoment draws a moment's mark: each kind has its own shape. A phase has its colour.
func renderMoment(m view.Moment, x, y int) g.Node {
	at := func(d string) string { return fmt.Sprintf("M%d %d %s", x, y, d) }
	switch m.Sign {
	case view.SignOff:
		return svgRect(x-7, y-7, 14, 14, "sign off")
	case view.SignOn:
		return svgElement("circle", "cx", strconv.Itoa(x), "cy", strconv.Itoa(y), "r", "7", "class", "sign on")
	case view.SignUnsure:
		return g.Group{svgElement(
			"circle", "cx", strconv.Itoa(x), "cy", strconv.Itoa(y), "r", "8", "class", "sign unsure",
		), svgText(x, y+4, "unsure", "middle", "?")}
	case view.SignWarning:
		return svgElement("path", "d", at("m-7 6 h14 l-7 -13 z"), "class", "sign warns")
	case view.SignEvent:
		return svgElement("circle", "cx", strconv.Itoa(x), "cy", strconv.Itoa(y), "r", "3", "class", "sign event")
	case view.SignStep:
		return svgRect(x-8, y-3, 16, 6, "step")
	case view.SignPhase:
		phase, _, _ := strings.Cut(m.What, ":")
		return svgElement("path", "d", at("m-8 0 l8 -8 l8 8 l-8 8 z"), "class", "sign "+phaseClass(phase))
	default: // it begins, or ends
		return svgElement("path", "d", at("m-8 0 l8 -8 l8 8 l-8 8 z"), "class", "sign")
	}
}

// renderShare draws how many of all are done. Without any, or while their number is unknown, there is no bar.
func renderShare(what, text string, done, all int32, y int) g.Node {
	const from, wide = 90, 300
	parts := g.Group{svgText(margin, y, "lane", "start", what)}
	if all <= 0 {
		return append(parts, svgText(from, y, "what", "start", text))
	}
	return append(parts, svgRect(from, y-13, wide, 16, "rest"),
		svgRect(from, y-13, wide*int(min(done, all))/int(all), 16, "done"),
		svgText(from+wide+12, y, "what", "start", text))
}
