//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

// Image writes an image as a tar that `ctr images import` reads, in the form of `docker save`: a static program in
// /bin, which is the entrypoint, and nothing else but an empty /tmp. The name is complete, with its registry and tag,
// such as forcefence.test/probe:1. Pods use it with imagePullPolicy Never or IfNotPresent. The file goes with the test.
func Image(t testing.TB, name, program string) (file string) {
	t.Helper()
	data, err := os.ReadFile(program)
	kit.Must(t, err)
	inside := "bin/" + filepath.Base(program)
	layer, errLayer := archive(entry{"bin/", 0o755, nil}, entry{"tmp/", 0o1777, nil}, entry{inside, 0o755, data})
	config, errConfig := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + inside}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest, errManifest := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	image, err := archive(entry{"config.json", 0o644, config}, entry{"layer.tar", 0o644, layer},
		entry{"manifest.json", 0o644, manifest})
	kit.Must(t, errors.Join(errLayer, errConfig, errManifest, err))
	file = filepath.Join(t.TempDir(), "image.tar")
	kit.Must(t, os.WriteFile(file, image, 0o644))
	return file
}

// entry is a file of an archive, or a folder, whose name ends with a slash.
type entry struct {
	name string
	mode int64
	data []byte
}

func archive(entries ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
