package drainguard

import (
	"time"

	_ "github.com/google/cel-go/cel"
	_ "k8s.io/client-go/dynamic"

	_ "github.com/forcefence/forcefence/taint/decide/fence"
)

var _ = time.Now // it has a clock
