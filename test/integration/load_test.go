package integration

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

// workload is one that runs on the world's nodes.
func (w *world) workload(name string, replicas int) cluster.Workload {
	return cluster.Workload{Namespace: w.ns, Name: name, Replicas: replicas, NodeSelector: w.selector()}
}

// volumes is a StatefulSet whose pods have a volume each, a generic ephemeral one, and mounts of other kinds.
func (w *world) volumes(name string, replicas int) *appsv1.StatefulSet {
	wl := w.workload(name, replicas)
	wl.Volume, wl.Mixed = true, true
	return wl.StatefulSet()
}

// plain is a Deployment.
func (w *world) plain(name string, replicas int) *appsv1.Deployment {
	return w.workload(name, replicas).Deployment()
}

// bare is a pod without owner, bound to a node past the scheduler.
func (w *world) bare(name string, h *host) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: corev1.PodSpec{
			NodeName: h.Name(), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}},
		},
	}
}

// leavingWithin are tolerations of what Kubernetes puts on a dead node, for that many seconds.
func leavingWithin(seconds int64) []corev1.Toleration {
	var out []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
		out = append(out, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: &seconds,
		})
	}
	return out
}

// create sends objects to the API server.
func (w *world) create(objects ...any) {
	w.t.Helper()
	apps := w.Client().AppsV1()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			_, err = apps.StatefulSets(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
		case *appsv1.Deployment:
			_, err = apps.Deployments(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
		case *appsv1.ReplicaSet:
			_, err = apps.ReplicaSets(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
		case *appsv1.DaemonSet:
			_, err = apps.DaemonSets(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = w.Client().CoreV1().Pods(w.ns).Create(w.ctx, o, metav1.CreateOptions{})
		default:
			w.t.Fatalf("create: %T", o)
		}
		kit.Must(w.t, err)
	}
}
