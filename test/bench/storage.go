package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/forcefence/forcefence/taint/drainguard/storage"
)

const (
	storageNodes     = 100
	storageVolumes   = 2000
	storageCopies    = 3
	storageInputMax  = 50 // milliseconds
	storageArg       = "hold-storage"
	storageNamespace = "longhorn-system"
)

// held is what the holder says, each time in milliseconds.
type held struct {
	Inputs, Changes []float64 // of one node; of one object that changed
	Before, After   float64   // MB resident
	Replicas, Asked int       // that one node's input holds; volumes that were asked for
}

// storageState measures a storage system's state: what a decision about one node takes from it, what one change costs,
// and what it holds. It is in a process of its own, whose memory holds nothing else.
func storageState(ctx context.Context, r *runner) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, storageArg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running %s: %w", storageArg, err)
	}
	var h held
	if err := json.Unmarshal(out, &h); err != nil {
		return fmt.Errorf("reading what %s said: %w", storageArg, err)
	}
	size := fmt.Sprintf("%d volumes, %d replicas, %d nodes", storageVolumes, storageVolumes*storageCopies, storageNodes)
	r.add(figure(
		fmt.Sprintf("one node's input: its health, %d replicas, %d volumes and their replicas", h.Replicas, h.Asked),
		"ms", h.Inputs).atMost(storageInputMax))
	r.add(figure("one replica that changed", "ms", h.Changes))
	r.add(figure("VmRSS with "+size, "MB", []float64{h.After}).above([]float64{h.Before}))
	return drainPass(r)
}

// holdStorage is the holder: it feeds a state as a watch would, one object after the other, and keeps none of them.
func holdStorage() error {
	preset, _ := storage.PresetOf("longhorn")
	a, bad := storage.CompileAdapter("longhorn", preset.Spec)
	if len(bad) > 0 {
		return fmt.Errorf("compiling the preset: %v", bad)
	}
	s := storage.NewState(a)
	for _, k := range storage.Kinds {
		s.Replace(k, nil)
	}
	var h held
	var err error
	if h.Before, err = holding(); err != nil {
		return err
	}
	for i := range storageNodes {
		s.Put(storage.Nodes, storedNode(i))
	}
	for i := range storageVolumes {
		s.Put(storage.Volumes, stored(fmt.Sprintf("pvc-%d", i), `{"status": {"robustness": "healthy"}}`))
		for c := range storageCopies {
			s.Put(storage.Replicas, replica(i, c, "running"))
		}
	}
	if h.After, err = holding(); err != nil {
		return err
	}
	for i := range storageNodes {
		name := nodeName(i)
		begun := time.Now()
		healthy := s.NodeHealth(name).Healthy
		on := s.ReplicasOn(name)
		for _, one := range on {
			healthy = healthy &&
				s.VolumeHealth(storage.Volume{Driver: "driver.longhorn.io", Handle: one.Volume}).Healthy &&
				len(s.ReplicasOf(one.Volume)) == storageCopies
		}
		h.Inputs = append(h.Inputs, ms(time.Since(begun)))
		h.Replicas, h.Asked = len(on), len(on)
		if !healthy || len(on) == 0 {
			return fmt.Errorf("node %s: not all is healthy, of %d replicas", name, len(on))
		}
	}
	for i := range storageVolumes {
		begun := time.Now()
		if changed := s.Put(storage.Replicas, replica(i, 0, "stopped")); len(changed) == 0 {
			return fmt.Errorf("replica %d changed without a report", i)
		}
		h.Changes = append(h.Changes, ms(time.Since(begun)))
	}
	return json.NewEncoder(os.Stdout).Encode(h)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// storedNode is what Longhorn says of a node.
func storedNode(i int) *unstructured.Unstructured {
	return stored(nodeName(i), fmt.Sprintf(`{
		"spec": {"evictionRequested": false, "disks": {"d": {"evictionRequested": false, "path": "/var/lib/longhorn"}}},
		"status": {"conditions": [{"type": "Ready", "status": "True", "message": "Node %s is ready"}],
			"diskStatus": {"d": {"diskUUID": "u-%d"}}}}`, nodeName(i), i))
}

// replica is one of a volume's, on a node of its own.
func replica(volume, n int, state string) *unstructured.Unstructured {
	return replicaAmong(storageNodes, volume, n, state)
}

// replicaAmong is that on one of so many nodes.
func replicaAmong(nodes, volume, n int, state string) *unstructured.Unstructured {
	node := (volume + n*37) % nodes
	return stored(fmt.Sprintf("pvc-%d-r-%d", volume, n),
		fmt.Sprintf(`{"spec": {"volumeName": "pvc-%d", "nodeID": "%s", "diskID": "u-%d", "desireState": "%s",
		"evictionRequested": false, "healthyAt": "2026-01-01T00:00:00Z", "failedAt": "",
		"dataDirectoryName": "pvc-%d-0123abcd", "diskPath": "/var/lib/longhorn", "engineName": "pvc-%d-e-0",
		"image": "longhornio/longhorn-engine:v1.12.0", "volumeSize": "10737418240", "active": true},
		"status": {"currentState": "%s", "instanceManagerName": "instance-manager-0123456789abcdef",
			"ip": "10.42.0.17", "port": 10000, "started": true}}`,
			volume, nodeName(node), node, state, volume, volume, state))
}

// stored is an object as an API server's answer decodes to it.
func stored(name, content string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(content), &o.Object); err != nil {
		panic(err) // the text is above
	}
	o.SetNamespace(storageNamespace)
	o.SetName(name)
	o.SetUID("00000000-0000-0000-0000-000000000000")
	o.SetResourceVersion("123456")
	return o
}

// holding is what this process holds, in MB of 1e6 bytes, after the collector has given back what nothing holds.
func holding() (float64, error) {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading this process' memory: %w", err)
	}
	return kilobytes(string(b), "VmRSS") * 1024 / 1e6, nil
}
