package fenceagent

// knowledge is what an agent's source shows: F30 and F40 of docs/reference/facts.md. All of fence-agents 4.12.1 (Debian
// 12) were read, and those that were new up to June 2026, after 4.17.0.
type knowledge struct {
	// idOption is the agent's option that names the machine; "" is optionPlug.
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
	notOn       = "anything that the device does not call on becomes OFF: a switching outlet, an error, a new number"
	notEnabled  = "any EnabledState that does not begin with Enabled becomes OFF: changing, unknown"
	hibernates  = "a hibernated instance counts as stopped, and resumes"
	sleeping    = "every power state but S0 becomes OFF, also sleep (S3) and hibernation (S4)"
	suspended   = "a suspended guest becomes OFF, and resumes"
	starting    = "a machine that is starting is OFF until the cloud's database has noticed"
	chassisOn   = "Off of a host whose chassis is On becomes OFF (OpenBMC): use type redfish, which reads both"
	virshWords  = "any word but five becomes OFF, also none, crashed, and shut off with saved memory: use type libvirt"
	fabric      = "its off cuts a machine off from its storage or network: the machine runs"
	noVerdict   = "it has no status"
	noPower     = "its status does not report a machine's power"
	telnet      = "logs in by telnet, in clear text: it knows nothing else"
	plainHTTP   = "speaks plain HTTP: it knows nothing else"
	noStatusYet = "unable to obtain correct plug status or plug is not available" // fencing.py's EC_STATUS
)

var (
	ipmi  = knowledge{idOption: optionIP, hides: noStatusYet}
	ribcl = knowledge{idOption: optionIP}
	ssh   = knowledge{idOption: optionIP, guesses: notEnabled}
	snmp  = knowledge{guesses: notOn}
	plain = knowledge{}
	virt  = knowledge{
		guesses:  "a guest that its host does not know becomes OFF, also one that migrated",
		insecure: "believes an answer that is neither encrypted nor signed: it knows nothing else",
	}
)

// known are the agents that were read. Any other agent counts as one that guesses and hides refused passwords.
var known = map[string]knowledge{
	"fence_ack_manual":      {never: "a person's word, which forcefence asks for in another way"},
	"fence_aliyun":          {guesses: hibernates, insecure: "speaks plain HTTP by default, as its library does"},
	"fence_alom":            {idOption: optionIP, guesses: "the word standby anywhere in the answer becomes OFF"},
	"fence_amt":             {idOption: optionIP, guesses: sleeping, hides: noStatusYet, insecure: plainHTTP},
	"fence_amt_ws":          {idOption: optionIP, hides: noStatusYet, insecure: plainHTTP},
	"fence_apc":             {guesses: "the first ON or OFF counts, even in an outlet's name (web OFFICE is OFF)"},
	"fence_apc_snmp":        snmp,
	"fence_aws":             {guesses: hibernates + "; EC2 may report stopped after a start: use type ec2"},
	"fence_aws_vpc_net":     {never: noPower + ", but whether it is cut off from its network"},
	"fence_azure_arm":       {guesses: hibernates},
	"fence_bladecenter":     plain,
	"fence_brocade":         {never: fabric},
	"fence_cdu":             {never: "it prints the outlets' names beside the status, so no answer is valid"},
	"fence_cisco_mds":       {never: fabric},
	"fence_cisco_ucs":       {guesses: "a missing or mismatched blade, and any operPower but on, becomes OFF"},
	"fence_compute":         {never: noPower + ", but that of the nova service on it"},
	"fence_crosslink":       {never: noPower + ", but whether it answers a ping"},
	"fence_cyberpower_ssh":  {guesses: "it reads one digit of an outlet's number: outlet 1 shows what 10 to 16 show"},
	"fence_docker":          {guesses: "a container that is between two restarts becomes OFF"},
	"fence_drac":            {idOption: optionIP, guesses: "the answer's first on or off counts", insecure: telnet},
	"fence_drac5":           {never: "a DRAC 5 looks at no plug, so that all machines would be one"},
	"fence_dummy":           {idOption: "status_file", guesses: "a missing file becomes OFF; a file is no machine"},
	"fence_eaton_snmp":      plain,
	"fence_eaton_ssh":       plain,
	"fence_ecloud":          {guesses: "an instance that is not online becomes OFF"},
	"fence_emerson":         snmp,
	"fence_eps":             {insecure: plainHTTP},
	"fence_epsr2":           {insecure: plainHTTP},
	"fence_evacuate":        {never: noPower + ", but that of the nova service on it"},
	"fence_gce":             plain,
	"fence_hds_cb":          plain,
	"fence_hetzner_cloud":   plain,
	"fence_heuristics_ping": {never: noVerdict},
	"fence_hpblade":         plain,
	"fence_ibm_powervs":     {guesses: starting},
	"fence_ibm_vpc":         plain,
	"fence_ibmblade":        snmp,
	"fence_ibmz":            {guesses: "every state but the running one becomes OFF: paused, starting, degraded"},
	"fence_idrac":           ipmi,
	"fence_ifmib":           {never: fabric},
	"fence_ilo":             ribcl,
	"fence_ilo2":            ribcl,
	"fence_ilo3":            ipmi,
	"fence_ilo3_ssh":        ssh,
	"fence_ilo4":            ipmi,
	"fence_ilo4_ssh":        ssh,
	"fence_ilo5":            ipmi,
	"fence_ilo5_ssh":        ssh,
	"fence_ilo_moonshot":    plain,
	"fence_ilo_mp":          ssh,
	"fence_ilo_ssh":         ssh,
	"fence_imm":             ipmi,
	"fence_intelmodular":    snmp,
	"fence_ipdu":            snmp,
	"fence_ipmilan":         ipmi,
	"fence_ipmilanplus":     ipmi,
	"fence_ironic":          {guesses: starting, hides: noStatusYet},
	"fence_kdump":           {never: noVerdict},
	"fence_kubevirt":        {guesses: "a missing VirtualMachineInstance becomes OFF, even while its pod runs"},
	"fence_ldom":            plain,
	"fence_lindypdu":        plain,
	"fence_lpar":            {guesses: "every state but four becomes OFF, also Suspended, Unknown and Error"},
	"fence_mpath":           {never: fabric},
	"fence_netio":           {insecure: telnet},
	"fence_nutanix_ahv":     {guesses: suspended},
	"fence_openstack":       {guesses: starting},
	"fence_ovh":             {never: noVerdict},
	"fence_ovm":             {guesses: suspended},
	"fence_powerman":        {insecure: "asks a daemon with no password and no key, so anyone may answer"},
	"fence_pve":             {guesses: suspended},
	"fence_raritan":         {insecure: telnet},
	"fence_raritan_px3": {guesses: "OFF if the next outlet is and has a blank in its name; a group with one on " +
		"is OFF"},
	"fence_rcd_serial":     {never: noVerdict},
	"fence_redfish":        {idOption: optionIP, guesses: chassisOn, hides: "couldn't get power information"},
	"fence_rhevm":          {guesses: "an answer without a status becomes OFF"},
	"fence_rsa":            {idOption: optionIP},
	"fence_rsb":            {idOption: optionIP},
	"fence_sanbox2":        {never: fabric},
	"fence_sbd":            {never: noPower + ", but the message in its slot"},
	"fence_shelly_gen2":    {hides: noStatusYet},
	"fence_scsi":           {never: fabric},
	"fence_skalar":         {guesses: "a guest that is suspended, starting, in error or on a lost host becomes OFF"},
	"fence_tripplite_snmp": snmp,
	"fence_vbox":           {guesses: "a guest that is not listed as running becomes OFF, also a saved one"},
	"fence_virsh":          {guesses: virshWords},
	"fence_virt":           virt,
	"fence_vmware":         {guesses: suspended},
	"fence_vmware_rest":    {guesses: suspended},
	"fence_vmware_soap":    {guesses: suspended},
	"fence_vmware_vcloud":  {guesses: suspended},
	"fence_wti":            {guesses: "a group of outlets of which none says on becomes OFF"},
	"fence_xenapi":         plain,
	"fence_xvm":            virt,
	"fence_zvmip":          {guesses: "a guest that z/VM does not know becomes OFF"},
}

// outlets are the agents whose devices feed machines, and answer when a machine has no power. The devices of the others
// are BMCs, chassis, hypervisors and clouds, or are not known.
var outlets = []string{
	"fence_apc", "fence_apc_snmp", "fence_cyberpower_ssh", "fence_eaton_snmp", "fence_eaton_ssh", "fence_emerson",
	"fence_eps", "fence_epsr2", "fence_ipdu", "fence_lindypdu", "fence_netio", "fence_raritan", "fence_raritan_px3",
	"fence_shelly_gen2", "fence_tripplite_snmp", "fence_wti",
}

// reserved are the options, by their newer names, that no configuration may set, and why.
var reserved = map[string]string{
	"action":            "is set for each call",
	"baremetalsolution": "makes the status the opposite of what is asked for",
	"debug_file":        "writes the password into a file",
	"delay":             "is for two cluster nodes that fence each other",
	"disable_timeout":   "would let the agent wait for ever",
	"help":              "does not query a device",
	"missing_as_off":    "calls a machine off that the device does not know",
	"network_fencing":   "calls a machine off that is cut off from its network",
	"nodename":          "names a cluster node: the machine is a target's ID",
	"plug":              "is a target's ID",
	"plug_separator":    "would make several machines of an ID",
	"port":              "is a target's ID",
	"port_as_ip":        "is not needed: a target's ID is the address",
	"quiet":             "hides why a call failed",
	"usage":             "does not query a device",
	"use_sudo":          "needs a program that gains rights, which the agent's sandbox never runs",
	"verbose":           "writes the password into the system's log",
	"verbose_level":     "writes the password into the system's log",
	"version":           "does not query a device",
}
