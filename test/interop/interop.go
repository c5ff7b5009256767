// Package interop runs the real controllers of other projects beside a test control plane. medik8s' NodeHealthCheck
// and Cluster API's core make requests, which ask a remediator such as forcefence to mend a node. KubeVirt's
// virt-controller and Harvester's controller of nodes that are down act on the nodes by themselves. JobSet and Kueue
// replace the pods that forcefence ends. CSI-Addons' manager is asked to cut a node off from its storage. Their code,
// CRDs and roles come from their Go modules, which the modules in the folders here pin, or from a clone. A controller
// has the rights that its project gives it, and no more.
package interop

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/cluster/binaries"
)

// Labels by which a ClusterRole gives its rights to the controllers, too. Each project has such a role for the kinds of
// others.
const (
	NodeHealthCheckRights = "rbac.ext-remediation/aggregate-to-ext-remediation"
	ClusterAPIRights      = "cluster.x-k8s.io/aggregate-to-manager"
)

// project is what another project's module holds.
type project struct {
	program string   // of package binaries
	folder  string   // of the module that pins it, in this folder
	module  string   // its path
	crds    []string // folders or files in it
	roles   []string // files in it; those of namespaces are granted in the controller's own
	role    string   // name of the controller's roles in files with others' roles; "": all are its
	admin   bool     // it is bound to cluster-admin, and has no roles
	account string   // its ServiceAccount
	in      string   // its namespace; "": PROGRAM-system
	clone   string   // folder of its source with the program in it, which a person built; "": the module's
	args    []string
	env     []string
	started string // what it logs once it works; "": Starting workers
}

// NodeHealthCheck starts the controller and returns once it works. Its CRD and rights are made first. Logs and files
// are in dir. The caller stops it before the cluster.
func NodeHealthCheck(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	return project{
		program: binaries.NodeHealthCheck, folder: "nhc", module: "github.com/medik8s/node-healthcheck-operator",
		crds:    []string{"config/crd/bases"},
		roles:   []string{"config/rbac/role.yaml", "config/rbac/leader_election_role.yaml"},
		account: "node-healthcheck-controller-manager", // it grants further rights to this name
	}.start(ctx, c, dir)
}

// FenceAgents is NodeHealthCheck for fence-agents-remediation. It runs agents of /usr/sbin with these variables more.
func FenceAgents(ctx context.Context, c *cluster.Cluster, dir string, env ...string) (*cluster.Part, error) {
	return project{
		program: binaries.FenceAgents, folder: "far", module: "github.com/medik8s/fence-agents-remediation",
		crds: []string{"config/crd/bases"}, account: "fence-agents-remediation-controller-manager",
		roles: []string{"config/rbac/role.yaml", "config/rbac/leader_election_role.yaml",
			"config/rbac/external_remediation_clusterrole.yaml"},
		env: env,
	}.start(ctx, c, dir)
}

// SelfNodeRemediation is NodeHealthCheck for the manager of self-node-remediation. Its program is the file snr in a
// clone of the project, which is also its working directory. It deploys its agents by itself.
func SelfNodeRemediation(ctx context.Context, c *cluster.Cluster, dir, clone string) (*cluster.Part, error) {
	p := project{
		program: "snr", clone: clone, crds: []string{"config/crd/bases"},
		account: "self-node-remediation-controller-manager",
		env:     []string{"SELF_NODE_REMEDIATION_IMAGE=registry.example.net/snr:1"}, // its agents'
		roles: []string{"config/rbac/role.yaml", "config/rbac/leader_election_role.yaml",
			"config/rbac/external_remediation_clusterrole.yaml"},
	}
	bin, err := p.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	part, err := p.process(c, dir, bin, p.program)
	if err != nil {
		return nil, err
	}
	part.Change = func(cmd *exec.Cmd) { cmd.Dir = clone }
	return part, part.Start(ctx)
}

// KubeFencing is NodeHealthCheck for the controller of kube-fencing. Its program is the file kube-fencing in a clone of
// the project. It asks for a node's fence by a Job. The caller sees to the Job's pod, and to the nodes' annotations,
// which a DaemonSet of the project sets.
func KubeFencing(ctx context.Context, c *cluster.Cluster, dir, clone string) (*cluster.Part, error) {
	p := project{
		program: "kube-fencing", clone: clone, in: "kube-fencing", account: "fencing-controller",
		roles: []string{"deploy/kube-fencing.yaml"}, role: "fencing-controller",
		started: "successfully acquired lease",
	}
	// In a pod it finds its namespace beside its token. Here it reads the namespace from this file, and no more.
	config := filepath.Join(dir, p.program+".namespace")
	p.env = []string{"KUBECONFIG=" + config}
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: x, context: {cluster: c, namespace: %q}}]
current-context: x
`, c.URL(), p.in), 0o600); err != nil {
		return nil, err
	}
	return p.start(ctx, c, dir)
}

// ClusterAPI is NodeHealthCheck for the controllers of Clusters, Machines, MachineSets and MachineHealthChecks.
func ClusterAPI(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	return project{
		program: binaries.ClusterAPI, folder: "capi", module: "sigs.k8s.io/cluster-api",
		crds:    []string{"core/config/crd/bases"},
		roles:   []string{"core/config/rbac/role.yaml", "core/config/rbac/aggregated_role.yaml"},
		account: "capi-manager", args: []string{"-v=2"},
	}.start(ctx, c, dir)
}

// CSIAddons is NodeHealthCheck for the manager of NetworkFences. It opens no port, and speaks to drivers in clear text.
func CSIAddons(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	return project{
		program: binaries.CSIAddons, folder: "csiaddons", module: "github.com/csi-addons/kubernetes-csi-addons",
		crds: []string{"config/crd/bases"}, account: "csi-addons-controller-manager",
		roles: []string{"config/rbac/role.yaml", "config/rbac/leader_election_role.yaml"},
		args:  []string{"-metrics-bind-address=0", "-health-probe-bind-address=0", "-enable-auth=false"},
	}.start(ctx, c, dir)
}

// JobSet is NodeHealthCheck for JobSet's controllers.
func JobSet(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	return project{
		program: binaries.JobSet, folder: "jobset", module: "sigs.k8s.io/jobset",
		crds: []string{"config/components/crd/bases"}, roles: []string{"config/components/rbac/role.yaml"},
		account: "jobset-controller-manager",
	}.start(ctx, c, dir)
}

// Kueue is NodeHealthCheck for Kueue's controllers and its scheduler, with these arguments more.
func Kueue(ctx context.Context, c *cluster.Cluster, dir string, args ...string) (*cluster.Part, error) {
	return project{
		program: binaries.Kueue, folder: "kueue", module: "sigs.k8s.io/kueue",
		crds: []string{"config/components/crd/bases"}, roles: []string{"config/components/rbac/role.yaml"},
		account: "kueue-controller-manager", args: args,
	}.start(ctx, c, dir)
}

// Karpenter is NodeHealthCheck for Karpenter's controllers with the KWOK cloud, whose machines are Nodes.
func Karpenter(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	const templates = "kwok/charts/templates/"
	return project{
		program: binaries.Karpenter, folder: "karpenter", module: "sigs.k8s.io/karpenter",
		crds:    []string{"pkg/apis/crds", "kwok/apis/crds"},
		roles:   []string{templates + "clusterrole.yaml", templates + "clusterrole-kwok.yaml"},
		account: "karpenter",
	}.start(ctx, c, dir)
}

// Harvester is NodeHealthCheck for the controller that taints nodes by time: its setting is vm-force-reset-policy.
func Harvester(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	const crds = "deploy/charts/harvester-crd/templates/harvesterhci.io_"
	return project{
		program: binaries.Harvester, folder: "harvester", module: "github.com/harvester/harvester",
		crds: []string{crds + "settings.yaml", crds + "upgrades.yaml"}, admin: true, account: "harvester",
		started: "Starting /v1, Kind=Node controller",
	}.start(ctx, c, dir)
}

// KubeVirt is NodeHealthCheck for virt-controller, in a cluster in which virt-operator has deployed KubeVirt. Nothing
// acts as virt-handler.
func KubeVirt(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	p := project{program: binaries.VirtController, in: "kubevirt", account: "kubevirt-controller",
		args: []string{"--listen=127.0.0.1", "--port=0"}, started: "STARTING controllers"}
	bin, err := binaries.Build(ctx, binaries.Options{Names: []string{binaries.VirtController}})
	if err != nil {
		return nil, err
	}
	program := filepath.Join(bin, binaries.VirtController)
	list, err := exec.CommandContext(ctx, program, "install").Output()
	if err != nil {
		return nil, fmt.Errorf("listing what KubeVirt installs: %w", err)
	}
	file := filepath.Join(dir, "kubevirt.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"create", "-f", file}, {"wait", "--for=condition=Established", "--all", "crd"},
		// Emulation: no node has a device plugin for /dev/kvm.
		{"-n", p.in, "create", "-f", "testdata/kubevirt.yaml"},
		{"-n", p.in, "patch", "kubevirt", "kubevirt", "--type=merge", "-p", `{"status":{"phase":"Deployed"}}`,
			"--subresource=status"},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return nil, err
		}
	}
	return p.startProcess(ctx, c, dir, bin)
}

// CloudNativePG installs CloudNativePG and returns processes of its operator, which were not started. Each holds the
// Lease under an identity of its own. The first that is started leads.
func CloudNativePG(ctx context.Context, c *cluster.Cluster, dir string, identities ...string) (
	all []*cluster.Part, err error,
) {
	p := project{
		program: binaries.CloudNativePG, folder: "cnpg", module: "github.com/cloudnative-pg/cloudnative-pg",
		crds: []string{"config/crd/bases"}, roles: []string{"config/rbac/role.yaml"}, account: "cnpg-manager",
		env: []string{"OPERATOR_NAMESPACE=cnpg-system", "OPERATOR_IMAGE_NAME=registry.example.net/cnpg:1.28.0"},
	}
	bin, err := p.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	for i, identity := range identities {
		ready := "Starting workers"
		if i > 0 {
			ready = "ttempting to acquire leader lease"
		}
		name := fmt.Sprintf("%s-%d", p.program, i)
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, err
		}
		p.args, p.started = []string{"-dir=" + own, "-identity=" + identity}, ready
		part, err := p.process(c, dir, bin, name)
		if err != nil {
			return nil, err
		}
		all = append(all, part)
	}
	return all, nil
}

func (p project) start(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
	bin, err := p.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	return p.startProcess(ctx, c, dir, bin)
}

// startProcess starts the program, which is in the folder bin.
func (p project) startProcess(ctx context.Context, c *cluster.Cluster, dir, bin string) (*cluster.Part, error) {
	part, err := p.process(c, dir, bin, p.program)
	if err != nil {
		return nil, err
	}
	return part, part.Start(ctx)
}

// prepare builds the program, installs what its project ships, and returns the program's folder.
func (p project) prepare(ctx context.Context, c *cluster.Cluster) (string, error) {
	if p.clone != "" {
		return p.clone, p.install(ctx, c, p.clone)
	}
	bin, err := binaries.Build(ctx, binaries.Options{Names: []string{p.program}})
	if err != nil {
		return "", err
	}
	source, err := p.source(ctx)
	if err != nil {
		return "", fmt.Errorf("finding source of %s: %w", p.program, err)
	}
	if err := p.install(ctx, c, source); err != nil {
		return "", fmt.Errorf("installing %s: %w", p.program, err)
	}
	return bin, nil
}

// process returns a process of the program that was not started. It is ready once its log has the text of started.
func (p project) process(c *cluster.Cluster, dir, bin, name string) (*cluster.Part, error) {
	ready := cmp.Or(p.started, "Starting workers")
	kubeconfig := filepath.Join(dir, name+".kubeconfig")
	if err := c.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+p.namespace()+":"+p.account,
		"system:serviceaccounts", "system:serviceaccounts:"+p.namespace()); err != nil {
		return nil, err
	}
	log := filepath.Join(dir, name+".log")
	part := cluster.NewPart(name, filepath.Join(bin, p.program),
		append([]string{"--kubeconfig=" + kubeconfig}, p.args...), log, func(context.Context) error {
			text, err := os.ReadFile(log)
			if err == nil && !bytes.Contains(text, []byte(ready)) {
				err = fmt.Errorf("%s does not say %q", log, ready)
			}
			return err
		}, nil)
	part.Env = append([]string{"DEPLOYMENT_NAMESPACE=" + p.namespace()}, p.env...)
	return part, nil
}

func (p project) namespace() string { return cmp.Or(p.in, p.program+"-system") }

// source is the folder of the module's source. It is downloaded if the program was built with another module cache.
func (p project) source(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module)
	cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "test", "interop", p.folder)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	text, err := cmd.Output()
	var module struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(text, &module)); err != nil {
		return "", fmt.Errorf("%w: %s", err, module.Error)
	}
	return module.Dir, nil
}

// install makes the CRDs, and an account with the roles that the project ships.
func (p project) install(ctx context.Context, c *cluster.Cluster, source string) error {
	for _, crds := range p.crds {
		crds = filepath.Join(source, crds)
		if _, err := c.Kubectl(ctx, "create", "-f", crds); err != nil {
			return err
		}
		if p.program == binaries.ClusterAPI { // kustomize adds it for users
			if _, err := c.Kubectl(ctx, "label", "-f", crds, "cluster.x-k8s.io/v1beta2=v1beta2"); err != nil {
				return err
			}
		}
		if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "-f", crds); err != nil {
			return err
		}
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace()}}}
	if p.admin {
		objects = append(objects, p.bind("ClusterRole", "cluster-admin"))
	}
	for _, file := range p.roles {
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return err
		}
		text = templateLine.ReplaceAll(text, nil)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var role rbacv1.ClusterRole // a Role has its fields, too
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if role.Kind != "ClusterRole" && role.Kind != "Role" || p.role != "" && p.role != role.Name {
				continue // a comment, or another's
			}
			role.Name = cmp.Or(role.Name, strings.TrimSuffix(filepath.Base(file), ".yaml"))
			objects = append(objects, p.grant(role)...)
		}
	}
	return c.Create(ctx, objects...)
}

// templateLine is a line of a chart's template that is not YAML: names and labels.
var templateLine = regexp.MustCompile(`(?m)^.*\{\{.*$`)

// grant gives the role to the account, under a name of its own: kustomize adds a prefix for users.
func (p project) grant(role rbacv1.ClusterRole) []client.Object {
	meta := metav1.ObjectMeta{Name: p.program + "-" + role.Name, Labels: role.Labels} // some labels aggregate it
	bound := p.bind(role.Kind, meta.Name)
	if role.Kind == "Role" {
		meta.Namespace = p.namespace()
		return []client.Object{&rbacv1.Role{ObjectMeta: meta, Rules: role.Rules}, bound}
	}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: role.Rules, AggregationRule: role.AggregationRule}, bound}
}

// bind binds the account to a role of that kind and name.
func (p project) bind(kind, name string) client.Object {
	meta := metav1.ObjectMeta{Name: name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	to := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace(), Name: p.account}}
	if kind == "Role" {
		meta.Namespace = p.namespace()
		return &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: to}
	}
	meta.Name = p.namespace() + "-" + name
	return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: to}
}
