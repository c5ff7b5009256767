package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/forcefence/forcefence/cmd/internal/app"
	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
	"github.com/forcefence/forcefence/taint/decide/fence"
	"github.com/forcefence/forcefence/taint/journal"
	"github.com/forcefence/forcefence/taint/view"
)

// pageSize is how many objects one list request returns at most.
const pageSize = 500

// eachObject lists objects in pages and calls f for each. list returns an empty list of their type.
func eachObject[L client.ObjectList](
	ctx context.Context,
	c client.Reader,
	list func() L,
	f func(runtime.Object) error,
	opts ...client.ListOption,
) error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l := list()
		return l, c.List(ctx, l, append(opts, client.Limit(o.Limit), client.Continue(o.Continue))...)
	})
	p.PageSize = pageSize
	return p.EachListItem(ctx, metav1.ListOptions{}, f)
}

// leader is a Lease by which controllers elect their leader.
type leader struct {
	Namespace string     `json:"namespace"`
	Lease     string     `json:"lease"`
	Holder    string     `json:"holder,omitempty"` // "": no controller
	Renewed   *time.Time `json:"renewed,omitempty"`
	Leads     bool       `json:"leads"` // a controller holds it, or held it a moment ago
}

// listLeaders returns the Leases of all controllers.
func listLeaders(ctx context.Context, c client.Reader) (out []leader, _ error) {
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.HasLabels{app.LeaderLabel}); err != nil {
		return nil, fmt.Errorf("looking for a controller that leads: %w", err)
	}
	for _, l := range list.Items {
		one := leader{Namespace: l.Namespace, Lease: l.Name}
		if h := l.Spec.HolderIdentity; h != nil && *h != "" && l.Spec.RenewTime != nil {
			valid := time.Minute // this machine's clock may differ from the controller's
			if s := l.Spec.LeaseDurationSeconds; s != nil {
				valid = max(valid, min(time.Duration(*s)*time.Second, time.Hour))
			}
			at := l.Spec.RenewTime.UTC()
			one.Holder, one.Renewed, one.Leads = *h, &at, time.Since(at) < valid
		}
		out = append(out, one)
	}
	return out, nil
}

// errNoNamespace reports that the controller's namespace cannot be determined.
var errNoNamespace = errors.New("name the controller's namespace with -n")

// controllerNamespace returns the controller's namespace: named, or that of its Lease if named is "".
func controllerNamespace(ctx context.Context, c client.Reader, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := listLeaders(ctx, c)
	return onlyNamespace(all, err)
}

// namespacesOf returns the namespaces of the Leases, each once.
func namespacesOf(all []leader) (out []string) {
	for _, l := range all {
		out = append(out, l.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func onlyNamespace(all []leader, err error) (string, error) {
	found := namespacesOf(all)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", errNoNamespace, err)
	case len(found) == 0:
		return "", fmt.Errorf("%w: no controller has made its Lease in this cluster", errNoNamespace)
	case len(found) > 1:
		return "", fmt.Errorf("%w: there are Leases of controllers in %s", errNoNamespace, strings.Join(found, ", "))
	}
	return found[0], nil
}

// Names under which the manifests in deploy/ store the controller's configuration.
const (
	configMapName = "forcefence"
	configKey     = "config.yaml"
)

// pauseConfigMap returns the ConfigMap that pauses the whole cluster. unsure explains why the controller may read
// another one, and is "" if that is certain. It returns an error if the controller reads none.
func pauseConfigMap(
	ctx context.Context,
	c client.Reader,
	namespace string,
) (key client.ObjectKey, unsure string, err error) {
	named := struct {
		PauseConfigMap *string
	}{}
	key = client.ObjectKey{Namespace: namespace, Name: config.Default().PauseConfigMap}
	var cm corev1.ConfigMap
	where := client.ObjectKey{Namespace: namespace, Name: configMapName}
	err = c.Get(ctx, where, &cm)
	if err == nil {
		err = yaml.Unmarshal([]byte(cm.Data[configKey]), &named)
	}
	switch {
	case err != nil:
		return key, fmt.Sprintf(
			"Whether the controller's configuration has pauseConfigMap: %s is not known: reading ConfigMap %s: %v",
			key.Name, where, err,
		), nil
	case named.PauseConfigMap == nil:
		return key, "", nil
	case *named.PauseConfigMap == "":
		return key, "", fmt.Errorf(
			`the controller's configuration (ConfigMap %s) has pauseConfigMap: "": nothing pauses the whole cluster. Pause nodes, or correct it`,
			where,
		)
	}
	key.Name = *named.PauseConfigMap
	return key, "", nil
}

// eventsOf returns forcefence's Events about Nodes by node name, in the API server's order. node limits them to one
// node; "" means all.
func eventsOf(ctx context.Context, c client.Reader, node string) (map[string][]view.OwnEvent, error) {
	about := fields.Set{"involvedObject.kind": "Node", "reportingComponent": "forcefence"}
	if node != "" {
		about["involvedObject.name"] = node
	}
	out := map[string][]view.OwnEvent{}
	err := eachObject(ctx, c, func() *corev1.EventList { return &corev1.EventList{} }, func(o runtime.Object) error {
		e := o.(*corev1.Event)
		at := e.EventTime.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.LastTimestamp.Time
		}
		name := e.InvolvedObject.Name
		out[name] = append(out[name], view.OwnEvent{At: at.UTC(), Reason: e.Reason, Text: e.Message})
		return nil
	}, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{Selector: about.AsSelector()})
	if err != nil {
		return nil, fmt.Errorf("listing Events: %w", err)
	}
	return out, nil
}

// newestEvent returns the newest Event of a list in any order; nil for an empty list.
func newestEvent(all []view.OwnEvent) *view.OwnEvent {
	var last *view.OwnEvent
	for i := range all {
		if last == nil || all[i].At.After(last.At) {
			last = &all[i]
		}
	}
	return last
}

// fencingReadError explains why Fencings cannot be read, if the cause is their CustomResourceDefinition. It returns
// other errors unchanged.
func fencingReadError(c client.Client, err error) error {
	if !meta.IsNoMatchError(err) {
		return err
	}
	served, bad := c.RESTMapper().RESTMappings(api.GroupVersion.WithKind(api.Kind).GroupKind())
	if bad != nil || len(served) == 0 {
		return fmt.Errorf(
			"this cluster has no Fencings: its CustomResourceDefinition %s.%s, part of deploy/kustomize/base, is not installed",
			api.Resource.Resource, api.Resource.Group,
		)
	}
	var versions []string
	for _, m := range served {
		versions = append(versions, m.GroupVersionKind.Version)
	}
	return fmt.Errorf(
		"this cluster serves Fencings as %s, and this program knows %s: it is older than the controller",
		strings.Join(versions, ", "), api.GroupVersion.Version,
	)
}

func newFencing() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind))
	return u
}

func newFencings() *unstructured.UnstructuredList {
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(api.GroupVersion.WithKind(api.Kind + "List"))
	return u
}

// readNeedsPerson returns why a person should look at a fence, from its Fencing. It returns "" if the Fencing gives no
// reason, or does not exist.
func readNeedsPerson(ctx context.Context, c client.Client, node string, r *taint.Record) (string, error) {
	u := newFencing()
	if err := c.Get(ctx, client.ObjectKey{Name: journal.ObjectName(node, *r)}, u); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("reading Fencing: %w", fencingReadError(c, err))
	}
	f, err := view.ParseFencing(u.Object)
	if err != nil {
		return "", err
	}
	if c := meta.FindStatusCondition(f.Fencing.Status.Conditions, api.NeedsPerson); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Message, nil
	}
	return "", nil
}

// readClusterPause returns what pauses the whole cluster; nil: nothing does.
func readClusterPause(ctx context.Context, c client.Reader, at client.ObjectKey, now time.Time) (*fence.Pause, error) {
	var cm corev1.ConfigMap
	switch err := c.Get(ctx, at, &cm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", at, err)
	}
	if p := fence.PauseOf(cm.Data); !p.IsOver(now) {
		return &p, nil
	}
	return nil, nil
}
