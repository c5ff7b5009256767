package vsphere_test

import (
	"testing"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/providers/vsphere"
)

const anotherUUID = "11111111-2222-4333-8444-555555555555"

// Both are behind the limiter, whose limits are what makes two hundred calls at once bearable on a slow machine. The
// first run is through the proxy. Its questions look the VM up; the other's are about too many VMs for that.
func TestConformance(t *testing.T) {
	t.Run("looked up", func(t *testing.T) {
		providertest.Suite(t, providertest.Options{New: func(t *testing.T) *providertest.Bench {
			return bench(t, true, func(p *vsphere.Provider) providers.Provider { return p })
		}})
	})
	t.Run("out of all", func(t *testing.T) {
		providertest.Suite(t,
			providertest.Options{NoProxy: "the other run has it", New: func(t *testing.T) *providertest.Bench {
				return bench(t, false, func(p *vsphere.Provider) providers.Provider { return many{p} })
			}})
	})
}

func bench(t *testing.T, proxy bool, with func(*vsphere.Provider) providers.Provider) *providertest.Bench {
	v := newVCenter(t, 2)
	m := v.vms()[0]
	words := map[bool]types.VirtualMachinePowerState{
		true: types.VirtualMachinePowerStatePoweredOn, false: types.VirtualMachinePowerStatePoweredOff,
	}
	uuid, on := m.Config.Uuid, true
	c := v.config()
	var network *providertest.Proxy
	if proxy {
		network = providertest.NewProxy(t, v.server.URL, providertest.ProxyOptions{HTTP: true})
		v.write(t, "ca.pem", network.CA())
		c.Address = "https://" + network.Addr()
	}
	return &providertest.Bench{
		Provider: limiter.New(with(open(t, c, nil)),
			limiter.Options{Name: "vc", Type: "vsphere", Rate: 1000, Burst: 1000}),
		Proxy:    network,
		LogIns:   v.allLogIns,
		Requests: v.requests.All,
		Target:   m.target(),
		Missing:  providers.Target{Node: "n2", SystemUUID: anotherUUID},
		Running:  func() bool { return m.word() != types.VirtualMachinePowerStatePoweredOff },
		SetPower: func(o bool) {
			on = o
			m.power(words[on])
		},
		SetFault: func(f providertest.Fault) {
			m.set("config.uuid", uuid)
			v.model.Map().Put(m.VirtualMachine)
			m.protect(false)
			switch f {
			case providertest.Denied:
				v.setPassword(v.password + "!")
				v.endSessions()
			case providertest.StaysOn:
				v.model.Map().Put(&stuck{m.VirtualMachine})
			case providertest.StaysChanging:
				m.protect(true)
				m.power(words[false])
			case providertest.StrangeWord:
				m.power("PoweredOff") // it is "poweredOff" that proves
			case providertest.OtherMachine:
				m.set("config.uuid", anotherUUID[:len(anotherUUID)-1]+"6")
			case providertest.NoFault:
				if m.word() == "PoweredOff" {
					m.power(words[on])
				}
				v.write(t, "password", []byte(v.password))
			}
			v.setFault(f)
		},
	}
}
