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

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/view"
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

// setCondition sets a condition that was last changed and last seen at a time.
func setCondition(
	n *corev1.Node,
	kind corev1.NodeConditionType,
	is corev1.ConditionStatus,
	changed time.Time,
	why, message string,
) {
	at := metav1.NewTime(changed)
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

// sceneLength is how long a scene's cluster is healthy before now, or before the first thing happens.
const sceneLength = 2 * time.Hour

// urgentScene has a node for each reason for which a person is needed.
func urgentScene(t testing.TB) *scene {
	s := newScene(t, sceneLength)
	noAnswer := providers.WithClass(providers.ErrUnreachable, errors.New("dial tcp 10.20.0.7:443: i/o timeout"))
	const falseOff, lost, halfRead = "false-off", "proof-lost", "bad-record"
	s.addNode(falseOff, "rack1")
	mute, none := s.addNode("mute-bmc", "rack1"), s.addNode("no-device", "new")
	on, both := s.addNode("still-on", "rack2"), s.addNode("two-words", "old")
	s.addNode(lost, "rack2")
	s.addNode(halfRead, "rack1")
	s.addNode("marked-ready", "rack2")
	on.edit(func(n *corev1.Node) { n.Annotations[fence.ModeAnnotation] = "observe" })

	s.play(60 * time.Minute) // its network is cut, and its BMC says Off of a machine that runs
	s.find(falseOff).cutPower()
	s.play(50 * time.Minute)
	s.find(falseOff).bmc().power = providers.PowerOn
	s.find(falseOff).revive()

	s.play(20 * time.Minute)
	s.find(lost).refused = s.find(lost).pods[0].Name
	s.find(lost).cutPower()
	s.play(19 * time.Minute)
	s.find(lost).bmc().err = noAnswer
	s.play(13 * time.Minute)
	for _, n := range []*sceneNode{mute, none, on, both} {
		n.kill()
	}
	mute.bmc().err = noAnswer
	both.device("old/ipmi://two-words.ipmi").power = providers.PowerOff
	s.play(8 * time.Minute)
	s.find(halfRead).edit(func(n *corev1.Node) {
		n.Annotations[taint.RecordAnnotation] = `{"phase":"Sideways"}`
	})
	s.find("marked-ready").edit(func(n *corev1.Node) {
		n.Annotations[fence.ModeAnnotation] = "disabled"
		n.Spec.Taints = taint.WithMark(n.Spec.Taints, taint.DefaultKey, "manual", s.at)
	})
	s.play(0)
	return s
}

// stormScene has a rack whose nodes are silent at once, while their machines are on.
func stormScene(t testing.TB) *scene {
	s := newScene(t, sceneLength)
	for _, name := range []string{"rack3-node1", "rack3-node2", "rack3-node3"} {
		s.addNode(name, "rack3")
	}
	s.play(3 * time.Minute)
	for _, n := range s.nodes[6:] {
		n.kill()
	}
	s.play(0)
	return s
}

// underWayScene has a machine that is being powered off, and one whose power-off waits for that.
func underWayScene(t testing.TB) *scene {
	s := newScene(t, sceneLength)
	s.play(110 * time.Second)
	s.find("rack1-node3").kill()
	s.find("rack1-node3").holds = "pv-db-3"
	s.find("rack2-node1").kill()
	s.play(0)
	return s
}

// stuckScene has a fence that waits for a volume, which its driver does not detach.
func stuckScene(t testing.TB) *scene {
	s := newScene(t, sceneLength)
	s.play(15 * time.Minute)
	s.find("rack1-node3").holds = "pv-queue-3"
	s.find("rack1-node3").cutPower()
	s.play(0)
	return s
}

// leftOffScene has a machine that forcefence powered off three days ago.
func leftOffScene(t testing.TB) *scene {
	s := newScene(t, 75*time.Hour)
	s.play(74 * time.Hour)
	s.find("rack1-node3").kill()
	s.play(0)
	return s
}

// rejectedConfig returns what a leader reports of a changed file that it rejects.
func rejectedConfig() string {
	text := strings.Replace(sceneConfig, "provider: racks\n", "provider: rack\n", 1)
	_, err := config.Parse("config.yaml", []byte(text), all.Types())
	return err.Error()
}

// states returns every state of the cluster that the page shows, at a fixed time.
func states(t testing.TB) []stateOf {
	out := []stateOf{{name: "login", path: "/"}, {name: "login-refused", path: "/", token: "blind"},
		{name: "not-read", path: "/", token: "ann", err: errors.New("not yet")}}
	for name, path := range map[string]string{
		"foreign-fleet": "/", "foreign-fences": "/fences", "foreign-devices": "/devices", "foreign-node": "/nodes/n7",
		"foreign-fence": "/fences/n1.f-0123456789ab", "foreign-newer": "/fences/n9.f-aaaaaaaaaaaa",
	} {
		out = append(out, stateOf{name: name, path: path, token: "ann", fleet: snapshot(), plain: true})
	}
	add := func(s *scene, count int, state view.State, pages ...[2]string) {
		facts := s.snapshot()
		if f := view.FleetOf(facts); f.States[state] != count {
			t.Errorf("%s: got %v, want %d of state %s", pages[0][0], f.States, count, state)
		}
		for _, p := range pages {
			out = append(out, stateOf{name: p[0], path: p[1], token: "ann", fleet: facts})
		}
	}
	healthy := newScene(t, sceneLength)
	healthy.play(0)
	add(healthy, 6, view.StateFine, [2]string{"healthy", "/"}, [2]string{"missing", "/nodes/rack9"})

	paused := newScene(t, sceneLength)
	paused.cluster.Paused = fmt.Sprintf("ConfigMap fencing/forcefence-pause: %s", fence.PauseOf(map[string]string{
		"reason": "network maintenance", "until": "2026-05-04T14:00:00Z"}))
	paused.play(30 * time.Minute)
	paused.find("rack1-node2").edit(func(n *corev1.Node) { n.Annotations[fence.PausedAnnotation] = "new disk" })
	paused.play(0)
	add(paused, 6, view.StateLeftAlone, [2]string{"paused", "/"})

	add(urgentScene(t), 8, view.StateNeedsPerson, [2]string{"needs-person", "/"},
		[2]string{"needs-person-node", "/nodes/mute-bmc"},
		[2]string{"needs-person-devices", "/devices"}, [2]string{"needs-person-hook", "/hook"},
		[2]string{"needs-person-filter", "/?name=bmc&state=needs_a_person"})
	add(stormScene(t), 3, view.StateNeedsPerson, [2]string{"storm", "/"})

	moving := underWayScene(t)
	add(moving, 1, view.StateFencing, [2]string{"under-way", "/"},
		[2]string{"under-way-fence", moving.fencePath("rack1-node3")})
	add(stuckScene(t), 1, view.StateNeedsPerson, [2]string{"stuck", "/"}, [2]string{"stuck-node", "/nodes/rack1-node3"},
		[2]string{"stuck-fences", "/fences"})
	add(leftOffScene(t), 1, view.StateNotReady, [2]string{"left-off", "/"},
		[2]string{"left-off-node", "/nodes/rack1-node3"})
	out[len(out)-1].plain = true // the same as another, with old times

	refused := newScene(t, sceneLength)
	refused.cluster.Controller.ConfigRejected = rejectedConfig()
	refused.play(0)
	add(refused, 6, view.StateFine, [2]string{"refused-config", "/"})

	gone := newScene(t, sceneLength)
	gone.play(3 * time.Minute)
	gone.cluster.Controller.Leads, gone.cluster.Controller.Renewed = false, new(gone.at)
	add(gone, 6, view.StateLeftAlone, [2]string{"no-leader", "/"})
	return out
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
	for _, s := range states(t) {
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
