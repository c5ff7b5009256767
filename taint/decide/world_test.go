package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/evict"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/decide/fleet"
	"github.com/forcefence/forcefence/taint/decide/proof"
	"github.com/forcefence/forcefence/taint/reason"
)

const (
	on, off, changing, unknown = providers.PowerOn, providers.PowerOff, providers.PowerChanging, providers.PowerUnknown
)

// world is one node, its machine and one executor, in virtual time: what the API server and the stock controllers do
// around a Node's course, reduced to what it can tell apart. Each act is held against the promises of the design, from
// what happened in the world and not from what the course remembers.
type world struct {
	World // the actions to which no story comes

	next action.Decision // that is carried out

	start, now providers.Instant
	volumes    map[string][]action.Volume // of listed pods, by UID
	listed     []action.Pod               // as they were last
	out        strings.Builder
	broken     []string // promises that were broken

	node     corev1.Node
	rv       int
	lease    int               // its resourceVersion; 0: none
	lastBeat providers.Instant // of the Lease
	life     providers.Instant // the last heartbeat, boot or creation
	pods     []action.Pod
	atts     []action.Attachment
	stock    bool // the attach/detach controller works

	power   providers.PowerState // what the device says
	latency time.Duration        // how long it takes
	obeys   string               // what a power-off does: "ok", "ignored", "refused", "stored"
	// stored: an operator has an order to power the machine off, and carries it out when it comes to that
	stored      bool
	withdrawErr error // why the order cannot be taken back now
	boots       int
	// contained: the node reads its host's boot id, and the device tells the machine's runs
	contained bool

	course   Node
	fleet    fleet.Fleet
	peers    providers.Instant // when the two other nodes renewed their Leases
	mode     fence.Mode
	excluded string
	control  bool
	trust    bool
	device   string
	fences   int
	before   map[string][]string // act -> commands that happen between its look and it

	// what the promises are checked with
	looked   providers.Instant            // the last look was sent
	snapshot providers.Instant            // the look that the open fence was begun with was sent
	markAt   providers.Instant            // the mark was committed
	unready  providers.Instant            // Ready left True
	unwanted map[string]providers.Instant // attachments: no pod has needed the volume since
	offs     []providers.Answer
	touched  bool // a pod was ended under this mark
	alerts   map[string]bool
	// pod -> what the API server says to its writes: "large" (to all but small ones), "huge", "fails", "denied",
	// "changes"
	refuses map[string]string
	recent  [2]string
	skipped int
	busy    int // decisions in a row that were no Wait
	last    string
}

func newWorld() *world {
	start := providers.InstantOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	w := &world{start: start, now: start, power: on, latency: 100 * time.Millisecond, obeys: "ok", device: "rack-a/7",
		stock: true, lease: 1, boots: 1,
		before: map[string][]string{}, volumes: map[string][]action.Volume{}, alerts: map[string]bool{},
		refuses: map[string]string{}, unwanted: map[string]providers.Instant{}}
	w.node.Name, w.node.UID = "n1", "u1"
	w.node.Status.NodeInfo.BootID = "b1"
	w.leads()
	w.beat()
	return w
}

func (w *world) change() { w.rv++; w.node.ResourceVersion = strconv.Itoa(w.rv) }

func (w *world) setReady(s corev1.ConditionStatus) {
	if w.ready() && s != corev1.ConditionTrue {
		w.unready = w.now
	}
	w.setCondition(corev1.NodeReady, s)
}

func (w *world) setCondition(t corev1.NodeConditionType, s corev1.ConditionStatus) {
	w.node.Status.Conditions = append(
		slices.DeleteFunc(w.node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t }),
		corev1.NodeCondition{Type: t, Status: s, LastTransitionTime: metav1.NewTime(w.now.Wall)})
	w.change()
}

func (w *world) ready() bool {
	return slices.ContainsFunc(w.node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// beat is a kubelet's heartbeat.
func (w *world) beat() {
	w.lease++
	w.lastBeat, w.life = w.now, w.now
	w.fleet.ApplyLease("n1", strconv.Itoa(w.lease), 40*time.Second, w.now)
	if !w.ready() {
		w.setReady(corev1.ConditionTrue)
	}
}

func (w *world) boot() {
	w.boots++
	w.power, w.life = on, w.now
	if !w.contained {
		w.node.Status.NodeInfo.BootID = fmt.Sprintf("b%d", w.boots)
	}
	w.node.Status.VolumesInUse = nil // nothing is mounted yet
	w.change()
	w.beat()
}

// pass lets time go by, and the stock controllers do what they do meanwhile.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for next := w.peers.Add(10 * time.Second); !next.After(end); next = w.peers.Add(10 * time.Second) {
		w.now = next
		w.renewPeers()
	}
	w.now = end
	w.fleet.Tick(w.now)
	if w.ready() && w.now.Sub(w.lastBeat) > 50*time.Second {
		w.setReady(corev1.ConditionUnknown)
	}
	if !w.stock {
		return
	}
	inUse := map[corev1.UniqueVolumeName]bool{}
	for _, n := range w.node.Status.VolumesInUse {
		inUse[n] = true
	}
	left := evict.UnusedAttachments(w.pods, w.atts, false)
	n := len(w.atts)
	w.atts = slices.DeleteFunc(w.atts, func(a action.Attachment) bool { // F4
		if !slices.Contains(left, a) {
			delete(w.unwanted, a.Name)
			return false
		}
		since, known := w.unwanted[a.Name]
		if !known {
			w.unwanted[a.Name], since = w.now, w.now
		}
		return !inUse[unique(a.PV)] || !w.ready() && w.now.Sub(since) > 6*time.Minute
	})
	if len(w.atts) != n { // F5: volumesAttached comes back whole
		w.node.Status.VolumesAttached = nil
		for _, a := range w.atts {
			w.node.Status.VolumesAttached = append(w.node.Status.VolumesAttached,
				corev1.AttachedVolume{Name: unique(a.PV)})
		}
		w.change()
	}
}

func unique(pv string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/d^lun-%x", pv)) // a volume's handle is not its name
}

// leads begins a process: it knows what it sees from now on.
func (w *world) leads() {
	w.course, w.fleet = Node{}, fleet.Fleet{}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.fleet.AddNode(n, w.now)
	}
	w.fleet.ApplyLease("n1", strconv.Itoa(w.lease), 40*time.Second, w.now)
	w.renewPeers()
}

// renewPeers is the heartbeat of the other nodes.
func (w *world) renewPeers() {
	w.peers = w.now
	for _, n := range []string{"n2", "n3"} {
		w.fleet.ApplyLease(n, strconv.FormatInt(w.now.Wall.UnixNano(), 10), 40*time.Second, w.now)
	}
}

// do carries one line of a story out.
func (w *world) do(line string) error {
	f := strings.Fields(line)
	flag := func(name string) bool { return slices.Contains(f[1:], name) }
	value := func(name string) string {
		for _, x := range f[1:] {
			if v, ok := strings.CutPrefix(x, name+"="); ok {
				return v
			}
		}
		return ""
	}
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "pod":
		p := action.Pod{Namespace: "ns", Name: f[1], ResourceVersion: "1", Tolerations: patient}
		p.UID = fmt.Sprintf("%s-%d", f[1], w.rv)
		p.First = flag("first")
		p.Ready = flag("ready")
		if flag("exempt") {
			p.Exempt = taint.ExemptDaemon
		}
		if flag("finalizer") {
			p.Finalizers = []string{"example.com/keep"}
		}
		if flag("intolerant") {
			p.Tolerations = nil
		}
		// what the API server says to its writes; it can be deleted only if they succeed
		if v := value("refuses"); v != "" {
			w.refuses[f[1]] = v
		}
		if pv := value("volume"); pv != "" {
			p.Volumes, p.ClaimNames = []action.Volume{{PV: pv, Unique: unique(pv)}}, []string{pv}
			w.atts = append(w.atts, action.Attachment{Name: "va-" + pv, PV: pv})
			w.node.Status.VolumesInUse = append(w.node.Status.VolumesInUse, unique(pv))
			w.node.Status.VolumesAttached = append(w.node.Status.VolumesAttached,
				corev1.AttachedVolume{Name: unique(pv)})
		}
		if v := value("priority"); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return err
			}
			p.Priority = int32(n)
		}
		if pv := value("shares"); pv != "" { // a volume that another pod brought
			p.Volumes = append(p.Volumes, action.Volume{PV: pv, Unique: unique(pv)})
		}
		if pv := value("export"); pv != "" { // a claim whose volume is never attached
			p.Volumes = append(p.Volumes, action.Volume{PV: pv})
		}
		w.pods = append(w.pods, p)
		w.change()
	case "refuses": // from now on; "nothing"
		w.refuses[f[1]] = arg(2)
	case "inline": // an attachment of a volume without a PersistentVolume
		w.atts = append(w.atts, action.Attachment{Name: "va-inline"})
	case "finalized": // the finalizers are removed: pods that were deleted go
		w.pods = slices.DeleteFunc(w.pods, stuck)
	case "stock-deletes": // the stock eviction controller
		for i := range w.pods {
			if w.pods[i].Name == arg(1) {
				w.pods[i].Deleting, w.pods[i].Grace = true, 30
			}
		}
	case "machine":
		state, ok := map[string]providers.PowerState{"on": on, "off": off, "changing": changing,
			"dead": unknown}[arg(1)]
		if !ok {
			return fmt.Errorf("machine %q", arg(1))
		}
		w.power = state
	case "device":
		if v := value("latency"); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil {
				return err
			}
			w.latency = d
		}
		if v := value("power-off"); v != "" {
			w.obeys = v
		}
		switch value("withdraw") {
		case "fails":
			w.withdrawErr = providers.ErrUnreachable
		case "ok":
			w.withdrawErr = nil
		}
		if flag("none") {
			w.device = ""
		}
	case "operator": // it carries out what is stored
		if w.stored {
			w.power = off
		}
	case "beat":
		w.beat()
	case "boot":
		w.boot()
	case "mode":
		w.mode = fence.Observe
		if arg(1) == "fence" {
			w.mode = fence.Fence
		}
	case "exclude":
		w.excluded = arg(1)
	case "control-plane":
		w.control = true
	case "trust":
		w.trust = true
	case "container":
		w.contained = true
	case "mark": // a person's kubectl taint
		w.node.Spec.Taints = append(slices.DeleteFunc(slices.Clone(w.node.Spec.Taints), func(t corev1.Taint) bool {
			return t.Key == taint.DefaultKey && t.Effect == corev1.TaintEffectNoSchedule
		}), corev1.Taint{Key: taint.DefaultKey, Value: arg(1), Effect: corev1.TaintEffectNoSchedule})
		w.change()
	case "unmark": // a person's kubectl taint ...-
		w.node.Spec.Taints = slices.DeleteFunc(slices.Clone(w.node.Spec.Taints),
			func(t corev1.Taint) bool { return t.Key == taint.DefaultKey })
		w.change()
	case "release": // forcefence release
		if r, _ := taint.RecordOf(&w.node); r.IsOpen() || r != nil && r.Result == taint.ResultNeverPoweredOff {
			r.NodeUID, r.BootID, r.LeaseRV = string(w.node.UID), w.node.Status.NodeInfo.BootID, strconv.Itoa(w.lease)
			w.write(r.EnterPhase(taint.PhaseDone, taint.ResultReleased, w.now.Wall))
		}
		w.node.Spec.Taints = slices.DeleteFunc(slices.Clone(w.node.Spec.Taints),
			func(t corev1.Taint) bool { return t.Key == taint.DefaultKey })
		w.change()
	case "garble": // a person edits the record
		w.node.Annotations = map[string]string{taint.RecordAnnotation: "{"}
		w.change()
	case "label":
		w.change()
	case "leader": // another process leads
		w.leads()
	case "before":
		act, then, ok := strings.Cut(strings.TrimPrefix(line, "before "), ": ")
		if !ok {
			return fmt.Errorf("want before ACT: LINE, got %q", line)
		}
		w.before[act] = append(w.before[act], then)
	case "sleep":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		w.pass(d)
	case "step":
		n := 1
		if arg(1) != "" {
			n, _ = strconv.Atoi(arg(1))
		}
		for range n {
			w.step(0)
		}
		w.flush()
	case "run": // until there is nothing to do, or a time
		limit := 10 * time.Minute
		if arg(1) != "" {
			d, err := time.ParseDuration(arg(1))
			if err != nil {
				return err
			}
			limit = d
		}
		for end := w.now.Add(limit); w.now.Before(end) && w.step(end.Sub(w.now)); {
		}
		w.flush()
	case "until": // and with a decision for the act
		for n := 0; ; n++ {
			w.step(0)
			if w.last == arg(1) {
				break
			}
			if n == 1000 {
				return fmt.Errorf("no %s in 1000 decisions", arg(1))
			}
		}
		w.flush()
	case "show":
		w.flush()
		fmt.Fprintf(&w.out, "    %s\n", w)
	default:
		return fmt.Errorf("no such command: %q", line)
	}
	return nil
}

// String is the world in a line.
func (w *world) String() string {
	var b strings.Builder
	mark := "no mark"
	if m, ok := taint.FindMark(&w.node, taint.DefaultKey, ""); ok {
		mark = "mark " + m.Value
	}
	rec := "no record"
	if r, err := taint.RecordOf(&w.node); err != nil {
		rec = "bad record"
	} else if r != nil {
		rec = strings.TrimSpace(fmt.Sprintf("record %s %s %s", r.ID, r.Phase, r.Result))
	}
	fmt.Fprintf(&b, "%s, %s; machine %s; pods", mark, rec, w.power)
	for _, p := range w.pods {
		state := ""
		switch {
		case stuck(p):
			state = "(kept)"
		case p.Tombstone:
			state = "(tombstone)"
		case p.Ready:
			state = "(ready)"
		}
		b.WriteString(" " + p.Name + state)
	}
	fmt.Fprintf(&b, "; attached")
	for _, a := range w.atts {
		b.WriteString(" " + a.PV)
	}
	fmt.Fprintf(&b, "; in use %d, listed %d", len(w.node.Status.VolumesInUse), len(w.node.Status.VolumesAttached))
	return b.String()
}

func (w *world) print(act, why, detail string) {
	key := act + " " + why + " " + detail
	if slices.Contains(w.recent[:], key) {
		w.skipped++
		return
	}
	w.rest()
	w.recent[0], w.recent[1] = w.recent[1], key
	fmt.Fprintf(&w.out, "    %7.2fs  %s\n", w.now.Sub(w.start).Seconds(),
		strings.TrimRight(fmt.Sprintf("%-23s %s%s", act, why, detail), " "))
}

// rest says how often the last two decisions were repeated in turns.
func (w *world) rest() {
	if w.skipped > 0 {
		fmt.Fprintf(&w.out, "              and so on, %d times\n", w.skipped)
	}
	w.skipped = 0
}

func (w *world) flush() {
	w.rest()
	w.recent = [2]string{}
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf("%.2fs: ", w.now.Sub(w.start).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) write(r taint.Record) {
	w.node.Annotations = map[string]string{taint.RecordAnnotation: r.Encode()}
	w.change()
}

// patient pods are ended by the stock eviction after five minutes.
var patient = func() (ts []corev1.Toleration) {
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		ts = append(ts,
			corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(300))})
	}
	return ts
}()

// stuck pods were deleted, and foreign finalizers keep them.
func stuck(p action.Pod) bool { return p.Deleting && p.Grace == 0 && len(p.Finalizers) > 0 }

// step does what the course says, up to an act or a wait. It reports whether there was something to do; a wait is cut
// short at most (0: not).
func (w *world) step(most time.Duration) bool {
	w.pass(time.Millisecond)
	by := Driver{World: w, WithFleet: func(do func(Fleet)) { do(&w.fleet) },
		Now: func() providers.Instant { return w.now }, OnStep: w.done}
	for {
		s := Step(context.Background(), witness{w}, by)
		switch {
		case action.IsRead(s.Decision.Action):
			continue
		case action.Is[action.NoAction](s.Decision) || w.busy > 60:
			w.busy = 0
			return false
		case action.Is[action.Wait](s.Decision):
			w.busy = 0
			wait := s.Decision.RequeueAfter
			if most > 0 {
				wait = min(wait, most)
			}
			w.pass(max(wait, time.Millisecond))
		}
		return true
	}
}

// done prints a look that led to a decision, once the decision is there.
func (w *world) done(s StepDone) {
	if s.Decision.Reason != "" && action.Is[action.ReadNode](s.Decision) {
		w.print("Look", string(s.Decision.Reason), "")
	}
}

// witness is the world's course. What it decides is printed, and lets happen what was to happen before it is done.
type witness struct{ w *world }

func (c witness) Look() taint.Look { return c.w.course.Look() }

func (c witness) Apply(now providers.Instant, f Fleet, o Observation) { c.w.course.Apply(now, f, o) }

func (c witness) Next(now providers.Instant, f Fleet) action.Decision {
	d := c.w.course.Next(now, f)
	if !action.IsRead(d.Action) {
		c.w.decided(d)
	}
	return d
}

// ReadNode takes its time, as all reads do.
func (w *world) ReadNode(context.Context) Observation {
	sent := w.now
	node := w.node.DeepCopy()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(w.lease)}}
	w.looked = sent
	w.pass(10 * time.Millisecond)
	facts := Facts{
		Facts: fence.Facts{
			Mode: w.mode, Devices: []proof.Device{{Name: w.device, Orders: w.obeys == "stored"}}, Excluded: w.excluded,
			NewID: fmt.Sprintf("f%d", w.fences+1), By: "me",
			Settings: fence.Settings{PowerOffAfter: 30 * time.Second, PowerOffTimeout: time.Minute,
				Retry: 2 * time.Minute},
		},
		Evict: evict.Settings{DetachTimeout: 5 * time.Minute, TrustPerson: w.trust},
	}
	if w.device == "" {
		facts.NoDeviceErr, facts.Devices = errors.New("no provider knows it"), nil
	}
	if w.control {
		node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	}
	return NodeRead{Look: taint.NewLook(node, lease, taint.DefaultKey, sent, w.now), Facts: facts}
}

func (w *world) ListPods(context.Context) Observation {
	w.listed = w.listing()
	w.pass(5 * time.Millisecond)
	return PodsListed{Pods: w.listed}
}

func (w *world) ReadVolumes(_ context.Context, a action.ReadVolumes) Observation {
	of := map[string][]action.Volume{}
	for _, p := range a.Pods {
		of[p.UID] = w.volumes[p.UID]
	}
	return VolumesRead{ByPod: of}
}

func (w *world) ReadClaims(_ context.Context, a action.ReadClaims) Observation {
	of := map[string]string{}
	for _, pv := range a.PVs {
		of[pv] = "ns/" + pv
	}
	return ClaimsRead{ByVolume: of}
}

func (w *world) ListAttachments(_ context.Context, a action.ListAttachments) Observation {
	return AttachmentsListed{Attachments: slices.Clone(w.atts), Live: a.Live}
}

// listing is a list of pods: it does not tell their volumes.
func (w *world) listing() []action.Pod {
	out := slices.Clone(w.pods)
	for i := range out {
		p := &out[i]
		w.volumes[p.UID] = p.Volumes
		p.Volumes, p.Claims = nil, len(p.Volumes) > 0
	}
	return out
}

// decided prints a decision, and does what was to happen before it is carried out.
func (w *world) decided(s action.Decision) {
	w.next = s
	l := w.course.Look()
	detail := ""
	if s.Detail != "" && l.Mark == nil {
		detail = " (" + s.Detail + ")"
	}
	for _, p := range action.PodsOf(s.Action) {
		detail += " " + p.Name
		if p.Small {
			detail += "(small)"
		}
	}
	if action.NeedsNoProof(s.Action) {
		detail += " (returned)"
	}
	if action.RecordOf(s.Action).Phase != "" {
		detail += " -> " +
			strings.TrimSpace(
				fmt.Sprintf("%s %s %s", action.RecordOf(s.Action).ID, action.RecordOf(s.Action).Phase,
					action.RecordOf(s.Action).Result))
	}
	if s.Alert != "" {
		detail += " ALERT"
		w.alerts[s.Alert] = true
	}
	for _, p := range s.Stuck {
		detail += fmt.Sprintf(" %s: %s: %s;", p.Name, p.Write, p.Why)
	}
	w.print(act(s), string(s.Reason), detail)
	w.last = act(s)
	for _, line := range w.before[w.last] {
		if err := w.do(line); err != nil {
			w.breaks("before %s: %v", w.last, err)
		}
	}
	delete(w.before, w.last)
	if w.busy++; w.busy > 60 {
		w.breaks("hot loop: 60 decisions without a wait")
	}
}

func (w *world) PowerOff(context.Context, action.PowerOff) Observation {
	if err := w.still(); err != nil {
		w.print("", "nothing is sent", ": "+err.Error())
		return ActionDone{Withheld: true}
	}
	w.checkPowerOff(w.course.Look())
	o := ActionDone{SentAt: w.now,
		Err: map[string]error{"refused": providers.ErrUnreachable, "impossible": providers.ErrPermanent}[w.obeys]}
	switch w.obeys {
	case "ok":
		w.power = off
	case "stored":
		w.stored = true
	}
	w.pass(50 * time.Millisecond)
	return o
}

func (w *world) EndPods(context.Context, action.EndPods) Observation { return w.writePods() }

func (w *world) DeletePods(context.Context, action.DeletePods) Observation { return w.writePods() }

func (w *world) SparePods(context.Context, action.SparePods) Observation { return w.writePods() }

func (w *world) SetPodsNotReady(context.Context, action.SetPodsNotReady) Observation {
	return w.writePods()
}

// still is the last check before a power action, with a cache that is never behind.
func (w *world) still() error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(w.lease)}}
	l := taint.NewLook(&w.node, lease, taint.DefaultKey, w.now, w.now)
	return w.course.StillHolds(w.now, Recheck{
		Seen: l, Facts: fence.Facts{Mode: w.mode, Excluded: w.excluded}, Fleet: w.fleet.View(l.Name, w.now),
	})
}

// writePods writes one pod after the other, each while it may be.
func (w *world) writePods() Observation {
	s, l := w.next, w.course.Look()
	how := map[string]action.WriteResult{}
	for _, p := range action.PodsOf(s.Action) {
		hold := w.course.HoldsFor(p.UID, w.now, w.fleet.View(l.Name, w.now))
		if hold == HoldSkipPod {
			continue
		}
		if hold != HoldYes {
			w.print("", "not sent any more", "")
			break
		}
		if !action.NeedsNoProof(s.Action) && act(s) != "SparePods" {
			w.checkProof(act(s), l)
		}
		if act(s) == "SetPodsNotReady" && !w.proven() {
			w.breaks("%s loses Ready without a fresh proof", p.Name)
		}
		w.pass(3 * time.Millisecond)
		if how[p.UID] = w.refuse(act(s), p); how[p.UID] != action.Accepted {
			continue
		}
		i := slices.IndexFunc(w.pods,
			func(q action.Pod) bool { return q.UID == p.UID && q.ResourceVersion == p.ResourceVersion })
		if i < 0 {
			continue // 404 or 409: the next list knows
		}
		q := &w.pods[i]
		switch {
		case act(s) == "EndPods":
			if q.Exempt != taint.NotExempt || q.Terminal {
				w.breaks("tombstoned %s, which is exempt or finished", q.Name)
			}
			q.Terminal, q.Tombstone, w.touched = true, true, true
			q.ResourceVersion += "t"
		case act(s) == "SparePods" && p.Small:
			q.ResourceVersion += "s"
		case act(s) == "SparePods":
			if q.Exempt != taint.NotExempt || q.Terminal {
				w.breaks("spared %s, which is exempt or finished", q.Name)
			}
			q.Spared = l.Record.Token()
			q.ResourceVersion += "s"
		case act(s) == "SetPodsNotReady":
			if q.Exempt == taint.NotExempt || q.Terminal || !q.Ready {
				w.breaks("set %s not ready, which goes, is finished or is not Ready", q.Name)
			}
			q.Ready = false
			q.ResourceVersion += "r"
		case !q.Tombstone:
			w.breaks("deleted %s without a tombstone", q.Name)
		case len(q.Finalizers) > 0:
			q.Deleting, q.Grace = true, 0
			q.ResourceVersion += "d"
		default:
			w.pods = slices.Delete(w.pods, i, i+1)
		}
	}
	return ActionDone{Results: how}
}

var errConflict = errors.New("conflict")

// writeNode writes the Node, if no other writer did since the look.
func (w *world) writeNode(do func()) Observation {
	w.pass(5 * time.Millisecond)
	if w.course.Look().ResourceVersion != w.node.ResourceVersion {
		w.print("", "conflict", "")
		return ActionDone{Err: errConflict}
	}
	do()
	return ActionDone{}
}

// writeRecord writes the record of a fence that begins or goes on.
func (w *world) writeRecord(r taint.Record, first func()) Observation {
	return w.writeNode(func() {
		adopted := w.next.Reason == reason.Adopting && r.Phase == taint.PhaseArmed
		if w.course.Look().Mark == nil || adopted {
			w.snapshot = w.looked
		}
		if adopted {
			w.touched = false
		}
		if r.ID == fmt.Sprintf("f%d", w.fences+1) {
			w.fences++
		}
		first()
		w.write(r)
	})
}

func (w *world) WriteRecord(_ context.Context, a action.WriteRecord) Observation {
	return w.writeRecord(a.Record, func() {})
}

// WithdrawOrders takes the orders back, unless their device does not answer.
func (w *world) WithdrawOrders(_ context.Context, a action.WithdrawOrders) Observation {
	if w.withdrawErr != nil {
		return ActionDone{Err: w.withdrawErr}
	}
	w.stored = false
	return w.writeRecord(a.Record, func() {})
}

func (w *world) SetMark(_ context.Context, a action.SetMark) Observation {
	return w.writeRecord(a.Record, func() {
		w.checkArm(a.Record)
		w.node.Spec.Taints = taint.WithMark(w.node.Spec.Taints, taint.DefaultKey, a.Record.ID, w.now.Wall)
		w.markAt, w.touched = w.now, false
	})
}

func (w *world) SetPoweredOnCondition(_ context.Context, a action.SetPoweredOnCondition) Observation {
	return w.writeNode(func() {
		w.setCondition(taint.PoweredOnCondition,
			map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[a.On])
	})
}

func (w *world) ExpireReady(context.Context) Observation {
	return w.writeNode(func() {
		if w.power != off && w.life.After(w.snapshot) && w.life.Before(w.looked) {
			w.breaks("Ready of a node that is alive was expired")
		}
		w.setReady(corev1.ConditionUnknown)
	})
}

func (w *world) ClearVolumes(_ context.Context, a action.ClearVolumes) Observation {
	l := w.course.Look()
	if w.course.HoldsFor("", w.now, w.fleet.View(l.Name, w.now)) != HoldYes {
		w.print("", "not sent any more", "")
		return ActionDone{Err: errConflict}
	}
	return w.writeNode(func() {
		w.checkProof("ClearVolumes", l)
		w.node.Status.VolumesInUse, w.node.Status.VolumesAttached = a.InUse, a.Attached
		w.change()
	})
}

func (w *world) RemoveMark(_ context.Context, a action.RemoveMark) Observation {
	return w.writeNode(func() {
		waitedFor := func(p action.Pod) bool {
			return p.Tombstone && !stuck(p) &&
				!slices.ContainsFunc(w.next.Stuck,
					func(q action.StuckPod) bool { return q.UID == p.UID && q.Write == action.WritesDelete })
		}
		if left := evict.UnusedAttachments(w.pods, w.atts, false); w.touched &&
			(slices.ContainsFunc(w.listed, waitedFor) || len(left) > 0) {
			w.breaks("the mark goes with tombstoned pods or attachments left: %s", w)
		}
		w.node.Spec.Taints = taint.WithoutMark(w.node.Spec.Taints, taint.DefaultKey, a.Record.ID)
		w.write(a.Record)
	})
}

// refuse is the API server's answer to a pod's write.
func (w *world) refuse(do string, p action.Pod) action.WriteResult {
	switch w.refuses[p.Name] {
	case "large":
		if p.Small || do == "DeletePods" {
			return action.Accepted
		}
		return action.TooLarge
	case "huge":
		return action.TooLarge
	case "fails":
		return action.Failed
	case "denied":
		return action.Denied
	case "changes":
		return action.Changed
	}
	return action.Accepted
}

// AskDevices puts the question; the machine answers with what it is when the question arrives.
func (w *world) AskDevices(context.Context) Observation {
	a := providers.Answer{Observation: providers.Observation{State: w.power, Raw: w.power.String(), At: w.now},
		By: "rack-a"}
	if w.contained {
		a.Run = fmt.Sprintf("run %d", w.boots)
	}
	if w.device == "" {
		a.State, a.Err = unknown, providers.ErrPermanent
	}
	if w.power == unknown {
		a.Run = ""
		a.Err = providers.ErrUnreachable
	}
	for _, line := range w.before["answer"] {
		if err := w.do(line); err != nil {
			w.breaks("before answer: %v", err)
		}
	}
	delete(w.before, "answer")
	w.pass(w.latency)
	a.Got = w.now
	if a.State == off {
		w.offs = append(w.offs, a)
	}
	return DevicesAnswered{Answers: []providers.Answer{a}}
}

// checkArm: the mark only after an exact Off that was asked for, and answered, before the look it is written with, and
// no life that the API showed between the question and that look.
func (w *world) checkArm(r taint.Record) {
	n := len(w.offs)
	switch {
	case n == 0:
		w.breaks("armed without an Off")
	case w.offs[n-1].Got.After(w.looked):
		w.breaks("armed with a look that is older than the answer")
	case w.looked.Sub(w.offs[n-1].At) > proof.TTL:
		w.breaks("armed with an answer that is too old")
	case w.life.After(w.offs[n-1].At) && w.life.Before(w.looked):
		w.breaks("armed though the node lived after the question")
	}
	if r.BootID != w.node.Status.NodeInfo.BootID {
		w.breaks("armed with boot id %s of a node that has %s", r.BootID, w.node.Status.NodeInfo.BootID)
	}
}

// checkPowerOff: a power-off is allowed only if it was announced, in mode fence, by a leader that looked, and if
// nothing forbids it.
func (w *world) checkPowerOff(l taint.Look) {
	switch {
	case l.Record == nil || l.Record.Phase != taint.PhasePoweringOff:
		w.breaks("powered off without a record")
	case w.life.After(w.snapshot) && w.life.Before(w.looked):
		w.breaks("powered off a node that lived after it was announced")
	case l.Record.LeaseRV != l.LeaseRV || l.Record.BootID != l.BootID:
		w.breaks("powered off a node that is not the record's")
	}
}

// checkProof is invariant 1, and the return path: no act after life was seen.
func (w *world) checkProof(act string, l taint.Look) {
	if l.Record.LeaseRV != l.LeaseRV || l.Record.BootID != l.BootID || l.IsReady() {
		w.breaks("%s on a node that lives", act)
	}
	if l.Record.By == taint.ByPerson {
		if w.now.Sub(w.looked) > proof.TTL+20*time.Millisecond {
			w.breaks("%s on a person's word, looked %s ago", act, w.now.Sub(w.looked))
		}
		return
	}
	if !w.proven() {
		w.breaks("%s without a fresh proof", act)
	}
}

// proven reports whether an Off proves now that the machine is off.
func (w *world) proven() bool {
	return slices.ContainsFunc(w.offs, func(a providers.Answer) bool {
		// The write takes 5 ms.
		return !a.At.Before(w.markAt) && !a.At.Before(w.unready) && w.now.Sub(a.At) <= proof.TTL+5*time.Millisecond
	})
}
