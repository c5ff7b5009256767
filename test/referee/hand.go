package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/forcefence/forcefence/test/cluster"
)

// hand sets the out-of-service taint on each node that is not Ready, and removes it once the node is Ready: what the
// documentation of Kubernetes has a person do. But it does not do what the person must do before, which is to make sure
// that the machine is off. It looks once a second, until ctx ends.
func hand(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		if err := handOnce(ctx, client); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if !cluster.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

func handOnce(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range nodes.Items {
		if n := &nodes.Items[i]; changeByHand(n) {
			_, err := client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// changeByHand changes the out-of-service taint of a Node and reports whether it did.
func changeByHand(n *corev1.Node) bool {
	isOutOfService := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }
	switch ready, set := cluster.IsReady(n), slices.ContainsFunc(n.Spec.Taints, isOutOfService); {
	case ready && set:
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isOutOfService)
	case !ready && !set:
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown",
			Effect: corev1.TaintEffectNoExecute})
	default:
		return false
	}
	return true
}
