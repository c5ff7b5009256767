package redfish

import (
	_ "github.com/gosnmp/gosnmp"
	_ "github.com/stmcginnis/gofish/schemas"
	_ "golang.org/x/time/rate"
)
