package walls

var (
	none = []string{}

	kubeTypes = []string{"std", "k8s.io/api/...", "k8s.io/apimachinery/..."}

	loggers = []string{"log", "log/...", "k8s.io/klog/...", "github.com/go-logr/..."}

	// impure is what makes a function's result depend on more than its arguments.
	impure = append([]string{
		"net", "net/http/...", "os", "os/...", "syscall", "math/rand/...", "crypto/rand", "sync/...", "unsafe",
		"k8s.io/client-go/...", "k8s.io/utils/clock/...", "sigs.k8s.io/...",
	}, loggers...)

	clock = []string{
		"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer",
		"time.NewTicker", "context.WithTimeout", "context.WithDeadline", "context.WithTimeoutCause", "context.WithDeadlineCause",
		"github.com/forcefence/forcefence/providers.Now", "k8s.io/apimachinery/pkg/apis/meta/v1.Now",
		"k8s.io/apimachinery/pkg/apis/meta/v1.NowMicro",
	}

	prints = []string{"fmt.Print", "fmt.Printf", "fmt.Println", "fmt.Fprint", "fmt.Fprintf", "fmt.Fprintln"}

	kubernetes = []string{"k8s.io/...", "sigs.k8s.io/..."}
)

// Rules are the walls of the house (docs/design.md has its picture). Imports point one way: cmd -> cmd/internal -> the rest.
var Rules = []Rule{
	{
		Bind: []string{"kubelet-admit/admit"}, Ours: none, Others: none,
		Why: "the node's decision is shared by the hook, the simulated kubelets and the protocol's simulation",
	},
	{
		Bind: []string{"taint"}, Ours: []string{"providers"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "the mark is a codec over Kubernetes' API types",
	},
	{
		Bind: []string{"taint/decide/fleet"}, Ours: []string{"taint", "providers"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "what is remembered across nodes is a function of what was told, so that simulation and production run the same code",
	},
	{
		Bind: []string{"taint/reason"}, Ours: none, Others: []string{"strings"},
		Why: "the table of reasons is a table, whose words are filled in",
	},
	{
		Bind: []string{"taint/decide/proof"}, Ours: []string{"taint", "providers"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "what an answer is worth is a function of the answer, so that simulation and production believe the same",
	},
	{
		Bind: []string{"taint/decide/action"}, Ours: []string{"taint", "taint/decide/proof", "taint/reason", "taint/drainguard/storage"},
		Others: kubeTypes, Never: impure, Calls: clock,
		Why: "what may be done next is a closed set of plain structs",
	},
	{
		Bind: []string{"taint/decide/fence"}, Ours: []string{"taint/decide/action", "taint", "taint/decide/fleet", "taint/decide/proof", "taint/reason", "providers"},
		Others: kubeTypes, Never: impure, Calls: clock,
		Why: "a decision is a function from what was seen to what to do, so that simulation and production run the same code",
	},
	{
		Bind: []string{"taint/decide/evict"}, Ours: []string{"taint/decide/action", "taint", "taint/decide/proof", "taint/reason", "taint/drainguard/storage", "providers"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "a decision is a function from what was seen to what to do, so that simulation and production run the same code",
	},
	{
		Bind: []string{"taint/decide/policy"},
		Ours: []string{"taint/decide/action", "taint", "taint/decide/evict", "taint/reason", "taint/drainguard/storage", "providers"}, Others: kubeTypes,
		Never: impure, Calls: clock,
		Why: "which pods a policy ends is a function from what was seen, so that simulation and production end the same",
	},
	{
		Bind: []string{"taint/drainguard/storage"}, Ours: []string{"taint"}, Others: append([]string{"github.com/google/cel-go/..."}, kubeTypes...), Never: impure, Calls: clock,
		Why: "what a storage system says is a function of its objects",
	},
	{
		Bind:  []string{"taint/wake"},
		Ours:  []string{"taint", "taint/decide/fence", "taint/decide/fleet", "taint/kube", "taint/machine", "taint/wake/line", "providers"},
		Calls: []string{"github.com/forcefence/forcefence/taint/kube.Writer", "sigs.k8s.io/controller-runtime/pkg/client.Client"},
		Why:   "what wakes a node tells what it heard: it writes nothing, and knows nobody who acts on it",
	},
	{
		Bind: []string{"taint/machine"},
		Ours: []string{"taint", "taint/decide/fence", "taint/decide/proof", "taint/sharing", "providers"}, Others: kubeTypes, Never: loggers,
		Why: "it asks devices by the contract alone, and what their answers are worth is decided elsewhere",
	},
	{
		Bind: []string{"taint/sharing"}, Ours: none, Others: []string{"std"}, Never: loggers,
		Why: "who shares a question is known without a cluster and without a device",
	},
	{
		Bind: []string{"taint/wake/line"}, Ours: none, Others: []string{"std", "golang.org/x/sys/unix"},
		Why: "whether somebody answers at an address is known without a cluster, and what it means is decided elsewhere",
	},
	{
		Bind: []string{"taint/drainguard/storage/watch"}, Ours: []string{"taint/drainguard/storage"},
		Why: "what is read of a storage system decides nothing",
	},
	{
		Bind: []string{"taint/api"}, Ours: none, Others: []string{"std", "k8s.io/apimachinery/..."}, Never: impure, Calls: clock,
		Why: "whoever reads Fencings takes in nothing else",
	},
	{
		Bind: []string{"taint/journal"}, Ours: []string{"taint", "taint/api"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "what a person reads of a fence is a function of what was seen and done",
	},
	{
		Bind: []string{"taint/decide"}, Ours: []string{"taint/decide/action", "taint", "taint/decide/proof", "taint/reason", "taint/decide/fleet", "taint/decide/fence", "taint/decide/evict", "taint/decide/policy", "taint/drainguard/storage", "providers"},
		Others: kubeTypes, Never: impure, Calls: clock,
		Why: "a node's course is decided in one place, so that simulation, stories and production run the same code",
	},
	{
		Bind:   []string{"taint/explain"},
		Ours:   []string{"taint/decide/action", "taint", "taint/reason", "taint/decide/fleet", "taint/decide/evict", "taint/decide", "providers"},
		Others: append([]string{"k8s.io/component-helpers/resource", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"}, kubeTypes...), Never: impure, Calls: clock,
		Why: "what would happen is played by the rooms that decide, and decided nowhere else",
	},
	{
		Bind:   []string{"taint/replay"},
		Ours:   []string{"taint/decide/action", "taint", "taint/decide/fleet", "taint/decide/proof", "taint/decide/fence", "taint/decide/evict", "taint/decide/policy", "taint/drainguard/storage", "taint/decide", "taint/explain", "providers"},
		Others: kubeTypes, Never: impure, Calls: clock,
		Why: "a recording is played by the rooms that decide, without a cluster, a device or a clock",
	},
	{
		Bind: []string{"taint/view/drill"}, Ours: []string{"taint/decide/proof", "taint/reason", "providers"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "whether a node could be fenced is a function of what its devices said, so that the controller and a person's command find the same",
	},
	{
		Bind: []string{"taint/view"},
		Ours: []string{
			"taint", "taint/api", "taint/journal", "taint/view/drill", "taint/decide/fence", "taint/reason", "providers",
		},
		Others: kubeTypes, Never: impure, Calls: append(prints, clock...),
		Why: "what people are shown is a function of what stands there, whoever shows it",
	},
	{
		Bind: []string{"taint/drainguard/drain"}, Ours: []string{"taint", "taint/reason", "taint/drainguard/storage"}, Others: kubeTypes, Never: impure, Calls: clock,
		Why: "what holds a drain up is a function of what was seen, so that a model of two nodes drained at once runs the same code",
	},
	{
		Bind: []string{"taint/kube"}, Ours: []string{"taint/decide/action", "taint", "taint/decide/evict", "providers"},
		Why: "what is read from the API server and written to it decides nothing",
	},
	{
		Bind: []string{"taint/drainguard"}, Ours: []string{"taint", "taint/reason", "taint/drainguard/drain", "taint/drainguard/storage", "taint/kube"},
		Why: "what keeps drains from taking data away knows no device and no fence",
	},
	{
		Bind: []string{"taint/release"}, Ours: []string{"taint/decide/action", "taint", "taint/decide/evict", "taint/kube"},
		Why: "a person's way out works without a controller",
	},
	{
		Bind: []string{"taint/controller"},
		Ours: []string{"taint/decide/action", "taint", "taint/reason", "taint/decide/fleet", "taint/decide/proof", "taint/decide/fence", "taint/decide/evict", "taint/decide/policy", "taint/drainguard/storage", "taint/decide", "taint/replay", "taint/kube", "taint/view/drill", "taint/api", "taint/journal", "taint/wake", "taint/machine", "taint/sharing", "providers"},
		Why:  "the reconcilers know the contract of a device, never a device family, and not how they were configured",
	},
	{
		Bind: []string{"taint/..."}, Ours: []string{"taint/...", "providers"},
		Why: "the taint manager knows the contract of a device, never a device family, and not how it was configured",
	},
	{
		Bind: []string{"providers"}, Ours: none, Others: []string{"std"},
		Why: "the contract costs whoever implements it nothing",
	},
	{
		Bind: []string{"providers/all"}, Ours: []string{"providers", "providers/*"}, Others: []string{"std"},
		Why: "the list of provider types is a list",
	},
	{
		Bind: []string{"providers/guard"}, Ours: []string{"providers"}, Never: kubernetes,
		Why: "what decorates a device knows no device family and no cluster",
	},
	{
		Bind: []string{"providers/providertest"}, Ours: []string{"providers"}, Never: kubernetes,
		Why: "the suite judges every provider by the contract alone",
	},
	{
		Bind: []string{"providers/remote"}, Ours: []string{"providers"}, Others: []string{"std"},
		Why: "what types share costs none of them another's SDK",
	},
	{
		Bind: []string{"providers/*"}, Except: []string{"providers/all", "providers/kubevirt", "providers/metal3"},
		Ours: []string{"providers", "providers/remote"}, Never: kubernetes,
		Why: "a provider type knows the contract and its device's SDK: no other type, no cluster",
	},
	{
		Bind: []string{"providers/redfish"}, Ours: []string{"providers", "providers/remote"},
		Others: []string{"std", "github.com/stmcginnis/gofish/...", "github.com/hashicorp/go-retryablehttp"},
		Why:    "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/cloudtaint"}, Ours: []string{"providers"}, Others: []string{"std"},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/confirm"}, Ours: []string{"providers"}, Others: []string{"std"},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/container"}, Ours: []string{"providers", "providers/remote"}, Others: []string{"std"},
		Why: "the Docker Engine API is HTTP over a socket: no client module is worth its weight for four requests",
	},
	{
		Bind: []string{"providers/libvirt"}, Ours: []string{"providers", "providers/remote"}, Others: []string{"std", "github.com/digitalocean/go-libvirt/..."},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/ec2"}, Ours: []string{"providers", "providers/remote"},
		Others: []string{"std", "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."},
		Why:    "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/fenceagent"}, Ours: []string{"providers", "providers/remote"},
		Others: []string{"std", "golang.org/x/sys/unix", "github.com/landlock-lsm/go-landlock/..."},
		Why:    "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/ipmi"}, Ours: []string{"providers", "providers/remote"}, Others: []string{"std", "github.com/bougou/go-ipmi/..."},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/pdu"}, Ours: []string{"providers", "providers/remote"}, Others: []string{"std", "github.com/gosnmp/gosnmp"},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"providers/vsphere"}, Ours: []string{"providers", "providers/remote"}, Others: []string{"std", "github.com/vmware/govmomi/vim25/..."},
		Why: "a provider type knows the contract and its device's SDK",
	},
	{
		Bind: []string{"kubelet-admit/..."}, Ours: []string{"taint", "kubelet-admit/..."},
		Why: "what runs on the node knows no device and no taint manager",
	},
	{
		Bind: []string{"test/kit"}, Ours: none, Others: []string{"std"},
		Why: "what every test world takes depends on none of them",
	},
	{
		Bind: []string{"test/cluster/binaries"}, Ours: none,
		Why: "it builds others' programs, also for who may share no code with ours",
	},
	{
		Bind: []string{"test/referee"}, Ours: []string{"test/kit", "test/cluster/binaries"},
		Why: "what it judges and what judges share no code, also not by way of these two",
	},
	{
		Bind: []string{"..."}, Except: []string{"cmd/..."}, Ours: []string{"", "providers/...", "taint/...", "kubelet-admit/...", "test/..."},
		Why: "cmd wires the parts together; a part that knew cmd could not be tested without it",
	},
	{
		Bind: []string{"..."}, Except: []string{"test/..."}, Never: []string{"text/template", "html/template"},
		Calls: []string{"github.com/google/cel-go/cel.AuthoringPrompt"}, // the one way to text/template in there
		Why:   "they call methods by names that the linker cannot know: every method of every type stays in the program, which is twice as large",
	},
	{
		Bind: []string{"..."}, Except: []string{"cmd/internal/trace", "test/..."}, Never: []string{"go.opentelemetry.io/..."},
		Why: "a trace is told of a fence, and no context of it leads into one",
	},
	{
		Bind: []string{"..."}, Except: []string{"test/..."}, Ours: []string{"", "cmd/...", "providers/...", "taint/...", "kubelet-admit/..."},
		Why: "what only tests need is not shipped",
	},
}
