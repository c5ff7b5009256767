package pdu

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"

	"github.com/forcefence/forcefence/providers"
)

// integer is a value of a column.
func integer(n int) gosnmp.SnmpPDU { return gosnmp.SnmpPDU{Type: gosnmp.Integer, Value: n} }

// integers are what is tried: all that any MIB lists, their neighbours, and the bounds.
func integers() []int {
	all := []int{255, 256, 257, 65535, 65536, math.MaxInt32, math.MinInt32}
	for n := -5; n < 100; n++ {
		all = append(all, n)
	}
	return all
}

// findFaults returns where m differs from what the maker's MIB says. It tries every integer of every column.
func findFaults(m mib, d Dialect) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	columns := m.queryColumns()
	if len(columns) != len(d.Columns) {
		return []string{fmt.Sprintf("has %d columns, want %d", len(columns), len(d.Columns))}
	}
	off := make([]gosnmp.SnmpPDU, len(columns))
	for i, want := range d.Columns {
		off[i] = integer(want.Off[0])
		if got := columns[i]; got.oid != "."+want.OID || got.name == "" {
			fault("column %d is %q at %s, want %s", i, got.name, got.oid, want.OID)
		}
	}
	for i, c := range d.Columns {
		for _, n := range integers() {
			want := providers.PowerUnknown
			switch {
			case slices.Contains(c.Off, n):
				want = providers.PowerOff
			case slices.Contains(c.On, n):
				want = providers.PowerOn
			case slices.Contains(c.Changing, n):
				want = providers.PowerChanging
			}
			values := slices.Clone(off)
			values[i] = integer(n)
			if got := m.outletState(values); got.state != want || got.word == "" {
				fault("%s %d: got %s (%q), want %s", columns[i].name, n, got.state, got.word, want)
			}
		}
		for _, v := range []gosnmp.SnmpPDU{
			{Type: gosnmp.Null}, {Type: gosnmp.Integer}, {Type: gosnmp.Gauge32, Value: uint(max(c.Off[0], 0))},
			{Type: gosnmp.Gauge32, Value: c.Off[0]}, {Type: gosnmp.OctetString, Value: []byte("off")},
			{Type: gosnmp.Boolean, Value: false}, {Type: gosnmp.Counter64, Value: uint64(1)},
		} {
			values := slices.Clone(off)
			values[i] = v
			if got := m.outletState(values); got.state != providers.PowerUnknown {
				fault("%s %s %v: got %s, want Unknown", columns[i].name, v.Type, v.Value, got.state)
			}
		}
	}
	for got, want := range map[command]Setting{m.setOff: d.SetOff, m.setOn: d.SetOn} {
		if got.oid != "."+want.OID || got.value != want.Value {
			fault("the command is %d at %s, want %d at %s", got.value, got.oid, want.Value, want.OID)
		}
	}
	if number, err := m.parseNumber(d.Front + "7"); err != nil || number != d.Front+"7" {
		fault("outlet %s7: got %q, %v", d.Front, number, err)
	}
	return faults
}

// Every integer of every MIB has the meaning that the maker's own file gives it, and none beside it is off.
func TestMIBs(t *testing.T) {
	if got, want := joinKeys(mibs), joinKeys(Dialects); got != want {
		t.Errorf("got MIBs %s, want %s", got, want)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mibs {
		for _, fault := range findFaults(m, Dialects[name]) {
			t.Errorf("%s: %s", name, fault)
		}
		row := fmt.Sprintf("| `%s` | %s |", name, m.strips)
		if m.strips == "" || !strings.Contains(string(readme), row) {
			t.Errorf("%s: README.md has no row %s", name, row)
		}
		for _, c := range m.queryColumns() {
			seen := map[int]bool{}
			for _, of := range []words{c.off, c.on, c.changing, c.unknown} {
				for n, word := range of {
					if seen[n] || word == "" {
						t.Errorf("%s: %s: %d is listed twice, or has no word", name, c.name, n)
					}
					seen[n] = true
				}
			}
		}
	}
}

// TestMIBs finds each single mistake in the tables.
func TestMutatedMIBs(t *testing.T) {
	for name, m := range mibs {
		check := func(what string, mutated mib) {
			t.Helper()
			if len(findFaults(mutated, Dialects[name])) == 0 {
				t.Errorf("%s: %s: no fault was found", name, what)
			}
		}
		for i := range m.queryColumns() {
			// mutate changes a copy of column i.
			mutate := func(change func(c *column)) mib {
				m := m
				m.vetoes = slices.Clone(m.vetoes)
				c := &m.state
				if i > 0 {
					c = &m.vetoes[i-1]
				}
				c.off, c.on, c.changing = maps.Clone(c.off), maps.Clone(c.on), maps.Clone(c.changing)
				for _, of := range []*words{&c.off, &c.on, &c.changing} {
					if *of == nil {
						*of = words{}
					}
				}
				change(c)
				return m
			}
			c := m.queryColumns()[i]
			for n := -2; n < 30; n++ {
				if _, off := c.off[n]; off {
					check(fmt.Sprintf("%s: %d is not off", c.name, n), mutate(func(c *column) { delete(c.off, n) }))
				} else {
					check(fmt.Sprintf("%s: %d is off", c.name, n), mutate(func(c *column) { c.off[n] = "off" }))
				}
			}
			for n := range c.changing {
				check(fmt.Sprintf("%s: %d is not changing", c.name, n),
					mutate(func(c *column) { delete(c.changing, n) }))
			}
			check(c.name+": another column", mutate(func(c *column) { c.oid += "0" }))
			if i == 0 {
				check(c.name+": on and off are exchanged", mutate(func(c *column) { c.on, c.off = c.off, c.on }))
				continue
			}
			without := m
			without.vetoes = slices.Delete(slices.Clone(m.vetoes), i-1, i)
			check(c.name+" is not asked", without)
		}
		exchanged := m
		exchanged.setOff, exchanged.setOn = m.setOn, m.setOff
		check("commands are exchanged", exchanged)
	}
}

// An outlet that is off is Unknown if one veto is, whatever the others are, and Changing before it is Off.
func TestVetoes(t *testing.T) {
	m := mibs["servertech-sentry4"]
	for _, tt := range []struct {
		state, status, control int
		want                   providers.PowerState
		word                   string
	}{
		{2, 0, 10, providers.PowerOff, "off"},
		{2, 0, 12, providers.PowerChanging, "off, reboot"},
		{2, 10, 12, providers.PowerUnknown, "off, noComm"},
		{2, 10, 10, providers.PowerUnknown, "off, noComm"},
		{2, 0, 14, providers.PowerUnknown, "off, lockedOff"},
		{2, 0, 11, providers.PowerUnknown, "off, control on"},
		{2, 0, 20, providers.PowerUnknown, "off, st4OutletControlState 20"},
		{1, 0, 10, providers.PowerOn, "on"}, // the last command was off: the state counts
		{0, 0, 10, providers.PowerUnknown, "unknown"},
	} {
		got := m.outletState([]gosnmp.SnmpPDU{integer(tt.state), integer(tt.status), integer(tt.control)})
		if got != (outletAnswer{tt.want, tt.word}) {
			t.Errorf("%d %d %d: got %s (%q), want %s (%q)", tt.state, tt.status, tt.control, got.state, got.word,
				tt.want, tt.word)
		}
	}
}
