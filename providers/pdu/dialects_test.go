package pdu

// Column is a column as the maker's MIB has it, with what each integer must mean: one that is not here is unknown.
type Column struct {
	OID               string // of the column; an outlet's number follows
	Off, On, Changing []int
	WhileOn           int // what an outlet has that is on; of a state it is On's
}

// Dialect is a MIB, written down from the maker's own file and not from mibs.go. The first column is the state; the
// others must have an integer of their Off, or the outlet is not off.
type Dialect struct {
	Front         string // what an ID and an OID have before the outlet's number
	Columns       []Column
	SetOff, SetOn Setting
}

// Setting is a command: an integer for a column.
type Setting struct {
	OID   string
	Value int
}

// Dialects are all MIBs. The sources: PowerNet-MIB of 2016, CPS-MIB 2.13, EATON-EPDU-MIB of 2023-03-31,
// LIEBERT-GP-PDU-MIB, PDU2-MIB, PDU-MIB (Raritan), Sentry3-MIB of 2014-06-25, Sentry4-MIB of 2017-06-15, VERTIV-V5-MIB.
var Dialects = map[string]Dialect{
	"apc-rpdu2": {
		Columns: []Column{
			{OID: "1.3.6.1.4.1.318.1.1.26.9.2.3.1.5", Off: []int{1}, On: []int{2}},
			{OID: "1.3.6.1.4.1.318.1.1.26.9.2.3.1.6", Off: []int{2}, Changing: []int{1}, WhileOn: 2},
		},
		SetOff: Setting{"1.3.6.1.4.1.318.1.1.26.9.2.4.1.5", 2}, SetOn: Setting{"1.3.6.1.4.1.318.1.1.26.9.2.4.1.5", 1},
	},
	"apc-rpdu": {
		Columns: []Column{
			{OID: "1.3.6.1.4.1.318.1.1.12.3.5.1.1.4", Off: []int{2}, On: []int{1}},
			{OID: "1.3.6.1.4.1.318.1.1.12.3.5.1.1.5", Off: []int{2}, Changing: []int{1}, WhileOn: 2},
		},
		SetOff: Setting{"1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", 2}, SetOn: Setting{"1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", 1},
	},
	"cyberpower-epdu": {
		Columns: []Column{
			{OID: "1.3.6.1.4.1.3808.1.1.3.3.5.1.1.4", Off: []int{2}, On: []int{1}},
			{OID: "1.3.6.1.4.1.3808.1.1.3.3.5.1.1.5", Off: []int{2}, Changing: []int{1}, WhileOn: 2},
		},
		SetOff: Setting{"1.3.6.1.4.1.3808.1.1.3.3.3.1.1.4", 2}, SetOn: Setting{"1.3.6.1.4.1.3808.1.1.3.3.3.1.1.4", 1},
	},
	"cyberpower-epdu2": {
		Columns: []Column{
			{OID: "1.3.6.1.4.1.3808.1.1.6.6.1.4.1.5", Off: []int{2}, On: []int{1}},
			{OID: "1.3.6.1.4.1.3808.1.1.6.6.1.4.1.6", Off: []int{2}, Changing: []int{1}, WhileOn: 2},
		},
		SetOff: Setting{"1.3.6.1.4.1.3808.1.1.6.6.1.5.1.5", 2}, SetOn: Setting{"1.3.6.1.4.1.3808.1.1.6.6.1.5.1.5", 1},
	},
	"eaton-epdu": {
		Front: "0.",
		Columns: []Column{
			{OID: "1.3.6.1.4.1.534.6.6.7.6.6.1.2", Off: []int{0}, On: []int{1}, Changing: []int{2, 3}},
			{OID: "1.3.6.1.4.1.534.6.6.7.6.6.1.4", Off: []int{-1}, WhileOn: -1},
			{OID: "1.3.6.1.4.1.534.6.6.7.6.6.1.5", Off: []int{-1}, WhileOn: -1},
		},
		SetOff: Setting{"1.3.6.1.4.1.534.6.6.7.6.6.1.3", 0}, SetOn: Setting{"1.3.6.1.4.1.534.6.6.7.6.6.1.4", 0},
	},
	"liebert-mph2": {
		Front: "1.2.",
		Columns: []Column{
			{OID: "1.3.6.1.4.1.476.1.42.3.8.50.20.1.95", Off: []int{1}, On: []int{2}, Changing: []int{3}},
			{OID: "1.3.6.1.4.1.476.1.42.3.8.50.20.1.100", Off: []int{0}, Changing: []int{2}, WhileOn: 1},
			{OID: "1.3.6.1.4.1.476.1.42.3.8.50.20.1.210", Off: []int{1}, WhileOn: 1},
		},
		SetOff: Setting{"1.3.6.1.4.1.476.1.42.3.8.50.20.1.100", 0},
		SetOn:  Setting{"1.3.6.1.4.1.476.1.42.3.8.50.20.1.100", 1},
	},
	"raritan": {
		Front:   "1.",
		Columns: []Column{{OID: "1.3.6.1.4.1.13742.6.4.1.2.1.3", Off: []int{8}, On: []int{7}}},
		SetOff:  Setting{"1.3.6.1.4.1.13742.6.4.1.2.1.2", 0}, SetOn: Setting{"1.3.6.1.4.1.13742.6.4.1.2.1.2", 1},
	},
	"raritan-px1": {
		Columns: []Column{{OID: "1.3.6.1.4.1.13742.4.1.2.2.1.3", Off: []int{0}, On: []int{1}, Changing: []int{2}}},
		SetOff:  Setting{"1.3.6.1.4.1.13742.4.1.2.2.1.3", 0}, SetOn: Setting{"1.3.6.1.4.1.13742.4.1.2.2.1.3", 1},
	},
	"servertech-sentry3": {
		Front: "1.1.",
		Columns: []Column{
			{OID: "1.3.6.1.4.1.1718.3.2.3.1.5", Off: []int{0}, On: []int{1}, Changing: []int{2, 3}},
			{OID: "1.3.6.1.4.1.1718.3.2.3.1.10", Off: []int{4, 0, 2, 14}, Changing: []int{8, 9, 10, 11, 16, 17},
				WhileOn: 5},
		},
		SetOff: Setting{"1.3.6.1.4.1.1718.3.2.3.1.11", 2}, SetOn: Setting{"1.3.6.1.4.1.1718.3.2.3.1.11", 1},
	},
	"servertech-sentry4": {
		Front: "1.1.",
		Columns: []Column{
			{OID: "1.3.6.1.4.1.1718.4.1.8.3.1.1", Off: []int{2}, On: []int{1}},
			{OID: "1.3.6.1.4.1.1718.4.1.8.3.1.2", Off: []int{0}, WhileOn: 0},
			{OID: "1.3.6.1.4.1.1718.4.1.8.5.1.1", Off: []int{10, 2, 4, 16}, Changing: []int{8, 9, 12, 13, 18, 19},
				WhileOn: 11},
		},
		SetOff: Setting{"1.3.6.1.4.1.1718.4.1.8.5.1.2", 2}, SetOn: Setting{"1.3.6.1.4.1.1718.4.1.8.5.1.2", 1},
	},
	"vertiv-v5": {
		Columns: []Column{
			{OID: "1.3.6.1.4.1.21239.5.2.3.5.1.4", Off: []int{2}, On: []int{1}, Changing: []int{3, 4, 5, 6}},
			{OID: "1.3.6.1.4.1.21239.5.2.3.5.1.5", Off: []int{2}, WhileOn: 2},
		},
		SetOff: Setting{"1.3.6.1.4.1.21239.5.2.3.5.1.6", 4}, SetOn: Setting{"1.3.6.1.4.1.21239.5.2.3.5.1.6", 2},
	},
}
