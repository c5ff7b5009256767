package fenceagent

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// checksKey matches how ssh_options must begin. ssh uses the first value of an option, and what follows a command
// belongs to the command. Without it an agent answers ssh's question about an unknown host's key with yes, and types
// the password.
var checksKey = regexp.MustCompile(`^-o ?StrictHostKeyChecking=yes( |$)`)

// findInsecure returns how the agent, with these options, would send passwords in clear text or trust an unverified
// device, and what to do instead. It returns "" if it would do neither. fencing.py treats an option that takes no value
// as set even if its value is 0.
func (c *Config) findInsecure(meta *metadata) string {
	has := func(name string) bool { _, ok := meta.options[name]; return ok }
	given := map[string]string{}
	for key, value := range c.Options {
		given[strings.ReplaceAll(newerName(meta, key), "-", "_")] = value
	}
	value := func(name string) string {
		if v, ok := given[name]; ok {
			return v
		}
		return meta.options[name].usual
	}
	isSet := func(name string) bool {
		return slices.Contains([]string{"1", "yes", "on", "true"}, strings.ToLower(value(name)))
	}

	for _, name := range []string{"ssl_insecure", "insecure", "notls"} {
		if _, ok := given[name]; ok {
			return fmt.Sprintf("accepts any device with options.%s, whatever its value: leave that out",
				name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != "proxy" && strings.HasPrefix(strings.ToLower(given[name]), "http://") {
			return fmt.Sprintf("speaks in clear text with options.%s: write https://", name)
		}
	}
	switch {
	case has("ssh") && !isSet("ssh"):
		return `logs in by telnet, in clear text: write options.ssh: "1" and options.ssh_options: ` +
			`-o StrictHostKeyChecking=yes`
	case has("ssh") && !checksKey.MatchString(value("ssh_options")):
		return fmt.Sprintf("accepts any unknown ssh host key: begin options.ssh_options "+
			"with -o StrictHostKeyChecking=yes (it is %q)",
			value("ssh_options"))
	case has("ssl") && !isSet("ssl") && !isSet("ssl_secure"):
		return `speaks in clear text: write options.ssl: "1"`
	case has("snmp_version") &&
		(value("snmp_version") != "3" || !slices.Contains([]string{"authPriv", "authNoPriv"}, value("snmp_sec_level"))):
		return `sends its community in clear text, or no password: write options.snmp_version: "3" and ` +
			`options.snmp_sec_level: authPriv`
	case has("lanplus") && !isSet("lanplus"):
		return `speaks IPMI 1.5, where anyone may answer: write options.lanplus: "1"`
	case has("lanplus") && slices.Contains([]string{"0", "1", "6", "15"}, value("cipher")):
		return `uses a cipher suite with which anyone may answer: write options.cipher: "17", or "3"`
	case has("ssh"), has("ssl"), has("snmp_version"), has("lanplus"):
		return ""
	}
	if k, read := known[c.Agent]; read {
		return k.insecure
	}
	return "has not been read, and its metadata does not show how it connects to its device"
}
