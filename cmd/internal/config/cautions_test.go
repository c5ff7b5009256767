package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// check-config shows each setting that takes a check away, with its line and its risk.
func TestCautions(t *testing.T) {
	t.Setenv("PW", "12345678")
	const file = "providers:\n- name: racks\n  redfish:\n    username: u\n    passwordEnv: PW\n    %s\nnodes: []\n"
	for setting, risk := range map[string]string{
		"ignoreUUID: true": "which machine", "ignoreChassisPower: true": "counts as off",
		"ignoreStates: [UpdateStatus]": "counts as off",
		"allowOldTLS: true":            "TLS 1.0", "ignoreUUID: false": "",
	} {
		cfg, err := config.Parse("f", fmt.Appendf(nil, file, setting), all.Types())
		if err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(setting, ":")
		switch got := cfg.Warnings(); {
		case risk == "" && len(got) > 0:
			t.Errorf("%s: got %v", setting, got)
		case risk != "" &&
			(len(got) != 1 || got[0].Path != "providers[0].redfish."+path || got[0].Line != 6 ||
				!strings.Contains(got[0].Problem, risk)):
			t.Errorf("%s: got %v", setting, got)
		}
	}
}
