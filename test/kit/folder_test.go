package kit

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSocketDir sets TMPDIR to folders in which no socket fits, that do not exist, that other users cannot enter, and
// whose names need quotes.
func TestSocketDir(t *testing.T) {
	long, closed := filepath.Join(t.TempDir(), strings.Repeat("x", 107)), filepath.Join(SocketDir(t), "c")
	spaced := filepath.Join(SocketDir(t), "a b")
	Must(t, os.Mkdir(spaced, 0o755))
	Must(t, os.Mkdir(long, 0o755))
	Must(t, os.Mkdir(closed, 0o700))
	for _, tmp := range []string{"", long, filepath.Join(long, "none"), closed, spaced} {
		t.Run(tmp, func(t *testing.T) {
			t.Setenv("TMPDIR", tmp)
			dir := SocketDir(t)
			if tmp == closed && os.Getuid() == 0 && strings.HasPrefix(dir, closed) {
				t.Errorf("root's folder: got %s, which other users cannot reach", dir)
			}
			if strings.Contains(dir, " ") {
				t.Errorf("got %q, want no space", dir)
			}
			l, err := net.Listen("unix", filepath.Join(dir, strings.Repeat("s", 107-maxSocketDir-1)))
			Must(t, err)
			Must(t, l.Close())
		})
	}
	if left, err := os.ReadDir(long); len(left) > 0 || err != nil {
		t.Errorf("left in TMPDIR: got %v, %v, want nothing", left, err)
	}
}
