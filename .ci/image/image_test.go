package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-licenses/v2/licenses"
	"github.com/google/licenseclassifier/v2/assets"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// run runs a command of a shell, with args as $1 and so on.
func run(t *testing.T, command string, args ...string) error {
	t.Helper()
	out, err := output(t.Context(), "sh", append([]string{"-ec", command, "sh"}, args...)...)
	t.Logf("%s %q: %s %v", command, args, out, err)
	return err
}

// openArchive returns the one image of an archive, whose name is in a variable, and where it is unpacked.
func openArchive(t *testing.T, variable string) (v1.ImageIndex, string) {
	t.Helper()
	archive := os.Getenv(variable)
	if archive == "" {
		t.Skip("needs an image's archive: set " + variable + ", as make image-test does")
	}
	dir := t.TempDir()
	if err := run(t, `tar -xf "$1" -C "$2"`, archive, dir); err != nil {
		t.Fatal(err)
	}
	top := must(layout.ImageIndexFromPath(dir))
	list := must(top.IndexManifest()).Manifests
	if len(list) != 1 {
		t.Fatalf("%s lists %d images, want 1", archive, len(list))
	}
	return must(top.ImageIndex(list[0].Digest)), dir
}

// images are those of an index by platform, such as linux/amd64.
func images(index v1.ImageIndex) map[string]v1.Image {
	all := map[string]v1.Image{}
	for _, m := range must(index.IndexManifest()).Manifests {
		all[m.Platform.String()] = must(index.Image(m.Digest))
	}
	return all
}

// eachFile calls look for all files of an image.
func eachFile(img v1.Image, look func(name string, h *tar.Header, content []byte)) {
	r := mutate.Extract(img)
	defer r.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		look(strings.Trim(must(h, err).Name, "/"), h, must(io.ReadAll(t)))
	}
}

// TestImage compares the images with what the manifests rely on, and looks for what its user could gain rights by.
func TestImage(t *testing.T) {
	for _, variable := range []string{"FORCEFENCE_IMAGE", "FORCEFENCE_IMAGE_AGENTS"} {
		t.Run(variable, func(t *testing.T) {
			index, _ := openArchive(t, variable)
			all := images(index)
			for _, p := range platforms {
				c := must(all[p.String()].ConfigFile())
				if got := c.Config; !slices.Equal(got.Entrypoint, []string{"/ko-app/forcefence"}) || c.OS != p.OS ||
					c.Architecture != p.Architecture || got.User != "65532:65532" ||
					got.Labels["org.opencontainers.image.version"] == "" {
					t.Errorf("%s: configuration %+v", p, c)
				}
				machine := map[string]byte{"amd64": 62, "arm64": 183}[p.Architecture] // e_machine of an ELF file
				found := map[string]bool{}
				eachFile(all[p.String()], func(name string, h *tar.Header, content []byte) {
					found[name] = true
					elf, own := bytes.HasPrefix(content, []byte("\x7fELF")), strings.HasPrefix(name, "ko-app/")
					if elf && content[18] != machine || own && (!elf || h.Mode&0o111 != 0o111) {
						t.Errorf("%s: %s (mode %o) is no program for it", p, name, h.Mode)
					}
					sticky := h.Typeflag == tar.TypeDir && h.Mode&0o1000 != 0
					if h.Uid != 0 || h.Gid != 0 || h.Mode&0o6000 != 0 || !strings.Contains("025", string(h.Typeflag)) ||
						h.Mode&0o022 != 0 && !sticky && h.Typeflag != tar.TypeSymlink {
						t.Errorf("%s: %s has type %c, mode %o, owner %d:%d", p, name, h.Typeflag, h.Mode, h.Uid, h.Gid)
					}
				})
				for _, name := range []string{"ko-app/forcefence", "ko-app/forcefence-node",
					legalFolder + "/LICENSE"} {
					if !found[name] {
						t.Errorf("%s: %s is missing", p, name)
					}
				}
			}
		})
	}
}

// TestLicences: a module without a licence is refused, and so is one under a licence that is not allowed.
func TestLicences(t *testing.T) {
	text := func(name string) string { return string(must(assets.ReadLicenseFile("License/" + name))) }
	mit, bsd, gpl := text("MIT/pristine.txt"), text("BSD-3-Clause/pristine.txt"), text("GPL-2.0/license.txt")
	const psx = "kernel.org/pub/linux/libs/security/libcap/psx"
	classifier := must(licenses.NewClassifier())
	for _, tt := range []struct{ name, module, text, err string }{
		{name: "MIT", text: mit},
		{name: "GPL", text: gpl, err: "is under GPL-2.0"},
		{name: "MIT and GPL", text: mit + gpl, err: "is under GPL-2.0"},
		{name: "our choice", module: psx, text: bsd + gpl},
		{name: "no choice of ours", text: bsd + gpl, err: "is under GPL-2.0"},
		{name: "no choice any more", module: psx, text: gpl, err: "is under GPL-2.0"},
		{name: "own words", text: "Do with this what you like, but not on Sundays.", err: "has no licence"},
		{name: "empty", err: "has no licence"},
	} {
		file := filepath.Join(t.TempDir(), "LICENSE")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		all := legalTexts{to: t.TempDir(), names: map[string][]string{}}
		lib := &licenses.Library{LicenseFile: file, Licenses: must(classifier.Identify(file))}
		err := all.add(lib, tt.module+"@v1.0.0/LICENSE")
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.err)
		}
	}
}
