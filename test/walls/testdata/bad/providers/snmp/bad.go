package snmp

import (
	_ "k8s.io/api/core/v1"

	_ "github.com/forcefence/forcefence/providers/ipmi"
)
