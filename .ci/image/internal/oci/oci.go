// Package oci reads and writes archives of OCI layouts: one image of all platforms, in a tar with the same bytes each
// time.
package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Platforms are those of the image, in the order of its index.
var Platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

// Of is the image of one platform.
func Of(index v1.ImageIndex, p v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Equals(p) {
			return index.Image(m.Digest)
		}
	}
	return nil, errors.New("there is no image of it")
}

// Files are an image's regular files whose names begin with one of these, without a slash before the name.
func Files(img v1.Image, prefixes ...string) (map[string][]byte, error) {
	r := mutate.Extract(img)
	defer r.Close()
	files := map[string][]byte{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, err
		}
		name := strings.Trim(path.Clean("/"+h.Name), "/")
		if h.Typeflag == tar.TypeReg &&
			slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			if files[name], err = io.ReadAll(t); err != nil {
				return nil, err
			}
		}
	}
}

// Open reads the one index of a layout.
func Open(dir string) (v1.ImageIndex, error) {
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if n := len(manifest.Manifests); n != 1 {
		return nil, fmt.Errorf("%d images, want 1", n)
	}
	return top.ImageIndex(manifest.Manifests[0].Digest)
}

// Pack writes a folder as an archive: sorted, and without times and owners.
func Pack(dir, out string) (err error) {
	f, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), out)
		} else {
			_ = os.Remove(f.Name())
		}
	}()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(
			&tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(data)),
				Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	return errors.Join(err, w.Close())
}

// Unpack writes an archive into a folder, which need not be there.
func Unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("entry %q leads out of the archive", h.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
}
