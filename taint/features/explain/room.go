package explain

import (
	"github.com/forcefence/forcefence/taint/features/room"
)

// findReplacements estimates which of the node's pods find room elsewhere.
func findReplacements(s Snapshot) []room.Replacement {
	c := room.New(s.Key, nil)
	for i := range s.Nodes {
		c.AddNode(&s.Nodes[i])
	}
	for i := range s.All {
		c.AddPod(&s.All[i])
	}
	for _, p := range s.Pods {
		for _, v := range p.Volumes {
			if pv := s.Volumes[v.PV]; pv != nil && !v.Unread {
				c.AddClaim(p.Namespace, v.Claim, v.PV)
				c.AddVolume(pv)
			}
		}
	}
	for i := range s.Attached {
		c.AddAttachment(&s.Attached[i])
	}
	if s.CSINodes != nil {
		c.CSINodesRead()
	}
	for _, o := range s.CSINodes {
		c.AddCSINode(o)
	}
	return c.Replacements(s.Node.Name)
}
