package fenceagent

import "fmt"

// Sandboxed returns why agents run without a sandbox, or nil.
var Sandboxed = checkSandbox

// Outlets are the agents of outlets.
var Outlets = outlets

// IsKnown reports whether an agent was read, and can be used.
func IsKnown(agent string) bool {
	k, read := known[agent]
	return read && k.never == ""
}

// Contradictions returns where agents.go contradicts an agent's metadata.
func Contradictions(agent, dir string) string {
	k, read := known[agent]
	if !read {
		return "it is not known: read its get_power_status, and add it to agents.go"
	}
	c := &Config{Agent: agent, Dir: dir}
	m, err := c.loadMetadata()
	switch {
	case err != nil && agent == "fence_ack_manual": // a person's script
	case err != nil:
		return err.Error()
	case (m.checkUsable() != nil) != (k.never == fabric || k.never == noVerdict || agent == "fence_compute"):
		return fmt.Sprintf("serves: %v, known as %q", m.checkUsable(), k.never)
	case k.never == "" && m.nameFor(c.idOption()) == "":
		return "it has no option " + c.idOption()
	case k.never == "" && c.idOption() != m.idOption() && agent != "fence_dummy" && agent != "fence_powerman" &&
		agent != "fence_vmware":
		return fmt.Sprintf("an ID goes to %s by its metadata, and to %s by what we know", m.idOption(), c.idOption())
	}
	return ""
}
