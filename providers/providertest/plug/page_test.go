package plug_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the files into docs/add-a-provider.md")

// quoted is a file that the page shows.
var quoted = regexp.MustCompile("(?s)<!-- file: ([a-z/_.]+) -->\n```go\n(.*?)```\n")

// The page shows this package as it is, and so it compiles and passes the suite.
func TestPageShowsTheFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	path := filepath.Join(root, "docs", "add-a-provider.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	now := quoted.ReplaceAllFunc(page, func(block []byte) []byte {
		shown++
		name := string(quoted.FindSubmatch(block)[1])
		file, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return []byte("<!-- file: " + name + " -->\n```go\n" + string(file) + "```\n")
	})
	switch {
	case shown != 2:
		t.Errorf("the page shows %d files, want the type and its test", shown)
	case *update:
		if err := os.WriteFile(path, now, 0o600); err != nil {
			t.Fatal(err)
		}
	case string(now) != string(page):
		t.Error("the page shows other files than there are: go test ./providers/providertest/plug -update")
	}
}
