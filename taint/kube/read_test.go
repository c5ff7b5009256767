package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forcefence/forcefence/taint/decide/action"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/taint"
)

// stored are two nodes with their Leases, pods and volumes, in memory. No two things of it are alike, so that none can
// be taken for another: a volume's claim, PersistentVolume, handle and attachment all have names of their own.
func stored(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, storagev1.AddToScheme} {
		must(t, add(scheme))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Pod{}, "spec.nodeName",
			func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	create := func(o client.Object) {
		t.Helper()
		must(t, c.Create(t.Context(), o))
	}
	for _, n := range []string{"n1", "n2"} {
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID("uid-of-" + n)}})
		create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n}})
	}
	claim := func(name, pv string) {
		create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pv}})
	}
	csi := func(pv, driver, handle string) {
		create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle},
			}}})
	}
	claim("data", "pv-1")
	csi("pv-1", "sim.example.com", "lun-9")
	claim("db-scratch", "pv-2") // of the pod db's ephemeral volume
	csi("pv-2", "other.example.com", "lun-8")
	claim("scratch", "pv-3") // named as the ephemeral volume, but no pod owns it
	csi("pv-3", "other.example.com", "lun-7")
	claim("export", "pv-4")
	create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-4"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/"},
		}}})
	claim("unbound", "")
	claim("lost", "pv-gone")
	claim("stolen", "pv-5")
	claim("own", "pv-6")
	for pv, of := range map[string]corev1.ObjectReference{
		"pv-5": {Namespace: "bank", Name: "stolen"}, "pv-6": {Namespace: "shop", Name: "own"}} {
		create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &of}})
	}
	uses := func(name string) corev1.Volume {
		return corev1.Volume{Name: "of-" + name,
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	mounts := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{Name: "secrets",
			VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets.example.com"}}},
		{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas", Path: "/"}}},
	}
	scratch := corev1.Volume{Name: "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	for _, p := range []struct {
		name, node string
		volumes    []corev1.Volume
	}{
		{"db", "n1", []corev1.Volume{uses("data"), scratch}},
		{"files", "n1",
			[]corev1.Volume{uses("export"), uses("unbound"), uses("missing"), uses("lost"), uses("stolen"),
				uses("own")}},
		{"web", "n1", nil},
		{"elsewhere", "n2", []corev1.Volume{uses("data")}},
	} {
		create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.name, UID: types.UID("uid-of-" + p.name)},
			Spec:       corev1.PodSpec{NodeName: p.node, Volumes: append(slices.Clone(mounts), p.volumes...)},
		})
	}
	for name, of := range map[string][2]string{
		"csi-a": {"n1", "pv-1"}, "csi-b": {"n1", "pv-2"}, "csi-c": {"n2", "pv-3"}, "csi-d": {"n1", ""}} {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{NodeName: of[0]}}
		if pv := of[1]; pv != "" {
			va.Spec.Source.PersistentVolumeName = &pv
		}
		create(va)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unreadable is an API server that answers some reads with an error.
type unreadable struct {
	client.Reader
	err func(o runtime.Object) error
	get map[string]error // by the object's name
}

func (r unreadable) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.get[k.Name]; err != nil {
		return err
	}
	if err := r.err(o); err != nil {
		return err
	}
	return r.Reader.Get(ctx, k, o, opts...)
}

func (r unreadable) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if err := r.err(l); err != nil {
		return err
	}
	return r.Reader.List(ctx, l, opts...)
}

// readErrors are the ways in which a read fails. Only the first says that the object does not exist. Only the next two
// are about that one object.
var readErrors = map[string]error{
	"not found":   apierrors.NewNotFound(schema.GroupResource{}, "n1"),
	"forbidden":   apierrors.NewForbidden(schema.GroupResource{}, "n1", errors.New("RBAC")),
	"internal":    apierrors.NewInternalError(errors.New("unable to transform key")),
	"time-out":    apierrors.NewTimeoutError("etcd", 1),
	"too many":    apierrors.NewTooManyRequestsError("slow down"),
	"unavailable": apierrors.NewServiceUnavailable("starting"),
	"no API":      errors.New("connection refused"),
}

// A Lease, Node, claim or volume that cannot be read is not one that is not there: a node without a Lease gives no sign
// of life.
func TestReadsThatFail(t *testing.T) {
	c := stored(t)
	for what, is := range map[string]func(runtime.Object) bool{
		"node":   func(o runtime.Object) bool { _, ok := o.(*corev1.Node); return ok },
		"lease":  func(o runtime.Object) bool { _, ok := o.(*coordinationv1.Lease); return ok },
		"claim":  func(o runtime.Object) bool { _, ok := o.(*corev1.PersistentVolumeClaim); return ok },
		"volume": func(o runtime.Object) bool { _, ok := o.(*corev1.PersistentVolume); return ok },
	} {
		for name, fail := range readErrors {
			t.Run(what+"/"+name, func(t *testing.T) {
				live := unreadable{Reader: c, err: func(o runtime.Object) error {
					if is(o) {
						return fail
					}
					return nil
				}}
				none := apierrors.IsNotFound(fail)
				node, l, err := ReadNode(t.Context(), live, "n1", taint.DefaultKey, time.Now)
				failed := (what == "node" || what == "lease") && !none
				switch {
				case (err != nil) != failed || failed && (l.Exists || !errors.Is(err, fail)):
					t.Errorf("look: got exists %v, error %v, want an error: %v", l.Exists, err, failed)
				case !failed &&
					(l.Exists != (what != "node") || (node != nil) != l.Exists ||
						l.Exists && (l.LeaseRV == "") != (what == "lease")):
					t.Errorf("look: got exists %v, node %v, lease %q", l.Exists, node != nil, l.LeaseRV)
				}
				pods, err := ListPods(t.Context(), live, "n1")
				must(t, err)
				refused := name == "forbidden" || name == "internal"
				of, unread, err := ReadVolumes(t.Context(), live, pods)
				failed = (what == "claim" || what == "volume") && !none && !refused
				if (err != nil) != failed || failed && of != nil {
					t.Errorf("volumes: got %v, error %v, want an error: %v", of, err, failed)
				}
				refused = refused && (what == "claim" || what == "volume")
				if errors.Is(unread, fail) != refused {
					t.Errorf("volumes: got unread %v, want it: %v", unread, refused)
				}
				for _, v := range of["uid-of-db"] {
					if v.Unread != refused ||
						refused && (v.Unique != "" || v.Claim == "" || (v.PV == "") != (what == "claim")) {
						t.Errorf("volumes: got %+v, want unread: %v", v, refused)
					}
				}
				claims, err := ReadClaims(t.Context(), live, []string{"pv-5"})
				if (err != nil) != failed || failed && claims != nil {
					t.Errorf("claims: got %v, error %v, want an error: %v", claims, err, failed)
				}
				if want := what == "volume" && refused; (claims["pv-5"] == action.UnreadClaim) != want {
					t.Errorf("claims: got %v, want unread: %v", claims, want)
				}
			})
		}
	}
}

// A claim that cannot be read hides no other pod's volumes.
func TestUnreadClaimHidesNoOther(t *testing.T) {
	c := stored(t)
	refusal := apierrors.NewInternalError(errors.New("unable to transform key"))
	live := unreadable{Reader: c, get: map[string]error{"data": refusal},
		err: func(runtime.Object) error { return nil }}
	pods, err := ListPods(t.Context(), live, "n1")
	must(t, err)
	of, unread, err := ReadVolumes(t.Context(), live, pods)
	if err != nil || !errors.Is(unread, refusal) || !strings.Contains(unread.Error(), "shop/data") {
		t.Fatalf("got error %v, unread %v", err, unread)
	}
	if got := of["uid-of-db"]; len(got) != 2 || !got[0].Unread || got[0].Claim != "data" || got[1].Unread ||
		got[1].PV != "pv-2" {
		t.Errorf("the pod itself: got %+v", got)
	}
	if got := of["uid-of-files"]; len(got) != 3 ||
		slices.ContainsFunc(got, func(v action.Volume) bool { return v.Unread }) {
		t.Errorf("another pod: got %+v", got)
	}
}

// A list that fails is none: no pods, or no attachments, would be an end of the fence.
func TestListsThatFail(t *testing.T) {
	c := stored(t)
	for name, fail := range readErrors {
		live := unreadable{Reader: c, err: func(o runtime.Object) error {
			if _, list := o.(client.ObjectList); list {
				return fail
			}
			return nil
		}}
		if pods, err := ListPods(t.Context(), live, "n1"); !errors.Is(err, fail) || pods != nil {
			t.Errorf("%s: got pods %v, error %v", name, pods, err)
		}
		if atts, err := ListAttachments(t.Context(), live); !errors.Is(err, fail) || atts != nil {
			t.Errorf("%s: got attachments %v, error %v", name, atts, err)
		}
	}
}

// A look is as old as its question, and was not there before both answers were: what happens in between may be missing
// from it.
func TestLookTakesItsTime(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex // guards now: both reads are made at once
	now := begun
	slow := unreadable{Reader: stored(t), err: func(runtime.Object) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return nil
	}}
	_, l, err := ReadNode(t.Context(), slow, "n1", taint.DefaultKey, func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	must(t, err)
	if !l.Sent.Equal(providers.InstantOf(begun)) || l.Got.Sub(providers.InstantOf(begun)) < 2*time.Second {
		t.Errorf("two reads of a second each: got sent after %s, answered after %s",
			l.Sent.Sub(providers.InstantOf(begun)), l.Got.Sub(providers.InstantOf(begun)))
	}
}

// A pod's volumes are those of its claims, its generic ephemeral ones included, by the names that attachments and the
// node's lists have for them. A claim or volume that is not there is none; a volume that is not CSI's has no name in
// the lists.
func TestVolumes(t *testing.T) {
	c := stored(t)
	pods, err := ListPods(t.Context(), c, "n1")
	must(t, err)
	got, unread, err := ReadVolumes(t.Context(), c, pods)
	must(t, errors.Join(err, unread))
	want := map[string][]action.Volume{
		"uid-of-db": {
			{PV: "pv-1", Claim: "data", Driver: "sim.example.com", Handle: "lun-9",
				Unique: "kubernetes.io/csi/sim.example.com^lun-9"},
			{PV: "pv-2", Claim: "db-scratch", Driver: "other.example.com", Handle: "lun-8",
				Unique: "kubernetes.io/csi/other.example.com^lun-8"}},
		"uid-of-files": {{PV: "pv-4", Claim: "export"}, {PV: "pv-gone", Claim: "lost"}, {PV: "pv-6", Claim: "own"}},
		"uid-of-web":   nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	claims := map[string]bool{"uid-of-db": true, "uid-of-files": true, "uid-of-web": false}
	for _, p := range SeePods(pods, taint.DefaultKey, nil) {
		if p.Claims != claims[p.UID] || p.Volumes != nil {
			t.Errorf("%s: got claims %v, volumes %v, want claims %v and no volumes yet", p.Name, p.Claims, p.Volumes,
				claims[p.UID])
		}
	}
}

// The lists name a volume of an in-tree plugin by the CSI driver that serves it. These are the names that kubernetes
// 1.36 gives them (pkg/volume/csimigration, and GetVolumeName of pkg/volume/csi).
func TestMigratedVolumes(t *testing.T) {
	const disk = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"
	zone := func(key, value string) map[string]string { return map[string]string{key: value} }
	for _, tc := range []struct {
		name   string
		labels map[string]string
		source corev1.PersistentVolumeSource
		want   corev1.UniqueVolumeName
		unread bool
	}{
		{"AWS", nil, corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: "aws://us-east-1a/vol-0123456789abcdef0",
		}}, "kubernetes.io/csi/ebs.csi.aws.com^vol-0123456789abcdef0", false},
		{"AWS, by its ID", nil,
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
				VolumeID: "vol-02399794d890f9375",
			}}, "kubernetes.io/csi/ebs.csi.aws.com^vol-02399794d890f9375", false},
		{"AWS, no volume", nil,
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
				VolumeID: "aws://disk",
			}}, "", true},
		{"GCE, zonal", zone(corev1.LabelTopologyZone, "us-central1-a"), corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk-1"},
		}, "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/us-central1-a/disks/disk-1", false},
		{"GCE, regional", zone(corev1.LabelTopologyZone, "us-central1-a__us-central1-c"), corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk-1"},
		}, "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/regions/us-central1/disks/disk-1", false},
		{"GCE, without a zone", nil, corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk-1"},
		}, "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1", false},
		{"GCE, two regions", zone(corev1.LabelTopologyZone, "us-central1-a__us-east1-b"), corev1.PersistentVolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk-1"},
		}, "", true},
		{"Azure", nil,
			corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: disk}},
			"kubernetes.io/csi/disk.csi.azure.com^" + disk, false},
		{"OpenStack", nil, corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1"}},
			"kubernetes.io/csi/cinder.csi.openstack.org^c-1", false},
		{"vSphere", nil, corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{
			VolumePath: "[ds] kubevols/a.vmdk",
		}}, "kubernetes.io/csi/csi.vsphere.vmware.com^[ds] kubevols/a.vmdk", false},
		{"Portworx", nil, corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "px-1"}},
			"kubernetes.io/csi/pxd.portworx.com^px-1", false},
		{"iSCSI", nil,
			corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{IQN: "iqn.2026-01.com.example:a"}},
			"", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := stored(t)
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-tree", Labels: tc.labels}}
			pv.Spec.PersistentVolumeSource = tc.source
			must(t, c.Create(t.Context(), pv))
			must(t, c.Create(t.Context(), &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tree"},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-tree"},
			}))
			of, _, err := ReadVolumes(t.Context(), c,
				[]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "u"}, Spec: corev1.PodSpec{
					Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "tree"},
					}}},
				}}})
			must(t, err)
			want := []action.Volume{{PV: "pv-tree", Claim: "tree", Migrated: tc.want, Unread: tc.unread}}
			if diff := cmp.Diff(want, of["u"]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// More pods than are read at the same time: each gets its own volumes.
func TestVolumesOfMany(t *testing.T) {
	c := stored(t)
	var pods []corev1.Pod
	want := map[string][]action.Volume{}
	for i := range 5 * resolvers {
		pv, claim, uid := fmt.Sprintf("many-%d", i), fmt.Sprintf("claim-%d", 1000-i), fmt.Sprintf("u-%d", i)
		must(t, c.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: claim},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pv},
		}))
		pods = append(pods,
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: types.UID(uid)},
				Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
					Name: "v",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}},
				}}}})
		want[uid] = []action.Volume{{PV: pv, Claim: claim}}
	}
	got, unread, err := ReadVolumes(t.Context(), c, pods)
	must(t, errors.Join(err, unread))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A claim is the one that the volume names, and no volume's name is a claim's.
func TestClaims(t *testing.T) {
	got, err := ReadClaims(t.Context(), stored(t), []string{"pv-6", "pv-1", "pv-gone", "pv-5"})
	must(t, err)
	if diff := cmp.Diff(map[string]string{"pv-6": "shop/own", "pv-5": "bank/stolen", "pv-1": "", "pv-gone": ""},
		got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A volume that was released names the claim that it was bound to. A StatefulSet's claim that was made again has that
// name, and another volume.
func TestClaimThatWasMadeAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		volume string    // of the claim
		uid    types.UID // of the claim that the volume names; the claim's is "new"
		want   string
	}{
		"bound to it":                  {"pv", "new", "shop/data"},
		"to be bound to it":            {"", "", "shop/data"},
		"bound to another volume":      {"other", "old", ""},
		"waits for another volume":     {"", "old", ""},
		"names another volume by hand": {"other", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(
				&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
					ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: tt.uid}}},
				&corev1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "new"},
					Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: tt.volume}}).Build()
			got, err := ReadClaims(t.Context(), c, []string{"pv"})
			must(t, err)
			if got["pv"] != tt.want {
				t.Errorf("got %q, want %q", got["pv"], tt.want)
			}
		})
	}
}

// An in-tree volume that a CSI driver serves is attached without a PersistentVolume. A host's folder is not.
func TestInlineVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		source corev1.VolumeSource
		want   bool
	}{
		"in-tree":       {corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}, true},
		"host's folder": {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, false},
		"CSI":           {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, false},
	} {
		p := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: tt.source}, {}}}}
		if got := SeePod(&p, taint.DefaultKey, nil).InlineVolume; got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// blind is a server that passes over the options of a list: what it returns is of all nodes, as a live list of
// attachments is.
type blind struct{ client.Reader }

func (b blind) List(ctx context.Context, l client.ObjectList, _ ...client.ListOption) error {
	return b.Reader.List(ctx, l)
}

// Other nodes' volumes are not this node's business; an inline one is.
func TestAttachmentsOfOneNode(t *testing.T) {
	c := stored(t)
	for node, want := range map[string][]string{
		"n1": {"csi-a pv-1", "csi-b pv-2", "csi-d "}, "n2": {"csi-c pv-3"}, "nowhere": nil} {
		atts, err := ListAttachments(t.Context(), blind{c})
		must(t, err)
		var got []string
		for _, a := range atts[node] {
			got = append(got, a.Name+" "+a.PV)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", node, got, want)
		}
	}
}

// An attachment is read with everything that its deletion depends on.
func TestAttachmentIsSeenAsItIs(t *testing.T) {
	now, pv := metav1.Now(), "pv-1"
	scheme := runtime.NewScheme()
	must(t, storagev1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "u", ResourceVersion: "3", DeletionTimestamp: &now,
			Finalizers: []string{"f"}},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1", Attacher: "csi",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}).Build()
	got, err := ListAttachments(t.Context(), c)
	must(t, err)
	if diff := cmp.Diff(
		[]action.Attachment{{Name: "va", UID: "u", ResourceVersion: "3", PV: "pv-1", Attacher: "csi", Deleting: true}},
		got["n1"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A claim counts as awaited if a Pending pod of a ReplicaSet uses it. The pod is not being deleted, and not the node's
// own.
func TestWaiting(t *testing.T) {
	yes, now := true, metav1.Now()
	var objects []client.Object
	pod := func(ns, name string, change func(*corev1.Pod)) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: "n2", Volumes: []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		if change != nil {
			change(p)
		}
		objects = append(objects, p)
	}
	pod("shop", "bound", nil)
	pod("shop", "unbound", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	pod("web", "other-namespace", nil)
	pod("db", "not-asked", nil)
	pod("shop", "runs", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	pod("shop", "deleted", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"f"} })
	pod("shop", "dead-node", func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	pod("shop", "set", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" })
	pod("shop", "nobody", func(p *corev1.Pod) { p.OwnerReferences = nil })
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "status.phase",
			func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).Build()
	got, err := ListAwaitedClaims(t.Context(), c, "n1", []string{"shop", "web"})
	must(t, err)
	if diff := cmp.Diff(map[string]bool{"shop/bound": true, "shop/unbound": true, "web/other-namespace": true},
		got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pod is seen as it is.
func TestSeePod(t *testing.T) {
	prio, grace, now, yes := int32(7), int64(30), metav1.Now(), true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "3", Labels: map[string]string{"tier": "storage"},
			Finalizers:        []string{"f"},
			DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace,
			Annotations: map[string]string{taint.SparedAnnotation: "token"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Other", Name: "o"},
				{Kind: "StatefulSet", Name: "s", Controller: &yes}},
		},
		Spec: corev1.PodSpec{Priority: &prio, Tolerations: []corev1.Toleration{{Key: "k"}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: taint.TombstoneReason, Message: "m",
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			}},
	}
	for selector, first := range map[string]bool{"tier=storage": true, "tier=web": false, "": false} {
		s, err := metav1.ParseToLabelSelector(selector)
		must(t, err)
		sel, err := metav1.LabelSelectorAsSelector(s)
		must(t, err)
		want := action.Pod{
			Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "3", Terminal: true, Tombstone: true,
			Spared: "token", Message: "m", First: first, Priority: 7,
			Deleting: true, Grace: 30, Finalizers: []string{"f"}, Tolerations: p.Spec.Tolerations,
			Labels: p.Labels, Owner: action.Owner{Kind: "StatefulSet", Name: "s"}, DeleteAt: now.Time, Ready: true,
			ContainersReady: true,
		}
		if diff := cmp.Diff(want, SeePod(p, taint.DefaultKey, sel)); diff != "" {
			t.Errorf("first %q (-want +got):\n%s", selector, diff)
		}
	}
	daemon := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}}}}
	finished := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	seen := SeePods([]corev1.Pod{*daemon, *finished}, taint.DefaultKey, nil)
	conditions := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse},
		{Type: corev1.ContainersReady, Status: corev1.ConditionUnknown},
	}
	if p := SeePod(&corev1.Pod{Status: corev1.PodStatus{Conditions: conditions}}, taint.DefaultKey, nil); p.Ready ||
		p.ContainersReady {
		t.Errorf("conditions that are not True: got %+v", p)
	}
	if d, f := seen[0], seen[1]; d.Exempt != taint.ExemptDaemon || d.Terminal || f.Exempt != taint.NotExempt ||
		!f.Terminal || f.Tombstone {
		t.Errorf("a DaemonSet's pod and a finished one: got %+v", seen)
	}
}

// The owner of a ReplicaSet is read once for all its pods. A ReplicaSet without controller, or a deleted one, is the
// owner itself.
func TestOwners(t *testing.T) {
	yes := true
	set := func(name string, refs ...metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: refs}}
	}
	c := fake.NewClientBuilder().WithObjects(
		set("r", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", Controller: &yes}),
		set("other", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"}), set("alone"),
	).Build()
	pod := func(uid, set string) action.Pod {
		return action.Pod{Namespace: "ns", UID: uid, Owner: action.Owner{Kind: "ReplicaSet", Name: set}}
	}
	got, err := ReadOwners(t.Context(), c,
		[]action.Pod{pod("a", "r"), pod("b", "r"), pod("c", "alone"), pod("d", "gone"), pod("e", "other")})
	must(t, err)
	d := action.Owner{Kind: "Deployment", Name: "d", Known: true}
	want := map[string]action.Owner{"a": d, "b": d}
	for uid, name := range map[string]string{"c": "alone", "d": "gone", "e": "other"} {
		want[uid] = action.Owner{Kind: "ReplicaSet", Name: name, Known: true}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A volume is for one node if its access modes are those for which attach/detach refuses a second one.
func TestForOneNode(t *testing.T) {
	const rwo, rwx, rox, rwop = corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadOnlyMany,
		corev1.ReadWriteOncePod
	for _, tt := range []struct {
		modes []corev1.PersistentVolumeAccessMode
		want  bool
	}{
		{nil, false}, {[]corev1.PersistentVolumeAccessMode{rwo}, true},
		{[]corev1.PersistentVolumeAccessMode{rwop}, true}, {[]corev1.PersistentVolumeAccessMode{rwo, rwx}, false},
		{[]corev1.PersistentVolumeAccessMode{rox, rwo}, false},
	} {
		if got := isForOneNode(tt.modes); got != tt.want {
			t.Errorf("%v: got %t, want %t", tt.modes, got, tt.want)
		}
	}
}
