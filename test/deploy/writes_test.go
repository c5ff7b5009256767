package deploy

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint/writes"
)

// everything are values that ask for each right that the chart gives. The out-of-service taint needs none of its own.
const everything = `
hook: {enabled: true}
config:
  signing: {keyFile: /etc/forcefence-signing/key.pem}
  onDetachTimeout: delete-attachments
  karpenter: handOver
  listen: {metrics: ":8080", status: "127.0.0.1:8082"}
  providers: [{name: racks, metal3: {namespaces: [metal3], powerOff: request}}]
  releaseLeases: [{namespace: a, names: [x]}]
  remediation: {namespaces: [a], onGiveUp: replaceMachine}
  storage: [{name: disks}, {name: longhorn, preset: longhorn}]
  drain: [{name: disks, storage: disks}, {name: longhorn, storage: longhorn, delegate: true}]
  policies:
  - {name: longhorn, preset: longhorn, withoutProof: accept-duplicates}
  - {name: storageos, preset: storageos, storage: disks, withoutProof: storage-fences}
  - {name: rbd, drivers: [csi.example.net], networkFenceClasses: [rbd], withoutProof: storage-fences}
proofGuard: {enabled: true}
`

// reading are the verbs that write nothing, and those of no resource.
var reading = []string{"get", "list", "watch", "taint", "bypass"}

// operationOf is what admission calls a verb of RBAC.
var operationOf = map[string]admissionv1.OperationType{"create": admissionv1.Create, "update": admissionv1.Update,
	"patch": admissionv1.Update, "delete": admissionv1.Delete}

// TestEveryRightToWriteIsListed: what an account of the chart may write is in the table of taint/writes, and the policy
// that the table names bounds it. The table lists no other right, and says of each order how it ends and who learns of
// it.
func TestEveryRightToWriteIsListed(t *testing.T) {
	unused := map[string]bool{}
	for _, w := range writes.All {
		for _, v := range w.Verbs {
			unused[v+" "+w.Resource] = true
		}
	}
	of := policies(t, everything)
	for _, right := range rightsToWrite(t, everything) {
		verb, resource, _ := strings.Cut(right, " ")
		delete(unused, right)
		i := slices.IndexFunc(writes.All, func(w writes.Write) bool {
			return w.Resource == resource && slices.Contains(w.Verbs, verb)
		})
		switch {
		case i < 0:
			t.Errorf("%s: no entry of taint/writes lists this right of the chart", right)
		case (writes.All[i].Policy == "") == (writes.All[i].Unbounded == ""):
			t.Errorf("%s: its entry needs a policy, or a reason for none", right)
		case writes.All[i].Policy != "" && !bounds(of[writes.All[i].Policy], verb, resource):
			t.Errorf("%s: the chart has no policy %s that bounds it", right, writes.All[i].Policy)
		case writes.All[i].Lacks() != "":
			t.Errorf("%s: its entry lacks %s", right, writes.All[i].Lacks())
		}
	}
	for right := range unused {
		t.Errorf("%s: taint/writes lists it, and no account of the chart has that right", right)
	}
}

// rightsToWrite are "verb resource.group/subresource" of all roles that are bound to a ServiceAccount.
func rightsToWrite(t *testing.T, values string) (out []string) {
	t.Helper()
	objects := byKey(t, charted(t, values))
	roles := map[string]bool{}
	for _, o := range objects {
		if kind, _ := o["kind"].(string); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		b := typed[rbacv1.RoleBinding](t, o) // a ClusterRoleBinding has its fields
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind }) {
			roles[b.RoleRef.Kind+" "+b.RoleRef.Name] = true
		}
	}
	for _, o := range objects {
		kind, _ := o["kind"].(string)
		if kind != "Role" && kind != "ClusterRole" {
			continue
		}
		role := typed[rbacv1.Role](t, o)
		if !roles[kind+" "+role.Name] {
			continue
		}
		for _, r := range role.Rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if slices.Contains(reading, verb) {
						continue
					}
					name, sub, has := strings.Cut(resource, "/")
					text := schema.GroupResource{Group: r.APIGroups[0], Resource: name}.String()
					if has {
						text += "/" + sub
					}
					if len(r.APIGroups) != 1 || r.APIGroups[0] == "*" || resource == "*" {
						t.Errorf("%s: a rule for all resources, or of two groups: %+v", role.Name, r)
					}
					out = append(out, verb+" "+text)
				}
			}
		}
	}
	return out
}

// bounds reports whether a policy looks at this request of the controller's account, and refuses something.
func bounds(p *admissionv1.ValidatingAdmissionPolicy, verb, resource string) bool {
	if p == nil || len(p.Spec.Validations) == 0 {
		return false
	}
	name, sub, has := strings.Cut(resource, "/")
	at := schema.ParseGroupResource(name)
	if has {
		at.Resource += "/" + sub
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, at.Group) && slices.Contains(r.Resources, at.Resource) &&
			slices.Contains(r.Operations, operationOf[verb])
	})
}
