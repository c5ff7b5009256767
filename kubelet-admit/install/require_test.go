package install

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

const dropInFile = "etc/containerd/conf.d/99-forcefence.toml"

func (l *lab) required() []string { return l.facts().NRI.Required }

// TestRequire runs with the simulated containerd and with a real one, which also parses what is written.
func TestRequire(t *testing.T) {
	for _, real := range []bool{false, true} {
		name := map[bool]string{false: "fake", true: "real"}[real]
		tolerant := []corev1.Pod{
			daemonPod("a", "cni", "true"), daemonPod("b", "csi", "1"), pod("web", func(*corev1.Pod) {}),
			pod("done", func(p *corev1.Pod) {
				*p = daemonPod("done", "job", "")
				p.Status.Phase = corev1.PodSucceeded
			}),
		}
		start := func(t *testing.T) *lab {
			l := newLab(t)
			if real {
				l.useReal()
			}
			l.opts.RequiredPlugins = true
			l.pods = tolerant
			return l
		}
		t.Run(name+"/enabled", func(t *testing.T) {
			l := start(t)
			r := l.mustInstall()
			f := l.facts()
			want := NRI{Enabled: true, PluginDir: l.path("opt/nri/plugins"),
				ConfigDir: l.path("etc/nri/conf.d"),
				Validator: true, Required: []string{"forcefence"}, Annotation: TolerateAnnotation}
			if diff := cmp.Diff(want, f.NRI); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if r.Protection.Level != FailOpen || !f.ConfigPending {
				t.Errorf("got %+v before the runtime's next start", r.Protection)
			}
			l.start(200)
			before := l.tree(true)
			r = l.mustInstall()
			if r.Protection.Level != FailClosed {
				t.Errorf("got %+v", r.Protection)
			}
			if diff := cmp.Diff(before, l.tree(true)); diff != "" {
				t.Errorf("the second install changed something:\n%s", diff)
			}
		})
		t.Run(name+"/others stay", func(t *testing.T) {
			l := start(t)
			l.write("etc/containerd/conf.d/10-other.toml", "version = "+
				"3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"+
				"required_plugins = ['other', 'second']\nreject_namespace_adjustment = "+
				"true\ntolerate_missing_plugins_annotation = 'their.io/key'\n")
			l.pods = []corev1.Pod{pod("static", func(p *corev1.Pod) {
				p.Annotations["kubernetes.io/config.mirror"] = "x"
				p.Annotations["their.io/key"] = "true"
			})}
			l.mustInstall()
			n := l.facts().NRI
			if diff := cmp.Diff([]string{"other", "second", "forcefence"}, n.Required); diff != "" ||
				n.Annotation != "their.io/key" {
				t.Errorf("annotation %q, -want +got:\n%s", n.Annotation, diff)
			}
			// What the host's owner no longer requires, our drop-in no longer requires.
			l.write("etc/containerd/conf.d/10-other.toml", "version = "+
				"3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"+
				"required_plugins = ['second']\ntolerate_missing_plugins_annotation = 'their.io/key'\n")
			l.mustInstall()
			if diff := cmp.Diff([]string{"second", "forcefence"}, l.required()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			// Removing our drop-in keeps the owner's requirement.
			l.opts.RequiredPlugins = false
			l.mustInstall()
			if diff := cmp.Diff([]string{"second"}, l.required()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
		t.Run(name+"/not imported", func(t *testing.T) {
			l := start(t)
			l.write("etc/containerd/config.toml",
				strings.ReplaceAll(l.read("etc/containerd/config.toml"), `imports = ["conf.d/*.toml"]`, ""))
			r := l.mustInstall()
			if f := l.facts(); len(f.NRI.Required) != 0 || r.Protection.Level != FailOpen ||
				!strings.Contains(f.WhyNotRequired, "conf.d/*.toml") {
				t.Errorf("got %+v, %+v", r.Protection, f)
			}
			if strings.Contains(strings.Join(keys(l.tree(false)), " "), dropInFile) {
				t.Error("a drop-in that is not read was left")
			}
		})
		t.Run(name+"/a later file wins", func(t *testing.T) {
			l := start(t)
			l.write("etc/containerd/conf.d/99-z.toml", "version = "+
				"3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nrequired_plugins = ['other']\n")
			r := l.mustInstall()
			if diff := cmp.Diff([]string{"other"}, l.required()); diff != "" || r.Protection.Level != FailOpen {
				t.Errorf("%+v; -want +got:\n%s", r.Protection, diff)
			}
			if strings.Contains(strings.Join(keys(l.tree(false)), " "), dropInFile) {
				t.Error("a drop-in without effect was left")
			}
		})
		t.Run(name+"/version 2", func(t *testing.T) {
			l := start(t)
			l.write("etc/containerd/config.toml",
				strings.ReplaceAll(l.read("etc/containerd/config.toml"), "version = 3", "version = 2"))
			l.mustInstall()
			if diff := cmp.Diff([]string{"forcefence"}, l.required()); diff != "" ||
				!strings.Contains(l.read(dropInFile), "version = 2") {
				t.Errorf("-want +got:\n%s\n%s", diff, l.read(dropInFile))
			}
		})
		t.Run(name+"/version 4", func(t *testing.T) {
			l := start(t)
			l.write("etc/containerd/config.toml",
				strings.ReplaceAll(l.read("etc/containerd/config.toml"), "version = 3", "version = 4"))
			l.mustInstall()
			if diff := cmp.Diff([]string{"forcefence"}, l.required()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRequireIntolerant checks that nothing is enabled if an exempt pod would be refused, that what was enabled before
// stays, and that the pods are named in both cases.
func TestRequireIntolerant(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	tolerating := pod("tool",
		func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })
	static := pod("etcd", func(p *corev1.Pod) { p.Annotations["kubernetes.io/config.mirror"] = "x" })
	l.pods = []corev1.Pod{
		daemonPod("p1", "proxy", ""), daemonPod("p2", "proxy", ""), daemonPod("c", "cni", "yes"),
		daemonPod("f", "csi", "false"),
		daemonPod("ok", "ok", "true"), tolerating, static, pod("web", func(*corev1.Pod) {}),
	}
	const list = "ns/cni (daemonset), ns/csi (daemonset), ns/etcd (static), ns/proxy (daemonset), ns/tool (tolerating)"
	r := l.mustInstall()
	warned := strings.Join(r.Warnings, "\n")
	if !strings.Contains(warned, list) || r.Protection.Level != FailOpen || len(l.required()) != 0 {
		t.Errorf("got %+v, %q, required %q", r.Protection, warned, l.required())
	}
	l.start(200)
	if p := assessProtection(l.facts()); !strings.Contains(p.Advice, list) {
		t.Errorf("the reason was lost by a restart of the runtime: %+v", p)
	}

	good := l.pods[4:5]
	bad := l.pods
	l.pods = good
	l.mustInstall()
	l.start(300)
	l.pods = bad
	r = l.mustInstall()
	if !strings.Contains(strings.Join(r.Warnings, "\n"), list) || r.Protection.Level != FailClosed {
		t.Errorf("got %+v, %q, want that it stays", r.Protection, r.Warnings)
	}
}

func TestRequireTooOld(t *testing.T) {
	l := newLab(t)
	l.version = "v2.1.4"
	l.opts.RequiredPlugins = true
	r := l.mustInstall()
	if strings.Contains(strings.Join(keys(l.tree(false)), " "), dropInFile) || r.Protection.Level != FailOpen ||
		!strings.Contains(strings.Join(r.Warnings, "\n"), "containerd 2.1.4 cannot require a plugin") {
		t.Errorf("got %+v, %q", r.Protection, r.Warnings)
	}
}

func TestRequireWithoutPods(t *testing.T) {
	l := newLab(t)
	l.opts.RequiredPlugins = true
	l.opts.pods = func(context.Context, rest.Interface, string) ([]corev1.Pod, error) { return nil, errFault }
	if _, err := l.install(); err == nil || len(l.required()) != 0 {
		t.Errorf("got %v, required %q, want an error: which pods it would refuse is unknown", err, l.required())
	}
}
