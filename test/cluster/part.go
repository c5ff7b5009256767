package cluster

import "github.com/forcefence/forcefence/test/kit"

// Part is one process of the control plane, or beside it.
type Part = kit.Part

// NewPart describes a program that lives and ends as the control plane's parts do.
var NewPart = kit.NewPart
