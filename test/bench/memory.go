package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	quiet   = time.Minute
	sampled = time.Minute
)

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

type residence struct{ now, peak []float64 }

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
