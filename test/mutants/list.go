package main

import "path"

// sim plays the histories of test/sim: enough of them to take every path many times, few enough for a mutant's two minutes.
const sim = "./test/sim -run TestHistories -sim.seeds=4000"

// hook is the node's hook without a control plane: its memory, and its reader in front of answers in a chosen order.
const hook = "./kubelet-admit/nri -short -run Test(View|NoBoot|Held|Restore|Ended|Pods|Mark|NodeGone|Status|Memory|Plugin|Quorum)|FuzzView"

// The installer's wait for a kubelet, and what is told of a node without a hook, take no control plane either.
const (
	installBoot = "./kubelet-admit/install -short -run TestInstallOnAnotherBoot"
	noHook      = "./taint/controller -short -run TestNodeWithoutHookIsTold"
)

// podFailures are the controller's tests of pod writes, without a control plane.
const podFailures = "./taint/controller -short"

// glue is the controller without a control plane: its decisions around objects in memory.
var glue = []string{"./taint/controller -short"}

// wiring is what becomes of a configuration file.
var wiring = []string{"./cmd/internal/app"}

// testsOf returns the tests that are to kill a mutant, in turn. Where a decision is weakened its unit tests and stories come first,
// then the whole protocol's simulation.
func testsOf(m Mutant) []string {
	if m.Tests != nil {
		return m.Tests
	}
	dir := path.Dir(m.File)
	switch dir {
	case "taint/fleet", "taint/fence", "taint/evict", "taint":
		return []string{"./taint ./taint/fleet ./taint/fence ./taint/evict", sim}
	case "kubelet-admit/nri":
		return []string{hook}
	case "kubelet-admit/admit":
		return []string{"./" + dir, sim}
	default:
		return []string{"./" + dir}
	}
}

// Mutants are the weakenings, by the file they weaken. The numbers are the design's invariants and steps.
var Mutants = []Mutant{
	// Asking (invariants 1 to 3).
	{
		Name: "ask: an answer of before the question counts (1)", File: "providers/providers.go",
		Old: "case obs.At.Before(sent):", New: "case false:",
	},
	{
		Name: "ask: an answer of the future keeps its time (1)", File: "providers/providers.go",
		Old: "case obs.At.After(now()):", New: "case false:",
	},
	{
		Name: "ask: another machine's answer counts (3)", File: "providers/providers.go",
		Old: "a.State, a.Err = PowerUnknown, err\n", New: "a.Err = nil\n",
	},
	{
		Name: "ask: a state that is none counts (2)", File: "providers/providers.go",
		Old: "if a.State > PowerChanging {", New: "if false {",
	},
	{
		Name: "ask: an error brings its state along (2)", File: "providers/providers.go",
		Old: "a.Raw, a.Err = clip(obs.Raw), err\n", New: "a.Raw, a.Err, a.State = clip(obs.Raw), err, obs.State\n",
	},
	{
		Name: "ask: a panic is not caught", File: "providers/providers.go",
		Old: "if r := recover(); r != nil {", New: "if r := any(nil); r != nil {",
	},
	{
		Name: "identity: a mismatch passes (3)", File: "providers/uuid.go",
		Old: "if !okN || !okD || n == d || n == SwapUUID(d) {", New: "if true || !okN || !okD || n == d || n == SwapUUID(d) {",
	},
	{
		Name: "identity: placeholders identify (3)", File: "providers/uuid.go",
		Old: "if slices.Contains(placeholders, u) || slices.Contains(placeholders, SwapUUID(u)) {", New: "if false {",
	},
	{
		Name: "identity: a claimed machine whose device tells none is its own (14)", File: "providers/uuid.go",
		Old: "	if _, ok := ParseUUID(told); !ok {", New: "	if false {",
	},
	{
		Name: "identity: a claimed machine's placeholder identifies (14)", File: "providers/uuid.go",
		Old: "	if _, ok := ParseUUID(t.SystemUUID); !ok {", New: "	if false {",
	},
	{
		Name: "guard: an error keeps its state (2)", File: "providers/guard/guard.go",
		Old: "		obs.State = providers.PowerUnknown\n", New: "",
	},
	{
		Name: "guard: a device in use loses its limits", File: "providers/guard/guard.go",
		Old: "if d.refs == 0 && d.rate", New: "if d.rate",
	},
	{
		Name: "guard: no deadline", File: "providers/guard/guard.go",
		Old: "	ctx, cancel := context.WithTimeoutCause(ctx, g.opts.Timeout, ranOut)\n",
		New: "	ctx, cancel := context.WithTimeoutCause(ctx, 100*g.opts.Timeout, ranOut)\n",
	},

	// Redfish.
	{
		Name: "redfish: PoweringOff is off (2)", File: "providers/redfish/power.go",
		Old: "	case \"Off\":\n		return providers.PowerOff\n	case \"PoweringOn\", \"PoweringOff\":", New: "	case \"Off\", \"PoweringOff\":\n		return providers.PowerOff\n	case \"PoweringOn\":",
	},
	{
		Name: "redfish: a word nobody knows is off (2)", File: "providers/redfish/power.go",
		Old: "	default:\n		return providers.PowerUnknown\n", New: "	default:\n		return providers.PowerOff\n",
	},
	{
		Name: "redfish: another machine is reset (3)", File: "providers/redfish/redfish.go",
		Old: "	if err := t.Identify(s.UUID); err != nil {\n		return err\n	}\n	if s.PowerState == there {",
		New: "	if s.PowerState == there {",
	},
	{
		Name: "redfish: a chassis that is On does not contradict (2)", File: "providers/redfish/power.go",
		Old: "		if r.word != \"\" && r.word != \"Off\" {", New: "		if false {",
	},
	{
		Name: "redfish: a chassis that cannot be read is off (2)", File: "providers/redfish/power.go",
		Old: "		if r.err != nil {", New: "		if false {",
	},
	{
		Name: "redfish: a machine that sleeps is off (2)", File: "providers/redfish/power.go",
		Old: "	case s.sleep != \"\":", New: "	case false:",
	},
	{
		Name: "redfish: PoweringOff is powered off already", File: "providers/redfish/redfish.go",
		Old: "	if s.PowerState == there {\n		// A", New: "	if s.PowerState == underWay {\n		return nil\n	}\n	if s.PowerState == there {\n		// A",
	},
	{
		Name: "redfish: another machine at a remembered place speaks (3)", File: "providers/redfish/find.go",
		Old: "		case err == nil && at.fits(s, w, t):", New: "		case err == nil:",
	},
	{
		Name: "redfish: any certificate will do (12)", File: "providers/redfish/trust.go",
		Old: "		case slices.Contains(own, sum), len(own) == 0 && slices.Contains(t.any, sum):", New: "		case len(sum) > 0:",
	},
	{
		Name: "redfish: an authority may replace a host's fingerprint (12)", File: "providers/redfish/trust.go",
		Old: "		case len(own) > 0:", New: "		case false:",
	},
	{
		Name: "redfish: a wrong password is sent again", File: "providers/redfish/session.go",
		Old: "	if err := b.refused(l.sum); err != nil {", New: "	if err := b.refused(l.sum); false {",
	},
	{
		Name: "redfish: a log-in ends with the call that began it", File: "providers/redfish/session.go",
		Old: "begin(b.pool.ending, b, \"log-in\"", New: "begin(ctx, b, \"log-in\"",
	},

	// libvirt.
	{
		Name: "libvirt: a saved guest is off (2)", File: "providers/libvirt/libvirt.go",
		Old: "		g.state, g.saved = providers.PowerOn, true\n", New: "		g.state = providers.PowerOff\n",
	},
	{
		Name: "libvirt: a guest that migrated away is off (2)", File: "providers/libvirt/libvirt.go",
		Old: "		g.elsewhere = true\n", New: "		g.state = providers.PowerOff\n",
	},
	{
		Name: "libvirt: a managed save image is not looked at (2)", File: "providers/libvirt/libvirt.go",
		Old: "	if image {\n", New: "	if false {\n",
	},
	{
		Name: "libvirt: a crashed guest is off (2)", File: "providers/libvirt/libvirt.go",
		Old: "	default: // no state, crashed", New: "	case golibvirt.DomainCrashed:\n		g.state = providers.PowerOff\n		return g\n	default: // no state, crashed",
	},
	{
		Name: "libvirt: shutting down is off (2)", File: "providers/libvirt/libvirt.go",
		Old: "g.state = providers.PowerChanging // the guest", New: "g.state = providers.PowerOff // the guest",
	},
	{
		Name: "libvirt: a paused guest is off (2)", File: "providers/libvirt/libvirt.go",
		Old: "golibvirt.DomainPmsuspended:\n		g.state = providers.PowerOn\n", New: "golibvirt.DomainPmsuspended:\n		g.state = providers.PowerOff\n",
	},
	{
		Name: "libvirt: a hypervisor that does not answer is passed over (4)", File: "providers/libvirt/libvirt.go",
		Old: "		if g.err != nil && !g.absent() {\n", New: "		if false {\n",
	},
	{
		Name: "libvirt: the first hypervisor's word counts (4)", File: "providers/libvirt/libvirt.go",
		Old: "if best < 0 || weight(g) > weight(s.seen[best]) {", New: "if best < 0 {",
	},
	{
		Name: "libvirt: the group is asked once", File: "providers/libvirt/libvirt.go",
		Old: "if state == providers.PowerOff && len(p.group) > 1 {", New: "if false {",
	},
	{
		Name: "libvirt: another machine is destroyed (3)", File: "providers/libvirt/libvirt.go",
		Old: "	return p.do(ctx, \"power off\", t, func(ctx context.Context) error {\n		s, err := p.survey(ctx, t)\n		if err != nil {\n			return err\n		}\n		if err := t.Identify(text(s.uuid)); err != nil {\n			return err\n		}\n",
		New: "	return p.do(ctx, \"power off\", t, func(ctx context.Context) error {\n		s, err := p.survey(ctx, t)\n		if err != nil {\n			return err\n		}\n",
	},
	{
		Name: "libvirt: the domain's UUID is not told (3)", File: "providers/libvirt/libvirt.go",
		Old: "Raw: raw, SystemUUID: text(s.uuid), At: asked}", New: "Raw: raw, At: asked}",
	},
	{
		Name: "libvirt: a daemon that hangs keeps its caller", File: "providers/libvirt/link.go",
		Old: "	case <-ctx.Done():\n		l.retire()\n		return none, ctx.Err()\n", New: "	case <-time.After(20 * time.Second):\n		l.retire()\n		return none, ctx.Err()\n",
	},
	{
		Name: "libvirt: a packet of any length is passed on", File: "providers/libvirt/wire.go",
		Old: "	case n < headerLen || n > maxPacket:\n", New: "	case n < 4:\n",
	},
	{
		Name: "libvirt: an answer that nobody asked for is passed on", File: "providers/libvirt/wire.go",
		Old: "	if !asked || procedure != h.procedure {\n", New: "	if !asked && replies[procedure] == nil {\n		replies[procedure] = func(*cursor) {}\n	}\n	if false {\n",
	},
	{
		Name: "libvirt: a lost connection is not made again for events", File: "providers/libvirt/watch.go",
		Old: "		if errors.Is(err, providers.ErrPermanent) {\n", New: "		if subscribed || errors.Is(err, providers.ErrPermanent) {\n",
	},
	{
		Name: "libvirt: what happened while nobody watched is not told", File: "providers/libvirt/watch.go",
		Old: "	wait.Go(func() { w.lookOver(ctx, l) })\n", New: "",
	},
	{
		Name: "libvirt: a save is told as off", File: "providers/libvirt/watch.go",
		Old: "		return providers.PowerOn, raw, true // its memory", New: "		return providers.PowerOff, raw, true // its memory",
	},

	// Deciding to ask, to power off and to mark: steps 1 to 5.
	{
		Name: "fence: changing is off (2)", File: "taint/fence/fence.go",
		Old: "	return v.Answer.State\n", New: "	if v.Answer.State == providers.PowerChanging {\n		return providers.PowerOff\n	}\n	return v.Answer.State\n",
	},
	{
		Name: "fence: unknown is off after a while (2)", File: "taint/fence/fence.go",
		Old: "	return v.Answer.State\n", New: "	if v.Misses > 3 {\n		return providers.PowerOff\n	}\n	return v.Answer.State\n",
	},
	{
		Name: "fence: an old Off marks (1)", File: "taint/fence/fence.go",
		Old: "case v.tooOld():", New: "case false:",
	},
	{
		Name: "fence: an Off that was long on its way counts (1)", File: "taint/fence/fence.go",
		Old: "a.State == providers.PowerOff && took > ProofTTL", New: "a.State == providers.PowerOff && took > 100*ProofTTL",
	},
	{
		Name: "fence: an answer of an earlier life counts (step 2)", File: "taint/fence/fence.go",
		Old: "	if a.At.Before(m.Begin.Got) {\n		return\n	}\n", New: "",
	},
	{
		Name: "fence: no second snapshot (step 4)", File: "taint/fence/fence.go",
		Old: "case !v.Look.Sent.After(v.Answer.Got):\n			return v.lookAgain() // step 4", New: "case false:\n			return v.lookAgain() // step 4",
	},
	{
		Name: "fence: marks another life (step 4)", File: "taint/fence/fence.go",
		Old: "case !v.Begin.SameLife(v.Look):", New: "case false:",
	},
	{
		Name: "fence: a heartbeat keeps the answer (step 2)", File: "taint/fence/fence.go",
		Old: "	if !m.Begin.Exists || !m.Begin.SameLife(l) {\n", New: "	if !m.Begin.Exists {\n",
	},
	{
		Name: "fence: power-off without the record (step 3)", File: "taint/fence/fence.go",
		Old: "return Decision{Act: Write, Why: Announcing, Record: rec.Enter(taint.PhasePoweringOff, \"\", v.Now)}",
		New: "return Decision{Act: PowerOff, Why: Announcing, Record: rec.Enter(taint.PhasePoweringOff, \"\", v.Now)}",
	},
	{
		Name: "fence: no look between record and power-off (step 3)", File: "taint/fence/fence.go",
		Old: "if v.Now.Sub(v.Look.Got) > ProofTTL || !v.Look.Sent.After(v.Answer.Got) {", New: "if false {",
	},
	{
		Name: "fence: observe mode powers off", File: "taint/fence/fence.go",
		Old: "	if v.Mode != Fence && !powering {\n", New: "	if false {\n",
	},
	{
		Name: "fence: no grace before power-off", File: "taint/fence/fence.go",
		Old: "case grace > 0:", New: "case false:",
	},
	{
		Name: "fence: a beating kubelet is powered off", File: "taint/fence/fence.go",
		Old: "case !v.Fleet.Stale:\n", New: "case false:\n",
	},
	{
		Name: "fence: many power-offs at once (6)", File: "taint/fence/fence.go",
		Old: "case v.Fleet.Busy != \"\":", New: "case false:",
	},
	{
		Name: "fence: control-plane nodes are powered off (7)", File: "taint/fence/fence.go",
		Old: "		case v.ControlPlane:\n			return v.askEvery(pollOn, ControlPlane)\n", New: "",
	},
	{
		Name: "fence: all Leases stale, and yet (7)", File: "taint/fence/fence.go",
		Old: "case v.Fleet.AllSilent():", New: "case false:",
	},
	{
		Name: "fence: most are silent, and yet (15)", File: "taint/fence/fence.go",
		Old: "case !v.Fleet.Heard, v.Fleet.SilentSince.IsZero():", New: "case false:",
	},
	{
		Name: "fence: an announced power-off is sent though most are silent (15)", File: "taint/fence/fence.go",
		Old: "case announced && !v.Fleet.Heard:", New: "case false:",
	},
	{
		Name: "fence: a new leader sends an announced power-off before it knows the silence (15)", File: "taint/fence/fence.go",
		Old: "	case !v.Fleet.Stale, v.Fleet.SilentSince.IsZero(), v.Now.Before(v.Fleet.SilentSince):", New: "	case false:",
	},
	{
		Name: "fence: a refusal for good is tried again and again", File: "taint/fence/fence.go",
		Old: "if powering && v.State() != providers.PowerOff && refusedForGood(v.PowerOffErr) {", New: "if false {",
	},
	{
		Name: "fence: a kubelet that says NotReady and beats is marked", File: "taint/fence/fence.go",
		Old: "case v.mayBeAlive():", New: "case false:",
	},
	{
		Name: "fence: a cache's attachments justify a mark", File: "taint/fence/fence.go",
		Old: "		case v.Work == CacheSays:\n			return", New: "		case false:\n			return",
	},
	{
		Name: "fence: no back-off after an eviction", File: "taint/fence/fence.go",
		Old: "taint.ResultMarkRemoved, taint.ResultEvicted, taint.ResultReturned:", New: "taint.ResultMarkRemoved:",
	},
	{
		Name: "fence: a slow look makes every Off too old", File: "taint/fence/fence.go",
		Old: "	if !v.Look.Sent.After(v.Answer.Got) {\n		return v.Now", New: "	if true {\n		return v.Now",
	},
	{
		Name: "fence: an Off counts for the mark whatever its age", File: "taint/fence/fence.go",
		Old: " || v.Now.Sub(v.Answer.At) > armWithin\n", New: "\n",
	},
	{
		Name: "fleet: the grace does not begin anew after an outage (15)", File: "taint/fleet/fleet.go",
		Old: "			if f.heard.After(from) {\n", New: "			if false {\n",
	},
	{
		Name: "fleet: silence counts while nobody is heard (15)", File: "taint/fleet/fleet.go",
		Old: "	case !heard:\n		f.heard = time.Time{}\n", New: "	case !heard && false:\n",
	},
	{
		Name: "fleet: an outage too short to be stale counts (15)", File: "taint/fleet/fleet.go",
		Old: "2*f.beating >= f.known", New: "2*f.fresh >= f.known",
	},
	{
		Name: "fleet: the first heartbeat after a pause counts among many (15)", File: "taint/fleet/fleet.go",
		Old: "	f.awake(now)\n	_, before", New: "	_, before",
	},
	{
		Name: "fleet: Leases of nobody count (7)", File: "taint/fleet/fleet.go",
		Old: "	if !n.exists {\n		return\n	}\n	f.known", New: "	f.known",
	},
	{
		Name: "fleet: a Lease lasts for as long as it says", File: "taint/fleet/fleet.go",
		Old: "	if duration == 0 || n.odd {\n", New: "	if duration == 0 {\n",
	},
	{
		Name: "fleet: an event outlives an answer of On", File: "taint/fleet/fleet.go",
		Old: "a.State == providers.PowerOn && a.At.After(n.hint) {", New: "false {",
	},
	{
		Name: "fleet: a power-off's turn ends when the machine is off (6)", File: "taint/fleet/fleet.go",
		Old: "	case !r.Open() || !r.PowerOff, r.Phase != taint.PhasePoweringOff && now.Sub(r.At) > turnTTL:", New: "	case !r.Open() || r.Phase != taint.PhasePoweringOff:",
	},
	{
		Name: "fleet: a fence that hangs keeps its turn (16)", File: "taint/fleet/fleet.go",
		Old: "	case !r.Open() || !r.PowerOff, r.Phase != taint.PhasePoweringOff && now.Sub(r.At) > turnTTL:", New: "	case !r.Open() || !r.PowerOff:",
	},
	{
		Name: "fleet: a deleted Node keeps its turn (6)", File: "taint/fleet/fleet.go",
		Old: "	delete(f.turns, name)\n	f.count(now)\n", New: "	f.count(now)\n",
	},
	{
		Name: "evict: the same mark again is proven by what was asked before it (1)", File: "taint/evict/evict.go",
		Old: "		return l.Mark.Value + \" \" + l.Record.Token()\n", New: "		return l.Mark.Value\n",
	},
	{
		Name: "evict: the mark goes by the cache's attachments (11)", File: "taint/evict/evict.go",
		Old: "live := !v.Live && (ends || waits", New: "live := !v.Live && (waits",
	},
	{
		Name: "evict: volumes are cleared before all are known (9)", File: "taint/evict/evict.go",
		Old: "!v.Resolved && (ends || waits || d.Act == ClearVolumes) {", New: "false {",
	},
	{
		Name: "evict: a stock controller that counts anew is not waited for (F2)", File: "taint/evict/evict.go",
		Old: "ends && v.Resumed.After(since) && v.stockNear(due) {", New: "false && ends && due.IsZero() {",
	},
	{
		Name: "fence: maintenance does not win (8)", File: "taint/fence/fence.go",
		Old: "	case v.Excluded != \"\":\n", New: "	case false:\n",
	},
	{
		Name: "fence: maintenance comes too late for an announced power-off (8)", File: "taint/fence/fence.go",
		Old: "case why != \"\" && announced:", New: "case false:",
	},
	{
		Name: "fence: a recovered node is powered off all the same", File: "taint/fence/fence.go",
		Old: "case powering && l.Alive(rec):", New: "case false:",
	},
	{
		Name: "fence: a power-off is sent again under maintenance (8)", File: "taint/fence/fence.go",
		Old: "	return why == \"\" && v.Mode == Fence && !v.ControlPlane && v.Fleet.Heard\n", New: "	return why == \"\" || true\n",
	},
	{
		Name: "fence: a failed power-off is tried for ever (13)", File: "taint/fence/fence.go",
		Old: "return v.close(taint.ResultPowerOffFailed, PowerOffFailed)", New: "return v.byAnswer(powering)",
	},
	{
		Name: "fence: a failed power-off is not backed off (13)", File: "taint/fence/fence.go",
		Old: "case v.failedLately() > 0:", New: "case false:",
	},
	{
		Name: "fence: two providers claim the node, and yet", File: "taint/fence/fence.go",
		Old: "	case v.Machine != \"\":\n", New: "	case false:\n",
	},
	{
		Name: "fence: a device that lied is believed", File: "taint/fence/fence.go",
		Old: "	case v.Distrusted:\n", New: "	case false:\n",
	},
	{
		Name: "fence: a node that was never off is not told", File: "taint/fence/fence.go",
		Old: "case v.neverOff():", New: "case false:",
	},
	{
		Name: "fence: a node that was released is fenced again", File: "taint/fence/fence.go",
		Old: "case v.released():", New: "case false:",
	},
	{
		Name: "fence: an unreadable record is passed over", File: "taint/fence/fence.go",
		Old: "case l.RecordErr != nil:", New: "case false:",
	},
	{
		Name: "fence: a mark that somebody took off stays open (11)", File: "taint/fence/fence.go",
		Old: "case rec.Open() && !powering:", New: "case false:",
	},
	{
		Name: "fence: a mark is set again at the device's speed", File: "taint/fence/fence.go",
		Old: "case v.endedLately() > 0:", New: "case false:",
	},

	// The proof after the mark: step 6.
	{
		Name: "evict: step 6 is dropped (1)", File: "taint/evict/evict.go",
		Old: "	case v.Proven(v.Now):\n		return v.beginEviction(", New: "	case true:\n		return v.beginEviction(",
	},
	{
		Name: "evict: an answer from before the mark proves (1)", File: "taint/evict/evict.go",
		Old: "return m.Answer.State == providers.PowerOff && m.asked() && now", New: "return m.Answer.State == providers.PowerOff && now",
	},
	{
		Name: "evict: an answer from before the patch of Ready proves (1)", File: "taint/evict/evict.go",
		Old: "	case l.IsReady():\n		m.ProofFrom = time.Time{}\n", New: "	case l.IsReady() && m.ProofFrom.IsZero():\n		m.ProofFrom = l.Got\n",
	},
	{
		Name: "evict: a stale Ready is not expired (step 5)", File: "taint/evict/evict.go",
		Old: "return Decision{Act: ExpireReady, Why: Expiring}", New: "return v.beginEviction(fence.EvidenceOf(v.Answer), Confirmed)",
	},
	{
		Name: "evict: an old Off proves (1)", File: "taint/evict/evict.go",
		Old: "m.asked() && now.Sub(m.Answer.At) <= fence.ProofTTL", New: "m.asked()",
	},
	{
		Name: "evict: changing proves (2)", File: "taint/evict/evict.go",
		Old: "return m.Answer.State == providers.PowerOff && m.asked()", New: "return m.Answer.State >= providers.PowerOff && m.asked()",
	},
	{
		Name: "evict: a heartbeat before the eviction does not lift (7)", File: "taint/evict/evict.go",
		Old: "	if l.Alive(rec) {\n		return v.unmark(taint.ResultLifted, Alive)\n	}\n", New: "",
	},
	{
		Name: "evict: an Off that is not confirmed keeps the mark (11)", File: "taint/evict/evict.go",
		Old: "	case !person:\n		return v.unmark(taint.ResultLifted, NotConfirmed)\n", New: "	case !person:\n		return v.wait(Confirming)\n",
	},
	{
		Name: "evict: a person's word beats a device that says On", File: "taint/evict/evict.go",
		Old: "v.Answer.State == providers.PowerOn && v.TrustPerson:\n		return v.beginEviction", New: "v.Answer.State == providers.PowerOn:\n		return v.beginEviction",
	},
	{
		Name: "evict: workers take a person's word over On", File: "taint/evict/evict.go",
		Old: "return v.Answer.State == providers.PowerUnknown || v.Answer.State == providers.PowerOn && v.TrustPerson\n",
		New: "return v.Answer.State == providers.PowerUnknown || v.Answer.State == providers.PowerOn\n",
	},
	{
		Name: "evict: a person's word never grows old", File: "taint/evict/evict.go",
		Old: "v.Look.Record.By != taint.ByPerson || now.Sub(v.Look.Got) > fence.ProofTTL+v.Reads:", New: "v.Look.Record.By != taint.ByPerson:",
	},

	// Evicting, and the return path: steps 7 to 13.
	{
		Name: "evict: life in the middle is not seen (return path)", File: "taint/evict/evict.go",
		Old: "	if l.Alive(rec) || l.IsReady() || v.sparing() {\n", New: "	if v.sparing() {\n",
	},
	{
		Name: "evict: Ready in the middle is not seen (return path)", File: "taint/evict/evict.go",
		Old: "	if l.Alive(rec) || l.IsReady() || v.sparing() {\n", New: "	if l.Alive(rec) || v.sparing() {\n",
	},
	{
		Name: "evict: power On in the middle is not seen (return path)", File: "taint/evict/evict.go",
		Old: "	if v.asked() && v.Answer.State == providers.PowerOn && (!person || !v.TrustPerson) {\n", New: "	if false {\n",
	},
	{
		Name: "evict: the return path is left again", File: "taint/evict/evict.go",
		Old: "	if l.Alive(rec) || l.IsReady() || v.sparing() {\n", New: "	if l.Alive(rec) || l.IsReady() {\n",
	},
	{
		Name: "evict: no pod is spared (10)", File: "taint/evict/evict.go",
		Old: "			spare = append(spare, v.fit(Spare, p))\n", New: "",
	},
	{
		Name: "evict: pods are ended without proof (1)", File: "taint/evict/evict.go",
		Old: "	case v.Holds(v.Now):\n	case person", New: "	case true:\n	case person",
	},
	{
		Name: "evict: exempt pods are evicted (9)", File: "taint/evict/evict.go",
		Old: "return p.Exempt == taint.NotExempt && !p.Terminal }", New: "return !p.Terminal }",
	},
	{
		Name: "evict: finished pods are evicted (9)", File: "taint/evict/evict.go",
		Old: "return p.Exempt == taint.NotExempt && !p.Terminal }", New: "return p.Exempt == taint.NotExempt && !p.Tombstone }",
	},
	{
		Name: "evict: a deletion by name is not waited for (F2)", File: "taint/evict/evict.go",
		Old: "	if p.Deleting || v.ProofFrom.IsZero() {\n", New: "	if true {\n",
	},
	{
		Name: "evict: volumes of pods that stay are cleared (step 10)", File: "taint/evict/evict.go",
		Old: "		if p.Terminal {\n			continue\n		}\n		for _, vol := range p.Volumes {\n			keep[", New: "		if true {\n			continue\n		}\n		for _, vol := range p.Volumes {\n			keep[",
	},
	{
		Name: "evict: the mark goes before the volumes are detached (11)", File: "taint/evict/evict.go",
		Old: "case len(ready)+len(waiting)+len(tombs)+len(resting)+len(left) == 0 &&", New: "case len(ready)+len(waiting)+len(tombs)+len(resting)+0*len(left) == 0 &&",
	},
	{
		Name: "evict: the mark goes before the pods are gone (11)", File: "taint/evict/evict.go",
		Old: "case len(ready)+len(waiting)+len(tombs)+len(resting)+len(left) == 0 &&", New: "case len(ready)+len(waiting)+len(resting)+len(left) == 0 &&",
	},
	{
		Name: "evict: the mark goes before the lists are cleared", File: "taint/evict/evict.go",
		Old: "+len(left) == 0 && !(clear && v.Holds(v.Now)):", New: "+len(left) == 0:",
	},
	{
		Name: "evict: the return path does not wait for the tombstoned (11)", File: "taint/evict/evict.go",
		Old: "			spare = append(spare, v.fit(Spare, p))\n		case p.buried():\n			tombs = append(tombs, p)\n", New: "			spare = append(spare, v.fit(Spare, p))\n",
	},
	{
		Name: "evict: the return path does not wait for volumes (11)", File: "taint/evict/evict.go",
		Old: "	case len(v.leftover()) > 0:\n		return Decision{Act: Wait, Why: WaitingDetach, After: pollWait, Returned: true}\n", New: "",
	},
	{
		Name: "evict: a pod kept by finalizers is waited for (step 12)", File: "taint/evict/evict.go",
		Old: "func (p Pod) stuck() bool { return", New: "func (p Pod) stuck() bool { return false &&",
	},
	{
		Name: "evict: a device that lied is not found out", File: "taint/evict/evict.go",
		Old: "	case v.neverOff():\n", New: "	case false:\n",
	},
	{
		Name: "evict: a mark overwritten in the middle begins anew", File: "taint/evict/evict.go",
		Old: "	if l.Record.Open() && l.Record.Phase == taint.PhaseEvicting {\n", New: "	if false {\n",
	},
	{
		Name: "evict: an unreadable record is passed over", File: "taint/evict/evict.go",
		Old: "	case l.RecordErr != nil:\n", New: "	case false:\n",
	},
	{
		Name: "evict: a pod whose end fails holds up the others (16)", File: "taint/evict/evict.go",
		Old: "		case p.goes() && v.rest(Tombstone, p) > 0, p.buried() && v.rest(Delete, p) > 0:\n			resting = append(resting, p)\n		case p.goes():\n			ready", New: "		case p.goes():\n			ready",
	},
	{
		Name: "evict: the mark goes though a pod could not be ended (11)", File: "taint/evict/evict.go",
		Old: "+len(tombs)+len(resting)+len(left) == 0 &&", New: "+len(tombs)+0*len(resting)+len(left) == 0 &&",
	},
	{
		Name: "evict: a pod that cannot be spared keeps a living node's mark (16)", File: "taint/evict/evict.go",
		Old: "		case p.goes() && v.hopeless(Spare, p), p.buried() && v.hopeless(Delete, p):\n", New: "",
	},
	{
		Name: "evict: a spare that failed is not tried again (10)", File: "taint/evict/evict.go",
		Old: "	case len(resting) > 0:\n		d := v.retry(resting, Spare)\n		d.Returned = true\n		return d\n", New: "",
	},
	{
		Name: "evict: a large pod does not get the small form", File: "taint/evict/trouble.go",
		Old: "		case why == TooLarge && act != Delete && !p.Small:\n			m.troubles[a] = trouble{at: at, small: true} // at once\n", New: "",
	},
	{
		Name: "evict: a spared large pod is spared for ever", File: "taint/evict/trouble.go",
		Old: "trouble{at: at, small: true, before: p.ResourceVersion}", New: "trouble{at: at, small: true}",
	},
	{
		Name: "evict: a spare that changed nothing is one (10)", File: "taint/evict/evict.go",
		Old: "before != \"\" && before != p.ResourceVersion", New: "before != \"\"",
	},
	{
		Name: "evict: one failure is the last try (10)", File: "taint/evict/trouble.go",
		Old: "		return t.times >= tries\n", New: "		return t.times > 0\n",
	},
	{
		Name: "evict: failures are not backed off (13)", File: "taint/evict/trouble.go",
		Old: "	return min(restMin<<min(n-1, 6), restMax) - now.Sub(t.at)\n", New: "	return restMin - now.Sub(t.at)\n",
	},
	{
		Name: "evict: a pod that is stuck is not named (13)", File: "taint/evict/trouble.go",
		Old: "		d.Alert = string(Stuck)\n", New: "",
	},
	{
		Name: "evict: a negative tolerationSeconds is for ever (F2)", File: "taint/evict/evict.go",
		Old: "time.Duration(max(*tol.TolerationSeconds, 0)) * time.Second", New: "time.Duration(*tol.TolerationSeconds) * time.Second",
	},
	{
		Name: "evict: what takes too long is not alerted (13)", File: "taint/evict/evict.go",
		Old: "		d.Alert = string(d.Why)\n", New: "",
	},

	// The mark, the record and who is exempt.
	{
		Name: "taint: a heartbeat is no other life", File: "taint/look.go",
		Old: " && l.BootID == o.BootID && l.LeaseRV == o.LeaseRV\n", New: " && l.BootID == o.BootID\n",
	},
	{
		Name: "taint: a boot is no other life", File: "taint/look.go",
		Old: " && l.BootID == o.BootID && l.LeaseRV == o.LeaseRV\n", New: " && l.LeaseRV == o.LeaseRV\n",
	},
	{
		Name: "taint: a heartbeat is no sign of life", File: "taint/look.go",
		Old: " || l.BootID != r.BootID || l.LeaseRV != r.LeaseRV\n", New: " || l.BootID != r.BootID\n",
	},
	{
		Name: "taint: another boot is no sign of life", File: "taint/look.go",
		Old: " || l.BootID != r.BootID || l.LeaseRV != r.LeaseRV\n", New: " || l.LeaseRV != r.LeaseRV\n",
	},
	{
		Name: "taint: another Node object is no sign of life", File: "taint/look.go",
		Old: "	return l.UID != r.NodeUID || ", New: "	return ",
	},
	{
		Name: "taint: a mark of a closed fence is ours", File: "taint/look.go",
		Old: "return l.Mark != nil && l.Record.Open() && l.Record.ID", New: "return l.Mark != nil && l.Record != nil && l.Record.ID",
	},
	{
		Name: "taint: a person's mark is taken off (5)", File: "taint/taint.go",
		Old: "return t.Key == key && t.Value == id })", New: "return t.Key == key })",
	},
	{
		Name: "taint: the mark is NoExecute (F2)", File: "taint/taint.go",
		Old: "Value: id, Effect: corev1.TaintEffectNoSchedule, TimeAdded", New: "Value: id, Effect: corev1.TaintEffectNoExecute, TimeAdded",
	},
	{
		Name: "taint: a phase nobody knows is read", File: "taint/record.go",
		Old: "return Record{}, fmt.Errorf(\"%w: unknown phase %q\", ErrRecord, r.Phase)", New: "return r, nil",
	},
	{
		Name: "taint: DaemonSets' pods are not exempt (9)", File: "taint/exempt.go",
		Old: "	case isDaemon(pod):\n", New: "	case false:\n",
	},
	{
		Name: "taint: static pods are not exempt (9)", File: "taint/exempt.go",
		Old: "	case isStatic(pod):\n", New: "	case false:\n",
	},
	{
		Name: "taint: tolerationSeconds exempt", File: "taint/exempt.go",
		Old: " || t.TolerationSeconds != nil || ", New: " || ",
	},

	// The node's hook.
	{
		Name: "hook: a node that was not read starts pods", File: "kubelet-admit/admit/admit.go",
		Old: "case !n.Read:", New: "case false:",
	},
	{
		Name: "hook: the mark does not hold", File: "kubelet-admit/admit/admit.go",
		Old: "case n.Marked:", New: "case false:",
	},
	{
		Name: "hook: a Ready of before the crash counts", File: "kubelet-admit/admit/admit.go",
		Old: "case !n.ReadySeen:", New: "case false:",
	},
	{
		Name: "hook: a pod that nobody knows starts", File: "kubelet-admit/admit/admit.go",
		Old: "case !p.Known:", New: "case false:",
	},
	{
		Name: "hook: what was exempt before the boot is held", File: "kubelet-admit/admit/admit.go",
		Old: "case p.WasExempt && !n.Listed:", New: "case false:",
	},
	{
		Name: "hook: what was exempt before the boot starts after a list without it", File: "kubelet-admit/admit/admit.go",
		Old: "case p.WasExempt && !n.Listed:", New: "case p.WasExempt:",
	},
	{
		Name: "hook: exempt pods are held (9)", File: "kubelet-admit/admit/admit.go",
		Old: "case p.Exempt:", New: "case false:",
	},

	// The controller: what it sends, and under which conditions.
	{
		Name: "writer: no resourceVersion on the Node (5)", File: "taint/controller/writer.go",
		Old: "		\"resourceVersion\": l.ResourceVersion,\n", New: "",
	},
	{
		Name: "writer: no UID on the Node (5)", File: "taint/controller/writer.go",
		Old: "		\"uid\":             l.UID,\n", New: "",
	},
	{
		Name: "writer: volume lists are cleared over somebody else's write (5)", File: "taint/controller/writer.go",
		Old: "		\"metadata\": object{\"resourceVersion\": l.ResourceVersion, \"uid\": l.UID},\n		\"status\":   object{\"volumesInUse\"",
		New: "		\"status\":   object{\"volumesInUse\"",
	},
	{
		Name: "writer: Ready is expired over a heartbeat (5)", File: "taint/controller/writer.go",
		Old: "		\"metadata\": object{\"resourceVersion\": l.ResourceVersion, \"uid\": l.UID},\n		\"status\":   object{\"conditions\"",
		New: "		\"status\":   object{\"conditions\"",
	},
	{
		Name: "writer: a tombstone without resourceVersion (5)", File: "taint/controller/writer.go",
		Old: "		\"metadata\": object{\"uid\": p.UID, \"resourceVersion\": p.ResourceVersion},\n", New: "		\"metadata\": object{\"uid\": p.UID},\n",
	},
	{
		Name: "writer: a tombstone without UID (5)", File: "taint/controller/writer.go",
		Old: "		\"metadata\": object{\"uid\": p.UID, \"resourceVersion\": p.ResourceVersion},\n", New: "		\"metadata\": object{\"resourceVersion\": p.ResourceVersion},\n",
	},
	{
		Name: "writer: a pod is deleted by name (5)", File: "taint/controller/writer.go",
		Old: "client.Preconditions{UID: &uid, ResourceVersion: &p.ResourceVersion})", New: "client.Preconditions{ResourceVersion: &p.ResourceVersion})\n	_ = uid",
	},
	{
		Name: "writer: a pod is deleted that changed (5)", File: "taint/controller/writer.go",
		Old: "client.Preconditions{UID: &uid, ResourceVersion: &p.ResourceVersion})", New: "client.Preconditions{UID: &uid})",
	},
	{
		Name: "writer: patches without leadership (5)", File: "taint/controller/writer.go",
		Old: "	if err := w.leading(); err != nil {\n		return fmt.Errorf(\"%s: %w\", what, err)\n	}\n", New: "",
	},
	{
		Name: "writer: deletes without leadership (5)", File: "taint/controller/writer.go",
		Old: "	if err := w.leading(); err != nil {\n		return fmt.Errorf(\"deleting pod: %w\", err)\n	}\n", New: "",
	},
	{
		Name: "workers: write on when the proof is gone (1)", File: "taint/controller/batch.go",
		Old: "if !d.Returned && !b.holds(gctx) {", New: "if false {",
	},
	{
		Name: "workers: a sign of life does not stop them", File: "taint/controller/batch.go",
		Old: "	if b.stopped.Load() || ctx.Err() != nil {\n		return false\n	}\n", New: "",
	},
	{
		Name: "workers: a node that is Ready again does not stop them", File: "taint/controller/setup.go",
		Old: "if n.IsReady() || n.BootID != o.BootID || n.UID != o.UID {", New: "if n.BootID != o.BootID || n.UID != o.UID {",
	},
	{
		Name: "controller: power-off long after the look", File: "taint/controller/act.go",
		Old: "	if now.Sub(t.look.Got) > fence.ProofTTL {\n", New: "	if false {\n",
	},
	{
		Name: "controller: power-off without leadership", File: "taint/controller/act.go",
		Old: "	err := t.Leading()\n", New: "	err := error(nil)\n",
	},
	{
		Name: "controller: a device that lied proves", File: "taint/controller/controller.go",
		Old: "if t.distrusted && a.State == providers.PowerOff {", New: "if false {",
	},
	{
		Name: "controller: what another leader's records tell is not asked before a power-off (6)", File: "taint/controller/controller.go",
		Old: "err == nil && rec.Open() && nodes.Items[i].Name != name {", New: "false && err == nil && rec.Open() {",
	},
	{
		Name: "controller: a cache's attachments are work", File: "taint/controller/act.go",
		Old: "		t.st.work = fence.CacheSays\n", New: "		t.st.work = fence.SomeToDo\n",
	},
	{
		Name: "controller: a look is never kept, however slow the API server", File: "taint/controller/act.go",
		Old: "		if !fence.Keeps(t.look, read, t.Now()) {\n			return 0, true, nil\n		}\n		if d, err", New: "		if read >= 0 {\n			return 0, true, nil\n		}\n		if d, err",
	},
	{
		Name: "controller: a kept list says that nothing is left (11)", File: "taint/controller/act.go",
		Old: "d.Act == evict.Tombstone || d.Act == evict.Delete && !d.Returned {", New: "d.Act != evict.Leave {",
	},
	{
		Name: "controller: a kept list never grows old", File: "taint/controller/act.go",
		Old: "len(pods) == 0 || age < 0 || age > keptHolds {", New: "len(pods) == 0 || age < 0 {",
	},
	{
		Name: "controller: the work of a fence begins another", File: "taint/controller/act.go",
		Old: "	t.st.work, t.st.workPods = fence.NoneToDo, nil // this fence", New: "	// this fence",
	},
	{
		Name: "controller: volumes are cleared after the proof has gone (1)", File: "taint/controller/act.go",
		Old: "		if !v.Holds(t.Now()) {\n			return 0, true, nil\n		}\n", New: "",
	},
	{
		Name: "workers: a sign of life while the device is asked does not stop them", File: "taint/controller/batch.go",
		Old: "return !b.stopped.Load() && b.view.Holds(", New: "return b.view.Holds(",
		Tests: []string{podFailures},
	},
	{
		Name: "workers: a heartbeat does not stop them", File: "taint/controller/setup.go",
		Old: "			r.stopBatch(l.Name)\n", New: "			_ = l\n",
		Tests: []string{podFailures},
	},
	{
		Name: "workers: how a write ended is forgotten (16)", File: "taint/controller/batch.go",
		Old: "	t.st.evict.Wrote(d.Act, d.Pods, how, t.Now())\n", New: "",
		Tests: []string{podFailures},
	},
	{
		Name: "workers: a lost leadership is a pod's failure", File: "taint/controller/batch.go",
		Old: "				return lost\n", New: "				_ = lost\n",
		Tests: []string{podFailures},
	},
	{
		Name: "controller: volumesAttached is cleared again and again (F5)", File: "taint/controller/act.go",
		Old: "		t.st.evict.Cleared = true\n", New: "",
		Tests: []string{podFailures},
	},
	{
		Name: "controller: a fence is told that was not written", File: "taint/controller/act.go",
		Old: "if d.Act != fence.Write && d.Act != fence.Arm {", New: "if d.Act != fence.Arm || true {",
		Tests: []string{podFailures},
	},
	{
		Name: "writer: etcd's limit is not known", File: "taint/controller/writer.go",
		Old: "func(w string) bool { return strings.Contains(s.Message, w) }", New: "func(w string) bool { return strings.Contains(w, s.Message+w) }",
		Tests: []string{podFailures},
	},
	{
		Name: "writer: a large pod is spared by what grows it more than a tombstone (10)", File: "taint/tombstone.go",
		Old: "	return \"spared\"\n", New: "	return \"spared by its fence\"\n",
		Tests: []string{"./taint/controller -run TestSmallForms"},
	},
	{
		Name: "writer: a large pod that is spared again keeps its resourceVersion (10)", File: "taint/tombstone.go",
		Old: "	if before == \"spared\" {\n", New: "	if false {\n",
		Tests: []string{"./taint/controller -run TestSmallForms"},
	},
	{
		Name: "writer: the small tombstone is a whole one", File: "taint/controller/writer.go",
		Old: "	if !p.Small {\n		message", New: "	if true {\n		message",
		Tests: []string{"./taint/controller -run TestSmallForms"},
	},
	{
		Name: "release: a person without the right spares nobody and is not told (10)", File: "taint/controller/release.go",
		Old: "			if strings.Contains(err.Error(), \"cannot patch resource\") {", New: "			if false {",
		Tests: []string{"./taint/controller -run TestReleaseGoesOn"},
	},
	{
		Name: "release: a pod that changed is not spared (10)", File: "taint/controller/release.go",
		Old: "			again = again || why == evict.Changed || why", New: "			again = again || why",
		Tests: []string{"./taint/controller -run TestReleaseGoesOn"},
	},
	{
		Name: "release: a pod with full annotations is not spared (10)", File: "taint/controller/release.go",
		Old: " || why == evict.TooLarge && !p.Small\n", New: "\n",
		Tests: []string{"./taint/controller -run TestReleaseGoesOn"},
	},
	{
		Name: "release: no pod is spared (10)", File: "taint/controller/release.go",
		Old: "			err := w.spare(ctx, p, l.Record.Token())\n			why", New: "			err := error(nil)\n			why",
		Tests: []string{"./taint/controller -run TestReleaseGoesOn"},
	},
	{
		Name: "nudge: under the mark", File: "taint/controller/nudge.go",
		Old: "case n.marked || !n.ready ||", New: "case !n.ready ||",
	},
	{
		Name: "nudge: by the cache's word alone, under the mark", File: "taint/controller/nudge.go",
		Old: "\tif _, open = st.nudging.due(r.Now()); !open {", New: "\tif open = true; !open {",
	},
	{
		Name: "nudge: of a node that is not Ready", File: "taint/controller/nudge.go",
		Old: "case n.marked || !n.ready ||", New: "case n.marked ||",
	},
	{
		Name: "nudge: lists where there is no hook", File: "taint/controller/nudge.go",
		Old: " || guard != corev1.ConditionTrue:", New: ":",
	},
	{
		Name: "nudge: none when the mark goes", File: "taint/controller/nudge.go",
		Old: "case was.marked || !was.ready", New: "case !was.ready",
	},
	{
		Name: "nudge: none after NotReady", File: "taint/controller/nudge.go",
		Old: "case was.marked || !was.ready ||", New: "case was.marked ||",
	},
	{
		Name: "nudge: none after a reboot that nobody saw", File: "taint/controller/nudge.go",
		Old: "!was.ready || was.boot != n.boot:\n", New: "!was.ready:\n",
	},
	{
		Name: "nudge: an empty list after a boot ends it", File: "taint/controller/nudge.go",
		Old: "(held > 0 || n.fresh && n.turn == 0)", New: "held > 0",
	},
	{
		Name: "nudge: on and on where nothing is held", File: "taint/controller/nudge.go",
		Old: "(held > 0 || n.fresh && n.turn == 0)", New: "true",
	},
	{
		Name: "nudge: a cache that is behind opens the node again", File: "taint/controller/nudge.go",
		Old: "n.known && taint.Older(l.ResourceVersion, n.rv)", New: "false",
	},
	{
		Name: "nudge: every node when a process begins", File: "taint/controller/nudge.go",
		Old: "\tcase !was.known:\n", New: "",
	},
	{
		Name: "nudge: all turns at once", File: "taint/controller/nudge.go",
		Old: "\tif !ok || wait > 0 {\n\t\treturn wait\n\t}\n", New: "\tif !ok {\n\t\treturn wait\n\t}\n",
	},
	{
		Name: "nudge: nobody comes back for the next turn", File: "taint/controller/controller.go",
		Old: "after > 0 && (res.RequeueAfter", New: "after < 0 && (res.RequeueAfter",
	},
	{
		Name: "nudge: lists without leadership", File: "taint/controller/nudge.go",
		Old: "\tif r.Leading() != nil {\n", New: "\tif false {\n",
	},
	{
		Name: "nudge: the live look of a fence is not seen", File: "taint/controller/controller.go",
		Old: "\tguard, _ := taint.Guard(node)\n\tst.nudging.saw(l, guard, r.Now())\n", New: "",
	},
	{
		Name: "nudge: an exempt pod (9)", File: "taint/held.go",
		Old: " || Exempt(pod, key) != NotExempt {", New: " {",
	},
	{
		Name: "nudge: a pod that has its sandbox", File: "taint/held.go",
		Old: "return c.Status != corev1.ConditionTrue", New: "return true",
	},
	{
		Name: "nudge: a finished pod", File: "taint/held.go",
		Old: " || IsTerminal(pod) ||", New: " ||",
	},
	{
		Name: "nudge: a pod that is being deleted", File: "taint/held.go",
		Old: " || pod.DeletionTimestamp != nil ||", New: " ||",
	},
	{
		Name: "nudge: not tied to the pod's resourceVersion (5)", File: "taint/controller/writer.go",
		Old: "\t\t\t\"uid\": p.UID, \"resourceVersion\": p.ResourceVersion,\n\t\t\t\"annotations\": object{taint.NudgedAnnotation", New: "\t\t\t\"uid\": p.UID,\n\t\t\t\"annotations\": object{taint.NudgedAnnotation",
	},
	{
		Name: "nudge: the same text again", File: "taint/controller/writer.go",
		Old: "\"2006-01-02T15:04:05.000000Z07:00\"", New: "\"2006-01-02\"",
	},
	{
		Name: "nudge: the hook's condition is not kept in the cache", File: "taint/controller/setup.go",
		Old: " || c.Type == taint.GuardCondition {", New: " {",
	},
	{
		Name: "nudge: a hook that changes wakes nobody", File: "taint/controller/setup.go",
		Old: "guard == oldGuard && why == oldWhy && ", New: "(true || guard == oldGuard && why == oldWhy) && ",
	},
	{
		Name: "nudge: a list that failed says that nothing is held", File: "taint/controller/nudge.go",
		Old: "st.nudging.done(1) // unknown", New: "st.nudging.done(0) // unknown",
	},

	// The node's hook: its memory and its reader.
	{
		Name: "hook: another boot's memory counts", File: "kubelet-admit/nri/view.go",
		Old: "s.BootID != v.bootID || ", New: "",
	},
	{
		Name: "hook: no boot id is a boot", File: "kubelet-admit/nri/view.go",
		Old: "if s.BootID == \"\" || ", New: "if ",
	},
	{
		Name: "hook: another mark's memory counts", File: "kubelet-admit/nri/view.go",
		Old: "s.TaintKey != v.key || ", New: "",
	},
	{
		Name: "hook: another node's memory counts", File: "kubelet-admit/nri/view.go",
		Old: "s.Node.Name != v.node.Name || ", New: "",
	},
	{
		Name: "hook: a memory that never read the Node counts", File: "kubelet-admit/nri/view.go",
		Old: " || !s.Node.Read {", New: " {",
	},
	{
		Name: "hook: a Ready of before the boot counts", File: "kubelet-admit/nri/view.go",
		Old: "v.bootID != \"\" && node.Status.NodeInfo.BootID == v.bootID &&", New: "true &&",
	},
	{
		Name: "hook: an unknown boot id is the Node's", File: "kubelet-admit/nri/view.go",
		Old: "return v.bootID != \"\" && node", New: "return node",
	},
	{
		Name: "hook: a Ready that is not True counts", File: "kubelet-admit/nri/view.go",
		Old: " && c.Status == corev1.ConditionTrue", New: "",
	},
	{
		Name: "hook: a finished pod is known", File: "kubelet-admit/nri/view.go",
		Old: "if deleted || terminal(pod) {", New: "if deleted {",
	},
	{
		Name: "hook: a deleted pod is known", File: "kubelet-admit/nri/view.go",
		Old: "if deleted || terminal(pod) {", New: "if terminal(pod) {",
	},
	{
		Name: "hook: a list keeps finished pods", File: "kubelet-admit/nri/view.go",
		Old: "if !terminal(&pods[i]) {", New: "if true {",
	},
	{
		Name: "hook: a deleted Node stays read", File: "kubelet-admit/nri/view.go",
		Old: "\tv.node.Read = false\n", New: "",
	},
	{
		Name: "hook: an unknown pod is exempt by its word", File: "kubelet-admit/nri/view.go",
		Old: "if e := taint.Exempt(&pod, v.key); e == taint.ExemptStatic {\n\t\treturn e\n\t}\n\treturn taint.NotExempt", New: "return taint.ExemptStatic",
	},
	{
		Name: "hook: the reason is of the mark before", File: "kubelet-admit/nri/view.go",
		Old: "\tv.tell(\"Own Node changed\", \"node\", v.node.Name, \"mark\", text, \"ready_on_this_boot\", v.node.ReadySeen, \"before\", before.Mark)\n\tv.word()\n", New: "\tv.tell(\"Own Node changed\", \"node\", v.node.Name, \"mark\", text, \"ready_on_this_boot\", v.node.ReadySeen, \"before\", before.Mark)\n",
	},
	{
		Name: "hook: a mark waits for the pods", File: "kubelet-admit/nri/reader.go",
		Old: "\tif isMarked(node, r.view.key) {\n\t\tr.view.seeNode(node, time.Now()) // at once", New: "\tif false {\n\t\tr.view.seeNode(node, time.Now()) // at once",
	},
	{
		Name: "hook: the mark's absence does not wait for the pods", File: "kubelet-admit/nri/reader.go",
		Old: "\tif isMarked(node, r.view.key) {\n\t\tr.view.seeNode", New: "\tif true {\n\t\tr.view.seeNode",
	},
	{
		Name: "hook: pods are not listed again when the mark goes", File: "kubelet-admit/nri/reader.go",
		Old: "if r.view.marked() && !isMarked(node, r.view.key) {", New: "if false {",
	},
	{
		Name: "hook: a Node that is gone is an outage", File: "kubelet-admit/nri/reader.go",
		Old: "if isGone(err) {", New: "if false {",
	},
	{
		Name: "hook: a proxy's page is the API server's word", File: "kubelet-admit/nri/reader.go",
		Old: " && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)", New: "",
	},
	{
		Name: "hook: a stopped plugin overwrites its successor's status", File: "kubelet-admit/nri/run.go",
		Old: "h.written && err == nil && ", New: "false && err == nil && ",
	},
	{
		Name: "hook: pods are listed before the Node is read", File: "kubelet-admit/nri/reader.go",
		Old: "\tnode, err := api.node(ctx, r.node)\n\tif err != nil {\n\t\tif isGone(err) {\n\t\t\tr.view.unread() // as where the watch tells it: it may have been marked before, and its pods are ended by others now\n\t\t}\n\t\treturn err\n\t}\n\tif isMarked(node, r.view.key) {\n\t\tr.view.seeNode(node, time.Now()) // at once; its absence waits for the pods\n\t}\n\tnodes := api.follow(ctx, \"nodes\", fields.OneTermEqualSelector(metav1.ObjectNameField, r.node), node.ResourceVersion)\n\tpods, stop, err := r.pods(ctx, api)\n\tif err != nil {\n\t\treturn err\n\t}\n", New: "\tpods, stop, err := r.pods(ctx, api)\n\tif err != nil {\n\t\treturn err\n\t}\n\tnode, err := api.node(ctx, r.node)\n\tif err != nil {\n\t\tif isGone(err) {\n\t\t\tr.view.unread() // as where the watch tells it: it may have been marked before, and its pods are ended by others now\n\t\t}\n\t\treturn err\n\t}\n\tif isMarked(node, r.view.key) {\n\t\tr.view.seeNode(node, time.Now()) // at once; its absence waits for the pods\n\t}\n\tnodes := api.follow(ctx, \"nodes\", fields.OneTermEqualSelector(metav1.ObjectNameField, r.node), node.ResourceVersion)\n",
	},
	{
		Name: "hook: an exemption that can end is remembered", File: "kubelet-admit/nri/memory.go",
		Old: "return t.Effect == corev1.TaintEffectNoExecute", New: "return false",
	},
	{
		Name: "hook: a pod that calls itself static is remembered", File: "kubelet-admit/nri/memory.go",
		Old: "firm := corev1.Pod{}\n", New: "firm := corev1.Pod{}\n\tfirm.Annotations = pod.Annotations\n",
	},
	{
		Name: "hook: another node's disk is believed", File: "kubelet-admit/nri/memory.go",
		Old: "m.Node != c.NodeName || ", New: "",
	},
	{
		Name: "hook: another mark's disk is believed", File: "kubelet-admit/nri/memory.go",
		Old: " || m.TaintKey != c.TaintKey)", New: ")",
	},
	{
		Name: "hook: a pod without an UID is remembered", File: "kubelet-admit/nri/memory.go",
		Old: "if uid == \"\" || len", New: "if len",
	},
	{
		Name: "hook: what follows the memory's end is ignored", File: "kubelet-admit/nri/memory.go",
		Old: "!errors.Is(err, io.EOF)", New: "err == nil && false",
	},
	{
		Name: "hook: a memory of any length is read", File: "kubelet-admit/nri/memory.go",
		Old: "if len(text) > memoryBytes {", New: "if false {",
	},
	{
		Name: "hook: the memory is written before a list", File: "kubelet-admit/nri/view.go",
		Old: "\tif !v.listed {\n", New: "\tif false {\n",
	},
	{
		Name: "hook: what the boot has listed does not end the memory", File: "kubelet-admit/nri/view.go",
		Old: "v.pods, v.listed, v.node.Listed = seen, true, true", New: "v.pods, v.listed = seen, true",
	},
	{
		Name: "hook: the Node is read from a cache", File: "kubelet-admit/nri/reader.go",
		Old: "Resource(\"nodes\").Name(name).Do(", New: "Resource(\"nodes\").Name(name).Param(\"resourceVersion\", \"0\").Do(",
	},
	{
		Name: "hook: the pods are read from a cache", File: "kubelet-admit/nri/reader.go",
		Old: "opts := &metav1.ListOptions{FieldSelector: selector.String()}", New: "opts := &metav1.ListOptions{FieldSelector: selector.String(), ResourceVersion: \"0\"}",
	},
	{
		Name: "hook: CreateContainer always allows", File: "kubelet-admit/nri/plugin.go",
		Old: "return nil, nil, p.ask(pod)", New: "return nil, nil, nil",
	},
	{
		Name: "hook: an old runtime is given the event it does not know", File: "kubelet-admit/nri/plugin.go",
		Old: "if knowsValidators(p.nri) {", New: "if true {",
	},
	{
		Name: "hook: what the plugin does not answer passes", File: "kubelet-admit/nri/plugin.go",
		Old: "FailRequest: true", New: "FailRequest: false",
	},
	{
		Name: "install: a Node of another boot is taken", File: "kubelet-admit/install/kubeconfig.go",
		Old: "node.Status.NodeInfo.BootID != boot; {", New: "false; {", Tests: []string{installBoot},
	},
	{
		Name: "install: a kubelet that is about to report is refused", File: "kubelet-admit/install/kubeconfig.go",
		Old: "bootWait  = 30 * time.Second", New: "bootWait  = 0 * time.Second", Tests: []string{installBoot},
	},
	{
		Name: "report: nobody is told of a node without a hook", File: "taint/controller/report.go",
		Old: "\tif begins {\n", New: "\tif false && begins {\n", Tests: []string{noHook},
	},
	{
		Name: "report: every node is one without a hook", File: "taint/controller/report.go",
		Old: "if guard == corev1.ConditionTrue {", New: "if false {", Tests: []string{noHook},
	},

	// The glue: what is read, and of whom it is said.
	{
		Name: "look: a Lease that cannot be read is none", File: "taint/controller/look.go",
		Old: "		case client.IgnoreNotFound(err) != nil:\n			return fmt.Errorf(\"reading lease live: %w\", err)\n		case err != nil:\n", New: "		case err != nil:\n",
		Tests: glue,
	},
	{
		Name: "look: a Node that cannot be read is gone", File: "taint/controller/look.go",
		Old: "		case client.IgnoreNotFound(err) != nil:\n			return fmt.Errorf(\"reading node live: %w\", err)\n		case err != nil:\n", New: "		case err != nil:\n",
		Tests: glue,
	},
	{
		Name: "look: a claim that cannot be read has no volume", File: "taint/controller/look.go",
		Old: "			return nil, fmt.Errorf(\"reading claim %s/%s: %w\", p.Namespace, claim, err)\n", New: "			continue\n",
		Tests: glue,
	},
	{
		Name: "look: other nodes' attachments are this one's (11)", File: "taint/controller/look.go",
		Old: "		if va.Spec.NodeName != node {\n", New: "		if false {\n",
		Tests: glue,
	},
	{
		Name: "look: a volume's handle is its name (step 10)", File: "taint/controller/look.go",
		Old: "\"^\" + pv.Spec.CSI.VolumeHandle)", New: "\"^\" + vol.PV)",
		Tests: glue,
	},
	{
		Name: "look: a generic ephemeral volume's claim has its name alone", File: "taint/controller/look.go",
		Old: "			claim = p.Name + \"-\" + v.Name\n", New: "			claim = v.Name\n",
		Tests: glue,
	},
	{
		Name: "look: a generic ephemeral volume is none", File: "taint/controller/look.go",
		Old: "		case v.Ephemeral != nil:\n			claim = p.Name + \"-\" + v.Name\n", New: "",
		Tests: glue,
	},
	{
		Name: "controller: exempt pods' volumes are work (9)", File: "taint/controller/act.go",
		Old: "	if err == nil {\n		err = t.resolve(ctx, pods, objects, false)\n	}\n", New: "	_ = objects\n",
		Tests: glue,
	},
	{
		Name: "controller: a return ends by the cache's attachments (11)", File: "taint/evict/evict.go",
		Old: "(d.Record.Result == taint.ResultEvicted || d.Record.Result == taint.ResultReturned ||", New: "(d.Record.Result == taint.ResultEvicted ||",
		Tests: glue,
	},
	{
		Name: "controller: one device that lied distrusts all", File: "taint/controller/identity.go",
		Old: "err == nil && rec.Distrusts(m.Identity, m.Device, n.Name == name) {", New: "err == nil && rec != nil && rec.Result == taint.ResultNeverPoweredOff && name != \"\" {",
		Tests: glue,
	},
	{
		Name: "controller: records that cannot be listed tell of no liar", File: "taint/controller/identity.go",
		Old: "		return \"\", fmt.Errorf(\"listing cached nodes: %w\", err)\n	}\n	for i := range nodes.Items {\n		n :=", New: "		return \"\", nil\n	}\n	for i := range nodes.Items {\n		n :=",
		Tests: glue,
	},
	{
		Name: "look: a look is as young as its answer (step 4)", File: "taint/controller/look.go",
		Old: "taint.See(node, lease, key, sent, now()), nil", New: "taint.See(node, lease, key, now().Add(0*now().Sub(sent)), now()), nil",
		Tests: glue,
	},
	{
		Name: "look: a look was there when it was asked for (1)", File: "taint/controller/look.go",
		Old: "taint.See(node, lease, key, sent, now()), nil", New: "taint.See(node, lease, key, sent, sent), nil",
		Tests: glue,
	},
	{
		Name: "controller: a power-off that cannot be announced keeps all others waiting", File: "taint/controller/act.go",
		Old: "				t.across(func(f *fleet.Fleet) { f.Fence(t.look.Name, t.look.Record, t.Now()) }) // gives", New: "				t.across(func(*fleet.Fleet) {}) // gives",
		Tests: glue,
	},
	{
		Name: "release: pods are spared under our own mark only (10)", File: "taint/controller/release.go",
		Old: "	if l.Record.Open() {\n		left, err := spareAll", New: "	if l.Ours() {\n		left, err := spareAll",
		Tests: glue,
	},
	{
		Name: "taint: two fences of one id are one (10)", File: "taint/record.go",
		Old: "return r.ID + \"/\" + r.Since.UTC().Format(\"20060102T150405.000\") }", New: "return r.ID }",
	},
	{
		Name: "taint: two fences of one second are one (10)", File: "taint/record.go",
		Old: "Format(\"20060102T150405.000\") }", New: "Format(\"20060102T150405\") }",
	},

	{
		Name: "app: a rule's mode is the file's (8)", File: "cmd/internal/config/machine.go",
		Old: "		Mode: cmp.Or(rule.Mode, c.Mode),", New: "		Mode: cmp.Or(c.Mode, rule.Mode),",
		Tests: wiring,
	},
	{
		Name: "app: the file's mode is every rule's (8)", File: "cmd/internal/app/policy.go",
		Old: "	if m.Mode == config.Fence {", New: "	if f.cfg.Mode == config.Fence {",
		Tests: wiring,
	},
	{
		Name: "app: a clash that is gone stays", File: "cmd/internal/app/policy.go",
		Old: "found != nil && time.Since(at) < time.Second {", New: "found != nil && at.Before(time.Now()) {",
		Tests: wiring,
	},
	{
		Name: "app: who cannot be listed does not clash", File: "cmd/internal/app/policy.go",
		Old: "			return nil, fmt.Errorf(\"listing cached nodes: %w\", err)", New: "			return taint.NewClaims(nil), nil",
		Tests: wiring,
	},
	{
		Name: "app: the target loses its system UUID (3)", File: "cmd/internal/app/policy.go",
		Old: "	out := f.machine(m.Provider, m.Target)\n", New: "	out := f.machine(m.Provider, providers.Target{Node: m.Target.Node, ID: m.Target.ID})\n",
		Tests: wiring,
	},
	{
		Name: "app: a person is always trusted", File: "cmd/internal/app/policy.go",
		Old: "TrustPerson: cfg.ManualMarks == config.Trust}", New: "TrustPerson: cfg.ManualMarks != \"\"}",
		Tests: wiring,
	},
	{
		Name: "app: a reload closes providers that are being asked", File: "cmd/internal/app/policy.go",
		Old: "case <-time.After(linger):", New: "case <-time.After(0):",
		Tests: wiring,
	},
	{
		Name: "app: nobody is excluded (8)", File: "cmd/internal/app/policy.go",
		Old: "	if cfg.Excluded(n) {", New: "	if false {",
		Tests: wiring,
	},
	{
		Name: "controller: maintenance is not asked for (8)", File: "taint/controller/act.go",
		Old: "Excluded: t.policy.Excluded(t.node),", New: "Excluded: \"\",",
		Tests: glue,
	},
	{
		Name: "controller: control-plane nodes are not told apart (7)", File: "taint/controller/act.go",
		Old: "	v.ControlPlane = isControlPlane(t.look.Labels)\n", New: "",
		Tests: glue,
	},
	{
		Name: "controller: the device's mode is fence", File: "taint/controller/act.go",
		Old: "Mode: t.machine.Mode, Device:", New: "Mode: fence.Fence, Device:",
		Tests: glue,
	},
	{
		Name: "controller: a new leader finds everybody silent whom it did not look at yet (6)", File: "taint/controller/controller.go",
		Old: "			f.Know(nodes.Items[i].Name, r.Now())\n", New: "			_ = i\n",
		Tests: glue,
	},
	{
		Name: "controller: a new leader does not know who is powered off (6)", File: "taint/controller/controller.go",
		Old: "				f.Fence(nodes.Items[i].Name, rec, r.Now())\n", New: "				_ = rec.Open()\n",
		Tests: glue,
	},
	{
		Name: "controller: a mark on a node that is well is nobody's business", File: "taint/controller/controller.go",
		Old: "st.suspect != \"\" || l.Mark != nil || l.RecordErr", New: "st.suspect != \"\" || l.RecordErr",
		Tests: glue,
	},
	{
		Name: "controller: a node that came back is never asked about its boot", File: "taint/controller/controller.go",
		Old: " || l.RecordErr != nil || !done || hasCondition", New: " || l.RecordErr != nil || !done && l.Record.Open() || hasCondition",
		Tests: glue,
	},
	{
		Name: "controller: the condition of a silent node stays", File: "taint/controller/controller.go",
		Old: " || !done || hasCondition(&node) {", New: " || !done {",
		Tests: glue,
	},
	{
		Name: "controller: deleted nodes are silent ones", File: "taint/controller/controller.go",
		Old: "	r.across(func(f *fleet.Fleet) { f.Drop(name, r.Now()) })\n", New: "",
		Tests: glue,
	},
	{
		Name: "controller: nobody is distrusted", File: "taint/controller/identity.go",
		Old: "			return n.Name, nil\n", New: "			return \"\", nil\n",
		Tests: glue,
	},
	{
		Name: "controller: no pod is exempt (9)", File: "taint/controller/look.go",
		Old: "Exempt: taint.Exempt(p, key), Terminal", New: "Exempt: \"\", Terminal",
		Tests: glue,
	},
	{
		Name: "controller: finished pods run (9)", File: "taint/controller/look.go",
		Old: "Terminal: taint.IsTerminal(p), Tombstone", New: "Terminal: taint.IsTombstone(p), Tombstone",
		Tests: glue,
	},
	{
		Name: "controller: a spared pod is not seen as one (10)", File: "taint/controller/look.go",
		Old: "Spared: taint.SparedBy(p),", New: "",
		Tests: glue,
	},
	{
		Name: "controller: a pod's finalizers are not seen (step 12)", File: "taint/controller/look.go",
		Old: "		Finalizers:  p.Finalizers,\n", New: "",
		Tests: glue,
	},
	{
		Name: "controller: stock evictions are not foreseen (F2)", File: "taint/controller/look.go",
		Old: "		Tolerations: p.Spec.Tolerations,\n", New: "",
		Tests: glue,
	},
	{
		Name: "controller: a mark of another value wakes nobody", File: "taint/controller/setup.go",
		Old: "a.MatchTaint(&b) && a.Value == b.Value", New: "a.MatchTaint(&b)",
		Tests: glue,
	},
	{
		Name: "controller: a label wakes nobody", File: "taint/controller/setup.go",
		Old: "		maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) &&\n", New: "		(maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) || true) &&\n",
		Tests: glue,
	},
	{
		Name: "controller: a Node made anew wakes nobody", File: "taint/controller/setup.go",
		Old: "o.BootID == n.BootID && o.UID == n.UID &&\n", New: "o.BootID == n.BootID &&\n",
		Tests: glue,
	},
	{
		Name: "release: a person's mark stays", File: "taint/controller/release.go",
		Old: "object{\"taints\": withoutKey(node.Spec.Taints, key)}", New: "object{\"taints\": taint.Without(withoutKey(node.Spec.Taints, \"\"), key, rec.ID)}",
		Tests: glue,
	},
	{
		Name: "release: without --yes", File: "taint/controller/release.go",
		Old: "	if !confirm {", New: "	if false {",
		Tests: glue,
	},
	{
		Name: "release: exempt pods are spared (9)", File: "taint/controller/release.go",
		Old: "p.Terminal || p.Exempt != taint.NotExempt || ", New: "p.Terminal || ",
		Tests: glue,
	},
	{
		Name: "release: the record keeps the life it had", File: "taint/controller/release.go",
		Old: "	rec.NodeUID, rec.BootID, rec.LeaseRV = l.UID, l.BootID, l.LeaseRV\n", New: "",
		Tests: glue,
	},
	{
		Name: "writer: a tombstone without its reason (F3)", File: "taint/controller/writer.go",
		Old: "object{\"phase\": corev1.PodFailed, \"reason\": taint.TombstoneReason}", New: "object{\"phase\": corev1.PodFailed}",
		Tests: glue,
	},
	{
		Name: "guard: a closed provider is asked", File: "providers/guard/guard.go",
		Old: "	if g.closed {\n", New: "	if false {\n",
	},
	{
		Name: "guard: no limit of calls in flight", File: "providers/guard/guard.go",
		Old: "slots: make(chan struct{}, g.opts.Concurrency)", New: "slots: make(chan struct{}, 100+g.opts.Concurrency)",
	},
	{
		Name: "guard: no rate", File: "providers/guard/guard.go",
		Old: "rate.NewLimiter(g.opts.Rate, g.opts.Burst)}", New: "rate.NewLimiter(rate.Inf, g.opts.Burst)}",
	},
	{
		Name: "guard: machines behind one device have limits of their own", File: "providers/guard/guard.go",
		Old: "		if d := by.Device(t); d != \"\" {", New: "		if d := by.Device(t); false {",
	},
	{
		Name: "guard: a panic is not caught", File: "providers/guard/guard.go",
		Old: "		if r := recover(); r != nil {", New: "		if r := any(nil); r != nil {",
	},
	{
		Name: "guard: closes under a call", File: "providers/guard/guard.go",
		Old: "		g.calls.Wait()\n", New: "",
	},
	{
		Name: "guard: a call that does not return gives its place away", File: "providers/guard/guard.go",
		Old: "	default:\n		return none, fail(ended(ctx))\n", New: "	default:\n		<-d.slots\n		d.slots <- struct{}{}\n		return none, fail(ended(ctx))\n",
	},
	{
		Name: "taint: an equal value tolerates (9)", File: "taint/exempt.go",
		Old: "t.Operator != corev1.TolerationOpExists || ", New: "",
	},
	{
		Name: "taint: another key's toleration exempts (9)", File: "taint/exempt.go",
		Old: " || (t.Key != \"\" && t.Key != key) {", New: " {",
	},
	{
		Name: "taint: any effect's toleration exempts (9)", File: "taint/exempt.go",
		Old: "		case \"\", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute:\n", New: "		default:\n",
	},
	{
		Name: "taint: anybody's kind of DaemonSet is exempt (9)", File: "taint/exempt.go",
		Old: " && strings.HasPrefix(ref.APIVersion, \"apps/\")", New: " && strings.HasPrefix(ref.APIVersion, \"\")",
	},
	{
		Name: "taint: pods from the API are static (9)", File: "taint/exempt.go",
		Old: "	return ok && src != \"api\"", New: "	return ok && src != \"\"",
	},
	{
		Name: "taint: a person's mark hides ours", File: "taint/taint.go",
		Old: "(found == nil || (found.Value != id && t.Value == id)) {", New: "(found == nil || id == \"\") {",
	},
	{
		Name: "taint: our mark twice", File: "taint/taint.go",
		Old: "(t.Value == id || t.Effect == corev1.TaintEffectNoSchedule)", New: "(t.Value == id)",
	},
	{
		Name: "taint: an open record with a result is read", File: "taint/record.go",
		Old: "		if r.Result != \"\" {\n", New: "		if false {\n",
	},
	{
		Name: "taint: a record of no Node is read", File: "taint/record.go",
		Old: "	case r.NodeUID == \"\":\n", New: "	case false:\n",
	},
	{
		Name: "taint: the first evidence is lost", File: "taint/record.go",
		Old: "append(list[:1], list[len(list)-maxEvidence+1:]...)", New: "list[len(list)-maxEvidence:]",
	},
	{
		Name: "taint: every failed pod is ours to delete (9)", File: "taint/tombstone.go",
		Old: "return p.Status.Phase == corev1.PodFailed && p.Status.Reason == TombstoneReason", New: "return p.Status.Phase == corev1.PodFailed",
	},
	{
		Name: "taint: a failed pod has not finished (9)", File: "taint/tombstone.go",
		Old: "return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed", New: "return p.Status.Phase == corev1.PodSucceeded",
	},
	{
		Name: "taint: a Lease is not seen", File: "taint/look.go",
		Old: "		l.LeaseRV, l.LeaseDuration = lease.ResourceVersion, LeaseDuration(lease)\n", New: "		l.LeaseDuration = LeaseDuration(lease)\n",
	},

	{
		Name: "app: a leader that was stopped still leads (5)", File: "cmd/internal/app/leader.go",
		Old: "age >= l.valid || age < 0 {", New: "age < 0 {",
	},
	{
		Name: "app: a renewal counts from its answer (5)", File: "cmd/internal/app/leader.go",
		Old: "\tsent := l.now()\n\tif err := write(ctx, rec); err != nil {\n\t\treturn err\n\t}\n", New: "\tif err := write(ctx, rec); err != nil {\n\t\treturn err\n\t}\n\tsent := l.now()\n",
	},
	{
		Name: "app: a suspended leader still leads (5)", File: "cmd/internal/app/leader.go",
		Old: "age := max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0)));", New: "age := now.Sub(*sent);",
	},
	{
		Name: "app: a clock that was set back keeps a leader (5)", File: "cmd/internal/app/leader.go",
		Old: "age := max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0)));", New: "age := now.Round(0).Sub(sent.Round(0));",
	},
	{
		Name: "app: no margin of the Lease (5)", File: "cmd/internal/app/app.go",
		Old: "valid: le.RenewDeadline, log", New: "valid: le.LeaseDuration, log",
	},
	{
		Name: "app: the elector's requests have no end (5)", File: "cmd/internal/app/app.go",
		Old: "rc.Timeout = le.RenewDeadline / 2", New: "rc.Timeout = 0",
	},
	{
		Name: "app: a rival is not looked for before a Lease is written", File: "cmd/internal/app/leader.go",
		Old: "\tif rival == \"\" {\n\t\tif l.told", New: "\tif true {\n\t\tif l.told",
	},
	{
		Name: "app: a rival is not looked for after a Lease is written", File: "cmd/internal/app/leader.go",
		Old: "if begins != nil || l.leading() != nil {", New: "if false {",
	},
	{
		Name: "app: a renewal that lasted too long is no beginning", File: "cmd/internal/app/leader.go",
		Old: "if begins != nil || l.leading() != nil {", New: "if begins != nil {",
	},
	{
		Name: "app: a lapsed leader writes before it looks", File: "cmd/internal/app/leader.go",
		Old: "if begins != nil && before != nil {", New: "if false {",
	},
	{
		Name: "app: who cannot look leads", File: "cmd/internal/app/leader.go",
		Old: "\tif bad != nil {\n", New: "\tif bad != nil && rival != \"\" {\n",
	},
	{
		Name: "app: who withdraws keeps its Lease", File: "cmd/internal/app/leader.go",
		Old: "return errors.Join(err, l.Interface.Update(ctx, rec))", New: "return err",
	},
	{
		Name: "app: a leader does not mind a rival", File: "cmd/internal/app/leader.go",
		Old: "\t\tcase rival != \"\":\n", New: "\t\tcase rival == \"-\":\n",
	},
	{
		Name: "app: a renewal undoes what the watch has done", File: "cmd/internal/app/leader.go",
		Old: "if !l.sent.CompareAndSwap(before, &sent) {", New: "if l.sent.Store(&sent); false {",
	},
	{
		Name: "app: memory of a rival ends a leadership", File: "cmd/internal/app/leader.go",
		Old: "\t\tif rival != \"\" {\n\t\t\trival, err = l", New: "\t\tif false {\n\t\t\trival, err = l",
	},
	{
		Name: "app: a rival's longer Lease is not waited for", File: "cmd/internal/app/leader.go",
		Old: "max(r.least, lasts(lease))", New: "r.least",
	},
	{
		Name: "app: a rival's short Lease is taken at its word", File: "cmd/internal/app/leader.go",
		Old: "max(r.least, lasts(lease))", New: "lasts(lease)",
	},
	{
		Name: "cleanup: it goes on while a controller leads or a fence is open", File: "cmd/forcefence/cleanup.go",
		Old: "case len(against) > 0 && !o.force:", New: "case len(against) > 99:",
		Tests: []string{"./test/deploy -run TestCleanup"},
	},
	{
		Name: "identity: two unpinned nodes share a machine (14)", File: "taint/identity.go",
		Old: "case mine.Claimed && len(claims) > 0:", New: "case false:",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a newcomer gets a pinned machine (14)", File: "taint/identity.go",
		Old: "\tcase len(pins) > 0:\n", New: "\tcase false:\n",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a kubelet's word against the operator's (14)", File: "taint/identity.go",
		Old: "case len(operator) > 0 && (mine.Claimed || !pinned):", New: "case len(operator) > 0 && !mine.Claimed && !pinned:",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: two nodes tell one system UUID (14)", File: "taint/identity.go",
		Old: "case byUUID != \"\" && mine.Claimed:", New: "case false:",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a pin counts only while its node is led there (14)", File: "taint/identity.go",
		Old: "\t\tif pinned != \"\" && pinned != noUUID {", New: "\t\tif pinned != \"\" && pinned == claimed && pinned != noUUID {",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a changed system UUID is believed (14)", File: "taint/identity.go",
		Old: "case v.Pin != \"\" && v.Claimed && uuid != v.Machine.uuidPin():", New: "case uuid == \"?\":",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a silent node's changed ID is believed (14)", File: "taint/identity.go",
		Old: "case v.Pin != \"\" && v.Claimed && !v.Healthy:", New: "case false:",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a node that looks dead is pinned (14)", File: "taint/identity.go",
		Old: "case v.Healthy && v.NoPin == \"\":", New: "case v.NoPin == \"\":",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: an unpinned machine may be powered off (14)", File: "taint/identity.go",
		Old: "if v.Claimed && id != v.Machine.idPin() {", New: "if id == \"?\" {",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a clash is believed (14)", File: "taint/identity.go",
		Old: "\tcase v.Refused != \"\":\n", New: "\tcase false:\n",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: an open fence follows the annotation (14)", File: "taint/identity.go",
		Old: "if v.Record.Open() && v.Record.Machine != nil {", New: "if false {",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a record against the pin is believed (14)", File: "taint/identity.go",
		Old: "case v.Pin == m.Pin():", New: "case v.Pin != \"\":",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: distrust of whatever has the address", File: "taint/identity.go",
		Old: "own || r.Machine.SystemUUID == m.SystemUUID ||", New: "true || r.Machine.SystemUUID == m.SystemUUID ||",
		Tests: []string{"./taint"},
	},
	{
		Name: "controller: a machine that is not believed is asked (14)", File: "taint/controller/identity.go",
		Old: "\tcase b.Refused != \"\":\n", New: "\tcase false:\n",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: an open fence asks whom the annotation names (14)", File: "taint/controller/identity.go",
		Old: "\tcase b.Machine != m.Identity: // the record's\n", New: "\tcase false: // the record's\n",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: an older record's device may change (14)", File: "taint/controller/identity.go",
		Old: "rec.Device != \"\" && rec.Device != m.Device {", New: "rec.Device != \"\" && rec.Device == \"x\" {",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: an unpinned machine is powered off (14)", File: "taint/controller/act.go",
		Old: "\tif err == nil && t.noPower != \"\" {", New: "\tif false {",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: an unpinned machine keeps its mode (14)", File: "taint/controller/identity.go",
		Old: "\tif b.NoPower != \"\" {\n\t\tm.Mode", New: "\tif false {\n\t\tm.Mode",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: a pin that was refused is tried at once", File: "taint/controller/identity.go",
		Old: "\tcase now.Before(st.pinAgain):\n", New: "\tcase false:\n",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: a changed annotation wakes nobody", File: "taint/controller/setup.go",
		Old: "\t\tmaps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) &&", New: "\t\ttrue &&",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "writer: a pin over somebody else's write (5)", File: "taint/controller/writer.go",
		Old: "\"metadata\": object{\"resourceVersion\": l.ResourceVersion, \"uid\": l.UID, \"labels\"", New: "\"metadata\": object{\"uid\": l.UID, \"labels\"",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "release: from the record's own node only", File: "taint/controller/release.go",
		Old: "rec.Machine != nil && rec.Machine.Pin() == pin {", New: "rec.Machine != nil && false {",
	},
	{
		Name: "config: what a kubelet can write is the operator's word (14)", File: "cmd/internal/config/machine.go",
		Old: "return s.tmpl == nil || s.tmpl.labels", New: "return false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: IDs are compared as they are written (14)", File: "cmd/internal/config/machine.go",
		Old: "\t\tid, err = rule.Machine.canonical(id)\n", New: "\t\t_, err = rule.Machine.canonical(id)\n",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a node names any host (14)", File: "cmd/internal/config/machine.go",
		Old: "&& !s.allowed.has(host):", New: "&& false:",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a node's http:// is believed (14)", File: "cmd/internal/config/machine.go",
		Old: "case s.namesHosts() && strings.HasPrefix(id, \"http://\"):", New: "case false:",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: allow is not required (14)", File: "cmd/internal/config/check.go",
		Old: "case s.namesHosts() && len(s.Allow) == 0:", New: "case false:",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a domain allows what only ends like it (14)", File: "cmd/internal/config/allow.go",
		Old: "a.domains = append(a.domains, \".\"+domain)", New: "a.domains = append(a.domains, domain)",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a list's IDs are compared as they are written", File: "cmd/internal/config/check.go",
		Old: "m := machine{n.Provider, id}", New: "m := machine{n.Provider, e.ID + id[:0]}",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an unknown variable is ignored", File: "cmd/internal/config/config.go",
		Old: "\t\tr.unknownEnv()\n", New: "",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an empty excludeSelector excludes all (8)", File: "cmd/internal/config/check.go",
		Old: "r.selector(\"excludeSelector\", c.ExcludeSelector, labels.Nothing())", New: "r.selector(\"excludeSelector\", c.ExcludeSelector, labels.Everything())",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "redfish: an address with the root's dot is another (14)", File: "providers/redfish/redfish.go",
		Old: "strings.TrimSuffix(strings.ToLower(u.Hostname()), \".\")", New: "strings.ToLower(u.Hostname())",
		Tests: []string{"./providers/redfish -run Canonical"},
	},
	{
		Name: "fence: the record does not name its machine (14)", File: "taint/fence/fence.go",
		Old: "	r.Machine = v.Identity.Recorded()\n", New: "",
		Tests: []string{"./taint/fence"},
	},
	{
		Name: "evict: a person's fence does not name its machine (14)", File: "taint/evict/evict.go",
		Old: ", Machine: v.Identity.Recorded(),", New: ",",
		Tests: []string{"./taint/evict"},
	},
}
