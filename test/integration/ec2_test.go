package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cloud"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

const zone = "eu-west-1a"

// inCloud is a world whose nodes run on instances; the configuration is the default one, except for the address of EC2.
type inCloud struct {
	*world
	cloud     *cloud.Cloud
	instances []*cloud.Instance
	settings  settings
}

// providerID of the node with that index: 0 for the first.
func providerID(i int) string { return fmt.Sprintf("aws:///%s/i-%017x", zone, i+1) }

func newCloud(t *testing.T, nodes int, node func(i int, o *cluster.NodeOptions)) *inCloud {
	t.Helper()
	p := plan{nodes: nodes, node: func(i int, o *cluster.NodeOptions) {
		o.ProviderID = providerID(i)
		o.Address = fmt.Sprintf("10.9.0.%d", i+1) // who the machine is: one of the loopback would not tell
		delete(o.Labels, "room")
		node(i, o)
	}}
	c, err := cloud.Start(map[string]string{zone: "eu-west-1"})
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, c.Close()) })
	w := &inCloud{cloud: c}
	w.world = newWorld(t, p)
	for i, h := range w.hosts {
		_, id, _ := strings.Cut(strings.TrimPrefix(providerID(i), "aws:///"), "/")
		w.instances = append(w.instances, c.Add(cloud.Options{ID: id, Zone: zone, Address: w.address(h)}))
	}
	k := c.NewKey()
	w.settings = settings{
		Selector: "nothing=here",
		Top:      "lines: {port: 0}", // no listener is there
		Env: []string{
			"AWS_ACCESS_KEY_ID=" + k.ID, "AWS_SECRET_ACCESS_KEY=" + k.Secret, "AWS_SESSION_TOKEN=",
			"AWS_EC2_METADATA_DISABLED=true",
			"AWS_CONFIG_FILE=/nonexistent", "AWS_SHARED_CREDENTIALS_FILE=/nonexistent",
		},
		Providers: fmt.Sprintf("- name: aws\n  ec2: {regions: [eu-west-1], endpoint: %q}", c.URL()),
		Rules: fmt.Sprintf("- {name: instances, selector: %q, provider: aws, machine: {from: providerID}}\n- {name: "+
			"noted, selector: %q, provider: aws, machine: {from: annotation, annotation: %s}}",
			"!noted,world="+w.ns, "noted,world="+w.ns, bmcAnnotation),
	}
	return w
}

// address is what the Node tells.
func (w *inCloud) address(h *host) string {
	w.t.Helper()
	for _, a := range w.node(h).Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	w.t.Fatalf("node %s has no address", h.Name())
	return ""
}

// A kubelet that claims another instance, its address included, is not believed: its pin stays, and nothing is stopped,
// however long it is silent then. With its own instance, a silent node is powered off.
func TestKubeletCannotStopOtherInstances(t *testing.T) {
	const forger, honest = 0, 1
	w := newCloud(t, 5, func(i int, o *cluster.NodeOptions) {
		if i == forger {
			o.Labels["noted"] = ""
			o.Annotations[bmcAnnotation] = providerID(forger)
		}
	})
	victim := w.cloud.Add(cloud.Options{Zone: zone, Address: "10.9.9.9"}) // of no node
	h := w.hosts[forger]
	for i := range 2 {
		w.create(w.bare(fmt.Sprintf("pod-%d", i), w.hosts[i]))
	}
	kit.Must(t, w.WaitReadyPods(w.ctx, w.ns, 2))
	set := w.settings
	set.Mode = "fence"
	w.start(set)
	w.untilPinned(h, w.hosts[honest])
	pin := w.node(h).Labels[taint.PinLabel]

	kubelet, err := kubernetes.NewForConfig(w.RESTConfigFor("system:node:"+h.Name(), "system:nodes"))
	kit.Must(t, err)
	patch := func(body, sub string) {
		_, err := kubelet.CoreV1().Nodes().
			Patch(w.ctx, h.Name(), types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{},
				strings.Fields(sub)...)
		kit.Must(t, err)
	}
	patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, bmcAnnotation, victim.ProviderID()), "")
	if told := w.untilEvent("Node", h.Name(), "MachineNotBelieved"); !strings.Contains(told,
		"no node gets another instance") {
		t.Errorf("told %q", told)
	}
	h.partition()
	patch(`{"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"}]}}`, "status")
	w.hosts[honest].partition()

	w.until("power-off of the honest node", func() bool { return !w.instances[honest].Running() })
	w.hosts[honest].cut()
	w.untilDone(w.hosts[honest], taint.ResultEvicted)
	w.untilEvent("Node", h.Name(), "NoMachine")
	w.during(5*time.Second, "another's instance", func() error {
		if n := w.cloud.Calls("", "StopInstances"); n != 1 || !victim.Running() || !w.instances[forger].Running() {
			return fmt.Errorf("%d stops, the victim runs %t, the forger's own %t", n, victim.Running(),
				w.instances[forger].Running())
		}
		return w.alone(h)
	})
	if got := w.node(h).Labels[taint.PinLabel]; got != pin {
		t.Errorf("pin: got %q, was %q", got, pin)
	}
}
