package main

import (
	"flag"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var roomNodes = flag.Int("room.nodes", 0, "nodes of TestRoomCost, with 20 pods each; 0: it is skipped")

// TestRoomCost measures what one estimate costs: the program, which reads all objects and plays all failures, as the
// leader does again and again.
func TestRoomCost(t *testing.T) {
	if *roomNodes == 0 {
		t.Skip("it measures: set -room.nodes=5000")
	}
	// Nothing but the API server acts on these objects.
	c := cluster.ForTest(t, cluster.Options{KCMArgs: []string{"--controllers=serviceaccount-controller"},
		APIServerArgs: []string{"--disable-admission-plugins=TaintNodesByCondition"}})
	config := rest.CopyConfig(c.RESTConfig())
	config.QPS, config.Burst = 2000, 2000
	core := kubernetes.NewForConfigOrDie(config).CoreV1()
	ctx := t.Context()
	var crowd errgroup.Group
	crowd.SetLimit(32)
	for i := range *roomNodes {
		crowd.Go(func() error {
			name := fmt.Sprintf("n%d", i)
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelTopologyZone: string(rune('a' + i%3))}}}
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("32"),
				"pods": resource.MustParse("110"), "memory": resource.MustParse("64Gi")}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if _, err := core.Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
				return err
			}
			for j := range 20 {
				app := fmt.Sprintf("app-%d", (i*20+j)%500)
				o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", app, i),
					Labels: map[string]string{"app": app}, OwnerReferences: []metav1.OwnerReference{{
						APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: "u", Controller: new(true)}}}}
				o.Spec.NodeName = name
				o.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.net/app:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}}}}
				if _, err := core.Pods("default").Create(ctx, o, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	kit.Must(t, crowd.Wait())
	file := filepath.Join(t.TempDir(), "config.yaml")
	kit.Must(t, os.WriteFile(file, []byte("mode: observe\n"), 0o600))
	program := kit.BuildProgram(t, "./cmd/forcefence")
	for range 3 {
		cmd := osexec.CommandContext(ctx, program, "room", "--config", file, "--kubeconfig", c.Kubeconfig())
		var out strings.Builder
		cmd.Stdout = &out
		began := time.Now()
		kit.Must(t, cmd.Start())
		peak := make(chan string, 1)
		go func() { // what the kernel keeps for later counts this process, too
			last := ""
			for status, err := procfs.NewProc(cmd.Process.Pid); err == nil; {
				now, err := status.NewStatus()
				if err != nil || now.VmHWM == 0 {
					break
				}
				last = fmt.Sprint(now.VmHWM/1e6, " MB at most")
				time.Sleep(20 * time.Millisecond)
			}
			peak <- last
		}()
		_ = cmd.Wait() // its status says whether all pods fit
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		said, _, _ := strings.Cut(out.String(), "\n")
		t.Logf("%d nodes, %d pods: %.1f s of CPU, %.1f s, %s; %s", *roomNodes, 20**roomNodes, cpu.Seconds(),
			time.Since(began).Seconds(), <-peak, said)
	}
}
