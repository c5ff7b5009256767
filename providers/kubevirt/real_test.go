package kubevirt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/kubevirt"
	"github.com/forcefence/forcefence/providers/providertest"
	"github.com/forcefence/forcefence/test/cluster"
)

// kubevirtCRD is a definition with the names of KubeVirt's, without its schema.
const kubevirtCRD = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"%[1]ss.kubevirt.io"},"spec":{"group":"kubevirt.io","scope":"Namespaced",
"names":{"plural":"%[1]ss","singular":"%[1]s","kind":%[2]q},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// roles are the README's objects for the account.
var roles = regexp.MustCompile("(?s)```yaml test=\\S+\n(apiVersion: v1\nkind: ServiceAccount.*?)```")

// TestRealAPIServer asks a real API server with KubeVirt's resources, by an account that has the README's rights alone.
// The kubelet's part, and KubeVirt's, is the test's.
func TestRealAPIServer(t *testing.T) {
	c := cluster.ForTest(t, cluster.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, args...)
		if err != nil {
			t.Fatalf("kubectl %q: %v\n%s", args, err, out)
		}
		return out
	}
	apply := func(text string) {
		t.Helper()
		file := filepath.Join(dir, "object")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		kubectl("apply", "-f", file)
	}
	readme, err := os.ReadFile("README.md")
	must(t, err)
	rights := roles.FindSubmatch(readme)
	if rights == nil {
		t.Fatal("the README has no roles")
	}
	kubectl("create", "namespace", "tenant-a")
	apply(string(rights[1]))
	for plural, kind := range map[string]string{
		"virtualmachine": "VirtualMachine", "virtualmachineinstance": "VirtualMachineInstance"} {
		apply(fmt.Sprintf(kubevirtCRD, plural, kind))
		kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/"+plural+"s.kubevirt.io")
	}

	api := c.Client()
	node, err := api.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "h1"}},
		metav1.CreateOptions{})
	must(t, err)
	// Patches, because the controllers write these objects as well.
	heartbeat := time.Now().UTC().Format(time.RFC3339)
	_, err = api.CoreV1().Nodes().PatchStatus(ctx, "h1", []byte(`{"status":{"nodeInfo":{"bootID":"boot-1"},`+
		`"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"`+heartbeat+`"}]}}`))
	must(t, err)
	renewed := metav1.NowMicro()
	lease, err := api.CoordinationV1().Leases("kube-node-lease").Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "h1"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, RenewTime: &renewed},
	}, metav1.CreateOptions{})
	must(t, err)
	vmi := func(status string) {
		apply(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance",
			"metadata":{"name":"guest-1","namespace":"tenant-a"},
			"spec":{"domain":{"firmware":{"uuid":"` + aUUID + `"}}},"status":` + status + `}`)
	}
	vmi(`{"phase":"Scheduling"}`)
	uid := kubectl("-n", "tenant-a", "get", "virtualmachineinstance", "guest-1", "-o", "jsonpath={.metadata.uid}")
	pod := launcher("1", "h1")
	pod.UID, pod.Labels["kubevirt.io/created-by"] = "", uid
	status := pod.Status
	pod.Spec.InitContainers[0].Image, pod.Spec.Containers[0].Image = "image", "image"
	pods := api.CoreV1().Pods("tenant-a")
	report := func(status corev1.PodStatus) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"status": status})
		must(t, err)
		_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		must(t, err)
	}
	pod, err = pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	pod.Status = status
	report(status)
	vmi(`{"phase":"Running","nodeName":"h1","activePods":{"` + string(pod.UID) + `":"h1"}}`)

	file := filepath.Join(dir, "kubeconfig")
	must(t, c.WriteKubeconfig(file, "system:serviceaccount:tenant-a:forcefence"))
	p := kubevirt.New(kubevirt.Config{Kubeconfig: file, Namespace: "tenant-a", Hosts: []string{"h1"}},
		providers.Options{Name: "guests", Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { must(t, p.Close(context.Background())) })
	expect := func(want providers.PowerState, raw string) {
		t.Helper()
		a := providers.Ask(ctx, p, "test", target, providers.Now)
		if a.State != want || a.Raw != raw || a.Err != nil || a.SystemUUID != aUUID {
			t.Errorf("got %s (%q) of %s, %v; want %s (%q)", a.State, a.Raw, a.SystemUUID, a.Err, want, raw)
		}
	}
	expect(providers.PowerOn, "Running on h1")
	if a := providers.AskPlace(ctx, p, "h1", target, providers.Now); a.Err != nil || a.Absent {
		t.Errorf("on h1: got absent %t, %v; want it there", a.Absent, a.Err)
	}
	// The right to stop is there, and KubeVirt's API server is not.
	err = p.PowerOff(ctx, target, providertest.AllowSend)
	if !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("PowerOff: got %v, want %v", err, providers.ErrNotFound)
	}

	endPod(pod, corev1.PodSucceeded)
	report(pod.Status)
	kubevirt.SetTiming(p, 200*time.Millisecond, 10*time.Millisecond)
	expect(providers.PowerUnknown, "Running, its launcher pods ended, but h1 has not renewed its Lease yet")
	kubevirt.SetTiming(p, time.Minute, 10*time.Millisecond)
	beating, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for beating.Err() == nil {
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			l, err := api.CoordinationV1().Leases("kube-node-lease").Update(beating, lease, metav1.UpdateOptions{})
			if err == nil {
				lease = l
			}
		}
	}()
	expect(providers.PowerOff, "launcher pods ended: Succeeded on h1")
	stop()
	<-done

	must(t, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	expect(providers.PowerUnknown, "Running, but a launcher pod that it names is gone")
}
