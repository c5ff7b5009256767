package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/vsphere"
	"github.com/forcefence/forcefence/test/kit"
)

// brisk is a rhythm for tests.
func brisk(p *vsphere.Provider) {
	vsphere.SetRhythm(p, time.Second, 10*time.Millisecond, 100*time.Millisecond)
}

// next expects this report, and none before it.
func next(t testing.TB, reports <-chan string, want string) {
	t.Helper()
	if seen := providertest.AwaitReports(t, reports, want); len(seen) > 1 {
		t.Fatalf("got the reports %q before", seen)
	}
}

// TestWatch: VMs that do not run at the beginning are reported, and then each change. Changes of other VMs are not, nor
// of a VM that vCenter has lost.
func TestWatch(t *testing.T) {
	v := newVCenter(t, 4)
	vms := v.vms()
	n1, n2, n3, other := vms[0], vms[1], vms[2], vms[3]
	n1.power("poweredOff")
	n3.power("suspended")
	p := v.provider(t)
	vsphere.SetPage(p, 2) // what is there at the beginning comes in two parts
	named := func(m vm, node, id string) providers.Target {
		return providers.Target{Node: node, ID: id, SystemUUID: m.Config.Uuid}
	}
	u, _ := providers.ParseUUID(n2.Config.Uuid)
	brisk(p)
	reports, stop := providertest.StartWatch(t, p, named(n1, "n1", ""), named(n3, "n3", "vsphere://"+n3.Config.Uuid),
		providers.Target{Node: "n2", SystemUUID: fmt.Sprintf("%x", providers.SwapUUID(u))},
		providers.Target{Node: "unknown", SystemUUID: anotherUUID}, providers.Target{Node: "nothing"})
	providertest.AwaitReports(t, reports, "n1 Off event: poweredOff", "n3 On event: suspended")
	other.power("poweredOff")
	n2.power("poweredOff")
	next(t, reports, "n2 Off event: poweredOff")
	n1.power("poweredOn")
	next(t, reports, "n1 On event: poweredOn")

	// vCenter loses the VM, whose last known word changes meanwhile, and finds it again.
	n1.set("runtime.connectionState", types.VirtualMachineConnectionStateDisconnected)
	n1.power("poweredOff")
	n2.power("poweredOn")
	next(t, reports, "n2 On event: poweredOn")
	n1.set("runtime.connectionState", types.VirtualMachineConnectionStateConnected)
	next(t, reports, "n1 Off event: poweredOff")

	// It goes, and another comes with its UUID.
	uuid := n1.Config.Uuid
	ctx := v.model.Service.Context
	ctx.WithLock(n1.VirtualMachine, func() { n1.UnregisterVM(ctx, &types.UnregisterVM{This: n1.Self}) })
	other.set("config.uuid", uuid)
	other.power("suspended")
	next(t, reports, "n1 Off event: poweredOff") // as which it comes to our knowledge
	next(t, reports, "n1 On event: suspended")

	// The session ends, and the VM's power is cut before the next one.
	v.endSessions()
	n2.power("poweredOff")
	providertest.AwaitReports(t, reports, "n2 Off event: poweredOff", "n1 On event: suspended",
		"n3 On event: suspended")
	v.count("WaitForUpdatesEx")
	kit.Until(t, "nothing happens, and it is asked again", func() bool { return v.count("WaitForUpdatesEx") > 0 })
	stop()
	if n := v.count("DestroyPropertyCollector"); n == 0 {
		t.Error("the property collector was not given back")
	}
}

// A vCenter that is not reached, or lets us not in, is tried again; a refused password is not sent again.
func TestWatchIsPatient(t *testing.T) {
	v := newVCenter(t, 1)
	m := v.vms()[0]
	m.power("poweredOff")
	p := v.provider(t)
	v.setPassword("another")
	brisk(p)
	reports, _ := providertest.StartWatch(t, p, m.target())
	logins := 0
	kit.Until(t, "a log-in", func() bool { logins += v.count("Login"); return logins == 1 })
	v.write(t, "password", []byte("another"))
	next(t, reports, m.Name+" Off event: poweredOff")
	if n := v.count("Login"); n != 1 {
		t.Errorf("%d log-ins more, want 1", n)
	}
	v.setFault(providertest.Unreachable)
	v.count("CreatePropertyCollector")
	m.power("poweredOn")
	m.power("poweredOff")
	tried := 0
	kit.Until(t, "the watch tries again", func() bool { tried += v.count("CreatePropertyCollector"); return tried > 3 })
	v.setFault(providertest.NoFault)
	next(t, reports, m.Name+" Off event: poweredOff")
	m.power("poweredOn")
	next(t, reports, m.Name+" On event: poweredOn")

	shut(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := p.Watch(ctx, nil, nil); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("after Close: got %v", err)
	}
}
