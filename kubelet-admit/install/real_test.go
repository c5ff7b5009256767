package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/forcefence/forcefence/kubelet-admit/runtimes"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
)

// realRuntime is a runtime that these tests start. They measure whether its version keeps what kinds promises of it.
type realRuntime struct {
	name    RuntimeName
	version string
	program func(testing.TB) (daemon, shim string)
	always  bool   // also without allRuntimes
	config  string // containerd's own head
	// earlier: its version says more than it is. The module proxy's CRI-O 1.34.0 is of May 2025 (binaries.CRIO).
	earlier string
}

// allRuntimes is the variable that, set to 1, has all versions of the runtimes started: `make runtimes` sets it.
const allRuntimes = "FORCEFENCE_ALL_RUNTIMES"

// realRuntimes returns the runtimes to start.
func realRuntimes(t *testing.T) []realRuntime {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a runtime needs root")
	}
	released := func(name string) func(testing.TB) (string, string) {
		return func(t testing.TB) (string, string) {
			daemon := cluster.ContainerdOf(t, name)
			return daemon, filepath.Join(filepath.Dir(daemon), binaries.ShimOf(name))
		}
	}
	newest := func(t testing.TB) (string, string) {
		daemon := cluster.Containerd(t)
		return daemon, filepath.Join(filepath.Dir(daemon), binaries.Shim)
	}
	const v2 = `version = 2
plugins.'io.containerd.grpc.v1.cri'.sandbox_image = "IMAGE"
plugins.'io.containerd.grpc.v1.cri'.restrict_oom_score_adj = true
`
	const v3 = `version = 3
plugins.'io.containerd.cri.v1.images'.pinned_images.sandbox = "IMAGE"
plugins.'io.containerd.cri.v1.runtime'.restrict_oom_score_adj = true
`
	var some []realRuntime
	for _, rt := range []realRuntime{
		{containerd, "1.7.24", released(binaries.Containerd1724), true, v2, ""},
		{containerd, "1.7.26", released(binaries.Containerd1726), false, v2, ""},
		{containerd, "2.0.5", released(binaries.Containerd20), false, v3, ""},
		{containerd, "2.1.4", released(binaries.Containerd21), false, v3, ""},
		{containerd, "2.2.1", released(binaries.Containerd22), false, v3, ""},
		{containerd, "2.4.2", newest, true, v3, ""},
		{crio, "1.34.0", func(t testing.TB) (string, string) { return cluster.CRIO(t), "" }, true, "", "1.33"},
	} {
		if rt.always || os.Getenv(allRuntimes) == "1" {
			some = append(some, rt)
		}
	}
	return some
}

// isAtLeast reports whether the version is one that keeps a promise of kinds, which it does from a version on.
func (rt realRuntime) isAtLeast(from *version.Version) bool {
	of := rt.version
	if rt.earlier != "" {
		of = rt.earlier
	}
	return version.MustParseGeneric(of).AtLeast(from)
}

func (rt realRuntime) skipsBad() bool   { return rt.isAtLeast(kinds[rt.name].skips) }
func (rt realRuntime) canRequire() bool { return rt.isAtLeast(kinds[rt.name].validator) }

func (rt realRuntime) String() string { return string(rt.name) + " " + rt.version }

// TestRealRuntimes starts each runtime beside what may be in NRI's folder. The hook's own program never keeps one from
// starting, also where its configuration is gone or broken. Others' programs show what F26 says: why nothing is
// installed for an old runtime.
func TestRealRuntimes(t *testing.T) {
	hook := ""
	for _, rt := range realRuntimes(t) {
		daemon, shim := rt.program(t)
		if hook == "" {
			hook = kit.BuildProgram(t, "cmd/forcefence-node")
		}
		script := func(r *runtimeLab, text string) {
			kit.Must(t, os.WriteFile(filepath.Join(r.pluginDir(), PluginFile), []byte(text), 0o755))
		}
		for _, tc := range []struct {
			name   string
			put    func(*runtimeLab)
			starts bool
			node   string // of the hook's configuration
			runs   bool   // the hook does
		}{
			{"no plugin", func(*runtimeLab) {}, true, "", false},
			{"the hook", func(r *runtimeLab) { r.putHook(hook, r.configDir()) }, true, "n1", true},
			{"the hook with the copy beside it", func(r *runtimeLab) { r.putHook(hook, r.pluginDir()) }, true, "n1",
				true},
			{"the hook without a configuration", func(r *runtimeLab) { r.putHook(hook, "") }, true, "", true},
			{"the hook with half a configuration", func(r *runtimeLab) {
				r.putHook(hook, "")
				kit.Must(t, os.WriteFile(filepath.Join(r.configDir(), ConfigFile), []byte("nodeName: n1\n"), 0o600))
			}, true, "", true},
			{"the hook without the right to be executed", func(r *runtimeLab) {
				r.putHook(hook, r.configDir())
				kit.Must(t, os.Chmod(filepath.Join(r.pluginDir(), PluginFile), 0o644))
			}, true, "", false},
			{"what cannot be executed", func(r *runtimeLab) { script(r, "\x7fELF") }, rt.skipsBad(), "", false},
			{"what ends at once", func(r *runtimeLab) { script(r, "#!/bin/sh\nexit 1\n") }, rt.skipsBad(), "", false},
			{"what does not register", func(r *runtimeLab) { script(r, "#!/bin/sh\nexec sleep 20\n") },
				rt.skipsBad(), "", false},
		} {
			t.Run(rt.String()+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				r := newRuntimeLab(t, rt, daemon, shim, "none")
				tc.put(r)
				got := r.startRuntime(tc.runs && rt.skipsBad())
				if got.starts != tc.starts || got.runs != tc.runs || got.node != tc.node {
					t.Errorf("started: %v, with the hook: %v, of node %q; want %v, %v, %q\n%s", got.starts, got.runs,
						got.node, tc.starts, tc.runs, tc.node, got.log)
				}
			})
		}
	}
}

// TestRealInstall installs the hook for each runtime, restarts the runtime, and boots its host. The protection that is
// reported is the one that pods meet: the hook holds them from the runtime's start on, and a runtime that requires it
// creates no container without it.
func TestRealInstall(t *testing.T) {
	hook, images := "", ""
	for _, rt := range realRuntimes(t) {
		daemon, shim := rt.program(t)
		if hook == "" {
			hook = kit.BuildProgram(t, "cmd/forcefence-node")
			images = serveImage(t, kit.BuildProgram(t, "test/nodes/pause"))
		}
		for _, require := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/require=%v", rt, require), func(t *testing.T) {
				t.Parallel()
				r := newRuntimeLab(t, rt, daemon, shim, images)
				runs := rt.skipsBad() // the hook does, after the runtime's next start
				unread, read := FailOpen, FailOpen
				if !runs {
					unread, read = NotAtBoot, NotAtBoot
				} else if require && rt.canRequire() {
					read = FailClosed
				}
				expect := func(when string, level Level, runs bool) {
					t.Helper()
					f, err := readHostFacts(t.Context(), r.labHost(), r.labSite())
					kit.Must(t, err)
					if p := assessProtection(f); p.Level != level || f.Version.String() != rt.version ||
						r.labHost().isConnected(r.stateDir()) != runs || f.PluginDropped {
						t.Fatalf("%s: protection %+v, facts %+v; want %s, the plugin runs: %v", when, p, f, level, runs)
					}
				}
				restart := func() {
					t.Helper()
					r.stopRuntime()
					got := r.startRuntime(runs)
					validates := slices.Contains(got.requests, "ValidateContainerAdjustment")
					if !got.starts || got.runs != runs || runs && (got.node != "n1" || validates != rt.canRequire()) {
						t.Fatalf("started: %v, with the hook: %v, of node %q, guards %q\n%s", got.starts, got.runs,
							got.node, got.requests, got.log)
					}
				}
				if got := r.startRuntime(false); !got.starts {
					t.Fatalf("it does not start\n%s", got.log)
				}
				expect("before the install", None, false)
				r.checkPods("before the install", false, false)

				res := r.installHook(hook, require)
				expect("installed", unread, false)
				refused := strings.Contains(strings.Join(res.Warnings, " "), "the plugin is not required")
				if refused != (runs && require && !rt.canRequire()) {
					t.Errorf("warned %q", res.Warnings)
				}
				restart()
				expect("restarted", read, runs)
				r.checkPods("restarted", runs, false)
				r.bootHost()
				restart()
				booted, withoutEtc := read, FailOpen
				if !runs { // nothing is there until the DaemonSet's pod has started
					booted, withoutEtc = None, None
				}
				expect("booted", booted, runs)
				r.installHook(hook, require)
				expect("booted, and the DaemonSet's pod has started", read, runs)

				r.emptyFolders(r.configDir(), r.confDir())
				r.bootHost()
				restart() // the plugin's configuration is beside it
				expect("booted without /etc", withoutEtc, runs)
				r.checkPods("booted without /etc", runs, false)

				r.installHook(hook, require)
				restart()
				expect("installed again", read, runs)

				r.emptyFolders(r.pluginDir())
				r.bootHost()
				runs = false
				restart()
				expect("booted without the plugin", None, false)
				r.checkPods("booted without the plugin", false, read == FailClosed)
			})
		}
	}
}

// TestRealDefault checks from which version on containerd has NRI on, and the validator's settings.
func TestRealDefault(t *testing.T) {
	for _, rt := range realRuntimes(t) {
		if rt.name == crio {
			continue // its versions that matter have it on
		}
		daemon, _ := rt.program(t)
		s := Site{Runtime: rt.name, Program: daemon, Config: filepath.Join(t.TempDir(), "config.toml")}
		kit.Must(t, os.WriteFile(s.Config, []byte(rt.config), 0o600))
		d, err := dumpConfig(t.Context(), Host{}, s)
		kit.Must(t, err)
		if got, want := d.nri.Enabled, rt.isAtLeast(runtimes.Containerd.Default); got != want {
			t.Errorf("%s: NRI is on: %v, want %v", rt, got, want)
		}
		if got, want := strings.Contains(string(d.text), "default_validator"), rt.canRequire(); got != want {
			t.Errorf("%s: can require plugins: %v, want %v", rt, got, want)
		}
	}
}
