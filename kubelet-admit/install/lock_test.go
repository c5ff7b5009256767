package install

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestTwoAtOnce: an install that begins while another one runs would put the other's half of a file in its place.
func TestTwoAtOnce(t *testing.T) {
	l := newLab(t)
	l.write("run/lock/x", "") // the folder is there on every host
	second := error(nil)
	inner := l.opts
	inner.Binary = contentOf([]byte("version 1"))
	tried := false
	l.opts.Binary = func() (io.ReadCloser, error) {
		if !tried {
			tried = true
			_, second = Install(t.Context(), inner)
			_, un := Uninstall(t.Context(), inner)
			second = errors.Join(second, un)
		}
		return io.NopCloser(bytes.NewReader([]byte("version 1"))), nil
	}
	l.mustInstall()
	l.pluginFolder("version 1")
	if second == nil || strings.Count(second.Error(), "another install or uninstall") != 2 {
		t.Errorf("the second one: got %v", second)
	}
	l.mustInstall()
	l.uninstall()
}
