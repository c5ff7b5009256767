package providers

import (
	_ "golang.org/x/time/rate"

	_ "github.com/forcefence/forcefence/taint"
)
