//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/kubelet-admit/nri"
	"github.com/forcefence/forcefence/test/nodes"
)

const hookName = "forcefence-node"

// hookDaemonSet is the node's side as deploy has it.
func (w *world) hookDaemonSet() {
	w.t.Helper()
	labels := map[string]string{"app": hookName}
	in := corev1.MountPropagationHostToContainer
	folder := corev1.HostPathDirectory
	container := func(args ...string) corev1.Container {
		return corev1.Container{
			Name: args[0], Image: nodeImage, ImagePullPolicy: corev1.PullNever, Args: append(args, "--root=/host"),
			Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"},
			}}},
			SecurityContext: &corev1.SecurityContext{
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"SYS_CHROOT"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host", MountPropagation: &in}},
		}
	}
	_, err := w.c.Client().AppsV1().DaemonSets(metav1.NamespaceSystem).Create(w.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: hookName},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{tolerate: "true"}},
				Spec: corev1.PodSpec{
					HostNetwork: true, AutomountServiceAccountToken: new(false), PriorityClassName: "system-node-critical",
					TerminationGracePeriodSeconds: new(int64(5)),
					Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					InitContainers:                []corev1.Container{container("install", "--required-plugins")},
					Containers:                    []corev1.Container{container("run")},
					Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: &folder},
					}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

// plugin finds a process of the hook: by its index, 10 the runtime's own, 20 the DaemonSet's.
func (w *world) plugin(n *nodes.Node, index string) (pid int) {
	w.t.Helper()
	s := w.hookStatus(n, index)
	if s == nil {
		return 0
	}
	for _, p := range n.Processes() {
		preInstalled := strings.HasPrefix(p.Name(), nri.PreInstalledIndex+"-"+nri.BaseName)
		ours := preInstalled || p.Name() == hookName
		if ours && preInstalled == (index == nri.PreInstalledIndex) {
			return p.PID
		}
	}
	return 0
}

// hookStatus is what `forcefence-node status` reads.
func (w *world) hookStatus(n *nodes.Node, index string) *nri.Status {
	w.t.Helper()
	text, err := n.Exec(w.t.Context(), "cat", nri.DefaultStateDir+"/"+index+".json")
	if err != nil {
		return nil
	}
	var s nri.Status
	w.must(json.Unmarshal([]byte(text), &s))
	return &s
}

func (w *world) registered(n *nodes.Node, index string) bool {
	s := w.hookStatus(n, index)
	return s != nil && !s.Registered.IsZero() && w.plugin(n, index) != 0
}

func (w *world) untilRegistered(n *nodes.Node, indexes ...string) {
	w.t.Helper()
	for _, index := range indexes {
		w.until(fmt.Sprintf("plugin %s of %s is registered", index, n.Name()), func() bool { return w.registered(n, index) })
	}
}

func (w *world) signal(n *nodes.Node, index string, s syscall.Signal) {
	w.t.Helper()
	pid := w.plugin(n, index)
	if pid == 0 {
		w.t.Fatalf("plugin %s of %s does not run", index, n.Name())
	}
	w.must(syscall.Kill(pid, s))
}
