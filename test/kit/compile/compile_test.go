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
	for _, line := range []string{
		"NOT_INLINED := " + strings.Join(compile.NotInlined, " "),
		"export GOFLAGS := $(strip $(GOFLAGS) " + strings.Join(compile.Flags()[:3], " ") +
			" $(foreach p,$(NOT_INLINED),'-gcflags=$(p)=-dwarf=false -l'))",
	} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the Makefile lacks this line:\n%s", line)
		}
	}
}
