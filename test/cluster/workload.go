package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Workload describes pods of one kind; its methods give the objects to create. Only Namespace, Name and Replicas are
// needed.
type Workload struct {
	Namespace, Name string
	Replicas        int
	Volume          bool // one claim of StorageClass per pod of a StatefulSet
	Mixed           bool // a generic ephemeral volume of StorageClass, and mounts that no controller attaches
	NodeSelector    map[string]string
	Tolerations     []corev1.Toleration
	Annotations     map[string]string // of the pods
	GracePeriod     *int64
	PriorityClass   string
}

func (w Workload) labels() map[string]string { return map[string]string{"app": w.Name} }

func (w Workload) template() corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: w.labels(), Annotations: w.Annotations},
		Spec: corev1.PodSpec{
			NodeSelector: w.NodeSelector, Tolerations: w.Tolerations, TerminationGracePeriodSeconds: w.GracePeriod,
			PriorityClassName: w.PriorityClass,
			Containers:        []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}},
		},
	}
	if w.Mixed {
		t.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim()},
			}}},
			{Name: "secrets",
				VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.sim.forcefence.io"}}},
			{Name: "export",
				VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}},
		}
	}
	return t
}

func claim() corev1.PersistentVolumeClaimSpec {
	class := StorageClass
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// StatefulSet starts and ends its pods in parallel.
func (w Workload) StatefulSet() *appsv1.StatefulSet {
	replicas := int32(w.Replicas)
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: w.labels()},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: w.Name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: w.labels()}, Template: w.template(),
		},
	}
	if w.Volume {
		const name = "data"
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claim()}}
		s.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: "/data"}}
	}
	return s
}

// Deployment has no volumes.
func (w Workload) Deployment() *appsv1.Deployment {
	replicas := int32(w.Replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: w.labels()},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: w.labels()}, Template: w.template(),
		},
	}
}

// DaemonSet ignores Replicas and Volume.
func (w Workload) DaemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: w.labels()},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: w.labels()},
			Template: w.template()},
	}
}

// Create creates objects as the administrator.
func (c *Cluster) Create(ctx context.Context, objects ...client.Object) error {
	admin, err := client.New(c.RESTConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, o := range objects {
		if err := admin.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// CreateNamespace creates a namespace of that prefix and returns its name.
func (c *Cluster) CreateNamespace(ctx context.Context, prefix string) (string, error) {
	ns, err := c.clients.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace %s: %w", prefix, err)
	}
	return ns.Name, nil
}

// Pods are a namespace's pods as last seen: cheap, and a moment old.
func (c *Cluster) Pods(namespace string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range c.hub.pods.all() {
		if pod.Namespace == namespace {
			out = append(out, pod)
		}
	}
	return out
}

// ReadyPods are those of a namespace that are Ready and not being deleted, as last seen.
func (c *Cluster) ReadyPods(namespace string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range c.Pods(namespace) {
		if pod.DeletionTimestamp == nil && IsPodReady(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// IsPodReady reports whether the pod is Ready.
func IsPodReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WaitReadyPods returns once at least want pods of the namespace are Ready.
func (c *Cluster) WaitReadyPods(ctx context.Context, namespace string, want int) error {
	err := Until(ctx, func(context.Context) (bool, error) { return len(c.ReadyPods(namespace)) >= want, nil })
	if err != nil {
		return fmt.Errorf("waiting for %d ready pods in %s, have %d: %w", want, namespace, len(c.ReadyPods(namespace)),
			err)
	}
	return nil
}

// WaitNode returns once check says true of the Node as last seen.
func (c *Cluster) WaitNode(ctx context.Context, name string, check func(*corev1.Node) bool) error {
	err := Until(ctx, func(context.Context) (bool, error) {
		node, ok := c.hub.nodes.get(name)
		return ok && check(node), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for node %s: %w", name, err)
	}
	return nil
}

// IsReady is a check for WaitNode.
func IsReady(node *corev1.Node) bool { return isReady(node) }

// IsNotReady is a check for WaitNode: Ready is False or Unknown.
func IsNotReady(node *corev1.Node) bool { return !isReady(node) }
