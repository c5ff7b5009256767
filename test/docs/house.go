package docs

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

//go:generate go test . -run TestHouse -update

// Feature is a package around the core: what turns it on, what it is by default, and the page about it.
type Feature struct {
	Name    string // of the folder below taint/features
	Key     string // of the configuration, or a command
	Default string
	Page    string // below docs, with an anchor
	Does    string
}

// always is the Key of a feature that no key turns on.
const always = "always"

// Features are the features in the order of the picture.
var Features = []Feature{
	{"drills", always, "on", "tasks.md#know-before-the-outage-that-a-node-can-be-fenced", "asks each device in time"},
	{"room", always, "on", "tasks.md#know-that-there-is-room", "whether the pods find room"},
	{"signing", "signing.keyFile", "off", "proof.md", "proofs that others verify"},
	{"recording", "recording.file", "off", "cli.md#replay", "what was seen, to replay"},
	{"storage", "storage", "off", "storage.md#describe-a-storage-system", "reads volumes and replicas"},
	{"drain", "drain", "off", "storage.md#drains-that-wait-for-data", "drains wait for the data"},
	{"networkfence", "networkFenceClasses", "off", "networkfence.md", "storage cuts a node off"},
	{"leases", "releaseLeases", "off", "workloads.md#release-leases", "frees a dead leader's Lease"},
	{"remediation", "remediation", "off", "health-checks.md", "NodeHealthCheck, Cluster API"},
	{"karpenter", "karpenter", "ignore", "clouds.md#karpenter", "hands nodes over"},
	{"explain", "forcefence explain", "on demand", "tasks.md#know-that-there-is-room", "what would happen now"},
	{"release", "forcefence release", "on demand", "tasks.md#remove-a-mark", "ends a fence"},
}

// Room is a part of the core in the picture: its packages below taint, and a word on what they are for.
type Room struct {
	Packages []string
	Does     string
}

// Core are the rooms of the core, in the order of the picture: those that decide, which have no client, clock or log;
// those that act; what people are told; and the words that all share.
var Core = struct{ Pure, Acting, Telling, Words []Room }{
	Pure: []Room{
		{[]string{"decide"}, "a node's next step"},
		{[]string{"decide/fence"}, "before the mark"},
		{[]string{"decide/evict"}, "after the mark"},
		{[]string{"decide/policy"}, "without proof"},
		{[]string{"decide/fleet"}, "all nodes together"},
		{[]string{"decide/proof"}, "the worth of answers"},
		{[]string{"decide/action"}, "acts, as data"},
	},
	Acting: []Room{
		{[]string{"controller"}, "reads and acts"},
		{[]string{"kube", "writes"}, "the API server"},
		{[]string{"machine", "sharing"}, "a node's devices"},
		{[]string{"wake", "wake/line"}, "hints of an outage"},
		{[]string{"observe"}, "Events, metrics"},
		{[]string{"journal", "api"}, "Fencing objects"},
		{[]string{"follow"}, "others' objects"},
	},
	Telling: []Room{{[]string{"view", "view/check", "view/drill", "reason"}, "a node's state, once, from facts"}},
	Words:   []Room{{[]string{"taint"}, "the mark, its record, a life"}},
}

// Hook are the packages of the node's side.
var Hook = []Room{
	{[]string{"admit"}, "allow or hold: pure"},
	{[]string{"nri"}, "the runtime's plugin"},
	{[]string{"install"}, "onto the host"},
	{[]string{"runtimes"}, "where they look"},
}

// The measures of the picture, in pixels.
const (
	houseWidth = 1040
	margin     = 20
	pad        = 16 // within a box
	rowHeight  = 21
	leftWidth  = 240 // of the devices and the hook
	gutter     = 40  // between boxes: an arrow's length
)

// drawing collects the elements of an SVG.
type drawing struct{ strings.Builder }

// house is a box of the picture.
type house struct{ x, y, w, h int }

func (d *drawing) box(b house, class string) {
	fmt.Fprintf(d, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n",
		class, b.x, b.y, b.w, b.h)
}

func (d *drawing) text(x, y int, class, text string) {
	fmt.Fprintf(d, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// title writes a box's head, and where its code is.
func (d *drawing) title(b house, head, folder string) {
	fmt.Fprintf(d, "<text x=\"%d\" y=\"%d\"><tspan class=\"head\">%s</tspan>"+
		"<tspan class=\"code\" dx=\"10\">%s</tspan></text>\n", b.x+pad, b.y+24, head, folder)
}

// inner draws a box within the core: its title, if it has one, and its rooms.
func (d *drawing) inner(b house, title string, second int, rooms []Room) {
	d.box(b, "inner")
	y := b.y + 22
	if title != "" {
		d.text(b.x+12, y, "quiet", title)
		y += rowHeight
	}
	d.rooms(b.x+12, y, second, rooms)
}

// arrow draws a straight line with a head at its end, and a word beside it.
func (d *drawing) arrow(fromX, fromY, toX, toY int, word string) {
	fmt.Fprintf(d, "<line class=\"arrow\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" "+
		"marker-end=\"url(#head)\"/>\n", fromX, fromY, toX, toY)
	if word != "" {
		d.text(toX+12, (fromY+toY)/2+6, "quiet", word)
	}
}

// rooms writes a room in each row: its packages, and what they are for.
func (d *drawing) rooms(x, y, second int, rooms []Room) {
	for i, r := range rooms {
		d.text(x, y+i*rowHeight, "code", strings.Join(r.Packages, ", "))
		d.text(x+second, y+i*rowHeight, "quiet", r.Does)
	}
}

// DrawHouse returns the picture of the packages as SVG. types are the types of providers.
func DrawHouse(types []string) string {
	d := &drawing{}
	right := margin + leftWidth + gutter
	app := house{margin, margin, houseWidth - 2*margin, 56}
	features := house{right, app.y + app.h + gutter, houseWidth - margin - right, 50 + rowHeight*len(Features)}
	core := house{right, features.y + features.h + gutter, features.w, 336}
	hook := house{margin, core.y + core.h - 220, leftWidth, 220}
	devices := house{margin, features.y, leftWidth, hook.y - gutter - features.y}

	fmt.Fprintf(d, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "+
		"aria-labelledby=\"title text\">\n", houseWidth, core.y+core.h+margin)
	d.WriteString("<title id=\"title\">The packages of forcefence</title>\n<desc id=\"text\">The app wires all. " +
		"Features import the core, and the core imports no feature. The core asks devices through one contract. The " +
		"hook on the node shares the core's words.</desc>\n" + houseStyle)

	d.box(app, "box")
	d.title(app, "App", "cmd/forcefence, cmd/internal")
	d.text(app.x+pad, app.y+43, "quiet",
		"reads the configuration, lists the features, runs the core; has the commands and the status page")

	d.box(features, "box")
	d.title(features, "Features", "taint/features")
	columns := []int{pad, 112, 322, 480, 568}
	for i, title := range []string{"turned on by", "by default", "page in docs/"} {
		d.text(features.x+columns[i+2], features.y+24, "quiet", title)
	}
	for i, f := range Features {
		y := features.y + 50 + i*rowHeight
		page, _, _ := strings.Cut(f.Page, "#")
		key := map[bool]string{true: "quiet", false: "code"}[f.Key == always]
		for j, text := range []struct{ class, text string }{
			{"code", f.Name}, {"quiet", f.Does}, {key, f.Key}, {"quiet", f.Default}, {"code", page},
		} {
			d.text(features.x+columns[j], y, text.class, text.text)
		}
	}

	d.box(core, "core")
	d.title(core, "Core", "taint")
	d.text(core.x+128, core.y+24, "quiet", "proves, marks, evicts, frees volumes; imports no feature")
	half := (core.w - 2*pad - 12) / 2
	d.inner(house{core.x + pad, core.y + 40, half, 186}, "decides: pure, no client, clock or log", 118, Core.Pure)
	d.inner(house{core.x + pad + half + 12, core.y + 40, half, 186}, "acts: decides nothing", 136, Core.Acting)
	d.inner(house{core.x + pad, core.y + 238, core.w - 2*pad, 34}, "", half+12, Core.Telling)
	d.inner(house{core.x + pad, core.y + 284, core.w - 2*pad, 34}, "", half+12, Core.Words)

	d.box(hook, "box")
	d.title(hook, "Hook", "kubelet-admit")
	d.text(hook.x+pad, hook.y+44, "quiet", "on each node: holds pods")
	d.text(hook.x+pad, hook.y+62, "quiet", "while the mark is there")
	d.rooms(hook.x+pad, hook.y+90, 74, Hook)
	d.text(hook.x+pad, hook.y+184, "quiet", "off by default;")
	d.text(hook.x+pad, hook.y+204, "quiet", "turned on by")
	d.text(hook.x+110, hook.y+204, "code", "hook.enabled")

	d.box(devices, "box")
	d.title(devices, "Devices", "providers")
	d.text(devices.x+pad, devices.y+44, "quiet", "is this machine exactly off?")
	for i, name := range slices.Sorted(slices.Values(types)) {
		d.text(devices.x+pad+i%2*112, devices.y+76+i/2*rowHeight, "code", name)
	}
	d.text(devices.x+pad, devices.y+devices.h-34, "quiet", "one contract, one suite of")
	d.text(devices.x+pad, devices.y+devices.h-16, "quiet", "conformance; no cluster")

	down := app.y + app.h
	d.arrow(devices.x+devices.w/2, down, devices.x+devices.w/2, devices.y-3, "makes")
	d.arrow(features.x+features.w/2, down, features.x+features.w/2, features.y-3, "lists")
	d.arrow(core.x+core.w/2, features.y+features.h, core.x+core.w/2, core.y-3, "import")
	d.arrow(core.x, core.y+44, devices.x+devices.w+3, core.y+44, "")
	d.arrow(hook.x+hook.w, core.y+301, core.x-3, core.y+301, "")
	d.WriteString("</svg>\n")
	return d.String()
}

const houseStyle = `<style>
text { font: 13.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.head { font-weight: 600; font-size: 15.5px; }
.code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, monospace; }
.quiet { fill: #59636e; }
rect { stroke: #d1d9e0; fill: #f6f8fa; }
.core { stroke: #0969da; fill: #ddf4ff; }
.inner { stroke: #b6e3ff; fill: #ffffff; }
.arrow { stroke: #59636e; stroke-width: 1.5; }
#head path { fill: #59636e; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.quiet { fill: #9198a1; }
rect { stroke: #3d444d; fill: #151b23; }
.core { stroke: #1f6feb; fill: #121d2f; }
.inner { stroke: #264466; fill: #0d1117; }
.arrow { stroke: #9198a1; }
#head path { fill: #9198a1; }
}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">` +
	`<path d="M0 0 L8 4 L0 8 z"/></marker></defs>
`
