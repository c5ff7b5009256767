package all_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
)

func TestTypes(t *testing.T) {
	names := all.Types().TypeNames()
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("two types share a name: %q", names)
	}
	chart, err := os.ReadFile("../../deploy/helm/forcefence/templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n" + strings.Join(names, ", ") + "\n"; !strings.Contains(string(chart), want) {
		t.Errorf("the chart's forcefence.providerTypes is not%s", want)
	}
	for _, ty := range all.Types() {
		a, b := ty.NewConfig(), ty.NewConfig()
		if a == b {
			t.Errorf("%s: two providers would share one configuration", ty.Name)
		}
		if _, ok := a.(providers.SharesPower); !ok {
			t.Errorf("%s does not declare whether its devices lose their power with the machine", ty.Name)
		}
		if ty.Name == "confirm" { // it asks no device, and uses no account
			continue
		}
		if len(a.Validate()) == 0 {
			t.Errorf("%s: the defaults alone are a valid configuration, so nothing says which device to ask", ty.Name)
		}
	}
}
