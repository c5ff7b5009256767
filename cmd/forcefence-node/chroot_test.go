package main

import (
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// TestHost installs onto a host with another root, as the DaemonSet does: with a containerd that runs there, a
// kubeconfig whose paths are valid only there, and links that lead out of the root unless it is changed. The Node is
// real.
func TestHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: changes the root, and needs root for that")
	}
	containerd := cluster.Containerd(t)
	c := cluster.ForTest(t, cluster.Options{})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // install refuses a Node that reports another
	kit.Must(t, err)
	_, err = c.AddNode(t.Context(), cluster.NodeOptions{Name: "n1", BootID: strings.TrimSpace(string(boot))})
	kit.Must(t, err)

	dir := t.TempDir()
	binary := filepath.Join(dir, "forcefence-node")
	kit.GoBuild(t, "", ".", binary)
	host := filepath.Join(dir, "host")
	for _, d := range []string{
		"proc", "dev", "etc/containerd", "etc/kubernetes", "usr/bin", "opt", "var/lib/nri-plugins", "opt/nri"} {
		kit.Must(t, os.MkdirAll(filepath.Join(host, d), 0o755))
	}
	copyFile(t, containerd, filepath.Join(host, "usr/bin/containerd"))
	kit.Must(t, os.WriteFile(filepath.Join(host, "etc/containerd/config.toml"),
		[]byte("version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"), 0o644))
	kit.Must(t, c.WriteKubeconfig(filepath.Join(host, "etc/kubernetes/kubelet.conf"), "system:node:n1", "system:nodes"))
	kit.Must(t, os.Symlink("/var/lib/nri-plugins", filepath.Join(host, "opt/nri/plugins")))

	// In a mount namespace of its own, so that no mount is left.
	onHost := func(args ...string) (string, error) {
		script := `mount --make-rprivate / && mount --bind /proc "$1/proc" && mount --bind /dev "$1/dev" && shift &&
			exec "$@"`
		cmd := osexec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh", host, binary}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	flags := []string{"--root", host, "--node-name", "n1", "--kubeconfig", "/etc/kubernetes/kubelet.conf",
		"--runtime-command", "/usr/bin/containerd"} // none of the two runs there
	before := files(t, host)
	for i := range 2 {
		out, err := onHost(append([]string{"install", "--required-plugins"}, flags...)...)
		if err != nil {
			t.Fatalf("install: %v\n%s", err, out)
		}
		t.Logf("install:\n%s", out)
		if i == 1 && strings.Contains(out, "written") {
			t.Errorf("a second install changed something:\n%s", out)
		}
	}
	want, err := os.ReadFile(binary)
	kit.Must(t, err)
	got, err := os.ReadFile(filepath.Join(host, "var/lib/nri-plugins/10-forcefence"))
	if err != nil || string(got) != string(want) {
		t.Errorf("the plugin is not the program (%v, %d bytes of %d)", err, len(got), len(want))
	}
	dump := osexec.CommandContext(t.Context(), "/usr/bin/containerd", "config", "dump")
	dump.SysProcAttr = &syscall.SysProcAttr{Chroot: host}
	out, err := dump.Output()
	if err != nil || !strings.Contains(string(out), "required_plugins = ['forcefence']") {
		t.Errorf("the host's containerd does not require it: %v", err)
	}
	if out, err := onHost(append([]string{"uninstall"}, flags...)...); err != nil {
		t.Errorf("uninstall: %v\n%s", err, out)
	} else {
		t.Logf("uninstall:\n%s", out)
	}
	if diff := cmp.Diff(before, files(t, host)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	kit.Must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	kit.Must(t, err)
	_, err = io.Copy(out, in)
	kit.Must(t, err)
	kit.Must(t, out.Close())
}

// files returns every file below a folder, with its size.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	kit.Must(t, filepath.Walk(dir, func(file string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all = append(all, fmt.Sprintf("%s %d", file, info.Size()))
		}
		return err
	}))
	return all
}
