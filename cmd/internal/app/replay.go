package app

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/replay"
)

// errNoDevices stops any question to a device: a recording has only recorded answers.
var errNoDevices = errors.New("a recording asks no device")

// LoadForReplay reads what a configuration file says about the nodes of a recording. It makes no provider, and files
// that settings name need not exist.
func LoadForReplay(file string, types providers.Registry) (*replay.OtherConfig, error) {
	cfg, err := config.Load(file, types, config.SkipFiles())
	if err != nil {
		return nil, err
	}
	conf := configOf(cfg, "")
	conf.Machines = machine.Finder{
		Led: func(*corev1.Node) (machine.Machine, error) { return machine.Machine{}, errNoDevices },
		Recorded: func(*corev1.Node, taint.MachineRef) (machine.Machine, error) {
			return machine.Machine{}, errNoDevices
		},
	}
	return &replay.OtherConfig{
		Facts: func(node *corev1.Node, l taint.Look, now time.Time) decide.Facts {
			facts, _ := conf.FactsOf(node, l, now)
			return facts
		},
		Policies: conf.Policies, Limits: conf.Limits, EvictFirst: conf.EvictFirst,
	}, nil
}
