package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/providers/metal3"
	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/features/drain"
	"github.com/forcefence/forcefence/taint/features/networkfence"
	"github.com/forcefence/forcefence/taint/features/networkfence/storagefence"
	"github.com/forcefence/forcefence/taint/features/remediation"
	"github.com/forcefence/forcefence/taint/features/remediation/api"
	"github.com/forcefence/forcefence/taint/features/remediation/request"
	"github.com/forcefence/forcefence/taint/kube"
	"github.com/forcefence/forcefence/taint/writes"
)

// The resources of orders.
const (
	FencesResource   = "networkfences.csiaddons.openshift.io"
	requestsResource = "forcefenceremediations.remediation.forcefence.io"
	budgetsResource  = "poddisruptionbudgets.policy"
	hostsResource    = "baremetalhosts.metal3.io"
)

// OrderLists list the objects by which others obey forcefence. A nil one lists none.
type OrderLists struct {
	Fences   func(context.Context) ([]storagefence.Fence, error)
	Requests func(context.Context) ([]api.ForcefenceRemediation, error)
	Budgets  func(context.Context) ([]policyv1.PodDisruptionBudget, error)
	Hosts    func(context.Context) ([]metav1.PartialObjectMetadata, error) // BareMetalHosts of this cluster
}

// ListOrders lists the objects of all namespaces.
func ListOrders(from client.Reader) OrderLists {
	return OrderLists{
		Fences: func(ctx context.Context) ([]storagefence.Fence, error) {
			all, err := networkfence.ListFences(ctx, from)
			if apimeta.IsNoMatchError(err) {
				return nil, nil
			}
			return all, err
		},
		Requests: func(ctx context.Context) ([]api.ForcefenceRemediation, error) {
			return remediation.ListRequests(ctx, from, []string{""})
		},
		Budgets: func(ctx context.Context) ([]policyv1.PodDisruptionBudget, error) {
			var list policyv1.PodDisruptionBudgetList
			if err := from.List(ctx, &list, client.HasLabels{taint.DrainGuardLabel}); err != nil {
				return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
			}
			return list.Items, nil
		},
		Hosts: func(ctx context.Context) ([]metav1.PartialObjectMetadata, error) { return listHosts(ctx, from, "") },
	}
}

// hostNamespaces returns the namespaces of this cluster whose BareMetalHosts forcefence may power off.
func hostNamespaces(cfg *config.Config) (namespaces []string) {
	for _, p := range cfg.Providers {
		c, is := p.Config.(*metal3.Config)
		if is && c.Kubeconfig == "" && c.PowerOff != metal3.PowerOffNone {
			namespaces = append(namespaces, c.Namespaces...)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// hostsPage is how many BareMetalHosts one request lists. Their annotations may be large.
const hostsPage = 100

// listHosts lists the BareMetalHosts of a namespace, "" for all, with nothing but their metadata. It blocks for the API
// server.
func listHosts(
	ctx context.Context, from client.Reader, namespace string,
) (hosts []metav1.PartialObjectMetadata, _ error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(
		schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHostList"})
	for {
		err := from.List(ctx, &list, client.InNamespace(namespace), client.Limit(hostsPage),
			client.Continue(list.Continue))
		switch {
		case apimeta.IsNoMatchError(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing BareMetalHosts: %w", err)
		}
		for _, h := range list.Items {
			if len(metal3.StoredOrders(h.Annotations)) > 0 {
				hosts = append(hosts, h)
			}
		}
		if list.Continue == "" {
			return hosts, nil
		}
	}
}

// Read returns what forcefence has ordered of others, and why a resource is not known, by the resource. nodes are all
// Nodes. It blocks for the API server.
func (o OrderLists) Read(
	ctx context.Context, nodes []corev1.Node, key string,
) (orders []writes.Order, unread map[string]error) {
	unread = map[string]error{}
	byName, byUID := map[string]taint.Look{}, map[string]taint.Look{}
	for i := range nodes {
		l := lookByStatus(&nodes[i], key)
		byName[l.Name], byUID[l.UID] = l, l
		orders = append(orders, hostOrders(l)...)
	}
	if o.Fences != nil {
		all, err := o.Fences(ctx)
		unread[FencesResource] = err
		for _, f := range all {
			if f.Owned {
				orders = append(orders, writes.Order{Resource: FencesResource, Name: f.Name, Node: f.Node,
					State: f.Standing(byName[f.Node]), Made: f.CreatedAt})
			}
		}
	}
	if o.Requests != nil {
		all, err := o.Requests(ctx)
		unread[requestsResource] = err
		for i := range all {
			if r := &all[i]; request.HasFinalizer(r) {
				orders = append(orders, requestOrder(r, byUID[r.Status.NodeUID]))
			}
		}
	}
	if o.Budgets != nil {
		all, err := o.Budgets(ctx)
		unread[budgetsResource] = err
		for i := range all {
			orders = append(orders, budgetOrder(&all[i], byName))
		}
	}
	if o.Hosts != nil {
		all, err := o.Hosts(ctx)
		unread[hostsResource] = err
		for i := range all {
			orders = append(orders, forgottenOrders(&all[i], byUID)...)
		}
	}
	slices.SortFunc(orders, func(a, b writes.Order) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return orders, unread
}

// lookByStatus is a look at a Node whose Lease was not read: it counts as silent until its status shows life.
func lookByStatus(n *corev1.Node, key string) taint.Look {
	l := taint.NewLook(n, nil, key, taint.Instant{}, taint.Instant{})
	if l.Record != nil {
		l.LeaseRV = l.Record.LeaseRV
	}
	return l
}

// hostOrders are the power-offs that the Node's record names and that others may still carry out.
func hostOrders(l taint.Look) (orders []writes.Order) {
	if l.Record == nil {
		return nil
	}
	void := l.OrdersToWithdraw()
	for _, d := range l.Record.Orders {
		state := writes.Holds
		if slices.ContainsFunc(void, d.IsSame) {
			state = writes.Kept
		}
		orders = append(orders, writes.Order{Resource: hostsResource, Name: d.Device, Node: l.Name, State: state,
			Made: l.Record.Since})
	}
	return orders
}

// forgottenOrders are the power-offs that a BareMetalHost keeps and that no record names: the Node is gone, or its
// record is. When they were made is unknown.
func forgottenOrders(h *metav1.PartialObjectMetadata, byUID map[string]taint.Look) (orders []writes.Order) {
	name := h.Namespace + "/" + h.Name
	for _, life := range metal3.StoredOrders(h.Annotations) {
		l := byUID[life.NodeUID]
		if l.Record != nil && slices.ContainsFunc(l.Record.Orders, func(d taint.DeviceRef) bool {
			return strings.HasSuffix(d.Device, "/"+name)
		}) {
			continue
		}
		o := writes.Order{Resource: hostsResource, Name: name, Node: l.Name, State: writes.Kept}
		if !l.Exists && life.NodeUID != "" {
			o.Node, o.State = fmt.Sprintf("(UID %.40q)", life.NodeUID), writes.NodeGone
		}
		orders = append(orders, o)
	}
	return orders
}

// requestOrder is a request that our finalizer keeps, by a look at its Node.
func requestOrder(r *api.ForcefenceRemediation, l taint.Look) writes.Order {
	o := writes.Order{Resource: requestsResource, Name: r.Namespace + "/" + r.Name, Node: r.Status.Node,
		State: writes.Kept, Made: r.CreationTimestamp.Time}
	switch {
	case !l.Exists:
		o.State = writes.NodeGone
	case l.HasOwnMark():
		o.State = writes.Holds
	}
	return o
}

// budgetOrder is a budget of a drain guard.
func budgetOrder(b *policyv1.PodDisruptionBudget, nodes map[string]taint.Look) writes.Order {
	node := drain.SeeBudget(b).Node
	o := writes.Order{Resource: budgetsResource, Name: b.Namespace + "/" + b.Name, Node: node, State: writes.Holds,
		Made: b.CreationTimestamp.Time}
	if !nodes[node].Exists {
		o.State = writes.NodeGone
	}
	return o
}

// orderGauge exports how old the orders are, while this process leads.
type orderGauge struct {
	lists OrderLists
	nodes client.Reader
	key   string
	log   *slog.Logger
	now   func() time.Time
	age   *prometheus.GaugeVec
}

// orderInterval is the time between two reads of the orders. The alert waits for many of them.
const orderInterval = time.Minute

func newOrderGauge(
	lists OrderLists, nodes client.Reader, key string, log *slog.Logger, now func() time.Time,
	reg prometheus.Registerer,
) *orderGauge {
	g := &orderGauge{lists: lists, nodes: nodes, key: key, log: log, now: now,
		age: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: writes.OrderMetric,
			Help: "Age of the oldest order that others obey while forcefence does not look, by resource and state, 0 " +
				"without one: holds, kept (it should have ended), ending (nothing confirms that yet), node_gone.",
		}, []string{"resource", "state"})}
	reg.MustRegister(g.age)
	for _, w := range writes.All {
		if w.Standing != nil && w.Standing.Metric == writes.OrderMetric {
			g.set(w.Resource, nil)
		}
	}
	return g
}

// Start reads the orders until ctx ends.
func (g *orderGauge) Start(ctx context.Context) error {
	for {
		g.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(orderInterval):
		}
	}
}

// read reads the orders once. What cannot be read stays as it was.
func (g *orderGauge) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var list corev1.NodeList
	if err := g.nodes.List(ctx, &list); err != nil {
		g.log.Warn("Cannot read which orders are in force", "error", err)
		return
	}
	orders, unread := g.lists.Read(ctx, list.Items, g.key)
	g.set(hostsResource, orders) // records name most of them, without a list
	for resource, err := range unread {
		if err != nil {
			g.log.Warn("Cannot read which orders are in force", "resource", resource, "error", err)
			continue
		}
		g.set(resource, orders)
	}
}

// set exports the ages of a resource's orders.
func (g *orderGauge) set(resource string, orders []writes.Order) {
	for _, state := range writes.States {
		age := time.Duration(0)
		for _, o := range orders {
			if o.Resource == resource && o.State == state {
				age = max(age, time.Second) // one of a clock that is ahead, or of no known time, counts, too
				if !o.Made.IsZero() {
					age = max(age, g.now().Sub(o.Made))
				}
			}
		}
		g.age.WithLabelValues(resource, string(state)).Set(age.Seconds())
	}
}
