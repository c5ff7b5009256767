package install

import (
	"os"
	"path/filepath"
	"strings"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	point string
	kind  string // of the file system
	upper string // where an overlay keeps what was written, "" for none
}

// readMounts returns the host's mounts, as this process's root shows them. If they cannot be read there are none, and
// then every folder counts as one that lasts.
func (h Host) readMounts() []mount {
	text, _ := os.ReadFile(h.procFile("self/mountinfo"))
	var all []mount
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if len(place) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{point: unescape.Replace(place[4]), kind: kind[0]}
		for option := range strings.SplitSeq(kind[2], ",") {
			if dir, is := strings.CutPrefix(option, "upperdir="); is {
				m.upper = unescape.Replace(dir)
			}
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes what the kernel does to the characters that separate fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// isLost reports whether a folder's files are lost with the boot: they are in memory, or in an overlay that writes into
// memory. A missing folder counts as its parent.
func isLost(mounts []mount, dir string) bool {
	for range 8 { // overlays on overlays
		m := mountOf(mounts, resolve(dir))
		switch {
		case m.kind == "tmpfs" || m.kind == "ramfs":
			return true
		case m.kind != "overlay" || m.upper == "":
			return false
		}
		dir = m.upper
	}
	return false
}

// mountOf returns the mount that a path is on: the deepest, and of equal ones the last.
func mountOf(mounts []mount, path string) (on mount) {
	for _, m := range mounts {
		if (path == m.point || strings.HasPrefix(path, strings.TrimSuffix(m.point, "/")+"/")) &&
			len(m.point) >= len(on.point) {
			on = m
		}
	}
	return on
}

// resolve follows the links of a path as far as it exists.
func resolve(path string) string {
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
