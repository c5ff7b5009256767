package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/test/kit"
)

// fill sets each field of a value to something.
func fill(v reflect.Value, depth int) {
	switch {
	case depth == 0 || !v.CanSet():
		return
	case v.Type() == reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("3")))
		return
	case v.Type() == reflect.TypeFor[metav1.Time]():
		v.Set(reflect.ValueOf(metav1.Unix(1e9, 0).Rfc3339Copy()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("word")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	}
}

// fullPod has something in every field, a volume of each source, and what decisions look for.
func fullPod() *corev1.Pod {
	p := &corev1.Pod{}
	fill(reflect.ValueOf(&p.ObjectMeta).Elem(), 9)
	fill(reflect.ValueOf(&p.Spec).Elem(), 9)
	fill(reflect.ValueOf(&p.Status).Elem(), 9)
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "u",
		Controller: new(true)}}
	p.Labels["app"] = "web"
	p.Annotations[taint.SparedAnnotation], p.Annotations["kubernetes.io/config.source"] = "token", "file"
	full := p.Spec.Volumes[0].VolumeSource
	p.Spec.Volumes = nil
	for i := range reflect.TypeFor[corev1.VolumeSource]().NumField() {
		v := corev1.Volume{Name: "v" + strconv.Itoa(i)}
		reflect.ValueOf(&v.VolumeSource).Elem().Field(i).Set(reflect.ValueOf(full).Field(i))
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	return p
}

// server is an API server of lists of pods and of single objects, in protobuf.
type server struct {
	t     *testing.T
	pods  []corev1.Pod
	one   runtime.Object
	sizes []string // the limits that were asked for
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := s.one
	if strings.HasSuffix(r.URL.Path, "/pods") {
		list := &corev1.PodList{Items: s.pods}
		s.sizes = append(s.sizes, r.URL.Query().Get("limit"))
		if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 {
			from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			if list.Items = s.pods[from:]; len(list.Items) > limit {
				list.Items, list.Continue = list.Items[:limit], strconv.Itoa(from+limit)
			}
		}
		out = list
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = w.Write(encode(s.t, out))
}

func encode(t *testing.T, o runtime.Object) []byte {
	kinds, _, err := clientgoscheme.Scheme.ObjectKinds(o)
	kit.Must(t, err)
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	var out bytes.Buffer
	kit.Must(t, protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme).Encode(o, &out))
	return out.Bytes()
}

// client returns a client of the server.
func (s *server) client(bound func(*rest.Config)) client.Client {
	at := httptest.NewServer(s)
	s.t.Cleanup(at.Close)
	cfg := &rest.Config{Host: at.URL}
	bound(cfg)
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), apimeta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
	mapper.Add(storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), apimeta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	c, err := client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
	kit.Must(s.t, err)
	return c
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	kit.Must(t, err)
	return string(out)
}

// What decisions read of an object is the same, whether or not the client drops the rest.
func TestCutKeepsWhatIsRead(t *testing.T) {
	first, err := labels.Parse("app=web")
	kit.Must(t, err)
	full := fullPod()
	s := &server{t: t, pods: []corev1.Pod{*full}}
	got, err := ListPods(t.Context(), s.client(BoundReads), "n1")
	kit.Must(t, err)
	p := &got[0]
	if len(p.Spec.Containers)+len(p.ManagedFields) > 0 || taint.CutParts(p) != "" {
		t.Errorf("got %d containers and %d managed fields, cut %q, want none", len(p.Spec.Containers),
			len(p.ManagedFields), taint.CutParts(p))
	}
	seen := func(p *corev1.Pod) []any {
		claims, sure := taint.VolumeClaims(p)
		bare := *p
		bare.Spec.Volumes, bare.Annotations = nil, nil
		return []any{SeePod(p, taint.DefaultKey, first), claims, sure, taint.OtherVolume(p),
			taint.IsHeldByHook(p, taint.DefaultKey), p.Status.Phase, p.Spec.NodeName,
			SeePod(&bare, taint.DefaultKey, first), slices.Collect(func(yield func(string) bool) {
				for _, v := range p.Spec.Volumes { // each volume alone
					one := *p
					one.Spec.Volumes = []corev1.Volume{v}
					_, sure := taint.VolumeClaims(&one)
					if !yield(fmt.Sprint(v.Name, taint.OtherVolume(&one), sure)) {
						return
					}
				}
			})}
	}
	if got, want := toJSON(t, seen(p)), toJSON(t, seen(full)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// An estimate of room keeps more of a pod.
func TestCutKeepsRoom(t *testing.T) {
	full := fullPod()
	s := &server{t: t, pods: []corev1.Pod{*full}}
	var p corev1.Pod
	kit.Must(t, eachPage(t.Context(), pages{Reader: s.client(BoundReads), room: true}, "pods",
		func(l *corev1.PodList) { p = l.Items[0] }))
	slim := func(s corev1.PodSpec) []any {
		return []any{s.Overhead, s.Affinity, s.NodeSelector, s.Tolerations, s.TopologySpreadConstraints, s.Priority,
			s.ResourceClaims, s.Containers[0].Resources.Requests, s.Containers[0].Ports[0].HostPort,
			s.Containers[0].Ports[0].Protocol, s.InitContainers[0].RestartPolicy, s.Resources.Requests}
	}
	got, want := toJSON(t, slim(p.Spec)), toJSON(t, slim(full.Spec))
	if got != want || p.Spec.Containers[0].Env != nil {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Volumes, attachments and Leases keep what is read of them, and other kinds stay as they are.
func TestCutOtherKinds(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	fill(reflect.ValueOf(pv).Elem(), 7)
	pv.TypeMeta = metav1.TypeMeta{}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "d"}
	s := &server{t: t, one: pv}
	var gotPV corev1.PersistentVolume
	kit.Must(t, s.client(BoundReads).Get(t.Context(), client.ObjectKey{Name: "word"}, &gotPV))
	if !reflect.DeepEqual(gotPV.Spec, pv.Spec) || !reflect.DeepEqual(gotPV.Annotations, pv.Annotations) {
		t.Errorf("volume: got %+v", gotPV)
	}
	va := &storagev1.VolumeAttachment{}
	fill(reflect.ValueOf(va).Elem(), 5)
	va.TypeMeta = metav1.TypeMeta{}
	s.one = va
	var gotVA storagev1.VolumeAttachment
	kit.Must(t, s.client(BoundReads).Get(t.Context(), client.ObjectKey{Name: "word"}, &gotVA))
	if got, want := SeeAttachments([]storagev1.VolumeAttachment{gotVA}),
		SeeAttachments([]storagev1.VolumeAttachment{*va}); !reflect.DeepEqual(got, want) ||
		len(gotVA.Status.AttachmentMetadata) > 0 {
		t.Errorf("attachment: got %+v, want %+v", got, want)
	}
	holder, duration := "db-0", int32(15)
	s.one = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "ns",
		Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &duration,
			RenewTime: &metav1.MicroTime{Time: time.Unix(1e9, 0)}}}
	var lease coordinationv1.Lease
	kit.Must(t, s.client(BoundLeases).Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "l"}, &lease))
	if *lease.Spec.HolderIdentity != holder || *lease.Spec.LeaseDurationSeconds != 15 || len(lease.Annotations) > 0 ||
		lease.Spec.RenewTime == nil || lease.Namespace != "ns" {
		t.Errorf("lease: got %+v", lease)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns"},
		Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}
	s.one = cm
	var gotCM corev1.ConfigMap
	kit.Must(t, s.client(BoundReads).Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, &gotCM))
	if !reflect.DeepEqual(gotCM.Data, cm.Data) {
		t.Error("another kind was cut")
	}
}

// A part that decisions read and that is too large is cut, the object says so, and decisions are on the safe side. No
// user can say so of an object that was not cut.
func TestCutParts(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name),
			ResourceVersion: "7", Annotations: map[string]string{taint.CutAnnotation: "spec.forged"},
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1e9, 0)}, DeletionGracePeriodSeconds: new(int64)}}
		p.Spec.NodeName = "n1"
		change(&p)
		return p
	}
	long := strings.Repeat("x", 1<<20)
	s := &server{t: t, pods: []corev1.Pod{
		pod("plain", func(*corev1.Pod) {}),
		pod("unread", func(p *corev1.Pod) {
			p.Annotations["a"] = long
			p.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: "A", Value: long}}}}
		}),
		pod("tolerations", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: long, Operator: corev1.TolerationOpExists}}
		}),
		pod("volumes", func(p *corev1.Pod) {
			for i := range 2000 {
				p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: strconv.Itoa(i), VolumeSource: corev1.
					VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
			}
		}),
		pod("finalizers", func(p *corev1.Pod) { p.Finalizers = []string{"a/" + long} }),
		pod("labels", func(p *corev1.Pod) {
			p.Labels = map[string]string{}
			for i := range 5000 {
				p.Labels[strconv.Itoa(i)] = "x"
			}
		}),
	}}
	got, err := ListPods(t.Context(), s.client(BoundReads), "n1")
	kit.Must(t, err)
	want := map[string]string{"tolerations": "spec.tolerations", "volumes": "spec.volumes",
		"finalizers": "metadata.finalizers", "labels": "metadata.labels"}
	if len(got) != len(s.pods) {
		t.Fatalf("got %d pods, want %d", len(got), len(s.pods))
	}
	for i := range got {
		p := &got[i]
		seen := SeePod(p, taint.DefaultKey, nil)
		if seen.Cut != want[p.Name] || seen.UID != p.Name || seen.ResourceVersion != "7" || !seen.Deleting {
			t.Errorf("%s: got %+v, want it cut at %q", p.Name, seen, want[p.Name])
		}
		if size := p.Size(); size > 200<<10 {
			t.Errorf("%s: got %d bytes", p.Name, size)
		}
		if seen.IsHeldByFinalizers() != (p.Name == "finalizers") {
			t.Errorf("%s: held by finalizers: %v", p.Name, seen.IsHeldByFinalizers())
		}
		if (seen.Claims && seen.OtherVolume != "") != (p.Name == "volumes") {
			t.Errorf("%s: got claims %v, other volume %q", p.Name, seen.Claims, seen.OtherVolume)
		}
	}
	of, _, err := ReadVolumes(t.Context(), stored(t), []corev1.Pod{{ObjectMeta: got[3].ObjectMeta}})
	kit.Must(t, err)
	if v := of["volumes"]; len(v) != 1 || !v[0].Unread || v[0].Claim != action.UnreadClaim {
		t.Errorf("got volumes %+v, want one unread", v)
	}
}

// A list that is too large to be read at once is read in pages. One that is too large for the process is an error that
// names the namespace with most of it.
func TestLargeLists(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	s := &server{t: t}
	for i := range 100 {
		s.pods = append(s.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "ns"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{long}}}}})
	}
	got, err := ListPods(t.Context(), s.client(BoundReads), "n1")
	kit.Must(t, err)
	names := map[string]bool{}
	for i := range got {
		names[got[i].Name] = true
	}
	if len(got) != 100 || len(names) != 100 || len(s.sizes) < 3 || s.sizes[0] != "" {
		t.Errorf("got %d pods with %d names by limits %v", len(got), len(names), s.sizes)
	}
	l := &boundedList{keeps: true}
	for i := range 5000 {
		if err = l.add([]string{"greedy", "greedy", "modest"}[i%3], partCost); err != nil {
			break
		}
	}
	if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "namespace greedy has 8") {
		t.Errorf("got %v", err)
	}
}

// One namespace's pods neither fill the list of a node, nor cost another namespace's pods what is kept of them.
func TestNamespaceHasAShare(t *testing.T) {
	s := &server{t: t}
	for i := range 320 {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "greedy", UID: "u"}}
		p.Spec.Tolerations = make([]corev1.Toleration, 300)
		p.Status.Conditions = make([]corev1.PodCondition, 200)
		p.Status.ContainerStatuses = make([]corev1.ContainerStatus, 200)
		p.Status.InitContainerStatuses = make([]corev1.ContainerStatus, 200)
		s.pods = append(s.pods, p)
	}
	modest := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: "modest", UID: "db-0"}}
	for i := range 20 {
		modest.Spec.Volumes = append(modest.Spec.Volumes, corev1.Volume{Name: strconv.Itoa(i)})
	}
	s.pods = append(s.pods, modest)
	got, err := ListPods(t.Context(), s.client(BoundReads), "n1")
	kit.Must(t, err)
	if len(got) != len(s.pods) {
		t.Fatalf("got %d pods, want %d", len(got), len(s.pods))
	}
	if first, late := taint.CutParts(&got[0]), &got[315]; first != "" || !taint.IsCut(late, "spec.tolerations") ||
		late.Name != "315" || late.UID != "u" {
		t.Errorf("the first pod is cut at %q; a late one is %s, %s, cut at %q", first, late.Name, late.UID,
			taint.CutParts(late))
	}
	if p := got[320]; p.Name != "db-0" || taint.CutParts(&p) != "" || len(p.Spec.Volumes) != 20 {
		t.Errorf("another namespace's pod is %s with %d volumes, cut at %q", p.Name, len(p.Spec.Volumes),
			taint.CutParts(&p))
	}
}

// cached is a cache, which has no pages: its list has a token all the same.
type cached struct{ client.Reader }

func (c cached) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	if o.ApplyOptions(opts); o.Continue != "" {
		return errors.New("continue list option is not supported by the cache")
	}
	defer l.SetContinue("continue-not-supported")
	return c.Reader.List(ctx, l, opts...)
}

// A cache is listed at once.
func TestCacheIsListedWhole(t *testing.T) {
	_, err := ListAttachments(t.Context(), cached{stored(t)})
	kit.Must(t, err)
}

// An answer that ends too early is an error, and no list.
func TestCutAnswerThatEnds(t *testing.T) {
	var pods []corev1.Pod
	for i := range 200 {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Namespace: "ns"}})
	}
	all := encode(t, &corev1.PodList{Items: pods})
	for _, end := range []int{0, 3, 10, 30, len(all) / 2, len(all) - 1} {
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			_, _ = w.Write(all[:end])
		}))
		cfg := &rest.Config{Host: at.URL}
		BoundReads(cfg)
		c, err := client.New(cfg, client.Options{Mapper: apimeta.NewDefaultRESTMapper(nil)})
		kit.Must(t, err)
		if got, err := ListPods(t.Context(), c, "n1"); err == nil || got != nil {
			t.Errorf("%d bytes: got %d pods and no error", end, len(got))
		}
		at.Close()
	}
}

// The same holds at each byte: between two items, too.
func TestCutAnswerThatEndsAnywhere(t *testing.T) {
	all := encode(t, &corev1.PodList{Items: []corev1.Pod{*fullPod(), {}, {}}})
	all = bytes.TrimSuffix(all, []byte{3<<3 | 2, 0, 4<<3 | 2, 0}) // the empty encoding and type
	read := func(n int) error {
		c := &cutter{r: bufio.NewReader(bytes.NewReader(all[:n])), keep: shapes, ctx: t.Context()}
		if c.shapeOfNext(-1) == nil {
			return errBroken
		}
		_, err := c.copyEnvelope(-1)
		return err
	}
	const kind = 4 + 2 + 2 + len("v1") + 2 + len("PodList") // without what follows, there is no list
	for n := kind + 1; n < len(all); n++ {
		if read(n) == nil {
			t.Errorf("%d of %d bytes are a list", n, len(all))
		}
	}
	kit.Must(t, read(len(all)))
}

// A watch drops the same as a list, and the events of other kinds stay as they are.
func TestCutWatch(t *testing.T) {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", Annotations: map[string]string{
		"a": strings.Repeat("x", 1<<20)}}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}}
	bad := &metav1.Status{Message: "gone", Code: 410}
	end := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "end", ResourceVersion: "7",
		Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	var in bytes.Buffer
	for _, o := range []runtime.Object{va, bad, va, end} {
		event, err := (&metav1.WatchEvent{Type: string(watch.Added),
			Object: runtime.RawExtension{Raw: encode(t, o)}}).Marshal()
		kit.Must(t, err)
		kit.Must(t, binary.Write(&in, binary.BigEndian, uint32(len(event))))
		in.Write(event)
	}
	tr := cutTransport{transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&in), Request: r, Header: http.Header{
			"Content-Type": {"application/vnd.kubernetes.protobuf;stream=watch"}}}, nil
	}), shapes}
	resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/?watch=true", http.NoBody))
	kit.Must(t, err)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	kit.Must(t, err)
	if len(out) > 4096 {
		t.Errorf("got %d bytes", len(out))
	}
	var got []string
	for len(out) > 0 {
		n := binary.BigEndian.Uint32(out)
		var event metav1.WatchEvent
		kit.Must(t, event.Unmarshal(out[4:4+n]))
		o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(event.Object.Raw, nil, nil)
		kit.Must(t, err)
		switch o := o.(type) {
		case *storagev1.VolumeAttachment:
			got = append(got, event.Type+o.Name+o.Spec.NodeName+o.Annotations[metav1.InitialEventsAnnotationKey])
		case *metav1.Status:
			got = append(got, event.Type+o.Message)
		}
		out = out[4+n:]
	}
	if want := []string{"ADDEDvan1", "ADDEDgone", "ADDEDvan1", "ADDEDendtrue"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// JSON is read object by object; what is too large of one is cut.
func TestCutJSON(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	one := func(annotation, finalizer string) string {
		return fmt.Sprintf(`{"metadata":{"name":"r","labels":{"a":%q},"managedFields":[{"manager":%q}],`+
			`"annotations":{"a":%q},"finalizers":[%q]},"spec":{"a":1}}`, long, long, annotation, finalizer)
	}
	for name, in := range map[string]string{
		"object": one("b", "c"),
		"list": `{"items":[` + one("b", "c") + "," + one(long, "c") + "," + one("b", long) +
			`],"metadata":{"continue":"x"}}`,
		"watch": `{"type":"ADDED","object":` + one("b", "c") + `}` + "\n" + `{"type":"ADDED","object":` +
			one(long, "c") + `}`,
	} {
		tr := jsonTransport{transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(in)), Request: r,
				Header: http.Header{"Content-Type": {"application/json"}}}, nil
		}), "things"}
		path := "/apis/g/v1/things"
		if name == "watch" {
			path += "?watch=1"
		}
		resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, path, http.NoBody))
		kit.Must(t, err)
		out, err := io.ReadAll(resp.Body)
		kit.Must(t, err)
		kit.Must(t, resp.Body.Close())
		cut := fmt.Sprintf(`{"%s":"metadata.annotations"}`, taint.CutAnnotation)
		if len(out) > 2048 || !json.Valid(bytes.Split(bytes.TrimSpace(out), []byte("\n"))[0]) ||
			bytes.Contains(out, []byte(cut)) != (name != "object") || !bytes.Contains(out, []byte(`"a":"b"`)) ||
			bytes.Contains(out, []byte("metadata.finalizers")) != (name == "list") ||
			name == "list" && !bytes.Contains(out, []byte(`"continue":"x"`)) {
			t.Errorf("%s: got %.500s", name, out)
		}
	}
	endless := `{"items":[{"a":"`
	tr := jsonTransport{transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(io.MultiReader(strings.NewReader(endless), xs{}))}, nil
	}), "things"}
	resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/apis/g/v1/things", http.NoBody))
	if !errors.Is(err, errLarge) {
		t.Errorf("an endless object: got %v", err)
		_ = resp.Body.Close()
	}
}

// xs never ends.
type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// FuzzCut: what is no protobuf is an error, and never more than what came.
func FuzzCut(f *testing.F) {
	f.Add(encode(&testing.T{}, &corev1.PodList{Items: []corev1.Pod{*fullPod()}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &cutter{r: bufio.NewReader(bytes.NewReader(in)), keep: shapes, ctx: context.Background()}
		if c.shapeOfNext(-1) == nil {
			return
		}
		out, err := c.copyEnvelope(-1)
		c.release()
		if err == nil && len(out) > 2*len(in)+100 {
			t.Errorf("got %d bytes of %d", len(out), len(in))
		}
	})
}
