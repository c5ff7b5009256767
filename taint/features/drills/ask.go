package drills

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/controller"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/machine"
	"github.com/forcefence/forcefence/taint/view/drill"
)

// AskDevices asks every device of the node, all at once, each for as long as it may take. distrustedBy returns the node
// whose record makes a device untrusted; "" for none. It blocks for the devices alone, and may be repeated.
func AskDevices(
	ctx context.Context, config *controller.Config, node *corev1.Node, distrustedBy func(machine.Machine) string,
	now func() providers.Instant,
) drill.Facts {
	rec, _ := taint.RecordOf(node) // one that cannot be read leads nowhere
	mode := config.Mode(node)
	if mode.Mode == fence.Disabled {
		return drill.Facts{Disabled: cmp.Or(mode.By, "mode disabled")}
	}
	m, err := config.Machines.FindMachine(node, rec)
	s := drill.Facts{
		NoDeviceErr: err, NotBelieved: errors.Is(err, machine.ErrNotBelieved),
		PowerOff: mode.Mode.MayPowerOff() || mode.Mode == fence.Shadow, Shadow: mode.Mode == fence.Shadow,
	}
	if fence.IsVMHost(node.Labels) && !config.Fence.VMHosts {
		s.KeptOn = "it is a host of KubeVirt (stormGuard.kubeVirtHosts: never)"
	}
	s.Before = taint.Condition(node, taint.FenceableCondition).Status
	if err != nil {
		return s
	}
	if taint.Condition(node, corev1.NodeReady).Status == corev1.ConditionTrue {
		if _, b, _ := config.Machines.FindBelieved(node, rec, true); b.Pin != "" {
			m.NoPower = "" // its pin is about to be written
		}
	}
	devices := m.Devices()
	s.Devices = make([]drill.Device, len(devices))
	answers := make([]providers.Answer, len(devices))
	var wait sync.WaitGroup
	for i, d := range devices {
		wait.Go(func() {
			begun := time.Now() // the protocol's clock does not matter here
			a := providers.Ask(providers.ForDrill(ctx), d.Provider, d.Name, d.Target, now)
			s.Devices[i] = drill.Device{
				Name: d.Device, Target: d.Target, NoPower: d.NoPower, Feeds: d.Feeds, FalseOff: distrustedBy(d),
				Answer: a, SameUUID: d.Clash.SameUUID,
				Duration: time.Since(begun),
			}
			if answers[i] = a; s.Devices[i].FalseOff != "" {
				answers[i] = proof.WithoutOff(a)
			}
		})
	}
	wait.Wait()
	all := s.Devices
	s.Devices = nil
	for i, d := range all { // a person who does not answer is no failure if a device does
		if !devices[i].Quiet || d.Answer.Err != nil || m.AllQuiet() {
			s.Devices = append(s.Devices, d)
		}
	}
	s.Verdict = m.VerdictOf(answers)
	return s
}
