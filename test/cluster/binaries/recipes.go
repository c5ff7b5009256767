package binaries

import (
	"fmt"
	"slices"
	"strings"
)

// What can be built, by the name of its file.
const (
	Forcefence = "forcefence" // this repository's own, into bin
	Demo       = "demo"

	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kubelet           = "kubelet"

	Containerd = "containerd"
	Shim       = "containerd-shim-runc-v2"
	Ctr        = "ctr"
	Runc       = "runc"
	PTP        = "ptp" // the CNI plugins
	HostLocal  = "host-local"
	Loopback   = "loopback"

	// Other runtimes' daemons, which `make runtimes` plays; see ShimOf.
	Containerd1724 = "containerd-1.7.24" // the last with NRI 0.6, as Debian 13 has it
	Containerd1726 = "containerd-1.7.26"
	Containerd20   = "containerd-2.0.5"
	Containerd21   = "containerd-2.1.4"
	Containerd22   = "containerd-2.2.1"
	CRIO           = "crio"

	CSIAttacher = "csi-attacher"

	Helm = "helm"

	NodeHealthCheck = "nhc"             // medik8s' controller
	FenceAgents     = "far"             // medik8s' fence-agents-remediation
	ClusterAPI      = "capi"            // Cluster API's core controller
	VirtController  = "virt-controller" // KubeVirt's
	Harvester       = "harvester"       // Harvester's controller of nodes that are down
	JobSet          = "jobset"
	Kueue           = "kueue"
	Karpenter       = "karpenter" // with the KWOK cloud, whose machines are Nodes without a kubelet
	CSIAddons       = "csi-addons"
	CSIDriver       = "csi-driver" // the fencing part of a CSI driver, for CSIAddons
	CloudNativePG   = "cnpg"       // CloudNativePG's operator, its controller of Clusters alone
)

// Sets of names that go into one folder.
var (
	// what test/cluster starts, and Build's default; it builds kubectl when that is wanted
	ControlPlane = []string{Etcd, APIServer, ControllerManager, Scheduler}
	Runtime      = []string{Containerd, Shim, Ctr}
	CNI          = []string{PTP, HostLocal, Loopback}
)

// kind is programs that are built from one go.mod in one way. Its fields are part of the cache's key, through the
// flags.
type kind struct {
	what     string // for people
	module   string // folder in this repository; "" with a sum
	cache    string // folder under the user's cache
	version  string // module whose version counts as that of the programs; with a sum, module@version
	sum      string // of that version, as go.sum has it: it is built by its own go.mod and go.sum
	ldflags  string // after -s -w, with its space; VERSION becomes that version
	tags     string
	cgo      bool
	inPlace  bool              // this repository's own: built into its folder bin
	versions bool              // Folder and Minor choose others
	packages map[string]string // by the file's name
}

const controlPlane = "control plane"

// own is the program in a kind's own folder. It asks by which name it was started.
const own = "."

// kinds are all there are. A further module, or a further way to build, is a row here.
var kinds = []kind{
	{
		what: "forcefence", module: ".", inPlace: true,
		ldflags:  " -X github.com/forcefence/forcefence/cmd/internal/version.built=VERSION",
		packages: map[string]string{Forcefence: "./cmd/forcefence", Demo: "./test/demo"},
	},
	{
		what: controlPlane, module: "test/controlplane", cache: "controlplane", versions: true,
		version: "k8s.io/kubernetes", ldflags: " -X k8s.io/component-base/version.gitVersion=VERSION",
		packages: map[string]string{
			Etcd:              own, // one program for the four: one link instead of four
			APIServer:         own,
			ControllerManager: own,
			Scheduler:         own,
			Kubectl:           "k8s.io/kubernetes/cmd/kubectl",
			Kubelet:           "k8s.io/kubernetes/cmd/kubelet",
		},
	},
	{
		// Static and without the snapshotters that want C libraries.
		what: "containerd", module: "test/containerd", cache: "containerd",
		version: "github.com/containerd/containerd/v2",
		ldflags: " -X github.com/containerd/containerd/v2/version.Version=VERSION",
		tags:    "netgo,osusergo,static_build,no_btrfs,no_devmapper,no_zfs",
		packages: map[string]string{
			Containerd: "github.com/containerd/containerd/v2/cmd/containerd",
			Shim:       "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			Ctr:        "github.com/containerd/containerd/v2/cmd/ctr",
		},
	},
	{
		// It enters namespaces in C, before Go's runtime starts. Every sandbox of a kubelet wants seccomp, so it takes
		// libseccomp too (libseccomp-dev and pkg-config).
		what: "runc", module: "test/containerd", cache: "runc", version: "github.com/opencontainers/runc",
		ldflags: " -extldflags -static", tags: "netgo,osusergo,seccomp", cgo: true,
		packages: map[string]string{Runc: "github.com/opencontainers/runc"},
	},
	{
		what: "CNI plugins", module: "test/containerd", cache: "cni", version: "github.com/containernetworking/plugins",
		ldflags: " -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=VERSION",
		packages: map[string]string{
			PTP:       "github.com/containernetworking/plugins/plugins/main/ptp",
			HostLocal: "github.com/containernetworking/plugins/plugins/ipam/host-local",
			Loopback:  "github.com/containernetworking/plugins/plugins/main/loopback",
		},
	},
	{
		what: "CSI attacher", module: "test/csi/attacher", cache: "csi",
		version:  "github.com/kubernetes-csi/external-attacher/v4",
		packages: map[string]string{CSIAttacher: "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"},
	},
	{
		what: "Helm", module: "test/helm", cache: "helm", version: "helm.sh/helm/v4",
		ldflags:  " -X helm.sh/helm/v4/internal/version.version=VERSION",
		packages: map[string]string{Helm: "helm.sh/helm/v4/cmd/helm"},
	},
	{
		what: "NodeHealthCheck", module: "test/interop/nhc", cache: "nhc",
		version:  "github.com/medik8s/node-healthcheck-operator",
		packages: map[string]string{NodeHealthCheck: "github.com/medik8s/node-healthcheck-operator/forcefence"},
	},
	{
		what: "fence-agents-remediation", module: "test/interop/far", cache: "far",
		version:  "github.com/medik8s/fence-agents-remediation",
		packages: map[string]string{FenceAgents: "github.com/medik8s/fence-agents-remediation/forcefence"},
	},
	{
		what: "Cluster API", module: "test/interop/capi", cache: "capi", version: "sigs.k8s.io/cluster-api",
		packages: map[string]string{ClusterAPI: "github.com/forcefence/forcefence/test/interop/capi"},
	},
	{
		what: "KubeVirt", module: "test/interop/kubevirt", cache: "kubevirt", version: "kubevirt.io/kubevirt",
		packages: map[string]string{VirtController: "github.com/forcefence/forcefence/test/interop/kubevirt"},
	},
	{
		what: "Harvester", module: "test/interop/harvester", cache: "harvester",
		version:  "github.com/harvester/harvester",
		packages: map[string]string{Harvester: "github.com/forcefence/forcefence/test/interop/harvester"},
	},
	{
		what: "JobSet", module: "test/interop/jobset", cache: "jobset", version: "sigs.k8s.io/jobset",
		packages: map[string]string{JobSet: "github.com/forcefence/forcefence/test/interop/jobset"},
	},
	{
		what: "Kueue", module: "test/interop/kueue", cache: "kueue", version: "sigs.k8s.io/kueue",
		packages: map[string]string{Kueue: "github.com/forcefence/forcefence/test/interop/kueue"},
	},
	{
		what: "Karpenter", module: "test/interop/karpenter", cache: "karpenter", version: "sigs.k8s.io/karpenter",
		packages: map[string]string{Karpenter: "github.com/forcefence/forcefence/test/interop/karpenter"},
	},
	{
		what: "CSI-Addons", module: "test/interop/csiaddons", cache: "csiaddons",
		version: "github.com/csi-addons/kubernetes-csi-addons",
		packages: map[string]string{
			CSIAddons: "github.com/csi-addons/kubernetes-csi-addons/cmd/manager",
			CSIDriver: "github.com/csi-addons/kubernetes-csi-addons/forcefence",
		},
	},
	{
		what: "CloudNativePG", module: "test/interop/cnpg", cache: "cnpg",
		version:  "github.com/cloudnative-pg/cloudnative-pg",
		packages: map[string]string{CloudNativePG: "github.com/cloudnative-pg/cloudnative-pg/forcefence"},
	},
	{
		// The one version that the proxy has, and it is older than its name (F26 in docs/reference/facts.md). To start
		// it wants conmon and runc.
		what: "CRI-O", cache: "crio", version: "github.com/cri-o/cri-o@v1.34.0",
		sum: "h1:ux2URwAyENy5e5hD9Z95tshdfy98eqatZk0fxx3rhuk=",
		tags: "netgo,osusergo,containers_image_openpgp,containers_image_ostree_stub,exclude_graphdriver_btrfs," +
			"exclude_graphdriver_devicemapper,libdm_no_deferred_remove",
		packages: map[string]string{CRIO: "github.com/cri-o/cri-o/cmd/crio"},
	},
	containerd(Containerd1724, "github.com/containerd/containerd@v1.7.24",
		"h1:zxszGrGjrra1yYJW/6rhm9cJ1ZQ8rkKBR48brqsa7nA="),
	containerd(Containerd1726, "github.com/containerd/containerd@v1.7.26",
		"h1:3cs8K2RHlMQaPifLqgRyI4VBkoldNdEw62cb7qQga7k="),
	containerd(Containerd20, "github.com/containerd/containerd/v2@v2.0.5",
		"h1:2vg/TjUXnaohAxiHnthQg8K06L9I4gdYEMcOLiMc8BQ="),
	containerd(Containerd21, "github.com/containerd/containerd/v2@v2.1.4",
		"h1:/hXWjiSFd6ftrBOBGfAZ6T30LJcx1dBjdKEeI8xucKQ="),
	containerd(Containerd22, "github.com/containerd/containerd/v2@v2.2.1",
		"h1:TpyxcY4AL5A+07dxETevunVS5zxqzuq7ZqJXknM11yk="),
}

// ShimOf is the shim of a released version of containerd: a daemon starts no other's.
func ShimOf(containerd string) string { return containerd + "-shim" }

// containerd is a released version: module@version and its sum.
func containerd(name, version, sum string) kind {
	module, _, _ := strings.Cut(version, "@")
	return kind{
		what: "containerd", cache: name, version: version, sum: sum,
		ldflags: " -X " + module + "/version.Version=VERSION",
		tags:    "netgo,osusergo,static_build,no_btrfs,no_devmapper,no_zfs,no_aufs",
		packages: map[string]string{
			name:         module + "/cmd/containerd",
			ShimOf(name): module + "/cmd/containerd-shim-runc-v2",
		},
	}
}

// Groups splits names into those that one Build can build. The error names what nothing builds.
func Groups(names []string) ([][]string, error) {
	groups := make([][]string, len(kinds))
	for _, name := range names {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.packages[name] != "" })
		if i < 0 {
			return nil, fmt.Errorf("unknown binary %q", name)
		}
		groups[i] = append(groups[i], name)
	}
	return slices.DeleteFunc(groups, func(g []string) bool { return len(g) == 0 }), nil
}

func kindOf(names []string) (*kind, error) {
	groups, err := Groups(names)
	if err != nil {
		return nil, err
	}
	if len(groups) != 1 {
		return nil, fmt.Errorf("building %q: not of one recipe", names)
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.packages[names[0]] != "" })
	return &kinds[i], nil
}
