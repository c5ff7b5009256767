package config_test

import (
	"fmt"
	"testing"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
)

// TestRemovedSettings: a setting of a provider that earlier versions had is refused with what applies now.
func TestRemovedSettings(t *testing.T) {
	t.Setenv("BMC_PASSWORD", "x")
	for setting, want := range map[string]string{
		"ec2: {regions: [eu-west-1], queues: ['https://sqs.eu-west-1.amazonaws.com/123456789012/q']}": "f:1: " +
			"providers[0].ec2.queues: this key was removed: EC2 is only asked",
		"ipmi: {username: u, passwordEnv: BMC_PASSWORD, traps: ':1162'}": "f:1: providers[0].ipmi.traps: this key " +
			"was removed: BMCs that speak IPMI are only asked",
	} {
		_, err := config.Parse("f", []byte("providers: [{name: a, "+setting+"}]\n"), all.Types())
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", setting, got, want)
		}
	}
}
