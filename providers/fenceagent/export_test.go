package fenceagent

import "fmt"

// Sandboxed tells why agents run without a sandbox.
var Sandboxed = checkSandbox

// Contradictions tells where what we know of an agent is not what its metadata says.
func Contradictions(agent, dir string) string {
	k, read := known[agent]
	if !read {
		return "nobody has read it: read its get_power_status, and add it to agents.go"
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
