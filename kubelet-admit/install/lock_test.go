package install

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestSecondInstallIsRefused checks that a second install is refused while one runs: it would install a file that the
// first one has half written.
func TestSecondInstallIsRefused(t *testing.T) {
	l := newLab(t)
	l.write("run/lock/x", "") // the folder is there on every host
	second := error(nil)
	inner := l.opts
	l.opts.Binary = &interrupted{ReadSeeker: inner.Binary, once: func() {
		inner.Binary = strings.NewReader("version 1")
		_, second = Install(t.Context(), inner)
		_, un := Uninstall(t.Context(), inner)
		second = errors.Join(second, un)
	}}
	l.mustInstall()
	l.pluginFolder("version 1")
	if second == nil || strings.Count(second.Error(), "another install or uninstall") != 2 {
		t.Errorf("the second one: got %v", second)
	}
	l.mustInstall()
	l.uninstall()
}

// interrupted calls once before it is first read.
type interrupted struct {
	io.ReadSeeker
	once func()
}

func (r *interrupted) Read(p []byte) (int, error) {
	if once := r.once; once != nil {
		r.once = nil
		once()
	}
	return r.ReadSeeker.Read(p)
}
