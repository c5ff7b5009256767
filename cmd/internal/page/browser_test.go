package page

import (
	"bytes"
	"encoding/json"
	"image"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/test/kit"
)

// Every page of the golden ones, hostile texts and all, in a real browser.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	srv, _ := testServer(t, nil)
	kit.Browse(t, srv.URL, "ann", "fleet=/", "fences=/fences", "devices=/devices", "hook=/hook", "node=/nodes/n4",
		"fence=/fences/n1.f-0123456789ab", "newer=/fences/n9.f-aaaaaaaaaaaa")
}

// The documentation's pictures show the fence that testdata/recorded.json has: what a demo left on its API server.
func TestPictures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	s := recordedFleet(t)
	srv, _ := testServer(t, func(o *Options) {
		o.Fleet, o.Cluster = func() (*view.Fleet, error) { return view.FleetOf(s), nil }, "demo"
	})
	shots := kit.Browse(t, srv.URL, "ann", "fence@1024=/fences/"+s.Fences[0].Fencing.Name)
	for _, name := range []string{"fence-light.png", "fence-dark.png"} {
		picture, err := os.ReadFile(filepath.Join(shots, name))
		kit.Must(t, err)
		if *update {
			folder := filepath.Join(kit.Root(t), "docs", "img")
			kit.Must(t, os.WriteFile(filepath.Join(folder, name), picture, 0o644))
			kit.Must(t, os.WriteFile(filepath.Join(folder, "bars-"+name), cutBelow(t, picture, 514), 0o644))
		}
	}
}

// cutBelow returns the picture's upper part: of a fence, its outcome and its bars.
func cutBelow(t *testing.T, picture []byte, height int) []byte {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(picture))
	kit.Must(t, err)
	upper := image.NewRGBA(image.Rect(0, 0, whole.Bounds().Dx(), height))
	draw.Draw(upper, upper.Bounds(), whole, image.Point{}, draw.Src)
	var out bytes.Buffer
	kit.Must(t, png.Encode(&out, upper))
	return out.Bytes()
}

// recordedFleet reads the Nodes, the Fencing and the Events of a demo, as kubectl get -o json wrote them. It is two
// minutes later.
func recordedFleet(t *testing.T) view.Snapshot {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded.json"))
	kit.Must(t, err)
	var list struct{ Items []json.RawMessage }
	kit.Must(t, json.Unmarshal(text, &list))
	s := view.Snapshot{Key: taint.DefaultKey,
		NodeConfig: func(n *corev1.Node) view.NodeConfig {
			return view.NodeConfig{Devices: []string{"racks/" + n.Name}, Mode: "fence"}
		}}
	all := events{}
	for _, item := range list.Items {
		var kind metav1.TypeMeta
		kit.Must(t, json.Unmarshal(item, &kind))
		switch kind.Kind {
		case "Node":
			n := &corev1.Node{}
			kit.Must(t, json.Unmarshal(item, n))
			s.Nodes = append(s.Nodes, n)
		case "Event":
			e := &eventsv1.Event{}
			kit.Must(t, json.Unmarshal(item, e))
			all.putEvent(e)
		case "Fencing":
			var raw map[string]any
			kit.Must(t, json.Unmarshal(item, &raw))
			f, err := view.ParseFencing(raw)
			kit.Must(t, err)
			s.Fences = append(s.Fences, f)
			s.At = f.Fencing.Status.FinishedAt.Add(2 * time.Minute)
		}
	}
	s.Events = all.listEvents()
	return s
}
