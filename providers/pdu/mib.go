package pdu

import (
	"fmt"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
)

// mib describes one maker's strips: the columns of an outlet's state and command, which its number follows, and their
// values.
type mib struct {
	state   string       // the column of the relay's state
	off, on int          // its values
	pending string       // the column of a pending command; "": there is none
	idle    int          // its value for none
	busy    int          // its value for one
	command string       // the column that is set
	numbers numberFormat // how outlets are numbered
	// cycle is how long outlets are off in a power cycle that no column reports, by the maker's default; 0: a column
	// reports it.
	cycle time.Duration

	commandOff, commandOn int // its values for an immediate command
}

// numberFormat is how many numbers identify an outlet.
type numberFormat uint8

const (
	oneNumber  numberFormat = iota // 7
	twoNumbers                     // strip.outlet behind one address, 1.7; 7 is 1.7
)

// mibs are the tables of PowerNet-MIB (rPDU2OutletSwitchedStatusTable and rPDU2OutletSwitchedControlTable;
// rPDUOutletStatusTable and rPDUOutletControlTable) and PDU2-MIB (outletSwitchControlTable). APC's rPDU2 numbers on and
// off differently in states and in commands.
var mibs = map[string]mib{
	"apc-rpdu2": {
		state: ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.5", off: 1, on: 2,
		pending: ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.6", busy: 1, idle: 2,
		command: ".1.3.6.1.4.1.318.1.1.26.9.2.4.1.5", commandOn: 1, commandOff: 2,
	},
	"apc-rpdu": {
		state: ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4", on: 1, off: 2,
		pending: ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.5", busy: 1, idle: 2,
		command: ".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", commandOn: 1, commandOff: 2,
	},
	"raritan": {
		state: ".1.3.6.1.4.1.13742.6.4.1.2.1.3", on: 7, off: 8,
		command: ".1.3.6.1.4.1.13742.6.4.1.2.1.2", commandOff: 0, commandOn: 1,
		numbers: twoNumbers, cycle: 10 * time.Second, // globalOutletPowerCyclingPowerOffPeriod, 1 s to 1 h
	},
}

// queryColumns returns the columns of a question for an outlet, in this order.
func (m mib) queryColumns() []string {
	if m.pending == "" {
		return []string{m.state}
	}
	return []string{m.state, m.pending}
}

// outletAnswer is an outlet's state, and the strip's word for it.
type outletAnswer struct {
	state providers.PowerState
	word  string
}

// outletState evaluates an outlet's columns, in the order of queryColumns. Off is returned nowhere else. An outlet that
// is off with a command pending may come on by itself, in the middle of a reboot. One that is on may be switched off.
func (m mib) outletState(values []gosnmp.SnmpPDU) outletAnswer {
	state, whole := integerValue(values[0])
	switch {
	case whole && state == m.on:
		return outletAnswer{providers.PowerOn, "on"}
	case whole && state == m.off:
	default:
		return outletAnswer{providers.PowerUnknown, valueText(values[0])}
	}
	if m.pending == "" {
		return outletAnswer{providers.PowerOff, "off"}
	}
	pending, whole := integerValue(values[1])
	switch {
	case whole && pending == m.idle:
		return outletAnswer{providers.PowerOff, "off"}
	case whole && pending == m.busy:
		return outletAnswer{providers.PowerChanging, "off, command pending"}
	default:
		return outletAnswer{providers.PowerUnknown, "off, pending " + valueText(values[1])}
	}
}

// integerValue returns an INTEGER, the only type of these columns.
func integerValue(v gosnmp.SnmpPDU) (int, bool) {
	n, whole := v.Value.(int)
	return n, whole && v.Type == gosnmp.Integer
}

// valueText returns an unknown value as text for a user.
func valueText(v gosnmp.SnmpPDU) string {
	if n, whole := integerValue(v); whole {
		return fmt.Sprintf("%d", n)
	}
	return v.Type.String()
}
