//go:build linux

package nodes

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// Paths inside a node, as kubeadm and distributions' packages have them.
const (
	ContainerdConfig = "/etc/containerd/config.toml"
	ContainerdSocket = "/run/containerd/containerd.sock"
	KubeletConfig    = "/var/lib/kubelet/config.yaml"
	Kubeconfig       = "/etc/kubernetes/kubelet.conf"
	StaticPods       = "/etc/kubernetes/manifests"
	NRIPlugins       = "/opt/nri/plugins"
	NRIConfig        = "/etc/nri/conf.d"

	clientCert = "/var/lib/kubelet/pki/kubelet-client-current.pem" // certificate and key, as a kubelet keeps them
	clusterCA  = "/etc/kubernetes/pki/ca.crt"
	baseSpec   = "/etc/containerd/base-spec.json"
	binFolder  = "/usr/local/bin"
	programs   = "/usr/local/lib/forcefence-lab" // init.sh makes links to them in binFolder
	hook       = "/etc/forcefence/boot-id"       // an OCI hook of each container
	cniFolder  = "/opt/cni/bin"
)

// persistent are the folders that outlive a power cut. The rest of a node's files are the machine's own under a layer
// that does not.
var persistent = []string{
	"/etc/cni", "/etc/containerd", "/etc/crio", "/etc/forcefence", "/etc/kubernetes", "/etc/nri", "/opt", "/srv",
	"/var/lib", "/var/log",
}

var servicesEnv = []string{"PATH=" + binFolder + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// The defaults of containerd 2.4 are a distribution's: NRI is on, with plugins from /opt/nri/plugins. The base of every
// container's spec is containerd's own plus the hook that hands the node's boot id down.
const containerdConfig = `version = 4
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "%s"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "%s"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true # root here may be without CAP_SYS_RESOURCE

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "%s"
`

// The API server's certificate is for its own address, which is not the nodes'.
const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    {server: "https://` + relayAddress + `", tls-server-name: localhost, certificate-authority: ` + clusterCA + `}
users: [{name: kubelet, user: {client-certificate: ` + clientCert + `, client-key: ` + clientCert + `}}]
contexts: [{name: kubelet, context: {cluster: lab, user: kubelet}}]
current-context: kubelet
`

// ptp and not bridge: it needs no bridge in the node, and no iptables.
const cniConfig = `{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "ptp", "ipMasq": false,
    "ipam": {"type": "host-local", "dataDir": "/run/cni/ipam",
      "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

// NodeGrace is until a silent node is NotReady, for cluster.Options: three renewals of the Lease below, which is the
// shortest that is believed.
const NodeGrace = 8 * time.Second

// Heartbeats fit NodeGrace. What a kubelet would do to the whole machine is off: iptables, swap, disk pressure.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[1]s}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%[2]s
staticPodPath: %[3]s
fileCheckFrequency: 1s
cgroupDriver: cgroupfs
cgroupRoot: /%[4]s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: [pods]
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi}
clusterDomain: cluster.local
resolvConf: ""
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 10
syncFrequency: 10s
shutdownGracePeriod: 0s
`

//go:embed hook.sh
var hookScript string

// files are what an installation would have put onto the node's disk.
func (n *Node) files(creds *rest.Config) map[string][]byte {
	snapshotter := "overlayfs"
	if !n.lab.overlay {
		snapshotter = "native"
	}
	files := map[string][]byte{
		ContainerdConfig:                  fmt.Appendf(nil, containerdConfig, snapshotter, PauseImage, baseSpec),
		baseSpec:                          n.lab.spec,
		hook:                              []byte(hookScript),
		"/etc/cni/net.d/10-pods.conflist": fmt.Appendf(nil, cniConfig, fmt.Sprintf(podSubnet, n.index)),
		KubeletConfig: fmt.Appendf(nil, kubeletConfig, clusterCA, ContainerdSocket, StaticPods,
			n.cgroup),
		Kubeconfig: []byte(kubeconfig),
		clientCert: slices.Concat(creds.CertData, creds.KeyData),
		clusterCA:  creds.CAData,
	}
	for name, manifest := range n.opts.StaticPods {
		files[path.Join(StaticPods, name+".yaml")] = manifest
	}
	return files
}

// write puts the files onto the node's disk. A script may be executed.
func (n *Node) write(files map[string][]byte) error {
	for inside, data := range files {
		host, err := n.HostPath(inside)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(string(data), "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(host, data, mode); err != nil {
			return err
		}
	}
	return nil
}

// binds are what lies over the node's paths, for process 1: a path of the host, where it lies inside, ro or rw.
func (n *Node) binds() (out []string) {
	for _, folder := range persistent {
		out = append(out, n.disk(folder), folder, "rw")
	}
	for inside, host := range n.lab.opts.Shared {
		out = append(out, host, inside, "rw")
	}
	folders := map[string]string{} // of the cache, to where they lie inside
	for name, file := range n.lab.bin {
		dir := filepath.Dir(file)
		if folders[dir] = path.Join(programs, filepath.Base(dir)); slices.Contains(binaries.CNI, name) {
			folders[dir] = cniFolder
		}
	}
	for dir, inside := range folders {
		out = append(out, dir, inside, "ro")
	}
	return out
}

// credentials are what the node authorizer and NodeRestriction know the node by.
func (n *Node) credentials() *rest.Config {
	return n.lab.opts.Cluster.RESTConfigFor("system:node:"+n.Name(), "system:nodes")
}

// containerSpec is containerd's default spec of a container with the hook in it.
func containerSpec(ctx context.Context, ctr string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, ctr, "oci", "spec").Output()
	if err != nil {
		return nil, fmt.Errorf("asking ctr for a container's spec: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(out, &spec); err != nil {
		return nil, fmt.Errorf("reading a container's spec: %w", err)
	}
	spec["hooks"] = map[string]any{
		"createContainer": []any{
			map[string]any{"path": hook, "env": servicesEnv}},
	}
	return json.MarshalIndent(spec, "", "  ")
}
