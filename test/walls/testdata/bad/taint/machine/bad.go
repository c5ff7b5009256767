package machine

import (
	_ "log/slog"
	"time"

	_ "k8s.io/client-go/kubernetes"

	_ "github.com/forcefence/forcefence/taint/wake"
)

var _ = time.Now // it has a clock
