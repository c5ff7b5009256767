package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/kit"
)

// hostOf returns the processes of a host with systemd, from lines of "unit/pid/parent command line".
func hostOf(lines ...string) []hostProcess {
	all := []hostProcess{{process: process{PID: 1}, argv: []string{"/sbin/init"}, uids: "0 0 0 0", depth: 1,
		cgroup: "0::/init.scope\n"}}
	for i, line := range lines {
		unit, command, _ := strings.Cut(line, " ")
		p := hostProcess{process: process{PID: 10 + i}, parent: 1, argv: strings.Split(command, " "), uids: "0 0 0 0",
			depth: 1, cgroup: "0::/system.slice/" + unit + ".service\n"}
		if strings.HasPrefix(command, "containerd ") { // where the kubelet's program starts it
			p.parent = p.PID - 1
		}
		all = append(all, p)
	}
	return all
}

func fileOf(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// TestFindSite finds the runtime by the command lines of hosts as their distributions start them (docs/platforms.md).
func TestFindSite(t *testing.T) {
	packaged := Site{Runtime: containerd, Program: "/usr/bin/containerd", Config: "/etc/containerd/config.toml",
		ConfDir: "/etc/containerd/conf.d", Unit: "containerd", Kubeconfig: "/etc/kubernetes/kubelet.conf",
		processes: []process{{PID: 11}}}
	with := func(change func(*Site)) Site {
		s := packaged
		change(&s)
		return s
	}
	const kubeadm = "kubelet /usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf " +
		"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"
	const daemon = "containerd /usr/bin/containerd"
	const rke2 = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"
	for _, tc := range []struct {
		name    string
		ps      []hostProcess
		files   fstest.MapFS
		command string
		want    Site
		missing string // in the error; "": none
	}{
		{"kubeadm", hostOf(kubeadm, daemon), fstest.MapFS{
			"var/lib/kubelet/config.yaml": fileOf("containerRuntimeEndpoint: /var/run/containerd/containerd.sock\n"),
			"etc/containerd/config.toml":  fileOf("version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"),
		}, "", packaged, ""},
		{"the endpoint is the kubelet's default, the program in PATH",
			hostOf("kubelet /usr/bin/kubelet --kubeconfig /etc/kubernetes/kubelet.conf", "c containerd -l debug"),
			nil, "", with(func(s *Site) { s.Program, s.Unit = "containerd", "c" }), ""},
		{"the kubelet's drop-ins win over its configuration, and its command line over both",
			hostOf(kubeadm+" --config-dir=/etc/kubelet.d", daemon, "crio /usr/bin/crio"), fstest.MapFS{
				"var/lib/kubelet/config.yaml": fileOf("containerRuntimeEndpoint: /a.sock\n"),
				"etc/kubelet.d/10-a.conf":     fileOf("containerRuntimeEndpoint: /b.sock\n"),
				"etc/kubelet.d/20-b.conf":     fileOf("containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n"),
				"etc/kubelet.d/30-c.conf":     fileOf("maxPods: 7\n"),
				"etc/kubelet.d/40-d.txt":      fileOf("containerRuntimeEndpoint: /d.sock\n"),
			}, "", with(func(s *Site) {
				s.Runtime, s.Program, s.Config, s.ConfDir, s.Unit = crio, "/usr/bin/crio", "/etc/crio/crio.conf",
					"/etc/crio/crio.conf.d", "crio"
				s.processes = []process{{PID: 12}}
			}), ""},
		{"OpenShift: /etc/kubernetes/kubelet.conf is no kubeconfig", hostOf("kubelet /usr/bin/kubelet "+
			"--config=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig "+
			"--kubeconfig=/var/lib/kubelet/kubeconfig --container-runtime-endpoint=/var/run/crio/crio.sock",
			"crio /usr/bin/crio"), nil, "", Site{Runtime: crio,
			Program: "/usr/bin/crio", Config: "/etc/crio/crio.conf", ConfDir: "/etc/crio/crio.conf.d", Unit: "crio",
			Kubeconfig: "/var/lib/kubelet/kubeconfig", processes: []process{{PID: 11}}}, ""},
		{"RKE2 starts the kubelet, and containerd by its name", hostOf("rke2-agent kubelet "+
			"--config-dir=/var/lib/rancher/rke2/agent/etc/kubelet.conf.d "+
			"--kubeconfig=/var/lib/rancher/rke2/agent/kubelet.kubeconfig "+
			"--container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock",
			"rke2-agent containerd -c "+rke2), fstest.MapFS{
			rke2[1:]:                              fileOf("[grpc]\naddress = '/run/k3s/containerd/containerd.sock'\n"),
			"var/lib/rancher/rke2/bin/containerd": fileOf("x"),
		}, "", Site{Runtime: containerd, Program: "/var/lib/rancher/rke2/bin/containerd", Config: rke2,
			ConfDir: "/var/lib/rancher/rke2/agent/etc/containerd/conf.d", Unit: "rke2-agent",
			Kubeconfig: "/var/lib/rancher/rke2/agent/kubelet.kubeconfig", processes: []process{{PID: 11}}}, ""},
		{"k3s in another folder hides its arguments", hostOf("k3s-agent /usr/local/bin/k3s agent",
			"k3s-agent containerd -c /data/k3s/agent/etc/containerd/config.toml", daemon,
			"user /usr/local/bin/k3s kubectl"), fstest.MapFS{
			"data/k3s/agent/etc/containerd/config.toml": fileOf("imports = ['/data/k3s/agent/etc/containerd/" +
				"config-v3.toml.d/*.toml']\n"),
			"data/k3s/data/current/bin/containerd": fileOf("x"),
		}, "", Site{Runtime: containerd, Program: "/data/k3s/data/current/bin/containerd",
			Config:  "/data/k3s/agent/etc/containerd/config.toml",
			ConfDir: "/data/k3s/agent/etc/containerd/config-v3.toml.d", Unit: "k3s-agent",
			Kubeconfig: "/data/k3s/agent/kubelet.kubeconfig", processes: []process{{PID: 11}}}, ""},
		{"k3s with the host's own containerd", hostOf("k3s /usr/local/bin/k3s server", daemon), nil, "",
			with(func(s *Site) { s.Kubeconfig = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig" }), ""},
		{"MicroK8s: kubelite reads the kubelet's arguments from a file", hostOf(
			"kubelite /snap/microk8s/8/kubelite --kubelet-args-file=/var/snap/microk8s/8/args/kubelet",
			"snap.microk8s.daemon-containerd /snap/microk8s/8/bin/containerd --config "+
				"/var/snap/microk8s/8/args/containerd.toml --address /var/snap/microk8s/common/run/containerd.sock",
			daemon), fstest.MapFS{
			"var/snap/microk8s/8/args/kubelet": fileOf("--kubeconfig=${SNAP_DATA}/credentials/kubelet.config\n" +
				"--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock\n"),
		}, "", Site{Runtime: containerd, Program: "/snap/microk8s/8/bin/containerd",
			Config: "/var/snap/microk8s/8/args/containerd.toml", ConfDir: "/var/snap/microk8s/8/args/conf.d",
			Unit:       "snap.microk8s.daemon-containerd",
			Kubeconfig: "/var/snap/microk8s/8/credentials/kubelet.config", processes: []process{{PID: 11}}}, ""},
		{"Talos: of two containerds the one that serves the kubelet", hostOf("init /usr/local/bin/kubelet "+
			"--kubeconfig=/etc/kubernetes/kubeconfig-kubelet "+
			"--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
			"init /bin/containerd --address /system/run/containerd/containerd.sock --root /system/var/lib/containerd",
			"init /bin/containerd --address /run/containerd/containerd.sock --config /etc/cri/containerd.toml"),
			nil, "", Site{Runtime: containerd, Program: "/bin/containerd",
				Config: "/etc/cri/containerd.toml", ConfDir: "/etc/cri/conf.d", Unit: "init",
				Kubeconfig: "/etc/kubernetes/kubeconfig-kubelet", processes: []process{{PID: 12}}}, ""},
		{"a socket in version 4 of containerd's configuration", hostOf(
			"k /k/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --container-runtime-endpoint=/x.sock",
			daemon, "docker containerd --config /run/docker/containerd.toml"), fstest.MapFS{
			"etc/containerd/config.toml": fileOf("[plugins.'io.containerd.server.v1.grpc']\naddress = '/x.sock'\n"),
		}, "", packaged, ""},
		{"beside what people and shims run", hostOf(kubeadm, daemon, "x /usr/bin/containerd config dump",
			"x /usr/bin/containerd --address /run/containerd/containerd.sock publish --topic t"),
			nil, "", packaged, ""},
		{"both of a restart", hostOf(kubeadm, daemon, daemon), nil, "",
			with(func(s *Site) { s.processes = []process{{PID: 11}, {PID: 12}} }), ""},
		{"Docker serves the kubelet", hostOf("k /k/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf "+
			"--container-runtime-endpoint=unix:///run/cri-dockerd.sock", daemon), nil, "",
			Site{Kubeconfig: packaged.Kubeconfig}, "serves the kubelet's endpoint /run/cri-dockerd"},
		{"no runtime", hostOf(kubeadm), nil, "", Site{Kubeconfig: packaged.Kubeconfig}, "neither containerd nor CRI-O"},
		{"no kubelet", hostOf("x /bin/sh", daemon), nil, "",
			with(func(s *Site) { s.Kubeconfig = "" }), "no process of this host is its kubelet"},
		{"no kubelet, two runtimes", hostOf(daemon, "crio /usr/bin/crio"), nil, "", Site{},
			"processes 10 and 11 both are container runtimes"},
		{"two kubelets", hostOf(kubeadm, kubeadm, daemon), nil, "", with(func(s *Site) {
			s.Kubeconfig, s.processes = "", []process{{PID: 12}}
		}), "processes 10 and 11 both are kubelets"},
		{"a kubelet without a kubeconfig", hostOf("k /k/kubelet", daemon), nil, "",
			with(func(s *Site) { s.Kubeconfig = "" }), "has no --kubeconfig"},
		{"no process is shown", nil, nil, "", Site{}, "mount the host's /proc"},
		{"the runtime's command line is named", hostOf(kubeadm, "c /usr/bin/crio", daemon), nil,
			"/opt/bin/containerd -c /etc/c.toml", with(func(s *Site) {
				s.Program, s.Config, s.ConfDir = "/opt/bin/containerd", "/etc/c.toml", "/etc/conf.d"
				s.processes = []process{{PID: 12}}
			}), ""},
		{"another program is named", hostOf(kubeadm, daemon), nil, "dockerd", Site{Kubeconfig: packaged.Kubeconfig},
			"neither containerd nor crio"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := findSite(slices.Values(tc.ps), tc.files, tc.command)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Site{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if (err == nil) != (tc.missing == "") || err != nil && !strings.Contains(err.Error(), tc.missing) {
				t.Errorf("got error %v, want %q", err, tc.missing)
			}
		})
	}
}

// TestProgramOf finds the program beside the executable, where that is shown: k3s' containerd is a link to k3s.
func TestProgramOf(t *testing.T) {
	ps := hostOf("k /k/kubelet --kubeconfig=/k", "containerd /usr/bin/containerd")
	ps[2].exe = "/data/0123/bin/k3s (deleted)"
	s, err := findSite(slices.Values(ps), fstest.MapFS{"data/0123/bin/containerd": fileOf("x"),
		"usr/bin/containerd": fileOf("x")}, "")
	if err != nil || s.Program != "/data/0123/bin/containerd" {
		t.Errorf("got %q, %v", s.Program, err)
	}
}

// TestFindTrustsTheHost lets another process call itself the kubelet: it is never the one that is found.
func TestFindTrustsTheHost(t *testing.T) {
	const inPod = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope\n"
	for _, tc := range []struct {
		name   string
		change func(host, other *hostProcess, init *hostProcess)
	}{
		{"of another user", func(_, p, _ *hostProcess) { p.uids = "0 1000 0 0" }},
		{"of a user that is not known", func(_, p, _ *hostProcess) { p.uids = "" }},
		{"in a pid namespace of its own", func(_, p, _ *hostProcess) { p.depth = 2 }},
		{"in a pid namespace that is not known", func(_, p, _ *hostProcess) { p.depth = 0 }},
		{"in a pod", func(_, p, _ *hostProcess) { p.cgroup = inPod }},
		{"in a pod, with cgroups of version 1", func(_, p, _ *hostProcess) {
			p.cgroup = "5:memory:/\n4:cpu:/kubepods/burstable/pod1/a\n0::/\n"
		}},
		{"in a pod of a host that is a pod itself", func(host, p, init *hostProcess) {
			init.cgroup, host.cgroup = "0::/kubepods/pod0/init", "0::/kubepods/pod0/kubelet"
			p.cgroup = "0::/kubepods/pod0/kubepods/pod1/a"
		}},
		{"in a cgroup that is not known", func(_, p, _ *hostProcess) { p.cgroup = "" }},
		// As a reader in the pod /kubepods/pod2/b sees it, in a cgroup namespace of its own.
		{"in another pod", func(host, p, init *hostProcess) {
			init.cgroup, host.cgroup, p.cgroup = "0::/../../../init", "0::/../../../kubelet\n", "0::/../../pod1/a\n"
		}},
		{"in the same pod", func(host, p, init *hostProcess) {
			init.cgroup, host.cgroup, p.cgroup = "0::/../../../init", "0::/../../../kubelet\n", "0::/../c\n"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ps := hostOf("k /k/kubelet --kubeconfig=/host's", "k /k/kubelet --kubeconfig=/evil",
				"c /usr/bin/containerd")
			tc.change(&ps[1], &ps[2], &ps[0])
			ps[3].cgroup = ps[1].cgroup
			for range 2 {
				s, err := findSite(slices.Values(ps), fstest.MapFS{}, "")
				if err != nil || s.Kubeconfig != "/host's" {
					t.Errorf("got %q, %v; want the host's", s.Kubeconfig, err)
				}
				ps[1], ps[2] = ps[2], ps[1]
			}
		})
	}
}

// TestFindBoundsFiles lets command lines name files that are too large, and none at all.
func TestFindBoundsFiles(t *testing.T) {
	large := strings.Repeat("#\n", fileBound/2) + "containerRuntimeEndpoint: /x.sock\n"
	ps := hostOf("k /k/kubelet --kubeconfig=/k --config=/large --config-dir=/d", "c /usr/bin/containerd --config=/d")
	s, err := findSite(slices.Values(ps), fstest.MapFS{"large": fileOf(large), "d/x.conf/y": fileOf("x")}, "")
	if err != nil || s.Runtime != containerd {
		t.Errorf("got %+v, %v; want the default endpoint's, as the file's end is not read", s, err)
	}
}

func FuzzFindSite(f *testing.F) {
	f.Add("k /k/kubelet --kubeconfig=/k", "c containerd -c", "0::/a.service", "x")
	f.Add("k k3s server", "c crio --config-dir", "::", "containerd")
	f.Add("k kubelite --kubelet-args-file", "c containerd --config=../..", "0::/../..//.service", "/")
	f.Fuzz(func(t *testing.T, a, b, cgroup, command string) {
		ps := hostOf(a, b)
		ps[2].cgroup = cgroup
		s, err := findSite(slices.Values(ps), fstest.MapFS{"k": fileOf(a)}, command)
		if err == nil && (s.Runtime == "" || s.Program == "" || s.Config == "" || s.ConfDir == "" || s.Unit == "" ||
			s.Kubeconfig == "") {
			t.Errorf("got %+v without an error", s)
		}
	})
}

// TestHostProcesses reads real processes that call themselves the kubelet: one of this host's, and one in a pid
// namespace of its own, as a container's is.
func TestHostProcesses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root's processes count, and a pid namespace needs root")
	}
	start := func(flags uintptr) int {
		cmd := exec.Command("/bin/sleep", "60")
		name := fmt.Sprintf("/forcefence-test-%d/kubelet", os.Getpid()) // others' tests may run beside this one
		cmd.Args = []string{name, "60"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		kit.Must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd.Process.Pid
	}
	own, contained := start(0), start(syscall.CLONE_NEWPID)
	seen, init := map[int]hostProcess{}, ""
	kit.Until(t, "both have command lines: the kernel writes them some time after the program begins", func() bool {
		for p := range (Host{}).hostProcesses() {
			if p.PID == 1 {
				init = p.cgroup
			}
			seen[p.PID] = p
		}
		return seen[own].PID != 0 && seen[contained].PID != 0
	})
	if p := seen[own]; !p.isHosts(init) || p.parent != os.Getpid() || filepath.Base(p.exe) != "sleep" || p.Start == 0 ||
		len(p.argv) != 2 {
		t.Errorf("the host's: got %+v, of the host: %v", p, p.isHosts(init))
	}
	if p := seen[contained]; p.name() != "kubelet" || p.depth != 2 || p.isHosts(init) {
		t.Errorf("the contained: got %+v, of the host: %v; want that it does not count", p, p.isHosts(init))
	}
	if _, other := seen[os.Getpid()]; other {
		t.Error("this test's own process was kept")
	}
}
