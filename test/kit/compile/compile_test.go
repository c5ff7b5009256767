package compile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/kit/compile"
)

// With other flags Go would compile all packages once more.
func TestMakefileHasFlags(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	kit.Must(t, err)
	var quoted []string
	for _, f := range compile.Flags {
		if strings.Contains(f, " ") {
			f = "'" + f + "'"
		}
		quoted = append(quoted, f)
	}
	want := "export GOFLAGS := $(strip $(GOFLAGS) " + strings.Join(quoted, " ") + ")\n"
	if !strings.Contains(string(text), "\n"+want) {
		t.Errorf("the Makefile lacks this line:\n%s", want)
	}
}
