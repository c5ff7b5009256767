package fence

import (
	"testing"
	"time"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// takesOrders makes the first device one whose power-offs others carry out.
func takesOrders(v *View) { v.Facts.Devices[0].Orders = true }

// ordered names the order of the open fence in its record.
func ordered(v *View) {
	takesOrders(v)
	rec := v.Look.Record.WithOrders(proof.SpeakersOf(v.Facts.Devices[:1])...)
	v.Look.Record = &rec
}

// An order is in the record before it is given, also where the record names the device from an earlier fence.
func TestOrderIsNamedFirst(t *testing.T) {
	v := dead(powering, takesOrders, saying(providers.PowerOn, 100*time.Millisecond))
	d := Step(v)
	if rec := recordOf(d); !action.Is[action.WriteRecord](d) || len(rec.Orders) != 1 ||
		rec.Orders[0].Device != "rack-a/7" {
		t.Fatalf("got %s (%s) with orders %+v, want one to rack-a/7", kind(d), d.Reason, rec.Orders)
	}
	ordered(&v)
	if d := Step(v); !action.Is[action.PowerOff](d) {
		t.Errorf("named: got %s (%s), want the power-off", kind(d), d.Reason)
	}
	if d := Step(dead(powering, saying(providers.PowerOn, 100*time.Millisecond))); !action.Is[action.PowerOff](d) {
		t.Errorf("a device without orders: got %s (%s), want the power-off", kind(d), d.Reason)
	}
}

// Until others carry an order out, a pause, an exclusion and another mode are in time. Once the machine is off, or
// after a power-off that was really sent, they are too late.
func TestPendingOrderYields(t *testing.T) {
	const on, off = providers.PowerOn, providers.PowerOff
	observes := func(v *View) { v.Facts.Mode = Observe }
	pinless := func(v *View) { v.Facts.Devices[0].NoPower = "never pinned" }
	for _, tt := range []struct {
		name string
		view View
		want bool
	}{
		{"nothing changed", dead(powering, ordered, sent(time.Second), saying(on, 0)), false},
		{"excluded", dead(powering, ordered, sent(time.Second), saying(on, 0), excluded), true},
		{"excluded, no answer", dead(powering, ordered, sent(time.Second), excluded), true},
		{"observe", dead(powering, ordered, sent(time.Second), saying(on, 0), observes), true},
		{"never pinned", dead(powering, ordered, sent(time.Second), saying(on, 0), pinless), true},
		{"excluded, and off", dead(powering, ordered, sent(time.Second), saying(off, 0), excluded), false},
		{"excluded, sent", dead(powering, sent(time.Second), saying(on, 0), excluded), false},
		{"observe, sent", dead(powering, sent(time.Second), saying(on, 0), observes), false},
	} {
		d := Step(tt.view)
		if got := recordOf(d).Result == taint.ResultCancelled; got != tt.want {
			t.Errorf("%s: got %s (%s) %+v, want cancelled %v", tt.name, kind(d), d.Reason, recordOf(d), tt.want)
		} else if got && len(recordOf(d).Orders) != 1 {
			t.Errorf("%s: got orders %+v, want the one that is to be taken back", tt.name, recordOf(d).Orders)
		}
	}
}

// An order that could not be taken back yet is not lost with the next fence, although the node has shown life since.
func TestNextFenceKeepsOrders(t *testing.T) {
	earlier := func(v *View) {
		recorded(taint.PhaseDone, taint.ResultPowerOffFailed, time.Hour)(v)
		v.Look.Record.Orders = []taint.DeviceRef{{Device: "hosts/7"}}
	}
	for name, v := range map[string]View{
		"announced":   dead(earlier, saying(providers.PowerOn, 100*time.Millisecond)),
		"off":         dead(earlier, saying(providers.PowerOff, 100*time.Millisecond)),
		"alive since": dead(earlier, heartbeat, saying(providers.PowerOff, 100*time.Millisecond)),
	} {
		if got := names(recordOf(Step(v)).Orders); len(got) != 1 || got[0] != "hosts/7" {
			t.Errorf("%s: got orders to %v, want hosts/7", name, got)
		}
	}
}
