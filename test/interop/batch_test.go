package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/datacenter"
	"github.com/forcefence/forcefence/test/kit"
	machine "github.com/forcefence/forcefence/test/world"
)

var (
	jobs      = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	jobSets   = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	workloads = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}
)

// stockWait is how long a story waits for what Kubernetes does without a proof.
const stockWait = 15 * time.Second

// TestBatch plays Jobs, JobSets and Kueue's workloads: a pod is replaced once forcefence ended it, and not before.
// Their controllers are the projects' own. It does not run beside the other tests.
func TestBatch(t *testing.T) {
	needWanted(t)
	program := kit.BuildProgram(t, "cmd/forcefence")
	t.Run("Controllers", func(t *testing.T) {
		both := func(ctx context.Context, c *cluster.Cluster, dir string) (*cluster.Part, error) {
			part, err := JobSet(ctx, c, dir)
			if part != nil {
				t.Cleanup(part.Stop)
			}
			if err != nil {
				return nil, err
			}
			return Kueue(ctx, c, dir)
		}
		f := newFleet(t, program, fleetOptions{start: both, mode: onRequest,
			hosts: map[string]int{"Job": 2, "Ignored": 2, "JobSet": 3, "Kueue": 3}})
		f.play(t, map[string]func(*testing.T, *fleet){
			"Job": batchJob, "Ignored": batchIgnored, "JobSet": batchJobSet, "Kueue": batchKueue,
		})
	})
}

// sightings is when pods of a namespace were first seen.
type sightings struct {
	mu   sync.Mutex
	pods map[types.UID]*sighting
}

type sighting struct {
	last                   *corev1.Pod
	made, failed, run, end time.Time // the zero time: not yet
}

// observePods notes from now on when the story's pods come, run, fail and go.
func (f *fleet) observePods() *sightings {
	s := &sightings{pods: map[types.UID]*sighting{}}
	f.t.Cleanup(f.Watch(func(obj metav1.Object, deleted bool) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Namespace != f.name {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.pods[pod.UID]
		if p == nil {
			p = &sighting{made: time.Now()}
			s.pods[pod.UID] = p
		}
		p.last = pod
		for at, so := range map[*time.Time]bool{&p.failed: pod.Status.Phase == corev1.PodFailed, &p.end: deleted,
			&p.run: pod.Status.Phase == corev1.PodRunning && cluster.IsPodReady(pod)} {
			if so && at.IsZero() {
				*at = time.Now()
			}
		}
	}))
	return s
}

// of returns the pods for which keep is true, the oldest first.
func (s *sightings) of(keep func(sighting) bool) (out []sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if keep(*p) {
			out = append(out, *p)
		}
	}
	slices.SortFunc(out, func(a, b sighting) int { return a.made.Compare(b.made) })
	return out
}

// batchPod is a pod template for a story: its pods leave a silent node at once, and one fits on each node. labels and
// more are of its metadata.
func (f *fleet) batchPod(metadata, restartPolicy string) string {
	return fmt.Sprintf(`{metadata: {%s}, spec: {restartPolicy: %s, nodeSelector: {story: %s},
    terminationGracePeriodSeconds: 1,
    tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}],
    containers: [{name: main, image: "sim.forcefence.io/app:1", resources: {requests: {cpu: "40"}}}]}}`,
		metadata, restartPolicy, f.name)
}

// running waits until that many of the story's pods run.
func (f *fleet) running(n int) []*corev1.Pod {
	f.t.Helper()
	f.until(fmt.Sprintf("%d pods run", n), func() bool { return len(f.runningPods()) == n })
	return f.runningPods()
}

func (f *fleet) runningPods() []*corev1.Pod {
	return slices.DeleteFunc(f.ReadyPods(f.name), func(p *corev1.Pod) bool {
		return p.Status.Phase != corev1.PodRunning
	})
}

// cutUnproven cuts the power of a pod's host, whose device is silent: that is Kubernetes alone. It returns once
// Kubernetes has deleted the pod, which cannot end.
func (f *fleet) cutUnproven(pod *corev1.Pod) *machine.Host {
	f.t.Helper()
	h := f.hosts.Host(pod.Spec.NodeName)
	h.Redfish().BMC.SetFault(datacenter.Fault{Status: 503})
	kit.Must(f.t, h.Machine.CutPower())
	f.until("Kubernetes deletes "+pod.Name, func() bool {
		return slices.ContainsFunc(f.Pods(f.name), func(p *corev1.Pod) bool {
			return p.UID == pod.UID && p.DeletionTimestamp != nil
		})
	})
	return h
}

// checkReplacement lets the host's device answer, and waits until a new pod runs elsewhere for each of want ended ones.
// It logs how long that took after the first tombstone.
func (f *fleet) checkReplacement(s *sightings, h *machine.Host, before []sighting, want int) {
	f.t.Helper()
	h.Redfish().BMC.SetFault(datacenter.Fault{})
	isNew := func(p sighting) bool {
		isIt := func(o sighting) bool { return o.last.UID == p.last.UID }
		return !p.run.IsZero() && !slices.ContainsFunc(before, isIt)
	}
	f.until("new pods run", func() bool { return len(s.of(isNew)) == want })
	ended := s.of(func(p sighting) bool { return taint.IsTombstone(p.last) })
	if len(ended) == 0 {
		f.t.Fatal("no pod has our tombstone")
	}
	for _, p := range s.of(isNew) {
		if p.last.Spec.NodeName == h.Name() {
			f.t.Errorf("pod %s: it runs on the node that is off", p.last.Name)
		}
		if p.made.Before(ended[0].failed) {
			f.t.Errorf("pod %s came %s before a tombstone, want it after", p.last.Name, ended[0].failed.Sub(p.made))
		}
		f.t.Logf("from the tombstone: pod %s is there after %.2f s, runs after %.2f s", p.last.Name,
			p.made.Sub(ended[0].failed).Seconds(), p.run.Sub(ended[0].failed).Seconds())
	}
}

// keepPod is the metadata that keeps a pod's object when it is deleted.
const keepPod = "finalizers: [" + finalizer + "]"

// releasePods takes that finalizer off the story's pods.
func (f *fleet) releasePods() {
	f.t.Helper()
	for _, p := range f.Pods(f.name) {
		if slices.Contains(p.Finalizers, finalizer) {
			kept := slices.DeleteFunc(slices.Clone(p.Finalizers), func(s string) bool { return s == finalizer })
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
				"uid": p.UID, "resourceVersion": p.ResourceVersion, "finalizers": kept}})
			kit.Must(f.t, err)
			_, err = f.Client().CoreV1().Pods(p.Namespace).Patch(context.Background(), p.Name,
				types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				f.t.Errorf("releasing pod %s: %v", p.Name, err)
			}
		}
	}
}

// A Job that replaces failed pods alone waits for the tombstone, and not for the end of the pod's object.
func batchJob(t *testing.T, f *fleet) {
	f, _ = f.story(t)
	f.namespace(f.name)
	s := f.observePods()
	f.create(fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {namespace: %[1]s, name: work},
  spec: {podReplacementPolicy: Failed, backoffLimit: 3, template: %[2]s}}`, f.name, f.batchPod(keepPod, "Never")))
	t.Cleanup(func() { f.releasePods() })
	pod := f.running(1)[0]
	h := f.cutUnproven(pod)
	before := s.of(func(sighting) bool { return true })
	f.during(stockWait, "Kubernetes alone replaces no pod of a silent node", func() bool {
		return len(f.Pods(f.name)) == 1
	})
	f.checkReplacement(s, h, before, 1)
	if old := s.of(func(p sighting) bool { return p.last.UID == pod.UID })[0]; !old.end.IsZero() {
		t.Error("the old pod's object is gone, want its finalizer to keep it while the new one runs")
	}
	f.releasePods()
	f.untilFenced(h, taint.ResultEvicted)
}

// A failure policy that ignores DisruptionTarget: the end by forcefence is no failure of a Job that may not fail once.
func batchIgnored(t *testing.T, f *fleet) {
	f, _ = f.story(t)
	f.namespace(f.name)
	s := f.observePods()
	f.create(fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {namespace: %[1]s, name: work},
  spec: {backoffLimit: 0, template: %[2]s,
    podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}}}`,
		f.name, f.batchPod("", "Never")))
	h := f.cutUnproven(f.running(1)[0])
	before := s.of(func(sighting) bool { return true })
	f.checkReplacement(s, h, before, 1)
	f.untilFenced(h, taint.ResultEvicted)
	if c, _ := condition(f.find(jobs, f.name, "work"), "Failed"); c.Status == metav1.ConditionTrue {
		t.Errorf("the Job has failed: %s", c.Message)
	}
}

// A JobSet restarts all its Jobs once a pod has failed. It waits until the old pods' objects are gone.
func batchJobSet(t *testing.T, f *fleet) {
	f, _ = f.story(t)
	f.namespace(f.name)
	s := f.observePods()
	f.create(fmt.Sprintf(`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {namespace: %[1]s, name: set},
  spec: {failurePolicy: {maxRestarts: 3}, successPolicy: {operator: All},
    startupPolicy: {startupPolicyOrder: AnyOrder}, network: {enableDNSHostnames: false},
    replicatedJobs: [{name: work, replicas: 2, template: {spec: {
      completionMode: Indexed, completions: 1, parallelism: 1, backoffLimit: 0, podReplacementPolicy: Failed,
      template: %[2]s}}}]}}`, f.name, f.batchPod("", "Never")))
	h := f.cutUnproven(f.running(2)[0])
	before := s.of(func(sighting) bool { return true })
	restarts := func() int64 {
		n, _, _ := unstructured.NestedInt64(f.find(jobSets, f.name, "set").Object, "status", "restarts")
		return n
	}
	f.during(stockWait, "with Kubernetes alone the JobSet waits", func() bool { return restarts() == 0 })
	f.checkReplacement(s, h, before, 2)
	if n := restarts(); n != 1 {
		t.Errorf("restarts of the JobSet: got %d, want 1", n)
	}
	f.untilFenced(h, taint.ResultEvicted)
}

// Kueue gives a workload another node of the topology once the tombstone is there, and leaves its other pod running.
func batchKueue(t *testing.T, f *fleet) {
	f, _ = f.story(t)
	f.namespace(f.name)
	s := f.observePods()
	f.create(
		`{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: racks},
  spec: {levels: [{nodeLabel: story}, {nodeLabel: kubernetes.io/hostname}]}}`,
		fmt.Sprintf(`{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: machines},
  spec: {nodeLabels: {story: %s}, topologyName: racks}}`, f.name),
		`{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: all},
  spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [
    {name: machines, resources: [{name: cpu, nominalQuota: "1000"}]}]}]}}`,
		fmt.Sprintf(`{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {namespace: %s, name: queue},
  spec: {clusterQueue: all}}`, f.name),
		fmt.Sprintf(`{apiVersion: batch/v1, kind: Job,
  metadata: {namespace: %[1]s, name: work, labels: {kueue.x-k8s.io/queue-name: queue}},
  spec: {suspend: true, completionMode: Indexed, completions: 2, parallelism: 2, backoffLimit: 3,
    podReplacementPolicy: Failed, template: %[2]s}}`, f.name,
			f.batchPod(keepPod+", annotations: {kueue.x-k8s.io/podset-required-topology: story}", "Never")))
	t.Cleanup(func() { f.releasePods() })
	pods := f.running(2)
	t.Logf("assigned: %v", f.assignment())
	h := f.cutUnproven(pods[0])
	t.Logf("%s is off", h.Name())
	before := s.of(func(sighting) bool { return true })
	f.during(stockWait, "with Kubernetes alone Kueue starts no pod", func() bool { return len(f.Pods(f.name)) == 2 })
	t.Logf("without a proof Kueue replaces the nodes %q; assigned: %v", f.unhealthyNodes(), f.assignment())
	f.checkReplacement(s, h, before, 1)
	if kept := s.of(func(p sighting) bool { return p.last.UID == pods[1].UID })[0]; !kept.failed.IsZero() {
		t.Error("the other pod has failed, want it to run on")
	}
	f.releasePods()
	f.untilFenced(h, taint.ResultEvicted)
	f.until("no node of the workload is unhealthy", func() bool { return len(f.unhealthyNodes()) == 0 })
}

// workload returns Kueue's only Workload of the story.
func (f *fleet) workload() *unstructured.Unstructured {
	f.t.Helper()
	list, err := f.dynamic.Resource(workloads).Namespace(f.name).List(f.ctx, metav1.ListOptions{})
	kit.Must(f.t, err)
	if len(list.Items) != 1 {
		f.t.Fatalf("got %d Workloads, want 1", len(list.Items))
	}
	return &list.Items[0]
}

// assignment returns the topology that Kueue assigned, in its own form.
func (f *fleet) assignment() any {
	f.t.Helper()
	sets, _, _ := unstructured.NestedSlice(f.workload().Object, "status", "admission", "podSetAssignments")
	if len(sets) == 0 {
		return nil
	}
	set, _ := sets[0].(map[string]any)
	return set["topologyAssignment"]
}

// unhealthyNodes returns the nodes that Kueue replaces.
func (f *fleet) unhealthyNodes() (names []string) {
	f.t.Helper()
	list, _, _ := unstructured.NestedSlice(f.workload().Object, "status", "unhealthyNodes")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, _ := fields["name"].(string)
		names = append(names, name)
	}
	return names
}
