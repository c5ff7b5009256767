package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// What test/cluster/binaries and .ci/image tell the linker arrives in both programs. The linker does not report a
// variable that does not exist.
func TestLinkerTellsTheVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("links both programs")
	}
	var flags []string
	ours := regexp.MustCompile(`-X (github.com/forcefence/\S+)=`)
	for _, file := range []string{"test/cluster/binaries/recipes.go", ".ci/image/image.go"} {
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ours.FindAllStringSubmatch(string(text), -1) {
			flags = append(flags, m[1])
		}
	}
	if len(flags) != 2 || flags[0] != flags[1] {
		t.Fatalf("variables that the linker sets: got %q, want one, for both files", flags)
	}
	for _, program := range []string{"forcefence", "forcefence-node"} {
		bin := filepath.Join(t.TempDir(), program)
		kit.GoBuild(t, "", "../../"+program, bin, "-ldflags", "-X "+flags[0]+"=v9.8.7")
		out, err := exec.CommandContext(t.Context(), bin, "version").CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(got, "v9.8.7, go1.") {
			t.Errorf("%s version: got %q and %v, want v9.8.7 and Go's version", program, got, err)
		}
	}
}

// The formats of the command.
func TestFormat(t *testing.T) {
	for output, want := range map[string]string{
		"":     "v1.2.3, go1.26.0, linux/amd64\n",
		"json": "{\n  \"version\": \"v1.2.3\",\n  \"goVersion\": \"go1.26.0\",\n  \"platform\": \"linux/amd64\"\n}\n",
		"yaml": "version: \"v1.2.3\"\ngoVersion: go1.26.0\nplatform: linux/amd64\n",
		"wide": "",
	} {
		got, err := info{"v1.2.3", "go1.26.0", "linux/amd64"}.format(output)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("-o %q: got %q, %v, want %q", output, got, err, want)
		}
	}
}

// Without the linker's word it is what Go knows, and never empty.
func TestVersion(t *testing.T) {
	if String() == "" {
		t.Error("got an empty version")
	}
}
