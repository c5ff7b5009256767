package taint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
)

// TestDetaching: only the open record of this mark and this Node lets the hook hold less than all, and only whole.
func TestDetaching(t *testing.T) {
	mark := corev1.Taint{Key: DefaultKey, Value: "f1", Effect: corev1.TaintEffectNoSchedule}
	many := func(n int) (out []Detaching) {
		for i := range n {
			out = append(out, Detaching{fmt.Sprint("pv-", i), fmt.Sprint("ns/c-", i)})
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Node, *Record)
		want   []string
	}{
		{"named", func(*corev1.Node, *Record) {}, []string{"db/data", "web/data"}},
		{"an older version's record", func(_ *corev1.Node, r *Record) { r.Detaching = nil }, nil},
		{"not marked", func(n *corev1.Node, _ *Record) { n.Spec.Taints = nil }, nil},
		{"another fence's mark", func(n *corev1.Node, _ *Record) { n.Spec.Taints[0].Value = "f2" }, nil},
		{"a second mark", func(n *corev1.Node, _ *Record) {
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: DefaultKey, Value: "f1", Effect: corev1.TaintEffectNoExecute})
		}, nil},
		{"another taint", func(n *corev1.Node, _ *Record) {
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: "other", Value: "f1", Effect: corev1.TaintEffectNoExecute})
		}, []string{"db/data", "web/data"}},
		{"another Node's record", func(_ *corev1.Node, r *Record) { r.NodeUID = "u2" }, nil},
		{"before the eviction", func(_ *corev1.Node, r *Record) { r.Phase = PhaseArmed }, nil},
		{"done", func(_ *corev1.Node, r *Record) { r.Phase, r.Result = PhaseDone, ResultReturned }, nil},
		{"a claim without a name", func(_ *corev1.Node, r *Record) { r.Detaching[1].Claim = "web/" }, nil},
		{"a claim without a namespace", func(_ *corev1.Node, r *Record) { r.Detaching[1].Claim = "/data" }, nil},
		{"a claim that is none", func(_ *corev1.Node, r *Record) { r.Detaching[1].Claim = "data" }, nil},
		{"a claim with more", func(_ *corev1.Node, r *Record) { r.Detaching[1].Claim = "web/data/more" }, nil},
		{"a volume that no claim leads to", func(_ *corev1.Node, r *Record) { r.Detaching[1].Claim = "" },
			[]string{"db/data", ""}},
		{"too many", func(_ *corev1.Node, r *Record) { r.Detaching = many(MaxDetaching + 1) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Record{
				ID: "f1", Phase: PhaseEvicting, NodeUID: "u1", By: "me", Since: noon, At: noon,
				Detaching: []Detaching{{"pv-1", "db/data"}, {"pv-2", "web/data"}},
			}
			n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{mark}}}
			n.UID = "u1"
			tt.change(n, &r)
			n.Annotations = map[string]string{RecordAnnotation: r.Encode()}
			if got := NewLook(n, nil, DefaultKey, providers.InstantOf(noon), providers.InstantOf(noon)).
				DetachingClaims(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestANewPhaseNamesNothing: what was named belongs to the phase that ends.
func TestANewPhaseNamesNothing(t *testing.T) {
	r := Record{Phase: PhaseEvicting, Detaching: []Detaching{{"pv-1", "db/data"}}}
	for _, p := range []Phase{PhaseEvicting, PhaseDone} {
		if got := r.EnterPhase(p, "", noon); got.Detaching != nil {
			t.Errorf("%s: names %v", p, got.Detaching)
		}
	}
}

// TestMostDetaching: with the longest names that there are a record still leaves most of the room that annotations
// have.
func TestMostDetaching(t *testing.T) {
	var r Record
	for range MaxDetaching {
		r.Detaching = append(r.Detaching,
			Detaching{strings.Repeat("p", 253), strings.Repeat("n", 63) + "/" + strings.Repeat("c", 253)})
	}
	if n := len(r.Encode()); n > 48<<10 {
		t.Errorf("a record of %d bytes", n)
	}
}

// TestVolumeClaims: a volume that is not known to need no attachment is doubted.
func TestVolumeClaims(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0"}}
	vol := func(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: s} }
	data := vol(
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	for _, tt := range []struct {
		name    string
		volumes []corev1.Volume
		claims  []string
		sure    bool
	}{
		{"none", nil, nil, true},
		{"a claim", []corev1.Volume{data}, []string{"ns/data"}, true},
		{"a claim of its own", []corev1.Volume{vol(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})},
			[]string{"ns/web-0-v"}, true},
		{"made on the node", []corev1.Volume{
			vol(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			vol(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
			vol(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}),
			vol(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}),
			vol(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}),
			vol(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}),
			vol(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}),
			vol(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}),
		}, nil, true},
		{"over the network", []corev1.Volume{vol(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}})}, nil, true},
		{"a disk", []corev1.Volume{vol(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}})}, nil, false},
		{"a cloud's disk",
			[]corev1.Volume{vol(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}})},
			nil, false},
		{"a disk beside a claim", []corev1.Volume{vol(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}), data},
			[]string{"ns/data"}, false},
		{"of a kind that is not known yet", []corev1.Volume{vol(corev1.VolumeSource{})}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.Spec.Volumes = tt.volumes
			if claims, sure := VolumeClaims(p); !slices.Equal(claims, tt.claims) || sure != tt.sure {
				t.Errorf("got %q, %v, want %q, %v", claims, sure, tt.claims, tt.sure)
			}
		})
	}
	for _, tt := range []struct {
		claims []string
		sure   bool
		want   bool
	}{{nil, true, true}, {nil, false, false}, {[]string{"ns/a"}, true, true}, {[]string{"ns/a", "ns/b"}, true, false}} {
		if got := FreeOf(tt.claims, tt.sure, []string{"ns/b", "ns/c"}); got != tt.want {
			t.Errorf("FreeOf(%q, %v) = %v", tt.claims, tt.sure, got)
		}
	}
}

// TestOtherVolume: what may keep data outside of the pod, and is no claim's, is named.
func TestOtherVolume(t *testing.T) {
	for _, tt := range []struct {
		name   string
		source corev1.VolumeSource
		want   string
	}{
		{"a claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, ""},
		{"a claim of its own", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, ""},
		{"emptyDir", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, ""},
		{"secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, ""},
		{"nfs", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, "v"},
		{"hostPath", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, "v"},
		{"an inline volume of a driver", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, "v"},
		{"one of an unknown kind", corev1.VolumeSource{}, "v"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: tt.source}}}}
		if got := OtherVolume(pod); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
