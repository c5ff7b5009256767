//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/nodes"
)

// enable says that the scenarios shall run: they take minutes, and `make test` leaves them to `make e2e`.
const enable = "FORCEFENCE_E2E"

func TestE2E(t *testing.T) {
	if os.Getenv(enable) == "" {
		t.Skip("SKIPPED: make e2e runs it")
	}
	rest := []scenario{
		{"power cut; the node is back during eviction (KEP 1)", (*world).backDuringEviction},
		{"power cut; the node is back without a network (KEP 2)", (*world).backWithoutNetwork},
		{"a heartbeat before the taint manager looks (KEP 3)", (*world).heartbeatFirst},
		{"kubelet stopped, machine on: nothing is evicted", (*world).kubeletStopped},
		{"network cut, machine on: nothing is evicted", (*world).networkCut},
		{"an ordinary reboot", (*world).reboot},
		{"kubectl taint of a dead machine, and of a healthy node", (*world).byHand},
		{"Longhorn, NooBaa: machine dead, new pods have the data", (*world).deadMachine},
		{"attachment recovery, StorageOS: new pods have the data", (*world).released},
		{"kubectl drain: replicas that moved have the data", (*world).drained},
		{"NooBaa: network cut, a pod runs twice", (*world).doubles},
		{"hook killed: the other plugin holds", (*world).oneKilled},
		{"hook killed twice: the runtime refuses", (*world).bothKilled},
		{"hook hung (SIGSTOP): nothing slips through", (*world).hung},
		{"containerd restarted under the mark", (*world).containerdRestarted},
		{"the previous version's hook; updated under the mark", (*world).previousHook},
		{"plugin missing at boot: the runtime refuses", (*world).missingAtBoot},
		{"a boot with a broken credential: only the exempt start", (*world).brokenCredential},
		{"one node alone does not lock itself out", (*world).singleNode},
		{"uninstall leaves no trace", (*world).uninstall},
	}
	// After a scenario that failed the nodes are not what the next one expects: that one gets new nodes.
	for range worlds {
		if left := len(rest); left > 0 {
			t.Run("nodes", func(t *testing.T) { rest = play(t, rest) })
			if len(rest) == left {
				return // the nodes do not start
			}
		}
	}
	for _, s := range rest {
		t.Errorf("%s: not played, because scenarios before it failed", s.name)
	}
}

// worlds is how many times nodes are started: scenarios that fail one after the other have one cause.
const worlds = 3

// scenario is a story that is played on real nodes.
type scenario struct {
	name string
	run  func(*world) string
}

// play starts nodes, plays scenarios on them until one fails, and returns those that it did not play.
func play(t *testing.T, rest []scenario) []scenario {
	begin := time.Now()
	w := newWorld(t)
	report("three real nodes with the hook, fail-closed", begin, "")
	for len(rest) > 0 {
		s := rest[0]
		rest = rest[1:]
		ok := t.Run(strings.NewReplacer(" ", "_", "/", "-").Replace(s.name), func(t *testing.T) {
			begin, outer := time.Now(), w.t
			w.t = t
			defer func() { w.t = outer }()
			told := s.run(w)
			w.check()
			if !t.Failed() {
				report(s.name, begin, told)
			}
		})
		if !ok {
			break
		}
	}
	return rest
}

// report is a scenario's line.
func report(name string, begin time.Time, told string) {
	if told != "" {
		told = "  " + told
	}
	fmt.Printf("%-58s %6.1f s%s\n", name, time.Since(begin).Seconds(), told)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// backDuringEviction: KEP scenario 1 with a volume. The mark is there when the node boots; its database runs elsewhere
// already or waits for its volume; what is exempt starts at once. What is ordinary is held until the controller has
// seen the boot: the mark waits for the volume, and they do not use it.
func (w *world) backDuringEviction() string {
	told, held := w.back("1")
	w.shown(held, "forcefence: held on node")
	return told
}

// back is backDuringEviction with objects of these names, and what the Event of a held pod said.
func (w *world) back(suffix string) (told, held string) {
	name := "db" + suffix
	db := w.database(name, w.n1)
	guard := w.create(w.pod("tolerant"+suffix, tolerant, on(w.n1)))
	w.running(guard.Name, "")
	before := w.count(db.Name)
	w.must(w.csi.Attacher().Pause()) // volumes do not detach: the fence lasts
	off := time.Now()
	w.cut(w.n1)
	w.untilEvicting(w.n1)
	w.until(db.Name+" has a successor", func() bool {
		p, err := w.c.Client().CoreV1().Pods(w.ns).Get(w.t.Context(), db.Name, metav1.GetOptions{})
		return err == nil && p.UID != db.UID
	})
	evicted := time.Since(off)
	w.fence.Stop()
	w.must(w.n1.PowerOn())
	boot := w.n1.BootID()
	w.until("the static pod runs again", func() bool { return w.wroteAs("static-n1", boot) })
	w.until("the tolerating pod runs again", func() bool { return w.wrote(guard, boot) })
	w.must(w.n1.WaitReady(w.t.Context()))
	var late []*corev1.Pod
	for i := range 10 {
		late = append(late, w.create(w.pod(fmt.Sprintf("late%s-%d", suffix, i), on(w.n1))))
	}
	for _, p := range late {
		w.held(p, "")
	}
	held = strings.ReplaceAll(w.held(late[0], ""), w.mark(w.n1), taint.DefaultKey+"=ID:NoSchedule")
	begin := time.Now()
	w.must(w.fence.Start(w.t.Context()))
	w.until("held pods run", func() bool {
		for _, p := range late {
			if !w.wrote(p, boot) {
				return false
			}
		}
		return true
	})
	admitted := time.Since(begin)
	w.never("the mark goes while volumes are attached", time.Second, func() bool { return w.mark(w.n1) == "" })
	w.must(w.csi.Attacher().Resume())
	w.untilFree(w.n1)
	next := w.running(db.Name, db.UID)
	if next.Spec.NodeName == "n1" {
		kit.Harm(w.t, "%s came back to n1 while it was marked", db.Name)
	}
	if after := w.count(db.Name); after <= before {
		w.t.Errorf("%s counts %d, after %d: not the same volume", db.Name, after, before)
	}
	if w.event(db, "Started", "") == "" {
		w.t.Errorf("%s has no Event of its start: the check of Events sees nothing", db.Name)
	}
	w.clear(name, append(late, guard)...)
	return fmt.Sprintf("cut to replaced %s; controller to 10 held pods run %s", ms(evicted), ms(admitted)), held
}

// backWithoutNetwork: KEP scenario 2. Without an API server a kubelet knows its static pods only; when the network is
// back, what tolerates the mark starts, and the rest is held until the controller has seen the boot.
func (w *world) backWithoutNetwork() string {
	db := w.database("db2", w.n2)
	guard := w.create(w.pod("tolerant2", tolerant, on(w.n2)))
	w.running(guard.Name, "")
	w.must(w.csi.Attacher().Pause())
	w.cut(w.n2)
	w.untilEvicting(w.n2)
	w.must(w.n2.CutNetwork())
	w.must(w.n2.PowerOn())
	boot := w.n2.BootID()
	w.until("the static pod runs", func() bool { return w.wroteAs("static-n2", boot) })
	w.never("a pod other than the static one starts", 5*time.Second, func() bool {
		for _, l := range w.lines() {
			if l.Boot == boot && l.Pod != w.ns+"/static-n2" {
				return true
			}
		}
		return false
	})
	late := w.create(w.pod("late2", on(w.n2)))
	w.fence.Stop()
	w.must(w.n2.RestoreNetwork())
	back := time.Now()
	w.until("the tolerating pod runs", func() bool { return w.wrote(guard, boot) })
	exempt := time.Since(back)
	w.held(late, "")
	begin := time.Now()
	w.must(w.fence.Start(w.t.Context()))
	w.until("the held pod runs", func() bool { return w.wrote(late, boot) })
	admitted := time.Since(begin)
	w.never("the mark goes while volumes are attached", time.Second, func() bool { return w.mark(w.n2) == "" })
	w.must(w.csi.Attacher().Resume())
	w.untilFree(w.n2)
	w.running(db.Name, db.UID)
	w.clear("db2", late, guard)
	return fmt.Sprintf("network back to tolerating pod %s; controller to held pod runs %s", ms(exempt), ms(admitted))
}

// heartbeatFirst: KEP scenario 3. The mark is set while the taint manager does not look, and the node lives. When the
// taint manager looks, the mark goes, and nothing was touched.
func (w *world) heartbeatFirst() string {
	p := w.running(w.create(w.pod("alive3", on(w.n3))).Name, "")
	w.fence.Stop()
	w.taint(w.n3)
	w.never("the pod stops", 2*time.Second, func() bool { return w.restarted(p) })
	w.must(w.fence.Start(w.t.Context()))
	begin := time.Now()
	w.untilFree(w.n3)
	took := time.Since(begin)
	w.untouched(p)
	w.clear("", p)
	return "controller to mark removed " + ms(took)
}

// kubeletStopped is the negative test: silence alone is no proof.
func (w *world) kubeletStopped() string {
	return w.silent("silent4", w.n1.StopKubelet, w.n1.StartKubelet)
}

func (w *world) networkCut() string {
	return w.silent("silent5", w.n1.CutNetwork, w.n1.RestoreNetwork)
}

func (w *world) silent(name string, stop, start func() error) string {
	db := w.database(name, w.n1)
	w.must(stop())
	begin := time.Now()
	w.until("n1 is NotReady", func() bool { return cluster.IsNotReady(w.node(w.n1)) })
	w.until("forcefence says that the machine is on", func() bool { return w.told("n1", "PoweredOnNotReady") })
	said := time.Since(begin)
	n := w.count(db.Name)
	w.never("n1 is marked, or its pod ended", 8*time.Second,
		func() bool { return w.mark(w.n1) != "" || w.restarted(db) })
	if w.count(db.Name) <= n {
		w.t.Errorf("%s does not write any more", db.Name)
	}
	w.must(start())
	w.must(w.n1.WaitReady(w.t.Context()))
	w.untouched(db)
	w.clear(name)
	w.forget("PoweredOnNotReady")
	return "told after " + ms(said)
}

// reboot: no fence begins for a node that is back before it was missed; its pods wait for Ready, and are nudged then.
func (w *world) reboot() string {
	p := w.running(w.create(w.pod("reboot6", on(w.n3))).Name, "")
	w.fence.Stop() // a machine that was seen off would be fenced, and this is not about that
	w.cut(w.n3)
	begin := time.Now()
	w.must(w.n3.PowerOn())
	w.must(w.fence.Start(w.t.Context()))
	w.must(w.n3.WaitReady(w.t.Context()))
	ready := time.Since(begin)
	w.until("the pod runs again", func() bool { return w.wrote(p, w.n3.BootID()) })
	all := time.Since(begin)
	w.clear("", p)
	return fmt.Sprintf("power on to Ready %s, to its pods %s", ms(ready), ms(all))
}

// byHand: a person's mark, first on a machine that is off, then on one that is not.
func (w *world) byHand() string {
	db := w.database("db7", w.n1)
	w.must(w.csi.Attacher().Pause())
	w.fence.Stop() // the person is faster
	w.cut(w.n1)
	w.until("n1 is NotReady", func() bool { return cluster.IsNotReady(w.node(w.n1)) })
	w.taint(w.n1)
	begin := time.Now()
	w.must(w.csi.Attacher().Resume())
	w.must(w.fence.Start(w.t.Context()))
	w.running(db.Name, db.UID)
	took := time.Since(begin)
	w.must(w.n1.PowerOn())
	w.untilFree(w.n1)
	w.must(w.n1.WaitReady(w.t.Context()))
	p := w.running(w.create(w.pod("healthy7", on(w.n2))).Name, "")
	w.taint(w.n2)
	w.untilFree(w.n2)
	w.untouched(p)
	w.clear("db7", p)
	return "mark and controller to replacement " + ms(took)
}

// under plays what happens to the hook of n3 while it is marked and the controller is away, so that the mark stays. An
// ordinary pod that is bound meanwhile must not start, an exempt one must, and both run once the mark is gone.
func (w *world) under(name string, happen func()) string {
	w.fence.Stop()
	w.taint(w.n3)
	w.until("the hook knows the mark", func() bool {
		s := w.hookStatus(w.n3, nri.PreInstalledIndex)
		return s != nil && s.Node.Marked
	})
	happen()
	ordinary, exempt := w.create(w.pod("ordinary-"+name, on(w.n3))), w.create(w.pod("exempt-"+name, tolerant, on(w.n3)))
	begin := time.Now()
	w.until("the exempt pod runs", func() bool { return w.wrote(exempt, "") })
	took := time.Since(begin)
	w.never("an ordinary pod starts on a marked node", 15*time.Second, func() bool { return w.wrote(ordinary, "") })
	w.must(w.fence.Start(w.t.Context()))
	w.untilFree(w.n3)
	return "exempt pod after " + ms(took)
}

// over waits until the ordinary pod of under runs, once the hook is whole again.
func (w *world) over(name string) {
	w.untilRegistered(w.n3, nri.DaemonIndex)
	w.until("the ordinary pod runs", func() bool {
		return w.wroteAs("ordinary-"+name, w.n3.BootID())
	})
	w.clear("", w.pod("ordinary-"+name), w.pod("exempt-"+name))
}

func (w *world) oneKilled() string {
	told := w.under("8", func() { w.signal(w.n3, nri.PreInstalledIndex, syscall.SIGKILL) })
	w.over("8")
	w.whole()
	return told
}

func (w *world) bothKilled() string {
	told := w.under("9", func() {
		w.stopDaemon()
		w.signal(w.n3, nri.PreInstalledIndex, syscall.SIGKILL)
	})
	p, err := w.c.Client().CoreV1().Pods(w.ns).Get(w.t.Context(), "ordinary-9", metav1.GetOptions{})
	w.must(err)
	w.shown(w.event(p, "Failed", "required plugin"), "required plugin")
	w.startDaemon()
	w.over("9")
	w.whole()
	return told
}

func (w *world) hung() string {
	told := w.under("10", func() {
		w.signal(w.n3, nri.PreInstalledIndex, syscall.SIGSTOP)
		w.signal(w.n3, nri.DaemonIndex, syscall.SIGSTOP)
	})
	w.signal(w.n3, nri.DaemonIndex, syscall.SIGCONT) // the other one was killed by the runtime, which had started it
	w.over("10")
	w.whole()
	return told
}

func (w *world) containerdRestarted() string {
	told := w.under("11", func() { w.must(w.n3.KillContainerd()) })
	w.over("11")
	w.whole()
	return told
}

// previousHook: nodes whose hook is the previous version's, the runtimes' own plugin as well, under this version's
// controller. A node comes back during its fence, and what is held and let go is as with this version's hook. Then the
// DaemonSet is updated under the mark.
func (w *world) previousHook() string {
	w.hook(previousImage)
	for _, n := range w.nodes() {
		w.must(n.RestartContainerd()) // the runtime starts its own plugin from the file when it starts
	}
	for _, n := range w.nodes() {
		w.untilRegistered(n, nri.PreInstalledIndex, nri.DaemonIndex)
		w.until(n.Name()+" is fail-closed", func() bool { return w.guardOf(n) == "FailClosed" })
		if got := w.hookStatus(n, nri.PreInstalledIndex).Version; got != "previous" {
			w.t.Fatalf("the runtime of %s has started the hook of version %s, want the previous one", n.Name(), got)
		}
	}
	told, _ := w.back("12")
	updated := w.under("12",
		func() { w.kubectl("-n", hookName, "set", "image", "daemonset/"+hookName, "*="+nodeImage) })
	w.hook(nodeImage)
	w.over("12")
	for _, n := range w.nodes() {
		w.must(n.RestartContainerd())
		w.untilRegistered(n, nri.PreInstalledIndex, nri.DaemonIndex)
	}
	w.whole()
	if got := w.hookStatus(w.n1, nri.PreInstalledIndex).Version; got == "previous" {
		w.t.Error("the runtime of n1 has started the previous hook again")
	}
	return told + "; updated: " + updated
}

// hook has the DaemonSet run an image, and waits until all of it does.
func (w *world) hook(image string) {
	w.t.Helper()
	w.kubectl("-n", hookName, "set", "image", "daemonset/"+hookName, "*="+image)
	w.kubectl("-n", hookName, "rollout", "status", "daemonset/"+hookName, "--timeout=3m")
}

// missingAtBoot: a person removed the plugin while the machine was off; it boots under the mark.
func (w *world) missingAtBoot() string {
	w.fence.Stop()
	w.cut(w.n3)
	file, err := w.n3.HostPath(filepath.Join(nodes.NRIPlugins, nri.PreInstalledIndex+"-"+nri.BaseName))
	w.must(err)
	w.must(os.Rename(file, file+".away"))
	w.must(os.Rename(file+".away", filepath.Join(w.dir, "plugin")))
	w.taint(w.n3)
	ordinary := w.create(w.pod("ordinary-13", on(w.n3)))
	w.must(w.n3.PowerOn())
	boot := w.n3.BootID()
	begin := time.Now()
	w.until("the static pod runs", func() bool { return w.wroteAs("static-n3", boot) })
	static := time.Since(begin)
	w.untilRegistered(w.n3, nri.DaemonIndex) // its pod is exempt and tolerates that the plugin is missing
	w.never("an ordinary pod starts on a marked node", 15*time.Second, func() bool { return w.wrote(ordinary, "") })
	w.must(w.fence.Start(w.t.Context()))
	w.untilFree(w.n3)
	w.over("13")
	w.must(w.n3.WaitReady(w.t.Context()))
	w.until("install has put the plugin back", func() bool { _, err := os.Stat(file); return err == nil })
	w.must(w.n3.RestartContainerd())
	w.whole()
	return fmt.Sprintf("power on to static pod %s", ms(static))
}

// brokenCredential: the node boots and the hook that the runtime started cannot read the API server, though its kubelet
// can. Static pods, and what was exempt before the boot, start: DaemonSets, the hook's own among them, and what
// tolerates the mark. The rest is held until the credential works again.
func (w *world) brokenCredential() string {
	p := w.running(w.create(w.pod("ordinary-14", on(w.n3))).Name, "")
	exempt := w.running(w.create(w.pod("exempt-14", tolerant, on(w.n3))).Name, "")
	file := func(inside string) string {
		host, err := w.n3.HostPath(inside)
		w.must(err)
		return host
	}
	memory := file(filepath.Join(nri.DefaultDataDir, nri.MemoryFile))
	w.until("the hook has noted who is exempt", func() bool {
		text, err := os.ReadFile(memory)
		return err == nil && strings.Contains(string(text), string(exempt.UID)) &&
			!strings.Contains(string(text), string(p.UID))
	})
	w.fence.Stop() // a machine that was seen off would be fenced, and this is not about that
	w.cut(w.n3)
	const moved = "/etc/forcefence/moved.conf"
	conf, kubeconfig := file(nodes.NRIPlugins+"/"+nri.ConfigFile), file(nodes.Kubeconfig)
	text, err := os.ReadFile(conf)
	w.must(err)
	w.must(os.WriteFile(conf, []byte(strings.ReplaceAll(string(text), nodes.Kubeconfig, moved)), 0o600))
	w.must(w.n3.PowerOn())
	w.must(w.fence.Start(w.t.Context()))
	begin, boot := time.Now(), w.n3.BootID()
	w.until("the static pod runs", func() bool { return w.wroteAs("static-n3", boot) })
	w.until("the tolerating pod runs", func() bool { return w.wrote(exempt, boot) })
	w.untilRegistered(w.n3, nri.DaemonIndex)
	took := time.Since(begin)
	w.must(w.n3.WaitReady(w.t.Context()))
	if told := w.held(p, boot); !strings.Contains(told, "not read yet on this boot") {
		w.t.Errorf("the ordinary pod gets %q", told)
	}
	if s := w.hookStatus(w.n3, nri.PreInstalledIndex); s == nil || !strings.Contains(s.Error, moved) {
		w.t.Errorf("the hook does not tell what is wrong: %+v", s)
	}
	w.never("an ordinary pod starts", 15*time.Second, func() bool { return w.wrote(p, boot) })
	text, err = os.ReadFile(kubeconfig)
	w.must(err)
	w.must(os.WriteFile(file(moved), text, 0o600))
	again := time.Now()
	w.until("the ordinary pod runs", func() bool { return w.wrote(p, boot) })
	told := fmt.Sprintf("power on to the exempt %s, credential mended to the ordinary %s", ms(took),
		ms(time.Since(again)))
	w.must(w.n3.RestartContainerd()) // its plugin has the configuration that install has mended since
	w.whole()
	w.must(os.Remove(file(moved)))
	w.clear("", p, exempt)
	return told
}

// singleNode: a cluster whose only node that is on carries a mark, and boots: what it needs to come back is exempt, and
// the controller, which is outside here and tolerates the mark in deploy, takes it off.
func (w *world) singleNode() string {
	p := w.running(w.create(w.pod("alone14", on(w.n1))).Name, "")
	w.fence.Stop()
	w.cut(w.n2)
	w.cut(w.n3)
	w.cut(w.n1)
	w.taint(w.n1)
	w.must(w.n1.PowerOn())
	begin, boot := time.Now(), w.n1.BootID()
	w.until("the static pod runs", func() bool { return w.wroteAs("static-n1", boot) })
	w.must(w.n1.WaitReady(w.t.Context()))
	w.held(p, boot)
	w.must(w.fence.Start(w.t.Context()))
	w.untilFree(w.n1)
	w.until("the ordinary pod runs", func() bool { return w.wrote(p, boot) })
	took := time.Since(begin)
	w.must(w.n2.PowerOn())
	w.must(w.n3.PowerOn())
	for _, n := range []*nodes.Node{w.n2, w.n3} {
		w.untilFree(n)
		w.must(n.WaitReady(w.t.Context()))
	}
	w.clear("", p)
	return "power on to its ordinary pods " + ms(took)
}

// uninstall, and the node is as it was before.
func (w *world) uninstall() string {
	// With its pods: one that is just being started after a boot would install the hook once more.
	w.kubectl("-n", hookName, "delete", "daemonset", hookName, "--cascade=foreground", "--wait")
	binary := filepath.Join(nodes.NRIPlugins, nri.PreInstalledIndex+"-"+nri.BaseName)
	w.until("the DaemonSet's plugin is gone", func() bool { return w.plugin(w.n2, nri.DaemonIndex) == 0 })
	run := func(script string) string {
		out, err := w.n2.Exec(w.t.Context(), "sh", "-c", script)
		w.must(err)
		return out
	}
	run("cp " + binary + " /tmp/hook")
	if out := run("/tmp/hook uninstall --node-name n2"); !strings.Contains(out, "still requires the plugin") {
		w.t.Errorf("uninstall does not say that the runtime has to restart:\n%s", out)
	}
	w.must(w.n2.RestartContainerd())
	w.must(w.n2.WaitContainerd(w.t.Context()))
	out := run("/tmp/hook uninstall --node-name n2")
	// /etc/forcefence is the lab's own; logs of the DaemonSet's containers are the kubelet's.
	left := run(
		`find /opt /etc /var/log /run -xdev -iname '*forcefence*' ! -path '/run/containerd/*' ! -path /etc/forcefence \
		! -path '/var/log/pods/*' ! -path '/var/log/containers/*'
		ls -d ` + nri.DefaultDataDir + ` 2>/dev/null || true`)
	if left != "" {
		w.t.Errorf("uninstall printed %q and left:\n%s", out, left)
	}
	if g := w.guardOf(w.n2); g != "" {
		w.t.Errorf("the Node still says %s", g)
	}
	p := w.running(w.create(w.pod("after15", on(w.n2))).Name, "")
	w.clear("", p)
	return ""
}

// taint is kubectl's: a person's mark.
func (w *world) taint(n *nodes.Node) {
	w.t.Helper()
	w.kubectl("taint", "node", n.Name(), taint.DefaultKey+"=manual:NoSchedule")
}

// restarted reports whether the pod is another one, was ended, or had a container restarted.
func (w *world) restarted(p *corev1.Pod) bool {
	w.t.Helper()
	now, err := w.c.Client().CoreV1().Pods(w.ns).Get(w.t.Context(), p.Name, metav1.GetOptions{})
	if err != nil || now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase == corev1.PodFailed {
		return true
	}
	for _, s := range now.Status.ContainerStatuses {
		if s.RestartCount != 0 {
			return true
		}
	}
	return false
}

func (w *world) untouched(p *corev1.Pod) {
	w.t.Helper()
	if w.restarted(p) {
		kit.Harm(w.t, "pod %s was ended or restarted", p.Name)
	}
	n := w.count(p.Name)
	w.until(p.Name+" writes on", func() bool { return w.count(p.Name) > n })
}

// stopDaemon takes the DaemonSet's plugin from n3, and startDaemon gives it back.
func (w *world) stopDaemon() {
	w.t.Helper()
	w.kubectl("-n", hookName, "patch", "daemonset", hookName, "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"nodeSelector":{"hook":"yes"}}},`+
			`"updateStrategy":{"rollingUpdate":{"maxUnavailable":"100%"}}}}`)
	w.until("the DaemonSet's plugin of n3 is gone", func() bool { return w.plugin(w.n3, nri.DaemonIndex) == 0 })
}

func (w *world) startDaemon() {
	w.t.Helper()
	w.kubectl("-n", hookName, "patch", "daemonset", hookName, "--type=json", "-p",
		`[{"op":"remove","path":"/spec/template/spec/nodeSelector/hook"}]`)
	w.untilRegistered(w.n3, nri.DaemonIndex)
}

// whole gives n3 both plugins back: the runtime starts its own when it starts.
func (w *world) whole() {
	w.t.Helper()
	if !w.registered(w.n3, nri.PreInstalledIndex) {
		w.must(w.n3.RestartContainerd())
	}
	w.untilRegistered(w.n3, nri.PreInstalledIndex, nri.DaemonIndex)
	w.must(w.n3.WaitReady(w.t.Context()))
	w.until("n3 is fail-closed", func() bool { return w.guardOf(w.n3) == "FailClosed" })
}

// clear deletes what a scenario made.
func (w *world) clear(set string, pods ...*corev1.Pod) {
	w.t.Helper()
	if set != "" {
		w.kubectl("-n", w.ns, "delete", "statefulset", set, "--cascade=foreground", "--wait")
		w.untilDetached()
	}
	for _, p := range pods {
		w.kubectl("-n", w.ns, "delete", "pod", p.Name, "--wait", "--ignore-not-found")
	}
}

// untilDetached waits until no volume is attached.
func (w *world) untilDetached() {
	w.t.Helper()
	w.until("nothing is attached", func() bool {
		list, err := w.c.Client().StorageV1().VolumeAttachments().List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
		return len(list.Items) == 0
	})
}

// forget deletes Events about nodes, so that the next scenario sees its own.
func (w *world) forget(reason string) {
	w.t.Helper()
	w.kubectl("-n", "default", "delete", "events", "--field-selector", "reason="+reason)
}

// shown checks that docs/runbook.md shows the Event as it is, from those words on.
func (w *world) shown(event, from string) {
	w.t.Helper()
	at := strings.Index(event, from)
	if at < 0 {
		w.t.Fatalf("no such Event: %q", event)
	}
	text := strings.ReplaceAll(strings.TrimSpace(event[at:]), "node n1:", "node n3:")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	w.must(err)
	if !strings.Contains(string(page), text+"`") {
		w.t.Errorf("docs/runbook.md does not have the text of this Event: %s", text)
	}
}
