package kube

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/kit"
)

// bounded is an object that clients cut, with its own protobuf.
type bounded interface {
	runtime.Object
	metav1.Object
	Size() int
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// boundedKinds are the kinds that clients cut, and a list of each.
var boundedKinds = []struct {
	one  func() bounded
	list func(bounded) runtime.Object
	keep map[string]*shape
}{
	{func() bounded { return &corev1.Pod{} }, func(o bounded) runtime.Object {
		return &corev1.PodList{Items: []corev1.Pod{*o.(*corev1.Pod), {}, *o.(*corev1.Pod)}}
	}, shapes},
	{func() bounded { return &corev1.PersistentVolumeClaim{} }, func(o bounded) runtime.Object {
		return &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{
			*o.(*corev1.PersistentVolumeClaim)}}
	}, shapes},
	{func() bounded { return &corev1.PersistentVolume{} }, func(o bounded) runtime.Object {
		return &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{*o.(*corev1.PersistentVolume)}}
	}, shapes},
	{func() bounded { return &storagev1.VolumeAttachment{} }, func(o bounded) runtime.Object {
		return &storagev1.VolumeAttachmentList{Items: []storagev1.VolumeAttachment{*o.(*storagev1.VolumeAttachment)}}
	}, shapes},
	{func() bounded { return &coordinationv1.Lease{} }, func(o bounded) runtime.Object {
		return &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*o.(*coordinationv1.Lease)}}
	}, heldLeases},
}

// keptParts returns what is read of an object, by the parts that may be cut.
func keptParts(o bounded) map[string]any {
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, taint.CutAnnotation)
	out := map[string]any{
		"metadata.names": []any{o.GetName(), o.GetNamespace(), o.GetUID(), o.GetResourceVersion(), o.GetGeneration(),
			o.GetCreationTimestamp(), o.GetDeletionTimestamp(), o.GetDeletionGracePeriodSeconds()},
		"metadata.finalizers": o.GetFinalizers(), "metadata.ownerReferences": o.GetOwnerReferences(),
	}
	if _, ok := o.(*corev1.PersistentVolume); !ok {
		maps.DeleteFunc(annotations, func(k, _ string) bool {
			_, isPod := o.(*corev1.Pod)
			return k != metav1.InitialEventsAnnotationKey && (!isPod || k != taint.SparedAnnotation &&
				!strings.HasPrefix(k, "kubernetes.io/config.source") &&
				!strings.HasPrefix(k, "kubernetes.io/config.mirror") || len(k) > 27)
		})
	}
	out["metadata.annotations"] = slices.Sorted(maps.Keys(annotations))
	for k, v := range annotations {
		out["metadata.annotations "+k] = v
	}
	switch o := o.(type) {
	case *corev1.Pod:
		out["metadata.labels"], out["spec.nodeName"] = o.Labels, o.Spec.NodeName
		out["spec.tolerations"], out["spec.priority"] = o.Spec.Tolerations, o.Spec.Priority
		out["status.phase"], out["status.reason"], out["status.message"] = o.Status.Phase, o.Status.Reason,
			o.Status.Message
		var volumes, conditions []any
		for _, v := range o.Spec.Volumes {
			sources, claim := []bool{}, ""
			for i, s := 0, reflect.ValueOf(v.VolumeSource); i < s.NumField(); i++ {
				sources = append(sources, !s.Field(i).IsNil())
			}
			if v.PersistentVolumeClaim != nil {
				claim = v.PersistentVolumeClaim.ClaimName
			}
			volumes = append(volumes, []any{v.Name, sources, claim})
		}
		for _, c := range o.Status.Conditions {
			conditions = append(conditions, []any{c.Type, c.Status})
		}
		states := func(list []corev1.ContainerStatus) (out []any) {
			for _, c := range list {
				out = append(out, []bool{c.State.Waiting != nil, c.State.Running != nil, c.State.Terminated != nil})
			}
			return out
		}
		out["spec.volumes"], out["status.conditions"] = volumes, conditions
		out["status.containerStatuses"] = states(o.Status.ContainerStatuses)
		out["status.initContainerStatuses"] = states(o.Status.InitContainerStatuses)
	case *corev1.PersistentVolumeClaim:
		out["spec.volumeName"] = o.Spec.VolumeName
	case *corev1.PersistentVolume:
		out["metadata.labels"], out["spec"] = o.Labels, o.Spec
	case *storagev1.VolumeAttachment:
		out["spec.attacher"], out["spec.nodeName"], out["status.attached"] = o.Spec.Attacher, o.Spec.NodeName,
			o.Status.Attached
		out["spec.source"] = []any{o.Spec.Source.PersistentVolumeName, o.Spec.Source.InlineVolumeSpec != nil}
	case *coordinationv1.Lease:
		out["spec"] = []any{o.Spec.HolderIdentity, o.Spec.LeaseDurationSeconds, o.Spec.RenewTime}
	}
	return out
}

// answer returns what a client gets of an answer.
func answer(t *testing.T, keep map[string]*shape, kind string, in []byte) []byte {
	t.Helper()
	tr := cutTransport{transport(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(in)), Request: r,
			Header: http.Header{"Content-Type": {kind}}}, nil
	}), keep}
	resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	kit.Must(t, err)
	out, err := io.ReadAll(resp.Body)
	kit.Must(t, err)
	kit.Must(t, resp.Body.Close())
	return out
}

// decode reads an object as client-go does.
func decode(t *testing.T, in []byte) runtime.Object {
	t.Helper()
	o, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(in, nil, nil)
	kit.Must(t, err)
	return o
}

// FuzzCutDecodes: client-go's decoder reads the same of an object that was cut and of the whole one, alone, in a list
// and in a watch. What differs is in a part that the object names.
func FuzzCutDecodes(f *testing.F) {
	for i, k := range boundedKinds {
		o := k.one()
		if p, ok := o.(*corev1.Pod); ok {
			*p = *fullPod()
		} else {
			fill(reflect.ValueOf(o).Elem(), 7)
		}
		in, err := o.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), uint16(0), in)
		f.Add(uint8(i), uint16(700), in)
	}
	f.Fuzz(func(t *testing.T, kind uint8, times uint16, in []byte) {
		k := boundedKinds[int(kind)%len(boundedKinds)]
		whole := k.one()
		if whole.Unmarshal(in) != nil {
			return
		}
		if times %= 1000; times > 0 { // a part that is repeated so often is too large
			whole.SetFinalizers(slices.Repeat(whole.GetFinalizers(), int(times)))
			whole.SetOwnerReferences(slices.Repeat(whole.GetOwnerReferences(), int(times)))
			if p, ok := whole.(*corev1.Pod); ok {
				p.Spec.Volumes = slices.Repeat(p.Spec.Volumes, int(times))
				p.Spec.Tolerations = slices.Repeat(p.Spec.Tolerations, int(times))
				p.Status.Conditions = slices.Repeat(p.Status.Conditions, int(times))
			}
		}
		if whole.Size() > 1<<20 {
			return
		}
		whole = decode(t, encode(t, whole)).(bounded) // as an API server sends it
		want := keptParts(whole)
		check := func(where string, o runtime.Object) {
			t.Helper()
			got, ok := o.(bounded)
			if !ok {
				t.Fatalf("%s: got %T", where, o)
			}
			cut := taint.CutParts(got)
			if cut != "" && 36*whole.Size() < partCost {
				t.Errorf("%s: %d bytes were cut at %s", where, whole.Size(), cut)
			}
			parts := keptParts(got)
			for part := range want {
				name, _, _ := strings.Cut(part, " ")
				if !taint.IsCut(got, name) && !taint.IsCut(got, strings.Split(name, ".")[0]) &&
					(part != "spec" || !strings.Contains(cut, "spec.")) && !reflect.DeepEqual(parts[part], want[part]) {
					t.Errorf("%s: %s, cut at %q: got %#v, want %#v", where, part, cut, parts[part], want[part])
				}
			}
		}
		const kindOf = "application/vnd.kubernetes.protobuf"
		check("one", decode(t, answer(t, k.keep, kindOf, encode(t, whole))))
		list := decode(t, answer(t, k.keep, kindOf, encode(t, k.list(whole))))
		items := reflect.ValueOf(list).Elem().FieldByName("Items")
		check("list", items.Index(items.Len()-1).Addr().Interface().(bounded))
		event, err := (&metav1.WatchEvent{Type: string(watch.Added),
			Object: runtime.RawExtension{Raw: encode(t, whole)}}).Marshal()
		kit.Must(t, err)
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...) //nolint:gosec // short
		out := answer(t, k.keep, kindOf+";stream=watch", slices.Concat(frame, frame))
		for range 2 {
			n := binary.BigEndian.Uint32(out)
			var got metav1.WatchEvent
			kit.Must(t, got.Unmarshal(out[4:4+n]))
			check("watch", decode(t, got.Object.Raw))
			out = out[4+n:]
		}
		if len(out) > 0 {
			t.Errorf("%d bytes follow the watch", len(out))
		}
	})
}

// FuzzCutJSONDecodes: client-go reads the same of an object in JSON that was cut and of the whole one.
func FuzzCutJSONDecodes(f *testing.F) {
	for _, in := range []string{
		`{"apiVersion":"g/v1","kind":"Thing","metadata":{"name":"r","labels":{"a":"b"},` +
			`"annotations":{"a":"\u2028<"}},"spec":{"a":1e3,"A":9007199254740993,"b":null},` +
			`"Items":[1],"Metadata":{"name":"other"}}`,
		`{"apiVersion":"g/v1","kind":"Thing","metadata":{"name":"r","annotations":null},"items":[{"a":1}]}`,
		`{"apiVersion":"g/v1","kind":"Thing","metadata":null,"items":null,"spec":[[[[{}]]]]}`,
		`{"apiVersion":"g/v1","kind":"Thing","item":"x","metadata":{"name":"\ud800","finalizers":[]}}`,
	} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		whole := &unstructured.Unstructured{}
		if whole.UnmarshalJSON([]byte(in)) != nil || len(in) > 1<<20 || whole.IsList() ||
			whole.Object["items"] != nil {
			return
		}
		text, err := whole.MarshalJSON() // as an API server sends it
		if err != nil || whole.UnmarshalJSON(text) != nil {
			return
		}
		get := func(path, body string) []byte {
			tr := jsonTransport{transport(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Request: r,
					Body:   io.NopCloser(strings.NewReader(body)),
					Header: http.Header{"Content-Type": {"application/json"}}}, nil
			}), "things"}
			resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "/apis/g/v1/things"+path, http.NoBody))
			kit.Must(t, err)
			out, err := io.ReadAll(resp.Body)
			kit.Must(t, err)
			kit.Must(t, resp.Body.Close())
			return out
		}
		check := func(where string, out []byte) {
			t.Helper()
			got := &unstructured.Unstructured{}
			if err := got.UnmarshalJSON(out); err != nil {
				t.Fatalf("%s: %v of %q", where, err, out)
			}
			want := whole.DeepCopy()
			cut := strings.Split(taint.CutParts(got), ",")
			for _, o := range []*unstructured.Unstructured{got, want} {
				if meta, ok := o.Object["metadata"].(map[string]any); ok {
					for _, name := range append(cut, "metadata.labels", "metadata.managedFields") {
						if in, ok := strings.CutPrefix(name, "metadata."); ok {
							delete(meta, in)
						} else {
							delete(o.Object, name)
						}
					}
				}
			}
			if !reflect.DeepEqual(got.Object, want.Object) {
				t.Errorf("%s: got %v\nwant %v", where, got.Object, want.Object)
			}
		}
		check("one", get("/r", string(text)))
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		out := get("", `{"apiVersion":"g/v1","items":[`+string(text)+
			`],"kind":"ThingList","metadata":{"continue":"x"}}`)
		if err := json.Unmarshal(out, &list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%d items, %v: %s", len(list.Items), err, out)
		}
		check("list", list.Items[0])
		var event struct {
			Object json.RawMessage `json:"object"`
		}
		kit.Must(t, json.Unmarshal(get("?watch=1", `{"type":"ADDED","object":`+string(text)+`}`), &event))
		check("watch", event.Object)
	})
}
