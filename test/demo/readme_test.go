package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// The demo cites README's figure, for as many pods as it has itself.
func TestReadmeGone(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(kit.Root(t), "README.md"))
	kit.Must(t, err)
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "| Off | the last of 110 pods is gone, 20 with volumes") {
			if !strings.HasSuffix(strings.TrimSpace(line), "| "+readmeGone+" |") || movable != 110 {
				t.Errorf("README says %q; the demo says %s of %d pods", line, readmeGone, movable)
			}
			return
		}
	}
	t.Error("README has no such row")
}
