package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
)

// useCRIO makes the host's runtime a simulated CRI-O: the real one that TestRealInstall plays can require no plugin. It
// merges its drop-ins by name, key by key, and prints a setting with its default value as a comment.
func (l *lab) useCRIO() {
	l.daemon = []string{"/usr/bin/crio", "--config", l.path("etc/crio/crio.conf"),
		"--config-dir", l.path("etc/crio/crio.conf.d")}
	l.kubelet = append(l.kubelet, "--container-runtime-endpoint=unix:///var/run/crio/crio.sock")
	l.version = "1.34.2"
	l.write("etc/crio/crio.conf", "[crio.nri]\nenable_nri = true\n")
	l.start(100)
}

func (l *lab) crioConfig(config, dir string) ([]byte, error) {
	all := map[string]any{"crio": map[string]any{"nri": map[string]any{"default_validator": map[string]any{}}}}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range append([]string{config}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var c map[string]any
		if err := toml.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		deep(all, c)
	}
	nri := all["crio"].(map[string]any)["nri"].(map[string]any)
	validator := nri["default_validator"].(map[string]any)
	var b strings.Builder
	set := func(table map[string]any, key, preset string) {
		if value, ok := table[key]; ok {
			text, _ := toml.Marshal(map[string]any{key: value})
			b.Write(text)
			return
		}
		fmt.Fprintf(&b, "# %s = %s\n", key, preset)
	}
	b.WriteString("# NRI\n[crio.nri]\n")
	set(nri, "enable_nri", "true")
	set(nri, "nri_listen", `"/var/run/nri/nri.sock"`)
	set(nri, "nri_plugin_dir", strconv.Quote(l.path("opt/nri/plugins")))
	set(nri, "nri_plugin_config_dir", strconv.Quote(l.path("etc/nri/conf.d")))
	b.WriteString("# [crio.nri.default_validator]\n")
	set(validator, "nri_enable_default_validator", "false")
	if list, ok := validator["nri_validator_required_plugins"].([]any); ok {
		b.WriteString("nri_validator_required_plugins = [\n")
		for _, name := range list {
			fmt.Fprintf(&b, "\t%q,\n", name)
		}
		b.WriteString("]\n")
	} else {
		b.WriteString("# nri_validator_required_plugins = [\n# ]\n")
	}
	set(validator, "nri_validator_tolerate_missing_plugins_annotation", `""`)
	return []byte(b.String()), nil
}

func TestCRIO(t *testing.T) {
	l := newLab(t)
	l.useCRIO()
	l.write("etc/crio/crio.conf.d/10-other.conf", "[crio.nri.default_validator]\nnri_enable_default_validator = "+
		"true\nnri_validator_required_plugins = [\"other\"]\n")
	before := l.tree(false)
	l.opts.RequiredPlugins = true
	l.pods = []corev1.Pod{daemonPod("a", "cni", "true")}
	r := l.mustInstall()
	want := NRI{Enabled: true, PluginDir: l.path("opt/nri/plugins"),
		ConfigDir: l.path("etc/nri/conf.d"),
		Validator: true, Required: []string{"other", "forcefence"}, Annotation: TolerateAnnotation}
	if diff := cmp.Diff(want, l.facts().NRI); diff != "" {
		t.Errorf("%q; -want +got:\n%s", r.Warnings, diff)
	}
	l.pluginFolder("version 1")
	l.start(200)
	again := l.tree(true)
	if r = l.mustInstall(); r.Protection.Level != FailClosed {
		t.Errorf("got %+v", r.Protection)
	}
	if diff := cmp.Diff(again, l.tree(true)); diff != "" {
		t.Errorf("the second install changed something:\n%s", diff)
	}
	l.start(300)
	r = l.uninstall()
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "systemctl restart crio") {
		t.Errorf("warned %q", r.Warnings)
	}
	l.start(400)
	l.uninstall()
	if diff := cmp.Diff(before, l.tree(false)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestCRIOLater checks that our drop-in is removed if a file that sorts behind it wins, and that the node is fail-open.
func TestCRIOLater(t *testing.T) {
	l := newLab(t)
	l.useCRIO()
	l.opts.RequiredPlugins = true
	l.write("etc/crio/crio.conf.d/99-z.conf", "[crio.nri.default_validator]\nnri_validator_required_plugins = []\n")
	r := l.mustInstall()
	if r.Protection.Level != FailOpen || strings.Contains(strings.Join(keys(l.tree(false)), " "), "99-forcefence") {
		t.Errorf("got %+v, %q", r.Protection, keys(l.tree(false)))
	}
}
