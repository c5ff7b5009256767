package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/kubelet-admit/runtimes"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/check"
)

// The versions of Kubernetes that the chart accepts, and those on which the tests run (make matrix).
const (
	oldestKubernetes = "1.30"
	firstTested      = "1.34"
	lastTested       = "1.37"
)

// defaultNamespace is the namespace into which the manifests of deploy/ put the controller.
const defaultNamespace = "forcefence-system"

// installed are the kinds of objects of deploy/install.yaml, and the Secret in which Helm keeps a release.
var installed = []installedKind{
	{"", "namespaces", "", "v1"},
	{"", "secrets", defaultNamespace, "v1"},
	{"", "serviceaccounts", defaultNamespace, "v1"},
	{"", "configmaps", defaultNamespace, "v1"},
	{"", "services", defaultNamespace, "v1"},
	{"apps", "deployments", defaultNamespace, "v1"},
	{"apps", "daemonsets", hookNamespace, "v1"},
	{"policy", "poddisruptionbudgets", defaultNamespace, "v1"},
	{"networking.k8s.io", "networkpolicies", defaultNamespace, "v1"},
	{"rbac.authorization.k8s.io", "roles", defaultNamespace, "v1"},
	{"rbac.authorization.k8s.io", "rolebindings", defaultNamespace, "v1"},
	{"rbac.authorization.k8s.io", "clusterroles", "", "v1"},
	{"rbac.authorization.k8s.io", "clusterrolebindings", "", "v1"},
	{"apiextensions.k8s.io", "customresourcedefinitions", "", "v1"},
	{"flowcontrol.apiserver.k8s.io", "flowschemas", "", "v1"},
	{"admissionregistration.k8s.io", "validatingadmissionpolicies", "", "v1"},
	{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", "v1"},
}

// installedKind is one kind of object that an installation creates.
type installedKind struct{ group, resource, namespace, version string }

// checkBeforeInstall checks what an installation needs, and with a configuration file its devices. It changes nothing.
// An error means that the API server or the file cannot be read.
func (d *sessionFlags) checkBeforeInstall(ctx context.Context, cmd *cobra.Command, c client.Client) (
	check.Report, error,
) {
	info, err := d.serverVersion()
	if err != nil {
		return check.Report{}, fmt.Errorf("asking the API server for its version: %w", err)
	}
	findings := checkVersion(info)
	namespace := cmp.Or(d.overrides.Context.Namespace, defaultNamespace)
	leader, err := app.ReadLeader(ctx, c, time.Now())
	findings = append(findings, checkNoOther(leader, err, namespace)...)
	findings = append(findings, checkKinds(c.RESTMapper())...)
	missing, err := missingRights(ctx, c, namespace)
	if err != nil {
		return check.Report{}, err
	}
	findings = append(findings, checkRights(missing)...)
	var nodes []*corev1.Node
	err = eachObject(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} }, func(o runtime.Object) error {
		nodes = append(nodes, o.(*corev1.Node))
		return nil
	})
	if err != nil {
		return check.Report{}, fmt.Errorf("listing nodes: %w", err)
	}
	hooks, more := checkRuntimes(nodes)
	findings = append(findings, more...)
	devices := ""
	if d.file != "" {
		if devices, more, err = d.checkDevices(cmd); err != nil {
			return check.Report{}, err
		}
		findings = append(findings, more...)
	}
	verdict := "forcefence can be installed"
	if slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Level == check.Problem }) {
		verdict = "before you install forcefence, solve the problems below"
	}
	return check.NewReport(findings, verdict, "Kubernetes "+info.GitVersion, hooks, devices), nil
}

// serverVersion asks the API server for its version.
func (d *sessionFlags) serverVersion() (*apiversion.Info, error) {
	if d.version != nil {
		return d.version, nil
	}
	cfg, err := d.restConfig()
	if err != nil {
		return nil, err
	}
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return c.ServerVersion()
}

// checkVersion compares the API server's version with the supported ones.
func checkVersion(info *apiversion.Info) []check.Finding {
	const about = "kubernetes"
	v, err := version.ParseGeneric(info.GitVersion)
	switch {
	case err != nil:
		return []check.Finding{{Level: check.Problem, About: about,
			Text: fmt.Sprintf("The API server's version %q cannot be read.", info.GitVersion)}}
	case !v.AtLeast(version.MustParseGeneric(oldestKubernetes)):
		return []check.Finding{{Level: check.Problem, About: about,
			Text:   "Kubernetes " + info.GitVersion + " lacks ValidatingAdmissionPolicy or FlowSchema in version v1.",
			Remedy: "Upgrade to " + oldestKubernetes + " or later."}}
	}
	minor := version.MajorMinor(v.Major(), v.Minor())
	first, last := version.MustParseGeneric(firstTested), version.MustParseGeneric(lastTested)
	if minor.LessThan(first) || minor.GreaterThan(last) {
		return []check.Finding{{Level: check.Note, About: about,
			Text: fmt.Sprintf("forcefence is tested on Kubernetes %s to %s, not on %s.", firstTested, lastTested,
				info.GitVersion)}}
	}
	return nil
}

// checkNoOther reports a controller that is there already: one forcefence leads in a cluster. namespace is that of the
// installation to come.
func checkNoOther(l *view.Leader, err error, namespace string) []check.Finding {
	switch {
	case err != nil:
		return []check.Finding{{Level: check.Problem, About: "rights",
			Text:   endSentence(describeUnread(err, rolePrepare)),
			Remedy: "It shows whether forcefence is installed already."}}
	case l.Lease == "":
		return nil
	}
	found := check.Finding{Level: check.Problem, About: "controller",
		Text: fmt.Sprintf("forcefence is installed in namespace %s: Lease %s.", cmp.Or(l.Namespace, "?"), l.Lease)}
	switch {
	case l.Leads:
		found.Remedy = "One forcefence leads in a cluster: upgrade that one, or uninstall it first."
	case l.Namespace == namespace:
		found.Level, found.Remedy = check.Note, "Its controller is gone, and a new one takes the Lease."
	default:
		found.Remedy = "Its controller is gone. Install into that namespace, or delete the Lease."
	}
	return []check.Finding{found}
}

// checkKinds reports the kinds of objects that the API server does not serve.
func checkKinds(served meta.RESTMapper) (out []check.Finding) {
	for _, k := range installed {
		at := schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.resource}
		if _, err := served.KindFor(at); meta.IsNoMatchError(err) {
			out = append(out, check.Finding{Level: check.Problem, About: "kubernetes",
				Text:   fmt.Sprintf("The API server does not serve %s in version %s.", at.GroupResource(), k.version),
				Remedy: "Enable that API."})
		}
	}
	return out
}

// missingRights asks the API server which objects of an installation the user may not create, in the form of kubectl
// auth can-i.
func missingRights(ctx context.Context, c client.Client, namespace string) (missing []string, _ error) {
	asked := []authorizationv1.ResourceAttributes{
		// A role may grant only what its creator has, unless the creator has these.
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "escalate"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "bind"},
	}
	for _, k := range installed {
		if k.namespace == defaultNamespace {
			k.namespace = namespace
		}
		asked = append(asked, authorizationv1.ResourceAttributes{
			Group: k.group, Resource: k.resource, Namespace: k.namespace, Verb: "create",
		})
	}
	for i := range asked {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked[i]},
		}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("asking for your rights: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, formatRight(asked[i]))
		}
	}
	return missing, nil
}

// formatRight writes a right as kubectl auth can-i takes it.
func formatRight(a authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + schema.GroupResource{Group: a.Group, Resource: a.Resource}.String()
	if a.Namespace != "" {
		text += " -n " + a.Namespace
	}
	return text
}

// checkRights reports missing rights.
func checkRights(missing []string) []check.Finding {
	if len(missing) == 0 {
		return nil
	}
	return []check.Finding{{Level: check.Problem, About: "rights",
		Text:   "You lack rights that an installation needs: " + strings.Join(missing, ", ") + ".",
		Remedy: "Install as cluster-admin."}}
}

// checkRuntimes returns how many nodes can run the hook, by what each says of itself, and what to do about the others.
func checkRuntimes(nodes []*corev1.Node) (summary string, out []check.Finding) {
	named := map[runtimes.Forecast][]string{}
	count := map[runtimes.Hook]int{}
	all := 0
	for _, n := range nodes {
		info := n.Status.NodeInfo
		if info.OperatingSystem != "linux" && info.OperatingSystem != "" {
			out = append(out, check.Finding{Level: check.Note, About: n.Name,
				Text:   fmt.Sprintf("It runs %s: forcefence fences nodes with Linux.", info.OperatingSystem),
				Remedy: "Exclude it: kubectl label node " + n.Name + " " + config.DefaultExclude + "="})
			continue
		}
		all++
		f, text := runtimes.ForecastOf(runtimes.NodeInfo{KubeletVersion: info.KubeletVersion, OSImage: info.OSImage,
			Runtime: info.ContainerRuntimeVersion}), n.Name
		if f.Hook == runtimes.NoHook && !f.ByHost {
			text += " (" + cmp.Or(info.ContainerRuntimeVersion, "?") + ")"
		}
		named[f] = append(named[f], text)
		count[f.Hook]++
	}
	forecasts := slices.Collect(maps.Keys(named))
	slices.SortFunc(forecasts, func(a, b runtimes.Forecast) int {
		return cmp.Or(cmp.Compare(slices.Index(runtimes.Hooks, a.Hook), slices.Index(runtimes.Hooks, b.Hook)),
			cmp.Compare(a.Why, b.Why))
	})
	for _, f := range forecasts {
		if f.Hook == runtimes.Required {
			continue
		}
		names, level := named[f], check.Note
		if f.Hook == runtimes.NoHook {
			level = check.Problem
		}
		few := strings.TrimPrefix(formatNames(names[:min(len(names), 5)], len(names)), ": ")
		out = append(out, check.Finding{Level: level, About: "hook", Text: few + ": " + f.Why + ".",
			Remedy: remedyOf(f)})
	}
	return fmt.Sprintf("%d of %s can run the hook, %d can require it", all-count[runtimes.NoHook],
		decide.FormatCount(all, "node"), count[runtimes.Required]), out
}

// remedyOf says how a node gets more protection than forecast, or what to do without it.
func remedyOf(f runtimes.Forecast) string {
	const alone = "install without the hook, and disable automatic power-on in the BMCs."
	switch {
	case f.Hook == runtimes.NoHook && f.ByHost:
		return "Upgrade the distribution. Or " + alone
	case f.Hook == runtimes.NoHook:
		return "Upgrade to " + runtimes.Upgrade + ". Or " + alone
	case f.Hook == runtimes.NRIOff:
		return "Enable it in the runtime's configuration, or the hook does nothing there."
	case f.Hook == runtimes.NotAtBoot && f.ByHost:
		return "Disable automatic power-on in the BMCs."
	case f.Hook == runtimes.NotAtBoot:
		return "To prevent that, upgrade to " + runtimes.UpgradeToBoot + ". Or disable automatic power-on in the " +
			"BMCs. In containerd 1.7 also enable NRI in its configuration, or the hook does nothing there."
	case f.ByHost:
		return "The hook holds pods while it runs. If both of its plugins stop, pods start."
	default:
		return "To prevent that, upgrade to " + runtimes.Upgrade + "."
	}
}

// checkDevices asks the devices of the configuration file, as drill does. Faults of the file are findings.
func (d *sessionFlags) checkDevices(cmd *cobra.Command) (summary string, out []check.Finding, _ error) {
	open, err := d.openSession(cmd, false)
	var faults config.Errors
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			out = append(out, check.Finding{Level: check.Problem, About: "configuration", Text: endSentence(f.Error())})
		}
		return "the configuration has faults", out, nil
	case err != nil:
		return "", nil, err
	}
	defer open.Close()
	names := open.NodeNames()
	slices.Sort(names)
	all, err := drillAll(cmd.Context(), open, names)
	if err != nil {
		return "", nil, err
	}
	able := 0
	for _, n := range all {
		switch {
		case n.Fenceable != corev1.ConditionTrue:
			out = append(out, check.Finding{Level: check.Problem, About: n.Node, Text: n.Detail})
			continue
		case n.Warning != "":
			out = append(out, check.Finding{Level: check.Note, About: n.Node, Text: n.Warning})
		}
		able++
	}
	return fmt.Sprintf("from here %d of %s can be proven off", able, decide.FormatCount(len(all), "node")), out, nil
}
