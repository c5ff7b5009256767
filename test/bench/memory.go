package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/taint/view/drill"
	"github.com/forcefence/forcefence/test/cluster"
)

const (
	memoryLimit = 85  // MB of 1e6 bytes, with every type of device linked in
	startLimit  = 0.3 // seconds

	withStorageLimit = 2 * memoryLimit
	quiet            = time.Minute
	sampled          = time.Minute
)

// audit has the API server log every request of forcefence's user when it arrives, and no other user's.
const audit = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  users: [` + fenceUser + `]
- level: None
`

// memory measures a large cluster in which nothing happens: what forcefence keeps in memory, and what it asks of the
// API server. It does so three times: while each node is drilled for the first time, which takes its pace (package
// drill) and writes a condition to each, once that is over, and while policies and a drain guard ask a storage system.
// Nodes are simulated kubelets with a kubelet's own heartbeats (a Lease every 10 s each): a cache that nothing changes
// would flatter. Pods are bound to them past the scheduler.
func memory(ctx context.Context, r *runner) error {
	const nodes = 1000
	pods := r.o.pods
	policy, log := r.folder(r.name)+"-audit.yaml", r.folder(r.name)+"-audit.log"
	if err := os.MkdirAll(r.folder(""), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(policy, []byte(audit), 0o644); err != nil {
		return err
	}
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := r.newLab(ctx, labOptions{
		nodes: nodes, grace: -1, unwatched: true, late: true,
		apiServer: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-mode=blocking"},
	})
	if err != nil {
		return err
	}
	defer l.end()
	r.say("%d nodes are ready", nodes)
	if err := l.fatten(ctx); err != nil {
		return err
	}
	r.say("each has 50 images and 8 conditions")
	if err := r.startUp(ctx, l, log); err != nil {
		return err
	}
	beside, err := l.rests(ctx, log, "in the first round of drills", 0, memoryLimit)
	if err != nil {
		return err
	}
	if err := l.bind(ctx, pods); err != nil {
		return err
	}
	r.say("%d pods run", pods)
	if err := l.drilled(ctx, log); err != nil {
		return err
	}
	r.say("the first round is over: each node was written once")
	after, err := l.rests(ctx, log, "afterwards", pods, memoryLimit)
	if err != nil {
		return err
	}
	if err := l.askStorage(ctx); err != nil {
		return err
	}
	name := fmt.Sprintf("asking a storage system of %d volumes and %d replicas for a policy and a drain guard",
		memoryVolumes, memoryReplicas)
	if _, err := l.rests(ctx, log, name, pods, withStorageLimit); err != nil {
		return err
	}
	r.add(Figure{Bench: "idle",
		Name:  fmt.Sprintf("API requests a minute that %d pods add, beside those of drills", pods),
		Value: round(after - beside), Unit: "1/min"})
	return nil
}

// rests measures one minute in which nothing happens but forcefence's drills, once what it does as it begins is over.
// It returns the requests in a minute that are not about one node, as those of a drill are.
func (l *lab) rests(ctx context.Context, log, when string, pods int, limit float64) (beside float64, _ error) {
	if !wait(ctx, quiet) {
		return 0, ctx.Err()
	}
	before, err := requestsIn(log, everyRequest)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	rss, err := resident(ctx, l.fence.PID(), sampled)
	if err != nil {
		return 0, err
	}
	after, err := requestsIn(log, everyRequest)
	if err != nil {
		return 0, err
	}
	kinds, all := map[string]int{}, 0
	for what, n := range after {
		if n -= before[what]; n == 0 {
			continue
		}
		kind, one := l.ofNode(what)
		kinds[kind] += n
		all += n
		if !one {
			beside += float64(n)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		l.r.say("%s: %d x %s", when, kinds[kind], kind)
	}
	minutes, name := time.Since(begun).Minutes(), fmt.Sprintf("%d nodes, %d pods, %s", len(l.names), pods, when)
	l.r.add(Figure{Bench: "idle", Name: "API requests a minute, " + name, Value: round(float64(all) / minutes),
		Unit: "1/min"})
	l.r.add(rss.now.of("VmRSS, " + name).atMost(limit))
	l.r.add(rss.peak.of("VmHWM, " + name))
	return beside / minutes, nil
}

// ofNode takes the name of a node off what a request was, and says whether there was one.
func (l *lab) ofNode(what string) (kind string, one bool) {
	i := strings.LastIndexByte(what, ' ')
	if i < 0 || !slices.Contains(l.names, what[i+1:]) {
		return what, false
	}
	return strings.TrimSpace(what[:i]) + " NODE", true
}

// drilled waits until every node has been drilled once: its condition is written then, and not again while nothing
// changes.
func (l *lab) drilled(ctx context.Context, log string) error {
	long := time.Duration(len(l.names))*time.Hour/drill.MaxPerHour + patience
	ctx, cancel := context.WithTimeoutCause(ctx, long, fmt.Errorf("not after %s", long))
	defer cancel()
	for {
		requests, err := requestsIn(log, everyRequest)
		if err != nil {
			return err
		}
		written := 0
		for what := range requests {
			if kind, one := l.ofNode(what); one && kind == "patch nodes/status NODE" {
				written++
			}
		}
		if written == len(l.names) {
			return nil
		}
		if !wait(ctx, 5*time.Second) {
			return fmt.Errorf("waiting for the first round of drills: %d of %d nodes: %w", written, len(l.names),
				context.Cause(ctx))
		}
	}
}

// startUp measures how large the program is, and how long it takes to start: to end where it only says its version, and
// to send its first request for the leader's Lease.
func (r *runner) startUp(ctx context.Context, l *lab, log string) error {
	program, err := os.Stat(r.o.forcefence)
	if err != nil {
		return err
	}
	r.add(Figure{Name: "size of the program", Value: round(float64(program.Size()) / 1e6), Unit: "MB"})
	var took []float64
	for range r.o.pairs {
		begun := time.Now()
		if err := exec.CommandContext(ctx, r.o.forcefence, "version").Run(); err != nil {
			return fmt.Errorf("asking for the version: %w", err)
		}
		took = append(took, time.Since(begun).Seconds())
	}
	r.add(figure("start-up, until version has ended", "s", took).atMost(startLimit))
	begun := time.Now()
	if err := l.startForcefence(ctx); err != nil {
		return err
	}
	first, err := firstOf(log, "leases")
	if err != nil {
		return err
	}
	r.add(figure("start-up, until the Lease is asked for", "s", []float64{first.Sub(begun).Seconds()}).
		atMost(startLimit))
	return nil
}

// largeNode is what real nodes have: 50 images, and four conditions beside the kubelet's own four.
func largeNode() (images []corev1.ContainerImage, conditions []corev1.NodeCondition) {
	for i := range 50 {
		repo := fmt.Sprintf("registry.example.net/team-%02d/service-%02d", i%7, i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repo, i+1), repo + ":v1.2." + strconv.Itoa(i)},
			SizeBytes: int64(i+1) << 22,
		})
	}
	now := metav1.Now()
	for _, t := range []corev1.NodeConditionType{
		"NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentContainerdRestart"} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: t, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
			Reason:  "No" + string(t),
			Message: "a node problem detector finds nothing wrong here",
		})
	}
	return images, conditions
}

// fatten gives each node what real ones have, and with it managedFields.
func (l *lab) fatten(ctx context.Context) error {
	images, conditions := largeNode()
	patch, err := json.Marshal(object{"status": object{"images": images, "conditions": conditions}})
	if err != nil {
		return err
	}
	return parallel(l.names, func(name string) error {
		_, err := l.c.Client().CoreV1().Nodes().
			Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("fattening %s: %w", name, err)
		}
		return nil
	})
}

// bind creates that many pods, spread evenly, and returns once they run.
func (l *lab) bind(ctx context.Context, count int) error {
	names := make([]int, count)
	for i := range names {
		names[i] = i
	}
	err := parallel(names, func(i int) error {
		_, err := l.floor.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Labels: map[string]string{"app": "many"}},
			Spec: corev1.PodSpec{
				NodeName:   l.names[i%len(l.names)],
				Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create pod: %w", err)
		}
		return nil
	})
	if err != nil || count == 0 {
		return err
	}
	l.r.say("%d pods are created", count)
	ctx, cancel := context.WithTimeoutCause(ctx, 2*l.patience(), fmt.Errorf("not after %s", 2*l.patience()))
	defer cancel()
	if err := cluster.Until(ctx,
		func(context.Context) (bool, error) { return len(l.c.Ledger().Running()) >= count, nil }); err != nil {
		return fmt.Errorf("waiting for %d pods to run: %w", count, err)
	}
	return nil
}

// sizes are samples in MB.
type sizes []float64

func (s sizes) of(name string) Figure {
	f := figure(name, "MB", s)
	f.Bench = "memory"
	return f
}

type residence struct{ now, peak sizes }

// resident samples a process' memory once a second, for that long.
func resident(ctx context.Context, pid int, long time.Duration) (residence, error) {
	var out residence
	for range int(long / time.Second) {
		now, peak, err := residentNow(pid)
		if err != nil {
			return out, err
		}
		out.now, out.peak = append(out.now, now), append(out.peak, peak)
		if !wait(ctx, time.Second) {
			return out, ctx.Err()
		}
	}
	return out, nil
}

// residentNow is how much memory a process has, and has had at most, in MB.
func residentNow(pid int) (now, peak float64, _ error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading a process' memory: %w", err)
	}
	now, peak = kilobytes(string(b), "VmRSS"), kilobytes(string(b), "VmHWM")
	if now == 0 || peak == 0 {
		return 0, 0, errors.New("reading a process' memory: no VmRSS or VmHWM in its status")
	}
	return now * 1024 / 1e6, peak * 1024 / 1e6, nil
}

// kilobytes is a field of Linux' /proc/PID/status; 0 if it is not there.
func kilobytes(status, field string) float64 {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// requester is who an audit log says has sent a request.
type requester struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Agent string `json:"userAgent"`
}

// event is a line of an audit log.
type event struct {
	requester
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	ObjectRef struct {
		Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	At time.Time `json:"requestReceivedTimestamp"`
}

// firstOf is when the first request about such a resource came.
func firstOf(file, resource string) (time.Time, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading audit log: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.ObjectRef.Resource == resource {
			return e.At, nil
		}
	}
	return time.Time{}, fmt.Errorf("reading audit log: nothing about %s", resource)
}

func everyRequest(requester) bool { return true }

// requestsIn counts an audit log's requests by verb and resource: those of the requesters that counts says.
func requestsIn(file string, counts func(requester) bool) (map[string]int, error) {
	out := map[string]int{}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // nothing was asked yet
	}
	if err != nil {
		return nil, fmt.Errorf("reading audit log: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || !counts(e.requester) {
			continue // half a line, still being written, or another's
		}
		what := e.Verb + " " +
			strings.Trim(path.Join(e.ObjectRef.Resource, e.ObjectRef.Subresource)+" "+e.ObjectRef.Namespace+" "+
				e.ObjectRef.Name, " ")
		if e.ObjectRef.Resource == "" {
			what = e.Verb + " " + e.URI
		}
		out[what]++
	}
	return out, lines.Err()
}
