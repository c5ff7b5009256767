package discover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/all"
	"github.com/forcefence/forcefence/providers/redfish"
)

// uuid returns the system UUID of machine i.
func uuid(i int) string { return fmt.Sprintf("4c4c4544-0000-4000-8000-%012d", i) }

func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func systemUUID(i int) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid(i) }
}

func providerID(id string) func(*corev1.Node) { return func(n *corev1.Node) { n.Spec.ProviderID = id } }

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// server returns a BMC with the systems of these machines.
func server(id string, machines ...int) BMC {
	b := BMC{ID: id, Protocol: Redfish}
	for _, i := range machines {
		path := fmt.Sprintf("/redfish/v1/Systems/%d", i)
		b.Systems = append(b.Systems, redfish.SystemIdentity{Path: path, UUID: uuid(i)})
	}
	return b
}

func TestDevices(t *testing.T) {
	host := func(name, address string) Host {
		return Host{Namespace: "metal3", Name: name, UID: "uid-" + name, Address: address, Credentials: name + "-bmc"}
	}
	onHost := func(name string) func(*corev1.Node) { return providerID("metal3://metal3/" + name + "/machine") }
	fingerprinted := server("https://10.0.0.1", 1)
	fingerprinted.Fingerprint = "ab"
	swapped := server("https://10.0.0.1", 1)
	swapped.Systems[0].UUID = "44454c4c-0000-0040-8000-000000000001" // the bytes in the other order
	for _, tc := range []struct {
		name    string
		nodes   []*corev1.Node
		hosts   []Host
		bmcs    []BMC
		matches []Match
		nodes2  []Left // a part of Why
		devices []Left
	}{
		{name: "by system UUID", nodes: []*corev1.Node{node("n1", systemUUID(1))}, bmcs: []BMC{fingerprinted},
			matches: []Match{
				{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", By: "system UUID", Fingerprint: "ab"}}},
		{name: "in the other byte order", nodes: []*corev1.Node{node("n1", systemUUID(1))}, bmcs: []BMC{swapped},
			matches: []Match{{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", By: "system UUID"}}},
		{name: "an enclosure's systems, one of them no node's",
			nodes: []*corev1.Node{node("n2", systemUUID(2)), node("n1", systemUUID(1))},
			bmcs:  []BMC{server("https://10.0.0.1", 1, 2, 3)},
			matches: []Match{
				{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1/redfish/v1/Systems/1", By: "system UUID"},
				{Node: "n2", Protocol: Redfish, ID: "https://10.0.0.1/redfish/v1/Systems/2", By: "system UUID"}},
			devices: []Left{{"https://10.0.0.1", "1 of its 3 systems are no node's"}}},
		{name: "placeholders match nothing",
			nodes: []*corev1.Node{node("n1", func(n *corev1.Node) {
				n.Status.NodeInfo.SystemUUID = "00000000-0000-0000-0000-000000000000"
			})},
			bmcs: []BMC{{ID: "https://10.0.0.1", Protocol: Redfish,
				Systems: []redfish.SystemIdentity{{UUID: "00000000-0000-0000-0000-000000000000"}, {UUID: ""}}}},
			nodes2:  []Left{{"n1", "identifies no machine"}},
			devices: []Left{{"https://10.0.0.1", "none of its systems"}}},
		{name: "two BMCs claim one system UUID", nodes: []*corev1.Node{node("n1", systemUUID(1))},
			bmcs:    []BMC{server("https://10.0.0.1", 1), server("https://10.0.0.2", 1)},
			nodes2:  []Left{{"n1", "two devices fit: https://10.0.0.1 and https://10.0.0.2"}},
			devices: []Left{{"https://10.0.0.1", ""}, {"https://10.0.0.2", ""}}},
		{name: "two nodes claim one system UUID",
			nodes:   []*corev1.Node{node("n1", systemUUID(1)), node("n2", systemUUID(1))},
			bmcs:    []BMC{server("https://10.0.0.1", 1)},
			nodes2:  []Left{{"n1", "node n2 leads to the same device"}, {"n2", "node n1 leads to the same device"}},
			devices: []Left{{"https://10.0.0.1", ""}}},
		{name: "a system whose path is no ID", nodes: []*corev1.Node{node("n1", systemUUID(1))},
			bmcs: []BMC{{ID: "https://10.0.0.1", Protocol: Redfish, Systems: []redfish.SystemIdentity{
				{Path: "/redfish/v1/Systems/..", UUID: uuid(1)},
				{Path: "@10.9.9.9/redfish/v1/Systems/2", UUID: uuid(1)}}}},
			nodes2:  []Left{{"n1", "no device reports its system UUID"}},
			devices: []Left{{"https://10.0.0.1", ""}}},
		{name: "by Metal3", nodes: []*corev1.Node{node("n1", onHost("h1")), node("n2", onHost("h2"))},
			hosts: []Host{host("h1", "redfish-virtualmedia://10.0.0.1/redfish/v1/Systems/1"),
				host("h2", "ipmi://10.0.0.2"), host("h3", "redfish://10.0.0.3"), host("h4", "redfish+http://10.0.0.4")},
			matches: []Match{
				{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1/redfish/v1/Systems/1",
					By: "BareMetalHost metal3/h1 (providerID)", Secret: "metal3/h1-bmc"},
				{Node: "n2", Protocol: IPMI, ID: "ipmi://10.0.0.2", By: "BareMetalHost metal3/h2 (providerID)",
					Secret: "metal3/h2-bmc"}},
			devices: []Left{
				{"BareMetalHost metal3/h3", "no node is its own"}, {"BareMetalHost metal3/h4", "plain HTTP"}}},
		{name: "the BMC's own word counts more than Metal3's",
			nodes:   []*corev1.Node{node("n1", systemUUID(1), onHost("h1"))},
			hosts:   []Host{host("h1", "redfish://10.0.0.2")},
			bmcs:    []BMC{server("https://10.0.0.1", 1)},
			matches: []Match{{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", By: "system UUID"}},
			devices: []Left{{"BareMetalHost metal3/h1", "no node is its own"}}},
		{name: "both agree: the Secret is known, too",
			nodes: []*corev1.Node{node("n1", systemUUID(1), onHost("h1"))},
			hosts: []Host{host("h1", "redfish://10.0.0.1/redfish/v1/Systems/1")},
			bmcs:  []BMC{server("https://10.0.0.1", 1)},
			matches: []Match{
				{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", By: "system UUID", Secret: "metal3/h1-bmc"}}},
		{name: "a node that Metal3 leads to another node's machine",
			nodes:   []*corev1.Node{node("n1", systemUUID(1)), node("n2", systemUUID(2), onHost("h2"))},
			hosts:   []Host{host("h2", "redfish://10.0.0.1/redfish/v1/Systems/1")},
			bmcs:    []BMC{server("https://10.0.0.1", 1)},
			matches: []Match{{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", By: "system UUID"}},
			nodes2:  []Left{{"n2", "node n1 leads to the same device"}}},
		{name: "IPMI without a host", nodes: []*corev1.Node{node("n1", systemUUID(1), providerID("other://1"))},
			bmcs:    []BMC{{ID: "ipmi://10.0.0.1", Protocol: IPMI, Trouble: "it speaks IPMI"}},
			nodes2:  []Left{{"n1", "its providerID (other) leads to none"}},
			devices: []Left{{"ipmi://10.0.0.1", "it speaks IPMI"}}},
		{name: "IPMI of a host", nodes: []*corev1.Node{node("n1", onHost("h1"))}, hosts: []Host{host("h1", "10.0.0.1")},
			bmcs: []BMC{{ID: "ipmi://10.0.0.1", Protocol: IPMI, Trouble: "it speaks IPMI"}},
			matches: []Match{{Node: "n1", Protocol: IPMI, ID: "ipmi://10.0.0.1",
				By: "BareMetalHost metal3/h1 (providerID)", Secret: "metal3/h1-bmc"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Devices(tc.nodes, tc.hosts, tc.bmcs)
			for i := range got.Matches {
				got.Matches[i].rank = 0
			}
			if diff := cmp.Diff(tc.matches, got.Matches, cmp.AllowUnexported(Match{})); diff != "" {
				t.Errorf("matches: -want +got:\n%s", diff)
			}
			compareLeft(t, "nodes", got.Nodes, tc.nodes2)
			compareLeft(t, "devices", got.Devices, tc.devices)
		})
	}
}

// compareLeft compares what is left without a match; want has a part of each reason.
func compareLeft(t *testing.T, what string, got, want []Left) {
	t.Helper()
	isSame := func(a, b Left) bool { return a.Name == b.Name && strings.Contains(a.Why, b.Why) }
	if !slices.EqualFunc(got, want, isSame) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// A Node is a host's as Metal3 itself knows it; a stronger sign that says otherwise excludes a weaker one.
func TestMatchedBy(t *testing.T) {
	h := Host{Namespace: "metal3", Name: "h1", UID: "5f1c", Consumer: "m1", ConsumerNamespace: "metal3",
		Hostname: "worker-1", Addresses: []string{"192.0.2.1"}}
	address := func(ip string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		}
	}
	machine := func(namespace, name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			annotated("cluster.x-k8s.io/cluster-namespace", namespace)(n)
			annotated("cluster.x-k8s.io/machine", name)(n)
		}
	}
	label := func(uid string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels["metal3.io/uuid"] = uid }
	}
	for _, tc := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"providerID with the UID", node("x", providerID("metal3://5f1c")), "providerID"},
		{"providerID with the name", node("x", providerID("metal3://metal3/h1/m1")), "providerID"},
		{"OpenShift's providerID", node("x", providerID("baremetalhost:///metal3/h1/5f1c")), "providerID"},
		{"providerID of another host", node("worker-1", providerID("metal3://metal3/h2/m1")), ""},
		{"another provider", node("x", providerID("aws:///metal3/h1/5f1c")), ""},
		{"label", node("x", label("5f1c")), "label metal3.io/uuid"},
		{"label of another host", node("worker-1", label("77")), ""},
		{"Cluster API's Machine", node("x", machine("metal3", "m1")), "consumerRef"},
		{"a Machine of another namespace", node("worker-1", machine("other", "m1")), ""},
		{"OpenShift's Machine", node("x", annotated("machine.openshift.io/machine", "metal3/m1")), "consumerRef"},
		{"hostname", node("worker-1"), "hostname"},
		{"hostname label", node("x", func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "worker-1" }), "hostname"},
		{"IP address", node("x", address("192.0.2.1")), "IP address"},
		{"the same in IPv6", node("x", address("::ffff:192.0.2.1")), "IP address"},
		{"another IP address", node("x", address("192.0.2.2")), ""},
		{"the host's name", node("h1"), "name"},
		{"nothing", node("x"), ""},
	} {
		if got := h.matchedBy(tc.node); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := (Host{}).matchedBy(node("x", providerID("metal3://"), label(""))); got != "" {
		t.Errorf("an empty host: got %q, want none", got)
	}
}

func TestHostOf(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "metal3", "name": "h1", "uid": "5f1c"},
		"spec": map[string]any{"bmc": map[string]any{"address": "ipmi://10.0.0.1", "credentialsName": "h1-bmc"},
			"consumerRef": map[string]any{"name": "m1", "namespace": "metal3"}},
		"status": map[string]any{"hardware": map[string]any{"hostname": "worker-1",
			"nics": []any{map[string]any{"ip": "192.0.2.1"}, map[string]any{"ip": int64(7)}, "odd"}}},
	}}
	want := Host{Namespace: "metal3", Name: "h1", UID: "5f1c", Address: "ipmi://10.0.0.1", Credentials: "h1-bmc",
		Consumer: "m1", ConsumerNamespace: "metal3", Hostname: "worker-1", Addresses: []string{"192.0.2.1"}}
	if diff := cmp.Diff(want, HostOf(u)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	odd := &unstructured.Unstructured{Object: map[string]any{"spec": "odd", "status": []any{}}}
	if diff := cmp.Diff(Host{}, HostOf(odd)); diff != "" {
		t.Errorf("another shape: -want +got:\n%s", diff)
	}
}

func TestHostDevice(t *testing.T) {
	for address, want := range map[string]string{
		"redfish://10.0.0.1/redfish/v1/Systems/1":        "redfish https://10.0.0.1/redfish/v1/Systems/1",
		"redfish+https://10.0.0.1:8443":                  "redfish https://10.0.0.1:8443",
		"redfish-virtualmedia+https://BMC1.example.net/": "redfish https://bmc1.example.net",
		"idrac-virtualmedia://10.0.0.1/redfish/v1/Systems/System.Embedded.1": "redfish " +
			"https://10.0.0.1/redfish/v1/Systems/System.Embedded.1",
		"redfish-uefihttp://10.0.0.1":                           "redfish https://10.0.0.1",
		"ipmi://10.0.0.1:6230":                                  "ipmi ipmi://10.0.0.1:6230",
		"10.0.0.1":                                              "ipmi ipmi://10.0.0.1",
		"libvirt://192.0.2.1:6233/":                             "ipmi ipmi://192.0.2.1:6233",
		"redfish+http://10.0.0.1":                               "plain HTTP",
		"redfish-virtualmedia+http://10.0.0.1":                  "plain HTTP",
		"ilo4://10.0.0.1":                                       `of type "ilo4"`,
		"redfish://root:calvin@10.0.0.1":                        "holds credentials",
		"redfish://10.0.0.1/redfish/v1/Chassis/1":               "has a path",
		"redfish://10.0.0.1/redfish/v1/Systems/1#\nmode: fence": "address",
		"": "names no BMC",
	} {
		protocol, id, err := Host{Address: address}.device()
		got := strings.TrimSpace(fmt.Sprint(protocol, " ", id))
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) || strings.Contains(got, "calvin") {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}

// What is written is a valid configuration that finds each node's machine, without a password, and in mode observe.
func TestConfiguration(t *testing.T) {
	const hostile = "x\nmode: fence\n# "
	for _, tc := range []struct {
		name   string
		result Result
		opts   WriteOptions
		want   []string // texts of the file
	}{
		{name: "everything",
			result: Result{NodeCount: 6, Matches: []Match{
				{Node: "n1", Protocol: Redfish, ID: "https://10.0.0.1", Fingerprint: strings.Repeat("ab", 32)},
				{Node: "n2", Protocol: Redfish, ID: "https://10.0.0.2/redfish/v1/Systems/1", Secret: "metal3/n2-bmc"},
				{Node: "n3", Protocol: IPMI, ID: "ipmi://10.0.0.3"},
				{Node: "n4", Protocol: IPMI, ID: "ipmi://10.0.0.4", Secret: "metal3/n4-bmc"}},
				Nodes: []Left{{"n5", hostile}, {hostile, "x"}}, Devices: []Left{{hostile, hostile}}},
			opts: WriteOptions{Username: "root", CA: true},
			want: []string{"username: root", "passwordFile: /etc/forcefence-bmc/password",
				"caFile: /etc/forcefence-bmc/ca.pem", "passwordFile: /etc/forcefence-machines/{name}",
				"#   n2: Secret n2-bmc in namespace metal3",
				"# Nodes without a device here (2 of 6):\n#   n5\nmode", "host: 10.0.0.1\n"}},
		{name: "a hostile user name and Secret",
			result: Result{Matches: []Match{
				{Node: "n1", Protocol: IPMI, ID: "ipmi://10.0.0.1", Secret: "ns/" + hostile}}},
			opts: WriteOptions{Username: "a: b #c"}, want: []string{"username: 'a: b #c'"}},
		{name: "EC2", result: Result{Cloud: EC2, Regions: []string{"eu-west-1"}}, want: []string{"- eu-west-1"}},
		{name: "Hetzner", result: Result{Cloud: Hetzner}, want: []string{"address: https://api.hetzner.cloud",
			"poll: 30s", "from: providerID", "# The API token of the project is the key `password`"}},
		{name: "GCE", result: Result{Cloud: GCE}, want: []string{"address: https://compute.googleapis.com"}},
		{name: "Azure", result: Result{Cloud: Azure}, want: []string{"address: https://management.azure.com"}},
		{name: "OpenStack", result: Result{Cloud: OpenStack}, want: []string{"identity: https://keystone.example.net"}},
		{name: "DigitalOcean", result: Result{Cloud: DigitalOcean}, want: []string{"api.digitalocean.com", "poll: 30s"}},
		{name: "UpCloud", result: Result{Cloud: UpCloud}, want: []string{"address: https://api.upcloud.com"}},
		{name: "containers", result: Result{Cloud: Containers}, want: []string{"socket: /var/run/docker.sock"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, err := tc.result.Configuration(tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Parse("config.yaml", text, all.Types(), config.SkipFiles())
			if err != nil {
				t.Fatalf("got %v in\n%s", err, text)
			}
			for _, w := range cfg.Warnings() {
				if strings.Contains(w.Problem, "no device of this rule says Off") {
					t.Errorf("got %v in\n%s", w, text)
				}
			}
			if people := strings.Contains(string(text), "confirm:"); people == (tc.result.Cloud == Containers) {
				t.Errorf("got a person as a level %v in\n%s", people, text)
			}
			if cfg.Mode != "observe" {
				t.Errorf("got mode %s, want observe:\n%s", cfg.Mode, text)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("got no %q in\n%s", want, text)
				}
			}
			for _, m := range tc.result.Matches {
				got, err := cfg.FindMachine(node(m.Node, systemUUID(1)))
				if err != nil || got.Target.ID != m.ID {
					t.Errorf("node %s: got %q, %v, want %q", m.Node, got.Target.ID, err, m.ID)
				}
			}
		})
	}
}

func TestCloudOf(t *testing.T) {
	aws := providerID("aws:///eu-west-1a/i-0123456789abcdef0")
	for _, tc := range []struct {
		name    string
		nodes   []*corev1.Node
		cloud   Cloud
		regions string
	}{
		{"EC2", []*corev1.Node{node("a", aws), node("b", providerID("aws:///us-east-2b/i-1")), node("c", aws)}, EC2,
			"[eu-west-1 us-east-2]"},
		{"kind", []*corev1.Node{node("a", providerID("kind://docker/kind/a"))}, Containers, "[]"},
		{"Hetzner Cloud", []*corev1.Node{node("a", providerID("hcloud://42"))}, Hetzner, "[]"},
		{"GCE", []*corev1.Node{node("a", providerID("gce://prod/europe-west1-b/a"))}, GCE, "[]"},
		{"Azure", []*corev1.Node{node("a", providerID("azure:///subscriptions/0/resourceGroups/g"))}, Azure, "[]"},
		{"OpenStack", []*corev1.Node{node("a", providerID("openstack:///0"))}, OpenStack, "[]"},
		{"DigitalOcean", []*corev1.Node{node("a", providerID("digitalocean://42"))}, DigitalOcean, "[]"},
		{"UpCloud", []*corev1.Node{node("a", providerID("upcloud:////0"))}, UpCloud, "[]"},
		{"Hetzner Cloud and Robot", []*corev1.Node{node("a", providerID("hcloud://42")),
			node("b", providerID("hrobot://7"))}, "", "[]"},
		{"mixed", []*corev1.Node{node("a", aws), node("b")}, "", "[]"},
		{"no nodes", nil, "", "[]"},
	} {
		if cloud, regions := cloudOf(tc.nodes); cloud != tc.cloud || fmt.Sprint(regions) != tc.regions {
			t.Errorf("%s: got %q %v, want %q %s", tc.name, cloud, regions, tc.cloud, tc.regions)
		}
	}
}
