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
	"github.com/forcefence/forcefence/taint/decide"
)

// newSupportBundle returns the command that collects what a helper needs to analyse a problem.
func newSupportBundle() *cobra.Command {
	var cluster clusterFlags
	var key string
	cmd := &cobra.Command{
		Use:   "support-bundle [FILE]",
		Short: "Write a file for support: versions, configuration, Nodes, Fencings, Events, logs",
		Long: `Write a file for support (.tar.gz; default forcefence-support-TIME.tar.gz; - is
standard output). It contains versions, the controller's configuration and
Leases, what the Nodes say about fences, Fencings, forcefence's Events, and
forcefence's pods with the ends of their logs. The command leaves out what you
may not read, and lists it.

No Secret is read. The command removes values whose names mark them as secret,
passwords in addresses, and texts that look like tokens or keys. Names of nodes,
pods, volumes and devices stay. Texts over 16 KiB are cut. Check the file before
you send it: no program recognizes every secret.`,
		Example: `  # A file in this folder
  forcefence support-bundle
  # Another one
  forcefence support-bundle /tmp/n3-is-not-fenced.tar.gz`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := cluster.restConfig()
			if err != nil {
				return err
			}
			c, err := cluster.newClient()
			if err != nil {
				return err
			}
			logs, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				return fmt.Errorf("making client: %w", err)
			}
			now := time.Now().UTC()
			b := &supportBundle{
				client:    c,
				logs:      logs,
				namespace: cluster.overrides.Context.Namespace,
				key:       key,
				now:       now,
			}
			if err := b.collectFiles(cmd.Context()); err != nil {
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
			if err := b.writeArchive(&packed); err != nil {
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
				return fmt.Errorf("writing the bundle, which needs a new file: %w", err)
			}
			_, err = packed.WriteTo(f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			printText(out, "", "Wrote %s: %s. Check it before you send it.", name,
				decide.FormatCount(len(b.files), "file"))
			for _, what := range b.leftOut {
				printText(out, "", "Left out: %s.", strings.TrimSuffix(what, "."))
			}
			return nil
		},
	}
	cluster.addFlags(cmd)
	cluster.addNamespaceFlag(cmd)
	addTaintKeyFlag(cmd, &key)
	return withRole(cmd, roleLook)
}

// supportBundle holds the files of the archive, by name. No file holds a secret.
type supportBundle struct {
	client    client.Client
	logs      kubernetes.Interface
	namespace string // of the controller; "": that of its Lease
	key       string // the mark's
	now       time.Time

	files   map[string][]byte
	leftOut []string
}

// hookNamespace is the namespace in which the manifests put the hook's DaemonSet.
const hookNamespace = "forcefence-node"

// ownPods selects the pods of forcefence.
var ownPods = client.MatchingLabels{"app.kubernetes.io/part-of": "forcefence"}

// collectFiles reads everything that the user may read. It returns an error if no API server answers, because the
// archive would be empty.
func (b *supportBundle) collectFiles(ctx context.Context) error {
	b.files = map[string][]byte{}
	server, err := b.logs.Discovery().ServerVersion()
	var answered apierrors.APIStatus
	if err != nil && !errors.As(err, &answered) {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	b.noteFailure("version of the API server", err)
	b.addJSON("versions.json", map[string]any{"forcefence": version.String(), "kubernetes": server, "at": b.now})
	g := statusReader{
		client:    b.client,
		namespace: b.namespace,
		key:       b.key,
		all:       true,
		now:       func() time.Time { return b.now },
	}
	f, err := g.readFleet(ctx)
	if b.noteFailure("status", err); err == nil {
		b.leftOut = append(b.leftOut, f.Unknown...)
		b.addJSON("status.json", f)
	}
	var nodes []any
	err = eachObject(ctx, b.client, func() *corev1.NodeList { return &corev1.NodeList{} },
		func(o runtime.Object) error {
			nodes = append(nodes, nodeExcerpt(o.(*corev1.Node)))
			return nil
		})
	b.noteFailure("nodes", err)
	b.addJSON("nodes.json", nodes)
	var fencings []any
	err = eachObject(ctx, b.client, newFencings, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			m.SetManagedFields(nil)
		}
		fencings = append(fencings, o)
		return err
	})
	if err != nil {
		err = fencingReadError(b.client, err)
	}
	b.noteFailure("Fencings", err)
	b.addJSON("fencings.json", fencings)
	events, err := eventsOf(ctx, b.client, "")
	b.noteFailure("Events", err)
	b.addJSON("events.json", events)
	namespace, err := controllerNamespace(ctx, b.client, b.namespace)
	if b.noteFailure("the controller's pods and configuration", err); err != nil {
		return nil
	}
	b.addConfig(ctx, namespace)
	for _, ns := range slices.Compact([]string{namespace, hookNamespace}) {
		b.addPods(ctx, ns)
	}
	return nil
}

// noteFailure records in the archive what could not be read, and why.
func (b *supportBundle) noteFailure(what string, err error) {
	if err == nil {
		return
	}
	text := describeUnread(err, roleLook)
	b.leftOut = slices.DeleteFunc(b.leftOut, func(had string) bool { return had == text }) // status could not read it
	b.leftOut = append(b.leftOut, what+": "+text)
}

// addJSON adds a value as a JSON file, without secrets.
func (b *supportBundle) addJSON(name string, v any) {
	text, err := json.Marshal(v)
	var plain any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	var out bytes.Buffer
	if err == nil {
		text, err = encodeJSON(redactAll(plain))
	}
	if err == nil {
		err = json.Indent(&out, text, "", " ")
	}
	if b.noteFailure(name, err); err == nil {
		b.files[name] = out.Bytes()
	}
}

// The ConfigMap and its key under which the manifests in deploy/ store the controller's configuration.
const (
	configMapName = "forcefence"
	configKey     = "config.yaml"
)

// addConfig adds the controller's configuration.
func (b *supportBundle) addConfig(ctx context.Context, namespace string) {
	var cm corev1.ConfigMap
	err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: configMapName}, &cm)
	var plain any
	if err == nil {
		err = yaml.Unmarshal([]byte(cm.Data[configKey]), &plain)
	}
	var text []byte
	if err == nil {
		text, err = yaml.Marshal(redactAll(plain))
	}
	if b.noteFailure(fmt.Sprintf("the configuration, ConfigMap %s/%s", namespace, configMapName), err); err == nil {
		b.files[configKey] = text
	}
}

// Limits for how much of a log is read.
const (
	logLines = 5000
	logBytes = 4 << 20
)

// addPods adds forcefence's pods of a namespace, and the ends of their logs. It includes the logs of containers that
// terminated before.
func (b *supportBundle) addPods(ctx context.Context, namespace string) {
	var list corev1.PodList
	if err := b.client.List(ctx, &list, client.InNamespace(namespace), ownPods); err != nil {
		b.noteFailure("pods of namespace "+namespace, err)
		return
	}
	var all []any
	for i := range list.Items {
		p := &list.Items[i]
		var images []string
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			images = append(images, c.Name+": "+c.Image)
		}
		all = append(all, map[string]any{
			"name":    p.Name,
			"created": p.CreationTimestamp,
			"node":    p.Spec.NodeName,
			"images":  images,
			"status":  p.Status,
		})
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			b.addLog(ctx, p, c.Name, false)
			if c.RestartCount > 0 {
				b.addLog(ctx, p, c.Name, true)
			}
		}
	}
	b.addJSON("pods-"+namespace+".json", all)
}

func (b *supportBundle) addLog(ctx context.Context, p *corev1.Pod, container string, previous bool) {
	name := fmt.Sprintf("logs/%s/%s/%s", p.Namespace, p.Name, container)
	if previous {
		name += ".previous"
	}
	text, err := b.logs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
		Container:  container,
		Previous:   previous,
		Timestamps: true,
		TailLines:  new(int64(logLines)),
		LimitBytes: new(int64(logBytes)),
	}).DoRaw(ctx)
	if b.noteFailure(name, err); err == nil {
		// A log of logBytes was already cut
		b.files[name+".log"] = []byte(redactText(cutText(string(text), logBytes-1, "\n")))
	}
}

// writeArchive writes all files, and the list of what could not be read.
func (b *supportBundle) writeArchive(w io.Writer) error {
	left := ""
	for _, what := range b.leftOut {
		left += cutAndRedact(what) + "\n"
	}
	b.files["left-out.txt"] = []byte(left)
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		h := &tar.Header{
			Name:     "forcefence-support/" + name,
			Mode:     0o600,
			Size:     int64(len(b.files[name])),
			ModTime:  b.now,
			Typeflag: tar.TypeReg,
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(b.files[name]); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
