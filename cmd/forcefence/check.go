package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/features/signing"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/view"
	"github.com/forcefence/forcefence/taint/view/check"
)

// newCheck returns the command that says whether an installation is well, or whether the cluster can take one.
func newCheck(d *sessionFlags) *cobra.Command {
	var format outputFormat
	var before bool
	var wait time.Duration
	key := taint.DefaultKey
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say in one sentence whether forcefence is well, and what to do if not",
		Long: `Say in one sentence whether forcefence is well: who leads, and how many nodes can
be proven off. Each problem follows with what to do about it.

The command reads the API server only: the controller's Lease, its configuration,
pauses, and what drills and hooks reported on the Nodes. It asks no device and
changes nothing. In a pod it uses the pod's ServiceAccount.

With --before-install it checks what an installation needs: the version of
Kubernetes, your rights, and the nodes' container runtimes. With --config as well
it asks the devices of that file as "forcefence drill" does: it connects, logs
in, compares identities and reads the power. It powers nothing off.

Exits with 0 if all is well, and with 1 otherwise. Notes are no problems.`,
		Example: `  # Right after an installation
  forcefence check --wait 5m
  # Before one, with the devices of a file
  forcefence check --before-install --config config.yaml`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case d.file != "" && !before:
				return errors.New("--config needs --before-install: after an installation the controller asks the " +
					"devices, and this command reads what it found")
			case wait < 0:
				return fmt.Errorf("--wait: %s is negative", wait)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.openClient()
			if err != nil {
				return err
			}
			o := &checker{client: c, types: d.types, namespace: d.overrides.Context.Namespace, key: key, now: time.Now}
			look := o.checkInstallation
			if before {
				withRole(cmd, rolePrepare)
				look = func(ctx context.Context) (check.Report, error) { return d.checkBeforeInstall(ctx, cmd, c) }
			}
			found, err := waitUntilOK(cmd.Context(), wait, look, func() bool { return o.refused })
			if err != nil {
				return err
			}
			if err := format.print(cmd.OutOrStdout(), reportOf(found)); err != nil {
				return err
			}
			if n := found.Problems(); n > 0 {
				return errors.New("forcefence check found " + decide.FormatCount(n, "problem"))
			}
			return nil
		},
	}
	f := cmd.Flags()
	d.clusterFlags.addFlags(cmd)
	d.addNamespaceFlag(cmd)
	format.addFlag(cmd)
	addTaintKeyFlag(cmd, &key)
	f.BoolVar(&before, "before-install", false, "check what an installation needs")
	f.StringVar(&d.file, "config", "", "with --before-install: ask the devices of this configuration file")
	f.DurationVar(&wait, "wait", 0, "repeat the check for so long, until all is well or waiting cannot help; 0: "+
		"check once")
	return withRole(cmd, roleLook)
}

// recheckEvery is the time between two checks of --wait.
const recheckEvery = 5 * time.Second

// waitUntilOK repeats look until its report is OK, for so long at most, and returns the last report or error. It blocks
// until then. Three things end it at once, because waiting mends none: an error that does not pass by itself, a right
// that look lacked (refused), and a report whose problems all last.
func waitUntilOK(
	ctx context.Context, most time.Duration, look func(context.Context) (check.Report, error), refused func() bool,
) (check.Report, error) {
	for end := time.Now().Add(most); ; {
		r, err := look(ctx)
		done := r.OK || r.Lasting
		if err != nil && !mayPass(err) || err == nil && done || refused() || time.Until(end) < recheckEvery {
			return r, err
		}
		select {
		case <-time.After(recheckEvery):
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// mayPass reports whether an error of a request to the API server may pass by itself: the server starts, or the network
// comes back. Rights, certificates and names in a kubeconfig do not change while a command waits.
func mayPass(err error) bool {
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	switch {
	case !isFromAPIServer(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsInternalError(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTimeout(err):
		return false
	case errors.As(err, &certificate), errors.As(err, &name) && name.IsNotFound:
		return false
	}
	return !errors.Is(err, context.Canceled)
}

// reportOf returns the result of a check, for printing.
func reportOf(r check.Report) report {
	t := newTable("Level", "About", "What it is, and what to do")
	for _, f := range r.Findings {
		addRow(t, objectNamed("forcefence.io", "Finding", "", f.About), f.Level, f.About,
			strings.TrimSpace(f.Text+" "+f.Remedy))
	}
	return report{value: r, table: t, text: func(out io.Writer, wide bool) error {
		printText(out, "", "%s", r.Summary)
		if len(t.Rows) > 0 {
			fmt.Fprintln(out)
		}
		if wide {
			return printTable(out, t, wide)
		}
		for _, level := range []check.Level{check.Problem, check.Note} {
			var all []remark
			for _, f := range r.Findings {
				if f.Level == level {
					all = append(all, remark{f.About, strings.TrimSpace(f.Text + " " + f.Remedy)})
				}
			}
			printRemarks(out, fmt.Sprintf("%-9s", level), all)
		}
		return nil
	}}
}

// checker reads what a check of an installation needs.
type checker struct {
	client    client.Client
	types     providers.Registry
	namespace string // of the controller; "": the one that its Lease names
	key       string // the mark's
	now       func() time.Time
	// fencesStorage says that a policy of the deployed configuration has storage cut nodes off.
	fencesStorage bool
	// refused says that a right was missing in the last check, so the result stays the same.
	refused   bool
	pods      []action.Pod // what readPods found with podsFirst; nil: it was not read yet
	podsFirst string
}

// checkInstallation reads the API server and checks the installation. An error means that the Nodes cannot be read.
func (o *checker) checkInstallation(ctx context.Context) (check.Report, error) {
	var f check.Facts
	reader := statusReader{
		client: o.client, namespace: o.namespace, key: o.key, all: true, now: o.now, types: o.types,
		visit: func(n *corev1.Node, v view.Node) { f.Nodes = append(f.Nodes, check.Node{Node: n, View: v}) },
	}
	o.refused = false
	fleet, err := reader.readFleet(ctx)
	if err != nil {
		return check.Report{}, err
	}
	o.refused = fleet.refused
	f.At, f.Cluster, f.Namespace, f.Gone = fleet.At, fleet.Cluster, o.namespace, fleet.Gone
	f.Unknown = slices.DeleteFunc(fleet.Unknown, func(what string) bool { return what == fleet.unreadPods })
	first := labels.Nothing()
	namespace := o.namespace
	if namespace == "" && fleet.Controller != nil {
		namespace = fleet.Controller.Namespace
	}
	if namespace != "" {
		first = o.readConfiguration(ctx, namespace, &f)
	}
	if err := o.readPods(ctx, first); err != nil {
		f.NoPods = endSentence(describeUnread(err, roleExplain))
	}
	f.Pods = o.pods
	o.readOrders(ctx, &f)
	kind := api.GroupVersion.WithKind(api.Kind)
	_, err = o.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	f.NoFencings = meta.IsNoMatchError(err)
	return check.Installation(f), nil
}

// readOrders adds to f what others obey while forcefence does not look. The right to list NetworkFences is missing
// where no policy needs them.
func (o *checker) readOrders(ctx context.Context, f *check.Facts) {
	var nodes []corev1.Node
	for _, n := range f.Nodes {
		nodes = append(nodes, *n.Node)
	}
	orders, unread := app.ListOrders(o.client).Read(ctx, nodes, o.key)
	f.Orders = orders
	for _, resource := range slices.Sorted(maps.Keys(unread)) {
		err := unread[resource]
		if err == nil || apierrors.IsForbidden(err) && resource == app.FencesResource && !o.fencesStorage {
			continue
		}
		o.refused = o.refused || denialOf(err) != nil
		f.Unknown = append(f.Unknown, describeUnread(err, roleLook))
	}
}

// readConfiguration adds to f what its ConfigMap says about the controller's configuration, and returns which pods that
// ends first. Without a ConfigMap the controller has a file that cannot be read here.
func (o *checker) readConfiguration(
	ctx context.Context, namespace string, f *check.Facts,
) (first labels.Selector) {
	first = labels.Nothing()
	cfg, at, err := readDeployedConfig(ctx, o.client, namespace, o.types)
	var faults config.Errors
	switch {
	case apierrors.IsNotFound(err):
	case errors.As(err, &faults):
		for _, fault := range faults {
			f.Configuration = append(f.Configuration, endSentence("ConfigMap "+at.String()+": "+fault.Error()))
		}
	case err == nil:
		f.ConfigDigest, o.fencesStorage = cfg.Digest(), cfg.FencesStorage()
		if cfg.Signing.KeyFile != "" {
			f.Signing.On = true
			o.readSigning(ctx, namespace, f)
		}
		settings := cfg.Settings(namespace)
		first, f.EvictFirst = settings.EvictFirst, settings.EvictFirst.String()
		var names []string
		for i, n := range f.Nodes {
			names = append(names, n.Node.Name)
			_, err := cfg.FindMachine(n.Node)
			f.Nodes[i].Unclaimed = errors.Is(err, config.ErrNoMachine)
		}
		for _, w := range cfg.MissingNodes(names) {
			f.Warnings = append(f.Warnings, endSentence("ConfigMap "+at.String()+": "+w.Error()))
		}
	default: // status has reported it, and whether a right was missing
	}
	return first
}

// readSigning adds to f which public keys verify the proofs of fences.
func (o *checker) readSigning(ctx context.Context, namespace string, f *check.Facts) {
	text, err := readPublicKeys(ctx, o.client, namespace)
	switch {
	case errors.Is(err, errNoKeys):
		f.Signing.Fault = "signing.keyFile is set, and no ConfigMap " + namespace + "/" + config.KeysConfigMap +
			" has public keys."
	case err != nil:
		o.refused = o.refused || denialOf(err) != nil
		f.Unknown = append(f.Unknown, describeUnread(err, roleLook))
	default:
		keys, err := signing.ListKeys(text)
		if f.Signing.Keys = len(keys); err != nil {
			f.Signing.Fault = endSentence("ConfigMap " + namespace + "/" + config.KeysConfigMap + ": " + err.Error())
		} else if len(keys) == 0 {
			f.Signing.Fault = "ConfigMap " + namespace + "/" + config.KeysConfigMap + " has no public key."
		}
	}
}

// readPods reads once the unfinished pods of all nodes that first selects, and those that a fence leaves on their node,
// with the volumes of these. --wait does not list all pods again and again.
func (o *checker) readPods(ctx context.Context, first labels.Selector) error {
	if o.pods != nil && o.podsFirst == first.String() {
		return nil
	}
	pods, stay := []action.Pod{}, []corev1.Pod{}
	err := eachObject(ctx, o.client, func() *corev1.PodList { return &corev1.PodList{} },
		func(object runtime.Object) error {
			pod := object.(*corev1.Pod)
			switch p := kube.SeePod(pod, o.key, first); {
			case p.Terminal || pod.Spec.NodeName == "":
			case p.Exempt != taint.NotExempt && p.Claims:
				stay = append(stay, *pod)
				fallthrough
			case p.Exempt != taint.NotExempt || p.First:
				pods = append(pods, p)
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	of, unread, err := kube.ReadVolumes(ctx, o.client, stay)
	if err = cmp.Or(err, unread); err != nil {
		return err
	}
	for i := range pods {
		pods[i].Volumes = of[pods[i].UID]
	}
	o.pods, o.podsFirst = pods, first.String()
	return nil
}

// endSentence returns a text with a full stop, unless it ends in another mark.
func endSentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
