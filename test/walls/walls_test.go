// Package walls holds what shows that the import rules of .golangci.yaml bind. `make lint` runs the linter on
// testdata/bad, whose packages break rules of each kind, and compares what it finds with testdata/bad.txt. This test
// finds what no run can show: a rule whose packages have moved away, and a list that was changed in one of two places.
package walls

import (
	"os"
	"path/filepath"
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
	return c
}

// TestLintersAreEnabled finds a linter that is tried on testdata/bad, but not run on the repository.
func TestLintersAreEnabled(t *testing.T) {
	enabled := readConfig(t).Linters.Enable
	for _, linter := range []string{"depguard", "forbidigo"} {
		if !slices.Contains(enabled, linter) {
			t.Errorf(".golangci.yaml does not enable %s", linter)
		}
	}
}

// TestRulesBindPackages finds rules for folders that do not exist: depguard says nothing of them.
func TestRulesBindPackages(t *testing.T) {
	rules := readConfig(t).Linters.Settings.Depguard.Rules
	if len(rules) == 0 {
		t.Fatal(".golangci.yaml has no rules for depguard")
	}
	for name, rule := range rules {
		if len(rule.Files) == 0 {
			t.Errorf("rule %s names no files, so it would bind all", name)
		}
		for _, pattern := range rule.Files {
			folder, ok := strings.CutPrefix(strings.TrimPrefix(pattern, "!"), "**/")
			folder, all := strings.CutSuffix(folder, "/**")
			folder, one := strings.CutSuffix(folder, "/*.go")
			if !ok || all == one {
				t.Errorf("rule %s: %q: want **/FOLDER/** or **/FOLDER/*.go", name, pattern)
				continue
			}
			found, err := filepath.Glob(filepath.Join(root, folder))
			if err != nil {
				t.Errorf("rule %s: %q: %v", name, pattern, err)
			}
			if len(found) == 0 {
				t.Errorf("rule %s: %q binds no folder: name where the package is now, or delete the rule", name,
					pattern)
			}
		}
	}
}

// TestExclusionsBindPackages finds an exclusion for folders that do not exist. Where path-except names one, the linter
// is silent about all the others, so nothing is left of its rule.
func TestExclusionsBindPackages(t *testing.T) {
	for _, rule := range readConfig(t).Linters.Exclusions.Rules {
		for _, pattern := range []string{rule.Path, rule.PathExcept} {
			folder, ok := strings.CutPrefix(pattern, "(^|/)")
			if !ok {
				continue
			}
			parent, names, _ := strings.Cut(strings.TrimSuffix(folder, "/[^/]+$"), "(")
			for name := range strings.SplitSeq(strings.TrimSuffix(names, ")"), "|") {
				if _, err := os.Stat(filepath.Join(root, parent, name)); err != nil {
					t.Errorf("exclusion %q: %v: name where the package is now", pattern, err)
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
			for _, a := range list {
				for _, b := range list {
					if a != b && strings.HasPrefix(b, a) {
						t.Errorf("rule %s: %q is a prefix of %q: name the packages so that none is", name, a, b)
					}
				}
			}
		}
	}
}

// TestClockIsForbiddenToPureRooms compares the two lists of what is not pure below taint: depguard's, and the clock's
// exclusion.
func TestClockIsForbiddenToPureRooms(t *testing.T) {
	c := readConfig(t)
	var imports, clock []string
	for _, pattern := range c.Linters.Settings.Depguard.Rules["taint/pure"].Files {
		if folder, ok := strings.CutPrefix(pattern, "!**/taint/"); ok {
			imports = append(imports, strings.TrimSuffix(folder, "/*.go"))
		}
	}
	for _, rule := range c.Linters.Exclusions.Rules {
		if folders, ok := strings.CutPrefix(rule.Path, "(^|/)taint/("); ok && rule.Text != "" {
			clock = strings.Split(strings.TrimSuffix(folders, ")/[^/]+$"), "|")
		}
	}
	slices.Sort(imports)
	slices.Sort(clock)
	if diff := cmp.Diff(imports, clock); diff != "" || len(imports) == 0 {
		t.Errorf("not pure for depguard (-), and for forbidigo's clock (+):\n%s", diff)
	}
}
