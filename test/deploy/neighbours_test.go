package deploy

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/features/karpenter/claim"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/metal3"
)

// The rows about objects of Metal3, Karpenter, Cluster API and CSI-Addons.

// must panics on an error of this file alone.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// neighbour is an object of a neighbour's, as JSON.
func neighbour(apiVersion, kind, ns, name, rest string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	must(u.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q%s}`, apiVersion, kind, rest)))
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

func bmHost(name, notes string) *unstructured.Unstructured {
	return neighbour("metal3.io/v1alpha1", "BareMetalHost", "metal3", name, `,"metadata":{"labels":{"a":"b"},
"annotations":`+notes+`,"finalizers":["baremetalhost.metal3.io"]},"spec":{"online":true,
"bmc":{"address":"redfish://192.0.2.7"},"image":{"url":"https://example.net/image"}}`)
}

func nodeClaim(name string) *unstructured.Unstructured {
	return neighbour("karpenter.sh/v1", claim.Kind, "", name, `,"metadata":{"annotations":{"a":"b"},
"finalizers":["karpenter.sh/termination"]},"spec":{"nodeClassRef":{"name":"a"}}`)
}

func machine(name, healthy string) *unstructured.Unstructured {
	return neighbour("cluster.x-k8s.io/v1beta2", "Machine", requestNS, name, `,"spec":{"providerID":"sim://a"},
"status":{"phase":"Running","conditions":[`+seenBy(healthy)+`],
"deprecated":{"v1beta1":{"failureReason":"none","conditions":[]}}}`)
}

// seenBy is the condition of the MachineHealthCheck.
func seenBy(healthy string) string { return ofMachine("HealthCheckSucceeded", healthy, "Checked") }

func ofMachine(of, status, why string) string {
	return fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"lastTransitionTime":"2026-03-01T12:00:00Z"}`, of, status,
		why)
}

func aRequest(name string) *unstructured.Unstructured {
	return neighbour(api.GroupVersion.String(), api.Kind, requestNS, name,
		`,"metadata":{"finalizers":["example.net/a"],"annotations":{"a":"b"}},"spec":{}`)
}

// networkFence is one of forcefence's, unless edit says otherwise.
func networkFence(name, state string, edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := neighbour("csiaddons.openshift.io/v1alpha1", "NetworkFence", "", name, `,"metadata":{"labels":
{"forcefence.io/node-uid":"u"},"annotations":{"forcefence.io/node":"n1"}},"spec":{"networkFenceClassName":"rbd",
"fenceState":"`+state+`","cidrs":["192.0.2.7/32","2001:db8::7/128"]}`)
	edit(u)
	return u
}

func unowned(u *unstructured.Unstructured) { u.SetLabels(nil) }
func asBuilt(*unstructured.Unstructured)   {}
func inSpec(k string, v any) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { must(unstructured.SetNestedField(u.Object, v, "spec", k)) }
}

// neighbourFixtures makes the objects that these rows are about.
func (w *world) neighbourFixtures() {
	w.t.Helper()
	for _, text := range []string{metal3.CRD, cluster.Definition(claim.Group, claim.Kind, "Cluster", claim.Version),
		cluster.Definition("cluster.x-k8s.io", "Machine", "Namespaced", "v1beta2", "v1beta1"),
		cluster.Definition("csiaddons.openshift.io", "NetworkFence", "Cluster", "v1alpha1")} {
		_, err := w.c.Kubectl(w.ctx, "apply", "--server-side", "-f", valuesFile(w.t, text))
		kit.Must(w.t, err)
	}
	_, err := w.c.Kubectl(w.ctx, "apply", "--server-side", "-f",
		chart+"/files/remediation.forcefence.io_forcefenceremediations.yaml")
	kit.Must(w.t, err)
	admin := w.as()
	detached := `{"baremetalhost.metal3.io/detached":"{\"deleteAction\":\"delay\"}"`
	for _, o := range []*unstructured.Unstructured{
		bmHost("plain", `{"a":"b"}`), bmHost("theirs", detached+`}`),
		bmHost("ours", detached+`,"forcefence.io/detached":"{}"}`),
		nodeClaim("plain"), nodeClaim("going"), machine("ill", "False"), machine("well", "True"), aRequest("new"),
		aRequest("seen"), networkFence("holds", "Fenced", asBuilt), networkFence("over", "Unfenced", asBuilt),
		networkFence("theirs", "Unfenced", unowned),
	} {
		made := o.DeepCopy()
		w.until("there is "+o.GetKind()+" "+o.GetName(), func() (bool, error) {
			err := admin.Create(w.ctx, made)
			return err == nil, err
		})
		if status, is := o.Object["status"]; is {
			made.Object["status"] = status
			kit.Must(w.t, admin.Status().Update(w.ctx, made))
		}
	}
	kit.Must(w.t, admin.Delete(w.ctx, nodeClaim("going")))
	kit.Must(w.t, admin.Status().Patch(w.ctx, aRequest("seen"),
		client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeUID":"u","bootID":"b"}}`))))
}

// merge patches an object.
func merge(o client.Object, text string, sub ...string) request {
	return patchWith(o, types.MergePatchType, text, sub...)
}

// annotate sets annotations; a value of nil removes one.
func annotate(o client.Object, notes map[string]any) request {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
	must(err)
	return merge(o, string(text))
}

// owned makes another object the owner.
const owned = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"}]}}`

const (
	byHost    = "'forcefence-controller-host' with binding 'forcefence-controller-host' denied request: "
	otherHost = byHost + "forcefence may change nothing of a BareMetalHost but annotations"
	hostMeta  = byHost + "forcefence may change no labels, finalizers or owners of a BareMetalHost"
	hostNote  = byHost + "forcefence may change no annotation of a BareMetalHost but those by which it powers off " +
		"and detaches"
	hostOff    = byHost + "forcefence may ask for no other power-off of a BareMetalHost than its own"
	hostLife   = byHost + "forcefence may ask for no power-off of a BareMetalHost without the life that it is about"
	hostDetach = byHost + "forcefence may detach a BareMetalHost in its own way only, and attach none that another " +
		"client detached"
	hostClaim = byHost + "forcefence may not say that it detached a BareMetalHost that another client detached"

	offNote, detachNote  = "reboot.metal3.io/forcefence", "baremetalhost.metal3.io/detached"
	offLife, detachLife  = "forcefence.io/power-off", "forcefence.io/detached"
	offHard, detachDelay = `{"mode":"hard"}`, `{"deleteAction":"delay"}`
)

var plainHost, theirHost, ourHost = bmHost("plain", "{}"), bmHost("theirs", "{}"), bmHost("ours", "{}")

// hostRows bound what may be written on a BareMetalHost.
var hostRows = []attempt{
	{"power a host off", us, annotate(plainHost, map[string]any{offNote: offHard, offLife: "{}"}), ""},
	{"power a host off in no life", us, annotate(plainHost, map[string]any{offNote: offHard}), hostLife},
	{"detach a host", us, annotate(plainHost, map[string]any{detachNote: detachDelay, detachLife: "{}"}), ""},
	{"attach it again", us, annotate(ourHost, map[string]any{detachNote: nil, detachLife: nil, offNote: nil,
		offLife: nil}), ""},
	{"remove a host's image", us, merge(plainHost, `{"spec":{"image":null}}`), otherHost},
	{"change its BMC's address", us, merge(plainHost, `{"spec":{"bmc":{"address":"redfish://192.0.2.9"}}}`),
		otherHost},
	{"add a field to a host", us, merge(plainHost, `{"spec":{"rootDeviceHints":{"a":"b"}}}`), otherHost},
	{"switch a host off by its spec", us, merge(plainHost, `{"spec":{"online":false}}`), otherHost},
	{"label a host", us, merge(plainHost, `{"metadata":{"labels":{"a":"c"}}}`), hostMeta},
	{"strip a host's finalizers", us, merge(plainHost, `{"metadata":{"finalizers":null}}`), hostMeta},
	{"give a host an owner", us, merge(plainHost, owned), hostMeta},
	{"annotate a host otherwise", us, annotate(plainHost, map[string]any{"baremetalhost.metal3.io/paused": ""}),
		hostNote},
	{"take an annotation off a host", us, annotate(plainHost, map[string]any{"a": nil}), hostNote},
	{"reboot a host", us, annotate(plainHost, map[string]any{offNote: "", offLife: "{}"}), hostOff},
	{"detach a host for good", us, annotate(plainHost, map[string]any{
		detachNote: `{"deleteAction":"delete"}`, detachLife: "{}"}), hostDetach},
	{"detach a host in no name", us, annotate(plainHost, map[string]any{detachNote: detachDelay}), hostDetach},
	{"attach a host of another client's", us, annotate(theirHost, map[string]any{detachNote: nil}), hostDetach},
	{"take another client's host over", us, annotate(theirHost, map[string]any{detachLife: "{}"}), hostClaim},
	{"anything with one's own host", admin, merge(plainHost, `{"spec":{"image":null}}`), ""},
}

const (
	byClaim     = "'forcefence-controller-nodeclaim' with binding 'forcefence-controller-nodeclaim' denied request: "
	otherClaim  = byClaim + "forcefence may change nothing of a NodeClaim but an annotation"
	claimMeta   = byClaim + "forcefence may change no labels, finalizers or owners of a NodeClaim"
	claimNote   = byClaim + "forcefence may write no annotation of a NodeClaim but the end of its termination"
	claimAlive  = byClaim + "forcefence may annotate no NodeClaim that is not being deleted"
	claimByName = byClaim + "forcefence may delete a NodeClaim only by its UID and resourceVersion"
)

var terminates = map[string]any{claim.TerminationAnnotation: "2026-03-01T12:00:00Z"}

// claimRows bound what becomes of a NodeClaim.
var claimRows = []attempt{
	{"hurry a deleted NodeClaim", us, annotate(nodeClaim("going"), terminates), ""},
	{"delete a NodeClaim as it was read", us, remove(nodeClaim("plain"), asIs), ""},
	{"hurry a NodeClaim that stays", us, annotate(nodeClaim("plain"), terminates), claimAlive},
	{"annotate a NodeClaim otherwise", us, annotate(nodeClaim("going"), map[string]any{"a": "c"}), claimNote},
	{"take an annotation off a NodeClaim", us, annotate(nodeClaim("going"), map[string]any{"a": nil}), claimNote},
	{"strip a NodeClaim's finalizers", us, merge(nodeClaim("going"), `{"metadata":{"finalizers":null}}`), claimMeta},
	{"label a NodeClaim", us, merge(nodeClaim("going"), `{"metadata":{"labels":{"a":"c"}}}`), claimMeta},
	{"change a NodeClaim", us, merge(nodeClaim("going"), `{"spec":{"nodeClassRef":{"name":"b"}}}`), otherClaim},
	{"add a field to a NodeClaim", us, merge(nodeClaim("going"), `{"spec":{"taints":[]}}`), otherClaim},
	{"delete a NodeClaim by name", us, remove(nodeClaim("plain"), byName), claimByName},
	{"delete a NodeClaim without UID", us, remove(nodeClaim("plain"), withoutUID), claimByName},
	{"delete a NodeClaim without resourceVersion", us, remove(nodeClaim("plain"), withoutVersion), claimByName},
	{"anything with one's own NodeClaim", admin, merge(nodeClaim("going"), `{"metadata":{"labels":{"a":"c"}}}`), ""},
}

const (
	byRequest    = "'forcefence-controller-request' with binding 'forcefence-controller-request' denied request: "
	otherRequest = byRequest + "forcefence may change nothing of a request but its status and a finalizer"
	requestHold  = byRequest + "forcefence may change no finalizer of a request but its own"
	requestLife  = byRequest + "forcefence may not let a request be about another life of the node"

	byMachine    = "'forcefence-controller-machine' with binding 'forcefence-controller-machine' denied request: "
	machineOther = byMachine + "forcefence may change nothing of a Machine but conditions"
	machineOld   = byMachine + "forcefence may write a Machine in version v1beta2 only, where conditions have " +
		"keys"
	machineCond   = byMachine + "forcefence may change no condition of a Machine but those by which it reports"
	machineGone   = byMachine + "forcefence may remove no condition of a Machine"
	machineHealth = byMachine + "forcefence may have no Machine replaced that its MachineHealthCheck does not call " +
		"unhealthy"
)

// setConditions sets a Machine's conditions in both lists.
func setConditions(m client.Object, now, older string) request {
	return merge(m, `{"status":{"conditions":[`+now+`],"deprecated":{"v1beta1":{"conditions":[`+older+`]}}}}`, status)
}

// olderMachine is a Machine in an older version of the API.
func olderMachine() *unstructured.Unstructured {
	m := machine("ill", "False")
	m.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	return m
}

var (
	remediated = ofMachine("ExternallyRemediated", "True", "Done")
	replacing  = ofMachine("OwnerRemediated", "False", "WaitingForRemediation")
	ill, well  = machine("ill", "False"), machine("well", "True")
)

// requestRows bound what becomes of a request and of its Machine.
var requestRows = []attempt{
	{"keep a request", us, merge(aRequest("new"),
		`{"metadata":{"finalizers":["example.net/a","`+api.Finalizer+`"]}}`), ""},
	{"note a request's life", us, merge(aRequest("new"), `{"status":{"nodeUID":"u","bootID":"b"}}`, status), ""},
	{"answer a request", us, merge(aRequest("seen"), `{"status":{"node":"n1"}}`, status), ""},
	{"let a request be about another boot", us, merge(aRequest("seen"), `{"status":{"bootID":"c"}}`, status),
		requestLife},
	{"let a request begin again", us, merge(aRequest("seen"), `{"status":{"nodeUID":null,"bootID":null}}`, status),
		requestLife},
	{"strip a request's finalizers", us, merge(aRequest("new"), `{"metadata":{"finalizers":null}}`), requestHold},
	{"redirect a request", us, merge(aRequest("new"), owned), otherRequest},
	{"annotate a request", us, annotate(aRequest("new"), map[string]any{"a": "c"}), otherRequest},
	{"report on a Machine", us, setConditions(ill, seenBy("False")+","+remediated, ""), ""},
	{"say that a Machine was not remediated", us,
		setConditions(ill, seenBy("False")+","+ofMachine("ExternallyRemediated", "False", "No"), ""), machineCond},
	{"call a Machine unhealthy", us, setConditions(well, seenBy("False"), ""), machineCond},
	{"take a Machine's condition off", us, setConditions(ill, remediated, ""), machineGone},
	{"change a Machine's phase", us, merge(ill, `{"status":{"phase":"Failed"}}`, status), machineOther},
	{"add to a Machine's status", us, merge(ill, `{"status":{"failureReason":"x"}}`, status), machineOther},
	{"report on a Machine in an older version", us, merge(olderMachine(), `{"status":{"conditions":[`+seenBy("False")+
		`,`+remediated+`]}}`, status), machineOld},
}

// keepRows: Cluster API is not told to replace a Machine where the configuration does not say so.
var keepRows = []attempt{
	{"have a Machine replaced", us, setConditions(ill, seenBy("False")+","+replacing, ""), machineCond},
	{"have a Machine replaced by the older list", us, setConditions(ill, seenBy("False"), replacing), machineOther},
}

// replaceRows: where it does, the MachineHealthCheck has to call the Machine unhealthy.
var replaceRows = []attempt{
	{"have a Machine replaced", us, setConditions(ill, seenBy("False")+","+replacing, replacing), ""},
	{"have a healthy Machine replaced", us, setConditions(well, seenBy("True")+","+replacing, ""), machineHealth},
	{"have a healthy Machine replaced by the older list", us, setConditions(well, seenBy("True"), replacing),
		machineHealth},
	{"have it replaced at once", us, setConditions(well, seenBy("False")+","+replacing, replacing), byMachine},
	{"say that it was replaced", us, setConditions(ill, seenBy("False")+","+
		ofMachine("OwnerRemediated", "True", "Done"), ""), machineCond},
	{"another reason in the older list", us, setConditions(ill, seenBy("False"),
		ofMachine("OwnerRemediated", "False", "Other")), machineCond},
	{"take a condition off", us, setConditions(ill, remediated, ""), machineGone},
	{"anything else of the older list", us,
		merge(ill, `{"status":{"deprecated":{"v1beta1":{"failureReason":"x"}}}}`, status), machineOther},
	{"in an older version", us, merge(olderMachine(), `{"status":{"conditions":[`+seenBy("False")+`,`+remediated+
		`]}}`, status), machineOld},
}

const (
	byFencing = "'forcefence-controller-networkfence' with binding 'forcefence-controller-networkfence' denied " +
		"request: "
	fenceTheirs = byFencing + "forcefence may make no NetworkFence without its own label, and change and delete none " +
		"but its own"
	fenceShape = byFencing + "forcefence may make a NetworkFence of its policies' classes only, that shuts out and " +
		"says nothing else"
	fenceWide   = byFencing + "forcefence may shut out single addresses only"
	fenceChange = byFencing + "forcefence may change nothing of a NetworkFence but that it lets in"
	fenceNote   = byFencing + "forcefence may note nothing on a NetworkFence but that it has seen the storage's " +
		"success"
	fenceHolding = byFencing + "forcefence may delete no NetworkFence that shuts out"
	fenceByName  = byFencing + "forcefence may delete a NetworkFence only by its UID and resourceVersion"
)

func makeFence(edit func(*unstructured.Unstructured)) request {
	return create(networkFence("fresh", "Fenced", edit))
}

var holds, over, foreign = networkFence("holds", "Fenced", asBuilt), networkFence("over", "Unfenced", asBuilt),
	networkFence("theirs", "Unfenced", unowned)

// fenceRows bound what a NetworkFence may say.
var fenceRows = []attempt{
	{"shut a node out", us, makeFence(asBuilt), ""},
	{"let it in", us, merge(holds, `{"spec":{"fenceState":"Unfenced"}}`), ""},
	{"note the storage's success", us, annotate(holds, map[string]any{"forcefence.io/confirmed": "x"}), ""},
	{"delete one that is over", us, remove(over, asIs), ""},
	{"shut out in no name", us, makeFence(unowned), fenceTheirs},
	{"change another client's", us, merge(foreign, `{"spec":{"fenceState":"Fenced"}}`), fenceTheirs},
	{"make another client's its own", us, merge(foreign, `{"metadata":{"labels":{"forcefence.io/node-uid":"u"}}}`),
		fenceTheirs},
	{"delete another client's", us, remove(foreign, asIs), fenceTheirs},
	{"by another class", us, makeFence(inSpec("networkFenceClassName", "other")), fenceShape},
	{"that lets in", us, makeFence(inSpec("fenceState", "Unfenced")), fenceShape},
	{"with a Secret", us, makeFence(inSpec("secret", map[string]any{"name": "a"})), fenceShape},
	{"a network", us, makeFence(inSpec("cidrs", []any{"192.0.2.7/32", "10.0.0.0/8"})), fenceWide},
	{"all addresses", us, makeFence(inSpec("cidrs", []any{"0.0.0.0/0"})), fenceWide},
	{"no address", us, makeFence(inSpec("cidrs", []any{})), fenceWide},
	{"shut a node out again", us, merge(over, `{"spec":{"fenceState":"Fenced"}}`), fenceChange},
	{"change the addresses", us, merge(holds, `{"spec":{"cidrs":["192.0.2.8/32"]}}`), fenceChange},
	{"name a driver", us, merge(holds, `{"spec":{"driver":"x"}}`), fenceChange},
	{"move it to another node", us, annotate(holds, map[string]any{"forcefence.io/node": "n2"}), fenceNote},
	{"move it to another Node object", us, merge(holds, `{"metadata":{"labels":{"forcefence.io/node-uid":"v"}}}`),
		fenceNote},
	{"keep it by a finalizer", us, merge(holds, `{"metadata":{"finalizers":["example.net/a"]}}`), fenceNote},
	{"delete one that holds", us, remove(holds, asIs), fenceHolding},
	{"delete one by name", us, remove(over, byName), fenceByName},
	{"delete one without UID", us, remove(over, withoutUID), fenceByName},
	{"delete one without resourceVersion", us, remove(over, withoutVersion), fenceByName},
	{"anything with one's own", admin, merge(holds, `{"spec":{"cidrs":["192.0.2.8/32"]}}`), ""},
}
