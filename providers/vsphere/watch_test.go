package vsphere_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/vsphere"
)

// watching runs a watch until the test ends, or stop is called, and returns what it tells: "node state word".
func watching(t testing.TB, p *vsphere.Provider, targets ...providers.Target) (tells <-chan string, stop func()) {
	t.Helper()
	vsphere.SetRhythm(p, time.Second, 10*time.Millisecond, 100*time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	ch, over := make(chan string, 1000), make(chan error, 1)
	go func() {
		over <- p.Watch(ctx, targets, func(of providers.Target, o providers.Observation) {
			ch <- fmt.Sprintf("%s %s %s", of.Node, o.State, o.Raw)
		})
	}()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-over:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch: got %v", err)
			}
		case <-time.After(timeout):
			t.Error("Watch does not return")
		}
	}
	t.Cleanup(stop)
	return ch, stop
}

// await wants this told, and nothing before.
func await(t testing.TB, tells <-chan string, want string) {
	t.Helper()
	select {
	case got := <-tells:
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(timeout):
		t.Fatalf("not told: %q", want)
	}
}

// awaitAll wants all of these told, in any order, whatever else is.
func awaitAll(t testing.TB, tells <-chan string, want ...string) {
	t.Helper()
	for deadline := time.After(timeout); len(want) > 0; {
		select {
		case got := <-tells:
			want = slices.DeleteFunc(want, func(w string) bool { return w == got })
		case <-deadline:
			t.Fatalf("not told: %q", want)
		}
	}
}

// until waits for a condition of the simulator.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestWatch: what does not run at the beginning is told, and then each change; another's is not, nor one of a VM that vCenter has lost.
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
	tells, stop := watching(t, p, named(n1, "n1", ""), named(n3, "n3", "vsphere://"+n3.Config.Uuid),
		providers.Target{Node: "n2", SystemUUID: fmt.Sprintf("%x", providers.SwapUUID(u))},
		providers.Target{Node: "unknown", SystemUUID: anotherUUID}, providers.Target{Node: "nothing"})
	awaitAll(t, tells, "n1 Off event: poweredOff", "n3 On event: suspended")
	other.power("poweredOff")
	n2.power("poweredOff")
	await(t, tells, "n2 Off event: poweredOff")
	n1.power("poweredOn")
	await(t, tells, "n1 On event: poweredOn")

	// vCenter loses the VM, whose last known word changes meanwhile, and finds it again.
	n1.set("runtime.connectionState", types.VirtualMachineConnectionStateDisconnected)
	n1.power("poweredOff")
	n2.power("poweredOn")
	await(t, tells, "n2 On event: poweredOn")
	n1.set("runtime.connectionState", types.VirtualMachineConnectionStateConnected)
	await(t, tells, "n1 Off event: poweredOff")

	// It goes, and another comes with its UUID.
	uuid := n1.Config.Uuid
	ctx := v.model.Service.Context
	ctx.WithLock(n1.VirtualMachine, func() { n1.UnregisterVM(ctx, &types.UnregisterVM{This: n1.Self}) })
	other.set("config.uuid", uuid)
	other.power("suspended")
	await(t, tells, "n1 Off event: poweredOff") // as which it comes to our knowledge
	await(t, tells, "n1 On event: suspended")

	// The session ends, and the VM's power while nobody listened.
	v.endSessions()
	n2.power("poweredOff")
	awaitAll(t, tells, "n2 Off event: poweredOff", "n1 On event: suspended", "n3 On event: suspended")
	v.count("WaitForUpdatesEx")
	until(t, "nothing happens, and it is asked again", func() bool { return v.count("WaitForUpdatesEx") > 0 })
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
	tells, _ := watching(t, p, m.target())
	logins := 0
	until(t, "a log-in", func() bool { logins += v.count("Login"); return logins == 1 })
	v.write(t, "password", []byte("another"))
	await(t, tells, m.Name+" Off event: poweredOff")
	if n := v.count("Login"); n != 1 {
		t.Errorf("%d log-ins more, want 1", n)
	}
	v.setFault(providertest.Unreachable)
	v.count("CreatePropertyCollector")
	m.power("poweredOn")
	m.power("poweredOff")
	tried := 0
	until(t, "the watch tries again", func() bool { tried += v.count("CreatePropertyCollector"); return tried > 3 })
	v.setFault(providertest.NoFault)
	await(t, tells, m.Name+" Off event: poweredOff")
	m.power("poweredOn")
	await(t, tells, m.Name+" On event: poweredOn")

	shut(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := p.Watch(ctx, nil, nil); !errors.Is(err, providers.ErrPermanent) {
		t.Errorf("after Close: got %v", err)
	}
}
