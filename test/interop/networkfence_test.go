package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

var (
	addons         = schema.GroupVersion{Group: "csiaddons.openshift.io", Version: "v1alpha1"}
	networkFences  = addons.WithResource("networkfences")
	csiAddonsNodes = addons.WithResource("csiaddonsnodes")
	leaseObjects   = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// The messages of a NetworkFence's status, by which alone one knows what the storage did.
const (
	fencedMessage   = "fencing operation successful"
	unfencedMessage = "unfencing operation successful"
)

// storage is a CSI driver on some nodes, which CSI-Addons' manager calls by gRPC.
type storage struct {
	w       *world
	dir     string // of the files by which the driver is steered
	drivers map[string]*exec.Cmd
}

// call is what the driver was asked to do, or has done.
type call struct {
	Node, What string
	CIDRs      []string
	At         time.Time
}

const driversIn = binaries.CSIAddons + "-system" // the driver's namespace

// newStorage makes a class for the driver, which runs on no node yet.
func newStorage(t *testing.T, w *world) *storage {
	t.Helper()
	t.Cleanup(func() {
		if text, err := os.ReadFile(w.part.LogFile()); t.Failed() {
			t.Logf("the manager printed (%v):\n%s", err, text[max(0, len(text)-6000):])
		}
	})
	w.create(fmt.Sprintf("{apiVersion: %s, kind: NetworkFenceClass, metadata: {name: sim}, spec: {provisioner: %s}}",
		addons, cluster.CSIDriver))
	return &storage{w: w, dir: t.TempDir(), drivers: map[string]*exec.Cmd{}}
}

// run starts the driver on a node, whose client has these addresses, and makes what its sidecar makes: the
// CSIAddonsNode. The pod runs nowhere; it is how the manager finds the address.
func (s *storage) run(t *testing.T, node string, cidrs ...string) {
	t.Helper()
	bin, err := binaries.Build(t.Context(), binaries.Options{Names: []string{binaries.CSIDriver}})
	kit.Must(t, err)
	address := kit.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	kit.Must(t, err)
	cmd := exec.Command(filepath.Join(bin, binaries.CSIDriver), "-listen", address, "-node", node, "-dir", s.dir,
		"-cidrs", strings.Join(cidrs, ","))
	cmd.Stderr = os.Stderr
	kit.Must(t, cmd.Start())
	s.drivers[node] = cmd
	t.Cleanup(func() { s.stop(node) })
	kit.Until(t, "the driver listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	s.w.create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: driver-%s}, spec: {`+
		`schedulerName: none, containers: [{name: sidecar, image: sim.forcefence.io/app:1}]}}`, driversIn, node))
	s.w.patch(corev1.SchemeGroupVersion.WithResource("pods"), driversIn, "driver-"+node,
		`{"status":{"podIP":"127.0.0.1","podIPs":[{"ip":"127.0.0.1"}]}}`, "status")
	s.w.create(fmt.Sprintf(`{apiVersion: %s, kind: CSIAddonsNode, metadata: {namespace: %s, name: %s}, spec: {`+
		`driver: {name: %s, nodeID: %[3]s, endpoint: "pod://driver-%[3]s.%[2]s:%[5]s"}}}`,
		addons, driversIn, node, cluster.CSIDriver, port))
}

// stop ends the driver of a node, as the node's death does.
func (s *storage) stop(node string) {
	if cmd := s.drivers[node]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(s.drivers, node)
	}
}

// lead makes the driver of a node the one that is asked.
func (s *storage) lead(node string) {
	s.w.t.Helper()
	name := strings.ReplaceAll(cluster.CSIDriver, ".", "-") + "-csi-addons"
	if s.w.find(leaseObjects, driversIn, name) == nil {
		s.w.create(fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: %s, name: %s}}",
			driversIn, name))
	}
	s.w.patch(leaseObjects, driversIn, name, fmt.Sprintf(`{"spec":{"holderIdentity":"driver-%s"}}`, node))
}

// steer writes one of the driver's files; "" removes it.
func (s *storage) steer(file, text string) {
	s.w.t.Helper()
	path := filepath.Join(s.dir, file)
	if text != "" {
		kit.Must(s.w.t, os.WriteFile(path, []byte(text), 0o600))
	} else if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		kit.Must(s.w.t, err)
	}
}

// calls returns what the driver did with an address, in order.
func (s *storage) calls(cidr string) (out []call) {
	s.w.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "calls"))
	if !errors.Is(err, os.ErrNotExist) {
		kit.Must(s.w.t, err)
	}
	for line := range strings.Lines(string(text)) {
		var c call
		kit.Must(s.w.t, json.Unmarshal([]byte(line), &c))
		if slices.Contains(c.CIDRs, cidr) {
			out = append(out, c)
		}
	}
	return out
}

// count counts the calls of one kind.
func count(all []call, what string) (n int) {
	for _, c := range all {
		if c.What == what {
			n++
		}
	}
	return n
}

// text is a text in an object; "" if there is none.
func text(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// untilMessage waits until the status of a NetworkFence has that message.
func (w *world) untilMessage(name, result, message string) {
	w.t.Helper()
	w.until(fmt.Sprintf("NetworkFence %s shows %q", name, message), func() bool {
		o := w.find(networkFences, "", name)
		return text(o, "status", "result") == result && strings.Contains(text(o, "status", "message"), message)
	})
}

// reportedClients returns the addresses in a CSIAddonsNode's status, by its exact key.
func (w *world) reportedClients(node string) (out []string) {
	w.t.Helper()
	o := w.find(csiAddonsNodes, driversIn, node)
	if o == nil {
		return nil
	}
	classes, _, _ := unstructured.NestedSlice(o.Object, "status", "networkFenceClientStatus")
	for _, c := range classes {
		details, _, _ := unstructured.NestedSlice(c.(map[string]any), "ClientDetails")
		for _, d := range details {
			cidrs, _, _ := unstructured.NestedStringSlice(d.(map[string]any), "cidrs")
			out = append(out, cidrs...)
		}
	}
	return out
}

// fence makes a NetworkFence by hand.
func (w *world) fence(name, cidr string) {
	w.t.Helper()
	w.create(fmt.Sprintf("{apiVersion: %s, kind: NetworkFence, metadata: {name: %s}, spec: {"+
		"networkFenceClassName: sim, fenceState: Fenced, cidrs: [%s]}}", addons, name, cidr))
}

// TestCSIAddons holds what forcefence relies on of CSI-Addons' own manager (F48).
func TestCSIAddons(t *testing.T) {
	w := newWorld(t, CSIAddons)
	s := newStorage(t, w)
	s.run(t, "n0", "10.77.0.1/32")
	s.run(t, "n1", "10.77.0.2/32", "10.77.0.3/32")
	w.until("the clients' addresses are reported", func() bool {
		return slices.Equal(w.reportedClients("n0"), []string{"10.77.0.1/32"}) && len(w.reportedClients("n1")) == 2
	})

	// Without a leader nothing is called, and the status says nothing. With one it goes on by itself.
	w.fence("leaderless", "10.77.0.2/32")
	w.logged("leaderless", "no leader found for driver")
	if o := w.find(networkFences, "", "leaderless"); text(o, "status", "message") != "" {
		t.Errorf("status without a leader: got %v, want none", o.Object["status"])
	}
	s.lead("n0")
	w.untilMessage("leaderless", "Succeeded", fencedMessage)
	// The manager writes empty fields into the spec with its finalizer, which calls the driver once more.
	w.until("the driver has fenced twice", func() bool { return count(s.calls("10.77.0.2/32"), "fence") == 2 })
	if o := w.find(networkFences, "", "leaderless"); o.GetGeneration() != 2 {
		t.Errorf("generation of a fence that only the manager changed: got %d, want 2", o.GetGeneration())
	}

	// The driver's failure is in the message, and it is tried again.
	s.steer("fail", "no quorum of monitors")
	w.fence("failing", "10.77.0.3/32")
	w.untilMessage("failing", "Failed", "no quorum of monitors")
	s.steer("fail", "")
	w.untilMessage("failing", "Succeeded", fencedMessage)

	// After a change of the state the old success stays until the driver has answered.
	s.steer("hold", "x")
	w.patch(networkFences, "", "leaderless", `{"spec":{"fenceState":"Unfenced"}}`)
	w.until("the driver is asked to unfence", func() bool {
		return count(s.calls("10.77.0.2/32"), "asked to unfence") > 0
	})
	if o := w.find(networkFences, "", "leaderless"); text(o, "status", "message") != fencedMessage ||
		text(o, "status", "result") != "Succeeded" || o.GetGeneration() != 3 {
		t.Errorf("while unfencing: got %v, generation %d, want the old success and generation 3", o.Object["status"],
			o.GetGeneration())
	}
	s.steer("hold", "")
	w.untilMessage("leaderless", "Succeeded", unfencedMessage)

	// Deleting a fence lets nothing in.
	_, err := w.Kubectl(w.ctx, "delete", "networkfence", "leaderless", "failing", "--timeout=2m")
	kit.Must(t, err)
	if n := count(s.calls("10.77.0.3/32"), "asked to unfence"); n != 0 {
		t.Errorf("deleted while Fenced: got %d calls that unfence, want none", n)
	}

	// The leader dies with its node: the call fails until another leads.
	s.stop("n0")
	w.fence("after", "10.77.0.1/32")
	w.until("the manager fails to reach the leader", func() bool {
		o := w.find(networkFences, "", "after")
		return text(o, "status", "result") == "Failed" || count(s.calls("10.77.0.1/32"), "fence") > 0
	})
	if n := count(s.calls("10.77.0.1/32"), "fence"); n != 0 {
		t.Errorf("got %d fences by a dead leader", n)
	}
	s.lead("n1")
	w.untilMessage("after", "Succeeded", fencedMessage)
	if all := s.calls("10.77.0.1/32"); len(all) == 0 || all[0].Node != "n1" {
		t.Errorf("calls after the leader's death: got %+v, want them at n1", all)
	}

	// A manager that starts again deletes the object of a driver that does not answer, and with it the addresses.
	w.part.Stop()
	kit.Must(t, w.part.Start(w.ctx))
	w.until("the CSIAddonsNode of the dead node is gone", func() bool {
		return w.find(csiAddonsNodes, driversIn, "n0") == nil
	})
	if got := w.reportedClients("n1"); len(got) != 2 {
		t.Errorf("addresses of the living node: got %v, want two", got)
	}
}

// TestStorageFence plays forcefence with CSI-Addons and machines. As TestFence it does not run beside the other tests.
func TestStorageFence(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	t.Run("CSIAddons", func(t *testing.T) {
		f, dir := newHosts(t, fleetOptions{start: CSIAddons, hosts: map[string]int{"Cut": 2, "Shared": 2}})
		s := newStorage(t, f.world)
		addresses := map[string]string{}
		for i, h := range f.hosts.Hosts {
			address := fmt.Sprintf("10.77.0.%d/32", i+1)
			if strings.HasPrefix(h.Name(), "shared-") {
				address = "10.77.0.100/32"
			}
			addresses[h.Name()] = address
			s.run(t, h.Name(), address)
		}
		s.lead("idle-n0")
		f.until("the clients' addresses are reported", func() bool {
			return !slices.ContainsFunc(f.hosts.Hosts, func(h *machine.Host) bool {
				return len(f.reportedClients(h.Name())) == 0
			})
		})
		config := f.start(program, dir, "mode: observe\npolicies:\n- {name: sim, drivers: ["+cluster.CSIDriver+"], "+
			"networkFenceClasses: [sim], fenceDelay: 10s, withoutProof: storage-fences}\n")
		f.play(t, map[string]func(*testing.T, *fleet){
			"Cut":    func(t *testing.T, f *fleet) { storageFenceCut(t, f, s, addresses, program, config) },
			"Shared": func(t *testing.T, f *fleet) { storageFenceShared(t, f, s) },
		})
	})
}

// The driver reports one address for two nodes: none of them is cut off, and the pod stays.
func storageFenceShared(t *testing.T, f *fleet, s *storage) {
	f, hosts := f.story(t)
	h, _ := f.inhabit(hosts)
	h.StopHeartbeats()
	f.untilEvent(h.Name(), "StorageNotFenced", "10.77.0.100/32 is also an address of node")
	f.during(20*time.Second, "a node whose address is shared keeps its pod", func() bool {
		pods := f.Pods(f.name)
		return len(pods) == 1 && pods[0].Spec.NodeName == h.Name() && len(s.calls("10.77.0.100/32")) == 0
	})
}

// A node is cut off from the API server while its machine runs on. Its pod moves only once the storage has cut it off,
// which fails at first. It is let in when its machine has booted.
func storageFenceCut(t *testing.T, f *fleet, s *storage, addresses map[string]string, program, config string) {
	f, hosts := f.story(t)
	h, _ := f.inhabit(hosts)
	cidr := addresses[h.Name()]
	explained, err := exec.CommandContext(f.ctx, program, "explain", h.Name(), "--no-devices", "--config", config,
		"--kubeconfig", f.Kubeconfig()).CombinedOutput()
	if want := "would have the storage cut off " + cidr + " by class sim"; err != nil ||
		!strings.Contains(strings.Join(strings.Fields(string(explained)), " "), want) {
		t.Errorf("explain: got %v, %s\nwant %q", err, explained, want)
	}
	s.steer("fail", "no quorum of monitors")
	h.StopHeartbeats()
	f.untilEvent(h.Name(), "PolicyFencingStorage", cidr)
	f.untilEvent(h.Name(), "StorageNotFenced", "NetworkFence")
	f.during(10*time.Second, "the pod stays while the storage fails", func() bool {
		pods := f.Pods(f.name)
		return len(pods) == 1 && pods[0].Spec.NodeName == h.Name() && pods[0].Status.Phase == corev1.PodRunning
	})
	s.steer("fail", "")
	f.untilReplaced(h)
	calls := s.calls(cidr)
	if len(calls) == 0 || count(calls, "fence") == 0 || count(calls, "asked to unfence") > 0 {
		t.Fatalf("calls for %s: got %+v, want it fenced, and not unfenced", cidr, calls)
	}
	var fenced time.Time
	for _, c := range calls {
		if c.What == "fence" && fenced.IsZero() {
			fenced = c.At
		}
	}
	for _, v := range f.Ledger().Violations(cluster.TwoPods, cluster.TwoWriters) {
		if v.At.Before(fenced) {
			kit.Harm(t, "before the storage had cut the node off: %s", v)
		}
	}
	if !h.Machine.Running() || resets(h) != 0 {
		t.Errorf("machine: runs %t, %d power-offs, want it left alone", h.Machine.Running(), resets(h))
	}

	// It is back on the same boot: it stays cut off.
	h.ResumeHeartbeats()
	f.untilEvent(h.Name(), "StorageFenceKept", "on the boot on which it was cut off")
	f.during(10*time.Second, "the node stays cut off", func() bool {
		return count(s.calls(cidr), "asked to unfence") == 0 && f.fenceOf(h.Name()) != nil
	})

	// Its machine boots: it is let in, and the object goes only after that.
	s.steer("hold", "x")
	kit.Must(t, h.Machine.CutPower())
	kit.Must(t, f.hosts.Boot(f.ctx, []string{h.Name()}, nil))
	f.until("the driver is asked to let the node in", func() bool {
		return count(s.calls(cidr), "asked to unfence") > 0
	})
	f.during(7*time.Second, "the object stays until the driver has answered", func() bool {
		o := f.fenceOf(h.Name())
		return o != nil && o.GetDeletionTimestamp() == nil
	})
	s.steer("hold", "")
	f.until("the object is gone", func() bool { return f.fenceOf(h.Name()) == nil })
	if n := count(s.calls(cidr), "unfence"); n == 0 {
		t.Error("the object is gone, and the driver never let the node in")
	}
	f.untilEvent(h.Name(), "StorageUnfenced", "NetworkFence forcefence-")
}

// fenceOf returns forcefence's NetworkFence of a node; nil: there is none.
func (w *world) fenceOf(node string) *unstructured.Unstructured {
	w.t.Helper()
	list, err := w.dynamic.Resource(networkFences).List(w.ctx, metav1.ListOptions{})
	kit.Must(w.t, err)
	for i := range list.Items {
		if list.Items[i].GetAnnotations()["forcefence.io/node"] == node {
			return &list.Items[i]
		}
	}
	return nil
}

// untilEvent waits for an Event of a Node with that reason and a part of its text.
func (w *world) untilEvent(node, why, part string) {
	w.t.Helper()
	w.until(fmt.Sprintf("Event %s of %s: %s", why, node, part), func() bool {
		list, err := w.Client().CoreV1().Events(metav1.NamespaceAll).List(w.ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node + ",reason=" + why})
		kit.Must(w.t, err)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, part) })
	})
}
