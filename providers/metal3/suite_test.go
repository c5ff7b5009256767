package metal3_test

import (
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/datacenter"
)

func TestConformance(t *testing.T) {
	for _, by := range []metal3.PowerOff{metal3.PowerOffRequest, metal3.PowerOffDetach} {
		t.Run(string(by), func(t *testing.T) {
			o := providertest.Options{NoProxy: "the types redfish and kubevirt have it, with the same transports"}
			if by == metal3.PowerOffRequest {
				o.Without = map[providertest.Fault]string{
					providertest.StaysChanging: "the BMC is sent no power-off, which it could leave undone",
				}
			}
			o.New = func(t *testing.T) *providertest.Bench { return newBench(t, by) }
			providertest.Suite(t, o)
		})
	}
}

// newBench returns a bench whose faults are the BMC's. The baremetal-operator does not act with the fault StaysOn.
func newBench(t *testing.T, by metal3.PowerOff) *providertest.Bench {
	s := newSite(t, datacenter.Options{})
	missing := s.target()
	missing.Node, missing.ID = "n2", "metal3/host-2"
	c := s.cfg
	c.PowerOff = by
	return &providertest.Bench{
		Provider: metal3.New(c, providers.Options{Name: "hosts"}),
		Target:   s.target(),
		Missing:  missing,
		Running:  s.m.Running,
		Requests: s.requests,
		LogIns: func() (n int) {
			for _, r := range s.bmc.Requests() {
				if r.Password {
					n++
				}
			}
			return n
		},
		SetPower: func(on bool) {
			kept := any(nil)
			if !on && by == metal3.PowerOffRequest { // else Metal3 would power it on
				kept = `{"mode":"hard"}`
			}
			s.edit(nil, "metadata", "annotations")
			s.edit(kept, "metadata", "annotations", reboot)
			if on {
				s.m.PowerOn()
			} else {
				s.m.CutPower()
			}
		},
		SetFault: func(f providertest.Fault) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.runs = f != providertest.StaysOn || by == metal3.PowerOffDetach
			s.bmc.SetFault(map[providertest.Fault]datacenter.Fault{
				providertest.Unreachable:   {Drop: true},
				providertest.Silent:        {Silent: true},
				providertest.Slow:          {Delay: providertest.SlowBy},
				providertest.StaysOn:       {StaysOn: true},
				providertest.StaysChanging: {StaysPoweringOff: true},
				providertest.StrangeWord:   {PowerWord: "Dozing"},
				providertest.OtherMachine:  {SystemUUID: "11111111-2222-4333-8444-555555555555"},
				providertest.Flood:         {Flood: 16},
			}[f])
			switch f {
			case providertest.Denied:
				s.dc.SetPassword("changed-" + s.dc.Password())
				s.bmc.ExpireSessions()
			case providertest.NoFault:
				s.secret["password"] = []byte(s.dc.Password())
			}
		},
	}
}
