package storagefence

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/writes"
)

var dead = Node{Name: "n1", Addresses: []string{"10.0.0.1"}, PodCIDRs: []string{"10.9.1.0/24"}}

// look saw node n1 on that boot, with that Lease.
func look(boot, lease string, ready corev1.ConditionStatus) taint.Look {
	return taint.Look{Exists: true, Name: "n1", UID: "u1", BootID: boot, LeaseRV: lease, Ready: ready}
}

// released is the silent node n1, whose life with that Lease a person released.
func released(lease string) taint.Look {
	l := silent
	l.Record = &taint.Record{NodeUID: l.UID, BootID: l.BootID, LeaseRV: lease, Phase: taint.PhaseDone,
		Result: taint.ResultReleased}
	return l
}

// silent is node n1 when its fence was made, and back after a boot.
var (
	silent = look("b1", "7", corev1.ConditionUnknown)
	back   = look("b2", "9", corev1.ConditionTrue)
)

var rule = policy.Policy{Name: "p", Drivers: []string{"rbd"}, FenceClasses: []string{"c"}}

// example is a node whose storage can cut it off, beside another one.
func example() Cluster {
	clients := func(node, cidr string) Clients {
		return Clients{Name: "ceph/" + node, Driver: "rbd", NodeID: node, ByClass: map[string][]string{"c": {cidr}}}
	}
	return Cluster{
		Look: silent,
		Others: []Node{dead, {
			Name: "n2", Addresses: []string{"n2", "10.0.0.2", "fd00::2"},
			PodCIDRs: []string{"10.9.2.0/24"},
		}},
		Classes: []Class{{"c", "rbd"}},
		Clients: []Clients{clients("n1", "10.0.0.1/32"), clients("n2", "10.0.0.2/32")},
	}
}

// holding is a fence of the node that holds.
func holding() Fence {
	return Fence{
		Name: "f", Generation: 2, Class: "c", CIDRs: []string{"10.0.0.1/32"}, Made: []string{"10.0.0.1/32"},
		State: Fenced, Result: succeeded,
		Message: fencedMessage, Owned: true, Node: "n1", Life: silent.Life(), Confirmed: true,
	}
}

// Each check refuses by itself.
func TestDecide(t *testing.T) {
	address := func(cidr string) func(*Cluster, *policy.Policy) {
		return func(c *Cluster, _ *policy.Policy) { c.Clients[0].ByClass["c"] = []string{cidr} }
	}
	made := func(change func(*Fence)) func(*Cluster, *policy.Policy) {
		return func(c *Cluster, _ *policy.Policy) {
			f := holding()
			change(&f)
			c.Fences = []Fence{f}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*Cluster, *policy.Policy)
		want   string // the state, and a part of the detail
	}{
		{"nothing was made", func(*Cluster, *policy.Policy) {}, "absent: 10.0.0.1/32 by class c"},
		{"two clients on the node", func(c *Cluster, _ *policy.Policy) {
			c.Clients = append(c.Clients,
				Clients{"ceph/provisioner", "rbd", "n1", map[string][]string{"c": {"10.9.1.7/32"}}})
		}, "absent: 10.0.0.1/32, 10.9.1.7/32"},
		{"an address of IPv6", address("fd00::1/128"), "absent: fd00::1/128"},
		{"no CSIAddonsNode", func(c *Cluster, _ *policy.Policy) { c.Clients = c.Clients[1:] },
			"refused: no CSIAddonsNode of driver rbd has the nodeID n1"},
		{"a CSIAddonsNode of another driver", func(c *Cluster, _ *policy.Policy) { c.Clients[0].Driver = "nfs" },
			"refused: no CSIAddonsNode of driver rbd"},
		{"no client", func(c *Cluster, _ *policy.Policy) { c.Clients[0].ByClass = nil },
			"refused: the CSIAddonsNode of driver rbd reports no client"},
		{"a client of another class", func(c *Cluster, _ *policy.Policy) {
			c.Clients[0].ByClass = map[string][]string{"other": {"10.0.0.1/32"}}
		}, "refused: the CSIAddonsNode of driver rbd reports no client"},
		{"a subnet", address("10.0.0.0/24"), "refused: CSIAddonsNode ceph/n1: 10.0.0.0/24 is more than one address"},
		{"everything", address("0.0.0.0/0"), "more than one address"},
		{"no CIDR", address("10.0.0.1"), "is not a CIDR"},
		{"loopback", address("127.0.0.1/32"), "is no address of one machine"},
		{"a mapped address", address("::ffff:10.0.0.1/128"), "storage may read otherwise"},
		{"the address of another node's client", address("10.0.0.2/32"), "is also an address of node n2"},
		{"the same, of another driver", func(c *Cluster, p *policy.Policy) {
			address("10.0.0.3/32")(c, p)
			c.Clients[1].Driver, c.Clients[1].ByClass = "nfs", map[string][]string{"x": {"10.0.0.3/32"}}
		}, "is also an address of node n2"},
		{"another node's subnet has it", func(c *Cluster, p *policy.Policy) {
			c.Clients[1].ByClass["c"] = []string{"10.0.0.0/24"}
		}, "is also an address of node n2"},
		{"another node says that it has every address", func(c *Cluster, p *policy.Policy) {
			c.Others[1].Addresses, c.Others[1].PodCIDRs = nil, []string{"0.0.0.0/0"}
			c.Clients = append(c.Clients, Clients{"ceph/n3", "rbd", "n3", map[string][]string{"c": {"10.0.0.3/32"}}})
		}, "absent: 10.0.0.1/32"},
		{"its driver's pod says so", func(c *Cluster, p *policy.Policy) {
			c.Clients[1].ByClass["c"] = []string{"0.0.0.0/0"}
			c.Clients = append(c.Clients, Clients{"ceph/n3", "rbd", "n3", map[string][]string{"c": {"10.0.0.3/32"}}})
		}, "absent: 10.0.0.1/32"},
		{"the address of another Node", func(c *Cluster, p *policy.Policy) {
			address("10.0.0.2/32")(c, p)
			c.Clients = c.Clients[:1]
		}, "10.0.0.2/32 is an address of node n2"},
		{"the same of IPv6", address("fd00::2/128"), "fd00::2/128 is an address of node n2"},
		{"a pod's of another node", address("10.9.2.5/32"), "10.9.2.5/32 is an address of node n2"},
		{"no boot id", func(c *Cluster, _ *policy.Policy) { c.Look.BootID = "" }, "refused: the node has no boot id"},
		{"no class", func(c *Cluster, _ *policy.Policy) { c.Classes = nil },
			"refused: there is no NetworkFenceClass c"},
		{"a class of another driver", func(c *Cluster, _ *policy.Policy) { c.Classes[0].Driver = "nfs" },
			"refused: NetworkFenceClass c is of driver nfs"},
		{"a driver without a class", func(_ *Cluster, p *policy.Policy) { p.Drivers = []string{"rbd", "cephfs"} },
			"refused: none of the policy's NetworkFenceClasses is of driver cephfs"},

		{"it holds", made(func(*Fence) {}), "holds: "},
		{"it holds, and the driver's object is gone", func(c *Cluster, p *policy.Policy) {
			made(func(*Fence) {})(c, p)
			c.Clients = c.Clients[1:]
		}, "holds: "},
		{"it has no answer", made(func(f *Fence) { f.Result, f.Message = "", "" }),
			"pending: NetworkFence f has no answer yet"},
		{"it failed", made(func(f *Fence) { f.Result, f.Message = "Failed", "no quorum" }),
			`pending: NetworkFence f: Failed, "no quorum"`},
		{"it failed, with that message", made(func(f *Fence) { f.Result = "Failed" }), "pending: "},
		{"the message is of the other state", made(func(f *Fence) { f.Message = unfencedMessage }), "pending: "},
		{"the message is another", made(func(f *Fence) { f.Message = "non" + fencedMessage }), "pending: "},
		{"it was changed", made(func(f *Fence) { f.Generation = 3 }), "pending: NetworkFence f was changed"},
		{"nothing has confirmed it", made(func(f *Fence) { f.Confirmed = false }), "pending: "},
		{"its addresses were changed", made(func(f *Fence) { f.CIDRs = append(f.CIDRs, "10.0.0.9/32") }),
			"pending: NetworkFence f was changed"},
		{"it lacks an address",
			made(func(f *Fence) { f.CIDRs, f.Made = []string{"10.0.0.7/32"}, []string{"10.0.0.7/32"} }),
			"refused: NetworkFence f has other addresses than the driver reports now (10.0.0.1/32)"},
		{"it is another author's", made(func(f *Fence) { f.Owned = false }), "absent: "},
		{"it is of the boot before", made(func(f *Fence) { f.Life.BootID = "b0" }), "absent: "},
		{"it is of a Node that was deleted", made(func(f *Fence) { f.Life.NodeUID = "u0" }), "absent: "},
		{"it is of an earlier outage of this boot", made(func(f *Fence) { f.Life.LeaseRV = "6" }), "absent: "},
		{"it names no life", made(func(f *Fence) { f.Life = taint.Life{} }), "absent: "},
		{"it is of another class", made(func(f *Fence) { f.Class = "d" }), "absent: "},
		{"it is being deleted", made(func(f *Fence) { f.Deleting = true }), "absent: "},
		{"it lets the node in", made(func(f *Fence) { f.State = Unfenced }), "pending: NetworkFence f lets one of"},
		{"it holds, and another author's lets the node in", func(c *Cluster, p *policy.Policy) {
			made(func(*Fence) {})(c, p)
			c.Fences = append(c.Fences, Fence{Name: "g", CIDRs: []string{"10.0.0.0/24"}, State: Unfenced})
		}, "pending: NetworkFence g lets one of"},
		{"it holds, and another lets another node in", func(c *Cluster, p *policy.Policy) {
			made(func(*Fence) {})(c, p)
			c.Fences = append(c.Fences, Fence{Name: "g", CIDRs: []string{"10.0.0.2/32"}, State: Unfenced})
		}, "holds: "},
		{"one of two holds", func(c *Cluster, p *policy.Policy) {
			made(func(*Fence) {})(c, p)
			p.FenceClasses = []string{"c", "d"}
			c.Classes = append(c.Classes, Class{"d", "rbd"})
			c.Clients[0].ByClass["d"] = []string{"10.0.0.1/32"}
		}, "absent: 10.0.0.1/32 by class d"},
		{"one of two holds, the other is refused", func(c *Cluster, p *policy.Policy) {
			made(func(*Fence) {})(c, p)
			p.FenceClasses = []string{"c", "d"}
		}, "refused: there is no NetworkFenceClass d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, p := example(), rule
			tt.change(&c, &p)
			got, targets := c.Decide(p)
			if text := fmt.Sprintf("%s: %s", got.State, got.Detail); !strings.Contains(text, tt.want) {
				t.Errorf("got %q, want %q", text, tt.want)
			}
			if (got.State == policy.FenceAbsent) != (len(targets) > 0) {
				t.Errorf("got state %s with %d fences to make", got.State, len(targets))
			}
		})
	}
}

// A node is let in only on another boot, or if the storage's success was never confirmed.
func TestNext(t *testing.T) {
	on := func(boot string) func(*Fence, *State) { return func(_ *Fence, s *State) { s.Look.BootID = boot } }
	for _, tt := range []struct {
		name   string
		change func(f *Fence, s *State)
		want   Step
		why    string
	}{
		{"it has booted", func(*Fence, *State) {}, Unfence, ""},
		{"the fence is another author's", func(f *Fence, _ *State) { f.Owned = false }, Keep, ""},
		{"the fence is being deleted", func(f *Fence, _ *State) { f.Deleting = true }, Keep, ""},
		{"it is not Ready", func(_ *Fence, s *State) { s.Look.Ready = corev1.ConditionUnknown }, Keep, ""},
		{"it has a mark", func(_ *Fence, s *State) { s.Look.Mark = &taint.Mark{} }, Keep, ""},
		{"a fence is open", func(_ *Fence, s *State) { s.Look.Record = &taint.Record{Phase: taint.PhaseArmed} }, Keep,
			""},
		{"its record cannot be read", func(_ *Fence, s *State) { s.Look.RecordErr = errors.New("cut off") }, Keep, ""},
		{"an ended pod is still there", func(_ *Fence, s *State) { s.Ended = true }, Keep, ""},
		{"its Node was deleted", func(_ *Fence, s *State) { s.Look = taint.Look{} }, Keep, "its Node was deleted"},
		{"it is another Node of that name", func(_ *Fence, s *State) { s.Look.UID = "u9" }, Keep,
			"its Node was deleted"},
		{"it names no life", func(f *Fence, _ *State) { f.Life = taint.Life{} }, Keep, "names no life"},
		{"it is on the same boot", on("b1"), Keep, "on the boot on which"},
		{"it reports no boot", on(""), Keep, "on the boot on which"},
		{"on the same boot, the storage never answered", func(f *Fence, s *State) {
			s.Look.BootID, f.Confirmed, f.Result, f.Message = "b1", false, "", ""
		}, Unfence, ""},
		{"on the same boot, its success was not seen", func(f *Fence, s *State) {
			s.Look.BootID, f.Confirmed = "b1", false
		}, Unfence, ""},
		{"Ready without a sign of life", func(f *Fence, s *State) {
			f.Confirmed, f.Result, s.Look = false, "Failed", silent
			s.Look.Ready = corev1.ConditionTrue
		}, Keep, "on the boot on which"},
		{"on the same boot, an answer after the success failed", func(f *Fence, s *State) {
			s.Look.BootID, f.Result, f.Message = "b1", "Failed", "no"
		}, Keep, "on the boot on which"},
		{"the storage has answered a silent node's", func(f *Fence, s *State) { s.Look, f.Confirmed = silent, false },
			Confirm, ""},
		{"it answers after a sign of life", func(f *Fence, s *State) {
			s.Look, f.Confirmed = look("b1", "8", corev1.ConditionUnknown), false
		}, Unfence, ""},
		{"it has no answer when a sign of life comes", func(f *Fence, s *State) {
			s.Look, f.Confirmed, f.Result, f.Message = look("b1", "8", corev1.ConditionFalse), false, "", ""
		}, Unfence, ""},
		{"a sign of life comes after its success was seen", func(_ *Fence, s *State) {
			s.Look = look("b1", "8", corev1.ConditionFalse)
		}, Keep, ""},
		{"it has no answer when the node is paused", func(f *Fence, s *State) {
			s.Look, s.LeftAlone, f.Confirmed, f.Result, f.Message = silent, "paused", false, "", ""
		}, Unfence, ""},
		{"it is answered while the node is paused", func(f *Fence, s *State) {
			s.Look, s.LeftAlone, f.Confirmed = silent, "paused", false
		}, Unfence, ""},
		{"the node is paused after its success was seen", func(_ *Fence, s *State) {
			s.Look, s.LeftAlone = silent, "paused"
		}, Keep, ""},
		{"it has no answer when the node is released", func(f *Fence, s *State) {
			s.Look, f.Confirmed, f.Result = released("7"), false, ""
		}, Unfence, ""},
		{"it is answered after the node was released", func(f *Fence, s *State) {
			s.Look, f.Confirmed = released("7"), false
		}, Unfence, ""},
		{"a person released an earlier life of the node", func(f *Fence, s *State) {
			s.Look, f.Confirmed = released("6"), false
		}, Confirm, ""},
		{"the node is released after its success was seen", func(_ *Fence, s *State) { s.Look = released("7") }, Keep,
			""},
		{"it has no answer, and its Node was deleted", func(f *Fence, s *State) {
			s.Look, f.Confirmed, f.Result = taint.Look{}, false, ""
		}, Keep, "its Node was deleted"},
		{"it failed for a silent node", func(f *Fence, s *State) {
			s.Look, f.Confirmed, f.Result = silent, false, "Failed"
		}, Keep, ""},
		{"it was changed, for a silent node", func(f *Fence, s *State) {
			s.Look, f.Confirmed, f.Generation = silent, false, 3
		}, Keep, ""},
		{"it is being let in", func(f *Fence, _ *State) { f.State, f.Generation = Unfenced, 3 }, Keep, ""},
		{"letting it in failed", func(f *Fence, _ *State) {
			f.State, f.Result, f.Message = Unfenced, "Failed", unfencedMessage
		}, Keep, ""},
		{"it was let in", func(f *Fence, _ *State) {
			f.State, f.Generation, f.Message = Unfenced, 3, unfencedMessage
		}, Delete, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, s := holding(), State{Look: back}
			tt.change(&f, &s)
			got, why := f.Next(s, nil, nil)
			if got != tt.want || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("got %q, %q, want %q, %q", got, why, tt.want, tt.why)
			}
		})
	}
}

// Storage has one list of addresses for all its classes. So no address is let in that another fence shuts out and that
// must stay.
func TestNextBesideOthers(t *testing.T) {
	const stays = "NetworkFence g shuts out one of its addresses"
	for _, tt := range []struct {
		name  string
		other func(*Fence)
		state State // of the other's node
		want  Step
	}{
		{"ours, of the same node", func(*Fence) {}, State{Look: back}, Unfence},
		{"of another node that is back", func(f *Fence) { f.Node = "n2" }, State{Look: back}, Unfence},
		{"of another node that is silent", func(f *Fence) { f.Node = "n2" }, State{Look: silent}, Keep},
		{"of another class, on the boot that was cut off", func(f *Fence) { f.Class, f.Life.BootID = "d", "b2" },
			State{Look: back}, Keep},
		{"of another author", func(f *Fence) { f.Owned, f.Life = false, taint.Life{} }, State{}, Keep},
		{"of another author, by a subnet", func(f *Fence) { f.Owned, f.CIDRs = false, []string{"10.0.0.0/24"} },
			State{}, Keep},
		{"of another author, about another address", func(f *Fence) {
			f.Owned, f.CIDRs = false, []string{"10.0.0.2/32"}
		}, State{}, Unfence},
		{"of another author, and it is let in", func(f *Fence) { f.Owned, f.State = false, Unfenced }, State{},
			Unfence},
		{"its Node was deleted", func(f *Fence) { f.Node = "n2" }, State{}, Keep},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := holding()
			other.Name = "g"
			tt.other(&other)
			all, states := []Fence{holding(), other}, map[string]State{"g": tt.state}
			got, why := holding().Next(State{Look: back}, all, states)
			if got != tt.want || got == Keep && !strings.Contains(why, stays) {
				t.Errorf("got %q, %q, want %q", got, why, tt.want)
			}
			if want := other.Owned; (len(holding().Overlapping(all)) == 1) != want {
				t.Errorf("its node is read: %t, want %t", !want, want)
			}
		})
	}
}

func TestStanding(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *Fence, l *taint.Look)
		want   writes.State
	}{
		{"its node is silent", func(_ *Fence, l *taint.Look) { *l = silent }, writes.Holds},
		{"its node is Ready", func(*Fence, *taint.Look) {}, writes.Kept},
		{"its Node was deleted", func(_ *Fence, l *taint.Look) { *l = taint.Look{} }, writes.NodeGone},
		{"another Node has its name", func(_ *Fence, l *taint.Look) { l.UID = "u9" }, writes.NodeGone},
		{"it names no life", func(f *Fence, _ *taint.Look) { f.Life = taint.Life{} }, writes.NodeGone},
		{"it is being taken back", func(f *Fence, _ *taint.Look) { f.State = Unfenced }, writes.Ending},
		{"the same, of a Node that was deleted", func(f *Fence, l *taint.Look) { f.State, *l = Unfenced, taint.Look{} },
			writes.Ending},
		{"it is being deleted", func(f *Fence, l *taint.Look) { f.Deleting, *l = true, silent }, writes.Ending},
	} {
		f, l := holding(), back
		tt.change(&f, &l)
		if got := f.Standing(l); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
