package main

import (
	"slices"
	"strings"
)

// sim plays the histories of test/sim: enough of them to take every path many times, few enough for a mutant's two
// minutes.
const sim = "./test/sim -run TestHistories -sim.seeds=4000"

// hook is the node's hook without a control plane: its memory, and its reader in front of answers in a chosen order.
const hook = "./kubelet-admit/nri -short -run " +
	"Test(View|NoBoot|Held|Restore|Ended|Pods|Volumes|Mark|NodeGone|Status|Memory|Plugin|Quorum|Silent|Poll|Watches)|FuzzView"

// The installer's wait for a kubelet, and what is told of a node without a hook, take no control plane either.
const (
	installBoot = "./kubelet-admit/install -short -run TestInstallOnAnotherBoot"
)

// ec2Quick are the tests of EC2's answers, without the conformance suite and the batches that hang.
const ec2Quick = "./providers/ec2 -run " +
	"Test(WhatIsOff|TwoAnswers|Terminated|Stale|Power|Canonical|Errors|OneInstance|Thousand)"

// ec2Spot are the tests of what is terminated, of the market's stops, and of an API that is slow.
var ec2Spot = []string{"./providers/ec2 -run TestTerminate|StoppedByTheMarket|SecondAnswer"}

// ec2Credentials are the tests of what hangs on the way to credentials, and of connections.
var ec2Credentials = []string{"./providers/ec2 -run Test(CredentialsThat|Connections)"}

// What devices push: how often it makes us ask, and what of it does.
var (
	pacing      = []string{"./providers/remote -run Pace"}
	poolTests   = []string{"./providers/remote -run Pool"}
	ec2Watch    = []string{"./providers/ec2 -run Watch|Queue|NoQueues|FuzzEvent"}
	ipmiNetwork = []string{"./providers/ipmi -run " +
		"TestLoss|TestSlowN|TestLogin|TestCloseEnds|TestFailed|Suite$|IsSilent|TestLost|TestShort|TestLate|TestStalled|TestNumbers|TestSpent|TestRefusedTwin"}
	ipmiKg     = []string{"./providers/ipmi -run Kg|TestValidate"}
	ipmiTraps  = []string{"./providers/ipmi -run TestWatch[^S]*$|NoTraps|FuzzTrap"}
	hostileSQS = []string{"./providers/ec2 -run WatchGiants|WatchHasty"}
)

// statusPage are the tests of the status page that take neither a browser nor a control plane.
var statusPage = []string{"./cmd/internal/page -short"}

// redfishEvents are the tests of what BMCs tell by themselves.
var redfishEvents = []string{"./providers/redfish -run Watch|Push|Pace|Event"}

// What a hostile device takes of memory and goroutines.
var (
	floodOfAnswers   = []string{"./providers/redfish -run TestConformance/system.s_path/stays_within"}
	floodOfMany      = []string{"./providers/redfish -run TestConformance/one_of_several/stays_within"}
	floodsOfRedfish  = []string{"./providers/redfish -run ScanKeeps|MembersAreCapped|ManyChassis|ManyEvents"}
	floodOfInstances = []string{"./providers/ec2 -run TestConformance/plain/stays_within"}
	budgetLiars      = []string{"./providers/providertest -run TestLiarsAreCaught"}
)

// redfishOptions are the tests of what a provider's settings take away, and of the power button.
var redfishOptions = []string{"./providers/redfish -run Ignore|DrillDoubts|PushPower|TestAsleep"}

// redfishLookUps are the tests of what changes while a BMC is asked, and of what contradicts an Off.
var redfishLookUps = []string{"./providers/redfish -run DuringLookUp|OlderThanTheQuestion|OffIsContradicted"}

// steps are the tests of the steps that a Fencing keeps.
var steps = []string{"./taint/journal"}

// timedEvents are the tests of the time that an Event carries.
var timedEvents = []string{"./taint/observe -run TestEvents"}

// vcenterTests are the pitfalls of providers/vsphere, without the suite, which takes its time.
var vcenterTests = []string{"./providers/vsphere -run ^Test[^C]"}

// refusals are what a real API server makes of the controller's writes.
const refusals = "./taint/kube -run WritesAreRefused"

// sentOnce are the tests of what becomes of a write, or a read, on its way.
var sentOnce = []string{"./taint/kube -short -run Once|Late|CutOff|Repeat|Patient|Suspension"}

// attachmentWrites are the same of its deletions of attachments; kubeReads are what is read, without a control plane.
var (
	attachmentWrites = []string{"./taint/kube -run AttachmentDeletionIsRefused"}
	kubeReads        = []string{"./taint/kube -short"}
	recordsWorld     = []string{"./taint/observe -run Records|KeepItems"}
	lifeSince        = []string{"./taint/decide/fleet -run TestAlive", "./taint/decide -run TestLife|TestQuestion"}
	slowDevice       = []string{"./taint/decide/proof", "./taint/decide",
		"./taint/controller -short -run Slow|StandsStill|WritesDoNot"}
	stuckWorld  = []string{"./taint/controller -short -run RejectedMark|StuckBegins|OutageIsNot|RefusedLook"}
	storedWorld = []string{"./taint/controller -run Storage|Judge"}
)

// lastChecks are the tests of what is checked right before a power action; uncheckedPower plays histories without that.
var (
	lastChecks     = []string{"./taint/controller -short -run TestLastCheck|TestPowerOffNeedsLeader"}
	uncheckedPower = []string{"./test/sim -run TestUncheckedPowerActionsAreFoundOut"}
)

// overtime is what is done about volumes that do not detach.
var overtime = []string{"./taint/decide/evict -run Overtime|Emptied"}

// storageWatch is what becomes of storage systems' resources on a real API server.
var storageWatch = []string{"./test/integration -run ^TestStorage$"}

// podFailures are the controller's tests of pod writes, without a control plane.
const podFailures = "./taint/controller -short"

// glue is the controller without a control plane: its decisions around objects in memory.
var glue = []string{"./taint/controller -short"}

// observing is what is told of steps that did not happen.
var observing = []string{"./taint/observe -short"}

// shares are what fences read together.
var shares = []string{"./taint/controller -short -run TestReadTogether"}

// recorderTests are those of the file that a recording is written to.
var recorderTests = []string{"./cmd/internal/app -run Recorder"}

// explained are the tests of forcefence explain against BMCs, without a control plane.
var explained = []string{"./cmd/forcefence -run TestExplain"}

// wiring is what becomes of a configuration file.
var wiring = []string{"./cmd/internal/app"}

// indexed are the tests of what the file says of Nodes that come, change and go.
var indexed = []string{"./cmd/internal/app -short -run Index|ClashComesAndGoes"}

// serving are the tests of metrics and health beside hostile clients.
var serving = []string{"./cmd/internal/app -run HostileClients|Exposition"}

// scrubs are the tests of what a support bundle takes out.
var scrubs = []string{"./cmd/forcefence -short -run Scrub"}

// rewound are the tests of an etcd that was restored from a backup, without a control plane.
var rewound = []string{"./cmd/internal/app -run Rewind|RestoredEtcd"}

// decisions are the packages that decide together: one's stories play through the others.
var decisions = []string{"taint", "taint/decide/proof", "taint/decide/fleet", "taint/decide/fence",
	"taint/decide/action", "taint/decide/evict", "taint/decide"}

// testsOf returns the tests that are to kill a mutant, in turn: those of its package, first those without a control
// plane, except where only an API server can refuse what a write sends. Where a decision is weakened the other
// decisions' stories follow, then the whole protocol's simulation.
func testsOf(m Mutant) []string {
	if m.Tests != nil {
		return m.Tests
	}
	dir, _ := m.where()
	tests := []string{"./" + dir}
	switch {
	case slices.Contains(decisions, dir):
		for _, other := range decisions {
			if other != dir {
				tests = append(tests, "./"+other)
			}
		}
		tests = append(tests, sim)
	case strings.HasPrefix(m.In, "taint/kube.Writer."):
		tests = []string{refusals, "./" + dir}
	case dir == "taint/controller", dir == "taint/kube", dir == "taint/release":
		tests = []string{"./" + dir + " -short", "./" + dir}
	case dir == "taint/recording":
		tests = append(tests, "./taint/replay")
	case dir == "providers/ec2":
		tests = []string{ec2Quick, "./" + dir}
	case dir == "providers/pdu":
		tests = []string{"./" + dir + " -skip TestConformance", "./" + dir}
	case dir == "kubelet-admit/nri":
		tests = []string{hook}
	case dir == "kubelet-admit/admit":
		tests = append(tests, sim)
	}
	return tests
}

// explored are weakenings that the exploration must notice by itself, beside the tests that kill them above: one that
// is blind to them proves nothing.
var explored = []string{
	"fence: no second snapshot (step 4)",
	"fence: power-off without the record (step 3)",
	"fence: a recovered node is powered off all the same",
	"evict: step 6 is dropped (1)",
	"evict: an answer from before the mark proves (1)",
	"evict: a stale Ready is not expired (step 5)",
	"evict: an old Off proves (1)",
	"evict: a heartbeat before the eviction does not lift (7)",
	"evict: life in the middle is not seen (return path)",
	"evict: no pod is spared (10)",
	"evict: pods are ended without proof (1)",
	"evict: exempt pods are evicted (9)",
	"evict: the mark goes before the volumes are detached (11)",
	"evict: the mark goes before the pods are gone (11)",
	"evict: the return path does not wait for the tombstoned (11)",
	"evict: the return path does not wait for volumes (11)",
	"fence: maintenance does not win (8)",
}

// simulated are weakenings that the simulation must notice by itself.
var simulated = []string{
	"fleet: the limit of power-offs is not kept (6)",
	"guard: no floor of healthy nodes (6)",
	"guard: a lost site's machines are powered off",
	"guard: control-plane nodes are powered off where nobody said so (7)",
	"guard: etcd loses its quorum (7)",
	"guard: unknown members, and several at once (7)",
	"exclude: a pause does not count (8)",
	"exclude: a time that is none ends a pause (8)",
	"exclude: the label of medik8s does not count (8)",
	"exclude: another's maintenance does not count (8)",
	"fence: maintenance does not win (8)",
	"modes: shadow marks a node",
	"modes: shadow announces a power-off",
}

func init() {
	also := func(by string, names []string, tests ...string) {
		for _, name := range names {
			m := Mutants[slices.IndexFunc(Mutants, func(m Mutant) bool { return m.Name == name })]
			m.Name, m.Tests = by+": "+m.Name, tests
			Mutants = append(Mutants, m)
		}
	}
	also("explore", explored, "./test/explore -run ^TestExplore")
	also("sim", simulated, sim)
}

// Mutants are the weakenings, by the package they weaken. The numbers are the design's invariants and steps.
var Mutants = []Mutant{
	// Asking (invariants 1 to 3).
	{
		Name: "ask: an answer of before the question counts (1)", In: "providers.checkAnswer",
		Old: "obs.At.Before(sent)", New: "false",
	},
	{
		Name: "ask: an answer of the future keeps its time (1)", In: "providers.checkAnswer",
		Old: "obs.At.After(got)", New: "false",
	},
	{
		Name: "ages: a suspension does not count (1)", In: "providers.Instant.Age",
		Old: "max(now.Sub(i), now.Wall.Sub(i.Wall), 0)", New: "max(now.Sub(i), 0)", Tests: []string{"./providers"},
	},
	{
		Name: "ages: only the wall clock counts (1)", In: "providers.Instant.Age",
		Old: "max(now.Sub(i), now.Wall.Sub(i.Wall), 0)", New: "max(now.Wall.Sub(i.Wall), 0)",
		Tests: []string{"./providers"},
	},
	{
		Name: "ages: one may be negative", In: "providers.Instant.Age",
		Old: "max(now.Sub(i), now.Wall.Sub(i.Wall), 0)", New: "max(now.Sub(i), now.Wall.Sub(i.Wall))",
		Tests: []string{"./providers"},
	},
	{
		Name: "ages: in the simulation a suspension does not count (1)", In: "providers.Instant.Age",
		Old: "now.Wall.Sub(i.Wall)", New: "now.Sub(i)", Tests: []string{sim},
	},
	{
		Name: "instants: a recording keeps one clock", In: "providers.Instant.MarshalJSON",
		Old: "ahead != 0", New: "false", Tests: []string{"./providers"},
	},
	{
		Name: "ask: another machine's answer counts (3)", In: "providers.checkAnswer",
		Old: "a.State, a.Err = PowerUnknown, err", New: "a.Err = nil",
	},
	{
		Name: "ask: a state that is none counts (2)", In: "providers.checkAnswer",
		Old: "a.State > PowerChanging", New: "false",
	},
	{
		Name: "ask: an error brings its state along (2)", In: "providers.checkAnswer",
		Old: "a.Raw, a.Err = clipWord(obs.Raw), err", New: "a.Raw, a.Err, a.State = clipWord(obs.Raw), err, obs.State",
	},
	{
		Name: "ask: a panic is not caught", In: "providers.recoverPanic",
		Old: "recover()", New: "any(nil)",
	},
	{
		Name: "identity: a mismatch passes (3)", In: "providers.SameMachine",
		Old: "!okN", New: "true || !okN",
	},
	{
		Name: "identity: placeholders identify (3)", In: "providers.ParseUUID",
		Old: "slices.Contains(placeholderUUIDs, u) || slices.Contains(placeholderUUIDs, SwapUUID(u))", New: "false",
	},
	{
		Name: "identity: a claimed machine whose device tells none is its own (14)",
		In:   "providers.Target.VerifyIdentity",
		Old:  "if _, ok := ParseUUID(o.SystemUUID); !ok { ... }", New: "if false { ... }",
	},
	{
		Name: "identity: a node that tells no UUID gets the machine that it is called after (14)",
		In:   "providers.Target.checkMachine",
		Old:  `tells && !has && obs.Addresses == "" && t.Named`, New: "tells && has && false",
	},
	{
		Name: "identity: a list's node must tell its UUID", In: "providers.Target.checkMachine",
		Old: `tells && !has && obs.Addresses == "" && t.Named`, New: `tells && !has && obs.Addresses == ""`,
	},
	{
		Name: "identity: a claimed machine's placeholder identifies (14)", In: "providers.Target.VerifyIdentity",
		Old: "if _, ok := ParseUUID(t.SystemUUID); !ok { ... }", New: "if false { ... }",
	},
	{
		Name: "identity: who the machine was confirms it (14)", In: "providers.CheckIdentity",
		Old: "obs.At.Before(sent)", New: "false",
	},
	{
		Name: "identity: a device that does not answer confirms it (14)", In: "providers.CheckIdentity",
		Old: "err != nil && !identified", New: "false && identified",
	},
	{
		Name: "identity: another machine is confirmed (3)", In: "providers.CheckIdentity",
		Old: "return t.VerifyIdentity(obs)", New: "return nil",
	},
	{
		Name: "guard: another machine is powered off (3)", In: "providers/limiter.Provider.runPowerAction",
		Old: "if err := providers.ConfirmIdentity(ctx, l, t, providers.Now); err != nil { ... }",
		New: "if err := providers.ConfirmIdentity(ctx, l, t, providers.Now); false { ... }",
	},
	{
		Name: "guard: nothing is asked between identity and power action",
		In:   "providers/limiter.Provider.runPowerAction",
		Old:  "if err := providers.PermitSends(p.askStill)(); err != nil { ... }", New: "",
	},
	{
		Name: "guard: an identity counts for ever", In: "providers/limiter.identities.useConfirmation",
		Old: "was.sent.Age(now) <= confirmedFor", New: "true",
	},
	{
		Name: "guard: another target's identity counts", In: "providers/limiter.identities.useConfirmation",
		Old: "was.target == t", New: "true",
	},
	{
		Name: "guard: an identity is never used up", In: "providers/limiter.identities.useConfirmation",
		Old: "i.known[t.Key()] = identity{used: now}", New: "",
	},
	{
		Name: "guard: a question from before a power action confirms the next",
		In:   "providers/limiter.identities.learnIdentity",
		Old:  "!sent.Before(was.used)", New: "true",
	},
	{
		Name: "guard: another machine's answer leaves the identity", In: "providers/limiter.identities.learnIdentity",
		Old: "was.sent = providers.Instant{}", New: "",
	},
	{
		Name: "guard: identities are kept for ever", In: "providers/limiter.identities.forgetStale",
		Old: "delete(i.known, key)", New: "_ = key",
	},
	{
		Name: "guard: a provider that is late may send", In: "providers/limiter.permit.askStill",
		Old: "if p.over { ... }", New: "",
	},
	{
		Name: "guard: a provider that was allowed to send says that it did not",
		In:   "providers/limiter.permit.dropNotSent",
		Old:  "p.given && errors.Is(err, providers.ErrNotSent)", New: "false",
	},
	{
		Name: "permit: a retry says that nothing was sent", In: "providers.PermitSends",
		Old: "permitted = true", New: "",
	},
	{
		Name: "permit: a refusal does not last", In: "providers.PermitSends",
		Old: "if refused == nil { ... }", New: "{ refused = askStill(still, permitted); permitted = true }",
	},
	{
		Name: "permit: a caller's word that nothing was sent outlives a request", In: "providers.classifyRefusal",
		Old: "err = errors.New(err.Error())", New: "",
	},
	{
		Name: "remote: no request of a power action asks", In: "providers/remote.Permitted.RoundTrip",
		Old: "if acts { ... }", New: "if acts && false { ... }",
	},
	{
		Name: "remote: a request that nothing permits is sent", In: "providers/remote.MaySend",
		Old: "if !ok { ... }", New: "if !ok { _ = errors.New; return nil }",
	},
	{
		Name: "redfish: a reset does not ask whether it may be sent", In: "providers/redfish.Provider.setTransport",
		Old: "next = remote.Permitted{Next: next}", New: "_ = remote.Permitted{}",
		Tests: []string{"./providers/redfish -run TestHabits"},
	},
	{
		Name: "ec2: a stop does not ask whether it may be sent", In: "providers/ec2.withPermit",
		Old: "if err := remote.MaySend(ctx); err != nil { ... }", New: "",
		Tests: []string{"./providers/ec2 -run TestEachAttemptAsks"},
	},
	{
		Name: "ec2: the SDK's retries do not ask", In: "providers/ec2.withPermit",
		Old: "smithy.After", New: "smithy.Before",
		Tests: []string{"./providers/ec2 -run TestEachAttemptAsks"},
	},
	{
		Name: "vsphere: a task does not ask whether it may be sent", In: "providers/vsphere.callAction",
		Old: "if err := remote.MaySend(ctx); err != nil { ... }", New: "",
		Tests: []string{"./providers/vsphere -run TestConformance/looked_up/asks"},
	},
	{
		Name: "ipmi: a command does not ask whether it may be sent", In: "providers/ipmi.session.sendCommand",
		Old: "if err := maySend(); err != nil { ... }", New: "",
		Tests: []string{"./providers/ipmi -run TestRetransmissionAsks"},
	},
	{
		Name: "ipmi: a refused command is tried on a new session", In: "providers/ipmi.Provider.withSession",
		Old: "errors.As(err, new(stopError))", New: "false",
		Tests: []string{"./providers/ipmi -run TestRefusalNeeds"},
	},
	{
		Name: "fenceagent: an agent is run without asking", In: "providers/fenceagent.runAgent",
		Old: "in.acts", New: "in.acts && false",
		Tests: []string{"./providers/fenceagent -run TestActAsks"},
	},
	{
		Name: "libvirt: a domain is destroyed without asking", In: "providers/libvirt.hypervisor.changePower",
		Old: "if err := remote.MaySend(ctx); err != nil { ... }", New: "",
		Tests: []string{"./providers/libvirt -run TestConformance/asks"},
	},
	{
		Name: "pdu: an outlet is switched without asking", In: "providers/pdu.link.Write",
		Old: "l.failure != nil", New: "false",
		Tests: []string{"./providers/pdu -run TestEachOutletAsks"},
	},
	{
		Name: "container: a kill does not ask whether it may be sent", In: "providers/container.Provider.PowerOff",
		Old: "remote.WithStill(ctx, still)", New: "ctx",
		Tests: []string{"./providers/container -run TestRefusedPowerAction"},
	},
	{
		Name: "power: a person's power-on does not look again", In: "cmd/internal/app.NodePower.recheckFence",
		Old: "if !on { ... }", New: "return nil", Tests: []string{"./cmd/forcefence -run TestPowerOnLooks"},
	},
	{
		Name: "batch: a target that is left out is off (2)", In: "providers.AskAll",
		Old: "if !answered { ... }", New: "if obs.At = got; !answered && err != nil { ... }",
	},
	{
		Name: "batch: another machine's answer counts (3)", In: "providers.AskAll",
		Old: "answers[i] = checkAnswer(by, t, sent, got, obs, cause)",
		New: `t.SystemUUID = ""; answers[i] = checkAnswer(by, t, sent, got, obs, cause)`,
	},
	{
		Name: "guard: one target fails its batch", In: "providers/limiter.Provider.askBatch",
		Old: "mayBeOneTarget(err)", New: "false",
	},
	{
		Name: "guard: a batch takes no turn", In: "providers/limiter.Provider.askBatch",
		Old: "func() string { return unit }", New: "func() string { return targets[0].Key() }",
	},
	{
		Name: "guard: a batch is of any size", In: "providers/limiter.Provider.States",
		Old: "slices.Chunk(of, most)", New: "slices.Chunk(of, max(most, len(of)))",
	},
	{
		Name: "guard: machines of one account have limits of their own", In: "providers/limiter.Provider.LimitGroup",
		Old: `l != ""`, New: "false",
	},
	{
		Name: "redfish: the UUID that is to be ignored is told", In: "providers/redfish.Provider.State",
		Old: "!p.cfg.IgnoreUUID", New: "true", Tests: redfishOptions,
	},
	{
		Name: "redfish: the UUID that is to be ignored leads to a system", In: "providers/redfish.Provider.runCall",
		Old: `t.SystemUUID = ""`, New: "", Tests: redfishOptions,
	},
	{
		Name: "redfish: any property that says sleep is passed over (2)", In: "providers/redfish.findSleepState",
		Old: "strings.EqualFold(s, name)", New: `s != ""`, Tests: redfishOptions,
	},
	{
		Name: "redfish: each question pays for the drill's", In: "providers/redfish.Provider.State",
		Old: "providers.IsDrill(ctx) && obs.State == providers.PowerOn", New: "obs.State == providers.PowerOn",
		Tests: redfishOptions,
	},
	{
		Name: "redfish: a server's own chassis is doubted", In: "providers/redfish.bmc.findDoubt",
		Old: `!slices.Contains([]word{"RackMount", "Blade", "Sled", "StandAlone"}, r.kind)`, New: "true",
		Tests: redfishOptions,
	},
	{
		Name: "redfish: the button of a machine that runs is pushed", In: "providers/redfish.bmc.mayPush",
		Old: "state != providers.PowerOff", New: "state > providers.PowerChanging", Tests: redfishOptions,
	},
	{
		Name: "redfish: the button is pushed by an old look", In: "providers/redfish.resetSystem",
		Old: "if words[i] == pushButton { ... }",
		New: `
			if words[i] == pushButton && s.PowerState != "Off" { ... }`, Tests: redfishOptions,
	},
	{
		Name: "redfish: the button is pushed again at once", In: "providers/redfish.bmc.mayPush",
		Old: "now.Sub(at) < pushPause", New: "now.Sub(at) < 0", Tests: redfishOptions,
	},
	{
		Name: "redfish: a push that was not sent counts", In: "providers/redfish.resetSystem",
		Old: "delete(b.pushed, s.path)", New: "", Tests: redfishOptions,
	},
	{
		Name: "config: a setting that takes a check away is not told", In: "cmd/internal/config.reader.warnOfCautions",
		Old: "!ok", New: "ok || !ok", Tests: []string{"./cmd/internal/config -run TestCautions"},
	},
	{
		Name: "drill: a device is asked as it is asked every day", In: "taint/drills.AskDevices",
		Old: "providers.ForDrill(ctx)", New: "ctx", Tests: []string{"./taint/drills -run TestDrillAsksForDoubts"},
	},
	{
		Name: "drill: what a device says of an Off to come is not told", In: "taint/view/drill.FindingOf",
		Old: `d.Answer.Doubt != ""`, New: "false", Tests: []string{"./taint/view/drill"},
	},
	{
		Name: "redfish: old TLS is spoken where nobody allowed it (12)", In: "providers/redfish.Config.allowCiphers",
		Old: "c.AllowOldTLS", New: "c.AllowOldTLS || true", Tests: []string{"./providers/redfish -run TestTrust"},
	},
	{
		Name: "redfish: a setting is advised that is set, and of no help", In: "providers/redfish.Config.tlsAdvice",
		Old: "case c.AllowRSAKeyExchange: ...", New: "", Tests: []string{"./providers/redfish -run TestTrust"},
	},
	{
		Name: "redfish: a certificate is not looked at (12)", In: "providers/redfish.Config.allowCiphers",
		Old: "if !c.AllowRSAKeyExchange { ... }", New: "if cfg.InsecureSkipVerify = true; !c.AllowRSAKeyExchange { " +
			"... }",
	},
	{
		Name: "remote: a password goes over the network in the clear (14)", In: "providers/remote.ParseHTTP",
		Old: `u.Scheme == "http" && !allowHTTP && !IsLoopback(u.Hostname())`, New: "false",
	},
	{
		Name: "remote: a refusal that came late is a time-out", In: "providers/remote.EnsureClass",
		Old: `class != "error" && class != "canceled" && class != "unreachable"`,
		New: `class != "error" && class != "canceled" && class != "unreachable" && ctx.Err() == nil`,
	},
	{
		Name: "guard: an error keeps its state (2)", In: "providers/limiter.Provider.State",
		Old: "obs.State = providers.PowerUnknown", New: "",
	},
	{
		Name: "guard: a device in use loses its limits", In: "providers/limiter.Provider.forgetIdleUnits",
		Old: "d.refs == 0", New: "true",
	},
	{
		Name: "guard: no deadline", In: "providers/limiter.Provider.withDeadline",
		Old: `context.WithTimeoutCause(ctx, l.opts.Timeout, fmt.Errorf("no answer within %s (%s)", l.opts.Timeout, l.opts.Setting))`,
		New: `context.WithTimeoutCause(ctx, 100*l.opts.Timeout, fmt.Errorf("no answer within %s (%s)", l.opts.Timeout, l.opts.Setting))`,
	},

	// EC2.
	{
		Name: "ec2: an instance is terminated without the option", In: "providers/ec2.Provider.PowerOff",
		Old: "p.cfg.Spot == spotTerminate", New: `p.cfg.Spot != "stop"`, Tests: ec2Spot,
	},
	{
		Name: "ec2: an instance is terminated without the tag", In: "providers/ec2.Provider.terminateUnstoppable",
		Old: "!s.hasTag(p.cfg.TerminateTag)", New: "false", Tests: ec2Spot,
	},
	{
		Name: "ec2: any value of the tag will do", In: "providers/ec2.instanceAnswer.hasTag",
		Old: "aws.ToString(t.Key) == key && aws.ToString(t.Value) == value",
		New: `aws.ToString(t.Key) == key && value != ""`, Tests: ec2Spot,
	},
	{
		Name: "ec2: the tag of an old look counts", In: "providers/ec2.Provider.terminateUnstoppable",
		Old: "s := p.askRegions(ctx, []question{q})[q.id]", New: "s := first", Tests: ec2Spot,
	},
	{
		Name: "ec2: an instance that can be stopped is terminated (1)",
		In:   "providers/ec2.Provider.terminateUnstoppable",
		Old:  `first.InstanceLifecycle != types.InstanceLifecycleTypeSpot || id == ""`, New: "false", Tests: ec2Spot,
	},
	{
		Name: "ec2: an instance that can be stopped is terminated (2)",
		In:   "providers/ec2.Provider.terminateUnstoppable",
		Old:  "r.Type != types.SpotInstanceTypeOneTime", New: `r.Type == ""`, Tests: ec2Spot,
	},
	{
		Name: "ec2: another machine is terminated (3)", In: "providers/ec2.Provider.terminateUnstoppable",
		Old: "if err := q.VerifyIdentity(providers.Observation{Addresses: s.privateAddresses()}); err != nil { ... }",
		New: "", Tests: ec2Spot,
	},
	{
		Name: "ec2: an instance of another zone is terminated (3)", In: "providers/ec2.Provider.terminateUnstoppable",
		Old: "zoneOf(s) != q.zone", New: "false", Tests: ec2Spot,
	},
	{
		Name: "ec2: another launch is terminated", In: "providers/ec2.Provider.terminateUnstoppable",
		Old: "!s.launchTime().Equal(first.launchTime())", New: "false", Tests: ec2Spot,
	},
	{
		Name:  "ec2: a termination does not ask whether it may be sent",
		In:    "providers/ec2.Provider.terminateUnstoppable",
		Old:   "&ec2.TerminateInstancesInput{InstanceIds: []string{q.id}, SkipOsShutdown: aws.Bool(true)}, withPermit",
		New:   "&ec2.TerminateInstancesInput{InstanceIds: []string{q.id}, SkipOsShutdown: aws.Bool(true)}",
		Tests: ec2Spot,
	},
	{
		Name: "ec2: what the market hibernated is off (2)", In: "providers/ec2.instanceAnswer.stoppedByMarket",
		Old:   "s.request.InstanceInterruptionBehavior == types.InstanceInterruptionBehaviorStop",
		New:   `s.request.InstanceInterruptionBehavior != ""`,
		Tests: ec2Spot,
	},
	{
		Name: "ec2: whatever the reason, the market stopped it (2)", In: "providers/ec2.instanceAnswer.savedReason",
		Old: "!s.stoppedByMarket()", New: "false", Tests: ec2Spot,
	},
	{
		Name: "ec2: an answer serves for two Offs (2)", In: "providers/ec2.Provider.takeFirst",
		Old: "delete(p.firsts, id)", New: "", Tests: ec2Spot,
	},
	{
		Name: "ec2: two answers of one moment prove (2)", In: "providers/ec2.Provider.takeFirst",
		Old: "now.Sub(s.at) >= p.cfg.Agree", New: "now.Sub(s.at) >= 0", Tests: ec2Spot,
	},
	{
		Name: "ec2: an answer waits for its second for ever (2)", In: "providers/ec2.Provider.takeFirst",
		Old: "providers.InstantOf(s.at).Age(providers.InstantOf(now)) <= firstFor", New: "true", Tests: ec2Spot,
	},
	{
		Name: "ec2: two answers of two stops prove across calls (2)", In: "providers/ec2.Provider.States",
		Old: "obs, err = p.confirmStopped(q, first, seen[q.id])",
		New: "_ = first", Tests: ec2Spot,
	},
	{
		Name: "ec2: a slow API never gets its second answer", In: "providers/ec2.Provider.takeFirst",
		Old: "s, ok = p.firsts[id]", New: "", Tests: ec2Spot,
	},
	{
		Name: "ec2: stopping is off (2)", In: "providers/ec2.powerState",
		Old: `
			case stopped, terminated: ...
			case pending, stopping, shuttingDown: ...`,
		New: `
			case stopped, terminated, stopping: ...
			case pending, shuttingDown: ...`,
	},
	{
		Name: "ec2: a word nobody knows is off (2)", In: "providers/ec2.powerState",
		Old: "providers.PowerUnknown", New: "providers.PowerOff",
	},
	{
		Name: "ec2: one answer of stopped is off (1)", In: "providers/ec2.Provider.evaluateFirst",
		Old: "return obs, true, nil", New: "return obs, false, nil",
	},
	{
		Name: "ec2: two answers of two stops agree (1)", In: "providers/ec2.Provider.confirmStopped",
		Old: "second.transitionReason() != first.transitionReason()", New: "false",
	},
	{
		Name: "ec2: two answers for two reasons agree (1)", In: "providers/ec2.Provider.confirmStopped",
		Old: "second.reasonCode() != first.reasonCode()", New: "false",
	},
	{
		Name: "ec2: two answers of two launches agree (1)", In: "providers/ec2.Provider.confirmStopped",
		Old: "!second.launchTime().Equal(first.launchTime())", New: "false",
	},
	{
		Name: "ec2: two answers follow at once (1)", In: "providers/ec2.Provider.waitAgree",
		Old: "remote.SleepContext(ctx, p.cfg.Agree)", New: "remote.SleepContext(ctx, 0)",
	},
	{
		Name: "ec2: the answer's arrival is its time (1)", In: "providers/ec2.Provider.describeInstances",
		Old: "s := instanceAnswer{Instance: i, at: at}", New: "at = p.opts.Now(); s := instanceAnswer{Instance: i, " +
			"at: at}",
	},
	{
		Name: "ec2: a hibernated instance is off (2)", In: "providers/ec2.instanceAnswer.savedReason",
		Old: `s.reasonCode() == "Client.UserInitiatedHibernate"`, New: "false",
	},
	{
		Name: "ec2: an instance that may be hibernated is off (2)", In: "providers/ec2.instanceAnswer.savedReason",
		Old: "s.HibernationOptions == nil || s.HibernationOptions.Configured == nil || " +
			"*s.HibernationOptions.Configured", New: "false",
	},
	{
		Name: "ec2: the market hibernates nobody (2)", In: "providers/ec2.instanceAnswer.savedReason",
		Old: "s.InstanceLifecycle == types.InstanceLifecycleTypeSpot", New: "false",
	},
	{
		Name: "ec2: a stop without a time counts (2)", In: "providers/ec2.instanceAnswer.findContradiction",
		Old: "!hasTime && !s.launchTime().Equal(ran)", New: "false",
	},
	{
		Name: "ec2: a stop before the launch counts (2)", In: "providers/ec2.instanceAnswer.findContradiction",
		Old: "at.Before(s.launchTime().Truncate(time.Second))", New: "false",
	},
	{
		Name: "ec2: a stop before a launch that was seen counts (1)",
		In:   "providers/ec2.instanceAnswer.findContradiction",
		Old:  "s.launchTime().Before(ran)", New: "false",
	},
	{
		Name: "ec2: a stop long before the node was heard counts (1)",
		In:   "providers/ec2.instanceAnswer.findContradiction",
		Old:  "!heard.IsZero() && at.Before(heard.Add(-stoppedWithin))", New: "false",
	},
	{
		Name: "ec2: no launch contradicts nothing (2)", In: "providers/ec2.instanceAnswer.findContradiction",
		Old: "s.launchTime().IsZero()", New: "false",
	},
	{
		Name: "ec2: an instance goes under the IDs of two zones (14)", In: "providers/ec2.Provider.evaluateFirst",
		Old: "zone != q.zone", New: "false",
	},
	{
		Name: "ec2: an instance without an address is anybody's (3)", In: "providers/ec2.Provider.evaluateFirst",
		Old: `obs.Addresses == ""`, New: "false",
	},
	{
		Name: "ec2: the launch is not remembered (1)", In: "providers/ec2.Provider.rememberLaunch",
		Old: "launch.After(p.lastLaunches[id])", New: "false",
	},
	{
		Name: "ec2: a missing instance fails its batch", In: "providers/ec2.Provider.askRegion",
		Old: "errors.Is(err, providers.ErrNotFound)", New: "false",
	},
	{
		Name: "ec2: an impaired zone fails its batch", In: "providers/ec2.Provider.askRegion",
		Old: "len(zones) > 1 && !isThrottled(err)", New: "false",
	},
	{
		Name: "ec2: a zone that hangs takes all the time", In: "providers/ec2.Provider.askRegion",
		Old: "time.Until(end)/3", New: "time.Until(end)",
	},
	{
		Name: "ec2: an instance that is left out of an answer is none's error (2)",
		In:   "providers/ec2.failAll",
		Old:  "all[i.id] = instanceAnswer{err: err}", New: "all[i.id] = instanceAnswer{}",
	},
	{
		Name: "ec2: a guest that hangs keeps its instance from a stop", In: "providers/ec2.Provider.PowerOff",
		Old: "SkipOsShutdown: aws.Bool(true)", New: "SkipOsShutdown: aws.Bool(false)",
	},
	{
		Name: "ec2: a start resumes what was hibernated", In: "providers/ec2.Provider.PowerOn",
		Old: `s.stateName() == stopped && s.savedReason() != ""`, New: "false",
	},
	{
		Name: "ec2: a refusal tells who we are (12)", In: "providers/ec2.explainError",
		Old: "!errors.Is(class, providers.ErrDenied)", New: "true",
	},
	{
		Name: "ec2: credentials that never come are waited for ever", In: "providers/ec2.New", Tests: ec2Credentials,
		Old: "awshttp.NewBuildableClient().WithTimeout(answerTime)", New: "awshttp.NewBuildableClient()",
	},
	{
		Name: "ec2: a role that is never given is waited for ever", In: "providers/ec2.New", Tests: ec2Credentials,
		Old: "Timeout: answerTime", New: "",
	},
	{
		Name: "ec2: all calls share one connection, which hangs", In: "providers/ec2.New", Tests: ec2Credentials,
		Old: "p.transport.ForceAttemptHTTP2, p.transport.TLSNextProto = false, nil", New: "",
	},
	{
		Name: "ec2: another cloud's ID is an instance's (14)", In: "providers/ec2.parseID",
		Old: "if m == nil { ... }", New: `if m == nil { return instance{"eu-west-1a", "i-0123456789abcdef0"}, nil }`,
	},
	{
		Name: "ec2: a node gets another instance (14)", In: "taint.DecideMachine",
		Old: `v.Pin != "" && v.Claimed && v.Fixed && id != v.Machine.idPin()`, New: "false",
	},
	{
		Name: "ec2: an address in common is not enough", In: "providers.Target.checkMachine",
		Old: `obs.Addresses == ""`, New: "true",
	},
	{
		Name: "ec2: another machine's address is the node's (3)", In: "providers.Target.checkMachine",
		Old: `obs.Addresses != "" && !t.Addresses.HasAnyOf(obs.Addresses)`, New: "false",
	},
	{
		Name: "ec2: a device that tells nothing identifies a claimed machine (14)",
		In:   "providers.Target.VerifyIdentity",
		Old:  `o.Addresses != ""`, New: "true",
	},
	{
		Name: "ec2: the first sight of a Lease is a heartbeat", In: "taint/decide/fleet.Fleet.ApplyLease",
		Old: `if n.rv != "" { ... }`, New: "n.beat = now",
	},
	{
		Name: "ec2: devices are not told when a node was heard (1)", In: "taint/machine.Machine.WithHeardAt",
		Old: "m.Target.Heard = at", New: "", Tests: glue,
	},
	{
		Name: "ec2: a cached Node has no addresses", In: "taint/controller.slimNode",
		Old: "Addresses: n.Status.Addresses,", New: "", Tests: glue,
	},
	{
		Name: "ec2: a rule of instances forgets that they are for good (14)", In: "cmd/internal/config.Source.machine",
		Old: "Fixed: s.whole,", New: "", Tests: wiring,
	},

	// Redfish.
	{
		Name: "redfish: PoweringOff is off (2)", In: "providers/redfish.powerState",
		Old: `
			case "Off": ...
			case "PoweringOn", "PoweringOff": ...`,
		New: `
			case "Off", "PoweringOff": ...
			case "PoweringOn": ...`,
	},
	{
		Name: "redfish: a word nobody knows is off (2)", In: "providers/redfish.powerState",
		Old: "providers.PowerUnknown", New: "providers.PowerOff",
	},
	{
		Name: "redfish: a machine whose chassis cannot be read is not told (3)", In: "providers/redfish.Provider.State",
		Old: "obs.State, obs.Raw, err = b.readPower(ctx, s)",
		New: `
			if obs.State, obs.Raw, err = b.readPower(ctx, s); err != nil {
				obs.SystemUUID = ""
			}`,
		Tests: redfishLookUps,
	},
	{
		Name: "redfish: a chassis that is On does not contradict (2)", In: "providers/redfish.bmc.readPower",
		Old: `r.word != "" && r.word != "Off"`, New: "false",
	},
	{
		Name: "redfish: a system that moved while it was looked up speaks (3)", In: "providers/redfish.bmc.findSystem",
		Old: "!at.matchesTarget(s, w, t)", New: "false", Tests: redfishLookUps,
	},
	{
		Name: "redfish: what a look-up saw before the question is its answer (1)",
		In:   "providers/redfish.bmc.findSystem",
		Old:  "s.asked.Before(began)", New: "s.asked.Before(began) && false", Tests: redfishLookUps,
	},
	{
		Name: "redfish: a BMC's only system speaks for any machine (3)",
		In:   "providers/redfish.systemPlace.matchesTarget",
		Old:  "providers.SameMachine(t.SystemUUID, s.UUID) == nil", New: "true", Tests: redfishLookUps,
	},
	{
		Name: "redfish: a chassis linked from elsewhere is off (2)", In: "providers/redfish.bmc.readRail",
		Old: `path == ""`, New: "false", Tests: redfishLookUps,
	},
	{
		Name: "redfish: a chassis linked from elsewhere is passed over (2)", In: "providers/redfish.bmc.chassisOf",
		Old:   "if path, ok := b.localPath(l); !ok { ... } else if !slices.Contains(paths, path) { ... }",
		New:   "if path, ok := b.localPath(l); ok && !slices.Contains(paths, path) { paths = append(paths, path) }",
		Tests: redfishLookUps,
	},
	{
		Name: "redfish: a chassis' answer may be older than the question (1)", In: "providers/redfish.bmc.readSystem",
		Old: "r.asked.Before(s.asked)", New: "false", Tests: redfishLookUps,
	},
	{
		Name: "redfish: a chassis that cannot be read is off (2)", In: "providers/redfish.bmc.readPower",
		Old: "r.err != nil", New: "false",
	},
	{
		Name: "redfish: a part in a list that sleeps is off (2)", In: "providers/redfish.findSleepState",
		Old: "objects = objects[:len(objects)-1]", New: "return ``",
		Tests: []string{"./providers/redfish -run TestAsleep"},
	},
	{
		Name: "redfish: a word in a list is a state", In: "providers/redfish.findSleepState",
		Old:   `name, isName = "", len(objects) > 0 && objects[len(objects)-1]`,
		New:   "isName = len(objects) > 0 && objects[len(objects)-1]",
		Tests: []string{"./providers/redfish -run TestAsleep"},
	},
	{
		Name: "redfish: a look at all systems starts a goroutine for each", In: "providers/redfish.bmc.readAll",
		Old: "min(len(paths), maxRequests)", New: "len(paths)", Tests: floodOfMany,
	},
	{
		Name: "redfish: whatever a system says is kept", In: "providers/redfish.bmc.readOne",
		Old: "s.clipFields()", New: "", Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: more of a scan is kept than who the systems are", In: "providers/redfish.bmc.scanSystems",
		Old: "all.identitiesOnly()", New: "all", Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: a scan is kept beside what is kept of it", In: "providers/redfish.bmc.scanSystems",
		Old: "b.scanned, b.pendingScan = all.identitiesOnly(), nil", New: "b.scanned = all.identitiesOnly()",
		Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: a list of systems may have any length", In: "providers/redfish.links.UnmarshalJSON",
		Old: "len(*l) <= maxSystems", New: "len(*l) >= 0", Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: a list of systems that was cut off is whole", In: "providers/redfish.bmc.listMembers",
		Old: "len(page.Members) > maxSystems || len(paths) > maxSystems", New: "len(paths) > 2*maxSystems",
		Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: chassis that were not looked at are off (2)", In: "providers/redfish.system.clipFields",
		Old: "if len(s.Links.Chassis) > maxSystems { ... }", New: "", Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: the same chassis many times hides another (2)", In: "providers/redfish.system.clipFields",
		Old: "len(chassis) <= maxChassis", New: "len(chassis) < maxChassis", Tests: floodsOfRedfish,
	},
	{
		Name: "redfish: a report's events are read however many they are",
		In:   "providers/redfish.eventRecords.UnmarshalJSON",
		Old:  "len(*r) > eventBurst", New: "false", Tests: floodsOfRedfish,
	},
	{
		Name: "remote: a task's device is not in use", In: "providers/remote.BeginTask",
		Old: "d.users++", New: "", Tests: poolTests,
	},
	{
		Name: "remote: a task begins after Close", In: "providers/remote.BeginTask",
		Old: "if p.closed { ... }", New: "", Tests: poolTests,
	},
	{
		Name: "remote: a header of any length is read", In: "providers/remote.Trust.NewTransport",
		Old: "MaxResponseHeaderBytes: MaxHeader,", New: "", Tests: floodOfAnswers,
	},
	{
		Name: "remote: a body of any length is read", In: "providers/remote.limitedBody.Read",
		Old: "b.left.Bytes < 0", New: "false", Tests: floodOfAnswers,
	},
	{
		Name: "remote: a document may have any number of values", In: "providers/remote.limitedBody.Read",
		Old: "b.left.Values < 0", New: "false", Tests: floodOfInstances,
	},
	{
		Name: "ec2: a header of any length is read", In: "providers/ec2.boundHeader",
		Old: "t.MaxResponseHeaderBytes = remote.MaxHeader", New: "", Tests: floodOfInstances,
	},
	{
		Name: "ec2: an answer of any size is read", In: "providers/ec2.New",
		Old: "boundedAnswers{bufferedBody{p.transport}}", New: "bufferedBody{p.transport}", Tests: floodOfInstances,
	},
	{
		Name: "suite: any amount of memory is within the budget", In: "providers/providertest.withinBudget",
		Old: "most.heap-before.heap > o.Memory", New: "false", Tests: budgetLiars,
	},
	{
		Name: "suite: what is kept is within the budget", In: "providers/providertest.withinBudget",
		Old: "after.heap-before.heap > o.Kept", New: "false", Tests: budgetLiars,
	},
	{
		Name: "suite: any number of goroutines is within the budget", In: "providers/providertest.withinBudget",
		Old: "most.goroutines-before.goroutines > o.Goroutines", New: "false", Tests: budgetLiars,
	},
	{
		Name: "suite: a flood may be off", In: "providers/providertest.callFlooded",
		Old: "a.State == providers.PowerOff && b.Running()", New: "a.State == providers.PowerOff && !b.Running()",
		Tests: budgetLiars,
	},
	{
		Name: "redfish: a machine that sleeps is off (2)", In: "providers/redfish.bmc.readPower",
		Old: `s.sleep != ""`, New: "false",
	},
	{
		Name: "redfish: PoweringOff is powered off already", In: "providers/redfish.resetSystem",
		Old: "if s.PowerState == there { ... }",
		New: `
			if s.PowerState == underWay {
				return nil
			}
			if s.PowerState == there { ... }`,
	},
	{
		Name: "redfish: another machine at a remembered place speaks (3)", In: "providers/redfish.bmc.findSystem",
		Old: "err == nil && at.matchesTarget(s, w, t)", New: "err == nil",
	},
	{
		Name: "redfish: events of any address are taken", In: "providers/redfish.eventServer.admitConn",
		Old: "slices.Contains(g.addrs, from)", New: "slices.Contains(g.addrs, from) || from.IsValid()",
		Tests: redfishEvents,
	},
	{
		Name: "redfish: a BMC speaks in another's name", In: "providers/redfish.eventServer.ServeHTTP",
		Old: "slices.Contains(g.addrs, from)", New: "slices.Contains(g.addrs, from) || from.IsValid()",
		Tests: redfishEvents,
	},
	{
		Name: "redfish: the path of events can be guessed", In: "providers/redfish.eventServer.addSubscription",
		Old: "rand.Text()", New: "rand.Text()[:2]", Tests: redfishEvents,
	},
	{
		Name: "redfish: an event may be of any size", In: "providers/redfish.eventServer.ServeHTTP",
		Old: "http.MaxBytesReader(w, r.Body, maxEvent)", New: "http.MaxBytesReader(w, r.Body, maxEvent<<10)",
		Tests: redfishEvents,
	},
	{
		Name: "redfish: a line may be of any length", In: "providers/redfish.stream.readLine",
		Old: "len(s.line) >= maxEvent", New: "len(s.line) >= maxEvent<<10", Tests: redfishEvents,
	},
	{
		Name: "redfish: an event of many lines may be of any size", In: "providers/redfish.stream.nextEvent",
		Old: "len(s.data) > maxEvent", New: "len(s.data) > maxEvent<<10", Tests: redfishEvents,
	},
	{
		Name: "redfish: as many events as come are read", In: "providers/redfish.eventLimiter.takeOne",
		Old: "over > 0", New: "over > 0 && false", Tests: redfishEvents,
	},
	{
		Name: "redfish: a flood keeps its connection", In: "providers/redfish.eventServer.ServeHTTP",
		Old: "g.l.limiter.takeOne(time.Now()) > 0", New: "g.l.limiter.takeOne(time.Now()) > time.Hour",
		Tests: redfishEvents,
	},
	{
		Name: "redfish: one BMC takes all connections", In: "providers/redfish.eventServer.admitConn",
		Old: "d.opened >= maxConns || d.open[from] >= bmcs*maxConnsEach", New: "d.opened >= maxConns",
		Tests: redfishEvents,
	},
	{
		Name: "redfish: the stream may be another host's", In: "providers/redfish.listener.openStream",
		Old: "case !ok: ...", New: "case !ok && false: ...", Tests: redfishEvents,
	},
	{
		Name: "redfish: a packed stream is read", In: "providers/redfish.bmc.openEvents",
		Old: `encoding != "" && encoding != "identity"`, New: `encoding == "none"`, Tests: redfishEvents,
	},
	{
		Name: "redfish: others' subscriptions are deleted", In: "providers/redfish.eventServer.ownPath",
		Old: "s.Context != d.context", New: "s.Context == ``", Tests: redfishEvents,
	},
	{
		Name: "redfish: another installation's subscriptions are deleted", In: "providers/redfish.eventServer.ownPath",
		Old: `u.Scheme+"://"+host == d.origin`, New: `u.Scheme+"://"+host != ""`, Tests: redfishEvents,
	},
	{
		Name: "redfish: a watch deletes another's subscription", In: "providers/redfish.listener.createSubscription",
		Old: "(left == g.path || !l.eventServer.hasSubscription(left))", New: "left != ``", Tests: redfishEvents,
	},
	{
		Name: "redfish: what happened before the events is told to nobody",
		In:   "providers/redfish.listener.reportBegun",
		Old:  "l.asker.AskSoon(l.all...)", New: "_ = l.all", Tests: redfishEvents,
	},
	{
		Name: "redfish: a part that lost its power is the system", In: "providers/redfish.listener.handleEvent",
		Old: "known && (exact || whole && len(l.all) == 1)", New: "known || exact && whole", Tests: redfishEvents,
	},
	{
		Name: "remote: a device that says Off without end is told without end",
		In:   "providers/remote.Asker.ReportState",
		Old:  "now.Sub(r.reportedAt) < askEvery", New: "now.Sub(r.reportedAt) < 0",
	},
	{
		Name: "remote: an answer that comes after its event is missed", In: "providers/remote.Asker.askAndReport",
		Old: "(err != nil || runs) && r.questionsLeft > 0", New: "err != nil && runs && r.questionsLeft > 0",
	},
	{
		Name: "remote: any certificate will do (12)", In: "providers/remote.Trust.ClientConfig",
		Old: "slices.Contains(own, sum), len(own) == 0 && slices.Contains(any, sum)",
		New: "slices.Contains(any, sum) || len(sum) > 0",
	},
	{
		Name: "remote: an authority that was taken out of its file is believed (12)",
		In:   "providers/remote.Trust.loadRoots",
		Old:  "kept.sum == sum", New: "kept.roots != nil",
	},
	{
		Name: "remote: an authority may replace a host's fingerprint (12)", In: "providers/remote.Trust.ClientConfig",
		Old: "case len(own) > 0: ...", New: "case false: ...",
	},
	{
		Name: "redfish: a wrong password is sent again", In: "providers/redfish.Provider.openLogin",
		Old: "if err := p.refusals.CheckRefused(b.String(), l.sum, p.opts.Now()); err != nil { ... }",
		New: "if err := p.refusals.CheckRefused(b.String(), l.sum, p.opts.Now()); false { ... }",
	},
	{
		Name: "redfish: a BMC that has no session left and takes no basic locks a right password out",
		In:   "providers/redfish.bmc.handleUnauthorized",
		Old:  `l.token == "" && l.noSessionErr != nil && !l.proven`, New: "false",
		Tests: []string{"./providers/redfish -run TestNoSessionLeft"},
	},
	{
		Name: "redfish: basic authentication that was refused is sent again",
		In:   "providers/redfish.Provider.openLogin",
		Old:  "p.opts.Now().Before(b.noBasic.until)", New: "p.opts.Now().After(b.noBasic.until)",
		Tests: []string{"./providers/redfish -run TestNoSessionLeft"},
	},
	{
		Name: "redfish: a wrong password that is answered with 400 is sent again", In: "providers/redfish.hasNoSlot",
		Old: "code == http.StatusConflict", New: "code >= 400",
		Tests: []string{"./providers/redfish -run TestBothWaysAreRefused"},
	},
	{
		Name: "redfish: a log-in ends with the call that began it", In: "providers/redfish.bmc.loggedIn",
		Old: "b.p.pool.Ending", New: "ctx",
	},

	// The operator's commands.
	{
		Name: "commands: the settings of a shared block are not told", In: "providers/all.fieldsOf",
		Old: "out = append(out, fieldsOf(prefix, v.Field(i))...)", New: "out = append(out)",
	},
	{
		Name: "commands: a default is not told", In: "providers/all.defaultText",
		Old: "v.IsZero() || v.Kind() == reflect.Struct", New: "true",
	},
	{
		Name: "redfish: a refused log-in of others is the network's", In: "providers/redfish.bmc.loggedIn",
		Old: "if l, err = t.Wait(ctx); err == nil || !joined || ctx.Err() != nil { ... }",
		New: `
			if l, err = t.Wait(ctx); err == nil || !joined || ctx.Err() != nil { ... }
			err = context.DeadlineExceeded`,
	},

	// container.
	{
		Name: "container: a paused container is off (2)", In: "providers/container.inspected.powerState",
		Old: `case "running", "paused", "restarting": ...`,
		New: `case "paused": return providers.PowerOff, raw; case "running", "restarting": return providers.PowerOn, raw`,
	},
	{
		Name: "app: a part that fails leaves providers open", In: "cmd/internal/app.process.closeParts",
		Old: "closePart()", New: "_ = closePart", Tests: []string{"./cmd/internal/app -run TestRunClosesItsParts"},
	},
	{
		Name: "app: a rejected configuration is not reported", In: "cmd/internal/app.configs.refuseChange",
		Old: "p.report != nil", New: "false",
	},
	{
		Name: "cmd: a pause where no controller runs", In: "cmd/forcefence.pauser.configMap",
		Old: "!slices.ContainsFunc(all, func(l leader) bool { return l.Namespace == namespace })",
		New: "false && slices.Contains([]string{}, namespace)",
	},
	{
		Name: "power: a person powers a machine on in the middle of its fence",
		In:   "cmd/internal/app.Session.ReadNodePower",
		Old:  "case l.Record.IsOpen(): ...", New: "", Tests: []string{"./cmd/forcefence -short -run TestPower"},
	},
	{
		Name: "cmd: resume ends a pause that it did not read", In: "cmd/forcefence.pauser.removePause",
		Old: "client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}", New: "client.Preconditions{}",
		Tests: []string{"./cmd/forcefence -short -run TestResumeEnds"},
	},
	{
		Name: "cmd: a node's pause is written over another", In: "cmd/forcefence.pauser.updateNode",
		Old:   "client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})",
		New:   "client.MergeFrom(before)",
		Tests: []string{"./cmd/forcefence -short -run TestResumeEnds"},
	},
	{
		Name: "cmd: a confirmation is written on a node that changed", In: "cmd/forcefence.confirmOff",
		Old:   "client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})",
		New:   "client.MergeFrom(before)",
		Tests: []string{"./cmd/forcefence -short -run TestConfirmationIs"},
	},
	{
		Name: "cmd: an unknown command of a command passes", In: "cmd/forcefence.refuseUnknown",
		Old: "len(args) == 0", New: "true", Tests: []string{"./cmd/forcefence -run TestCheckConfig"},
	},
	{
		Name: "cmd: a bundle of nothing", In: "cmd/forcefence.supportBundle.collectFiles",
		Old: "err != nil && !errors.As(err, &answered)", New: "err != nil && errors.As(err, &answered)",
		Tests: []string{"./cmd/forcefence -run TestBundle"},
	},
	{
		Name: "policy: storage-fences of Longhorn's driver", In: "taint/decide/policy.UnfencedDriver",
		Old: "!p.Fences && slices.Contains(drivers, d)", New: "false",
		Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "config: attachments that stay for six minutes are not warned of",
		In:   "cmd/internal/config.policyCheck.warnOfAttached",
		Old:  "!slices.ContainsFunc(rules, func(r policy.Policy) bool { return r.Detach })", New: "false",
		Tests: []string{"./cmd/internal/config -run TestWarnings"},
	},
	{
		Name: "drain: a mode that begins nothing keeps its budgets", In: "taint/drainguard/drain.View.policyOn",
		Old: "n.Withdrawn", New: "false",
	},
	{
		Name: "drain: a pause lets guards begin", In: "taint/drainguard.Controller.keepGuard",
		Old: "a.Do.CanBePaused() && k.leftAlone(ctx, name)", New: "false",
		Tests: []string{"./taint/drainguard -run TestPausedAndDisabled"},
	},
	{
		Name: "drain: a pause lets a setting be written", In: "taint/drainguard.Controller.delegatePolicy",
		Old: `!k.MayBegin(&corev1.Node{}) || k.leftAlone(ctx, "")`, New: "false && k.MayBegin(&corev1.Node{})",
		Tests: []string{"./taint/drainguard -run TestSetting"},
	},
	{
		Name: "tally: harm is played again", In: "test/tally.unsafeOutput",
		Old: "kit.HarmPrefix", New: `kit.HarmPrefix + "?"`,
	},
	{
		Name: "tally: a story that did not run alone is flaky", In: "test/tally.tally.retryStories",
		Old: "again.ran(s)", New: "true",
	},
	{
		Name: "tally: any number of stories is played again", In: "test/tally.tally.retryStories",
		Old: "len(t.failed) > maxStories", New: "false",
	},
	{
		Name: "tally: unit tests are played again", In: "test/tally.tally.endPackage",
		Old: `!slices.Contains(strings.Split(t.stories, ","), strings.TrimPrefix(end.Package, module))`, New: "false",
	},
	{
		Name: "container: one that is started again is off (2)", In: "providers/container.inspected.powerState",
		Old: `case "removing", "stopping", "stopped": ...`,
		New: `case "removing", "stopping", "stopped": return providers.PowerOff, raw`,
	},
	{
		Name: "container: a word that nobody knows is off (2)", In: "providers/container.inspected.powerState",
		Old: "default: ...", New: "default: return providers.PowerOff, raw",
	},
	{
		Name: "container: a doubtful end is off (2)", In: "providers/container.inspected.powerState",
		Old: `if doubt := c.findDoubt(); doubt != "" { ... }`, New: `if doubt := c.findDoubt(); false { _ = doubt }`,
	},
	{
		Name: "container: flags may disagree (2)", In: "providers/container.inspected.findDoubt",
		Old: "is(s.Running), is(s.Paused), is(s.Restarting), is(s.Dead)",
		New: "is(s.Paused), is(s.Restarting), is(s.Dead)",
	},
	{
		Name: "container: what is not told is well (2)", In: "providers/container.inspected.findDoubt",
		Old: "b == nil || *b", New: "b != nil && *b",
	},
	{
		Name: "container: a process is no doubt (2)", In: "providers/container.inspected.findDoubt",
		Old: "*s.Pid != 0", New: "false",
	},
	{
		Name: "container: an end that the engine did not see (F38)", In: "providers/container.inspected.findDoubt",
		Old: "*s.ExitCode == lostExitCode", New: "false",
	},
	{
		Name: "container: another's process namespace (2)", In: "providers/container.inspected.findDoubt",
		Old: `c.HostConfig.PidMode == nil || *c.HostConfig.PidMode != "" && *c.HostConfig.PidMode != "private"`,
		New: "false",
	},
	{
		Name: "container: the beginning of another's ID (3)", In: "providers/container.Provider.inspectContainer",
		Old: `strings.TrimPrefix(c.Name, "/") != t.ID`, New: "false",
	},
	{
		Name: "container: a path for a name (3)", In: "providers/container.Provider.inspectContainer",
		Old: "!containerName.MatchString(t.ID)", New: "false",
	},
	{
		Name: "container: an answer that is no container's", In: "providers/container.Provider.inspectContainer",
		Old: "!containerID.MatchString(c.ID)", New: "len(c.ID) < 12",
	},
	{
		Name: "container: a name is acted on", In: "providers/container.Provider.sendAction",
		Old: `"/containers/" + c.ID + "/" + verb`, New: `"/containers/" + t.ID + "/" + verb`,
	},
	{
		Name: "container: another that has the name now is off (3)", In: "providers/container.Provider.sendAction",
		Old: "again.ID == c.ID", New: "again.ID != \"\"",
	},
	{
		Name: "container: one that was lost is started once more", In: "providers/container.Provider.PowerOn",
		Old: "case providers.PowerUnknown: ...", New: "case providers.PowerChanging: _ = raw",
	},
	{
		Name: "container: any answer is a success", In: "providers/container.Provider.callEngine",
		Old: "(status == http.StatusNoContent || status == http.StatusNotModified)", New: "status < 500",
	},
	{
		Name: "container: the body of an error is an answer (2)", In: "providers/container.Provider.callEngine",
		Old: "method == http.MethodPost || status != http.StatusOK", New: "method == http.MethodPost",
	},
	{
		Name: "container: what was missed is not told", In: "providers/container.watch.lookOver",
		Old: "down[i] && !was", New: "was && !down[i]",
	},
	{
		Name: "container: the event of a network is a container's", In: "providers/container.event.powerState",
		Old: `e.Type != "container"`, New: "false",
	},
	{
		Name: "container: a start is not asked about: the boot id accuses", In: "taint/decide/proof.WasNeverOff",
		Old: `r.Run == ""`, New: "true",
	},
	{
		Name: "container: a device that contradicts itself is believed", In: "taint/decide/fence.View.explainReturn",
		Old: "now == v.Look.Record.Run", New: "false",
	},
	{
		Name: "container: no answer is a start", In: "taint/decide/fence.View.explainReturn",
		Old: `now != ""`, New: "true",
	},
	{
		Name: "container: the same boot is not explained", In: "taint/decide/fence.View.decideByRecord",
		Old: "v.Facts.Mode != Disabled && needsExplanation(v.Look)", New: "false",
	},
	{
		Name: "container: a start is asked about for ever", In: "taint/decide.Node.IsIdle",
		Old: `r.Restart != ""`, New: "false",
	},
	{
		Name: "container: the run of before stands in the record", In: "taint/decide/evict.View.decideArmed",
		Old: `run != ""`, New: "false",
	},
	{
		Name: "after: what is on before its mark is confirmed is still off by our power-off",
		In:   "taint/decide/evict.View.decideArmed",
		Old:  "v.Answers.Answer.State == providers.PowerOn", New: "false",
	},
	{
		Name: "after: what was started since our power-off is still off by it",
		In:   "taint/decide/evict.View.decideArmed",
		Old:  "begun.Run != run", New: "false",
	},
	{
		Name: "after: a run that was told late is a start", In: "taint/decide/evict.View.decideArmed",
		Old: `begun.Run != ""`, New: "true",
	},
	{
		Name: "container: a mark knows no run", In: "taint/decide/fence.View.newRecord",
		Old: "r.Run, r.RunBy = v.Answers.MachineRun()", New: `r.Run, r.RunBy = "", ""`,
	},
	{
		Name: "container: any of several devices tells which run goes on", In: "taint/decide/proof.Answers.RunNow",
		Old: "s.device.Name == r.RunBy", New: `s.answer.Run != ""`,
	},
	{
		Name: "container: a confirmation without a run forgets the mark's", In: "taint/decide/evict.View.decideArmed",
		Old: `run != ""`, New: "true",
	},
	{
		Name: "container: another machine tells the run (3)", In: "providers.checkAnswer",
		Old: `a.Err != nil`, New: "false",
	},

	// IPMI.
	{
		Name: "ipmi: an answer that the BMC did not sign counts (2)", In: "providers/ipmi.session.unsealMessage",
		Old: "err != nil || !crypto.Equal(code, b[end:])", New: "err != nil || code == nil",
	},
	{
		Name: "ipmi: an answer of before counts again (2)", In: "providers/ipmi.session.unsealMessage",
		Old: "p.sequence <= s.seen", New: "false",
	},
	{
		Name: "ipmi: an answer ends the process", In: "providers/ipmi.session.unsealMessage",
		Old: "len(p.payload)%blockLen != 0", New: "false",
		Tests: []string{"./providers/ipmi -run FuzzAnswers"},
	},
	{
		Name: "ipmi: a log-in's answer of any session counts", In: "providers/ipmi.session.sendLoginStep",
		Old: "binary.LittleEndian.Uint32(m[4:]) != s.console", New: "false",
		Tests: []string{"./providers/ipmi -run TestForgedRefusals"},
	},
	{
		Name: "ipmi: a log-in's answer with any tag counts", In: "providers/ipmi.session.sendLoginStep",
		Old: "n >= len(sent) || n < len(sent)-1 && request != payloadOpenRequest", New: "n < 0",
		Tests: []string{"./providers/ipmi -run TestForgedRefusals"},
	},
	{
		Name: "ipmi: a log-in's answer to another message counts", In: "providers/ipmi.session.sendLoginStep",
		Old: "p.kind != request+1", New: "false",
		Tests: []string{"./providers/ipmi -run TestForgedRefusals"},
	},
	{
		Name: "ipmi: everybody knows the tags", In: "providers/ipmi.session.sendLoginStep",
		Old: "crypto.RandomBytes(1)[0]", New: "byte(0)",
		Tests: []string{"./providers/ipmi -run TestTagsAreRandom"},
	},
	{
		Name: "ipmi: everybody knows the session's ID", In: "providers/ipmi.Provider.tryHandshake",
		Old: "newID()", New: "0xa0a1a2a3",
		Tests: []string{"./providers/ipmi -run TestForgedRefusals"},
	},
	{
		Name: "ipmi: session IDs are no secret", In: "providers/ipmi.newID",
		Old: "crypto.RandomBytes(4)", New: "[]byte{1, 2, 3, 4}",
		Tests: []string{"./providers/ipmi -run TestTagsAreRandom"},
	},
	{
		Name: "ipmi: an answer to an earlier question counts", In: "providers/ipmi.session.sendCommand",
		Old: "a.RequesterSequence != s.number", New: "false",
		Tests: []string{"./providers/ipmi -run TestAnswerToAnother"},
	},
	{
		Name: "ipmi: an answer of another network function counts", In: "providers/ipmi.session.sendCommand",
		Old: "a.NetFn != c.NetFn|1", New: "false",
		Tests: []string{"./providers/ipmi -run TestAnswerToAnother"},
	},
	{
		Name: "ipmi: an answer to another command counts", In: "providers/ipmi.session.sendCommand",
		Old: "a.Command != c.ID", New: "false",
		Tests: []string{"./providers/ipmi -run TestAnswerToAnother"},
	},
	{
		Name: "ipmi: the BMC chooses the algorithms (2)", In: "providers/ipmi.session.acceptOpen",
		Old: "if types.AuthAlg(r.AuthAlg) != s.suite.auth || types.IntegrityAlg(r.IntegrityAlg) != s.suite.integrity " +
			"|| types.CryptAlg(r.CryptAlg) != types.CryptAlg_AES_CBC_128 { ... }", New: "",
	},
	{
		Name: "ipmi: a restarted BMC is asked in the old session for ever", In: "providers/ipmi.Provider.withSession",
		Old: "b.session != nil || ctx.Err() != nil", New: "true",
	},
	{
		Name: "ipmi: an old session may be silent for long", In: "providers/ipmi.Provider.withSession",
		Old: "p.trySession(ctx, b, p.warm, f)", New: "p.trySession(ctx, b, 100*p.warm, f)",
		Tests: []string{"./providers/ipmi -run TestSilentSession"},
	},
	{
		Name: "ipmi: calls share a session at the same time", In: "providers/ipmi.New",
		Old: "make(chan struct{}, 1)", New: "make(chan struct{}, 1000)",
		Tests: []string{"./providers/ipmi -run TestOneSession"},
	},
	{
		Name: "ipmi: an idle session is kept", In: "providers/ipmi.Provider.expireBMC",
		Old: "for _, s := range b.openSessions() { ... }", New: "", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a lost session is kept", In: "providers/ipmi.Provider.trySession",
		Old: "p.dropSession(s)", New: "", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a number is used again that was not answered", In: "providers/ipmi.session.sendCommand",
		Old: "err != nil && completionCode(err) == 0", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a number is used again that was sent twice", In: "providers/ipmi.session.sendCommand",
		Old: "len(sent) > 1", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: numbers that are spent are used after all", In: "providers/ipmi.session.sendCommand",
		Old: "next == s.spent", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a log-in goes on with a number that the BMC has replaced",
		In:   "providers/ipmi.session.sendLoginStep",
		Old:  "n < len(sent)-1 && request != payloadOpenRequest", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: only the last request for a session is answered", In: "providers/ipmi.session.sendLoginStep",
		Old: "request != payloadOpenRequest", New: "true", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: how fast a network is does not matter", In: "providers/ipmi.session.exchangePackets",
		Old: "max(wait, 2*s.rtt)", New: "wait", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: nothing is sent again", In: "providers/ipmi.session.exchangePackets",
		Old: "time.Now().Add(wait)", New: "end", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a log-in needs its last message", In: "providers/ipmi.session.logIn",
		Old: "!errors.Is(err, errSilent)", New: "true", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a message that came twice is refused, and so the log-in",
		In:   "providers/ipmi.session.sendLoginStep",
		Old:  "request == payloadRAKP3 && len(sent) > 1", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: each call begins its own log-in", In: "providers/ipmi.Provider.loggedIn",
		Old: "if err := l.waitEnded(ctx); err != nil { ... }",
		New: "if err := l.waitEnded(ctx); err != nil { b.login = nil; return nil, err }", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a log-in that failed earlier fails a later call", In: "providers/ipmi.Provider.loggedIn",
		Old: "err == nil || !earlier", New: "true || err == nil", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: Close waits for log-ins", In: "providers/remote.Pool.Close",
		Old: "p.stop()", New: "", Tests: poolTests,
	},
	{
		Name: "ipmi: a session that nobody has used is kept", In: "providers/ipmi.bmc.openSessions",
		Old: "b.login != nil", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a slow session is given up", In: "providers/ipmi.Provider.trySession",
		Old: "ctx.Err() != nil && time.Since(s.lastHeard) < s.extendPatience(p.warm)", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a silent session is kept for calls that wait for less", In: "providers/ipmi.Provider.trySession",
		Old: "time.Since(s.lastHeard) < s.extendPatience(p.warm)", New: "true", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: nobody is told why there is no session yet", In: "providers/ipmi.login.waitEnded",
		Old: "so != nil && ctx.Err() == nil", New: "false", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a silent suite ends the log-in", In: "providers/ipmi.Provider.openSession",
		Old: `reportTrouble(fmt.Errorf("opening a session: %w to cipher suite %s (see cipherSuites)", errSilent, strings.Join(silent, ", ")))`, New: "_ = strings.Join; return nil, err", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: the suite that worked is not the first", In: "providers/ipmi.Provider.openSession",
		Old: "id == p.cfg.CipherSuites[0]", New: "true", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a suite that a BMC has is given up", In: "providers/ipmi.Provider.openSession",
		Old: "if has { ... }", New: "", Tests: ipmiNetwork,
	},
	{
		Name: "ipmi: a BMC is remembered for ever", In: "providers/remote.Pool.release",
		Old: "delete(p.devices, a)", New: "_ = a", Tests: poolTests,
	},
	{
		Name: "ipmi: a refusal that comes once is believed", In: "providers/ipmi.Provider.openSession",
		Old: "if errors.Is(err, errRefused) { ... }",
		New: "if errors.Is(err, errRefused) { return nil, p.refusals.RememberDenied(b.String(), sum, p.opts.Now(), " +
			"err) }",
		Tests: []string{"./providers/ipmi -run TestRefusedLogin"},
	},
	{
		Name: "ipmi: a wrong password is sent again", In: "providers/ipmi.Provider.openSession",
		Old: "if err := p.refusals.CheckRefused(b.String(), sum, p.opts.Now()); err != nil { ... }",
		New: "if err := p.refusals.CheckRefused(b.String(), sum, p.opts.Now()); false { ... }",
	},
	{
		Name: "ipmi: a refused password is tried in the next suite", In: "providers/ipmi.Provider.openSession",
		Old: "return nil, p.refusals.RememberDenied(b.String(), sum, p.opts.Now(), err)", New: "continue",
	},
	{
		Name: "ipmi: a log-in that was refused at its end is tried again", In: "providers/ipmi.Provider.openSession",
		Old: "p.refusals.HoldCredential(b.String(), sum, p.opts.Now().Add(heldFor), err)", New: "",
	},
	{
		Name: "ipmi: the BMC's proof of its password is not checked", In: "providers/ipmi.session.logIn",
		Old: "!crypto.Equal(proof, rakp2.KeyExchangeAuthenticationCode)", New: "proof == nil",
		Tests: []string{"./providers/ipmi -run TestRefusedLogin"},
	},
	{
		Name: "ipmi: the BMC's proof of its key is not checked", In: "providers/ipmi.session.logIn",
		Old: "!crypto.Equal(proof, rakp4.IntegrityCheckValue)", New: "proof == nil", Tests: ipmiKg,
	},
	{
		Name: "ipmi: a BMC key is not used", In: "providers/ipmi.session.logIn",
		Old: "key == nil", New: "true", Tests: ipmiKg,
	},
	{
		Name: "ipmi: another BMC key is not tried", In: "providers/ipmi.Provider.openSession",
		Old: `password.Reveal() + "\x00" + string(kg)`, New: "password.Reveal()", Tests: ipmiKg,
	},
	{
		Name: "ipmi: a BMC key in full length is text", In: "providers/ipmi.parseKg",
		Old: "len(key) != maxKg", New: "true", Tests: ipmiKg,
	},
	{
		Name: "ipmi: a long BMC key is taken", In: "providers/ipmi.parseKg",
		Old: "len(key) > maxKg", New: "false", Tests: ipmiKg,
	},
	{
		Name: "ipmi: a BMC key of zeros is taken", In: "providers/ipmi.parseKg",
		Old: `len(bytes.Trim(key, "\x00")) == 0`, New: "bytes.Equal(key, nil) && false", Tests: ipmiKg,
	},
	{
		Name: "ipmi: a long password is cut", In: "providers/ipmi.Provider.openSession",
		Old: "len(password.Reveal()) > maxPassword", New: "false",
	},
	{
		Name: "ipmi: suites that prove nothing are taken (14)", In: "providers/ipmi.Config.Validate",
		Old: "if _, ok := suites[id]; !ok { ... }", New: "if _, ok := suites[id]; !ok && id < 0 { ... }",
	},
	{
		Name: "ipmi: an ID may hold a password", In: "providers/ipmi.parseID",
		Old: "u.User != nil", New: "false",
	},
	{
		Name: "ipmi: a hibernated machine is off (2)", In: "providers/ipmi.acpiStates",
		Old: `{providers.PowerOn, "S4 hibernated"}`, New: `{providers.PowerOff, "S4 hibernated"}`,
	},
	{
		Name: "ipmi: a state nobody knows is off (2)", In: "providers/ipmi.Provider.readACPIState",
		Old: "if !ok { ... }", New: "if !ok { known.state = providers.PowerOff }",
	},
	{
		Name: "ipmi: a sleep that cannot be asked for is off (2)", In: "providers/ipmi.Provider.readACPIState",
		Old: "isNotOffered(err)", New: "completionCode(err) != 0",
	},
	{
		Name: "ipmi: the system's GUID is not told (3)", In: "providers/ipmi.Provider.State",
		Old: "obs.SystemUUID = systemUUID(guid.GUID, t.SystemUUID)", New: "_ = guid",
	},
	{
		Name: "ipmi: a GUID that many machines share is told (3)", In: "providers/ipmi.systemUUID",
		Old: `if _, ok := providers.ParseUUID(text); !ok { ... }`,
		New: `if _, ok := providers.ParseUUID(text); !ok && false { ... }`,
	},
	{
		Name: "ipmi: any refusal of a power-off is well", In: "providers/ipmi.Provider.controlChassis",
		Old: "err == nil && status.PowerIsOn == on", New: "err == nil",
	},

	{
		Name: "commands: a machine is powered on in the middle of a fence (10)",
		In:   "cmd/internal/app.NodePower.SendPower",
		Old:  `on && now.Fence != ""`, New: "false",
		Tests: []string{"./cmd/forcefence"},
	},
	{
		Name: "commands: a machine that was never pinned is powered off (14)",
		In:   "cmd/internal/app.NodePower.SendPower",
		Old:  `d.NoPower == ""`, New: "true",
		Tests: []string{"./cmd/forcefence"},
	},
	{
		Name: "commands: a machine is powered off without a yes", In: "cmd/forcefence.sessionFlags.newOnOffCommand",
		Old: "!yes", New: "false",
	},
	{
		Name: "commands: accepted is off", In: "cmd/forcefence.waitForState",
		Old: "v.State == want", New: "v.State == want || true",
	},
	{
		Name: "commands: a state that proves nothing is a success", In: "cmd/forcefence.newPower",
		Old: "now == providers.PowerUnknown", New: "false",
	},
	{
		Name: "drill: a device that lied is believed by a person's drill", In: "cmd/internal/app.Session.falseOffNode",
		Old: "rec.DistrustsDevice(m.Identity, m.Device, node.Name == m.Target.Node)", New: "rec == nil && false",
		Tests: []string{"./cmd/forcefence"},
	},
	{
		Name: "drill: a device that lied makes a node fenceable", In: "taint/drills.AskDevices",
		Old: `s.Devices[i].FalseOff != ""`, New: "false",
	},
	{
		Name: "drill: a pin that is about to be written is missed", In: "taint/drills.AskDevices",
		Old: `b.Pin != ""`, New: `b.Pin == "another"`,
	},
	{
		Name: "drill: a node whose machine could not be powered off is fenceable", In: "taint/view/drill.whyNoPowerOff",
		Old: `no == ""`, New: "true",
	},
	{
		Name: "drill: a device that does not answer takes a power-off", In: "taint/view/drill.whyNoPowerOff",
		Old: `d.Result() != "ok"`, New: "false",
	},
	{
		Name: "drill: in observe an outlet that is on makes a node fenceable", In: "taint/view/drill.FindingOf",
		Old: "!s.PowerOff && s.Verdict.State != providers.PowerOff && fedOnly(s.Devices)", New: "false",
	},
	{
		Name: "drill: nobody tells the drill of outlets", In: "taint/drills.AskDevices",
		Old: "Feeds: d.Feeds", New: "",
	},
	{
		Name: "drill: one lost packet is a dead device", In: "taint/view/drill.FindingOf",
		Old: `passing && result != "ok" && (s.Before == corev1.ConditionTrue || s.Before == "")`, New: "false",
	},
	{
		Name: "drill: a refused password may pass by itself", In: "taint/view/drill.FindingOf",
		Old: `passing && (word == "unreachable" || word == "canceled" || word == "error")`, New: "passing",
	},
	{
		Name: "drill: there is no pace", In: "taint/view/drill.Plan.Next",
		Old: "early > 0", New: "false",
	},
	{
		Name: "drill: any number is under way", In: "taint/view/drill.Plan.Next",
		Old: "p.inFlight >= MaxAtOnce", New: "false",
	},
	{
		Name: "drill: who is under way when nodes come does not count", In: "taint/view/drill.Plan.SetNodes",
		Old: "p.inFlight++", New: "",
	},
	{
		Name: "drill: nodes are not spread", In: "taint/view/drill.Plan.spreadDelay",
		Old: "h.Sum32()", New: "uint32(1)<<31",
	},
	{
		Name: "drill: a failed one waits as long as any", In: "taint/view/drill.Plan.FinishDrill",
		Old: "!ok", New: "false",
	},
	{
		Name: "drill: the devices of a fenced node are asked", In: "taint/drills.Drills.drillNode",
		Old: "taint.IsFenced(&node, d.Key)", New: "false",
	},
	{
		Name: "drill: the condition of a fenced node is written", In: "taint/drills.Drills.writeCondition",
		Old: "taint.IsFenced(live, d.Key)", New: "false",
	},
	{
		Name: "drill: nobody tells the fleet what was reached", In: "taint/drills.Drills.drillNode",
		Old: "len(seen.Devices) > 0", New: "false",
	},
	{
		Name: "drill: what a record says of a device is not asked for", In: "taint/machine.DistrustedBy",
		Tests: []string{"./taint/drills"},
		Old:   "f.DistrustingNode(m.Identity, m.Device, m.Target.Node)",
		New:   `f.DistrustingNode(m.Identity, m.Device, m.Target.Node)[:0]`,
	},
	{
		Name: "drill: the condition is written each time", In: "taint/drills.hasFinding",
		Old: "c.Status == f.Fenceable && c.Reason == string(f.Reason) && c.Message == f.Message && (rec == nil || " +
			"!c.LastHeartbeatTime.Time.Before(rec.At.Truncate(time.Second)))", New: "rec == nil && c.Type == \"\" && false",
	},
	{
		Name: "drill: what was said of a machine before its fence still stands", In: "taint/drills.hasFinding",
		Old: "rec == nil || !c.LastHeartbeatTime.Time.Before(rec.At.Truncate(time.Second))", New: "rec == nil || true",
	},
	{
		Name: "plugin: a terminal obeys a kubelet", In: "cmd/forcefence.maskUnprintable",
		Tests: []string{"./cmd/forcefence -short -run Screen"},
		Old:   "unicode.IsPrint(c) && c != utf8.RuneError", New: "true",
	},
	{
		Name: "plugin: JSON carries what a terminal obeys", In: "cmd/forcefence.printJSON",
		Tests: []string{"./cmd/forcefence -short -run PrintJSON"},
		Old:   "unicode.IsPrint(c) || c == '\\n'", New: "unicode.IsPrint(c) || true",
	},
	{
		Name: "plugin: a shorter pause replaces a longer one", In: "cmd/forcefence.pauser.refuseShorter",
		Tests: []string{"./cmd/forcefence -run PauseByRights"},
		Old:   "!had.Until.After(now.Until)", New: "true",
	},
	{
		Name: "plugin: a pause that ends replaces one that does not", In: "cmd/forcefence.pauser.refuseShorter",
		Tests: []string{"./cmd/forcefence -run PauseByRights"},
		Old:   "!had.Until.IsZero() && !had.Until.After(now.Until)", New: "!had.Until.After(now.Until)",
	},
	{
		Name: "plugin: what is named a secret stays in a bundle", In: "cmd/forcefence.isSecret", Tests: scrubs,
		Old: "secretName.MatchString(name)", New: "false",
	},
	{
		Name: "plugin: a secret within another value stays in a bundle", In: "cmd/forcefence.redactText", Tests: scrubs,
		Old: "text = rest[between+secret:]", New: "text = rest[len(valuePattern.FindString(rest)):]",
	},
	{
		Name: "plugin: an option's argument stays in a bundle", In: "cmd/forcefence.isSecretOption", Tests: scrubs,
		Old: `name == "-p" || name == "-P"`, New: "false",
	},
	{
		Name: "plugin: an option after an option is taken for its argument", In: "cmd/forcefence.secretAfter",
		Tests: scrubs,
		Old:   `option && strings.HasPrefix(strings.TrimLeft(rest, "\\\"'"), "-")`, New: "false",
	},
	{
		Name: "plugin: an argument in a list stays in a bundle", In: "cmd/forcefence.redactValue", Tests: scrubs,
		Old: "argument = isSecretOption(option)", New: "",
	},
	{
		Name: "plugin: a Kerberos ticket stays in a bundle", In: "cmd/forcefence.textPatterns", Tests: scrubs,
		Old: "{regexp.MustCompile(`\\b(Negotiate|NTLM)\\s+[^\\s\"',;]+`), \"${1} \" + redacted}", New: "",
	},
	{
		Name: "plugin: a header's second word stays in a bundle", In: "cmd/forcefence.secretAfter", Tests: scrubs,
		Old: "lineName.MatchString(name)", New: "false",
	},
	{
		Name: "plugin: a text of any length is taken in", In: "cmd/forcefence.cutAndRedact", Tests: scrubs,
		Old: "redactText(cutText(text, maxText, \" \\t\\r\\n\\\"',;\"))", New: "redactText(text)",
	},
	{
		Name: "plugin: half a token stays at a cut", In: "cmd/forcefence.cutText", Tests: scrubs,
		Old: "strings.LastIndexAny(text[:limit], between)+1", New: "limit",
	},
	{
		Name: "plugin: an older Off outlives a newer answer", In: "taint/view.machineOf",
		Old: "!m.At.Before(*last.At)", New: "m.At.Before(*last.At)",
	},
	{
		Name: "plugin: a reason ends a pause of its own", In: "taint/decide/fence.Pause.Annotation",
		Tests: []string{"./cmd/forcefence -run PauseByRights"},
		Old:   "p.Reason + \"; \" + untilParameter + until", New: "p.Reason + until[:0]",
	},
	{
		Name: "drill: a refused password is sent again", In: "providers/remote.Refusals.CheckRefused",
		Old: "had.sum == s && now.Before(had.until)", New: "false",
		Tests: []string{"./providers/providertest/plug -run TestConformance"},
	},

	// libvirt.
	{
		Name: "libvirt: a saved guest is off (2)", In: "providers/libvirt.mapDomainState",
		Old: "g.state, g.saved = providers.PowerOn, true", New: "g.state = providers.PowerOff",
	},
	{
		Name: "libvirt: a guest that migrated away is off (2)", In: "providers/libvirt.mapDomainState",
		Old: "g.elsewhere = true", New: "g.state = providers.PowerOff",
	},
	{
		Name: "libvirt: a managed save image is not looked at (2)", In: "providers/libvirt.mapDomainState",
		Old: "if image { ... }", New: "if false { ... }",
	},
	{
		Name: "libvirt: a crashed guest is off (2)", In: "providers/libvirt.mapDomainState",
		Old: "case golibvirt.DomainShutoff:",
		New: `
			case golibvirt.DomainShutoff:
			case golibvirt.DomainCrashed:
				g.state = providers.PowerOff
				return g`,
	},
	{
		Name: "libvirt: shutting down is off (2)", In: "providers/libvirt.mapDomainState",
		Old: "providers.PowerChanging", New: "providers.PowerOff",
	},
	{
		Name: "libvirt: a paused guest is off (2)", In: "providers/libvirt.mapDomainState",
		Old: "g.state = providers.PowerOn", New: "g.state = providers.PowerOff",
	},
	{
		Name: "libvirt: a hypervisor that does not answer is passed over (4)",
		In:   "providers/libvirt.survey.groupState",
		Old:  "g.err != nil && !errors.Is(g.err, providers.ErrNotFound)", New: "false",
	},
	{
		Name: "libvirt: the first hypervisor's word counts (4)", In: "providers/libvirt.survey.groupState",
		Old: "stateWeight(g) > stateWeight(best)", New: "false",
	},
	{
		Name: "libvirt: the group is asked once", In: "providers/libvirt.Provider.State",
		Old: "state == providers.PowerOff && len(p.group) > 1", New: "false",
	},
	{
		Name: "libvirt: another machine is destroyed (3)", In: "providers/libvirt.Provider.surveyVerified",
		Old: "err = t.VerifyIdentity(providers.Observation{SystemUUID: providers.FormatUUID(s.uuid)})",
		New: "err = nil",
	},
	{
		Name: "libvirt: the domain's UUID is not told (3)", In: "providers/libvirt.Provider.State",
		Old: "obs.SystemUUID, obs.At = providers.FormatUUID(s.uuid), providers.InstantOf(asked)",
		New: "obs.At = providers.InstantOf(asked)",
	},
	{
		Name: "libvirt: a daemon that hangs keeps its caller", In: "providers/libvirt.askDaemon",
		Old: "ctx.Done()", New: "time.After(20 * time.Second)",
	},
	{
		Name: "libvirt: a packet of any length is passed on", In: "providers/libvirt.readPacket",
		Old: "n < headerLen || n > maxPacket", New: "n < 4",
	},
	{
		Name: "libvirt: an answer that nobody asked for is passed on", In: "providers/libvirt.wire.checkReply",
		Old: "if !asked || procedure != h.procedure { ... }",
		New: `
			if !asked && replies[procedure] == nil {
				replies[procedure] = func(*cursor) {}
			}
			if false { ... }`,
	},
	{
		Name: "libvirt: a lost connection is not made again for events", In: "providers/remote.Resubscribe",
		Old: "errors.Is(err, final)", New: "subscribed || errors.Is(err, final)",
		Tests: []string{"./providers/remote -run TestResubscribe", "./providers/libvirt -run TestWatch"},
	},
	{
		Name: "libvirt: what happened while nobody watched is not told", In: "providers/libvirt.watch.watchOnce",
		Old: "wait.Go(func() { w.lookOver(ctx, l) })", New: "",
	},
	{
		Name: "libvirt: a save is told as off", In: "providers/libvirt.mapEvent",
		Old: "return providers.PowerOn, raw, true", New: "return providers.PowerOff, raw, true",
	},

	// Fence agents.
	{
		Name: "fenceagent: an exit status alone is off (2)", In: "providers/fenceagent.result.powerState",
		Old: `r.code == 2 && r.stdout == "Status: OFF\n"`, New: "r.code == 2",
		Tests: []string{"./providers/fenceagent -run TestAnswers"},
	},
	{
		Name: "fenceagent: the line alone is off (2)", In: "providers/fenceagent.result.powerState",
		Old: `r.code == 2 && r.stdout == "Status: OFF\n"`, New: `r.stdout == "Status: OFF\n"`,
		Tests: []string{"./providers/fenceagent -run TestAnswers"},
	},
	{
		Name: "fenceagent: off among other lines counts (2)", In: "providers/fenceagent.result.powerState",
		Old: `r.stdout == "Status: OFF\n"`, New: `strings.Contains(r.stdout, "Status: OFF\n")`,
		Tests: []string{"./providers/fenceagent -run TestAnswers"},
	},
	{
		Name: "fenceagent: off in any letters counts (2)", In: "providers/fenceagent.result.powerState",
		Old: `r.stdout == "Status: OFF\n"`, New: `strings.EqualFold(r.stdout, "Status: OFF\n")`,
		Tests: []string{"./providers/fenceagent -run TestAnswers"},
	},
	{
		Name: "fenceagent: a status that an agent did not end with counts (2)", In: "providers/fenceagent.runKeeper",
		Old: "status.Exited() && status.ExitStatus() < 128-codeBase", New: "status.Exited()",
		Tests: []string{"./providers/fenceagent -run TestAnswers"},
	},
	{
		Name: "fenceagent: what came before the deadline counts after it (1)", In: "providers/fenceagent.runAgent",
		Old: "ctx.Err() != nil", New: "false",
		Tests: []string{"./providers/fenceagent -run TestDeadline"},
	},
	{
		Name: "fenceagent: an agent logs in to a host that a kubelet named (14)",
		In:   "providers/fenceagent.Provider.callAgent",
		Old:  "t.Claimed && p.cfg.HasAddressIDs()", New: "false",
		Tests: []string{"./providers/fenceagent -run TestClaimedHosts"},
	},
	{
		Name: "fenceagent: a password is sent in clear text", In: "providers/fenceagent.Config.Validate",
		Old: `how != ""`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestInsecureAgents"},
	},
	{
		Name: "fenceagent: any ssh host key is taken", In: "providers/fenceagent.Config.findInsecure",
		Old: `!checksKey.MatchString(value("ssh_options"))`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestInsecureAgents"},
	},
	{
		Name: "fenceagent: a certificate that nobody checks is safe", In: "providers/fenceagent.Config.findInsecure",
		Old: `[]string{"ssl_insecure", "insecure", "notls"}`, New: `[]string{"insecure", "notls"}`,
		Tests: []string{"./providers/fenceagent -run TestInsecureAgents"},
	},
	{
		Name: "fenceagent: SNMP 3 without a password is safe", In: "providers/fenceagent.Config.findInsecure",
		Old: `slices.Contains([]string{"authPriv", "authNoPriv"}, value("snmp_sec_level"))`, New: "true",
		Tests: []string{"./providers/fenceagent -run TestInsecureAgents"},
	},
	{
		Name: "fenceagent: an agent that guesses is believed (2)", In: "providers/fenceagent.Config.Validate",
		Old: `k.guesses != "" && !c.AllowGuessedOff`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestWhichAgents"},
	},
	{
		Name: "fenceagent: an agent that guesses is believed before it said ON (2)",
		In:   "providers/fenceagent.Provider.State",
		Old:  "p.guesses && !p.isOffPlausible(t.ID, obs.State)", New: "false",
		Tests: []string{"./providers/fenceagent -run TestOffBeforeOn"},
	},
	{
		Name: "fenceagent: an ON of another machine counts (2)", In: "providers/fenceagent.Provider.isOffPlausible",
		Old:   "state != providers.PowerOff || p.reportedOn[id]",
		New:   "state != providers.PowerOff || len(p.reportedOn) > 0",
		Tests: []string{"./providers/fenceagent -run TestOffBeforeOn"},
	},
	{
		Name: "fenceagent: an agent that nobody read does not guess (2)", In: "providers/fenceagent.New",
		Old: `!read || k.guesses != ""`, New: `k.guesses != ""`,
		Tests: []string{"./providers/fenceagent -run TestOffBeforeOn"},
	},
	{
		Name: "fenceagent: an agent that nobody read is believed (2)", In: "providers/fenceagent.Config.Validate",
		Old: "!read && !c.AllowGuessedOff", New: "!read && false",
		Tests: []string{"./providers/fenceagent -run TestWhichAgents"},
	},
	{
		Name: "fenceagent: an agent of something else than power is believed (2)",
		In:   "providers/fenceagent.Config.Validate",
		Old:  `k.never != ""`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestWhichAgents"},
	},
	{
		Name: "fenceagent: cut off from storage is off (2)", In: "providers/fenceagent.metadata.checkUsable",
		Old: "m.fabric", New: "false",
		Tests: []string{"./providers/fenceagent -run TestMetadata|TestDebiansAgents"},
	},
	{
		Name: "fenceagent: an agent without a status is taken", In: "providers/fenceagent.metadata.checkUsable",
		Old: "!slices.Contains(m.actions, a)", New: "!slices.Contains(m.actions, a) && false",
		Tests: []string{"./providers/fenceagent -run TestMetadata"},
	},
	{
		Name: "fenceagent: options that call a machine off are taken (2)",
		In:   "providers/fenceagent.Config.validateOptions",
		Old:  `reserved[strings.ReplaceAll(name, "-", "_")]`, New: `reserved["-"+name]`,
		Tests: []string{"./providers/fenceagent -run TestOptions"},
	},
	{
		Name: "fenceagent: an option that the agent does not know is taken",
		In:   "providers/fenceagent.Config.validateOptions",
		Old:  `meta != nil && meta.options[key].name == ""`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestOptions"},
	},
	{
		Name: "fenceagent: a secret may stand in the file", In: "providers/fenceagent.Config.validateOptions",
		Old: "ok && secretish.MatchString(key)", New: "ok && false",
		Tests: []string{"./providers/fenceagent -run TestOptions"},
	},
	{
		Name: "fenceagent: all machines have one address (3)", In: "providers/fenceagent.Config.validateOptions",
		Old: "name == c.idOption() || name == olderNames[c.idOption()]", New: "false",
		Tests: []string{"./providers/fenceagent -run TestOptions"},
	},
	{
		Name: "fenceagent: a value may hold another line", In: "providers/fenceagent.checkValue",
		Old:   "strings.ContainsFunc(value, unicode.IsControl)",
		New:   "strings.ContainsFunc(value, unicode.IsControl) && false",
		Tests: []string{"./providers/fenceagent -run TestValuesThatAgentsMisread"},
	},
	{
		Name: "fenceagent: a secret that changed may hold another line", In: "providers/fenceagent.input.addOption",
		Old:   "if err := checkValue(value); err != nil { ... }",
		New:   "if err := checkValue(value); false && err != nil { ... }",
		Tests: []string{"./providers/fenceagent -run TestValuesThatAgentsMisread"},
	},
	{
		Name: "fenceagent: an ID may be a command", In: "providers/fenceagent.Config.CanonicalID",
		Old: "!plugName.MatchString(id)", New: `id == ""`,
		Tests: []string{"./providers/fenceagent -run TestIDs"},
	},
	{
		Name: "fenceagent: an address may be a command", In: "providers/fenceagent.Config.CanonicalID",
		Old: "err != nil || !hostName.MatchString(bare)", New: "err != nil",
		Tests: []string{"./providers/fenceagent -run TestIDs"},
	},
	{
		Name: "fenceagent: an agent reads the controller's token", In: "providers/fenceagent.startSandboxed",
		Old: "err = confineThread(agent, files)", New: "err = nil",
		Tests: []string{"./providers/fenceagent -run TestSandbox"},
	},
	{
		Name: "fenceagent: an agent has the files that its ID names", In: "providers/fenceagent.Provider.buildInput",
		Old: "in.files = filesIn(p.cfg.Options)", New: "in.files = append(filesIn(p.cfg.Options), id)",
		Tests: []string{"./providers/fenceagent -run TestSandbox"},
	},
	{
		Name: "fenceagent: an agent signals the controller", In: "providers/fenceagent.confineThread",
		Old: "landlock.V6.Scoped", New: "0",
		Tests: []string{"./providers/fenceagent -run TestSandbox"},
	},
	{
		Name: "fenceagent: an agent is shown all of the root", In: "providers/fenceagent.pathRules",
		Old: `filepath.Clean(path) == "/"`, New: "false",
		Tests: []string{"./providers/fenceagent -run TestSandbox"},
	},
	{
		Name: "fenceagent: our environment is the agent's", In: "providers/fenceagent.runAgent",
		Old: "agentEnv()", New: "os.Environ()",
		Tests: []string{"./providers/fenceagent -run TestInput"},
	},
	{
		Name: "fenceagent: what we inherited open is the agent's", In: "providers/fenceagent.runKeeper",
		Old: "closeInherited()", New: "",
		Tests: []string{"./providers/fenceagent -run TestInput"},
	},
	{
		Name: "fenceagent: an agent's orphans are left", In: "providers/fenceagent.runKeeper",
		Old: "killOrphans()", New: "",
		Tests: []string{"./providers/fenceagent -run TestLeavesChildren|TestDiesWithUs"},
	},
	{
		Name: "fenceagent: nobody adopts an agent's orphans", In: "providers/fenceagent.runKeeper",
		Old: "unix.PR_SET_CHILD_SUBREAPER, 1", New: "unix.PR_SET_CHILD_SUBREAPER, 0",
		Tests: []string{"./providers/fenceagent -run TestLeavesChildren"},
	},
	{
		Name: "fenceagent: an agent outlives forcefence", In: "providers/fenceagent.runKeeper",
		Old: "lifelineEnded(2*time.Millisecond)", New: "lifelineEnded(2*time.Millisecond) && false",
		Tests: []string{"./providers/fenceagent -run TestDiesWithUs"},
	},
	{
		Name: "fenceagent: an agent's output is kept whole", In: "providers/fenceagent.boundedBuffer.Write",
		Old: "p[:min(len(p), maxOutput-b.Len())]", New: "p",
		Tests: []string{"./providers/fenceagent -run TestOutputIsBounded"},
	},
	{
		Name: "fenceagent: a refused password is sent again", In: "providers/fenceagent.Provider.callAgent",
		Old:   "return result{}, p.refusals.RememberDenied(device, sum, p.opts.Now(), cause)",
		New:   "return result{}, providers.WithClass(providers.ErrDenied, cause)",
		Tests: []string{"./providers/fenceagent -run TestRefusedPasswords"},
	},
	{
		Name: "fenceagent: a password that may have been refused is sent again",
		In:   "providers/fenceagent.Provider.callAgent",
		Old:  "strikes > 1", New: "false",
		Tests: []string{"./providers/fenceagent -run TestRefusedPasswords|TestIPMI"},
	},
	{
		Name: "fenceagent: a password that may have been refused is never forgiven",
		In:   "providers/fenceagent.Provider.countStrike",
		Old:  "delete(p.strikes, device)", New: "",
		Tests: []string{"./providers/fenceagent -run TestPerhapsRefusedOnceInAWhile"},
	},
	{
		Name: "fenceagent: a message repeats a secret", In: "providers/fenceagent.result.failureText",
		Old: "hasSecret(r.stderr, r.secrets)", New: "false",
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: a message repeats a secret that is quoted", In: "providers/fenceagent.hasSecret",
		Old: `hasForm(stripQuoting(view, "+"), bare)`, New: `bare == "" && false`,
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: a message repeats base64 behind a user's name", In: "providers/fenceagent.base64Forms",
		Old: "[]int{0, 2, 3}", New: "[]int{0}",
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: a message repeats a secret in hexadecimal", In: "providers/fenceagent.hasSecret",
		Old:   "len(form) >= shortest && hasForm(hexSeparators.Replace(strings.ToLower(output)), form)",
		New:   "false && form == output",
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: a message repeats a secret that was cut", In: "providers/fenceagent.hasForm",
		Old: "strings.HasSuffix(text, form[:n])", New: "false",
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: a message repeats a secret that was escaped twice", In: "providers/fenceagent.hasSecret",
		Old: "unescapePercent(html.UnescapeString(unescapeBackslash(output)))", New: "output",
		Tests: []string{"./providers/fenceagent -run TestSecretsInMessages"},
	},
	{
		Name: "fenceagent: an off that failed was accepted (4)", In: "providers/fenceagent.Provider.callAgent",
		Old: `action != "status" && r.containsAny("timed out waiting to power " + action)`, New: `action != "status"`,
		Tests: []string{"./providers/fenceagent -run TestPowerActions"},
	},

	// Power strips.
	{
		Name: "pdu: a question is not encrypted, and no answer need be", In: "providers/pdu.Provider.newClient",
		Old: "gosnmp.AuthPriv, usm", New: "gosnmp.AuthNoPriv, usm",
	},
	{
		Name: "pdu: a question is not authenticated, and no answer need be (1)", In: "providers/pdu.Provider.newClient",
		Old: "gosnmp.AuthPriv, usm", New: "gosnmp.NoAuthNoPriv, usm",
	},
	{
		Name: "pdu: a strip is asked in the clear what it does not answer otherwise (1)",
		In:   "providers/pdu.Provider.newClient",
		Old:  "p.cfg.Version == v2c", New: "true",
	},
	{
		Name: "pdu: an answer that is not encrypted counts (1)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "answer.MsgFlags&gosnmp.AuthPriv != gosnmp.AuthPriv", New: "false",
	},
	{
		Name: "pdu: another engine's answer counts (1)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "usm.AuthoritativeEngineID != l.engine", New: "false",
	},
	{
		Name: "pdu: an engine that answered before is not the only one (3)", In: "providers/pdu.Provider.newClient",
		Old: `e.id != ""`, New: "false",
	},
	{
		Name: "pdu: an engine that took another's place is believed (3)", In: "providers/pdu.Provider.verifyAnswer",
		Old: `had.id != "" && had.id != usm.AuthoritativeEngineID`, New: "false",
	},
	{
		Name: "pdu: the engines of the configuration have no effect (3)", In: "providers/pdu.Provider.knownEngine",
		Old: `id != ""`, New: "false",
	},
	{
		Name: "pdu: an engine is not kept (3)", In: "providers/pdu.Provider.rememberEngine",
		Old: "p.strips[address] = e", New: "",
	},
	{
		Name: "pdu: a replay counts (1)", In: "providers/pdu.engine.isReplay",
		Old: "boots == e.boots && int64(secs)+window < int64(e.timeAt(t))", New: "false",
	},
	{
		Name: "pdu: an answer of an earlier boot counts (1)", In: "providers/pdu.engine.isReplay",
		Old: "boots < e.boots", New: "false",
	},
	{
		Name: "pdu: an engine that has run out of boots counts (1)", In: "providers/pdu.engine.isReplay",
		Old: "boots == math.MaxInt32", New: "false",
	},
	{
		Name: "pdu: no time passes for an engine (1)", In: "providers/pdu.engine.timeAt",
		Old: "int64(e.time)+int64(passed)", New: "int64(e.time)+0*int64(passed)",
	},
	{
		Name: "pdu: an old answer moves the window back (1)", In: "providers/pdu.Provider.rememberEngine",
		Old: `had.id != "" && (e.boots < had.boots || e.boots == had.boots && e.timeAt(e.at) < had.timeAt(e.at))`,
		New: "false && had.boots > 0",
	},
	{
		Name: "pdu: an answer that names no question counts (1)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "answer.RequestID == 0", New: "false",
	},
	{
		Name: "pdu: what is no response counts (1)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "answer.PDUType != gosnmp.GetResponse", New: "false",
	},
	{
		Name: "pdu: an answer about another outlet counts (3)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "i < len(asked) && v.Name != asked[i].Name", New: `i < 0 && v.Name == ""`,
	},
	{
		Name: "pdu: an answer with other values counts (1)", In: "providers/pdu.Provider.verifyAnswer",
		Old: "len(answer.Variables) != len(asked) && answer.Error == gosnmp.NoError",
		New: "len(answer.Variables) < len(asked) && answer.Error == gosnmp.NoError",
	},
	{
		Name: "pdu: another community's answer counts", In: "providers/pdu.Provider.verifyAnswer",
		Old: "answer.Version != gosnmp.Version2c || answer.Community != l.community", New: "false",
	},
	{
		Name: "pdu: an answer of any address counts (1)", In: "providers/pdu.Provider.newClient",
		Old: `Transport: "udp"`, New: `Transport: "udp", UseUnconnectedUDPSocket: true`,
	},
	{
		Name: "pdu: an answer to another message counts (1)", In: "providers/pdu.link.Read",
		Old: "!asked", New: "!asked && false",
	},
	{
		Name: "pdu: an engine that is told twice is another one", In: "providers/pdu.link.Read",
		Old: `named != ""`, New: `named != "" || true`,
	},
	{
		Name: "pdu: a refused password is sent again", In: "providers/pdu.Provider.exchangeMessage",
		Old: "if err := p.refusals.CheckRefused(at.accountName(), who.sum, p.opts.Now()); err != nil { ... }",
		New: "if err := p.refusals.CheckRefused(at.accountName(), who.sum, p.opts.Now()); false { ... }",
	},
	{
		Name: "pdu: a refused password is sent again within a call", In: "providers/pdu.link.Read",
		Old: "l.refusal = refusals[h.reported]", New: "_ = refusals",
	},
	{
		Name: "pdu: a call that was given up goes on", In: "providers/pdu.Provider.exchangeMessage",
		Old: "_ = socket.Close()", New: "",
	},
	{
		Name: "pdu: a word that nobody knows is off (2)", In: "providers/pdu.mib.outletState",
		Old: "return outletAnswer{providers.PowerUnknown, valueText(values[0])}", New: "",
	},
	{
		Name: "pdu: a value of another type is off (2)", In: "providers/pdu.integerValue",
		Old: "n, whole := v.Value.(int)",
		New: `n, whole := int(gosnmp.ToBigInt(v.Value).Int64()), true; v.Type = gosnmp.Integer`,
	},
	{
		Name: "pdu: a reboot's middle is off (2)", In: "providers/pdu.mib.outletState",
		Old: `return outletAnswer{providers.PowerChanging, "off, command pending"}`,
		New: `return outletAnswer{providers.PowerOff, "off, command pending"}`,
	},
	{
		Name: "pdu: an outlet of which a strip does not know what is pending is off (2)",
		In:   "providers/pdu.mib.outletState",
		Old:  `return outletAnswer{providers.PowerUnknown, "off, pending " + valueText(values[1])}`,
		New:  `return outletAnswer{providers.PowerOff, "off"}`,
	},
	{
		Name: "pdu: one outlet that is off is enough (2)", In: "providers/pdu.machineState",
		Old: "count[providers.PowerOn] > 0", New: "count[providers.PowerOn] == len(all)",
	},
	{
		Name: "pdu: an outlet that is unknown is off (2)", In: "providers/pdu.machineState",
		Old: "count[providers.PowerUnknown] > 0", New: "false",
	},
	{
		Name: "pdu: an outlet that is changing is off (2)", In: "providers/pdu.machineState",
		Old: "count[providers.PowerChanging] > 0", New: "false",
	},
	{
		Name: "pdu: a strip that does not answer is passed over (2)", In: "providers/pdu.Provider.askStrips",
		Old: "cmp.Or(errs...)", New: "cmp.Or(errs[:len(errs)%2]...)",
	},
	{
		Name: "pdu: the first answer is long enough (2)", In: "providers/pdu.Provider.extendOffRun",
		Old: "off >= p.cfg.OffDelay", New: "true",
	},
	{
		Name: "pdu: the middle of a power cycle that no column tells is off (2)", In: "providers/pdu.Config.Validate",
		Old: "c.OffDelay < cycle+settleTime", New: "false",
	},
	{
		Name: "pdu: the delay goes on while an outlet is on (2)", In: "providers/pdu.Provider.State",
		Old: "err != nil || state != providers.PowerOff", New: "err != nil",
	},
	{
		Name: "pdu: the delay goes on while nobody answers (2)", In: "providers/pdu.Provider.State",
		Old: "err != nil || state != providers.PowerOff", New: "err == nil && state != providers.PowerOff",
	},
	{
		Name: "pdu: the delay goes on while nobody asks (2)", In: "providers/pdu.Provider.extendOffRun",
		Old: "asked.Sub(r.last) > maxApart", New: "false",
	},
	{
		Name: "pdu: an overtaken answer begins the delay (2)", In: "providers/pdu.Provider.extendOffRun",
		Old: "r.broken.After(asked)", New: "false",
	},
	{
		Name: "pdu: the delay counts from the question (2)", In: "providers/pdu.Provider.extendOffRun",
		Old: "r.since = got", New: "r.since = asked.Add(-time.Second)",
	},
	{
		Name: "pdu: the delay goes on after a power-on (2)", In: "providers/pdu.Provider.PowerOn",
		Old: "p.endOffRun(t.ID)", New: "",
	},
	{
		Name: "pdu: an outlet that refuses is passed over", In: "providers/pdu.Provider.commandOutlets",
		Old: `return fmt.Errorf("outlet %s: %w", o, err)`, New: "",
	},
	{
		Name: "pdu: an outlet that is not there is off (2)", In: "providers/pdu.errorStatus",
		Old: "slices.Contains(absentTypes, v.Type)", New: "false && slices.Contains(absentTypes, v.Type)",
	},
	{
		Name: "pdu: an ID holds credentials (12)", In: "providers/pdu.parseAddress",
		Old: "u.User != nil", New: "false",
	},
	{
		Name: "pdu: an outlet is named twice", In: "providers/pdu.parseID",
		Old: "len(slices.Compact(slices.Clone(all))) != len(all)", New: "false",
	},
	{
		Name: "pdu: only the first host of an ID is told (14)", In: "providers/pdu.Config.CanonicalID",
		Old: "slices.Compact(hosts)", New: "hosts[:1]",
	},

	// vSphere.
	{
		Name: "vsphere: a suspended VM is off (2)", In: "providers/vsphere.powerState",
		Old: `
			case types.VirtualMachinePowerStatePoweredOff: ...
			case types.VirtualMachinePowerStatePoweredOn, types.VirtualMachinePowerStateSuspended: ...`, New: `
			case types.VirtualMachinePowerStatePoweredOff, types.VirtualMachinePowerStateSuspended: ...
			case types.VirtualMachinePowerStatePoweredOn: ...`, Tests: vcenterTests,
	},
	{
		Name: "vsphere: a word nobody knows is off (2)", In: "providers/vsphere.powerState",
		Old: "providers.PowerUnknown", New: "providers.PowerOff", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the last word of a VM that vCenter has lost counts (2)",
		In:   "providers/vsphere.inventory.vmState",
		Old:  "v.connection != string(types.VirtualMachineConnectionStateConnected)", New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the last word of a host that is not heard counts (2)",
		In:   "providers/vsphere.inventory.vmState",
		Old:  "h.connection != string(types.HostSystemConnectionStateConnected)", New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a host in standby speaks for its VMs (2)", In: "providers/vsphere.inventory.vmState",
		Old: "h.power != string(types.HostSystemPowerStatePoweredOn)", New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a host that is not told is connected (2)", In: "providers/vsphere.inventory.vmState",
		Old: "if !known { ... }", New: `
			if !known {
				return powerState(v.power), v.power, nil
			}`, Tests: vcenterTests,
	},
	{
		Name: "vsphere: a property that may not be read is left out", In: "providers/vsphere.inventory.vmState",
		Old: "if err := v.missingError(propPower, propConnection, propHost, propHA); err != nil { ... }", New: "",
		Tests: vcenterTests,
	},
	{
		Name: "vsphere: a VM that HA is about to restart is off (2)", In: "providers/vsphere.inventory.vmState",
		Old: "state == providers.PowerOff && v.protected", New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the first of two VMs speaks (3)", In: "providers/vsphere.inventory.findVM",
		Old: "case 1: ...", New: "default: return match[0], nil", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the VM's UUID is not told (3)", In: "providers/vsphere.inventory.observeVM",
		Old: "obs.SystemUUID = v.uuid", New: "", Tests: vcenterTests,
	},
	{
		Name: "vsphere: one byte order is looked up", In: "providers/vsphere.session.candidateRefs",
		Old: "orders := [][16]byte{u, providers.SwapUUID(u)}", New: "orders := [][16]byte{u}", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the byte orders of a UUID are two machines (3)", In: "providers/vsphere.canonicalOrder",
		Old: "if o := providers.SwapUUID(u); string(o[:]) < string(u[:]) { ... }", New: "", Tests: vcenterTests,
	},
	{
		Name: "vsphere: another machine is powered off (3)", In: "providers/vsphere.session.findOwnVM",
		Old: "if err := t.VerifyIdentity(providers.Observation{SystemUUID: v.uuid}); err != nil { ... }", New: "",
		Tests: vcenterTests,
	},
	{
		Name: "vsphere: the first page is all (3)", In: "providers/vsphere.session.retrievePages",
		Old: `got.Token == ""`, New: "true", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a page that does not come is empty (3)", In: "providers/vsphere.session.retrievePages",
		Old: `
			if err != nil {
				return inv, err
			}
			got = more.Returnval`, New: `
			if err != nil {
				return inv, nil
			}
			got = more.Returnval`, Tests: vcenterTests,
	},
	{
		Name: "vsphere: what an ended session does not find is not there", In: "providers/vsphere.asSessionError",
		Old: "asFault(err, &gone)", New: "gone != nil", Tests: vcenterTests,
	},
	{
		Name: "vsphere: what an ended session may not read is not there", In: "providers/vsphere.inventory.addObject",
		Old: "errors.Is(err, errSession)", New: "errors.Is(err, errSession) && false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: an ended session is not replaced", In: "providers/vsphere.Provider.withSession",
		Old: "!errors.Is(err, errSession)", New: "true", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a wrong password is sent again", In: "providers/vsphere.Provider.openSession",
		Old: "if err := p.refusals.CheckRefused(p.origin, sum, p.opts.Now()); err != nil { ... }",
		New: "if err := p.refusals.CheckRefused(p.origin, sum, p.opts.Now()); false { ... }", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a refusal that is not understood is the network's", In: "providers/vsphere.explainFault",
		Old: "case nil, *types.InvalidLogin, *types.PasswordExpired, *types.NoPermission: ...",
		New: "case *types.InvalidLogin, *types.PasswordExpired, *types.NoPermission: ...", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a refused log-in of others is the network's", In: "providers/vsphere.Provider.loggedIn",
		Old: `
			if err == nil || !joined {
				break
			}`, New: `
			if err == nil || !joined {
				break
			}
			err = context.DeadlineExceeded`, Tests: vcenterTests,
	},
	{
		Name: "vsphere: whoever answers is a vCenter (14)", In: "providers/vsphere.Provider.openSession",
		Old: "s.content.SessionManager == nil || s.content.SearchIndex == nil || s.content.ViewManager == nil",
		New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a redirect is followed (14)", In: "providers/vsphere.checkedAnswers.RoundTrip",
		Old: "resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError",
		New: "resp.StatusCode >= 400 && resp.StatusCode != http.StatusInternalServerError", Tests: vcenterTests,
	},
	{
		Name: "vsphere: an answer of any size is read", In: "providers/vsphere.New",
		Old: "Bytes: maxAnswer", New: "Bytes: maxAnswer << 10", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a VM that was suspended meanwhile is off already", In: "providers/vsphere.unlessAlready",
		Old: "asFault(err, &f) && f.ExistingState == state", New: "asFault(err, &f)", Tests: vcenterTests,
	},
	{
		Name: "vsphere: a suspended VM is resumed", In: "providers/vsphere.Provider.PowerOn",
		Old: "v.power == string(types.VirtualMachinePowerStateSuspended)", New: "false", Tests: vcenterTests,
	},
	{
		Name: "vsphere: the last word of a lost VM is told", In: "providers/vsphere.watch.handleChange",
		Old: "case !ok, o.connection != string(types.VirtualMachineConnectionStateConnected): ...",
		New: "case !ok: ...", Tests: vcenterTests,
	},
	{
		Name: "vsphere: what happened while nobody listened is not told", In: "providers/vsphere.watch.handleChange",
		Old: "first && o.power == string(types.VirtualMachinePowerStatePoweredOn)", New: "first", Tests: vcenterTests,
	},
	{
		Name: "vsphere: events are waited for in an ended session", In: "providers/vsphere.watch.watchOnce",
		Old: "errors.Is(err, errSession)", New: "errors.Is(err, errSession) && false", Tests: vcenterTests,
	},

	// Deciding to ask, to power off and to mark: steps 1 to 5.
	{
		Name: "fence: changing is off (2)", In: "taint/decide/fence.View.powerState",
		Old: "return v.Answers.Answer.State",
		New: `
			if v.Answers.Answer.State == providers.PowerChanging {
				return providers.PowerOff
			}
			return v.Answers.Answer.State`,
	},
	{
		Name: "fence: unknown is off after a while (2)", In: "taint/decide/fence.View.powerState",
		Old: "return v.Answers.Answer.State",
		New: `
			if v.Answers.Misses > 3 {
				return providers.PowerOff
			}
			return v.Answers.Answer.State`,
	},
	{
		Name: "fence: an old Off marks (1)", In: "taint/decide/fence.View.decideByAnswer",
		Old: "v.isOffTooOld()", New: "false",
	},
	{
		Name: "fence: an Off that was long on its way counts (1)", In: "taint/decide/proof.withoutStaleOff",
		Old: "took > TTL", New: "took > 100*TTL",
	},
	{
		Name: "fence: an Off that was on its way during a suspension counts (1)",
		In:   "taint/decide/proof.withoutStaleOff",
		Old:  "a.At.Age(a.Got)", New: "a.Got.Sub(a.At)", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "fence: an answer of an earlier life counts (step 2)", In: "taint/decide/fence.View.decideByRecord",
		Old: "v.Answers.Answer.At.Before(since)", New: "since.Wall.IsZero()",
	},
	{
		Name: "fence: a heartbeat makes the question for the run anew", In: "taint/decide/fence.View.decideByRecord",
		Old: "since = v.Memory.BackSince", New: "_ = v.Memory.BackSince",
	},
	{
		Name: "fence: a run from before the node was back counts", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "m.BackSince, m.backFenceID = l.Got, l.Record.ID", New: "m.backFenceID = l.Record.ID",
	},
	{
		Name: "fence: the run of an earlier fence's return counts", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "case l.Record.ID != m.backFenceID: ...",
		New: `case m.backFenceID == "": m.BackSince, m.backFenceID = l.Got, l.Record.ID`,
	},
	{
		Name: "fence: a node that went again is still back", In: "taint/decide/fence.Memory.ApplyLook",
		Old: `m.BackSince, m.backFenceID = providers.Instant{}, ""`, New: "",
	},
	{
		Name: "fence: no second snapshot (step 4)", In: "taint/decide/fence.View.decideByAnswer",
		Old: "!v.Look.Sent.After(v.Answers.Answer.Got)", New: "false",
	},
	{
		Name: "fence: marks another life (step 4)", In: "taint/decide/fence.View.decideByAnswer",
		Old: "!v.Memory.FirstLook.SameLife(v.Look)", New: "false",
	},
	{
		Name: "fence: a heartbeat keeps the answer (step 2)", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "!m.FirstLook.SameLife(l)", New: "false",
	},
	{
		Name: "fence: power-off without the record (step 3)", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "Action: action.WriteRecord{Record: rec}", New: "Action: action.PowerOff{}",
	},
	{
		Name: "fence: no look between record and power-off (step 3)", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got)", New: "false",
	},
	{
		Name: "fence: a power-off long after the device told which machine it is (step 3)",
		In:   "taint/decide/fence.View.isIdentityFresh",
		Old:  "v.Answers.Answer.At.Age(at) <= identityHolds", New: "v.Answers.Answer.At.Age(at) <= 1000*identityHolds",
	},
	{
		Name: "fence: the look does not count as the time of the act (step 3)",
		In:   "taint/decide/fence.View.isIdentityFresh",
		Old:  "v.Look.Sent.After(v.Answers.Answer.Got)", New: "false",
	},
	{
		Name: "fence: observe mode powers off", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.Facts.Mode != Fence && !powering", New: "false",
	},
	{
		Name: "fence: no grace before power-off", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "grace > 0", New: "false",
	},
	{
		Name: "fence: a beating kubelet is powered off", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "case !v.Fleet.Stale: ...", New: "case false: ...",
	},
	{
		Name: "guard: many power-offs at once (6)", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: `v.Fleet.Busy != ""`, New: "false",
	},
	{
		Name: "guard: control-plane nodes are powered off where nobody said so (7)",
		In:   "taint/decide/fence.View.checkPowerOffLimits",
		Old:  "v.ControlPlane && !v.Facts.Quorum", New: "false",
	},
	{
		Name: "guard: a node that is not Ready lowers its domain though it renews its Lease",
		In:   "taint/decide/fleet.node.unhealthyReason",
		Old:  "!n.unready || inDomain && renews", New: "!n.unready",
	},
	{
		Name: "guard: a node that is not Ready counts in the cluster (6)",
		In:   "taint/decide/fleet.node.unhealthyReason",
		Old:  "!n.unready || inDomain && renews", New: "!n.unready || renews",
	},
	{
		Name: "guard: a node that is not Ready counts in its domain though it missed a renewal (6)",
		In:   "taint/decide/fleet.node.unhealthyReason",
		Old:  "!n.missed && !n.beat.IsZero()", New: "!n.beat.IsZero()",
	},
	{
		Name: "guard: a node that was never seen to renew counts in its domain (6)",
		In:   "taint/decide/fleet.node.unhealthyReason",
		Old:  "!n.missed && !n.beat.IsZero()", New: "!n.missed",
	},
	{
		Name: "guard: a node that is being fenced counts in its domain (6)",
		In:   "taint/decide/fleet.node.unhealthyReason",
		Old:  `case n.fenced: return "marked, or being fenced"`, New: "",
	},
	{
		Name: "guard: the refusal names nobody", In: "taint/decide/fleet.Fleet.partOf",
		Old: "p.Unhealthy = s.describeUnhealthy()", New: "",
	},
	{
		Name: "guard: the refusal keeps the names to itself", In: "taint/decide/fence.describeFloor",
		Old: `text += ": " + p.Unhealthy`, New: "",
	},
	{
		Name: "guard: hosts of KubeVirt are powered off where nobody said so",
		In:   "taint/decide/fence.View.checkPowerOffLimits",
		Old:  "v.VMHost && !v.Facts.VMHosts", New: "false",
	},
	{
		Name: "guard: hosts of KubeVirt are never powered off", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "v.VMHost && !v.Facts.VMHosts", New: "v.VMHost",
	},
	{
		Name: "guard: a host of KubeVirt whose handler is late is none", In: "taint/decide/fence.IsVMHost",
		Old: "return ok", New: `return ok && labels[vmHostLabel] == "true"`,
	},
	{
		Name: "guard: nobody looks for hosts of KubeVirt", In: "taint/decide.Node.decideUnmarked",
		Old: "v.VMHost = fence.IsVMHost(l.Labels)", New: "",
	},
	{
		Name: "drill: hosts of KubeVirt are not told", In: "taint/drills.AskDevices",
		Old: "fence.IsVMHost(node.Labels) && !config.Fence.VMHosts", New: "false",
	},
	{
		Name: "config: kubeVirtHosts is read and not obeyed", In: "cmd/internal/config.Config.Settings",
		Old: "c.StormGuard.KubeVirtHosts == KubeVirtPowerOff", New: "false",
		Tests: wiring,
	},
	{
		Name: "config: no warning where another may lead before a power-off arrives",
		In:   "cmd/internal/config.reader.warnOfShortLease",
		Old:  "l.LeaseDuration >= least", New: "l.LeaseDuration > l.RenewDeadline",
		Tests: []string{"./cmd/internal/config -run ShortLease"},
	},
	{
		Name: "config: the quickest provider decides how long a Lease must last",
		In:   "cmd/internal/config.reader.warnOfShortLease",
		Old:  "cmp.Compare(a.Timeout, b.Timeout)", New: "cmp.Compare(b.Timeout, a.Timeout)",
		Tests: []string{"./cmd/internal/config -run ShortLease"},
	},
	{
		Name: "config: no warning of hosts of KubeVirt", In: "cmd/internal/config.reader.warnOfVMHosts",
		Old: "given || !c.fences()", New: "given || true",
	},
	{
		Name: "guard: no floor of healthy nodes (6)", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "p.IsBelowFloor()", New: "false",
	},
	{
		Name: "guard: a lost site's machines are powered off", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "!p.Lost.IsZero()", New: "false",
	},
	{
		Name: "guard: power-offs while a gateway is dead", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "p.HasDevicesCut()", New: "false",
	},
	{
		Name: "guard: power-offs while we are cut off", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "s.Back > 0", New: "false",
	},
	{
		Name: "guard: no cool-down after a storm", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: "p.Cool > 0", New: "false",
	},
	{
		Name: "guard: etcd loses its quorum (7)", In: "taint/decide/fence.View.checkQuorum",
		Old: "healthy < need", New: "false",
	},
	{
		Name: "guard: an even number of members has one more to spare (7)", In: "taint/decide/fence.View.checkQuorum",
		Old: "len(members)/2 + 1", New: "(len(members) + 1) / 2",
	},
	{
		Name: "guard: the machine counts for its own quorum (7)", In: "taint/decide/fence.View.checkQuorum",
		Old: "m.Healthy && m.Name != v.Look.Name", New: "m.Healthy",
	},
	{
		Name: "guard: an etcd that is not Ready counts (7)", In: "taint/decide/fence.View.checkQuorum",
		Old: "ready || !listed", New: "ready || true || listed",
	},
	{
		Name: "guard: unknown members, and several at once (7)", In: "taint/decide/fence.View.checkQuorum",
		Old: "!known && len(turn) > 0", New: "false",
	},
	{
		Name: "guard: a control-plane node without etcd's pod is known to have no member (7)",
		In:   "taint/decide/fence.View.etcdMembers",
		Old:  "!listed", New: "!listed && false",
	},
	{
		Name: "guard: etcd's members are not read before a decision (7)", In: "taint/decide/fence.View.needsEtcdPods",
		Old: "v.EtcdPods == nil", New: "false",
	},
	{
		Name: "guard: an announced power-off passes no guard (6)", In: "taint/decide/fence.View.decideByRecord",
		Old: `if announced {
		if no := v.checkPowerOffLimits(); no.why != "" {
			d := v.closeFence(taint.ResultCancelled, no.why)
			d.Detail, d.ReportOnceKey = no.detail, no.once
			return d
		}
	}`, New: "",
	},
	{
		Name: "fleet: the limit of power-offs is not kept (6)", In: "taint/decide/fleet.Fleet.busyNodes",
		Old: "n < f.maxTurns()", New: "true",
		Tests: []string{"./taint/decide/fleet ./test/sim"},
	},
	{
		Name: "fleet: a marked node is healthy (6)", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "l.Mark != nil", New: "false",
	},
	{
		Name: "fleet: a node that is being fenced is healthy (6)", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "l.Record.IsOpen()", New: "false",
	},
	{
		Name: "fleet: a silent node is healthy (6)", In: "taint/decide/fleet.node.unhealthyReason",
		Old: `case n.stale: return "silent"`, New: "",
	},
	{
		Name: "fleet: a floor is rounded down (6)", In: "taint/decide/fleet.Amount.atLeast",
		Old: "a.Percent*n + 99", New: "a.Percent * n",
	},
	{
		Name: "fleet: a node moves itself into another zone (6)", In: "taint/decide/fleet.Fleet.updateDomains",
		Old: `d.Fixed || n.domainValues[i] == ""`, New: "true",
	},
	{
		Name: "fleet: nodes that die one by one are a lost site", In: "taint/decide/fleet.Fleet.updateLost",
		Old: "last.Sub(n.at) <= n.duration", New: "true",
	},
	{
		Name: "fleet: a node that renewed once after a silence fell silent before that (6)",
		In:   "taint/decide/fleet.Fleet.updateLost",
		Old:  "last.Sub(n.at) <= n.duration", New: "last.Sub(n.since) <= n.duration",
	},
	{
		Name: "fleet: a renewal from before an outage counts as heard after it (6)",
		In:   "taint/decide/fleet.Fleet.ApplyLease",
		Old:  "n.at.Age(now) > shareOf(duration, missedAfter)", New: "false",
	},
	{
		Name: "fleet: after a suspension all are heard (15)", In: "taint/decide/fleet.Fleet.updateFlags",
		Old: "n.at.Age(now)", New: "now.Sub(n.at)",
	},
	{
		Name: "fleet: all Leases are stale after 25 s", In: "taint/decide/fleet.View.IsSettled",
		Old: "v.Longest", New: "DefaultDuration",
	},
	{
		Name: "fleet: the Lease of a node that is gone counts", In: "taint/decide/fleet.Fleet.scanNodes",
		Old: "f.longest = 0", New: "",
	},
	{
		Name: "fleet: a suspension is silence (15)", In: "taint/decide/fleet.Fleet.updateFlags",
		Old: "now.Sub(n.at)", New: "n.at.Age(now)",
	},
	{
		Name: "fleet: a suspension is not looked at in time", In: "taint/decide/fleet.Fleet.scanIfDue",
		Old: "f.scanned.Age(now) > f.due.Sub(f.scanned)", New: "now.After(f.due)",
	},
	{
		Name: "fleet: a device that was silent for long is news for ever (16)",
		In:   "taint/decide/fleet.Fleet.updateFlags",
		Old:  "now.Sub(n.mute) > muteTTL", New: "false",
	},
	{
		Name: "fleet: a device that never answered makes a dead gateway",
		In:   "taint/decide/fleet.Fleet.ApplyReachability",
		Old:  "n.spoke && n.mute.IsZero()", New: "n.mute.IsZero()",
	},
	{
		Name: "fleet: one read that works ends it that we are cut off", In: "taint/decide/fleet.Fleet.ApplyReadResult",
		Old: "f.failed >= cutAfter", New: "false",
	},
	{
		Name: "controller: a refusal by the API server is an outage", In: "taint/controller.base.noteReadResult",
		Old: "status.Status().Code >= 500", New: "true",
	},
	{
		Name: "controller: a lost site is told for each of its nodes", In: "taint/observe.Observer.isFirst",
		Old: "before && now.Sub(at) < onceFor", New: "before && at.IsZero()",
		Tests: observing,
	},
	{
		Name: "controller: a reload does not change the limits", In: "taint/controller.Reconciler.loadFleet",
		Old: "r.fleetLoaded && limits == r.limits", New: "r.fleetLoaded",
	},
	{
		Name: "kube: any pod that calls itself etcd's is one", In: "taint/kube.ListEtcdMembers",
		Old: `!static || p.Spec.NodeName == ""`, New: `false && static || p.Spec.NodeName == ""`,
	},
	{
		Name: "fence: all Leases stale, and yet (7)", In: "taint/decide/fence.View.checkGate",
		Old: "v.Fleet.AllSilent()", New: "false",
	},
	{
		Name: "fence: most are silent, and yet (15)", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "!v.Fleet.Heard, v.Fleet.SilentSince.IsZero()", New: "false",
	},
	{
		Name: "fence: an announced power-off is sent though most are silent (15)",
		In:   "taint/decide/fence.View.decideByRecord",
		Old:  "announced && !v.Fleet.Heard", New: "false",
	},
	{
		Name: "fence: a new leader sends an announced power-off before it knows the silence (15)",
		In:   "taint/decide/fence.View.decidePoweredOn",
		Old:  "!v.Fleet.Stale, v.Fleet.SilentSince.IsZero(), v.Now.Before(v.Fleet.SilentSince)", New: "false",
	},
	{
		Name: "fence: a refusal for good is tried again and again", In: "taint/decide/fence.View.decideByRecord",
		Old: "powering && v.powerState() != providers.PowerOff && v.Memory.PowerOffs.IsExhausted(v.Facts.Devices)",
		New: "false",
	},
	{
		Name: "fence: a kubelet that says NotReady and beats is marked", In: "taint/decide/fence.View.decideByAnswer",
		Old: "v.mayBeAlive()", New: "false",
	},
	{
		Name: "fence: a cache's attachments justify a mark", In: "taint/decide/fence.View.decideByAnswer",
		Old: "v.PendingWork == WorkCached", New: "false",
	},
	{
		Name: "fence: no back-off after an eviction", In: "taint/decide/fence.wasMarked",
		Old: "taint.ResultMarkRemoved, taint.ResultEvicted, taint.ResultReturned", New: "taint.ResultMarkRemoved",
	},
	{
		Name: "fence: a slow look makes every Off too old", In: "taint/decide/fence.View.isOffTooOld",
		Old: "!v.Look.Sent.After(v.Answers.Answer.Got)", New: "true",
	},
	{
		Name: "fence: an Off counts for the mark whatever its age", In: "taint/decide/fence.View.isOffTooOld",
		Old: "v.Answers.Answer.At.Age(v.Now) > armWithin", New: "false",
	},
	{
		Name: "fence: an Off of before a suspension counts without a look", In: "taint/decide/fence.View.isOffTooOld",
		Old: "v.Answers.Answer.At.Age(v.Now) > proof.TTL", New: "v.Now.Sub(v.Answers.Answer.At) > proof.TTL",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: an Off of before a suspension counts for the mark", In: "taint/decide/fence.View.isOffTooOld",
		Old: "v.Answers.Answer.At.Age(v.Look.Sent) > proof.TTL",
		New: "v.Look.Sent.Sub(v.Answers.Answer.At) > proof.TTL", Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: an Off and a look of before a suspension count for the mark",
		In:   "taint/decide/fence.View.isOffTooOld",
		Old:  "v.Answers.Answer.At.Age(v.Now) > armWithin", New: "v.Now.Sub(v.Answers.Answer.At) > armWithin",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: power-off on a look of before a suspension", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.Look.Got.Age(v.Now) > proof.TTL", New: "v.Now.Sub(v.Look.Got) > proof.TTL",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: power-off on an On of before a suspension", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.Answers.Answer.Got.Age(read) <= proof.TTL", New: "read.Sub(v.Answers.Answer.Got) <= proof.TTL",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: a suspension counts as silence", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.Now.Sub(v.Fleet.SilentSince)", New: "v.Fleet.SilentSince.Age(v.Now)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fence: after a suspension no device is asked for long", In: "taint/decide/fence.View.askEvery",
		Old: "v.Answers.Answer.Got.Age(v.Now)", New: "v.Now.Sub(v.Answers.Answer.Got)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a power-off by a clock that runs ahead never times out",
		In:   "taint/decide/fence.View.decideByRecord",
		Old:  "v.ageOf(rec.At) > v.Facts.PowerOffTimeout", New: "v.Now.Wall.Sub(rec.At) > v.Facts.PowerOffTimeout",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a delay by a clock that runs ahead lasts for an hour",
		In:   "taint/decide/fence.View.decidePoweredOn",
		Old:  "v.instantOf(v.Look.Record.At)", New: "providers.InstantOf(v.Look.Record.At)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a failed power-off by a clock that runs ahead rests for an hour",
		In:   "taint/decide/fence.View.retryDelayLeft",
		Old:  "v.ageOf(r.At)", New: "v.Now.Wall.Sub(r.At)", Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a mark that was lifted by a clock that runs ahead keeps the next away for an hour",
		In:   "taint/decide/fence.View.rearmDelayLeft",
		Old:  "v.ageOf(r.At)", New: "v.Now.Wall.Sub(r.At)", Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: after a clock that runs ahead a machine that ran is off by us",
		In:   "taint/decide/fence.View.newRecord",
		Old:  "!v.Memory.PowerOns.LastOn.After(v.instantOf(old.At))",
		New:  "!v.Memory.PowerOns.LastOn.Wall.After(old.At)", Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a power-on by a clock that runs ahead boots for an hour",
		In:   "taint/decide/fence.View.bootTimeLeft",
		Old:  "v.ageOf(r.LastPowerOn())", New: "v.Now.Wall.Sub(r.LastPowerOn())",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: a power-on after a clock that runs ahead waits for an hour",
		In:   "taint/decide/fence.View.decideAfterFence",
		Old:  "v.Facts.PostFence.Delay - v.ageOf(rec.At)", New: "v.Facts.PostFence.Delay - v.Now.Wall.Sub(rec.At)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: an answer after a clock that runs ahead is asked for during an hour",
		In:   "taint/decide/fence.View.decideAfterFence",
		Old:  "!v.Answers.Answer.At.After(v.instantOf(rec.At))", New: "!v.Answers.Answer.At.Wall.After(rec.At)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name:  "records: who turned it on after a clock that runs ahead is not seen",
		In:    "taint/decide/fence.View.decideAfterFence",
		Old:   "v.Memory.PowerOns.LastOn.After(v.instantOf(rec.At)) && rec.PostFence == \"\"",
		New:   "v.Memory.PowerOns.LastOn.Wall.After(rec.At) && rec.PostFence == \"\"",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "records: power-ons by a clock that runs ahead count for longer than a day",
		In:   "taint/decide/fence.View.decideAfterFence",
		Old:  "v.ageOf(last) >= taint.Day", New: "false", Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "power-on: on a look of before a suspension", In: "taint/decide/fence.View.decideAfterFence",
		Old: "v.Look.Got.Age(v.Now) > proof.TTL", New: "v.Now.Sub(v.Look.Got) > proof.TTL",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "fleet: the grace does not begin anew after an outage (15)", In: "taint/decide/fleet.Fleet.View",
		Old: "f.heardSince.After(from)", New: "false",
	},
	{
		Name: "fleet: silence counts while nobody is heard (15)", In: "taint/decide/fleet.Fleet.updateHeard",
		Old: `
			case !heard:
				f.heardSince = providers.Instant{}`,
		New: "case !heard && false:",
	},
	{
		Name: "fleet: an outage too short to be stale counts (15)", In: "taint/decide/fleet.Fleet.updateHeard",
		Old: "2*f.beating", New: "2*f.fresh",
	},
	{
		Name: "fleet: the first heartbeat after a pause counts among many (15)",
		In:   "taint/decide/fleet.Fleet.ApplyLease",
		Old:  "f.scanIfDue(now)", New: "",
	},
	{
		Name: "fleet: Leases of nobody count (7)", In: "taint/decide/fleet.Fleet.countNode",
		Old: `
			if !n.exists {
				return
			}`,
		New: "",
	},
	{
		Name: "fleet: a Lease lasts for as long as it says", In: "taint/decide/fleet.Fleet.ApplyLease",
		Old: "duration == 0 || n.odd", New: "duration == 0",
	},
	{
		Name: "fleet: an event outlives an answer of On", In: "taint/decide/fleet.Fleet.ApplyAnswer",
		Old: "n != nil && a.State == providers.PowerOn && a.At.After(n.hint)", New: "n != nil && false",
	},
	{
		Name: "fleet: a device that is polled vouches for its own answer", In: "taint/decide/fleet.View.HasOutsideHint",
		Old: `v.Hint != "" && v.Hint != Poll`, New: `v.Hint != ""`,
	},
	{
		Name: "fleet: a poll's hint takes another's place", In: "taint/decide/fleet.Fleet.ApplyHint",
		Old: "by != Poll || !n.hasHint(now)", New: "true",
	},
	{
		Name: "fleet: an end is noticed twice", In: "taint/decide/fleet.Fleet.FirstSuspicion",
		Old: "n == nil || n.counted", New: "n == nil",
	},
	{
		Name: "fleet: a line that broke is silence (15)", In: "taint/decide/fleet.Fleet.View",
		Old: "v.Stale, v.Missed = n.stale, now.Sub(n.at) > shareOf(n.duration, missedAfter)",
		New: "v.Stale, v.Missed = n.stale || n.hasHint(now), now.Sub(n.at) > shareOf(n.duration, missedAfter)",
	},
	{
		Name: "line: a refusal is told as the machine's end", In: "taint/wake/line.outcomeOf",
		Old: "case unix.ECONNREFUSED, unix.ECONNRESET: ...",
		New: "case unix.ECONNREFUSED, unix.ECONNRESET: return silent",
	},
	{
		Name: "line: what fails on our side is told as the machine's end", In: "taint/wake/line.outcomeOf",
		Old: "default: ...", New: "default: return silent",
	},
	{
		Name: "line: told without another attempt", In: "taint/wake/line.worker.handleBreak",
		Old: "w.startConnect(c, now)", New: "w.l.OnBreak(c.node)\n\tw.startConnect(c, now)",
	},
	{
		Name: "line: a node that never accepted one is told", In: "taint/wake/line.conn.applyOutcome",
		Old: "c.wasOpen && !c.reported", New: "!c.reported",
	},
	{
		Name: "line: told again and again", In: "taint/wake/line.conn.applyOutcome",
		Old: "c.wasOpen && !c.reported", New: "c.wasOpen",
	},
	{
		Name: "line: to ourselves, or to a cloud's metadata", In: "taint/wake/line.Lines.SetNodes",
		Old: "(IsUsable(n.Address) || l.loopback && n.Address.IsLoopback())", New: "true",
	},
	{
		Name: "line: connections are left when the leadership ends", In: "taint/wake/line.worker.close",
		Old: "w.closeConn(c)", New: "_ = c",
	},
	{
		Name: "controller: a disabled node is polled, and has a line", In: "taint/wake.Options.findTargets",
		Old: "config.Mode(n).Mode != fence.Disabled", New: "config.Mode(n).Mode <= fence.Disabled",
	},
	{
		Name: "controller: who is being fenced is polled", In: "taint/wake.Options.mayPoll",
		Old: "!taint.IsFenced(n, o.Key)", New: "true",
	},
	{
		Name: "controller: a poll's Unknown is a hint", In: "taint/wake.findOff",
		Old: "case providers.PowerUnknown: ...", New: "case providers.PowerUnknown: off = append(off, i)",
	},
	{
		Name: "controller: a poll that has most machines off at once is a hint", In: "taint/wake.poller.askUnit",
		Old: "batch && len(off) > 1 && 2*len(off) > len(answers)", New: "false",
	},
	{
		Name: "controller: polls take all of a device's limits", In: "taint/wake.poller.setTargets",
		Old: "w.PerSecond > 0", New: "false",
	},
	{
		Name: "controller: a distrusted device gives a hint", In: "taint/wake.poller.askUnit",
		Old: `machine.DistrustedBy(p.Fleet)(ms[i]) == ""`, New: `machine.DistrustedBy(p.Fleet)(ms[i]) != "nobody"`,
	},
	{
		Name: "pace: storage pods wait for older fences' pods", In: "taint/decide/fleet.compareTurns",
		Old: "compareFirst(a.First, b.First)", New: "0",
	},
	{
		Name: "pace: the younger fence first", In: "taint/decide/fleet.compareTurns",
		Old: "a.Since.Compare(b.Since)", New: "b.Since.Compare(a.Since)",
	},
	{
		Name: "pace: who waits longest has no share (16)", In: "taint/decide/fleet.Pace.NextTurn",
		Old: "p.given%turnsShared != 0", New: "p.given > 0",
	},
	{
		Name: "pace: any number of writes at the same time", In: "taint/decide/fleet.Pace.NextTurn",
		Old: "p.under >= p.CurrentLimit()", New: "false",
	},
	{
		Name: "pace: turns are not given back", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "p.under--", New: "",
	},
	{
		Name: "pace: another than who leaves the line goes from it", In: "taint/decide/fleet.Pace.RemoveTurn",
		Old: "slices.Delete(p.waiting, i, i+1)", New: "slices.Delete(p.waiting, 0, 1)",
	},
	{
		Name: "pace: as many writes as ever while there is no room", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "p.window/2", New: "p.window-1",
	},
	{
		Name: "pace: one crowd counts as often as it has writes", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "t.number > p.narrowed", New: "true",
	},
	{
		Name: "pace: nothing is tried any more", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "min(paceLeast, most)", New: "1",
	},
	{
		Name: "pace: more writes than the operator allows", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "min(paceLeast, most)", New: "paceLeast",
	},
	{
		Name: "pace: one success makes room for another write", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "1/p.window", New: "1",
	},
	{
		Name: "pace: fewer writes for ever", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "1/p.window", New: "0",
	},
	{
		Name: "pace: the window grows beyond the limit", In: "taint/decide/fleet.Pace.FinishTurn",
		Old: "min(p.window+1/p.window, most)", New: "p.window+1/p.window",
	},
	{
		Name: "gate: a run that ended goes on when it is its turn", In: "taint/controller.gate.takeTurn",
		Old: "ctx.Err() == nil", New: "true", Tests: glue,
	},
	{
		Name: "gate: a turn that comes at a run's end is lost", In: "taint/controller.gate.takeTurn",
		Old: "!waited", New: "waited && false", Tests: glue,
	},
	{
		Name: "gate: who gave up keeps its place", In: "taint/controller.gate.takeTurn",
		Old: "waited := g.pace.RemoveTurn(t)", New: "waited := true", Tests: glue,
	},
	{
		Name: "gate: who gives a turn back opens to nobody", In: "taint/controller.gate.returnTurn",
		Old: "g.grantTurns()", New: "", Tests: []string{"./taint/controller -short -run TestRunsShareTheGate"},
	},
	{
		Name: "workers: who waits to write keeps others from being looked at", In: "taint/controller.work.writeEach",
		Old: "w.st.releaseSlot()", New: "", Tests: glue,
	},
	{
		Name: "controller: all nodes of a lost zone are read at the same time", In: "taint/controller.New",
		Old: "looksAtOnce", New: "concurrency", Tests: glue,
	},
	{
		Name: "workers: storage pods wait for other nodes' pods", In: "taint/controller.work.writeEach",
		Old: "First: p.first", New: "First: false", Tests: glue,
	},
	{
		Name: "workers: the older fence waits for the younger", In: "taint/controller.work.writeEach",
		Old: "Since: began", New: "Since: began.Add(-began.Mono)", Tests: glue,
	},
	{
		Name: "workers: a turn is given back before the outcome is known", In: "taint/controller.work.writeEach",
		Old: `
			if why := ended(p, err); why != nil {
				end(why)
			}
			if held {
				w.gate.returnTurn(turn, kube.IsCrowded(err))
			}`,
		New: `
			if held {
				w.gate.returnTurn(turn, kube.IsCrowded(err))
			}
			if why := ended(p, err); why != nil {
				end(why)
			}`,
		Tests: glue,
	},
	{
		Name: "workers: a write that finds no room is a pod's failure", In: "taint/controller.work.writeEach",
		Old: "case apierrors.IsTooManyRequests(err): ...", New: "", Tests: glue,
	},
	{
		Name: "workers: writes that find no room leave the pace as it is", In: "taint/controller.batch.writeItem",
		Old: "b.gate.returnTurn(turn, true)", New: "b.gate.returnTurn(turn, false)", Tests: glue,
	},
	{
		Name: "workers: writes that come to no end leave the pace as it is", In: "taint/controller.work.writeEach",
		Old: "kube.IsCrowded(err)", New: "false && kube.IsCrowded(err)", Tests: glue,
	},
	{
		Name: "workers: a turn is kept while a write waits for room", In: "taint/controller.batch.writeItem",
		Old: "b.gate.returnTurn(turn, true)", New: "", Tests: glue,
	},
	{
		Name: "workers: what found no room is not written again", In: "taint/controller.batch.writeItem",
		Old: "tries == crowdedTries", New: "true", Tests: glue,
	},
	{
		Name: "workers: what finds no room is written for ever", In: "taint/controller.batch.writeItem",
		Old: "tries == crowdedTries", New: "false", Tests: glue,
	},
	{
		Name: "workers: the API server's patience is not asked", In: "taint/controller.batch.writeItem",
		Old: "time.Duration(seconds)*time.Second", New: "0*time.Duration(seconds)", Tests: glue,
	},
	{
		Name: "workers: what found no room is written again at once", In: "taint/controller.batch.writeItem",
		Old: "100*time.Millisecond", New: "0", Tests: glue,
	},
	{
		Name: "workers: an API server may let a pod wait for an hour", In: "taint/controller.batch.writeItem",
		Old: "maxCrowdedRest", New: "time.Hour", Tests: glue,
	},
	{
		Name: "workers: the first try's proof serves the others (1)", In: "taint/controller.batch.writeItem",
		Old: "err != nil", New: "tries == 1 && err != nil", Tests: glue,
	},
	{
		Name: "workers: a write that waits for room outlasts its run", In: "taint/controller.batch.writeItem",
		Old: "case <-run.Done(): ...", New: "", Tests: glue,
	},
	{
		Name: "kube: an API server without room is none", In: "taint/kube.IsCrowded",
		Old: "apierrors.IsTooManyRequests(err)", New: "false", Tests: kubeReads,
	},
	{
		Name: "kube: an API server that is late has room", In: "taint/kube.IsCrowded",
		Old: "apierrors.IsTimeout(err)", New: "false", Tests: kubeReads,
	},
	{
		Name: "polls: who looks dead is polled", In: "taint/wake.Options.mayPoll",
		Old: "!o.fleetView(n.Name).Stale", New: "true",
	},
	{
		Name: "polls: who is not Ready is polled", In: "taint/wake.Options.mayPoll",
		Old: "taint.Condition(n, corev1.NodeReady).Status == corev1.ConditionTrue", New: "n != nil",
	},
	{
		Name: "polls: who is to be left alone is polled", In: "taint/wake.Options.mayPoll",
		Old: `config.Excluded(n) == ""`, New: "true",
	},
	{
		Name: "polls: machines that share limits are asked at the same time", In: "taint/wake.poller.setTargets",
		Old: "cmp.Or(limiter.LimitGroup(m.Target), key)", New: "cmp.Or(key, limiter.LimitGroup(m.Target))",
	},
	{
		Name: "polls: all devices are asked at once", In: "taint/wake.poller.setTargets",
		Old: "time.Duration(i)", New: "time.Duration(i*0)",
	},
	{
		Name: "polls: who is not to be asked any more is asked", In: "taint/wake.poller.setTargets",
		Old: "by[key] == nil", New: "false",
	},
	{
		Name: "polls: each list gives a unit another turn", In: "taint/wake.poller.setTargets",
		Old: "u == nil", New: "true",
	},
	{
		Name: "polls: one call for all is made for each", In: "taint/wake.poller.setTargets",
		Old: "if batch { ... }", New: "_ = batch",
	},
	{
		Name: "polls: that it takes longer is said again and again", In: "taint/wake.poller.setTargets",
		Old: "longest > p.slow", New: "longest > 0",
	},
	{
		Name: "polls: a device that does not answer is asked as often", In: "taint/wake.poller.askUnit",
		Old: "min(2*u.slower, pollAgain)", New: "1",
	},
	{
		Name: "polls: a device that does not answer is hardly asked any more", In: "taint/wake.poller.askUnit",
		Old: "min(2*u.slower, pollAgain)", New: "2*u.slower",
	},
	{
		Name: "polls: a device that answers again is asked seldom", In: "taint/wake.poller.askUnit",
		Old: "u.slower = 1", New: "",
	},
	{
		Name: "polls: one machine alone is most of them", In: "taint/wake.poller.askUnit",
		Old: "len(off) > 1", New: "len(off) > 0",
	},
	{
		Name: "polls: the same machine is asked each time", In: "taint/wake.poller.askUnit",
		Old: "u.next++", New: "",
	},
	{
		Name: "polls: a provider that is not polled any more is asked", In: "taint/wake.devices.updatePollers",
		Old: "p.stop()", New: "_ = p",
	},
	{
		Name: "polls: an Off wakes nobody", In: "taint/wake.poller.reportOff",
		Old: "p.wakeNode(ctx, node)", New: "",
	},
	{
		Name: "polls: an Off is no hint", In: "taint/wake.poller.reportOff",
		Old: "f.ApplyHint(node, fleet.Poll, p.Now.Instant())", New: "",
	},
	{
		Name: "polls: it ends before its questions do", In: "taint/wake.poller.stop",
		Old: "p.done.Wait()", New: "",
	},
	{
		Name: "lines: one that broke is no hint", In: "taint/wake.lines.noteBroken",
		Old: "l.addHint(node, fleet.Line)", New: "_ = fleet.Line",
	},
	{
		Name: "lines: one that broke wakes nobody", In: "taint/wake.lines.wakeBroken",
		Old: "l.wakeNode(ctx, node)", New: "",
	},
	{
		Name: "lines: to an address that is no machine's", In: "taint/wake.addressOf",
		Old: "line.IsUsable(ip)", New: "(ip.IsValid() || line.IsUsable(ip))",
	},
	{
		Name: "lines: to an external address", In: "taint/wake.addressOf",
		Old: "a.Type == corev1.NodeInternalIP", New: "true",
	},
	{
		Name: "line: a machine that was back and went is not told", In: "taint/wake/line.conn.applyOutcome",
		Old: "c.reported = false", New: "",
	},
	{
		Name: "line: port 0 is one", In: "taint/wake/line.Lines.SetNodes",
		Old: "port != 0", New: "true",
	},
	{
		Name: "line: a node that moved keeps its line", In: "taint/wake/line.worker.applyWanted",
		Old: "a != c.address", New: "false && a != c.address",
	},
	{
		Name: "line: a node that is not wanted keeps its line", In: "taint/wake/line.worker.applyWanted",
		Old: "!ok || a != c.address || port != w.port", New: "ok && a != c.address",
	},
	{
		Name: "line: a kubelet that hangs up again and again is called without rest",
		In:   "taint/wake/line.conn.noteEnd",
		Old:  "c.tries == 1", New: "true",
	},
	{
		Name: "line: who never accepts is called as often as ever", In: "taint/wake/line.conn.nextRest",
		Old: "c.tries++", New: "c.tries = 1",
	},
	{
		Name: "line: more lines than there are file descriptors", In: "taint/wake/line.Lines.limitLines",
		Old: "len(want) <= room", New: "true",
	},
	{
		Name: "line: the kernel looks after nobody", In: "taint/wake/line.newSocket",
		Old: "{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}", New: "{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0}",
		Tests: []string{"./taint/wake/line -run TestSocket"},
	},
	{
		Name: "controller: a new leader notices what a fence knows", In: "taint/observe.answers.reportFirstSignal",
		Old: "l.Record != nil && !l.IsAliveSince(l.Record)", New: "false",
		Tests: glue,
	},
	{
		Name: "fleet: a power-off's turn ends when the machine is off (6)", In: "taint/decide/fleet.Fleet.ApplyRecord",
		Old: "case r.IsOpen() && r.PowerOff: ...", New: "",
	},
	{
		Name: "fleet: a fence that hangs keeps its turn (16)", In: "taint/decide/fleet.Fleet.ApplyRecord",
		Old: "n.sights.InstantOf(r.At, now).Add(turnTTL)", New: "providers.Instant{}",
	},
	{
		Name: "records: a turn by a clock that runs ahead lasts for an hour (16)",
		In:   "taint/decide/fleet.Fleet.ApplyRecord",
		Old:  "n.sights.InstantOf(r.At, now)", New: "providers.InstantOf(r.At)",
		Tests: []string{"./taint/decide/fleet"},
	},
	{
		Name: "records: a turn counts from the last change of the Node (16)",
		In:   "taint/decide/fleet.Fleet.ApplyRecord",
		Old:  "n.sights.WithRecord(r, now)", New: "taint.Sightings(nil).WithRecord(r, now)",
		Tests: []string{"./taint/decide/fleet"},
	},
	{
		Name: "fleet: a hint of before a suspension lasts", In: "taint/decide/fleet.node.hasHint",
		Old: "n.hint.Age(now)", New: "now.Sub(n.hint)", Tests: []string{"./taint/decide/fleet"},
	},
	{
		Name: "fleet: a deleted Node keeps its turn (6)", In: "taint/decide/fleet.Fleet.RemoveNode",
		Old: "delete(f.turns, name)", New: "",
	},
	{
		Name: "evict: the same mark again is proven by what was asked before it (1)", In: "taint/decide/evict.markOf",
		Old: `l.Mark.Value + " " + l.Record.Token()`, New: "l.Mark.Value",
	},
	{
		Name: "evict: the mark goes by the cache's attachments (11)", In: "taint/decide/evict.View.readFirst",
		Old: "ends || forces || names || waits && v.Memory.ListedAt.Age(v.Now) >= relistEvery",
		New: "forces || names || waits && v.Memory.ListedAt.Age(v.Now) >= relistEvery",
	},
	{
		Name: "evict: volumes are cleared before all are known (9)", In: "taint/decide/evict.View.readFirst",
		Old: "len(pods) > 0 && (ends || waits || forces || clears)", New: "len(pods) > 0 && clears && false",
	},
	{
		Name: "evict: a taint landed when it was first seen (F2)",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "known && s.Resumed.Equal(seen) && !s.From.After(s.Lost)", New: "false",
	},
	{
		Name: "evict: a taint may have landed before the node was not Ready",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "!s.From.After(s.Lost)", New: "true",
	},
	{
		Name: "evict: a stock controller that counts anew is not waited for (F2)",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "s.Resumed.After(seen)", New: "false",
		Tests: []string{"./test/sim -run TestStockCountsAnewAfterAnOutage"},
	},
	{
		Name: "evict: a taint counts by the controller-manager's clock alone (F2)",
		In:   "taint/decide/evict.StockEviction.IsAboutToDelete",
		Old:  "s.possibleStarts(t, now)", New: "s.possibleStarts(t, now)[2:]",
		Tests: []string{"./test/sim -run TestStockCountsFromOurOwnSight"},
	},
	{
		Name: "evict: our own sight of a taint goes by a clock that was set (F2)",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "windowAt(asOf(now, seen)), windowAt(seen.Wall)", New: "windowAt(seen.Wall)",
		Tests: []string{"./taint/decide/evict -run TestStockDue"},
	},
	{
		Name: "evict: our own sight of a taint goes by a clock that stood still (F2)",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "windowAt(asOf(now, seen)), windowAt(seen.Wall)", New: "windowAt(asOf(now, seen))",
		Tests: []string{"./taint/decide/evict -run TestStockDue"},
	},
	{
		Name: "evict: the patience for stock eviction goes by a clock that was set (F2)",
		In:   "taint/decide/evict.StockEviction.isDeletionNear",
		Old:  "asOf(now, s.From)", New: "s.From.Wall",
		Tests: []string{"./taint/decide/evict -run TestStockDue"},
	},
	{
		Name: "evict: a taint counts by our own sight alone (F2)",
		In:   "taint/decide/evict.StockEviction.possibleStarts",
		Old:  "t.TimeAdded != nil", New: "false",
		Tests: []string{"./test/sim -run TestStockCountsFromOurOwnSight"},
	},
	{
		Name: "evict: each look sees a taint for the first time (F2)", In: "taint/decide/evict.TaintTimes.WithLook",
		Old: "!known", New: "!known || true",
		Tests: []string{"./taint/decide/evict -run TestTaintTimes"},
	},
	{
		Name: "evict: a taint that was added again is the one from before (F2)",
		In:   "taint/decide/evict.TaintTimes.firstSeen",
		Old:  "o.Added.Equal(timeAdded(t))", New: "true",
		Tests: []string{"./taint/decide/evict -run TestTaintTimes"},
	},
	{
		Name: "evict: the mark forgets when taints were seen (F2)", In: "taint/decide/evict.Memory.ApplyLook",
		Old: "*m = Memory{id: markOf(l), Resumed: m.Resumed, lastBeforeGap: m.lastBeforeGap, lastLook: m.lastLook, " +
			"taintTimes: m.taintTimes}",
		New:   "*m = Memory{id: markOf(l), Resumed: m.Resumed, lastLook: m.lastLook}",
		Tests: []string{"./taint/decide/evict -run TestTaintTimes"},
	},
	{
		Name: "recovery: a tombstone that waited is sent into stock eviction (F2)", In: "taint/decide.Node.HoldsFor",
		Old: "p.UID == uid && stock.IsAboutToDelete(p, now)", New: "false && stock.IsAboutToDelete(p, now)",
	},
	{
		Name: "recovery: stock eviction of one pod holds up the others", In: "taint/decide.Node.HoldsFor",
		Old: "p.UID == uid && stock.IsAboutToDelete(p, now)", New: "stock.IsAboutToDelete(p, now)",
	},
	{
		Name: "recovery: a policy's tombstone is sent into stock eviction (F2)", In: "taint/decide.Node.HoldsFor",
		Old: `a.Policy != ""`, New: "false",
	},
	{
		Name: "exclude: a pause that is over goes on", In: "taint/decide/fence.ExclusionReason",
		Old: "!p.IsOver(now)", New: "true",
	},
	{
		Name: "exclude: a pause does not count (8)", In: "taint/decide/fence.ExclusionReason",
		Old: "!p.IsOver(now)", New: "false",
	},
	{
		Name: "exclude: a time that is none ends a pause (8)", In: "taint/decide/fence.newPause",
		Old: "p.BadUntil = until", New: "p.BadUntil, p.Until = until, time.Unix(0, 0)",
	},
	{
		Name: "exclude: the label of medik8s does not count (8)", In: "taint/decide/fence.ExclusionReason",
		Old: `node.Labels[excludeLabel] == "true"`, New: "false",
	},
	{
		Name: "exclude: another's maintenance does not count (8)", In: "taint/decide/fence.ExclusionReason",
		Old: "hasCondition(node, maintenance)", New: "false",
	},
	{
		Name: "exclude: a condition counts whatever it says", In: "taint/decide/fence.hasCondition",
		Old: "c.Status == corev1.ConditionTrue", New: "true",
	},
	{
		Name: "exclude: a cordon always counts", In: "taint/decide/fence.KeepOnReason",
		Old: "cordoned && node.Spec.Unschedulable", New: "node.Spec.Unschedulable",
	},
	{
		Name: "exclude: a drain keeps no machine on (8)", In: "taint/decide/fence.View.checkPowerOffLimits",
		Old: `v.Facts.KeptOn != ""`, New: "false",
	},
	// taint/replay: a recording leaves the cluster, and what it is played to is believed.
	{
		Name: "replay: what stands before an @ is recorded (12)", In: "taint/recording.EncodeJSON",
		Old: `userinfo.ReplaceAll(bytes.TrimSuffix(out.Bytes(), []byte("\n")), []byte("://"))`,
		New: `bytes.TrimSuffix(out.Bytes(), []byte("\n"))`,
	},
	{
		Name: "replay: every annotation of a Node is recorded (12)", In: "taint/recording.slimNode",
		Old: `domain == "forcefence.io"`, New: `domain != ""`,
	},
	{
		Name: "replay: conditions' texts are recorded (12)", In: "taint/recording.slimNode",
		Old: "corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}", New: "c",
	},
	{
		Name: "replay: pods' messages are recorded (12)", In: "taint/recording.podsOf",
		Old: `out[i].Message = ""`, New: `_ = out[i].Message`,
	},
	{
		Name: "replay: a decision that differs is the same", In: "taint/replay.diffSteps",
		Old: "bytes.Equal(then, now)", New: "true || bytes.Equal(then, now)",
	},
	{
		Name: "replay: a difference that the table does not show is none", In: "taint/replay.player.addDecision",
		Old: "!over && words == t.shown", New: "(over || true) && words == t.shown",
	},
	{
		Name: "replay: another text ends the course", In: "taint/replay.player.applyLine",
		Old: `in != nil && !slices.Equal(in, []string{"detail"})`, New: "in != nil",
	},
	{
		Name: "replay: an earlier name of an action differs", In: "taint/recording.Line.DecodeStep",
		Old: "cmp.Or(currentNames[s.Do], s.Do)", New: "s.Do",
	},
	{
		Name: "replay: an earlier name of a shadow action differs", In: "taint/recording.Line.DecodeStep",
		Old: "cmp.Or(currentNames[s.Would], s.Would)", New: "s.Would",
	},
	{
		Name: "replay: after a gap the recording goes on", In: "taint/recording.Recorder.writeLine",
		Old: "c.Tape == nil || c.gap", New: "c.Tape == nil",
	},
	{
		Name: "replay: a missing line is passed over", In: "taint/replay.player.playLine",
		Old: "t == nil || t.lost || l.Course != t.began || l.N != t.lines",
		New: "t == nil || t.lost || l.Course != t.began",
	},
	{
		Name: "replay: another process's line is taken for the course's", In: "taint/replay.player.playLine",
		Old: "t == nil || t.lost || l.Course != t.began || l.N != t.lines", New: "t == nil || t.lost || l.N != t.lines",
	},
	{
		Name: "replay: a node that stays silent pushes all others out", In: "taint/recording.Recorder.writeLine",
		Old: "c.bytes > maxCourseBytes", New: "false",
	},
	{
		Name: "replay: reads of an earlier version differ", In: "taint/recording.Line.DecodeStep",
		Old: "s.Returned = false", New: "",
	},
	{
		Name: "replay: what shadow mode said before differs in an earlier version",
		In:   "taint/recording.Line.DecodeStep",
		Old:  `s.Record, s.Phase = "", ""`, New: "",
	},
	{
		Name: "replay: what storage says of idle nodes is recorded", In: "taint/recording.Recorder.isRecorded",
		Old: "c.lines > 0", New: "c.Tape != nil",
	},
	{
		Name: "replay: rest ends no course", In: "taint/recording.Recorder.Apply",
		Old: "defer c.resetLines()", New: "",
	},
	{
		Name: "replay: a newer recording is read", In: "taint/recording.Tally.ReadLines",
		Old: "l.Version > version", New: "false && l.Version > version",
	},
	{
		Name: "replay: lines are as long as they like", In: "taint/recording.lineOf",
		Old: "len(out)+len(part) > maxLine", New: "false",
	},
	{
		Name: "replay: an act that only one configuration does changes nothing", In: "taint/replay.player.playPass",
		Old: "!then.step.HasEffect() && !step.HasEffect()", New: "!step.HasEffect()",
	},
	{
		Name: "replay: other limits are not kept", In: "taint/replay.player.playPass",
		Old: "f.view.WithLimits(p.other.Limits)", New: "f.view",
	},
	{
		Name: "replay: escapes reach the terminal", In: "taint/recording.Step.String",
		Old: "CleanText(text)", New: "text",
	},
	{
		Name: "recorder: a slow disk takes all memory", In: "cmd/internal/app.recorder.PutLine",
		Old: "r.bytes+len(line) > maxQueuedBytes", New: "false", Tests: recorderTests,
	},
	{
		Name: "recorder: the files grow without end", In: "cmd/internal/app.recorder.writeLine",
		Old: "r.size+int64(len(headed)) > r.maxFileBytes", New: "false", Tests: recorderTests,
	},
	{
		Name: "recorder: another file is cut and renamed", In: "cmd/internal/app.recorder.checkFile",
		Old: "string(begin) != recording.HeaderPrefix[:len(begin)]", New: "false", Tests: recorderTests,
	},
	{
		Name: "recorder: everybody may read it", In: "cmd/internal/app.recorder.checkFile",
		Old: "info.Mode().Perm()&0o077 != 0", New: "false", Tests: recorderTests,
	},
	{
		Name: "recorder: a torn line stays in the middle", In: "cmd/internal/app.wholeLinesSize",
		Old: "return end - n + int64(i) + 1, nil", New: "return end, nil", Tests: recorderTests,
	},
	// taint/view/explain: a wrong answer would mislead whoever asks before the outage, or in it.
	{
		Name: "explain: who is heard falls silent with the node", In: "taint/view/explain.play.advanceTime",
		Old: "!o.next.After(p.Now)", New: "false && o.next.After(p.Now)",
	},
	{
		Name: "explain: the configured floors are not kept", In: "taint/view/explain.play.loadFleet",
		Old: "p.fleet.SetLimits(p.Limits)", New: "p.fleet.SetLimits(nil)",
	},
	{
		Name: "explain: nodes that are marked or fenced count as healthy", In: "taint/view/explain.play.loadFleet",
		Old: "p.fleet.ApplyLook(taint.NewLook(&p.Nodes[i], nil, p.Key, p.Now, p.Now), p.Now)",
		New: "p.fleet.AddNode(p.Nodes[i].Name, p.Now)",
	},
	{
		Name: "explain: who is silent is heard", In: "taint/view/explain.play.loadFleet",
		Old: "p.Now.Add(-age)", New: "p.Now.Add(-min(age, time.Second))",
	},
	{
		Name: "explain: a node that is silent stays Ready for ever", In: "taint/view/explain.play.advanceTime",
		Old: "p.Now.Sub(p.began) > readyLasts", New: "false",
	},
	{
		Name: "explain: nobody tells why policies end nothing", In: "taint/view/explain.play.reportStep",
		Old: `a.Why != ""`, New: "false",
	},
	{
		Name: "explain: Kubernetes' own eviction does nothing", In: "taint/view/explain.play.runKubernetes",
		Old: "ends && !due.After(p.Now.Wall)", New: "false && ends && !due.After(p.Now.Wall)",
	},
	{
		Name: "explain: a person says On", In: "taint/view/explain.play.deviceState",
		Old: "p.isQuiet(i) && p.supposed == providers.PowerOn", New: "false",
	},
	{
		Name: "explain: one outlet takes the machine's power", In: "taint/view/explain.play.isMachineOff",
		Old: "o.Level != d.Level || p.off[j]", New: "true || o.Level != d.Level || p.off[j]",
	},
	{
		Name: "explain: what a policy ends counts as moved with a proof", In: "taint/view/explain.play.EndPods",
		Old: "a.Policy == \"\"", New: "true",
	},
	{
		Name: "explain: a mark that is there is not seen to hang", In: "taint/view/explain.PlayScenario",
		Old: "l.Mark != nil || l.Record.IsOpen()", New: "false && (l.Mark != nil || l.Record.IsOpen())",
	},
	{
		Name: "explain: finished pods move", In: "taint/view/explain.ReportOf",
		Old: "p.Terminal", New: "false",
	},
	{
		Name: "explain: replacements take no room from each other", In: "taint/view/explain.Snapshot.placeReplacement",
		Old: "best.takeResources(asks)", New: "best.freeShare()",
	},
	{
		Name: "explain: replacements take no attach slot", In: "taint/view/explain.place.attachVolume",
		Old: "at.slots[driver]--", New: "at.slots[driver] += 0",
	},
	{
		Name: "explain: finished pods take room", In: "taint/view/explain.Snapshot.otherNodes",
		Old: "pod.Status.Phase != corev1.PodSucceeded", New: "true",
	},
	{
		Name: "explain: a cordoned node has room", In: "taint/view/explain.Snapshot.otherNodes",
		Old: "n.Spec.Unschedulable", New: "false",
	},
	{
		Name: "explain: a taint keeps nothing away", In: "taint/view/explain.Snapshot.checkPlace",
		Old: "evict.StockTolerates(tol, t)", New: "evict.StockTolerates(tol, t) || true",
	},
	{
		Name: "explain: node selectors keep nothing away", In: "taint/view/explain.Snapshot.checkPlace",
		Old: "err != nil || !ok", New: "false && (err != nil || !ok)",
	},
	{
		Name: "explain: a local volume is reached from everywhere", In: "taint/view/explain.Snapshot.checkPlace",
		Old: "err != nil || !sel.Match(at.node)", New: "err != nil || false && !sel.Match(at.node)",
	},
	{
		Name: "explain: requests do not matter", In: "taint/view/explain.Snapshot.checkPlace",
		Old: "need.Cmp(free) > 0", New: "false && need.Cmp(free) > 0",
	},
	{
		Name: "explain: attach slots do not matter", In: "taint/view/explain.Snapshot.checkAttachSlots",
		Old: "limited && more[driver] > left", New: "false && limited && more[driver] > left",
	},
	{
		Name: "explain: a volume that is attached there takes one more slot",
		In:   "taint/view/explain.Snapshot.checkAttachSlots",
		Old:  "!at.has[v.PV]", New: "true",
	},
	{
		Name: "explain: a CSI driver runs everywhere", In: "taint/view/explain.Snapshot.checkAttachSlots",
		Old: "!at.runs[v.Driver]", New: "false",
	},
	{
		Name: "explain: a pod that nobody owns is replaced", In: "taint/view/explain.findReplacements",
		Old: "ref != nil", New: "true || ref != nil",
	},
	{
		Name: "explain: silence is counted by one's own clock", In: "cmd/internal/app.snapshotReader.readLeases",
		Old: "newest.Sub(l.Spec.RenewTime.Time)", New: "time.Since(l.Spec.RenewTime.Time)",
		Tests: explained,
	},
	{
		Name: "explain: the pause of the cluster is not read", In: "cmd/internal/app.Session.ReadSnapshot",
		Old:   "s.Facts.Excluded, s.Facts.KeptOn = elsewhere.Excluded, cmp.Or(s.Facts.KeptOn, elsewhere.KeptOn)",
		New:   "s.Facts.KeptOn = cmp.Or(s.Facts.KeptOn, elsewhere.KeptOn)",
		Tests: explained,
	},
	{
		Name: "explain: a missing right is not named", In: "cmd/internal/app.snapshotReader.noteForbidden",
		Old: "*r.unknown = append(*r.unknown, fmt.Sprintf(\"%s: %v\", what, err))", New: "_ = what",
		Tests: explained,
	},
	{
		Name: "explain: other nodes' pods are the node's", In: "cmd/internal/app.snapshotReader.readPods",
		Old: "p.Spec.NodeName != s.Node.Name", New: "false && p.Spec.NodeName != s.Node.Name",
		Tests: explained,
	},
	{
		Name: "exclude: nobody reads what a Node says (8)", In: "taint/controller.Config.FactsOf",
		Old: "fence.ExclusionReason(node, now)", New: `""`,
		Tests: glue,
	},
	{
		Name: "exclude: nobody reads whose drain is under way (8)", In: "taint/controller.Config.FactsOf",
		Old: "fence.KeepOnReason(node, p.Fence.Cordoned)", New: `""`,
		Tests: glue,
	},
	{
		Name: "exclude: nobody looks for a pause of the cluster (8)", In: "taint/controller.reads.ReadNode",
		Old: "w.readExclusions(ctx, config.Exclusions, node)", New: "Exclusions{}, error(nil)",
		Tests: glue,
	},
	{
		Name: "shared: a read that was under way already counts (8)", In: "taint/sharing.Call.runCalls",
		Old: "q.answer, q.err = put(ctx)", New: `q.answer, q.err = put(ctx)
		c.mu.Lock()
		if late := c.next; late != nil {
			c.next, late.answer, late.err = nil, q.answer, q.err
			close(late.done)
		}
		c.mu.Unlock()`, Tests: shares,
	},
	{
		Name: "exclude: each fence reads the cluster's pause by itself", In: "taint/controller.base.readExclusions",
		Old: "sharedReader{b.Live, &b.pauses}", New: "b.Live", Tests: shares,
	},
	{
		Name: "shared: each fence lists the cluster's attachments by itself", In: "taint/controller.base.attachedTo",
		Old: "b.attached.Ask(ctx, kube.Timeout, list)", New: "list(ctx)", Tests: shares,
	},
	{
		Name: "shared: who cannot wait ends the read of all", In: "taint/sharing.Call.Ask",
		Old: "context.WithoutCancel(ctx)", New: "ctx", Tests: shares,
	},
	{
		Name: "shared: one read that failed is many (2)", In: "taint/controller.base.noteReadResult",
		Old: "errors.As(err, &again)", New: "errors.As(err, &again) && false", Tests: shares,
	},
	{
		Name: "shared: a list that failed shows that nothing is attached (11)", In: "taint/sharing.Call.Ask",
		Old: "return q.answer, Shared{q.err}", New: "return q.answer, nil", Tests: shares,
	},
	{
		Name: "exclude: the cluster's pause does not count (8)", In: "taint/controller.readPause",
		Old: "!p.IsOver(now)", New: "false && p.IsOver(now)",
		Tests: glue,
	},
	{
		Name: "exclude: the Lease does not count (8)", In: "taint/controller.ExclusionSources.ReadExclusions",
		Old:   "[]exclusion{paused, maintained, machine, cluster}",
		New:   "[]exclusion{paused, {denied: maintained.denied}, machine, cluster}",
		Tests: glue,
	},
	{
		Name: "exclude: a Machine's word does not count (8)", In: "taint/controller.ExclusionSources.ReadExclusions",
		Old:   "[]exclusion{paused, maintained, machine, cluster}",
		New:   "[]exclusion{paused, maintained, {denied: machine.denied}, cluster}",
		Tests: glue,
	},
	{
		Name: "exclude: a Cluster's word does not count (8)", In: "taint/controller.ExclusionSources.ReadExclusions",
		Old:   "[]exclusion{paused, maintained, machine, cluster}",
		New:   "[]exclusion{paused, maintained, machine, {denied: cluster.denied}}",
		Tests: glue,
	},
	{
		Name: "exclude: a discovery that fails knows no Machines (8)", In: "taint/controller.readClusterAPI",
		Old: "o == nil && err == nil", New: "o == nil",
		Tests: glue,
	},
	{
		Name: "exclude: a Machine that cannot be read says nothing (8)", In: "taint/controller.reads.ReadNode",
		Old: "cmp.Or(facts.KeptOn, exclusions.KeptOn)", New: "facts.KeptOn",
		Tests: glue,
	},
	{
		Name: "exclude: a Cluster's pause that is none is no pause (8)", In: "taint/controller.readClusterAPI",
		Old: "paused || err != nil", New: "paused || err != nil && paused",
		Tests: glue,
	},
	{
		Name: "exclude: any name is a Machine's", In: "taint/controller.readClusterAPI",
		Old:   "len(validation.IsDNS1123Label(key.Namespace))+len(validation.IsDNS1123Subdomain(key.Name)) > 0",
		New:   `key.Name == "" && len(validation.IsDNS1123Label(key.Namespace)) > 0`,
		Tests: glue,
	},
	{
		Name: "exclude: a Cluster's pause does not count (8)", In: "taint/decide/fence.ClusterAPIExclusion",
		Old: "if paused { ... }", New: "",
		Tests: glue,
	},
	{
		Name: "exclude: a Machine that is not remediated is (8)", In: "taint/decide/fence.ClusterAPIExclusion",
		Old:   `[]string{ClusterAPI + "/paused", ClusterAPI + "/skip-remediation"}`,
		New:   `[]string{ClusterAPI + "/paused"}`,
		Tests: glue,
	},
	{
		Name: "exclude: what may not be read says nothing (8)", In: "taint/controller.readExclusion",
		Old: "exclusion{denied: name}", New: "exclusion{}",
		Tests: glue,
	},
	{
		Name: "exclude: what cannot be read says nothing (8)", In: "taint/controller.readExclusion",
		Old: `return exclusion{}, fmt.Errorf("reading %s live: %w", name, err)`, New: "return exclusion{}, nil",
		Tests: glue,
	},
	{
		Name: "exclude: a Lease that ran out counts", In: "taint/decide/fence.IsUnderMaintenance",
		Old: "age < min(time.Duration(*s.LeaseDurationSeconds)*time.Second, maxMaintenance)", New: "true",
	},
	{
		Name: "exclude: any operator's Lease counts", In: "taint/decide/fence.IsUnderMaintenance",
		Old: "*s.HolderIdentity != maintainer", New: "false",
	},
	{
		Name: "exclude: a Lease holds as long as its writer likes", In: "taint/decide/fence.IsUnderMaintenance",
		Old: "min(time.Duration(*s.LeaseDurationSeconds)*time.Second, maxMaintenance)",
		New: "time.Duration(*s.LeaseDurationSeconds)*time.Second",
	},
	{
		Name: "exclude: a Lease of far ahead holds until then", In: "taint/decide/fence.IsUnderMaintenance",
		Old: "age >= -maxAhead", New: "true",
	},
	{
		Name: "exclude: Leases are read where nobody guards them", In: "cmd/internal/config.Default",
		Tests: []string{"./cmd/internal/app -run PolicyIsTheFile"},
		Old:   "ExcludeSelector: DefaultExclude", New: "ExcludeSelector: DefaultExclude, MaintenanceLeases: " +
			"\"medik8s-leases\"",
	},
	{
		Name: "exclude: the file's word on cordons is lost (8)", In: "cmd/internal/config.Config.Settings",
		Old: "Cordoned: c.ExcludeCordoned,", New: "",
		Tests: wiring,
	},
	{
		Name: "fence: maintenance does not win (8)", In: "taint/decide/fence.View.checkGate",
		Old: `v.Facts.Excluded != ""`, New: "false",
	},
	{
		Name: "fence: maintenance comes too late for an announced power-off (8)",
		In:   "taint/decide/fence.View.decideByRecord",
		Old:  `why != "" && announced`, New: "false",
	},
	{
		Name: "fence: a recovered node is powered off all the same", In: "taint/decide/fence.View.decideByRecord",
		Old: "powering && l.IsAliveSince(rec)", New: "false",
	},
	{
		Name: "fence: a power-off is sent again under maintenance (8)", In: "taint/decide/fence.View.maySendAgain",
		Old: `why == "" && v.Facts.Mode == Fence && v.Fleet.Heard && v.checkPowerOffLimits().why == ""`,
		New: `why == "" || true`,
	},
	{
		Name: "fence: a failed power-off is tried for ever (13)", In: "taint/decide/fence.View.decideByRecord",
		Old: "v.closeFence(taint.ResultPowerOffFailed, reason.PowerOffFailed)", New: "v.decideByAnswer(powering)",
	},
	{
		Name: "fence: a failed power-off is not backed off (13)", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "v.retryDelayLeft() > 0", New: "false",
	},
	{
		Name: "fence: two providers claim the node, and yet", In: "taint/decide/fence.View.checkGate",
		Old: "v.Facts.NoDeviceErr != nil", New: "false",
	},
	{
		Name: "fence: a device that lied is believed", In: "taint/decide/fence.View.checkGate",
		Old: `v.DistrustingNode != ""`, New: "false",
	},
	{
		Name: "fence: a node that was never off is not told", In: "taint/decide/fence.View.decideByRecord",
		Old: "v.wasNeverOff()", New: "false",
	},
	{
		Name: "fence: a node that was released is fenced again", In: "taint/decide/fence.View.checkGate",
		Old: "v.isReleased()", New: "false",
	},
	{
		Name: "fence: an unreadable record is passed over", In: "taint/decide/fence.View.decideByRecord",
		Old: "l.RecordErr != nil", New: "false",
	},
	{
		Name: "fence: a mark that somebody took off stays open (11)", In: "taint/decide/fence.View.decideByRecord",
		Old: "rec.IsOpen() && !powering", New: "false",
	},
	{
		Name: "fence: a mark is set again at the device's speed", In: "taint/decide/fence.View.decideByAnswer",
		Old: "v.rearmDelayLeft() > 0", New: "false",
	},

	// The proof after the mark: step 6.
	{
		Name: "evict: step 6 is dropped (1)", In: "taint/decide/evict.View.decideArmed",
		Old: "v.IsProvenOff(v.Now)", New: "true",
	},
	{
		Name: "evict: an answer from before the mark proves (1)", In: "taint/decide/evict.View.IsProvenOff",
		Old: "v.isAskedSinceMark()", New: "true",
	},
	{
		Name: "evict: an answer from before the patch of Ready proves (1)", In: "taint/decide/evict.Memory.ApplyLook",
		Old: `
			case l.IsReady():
				m.ProofFrom = providers.Instant{}`,
		New: `
			case l.IsReady() && m.ProofFrom.IsZero():
				m.ProofFrom = l.Got`,
	},
	{
		Name: "evict: a stale Ready is not expired (step 5)", In: "taint/decide/evict.View.decideArmed",
		Old: "action.Decision{Action: action.ExpireReady{}, Reason: reason.Expiring}",
		New: "v.beginEviction(*rec, reason.Confirmed, v.Answers.Evidence()...)",
	},
	{
		Name: "evict: an old Off proves (1)", In: "taint/decide/evict.View.IsProvenOff",
		Old: "v.Answers.Answer.At.Age(now) <= proof.TTL", New: "true",
	},
	{
		Name: "evict: an Off of before a suspension proves (1)", In: "taint/decide/evict.View.IsProvenOff",
		Old: "v.Answers.Answer.At.Age(now)", New: "now.Sub(v.Answers.Answer.At)",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: an Off of before a suspension ends Ready", In: "taint/decide/evict.View.decideArmed",
		Old: "v.Answers.Answer.At.Age(v.Now) <= proof.TTL", New: "v.Now.Sub(v.Answers.Answer.At) <= proof.TTL",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: a person is believed on a look of before a suspension", In: "taint/decide/evict.View.MayEndPods",
		Old: "v.Look.Got.Age(now)", New: "now.Sub(v.Look.Got)", Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: a person is believed beside an answer that is due", In: "taint/decide/evict.View.MayEndPods",
		Old: "v.Answers.Answer.Got.Age(now)", New: "now.Sub(v.Answers.Answer.Got)",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: after a suspension no device is asked for long", In: "taint/decide/evict.View.mayAskAgain",
		Old: "v.Answers.Answer.Got.Age(v.Now)", New: "v.Now.Sub(v.Answers.Answer.Got)",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: attachments that were listed before a suspension serve", In: "taint/decide/evict.View.readFirst",
		Old: "v.Memory.ListedAt.Age(v.Now)", New: "v.Now.Sub(v.Memory.ListedAt)",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: a process that was suspended was not blind (F2)", In: "taint/decide/evict.Memory.ApplyLook",
		Old: "m.lastLook.Age(l.Sent)", New: "l.Sent.Sub(m.lastLook)", Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "evict: changing proves (2)", In: "taint/decide/evict.View.IsProvenOff",
		Old: "v.Answers.Answer.State == providers.PowerOff", New: "v.Answers.Answer.State >= providers.PowerOff",
	},
	{
		Name: "evict: a heartbeat before the eviction does not lift (7)", In: "taint/decide/evict.View.decideArmed",
		Old: "if l.IsAliveSince(rec) { ... }", New: "",
	},
	{
		Name: "evict: an Off that is not confirmed keeps the mark (11)", In: "taint/decide/evict.View.decideArmed",
		Old: "return v.removeMark(lifted, reason.NotConfirmed)", New: "return v.waitToAsk(reason.Confirming)",
	},
	{
		Name: "evict: a person's word beats a device that says On", In: "taint/decide/evict.View.decideArmed",
		Old: "v.allowsPerson()", New: "true",
	},
	{
		Name: "evict: workers take a person's word over On", In: "taint/decide/evict.View.MayEndPods",
		Old: "return v.allowsPerson()", New: "return true",
	},
	{
		Name: "evict: a person's word never grows old", In: "taint/decide/evict.View.MayEndPods",
		Old: "v.Look.Got.Age(now) > proof.TTL+v.Reads", New: "false",
	},

	// Evicting, and the return path: steps 7 to 13.
	{
		Name: "evict: life in the middle is not seen (return path)", In: "taint/decide/evict.View.hasComeBack",
		Old: "v.Look.IsAliveSince(v.Look.Record) || v.Look.IsReady()", New: "false",
	},
	{
		Name: "evict: Ready in the middle is not seen (return path)", In: "taint/decide/evict.View.hasComeBack",
		Old: "v.Look.IsReady()", New: "false",
	},
	{
		Name: "evict: power On in the middle is not seen (return path)", In: "taint/decide/evict.View.isAnswerOn",
		Old: "v.isAskedSinceMark() && v.Answers.Answer.State == providers.PowerOn && (!v.Look.Record.IsVouchedFor() " +
			"|| !v.Settings.TrustPerson)", New: "false",
	},
	{
		Name: "evict: the return path is left again", In: "taint/decide/evict.View.hasComeBack",
		Old: "v.hasBegunReturn()", New: "false",
	},
	{
		Name: "evict: no pod is spared (10)", In: "taint/decide/evict.View.decideReturn",
		Old: "spare = append(spare, v.podToWrite(action.WritesSpare, p))", New: "",
	},
	{
		Name: "evict: pods are ended without proof (1)", In: "taint/decide/evict.View.decideEviction",
		Old: "case v.MayEndPods(v.Now):", New: "case true:",
	},
	{
		Name: "evict: exempt pods are evicted (9)", In: "taint/decide/action.Pod.ShouldMove",
		Old: "p.Exempt == taint.NotExempt", New: "true",
	},
	{
		Name: "evict: finished pods are evicted (9)", In: "taint/decide/action.Pod.ShouldMove",
		Old: "p.Terminal", New: "p.Tombstone",
	},
	{
		Name: "evict: a deletion by name is not waited for (F2)",
		In:   "taint/decide/evict.StockEviction.IsAboutToDelete",
		Old:  "p.Deleting || s.From.IsZero()", New: "true",
	},
	{
		Name: "evict: volumes of pods that stay are cleared (step 10)", In: "taint/decide/evict.View.volumesToKeep",
		Old: "p.Terminal", New: "true",
	},
	{
		Name: "evict: an unread claim keeps no entry of the lists (10)", In: "taint/decide/evict.View.volumesToKeep",
		Old: "vol.Unread", New: "false",
	},
	{
		Name: "evict: a migrated volume of a pod that stays is cleared (step 10)",
		In:   "taint/decide/evict.View.volumesToKeep",
		Old:  "keep[vol.Unique], keep[vol.Migrated] = true, true", New: "keep[vol.Unique] = true",
	},
	{
		Name: "evict: the mark goes before the volumes are detached (11)", In: "taint/decide/evict.View.decideEviction",
		Old: "len(ready)+len(waiting)+len(tombs)+len(resting)+len(left)",
		New: "len(ready)+len(waiting)+len(tombs)+len(resting)",
	},
	{
		Name: "evict: the mark goes before the pods are gone (11)", In: "taint/decide/evict.View.decideEviction",
		Old: "len(ready)+len(waiting)+len(tombs)+len(resting)", New: "len(ready)+len(waiting)+len(resting)",
	},
	{
		Name: "evict: the mark goes before the lists are cleared", In: "taint/decide/evict.View.decideEviction",
		Old: "!(clear && v.MayEndPods(v.Now))", New: "true",
	},
	{
		Name: "evict: the return path does not wait for the tombstoned (11)",
		In:   "taint/decide/evict.View.decideReturn",
		Old:  "case p.NeedsDelete(): ...", New: "",
	},
	{
		Name: "evict: the return path does not wait for volumes (11)", In: "taint/decide/evict.View.decideReturn",
		Old: "case len(v.pendingDetachments()) > 0: ...", New: "",
	},
	{
		Name: "evict: pods with volumes wait their turn (step 8)", In: "taint/decide/evict.sortForEviction",
		Old: "p.Claims || len(p.Volumes) > 0", New: "false",
	},
	{
		Name: "recovery: a kept list serves to wait for as long as it serves to end pods",
		In:   "taint/decide.Node.decideByKeptList",
		Old:  "kept.at.Age(v.Now) >= waitHolds", New: "false",
	},
	{
		Name: "recovery: a node that is back waits by a kept list", In: "taint/decide.waitsForVolumes",
		Old: "d.Action == action.Wait{}", New: "action.Is[action.Wait](d)",
	},
	{
		Name: "recovery: each attachment that goes has the pods listed", In: "taint/decide.Node.decideByKeptList",
		Old: "kept.at.Age(v.Now) >= waitHolds", New: "true",
	},
	{
		Name: "evict: a pod kept by finalizers is waited for (step 12)",
		In:   "taint/decide/action.Pod.IsHeldByFinalizers",
		Old:  "p.Deleting", New: "false && p.Deleting",
	},
	{
		Name: "evict: a device that lied is not found out", In: "taint/decide/evict.View.decideReturn",
		Old: "proof.WasNeverOff(v.Look, v.Look.Record)", New: "false",
	},
	{
		Name: "evict: a mark overwritten in the middle begins anew", In: "taint/decide/evict.View.adoptPersonMark",
		Old: "l.Record.IsOpen() && l.Record.Phase == taint.PhaseEvicting", New: "false",
	},
	{
		Name: "evict: an unreadable record is passed over", In: "taint/decide/evict.View.decideByPhase",
		Old: "l.RecordErr != nil", New: "false",
	},
	{
		Name: "evict: a pod whose end fails holds up the others (16)", In: "taint/decide/evict.View.decideEviction",
		Old: "case p.ShouldMove() && v.backoffLeft(action.WritesEnd, p) > 0, p.NeedsDelete() && " +
			"v.backoffLeft(action.WritesDelete, p) > 0: ...", New: "",
	},
	{
		Name: "evict: the mark goes though a pod could not be ended (11)", In: "taint/decide/evict.View.decideEviction",
		Old: "len(ready)+len(waiting)+len(tombs)+len(resting)",
		New: "len(ready)+len(waiting)+len(tombs)+0*len(resting)",
	},
	{
		Name: "evict: a pod that cannot be spared keeps a living node's mark (16)",
		In:   "taint/decide/evict.View.decideReturn",
		Old: "case p.ShouldMove() && v.isHopeless(action.WritesSpare, p), p.NeedsDelete() && " +
			"v.isHopeless(action.WritesDelete, p):", New: "",
	},
	{
		Name: "evict: a spare that failed is not tried again (10)", In: "taint/decide/evict.View.decideReturn",
		Old: "case len(resting) > 0: ...", New: "",
	},
	{
		Name: "evict: a large pod does not get the small form", In: "taint/decide/evict.Memory.ApplyPodWrites",
		Old: "case why == action.TooLarge && (write == action.WritesEnd || write == action.WritesSpare) && " +
			"!p.Small: ...", New: "",
	},
	{
		Name: "evict: a Ready that somebody sets again keeps the mark (16)",
		In:   "taint/decide/evict.Memory.ApplyPodWrites",
		Old:  "case why == action.Accepted && write == action.WritesNotReady: ...", New: "",
		Tests: []string{"./taint/decide/evict -run NotReady|ReadyThat"},
	},
	{
		Name: "evict: a failure forgets how often a Ready was set again (16)",
		In:   "taint/decide/evict.Memory.ApplyPodWrites",
		Old:  "written: t.written", New: "",
		Tests: []string{"./taint/decide/evict -run NotReady|ReadyThat"},
	},
	{
		Name: "evict: a pod whose Ready was set again is not named", In: "taint/decide/evict.View.podsLeftReady",
		Old: "t.times > 0 || t.written > 0", New: "t.times > 0",
		Tests: []string{"./taint/decide/evict -run NotReady|ReadyThat"},
	},
	{
		Name: "evict: a large pod that cannot be set not ready keeps the mark (16)",
		In:   "taint/decide/evict.Memory.ApplyPodWrites",
		Old:  "write == action.WritesEnd || write == action.WritesSpare", New: "write != action.WritesDelete",
	},
	{
		Name: "evict: a SetPodsNotReady that is never tried keeps the mark (16)",
		In:   "taint/decide/evict.Memory.ApplyPodWrites",
		Old:  "!tried && write == action.WritesNotReady", New: "false",
	},
	{
		Name: "evict: a pod that could not be set not ready is not named (13)",
		In:   "taint/decide/evict.View.podsLeftReady",
		Old:  "t.times > 0", New: "false",
	},
	{
		Name: "evict: a pod is named as left Ready that no write failed for",
		In:   "taint/decide/evict.View.podsLeftReady",
		Old:  "t.times > 0", New: "true",
	},
	{
		Name: "evict: a pod is named as left Ready that is not", In: "taint/decide/evict.View.podsLeftReady",
		Old: "p.StaysReady()", New: "true",
	},
	{
		Name: "evict: a person's word takes Ready from pods (1)", In: "taint/decide/evict.View.notReadyFirst",
		Old: "v.IsProvenOff(v.Now)", New: "v.MayEndPods(v.Now)",
	},
	{
		Name: "evict: pods lose Ready without proof (1)", In: "taint/decide/evict.View.notReadyFirst",
		Old: "v.IsProvenOff(v.Now)", New: "true",
	},
	{
		Name: "evict: pods of a node that is back lose Ready (1)", In: "taint/decide/evict.View.notReadyFirst",
		Old: "action.NeedsNoProof(d.Action) || !action.Is[action.Wait](d) && !ends",
		New: "!action.Is[action.Wait](d) && !action.Is[action.RemoveMark](d)",
	},
	{
		Name: "evict: pods of a node that is back lose Ready while volumes are waited for (1)",
		In:   "taint/decide/evict.View.notReadyFirst",
		Old:  "action.NeedsNoProof(d.Action) || !action.Is[action.Wait](d) && !ends",
		New:  "!action.Is[action.Wait](d) && !ends",
	},
	{
		Name: "evict: pods that stay lose Ready before those that go are ended",
		In:   "taint/decide/evict.View.notReadyFirst",
		Old:  "action.NeedsNoProof(d.Action) || !action.Is[action.Wait](d) && !ends",
		New:  "action.NeedsNoProof(d.Action)",
	},
	{
		Name: "evict: an alert ends while pods lose Ready", In: "taint/decide/evict.View.notReadyFirst",
		Old: "action.Decision{Action: action.SetPodsNotReady{Pods: pods}, Reason: reason.SettingNotReady, Alert: " +
			"d.Alert, Stuck: d.Stuck}",
		New: "action.Decision{Action: action.SetPodsNotReady{Pods: pods}, Reason: reason.SettingNotReady}",
	},
	{
		Name: "evict: pods that go lose Ready, and keep running (10)", In: "taint/decide/action.Pod.StaysReady",
		Old: "p.Exempt != taint.NotExempt", New: "true",
	},
	{
		Name: "evict: finished pods lose Ready (9)", In: "taint/decide/action.Pod.StaysReady",
		Old: "!p.Terminal", New: "true",
	},
	{
		Name: "evict: pods that do not read Ready are written", In: "taint/decide/action.Pod.StaysReady",
		Old: "p.Ready", New: "true",
	},
	{
		Name: "evict: a pod that cannot be set not ready keeps the mark (16)", In: "taint/decide/evict.View.readyPods",
		Old: "v.backoffLeft(action.WritesNotReady, p) > 0", New: "false",
	},
	{
		Name: "evict: a pod is set not ready again and again (13)", In: "taint/decide/evict.View.readyPods",
		Old: "v.isHopeless(action.WritesNotReady, p)", New: "false",
	},
	{
		Name: "evict: a new leader leaves pods Ready", In: "taint/decide/evict.View.mayProve",
		Old: "case !v.isAskedSinceMark(): ...", New: "",
	},
	{
		Name: "evict: a device whose answers come too slowly keeps the mark (16)",
		In:   "taint/decide/evict.View.mayProve",
		Old:  "v.Answers.Answer.At.Age(v.Answers.Answer.Got)+v.Reads <= proof.TTL",
		New:  "v.Answers.Answer.At.Age(v.Answers.Answer.Got)+v.Reads <= 1000*proof.TTL",
	},
	{
		Name: "evict: a proof that grew old leaves pods Ready", In: "taint/decide/evict.View.mayProve",
		Old: "v.Answers.Answer.At.Age(v.Answers.Answer.Got)+v.Reads <= proof.TTL",
		New: "v.Answers.Answer.At.Age(v.Answers.Answer.Got)+v.Reads > 1000*proof.TTL",
	},
	{
		Name: "recovery: a person's word takes Ready from pods in the middle (1)",
		In:   "taint/decide.Node.lastActionHolds",
		Old:  "if action.Is[action.SetPodsNotReady](n.lastDecision) { ... }", New: "",
	},
	{
		Name: "evict: a spared large pod is spared for ever", In: "taint/decide/evict.Memory.ApplyPodWrites",
		Old: "before: p.ResourceVersion", New: "",
	},
	{
		Name: "evict: a spare that changed nothing is one (10)", In: "taint/decide/evict.View.isSpared",
		Old: "before != p.ResourceVersion", New: "true",
	},
	{
		Name: "evict: one failure is the last try (10)", In: "taint/decide/evict.trouble.isHopeless",
		Old: "t.times >= maxFailures", New: "t.times > 0",
	},
	{
		Name: "evict: failures are not backed off (13)", In: "taint/decide/evict.trouble.backoffLeft",
		Old: "min(backoffMin<<min(n-1, 6), backoffMax)", New: "backoffMin",
	},
	{
		Name: "evict: a pod that is stuck is not named (13)", In: "taint/decide/evict.View.nameStuckPods",
		Old: "d.Alert = string(reason.Stuck)", New: "",
	},
	{
		Name: "evict: a negative tolerationSeconds is for ever (F2)", In: "taint/decide/evict.StockEnds",
		Old: "max(*tol.TolerationSeconds, 0)", New: "*tol.TolerationSeconds",
	},
	{
		Name: "evict: what takes too long is not alerted (13)", In: "taint/decide/evict.View.alertOverdue",
		Old: "d.Alert = string(d.Reason)", New: "",
	},
	{
		Name: "records: an eviction by a clock that runs ahead is not alerted for an hour (13)",
		In:   "taint/decide/evict.View.alertOverdue",
		Old:  "v.ageOf(v.Look.Record.At)", New: "v.Now.Wall.Sub(v.Look.Record.At)",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "records: volumes hang for an hour by a clock that runs ahead",
		In:   "taint/decide/evict.View.waitForDetach",
		Old:  "v.ageOf(v.Look.Record.At)", New: "v.Now.Wall.Sub(v.Look.Record.At)",
		Tests: []string{"./taint/decide/evict"},
	},

	// The mark, the record and who is exempt.
	{
		Name: "taint: a heartbeat is no other life", In: "taint.Look.SameLife",
		Old: "l.LeaseRV == o.LeaseRV", New: "true",
	},
	{
		Name: "taint: a boot is no other life", In: "taint.Look.SameLife",
		Old: "l.BootID == o.BootID", New: "true",
	},
	{
		Name: "taint: a heartbeat is no sign of life", In: "taint.Look.IsAliveSince",
		Old: "l.LeaseRV != r.LeaseRV", New: "false",
	},
	{
		Name: "taint: another boot is no sign of life", In: "taint.Look.IsAliveSince",
		Old: "l.BootID != r.BootID", New: "false",
	},
	{
		Name: "taint: another Node object is no sign of life", In: "taint.Look.IsAliveSince",
		Old: "l.UID != r.NodeUID", New: "false",
	},
	{
		Name: "taint: a mark of a closed fence is ours", In: "taint.Look.HasOwnMark",
		Old: "l.Record.IsOpen()", New: "l.Record != nil",
	},
	{
		Name: "taint: a person's mark is taken off (5)", In: "taint.WithoutMark",
		Old: "t.Value == id", New: "true",
	},
	{
		Name: "taint: the mark is NoExecute (F2)", In: "taint.WithMark",
		Old: "Effect: corev1.TaintEffectNoSchedule", New: "Effect: corev1.TaintEffectNoExecute",
	},
	{
		Name: "taint: a phase nobody knows is read", In: "taint.ParseRecord",
		Old: `Record{}, fmt.Errorf("%w: unknown phase %q", errRecord, r.Phase)`, New: "r, nil",
	},
	{
		Name: "taint: DaemonSets' pods are not exempt (9)", In: "taint.ExemptionOf",
		Old: "isDaemon(pod)", New: "false",
	},
	{
		Name: "taint: static pods are not exempt (9)", In: "taint.ExemptionOf",
		Old: "isStatic(pod)", New: "false",
	},
	{
		Name: "taint: tolerationSeconds exempt", In: "taint.toleratesMark",
		Old: "t.TolerationSeconds != nil", New: "false",
	},

	// The node's hook.
	{
		Name: "hook: a node that was not read starts pods", In: "kubelet-admit/admit.Decide",
		Old: "!n.Read", New: "false",
	},
	{
		Name: "hook: the mark does not hold", In: "kubelet-admit/admit.Decide",
		Old: "n.Marked && !n.Detaching", New: "false",
	},
	{
		Name: "hook: a mark that waits for volumes holds none of their pods (10)", In: "kubelet-admit/admit.Decide",
		Old: "n.Marked && !p.Unaffected", New: "false",
	},
	{
		Name: "hook: a mark that waits for volumes holds all", In: "kubelet-admit/admit.Decide",
		Old: "n.Marked && !n.Detaching", New: "n.Marked",
	},
	{
		Name: "hook: a pod's volumes are not looked at (10)", In: "kubelet-admit/nri.view.admitPod",
		Old: "v.node.Detaching && taint.FreeOf(pod.claims, pod.sure, v.claims)", New: "v.node.Detaching",
	},
	{
		Name: "hook: volumes count before the pods are listed (10)", In: "kubelet-admit/nri.view.seeNode",
		Old: "if listed { ... }", New: "if true { ... }",
	},
	{
		Name: "hook: what was told of volumes outlives its plugin", In: "kubelet-admit/nri.view.restoreStatus",
		Old: "v.node.Detaching = false", New: "",
	},
	{
		Name: "hook: a mark that comes with its volumes waits for the pods",
		In:   "kubelet-admit/nri.reader.readAndWatch",
		Old:  "!r.view.lastNode().Detaching", New: "false",
	},
	{
		Name: "hook: pods are listed anew only when the mark goes (10)", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "!isHeld(node, r.view.key)", New: "!isMarked(node, r.view.key)",
	},
	{
		Name: "volumes: another fence's names count", In: "taint.Look.DetachingClaims",
		Old: "!l.HasOwnMark()", New: "l.Mark == nil || r == nil",
	},
	{
		Name: "volumes: a second mark is not seen", In: "taint.Look.DetachingClaims",
		Old: "l.Mark.Others", New: "false",
	},
	{
		Name: "volumes: named before the eviction", In: "taint.Look.DetachingClaims",
		Old: "r.Phase != PhaseEvicting", New: "false",
	},
	{
		Name: "volumes: named on another Node", In: "taint.Look.DetachingClaims",
		Old: "r.NodeUID != l.UID", New: "false",
	},
	{
		Name: "volumes: more than may be named", In: "taint.Look.DetachingClaims",
		Old: "len(r.Detaching) > MaxDetaching", New: "false",
	},
	{
		Name: "volumes: a claim that is none is passed over", In: "taint.Look.DetachingClaims",
		Old: `!ok || ns == "" || name == "" || strings.Contains(name, "/")`, New: "false && !ok && ns == name",
	},
	{
		Name: "volumes: a pod's disk by its own name is no volume", In: "taint.VolumeClaims",
		Old: "!neverAttached(v.VolumeSource)", New: "false",
	},
	{
		Name: "volumes: a claim of any namespace is the pod's", In: "taint.VolumeClaims",
		Old: `p.Namespace + "/" + name`, New: "name",
	},
	{
		Name: "volumes: what is doubted is free", In: "taint.FreeOf",
		Old: "sure && !slices.ContainsFunc(claims, func(c string) bool { return slices.Contains(of, c) })",
		New: "!slices.ContainsFunc(claims, func(c string) bool { return slices.Contains(of, c) })",
	},
	{
		Name: "volumes: a new phase names those of the last", In: "taint.Record.EnterPhase",
		Old: "r.Phase, r.Result, r.At, r.Detaching = p, res, at.UTC().Truncate(time.Millisecond), nil",
		New: "r.Phase, r.Result, r.At = p, res, at.UTC().Truncate(time.Millisecond)",
	},
	{
		Name: "volumes: named while pods are left (10)", In: "taint/decide/evict.View.decideReturn",
		Old: "len(spare) > 0", New: "len(spare) > 0 && len(v.pendingDetachments()) == 0",
	},
	{
		Name: "volumes: named while ended pods are left (10)", In: "taint/decide/evict.View.decideReturn",
		Old: "len(tombs) > 0", New: "len(tombs) > 0 && len(v.pendingDetachments()) == 0",
	},
	{
		Name: "volumes: named without a sign of life (1)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "!v.Look.IsAliveSince(rec)", New: "false",
	},
	{
		Name: "volumes: one that cannot be named is none (10)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: `slices.ContainsFunc(left, func(a action.Attachment) bool { return a.PV == "" })`, New: "false",
	},
	{
		Name: "volumes: more are named than may be", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "len(left) > taint.MaxDetaching", New: "false",
	},
	{
		Name: "volumes: the first alone is named (10)", In: "taint/decide/evict.View.recordDetaching",
		Old: "rec.Detaching = names", New: "rec.Detaching = names[:min(len(names), 1)]",
	},
	{
		Name: "volumes: one that is being detached is a pod's (10)", In: "taint/decide/evict.View.pendingDetachments",
		Old: "a.Deleting && !slices.Contains(left, a)", New: "false",
	},
	{
		Name: "volumes: named by a cache (11)", In: "taint/decide/evict.View.readFirst",
		Old: "waits && action.Is[action.WriteRecord](d)", New: "false",
	},
	{
		Name: "volumes: a claim is read once (10)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "if !v.Live { ... }", New: `
			{
				claims = map[string]string{}
				for _, d := range rec.Detaching {
					claims[d.PV] = d.Claim
				}
			}`,
	},
	{
		Name: "volumes: one that is not known yet is nobody's (10)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "!known && !v.Live", New: "!known && known",
	},
	{
		Name: "volumes: an unread claim is named (10)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "d.Claim == action.UnreadClaim", New: "false",
	},
	{
		Name: "volumes: a claim that was not read is none (10)", In: "taint/decide/evict.View.waitForReturnDetach",
		Old: "read && known", New: "read",
	},
	{
		Name: "volumes: a claim is named after its volume", In: "taint/kube.ReadClaims",
		Old: `of.Namespace + "/" + of.Name`, New: `of.Namespace + "/" + name`,
	},
	{
		Name: "volumes: one that cannot be read has no claim", In: "taint/kube.ReadClaims",
		Old: `return fmt.Errorf("reading volume %s: %w", name, err)`, New: "return nil",
	},
	{
		Name: "volumes: an unread claim hides all others (16)", In: "taint/kube.IsRefusal",
		Old: "!IsCrowded(err)", New: "false", Tests: kubeReads,
	},
	{
		Name: "volumes: an API server without room is an unread claim", In: "taint/kube.IsRefusal",
		Old: "!IsCrowded(err)", New: "true", Tests: kubeReads,
	},
	{
		Name: "volumes: an unread volume is known", In: "taint/kube.readPodVolumes",
		Old: "vol.Unread = true", New: "vol.Unread = false", Tests: kubeReads,
	},
	{
		Name: "volumes: an in-tree volume has no CSI name", In: "taint/kube.migratedName",
		Old: "!translator.IsPVMigratable(pv)", New: "true", Tests: kubeReads,
	},
	{
		Name: "volumes: an in-tree volume that cannot be translated is known", In: "taint/kube.migratedName",
		Old: `"", false`, New: `"", true`, Tests: kubeReads,
	},
	{
		Name: "volumes: the volume of an unread claim keeps the mark (16)", In: "taint/decide.addClaimVolumes",
		Old: `of[pv] == p.Namespace+"/"+vol.Claim`, New: "false",
	},
	{
		Name: "volumes: a volume that cannot be read keeps the mark (16)", In: "taint/decide.addClaimVolumes",
		Old: "of[pv] == action.UnreadClaim", New: "false",
	},
	{
		Name: "nudge: a mark that waits for volumes opens no node", In: "taint/controller.nudgeState.observeLook",
		Old: `n.waits == ""`, New: "true", Tests: glue,
	},
	{
		Name: "nudge: volumes that went open no node", In: "taint/controller.nudgeState.observeLook",
		Old: "was.waits != n.waits", New: "false", Tests: glue,
	},
	{
		Name: "hook: a Ready of before the crash counts", In: "kubelet-admit/admit.Decide",
		Old: "!n.ReadySeen", New: "false",
	},
	{
		Name: "hook: a pod that nobody knows starts", In: "kubelet-admit/admit.Decide",
		Old: "!p.Known", New: "false",
	},
	{
		Name: "hook: what was exempt before the boot is held", In: "kubelet-admit/admit.Decide",
		Old: "p.WasExempt && !n.Listed", New: "false",
	},
	{
		Name: "hook: what was exempt before the boot starts after a list without it", In: "kubelet-admit/admit.Decide",
		Old: "!n.Listed", New: "true",
	},
	{
		Name: "hook: exempt pods are held (9)", In: "kubelet-admit/admit.Decide",
		Old: "p.Exempt", New: "false",
	},

	// The controller: what it sends, and under which conditions.
	{
		Name: "writer: no resourceVersion on the Node (5)", In: "taint/kube.Writer.patchNode",
		Old: `meta["resourceVersion"] = l.ResourceVersion`, New: "",
	},
	{
		Name: "writer: no UID on the Node (5)", In: "taint/kube.Writer.patchNode",
		Old: `meta["uid"] = l.UID`, New: "",
	},
	{
		Name: "writer: a pod write without resourceVersion (5)", In: "taint/kube.Writer.patchPod",
		Old: `meta["resourceVersion"] = p.ResourceVersion`, New: "",
	},
	{
		Name: "writer: a pod write that names no resourceVersion is sent (5)", In: "taint/kube.Writer.patchPod",
		Old: `p.ResourceVersion == ""`, New: "false",
	},
	{
		Name: "writer: a pod write without UID (5)", In: "taint/kube.Writer.patchPod",
		Old: `meta["uid"] = p.UID`, New: "",
	},
	{
		Name: "writer: a pod that is set not ready is made Ready", In: "taint/kube.Writer.SetPodNotReady",
		Old: "corev1.ConditionFalse", New: "corev1.ConditionTrue",
		Tests: []string{"./taint/kube -run NotReady"},
	},
	{
		Name: "writer: a tombstone leaves Ready True", In: "taint/kube.Writer.EndPod",
		Old: "if p.Ready { ... }", New: "",
		Tests: []string{"./taint/kube -run NotReady"},
	},
	{
		Name: "writer: a tombstone leaves ContainersReady True", In: "taint/kube.Writer.EndPod",
		Old: "if p.ContainersReady { ... }", New: "",
		Tests: []string{"./taint/kube -run NotReady"},
	},
	{
		Name: "writer: a tombstone writes Ready of a pod that has none", In: "taint/kube.Writer.EndPod",
		Old: "if p.Ready { ... }", New: "if true { ... }",
		Tests: []string{"./taint/kube -run NotReady"},
	},
	{
		Name: "writer: a tombstone writes ContainersReady of a pod that has none", In: "taint/kube.Writer.EndPod",
		Old: "if p.ContainersReady { ... }", New: "if true { ... }",
		Tests: []string{"./taint/kube -run NotReady"},
	},
	{
		Name: "reads: any condition counts as True", In: "taint/kube.isTrue",
		Old: "c.Status == corev1.ConditionTrue", New: "true",
		Tests: kubeReads,
	},
	{
		Name: "reads: any condition counts as Ready", In: "taint/kube.isTrue",
		Old: "c.Type == t", New: "true",
		Tests: kubeReads,
	},
	{
		Name: "writer: a pod is deleted by name (5)", In: "taint/kube.Writer.deleteObject",
		Old: "UID: &id", New: "UID: func() *types.UID { _ = id; return nil }()",
	},
	{
		Name: "writer: a pod is deleted that changed (5)", In: "taint/kube.Writer.deleteObject",
		Old: "ResourceVersion: &resourceVersion", New: "",
	},
	{
		Name: "writer: patches without leadership (5)", In: "taint/kube.Writer.patchObject",
		Old: "if err := w.Leading(); err != nil { ... }", New: "",
	},
	{
		Name: "writer: deletes without leadership (5)", In: "taint/kube.Writer.deleteObject",
		Old: "if err := w.Leading(); err != nil { ... }", New: "",
	},
	{
		Name: "workers: write on when the proof is gone (1)", In: "taint/controller.batch.writeItem",
		Old: "err != nil", New: "false && err != nil",
	},
	{
		Name: "recovery: a look is decided on though the read after it failed (11)", In: "taint/decide.Node.Next",
		Old: `
			if n.awaitsRead {
				n.lookIsFresh = false
			}`,
		New: "",
	},
	{
		Name: "workers: a sign of life does not stop them", In: "taint/controller.batch.ensureProof",
		Old: `
			if b.stopped.Load() || ctx.Err() != nil {
				return by, errProofLost
			}`,
		New: "",
	},
	{
		Name: "workers: a node that is Ready again does not stop them", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "n.IsReady()", New: "false",
	},
	{
		Name: "controller: power-off long after the look", In: "taint/decide.Node.lastActionHolds",
		Old: "n.look.Sent.Age(now) > proof.TTL+min(took, n.lastLookTook)", New: "took < 0",
	},
	{
		Name: "controller: power-off on a look of before a suspension", In: "taint/decide.Node.lastActionHolds",
		Old: "n.look.Sent.Age(now) > proof.TTL + min(took, n.lastLookTook)",
		New: "now.Sub(n.look.Sent) > proof.TTL + min(took, n.lastLookTook)", Tests: []string{"./taint/decide"},
	},
	{
		Name: "policy: pods end by reads of before a suspension", In: "taint/decide.Node.lastActionHolds",
		Old:   "n.lastReadAt.Age(now) > proof.TTL+n.questionDuration() || n.look.Sent.Age(now) > policyLook",
		New:   "now.Sub(n.lastReadAt) > proof.TTL+n.questionDuration() || now.Sub(n.look.Sent) > policyLook",
		Tests: []string{"./taint/decide"},
	},
	{
		Name: "recovery: a list of before a suspension is kept", In: "taint/decide.Node.decideByKeptList",
		Old: "n.kept.at.Age(v.Now)", New: "v.Now.Sub(n.kept.at)", Tests: []string{"./taint/decide"},
	},
	{
		Name: "recovery: work of before a suspension counts", In: "taint/decide.Node.findPendingWork",
		Old: "n.worked.Age(now)", New: "now.Sub(n.worked)", Tests: []string{"./taint/decide"},
	},
	{
		Name: "records: each look is the first", In: "taint/decide.Node.applyNodeRead",
		Old: "n.sights.WithRecord(l.Record, now)", New: "taint.Sightings(nil).WithRecord(l.Record, now)",
		Tests: []string{"./taint/decide"},
	},
	{
		Name: "records: a fence queues by the clock that began it", In: "taint/decide.Node.FenceBegan",
		Old: "n.sights.InstantOf(n.look.Record.Since, n.look.Got)", New: "providers.InstantOf(n.look.Record.Since)",
		Tests: []string{"./taint/decide"},
	},
	{
		Name: "controller: power-off on a look in which the process stood still",
		In:   "taint/decide.Node.lastActionHolds",
		Old:  "min(took, n.lastLookTook)", New: "took",
	},
	{
		Name: "controller: no power-off where the pause is read slowly", In: "taint/controller.reads.ReadNode",
		Old: "l.Got = w.Now.Instant()", New: "", Tests: []string{"./taint/controller -short -run TestSlowPause"},
	},
	{
		Name: "controller: no power-off where the API server is slow", In: "taint/decide.Node.lastActionHolds",
		Old: "min(took, n.lastLookTook)", New: "0*min(took, n.lastLookTook)",
	},
	{
		Name: "controller: power action without leadership", In: "taint/controller.lastCheck.stillHolds",
		Old: "c.Leading()", New: "error(nil)", Tests: lastChecks,
	},
	{
		Name: "controller: the provider gets no last check", In: "taint/controller.powerActions.sendPower",
		Old: "act(ctx, by.Target, check.stillHolds)", New: "act(ctx, by.Target, func() error { return nil })",
		Tests: lastChecks,
	},
	{
		Name: "controller: the provider is asked although the last check fails",
		In:   "taint/controller.powerActions.sendPower",
		Old:  "err != nil", New: "err == errCallOver", Tests: glue,
	},
	{
		Name: "controller: what was not sent counts as an attempt", In: "taint/controller.powerActions.sendPower",
		Old: "errors.Is(err, providers.ErrNotSent)", New: "false", Tests: lastChecks,
	},
	{
		Name: "controller: a provider acts after its call is over", In: "taint/controller.lastCheck.stillHolds",
		Old: "c.call.Err() != nil", New: "false", Tests: lastChecks,
	},
	{
		Name: "controller: the pause is not read again before a power action",
		In:   "taint/controller.lastCheck.stillHolds",
		Old:  "c.pausedNow(c.call, config.Exclusions.Pause)", New: `""`, Tests: lastChecks,
	},
	{
		Name: "controller: a power-off waits for a slow read of the pause", In: "taint/controller.base.pausedNow",
		Old: "context.WithTimeout(ctx, pauseRead)", New: "context.WithCancel(ctx)", Tests: lastChecks,
	},
	{
		Name: "controller: the cache drops what keeps a machine on", In: "taint/controller.slimNode",
		Old: "fence.IsExclusionCondition(c.Type)", New: "false && fence.IsExclusionCondition(c.Type)",
		Tests: lastChecks,
	},
	{
		Name: "controller: evictFirst is ignored", In: "taint/controller.reads.ListPods",
		Old: "w.Config().EvictFirst", New: "nil", Tests: glue,
	},
	{
		Name: "controller: all fences have one id", In: "taint/controller.reads.ReadNode",
		Old: "NewFenceID()", New: `"f-1"`, Tests: glue,
	},
	{
		Name: "controller: pods are spared by another fence's token", In: "taint/controller.podWrites.SparePods",
		Old: "w.st.course.Look().Record.Token()", New: `"f-0"`, Tests: glue,
	},
	{
		Name: "records: what an earlier process ended is not told", In: "taint/observe.NodeReporter.ReportStep",
		Old: "n.fences.reportEndedBefore(o.Pods)", New: "",
		Tests: glue,
	},
	{
		Name: "records: what is attached is not told", In: "taint/observe.NodeReporter.ReportStep",
		Old: "n.fences.reportAttached(o.Attachments)", New: "",
		Tests: glue,
	},
	{
		Name: "controller: a refused power action does not end with the leadership", In: "taint/decide.StepDone.Err",
		Old: "errors.Is(o.Err, errNotLeading)", New: "false", Tests: glue,
	},
	{
		Name: "last check: leadership", In: "taint/decide.Node.StillHolds",
		Old: "r.Leading != nil", New: "false",
	},
	{
		Name: "last check: an old look", In: "taint/decide.Node.StillHolds",
		Old: "n.lastActionHolds(now) != HoldYes", New: "false",
	},
	{
		Name: "last check: an old look, found by the simulation", In: "taint/decide.Node.StillHolds",
		Old: "case n.lastActionHolds(now) != HoldYes: ...", New: "case false: ...", Tests: []string{sim},
	},
	{
		Name: "last check: a heartbeat", In: "taint/decide.Node.StillHolds",
		Old: "r.Fleet.Alive.After(n.look.Sent)", New: "false",
	},
	{
		Name: "last check: a node that is not silent for this process", In: "taint/decide.Node.StillHolds",
		Old: "off && !r.Fleet.Stale", New: "false",
	},
	{
		Name: "last check: most nodes are silent (15)", In: "taint/decide.Node.StillHolds",
		Old: "off && !r.Fleet.Heard", New: "false",
	},
	{
		Name: "last check: a machine that is on is powered on", In: "taint/decide.Node.StillHolds",
		Old: "!off && r.Fleet.OnAt.After(n.look.Sent)", New: "false",
	},
	{
		Name: "last check: On stops a power-off", In: "taint/decide.Node.StillHolds",
		Old: "!off && r.Fleet.OnAt.After(n.look.Sent)", New: "r.Fleet.OnAt.After(n.look.Sent)",
	},
	{
		Name: "last check: a pause (8)", In: "taint/decide.Node.StillHolds",
		Old: `r.Paused != ""`, New: "false",
	},
	{
		Name: "last check: no Node in the cache", In: "taint/decide.Node.StillHolds",
		Old: "!r.Seen.Exists", New: "false",
	},
	{
		Name: "last check: a cache that is behind wins over the look", In: "taint/decide.Node.StillHolds",
		Old: "n.AheadOf(r.Seen)", New: "false",
	},
	{
		Name: "last check: a new configuration counts only in a cache that caught up",
		In:   "taint/decide.Node.StillHolds",
		Old:  "return checkPowerAllowed(r.Facts)", New: "return nil",
		Tests: []string{"./taint/decide -run TestStillHolds"},
	},
	{
		Name: "last check: what a cache that is behind says keeps the machine on",
		In:   "taint/controller.lastCheck.stillHolds",
		Old:  "c.course.AheadOf(l)", New: "false", Tests: lastChecks,
	},
	{
		Name: "last check: what the cache shows", In: "taint/decide.Node.StillHolds",
		Old: "return n.checkNodeUnchanged(r)", New: "return nil",
	},
	{
		Name: "last check: another Node object", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "r.Seen.UID != n.look.UID", New: "false",
	},
	{
		Name: "last check: another boot", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "r.Seen.BootID != n.look.BootID", New: "false",
	},
	{
		Name: "last check: Ready", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "r.Seen.IsReady() && !n.look.IsReady()", New: "false",
	},
	{
		Name: "last check: a mark", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "r.Seen.Mark != nil", New: "false",
	},
	{
		Name: "last check: another phase of the fence", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "is.Phase != was.Phase", New: "false",
	},
	{
		Name: "last check: a fence that a person released", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "is.Result != was.Result", New: "false",
	},
	{
		Name: "last check: another fence", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "is.ID != was.ID", New: "false",
	},
	{
		Name: "last check: what became of the machine", In: "taint/decide.Node.checkNodeUnchanged",
		Old: "is.PostFence != was.PostFence", New: "false",
	},
	{
		Name: "last check: the mode", In: "taint/decide.checkPowerAllowed",
		Old: "f.Mode != fence.Fence", New: "false",
	},
	{
		Name: "last check: an excluded node (8)", In: "taint/decide.checkPowerAllowed",
		Old: `f.Excluded != ""`, New: "false",
	},
	{
		Name: "last check: a machine that is kept on", In: "taint/decide.checkPowerAllowed",
		Old: `f.KeptOn != ""`, New: "false",
	},
	{
		Name: "simulation: a heartbeat that was heard before a power-off", In: "test/sim.checker.arrives",
		Old: "beat(k.heard)", New: "false", Tests: uncheckedPower,
	},
	{
		Name: "simulation: a power-off on an old look", In: "test/sim.checker.arrives",
		Old: "age > proofTTL+l.Got.Sub(l.Sent)", New: "age < 0", Tests: uncheckedPower,
	},
	{
		Name: "simulation: a power-off while another leads", In: "test/sim.checker.arrives",
		Old: "!w.procs[i].since.After(k.at)", New: "false", Tests: uncheckedPower,
	},
	{
		Name: "controller: a device that lied proves", In: "taint/decide.Node.applyAnswers",
		Old: `f.DistrustingNode(d.Machine, d.Name, n.look.Name) != ""`, New: `d.Name == "nobody"`,
	},
	{
		Name: "controller: what another leader's records tell is not asked before a power-off (6)",
		In:   "taint/decide.Node.decideUnmarked",
		Old:  "!f.ReserveTurn(l.Name, now)", New: "false",
	},
	{
		Name: "controller: a cache's attachments are work", In: "taint/decide.Node.findPendingWork",
		Old: "fence.WorkCached", New: "fence.WorkConfirmed",
	},
	{
		Name: "controller: the volume of an unread claim is work, once it is listed",
		In:   "taint/decide.Node.findPendingWork",
		Old:  "n.neededClaimRead(n.workPods)", New: "n.neededClaimRead(nil)",
	},
	{
		Name: "controller: a look is never kept, however slow the API server", In: "taint/decide.Node.applyAnswers",
		Old: "n.keepsLook(now)", New: "false",
	},
	{
		Name: "controller: a kept list says that nothing is left (11)", In: "taint/decide.Node.decideByKeptList",
		Old: "!waitsForVolumes(d) || kept.at.Age(v.Now) >= waitHolds", New: "action.Is[action.NoAction](d)",
	},
	{
		Name: "controller: a kept list never grows old", In: "taint/decide.Node.decideByKeptList",
		Old: "n.kept.at.Age(v.Now) > keptHolds", New: "false",
	},
	{
		Name: "controller: a list serves nothing but the act that it was made for",
		In:   "taint/decide.Node.applyActionDone",
		Old:  "n.kept = n.pods", New: "",
	},
	{
		Name: "controller: Events compete with other nodes' pod writes", In: "taint/observe.eventQueue.dueFilter",
		Old: "e.ready && !writing", New: "e.ready && (!writing || true)",
		Tests: observing,
	},
	{
		Name: "controller: Events that waited are forgotten", In: "taint/observe.eventQueue.sendIf",
		Old: "return false", New: "return true",
		Tests: observing,
	},
	{
		Name: "controller: a fence is told of only once nobody writes pods", In: "taint/observe.Observer.Start",
		Old: "o.queue.sendDue()", New: "",
		Tests: observing,
	},
	{
		Name: "controller: Events of a fence that is over wait for ever", In: "taint/observe.eventQueue.dueFilter",
		Old: "now.Sub(e.since) >= queueFor", New: "now.Sub(e.since) < 0",
		Tests: observing,
	},
	{
		Name: "controller: the work of a fence begins another", In: "taint/decide.Node.decideMarked",
		Old: "n.work, n.workPods = fence.WorkNone, nil", New: "",
	},
	{
		Name: "controller: volumes are cleared after the proof has gone (1)",
		In:   "taint/controller.nodeWrites.ClearVolumes",
		Old:  "hold != decide.HoldYes", New: "hold > decide.HoldSkipPod",
	},
	{
		Name: "kube: client-go sends an old write again (1)", In: "taint/kube.onceTransport.RoundTrip",
		Old: `resp.Header.Del("Retry-After")`, New: "", Tests: sentOnce,
	},
	{
		Name: "kube: net/http sends a write again (1)", In: "taint/kube.onceTransport.RoundTrip",
		Old: "req.GetBody = nil", New: "_ = req.GetBody",
	},
	{
		Name: "kube: a write is sent whose time is over (1)", In: "taint/kube.onceTransport.RoundTrip",
		Old: "if isOver(by) { return nil, ErrLate }", New: "", Tests: sentOnce,
	},
	{
		Name: "kube: a suspended process sends what it decided before (1)", In: "taint/kube.isOver",
		Old: "!now.Before(by) || !now.Wall.Before(by.Wall)", New: "!now.Before(by)", Tests: sentOnce,
	},
	{
		Name: "kube: a wall clock that was set back gives a write more time (1)", In: "taint/kube.isOver",
		Old: "!now.Before(by) || !now.Wall.Before(by.Wall)", New: "!now.Wall.Before(by.Wall)", Tests: sentOnce,
	},
	{
		Name: "kube: a write is begun after a suspension in front of its connection (1)",
		In:   "taint/kube.onceTransport.RoundTrip",
		Old:  "if isOver(by) { cancel(ErrLate) }", New: "", Tests: sentOnce,
	},
	{
		Name: "kube: a write is sent after a suspension in front of its connection (1)",
		In:   "taint/kube.onceTransport.RoundTrip",
		Old:  "req.Body = &timelyBody{ReadCloser: req.Body, by: by}", New: "", Tests: sentOnce,
	},
	{
		Name: "kube: a write that has begun is cut off", In: "taint/kube.timelyBody.Read",
		Old: "!b.begun && isOver(b.by)", New: "isOver(b.by)", Tests: sentOnce,
	},
	{
		Name: "kube: a write waits for a connection as long as it takes (1)", In: "taint/kube.onceTransport.RoundTrip",
		Old: "if !sent.Load() { ... }", New: "_, _ = sent.Load(), cancel", Tests: sentOnce,
	},
	{
		Name: "kube: a write that was sent is cut off", In: "taint/kube.onceTransport.RoundTrip",
		Old: "sent.Store(true)", New: "sent.Store(false)", Tests: sentOnce,
	},
	{
		Name: "kube: a read that failed begins its decision anew", In: "taint/kube.onceTransport.retryRead",
		Old: "tries == readTries || time.Since(first)+rest > readWithin", New: "!first.IsZero() || rest == 0",
		Tests: sentOnce,
	},
	{
		Name: "kube: a read that took long to fail is sent again", In: "taint/kube.onceTransport.retryRead",
		Old: "time.Since(first)+rest > readWithin", New: "first.IsZero()", Tests: sentOnce,
	},
	{
		Name: "kube: a watch that failed is sent again", In: "taint/kube.onceTransport.retryRead",
		Old: `if req.URL.Query().Has("watch") { ... }`, New: "", Tests: sentOnce,
	},
	{
		Name: "kube: a read is as patient as the API server asks", In: "taint/kube.onceTransport.retryRead",
		Old: `resp.Header.Set("Retry-After", "1")`, New: "", Tests: sentOnce,
	},
	{
		Name: "kube: a write that failed is sent again, as a read is (1)", In: "taint/kube.onceTransport.RoundTrip",
		Old: "req.Method == http.MethodGet || req.Method == http.MethodHead", New: `req.Method != ""`, Tests: sentOnce,
	},
	{
		Name: "app: clients send old writes again (1)", In: "cmd/internal/app.clientsOf",
		Old: "kube.SendWritesOnce(rc)", New: "_ = kube.SendWritesOnce",
		Tests: []string{"./cmd/internal/app -run ClientsSend"},
	},
	{
		Name: "workers: a pod write may take any time until it is sent (1)", In: "taint/controller.batch.writeItem",
		Old: "kube.SendBy(ctx, by)", New: "kube.SendBy(ctx, by.Add(maxCrowdedRest*1000))", Tests: slowDevice,
	},
	{
		Name: "controller: the clearing may take any time until it is sent (1)",
		In:   "taint/controller.nodeWrites.ClearVolumes",
		Old:  "kube.SendBy(ctx, by)", New: "kube.SendBy(ctx, by.Add(maxCrowdedRest*1000))", Tests: slowDevice,
	},
	{
		Name: "controller: a proof that ends before the write is sent holds (1)", In: "taint/decide.Node.MaySend",
		Old: "now.Add(within)", New: "now", Tests: slowDevice,
	},
	{
		Name: "controller: a process that stands still after its check sends all the same (1)",
		In:   "taint/controller.work.maySend",
		Old:  "read.Add(within)", New: "read.Add(within + providers.Now().Sub(read))", Tests: slowDevice,
	},
	{
		Name: "proof: a write behind a slow device is sent after the proof (1)", In: "taint/decide/proof.TimeToSend",
		Old: "min(left, Sending)", New: "Sending", Tests: slowDevice,
	},
	{
		Name: "proof: nothing is written behind a device that takes 4.7 s", In: "taint/decide/proof.TimeToSend",
		Old: "max(onArrival/2, Shortest)", New: "max(onArrival, Sending)", Tests: slowDevice,
	},
	{
		Name: "proof: nothing is written behind a device that takes 4.7 s, found by the simulation",
		In:   "taint/decide/proof.TimeToSend",
		Old:  "max(onArrival/2, Shortest)", New: "max(onArrival, Sending)", Tests: []string{sim},
	},
	{
		Name: "recovery: a slow device's Off is always too old once the node was looked at",
		In:   "taint/decide.Node.keepsLook",
		Old:  "n.readsTook > time.Second || n.offEndsSoon(now)", New: "n.readsTook > time.Second", Tests: slowDevice,
	},
	{
		Name: "recovery: a sign of life behind a slow API server is not looked at",
		In:   "taint/decide.Node.applyAnswers",
		Old:  "!f.View(n.look.Name, now).Alive.After(n.look.Sent)",
		New:  "(n.readsTook > time.Second || !f.View(n.look.Name, now).Alive.After(n.look.Sent))", Tests: lifeSince,
	},
	{
		Name: "recovery: a sign of life behind a slow device is not looked at", In: "taint/decide.Node.applyAnswers",
		Old: "!f.View(n.look.Name, now).Alive.After(n.look.Sent)",
		New: "(n.offEndsSoon(now) || !f.View(n.look.Name, now).Alive.After(n.look.Sent))", Tests: lifeSince,
	},
	{
		Name: "recovery: a question counts as a read", In: "taint/decide.Node.applyRead",
		Old: "n.readsTook += at.Sub(n.readBegan)", New: "n.readsTook = at.Sub(n.look.Sent)", Tests: lifeSince,
	},
	{
		Name: "recovery: a look is kept for any number of questions", In: "taint/decide.Node.keepsLook",
		Old: "min(n.lastReadAt.Sub(n.look.Sent)-n.readsTook, proof.TTL)",
		New: "n.lastReadAt.Sub(n.look.Sent) - n.readsTook", Tests: lifeSince,
	},
	{
		Name: "recovery: what is read behind a slow device leads to no act (16)", In: "taint/decide.Node.keepsLook",
		Old: "min(n.lastReadAt.Sub(n.look.Sent)-n.readsTook, proof.TTL)", New: "0 * proof.TTL", Tests: lifeSince,
	},
	{
		Name: "recovery: a write is sent after a sign of life", In: "taint/decide.Node.HoldsFor",
		Old: "v.Alive.After(n.look.Sent) && !action.NeedsNoProof(n.lastDecision.Action)", New: "false",
		Tests: lifeSince,
	},
	{
		Name: "recovery: a policy's write is sent after a sign of life", In: "taint/decide.Node.HoldsFor",
		Old:   "!action.NeedsNoProof(n.lastDecision.Action)",
		New:   `!action.NeedsNoProof(n.lastDecision.Action) && !action.IsByPolicy(n.lastDecision.Action)`,
		Tests: lifeSince,
	},
	{
		Name: "recovery: a sign of life holds up the return path", In: "taint/decide.Node.HoldsFor",
		Old: "!action.NeedsNoProof(n.lastDecision.Action)", New: "true", Tests: lifeSince,
	},
	{
		Name: "workers: a heartbeat that the fleet heard of stops no run", In: "taint/controller.work.maySend",
		Old: "w.fleetView(w.st.course.Look().Name)", New: "(fleet.View{})", Tests: glue,
	},
	{
		Name: "fleet: a heartbeat is no sign of life", In: "taint/decide/fleet.Fleet.View",
		Old: "v.OddLease, v.Beat, v.Alive = n.odd, n.beat, n.beat", New: "v.OddLease, v.Beat = n.odd, n.beat",
		Tests: lifeSince,
	},
	{
		Name: "fleet: a sign of life hides a later heartbeat", In: "taint/decide/fleet.Fleet.View",
		Old: "n.alive.After(n.beat)", New: "!n.alive.IsZero()", Tests: lifeSince,
	},
	{
		Name: "fleet: what is seen first is a sign of life", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: `n.uid != "" && (n.uid != l.UID || n.boot != l.BootID || n.unready && l.IsReady())`,
		New: "n.uid != l.UID || n.boot != l.BootID || n.unready && l.IsReady()", Tests: lifeSince,
	},
	{
		Name: "fleet: another UID is no sign of life", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "n.uid != l.UID || n.boot != l.BootID || n.unready && l.IsReady()",
		New: "n.boot != l.BootID || n.unready && l.IsReady()", Tests: lifeSince,
	},
	{
		Name: "fleet: another boot is no sign of life", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "n.boot != l.BootID", New: "false", Tests: lifeSince,
	},
	{
		Name: "fleet: that a node becomes Ready is no sign of life", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "n.unready && l.IsReady()", New: "false", Tests: lifeSince,
	},
	{
		Name: "fleet: each change of a Ready node is a sign of life", In: "taint/decide/fleet.Fleet.ApplyLook",
		Old: "n.unready && l.IsReady()", New: "l.IsReady()", Tests: lifeSince,
	},
	{
		Name: "evict: the mark goes where a look outlasts the Off of a node that reads Ready",
		In:   "taint/decide/evict.View.decideArmed",
		Old:  "v.Answers.Answer.State == providers.PowerOff || v.mayAskAgain()", New: "v.mayAskAgain()",
		Tests: []string{"./taint/decide/evict"},
	},
	{
		Name: "workers: a pod that waited is written into stock eviction (F2)",
		In:   "taint/controller.batch.ensureProof",
		Old:  "errNotNow", New: "nil", Tests: glue,
	},
	{
		Name: "workers: a write that was not sent counts as a failure", In: "taint/controller.work.writeEach",
		Old: `
			case errors.Is(err, kube.ErrLate), errors.Is(err, errNotNow):
				return nil`,
		New: "",
	},
	{
		Name: "workers: a sign of life while the device is asked does not stop them",
		In:   "taint/controller.batch.ensureProof",
		Old: `
			if b.stopped.Load() {
				return by, errProofLost
			}
			by, hold = b.maySend(uid)`,
		New: "by, hold = b.maySend(uid)",
	},
	{
		Name: "heartbeats: somebody leads before all Leases were heard of", In: "taint/wake.listed.WaitForCacheSync",
		Old: "return false", New: "return true",
	},
	{
		Name: "workers: nobody tells them of a heartbeat", In: "taint/controller.Reconciler.wakeOptions",
		Old: "OnHeartbeat: r.stopWrites", New: "OnHeartbeat: func(string) {}", Tests: []string{podFailures},
	},
	{
		Name: "workers: a heartbeat does not stop them", In: "taint/wake.heartbeats.Update",
		Old: "h.OnHeartbeat(l.Name)", New: "_ = l",
	},
	{
		Name: "workers: how a write ended is forgotten (16)", In: "taint/decide.Node.applyPodWrites",
		Old: "n.evict.ApplyPodWrites(write, pods, how, now)", New: "_, _ = write, pods",
	},
	{
		Name: "workers: a lost leadership is a pod's failure", In: "taint/controller.work.writeEach",
		Old: "return lost", New: "_ = lost",
		Tests: []string{podFailures},
	},
	{
		Name: "controller: volumesAttached is cleared again and again (F5)", In: "taint/decide.Node.applyActionDone",
		Old: "n.evict.Cleared++", New: "",
	},
	{
		Name: "evict: what attach/detach wrote back stays listed (F5)", In: "taint/decide/evict.View.decideEviction",
		Old: "len(left) == 0 && v.Memory.Cleared < maxClearings", New: "false",
	},
	{
		Name: "evict: volumesAttached is cleared while its controller detaches (F5)",
		In:   "taint/decide/evict.View.decideEviction",
		Old:  "len(left) == 0 && v.Memory.Cleared < maxClearings", New: "v.Memory.Cleared < maxClearings",
	},
	{
		Name: "evict: who writes volumesAttached back keeps the mark (16)",
		In:   "taint/decide/evict.View.decideEviction",
		Old:  "len(left) == 0 && v.Memory.Cleared < maxClearings", New: "len(left) == 0",
	},
	{
		Name: "controller: pods that stay keep Ready", In: "taint/controller.podWrites.SetPodsNotReady",
		Old: "return w.writePods(ctx, a, w.writer.SetPodNotReady)", New: `
			return w.writePods(ctx, a, func(context.Context, action.Pod) error { return nil })`,
		Tests: []string{"./taint/controller -run TestFenceInAMixedWorld"},
	},
	{
		Name: "controller: a fence is told that was not written", In: "taint/observe.decisions.reportStep",
		Old: "s.Err() == nil || !writesRecord(d.Action)", New: "true",
		Tests: []string{podFailures},
	},
	{
		Name: "writer: etcd's limit is not known", In: "taint/kube.RefusalOf",
		Old: "strings.Contains(s.Message, w)", New: "strings.Contains(w, s.Message+w)",
		Tests: []string{"./taint/kube -short"},
	},
	{
		Name: "writer: a large pod is spared by what grows it more than a tombstone (10)", In: "taint.SparedMessage",
		Old: `return "spared"`, New: `return "spared by its fence"`,
		Tests: []string{"./taint/kube -run TestSmallForms"},
	},
	{
		Name: "writer: a large pod that is spared again keeps its resourceVersion (10)", In: "taint.SparedMessage",
		Old: `before == "spared"`, New: "false",
		Tests: []string{"./taint/kube -run TestSmallForms"},
	},
	{
		Name: "writer: the small tombstone is a whole one", In: "taint/kube.Writer.EndPod",
		Old: "!p.Small", New: "true",
		Tests: []string{"./taint/kube -run TestSmallForms"},
	},
	{
		Name: "release: a person without the right spares nobody and is not told (10)", In: "taint/release.spareAll",
		Old: `strings.Contains(err.Error(), "cannot patch resource")`, New: "false",
		Tests: []string{"./taint/release -run TestReleaseGoesOn"},
	},
	{
		Name: "release: a pod that changed is not spared (10)", In: "taint/release.spareAll",
		Old: "why == action.Changed", New: "false",
		Tests: []string{"./taint/release -run TestReleaseGoesOn"},
	},
	{
		Name: "release: a pod with full annotations is not spared (10)", In: "taint/release.spareAll",
		Old: "why == action.TooLarge && !p.Small", New: "false",
		Tests: []string{"./taint/release -run TestReleaseGoesOn"},
	},
	{
		Name: "release: no pod is spared (10)", In: "taint/release.spareAll",
		Old: "w.SparePod(ctx, p, l.Record.Token())", New: "error(nil)",
		Tests: []string{"./taint/release -run TestReleaseGoesOn"},
	},
	{
		Name: "nudge: under the mark", In: "taint/controller.nudgeState.observeLook",
		Old: "n.marked || !n.ready", New: "!n.ready",
	},
	{
		Name: "nudge: by the cache's word alone, under the mark", In: "taint/controller.nudges.listHeld",
		Old: "_, open = w.st.nudging.nextRound(w.Now())", New: "open = true",
	},
	{
		Name: "nudge: of a node that is not Ready", In: "taint/controller.nudgeState.observeLook",
		Old: "!n.ready", New: "false",
	},
	{
		Name: "nudge: lists where there is no hook", In: "taint/controller.nudgeState.observeLook",
		Old: "status != corev1.ConditionTrue", New: "false",
	},
	{
		Name: "nudge: none when the mark goes", In: "taint/controller.nudgeState.observeLook",
		Old: "was.marked", New: "false",
	},
	{
		Name: "nudge: none after NotReady", In: "taint/controller.nudgeState.observeLook",
		Old: "was.marked || !was.ready", New: "was.marked",
	},
	{
		Name: "nudge: none after a reboot that nobody saw", In: "taint/controller.nudgeState.observeLook",
		Old: "was.marked || !was.ready || was.boot != n.boot", New: "was.marked || !was.ready",
	},
	{
		Name: "nudge: an empty list after a boot ends it", In: "taint/controller.nudgeState.endRound",
		Old: "n.fresh && n.round == 0", New: "false",
	},
	{
		Name: "nudge: on and on where nothing is held", In: "taint/controller.nudgeState.endRound",
		Old: "held > 0 || n.fresh && n.round == 0", New: "true",
	},
	{
		Name: "nudge: a cache that is behind opens the node again", In: "taint/controller.nudgeState.observeLook",
		Old: "n.known && taint.IsOlder(l.ResourceVersion, n.rv)", New: "false",
	},
	{
		Name: "nudge: every node when a process begins", In: "taint/controller.nudgeState.observeLook",
		Old: "case !was.known:", New: "",
	},
	{
		Name: "nudge: all turns at once", In: "taint/controller.nudges.runDueRound",
		Old: "wait > 0", New: "false",
	},
	{
		Name: "nudge: nobody comes back for the next turn", In: "taint/controller.Reconciler.Reconcile",
		Old: "after > 0", New: "after < 0",
	},
	{
		Name: "nudge: lists without leadership", In: "taint/controller.nudges.runDueRound",
		Old: "w.Leading() != nil", New: "false",
	},
	{
		Name: "nudge: the live look of a fence is not seen", In: "taint/controller.reads.ReadNode",
		Old: `
			status, _ := taint.ProtectionOf(node)
			st.nudging.observeLook(l, status, w.Now())`,
		New: "_, _ = taint.ProtectionOf(node)",
	},
	{
		Name: "nudge: an exempt pod (9)", In: "taint.IsHeldByHook",
		Old: "ExemptionOf(pod, key) != NotExempt", New: "false",
	},
	{
		Name: "nudge: a pod that has its sandbox", In: "taint.IsHeldByHook",
		Old: "c.Status != corev1.ConditionTrue", New: "true",
	},
	{
		Name: "nudge: a finished pod", In: "taint.IsHeldByHook",
		Old: "IsTerminal(pod)", New: "false",
	},
	{
		Name: "nudge: a pod that is being deleted", In: "taint.IsHeldByHook",
		Old: "pod.DeletionTimestamp != nil", New: "false",
	},
	{
		Name: "nudge: the same text again", In: "taint/kube.Writer.NudgePod",
		Old: `"2006-01-02T15:04:05.000000Z07:00"`, New: `"2006-01-02"`,
		Tests: []string{"./taint/controller -run TestNudge"},
	},
	{
		Name: "nudge: the hook's condition is not kept in the cache", In: "taint/controller.slimNode",
		Old: "c.Type == taint.ProtectionCondition", New: "false",
	},
	{
		Name: "nudge: a hook that changes wakes nobody", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "status == oldStatus && why == oldWhy", New: "true || status == oldStatus && why == oldWhy",
	},
	{
		Name: "nudge: a list that failed says that nothing is held", In: "taint/controller.nudges.runDueRound",
		Old: "w.st.nudging.endRound(1)", New: "w.st.nudging.endRound(0)",
	},

	// The node's hook: its memory and its reader.
	{
		Name: "hook: another boot's memory counts", In: "kubelet-admit/nri.view.restoreStatus",
		Old: "s.BootID != v.bootID", New: "false",
	},
	{
		Name: "hook: no boot id is a boot", In: "kubelet-admit/nri.view.restoreStatus",
		Old: `s.BootID == ""`, New: "false",
	},
	{
		Name: "hook: another mark's memory counts", In: "kubelet-admit/nri.view.restoreStatus",
		Old: "s.TaintKey != v.key", New: "false",
	},
	{
		Name: "hook: another node's memory counts", In: "kubelet-admit/nri.view.restoreStatus",
		Old: "s.Node.Name != v.node.Name", New: "false",
	},
	{
		Name: "hook: a memory that never read the Node counts", In: "kubelet-admit/nri.view.restoreStatus",
		Old: "!s.Node.Read", New: "false",
	},
	{
		Name: "hook: a Ready of before the boot counts", In: "kubelet-admit/nri.view.readyNow",
		Old: `v.bootID != "" && node.Status.NodeInfo.BootID == v.bootID`, New: "true",
	},
	{
		Name: "hook: an unknown boot id is the Node's", In: "kubelet-admit/nri.view.readyNow",
		Old: `v.bootID != ""`, New: "true",
	},
	{
		Name: "hook: a Ready that is not True counts", In: "kubelet-admit/nri.view.readyNow",
		Old: "c.Status == corev1.ConditionTrue", New: "true",
	},
	{
		Name: "hook: a finished pod is known", In: "kubelet-admit/nri.view.seePod",
		Old: "taint.IsTerminal(pod)", New: "false",
	},
	{
		Name: "hook: a deleted pod is known", In: "kubelet-admit/nri.view.seePod",
		Old: "deleted || taint.IsTerminal(pod)", New: "taint.IsTerminal(pod)",
	},
	{
		Name: "hook: a list keeps finished pods", In: "kubelet-admit/nri.view.seePods",
		Old: "!taint.IsTerminal(&pods[i])", New: "true",
	},
	{
		Name: "hook: a deleted Node stays read", In: "kubelet-admit/nri.view.forgetNode",
		Old: "v.node.Read = false", New: "",
	},
	{
		Name: "hook: an unknown pod is exempt by its word", In: "kubelet-admit/nri.view.staticExemption",
		Old: `
			if e := taint.ExemptionOf(&pod, v.key); e == taint.ExemptStatic {
				return e
			}
			return taint.NotExempt`,
		New: "return taint.ExemptStatic",
	},
	{
		Name: "hook: the reason is of the mark before", In: "kubelet-admit/nri.view.seeNode",
		Old: "v.buildErrors()", New: "",
	},
	{
		Name: "hook: a mark waits for the pods", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "if isMarked(node, r.view.key) { ... }", New: "if false { ... }",
	},
	{
		Name: "hook: the mark's absence does not wait for the pods", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "if isMarked(node, r.view.key) { ... }", New: "if true { ... }",
	},
	{
		Name: "hook: pods are not listed again when the mark goes", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "last.Marked && !last.Detaching && !isHeld(node, r.view.key)", New: "last.Marked && false",
	},
	{
		Name: "hook: a Node that is gone is an outage", In: "kubelet-admit/nri.reader.readNode",
		Old: "isGone(err)", New: "false",
	},
	{
		Name: "hook: a proxy's page is the API server's word", In: "kubelet-admit/nri.isGone",
		Old: "!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)", New: "true",
	},
	{
		Name: "hook: a stopped plugin overwrites its successor's status", In: "kubelet-admit/nri.hook.writeStatus",
		Old: "h.written && err == nil", New: "false && err == nil",
	},
	{
		Name: "hook: pods are listed before the Node is read", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: `
			node, err := r.readNode(ctx, api)
			if err != nil { ... }
			version := node.ResourceVersion
			if isMarked(node, r.view.key) { ... }
			nodes := api.watchFrom(ctx, "nodes", fields.OneTermEqualSelector(metav1.ObjectNameField, r.node), node.ResourceVersion)
			pods, stop, err := r.watchPods(ctx, api)
			if err != nil {
				return err
			}`,
		New: `
			pods, stop, err := r.watchPods(ctx, api)
			if err != nil {
				return err
			}
			node, err := r.readNode(ctx, api)
			if err != nil { ... }
			version := node.ResourceVersion
			if isMarked(node, r.view.key) { ... }
			nodes := api.watchFrom(ctx, "nodes", fields.OneTermEqualSelector(metav1.ObjectNameField, r.node), node.ResourceVersion)`,
	},
	{
		Name: "hook: a watch that is open and silent is believed", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "unknown || node.ResourceVersion != version", New: "unknown || node.ResourceVersion == version && false",
	},
	{
		Name: "hook: a silent watch of the pods is believed", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "unknown || node.ResourceVersion != version", New: "unknown && false || node.ResourceVersion != version",
	},
	{
		Name: "hook: it reads every five seconds though it holds nothing", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: "!held", New: "held && false",
	},
	{
		Name: "hook: a poll does not list the pods (10)", In: "kubelet-admit/nri.reader.readAndWatch",
		Old: `
			if unknown || node.ResourceVersion != version {
				return errReadAgain
			}`,
		New: `
			if unknown || node.ResourceVersion != version {
				r.view.seeNode(node, true, time.Now())
			}`,
	},
	{
		Name: "hook: a watch has no end", In: "kubelet-admit/nri.client.watchFrom",
		Old: "int64(c.watchFor / time.Second)", New: "int64(0)",
	},
	{
		Name: "hook: a watch's end that does not get through is waited for", In: "kubelet-admit/nri.client.watchFrom",
		Old: "c.watchFor+c.watchFor/10", New: "time.Hour",
	},
	{
		Name: "hook: an exemption that can end is remembered", In: "kubelet-admit/nri.hasLastingExemption",
		Old: "t.Effect == corev1.TaintEffectNoExecute", New: "false",
	},
	{
		Name: "hook: a pod that calls itself static is remembered", In: "kubelet-admit/nri.hasLastingExemption",
		Old: "firm := corev1.Pod{}",
		New: `
			firm := corev1.Pod{}
			firm.Annotations = pod.Annotations`,
	},
	{
		Name: "hook: another node's disk is believed", In: "kubelet-admit/nri.readMemory",
		Old: "m.Node != c.NodeName", New: "false",
	},
	{
		Name: "hook: another mark's disk is believed", In: "kubelet-admit/nri.readMemory",
		Old: "m.TaintKey != c.TaintKey", New: "false",
	},
	{
		Name: "hook: a pod without an UID is remembered", In: "kubelet-admit/nri.parseMemory",
		Old: `uid == ""`, New: "false",
	},
	{
		Name: "hook: what follows the memory's end is ignored", In: "kubelet-admit/nri.parseMemory",
		Old: "!errors.Is(err, io.EOF)", New: "err == nil && false",
	},
	{
		Name: "hook: a memory of any length is read", In: "kubelet-admit/nri.parseMemory",
		Old: "len(text) > memoryBytes", New: "false",
	},
	{
		Name: "hook: the memory is written before a list", In: "kubelet-admit/nri.view.lastingUIDs",
		Old: "!v.listed", New: "false",
	},
	{
		Name: "hook: what the boot has listed does not end the memory", In: "kubelet-admit/nri.view.seePods",
		Old: "v.pods, v.listed, v.node.Listed = seen, true, true", New: "v.pods, v.listed = seen, true",
	},
	{
		Name: "hook: the Node is read from a cache", In: "kubelet-admit/nri.client.getNode",
		Old: `c.rest.Get().Resource("nodes").Name(name)`,
		New: `c.rest.Get().Resource("nodes").Name(name).Param("resourceVersion", "0")`,
	},
	{
		Name: "hook: the pods are read from a cache", In: "kubelet-admit/nri.client.listPods",
		Old: "FieldSelector: selector.String()", New: `FieldSelector: selector.String(), ResourceVersion: "0"`,
	},
	{
		Name: "hook: CreateContainer always allows", In: "kubelet-admit/nri.plugin.CreateContainer",
		Old: "p.admitPod(pod)", New: "nil",
	},
	{
		Name: "hook: an old runtime is given the event it does not know", In: "kubelet-admit/nri.plugin.Configure",
		Old: "knowsValidators(p.nri)", New: "true",
	},
	{
		Name: "hook: what the plugin does not answer passes", In: "kubelet-admit/nri.plugin.serveRuntime",
		Old: "FailRequest: true", New: "FailRequest: false",
	},
	{
		Name: "install: a Node of another boot is taken", In: "kubelet-admit/install.installer.sameBoot",
		Old: "node.Status.NodeInfo.BootID != boot", New: "false",
		Tests: []string{installBoot},
	},
	{
		Name: "install: a kubelet that is about to report is refused", In: "kubelet-admit/install.bootWait",
		Old: "30 * time.Second", New: "0 * time.Second",
		Tests: []string{installBoot},
	},
	{
		Name: "report: nobody is told of a node without a hook", In: "taint/observe.decisions.reportReason",
		Old: "if d.Reason == reason.Confirmed || d.Reason == reason.Vouched { ... }", New: "if false { ... }",
		Tests: observing,
	},
	{
		Name: "report: a rejected step is not told (13)", In: "taint/observe.states.stepFailed",
		Old: "n.failing.stuck || now.Sub(n.failing.since) < stuckAfter", New: "true",
		Tests: stuckWorld,
	},
	{
		Name: "report: a rejected step is told at once", In: "taint/observe.states.stepFailed",
		Old: "now.Sub(n.failing.since) < stuckAfter", New: "false",
		Tests: stuckWorld,
	},
	{
		Name: "report: an outage is a failure of every node", In: "taint/observe.states.stepFailed",
		Old:   "look || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown",
		New:   "false && look && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown",
		Tests: stuckWorld,
	},
	{
		Name: "report: an outage ends no minute", In: "taint/observe.states.stepFailed",
		Old: "n.failing.since = time.Time{}", New: "",
		Tests: stuckWorld,
	},
	{
		Name: "report: a write without an answer does not count", In: "taint/observe.states.stepFailed",
		Old:   "look || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown",
		New:   "true || look || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown",
		Tests: stuckWorld,
	},
	{
		Name: "report: a step that succeeds ends no failure", In: "taint/observe.states.stepSucceeded",
		Old: "n.failing = failing{}", New: "",
		Tests: stuckWorld,
	},
	{
		Name: "report: a node whose steps fail is not stuck in the metric", In: "taint/observe.states.setState",
		Old: "n.failing.stuck", New: "false",
		Tests: stuckWorld,
	},
	{
		Name: "report: a stuck node that is gone stays stuck", In: "taint/observe.NodeReporter.ReportGone",
		Old: "n.states.failing = failing{}", New: "",
		Tests: stuckWorld,
	},
	{
		Name: "report: every node is one without a hook", In: "taint/observe.decisions.reportNoHook",
		Old: "status == corev1.ConditionTrue", New: "false && status == corev1.ConditionTrue",
		Tests: observing,
	},
	{
		Name: "report: an Event may be longer than the API server takes it", In: "taint/reason.Row.EventNote",
		Old: "len(text) > maxNoteBytes", New: "false",
	},

	// The glue: what is read, and of whom it is said.
	{
		Name: "look: a Lease that cannot be read is none", In: "taint/kube.ReadNode",
		Old: `
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("reading lease live: %w", err)`,
		New: "",
	},
	{
		Name: "look: a Node that cannot be read is gone", In: "taint/kube.ReadNode",
		Old: `
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("reading node live: %w", err)`,
		New: "",
	},
	{
		Name: "look: a claim that cannot be read has no volume", In: "taint/kube.readPodVolumes",
		Old: `return nil, nil, fmt.Errorf("reading claim %s/%s: %w", p.Namespace, claim, err)`, New: "continue",
	},
	{
		Name: "look: other nodes' attachments are this one's (11)", In: "taint/kube.SeeAttachments",
		Old: "out[va.Spec.NodeName] = append(out[va.Spec.NodeName], a)", New: `out["n1"] = append(out["n1"], a)`,
	},
	{
		Name: "look: a volume's handle is its name (step 10)", In: "taint/kube.readPodVolumes",
		Old: "pv.Spec.CSI.VolumeHandle", New: "vol.PV",
	},
	{
		Name: "look: a generic ephemeral volume's claim has its name alone", In: "taint.VolumeClaim",
		Old: `p.Name + "-" + v.Name`, New: "v.Name",
	},
	{
		Name: "look: a generic ephemeral volume is none", In: "taint.VolumeClaim",
		Old: "case v.Ephemeral != nil: ...", New: "",
	},
	{
		Name: "controller: exempt pods' volumes are work (9)", In: "taint/decide.Node.nextListing",
		Old: "if read := n.neededVolumeRead(); read != nil { ... }", New: "",
	},
	{
		Name: "controller: a return ends by the cache's attachments (11)", In: "taint/decide/evict.View.readFirst",
		Old: "res == taint.ResultReturned", New: "false",
	},
	{
		Name: "controller: one device that lied distrusts all", In: "taint/decide/fleet.Fleet.DistrustingNode",
		Old: "f.distrustRecords[name].DistrustsDevice(m, device, name == of)",
		New: `f.distrustRecords[name] != nil && of != ""`,
	},
	{
		Name: "controller: records that cannot be listed tell of no liar", In: "taint/controller.Reconciler.loadFleet",
		Old: "err != nil", New: "err != nil && false",
	},
	{
		Name: "look: a look is as young as its answer (step 4)", In: "taint/kube.ReadNode",
		Old: "key, providers.InstantOf(sent)", New: "key, providers.InstantOf(now().Add(0*now().Sub(sent)))",
	},
	{
		Name: "look: a look was there when it was asked for (1)", In: "taint/kube.ReadNode",
		Old: "taint.NewLook(node, lease, key, providers.InstantOf(sent), providers.InstantOf(now()))",
		New: "taint.NewLook(node, lease, key, providers.InstantOf(sent), providers.InstantOf(sent))",
	},
	{
		Name: "controller: a power-off that cannot be announced keeps all others waiting",
		In:   "taint/decide.Node.applyActionDone",
		Old:  "f.ReleaseTurn(n.look.Name)", New: "",
	},
	{
		Name: "release: pods are spared under our own mark only (10)", In: "taint/release.tryRelease",
		Old: "if l.Record.IsOpen() { ... }", New: "if l.HasOwnMark() { ... }",
	},
	{
		Name: "identity: what led another Node of the name leads this one",
		In:   "cmd/internal/app.nodeEntry.matches",
		Old:  "e.uid == n.UID", New: "true", Tests: indexed,
	},
	{
		Name: "identity: what led an older version of the Node leads it",
		In:   "cmd/internal/app.nodeEntry.matches",
		Old:  "e.version == n.ResourceVersion", New: "true", Tests: indexed,
	},
	{
		Name: "identity: a Node without a version is led by what led another",
		In:   "cmd/internal/app.nodeEntry.matches",
		Old:  `e.version != ""`, New: "true", Tests: indexed,
	},
	{
		Name: "identity: who else has a machine is not seen when that changes",
		In:   "cmd/internal/app.nodeIndex.setEntry",
		Old:  "!slices.Equal(e.claims, old.claims)", New: "!slices.Equal(e.claims, e.claims)", Tests: indexed,
	},
	{
		Name: "kube: a cache that does not run yet has no nodes (6)", In: "taint/kube.CachedNodes",
		Old: "informer.HasSynced()", New: "true",
	},
	{
		Name: "identity: what changed of a Node is not asked about", In: "cmd/internal/app.nodeIndex.setEntry",
		Old: "old.matches(n)", New: `old.version != ""`, Tests: indexed,
	},
	{
		Name: "watch: a node that moved is looked up once", In: "taint/wake.Moves.ShouldList",
		Old: "looked.Add(-checkMoved)", New: "looked",
	},
	{
		Name: "watch: where no Node moved nothing is ever looked up again", In: "taint/wake.Moves.ShouldList",
		Old: "since >= checkAll", New: "false",
	},
	{
		Name: "watch: a new address has no line", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "!slices.Equal(e.ObjectOld.Status.Addresses, e.ObjectNew.Status.Addresses)", New: "false", Tests: glue,
	},
	{
		Name: "identity: a node that has gone keeps its machine", In: "cmd/internal/app.nodeIndex.setEntry",
		Old: "x.claims.Replace(old.claims, nil)", New: "", Tests: indexed,
	},

	{
		Name: "fleet: a Lease that stops to change is not looked at in time",
		In:   "taint/decide/fleet.Fleet.scheduleFlags",
		Old:  "f.scheduleScan(now.Add(shareOf(n.duration, missedAfter) - n.at.Age(now)))", New: "_ = now",
	},
	{
		Name: "fleet: a Lease that missed a renewal is not looked at in time",
		In:   "taint/decide/fleet.Fleet.scheduleFlags",
		Old:  "f.scheduleScan(n.at.Add(shareOf(n.duration, staleAfter)))", New: "",
	},
	{
		Name: "fleet: a clock that is set back is not compared with", In: "taint/decide/fleet.Fleet.scanIfDue",
		Old: "now.Before(f.scanned)", New: "false",
	},
	{
		Name: "identity: a configuration that was replaced goes on without events", In: "cmd/internal/app.nodeIndex.findClash",
		Old: "x.replaced", New: "false", Tests: indexed,
	},
	{
		Name: "taint: what a newer version wrote is lost", In: "taint.ParseRecord",
		Old: "r.Newer = newerFields(s)", New: "r.Newer = nil",
	},
	{
		Name: "taint: what a newer version wrote is not written again", In: "taint.Record.Encode",
		Old: "slices.Sorted(maps.Keys(r.Newer))", New: "slices.Sorted(maps.Keys(r.Newer))[:0]",
	},
	{
		Name: "records: a time of the future is one", In: "taint.Sightings.InstantOf",
		Old: "max(seen.Wall.Sub(at), 0)", New: "seen.Wall.Sub(at)", Tests: []string{"./taint"},
	},
	{
		Name: "records: a time counts by the wall clock of now", In: "taint.Sightings.InstantOf",
		Old: "seen := s.firstSeen(at, now)", New: "seen := now", Tests: []string{"./taint"},
	},
	{
		Name: "records: a time of long ago runs over", In: "taint.Sightings.InstantOf",
		Old: "min(max(seen.Wall.Sub(at), 0), seen.Mono)", New: "max(seen.Wall.Sub(at), 0)", Tests: []string{"./taint"},
	},
	{
		Name: "records: what was seen is seen anew", In: "taint.Sightings.WithRecord",
		Old: "s.firstSeen(at, now)", New: "now", Tests: []string{"./taint"},
	},
	{
		Name: "taint: a field of ours in another case passes for a newer one", In: "taint.newerFields",
		Old: "strings.EqualFold(f, k)", New: "f == k",
	},
	{
		Name: "taint: a record full of a newer version's fields leaves no room", In: "taint.newerFields",
		Old: "size > maxNewer", New: "size > maxNewer && false",
	},
	{
		Name: "taint: two fences of one id are one (10)", In: "taint.Record.Token",
		Old: `r.ID + "/" + r.Since.UTC().Format("20060102T150405.000")`, New: "r.ID",
	},
	{
		Name: "taint: two fences of one second are one (10)", In: "taint.Record.Token",
		Old: `"20060102T150405.000"`, New: `"20060102T150405"`,
	},

	{
		Name: "app: a template takes a label that the node has not got for an empty one",
		In:   "cmd/internal/config.interpreter.one",
		Old:  "!ok", New: "!ok && false",
	},
	{
		Name: "app: a template's condition stands for its opposite", In: "cmd/internal/config.interpreter.choose",
		Old: "in.truth(v)", New: "!in.truth(v)",
	},
	{
		Name: "app: a rule's mode is the file's (8)", In: "cmd/internal/config.Config.modeRules",
		Old: `n.Mode != ""`, New: "false",
		Tests: wiring,
	},
	{
		Name: "config: the file's mode is every item's (8)", In: "cmd/internal/config.Config.modeRules",
		Old: "m.Mode", New: "c.Mode",
		Tests: []string{"./cmd/internal/config -run ModeOfNode"},
	},
	{
		Name: "app: a configuration that a question still uses misses events", In: "cmd/internal/app.configs.refreshNode",
		Old: "indexes := p.indexes", New: "indexes := p.indexes[len(p.indexes)-1:]",
		Tests: indexed,
	},
	{
		Name: "app: the informer's changes do not reach the index", In: "cmd/internal/app.process.addConfig",
		Old: "func(_, o any) { refresh(o) }", New: "nil",
		Tests: []string{"./cmd/internal/app -run TestIndexIsFed"},
	},
	{
		Name: "app: who cannot be listed does not clash", In: "cmd/internal/app.nodeIndex.findClash",
		Old:   "!x.nodes.synced()",
		New:   "false",
		Tests: indexed,
	},
	{
		Name: "app: the target loses its system UUID (3)", In: "cmd/internal/app.machineFinder.buildMachine",
		Old:   "f.deviceMachine(m.Provider, m.Target)",
		New:   "f.deviceMachine(m.Provider, providers.Target{Node: m.Target.Node, ID: m.Target.ID})",
		Tests: wiring,
	},
	{
		Name: "app: a person is always trusted", In: "cmd/internal/config.Config.Settings",
		Old: "c.ManualMarks == Trust", New: `c.ManualMarks != ""`,
		Tests: wiring,
	},
	{
		Name: "config: a kubelet writes on people's terminals", In: "cmd/internal/config.Source.canonical",
		Old: "!unicode.IsPrint(r) || r == unicode.ReplacementChar", New: "unicode.MaxRune < r",
	},
	{
		Name: "app: a reload forgets which passwords were refused", In: "cmd/internal/app.providerSet.prepare",
		Old: "!reflect.DeepEqual(m.from, pc)", New: "reflect.DeepEqual(pc, pc)",
		Tests: wiring,
	},
	{
		Name: "app: a provider that changed stays as it was", In: "cmd/internal/app.providerSet.prepare",
		Old: "!reflect.DeepEqual(m.from, pc)", New: "!reflect.DeepEqual(pc, pc)",
		Tests: wiring,
	},
	{
		Name: "app: a reload closes providers that are being asked", In: "cmd/internal/app.providerSet.commit",
		Old: "time.After(closeDelay)", New: "time.After(0)",
		Tests: wiring,
	},
	{
		Name: "app: nobody is excluded (8)", In: "taint/decide.Settings.Excluded",
		Old: "s.ExcludeSelector.Matches(labels.Set(node.Labels))", New: "false",
		Tests: wiring,
	},
	{
		Name: "controller: maintenance is not asked for (8)", In: "taint/controller.Config.FactsOf",
		Old: "p.Excluded(node)", New: `""`,
		Tests: glue,
	},
	{
		Name: "controller: control-plane nodes are not told apart (7)", In: "taint/decide.Node.decideUnmarked",
		Old: "v.ControlPlane, _ = fleet.IsControlPlane(l.Labels)", New: "",
	},
	{
		Name: "controller: a new leader finds everybody silent whom it did not look at yet (6)",
		In:   "taint/controller.Reconciler.loadFleet",
		Old:  "r.seeNode(f, n)", New: "_ = n",
		Tests: glue,
	},
	{
		Name: "controller: a new leader does not know who is powered off (6)",
		In:   "taint/controller.Reconciler.loadFleet",
		Old:  "r.seeNode(f, n)", New: "f.AddNode(n.Name, r.Now.Instant())",
		Tests: glue,
	},
	{
		Name: "controller: a mark on a node that is well is nobody's business", In: "taint/decide.Node.IsIdle",
		Old: "l.Mark == nil", New: "true",
	},
	{
		Name: "controller: a node that came back is never asked about its boot", In: "taint/decide.Node.IsIdle",
		Old: `v.Suspicion(l) == "" && l.Mark == nil && l.RecordErr == nil && done`,
		New: `v.Suspicion(l) == "" && l.Mark == nil && l.RecordErr == nil && (done || !r.IsOpen())`,
	},
	{
		Name: "controller: the condition of a silent node stays", In: "taint/decide.Node.IsIdle",
		Old: "!l.PoweredOn", New: "true",
	},
	{
		Name: "controller: deleted nodes are silent ones", In: "taint/controller.Reconciler.forgetNode",
		Old: "r.WithFleet(func(f *fleet.Fleet) { ... })", New: "",
		Tests: glue,
	},
	{
		Name: "controller: nobody is distrusted", In: "taint/decide/fleet.Fleet.DistrustingNode",
		Old: "return name", New: `return ""`,
	},
	{
		Name: "controller: no pod is exempt (9)", In: "taint/kube.SeePod",
		Old: "taint.ExemptionOf(p, key)", New: `""`,
	},
	{
		Name: "controller: finished pods run (9)", In: "taint/kube.SeePod",
		Old: "taint.IsTerminal", New: "taint.IsTombstone",
	},
	{
		Name: "controller: a spared pod is not seen as one (10)", In: "taint/kube.SeePod",
		Old: "Spared: taint.SparedBy(p)", New: "",
	},
	{
		Name: "controller: a pod's finalizers are not seen (step 12)", In: "taint/kube.SeePod",
		Old: "Finalizers: p.Finalizers", New: "",
	},
	{
		Name: "controller: stock evictions are not foreseen (F2)", In: "taint/kube.SeePod",
		Old: "Tolerations: p.Spec.Tolerations", New: "",
	},
	{
		Name: "controller: a mark of another value wakes nobody", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "a.Value == b.Value", New: "true",
		Tests: glue,
	},
	{
		Name: "controller: a label wakes nobody", In: "taint/controller.Reconciler.onNodeUpdated",
		Old:   "maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)",
		New:   "maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) || true",
		Tests: glue,
	},
	{
		Name: "controller: a Node made anew wakes nobody", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "o.UID == n.UID", New: "true",
		Tests: glue,
	},
	{
		Name: "release: a person's mark stays", In: "taint/kube.Writer.ReleaseNode",
		Old: "t.Key == w.Key", New: "t.Key == w.Key && t.Value == rec.ID",
		Tests: []string{"./taint/release"},
	},
	{
		Name: "release: without --yes", In: "taint/release.tryRelease",
		Old: "!confirm", New: "false",
	},
	{
		Name: "release: exempt pods are spared (9)", In: "taint/release.spareAll",
		Old: "p.Exempt != taint.NotExempt", New: "false",
	},
	{
		Name: "release: the record keeps the life it had", In: "taint/release.closeRecord",
		Old: "rec.NodeUID, rec.BootID, rec.LeaseRV, rec.FalseOffs = l.UID, l.BootID, l.LeaseRV, nil",
		New: "rec.FalseOffs = nil",
	},
	{
		Name: "writer: a tombstone without its reason (F3)", In: "taint/kube.Writer.EndPod",
		Old: `"reason": taint.TombstoneReason`, New: "",
	},
	{
		Name: "fleet: a silent control-plane member counts as healthy (7)", In: "taint/decide/fleet.Fleet.stormOf",
		Old: `m.unhealthyReason(false) == ""`,
		New: `m.stale || m.unhealthyReason(false) == ""`, Tests: []string{"./taint/decide/fleet"},
	},
	{
		Name: "fleet: a marked control-plane member counts as healthy (7)", In: "taint/decide/fleet.Fleet.stormOf",
		Old: `m.unhealthyReason(false) == ""`,
		New: `m.fenced || m.unhealthyReason(false) == ""`, Tests: []string{"./taint/decide/fleet"},
	},
	{
		Name: "levels: one of two outlets off is the level off", In: "taint/decide/proof.level.isOff",
		Old:   "!slices.ContainsFunc(l.places, func(i int) bool { return a.State(i) != providers.PowerOff })",
		New:   "slices.ContainsFunc(l.places, func(i int) bool { return a.State(i) == providers.PowerOff })",
		Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "levels: another machine's device gets the power-off again", In: "taint/decide/proof.isPermanentRefusal",
		Old: "providers.ErrIdentity",
		New: "", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "levels: a device that has no such machine gets the power-off again",
		In:   "taint/decide/proof.isPermanentRefusal",
		Old:  "providers.ErrNotFound",
		New:  "", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "levels: a device that is not trusted gets the power-off again",
		In:   "taint/decide/proof.isPermanentRefusal",
		Old:  "providers.ErrUntrusted",
		New:  "", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "hook: a plugin that ended is still registered", In: "kubelet-admit/nri.plugin.markDisconnected",
		Old: "p.since = time.Time{}", New: "", Tests: []string{"./kubelet-admit/nri -short -run TestPluginThatEnded"},
	},
	{
		Name: "hook: the end of a connection is not noted", In: "kubelet-admit/nri.plugin.serveRuntime",
		Old: "defer p.markDisconnected()", New: "",
		Tests: []string{"./kubelet-admit/nri -short -run TestPluginThatEnded"},
	},
	{
		Name: "writer: a record that ends a fence leaves the out-of-service taint", In: "taint/kube.Writer.WriteRecord",
		Old: "if rec.Phase == taint.PhaseDone && taint.IsOutOfService(l.Taints) { ... }", New: "",
		Tests: []string{"./taint/kube -short -run TestEndOfFence"},
	},
	{
		Name: "writer: a record takes the out-of-service taint in the middle of a fence",
		In:   "taint/kube.Writer.WriteRecord",
		Old:  "rec.Phase == taint.PhaseDone && taint.IsOutOfService(l.Taints)", New: "taint.IsOutOfService(l.Taints)",
		Tests: []string{"./taint/kube -short -run TestEndOfFence"},
	},
	{
		Name: "out of service: it is written without the proof (1)", In: "taint/controller.nodeWrites.setOutOfService",
		Old: "if hold != decide.HoldYes { ... }", New: "_ = hold",
		Tests: []string{"./taint/controller -short -run TestOutOfServiceIsWritten"},
	},
	{
		Name: "out of service: it waits for a connection (1)", In: "taint/controller.nodeWrites.setOutOfService",
		Old:   "w.writer.SetOutOfService(kube.SendBy(ctx, by), w.st.course.Look(), out)",
		New:   "func() error { _ = by; return w.writer.SetOutOfService(ctx, w.st.course.Look(), out) }()",
		Tests: []string{"./taint/controller -short -run TestOutOfServiceIsWritten"},
	},
	{
		Name: "policy: pods that tolerate the mark are not named", In: "taint/decide/policy.View.nameTolerating",
		Old:   "append(wait.Notes, notesOf(reason.PolicySkipped, p, pods)...)",
		New:   "append(wait.Notes, notesOf(reason.PolicySkipped, p, pods[:0])...)",
		Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: pods that tolerate the mark are named again and again",
		In:   "taint/decide/policy.View.nameTolerating",
		Old:  "v.Memory.reportedPolicies[p.Name]", New: "false", Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: pods of DaemonSets are named", In: "taint/decide/policy.View.toleratingPods",
		Old: "pod.Exempt == taint.ExemptTolerate", New: "pod.Exempt != taint.NotExempt",
		Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: pods that tolerate the mark are named once for all", In: "taint/decide/policy.Memory.ApplyLook",
		Old: "m.reportedPolicies = nil", New: "", Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "storageos: pods that tolerate the mark are not named", In: "taint/decide/policy.View.decideSpell",
		Old: "skipped, read := v.toleratingPods(p)", New: "skipped, read := v.toleratingPods(p); skipped = nil",
		Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: a pod that finalizers keep is owed for ever", In: "taint/decide/policy.needsDelete",
		Old: "p.Tombstone && !p.IsTombstoneHeld()", New: "p.Tombstone", Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "guard: a closed provider is asked", In: "providers/limiter.Provider.enterUnit",
		Old: "l.closed", New: "false",
	},
	{
		Name: "guard: no limit of calls in flight", In: "providers/limiter.Provider.enterUnit",
		Old: "l.opts.Concurrency", New: "100+l.opts.Concurrency",
	},
	{
		Name: "guard: no rate", In: "providers/limiter.Provider.enterUnit",
		Old: "l.opts.Rate", New: "rate.Inf",
	},
	{
		Name: "hook: without a log it writes a file", In: "kubelet-admit/nri.newLog",
		Old: `file != "none"`, New: "true", Tests: []string{"./kubelet-admit/nri -short -run TestNoLog"},
	},
	{
		Name: "storage: a schema's problem is told in several lines",
		In:   "taint/drainguard/storage.Adapter.CheckSchemas",
		Old:  `strings.TrimPrefix(err.Error(), "not a CEL expression: ")`, New: `err.Error() + "\n"`,
		Tests: []string{"./taint/drainguard/storage -run FuzzSchema"},
	},
	{
		Name: "guard: a call without a turn of the rate keeps its slot", In: "providers/limiter.Provider.waitTurn",
		Old: `
			<-d.slots
			if ctx.Err() != nil {
				return contextError(ctx)
			}`,
		New: "if ctx.Err() != nil { return contextError(ctx) }",
	},
	{
		Name: "guard: a caller who has gone keeps a slot", In: "providers/limiter.Provider.waitTurn",
		Old: "if err := ctx.Err(); err != nil { ... }", New: "if err := ctx.Err(); err != nil { return " +
			"contextError(ctx) }",
	},
	{
		Name: "guard: machines behind one device have limits of their own", In: "providers/limiter.Provider.DeviceOf",
		Old: `d != ""`, New: "false",
	},
	{
		Name: "guard: a panic is not caught", In: "providers/limiter.catchPanic",
		Old: "recover()", New: "any(nil)",
	},
	{
		Name: "guard: closes under a call", In: "providers/limiter.Provider.Close",
		Old: "l.calls.Wait()", New: "",
	},
	{
		Name: "guard: a call that does not return gives its place away", In: "providers/limiter.callUnit",
		Old: "return none, fail(contextError(ctx))",
		New: `
			<-d.slots
			d.slots <- struct{}{}
			return none, fail(contextError(ctx))`,
	},
	{
		Name: "taint: an equal value tolerates (9)", In: "taint.toleratesMark",
		Old: `(t.Value == "" || t.Value == "true")`, New: "true",
	},
	{
		Name: "taint: another key's toleration exempts (9)", In: "taint.toleratesMark",
		Old: `(t.Key == "" || t.Key == key)`, New: "true",
	},
	{
		Name: "taint: any effect's toleration exempts (9)", In: "taint.toleratesMark",
		Old: `
			default:
				return false`,
		New: `
			default:
				return true`,
	},
	{
		Name: "taint: anybody's kind of DaemonSet is exempt (9)", In: "taint.isDaemon",
		Old: `"apps/"`, New: `""`,
	},
	{
		Name: "taint: pods from the API are static (9)", In: "taint.isStatic",
		Old: `src != "api"`, New: `src != ""`,
	},
	{
		Name: "taint: a person's mark hides ours", In: "taint.FindMark",
		Old: "found.Value != id && t.Value == id", New: `id == ""`,
	},
	{
		Name: "taint: our mark twice", In: "taint.WithMark",
		Old: "t.Effect == corev1.TaintEffectNoSchedule", New: "false",
	},
	{
		Name: "taint: an open record with a result is read", In: "taint.ParseRecord",
		Old: `r.Result != ""`, New: "false",
	},
	{
		Name: "taint: a record of no Node is read", In: "taint.ParseRecord",
		Old: `r.NodeUID == ""`, New: "false",
	},
	{
		Name: "taint: the first evidence is lost", In: "taint.Record.WithEvidence",
		Old: "append(list[:1], list[len(list)-maxEvidence+1:]...)", New: "list[len(list)-maxEvidence:]",
	},
	{
		Name: "taint: every failed pod is ours to delete (9)", In: "taint.IsTombstone",
		Old: "p.Status.Reason == TombstoneReason", New: "true",
	},
	{
		Name: "taint: a failed pod has not finished (9)", In: "taint.IsTerminal",
		Old: "p.Status.Phase == corev1.PodFailed", New: "false",
	},
	{
		Name: "taint: a Lease is not seen", In: "taint.NewLook",
		Old: "l.LeaseRV, l.LeaseDuration = lease.ResourceVersion, LeaseDuration(lease)",
		New: "l.LeaseDuration = LeaseDuration(lease)",
	},

	{
		Name: "app: a leader that was stopped still leads (5)", In: "cmd/internal/app.stampedLock.checkLeading",
		Old: "age >= l.valid", New: "false",
	},
	{
		Name: "leader: who wakes up releases another's Lease (5)", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: `rec.HolderIdentity == "" && l.holder != l.Identity()`, New: "false",
	},
	{
		Name: "app: a renewal counts from its answer (5)", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: `
			sent := l.now()
			if err := write(ctx, rec); err != nil {
				return err
			}`,
		New: `
			if err := write(ctx, rec); err != nil {
				return err
			}
			sent := l.now()`,
	},
	{
		Name: "app: a suspended leader still leads (5)", In: "cmd/internal/app.stampedLock.checkLeading",
		Old: "max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0)))", New: "now.Sub(*sent)",
	},
	{
		Name: "app: a clock that was set back keeps a leader (5)", In: "cmd/internal/app.stampedLock.checkLeading",
		Old: "max(now.Sub(*sent), now.Round(0).Sub(sent.Round(0)))", New: "now.Round(0).Sub(sent.Round(0))",
	},
	{
		Name: "app: no margin of the Lease (5)", In: "cmd/internal/app.lockOf",
		Old: "le.RenewDeadline", New: "le.LeaseDuration",
	},
	{
		Name: "app: the elector's requests have no end (5)", In: "cmd/internal/app.newLock",
		Old: "le.RenewDeadline / 2", New: "0",
	},
	{
		Name: "app: a rival is not looked for before a Lease is written", In: "cmd/internal/app.stampedLock.Get",
		Old: `rival == ""`, New: "true",
	},
	{
		Name: "app: a rival is not looked for after a Lease is written",
		In:   "cmd/internal/app.stampedLock.writeStamped",
		Old:  "begins != nil || l.checkLeading() != nil", New: "false",
	},
	{
		Name: "app: a renewal that lasted too long is no beginning", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: "l.checkLeading() != nil", New: "false",
	},
	{
		Name: "app: a lapsed leader writes before it looks", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: "begins != nil && before != nil", New: "false",
	},
	{
		Name: "app: who cannot look leads", In: "cmd/internal/app.stampedLock.Get",
		Old: "bad != nil", New: `bad != nil && rival != ""`,
	},
	{
		Name: "app: who withdraws keeps its Lease", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: "errors.Join(err, l.Interface.Update(context.WithoutCancel(ctx), rec))", New: "err",
	},
	{
		Name: "app: who is told to end while it withdraws keeps its Lease",
		In:   "cmd/internal/app.stampedLock.writeStamped",
		Old:  "context.WithoutCancel(ctx)", New: "ctx",
	},
	{
		Name: "app: a leader does not mind a rival", In: "cmd/internal/app.stampedLock.watchRivals",
		Old: `case rival != "": ...`, New: `case rival == "-": ...`,
	},
	{
		Name: "app: a renewal undoes what the watch has done", In: "cmd/internal/app.stampedLock.writeStamped",
		Old: "if !l.sent.CompareAndSwap(before, &sent) { ... }", New: "if l.sent.Store(&sent); false { ... }",
	},
	{
		Name: "app: memory of a rival ends a leadership", In: "cmd/internal/app.stampedLock.watchRivals",
		Old: `if rival != "" { ... }`, New: "if false { ... }",
	},
	{
		Name: "app: a rival's longer Lease is not waited for", In: "cmd/internal/app.rivals.findRivals",
		Old: "max(r.least, leaseDuration(lease))", New: "r.least",
	},
	{
		Name: "app: a rival's short Lease is taken at its word", In: "cmd/internal/app.rivals.findRivals",
		Old: "max(r.least, leaseDuration(lease))", New: "leaseDuration(lease)",
	},
	{
		Name: "app: a restored etcd is not noticed", In: "cmd/internal/app.rewind.observeVersion",
		Old: "taint.IsOlder(version, r.newest)", New: `taint.IsOlder(version, "")`, Tests: rewound,
	},
	{
		Name: "app: one older read ends the process", In: "cmd/internal/app.rewind.observeVersion",
		Old: "at.Sub(*r.older.Load()) >= rewoundFor", New: "true", Tests: rewound,
	},
	{
		Name: "app: a read that is not older does not end the minute", In: "cmd/internal/app.rewind.observeVersion",
		Old: "r.older.Store(nil)", New: "", Tests: rewound,
	},
	{
		Name: "app: a leader acts on caches from before a restore", In: "cmd/internal/app.rewind.withRewindCheck",
		Old: "r.older.Load() != nil", New: "false", Tests: rewound,
	},
	{
		Name: "app: a restored etcd is not reported", In: "cmd/internal/app.rewind.watchLease",
		Old: "r.report(detail)", New: "", Tests: rewound,
	},
	{
		Name: "app: the process goes on after a restore", In: "cmd/internal/app.rewind.watchLease",
		Old: `fmt.Errorf("%w: %s", errRewound, detail)`, New: "nil", Tests: rewound,
	},
	{
		Name: "cleanup: it goes on while a controller leads or a fence is open",
		In:   "cmd/forcefence.cleanup.removeLeftovers",
		Old:  "len(objections) > 0 && !o.force", New: "len(objections) > 99",
		Tests: []string{"./test/deploy -run TestCleanup"},
	},
	{
		Name: "identity: two unpinned nodes share a machine (14)", In: "taint.describeRival",
		Old: "mine.Claimed && len(claims) > 0", New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a newcomer gets a pinned machine (14)", In: "taint.describeRival",
		Old: "len(pins) > 0", New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a kubelet's word against the operator's (14)", In: "taint.describeRival",
		Old: "len(operator) > 0 && (mine.Claimed || !pinned)", New: "len(operator) > 0 && !mine.Claimed && !pinned",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: two nodes tell one system UUID (14)", In: "taint.Claims.FindClash",
		Old: `byUUID != "" && mine.Claimed`, New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a node keeps the claims that it had (14)", In: "taint.Claims.Replace",
		Old: "c.ids.remove(cl.Node, claimedID, id)", New: "_, _ = claimedID, id", Tests: []string{"./taint"},
	},
	{
		Name: "identity: a claim that is replaced takes another node's with it (14)", In: "taint.holders.remove",
		Old: "o.node == node", New: "true", Tests: []string{"./taint"},
	},
	{
		Name: "identity: a pin counts only while its node is led there (14)", In: "taint.holders.add",
		Old: `pinned != ""`, New: `pinned != "" && pinned == claimed`,
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a changed system UUID is believed (14)", In: "taint.DecideMachine",
		Old: `v.Pin != "" && v.Claimed && uuid != v.Machine.uuidPin()`, New: `uuid == "?"`,
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a silent node's changed ID is believed (14)", In: "taint.DecideMachine",
		Old: `v.Pin != "" && v.Claimed && !v.Healthy`, New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a node that looks dead is pinned (14)", In: "taint.DecideMachine",
		Old: `v.Healthy && v.NoPin == ""`, New: `v.NoPin == ""`,
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: an unpinned machine may be powered off (14)", In: "taint.DecideMachine",
		Old: "v.Claimed && id != v.Machine.idPin()", New: `id == "?"`,
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a clash is believed (14)", In: "taint.DecideMachine",
		Old: `v.Refused != ""`, New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: an open fence follows the annotation (14)", In: "taint.DecideMachine",
		Old: "v.Record.IsOpen() && v.Record.Machine != nil", New: "false",
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: a record against the pin is believed (14)", In: "taint.Identity.believeRecorded",
		Old: "v.Pin == m.Pin()", New: `v.Pin != ""`,
		Tests: []string{"./taint"},
	},
	{
		Name: "identity: distrust of whatever has the address", In: "taint.Record.DistrustsDevice",
		Old: "own", New: "true",
		Tests: []string{"./taint"},
	},
	{
		Name: "controller: a machine that is not believed is asked (14)", In: "taint/machine.Finder.FindBelieved",
		Old: `b.Refused != ""`, New: "false",
	},
	{
		Name: "controller: an open fence asks whom the annotation names (14)", In: "taint/machine.Finder.FindBelieved",
		Old: "b.Machine != m.Identity", New: "false",
	},
	{
		Name: "controller: an older record's device may change (14)", In: "taint/machine.Finder.FindBelieved",
		Old: "rec.Device != m.Device", New: `rec.Device == "x"`,
	},
	{
		Name: "fence: an unpinned machine is powered off (14)", In: "taint/decide/fence.View.decideByRecord",
		Old: `
			if v.Facts.NoPower() != "" {
				v.Facts.Mode = SaferMode(v.Facts.Mode, Observe)
			}`, New: "",
	},
	{
		Name: "fence: an unpinned machine's announced power-off is sent (14)",
		In:   "taint/decide/fence.View.decideByRecord",
		Old:  `announced && v.Facts.NoPower() != ""`, New: "false",
	},
	{
		Name: "controller: a pin that was refused is tried at once", In: "taint/controller.pins.pinNode",
		Old: "now.Before(w.st.pinAgain)", New: "false",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "controller: a changed annotation wakes nobody", In: "taint/controller.Reconciler.onNodeUpdated",
		Old: "maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations)", New: "true",
		Tests: []string{"./taint/controller -short"},
	},
	{
		Name: "release: from the record's own node only", In: "taint/release.findDistrustingNode",
		Old: "l.Machine.Pin() == pin", New: "false",
	},
	{
		Name: "config: what a kubelet can write is the operator's word (14)", In: "cmd/internal/config.Source.claimed",
		Old: "s.tmpl == nil || s.tmpl.labels", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: IDs are compared as they are written (14)", In: "cmd/internal/config.Source.machine",
		Old: "id, err = s.canonical(id)", New: "_, err = s.canonical(id)",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a node names any host (14)", In: "cmd/internal/config.Source.canonical",
		Old: "!s.allowed.hasAll(hosts)", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name:  "config: one host of an ID that is allowed lets the others in (14)",
		In:    "cmd/internal/config.allowList.hasAll",
		Old:   "len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return !a.has(h) })",
		New:   "slices.ContainsFunc(hosts, a.has)",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: two nodes share a part of their machines (14)", In: "cmd/internal/config.reader.listedTwice",
		Old: "s.parts(id)", New: "[]string{id}",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a node's http:// is believed (14)", In: "cmd/internal/config.Source.canonical",
		Old: `s.namesHosts() && s.claimed() && strings.HasPrefix(id, "http://")`, New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: allow is not required (14)", In: "cmd/internal/config.reader.checkAllow",
		Old: "s.namesHosts() && len(s.Allow) == 0", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a Node's name is the operator's word (14)", In: "cmd/internal/config.Source.namesHosts",
		Old: "s.From != FromList && s.From != FromSystemUUID", New: "s.claimed() && s.From != FromSystemUUID",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: who chose a Node's name is not told (14)", In: "cmd/internal/config.Source.machine",
		Old: "s.From == FromTemplate", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: any ending of a host is a domain (14)", In: "cmd/internal/config.hasDomain",
		Old: `strings.Trim(domain, "0123456789.") == ""`, New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: everybody's domain bounds a template (14)", In: "cmd/internal/config.hasDomain",
		Old:   `domain != public || !registry && !strings.Contains(public, ".")`,
		New:   "true || registry || public == domain",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: only a template's first case is looked at (14)", In: "cmd/internal/config.forms",
		Old: "slices.Concat(yes, no)", New: "slices.Clone(yes)",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: only an ID's first host is bounded (14)", In: "cmd/internal/config.idTemplate.hosts",
		Old: "for j, host := range hosts { ... }", New: "for j, host := range hosts[:1] { ... }",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: what a template makes of a name ends its place (14)",
		In:   "cmd/internal/config.interpreter.print",
		Old:  "in.bounded && err == nil", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: nobody is told that outlets do not know a Node (14)",
		In:   "cmd/internal/config.reader.warnOfNames",
		Old:  `strings.HasPrefix(typ.Identity, "none")`, New: `typ.Identity == "?"`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a record leads to any host beside a list (14)", In: "cmd/internal/config.Config.MayNameMachine",
		Old: "p == provider && !s.claimed()", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a domain allows what only ends like it (14)", In: "cmd/internal/config.allowList.add",
		Old: `"."+domain`, New: "domain",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a list's IDs are compared as they are written", In: "cmd/internal/config.reader.listedTwice",
		Old: "s.parts(id)", New: "[]string{e.ID + id[:0]}",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a recorded ID in another spelling is another machine (14)",
		In:   "cmd/internal/config.Config.MayNameMachine",
		Old:  "p == provider && err == nil && led == id", New: "p == provider && err == nil && (led == id || " +
			"!s.claimed() || s.From == FromTemplate)",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a leader may act for as long as its Lease lasts",
		In:   "cmd/internal/config.reader.leaderElection",
		Old:  "l.RenewDeadline >= l.LeaseDuration", New: "l.RenewDeadline > l.LeaseDuration",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: Longhorn's replicas are ours to move", In: "cmd/internal/config.Config.EvictableStorage",
		Old: "s.adapter == nil || slices.Contains(s.adapter.Spec.Drivers, longhornDriver)", New: "s.adapter == nil",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: who chooses the device chooses whose password it gets (14)",
		In:   "cmd/internal/config.reader.checkOwn",
		Old:  "n.claimed()", New: "false",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a Node that is called like another's secret gets it (14)", In: "cmd/internal/config.partsMeet",
		Old:   "len(validation.IsDNS1123Subdomain(name)) == 0",
		New:   "len(name) < 0 && validation.IsDNS1123Subdomain(name) == nil",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: two machines' files are one (14)", In: "cmd/internal/config.partsMeet",
		Old: "begin && end", New: "begin && end && a == b",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a private key is no secret (14)", In: "cmd/internal/config.reader.noteText",
		Old: `key != "certFile"`, New: `key != "certFile" && key != "keyFile"`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a host has a Node's credentials", In: "cmd/internal/config.reader.checkHost",
		Old: "line > 0", New: "line < 0",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a listed machine without its password is not told", In: "cmd/internal/config.reader.checkListed",
		Old: "f.Err != nil", New: "f.Err != nil && f.File == \"\"",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "own: any text is a Node's name (14)", In: "providers.OfMachine",
		Old: "len(node) > 253 || !nodeName.MatchString(node)", New: "false",
	},
	{
		Name: "own: labels name a machine's file (14)", In: "providers.CheckPerMachine",
		Old: `strings.Contains(rest, "{{") || strings.Contains(rest, "}}")`, New: `rest == "?"`,
	},
	{
		Name: "own: links lead out of the folder (14)", In: "providers.SecretRef.ReadSecretOf",
		Old: `root.ReadFile(strings.TrimPrefix(file, folder))`, New: `os.ReadFile(file)`,
	},
	{
		Name: "own: a session of one machine's is another's (14)", In: "providers/redfish.Provider.locateSystem",
		Old: "p.cfg.OwnerOf(t)", New: "p.cfg.OwnerOf(providers.Target{Node: \"n1\"})",
		Tests: []string{"./providers/redfish -run EachMachine"},
	},
	{
		Name: "own: any machine's session serves", In: "providers/remote.Pool.Acquire",
		Old: "d := p.devices[a]", New: "d := p.devices[a]\nfor at, other := range p.devices {\nif at.Device == a.Device " +
			"{\nd = other\n}\n}",
		Tests: poolTests,
	},
	{
		Name: "own: ipmi's session of one machine's is another's (14)", In: "providers/ipmi.Provider.runCall",
		Old: "p.cfg.OwnerOf(t)", New: "p.cfg.OwnerOf(providers.Target{Node: \"n1\"})",
		Tests: []string{"./providers/ipmi -run EachMachine"},
	},
	{
		Name: "own: ipmi cuts a long user", In: "providers/ipmi.Provider.openSession",
		Old: "case len(user) > maxUser: ...", New: "",
		Tests: []string{"./providers/ipmi -run EachMachine"},
	},
	{
		Name: "own: a strip's refusal of one machine's password is another's", In: "providers/pdu.Provider.ownerOf",
		Old: "return p.cfg.OwnerOf(t)", New: "return \"n1\"",
		Tests: []string{"./providers/pdu -run EachMachine"},
	},
	{
		Name: "own: an agent is told another machine's password (14)", In: "providers/fenceagent.Provider.callAgent",
		Old: "p.buildInput(ctx, action, id, t.Node)", New: "p.buildInput(ctx, action, id, \"n1\")",
		Tests: []string{"./providers/fenceagent -run EachMachine"},
	},
	{
		Name: "own: an agent's refusal of one machine's password is another's",
		In:   "providers/fenceagent.Provider.callAgent",
		Old:  "p.cfg.perMachine()", New: "false",
		Tests: []string{"./providers/fenceagent -run EachMachine"},
	},
	{
		Name: "own: one device in front of all has many passwords", In: "providers/remote.Credentials.ValidateShared",
		Old: "providers.PerMachine(s.setting)", New: "false",
		Tests: []string{"./providers/remote -run Credentials"},
	},
	{
		Name: "config: an unknown variable is ignored", In: "cmd/internal/config.Parse",
		Old: "r.unknownEnv()", New: "",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a key without a value has its default", In: "cmd/internal/config.scalar",
		Old: `return "", "has no value: write one or remove the key"`, New: `return "", ""`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: 1.9 is 1", In: "cmd/internal/config.scalars",
		Old: `kindInt: {"a whole number", []string{"!!int"}}`, New: `kindInt: {"a whole number", []string{"!!int", "!!float"}}`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: yes is true", In: "cmd/internal/config.scalars",
		Old: `kindBool: {"true or false", []string{"!!bool"}}`, New: `kindBool: {"true or false", []string{"!!bool", "!!str"}}`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a value is quoted", In: "cmd/internal/config.scalar",
		Old: `strings.Contains(err.Error(), n.Value)`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a number needs not be finite", In: "cmd/internal/config.scalar",
		Old: `return "", "must be a finite number"`, New: `return n.Value, ""`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: +0 is a duration", In: "cmd/internal/config.scalar",
		Old: `strings.HasSuffix(n.Value, "0")`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an alias is no fault", In: "cmd/internal/config.reader.walk",
		Old: `r.fault(r.lines[path], path, "anchors and aliases (&, *) are not read here: write the value out")`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a merge key is no fault", In: "cmd/internal/config.reader.walkPairs",
		Old: `r.add(k.Line, path, "merge keys (<<) are not read here: write the values out")`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a duplicate is no fault", In: "cmd/internal/config.reader.walkPairs",
		Old: `r.fault(k.Line, p, "given twice: first on line %d", first)`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an unknown key is no fault", In: "cmd/internal/config.reader.unknownKey",
		Old: `r.fault(k.Line, join(path, label(k.Value)), "unknown key%s", hint(k.Value, known))`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a faulty item gives its place away", In: "cmd/internal/config.reader.walkList",
		Old: `kindOf(elem) == kindMapping`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a password inside an address is read", In: "cmd/internal/config.reader.walkScalar",
		Old: `userinfo.MatchString(n.Value)`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a secret is read", In: "cmd/internal/config.reader.walkMapping",
		Old: `inSettings(path) && v.Kind != yaml.MappingNode && looksSecret(k.Value)`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a header may hold a secret", In: "cmd/internal/config.reader.walkFreeMapping",
		Old: `inSettings(path) && looksSecret(k.Value)`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a provider has two types", In: "cmd/internal/config.reader.walkProvider",
		Old: `r.fault(k.Line, at, "a provider has one type, and line %d names one already", typeKey.Line)`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: settings are not validated", In: "cmd/internal/config.reader.settings",
		Old: `r.report(join(path, p.Path), "%s", oneLine(p.Text))`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: the decoder takes unknown keys", In: "cmd/internal/config.reader.decode",
		Old: `d.KnownFields(true)`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a fault of the decoder is no fault", In: "cmd/internal/config.reader.decode",
		Old:   `r.fault(r.lines[path], path, "forcefence cannot decode this, which is a fault of its own: please report it")`,
		New:   ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an override counts as given", In: "cmd/internal/config.reader.override",
		Old: `r.env[path] = name`, New: `r.env[path], r.lines[path] = name, 1`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an override of a faulty value is not checked", In: "cmd/internal/config.reader.override",
		Old: `delete(r.bad, path)`, New: ``,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: a faulty override is no fault", In: "cmd/internal/config.reader.override",
		Old: `problem != ""`, New: `false`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an override has no effect", In: "cmd/internal/config.reader.overrides",
		Old:   `pairs = appendPair(pairs, f.name, r.override(p, name, value, f.typ))`,
		New:   `r.override(p, name, value, f.typ)`,
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "config: an empty excludeSelector excludes all (8)", In: "cmd/internal/config.reader.check",
		Old: "c.ExcludeSelector, labels.Nothing()", New: "c.ExcludeSelector, labels.Everything()",
		Tests: []string{"./cmd/internal/config"},
	},
	{
		Name: "remote: an address with the root's dot is another (14)", In: "providers/remote.CanonicalHost",
		Old: `strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")`, New: "strings.ToLower(u.Hostname())",
	},
	{
		Name: "fence: the record does not name its machine (14)", In: "taint/decide/fence.View.newRecord",
		Old:   "r.Device, r.Machine = proof.RecordedDevice(v.Facts.Devices)",
		New:   "r.Device, _ = proof.RecordedDevice(v.Facts.Devices)",
		Tests: []string{"./taint/decide/fence"},
	},
	{
		Name: "evict: a person's fence does not name its machine (14)", In: "taint/decide/evict.View.adoptPersonMark",
		Old:   "r.Device, r.Machine = proof.RecordedDevice(v.Devices)",
		New:   "r.Device, _ = proof.RecordedDevice(v.Devices)",
		Tests: []string{"./taint/decide/evict"},
	},

	// The cloud controller manager's taint.
	{
		Name: "cloudtaint: a taint that nobody trusts is off (2)", In: "providers/cloudtaint.provider.evaluateNode",
		Old: "!p.trusted", New: "false",
	},
	{
		Name: "cloudtaint: a taint of unknown age is off (1)", In: "providers/cloudtaint.provider.evaluateNode",
		Old: "case !seen: ...", New: "",
	},
	{
		Name: "cloudtaint: another boot's taint is off (1)", In: "providers/cloudtaint.provider.evaluateNode",
		Old: "before != now", New: "before.uid != now.uid",
	},
	{
		Name: "cloudtaint: another Node's taint is off (1)", In: "providers/cloudtaint.provider.evaluateNode",
		Old: "before != now", New: "before.boot != now.boot",
	},
	{
		Name: "cloudtaint: a taint left over from before the node was Ready is off (1)",
		In:   "providers/cloudtaint.provider.evaluateNode",
		Old:  "seen && before != now || !notReady", New: "seen && before != now",
	},
	{
		Name: "cloudtaint: a node that never was Ready stopped being it (1)",
		In:   "providers/cloudtaint.provider.evaluateNode",
		Old:  `n.Ready == "False" || n.Ready == "Unknown"`, New: `n.Ready != "True"`,
	},
	{
		Name: "cloudtaint: a taint of another effect is off", In: "providers/cloudtaint.provider.evaluateNode",
		Old: "t.Effect == taintEffect", New: "t.Effect != taintKey",
	},
	{
		Name: "cloudtaint: a Node that is gone is remembered", In: "providers/cloudtaint.provider.forgetNode",
		Old: "delete(p.untainted, name)", New: "",
	},
	{
		Name: "cloudtaint: nobody need say whom to trust", In: "providers/cloudtaint.Config.Validate",
		Old: "return []providers.Problem{providers.Problemf(\"trust\", \"missing: %s if its taint is to prove that a " +
			"machine is off, else %s\", TrustCCM, TrustNobody)}", New: "return nil",
	},
	{
		Name: "cloudtaint: the taint makes nobody ask", In: "taint/controller.Reconciler.onNodeUpdated",
		Old:   "isShutDown(e.ObjectNew) && !isShutDown(e.ObjectOld)",
		New:   `isShutDown(e.ObjectNew) && e.ObjectNew.Name == ""`,
		Tests: glue,
	},
	{
		Name: "cloudtaint: a device that did not know is not asked again", In: "taint/decide/fence.View.decideByAnswer",
		Old: "v.Fleet.HintAt.After(v.Answers.Answer.Got)", New: "false",
	},

	// A person's confirmation.
	{
		Name: "confirm: another Node's counts (3)", In: "taint.ConfirmationOf",
		Old: "c.NodeUID != string(node.UID)", New: "false",
	},
	{
		Name: "confirm: that of an earlier boot counts (1)", In: "taint.ConfirmationOf",
		Old: "c.BootID != node.Status.NodeInfo.BootID", New: "false",
	},
	{
		Name: "confirm: it counts in every open fence", In: "taint.ConfirmationOf",
		Old: "rec.IsOpen() && rec.ID != c.Fence", New: "false",
	},
	{
		Name: "confirm: it counts in more than one fence", In: "taint.ConfirmationOf",
		Old: "!rec.IsOpen() && rec != nil && rec.ID == c.Fence", New: "false",
	},
	{
		Name: "confirm: it may name two people", In: "taint.ParseConfirmation",
		Old: "c.Encode() != s", New: "false",
	},
	{
		Name: "confirm: it never expires", In: "providers/confirm.provider.State",
		Old: "obs.At.Wall.Sub(s.At) > p.validFor", New: "false",
	},
	{
		Name: "confirm: it may be of the future", In: "providers/confirm.provider.State",
		Old: "s.At.After(obs.At.Wall.Add(maxClockAhead))", New: "false",
	},
	{
		Name: "confirm: what is refused counts", In: "providers/confirm.provider.State",
		Old: `s.Refused != ""`, New: "false",
	},
	{
		Name: "confirm: nobody's word counts", In: "providers/confirm.provider.State",
		Old: `case s.By == "": ...`, New: "",
	},
	{
		Name: "confirm: the fence has another id than the confirmation", In: "taint/controller.Config.FactsOf",
		Old: "facts.NewID = c.Fence", New: "",
		Tests: glue,
	},
	{
		Name: "confirm: a new one makes nobody ask", In: "taint/controller.Reconciler.onNodeUpdated",
		Old:   `confirmation != "" && confirmation != e.ObjectOld.Annotations[taint.ConfirmAnnotation]`,
		New:   `confirmation == "x"`,
		Tests: glue,
	},
	{
		Name: "confirm: a Ready node is confirmed off", In: "cmd/forcefence.confirmOff",
		Old: "cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue",
		New: "cond.Type == corev1.NodeReady && reason == name",
	},
	{
		Name: "confirm: it is for another fence than the open one", In: "cmd/forcefence.confirmOff",
		Old: "rec.IsOpen()", New: "rec.IsOpen() && reason == name",
	},
	{
		Name: "confirm: a refusal is lost on its way", In: "cmd/internal/app.NodeReader",
		Old:   "out.Confirmed.Refused = strings.TrimPrefix(err.Error(), taint.ErrConfirmation.Error()+\": \")",
		New:   "_ = strings.TrimPrefix",
		Tests: []string{"./cmd/forcefence"},
	},

	{
		Name: "devices: one that is quiet fails every drill", In: "taint/drills.AskDevices",
		Old: "!devices[i].Quiet", New: "i >= 0",
	},
	{
		Name: "devices: one that is quiet never fails a drill", In: "taint/drills.AskDevices",
		Old: "d.Answer.Err != nil", New: "false",
	},

	// Several devices of one node.
	{
		Name: "devices: an Off that another's On contradicts proves (4)", In: "taint/decide/proof.verdictOfLevels",
		Old: "off >= 0 && on >= 0", New: "off >= 0 && on > len(runs)",
		Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "devices: the whole protocol believes one of two that disagree (4)",
		In:   "taint/decide/proof.verdictOfLevels",
		Old:  "off >= 0 && on >= 0", New: "off >= 0 && on > len(runs)",
		Tests: []string{sim},
	},
	{
		Name: "devices: an Off beside Changing proves (2)", In: "taint/decide/proof.verdictOfLevels",
		Old: "off >= 0 && changing >= 0", New: "false",
	},
	{
		Name: "devices: a level is off once one of its devices is (4)", In: "taint/decide/proof.verdictOfLevel",
		Old: "count[providers.PowerOff] == len(of)", New: "count[providers.PowerOff] > 0",
	},
	{
		Name: "levels: the whole protocol believes one outlet of two (4)", In: "taint/decide/proof.verdictOfLevel",
		Old: "count[providers.PowerOff] == len(of)", New: "count[providers.PowerOff] > 0",
		Tests: []string{sim},
	},
	{
		Name: "devices: On of what feeds the machine contradicts", In: "taint/decide/proof.verdictOfLevels",
		Old: "s.device.Feeds && s.answer.State == providers.PowerOn", New: "false",
	},
	{
		Name: "devices: Off of what feeds the machine is none", In: "taint/decide/proof.verdictOfLevels",
		Old: "s.device.Feeds && s.answer.State == providers.PowerOn", New: "s.device.Feeds",
	},
	{
		Name: "devices: what a device said that is not asked any more counts (1)",
		In:   "taint/decide/proof.Answers.ApplyAnswers",
		Old:  "of[i].answer = providers.Answer{}", New: "",
	},
	{
		Name: "devices: with another device the verdict stays (1)", In: "taint/decide/proof.Answers.SetDevices",
		Old: "a.lastAnswers, a.Answer = of, providers.Answer{}", New: "a.lastAnswers = of",
	},
	{
		Name: "devices: the evidence does not name them", In: "taint/decide/proof.Answers.deviceEvidence",
		Old: "e.From = s.device.Name", New: "",
	},
	{
		Name: "devices: an Off that was long on its way counts beside another (1)",
		In:   "taint/decide/proof.Answers.ApplyAnswers",
		Old:  "withoutStaleOff(answers[i])", New: "answers[i]",
	},
	{
		Name: "devices: a device that hangs keeps the others' answers", In: "providers.AskEach",
		Old: "over && enough(out)", New: "over && left < 0",
	},
	{
		Name: "devices: answers that are not enough end the question", In: "providers.AskEach",
		Old: "over && enough(out)", New: "over && left < len(qs)",
	},
	{
		Name: "devices: the On of an outlet decides", In: "taint/decide/proof.IsDecided",
		Old: "return slices.ContainsFunc(a.lastAnswers, knows)", New: "return knows != nil",
	},
	{
		Name: "devices: a disagreement waits for a third device", In: "taint/decide/proof.IsDecided",
		Old: "return a.HasDisagreement()", New: "return false",
	},
	{
		Name: "devices: an Off waits for a BMC that died with its machine", In: "taint/decide/proof.IsDecided",
		Old: "case providers.PowerOff: ...", New: "case providers.PowerOff: return false",
	},
	{
		Name: "confirm: a word that was used counts again after another fence (1)", In: "taint.ConfirmationOf",
		Tests: []string{"./taint"},
		Old:   "!rec.IsOpen() && LastFenceID(rec) != c.LastFence", New: "false",
	},
	{
		Name: "confirm: a mark without a value is no fence (1)", In: "taint.LastFenceID", Tests: []string{"./taint"},
		Old: `cmp.Or(r.ID, "-")`, New: `cmp.Or(r.ID, "")`,
	},
	{
		Name: "confirm: it does not say after which fence", In: "cmd/forcefence.confirmOff",
		Old: "LastFence: taint.LastFenceID(rec)", New: "",
	},
	{
		Name: "devices: one that takes its time is as any other", In: "providers.AskEach",
		Old: "d > 0", New: "false",
	},
	{
		Name: "devices: the others' answers are old when the slow one's is there", In: "providers.AskEach",
		Old: "lead == 0 || left == len(then)", New: "true",
	},
	{
		Name: "devices: the others wait for a slow one that has answered", In: "providers.AskEach",
		Old: "left == len(then)", New: "false",
	},
	{
		Name: "devices: a slow one that hangs keeps the others from being asked", In: "providers.AskEach",
		Old: "lead, over = 0, all", New: "over = all",
	},
	{
		Name: "devices: nobody learns that one takes its time", In: "providers/limiter.Provider.TimeToOff", Tests: wiring,
		Old: "return s.TimeToOff()", New: "return 0 * s.TimeToOff()",
	},
	{
		Name: "devices: a slow one's timeout may be too short for an Off",
		In:   "cmd/internal/config.reader.checkProvider", Tests: wiring,
		Old: "p.Timeout < s.TimeToOff()+time.Second", New: "p.Timeout < 0",
	},
	{
		Name: "devices: a person's word counts though they disagree", In: "taint/decide/evict.View.allowsPerson",
		Old: "v.Answers.HasDisagreement()", New: "false",
	},
	{
		Name: "devices: a disagreement under the mark is not told", In: "taint/decide/evict.View.decideEviction",
		Old: "if v.Answers.HasDisagreement() { ... }", New: "",
	},
	{
		Name: "devices: a disagreement is not told", In: "taint/decide/fence.View.decideByAnswer",
		Old: `
			case v.Answers.HasDisagreement():
				return v.askEvery(pollOn, reason.Disagree)`,
		New: "",
	},
	{
		Name: "devices: who proved in the middle is forgotten", In: "taint/decide/evict.View.endRecord",
		Old: "v.Answers.OffEvidence(v.Look.Record)", New: "v.Answers.OffEvidence(v.Look.Record)[:0]",
	},
	{
		Name: "devices: all are caught with the one that lied", In: "taint.Record.WithFalseOffs",
		Old: "r.HasOff(d.Device)", New: "true",
	},
	{
		Name: "devices: the next fence forgets who lied", In: "taint/decide/fence.View.newRecord",
		Old: "r.FalseOffs, r.PowerOns = old.DistrustedDevices(), old.PowerOns", New: "r.PowerOns = old.PowerOns",
	},
	{
		Name: "devices: a person's fence forgets who lied", In: "taint/decide/evict.View.adoptPersonMark",
		Old: "FalseOffs: l.Record.DistrustedDevices()", New: "",
	},
	{
		Name: "devices: released, and still distrusted", In: "taint.Record.DistrustedDevices",
		Old: "r.Result == ResultReleased", New: "false",
	},
	{
		Name: "devices: one that lied keeps the node from the other's recovery (16)",
		In:   "taint/decide.Node.distrustingNode",
		Old:  `by == ""`, New: `by != ""`,
	},
	{
		Name: "levels: the first turn is that of one that is down", In: "taint/decide/proof.PowerOffs.firstLevel",
		Old: "a.State(i) == providers.PowerUnknown", New: "a.State(i) > 99",
	},
	{
		Name: "levels: a level that gave way has the next turn", In: "taint/decide/proof.PowerOffs.nextLevel",
		Old: "(i + 1 + n) % len(all)", New: "(i + n) % len(all)",
	},
	{
		Name: "levels: a refused power-off waits before the next level", In: "taint/decide/proof.PowerOffs.NextMove",
		Old: "newRound && p.LastErr != nil", New: "p.LastErr != nil",
	},
	{
		Name: "within: a hypervisor that was asked before the host was off counts (2)",
		In:   "taint/decide/proof.VerdictOfHosts",
		Old:  "h.Second.At.Before(known)", New: "false",
		Tests: []string{"./taint/decide/proof -run TestNoMigrationIsMissed"},
	},
	{
		Name: "within: a guest that moves between two that live is missed by both (4)",
		In:   "taint/decide/proof.VerdictOfHosts",
		Old:  "known = latestOf(known, h.First.Got)", New: "known = latestOf(known, providers.Instant{})",
		Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: what a hypervisor said at first is not looked at (4)", In: "taint/decide/proof.VerdictOfHosts",
		Old: "[]providers.PlaceAnswer{h.First, h.Second}", New: "[]providers.PlaceAnswer{h.Second}",
		Tests: []string{"./taint/decide/proof -run TestNoMigrationIsMissed"},
	},
	{
		Name: "within: a guest that is there is gone (2)", In: "taint/decide/proof.VerdictOfHosts",
		Old: "p.HasAnswer() && !p.Absent", New: "false",
		Tests: []string{"./taint/decide/proof -run TestNoMigrationIsMissed"},
	},
	{
		Name: "within: a silent hypervisor has no guest (2)", In: "taint/decide/proof.VerdictOfHosts",
		Old: "!h.First.HasAnswer()", New: "false", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: a hypervisor that fell silent has no guest (2)", In: "taint/decide/proof.VerdictOfHosts",
		Old: "!h.Second.HasAnswer()", New: "false", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: another host's device proves (3)", In: "taint/decide/proof.VerdictOfHosts",
		Old: "h.First.HasAnswer() || h.Second.HasAnswer()", New: "false", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: nobody is off, and the guest is (2)", In: "taint/decide/proof.VerdictOfHosts",
		Old: `if len(off) == 0 {
			return providers.Observation{}, fmt.Errorf("%w: no hypervisor has the guest, and all of them answer", providers.ErrNotFound)
		}`, New: "", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: a host's Off that took too long proves (2)", In: "taint/decide/proof.Host.isOff",
		Old: "withoutStaleOff(h.Off).State == providers.PowerOff", New: "h.Off.State == providers.PowerOff",
		Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "within: the guests of a dead host ask its BMC one by one (16)", In: "taint/sharing.Call.runCalls",
		Old: "c.next, c.busy = nil, q != nil", New: "c.next, c.busy = nil, false",
		Tests: []string{"./taint/machine -run TestGuestsShareAQuestion"},
	},
	{
		Name: "within: a hypervisor that lost its power is waited for", In: "taint/machine.Within.askHypervisor",
		Old: "out.First.Got.IsZero() && out.Off.State != providers.PowerOff", New: "out.First.Got.IsZero()",
		Tests: []string{"./taint/machine -run Within"},
	},
	{
		Name: "within: a slow hypervisor is a silent one", In: "taint/machine.Within.askHypervisor",
		Old: "out.First.Got.IsZero() && out.Off.State != providers.PowerOff", New: "false",
		Tests: []string{"./taint/machine -run Within"},
	},
	{
		Name: "within: nobody hears a hypervisor that answers after its host's device (3)",
		In:   "taint/machine.Within.State",
		Old:  "case hosts[i].First = <-late[i]:", New: "case <-late[i]:",
		Tests: []string{"./taint/machine -run Within"},
	},
	{
		Name: "within: a host is powered off for one of its guests (14)",
		In:   "cmd/internal/app.machineFinder.hostedMachine",
		Old:  "Quiet: true, NoPower: machine.NoHostPower", New: "Quiet: true",
		Tests: []string{"./cmd/internal/app -run TestHostsOfARule"},
	},
	{
		Name: "within: who the host is stays untold (3)", In: "cmd/internal/app.makeHosts",
		Old: "SystemUUID: h.SystemUUID", New: `SystemUUID: ""`,
		Tests: []string{"./cmd/internal/app -run TestHostsOfARule"},
	},
	{
		Name: "within: a kubelet chooses a guest that does not exist (14)",
		In:   "cmd/internal/config.reader.checkWithin",
		Old:  "n.Machine.isRead() && n.claimed()", New: "n.Machine.isRead() && false",
		Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "fenceagent: a kubelet chooses the host that gets the password (14)",
		In:   "cmd/internal/config.reader.checkClaim",
		Old:  "n.Machine.isRead() && n.Machine.listedHosts() && n.claimed()", New: "false",
		Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "fenceagent: a rule's labels choose no host (14)", In: "cmd/internal/config.reader.checkClaim",
		Old:   "n.Machine.isRead() && n.Machine.listedHosts() && n.claimed()",
		New:   "n.Machine.isRead() && n.Machine.listedHosts() && n.Machine.claimed()",
		Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "within: a hypervisor may be without a host", In: "cmd/internal/config.reader.checkWithin",
		Old: "len(missing) > 0 && !r.bad[at]", New: "false", Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "within: a chain may lead to itself", In: "cmd/internal/config.reader.checkHost",
		Old: `loop != ""`, New: "false", Tests: []string{"./cmd/internal/config -run TestBroken"},
	},
	{
		Name: "within: a guest is absent whose name is mistaken (3)", In: "providers/libvirt.Provider.FindGuest",
		Old: "candidateUUIDs(providers.Target{SystemUUID: t.SystemUUID})", New: "candidateUUIDs(t)",
		Tests: []string{"./providers/libvirt -run TestPlace$"},
	},
	{
		Name: "within: a guest has two UUIDs, and is absent (3)", In: "providers/libvirt.Provider.FindGuest",
		Old: "ok && !slices.Contains(uuids, golibvirt.UUID(u))", New: "ok && u == [16]byte{}",
		Tests: []string{"./providers/libvirt -run TestPlace$"},
	},
	{
		Name: "within: a guest that is there is absent (2)", In: "providers/libvirt.Provider.FindGuest",
		Old: "out.Absent = len(found) == 0", New: "out.Absent = len(found) >= 0",
		Tests: []string{"./providers/libvirt -run TestPlace$"},
	},
	{
		Name: "within: a hypervisor that hangs keeps the others waiting", In: "providers/limiter.Provider.FindGuest",
		Old: `l.LimitGroup(t) + " on " + hypervisor`, New: "l.LimitGroup(t)",
		Tests: []string{"./providers/limiter -run TestPlace"},
	},
	{
		Name: "within: what a hypervisor said before it was asked counts (2)", In: "providers.AskPlace",
		Old: "err == nil && placed.At.Before(sent)", New: "false", Tests: []string{"./providers -run TestAskPlace"},
	},
	{
		Name: "within: the youngest answer tells how old it is", In: "taint/decide/proof.earliestOf",
		Old: "b.Before(a)", New: "b.After(a)", Tests: []string{"./taint/decide/proof"},
	},
	{
		Name: "levels: one that refuses for good ends the fence (16)", In: "taint/decide/proof.PowerOffs.IsExhausted",
		Old: "l.may && !l.never", New: "false",
	},
	{
		Name: "levels: one that refuses for good is asked again and again",
		In:   "taint/decide/proof.PowerOffs.nextLevel",
		Old:  "!l.never", New: "true",
	},
	{
		Name: "levels: an unpinned machine's power is touched through its level (14)",
		In:   "taint/decide/proof.PowerOffs.levelsOf",
		Old:  `l.may && d.NoPower == ""`, New: "true",
	},
	{
		Name: "levels: a power-off goes through the first device alone (4)",
		In:   "taint/decide/proof.PowerOffs.moveInLevel",
		Old:  "l.places", New: "l.places[:1]",
	},
	{
		Name: "levels: a level whose attempts are used up goes on", In: "taint/decide/proof.PowerOffs.endOfTurn",
		Old: "t.sent < l.limits.maxAttempts()", New: "true",
	},
	{
		Name: "levels: a level whose device refuses for good goes on", In: "taint/decide/proof.PowerOffs.endOfTurn",
		Old: "isPermanentRefusal(t.err)", New: "false",
	},
	{
		Name: "levels: a level without effect goes on", In: "taint/decide/proof.PowerOffs.endOfTurn",
		Old: "now.Sub(t.at) >= EffectAfter && a.State(i) != providers.PowerChanging", New: "false",
	},
	{
		Name: "levels: a level has all the time", In: "taint/decide/proof.PowerOffs.endOfTurn",
		Old: "end > 0 && now.Sub(p.began) >= end", New: "false",
	},
	{
		Name: "levels: nobody says On any more, and the next level has no turn",
		In:   "taint/decide/fence.View.decideByAnswer",
		Old: `
			case powering && v.isLevelOverdue():
				return v.decidePoweredOn(powering)`,
		New: "",
	},
	{
		Name: "levels: one that changes for ever keeps its turn", In: "taint/decide/fence.View.decideByAnswer",
		Old: "if powering && v.isLevelOverdue() { ... }", New: "",
	},
	{
		Name: "levels: a delay is none", In: "taint/decide/proof.PowerOffs.NextMove",
		Old: "all[i].limits.Delay - now.Sub(announced)", New: "now.Sub(now)",
	},
	{
		Name: "levels: what is left of a level proves (4)", In: "cmd/internal/config.NodeRule.further",
		Old: "of = nil", New: "",
	},
	{
		Name: "levels: a device that speaks already leaves the other alone (4)", In: "cmd/internal/config.whole",
		Old: "return twice[m.Level]", New: "return false",
	},
	{
		Name: "levels: an outlet that another node has leaves the other alone (4)",
		In:   "taint/machine.Finder.FindMachine",
		Old:  "return out[d.Level]", New: `return d.Clash.Refused != "" || d.Device == m.Device`,
	},
	{
		Name: "levels: the fence's machine proves alone what its level proves (4)",
		In:   "taint/machine.Finder.FindMachine",
		Old:  "m.Device != led.Device", New: "false",
	},
	{
		Name: "levels: each device is a level (4)", In: "taint/machine.Machine.ProofDevices",
		Old: "Level: d.Level", New: "Level: len(out)",
	},
	{
		Name: "levels: a level has two of one device (4)", In: "cmd/internal/config.reader.checkLevel",
		Old: "o.Machine.Template == d.Machine.Template", New: "false",
	},
	{
		Name: "levels: two lists that differ are none", In: "cmd/internal/config.reader.checkLevel",
		Old: `node != ""`, New: "false",
	},
	{
		Name: "levels: one that never says Off is in a level with others", In: "cmd/internal/config.reader.checkLevel",
		Old: "m.NeverOff()", New: "!m.NeverOff()",
	},
	{
		Name: "levels: an empty one", In: "cmd/internal/config.reader.checkLevel",
		Old: "len(l.Devices) == 0", New: "false",
	},
	{
		Name: "devices: the power-off goes through another than decided", In: "taint/controller.powerActions.PowerOff",
		Old: "w.st.machine.Devices()[a.Move.Device]", New: "w.st.machine.Devices()[0]",
		Tests: glue,
	},
	{
		Name: "devices: one that another node has is asked (14)", In: "taint/machine.Finder.FindMachine",
		Old: `d.Clash.Refused != ""`, New: "false",
	},
	{
		Name: "devices: a kubelet may choose a further one (14)", In: "cmd/internal/config.reader.checkLevel",
		Old: "(&NodeRule{Machine: d.Machine, selector: n.selector}).claimed()", New: "false",
	},
	{
		Name: "devices: a label may choose a further one (14)", In: "cmd/internal/config.reader.checkLevel",
		Old: "(&NodeRule{Machine: d.Machine, selector: n.selector}).claimed()", New: "d.Machine.claimed()",
	},
	{
		Name: "devices: a further one is nobody's to others (14)", In: "cmd/internal/config.Config.MachineClaims",
		Old: "for _, f := range m.Further { ... }", New: "",
	},
	{
		Name: "drill: a cached Node does not hold what the drill before it found", In: "taint/controller.slimNode",
		Old: "c.Type == taint.FenceableCondition", New: "false", Tests: []string{"./taint/drills"},
	},
	{
		Name: "devices: the drill is silent about two that disagree", In: "taint/view/drill.FindingOf",
		Old: "errors.Is(s.Verdict.Err, proof.ErrDisagree)", New: "errors.Is(s.Verdict.Err, proof.ErrDisagree) && " +
			"len(s.Devices) == 0",
	},
	{
		Name: "policy: no word is a word (1)", In: "taint/decide/policy.View.duePolicies",
		Old: "p.WithoutProof == Never", New: "false",
	},
	{
		Name: "policy: a node that is Ready loses pods (1)", In: "taint/decide/policy.View.duePolicies",
		Old: "l.IsReady()", New: "false",
	},
	{
		Name: "policy: a marked node is a policy's (1)", In: "taint/decide/policy.View.duePolicies",
		Old: "l.Mark != nil", New: "false",
	},
	{
		Name: "policy: a running fence is overridden", In: "taint/decide/policy.View.duePolicies",
		Old: "l.Record.IsOpen()", New: "false",
	},
	{
		Name: "policy: acts in a storm", In: "taint/decide/policy.View.decideNext",
		Old: "len(due) > 0 && v.Storm != (action.PolicyBlock{})", New: "false",
	},
	{
		Name: "policy: what was ended before a storm stays", In: "taint/decide/policy.View.decideNext",
		Old: "held && !v.Memory.OwesDeletes()", New: "held",
	},
	{
		Name: "policy: acts while all nodes look dead (7)", In: "taint/decide.findStorm",
		Old: "f.AllSilent()", New: "false",
	},
	{
		Name: "policy: acts while most nodes are not heard", In: "taint/decide.findStorm",
		Old: "!f.Heard", New: "false",
	},
	{
		Name: "policy: a new leader takes all nodes for heard", In: "taint/decide.findStorm",
		Old: "!f.IsSettled(now)", New: "false",
	},
	{
		Name: "policy: acts in a lost domain", In: "taint/decide.findStorm",
		Old: "!p.Lost.IsZero()", New: "false",
	},
	{
		Name: "controller: that policies wait is told for each node", In: "taint/observe.decisions.reportAside",
		Old: `a.ReportOnceKey == "" || n.isFirst(a.Why, a.ReportOnceKey)`, New: "true",
		Tests: observing,
	},
	{
		Name: "controller: that policies wait is told with each count", In: "taint/observe.decisions.reportAside",
		Old: `a == before || a.Why == "" || same`, New: `a == before || a.Why == "" || same && false`,
		Tests: observing,
	},
	{
		Name: "policy: a change that nobody saw is replayed", In: "taint/decide/policy.View.duePolicies",
		Old: "v.Memory.done[p.Name] >= v.Memory.notReadyCount", New: "v.Memory.done[p.Name] > v.Memory.notReadyCount",
	},
	{
		Name: "policy: exempt pods are ended (9)", In: "taint/decide/policy.Policy.matchesPod",
		Old: "pod.Exempt == taint.NotExempt", New: "(pod.Exempt == taint.NotExempt || true)",
	},
	{
		Name: "policy: finished pods are ended (9)", In: "taint/decide/policy.View.decidePolicy",
		Old: "!pod.Terminal", New: "true",
	},
	{
		Name: "policy: every namespace is one of its own", In: "taint/decide/policy.Policy.matchesPod",
		Old: "slices.Contains(p.Namespaces, pod.Namespace)", New: "true",
	},
	{
		Name: "policy: one volume of its driver is as good as all", In: "taint/decide/policy.Policy.matchesVolumes",
		Old: "of == len(pod.Volumes)", New: "true",
	},
	{
		Name: "policy: ends a pod with an unread claim", In: "taint/decide/policy.Policy.matchesVolumes",
		Old: "!hasUnreadVolume(pod)", New: "true",
	},
	{
		Name: "policy: a replacement may be bound to the dead node", In: "taint/decide/policy.View.endPods",
		Old: "!v.Look.IsReady() && !v.Look.IsUnschedulable()", New: "false",
	},
	{
		Name: "policy: a node whose storage is not healthy must be closed, too", In: "taint/decide/policy.View.endPods",
		Old: "!v.Look.IsReady() && !v.Look.IsUnschedulable()", New: "!v.Look.IsUnschedulable()",
	},
	{
		Name: "policy: any taint closes a node", In: "taint.Look.IsUnschedulable",
		Old: "(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable || t.Key == " +
			"corev1.TaintNodeUnschedulable)", New: "true", Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: any effect closes a node", In: "taint.Look.IsUnschedulable",
		Old: "t.Effect == corev1.TaintEffectNoSchedule", New: "true", Tests: []string{"./taint/decide/policy"},
	},
	{
		Name: "policy: a deletion by name is not waited for (F2)", In: "taint/decide/policy.View.endPods",
		Old: "stock.IsAboutToDelete(pod, v.Now)", New: "stock.IsAboutToDelete(pod, v.Now) && false",
	},
	{
		Name: "policy: a pod in its grace is ended", In: "taint/decide/policy.View.endPods",
		Old: "pod.DeleteAt.After(v.Now.Wall)", New: "false",
	},
	{
		Name: "policy: a pod that nobody deleted is ended", In: "taint/decide/policy.View.endPods",
		Old: "pod.DeleteAt.IsZero()", New: "false",
	},
	{
		Name: "policy: refused writes are sent again at once (13)", In: "taint/decide/policy.View.isBackingOff",
		Old: "v.Memory.retryAt[p.UID].After(v.Now)", New: "false",
	},
	{
		Name: "policy: a pod that cannot be deleted keeps the others (16)", In: "taint/decide/policy.View.decideNext",
		Old: "len(ready) > 0", New: "len(left) > 0",
	},
	{
		Name: "policy: a pod that cannot grow is never ended (16)", In: "taint/decide/policy.Memory.ApplyWrites",
		Old: "m.small[uid] = true", New: "",
	},
	{
		Name: "policy: an excluded node loses pods (8)", In: "taint/decide.Node.decideByPolicy",
		Old: `n.facts.Excluded != ""`, New: "false",
	},
	{
		Name: "policy: acts on an old list", In: "taint/decide.Node.lastActionHolds",
		Old: "n.lastReadAt.Age(now) > proof.TTL+n.questionDuration()", New: "false",
	},
	{
		Name: "policy: behind a slow device its reads are always too old", In: "taint/decide.Node.questionDuration",
		Old: "min(a.Got.Sub(a.At), proof.TTL)", New: "0 * min(a.Got.Sub(a.At), proof.TTL)",
		Tests: []string{"./taint/decide"},
	},
	{
		Name: "policy: acts on reads of before a question of any length", In: "taint/decide.Node.questionDuration",
		Old: "min(a.Got.Sub(a.At), proof.TTL)", New: "a.Got.Sub(a.At)", Tests: []string{"./taint/decide"},
	},
	{
		Name: "policy: what was ended is forgotten when the node is back", In: "taint/decide.Node.IsIdle",
		Old: "n.policy.OwesDeletes()", New: "false",
	},
	{
		Name: "policy: Longhorn is said to fence", In: "cmd/internal/config.policyCheck.checkProof",
		Old: "p.WithoutProof == policy.StorageFences && !k.preset.Fences", New: "false",
	},
	{
		Name: "policy: nothing selects everything", In: "cmd/internal/config.policyCheck.checkSelection",
		Old: "len(rule.Namespaces)+len(rule.Owners)+len(rule.Drivers) == 0", New: "len(rule.Namespaces) < 0",
	},
	{
		Name: "policy: pods are ended before the Node tells of it", In: "taint/decide/policy.Step",
		Old: "!v.Look.HasAnnounced(e.Policy.Name, string(e.Policy.WithoutProof))", New: "false",
	},
	{
		Name: "policy: volumes are taken before the Node tells of it", In: "taint/decide/policy.Step",
		Old: `action.PolicyOf(d.Action) != ""`,
		New: `action.PolicyOf(d.Action) != "" && !action.Is[action.DeleteAttachments](d)`,
	},
	{
		Name: "policy: what was told of another time counts", In: "taint.Unproven.isSame",
		Old: "u.Since.Equal(o.Since)", New: "true",
	},
	{
		Name: "policy: what was told by another word counts", In: "taint.Unproven.isSame",
		Old: "u.WithoutProof == o.WithoutProof", New: "true",
	},
	{
		Name: "policy: Longhorn's own setting is not asked for", In: "taint/decide/policy.View.endPods",
		Old: "!p.Yields", New: "true",
	},
	{
		Name: "policy: Longhorn's own setting is on, and the policy acts", In: "taint/decide/policy.View.endPods",
		Old: `*v.StorageSetting != ""`, New: "false",
	},
	{
		Name: "policy: Longhorn's own setting of an old look counts", In: "taint/decide.Node.applyNodeRead",
		Old: "n.pods, n.atts, n.storageSetting, n.awaitedClaims, n.etcdReady, n.evictView = podList{}, " +
			"attachmentList{}, nil, nil, nil, evict.View{}",
		New: "n.pods, n.atts, n.awaitedClaims, n.etcdReady, n.evictView = podList{}, attachmentList{}, nil, nil, " +
			"evict.View{}",
	},
	{
		Name: "policy: an unreadable setting of Longhorn's is none", In: "taint/kube.LonghornDeletes",
		Old: `return fmt.Sprintf("Longhorn's own setting %s cannot be read (%s)", longhornSetting, cmp.Or(string(apierrors.ReasonForError(err)), "no answer"))`, New: `_ = cmp.Or(err.Error()); return ""`,
	},
	{
		Name: "policy: a discovery that failed in part says that Longhorn is not there",
		In:   "taint/kube.NewServedObject",
		Old:  "!errors.As(err, &failed)", New: "(!errors.As(err, &failed) || true)",
	},
	{
		Name: "policy: a resource of Longhorn's that went says that Longhorn does nothing",
		In:   "taint/kube.LonghornDeletes",
		Old:  "!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)",
		New:  "(!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || true)",
	},

	// Drains.
	{
		Name: "drain: a cordoned node counts as safe", In: "taint/drainguard/drain.View.whyUnsafe",
		Old: "n.Cordoned", New: "false",
	},
	{
		Name: "drain: a node that is down counts as safe", In: "taint/drainguard/drain.View.whyUnsafe",
		Old: "n.Down", New: "false",
	},
	{
		Name: "drain: a node without a storage pod counts as safe", In: "taint/drainguard/drain.View.whyUnsafe",
		Old: "len(pods) == 0", New: "false",
	},
	{
		Name: "drain: a storage pod that does not run counts as safe", In: "taint/drainguard/drain.View.whyUnsafe",
		Old: "!p.Ready", New: "false",
	},
	{
		Name: "drain: a pod without a budget counts as safe", In: "taint/drainguard/drain.View.whyUnsafe",
		Old: "!c.ok", New: "!c.ok && false",
	},
	{
		Name: "drain: a replica that nobody knows holds up nothing", In: "taint/drainguard/drain.View.whyBlocks",
		Old: `r.Unknown != "" && policy != AlwaysAllow`, New: "false",
	},
	{
		Name: "drain: a replica that nobody knows counts as a copy", In: "taint/drainguard/drain.View.whyBlocks",
		Old: `o.Unknown != ""`, New: "false",
	},
	{
		Name: "drain: a request that nobody knows is taken back", In: "taint/drainguard/drain.View.decideEviction",
		Old: `r.Unknown != ""`, New: "false",
	},
	{
		Name: "drain: a failed replica counts as a copy", In: "taint/drainguard/drain.View.whyBlocks",
		Old: "!o.Healthy", New: "false",
	},
	{
		Name: "drain: a replica that was never started counts as a copy", In: "taint/drainguard/drain.View.whyBlocks",
		Old: "!o.Started", New: "false",
	},
	{
		Name: "drain: a second replica on the node counts as a copy elsewhere",
		In:   "taint/drainguard/drain.View.whyBlocks",
		Old:  "o.Node == r.Node", New: "false",
	},
	{
		Name: "drain: a copy that is being evicted counts", In: "taint/drainguard/drain.View.whyBlocks",
		Old: "o.Evicting", New: "false",
	},
	{
		Name: "drain: a copy that is being built holds no data", In: "taint/drainguard/drain.View.whyBlocks",
		Old: "!r.Started && !slices.ContainsFunc(all, func(o storage.Replica) bool { return o.Started })",
		New: "!r.Started",
	},
	{
		Name: "drain: a replica of an unknown volume holds up nothing", In: "taint/drainguard/drain.View.whyBlocks",
		Old: `return "its volume is unknown"`, New: `return ""`,
	},
	{
		Name: "drain: a running replica is a stopped one", In: "taint/drainguard/drain.View.whyBlocks",
		Old: "!r.Running", New: "true",
	},
	{
		Name: "drain: an unknown policy allows", In: "taint/drainguard/drain.View.whyBlocks",
		Old: `return fmt.Sprintf("unknown policy %q", v.Guard.Policy)`, New: `return ""`,
	},
	{
		Name: "drain: nothing known lets go", In: "taint/drainguard/drain.Decision.IsBlocked",
		Old: `d.Unknown != ""`, New: "false",
	},
	{
		Name: "drain: block-for-eviction lets a replica go", In: "taint/drainguard/drain.View.whyBlocks",
		Old: `return "it has not left yet"`, New: `return ""`,
	},
	{
		Name: "drain: asked on a node that is down", In: "taint/drainguard/drain.View.decideEviction",
		Old: "!n.Down", New: "true",
	},
	{
		Name: "drain: asked on a node that stays", In: "taint/drainguard/drain.View.decideEviction",
		Old: "n.Cordoned", New: "true",
	},
	{
		Name: "drain: a policy that does not evict asks", In: "taint/drainguard/drain.View.decideEviction",
		Old: "v.policyOn(n).ShouldEvict()", New: "true",
	},
	{
		Name: "drain: a request that somebody took back is sent again",
		In:   "taint/drainguard/drain.View.decideEviction",
		Old:  "want && !r.Evicting && !r.Ours", New: "want && !r.Evicting",
	},
	{
		Name: "drain: somebody else's request is noted as ours", In: "taint/drainguard/drain.View.decideEviction",
		Old: "want && !r.Evicting && !r.Ours", New: "want && !r.Ours",
	},
	{
		Name: "drain: somebody else's request is taken back", In: "taint/drainguard/drain.View.decideEviction",
		Old: "!want && r.Ours", New: "!want",
	},
	{
		Name: "drain: a request that somebody else wants as well is taken back",
		In:   "taint/drainguard/drain.View.decideEviction",
		Old:  "r.Evicting && r.Wanted", New: "false",
	},
	{
		Name: "drain: a request is taken back before the replica is gone",
		In:   "taint/drainguard/drain.View.decideEviction",
		Old:  "(blocks || r.Ours)", New: "blocks",
	},
	{
		Name: "drain: a second budget is made beside somebody's", In: "taint/drainguard/drain.View.decideBudgets",
		Old: "len(c.foreign) > 0", New: "false",
	},
	{
		Name: "drain: ours goes for somebody else's while the data would be lost",
		In:   "taint/drainguard/drain.View.decideBudgets",
		Old:  "d.Held, drop = d.Held || len(c.ours) > 0, nil", New: "",
	},
	{
		Name: "drain: a budget is made that selects two pods", In: "taint/drainguard/drain.View.decideBudgets",
		Old: `v.podWithSameLabels(p) != ""`, New: "false",
	},
	{
		Name: "drain: whatever a kubelet writes is shown", In: "taint/drainguard/drain.ProgressOf",
		Old: "p.isPrintable()", New: "true",
	},
	{
		Name: "drain: another pod's budget stays in the place of the pod's own",
		In:   "taint/drainguard/drain.View.budgetsOf",
		Old:  "slices.Insert(c.ours, 0, b)", New: "append(c.ours, b)",
	},
	{
		Name: "drain: somebody else's budget with our name is taken for ours",
		In:   "taint/drainguard/drain.View.decideBudgets",
		Old:  "c.sameName.Guard != v.Guard.Name", New: "false",
	},
	{
		Name: "drain: a budget that was made one for other pods is left so",
		In:   "taint/drainguard/drain.View.budgetsOf",
		Old:  "c.sameName = &v.index.budgets[at].Budget", New: "if b := &v.index.budgets[at].Budget; b.selectsPod(p) " +
			"{ c.sameName = b }",
	},
	{
		Name: "drain: no budget before the cordon", In: "taint/drainguard/drain.View.decideBudgets",
		Old: "!n.Cordoned || d.IsBlocked()", New: "d.IsBlocked()",
	},
	{
		Name: "drain: a budget that somebody changed counts", In: "taint/drainguard/drain.indexedBudget.isIntact",
		Old: "b.Whole", New: "true",
	},
	{
		Name: "drain: a budget that goes counts", In: "taint/drainguard/drain.indexedBudget.isIntact",
		Old: "!b.Deleting", New: "true",
	},
	{
		Name: "drain: a budget before two pods counts", In: "taint/drainguard/drain.indexedBudget.isIntact",
		Old: "!slices.ContainsFunc(b.pods, func(uid string) bool { return uid != p.UID })", New: "true",
	},
	{
		Name: "drain: somebody else's budget counts as ours", In: "taint/drainguard/drain.View.budgetsOf",
		Old: "b.Guard != v.Guard.Name", New: "false",
	},
	{
		Name: "drain: a pod that is being replaced loses its budget", In: "taint/drainguard/drain.DecideLeftovers",
		Old: "!exists || another", New: "!exists || another || !another",
	},
	{
		Name: "drain: somebody else's budget is swept", In: "taint/drainguard/drain.DecideLeftovers",
		Old: "b.Guard != v.Guard.Name", New: "false",
	},
	{
		Name: "drain: a selector that cannot be read selects nothing", In: "taint/drainguard/drain.SeeBudget",
		Old: "labels.Everything()", New: "labels.Nothing()",
	},
	{
		Name: "drain: a pod that is being deleted is up", In: "taint/drainguard/drain.SeePod",
		Old: "p.DeletionTimestamp == nil", New: "true",
	},
	{
		Name: "drain: a node whose Ready is Unknown is up", In: "taint/drainguard/drain.SeeNode",
		Old: "c.Status != corev1.ConditionTrue", New: "c.Status == corev1.ConditionFalse",
	},
	{
		Name: "drain: a budget selects other pods with the same label", In: "taint/drainguard/drain.Guard.BudgetFor",
		Old: "selector := g.Pods.DeepCopy()", New: "selector := &metav1.LabelSelector{}",
	},
	{
		Name: "drain: Longhorn's setting is fought over", In: "taint/drainguard/drain.DecideDelegation",
		Old: `s.Ours != "" && s.Value != s.Ours`, New: "false",
	},
	{
		Name: "drain: a person's setting is written over", In: "taint/drainguard/drain.DecideDelegation",
		Old: `s.Ours == "" && !untouched`, New: `s.Ours == "" && !untouched && false`,
	},
	{
		Name: "drain: careful acts are done on a cache", In: "taint/drainguard/drain.Do.NeedsLiveLook",
		Old: "d >= DeleteBudget", New: "d > DeleteBudget",
	},
	{
		Name: "drain: a budget goes without a live look", In: "taint/drainguard.Controller.lookAgain",
		Old: "v, err = k.readLive(ctx, g)", New: "v, err = k.readView(ctx, k.watches[g.Name].cache, g, " +
			"new(corev1.NodeList))",
	},
	{
		Name: "drain: somebody who does not lead changes budgets", In: "taint/drainguard.Controller.carryOut",
		Old: "k.Leading()", New: "error(nil)",
	},
	{
		Name: "drain: a budget that changed since the look is deleted", In: "taint/drainguard.Controller.carryOut",
		Old: "client.Preconditions{UID: &uid, ResourceVersion: &a.Budget.ResourceVersion}",
		New: "client.Preconditions{UID: &uid}",
	},
	{
		Name: "drain: a guard that is no more keeps its budgets", In: "taint/drainguard.Controller.inForce",
		Old: "gone.Policy, gone.LastSeen = drain.AlwaysAllow, nil", New: "",
	},
	{
		Name: "drain: somebody who does not lead writes the setting", In: "taint/drainguard.Controller.writeSetting",
		Old: "k.Leading()", New: "error(nil)",
	},
	{
		Name: "drain: an Event of a request that is nobody's", In: "taint/drainguard.Controller.reportProgress",
		Old: "!p.NoBudget", New: "p.NoBudget",
	},
	{
		Name: "drain: Longhorn's replicas are asked beside it", In: "cmd/internal/config.reader.checkDrain",
		Old: "longhorn && !d.Delegate", New: "false",
	},
	{
		Name: "drain: two guards for one storage", In: "cmd/internal/config.reader.checkDrain",
		Old: `d.Storage != "" && e.Storage == d.Storage`, New: "false",
	},
	{
		Name: "drain: a guard that cannot tell pods apart", In: "cmd/internal/config.reader.guardPods",
		Old: "len(d.Identity) == 0", New: "false",
	},
	{
		Name: "drain: a policy that evicts where nobody says how", In: "cmd/internal/config.reader.guardPods",
		Old: "!can && d.Policy.ShouldEvict()", New: "!can && d.Policy.ShouldEvict() && false",
	},

	{
		Name: "drain: a budget counts before pods that it does not select", In: "taint/drainguard/drain.View.WithIndex",
		Old: "b.selectsPod(p)", New: "true",
	},
	{
		Name: "drain: a pod that has finished keeps what is before it", In: "taint/drainguard/drain.View.WithIndex",
		Old: "p.Finished", New: "false",
	},
	{
		Name: "drain: a budget that asks for no one label is before nobody",
		In:   "taint/drainguard/drain.View.WithIndex",
		Old:  "try(rest)", New: "try(rest[:0])",
	},
	{
		Name: "drain: a selector for one of several values is for the first", In: "taint/drainguard/drain.groupByLabel",
		Old: "len(r.ValuesUnsorted()) == 1", New: "len(r.ValuesUnsorted()) > 0",
	},
	{
		Name: "drain: a selector for other values is for them", In: "taint/drainguard/drain.groupByLabel",
		Old: "op != selection.In && op != selection.Equals && op != selection.DoubleEquals",
		New: "op == selection.Exists",
	},
	{
		Name: "drain: what a storage system says later wakes nobody", In: "taint/drainguard.guardStates",
		Old: "one.version = one.system.Version()", New: "",
	},
	{
		Name: "drain: a pod that changed wakes nobody", In: "taint/drainguard.isUnchanged",
		Old: "drain.SeePod(before).IsSameAs(drain.SeePod(now))", New: "before != nil",
	},
	{
		Name: "drain: a budget that changed wakes nobody", In: "taint/drainguard.isUnchanged",
		Old: "drain.SeeBudget(before).IsSameAs(drain.SeeBudget(now))", New: "before != nil",
	},
	{
		Name: "drain: what a live look refused is not looked at again", In: "taint/drainguard.Controller.keepGuard",
		Old: "k.retry || acts+len(left) > 0", New: "k.retry",
	},
	{
		Name: "drain: a Node that was deleted keeps its requests", In: "taint/drainguard.Controller.keepGuard",
		Old: "v.Storage.NodesWithRequests()", New: "[]string(nil)",
	},
	{
		Name: "drain: a setting that changed wakes nobody", In: "taint/drainguard.Controller.inForce",
		Old: "k.settingWatches[g.Name] = k.watchSetting(ctx, g)", New: "",
	},
	{
		Name: "drain: a leader with an old configuration takes budgets away",
		In:   "taint/drainguard.Controller.sweepLeftovers",
		Old:  "k.Now().Sub(k.firstPass) < sweepAfter", New: "false",
	},
	{
		Name: "drain: a guard's own budgets are swept", In: "taint/drainguard.Controller.sweepBudgets",
		Old: `kept[b.Namespace+"/"+b.Guard]`, New: "false",
	},
	{
		Name: "drain: somebody's budget with our label is swept", In: "taint/drainguard.Controller.sweepBudgets",
		Old: `!strings.HasPrefix(b.Name, "forcefence-"+b.Guard+"-")`, New: `!strings.HasPrefix(b.Name, "")`,
	},
	{
		Name: "drain: a budget without our annotation is swept", In: "taint/drainguard.Controller.sweepBudgets",
		Old: `b.Node == ""`, New: "false",
	},
	{
		Name: "drain: what a guard left elsewhere stays", In: "taint/drainguard.Controller.inForce",
		Old: "k.swept, k.retry = false, true", New: "",
	},
	{
		Name: "drain: requests of a guard that was removed meanwhile stay",
		In:   "taint/drainguard.Controller.sweepRequests",
		Old:  "drain.DecideNode(drain.View{Guard: g.Guard, Storage: system}, node).Acts", New: "[]drain.Act(nil)",
	},
	{
		Name: "storage: what is lost changes no version", In: "taint/drainguard/storage.State.SetMissing",
		Old: "s.version++", New: "",
	},
	{
		Name: "storage: what is read changes no version", In: "taint/drainguard/storage.State.Replace",
		Old: "s.version++", New: "",
	},
	{
		Name: "storage: a replica that changed changes no version", In: "taint/drainguard/storage.entries.putReplica",
		Old: "s.version++", New: "",
	},
	{
		Name: "storage: an object that went changes no version", In: "taint/drainguard/storage.entries.removeObject",
		Old: "s.version++", New: "",
	},
	{
		Name: "storage: a node that changed changes no version", In: "taint/drainguard/storage.entries.nodeChanged",
		Old: "s.version++", New: "",
	},
	{
		Name: "storage: a person's request changes no version", In: "taint/drainguard/storage.entries.nodeAgain",
		Old: "s.version++", New: "",
	},

	// Volume attachment recovery.
	{
		Name: "attach: a pod is ended though another keeps its volume attached",
		In:   "taint/decide/policy.View.podsFreeingVolumes",
		Old:  "kept[vol.PV] = true", New: "kept[vol.PV] = false",
	},
	{
		Name: "attach: a pod is ended though one with an unread claim may use its volume",
		In:   "taint/decide/policy.View.podsFreeingVolumes",
		Old:  "slices.ContainsFunc(users, hasUnreadVolume)", New: "false",
	},
	{
		Name: "attach: volumes of other pods are not asked for before a pod is ended",
		In:   "taint/decide/policy.View.podsFreeingVolumes",
		Old:  "len(end) > 0 && len(unknown) > 0", New: "false",
	},
	{
		Name: "attach: a volume in use loses its attachment", In: "taint/decide/policy.View.detachVolumes",
		Old: "delete(loose, vol.PV)", New: "",
	},
	{
		Name: "attach: a volume that a pod with an unread claim may use loses its attachment",
		In:   "taint/decide/policy.View.detachVolumes",
		Old:  "slices.ContainsFunc(users, hasUnreadVolume)", New: "false",
	},
	{
		Name: "attach: volumes of other pods are not asked for before an attachment goes",
		In:   "taint/decide/policy.View.detachVolumes",
		Old:  "len(unknown) > 0", New: "false",
	},
	{
		Name: "attach: another attacher's attachment goes", In: "taint/decide/policy.View.detachVolumes",
		Old: "!slices.Contains(drivers[policy], a.Attacher)", New: "false",
	},
	{
		Name: "attach: one that is going is deleted again", In: "taint/decide/policy.View.detachVolumes",
		Old: "a.Deleting", New: "false",
	},
	{
		Name: "attach: refused deletions are sent again at once (13)", In: "taint/decide/policy.View.detachVolumes",
		Old: "v.Memory.retryAt[a.UID].After(v.Now)", New: "false",
	},
	{
		Name: "attach: what is loose outlives the node coming back (1)", In: "taint/decide/policy.Memory.ApplyLook",
		Old: "l.Mark != nil || ready && !m.spells[policy].open", New: "false",
	},
	{
		Name: "attach: what is not attached any more stays loose", In: "taint/decide/policy.Memory.ApplyAttachments",
		Old: "a.PV == pv && !a.Deleting", New: "true",
	},
	{
		Name: "attach: pods that are to stay are deleted", In: "taint/decide/policy.Memory.ApplyWrites",
		Old: "!e.Policy.Keep", New: "true",
	},
	{
		Name: "attach: pods that are to be deleted stay", In: "taint/decide/policy.Memory.ApplyWrites",
		Old: "m.owedDeletes[uid] = true", New: "",
	},
	{
		Name: "attach: volumes of a pod that somebody else deletes are forgotten", In: "taint/decide/policy.Memory.ApplyWrites",
		Old: "m.markLoose(uid, e.Frees[uid])", New: "",
	},
	{
		Name: "attach: what was deleted is deleted again", In: "taint/decide/policy.Memory.ApplyWrites",
		Old: "delete(m.loose, a.PV)", New: "",
	},
	{
		Name: "attach: immediate: nobody need wait", In: "taint/decide/policy.View.endPods",
		Old: "!v.isVolumeAwaited(p, pod)", New: "false",
	},
	{
		Name: "attach: immediate: nobody need have deleted the pod", In: "taint/decide/policy.View.endPods",
		Old: "p.Replaced && !pod.Deleting", New: "false",
	},
	{
		Name: "attach: a claim of that name in another namespace is the pod's", In: "taint/decide/policy.View.isVolumeAwaited",
		Old: `v.AwaitedClaims[pod.Namespace+"/"+vol.Claim]`, New: `v.AwaitedClaims[pod.Namespace+"/"+vol.Claim] || v.AwaitedClaims["db/"+vol.Claim]`,
	},
	{
		Name: "attach: a tombstone that nobody deleted is released", In: "taint/decide/policy.View.freedVolumes",
		Old: "!pod.Deleting", New: "false",
	},
	{
		Name: "attach: a tombstone is deleted in its grace", In: "taint/decide/policy.View.findEndedPods",
		Old: "pod.DeleteAt.After(v.Now.Wall)", New: "false",
	},
	{
		Name: "attach: a tombstone that nobody deleted is deleted", In: "taint/decide/policy.View.findEndedPods",
		Old: "pod.DeleteAt.IsZero()", New: "false",
	},
	{
		Name: "attach: done before the attachments are", In: "taint/decide/policy.View.decideNext",
		Old: "e.Done = nil", New: "",
	},
	{
		Name: "attach: a Deployment's pod is none of a ReplicaSet's", In: "taint/decide.Node.applyOwners",
		Old: "owner.Direct = n.pods.pods[i].Owner.Kind", New: "",
	},
	{
		Name: "attach: by a cached list", In: "taint/decide.Node.decideByPolicy",
		Old: "n.atts.have && n.atts.live", New: "n.atts.have",
	},
	{
		Name: "attach: acts on an old look", In: "taint/decide.Node.lastActionHolds",
		Old: "n.look.Sent.Age(now) > policyLook", New: "false",
	},
	{
		Name: "attach: never releases", In: "taint/decide/policy.Policy.RecoveryRule",
		Old: "p.Terminating || p.Replaced", New: "true", Tests: []string{"./cmd/internal/config -run Test(Rules|Broken)"},
	},
	{
		Name: "attach: wait waits for nothing", In: "taint/decide/policy.Policy.RecoveryRule",
		Old: `value == "wait"`, New: `value == "never"`, Tests: []string{"./cmd/internal/config -run Test(Rules|Broken)"},
	},
	{
		Name: "attach: released pods are deleted", In: "taint/decide/policy.Policy.RecoveryRule",
		Old: `p.When, p.Owners, p.Keep, p.Detach = NotReady, []string{"ReplicaSet"}, true, true`, New: `p.When, p.Owners, p.Keep, p.Detach = NotReady, []string{"ReplicaSet"}, false, true`, Tests: []string{"./cmd/internal/config -run Test(Rules|Broken)"},
	},
	{
		Name: "attach: a rule that only releases needs no word", In: "cmd/internal/config.reader.checkPolicy",
		Old: "len(rules) > 0", New: "len(rules) > 1",
	},
	{
		Name: "attach: every volume is a driver's", In: "cmd/internal/config.policyCheck.recoveryRule",
		Old: "len(k.rule.Drivers) == 0", New: "false",
	},
	{
		Name: "attach: a lone pod is a replacement", In: "taint/kube.ListAwaitedClaims",
		Old: `ref.Kind != "ReplicaSet"`, New: "false", Tests: kubeReads,
	},
	{
		Name: "attach: a pod that is being deleted is a replacement", In: "taint/kube.ListAwaitedClaims",
		Old: "p.DeletionTimestamp != nil", New: "false", Tests: kubeReads,
	},
	{
		Name: "kube: whoever makes a claim has anybody's volume", In: "taint/kube.readPodVolumes",
		Old: "of.Namespace != pvc.Namespace || of.Name != pvc.Name", New: "false",
		Tests: kubeReads,
	},
	{Name: "overtime: each act is another alert", In: "taint/decide/evict.View.waitForDetach", Old: "d.Alert = string(reason.WaitingDetach)", New: "", Tests: overtime},
	{Name: "overtime: at once", In: "taint/decide/evict.View.waitForDetach", Old: "v.ageOf(v.Look.Record.At) > v.Settings.DetachTimeout", New: "true", Tests: overtime},
	{Name: "overtime: without proof", In: "taint/decide/evict.View.waitForDetach", Old: "action.Is[action.Wait](d) || v.MayEndPods(v.Now)", New: "true", Tests: overtime},
	{Name: "overtime: what is being deleted, too", In: "taint/decide/evict.View.forceDetach", Old: "return a.Deleting", New: "return false", Tests: overtime},
	{Name: "overtime: again and again", In: "taint/decide/evict.View.forceDetach", Old: "v.Now.Sub(v.Memory.ForcedAt) < forceEvery", New: "false", Tests: overtime},
	{Name: "overtime: by a cache", In: "taint/decide/evict.View.readFirst", Old: "ends || forces || names || waits && v.Memory.ListedAt.Age(v.Now) >= relistEvery", New: "ends || names || waits && v.Memory.ListedAt.Age(v.Now) >= relistEvery", Tests: overtime},
	{Name: "overtime: beside volumes that are not known", In: "taint/decide/evict.View.readFirst", Old: "ends || waits || forces || clears", New: "ends || waits || clears", Tests: overtime},
	{Name: "overtime: out of service over a pod", In: "taint/decide/evict.View.takeOutOfService", Old: "len(stay) > 0", New: "false", Tests: overtime},
	{Name: "overtime: out of service over what caches still have", In: "taint/decide/evict.View.takeOutOfService", Old: "v.Now.Sub(v.Memory.emptySince) < emptyBeforeTaint", New: "false", Tests: overtime},
	{Name: "overtime: nobody looked whether a pod was there", In: "taint/decide/evict.View.takeOutOfService", Old: "v.Memory.emptySince.IsZero() || v.Now.Sub(v.Memory.emptySince) < emptyBeforeTaint", New: "v.Now.Sub(v.Memory.emptySince) < emptyBeforeTaint", Tests: overtime},
	{Name: "overtime: a toleration for a while is one for good", In: "taint/decide/evict.podsTaintWouldEnd", Old: "!ends || p.IsHeldByFinalizers()", New: "!ends || len(p.Tolerations) > 0 || p.IsHeldByFinalizers()", Tests: overtime},
	{Name: "overtime: a pod that was there is forgotten", In: "taint/decide/evict.Memory.ApplyPods", Old: "len(podsTaintWouldEnd(pods)) > 0", New: "false", Tests: overtime},
	{Name: "overtime: a node that lives stays out of service", In: "taint/decide/evict.View.decideReturn", Old: "taint.IsOutOfService(v.Look.Taints)", New: "false", Tests: overtime},
	{Name: "overtime: another's taint is ours", In: "taint.isOutOfService", Old: "t.Value == outOfService", New: "true", Tests: overtime},
	{
		Name: "attach: a pod of the dead node's own is a replacement", In: "taint/kube.ListAwaitedClaims",
		Old: "p.Spec.NodeName == node", New: "false", Tests: kubeReads,
	},
	{
		Name: "attach: by name alone", In: "taint/kube.Writer.deleteObject",
		Old: "UID: &id", New: "UID: func() *types.UID { _ = id; return nil }()", Tests: attachmentWrites,
	},
	{
		Name: "attach: without a resourceVersion", In: "taint/kube.Writer.deleteObject",
		Old: "ResourceVersion: &resourceVersion", New: "", Tests: attachmentWrites,
	},
	{
		Name: "attach: without a resourceVersion to name", In: "taint/kube.Writer.deleteObject",
		Old: `resourceVersion == ""`, New: "false", Tests: attachmentWrites,
	},
	{
		Name: "attach: by a stale leader", In: "taint/kube.Writer.deleteObject",
		Old: "w.Leading()", New: "error(nil)", Tests: attachmentWrites,
	},
	{
		Name: "events: a stale leader reports what it decided", In: "taint/kube.Events.Send",
		Old: "e.Leading() != nil", New: "false", Tests: kubeReads,
	},
	{
		Name: "events: one without words is sent", In: "taint/kube.Events.Send",
		Old: `row.Text == ""`, New: "false", Tests: kubeReads,
	},

	// What storage systems say (taint/drainguard/storage).
	{
		Name: "storage: a field that does not evaluate is false", In: "taint/drainguard/storage.evaluation.evalBool",
		Old: "if err != nil { ... }", New: "_ = err",
	},
	{
		Name: "storage: an error is a healthy volume", In: "taint/drainguard/storage.evaluation.evalBool",
		Old: "return unknown, false", New: "return true, true",
	},
	{
		Name: "storage: what is no bool is false", In: "taint/drainguard/storage.evalAs",
		Old: "!ok", New: "false && !ok",
	},
	{
		Name: "storage: what an expression gives does not matter", In: "taint/drainguard/storage.expression.checkTypes",
		Old: "!have.IsExactType(e.wants)", New: "false",
	},
	{
		Name: "storage: an expression may cost whatever it likes", In: "taint/drainguard/storage.expression.compileProgram",
		Old: "cost.Max > maxEstimate", New: "false",
	},
	{
		Name: "storage: an object may cost whatever it likes", In: "taint/drainguard/storage.expression.compileProgram",
		Old: "cel.CostLimit(maxCost)", New: "cel.CostLimit(1 << 62)",
	},
	{
		Name: "storage: an expression may be of any length", In: "taint/drainguard/storage.expression.checkTypes",
		Old: "len(e.text) > maxLength", New: "false",
	},
	{
		Name: "storage: objects of another namespace count", In: "taint/drainguard/storage.entries.putObject",
		Old: "o.GetNamespace() != s.Spec.Namespace", New: "false",
	},
	{
		Name: "storage: a list that was not read is empty", In: "taint/drainguard/storage.NewState",
		Old: `s.missing[k] = "not read yet"`, New: "_ = k",
	},
	{
		Name: "storage: what was lost is still known", In: "taint/drainguard/storage.State.SetMissing",
		Old: "s.missing[k] = oneLine(why)", New: "_ = why",
	},
	{
		Name: "storage: nodes that are not known are", In: "taint/drainguard/storage.State.NodeHealth",
		Old: `s.missing[Nodes] != ""`, New: "false",
	},
	{
		Name: "storage: volumes that are not known are", In: "taint/drainguard/storage.State.VolumeHealth",
		Old: `s.missing[Volumes] != ""`, New: "false",
	},
	{
		Name: "storage: replicas that are not known are", In: "taint/drainguard/storage.State.listReplicas",
		Old: `s.missing[Replicas] != ""`, New: "false",
	},
	{
		Name: "storage: a volume is as good as its replicas that are not known", In: "taint/drainguard/storage.State.withReplicas",
		Old: `s.missing[Replicas] != ""`, New: "false",
	},
	{
		Name: "storage: a volume without a replica is healthy", In: "taint/drainguard/storage.State.withReplicas",
		Old: "len(s.replicasOf[v.name]) == 0", New: "false",
	},
	{
		Name: "storage: another driver's volume is looked for", In: "taint/drainguard/storage.State.VolumeHealth",
		Old: "!slices.Contains(s.Spec.Drivers, v.Driver)", New: "false",
	},
	{
		Name: "storage: one of several objects speaks for a volume", In: "taint/drainguard/storage.State.VolumeHealth",
		Old: "len(found) > 1", New: "false",
	},
	{
		Name: "storage: one of several objects speaks for a node", In: "taint/drainguard/storage.entries.soleNode",
		Old: "len(found) > 1", New: "false",
	},
	{
		Name: "storage: a replica of which not all is known stands in", In: "taint/drainguard/storage.entries.putReplica",
		Old: "now.Healthy = false", New: "_ = now",
	},
	{
		Name: "storage: a replica that nobody can place is on no node", In: "taint/drainguard/storage.State.ReplicasOn",
		Old: "s.replicas[key].lost", New: "false",
	},
	{
		Name: "storage: a person's request that nobody can tell is none", In: "taint/drainguard/storage.entries.evaluateWanted",
		Old: `q.evalBool("replica.wanted", false, true)`, New: `q.evalBool("replica.wanted", false, false)`,
	},
	{
		Name: "storage: a node without an object has no request", In: "taint/drainguard/storage.entries.evaluateWanted",
		Old: "node == nil", New: "node == nil && false",
	},
	{
		Name: "storage: a person's request on a node is not looked at again", In: "taint/drainguard/storage.entries.nodeAgain",
		Old: "s.evaluateWanted(r)", New: "_ = r",
	},
	{
		Name: "storage: an eviction may meet another state", In: "taint/drainguard/storage.Adapter.EvictionPatch",
		Old: `"resourceVersion": r.ResourceVersion`, New: `"labels": nil`,
	},
	{
		Name: "storage: an eviction may meet another object", In: "taint/drainguard/storage.Adapter.EvictionPatch",
		Old: `"uid": r.UID`, New: `"labels": nil`,
	},
	{
		Name: "storage: an eviction may patch metadata", In: "taint/drainguard/storage.Adapter.checkOtherItems",
		Old: `[]string{"apiVersion", "kind", "metadata", "status"}`, New: "[]string{}",
	},
	{
		Name: "storage: text of an object is shown as it is", In: "taint/drainguard/storage.oneLine",
		Old: "!unicode.IsPrint(c)", New: "!unicode.IsPrint(c) && false",
	},
	{
		Name: "storage: a name may be anything", In: "taint/drainguard/storage.evaluation.evalName",
		Old: "!unicode.IsPrint(c)", New: "!unicode.IsPrint(c) && false",
	},
	{
		Name: "storage: a name may be of any length", In: "taint/drainguard/storage.evaluation.evalName",
		Old: "len(v) > maxName", New: "false",
	},
	{
		Name: "storage: a field that the cluster does not have fits", In: "taint/drainguard/storage.provider.FindStructFieldType",
		Old: "return nil, false", New: "return &types.FieldType{Type: cel.DynType}, true",
	},
	{
		Name: "storage: a system that is not in use any more is believed", In: "taint/drainguard/storage/watch.system.stop",
		Old: `s.state.SetMissing(k, "the configuration does not use it any more")`, New: "_ = k", Tests: storageWatch,
	},
	{
		Name: "storage: a changed adapter goes on as it was", In: "taint/drainguard/storage/watch.Watcher.UseAdapters",
		Old: "!reflect.DeepEqual(s.adapter.Spec, a.Spec)", New: "!reflect.DeepEqual(s.adapter.Spec, s.adapter.Spec)", Tests: storageWatch,
	},
	{
		Name: "storage: a resource that has gone is still known", In: "taint/drainguard/storage/watch.system.reportLost",
		Old: "s.state.SetMissing(k, why)", New: "_ = k", Tests: storageWatch,
	},
	{
		Name: "storageos: what is unknown is unhealthy", In: "taint/decide/policy.Memory.ApplyStorage",
		Old: `h.Known`, New: "true",
	},
	{
		Name: "storageos: a node that expired is never looked at again", In: "taint/decide/policy.Memory.ApplyStorage",
		Old: `now.Sub(s.since) >= p.Intervals.Expiry`, New: "false",
	},
	{
		Name: "storageos: healthy and unhealthy again is not seen", In: "taint/decide/policy.Memory.ApplyStorage",
		Old: `s.healthy != h.Healthy`, New: "false",
	},
	{
		Name: "storageos: a healthy node's volumes are cleared", In: "taint/decide/policy.Memory.ApplyStorage",
		Old: `!ok || s.healthy`, New: "!ok || s.healthy && false",
	},
	{
		Name: "storageos: acts while nobody knows", In: "taint/decide/policy.View.hasStorageTurn",
		Old: `h.Known`, New: "true",
	},
	{
		Name: "storageos: a node that is done is looked at again", In: "taint/decide/policy.View.decideSpell",
		Old: `!v.Memory.spells[p.Name].open`, New: "false",
	},
	{
		Name: "storageos: what is refused is tried for ever (13)", In: "taint/decide/policy.View.isSpellOver",
		Old: `v.Now.Sub(s.begun) >= p.Intervals.Timeout`, New: "false",
	},
	{
		Name: "storageos: refused at once again (13)", In: "taint/decide/policy.Policy.retryDelay",
		Old: `p.When == StorageUnhealthy`, New: "false",
	},
	{
		Name: "storageos: a volume of which nobody knows is healthy", In: "taint/decide/policy.Policy.describeSickVolumes",
		Old: `!(vol.Health.Known && vol.Health.Healthy)`, New: "vol.Health.Known && !vol.Health.Healthy",
	},
	{
		Name: "storageos: a pod goes with an unhealthy volume", In: "taint/decide/policy.View.decideSpell",
		Old: `sick != ""`, New: "false",
	},
	{
		Name: "storageos: a Ready node's list is cleared", In: "taint/decide/policy.View.volumesInUse",
		Old: `v.Look.IsReady()`, New: "false",
	},
	{
		Name: "storageos: clears where the storage does not fence", In: "taint/decide/policy.View.volumesInUse",
		Old: `p.WithoutProof != StorageFences`, New: "false",
	},
	{
		Name: "storageos: fights a kubelet for its list", In: "taint/decide/policy.View.volumesInUse",
		Old: `!f.cleared`, New: "true",
	},
	{
		Name: "storageos: clears what another pod uses (9)", In: "taint/decide/policy.View.clearVolumes",
		Old: `delete(off, vol.Unique)`, New: "_ = vol",
	},
	{
		Name: "storageos: clears what a pod with an unread claim may use (9)", In: "taint/decide/policy.View.clearVolumes",
		Old: "slices.ContainsFunc(users, hasUnreadVolume)", New: "false",
	},
	{
		Name: "storageos: clears after another boot", In: "taint/decide/policy.Memory.forgetVolumes",
		Old: `f.boot != l.BootID`, New: "false",
	},
	{
		Name: "storageos: an answer that was lost leaves a pod ended for ever (16)", In: "taint/decide/policy.Memory.applyRefusals",
		Old: `why == action.Failed`, New: "false",
	},
	{
		Name: "storageos: attachments are tried for ever (13)", In: "taint/decide/policy.View.gaveUp",
		Old: `v.isSpellOver(p)`, New: "false",
	},
	{
		Name: "storageos: a Ready node is not looked at", In: "taint/decide.Node.IsIdle",
		Old: "n.policyHasTurn", New: "false",
	},
	{
		Name: "storageos: nobody looks without an event", In: "taint/controller.Reconciler.pollInterval",
		Old: `every == 0`, New: "false",
		Tests: storedWorld,
	},
	{
		Name: "storageos: another system tells of a volume", In: "taint/controller.Config.fillVolumeHealth",
		Old: `slices.Contains(s.Drivers(), v.Driver)`, New: "true",
		Tests: storedWorld,
	},
	{
		Name: "storageos: another system tells of a node", In: "taint/controller.Config.storageHealth",
		Old: `s.Name() == one.Storage`, New: "true",
		Tests: storedWorld,
	},
	{
		Name: "storageos: a volume without a system's word is any system's", In: "cmd/internal/config.policyCheck.checkStorage",
		Old: `!slices.Contains(adapter.Spec.Drivers, d)`, New: "d == \"\"",
	},
	{
		Name: "storageos: a policy asks nobody", In: "cmd/internal/config.Config.FollowedStorage",
		Old: `rule.Storage`, New: "rule.Name",
	},

	// Modes.
	{
		Name: "modes: shadow marks a node", In: "taint/decide/fence.Step",
		Old: "v.shadowDecision(v.decideByRecord())", New: "v.decideByRecord()",
	},
	{
		Name: "modes: shadow announces a power-off", In: "taint/decide/fence.View.shadowDecision",
		Old: "action.Is[action.WriteRecord](d) && rec.Phase == taint.PhasePoweringOff", New: "false",
	},
	{
		Name: "modes: shadow says it again and again", In: "taint/decide/fence.View.shadowDecision",
		Old: "slices.Contains(v.Memory.Reported, why)", New: "false",
	},
	{
		Name: "modes: shadow says nothing of the next life", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "Memory{FirstLook: l, announcedID: m.announcedID, inherited: m.acceptingDevices(l.Record), BackSince: m.BackSince, backFenceID: m.backFenceID}",
		New: "Memory{FirstLook: l, announcedID: m.announcedID, inherited: m.acceptingDevices(l.Record), BackSince: m.BackSince, backFenceID: m.backFenceID, Reported: m.Reported}",
	},
	{
		Name: "modes: a fence that was begun hangs in shadow (11)", In: "taint/decide/fence.Step",
		Old: "rec.IsOpen()", New: "rec.IsOpen() && false",
	},
	{
		Name: "modes: disabled asks", In: "taint/decide/fence.View.checkGate",
		Old: "v.Facts.Mode == Disabled", New: "false",
	},
	{
		Name: "modes: disabled asks which run it is", In: "taint/decide/fence.View.decideByRecord",
		Old: "v.Facts.Mode != Disabled && needsExplanation(v.Look)", New: "needsExplanation(v.Look)",
	},
	{
		Name: "modes: disabled lists pods", In: "taint/decide.Node.decideUnmarked",
		Old: "(v.Facts.Mode != fence.Disabled || l.Record.IsOpen())", New: "true",
	},
	{
		Name: "modes: shadow takes a person's mark up", In: "taint/decide.Node.decideMarked",
		Old: "!n.facts.Mode.MayAct()", New: "false",
	},
	{
		Name: "modes: a policy ends pods in shadow", In: "taint/decide.Node.decideByPolicy",
		Old: "!n.facts.Mode.MayAct()", New: "false",
	},
	{
		Name: "modes: an annotation raises a mode", In: "taint/decide/fence.ChosenMode.LoweredBy",
		Old: "SaferMode(m, c.Mode)", New: "m",
	},
	{
		Name: "modes: a misspelt annotation is none", In: "taint/decide/fence.ChosenMode.LoweredBy",
		Old: "!known", New: "!known && false",
	},
	{
		Name: "modes: a node's annotation is not asked for", In: "taint/decide.Settings.Mode",
		Old: "chosen.LoweredBy(node.Annotations)", New: "chosen",
		Tests: wiring,
	},
	{
		Name: "modes: a mode that nobody knows does something", In: "cmd/internal/config.Config.modeRules",
		Old: "fence.Disabled", New: "fence.Observe",
		Tests: wiring,
	},
	{
		Name: "modes: selectors overlap", In: "cmd/internal/config.reader.checkMode",
		Old: "!apart(m.selector, o.selector)", New: "false",
	},
	{
		Name: "modes: a grace below two renewals", In: "cmd/internal/config.reader.grace",
		Old: "d < leastGrace", New: "d < leastGrace/2",
	},
	{
		Name: "modes: a node's own grace is not in force", In: "taint/decide.Settings.FenceFor",
		Old: "mode.PowerOffAfter > 0", New: "false",
		Tests: glue,
	},
	{
		Name: "modes: a drill asks in disabled", In: "taint/drills.AskDevices",
		Old: "mode.Mode == fence.Disabled", New: "false",
	},
	{
		Name: "modes: disabled pins", In: "taint/controller.Reconciler.checkIdle",
		Old: "mode == fence.Disabled", New: "mode == fence.Disabled && false",
		Tests: glue,
	},
	{
		Name: "modes: shadow nudges pods", In: "taint/controller.nudges.runDueRound",
		Old: "w.Leading() != nil || w.st.beginsNothing", New: "w.Leading() != nil",
		Tests: glue,
	},

	// Records of fences: beside the protocol, by the leader alone.
	{
		Name: "records: written by one that does not lead", In: "taint/observe.FencingWriter.sendEntry",
		Old: `c.Leading()`, New: "error(nil)",
		Tests: recordsWorld,
	},
	{
		Name: "records: a write that hangs holds up all others", In: "taint/observe.FencingWriter.sendEntry",
		Old: `context.WithTimeoutCause(ctx, fencingDeadline, fmt.Errorf("no answer within %s", fencingDeadline))`, New: "context.WithCancel(ctx)",
		Tests: recordsWorld,
	},
	{
		Name: "records: what waits has no bound", In: "taint/observe.FencingWriter.makeRoom",
		Old: `len(c.fences) < maxTrackedFences`, New: "len(c.fences) >= 0",
		Tests: recordsWorld,
	},
	{
		Name: "records: a newer version's fields go", In: "taint/observe.keepItems",
		Old: `same >= 0`, New: "false",
		Tests: recordsWorld,
	},
	{
		Name: "events: they carry the time at which they are sent", In: "taint/observe.timedRecorder.Eventf",
		Old: "map[string]string{happenedAt: r.at.UTC().Format(time.RFC3339Nano)}", New: "map[string]string{}",
		Tests: timedEvents,
	},
	{
		Name: "events: they keep the annotation of their time", In: "taint/observe.timedSink.Create",
		Old: "delete(event.Annotations, happenedAt)", New: "", Tests: timedEvents,
	},
	{
		Name: "events: a series that is created anew loses its time", In: "taint/observe.timedSink.Create",
		Old: "err == nil", New: "err == nil && event.Series == nil", Tests: timedEvents,
	},
	{
		Name: "events: one of the future", In: "taint/observe.Events.RecorderAt",
		Old: "at.IsZero() || at.After(now)", New: "at.IsZero()", Tests: timedEvents,
	},
	{
		Name: "events: one without a time", In: "taint/observe.Events.RecorderAt",
		Old: "at.IsZero() || at.After(now)", New: "at.After(now)", Tests: timedEvents,
	},
	{
		Name: "events: what others tell while they stop is lost", In: "taint/observe.Events.Start",
		Old: "eventsLinger", New: "0", Tests: timedEvents,
	},
	{
		Name: "steps: a fence that was never written has some", In: "taint/observe.fences.reportAction",
		Old: `o.Err == nil && written.ID != ""`, New: `written.ID != ""`, Tests: observing,
	},
	{
		Name: "steps: a policy's are a fence's", In: "taint/observe.fences.reportAction",
		Old: "action.IsByPolicy(a)", New: "false", Tests: observing,
	},
	{
		Name: "steps: the question before the fence is forgotten", In: "taint/observe.fences.reportAction",
		Old: "n.asked != nil", New: "false", Tests: observing,
	},
	{
		Name: "steps: each answer of a stuck fence is told", In: "taint/observe.answers.reportChanges",
		Old: "n.text == text", New: "false", Tests: observing,
	},
	{
		Name: "events: they have the time at which they are sent", In: "taint/observe.NodeReporter.ReportStep",
		Old: "n.at = s.Began.Wall", New: "n.at = n.Now()", Tests: observing,
	},
	{
		Name: "queue: pods' Events do not wait for the fence's end", In: "taint/observe.eventQueue.releaseEvents",
		Old: "list[i].ready || all || !list[i].pods", New: "true", Tests: observing,
	},
	{
		Name: "steps: a step that is told twice counts twice", In: "taint/journal.stepsKnown.addStep",
		Old: "i < 0", New: "true", Tests: steps,
	},
	{
		Name: "steps: what the first process did is forgotten", In: "taint/journal.Entry.MergeObject",
		Old: "e.steps = e.steps.addWritten(b.Steps)", New: "", Tests: steps,
	},
	{
		Name: "steps: what is taken over is forgotten", In: "taint/journal.EntryOf",
		Old: "stepsKnown{}.addWritten(o.Status.Steps)", New: "stepsKnown{}", Tests: steps,
	},
	{
		Name: "steps: what was written already counts again", In: "taint/journal.isOutside",
		Old: "s.Began.After(w.Ended.Time) || s.Began.Before(&w.Began)", New: "true", Tests: steps,
	},
	{
		Name: "steps: what another process did later does not count", In: "taint/journal.isOutside",
		Old: "s.Began.After(w.Ended.Time) || s.Began.Before(&w.Began)", New: "false", Tests: steps,
	},
	{
		Name: "steps: a fence of days keeps each", In: "taint/journal.stepsKnown.addStep",
		Old: "len(own) <= maxOwnSteps", New: "true", Tests: steps,
	},
	{
		Name: "steps: there are too many kinds for the object", In: "taint/journal.Entry.BoundedObject",
		Old: "s.Steps = s.Steps[:min(len(s.Steps), api.MaxSteps)]", New: "", Tests: steps,
	},
	{
		Name: "steps: a failure's text is not cut", In: "taint/journal.stepsKnown.addStep",
		Old: "cutText(s.Error)", New: "s.Error", Tests: steps,
	},
	{
		Name: "steps: a shadow decision takes some", In: "taint/journal.Entry.AddUpdate",
		Old: "t.Step != nil && !t.Shadow", New: "t.Step != nil", Tests: steps,
	},
	{
		Name: "steps: the first failure hides the last", In: "taint/journal.joinSpans",
		Old: "cmp.Or(b.Error, a.Error)", New: "cmp.Or(a.Error, b.Error)", Tests: steps,
	},
	{
		Name: "steps: the story tells a step and its Event", In: "taint/view.isStep",
		Old: "ok && e.Reason == string(own)", New: "ok && e.Reason != string(own)",
		Tests: []string{"./taint/view"},
	},
	{
		Name: "steps: the story leaves out an earlier fence's Events", In: "taint/view.isStep",
		Old: "!e.At.Before(s.Began.Add(-time.Second))", New: "true", Tests: []string{"./taint/view"},
	},
	{
		Name: "records: an open fence is deleted", In: "taint/journal.Retention.FindExpired",
		Old: `IsOpen(&f)`, New: "false",
	},
	{
		Name: "records: a person's word used again is the same fence", In: "taint/journal.ObjectName",
		Old: `r.IsVouchedFor() || !ownID.MatchString(r.ID)`, New: "false",
	},
	{
		Name: "records: each leader makes its own object of a shadow decision", In: "taint/journal.Update.Name",
		Old: `hashTexts(r.NodeUID, r.BootID, r.LeaseRV)`, New: "hashTexts(r.NodeUID, r.Token())",
	},
	{
		Name: "records: a shadow decision is still going on, and kept for ever", In: "taint/journal.Entry.AddUpdate",
		Old: `r = r.EnterPhase(taint.PhaseDone, taint.Result(shadowResult(r.PowerOff)), r.At)`, New: "_ = r",
	},
	{
		Name: "records: a shadow decision told again is another", In: "taint/journal.Entry.MergeObject",
		Old: `e.Object.Spec.Shadow`, New: "false",
	},
	{
		Name: "records: a shadow decision looks like a fence", In: "taint/observe.decisions.reportShadow",
		Old: `Shadow: true`, New: "Shadow: false",
		Tests: glue,
	},
	{
		Name: "after: a machine is powered on before its fence is done", In: "taint/decide/fence.View.isEvicted",
		Old: "r != nil && r.Result == taint.ResultEvicted && !v.Look.IsAliveSince(r)", New: "r != nil && !v.Look.IsAliveSince(r)",
	},
	{
		Name: "power-off: a fence that ends forgets what accepted a power-off", In: "taint/decide/fence.View.endRecord",
		Old: "rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)", New: "rec.PowerOffTo = nil",
	},
	{
		Name: "power-off: a fence that ends names what refused", In: "taint/decide/fence.View.endRecord",
		Old: "rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)", New: "",
	},
	{
		Name: "power-off: a mark forgets what accepted a power-off", In: "taint/decide/fence.View.decideByAnswer",
		Old: "rec.PowerOffTo = v.Memory.acceptingDevices(v.Look.Record)", New: "rec.PowerOffTo = nil",
	},
	{
		Name: "power-off: a node that came back hides what accepted a power-off", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "inherited: m.acceptingDevices(l.Record)", New: "inherited: nil",
	},
	{
		Name: "power-off: a new leader forgets what another sent", In: "taint/decide/fence.Memory.ApplyLook",
		Old: "m.announcedID, m.inherited = rec.ID, rec.PowerOffTo", New: "m.announcedID = rec.ID",
	},
	{
		Name: "power-off: the announcer counts its own names as another's", In: "taint/decide.Node.applyActionDone",
		Old: "n.fence.ApplyAnnouncement(n.look, a.Record)", New: "",
	},
	{
		Name: "power-off: a lost answer is no", In: "taint/decide/proof.PowerOffs.MayHaveAccepted",
		Old: "sent && (t.accepted || !isPermanentRefusal(t.err))", New: "sent && t.accepted",
	},
	{
		Name: "power-off: sent through a device that the record does not name", In: "taint/decide/fence.View.decidePoweredOn",
		Old: "slices.ContainsFunc(level, unnamed)", New: "false && slices.ContainsFunc(level, unnamed)",
	},
	{
		Name: "power-off: the next fence forgets what the last one turned off", In: "taint/decide/fence.View.newRecord",
		Old: "r.PowerOffTo = v.Look.PowerOffDevices()", New: "",
	},
	{
		Name: "power-off: a life that is over is still blamed for an outlet", In: "taint.Look.PowerOffDevices",
		Old: "l.Record == nil || l.IsAliveSince(l.Record)", New: "l.Record == nil",
		Tests: []string{"./taint/decide/fence", "./taint/decide/evict"},
	},
	{
		Name: "power-off: a person's mark hides what accepted a power-off", In: "taint/decide/evict.View.adoptPersonMark",
		Old: "PowerOffTo: l.PowerOffDevices()", New: "",
	},
	{
		Name: "power-off: an Event for each look", In: "taint/observe.fences.reportPowerOffs",
		Old: "n.open = nil", New: "",
		Tests: observing,
	},
	{
		Name: "power-off: a record that is gone ends no fence", In: "taint/observe.fences.reportPowerOffs",
		Old: "!rec.IsOpen() || len(rec.PowerOffTo) == 0", New: "false",
		Tests: observing,
	},
	{
		Name: "power-off: the Fencing keeps what did not accept it", In: "taint/journal.Entry.AddUpdate",
		Old: "s.PowerOffTo = addDevices(nil, r.PowerOffTo)", New: "s.PowerOffTo = addDevices(s.PowerOffTo, r.PowerOffTo)",
	},
	{
		Name: "after: a machine is powered on though nobody said so", In: "taint/decide/fence.View.decideAfterFence",
		Old: "!v.Facts.PostFence.PowerOn || v.Facts.Mode != Fence || len(rec.OffBy) == 0 || rec.IsVouchedFor()", New: "v.Facts.Mode != Fence || len(rec.OffBy) == 0 || rec.IsVouchedFor()",
	},
	{
		Name: "after: mode observe powers on", In: "taint/decide/fence.View.decideAfterFence",
		Old: "!v.Facts.PostFence.PowerOn || v.Facts.Mode != Fence || len(rec.OffBy) == 0 || rec.IsVouchedFor()", New: "!v.Facts.PostFence.PowerOn || len(rec.OffBy) == 0 || rec.IsVouchedFor()",
	},
	{
		Name: "after: mode shadow powers on", In: "taint/decide/fence.Step",
		Old: "v.Facts.Mode, v.Facts.PostFence = Fence, PostFence{}", New: "v.Facts.Mode = Fence",
	},
	{
		Name: "after: a machine that we did not turn off is powered on", In: "taint/decide/proof.PowerOffs.AcceptedBy",
		Old: "!took", New: "false",
	},
	{
		Name: "after: nobody is asked for a power-off, and the machine counts as turned off by us", In: "taint/decide/fence.View.decideByAnswer",
		Old: "rec.OffBy = v.Memory.PowerOffs.AcceptedBy(v.Facts.Devices)", New: "rec.OffBy = proof.SpeakersOf(v.Facts.Devices)",
	},
	{
		Name: "after: a person's fence powers on", In: "taint/decide/fence.View.decideAfterFence",
		Old: "!v.Facts.PostFence.PowerOn || v.Facts.Mode != Fence || len(rec.OffBy) == 0 || rec.IsVouchedFor()", New: "!v.Facts.PostFence.PowerOn || v.Facts.Mode != Fence || len(rec.OffBy) == 0",
	},
	{
		Name: "after: powered on at once", In: "taint/decide/fence.View.decideAfterFence",
		Old: "return action.Decision{Action: action.Wait{}, Reason: reason.PowerOnDelay, RequeueAfter: left}", New: "",
	},
	{
		Name: "after: a drain does not hold up a power-on", In: "taint/decide/fence.View.decideAfterFence",
		Old: `v.Facts.KeptOn != ""`, New: "false",
	},
	{
		Name: "after: a node that needs another fence soon is powered on", In: "taint/decide/fence.View.decideAfterFence",
		Old: "rec.Since.Sub(last) < v.Facts.PostFence.Again", New: "false",
	},
	{
		Name: "after: what somebody turned on is ours to turn on", In: "taint/decide/fence.View.decideAfterFence",
		Old: `v.Memory.PowerOns.LastOn.After(v.instantOf(rec.At)) && rec.PostFence == ""`, New: "false",
	},
	{
		Name: "after: a machine that came up is powered on again", In: "taint/decide/fence.View.decideAfterFence",
		Old: "return v.recordOutcome(taint.PostFencePoweredOn, reason.CameUp)", New: "",
	},
	{
		Name: "after: a run that the device tells counts for nothing", In: "taint/decide/fence.View.decideAfterFence",
		Old: "now != rec.Run", New: "false",
	},
	{
		Name: "after: a power-on is sent again by whoever finds it announced", In: "taint/decide/fence.View.decideAfterFence",
		Old: "!v.Memory.PowerOns.Announced.IsZero() && v.Memory.PowerOns.Announced.Equal(last) && v.bootTimeLeft() > 0", New: "v.bootTimeLeft() > 0",
	},
	{
		Name: "after: as often as it likes", In: "taint/decide/fence.View.decideAfterFence",
		Old: "len(of) >= v.Facts.PostFence.PerDay", New: "false",
	},
	{
		Name: "after: a power-on is sent before the record says so", In: "taint/decide/fence.View.decideAfterFence",
		Old: "if !mine { ... }", New: "",
	},
	{
		Name: "after: an Off of the moment before is enough to power on", In: "taint/decide/fence.View.decideAfterFence",
		Old: "v.isOffTooOld()", New: "false",
	},
	{
		Name: "after: powered on without a look after the answer", In: "taint/decide/fence.View.decideAfterFence",
		Old: "v.Look.Got.Age(v.Now) > proof.TTL || !v.Look.Sent.After(v.Answers.Answer.Got)", New: "false",
	},
	{
		Name: "after: an answer of before the fence's end counts", In: "taint/decide/fence.View.decideAfterFence",
		Old: "!v.Answers.Answer.At.After(v.instantOf(rec.At))", New: "false",
	},
	{
		Name: "after: a machine that boots is powered off", In: "taint/decide/fence.View.checkGate",
		Old: "v.bootTimeLeft() > 0", New: "false",
	},
	{
		Name: "after: the power-on goes to another machine", In: "taint/decide/fence.View.devicesToPowerOn",
		Old: "d.Name == by.Device && by.Machine != nil && d.Machine == *by.Machine", New: "d.Name == by.Device",
	},
	{
		Name: "after: the power-on goes through a device that must not touch the machine", In: "taint/decide/fence.View.devicesToPowerOn",
		Old: `v.Facts.Devices[i].NoPower != ""`, New: "false",
	},
	{
		Name: "after: the BMC comes before its outlets", In: "taint/decide/fence.View.devicesToPowerOn",
		Old: "append(places, others...)", New: "append(others, places...)",
	},
	{
		Name: "after: an earlier fence's names outlive a machine that ran", In: "taint/decide/fence.View.newRecord",
		Old: "!v.Memory.PowerOns.LastOn.After(v.instantOf(old.At))", New: "true",
	},
	{
		Name: "after: a device told of On since the answer", In: "taint/decide/fence.View.decideAfterFence",
		Old: "v.Fleet.OnAt.After(v.Answers.Answer.Got)", New: "false",
	},
	{
		Name: "after: an older On replaces a newer one", In: "taint/decide/fleet.Fleet.ApplyOnAnswer",
		Old: "at.After(n.on)", New: "true",
	},
	{
		Name: "after: a device's push of On is not remembered", In: "taint/wake.push.handlePush",
		Old: "p.Fleet(func(f *fleet.Fleet) { f.ApplyOnAnswer(t.Node, p.Now.Instant()) })", New: "",
	},
	{
		Name: "after: a polled On is not remembered", In: "taint/wake.poller.askUnit",
		Old: "a.State == providers.PowerOn && !ms[i].Feeds", New: "false",
	},
	{
		Name: "after: a new power-off keeps what became of the last", In: "taint/decide/fence.View.decidePoweredOn",
		Old: `rec.PowerOff, rec.OffBy, rec.PostFence = true, nil, ""`, New: "rec.PowerOff = true",
	},
	{
		Name: "after: the next fence forgets the power-ons", In: "taint/decide/fence.View.newRecord",
		Old: "r.FalseOffs, r.PowerOns = old.DistrustedDevices(), old.PowerOns", New: "r.FalseOffs = old.DistrustedDevices()",
	},
	{
		Name: "after: a device that refused for good is named", In: "taint/decide/proof.PowerOffs.MayHaveAccepted",
		Old: "sent && (t.accepted || !isPermanentRefusal(t.err))", New: "sent && (t.accepted || true)",
	},
	{
		Name: "after: an outlet that is on says that the machine runs", In: "taint/decide/proof.Answers.IsRunning",
		Old: "!s.device.Feeds && s.answer.State == providers.PowerOn", New: "s.answer.State == providers.PowerOn",
	},
	{
		Name: "after: a power-on that was sent is sent again", In: "taint/decide/fence.PowerOns.ApplySent",
		Old: "p.Announced, p.Err = time.Time{}, err", New: "p.Err = err",
	},
	{
		Name: "after: a power-on of the day before yesterday counts", In: "taint.Record.PowerOnsOf",
		Old: "at.Sub(on) >= Day", New: "false",
	},
	{
		Name: "after: what became of the machine is not told", In: "taint/journal.Entry.AddUpdate",
		Old: "s.PostFence = cmp.Or(string(r.PostFence), s.PostFence)", New: "",
	},
	{
		Name: "after: what is added to a fence counts as another", In: "taint/observe.decisions.reportDecision",
		Old: "(l.Record.IsOpen() || d.Reason == reason.NeverOff)", New: "true",
		Tests: glue,
	},
	{
		Name: "after: the next device is sent to after one was not", In: "taint/controller.powerActions.PowerOn",
		Old: "if o.Withheld { ... }", New: "if false { ... }", Tests: glue,
	},
	{
		Name: "after: a device that does not take the power-on keeps it from the others", In: "taint/controller.powerActions.PowerOn",
		Old: "if o.Withheld { ... }", New: "if o.Err != nil { break }",
		Tests: glue,
	},
	{
		Name: "after: powerOn without mode fence", In: "cmd/internal/config.reader.checkPostFence",
		Old: "!c.fences()", New: "false",
	},
	{
		Name: "after: a power-on is sent on a write whose answer is lost", In: "taint/decide.Node.applyActionDone",
		Old: "o.Err == nil && !on.Equal(n.look.Record.LastPowerOn())", New: "!on.Equal(n.look.Record.LastPowerOn())",
	},
	{
		Name: "after: a power-on is sent on a look of long ago", In: "taint/decide.Node.lastActionHolds",
		Old: "n.look.Sent.Age(now) > proof.TTL+min(took, n.lastLookTook)", New: "took < 0",
	},

	{
		Name: "remote: a flood makes us ask as often as it likes", In: "providers/remote.Throttle.runWanted", Tests: pacing,
		Old: "rest > 0", New: "rest > 0 && false",
	},
	{
		Name: "remote: the last word of a flood is lost", In: "providers/remote.Throttle.RunSoon", Tests: pacing,
		Old: "t.wanted = true", New: "t.wanted = !t.busy",
	},
	{
		Name: "ec2: an event of long ago makes us ask", In: "providers/ec2.Provider.handleMessages", Tests: ec2Watch,
		Old: "now.Sub(e.Time) > maxEventAge", New: "false",
	},
	{
		Name: "ec2: an instance that starts is told of", In: "providers/ec2.Provider.handleMessages", Tests: ec2Watch,
		Old: "!isGoingOff(e.Detail.State)", New: "false",
	},
	{
		Name: "ec2: anybody's message is an event", In: "providers/ec2.parseEvent", Tests: ec2Watch,
		Old: "!instanceOnly.MatchString(e.Detail.ID)", New: "false",
	},
	{
		Name: "ec2: a message may have any length", In: "providers/ec2.parseEvent", Tests: []string{"./providers/ec2 -run TestLongEvent"},
		Old: "len(body) > longestEvent", New: "false",
	},
	{
		Name: "ec2: a queue's answer may have any length", In: "providers/ec2.Provider.openQueues", Tests: hostileSQS,
		Old: "Bytes: longestAnswer", New: "Bytes: longestAnswer << 10",
	},
	{
		Name: "ec2: an answer that is too long is asked for as it was", In: "providers/ec2.watch.readQueue", Tests: hostileSQS,
		Old: "most = 1", New: "most = maxMessages",
	},
	{
		Name: "ec2: a service that does not wait is asked at once", In: "providers/ec2.watch.readQueue", Tests: hostileSQS,
		Old: "len(messages) > 0 || time.Since(begun) >= shortPoll", New: "len(messages) >= 0 || time.Since(begun) >= shortPoll",
	},
	{
		Name: "ec2: what happened while a queue could not be read is told to nobody", In: "providers/ec2.watch.readQueue", Tests: ec2Watch,
		Old: "connected, wait = false, shortPoll", New: "wait = shortPoll",
	},
	{
		Name: "ec2: a queue of a region that is not configured", In: "providers/ec2.parseQueue", Tests: ec2Watch,
		Old: "!slices.Contains(regions, host[1])", New: "false",
	},
	{
		Name: "ec2: a queue of another partition", In: "providers/ec2.parseQueue", Tests: ec2Watch,
		Old: `strings.HasPrefix(host[1], "cn-") != strings.HasSuffix(host[2], ".cn")`, New: `strings.HasPrefix(host[1], "cn-") && false`,
	},
	{
		Name: "ec2: it is a Watcher without queues", In: "providers/ec2.Config.New", Tests: ec2Watch,
		Old: "len(c.Queues) == 0", New: "false",
	},
	{
		Name: "ec2: a watch hears only what it received itself", In: "providers/ec2.Provider.handleMessages", Tests: ec2Watch,
		Old: "w.reportSoon(i, o)", New: "if len(p.watches) == 1 { w.reportSoon(i, o) }",
	},
	{
		Name: "ipmi: a stranger's trap makes us ask", In: "providers/ipmi.trapWatch.handlePacket", Tests: ipmiTraps,
		Old: "of := w.sources[from]", New: "of := w.sources[from]; if len(of) == 0 { for _, any := range w.sources { of = any } }",
	},
	{
		Name: "ipmi: any packet makes us ask", In: "providers/ipmi.trapWatch.handlePacket", Tests: ipmiTraps,
		Old: "!ok", New: "!ok && false",
	},
	{
		Name: "ipmi: a trap is believed", In: "providers/ipmi.trapWatch.askBMC", Tests: ipmiTraps,
		Old: "err == nil && o.State != providers.PowerOn", New: "err == nil && (o.State != providers.PowerOn || !trap.at.IsZero())",
	},
	{
		Name: "ipmi: a trap that comes before the power goes is asked about once", In: "providers/ipmi.trapWatch.askBMC", Tests: ipmiTraps,
		Old: "time.Since(trap.at) < askFor", New: "false",
	},
	{
		Name: "ipmi: what is off at the beginning is not told", In: "providers/ipmi.trapProvider.Watch", Tests: ipmiTraps,
		Old: "for i := range targets { ... }", New: "",
	},
	{
		Name: "ipmi: it is a Watcher without traps", In: "providers/ipmi.Config.New", Tests: ipmiTraps,
		Old: `c.Traps == ""`, New: "false",
	},
	{
		Name: "page: a name that leads here is taken for ours", In: "cmd/internal/page.server.isOwnHost", Tests: statusPage,
		Old: `name == "localhost" || ip != nil && ip.IsLoopback()`, New: "true || ip == nil",
	},
	{
		Name: "page: another site may log in and out", In: "cmd/internal/page.server.newHandler", Tests: statusPage,
		Old: "http.NewCrossOriginProtection().Handler(mux)", New: "http.Handler(mux)",
	},
	{
		Name: "page: a log in leads elsewhere", In: "cmd/internal/page.isLocalPath", Tests: statusPage,
		Old: `!strings.HasPrefix(path, "//")`, New: "true",
	},
	{
		Name: "page: a token is reviewed once", In: "cmd/internal/page.gate.reviewKnown", Tests: statusPage,
		Old: "age >= 0 && age < reviewValidFor", New: "age >= -time.Hour",
	},
	{
		Name: "page: a login lasts for ever", In: "cmd/internal/page.gate.reviewKnown", Tests: statusPage,
		Old: "p == nil || !now.Before(p.ends)", New: "p == nil",
	},
	{
		Name: "page: unknown tokens are reviewed as often as one likes", In: "cmd/internal/page.gate.admitToken", Tests: statusPage,
		Old: "!g.tries.AllowN(g.now(), 1)", New: "false",
	},
	{
		Name: "page: who follows a page sees it after the token's end", In: "cmd/internal/page.server.streamPage", Tests: statusPage,
		Old: "!s.mayStillSee(r)", New: "false",
	},
	{
		Name: "page: pages are followed by as many as like", In: "cmd/internal/page.newServer", Tests: statusPage,
		Old: "make(chan struct{}, maxStreams)", New: "make(chan struct{}, 1000)",
	},
	{
		Name: "listeners: one address has as many connections as it likes", In: "cmd/internal/httpserver.listener.admitConn",
		Old: "l.from[c.from] >= l.maxEach", New: "false",
	},
	{
		Name: "listeners: there are as many connections as clients like", In: "cmd/internal/httpserver.listener.admitConn",
		Old: "len(l.conns) >= maxConns", New: "false",
	},
	{
		Name: "listeners: a new connection waits for a slow one", In: "cmd/internal/httpserver.listener.chooseVictim",
		Old: "case c.since.Sub(slowest.since) >= protectedTime: ...", New: "case false: return nil",
	},
	{
		Name: "listeners: a connection goes before it could ask", In: "cmd/internal/httpserver.listener.chooseVictim",
		Old: "c.since.Sub(slowest.since) >= protectedTime", New: "true",
	},
	{
		Name: "listeners: another address's connections go for those of one", In: "cmd/internal/httpserver.listener.chooseVictim",
		Old: "sameSource && o.from != c.from", New: "false",
	},
	{
		Name: "listeners: addresses that flood the port starve those that have few", In: "cmd/internal/httpserver.listener.chooseVictim",
		Old: "l.from[crowd.from] > l.from[c.from]+1", New: "false",
	},
	{
		Name: "listeners: two addresses take each other's only connection", In: "cmd/internal/httpserver.listener.chooseVictim",
		Old: "l.from[crowd.from] > l.from[c.from]+1", New: "l.from[crowd.from] > l.from[c.from]",
	},
	{
		Name: "listeners: who has just asked is the slowest", In: "cmd/internal/httpserver.noteState",
		Old: "s == http.StateActive || s == http.StateIdle", New: "s == http.StateIdle",
	},
	{
		Name: "listeners: who has just been answered is the slowest", In: "cmd/internal/httpserver.noteState",
		Old: "s == http.StateActive || s == http.StateIdle", New: "s == http.StateActive",
	},
	{
		Name: "listeners: a connection that has gone counts", In: "cmd/internal/httpserver.conn.Close",
		Old: "c.of.forgetConn(c)", New: "",
	},
	{
		Name: "listeners: a connection is taken off twice", In: "cmd/internal/httpserver.listener.forgetConn",
		Old: "if _, counted := l.conns[c]; !counted { ... }", New: "",
	},
	{
		Name: "listeners: who is evicted stays", In: "cmd/internal/httpserver.listener.Accept",
		Old: "slowest.resetConn()", New: "",
	},
	{
		Name: "listeners: connections are not bounded", In: "cmd/internal/httpserver.Listen",
		Old: "return limitConns(l, maxEach), nil", New: "return l, nil",
	},
	{
		Name: "listeners: a header may take for ever", In: "cmd/internal/httpserver.New",
		Old: "ReadHeaderTimeout: headerTime", New: "",
	},
	{
		Name: "listeners: a body may take for ever", In: "cmd/internal/httpserver.New",
		Old: "ReadTimeout: requestTime", New: "",
	},
	{
		Name: "listeners: an answer may never be read", In: "cmd/internal/httpserver.New",
		Old: "WriteTimeout: answerTime", New: "",
	},
	{
		Name: "listeners: a connection may idle for ever", In: "cmd/internal/httpserver.New",
		Old: "IdleTimeout: idleTime", New: "",
	},
	{
		Name: "listeners: a header may have a megabyte", In: "cmd/internal/httpserver.New",
		Old: "MaxHeaderBytes: maxHeader", New: "",
	},
	{
		Name: "listeners: each scrape is rendered and held", In: "cmd/internal/app.exposition.renderText", Tests: serving,
		Old: "age < maxTextAge", New: "false",
	},
	{
		Name: "listeners: a scrape of long ago is sent", In: "cmd/internal/app.exposition.renderText", Tests: serving,
		Old: "age < maxTextAge", New: "true",
	},
	{
		Name: "listeners: who set the clock back sees old numbers", In: "cmd/internal/app.exposition.renderText", Tests: serving,
		Old: "age >= 0", New: "true",
	},
	{
		Name: "listeners: metrics and health have no limits", In: "cmd/internal/app.addServer", Tests: serving,
		Old: "httpserver.New(h, log)", New: "&http.Server{Handler: h}",
	},
	{
		Name: "page: whoever writes an Event says what comes next", In: "taint/view.NewestOwnEvent", Tests: []string{"./taint/view"},
		Old: `e.From == "forcefence"`, New: "true",
	},
	{
		Name: "page: a fence that needs a person does not say so", In: "taint/view.rowOf", Tests: []string{"./taint/view"},
		Old: "facts.NeedsPerson = needs[row.Fence]", New: "",
	},
	{
		Name: "page: marks that turn the text around are shown", In: "taint/view.OneLine", Tests: statusPage,
		Old: "!unicode.IsPrint(r)", New: "unicode.IsControl(r)",
	},
	{
		Name: "page: a newer version's words are read as ours", In: "taint/view.ParseFencing", Tests: statusPage,
		Old: "runtime.IsStrictDecodingError(err)", New: "runtime.IsStrictDecodingError(err) && len(raw) == 0",
	},
	{
		Name: "page: a token without the right opens it", In: "cmd/internal/page.NewReviewer", Tests: []string{"./test/deploy -run ^TestStatusPage$"},
		Old: "!r.Status.Allowed || r.Status.Denied", New: "r.Status.Denied",
	},
	{
		Name: "trace: an error's own words are told", In: "cmd/internal/trace.Tracer.addSpan",
		Old: "providers.ErrorClass(p.Err)", New: "p.Err.Error()",
	},
	{
		Name: "trace: it remembers every fence and question", In: "cmd/internal/trace.Tracer.makeRoom",
		Old: "len(t.fences) < maxFences", New: "true",
	},
	{
		Name: "trace: a setting that cannot be read is told with its password", In: "cmd/internal/trace.New",
		Old: `fmt.Errorf("%s: not a URL such as http://collector:4318", name)`, New: `fmt.Errorf("%s: not a URL such as http://collector:4318: %s", name, os.Getenv(name))`,
	},
}
