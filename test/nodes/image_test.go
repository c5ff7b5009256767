//go:build linux

package nodes

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/test/kit"
)

func TestWriteImage(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "hello"), filepath.Join(dir, "image.tar")
	kit.Must(t, os.WriteFile(program, []byte("#!"), 0o755))
	kit.Must(t, WriteImage(file, "forcefence.test/hello:1", program))
	f, err := os.Open(file)
	kit.Must(t, err)
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		kit.Must(t, err)
		files[h.Name], err = io.ReadAll(r)
		kit.Must(t, err)
	}
	for name, data := range files {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
				t.Errorf("%s holds %x", name, got)
			}
		}
	}
	var index struct{ Manifests []descriptor }
	kit.Must(t, json.Unmarshal(files["index.json"], &index))
	if len(index.Manifests) != 1 ||
		index.Manifests[0].Annotations["io.containerd.image.name"] != "forcefence.test/hello:1" {
		t.Fatalf("index: got %+v", index)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob := func(d descriptor) []byte { return files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")] }
	kit.Must(t, json.Unmarshal(blob(index.Manifests[0]), &manifest))
	for _, d := range append(manifest.Layers, manifest.Config) {
		if len(blob(d)) != d.Size || d.Size == 0 {
			t.Errorf("%s: %d bytes, want %d", d.Digest, len(blob(d)), d.Size)
		}
	}
	var config struct{ Config struct{ Entrypoint []string } }
	kit.Must(t, json.Unmarshal(blob(manifest.Config), &config))
	if got := config.Config.Entrypoint; len(got) != 1 || got[0] != "/bin/hello" {
		t.Errorf("entrypoint: got %v", got)
	}
	if err := WriteImage(file, "forcefence.test/none:1"); err == nil {
		t.Error("an image without programs: got no error")
	}
}
