package fenceagent

// knowledge is what an agent's source shows: F30 and F40 of docs/facts.md. All of fence-agents 4.12.1 (Debian 12) were
// read, and those that were new up to June 2026, after 4.17.0.
type knowledge struct {
	// idOption is the agent's option that names the machine.
	idOption string
	// guesses is why the agent may report OFF for a machine that is not off; "" if only the device's own word for off
	// becomes OFF.
	guesses string
	// never is why the agent cannot be used here at all.
	never string
	// insecure is how the agent sends clear text or trusts any device, and what to do instead, if its metadata has no
	// option for that.
	insecure string
	// hides is the agent's message, beside other reasons, when the device refused the password; in lower case.
	hides string
}

// The options that take an ID: an agent for a device of many machines, and one for a device of one machine.
const (
	optionPlug = "plug"
	optionIP   = "ip"
)

const (
	notOn       = "anything that the device does not call on becomes OFF: an outlet that is switching, an error, a number of another firmware"
	notEnabled  = "any EnabledState that does not begin with Enabled becomes OFF: changing, unknown"
	hibernates  = "an instance that hibernated is stopped, too, and resumes"
	suspended   = "a suspended guest becomes OFF, and resumes"
	starting    = "a machine that is being started is OFF for as long as its cloud's database has not noticed"
	fabric      = "its off cuts a machine off from its storage or network: the machine runs"
	noVerdict   = "it has no status"
	noPower     = "its status does not tell a machine's power"
	telnet      = "logs in by telnet, in clear text: it knows nothing else"
	plainHTTP   = "speaks plain HTTP: it knows nothing else"
	noStatusYet = "unable to obtain correct plug status or plug is not available" // fencing.py's EC_STATUS
)

var (
	ipmi  = knowledge{idOption: optionIP, hides: noStatusYet}
	ribcl = knowledge{idOption: optionIP}
	ssh   = knowledge{idOption: optionIP, guesses: notEnabled}
	snmp  = knowledge{idOption: optionPlug, guesses: notOn}
	plain = knowledge{idOption: optionPlug}
	virt  = knowledge{
		idOption: optionPlug, guesses: "a guest that its host does not know becomes OFF, also one that migrated",
		insecure: "believes an answer that is neither encrypted nor signed: it knows nothing else",
	}
)

// known are the agents that were read. Any other agent counts as one that guesses and hides refused passwords.
var known = map[string]knowledge{
	"fence_ack_manual": {never: "a person's word, which forcefence asks for in another way"},
	"fence_aliyun": {
		idOption: optionPlug,
		guesses:  hibernates,
		insecure: "speaks plain HTTP, as its library does where nobody asks for another",
	},
	"fence_alom": {idOption: optionIP, guesses: "the word standby anywhere in the answer becomes OFF"},
	"fence_amt": {
		idOption: optionIP,
		guesses:  "every power state but S0 becomes OFF, sleep (S3) and hibernation (S4) too",
		hides:    noStatusYet,
		insecure: plainHTTP,
	},
	"fence_amt_ws": {idOption: optionIP, hides: noStatusYet, insecure: plainHTTP},
	"fence_apc": {
		idOption: optionPlug,
		guesses:  "the first ON or OFF counts, in an outlet's name, too: an outlet called web OFFICE is OFF",
	},
	"fence_apc_snmp": snmp,
	"fence_aws": {
		idOption: optionPlug,
		guesses:  hibernates + "; and EC2 may say stopped for a while after a start: type ec2 looks at both",
	},
	"fence_aws_vpc_net": {never: noPower + ", but whether it is cut off from its network"},
	"fence_azure_arm":   {idOption: optionPlug, guesses: hibernates},
	"fence_bladecenter": plain,
	"fence_brocade":     {never: fabric},
	"fence_cdu":         {never: "it writes the outlets' names on standard output, where anything but the status makes an answer void"},
	"fence_cisco_mds":   {never: fabric},
	"fence_cisco_ucs": {
		idOption: optionPlug,
		guesses:  "a blade that is missing, mismatched or in any operPower but on becomes OFF",
	},
	"fence_compute":   {never: noPower + ", but that of the nova service on it"},
	"fence_crosslink": {never: noPower + ", but whether it answers a ping"},
	"fence_cyberpower_ssh": {
		idOption: optionPlug,
		guesses:  "of an outlet's number it reads one digit: outlet 1 is what outlet 10 to 16 says",
	},
	"fence_docker": {idOption: optionPlug, guesses: "a container that is between two restarts becomes OFF"},
	"fence_drac": {
		idOption: optionIP,
		guesses:  "the first on or off in the answer counts, whatever it is said of",
		insecure: telnet,
	},
	"fence_drac5": {never: "a DRAC 5 looks at no plug, so that all machines would be one"},
	"fence_dummy": {
		idOption: "status_file",
		guesses:  "a status file that is not there becomes OFF; and a file is no machine",
	},
	"fence_eaton_snmp":      plain,
	"fence_eaton_ssh":       plain,
	"fence_ecloud":          {idOption: optionPlug, guesses: "an instance that is not online becomes OFF"},
	"fence_emerson":         snmp,
	"fence_eps":             {idOption: optionPlug, insecure: plainHTTP},
	"fence_epsr2":           {idOption: optionPlug, insecure: plainHTTP},
	"fence_evacuate":        {never: noPower + ", but that of the nova service on it"},
	"fence_gce":             plain,
	"fence_hds_cb":          plain,
	"fence_hetzner_cloud":   plain,
	"fence_heuristics_ping": {never: noVerdict},
	"fence_hpblade":         plain,
	"fence_ibm_powervs":     {idOption: optionPlug, guesses: starting},
	"fence_ibm_vpc":         plain,
	"fence_ibmblade":        snmp,
	"fence_ibmz": {
		idOption: optionPlug,
		guesses:  "every state but the running one becomes OFF: paused, starting, degraded",
	},
	"fence_idrac":        ipmi,
	"fence_ifmib":        {never: fabric},
	"fence_ilo":          ribcl,
	"fence_ilo2":         ribcl,
	"fence_ilo3":         ipmi,
	"fence_ilo3_ssh":     ssh,
	"fence_ilo4":         ipmi,
	"fence_ilo4_ssh":     ssh,
	"fence_ilo5":         ipmi,
	"fence_ilo5_ssh":     ssh,
	"fence_ilo_moonshot": plain,
	"fence_ilo_mp":       ssh,
	"fence_ilo_ssh":      ssh,
	"fence_imm":          ipmi,
	"fence_intelmodular": snmp,
	"fence_ipdu":         snmp,
	"fence_ipmilan":      ipmi,
	"fence_ipmilanplus":  ipmi,
	"fence_ironic":       {idOption: optionPlug, guesses: starting, hides: noStatusYet},
	"fence_kdump":        {never: noVerdict},
	"fence_kubevirt": {
		idOption: optionPlug,
		guesses:  "a VirtualMachineInstance that is gone becomes OFF, whatever became of its pod",
	},
	"fence_ldom":     plain,
	"fence_lindypdu": plain,
	"fence_lpar": {
		idOption: optionPlug,
		guesses:  "every state but four becomes OFF: Suspended, Not Available, Unknown, Error",
	},
	"fence_mpath":       {never: fabric},
	"fence_netio":       {idOption: optionPlug, insecure: telnet},
	"fence_nutanix_ahv": {idOption: optionPlug, guesses: suspended},
	"fence_openstack":   {idOption: optionPlug, guesses: starting},
	"fence_ovh":         {never: noVerdict},
	"fence_ovm":         {idOption: optionPlug, guesses: suspended},
	"fence_powerman": {
		idOption: optionPlug,
		insecure: "asks a daemon that anybody may answer for: it knows no password and no key",
	},
	"fence_pve":     {idOption: optionPlug, guesses: suspended},
	"fence_raritan": {idOption: optionPlug, insecure: telnet},
	"fence_raritan_px3": {
		idOption: optionPlug,
		guesses:  "an outlet is OFF where the next one is and has a blank in its name, and a group of which one is on",
	},
	"fence_rcd_serial": {never: noVerdict},
	"fence_redfish": {
		idOption: optionIP, hides: "couldn't get power information",
		guesses: "Off of a host whose chassis is On becomes OFF (OpenBMC); type redfish looks at both",
	},
	"fence_rhevm":       {idOption: optionPlug, guesses: "an answer without a status becomes OFF"},
	"fence_rsa":         {idOption: optionIP},
	"fence_rsb":         {idOption: optionIP},
	"fence_sanbox2":     {never: fabric},
	"fence_sbd":         {never: noPower + ", but the message in its slot"},
	"fence_shelly_gen2": {idOption: optionPlug, hides: noStatusYet},
	"fence_scsi":        {never: fabric},
	"fence_skalar": {
		idOption: optionPlug,
		guesses:  "a guest that is suspended, starting, in error or on a lost host becomes OFF",
	},
	"fence_tripplite_snmp": snmp,
	"fence_vbox": {
		idOption: optionPlug,
		guesses:  "a guest that is not in the list of running ones becomes OFF: one that was saved, one whose session ended oddly",
	},
	"fence_virsh": {
		idOption: optionPlug,
		guesses:  "any word but five becomes OFF, no word too: crashed, in shutdown, pmsuspended, a shut off guest with a saved memory; type libvirt looks at them",
	},
	"fence_virt":          virt,
	"fence_vmware":        {idOption: optionPlug, guesses: suspended},
	"fence_vmware_rest":   {idOption: optionPlug, guesses: suspended},
	"fence_vmware_soap":   {idOption: optionPlug, guesses: suspended},
	"fence_vmware_vcloud": {idOption: optionPlug, guesses: suspended},
	"fence_wti":           {idOption: optionPlug, guesses: "a group of outlets of which none says on becomes OFF"},
	"fence_xenapi":        plain,
	"fence_xvm":           virt,
	"fence_zvmip":         {idOption: optionPlug, guesses: "a guest that z/VM does not know becomes OFF"},
}

// reserved are the options, by their newer names, that no configuration may set, and why.
var reserved = map[string]string{
	"action":            "is set for each call",
	"baremetalsolution": "makes the status the opposite of what is asked for",
	"debug_file":        "writes the password into a file",
	"delay":             "is for two cluster nodes that fence each other",
	"disable_timeout":   "would let the agent wait for ever",
	"help":              "is no question to a device",
	"missing_as_off":    "calls a machine off that the device does not know",
	"network_fencing":   "calls a machine off that is cut off from its network",
	"nodename":          "names a cluster node: the machine is a target's ID",
	"plug":              "is a target's ID",
	"plug_separator":    "would make several machines of an ID",
	"port":              "is a target's ID",
	"port_as_ip":        "is not needed: a target's ID is the address",
	"quiet":             "hides why a call failed",
	"usage":             "is no question to a device",
	"use_sudo":          "needs a program that gains rights, which the agent's sandbox runs for nobody",
	"verbose":           "writes the password into the system's log",
	"verbose_level":     "writes the password into the system's log",
	"version":           "is no question to a device",
}
