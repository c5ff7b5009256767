package drain

import (
	"time"

	_ "k8s.io/client-go/dynamic"

	_ "github.com/forcefence/forcefence/taint/features/drain/drainguard"
)

var _ = time.Now
