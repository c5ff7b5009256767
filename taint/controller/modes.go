package controller

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint/decide/fence"
)

// ChooseMode returns what may be done about a node; machine is the mode of its machine.
func (p *Config) ChooseMode(node *corev1.Node, machine fence.Mode) fence.Chosen {
	if p.Mode == nil {
		return fence.Chosen{Mode: machine}
	}
	return p.Mode(node)
}
