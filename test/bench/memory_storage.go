package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/test/cluster"
)

// What the storage system of bench memory has.
const (
	memoryVolumes  = 2000
	memoryReplicas = 6000
)

// askStorage has forcefence, which runs, ask a storage system from here on, for a policy and a drain guard, and returns
// once the guard protects the storage's pod on every node.
func (l *lab) askStorage(ctx context.Context) error {
	p, err := newPool(ctx, l, "Replica")
	if err != nil {
		return err
	}
	numbers := make([]int, memoryVolumes+memoryReplicas)
	for i := range numbers {
		numbers[i] = i
	}
	volume := func(i int) string { return fmt.Sprintf("pv-%05d", i%memoryVolumes) }
	err = parallel(numbers, func(i int) error {
		if i < memoryVolumes {
			return p.says(ctx, "Volume", volume(i), "online")
		}
		i -= memoryVolumes
		of := schema.GroupVersionResource{Group: poolGroup, Version: "v1", Resource: "replicas"}
		_, err := p.client.Resource(of).Create(ctx, &unstructured.Unstructured{Object: object{
			"apiVersion": poolGroup + "/v1", "kind": "Replica",
			"metadata": object{"name": fmt.Sprintf("replica-%05d", i)}, "health": "online",
			"node": l.names[(i+i/memoryVolumes)%len(l.names)], "volume": volume(i), "evict": false,
		}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("making the storage's objects: %w", err)
	}
	err = parallel(l.names, func(node string) error {
		_, err := l.floor.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "engine-" + node,
				Labels: map[string]string{"app": "engine", "engine": node}},
			Spec: corev1.PodSpec{NodeName: node,
				Containers: []corev1.Container{{Name: "main", Image: "sim.forcefence.io/app:1"}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("making the storage's pods: %w", err)
	}
	const health = `{"online": true, "offline": false}[object.health]`
	l.top = fmt.Sprintf(`storage:
- name: pool
  drivers: [%s]
  namespace: %s
  pods: app=engine
  node: {resource: nodes.v1.%[3]s, name: object.metadata.name, healthy: %[4]q}
  volume: {resource: volumes.v1.%[3]s, find: pv, key: object.metadata.name, healthy: %[4]q}
  replica:
    resource: replicas.v1.%[3]s
    node: object.node
    volume: object.volume
    healthy: object.health == "online"
    running: "true"
    started: "true"
    evicting: object.evict
    wanted: object.evict
    evict: '{"evict": true}'
    keep: '{"evict": false}'
policies:
- {name: fenced, preset: storageos, storage: pool, withoutProof: storage-fences}
drain:
- {name: pool, storage: pool, policy: block-if-contains-last-replica, identity: [engine]}
`, cluster.CSIDriver, namespace, poolGroup, health)
	config, err := l.config()
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.file("config.yaml.new"), []byte(config), 0o644); err != nil {
		return err
	}
	if err := os.Rename(l.file("config.yaml.new"), l.file("config.yaml")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("not after %s", 2*patience))
	defer cancel()
	have := 0
	err = cluster.Until(ctx, func(ctx context.Context) (bool, error) {
		list, err := l.floor.PolicyV1().PodDisruptionBudgets(namespace).
			List(ctx, metav1.ListOptions{LabelSelector: taint.DrainGuardLabel})
		if err == nil {
			have = len(list.Items)
		}
		return have == len(l.names), nil // the API server may be busy
	})
	if err != nil {
		return fmt.Errorf("waiting for the guard of %d nodes, have %d: %w", len(l.names), have, err)
	}
	return nil
}
