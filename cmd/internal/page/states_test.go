package page

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/reason"
	"github.com/forcefence/forcefence/taint/room"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/kit"
)

// stateOf is a page in one state of the cluster.
type stateOf struct {
	name  string
	path  string
	token string // "ann" sees the page; "": before the log in
	fleet view.Snapshot
	err   error // the fleet cannot be read
	plain bool  // only its layout is checked: no picture is kept
}

// cluster builds the facts of a state, from which package view makes the fleet.
type cluster struct{ view.Snapshot }

const bootID = "u-1"

// healthyCluster is six nodes of two racks. A controller leads, and all devices answer.
func healthyCluster() cluster {
	c := cluster{view.Snapshot{
		At: now, Key: taint.DefaultKey, Events: map[string][]view.Event{},
		NodeConfig: func(n *corev1.Node) view.NodeConfig {
			if n.Name == "rack2-node3" {
				return view.NodeConfig{Devices: []string{"bmc/10.20.0.23", "pdu/rack2-17"}, Mode: "fence"}
			}
			return view.NodeConfig{Devices: []string{"bmc/" + n.Name}, Mode: "fence"}
		},
		Cluster: view.Cluster{Controller: &view.Leader{
			Lease: "kube-system/forcefence", Namespace: "fencing", Holder: "forcefence-7c9d", Leads: true,
			Renewed: new(now.Add(-2 * time.Second)), ConfigSince: new(now.Add(-30 * time.Hour)),
			Room: room.Summarize(now, []room.Failure{
				{Kind: room.Node, Name: "rack1-node1", Pods: 20}, {Kind: room.Node, Name: "rack1-node2", Pods: 5},
			}),
		}},
	}}
	for _, name := range []string{"rack1-node1", "rack1-node2", "rack1-node3", "rack2-node1", "rack2-node2",
		"rack2-node3"} {
		c.addNode(name)
	}
	return c
}

// addNode adds a healthy node, whose last drill was two minutes ago.
func (c *cluster) addNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: bootID, Annotations: map[string]string{}}}
	c.Nodes = append(c.Nodes, n)
	setCondition(n, corev1.NodeReady, corev1.ConditionTrue, 26*time.Hour, "KubeletReady", "")
	setDrill(n, 2*time.Minute, "MachineAnswers", drill.DeviceAnswer{Device: "bmc/" + name, Power: "On"})
	setCondition(n, taint.ProtectionCondition, corev1.ConditionTrue, 26*time.Hour, taint.ProtectionFailClosed, "")
	return n
}

// addSilentNode adds a node that has not been Ready for so long.
func (c *cluster) addSilentNode(name string, since time.Duration) *corev1.Node {
	n := c.addNode(name)
	setCondition(n, corev1.NodeReady, corev1.ConditionUnknown, since, "NodeStatusUnknown", "")
	setDrill(n, since+2*time.Minute, "MachineAnswers", drill.DeviceAnswer{Device: "bmc/" + name, Power: "On"})
	return n
}

// addEvent adds an Event of forcefence about the node, with the reason's own text.
func (c *cluster) addEvent(node string, ago time.Duration, why reason.Reason, words ...string) {
	c.Events[node] = append(c.Events[node], view.Event{At: now.Add(-ago), From: "forcefence", Reason: string(why),
		Warning: true, Text: reason.RowOf(why).EventNote(append(words, "{node}", node)...)})
}

// setCondition sets a condition that was last changed and last seen so long ago.
func setCondition(
	n *corev1.Node,
	kind corev1.NodeConditionType,
	is corev1.ConditionStatus,
	ago time.Duration,
	why, message string,
) {
	at := metav1.NewTime(now.Add(-ago))
	set := corev1.NodeCondition{Type: kind, Status: is, Reason: why, Message: message, LastTransitionTime: at,
		LastHeartbeatTime: at}
	for i, c := range n.Status.Conditions {
		if c.Type == kind {
			n.Status.Conditions[i] = set
			return
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, set)
}

// setDrill sets what a drill found so long ago: the device's answer, and the condition that says the same.
func setDrill(n *corev1.Node, ago time.Duration, why string, answer drill.DeviceAnswer) {
	is := corev1.ConditionTrue
	if answer.Power != "On" {
		is = corev1.ConditionFalse
	}
	setCondition(n, taint.FenceableCondition, is, ago, why,
		fmt.Sprintf("The machine is %s (%s: %[1]s).", answer.Power, answer.Device))
	n.Annotations[taint.DrillAnnotation] = drill.Answers{
		Word: answer.Power, Devices: []drill.DeviceAnswer{answer},
	}.Encode(now.Add(-ago))
}

// setRecord sets the record of a fence that began so long ago and entered its phase a second later.
func setRecord(n *corev1.Node, r taint.Record, ago time.Duration) {
	since := now.Add(-ago)
	r.ID, r.NodeUID, r.By, r.Device = "f-8bd391b2f0c0", bootID, "forcefence-7c9d", "bmc/"+n.Name
	r.Since, r.At = since, since.Add(time.Second)
	if r.Phase != taint.PhasePoweringOff {
		off := taint.Evidence{At: since, From: "bmc/" + n.Name, State: "Off", Raw: "Off"}
		r.Evidence = append([]taint.Evidence{off}, r.Evidence...)
	}
	n.Annotations[taint.RecordAnnotation] = r.Encode()
}

// addFencing adds the Fencing of a fence that is under way. why is why it needs a person; "": it does not.
func (c *cluster) addFencing(node string, ago time.Duration, why string) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d - ago)) }
	f := api.Fencing{ObjectMeta: metav1.ObjectMeta{Name: node + ".f-8bd391b2f0c0"}, Spec: api.FencingSpec{
		Node: node, ID: "f-8bd391b2f0c0", By: "forcefence-7c9d", Why: "LeaseStale", StartedAt: at(0), PowerOff: true,
	}}
	f.Status = api.FencingStatus{
		Phase: "Evicting",
		Timeline: []api.PhaseEntered{
			{Phase: "PoweringOff", At: at(0)}, {Phase: "Armed", At: at(1500 * time.Millisecond)},
			{Phase: "Evicting", At: at(2 * time.Second)},
		},
		Evidence: []api.Answer{
			{At: at(-time.Second), From: "bmc/" + node, State: "On", Raw: "On"},
			{At: at(1400 * time.Millisecond), From: "bmc/" + node, State: "Off", Raw: "Off"},
		},
		Steps: []api.Step{
			{Step: api.StepAskDevices, Began: at(-time.Second), Ended: at(1400 * time.Millisecond), Times: 3},
			{Step: api.StepPowerOff, Began: at(0), Ended: at(300 * time.Millisecond)},
			{Step: api.StepSetMark, Began: at(1500 * time.Millisecond), Ended: at(1530 * time.Millisecond)},
			{Step: api.StepEndPods, Began: at(2 * time.Second), Ended: at(3500 * time.Millisecond), Objects: 3},
		},
		Pods: api.Pods{Ended: 3, Names: []api.Pod{{Namespace: "shop", Name: "db-0", UID: "a"},
			{Namespace: "shop", Name: "db-1", UID: "b"}, {Namespace: "shop", Name: "queue-0", UID: "c"}}},
		Volumes: api.Volumes{Attached: 2, Detached: 1, Names: []string{"pv-db-0", "pv-queue-0"}},
		Conditions: []metav1.Condition{
			{Type: api.Proven, Status: "True", Message: "bmc/" + node + " said that the machine is off"},
		},
	}
	if why != "" {
		f.Status.Conditions = append(f.Status.Conditions,
			metav1.Condition{Type: api.NeedsPerson, Status: "True", Message: why})
	}
	c.Fences = append(c.Fences, view.ParsedFencing{Fencing: f})
}

// addUrgentNodes adds one node for each reason for which a person is needed.
func (c *cluster) addUrgentNodes() {
	silent := func(name string, status corev1.ConditionStatus, why reason.Reason, message string) *corev1.Node {
		n := c.addSilentNode(name, 12*time.Minute)
		setCondition(n, taint.FenceableCondition, status, 11*time.Minute, string(why), message)
		return n
	}
	silent("mute-bmc", corev1.ConditionUnknown, reason.NotAnswering,
		"Not answered: bmc/mute-bmc: unreachable: dial tcp 10.20.0.7:443: i/o timeout.")
	c.addEvent("mute-bmc", 11*time.Minute, reason.Unknown, "{why}", "its Lease is 45s old", "{device}", "bmc/mute-bmc",
		"{detail}", "unreachable")
	silent("no-device", corev1.ConditionFalse, reason.NoMachine, "No rule of the configuration claims it.")
	on := c.addSilentNode("still-on", 12*time.Minute)
	setCondition(on, taint.PoweredOnCondition, corev1.ConditionTrue, 11*time.Minute, "", "")
	c.addEvent("still-on", 11*time.Minute, reason.PoweredOn, "{why}", "its Lease is 45s old", "{detail}",
		"mode observe powers no machine off")
	c.addSilentNode("two-words", 12*time.Minute)
	c.addEvent("two-words", 11*time.Minute, reason.Disagree, "{why}", "its Lease is 45s old", "{raw}",
		"bmc/two-words: Off, pdu/rack2-4: On")
	c.addNode("false-off").Annotations[taint.RecordAnnotation] = taint.Record{
		ID: "f-77c0de77c0de", Phase: taint.PhaseDone, Result: taint.ResultNeverPoweredOff, NodeUID: bootID,
		By: "forcefence-7c9d", Device: "bmc/false-off", Since: now.Add(-time.Hour), At: now.Add(-time.Hour),
	}.Encode()
	c.addNode("bad-record").Annotations[taint.RecordAnnotation] = `{"phase":"Sideways"}`
	c.addNode("marked-ready").Spec.Taints = []corev1.Taint{
		{Key: taint.DefaultKey, Value: "manual", Effect: corev1.TaintEffectNoSchedule},
	}
	lost := c.addSilentNode("proof-lost", 12*time.Minute)
	setRecord(lost, taint.Record{Phase: taint.PhaseEvicting, Evidence: []taint.Evidence{
		{At: now.Add(-10 * time.Minute), From: "bmc/proof-lost", State: "On", Raw: "On"},
	}}, 11*time.Minute)
	c.addEvent("proof-lost", 10*time.Minute, reason.ProofLost, "{device}", "bmc/proof-lost", "{detail}", "On")
}

// states returns every state of the cluster that the page shows, with fixed facts at a fixed time.
func states() []stateOf {
	var all []stateOf
	add := func(name, path string, build func(c *cluster)) {
		c := healthyCluster()
		build(&c)
		all = append(all, stateOf{name: name, path: path, token: "ann", fleet: c.Snapshot})
	}
	all = append(all, stateOf{name: "login", path: "/"}, stateOf{name: "login-refused", path: "/", token: "blind"},
		stateOf{name: "not-read", path: "/", token: "ann", err: errors.New("not yet")})
	for name, path := range map[string]string{
		"foreign-fleet": "/", "foreign-fences": "/fences", "foreign-devices": "/devices", "foreign-node": "/nodes/n7",
		"foreign-fence": "/fences/n1.f-0123456789ab", "foreign-newer": "/fences/n9.f-aaaaaaaaaaaa",
	} {
		all = append(all, stateOf{name: name, path: path, token: "ann", fleet: snapshot(), plain: true})
	}
	add("healthy", "/", func(*cluster) {})
	add("missing", "/nodes/rack9", func(*cluster) {})
	add("paused", "/", func(c *cluster) {
		c.Cluster.Paused = "ConfigMap fencing/forcefence-pause: network maintenance; until=2026-05-04T14:00:00Z"
		c.Nodes[1].Annotations[fence.PausedAnnotation] = "new disk"
	})
	for _, page := range []struct{ name, path string }{
		{"needs-person", "/"}, {"needs-person-node", "/nodes/mute-bmc"}, {"needs-person-devices", "/devices"},
		{"needs-person-hook", "/hook"}, {"needs-person-filter", "/?name=bmc&state=needs_a_person"},
	} {
		add(page.name, page.path, (*cluster).addUrgentNodes)
	}
	add("storm", "/", func(c *cluster) {
		for _, name := range []string{"rack3-node1", "rack3-node2", "rack3-node3"} {
			c.addSilentNode(name, 2*time.Minute)
			c.addEvent(name, time.Minute, reason.MostStale, "{why}", "its Lease is 45s old")
		}
	})
	for _, page := range []struct{ name, path string }{
		{"under-way", "/"}, {"under-way-fence", "/fences/rack3-node1.f-8bd391b2f0c0"},
	} {
		add(page.name, page.path, func(c *cluster) {
			setRecord(c.addSilentNode("rack3-node1", 50*time.Second), taint.Record{Phase: taint.PhaseEvicting,
				PowerOff: true}, 4*time.Second)
			c.addFencing("rack3-node1", 4*time.Second, "")
			setRecord(c.addSilentNode("rack3-node2", 45*time.Second), taint.Record{Phase: taint.PhasePoweringOff,
				PowerOff: true}, 2*time.Second)
		})
	}
	for _, page := range []struct{ name, path string }{
		{"stuck", "/"}, {"stuck-node", "/nodes/rack3-node1"}, {"stuck-fences", "/fences"},
	} {
		add(page.name, page.path, func(c *cluster) {
			setRecord(c.addSilentNode("rack3-node1", 16*time.Minute), taint.Record{Phase: taint.PhaseEvicting,
				PowerOff: true}, 15*time.Minute)
			c.addFencing("rack3-node1", 15*time.Minute, "volume pv-queue-0 (driver csi.example.com) stays attached "+
				"for 12m0s: its driver does not detach it")
		})
	}
	for _, page := range []struct{ name, path string }{
		{"left-off", "/"}, {"left-off-node", "/nodes/rack3-node1"},
	} {
		add(page.name, page.path, func(c *cluster) {
			n := c.addSilentNode("rack3-node1", 74*time.Hour)
			setRecord(n, taint.Record{Phase: taint.PhaseDone, Result: taint.ResultEvicted, PowerOff: true,
				PowerOffTo: []taint.DeviceRef{{Device: "bmc/rack3-node1"}}}, 73*time.Hour)
			setDrill(n, 2*time.Minute, "SaysOff", drill.DeviceAnswer{Device: "bmc/rack3-node1", Power: "Off"})
		})
	}
	all[len(all)-1].plain = true // the same as another, with old times
	add("refused-config", "/", func(c *cluster) {
		c.Cluster.Controller.ConfigRejected = "config.yaml:14: providers[1].redfish.address: missing"
	})
	add("no-leader", "/", func(c *cluster) {
		c.Cluster.Controller.Leads, c.Cluster.Controller.Renewed = false, new(now.Add(-3*time.Minute))
	})
	return all
}

// TestStates has a real browser show every state on a desktop, in dark, and on a phone. It compares each picture with
// the one in testdata/states, and test/browser checks the layout of each page. After a change of the page, of its
// style, or of a text of package view, write the pictures again, and look at each:
//
//	go test ./cmd/internal/page -run '^TestStates$' -update
func TestStates(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	var pages []string
	plain := map[string]bool{}
	for _, s := range states() {
		plain[s.name] = s.plain
		p := &people{}
		h := newServer(Options{
			Fleet: func() (*view.Fleet, error) { return view.FleetOf(s.fleet), s.err },
			About: "forcefence test", Cluster: "prod-1", Namespace: "fencing", Now: time.Now,
			Log:    slog.New(slog.DiscardHandler),
			Review: p.review,
		}).newHandler()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.token != "" {
				r.Header.Set("Authorization", "Bearer "+s.token)
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		pages = append(pages, s.name+"="+srv.URL+s.path)
	}
	folder := kit.BrowseStates(t, pages...)
	var files []string
	all, err := filepath.Glob(filepath.Join(folder, "*.png"))
	kit.Must(t, err)
	for _, file := range all {
		if name := filepath.Base(file); !plain[name[:strings.LastIndex(name, "-")]] {
			files = append(files, file)
		}
	}
	comparePictures(t, folder, files)
}

// goldenFontWidth is what test/browser measures of Debian's fonts-dejavu-core, with which the pictures were made.
const goldenFontWidth = 2479

// maxGoldenBytes is the size of all kept pictures together: each change of them stays in the repository's history.
const maxGoldenBytes = 3 << 20

// comparePictures compares files of a folder that test/browser wrote with those of testdata/states. With -update it
// writes them there.
func comparePictures(t *testing.T, folder string, files []string) {
	t.Helper()
	golden := filepath.Join("testdata", "states")
	if *update {
		kit.Must(t, os.RemoveAll(golden))
		kit.Must(t, os.MkdirAll(golden, 0o755))
		for _, file := range files {
			kit.Must(t, os.WriteFile(filepath.Join(golden, filepath.Base(file)), shrinkPicture(t, readPicture(t, file)),
				0o644))
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "font-width"))
	kit.Must(t, err)
	if wide, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil || wide != goldenFontWidth {
		kit.Need(t, fmt.Sprintf("a text is %s px wide, want %d: the font is not that of fonts-dejavu-core", text,
			goldenFontWidth), kit.RequireChromium)
	}
	known, err := filepath.Glob(filepath.Join(golden, "*.png"))
	kit.Must(t, err)
	if len(known) != len(files) {
		t.Errorf("got %d pictures, want the %d of %s", len(files), len(known), golden)
	}
	size := int64(0)
	for _, file := range known {
		info, err := os.Stat(file)
		kit.Must(t, err)
		size += info.Size()
	}
	if size > maxGoldenBytes {
		t.Errorf("the pictures of %s have %d bytes, want at most %d", golden, size, maxGoldenBytes)
	}
	for _, file := range files {
		want := filepath.Join(golden, filepath.Base(file))
		if text := diffPictures(readPicture(t, file), readPicture(t, want)); text != "" {
			t.Errorf("%s: %s; go test ./cmd/internal/page -run '^TestStates$' -update writes it again", want, text)
		}
	}
}

func readPicture(t *testing.T, file string) image.Image {
	t.Helper()
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	m, err := png.Decode(bytes.NewReader(text))
	kit.Must(t, err)
	return m
}

const (
	blockSide   = 8  // px of a block; small differences between two versions of a browser vanish in its mean
	maxMeanDiff = 16 // of 255, between two blocks that are alike
	maxBlocks   = 12 // that may differ: about one short word
)

// diffPictures says how two pictures differ; "": they are alike.
func diffPictures(got, want image.Image) string {
	if got.Bounds().Size() != want.Bounds().Size() {
		return fmt.Sprintf("got %v px, want %v", got.Bounds().Size(), want.Bounds().Size())
	}
	differ, first := 0, image.Point{}
	for y := 0; y < got.Bounds().Dy(); y += blockSide {
		for x := 0; x < got.Bounds().Dx(); x += blockSide {
			a, b := meanOfBlock(got, x, y), meanOfBlock(want, x, y)
			for i := range a {
				if max(a[i]-b[i], b[i]-a[i]) <= maxMeanDiff {
					continue
				}
				if differ++; differ == 1 {
					first = image.Pt(x, y)
				}
				break
			}
		}
	}
	if differ <= maxBlocks {
		return ""
	}
	return fmt.Sprintf("%d blocks of %d px differ, the first at %v", differ, blockSide, first)
}

// meanOfBlock returns the mean red, green and blue of the block that begins at a point.
func meanOfBlock(m image.Image, left, top int) (mean [3]int) {
	block := image.Rect(left, top, left+blockSide, top+blockSide).Intersect(m.Bounds())
	for y := block.Min.Y; y < block.Max.Y; y++ {
		for x := block.Min.X; x < block.Max.X; x++ {
			r, g, b, _ := m.At(x, y).RGBA()
			mean[0], mean[1], mean[2] = mean[0]+int(r>>8), mean[1]+int(g>>8), mean[2]+int(b>>8)
		}
	}
	for i := range mean {
		mean[i] /= block.Dx() * block.Dy()
	}
	return mean
}

const (
	maxColours = 32 // of a kept picture
	alike      = 24 // two colours are, whose red, green and blue together differ by less
)

// shrinkPicture returns the picture as a small PNG: it keeps its most frequent colours, and the nearest for the others.
func shrinkPicture(t *testing.T, m image.Image) []byte {
	t.Helper()
	counts := map[color.RGBA]int{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			counts[rgbaAt(m, x, y)]++
		}
	}
	byCount := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(int(a.R)<<16|int(a.G)<<8|int(a.B),
			int(b.R)<<16|int(b.G)<<8|int(b.B)))
	})
	var kept color.Palette
	for _, c := range byCount {
		if len(kept) == maxColours {
			break
		}
		if !slices.ContainsFunc(kept, func(k color.Color) bool { return distanceOf(c, k.(color.RGBA)) < alike }) {
			kept = append(kept, c)
		}
	}
	out := image.NewPaletted(m.Bounds(), kept)
	nearest := map[color.RGBA]uint8{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			c := rgbaAt(m, x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(kept.Index(c))
				nearest[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var file bytes.Buffer
	kit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, out))
	return file.Bytes()
}

func rgbaAt(m image.Image, x, y int) color.RGBA {
	return color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)
}

func distanceOf(a, b color.RGBA) int {
	part := func(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
	return part(a.R, b.R) + part(a.G, b.G) + part(a.B, b.B)
}

// Pictures are alike if only the edges of letters differ, and differ if a word does. The kept copy is like its picture.
func TestDiffPictures(t *testing.T) {
	draw := func(level uint8, at ...image.Rectangle) image.Image {
		m := image.NewRGBA(image.Rect(0, 0, 400, 100))
		for y := range 100 {
			for x := range 400 {
				m.Set(x, y, color.White)
				if slices.ContainsFunc(at, func(r image.Rectangle) bool { return image.Pt(x, y).In(r) }) {
					m.Set(x, y, color.Gray{level})
				}
			}
		}
		return m
	}
	word := image.Rect(16, 16, 96, 32)
	for _, tc := range []struct {
		name string
		got  image.Image
		like bool
	}{
		{"the same", draw(0, word), true},
		{"a softer edge", draw(12, word), true},
		{"another word", draw(0, word, image.Rect(200, 16, 280, 32)), false},
		{"a word less", draw(0), false},
		{"another size", image.NewRGBA(image.Rect(0, 0, 400, 101)), false},
	} {
		if text := diffPictures(tc.got, draw(0, word)); (text == "") != tc.like {
			t.Errorf("%s: got %q, want alike %t", tc.name, text, tc.like)
		}
	}
	kept, err := png.Decode(bytes.NewReader(shrinkPicture(t, draw(90, word))))
	kit.Must(t, err)
	if text := diffPictures(kept, draw(90, word)); text != "" {
		t.Errorf("the kept copy: %s", text)
	}
}
