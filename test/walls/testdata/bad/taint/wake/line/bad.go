package line

import (
	_ "golang.org/x/sys/unix"
	_ "k8s.io/api/core/v1"

	_ "github.com/forcefence/forcefence/taint"
)
