//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
)

// Media types of the OCI image specification, v1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// WriteImage writes an OCI image as a tar that `ctr images import` reads: static programs in /bin, the first of them
// the entrypoint, and nothing else but an empty /tmp. name is complete, with its registry and tag, such as
// forcefence.test/writer:1. Pods use it with imagePullPolicy Never or IfNotPresent.
func WriteImage(file, name string, programs ...string) error {
	if err := writeImage(file, name, programs); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	return nil
}

func writeImage(file, name string, programs []string) error {
	if len(programs) == 0 {
		return fmt.Errorf("no programs")
	}
	layer, err := writeLayer(programs)
	if err != nil {
		return err
	}
	blobs := map[string][]byte{}
	add := func(media string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		id := hex.EncodeToString(sum[:])
		blobs["blobs/sha256/"+id] = data
		return descriptor{MediaType: media, Digest: "sha256:" + id, Size: len(data)}
	}
	addJSON := func(media string, v any) (descriptor, error) {
		data, err := json.Marshal(v)
		return add(media, data), err
	}
	layerDesc := add(mediaLayer, layer)
	config, err := addJSON(mediaConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/bin/" + filepath.Base(programs[0])},
			"Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := addJSON(mediaManifest, map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{layerDesc},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(
		map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	blobs["index.json"], blobs["oci-layout"] = index, []byte(`{"imageLayoutVersion":"1.0.0"}`)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range blobs {
		if err := tarFile(w, name, 0o644, data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func writeLayer(programs []string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for dir, mode := range map[string]int64{"bin/": 0o755, "tmp/": 0o1777} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	for _, program := range programs {
		data, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		if err := tarFile(w, path.Join("bin", filepath.Base(program)), 0o755, data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func tarFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(
		&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
