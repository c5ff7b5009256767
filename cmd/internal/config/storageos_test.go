package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/config/configtest"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// The adapter's drivers and the document's intervals hold where the file says nothing, and only a system that a policy
// asks is asked.
func TestStorageOS(t *testing.T) {
	cfg, err := config.Load("testdata/good/storageos.yaml", configtest.Types())
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Intervals{
		{Poll: 2 * time.Second, Expiry: 30 * time.Minute, Timeout: 10 * time.Second, Retry: time.Second},
		policy.StorageOSIntervals,
	}
	for i, r := range cfg.Settings("home").Policies {
		if diff := cmp.Diff(want[i], r.Intervals); diff != "" {
			t.Errorf("intervals of %s: -want +got:\n%s", r.Name, diff)
		}
		if r.When != policy.StorageUnhealthy || r.Storage != "pool" ||
			!cmp.Equal(r.Drivers, []string{"pool.example.net"}) || !r.Detach {
			t.Errorf("%s: got trigger %s of %q, drivers %v, detach %t", r.Name, r.When, r.Storage, r.Drivers, r.Detach)
		}
	}
	if asked := cfg.FollowedStorage(); len(asked) != 1 || asked[0].Name != "pool" {
		t.Errorf("asked: got %v, want the policies' alone", asked)
	}
}
