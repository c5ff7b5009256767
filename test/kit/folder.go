package kit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// SocketDir makes a folder as MakeSocketDir does, which goes with the test.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := MakeSocketDir()
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// MakeSocketDir makes a folder for sockets: a socket's path has 107 bytes at most, and TMPDIR may be longer. The
// path has no character that needs quotes. For root, every user can reach the folder, whose own mode is 0700: root's
// tests start programs as other users. The folder is in the first of TMPDIR, /tmp and /dev/shm that allows that. The
// caller removes it.
func MakeSocketDir() (string, error) {
	var problems []error
	for _, parent := range []string{os.TempDir(), "/tmp", "/dev/shm"} {
		dir, err := makeShortDir(parent)
		if err == nil {
			return dir, nil
		}
		problems = append(problems, err)
	}
	return "", fmt.Errorf("making a folder for sockets: %w", errors.Join(problems...))
}

// QuoteShell quotes a word for a shell's script: TMPDIR may contain a space.
func QuoteShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// plainPath needs no quotes in a URL, a list of options or a configuration.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9./_-]+$`)

// maxSocketDir leaves room for what libvirtd adds: config/libvirt/qemu/lib/domain-1-NAME/monitor.sock.
const maxSocketDir = 32

func makeShortDir(parent string) (string, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	if !plainPath.MatchString(parent) {
		return "", fmt.Errorf("%q has other characters than letters, digits and ./_-", parent)
	}
	for up := parent; os.Getuid() == 0; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err != nil || info.Mode()&1 == 0 {
			return "", fmt.Errorf("other users cannot enter %s: %v", up, err)
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	dir, err := os.MkdirTemp(parent, "ff")
	if err != nil {
		return "", err
	}
	if len(dir) > maxSocketDir {
		return "", errors.Join(fmt.Errorf("%s is too long", dir), os.Remove(dir))
	}
	return dir, nil
}
