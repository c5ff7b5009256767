package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const (
	overdueByName = "'forcefence-controller-overdue-attachment' with binding " +
		"'forcefence-controller-overdue-attachment' denied request: forcefence may delete a VolumeAttachment only by " +
		"its UID and resourceVersion"
	neitherTaint = byNode + "forcefence may change no taint but its mark and its own out-of-service"
	seenOn       = "'forcefence-out-of-service' with binding 'forcefence-out-of-service' denied request: the node's " +
		"machine was On when forcefence last asked its device"
	isReady = "'forcefence-out-of-service' with binding 'forcefence-out-of-service' denied request: the node is " +
		"Ready"
	outUnmarked = byNode + "forcefence may take a marked node out of service only"
)

func outOfService(value string, e corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: value, Effect: e})
	}
}

// overtime are what the components delete-attachments and out-of-service let the controller's account do.
var overtime = []attempt{
	{"delete an attachment", us, deleteAttachment("left", func(*metav1.Preconditions) {}), ""},
	{"delete one by name", us, deleteAttachment("left", func(p *metav1.Preconditions) { *p = metav1.Preconditions{} }),
		overdueByName},
	{"delete one without resourceVersion", us,
		deleteAttachment("left", func(p *metav1.Preconditions) { p.ResourceVersion = nil }), overdueByName},
	{"delete one without UID", us, deleteAttachment("left", func(p *metav1.Preconditions) { p.UID = nil }),
		overdueByName},

	{"take a marked node out of service", us, onNode("marked", outOfService("forcefence", corev1.TaintEffectNoExecute)),
		""},
	{"take a node out of service", us, onNode("plain", outOfService("forcefence", corev1.TaintEffectNoExecute)),
		outUnmarked},
	{"mark a node and take it out of service at once", us,
		onNode("plain", both(setMark("f-1", corev1.TaintEffectNoSchedule),
			outOfService("forcefence", corev1.TaintEffectNoExecute))), outUnmarked},
	{"in another's name", us, onNode("marked", outOfService("nodeshutdown", corev1.TaintEffectNoExecute)),
		neitherTaint},
	{"with another effect", us, onNode("marked", outOfService("forcefence", corev1.TaintEffectNoSchedule)),
		neitherTaint},
	{"put a node back", us, onNode("out", noTaint(corev1.TaintNodeOutOfService)), ""},
	{"put back what another took out", us, onNode("theirs", noTaint(corev1.TaintNodeOutOfService)), neitherTaint},
	{"another taint", us, onNode("marked", addTaint("example.net/broken")), neitherTaint},
	{"mark a node", us, onNode("plain", setMark("f-1", corev1.TaintEffectNoSchedule)), ""},
}

// TestOvertimeComponents tries every row, and checks that each validation is needed.
func TestOvertimeComponents(t *testing.T) {
	w := newWorld(t, cluster.Options{KCMArgs: []string{"--controllers=*,-persistentvolume-attach-detach-controller"}})
	pv := "left"
	_, err := w.c.Client().StorageV1().VolumeAttachments().Create(w.ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "left"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi.example.net", NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{})
	kit.Must(t, err)
	for name, edit := range map[string]func(*corev1.Node){
		"plain": func(*corev1.Node) {}, "marked": setMark("f-1", corev1.TaintEffectNoSchedule),
		"out":    outOfService("forcefence", corev1.TaintEffectNoExecute),
		"theirs": outOfService("nodeshutdown", corev1.TaintEffectNoExecute),
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"},
				Annotations: map[string]string{taint.RecordAnnotation: "{}"}}}
		edit(n)
		_, err := w.c.Client().CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{})
		kit.Must(t, err)
	}
	w.install(overlay(t, []string{"base"}, []string{"delete-attachments", "out-of-service"}, nil))
	w.holds(overtime, "forcefence-controller-overdue-attachment", "forcefence-controller-node")
}

// saying gives a node a condition.
func saying(t corev1.NodeConditionType, s corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: t, Status: s, Reason: "Test"}}
	}
}

// outOfServiceGuard is what the component of that name refuses to whom.
var outOfServiceGuard = []attempt{
	{"a node whose machine is on", admin, onNode("on", outOfService("nodeshutdown", corev1.TaintEffectNoExecute)),
		seenOn},
	{"with another effect", admin, onNode("on", outOfService("nodeshutdown", corev1.TaintEffectNoSchedule)), seenOn},
	{"a node that is Ready", admin, onNode("ready", outOfService("nodeshutdown", corev1.TaintEffectNoExecute)),
		isReady},
	{"a node whose machine is on, anyway", admin,
		onNode("on", both(note("forcefence.io/out-of-service-anyway", "the BMC is wrong"),
			outOfService("nodeshutdown", corev1.TaintEffectNoExecute))), ""},
	{"a Ready node, anyway", admin, onNode("ready", both(note("forcefence.io/out-of-service-anyway", "it hangs"),
		outOfService("nodeshutdown", corev1.TaintEffectNoExecute))), ""},
	{"without a reason", admin, onNode("on", both(note("forcefence.io/out-of-service-anyway", ""),
		outOfService("nodeshutdown", corev1.TaintEffectNoExecute))), seenOn},
	{"forcefence itself", us, onNode("ours", outOfService("forcefence", corev1.TaintEffectNoExecute)), ""},
	{"another on a marked node", admin, onNode("ours", outOfService("nodeshutdown", corev1.TaintEffectNoExecute)),
		seenOn},
	{"a dead node", admin, onNode("dead", outOfService("nodeshutdown", corev1.TaintEffectNoExecute)), ""},
	{"another taint", admin, onNode("on", addTaint("example.net/broken")), ""},
	{"a node that has it", admin, onNode("had", addTaint("example.net/broken")), ""},
	{"take it off", admin, onNode("had", noTaint(corev1.TaintNodeOutOfService)), ""},
}

// TestOutOfServiceGuard tries every row, and checks that each validation is needed.
func TestOutOfServiceGuard(t *testing.T) {
	w := newWorld(t,
		cluster.Options{
			KCMArgs: []string{"--controllers=*,-node-lifecycle-controller,-pod-garbage-collector-controller"}})
	for name, edit := range map[string]func(*corev1.Node){
		"on":    saying(taint.PoweredOnCondition, corev1.ConditionTrue),
		"ready": saying(corev1.NodeReady, corev1.ConditionTrue),
		"ours": both(setMark("f-1", corev1.TaintEffectNoSchedule),
			saying(taint.PoweredOnCondition, corev1.ConditionTrue)),
		"dead": saying(corev1.NodeReady, corev1.ConditionUnknown),
		"had": both(outOfService("nodeshutdown", corev1.TaintEffectNoExecute),
			saying(taint.PoweredOnCondition, corev1.ConditionTrue)),
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.net/a": "b"}}}
		edit(n)
		status := n.Status
		made, err := w.c.Client().CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{})
		kit.Must(t, err)
		made.Status.Conditions = status.Conditions
		_, err = w.c.Client().CoreV1().Nodes().UpdateStatus(w.ctx, made, metav1.UpdateOptions{})
		kit.Must(t, err)
	}
	w.install(overlay(t, []string{"base"}, []string{"out-of-service", "out-of-service-guard"}, nil))
	w.holds(outOfServiceGuard, "forcefence-out-of-service")
}

// holds tries every row, and then checks that each validation of the policies that a row names is needed.
func (w *world) holds(rows []attempt, names ...string) {
	w.t.Helper()
	accounts := w.accounts()
	w.until("every row holds", func() (bool, error) {
		for _, a := range rows {
			if bad := w.verdict(accounts, a); bad != "" {
				return false, fmt.Errorf("%s: %s", a.name, bad)
			}
		}
		return true, nil
	})
	api := w.c.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	needs := func(a attempt, v string) bool {
		_, said, _ := strings.Cut(a.want, "denied request: ")
		return said != "" && strings.HasPrefix(v, said)
	}
	for _, name := range names {
		whole, err := api.Get(w.ctx, name, metav1.GetOptions{})
		kit.Must(w.t, err)
		for i, v := range whole.Spec.Validations {
			if !slices.ContainsFunc(rows, func(a attempt) bool { return needs(a, v.Message) }) {
				continue // another test's
			}
			p := whole.DeepCopy()
			p.Spec.Validations[i].Expression = "true"
			w.replace(p)
			w.until("without "+v.Message+" it passes", func() (bool, error) {
				for _, a := range rows {
					if needs(a, v.Message) && a.do(w.ctx, w.c.Client(), accounts[a.as]) == nil {
						return true, nil
					}
				}
				return false, fmt.Errorf("no row needs it")
			})
			w.replace(whole)
		}
	}
}
