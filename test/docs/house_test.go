package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/test/kit"
)

var update = flag.Bool("update", false, "draw docs/img/house.svg")

const module = "github.com/forcefence/forcefence/"

// importsOf returns which packages of the module each of its packages imports, without the module's path. Tests do not
// count.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./cmd/...", "./taint/...", "./providers/...", "./kubelet-admit/...")
	list.Dir = "../.."
	out, err := list.Output()
	kit.Must(t, err)
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		own := slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, module) })
		for i := range own {
			own[i] = strings.TrimPrefix(own[i], module)
		}
		found[own[0]] = own[1:]
	}
	return found
}

// TestHouse: the picture of the packages shows each room of the core and each feature, and each arrow is an import.
func TestHouse(t *testing.T) {
	var types []string
	for _, typ := range all.Types() {
		types = append(types, typ.Name)
	}
	const file = "../../docs/img/house.svg"
	drawn := DrawHouse(types)
	if *update {
		kit.Must(t, os.WriteFile(file, []byte(drawn), 0o644))
	}
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	if !bytes.Equal(text, []byte(drawn)) {
		t.Errorf("%s is not what the packages are: go generate ./test/docs draws it", file)
	}
	imports := importsOf(t)
	t.Run("rooms", func(t *testing.T) { checkRooms(t, imports) })
	t.Run("arrows", func(t *testing.T) { checkArrows(t, imports) })
	t.Run("features", checkFeatures)
}

const featuresFolder = "taint/features/"

// checkRooms checks that each package below taint and kubelet-admit is in the picture, and each that it shows is there.
func checkRooms(t *testing.T, imports map[string][]string) {
	var want, got []string
	for name := range imports {
		feature, isFeature := strings.CutPrefix(name, featuresFolder)
		switch {
		case isFeature && strings.Contains(feature, "/"): // a feature's own room
		case strings.HasPrefix(name, "taint"), strings.HasPrefix(name, "kubelet-admit/"):
			want = append(want, name)
		}
	}
	for _, rooms := range [][]Room{Core.Pure, Core.Acting, Core.Telling, Core.Words} {
		for _, r := range rooms {
			for _, name := range r.Packages {
				got = append(got, strings.TrimSuffix("taint/"+strings.TrimPrefix(name, "taint"), "/"))
			}
		}
	}
	for _, r := range Hook {
		got = append(got, "kubelet-admit/"+r.Packages[0])
	}
	for _, f := range Features {
		got = append(got, featuresFolder+f.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the picture shows\n%q\nwant\n%q", got, want)
	}
}

// checkArrows checks that an import is behind each arrow of the picture, and none against the arrow from the features.
func checkArrows(t *testing.T, imports map[string][]string) {
	in := func(folder string) func(string) bool {
		below := strings.TrimSuffix(folder, "/") + "/"
		return func(name string) bool { return name == folder || strings.HasPrefix(name, below) }
	}
	features := in("taint/features")
	core := func(name string) bool { return in("taint")(name) && !features(name) }
	imported := func(from, to func(string) bool) (pairs []string) {
		for name, of := range imports {
			for _, other := range of {
				if from(name) && to(other) {
					pairs = append(pairs, name+" imports "+other)
				}
			}
		}
		return pairs
	}
	for what, arrow := range map[string][2]func(string) bool{
		"the app makes the devices":        {in("cmd/internal/app"), in("providers")},
		"the features import the core":     {features, core},
		"the core asks through devices":    {core, in("providers")},
		"the hook shares the core's words": {in("kubelet-admit"), in("taint")},
	} {
		if len(imported(arrow[0], arrow[1])) == 0 {
			t.Errorf("%s: no import is behind the arrow", what)
		}
	}
	for _, f := range Features {
		if len(imported(in("cmd"), in(featuresFolder+f.Name))) == 0 {
			t.Errorf("the app lists %s: no import is behind the arrow", f.Name)
		}
	}
	for what, none := range map[string][]string{
		"the core imports a feature":       imported(core, features),
		"a device imports the core":        imported(in("providers"), in("taint")),
		"the hook imports more than words": imported(in("kubelet-admit"), in("taint/")),
	} {
		if len(none) > 0 {
			t.Errorf("%s: %q", what, none)
		}
	}
}

// checkFeatures checks what the picture says of each feature: its key or command, its default, and its page.
func checkFeatures(t *testing.T) {
	text, err := fs.ReadFile(root, "docs/reference/config.schema.json")
	kit.Must(t, err)
	type property struct {
		Default    any
		Properties map[string]json.RawMessage
	}
	var schema struct{ Properties map[string]property }
	kit.Must(t, json.Unmarshal(text, &schema))
	var commands strings.Builder
	sources, err := fs.Glob(root, "cmd/forcefence/*.go")
	kit.Must(t, err)
	for _, name := range sources {
		source, err := fs.ReadFile(root, name)
		kit.Must(t, err)
		commands.Write(source)
	}
	all := pages(t)
	for _, f := range Features {
		first, second, _ := strings.Cut(f.Key, ".")
		top, isTop := schema.Properties[first]
		_, isSecond := top.Properties[second]
		command, isCommand := strings.CutPrefix(f.Key, "forcefence ")
		switch {
		case f.Key == always && f.Default == "on":
		case isCommand && f.Default == "on demand":
			if !regexp.MustCompile(`Use: +"` + command + ` `).MatchString(commands.String()) {
				t.Errorf("%s: no command %s", f.Name, f.Key)
			}
		case !isTop && f.Default == "off":
			if !bytes.Contains(text, []byte(`"`+f.Key+`": {`)) {
				t.Errorf("%s: no key %s", f.Name, f.Key)
			}
		case !isTop || second != "" && !isSecond:
			t.Errorf("%s: no key %s", f.Name, f.Key)
		case top.Default != nil && top.Default != f.Default, top.Default == nil && f.Default != "off":
			t.Errorf("%s: by default %s is %v, the picture says %s", f.Name, f.Key, top.Default, f.Default)
		}
		name, anchor, _ := strings.Cut(f.Page, "#")
		page, ok := all["docs/"+name]
		if !ok || anchor != "" && !slices.Contains(page.anchors(), anchor) {
			t.Errorf("%s: no page docs/%s", f.Name, f.Page)
		}
	}
}
