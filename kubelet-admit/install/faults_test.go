package install

import (
	"os"
	"strings"
	"testing"
)

// TestDropInNoLongerRead removes the import of our drop-in: install warns, and leaves no file without effect.
func TestDropInNoLongerRead(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	l.write("etc/containerd/config.toml",
		strings.ReplaceAll(l.read("etc/containerd/config.toml"), `imports = ["conf.d/*.toml"]`, ""))
	r := l.mustInstall()
	if _, err := os.Lstat(l.path(dropInFile)); err == nil ||
		!strings.Contains(strings.Join(r.Warnings, "\n"), "conf.d/*.toml") {
		t.Errorf("the drop-in is still there; warned %q", r.Warnings)
	}
}

// TestUninstallKeepsWhatIsRequired checks that the plugin stays if the drop-in that requires it cannot be removed.
func TestUninstallKeepsWhatIsRequired(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.mustInstall()
	l.opts.host.before = func(op, path string) error {
		if op == "remove" && path == l.path(dropInFile) {
			return errFault
		}
		return nil
	}
	if _, err := Uninstall(t.Context(), l.opts); err == nil {
		t.Error("got no error")
	}
	if f := l.facts(); !f.Plugin || !f.NRI.requiresUs() {
		t.Errorf("got %+v, want the plugin and its requirement", f)
	}
}

// TestStagedIsNotExecutable checks that no file is executable before it is complete, in any folder.
func TestStagedIsNotExecutable(t *testing.T) {
	l := newLab(t)
	looked := 0
	l.opts.host.before = func(op, path string) error {
		if info, err := os.Lstat(path); err == nil && (op == "write" || op == "chmod") {
			if looked++; info.Mode()&0o111 != 0 {
				t.Errorf("before %s, %s is %s", op, path, info.Mode())
			}
		}
		return nil
	}
	l.mustInstall()
	if looked < 4 {
		t.Errorf("looked at %d files", looked)
	}
}
