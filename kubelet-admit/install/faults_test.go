package install

import (
	"os"
	"path/filepath"
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

// TestStagedIsSyncedFirst checks that a file is synced before it gets its place, and its folder after that: a power cut
// leaves no empty plugin.
func TestStagedIsSyncedFirst(t *testing.T) {
	l := newLab(t)
	synced, renamed := map[string]bool{}, 0
	last := map[string]string{} // the last change of a path
	l.opts.host.before = func(op, path string) error {
		if strings.HasPrefix(path, l.path("run")) { // in memory: what it says ends with the boot
			return nil
		}
		switch op {
		case "write":
			synced[filepath.Base(path)] = false
		case "sync":
			synced[filepath.Base(path)] = true
		case "rename":
			if renamed++; !synced[filepath.Base(path)] {
				t.Errorf("%s gets its place before it was synced", path)
			}
			last[filepath.Dir(path)] = op
		}
		if _, waits := last[path]; waits && op == "sync" {
			last[path] = op
		}
		return nil
	}
	l.mustInstall()
	if renamed < 2 {
		t.Errorf("got %d files put in place, want the plugin and its configuration at least", renamed)
	}
	for dir, op := range last {
		if op != "sync" {
			t.Errorf("%s: its last change is a %s, want it synced after that", dir, op)
		}
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
