package sim

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/fence"
)

// rules are what a history has beside the storm guard: who is left alone, and the nodes' modes. The zero value has
// neither.
type rules struct {
	words    bool // people and other operators say of nodes that they are to be left alone
	cordoned bool // a cordoned node's machine stays on
	modes    bool // nodes differ in their mode, and it changes
}

// drawRules draws them, and the nodes' modes.
func (w *World) drawRules() {
	if w.chance(0.5) || w.storm.many && w.chance(0.8) || w.Scenario == Cut {
		w.mode = fence.Fence
	}
	if w.Scenario.ruled() {
		w.rules = rules{words: w.chance(0.3), cordoned: w.chance(0.5), modes: w.chance(0.2)}
	}
	if w.Small != nil {
		w.mode, w.rules = w.Small.Mode, rules{words: true}
	}
	if w.near != nil {
		w.mode = []fence.Mode{fence.Observe, fence.Fence, fence.Fence, fence.OnRequest, fence.OnRequest}[w.rng.IntN(5)]
		w.rules.modes = w.chance(0.4)
	}
	for i, m := range w.machines {
		m.mode, m.metal3 = w.mode, w.near != nil && !m.split && i%3 == 1
		if w.rules.modes {
			m.mode = []fence.Mode{
				w.mode, fence.Observe, fence.OnRequest, fence.Fence, fence.Shadow, fence.Disabled,
			}[w.rng.IntN(6)]
			m.requested = w.chance(0.3)
		}
		m.moded()
	}
}

// word is what somebody says of a node, as the checker has it. A look that was sent after from shows it.
type word struct {
	node string // "": of all
	by   string // the means by which it is said: one of each at a time
	from time.Time
	till time.Time // when it is taken back, or ends by itself; zero: not yet
	on   bool      // it keeps a machine that is on from being powered off, and nothing else
	away bool      // it stands elsewhere than on the Node
	undo func()    // takes it back
}

// excludeLabel is that of medik8s' operators.
const excludeLabel = "remediation.medik8s.io/exclude-from-remediation"

// say has somebody say that a node, or every node, is to be left alone, and take it back later.
func (w *World) say(m *machine) {
	if !w.rules.words || w.calm || w.down || w.api.node(m.name) == nil {
		return
	}
	length := w.between(20*time.Second, 2*time.Minute).Truncate(time.Second)
	until := w.now.Add(length).Truncate(time.Second)
	o := &word{node: m.name, from: w.now}
	var say, unsay func(*corev1.Node)
	noted := func(text string) {
		o.by = "annotation"
		say = func(n *corev1.Node) { note(n, fence.PausedAnnotation, text) }
		unsay = func(n *corev1.Node) { unnote(n, fence.PausedAnnotation) }
	}
	condition := func(of corev1.NodeConditionType) {
		o.by = string(of)
		say = func(n *corev1.Node) { setCondition(n, corev1.NodeCondition{Type: of, Status: corev1.ConditionTrue}) }
		unsay = func(n *corev1.Node) { setCondition(n, corev1.NodeCondition{Type: of, Status: corev1.ConditionFalse}) }
	}
	switch w.rng.IntN(10) {
	case 0:
		noted("new disks")
	case 1:
		noted("new disks; until=" + until.UTC().Format(time.RFC3339))
		o.till = until
	case 2:
		noted("new disks; until=Tuesday")
	case 3:
		o.by = "label"
		say, unsay = func(n *corev1.Node) { label(n, excludeLabel, "true") },
			func(n *corev1.Node) { label(n, excludeLabel, "false") }
	case 4:
		condition("MaintenanceInProgress")
	case 5:
		condition("DrainInProgress")
		o.on = true
	case 6:
		condition("GracefulNodeShutdownInProgress")
		o.on = true
	case 7:
		o.by, o.on = "cordon", w.rules.cordoned
		say, unsay = func(n *corev1.Node) { n.Spec.Unschedulable = true },
			func(n *corev1.Node) { n.Spec.Unschedulable = false }
		if !w.rules.cordoned {
			o.till = w.now // it says nothing
		}
	case 8:
		o.node, o.by, o.away = "", "ConfigMap", true
	default:
		o.by, o.away, o.till = "Lease", true, w.now.Add(length)
	}
	if w.saying[[2]string{o.node, o.by}] != nil {
		return
	}
	switch o.by {
	case "ConfigMap":
		w.api.pause = map[string]string{"reason": "an upgrade"}
		if w.chance(0.3) {
			w.api.pause["until"], o.till = until.UTC().Format(time.RFC3339), until
		}
		o.undo = func() { w.api.pause = nil }
	case "Lease":
		holder, seconds, now := "node-maintenance", int32(length/time.Second), metav1.NewMicroTime(w.now)
		w.api.maintenance[m.name] = &coordinationv1.Lease{
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds},
		}
		o.undo = func() { delete(w.api.maintenance, m.name) }
	default:
		_ = w.api.patchNode("somebody", m.name, "", say)
		o.undo = func() { _ = w.api.patchNode("somebody", m.name, "", unsay) }
	}
	w.count("left alone by " + o.by)
	w.logf("somebody: %q is to be left alone, by %s", o.node, o.by)
	w.words = append(w.words, o)
	w.saying[[2]string{o.node, o.by}] = o
	if w.chance(0.8) {
		w.after(w.between(5*time.Second, 2*time.Minute), func() { w.unsay(o) })
	}
}

// unsay takes a word back, if it still stands.
func (w *World) unsay(o *word) {
	key := [2]string{o.node, o.by}
	switch {
	case w.saying[key] != o:
		return
	case w.down:
		w.after(time.Second, func() { w.unsay(o) })
		return
	}
	w.logf("somebody: %q is no more to be left alone, by %s", o.node, o.by)
	delete(w.saying, key)
	o.undo()
	o.end(w.now)
}

func (o *word) end(now time.Time) {
	if o.till.IsZero() || o.till.After(now) {
		o.till = now
	}
}

// forgotten are the words that stood on a Node which is deleted.
func (w *World) forgotten(node string) {
	for _, o := range w.words {
		if key := [2]string{node, o.by}; o.node == node && !o.away && w.saying[key] == o {
			delete(w.saying, key)
			o.end(w.now)
		}
	}
	if m := w.machine(node); m.lowered != "" {
		m.lowered = ""
		m.moded()
	}
}

// unsayAll is the end of all words and of all other modes than those that begin something, soon after the last fault.
func (w *World) unsayAll() {
	for _, o := range w.words {
		w.after(w.between(0, time.Minute), func() { w.unsay(o) })
	}
	for _, m := range w.machines {
		if m.lowered != "" || !m.mode.MayAct() {
			w.after(w.between(0, time.Minute), func() {
				m.raise()
				if !m.mode.MayAct() {
					m.configure(w.mode)
				}
			})
		}
	}
}

// excluded is "" or why a look leaves the node alone, by what stands elsewhere.
func (w *World) excluded(node string) string {
	if w.api.pause != nil {
		if p := fence.PauseOf(w.api.pause); !p.IsOver(w.now) {
			return p.String()
		}
	}
	if lease := w.api.maintenance[node]; lease != nil && fence.IsUnderMaintenance(lease, w.now) {
		return "node maintenance"
	}
	return ""
}

// leftAlone is a word on a node that a look which was sent then has seen, and that still stands: "" if there is none.
// on asks for those that speak of the power alone as well.
func (c *checker) leftAlone(node string, sent time.Time, on bool) string {
	for _, o := range c.w.words {
		if (o.node == node || o.node == "") && !o.from.After(sent) && (o.till.IsZero() || o.till.After(c.w.now)) &&
			(on || !o.on) {
			return o.by
		}
	}
	return ""
}

// moded is a node's mode from a time on.
type moded struct {
	at   time.Time
	mode fence.Mode
}

// configure is the configuration's word on the node's mode, which may be another from one moment to the next.
func (m *machine) configure(mode fence.Mode) {
	m.mode = mode
	m.moded()
}

// lower is somebody's annotation: a word that is no mode disables.
func (m *machine) lower() {
	w := m.w
	if !w.rules.modes || w.calm || w.down || w.api.node(m.name) == nil {
		return
	}
	m.lowered = []string{"fence", "onRequest", "observe", "shadow", "disabled", "off"}[w.rng.IntN(6)]
	_ = w.api.patchNode("somebody", m.name, "", func(n *corev1.Node) { note(n, fence.ModeAnnotation, m.lowered) })
	m.moded()
}

// raise takes the annotation off.
func (m *machine) raise() {
	if m.lowered == "" || m.w.down || m.w.api.node(m.name) == nil {
		return
	}
	_ = m.w.api.patchNode("somebody", m.name, "", func(n *corev1.Node) { unnote(n, fence.ModeAnnotation) })
	m.lowered = ""
	m.moded()
}

// moded notes which mode the node has now, by the design's table.
func (m *machine) moded() {
	least := []fence.Mode{fence.Disabled, fence.Shadow, fence.Observe, fence.OnRequest, fence.Fence}
	said := map[string]int{"": 4, "fence": 4, "onRequest": 3, "observe": 2, "shadow": 1}[m.lowered]
	now := least[min(said, slices.Index(least, m.mode))]
	if now == fence.OnRequest && m.w.near == nil {
		now = map[bool]fence.Mode{false: fence.Observe, true: fence.Fence}[m.requested]
	}
	m.modes = append(m.modes, moded{m.w.now, now})
	m.w.logf("%s: mode %s, by configuration %s, annotation %q, requested %v", m.name, now, m.mode, m.lowered,
		m.requested)
}

// request makes a request for the node, or takes it back.
func (m *machine) request() {
	m.requested = !m.requested
	m.moded()
}

// requestedBy is the request that counts, as a look at the Node sees it.
func (m *machine) requestedBy(node *corev1.Node) string {
	switch {
	case m.w.near != nil && node != nil:
		return m.w.near.permittedBy(node)
	case m.requested && m.w.near == nil:
		return "a request"
	}
	return ""
}

// modesSince are the modes that the node had at some time since then.
func (m *machine) modesSince(t time.Time) (out []fence.Mode) {
	for i := len(m.modes) - 1; i >= 0; i-- {
		out = append(out, m.modes[i].mode)
		if !m.modes[i].at.After(t) {
			break
		}
	}
	return out
}

// changeModes has modes change until end.
func (w *World) changeModes(end time.Time) {
	if !w.rules.modes {
		return
	}
	for range w.rng.IntN(5) {
		m := w.machines[w.rng.IntN(len(w.machines))]
		at := w.between(0, end.Sub(w.now))
		switch w.rng.IntN(4) {
		case 0:
			w.after(at, func() {
				if !w.calm {
					w.count("another mode")
					m.configure(
						[]fence.Mode{w.mode, w.mode, fence.Observe, fence.OnRequest, fence.Shadow,
							fence.Disabled}[w.rng.IntN(6)])
				}
			})
		case 1:
			w.after(at, func() { w.count("mode lowered"); m.lower() })
		case 2:
			w.after(at, func() { w.count("requested, or not any more"); m.request() })
		default:
			w.after(at, m.raise)
		}
	}
}

// begins holds that a fence may begin on the node, by its modes and by what is said of it, when its record or its mark
// is written. What was powered off is fenced to its end (invariant 11).
func (c *checker) begins(l taint.Look, what string) {
	w, m := c.w, c.w.machine(l.Name)
	if r := l.Record; r.IsOpen() && c.powered[r.ID] {
		return
	}
	if by := c.leftAlone(l.Name, l.Sent.Wall, false); by != "" {
		w.fail("8", "%s of %s, which is to be left alone by %s", what, l.Name, by)
	}
	if !slices.ContainsFunc(m.modesSince(l.Sent.Wall), fence.Mode.MayAct) {
		w.fail("mode", "%s of %s, whose mode is %s", what, l.Name, m.modes[len(m.modes)-1].mode)
	}
	if l.IsReleased() {
		w.fail("8", "%s of %s, which a person released in this life", what, l.Name)
	}
}

// keptOn is what else than the storm guard keeps a machine on when a power-off is sent, or announced.
func (c *checker) keptOn(l taint.Look, what string) {
	w := c.w
	if by := c.leftAlone(l.Name, l.Sent.Wall, true); by != "" {
		w.fail("8", "%s of %s, which %s keeps on", what, l.Name, by)
	}
	c.mayPowerOff(l, l.Sent.Wall, what)
	if w.near != nil {
		if at, deleted := w.near.deleted[w.near.claims[l.Name].UID]; deleted && at.Before(l.Sent.Wall) {
			w.fail("8", "%s of %s, whose machine Karpenter is deleting", what, l.Name)
		}
	}
}

// mayPowerOff holds that the node's mode, or a request for it, allowed a power-off at some time since then.
func (c *checker) mayPowerOff(l taint.Look, since time.Time, what string) {
	w, m := c.w, c.w.machine(l.Name)
	modes := m.modesSince(since)
	switch {
	case slices.Contains(modes, fence.Fence):
	case w.near != nil && slices.Contains(modes, fence.OnRequest):
		c.requested(l, what)
	default:
		w.fail("mode", "%s of %s, whose mode is %s", what, l.Name, modes[0])
	}
}

// asked holds that nobody is asked about a node that is disabled, but to end what was begun.
func (c *checker) asked(l taint.Look) {
	if c.w.machine(l.Name).still(l.Sent.Wall, fence.Disabled) && !l.Record.IsOpen() && l.Mark == nil {
		c.w.fail("mode", "the devices of %s are asked, which is disabled", l.Name)
	}
}

// still reports that the node had none but these modes since then.
func (m *machine) still(since time.Time, modes ...fence.Mode) bool {
	return !slices.ContainsFunc(m.modesSince(since), func(x fence.Mode) bool { return !slices.Contains(modes, x) })
}

// untouched holds that nothing of ours reaches a node that never was in another mode than shadow or disabled, nor the
// pods bound to it.
func (c *checker) untouched(by, node, what string) {
	m := c.w.machine(node)
	if m == nil || !ours(by) || !m.still(epoch, fence.Shadow, fence.Disabled) {
		return
	}
	c.w.fail("mode", "%s writes %s, whose mode never was another than shadow or disabled", by, what)
}

func label(n *corev1.Node, key, value string) { n.Labels = with(n.Labels, key, value) }

// with returns a copy of the map that has the value under the key.
func with(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

func unnote(n *corev1.Node, key string) {
	n.Annotations = maps.Clone(n.Annotations)
	delete(n.Annotations, key)
}
