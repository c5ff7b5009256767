package explore

import (
	"strconv"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/kubelet-admit/admit"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/proof"
)

// id is a UID, a boot, a fence or a resourceVersion: all are drawn from one counter. Zero is none.
type id uint32

// rv is the id as a resourceVersion; name as anything else.
func (i id) rv() string {
	if i == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(i), 10)
}

func (i id) name() string {
	if i == 0 {
		return ""
	}
	return "~" + strconv.FormatUint(uint64(i), 10)
}

// idOf is the id in a string that rv or name made, or in a record's token, which begins with a name; zero in any other.
func idOf(s string) id {
	n, at := id(0), 0
	if s != "" && s[0] == '~' {
		at = 1
	}
	for ; at < len(s) && s[at] >= '0' && s[at] <= '9'; at++ {
		n = n*10 + id(s[at]-'0')
	}
	return n
}

// maxPods is how many pods of the StatefulSet there may be. The first has a volume.
const maxPods = 2

// The two nodes. The first is the one that fails.
const (
	bad  = 0
	good = 1
)

// state is the world at one moment, and what each controller remembers. It is copied by assignment: what it points to
// is never changed.
type state struct {
	clock time.Duration // since epoch
	made  id            // the last that was drawn

	node    node         // the first node's Node and Lease; the second is always Ready
	pods    [maxPods]pod // as the API server stores them
	att     [2]bool      // the volume's VolumeAttachments, by node
	m       [2]machine   // the nodes' machines
	ctl     [2]*ctl      // nil: does not run
	orphans [2]*write    // writes on their way whose senders do not wait for them any more
	observe bool         // mode observe: no power-off

	pausedAt providers.Instant // the last time; for the checks
	left     Faults            // that may still happen
	ended    [maxPods]id       // the last tombstone: which fence's; for the checks
	_        [0]func()         // not comparable
}

// node is the Node and its Lease, as far as decisions read them.
type node struct {
	rv, lease, boot id
	unknown         bool // Ready is Unknown, and the taints that follow from that are there
	mark            id   // its value; zero: none
	rec             *taint.Record
	inUse, listed   bool // the volume is in volumesInUse, in volumesAttached
	poweredOn       bool // the condition PoweredOnNotReady
	paused          bool // an annotation says that it is to be left alone
	unready         bool // for the checks: Ready was not True at some time since the mark
}

// pod is one pod of the StatefulSet.
type pod struct {
	uid, rv  id // zero: there is none
	on       int8
	tomb     bool // it has a tombstone
	deleting bool
	spared   id // the fence that let it live
}

// unbound is pod.on of a pod that is not scheduled.
const unbound = -1

// stage is how far a container has come.
type stage uint8

const (
	none stage = iota
	admitted
	running
)

type container struct {
	uid   id
	stage stage
	told  bool // its kubelet wrote the pod's status
}

// seen is a pod as a kubelet's cache shows it.
type seen struct {
	uid  id
	over bool // ended, or being deleted
}

// machine is a node's hardware and what runs on it.
type machine struct {
	power    bool
	changing bool // a power-off was accepted
	cut      bool // no way to the API server
	up       bool // the kubelet runs
	booted   bool // it is not the first boot
	listed   bool // the kubelet has listed its pods
	wants    bool // the volume is to be mounted, and told as in use
	mounted  bool
	boot     id
	cache    [maxPods]seen
	before   [maxPods]seen // the cache when the power went: an API server's old answer may show that
	run      [maxPods]container
	hook     hook
}

// hook is what the node's hook knows (kubelet-admit).
type hook struct {
	admit.Node
	fresh bool // a consistent list was begun since the mark held all
	named bool // the Node's record names the volume
	known [maxPods]id
}

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *state) now() providers.Instant { return providers.InstantOf(epoch.Add(s.clock)) }

// tick lets a moment pass: enough to tell before from after.
func (s *state) tick() { s.clock += time.Microsecond }

func (s *state) draw() id {
	s.made++
	return s.made
}

const (
	nodeName  = "n1"
	otherName = "n2"
	nodeUID   = "uid-of-n1"
	volume    = "vol"
	claim     = "default/vol"
	unique    = corev1.UniqueVolumeName("kubernetes.io/csi/model^vol")
	daemon    = "uid-of-daemon"
)

var (
	ready, notKnown = corev1.ConditionTrue, corev1.ConditionUnknown

	devices  = []proof.Device{{Name: "bmc/n1", Machine: taint.MachineRef{Provider: "bmc", ID: "n1"}}}
	inUse    = []corev1.UniqueVolumeName{unique}
	attached = []corev1.AttachedVolume{{Name: unique}}
	volumes  = []action.Volume{{PV: volume, Claim: volume, Driver: "model", Unique: unique}}
	owner    = action.Owner{Kind: "StatefulSet", Name: "db", Known: true}
	names    = [maxPods]string{"db-0", "db-1"}
	endures  = []corev1.Toleration{
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	settings = fence.Settings{PowerOffAfter: time.Second, PowerOffTimeout: 20 * time.Second, Retry: 20 * time.Second}
	patience = evict.Settings{DetachTimeout: time.Hour}
)

// look is what a live look at the Node as it was, and at the Lease as it was, saw.
func (n *node) look(lease id, sent, got providers.Instant) taint.Look {
	l := taint.Look{
		Sent: sent, Got: got, Exists: true, Name: nodeName, UID: nodeUID, ResourceVersion: n.rv.rv(),
		BootID: n.boot.name(), Ready: ready,
		PoweredOn: n.poweredOn, Record: n.rec, LeaseRV: lease.rv(), LeaseDuration: 40 * time.Second,
	}
	if n.unknown {
		l.Ready = notKnown
	}
	if n.mark != 0 {
		l.Mark, l.MarkedBy = &taint.Mark{Value: n.mark.name(), Effect: corev1.TaintEffectNoSchedule}, taint.ByPerson
	}
	if n.inUse {
		l.InUse = inUse
	}
	if n.listed {
		l.Attached = attached
	}
	return l
}

// podsOn are the pods that a live list of the first node brings, without their volumes. None reads Ready: the writes
// that change it would multiply the states, and no decision about other pods depends on them.
func (s *state) podsOn() []action.Pod {
	out := []action.Pod{
		{Namespace: "default", Name: "cni", UID: daemon, ResourceVersion: "1", Exempt: taint.ExemptDaemon}}
	for i, p := range s.pods {
		if p.uid == 0 || p.on != bad {
			continue
		}
		e := action.Pod{
			Namespace: "default", Name: names[i], UID: p.uid.name(), ResourceVersion: p.rv.rv(), Owner: owner,
			Terminal: p.tomb, Tombstone: p.tomb,
			Deleting: p.deleting, Claims: i == 0, Tolerations: endures,
		}
		if p.deleting {
			e.Grace = 30
		}
		if p.spared != 0 && s.node.rec != nil {
			e.Spared = s.token(p.spared)
		}
		out = append(out, e)
	}
	return out
}

func (s *state) attachments() []action.Attachment {
	if !s.att[bad] {
		return nil
	}
	return []action.Attachment{{Name: "att", UID: "uid-of-att", ResourceVersion: "1", PV: volume, Attacher: "model"}}
}

// token is that of a fence: an older one's is only known to be another.
func (s *state) token(fence id) string {
	if idOf(s.node.rec.ID) == fence {
		return s.node.rec.Token()
	}
	return fence.name() + "/"
}

// writeNode makes a write of the Node known.
func (s *state) writeNode() { s.node.rv = s.draw() }

// start is a cluster at rest.
func start(o Options) state {
	s := state{left: o.Faults, observe: o.Mode == fence.Observe}
	s.node = node{boot: s.draw(), lease: s.draw(), inUse: true, listed: true}
	s.att[bad] = true
	for i := range s.m {
		m := &s.m[i]
		*m = machine{power: true, up: true, listed: true, boot: s.node.boot}
		m.hook = hook{Node: admit.Node{Read: true, ReadySeen: true, Listed: true}, fresh: true}
	}
	m := &s.m[bad]
	m.wants, m.mounted = true, true
	for i := range o.Pods {
		p := &s.pods[i]
		p.uid, p.rv = s.draw(), s.draw()
		m.cache[i], m.run[i], m.hook.known[i] = seen{uid: p.uid}, container{p.uid, running, true}, p.uid
	}
	s.writeNode()
	s.clock = time.Hour
	s.begin(0)
	return s
}
