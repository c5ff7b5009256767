package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// licences is a layer with forcefence's own licence and all licences and notices of what is linked into its programs,
// the same for all platforms. check holds each image's programs against it. The plugin is built for darwin as well, and
// has them from here.
func licences(ctx context.Context, source, tmp string) (v1.Layer, error) {
	std, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("finding Go's own library: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(std)), "\n")
	files := map[string]string{path.Join(path.Dir(linked.Folder), "LICENSE"): filepath.Join(source, "LICENSE")}
	for _, p := range append(slices.Clone(oci.Platforms), v1.Platform{OS: "darwin", Architecture: "arm64"}) {
		packages, err := packagesOf(ctx, source, p)
		if err != nil {
			return nil, fmt.Errorf("listing what is linked for %s: %w", p, err)
		}
		for _, pkg := range packages {
			if pkg.Standard {
				pkg.Module = &module{Path: linked.Std, Version: version, Dir: root}
			}
			if err := pkg.legal(files); err != nil {
				return nil, err
			}
		}
	}
	file := filepath.Join(tmp, "licences.tar")
	if err := writeLicences(file, files); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// goPackage is one of `go list`.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *module
}

type module struct {
	Path, Version, Dir string
	Main               bool
}

func packagesOf(ctx context.Context, source string, p v1.Platform) ([]goPackage, error) {
	args := []string{"list", "-deps", "-json=Dir,Standard,Module"}
	for _, program := range programs {
		if p.OS == "linux" || program == programs[0] {
			args = append(args, "./cmd/"+program)
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = source
	cmd.Env = append(append(os.Environ(), linked.Env...), "GOOS="+p.OS, "GOARCH="+p.Architecture)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said.String())
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		switch err := d.Decode(&pkg); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, pkg)
	}
}

// legal adds the licences and notices that hold for a package: those of its folder, and of those above it up to its
// module's.
func (p goPackage) legal(files map[string]string) error {
	if p.Module == nil || p.Module.Main {
		return nil
	}
	to := path.Join(linked.Folder, linked.Module{Path: p.Module.Path, Version: p.Module.Version}.Name())
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		rel, err := filepath.Rel(p.Module.Dir, dir)
		if err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("package in %s is outside of its module in %s: %w", p.Dir, p.Module.Dir, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if p.Standard && filepath.Base(dir) == "boring" {
				continue // of an object file in C, which is not linked without cgo
			}
			if e.Type().IsRegular() && linked.IsLegal(e.Name()) {
				files[path.Join(to, filepath.ToSlash(rel), e.Name())] = filepath.Join(dir, e.Name())
			}
		}
		if rel == "." {
			return nil
		}
	}
}

func writeLicences(file string, files map[string]string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	folders := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for i := range name {
			if dir := name[:i+1]; name[i] == '/' && !folders[dir] {
				folders[dir] = true
				if err := w.WriteHeader(
					&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, Format: tar.FormatPAX}); err != nil {
					return err
				}
			}
		}
		text, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := w.WriteHeader(
			&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)),
				Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return w.Close()
}

// checkLicences holds what is linked into the programs of an image against the licences that are in it.
func checkLicences(img v1.Image) error {
	have, err := oci.Files(img, "ko-app/", linked.Folder+"/")
	if err != nil {
		return err
	}
	for _, program := range programs {
		modules, err := linked.In(bytes.NewReader(have["ko-app/"+program]))
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		for _, m := range modules {
			if _, err := linked.TermsIn(have, m); err != nil {
				return fmt.Errorf("%s: %s: %w", program, m.Name(), err)
			}
		}
	}
	return nil
}
