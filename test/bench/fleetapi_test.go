package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
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
func inEachForm(t *testing.T, f func(*smallFleet)) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(strings.TrimPrefix(media, "application/"), func(t *testing.T) {
			world, dc, ca := newFleetWorld([]corev1.ContainerImage{{Names: []string{"large"}}}),
				datacenter.New(datacenter.Options{}), kit.NewAuthority("fleet CA")
			for i := range 2 {
				world.add(dc.AddMachine(fmt.Sprintf("n%d", i)), "", fmt.Sprintf("127.0.1.%d", i+1), nil)
			}
			api, err := newFleetAPI(world, ca)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { world.close(); api.close(); dc.Close() })
			clients, err := kubernetes.NewForConfig(&rest.Config{
				Host: api.url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca.Cert},
				ContentConfig: rest.ContentConfig{ContentType: media, AcceptContentTypes: media},
			})
			if err != nil {
				t.Fatal(err)
			}
			f(&smallFleet{clients, api, world, t})
		})
	}
}

func (f *smallFleet) node(name string) *corev1.Node {
	f.t.Helper()
	n, err := f.CoreV1().Nodes().Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
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

// A write is made on the object that it names, in the version that it names, and on no other: a Node.
func TestFleetNodeWrites(t *testing.T) {
	inEachForm(t, func(f *smallFleet) {
		old := f.node("n0")
		for _, patch := range []string{
			`{"metadata":{"resourceVersion":"999999","annotations":{"a":"x"}}}`,
			fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"uid":"another","annotations":{"a":"x"}}}`,
				old.ResourceVersion),
		} {
			if _, err := f.patchNode("n0", patch); !apierrors.IsConflict(err) {
				t.Errorf("%s: got %v, want a conflict", patch, err)
			}
		}
		n, err := f.patchNode("n0",
			fmt.Sprintf(
				`{"metadata":{"resourceVersion":%q,"uid":%q,"annotations":{"a":"x"}},"status":{"volumesInUse":null}}`,
				old.ResourceVersion, old.UID))
		if err != nil || n.Annotations["a"] != "x" || n.Annotations[bmcAnnotation] != old.Annotations[bmcAnnotation] ||
			len(n.Status.VolumesInUse) > 0 ||
			n.Name != "n0" || len(n.Status.Images) != 1 || n.ResourceVersion == old.ResourceVersion {
			t.Errorf("got %v, error %v", n, err)
		}
		if now := f.node("n0"); now.ResourceVersion != n.ResourceVersion || now.Annotations["a"] != "x" {
			t.Errorf("got %v, want what was answered", now)
		}
		if _, err := f.patchNode("n0",
			fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, old.ResourceVersion)); !apierrors.IsConflict(err) {
			t.Errorf("the version of before: got %v, want a conflict", err)
		}
		if _, err := f.patchNode("no-such-node", `{}`); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
}

// The same of a pod, also where it is deleted. One that is gone is gone.
func TestFleetPodWrites(t *testing.T) {
	inEachForm(t, func(f *smallFleet) {
		list := func(more string) (names []string) {
			t.Helper()
			l, err := f.CoreV1().Pods("").
				List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1" + more})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range l.Items {
				names = append(names, p.Name)
			}
			return names
		}
		if all := list(""); len(all) != fleetPods || all[3] != "pod-n1-03" || len(list(",status.phase=Failed")) != 0 {
			t.Fatalf("got %q", all)
		}
		for _, patch := range []string{
			`{"metadata":{"uid":"another"}}`, `{"metadata":{"uid":"uid-pod-n1-03","resourceVersion":"2"}}`} {
			if _, err := f.patchPod("pod-n1-03", patch); !apierrors.IsConflict(err) {
				t.Errorf("%s: got %v, want a conflict", patch, err)
			}
		}
		p, err := f.patchPod("pod-n1-03",
			`{"metadata":{"uid":"uid-pod-n1-03","resourceVersion":"1"},`+
				`"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"}]}}`)
		if err != nil || p.Status.Phase != corev1.PodFailed || len(p.Status.Conditions) != 2 ||
			p.Spec.NodeName != "n1" {
			t.Fatalf("got %v, error %v; want it failed, with one condition more", p, err)
		}
		if failed := list(",status.phase=Failed"); !slices.Equal(failed, []string{"pod-n1-03"}) {
			t.Errorf("failed: %q", failed)
		}
		uid, rv, other := p.UID, p.ResourceVersion, types.UID("another")
		old := "1"
		for _, pre := range []*metav1.Preconditions{
			{UID: &other, ResourceVersion: &rv}, {UID: &uid, ResourceVersion: &old}} {
			if err := f.deletePod(p.Name, pre); !apierrors.IsConflict(err) {
				t.Errorf("deletion under %v: got %v, want a conflict", pre, err)
			}
		}
		if err := f.deletePod(p.Name, &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}); err != nil {
			t.Fatal(err)
		}
		if len(list("")) != fleetPods-1 || !apierrors.IsNotFound(f.deletePod(p.Name, nil)) {
			t.Error("it has not left yet")
		}
		if _, err := f.CoreV1().Pods(fleetNS).
			Get(t.Context(), p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
		if f.world.podsGone() != 1 {
			t.Errorf("%d pods are gone, want one", f.world.podsGone())
		}
	})
}

// next is the next event of a watch.
func next(t *testing.T, w apiwatch.Interface) (kind apiwatch.EventType, name string, rv int) {
	t.Helper()
	e, open := <-w.ResultChan()
	if !open {
		t.Fatal("the watch ended")
	}
	m, ok := e.Object.(metav1.Object)
	if !ok {
		t.Fatalf("got %s of %T", e.Type, e.Object)
	}
	rv, err := strconv.Atoi(m.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return e.Type, m.GetName(), rv
}

// A watch begins with all that is there and a bookmark, or after the version that it names, and then sends each change
// once, in their order.
func TestFleetWatch(t *testing.T) {
	inEachForm(t, func(f *smallFleet) {
		yes := true
		all, err := f.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer all.Stop()
		for _, want := range []string{"n0", "n1"} {
			if kind, name, _ := next(t, all); kind != apiwatch.Added || name != want {
				t.Errorf("got %s %s, want %s added", kind, name, want)
			}
		}
		kind, _, from := next(t, all)
		if kind != apiwatch.Bookmark {
			t.Errorf("got %s, want the bookmark that ends what was there", kind)
		}
		if _, err := f.patchNode("n0", `{"metadata":{"labels":{"missed":"by the second"}}}`); err != nil {
			t.Fatal(err)
		}
		later, err := f.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(from)})
		if err != nil {
			t.Fatal(err)
		}
		defer later.Stop()
		const writes = 200
		f.world.mu.Lock() // one after the other, faster than they are sent
		for i := range writes {
			f.world.setReady(f.world.nodes[i%2], corev1.ConditionTrue, time.Now())
		}
		f.world.mu.Unlock()
		for which, w := range []apiwatch.Interface{all, later} {
			last := from
			for i := range writes + 1 {
				kind, name, rv := next(t, w)
				if want := fmt.Sprintf("n%d", max(i-1, 0)%2); kind != apiwatch.Modified || name != want || rv <= last {
					t.Errorf("watch %d, event %d: got %s %s at %d after %d, want %s modified", which, i, kind, name, rv,
						last, want)
				}
				last = rv
			}
			select {
			case e := <-w.ResultChan():
				t.Errorf("watch %d: got %v after all", which, e)
			default:
			}
		}
	})
}

// While the API server has no room, about half of all writes are answered 429, with how long to wait, and make nothing;
// reads are answered.
func TestFleetRefuses(t *testing.T) {
	inEachForm(t, func(f *smallFleet) {
		f.api.refusing(true)
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
		f.api.refusing(false)
		for range 2 {
			if _, err := f.patchNode("n0", `{}`); err != nil {
				t.Error(err)
			}
		}
	})
}

// A volume is detached once its pod is gone and the kubelet's list names it no more, whichever comes first; the
// attachments of others stay.
func TestFleetDetaches(t *testing.T) {
	for _, podFirst := range []bool{true, false} {
		inEachForm(t, func(f *smallFleet) {
			ctx := t.Context()
			if all, err := f.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{}); err != nil ||
				len(all.Items) != 2*fleetClaims {
				t.Fatalf("got %v, error %v", all, err)
			}
			w, err := f.StorageV1().VolumeAttachments().
				Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatUint(f.world.current(), 10)})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			pod := func() {
				if err := f.deletePod("pod-n0-02", nil); err != nil {
					t.Fatal(err)
				}
			}
			list := func() {
				keeps := fmt.Sprintf("kubernetes.io/csi/%s^%s", fleetDriver, volumeOf("n0", 1))
				if _, err := f.patchNode("n0", fmt.Sprintf(`{"status":{"volumesInUse":[%q]}}`, keeps)); err != nil {
					t.Fatal(err)
				}
			}
			steps := []func(){list, pod}
			if podFirst {
				steps = []func(){pod, list}
			}
			later := time.Now().Add(time.Hour) // for controllers
			steps[0]()
			f.world.live(later)
			if left := f.world.attached(); left != 2*fleetClaims {
				t.Error("it is detached after one of both")
			}
			steps[1]()
			f.world.live(later)
			if kind, name, _ := next(t, w); kind != apiwatch.Deleted || name != "csi-"+volumeOf("n0", 2) {
				t.Errorf("got %s %s", kind, name)
			}
			n := f.node("n0")
			if left := f.world.attached(); left != 2*fleetClaims-1 || len(n.Status.VolumesAttached) != fleetClaims-1 {
				t.Errorf("%d attachments are left, and %d are listed", left, len(n.Status.VolumesAttached))
			}
		})
	}
}

// attached counts the attachments.
func (w *fleetWorld) attached() int { return len(w.attachmentList().Items) }
