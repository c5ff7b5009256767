package docs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// root is the repository.
var root = os.DirFS("../..")

// pages returns all pages, by name.
func pages(t *testing.T) map[string]page {
	t.Helper()
	all, err := readPages(root)
	kit.Must(t, err)
	return all
}

// TestBlocks: every block of every page says what it is, and no command hides in one that says it has none.
func TestBlocks(t *testing.T) {
	ci, err := fs.ReadFile(root, ".ci/run")
	kit.Must(t, err)
	inCI := func(line string) bool {
		return regexp.MustCompile(`(?m)^part \w+ ` + regexp.QuoteMeta(line) + `( |$)`).Match(ci)
	}
	kinds := map[string]int{}
	for _, p := range pages(t) {
		var before *Block
		for _, b := range p.blocks {
			if fault := b.Fault(before, source, inCI); fault != "" {
				t.Errorf("%s: the block %s", b, fault)
			}
			if len(b.Words) > 0 {
				kinds[b.Lang+" "+b.Words[0]]++
			}
			before = &b
		}
	}
	for kind, least := range map[string]int{"sh run": 25, "yaml config": 15, "yaml values": 1, "text out": 8} {
		if kinds[kind] < least {
			t.Errorf("%d blocks are %q, want at least %d: is the right tree read?", kinds[kind], kind, least)
		}
	}
}

// source is the text of a folder's tests, by folder.TestName; "" where it has no such test.
func source(name string) string {
	folder, test, ok := strings.Cut(name, ".")
	if !ok {
		return ""
	}
	files, _ := fs.Glob(root, folder+"/*_test.go") // the pattern is a good one
	var all strings.Builder
	for _, file := range files {
		if text, err := fs.ReadFile(root, file); err == nil {
			all.Write(text)
		}
	}
	if !strings.Contains(all.String(), "\nfunc "+test+"(t *testing.T)") {
		return ""
	}
	return all.String()
}

// TestFault: what a block may not say.
func TestFault(t *testing.T) {
	run := &Block{Lang: "sh", Words: []string{"run"}}
	for _, tt := range []struct {
		name, info, text string
		before           *Block
		want             string // part of it
	}{
		{name: "run", info: "sh run"},
		{name: "from scratch", info: "sh run fresh"},
		{name: "a risk", info: "yaml config warns"},
		{name: "a description", info: "yaml description file=farm.yaml"},
		{name: "output", info: "text out", text: "$ kubectl get nodes\n", before: run},
		{name: "a test", info: "sh test=test/deploy.TestCleanup"},
		{name: "its commands", info: "sh test=test/deploy.TestHelm",
			text: "helm upgrade forcefence x   # a word\nkubectl -n forcefence-system rollout status x\n  echo it\n"},
		{name: "its own program's", info: "sh test=cmd/forcefence.TestConfirmOff",
			text: "bin/forcefence confirm-off n3\nkubectl forcefence pause n3\n"},
		{name: "its lines", info: "sh test=test/walkthrough.TestWalkthrough",
			text: "kubectl forcefence release n2 --yes\n"},
		{name: "not its lines", info: "sh test=test/walkthrough.TestWalkthrough",
			text: "kubectl forcefence release n1 --yes\n", want: `has "release"`},
		{name: "another test's command", info: "sh test=test/deploy.TestHelm",
			text: "helm upgrade forcefence x\nbin/forcefence confirm-off n3\n", want: `has "confirm-off"`},
		{name: "a newcomer's", info: "sh test=fresh", text: "make demo    # shows it\n"},
		{name: "prose with a program's name", info: "text", text: "  forcefence asks n3\n make haste\n"},

		{name: "nothing", want: "says not what it is"},
		{name: "a shell block that is neither", info: "sh", want: "of itself"},
		{name: "another shell", info: "console", want: "which nothing holds"},
		{name: "a need that is none", info: "sh needs=luck", want: "none of Needs"},
		{name: "a word too much", info: "sh run sometimes", want: "means nothing"},
		{name: "output of nothing", info: "text out", want: "printed by no commands"},
		{name: "output of what does not run", info: "text out",
			before: &Block{Lang: "sh", Words: []string{"needs=ec2"}}, want: "printed by no commands"},
		{name: "a hidden command", info: "text", text: "first\nkubectl get nodes\n", want: "has a command"},
		{name: "a hidden command behind a prompt", info: "text", text: "$ bin/forcefence drill\n",
			want: "has a command"},
		{name: "no such test", info: "sh test=test/deploy.TestCleanUp", want: "not there"},
		{name: "no folder", info: "sh test=TestCleanup", want: "not there"},
		{name: "yaml of nothing", info: "yaml", want: "of itself"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := parse("x.md", []byte("```"+tt.info+"\n"+tt.text+"```\n"))
			kit.Must(t, err)
			got := p.blocks[0].Fault(tt.before, source, func(line string) bool { return line == "make fresh" })
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("Fault: %q, want %q", got, tt.want)
			}
		})
	}
	if _, err := parse("x.md", []byte("```sh run\n```sh run\n```\n")); err == nil {
		t.Error("parsing a fence within a block: no error")
	}
}

// configurations checks that what pages show of configurations and of the chart's values is one.
func (p programs) configurations(t *testing.T) {
	t.Parallel()
	var err error
	p.defaults, _, err = p.render(t, "{}")
	kit.Must(t, err)
	for _, page := range pages(t) {
		for _, b := range page.blocks {
			if b.Lang == "yaml" {
				p.checkBlock(t, b)
			}
		}
	}
	example, err := fs.ReadFile(root, "config.example.yaml")
	kit.Must(t, err)
	p.install(t, Block{Page: "config.example.yaml", Line: 1}, string(example))
	p.dryRun(t)
}

// dryRun has a real API server check all objects that the chart renders of the pages' configurations, and create none.
// The objects that pages share are checked once.
func (p programs) dryRun(t *testing.T) {
	t.Helper()
	dir, namespaces := t.TempDir(), map[string]bool{}
	for text, b := range p.objects {
		var o struct{ Metadata struct{ Namespace string } }
		kit.Must(t, yaml.Unmarshal([]byte(text), &o))
		namespaces[cmp.Or(o.Metadata.Namespace, namespace)] = true
		name := fmt.Sprintf("%s-%d-*.yaml", strings.ReplaceAll(b.Page, "/", "_"), b.Line)
		f, err := os.CreateTemp(dir, name)
		kit.Must(t, err)
		_, err = f.WriteString(text)
		kit.Must(t, errors.Join(err, f.Close()))
	}
	if least := 100; len(p.objects) < least {
		t.Errorf("got %d objects of all pages, want at least %d", len(p.objects), least)
	}
	c := cluster.ForTest(t, cluster.Options{})
	for name := range namespaces {
		if !strings.HasPrefix(name, "kube-") && name != metav1.NamespaceDefault {
			_, err := c.Kubectl(t.Context(), "create", "namespace", name)
			kit.Must(t, err)
		}
	}
	if _, err := c.Kubectl(t.Context(), "apply", "--dry-run=server", "--warnings-as-errors", "-f", dir); err != nil {
		t.Errorf("%d objects of the pages' configurations: %v", len(p.objects), err)
	}
}

func (p programs) checkBlock(t *testing.T, b Block) {
	t.Helper()
	switch {
	case b.Is("config"):
		p.check(t, b, b.Text)
		p.install(t, b, b.Text)
	case b.Is("description"):
		file := filepath.Join(t.TempDir(), "description.yaml")
		kit.Must(t, os.WriteFile(file, []byte(b.Text), 0o600))
		cmd := exec.CommandContext(t.Context(), filepath.Join(p.dir, "forcefence"), "check-config", "--description",
			file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: check-config --description: %v\n%s", b, err, out)
		}
	case b.Is("values"):
		rendered, _, err := p.render(t, b.Text)
		if err != nil {
			t.Errorf("%s: %v", b, err)
			return
		}
		p.check(t, b, rendered)
	}
}

func stderr(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // exec's own, never wrapped
		return e.Stderr
	}
	return nil
}

// complete adds to a configuration that is part of a file what is missing: devices, and nodes. whole reports whether
// nothing is.
func complete(t *testing.T, b Block, text string) (completed string, whole bool) {
	t.Helper()
	var file map[string]any
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Errorf("%s: %v", b, err)
		return text, false
	}
	if file["providers"] == nil {
		named := map[string]bool{"people": file["nodes"] == nil}
		for _, m := range regexp.MustCompile(`provider: ([\w-]+)`).FindAllStringSubmatch(text, -1) {
			named[m[1]] = true
		}
		text += "\nproviders:\n"
		for name, want := range named {
			if want {
				text += fmt.Sprintf("- {name: %s, confirm: {validFor: 15m}}\n", name)
			}
		}
	}
	if file["nodes"] == nil {
		first := "people"
		if list, ok := file["providers"].([]any); ok && len(list) > 0 {
			first = fmt.Sprint(list[0].(map[string]any)["name"])
		}
		text += fmt.Sprintf("\nnodes:\n- {name: all, provider: %s, machine: {from: list, list: []}}\n", first)
	}
	return text, file["providers"] != nil && file["nodes"] != nil
}

// check has the real program check a configuration. One that is part of a file gets what is missing.
func (p programs) check(t *testing.T, b Block, text string) {
	t.Helper()
	text, whole := complete(t, b, text)
	name := filepath.Join(t.TempDir(), "config.yaml")
	kit.Must(t, os.WriteFile(name, []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), filepath.Join(p.dir, "forcefence"), "check-config", "--skip-files",
		name).CombinedOutput()
	if err != nil {
		t.Errorf("%s: check-config: %v\n%s\n%s", b, err, out, text)
	}
	if warns := strings.Contains(string(out), "warning: "); whole && b.Is("config") && warns != b.Is("warns") {
		t.Errorf("%s: check-config warns: %t, the block says %t\n%s", b, warns, b.Is("warns"), out)
	}
}

// render returns the configuration that the chart makes of values, and all objects.
func (p programs) render(t *testing.T, values string) (config string, objects []string, _ error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	kit.Must(t, os.WriteFile(file, []byte(values), 0o600))
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.helm, "helm"), "template", "forcefence",
		"../../deploy/helm/forcefence",
		"--namespace", namespace, "--set", "image.repository=forcefence,image.tag=v1", "--values", file)
	out, err := cmd.Output()
	if err != nil {
		return "", nil, fmt.Errorf("helm template: %w: %s", err, stderr(err))
	}
	objects = strings.Split(strings.TrimPrefix(string(out), "---\n"), "\n---\n")
	for _, text := range objects {
		if strings.HasPrefix(text, "# Source: forcefence/templates/config.yaml\n") {
			var cm struct{ Data map[string]string }
			kit.Must(t, yaml.Unmarshal([]byte(text), &cm))
			config = cm.Data["config.yaml"]
		}
	}
	return config, objects, nil
}

// The chart's advice for a file of the configuration that no volume has.
var (
	secretAdvice = regexp.MustCompile(`add to extraSecrets (\{name: [a-z-]+, mountPath: \S+\})`)
	volumeAdvice = regexp.MustCompile(`to controller\.extraVolumeMounts \{name: NAME, (mountPath: \S+\})`)
)

// install puts a configuration into the chart's values, below config, and checks that the rendered one means the same
// and passes check-config. Where the chart asks for a volume of the configuration's files, install follows its advice.
func (p programs) install(t *testing.T, b Block, text string) {
	t.Helper()
	text, _ = complete(t, b, text)
	values := "config:\n  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
	rendered, objects, err := p.render(t, values)
	if err != nil {
		var secrets []string
		for _, m := range secretAdvice.FindAllStringSubmatch(err.Error(), -1) {
			secrets = append(secrets, m[1])
		}
		slices.Sort(secrets)
		values += "extraSecrets: [" + strings.Join(slices.Compact(secrets), ", ") + "]\n"
		if m := volumeAdvice.FindStringSubmatch(err.Error()); m != nil {
			values += "controller: {extraVolumes: [{name: v, emptyDir: {}}], extraVolumeMounts: [{name: v, " + m[1] + "]}\n"
		}
		rendered, objects, err = p.render(t, values)
	}
	if err != nil {
		t.Errorf("%s: the chart refuses the configuration: %v", b, err)
		return
	}
	for _, text := range objects {
		if _, has := p.objects[text]; !has {
			p.objects[text] = b
		}
	}
	var written, own, got map[string]any
	// The controller's own library: it reads off as a word, and not as false.
	kit.Must(t, yamlv3.Unmarshal([]byte(text), &written))
	kit.Must(t, yamlv3.Unmarshal([]byte(rendered), &got))
	kit.Must(t, yamlv3.Unmarshal([]byte(p.defaults), &own))
	if diff := gocmp.Diff(mergeMappings(own, written), any(got), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: the chart made another configuration of it (-written +rendered):\n%s", b, diff)
	}
	p.check(t, Block{Page: b.Page, Line: b.Line, Words: []string{"values"}}, rendered)
}

// mergeMappings returns a value over another as Helm merges values: mappings key by key, everything else as a whole.
func mergeMappings(under, over any) any {
	u, uIs := under.(map[string]any)
	o, oIs := over.(map[string]any)
	if !uIs || !oIs {
		return over
	}
	merged := maps.Clone(u)
	for key, v := range o {
		merged[key] = mergeMappings(u[key], v)
	}
	return merged
}

// TestPages checks all configurations and the task that rotates passwords, and types the commands of each page that has
// some to run.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs, and starts control planes")
	}
	p := buildPrograms(t)
	t.Run("configurations", p.configurations)
	t.Run("rotation", rotatePasswords)
	worlds := map[string][][]Block{} // by the page that has a world to itself; "": those that share one
	all := pages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		blocks := all[name].blocks
		typed := func(b Block) bool { return b.Is("run") || b.Is("objects") || b.Is("pod") }
		if !slices.ContainsFunc(blocks, typed) {
			continue
		}
		if !slices.ContainsFunc(blocks, func(b Block) bool { return b.Is("fresh") || b.Is("alone") }) {
			name = ""
		}
		worlds[name] = append(worlds[name], blocks)
	}
	for _, name := range slices.Sorted(maps.Keys(worlds)) {
		t.Run(cmp.Or(name, "others"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, p)
			if !slices.ContainsFunc(worlds[name][0], func(b Block) bool { return b.Is("fresh") }) {
				if out, err := w.types(installed); err != nil {
					t.Fatalf("installing before the page begins: %v\n%s", err, out)
				}
			}
			for _, page := range worlds[name] {
				w.plays(page)
			}
		})
	}
}

// plays types a page's commands, and ends the test at the first that fails: those that follow build on it.
func (w *world) plays(page []Block) {
	w.t.Helper()
	w.write("config.yaml", w.addresses.Replace(worldConfig))
	var printed string
	for _, b := range page {
		if name := b.Value("file"); name != "" {
			text := b.Text
			if b.Is("config") { // what goes into the cluster first comes back as the controller's file
				text = w.addresses.Replace(text)
			}
			w.write(name, text)
		}
		switch {
		case b.Is("objects"):
			w.takes(b, b.Text)
		case b.Is("pod"):
			w.takes(b, "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers: [{name: x, image: x}]\n  "+
				strings.ReplaceAll(b.Text, "\n", "\n  "))
		case b.Is("run"):
			var err error
			if printed, err = w.types(w.addresses.Replace(b.Text)); err != nil {
				w.t.Fatalf("%s: %v\n%s", b, err, printed)
			}
		case b.Is("out"):
			if missing := missingLine(b.Text, printed); missing != "" {
				w.t.Fatalf("%s: not printed: %s\nbut:\n%s", b, missing, printed)
			}
		}
	}
}

// takes checks that the API server takes objects as they are written.
func (w *world) takes(b Block, text string) {
	w.t.Helper()
	w.write("objects.yaml", text)
	if _, err := w.c.Kubectl(w.ctx, "create", "--dry-run=server", "--validate=strict", "-f",
		filepath.Join(w.dir, "objects.yaml")); err != nil {
		w.t.Errorf("%s: %v", b, err)
	}
}

// missingLine is the first line of want that printed does not have behind the line before it; "" if all are there.
// Blanks count as one.
func missingLine(want, printed string) string {
	lines := strings.Split(printed, "\n")
	at := 0
	for line := range strings.Lines(want) {
		parts := strings.Split(strings.Join(strings.Fields(line), " "), "...")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		i := slices.IndexFunc(lines[at:],
			func(l string) bool { return pattern.MatchString(strings.Join(strings.Fields(l), " ")) })
		if i < 0 {
			return strings.TrimSpace(line)
		}
		at += i + 1
	}
	return ""
}

// TestMissingLine: what counts as printed.
func TestMissingLine(t *testing.T) {
	const printed = "NODE   READY\nn1     True\nn2     False: no answer (10.0.0.12)\n"
	for _, tt := range []struct{ name, want, missing string }{
		{"all", "NODE READY\nn1 True\n", ""},
		{"a part of a line", "False\n", ""},
		{"anything between", "n2 ... (10.0.0.12)\n", ""},
		{"in order", "n2\nn1\n", "n1"},
		{"not twice", "n1\nn1\n", "n1"},
		{"not there", "n3\n", "n3"},
		{"letter by letter", "n2 .*\n", "n2 .*"},
	} {
		if got := missingLine(tt.want, printed); got != tt.missing {
			t.Errorf("%s: missing %q, want %q", tt.name, got, tt.missing)
		}
	}
}

var (
	namedTest = regexp.MustCompile("`((?:[\\w-]+/)*[\\w-]+\\.Test\\w+)`([^`]*)")
	attempt   = regexp.MustCompile(`"([^"]+)"`)
)

// TestNamedTests: a test that a page names exists, and so does each attempt in quotes behind it.
func TestNamedTests(t *testing.T) {
	tests, attempts := 0, 0
	for page, p := range pages(t) {
		for line := range strings.Lines(string(p.source)) {
			for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
				tests++
				source := source(m[1])
				if source == "" {
					t.Errorf("%s: there is no test %s", page, m[1])
					continue
				}
				for _, a := range attempt.FindAllStringSubmatch(m[2], -1) {
					attempts++
					if !strings.Contains(source, "\n\t{"+a[0]+",") {
						t.Errorf("%s: %s makes no attempt %s", page, m[1], a[0])
					}
				}
			}
		}
	}
	if tests < 20 || attempts < 30 {
		t.Errorf("%d tests and %d attempts are named, want 20 and 30 at least", tests, attempts)
	}
}

// pastEnd matches an end that a sample gives as a date. It has passed when a reader copies the sample.
var pastEnd = regexp.MustCompile(`(?:until|--until)[= ]['"]?20[0-9]{2}-`)

// TestSamplesHaveNoDates: no sample gives a pause or a policy an end by a date. Such a pause pauses nothing, silently.
func TestSamplesHaveNoDates(t *testing.T) {
	texts := map[string]string{}
	for page, p := range pages(t) {
		texts[page] = string(p.source)
	}
	for _, pattern := range []string{"../../*.yaml", "../../cmd/forcefence/*.go", "../../taint/decide/fence/*.go",
		"../../taint/features/drain/*.go"} {
		files, err := filepath.Glob(pattern)
		kit.Must(t, err)
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, "_test.go") {
				texts[file] = string(text)
			}
		}
	}
	for name, text := range texts {
		for line := range strings.Lines(text) {
			if pastEnd.MatchString(line) {
				t.Errorf("%s: a sample ends at a date: %s", name, strings.TrimSpace(line))
			}
		}
	}
	if len(texts) < 30 || !pastEnd.MatchString("paused=disk; until=2026-01-31T18:00:00Z") {
		t.Errorf("read %d files, want 30 at least", len(texts))
	}
}

// TestPictures: each picture of the documentation is on a page beside its folder.
func TestPictures(t *testing.T) {
	names, err := fs.Glob(root, "docs/img/*")
	kit.Must(t, err)
	more, err := fs.Glob(root, "docs/reference/img/*")
	kit.Must(t, err)
	names = append(names, more...)
	var text strings.Builder
	kit.Must(t, readFiles(root, []string{".md"}, func(_ string, source []byte) error {
		text.Write(source)
		return nil
	}))
	for _, name := range names {
		if !strings.Contains(text.String(), strings.TrimPrefix(strings.TrimPrefix(name, "docs/"), "reference/")) {
			t.Errorf("no page has the picture %s: remove it, or what writes it", name)
		}
	}
	if len(names) < 4 {
		t.Errorf("got %d pictures, want at least 4: is the right tree read?", len(names))
	}
}
