package nri

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/forcefence/forcefence/test/kit"
)

// encodeList returns the API server's answer, in both of its encodings.
func encodeList(t testing.TB, list *corev1.PodList) map[string][]byte {
	t.Helper()
	scheme := runtime.NewScheme()
	kit.Must(t, corev1.AddToScheme(scheme))
	list.APIVersion, list.Kind = "v1", "PodList"
	all := map[string][]byte{}
	for name, s := range map[string]runtime.Encoder{
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}),
	} {
		var out bytes.Buffer
		kit.Must(t, s.Encode(list, &out))
		all[name] = out.Bytes()
	}
	return all
}

func listOf(n int) *corev1.PodList {
	list := &corev1.PodList{}
	list.ResourceVersion, list.Continue = "20", "c"
	list.RemainingItemCount = new(int64(3)) // a number, beside fields with bytes
	for i := range n {
		pod := testPod(fmt.Sprint(i), uses("db"), daemon)
		pod.Annotations = map[string]string{"a": strings.Repeat("x", 100*i)}
		list.Items = append(list.Items, pod)
	}
	return list
}

// TestReadPodList checks that the list is read as the API server has encoded it, in pieces of any size.
func TestReadPodList(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		list := listOf(n)
		for name, text := range encodeList(t, list) {
			var got []corev1.Pod
			version, err := readPodList(iotest.OneByteReader(bytes.NewReader(text)),
				func(p *corev1.Pod) { got = append(got, *p) })
			if diff := cmp.Diff(list.Items, got); err != nil || version != "20" || diff != "" {
				t.Errorf("%d pods in %s: version %q, %v\n%s", n, name, version, err, diff)
			}
		}
	}
}

// TestCutPodList cuts the answer at each byte, and lets it be another object: a list that is not whole holds pods that
// were not ended, and one that is none would hold all.
func TestCutPodList(t *testing.T) {
	ignore := func(*corev1.Pod) {}
	for name, text := range encodeList(t, listOf(2)) {
		end := map[string]int{"protobuf": 4, "JSON": 1}[name] // two empty fields, or the line's end
		for n := range len(text) - end {
			if _, err := readPodList(bytes.NewReader(text[:n]), ignore); err == nil {
				t.Errorf("%s, cut after %d of %d bytes: no error", name, n, len(text))
			}
		}
		other := bytes.ReplaceAll(text, []byte("PodList"), []byte("PodLost"))
		if _, err := readPodList(bytes.NewReader(other), ignore); err == nil ||
			!strings.Contains(err.Error(), "PodLost") {
			t.Errorf("%s, another kind: %v", name, err)
		}
	}
	for name, text := range encodeList(t, &corev1.PodList{}) {
		if _, err := readPodList(bytes.NewReader(text), ignore); err == nil {
			t.Errorf("%s, without a version: no error", name)
		}
	}
	// Lengths up to the largest number there is.
	whole := encodeList(t, listOf(2))["protobuf"]
	for _, field := range []string{"\x0a", "\x12", "\x1a"} {
		for _, size := range []string{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\x7f"} {
			for _, end := range []string{"", "x"} {
				text := append(slices.Clone(whole), field+size+end...)
				if _, err := readPodList(bytes.NewReader(text), ignore); err == nil {
					t.Errorf("field %q of size %q, then %q: no error", field, size, end)
				}
			}
		}
	}
}

// FuzzPodList checks that a list is read as the API machinery's own decoder reads it.
func FuzzPodList(f *testing.F) {
	for n := range 3 {
		for _, text := range encodeList(f, listOf(n)) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want corev1.PodList
		version, err := readPodList(bytes.NewReader(text), func(p *corev1.Pod) { got.Items = append(got.Items, *p) })
		raw, proto := bytes.CutPrefix(text, []byte("k8s\x00"))
		if err != nil || !proto {
			return
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw); err != nil {
			t.Skip()
		}
		if err := want.Unmarshal(unknown.Raw); err != nil {
			t.Skip()
		}
		if diff := cmp.Diff(want.Items, got.Items); version != want.ResourceVersion || diff != "" {
			t.Errorf("version %q, want %q\n%s", version, want.ResourceVersion, diff)
		}
	})
}
