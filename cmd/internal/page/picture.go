package page

import (
	"fmt"
	"strconv"
	"time"

	g "maragu.dev/gomponents"
	"maragu.dev/gomponents/html"

	"github.com/forcefence/forcefence/taint/view"
)

// The picture's measures, in its own units.
const (
	pictureWidth = 860
	lineHeight   = 26
	firstLane    = 110
	laneWidth    = 84
	barWidth     = pictureWidth - 20
	mostDevices  = 4 // lanes; the others share the last
)

// renderPicture draws a fence: its phases as a bar to scale, one row for each moment, and the results for pods and
// volumes. A row shows a moment's source and text.
func renderPicture(v view.Fence, moments []view.Moment, now time.Time) g.Node {
	lanes := []string{view.LaneCluster, view.LaneForcefence}
	lane := map[string]int{view.LaneCluster: 0, view.LaneForcefence: 1}
	for _, m := range moments {
		if _, known := lane[m.Who]; known {
			continue
		}
		if len(lanes) == 2+mostDevices {
			lane[m.Who] = len(lanes) - 1
			continue
		}
		lane[m.Who] = len(lanes)
		lanes = append(lanes, fmt.Sprintf("device %d", len(lanes)-1))
	}
	x := func(i int) int { return firstLane + i*laneWidth }
	words := x(len(lanes)) - laneWidth/2
	var parts []g.Node
	y := 10
	parts = append(parts, renderPhases(v, y, now))
	y += 64

	head := y
	for i, name := range lanes {
		parts = append(parts, svgText(x(i), y, "lane", "middle", name))
	}
	y += 12
	foot := y + len(moments)*lineHeight
	for i := range lanes {
		parts = append(parts, svgLine(x(i), head+8, x(i), foot, "life"))
	}
	for _, m := range moments {
		y += lineHeight
		at, middle := x(lane[m.Who]), y-lineHeight/3
		parts = append(parts, svgText(10, y-4, "when", "start", formatOffset(v, m)))
		if i := lane[m.Who]; i > 1 { // a device's answer goes to forcefence
			parts = append(parts, svgLine(at-9, middle, x(1)+9, middle, "answer"),
				svgElement("path", "d", fmt.Sprintf("M%d %d l8 -4 v8 z", x(1)+7, middle), "class", "head"))
		}
		what := m.What
		if lane[m.Who] > 1 {
			what = m.Who + " said " + m.What
		}
		parts = append(parts, renderMoment(m.Sign, at, middle),
			svgText(words, y-4, "what", "start", view.OneLine(what, (pictureWidth-words)/7)))
	}
	y = foot + 34
	pods := v.Pods.Ended + v.Pods.Spared
	if v.Shadow {
		pods = v.Pods.Would
	}
	told := fmt.Sprintf("%d ended, %d spared, %d left behind", v.Pods.Ended, v.Pods.Spared, v.Pods.Left)
	if v.Shadow {
		told = fmt.Sprintf("none; %d would have been ended", v.Pods.Would)
	}
	parts = append(parts, renderShare("pods", told, v.Pods.Ended, pods, y),
		renderShare(
			"volumes", fmt.Sprintf("%d of %d detached", v.Volumes.Detached, v.Volumes.Attached), v.Volumes.Detached,
			v.Volumes.Attached, y+30,
		))
	y += 48

	title := fmt.Sprintf("Fence of node %s: %s", v.Node, v.Phase)
	if !v.Open {
		title = fmt.Sprintf("Fence of node %s: %s after %s", v.Node, v.Result, v.Duration)
	}
	description := fmt.Sprintf("%d moments. Pods ended: %d of %d. Volumes detached: %d of %d. The tables below say "+
		"the same in words.",
		len(moments), v.Pods.Ended, pods, v.Volumes.Detached, v.Volumes.Attached)
	return html.SVG(append([]g.Node{
		g.Attr("viewBox", fmt.Sprintf("0 0 %d %d", pictureWidth, y)), html.Role("img"),
		html.Aria("labelledby", "picture-title picture-text"), html.Class("picture"),
		svgElement("title", "id", "picture-title", title), svgElement("desc", "id", "picture-text", description),
	}, parts...)...)
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

func svgLine(x1, y1, x2, y2 int, class string) g.Node {
	return svgElement("line", "x1", strconv.Itoa(x1), "y1", strconv.Itoa(y1), "x2", strconv.Itoa(x2), "y2",
		strconv.Itoa(y2), "class", class)
}

func svgRect(x, y, w, h int, class string) g.Node {
	return svgElement("rect", "x", strconv.Itoa(x), "y", strconv.Itoa(y), "width", strconv.Itoa(w), "height",
		strconv.Itoa(h), "class", class)
}

// renderPhases draws the fence's phases to scale.
func renderPhases(v view.Fence, y int, now time.Time) g.Node {
	end := v.Finished
	if end.IsZero() {
		end = now
	}
	all := end.Sub(v.Started)
	if all <= 0 || len(v.Spans) == 0 {
		return svgText(10, y+20, "when", "start", "No phase took any time.")
	}
	at := func(t time.Time) int {
		part := min(max(float64(t.Sub(v.Started))/float64(all), 0), 1)
		return 10 + int(part*barWidth)
	}
	parts := g.Group{svgRect(10, y, barWidth, 26, "rest")}
	for i, s := range v.Spans {
		from := at(s.From)
		wide := max(at(s.To)-from, 2)
		parts = append(parts, svgRect(from, y, wide, 26, fmt.Sprintf("span span%d", i%3)))
		if 8*len(s.Phase) < wide {
			parts = append(parts, svgText(from+6, y+18, "phase", "start", s.Phase))
		}
	}
	return append(parts, svgText(10, y+42, "when", "start", "0 s"),
		svgText(10+barWidth, y+42, "when", "end", fmt.Sprintf("%.1f s", all.Seconds())))
}

// renderMoment draws a moment's mark: each kind has its own shape.
func renderMoment(k view.Sign, x, y int) g.Node {
	at := func(d string) string { return fmt.Sprintf("M%d %d %s", x, y, d) }
	switch k {
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
		return svgElement("circle", "cx", strconv.Itoa(x), "cy", strconv.Itoa(y), "r", "3", "class", "sign told")
	default: // a phase
		return svgElement("path", "d", at("m-8 0 l8 -8 l8 8 l-8 8 z"), "class", "sign ours")
	}
}

// renderShare draws how many of all are done.
func renderShare(what, told string, done, all int32, y int) g.Node {
	const from, wide = 90, 300
	parts := g.Group{svgText(10, y, "lane", "start", what), svgRect(from, y-13, wide, 16, "rest")}
	if all > 0 {
		parts = append(parts, svgRect(from, y-13, wide*int(min(done, all))/int(all), 16, "done"))
	}
	return append(parts, svgText(from+wide+12, y, "what", "start", told))
}
