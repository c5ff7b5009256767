package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// Each name under which something of ours is stored has a row that says whose life it is about.
func TestLives(t *testing.T) {
	root := kit.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "reference", "lives.md"))
	kit.Must(t, err)
	page := string(text)
	name := regexp.MustCompile(`"(forcefence\.io|forcefence\.node-restriction\.kubernetes\.io)/[A-Za-z0-9/-]+"`)
	used := map[string]bool{}
	for _, dir := range []string{"taint", "cmd", "providers", "kubelet-admit"} {
		kit.Must(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, quoted := range name.FindAllString(string(code), -1) {
				n := strings.Trim(quoted, `"`)
				if used[n] = true; !strings.Contains(page, "`"+n+"`") {
					t.Errorf("%s: docs/reference/lives.md does not say whose life %s is about, and who takes it back", path, n)
				}
			}
			return err
		}))
	}
	for _, quoted := range regexp.MustCompile("`forcefence[a-z.-]*/[A-Za-z0-9/-]+`").FindAllString(page, -1) {
		if n := strings.Trim(quoted, "`"); !used[n] {
			t.Errorf("docs/reference/lives.md names %s, which no program stores", n)
		}
	}
}
