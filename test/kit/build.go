package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildProgram builds a main package of this module, such as cmd/forcefence, without C and so without libraries: it
// may run in an image that holds nothing else. It returns the program, named as its folder, which goes with the test.
func BuildProgram(t testing.TB, pkg string) string {
	t.Helper()
	return BuildProgramOf(t, Root(t), "", pkg)
}

// BuildProgramOf is BuildProgram from the source of another version, which it will say that it is.
func BuildProgramOf(t testing.TB, root, version, pkg string) string {
	t.Helper()
	const flag = "-s -w -X github.com/forcefence/forcefence/cmd/internal/version.built="
	file := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-C", root, "-trimpath", "-ldflags", flag+version,
		"-o", file, "./"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	return file
}
