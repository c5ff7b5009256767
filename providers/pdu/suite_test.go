package pdu_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/pdu"
	"github.com/forcefence/forcefence/providers/providertest"
)

// The machine hangs on one outlet of each of two strips, both behind a network that can fail.
func TestConformance(t *testing.T) {
	for mib := range pdu.Dialects {
		t.Run(mib, func(t *testing.T) { suite(t, mib, nil) })
	}
}

func TestConformanceV2c(t *testing.T) {
	suite(t, "apc-rpdu2", func(c *pdu.Config) {
		c.Version, c.Username, c.PrivacyPasswordFile = "v2c", "", ""
		must(t, os.WriteFile(c.PasswordFile, []byte(community), 0o600))
	})
}

func suite(t *testing.T, mib string, edit func(*pdu.Config)) {
	without := map[providertest.Fault]string{providertest.OtherMachine: "a strip does not know what is plugged in"}
	if edit != nil {
		without[providertest.Denied] = "an agent does not answer to a community that it does not know"
	}
	if (socket{d: pdu.Dialects[mib]}).busy() == nil {
		without[providertest.StaysChanging] = "the MIB has no word for it"
	}
	noRequests := "SNMPv3 is encrypted: the suite with v2c records them"
	if edit != nil {
		noRequests = ""
	}
	a, b := strips(t)
	o := providertest.Options{Without: without, Timeout: timeout, NoProxy: "SNMP is asked over UDP",
		NoRequests: noRequests}
	o.New = func(t *testing.T) *providertest.Bench {
		c := settings(t, mib)
		if edit != nil {
			edit(c)
		}
		rightPassword, err := os.ReadFile(c.PasswordFile)
		must(t, err)
		first, second := a.outlet(mib), b.outlet(mib)
		var mu sync.Mutex
		// with the user's name, at one strip; each call has a socket of its own, and may repeat itself
		callers := map[string]bool{}
		var requests providertest.Requests
		counted := func(address string) func(asker, []byte) {
			return func(to asker, question []byte) {
				if _, pdu, ok := bytes.Cut(question, []byte(community)); ok {
					requests.Add(len(pdu) > 0 && pdu[0] == byte(gosnmp.SetRequest))
				}
				if address == a.address && bytes.Contains(question, []byte("fence")) {
					mu.Lock()
					callers[to.addr.String()] = true
					mu.Unlock()
				}
				through(address)(to, question)
			}
		}
		one, two := newWire(t, counted(a.address)), newWire(t, counted(b.address))
		wires, outlets := map[*wire]string{one: a.address, two: b.address}, []socket{first, second}
		closed := false
		bench := &providertest.Bench{
			LogIns:   func() int { mu.Lock(); defer mu.Unlock(); return len(callers) },
			Provider: open(t, c, nil),
			Target:   providers.Target{Node: "n1", ID: second.id(two.address) + ", " + first.id(one.address)},
			Missing:  providers.Target{Node: "n2", ID: one.address + "/" + first.d.Front + "9999"},
			Running:  func() bool { return first.on() || second.on() },
			SetPower: func(on bool) {
				for _, o := range outlets {
					o.reset(on)
				}
			},
			SetFault: func(f providertest.Fault) {
				for w, address := range wires {
					if closed {
						w.open()
					}
					switch f {
					case providertest.Silent:
						w.handle(func(asker, []byte) {})
					case providertest.Slow:
						w.handle(func(a asker, question []byte) {
							<-time.After(providertest.SlowBy)
							through(address)(a, question)
						})
					case providertest.Unreachable:
						w.close()
					default:
						w.handle(counted(address))
					}
				}
				closed = f == providertest.Unreachable
				right := string(rightPassword)
				if f == providertest.Denied {
					right = "incorrect" + right
				}
				must(t, os.WriteFile(c.PasswordFile, []byte(right), 0o600))
				for _, o := range outlets {
					off := o.columns(false)
					switch f {
					case providertest.StrangeWord:
						o.set(o.state(), 99)
						continue
					case providertest.StaysOn:
						off = nil
					case providertest.StaysChanging:
						off = o.busy()
					case providertest.NoFault:
						if file := readOutlet(o.s.dir, o.at(o.state())); file.Values[o.at(o.state())] == 99 {
							o.reset(false)
						}
					}
					o.edit(func(file *outletFile) {
						file.Sets[o.at(o.d.SetOff.OID)][fmt.Sprint(o.d.SetOff.Value)] = off
					})
				}
			},
		}
		if noRequests == "" {
			bench.Requests = requests.All
		}
		return bench
	}
	providertest.Suite(t, o)
}
