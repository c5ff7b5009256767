package install

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/kubelet-admit/runtimes"
	"github.com/forcefence/forcefence/test/kit"
)

// platform is a host as its distribution makes it, by the distribution's own sources. @ is the host's root.
type platform struct {
	name     string
	node     runtimes.NodeInfo
	kubelet  string // its command line
	runtime  string // the runtime's
	beside   []string
	files    map[string]string
	links    map[string]string
	mounts   string   // more lines of /proc/self/mountinfo
	lost     []string // folders that a boot empties, beside /run
	readOnly []string
	noexec   []string
	pods     []corev1.Pod
	more     bool // than the Node's own words promise; their reason says how

	open, required Level  // after a boot, without and with --required-plugins
	tested         string // by what else than this
}

const (
	nriOff   = "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"
	packages = "version = 3\nimports = ['@/etc/containerd/conf.d/*.toml']\n"
	kubeadm  = "/usr/bin/kubelet --kubeconfig=@/etc/kubernetes/kubelet.conf --config=@/var/lib/kubelet/config.yaml"
	daemon   = "/usr/bin/containerd --config @/etc/containerd/config.toml"
	ubuntu   = "Ubuntu 24.04.3 LTS"
	rke2Data = "@/var/lib/rancher/rke2"
	rke2     = "kubelet --kubeconfig=" + rke2Data + "/agent/kubelet.kubeconfig " +
		"--config-dir=" + rke2Data + "/agent/etc/kubelet.conf.d"
	kops          = "/usr/local/bin/kubelet --kubeconfig=@/var/lib/kubelet/kubeconfig"
	kopsDaemon    = "/usr/bin/containerd --config=@/etc/containerd/config-kops.toml"
	talos         = "/usr/local/bin/kubelet --kubeconfig=@/etc/kubernetes/kubeconfig-kubelet"
	talosDaemon   = "/bin/containerd --address /run/containerd/containerd.sock --config @/etc/cri/containerd.toml"
	talosSystem   = "/bin/containerd --address /system/run/containerd/containerd.sock"
	talosConfig   = "version = 3\nimports = ['@/etc/cri/conf.d/*.toml']\n"
	talosRequires = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n" +
		"required_plugins = ['forcefence']\ntolerate_missing_plugins_annotation = '" + TolerateAnnotation + "'\n"
	crioDaemon = "/usr/bin/crio --config @/etc/crio/crio.conf --config-dir @/etc/crio/crio.conf.d"
	openShift  = "/usr/bin/kubelet --config=@/etc/kubernetes/kubelet.conf --kubeconfig=@/var/lib/kubelet/kubeconfig " +
		"--container-runtime-endpoint=/var/run/crio/crio.sock"
	rke2Start = "containerd -c " + rke2Data + "/agent/etc/containerd/config.toml"
)

// rke2Files are RKE2's, with a socket that its drop-in of the kubelet names.
var rke2Files = map[string]string{
	rke2Data + "/bin/containerd": "x",
	rke2Data + "/agent/etc/kubelet.conf.d/00-rke2-defaults.conf": "containerRuntimeEndpoint: " +
		"unix:///run/k3s/containerd/containerd.sock\n",
	rke2Data + "/agent/etc/containerd/config.toml": "version = 3\nimports = ['" + rke2Data +
		"/agent/etc/containerd/config-v3.toml.d/*.toml']\n[grpc]\naddress = '/run/k3s/containerd/containerd.sock'\n",
}

// overlayMount is a mountinfo line of an overlay that writes to upper.
func overlayMount(folder, upper string) string {
	return "40 22 0:40 / @" + folder + " rw - overlay overlay rw,lowerdir=/x,upperdir=@" + upper + ",workdir=/w\n"
}

func tmpfsMount(folder string) string { return "41 22 0:41 / @" + folder + " rw - tmpfs tmpfs rw\n" }

var platforms = []platform{
	{name: "kubeadm, containerd 2.4", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.4.2"},
		kubelet: kubeadm, runtime: daemon,
		files: map[string]string{"@/etc/containerd/config.toml": packages,
			"@/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\n"},
		open: FailOpen, required: FailClosed, tested: "real runtime, e2e"},
	{name: "kubeadm, containerd 1.7.24 (Debian 13)", node: runtimes.NodeInfo{OSImage: "Debian GNU/Linux 13 (trixie)",
		Runtime: "containerd://1.7.24~ds1"}, kubelet: kubeadm, runtime: daemon,
		files: map[string]string{"@/etc/containerd/config.toml": packages},
		open:  NotAtBoot, required: NotAtBoot, tested: "real runtime"},
	{name: "kubespray, containerd", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.2.1"},
		kubelet: kubeadm, runtime: daemon, files: map[string]string{"@/etc/containerd/config.toml": "version = 3\n"},
		open: FailOpen, required: FailOpen},
	{name: "kubespray, CRI-O", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "cri-o://1.34.2"},
		kubelet: kubeadm + " --container-runtime-endpoint=unix:///var/run/crio/crio.sock",
		runtime: crioDaemon,
		files:   map[string]string{"@/etc/crio/crio.conf": "[crio.nri]\nenable_nri = false\n"},
		open:    None, required: None},
	{name: "kOps", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.1.4"}, kubelet: kops,
		runtime: kopsDaemon,
		files:   map[string]string{"@/etc/containerd/config-kops.toml": nriOff}, open: None, required: None},
	{name: "kOps with its NRI on", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.1.4"},
		kubelet: kops, runtime: kopsDaemon,
		files: map[string]string{"@/etc/containerd/config-kops.toml": "version = 3\n"},
		open:  FailOpen, required: FailOpen},
	{name: "k3s of 2026", node: runtimes.NodeInfo{KubeletVersion: "v1.36.1+k3s1", OSImage: ubuntu,
		Runtime: "containerd://2.3.1-k3s1"}, kubelet: "/usr/local/bin/k3s server", runtime: "containerd -c " +
		"@/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		files: map[string]string{"@/var/lib/rancher/k3s/data/current/bin/containerd": "x",
			"@/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\nimports = " +
				"['@/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml']\n"},
		open: FailOpen, required: FailClosed},
	{name: "RKE2 1.36, agents", node: runtimes.NodeInfo{KubeletVersion: "v1.36.4+rke2r1", OSImage: ubuntu,
		Runtime: "containerd://2.3.1-k3s1"}, kubelet: rke2, runtime: rke2Start, files: rke2Files,
		more: true, open: FailOpen, required: FailClosed},
	{name: "RKE2 1.36, servers", node: runtimes.NodeInfo{KubeletVersion: "v1.36.4+rke2r1", OSImage: ubuntu,
		Runtime: "containerd://2.3.1-k3s1"}, kubelet: rke2, runtime: rke2Start, files: rke2Files,
		pods: []corev1.Pod{pod("etcd", func(p *corev1.Pod) { p.Annotations["kubernetes.io/config.mirror"] = "x" })},
		open: FailOpen, required: FailOpen},
	{name: "RKE2 1.34", node: runtimes.NodeInfo{KubeletVersion: "v1.34.5+rke2r1", OSImage: ubuntu,
		Runtime: "containerd://2.1.5-k3s1"}, kubelet: rke2, runtime: rke2Start, files: rke2Files,
		open: FailOpen, required: FailOpen},
	{name: "k0s", node: runtimes.NodeInfo{KubeletVersion: "v1.36.1+k0s", OSImage: ubuntu,
		Runtime: "containerd://2.2.1"},
		kubelet: "@/var/lib/k0s/bin/kubelet --kubeconfig=@/var/lib/k0s/kubelet.conf " +
			"--container-runtime-endpoint=unix:///run/k0s/containerd.sock",
		runtime: "@/var/lib/k0s/bin/containerd --address=/run/k0s/containerd.sock --config=@/etc/k0s/containerd.toml",
		files: map[string]string{"@/etc/k0s/containerd.toml": "version = 3\nimports = " +
			"['@/etc/k0s/containerd.d/*.toml']\n"},
		open: FailOpen, required: FailClosed},
	{name: "MicroK8s", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.2.3"},
		kubelet: "/snap/microk8s/8/kubelite --kubelet-args-file=@/var/snap/microk8s/8/args/kubelet",
		runtime: "/snap/microk8s/8/bin/containerd --config @/var/snap/microk8s/8/args/containerd.toml --address " +
			"@/var/snap/microk8s/common/run/containerd.sock",
		files: map[string]string{"@/var/snap/microk8s/8/args/containerd.toml": "version = 3\n",
			"@/var/snap/microk8s/8/args/kubelet": "--kubeconfig=${SNAP_DATA}/credentials/kubelet.config\n" +
				"--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock\n"},
		open: FailOpen, required: FailOpen},
	{name: "Talos 1.13", node: runtimes.NodeInfo{OSImage: "Talos (v1.13.2)", Runtime: "containerd://2.2.1"},
		kubelet: talos, runtime: talosDaemon, beside: []string{talosSystem},
		files:  map[string]string{"@/etc/cri/containerd.toml": nriOff},
		mounts: overlayMount("/opt", "/var/opt"), readOnly: []string{"etc"}, open: None, required: None},
	{name: "Talos 1.14", node: runtimes.NodeInfo{OSImage: "Talos (v1.14.0)", Runtime: "containerd://2.3.1"},
		kubelet: talos, runtime: talosDaemon, beside: []string{talosSystem},
		files:  map[string]string{"@/etc/cri/containerd.toml": talosConfig},
		mounts: overlayMount("/opt", "/var/opt"), readOnly: []string{"etc"}, open: FailOpen, required: FailOpen},
	{name: "Talos 1.14 whose own configuration requires the hook", node: runtimes.NodeInfo{OSImage: "Talos (v1.14.0)",
		Runtime: "containerd://2.3.1"}, kubelet: talos, runtime: talosDaemon, beside: []string{talosSystem},
		files: map[string]string{"@/etc/cri/containerd.toml": talosConfig,
			"@/etc/cri/conf.d/20-customization.toml": talosRequires},
		mounts: overlayMount("/opt", "/var/opt"), readOnly: []string{"etc"}, more: true,
		open: FailClosed, required: FailClosed},
	{name: "Flatcar", node: runtimes.NodeInfo{OSImage: "Flatcar Container Linux by Kinvolk 4459.2.0 (Oklo)",
		Runtime: "containerd://2.2.1"}, kubelet: kubeadm,
		runtime:  "/usr/bin/containerd --config @/usr/share/containerd/config.toml",
		files:    map[string]string{"@/usr/share/containerd/config.toml": "version = 3\n"},
		readOnly: []string{"usr"}, open: FailOpen, required: FailOpen},
	{name: "Bottlerocket, Kubernetes 1.32", node: runtimes.NodeInfo{OSImage: "Bottlerocket OS 1.50.0 (aws-k8s-1.32)",
		Runtime: "containerd://2.1.4"}, kubelet: "/usr/bin/kubelet --kubeconfig @/etc/kubernetes/kubelet/kubeconfig",
		runtime: daemon, beside: []string{"/usr/bin/containerd --config @/etc/host-containerd/config.toml"},
		files: map[string]string{"@/etc/containerd/config.toml": nriOff,
			"@/etc/host-containerd/config.toml": "[grpc]\naddress = '/run/host-containerd/containerd.sock'\n"},
		mounts: tmpfsMount("/etc"), lost: []string{"etc"}, open: None, required: None},
	{name: "Bottlerocket, Kubernetes 1.33 and later", node: runtimes.NodeInfo{
		OSImage: "Bottlerocket OS 1.50.0 (aws-k8s-1.35)", Runtime: "containerd://2.2.1"},
		kubelet: "/usr/bin/kubelet --kubeconfig @/etc/kubernetes/kubelet/kubeconfig", runtime: daemon,
		beside: []string{"/usr/bin/containerd --config @/etc/host-containerd/config.toml"},
		files: map[string]string{"@/etc/containerd/config.toml": "version = 3\n",
			"@/etc/host-containerd/config.toml": "[grpc]\naddress = '/run/host-containerd/containerd.sock'\n"},
		mounts: tmpfsMount("/etc"), lost: []string{"etc"}, open: FailOpen, required: FailOpen},
	{name: "EKS AL2023", node: runtimes.NodeInfo{OSImage: "Amazon Linux 2023.9.20260101",
		Runtime: "containerd://2.2.1"},
		kubelet: "/usr/bin/kubelet --kubeconfig=@/var/lib/kubelet/kubeconfig " +
			"--config=@/etc/kubernetes/kubelet/config.json", runtime: daemon,
		files: map[string]string{"@/etc/containerd/config.toml": "version = 3\nimports = []\n",
			"@/etc/kubernetes/kubelet/config.json": `{"containerRuntimeEndpoint": "/run/containerd/containerd.sock"}`,
		},
		open: FailOpen, required: FailOpen},
	{name: "GKE, Container-Optimized OS", node: runtimes.NodeInfo{OSImage: "Container-Optimized OS from Google",
		Runtime: "containerd://2.1.4"}, kubelet: kops,
		runtime: daemon, files: map[string]string{"@/etc/containerd/config.toml": "version = 3\n"},
		mounts: tmpfsMount("/etc"), lost: []string{"etc"}, readOnly: []string{"opt", "usr"},
		noexec: []string{"var", "home"},
		open:   NotAtBoot, required: NotAtBoot},
	{name: "OpenShift with CRI-O 1.34", node: runtimes.NodeInfo{
		OSImage: "Red Hat Enterprise Linux CoreOS 9.6.20260101-0",
		Runtime: "cri-o://1.34.2"}, kubelet: openShift, runtime: crioDaemon,
		files: map[string]string{"@/etc/crio/crio.conf": "[crio.nri]\n",
			"@/etc/kubernetes/kubelet.conf": "kind: KubeletConfiguration\n", "@/var/opt/README": "x"},
		links: map[string]string{"opt": "var/opt"}, open: FailOpen, required: FailClosed},
	{name: "OpenShift with CRI-O 1.31", node: runtimes.NodeInfo{
		OSImage: "Red Hat Enterprise Linux CoreOS 418.94.20260101-0",
		Runtime: "cri-o://1.31.4"}, kubelet: openShift, runtime: crioDaemon,
		files: map[string]string{"@/etc/crio/crio.conf": "[crio.nri]\nenable_nri = true\n", "@/var/opt/README": "x"},
		links: map[string]string{"opt": "var/opt"}, open: NotAtBoot, required: NotAtBoot},
	{name: "Harvester (RKE2 1.34)", node: runtimes.NodeInfo{KubeletVersion: "v1.34.5+rke2r1",
		OSImage: "Harvester v1.7.0", Runtime: "containerd://2.1.5-k3s1"},
		kubelet: rke2, runtime: rke2Start, files: rke2Files,
		mounts: overlayMount("/etc", "/run/overlay/etc"), lost: []string{"etc"}, open: FailOpen, required: FailOpen},
}

// otherHosts have folders in memory that no distribution of the table has there. The table leaves them out.
var otherHosts = []platform{
	{name: "drop-ins in memory", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.4.2"},
		kubelet: kubeadm, runtime: daemon, files: map[string]string{"@/etc/containerd/config.toml": packages},
		mounts: tmpfsMount("/etc"), lost: []string{"etc"}, open: FailOpen, required: FailOpen},
	{name: "plugins in memory", node: runtimes.NodeInfo{OSImage: ubuntu, Runtime: "containerd://2.4.2"},
		kubelet: kubeadm, runtime: daemon, files: map[string]string{"@/etc/containerd/config.toml": packages},
		mounts: tmpfsMount("/opt"), lost: []string{"opt"}, open: NotAtBoot, required: NotAtBoot},
}

// isBelow reports whether a path is in one of the host's folders.
func (l *lab) isBelow(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool {
		return path == l.path(dir) || strings.HasPrefix(path, l.path(dir)+"/")
	})
}

// newPlatformLab returns a host of the platform, on which the runtime runs.
func newPlatformLab(t *testing.T, p platform, dir string) *lab {
	l := newLabIn(t, dir)
	for _, dir := range []string{"etc", "proc/100"} {
		kit.Must(t, os.RemoveAll(l.path(dir)))
	}
	at := func(text string) string { return strings.ReplaceAll(text, "@", l.dir) }
	l.kubelet, l.daemon = strings.Fields(at(p.kubelet)), strings.Fields(at(p.runtime))
	for _, command := range p.beside {
		l.beside = append(l.beside, strings.Fields(at(command)))
	}
	_, l.version, _ = strings.Cut(p.node.Runtime, "://")
	for link, to := range p.links {
		kit.Must(t, os.MkdirAll(l.path(to), 0o755))
		kit.Must(t, os.Symlink(l.path(to), l.path(link)))
	}
	l.own = map[string]string{}
	for name, text := range p.files {
		l.own[strings.TrimPrefix(name, "@/")] = at(text)
	}
	l.writeOwn()
	l.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:23 / "+l.path("run")+
		" rw - tmpfs tmpfs rw\n"+at(p.mounts))
	l.opts.host.before = func(op, path string) error {
		if l.isBelow(path, p.readOnly) {
			return syscall.EROFS
		}
		return nil
	}
	l.runs = func(program string) error {
		if l.isBelow(program, p.noexec) {
			return syscall.EACCES
		}
		return nil
	}
	l.pods = p.pods
	l.start(100)
	return l
}

// rebootHost empties the folders that a boot loses, and starts the runtime.
func (l *lab) rebootHost(lost ...string) {
	l.t.Helper()
	for _, dir := range append(lost, "run") {
		kit.Must(l.t, os.RemoveAll(l.path(dir)))
	}
	l.writeOwn()
	l.boots++
	l.boot = fmt.Sprintf("boot-%d", l.boots+1)
	l.write("proc/sys/kernel/random/boot_id", l.boot+"\n")
	l.start(100)
}

// writeOwn writes the distribution's own files that are missing.
func (l *lab) writeOwn() {
	for name, text := range l.own {
		if _, err := os.Stat(l.path(name)); err != nil {
			l.write(name, text)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the table of docs/reference/distributions.md from the platforms")

// TestPlatforms installs on each platform, boots it twice, and uninstalls. The protection that is reported before a
// boot holds after it, and nothing is left in the end. What a Node says of itself promises no more than this. The
// table of docs/reference/distributions.md lists the results.
func TestPlatforms(t *testing.T) {
	table := "| distribution | protection | if you require the hook | reason | tested by |\n" +
		"| --- | --- | --- | --- | --- |\n"
	for i, p := range slices.Concat(platforms, otherHosts) {
		var rows [2]Protection
		t.Run(p.name, func(t *testing.T) {
			rows[0], rows[1] = playPlatform(t, p, false, p.open), playPlatform(t, p, true, p.required)
		})
		if i >= len(platforms) {
			continue
		}
		why := rows[1].Reason
		if rows[1].Level == FailOpen {
			why += " " + rows[1].Advice
		}
		table += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", p.name, rows[0].Level, rows[1].Level, why,
			strings.TrimSuffix("fixture, "+p.tested, ", "))
	}
	const file = "../../docs/reference/distributions.md"
	const begin, end = "<!-- begin: TestPlatforms -->\n", "<!-- end: TestPlatforms -->\n"
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	old, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q and %q", file, begin, end)
	}
	if diff := cmp.Diff(old, table); diff != "" && !*update {
		t.Errorf("%s differs (go test ./kubelet-admit/install -run TestPlatforms -update writes it; -file +result):\n"+
			"%s", file, diff)
	} else if *update {
		kit.Must(t, os.WriteFile(file, []byte(before+begin+table+end+after), 0o644))
	}
}

// playPlatform returns the protection after two boots.
func playPlatform(t *testing.T, p platform, required bool, want Level) Protection {
	l := newPlatformLab(t, p, kit.SocketDir(t))
	l.opts.RequiredPlugins = required
	before := l.tree(false)
	r := l.mustInstall()
	for i := range 2 {
		l.start(300) // it reads all that was installed
		promised := assessProtection(l.facts())
		l.rebootHost(p.lost...)
		_, err := os.Stat(l.path("opt/nri/plugins/" + PluginFile))
		if starts := err == nil; starts != (promised.Level == FailOpen || promised.Level == FailClosed) {
			t.Errorf("before boot %d: %+v, after it the runtime starts the plugin: %v", i, promised, starts)
		}
		if f := l.facts(); promised.Level == FailClosed && !f.NRI.requiresUs() {
			t.Errorf("before boot %d: %+v, after it the runtime does not require the plugin", i, promised)
		}
		r = l.mustInstall()
	}
	got := r.Protection
	if got.Level != want {
		t.Errorf("required %v: got %+v, want %s; warned %q", required, got, want, r.Warnings)
	}
	if want != None && r.AfterBoot == "" ||
		want == NotAtBoot && !strings.Contains(r.AfterBoot, "only the DaemonSet's") {
		t.Errorf("required %v: after a boot: %q", required, r.AfterBoot)
	}
	forecast := map[runtimes.Hook]Level{runtimes.NoHook: None, runtimes.NRIOff: None, runtimes.NotAtBoot: NotAtBoot,
		runtimes.FailsOpen: FailOpen, runtimes.Required: FailClosed}[runtimes.ForecastOf(p.node).Hook]
	levels := []Level{None, NotAtBoot, FailOpen, FailClosed}
	if more := slices.Index(levels, got.Level) > slices.Index(levels, forecast); required && more != p.more {
		t.Errorf("got %s, but the Node's own words promise %s at most", got.Level, forecast)
	}
	l.opts.RestartRuntime = true
	l.uninstall()
	l.rebootHost(p.lost...)
	if diff := cmp.Diff(before, l.tree(false)); diff != "" {
		t.Errorf("an uninstall leaves (-before +after):\n%s", diff)
	}
	got.Reason, got.Advice = strings.ReplaceAll(got.Reason, l.dir, ""), strings.ReplaceAll(got.Advice, l.dir, "")
	return got
}
