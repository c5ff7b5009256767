package ipmi_test

import (
	"os"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/limiter"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/ipmisim"
)

// refusals is how many in a row it takes until a credential is not sent again: any sender can forge one.
const refusals = 2

var without = map[providertest.Fault]string{providertest.StaysChanging: "a chassis is on or off"}

const noProxy = "it is reached over UDP"

// TestConformance runs against OpenIPMI's simulator in front of a QEMU, behind the limiter, as in production; a proxy
// between them and the provider makes the faults.
func TestConformance(t *testing.T) {
	sim := ipmisim.New(t, ipmisim.Options{})
	right, err := os.ReadFile(sim.PasswordFile())
	must(t, err)
	providertest.Suite(t, providertest.Options{
		Timeout: timeout, Settle: timeout, Without: without, NoProxy: noProxy, Refusals: refusals,
		NoRequests: "its packets are encrypted; the suite on the other BMC has them",
		// The simulator has one GUID, and no ACPI power state: the suite on the other BMC has these.
		Elsewhere: []providertest.Fault{providertest.OtherMachine, providertest.StrangeWord},
		New: func(t *testing.T) *providertest.Bench {
			must(t, sim.SetPower(t.Context(), true))
			x := newProxy(t, sim.Address())
			file := passwordFile(t, string(right))
			p, _ := openProvider(t, file, inSuite3)
			return &providertest.Bench{
				Provider: limiter.New(p,
					limiter.Options{Name: "rack-a", Type: "ipmi", Timeout: timeout, Rate: 1000, Burst: 1000}),
				Target:   providers.Target{Node: "n1", ID: x.address(), SystemUUID: sim.UUID()},
				Missing:  providers.Target{Node: "n2"},
				Running:  sim.Running,
				LogIns:   x.logins,
				SetPower: func(on bool) { must(t, sim.SetPower(t.Context(), on)) },
				SetFault: func(f providertest.Fault) {
					must(t, sim.Ignore(f == providertest.StaysOn))
					password := right
					if f == providertest.Denied {
						password = []byte("wrong")
					}
					must(t, os.WriteFile(file, password, 0o600))
					x.set(f)
				},
			}
		},
	})
}

// TestConformanceSuite17 is the same with cipher suite 17 and the faults that need a BMC of software.
func TestConformanceSuite17(t *testing.T) {
	const right = "correct horse batter" // as long as IPMI allows
	providertest.Suite(t, providertest.Options{
		Timeout: timeout, Settle: timeout, Without: without, NoProxy: noProxy, Refusals: refusals,
		New: func(t *testing.T) *providertest.Bench {
			s := newSoft(t, right)
			x := newProxy(t, s.address)
			file := passwordFile(t, right)
			p, _ := openProvider(t, file, nil)
			return &providertest.Bench{
				Provider: p,
				Target:   providers.Target{Node: "n1", ID: "ipmi://" + x.address(), SystemUUID: machineUUID},
				Missing:  providers.Target{Node: "n2", ID: "https://10.0.0.7"},
				LogIns:   x.logins,
				Requests: s.requests,
				Running:  func() bool { on, _ := s.PowerState(t.Context()); return on },
				SetPower: func(on bool) { s.edit(func() { s.on = on }) },
				SetFault: func(f providertest.Fault) {
					s.edit(func() {
						s.ignore, s.acpi, s.guid = f == providertest.StaysOn, nil, unhex(t, machineUUID)
						switch f {
						case providertest.StrangeWord:
							s.acpi = []byte{0x55, 0}
						case providertest.OtherMachine:
							s.guid[0]++
						}
					})
					password := right
					if f == providertest.Denied {
						password = "wrong"
					}
					must(t, os.WriteFile(file, []byte(password), 0o600))
					x.set(f)
				},
			}
		},
	})
}
