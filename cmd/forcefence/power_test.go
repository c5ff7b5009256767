package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
)

// site is three nodes, each a machine behind a BMC of its own, and the flags' desk. The Nodes are in memory: the
// commands only read them.
type site struct {
	t    *testing.T
	dc   *datacenter.DataCenter
	m    map[string]*datacenter.Machine
	bmc  map[string]*datacenter.BMC
	api  client.Client
	d    *sessionFlags
	file string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, dc: datacenter.New(datacenter.Options{}), m: map[string]*datacenter.Machine{},
		bmc: map[string]*datacenter.BMC{}}
	t.Cleanup(func() { _ = s.dc.Close() })
	password, ca, file := filepath.Join(dir, "password"), filepath.Join(dir, "ca.pem"),
		filepath.Join(dir, "config.yaml")
	kit.Must(t, s.dc.WriteCA(ca))
	kit.Must(t, os.WriteFile(password, []byte(s.dc.Password()), 0o600))
	list := ""
	builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
	for _, name := range []string{"n1", "n2", "n3"} {
		m := s.dc.AddMachine(name)
		s.m[name], s.bmc[name] = m, s.dc.AddBMC(m)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		n.Status.NodeInfo.SystemUUID = m.SystemUUID()
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		builder.WithObjects(n)
		list += fmt.Sprintf("    - {node: %s, id: %q}\n", name, s.bmc[name].URL())
	}
	builder.WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n4"}}) // whom no rule knows
	builder.WithObjects(tolerantPod("n3"))
	builder.WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
	s.api = interceptor.NewClient(builder.Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.FieldSelector != nil && strings.Contains(o.FieldSelector.String(), "!=") {
				o.FieldSelector = nil // the fake knows no selector of fields that differ
			}
			return c.List(ctx, l, o)
		}})
	kit.Must(t, os.WriteFile(file, fmt.Appendf(nil, "mode: fence\nproviders:\n- name: racks\n  redfish: {username: "+
		"%s, passwordFile: '%s', caFile: '%s'}\n"+
		"nodes:\n- name: all\n  provider: racks\n  machine:\n    from: list\n    list:\n%s", s.dc.Username(), password,
		ca, list), 0o600))
	s.d, s.file = &sessionFlags{types: all.Types(), client: s.api, file: file}, file
	return s
}

// tolerantPod returns a StatefulSet's pod on the node that tolerates everything.
func tolerantPod(node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tol-0", UID: "tol-0",
		Labels: map[string]string{"app": "tol"}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "tol", UID: "tol", Controller: new(true)}}}}
	p.Spec.NodeName, p.Spec.Tolerations = node, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return p
}

// run runs a command line as a shell would.
func (s *site) run(args ...string) (out string, err error) {
	s.t.Helper()
	var b bytes.Buffer
	root := &cobra.Command{Use: "forcefence", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newPower(s.d), newDrill(s.d), newExplain(s.d), newRoom(s.d))
	prepareCommands(root)
	if s.file != "" {
		args = append(args, "--config", s.file)
	}
	root.SetArgs(args)
	root.SetOut(&b)
	root.SetErr(&b)
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	err = root.ExecuteContext(ctx)
	return b.String(), err
}

func (s *site) change(name string, f func(*corev1.Node)) {
	s.t.Helper()
	var n corev1.Node
	kit.Must(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: name}, &n))
	f(&n)
	kit.Must(s.t, s.api.Update(s.t.Context(), &n))
}

func mark(value string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: taint.DefaultKey, Value: value, Effect: corev1.TaintEffectNoSchedule}}
	}
}

func (s *site) expect(want, failure string, args ...string) {
	s.t.Helper()
	out, err := s.run(args...)
	if (failure == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), failure) ||
		!strings.Contains(out, want) {
		s.t.Errorf("%s: got error %v, want %q, and this output, want %q in it:\n%s", strings.Join(args, " "), err,
			failure, want, out)
	}
	if strings.Contains(out+fmt.Sprint(err), s.dc.Password()) {
		s.t.Errorf("%s: the output has the password", strings.Join(args, " "))
	}
}

func (s *site) posts(name string) int {
	return s.bmc[name].Count("POST", "/redfish/v1/Systems/"+name+"/Actions/ComputerSystem.Reset")
}

func TestPower(t *testing.T) {
	s := newSite(t)
	on := func(name string, want bool) {
		t.Helper()
		if got := s.m[name].Running(); got != want {
			t.Errorf("machine %s runs: got %t, want %t", name, got, want)
		}
	}
	s.expect("", "no rule claims the node", "power", "off", "n4")
	s.expect("", "node n9 does not exist", "power", "off", "n9")

	// Nothing is sent without --yes.
	s.expect("its pods will end as in a power cut", "add --yes", "power", "off", "n1")
	on("n1", true)
	s.expect("the machine is Off", "", "power", "off", "n1", "--yes")
	on("n1", false)
	on("n2", true)
	sent := s.posts("n1")
	s.expect("the machine is Off", "", "power", "off", "n1", "--yes") // it is off already
	s.expect("", "add --yes", "power", "on", "n1")
	on("n1", false)
	if n := s.posts("n1"); n != sent {
		t.Errorf("got %d resets without a request", n-sent)
	}

	// In the middle of a fence a machine is not powered on, and may be powered off.
	s.change("n1", mark("manual"))
	s.expect("", "it is marked as shut down: the machine is not powered on", "power", "on", "n1", "--yes")
	s.change("n1", func(n *corev1.Node) {
		n.Spec.Taints = nil
		n.Annotations = map[string]string{taint.RecordAnnotation: "{"}
	})
	s.expect("", "cannot be read: the machine is not powered on", "power", "on", "n1", "--yes")
	s.change("n1", func(n *corev1.Node) { // not marked yet, or not any more
		n.Annotations[taint.RecordAnnotation] =
			taint.Record{ID: "f-1", NodeUID: "n1", By: "test"}.EnterPhase(taint.PhasePoweringOff, "", time.Now()).
				Encode()
	})
	s.expect("its fence f-1 is in phase PoweringOff", "the machine is not powered on", "power", "on", "n1", "--yes")
	on("n1", false)
	s.change("n2", mark("manual"))
	s.expect("it is marked as shut down", "", "power", "off", "n2", "--yes")
	on("n1", false)
	on("n2", false)
	s.change("n1", func(n *corev1.Node) { n.Annotations = nil })
	s.expect("accepted", "", "power", "on", "n1", "--yes")
	on("n1", true)

	// Accepted is not off, and another machine is not touched.
	s.bmc["n3"].SetFault(datacenter.Fault{StaysOn: true})
	s.expect("accepted", "was not Off within 2s", "power", "off", "n3", "--yes", "--wait", "2s")
	s.bmc["n3"].SetFault(datacenter.Fault{SystemUUID: "11111111-2222-4333-8444-555555555555"})
	s.expect("n3: The machine is Unknown, which never counts as off.", "1 of 1 node", "drill", "n3")
	s.expect("another machine", "1 of 1 node", "drill", "n3")
	s.expect("confirming the machine's identity", "identity mismatch", "power", "off", "n3", "--yes")
	on("n3", true)
	s.bmc["n3"].SetFault(datacenter.Fault{PowerWord: "Dozing"})
	s.expect(`"Dozing"`, "1 of 1 node", "drill", "n3")
}

// The fence began after the first look.
func TestPowerOnLooksAgain(t *testing.T) {
	s := newSite(t)
	s.m["n1"].CutPower()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	open, err := s.d.openSession(cmd, false)
	kit.Must(t, err)
	defer open.Close()
	p, err := open.ReadNodePower(t.Context(), "n1")
	kit.Must(t, err)
	s.change("n1", mark("f-1"))
	sent, err := p.SendPower(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "not powered on") || len(sent) > 0 || s.m["n1"].Running() {
		t.Errorf("got %v, error %v, running %t, want no device to be asked", sent, err, s.m["n1"].Running())
	}
}

// The fence began after the last look of Send, while the device was asked who its machine is.
func TestPowerOnLooksRightBeforeItSends(t *testing.T) {
	s := newSite(t)
	s.m["n1"].CutPower()
	api := &onGet{Client: s.api}
	s.d.client = api
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	open, err := s.d.openSession(cmd, false)
	kit.Must(t, err)
	defer open.Close()
	p, err := open.ReadNodePower(t.Context(), "n1")
	kit.Must(t, err)
	api.after = sync.OnceFunc(func() { s.change("n1", mark("f-1")) })
	if _, err := p.SendPower(t.Context(), true); !errors.Is(err, providers.ErrNotSent) || s.m["n1"].Running() {
		t.Errorf("got %v, running %t", err, s.m["n1"].Running())
	}
}

// onGet calls after behind each Get of a Node. A look reads the Node's Lease as well, in any order.
type onGet struct {
	client.Client
	after func()
}

func (o *onGet) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := o.Client.Get(ctx, key, into, opts...)
	if _, node := into.(*corev1.Node); node && o.after != nil {
		o.after()
	}
	return err
}

func TestDrill(t *testing.T) {
	s := newSite(t)
	s.expect("confirmed", "", "drill", "n1", "n2", "n3")
	s.m["n2"].CutPower() // off is an answer
	s.expect("n2     True", "", "drill", "n1", "n2")
	s.expect("no rule claims the node", "1 of 4 nodes cannot be fenced now", "drill")
	s.expect("", "node n9 does not exist", "drill", "n1", "n9")
	s.expect("", "use json, name, wide, yaml", "drill", "-o", "table")
	s.expect("node/n1\nnode/n4\n", "1 of 2 nodes", "drill", "n1", "node/n4", "-o", "name")
	s.expect("- detail: ", "", "drill", "n1", "-o", "yaml")
	s.expect("  state: \"On\"\n", "", "drill", "n1", "-o", "yaml")
	s.expect("n1: The machine is On.\n", "", "drill", "n1")
	s.expect("n2: The machine is Off.\n", "", "drill", "n1", "n2")
	s.change("n2", mark("manual"))
	s.expect("n2: it is marked as shut down.\n", "", "drill", "n2")
	s.expect("  fence: it is marked as shut down\n", "", "drill", "n2", "-o", "yaml")
	s.change("n2", func(n *corev1.Node) { n.Spec.Taints = nil })
	if out, _ := s.run("drill"); strings.Contains(out, "The machine is") {
		t.Errorf("without a name: got a line for each machine:\n%s", out)
	}
	s.expect("warning: If it is fenced, 1 pod stays: shop/tol-0 (tolerates the mark).", "", "drill", "n3")
	if out, _ := s.run("drill"); strings.Count(out, "no rule claims the node") != 1 ||
		strings.Count(out, "warning") != 1 {
		t.Errorf("got another count of the error than 1, or a warning:\n%s", out)
	}
	text, err := os.ReadFile(s.file)
	kit.Must(t, err)
	kit.Must(t, os.WriteFile(s.file, append(text, "    - {node: n9, id: 'https://192.0.2.1'}\n"...), 0o600))
	s.expect("nodes[0].machine.list: warning: the cluster has no node n9 (line 14).", "1 of 4 nodes", "drill")
	kit.Must(t, os.WriteFile(s.file, text, 0o600))

	s.bmc["n2"].SetFault(datacenter.Fault{PowerWord: "Dozing"})
	s.bmc["n3"].SetFault(datacenter.Fault{SystemUUID: "11111111-2222-4333-8444-555555555555"})
	out, err := s.run("drill", "-o", "json")
	if err == nil || err.Error() != "3 of 4 nodes cannot be fenced now" {
		t.Errorf("got %v", err)
	}
	var got []drilledNode
	kit.Must(t, json.Unmarshal([]byte(out), &got))
	want := map[string][3]string{
		"n1": {"True", "ok", "confirmed"}, "n2": {"False", "unknown", "confirmed"},
		"n3": {"False", "identity", "another machine"}, "n4": {"False", "", ""},
	}
	for _, n := range got {
		is := [3]string{string(n.Fenceable)}
		for _, d := range n.Devices {
			is[1], is[2] = d.Result, d.Identity
			if d.Seconds <= 0 || d.Device != "racks/"+s.bmc[n.Node].URL() {
				t.Errorf("%s: got device %+v", n.Node, d)
			}
		}
		if is != want[n.Node] || n.Reason == "" || n.Detail == "" {
			t.Errorf("%s: got %v, want %v: %+v", n.Node, is, want[n.Node], n)
		}
		delete(want, n.Node)
	}
	if len(want) > 0 {
		t.Errorf("no word of %v", want)
	}
}

// With a password of each machine's own, a drill shows which file is whose, and one that is missing is that machine's
// matter alone.
func TestDrillShowsOwnFiles(t *testing.T) {
	s := newSite(t)
	folder := t.TempDir()
	text, err := os.ReadFile(s.file)
	kit.Must(t, err)
	_, rest, _ := strings.Cut(string(text), "passwordFile: ")
	_, rest, _ = strings.Cut(rest, ",")
	kit.Must(t, os.WriteFile(s.file, fmt.Appendf(nil, "mode: fence\nproviders:\n- name: racks\n  redfish: {username: "+
		"%s, passwordFile: '%s/{name}',%s",
		s.dc.Username(), folder, rest), 0o600))
	for _, name := range []string{"n1", "n2"} {
		kit.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(s.dc.Password()), 0o600))
	}
	quoted := regexp.QuoteMeta(folder)
	table := regexp.MustCompile(`(?s)\n\nNODE +PROVIDER +FILE +SECRET\nn1 +racks +` + quoted +
		`/n1 +there\nn2 +racks +` + quoted + `/n2 +there\nn3 +racks +` + quoted + `/n3 +missing\n`)
	if out, err := s.run("drill", "n1", "n2", "n3"); err == nil ||
		err.Error() != "1 of 3 nodes cannot be fenced now" || !table.MatchString(out) ||
		!strings.Contains(out, "reading secret of node n3: "+folder+"/n3: no such file") ||
		strings.Contains(out, s.dc.Password()) {
		t.Errorf("got error %v\n%s", err, out)
	}
	if out, err := s.run("drill", "n3", "-o", "json"); err == nil ||
		!strings.Contains(out, `"file": "`+folder+`/n3"`) ||
		!strings.Contains(out, `"error": "reading secret of node n3`) {
		t.Errorf("got error %v\n%s", err, out)
	}
	var out, stderr strings.Builder
	if status := run([]string{"check-config", s.file}, all.Types(), &out, &stderr); status != 0 ||
		!table.MatchString("\n\n"+out.String()) ||
		!strings.Contains(stderr.String(), "nodes[0].machine.list[2]: warning: this machine cannot be asked, but the "+
			"others can") ||
		strings.Contains(out.String()+stderr.String(), s.dc.Password()) {
		t.Errorf("check-config: got %d\n%s%s", status, out.String(), stderr.String())
	}
	kit.Must(t, os.WriteFile(filepath.Join(folder, "n3"), []byte(s.dc.Password()), 0o600))
	s.expect(folder+"/n3   there", "", "drill", "n3")
}

// A device that lied once is not believed, and of a machine that its kubelet may have named, and that was never pinned,
// the power is not touched, whatever a person says of the rest.
func TestWhoIsNotBelieved(t *testing.T) {
	s := newSite(t)
	lied := taint.Record{ID: "f-1", NodeUID: "u", By: "test", Phase: taint.PhaseDone,
		Result: taint.ResultNeverPoweredOff, Device: "racks/" + s.bmc["n1"].URL()}
	s.change("n1", func(n *corev1.Node) { n.Annotations = map[string]string{taint.RecordAnnotation: lied.Encode()} })
	s.m["n1"].CutPower()
	s.expect("record of node n1", "1 of 1 node", "drill", "n1")
	s.expect("The machine is Unknown, which never counts as off.", "1 of 1 node", "drill", "n1")

	text, err := os.ReadFile(s.file)
	kit.Must(t, err)
	rules := strings.Index(string(text), "  machine:")
	kit.Must(t, os.WriteFile(s.file, append(text[:rules:rules], "  machine: {from: annotation, annotation: bmc, "+
		"allow: [127.0.0.1]}\n"...), 0o600))
	s.change("n2", func(n *corev1.Node) { n.Annotations = map[string]string{"bmc": s.bmc["n2"].URL()} })
	s.expect("never pinned", "identity mismatch", "power", "off", "n2", "--yes")
	if !s.m["n2"].Running() {
		t.Error("the machine went off")
	}
	s.expect("n2     True", "", "drill", "n2") // while it is healthy, the controller is about to pin it
	var n2 corev1.Node
	kit.Must(t, s.api.Get(t.Context(), client.ObjectKey{Name: "n2"}, &n2))
	n2.Status.Conditions[0].Status = corev1.ConditionUnknown
	kit.Must(t, s.api.Status().Update(t.Context(), &n2))
	s.expect("never pinned", "1 of 1 node", "drill", "n2")
}

// A refused password is sent to each BMC once, in a drill as in anything else.
func TestDrillLocksNoAccount(t *testing.T) {
	s := newSite(t)
	s.dc.SetPassword("another")
	_, err := s.run("drill", "n1", "n2", "n3")
	if err == nil || !strings.Contains(err.Error(), "3 of 3") {
		t.Error(errors.New("want three nodes that could not be fenced"), err)
	}
	for name, b := range s.bmc {
		n := 0
		for _, r := range b.Requests() {
			if r.Password {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s's BMC was sent a password %d times, want once", name, n)
		}
	}
}
