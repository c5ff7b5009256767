package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/test/kit"
)

// fleetAPI is a simulated API server for bench fleet: as much of one as forcefence's program uses, over TLS and HTTP/2,
// in protobuf where the client asks for it. A real one cannot serve 5,000 nodes here: their heartbeats alone are 500
// writes a second, about half of what a real one with etcd takes from this machine (F6), and 150,000 pods would have to
// be written first. Its objects are those of fleetWorld. What is real: lists and watches (with initial events), UID and
// resourceVersion preconditions, merge and strategic merge patches, answers that are metadata alone, leader election.
// What is not: there are no users, no admission, no validation. A watch never ends, and one that continues from a
// resourceVersion does not report what was deleted meanwhile. A write takes writeTakes, and it makes at most
// writesPerSecond: what one real API server with etcd did here (F6).
type fleetAPI struct {
	world  *fleetWorld
	server *httptest.Server
	writes *rate.Limiter

	// refuse makes the server answer 429 to half of all writes, at random: of two clients that take turns, one would
	// never get through if it were every second write.
	refuse atomic.Bool

	mu       sync.Mutex     // guards requests
	requests map[string]int // by verb, resource and the form of the answer
}

const (
	writesPerSecond = 1000
	writeTakes      = 5 * time.Millisecond
	readTakes       = 2 * time.Millisecond
)

// fleetKinds are the kinds that are served, by resource.
var fleetKinds = map[string]schema.GroupVersionKind{
	"nodes":                  corev1.SchemeGroupVersion.WithKind("Node"),
	"pods":                   corev1.SchemeGroupVersion.WithKind("Pod"),
	"persistentvolumes":      corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
	"persistentvolumeclaims": corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
	"configmaps":             corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	"leases":                 {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	"volumeattachments":      {Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment"},
	"replicasets":            {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	"events":                 {Group: "events.k8s.io", Version: "v1", Kind: "Event"},
}

var clusterScoped = []string{"nodes", "persistentvolumes", "volumeattachments"}

func newFleetAPI(w *fleetWorld, ca *kit.Authority) *fleetAPI {
	a := &fleetAPI{world: w, requests: map[string]int{}, writes: rate.NewLimiter(writesPerSecond, 1)}
	a.server = httptest.NewUnstartedServer(a)
	a.server.EnableHTTP2 = true
	a.server.TLS = &tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{ca.Server("127.0.0.1").TLS()}}
	a.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.server.Config.BaseContext = func(net.Listener) context.Context { return w.ctx }
	a.server.StartTLS()
	return a
}

// requestCounts returns how many requests there were of each kind.
func (a *fleetAPI) requestCounts() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.requests)
}

// call is one request, taken apart.
type call struct {
	verb, group, resource, namespace, name, sub string
	query                                       url.Values
	media                                       string // of the body
	proto, partial                              bool   // the form of the answer: protobuf, metadata alone
}

func parseCall(r *http.Request) call {
	accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	c := call{
		verb: strings.ToLower(r.Method), query: r.URL.Query(), media: r.Header.Get("Content-Type"),
		proto: strings.Contains(accept, "protobuf"), partial: strings.Contains(accept, "as=PartialObjectMetadata"),
	}
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(p) > 2 && p[0] == "api":
		p = p[2:]
	case len(p) > 3 && p[0] == "apis":
		c.group, p = p[1], p[3:]
	default:
		c.verb, p = "discover", []string{r.URL.Path}
	}
	if len(p) > 2 && p[0] == "namespaces" {
		c.namespace, p = p[1], p[2:]
	}
	for i, to := range []*string{&c.resource, &c.name, &c.sub} {
		if i < len(p) {
			*to = p[i]
		}
	}
	switch watch := c.query.Get("watch"); {
	case c.verb == "get" && watch != "" && watch != "false":
		c.verb = "watch"
	case c.verb == "get" && c.name == "":
		c.verb = "list"
	}
	return c
}

// String is the kind of request, for counting.
func (c call) String() string {
	form := "json"
	if c.proto {
		form = "protobuf"
	}
	if c.partial {
		form += ", metadata"
	}
	return fmt.Sprintf("%s %s (%s)", c.verb, strings.TrimSuffix(c.resource+"/"+c.sub, "/"), form)
}

// covers reports whether an object is in the namespace that was asked for.
func (c call) covers(o client.Object) bool {
	return c.namespace == "" || c.namespace == o.GetNamespace()
}

func (c call) notFound() error {
	return apierrors.NewNotFound(schema.GroupResource{Group: c.group, Resource: c.resource}, c.name)
}

func (c call) conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Group: c.group, Resource: c.resource}, c.name,
		errors.New("the object has been modified"))
}

func (a *fleetAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := parseCall(r)
	err := a.admit(r.Context(), c, r.Method != http.MethodGet)
	if err == nil && c.verb == "watch" {
		if err = a.watch(w, r, c); err == nil {
			return
		}
	}
	var o runtime.Object
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			o, err = a.world.answer(c, body)
		}
	}
	code := http.StatusOK
	if err != nil {
		refused := apierrors.APIStatus(apierrors.NewInternalError(err))
		_ = errors.As(err, &refused)
		s := refused.Status()
		s.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
		if o, code = &s, int(s.Code); code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
	}
	b, media := c.encode(o)
	w.Header().Set("Content-Type", media)
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

// admit counts a request, and blocks for as long as the request takes.
func (a *fleetAPI) admit(ctx context.Context, c call, write bool) error {
	a.mu.Lock()
	a.requests[c.String()]++
	a.mu.Unlock()
	takes := readTakes
	if write {
		if a.refuse.Load() && rand.IntN(2) == 0 {
			return apierrors.NewTooManyRequests("no room", 1)
		}
		if err := a.writes.Wait(ctx); err != nil {
			return err
		}
		takes = writeTakes
	}
	wait(ctx, takes)
	return ctx.Err()
}

// withKind sets an object's kind, which protobuf and JSON need, and returns it.
func withKind[T runtime.Object](o T) T {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err) // it is of client-go's own types
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	return o
}

// newObject returns an empty object of a kind.
func newObject(kind schema.GroupVersionKind) runtime.Object {
	o, err := scheme.Scheme.New(kind)
	if err != nil {
		panic(err) // it is of client-go's own types
	}
	return o
}

// serializer returns what writes in the form that the client asked for.
func (c call) serializer() runtime.SerializerInfo {
	media := runtime.ContentTypeJSON
	if c.proto {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	return info
}

// encode returns the object, or its metadata, and the form's media type.
func (c call) encode(o runtime.Object) (b []byte, media string) {
	if m, ok := o.(metav1.Object); ok && c.partial {
		part := meta.AsPartialObjectMetadata(m)
		part.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		o = part
	}
	var out bytes.Buffer
	info := c.serializer()
	if err := info.Serializer.Encode(o, &out); err != nil && c.proto { // what discovery answers is not in protobuf
		c.proto = false
		return c.encode(o)
	}
	return out.Bytes(), info.MediaType
}

// watch sends what is there, if it is asked for that, and then what changes, until the client or the world ends.
func (a *fleetAPI) watch(w http.ResponseWriter, r *http.Request, c call) error {
	events, err := a.world.watch(c)
	if err != nil {
		return err
	}
	defer events.Stop()
	stream, media := c.serializer().StreamSerializer, c.serializer().MediaType
	if c.proto {
		media += ";stream=watch"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(http.StatusOK)
	out := streaming.NewEncoder(stream.Framer.NewFrameWriter(w), stream.Serializer)
	flush := http.NewResponseController(w)
	for {
		if len(events.ResultChan()) == 0 && flush.Flush() != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case e, open := <-events.ResultChan():
			if !open {
				return nil
			}
			if o := e.Object.(client.Object); e.Type != apiwatch.Bookmark && !c.covers(o) {
				continue
			}
			raw, _ := c.encode(e.Object)
			ev := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}}
			if out.Encode(ev) != nil {
				return nil
			}
		}
	}
}

// watch begins a watch of a resource: with all that is there and a bookmark, or with what changed after a version.
func (w *fleetWorld) watch(c call) (apiwatch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.watches[c.resource]
	if b == nil {
		return nil, c.notFound()
	}
	all := c.query.Get("sendInitialEvents") == "true"
	from, _ := strconv.ParseUint(c.query.Get("resourceVersion"), 10, 64)
	var first []apiwatch.Event
	for _, key := range w.keys(c.resource, "") {
		switch o := w.get(c.resource, key); {
		case o == nil:
		case all:
			first = append(first, apiwatch.Event{Type: apiwatch.Added, Object: o})
		default:
			if rv, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64); rv > from {
				first = append(first, apiwatch.Event{Type: apiwatch.Modified, Object: o})
			}
		}
	}
	if all {
		m := newObject(fleetKinds[c.resource]).(client.Object)
		m.SetResourceVersion(strconv.FormatUint(w.rv, 10))
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		first = append(first, apiwatch.Event{Type: apiwatch.Bookmark, Object: withKind(m)})
	}
	return b.WatchWithPrefix(first)
}

// answer does one request but a watch.
func (w *fleetWorld) answer(c call, body []byte) (runtime.Object, error) {
	if c.verb == "discover" {
		return discover(c.resource)
	}
	if kind, served := fleetKinds[c.resource]; c.resource != "events" && (!served || kind.Group != c.group) {
		return nil, c.notFound()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.get(c.resource, c.namespace+"/"+c.name)
	switch {
	case c.verb == "list":
		return w.list(c)
	case c.resource == "events":
		return withKind(&metav1.Status{Status: metav1.StatusSuccess}), nil
	case c.verb == "post":
		return w.write(c, body, nil)
	case old == nil:
		return nil, c.notFound()
	case c.verb == "get":
		return old, nil
	case c.verb == "put":
		return w.write(c, body, old)
	case c.verb == "patch":
		return w.patch(c, body, old)
	case c.verb == "delete":
		return w.delete(c, body, old)
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Group: c.group, Resource: c.resource}, c.verb)
}

// list selects by labels and fields. Pods are listed by their node.
func (w *fleetWorld) list(c call) (runtime.Object, error) {
	byField, err := fields.ParseSelector(c.query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	byLabel, err := labels.Parse(c.query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	node, _ := byField.RequiresExactMatch("spec.nodeName")
	var items []runtime.Object
	for _, key := range w.keys(c.resource, node) {
		o := w.get(c.resource, key)
		if o == nil || !c.covers(o) {
			continue
		}
		f := fields.Set{"metadata.name": o.GetName()}
		if p, ok := o.(*corev1.Pod); ok {
			f["spec.nodeName"], f["status.phase"] = p.Spec.NodeName, string(p.Status.Phase)
		}
		if byField.Matches(f) && byLabel.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o)
		}
	}
	kind := fleetKinds[c.resource]
	list := newObject(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.FormatUint(w.rv, 10))
	return withKind(list), nil
}

// write creates an object, or replaces that of the same version.
func (w *fleetWorld) write(c call, body []byte, old client.Object) (runtime.Object, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	in, ok := o.(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest("no object")
	}
	in.SetNamespace(c.namespace)
	switch {
	case old == nil && w.get(c.resource, keyOf(in)) != nil:
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: c.group, Resource: c.resource}, in.GetName())
	case old != nil && in.GetResourceVersion() != old.GetResourceVersion():
		return nil, c.conflict()
	}
	w.put(c.resource, in)
	return in, nil
}

// patch patches an object in a copy, if it is the one that the patch names.
func (w *fleetWorld) patch(c call, body []byte, old client.Object) (runtime.Object, error) {
	var named struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &named); err != nil {
		return nil, err
	}
	if !isNamed(old, named.UID, named.ResourceVersion) {
		return nil, c.conflict()
	}
	bare := old
	if n, ok := old.(*corev1.Node); ok {
		node := *n
		node.Status.Images = nil // they are not patched, and they are most of a Node
		bare = &node
	}
	before, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	var after []byte
	if c.media == string(types.StrategicMergePatchType) {
		after, err = strategicpatch.StrategicMergePatch(before, body, old)
	} else {
		after, err = jsonpatch.MergePatch(before, body)
	}
	if err != nil {
		return nil, err
	}
	out := newObject(fleetKinds[c.resource]).(client.Object)
	if err := json.Unmarshal(after, out); err != nil {
		return nil, err
	}
	if node, ok := out.(*corev1.Node); ok {
		node.Status.Images = w.images
		w.noteFence(old.(*corev1.Node), node)
	}
	w.put(c.resource, out)
	return out, nil
}

// isNamed reports whether an object is the one, and of the version, that a write names; "": any.
func isNamed(o client.Object, uid types.UID, version string) bool {
	return (uid == "" || uid == o.GetUID()) && (version == "" || version == o.GetResourceVersion())
}

func (w *fleetWorld) delete(c call, body []byte, old client.Object) (runtime.Object, error) {
	opts := &metav1.DeleteOptions{}
	if len(body) > 0 {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, opts); err != nil {
			return nil, err
		}
	}
	if p := opts.Preconditions; p != nil {
		uid, version := *cmp.Or(p.UID, new(types.UID)), *cmp.Or(p.ResourceVersion, new(string))
		if !isNamed(old, uid, version) {
			return nil, c.conflict()
		}
	}
	w.remove(c.resource, old)
	return old, nil
}

// discover answers what clients ask of the API server itself.
func discover(path string) (runtime.Object, error) {
	groups, resources := map[string]metav1.APIGroup{}, map[string]*metav1.APIResourceList{}
	for resource, kind := range fleetKinds {
		at, gv := "/apis/"+kind.Group, kind.GroupVersion().String()
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: kind.Version}
		if kind.Group == "" {
			at = "/api"
		} else {
			groups[at] = metav1.APIGroup{
				TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: kind.Group,
				Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
			}
		}
		at += "/" + kind.Version
		if resources[at] == nil {
			resources[at] = &metav1.APIResourceList{GroupVersion: gv}
		}
		resources[at].APIResources = append(resources[at].APIResources, metav1.APIResource{
			Name: resource, SingularName: strings.ToLower(kind.Kind), Kind: kind.Kind,
			Namespaced: !slices.Contains(clusterScoped, resource),
			Verbs:      metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"},
		})
	}
	path = strings.TrimSuffix(path, "/")
	switch path {
	case "/api":
		return withKind(&metav1.APIVersions{Versions: []string{"v1"}}), nil
	case "/apis":
		return withKind(&metav1.APIGroupList{Groups: slices.Collect(maps.Values(groups))}), nil
	}
	if l := resources[path]; l != nil {
		return withKind(l), nil
	}
	if g, ok := groups[path]; ok {
		return &g, nil
	}
	return nil, call{resource: path}.notFound()
}
