// Package walls holds who may import whom: of modules by imports.txt, of the standard library by .golangci.yaml. The
// packages of testdata/bad break rules of each kind. `make lint` runs the linter on them, and compares what it finds
// with testdata/bad.txt. No linter finds what these tests do: a rule whose packages have moved away, and lists that
// contradict each other.
package walls

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// config is what is read of .golangci.yaml.
type config struct {
	Linters struct {
		Enable   []string
		Settings struct {
			Depguard struct {
				Rules map[string]struct {
					Files, Allow []string
					Deny         []struct{ Pkg string }
				}
			}
		}
		Exclusions struct {
			Rules []struct {
				Path, Text string
				PathExcept string `yaml:"path-except"`
			}
		}
	}
}

func readConfig(t *testing.T) config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c config
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Linters.Settings.Depguard.Rules) == 0 {
		t.Fatal(".golangci.yaml has no rules for depguard")
	}
	return c
}

// TestLintersAreEnabled finds a linter that is tried on testdata/bad, but not run on the repository.
func TestLintersAreEnabled(t *testing.T) {
	enabled := readConfig(t).Linters.Enable
	if !slices.Contains(enabled, "depguard") || !slices.Contains(enabled, "forbidigo") {
		t.Errorf(".golangci.yaml enables %q, want depguard and forbidigo among them", enabled)
	}
}

var (
	ruleFolder      = regexp.MustCompile(`^!?\*\*/(.+)/\*(?:\*|\.go)$`)
	exclusionFolder = regexp.MustCompile(`^\(\^\|/\)([\w/-]+/)(?:\((.+)\)/)?`)
)

// TestFoldersExist finds rules and exclusions for folders that do not exist: the linter reports nothing about them.
func TestFoldersExist(t *testing.T) {
	exists := func(where, folder string) {
		if found, err := filepath.Glob(filepath.Join(root, folder)); len(found) == 0 || err != nil {
			t.Errorf("%s: there is no folder %s: name where the package is now, or delete the rule", where, folder)
		}
	}
	c := readConfig(t)
	for name, rule := range c.Linters.Settings.Depguard.Rules {
		if len(rule.Files) == 0 {
			t.Errorf("rule %s names no files, so it would bind all", name)
		}
		for _, pattern := range rule.Files {
			if m := ruleFolder.FindStringSubmatch(pattern); m != nil {
				exists("rule "+name, m[1])
			} else {
				t.Errorf("rule %s: %q: want **/FOLDER/** or **/FOLDER/*.go", name, pattern)
			}
		}
	}
	for _, rule := range c.Linters.Exclusions.Rules {
		for _, pattern := range []string{rule.Path, rule.PathExcept} {
			if m := exclusionFolder.FindStringSubmatch(pattern); m != nil {
				for name := range strings.SplitSeq(m[2], "|") {
					exists("exclusion "+pattern, m[1]+name)
				}
			}
		}
	}
}

// TestNamesDoNotNest finds a name that is a prefix of another in its list. depguard looks only at the nearest name:
// with "a" and "a/b$", it ignores "a/b/c".
func TestNamesDoNotNest(t *testing.T) {
	for name, rule := range readConfig(t).Linters.Settings.Depguard.Rules {
		var deny []string
		for _, d := range rule.Deny {
			deny = append(deny, d.Pkg)
		}
		for _, list := range [][]string{rule.Allow, deny} {
			slices.Sort(list) // a name comes right before those that it is a prefix of
			for i := range len(list) - 1 {
				if strings.HasPrefix(list[i+1], list[i]) {
					t.Errorf("rule %s: %q is a prefix of %q: name the packages so that none is", name, list[i],
						list[i+1])
				}
			}
		}
	}
}

// TestClockIsForbiddenToPureRooms compares the three lists of what is not pure below taint: depguard's, the clock's
// exclusion, and that of imports.txt.
func TestClockIsForbiddenToPureRooms(t *testing.T) {
	c := readConfig(t)
	var imports, clock []string
	for _, pattern := range c.Linters.Settings.Depguard.Rules["taint/pure"].Files {
		if folder, ok := strings.CutPrefix(pattern, "!**/taint/"); ok {
			imports = append(imports, strings.TrimSuffix(folder, "/*.go"))
		}
	}
	for _, rule := range c.Linters.Exclusions.Rules {
		if m := exclusionFolder.FindStringSubmatch(rule.Path); m != nil && m[1] == "taint/" && rule.Text != "" {
			clock = strings.Split(m[2], "|")
		}
	}
	slices.Sort(imports)
	slices.Sort(clock)
	if diff := cmp.Diff(imports, clock); diff != "" || len(imports) == 0 {
		t.Errorf("not pure for depguard (-), and for forbidigo's clock (+):\n%s", diff)
	}
	var acting []string
	for name, r := range readRows(t) {
		if r.section == "acts" {
			acting = append(acting, strings.TrimPrefix(name, "taint/"))
		}
	}
	slices.Sort(acting)
	if diff := cmp.Diff(imports, acting); diff != "" {
		t.Errorf("not pure for depguard (-), and in imports.txt (+):\n%s", diff)
	}
}
