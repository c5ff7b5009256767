package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/forcefence/forcefence/test/kit"
)

// fleetAPI is a simulated API server for bench fleet: as much of one as forcefence's program uses, over TLS and HTTP/2,
// in protobuf where it is asked for that. Objects are those of fleetWorld. What is real: lists and watches (with
// initial events and bookmarks), UID and resourceVersion preconditions, merge and strategic merge patches, answers that
// are metadata alone, leader election. What is not: there are no users, no admission, no validation, a watch never
// ends, and one that goes on from a resourceVersion does not tell what was deleted meanwhile. A write takes writeTakes,
// and at most writesPerSecond are made: what one real API server with etcd did here (F6).
type fleetAPI struct {
	world  *fleetWorld
	server *http.Server
	url    string
	codecs serializer.CodecFactory
	done   chan struct{} // closed once it serves no more

	mu       sync.Mutex                       // guards what follows
	requests map[string]int                   // by verb, resource and the form of the answer
	leases   map[string]*coordinationv1.Lease // but the nodes', by namespace and name
	next     time.Time                        // when the next write may be made
	refuse   bool                             // half of all writes are answered 429
}

const (
	writesPerSecond = 1000
	writeTakes      = 5 * time.Millisecond
	readTakes       = 2 * time.Millisecond
	bookmarks       = 50 * time.Second
)

func newFleetAPI(w *fleetWorld, ca *kit.Authority) (*fleetAPI, error) {
	a := &fleetAPI{
		world: w, codecs: serializer.NewCodecFactory(clientgoscheme.Scheme), done: make(chan struct{}),
		requests: map[string]int{}, leases: map[string]*coordinationv1.Lease{},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.url = "https://" + l.Addr().String()
	a.server = &http.Server{
		Handler: a, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return w.ctx },
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13,
			Certificates: []tls.Certificate{ca.Server("127.0.0.1").TLS()}},
	}
	go func() {
		defer close(a.done)
		_ = a.server.ServeTLS(l, "", "") // ends with close
	}()
	return a, nil
}

func (a *fleetAPI) close() {
	_ = a.server.Close()
	<-a.done
}

// refusing has each write answered 429 or not by the throw of a coin, or none. Who takes turns with another would never
// get through if it were every second.
func (a *fleetAPI) refusing(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = yes
}

// seen are the requests so far.
func (a *fleetAPI) seen() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.requests)
}

// call is one request, taken apart.
type call struct {
	group, version, resource, namespace, name, sub string
	query                                          url.Values
}

func parseCall(u *url.URL) (c call, ok bool) {
	p := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case len(p) >= 2 && p[0] == "api":
		c.version, p = p[1], p[2:]
	case len(p) >= 3 && p[0] == "apis":
		c.group, c.version, p = p[1], p[2], p[3:]
	default:
		return c, false
	}
	if len(p) > 2 && p[0] == "namespaces" {
		c.namespace, p = p[1], p[2:]
	}
	for i, to := range []*string{&c.resource, &c.name, &c.sub} {
		if i < len(p) {
			*to = p[i]
		}
	}
	c.query = u.Query()
	return c, c.resource != ""
}

// problem is an error that is a Status.
type problem struct {
	code   int
	reason metav1.StatusReason
}

func (p problem) Error() string { return fmt.Sprintf("%d %s", p.code, p.reason) }

var (
	errNotFound = problem{http.StatusNotFound, metav1.StatusReasonNotFound}
	errConflict = problem{http.StatusConflict, metav1.StatusReasonConflict}
	errExists   = problem{http.StatusConflict, metav1.StatusReasonAlreadyExists}
	errBusy     = problem{http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests}
	errMethod   = problem{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed}
)

func (a *fleetAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := parseCall(r.URL)
	form := formOf(r.Header.Get("Accept"))
	verb := strings.ToLower(r.Method)
	if verb == "get" && c.name == "" {
		verb = "list"
	}
	if c.query.Get("watch") != "" && c.query.Get("watch") != "false" {
		verb = "watch"
	}
	what := fmt.Sprintf("%s %s (%s)", verb, strings.Trim(c.resource+"/"+c.sub, "/"), form)
	if !ok {
		what = verb + " " + r.URL.Path
	}
	write := r.Method != http.MethodGet
	wait, err := a.admit(what, write)
	if err == nil {
		if wait > 0 && !sleepFor(r.Context(), wait) {
			return
		}
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			if verb == "watch" {
				a.watch(w, r, c, form)
				return
			}
			var o runtime.Object
			if o, err = a.answer(r.Method, r.Header.Get("Content-Type"), c, body, ok, r.URL.Path); err == nil {
				a.send(w, http.StatusOK, form, o)
				return
			}
		}
	}
	p := problem{http.StatusInternalServerError, metav1.StatusReasonInternalError}
	_ = errors.As(err, &p)
	s := &metav1.Status{Status: metav1.StatusFailure, Code: int32(p.code), Reason: p.reason, Message: err.Error()}
	s.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	if p == errBusy {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		w.Header().Set("Retry-After", "1")
	}
	a.send(w, p.code, form, s)
}

// admit counts a request, and says how long it takes.
func (a *fleetAPI) admit(what string, write bool) (time.Duration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[what]++
	if !write {
		return readTakes, nil
	}
	if a.refuse && rand.IntN(2) == 0 {
		return 0, errBusy
	}
	now := time.Now()
	if a.next.Before(now) {
		a.next = now
	}
	a.next = a.next.Add(time.Second / writesPerSecond)
	return a.next.Sub(now) + writeTakes, nil
}

// sleepFor returns false if ctx ended first.
func sleepFor(ctx context.Context, d time.Duration) bool { return wait(ctx, d) }

// form is how an answer is written.
type form struct{ proto, partial bool }

func (f form) String() string {
	out := "json"
	if f.proto {
		out = "protobuf"
	}
	if f.partial {
		out += ", metadata"
	}
	return out
}

// formOf is what the first of the accepted types says.
func formOf(accept string) form {
	first, _, _ := strings.Cut(accept, ",")
	return form{strings.Contains(first, "protobuf"), strings.Contains(first, "as=PartialObjectMetadata")}
}

// encode writes an object as the form says.
func (a *fleetAPI) encode(f form, o runtime.Object) ([]byte, error) {
	if m, err := metaOf(o); f.partial && err == nil {
		part := &metav1.PartialObjectMetadata{ObjectMeta: *m}
		part.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		o = part
	}
	media := runtime.ContentTypeJSON
	if f.proto {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(a.codecs.SupportedMediaTypes(), media)
	var b bytes.Buffer
	err := info.Serializer.Encode(o, &b)
	return b.Bytes(), err
}

func (a *fleetAPI) send(w http.ResponseWriter, code int, f form, o runtime.Object) {
	b, err := a.encode(f, o)
	if err != nil { // a kind that protobuf does not know
		f.proto = false
		if b, err = a.encode(f, o); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type",
		map[bool]string{true: runtime.ContentTypeProtobuf, false: runtime.ContentTypeJSON}[f.proto])
	w.WriteHeader(code)
	_, _ = w.Write(b)
}

// metaOf is an object's metadata; an error for lists and what has none.
func metaOf(o runtime.Object) (*metav1.ObjectMeta, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, nil
	case *corev1.Node:
		return &o.ObjectMeta, nil
	}
	return nil, errors.New("no metadata")
}

// answer does one request but a watch.
func (a *fleetAPI) answer(method, media string, c call, body []byte, ok bool, path string) (runtime.Object, error) {
	if !ok {
		return discover(path)
	}
	w := a.world
	switch c.resource {
	case "nodes":
		switch {
		case method == http.MethodGet && c.name == "":
			return w.nodeList(), nil
		case method == http.MethodGet:
			return w.node(c.name)
		case method == http.MethodPatch:
			return w.patchNode(c.name, media, body)
		}
	case "pods":
		switch {
		case method == http.MethodGet && c.name == "":
			return w.podList(c)
		case method == http.MethodGet:
			return w.pod(c.namespace, c.name)
		case method == http.MethodPatch:
			return w.patchPod(c.namespace, c.name, media, body)
		case method == http.MethodDelete:
			return w.deletePod(c.namespace, c.name, a.options(body))
		}
	case "leases":
		if c.namespace == corev1.NamespaceNodeLease {
			if c.name == "" {
				return w.leaseList(), nil
			}
			return w.lease(c.name)
		}
		return a.lease(method, c, body)
	case "volumeattachments":
		if method == http.MethodGet && c.name == "" {
			return w.attachmentList(), nil
		}
	case "persistentvolumes":
		return w.volume(c.name)
	case "persistentvolumeclaims":
		return w.claim(c.namespace, c.name)
	case "events":
		if method == http.MethodPost || method == http.MethodPatch {
			return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusSuccess}, nil
		}
	}
	if method == http.MethodGet || c.group == "forcefence.io" {
		return nil, errNotFound
	}
	return nil, errMethod
}

// options are a deletion's, in JSON.
func (a *fleetAPI) options(body []byte) []byte {
	var o metav1.DeleteOptions
	if _, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, &o); err != nil {
		return body // in JSON already, or it will be refused
	}
	b, _ := json.Marshal(o) // plain data
	return b
}

// discover answers what clients ask of the API server itself.
func discover(path string) (runtime.Object, error) {
	list := func(gv string, rs ...metav1.APIResource) (runtime.Object, error) {
		for i := range rs {
			rs[i].Verbs = metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"}
		}
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv, APIResources: rs}, nil
	}
	group := func(name string) metav1.APIGroup {
		v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
		return metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name,
			Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
	}
	switch path = strings.TrimSuffix(path, "/"); path {
	case "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
			Versions: []string{"v1"}}, nil
	case "/apis":
		return &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
			Groups: []metav1.APIGroup{
				group("coordination.k8s.io"), group("storage.k8s.io"), group("apps"), group("events.k8s.io"),
			}}, nil
	case "/api/v1":
		return list("v1", metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "Node"},
			metav1.APIResource{Name: "nodes/status", Kind: "Node"},
			metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
			metav1.APIResource{Name: "pods/status", Kind: "Pod", Namespaced: true},
			metav1.APIResource{Name: "persistentvolumes", SingularName: "persistentvolume", Kind: "PersistentVolume"},
			metav1.APIResource{Name: "persistentvolumeclaims", SingularName: "persistentvolumeclaim",
				Kind: "PersistentVolumeClaim", Namespaced: true},
			metav1.APIResource{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true})
	case "/apis/coordination.k8s.io/v1":
		return list("coordination.k8s.io/v1",
			metav1.APIResource{Name: "leases", SingularName: "lease", Kind: "Lease", Namespaced: true})
	case "/apis/storage.k8s.io/v1":
		return list("storage.k8s.io/v1",
			metav1.APIResource{Name: "volumeattachments", SingularName: "volumeattachment", Kind: "VolumeAttachment"})
	case "/apis/apps/v1":
		return list("apps/v1",
			metav1.APIResource{Name: "replicasets", SingularName: "replicaset", Kind: "ReplicaSet", Namespaced: true})
	case "/apis/events.k8s.io/v1":
		return list("events.k8s.io/v1",
			metav1.APIResource{Name: "events", SingularName: "event", Kind: "Event", Namespaced: true})
	case "/apis/coordination.k8s.io", "/apis/storage.k8s.io", "/apis/apps", "/apis/events.k8s.io":
		g := group(strings.TrimPrefix(path, "/apis/"))
		return &g, nil
	}
	return nil, errNotFound
}

// lease is leader election.
func (a *fleetAPI) lease(method string, c call, body []byte) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := &coordinationv1.Lease{}
	if method == http.MethodPost || method == http.MethodPut {
		if _, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, in); err != nil {
			return nil, err
		}
		c.name = in.Name
	}
	key := c.namespace + "/" + c.name
	have := a.leases[key]
	switch {
	case method == http.MethodGet && c.name == "":
		return a.leaseList(c), nil
	case method == http.MethodGet && have != nil:
		return have, nil
	case method == http.MethodPost && have != nil:
		return nil, errExists
	case method == http.MethodPut && have != nil && in.ResourceVersion != have.ResourceVersion:
		return nil, errConflict
	case method == http.MethodPost, method == http.MethodPut && have != nil:
		in.Namespace, in.ResourceVersion = c.namespace, a.world.version()
		in.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
		a.leases[key] = in
		return in, nil
	case method == http.MethodGet, method == http.MethodPut:
		return nil, errNotFound
	}
	return nil, errMethod
}

// leaseList is what a leader looks for its rivals in. The caller holds mu.
func (a *fleetAPI) leaseList(c call) runtime.Object {
	list := &coordinationv1.LeaseList{
		TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"}}
	list.ResourceVersion = a.world.version()
	selector, err := labels.Parse(c.query.Get("labelSelector"))
	for _, l := range a.leases {
		if err == nil && selector.Matches(labels.Set(l.Labels)) {
			list.Items = append(list.Items, *l)
		}
	}
	return list
}

// led reports whether a process holds a Lease of leader election.
func (a *fleetAPI) led() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return true
		}
	}
	return false
}

// watch sends what is there, if it is asked for that, and then what changes.
func (a *fleetAPI) watch(w http.ResponseWriter, r *http.Request, c call, f form) {
	all := c.query.Get("sendInitialEvents") == "true"
	from, _ := strconv.ParseUint(c.query.Get("resourceVersion"), 10, 64)
	if c.resource == "leases" && c.namespace != corev1.NamespaceNodeLease {
		c.resource = "" // they are not watched
	}
	sub, first, rv := a.world.subscribe(c.resource)
	if sub == nil {
		a.send(w, http.StatusNotFound, f,
			&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
				Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		return
	}
	defer a.world.unsubscribe(c.resource, sub)
	w.Header().Set("Content-Type",
		map[bool]string{true: runtime.ContentTypeProtobuf + ";stream=watch", false: runtime.ContentTypeJSON}[f.proto])
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	send := func(kind string, o runtime.Object) bool {
		b, err := a.frame(f, kind, o)
		if err == nil {
			_, err = w.Write(b)
		}
		return err == nil
	}
	for _, o := range first {
		m, err := metaAccess(o)
		if err != nil || !all && rvOf(m) <= from {
			continue
		}
		if !send(map[bool]string{true: "ADDED", false: "MODIFIED"}[all], o) {
			return
		}
	}
	if all && !send("BOOKMARK", bookmark(c.resource, rv, true)) {
		return
	}
	if flush.Flush() != nil {
		return
	}
	tick := time.NewTicker(bookmarks)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			if !send("BOOKMARK", bookmark(c.resource, a.world.current(), false)) || flush.Flush() != nil {
				return
			}
		case <-sub.news:
			for _, e := range sub.take() {
				if !send(e.kind, e.object) {
					return
				}
			}
			if flush.Flush() != nil {
				return
			}
		}
	}
}

// frame is one event of a watch.
func (a *fleetAPI) frame(f form, kind string, o runtime.Object) ([]byte, error) {
	raw, err := a.encode(f, o)
	if err != nil {
		return nil, err
	}
	ev := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}}
	if !f.proto {
		b, err := json.Marshal(ev)
		return append(b, '\n'), err
	}
	b, err := ev.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

func metaAccess(o runtime.Object) (metav1.Object, error) {
	if m, ok := o.(metav1.Object); ok {
		return m, nil
	}
	return nil, errors.New("no metadata")
}

func rvOf(m metav1.Object) uint64 {
	n, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return n
}

// apply patches an object in a copy, if it is the one that the patch names.
func apply[T any, P interface {
	*T
	metav1.Object
}](old P, media string, patch []byte, rv string) (P, error) {
	var body map[string]any
	if err := json.Unmarshal(patch, &body); err != nil {
		return nil, err
	}
	if m, ok := body["metadata"].(map[string]any); ok {
		if uid, has := m["uid"].(string); has && types.UID(uid) != old.GetUID() {
			return nil, errConflict
		}
		if v, has := m["resourceVersion"].(string); has && v != old.GetResourceVersion() {
			return nil, errConflict
		}
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	if media == string(types.StrategicMergePatchType) {
		after, err = strategicpatch.StrategicMergePatch(before, patch, *new(T))
	} else {
		var all map[string]any
		if err = json.Unmarshal(before, &all); err == nil {
			after, err = json.Marshal(merge(all, body))
		}
	}
	if err != nil {
		return nil, err
	}
	out := P(new(T))
	if err := json.Unmarshal(after, out); err != nil {
		return nil, err
	}
	out.SetResourceVersion(rv)
	return out, nil
}

// merge is RFC 7386.
func merge(into, patch map[string]any) map[string]any {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			sub, _ := into[k].(map[string]any)
			if sub == nil {
				sub = map[string]any{}
			}
			into[k] = merge(sub, v)
		default:
			into[k] = v
		}
	}
	return into
}

// selected are the pods that a list's selectors let through.
func selected(c call, pods []*corev1.Pod) (*corev1.PodList, error) {
	byField, err := fields.ParseSelector(c.query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	byLabel, err := labels.Parse(c.query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, p := range pods {
		f := fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase),
			"metadata.name": p.Name}
		if (c.namespace == "" || p.Namespace == c.namespace) && byField.Matches(f) &&
			byLabel.Matches(labels.Set(p.Labels)) {
			list.Items = append(list.Items, *p)
		}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
