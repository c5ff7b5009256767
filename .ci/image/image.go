package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/ko/pkg/build"
)

// programs are what the image holds, in /ko-app. The last one is its entrypoint.
var programs = []string{"forcefence-node", "forcefence"}

// buildFlags are those of all programs: a clone without Git's tags is the same sources, so Go must not look for them.
var buildFlags = []string{"-trimpath", "-buildvcs=false"}

func (b *builder) ldflags() string {
	return "-s -w -X github.com/forcefence/forcefence/cmd/internal/version.built=" + b.version
}

// image is one image of all platforms.
type image struct {
	suffix string // of its tag and files: "" or -agents
	index  v1.ImageIndex
	digest v1.Hash
	sboms  []string // files: one for each program and platform
}

// writeImages builds the images, and writes their archives and SBOMs.
func (b *builder) writeImages(ctx context.Context) ([]*image, error) {
	legal := filepath.Join(b.tmp, "legal")
	var err error
	if b.licences, err = collectLicences(ctx, filepath.Join(legal, legalFolder)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	images := []*image{{}}
	if b.agents {
		images = append(images, &image{suffix: "-agents"})
		if _, err := output(ctx, ".ci/image/agents.sh", b.tmp, b.agentsSources); err != nil {
			return nil, fmt.Errorf("unpack Debian's packages: %w", err)
		}
	}
	for _, img := range images {
		if err := b.build(ctx, img, legal); err != nil {
			return nil, fmt.Errorf("build image%s: %w", img.suffix, err)
		}
		file := b.file("forcefence", img.suffix) + ".oci.tar"
		layers, err := layout.Write(filepath.Join(b.tmp, "layout"+img.suffix), empty.Index)
		if err == nil {
			err = layers.AppendIndex(img.index)
		}
		if err == nil {
			err = pack(file, string(layers))
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", file, err)
		}
		fmt.Printf("%s: %v, %s\n", file, platforms, img.digest)
	}
	return images, nil
}

// file is the beginning of a file's name, with the version in a release.
func (b *builder) file(name string, suffix ...string) string {
	if b.release {
		name += "-" + b.version
	}
	return filepath.Join(b.out, name+strings.Join(suffix, ""))
}

// build makes an image. ko puts one program into an image, so the first one's image is the base of the second one's.
func (b *builder) build(ctx context.Context, made *image, legal string) (err error) {
	made.index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		folders, env := []string{legal}, []string(nil)
		if made.suffix != "" { // PATH finds the agents, and what they call; ko adds its own folder
			folders = []string{filepath.Join(b.tmp, "agents-"+p.Architecture), legal}
			env = []string{"PATH=/usr/sbin:/usr/bin"}
		}
		img, err := base(p, folders)
		for _, program := range programs {
			if err == nil {
				img, err = mutate.Config(img, v1.Config{Env: env}) // ko adds to its base's
			}
			if err == nil {
				img, err = b.runKo(ctx, img, program, p)
			}
			id := "-" + p.OS + "-" + p.Architecture
			sbom := b.file(program, made.suffix, id, ".spdx.json")
			if err == nil {
				err = b.completeSBOM(filepath.Join(b.tmp, program+id+".spdx.json"), sbom, b.program(program, p))
			}
			if err != nil {
				return fmt.Errorf("%s for %s: %w", program, p, err)
			}
			made.sboms = append(made.sboms, sbom)
		}
		made.index = mutate.AppendManifests(made.index,
			mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
	}
	made.digest, err = made.index.Digest()
	return err
}

// base is an image of these folders, a layer for each.
func base(p v1.Platform, folders []string) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}}})
	for _, dir := range folders {
		var layer v1.Layer
		if err == nil {
			err = pack(dir+".tar", dir)
		}
		if err == nil {
			layer, err = tarball.LayerFromFile(dir+".tar", tarball.WithMediaType(types.OCILayer),
				tarball.WithCompressedCaching)
		}
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
	}
	return img, err
}

// runKo adds a program to a base. ko notes the base's name, which is no address: there is no registry.
func (b *builder) runKo(ctx context.Context, base v1.Image, program string, p v1.Platform) (v1.Image, error) {
	main, created := project+"/cmd/"+program, v1.Time{Time: b.created}
	ko, err := build.NewGo(ctx, ".",
		build.WithBaseImages(func(context.Context, string) (name.Reference, build.Result, error) {
			ref, err := name.ParseReference("localhost/forcefence-base")
			return ref, base, err
		}),
		build.WithConfig(map[string]build.Config{main: {Flags: buildFlags, Ldflags: []string{b.ldflags()}}}),
		build.WithPlatforms(p.String()), build.WithCreationTime(created), build.WithKoDataCreationTime(created),
		build.WithUser("65532:65532"), build.WithSPDX(b.version), build.WithSBOMDir(b.tmp),
		build.WithLabel("org.opencontainers.image.title", "forcefence"),
		build.WithLabel("org.opencontainers.image.licenses", "Apache-2.0"),
		build.WithLabel("org.opencontainers.image.version", b.version),
		build.WithLabel("org.opencontainers.image.revision", b.revision))
	if err != nil {
		return nil, err
	}
	result, err := ko.Build(ctx, build.StrictScheme+main)
	if err != nil {
		return nil, err
	}
	return result.(v1.Image), nil // of one platform
}

// program is the file that ko built.
func (b *builder) program(name string, p v1.Platform) string {
	return filepath.Join(b.tmp, "ko/bin", project, "cmd", name, p.String(), "out")
}

func pack(file, dir string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(packTo(f, dir), f.Close())
}

// packGz is pack for a .tar.gz.
func packGz(file, dir string) error {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	return errors.Join(packTo(z, dir), z.Close(), os.WriteFile(file, out.Bytes(), 0o644))
}

// packTo writes a folder as a tar: sorted, all root's, without times, and with no program that gives its user other
// rights. So the same files give the same bytes.
func packTo(to io.Writer, dir string) error {
	w, from := tar.NewWriter(to), os.DirFS(dir)
	err := fs.WalkDir(from, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		h, content := &tar.Header{Name: file, Mode: 0o755, Format: tar.FormatPAX}, []byte(nil)
		switch mode := info.Mode(); {
		case mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, file+"/"
			if file == "tmp" || file == "var/tmp" {
				h.Mode = 0o1777
			}
		case mode&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			h.Linkname, err = fs.ReadLink(from, file)
		case mode.IsRegular():
			content, err = fs.ReadFile(from, file)
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
			if mode&0o111 == 0 {
				h.Mode = 0o644
			}
		default:
			err = fmt.Errorf("%s is a %s", file, mode.Type())
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	return errors.Join(err, w.Close())
}
