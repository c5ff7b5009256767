package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/taint"
)

// newSupportBundle gathers what somebody who helps needs.
func newSupportBundle() *cobra.Command {
	var at reach
	var key string
	cmd := &cobra.Command{
		Use:   "support-bundle [FILE]",
		Short: "Write what somebody who helps you needs into a file, without passwords and tokens",
		Long: "Write what somebody who helps you needs into a file (.tar.gz, default forcefence-support-TIME.tar.gz; - is standard output): versions, the\n" +
			"controller's configuration, its Leases, what stands on the Nodes about fences, Fencings, forcefence's Events, and forcefence's pods with the\n" +
			"ends of their logs. What you may not read is left out, and named.\n\n" +
			"No Secret is read. Of what is, values are taken out whose names say that they are secret, and whatever looks like a password in an address, a\n" +
			"token or a key; names of nodes, pods, volumes and devices stay. A text of more than 16 KiB is cut.\n" +
			"Look at it before you send it: nobody knows every secret by its looks.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := at.config()
			if err != nil {
				return err
			}
			c, err := at.client()
			if err != nil {
				return err
			}
			logs, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				return fmt.Errorf("making client: %w", err)
			}
			now := time.Now().UTC()
			b := &support{client: c, logs: logs, namespace: at.overrides.Context.Namespace, key: key, now: now}
			if err := b.gather(cmd.Context()); err != nil {
				return err
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			name := "forcefence-support-" + now.Format("20060102T150405Z") + ".tar.gz"
			if len(args) > 0 {
				name = args[0]
			}
			var packed bytes.Buffer
			if err := b.pack(&packed); err != nil {
				return err
			}
			if name == "-" {
				raw, ok := cmd.OutOrStdout().(screen)
				if !ok {
					return errors.New("no standard output")
				}
				_, err := packed.WriteTo(raw.to)
				return err
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = packed.WriteTo(f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			say(out, "", "Wrote %s: %d files. Look at it before you send it.", name, len(b.files))
			for _, what := range b.unknown {
				say(out, "", "Left out: %s.", strings.TrimSuffix(what, "."))
			}
			return nil
		},
	}
	at.flags(cmd)
	at.namespaced(cmd)
	cmd.Flags().StringVar(&key, "taint-key", taint.DefaultKey, "the mark's key, where the configuration names another")
	return needs(cmd, "forcefence-look")
}

// support is a folder of files that hold no secret.
type support struct {
	client    client.Client
	logs      kubernetes.Interface
	namespace string // of the controller; "": that of its Lease
	key       string // the mark's
	now       time.Time

	files   map[string][]byte
	unknown []string
}

// hookNamespace is where the manifests put the hook's DaemonSet.
const hookNamespace = "forcefence-node"

// partOf selects the pods of forcefence.
var partOf = client.MatchingLabels{"app.kubernetes.io/part-of": "forcefence"}

// gather reads all that may be read. It is an error if no API server answers: the file would hold nothing.
func (b *support) gather(ctx context.Context) error {
	b.files = map[string][]byte{}
	server, err := b.logs.Discovery().ServerVersion()
	var answered apierrors.APIStatus
	if err != nil && !errors.As(err, &answered) {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	b.failed("version of the API server", err)
	b.add("versions.json", map[string]any{"forcefence": version.String(), "kubernetes": server, "at": b.now})
	g := looker{client: b.client, namespace: b.namespace, key: b.key, all: true, now: func() time.Time { return b.now }}
	f, err := g.look(ctx)
	if b.failed("status", err); err == nil {
		b.unknown = append(b.unknown, f.Unknown...)
		b.add("status.json", f)
	}
	var nodes []any
	err = each(ctx, b.client, func() *corev1.NodeList { return &corev1.NodeList{} }, func(o runtime.Object) error {
		nodes = append(nodes, ofNode(o.(*corev1.Node)))
		return nil
	})
	b.failed("nodes", err)
	b.add("nodes.json", nodes)
	var fencings []any
	err = each(ctx, b.client, newFencings, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			m.SetManagedFields(nil)
		}
		fencings = append(fencings, o)
		return err
	})
	if err != nil {
		err = unread(b.client, err)
	}
	b.failed("Fencings", err)
	b.add("fencings.json", fencings)
	events, err := eventsOf(ctx, b.client, "")
	b.failed("Events", err)
	b.add("events.json", events)
	namespace, err := home(ctx, b.client, b.namespace)
	if b.failed("the controller's pods and configuration", err); err != nil {
		return nil
	}
	b.config(ctx, namespace)
	for _, ns := range slices.Compact([]string{namespace, hookNamespace}) {
		b.pods(ctx, ns)
	}
	return nil
}

// failed notes what could not be read.
func (b *support) failed(what string, err error) {
	if err == nil {
		return
	}
	text := err.Error()
	if right := missing(err); right != "" {
		text = "you lack the right: " + right
	}
	b.unknown = append(b.unknown, what+": "+text)
}

// add writes a value into a file, without secrets.
func (b *support) add(name string, v any) {
	text, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	var out bytes.Buffer
	if err == nil {
		err = printJSON(&out, scrubAll(plain), " ")
	}
	if b.failed(name, err); err == nil {
		b.files[name] = out.Bytes()
	}
}

// config adds the controller's configuration.
func (b *support) config(ctx context.Context, namespace string) {
	var cm corev1.ConfigMap
	err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: configMapOf}, &cm)
	var plain any
	if err == nil {
		err = yaml.Unmarshal([]byte(cm.Data[configKey]), &plain)
	}
	var text []byte
	if err == nil {
		text, err = yaml.Marshal(scrubAll(plain))
	}
	if b.failed(fmt.Sprintf("the configuration, ConfigMap %s/%s", namespace, configMapOf), err); err == nil {
		b.files[configKey] = text
	}
}

// ofNode is what matters of a Node.
func ofNode(n *corev1.Node) map[string]any {
	notes := maps.Clone(n.Annotations)
	maps.DeleteFunc(notes, func(key, _ string) bool {
		return !ours.MatchString(key) && !strings.HasPrefix(key, "cluster.x-k8s.io/")
	})
	return map[string]any{
		"name": n.Name, "uid": n.UID, "created": n.CreationTimestamp, "labels": n.Labels, "annotations": notes, "spec": map[string]any{
			"taints": n.Spec.Taints, "unschedulable": n.Spec.Unschedulable, "providerID": n.Spec.ProviderID,
		},
		"status": map[string]any{
			"conditions": n.Status.Conditions, "nodeInfo": n.Status.NodeInfo, "volumesInUse": n.Status.VolumesInUse, "volumesAttached": n.Status.VolumesAttached,
		},
	}
}

// How much of a log is read.
const (
	logLines = 5000
	logBytes = 4 << 20
)

// pods adds forcefence's pods of a namespace, and the ends of their logs, also of those that ended before.
func (b *support) pods(ctx context.Context, namespace string) {
	var list corev1.PodList
	if err := b.client.List(ctx, &list, client.InNamespace(namespace), partOf); err != nil {
		b.failed("pods of namespace "+namespace, err)
		return
	}
	var all []any
	for i := range list.Items {
		p := &list.Items[i]
		var images []string
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			images = append(images, c.Name+": "+c.Image)
		}
		all = append(all, map[string]any{"name": p.Name, "created": p.CreationTimestamp, "node": p.Spec.NodeName, "images": images, "status": p.Status})
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			b.log(ctx, p, c.Name, false)
			if c.RestartCount > 0 {
				b.log(ctx, p, c.Name, true)
			}
		}
	}
	b.add("pods-"+namespace+".json", all)
}

func (b *support) log(ctx context.Context, p *corev1.Pod, container string, previous bool) {
	name := fmt.Sprintf("logs/%s/%s/%s", p.Namespace, p.Name, container)
	if previous {
		name += ".previous"
	}
	text, err := b.logs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true, TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes)),
	}).DoRaw(ctx)
	if b.failed(name, err); err == nil {
		b.files[name+".log"] = []byte(scrub(cut(string(text), logBytes-1, "\n"))) // one of logBytes was cut already
	}
}

// pack writes all files, and which could not be had.
func (b *support) pack(w io.Writer) error {
	left := ""
	for _, what := range b.unknown {
		left += scrubText(what) + "\n"
	}
	b.files["left-out.txt"] = []byte(left)
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		h := &tar.Header{Name: "forcefence-support/" + name, Mode: 0o600, Size: int64(len(b.files[name])), ModTime: b.now, Typeflag: tar.TypeReg}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(b.files[name]); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
