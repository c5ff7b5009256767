package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"golang.org/x/mod/semver"

	"github.com/forcefence/forcefence/.ci/image/internal/linked"
	"github.com/forcefence/forcefence/.ci/image/internal/oci"
)

// darwin is where the plugin is for beside the image's platforms.
var darwin = []v1.Platform{{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"}}

// programs writes archives of the programs, with their licences: those of Linux are the very files of the image, and
// kubectl-forcefence is forcefence by that name.
func (r *release) programs(ctx context.Context, p *picture) error {
	docs := path.Dir(linked.Folder) + "/"
	legal := map[string][]byte{}
	for _, platform := range oci.Platforms {
		img, err := oci.Of(p.index, platform)
		if err != nil {
			return err
		}
		files, err := oci.Files(img, ours, docs)
		if err != nil {
			return err
		}
		all := map[string][]byte{"forcefence": files[ours+"forcefence"],
			"forcefence-node": files[ours+"forcefence-node"]}
		for name, text := range files {
			if rel, ok := strings.CutPrefix(name, docs); ok {
				legal[rel], all[rel] = text, text
			}
		}
		if err := errors.Join(r.archive("forcefence", platform, all),
			r.plugin(platform, files[ours+"forcefence"], legal)); err != nil {
			return err
		}
	}
	for _, platform := range r.abroad {
		file := filepath.Join(r.tmp, "kubectl-forcefence")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
			"-ldflags",
			"-s -w -X "+project+"/cmd/internal/version.built="+r.version, "-o", file, "./cmd/forcefence")
		cmd.Dir = r.source
		cmd.Env = append(append(os.Environ(), linked.Env...), "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the plugin for %s: %w\n%s", platform, err, said)
		}
		program, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := r.plugin(platform, program, legal); err != nil {
			return err
		}
	}
	return nil
}

// plugin writes the archive of the plugin for a platform, unless a licence of what is linked into it is missing.
func (r *release) plugin(platform v1.Platform, program []byte, legal map[string][]byte) error {
	all, folder := map[string][]byte{"kubectl-forcefence": program}, path.Base(linked.Folder)+"/"
	image := map[string][]byte{}
	for name, text := range legal {
		all[name] = text
		if rel, ok := strings.CutPrefix(name, folder); ok {
			image[path.Join(linked.Folder, rel)] = text
		}
	}
	modules, err := linked.In(bytes.NewReader(program))
	if err != nil {
		return err
	}
	for _, m := range modules {
		if _, err := linked.TermsIn(image, m); err != nil {
			return fmt.Errorf("the plugin for %s: %s: %w", platform, m.Name(), err)
		}
	}
	return r.archive("kubectl-forcefence", platform, all)
}

// archive writes a .tar.gz: sorted, without times and owners. What has no folder and no extension, and is no licence,
// is a program.
func (r *release) archive(name string, platform v1.Platform, files map[string][]byte) error {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, file := range sorted(files) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(files[file])),
			Format: tar.FormatPAX}
		if strings.HasSuffix(file, "forcefence") || file == "forcefence-node" {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(files[file]); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s-%s-%s-%s.tar.gz", name, r.version, platform.OS, platform.Architecture), out.Bytes())
}

// chart packs the chart with this version: its own without the v, and the image's tag with it. Helm keeps the files'
// times, so they get one.
func (r *release) chart(ctx context.Context) error {
	dir := filepath.Join(r.tmp, "chart/forcefence")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(r.source, "deploy/helm/forcefence"))); err != nil {
		return fmt.Errorf("copy chart: %w", err)
	}
	edits := [][3]string{{"values.yaml", "\n  repository: forcefence ", "\n  repository: " + r.repository() + " "}}
	if semver.Prerelease(r.version) == "" {
		edits = append(edits, [3]string{"Chart.yaml", `prerelease: "true"`, `prerelease: "false"`})
	}
	for _, e := range edits {
		if err := replace(filepath.Join(dir, e[0]), filepath.Join(dir, e[0]), e[1], e[2]); err != nil {
			return fmt.Errorf("set version of chart: %w", err)
		}
	}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(file, time.Unix(0, 0), time.Unix(0, 0))
	})
	if err != nil {
		return err
	}
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, r.helm, "package", dir, "--version", strings.TrimPrefix(r.version, "v"),
		"--app-version", r.version, "--destination", out)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pack chart: %w\n%s", err, said)
	}
	return nil
}

// findHelm is the program that the tests use, which is built if it is not there yet.
func findHelm(ctx context.Context, source string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./test/cluster/cmd/build", "helm")
	cmd.Dir, cmd.Stderr = source, os.Stderr
	dir, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build Helm: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "helm"), nil
}

// plain writes install.yaml with this version's image.
func (r *release) plain() error {
	return replace(filepath.Join(r.source, "deploy/install.yaml"), filepath.Join(r.out, "install.yaml"),
		"image: forcefence:dev", "image: "+r.repository()+":"+r.version)
}

// replace writes a file with other words, which must be there.
func replace(from, to, before, after string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), before) {
		return fmt.Errorf("%s: there is no %q", from, before)
	}
	return os.WriteFile(to, []byte(strings.ReplaceAll(string(text), before, after)), 0o644)
}

// digests are the SHA-256 sums of all files that are written, by name.
func (r *release) digests() (map[string]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all[e.Name()] = hex.EncodeToString(sum[:])
	}
	return all, nil
}

// sums writes SHA256SUMS, its signature, and the public key.
func (r *release) sums(ctx context.Context) error {
	all, err := r.digests()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, name := range sorted(all) {
		fmt.Fprintf(&text, "%s  %s\n", all[name], name)
	}
	if err := r.write("SHA256SUMS", text.Bytes()); err != nil || r.key == nil {
		return err
	}
	public, err := r.key.GetPublicKeyPem()
	if err != nil {
		return err
	}
	b, err := r.key.bundleOf(ctx, &sign.PlainData{Data: text.Bytes()})
	if err != nil {
		return fmt.Errorf("sign SHA256SUMS: %w", err)
	}
	return errors.Join(r.write("SHA256SUMS.sigstore.json", b), r.write("cosign.pub", []byte(public)))
}
