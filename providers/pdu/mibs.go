package pdu

import "time"

// mibs has an entry for each MIB. To add strips, take from their MIB the columns' OIDs and every integer that it lists.
// Only an integer under off is off. If its meaning is not certain, it belongs under unknown. Then add the MIB to the
// README, to deploy/examples/config-devices.yaml, to the comment of Config.MIB, and to Dialects, which the tests use.
var mibs = map[string]mib{
	// PowerNet-MIB. Its rPDU2 numbers on and off differently in states and in commands.
	"apc-rpdu2": {
		strips: "APC AP8000 series and later, AP7900B series",
		state: column{name: "rPDU2OutletSwitchedStatusState", oid: ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.5",
			off: words{1: "off"}, on: words{2: "on"}},
		vetoes: []column{{name: "rPDU2OutletSwitchedStatusCommandPending", oid: ".1.3.6.1.4.1.318.1.1.26.9.2.3.1.6",
			off: words{2: "no command pending"}, changing: words{1: "command pending"},
			unknown: words{3: "command pending unknown"}}},
		setOff: command{".1.3.6.1.4.1.318.1.1.26.9.2.4.1.5", 2}, setOn: command{".1.3.6.1.4.1.318.1.1.26.9.2.4.1.5", 1},
	},
	"apc-rpdu": {
		strips: "APC AP7900 series without a B",
		state: column{name: "rPDUOutletStatusOutletState", oid: ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4",
			off: words{2: "off"}, on: words{1: "on"}},
		vetoes: []column{{name: "rPDUOutletStatusCommandPending", oid: ".1.3.6.1.4.1.318.1.1.12.3.5.1.1.5",
			off: words{2: "no command pending"}, changing: words{1: "command pending"}}},
		setOff: command{".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", 2}, setOn: command{".1.3.6.1.4.1.318.1.1.12.3.3.1.1.4", 1},
	},
	// CPS-MIB. A strip with ePDU2 has ePDU, too, for its own outlets.
	"cyberpower-epdu": {
		strips: "CyberPower switched PDUs, without those linked behind them",
		state: column{name: "ePDUOutletStatusOutletState", oid: ".1.3.6.1.4.1.3808.1.1.3.3.5.1.1.4",
			off: words{2: "off"}, on: words{1: "on"}},
		vetoes: []column{{name: "ePDUOutletStatusCommandPending", oid: ".1.3.6.1.4.1.3808.1.1.3.3.5.1.1.5",
			off: words{2: "no command pending"}, changing: words{1: "command pending"}}},
		setOff: command{".1.3.6.1.4.1.3808.1.1.3.3.3.1.1.4", 2}, setOn: command{".1.3.6.1.4.1.3808.1.1.3.3.3.1.1.4", 1},
	},
	"cyberpower-epdu2": {
		strips: "CyberPower switched PDUs that can be linked",
		state: column{name: "ePDU2OutletSwitchedStatusState", oid: ".1.3.6.1.4.1.3808.1.1.6.6.1.4.1.5",
			off: words{2: "off"}, on: words{1: "on"}},
		vetoes: []column{{name: "ePDU2OutletSwitchedStatusCommandPending", oid: ".1.3.6.1.4.1.3808.1.1.6.6.1.4.1.6",
			off: words{2: "no command pending"}, changing: words{1: "command pending"}}},
		setOff: command{".1.3.6.1.4.1.3808.1.1.6.6.1.5.1.5", 2}, setOn: command{".1.3.6.1.4.1.3808.1.1.6.6.1.5.1.5", 1},
	},
	// EATON-EPDU-MIB. Commands have a column each, and their value is a delay. The columns count down, and are -1 if
	// idle. The MIB does not say which status an outlet has in the middle of a reboot.
	"eaton-epdu": {
		strips: "Eaton ePDU G2, G3 and later",
		index:  "unit.outlet", unit: "0",
		state: column{name: "outletControlStatus", oid: ".1.3.6.1.4.1.534.6.6.7.6.6.1.2",
			off: words{0: "off"}, on: words{1: "on"}, changing: words{2: "pendingOff", 3: "pendingOn"}},
		vetoes: []column{
			{name: "outletControlOnCmd", oid: ".1.3.6.1.4.1.534.6.6.7.6.6.1.4", off: words{-1: "idle"}},
			{name: "outletControlRebootCmd", oid: ".1.3.6.1.4.1.534.6.6.7.6.6.1.5", off: words{-1: "idle"}},
		},
		setOff: command{".1.3.6.1.4.1.534.6.6.7.6.6.1.3", 0}, setOn: command{".1.3.6.1.4.1.534.6.6.7.6.6.1.4", 0},
		cycle: 10 * time.Second, // outletControlRebootOffTime, 1 s to 99999 s
	},
	// LIEBERT-GP-PDU-MIB. Control is what is configured. A receptacle that is off and draws current is abnormal. An
	// alarm is a current below or above its limits: which of both, the MIB does not say.
	"liebert-mph2": {
		strips: "Liebert MPX, MPH and MPH2",
		index:  "pdu.branch.receptacle",
		state: column{name: "lgpPduRcpEntryPwrState", oid: ".1.3.6.1.4.1.476.1.42.3.8.50.20.1.95",
			off: words{1: "off"}, on: words{2: "on"}, changing: words{3: "off-pending-on-delay"},
			unknown: words{0: "unknown"}},
		vetoes: []column{
			{name: "lgpPduRcpEntryControl", oid: ".1.3.6.1.4.1.476.1.42.3.8.50.20.1.100",
				off: words{0: "control off"}, changing: words{2: "cycle-power"}, unknown: words{1: "control on"}},
			{name: "lgpPduRcpEntryOperationCondition", oid: ".1.3.6.1.4.1.476.1.42.3.8.50.20.1.210",
				off:     words{1: "normalOperation"},
				unknown: words{2: "normalWithWarning", 3: "normalWithAlarm", 4: "abnormal"}},
		},
		setOff: command{".1.3.6.1.4.1.476.1.42.3.8.50.20.1.100", 0},
		setOn:  command{".1.3.6.1.4.1.476.1.42.3.8.50.20.1.100", 1},
	},
	// PDU2-MIB.
	"raritan": {
		strips: "Raritan PX2, PX3, PX4",
		index:  "unit.outlet", unit: "1",
		state: column{name: "outletSwitchingState", oid: ".1.3.6.1.4.1.13742.6.4.1.2.1.3",
			off: words{8: "off"}, on: words{7: "on"}},
		setOff: command{".1.3.6.1.4.1.13742.6.4.1.2.1.2", 0}, setOn: command{".1.3.6.1.4.1.13742.6.4.1.2.1.2", 1},
		cycle: 10 * time.Second, // globalOutletPowerCyclingPowerOffPeriod, 1 s to 1 h
	},
	// PDU-MIB, the one of the firmware before PDU2-MIB. One column is state and command.
	"raritan-px1": {
		strips: "Raritan Dominion PX with firmware 1",
		state: column{name: "outletOperationalState", oid: ".1.3.6.1.4.1.13742.4.1.2.2.1.3",
			off: words{0: "off"}, on: words{1: "on"}, changing: words{2: "cycling"}, unknown: words{-1: "error"}},
		setOff: command{".1.3.6.1.4.1.13742.4.1.2.2.1.3", 0}, setOn: command{".1.3.6.1.4.1.13742.4.1.2.2.1.3", 1},
	},
	// Sentry3-MIB and Sentry4-MIB. The control state is the last command: it never makes an outlet off.
	"servertech-sentry3": {
		strips: "Server Technology Sentry switched CDUs (Sentry3)",
		index:  "tower.infeed.outlet",
		state: column{name: "outletStatus", oid: ".1.3.6.1.4.1.1718.3.2.3.1.5",
			off: words{0: "off"}, on: words{1: "on"}, changing: words{2: "offWait", 3: "onWait"},
			unknown: words{4: "offError", 5: "onError", 6: "noComm", 7: "reading", 8: "offFuse", 9: "onFuse"}},
		vetoes: []column{{name: "outletControlState", oid: ".1.3.6.1.4.1.1718.3.2.3.1.10",
			off: words{0: "idleOff", 2: "wakeOff", 4: "off", 14: "eventOff"},
			changing: words{8: "reboot", 9: "shutdown", 10: "pendOn", 11: "pendOff", 16: "eventReboot",
				17: "eventShutdown"},
			unknown: words{1: "idleOn", 3: "wakeOn", 5: "control on", 6: "lockedOff", 7: "lockedOn", 12: "minimumOff",
				13: "minimumOn", 15: "eventOn"}}},
		setOff: command{".1.3.6.1.4.1.1718.3.2.3.1.11", 2}, setOn: command{".1.3.6.1.4.1.1718.3.2.3.1.11", 1},
	},
	"servertech-sentry4": {
		strips: "Server Technology PRO1, PRO2 and later (Sentry4)",
		index:  "unit.cord.outlet",
		state: column{name: "st4OutletState", oid: ".1.3.6.1.4.1.1718.4.1.8.3.1.1",
			off: words{2: "off"}, on: words{1: "on"}, unknown: words{0: "unknown"}},
		vetoes: []column{
			{name: "st4OutletStatus", oid: ".1.3.6.1.4.1.1718.4.1.8.3.1.2", off: words{0: "normal"},
				unknown: words{1: "disabled", 2: "purged", 5: "reading", 6: "settle", 7: "notFound", 8: "lost",
					9: "readError", 10: "noComm", 11: "pwrError", 12: "breakerTripped", 13: "fuseBlown", 14: "lowAlarm",
					15: "lowWarning", 16: "highWarning", 17: "highAlarm", 18: "alarm", 19: "underLimit",
					20: "overLimit", 21: "nvmFail", 22: "profileError", 23: "conflict"}},
			{name: "st4OutletControlState", oid: ".1.3.6.1.4.1.1718.4.1.8.5.1.1",
				off: words{2: "idleOff", 4: "wakeOff", 10: "off", 16: "eventOff"},
				changing: words{8: "pendOn", 9: "pendOff", 12: "reboot", 13: "shutdown", 18: "eventReboot",
					19: "eventShutdown"},
				unknown: words{0: "notSet", 1: "fixedOn", 3: "idleOn", 5: "wakeOn", 6: "ocpOff", 7: "ocpOn",
					11: "control on", 14: "lockedOff", 15: "lockedOn", 17: "eventOn"}},
		},
		setOff: command{".1.3.6.1.4.1.1718.4.1.8.5.1.2", 2}, setOn: command{".1.3.6.1.4.1.1718.4.1.8.5.1.2", 1},
	},
	// VERTIV-V5-MIB, which Geist's strips have had from firmware 5.
	"vertiv-v5": {
		strips: "Vertiv and Geist switched rack PDUs with firmware 5 and later",
		state: column{name: "pduOutletSwitchState", oid: ".1.3.6.1.4.1.21239.5.2.3.5.1.4",
			off: words{2: "off"}, on: words{1: "on"},
			changing: words{3: "on2off", 4: "off2on", 5: "rebootOn", 6: "rebootOff"}, unknown: words{7: "unavailable"}},
		vetoes: []column{{name: "pduOutletSwitchRelayFailure", oid: ".1.3.6.1.4.1.21239.5.2.3.5.1.5",
			off: words{2: "relay good"}, unknown: words{1: "relay failed"}}},
		setOff: command{".1.3.6.1.4.1.21239.5.2.3.5.1.6", 4}, setOn: command{".1.3.6.1.4.1.21239.5.2.3.5.1.6", 2},
	},
}
