package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
)

// Commands runs for real what some pods of the cluster should run: command lines of one program, which end. For
// everything else the simulated kubelets pretend.
type Commands struct {
	c       *Cluster
	program string
	names   []string
	unwatch func()
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex          // guards the rest
	begun  map[types.UID]bool  // pods whose command was started
	output map[string][]string // what the commands printed, by the pods' label app.kubernetes.io/name
}

// RunCommands runs the args of each running pod that has one of these names as its label app.kubernetes.io/name, with
// the rights of the pod's ServiceAccount. The pod then ends as the command did. And where a pod of the hook's DaemonSet
// uninstalls the hook, the Node loses the condition that it has since its registration.
func (c *Cluster) RunCommands(program string, names ...string) *Commands {
	r := &Commands{c: c, program: program, names: names, begun: map[types.UID]bool{}, output: map[string][]string{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.unwatch = c.Watch(func(obj metav1.Object, deleted bool) {
		if pod, is := obj.(*corev1.Pod); is && !deleted {
			r.see(pod)
		}
	})
	return r
}

// Stop ends all commands and waits for them.
func (r *Commands) Stop() {
	r.unwatch()
	r.cancel()
	r.running.Wait()
}

// Output returns what each command of the pods with that name printed, the first one first.
func (r *Commands) Output(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.output[name])
}

func (r *Commands) see(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pod.Status.Phase != corev1.PodRunning || r.begun[pod.UID] || r.ctx.Err() != nil {
		return
	}
	name := pod.Labels[nameLabel]
	uninstalls := name == "forcefence-node" && slices.ContainsFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == "uninstall" })
	switch {
	case slices.Contains(r.names, name):
		r.running.Go(func() { r.run(pod) })
	case uninstalls:
		r.running.Go(func() { r.removeHook(pod.Spec.NodeName) })
	default:
		return
	}
	r.begun[pod.UID] = true
}

// removeHook does on the Node what the hook's own uninstall does there.
func (r *Commands) removeHook(node string) {
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "$patch": "delete"}]}}`, taint.ProtectionCondition)
	_, _ = r.c.Client().CoreV1().Nodes().
		Patch(r.ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
}

const nameLabel = "app.kubernetes.io/name"

// run runs one pod's command and writes how it ended. If that fails, the client that waits for the pod times out.
func (r *Commands) run(pod *corev1.Pod) {
	phase := corev1.PodSucceeded
	text, err := r.runCommand(pod)
	if err != nil {
		phase = corev1.PodFailed
		text += err.Error()
	}
	name := pod.Labels[nameLabel]
	r.mu.Lock()
	r.output[name] = append(r.output[name], text)
	r.mu.Unlock()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase}})
	if err == nil {
		_, _ = r.c.Client().CoreV1().Pods(pod.Namespace).
			Patch(r.ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
}

func (r *Commands) runCommand(pod *corev1.Pod) (string, error) {
	dir, err := os.MkdirTemp("", "command")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	err = r.c.WriteKubeconfig(kubeconfig,
		"system:serviceaccount:"+pod.Namespace+":"+pod.Spec.ServiceAccountName, "system:serviceaccounts",
		"system:serviceaccounts:"+pod.Namespace)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(r.ctx, r.program, pod.Spec.Containers[0].Args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KUBECONFIG=")
	}), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
