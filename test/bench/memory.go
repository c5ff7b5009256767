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
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/test/cluster"
)

const (
	memoryLimit = 80 // MB of 1e6 bytes
	quiet       = time.Minute
	sampled     = time.Minute
)

// audit has the API server write down every request of forcefence's user, when it arrives, and nobody else's.
const audit = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  users: [` + fenceUser + `]
- level: None
`

// memory measures a large cluster in which nothing happens: what forcefence keeps in memory, and what it asks of the API server.
// Nodes are simulated kubelets with a kubelet's own heartbeats (a Lease every 10 s each): a cache that nothing changes would
// flatter. Pods are bound to them past the scheduler.
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
	if err := l.startForcefence(ctx); err != nil {
		return err
	}
	var requests []float64
	for _, count := range slices.Compact([]int{0, pods}) {
		if err := l.bind(ctx, count); err != nil {
			return err
		}
		r.say("%d pods run", count)
		// What forcefence does as it begins, and the first round in which it asks every machine, are over by then.
		if !wait(ctx, quiet) {
			return ctx.Err()
		}
		before, err := requestsIn(log, everyRequest)
		if err != nil {
			return err
		}
		begun := time.Now()
		rss, err := resident(ctx, l.fence.PID(), sampled)
		if err != nil {
			return err
		}
		after, err := requestsIn(log, everyRequest)
		if err != nil {
			return err
		}
		n := 0
		for _, what := range slices.Sorted(maps.Keys(after)) {
			if d := after[what] - before[what]; d > 0 {
				r.say("%d pods: %d x %s", count, d, what)
				n += d
			}
		}
		perMinute := float64(n) / time.Since(begun).Minutes()
		requests = append(requests, perMinute)
		r.add(Figure{Bench: "idle", Name: fmt.Sprintf("API requests a minute, 1000 nodes, %d pods", count), Value: round(perMinute), Unit: "1/min"})
		r.add(rss.now.of(fmt.Sprintf("VmRSS, 1000 nodes, %d pods", count)).atMost(memoryLimit))
		r.add(rss.peak.of(fmt.Sprintf("VmHWM, 1000 nodes, %d pods", count)))
	}
	if len(requests) == 2 {
		r.add(Figure{Bench: "idle", Name: fmt.Sprintf("API requests a minute that %d pods add", pods), Value: round(requests[1] - requests[0]), Unit: "1/min"})
	}
	return nil
}

// fatten gives each node what real ones have: 50 images and 8 conditions, and with them managedFields.
func (l *lab) fatten(ctx context.Context) error {
	var images []corev1.ContainerImage
	for i := range 50 {
		repo := fmt.Sprintf("registry.example.net/team-%02d/service-%02d", i%7, i)
		images = append(images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", repo, i+1), repo + ":v1.2." + strconv.Itoa(i)},
			SizeBytes: int64(i+1) << 22,
		})
	}
	now := metav1.Now()
	var conditions []corev1.NodeCondition // beside the kubelet's four
	for _, t := range []corev1.NodeConditionType{"NetworkUnavailable", "KernelDeadlock", "ReadonlyFilesystem", "FrequentContainerdRestart"} {
		conditions = append(conditions, corev1.NodeCondition{
			Type: t, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "No" + string(t),
			Message: "a node problem detector finds nothing wrong here",
		})
	}
	patch, err := json.Marshal(object{"status": object{"images": images, "conditions": conditions}})
	if err != nil {
		return err
	}
	return parallel(l.names, func(name string) error {
		_, err := l.c.Client().CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
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
				NodeName: l.names[i%len(l.names)], Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}},
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
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not after %s", 2*patience))
	defer cancel()
	if err := cluster.Until(ctx, func(context.Context) (bool, error) { return len(l.c.Ledger().Running()) >= count, nil }); err != nil {
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
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return out, fmt.Errorf("reading a process' memory: %w", err)
		}
		now, peak := kilobytes(string(b), "VmRSS"), kilobytes(string(b), "VmHWM")
		if now == 0 || peak == 0 {
			return out, errors.New("reading a process' memory: no VmRSS or VmHWM in its status")
		}
		out.now, out.peak = append(out.now, now*1024/1e6), append(out.peak, peak*1024/1e6)
		if !wait(ctx, time.Second) {
			return out, ctx.Err()
		}
	}
	return out, nil
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
		var e struct {
			requester
			Verb      string `json:"verb"`
			URI       string `json:"requestURI"`
			ObjectRef struct {
				Resource, Namespace, Name string
			} `json:"objectRef"`
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil || !counts(e.requester) {
			continue // half a line, still being written, or another's
		}
		what := e.Verb + " " + strings.Trim(e.ObjectRef.Resource+" "+e.ObjectRef.Namespace+" "+e.ObjectRef.Name, " ")
		if e.ObjectRef.Resource == "" {
			what = e.Verb + " " + e.URI
		}
		out[what]++
	}
	return out, lines.Err()
}
