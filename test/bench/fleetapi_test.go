package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	"github.com/forcefence/forcefence/test/world"
)

// smallFleet is a simulated API server of two nodes, n0 and n1, and client-go's typed clients of it. No kubelet and no
// controller works: what changes, the test does.
type smallFleet struct {
	*kubernetes.Clientset
	api   *fleetAPI
	world *fleetWorld
	t     *testing.T
}

// inEachForm runs f with clients that speak JSON, and with such that ask for protobuf.
func inEachForm(t *testing.T, f func(*testing.T, *smallFleet)) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(strings.TrimPrefix(media, "application/"), func(t *testing.T) {
			w, power, ca := newFleetWorld([]corev1.ContainerImage{{Names: []string{"large"}}}),
				world.NewRedfish(datacenter.Options{}), kit.NewAuthority("fleet CA")
			for i := range 2 {
				m, err := power.Add(t.Context(), fmt.Sprintf("n%d", i))
				kit.Must(t, err)
				w.add(m, fmt.Sprintf("127.0.1.%d", i+1), nil)
			}
			api := newFleetAPI(w, ca)
			t.Cleanup(func() { w.close(); api.server.Close(); power.Close() })
			clients, err := kubernetes.NewForConfig(&rest.Config{
				Host: api.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca.Cert},
				ContentConfig: rest.ContentConfig{ContentType: media, AcceptContentTypes: media},
			})
			kit.Must(t, err)
			f(t, &smallFleet{clients, api, w, t})
		})
	}
}

func (f *smallFleet) node(name string) *corev1.Node {
	f.t.Helper()
	n, err := f.CoreV1().Nodes().Get(f.t.Context(), name, metav1.GetOptions{})
	kit.Must(f.t, err)
	return n
}

// patchNode sends a merge patch; what fails is not sent again.
func (f *smallFleet) patchNode(name, patch string) (n corev1.Node, err error) {
	err = f.CoreV1().RESTClient().Patch(types.MergePatchType).Resource("nodes").Name(name).Body([]byte(patch)).
		MaxRetries(0).Do(f.t.Context()).Into(&n)
	return n, err
}

// patchPod sends a strategic merge patch.
func (f *smallFleet) patchPod(name, patch string) (*corev1.Pod, error) {
	return f.CoreV1().Pods(fleetNS).
		Patch(f.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
}

func (f *smallFleet) deletePod(name string, p *metav1.Preconditions) error {
	return f.CoreV1().Pods(fleetNS).Delete(f.t.Context(), name, metav1.DeleteOptions{Preconditions: p})
}

// podsOf lists the pods of n1.
func (f *smallFleet) podsOf(more string) (names []string) {
	f.t.Helper()
	l, err := f.CoreV1().Pods("").List(f.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1" + more})
	kit.Must(f.t, err)
	for _, p := range l.Items {
		names = append(names, p.Name)
	}
	return names
}

// A write is made on the object that it names, in the version that it names, and on no other: a Node.
func TestFleetNodeWrites(t *testing.T) {
	inEachForm(t, func(t *testing.T, f *smallFleet) {
		old := f.node("n0")
		patch := func(version, uid, status string) string {
			return fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"uid":%q,"annotations":{"a":"x"}}%s}`, version, uid,
				status)
		}
		for _, other := range []string{
			patch("999999", string(old.UID), ""), patch(old.ResourceVersion, "another", "")} {
			if _, err := f.patchNode("n0", other); !apierrors.IsConflict(err) {
				t.Errorf("%s: got %v, want a conflict", other, err)
			}
		}
		right := patch(old.ResourceVersion, string(old.UID), `,"status":{"volumesInUse":null}`)
		n, err := f.patchNode("n0", right)
		if err != nil || n.Annotations["a"] != "x" ||
			n.Annotations[world.BMCAnnotation] != old.Annotations[world.BMCAnnotation] ||
			len(n.Status.VolumesInUse) > 0 || n.Name != "n0" || len(n.Status.Images) != 1 ||
			n.ResourceVersion == old.ResourceVersion {
			t.Errorf("got %v, error %v", n, err)
		}
		if now := f.node("n0"); now.ResourceVersion != n.ResourceVersion || now.Annotations["a"] != "x" {
			t.Errorf("got %v, want what was answered", now)
		}
		if _, err := f.patchNode("n0", right); !apierrors.IsConflict(err) {
			t.Errorf("the version of before: got %v, want a conflict", err)
		}
		if _, err := f.patchNode("no-such-node", `{}`); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
}

// The same of a pod, also where it is deleted. One that is gone is gone.
func TestFleetPodWrites(t *testing.T) {
	inEachForm(t, func(t *testing.T, f *smallFleet) {
		const name, failed = "pod-n1-03", ",status.phase=Failed"
		if all := f.podsOf(""); len(all) != fleetPods || all[3] != name || len(f.podsOf(failed)) != 0 {
			t.Fatalf("got %q", all)
		}
		for _, patch := range []string{
			`{"metadata":{"uid":"another"}}`, `{"metadata":{"uid":"uid-pod-n1-03","resourceVersion":"2"}}`} {
			if _, err := f.patchPod(name, patch); !apierrors.IsConflict(err) {
				t.Errorf("%s: got %v, want a conflict", patch, err)
			}
		}
		p, err := f.patchPod(name, `{"metadata":{"uid":"uid-pod-n1-03","resourceVersion":"1"},`+
			`"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"}]}}`)
		if err != nil || p.Status.Phase != corev1.PodFailed || len(p.Status.Conditions) != 2 ||
			p.Spec.NodeName != "n1" {
			t.Fatalf("got %v, error %v; want it failed, with one condition more", p, err)
		}
		if got := f.podsOf(failed); !slices.Equal(got, []string{name}) {
			t.Errorf("failed: %q", got)
		}
		uid, rv, other, old := p.UID, p.ResourceVersion, types.UID("another"), "1"
		for _, pre := range []*metav1.Preconditions{
			{UID: &other, ResourceVersion: &rv}, {UID: &uid, ResourceVersion: &old}} {
			if err := f.deletePod(name, pre); !apierrors.IsConflict(err) {
				t.Errorf("deletion under %v: got %v, want a conflict", pre, err)
			}
		}
		kit.Must(t, f.deletePod(name, &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}))
		_, err = f.CoreV1().Pods(fleetNS).Get(t.Context(), name, metav1.GetOptions{})
		if len(f.podsOf("")) != fleetPods-1 || !apierrors.IsNotFound(err) ||
			!apierrors.IsNotFound(f.deletePod(name, nil)) {
			t.Errorf("it has not left yet: got %v", err)
		}
	})
}

// A watch begins with all that is there and a bookmark, or after the version that it names, and then sends each change
// once, in their order.
func TestFleetWatch(t *testing.T) {
	inEachForm(t, func(t *testing.T, f *smallFleet) {
		watch := func(o metav1.ListOptions) apiwatch.Interface {
			w, err := f.CoreV1().Nodes().Watch(t.Context(), o)
			kit.Must(t, err)
			return w
		}
		last := 0
		next := func(w apiwatch.Interface, want apiwatch.EventType, name string) {
			t.Helper()
			e, open := <-w.ResultChan()
			n, ok := e.Object.(*corev1.Node)
			if !open || !ok {
				t.Fatalf("got %s of %T, open %t", e.Type, e.Object, open)
			}
			rv, err := strconv.Atoi(n.ResourceVersion)
			if e.Type != want || n.Name != name || rv <= last && want == apiwatch.Modified || err != nil {
				t.Errorf("got %s %s at %d after %d, want %s %s", e.Type, n.Name, rv, last, want, name)
			}
			last = rv
		}
		yes := true
		all := watch(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		defer all.Stop()
		next(all, apiwatch.Added, "n0")
		next(all, apiwatch.Added, "n1")
		next(all, apiwatch.Bookmark, "")
		from := last
		_, err := f.patchNode("n0", `{"metadata":{"labels":{"missed":"by the second"}}}`)
		kit.Must(t, err)
		later := watch(metav1.ListOptions{ResourceVersion: strconv.Itoa(from)})
		defer later.Stop()
		const writes = 200
		f.world.mu.Lock() // one after the other, faster than they are sent
		for i := range writes {
			f.world.setReady(f.world.nodes[i%2], corev1.ConditionTrue, time.Now())
		}
		f.world.mu.Unlock()
		for _, w := range []apiwatch.Interface{all, later} {
			last = from
			for i := range writes + 1 {
				next(w, apiwatch.Modified, fmt.Sprintf("n%d", max(i-1, 0)%2))
			}
			select {
			case e := <-w.ResultChan():
				t.Errorf("got %v after all", e)
			default:
			}
		}
	})
}

// While the API server has no room, about half of all writes are answered 429, with how long to wait, and make nothing;
// reads are answered.
func TestFleetRefuses(t *testing.T) {
	inEachForm(t, func(t *testing.T, f *smallFleet) {
		f.api.refuse.Store(true)
		const writes = 60
		refused, last := 0, ""
		for i := range writes {
			_, err := f.patchNode("n0", fmt.Sprintf(`{"metadata":{"labels":{"i":"%d"}}}`, i))
			switch seconds, _ := apierrors.SuggestsClientDelay(err); {
			case err == nil:
				last = strconv.Itoa(i)
			case apierrors.IsTooManyRequests(err) && seconds == 1:
				refused++
			default:
				t.Errorf("write %d: got %v, want nothing or a 429 with one second to wait", i, err)
			}
			if n := f.node("n0"); n.Labels["i"] != last {
				t.Errorf("after write %d: got label %q, want %q", i, n.Labels["i"], last)
			}
		}
		if refused == 0 || refused == writes {
			t.Errorf("%d of %d writes were refused, want about half", refused, writes)
		}
		f.api.refuse.Store(false)
		for range 2 {
			_, err := f.patchNode("n0", `{}`)
			kit.Must(t, err)
		}
	})
}

// A volume is detached once its pod is gone and the kubelet's list names it no more, whichever comes first; the
// attachments of others stay.
func TestFleetDetaches(t *testing.T) {
	for _, podFirst := range []bool{true, false} {
		inEachForm(t, func(t *testing.T, f *smallFleet) {
			attached := func() []storagev1.VolumeAttachment {
				l, err := f.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
				kit.Must(t, err)
				return l.Items
			}
			all := attached()
			if len(all) != 2*fleetClaims {
				t.Fatalf("got %v", all)
			}
			w, err := f.StorageV1().VolumeAttachments().
				Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatUint(f.world.rv, 10)})
			kit.Must(t, err)
			defer w.Stop()
			stays := fmt.Sprintf(`{"status":{"volumesInUse":[%q]}}`, uniqueOf(volumeOf("n0", 1)))
			steps := []func(){
				func() { kit.Must(t, f.deletePod("pod-n0-02", nil)) },
				func() { _, err := f.patchNode("n0", stays); kit.Must(t, err) },
			}
			if !podFirst {
				slices.Reverse(steps)
			}
			later := time.Now().Add(time.Hour) // for controllers
			steps[0]()
			f.world.runOnce(later)
			if left := attached(); len(left) != len(all) {
				t.Error("it is detached after one of both")
			}
			steps[1]()
			f.world.runOnce(later)
			left, n, e := attached(), f.node("n0"), <-w.ResultChan()
			va, _ := e.Object.(*storagev1.VolumeAttachment)
			if e.Type != apiwatch.Deleted || va == nil || va.Name != "csi-"+volumeOf("n0", 2) ||
				len(left) != len(all)-1 || len(n.Status.VolumesAttached) != fleetClaims-1 {
				t.Errorf("got %v; %v are left, and %v are listed", e, left, n.Status.VolumesAttached)
			}
		})
	}
}
