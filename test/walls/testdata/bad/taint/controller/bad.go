package controller

import (
	_ "os"

	_ "github.com/forcefence/forcefence/providers/redfish"
	_ "github.com/forcefence/forcefence/taint/features/drain/drainguard"
)
