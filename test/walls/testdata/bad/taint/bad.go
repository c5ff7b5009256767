package taint

import (
	_ "golang.org/x/time/rate"
	_ "k8s.io/client-go/kubernetes"

	_ "github.com/forcefence/forcefence/taint/decide/fence"
)
