package deploy

import (
	"context"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/test/kit"
)

// The rows about the annotation that lets a pod start where the hook is missing.

const (
	lookalikeName = "system:serviceaccount:default:daemon-set-controller"

	tolerates = "'forcefence-tolerate-missing' with binding 'forcefence-tolerate-missing' denied request: " +
		"the pod's annotation tolerate-missing may be written only by whoever may bypass hooks.forcefence.io"
	templateTolerates = "'forcefence-tolerate-missing-template' with binding 'forcefence-tolerate-missing-template' " +
		"denied request: " +
		"the template's annotation tolerate-missing may be written only by whoever may bypass hooks.forcefence.io"
	twoSlashes = `Invalid value: "` + install.TolerateAnnotation + "/"
)

var (
	tolerant     = map[string]string{install.TolerateAnnotation: "true"}
	mirrorOf     = map[string]string{install.TolerateAnnotation: "true", corev1.MirrorPodAnnotationKey: "x"}
	ofContainer  = map[string]string{install.TolerateAnnotation + "/container.main": "true"}
	ofWholePod   = map[string]string{install.TolerateAnnotation + "/pod": "true"}
	almostTheKey = map[string]string{install.TolerateAnnotation + "-not": "true"}
)

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}}}
}

func template(notes map[string]string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: notes}, Spec: podSpec()}
	t.Spec.RestartPolicy = restart
	return t
}

// createPod makes a pod; edit may be nil.
func createPod(ns string, notes map[string]string,
	edit func(context.Context, kubernetes.Interface, *corev1.Pod) error) request {
	return func(ctx context.Context, admin, c kubernetes.Interface) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-", Annotations: notes}, Spec: podSpec()}
		if edit != nil {
			if err := edit(ctx, admin, p); err != nil {
				return err
			}
		}
		_, err := c.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
}

// onPlain makes it the kubelet's mirror of a static pod on node plain.
func onPlain(ctx context.Context, admin kubernetes.Interface, p *corev1.Pod) error {
	n, err := admin.CoreV1().Nodes().Get(ctx, "plain", metav1.GetOptions{})
	if err != nil {
		return err
	}
	yes := true
	p.Name, p.Spec.NodeName = "static-plain", n.Name
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, Controller: &yes}}
	return nil
}

// bind binds the pod that waits to a node, with annotations that the pod gets, by either of the two ways.
func bind(notes map[string]string, legacy bool) request {
	return func(ctx context.Context, _, c kubernetes.Interface) error {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "waits", Namespace: "default", Annotations: notes},
			Target: corev1.ObjectReference{Kind: "Node", Name: "plain"}}
		r := c.CoreV1().RESTClient().Post().Namespace("default").Param("dryRun", metav1.DryRunAll).Body(b)
		if legacy {
			return r.Resource("bindings").Do(ctx).Error()
		}
		return r.Resource("pods").Name("waits").SubResource("binding").Do(ctx).Error()
	}
}

func notes(add map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { maps.Copy(p.Annotations, add) }
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}

// workload creates one of each kind whose pods a controller of Kubernetes' makes.
var workload = map[string]func(context.Context, kubernetes.Interface, string, metav1.ObjectMeta, map[string]string,
	metav1.CreateOptions) error{
	"DaemonSet": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta, n map[string]string,
		o metav1.CreateOptions) error {
		t := template(n, "")
		t.Spec.NodeSelector = map[string]string{"no": "node"}
		_, err := c.AppsV1().DaemonSets(ns).
			Create(ctx, &appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: t}},
				o)
		return err
	},
	"Deployment": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta, n map[string]string,
		o metav1.CreateOptions) error {
		_, err := c.AppsV1().Deployments(ns).
			Create(ctx, &appsv1.Deployment{ObjectMeta: m,
				Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: selector, Template: template(n, "")}}, o)
		return err
	},
	"ReplicaSet": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta, n map[string]string,
		o metav1.CreateOptions) error {
		_, err := c.AppsV1().ReplicaSets(ns).
			Create(ctx, &appsv1.ReplicaSet{ObjectMeta: m,
				Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: selector, Template: template(n, "")}}, o)
		return err
	},
	"StatefulSet": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta,
		n map[string]string, o metav1.CreateOptions) error {
		_, err := c.AppsV1().StatefulSets(ns).
			Create(ctx, &appsv1.StatefulSet{ObjectMeta: m,
				Spec: appsv1.StatefulSetSpec{Replicas: new(int32), Selector: selector, Template: template(n, "")}}, o)
		return err
	},
	"ReplicationController": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta,
		n map[string]string, o metav1.CreateOptions) error {
		t := template(n, "")
		_, err := c.CoreV1().ReplicationControllers(ns).
			Create(ctx, &corev1.ReplicationController{ObjectMeta: m,
				Spec: corev1.ReplicationControllerSpec{Replicas: new(int32), Selector: t.Labels, Template: &t}}, o)
		return err
	},
	"Job": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta, n map[string]string,
		o metav1.CreateOptions) error {
		suspend := true
		_, err := c.BatchV1().Jobs(ns).
			Create(ctx, &batchv1.Job{ObjectMeta: m,
				Spec: batchv1.JobSpec{Suspend: &suspend, Template: template(n, corev1.RestartPolicyNever)}}, o)
		return err
	},
	"CronJob": func(ctx context.Context, c kubernetes.Interface, ns string, m metav1.ObjectMeta, n map[string]string,
		o metav1.CreateOptions) error {
		_, err := c.BatchV1().CronJobs(ns).
			Create(ctx, &batchv1.CronJob{ObjectMeta: m, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *",
				JobTemplate: batchv1.JobTemplateSpec{
					Spec: batchv1.JobSpec{Template: template(n, corev1.RestartPolicyNever)}}}}, o)
		return err
	},
}

func create(kind, ns string, notes map[string]string) request {
	return func(ctx context.Context, _, c kubernetes.Interface) error {
		return workload[kind](ctx, c, ns, meta("fresh"), notes, metav1.CreateOptions{DryRun: dryRun})
	}
}

const (
	noteTemplate     = `{"spec":` + templateWithNote + `}`
	noteTemplatePod  = `{"spec":{"template":{"metadata":{"annotations":{"forcefence.io/tolerate-missing":"1"}}}}}`
	noteCron         = `{"spec":{"jobTemplate":{"spec":` + templateWithNote + `}}}`
	templateWithNote = `{"template":{"metadata":{"annotations":{"forcefence.io/tolerate-missing":"true"}}}}`
	noteOff          = `{"spec":{"template":{"metadata":{"annotations":{"forcefence.io/tolerate-missing":null}}}}}`
	otherNoteOn      = `{"spec":{"template":{"metadata":{"annotations":{"example.net/x":"2"}}}}}`
	otherCron        = `{"spec":{"schedule":"1 0 1 1 *"}}`
	labelled         = `{"metadata":{"labels":{"x":"y"}}}`
	plain, carriesIt = "plain", "tolerant"
)

func patch(kind, name, patch string) request {
	return func(ctx context.Context, _, c kubernetes.Interface) (err error) {
		o, t, b := metav1.PatchOptions{DryRun: dryRun}, types.MergePatchType, []byte(patch)
		switch kind {
		case "DaemonSet":
			_, err = c.AppsV1().DaemonSets("default").Patch(ctx, name, t, b, o)
		case "Deployment":
			_, err = c.AppsV1().Deployments("default").Patch(ctx, name, t, b, o)
		case "ReplicaSet":
			_, err = c.AppsV1().ReplicaSets("default").Patch(ctx, name, t, b, o)
		case "StatefulSet":
			_, err = c.AppsV1().StatefulSets("default").Patch(ctx, name, t, b, o)
		case "ReplicationController":
			_, err = c.CoreV1().ReplicationControllers("default").Patch(ctx, name, t, b, o)
		case "Job":
			_, err = c.BatchV1().Jobs("default").Patch(ctx, name, t, b, o)
		case "CronJob":
			_, err = c.BatchV1().CronJobs("default").Patch(ctx, name, t, b, o)
		default:
			err = fmt.Errorf("no kind %s", kind)
		}
		return err
	}
}

var tolerateRefusals = []attempt{
	{"create a tolerant pod", editor, createPod("default", tolerant, nil), tolerates},
	{"create a pod with the annotation off", editor,
		createPod("default", map[string]string{install.TolerateAnnotation: "false"}, nil), tolerates},
	{"create a tolerant pod with a controller's name elsewhere", lookalike, createPod("default", tolerant, nil),
		tolerates},
	{"create a mirror pod that is no kubelet's", editor, createPod("default", mirrorOf, onPlain), tolerates},
	{"make a pod tolerant", editor, onPod("runs", notes(tolerant)), tolerates},
	{"make a pod tolerant through its status", editor, onPod("runs", notes(tolerant), status), tolerates},
	{"change the annotation", editor, onPod(carriesIt, notes(map[string]string{install.TolerateAnnotation: "1"})),
		tolerates},
	{"make a pod tolerant by binding it", editor, bind(tolerant, false), tolerates},
	{"make a pod tolerant by an old binding", editor, bind(tolerant, true), tolerates},
	{"a kubelet makes a pod tolerant", kubelet, onPod("runs", notes(tolerant), status), tolerates},
	{"forcefence makes a pod tolerant", us, onPod("runs", notes(tolerant), status), tolerates},
	{"a controller makes a pod tolerant that is there", statefulSets, onPod("runs", notes(tolerant)), tolerates},
	{"create a tolerant pod where the right does not hold", deployer, createPod("kube-system", tolerant, nil),
		tolerates},
	{"one container of a pod", admin, createPod("default", ofContainer, nil), twoSlashes},
	{"a whole pod, by the long key", admin, createPod("default", ofWholePod, nil), twoSlashes},

	{"create a tolerant DaemonSet", editor, create("DaemonSet", "default", tolerant), templateTolerates},
	{"create a tolerant Deployment", editor, create("Deployment", "default", tolerant), templateTolerates},
	{"create a tolerant ReplicaSet", editor, create("ReplicaSet", "default", tolerant), templateTolerates},
	{"create a tolerant StatefulSet", editor, create("StatefulSet", "default", tolerant), templateTolerates},
	{"create a tolerant ReplicationController", editor, create("ReplicationController", "default", tolerant),
		templateTolerates},
	{"create a tolerant Job", editor, create("Job", "default", tolerant), templateTolerates},
	{"create a tolerant CronJob", editor, create("CronJob", "default", tolerant), templateTolerates},
	{"create a tolerant DaemonSet where the right does not hold", deployer,
		create("DaemonSet", "kube-system", tolerant), templateTolerates},
	{"create a tolerant DaemonSet with a controller's name", lookalike, create("DaemonSet", "default", tolerant),
		templateTolerates},
	{"make a DaemonSet tolerant", editor, patch("DaemonSet", plain, noteTemplate), templateTolerates},
	{"make a Deployment tolerant", editor, patch("Deployment", plain, noteTemplate), templateTolerates},
	{"make a ReplicaSet tolerant", editor, patch("ReplicaSet", plain, noteTemplate), templateTolerates},
	{"make a StatefulSet tolerant", editor, patch("StatefulSet", plain, noteTemplate), templateTolerates},
	{"make a ReplicationController tolerant", editor, patch("ReplicationController", plain, noteTemplate),
		templateTolerates},
	{"make a Job tolerant", editor, patch("Job", plain, noteTemplate), templateTolerates},
	{"make a CronJob tolerant", editor, patch("CronJob", plain, noteCron), templateTolerates},
	{"change a Deployment's annotation", editor, patch("Deployment", carriesIt, noteTemplatePod), templateTolerates},
	{"a controller makes a workload tolerant that is there", deployments, patch("ReplicaSet", plain, noteTemplate),
		templateTolerates},
}

var toleratePasses = []attempt{
	{"create a tolerant pod", deployer, createPod("default", tolerant, nil), ""},
	{"make a pod tolerant", deployer, onPod("runs", notes(tolerant)), ""},
	{"create a tolerant DaemonSet", deployer, create("DaemonSet", "default", tolerant), ""},
	{"make a CronJob tolerant", deployer, patch("CronJob", plain, noteCron), ""},
	{"create a tolerant DaemonSet", admin, create("DaemonSet", "kube-system", tolerant), ""},

	{"a tolerant DaemonSet's pod", daemonSets, createPod("default", tolerant, nil), ""},
	{"a tolerant StatefulSet's pod", statefulSets, createPod("default", tolerant, nil), ""},
	{"a tolerant ReplicaSet's pod", replicaSets, createPod("default", tolerant, nil), ""},
	{"a tolerant ReplicationController's pod", replications, createPod("default", tolerant, nil), ""},
	{"a tolerant Job's pod", jobs, createPod("default", tolerant, nil), ""},
	{"a tolerant Deployment's ReplicaSet", deployments, create("ReplicaSet", "default", tolerant), ""},
	{"a tolerant CronJob's Job", cronJobs, create("Job", "default", tolerant), ""},
	{"a tolerant static pod's mirror", kubelet, createPod("default", mirrorOf, onPlain), ""},
	{"a tolerant pod's status", kubelet, onPod(carriesIt, func(p *corev1.Pod) { p.Status.Message = "x" }, status), ""},

	{"create a pod", editor, createPod("default", nil, nil), ""},
	{"create a pod with an annotation that only begins like it", editor, createPod("default", almostTheKey, nil), ""},
	{"label a tolerant pod", editor, onPod(carriesIt, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }),
		""},
	{"take the annotation off a pod", editor,
		onPod(carriesIt, func(p *corev1.Pod) { delete(p.Annotations, install.TolerateAnnotation) }), ""},
	{"bind a pod", editor, bind(nil, false), ""},
	{"create a DaemonSet", editor, create("DaemonSet", "default", nil), ""},
	{"create a CronJob", editor, create("CronJob", "default", nil), ""},
	{"create a ReplicationController", editor, create("ReplicationController", "default", nil), ""},
	{"change another annotation of a tolerant template", editor, patch("Deployment", carriesIt, otherNoteOn), ""},
	{"change a tolerant CronJob", editor, patch("CronJob", carriesIt, otherCron), ""},
	{"label a tolerant Job", editor, patch("Job", carriesIt, labelled), ""},
	{"take the annotation off a template", editor, patch("DaemonSet", carriesIt, noteOff), ""},
}

// workloads makes one of each kind with the annotation and one without, a tolerant pod, and the rights on them.
func (w *world) workloads() {
	w.t.Helper()
	for _, kind := range []string{
		"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"} {
		kit.Must(w.t, workload[kind](w.ctx, w.c.Client(), "default", meta(plain), nil, metav1.CreateOptions{}))
		kit.Must(w.t, workload[kind](w.ctx, w.c.Client(), "default", meta(carriesIt), tolerant, metav1.CreateOptions{}))
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: carriesIt, Annotations: maps.Clone(tolerant)}, Spec: podSpec()}
	p.Spec.NodeName = plain
	_, err := w.c.Client().CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{})
	kit.Must(w.t, err)
	kit.Must(w.t, w.grant("workload-editor", []rbacv1.PolicyRule{
		{APIGroups: []string{""},
			Resources: []string{"pods", "pods/status", "pods/binding", "bindings", "replicationcontrollers"},
			Verbs:     []string{"*"}},
		{APIGroups: []string{"apps", "batch"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}, editor, deployer, lookalikeName))
	// What Kubernetes' controllers may do falls short of what some rows let them try.
	kit.Must(w.t, w.grant("more-for-controllers", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"patch"}},
	}, controllerName("statefulset-controller"), controllerName("deployment-controller")))
}

// letBypass gives a user the ClusterRole for the annotation in namespace default, and waits until it is in force.
func (w *world) letBypass(user string) {
	w.t.Helper()
	_, err := w.c.Client().RbacV1().RoleBindings("default").
		Create(w.ctx, &rbacv1.RoleBinding{ObjectMeta: meta("bypass"),
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "forcefence-bypass", APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}},
			metav1.CreateOptions{})
	kit.Must(w.t, err)
	w.until(user+" has the right", func() (bool, error) {
		err := createPod("default", tolerant, nil)(w.ctx, nil, w.as(user))
		return err == nil, err
	})
}

func controllerName(name string) string { return "system:serviceaccount:kube-system:" + name }

func (w *world) asController(name string) kubernetes.Interface {
	w.t.Helper()
	return w.as(controllerName(name), "system:serviceaccounts", "system:serviceaccounts:kube-system")
}

// otherKey tests another key on a host that had one before: one without a slash, which NRI's validator accepts in all
// forms.
func (w *world) otherKey(t *testing.T, accounts map[string]kubernetes.Interface) {
	t.Helper()
	const otherKey = "tolerate-missing.example.net"
	for name, p := range policies(t, w) {
		for i := range p.Spec.Variables {
			if v := &p.Spec.Variables[i]; v.Name == "annotation" {
				v.Expression = "'" + otherKey + "'"
				w.replaceVariables(name, p.Spec.Variables)
			}
		}
	}
	for form, want := range map[string]string{
		"": tolerates, "/pod": tolerates, "/container.main": tolerates, ".example": ""} {
		notes := map[string]string{otherKey + form: "true"}
		w.until("the key is "+otherKey+form, func() (bool, error) {
			bad := w.verdict(accounts, attempt{"", editor, createPod("default", notes, nil), want})
			return bad == "", fmt.Errorf("a pod with %v: %s", notes, bad)
		})
		if want != "" {
			want = templateTolerates
		}
		w.until("the template's key is "+otherKey+form, func() (bool, error) {
			bad := w.verdict(accounts, attempt{"", editor, create("DaemonSet", "default", notes), want})
			return bad == "", fmt.Errorf("a DaemonSet with %v: %s", notes, bad)
		})
	}
}
