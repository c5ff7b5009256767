package sharing

import (
	_ "log"

	_ "k8s.io/api/core/v1"

	_ "github.com/forcefence/forcefence/providers"
)
