package config

// Karpenter says what Karpenter's NodeClaims mean to forcefence.
type Karpenter string

// The answers. Each does what the one before it does, and more.
const (
	IgnoreClaims  Karpenter = "ignore"        // NodeClaims are not read
	RespectClaims Karpenter = "leaveDeleting" // the power of a machine that Karpenter is deleting is left alone
	HandOver      Karpenter = "handOver"      // Karpenter replaces a machine once its node's fence has ended
)

// ReadsClaims reports whether the NodeClaims of nodes are read.
func (k Karpenter) ReadsClaims() bool { return k == RespectClaims || k == HandOver }

// checkKarpenter checks what NodeClaims mean.
func (r *reader) checkKarpenter(c *Config) {
	oneOf(r, "karpenter", c.Karpenter, IgnoreClaims, RespectClaims, HandOver)
	if c.Karpenter == HandOver && c.AfterFence == PowerOn {
		r.warn(c, "afterFence", "powerOn does nothing for nodes of Karpenter: with handOver it replaces their machines")
	}
}
