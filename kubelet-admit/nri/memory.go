package nri

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// MemoryFile is the file in Config.DataDir with what the hook remembers beyond a boot.
const MemoryFile = "exempt.json"

const (
	memoryPods  = 1000    // at most: a kubelet runs 110 by default, and few of those are exempt
	memoryUID   = 64      // bytes of one, at most: the API server gives 36
	memoryBytes = 1 << 17 // more than that many take
)

// memory is what outlives a boot: which pods were exempt. Without it a node that cannot read the API server after a
// boot could start neither its network nor its storage. Package admit explains why that is safe. Both plugins write it,
// each after its own lists: the last rename wins, and both write the API server's state. It needs no checksum. A rename
// leaves a whole file, an incomplete file does not parse, and a changed byte makes a UID that no pod has.
type memory struct {
	Node     string   `json:"node"`
	TaintKey string   `json:"taintKey"`
	Exempt   []string `json:"exempt"` // UIDs, sorted
}

// hasLastingExemption reports whether a pod is exempt for as long as its UID exists, by what no client can remove from
// it. A pod's annotations in the API server can change, and a toleration of NoExecute can be given an end.
func hasLastingExemption(pod *corev1.Pod, key string) bool {
	firm := corev1.Pod{}
	firm.OwnerReferences = pod.OwnerReferences
	firm.Spec.Tolerations = slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(t corev1.Toleration) bool {
		return t.Effect == corev1.TaintEffectNoExecute
	})
	return taint.ExemptionOf(&firm, key) != taint.NotExempt
}

// readMemory returns the UIDs that were written for this node and this mark, of any node for a hook without a
// configuration. Any other content of the file is an error.
func readMemory(c Config) ([]string, error) {
	file := filepath.Join(c.DataDir, MemoryFile)
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, memoryBytes+1))
	if err != nil {
		return nil, err
	}
	m, err := parseMemory(text)
	if err == nil && c.NodeName != "" && (m.Node != c.NodeName || m.TaintKey != c.TaintKey) {
		err = fmt.Errorf("it belongs to node %q and mark %q", m.Node, m.TaintKey)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return m.Exempt, nil
}

func parseMemory(text []byte) (memory, error) {
	var m memory
	if len(text) > memoryBytes {
		return m, fmt.Errorf("longer than %d bytes", memoryBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return memory{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return memory{}, errors.New("data follows its end")
	}
	if len(m.Exempt) > memoryPods {
		return memory{}, fmt.Errorf("more than %d pods", memoryPods)
	}
	for _, uid := range m.Exempt {
		if uid == "" || len(uid) > memoryUID { // a request may come without one
			return memory{}, fmt.Errorf("%.80q is not a UID", uid)
		}
	}
	return m, nil
}

// writeMemory replaces the file. It syncs the file before the rename, because the file is needed after a power cut.
// Each plugin has a new file of its own.
func writeMemory(c Config, index string, exempt []string) (err error) {
	text, err := json.Marshal(memory{c.NodeName, c.TaintKey, exempt[:min(len(exempt), memoryPods)]})
	if err != nil {
		return err
	}
	file := filepath.Join(c.DataDir, MemoryFile)
	next := file + "." + index
	if err := writeSynced(next, text); err != nil {
		return err
	}
	if err := os.Rename(next, file); err != nil {
		return err
	}
	dir, err := os.Open(c.DataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func writeSynced(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
