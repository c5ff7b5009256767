package install

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/kit"
)

// boots is a host over many boots, with what goes wrong between them. It runs the product's own install and uninstall.
type boots struct {
	*lab
	p        platform
	r        *rand.Rand
	log      []string
	promised Level    // the protection on the Node
	damaged  bool     // others took away what the promise needs, since it was given
	release  int      // the version of the hook that the DaemonSet has
	badFrom  int      // the versions from this one on do not run on this host; 0: all do
	want     []string // complete programs
	cleared  bool     // the last install took the plugin away, because the runtime would not start beside a slow one
}

func (b *boots) addLine(format string, args ...any) {
	b.log = append(b.log, fmt.Sprintf(format, args...))
}

// TestBoots plays boots over all platforms, in CI 10,000, with faults between them: an install that crashes in the
// middle or fails once, an uninstall that is cut, a runtime of another version, files and folders that are lost or
// broken. No boot is without the hook where the last reported protection promised it, and none keeps the runtime down.
// A failure prints its seed and its story.
func TestBoots(t *testing.T) {
	count, memory := 2_000, "/dev/shm" // where a sync costs nothing
	if os.Getenv("CI") != "" {
		count = 10_000
	}
	if dir, err := os.MkdirTemp(memory, "ff"); err != nil {
		count, memory = count/20, ""
		t.Logf("%v: only %d boots, on a disk", err, count)
	} else {
		kit.Must(t, os.Remove(dir))
	}
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		count /= 10
	}
	const each, shards = 20, 4
	var lock sync.Mutex // protects levels
	levels := map[Level]int{}
	t.Run("stories", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := shard; seed < count/each; seed += shards {
					own := playBoots(t, memory, seed, each)
					lock.Lock()
					for level, n := range own {
						levels[level] += n
					}
					lock.Unlock()
				}
			})
		}
	})
	t.Logf("promised before a boot: %v", levels)
	for _, l := range []Level{None, NotAtBoot, FailOpen, FailClosed} {
		if levels[l] < count/50 {
			t.Errorf("%d boots with the promise %s: the faults leave too few", levels[l], l)
		}
	}
}

// playBoots plays one story, and counts what was promised before its boots.
func playBoots(t *testing.T, memory string, seed, count int) map[Level]int {
	b := newBoots(t, memory, uint64(seed))
	levels := map[Level]int{}
	for range count {
		for range b.r.IntN(4) {
			b.playFault()
		}
		levels[b.promised]++
		b.playBoot()
		if t.Failed() {
			t.Fatalf("seed %d: %s\n%s", seed, b.p.name, strings.Join(b.log, "\n"))
		}
	}
	kit.Must(t, os.RemoveAll(b.dir))
	return levels
}

func newBoots(t *testing.T, memory string, seed uint64) *boots {
	r := rand.New(rand.NewPCG(seed, 1))
	hosts := slices.Concat(platforms, otherHosts)
	p := hosts[int(seed)%len(hosts)]
	dir := ""
	if memory == "" {
		dir = kit.SocketDir(t)
	} else {
		var err error
		dir, err = os.MkdirTemp(memory, "ff")
		kit.Must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	b := &boots{lab: newPlatformLab(t, p, dir), p: p, r: r, promised: None, release: 1}
	b.opts.RequiredPlugins = r.IntN(2) == 0
	runs := b.runs
	b.runs = func(program string) error {
		if b.badFrom > 0 && b.release >= b.badFrom {
			return syscall.ENOEXEC
		}
		return runs(program)
	}
	return b
}

// failAt lets the nth change of a file fail, and with crash each later one.
func (b *boots) failAt(n int, crash bool) (restore func()) {
	before, count := b.opts.host.before, 0
	b.opts.host.before = func(op, path string) error {
		if count++; count == n || crash && count > n {
			return errFault
		}
		return before(op, path)
	}
	return func() { b.opts.host.before = before }
}

// playInstall installs as the DaemonSet's init container does. At n > 0 its nth change fails.
func (b *boots) playInstall(n int, crash bool) {
	defer b.failAt(n, crash)()
	content := fmt.Sprintf("version %d", b.release)
	b.opts.Binary = strings.NewReader(content)
	if bad := b.badFrom > 0 && b.release >= b.badFrom; bad || b.isOld() {
		// It takes the plugin away. Until the next report the Node still says what was reported before. That is about
		// the boot that the condition names, and about no later one.
		b.promised = NotAtBoot
	} else if !slices.Contains(b.want, content) {
		b.want = append(b.want, content)
	}
	r, err := b.install()
	b.cleared = err == nil && b.isOld()
	b.addLine("install of %q, fault at %d (crash %v): %v, %+v", content, n, crash, err, r.Protection)
}

// isOld reports whether the runtime does not start beside a plugin that fails.
func (b *boots) isOld() bool {
	v, err := parseVersion("x " + b.version + " x")
	kit.Must(b.t, err)
	return !v.AtLeast(kinds[kindOf(hostProcess{argv: b.daemon})].skips)
}

// playReport reports the protection, where a plugin runs that can.
func (b *boots) playReport() {
	f, err := readHostFacts(b.t.Context(), b.opts.host, Site{StateDir: b.opts.Config.StateDir})
	if err != nil || !f.Config {
		b.addLine("no report: %v", err)
		return
	}
	b.promised, b.damaged = assessProtection(f).Level, false
	b.addLine("reported %s", b.promised)
}

func (b *boots) playFault() {
	versions := []string{"v1.7.24", "v1.7.27", "v2.1.4", "v2.2.1", "v2.4.2", "v2.4.2"}
	if kindOf(hostProcess{argv: b.daemon}) == crio {
		versions = []string{"1.31.4", "1.33.1", "1.34.2", "1.34.2"}
	}
	plugins := b.path("opt/nri/plugins")
	switch b.r.IntN(17) {
	case 0, 1, 2:
		b.playInstall(0, false)
		b.playReport()
	case 3:
		b.release++
		b.playInstall(0, false)
	case 4, 14, 15, 16:
		b.release += b.r.IntN(2)
		b.playInstall(1+b.r.IntN(20), true)
	case 5:
		b.playInstall(1+b.r.IntN(30), false)
	case 6:
		b.opts.RequiredPlugins = !b.opts.RequiredPlugins
		b.playInstall(0, false)
		b.playReport()
	case 7:
		b.version, b.cleared = versions[b.r.IntN(len(versions))], false
		b.start(200 + b.r.IntN(1000))
		b.addLine("the runtime is now %s", b.version)
	case 8: // another hook that does not run here, and its successor that does
		b.badFrom = 0
		if b.r.IntN(4) == 0 {
			b.release++
			b.badFrom = b.release
		}
		b.addLine("programs from %d on do not run", b.badFrom)
	case 9:
		b.promised = None // a person takes the hook off
		n := b.r.IntN(30) // 0: it is not cut
		func() {
			defer b.failAt(n, true)()
			_, err := Uninstall(b.t.Context(), b.opts)
			b.addLine("uninstall, cut at %d: %v", n, err)
		}()
	case 10:
		_ = os.Remove(filepath.Join(plugins, PluginFile))
		b.damaged = true
		b.addLine("the program is gone")
	case 11:
		name := filepath.Join(plugins, ConfigFile)
		if _, err := os.Stat(name); err == nil && b.r.IntN(2) == 0 {
			kit.Must(b.t, os.WriteFile(name, []byte("nodeName: "), 0o644))
		} else {
			_ = os.Remove(name)
		}
		b.damaged = true
		b.addLine("the configuration is gone or broken")
	case 12:
		dir := []string{"opt/nri", "etc/nri", "run/forcefence", "lib/forcefence-node"}[b.r.IntN(4)]
		kit.Must(b.t, os.RemoveAll(b.path(dir)))
		b.damaged = b.damaged || dir == "opt/nri"
		b.addLine("%s is gone", dir)
	case 13:
		b.start(200 + b.r.IntN(1000))
		b.addLine("the runtime was restarted")
	}
}

// playBoot boots the host, holds what the runtime finds against the promise, and installs again as the DaemonSet does.
func (b *boots) playBoot() {
	b.rebootHost(b.p.lost...)
	b.addLine("-- boot with %s, promised %s, damaged %v", b.version, b.promised, b.damaged)
	f, err := readHostFacts(b.t.Context(), b.opts.host, Site{StateDir: b.opts.Config.StateDir})
	if err != nil {
		b.t.Errorf("the runtime does not read its configuration: %v", err)
		return
	}
	entries, err := os.ReadDir(b.path("opt/nri/plugins"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
	starts := false
	for _, e := range entries {
		info, err := e.Info()
		kit.Must(b.t, err)
		if info.Mode()&0o111 == 0 {
			continue
		}
		program := b.path("opt/nri/plugins/" + e.Name())
		text, err := os.ReadFile(program)
		kit.Must(b.t, err)
		complete := slices.Contains(b.want, string(text)) && !b.isBelow(program, b.p.noexec)
		if !pluginLike.MatchString(e.Name()) || b.isOld() && (!complete || b.cleared) {
			b.t.Errorf("%s, %q keeps the runtime down", e.Name(), text)
		}
		starts = starts || complete
	}
	beside, err := os.ReadFile(b.path("opt/nri/plugins/" + ConfigFile))
	if err == nil {
		_, err = nri.ParseConfig(string(beside))
	}
	holds := starts && err == nil && f.NRI.Enabled
	requires := f.NRI.requiresUs() && f.Version.AtLeast(kinds[f.Runtime].validator)
	switch {
	case b.promised == FailClosed && !requires && !holds && !b.damaged, b.promised == FailOpen && !holds && !b.damaged:
		b.t.Errorf("promised %s; the runtime starts the plugin: %v, requires it: %v", b.promised, holds, requires)
	}
	if b.r.IntN(5) > 0 {
		b.playInstall(0, false)
		if b.r.IntN(5) > 0 {
			b.playReport()
		}
	}
}
