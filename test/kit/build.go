package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forcefence/forcefence/test/kit/compile"
)

// BuildProgram builds a main package of this module, such as cmd/forcefence. It returns the program, named as its
// folder, which goes with the test.
func BuildProgram(t testing.TB, pkg string) string {
	t.Helper()
	return BuildProgramOf(t, Root(t), "", pkg)
}

// BuildProgramOf is BuildProgram from the source of another version, which it will say that it is.
func BuildProgramOf(t testing.TB, root, version, pkg string) string {
	t.Helper()
	const flag = "-s -w -X github.com/forcefence/forcefence/cmd/internal/version.built="
	file := filepath.Join(t.TempDir(), filepath.Base(pkg))
	GoBuild(t, root, "./"+pkg, file, "-ldflags", flag+version)
	return file
}

// GoBuild builds a main package of the module in dir, with the flags of `make build`: so Go has kept what the package
// imports. It builds without C and so without libraries: the program may run in an image that holds nothing else.
func GoBuild(t testing.TB, dir, pkg, file string, flags ...string) {
	t.Helper()
	args := slices.Concat([]string{"build"}, compile.Flags(), []string{"-o", file}, flags,
		[]string{pkg})
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
}
