package nri

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/forcefence/forcefence/test/kit"
)

// newBare returns a hook that the runtime started, on a host in a folder.
func newBare(t *testing.T) (h *hook, dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv(api.PluginSocketEnvVar, "3")
	boot := filepath.Join(dir, "boot_id")
	kit.Must(t, os.WriteFile(boot, []byte(testBoot), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	h = &hook{ctx: ctx, started: time.Now(), name: PreInstalledIndex + "-" + BaseName, opts: Options{
		bootIDFile: boot, program: filepath.Join(dir, "opt", "10-forcefence"), bareHold: time.Hour, bare: configIn(dir),
	}}
	h.opts.bare.NodeName, h.opts.bare.Kubeconfig = "", ""
	kit.Must(t, os.Mkdir(filepath.Join(dir, "opt"), 0o700))
	h.plugin = &plugin{configure: h.configureOnce, registeredNow: h.callRegistered}
	t.Cleanup(func() {
		cancel()
		h.work.Wait()
	})
	return h, dir
}

func configIn(dir string) Config {
	return Config{NodeName: "n1", Kubeconfig: filepath.Join(dir, "none"), StateDir: filepath.Join(dir, "run"),
		DataDir: filepath.Join(dir, "data"), LogFile: "none"}
}

// TestCopyOfTheConfiguration configures a plugin as a runtime does whose configuration folder lost its files at the
// boot: it passes nothing, or what is left of a file.
func TestCopyOfTheConfiguration(t *testing.T) {
	for _, passed := range []string{"", "nodeName: [", "nodeName: n1\n"} {
		h, dir := newBare(t)
		text, err := configIn(dir).Marshal()
		kit.Must(t, err)
		kit.Must(t, os.WriteFile(filepath.Join(dir, "opt", ConfigFile), text, 0o600))
		v, err := h.configureOnce(passed)
		if err != nil || v.node.Name != "n1" || !v.holdUntil.IsZero() {
			t.Errorf("passed %q: got %+v, %v; want the copy's node, and a hold without an end", passed, v, err)
		}
	}
}

// TestNoConfiguration configures a plugin that has none at all. An old runtime would not start if it were refused
// (F26), and a node whose pods never start is as dead.
func TestNoConfiguration(t *testing.T) {
	h, _ := newBare(t)
	v, err := h.configureOnce("")
	if err != nil {
		t.Fatalf("the plugin is refused: %v", err)
	}
	ask := func(after time.Duration, annotations map[string]string) error {
		return v.admitPod(request{namespace: "ns", name: "p", uid: "u", annotations: annotations},
			func() time.Time { return h.started.Add(after) })
	}
	if ask(59*time.Minute, nil) == nil {
		t.Error("an ordinary pod starts at once")
	}
	if err := ask(0, map[string]string{"kubernetes.io/config.source": "file"}); err != nil {
		t.Errorf("a static pod is held: %v", err)
	}
	if err := ask(61*time.Minute, nil); err != nil {
		t.Errorf("an ordinary pod is held for ever: %v", err)
	}
	if h.readErr == "" {
		t.Error("the status does not say why")
	}
}

// TestSlowDisks configures a plugin whose folder does not answer: it is a pipe that has no writer.
func TestSlowDisks(t *testing.T) {
	h, dir := newBare(t)
	c := configIn(dir)
	kit.Must(t, os.Mkdir(c.DataDir, 0o700))
	pipe := filepath.Join(c.DataDir, MemoryFile)
	makePipe(t, pipe)
	text, err := c.Marshal()
	kit.Must(t, err)
	done := make(chan *view, 1)
	go func() {
		v, _ := h.configureOnce(string(text))
		done <- v
	}()
	select {
	case v := <-done:
		if v.admitPod(request{uid: "u"}, time.Now) == nil {
			t.Error("an ordinary pod starts before the files were read")
		}
	case <-time.After(time.Minute):
		t.Error("the registration waits for the disk")
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the disk answers
	kit.Must(t, err)
	kit.Must(t, w.Close())
}
