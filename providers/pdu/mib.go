package pdu

import (
	"fmt"
	"slices"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
)

// mib describes the tables of one MIB: the columns of an outlet's state and commands, which its number follows.
type mib struct {
	strips string // which strips have it
	index  string // the numbers of an outlet, as unit.outlet; "": one number
	unit   string // the first of them if an ID leaves it out; "": no ID may
	state  column
	// vetoes are asked together with the state. An outlet that is off is Off only if each of them agrees.
	vetoes        []column
	setOff, setOn command // immediate ones
	// cycle is how long outlets are off in a power cycle that no column reports for certain, by the maker's default; 0:
	// a column reports it.
	cycle time.Duration
}

// column is a column of integers. An integer is in one of its words at most; any other is unknown.
type column struct {
	name, oid string
	// what the integers mean. In a veto, off are those that agree with an outlet that is off.
	off, on, changing, unknown words
}

// words are the names of a column's integers.
type words map[int]string

// command is what switches an outlet: a column and the value that it is set to.
type command struct {
	oid   string
	value int
}

// queryColumns returns the columns of a question for an outlet, in this order.
func (m mib) queryColumns() []column { return slices.Concat([]column{m.state}, m.vetoes) }

// outletAnswer is an outlet's state, and the strip's word for it.
type outletAnswer struct {
	state providers.PowerState
	word  string
}

// outletState evaluates an outlet's columns, in the order of queryColumns. An outlet that is off may come on by itself,
// in the middle of a reboot, so an off needs every veto's agreement. One that is on may be switched off.
func (m mib) outletState(values []gosnmp.SnmpPDU) outletAnswer {
	state, word := m.state.readValue(values[0])
	answer := outletAnswer{state, word}
	if state != providers.PowerOff {
		return answer
	}
	for i, veto := range m.vetoes {
		switch agreed, reason := veto.readValue(values[1+i]); agreed {
		case providers.PowerOff:
		case providers.PowerChanging:
			if answer.state == providers.PowerOff {
				answer = outletAnswer{providers.PowerChanging, word + ", " + reason}
			}
		default:
			return outletAnswer{providers.PowerUnknown, word + ", " + reason}
		}
	}
	return answer
}

// readValue returns what a value means, and the MIB's word for it. Off is returned nowhere else.
func (c column) readValue(v gosnmp.SnmpPDU) (providers.PowerState, string) {
	n, whole := v.Value.(int)
	if !whole || v.Type != gosnmp.Integer { // the only type of these columns
		return providers.PowerUnknown, c.name + " " + v.Type.String()
	}
	for _, meaning := range []struct {
		state providers.PowerState
		words words
	}{{providers.PowerOff, c.off}, {providers.PowerOn, c.on}, {providers.PowerChanging, c.changing},
		{providers.PowerUnknown, c.unknown}} {
		if word, listed := meaning.words[n]; listed {
			return meaning.state, word
		}
	}
	return providers.PowerUnknown, fmt.Sprintf("%s %d", c.name, n)
}
