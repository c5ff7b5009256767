package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// createPod makes a pod with annotations.
func createPod(ns string, notes map[string]string) request {
	return create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "new-", Annotations: notes},
		Spec: podSpec()})
}

// mirror creates the mirror of a static pod on node plain, with this label app.kubernetes.io/name.
func mirror(ns, name string) request {
	return func(ctx context.Context, admin, c client.Client) error {
		n, p := &corev1.Node{}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "static-plain", Annotations: mirrorOf}, Spec: podSpec()}
		if err := admin.Get(ctx, client.ObjectKey{Name: "plain"}, n); err != nil {
			return err
		}
		if p.Spec.NodeName = n.Name; name != "" {
			p.Labels = map[string]string{"app.kubernetes.io/name": name}
		}
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, Controller: new(true)}}
		// Pod Security passes it in every namespace
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		return c.Create(ctx, p, client.DryRunAll)
	}
}

// bind binds the pod that waits to a node, with annotations that the pod gets, by either of the two ways.
func bind(notes map[string]string, legacy bool) request {
	return func(ctx context.Context, _, c client.Client) error {
		b := &corev1.Binding{ObjectMeta: inDefault("waits")}
		b.Target = corev1.ObjectReference{Kind: "Node", Name: "plain"}
		if b.Annotations = notes; legacy {
			return c.Create(ctx, b, client.DryRunAll)
		}
		return c.SubResource("binding").Create(ctx, &corev1.Pod{ObjectMeta: b.ObjectMeta}, b, client.DryRunAll)
	}
}

func notes(add map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { maps.Copy(p.Annotations, add) }
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// kinds are those whose pods a controller of Kubernetes' makes; their specs make none.
var kinds = map[string][2]string{
	"DaemonSet":             {"apps/v1", `{"selector": {"matchLabels": {"app": "x"}}, "template": %s}`},
	"Deployment":            {"apps/v1", `{"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": %s}`},
	"ReplicaSet":            {"apps/v1", `{"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": %s}`},
	"StatefulSet":           {"apps/v1", `{"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": %s}`},
	"ReplicationController": {"v1", `{"replicas": 0, "selector": {"app": "x"}, "template": %s}`},
	"Job":                   {"batch/v1", `{"suspend": true, "template": %s}`},
	"CronJob":               {"batch/v1", `{"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": %s}}}`},
}

// workload is one of a kind, with annotations of its pods.
func workload(kind, ns, name string, notes map[string]string) client.Object {
	restart := "Always"
	if strings.HasSuffix(kind, "Job") {
		restart = "Never"
	}
	text, err := json.Marshal(notes)
	template := fmt.Sprintf(`{"metadata": {"labels": {"app": "x"}, "annotations": %s},
		"spec": {"restartPolicy": %q,
		"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "sim.forcefence.io/app:1"}]}}`,
		text, restart)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kinds[kind][0], "kind": kind}}
	u.SetNamespace(ns)
	u.SetName(name)
	var spec map[string]any
	if err = errors.Join(err, json.Unmarshal(fmt.Appendf(nil, kinds[kind][1], template), &spec)); err != nil {
		panic(err) // of this file alone
	}
	u.Object["spec"] = spec
	return u
}

func createOf(kind, ns string, notes map[string]string) request {
	return create(workload(kind, ns, "fresh", notes))
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
	return patchWith(workload(kind, "default", name, nil), types.MergePatchType, patch)
}

// ofEachKind are the rows that create a tolerant one, and make one tolerant.
func ofEachKind() (rows []attempt) {
	for kind := range kinds {
		note := noteTemplate
		if kind == "CronJob" {
			note = noteCron
		}
		rows = append(rows,
			attempt{"create a tolerant " + kind, editor, createOf(kind, "default", tolerant), templateTolerates},
			attempt{"make a tolerant " + kind, editor, patch(kind, plain, note), templateTolerates})
	}
	return rows
}

var tolerateRefusals = append(ofEachKind(), []attempt{
	{"create a tolerant pod", editor, createPod("default", tolerant), tolerates},
	{"create a pod with the annotation off", editor,
		createPod("default", map[string]string{install.TolerateAnnotation: "false"}), tolerates},
	{"create a tolerant pod with a controller's name elsewhere", lookalike, createPod("default", tolerant),
		tolerates},
	{"create a mirror pod that is no kubelet's", editor, mirror("default", ""), tolerates},
	{"make a pod tolerant", editor, onPod("runs", notes(tolerant)), tolerates},
	{"make a pod tolerant through its status", editor, onPod("runs", notes(tolerant), status), tolerates},
	{"change the annotation", editor, onPod(carriesIt, notes(map[string]string{install.TolerateAnnotation: "1"})),
		tolerates},
	{"make a pod tolerant by binding it", editor, bind(tolerant, false), tolerates},
	{"make a pod tolerant by an old binding", editor, bind(tolerant, true), tolerates},
	{"a kubelet makes a pod tolerant", kubelet, onPod("runs", notes(tolerant), status), tolerates},
	{"forcefence makes a pod tolerant", us, onPod("runs", notes(tolerant), status), tolerates},
	{"a controller makes a pod tolerant that is there", statefulSets, onPod("runs", notes(tolerant)), tolerates},
	{"create a tolerant pod where the right does not hold", deployer, createPod("kube-system", tolerant),
		tolerates},
	{"one container of a pod", admin, createPod("default", ofContainer), twoSlashes},
	{"a whole pod, by the long key", admin, createPod("default", ofWholePod), twoSlashes},

	{"create a tolerant DaemonSet", editor, createOf("DaemonSet", "default", tolerant), templateTolerates},
	{"create a tolerant DaemonSet where the right does not hold", deployer,
		createOf("DaemonSet", "kube-system", tolerant), templateTolerates},
	{"create a tolerant DaemonSet with a controller's name", lookalike, createOf("DaemonSet", "default", tolerant),
		templateTolerates},
	{"change a Deployment's annotation", editor, patch("Deployment", carriesIt, noteTemplatePod), templateTolerates},
	{"a controller makes a workload tolerant that is there", deployments, patch("ReplicaSet", plain, noteTemplate),
		templateTolerates},
}...)

var toleratePasses = []attempt{
	{"create a tolerant pod", deployer, createPod("default", tolerant), ""},
	{"make a pod tolerant", deployer, onPod("runs", notes(tolerant)), ""},
	{"create a tolerant DaemonSet", deployer, createOf("DaemonSet", "default", tolerant), ""},
	{"make a CronJob tolerant", deployer, patch("CronJob", plain, noteCron), ""},
	{"create a tolerant DaemonSet", admin, createOf("DaemonSet", "kube-system", tolerant), ""},

	{"a tolerant DaemonSet's pod", daemonSets, createPod("default", tolerant), ""},
	{"a tolerant StatefulSet's pod", statefulSets, createPod("default", tolerant), ""},
	{"a tolerant ReplicaSet's pod", replicaSets, createPod("default", tolerant), ""},
	{"a tolerant ReplicationController's pod", replications, createPod("default", tolerant), ""},
	{"a tolerant Job's pod", jobs, createPod("default", tolerant), ""},
	{"a tolerant Deployment's ReplicaSet", deployments, createOf("ReplicaSet", "default", tolerant), ""},
	{"a tolerant CronJob's Job", cronJobs, createOf("Job", "default", tolerant), ""},
	{"a tolerant static pod's mirror", kubelet, mirror("default", ""), ""},
	{"a static pod's mirror with the guard's label elsewhere", kubelet, mirror("default", "forcefence-proof-guard"),
		""},
	{"another static pod's mirror in forcefence's namespace", kubelet, mirror(namespace, "kube-vip"), ""},
	{"a tolerant pod's status", kubelet, onPod(carriesIt, func(p *corev1.Pod) { p.Status.Message = "x" }, status), ""},

	{"create a pod", editor, createPod("default", nil), ""},
	{"create a pod with an annotation that only begins like it", editor, createPod("default", almostTheKey), ""},
	{"label a tolerant pod", editor, onPod(carriesIt, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }),
		""},
	{"take the annotation off a pod", editor,
		onPod(carriesIt, func(p *corev1.Pod) { delete(p.Annotations, install.TolerateAnnotation) }), ""},
	{"bind a pod", editor, bind(nil, false), ""},
	{"create a DaemonSet", editor, createOf("DaemonSet", "default", nil), ""},
	{"create a CronJob", editor, createOf("CronJob", "default", nil), ""},
	{"create a ReplicationController", editor, createOf("ReplicationController", "default", nil), ""},
	{"change another annotation of a tolerant template", editor, patch("Deployment", carriesIt, otherNoteOn), ""},
	{"change a tolerant CronJob", editor, patch("CronJob", carriesIt, otherCron), ""},
	{"label a tolerant Job", editor, patch("Job", carriesIt, labelled), ""},
	{"take the annotation off a template", editor, patch("DaemonSet", carriesIt, noteOff), ""},
}

// workloads makes one of each kind with the annotation and one without, a tolerant pod, and the rights on them.
func (w *world) workloads() {
	w.t.Helper()
	c := w.as()
	for kind := range kinds {
		kit.Must(w.t, c.Create(w.ctx, workload(kind, "default", plain, nil)))
		kit.Must(w.t, c.Create(w.ctx, workload(kind, "default", carriesIt, tolerant)))
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: carriesIt,
		Annotations: maps.Clone(tolerant)}, Spec: podSpec()}
	p.Spec.NodeName = plain
	kit.Must(w.t, c.Create(w.ctx, p))
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

// letBypass gives a user the ClusterRole for the annotation in namespace default.
func (w *world) letBypass(user string) {
	w.t.Helper()
	_, err := w.c.Client().RbacV1().RoleBindings("default").
		Create(w.ctx, &rbacv1.RoleBinding{ObjectMeta: meta("bypass"),
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "forcefence-bypass", APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}},
			metav1.CreateOptions{})
	kit.Must(w.t, err)
}

func controllerName(name string) string { return "system:serviceaccount:kube-system:" + name }

// otherKey tests another key on a host that had one before: one without a slash, which NRI's validator accepts in all
// forms.
func (w attempts) otherKey() {
	w.t.Helper()
	const otherKey = "tolerate-missing.example.net"
	for _, p := range policies(w.t, "{}") {
		for i := range p.Spec.Variables {
			if v := &p.Spec.Variables[i]; v.Name == "annotation" {
				v.Expression = "'" + otherKey + "'"
				w.replace(p)
			}
		}
	}
	for form, refused := range map[string]bool{"": true, "/pod": true, "/container.main": true, ".example": false} {
		pod, template := tolerates, templateTolerates
		if !refused {
			pod, template = "", ""
		}
		notes := map[string]string{otherKey + form: "true"}
		w.hold(attempt{"a pod with " + otherKey + form, editor, createPod("default", notes), pod},
			attempt{"a DaemonSet with " + otherKey + form, editor, createOf("DaemonSet", "default", notes), template})
	}
}
